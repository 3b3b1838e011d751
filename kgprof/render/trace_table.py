"""Traces that others recorded: one row a file, the ranks beside each other, and what changed between two traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render import breakdown, holistic_table
from kgprof.render.evaluation_table import Table
from kgprof.render.kernel_table import distinct_names
from kgprof.render.limits import Limits, anchor
from kgprof.render.quantity import DASH, count, figure, percent, ratio, size
from kgprof.render.visible import one_line
from kgprof.wording import plural

CHANGES = 20  # rows of a table of kernels or spans, the largest differences first
_SHORT = 90  # characters of a kernel's name, more where two would look alike
_UNATTRIBUTED = "(unattributed)"  # the row that every table of spans has
_MINUS = "\N{MINUS SIGN}"
IN_TEXT = Limits(log_chars=0, host_rows=0, kernel_rows=0, findings=0, runs=64, name=200, lines=64)
FILE_HEADINGS = ("run", "file", "size", "rank", "steps", "ms/step", "busy", "idle", "kernels, \N{MICRO SIGN}s/step")
_RANK_HEADINGS = ("rank", "step", "device busy", "compute", "communication", "of it exposed", "idle")
_HTA_HEADINGS = ("by HolisticTraceAnalysis", "kgprof", "HTA", "difference")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLine:
    anchor: str
    cells: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTable:
    text: str
    table: Table  # us per step
    left_out: tuple[str, ...]
    hta: Table  # HTA's figures beside ours; without rows where it gave none
    hta_notes: tuple[str, ...]  # why it gave none, and which of its calls were not made


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceTables:
    title: str
    caption: str
    missing: str  # why there is nothing below
    tables: tuple[tuple[str, Table], ...]  # what the rows are, and the rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TracesPart:
    """``files`` is empty for a workload that kgprof ran itself."""

    headings: tuple[str, ...]
    files: tuple[FileLine, ...]
    ranks: RankTable | None
    differences: tuple[DifferenceTables, ...]


def traces_part(profile: m.Profile, limits: Limits) -> TracesPart:
    return TracesPart(
        headings=FILE_HEADINGS,
        files=file_lines(profile, limits),
        ranks=rank_table(profile.rank_balance, limits),
        differences=tuple(difference_tables(one, limits) for one in profile.differences[: limits.runs]),
    )


# ---------------------------------------------------------------- files and ranks


def file_lines(profile: m.Profile, limits: Limits) -> tuple[FileLine, ...]:
    """In the order of the runs."""
    index = {run.key: number for number, run in enumerate(profile.runs)}
    return tuple(
        FileLine(
            anchor=anchor(index[file.key]),
            cells=(
                one_line(file.key.strategy, limits.name),
                one_line(file.file, limits.name),
                size(file.size_bytes),
                _rank(file.rank, file.world_size),
                *_of_window(profile.runs[index[file.key]].kernels),
            ),
            notes=tuple(one_line(note, 2 * limits.name) for note in file.notes[: limits.lines]),
        )
        for file in profile.trace_files[: limits.runs]
        if file.key in index
    )


def _rank(rank: int | None, world_size: int | None) -> str:
    if rank is None:
        return DASH
    return f"{rank} of {world_size}" if world_size is not None else str(rank)


def _of_window(kernels: m.KernelBreakdown | m.Skipped) -> tuple[str, ...]:
    if isinstance(kernels, m.Skipped):
        return (DASH,) * 5
    steps, window_us = breakdown.steps_of(kernels), kernels.window_us or 1.0
    return (
        count(kernels.steps) if kernels.steps else "not marked",
        figure(kernels.window_us / steps / 1000),
        percent(kernels.busy_us / window_us),
        percent(kernels.idle_us / window_us),
        figure(kernels.total_us / steps),
    )


def rank_table(balance: m.RankBalance | None, limits: Limits) -> RankTable | None:
    """One row a rank, then median, largest and their ratio."""
    if balance is None:
        return None
    rows = [
        (
            f"rank {load.rank}",
            *map(figure, (load.step_us, load.busy_us, load.compute_us)),
            *map(figure, (load.communication_us, load.exposed_us, load.idle_us)),
        )
        for load in balance.ranks[: limits.lines]
    ]
    if balance.spreads:
        rows.append(("median", *(figure(spread.median_us) for spread in balance.spreads)))
        rows.append(("largest", *(figure(spread.max_us) for spread in balance.spreads)))
        over = (DASH if isinstance(spread.ratio, m.Skipped) else ratio(spread.ratio) for spread in balance.spreads)
        rows.append(("largest over median", *over))
    return RankTable(
        text=one_line(balance.text, 4 * limits.name),
        table=Table(headings=_RANK_HEADINGS, rows=tuple(rows)),
        left_out=tuple(one_line(one, 2 * limits.name) for one in balance.left_out[: limits.lines]),
        hta=_ranks_by_hta(balance.hta, limits),
        hta_notes=tuple(one_line(note, 2 * limits.name) for note in _hta_notes(balance.hta)),
    )


def _ranks_by_hta(found: m.RanksByHolistic | m.Skipped, limits: Limits) -> Table:
    rows = () if isinstance(found, m.Skipped) else found.figures[: limits.lines]
    return Table(
        headings=_HTA_HEADINGS,
        rows=tuple(
            (
                one_line(row.name, limits.name),
                holistic_table.quantity(row.ours, row.unit),
                holistic_table.quantity(row.hta, row.unit),
                holistic_table.difference(row),
            )
            for row in rows
        ),
    )


def _hta_notes(found: m.RanksByHolistic | m.Skipped) -> Iterator[str]:
    if isinstance(found, m.Skipped):
        yield f"HolisticTraceAnalysis' figures of the ranks: {found.reason}"
        return
    for call in found.calls:
        yield f"HolisticTraceAnalysis' {call.name}: {call.outcome}{f', {call.reason}' if call.reason else ''}"


# ---------------------------------------------------------------- differences


def difference_tables(
    found: m.TraceDifference, limits: Limits, *, rows: int = CHANGES, name: int = _SHORT
) -> DifferenceTables:
    title = one_line(f"{found.run.strategy} against {found.against.strategy.removeprefix('against-')}", limits.name)
    if found.missing or found.total is None:
        return DifferenceTables(title=title, caption="", missing=one_line(found.missing, 2 * limits.name), tables=())
    rows = min(rows, limits.lines)
    tables = (
        ("the window", found.window),
        ("kind", found.kinds),
        ("span", found.spans),
        ("compiled region", found.regions),
        ("kernel", found.kernels),
    )
    return DifferenceTables(
        title=title,
        caption=difference_sentence(found),
        missing="",
        tables=tuple(
            (label, _changes(label, changes[:rows], changes[rows:], found, _Names(short=name, longest=limits.name)))
            for label, changes in tables
            if _says_something(changes)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """Characters of a name, and how many more where two would look alike."""

    short: int
    longest: int


def difference_sentence(found: m.TraceDifference) -> str:
    """The whole, and how many kernels came and went."""
    if found.missing or found.total is None:
        return f"not compared: {found.missing}"
    what = "device time" if found.device == "cuda" else "self time of operators"
    total, per = found.total, found.per
    new, gone = (sum(row.status == status for row in found.kernels) for status in ("new", "gone"))
    steps = f", {plural(found.after_steps, 'step')} against {count(found.before_steps)}" if per == "step" else ""
    return (
        f"{what}: {figure(total.after_us)} us a {per}, was {figure(total.before_us)} ({signed(total.delta_us)})"
        f"{steps}; {plural(new, 'new kernel')}, {count(gone)} gone"
    )


def _says_something(changes: Sequence[m.Change]) -> bool:
    """Not so where nothing was launched in any span: then the table is the total once more."""
    return any(row.name != _UNATTRIBUTED for row in changes)


def _changes(
    name: str, shown: Sequence[m.Change], rest: Sequence[m.Change], found: m.TraceDifference, names_of: _Names
) -> Table:
    names = distinct_names([row.name for row in shown], names_of.short, names_of.longest)
    lines = [_line(f"{said}{_mark(row)}", [row]) for said, row in zip(names, shown, strict=True)]
    if rest:
        lines.append(_line(f"{count(len(rest))} more", rest))
    if name != "the window" and found.total is not None:
        lines.append(_line("all", [found.total]))
    per = f"\N{MICRO SIGN}s/{found.per}"
    return Table(
        headings=(name, f"was, {per}", f"is, {per}", "difference", "calls were", "calls are"), rows=tuple(lines)
    )


def _mark(row: m.Change) -> str:
    return "" if row.status == "both" else f" ({row.status})"


def _line(name: str, rows: Sequence[m.Change]) -> tuple[str, ...]:
    return (
        name,
        figure(sum(row.before_us for row in rows)),
        figure(sum(row.after_us for row in rows)),
        signed(sum(row.delta_us for row in rows)),
        _counted(row.before_count for row in rows),
        _counted(row.after_count for row in rows),
    )


def _counted(counts: Iterable[float | None]) -> str:
    """Per step, so it need not be whole."""
    known = [one for one in counts if one is not None]
    if not known:
        return ""
    total = sum(known)
    return count(round(total)) if abs(total - round(total)) < 1e-9 else figure(total)


def signed(us: float) -> str:
    """What is less than a nanosecond is none."""
    if abs(us) < 0.0005:
        return "0"
    return f"{'+' if us > 0 else _MINUS}{figure(abs(us))}"
