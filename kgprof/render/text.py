"""For the terminal and for logs: the verdict, the table, the findings, and where the time went."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kgprof import model as m
from kgprof.render import (
    breakdown,
    compare_text,
    economics_table,
    gate_text,
    holistic_table,
    memory_table,
    origin_table,
    practices,
    roofline_table,
    summary,
    trace_table,
)
from kgprof.render.evaluation_table import Table as PlainTable
from kgprof.render.finding_groups import grouped
from kgprof.render.gaps import gathered
from kgprof.render.kernel_table import distinct_names
from kgprof.render.quantity import count, milliseconds, percent
from kgprof.render.spread import EXTREMES, FEWEST_FOR_PERCENTILES
from kgprof.render.visible import one_line, visible
from kgprof.wording import relative

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH = 120
_KERNELS = 5  # of each run; the report shows more
_KERNEL_NAME = 60  # characters, more where two would look alike
_NAME = 300  # characters of any name or message
_RUN = 40
_COLUMNS = ("step", "unit", "evaluation", "rounds", "speed-up", "results", "finished", "metrics")
# How many of a cell's details fit.
_DETAILS = {"step": 2, "unit": 3, "evaluation": 2, "rounds": 3, "speed-up": 1, "results": 1}
_STYLES = {"ok": "bold green", "attention": "bold yellow", "failed": "bold red", "inconclusive": "bold"}
_LEVELS = {m.Level.ERROR: "red", m.Level.WARNING: "yellow", m.Level.NOTE: "cyan"}


class Text:
    """Plain by default; whoever writes to a terminal asks for colour."""

    name = "text"
    suffix = ".txt"

    def __init__(self, *, color: bool = False, width: int = WIDTH) -> None:
        self._color = color
        self._width = width

    def render(self, profile: m.Profile) -> str:
        if profile.comparison is not None:
            return "".join(f"{_inert(visible(line))}\n" for line in compare_text.lines(profile, profile.comparison))
        if profile.gate is not None:
            return "".join(f"{_inert(visible(line))}\n" for line in gate_text.lines(profile, profile.gate))
        console = _console(self._color, self._width - 1)  # one for what _inert may add
        _head(console, profile)
        if profile.trace_files:
            _traces(console, profile)
        else:
            _runs(console, profile)
        _findings(console, profile)
        _watched(console, profile)
        for run in profile.runs:
            _kernels(console, run, profile.environment.source_root)
        _gaps(console, profile)
        file = console.file
        assert isinstance(file, io.StringIO)
        return "".join(f"{_inert(line.rstrip())}\n" for line in file.getvalue().splitlines())


def _inert(line: str) -> str:
    """In a CI job GitHub takes ``::name::`` at the start of a line, and ``##[name]`` anywhere, for its own commands."""
    indent = len(line) - len(line.lstrip())
    if line.startswith("::", indent):
        line = f"{line[:indent]}\\{line[indent:]}"
    return line.replace("##[", "#\\#[")


def _console(color: bool, width: int) -> Console:
    # rich is imported late: `kgprof --help` names the formats and must not pay for it.
    from rich.console import Console

    return Console(
        file=io.StringIO(),
        width=width,
        color_system="standard" if color else None,
        force_terminal=color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},  # the same Profile gives the same text, whatever COLUMNS or TERM say
    )


def _table(headings: Iterable[str], *, wide: int = 0) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, heading in enumerate(headings):
        table.add_column(heading, overflow="fold", justify="left" if index == wide else "right")
    return table


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(one_line(text, 2000), style=style or None)


def _head(console: Console, profile: m.Profile) -> None:
    environment = profile.environment
    _say(console, f"kgprof {profile.kgprof_version}: {profile.workload} on {environment.device_name}", "bold")
    _say(console, f"torch {environment.torch}, Python {environment.python}, {profile.created_utc}")
    console.print()
    _say(console, f"{profile.verdict.status.upper()}: {profile.verdict.text}", _STYLES.get(profile.verdict.status, ""))
    said, more = summary.reasons(profile)
    for reason in said:
        console.print(f"  {one_line(reason, 2000)}")
    if more:
        console.print(f"  {count(more)} more")
    console.print()


def _runs(console: Console, profile: m.Profile) -> None:
    shown = [column for column in summary.columns(profile) if column.key in _COLUMNS]
    table = _table(["run", *(one_line(column.name, _RUN) for column in shown)])
    for run in profile.runs:
        cells = [column.cell(run) for column in shown]
        table.add_row(one_line(run.key.slug, _RUN), *(one_line(cell.text, _NAME) for cell in cells))
        details = [_detail(column.key, cell) for column, cell in zip(shown, cells, strict=True)]
        if any(details):
            table.add_row("", *details, style="dim")
    console.print(table)
    _say(console, f"ranges: 10th to 90th percentile; {EXTREMES} of fewer than {FEWEST_FOR_PERCENTILES} samples")
    for run in profile.runs:
        if ended := summary.ended(run):
            _say(console, f"{run.key.slug} {ended}", "red")
        for note in run.notes:
            _say(console, f"{run.key.slug}: {note}")
    for note in summary.footnotes(profile):
        _say(console, note)
    console.print()


def _traces(console: Console, profile: m.Profile) -> None:
    """The files, the ranks beside each other, and what changed."""
    limits = trace_table.IN_TEXT
    for file in trace_table.file_lines(profile, limits):
        name, path, size, rank, steps, *_ = file.cells
        _say(console, f"{name}: {path} ({size}), rank {rank}, steps {steps}")
        for note in file.notes:
            console.print(f"  note: {note}")
    console.print()
    if ranks := trace_table.rank_table(profile.rank_balance, limits):
        _say(console, f"ranks, us per step: {ranks.text}", "bold")
        if ranks.table.rows:
            _print_table(console, ranks.table)
        for left_out in ranks.left_out:
            _say(console, f"not compared: {left_out}")
        if ranks.hta.rows:
            _print_table(console, ranks.hta)
        for note in ranks.hta_notes:
            _say(console, note)
        console.print()
    for found in profile.differences:
        shown = trace_table.difference_tables(found, limits, rows=_KERNELS, name=_KERNEL_NAME)
        _say(console, f"{shown.title}: {shown.missing or shown.caption}", "bold")
        for _, table in shown.tables:
            _print_table(console, table)
        console.print()


def _print_table(console: Console, plain: PlainTable) -> None:
    table = _table(plain.headings)
    for row in plain.rows:
        table.add_row(*(one_line(cell, _NAME) for cell in row))
    console.print(table)


def _detail(column: str, cell: summary.Cell) -> str:
    details = cell.details[: _DETAILS.get(column, 0)] if cell.measured else ()
    return one_line(", ".join(detail.removesuffix(f", {EXTREMES}") for detail in details), _NAME)


def _findings(console: Console, profile: m.Profile) -> None:
    if not profile.findings:
        _say(console, "no finding")
    for same in grouped(profile.findings):
        level, place = same.first.level, same.first.location
        where = f"{relative(place.file, profile.environment.source_root)}:{place.line}: " if place else ""
        times = f" ({same.times})" if same.times else ""
        cost = f"; costs {same.cost}" if same.cost else ""
        _say(console, f"{level.value} {same.first.rule}: {where}{same.message}{times}{cost}", _LEVELS[level])
    console.print()


def _watched(console: Console, profile: m.Profile) -> None:
    """What MEMORY saw, in a line or two: the page holds the rest."""
    for weighed in profile.trade_offs:
        _say(console, f"trade-off: {weighed.verdict}: {weighed.text}")
    earned = economics_table.sentences(profile)
    for said_of_it in earned:
        _say(console, f"economics: {said_of_it}")
    if profile.checklist:
        failed = ", ".join(item.title for item in profile.checklist if item.status == "fail")
        _say(console, f"checklist: {practices.tally(profile.checklist)}{f' ({failed})' if failed else ''}")
    if said := {run.key.slug: line for run in profile.runs if (line := memory_table.line(run))}:
        _say(console, f"memory: {'; '.join(f'{slug} {line}' for slug, line in said.items())}")
    if profile.trade_offs or earned or profile.checklist or said:
        console.print()


def _kernels(console: Console, run: m.RunReport, root: str) -> None:
    kernels = run.kernels
    if not isinstance(kernels, m.KernelBreakdown):
        return
    shares = ", ".join(f"{breakdown.NAMES[part.kind]} {percent(part.share)}" for part in breakdown.parts(kernels))
    per_step = milliseconds(kernels.window_us / breakdown.steps_of(kernels))
    busy = breakdown.busy_caption(kernels, run.step)
    _say(console, f"{run.key.slug}: {per_step} ms/step in {kernels.measured_in.upper()}, {busy}: {shares}", "bold")
    table = _table(["kernel", "kind", "count", "total ms", "share"])
    shown = kernels.rows[:_KERNELS]
    names = distinct_names([row.name for row in shown], _KERNEL_NAME, _NAME)
    for name, row in zip(names, shown, strict=True):
        table.add_row(name, row.kind.value, count(row.count), milliseconds(row.total_us), percent(row.share))
    rest = kernels.rows[_KERNELS:]
    if rest:
        total = sum(row.total_us for row in rest)
        calls = sum(row.count for row in rest)
        share = percent(sum(row.share for row in rest))
        table.add_row(f"{count(len(rest))} more", "", count(calls), milliseconds(total), share, style="dim")
    console.print(table)
    _origins(console, kernels, root)
    if isinstance(kernels.roofline, m.Roofline):
        _say(console, f"  against the card: {one_line(roofline_table.sentence(kernels, kernels.roofline), 2000)}")
    if isinstance(run.holistic, m.HolisticCheck):
        _say(console, f"  held against HTA: {holistic_table.sentence(run.holistic)}")
    for warning in kernels.warnings:
        console.print(f"  note: {one_line(warning, 2000)}")
    console.print()


def _origins(console: Console, kernels: m.KernelBreakdown, root: str) -> None:
    """Whose lines the shown kernels compute, by their place in the table above, and what the device and host did."""
    _say(console, f"  {one_line(origin_table.known(kernels), 2000)}")
    for rank, row in enumerate(kernels.rows[:_KERNELS], start=1):
        if row.lines:
            more = f", and {len(row.lines) - 1} more" if len(row.lines) > 1 else ""
            _say(console, f"    kernel {rank}: {origin_table.place(row.lines[0], root, _NAME)}{more}")
    for said in (
        origin_table.idle_sentence(kernels),
        origin_table.input_copies_sentence(kernels),
        origin_table.host_sentence(kernels),
        origin_table.queue_sentence(kernels),
    ):
        if said:
            _say(console, f"  {one_line(said, 2000)}")


def _gaps(console: Console, profile: m.Profile) -> None:
    gaps = gathered(profile.omissions)
    if gaps:
        _say(console, "not measured", "bold")
    for gap in gaps:
        runs = f" ({', '.join(gap.runs)})" if gap.runs else ""
        console.print("  " + one_line(f"{', '.join(gap.what)}: {gap.reason}{runs}", 2000))
