"""A traced training step by its phases: data, forward, backward, optimizer, and what is left."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kgprof import model as m
from kgprof.measures.attribution import GENERATED_CODE_PREFIX, REGION_PREFIX
from kgprof.reading import launches, timeline
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import Launched, Mask
from kgprof.reading.timeline import NOBODY

OPTIMIZER_SPANS = ("Optimizer.step#", "Optimizer.zero_grad#")
LOADER_SPANS = ("enumerate(DataLoader)#",)
BACKWARD_SPANS = ("autograd::engine::evaluate_function",)
ACCUMULATES = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
TO_THE_GPU = ("Memcpy HtoD",)
# What is inside two of them belongs to the first: an optimizer's closure runs a forward and a backward pass, and a
# backward pass may compute parts of the forward one again.
ORDER = (m.TrainingPhase.OPTIMIZER, m.TrainingPhase.DATA, m.TrainingPhase.BACKWARD, m.TrainingPhase.FORWARD)


def training_phases(run: RunEvidence) -> m.TrainingPhases | m.Skipped:
    """Of TRACE. Skipped where there is none, or where no optimizer and no backward pass ran in its steps."""
    trace, work = run.trace(m.PassName.TRACE), run.once(launches.launched_in_trace)
    if isinstance(trace, m.Skipped):
        return trace
    steps = timeline.profiler_steps(trace.columns)
    if not len(steps):
        return m.Skipped(reason="TRACE marked no steps")
    spans = _spans(trace.columns)
    if not spans[m.TrainingPhase.OPTIMIZER].any() and not spans[m.TrainingPhase.BACKWARD].any():
        return m.Skipped(reason="no optimizer and no backward pass ran in the traced steps")
    host = _host_ns(trace.columns, spans, steps)
    device = _device_ns(trace.columns, spans, work) if isinstance(work, Launched) and len(work.events) else {}
    unknown = m.Skipped(reason="work launched by no span counts as forward" if device else "nothing ran on a GPU")
    return m.TrainingPhases(
        steps=len(steps),
        backward_passes=_backward_passes(trace.columns, spans),
        parts=tuple(
            m.PhaseTime(
                phase=phase,
                host_us=host[phase] / 1000 / len(steps),
                device_us=device[phase] / 1000 / len(steps) if phase in device else unknown,
            )
            for phase in m.TrainingPhase
        ),
    )


def _spans(columns: Columns) -> dict[m.TrainingPhase, Mask]:
    """The host events that say so. A forward pass has none of its own: it is every other operator or compiled call."""
    annotated, operators = columns.of_category("user_annotation", "cpu_op"), columns.of_category("cpu_op")
    return {
        m.TrainingPhase.OPTIMIZER: columns.named(*OPTIMIZER_SPANS) & annotated,
        m.TrainingPhase.DATA: columns.named(*LOADER_SPANS) & annotated,
        m.TrainingPhase.BACKWARD: columns.named(*BACKWARD_SPANS) & operators,
        m.TrainingPhase.FORWARD: operators | columns.named(REGION_PREFIX, GENERATED_CODE_PREFIX) & annotated,
    }


def _backward_passes(columns: Columns, spans: dict[m.TrainingPhase, Mask]) -> int:
    """In a step with one optimizer's step, each with a forward pass before it: the fewest over the steps, else 1."""
    marks = timeline.step_marks(columns)
    steps = timeline.intervals_of(columns, marks)
    own_thread = np.isin(columns.thread, columns.thread[marks])
    others = spans[m.TrainingPhase.OPTIMIZER] | spans[m.TrainingPhase.DATA] | spans[m.TrainingPhase.BACKWARD]
    began, ended = np.sort(columns.start_ns[others]), np.sort(columns.end_ns[others])
    forward = columns.start_ns[spans[m.TrainingPhase.FORWARD] & own_thread & ~others]
    forward = forward[np.searchsorted(began, forward, side="right") == np.searchsorted(ended, forward, side="right")]
    # A pass that writes no gradient of a parameter (autograd.grad with create_graph) is part of the loss.
    backward = columns.start_ns[spans[m.TrainingPhase.BACKWARD] & columns.named(ACCUMULATES)]
    stepped = columns.start_ns[columns.named(OPTIMIZER_SPANS[0]) & columns.of_category("user_annotation", "cpu_op")]
    order = np.argsort(np.concatenate([forward, backward]), kind="stable")
    is_backward, at_ns = order >= len(forward), np.concatenate([forward, backward])[order]
    begins = at_ns[1:][is_backward[1:] & ~is_backward[:-1]]
    inside = [[np.sum((at >= start) & (at < end)) for start, end in steps.tolist()] for at in (begins, stepped)]
    return max(1, min((int(passes) if one == 1 else 1 for passes, one in zip(*inside, strict=True)), default=1))


def _host_ns(
    columns: Columns, spans: dict[m.TrainingPhase, Mask], steps: timeline.Intervals
) -> dict[m.TrainingPhase, int]:
    """Wall time of the steps, each moment counted once; the rest is Python between the operators."""
    window, taken = timeline.window_of(steps), np.empty((0, 2), np.int64)
    covered, found = 0, {}
    for phase in ORDER:
        taken = np.concatenate([taken, window.clip(timeline.intervals_of(columns, spans[phase]))])
        reached = timeline.union_ns(taken)
        found[phase], covered = reached - covered, reached
    return {**found, m.TrainingPhase.OTHER: window.duration_ns - covered}


def _device_ns(columns: Columns, spans: dict[m.TrainingPhase, Mask], work: Launched) -> dict[m.TrainingPhase, int]:
    """By the span that the launching call stood in. Copies to the GPU are data wherever they are launched."""
    durations = columns.duration_ns[work.events]
    left: npt.NDArray[np.bool_] = np.ones(len(work.events), np.bool_)
    found = {}
    for phase in ORDER[:-1]:
        here = launches.innermost(columns, spans[phase], work.calls) != NOBODY
        if phase is m.TrainingPhase.DATA:
            here |= columns.named(*TO_THE_GPU)[work.events]
        found[phase] = int(durations[left & here].sum())
        left &= ~here
    return {**found, m.TrainingPhase.FORWARD: int(durations[left].sum())}
