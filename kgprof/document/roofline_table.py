"""Roofline of the kernels: how each was launched, what it achieved, which ceiling it is under; and
a scatter plot of how long a launch takes and how much of the measured peak it reaches, whose
circles carry the table's numbers."""

import math
from collections.abc import Iterator

from kgprof import model as m
from kgprof.document.breakdown import broken_down, legend_of
from kgprof.document.escaping import one_line
from kgprof.document.kernel_table import distinct_names, occupancy
from kgprof.document.limits import Limits, kept
from kgprof.document.quantity import figure, if_known, of_width, percent, rounded, share_of, size
from kgprof.document.run_parts import run_part
from kgprof.document.table import (
    Block,
    Cell,
    Cells,
    Drawn,
    Fold,
    Shown,
    Small,
    Table,
    dashed,
    number,
    plain,
    whole,
    written,
)
from kgprof.wording import clause, short_name

_SHORT_NAME = 60
_UNITS = {"bytes/s": (1e9, "GB/s"), "FLOP/s": (1e12, "TFLOP/s")}


def placed(
    runs: m.Runs,
) -> list[tuple[int, m.RunReport, m.KernelBreakdown, m.Roofline]]:
    return [
        (index, run, kernels, kernels.roofline)
        for index, run, kernels in broken_down(runs)
        if isinstance(kernels.roofline, m.Roofline)
    ]


def roofline_blocks(runs: m.Runs, limits: Limits) -> Iterator[Block]:
    """A drawing a run, then the ceilings and the rule once; none where no run was on a GPU."""
    found = placed(runs)
    if not found:
        return
    first_runs = kept(runs, limits.timelines)
    for index, run, kernels, roofline in found:
        blocks: list[Block] = []
        drawing = scatter(run, kernels, roofline)
        if drawing.shown["points"] and index in first_runs:
            blocks += [drawing, BOUNDS]
        if roofline.unplaced:
            blocks.append(f"{unplaced(kernels, roofline)}.")
        yield run_part(index, run, blocks, sentence(kernels, roofline), "roofline")
    first = found[0][3]
    if first.ceilings:
        title = "Peak rates measured on this GPU, and the rule"
        yield Fold(title, (_ceilings(first), first.rule))
    else:
        yield f"No peak rates: {first.without}. The rates in the kernel table have no reference."


def _ceilings(roofline: m.Roofline) -> Table:
    rows = []
    for ceiling in roofline.ceilings:
        median, least, most = (
            rate(value, ceiling.unit)
            for value in (ceiling.median, ceiling.minimum, ceiling.maximum)
        )
        name = Cell(ceiling_name(ceiling), below=(Small((ceiling.how,)),))
        rows.append((name, median, f"{least} to {most}, n = {ceiling.samples:,}"))
    headings = ("rate", "median", "minimum to maximum")
    return plain("Peak rates of this GPU", headings, rows, style="")


def roofline_table(run: m.RunReport, roofline: m.Roofline, most: int) -> Table:
    """The ``most`` largest kernels, for a comment and a log, which have no room for how one was
    launched."""
    shown = roofline.rows[:most]
    names = distinct_names([launches.name for launches in shown], _SHORT_NAME, 200)
    rows = [_row(name, launches) for name, launches in zip(names, shown, strict=True)]
    headings = ("median \N{MICRO SIGN}s", "GB/s", "TFLOP/s", "registers", "occupancy")
    label = f"Roofline of {run.slug}"
    return plain(label, ("kernel", "bound by", *headings), rows, words=2)


def _row(name: str, launches: m.KernelLaunches) -> Cells:
    return (
        name,
        _bound(launches),
        number(launches.median_us),
        written(
            launches.bytes_per_s,
            lambda rate: figure(rate / 1e9),
            *if_known(launches.bytes_moved, size),
        ),
        written(launches.flops_per_s, lambda rate: figure(rate / 1e12)),
        whole(launches.registers, *if_known(launches.spills, "{:,} spilled".format)),
        written(launches.occupancy_percent, occupancy),
    )


@dashed
def _bound(launches: m.KernelLaunches) -> Cell:
    bound = m.known(launches.bound)
    share = m.known(launches.of_ceiling)
    return Cell(_what(bound), (f"{percent(share)} of peak",))


def ceiling_name(one: m.Ceiling) -> str:
    return f"{one.operation}{clause(' in ', one.dtype)}"


def rate(value: float, unit: str) -> str:
    scale, name = _UNITS.get(unit, (1.0, unit))
    return f"{figure(value / scale)} {name}"


def _what(bound: str) -> str:
    if bound == m.Bound.IMPOSSIBLE:
        return "above peak (served from cache)"
    return bound


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
    said = "; ".join(
        f"{percent(share_of(total.total_us, kernels.total_us))}: {total.what}"
        for total in roofline.unplaced
    )
    return clause("Not classified: ", said)


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


def scatter(run: m.RunReport, kernels: m.KernelBreakdown, roofline: m.Roofline) -> Drawn:
    ranks = {kernel.name: rank for rank, kernel in enumerate(kernels.rows, start=1)}
    known = [
        (each, each.of_ceiling, each.bound)
        for each in roofline.rows[:_MOST_POINTS]
        if isinstance(each.of_ceiling, float) and isinstance(each.bound, str) and each.median_us > 0
    ]
    known.sort(key=lambda one: -one[0].share)
    times = [each.median_us for each, *_ in known] or [1.0]
    low, high = math.log10(min(times) / 1.3), math.log10(max(times) * 1.3)

    def x(us: float) -> str:
        return of_width(_LEFT + (1 - _LEFT) * (math.log10(us) - low) / (high - low))

    def y(share: float) -> float:
        return round(_TOP + (_HIGH - _TOP) * (1 - min(share, _MOST) / _MOST), 1)

    points = []
    for place, (each, share, bound) in enumerate(known):
        rank = ranks.get(each.name, 0)
        label = ""
        if place < _NAMED and rank:
            label = f"#{rank}"
        name = short_name(one_line(each.name, 20_000), 60)
        point = Shown(
            x=x(each.median_us),
            y=y(share),
            radius=round(max(3.0, _LARGEST * math.sqrt(each.share)), 1),
            style=f"r-{_STYLES[m.Bound(bound)]}",
            title=f"#{rank} {name}: {figure(each.median_us)} \N{MICRO SIGN}s, "
            f"{percent(share)} of peak, {bound}, {percent(each.share)} of GPU time",
            label=label,
        )
        points.append(point)
    powers = range(math.floor(low), math.ceil(high) + 1)
    decades = [10.0**power * digit for power in powers for digit in (1, 3)]
    shown = Shown(
        description=f"Roofline of {one_line(run.slug, 200)}: {len(points)} kernels by duration "
        "and share of the measured peak; the table of kernels has the same figures",
        height=_HIGH + 40,
        bottom=_HIGH,
        left=of_width(_LEFT),
        points=points,
        across=[(x(us), f"{us:g}") for us in decades if low <= math.log10(us) <= high],
        up=tuple((y(share), rounded(share)) for share in (0, 0.25, 0.5, 0.75, 1.0)),
    )
    return Drawn("scatter", shown)
