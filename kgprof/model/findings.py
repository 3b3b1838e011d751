"""What the rules find, what each finding was measured to cost, and what is decided from them."""

from collections.abc import Sequence
from enum import StrEnum

from kgprof.model.passes import FailOn, PassName, RunKey
from kgprof.model.structs import Location, Model, Skipped, Tagged


class Level(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Topic(StrEnum):
    """What a rule is about."""

    COMPILATION = "compilation"
    SYNCS = "syncs"
    CUDA_GRAPHS = "CUDA graphs"
    TENSORS = "tensors"
    RESULTS = "results"
    SOURCES = "sources"  # whether those of one fact agree
    COVERAGE = "coverage"  # whether anything was measured
    TIME = "time"
    UNKNOWN = "unknown"  # of a rule that this version does not have


class Witness(StrEnum):
    """Something that a run has to have before a rule can be seen in it."""

    COMPILE = "COMPILE"
    # of COMPILE, or every call where none was told from another
    STEADY_CALLS = "calls after warm-up"
    # told apart where a function was recompiled: in a TORCH_TRACE directory none is
    CALLS = "calls"
    FRAME_HOOK = "frame hook"
    GRAPH_HOOK = "graph hook"
    COMPILED_CALLS = "compiled calls"
    CUDA_GRAPH_LOG = "cuda graph log"
    METADATA = "AOTAutograd"  # of no rule any more; reports of earlier versions name it
    GENERATED_CODE = "generated code"  # of Inductor
    TIMING = "TIMING"
    LOADER_CLOCK = "loader clock"  # around next() of DataLoaders, in TIMING of a script
    TRACE = "TRACE"  # with something that ran on a GPU
    OPERATORS = "operators"  # of the CPU, in TRACE
    LAUNCHES = "launches"  # calls of CUDA's runtime, in TRACE
    STEPS = "steps"  # marked in TRACE
    HOST_LINES = "host lines"  # sampled in TRACE, of a script on a GPU
    OWN_FILES = "own files"  # the text of the program's, beside TRACE
    TENSOR_CORES = "tensor cores"  # of a GPU whose compute capability TRACE names
    # the step, GPU or CPU: under the profiler alone a busy CPU may be its doing
    WHAT_LIMITS = "what limits"
    READS = "reads"  # watched in MEMORY
    HANDMADE_GRAPHS = "handmade graphs"  # watched in MEMORY, of a script alone
    TENSORS = "tensors"  # watched in MEMORY
    RESULTS = "results"  # compared with the baseline's or the reference's
    EVALUATION = "evaluation"
    EAGER_TIMES = "eager times"  # to weigh what compiling takes against
    END = "end"  # neither interrupted nor ended by the time limit
    CPU = "CPU"
    CUDA = "CUDA"


class CoverageStatus(StrEnum):
    """What came of looking for a rule in a run."""

    SEEN = "seen"
    NOT_SEEN = "not seen"
    NOT_LOOKED_FOR = "could not be seen"


class Coverage(Model, kw_only=False):
    """Rules that have one answer in one run. Each rule has one in each run."""

    run: RunKey
    rules: tuple[str, ...]  # their ids
    status: CoverageStatus
    looked_at: str = ""  # "COMPILE, 20 calls"; empty where ``missing`` says why nothing was
    missing: str = ""  # why they could not be seen; of seen ones, why there may be more


class CostKind(StrEnum):
    """What can make a step longer."""

    KERNEL = "kernel"  # the same launches take longer
    REPLACED = "replaced"  # other kernels run
    LAUNCHES = "launches"
    COPIES = "copies"
    HOST = "host"


class LimitKind(StrEnum):
    """What would have to become faster for the step to become shorter."""

    COMPUTE = "compute"
    MEMORY = "memory bandwidth"
    SMALL_KERNELS = "small kernels"  # too small to fill the GPU
    UNFUSED = "unfused kernels"  # of eager code, each of which reads and writes whole tensors
    LAUNCHES = "launches"
    LOADING = "loading of kernels"  # which their first launch does
    SYNC = "sync"
    CLOCK = "its own clock"  # waits so that the program can time itself
    INPUT = "input"
    COPIES = "copies from pageable memory"
    COMMUNICATION = "communication"
    HOST = "host code"
    UNKNOWN = "unknown"
    # Of a whole run:
    COMPILING = "compiling"  # for the first time
    RECOMPILING = "compiling again"
    RECORDING = "recording CUDA graphs"
    STEPS = "its steps"


class Rule(Model):
    """A diagnostic's promise, the id is never reused; and what the rest of kgprof has to know about
    its findings."""

    id: str
    name: str
    level: Level
    summary: str
    why: str
    example: str
    remedy: str
    topic: Topic
    seen_in: tuple[tuple[Witness, ...], ...]  # it can be seen in a run that has all of one of these
    # what of a step a finding can be the reason of; empty: it costs no time by itself
    can_cost: tuple[CostKind, ...]
    # near a threshold its findings come and go with the noise, so they fail no comparison
    judged_from_times: bool = False
    symptom_of: tuple[str, ...] = ()  # ids of rules whose findings can be the reason of it
    relieves: tuple[LimitKind, ...] = ()  # what limits a step that its fix makes shorter


def unknown_rule(name: str, level: Level) -> Rule:
    """Stands for a rule that this version has no text of: nothing is known but that something was
    found by it."""
    return Rule(
        id=name,
        name="unknown rule",
        level=level,
        summary="",
        why="",
        example="",
        remedy="",
        topic=Topic.UNKNOWN,
        seen_in=((),),
        can_cost=(),
    )


class PackageLine(Model):
    """A line of an installed package or of the standard library, as every machine names it."""

    # the distribution's name, "transformers"; "Python" for the standard library; empty: not known
    package: str
    version: str  # "4.57.1"; empty where the Recording does not hold it
    file: str  # below the package's own folder: "models/bert/modeling_bert.py"
    line: int  # 0: the whole file
    function: str = ""
    text: str = ""  # the line itself, where torch quotes it

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return " ".join(filter(None, (self.package, self.version, f"{self.file}{line}")))

    @property
    def words(self) -> str:
        return f"{self} ({self.function})" if self.function else str(self)


_OF_A_BACKEND = "Backend compiler exception"  # GB0219: the explanation alone names what raised


class TorchCause(Model, kw_only=False):
    """Why torch could not go on, in its own words."""

    kind: str  # "Failed to trace builtin operator"
    gb_ids: tuple[str, ...] = ()  # the root cause's first: "GB0059", "GB7000"
    explanation: str = ""
    hints: tuple[str, ...] = ()
    context: str = ""  # torch's developer debug context: "builtin print [...] False"
    operator: str = ""  # the operator or call, read from the context: "print", "Tensor.item"

    @property
    def gb_id(self) -> str:
        return self.gb_ids[0] if self.gb_ids else ""

    @property
    def identity(self) -> str:
        return self.gb_id or self.kind

    @property
    def words(self) -> str:
        if self.kind == _OF_A_BACKEND:
            raised = self.explanation.removesuffix(" Adding a graph break.").rstrip(".")
            return f"{self.kind} ({self.gb_id}): {raised}"
        # what a backend raised
        announced = f" {self.explanation}" if self.kind.endswith(":") else ""
        return f"{self.kind} ({self.gb_id})" if self.gb_id else f"{self.kind}{announced}"


class Folded(Model, kw_only=False):
    """How kgprof once told all that a line of the project leads to, as one finding: entries written
    then still hold."""

    gb_id: str  # of its first cause, or of the first one at which a frame fell back
    into_fallen: bool  # a frame fell back there, and breaks of other frames were told with it


class Refusal(Model, kw_only=False):
    """What torch refused to trace, and the way there from the project's line, which is the
    finding's location."""

    cause: TorchCause
    # from the project's line down to the library's, both left out
    chain: tuple[PackageLine, ...] = ()
    # torch's "from user code", outermost first, its innermost 40 lines
    stack: tuple[Location, ...] = ()
    folded: Folded | None = None
    intended: bool = False  # torch's own source breaks the graph here on purpose


class Reads(Model, kw_only=False):
    """How a line reads from the device, or waits for it, and how often after warm-up."""

    # "aten::_local_scalar_dense", "Tensor.cpu", "cuda.synchronize"; in compiled code "item", "cond"
    operator: str
    events: int  # in all of these steps together
    in_steps: int  # in which there was one
    steps: int  # that were watched after warm-up
    # from the project's line down to the library's, both left out
    chain: tuple[PackageLine, ...] = ()
    cause: str = ""  # "item", "truth-value", "mask-index": what makes it read
    is_dear: bool = False  # takes a large part of the time of all steps, many times in a few


class FindingCost(Tagged, tag="cost", kw_only=False):
    """What a finding was measured to cost, and where."""

    value: float
    # "us/step", "us/window" where no steps are marked in a trace, or "s" for what is paid once
    unit: str
    what: str  # "the host waited", "the device did nothing"
    measured_in: tuple[PassName, ...]
    samples: int
    # the smallest and the largest sample, where each is a cost
    extremes: tuple[float, float] | None = None

    @property
    def weight(self) -> tuple[bool, float]:
        """Larger is costlier: what each step pays weighs more than what is paid once."""
        return self.unit != "s", self.value


MEAN_STEP = "mean step"


class Saving(Tagged, kw_only=False):
    """An upper bound: a step would be at most so much shorter if the finding's cause were gone."""

    us_per_step: float
    how: str  # what the bound is made of
    measured_in: tuple[PassName, ...]
    # Or "window", the whole traced one, where no steps are marked in it; MEAN_STEP, which may be
    # far from the median one that a report gives; or "run", once in all.
    per: str = "step"


class Finding(Model):
    rule: str  # the rule's id
    level: Level
    message: str  # without the run, which stands beside it
    run: RunKey | None = None
    location: Location | None = None
    count: int = 1
    fingerprint: str = ""
    # other places that matter: the call that recompiled, the frame that fell back
    related: tuple[Location, ...] = ()
    detail: str = ""  # torch's own words, over several lines
    # where it happened in a package; ``location`` is then the way in
    library: PackageLine | None = None
    # of a graph break, a frame that fell back, a compilation that raised
    refusal: Refusal | None = None
    reads: Reads | None = None  # of a sync
    one_off: bool = (
        False  # a recompile after warm-up that happened once; for a flag: once for each change
    )
    accepted: str = ""  # who accepts it and why (check-graphs); empty: nobody does
    cost: FindingCost | Skipped = Skipped("no pass measures what this costs")
    saves: Saving | Skipped = Skipped("no measurement bounds what a fix would save")
    # attributes and functions of the program that it is about: "self.h", "step"
    names: tuple[str, ...] = ()
    fix: str = ""  # what to write here, as code; empty: the rule's remedy is all that is known
    tried: bool = False  # the fix, in this program, and it helped
    # in words what to do where no code is known to help; or why the program's owner has none: it
    # is then a note, which budgets count all the same
    no_fix: str = ""

    @property
    def made_by_torch(self) -> bool:
        """Whether torch's own source breaks the graph here on purpose."""
        return self.refusal is not None and self.refusal.intended

    @property
    def counts(self) -> bool:
        """Against a budget, a practice or a change. A note does not, unless only the want of a fix
        makes it one; what torch does on purpose never does."""
        return not self.made_by_torch and (self.level is not Level.NOTE or bool(self.no_fix))

    @property
    def alone(self) -> str:
        """The message where nothing stands beside it: with the run, unless a place says what it is
        about."""
        return (
            f"{self.run.slug}: {self.message}" if self.run and not self.location else self.message
        )


Findings = Sequence[Finding]


class Action(Model):
    """One thing to do next."""

    run: RunKey
    rule: str
    finding: str  # fingerprint of the finding that it mends
    text: str  # what happens now
    location: Location | None
    fix: str  # as code; empty: the rule's remedy
    tried: bool = False
    no_fix: str = ""  # of a finding whose owner has none
    saves: Saving | Skipped
    share: float | None  # of the step that ``saves`` bounds; None where one of the two is not known
    only_on_gpu: bool = False  # it would cost something on a GPU, and this run had none
    # further lines with a finding that the same fix, or one like it, mends
    also: tuple[Location, ...] = ()

    @property
    def lines(self) -> dict[str, list[int]]:
        """By file."""
        found: dict[str, list[int]] = {}
        for place in (self.location, *self.also):
            if place:
                found.setdefault(place.file, []).append(place.line)
        return found


class PracticeStatus(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    NOT_OBSERVED = "not observed"


class ChecklistItem(Model, kw_only=False):
    """One practice that torch.compile rewards, looked at on this program."""

    id: str  # "static-shapes"; never reused
    title: str
    status: PracticeStatus
    evidence: str  # what was seen, with its figures; or why nothing was
    findings: tuple[str, ...] = ()  # fingerprints of the findings that speak against it


class VerdictStatus(StrEnum):
    OK = "ok"
    ATTENTION = "attention"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


class BudgetStatus(StrEnum):
    """In the order in which they are shown."""

    EXCEEDED = "exceeded"
    WARNED = "warned"  # over a default limit that does not fail the gate yet
    NOT_OBSERVED = "not observed"
    HELD = "held"


class AcceptedStatus(StrEnum):
    USED = "used"
    UNUSED = "unused"
    EXPIRED = "expired"


class Verdict(Model):
    """The report's first lines: ``text`` answers in a sentence, and the three together are
    ``sentences``."""

    status: VerdictStatus
    lead: str = ""  # what makes the figures mean less than they seem to; it stands first
    text: str
    trust: str = ""  # how far to trust it, in a line
    reasons: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        return tuple(line for line in (self.lead, self.text, self.trust) if line)


class BudgetCheck(Model):
    """One budget of ``check-graphs`` on one run."""

    metric: str  # "graph-breaks"
    run: RunKey
    limit: float
    unit: str  # "sites", "events", "s", "syncs/step"
    observed: float | Skipped  # without what is accepted
    accepted: int  # findings of this metric that are accepted and so not counted
    # findings of this metric that torch makes on purpose and that are not counted
    made_by_torch: int = 0
    origin: str  # where the limit was written: "--max", "pyproject.toml", "default"
    status: BudgetStatus


class AcceptedFinding(Model, kw_only=False):
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

    @property
    def place(self) -> str:
        return " ".join(filter(None, (self.file, self.function, self.graph_break_id, self.library)))


class Gate(Model):
    """What ``check-graphs`` decided, and from what. The Profile's verdict and exit code are this
    gate's."""

    fail_on: FailOn
    backend: str  # what compiled: "inductor", "aot_eager", "eager"
    budgets: tuple[BudgetCheck, ...]
    accepted: tuple[AcceptedFinding, ...]
    failing: tuple[int, ...]  # indices into the Profile's findings: those that fail the gate
    notes: tuple[str, ...] = ()
