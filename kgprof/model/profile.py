"""The Profile, the one document that every renderer reads, and its runs."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from kgprof.model.accounts import NOT_ACCOUNTED, ScriptAccount
from kgprof.model.comparison import Comparison, TraceDifference
from kgprof.model.compile_records import CALLS_NOT_COUNTED, Autotuned, CompiledText, TritonStages
from kgprof.model.compiled_work import NOT_KEPT, CompiledWork
from kgprof.model.evaluation import AgreementVerdict, Evaluation, RunAgreement
from kgprof.model.findings import (
    AcceptedFinding,
    Action,
    ChecklistItem,
    Coverage,
    Finding,
    Gate,
    PackageLine,
    Rule,
    Verdict,
)
from kgprof.model.kernels import (
    FlameGraph,
    Fusion,
    HolisticCheck,
    HostBreakdown,
    KernelBreakdown,
    KindOverride,
    MemoryCurve,
    RankBalance,
)
from kgprof.model.limits import RunLimits, WholeRun
from kgprof.model.passes import (
    CacheFolder,
    Compilation,
    Exit,
    Load,
    MemoryPeaks,
    Options,
    RunKey,
)
from kgprof.model.recording import Environment, InTurn, ScriptRun, StrategyPlan, TraceFile, WorkUnit
from kgprof.model.structs import Location, Model, Skipped, Tagged, Unavailable
from kgprof.model.times import (
    Economics,
    LongSteps,
    ObserverCost,
    Rounds,
    Speedup,
    Spread,
    StepSeries,
    TradeOff,
    TrainingPhases,
)
from kgprof.wording import opening


class RecompileEntry(Model):
    """A compilation that was made because every compiled entry of the function had been
    rejected."""

    compile_id: str  # "0/1"; empty where torch refused
    # the function's def; for a library's the project's line that leads there
    location: Location | None
    call: int | None  # of COMPILE; None: calls were not told apart
    steady: bool  # after the warm-up calls
    reason: str  # of the newest entry, in our words: "size of x, dimension 0: expected 8, got 9"
    words: str  # the same in torch's
    # what kind of guard that was: "size", "grad-mode"; empty where torch gave no reason
    guard: str = ""
    duration_s: float | Skipped
    call_site: Location | None = None
    # torch's limit was reached, so that it made none and the call ran in eager
    refused: bool = False
    function: str = ""  # the function's name, qualified where it is known: "Attention.forward"
    library: PackageLine | None = None  # its def, where it is a library's


class CacheTally(Model, kw_only=False):
    """Looks into one of the compilers' caches, by what came of them."""

    cache: str  # "FX graph cache", "AOTAutograd cache"
    hits: int
    misses: int
    bypasses: int


class MemoryTier(StrEnum):
    """Of what a run takes over eager mode: below 10 % of it, below 25 %, and more."""

    LOW = "low"
    MODERATE = "moderate"
    HIGH = "high"


class CallsOfCompiled(Tagged):
    """Calls of what torch.compile returned, warm-up included, and how many of them ran a compiled
    graph."""

    calls: int
    with_a_graph: int
    graph_runs: int = 0  # of all graphs, also outside of these calls
    unknown: int = 0  # calls of callables that had compiled code before the recording began
    # After warm-up, calls that ran no graph, by the fingerprint of the finding that says why; of a
    # part behind a graph break, calls of the workload in which it ran none.
    eager: dict[str, int | Skipped] = msgspec.field(default_factory=dict)


class CompileSummary(Tagged):
    first_call_s: float | Skipped  # wall time of the first call, cold cache
    # calls after warm-up in the COMPILE pass; of a script TRACE's steps if they are shorter
    steady: Spread | Skipped
    compilations: tuple[Compilation, ...]
    capture_unavailable: tuple[Unavailable, ...]
    while_loading_s: float = 0.0  # of CompilePass
    # made while the workload was loaded, of code that ran in no call
    unused: tuple[Compilation, ...] = ()
    caches: tuple[CacheTally, ...] | Skipped = Skipped(
        "this Recording has no records of the compiler"
    )
    cache: CacheFolder | Skipped = Skipped("this Recording has no cache sizes")
    compiling: MemoryPeaks | Skipped = Skipped("this Recording has no memory of compiling")
    autotuned: tuple[Autotuned, ...] | Skipped = Skipped("this Recording has no autotuning")
    stages: TritonStages | Skipped = Skipped("this Recording has no stages of Triton's")
    # the beginning of each; `kgprof export --to graph|code` has the whole
    texts: tuple[CompiledText, ...] = ()
    # In the order of the calls.
    recompiles: tuple[RecompileEntry, ...] | Skipped = Skipped(
        "this Recording has no records of the compiler"
    )
    compiled_calls: CallsOfCompiled | Skipped = Skipped(CALLS_NOT_COUNTED)


class MemorySummary(Tagged):
    """What one run reads back, and how much memory it takes; see MemoryPeaks for where each figure
    comes from."""

    steps: int  # calls after warm-up that were watched
    peaks: MemoryPeaks | Skipped
    over_eager_bytes: int | Skipped  # this run's peak less that of the same strategy in mode eager
    over_eager_of: str = ""  # "taken", "allocated" or "resident": which peak that is
    taken_bytes: int | Skipped = Skipped("this Recording has no data on the pools of CUDA graphs")
    # that peak of eager mode over this run's
    of_eager: float | Skipped = Skipped("this report has none")
    tier: MemoryTier | None = None  # None: ``of_eager`` is Skipped
    # for one model: that peak and a quarter
    budget_bytes: int | Skipped = Skipped("this report has none")
    syncs_per_step: float | Skipped  # KGP201 and 202, mean over the calls after warm-up
    # The same by the finding's fingerprint; empty where it is Skipped.
    reads: dict[str, float] = msgspec.field(default_factory=dict)


class LogExcerpt(Model, kw_only=False):
    text: str
    left_out_bytes: int


class RunReport(Model):
    """One strategy x mode, as every renderer shows it."""

    key: RunKey
    is_baseline: bool
    exit: Exit
    # of the second process, the one of MEMORY and KERNELS, where there was one
    probe_exit: Exit | None = None
    step: Spread | Skipped
    evaluation_time: Spread | Skipped  # seconds per whole evaluation
    unit: WorkUnit = WorkUnit()
    # milliseconds: whole jobs over their units, or steps over those of a step
    per_unit: Spread | Skipped
    # units a second, from the same samples
    throughput: Spread | Skipped = Skipped("this report has none")
    speedup: Speedup | Skipped
    # CPU time of a step in TIMING, all threads of the process
    cpu: Spread | Skipped = Skipped("this report has none")
    load: Load | Skipped = Skipped(
        reason="this report has none"
    )  # in TIMING, else before the start
    evaluation: Evaluation | Skipped
    agreement: RunAgreement | Skipped
    # whose results these were held against; None: no other run's
    compared_with: RunKey | None = None
    compile: CompileSummary | Skipped
    kernels: KernelBreakdown | Skipped
    fusion: Fusion | Skipped = Skipped("this Recording has no work by graph")
    host: HostBreakdown | Skipped
    observers: tuple[ObserverCost, ...]
    log: LogExcerpt
    memory: MemorySummary | Skipped = Skipped("this Recording has no MEMORY pass")
    notes: tuple[str, ...] = ()  # what a reader of its times must know, in the recorder's words
    slow_first: float | None = None  # as TimingPass.slow_first
    script: ScriptRun | None = None  # None: a workload with steps of its own
    holistic: HolisticCheck | Skipped = Skipped("HTA was not run on this trace")
    flame: FlameGraph | Skipped = Skipped("this Recording has no STACK pass")
    rounds: Rounds | Skipped = Skipped("TIMING ran in one process")
    memory_curve: MemoryCurve | Skipped = Skipped("this report has none")
    series: StepSeries | Skipped = Skipped("this report has no single step times")
    long_steps: LongSteps | None = None  # None: the median step stands for most of the time
    unlike_steps: str = ""  # what differs between most of them, where that was counted
    economics: Economics | Skipped = Skipped(
        "nothing was compiled in this run, or nothing was timed"
    )
    phases: TrainingPhases | Skipped = Skipped("this run is not training, or was not traced")
    limits: RunLimits | Skipped = Skipped("this report was made before limits were judged")
    work: CompiledWork | Skipped = Skipped(NOT_KEPT)
    account: ScriptAccount | Skipped = Skipped(NOT_ACCOUNTED)
    whole: WholeRun | Skipped = Skipped("this report was made before runs were accounted for")

    @property
    def slug(self) -> str:
        return self.key.slug

    @property
    def gpu_kernels(self) -> KernelBreakdown | None:
        """What ran on a GPU, if anything did."""
        kernels = self.kernels
        return None if isinstance(kernels, Skipped) or kernels.device != "cuda" else kernels

    @property
    def counts_units(self) -> bool:
        """Its whole job says how many units of work it is."""
        return isinstance(self.evaluation, Evaluation) and self.evaluation.units > 0

    @property
    def results_differ(self) -> bool:
        return (
            isinstance(self.agreement, RunAgreement)
            and self.agreement.verdict == AgreementVerdict.DIFFERENT
        )

    @property
    def was_stopped(self) -> bool:
        """A script whose steps were seen until somebody or the time limit stopped it, as a training
        that goes on."""
        return self.exit.is_early and bool(self.script and self.script.steps)

    @property
    def how_it_ended(self) -> str:
        """One sentence: "fused.default was killed during TIMING: SIGKILL"."""
        if (failure := self.exit.failure) is None:
            return f"{self.key.slug} {self.exit.words}"
        place = f"{failure.location.file.rpartition('/')[2]}:{failure.location.line}"
        said = f"{place}: {opening(failure.error)} ({self.key.slug}, {self.exit.where})"
        if not self.exit.through:
            return said
        hooks = " and ".join(self.exit.through)
        return f"{said}; it came through kgprof's {hooks}, and no run without says whose it is"


Runs = Sequence[RunReport]
PROFILE_SCHEMA_VERSION = 2  # 1: first form; 2: an evaluation counts in the workload's own unit


class Omission(Model, kw_only=False):
    """Something that a reader might look for and that is not here."""

    what: str
    reason: str
    run: RunKey | None = None


class RedactedCategory(Model):
    category: str  # "home directories"
    count: int  # places


class Contents(Model):
    """What was left out of this document before anybody read it, and whose source lines it
    holds."""

    redaction: bool  # False: --no-redact
    source: Annotated[str, msgspec.Meta(pattern="^(none|repo|all)$")]  # --include-source
    redacted: tuple[RedactedCategory, ...] = ()
    source_lines: int = 0  # lines of source text in it, each counted once
    source_lines_left_out: int = 0


class ProjectSource(Model):
    """One of the workload's own files as it was recorded."""

    file: str
    sha256: str
    text: str | Skipped


class Profile(Model):
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
    rules: tuple[Rule, ...]  # every rule of this version
    # of each rule in each run; empty: an earlier kgprof did not write it down
    coverage: tuple[Coverage, ...] = ()
    omissions: tuple[Omission, ...]
    actions: tuple[Action, ...] = ()  # what to do next, what could save most first
    checklist: tuple[ChecklistItem, ...] = ()
    trade_offs: tuple[TradeOff, ...] = ()
    gate: Gate | None = None  # check-graphs only
    trace_files: tuple[TraceFile, ...] = ()  # `kgprof trace` only
    sources: tuple[ProjectSource, ...] = ()  # by file
    rank_balance: RankBalance | None = None  # of traces of two ranks or more
    differences: tuple[TraceDifference, ...] = ()  # of traces that were held against others
    # as they stood when this Profile was made, in their order
    kind_overrides: tuple[KindOverride, ...] = ()
    comparison: Comparison | None = None  # `kgprof compare` only; then this is the head's Profile
    # recorded in turn with another side, by `kgprof compare --record`
    in_turn: InTurn | None = None
    accepted: tuple[AcceptedFinding, ...] = ()  # what the project accepts, where no gate holds it
    contents: Contents | None = None  # None: nothing was left out, and nobody looked what is in it

    @property
    def timed(self) -> bool:
        """Times were asked for, or a script was timed without asking."""
        return not self.options.untimed or any(isinstance(run.step, Spread) for run in self.runs)

    @property
    def unit(self) -> WorkUnit:
        """What the workload counts its work in; that of a run, because an older Recording says it
        nowhere else."""
        return next(
            (run.unit for run in self.runs if run.counts_units or run.unit.per_step), WorkUnit()
        )

    @property
    def source_root(self) -> str:
        return self.environment.source_root

    def remedy(self, rule: str) -> str:
        """What the rule of this id says to do; empty for one that is not of this version."""
        return next((known.remedy for known in self.rules if known.id == rule), "")
