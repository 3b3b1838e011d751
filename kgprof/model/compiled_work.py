"""What a run's compiled code consists of, free of names, numbers and clocks, so that two runs can
be compared exactly."""

from enum import StrEnum

import msgspec

from kgprof.model.structs import Location, Model, Skipped, Tagged


class WorkItem(Model, kw_only=False):
    """An operator of a graph, a call of generated code, or a guard; what ``text`` says of it is the
    same wherever it stands and whatever its variables are called."""

    text: str
    lines: tuple[Location, ...] = ()  # of the program that it comes from


class CompiledWork(Tagged):
    """``operators``, ``calls`` and ``guards`` are places in ``items``: in the order of the graphs,
    or of the generated code."""

    # the digest of each: of its operators with what they are given, equal for two that compute the
    # same
    graphs: tuple[str, ...]
    items: tuple[WorkItem, ...]
    operators: tuple[int, ...]
    calls: tuple[int, ...] | Skipped  # of kernels and libraries in the generated code
    # on values, and not on which class, function or module a name stands for
    guards: tuple[int, ...] | Skipped
    # that the generated code allocates when each graph is called once
    allocated_bytes: float | Skipped
    # of a step after warm-up
    calls_per_step: float | Skipped
    bytes_per_step: float | Skipped
    flops_per_step: float | Skipped
    # outside of compiled code: operators with the types of what they are given, per step
    eager: tuple[tuple[str, float], ...] | Skipped = Skipped(
        "this report has no types of eager operators"
    )
    # what Inductor's passes did, as torch counts it
    passes: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for a place that is none, in a report that somebody changed."""
        parts = (self.operators, self.calls, self.guards)
        places = [place for part in parts if isinstance(part, tuple) for place in part]
        if places and not 0 <= min(places) <= max(places) < len(self.items):
            raise ValueError("it names an item that it does not hold")

    def named(self, places: tuple[int, ...]) -> list[WorkItem]:
        return [self.items[place] for place in places]


NOT_KEPT = "this report was made before compiled work was kept"


class WorkAspect(StrEnum):
    """In the order in which a reader wants them."""

    GRAPHS = "graphs"
    OPERATORS = "operators"
    CODE = "generated code"
    LAUNCHES = "launches"
    BYTES = "bytes"
    FLOPS = "FLOPs"
    BUFFERS = "buffers"
    SETTINGS = "torch's settings"
    GUARDS = "guards"
    RECOMPILES = "recompiles"
    BREAKS = "graph breaks"
    SYNCS = "syncs"
    CUDA_GRAPHS = "CUDA-graph launches"
    EAGER = "eager operators"
    KERNELS = "kernels and operators that ran"


class WorkRow(Model, kw_only=False):
    """One aspect on both sides."""

    aspect: WorkAspect
    name: str  # what is counted: "operators", "bytes per step"
    base: float | Skipped
    head: float | Skipped
    differs: bool | Skipped


class WorkDifference(Model, kw_only=False):
    """One thing that is compiled or done on one side and not on the other."""

    aspect: WorkAspect
    text: str
    location: Location | None = None  # where it shows; of what only base has, in base
    only_in_base: bool = False
    times: int = 1
    changed: Location | None = None  # the line of the change that it is put down to
    was: Location | None = None  # what stood there in base

    @property
    def place(self) -> Location | None:
        """The line to look at first."""
        return self.changed or self.location

    @property
    def is_at_the_change(self) -> bool:
        one = self.changed
        other = self.location
        if one is None or other is None:
            return False
        return self.only_in_base or (
            one.line == other.line and f"/{other.file}".endswith(f"/{one.file}")
        )


class ComparedWork(Tagged):
    """``differs``: in any of the rows that were seen on both sides."""

    differs: bool
    rows: tuple[WorkRow, ...]
    differences: tuple[WorkDifference, ...] = ()
    left_out: int = 0  # differences beyond those
