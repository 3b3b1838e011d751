"""What a run reads back in a step, and how much memory it takes: the same cells for every renderer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kgprof import model as m
from kgprof.render.quantity import figure, size
from kgprof.render.summary import RunColumn
from kgprof.render.table import Cell, known, missing, number
from kgprof.wording import plural


def columns(runs: Sequence[m.RunReport]) -> tuple[RunColumn, ...]:
    """Those that at least one run has a figure for."""
    return tuple(column for column in COLUMNS if any(column.cell(run).measured for run in runs))


def unknown(runs: Sequence[m.RunReport]) -> tuple[tuple[str, str], ...]:
    """Columns, and why they have no figure, each reason once; its runs only where not all share it. A dash alone is
    read by nobody who cannot hover."""
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


def line(run: m.RunReport) -> str:
    """One run in a sentence's part: "peak 1.20 GiB resident (+31.0 MiB over eager), 1.00 syncs/step"; empty where
    nothing is known."""
    if not isinstance(run.memory, m.MemorySummary):
        return ""
    peaks, said = run.memory.peaks, []
    if isinstance(peaks, m.MemoryPeaks):
        sizes = [(peaks.allocated_bytes, "allocated"), (peaks.resident_bytes, "resident")]
        said += [f"peak {size(value)} {name}" for value, name in sizes if isinstance(value, int)][:1]
    over = run.memory.over_eager_bytes
    if isinstance(over, int) and said:
        said[0] += f" ({signed(over)} over eager)"
    if not isinstance(run.memory.syncs_per_step, m.Skipped):
        said.append(f"{figure(run.memory.syncs_per_step)} syncs/step")
    return ", ".join(said)


def signed(size_bytes: int) -> str:
    return f"{'-' if size_bytes < 0 else '+'}{size(abs(size_bytes))}"


# ---------------------------------------------------------------- cells


def _syncs(run: m.RunReport) -> Cell:
    if isinstance(run.memory, m.Skipped):
        return missing(run.memory)
    alone = len(run.memory.warm_up_reads)
    warm_up = (f"{plural(alone, 'line')} in warm-up alone",) if alone else ()
    return number(run.memory.syncs_per_step, plural(run.memory.steps, "step"), *warm_up)


def _peak(
    peak: Callable[[m.MemoryPeaks], int | m.Skipped], before: Callable[[m.MemoryPeaks], int | m.Skipped] | None = None
) -> Callable[[m.RunReport], Cell]:
    def cell(run: m.RunReport) -> Cell:
        peaks = run.memory if isinstance(run.memory, m.Skipped) else run.memory.peaks
        if isinstance(peaks, m.Skipped):
            return missing(peaks)
        held = before(peaks) if before else None
        details = (f"{size(held)} before",) if isinstance(held, int) else ()
        return known(peak(peaks), lambda value: Cell(size(value), details=details, value=float(value)))

    return cell


def _over_eager(run: m.RunReport) -> Cell:
    if isinstance(run.memory, m.Skipped):
        return missing(run.memory)
    of = (run.memory.over_eager_of,)
    return known(run.memory.over_eager_bytes, lambda over: Cell(signed(over), details=of, value=float(over)))


COLUMNS = (
    RunColumn(
        name="syncs/step", title="MEMORY: host-device synchronisations, mean over the steps watched", cell=_syncs
    ),
    RunColumn(
        name="peak allocated",
        title="MEMORY: by CUDA's caching allocator; what was allocated before the steps",
        cell=_peak(lambda peaks: peaks.allocated_bytes, lambda peaks: peaks.allocated_before_bytes),
    ),
    RunColumn(
        name="peak reserved",
        title="MEMORY: by CUDA's caching allocator, from the driver",
        cell=_peak(lambda peaks: peaks.reserved_bytes),
    ),
    RunColumn(
        name="peak resident",
        title="MEMORY: of the whole process; what was resident before the steps",
        cell=_peak(lambda peaks: peaks.resident_bytes, lambda peaks: peaks.resident_before_bytes),
    ),
    RunColumn(
        name="over eager",
        title="this run's peak less that of the same strategy in mode eager",
        cell=_over_eager,
    ),
)
