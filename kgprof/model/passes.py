"""The passes: what each of them writes down, one file a pass, and the one list of them that
everything else reads; and what was asked for: which passes, of which runs, in which modes, and
every default of the command line."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from kgprof.model.accounts import NOT_ACCOUNTED, ScriptAccount
from kgprof.model.compile_records import Autotuned, SourceLine, Sources
from kgprof.model.memory_records import HandmadeGraph, SyncRecords, TensorRecords
from kgprof.model.structs import Bounded, Calls, Location, Model, Skipped, Tagged, Unavailable
from kgprof.wording import and_more, figure, opening, plural


class Outcome(StrEnum):
    OK = "ok"
    RAISED = "raised"
    EXITED = "exited"  # a script, by sys.exit
    TIMED_OUT = "timed-out"
    KILLED = "killed"
    INTERRUPTED = "interrupted"
    NOT_STARTED = "not started"  # a round


class Failure(Model, kw_only=False):
    """What a program itself raised, and in which of its lines."""

    error: str  # "ValueError: shape mismatch"
    location: Location
    step: int | None = None  # which one, from 1; None: in none that kgprof counts
    steps: int | None = None  # of how many that were to be made


def _after(steps: int) -> str:
    return f"after step {steps:,} of the program" if steps else "before its first step ended"


class Exit(Model, kw_only=False):
    """How a child ended."""

    outcome: Outcome
    message: str = ""  # the exception's last line, or the signal's name
    traceback: str = ""
    during: str = ""  # the pass that was running
    exit_code: int | None = None  # the child's own code, negative for a signal
    elapsed_s: Bounded = 0.0
    failure: Failure | None = None  # None: it ended well, or no line of the program raised
    # the listeners of kgprof's that the exception came through, by the source's name
    through: tuple[str, ...] = ()

    @property
    def is_early(self) -> bool:
        """Whether somebody or the time limit ended it."""
        return self.outcome in (Outcome.INTERRUPTED, Outcome.TIMED_OUT)

    @property
    def where(self) -> str:
        """In which step of which pass it ended: "in step 3 of 20 of COMPILE".

        Where a script's steps end is not known before the next one has ended, so that of a script
        the last whole step is given."""
        step = self.failure.step if self.failure else None
        steps = self.failure.steps if self.failure else None
        if self.during in ("plan", "prepare"):
            return "while it was loaded"
        if self.during == "script":
            return "in the program" if step is None else _after(step - 1)
        if step is not None and steps is not None:
            return f"in step {step:,} of {steps:,} of {self.during.upper()}"
        return f"during {self.during.upper()}"

    @property
    def words(self) -> str:
        """The end of a sentence about the run: "was killed during TIMING: SIGKILL".

        Of a message over several lines (torch explains at length) the first, and what that
        announces; ``message`` holds the others.
        """
        how = {"timed-out": "timed out", "exited": "exited"}
        how |= {"killed": "was killed", "interrupted": "was interrupted"}
        during = f" during {self.during.upper()}" if self.during else ""
        why = f": {opening(self.message)}" if self.message.strip() else ""
        return f"{how.get(self.outcome, self.outcome)}{during}{why}"


class CompileStages(Tagged, tag="stages"):
    """Seconds of one compilation in each of six stages; they add up to its duration."""

    capture_s: Bounded  # Dynamo: bytecode to FX graph, and the guards
    frontend_s: Bounded  # AOTAutograd and the passes over the graph
    scheduling_s: Bounded  # Inductor's lowering, partition and scheduling (fusion)
    code_generation_s: Bounded  # C++ or Triton text
    machine_code_s: Bounded  # waiting for g++ or Triton's compiler
    caching_s: Bounded  # making cache keys, reading and loading what they lead to


class Compilation(Model, kw_only=False):
    """One compilation that Dynamo reported (``compilation_metrics`` record of torch.__trace)."""

    compile_id: str  # "0/1", "" when torch gave none
    function: str
    location: str  # file:line of the def
    duration_s: Bounded | Skipped
    fail_reason: str = ""
    call: int | None = None  # the call of COMPILE in which it happened; -1 before the first
    # calls in the captured graph, of functions, methods and modules alike
    operators: int | None = None
    stages: CompileStages | Skipped = Skipped("this Recording has no spans of the compiler")


NAMED = 2  # functions in a sentence


# The capture that is lacking where torch.compile does nothing at all.
SWITCHED_OFF = "compilation"


def nothing_compiled(unused: Sequence[Compilation], workers: int = 0) -> str:
    """Of a run without compiled code in its calls. ``unused``: what it compiled while it was
    loaded; ``workers``: its other processes, which kgprof does not see."""
    if not unused:
        return f"nothing was compiled{' in the main process' if workers else ''}"
    return (
        f"no call ran compiled code; compiled while the workload was loaded: {functions_of(unused)}"
    )


def functions_of(compilations: Sequence[Compilation]) -> str:
    """The first functions, each with file and line."""
    places = (
        (made.function, made.location.rpartition("/")[2]) for made in compilations if made.location
    )
    functions = list(dict.fromkeys(f"{function} ({place})" for function, place in places))
    more = and_more(functions, NAMED)
    return f"{', '.join(functions[:NAMED])}{more}"


class MemoryPeaks(Tagged, tag="peaks"):
    """Peaks over some calls, in bytes, and what was held before them: of MEMORY those after
    warm-up, of COMPILE those up to steady state."""

    allocated_bytes: int | Skipped  # CUDA's caching allocator; a CPU has no such count
    reserved_bytes: int | Skipped
    resident_bytes: int | Skipped  # of the whole process (VmHWM, reset before)
    resident_before_bytes: int | Skipped
    # Memory that CUDA graphs keep for themselves: between replays nobody else gets it, and little
    # of it is allocated.
    graph_pool_bytes: int | Skipped = Skipped(
        "this Recording has no data on the pools of CUDA graphs"
    )
    graph_pool_allocated_bytes: int = 0  # of it, what counts as allocated too

    @property
    def taken_bytes(self) -> int | Skipped:
        """What nobody else can have: the allocated peak, and the rest of the pools of CUDA
        graphs."""
        if isinstance(self.allocated_bytes, Skipped):
            return self.allocated_bytes
        if isinstance(self.graph_pool_bytes, Skipped):
            return self.graph_pool_bytes
        return self.allocated_bytes + self.graph_pool_bytes - self.graph_pool_allocated_bytes


class CacheFolder(Tagged):
    """What COMPILE left in the compilers' caches on disk, which were kgprof's own and cold."""

    files: int
    bytes: int


class CompilePass(Tagged, tag="compile"):
    """20 calls (``--steps``) on a cold cache under the structured-trace handler.

    Two clocks: the calls before ``steady_from``, and the first one always, are wall time up to the
    end of the device's work, because they hold the compilation. The later ones are on the clock of
    TIMING (CUDA events on a GPU, which do not wait for the device), so that they can be set against
    its steps.
    """

    call_us: tuple[Bounded, ...]  # microseconds of each call
    steady_from: Calls  # index of the first call that counts as steady state (``--warmup``)
    compilations: tuple[Compilation, ...]
    capture_unavailable: tuple[Unavailable, ...] = ()
    # of a script: how many steps there were, ``call_us`` has the first; None: as many
    calls: Calls | None = None
    autotuned: tuple[Autotuned, ...] | Skipped = Skipped("this Recording has no autotuning")
    compiling: MemoryPeaks | Skipped = Skipped("this Recording has no memory of compiling")
    cache: CacheFolder | Skipped = Skipped("this Recording has no cache sizes")
    # of a script: the steps in which torch compiled, TRACE's among them
    compiled_in: tuple[int, ...] = ()
    # that torch compiled before the first call, and that no call's time has in it
    while_loading_s: Bounded = 0.0
    # what Inductor's passes did, as torch counts it ("pattern_matcher_count")
    inductor: dict[str, int] = msgspec.field(default_factory=dict)
    # while it was loaded, of code that ran in no call; set when read
    unused: tuple[Compilation, ...] = ()

    @property
    def made(self) -> int:
        """How many calls, or steps of a script, there were."""
        return len(self.call_us) if self.calls is None else self.calls

    @property
    def watched_us(self) -> tuple[float, ...]:
        """The steady calls, microseconds each: every pass but TIMING says so what its instrument
        costs a step."""
        steady = (
            call
            for call in range(self.steady_from, len(self.call_us))
            if call not in self.compiled_in
        )
        return tuple(self.call_us[call] for call in steady)


class MachineSpeed(Tagged, tag="machine speed"):
    """Work that no change of the program touches, timed before each sample of TIMING and after the
    last."""

    # of one turn: a write to a dict and the dispatch of one operator to the device
    host_us: tuple[Bounded, ...]
    # of one kernel that waits for arithmetic; on a CPU by all of torch's threads
    device_us: tuple[Bounded, ...]


# Of the cores: if other processes take as much, times may not hold.
BUSY = 0.25


class Load(Tagged, tag="load"):
    """What other processes took of the cores that this one may use, over some time."""

    seconds: Bounded
    cores: int
    others_s: Bounded  # seconds of one core
    own_s: Bounded = 0.0  # likewise of this process, all of its threads

    @property
    def is_high(self) -> bool:
        return self.others_s >= BUSY * self.cores * self.seconds

    @property
    def words(self) -> str:
        """ "other processes used 1.9 of 2 cores"."""
        used = self.others_s / self.seconds
        cores = plural(self.cores, "core")
        return f"other processes used {figure(min(used, self.cores), 2)} of {cores}"


class TimingPass(Tagged, tag="timing"):
    """Nothing but a clock. ``step_us`` holds one tuple per evaluation (or one tuple of steps where
    there is none)."""

    clock: str  # "perf_counter" or "cuda events"
    step_us: tuple[tuple[Bounded, ...], ...]
    # wall time of each whole evaluation; empty for a workload that has none
    evaluation_s: tuple[Bounded, ...]
    stopped_early: str = ""  # why fewer evaluations than asked for
    notes: tuple[str, ...] = ()  # what a reader of these samples must know (compilation among them)
    compiled: bool = False  # torch did, in some of these samples
    # the first evaluation over the median of the others, where it took longer
    slow_first: Bounded | None = None
    machine: MachineSpeed | Skipped = Skipped("TIMING did not check the machine's speed")
    # of a script: the steps of its warm-up, with what is compiled in them
    start_us: tuple[Bounded, ...] = ()
    # CPU time of each step of a script; of a function of a mean step in each group of ``step_us``.
    cpu_us: tuple[Bounded, ...] = ()
    # of each step of a script what the main thread spent in next() of DataLoaders; of others empty
    loader_us: tuple[Bounded, ...] = ()
    loader_workers: int = 0  # the most worker processes that one of them had
    load: Load | Skipped = Skipped("TIMING did not look at the machine's load")
    account: ScriptAccount | Skipped = Skipped(NOT_ACCOUNTED)  # of a script
    step: str = ""  # of a script: what was counted as one
    slice_steps: int = 0  # so many steps at a time, in turn with another process; 0: alone

    @property
    def every_us(self) -> list[float]:
        """The steps of all evaluations together."""
        return [us for evaluation in self.step_us for us in evaluation]


class TimedRound(Tagged, tag="round"):
    """TIMING once more, in a fresh process that finds the compilers' caches as this run's COMPILE
    left them.

    Before it as many calls as in COMPILE, and no instrument in any of them.
    """

    # wall time up to the end of the device's work, with what is compiled in a cache
    first_call_s: Bounded
    graphs_from_cache: int | Skipped  # of Inductor's, in this process, as torch counts them
    graphs_compiled: int | Skipped  # by Inductor, because no cache had them
    timing: TimingPass


class RoundRecord(Model):
    """A further round of ``--rounds``, and how its process ended; the first one is the run's own
    TIMING."""

    number: int  # from 2
    exit: Exit
    measured: TimedRound | Skipped


class HostLine(Model):
    """A line of the program's, and how long the CPU was in it or in a library that it called."""

    at: SourceLine
    us: Bounded


class HostLines(Model):
    """Samples of the main thread's stack over the traced steps. What torch did is in no row."""

    rows: tuple[HostLine, ...]  # the longest


class TracePass(Tagged, tag="trace"):
    """torch.profiler over ``len(step_us)`` steps; the trace lies beside it, gzipped."""

    step_us: tuple[Bounded, ...]
    trace_file: str  # name inside the run's folder
    cpp_kernel_profile: bool  # Inductor's C++ kernels are visible by name
    # of a script: the median of the steps just before, without torch.profiler
    bare_us: Bounded | None = None
    cut: str = ""  # STACK: why there are fewer steps than were meant
    host_lines: HostLines | None = None  # of a script on a GPU

    @property
    def watched_us(self) -> tuple[float, ...]:
        return self.step_us


class HostRow(Model):
    function: str
    file: str
    line: int
    calls: int
    self_us: Bounded
    cumulative_us: Bounded


class HostPass(Tagged, tag="host"):
    """cProfile over ``len(step_us)`` steps."""

    step_us: tuple[Bounded, ...]
    rows: tuple[HostRow, ...]  # by self time, largest first
    rows_left_out: int = 0
    total_self_us: Bounded = 0.0

    @property
    def watched_us(self) -> tuple[float, ...]:
        return self.step_us


class MemoryPass(Tagged, tag="memory"):
    """Calls from a cold start under the probes: which reads, which addresses, how much memory.

    ``step_us`` are wall times up to the end of the device's work, under the probes: the price of
    watching, no times of the workload's.
    """

    step_us: tuple[Bounded, ...]
    steady_from: Calls  # index of the first call that counts as steady state (``--warmup``)
    syncs: SyncRecords | Skipped
    tensors: TensorRecords | Skipped
    peaks: MemoryPeaks | Skipped
    sources: Sources = Sources()  # of the project files that the probes' stacks name
    capture_unavailable: tuple[Unavailable, ...] = ()
    graphs: tuple[HandmadeGraph, ...] = ()  # that a script recorded itself
    # graphs were captured anew, and what COMPILE made of them was in its caches
    code_cached: bool = False

    @property
    def watched_us(self) -> tuple[float, ...]:
        return self.step_us[self.steady_from :]


class PassName(StrEnum):
    """In the order of the command line."""

    COMPILE = "compile"
    TIMING = "timing"
    TRACE = "trace"
    HOST = "host"
    STACK = "stack"
    MEMORY = "memory"
    KERNELS = "kernels"


class Pass(Model, kw_only=False):
    """A declared pass: ``<name>.json`` in a run's folder holds its Struct, or Skipped."""

    name: PassName
    kind: type[Any]  # its Struct
    module: str  # of kgprof.record.passes, whose ``measure(run)`` makes it
    in_probe: bool = False  # made in child B, which captures anew under the probes; else in child A
    trace_file: str = ""  # the Kineto trace beside it
    by_default: bool = True  # made where --passes names none
    listens: bool = False  # to a script, in the one run that it has
    not_in_script: str = "a script has no steps to call"  # why its one run does not give the pass
    reruns: bool = False  # a script once more, where --passes names it (record.passes.reruns)


# In the order in which child A makes its passes and a report lists them.
PASSES: Mapping[PassName, Pass] = {
    row.name: row
    for row in (
        Pass(PassName.COMPILE, CompilePass, "torch_trace", listens=True),
        Pass(
            PassName.TIMING,
            TimingPass,
            "timing",
            reruns=True,
            not_in_script=(
                "a script that failed, or whose times were not asked for, is not rerun for it; to "
                "ask: --passes compile,memory,trace,timing"
            ),
        ),
        Pass(
            PassName.TRACE,
            TracePass,
            "torch_profiler",
            trace_file="trace.json.gz",
            listens=True,
        ),
        Pass(
            PassName.HOST,
            HostPass,
            "host_profiler",
            reruns=True,
            not_in_script=(
                "a script is rerun under cProfile only on request: --passes "
                "compile,memory,trace,host"
            ),
        ),
        Pass(  # torch.profiler with Python's stacks; it and cProfile silence each other
            PassName.STACK,
            TracePass,
            "stack_profiler",
            trace_file="stack_trace.json.gz",
            reruns=True,
            not_in_script=(
                "a script is rerun with stacks only on request: --passes compile,memory,trace,stack"
            ),
        ),
        Pass(  # TRACE again, with a range around each call of a C++ kernel of Inductor's (CPU only)
            PassName.KERNELS,
            TracePass,
            "cpp_kernels",
            in_probe=True,
            trace_file="kernels.json.gz",
            not_in_script=(
                "a script is not compiled a second time for the names of Inductor's C++ kernels"
            ),
        ),
        Pass(PassName.MEMORY, MemoryPass, "memory", in_probe=True, listens=True),
    )
}


AS_IS = "as-is"  # a user's workload as it stands; kgprof compiles nothing
EAGER = "eager"  # nothing is compiled, the workload's own torch.compile included
# torch.compile(mode=...)
COMPILED_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

BACKENDS = ("inductor", "aot_eager", "eager")  # that --backend knows


def needs_cpp_compiler(mode: str, device: str) -> bool:
    """Inductor writes C++ for the CPU."""
    return device == "cpu" and mode in COMPILED_MODES


class FailOn(StrEnum):
    """The least level of a finding that fails the gate where no budget counts it."""

    ERROR = "error"
    WARNING = "warning"
    NEVER = "never"


class RunKey(Model, order=True, kw_only=False):
    """One strategy (what is computed differently) in one mode (how the same thing runs)."""

    strategy: str
    mode: str

    @property
    def slug(self) -> str:
        return f"{self.strategy}.{self.mode}"

    @property
    def is_eager(self) -> bool:
        return self.mode == EAGER


MOST_ROUNDS = 1000  # a process each


OF_THE_WORK = (PassName.COMPILE, PassName.TRACE, PassName.MEMORY)


class Options(Model, kw_only=False):
    """What the user asked of ``kgprof profile``; the only place where defaults live."""

    workload: str = "linkpred"
    workload_args: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()  # empty: the workload's own default
    modes: tuple[str, ...] = ()  # empty: the workload's own default
    device: str = "auto"
    steps: int = 20
    warmup: int = 3
    seed: int = 0
    timeout_s: Bounded = 900.0
    # whole evaluations that TIMING aims at; a long one stops after two (see TIMING_BUDGET_S)
    evaluations: int = 3
    # processes in which TIMING is made, one after the other over all runs; not of a script
    rounds: int = 1
    # empty: the usual ones; a gate asks for COMPILE, and MEMORY for a budget on it
    passes: tuple[PassName, ...] = ()
    backend: str = ""  # what stands in for Inductor in every torch.compile; empty: nothing does
    # of a script: the recording stops after so many, the program runs on
    max_steps: int | None = None
    # of a script: likewise, at the first step that begins after so long
    duration_s: Bounded | None = None
    # of a script: if its run took less, it runs once more for TIMING
    timing_below_s: Bounded | None = None

    def wants(self, name: PassName) -> bool:
        return name in self.passes if self.passes else PASSES[name].by_default

    @property
    def for_a_gate(self) -> bool:
        """Nothing but what a gate looks at was asked for; it judges for itself whether it has seen
        enough."""
        return bool(self.passes) and set(self.passes) <= {PassName.COMPILE, PassName.MEMORY}

    @property
    def for_the_work(self) -> bool:
        """Nothing but what says what is compiled and run was asked for."""
        return set(self.passes) == set(OF_THE_WORK)

    @property
    def untimed(self) -> bool:
        """No pass that gives times was asked for."""
        return bool(self.passes) and PassName.TIMING not in self.passes
