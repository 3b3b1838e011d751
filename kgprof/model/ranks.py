"""The ranks of one job beside each other."""

from __future__ import annotations

from kgprof.model.holistic import HolisticCall, HolisticFigure
from kgprof.model.options import RunKey
from kgprof.model.structs import Model, Skipped, Tagged


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
