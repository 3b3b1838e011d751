"""Where the time of a traced window went, why the device stood still, and one step of it, lane by lane."""

from __future__ import annotations

from enum import StrEnum

from kgprof.model.compile_records import GraphWork
from kgprof.model.findings import Location
from kgprof.model.passes import PassName
from kgprof.model.roofline import Roofline
from kgprof.model.structs import Model, Skipped, Tagged


class Lane(Model, frozen=True, kw_only=True):
    """What one thread, stream or device did in a step: one entry an event in each column, in the order of their start.
    The events are disjoint; with those left out they add up to ``busy_us``."""

    owner: str  # "thread 7", "stream 7", "device"
    content: str  # spans, regions, operators, calls; kernels, copies; idle
    busy_us: float
    covered: int  # device events without an entry: others of the stream ran all the while
    name: tuple[int, ...] = ()  # index in the timeline's ``names``; of an idle stretch: of the operator that ended it
    kind: tuple[int, ...] = ()  # index in its ``kinds``
    start_ns: tuple[int, ...] = ()  # after the step's start
    duration_ns: tuple[int, ...] = ()
    call: tuple[
        int, ...
    ] = ()  # of device events: which entry of all lanes of calls launched it, from 0; -1: none there
    left_out: int = 0  # shorter events, to keep the timeline small
    left_out_us: float = 0.0  # of them together


class StepTimeline(Tagged, frozen=True, kw_only=True, tag="steptimeline"):
    """The median step of the traced ones, by its duration on the host, and what the device still did for it then."""

    name: str  # the trace's: "ProfilerStep#8"
    number: int  # from 1, in the order of the trace
    steps: int
    duration_us: float  # on the host
    window_us: float  # from the step's start; what lanes hold is cut at its end
    names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()  # a KernelKind; host: region, span, launch, wait, call; idle: as DeviceIdle's fields
    lanes: tuple[Lane, ...]
    lanes_left_out: int  # those that did least
    left_out_us: float  # what they did
    left_out_below_us: float = 0.0  # the longest event that was left out of the lanes; 0: none was
    from_other_steps: int  # device events in the window that another step launched, or no call that the trace holds
    after_the_window: int  # device events that the step launched and that began after it


class MemoryCurve(Tagged, frozen=True, kw_only=True, tag="memorycurve"):
    """What torch's allocator held over the median traced step. On a CPU it counts from the start of the trace."""

    device: str  # "cuda:0", "cpu"
    measured_in: PassName
    step: str  # the trace's name of it
    steps: int
    duration_us: float  # under the profiler
    events: int  # allocations and frees in the step
    before_bytes: int
    peak_bytes: int
    after_bytes: int
    at_us: tuple[float, ...]  # after the step's start; of many the least and the most of each short stretch
    allocated_bytes: tuple[int, ...]  # from then on


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


class GeneratorTotal(Model, frozen=True, kw_only=True):
    generator: str  # as KernelRow.generator, and of a "library" on a GPU "cuBLAS", "cuDNN", "NCCL" or "attention"
    names: int
    count: int
    total_us: float


class FusedGraph(Model, frozen=True, kw_only=True):
    """A compiled graph, and what TRACE says of the region that runs it."""

    work: GraphWork
    calls: int | Skipped  # in the traced steps
    us: float | Skipped  # a call: device time of what it launched; on a CPU wall time of the region
    bytes_per_s: float | Skipped  # ``work.moved_bytes`` in that time: at least, where those of a kernel are unknown
    of_copy: float | Skipped  # of the rate that a copy was measured to reach on this card


class Fusion(Tagged, frozen=True, kw_only=True, tag="fusion"):
    graphs: tuple[FusedGraph, ...]
    kernels: float | Skipped  # a step, in TRACE, without copies
    eager_kernels: float | Skipped  # likewise of the same strategy in mode eager


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


class InputCopies(Tagged, frozen=True, kw_only=True, tag="inputcopies"):
    """Copies on the device, launched before the replay of a CUDA graph, of inputs that do not stay where it reads."""

    replays: int  # graph launches in the trace
    count: int
    total_us: float
    share: float  # of the sum over all device events, 0..1


class Communication(Tagged, frozen=True, kw_only=True, tag="communication"):
    """Collectives in the whole window, on a GPU or by a CPU's backend. ``exposed_us`` is what no other work ran beside;
    ``exposed_us`` and ``work_us`` together are when anything ran."""

    count: int
    total_us: float  # sum of their durations; a rank that comes early waits inside them
    busy_us: float  # of the union of their intervals
    exposed_us: float
    work_us: float = 0.0  # covered by other work
    copies_us: float = 0.0  # of that by copies alone, from and to the GPU or on it


NO_COLLECTIVES = Skipped(reason="the trace has no span of a collective, and an operator mixes work and waiting")


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
    generators: tuple[GeneratorTotal, ...] = ()  # largest first; they add up to ``total_us``, none in older reports
    fused_kinds: tuple[KernelKind, ...] = ()  # kinds of the operators inside generated kernels, as their names say
    graph_launches: int | Skipped = Skipped(reason="not counted")  # CUDA: of ``launches``, those of whole CUDA graphs
    lines_us: float | Skipped = Skipped(reason="no source lines were recorded for kernels")
    idle: DeviceIdle | Skipped = Skipped(reason="a CPU run has no GPU that could wait")
    # CUDA: ``total_us`` by where it was launched, each with a row for what was launched in none; empty on a CPU.
    by_step: tuple[SpanTotal, ...] = ()
    by_region: tuple[SpanTotal, ...] = ()
    by_span: tuple[SpanTotal, ...] = ()
    queue: LaunchQueue | Skipped = Skipped(reason="a CPU run launches no GPU kernels")
    timeline: StepTimeline | Skipped = Skipped(reason="the trace was recorded without it")
    host_time: HostTime | Skipped = Skipped(reason="the trace was recorded without it")
    communication: Communication | Skipped = NO_COLLECTIVES
    warnings: tuple[str, ...] = ()
    roofline: Roofline | Skipped = Skipped(reason="a CPU run launches no GPU kernels")
    input_copies: InputCopies | Skipped = Skipped(reason="a CPU run replays no CUDA graphs")
