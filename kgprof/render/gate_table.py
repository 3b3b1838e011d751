"""What the gate held the runs to: each budget beside what was observed, and what is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.limits import Limits
from kgprof.render.quantity import DASH, amount, count
from kgprof.render.visible import one_line

INDUCTOR = "inductor"
_FAILS_ON = {
    m.FailOn.ERROR: "the gate fails on every budget that is exceeded, and on an error that no budget counts.",
    m.FailOn.WARNING: "the gate fails on every budget that is exceeded, and on an error or a warning that no budget "
    "counts.",
    m.FailOn.NEVER: "no finding and no budget fails the gate (--fail-on never).",
}
_MARKS = {m.BudgetStatus.EXCEEDED: "\u2715", m.BudgetStatus.NOT_OBSERVED: "?", m.BudgetStatus.HELD: "\u2713"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    run: str
    metric: str
    limit: str
    observed: str
    why: str  # nothing was observed
    accepted: str
    mark: str
    status: str
    origin: str
    exceeded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLine:
    rule: str
    place: str
    reason: str
    owner: str
    expires: str
    status: str
    wrong: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GateTable:
    backend: str  # what compiled, in words
    fails_on: str  # a sentence
    budgets: tuple[BudgetLine, ...]
    accepted: tuple[AcceptedLine, ...]
    notes: tuple[str, ...]


def gate_table(gate: m.Gate | None, limits: Limits) -> GateTable | None:
    if gate is None:
        return None
    return GateTable(
        backend=one_line(backend_words(gate), limits.name),
        fails_on=one_line(_FAILS_ON[gate.fail_on], limits.name),
        budgets=tuple(_budget(budget, limits) for budget in by_weight(gate.budgets)[: limits.lines]),
        accepted=tuple(_accepted(entry, limits) for entry in gate.accepted[: limits.lines]),
        notes=tuple(one_line(note, limits.name) for note in gate.notes[: limits.lines]),
    )


def backend_words(gate: m.Gate) -> str:
    """A program may name a backend itself, and a TORCH_TRACE directory does not say which it was."""
    return "no backend in Inductor's place" if gate.backend == INDUCTOR else f"{gate.backend} in Inductor's place"


def by_weight(budgets: Sequence[m.BudgetCheck]) -> list[m.BudgetCheck]:
    """What was exceeded first, then what nobody saw."""
    order = tuple(m.BudgetStatus)
    return sorted(budgets, key=lambda budget: order.index(budget.status))


def _budget(budget: m.BudgetCheck, limits: Limits) -> BudgetLine:
    seen = budget.observed
    noun = "" if budget.unit == "s" else budget.unit  # seconds carry their unit in the figure
    return BudgetLine(
        run=one_line(budget.run.slug, limits.name),
        metric=one_line(budget.metric, limits.name),
        limit=f"{amount(budget.limit, budget.unit)} {one_line(noun, limits.name)}".strip(),
        observed=DASH if isinstance(seen, m.Skipped) else amount(seen, budget.unit),
        why=one_line(seen.reason, limits.name) if isinstance(seen, m.Skipped) else "",
        accepted=count(budget.accepted) if budget.accepted else "",
        mark=_MARKS[budget.status],
        status=budget.status,
        origin=one_line(budget.origin, limits.name),
        exceeded=budget.status is m.BudgetStatus.EXCEEDED,
    )


def _accepted(entry: m.AcceptedFinding, limits: Limits) -> AcceptedLine:
    used = entry.status is m.AcceptedStatus.USED
    return AcceptedLine(
        rule=one_line(entry.rule, limits.name),
        place=one_line(f"{entry.file} {entry.function} {entry.graph_break_id}".strip(), limits.name),
        reason=one_line(entry.reason, limits.name),
        owner=one_line(entry.owner, limits.name),
        expires=one_line(entry.expires, limits.name),
        status=f"used by {count(entry.findings)}" if used else entry.status,
        wrong=entry.status is m.AcceptedStatus.EXPIRED,
    )
