"""The correctness ladder: one program under one more stage of torch.compile at a time, each held to float64."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from kgprof.model.evaluation import Metric, RunAgreement
from kgprof.model.structs import Model, Skipped, Tagged


class Rung(StrEnum):
    """In the order of the ladder; each adds one stage to what runs below it."""

    FLOAT64 = "float64"  # eager mode, inputs and parameters widened: the reference
    EAGER = "eager"
    CAPTURE = "capture"
    FUNCTIONALISATION = "functionalisation"
    DECOMPOSITION = "decomposition"
    CODE_GENERATION = "code generation"
    MODE = "mode"  # the mode or the backend that was asked for, where it is not Inductor's default


BACKEND_OF = {
    Rung.CAPTURE: "eager",
    Rung.FUNCTIONALISATION: "aot_eager",
    Rung.DECOMPOSITION: "aot_eager_decomp_partition",
}


class Reference(StrEnum):
    """What a tensor was held to."""

    FLOAT64 = "float64"
    EAGER = "eager"  # float64 could not run, or it computed something else


class TensorDifference(Model, frozen=True, kw_only=True):
    """One tensor of one rung against its reference. Only finite elements count in the three largest differences, and
    in the relative ones only those that are no smaller than the absolute tolerance of the dtype."""

    name: str
    dtype: str
    elements: int
    differing: int  # beyond what is allowed
    reference: Reference
    max_abs: float
    max_rel: float
    max_ulp: int | None  # in the tensor's own dtype; None where it is no float of 16 bits or more
    eager_max_abs: float  # how far eager itself is from the reference
    nans: int
    infs: int
    reference_nans: int
    reference_infs: int
    worst: tuple[int, ...] = ()  # index of the element that exceeds what is allowed the most
    worst_value: str = ""  # texts, because JSON has no NaN
    worst_reference: str = ""
    why: str = ""  # another shape or dtype, or missing


class RungResult(Tagged, frozen=True, kw_only=True, tag="rung"):
    """``agreement`` and ``metrics`` are a workload's own comparison with eager, where it has one."""

    differs: bool
    seconds: float  # of the process's steps, compilation included; of one sample
    compared: int  # tensors
    tensors: tuple[TensorDifference, ...] = ()  # the worst first
    agreement: RunAgreement | Skipped | None = None
    metrics: tuple[tuple[Metric, float], ...] = ()  # with eager's value
    note: str = ""


class Reproduction(Tagged, frozen=True, kw_only=True, tag="reproduction"):
    """What a script printed when it was run by itself in a fresh process."""

    differs: bool
    output: str


class Minified(Tagged, frozen=True, kw_only=True, tag="minified"):
    """The smallest captured graph that still differs, saved as a script."""

    script: str  # its name, beside the sheet
    operators: tuple[str, ...]  # the calls that are left
    nodes_before: int
    attempts: int
    finished: bool  # False: time was up, and a smaller graph may exist
    checked: Reproduction | Skipped = msgspec.field(default_factory=lambda: Skipped(reason="it was not run"))


class Ladder(Tagged, frozen=True, kw_only=True, tag="ladder"):
    """``first``: the lowest rung that differs. ``steps``: how many were taken; the last is compared."""

    strategy: str
    cell: str
    steps: int
    rungs: tuple[tuple[Rung, RungResult | Skipped], ...]
    first: Rung | None
    minified: Minified | Skipped
