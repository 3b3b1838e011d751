"""What limits a run: the shares of its step, each with its kind, so that they add up to the
step."""

from collections.abc import Sequence

from kgprof.model.findings import LimitKind
from kgprof.model.structs import Amount, Location, Model, Tagged

# Of the step the GPU works: from here on the CPU's own pace does not matter, since it only runs
# ahead of the GPU and waits.
GPU_BOUND = 0.9


class LimitShare(Model, kw_only=False):
    """A part of the step that one thing accounts for."""

    limit: LimitKind
    us: Amount  # per step, of WholeRun in all
    share: Amount  # of the step, or of the run, 0..1
    name: str = ""  # what it is, where one thing stands out: an operator, a call
    location: Location | None = None  # the line that does it, where it is known


class RunLimits(Tagged):
    """The step of one run on a GPU. ``shares`` are disjoint, largest first, and add up to
    ``step_us``."""

    step_us: Amount
    busy_us: Amount  # GPU work per step; above ``step_us`` where steps overlap
    shares: tuple[LimitShare, ...]
    # Why the largest kind is not named as the limit; empty where it is.
    undecided: str = ""

    @property
    def by_kind(self) -> tuple[LimitShare, ...]:
        """Sum the shares of each kind, largest first; a name or a line stays where it is most of
        its kind."""
        kinds = dict.fromkeys(share.limit for share in self.shares)
        sums = (_sum([share for share in self.shares if share.limit is kind]) for kind in kinds)
        return tuple(sorted(sums, key=lambda share: -share.us))

    @property
    def leading(self) -> LimitShare | None:
        """The largest kind; None where that is not decided."""
        return None if self.undecided else self.by_kind[0]


# Of the time that is left without compiling for the first time, where no cause of that is known.
MOST = 0.5
LEAST = 0.25  # of the whole run: a smaller share is not said to limit it


class WholeRun(Tagged):
    """All steps of a script together, on cold caches and under kgprof's listeners.

    ``shares`` are disjoint, largest first, and add up to ``total_us``; ``us`` is of the run.
    """

    total_us: Amount
    steps: int
    shares: tuple[LimitShare, ...]

    @property
    def once(self) -> tuple[LimitShare, ...]:
        """The shares that are paid once and have a cause in the program. Every run compiles for the
        first time: that has one where a line is known that makes it long."""
        kinds = (LimitKind.RECOMPILING, LimitKind.RECORDING)
        return tuple(share for share in self.shares if share.limit in kinds or self._is_long(share))

    @property
    def leading(self) -> LimitShare | None:
        """The largest of ``once``; None where the steps themselves take longer than these."""
        once = self.once
        first_us = sum(
            share.us
            for share in self.shares
            if share not in once and share.limit is LimitKind.COMPILING
        )
        once_us = sum(share.us for share in once)
        left_us = self.total_us - first_us
        leads = once_us >= max(MOST * left_us, LEAST * self.total_us)
        return once[0] if once and leads else None

    @property
    def with_recordings_us(self) -> float:
        """A step on average, without compiling; 0 where recording CUDA graphs leads nothing."""
        if self.leading is None or self.leading.limit is not LimitKind.RECORDING:
            return 0.0
        kinds = (LimitKind.RECORDING, LimitKind.STEPS)
        return sum(share.us for share in self.shares if share.limit in kinds) / self.steps

    @staticmethod
    def _is_long(share: LimitShare) -> bool:
        return share.limit is LimitKind.COMPILING and share.location is not None


def _sum(shares: Sequence[LimitShare]) -> LimitShare:
    """Add up shares of one kind, largest first."""
    largest, us = shares[0], sum(share.us for share in shares)
    is_most = 2 * largest.us > us
    return LimitShare(
        limit=largest.limit,
        us=us,
        share=sum(share.share for share in shares),
        name=largest.name if is_most else "",
        location=largest.location if is_most else None,
    )
