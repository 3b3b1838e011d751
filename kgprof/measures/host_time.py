"""A traced step of the host, divided twice: by what was open in each moment, and by the phases of a
training step.

``host_time`` gives each moment to the innermost event open then, on the thread that takes the steps
alone, so the parts and the remainder add up to the step. ``training_phases`` gives it to data,
forward, backward or optimizer, on any thread. Under torch.profiler each event costs the host
something of its own: read the parts against each other, not as times.
"""

import numpy as np

from kgprof import model as m
from kgprof.measures import kernel_kinds
from kgprof.measures.collectives import GENERATED_CODE_PREFIX, REGION_PREFIX
from kgprof.reading import launches, timeline
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import LAUNCH_CATEGORIES, OWN_SPANS, WAITS, Launched, Mask
from kgprof.reading.timeline import NOBODY, STEP_PREFIX, Numbers

HOST_CATEGORIES = ("cpu_op", "user_annotation", *LAUNCH_CATEGORIES)
GUARDS, PROLOGUE, WRAPPER = (
    "Dynamo cache lookup (guards)",
    "prologue",
    "wrapper of the compiled code",
)
GENERATED, OPERATORS, AUTOGRAD = "generated kernels", "operators", "autograd engine"
LAUNCHES, WAITING, CALLS = "launch calls", "GPU syncs", "other CUDA calls"
SPANS, RECORDER, UNEXPLAINED = "user spans", "kgprof overhead", "unexplained"
PARTS = (
    GUARDS,
    PROLOGUE,
    WRAPPER,
    GENERATED,
    OPERATORS,
    AUTOGRAD,
    LAUNCHES,
    WAITING,
    CALLS,
    SPANS,
    RECORDER,
    UNEXPLAINED,  # the last, always
)
# Names of operators' events, first match wins; what matches none is an operator.
PREFIXES = (
    (UNEXPLAINED, (STEP_PREFIX,)),
    (GUARDS, ("TorchDynamo Cache Lookup",)),
    (RECORDER, (OWN_SPANS,)),
    (PROLOGUE, ("Pregraph bytecode", "AOTDispatcher Runtime Wrapper Prologue")),
    (
        WRAPPER,
        (
            REGION_PREFIX.strip(),
            GENERATED_CODE_PREFIX.strip(),
            "CompiledFunction",
            "inductor_wrapper_call",
        ),
    ),
    (AUTOGRAD, ("autograd::engine::", "torch::autograd::")),
)


def host_time(columns: Columns, work: Launched) -> m.HostTime | m.Skipped:
    """Per marked step. ``work`` says which calls put something on the device."""
    marks = launches.usual_steps(columns)
    if not len(marks):
        return m.Skipped(
            "the trace marks no steps, or torch compiled or recorded a CUDA graph in each"
        )
    thread = columns.thread[marks[0]]
    steps = timeline.intervals_of(columns, marks[columns.thread[marks] == thread])
    mine = np.flatnonzero(columns.of_category(*HOST_CATEGORIES) & (columns.thread == thread))
    # NOBODY takes the last one
    part = np.append(_parts(columns, work)[mine], PARTS.index(UNEXPLAINED))
    # The steps are cut wherever the innermost event changes; of overlapping marks a moment is the
    # later one's.
    owners = timeline.owners(timeline.intervals_of(columns, mine))
    of_step = timeline.owners(steps)
    cuts = np.sort(np.concatenate([owners.start_ns, steps.ravel()]))
    cuts = cuts[np.append(True, cuts[1:] != cuts[:-1])]
    bounds = np.stack([cuts[:-1], cuts[1:]], axis=1)
    bounds = bounds[of_step.at(bounds[:, 0]) != NOBODY]
    owner = owners.at(bounds[:, 0])
    step = of_step.at(bounds[:, 0])
    spent_ns = np.zeros((len(steps), len(PARTS)), np.int64)
    np.add.at(spent_ns, (step, part[owner]), bounds[:, 1] - bounds[:, 0])
    calls = np.bincount(
        part[:-1][of_step.at(columns.start_ns[mine]) != NOBODY], minlength=len(PARTS)
    )
    # Of the stretches that nothing names, what another thread of the host was busy in.
    unnamed = bounds[part[owner] == PARTS.index(UNEXPLAINED)]
    others = columns.of_category("cpu_op", *LAUNCH_CATEGORIES) & (columns.thread != thread)
    busy = timeline.intervals_of(columns, others)
    either_ns = timeline.union_ns(np.concatenate([busy, unnamed]))
    elsewhere_ns = timeline.union_ns(busy) + timeline.union_ns(unnamed) - either_ns
    parts = []
    for name, spent, number in zip(PARTS, spent_ns.T, calls.tolist(), strict=True):
        each = None
        if name != UNEXPLAINED:
            each = number / len(spent)
        if spent.any() or name == UNEXPLAINED:
            middle_us = float(np.median(spent)) / 1000
            ends_us = int(spent.min()) / 1000, int(spent.max()) / 1000
            mean_us = float(spent.mean()) / 1000
            parts.append(m.StepPart(name, mean_us, middle_us, *ends_us, each))
    return m.HostTime(
        steps=len(steps),
        mean_us=float((steps[:, 1] - steps[:, 0]).mean()) / 1000,
        parts=tuple(parts),
        other_threads_us=elsewhere_ns / 1000 / len(steps),
    )


def _parts(columns: Columns, work: Launched) -> Numbers:
    """Of every event the index of its part; events of other categories than the host's have one
    that is not used."""
    parts = []
    for name in columns.names:
        part = next((part for part, prefixes in PREFIXES if name.startswith(prefixes)), OPERATORS)
        if kernel_kinds.parse(name) is not None:
            part = GENERATED
        parts.append(PARTS.index(part))
    of_name = np.array(parts, np.int64)
    found: Numbers = of_name[columns.name]
    spans = columns.of_category("user_annotation") & (found == PARTS.index(OPERATORS))
    found[spans] = PARTS.index(SPANS)
    calls = columns.of_category(*LAUNCH_CATEGORIES)
    found[calls] = PARTS.index(CALLS)
    found[work.calls[work.calls != NOBODY]] = PARTS.index(LAUNCHES)
    found[calls & columns.named(*WAITS)] = PARTS.index(WAITING)
    return found


OPTIMIZER_SPANS = ("Optimizer.step#", "Optimizer.zero_grad#")
LOADER_SPANS = ("enumerate(DataLoader)#",)
BACKWARD_SPANS = ("autograd::engine::evaluate_function",)
# not called by autograd.grad or torch.func.grad, which return it
ACCUMULATES = "torch::autograd::AccumulateGrad"
TO_THE_GPU = ("Memcpy HtoD",)
# What is inside two of them belongs to the first: a backward pass may compute parts of the forward
# one again.
ORDER = (
    m.TrainingPhase.OPTIMIZER,
    m.TrainingPhase.DATA,
    m.TrainingPhase.BACKWARD,
    m.TrainingPhase.FORWARD,
)


@m.skippable
def training_phases(run: RunEvidence) -> m.TrainingPhases | m.Skipped:
    """Of TRACE. Skipped where there is none, where torch compiles or records a CUDA graph in one of
    its steps, where no step of an optimizer is marked in it, as of a compiled one, and where such a
    step runs a backward pass of its own, as in LBFGS's closure."""
    columns = m.known(run.trace()).columns
    work = run.once(launches.launched_in_trace)
    steps = timeline.profiler_steps(columns)
    if not len(steps):
        return m.Skipped("TRACE marked no steps")
    if len(launches.usual_steps(columns)) < len(steps):
        return m.Skipped("torch compiled, or recorded a CUDA graph, in a traced step")
    # The host events that say so. A forward pass has none of its own: it is every other operator or
    # compiled call.
    annotated = columns.of_category("user_annotation", "cpu_op")
    operators = columns.of_category("cpu_op")
    spans = {
        m.TrainingPhase.OPTIMIZER: columns.named(*OPTIMIZER_SPANS) & annotated,
        m.TrainingPhase.DATA: columns.named(*LOADER_SPANS) & annotated,
        m.TrainingPhase.BACKWARD: columns.named(*BACKWARD_SPANS) & operators,
        m.TrainingPhase.FORWARD: operators
        | columns.named(REGION_PREFIX, GENERATED_CODE_PREFIX) & annotated,
    }
    stepping = columns.named(OPTIMIZER_SPANS[0]) & annotated
    if not stepping.any():
        return m.Skipped("TRACE marks no step of an optimizer: none ran, or it is compiled")
    optimizers = timeline.owners(timeline.intervals_of(columns, np.flatnonzero(stepping)))
    backward_ns = columns.start_ns[spans[m.TrainingPhase.BACKWARD]]
    if (optimizers.at(backward_ns) != NOBODY).any():
        return m.Skipped("the optimizer's step runs backward passes of its own")
    # Wall time of the steps, each moment counted once; the rest is Python between the operators.
    window = timeline.window_of(steps)
    taken = np.empty((0, 2), np.int64)
    covered = 0
    found = {}
    for phase in ORDER:
        taken = np.concatenate([taken, window.clip(timeline.intervals_of(columns, spans[phase]))])
        reached = timeline.union_ns(taken)
        found[phase], covered = reached - covered, reached
    host = {**found, m.TrainingPhase.OTHER: window.duration_ns - covered}
    device: dict[m.TrainingPhase, int] = {}
    unknown = m.Skipped("nothing ran on a GPU")
    if isinstance(work, Launched) and len(work.events):
        device = _device_ns(columns, spans, work)
        unknown = m.Skipped("work launched by no span counts as forward")
    parts = []
    for phase in m.TrainingPhase:
        device_us: m.Figure = unknown
        if phase in device:
            device_us = device[phase] / 1000 / len(steps)
        parts.append(m.PhaseTime(phase, host[phase] / 1000 / len(steps), device_us))
    return m.TrainingPhases(
        steps=len(steps),
        backward_passes=_backward_passes(columns, spans),
        parts=tuple(parts),
    )


def _backward_passes(columns: Columns, spans: dict[m.TrainingPhase, Mask]) -> int:
    """In a step with one optimizer's step, each with a forward pass before it: the fewest over the
    steps, else 1."""
    marks = timeline.step_marks(columns)
    steps = timeline.intervals_of(columns, marks)
    own_thread = np.isin(columns.thread, columns.thread[marks])
    others = (
        spans[m.TrainingPhase.OPTIMIZER]
        | spans[m.TrainingPhase.DATA]
        | spans[m.TrainingPhase.BACKWARD]
    )
    began = np.sort(columns.start_ns[others])
    ended = np.sort(columns.end_ns[others])
    forward = columns.start_ns[spans[m.TrainingPhase.FORWARD] & own_thread & ~others]
    forward = forward[
        np.searchsorted(began, forward, side="right")
        == np.searchsorted(ended, forward, side="right")
    ]
    # A pass that writes no gradient of a parameter (autograd.grad with create_graph) is part of the
    # loss.
    backward = columns.start_ns[columns.of_category("cpu_op") & columns.named(ACCUMULATES)]
    stepped = columns.start_ns[
        columns.named(OPTIMIZER_SPANS[0]) & columns.of_category("user_annotation", "cpu_op")
    ]
    at_ns = np.concatenate([forward, backward])
    order = np.argsort(at_ns, kind="stable")
    is_backward = order >= len(forward)
    at_ns = at_ns[order]
    begins = at_ns[1:][is_backward[1:] & ~is_backward[:-1]]
    passes = []
    for start, end in steps.tolist():
        if np.sum((stepped >= start) & (stepped < end)) != 1:
            return 1
        passes.append(int(np.sum((begins >= start) & (begins < end))))
    return max(1, min(passes, default=1))


def _device_ns(
    columns: Columns, spans: dict[m.TrainingPhase, Mask], work: Launched
) -> dict[m.TrainingPhase, int]:
    """By the span that the launching call stood in. Copies to the GPU are data wherever they are
    launched."""
    durations = columns.duration_ns[work.events]
    left: Mask = np.ones(len(work.events), np.bool_)
    found = {}
    for phase in ORDER[:-1]:
        here = launches.innermost(columns, spans[phase], work.calls) != NOBODY
        if phase is m.TrainingPhase.DATA:
            here |= columns.named(*TO_THE_GPU)[work.events]
        found[phase] = int(durations[left & here].sum())
        left &= ~here
    return {**found, m.TrainingPhase.FORWARD: int(durations[left].sum())}
