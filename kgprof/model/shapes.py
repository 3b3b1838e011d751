"""How torch.compile is best told about a size that varies: each policy measured over the same calls."""

from __future__ import annotations

from enum import StrEnum

from kgprof.model.structs import Model, Skipped, Tagged
from kgprof.model.times import Spread


class SizePolicy(StrEnum):
    STATIC = "static"  # dynamic=False
    AUTOMATIC = "automatic"  # dynamic=None: the second size makes it dynamic
    DYNAMIC = "dynamic"  # dynamic=True
    MARKED = "marked"  # torch._dynamo.mark_dynamic
    BUCKETS = "buckets"  # padded to one of a few sizes, dynamic=False
    PADDED = "padded"  # padded to the largest, dynamic=False


class SizeCost(Model, frozen=True, kw_only=True):
    """One size under one policy. A call that compiles nothing is of ``steady``."""

    size: int
    calls: int  # in the sequence
    padded_to: int
    steady: Spread | Skipped  # ms a call, padding and slicing included


class PolicyResult(Tagged, frozen=True, kw_only=True, tag="size-policy"):
    graphs: int  # compiled over the whole sequence
    compile_s: float  # what the calls that compiled took beyond a steady one
    sizes: tuple[SizeCost, ...]
    differs: str = ""  # how the results of some size differ from eager's without padding; empty: they do not

    @property
    def steady_ms(self) -> float | Skipped:
        """Of the whole sequence, from the medians."""
        medians = [(cost.calls, cost.steady) for cost in self.sizes]
        known = [calls * steady.median for calls, steady in medians if isinstance(steady, Spread)]
        return sum(known) if len(known) == len(medians) else Skipped(reason="a size was not timed")

    @property
    def wasted(self) -> float:
        """Share of the computed rows that are padding."""
        computed = sum(cost.calls * cost.padded_to for cost in self.sizes)
        return 1 - sum(cost.calls * cost.size for cost in self.sizes) / computed


class Shapes(Tagged, frozen=True, kw_only=True, tag="shapes"):
    """``sizes``: of the calls in their order, along ``dimension`` 0 of ``tensor``, an input of ``function``."""

    function: str
    tensor: str
    sizes: tuple[int, ...]
    collected: bool  # the program's own, not --sizes
    buckets: tuple[int, ...]
    policies: tuple[tuple[SizePolicy, PolicyResult | Skipped], ...]
    recommended: SizePolicy | None
    code: str  # the lines that do what is recommended
