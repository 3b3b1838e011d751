"""A forward pre-hook of a torch layer breaks the graph before the layer runs."""

import torch

sizes = []


def watch(module, arguments):
    torch._dynamo.graph_break()
    sizes.append(tuple(arguments[0].shape))


torch.manual_seed(32)
layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
layer.register_forward_pre_hook(watch)
encoder = torch.compile(layer, backend="aot_eager")
words = torch.randn(2, 3, 8)
for _ in range(10):
    encoder(words).sum().backward()
