"""The kernel breakdown as words, tables and bars; lengths are per cent of the width, so that they
need neither style nor script."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from kgprof import model as m
from kgprof.document.quantity import (
    figure,
    if_known,
    milliseconds,
    of_width,
    percent,
    ratio,
    rounded,
    share_of,
)
from kgprof.document.run_parts import having
from kgprof.document.table import (
    Cell,
    Cells,
    Drawing,
    Drawn,
    Note,
    Shown,
    Table,
    View,
    plain,
    written,
)
from kgprof.judge import NOISY
from kgprof.measures.times import PER_STEP, within_process
from kgprof.wording import plural

IDLE = "idle"


# (kind, what a reader calls it, what it stands for). The order is the order of the bars.
KINDS: Sequence[tuple[str, str, str]] = (
    (
        m.KernelKind.GEMM,
        "GEMM",
        "matrix products: cuBLAS, CUTLASS, MKL, aten mm and linear, Triton GEMM templates",
    ),
    (
        m.KernelKind.ATTENTION,
        "attention",
        "flash, memory-efficient and cuDNN attention, FlexAttention's templates",
    ),
    (
        m.KernelKind.CONVOLUTION,
        "convolution",
        "cuDNN, oneDNN and ATen convolutions, Triton convolution templates",
    ),
    (
        m.KernelKind.NORMALISATION,
        "normalisation",
        "layer norm, batch norm, softmax and the like; generated kernels with no other reduction",
    ),
    (
        m.KernelKind.POINTWISE,
        "pointwise",
        "element by element: ATen's, and what Inductor generated without a reduction "
        "(triton_poi_), whatever it fused",
    ),
    (
        m.KernelKind.REDUCTION,
        "reduction",
        "many elements to one: ATen's, pooling, losses, and generated kernels that reduce "
        "(triton_red_, triton_per_)",
    ),
    (
        m.KernelKind.INDEX,
        "gather, scatter, index",
        "index, gather, scatter, embedding, nonzero, masked select, lookup",
    ),
    (m.KernelKind.SORT, "sort and scan", "sort, top-k, unique, median, cumulative sums"),
    (
        m.KernelKind.COPY,
        "copy and fill",
        "memcpy, memset, dtype and layout copies, cat, fill, reading a scalar",
    ),
    (
        m.KernelKind.COMMUNICATION,
        "communication",
        "collectives: NCCL, RCCL, NVSHMEM, symmetric memory, c10d's operators",
    ),
    (
        m.KernelKind.FRAMEWORK,
        "framework",
        "CPU runs: self time of Dynamo's cache lookup, AOTAutograd's wrappers, the compiled "
        "graph's own wrapper and autograd's nodes; views and allocation, which touch no element",
    ),
    (m.KernelKind.OTHER, "other", "names that no rule recognises"),
    (
        IDLE,
        "idle",
        "GPU: nothing running; CPU: no operator running, only Python and uninstrumented code; "
        "both include profiler overhead",
    ),
)
NAMES = {kind: name for kind, name, _ in KINDS}
IN_FUSED = "in fused"  # the kind has no kernel of its own; generated kernels hold its operators


def steps_of(kernels: m.KernelBreakdown) -> int:
    """What totals are divided by: the traced steps, or one where the trace marks none."""
    return max(kernels.steps, 1)


def per(kernels: m.KernelBreakdown) -> str:
    """What such a quotient is of."""
    if kernels.steps:
        return "step"
    return "window"


def step_us(kernels: m.KernelBreakdown) -> float:
    return kernels.window_us / steps_of(kernels)


def in_order(us: Mapping[str, float]) -> dict[str, float]:
    """Every kind that took time, in the bars' order, then idle."""
    return {str(kind): us[kind] for kind, _, _ in KINDS if us.get(kind, 0.0) > 0}


def parts(kernels: m.KernelBreakdown) -> dict[str, float]:
    """Microseconds of a step by kind; in sum more than the step where kernels overlap."""
    totals = {kind.kind.value: kind.total_us for kind in kernels.kinds}
    totals[IDLE] = kernels.idle_us
    return {kind: us / steps_of(kernels) for kind, us in in_order(totals).items()}


def busy_share(kernels: m.KernelBreakdown, bare: m.Time) -> tuple[float, float, float, bool]:
    """Microseconds of a step in which it was busy, their share of the step, the step, and whether
    that is TIMING's.

    On a GPU it is: the profiler slows the CPU, and the GPU's own work takes as long without it. But
    where the traced steps hold more work than a usual step is long (one of them evaluates as well),
    it is the traced step.
    """
    busy = kernels.busy_us / steps_of(kernels)
    step = step_us(kernels)
    on_gpu = kernels.device == "cuda"
    if on_gpu and isinstance(bare, m.Spread) and bare.median >= busy and bare.median:
        return busy, busy / bare.median, bare.median, True
    return busy, share_of(busy, step), step, False


@m.otherwise("")
def share_doubt(of_us: float, bare: m.Time) -> str:
    """Why a share of a step of ``of_us`` is not one of the steps that were timed; empty where it
    is."""
    timed = m.known(bare)
    if not timed.median:
        return ""
    if not within_process(timed, PER_STEP).is_steady:
        return "per traced step; its share is not decided"
    times = of_us / timed.median
    if not of_us or max(times, 1 / times) <= NOISY:
        return ""
    return f"per traced step, which took {ratio(times)} the time of others"


def busy_caption(kernels: m.KernelBreakdown, bare: m.Time) -> str:
    busy, share, of, is_bare = busy_share(kernels, bare)
    if is_bare:
        return (
            f"GPU busy {rounded(share)} ({milliseconds(busy)} of {milliseconds(of)} ms "
            "without the profiler)"
        )
    return f"busy {percent(share)} under the profiler"


def unit(of: m.KernelBreakdown | m.TraceDifference) -> str:
    """What a row counts."""
    if of.device == "cuda":
        return "GPU time"
    return "self time of operators"


def overrides(profile: m.Profile) -> Sequence[Note]:
    """The project's own rules: what is looked for in a name, and what that made of this report's
    kernels."""
    made = []
    for own in profile.kind_overrides:
        kernels = "no kernel"
        if own.kernels:
            kernels = plural(own.kernels, "kernel")
        made.append((own.pattern, f"{NAMES[own.kind]}: {kernels} of this report ({own.origin})"))
    return made


def time_table(runs: m.Runs) -> Table:
    """Milliseconds of a traced step, run by run and kind by kind."""
    found = [(run, kernels, parts(kernels)) for _, run, kernels in broken_down(runs)]
    present = {kind for *_, us in found for kind in us}
    kinds = [kind for kind, _, _ in KINDS if kind in present]
    rows: list[Cells] = []
    for run, kernels, us in found:
        step = step_us(kernels)
        fused = dict.fromkeys(kernels.fused_kinds, Cell(IN_FUSED))
        timed = {
            kind: Cell(milliseconds(spent), (percent(share_of(spent, step)),))
            for kind, spent in us.items()
        }
        cells = [(fused | timed).get(kind, Cell("0")) for kind in kinds]
        name = run.slug
        if not kernels.steps:
            name += " (whole window)"
        rows.append([name, *cells, milliseconds(step)])
    headings = ("run", *(NAMES[kind] for kind in kinds), "whole step")
    return plain("Time per step by kind", headings, rows)


def phase_table(runs: m.Runs) -> Table:
    """Empty where no run trains."""
    headings = ("run", *(phase.value for phase in m.TrainingPhase))
    rows: list[Cells] = [
        [run.slug, *(_phase_cell(part, phases) for part in phases.parts)]
        for _, run, phases in having(runs, "phases", m.TrainingPhases)
    ]
    return plain(
        "Training step by phase (data: a DataLoader, and copies to the GPU; forward: and all other "
        "operators; other: Python between them, also if it makes batches): ms per traced step on "
        "the CPU, and on the GPU",
        headings,
        rows,
    )


def _phase_cell(part: m.PhaseTime, phases: m.TrainingPhases) -> Cell:
    whole_us = sum(each.host_us for each in phases.parts)
    gpu = if_known(part.device_us, lambda us: f"GPU {milliseconds(us)}")
    return written(part.host_us, milliseconds, percent(share_of(part.host_us, whole_us)), *gpu)


# One letter a kind but idle, in their order, so that a bar can be read without its colours.
LETTERS = {kind: letter for (kind, _, _), letter in zip(KINDS, (*"GAVNPRISCMFO", ""), strict=True)}
_LETTER_FROM = 0.025  # of the bar's width: narrower segments carry no letter
_SHARE_FROM = 0.05  # from here on the share fits too on a wide screen
_SHARE_ALWAYS_FROM = 0.14  # and from here on also on a phone


class Part(View, kw_only=False):
    """A part of a bar: ``length`` of the full width, ``share`` of the whole that the bar shows;
    both 0..1."""

    kind: str
    letter: str
    length: float
    share: float
    title: str = ""


class Bar(Drawing, kw_only=False):
    description: str  # the bar in words
    parts: Sequence[Part]
    run: str = ""
    caption: str = ""
    anchor: str = ""

    @property
    def segments(self) -> Iterator[Shown]:
        """One after the other from the left; a letter and a share where there is room for them."""
        x = 0.0
        for part in self.parts:
            letter = share = ""
            if part.length >= _LETTER_FROM:
                letter = part.letter
            if part.length >= _SHARE_FROM:
                share = rounded(part.share)
            yield Shown(
                kind=part.kind,
                x=of_width(x),
                width=of_width(part.length),
                middle=of_width(x + part.length / 2),
                letter=letter,
                share=share,
                wide=part.length < _SHARE_ALWAYS_FROM,  # the share fits on a wide screen only
                title=part.title,
            )
            x += part.length


class Bars(Drawing, kw_only=False):
    bars: Sequence[Bar]


class LegendEntry(Drawing, kw_only=False):
    family: str  # FAMILY-KIND is the class of its colour
    kind: str
    name: str
    meaning: str = ""
    letter: str = ""


class Legend(Drawing, kw_only=False):
    entries: Sequence[LegendEntry]


def broken_down(runs: m.Runs) -> list[tuple[int, m.RunReport, m.KernelBreakdown]]:
    return having(runs, "kernels", m.KernelBreakdown)


def legend_of(family: str, *entries: Sequence[str]) -> Legend:
    """``entries``: kind and name, and where they have them a meaning and a letter."""
    return Legend([LegendEntry(family, *entry) for entry in entries])


def legend(present: Collection[str]) -> Sequence[LegendEntry]:
    return [
        LegendEntry("k", str(kind), name, meaning, LETTERS[kind])
        for kind, name, meaning in KINDS
        if kind in present
    ]


def lengths(what: str, unit: str, rows: Sequence[tuple[str, float]], *, marked: str = "") -> Drawn:
    """A row and a bar each, all on one scale."""
    longest = max((value for _, value in rows), default=0.0) or 1.0
    made = []
    for name, value in rows:
        words = figure(value)
        if unit == "cases":
            words = f"{value:,.0f}"
        width = of_width(max(value, 0.0) / longest)
        made.append(Shown(name=name, value=words, width=width, first=name == marked))
    return Drawn("lengths", Shown(what=what, unit=unit, rows=made))
