"""A Recording: what stood there to be run, what all passes of all runs left, and under which
settings."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kgprof.model.accounts import NOT_ACCOUNTED, ScriptAccount
from kgprof.model.collective_calls import CollectiveOrder
from kgprof.model.compile_records import (
    CodeCount,
    CompiledKernels,
    CompileRecords,
    KernelOrigins,
    SourceLine,
)
from kgprof.model.evaluation import Agreement, Evaluation
from kgprof.model.kernels import Ceilings, Holistic
from kgprof.model.passes import (
    CompilePass,
    Exit,
    FailOn,
    HostPass,
    Load,
    MemoryPass,
    Options,
    PassName,
    RoundRecord,
    RunKey,
    TimedRound,
    TimingPass,
    TracePass,
)
from kgprof.model.structs import Duration, Location, Model, Skipped, Tagged
from kgprof.wording import plural


class StrategyPlan(Model, kw_only=False):
    """A strategy that the workload offers, and the modes it can run in."""

    name: str
    modes: tuple[str, ...]
    summary: str = ""


class WorkUnit(Model):
    """What the workload's work is counted in, in its own word: tokens, samples, queries."""

    name: str = "unit"
    plural: str = "units"
    # None: steps differ, or the workload does not say; then its whole job may count them
    per_step: int | None = None

    @property
    def time(self) -> str:
        """What one of them takes, in milliseconds: "ms/token"."""
        return f"ms/{self.name}"

    @property
    def rate(self) -> str:
        return f"{self.plural}/s"


class Alternative(Model, kw_only=False):
    """Two strategies of a workload that do the same work: one behind a read of its predicate, the
    other always."""

    guarded: str
    always: str


class TraceFile(Model):
    """A Kineto trace that somebody else recorded, as `kgprof trace` took it in."""

    key: RunKey  # of the run that it became
    file: str
    size_bytes: int  # as it lay there, packed or not
    rank: int | None = None  # from its distributedInfo, else from its name
    world_size: int | None = None
    backend: str = ""  # of the process group: "nccl"
    against: bool = False  # --against: the others are held against this one
    notes: tuple[str, ...] = ()


class Environment(Model):
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
    # torch's and kgprof's environment variables that were set (TORCH_*, TORCHINDUCTOR_*, ...)
    flags: dict[str, str]
    source_root: str = ""  # git's top folder above the working directory, or that directory itself
    # torch's settings before the workload is loaded, and the decompositions that Inductor has; of
    # an interpreter that was given by --python
    defaults: dict[str, str] = msgspec.field(default_factory=dict)


class Plan(Model):
    """What the PLAN child found: the workload as it stands and the machine it stands on."""

    workload: str
    strategies: tuple[StrategyPlan, ...]  # all that the workload offers
    runs: tuple[RunKey, ...]  # what will run, in order
    baseline: RunKey | None  # what speed-ups are relative to; None when no run is declared as one
    device: str  # "cpu" or "cuda"
    environment: Environment
    # Inductor compiles test files once per machine; never part of a compile time
    vector_isa_probe_s: float | Skipped
    # each instruction set of this CPU passed the probe, so the runs need not try them
    vector_isa_works: bool = False
    # the workload can compare the results of its runs (an AGREEMENT child runs at the end)
    agreement: bool
    unit: WorkUnit = WorkUnit()
    alternatives: tuple[Alternative, ...] = ()  # what the workload declares to be weighed
    # of torch, that the workload set on being loaded
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    # of `kgprof trace`, one a run; empty: kgprof ran the workload itself
    trace_files: tuple[TraceFile, ...] = ()


RECORDING_SCHEMA_VERSION = 2  # 1: first form; 2: an evaluation counts in the workload's own unit


COMPILED_KEY = "_orig_mod."


class Checkpoint(Model):
    """A line that saves tensors by name, or loads them into a module; with or without COMPILED_KEY
    in their names."""

    location: Location
    compiled_keys: bool
    into_compiled: bool | None  # the module's own names have it; None: the line saves


SPAWN = "torch.multiprocessing.spawn"
PYTHON = "python"  # a launch of another script or module
MULTIPROCESSING = "multiprocessing"  # a function of the program's own, in a process or in a pool's
BESIDE = (PYTHON, MULTIPROCESSING)  # these may do the work, or only prepare it


class Launched(Model):
    """Processes that a script started to do its work, which kgprof does not follow."""

    by: str  # "torchrun", "accelerate", "torch.distributed.run", SPAWN, PYTHON, MULTIPROCESSING
    processes: int | None = None
    # the same, with kgprof in each of them; of MULTIPROCESSING the line to add in its function
    command: str
    # of MULTIPROCESSING: "train (train.py:12)"; empty for a pool, whose functions are not known
    function: str = ""


ITERATION = "an iteration of the loop that calls compiled functions"
# Steps of which an iteration of the program's own loop may make several, or none.
CALLS_AS_STEPS = (
    "a call of a compiled function",
    "a replay of a CUDA graph",
    "a call of the outermost nn.Module",
)


class ScriptRun(Model):
    """What stands in a script's run for the calls of a workload: what was counted as a step, and by
    which choice."""

    # "an optimizer step", "a call of a compiled function", "a call of kgprof.step()"; empty: there
    # was none
    step: str
    steps: int
    # optimizer steps before those: where the first one began is not known if nothing was compiled
    left_out: int = 0
    uncounted: int = 0  # steps of other optimizers, after the last that counts
    traced: str = ""  # what was counted as one in TRACE, where that is another choice
    # how many there were of each kind; empty: nobody counted (a TORCH_TRACE directory)
    counted: dict[str, int]
    stopped: str = ""  # why the recording ended before the program did
    rank: int | None = None  # under torchrun
    launched: tuple[Launched, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    # what an optimizer's step calls, often several times: "closure (train.py:12)"
    closure: str = ""
    notes: tuple[str, ...] = ()
    # of a program that compiled nothing: the first torch.compile in its own files, "train.py:12"
    compile_call: str = ""
    # what it stands under, unless one took effect: "under `if args.compile`"; or as what
    compile_under: str = ""
    was_asked: bool = False  # a line of such a program called torch.compile
    # of such a program, and of one without steps: functions without arguments that it never calls
    uncalled: tuple[str, ...] = ()
    workers: int = 0  # processes of torch's data loaders, which may compile by themselves
    loop: SourceLine | None = None  # whose iterations are the steps
    account: ScriptAccount | Skipped = Skipped(NOT_ACCOUNTED)  # with the listeners on

    def why_nothing_compiled(self, workload: str) -> str:
        """What hides a compilation that its text asks for, and what to do; empty where it asks for
        none."""
        if not self.compile_call:
            return ""
        if self.compile_under:
            where = f"{self.compile_call} stands {self.compile_under}"
            return f"no torch.compile took effect: {where}"
        if self.uncalled:
            first, *rest = self.uncalled
            others = f" or {', '.join(rest[:2])}" if rest else ""
            target = f"{workload.removeprefix('-m ')}:{first}"
            return (
                f"no line of the program calls {first}{others}; kgprof check-graphs {target} "
                "runs it"
            )
        stands = (
            f"torch.compile stands in {self.compile_call}, and no call of what it wraps "
            "compiled anything here"
        )
        if not self.workers:
            return stands
        processes = plural(self.workers, "worker process", "worker processes")
        return f"{stands}; num_workers=0 in the DataLoader shows whether its {processes} compile"

    @property
    def goes_on(self) -> bool:
        """Whether most of its loop lies behind what was counted as a step."""
        return isinstance(self.account, ScriptAccount) and self.account.goes_on

    @property
    def is_one_window(self) -> bool:
        return bool(self.counted) and not self.step

    @property
    def work_is_in(self) -> Launched | None:
        """The launcher whose processes do the work."""
        return (
            None
            if self.steps
            else next((one for one in self.launched if one.by not in BESIDE), None)
        )


class Setting(Model):
    """A setting of ``torch._dynamo.config`` that is True or False."""

    name: str
    value: bool


class Control(Tagged, kw_only=False):
    """The same run once more, in a process in which nothing of kgprof's listens."""

    exit: Exit
    # from the start of its first compilation to its end, without the seconds of compiling
    compiled_s: Duration = 0.0
    graphs: int = 0  # as torch counts them
    frames: int = 0
    frames_ok: int = 0
    # the code objects that torch compiled, and failed to compile in no call
    compiled: tuple[SourceLine, ...] = ()
    # the lines at which torch broke a graph or gave a function up
    breaks: tuple[SourceLine, ...] = ()
    counts: tuple[CodeCount, ...] = ()
    setting: Setting | None = None  # of a trial: made before the program was loaded


NOT_RUN_EAGERLY = Skipped("the program was not run again with compiling switched off")


class RunRecord(Model):
    """Everything that one strategy x mode left in the Recording."""

    key: RunKey
    exit: Exit
    probe_exit: Exit | None  # child B's, where there was one
    compile: CompilePass | Skipped
    timing: TimingPass | Skipped
    trace: TracePass | Skipped
    host: HostPass | Skipped
    kernels: TracePass | Skipped
    stack: TracePass | Skipped = Skipped("this Recording has no STACK pass")
    unit: WorkUnit = WorkUnit()
    evaluation: Evaluation | Skipped
    log: str  # what torch and the workload wrote, raw
    records: CompileRecords | Skipped = Skipped("this Recording has no records of the compiler")
    memory: MemoryPass | Skipped = Skipped("this Recording has no MEMORY pass")
    kernel_origins: KernelOrigins | Skipped = Skipped("this Recording has no provenance of kernels")
    compiled_kernels: CompiledKernels | Skipped = Skipped("this Recording has no compiled kernels")
    control: Control | Skipped | None = None  # None: nothing was in doubt
    # the control with each setting that torch named in the run, and then once without
    setting_trials: tuple[Control, ...] | Skipped = ()
    script: ScriptRun | None = None  # None: a workload with steps of its own
    # of a launched rank that did not end well; None: nothing was written
    collectives: CollectiveOrder | None = None
    # of a script that compiles, with compiling switched off
    eager_timing: TimingPass | Skipped = NOT_RUN_EAGERLY
    holistic: Holistic | Skipped = Skipped("HTA was not run on this trace")
    rounds: tuple[RoundRecord, ...] = ()  # further ones; empty with --rounds 1
    cold_calls_s: tuple[float | Skipped, ...] = ()  # Rounds' cold_first_call_s
    # what the passes without a field here left
    further: Mapping[PassName, Any] = msgspec.field(default_factory=dict)

    @property
    def timed_rounds(self) -> dict[int, TimedRound]:
        """By their numbers; without the first round and those that were lost."""
        every = ((record.number, record.measured) for record in self.rounds)
        return {number: round_ for number, round_ in every if isinstance(round_, TimedRound)}

    def left_by(self, name: PassName) -> Any:
        """What pass ``name`` left: its Struct, or Skipped."""
        if name in self.__struct_fields__:
            return getattr(self, name)
        return self.further.get(name, Skipped(f"this Recording has no {name.upper()} pass"))


class StartQuestion(Model, kw_only=False):
    """One first call in a fresh process, before which it loads ``artifacts``, or after which it
    packs them there."""

    key: RunKey
    device: str
    artifacts: str  # a file
    load: bool


class Start(Model, kw_only=False):
    first_call_s: float  # wall time up to the end of the device's work
    load_s: float  # of unpacking the artefacts before it; 0 where none were loaded
    graphs_from_cache: int  # of Inductor's, as torch counts them
    graphs_compiled: int


class ShippedCache(Tagged):
    """A first call on cold caches, and one on those caches as torch.compiler.save_cache_artifacts
    ships them.

    One process each.
    """

    cell: str  # its name
    cold: Start
    loaded: Start
    artifact_bytes: int

    @property
    def code(self) -> tuple[str, str]:
        """The line after the first calls here, and the one before the first call on the other
        machine."""
        return (
            'pathlib.Path("compiled.bin").write_bytes(torch.compiler.save_cache_artifacts()[0])',
            'torch.compiler.load_cache_artifacts(pathlib.Path("compiled.bin").read_bytes())',
        )

    @property
    def saved_s(self) -> float:
        return self.cold.first_call_s - self.loaded.first_call_s - self.loaded.load_s


class PrivateNames(Model):
    """What a Profile leaves out by name; what is told by its shape alone (tokens, /home/NAME) needs
    no name here."""

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()  # home directories
    # those of PYTHONPATH: what lies in one is named from there
    import_folders: tuple[str, ...] = ()


class InTurn(Model):
    """A Recording that was made in turn with another one, its other side, pair by pair of
    processes.

    Round 1 is each side's whole recording; round n of the one and round n of the other are a pair
    from the second on.
    """

    id: str  # the same on both sides, and on no others
    side: str  # "base" or "head"
    # pairs at most; the recording ended earlier if every limit was decided at a look
    most_rounds: int
    limits: dict[str, float]  # percent by metric, as they stood before the first round
    python: str = ""  # the end of the interpreter's path, where each side has its own


class RecordingHeader(Model):
    """``recording.json``: written first, so that a killed run still says what it was."""

    schema_version: int
    created_utc: str  # ISO 8601
    command: tuple[str, ...]
    options: Options
    plan: Plan
    interrupted: bool = False
    load: Load | Skipped = Skipped("nobody looked at the machine's load before the start")
    private: PrivateNames = PrivateNames()  # of the machine that it was made on
    in_turn: InTurn | None = None  # `kgprof compare --record`: one side of two


class Budget(Model, kw_only=False):
    """A limit on one of kgprof.gate.metrics. ``scope``: "" for every run, else "strategy" or
    "strategy.mode"."""

    metric: str
    limit: float
    scope: str
    origin: str  # where it was written: "--max", "pyproject.toml", "default"


class AcceptedEntry(Model, kw_only=False):
    """One accepted finding as its file has it (kgprof.collectors.trust.accepted)."""

    rule: str
    file: str
    function: str
    gb: str  # torch's id of the graph break; empty: any
    reason: str
    owner: str
    expires: str  # ISO date, the last day on which it holds
    # the library's function in which it happened, "transformers/modeling_utils.py:warn_once"
    library: str = ""


class GateSettings(Model):
    """``gate.json``: what check-graphs held this Recording to, so that it can be judged again
    without its files."""

    fail_on: FailOn
    backend: str  # empty: Inductor
    budgets: tuple[Budget, ...]
    accepted: tuple[AcceptedEntry, ...]
    accepted_path: str
    notes: tuple[str, ...] = ()


class Recording(Model):
    """A Recording as read back from its folder (kgprof.reading.recordings.load)."""

    folder: str
    header: RecordingHeader
    # in the plan's order; a run that never started is there with an Exit that says so
    runs: tuple[RunRecord, ...]
    agreement: Agreement | Skipped
    gate: GateSettings | None = None  # None: not made by check-graphs
    ceilings: Ceilings | Skipped = Skipped("this Recording has no ceilings")
    # by the project, when `kgprof profile` made it; a gate has its own
    accepted: tuple[AcceptedEntry, ...] = ()
