"""Which collectives the ranks of a job began, of a run that did not end well."""

import msgspec

from kgprof.model.compile_records import SourceLine
from kgprof.model.structs import Model, fit


class CollectiveCall(Model, kw_only=False):
    operation: str  # "all_reduce"
    sizes: tuple[tuple[int, ...], ...]  # of its inputs
    # the Python stack that called it, innermost first, without torch's own lines
    frames: tuple[SourceLine, ...] = ()


class CollectiveOrder(Model, kw_only=False):
    """The collectives that one rank began, in its order, as torch's flight recorder kept them."""

    rank: int
    calls: tuple[CollectiveCall, ...]  # each kind of call once
    begun: tuple[tuple[str, int, int], ...]  # process group, number in it, place in ``calls``
    # by process group, the number of the last one that ended
    completed: dict[str, int] = msgspec.field(default_factory=dict)
    # by process group, how long before it was written down the one after that had begun
    waits_s: dict[str, float] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        fit(at=[place for _, _, place in self.begun], of=self.calls)
