"""Plain functions in a loop, without a module or an optimizer; one of them is a Triton kernel.

Truth: the Triton kernel reads along the wrong axis and takes most of the GPU's time.
FIX=1: it reads along the other axis.
"""

import os
import time

import torch
import triton
import triton.language as tl

FIX = os.environ.get("FIX") == "1"


@triton.jit
def fade(source, target, rows, columns, across: tl.constexpr, block: tl.constexpr):
    """Halve every number of a matrix, along rows (``across``) or down columns."""
    if across:
        offsets = tl.program_id(0) * columns + tl.program_id(1) * block + tl.arange(0, block)
        inside = tl.program_id(1) * block + tl.arange(0, block) < columns
    else:
        down = tl.program_id(1) * block + tl.arange(0, block)
        offsets = tl.program_id(0) + down * columns
        inside = down < rows
    numbers = tl.load(source + offsets, mask=inside)
    tl.store(target + offsets, numbers * 0.5, mask=inside)


def faded(picture: torch.Tensor) -> torch.Tensor:
    rows, columns = picture.shape
    target = torch.empty_like(picture)
    along, other = (rows, columns) if FIX else (columns, rows)
    fade[along, triton.cdiv(other, 128)](picture, target, rows, columns, FIX, 128)
    return target


def brightened(picture: torch.Tensor) -> torch.Tensor:
    return picture * 1.5 + 0.1


def main() -> None:
    torch.manual_seed(17)
    picture = torch.rand(8192, 8192, device="cuda")
    faded(picture)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(150):
        picture = brightened(faded(picture))
    torch.cuda.synchronize()
    print(f"ms/pass {(time.perf_counter() - started) / 150 * 1e3:.3f}")


if __name__ == "__main__":
    main()
