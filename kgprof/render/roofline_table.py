"""Kernels against the card: how each was launched, what it achieved, and which ceiling it is under."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.chart import broken_down, of_width
from kgprof.render.kernel_table import distinct_names
from kgprof.render.limits import Limits, anchor, run_name
from kgprof.render.quantity import DASH, count, figure, milliseconds, percent, size
from kgprof.render.visible import one_line
from kgprof.wording import middle_out

_SHORT_NAME = 60
_WHOLE = 20_000  # characters of a name before it is cut
_UNITS = {"bytes/s": (1e9, "GB/s"), "FLOP/s": (1e12, "TFLOP/s")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A cell. ``why`` is the reason for a dash; ``below`` a second line in small."""

    text: str
    sort: str = ""
    why: str = ""
    below: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchLine:
    rank: str
    name: str
    full_name: str  # empty where ``name`` already is the whole
    generator: str
    bound: Figure
    width: str  # of the meter: the share of what the ceiling allows
    cells: tuple[Figure, ...]  # in the order of HEADINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTable:
    anchor: str
    run: str
    caption: str
    lines: tuple[LaunchLine, ...]
    unplaced: str  # what has no verdict, by its reason
    more: str  # rows that are not here, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingLine:
    name: str
    value: str
    spread: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePart:
    """Of the whole page: the ceilings and the rule once, and a table a run."""

    ceilings: tuple[CeilingLine, ...]
    without: str  # why there are none
    rule: str
    headings: tuple[str, ...]
    tables: tuple[LaunchTable, ...]


HEADINGS = (
    "total ms",
    "median \N{MICRO SIGN}s",
    "GB/s",
    "TFLOP/s",
    "registers",
    "shared",
    "grid",
    "warps",
    "occupancy",
)


def placed(runs: Sequence[m.RunReport]) -> list[tuple[int, m.RunReport, m.KernelBreakdown, m.Roofline]]:
    return [
        (index, run, kernels, kernels.roofline)
        for index, run, kernels in broken_down(runs)
        if isinstance(kernels.roofline, m.Roofline)
    ]


def roofline_part(runs: Sequence[m.RunReport], limits: Limits) -> RooflinePart | None:
    """None where no run was on a GPU."""
    found = placed(runs)
    if not found:
        return None
    first = found[0][3]
    return RooflinePart(
        ceilings=tuple(_ceiling_line(one, limits) for one in first.ceilings),
        without=one_line(first.without, 2 * limits.name),
        rule=one_line(first.rule, 4 * limits.name),
        headings=HEADINGS,
        tables=tuple(
            LaunchTable(
                anchor=anchor(index),
                run=run_name(run, limits),
                caption=sentence(kernels, roofline),
                lines=_lines(roofline.rows[: limits.kernel_rows], limits),
                unplaced=one_line(unplaced(kernels, roofline), 4 * limits.name),
                more=_more(roofline, limits),
            )
            for index, run, kernels, roofline in found
        ),
    )


def _ceiling_line(one: m.Ceiling, limits: Limits) -> CeilingLine:
    return CeilingLine(
        name=one_line(ceiling_name(one), limits.name),
        value=rate(one.median, one.unit),
        spread=f"{rate(one.minimum, one.unit)} to {rate(one.maximum, one.unit)}, n = {count(one.samples)}",
        how=one_line(one.how, limits.name),
    )


def ceiling_name(one: m.Ceiling) -> str:
    return f"{one.operation} in {one.dtype}" if one.dtype else one.operation


def rate(value: float, unit: str) -> str:
    scale, name = _UNITS.get(unit, (1.0, unit))
    return f"{figure(value / scale)} {name}"


def sentence(kernels: m.KernelBreakdown, roofline: m.Roofline) -> str:
    """How much of the device time has a verdict, by verdict; or why none has."""
    whole = kernels.total_us
    if not roofline.placed or not whole:
        why = roofline.without or "the bytes of no kernel are known"
        return f"no kernel could be placed: {why}"
    parts = ", ".join(f"{total.what} {percent(total.total_us / whole)}" for total in roofline.placed)
    return f"{percent(roofline.placed_us / whole)} of the device time is placed: {parts}"


def unplaced(kernels: m.KernelBreakdown, roofline: m.Roofline) -> str:
    """Of the device time, by reason; the largest first. Empty where every row has a verdict."""
    whole = kernels.total_us or 1.0
    said = "; ".join(f"{percent(total.total_us / whole)}: {total.what}" for total in roofline.unplaced)
    return f"Not placed: {said}" if said else ""


def _more(roofline: m.Roofline, limits: Limits) -> str:
    rest = roofline.rows[limits.kernel_rows :]
    number = len(rest) + roofline.rows_left_out
    if not number:
        return ""
    us = sum(row.total_us for row in rest) + roofline.left_out_us
    kept = f"report.json holds the largest {count(len(roofline.rows))}"
    return f"{count(number)} more rows with {milliseconds(us)} ms; {kept}"


def _lines(rows: Sequence[m.KernelLaunches], limits: Limits) -> tuple[LaunchLine, ...]:
    names = distinct_names([row.name for row in rows], _SHORT_NAME, limits.name)
    return tuple(_line(rank, row, names[rank - 1], limits) for rank, row in enumerate(rows, start=1))


def _line(rank: int, row: m.KernelLaunches, name: str, limits: Limits) -> LaunchLine:
    whole = middle_out(one_line(row.name, _WHOLE), limits.name)
    return LaunchLine(
        rank=count(rank),
        name=name,
        full_name=whole if whole != name else "",
        generator=one_line(row.generator, limits.name),
        bound=bound(row, limits.name),
        width="" if isinstance(row.of_ceiling, m.Skipped) else of_width(row.of_ceiling),
        cells=_cells(row, limits),
    )


def bound(row: m.KernelLaunches, longest: int) -> Figure:
    """The verdict, and what of the ceiling was reached."""
    if isinstance(row.bound, m.Skipped) or isinstance(row.of_ceiling, m.Skipped):
        reason = row.bound if isinstance(row.bound, m.Skipped) else row.of_ceiling
        return _missing(reason, longest) if isinstance(reason, m.Skipped) else Figure(text=DASH)
    return Figure(text=row.bound, sort=repr(row.of_ceiling), below=f"{percent(row.of_ceiling)} of the ceiling")


def _cells(row: m.KernelLaunches, limits: Limits) -> tuple[Figure, ...]:
    longest = limits.name
    return (
        Figure(
            text=milliseconds(row.total_us),
            sort=repr(row.total_us),
            below=f"{percent(row.share)} in {count(row.count)}",
        ),
        Figure(text=figure(row.median_us), sort=repr(row.median_us)),
        gigabytes(row, longest),
        teraflops(row, longest),
        _registers(row, longest),
        _missing(row.shared_bytes, longest)
        if isinstance(row.shared_bytes, m.Skipped)
        else Figure(text=size(row.shared_bytes), sort=repr(row.shared_bytes)),
        _grid(row, longest),
        _warps(row, longest),
        occupancy(row, longest),
    )


def gigabytes(row: m.KernelLaunches, longest: int) -> Figure:
    if isinstance(row.bytes_per_s, m.Skipped):
        return _missing(row.bytes_per_s, longest)
    below = "" if isinstance(row.bytes_moved, m.Skipped) else size(row.bytes_moved)
    return Figure(text=figure(row.bytes_per_s / 1e9), sort=repr(row.bytes_per_s), below=below)


def teraflops(row: m.KernelLaunches, longest: int) -> Figure:
    if isinstance(row.flops_per_s, m.Skipped):
        return _missing(row.flops_per_s, longest)
    return Figure(text=figure(row.flops_per_s / 1e12), sort=repr(row.flops_per_s))


def _registers(row: m.KernelLaunches, longest: int) -> Figure:
    """With what did not fit into them, where that is known."""
    if isinstance(row.registers, m.Skipped):
        return _missing(row.registers, longest)
    spills = "" if isinstance(row.spills, m.Skipped) else f"{count(row.spills)} spilled"
    return Figure(text=count(row.registers), sort=repr(row.registers), below=spills)


def _grid(row: m.KernelLaunches, longest: int) -> Figure:
    """In blocks, with the threads of each."""
    if isinstance(row.grid, m.Skipped):
        return _missing(row.grid, longest)
    blocks = 1
    for extent in row.grid:
        blocks *= extent
    threads = "" if isinstance(row.block, m.Skipped) else f"of {_extent(row.block)}"
    return Figure(text=_extent(row.grid), sort=repr(blocks), below=threads)


def _extent(extent: Sequence[int]) -> str:
    """Without the trailing ones."""
    last = max((index for index, number in enumerate(extent) if number != 1), default=0)
    return "\N{MULTIPLICATION SIGN}".join(count(number) for number in extent[: last + 1])


def _warps(row: m.KernelLaunches, longest: int) -> Figure:
    if isinstance(row.warps, m.Skipped):
        return _missing(row.warps, longest)
    below = ""
    if not isinstance(row.stages, m.Skipped):
        below = f"{count(row.stages)} {'stage' if row.stages == 1 else 'stages'}"
    return Figure(text=count(row.warps), sort=repr(row.warps), below=below)


def occupancy(row: m.KernelLaunches, longest: int) -> Figure:
    """CUPTI gives whole per cent, so its 0 is less than one."""
    if isinstance(row.occupancy_percent, m.Skipped):
        return _missing(row.occupancy_percent, longest)
    text = f"{row.occupancy_percent:.0f} %" if row.occupancy_percent else "< 1 %"
    return Figure(text=text, sort=repr(row.occupancy_percent))


def _missing(skipped: m.Skipped, longest: int) -> Figure:
    return Figure(text=DASH, why=one_line(skipped.reason, longest))
