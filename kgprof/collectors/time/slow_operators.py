"""An operator of torch that works on the CPU for long while the GPU waits, and launches little."""

from collections.abc import Iterator, Set

import numpy as np

from kgprof import limits
from kgprof import model as m
from kgprof.collectors.event import Event, finding, on_gpu
from kgprof.measures import kernels
from kgprof.measures.traced_steps import Extent, TracedSteps, traced_steps
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.launches import Mask
from kgprof.wording import figure

WORTH_SHARE = 0.2  # of the step
MOSTLY = 0.5  # of its time, in as many steps as there are
SLOW_US = 200.0  # for each launch, of the CPU's time while the GPU waits

SLOW_OPERATOR = m.Rule(
    id="KGP613",
    name="gpu-waits-for-operator",
    level=m.Level.WARNING,
    summary="The GPU is idle while one operator of torch works on the CPU.",
    why=(
        "An operator launches a kernel in microseconds. One that takes far longer does something "
        "else first: cuDNN's attention, for one, makes a plan for each size of its inputs that it "
        "has not met, which takes milliseconds. Or it launches nothing: it computes on tensors of "
        "the CPU. An operator is named, its forward and backward "
        f"together, if most of the CPU's time while the GPU waits and {100 * WORTH_SHARE:.0f} % "
        f"of the traced step pass in it, at least {SLOW_US:.0f} µs for each kernel or copy that it "
        "launches, in most of the traced steps alike, and if the GPU is idle for that much of a "
        "step without the profiler, too."
    ),
    example="Attention over one more token in each step, by cuDNN.",
    remedy=(
        "An operator that launches nothing: make its tensors on the GPU, or take it out of the "
        "step. Any other: if the sizes of its inputs change, pad them to a few sizes. Attention "
        "may also run with another backend (with torch.nn.attention.sdpa_kernel(...)): compare "
        "both, since which is faster depends on the sizes."
    ),
    topic=m.Topic.TIME,
    seen_in=((m.Witness.CUDA, m.Witness.TRACE, m.Witness.LAUNCHES, m.Witness.STEPS),),
    can_cost=(m.CostKind.HOST,),
    judged_from_times=True,
    relieves=(m.LimitKind.HOST,),
)
RULES = (SLOW_OPERATOR,)


class SlowOperator(Event):
    """The operator of one run that stands out."""

    operator: str  # as the trace names it; of two names: forward and backward
    waits_us: float  # per traced step: the GPU's, while it runs
    launches: int
    traced_us: float  # of a step
    idle_us: float  # the GPU's per step, by TIMING if there is one
    extent: Extent

    @property
    def is_slow(self) -> bool:
        """Whether it does something else than launch, for a large part of the step."""
        total_us = self.waits_us * self.extent.steps
        takes_much = self.waits_us >= WORTH_SHARE * self.traced_us
        return takes_much and total_us >= SLOW_US * max(1, self.launches)


@on_gpu
def collect(run: RunEvidence) -> Iterator[SlowOperator]:
    traced, found = run.once(traced_steps), run.once(kernels.of_trace)
    if isinstance(traced, m.Skipped) or isinstance(found, m.Skipped) or not found.steps:
        return
    if isinstance(found.idle, m.Skipped):
        return
    names = limits.standing_out(found.idle)
    if not names:
        return
    columns = traced.columns
    spans = columns.called(*names)
    if _is_of_few_steps(traced, spans):
        return
    under = traced.launched_under(spans)
    launched = traced.work.events[under]
    kernels_of_it = {columns.names[name] for name in columns.name[launched].tolist()}
    waits_us = sum(span.total_us for span in found.idle.host_spans if span.name in names)
    place = _location(run, found, kernels_of_it)
    if not len(launched):
        place = _sampled(run, found, waits_us)
    yield SlowOperator(
        run=run.key,
        location=place,
        operator=" and ".join(names),
        waits_us=waits_us / found.steps,
        launches=len(launched),
        traced_us=found.window_us / found.steps,
        idle_us=traced.without_work_us,
        extent=traced.extent,
    )


def _is_of_few_steps(traced: TracedSteps, spans: Mask) -> bool:
    """Tell whether most of their time lies in few of the steps: an operator's first use, or a
    validation, which another step does not have."""
    columns = traced.columns
    step = np.searchsorted(traced.steps[:, 0], columns.start_ns[spans], side="right")
    lasted_ns = np.bincount(step, columns.duration_ns[spans], minlength=len(traced.steps) + 1)
    usual_ns = np.median(lasted_ns[1:]) * len(traced.steps)
    return bool(usual_ns < MOSTLY * lasted_ns.sum())


def _location(
    run: RunEvidence, found: m.KernelBreakdown, kernels_of_it: Set[str]
) -> m.Location | None:
    """Find the line of the project that all its kernels come from."""
    rows = [row for row in found.rows if row.name in kernels_of_it]
    places = {row.lines[0] for row in rows if row.lines}
    if len(places) != 1:
        return None
    (place,) = places
    return run.source.at(place.file, place.line, place.function)


def _sampled(run: RunEvidence, found: m.KernelBreakdown, waits_us: float) -> m.Location | None:
    """Find the line of the project without which the window is shorter than these waits."""
    trace = run.record.trace
    if isinstance(trace, m.Skipped) or trace.host_lines is None:
        return None
    for row in trace.host_lines.rows:
        if found.window_us - row.us < waits_us:
            return run.source.at(row.at.file, row.at.line, row.at.function)
    return None


def diagnose(events: tuple[SlowOperator, ...]) -> tuple[m.Finding, ...]:
    return tuple(
        _finding(event)
        for event in events
        # torch.profiler slows the CPU down: without it the GPU may be busy all the time
        if event.is_slow and event.idle_us >= WORTH_SHARE * event.extent.step_us
    )


def _finding(event: SlowOperator) -> m.Finding:
    waits, step = figure(event.waits_us / 1e3), figure(event.traced_us / 1e3)
    message = f"the GPU waits for {event.operator} on the CPU: {waits} of {step} ms per traced step"
    if event.launches:
        each = figure(event.waits_us * event.extent.steps / event.launches / 1e3)
        message += f", {each} ms per launch"
    else:
        message += "; it launches nothing"
    return finding(
        SLOW_OPERATOR,
        event,
        message,
        event.operator,
        cost=event.extent.cost(event.waits_us, "CPU time of the operator", (m.PassName.TRACE,)),
        saves=_saving(event),
    )


def _saving(event: SlowOperator) -> m.Saving | m.Skipped:
    """What makes it slow, sizes that come for the first time, may be seldom in other steps."""
    extent = event.extent
    if not extent.unlike and m.PassName.TIMING not in extent.measured_in:
        return m.Skipped("without TIMING it is not known of other steps than the traced ones")
    us = min(event.waits_us, event.idle_us)
    return extent.saving(us, "the CPU time of this operator")
