"""For the terminal and for logs: the verdict, what to do next, and the sections of the report."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kgprof import coverage
from kgprof import model as m
from kgprof.document import account, compare_words, gate_table, summary
from kgprof.document.build import compared, next_steps, runs, sections
from kgprof.document.escaping import one_line
from kgprof.document.finding_list import Found, Grouped, fix_label, not_applied
from kgprof.document.quantity import count
from kgprof.document.sheet import Code, Section
from kgprof.document.table import Block, Facts, Fold, Points, Table, terminal
from kgprof.wording import clause, plural, visible

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 120
_UNWRAPPED = 100_000  # columns: what a gate or a comparison says stands on one line of a log
_ACTIONS = 3  # causes of a comparison in brief
_METRICS = 12  # rows of its table
_IN_BRIEF = ("metric", "base", "head", "change", "verdict")
_ON_THE_PAGE = ("dropped", "first call", "finished", "results")  # keys of columns: not in brief
_SENTENCE = 2_000  # characters
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
        found = profile.comparison
        if profile.gate and not found:
            return self._gate(profile, profile.gate)
        console = self._console(unwrapped=found is not None)
        _head(console, profile, self._brief)
        if found and self._brief:
            _compared_in_brief(console, profile, found)
        elif found:
            _sections(console, compared(profile, found))
        elif self._brief:
            _in_brief(console, profile)
        else:
            _sections(console, sections(profile, wide=False))
            _ending(console, (*profile.actions, *profile.findings))
        return printed(console)

    def _gate(self, profile: m.Profile, gate: m.Gate) -> str:
        """As compilers write: a line that an editor opens, and below it what to do."""
        status = profile.verdict.status
        console = self._console(unwrapped=True)
        for line in gate_table.lines(profile, gate):
            if isinstance(line, Table):
                put(console, (line,))
                continue
            style = None
            if line.startswith(f"{status.upper()}: "):
                style = STATUS_STYLES.get(status)
            console.print(visible(line), style=style)
        return printed(console)

    def _console(self, *, unwrapped: bool) -> Console:
        """``unwrapped``: a log gets each sentence on one line."""
        width = self._width
        if unwrapped and not self._color and not self._brief:
            width = _UNWRAPPED
        return new_console(self._color, width - 1)  # one for what `document` may add


def printed(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return document(line.rstrip() for line in file.getvalue().splitlines())


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
    console.print(indent + one_line(text, _SENTENCE), style=style or None)


def _head(console: Console, profile: m.Profile, brief: bool) -> None:
    verdict = profile.verdict
    environment = profile.environment
    program = f"{profile.workload} on {environment.device_name}"
    if profile.comparison:
        say(console, f"kgprof compare: {program}", "bold")
    else:
        say(console, f"kgprof {profile.kgprof_version}: {program}", "bold")
        versions = f"torch {environment.torch}, Python {environment.python}"
        say(console, f"{versions}, {profile.created_utc}")
    console.print()
    if verdict.lead:
        say(console, verdict.lead, "bold")
    status = summary.status_word(profile).upper()
    say(console, f"{status}: {verdict.text}", STATUS_STYLES[summary.tone(profile)])
    if verdict.trust:
        say(console, verdict.trust, indent="  ")
    for line in account.lines(profile):
        say(console, line, indent="  ")
    most = len(verdict.reasons)
    if brief:
        most = summary.REASONS
    said, more = summary.reasons(profile, at_most=most)
    for reason in said:
        say(console, reason, indent="  ")
    if more:
        say(console, f"{count(more)} more", indent="  ")


def _compared_in_brief(console: Console, profile: m.Profile, found: m.Comparison) -> None:
    """Three causes, and a table."""
    root = profile.source_root
    console.print()
    for number, cause in enumerate(found.causes[:_ACTIONS], start=1):
        say(console, f"{number}. {compare_words.caused(cause, found, root)}")
    if metrics := compare_words.metrics_of(found)[:_METRICS]:
        console.print(terminal(compare_words.metric_table(metrics).only(*_IN_BRIEF)))
    say(console, f"findings: {compare_words.tally(found)}")


def _in_brief(console: Console, profile: m.Profile) -> None:
    """The table and what to do next; everything else is on the page."""
    if profile.trace_files:
        _sections(console, runs(profile, wide=False))
    else:
        console.print()
        columns = summary.columns(profile)
        names = [column for column in columns if column.key not in _ON_THE_PAGE]
        console.print(terminal(summary.run_table(profile.runs, names, "")))
        for run in profile.runs:
            if ended := summary.ended(run):
                say(console, f"{run.slug} {ended}", "red")
    _sections(console, next_steps(profile))
    _ending(console, profile.actions)
    counts = Counter(finding.level for finding in profile.findings if not finding.accepted)
    found = ", ".join(plural(counts[level], level.value) for level in (*m.Level,) if counts[level])
    found = found or f"none, {coverage.tally(profile.coverage, profile.rules)}"
    say(console, f"findings: {found}; -v shows all of this report here", "dim")


def _ending(console: Console, shown: Iterable[m.Finding | m.Action]) -> None:
    if sentence := not_applied(shown):
        console.print()
        say(console, sentence)


# ---------------------------------------------------------------- blocks


def _sections(console: Console, shown: Iterable[Section]) -> None:
    for section in shown:
        console.print()
        if section.title:
            intro = clause(": ", section.intro)
            say(console, f"{section.title}{intro}", "bold")
        put(console, section.blocks)


def put(console: Console, blocks: Iterable[Block]) -> None:
    """Print one below the other; of a fold the title alone: what it holds is on the page."""
    for block in blocks:
        match block:
            case Table():
                console.print(terminal(block))
                put(console, block.notes)
            case Points():
                _points(console, block)
            case Found():
                for at, group in enumerate(block.groups):
                    _found(console, group, block.root, block.notes[at : at + 1])
            case Fold():
                say(console, f"{block.title}: on the page")
            case Code():
                console.print("\n".join(f"    {visible(line)}" for line in block.text.splitlines()))
            case Facts():
                for name, value in block.facts:
                    say(console, f"{name}: {value}")
            case str():
                say(console, block)
            case (name, words):
                say(console, f"{name}: {words}")


def _points(console: Console, block: Points) -> None:
    for number, (first, *others) in enumerate(block.points, start=1):
        mark = f"{number}." if block.numbered else "-"
        say(console, f"{mark} {first}")
        for style, other in zip(("green", ""), others, strict=False):
            say(console, other, style, indent="   ")


def _found(console: Console, group: Grouped, root: str, notes: Iterable[str]) -> None:
    first = group.first
    advice = clause(f"{fix_label(first)}: ", first.fix) or clause("no fix as code: ", first.no_fix)
    parts = (group.line(root), clause("costs ", group.cost), advice, *notes)
    words = "; ".join(filter(None, parts))
    say(console, f"{first.level.value} {first.rule}: {words}", _LEVELS[first.level])
