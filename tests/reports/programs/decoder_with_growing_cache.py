"""A small Llama continues a prompt token by token, and its cache of keys and values grows by one position each time."""

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

torch.manual_seed(12)
shape = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(vocab_size=50, num_key_value_heads=2, **shape)).eval()
decode = torch.compile(model, backend="aot_eager")


@torch.no_grad()
def continue_prompt(prompt, tokens):
    cache = DynamicCache()
    output = decode(prompt, past_key_values=cache, use_cache=True)
    written = []
    for _ in range(tokens):
        token = output.logits[:, -1:].argmax(-1)
        written.append(token.item())
        output = decode(token, past_key_values=cache, use_cache=True)
    return written


for request in range(2):
    print(request, continue_prompt(torch.arange(5 + request)[None], 8))
