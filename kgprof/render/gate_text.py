"""The gate for a terminal and a log: each finding at its line, then the budgets, then the verdict as the last line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kgprof import model as m
from kgprof.render.escaping import one_line, visible
from kgprof.render.finding_groups import failing, times, way_in, where
from kgprof.render.gate_table import backend_words
from kgprof.render.quantity import amount
from kgprof.wording import plural, relative

LENGTH = 2000  # characters of a line
NAME = 60
_RELATED = 3
_HEADINGS = ("run", "budget", "limit", "observed", "accepted", "")


def lines(profile: m.Profile, gate: m.Gate) -> Iterable[str]:
    """Plain lines; the findings that fail the gate first, then the others, then the accepted ones in one line each."""
    fails, root = failing(profile), profile.environment.source_root
    for finding in sorted(profile.findings, key=lambda finding: (bool(finding.accepted), finding not in fails)):
        yield from _finding(finding, finding in fails, root)
    if profile.findings:
        yield ""
    yield from _table(gate.budgets)
    for entry in gate.accepted:
        if entry.status is m.AcceptedStatus.EXPIRED:
            place = f"{entry.file}:{entry.function} ({entry.owner}, {entry.reason})"
            yield one_line(f"expired on {entry.expires}: accepted finding {entry.rule} in {place}", LENGTH)
    yield from (f"note: {one_line(note, LENGTH)}" for note in gate.notes)
    accepted = sum(bool(finding.accepted) for finding in profile.findings)
    findings = plural(len(profile.findings), "finding") + (f", {accepted} of them accepted" if accepted else "")
    yield f"{one_line(backend_words(gate), NAME)}, --fail-on {gate.fail_on}, {findings}"
    yield ""
    yield from verdict(profile.verdict)


def verdict(given: m.Verdict, failed: str = "FAILED") -> Iterable[str]:
    status = failed if given.status is m.VerdictStatus.FAILED else given.status.upper()
    yield f"{status}: {one_line(given.text, LENGTH)}"
    for reason in given.reasons:
        yield f"  also: {one_line(reason, LENGTH)}"


def aligned(rows: Sequence[Sequence[str]], numbers: Sequence[bool]) -> Iterable[str]:
    """Cells on one line, each as wide as its column; ``numbers`` says which columns stand on the right."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        each = zip(row, widths, numbers, strict=True)
        yield "  ".join(cell.rjust(n) if number else cell.ljust(n) for cell, n, number in each).rstrip()


def _finding(finding: m.Finding, fails: bool, root: str) -> Iterable[str]:
    place = finding.location
    run = f" [{finding.run.slug}]" if finding.run else ""
    how_often = times([finding.count], finding.message)
    repeated = f" ({how_often})" if how_often else ""
    mark = "accepted " if finding.accepted else "" if fails else f"{finding.level.value} "
    yield one_line(f"{where(place, root)}{mark}{finding.rule} {finding.message}{repeated}{run}", LENGTH)
    if finding.accepted:
        yield f"    accepted by {one_line(finding.accepted, LENGTH)}"
    elif place is not None and place.text.strip():
        # As it stands in the file, and a caret under its first character; tabs become spaces under both.
        shown = visible(place.text.expandtabs(4).rstrip())[:500]
        yield f"{place.line:>6} | {shown}"
        yield f"{'':>6} | {' ' * (len(shown) - len(shown.lstrip()))}^"
    if not finding.accepted:
        yield from (f"    {one_line(line, 500)}" for line in way_in(finding))
    for other in finding.related[:_RELATED]:
        function = f" in {other.function}" if other.function else ""
        yield f"    related: {one_line(f'{relative(other.file, root)}:{other.line}{function}', LENGTH)}"


def _table(budgets: Sequence[m.BudgetCheck]) -> Iterable[str]:
    if not budgets:
        return
    rows = [
        (
            one_line(budget.run.slug, NAME),
            one_line(budget.metric, NAME),
            amount(budget.limit, budget.unit),
            "-" if isinstance(budget.observed, m.Skipped) else amount(budget.observed, budget.unit),
            str(budget.accepted) if budget.accepted else "",
            str(budget.status),
        )
        for budget in budgets
    ]
    yield from aligned((_HEADINGS, *rows), (False, False, True, True, True, False))
    for reason in dict.fromkeys(b.observed.reason for b in budgets if isinstance(b.observed, m.Skipped)):
        yield f"not observed: {one_line(reason, LENGTH)}"
