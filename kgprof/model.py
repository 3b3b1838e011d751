"""The vocabulary: what a Recording holds, and the Profile that every renderer reads.

Frozen msgspec Structs, no logic beyond sums and properties. Units stand in the names. A thing that was not measured
is ``Skipped(reason)``, never zero. msgspec tells the members of a union apart by a tag, so every Struct that can be
skipped carries one (``kind``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from kgprof.ceiling_records import Ceilings
from kgprof.compile_records import CompiledKernels, CompileRecords, KernelOrigins, Sources
from kgprof.sync_records import SyncRecords
from kgprof.tensor_records import TensorRecords

T = TypeVar("T")

RECORDING_SCHEMA_VERSION = 1  # 1: first form
PROFILE_SCHEMA_VERSION = 1  # 1: first form

OVERFLOW_TO_SAY = 0.10  # share of candidates: above it the metrics are said to stand on unknown results


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every Struct here."""


class Tagged(Model, frozen=True, kw_only=True, tag_field="kind"):
    """Base of the Structs that stand in a union with ``Skipped``; the tag is the class name in lower case."""


class Skipped(Tagged, frozen=True, kw_only=True, tag="skipped"):
    """Not measured, and why."""

    reason: str


# ---------------------------------------------------------------- what was asked for


class PassName(StrEnum):
    COMPILE = "compile"
    TIMING = "timing"
    TRACE = "trace"
    HOST = "host"
    STACK = "stack"  # torch.profiler with Python stacks; it and cProfile silence each other
    MEMORY = "memory"  # syncs, addresses, aliases, mutation, peak memory; in a second child, compiled under the probes
    KERNELS = "kernels"  # TRACE again, in that child, compiled with Inductor's C++ kernel profiling (CPU only)


class RunKey(Model, frozen=True, kw_only=True, order=True):
    """One strategy (what is computed differently) in one mode (how the same thing runs)."""

    strategy: str
    mode: str

    @property
    def slug(self) -> str:
        return f"{self.strategy}.{self.mode}"


class StrategyPlan(Model, frozen=True, kw_only=True):
    """A strategy that the workload offers, and the modes it can run in."""

    name: str
    modes: tuple[str, ...]
    summary: str = ""


class Options(Model, frozen=True, kw_only=True):
    """What the user asked of ``kgprof profile``; the only place where defaults live."""

    workload: str = "linkpred"
    workload_args: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()  # empty: the workload's own default
    modes: tuple[str, ...] = ()  # empty: the workload's own default
    device: str = "auto"
    steps: int = 20
    warmup: int = 3
    seed: int = 0
    timeout_s: float = 900.0
    evaluations: int = 3  # whole evaluations that TIMING aims at; a long one stops after two (see TIMING_BUDGET_S)
    rounds: int = 1  # processes in which TIMING is made, one after the other over all runs; not of a script
    passes: tuple[
        PassName, ...
    ] = ()  # empty: all of them; check-graphs asks for COMPILE, and MEMORY for a budget on it
    backend: str = ""  # what stands in for Inductor in every torch.compile; empty: nothing does
    max_steps: int | None = None  # of a script: the recording stops after so many, the program runs on
    duration_s: float | None = None  # of a script: likewise, at the first step that begins after so long

    def wants(self, name: PassName) -> bool:
        return not self.passes or name in self.passes

    @property
    def for_a_gate(self) -> bool:
        """Nothing but what a gate looks at was asked for; it judges for itself whether it has seen enough."""
        return bool(self.passes) and set(self.passes) <= {PassName.COMPILE, PassName.MEMORY}

    @property
    def untimed(self) -> bool:
        """No pass that gives times was asked for."""
        return bool(self.passes) and PassName.TIMING not in self.passes


class Alternative(Model, frozen=True, kw_only=True):
    """Two strategies of a workload that do the same work: one behind a read of its predicate, the other always."""

    guarded: str
    always: str


class TraceFile(Model, frozen=True, kw_only=True):
    """A Kineto trace that somebody else recorded, as `kgprof trace` took it in."""

    key: RunKey  # of the run that it became
    file: str
    size_bytes: int  # as it lay there, packed or not
    rank: int | None = None  # from its distributedInfo, else from its name
    world_size: int | None = None
    backend: str = ""  # of the process group: "nccl"
    against: bool = False  # --against: the others are held against this one
    notes: tuple[str, ...] = ()


class Plan(Model, frozen=True, kw_only=True):
    """What the PLAN child found: the workload as it stands and the machine it stands on."""

    workload: str
    strategies: tuple[StrategyPlan, ...]  # all that the workload offers
    runs: tuple[RunKey, ...]  # what will run, in order
    baseline: RunKey | None  # what speed-ups are relative to; None when no run is declared as one
    device: str  # "cpu" or "cuda"
    environment: Environment
    vector_isa_probe_s: float | Skipped  # Inductor compiles test files once per machine; never part of a compile time
    vector_isa_works: bool = False  # each instruction set of this CPU passed the probe, so the runs need not try them
    agreement: bool  # the workload can compare the results of its runs (an AGREEMENT child runs at the end)
    alternatives: tuple[Alternative, ...] = ()  # what the workload declares to be weighed
    trace_files: tuple[TraceFile, ...] = ()  # of `kgprof trace`, one a run; empty: kgprof ran the workload itself


class Environment(Model, frozen=True, kw_only=True):
    kgprof: str
    python: str
    torch: str
    triton: str | Skipped
    cuda: str | Skipped
    driver: str | Skipped
    device_name: str  # the GPU's name, or the CPU's on a CPU run
    cpu_name: str
    cpu_count: int | Skipped  # cores this process may use
    torch_threads: int | Skipped
    memory_bytes: int | Skipped
    platform: str
    compiler: str | Skipped  # the C++ compiler that Inductor would call
    git_commit: str | Skipped  # of the working directory
    git_dirty: bool | Skipped
    flags: dict[str, str]  # torch's and kgprof's environment variables that were set (TORCH_*, TORCHINDUCTOR_*, ...)
    source_root: str = ""  # git's top folder above the working directory, or that directory itself


# ---------------------------------------------------------------- what was recorded (one file a pass)


class Exit(Model, frozen=True, kw_only=True):
    """How a child ended.

    ``outcome``: ok, raised, exited (a script: sys.exit), timed-out, killed, interrupted; not started (of a round).
    """

    outcome: str
    message: str = ""  # the exception's last line, or the signal's name
    traceback: str = ""
    during: str = ""  # the pass that was running
    exit_code: int | None = None  # the child's own code, negative for a signal
    elapsed_s: float = 0.0

    @property
    def words(self) -> str:
        """The end of a sentence about the run: "was killed during TIMING: SIGKILL".

        Of a message over several lines (torch explains at length) the first; ``message`` holds the others.
        """
        how = {
            "timed-out": "timed out",
            "exited": "ended itself",
            "killed": "was killed",
            "interrupted": "was interrupted",
        }
        during = f" during {self.during.upper()}" if self.during else ""
        why = f": {self.message.strip().splitlines()[0]}" if self.message.strip() else ""
        return f"{how.get(self.outcome, self.outcome)}{during}{why}"


class CompileStages(Tagged, frozen=True, kw_only=True, tag="stages"):
    """Seconds of one compilation in each of six stages; they add up to its duration."""

    capture_s: float  # Dynamo: bytecode to FX graph, and the guards
    frontend_s: float  # AOTAutograd and the passes over the graph
    scheduling_s: float  # Inductor's lowering, partition and scheduling (fusion)
    code_generation_s: float  # C++ or Triton text
    machine_code_s: float  # waiting for g++ or Triton's compiler
    caching_s: float  # making cache keys, reading and loading what they lead to


class Compilation(Model, frozen=True, kw_only=True):
    """One compilation that Dynamo reported (``compilation_metrics`` record of torch.__trace)."""

    compile_id: str  # "0/1", "" when torch gave none
    function: str
    location: str  # file:line of the def
    duration_s: float | Skipped
    fail_reason: str = ""
    call: int | None = None  # the call of COMPILE in which it happened; -1 before the first
    operators: int | None = None  # calls in the captured graph, of functions, methods and modules alike
    stages: CompileStages | Skipped = Skipped(reason="this Recording holds no spans of the compiler")


class CompilePass(Tagged, frozen=True, kw_only=True, tag="compile"):
    """20 calls (``--steps``) on a cold cache under the structured-trace handler.

    Two clocks: the calls before ``steady_from``, and the first one always, are wall time up to the end of the
    device's work, because they hold the compilation. The later ones are on the clock of TIMING (CUDA events on a GPU,
    which do not wait for the device), so that they can be set against its steps.
    """

    call_us: tuple[float, ...]  # microseconds of each call
    steady_from: int  # index of the first call that counts as steady state (``--warmup``)
    compilations: tuple[Compilation, ...]
    capture_unavailable: tuple[str, ...] = ()  # "capture X unavailable: why"
    calls: int | None = (
        None  # of a script: how many steps there were, of which ``call_us`` has the first; None: as many
    )


class TimingPass(Tagged, frozen=True, kw_only=True, tag="timing"):
    """Nothing but a clock. ``step_us`` holds one tuple per evaluation (or one tuple of steps where there is none)."""

    clock: str  # "perf_counter" or "cuda events"
    step_us: tuple[tuple[float, ...], ...]
    evaluation_s: tuple[float, ...]  # wall time of each whole evaluation; empty for a workload that has none
    stopped_early: str = ""  # why fewer evaluations than asked for
    notes: tuple[str, ...] = ()  # what a reader of these samples must know (compilation among them, a slow first one)


class TimedRound(Tagged, frozen=True, kw_only=True, tag="round"):
    """TIMING once more, in a fresh process that finds the compilers' caches as this run's COMPILE left them.

    Before it as many calls as in COMPILE, and no instrument in any of them.
    """

    first_call_s: float  # wall time up to the end of the device's work, with what is compiled in a cache
    graphs_from_cache: int | Skipped  # of Inductor's, in this process, as torch counts them
    graphs_compiled: int | Skipped  # by Inductor, because no cache had them
    timing: TimingPass
    warm_up_s: tuple[float, ...] = ()  # likewise of each call before steady state (``--warmup``), the first among them


class RoundRecord(Model, frozen=True, kw_only=True):
    """A further round of ``--rounds``, and how its process ended; the first one is the run's own TIMING."""

    number: int  # from 2
    exit: Exit
    measured: TimedRound | Skipped


class TracePass(Tagged, frozen=True, kw_only=True, tag="trace"):
    """torch.profiler over ``len(step_us)`` steps; the trace lies beside it, gzipped."""

    step_us: tuple[float, ...]
    trace_file: str  # name inside the run's folder
    trace_bytes: int
    cpp_kernel_profile: bool  # Inductor's C++ kernels are visible by name
    cut: str = ""  # STACK: why there are fewer steps than were meant


class HostRow(Model, frozen=True, kw_only=True):
    function: str
    file: str
    line: int
    calls: int
    self_us: float
    cumulative_us: float


class HostPass(Tagged, frozen=True, kw_only=True, tag="host"):
    """cProfile over ``len(step_us)`` steps."""

    step_us: tuple[float, ...]
    rows: tuple[HostRow, ...]  # by self time, largest first
    rows_left_out: int = 0
    total_self_us: float = 0.0


class MemoryPeaks(Tagged, frozen=True, kw_only=True, tag="peaks"):
    """Peaks over the calls of MEMORY after warm-up, in bytes, and what was held before them."""

    allocated_bytes: int | Skipped  # CUDA's caching allocator; a CPU has no such count
    reserved_bytes: int | Skipped
    resident_bytes: int | Skipped  # of the whole process (VmHWM, reset before)
    allocated_before_bytes: int | Skipped
    resident_before_bytes: int | Skipped


class MemoryPass(Tagged, frozen=True, kw_only=True, tag="memory"):
    """Calls from a cold start under the probes: which reads, which addresses, how much memory.

    ``step_us`` are wall times up to the end of the device's work, under the probes: the price of watching, no times
    of the workload's.
    """

    step_us: tuple[float, ...]
    steady_from: int  # index of the first call that counts as steady state (``--warmup``)
    syncs: SyncRecords | Skipped
    tensors: TensorRecords | Skipped
    peaks: MemoryPeaks | Skipped
    sources: Sources = Sources()  # of the project files that the probes' stacks name
    capture_unavailable: tuple[str, ...] = ()  # "capture X unavailable: why"


class CapCounters(Model, frozen=True, kw_only=True):
    """Children (or facts, or rules) that each cap of the engine dropped over a whole evaluation."""

    atoms: int = 0  # children with more than A atoms
    children: int = 0  # children beyond the first S
    facts: int = 0  # facts beyond the fact fan-out that were not looked at
    rules: int = 0  # rules beyond the rule fan-out that were not looked at

    @property
    def total(self) -> int:
        return self.atoms + self.children + self.facts + self.rules


class RankMetrics(Model, frozen=True, kw_only=True):
    """Filtered ranking of one side ("head", "tail") or of both together, under one rule for ties."""

    side: str
    ties: str  # optimistic, realistic, pessimistic, expected
    queries: int  # ranks that were averaged
    mrr: float
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float


class Evaluation(Tagged, frozen=True, kw_only=True, tag="evaluation"):
    """One whole evaluation by link prediction: every candidate is in exactly one class."""

    candidates: int  # valid ones: proved + failed + depth_truncated + overflow + unfinished
    proved: int
    failed: int
    depth_truncated: int
    overflow: int  # unproved, and a cap dropped a child on the way: unknown
    unfinished: int
    invalid: int  # padding where fewer corruptions exist than were asked for; not a candidate
    deep: int  # proved candidates that needed more than two steps
    steps: int  # calls of the step function
    dropped: CapCounters
    nan_scores: int
    metrics: tuple[RankMetrics, ...]
    settings: dict[str, str]  # dataset, depth, batch size, caps, policy, dtype ... as the report shows them

    @property
    def finished(self) -> int:
        return self.candidates - self.unfinished

    @property
    def overflow_share(self) -> float:
        return self.overflow / self.candidates if self.candidates else 0.0


class RunAgreement(Tagged, frozen=True, kw_only=True, tag="agreement"):
    """How the result vector of one run compares with the baseline run's (all of it) and the reference's (a sample)."""

    verdict: str  # "equal", "near-ties" (equal but for them), "different"
    compared: int  # entries compared with the baseline run
    differing: int
    near_ties: int  # of these: the reference's path has a top-2 gap below the threshold
    reference_compared: int  # entries compared with the reference
    reference_differing: int
    reference_near_ties: int
    note: str = ""  # dtype, tolerance, threshold


class Agreement(Tagged, frozen=True, kw_only=True, tag="agreements"):
    """What the AGREEMENT child wrote: one verdict per run that left a result, and why any has none."""

    baseline: RunKey | None
    runs: tuple[tuple[RunKey, RunAgreement | Skipped], ...]


class ScriptRun(Model, frozen=True, kw_only=True):
    """What stands in a script's run for the calls of a workload: what was counted as a step, and by which choice."""

    step: str  # "an optimizer step", "a call of a compiled function", "a call of kgprof.step()"; empty: there was none
    steps: int
    counted: dict[str, int]  # how many there were of each of the three
    stopped: str = ""  # why the recording ended before the program did
    rank: int | None = None  # under torchrun
    notes: tuple[str, ...] = ()


class RunRecord(Model, frozen=True, kw_only=True):
    """Everything that one strategy x mode left in the Recording."""

    key: RunKey
    exit: Exit
    probe_exit: Exit | None  # child B's, where there was one
    compile: CompilePass | Skipped
    timing: TimingPass | Skipped
    trace: TracePass | Skipped
    host: HostPass | Skipped
    kernels: TracePass | Skipped
    stack: TracePass | Skipped = Skipped(reason="this Recording holds no STACK pass")
    evaluation: Evaluation | Skipped
    log: str  # what torch and the workload wrote, raw
    records: CompileRecords | Skipped = Skipped(reason="this Recording holds no records of the compiler")
    memory: MemoryPass | Skipped = Skipped(reason="this Recording holds no MEMORY pass")
    kernel_origins: KernelOrigins | Skipped = Skipped(reason="this Recording holds no provenance of kernels")
    compiled_kernels: CompiledKernels | Skipped = Skipped(reason="this Recording holds no compiled kernels")
    script: ScriptRun | None = None  # None: a workload with steps of its own
    holistic: Holistic | Skipped = Skipped(reason="HTA was not run on this trace")
    rounds: tuple[RoundRecord, ...] = ()  # further ones; empty with --rounds 1


class PrivateNames(Model, frozen=True, kw_only=True):
    """What a Profile leaves out by name; what is told by its shape alone (tokens, /home/NAME) needs no name here."""

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()  # home directories


class RecordingHeader(Model, frozen=True, kw_only=True):
    """``recording.json``: written first, so that a killed run still says what it was."""

    schema_version: int
    created_utc: str  # ISO 8601
    command: tuple[str, ...]
    options: Options
    plan: Plan
    interrupted: bool = False
    private: PrivateNames = PrivateNames()  # of the machine that it was made on


class GateBudget(Model, frozen=True, kw_only=True):
    """One limit that the gate was given; the fields are those of kgprof.gate.budgets.Budget."""

    metric: str
    limit: float
    scope: str
    origin: str


class GateEntry(Model, frozen=True, kw_only=True):
    """One accepted finding as its file had it; the fields are those of kgprof.gate.accepted.Entry."""

    rule: str
    file: str
    function: str
    gb: str
    reason: str
    owner: str
    expires: str


class GateSettings(Model, frozen=True, kw_only=True):
    """``gate.json``: what check-graphs held this Recording to, so that it can be judged again without its files."""

    fail_on: str
    backend: str
    budgets: tuple[GateBudget, ...]
    accepted: tuple[GateEntry, ...]
    accepted_path: str
    notes: tuple[str, ...] = ()


class Recording(Model, frozen=True, kw_only=True):
    """A Recording as read back from its folder (kgprof.record.store.load)."""

    folder: str
    header: RecordingHeader
    runs: tuple[RunRecord, ...]  # in the plan's order; a run that never started is there with an Exit that says so
    agreement: Agreement | Skipped
    gate: GateSettings | None = None  # None: not made by check-graphs
    ceilings: Ceilings | Skipped = Skipped(reason="this Recording holds no ceilings")
    accepted: tuple[GateEntry, ...] = ()  # what the project accepted when `kgprof profile` made it; a gate has its own


# ---------------------------------------------------------------- what is said (the Profile)


class Level(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Rule(Model, frozen=True, kw_only=True):
    """A diagnostic's promise: the id is never reused."""

    id: str
    name: str
    level: Level
    summary: str
    why: str
    example: str
    remedy: str


class Location(Model, frozen=True, kw_only=True):
    file: str
    line: int
    function: str = ""
    text: str = ""  # the line itself, where it could be read


class FindingCost(Tagged, frozen=True, kw_only=True, tag="cost"):
    """What a finding was measured to cost, and where."""

    value: float
    unit: str  # "us/step", or "s" for what is paid once
    what: str  # "the host waited", "the device did nothing"
    measured_in: tuple[PassName, ...]
    samples: int

    @property
    def weight(self) -> tuple[bool, float]:
        """Larger is costlier: what each step pays weighs more than what is paid once."""
        return self.unit == "us/step", self.value


class Finding(Model, frozen=True, kw_only=True):
    rule: str  # the rule's id
    level: Level
    message: str
    run: RunKey | None = None
    location: Location | None = None
    count: int = 1
    fingerprint: str = ""
    related: tuple[Location, ...] = ()  # other places that matter: the call that recompiled, the frame that fell back
    detail: str = ""  # torch's own words, over several lines
    accepted: str = ""  # who accepts it and why (check-graphs); empty: nobody does
    cost: FindingCost | Skipped = Skipped(reason="no pass measures what this costs")


class Spread(Tagged, frozen=True, kw_only=True, tag="spread"):
    """A measured quantity: median and spread of ``samples`` values from one pass."""

    median: float
    p10: float
    p90: float
    minimum: float
    maximum: float
    samples: int
    unit: str  # "us", "s", "ms/candidate"
    measured_in: PassName


class Rounds(Tagged, frozen=True, kw_only=True, tag="rounds"):
    """TIMING in several fresh processes: of each that has one its median, in the order of the rounds.

    The samples of one process hang together, these do not: intervals are taken over them. The first round is the one
    of RunReport.step; what it compiled still counts its runs for COMPILE, 0.1 to 0.2 us a graph, and that of the
    others does not. ``lost`` says which have no figure, and why.
    """

    asked: int  # --rounds
    numbers: tuple[int, ...]  # of the rounds that were timed, from 1
    step_us: tuple[float, ...]  # one each
    evaluation_s: tuple[float, ...]  # one each; empty for a workload that has no whole evaluation
    warm_first_call_s: tuple[float, ...]  # of the rounds from 2 on: the first one's cache was cold
    step: Spread | Skipped  # over ``step_us``
    evaluation_time: Spread | Skipped  # over ``evaluation_s``
    ms_per_candidate: Spread | Skipped  # the same over the candidates of round 1's evaluation
    warm_first_call: Spread | Skipped  # over ``warm_first_call_s``
    graphs_from_cache: tuple[int | Skipped, ...] = ()  # as warm_first_call_s
    graphs_compiled: tuple[int | Skipped, ...] = ()
    lost: tuple[str, ...] = ()  # "round 3 was killed during TIMING: SIGKILL"


class Speedup(Tagged, frozen=True, kw_only=True, tag="speedup"):
    """``baseline's median / this run's median`` of the quantity ``basis`` names."""

    ratio: float
    low: float | Skipped  # evaluations: baseline's minimum over this run's maximum; steps: p10 over p90
    high: float | Skipped  # both skipped where a side was measured once
    basis: str  # "whole evaluation" or "step"


class KernelKind(StrEnum):
    GEMM = "gemm"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    NORMALISATION = "normalisation"
    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    INDEX = "index"  # gather, scatter, index, selection by mask
    SORT = "sort"  # and scans
    COPY = "copy"  # and fills
    COMMUNICATION = "communication"
    FRAMEWORK = "framework"  # CPU run: Dynamo, AOTAutograd and wrapper frames' own time, views, allocation
    OTHER = "other"


class KernelRow(Model, frozen=True, kw_only=True):
    name: str
    kind: KernelKind
    generator: str  # "aten", "triton", "cpp", "library", "memcpy", "memset", "framework"
    count: int
    total_us: float
    share: float  # of the sum over all kernels, 0..1
    min_us: float
    median_us: float
    max_us: float
    ops: tuple[str, ...] = ()  # what Inductor fused into it, read from its name
    lines: tuple[Location, ...] = ()  # whose operations it computes, as Inductor says
    lines_us: float = 0.0  # of ``total_us``, what is known to come from them
    rule: str = ""  # by which it is of its kind


class KindOverride(Model, frozen=True, kw_only=True):
    """A rule of the project's own: kernels in whose name ``pattern`` is found are of this kind."""

    pattern: str
    kind: KernelKind
    origin: str  # the name of the file that it stands in
    kernels: int = 0  # rows of this Profile that it decided


class KindTotal(Model, frozen=True, kw_only=True):
    kind: KernelKind
    count: int
    total_us: float


class HostSpan(Model, frozen=True, kw_only=True):
    name: str  # of the innermost span in the trace
    total_us: float


class DeviceIdle(Tagged, frozen=True, kw_only=True, tag="deviceidle"):
    """The part of the window in which the device did nothing. ``total_us`` is the sum of the four causes."""

    total_us: float
    host_us: float  # the host had not yet asked for what came next
    launch_us: float  # it had, and the launch was on its way
    unknown_us: float  # the trace does not hold the call that launched what came next
    edges_us: float  # before the first and after the last device work of the window
    gaps: int
    host_spans: tuple[HostSpan, ...]  # what the host did meanwhile: they add up to ``host_us``


class SpanTotal(Model, frozen=True, kw_only=True):
    """Device time that was launched inside a span of the host's."""

    span: str
    count: int
    total_us: float


class Ceiling(Model, frozen=True, kw_only=True):
    """What the card was measured to do at most, in ``unit``; the median is what kernels are held against."""

    operation: str  # "copy" or "matmul"
    dtype: str  # of the matmul
    unit: str  # "bytes/s" or "FLOP/s"
    median: float
    minimum: float
    maximum: float
    samples: int
    how: str


class KernelLaunches(Model, frozen=True, kw_only=True):
    """All launches of one kernel that were alike: the same grid and block, registers, bytes and operations.

    Rates are of the median launch.
    """

    name: str
    generator: str  # as KernelRow.generator
    count: int
    total_us: float
    share: float  # of the sum over all device events, 0..1
    median_us: float
    grid: tuple[int, ...] | Skipped
    block: tuple[int, ...] | Skipped
    registers: int | Skipped  # of each thread
    shared_bytes: int | Skipped  # of each block
    blocks_per_sm: float | Skipped
    warps: int | Skipped  # of each block
    occupancy_percent: float | Skipped  # CUPTI's estimate, from the launch's shape and not from counters
    spills: int | Skipped
    stages: int | Skipped
    bytes_moved: int | Skipped  # of one launch, as KernelWork.bytes_moved
    flops: int | Skipped
    bytes_per_s: float | Skipped
    flops_per_s: float | Skipped
    bound: str | Skipped  # "memory-bound", "compute-bound", "latency-bound", "above the ceiling"
    of_ceiling: float | Skipped  # the ideal time over the median launch; the ideal is what the ceiling allows


class BoundTotal(Model, frozen=True, kw_only=True):
    what: str  # KernelLaunches.bound, or why there is none
    total_us: float


class Roofline(Tagged, frozen=True, kw_only=True, tag="roofline"):
    """Every kernel held against the card's ceilings; the largest rows, and how many are not here."""

    rule: str  # how ``bound`` is decided, with its thresholds
    ceilings: tuple[Ceiling, ...]  # none: see ``without``
    without: str  # why there are no ceilings; empty where there are
    rows: tuple[KernelLaunches, ...]
    rows_left_out: int
    left_out_us: float
    # Of all rows, also those left out; largest first. Both together are the whole of the device's time.
    placed: tuple[BoundTotal, ...]  # by verdict
    unplaced: tuple[BoundTotal, ...]  # by reason

    @property
    def placed_us(self) -> float:
        return sum(total.total_us for total in self.placed)


class LaneBlock(Model, frozen=True, kw_only=True):
    """One rectangle of a lane: an event's part of the step, or that of small neighbours, pushed together."""

    name: str  # of the event (of an idle stretch: of the operator that ended it); of the longest one of several
    kind: str  # a KernelKind; host: region, span, launch, wait, call; idle: host, launch, unknown, edge
    start_us: float  # after the step's start
    duration_us: float  # of all its events together
    events: int = 1


class Lane(Model, frozen=True, kw_only=True):
    """What one thread, stream or device did in a step. The blocks are disjoint and add up to ``busy_us``."""

    owner: str  # "thread 7", "stream 7", "device"
    content: str  # spans, regions, operators, calls; kernels, copies; idle
    busy_us: float
    covered: int  # device events without a block: others of the stream ran all the while
    blocks: tuple[LaneBlock, ...]


class StepTimeline(Tagged, frozen=True, kw_only=True, tag="steptimeline"):
    """The median step of the traced ones, by its duration on the host, and what the device still did for it then."""

    name: str  # the trace's: "ProfilerStep#8"
    number: int  # from 1, in the order of the trace
    steps: int
    duration_us: float  # on the host
    window_us: float  # from the step's start; what lanes hold is cut at its end
    lanes: tuple[Lane, ...]
    lanes_left_out: int  # those that did least
    left_out_us: float  # what they did
    merged_blocks: int
    merged_events: int  # in those
    merged_below_us: float  # only events shorter than this were merged, and only within a stretch of this length
    from_other_steps: int  # device events in the window that another step launched, or no call that the trace holds
    after_the_window: int  # device events that the step launched and that began after it


class StepPart(Model, frozen=True, kw_only=True):
    """Microseconds a step, by step."""

    name: str
    mean_us: float
    median_us: float
    minimum_us: float
    maximum_us: float
    calls: float | None  # events a step; None: a remainder, which no event stands for


class HostTime(Tagged, frozen=True, kw_only=True, tag="hosttime"):
    """The steps on the thread that takes them, each moment by the innermost event; the means add up to ``mean_us``."""

    steps: int
    mean_us: float  # a step's duration
    parts: tuple[StepPart, ...]  # the last one is what no event of the trace names
    other_threads_us: float  # of that one, a step: meanwhile another thread was in an operator or a call


class LaunchQueue(Tagged, frozen=True, kw_only=True, tag="launchqueue"):
    """From the launch to the work, by correlation ids.

    A delay is that of a launch call: from its return to the start of the first thing it put on the device. Depth: how
    many operations had been launched (their call had begun) and had not begun; those of a CUDA graph come all at once.
    """

    calls: int
    median_us: float
    p10_us: float
    p90_us: float
    maximum_us: float
    before_return: int  # calls whose work began before they returned; their delay counts as 0
    mean_depth: float  # over the window's time
    maximum_depth: int
    empty_share: float  # of the window: nothing was waiting, 0..1


class KernelBreakdown(Tagged, frozen=True, kw_only=True, tag="kernels"):
    """Where the time of the traced window went. Sums: ``kinds`` and ``rows`` both add up to ``total_us``."""

    device: str  # "cpu": operators' self time; "cuda": kernel, memcpy and memset durations
    measured_in: PassName
    steps: int
    window_us: float  # wall time of the window
    busy_us: float  # union of the intervals: window - busy = idle
    idle_us: float  # no operator (CPU) or nothing on the device (CUDA)
    total_us: float  # sum over kernels; above busy_us where they overlap
    launches: int | Skipped  # CUDA: launch calls on the host, of any launch API
    kinds: tuple[KindTotal, ...]
    rows: tuple[KernelRow, ...]  # every kernel, largest first
    fused_kinds: tuple[KernelKind, ...] = ()  # kinds of the operators inside generated kernels, as their names say
    graph_launches: int | Skipped = Skipped(reason="not counted")  # CUDA: of ``launches``, those of whole CUDA graphs
    lines_us: float | Skipped = Skipped(reason="nothing was recorded about the kernels' source lines")
    idle: DeviceIdle | Skipped = Skipped(reason="a CPU run has no device to wait")
    # CUDA: ``total_us`` by where it was launched, each with a row for what was launched in none; empty on a CPU.
    by_step: tuple[SpanTotal, ...] = ()
    by_region: tuple[SpanTotal, ...] = ()
    by_span: tuple[SpanTotal, ...] = ()
    queue: LaunchQueue | Skipped = Skipped(reason="a CPU run launches no device kernels")
    timeline: StepTimeline | Skipped = Skipped(reason="the trace was not asked for it")
    host_time: HostTime | Skipped = Skipped(reason="the trace was not asked for it")
    communication: Communication | Skipped = Skipped(reason="on a CPU, work and waiting for other ranks look alike")
    warnings: tuple[str, ...] = ()
    roofline: Roofline | Skipped = Skipped(reason="a CPU run launches no device kernels")
    input_copies: InputCopies | Skipped = Skipped(reason="a CPU run replays no CUDA graphs")


class InputCopies(Tagged, frozen=True, kw_only=True, tag="inputcopies"):
    """Copies on the device, launched before the replay of a CUDA graph, of inputs that do not stay where it reads."""

    replays: int  # graph launches in the trace
    count: int
    total_us: float
    share: float  # of the sum over all device events, 0..1


class Communication(Tagged, frozen=True, kw_only=True, tag="communication"):
    """Collectives on the device, in the whole window. ``exposed_us`` is what no other device work ran beside."""

    count: int
    total_us: float  # sum of their durations; a rank that comes early waits inside them
    busy_us: float  # of the union of their intervals
    exposed_us: float


class RankLoad(Model, frozen=True, kw_only=True):
    """One rank's device in a step, in microseconds; busy + idle = step, busy = compute + exposed communication."""

    run: RunKey
    rank: int
    steps: int
    step_us: float
    busy_us: float
    idle_us: float
    compute_us: float  # covered by a kernel, copy or fill that is no collective
    communication_us: float  # covered by a collective
    exposed_us: float  # covered by collectives alone


class RankSpread(Model, frozen=True, kw_only=True):
    """One quantity of RankLoad over all ranks."""

    quantity: str
    median_us: float
    max_us: float
    ratio: float | Skipped  # largest over median
    run: RunKey  # of the largest


class RankBalance(Model, frozen=True, kw_only=True):
    """The ranks of one job beside each other. ``straggler``: in words, or why none is named."""

    ranks: tuple[RankLoad, ...]
    spreads: tuple[RankSpread, ...] = ()
    straggler: RunKey | None = None
    text: str
    left_out: tuple[str, ...] = ()  # runs that are not among ``ranks``, and why
    hta: RanksByHolistic | Skipped = Skipped(reason="HTA was not asked about these ranks")


class RanksByHolistic(Tagged, frozen=True, kw_only=True, tag="ranksbyholistic"):
    """What HTA says of the ranks, beside ours; of the whole trace of each. It is asked about one trace at a time."""

    figures: tuple[HolisticFigure, ...]  # "rank 0, device computing"
    calls: tuple[HolisticCall, ...]  # those that are about several ranks


class Change(Model, frozen=True, kw_only=True):
    """One row of a TraceDifference, per step. ``status``: both, new (only the later one has it), gone."""

    name: str
    kind: KernelKind | None  # of a kernel
    status: str
    before_us: float
    after_us: float
    delta_us: float  # after less before
    before_count: float | None  # None: a stretch of time, which is not counted
    after_count: float | None


class TraceDifference(Model, frozen=True, kw_only=True):
    """``run``'s trace less that of ``against``, per step. ``kinds`` and ``kernels`` add up to ``total``.

    ``spans`` and ``regions`` do as well on a GPU and are empty on a CPU, whose operators are in no span.
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


class HolisticCall(Model, frozen=True, kw_only=True):
    """One call of HTA's. ``outcome``: ok, empty, raised, not called."""

    name: str
    outcome: str
    reason: str = ""


class HolisticIdle(Model, frozen=True, kw_only=True):
    stream: int
    cause: str  # HTA's word: host_wait, kernel_wait, other
    total_us: float


class HolisticRank(Model, frozen=True, kw_only=True):
    """What HTA says of one trace; empty where it said nothing."""

    rank: int
    kernels: dict[str, float]  # microseconds by name
    window_us: float | Skipped  # from the first device event's start to the last one's end
    idle_us: float | Skipped
    compute_us: float | Skipped  # computing, overlapped or not
    idle_causes: tuple[HolisticIdle, ...]
    queue_length: dict[str, float]  # the longest, by stream
    bandwidth_gb_per_s: dict[str, float]  # mean, by kind of copy
    overlap_percent: float | Skipped  # of communication, with computation


class Holistic(Tagged, frozen=True, kw_only=True, tag="holistic"):
    """HolisticTraceAnalysis' answer, from the process that ran it once."""

    versions: dict[str, str]
    calls: tuple[HolisticCall, ...]
    ranks: tuple[HolisticRank, ...]


class HolisticFigure(Model, frozen=True, kw_only=True):
    """One figure of a trace, ours and HTA's."""

    name: str
    unit: str  # "us", "operations", "%", "GB/s"
    ours: float | Skipped
    hta: float | Skipped
    difference_percent: float | Skipped  # HTA's less ours, of ours
    differs: bool  # both are there, and differ by more than the check's tolerance
    note: str = ""  # what it is


class HolisticCheck(Tagged, frozen=True, kw_only=True, tag="holisticcheck"):
    """HTA's figures of one trace beside ours."""

    versions: dict[str, str]
    calls: tuple[HolisticCall, ...]  # every one that was thought of, also those that were not made, and why
    tolerance_percent: float
    figures: tuple[HolisticFigure, ...]  # of the whole trace
    kernels: int  # how many names were compared
    kernels_differing: int
    differing: tuple[HolisticFigure, ...]  # the largest of those, by name


class StackFrame(Model, frozen=True, kw_only=True, array_like=True):
    """What a node of a FlameGraph is: a function, an operator, a span.

    ``kind``: python, torch (Python too, torch's own), generated (Inductor's), builtin, module, operator, region, span,
    call, profiler, pruned, step.
    """

    name: int  # index into ``names``
    file: int  # likewise; names[0] is empty: it has none
    line: int  # of the def; 0: none
    kind: str


class StackFunction(Model, frozen=True, kw_only=True):
    """One frame over the whole tree, before anything was pruned."""

    frame: int
    self_ns: int  # over all steps
    total_ns: int  # a recursion counts once
    calls: int


class FlameGraph(Tagged, frozen=True, kw_only=True, tag="flamegraph"):
    """The host's stacks in the steps of STACK, on the thread that takes them; parents stand before their children.

    Node 0 is the step. Nanoseconds and calls are over all ``steps`` together, so that they are whole numbers and add
    up: the sum over ``self_ns`` is that of the steps' durations. What took less than ``pruned_below`` of it stands in
    one node "(other)" under its parent, whose calls are those of what it stands for.
    """

    measured_in: PassName
    steps: int
    per: str = "step"  # "window" where the trace marks no steps
    names: tuple[str, ...]
    frames: tuple[StackFrame, ...]
    parent: tuple[int, ...]  # of each node; -1 of the first
    frame: tuple[int, ...]  # index into ``frames``
    self_ns: tuple[int, ...]
    calls: tuple[int, ...]
    pruned_below: float  # share of the steps' time, 0..1
    pruned_nodes: int
    pruned_ns: int  # what all "(other)" stand for
    top: tuple[StackFunction, ...]  # by self time, largest first
    functions: int  # how many frames there are in all, of which ``top`` has the first
    other_threads_ns: int = 0  # in which another thread was in a Python function or an operator
    notes: tuple[str, ...] = ()

    @property
    def total_ns(self) -> tuple[int, ...]:
        """Of each node, with all below it."""
        totals = list(self.self_ns)
        for node in range(len(totals) - 1, 0, -1):
            totals[self.parent[node]] += totals[node]
        return tuple(totals)


class HostBreakdown(Tagged, frozen=True, kw_only=True, tag="hostfunctions"):
    steps: int
    total_self_us: float
    rows: tuple[HostRow, ...]
    rows_left_out: int


class RecompileEntry(Model, frozen=True, kw_only=True):
    """A compilation that was made because every compiled entry of the function had been rejected.

    ``refused``: torch's limit was reached, so that it made none and the call ran in eager.
    """

    compile_id: str  # "0/1"; empty where torch refused
    location: Location | None  # the function's def; for a library's the project's line that leads there
    call: int | None  # of COMPILE; None: calls were not told apart
    steady: bool  # after the warm-up calls
    reason: str  # of the newest entry, in our words: "size of x, dimension 0: expected 8, got 9"
    words: str  # the same in torch's
    duration_s: float | Skipped
    call_site: Location | None = None
    refused: bool = False


class CompileSummary(Tagged, frozen=True, kw_only=True, tag="compilesummary"):
    first_call_s: float | Skipped  # wall time of the first call, cold cache
    steady: Spread | Skipped  # calls after warm-up in the COMPILE pass
    compilations: tuple[Compilation, ...]
    capture_unavailable: tuple[str, ...]
    recompiles: tuple[RecompileEntry, ...] | Skipped = Skipped(
        reason="this Recording holds no records of the compiler"
    )  # in the order of the calls


class MemorySummary(Tagged, frozen=True, kw_only=True, tag="memorysummary"):
    """What one run reads back, and how much memory it takes; see MemoryPeaks for where each figure comes from."""

    steps: int  # calls after warm-up that were watched
    peaks: MemoryPeaks | Skipped
    over_eager_bytes: int | Skipped  # this run's peak less that of the same strategy in mode eager
    over_eager_of: str = ""  # "allocated" or "resident": which peak that is
    syncs_per_step: float | Skipped  # KGP201 and 202, mean over the calls after warm-up
    reads: dict[str, float] = {}  # the same by the finding's fingerprint; empty where it is Skipped
    warm_up_reads: tuple[Location, ...] = ()  # lines that read in warm-up and never after it: in no count, no finding


class ObserverCost(Model, frozen=True, kw_only=True):
    """A pass's own step time over TIMING's: what watching cost."""

    observer: PassName
    ratio: float | Skipped
    samples: int


class LogExcerpt(Model, frozen=True, kw_only=True):
    text: str
    left_out_bytes: int


class BreakEven(Tagged, frozen=True, kw_only=True, tag="breakeven"):
    """From when on compiling has paid for itself."""

    steps: float
    candidates: float | Skipped  # of the evaluation, where it counts them
    after_s: float  # so many compiled steps (or candidates) take


class Economics(Tagged, frozen=True, kw_only=True, tag="economics"):
    """One compiled run against the same strategy in mode eager.

    ``cold_s``, ``warm_s`` and ``eager_s``: what the calls before steady state took beyond as many steady ones.
    ``verdict``: pays, level, never, not observed.
    """

    run: RunKey
    eager: RunKey
    cold_s: float | Skipped  # COMPILE, caches cold
    warm_s: Spread | Skipped  # the further rounds of TIMING, caches warm
    eager_s: float | Skipped  # COMPILE of the eager run: what starting costs without compiling
    per: str  # what the times are of: "step", or "candidate" where both runs finished theirs
    compiled_time: Spread | Skipped  # us a step, or ms a candidate
    eager_time: Spread | Skipped
    rounds: int  # over which the two spreads are; 1: over the samples of one process each
    saved_us: float | Skipped  # by each step or candidate; negative: it takes longer
    cold: BreakEven | Skipped
    warm: BreakEven | Skipped
    verdict: str
    text: str  # the same in a sentence, with the figures


class RunReport(Model, frozen=True, kw_only=True):
    """One strategy x mode, as every renderer shows it."""

    key: RunKey
    is_baseline: bool
    exit: Exit
    probe_exit: Exit | None = None  # of the second process, the one of MEMORY and KERNELS, where there was one
    step: Spread | Skipped
    evaluation_time: Spread | Skipped  # seconds per whole evaluation
    ms_per_candidate: Spread | Skipped
    speedup: Speedup | Skipped
    evaluation: Evaluation | Skipped
    agreement: RunAgreement | Skipped
    compared_with: RunKey | None = None  # whose results these were held against; None: no other run's
    compile: CompileSummary | Skipped
    kernels: KernelBreakdown | Skipped
    host: HostBreakdown | Skipped
    observers: tuple[ObserverCost, ...]
    log: LogExcerpt
    memory: MemorySummary | Skipped = Skipped(reason="this Recording holds no MEMORY pass")
    notes: tuple[str, ...] = ()  # what a reader of its times must know, in the recorder's words
    script: ScriptRun | None = None  # None: a workload with steps of its own
    records_lacking: str = ""  # why the compiler's records are not whole, so that what is not in them proves nothing
    holistic: HolisticCheck | Skipped = Skipped(reason="HTA was not run on this trace")
    flame: FlameGraph | Skipped = Skipped(reason="this Recording holds no STACK pass")
    rounds: Rounds | Skipped = Skipped(reason="TIMING was made in one process")
    economics: Economics | Skipped = Skipped(reason="nothing was compiled in this run, or nothing was timed")


class Verdict(Model, frozen=True, kw_only=True):
    """The report's first line. ``status``: ok, attention, failed, inconclusive."""

    status: str
    text: str
    reasons: tuple[str, ...] = ()


class BudgetCheck(Model, frozen=True, kw_only=True):
    """One budget of ``check-graphs`` on one run. ``status``: held, exceeded, not observed."""

    metric: str  # "graph-breaks"
    run: RunKey
    limit: float
    unit: str  # "sites", "events", "s", "reads/step"
    observed: float | Skipped  # without what is accepted
    accepted: int  # findings of this metric that are accepted and so not counted
    origin: str  # where the limit was written: "--max", "pyproject.toml", "default"
    status: str


class AcceptedFinding(Model, frozen=True, kw_only=True):
    """One entry of the file of accepted findings. ``status``: used, unused, expired."""

    rule: str
    file: str
    function: str
    graph_break_id: str  # "GB0059"; empty: any
    reason: str
    owner: str
    expires: str  # ISO date, the last day on which it holds
    status: str
    findings: int  # how many it matches


class Gate(Model, frozen=True, kw_only=True):
    """What ``check-graphs`` decided, and from what. The Profile's verdict and exit code are this gate's."""

    fail_on: str  # error, warning, never
    backend: str  # what compiled: "inductor", "aot_eager", "eager"
    budgets: tuple[BudgetCheck, ...]
    accepted: tuple[AcceptedFinding, ...]
    failing: tuple[int, ...]  # indices into the Profile's findings: those that fail the gate
    notes: tuple[str, ...] = ()


class ChecklistItem(Model, frozen=True, kw_only=True):
    """One practice that torch.compile rewards, looked at on this program. ``status``: pass, fail, not observed."""

    id: str  # "static-shapes"; never reused
    title: str
    status: str
    evidence: str  # what was seen, with its figures; or why nothing was
    findings: tuple[str, ...] = ()  # fingerprints of the findings that speak against it


class TradeOff(Model, frozen=True, kw_only=True):
    """Work behind a read of its predicate (``guarded``) against the same work done in every step (``always``).

    ``verdict``: keep the read, remove it, inconclusive, not observed.
    """

    guarded: RunKey
    always: RunKey
    location: Location | None  # the line that reads
    syncs_per_step: float | Skipped  # that the guarded one has more
    sync_us: float | Skipped  # what they cost in a step: the time the host waited
    saved_us: float | Skipped  # what the guarded one saves, before that cost; negative: it takes more
    saved_per: str = "step"  # what ``saved_us`` is of; "evaluation": a step of the two is not the same work
    net: Spread | Skipped  # the quantity that decides, of the guarded run
    net_always: Spread | Skipped  # and of the other
    verdict: str
    text: str  # the same in a sentence, with the figures


# ---------------------------------------------------------------- two Profiles beside each other (kgprof compare)


class ComparedSide(Model, frozen=True, kw_only=True):
    """What one side of a comparison was, so that a reader can find it again."""

    source: str  # the path as it was given
    created_utc: str
    kgprof_version: str
    git_commit: str | Skipped
    git_dirty: bool | Skipped
    exit_code: int  # its own, before the comparison
    verdict: Verdict  # its own


class EnvironmentChange(Model, frozen=True, kw_only=True):
    """One fact of the environment in which the two sides differ, so that their times cannot be compared."""

    name: str  # "GPU", "driver", "torch", "flag TORCH_LOGS"
    base: str  # in words; "not set" and a Skipped's reason too
    head: str


class SettingChange(Model, frozen=True, kw_only=True):
    """What was asked for, or declared by the workload, and is not the same on both sides."""

    name: str  # "--steps", "workload option --batch", "depth"
    base: str  # empty: not there
    head: str


class ComparedMetric(Model, frozen=True, kw_only=True):
    """One quantity of one run on both sides.

    ``verdict``: worse, same, better, inconclusive, not observed. Times are judged by an interval for ``ratio`` (head
    over base) at 95 %: worse when all of it is above 1 + budget, better when all of it is below 1 / (1 + budget), same
    when all of it is below 1 + budget, else inconclusive. Counts are judged as they stand: any more is worse (of
    launches of CUDA graphs any less). Noisy ones, sizes and compile seconds are judged by ``tolerance_percent``.
    """

    name: str  # "step", "evaluation", "ms/candidate", "graph breaks", "peak allocated", ...
    run: RunKey
    unit: str  # "us", "s", "ms/candidate", "sites", "events", "reads/step", "kernels/step", "launches/step", "bytes"
    measured_in: PassName | None = None
    base: float | Skipped  # of a time: the mean of the rounds' medians (geometric), which ``ratio`` is the quotient of
    head: float | Skipped
    ratio: float | Skipped  # head / base; Skipped where base is 0
    low: float | Skipped = Skipped(reason="a count has no interval")  # of ``ratio``
    high: float | Skipped = Skipped(reason="a count has no interval")
    base_rounds: int = 0  # fresh processes that a time stands on
    head_rounds: int = 0
    budget_percent: float | None = None  # how much worse is allowed; None: reported, and fails nothing
    tolerance_percent: float | None = None  # below which a change of a noisy count or size is called the same
    verdict: str
    decides: bool = False  # it has part in the comparison's verdict
    runs_to_settle: int | None = None  # rounds on either side after which the interval should clear the budget
    note: str = ""  # why it is inconclusive or not observed, or what a reader must know


class PhaseChange(Model, frozen=True, kw_only=True):
    """Seconds that all compilations of a run spent in one stage (CompileStages), on both sides."""

    name: str  # "capture", "frontend", "scheduling", "code generation", "machine code", "caching"
    base_s: float
    head_s: float


class Cause(Model, frozen=True, kw_only=True):
    """What a regression is put down to.

    ``cause``: finding, kernel, launches, copies, host, steps, cuda-graphs, results, compile, memory, setting.
    ``explains_us`` is a part of RunComparison.delta_us: the parts and the remainder add up to it.
    """

    cause: str
    run: RunKey | None = None  # None: of all runs
    text: str
    explains_us: float | Skipped
    fingerprint: str = ""  # of the finding that it is
    location: Location | None = None


class FlameDifference(Model, frozen=True, kw_only=True):
    """The host's stacks of a run on both sides as one tree, nanoseconds a step; 0: not on that side, or pruned there.

    Nodes are matched by the names on the way to them. The places are head's, of what only base has base's.
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


class RunComparison(Model, frozen=True, kw_only=True):
    """One strategy x mode on both sides. ``status``: both, new (only the head has it), gone (only the base has it)."""

    run: RunKey
    status: str
    metrics: tuple[ComparedMetric, ...] = ()
    decided_by: str = ""  # the metric that says whether it is slower: "step" or "evaluation"; empty: there is no time
    per: str = "step"  # what ``delta_us`` and the causes' ``explains_us`` are of: "step" or "evaluation"
    delta_us: float | Skipped = Skipped(reason="the run is on one side only")  # TIMING: head less base
    explained_us: float | Skipped = Skipped(reason="the run is on one side only")  # the sum over ``causes``
    remainder_us: float | Skipped = Skipped(reason="the run is on one side only")  # delta less explained
    traced_us: float | Skipped = Skipped(reason="the run is on one side only")  # the traces' delta, before scaling
    scale: float | Skipped = Skipped(reason="the run is on one side only")  # a microsecond of the trace, in TIMING's
    trace: TraceDifference | None = None
    flame: FlameDifference | None = None  # None: one of the sides has no stacks
    phases: tuple[PhaseChange, ...] = ()
    settings: tuple[SettingChange, ...] = ()
    causes: tuple[Cause, ...] = ()
    notes: tuple[str, ...] = ()


class ComparedFinding(Model, frozen=True, kw_only=True):
    """A finding by its fingerprint. ``status``: new (only in head), fixed (only in base), unchanged."""

    status: str
    finding: Finding  # head's; of a fixed one base's
    base_count: int
    head_count: int
    fails: bool = False  # new, and of a level that --fail-on names

    @property
    def grew(self) -> bool:
        return self.status == "unchanged" and self.head_count > self.base_count


class Comparison(Model, frozen=True, kw_only=True):
    """Two Profiles beside each other. The Profile that holds it is the head's, with the comparison's verdict."""

    base: ComparedSide
    head: ComparedSide
    environment: tuple[EnvironmentChange, ...] = ()
    comparable: bool  # the environments are alike, or --allow-different-environment was given
    fail_on: str = "warning"  # which new findings fail: error, warning, never
    runs: tuple[RunComparison, ...] = ()
    findings: tuple[ComparedFinding, ...] = ()  # new, then fixed, then unchanged
    causes: tuple[Cause, ...] = ()  # of all runs, the likeliest first
    settings: tuple[SettingChange, ...] = ()  # of the whole command
    method: str = ""  # how the intervals were made, in a sentence
    notes: tuple[str, ...] = ()


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


def decode_json(data: bytes | str, kind: type[T]) -> T:
    """Typed JSON. Raises msgspec.DecodeError (ValidationError when the shape is wrong)."""
    return msgspec.json.decode(data, type=kind)


def encode_json(value: Any) -> bytes:
    """Indented JSON with keys in declaration order: the same value gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
