"""What a card was measured to do at most (``ceilings.json`` of a Recording), and kernels held against it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from kgprof.model.structs import Model, Skipped, Tagged

COPY = "copy"
MATMUL = "matmul"
FLOAT8 = "float8"  # operands of either format, a result of another type


class CeilingSamples(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of one operation, one for each time that it was timed. ``how`` says what was run, with its sizes."""

    operation: str  # COPY or MATMUL
    dtype: str  # of the matmul: "float64", "float32", "tf32", "bfloat16", "float16", FLOAT8; empty for the copy
    unit: str  # "bytes/s", read and written both counted; "FLOP/s", a multiplication and an addition counted as two
    per_s: tuple[float, ...]
    how: str


class Ceilings(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="ceilings"):
    """Measured in a process of its own, when nothing else of the Recording ran."""

    device_name: str
    measured: tuple[CeilingSamples, ...]
    unavailable: tuple[str, ...] = ()  # "matmul in float64: why"


class Bound(StrEnum):
    """What keeps a kernel from being faster, against what the card was measured to do."""

    MEMORY = "memory-bound"
    COMPUTE = "compute-bound"
    LATENCY = "latency-bound"
    IMPOSSIBLE = "above the ceiling"


class Ceiling(Model, frozen=True, kw_only=True):
    """What the card was measured to do at most, in ``unit``; the median is what kernels are held against."""

    operation: str  # "copy" or "matmul"
    dtype: str  # of the matmul
    unit: str  # "bytes/s" or "FLOP/s"
    median: float
    minimum: float
    maximum: float
    samples: int
    how: str


class KernelLaunches(Model, frozen=True, kw_only=True):
    """All launches of one kernel that were alike: the same grid and block, registers, bytes and operations."""

    name: str
    generator: str  # as KernelRow.generator
    count: int
    total_us: float
    share: float  # of the sum over all device events, 0..1
    median_us: float
    grid: tuple[int, ...] | Skipped
    block: tuple[int, ...] | Skipped
    registers: int | Skipped  # of each thread
    shared_bytes: int | Skipped  # of each block
    blocks_per_sm: float | Skipped
    warps: int | Skipped  # of each block
    occupancy_percent: float | Skipped  # CUPTI's estimate, from the launch's shape and not from counters
    spills: int | Skipped
    stages: int | Skipped
    bytes_moved: int | Skipped  # of one launch, as KernelWork.bytes_moved
    flops: int | Skipped
    bytes_per_s: float | Skipped  # rates are of the median launch
    flops_per_s: float | Skipped
    bound: Bound | Skipped
    of_ceiling: float | Skipped  # the ideal time over the median launch; the ideal is what the ceiling allows


class BoundTotal(Model, frozen=True, kw_only=True):
    what: str  # KernelLaunches.bound, or why there is none
    total_us: float


class Roofline(Tagged, frozen=True, kw_only=True, tag="roofline"):
    """Every kernel held against the card's ceilings; the largest rows, and how many are not here."""

    rule: str  # how ``bound`` is decided, with its thresholds
    ceilings: tuple[Ceiling, ...]  # none: see ``without``
    without: str  # why there are no ceilings; empty where there are
    rows: tuple[KernelLaunches, ...]
    rows_left_out: int
    left_out_us: float
    # Of all rows, also those left out; largest first. Both together are the whole of the device's time.
    placed: tuple[BoundTotal, ...]  # by verdict
    unplaced: tuple[BoundTotal, ...]  # by reason

    @property
    def placed_us(self) -> float:
        return sum(total.total_us for total in self.placed)
