"""The evaluator's strategies: what is computed differently, all with the same result.
``STRATEGIES`` is the list."""

from kgprof.errors import UsageError
from kgprof.workloads.linkpred.slots import SlotStrategy
from kgprof.workloads.linkpred.strategies.batched import Batched
from kgprof.workloads.linkpred.strategies.fused import Fused
from kgprof.workloads.linkpred.strategies.levels import Levels
from kgprof.workloads.linkpred.strategies.looped import Looped
from kgprof.workloads.linkpred.strategies.recycled import Recycled
from kgprof.workloads.linkpred.strategies.reference import Reference
from kgprof.workloads.linkpred.strategies.sequential import Sequential
from kgprof.workloads.linkpred.strategies.stepped import FusedSteps
from kgprof.workloads.linkpred.strategies.torch_cond import TorchCond
from kgprof.workloads.loading import did_you_mean

Strategy = type[SlotStrategy] | type[Levels] | type[Reference]

STRATEGIES: tuple[Strategy, ...] = (
    Sequential,
    Batched,
    Recycled,
    TorchCond,
    Fused,
    FusedSteps,
    Looped,
    Levels,
    Reference,
)

LATER = ("triton",)  # known by name, so that asking for one is told so


def by_name(name: str) -> Strategy:
    """Raises UsageError for a strategy that is not there yet, and for an unknown one, with the
    nearest name."""
    offered = {strategy.name: strategy for strategy in STRATEGIES}
    if name in offered:
        return offered[name]
    hint = f"linkpred has: {', '.join(offered)}"
    if name in LATER:
        raise UsageError(f"strategy {name!r} is not supported in this version", hint=hint)
    raise UsageError(f"linkpred has no strategy {name!r}{did_you_mean(name, offered)}", hint=hint)
