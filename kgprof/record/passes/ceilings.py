"""What this card does at most: a copy and a matmul for each type of number, timed with CUDA events.

They are what a kernel's bytes and operations per second are held against, so they are measured on
the card of the runs, in a process of its own in which nothing else runs. The matrices hold random
numbers: on zeros a card draws less power, clocks higher and promises more than any real kernel
gets.
"""

import time
from functools import partial
from typing import NamedTuple

import torch

from kgprof import model as m
from kgprof.record.ground.machine_speed import timed_us
from kgprof.workloads.protocol import Step

COPY_BYTES = 2**30  # of each of the two buffers: 20 times an H200's L2 cache
FREE_SHARE = 8  # one buffer takes at most this part of the memory that is free
MATMUL_SIDE = 8192
SMALL_SIDE = 4096  # for the types that have no tensor cores on some cards
SAMPLES = 20
WARM_UP = 3
BUDGET_S = 0.5  # for the samples of one operation; a card that is slow at it gives fewer
FEWEST_SAMPLES = 3


class Product(NamedTuple):
    """A square matmul. ``name`` is "tf32" where float32 is multiplied by tensor cores, "float8" for
    either format."""

    name: str
    dtype: torch.dtype
    side: int


PRODUCTS = (
    Product("float64", torch.float64, SMALL_SIDE),
    Product("float32", torch.float32, SMALL_SIDE),
    Product("tf32", torch.float32, MATMUL_SIDE),
    Product("bfloat16", torch.bfloat16, MATMUL_SIDE),
    Product("float16", torch.float16, MATMUL_SIDE),
    Product(m.FLOAT8, torch.float8_e4m3fn, MATMUL_SIDE),
)


def measure_ceilings(device: torch.device) -> m.Ceilings | m.Skipped:
    """A few seconds of the whole card. An operation that it cannot do is named, and the others
    stand."""
    if device.type != "cuda":
        return m.Skipped("a CPU run has no GPU kernels to compare with them")
    measured = []
    unavailable = []
    products = {
        f"{m.MATMUL} in {product.name}": partial(matmul_ceiling, device, product)
        for product in PRODUCTS
    }
    for what, sample in {m.COPY: partial(copy_ceiling, device), **products}.items():
        try:
            measured.append(sample())
        # out of memory; a type that this card does not multiply
        except (RuntimeError, NotImplementedError) as error:
            unavailable.append(f"{what}: {str(error).strip().splitlines()[0]}")
        torch.cuda.empty_cache()
    name = torch.cuda.get_device_name(device)
    return m.Ceilings(device_name=name, measured=tuple(measured), unavailable=tuple(unavailable))


def copy_ceiling(device: torch.device, size_bytes: int | None = None) -> m.CeilingSamples:
    """From one buffer to another; each byte is read once and written once, and both are counted."""
    size_bytes = size_bytes or min(COPY_BYTES, torch.cuda.mem_get_info(device)[0] // FREE_SHARE)
    source = torch.randint(0, 256, (size_bytes,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = timed(lambda: target.copy_(source), device)
    return m.CeilingSamples(
        operation=m.COPY,
        dtype="",
        unit="bytes/s",
        per_s=tuple(2 * size_bytes / each for each in seconds),
        how=f"{size_bytes / 2**20:,.0f} MiB copied between buffers, counting reads and writes",
    )


def matmul_ceiling(device: torch.device, product: Product) -> m.CeilingSamples:
    """2 n^3 operations for a product of n x n matrices."""
    side = product.side
    left, right = (torch.randn(side, side, device=device).to(product.dtype) for _ in range(2))
    scale = torch.ones((), device=device)  # of all numbers of an operand
    result = torch.empty(
        side,
        side,
        device=device,
        dtype=torch.bfloat16 if product.name == m.FLOAT8 else product.dtype,
    )

    def call() -> object:
        # a GPU multiplies it only where the second operand lies by columns
        if product.name == m.FLOAT8:
            return torch._scaled_mm(
                left, right.t(), scale, scale, out_dtype=result.dtype, out=result
            )
        return torch.mm(left, right, out=result)

    before = torch.get_float32_matmul_precision()
    # "high": by tensor cores
    torch.set_float32_matmul_precision("high" if product.name == "tf32" else "highest")
    try:
        seconds = timed(call, device)
    finally:
        torch.set_float32_matmul_precision(before)
    return m.CeilingSamples(
        operation=m.MATMUL,
        dtype=product.name,
        unit="FLOP/s",
        per_s=tuple(2 * side**3 / each for each in seconds),
        how=f"{side} x {side} times {side} x {side}",
    )


def timed(call: Step, device: torch.device) -> tuple[float, ...]:
    """Seconds of each of SAMPLES calls, or of as many as the budget holds; each is awaited by
    itself."""
    for _ in range(WARM_UP):
        call()
    seconds: list[float] = []
    until = time.perf_counter() + BUDGET_S
    while len(seconds) < SAMPLES and (len(seconds) < FEWEST_SAMPLES or time.perf_counter() < until):
        seconds.append(timed_us(call, device) / 1e6)
    return tuple(seconds)
