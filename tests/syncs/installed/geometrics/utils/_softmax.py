import torch


def softmax(src, index, num_nodes=None):
    if num_nodes is None:
        num_nodes = int(index.max()) + 1
    exp = (src - src.max()).exp()
    total = torch.zeros(num_nodes, dtype=src.dtype, device=src.device).index_add(0, index, exp)
    return exp / (total[index] + 1e-16)
