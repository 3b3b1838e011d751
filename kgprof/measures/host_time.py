"""What the host did in a step, as far as a trace names it: each moment belongs to the innermost event open then.

Only the thread that takes the steps is broken down, so the parts and the remainder add up to the step. Under
torch.profiler each event costs the host something of its own: read the parts against each other, not as times.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kgprof import model as m
from kgprof.measures import fused
from kgprof.measures.attribution import GENERATED_CODE_PREFIX, REGION_PREFIX
from kgprof.reading import timeline
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import LAUNCH_CATEGORIES, OWN_SPANS, WAITS, Launched
from kgprof.reading.timeline import NOBODY, STEP_PREFIX

HOST_CATEGORIES = ("cpu_op", "user_annotation", *LAUNCH_CATEGORIES)
GUARDS, PROLOGUE, WRAPPER = "Dynamo cache lookup (guards)", "prologue", "wrapper of the compiled code"
GENERATED, OPERATORS, AUTOGRAD = "generated kernels", "operators", "autograd engine"
LAUNCHES, WAITING, CALLS = "launch calls", "GPU syncs", "other CUDA calls"
SPANS, RECORDER, UNEXPLAINED = "user spans", "kgprof overhead", "unexplained"
PARTS = (
    *(GUARDS, PROLOGUE, WRAPPER, GENERATED, OPERATORS, AUTOGRAD, LAUNCHES, WAITING, CALLS, SPANS, RECORDER),
    UNEXPLAINED,  # the last, always
)
# Names of operators' events, first match wins; what matches none is an operator.
PREFIXES = (
    (UNEXPLAINED, (STEP_PREFIX,)),
    (GUARDS, ("TorchDynamo Cache Lookup",)),
    (RECORDER, (OWN_SPANS,)),
    (PROLOGUE, ("Pregraph bytecode", "AOTDispatcher Runtime Wrapper Prologue")),
    (WRAPPER, (REGION_PREFIX.strip(), GENERATED_CODE_PREFIX.strip(), "CompiledFunction", "inductor_wrapper_call")),
    (AUTOGRAD, ("autograd::engine::", "torch::autograd::")),
)

Numbers = npt.NDArray[np.int64]


def host_time(columns: Columns, work: Launched) -> m.HostTime | m.Skipped:
    """Per marked step. ``work`` says which calls put something on the device."""
    marks = np.flatnonzero(timeline.step_marks(columns))
    if not len(marks):
        return m.Skipped(reason="the trace marks no steps")
    thread = columns.thread[marks[0]]
    marks = marks[columns.thread[marks] == thread]
    steps = timeline.intervals_of(columns, marks[np.argsort(columns.start_ns[marks], kind="stable")])
    mine = np.flatnonzero(columns.of_category(*HOST_CATEGORIES) & (columns.thread == thread))
    part = np.append(_parts(columns, work)[mine], PARTS.index(UNEXPLAINED))  # NOBODY takes the last one
    # The steps are cut wherever the innermost event changes; of overlapping marks a moment is the later one's.
    owners, of_step = timeline.owners(timeline.intervals_of(columns, mine)), timeline.owners(steps)
    cuts = np.sort(np.concatenate([owners.start_ns, steps.ravel()]))
    cuts = cuts[np.append(True, cuts[1:] != cuts[:-1])]
    bounds = np.stack([cuts[:-1], cuts[1:]], axis=1)
    bounds = bounds[of_step.at(bounds[:, 0]) != NOBODY]
    owner, step = owners.at(bounds[:, 0]), of_step.at(bounds[:, 0])
    spent_ns = np.zeros((len(steps), len(PARTS)), np.int64)
    np.add.at(spent_ns, (step, part[owner]), bounds[:, 1] - bounds[:, 0])
    calls = np.bincount(part[:-1][of_step.at(columns.start_ns[mine]) != NOBODY], minlength=len(PARTS))
    # Of the stretches that nothing names, what another thread of the host was busy in.
    unnamed = bounds[part[owner] == PARTS.index(UNEXPLAINED)]
    others = columns.of_category("cpu_op", *LAUNCH_CATEGORIES) & (columns.thread != thread)
    busy = timeline.intervals_of(columns, others)
    either_ns = timeline.union_ns(np.concatenate([busy, unnamed]))
    elsewhere_ns = timeline.union_ns(busy) + timeline.union_ns(unnamed) - either_ns
    return m.HostTime(
        steps=len(steps),
        mean_us=float((steps[:, 1] - steps[:, 0]).mean()) / 1000,
        parts=tuple(
            m.StepPart(
                name=name,
                mean_us=float(spent.mean()) / 1000,
                median_us=float(np.median(spent)) / 1000,
                minimum_us=int(spent.min()) / 1000,
                maximum_us=int(spent.max()) / 1000,
                calls=None if name == UNEXPLAINED else number / len(spent),
            )
            for name, spent, number in zip(PARTS, spent_ns.T, calls.tolist(), strict=True)
            if spent.any() or name == UNEXPLAINED
        ),
        other_threads_us=elsewhere_ns / 1000 / len(steps),
    )


def _parts(columns: Columns, work: Launched) -> Numbers:
    """Of every event the index of its part; events of other categories than the host's have one that is not used."""
    parts = []
    for name in columns.names:
        frame = next((part for part, prefixes in PREFIXES if name.startswith(prefixes)), OPERATORS)
        parts.append(PARTS.index(GENERATED if fused.parse(name) is not None else frame))
    of_name = np.array(parts, np.int64)
    found: Numbers = of_name[columns.name]
    found[columns.of_category("user_annotation") & (found == PARTS.index(OPERATORS))] = PARTS.index(SPANS)
    calls = columns.of_category(*LAUNCH_CATEGORIES)
    found[calls] = PARTS.index(CALLS)
    found[work.calls[work.calls != NOBODY]] = PARTS.index(LAUNCHES)
    found[calls & columns.named(*WAITS)] = PARTS.index(WAITING)
    return found
