"""The gate for a terminal and a log: each finding at its line, then the budgets, then the verdict as the last line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kgprof import model as m
from kgprof.render.finding_groups import times, way_in
from kgprof.render.gate_table import backend_words
from kgprof.render.quantity import amount
from kgprof.render.visible import one_line, visible
from kgprof.wording import plural, relative

_LENGTH = 2000
_NAME = 60
_RELATED = 3
_HEADINGS = ("run", "budget", "limit", "observed", "accepted", "")


def lines(profile: m.Profile, gate: m.Gate) -> Iterable[str]:
    """Plain lines; the findings that fail the gate first, then the others, then the accepted ones in one line each."""
    order = sorted(
        range(len(profile.findings)), key=lambda i: (bool(profile.findings[i].accepted), i not in gate.failing)
    )
    for index in order:
        yield from _finding(profile.findings[index], index in gate.failing, profile.environment.source_root)
    if profile.findings:
        yield ""
    yield from _table(gate.budgets)
    for entry in gate.accepted:
        if entry.status is m.AcceptedStatus.EXPIRED:
            day, rule = one_line(entry.expires, _NAME), one_line(entry.rule, _NAME)
            place = one_line(f"{entry.file}:{entry.function}", 500)
            who = one_line(f"{entry.owner}, {entry.reason}", 500)
            yield f"expired on {day}: accepted finding {rule} in {place} ({who})"
    for note in gate.notes:
        yield f"note: {one_line(note, _LENGTH)}"
    accepted = sum(bool(finding.accepted) for finding in profile.findings)
    findings = plural(len(profile.findings), "finding") + (f", {accepted} of them accepted" if accepted else "")
    yield f"{one_line(backend_words(gate), _NAME)}, --fail-on {gate.fail_on}, {findings}"
    yield ""
    yield f"{profile.verdict.status.upper()}: {one_line(profile.verdict.text, _LENGTH)}"
    for reason in profile.verdict.reasons:
        yield f"  also: {one_line(reason, _LENGTH)}"


def _finding(finding: m.Finding, fails: bool, root: str) -> Iterable[str]:
    place = finding.location
    where = f"{one_line(relative(place.file, root), 500)}:{place.line}: " if place else ""
    run = f" [{one_line(finding.run.slug, _NAME)}]" if finding.run else ""
    how_often = times([finding.count], finding.message)
    repeated = f" ({how_often})" if how_often else ""
    mark = "accepted " if finding.accepted else "" if fails else f"{finding.level.value} "
    yield f"{where}{mark}{one_line(finding.rule, _NAME)} {one_line(finding.message, _LENGTH)}{repeated}{run}"
    if finding.accepted:
        yield f"    accepted by {one_line(finding.accepted, _LENGTH)}"
    elif place is not None and place.text.strip():
        # As it stands in the file, and a caret under its first character; tabs become spaces under both.
        shown = visible(place.text.expandtabs(4).rstrip())[:500]
        yield f"{place.line:>6} | {shown}"
        yield f"{'':>6} | {' ' * (len(shown) - len(shown.lstrip()))}^"
    if not finding.accepted:
        yield from (f"    {one_line(line, 500)}" for line in way_in(finding))
    for other in finding.related[:_RELATED]:
        function = f" in {one_line(other.function, _NAME)}" if other.function else ""
        yield f"    related: {one_line(relative(other.file, root), 500)}:{other.line}{function}"


def _table(budgets: Sequence[m.BudgetCheck]) -> Iterable[str]:
    if not budgets:
        return
    rows: list[tuple[str, ...]] = [_HEADINGS]
    for budget in budgets:
        row: tuple[str, ...] = (
            one_line(budget.run.slug, _NAME),
            one_line(budget.metric, _NAME),
            amount(budget.limit, budget.unit),
            "-" if isinstance(budget.observed, m.Skipped) else amount(budget.observed, budget.unit),
            str(budget.accepted) if budget.accepted else "",
            budget.status,
        )
        rows.append(row)
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        each = enumerate(zip(row, widths, strict=True))
        yield "  ".join(cell.ljust(n) if i in (0, 1, 5) else cell.rjust(n) for i, (cell, n) in each).rstrip()
    for reason in dict.fromkeys(b.observed.reason for b in budgets if isinstance(b.observed, m.Skipped)):
        yield f"not observed: {one_line(reason, _LENGTH)}"
