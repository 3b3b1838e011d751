"""What a run reads back in a step, and how much memory it takes: the same cells for every renderer,
and a curve over one step, or why there is none."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

from kgprof import model as m
from kgprof.document.limits import Limits, kept
from kgprof.document.plot import Axis, Plot, Shape, bar, plot
from kgprof.document.quantity import count, figure, milliseconds, ratio, size
from kgprof.document.run_parts import collected, run_part
from kgprof.document.summary import RunColumn
from kgprof.document.table import Block, Cell, Note, number, plain, several, sized, written
from kgprof.wording import clause, plural


def columns(runs: m.Runs) -> Sequence[RunColumn]:
    """Those that at least one run has a figure for."""
    return [column for column in COLUMNS if any(column.cell(run).measured for run in runs)]


def unknown(runs: m.Runs) -> Sequence[Note]:
    """Columns, and why they have no figure, each reason once; its runs only where not all share it.
    A dash alone is read by nobody who cannot hover."""
    cells = [(column, run, column.cell(run)) for column in COLUMNS for run in runs]
    gaps = [
        (cell.title, (column.name, run.slug)) for column, run, cell in cells if not cell.measured
    ]
    unknown = []
    for reason, pairs in collected(gaps).items():
        names, slugs = (dict.fromkeys(side) for side in zip(*pairs, strict=True))
        if len(slugs) < len(runs):
            reason += f" ({', '.join(slugs)})"
        unknown.append((", ".join(names), reason))
    return unknown


def signed(size_bytes: int) -> str:
    if size_bytes < 0:
        return f"-{size(-size_bytes)}"
    return f"+{size(size_bytes)}"


# ---------------------------------------------------------------- cells


def peak_cell(name: str, peaks: m.MemoryPeaks) -> Cell:
    """``name``: of MemoryPeaks' fields NAME_bytes and NAME_before_bytes; the latter may be
    missing."""
    held = getattr(peaks, f"{name}_before_bytes", None)
    before = ""
    if isinstance(held, int):
        before = f"{size(held)} before"
    return sized(getattr(peaks, f"{name}_bytes"), before)


def _peaks(peaks: m.MemoryPeaks) -> Sequence[Cell]:
    pools = sized(peaks.graph_pool_bytes, f"{size(peaks.graph_pool_allocated_bytes)} allocated")
    return *(peak_cell(name, peaks) for name in ("allocated", "reserved", "resident")), pools


def _cells(memory: m.MemorySummary) -> Sequence[Cell]:
    """In the order of _TITLES."""
    return (
        number(memory.syncs_per_step, plural(memory.steps, "step")),
        *several(memory.peaks, 4, _peaks),
        sized(memory.taken_bytes),
        written(memory.over_eager_bytes, signed, memory.over_eager_of),
        written(memory.of_eager, ratio, clause("", memory.tier, " overhead")),
        sized(memory.budget_bytes),
    )


_TITLES = {
    "syncs/step": "MEMORY: GPU syncs, mean over the observed steps",
    "peak allocated": (
        "MEMORY: CUDA's caching allocator; below it what was allocated before the steps"
    ),
    "peak reserved": "MEMORY: reserved from the driver by CUDA's caching allocator",
    "peak resident": "MEMORY: whole process; below it what was resident before the steps",
    "CUDA-graph pools": (
        "MEMORY: allocator segments in private pools, which CUDA graphs use, after the steps"
    ),
    "taken": "MEMORY: peak allocated plus what CUDA-graph pools keep",
    "over eager": "this run's peak minus that of the same strategy in mode eager",
    "efficiency": "mode eager's peak over this run's; overhead over eager: low below 10 %, "
    "moderate below 25 %, else "
    "high",
    "budget per model": "the peak plus 25 % for unseen peaks; N models need N times as much",
}


def _cell(at: int, run: m.RunReport) -> Cell:
    return _cells(m.known(run.memory))[at]


COLUMNS = [
    RunColumn(name, title, partial(_cell, at)) for at, (name, title) in enumerate(_TITLES.items())
]
_MIB = 2**20


def memory_folds(runs: m.Runs, limits: Limits) -> Iterator[Block]:
    """A reason that all runs share stands once."""
    curves = (run.memory_curve for run in runs)
    reasons = [curve.reason for curve in curves if isinstance(curve, m.Skipped)]
    if len(reasons) == len(runs) and len(set(reasons)) == 1:
        yield f"Memory over a step is not drawn: {reasons[0]}."
        return
    drawn = kept(runs, limits.timelines)
    for index, run in enumerate(runs):
        curve = run.memory_curve
        if isinstance(curve, m.Skipped):
            yield run_part(index, run, [f"Memory over a step is not drawn: {curve.reason}."])
        elif index not in drawn:
            why = "left out of this page to keep it small; report.json holds it"
            yield run_part(index, run, [f"Memory over a step is {why}."])
        else:
            caption = (
                f"{curve.step}, {milliseconds(curve.duration_us)} ms, the "
                f"median of {plural(curve.steps, 'traced step')}, {curve.measured_in.upper()} pass"
            )
            yield run_part(index, run, _drawn(curve, run.slug), caption)


def _drawn(curve: m.MemoryCurve, name: str) -> Iterator[Block]:
    """The curve, its figures, and what they do not count."""
    yield _curve(curve, name)
    figures = (curve.before_bytes, curve.peak_bytes, curve.after_bytes)
    cells = (curve.device, *map(size, figures), count(curve.events))
    headings = ("device", "before the step", "peak", "after it", "allocations and frees")
    yield plain(f"Memory of {name} over a step", headings, [cells], style="")
    if curve.device == "cpu":
        yield "On a CPU, memory counts from the start of the trace: parameters are not in it."


def _curve(curve: m.MemoryCurve, name: str) -> Plot:
    levels = [curve.before_bytes, *curve.allocated_bytes]
    low = min(levels) / _MIB
    high = max(curve.peak_bytes, *levels) / _MIB
    # From zero, unless what changes would be a ripple on what is always held.
    start = 0.0
    if high - low <= 0.2 * high:
        start = max(0.0, low - 0.2 * (high - low))
    x = Axis(low=0.0, high=curve.duration_us)
    y = Axis(low=start, high=high + 0.1 * (high - start) or 1.0)
    moments = pairwise((0.0, *curve.at_us, curve.duration_us))
    shapes = []
    for (at, until), held in zip(moments, levels, strict=True):
        top = y.y(held / _MIB)
        path = bar(x.x(at), x.x(until) - x.x(at), top, y.y(start) - top)
        shapes.append(Shape("p-bar", path, f"{size(held)} from {figure(at)} \N{MICRO SIGN}s"))
    return plot(
        f"Memory of {name} on {curve.device} over a step: {size(curve.before_bytes)} before, at "
        f"most {size(curve.peak_bytes)}; the table below has the figures",
        shapes,
        x,
        y,
        "time in the step, \N{MICRO SIGN}s",
        f"allocated on {curve.device}, MiB",
    )
