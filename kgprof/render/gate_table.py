"""What the gate held the runs to: each budget beside what was observed, and what is accepted."""

from __future__ import annotations

from kgprof import model as m
from kgprof.render.limits import Limits
from kgprof.render.quantity import DASH, amount, count
from kgprof.render.table import Block, Cell, Column, Fold, Small, Table, columns, row
from kgprof.wording import plural

INDUCTOR = "inductor"
FAILS_ON = {
    m.FailOn.ERROR: "the gate fails on every exceeded budget, and on any error that no budget covers.",
    m.FailOn.WARNING: "the gate fails on every exceeded budget, and on any error or warning that no budget covers.",
    m.FailOn.NEVER: "the gate never fails (--fail-on never).",
}
_MARKS = {m.BudgetStatus.EXCEEDED: "\u2715", m.BudgetStatus.NOT_OBSERVED: "?", m.BudgetStatus.HELD: "\u2713"}


def backend_words(gate: m.Gate) -> str:
    """A program may name a backend itself, and a TORCH_TRACE directory does not say which it was."""
    return "the default backend" if gate.backend == INDUCTOR else (f"backend {gate.backend} instead of Inductor")


def budget_table(gate: m.Gate, limits: Limits) -> Table:
    """What was exceeded first, then what nobody saw. The run has a column too, for those who have the room."""
    rows, order = [], tuple(m.BudgetStatus)
    for budget in sorted(gate.budgets, key=lambda budget: order.index(budget.status))[: limits.lines]:
        seen, exceeded = budget.observed, budget.status is m.BudgetStatus.EXCEEDED
        noun = "" if budget.unit == "s" else f" {budget.unit}"  # seconds carry their unit in the figure
        why: tuple[Small, ...] = ()
        if isinstance(seen, m.Skipped):
            why, observed = (Small((seen.reason,)),), Cell(DASH, name=f"{DASH} ({seen.reason})")
        else:
            accepted = f" ({budget.accepted} accepted)" if budget.accepted else ""
            text = amount(seen, budget.unit)
            observed = Cell(text, name=f"{text}{accepted}", wrong=exceeded)
        rows.append(
            row(
                budget.run.slug,
                Cell(budget.metric, below=(Small((budget.run.slug,)), *why)),
                Cell(budget.status, mark=_MARKS[budget.status], wrong=exceeded),
                observed,
                f"{amount(budget.limit, budget.unit)}{noun}",
                count(budget.accepted) if budget.accepted else "",
                budget.origin,
            )
        )
    return Table(
        label="Budgets per run",
        columns=(
            Column("run", style=""),
            Column("budget", style="short"),
            Column("status", style="kind"),
            *columns("observed", "limit", "accepted", words=0),
            Column("limit set by", style=""),
        ),
        rows=tuple(rows),
        style="sortable",
    )


def accepted_table(gate: m.Gate, limits: Limits) -> Table:
    rows = []
    for entry in gate.accepted[: limits.lines]:
        status = f"used by {count(entry.findings)}" if entry.status is m.AcceptedStatus.USED else entry.status
        place = " ".join(filter(None, (entry.file, entry.function, entry.graph_break_id, entry.library)))
        ended = Cell(status, wrong=entry.status is m.AcceptedStatus.EXPIRED)
        rows.append(row(entry.rule, place, entry.reason, entry.owner, entry.expires, ended))
    heads = columns("rule", "where", "why", "owner", "expires", words=4, first="kind")
    return Table(label="Accepted findings", columns=(*heads, Column("status", style="")), rows=tuple(rows))


def gate_blocks(gate: m.Gate, limits: Limits) -> tuple[Block, ...]:
    """The budgets, what is to be known of them, and what is accepted."""
    blocks: list[Block] = [
        budget_table(gate, limits).only("budget", "status", "observed", "limit", "accepted", "limit set by")
        if gate.budgets
        else "No budget was set.",
        *gate.notes[: limits.lines],
    ]
    if gate.accepted:
        entries = plural(len(gate.accepted), "entry", "entries")
        accepted = accepted_table(gate, limits)
        blocks.append(Fold(f"Accepted findings ({entries})", blocks=(accepted,), open=True))
    return tuple(blocks)
