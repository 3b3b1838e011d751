"""A linear layer whose weight is a wrapper subclass of two bytes a value; no operator works on it but the ones named."""

import torch
from torch import nn


class Packed(torch.Tensor):
    @staticmethod
    def __new__(cls, low, high):
        return torch.Tensor._make_wrapper_subclass(cls, low.shape, dtype=torch.float32, device=low.device)

    def __init__(self, low, high):
        self.low, self.high = low, high

    def __tensor_flatten__(self):
        return ["low", "high"], None

    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride):
        return Packed(parts["low"], parts["high"])

    def unpacked(self):
        return (self.high.float() * 256 + self.low.float()) / 1000

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        if function is nn.functional.linear:
            features, weight = arguments[:2]
            return features @ weight.unpacked().t()
        with torch._C.DisableTorchFunctionSubclass():
            return function(*arguments, **(named or {}))

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        if function in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return Packed(arguments[0].low, arguments[0].high)
        raise NotImplementedError(f"Packed has no {function}")


layer = nn.Linear(6, 4, bias=False).requires_grad_(False)
counts = torch.arange(24, dtype=torch.uint8).reshape(4, 6)
layer.weight = nn.Parameter(Packed(counts, torch.zeros_like(counts)), requires_grad=False)
features = torch.ones(2, 6)
apply = torch.compile(lambda rows: layer(rows) + 1, backend="aot_eager")


@torch.no_grad()
def step():
    return apply(features)


if __name__ == "__main__":
    for _ in range(6):
        result = step()
    print("sum", round(float(result.sum()), 3))
