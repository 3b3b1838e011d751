"""A context manager of the owner switches the default dtype inside the compiled function."""

import torch


class DefaultDtype:
    def __init__(self, dtype):
        self.dtype = dtype

    def __enter__(self):
        self.before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)

    def __exit__(self, *reason):
        torch.set_default_dtype(self.before)


@torch.compile(backend="aot_eager")
def noisy(x):
    x = x.sin()
    with DefaultDtype(torch.float64):
        ramp = torch.linspace(0, 1, 5)
    return x + ramp


def step():
    return noisy(torch.ones(3, 5)).sum()


if __name__ == "__main__":
    for _ in range(4):
        print(step().dtype, torch.get_default_dtype())
