"""What is decided: the report's first line, and what ``check-graphs`` held the findings to."""

from __future__ import annotations

from enum import StrEnum

from kgprof.model.options import FailOn, RunKey
from kgprof.model.structs import Model, Skipped


class VerdictStatus(StrEnum):
    OK = "ok"
    ATTENTION = "attention"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


class BudgetStatus(StrEnum):
    """In the order in which they are shown."""

    EXCEEDED = "exceeded"
    NOT_OBSERVED = "not observed"
    HELD = "held"


class AcceptedStatus(StrEnum):
    USED = "used"
    UNUSED = "unused"
    EXPIRED = "expired"


class Verdict(Model, frozen=True, kw_only=True):
    """The report's first line."""

    status: VerdictStatus
    text: str
    reasons: tuple[str, ...] = ()


class BudgetCheck(Model, frozen=True, kw_only=True):
    """One budget of ``check-graphs`` on one run."""

    metric: str  # "graph-breaks"
    run: RunKey
    limit: float
    unit: str  # "sites", "events", "s", "reads/step"
    observed: float | Skipped  # without what is accepted
    accepted: int  # findings of this metric that are accepted and so not counted
    origin: str  # where the limit was written: "--max", "pyproject.toml", "default"
    status: BudgetStatus


class AcceptedFinding(Model, frozen=True, kw_only=True):
    """What became of one entry of the file of accepted findings."""

    rule: str
    file: str
    function: str
    graph_break_id: str  # "GB0059"; empty: any
    reason: str
    owner: str
    expires: str  # ISO date, the last day on which it holds
    status: AcceptedStatus
    findings: int  # how many it matches
    library: str = ""  # "transformers/modeling_utils.py:warn_once"; empty: any


class Gate(Model, frozen=True, kw_only=True):
    """What ``check-graphs`` decided, and from what. The Profile's verdict and exit code are this gate's."""

    fail_on: FailOn
    backend: str  # what compiled: "inductor", "aot_eager", "eager"
    budgets: tuple[BudgetCheck, ...]
    accepted: tuple[AcceptedFinding, ...]
    failing: tuple[int, ...]  # indices into the Profile's findings: those that fail the gate
    notes: tuple[str, ...] = ()
