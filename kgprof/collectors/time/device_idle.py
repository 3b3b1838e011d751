"""Whether the GPU waits for the host: the device's work in a step against the step as nothing but a
clock saw it.

The work is TRACE's (kernels and copies take as long under the profiler as without it), the step is
TIMING's. The profiler's own window would not do: it makes the host slower and so finds every short
step idle. Without TIMING nothing is said. Where the traced steps do not stand for TIMING's, the
most work of one is set against a short step.
"""

import statistics
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from kgprof import limits
from kgprof import model as m
from kgprof.collectors.compile import graph_breaks, recompiles, skipped_frames
from kgprof.collectors.event import Event, finding, of_each
from kgprof.collectors.graphs import cuda_graphs
from kgprof.collectors.tensors.tensor_facts import run_tensors
from kgprof.collectors.time import host_code, input_pipeline, optimizer_steps, slow_operators, syncs
from kgprof.measures import kernels
from kgprof.measures.traced_steps import TracedSteps, traced_steps
from kgprof.reading import launches
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.wording import figure, plural

IDLE_SHARE = 0.5  # of a step without work on the device, from here on
# Per step: with fewer, what surrounds the launches (guards, wrappers, a sync) is what takes the
# time, and replaying them as one saves next to nothing.
MANY_LAUNCHES = 8
MOSTLY = 0.5  # of the idle time: a cause above it is named
SPANS_SHOWN = 5
REPLAY = (
    'torch.compile(..., mode="reduce-overhead")  # clone results that are kept beyond its next call'
)
SIZES_CHANGE = (
    "no CUDA graph is proposed: compiled code takes sizes or numbers that change from call to "
    "call, and a graph would be recorded for each. Pad them to a few sizes (or use a static cache) "
    "first."
)
STEPS_CHANGE = (
    "no CUDA graph is proposed: most traced steps launch the same kernels over other grids, or "
    "copy other numbers of bytes, so that sizes change from step to step, and a graph would be "
    "recorded for each. Pad the inputs to a few sizes first."
)
RESULTS_KEPT = (
    "no CUDA graph is proposed: results of compiled code are kept beyond its next call, and a "
    "replay would overwrite them. Clone what is kept first."
)
GRADIENTS_GIVEN = (
    "no CUDA graph is proposed: the steps' gradients are results (torch.autograd.grad), and a "
    "replay would overwrite those that are kept beyond the next call. Clone what is kept first."
)
_MEASURED = (
    f"This rule and its twin apply if the GPU is idle for at least {100 * IDLE_SHARE:.0f} % of a "
    "step: GPU work comes from TRACE and the step time from TIMING, so neither includes the "
    "profiler's overhead."
)
_SEEN_IN = (
    *(m.Witness.CUDA, m.Witness.TRACE, m.Witness.LAUNCHES, m.Witness.STEPS, m.Witness.TIMING),
    m.Witness.WHAT_LIMITS,
)
DEVICE_IDLE = m.Rule(
    id="KGP601",
    name="device-idle",
    level=m.Level.WARNING,
    summary="The GPU is idle for most of the step, waiting for the CPU.",
    why=(
        "Faster kernels cannot shorten a step in which the GPU waits: the time goes to what the "
        f"CPU does between launches. {_MEASURED} This rule applies when the GPU mostly waits for "
        "something other than launches: Python between operators, one slow operator, operators on "
        "tensors of the CPU, the DataLoader, or several causes; or if the traced steps are unlike "
        "the others."
    ),
    example=(
        "loss.item() in every step: the CPU waits for the GPU to finish, then the GPU waits for "
        "the CPU to launch the next step."
    ),
    remedy=(
        "See what the CPU did meanwhile (the finding's detail and the table of idle time): take "
        f"syncs out of the step ({syncs.HOST_DEVICE_SYNC.id}), prepare the next batch beforehand, "
        "or give each step more work. Where sizes and numbers stay the same from call to call and "
        "no tensor is sparse, torch.compile is worth a try."
    ),
    topic=m.Topic.TIME,
    seen_in=(_SEEN_IN,),
    can_cost=(),
    judged_from_times=True,
    symptom_of=tuple(
        rule.id
        for rule in (
            *(*syncs.RULES, *graph_breaks.RULES, *recompiles.RULES),
            *(*input_pipeline.RULES, *optimizer_steps.RULES),
            *(*host_code.RULES, *slow_operators.RULES),
        )
    ),
)
LAUNCH_BOUND = m.Rule(
    id="KGP602",
    name="launch-bound",
    level=m.Level.WARNING,
    summary="Launch overhead limits the step: kernels finish faster than the CPU can launch them.",
    why=(
        "Each launch costs the CPU microseconds, and a kernel shorter than that ends before the "
        f"next one arrives. {_MEASURED} This rule applies when at least {100 * MOSTLY:.0f} % of "
        "the idle time passes in operators, compiled code and the calls that launch, by the "
        f"trace, if its steps are like the others, and a step has at least {MANY_LAUNCHES} "
        "launches. In mode eager it is a note, because compiling is the remedy."
    ),
    example="Four hundred kernels of 2 µs each, launched one by one in a step of 4 ms.",
    remedy=(
        "Fuse more, or enlarge the batch so that each kernel works longer per launch. If its "
        "inputs keep their sizes and none is sparse, Python does not branch on the value of a "
        "tensor, and no result is kept beyond the next call, replay the step as a CUDA graph "
        "(where CUDA graphs are on already, their own findings say why they do not help). Measure "
        "the result: small float32 "
        "Linear layers may get slower matmuls when compiled, which "
        "torch.set_float32_matmul_precision('high') avoids."
    ),
    topic=m.Topic.TIME,
    seen_in=(_SEEN_IN,),
    can_cost=(),
    judged_from_times=True,
    symptom_of=tuple(
        rule.id
        for rule in (
            *graph_breaks.RULES,
            *skipped_frames.RULES,
            *cuda_graphs.RULES,
            *optimizer_steps.RULES,
        )
    ),
    relieves=(m.LimitKind.LAUNCHES,),
)
RULES = (DEVICE_IDLE, LAUNCH_BOUND)


class DeviceTime(Event):
    """One run on a GPU: what a step takes, and how much of that the device works."""

    step_us: float  # median of TIMING; where the traced steps are unlike it, a short step
    unlike: str  # why they are; empty where they stand for it
    samples: int
    # a step of TRACE, mean, and two kernels at once count once; where they are unlike, the most
    busy_us: float
    steps: int  # of TRACE
    launches: float  # a step
    graph_launches: float | m.Skipped  # of them, whole CUDA graphs
    idle: m.DeviceIdle | m.Skipped  # of TRACE's window
    # a step: what it waits for its DataLoader, where the traced steps stand for TIMING's
    loader_us: float | None = None
    asks_for_graphs: bool = False  # torch.compile was asked for CUDA graphs
    # what speaks against a CUDA graph, as far as it was seen: one of the sentences above
    against_graphs: str = ""
    # a step: of ``idle_us``, inside of compiled regions; None where TRACE is unlike TIMING
    in_compiled_us: float | None = None

    @property
    def idle_us(self) -> float:
        return max(0.0, self.step_us - self.busy_us)

    @property
    def idle_share(self) -> float:
        return self.idle_us / self.step_us

    @property
    def main_cause(self) -> limits.Part | None:
        """What most of the idle time passed in; None where nothing accounts for most of it."""
        if not self.caused_us:
            return None
        largest = self.causes[0]
        if largest[2] < MOSTLY * self.caused_us:
            return None
        return largest

    @property
    def causes(self) -> Sequence[limits.Part]:
        if isinstance(self.idle, m.Skipped) or self.unlike == limits.MAKES_CODE:
            return ()
        if self.loader_us is None or not self.idle_us:
            return limits.causes(self.idle)
        return limits.causes(self.idle, min(1.0, self.loader_us / self.idle_us))

    @property
    def caused_us(self) -> float:
        """The idle time of TRACE's window of which the causes are shares."""
        return sum(us for _, _, us in self.causes)

    @property
    def is_launching(self) -> bool:
        cause = self.main_cause
        is_most = cause is not None and cause[0] is m.LimitKind.LAUNCHES
        return is_most and not self.unlike and self.launches >= MANY_LAUNCHES

    @property
    def may_replay(self) -> bool:
        """Whether compiled code is what launches, was not tried as a CUDA graph and may become
        one."""
        is_compiled = (self.in_compiled_us or 0.0) >= MOSTLY * self.idle_us
        is_free = self.graph_launches == 0 and not self.asks_for_graphs
        return is_compiled and is_free and not self.against_graphs


def collect(evidence: Evidence) -> tuple[DeviceTime, ...]:
    """Of runs on a GPU that have both passes."""
    return tuple(
        msgspec.structs.replace(event, against_graphs=_against_graphs(evidence, run))
        for run in evidence.on_gpu
        for event in _of_run(run)
    )


@m.otherwise(())
def _of_run(run: RunEvidence) -> tuple[DeviceTime, ...]:
    step_us = m.known(run.record.timing).every_us
    script = run.record.script
    if not step_us or (script is not None and script.traced):
        return ()  # of steps of another kind, nothing is said of these
    found = m.known(run.once(kernels.of_trace))
    if found.device != "cuda" or not found.steps:
        return ()
    launched = m.known(found.launches)
    traced = m.known(run.once(traced_steps))
    unlike = traced.extent.unlike
    if limits.makes_code(found):
        unlike = limits.MAKES_CODE
    step = statistics.median(step_us)
    busy_us = found.busy_us / found.steps
    loader_us = in_compiled_us = None
    if unlike:
        bare_us = m.known(run.record.trace).bare_us or step
        step = min(float(np.percentile(step_us, 10)), bare_us)
        busy_us = max(traced.work_us)
    else:
        loader_us = run.once(input_pipeline.loader_us)
        in_compiled_us = traced.idle_us(_regions(traced))
    if step <= 0:
        return ()  # by a clock that stood still
    return (
        DeviceTime(
            run=run.key,
            step_us=step,
            unlike=unlike,
            samples=len(step_us),
            busy_us=busy_us,
            steps=found.steps,
            launches=launched / found.steps,
            graph_launches=_per_step(found.graph_launches, found.steps),
            idle=found.idle,
            loader_us=loader_us,
            asks_for_graphs=run.compiler is not None
            and any(graph.cuda_graphs for graph in run.compiler.all.graphs),
            in_compiled_us=in_compiled_us,
        ),
    )


@m.skippable
def _per_step(launches: int | m.Skipped, steps: int) -> float:
    return m.known(launches) / steps


def _regions(traced: TracedSteps) -> launches.Indices:
    columns = traced.columns
    spans = columns.named(cuda_graphs.REGION) & columns.of_category("cpu_op", "user_annotation")
    return np.flatnonzero(spans)


def _against_graphs(evidence: Evidence, run: RunEvidence) -> str:
    if _sizes_change(run):
        return SIZES_CHANGE
    traced = run.once(traced_steps)
    if isinstance(traced, TracedSteps) and traced.change_their_sizes:
        return STEPS_CHANGE
    if isinstance(traced, TracedSteps) and traced.gives_gradients:
        return GRADIENTS_GIVEN
    watched = (each for each in evidence.once(run_tensors) if each.key == run.key)
    if any(each.keeps_results for each in watched):
        return RESULTS_KEPT
    return ""


def _sizes_change(run: RunEvidence) -> bool:
    """Whether torch made a symbol for a size or a number: a CUDA graph would be recorded for
    each."""
    trace = run.compiler
    return trace is not None and any(
        "create_symbol" in record.metadata for record in trace.all.records
    )


@of_each
def diagnose(event: DeviceTime) -> Iterator[m.Finding]:
    if event.idle_share < IDLE_SHARE:
        return
    rule, fix = DEVICE_IDLE, ""
    if event.is_launching:
        rule = LAUNCH_BOUND
        if event.may_replay:
            fix = REPLAY
    taken = f"step: median of {event.samples:,} steps, TIMING"
    lines = [taken, f"work and launches: mean of {event.steps:,} steps, TRACE"]
    if event.unlike:
        lines = [f"step: a short one, work: the most of {event.steps:,} steps in TRACE"]
        lines.append(event.unlike)
    spans = []
    if isinstance(event.idle, m.DeviceIdle) and event.unlike != limits.MAKES_CODE:
        spans = [span for span in event.idle.host_spans if span.name != m.READS_ON_CPU]
    if spans:
        lines.append("what the CPU did while the GPU waited, under the profiler:")
    lines += [
        f"  {span.total_us / event.steps:,.1f} µs per step  {span.words}"
        for span in spans[:SPANS_SHOWN]
    ]
    if rule is LAUNCH_BOUND and event.in_compiled_us and event.against_graphs:
        lines.append(event.against_graphs)
    yield finding(
        rule,
        event,
        _message(event),
        is_note=event.is_launching and event.run.mode == m.EAGER,
        detail="\n".join(lines),
        cost=m.FindingCost(
            event.idle_us,
            "us/step",
            "GPU idle time",
            (m.PassName.TIMING, m.PassName.TRACE),
            event.samples,
        ),
        saves=_saving(event, rule),
        fix=fix,
    )


def _message(event: DeviceTime) -> str:
    work = f"{event.busy_us:,.0f} of {event.step_us:,.0f} µs busy"
    idle = f"the GPU is idle {100 * event.idle_share:.0f} % of each step"
    launches = "no launches"
    if event.launches:
        each = figure(event.step_us / event.launches)
        launches = f"{plural(event.launches, 'launch', 'launches')}, one every {each} µs"
    message = f"{idle} ({work}, {launches})"
    if event.unlike:
        idle = f"the GPU is idle at least {100 * event.idle_share:.0f} % of the traced steps"
        message = f"{idle} (at most {work})"
    cause = event.main_cause
    if cause is None or cause[0] is m.LimitKind.UNKNOWN:
        return message
    limit, name, us = cause
    share = f"{100 * us / event.caused_us:.0f} % of that"
    if limit is m.LimitKind.LAUNCHES:
        return f"{message}; {share} while the CPU issues launches"
    if limit is m.LimitKind.COPIES:
        return f"{message}; {share} between {limit}"
    return f"{message}; {share} in {name or 'a sync'} on the CPU"


def _saving(event: DeviceTime, rule: m.Rule) -> m.Saving | m.Skipped:
    if event.unlike:
        return m.Skipped(event.unlike)
    if rule is DEVICE_IDLE:
        return m.Skipped("the idle time has several reasons, and which a fix removes is unknown")
    if event.may_replay:
        us, how = event.in_compiled_us or 0.0, "the GPU's idle time in compiled code"
    else:
        us, how = event.idle_us, "the step's GPU idle time"
    return m.Saving(us, how, (m.PassName.TIMING, m.PassName.TRACE))
