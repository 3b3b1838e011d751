"""Roofline of the kernels: how each was launched, what it achieved, which ceiling it is under; and
a scatter plot of how long a launch takes and how much of the measured peak it reaches, whose
circles carry the table's numbers."""

import math
from math import prod
from typing import ClassVar

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.breakdown import broken_down, legend_of
from kgprof.document.escaping import one_line
from kgprof.document.kernel_table import distinct_names, extent, name_cell, occupancy
from kgprof.document.limits import Limits, kept
from kgprof.document.quantity import figure, of_width, percent, size
from kgprof.document.run_parts import run_part
from kgprof.document.table import (
    Block,
    Blocks,
    Cell,
    Column,
    Drawing,
    Fold,
    Small,
    Table,
    View,
    columns,
    known,
    number,
    plain,
    row,
    whole,
)
from kgprof.wording import plural, short_name

_SHORT_NAME = 60
_UNITS = {"bytes/s": (1e9, "GB/s"), "FLOP/s": (1e12, "TFLOP/s")}
IN_MARKDOWN = (
    "kernel",
    "bound by",
    "median \N{MICRO SIGN}s",
    "GB/s",
    "TFLOP/s",
    "registers",
    "occupancy",
)


def placed(
    runs: m.Runs,
) -> list[tuple[int, m.RunReport, m.KernelBreakdown, m.Roofline]]:
    return [
        (index, run, kernels, kernels.roofline)
        for index, run, kernels in broken_down(runs)
        if isinstance(kernels.roofline, m.Roofline)
    ]


def roofline_blocks(runs: m.Runs, limits: Limits) -> Blocks:
    """A drawing a run, then the ceilings and the rule once; none where no run was on a GPU."""
    found = placed(runs)
    if not found:
        return ()
    first = found[0][3]
    rows = []
    for ceiling in first.ceilings:
        name = Cell(ceiling_name(ceiling), below=(Small((ceiling.how,)),))
        unit = ceiling.unit
        least_to_most = (
            f"{rate(ceiling.minimum, unit)} to {rate(ceiling.maximum, unit)}, n = "
            f"{ceiling.samples:,}"
        )
        rows.append((name, rate(ceiling.median, unit), least_to_most))
    ceilings = plain(
        "Peak rates of this GPU", ("rate", "median", "minimum to maximum"), rows, style=""
    )
    blocks: list[Block] = []
    first_runs = kept(runs, limits.timelines)
    for index, run, kernels, roofline in found:
        notes = [f"{unplaced(kernels, roofline)}."] if roofline.unplaced else []
        drawing = scatter(run, kernels, roofline)
        drawn = (drawing, BOUNDS) if drawing.points and index in first_runs else ()
        caption = sentence(kernels, roofline)
        blocks.append(run_part(index, run, (*drawn, *notes), caption, "roofline"))
    if not first.ceilings:
        return (
            *blocks,
            f"No peak rates: {first.without}. The rates in the kernel table have no reference.",
        )
    return *blocks, Fold(
        "Peak rates measured on this GPU, and the rule", blocks=(ceilings, first.rule)
    )


def roofline_table(run: m.RunReport, roofline: m.Roofline, limits: Limits) -> Table:
    shown = roofline.rows[: limits.kernel_rows]
    names = distinct_names([launches.name for launches in shown], _SHORT_NAME, limits.name)
    rows = (
        row(
            f"{rank:,}",
            name_cell(launches.name, name, limits, Small((launches.generator,), "ops")),
            *_cells(launches),
        )
        for rank, (launches, name) in enumerate(zip(shown, names, strict=True), start=1)
    )
    return Table(
        label=f"Roofline of {run.key.slug}",
        columns=(
            Column("#", style="number rank"),
            Column("kernel", style="name"),
            Column("bound by", style=""),
            *columns(
                "total ms",
                IN_MARKDOWN[2],
                "GB/s",
                "TFLOP/s",
                "registers",
                "shared",
                "grid",
                words=0,
            ),
            *columns("warps", "occupancy", words=0),
        ),
        rows=tuple(rows),
        style="sortable filtered",
        named_by=1,
    )


def ceiling_name(one: m.Ceiling) -> str:
    return f"{one.operation} in {one.dtype}" if one.dtype else one.operation


def rate(value: float, unit: str) -> str:
    scale, name = _UNITS.get(unit, (1.0, unit))
    return f"{figure(value / scale)} {name}"


def _what(bound: str) -> str:
    return "above peak (served from cache)" if bound == m.Bound.IMPOSSIBLE else bound


def sentence(kernels: m.KernelBreakdown, roofline: m.Roofline) -> str:
    """How much of the device time has a verdict, by verdict; or why none has."""
    whole = kernels.total_us
    if not roofline.placed or not whole:
        why = roofline.without or "no kernel's bytes are known"
        return f"no kernel could be classified: {why}"
    parts = ", ".join(
        f"{_what(total.what)} {percent(total.total_us / whole)}" for total in roofline.placed
    )
    return f"{percent(roofline.placed_us / whole)} of GPU time classified: {parts}"


def unplaced(kernels: m.KernelBreakdown, roofline: m.Roofline) -> str:
    """Of the device time, by reason; the largest first. Empty where every row has a verdict."""
    whole = kernels.total_us or 1.0
    said = "; ".join(
        f"{percent(total.total_us / whole)}: {total.what}" for total in roofline.unplaced
    )
    return f"Not classified: {said}" if said else ""


def _cells(launches: m.KernelLaunches) -> tuple[Cell, ...]:
    """In the order of the columns behind the kernel's name."""
    extras = (
        "" if isinstance(launches.spills, m.Skipped) else f"{launches.spills:,} spilled",
        "" if isinstance(launches.block, m.Skipped) else f"of {extent(launches.block)}",
        "" if isinstance(launches.stages, m.Skipped) else plural(launches.stages, "stage"),
        "" if isinstance(launches.bytes_moved, m.Skipped) else size(launches.bytes_moved),
    )
    spilled, threads, stages, moved = ((extra,) if extra else () for extra in extras)
    in_all = f"{percent(launches.share)} in {launches.count:,}"
    reached = known(
        launches.of_ceiling,
        lambda share: Cell(value=share, bar=share, details=(f"{percent(share)} of peak",)),
    )
    return (
        known(
            launches.bound,
            lambda bound: replace(reached, text=_what(bound)) if reached.measured else reached,
        ),
        number(launches.total_us / 1000, in_all),
        number(launches.median_us),
        known(
            launches.bytes_per_s, lambda rate: Cell(figure(rate / 1e9), value=rate, details=moved)
        ),
        known(launches.flops_per_s, lambda rate: Cell(figure(rate / 1e12), value=rate)),
        whole(launches.registers, *spilled),
        known(launches.shared_bytes, lambda shared: Cell(size(shared), value=shared)),
        known(launches.grid, lambda grid: Cell(extent(grid), value=prod(grid), details=threads)),
        whole(launches.warps, *stages),
        known(launches.occupancy_percent, lambda share: Cell(occupancy(share), value=share)),
    )


_HIGH, _LEFT, _TOP = 260, 0.05, 16  # pixels; of the width; pixels
_MOST = 1.25  # of the peak: what is served from a cache lies above 1
_MOST_POINTS = 60  # the kernels with the most time
_NAMED = 6  # circles with their number
_LARGEST = 26  # pixels of a radius

BOUNDS = legend_of(
    "r",
    ("compute", "compute-bound", "near the measured matmul rate"),
    ("memory", "memory-bound", "near the measured copy rate"),
    ("latency", "latency-bound", "too short to reach either"),
    ("above", "above peak", "served from cache"),
)
_STYLES = dict(zip(m.Bound, ("memory", "compute", "latency", "above"), strict=True))


class Point(View):
    x: str
    y: float
    radius: float
    style: str
    title: str
    label: str


class Scatter(Drawing):
    kind: ClassVar[str] = "scatter"
    description: str
    height: int
    bottom: int
    left: str
    points: tuple[Point, ...]
    across: tuple[tuple[str, str], ...]  # where and what, along the duration
    up: tuple[tuple[float, str], ...]  # along the share of the peak


def scatter(run: m.RunReport, kernels: m.KernelBreakdown, roofline: m.Roofline) -> Scatter:
    ranks = {kernel.name: rank for rank, kernel in enumerate(kernels.rows, start=1)}
    known = [
        (each, each.of_ceiling, each.bound)
        for each in roofline.rows[:_MOST_POINTS]
        if isinstance(each.of_ceiling, float)
        and not isinstance(each.bound, m.Skipped)
        and each.median_us > 0
    ]
    times = [each.median_us for each, *_ in known] or [1.0]
    low, high = math.log10(min(times) / 1.3), math.log10(max(times) * 1.3)

    def x(us: float) -> str:
        return of_width(_LEFT + (1 - _LEFT) * (math.log10(us) - low) / (high - low))

    def y(share: float) -> float:
        return round(_TOP + (_HIGH - _TOP) * (1 - min(share, _MOST) / _MOST), 1)

    points = tuple(
        Point(
            x=x(each.median_us),
            y=y(share),
            radius=round(max(3.0, _LARGEST * math.sqrt(each.share)), 1),
            style=f"r-{_STYLES[m.Bound(bound)]}",
            title=f"#{ranks.get(each.name, 0)} {short_name(one_line(each.name, 20_000), 60)}: "
            f"{figure(each.median_us)} \N{MICRO SIGN}s, {percent(share)} of peak, {bound}, "
            f"{percent(each.share)} of GPU time",
            label=f"#{ranks[each.name]}" if place < _NAMED and each.name in ranks else "",
        )
        for place, (each, share, bound) in enumerate(sorted(known, key=lambda one: -one[0].share))
    )
    decades = [
        10.0**power * digit
        for power in range(math.floor(low), math.ceil(high) + 1)
        for digit in (1, 3)
    ]
    return Scatter(
        description=f"Roofline of {one_line(run.key.slug, 200)}: {len(points)} kernels by "
        "duration and share of the "
        f"measured peak; the table of kernels has the same figures",
        height=_HIGH + 40,
        bottom=_HIGH,
        left=of_width(_LEFT),
        points=points,
        across=tuple((x(us), f"{us:g}") for us in decades if low <= math.log10(us) <= high),
        up=tuple((y(share), f"{100 * share:.0f} %") for share in (0, 0.25, 0.5, 0.75, 1.0)),
    )
