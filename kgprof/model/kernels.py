"""What a card was measured to do at most (``ceilings.json`` of a Recording) and kernels held
against it; where the time of a traced window went, why the device stood still, one step of it, lane
by lane; what the host did, as Python's functions by cProfile and as stacks; and what
HolisticTraceAnalysis says of a trace, and the ranks of one job."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from kgprof.model.compile_records import GraphWork
from kgprof.model.passes import HostRow, PassName, RunKey
from kgprof.model.structs import Amount, Count, Location, Model, Skipped, Tagged, fit

COPY = "copy"
MATMUL = "matmul"
FLOAT8 = "float8"  # operands of either format, a result of another type


class CeilingSamples(Model):
    """Rates of one operation, one for each time that it was timed. ``how`` says what was run, with
    its sizes."""

    operation: str  # COPY or MATMUL
    # of the matmul: "float64", "float32", "tf32", "bfloat16", "float16", FLOAT8; empty for the copy
    dtype: str
    # "bytes/s", read and written both counted; "FLOP/s", a multiplication and an addition counted
    # as two
    unit: str
    per_s: tuple[float, ...]
    how: str


class Ceilings(Tagged):
    """Measured in a process of its own, when nothing else of the Recording ran."""

    device_name: str
    measured: tuple[CeilingSamples, ...]
    unavailable: tuple[str, ...] = ()  # "matmul in float64: why"


class Bound(StrEnum):
    """What keeps a kernel from being faster, against what the card was measured to do."""

    MEMORY = "memory-bound"
    COMPUTE = "compute-bound"
    LATENCY = "latency-bound"
    IMPOSSIBLE = "above the ceiling"


class Ceiling(Model, kw_only=False):
    """What the card was measured to do at most, in ``unit``; the median is what kernels are held
    against."""

    operation: str  # "copy" or "matmul"
    dtype: str  # of the matmul
    unit: str  # "bytes/s" or "FLOP/s"
    median: float
    minimum: float
    maximum: float
    samples: int
    how: str


class KernelLaunches(Model, kw_only=False):
    """All launches of one kernel that were alike: the same grid and block, registers, bytes and
    operations."""

    name: str
    generator: str  # as KernelRow.generator
    count: int
    total_us: float
    share: Amount  # of the sum over all device events, 0..1
    median_us: float
    grid: tuple[int, ...] | Skipped
    block: tuple[int, ...] | Skipped
    registers: int | Skipped  # of each thread
    shared_bytes: int | Skipped  # of each block
    blocks_per_sm: float | Skipped
    warps: int | Skipped  # of each block
    # CUPTI's estimate, from the launch's shape and not from counters
    occupancy_percent: float | Skipped
    spills: int | Skipped
    stages: int | Skipped
    bytes_moved: int | Skipped  # of one launch, as KernelWork.bytes_moved
    flops: int | Skipped
    bytes_per_s: float | Skipped  # rates are of the median launch
    flops_per_s: float | Skipped
    bound: Bound | Skipped
    # the ideal time over the median launch; the ideal is what the ceiling allows
    of_ceiling: float | Skipped


class BoundTotal(Model, kw_only=False):
    what: str  # KernelLaunches.bound, or why there is none
    total_us: float


class Roofline(Tagged):
    """Every kernel held against the card's ceilings; the largest rows, and how many are not
    here."""

    rule: str  # how ``bound`` is decided, with its thresholds
    ceilings: tuple[Ceiling, ...]  # none: see ``without``
    without: str  # why there are no ceilings; empty where there are
    rows: tuple[KernelLaunches, ...]
    rows_left_out: int
    left_out_us: float
    # Of all rows, also those left out; largest first. Both together are the whole of the device's
    # time.
    placed: tuple[BoundTotal, ...]  # by verdict
    unplaced: tuple[BoundTotal, ...]  # by reason

    @property
    def placed_us(self) -> float:
        return sum(total.total_us for total in self.placed)


class Lane(Model, kw_only=False):
    """What one thread, stream or device did in a step: one entry an event in each column, in the
    order of their start. The events are disjoint; with those left out they add up to ``busy_us``.
    """

    owner: str  # "thread 7", "stream 7", "device"
    content: str  # spans, regions, operators, calls; kernels, copies; idle
    busy_us: float
    covered: int  # device events without an entry: others of the stream ran all the while
    # index in the timeline's ``names``; of an idle stretch: of the operator that ended it
    name: tuple[int, ...] = ()
    kind: tuple[int, ...] = ()  # index in its ``kinds``
    start_ns: tuple[int, ...] = ()  # after the step's start
    duration_ns: tuple[Count, ...] = ()
    # of device events: the entry of all lanes of calls that launched it, from 0; -1: none
    call: tuple[int, ...] = ()
    left_out: int = 0  # shorter events, to keep the timeline small
    left_out_us: float = 0.0  # of them together

    def __post_init__(self) -> None:
        # an older report has no names
        fit(self.name or self.kind, self.kind, self.start_ns, self.duration_ns)


class StepTimeline(Tagged):
    """The median step of the traced ones, by its duration on the host, and what the device still
    did for it then."""

    name: str  # the trace's: "ProfilerStep#8"
    number: int  # from 1, in the order of the trace
    steps: int
    duration_us: Amount  # on the host
    window_us: Amount  # from the step's start; what lanes hold is cut at its end
    names: tuple[str, ...] = ()
    # a KernelKind; host: region, span, launch, wait, call; idle: as DeviceIdle's fields
    kinds: tuple[str, ...] = ()
    lanes: tuple[Lane, ...]
    lanes_left_out: int  # those that did least
    left_out_us: float  # what they did
    left_out_below_us: float = 0.0  # the longest event that was left out of the lanes; 0: none was
    # device events in the window that another step launched, or no call that the trace holds
    from_other_steps: int
    after_the_window: int  # device events that the step launched and that began after it

    def __post_init__(self) -> None:
        # an older report has no names
        for lane in self.lanes if any(lane.name for lane in self.lanes) else ():
            fit(at=lane.kind, of=self.kinds)
            fit(at=lane.name, of=self.names)


class MemoryCurve(Tagged):
    """What torch's allocator held over the median traced step. On a CPU it counts from the start of
    the trace."""

    device: str  # "cuda:0", "cpu"
    measured_in: PassName
    step: str  # the trace's name of it
    steps: int
    duration_us: Amount  # under the profiler
    events: int  # allocations and frees in the step
    before_bytes: int
    peak_bytes: int
    after_bytes: int
    # after the step's start; of many the least and the most of each short stretch
    at_us: tuple[float, ...]
    allocated_bytes: tuple[int, ...]  # from then on

    def __post_init__(self) -> None:
        fit(self.at_us, self.allocated_bytes)


class StepPart(Model, kw_only=False):
    """Microseconds a step, by step."""

    name: str
    mean_us: float
    median_us: float
    minimum_us: float
    maximum_us: float
    calls: float | None  # events a step; None: a remainder, which no event stands for


class HostTime(Tagged):
    """The steps on the thread that takes them, each moment by the innermost event; the means add up
    to ``mean_us``."""

    steps: int
    mean_us: float  # a step's duration
    parts: tuple[StepPart, ...]  # the last one is what no event of the trace names
    # of that one, a step: meanwhile another thread was in an operator or a call
    other_threads_us: float


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
    # CPU run: Dynamo, AOTAutograd and wrapper frames' own time, views, allocation
    FRAMEWORK = "framework"
    OTHER = "other"


class KernelRow(Model, kw_only=False):
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


class KindOverride(Model, kw_only=False):
    """A rule of the project's own: kernels in whose name ``pattern`` is found are of this kind."""

    pattern: str
    kind: KernelKind
    origin: str  # the name of the file that it stands in
    kernels: int = 0  # rows of this Profile that it decided


class KindTotal(Model, kw_only=False):
    kind: KernelKind
    count: int
    total_us: float


class GeneratorTotal(Model, kw_only=False):
    # as KernelRow.generator, and of a "library" on a GPU "cuBLAS", "cuDNN", "NCCL" or "attention"
    generator: str
    names: int
    count: int
    total_us: float


class FusedGraph(Model, kw_only=False):
    """A compiled graph, and what TRACE says of the region that runs it."""

    work: GraphWork
    calls: int | Skipped  # in the traced steps
    us: float | Skipped  # a call: device time of what it launched; on a CPU wall time of the region
    # ``work.moved_bytes`` in that time: at least, where those of a kernel are unknown
    bytes_per_s: float | Skipped
    of_copy: float | Skipped  # of the rate that a copy was measured to reach on this card


class Fusion(Tagged, kw_only=False):
    graphs: tuple[FusedGraph, ...]
    kernels: float | Skipped  # a step, in TRACE, without copies
    eager_kernels: float | Skipped  # likewise of the same strategy in mode eager


# In a trace of torch 2.11 to 2.13: the span of a batch, a copy out of memory that is not pinned.
LOADER_PREFIX = "enumerate(DataLoader)"
TIMED_BY_TORCH = " (dynamo_timed)"  # how torch._dynamo.utils.dynamo_timed ends its spans
PAGEABLE = "Memcpy HtoD (Pageable"
BETWEEN_COPIES = "(between copies from pageable memory)"  # from one such copy to the next
# They wait for no GPU, and listeners make each of them many times dearer: no share is made of them.
READS_ON_CPU = "(reads of tensors on the CPU)"


class HostSpan(Model, kw_only=False):
    name: str  # of the innermost span in the trace
    total_us: float
    on_cpu: bool = False  # operators that launch nothing, of so long that they compute on the CPU

    @property
    def words(self) -> str:
        return f"{self.name}, which launches nothing" if self.on_cpu else self.name


class DeviceIdle(Tagged, kw_only=False):
    """The part of the window in which the device did nothing. ``total_us`` is the sum of the four
    causes."""

    total_us: float
    host_us: float  # the host had not yet asked for what came next
    launch_us: float  # it had, and the launch was on its way
    unknown_us: float  # the trace does not hold the call that launched what came next
    edges_us: float  # before the first and after the last device work of the window
    gaps: int
    host_spans: tuple[HostSpan, ...]  # what the host did meanwhile: they add up to ``host_us``
    # Of ``launch_us``, between two copies from pageable memory.
    copy_launch_us: float = 0.0
    loading_us: float = 0.0  # of ``launch_us``, in calls that took so long that they loaded code
    loading_calls: int = 0


class SpanTotal(Model, kw_only=False):
    """Device time that was launched inside a span of the host's."""

    span: str
    count: int
    total_us: float


class LaunchQueue(Tagged):
    """From the launch to the work, by correlation ids.

    A delay is that of a launch call: from its return to the start of the first thing it put on the
    device. Depth: how many operations had been launched (their call had begun) and had not begun;
    those of a CUDA graph come all at once.
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


class InputCopies(Tagged, kw_only=False):
    """Copies on the device, launched before the replay of a CUDA graph, of inputs that do not stay
    where it reads."""

    replays: int  # graph launches in the trace
    count: int
    total_us: float
    share: float  # of the sum over all device events, 0..1


class Communication(Tagged):
    """Collectives in the whole window, on a GPU or by a CPU's backend. ``exposed_us`` is what no
    other work ran beside; ``exposed_us`` and ``work_us`` together are when anything ran."""

    count: int
    total_us: float  # sum of their durations; a rank that comes early waits inside them
    busy_us: float  # of the union of their intervals
    exposed_us: float
    work_us: float = 0.0  # covered by other work
    copies_us: float = 0.0  # of that by copies alone, from and to the GPU or on it


NO_COLLECTIVES = Skipped(
    "the trace has no span of a collective, and an operator mixes work and waiting"
)


class KernelBreakdown(Tagged, tag="kernels"):
    """Where the time of the traced window went. Sums: ``kinds`` and ``rows`` both add up to
    ``total_us``."""

    # "cpu": operators' self time; "cuda": kernel, memcpy and memset durations
    device: Annotated[str, msgspec.Meta(pattern="^(cpu|cuda)$")]
    measured_in: PassName
    steps: int
    window_us: float  # wall time of the window
    busy_us: float  # union of the intervals: window - busy = idle
    idle_us: float  # no operator (CPU) or nothing on the device (CUDA)
    total_us: float  # sum over kernels; above busy_us where they overlap
    launches: int | Skipped  # CUDA: launch calls on the host, of any launch API
    kinds: tuple[KindTotal, ...]
    rows: tuple[KernelRow, ...]  # every kernel, largest first
    # largest first; they add up to ``total_us``, none in older reports
    generators: tuple[GeneratorTotal, ...] = ()
    # kinds of the operators inside generated kernels, as their names say
    fused_kinds: tuple[KernelKind, ...] = ()
    # CUDA: of ``launches``, those of whole CUDA graphs
    graph_launches: int | Skipped = Skipped("not counted")
    lines_us: float | Skipped = Skipped("no source lines were recorded for kernels")
    idle: DeviceIdle | Skipped = Skipped("a CPU run has no GPU that could wait")
    # CUDA: ``total_us`` by where it was launched, each with a row for what was launched in none;
    # empty on a CPU.
    by_step: tuple[SpanTotal, ...] = ()
    by_region: tuple[SpanTotal, ...] = ()
    by_span: tuple[SpanTotal, ...] = ()
    queue: LaunchQueue | Skipped = Skipped("a CPU run launches no GPU kernels")
    timeline: StepTimeline | Skipped = Skipped("the trace was recorded without it")
    host_time: HostTime | Skipped = Skipped("the trace was recorded without it")
    communication: Communication | Skipped = NO_COLLECTIVES
    warnings: tuple[str, ...] = ()
    roofline: Roofline | Skipped = Skipped("a CPU run launches no GPU kernels")
    input_copies: InputCopies | Skipped = Skipped("a CPU run replays no CUDA graphs")


Kernels = KernelBreakdown | Skipped


class StackFrame(Model, array_like=True, kw_only=False):
    """What a node of a FlameGraph is: a function, an operator, a span.

    ``kind``: python, torch (Python too, torch's own), generated (Inductor's), builtin, module,
    operator, region, span, call, profiler, pruned, step.
    """

    name: int  # index into ``names``
    file: int  # likewise; names[0] is empty: it has none
    line: int  # of the def; 0: none
    kind: str


class StackFunction(Model, kw_only=False):
    """One frame over the whole tree, before anything was pruned."""

    frame: int
    self_ns: int  # over all steps
    total_ns: int  # a recursion counts once
    calls: int


def with_all_below(parent: Sequence[int], own: Sequence[int]) -> list[int]:
    """Of a tree whose parents stand before their children: what each node has of its own, and all
    below it."""
    totals = list(own)
    for node in range(len(totals) - 1, 0, -1):
        totals[parent[node]] += totals[node]
    return totals


class FlameGraph(Tagged):
    """The host's stacks in the steps of STACK, on the thread that takes them; parents stand before
    their children.

    Node 0 is the step. Nanoseconds and calls are over all ``steps`` together, so that they are
    whole numbers and add up: the sum over ``self_ns`` is that of the steps' durations. What took
    less than ``pruned_below`` of it stands in one node "(other)" under its parent, whose calls are
    those of what it stands for.
    """

    measured_in: PassName
    steps: Annotated[int, msgspec.Meta(ge=1)]
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
    # in which other threads were in operators, added up over those threads
    other_threads_ns: int = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        fit(self.parent, self.frame, self.self_ns, self.calls)
        fit(at=(*self.frame, *(row.frame for row in self.top)), of=self.frames)
        fit(at=[name for each in self.frames for name in (each.name, each.file)], of=self.names)
        if [above for node, above in enumerate(self.parent) if not 0 <= above < node] != [-1]:
            raise ValueError("a node of a flame graph comes before its parent")

    @property
    def total_ns(self) -> tuple[int, ...]:
        """Of each node, with all below it."""
        return tuple(with_all_below(self.parent, self.self_ns))


class HostBreakdown(Tagged, tag="hostfunctions"):
    steps: int
    total_self_us: float
    rows: tuple[HostRow, ...]
    rows_left_out: int


class HolisticCall(Model, kw_only=False):
    """One call of HTA's. ``outcome``: ok, empty, raised, not called."""

    name: str
    outcome: str
    reason: str = ""


class HolisticIdle(Model):
    stream: int
    cause: str  # HTA's word: host_wait, kernel_wait, other
    total_us: float


class HolisticRank(Model):
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


class Holistic(Tagged):
    """HolisticTraceAnalysis' answer, from the process that ran it once."""

    versions: dict[str, str]
    calls: tuple[HolisticCall, ...]
    ranks: tuple[HolisticRank, ...]


class HolisticFigure(Model, kw_only=False):
    """One figure of a trace, ours and HTA's."""

    name: str
    unit: str  # "us", "operations", "%", "GB/s"
    ours: float | Skipped
    hta: float | Skipped
    difference_percent: float | Skipped  # HTA's less ours, of ours
    differs: bool  # both are there, and differ by more than the check's tolerance
    note: str = ""  # what it is


class HolisticCheck(Tagged):
    """HTA's figures of one trace beside ours."""

    versions: dict[str, str]
    # every one that was thought of, also those that were not made, and why
    calls: tuple[HolisticCall, ...]
    tolerance_percent: float
    figures: tuple[HolisticFigure, ...]  # of the whole trace
    kernels: int  # how many names were compared
    kernels_differing: int
    differing: tuple[HolisticFigure, ...]  # the largest of those, by name


class LateCause(StrEnum):
    """What takes a rank that comes late to the collectives longer than the others."""

    COMPUTE = "more compute"
    # nothing runs: the GPU has no work yet, or Python runs between the operators
    HOST = "its CPU is late"
    COPIES = "slower copies"
    COMPILING = "it alone recompiles"


class RankLoad(Model):
    """One rank's GPU, or its operators, in a step, in microseconds; busy + idle = step, busy =
    compute + exposed."""

    run: RunKey
    rank: int
    steps: int
    step_us: float
    busy_us: float
    idle_us: float
    compute_us: float  # covered by a kernel, copy, fill or operator that is no collective
    communication_us: float  # covered by a collective
    exposed_us: float  # covered by collectives alone
    copies_us: float = 0.0  # of ``compute_us``, covered by copies alone


class CollectiveWait(Model, kw_only=False):
    """One collective of a step, in microseconds. A rank arrives ``apart_us`` less its own wait
    after the first."""

    name: str
    place: int  # among those of a step, from 1 on
    steps: int
    last_rank: int  # the one that came last most often
    last_in: int  # of ``steps``
    apart_us: float  # from the first arrival to the last; median
    # median of each rank, in the order of RankBalance.ranks; None: not in its process group
    wait_us: tuple[float | None, ...]


class RankBalance(Model):
    """The ranks of one job beside each other. ``text``: who is late and why, or why no rank is
    named."""

    ranks: tuple[RankLoad, ...]
    straggler: RunKey | None = None
    cause: LateCause | None = None  # of the straggler, where the traces show it
    # whom the others wait for, where nobody is called late: what makes its step shorter does so for
    # all
    last: RunKey | None = None
    text: str
    collectives: tuple[CollectiveWait, ...] | Skipped = Skipped("the ranks were not compared")
    left_out: tuple[str, ...] = ()  # runs that are not among ``ranks``, and why
