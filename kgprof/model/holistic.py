"""What HolisticTraceAnalysis says of a trace, beside our figures; and the ranks of one job beside each other."""

from __future__ import annotations

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


class RanksByHolistic(Tagged, frozen=True, kw_only=True, tag="ranksbyholistic"):
    """What HTA says of the ranks, beside ours; of the whole trace of each. It is asked about one trace at a time."""

    figures: tuple[HolisticFigure, ...]  # "rank 0, device computing"
    calls: tuple[HolisticCall, ...]  # those that are about several ranks


class RankBalance(Model, frozen=True, kw_only=True):
    """The ranks of one job beside each other. ``straggler``: in words, or why none is named."""

    ranks: tuple[RankLoad, ...]
    spreads: tuple[RankSpread, ...] = ()
    straggler: RunKey | None = None
    text: str
    left_out: tuple[str, ...] = ()  # runs that are not among ``ranks``, and why
    hta: RanksByHolistic | Skipped = Skipped(reason="HTA was not asked about these ranks")
