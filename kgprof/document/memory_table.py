"""What a run reads back in a step, and how much memory it takes: the same cells for every renderer,
and a curve over one step, or why there is none."""

from functools import partial
from itertools import pairwise

from kgprof import model as m
from kgprof.document.escaping import one_line
from kgprof.document.limits import Limits, kept
from kgprof.document.plot import Axis, Plot, Shape, bar, plot
from kgprof.document.quantity import count, figure, milliseconds, ratio, size
from kgprof.document.run_parts import run_part
from kgprof.document.summary import RunColumn
from kgprof.document.table import Block, Blocks, Cell, known, number, plain
from kgprof.wording import plural


def columns(runs: m.Runs) -> tuple[RunColumn, ...]:
    """Those that at least one run has a figure for."""
    return tuple(column for column in COLUMNS if any(column.cell(run).measured for run in runs))


def unknown(runs: m.Runs) -> tuple[tuple[str, str], ...]:
    """Columns, and why they have no figure, each reason once; its runs only where not all share it.
    A dash alone is read by nobody who cannot hover."""
    found: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for column in COLUMNS:
        for run in runs:
            cell = column.cell(run)
            if not cell.measured:
                names, slugs = found.setdefault(cell.title, ({}, {}))
                names[column.name] = slugs[run.key.slug] = None
    return tuple(
        (", ".join(names), f"{reason} ({', '.join(slugs)})" if len(slugs) < len(runs) else reason)
        for reason, (names, slugs) in found.items()
    )


def signed(size_bytes: int) -> str:
    return f"{'-' if size_bytes < 0 else '+'}{size(abs(size_bytes))}"


# ---------------------------------------------------------------- cells


def _sized(value: int | m.Skipped, *details: str) -> Cell:
    return known(value, lambda shown: Cell(size(shown), details, value=float(shown)))


def peak_cell(name: str, peaks: m.MemoryPeaks) -> Cell:
    """``name``: of MemoryPeaks' fields NAME_bytes and NAME_before_bytes; the latter may be
    missing."""
    held = getattr(peaks, f"{name}_before_bytes", None)
    return _sized(
        getattr(peaks, f"{name}_bytes"),
        *((f"{size(held)} before",) if isinstance(held, int) else ()),
    )


def _cells(memory: m.MemorySummary) -> tuple[Cell, ...]:
    """In the order of _TITLES."""
    alone = len(memory.warm_up_reads)
    peaks = memory.peaks
    warm_up = (f"{plural(alone, 'line')} in warm-up only",) if alone else ()
    overhead = (f"{memory.tier} overhead",) if memory.tier else ()
    return (
        number(memory.syncs_per_step, plural(memory.steps, "step"), *warm_up),
        *(known(peaks, partial(peak_cell, name)) for name in ("allocated", "reserved", "resident")),
        known(
            peaks,
            lambda p: _sized(p.graph_pool_bytes, f"{size(p.graph_pool_allocated_bytes)} allocated"),
        ),
        _sized(memory.taken_bytes),
        known(
            memory.over_eager_bytes,
            lambda over: Cell(signed(over), (memory.over_eager_of,), value=float(over)),
        ),
        known(memory.of_eager, lambda times: Cell(ratio(times), overhead, value=times)),
        _sized(memory.budget_bytes),
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
    return known(run.memory, lambda memory: _cells(memory)[at])


COLUMNS = tuple(
    RunColumn(name, title, partial(_cell, at)) for at, (name, title) in enumerate(_TITLES.items())
)
_MIB = 2**20


def memory_folds(runs: m.Runs, limits: Limits) -> Blocks:
    """A reason that all runs share stands once."""
    reasons = [run.memory_curve.reason for run in runs if isinstance(run.memory_curve, m.Skipped)]
    if len(reasons) == len(runs) and len(set(reasons)) == 1:
        return (f"Memory over a step is not drawn: {reasons[0]}.",)
    folds = list[Block]()
    drawn = kept(runs, limits.timelines)
    for index, run in enumerate(runs):
        name = one_line(run.key.slug, limits.name)
        curve = run.memory_curve
        caption = ""
        blocks = list[Block]()
        if isinstance(curve, m.Skipped):
            blocks.append(f"Memory over a step is not drawn: {curve.reason}.")
        elif index not in drawn:
            blocks.append(
                "Memory over a step is left out of this page to keep it small; report.json holds "
                "it."
            )
        else:
            caption = (
                f"{curve.step}, {milliseconds(curve.duration_us)} ms, the "
                f"median of {plural(curve.steps, 'traced step')}, {curve.measured_in.upper()} pass"
            )
            blocks.append(_curve(curve, name))
            figures = (curve.before_bytes, curve.peak_bytes, curve.after_bytes)
            cells = (
                curve.device,
                *(size(each) for each in figures),
                count(curve.events),
            )
            headings = ("device", "before the step", "peak", "after it", "allocations and frees")
            blocks.append(plain(f"Memory of {name} over a step", headings, (cells,), style=""))
            if curve.device == "cpu":
                blocks.append(
                    "On a CPU, memory counts from the start of the trace: parameters are not in it."
                )
        folds.append(run_part(index, run, blocks, caption))
    return tuple(folds)


def _curve(curve: m.MemoryCurve, name: str) -> Plot:
    levels = [curve.before_bytes, *curve.allocated_bytes]
    low = min(levels) / _MIB
    high = max(curve.peak_bytes, *levels) / _MIB
    # From zero, unless what changes would be a ripple on what is always held.
    start = 0.0 if high - low > 0.2 * high else max(0.0, low - 0.2 * (high - low))
    x = Axis(low=0.0, high=curve.duration_us)
    y = Axis(low=start, high=high + 0.1 * (high - start) or 1.0)
    moments = (0.0, *curve.at_us, curve.duration_us)
    shapes = []
    for (at, until), held in zip(pairwise(moments), levels, strict=True):
        mib = held / _MIB
        title = f"{size(held)} from {figure(at)} \N{MICRO SIGN}s"
        path = bar(x.x(at), x.x(until) - x.x(at), y.y(mib), y.y(start) - y.y(mib))
        shapes.append(Shape("p-bar", path, title))
    return plot(
        f"Memory of {name} on {curve.device} over a step: {size(curve.before_bytes)} before, at "
        f"most {size(curve.peak_bytes)}; the table below has the figures",
        shapes,
        x=x,
        y=y,
        x_name="time in the step, \N{MICRO SIGN}s",
        y_name=f"allocated on {curve.device}, MiB",
    )
