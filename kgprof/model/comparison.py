"""Two traces, or two whole Profiles (``kgprof compare``), beside each other."""

from enum import StrEnum

from kgprof.model.bisect import Bisect
from kgprof.model.compiled_work import ComparedWork, WorkDifference
from kgprof.model.findings import Finding, Verdict
from kgprof.model.kernels import KernelKind, StackFrame
from kgprof.model.passes import PassName, RunKey
from kgprof.model.recording import Environment, InTurn
from kgprof.model.structs import Location, Model, Skipped


class Presence(StrEnum):
    """On which side a kernel, a span or a run is: on both, only on the later one, or only on the
    earlier one."""

    BOTH = "both"
    NEW = "new"
    GONE = "gone"


# Names of metrics that a page shows by themselves; they are the keys of budgets too.
KERNELS_PER_STEP = "kernels per step"
COLD_FIRST_CALL = "first call, cold cache"
WARM_FIRST_CALL = "first call, warm cache"
FIRST_CALLS = (COLD_FIRST_CALL, WARM_FIRST_CALL)


class MetricVerdict(StrEnum):
    """What a metric's change comes to, in the order in which a reader wants them."""

    WORSE = "worse"
    INCONCLUSIVE = "inconclusive"
    NOT_OBSERVED = "not observed"
    BETTER = "better"
    SAME = "same"


class TimeOf(StrEnum):
    STEP = "step"
    EVALUATION = "evaluation"
    UNIT = "unit"  # of the workload's work


class Undecided(StrEnum):
    """Why a metric is inconclusive or not observed."""

    NOT_MEASURED = "not measured"
    OTHER_WORK = "other work"
    OTHER_ENVIRONMENT = "other environment"
    ONE_ROUND = "one round"
    MACHINE_MOVED = "machine moved"
    STRADDLES_BUDGET = "straddles budget"


class CauseKind(StrEnum):
    FINDING = "finding"
    KERNEL = "kernel"
    LAUNCHES = "launches"
    COPIES = "copies"
    HOST = "host"
    STEPS = "steps"
    CUDA_GRAPHS = "cuda-graphs"
    RESULTS = "results"
    COMPILE = "compile"
    MEMORY = "memory"
    SETTING = "setting"


class FindingStatus(StrEnum):
    """``new``: only head has it; ``fixed``: only base had it; in both cases the other side looked
    for it. ``moved``: the same line of code is in another function or file."""

    NEW = "new"
    FIXED = "fixed"
    MOVED = "moved"
    UNCHANGED = "unchanged"
    NOT_LOOKED_FOR = "not looked for"  # on the other side


class Change(Model, kw_only=False):
    """One row of a TraceDifference, per step."""

    name: str
    kind: KernelKind | None  # of a kernel
    status: Presence
    before_us: float
    after_us: float
    delta_us: float  # after less before
    before_count: float | None  # None: a stretch of time, which is not counted
    after_count: float | None

    @property
    def before(self) -> float:
        return self.before_count or 0.0

    @property
    def after(self) -> float:
        return self.after_count or 0.0

    @property
    def more(self) -> float:
        return self.after - self.before

    @property
    def launches_us(self) -> float:
        """What launching it more often costs; of a kernel that is on both sides."""
        return self.more * (self.before_us / self.before + self.after_us / self.after) / 2


class TraceDifference(Model):
    """``run``'s trace less that of ``against``, per step. ``kinds`` and ``kernels`` add up to
    ``total``.

    ``spans`` and ``regions`` do as well on a GPU and are empty on a CPU, whose operators are in no
    span.
    """

    run: RunKey
    against: RunKey
    missing: str = ""  # why the two cannot be compared; then nothing else is here
    device: str = ""  # as KernelBreakdown.device
    per: str = ""  # "step", or "window" where neither trace marks steps
    before_steps: int = 0
    after_steps: int = 0
    total: Change | None = None
    window: tuple[Change, ...] = ()  # window, busy, idle
    kinds: tuple[Change, ...] = ()
    kernels: tuple[Change, ...] = ()
    spans: tuple[Change, ...] = ()
    regions: tuple[Change, ...] = ()

    def of_window(self, name: str) -> Change | None:
        """The row of "window", "busy" or "idle", where the two could be compared."""
        return next((row for row in self.window if row.name == name), None)


BASE_PAGE = "base/report.html"  # from the folder of a comparison that was recorded


class ComparedSide(Model):
    """What one side of a comparison was, so that a reader can find it again."""

    source: str  # the path as it was given
    created_utc: str
    kgprof_version: str
    git_commit: str | Skipped
    git_dirty: bool | Skipped
    exit_code: int  # its own, before the comparison
    verdict: Verdict  # its own
    has_page: bool = False  # beside the comparison's, in BASE_PAGE

    @property
    def commit(self) -> str:
        """Empty where it is not known."""
        return self.git_commit if isinstance(self.git_commit, str) else ""


OF_THE_MEASUREMENT = ("--steps", "--warmup")  # settings that leave a step what it is


class ChangedFact(Model, kw_only=False):
    """One fact of the environment, or one setting that was asked for or declared by the workload,
    that is not the same on both sides. Of two environments the times cannot be compared."""

    name: str  # "GPU", "flag TORCH_LOGS"; "--steps", "workload option --batch", "depth"
    base: str  # in words, "not set" and a Skipped's reason too; of a setting empty: not there
    head: str

    @property
    def words(self) -> str:
        return f"{self.name} {self.base or 'not given'} -> {self.head or 'not given'}"


class ComparedMetric(Model):
    """One quantity of one run on both sides.

    Times are judged by an interval for ``ratio`` (head over base) at 95 %: worse when all of it is
    above 1 + budget, better when all of it is below 1 / (1 + budget), same when all of it is below
    1 + budget, else inconclusive. Counts are judged as they stand: any more is worse (of launches
    of CUDA graphs any less). Noisy ones, sizes and compile seconds are judged by
    ``tolerance_percent``.
    """

    name: str  # "step", "evaluation", "ms/token", "graph breaks", "peak allocated", ...
    run: RunKey
    # "us", "s", "ms/token", "sites", "events", "syncs/step", "kernels/step", "launches/step",
    # "bytes"
    unit: str
    time_of: TimeOf | None = None  # None: it is a count or a size
    rate: str = ""  # "tokens/s", of the time of a unit: a thousand over its milliseconds
    measured_in: PassName | None = None
    # of a time: the mean of the rounds' medians (geometric), which ``ratio`` is the quotient of
    base: float | Skipped
    head: float | Skipped
    ratio: float | Skipped  # head / base; Skipped where base is 0
    low: float | Skipped = Skipped("a count has no interval")  # of ``ratio``
    high: float | Skipped = Skipped("a count has no interval")
    # fresh processes that a time stands on; of sides recorded in turn as many as there are pairs
    base_rounds: int = 0
    head_rounds: int = 0
    # how much worse is allowed; None: reported, and fails nothing
    budget_percent: float | None = None
    # below which a change of a noisy count or size is called the same
    tolerance_percent: float | None = None
    verdict: MetricVerdict
    undecided: Undecided | None = None  # of one that is inconclusive or not observed
    decides: bool = False  # it has part in the comparison's verdict
    # rounds on either side after which the interval should clear the budget
    runs_to_settle: int | None = None
    # all that a reader must know besides: why it is undecided, and what would settle it
    note: str = ""


class PhaseChange(Model, kw_only=False):
    """Seconds that all compilations of a run spent in one stage (CompileStages), on both sides."""

    name: str  # "capture", "frontend", "scheduling", "code generation", "machine code", "caching"
    base_s: float
    head_s: float


class Cause(Model):
    """What a regression is put down to."""

    cause: CauseKind
    rule: str = ""  # of the finding that it is
    # what it is about (a kernel's name), by which runs share a cause; empty: ``text`` is
    subject: str = ""
    run: RunKey | None = None  # None: of all runs
    text: str
    # the parts of the traces' difference that a finding accounts for
    seen_in_traces: tuple[str, ...] = ()
    # of RunComparison.delta_us: the parts and the remainder add up to it
    explains_us: float | Skipped
    fingerprint: str = ""  # of the finding that it is
    location: Location | None = None  # where it shows
    changed: Location | None = None  # the line of the change that it is put down to
    was: Location | None = None  # what stood there in base

    @property
    def place(self) -> Location | None:
        """The line to look at first."""
        return self.changed or self.location


class FlameDifference(Model):
    """The host's stacks of a run on both sides as one tree, nanoseconds a step; 0: not on that
    side, or pruned there.

    Nodes are matched by the names on the way to them. The places are head's, of what only base has
    base's.
    """

    base_steps: int
    head_steps: int
    names: tuple[str, ...]
    frames: tuple[StackFrame, ...]
    parent: tuple[int, ...]  # of each node; -1 of the first, which is the step
    frame: tuple[int, ...]
    base_self_ns: tuple[int, ...]
    head_self_ns: tuple[int, ...]
    pruned_below: float  # as FlameGraph's, of the side that was pruned more


class MachineDrift(Model, kw_only=False):
    """How much slower the machine itself was in head's rounds than in base's, by a loop of
    MachineSpeed."""

    loop: str  # "host" or "device"
    base: float  # microseconds; geometric mean of the rounds' medians
    head: float
    ratio: float  # head / base
    low: float  # to ``high`` its 95 % interval by Welch, as of a time
    high: float


_ONE_SIDE = Skipped("the run is on one side only")


class RunComparison(Model):
    """One strategy x mode on both sides."""

    run: RunKey
    status: Presence
    metrics: tuple[ComparedMetric, ...] = ()
    # the metric that says whether it is slower: step, evaluation, ms/token; empty: none
    decided_by: str = ""
    # what ``delta_us`` and the causes' ``explains_us`` are of: step, evaluation, token
    per: str = "step"
    delta_us: float | Skipped = _ONE_SIDE  # TIMING: head less base
    explained_us: float | Skipped = _ONE_SIDE  # the sum over ``causes``
    remainder_us: float | Skipped = _ONE_SIDE  # delta less explained
    traced_us: float | Skipped = _ONE_SIDE  # the traces' delta, before scaling
    scale: float | Skipped = _ONE_SIDE  # a microsecond of the trace, in TIMING's
    trace: TraceDifference | None = None
    flame: FlameDifference | None = None  # None: one of the sides has no stacks
    phases: tuple[PhaseChange, ...] = ()
    machine: tuple[MachineDrift, ...] | Skipped = Skipped("there are not two rounds per side")
    settings: tuple[ChangedFact, ...] = ()
    causes: tuple[Cause, ...] = ()
    work: ComparedWork | Skipped = Skipped("this report was made before work was compared")
    notes: tuple[str, ...] = ()


class ComparedFinding(Model, kw_only=False):
    """A finding by its fingerprint."""

    status: FindingStatus
    finding: Finding  # head's; base's where only base has it
    base_count: int
    head_count: int
    fails: bool = False  # new, and of a level that --fail-on names
    moved_from: Location | None = None  # its place in base
    escaped: str = ""  # "base" or "head": the side that did not look for it
    missing: str = ""  # why it did not

    @property
    def is_new(self) -> bool:
        return self.status is FindingStatus.NEW

    @property
    def grew(self) -> bool:
        kept = self.status in (FindingStatus.UNCHANGED, FindingStatus.MOVED)
        return kept and self.head_count > self.base_count


class NotLookedFor(Model, kw_only=False):
    """Rules that only one side looked for in a run of both."""

    side: str  # that did not: "base" or "head"
    rules: tuple[str, ...]
    reason: str


class Comparison(Model):
    """Two Profiles beside each other. The Profile that holds it is the head's, with the
    comparison's verdict."""

    base: ComparedSide
    head: ComparedSide
    environment: tuple[ChangedFact, ...] = ()
    comparable: bool  # the environments are alike, or --allow-different-environment was given
    fail_on: str = "warning"  # which new findings fail: error, warning, never
    runs: tuple[RunComparison, ...] = ()
    # new, then fixed, then unchanged, then not looked for on one side
    findings: tuple[ComparedFinding, ...] = ()
    not_looked_for: tuple[NotLookedFor, ...] = ()
    causes: tuple[Cause, ...] = ()  # of all runs, the likeliest first
    settings: tuple[ChangedFact, ...] = ()  # of the whole command
    # of two interpreters: what was upgraded, and whether the code is the same; else empty
    upgrade: str = ""
    work: str = ""  # and what it does to the work
    defaults: tuple[ChangedFact, ...] = ()  # torch's own, that differ between them
    method: str = ""  # how the intervals were made, in a sentence
    in_turn: InTurn | None = None  # None: the sides were recorded one after the other
    # base is the last good commit of a bisect, and head the first one that is known to be bad
    bisect: Bisect | None = None
    notes: tuple[str, ...] = ()

    @property
    def differences(self) -> tuple[WorkDifference, ...]:
        """In what is compiled and run, of all runs."""
        works = (run.work for run in self.runs if isinstance(run.work, ComparedWork))
        return tuple(each for work in works for each in work.differences)


HISTORY_SCHEMA_VERSION = 1


class MetricHistory(Model, kw_only=False):
    """One metric of one run over several recordings. A comparison is None where the run is not on
    both sides."""

    run: RunKey
    name: str
    # one a recording; of a time the mean of its rounds' medians (geometric)
    values: tuple[float | Skipped, ...]
    against_first: tuple[ComparedMetric | None, ...]  # one a recording from the second on
    against_previous: tuple[ComparedMetric | None, ...]

    @property
    def changed(self) -> bool:
        pairs = (*self.against_first, *self.against_previous)
        known = (MetricVerdict.SAME, MetricVerdict.NOT_OBSERVED)
        return any(each is None or each.verdict not in known for each in pairs)


class History(Model):
    """`kgprof compare A B C ...`: more than two recordings of one workload, in the order in which
    they were given."""

    schema_version: int
    kgprof_version: str
    workload: str
    environment: Environment  # of the last recording
    recordings: tuple[ComparedSide, ...]
    metrics: tuple[MetricHistory, ...]
    # "torch 2.12 -> 2.13 at the third recording": times are not judged there
    environments_differ: tuple[str, ...] = ()
