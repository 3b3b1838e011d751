"""What the gate held the runs to: each budget beside what was observed, and what is accepted; for a
terminal and a log each finding at its line, then the budgets, then the verdict as the last line."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.escaping import one_line
from kgprof.document.finding_list import (
    advice,
    failing,
    line_of,
    not_applied,
    times,
    way_in,
    where,
)
from kgprof.document.quantity import DASH, amount, count
from kgprof.document.table import Block, Cell, Column, Fold, Table, plain, small
from kgprof.wording import clause, plural, visible

INDUCTOR = "inductor"
FAILS_ON = {
    m.FailOn.ERROR: (
        "the gate fails on every exceeded budget, and on any error that no budget covers."
    ),
    m.FailOn.WARNING: (
        "the gate fails on every exceeded budget, and on any error or warning that "
        "no budget covers."
    ),
    m.FailOn.NEVER: "the gate never fails (--fail-on never).",
}
_MARKS = {
    m.BudgetStatus.EXCEEDED: "\u2715",
    m.BudgetStatus.WARNED: "!",
    m.BudgetStatus.NOT_OBSERVED: "?",
    m.BudgetStatus.HELD: "\u2713",
}


def backend_words(gate: m.Gate) -> str:
    """A program may name a backend itself, and a TORCH_TRACE directory does not say which it
    was."""
    if gate.backend == INDUCTOR:
        return "no --backend"
    return f"--backend {gate.backend}"


def budget_table(gate: m.Gate, rows: int | None = None) -> Table:
    """What was exceeded first, then what nobody saw. The run has a column too, for those who have
    the room."""
    made = []
    order = tuple(m.BudgetStatus)
    for budget in sorted(gate.budgets, key=lambda budget: order.index(budget.status))[:rows]:
        seen = budget.observed
        exceeded = budget.status is m.BudgetStatus.EXCEEDED
        below = [budget.run.slug]
        if budget.made_by_torch:
            below.append(uncounted(budget))
        accepted = note = ""
        if budget.accepted:
            accepted = count(budget.accepted)
            note = f" ({budget.accepted} accepted)"
        if isinstance(seen, m.Skipped):
            below.append(seen.reason)
            observed = Cell(DASH, name=f"{DASH} ({seen.reason})")
        else:
            text = amount(seen, budget.unit)
            observed = Cell(text, name=f"{text}{note}", wrong=exceeded)
        made.append(
            (
                budget.run.slug,
                Cell(budget.metric, below=small(*below)),
                Cell(budget.status, mark=_MARKS[budget.status], wrong=exceeded),
                observed,
                amount(budget.limit, budget.unit),
                accepted,
                budget.origin,
            )
        )
    headings = (
        Column("run", style=""),
        Column("budget", style="short"),
        Column("status", style="kind"),
        "observed",
        "limit",
        "accepted",
        Column("limit set by", style=""),
    )
    notes = [
        f"not counted: {budget.run.slug} {budget.metric}: {uncounted(budget)}"
        for budget in gate.budgets
        if budget.made_by_torch
    ]
    return replace(plain("Budgets per run", headings, made), notes=notes)


def in_lines(gate: m.Gate, rows: int | None = None) -> Table:
    """The budgets where each figure stands in one line with what qualifies it."""
    return budget_table(gate, rows).only("run", "budget", "limit", "observed", "status")


def uncounted(budget: m.BudgetCheck) -> str:
    """What of a budget's metric torch makes itself."""
    return f"{plural(budget.made_by_torch, 'more break')} inside torch, made on purpose"


def accepted_table(gate: m.Gate) -> Table:
    rows = []
    for entry in gate.accepted:
        status: str = entry.status
        if entry.status is m.AcceptedStatus.USED:
            status = f"used by {count(entry.findings)}"
        ended = Cell(status, wrong=entry.status is m.AcceptedStatus.EXPIRED)
        rows.append((entry.rule, entry.place, entry.reason, entry.owner, entry.expires, ended))
    headings = ("rule", "where", "why", "owner", "expires", Column("status", style=""))
    return plain("Accepted findings", headings, rows, style="", first="kind", words=4)


def gate_blocks(gate: m.Gate) -> Iterator[Block]:
    """The budgets, what is to be known of them, and what is accepted."""
    if gate.budgets:
        # the page says below each budget what is not counted
        table = replace(budget_table(gate), notes=())
        yield table.only("budget", "status", "observed", "limit", "accepted", "limit set by")
    else:
        yield "No budget was set."
    yield from gate.notes
    if gate.accepted:
        entries = plural(len(gate.accepted), "entry", "entries")
        accepted = accepted_table(gate)
        yield Fold(f"Accepted findings ({entries})", (accepted,), open=True)


LENGTH = 2000  # characters of a line
NAME = 60
_RELATED = 3


def lines(profile: m.Profile, gate: m.Gate) -> Iterator[str | Table]:
    """Plain lines and the table of the budgets; the findings that fail the gate first, then the
    others, then the accepted ones in one line each."""
    fails = failing(profile)
    root = profile.source_root
    remedies = {rule.id: rule.remedy for rule in profile.rules}
    for finding in sorted(
        profile.findings, key=lambda finding: (bool(finding.accepted), finding not in fails)
    ):
        # What a rule says for every program is said once, and only of what fails.
        remedy = ""
        if finding in fails:
            remedy = remedies.get(finding.rule, "")
        shown = advice(finding, remedy)
        if remedy and any(remedy in line for line in shown):
            del remedies[finding.rule]
        yield from _finding(finding, finding in fails, root, shown)
    if sentence := not_applied(profile.findings):
        yield sentence
    if profile.findings:
        yield ""
    if gate.budgets:
        yield in_lines(gate)
    for entry in gate.accepted:
        if entry.status is m.AcceptedStatus.EXPIRED:
            place = f"{entry.file}:{entry.function} ({entry.owner}, {entry.reason})"
            yield one_line(
                f"expired on {entry.expires}: accepted finding {entry.rule} in {place}", LENGTH
            )
    yield from (f"note: {one_line(note, LENGTH)}" for note in gate.notes)
    accepted = sum(bool(finding.accepted) for finding in profile.findings)
    findings = plural(len(profile.findings), "finding")
    if accepted:
        findings += f", {accepted} of them accepted"
    yield f"{one_line(backend_words(gate), NAME)}, --fail-on {gate.fail_on}, {findings}"
    yield ""
    yield f"{profile.verdict.status.upper()}: {one_line(profile.verdict.text, LENGTH)}"
    yield from (f"  also: {one_line(reason, LENGTH)}" for reason in profile.verdict.reasons)


def _finding(finding: m.Finding, fails: bool, root: str, todo: Iterable[str]) -> Iterable[str]:
    place = finding.location
    repeated = clause(" (", times([finding]), ")")
    said = f"{finding.rule} {finding.message}{repeated}"
    if finding.run:
        said += f" [{finding.run.slug}]"
    if finding.accepted:
        said = f"accepted {said}"
    elif not fails:
        said = f"{finding.level.value} {said}"
    yield one_line(f"{where(place, root)}{said}", LENGTH)
    if finding.accepted:
        yield f"    accepted by {one_line(finding.accepted, LENGTH)}"
    else:
        yield from _source_line(place)
        yield from (f"    {visible(line)[:LENGTH]}" for line in todo)  # code keeps its indentation
        yield from (f"    {one_line(line, 500)}" for line in way_in(finding))
    for other in finding.related[:_RELATED]:
        function = clause(" in ", other.function)
        yield f"    related: {one_line(f'{line_of(other, root)}{function}', LENGTH)}"


def _source_line(place: m.Location | None) -> Iterable[str]:
    """As it stands in the file, and a caret under its first character; tabs become spaces under
    both."""
    if place and place.text.strip():
        shown = visible(place.text.expandtabs(4).rstrip())[:500]
        yield f"{place.line:>6} | {shown}"
        yield f"{'':>6} | {' ' * (len(shown) - len(shown.lstrip()))}^"
