"""A traced step: what each lane did in it, and where its time on the host went."""

from __future__ import annotations

from kgprof.model.structs import Model, Tagged


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
