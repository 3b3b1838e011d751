"""Whether the GPU waits for the host: the device's work in a step against the step as nothing but a clock saw it.

The work is TRACE's (kernels and copies take as long under the profiler as without it), the step is TIMING's. The
profiler's own window would not do: it makes the host slower and so finds every short step idle. Without TIMING nothing
is said.
"""

from __future__ import annotations

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

IDLE_SHARE = 0.5  # of a step without work on the device, from here on
# Up to so much of the step for each launch, launching is what the host was busy with: an operator launched one by one
# took 10 to 19 us in the evaluator's eager and compiled steps on an H200.
US_PER_LAUNCH = 25.0
SPANS_SHOWN = 5

_MEASURED = (
    f"Both are taken where at least {100 * IDLE_SHARE:.0f} % of a step passes without work on the device: the work as "
    "TRACE saw it, the step as TIMING did, so that the profiler's own cost is in neither."
)
DEVICE_IDLE = m.Rule(
    id="KGP601",
    name="device-idle",
    level=m.Level.WARNING,
    summary="For most of the step the GPU has nothing to do: it waits for the host.",
    why=(
        "A faster kernel cannot shorten a step in which the device waits: the time goes to what the host does between "
        f"its launches. {_MEASURED} This rule is for a host that does other things than to launch: more than "
        f"{US_PER_LAUNCH:g} us of the step for each launch."
    ),
    example=(
        "loss.item() in every step: the host waits for the device to finish, and then the device waits for the host to "
        "launch the next step."
    ),
    remedy=(
        "Look at what the host did meanwhile (the finding's detail, and the table of idle time): take reads of tensors "
        f"out of the step ({syncs.HOST_DEVICE_SYNC.id}), prepare the next batch beforehand, let one CUDA graph replay "
        "the step (mode='reduce-overhead'), or give each step more work."
    ),
    topic=m.Topic.TIME,
    seen_in=((m.Witness.CUDA, m.Witness.TRACE, m.Witness.TIMING),),
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
    summary="The step is as long as the host takes to launch its kernels, which are shorter than their launches.",
    why=(
        "Each launch costs the host microseconds, and a kernel that is shorter than that is over before the next one "
        f"arrives. {_MEASURED} This rule is for a host that is busy launching: up to {US_PER_LAUNCH:g} us of the step "
        "for each launch. In mode eager it is a note, because compiling is what is there against it."
    ),
    example="Four hundred kernels of 2 us each, launched one by one in a step of 4 ms.",
    remedy=(
        "Launch less often: mode='reduce-overhead' replays the step as one CUDA graph; torch.compile fuses what lies "
        "between library calls; a larger batch makes each kernel longer for the same launch. Time it: small Linear "
        "layers in float32 may get slower matmuls when compiled, which "
        "torch.set_float32_matmul_precision('high') avoids."
    ),
    topic=m.Topic.TIME,
    seen_in=((m.Witness.CUDA, m.Witness.TRACE, m.Witness.TIMING),),
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
    if evidence.device != "cuda":
        return ()
    return tuple(event for run in evidence.runs for event in _of_run(run))


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
    idle = f"the device does nothing in {100 * event.idle_share:.0f} % of a step"
    work = f"{event.busy_us:,.0f} us of work in {event.step_us:,.0f} us"
    message = f"{idle}: {work}, and no launch"
    if event.launches:
        each = event.step_us / event.launches
        message = f"{idle}: {work}, with {event.launches:,.1f} launches, one every {each:,.1f} us"
    taken = f"step: median of {event.samples:,} steps, TIMING"
    lines = [taken, f"work and launches: mean of {event.steps:,} steps, TRACE"]
    if event.host_spans:
        lines.append("while the device waited the host was in, under the profiler:")
    lines += [f"  {span.total_us / event.steps:,.1f} us a step  {span.name}" for span in event.host_spans[:SPANS_SHOWN]]
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
            what="the device did nothing",
            measured_in=(m.PassName.TIMING, m.PassName.TRACE),
            samples=event.samples,
        ),
        saves=_saving(event) if rule is LAUNCH_BOUND else m.Skipped(reason="which of its reasons would go is unknown"),
        # Where there are no graphs yet; with them the launches that are left are another finding's.
        fix='torch.compile(..., mode="reduce-overhead")' if rule is LAUNCH_BOUND and event.graph_launches == 0 else "",
    )


def _saving(event: DeviceTime) -> m.Saving:
    return m.Saving(
        us_per_step=event.idle_us,
        how="the step's GPU idle time",
        measured_in=(m.PassName.TIMING, m.PassName.TRACE),
    )
