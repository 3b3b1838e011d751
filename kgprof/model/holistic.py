"""What HolisticTraceAnalysis says of a trace, and its figures beside ours."""

from __future__ import annotations

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
