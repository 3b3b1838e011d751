"""What limits a run: the shares of its step, each with its kind, so that they add up to the step."""

from enum import StrEnum

from kgprof.model.findings import Location
from kgprof.model.structs import Amount, Model, Tagged


class LimitKind(StrEnum):
    """What would have to become faster for the step to become shorter."""

    COMPUTE = "compute"
    MEMORY = "memory bandwidth"
    SMALL_KERNELS = "small kernels"  # too small to fill the GPU
    LAUNCHES = "launches"
    SYNC = "sync"
    INPUT = "input"
    COMMUNICATION = "communication"
    HOST = "host code"
    UNKNOWN = "unknown"


class LimitShare(Model, frozen=True, kw_only=True):
    """A part of the step that one thing accounts for."""

    limit: LimitKind
    us: Amount  # per step
    share: Amount  # of the step, 0..1
    name: str = ""  # what it is, where one thing stands out: an operator, a call
    location: Location | None = None  # the line that does it, where it is known


class RunLimits(Tagged, frozen=True, kw_only=True, tag="runlimits"):
    """The step of one run on a GPU. ``shares`` are disjoint, largest first, and add up to ``step_us``."""

    step_us: Amount
    busy_us: Amount  # GPU work per step; above ``step_us`` where steps overlap
    shares: tuple[LimitShare, ...]
    # Why the largest share is not named as the limit; empty where it is.
    undecided: str = ""

    @property
    def leading(self) -> LimitShare | None:
        """The largest share; None where that is not decided."""
        return None if self.undecided else self.shares[0]
