"""Each kernel held against what its card was measured to do: a copy's bytes and a matmul's
operations per second.

The least time a launch could take is the longer of two: its bytes at the copy's rate and its
operations at the matmul's. What it took over that says how far off it is, and the longer of the two
what would have to be less.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from kgprof import model as m
from kgprof.measures import kernel_kinds
from kgprof.measures.origins import Known
from kgprof.reading import launches
from kgprof.reading.kineto import NONE, Columns, LaunchShape
from kgprof.reading.launches import Launched
from kgprof.reading.timeline import NOBODY, Numbers

# of the ideal time over the time taken: below it a short launch is bound by neither bytes nor
# operations
NEAR = 0.5
SHORT_US = 10.0  # a launch of less: starting and draining the card's blocks takes a good part of it
ABOVE = 1.1  # beyond it the figure cannot be right, or the bytes came from a cache
ROWS = 50  # the largest, in the Profile

RULE = (
    "A launch's ideal time is the longer of its bytes at the measured copy rate and its "
    "operations at the measured matmul rate of their type. Latency-bound: the median launch takes "
    f"more than {1 / NEAR:g}× that, and it is shorter than {SHORT_US:g} µs or its grid has fewer "
    "blocks than the GPU has multiprocessors. Otherwise memory-bound or compute-bound, whichever "
    f"is longer. Above peak: more than {ABOVE:g}× faster than ideal, so the bytes came from a "
    "cache or the count is too high."
)

T = TypeVar("T")
_WARP = 32  # threads, on every NVIDIA card

ON_THE_BUS = "its bytes cross the bus to the CPU, whose peak rate was not measured"
NO_WORK = "this Recording has no byte or operation counts for its kernels"
NOT_GENERATED = (
    "its launching call in Inductor's code is unknown (CUDA-graph replays show no calls)"
)
NO_DURATION = m.Skipped("the trace gives it no duration")
CALLS_DIFFER = "calls of this kernel differ and cannot be told apart"


_Ideal = tuple[float, float]  # microseconds for the bytes, and for the operations


class _Amount(m.Model, kw_only=False):
    """What one launch moves and computes."""

    bytes_moved: int | m.Skipped
    flops: int | m.Skipped
    dtype: str = ""
    on_the_bus: bool = False


class _Alike(m.Model, kw_only=False):
    """Launches that count as one row."""

    name: str
    category: str
    shape: LaunchShape
    amount: _Amount
    durations_ns: Numbers


def roofline(
    columns: Columns,
    work: Launched,
    known: Sequence[Known] | None,
    compiled: m.CompiledKernels | m.Skipped,
    ceilings: m.Ceilings | m.Skipped,
) -> m.Roofline:
    """``known`` is of ``work.events``, in their order; None where nothing was recorded about the
    kernels."""
    peaks: Sequence[m.CeilingSamples] = ()
    without = ""
    if isinstance(ceilings, m.Ceilings):
        peaks = ceilings.measured
    else:
        without = ceilings.reason
    measured = tuple(map(_ceiling, peaks))
    tuned: dict[str, list[m.CompiledKernel]] = defaultdict(list)
    if isinstance(compiled, m.CompiledKernels):
        for kernel in compiled.kernels:
            tuned[kernel.kernel].append(kernel)
    total_ns = columns.lasted_ns(work.events)
    alike = _alike(columns, work, known)
    rows = [_row(each, total_ns, tuned.get(each.name, ()), measured, without) for each in alike]
    rows.sort(key=lambda row: (-row.total_us, row.name, str(row.grid)))
    left_out = rows[ROWS:]
    placed: dict[str, float] = defaultdict(float)
    unplaced: dict[str, float] = defaultdict(float)
    for row in rows:
        if isinstance(row.bound, m.Bound):
            placed[row.bound] += row.total_us
        else:
            unplaced[row.bound.reason] += row.total_us
    return m.Roofline(
        rule=RULE,
        ceilings=measured,
        without=without,
        rows=tuple(rows[:ROWS]),
        rows_left_out=len(left_out),
        left_out_us=sum(row.total_us for row in left_out),
        placed=_totals(placed),
        unplaced=_totals(unplaced),
    )


def _ceiling(of: m.CeilingSamples) -> m.Ceiling:
    middle = statistics.median(of.per_s)
    ends = min(of.per_s), max(of.per_s)
    return m.Ceiling(of.operation, of.dtype, of.unit, middle, *ends, len(of.per_s), of.how)


def _totals(by_name: Mapping[str, float]) -> tuple[m.BoundTotal, ...]:
    ordered = sorted(by_name.items(), key=lambda one: (-one[1], one[0]))
    return tuple(m.BoundTotal(what, us) for what, us in ordered)


def _alike(columns: Columns, work: Launched, known: Sequence[Known] | None) -> Iterator[_Alike]:
    # How many kernels each call of a library launched; the fills and copies beside them do not
    # count.
    is_kernel = columns.of_category("kernel")[work.events].tolist()
    kernels_of_call = Counter(
        one.call for one, kernel in zip(known or (), is_kernel, strict=False) if kernel
    )
    durations = columns.duration_ns[work.events]
    for members in launches.alike(columns, work.events, by_shape=True):
        places: list[int] = members.tolist()
        first = work.events[places[0]]
        name = columns.name_of(first)
        category = columns.categories[columns.category[first]]
        index = columns.shape[first]
        shape = LaunchShape()
        if index != NONE:
            shape = columns.shapes[index]
        groups: dict[_Amount, list[int]] = defaultdict(list)
        # then all of them have the same, and there may be a million
        if known is None or category != "kernel":
            groups[_amount(name, category, shape, None, kernels_of_call)] = places
        else:
            for place in places:
                groups[_amount(name, category, shape, known[place], kernels_of_call)].append(place)
        for amount, same in groups.items():
            yield _Alike(name, category, shape, amount, durations[same])


def _amount(
    name: str,
    category: str,
    shape: LaunchShape,
    known: Known | None,
    kernels_of_call: Mapping[int, int],
) -> _Amount:
    if category != "kernel":  # a copy on the device reads and writes each byte, a fill writes it
        none = m.Skipped("a copy computes nothing")
        moved = shape.size_bytes
        if moved is None:
            return _Amount(m.Skipped("the trace does not give its size"), none)
        if category != "gpu_memset" and "DtoD" not in name:
            return _Amount(moved, none, on_the_bus=True)
        if category == "gpu_memcpy":
            moved *= 2
        return _Amount(moved, none)
    if known is None or (not known.work and (known.lines or known.call != NOBODY)):
        why = NO_WORK
    elif not known.work:
        why = NOT_GENERATED
    elif len(known.work) > 1:
        why = CALLS_DIFFER
    elif known.call != NOBODY and kernels_of_call[known.call] > 1:
        why = (
            f"the call launched {kernels_of_call[known.call]} kernels, and its bytes are "
            "those of all"
        )
    else:
        (work,) = known.work
        bytes_moved = _or_skipped(work.bytes_moved, work.unknown)
        flops = _or_skipped(work.flops, "Inductor counts none")
        return _Amount(bytes_moved, flops, work.dtype)
    return _Amount(m.Skipped(why), m.Skipped(why))


def _row(
    alike: _Alike,
    total_ns: int,
    tuned: Sequence[m.CompiledKernel],
    ceilings: Sequence[m.Ceiling],
    without: str,
) -> m.KernelLaunches:
    shape = alike.shape
    amount = alike.amount
    of_all_ns = int(alike.durations_ns.sum())
    median_us = float(np.median(alike.durations_ns)) / 1000
    no_shape = "the trace does not have it"
    if alike.category != "kernel":
        no_shape = "a copy or fill is not a kernel"
    warps: int | m.Skipped = m.Skipped(no_shape)
    if shape.block:
        warps = -(-math.prod(shape.block) // _WARP)
    spills, stages = _chosen(alike, tuned)
    ideal_us = _ideal_us(amount, ceilings, without)
    few_blocks = shape.blocks_per_sm is not None and shape.blocks_per_sm < 1
    bound = _bound(ideal_us, median_us, few_blocks)
    return m.KernelLaunches(
        alike.name,
        kernel_kinds.of_device_event(alike.name, alike.category).generator,
        count=len(alike.durations_ns),
        total_us=of_all_ns / 1000,
        share=of_all_ns / (total_ns or 1),
        median_us=median_us,
        grid=shape.grid or m.Skipped(no_shape),
        block=shape.block or m.Skipped(no_shape),
        registers=_or_skipped(shape.registers, no_shape),
        shared_bytes=_or_skipped(shape.shared_bytes, no_shape),
        blocks_per_sm=_or_skipped(shape.blocks_per_sm, no_shape),
        warps=warps,
        occupancy_percent=_or_skipped(shape.occupancy_percent, no_shape),
        spills=spills,
        stages=stages,
        bytes_moved=amount.bytes_moved,
        flops=amount.flops,
        bytes_per_s=_rate(amount.bytes_moved, median_us),
        flops_per_s=_rate(amount.flops, median_us),
        bound=bound,
        of_ceiling=_of_ceiling(ideal_us, bound, median_us),
    )


def _or_skipped(value: T | None, reason: str) -> T | m.Skipped:
    if value is None:
        return m.Skipped(reason)
    return value


@m.skippable
def _rate(amount: int | m.Skipped, median_us: float) -> m.Figure:
    total = m.known(amount)
    if not median_us:
        return NO_DURATION
    return total / median_us * 1e6


@m.skippable
def _of_ceiling(
    ideal: _Ideal | m.Skipped, bound: m.Bound | m.Skipped, median_us: float
) -> m.Figure:
    least_us = max(m.known(ideal))
    m.known(bound)
    return least_us / median_us


def _chosen(
    alike: _Alike, tuned: Sequence[m.CompiledKernel]
) -> tuple[int | m.Skipped, int | m.Skipped]:
    """Spills and stages. Two graphs may each have a kernel of one name; registers and warps tell
    which one was launched."""
    shape = alike.shape
    fitting = {
        (one.spills, one.stages)
        for one in tuned
        if (None in (shape.registers, one.registers) or shape.registers == one.registers)
        and (not shape.block or one.warps is None or math.prod(shape.block) == _WARP * one.warps)
    }
    if not alike.name.startswith("triton_"):
        why = "known of Triton kernels only"
    elif not tuned:
        why = "this Recording has no compiled kernel of this name"
    elif not fitting:
        why = "no compiled kernel with this name, registers and warps"
    elif len(fitting) > 1:
        why = "several compiled kernels with this name, registers and warps"
    else:
        why = "not reported by Triton"
        ((spills, stages),) = fitting
        return _or_skipped(spills, why), _or_skipped(stages, why)
    return m.Skipped(why), m.Skipped(why)


@m.skippable
def _ideal_us(amount: _Amount, ceilings: Sequence[m.Ceiling], without: str) -> _Ideal | m.Skipped:
    """The least time for either. Where no operations are counted, bytes alone decide."""
    bytes_moved = m.known(amount.bytes_moved)
    if amount.on_the_bus:
        return m.Skipped(ON_THE_BUS)
    rates = {(one.operation, one.dtype): one.median for one in ceilings}
    copy = rates.get((m.COPY, ""))
    if copy is None:
        return m.Skipped(without or "the copy was not measured")
    compute_us = 0.0
    if isinstance(amount.flops, int):
        matmul = rates.get((m.MATMUL, amount.dtype))
        if matmul is None:
            return m.Skipped(f"no matmul in {amount.dtype or 'an unknown type'} was measured")
        compute_us = amount.flops / matmul * 1e6
    return bytes_moved / copy * 1e6, compute_us


@m.skippable
def _bound(ideal: _Ideal | m.Skipped, median_us: float, few_blocks: bool) -> m.Bound | m.Skipped:
    """As RULE says."""
    memory_us, compute_us = m.known(ideal)
    if not median_us:
        return NO_DURATION
    share = max(memory_us, compute_us) / median_us
    if share > ABOVE:
        return m.Bound.IMPOSSIBLE
    if share < NEAR and (median_us < SHORT_US or few_blocks):
        return m.Bound.LATENCY
    if memory_us >= compute_us:
        return m.Bound.MEMORY
    return m.Bound.COMPUTE
