"""The kernel breakdown in words and parts: what renderers for people call the kinds, and what a bar is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.limits import Limits
from kgprof.render.quantity import milliseconds, percent
from kgprof.render.table import Cell, Table, plain, row
from kgprof.wording import plural

IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind's part of a step."""

    kind: str  # a KernelKind's value, or "idle"
    per_step_us: float
    share: float  # of the step's window, 0..1; above 1 in sum where kernels overlap


# (kind, what a reader calls it, what it stands for). The order is the order of the bars.
KINDS: tuple[tuple[str, str, str], ...] = (
    (m.KernelKind.GEMM, "GEMM", "matrix products: cuBLAS, CUTLASS, MKL, aten mm and linear, Triton GEMM templates"),
    (m.KernelKind.ATTENTION, "attention", "flash, memory-efficient and cuDNN attention, FlexAttention's templates"),
    (m.KernelKind.CONVOLUTION, "convolution", "cuDNN, oneDNN and ATen convolutions, Triton convolution templates"),
    (
        m.KernelKind.NORMALISATION,
        "normalisation",
        "layer norm, batch norm, softmax and the like; generated kernels with no other reduction",
    ),
    (
        m.KernelKind.POINTWISE,
        "pointwise",
        "element by element: ATen's, and what Inductor generated without a reduction (triton_poi_), whatever it fused",
    ),
    (
        m.KernelKind.REDUCTION,
        "reduction",
        "many elements to one: ATen's, pooling, losses, and generated kernels that reduce (triton_red_, triton_per_)",
    ),
    (m.KernelKind.INDEX, "gather, scatter, index", "index, gather, scatter, embedding, nonzero, masked select, lookup"),
    (m.KernelKind.SORT, "sort and scan", "sort, top-k, unique, median, cumulative sums"),
    (m.KernelKind.COPY, "copy and fill", "memcpy, memset, dtype and layout copies, cat, fill, reading a scalar"),
    (
        m.KernelKind.COMMUNICATION,
        "communication",
        "collectives: NCCL, RCCL, NVSHMEM, symmetric memory, c10d's operators",
    ),
    (
        m.KernelKind.FRAMEWORK,
        "framework",
        "CPU runs: self time of Dynamo's cache lookup, AOTAutograd's wrappers, the compiled graph's own wrapper and "
        "autograd's nodes; views and allocation, which touch no element",
    ),
    (m.KernelKind.OTHER, "other", "names that no rule recognises"),
    (
        IDLE,
        "idle",
        "GPU: nothing running; CPU: no operator running, only Python and uninstrumented code; both include profiler "
        "overhead",
    ),
)
NAMES = {kind: name for kind, name, _ in KINDS}
IN_FUSED = "in fused"  # the kind has no kernel of its own; generated kernels hold its operators


def steps_of(kernels: m.KernelBreakdown) -> int:
    """What totals are divided by: the traced steps, or one where the trace marks none."""
    return max(kernels.steps, 1)


def parts(kernels: m.KernelBreakdown) -> tuple[Part, ...]:
    """Every kind that took time, in the bars' order, then idle."""
    totals = {kind.kind.value: kind.total_us for kind in kernels.kinds}
    totals[IDLE] = kernels.idle_us
    window = kernels.window_us or 1.0
    return tuple(
        Part(kind=str(kind), per_step_us=totals[kind] / steps_of(kernels), share=totals[kind] / window)
        for kind, _, _ in KINDS
        if totals.get(kind, 0.0) > 0
    )


def busy_caption(kernels: m.KernelBreakdown, bare: m.Spread | m.Skipped) -> str:
    """On CUDA against TIMING's step: the profiler slows the host down, so its own window holds idle time of its making.

    The device's own work takes as long under the profiler as without it.
    """
    busy_us = kernels.busy_us / steps_of(kernels)
    if kernels.device == "cuda" and isinstance(bare, m.Spread) and bare.median > 0:
        share = f"{100 * busy_us / bare.median:.0f} %"
        return f"GPU busy {share} ({milliseconds(busy_us)} of {milliseconds(bare.median)} ms without the profiler)"
    return f"busy {percent(kernels.busy_us / kernels.window_us if kernels.window_us else 0.0)} under the profiler"


def unit(kernels: m.KernelBreakdown) -> str:
    """What a row counts."""
    return "GPU time" if kernels.device == "cuda" else "self time of operators"


def overrides(profile: m.Profile, limits: Limits) -> tuple[tuple[str, str], ...]:
    """The project's own rules: what is looked for in a name, and what that made of this report's kernels."""
    made = []
    for own in profile.kind_overrides[: limits.lines]:
        kernels = plural(own.kernels, "kernel") if own.kernels else "no kernel"
        made.append((own.pattern, f"{NAMES[own.kind]}: {kernels} of this report ({own.origin})"))
    return tuple(made)


def time_table(runs: Sequence[m.RunReport]) -> Table:
    """Milliseconds of a traced step, run by run and kind by kind."""
    broken_down = [(run, run.kernels) for run in runs if isinstance(run.kernels, m.KernelBreakdown)]
    present = {part.kind for _, kernels in broken_down for part in parts(kernels)}
    kinds = [kind for kind, _, _ in KINDS if kind in present]
    rows = []
    for run, kernels in broken_down:
        known = {part.kind: part for part in parts(kernels)}
        cells = (
            Cell(milliseconds(known[kind].per_step_us), details=(percent(known[kind].share),))
            if kind in known
            else Cell(IN_FUSED if kind in kernels.fused_kinds else "0")
            for kind in kinds
        )
        rows.append(row(run.key.slug, *cells, milliseconds(kernels.window_us / steps_of(kernels))))
    return plain("Time per step by kind", ("run", *(NAMES[kind] for kind in kinds), "whole step"), rows)
