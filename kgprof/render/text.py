"""For the terminal and for logs: the verdict, the table, the findings, and where the time went."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kgprof import coverage
from kgprof import model as m
from kgprof.render import (
    account,
    breakdown,
    compare_words,
    economics_table,
    gate_table,
    kernel_table,
    limit_table,
    memory_table,
    practices,
    region_table,
    roofline_table,
    summary,
    trace_table,
)
from kgprof.render.environment_facts import gathered
from kgprof.render.escaping import one_line, visible
from kgprof.render.finding_list import grouped
from kgprof.render.quantity import EXTREMES, FEWEST_FOR_PERCENTILES, count, milliseconds, percent
from kgprof.render.table import Block, Table, terminal
from kgprof.wording import plural

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 120
_ACTIONS = 3  # causes of a comparison in brief
_METRICS = 12  # rows of its table
_WIDE = ("finished", "results")  # columns that the brief form has no room for
_KERNELS = 5  # of each run; the report shows more
_KERNEL_NAME = 60  # characters, more where two would look alike
_NAME = 300  # characters of any name or message
_ON_THE_PAGE = ("dropped", "first call")  # keys of columns that are not here
STATUS_STYLES = {
    "ok": "bold green",
    "attention": "bold yellow",
    "failed": "bold red",
    "inconclusive": "bold",
}
_LEVELS = {m.Level.ERROR: "red", m.Level.WARNING: "yellow", m.Level.NOTE: "cyan"}


class Text:
    """Plain by default; whoever writes to a terminal asks for colour, and for the ``brief`` form:
    what is left out there is in the page."""

    name = "text"
    suffix = ".txt"

    def __init__(self, *, color: bool = False, width: int = WIDTH, brief: bool = False) -> None:
        self._color = color
        self._brief = brief
        self._width = width

    def render(self, profile: m.Profile) -> str:
        console = new_console(self._color, self._width - 1)  # one for what _inert may add
        lines: Iterable[str] | None = None
        if profile.comparison is not None:
            lines = compare_words.lines(profile, profile.comparison)
        elif profile.gate is not None:
            lines = gate_table.lines(profile, profile.gate)
        if lines is not None:
            if not self._color and not self._brief:
                return document(map(visible, lines))
            _on_a_terminal(console, profile, lines, self._brief)
            return printed(console)
        _head(console, profile)
        if self._brief:
            _brief(console, profile)
            return printed(console)
        for number, (what, fix, saves) in enumerate(practices.next_steps(profile), start=1):
            say(console, f"{number}. {what}")
            say(console, f"fix: {fix}", indent="   ")
            say(console, saves, indent="   ")
        if profile.actions:
            console.print()
        limited = limit_table.limit_blocks(profile.runs, profile.environment.source_root)
        if limited:
            say(console, limit_table.SECTION, "bold")
            _blocks(console, limited)
            console.print()
        if not profile.trace_files:
            _runs(console, profile)
        if profile.trace_files or profile.rank_balance is not None:
            _traces(console, profile)
        _findings(console, profile)
        _watched(console, profile)
        for run in profile.runs:
            _kernels(console, run, profile.environment.source_root)
        _fused(console, profile)
        if gaps := gathered(profile.omissions):
            say(console, "not measured", "bold")
        for gap in gaps:
            runs = f" ({', '.join(gap.runs)})" if gap.runs else ""
            say(console, f"{', '.join(gap.what)}: {gap.reason}{runs}", indent="  ")
        return printed(console)


def printed(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return document(line.rstrip() for line in file.getvalue().splitlines())


def _on_a_terminal(console: Console, profile: m.Profile, lines: Iterable[str], brief: bool) -> None:
    """The same, wrapped, the verdict in colour; of a comparison in brief the verdict, three causes
    and a table."""
    status = STATUS_STYLES.get(profile.verdict.status, "")
    if brief and profile.comparison is not None:
        say(
            console,
            f"kgprof compare: {profile.workload} on {profile.environment.device_name}",
            "bold",
        )
        for number, line in enumerate(
            gate_table.verdict(profile.verdict, compare_words.REGRESSION)
        ):
            say(console, line.strip(), "" if number else status, indent="  " if number else "")
        console.print()
        for number, cause in enumerate(profile.comparison.causes[:_ACTIONS], start=1):
            say(
                console,
                f"{number}. "
                + compare_words.caused(cause, profile.comparison, profile.environment.source_root),
            )
        metrics = compare_words.metrics_of(profile.comparison)[:_METRICS]
        if metrics:
            console.print(
                terminal(
                    compare_words.metric_table(metrics).only(
                        "metric", "base", "head", "change", "verdict"
                    )
                )
            )
        say(console, f"findings: {compare_words.tally(profile.comparison)}")
        return
    for line in map(visible, lines):
        marked = line.startswith(
            (f"{profile.verdict.status.upper()}: ", f"{compare_words.REGRESSION}: ")
        )
        level = next(
            (style for level, style in _LEVELS.items() if f": {level.value} KGP" in line), None
        )
        console.print(line, style=status if marked else level)


def _brief(console: Console, profile: m.Profile) -> None:
    """The table and what to do next; everything else is on the page."""
    if not profile.trace_files:
        shown = [column for column in summary.columns(profile) if column.key not in _ON_THE_PAGE]
        names = [column for column in shown if column.name not in _WIDE]
        console.print(terminal(summary.run_table(profile.runs, names, "")))
        for run in profile.runs:
            if ended := summary.ended(run):
                say(console, f"{run.key.slug} {ended}", "red")
    else:
        _traces(console, profile)
    for number, (what, fix, saves) in enumerate(practices.next_steps(profile), start=1):
        if number == 1:
            console.print()
            say(console, practices.NEXT_STEPS, "bold")
        say(console, f"{number}. {what}")
        say(console, f"fix: {fix}", "green", indent="   ")
        say(console, saves, indent="   ")
    counts = Counter(finding.level for finding in profile.findings if not finding.accepted)
    found = ", ".join(plural(counts[level], level.value) for level in (*m.Level,) if counts[level])
    found = found or f"none, {coverage.tally(profile.coverage, profile.rules)}"
    say(console, f"findings: {found}; -v shows all of this report here", "dim")


def document(lines: Iterable[str]) -> str:
    """In a CI job GitHub takes ``::name::`` at the start of a line, and ``##[name]`` anywhere, for
    its own commands."""
    inert = (re.sub(r"^(\s*)::", r"\1\\::", line).replace("##[", "#\\#[") for line in lines)
    return "".join(f"{line}\n" for line in inert)


def new_console(color: bool, width: int) -> Console:
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


def say(console: Console, text: str, style: str = "", *, indent: str = "") -> None:
    console.print(indent + one_line(text, 2000), style=style or None)


def _head(console: Console, profile: m.Profile) -> None:
    environment = profile.environment
    say(
        console,
        f"kgprof {profile.kgprof_version}: {profile.workload} on {environment.device_name}",
        "bold",
    )
    say(console, f"torch {environment.torch}, Python {environment.python}, {profile.created_utc}")
    console.print()
    verdict = profile.verdict
    if verdict.lead:
        say(console, verdict.lead, "bold")
    say(console, f"{verdict.status.upper()}: {verdict.text}", STATUS_STYLES.get(verdict.status, ""))
    if verdict.trust:
        say(console, verdict.trust, indent="  ")
    for line in account.lines(profile):
        say(console, line, indent="  ")
    said, more = summary.reasons(profile)
    for reason in said:
        say(console, reason, indent="  ")
    if more:
        say(console, f"{count(more)} more", indent="  ")
    console.print()


def _runs(console: Console, profile: m.Profile) -> None:
    shown = [column for column in summary.columns(profile) if column.key not in _ON_THE_PAGE]
    console.print(terminal(summary.run_table(profile.runs, shown, "")))
    say(
        console,
        f"ranges: 10th to 90th percentile; {EXTREMES} for fewer than {FEWEST_FOR_PERCENTILES} "
        "samples",
    )
    for run in profile.runs:
        if ended := summary.ended(run):
            say(console, f"{run.key.slug} {ended}", "red")
        for note in run.notes:
            say(console, f"{run.key.slug}: {note}")
    for note in summary.footnotes(profile):
        say(console, note)
    console.print()


def _fused(console: Console, profile: m.Profile) -> None:
    """A line a compiled graph; the page has more columns."""
    for block in region_table.fusion_blocks(profile.runs, trace_table.IN_TEXT):
        shown = block.only(*region_table.IN_TERMINAL) if isinstance(block, Table) else block
        _blocks(console, (shown,))
        console.print()


def _traces(console: Console, profile: m.Profile) -> None:
    """The files, the ranks beside each other, and what changed."""
    limits = trace_table.IN_TEXT
    files = trace_table.file_table(profile, limits)
    for file in files.rows:
        name, path, size, rank, steps, *_ = (cell.text for cell in file.cells)
        say(console, f"{name}: {path} ({size}), rank {rank}, steps {steps}")
        for note in files.notes:
            if note[0] == name:
                say(console, f"note: {note[1]}", indent="  ")
    console.print()
    if profile.rank_balance is not None:
        say(console, f"ranks: {profile.rank_balance.text}", "bold")
        _blocks(console, trace_table.rank_blocks(profile.rank_balance, limits))
        console.print()
    for found in profile.differences:
        shown = trace_table.difference(found, limits, rows=_KERNELS, name=_KERNEL_NAME)
        say(console, f"{shown.title}: {shown.text}", "bold")
        _blocks(console, shown.tables)
        console.print()


def _blocks(console: Console, blocks: Iterable[Block]) -> None:
    for block in blocks:
        if isinstance(block, Table):
            console.print(terminal(block))
        elif isinstance(block, str):
            say(console, block)


def _findings(console: Console, profile: m.Profile) -> None:
    if not profile.findings:
        say(console, f"no finding; {coverage.tally(profile.coverage, profile.rules)}")
    for same in grouped(profile.findings):
        first, cost = same.first, f"; costs {same.cost}" if same.cost else ""
        fix = (
            f"; fix: {first.fix}"
            if first.fix
            else f"; no fix: {first.no_fix}"
            if first.no_fix
            else ""
        )
        line = (
            f"{first.level.value} {first.rule}: "
            f"{same.line(profile.environment.source_root)}{cost}{fix}"
        )
        say(console, line, _LEVELS[first.level])
    console.print()


def _watched(console: Console, profile: m.Profile) -> None:
    """What MEMORY saw, in a line or two: the page holds the rest."""
    for weighed in profile.trade_offs:
        say(
            console,
            f"trade-off: {practices.WEIGHED.get(weighed.verdict, weighed.verdict)}: {weighed.text}",
        )
    earned = economics_table.sentences(profile)
    for sentence in earned:
        say(console, f"economics: {sentence}")
    if profile.checklist:
        failed = ", ".join(item.title for item in profile.checklist if item.status == "fail")
        say(
            console,
            f"checklist: {practices.tally(profile.checklist)}{f' ({failed})' if failed else ''}",
        )
    if memory := "; ".join(
        f"{run.key.slug} {line}" for run in profile.runs if (line := memory_table.line(run))
    ):
        say(console, f"memory: {memory}")
    if profile.trade_offs or earned or profile.checklist or memory:
        console.print()


def _kernels(console: Console, run: m.RunReport, root: str) -> None:
    kernels = run.kernels
    if not isinstance(kernels, m.KernelBreakdown):
        return
    shares = ", ".join(
        f"{breakdown.NAMES[part.kind]} {percent(part.share)}" for part in breakdown.parts(kernels)
    )
    per_step = milliseconds(kernels.window_us / breakdown.steps_of(kernels))
    busy = breakdown.busy_caption(kernels, run.step)
    say(
        console,
        f"{run.key.slug}: {per_step} ms/{breakdown.per(kernels)} in "
        f"{kernels.measured_in.upper()}, {busy}: {shares}",
        "bold",
    )
    limits = replace(trace_table.IN_TEXT, kernel_rows=_KERNELS, name=_NAME)
    table = kernel_table.kernel_table(run, kernels, root, limits, length=_KERNEL_NAME)
    table = table.only("kernel", "kind", "count", "total ms", "share")
    # what all of them take is said above
    console.print(terminal(replace(table, totals=table.totals[:-1])))
    say(console, kernel_table.known_lines(kernels))
    for rank, row in enumerate(kernels.rows[:_KERNELS], start=1):
        if row.lines:
            more = f", and {len(row.lines) - 1} more" if len(row.lines) > 1 else ""
            say(console, f"kernel {rank}: {kernel_table.place(row.lines[0], root)}{more}")
    for sentence in kernel_table.sentences(kernels):
        say(console, sentence)
    if isinstance(kernels.roofline, m.Roofline):
        say(console, f"roofline: {roofline_table.sentence(kernels, kernels.roofline)}")
    if isinstance(run.holistic, m.HolisticCheck):
        say(console, f"cross-check with HTA: {trace_table.hta_sentence(run.holistic)}")
    for warning in kernels.warnings:
        say(console, f"note: {warning}", indent="  ")
    console.print()
