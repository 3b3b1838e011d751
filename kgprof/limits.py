"""What limits a run, from measured shares of its step.

    step (TIMING, or the traced step)
    ├── GPU busy (TRACE)  ── exposed collectives        -> communication
    │                     └─ kernels, by the roofline   -> compute, memory bandwidth, small kernels
    └── GPU idle (the rest)
        ├── CPU waits at a line (MEMORY)                -> sync, its own clock
        └── what the CPU did meanwhile (TRACE)          -> input, launches, host code

GPU work takes as long under torch.profiler as without it, the CPU does not: of TRACE's idle time
only the proportions are used. What nothing explains is ``UNKNOWN``; the shares always add up.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from kgprof import model as m
from kgprof.judge import APART
from kgprof.measures.times import ahead_words
from kgprof.wording import clause, figure, plural, short_name

# Of the step: from here on the GPU is mostly busy.
MOSTLY = 0.5
# Of the step: a share below it is not said to limit the step.
LEADS = 0.3
# Times the second largest share: what is not that much larger is not said to limit the step.
CLEARLY = 1.2
# Of a whole run: a smaller part is not named beside a larger one.
WORTH_NAMING = 0.05
# Times the median step of the run: traced steps above it are not like the others.
UNLIKE_OTHERS = 3.0
# Of the CPU's time while the GPU was idle: an operator above it, its forward and backward together,
# is slow itself and no launch.
STANDS_OUT = 0.5
MAKES_CODE = "torch compiles or records in a traced step, and the GPU waits for that, too"

EDGES = "before the first and after the last GPU work"
LOADER = "DataLoader"
LAUNCH_NOTHING = "operators that launch nothing"
PYTHON_BETWEEN = "Python between operators"
# Names in a trace, as torch 2.11 to 2.13 write them (torch/profiler, torch/utils/data/dataloader).
_PYTHON = ("(Python between traced operations)", "(outside any traced operation)")
_OPERATOR = "aten::"
_DIRECTIONS = ("_forward", "_backward")
_WAITS = (
    "aten::_local_scalar_dense",
    "aten::item",
    "aten::is_nonzero",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cudaStreamSynchronize",
    "hipDeviceSynchronize",
    "hipEventSynchronize",
    "hipStreamSynchronize",
)
_ALLOCATES = (
    *("cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaFreeHost", "cudaHostRegister"),
    *("hipMalloc", "hipFree", "hipHostMalloc", "hipHostFree", "hipHostRegister"),
)
_OF_BOUND = {
    m.Bound.COMPUTE: m.LimitKind.COMPUTE,
    m.Bound.MEMORY: m.LimitKind.MEMORY,
    m.Bound.LATENCY: m.LimitKind.SMALL_KERNELS,
}

_WORK = (*_OF_BOUND.values(), m.LimitKind.UNFUSED, m.LimitKind.COMMUNICATION)
# What torch.compile fuses, where eager code launches a kernel of ATen's own for each operator.
_FUSED_WHEN_COMPILED = (
    m.KernelKind.NORMALISATION,
    m.KernelKind.POINTWISE,
    m.KernelKind.REDUCTION,
    m.KernelKind.COPY,
)
# Of an optimizer's step over many tensors, which is fused in itself.
_FOREACH = "multi_tensor_apply_kernel"
# cuDNN's own, between the layout of the tensors and the one that its convolutions work in.
_LAYOUT_CHANGES = ("nchwToNhwcKernel", "nhwcToNchwKernel")

Part = tuple[m.LimitKind, str, float]  # kind, name, microseconds
# Microseconds per step that the CPU waits for the GPU: SYNC or CLOCK, and the line that waits.
Waits = Mapping[tuple[m.LimitKind, m.Location | None], float]


@m.skippable
def limits(
    run: m.RunReport, waits: Waits, unlike: str = "", loader_us: float | None = None
) -> m.RunLimits | m.Skipped:
    """Account for the step of a run on a GPU.

    ``unlike``: why the traced steps do not stand for TIMING's. The shares are then of the traced
    step, and nothing is decided. ``loader_us``: what a step waits for its DataLoader, as a finding
    says it. Where no steps are marked or timed, the traced window is one. Skipped where steps were
    timed and none is marked, or where they were traced on a CPU.
    """
    kernels = m.known(run.kernels)
    if kernels.device != "cuda":
        return m.Skipped("a CPU run has no second device that could wait")
    if not kernels.steps and isinstance(run.step, m.Spread):
        return m.Skipped("the trace marks no steps")
    busy_us = kernels.busy_us / _steps(kernels)
    step_us = kernels.window_us / _steps(kernels)
    untimed = bool(unlike) or not isinstance(run.step, m.Spread)
    parts: Sequence[Part] = ()
    if isinstance(kernels.idle, m.DeviceIdle) and kernels.idle.total_us:
        parts = causes(kernels.idle, with_reads=untimed)
    if isinstance(run.step, m.Spread) and not unlike:
        step_us = run.step.median
    step_us = max(step_us, busy_us)
    shares = [
        *_of_work(kernels, busy_us),
        *_of_idle(parts, step_us - busy_us, busy_us, waits, loader_us),
    ]
    shares.sort(key=lambda share: -share.us)
    replace = msgspec.structs.replace
    whole = tuple(replace(each, share=each.us / step_us) for each in shares if each.us > 0)
    found = m.RunLimits(step_us=step_us, busy_us=busy_us, shares=whole)
    return replace(found, undecided=unlike or _undecided(run, found))


def words(run: m.RunReport, *, says_step: bool = False) -> str:
    """Say what limits the run: what is paid once, where that is most of it, else its step; empty
    where neither is decided.

    ``says_step``: the sentence before it says what a step takes.
    """
    if is_of_the_whole(run):
        return f"limited by {whole_words(m.known(run.whole))}"
    return step_words(run, says_step=says_step)


@m.otherwise(())
def places(run: m.RunReport) -> Sequence[m.Location | None]:
    """The lines that ``words`` names."""
    if is_of_the_whole(run):
        return [each.location for each in m.known(run.whole).once if _has_place(each)]
    leading = m.known(run.limits).leading
    if leading is None or leading.name:
        return ()
    return [leading.location]


def is_of_the_whole(run: m.RunReport) -> bool:
    """Whether ``words`` is about what is paid once, whatever a step takes."""
    return isinstance(run.whole, m.WholeRun) and run.whole.leading is not None


@m.otherwise("")
def step_words(run: m.RunReport, *, says_step: bool = False) -> str:
    """Say what limits the step of a run; empty where that is not decided."""
    found = m.known(run.limits)
    leading = found.leading
    if leading is None:
        return ""
    mostly = clause(" (mostly ", most_of(leading), ")")
    whole = _whole(run, found, says_step)
    said = f"limited by {leading.limit}{mostly}: {100 * leading.share:.0f} % of {whole}"
    idle = m.known(run.kernels).idle
    if leading.limit is m.LimitKind.LOADING and isinstance(idle, m.DeviceIdle):
        calls = plural(idle.loading_calls, "launch call")
        said += (
            f", {calls} of 1 ms or more; if it holds the program's first steps, trace later ones"
        )
    return said


def is_gpu_bound(run: m.RunReport) -> bool:
    """Tell whether the GPU works in most of the step, as far as that was measured."""
    found = run.limits
    if not isinstance(found, m.RunLimits) or starts_ahead(run, found):
        return False
    step_us = found.step_us
    if isinstance(run.step, m.Spread):
        step_us = max(step_us, run.step.median)
    return found.busy_us >= m.GPU_BOUND * step_us


@m.otherwise(False)
def is_crowded(run: m.RunReport) -> bool:
    """Whether other processes were busy while a step took over APART times its CPU time, and not
    for the GPU: how long it takes alone is then not known."""
    is_long = m.known(run.step).median >= APART * m.known(run.cpu).median
    return m.known(run.load).is_high and is_long and not is_gpu_bound(run)


@m.otherwise("")
def starts_ahead(run: m.RunReport, found: m.RunLimits | m.Skipped) -> str:
    """Say that the time of a script's steps is that in which the CPU starts them; empty where the
    GPU's work is no longer."""
    step = m.known(run.step)
    if run.script is None:
        return ""
    return ahead_words(step.median, m.known(found).busy_us, _mean_us(run))


@m.otherwise(0.0)
def _mean_us(run: m.RunReport) -> float:
    """The time of all steps by their number, in the rerun without instruments."""
    account = m.known(run.account)
    if account.under_listeners:
        return 0.0
    steps_us = sum(each.us for each in account.phases if each.phase is m.RunPhase.STEPS)
    return steps_us / m.known(run.step).samples


@m.otherwise("")
def busy_words(run: m.RunReport) -> str:
    """Say how much of the step the GPU works; empty where that was not measured."""
    found = m.known(run.limits)
    of = f"{100 * found.busy_us / found.step_us:.0f} % of the"
    if not isinstance(run.step, m.Spread):
        return f"the GPU works {of} traced {_stretch(run)}"
    if found.step_us > run.step.median:
        return f"a traced step has {figure(found.busy_us / 1e3)} ms of GPU work"
    return f"the GPU works {of} step"


def kernel_words(run: m.RunReport) -> str:
    """Name the one kernel that runs for most of the traced steps; empty where none does."""
    kernels = run.gpu_kernels
    if kernels is None:
        return ""
    most = (row for row in kernels.rows if row.total_us > MOSTLY * kernels.window_us)
    does = "does {:.0f} % of the GPU's work"
    return "".join(f"{short_name(row.name)} {does.format(100 * row.share)}" for row in most)


def whole_words(found: m.WholeRun) -> str:
    """Name what is paid once, with its share of the run."""
    steps = plural(found.steps, "step")
    # a script's account is of a rerun with warm caches, which takes another time
    whole = f"of the {figure(found.total_us / 1e6)} s of its {steps}, with cold compile caches"
    first, *others = found.once
    parts = [f"{_paid(first)} ({100 * first.share:.0f} % {whole})"]
    for other in others:
        if other.share >= WORTH_NAMING:
            parts.append(f"{_paid(other)} ({100 * other.share:.0f} %)")
    return " and ".join(parts)


def _paid(share: m.LimitShare) -> str:
    if not _has_place(share):
        return share.limit
    return f"{share.limit}{clause(', mostly at ', most_of(share))}"


def _has_place(share: m.LimitShare) -> bool:
    """Whether its line is most of it: a loop's is not most of what compiling takes."""
    return share.limit is m.LimitKind.RECOMPILING


def most_of(share: m.LimitShare) -> str:
    """Name the operator, the call or the line that is most of it; empty where none stands out."""
    place = share.location
    if share.name or place is None:
        return share.name
    return f"{PurePosixPath(place.file).name}:{place.line}"


def _whole(run: m.RunReport, found: m.RunLimits, says_step: bool) -> str:
    """Name what the shares are of: no other time than the one that the report ranks by, unless it
    says which."""
    ms = f"{figure(found.step_us / 1e3)} ms"
    if not isinstance(run.step, m.Spread):
        return f"the traced {_stretch(run)} ({ms} under torch.profiler)"
    if found.step_us > run.step.median:
        return f"{ms} of GPU work per step"
    if says_step:
        return "the step"
    return f"the {ms} step"


def _stretch(run: m.RunReport) -> str:
    """Name what the shares of a run without TIMING are of."""
    if m.known(run.kernels).steps:
        return "step"
    return "window"


def _steps(kernels: m.KernelBreakdown) -> int:
    return max(1, kernels.steps)


def _part(limit: m.LimitKind, us: float, name: str = "") -> m.LimitShare:
    return m.LimitShare(limit, us, 0.0, name=name)


# ---------------------------------------------------------------- GPU busy


def _of_work(kernels: m.KernelBreakdown, busy_us: float) -> Iterator[m.LimitShare]:
    """Split GPU work: collectives that nothing hides, then kernels by their place in the roofline.

    Kernels that overlap are counted once: their sum is scaled to the time in which any ran.
    """
    exposed_us = 0.0
    if isinstance(kernels.communication, m.Communication):
        exposed_us = min(busy_us, kernels.communication.exposed_us / _steps(kernels))
        yield _part(m.LimitKind.COMMUNICATION, exposed_us)
    left_us = busy_us - exposed_us
    if not kernels.total_us:
        yield _part(m.LimitKind.UNKNOWN, left_us, "GPU kernels")
        return
    placed_us = sum(row.total_us for row in kernels.rows if row.name.startswith(m.PAGEABLE))
    yield _part(m.LimitKind.COPIES, left_us * placed_us / kernels.total_us)
    if isinstance(kernels.roofline, m.Roofline):
        for total in kernels.roofline.placed:
            if limit := _OF_BOUND.get(m.Bound(total.what)):
                placed_us += total.total_us
                yield _part(limit, left_us * total.total_us / kernels.total_us)
    name, unfused_us = _unfused(kernels)
    unfused_us = min(unfused_us, max(0.0, kernels.total_us - placed_us))
    placed_us += unfused_us
    yield _part(m.LimitKind.UNFUSED, left_us * unfused_us / kernels.total_us, name)
    unplaced = max(0.0, 1 - placed_us / kernels.total_us)
    yield _part(m.LimitKind.UNKNOWN, left_us * unplaced, "GPU kernels")


def _unfused(kernels: m.KernelBreakdown) -> tuple[str, float]:
    """What eager code's own kernels take that torch.compile fuses, and the kind that is most of
    it."""
    by_kind: defaultdict[m.KernelKind, float] = defaultdict(float)
    for row in kernels.rows:
        is_atens = row.generator == "aten" and _FOREACH not in row.name
        if row.kind in _FUSED_WHEN_COMPILED and (
            is_atens or any(name in row.name for name in _LAYOUT_CHANGES)
        ):
            by_kind[row.kind] += row.total_us
    total_us = sum(by_kind.values())
    most = next((kind for kind, us in by_kind.items() if us > MOSTLY * total_us), "")
    return str(most), total_us


# ---------------------------------------------------------------- GPU idle


def _of_idle(
    parts: Sequence[Part],
    idle_us: float,
    busy_us: float,
    waits: Waits,
    loader_us: float | None,
) -> Iterator[m.LimitShare]:
    """Split the time without GPU work: waits of the CPU first, the rest by what the CPU did.

    MEMORY and TRACE saw the same waits, and MEMORY knows the lines. Of a wait the GPU may work in
    all but what is longer than its work: that much counts, or what TRACE says, if it is more.
    """
    if idle_us <= 0:
        return
    if loader_us is not None:
        parts = [part for part in parts if part[0] is not m.LimitKind.INPUT]
        loader_us = min(loader_us, idle_us)
        idle_us -= loader_us
        yield _part(m.LimitKind.INPUT, loader_us, LOADER)
    in_trace_us = sum(us for _, _, us in parts) or 1.0
    others = [part for part in parts if part[0] is not m.LimitKind.SYNC]
    others_us = sum(us for _, _, us in others)
    seen_us = idle_us * sum(us for limit, _, us in parts if limit is m.LimitKind.SYNC) / in_trace_us
    waited_us = sum(waits.values())
    synced_us = min(idle_us, max(seen_us, waited_us - busy_us))
    counted = min(1.0, synced_us / (waited_us or 1.0))
    for (limit, location), us in waits.items():
        yield m.LimitShare(limit, us * counted, 0.0, location=location)
    yield _part(m.LimitKind.SYNC, synced_us - waited_us * counted)
    if not others:
        yield _part(m.LimitKind.UNKNOWN, idle_us - synced_us, "GPU idle")
    for limit, name, us in others:
        yield _part(limit, (idle_us - synced_us) * us / others_us, name)


def causes(
    idle: m.DeviceIdle, loader_share: float | None = None, *, with_reads: bool = False
) -> Sequence[Part]:
    """Name what the GPU waited for, largest first; the parts add up to ``idle.total_us``, without
    reads of tensors on the CPU unless asked for: kgprof's listener makes them long.

    ``loader_share``: of the DataLoader in it, where another pass says more about that.
    """
    sums: dict[tuple[m.LimitKind, str], float] = {}
    for limit, name, us in _waited_for(idle, with_reads):
        sums[limit, name] = sums.get((limit, name), 0.0) + us
    if loader_share is not None:
        total_us = sum(sums.values())
        others_us = total_us - sums.pop((m.LimitKind.INPUT, LOADER), 0.0)
        left = total_us * (1 - loader_share) / (others_us or 1.0)
        sums = {part: us * left for part, us in sums.items()}
        sums[m.LimitKind.INPUT, LOADER] = total_us * loader_share
    parts = [(limit, name, us) for (limit, name), us in sums.items()]
    return sorted(parts, key=lambda part: -part[2])


def _waited_for(idle: m.DeviceIdle, with_reads: bool) -> Iterator[Part]:
    """Give each stretch of the trace its cause."""
    yield m.LimitKind.LAUNCHES, "", idle.launch_us - idle.copy_launch_us - idle.loading_us
    yield m.LimitKind.LOADING, "", idle.loading_us
    yield m.LimitKind.COPIES, "", idle.copy_launch_us
    yield m.LimitKind.UNKNOWN, "GPU idle", idle.unknown_us
    yield m.LimitKind.UNKNOWN, EDGES, idle.edges_us
    spans = [span for span in idle.host_spans if with_reads or span.name != m.READS_ON_CPU]
    slow = standing_out(idle)
    called = " and ".join(slow)
    for span in spans:
        if span.name in slow:
            yield m.LimitKind.HOST, called, span.total_us
        else:
            yield *_of_span(span), span.total_us


def standing_out(idle: m.DeviceIdle) -> tuple[str, ...]:
    """Name the operator, forward and backward, that most of the CPU's time passed in while the GPU
    waited; empty where it launched many in turn."""
    sums: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for span in idle.host_spans:
        if span.name.startswith(_OPERATOR) and span.name not in _WAITS:
            sums[_without_direction(span.name)][span.name] = span.total_us
    slow = (each for each in sums.values() if sum(each.values()) >= STANDS_OUT * idle.host_us)
    return tuple(next(slow, ()))


def _without_direction(operator: str) -> str:
    for direction in _DIRECTIONS:
        operator = operator.removesuffix(direction)
    return operator


def _of_span(span: m.HostSpan) -> tuple[m.LimitKind, str]:
    """Tell from its name what a span of the CPU's is."""
    if span.name == m.READS_ON_CPU:
        return m.LimitKind.UNKNOWN, span.name.strip("()")
    if span.name.startswith(m.LOADER_PREFIX):
        return m.LimitKind.INPUT, LOADER
    if span.name == m.BETWEEN_COPIES:
        return m.LimitKind.COPIES, ""
    if span.name in _WAITS:
        return m.LimitKind.SYNC, ""
    if span.name.startswith(_PYTHON):
        _, _, optimizer = span.name.partition(" in Optimizer.step#")
        return m.LimitKind.HOST, clause("Python of ", optimizer) or PYTHON_BETWEEN
    if span.name in _ALLOCATES:
        return m.LimitKind.HOST, span.name
    if span.on_cpu:
        return m.LimitKind.HOST, LAUNCH_NOTHING
    return m.LimitKind.LAUNCHES, ""


# ---------------------------------------------------------------- decided or not


def _undecided(run: m.RunReport, found: m.RunLimits) -> str:
    """Say why the largest kind is not the limit; empty where it is."""
    busy_share = found.busy_us / found.step_us
    of = "of the step"
    if not m.known(run.kernels).steps:
        of = "of the window"
    if unlike := starts_ahead(run, found) or _is_unlike_others(run, found):
        return unlike
    largest, *others = found.by_kind
    if largest.limit is m.LimitKind.CLOCK:
        return f"the program's own clock waits for {100 * largest.share:.0f} % {of}"
    others = [share for share in others if share.limit is not m.LimitKind.CLOCK]
    is_work = largest.limit in _WORK
    if not is_work and makes_code(m.known(run.kernels)):
        return MAKES_CODE
    if largest.limit is m.LimitKind.UNKNOWN:
        named = clause(" (mostly ", largest.name, ")")
        return f"{100 * largest.share:.0f} % {of} is unexplained{named}"
    if largest.share < LEADS:
        return f"no limit takes {100 * LEADS:.0f} % {of}"
    if others and largest.share < CLEARLY * others[0].share:
        both = f"{largest.limit} ({100 * largest.share:.0f} %) and {others[0].limit}"
        return f"{both} ({100 * others[0].share:.0f} %) take similar shares {of}"
    # The larger half decides: a GPU that is mostly idle is not said to be limited by its kernels.
    is_busy = busy_share > MOSTLY
    if largest.limit is m.LimitKind.COPIES or is_work == is_busy:
        return ""
    state = f"idle for {100 * (1 - busy_share):.0f} %"
    if is_busy:
        state = f"busy for {100 * busy_share:.0f} %"
    return f"the GPU is {state} of the step, for several reasons"


@m.otherwise(True)
def makes_code(kernels: m.KernelBreakdown) -> bool:
    """Whether one of the traced steps is none in which torch only runs what it has made before."""
    if not kernels.steps:
        spans = m.known(kernels.idle).host_spans
        return any(span.name.endswith(m.TIMED_BY_TORCH) for span in spans)
    return m.known(kernels.host_time).steps < kernels.steps


@m.otherwise("")
def _is_unlike_others(run: m.RunReport, found: m.RunLimits) -> str:
    """Say that the traced steps, where they stand in for TIMING's, took longer than the others."""
    if isinstance(run.step, m.Spread):
        return ""
    usual = m.known(m.known(run.compile).steady)
    traced, others = figure(found.step_us / 1e3), figure(usual.median / 1e3)
    if found.step_us > UNLIKE_OTHERS * usual.median:
        return (
            f"the traced steps took {traced} ms on average, and the median step of the run "
            f"{others} ms"
        )
    if usual.median * MOSTLY < found.busy_us <= found.step_us * MOSTLY:
        work = figure(found.busy_us / 1e3)
        return f"a step takes {others} ms without torch.profiler, and has {work} ms of GPU work"
    return ""
