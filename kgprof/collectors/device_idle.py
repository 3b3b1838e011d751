"""Whether the GPU waits for the host: the device's work in a step against the step as nothing but a clock saw it.

The work is TRACE's (kernels and copies take as long under the profiler as without it), the step is TIMING's. The
profiler's own window would not do: it makes the host slower and so finds every short step idle. Without TIMING nothing
is said.
"""

import statistics
from collections.abc import Iterator

from kgprof import model as m
from kgprof.collectors import (
    cuda_graphs,
    graph_breaks,
    input_pipeline,
    optimizer_steps,
    recompiles,
    skipped_frames,
    syncs,
)
from kgprof.collectors.fingerprint import fingerprint
from kgprof.measures import kernels
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.wording import figure, plural

IDLE_SHARE = 0.5  # of a step without work on the device, from here on
# Up to so much of the step for each launch, launching is what the host was busy with: an operator launched one by one
# took 10 to 19 us in the evaluator's eager and compiled steps on an H200.
US_PER_LAUNCH = 25.0
SPANS_SHOWN = 5

_MEASURED = (
    f"This rule and its twin apply if the GPU is idle for at least {100 * IDLE_SHARE:.0f} % of a step: GPU work comes "
    "from TRACE and the step time from TIMING, so neither includes the profiler's overhead."
)
DEVICE_IDLE = m.Rule(
    id="KGP601",
    name="device-idle",
    level=m.Level.WARNING,
    summary="The GPU is idle for most of the step, waiting for the CPU.",
    why=(
        "Faster kernels cannot shorten a step in which the GPU waits: the time goes to what the CPU does between "
        f"launches. {_MEASURED} This rule applies when the CPU is busy with work other than launching: more than "
        f"{US_PER_LAUNCH:g} µs of the step per launch."
    ),
    example=(
        "loss.item() in every step: the CPU waits for the GPU to finish, then the GPU waits for the CPU to launch "
        "the next step."
    ),
    remedy=(
        "See what the CPU did meanwhile (the finding's detail and the table of idle time): take syncs out of the "
        f"step ({syncs.HOST_DEVICE_SYNC.id}), prepare the next batch beforehand, replay the step as one CUDA graph "
        "(mode='reduce-overhead'), or give each step more work."
    ),
    topic=m.Topic.TIME,
    seen_in=((m.Witness.CUDA, m.Witness.TRACE, m.Witness.LAUNCHES, m.Witness.STEPS, m.Witness.TIMING),),
    can_cost=(),
    judged_from_times=True,
    symptom_of=tuple(
        rule.id
        for rule in (
            *(*syncs.RULES, *graph_breaks.RULES, *recompiles.RULES),
            *(*input_pipeline.RULES, *optimizer_steps.RULES),
        )
    ),
)
LAUNCH_BOUND = m.Rule(
    id="KGP602",
    name="launch-bound",
    level=m.Level.WARNING,
    summary="Launch overhead limits the step: kernels finish faster than the CPU can launch them.",
    why=(
        "Each launch costs the CPU microseconds, and a kernel shorter than that ends before the next one arrives. "
        f"{_MEASURED} This rule applies when the CPU is busy launching: at most {US_PER_LAUNCH:g} µs of the step per "
        "launch. In mode eager it is a note, because compiling is the remedy."
    ),
    example="Four hundred kernels of 2 µs each, launched one by one in a step of 4 ms.",
    remedy=(
        "Use CUDA graphs (mode='reduce-overhead' replays the step as one), fuse more, or enlarge the batch so that "
        "each kernel works longer per launch. Measure the result: small float32 Linear layers may get slower matmuls "
        "when compiled, which torch.set_float32_matmul_precision('high') avoids."
    ),
    topic=m.Topic.TIME,
    seen_in=((m.Witness.CUDA, m.Witness.TRACE, m.Witness.LAUNCHES, m.Witness.STEPS, m.Witness.TIMING),),
    can_cost=(),
    judged_from_times=True,
    symptom_of=tuple(
        rule.id for rule in (*graph_breaks.RULES, *skipped_frames.RULES, *cuda_graphs.RULES, *optimizer_steps.RULES)
    ),
)
RULES = (DEVICE_IDLE, LAUNCH_BOUND)


class DeviceTime(m.Model, frozen=True, kw_only=True):
    """One run on a GPU: what a step takes, and how much of that the device works."""

    run: m.RunKey
    step_us: float  # median of TIMING
    samples: int
    busy_us: float  # a step of TRACE, mean; two kernels at once count once
    steps: int  # of TRACE
    launches: float  # a step
    graph_launches: float | m.Skipped  # of them, whole CUDA graphs
    host_spans: tuple[m.HostSpan, ...]  # of TRACE's window, while the device waited for the host

    @property
    def idle_us(self) -> float:
        return max(0.0, self.step_us - self.busy_us)

    @property
    def idle_share(self) -> float:
        return max(0.0, 1 - self.busy_us / self.step_us)

    @property
    def is_launching(self) -> bool:
        return self.launches > 0 and self.step_us / self.launches <= US_PER_LAUNCH


def collect(evidence: Evidence) -> tuple[DeviceTime, ...]:
    """Of runs on a GPU that have both passes."""
    return tuple(event for run in evidence.on_gpu for event in _of_run(run))


def _of_run(run: RunEvidence) -> Iterator[DeviceTime]:
    timing = run.record.timing
    step_us = [us for group in timing.step_us for us in group] if isinstance(timing, m.TimingPass) else []
    if not step_us:
        return
    found = run.once(kernels.of_trace)
    if isinstance(found, m.Skipped) or isinstance(found.launches, m.Skipped):
        return
    if found.device != "cuda" or not found.steps:
        return
    yield DeviceTime(
        run=run.key,
        step_us=statistics.median(step_us),
        samples=len(step_us),
        busy_us=found.busy_us / found.steps,
        steps=found.steps,
        launches=found.launches / found.steps,
        graph_launches=(
            found.graph_launches if isinstance(found.graph_launches, m.Skipped) else found.graph_launches / found.steps
        ),
        host_spans=() if isinstance(found.idle, m.Skipped) else found.idle.host_spans,
    )


def diagnose(events: tuple[DeviceTime, ...]) -> tuple[m.Finding, ...]:
    return tuple(_finding(event) for event in events if event.idle_share >= IDLE_SHARE)


def _finding(event: DeviceTime) -> m.Finding:
    rule = LAUNCH_BOUND if event.is_launching else DEVICE_IDLE
    expected = event.is_launching and event.run.mode == m.EAGER
    idle = f"the GPU is idle {100 * event.idle_share:.0f} % of each step"
    work = f"{event.busy_us:,.0f} of {event.step_us:,.0f} µs busy"
    message = f"{idle} ({work}, no launches)"
    if event.launches:
        each = event.step_us / event.launches
        message = f"{idle} ({work}, {plural(event.launches, 'launch', 'launches')}, one every {figure(each)} µs)"
    taken = f"step: median of {event.samples:,} steps, TIMING"
    lines = [taken, f"work and launches: mean of {event.steps:,} steps, TRACE"]
    if event.host_spans:
        lines.append("what the CPU did while the GPU waited, under the profiler:")
    lines += [
        f"  {span.total_us / event.steps:,.1f} µs per step  {span.name}" for span in event.host_spans[:SPANS_SHOWN]
    ]
    return m.Finding(
        rule=rule.id,
        level=m.Level.NOTE if expected else rule.level,
        message=message,
        run=event.run,
        fingerprint=fingerprint(rule.id, event.run),
        detail="\n".join(lines),
        cost=m.FindingCost(
            value=event.idle_us,
            unit="us/step",
            what="GPU idle time",
            measured_in=(m.PassName.TIMING, m.PassName.TRACE),
            samples=event.samples,
        ),
        saves=_saving(event)
        if rule is LAUNCH_BOUND
        else m.Skipped(reason=("the idle time has several reasons, and which a fix removes is unknown")),
        # Where there are no graphs yet; with them the launches that are left are another finding's.
        fix='torch.compile(..., mode="reduce-overhead")' if rule is LAUNCH_BOUND and event.graph_launches == 0 else "",
    )


def _saving(event: DeviceTime) -> m.Saving:
    return m.Saving(
        us_per_step=event.idle_us, how="the step's GPU idle time", measured_in=(m.PassName.TIMING, m.PassName.TRACE)
    )
