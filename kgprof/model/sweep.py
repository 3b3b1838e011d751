"""A sweep: one strategy in every cell of a grid, what each of its processes measured, and what
follows from that; the correctness ladder: one program under one more stage of torch.compile at a
time, each held to float64; and each policy for a size that varies, measured over the same calls."""

from enum import StrEnum

import msgspec

from kgprof.model.compile_records import TraceRecord
from kgprof.model.evaluation import Metric, RunAgreement
from kgprof.model.findings import VerdictStatus
from kgprof.model.passes import AS_IS, EAGER, CompileStages, Exit, Outcome
from kgprof.model.recording import Environment, ShippedCache
from kgprof.model.structs import Duration, Model, Several, Skipped, Step, Tagged
from kgprof.model.times import Judged, Spread


class Rung(StrEnum):
    """In the order of the ladder; each adds one stage to what runs below it."""

    FLOAT64 = "float64"  # eager mode, inputs and parameters widened: the reference
    EAGER = "eager"
    CAPTURE = "capture"
    FUNCTIONALISATION = "functionalisation"
    DECOMPOSITION = "decomposition"
    CODE_GENERATION = "code generation"
    MODE = "mode"  # the mode or the backend that was asked for, where it is not Inductor's default


BACKEND_OF = {
    Rung.CAPTURE: "eager",
    Rung.FUNCTIONALISATION: "aot_eager",
    Rung.DECOMPOSITION: "aot_eager_decomp_partition",
}


class Reference(StrEnum):
    """What a tensor was held to."""

    FLOAT64 = "float64"
    EAGER = "eager"  # float64 could not run, or it computed something else


class TensorDifference(Model):
    """One tensor of one rung against its reference. Only finite elements count in the three largest
    differences, and in the relative ones only those that are no smaller than the absolute tolerance
    of the dtype."""

    name: str
    dtype: str
    elements: int
    differing: int  # beyond what is allowed
    reference: Reference
    max_abs: float
    max_rel: float
    max_ulp: int | None  # in the tensor's own dtype; None where it is no float of 16 bits or more
    eager_max_abs: float  # how far eager itself is from the reference
    nans: int
    infs: int
    reference_nans: int
    reference_infs: int
    worst: tuple[int, ...] = ()  # index of the element that exceeds what is allowed the most
    worst_value: str = ""  # texts, because JSON has no NaN
    worst_reference: str = ""
    why: str = ""  # another shape or dtype, or missing


class RungResult(Tagged, tag="rung"):
    """``agreement`` and ``metrics`` are a workload's own comparison with eager, where it has
    one."""

    differs: bool
    seconds: float  # of the process's steps, compilation included; of one sample
    compared: int  # tensors
    tensors: tuple[TensorDifference, ...] = ()  # the worst first
    agreement: RunAgreement | Skipped | None = None
    metrics: tuple[tuple[Metric, float], ...] = ()  # with eager's value
    note: str = ""


class Reproduction(Tagged):
    """What a script printed when it was run by itself in a fresh process."""

    differs: bool
    output: str


class Minified(Tagged, kw_only=False):
    """The smallest captured graph that still differs, saved as a script."""

    script: str  # its name, beside the sheet
    operators: tuple[str, ...]  # the calls that are left
    nodes_before: int
    attempts: int
    finished: bool  # False: time was up, and a smaller graph may exist
    checked: Reproduction | Skipped = msgspec.field(
        default_factory=lambda: Skipped("it was not run")
    )


class Ladder(Tagged, kw_only=False):
    """``first``: the lowest rung that differs. ``steps``: how many were taken; the last is
    compared."""

    strategy: str
    cell: str
    steps: int
    rungs: tuple[tuple[Rung, RungResult | Skipped], ...]
    first: Rung | None
    minified: Minified | Skipped


class SizePolicy(StrEnum):
    STATIC = "static"  # dynamic=False
    AUTOMATIC = "automatic"  # dynamic=None: the second size makes it dynamic
    DYNAMIC = "dynamic"  # dynamic=True
    MARKED = "marked"  # torch._dynamo.mark_dynamic
    BUCKETS = "buckets"  # padded to one of a few sizes, dynamic=False
    PADDED = "padded"  # padded to the largest, dynamic=False


class SizeCost(Model, kw_only=False):
    """One size under one policy. A call that compiles nothing is of ``steady``."""

    size: Several
    calls: Several  # in the sequence
    padded_to: Several
    steady: Spread | Skipped  # ms a call, padding and slicing included

    def __post_init__(self) -> None:
        time = self.steady
        if isinstance(time, Spread):
            for each in (time.minimum, time.p10, time.median, time.p90, time.maximum):
                msgspec.convert(each, Step)


class PolicyResult(Tagged, tag="size-policy"):
    graphs: int  # compiled over the whole sequence
    compile_s: float  # what the calls that compiled took beyond a steady one
    sizes: tuple[SizeCost, ...]
    # how the results of some size differ from eager's without padding; empty: they do not
    differs: str = ""

    @property
    def steady_ms(self) -> float | Skipped:
        """Of the whole sequence, from the medians."""
        medians = [(cost.calls, cost.steady) for cost in self.sizes]
        known = [calls * steady.median for calls, steady in medians if isinstance(steady, Spread)]
        return sum(known) if len(known) == len(medians) else Skipped("a size was not timed")

    @property
    def wasted(self) -> float:
        """Share of the computed rows that are padding."""
        computed = sum(cost.calls * cost.padded_to for cost in self.sizes)
        return 1 - sum(cost.calls * cost.size for cost in self.sizes) / computed


class Shapes(Tagged):
    """``sizes``: of the calls in their order, along ``dimension`` 0 of ``tensor``, an input of
    ``function``."""

    function: str
    tensor: str
    sizes: tuple[int, ...]
    collected: bool  # the program's own, not --sizes
    buckets: tuple[int, ...]
    policies: tuple[tuple[SizePolicy, PolicyResult | Skipped], ...]
    recommended: SizePolicy | None
    code: str  # the lines that do what is recommended


SWEEP_SCHEMA_VERSION = 1
SWEEP_EXECUTIONS = 10_000  # steps that a verdict is for, where nobody says how many there will be
SWEEP_MINUTES = 10.0
TURNS = 3  # processes of each cell, one after the other over all cells
COLD_STARTS = 3  # of the best cell and the runner-up
INDUCTOR = "inductor"


class Dynamic(StrEnum):
    AS_IS = "as-is"  # as the program's own call of torch.compile has it
    FALSE = "false"
    AUTO = "auto"
    TRUE = "true"


class Precision(StrEnum):
    AS_IS = "as-is"
    BF16 = "bf16"  # torch.autocast around the whole process
    TF32 = "tf32"  # torch.set_float32_matmul_precision("high")


TF32_LINE = 'torch.set_float32_matmul_precision("high")'
AUTOCAST_LINE = 'with torch.autocast("{}", dtype=torch.bfloat16):'


class Cell(Model, order=True, kw_only=False):
    """One way to run the workload. ``mode`` eager compiles nothing, as-is leaves the program's own
    settings."""

    mode: str
    backend: str = INDUCTOR
    dynamic: Dynamic = Dynamic.AS_IS
    precision: Precision = Precision.AS_IS
    size: tuple[str, ...] = ()  # further options of the workload

    @property
    def compiles(self) -> bool:
        return self.mode != EAGER

    @property
    def name(self) -> str:
        """ "reduce-overhead", "backend aot_eager, dynamic=true", "default, bf16, --batch 64"."""
        first = (
            self.mode
            if self.backend == INDUCTOR or not self.compiles
            else f"backend {self.backend}"
        )
        dynamic = f"dynamic={self.dynamic}" if self.dynamic is not Dynamic.AS_IS else ""
        precision = str(self.precision) if self.precision is not Precision.AS_IS else ""
        return ", ".join(filter(None, (first, dynamic, precision, " ".join(self.size))))

    @property
    def settings(self) -> str:
        """What torch.compile takes beside the function."""
        given = (
            {}
            if self.mode in (AS_IS, "default") or self.backend != INDUCTOR
            else {"mode": f'"{self.mode}"'}
        )
        given |= {"backend": f'"{self.backend}"'} if self.backend != INDUCTOR else {}
        dynamic = {Dynamic.FALSE: "False", Dynamic.TRUE: "True", Dynamic.AUTO: "None"}
        given |= {"dynamic": dynamic[self.dynamic]} if self.dynamic in dynamic else {}
        return "".join(f", {key}={value}" for key, value in given.items())

    def code(self, name: str, device: str) -> str:
        """The lines to write for it; ``name``: of the function or model that is compiled."""
        line = f"{name} = torch.compile({name}{self.settings})"
        if self.mode == AS_IS:
            line = "# keep the program's own torch.compile"
        elif not self.compiles:
            line = f"# leave {name} uncompiled"
        if self.precision is Precision.TF32:
            line = f"{TF32_LINE}\n{line}"
        if self.precision is Precision.BF16:
            line += f"\n{AUTOCAST_LINE.format(device)}  # around the calls of {name}"
        return line


class CellQuestion(Model, kw_only=False):
    """What one process of a cell is asked."""

    cell: Cell
    strategy: str
    # that the workload is prepared in: the cell's, or as-is where the strategy has no such mode
    mode: str
    device: str
    # with the listeners of COMPILE on during the calls before steady state, for the stages
    cold: bool
    steady: bool = True  # times steps too; not in a further cold start
    last: bool = False  # resets torch's compiler at the end, and times the first call after that


class CellTimes(Tagged, tag="cell times"):
    """What one process measured: calls before steady state by the wall clock, then steps with
    nothing but a clock."""

    # each call before steady state (``--warmup``), up to the end of the device's work
    start_s: tuple[Duration, ...]
    step_us: tuple[Step, ...]  # mean step of each group of ``--steps`` steps
    clock: str
    frames: int  # that Dynamo compiled by the end
    compiled_late: int = 0  # of those, during the groups: some samples hold compilation
    stages: CompileStages | Skipped = Skipped("only a cold process records the compiler")
    # after torch.compiler.reset()
    again_s: Duration | Skipped = Skipped("measured in the last process only")
    # most that the allocator reserved, graph pools too
    device_bytes: int | Skipped = Skipped("not a GPU run")
    # largest resident set, that of compiling included
    host_bytes: int | Skipped = Skipped("not measured")


class CellAnswer(Model, kw_only=False):
    """What the process of a cell writes, while it runs and at its end."""

    times: CellTimes
    spans: tuple[TraceRecord, ...] = ()  # of a cold one: what the stages are read from


class CellProcess(Model, kw_only=False):
    number: int  # in the order in which the cell's processes ran
    cold: bool  # the compilers' caches on disk were empty
    exit: Exit
    measured: CellTimes | Skipped
    log: str = ""  # its end, where it did not end well


class CellResult(Model):
    cell: Cell
    processes: tuple[CellProcess, ...] = ()
    not_run: str = ""  # why there is none, or why there are fewer than the others have

    def started(self, *, cold: bool) -> int:
        """How many processes did with cold caches, or with warm ones."""
        return sum(process.cold is cold for process in self.processes)

    def measured(self, *, cold: bool | None = None) -> tuple[CellTimes, ...]:
        """Of the processes that have times; ``cold``: of those that started so."""
        chosen = (each for each in self.processes if cold is None or each.cold is cold)
        return tuple(each.measured for each in chosen if isinstance(each.measured, CellTimes))

    @property
    def dead(self) -> bool:
        """It ran, and came to no times. (A script's cold process has a start alone.)"""
        failed = self.failed is not None or not self.measured()
        return bool(self.processes) and failed and not any(each.step_us for each in self.measured())

    @property
    def failed(self) -> Exit | None:
        """How the first process ended that did not end well."""
        return next(
            (each.exit for each in self.processes if each.exit.outcome is not Outcome.OK), None
        )


class SweepQuestion(Model):
    """What two sweeps must have in common, so that the cells of one can stand beside those of the
    other."""

    workload: str
    workload_args: tuple[str, ...]
    strategy: str
    device: str
    device_name: str
    cpu_count: int | Skipped
    torch: str
    seed: int
    steps: int
    warmup: int


class Estimate(Tagged, kw_only=False):
    """Made of several measured figures; ``low`` and ``high``: extremes, or of a break-even 95 % of
    predictions."""

    value: float
    low: float
    high: float
    unit: str


class Tier(StrEnum):
    """Thresholds of document S2: how many times as fast as eager, and after how many executions it
    has paid."""

    EXCELLENT = "excellent"  # above 5 times, within 50
    GOOD = "good"  # above 2 times, within 100
    MODERATE = "moderate"  # faster, within 500
    POOR = "poor"


class CellWorth(Model):
    """What a cell comes to, against eager and against the next best cell."""

    cell: Cell
    step: Spread | Skipped  # us; one sample a process
    # What the calls before steady state took beyond as many steady ones, seconds.
    cold: Spread | Skipped
    warm: Spread | Skipped  # caches on disk warm
    first_cold: Spread | Skipped  # the first call itself
    first_warm: Spread | Skipped
    again_s: float | Skipped
    stages: CompileStages | Skipped
    speedup: Estimate | Skipped
    # steps after which it has taken less time than eager, both from a cold start
    break_even: Estimate | Skipped
    break_even_warm: Estimate | Skipped
    next_best: Cell | None  # the fastest of the cells that start sooner
    break_even_next: Estimate | Skipped
    # seconds that 100 steps save over eager, the start paid; negative: a loss
    of_100: Estimate | Skipped
    returns: Estimate | Skipped  # (saved - paid) / paid after ``executions`` steps; 0 is break-even
    tier: Tier | Skipped
    total: Estimate | Skipped  # seconds of ``executions`` steps from a cold start
    device_bytes: int | Skipped
    host_bytes: int | Skipped
    verdict: Judged = Judged.UNDECIDED  # of its step against eager's


class SweepVerdict(Model, kw_only=False):
    status: VerdictStatus
    text: str
    trust: str  # how far to rely on it
    best: Cell | None
    runner_up: Cell | None
    code: str = ""


class Sweep(Model):
    """``sweep.json``. Everything from ``executions`` on follows from the cells, and is made anew by
    `kgprof advise`."""

    schema_version: int
    created_utc: str
    question: SweepQuestion
    environment: Environment
    cells: tuple[CellResult, ...]
    interrupted: bool
    command: tuple[str, ...]
    # of the best cell
    ladder: Ladder | Skipped = Skipped("the correctness ladder was not run")
    shapes: Shapes | Skipped | None = None  # None: nobody asked for --sizes
    shipped: ShippedCache | Skipped | None = None  # None: without the ladder it is not tried
    executions: int = SWEEP_EXECUTIONS
    worth: tuple[CellWorth, ...] = ()
    verdicts: tuple[SweepVerdict, ...] = ()  # one for each size
