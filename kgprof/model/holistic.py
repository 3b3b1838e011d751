"""What HolisticTraceAnalysis says of a trace, beside our figures; and the ranks of one job beside each other."""

from __future__ import annotations

from enum import StrEnum

from kgprof.model.options import RunKey
from kgprof.model.structs import Model, Skipped, Tagged


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


class LateCause(StrEnum):
    """What takes a rank that comes late to the collectives longer than the others."""

    COMPUTE = "more compute"
    HOST = "its CPU is late"  # nothing runs: the GPU has no work yet, or Python runs between the operators
    COPIES = "slower copies"


class RankLoad(Model, frozen=True, kw_only=True):
    """One rank's GPU, or its operators, in a step, in microseconds; busy + idle = step, busy = compute + exposed."""

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


class CollectiveWait(Model, frozen=True, kw_only=True):
    """One collective of a step, in microseconds. A rank arrives ``apart_us`` less its own wait after the first."""

    name: str
    place: int  # among those of a step, from 1 on
    steps: int
    last_rank: int  # the one that came last most often
    last_in: int  # of ``steps``
    apart_us: float  # from the first arrival to the last; median
    wait_us: tuple[float, ...]  # median of each rank, in the order of RankBalance.ranks


class RankBalance(Model, frozen=True, kw_only=True):
    """The ranks of one job beside each other. ``text``: who is late and why, or why no rank is named."""

    ranks: tuple[RankLoad, ...]
    straggler: RunKey | None = None
    cause: LateCause | None = None  # of the straggler, where the traces show it
    text: str
    collectives: tuple[CollectiveWait, ...] | Skipped = Skipped(reason="the ranks were not compared")
    left_out: tuple[str, ...] = ()  # runs that are not among ``ranks``, and why
