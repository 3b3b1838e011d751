"""The Profile: the one document that every renderer reads."""

from __future__ import annotations

from kgprof.model.comparison import Comparison, TraceDifference
from kgprof.model.findings import Action, ChecklistItem, Finding, Rule
from kgprof.model.kernels import KindOverride
from kgprof.model.options import Options, RunKey
from kgprof.model.plan import Environment, StrategyPlan, TraceFile, WorkUnit
from kgprof.model.ranks import RankBalance
from kgprof.model.run_report import RunReport
from kgprof.model.structs import Model, Skipped
from kgprof.model.times import TradeOff
from kgprof.model.verdict import AcceptedFinding, Gate, Verdict

PROFILE_SCHEMA_VERSION = 2  # 1: first form; 2: an evaluation counts in the workload's own unit


class Omission(Model, frozen=True, kw_only=True):
    """Something that a reader might look for and that is not here."""

    what: str
    reason: str
    run: RunKey | None = None


class RedactedCategory(Model, frozen=True, kw_only=True):
    category: str  # "home directories"
    count: int  # places


class Contents(Model, frozen=True, kw_only=True):
    """What was left out of this document before anybody read it, and whose source lines it holds."""

    redaction: bool  # False: --no-redact
    source: str  # --include-source: none, repo, all
    redacted: tuple[RedactedCategory, ...] = ()
    source_lines: int = 0  # lines of source text in it, each counted once
    source_lines_left_out: int = 0


class Profile(Model, frozen=True, kw_only=True):
    """The one document that every renderer reads; ``kgprof schema`` prints its JSON Schema."""

    schema_version: int
    kgprof_version: str
    created_utc: str
    workload: str
    command: tuple[str, ...]
    options: Options
    exit_code: int
    verdict: Verdict
    environment: Environment
    device: str
    baseline: RunKey | None
    vector_isa_probe_s: float | Skipped
    strategies: tuple[StrategyPlan, ...] = ()  # all that the workload offers, with their summaries
    runs: tuple[RunReport, ...]
    findings: tuple[Finding, ...]
    rules: tuple[Rule, ...]  # every rule of this version, so that a clean report documents what was looked for
    omissions: tuple[Omission, ...]
    actions: tuple[Action, ...] = ()  # what to do next, what could save most first
    checklist: tuple[ChecklistItem, ...] = ()
    trade_offs: tuple[TradeOff, ...] = ()
    gate: Gate | None = None  # check-graphs only
    trace_files: tuple[TraceFile, ...] = ()  # `kgprof trace` only
    rank_balance: RankBalance | None = None  # of traces of two ranks or more
    differences: tuple[TraceDifference, ...] = ()  # of traces that were held against others
    kind_overrides: tuple[KindOverride, ...] = ()  # as they stood when this Profile was made, in their order
    comparison: Comparison | None = None  # `kgprof compare` only; then this is the head's Profile
    accepted: tuple[AcceptedFinding, ...] = ()  # what the project accepts, where no gate holds it
    contents: Contents | None = None  # None: nothing was left out, and nobody looked what is in it

    @property
    def unit(self) -> WorkUnit:
        """What the workload counts its work in; that of a run, because an older Recording says it nowhere else."""
        return next((run.unit for run in self.runs if run.counts_units or run.unit.per_step), WorkUnit())
