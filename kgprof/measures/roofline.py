"""Each kernel held against what its card was measured to do: a copy's bytes and a matmul's
operations per second.

The least time a launch could take is the longer of two: its bytes at the copy's rate and its
operations at the matmul's. What it took over that says how far off it is, and the longer of the two
what would have to be less.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kgprof import model as m
from kgprof.measures import kernel_kinds
from kgprof.measures.origins import Known
from kgprof.reading import launches
from kgprof.reading.kineto import NONE, Columns, LaunchShape
from kgprof.reading.launches import Launched
from kgprof.reading.timeline import NOBODY

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


class _Amount(m.Model):
    """What one launch moves and computes."""

    bytes_moved: int | m.Skipped
    flops: int | m.Skipped
    dtype: str = ""
    on_the_bus: bool = False


class _Alike(m.Model):
    """Launches that count as one row."""

    name: str
    category: str
    shape: LaunchShape
    amount: _Amount
    durations_ns: npt.NDArray[np.int64]


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
    if isinstance(ceilings, m.Skipped):
        without = ceilings.reason
    else:
        peaks = ceilings.measured
    measured = tuple(
        m.Ceiling(
            operation=one.operation,
            dtype=one.dtype,
            unit=one.unit,
            median=statistics.median(one.per_s),
            minimum=min(one.per_s),
            maximum=max(one.per_s),
            samples=len(one.per_s),
            how=one.how,
        )
        for one in peaks
    )
    tuned: dict[str, list[m.CompiledKernel]] = defaultdict(list)
    for kernel in () if isinstance(compiled, m.Skipped) else compiled.kernels:
        tuned[kernel.kernel].append(kernel)
    total_ns = columns.lasted_ns(work.events)
    alike = _alike(columns, work, known)
    rows = [_row(each, total_ns, tuned.get(each.name, ()), measured, without) for each in alike]
    rows.sort(key=lambda row: (-row.total_us, row.name, str(row.grid)))
    left_out = rows[ROWS:]
    return m.Roofline(
        rule=RULE,
        ceilings=measured,
        without=without,
        rows=tuple(rows[:ROWS]),
        rows_left_out=len(left_out),
        left_out_us=sum(row.total_us for row in left_out),
        placed=_totals(
            (row.bound, row.total_us) for row in rows if not isinstance(row.bound, m.Skipped)
        ),
        unplaced=_totals(
            (row.bound.reason, row.total_us) for row in rows if isinstance(row.bound, m.Skipped)
        ),
    )


def _totals(parts: Iterable[tuple[str, float]]) -> tuple[m.BoundTotal, ...]:
    by_name: dict[str, float] = defaultdict(float)
    for what, us in parts:
        by_name[what] += us
    ordered = sorted(by_name.items(), key=lambda one: (-one[1], one[0]))
    return tuple(m.BoundTotal(what=what, total_us=us) for what, us in ordered)


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
        shape = columns.shapes[index] if index != NONE else LaunchShape()
        groups: dict[_Amount, list[int]] = defaultdict(list)
        # then all of them have the same, and there may be a million
        if known is None or category != "kernel":
            groups[_amount(name, category, shape, None, kernels_of_call)] = places
        else:
            for place in places:
                groups[_amount(name, category, shape, known[place], kernels_of_call)].append(place)
        for amount, same in groups.items():
            yield _Alike(
                name=name,
                category=category,
                shape=shape,
                amount=amount,
                durations_ns=durations[same],
            )


def _amount(
    name: str,
    category: str,
    shape: LaunchShape,
    known: Known | None,
    kernels_of_call: Mapping[int, int],
) -> _Amount:
    if category != "kernel":  # a copy on the device reads and writes each byte, a fill writes it
        on_device = category == "gpu_memset" or "DtoD" in name
        times = 2 if on_device and category == "gpu_memcpy" else 1
        moved = None if shape.size_bytes is None else times * shape.size_bytes
        return _Amount(
            bytes_moved=_or_skipped(moved, "the trace does not give its size"),
            flops=m.Skipped("a copy computes nothing"),
            on_the_bus=moved is not None and not on_device,
        )
    if known is None:
        why = NO_WORK
    elif not known.work:
        why = NOT_GENERATED if not known.lines and known.call == NOBODY else NO_WORK
    elif len(known.work) > 1:
        why = CALLS_DIFFER
    elif known.call != NOBODY and kernels_of_call[known.call] > 1:
        why = (
            f"the call launched {kernels_of_call[known.call]} kernels, and its bytes are "
            "those of all"
        )
    else:
        (work,) = known.work
        return _Amount(
            bytes_moved=_or_skipped(work.bytes_moved, work.unknown),
            flops=_or_skipped(work.flops, "Inductor counts none"),
            dtype=work.dtype,
        )
    return _Amount(bytes_moved=m.Skipped(why), flops=m.Skipped(why))


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
    spills, stages = _chosen(alike, tuned)
    ideal_us = _ideal_us(amount, ceilings, without)
    few_blocks = shape.blocks_per_sm is not None and shape.blocks_per_sm < 1
    bound = _bound(ideal_us, median_us, few_blocks=few_blocks)
    return m.KernelLaunches(
        name=alike.name,
        generator=kernel_kinds.of_device_event(alike.name, alike.category).generator,
        count=len(alike.durations_ns),
        total_us=of_all_ns / 1000,
        share=of_all_ns / total_ns if total_ns else 0.0,
        median_us=median_us,
        grid=shape.grid or m.Skipped(no_shape),
        block=shape.block or m.Skipped(no_shape),
        registers=_or_skipped(shape.registers, no_shape),
        shared_bytes=_or_skipped(shape.shared_bytes, no_shape),
        blocks_per_sm=_or_skipped(shape.blocks_per_sm, no_shape),
        warps=-(-math.prod(shape.block) // _WARP) if shape.block else m.Skipped(no_shape),
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
    return m.Skipped(reason) if value is None else value


@m.skippable
def _rate(amount: int | m.Skipped, median_us: float) -> m.Figure:
    total = m.known(amount)
    return total / median_us * 1e6 if median_us else NO_DURATION


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
    if not isinstance(amount.flops, m.Skipped):
        matmul = rates.get((m.MATMUL, amount.dtype))
        if matmul is None:
            return m.Skipped(f"no matmul in {amount.dtype or 'an unknown type'} was measured")
        compute_us = amount.flops / matmul * 1e6
    return bytes_moved / copy * 1e6, compute_us


@m.skippable
def _bound(ideal: _Ideal | m.Skipped, median_us: float, *, few_blocks: bool) -> m.Bound | m.Skipped:
    """As RULE says."""
    memory_us, compute_us = m.known(ideal)
    if not median_us:
        return NO_DURATION
    share = max(memory_us, compute_us) / median_us
    if share > ABOVE:
        return m.Bound.IMPOSSIBLE
    if share < NEAR and (median_us < SHORT_US or few_blocks):
        return m.Bound.LATENCY
    return m.Bound.MEMORY if memory_us >= compute_us else m.Bound.COMPUTE
