"""Device time by the span of the host that launched it, and what collectives take of it, on one
rank and between ranks.

A span is a step, a compiled region or one of the user's own. Collectives are one sum for a rank;
between ranks they are matched step by step, for how long each rank waits in them for the others:
who comes early waits inside a collective for the last one, and all leave it together. So a rank's
wait is what its collective takes longer than that of the rank that came last, whose is the
shortest. Only durations are compared: the clocks of two machines are not one, and of two processes
on one machine torch.profiler's were seen 7 ms apart.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kgprof import model as m
from kgprof.measures.kernel_kinds import Kinds, kinds_of
from kgprof.reading import launches, timeline
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import Launched, Mask
from kgprof.reading.timeline import NOBODY, STEP_PREFIX

REGION_PREFIX = "Torch-Compiled Region: "  # and the compile id
# Inductor's, an annotation where shapes are recorded
GENERATED_CODE_PREFIX = "## Call CompiledFxGraph "
UNATTRIBUTED = "(unattributed)"
# What a trace of the CPU shows of a collective: c10d's span from its issue to its end, on a thread
# of its backend, and the operators that issue it or wait for it.
COLLECTIVE_SPANS = ("gloo:", "mpi:", "ucc:")
COLLECTIVE_OPERATORS = ("c10d::", "_c10d_functional::", "c10d_functional::")


def users_spans(columns: Columns) -> Mask:
    """Each ``record_function`` of the user's."""
    torchs_own = columns.named(
        STEP_PREFIX, GENERATED_CODE_PREFIX, REGION_PREFIX, launches.OWN_SPANS
    )
    return columns.of_category("user_annotation") & ~torchs_own


def by_span(columns: Columns, launched: Launched, spans: Mask) -> tuple[m.SpanTotal, ...]:
    """Device time by the innermost of ``spans`` at the launch; a graph's replay counts for the span
    that launched it.

    By the spans' names, a compiled region's its compile id ("0/1"), in the order of their first
    launch; what stands in none of them last, always.
    """
    span = launches.innermost(columns, spans, launched.calls)
    labels = (*(name.removeprefix(REGION_PREFIX) for name in columns.names), UNATTRIBUTED)
    label = np.where(span == NOBODY, len(columns.names), columns.name[span])
    counts = np.bincount(label, minlength=len(labels))
    totals_ns, first = np.zeros(len(labels), np.int64), np.full(len(labels), len(label))
    np.add.at(totals_ns, label, columns.duration_ns[launched.events])
    np.minimum.at(first, label, np.arange(len(label)))
    found = sorted(np.flatnonzero(counts[:-1]).tolist(), key=lambda one: int(first[one]))
    return tuple(
        m.SpanTotal(span=labels[one], count=int(counts[one]), total_us=int(totals_ns[one]) / 1000)
        for one in (*found, len(labels) - 1)
    )


def communication(
    columns: Columns, launched: Launched, window: timeline.Window, kinds: Kinds
) -> m.Communication:
    """Collectives in the window, told by the names of their kernels; a trace of one rank alone
    usually has none."""
    kernel = columns.of_category("kernel")[launched.events]
    talks = kernel & kinds.are(columns, launched.events, m.KernelKind.COMMUNICATION)
    every = window.clip(timeline.intervals_of(columns, launched.events))
    own, others = timeline.union_ns(every[talks]), timeline.union_ns(every[~talks])
    computes = ~talks & ~columns.of_category("gpu_memcpy")[launched.events]
    return m.Communication(
        count=int(talks.sum()),
        total_us=int(columns.duration_ns[launched.events][talks].sum()) / 1000,
        busy_us=own / 1000,
        exposed_us=(timeline.union_ns(every) - others) / 1000,
        work_us=others / 1000,
        copies_us=(others - timeline.union_ns(every[computes])) / 1000,
    )


def communication_on_cpu(columns: Columns, window: timeline.Window) -> m.Communication | m.Skipped:
    """As ``communication``, of operators. Skipped where no backend says how long its collectives
    took."""
    spans = columns.named(*COLLECTIVE_SPANS) & columns.of_category("user_annotation")
    if not spans.any():
        return m.NO_COLLECTIVES
    operators = columns.of_category("cpu_op")
    talks, all_ops, issuing = (
        window.clip(timeline.intervals_of(columns, which))
        for which in (spans, operators, operators & columns.named(*COLLECTIVE_OPERATORS))
    )
    # A node of autograd's that issues a collective may hold it to its end: that is no work.
    work_ns = timeline.union_ns(all_ops) - timeline.union_ns(issuing)
    every_ns, own_ns = (
        timeline.union_ns(np.concatenate([one, talks])) for one in (all_ops, issuing)
    )
    return m.Communication(
        count=int(spans.sum()),
        total_us=int(columns.duration_ns[spans].sum()) / 1000,
        busy_us=own_ns / 1000,
        exposed_us=(every_ns - work_ns) / 1000,
        work_us=work_ns / 1000,
        copies_us=0.0,
    )


# Those that no rank leaves before all have come; a broadcast's root need not wait for anybody.
ALL_WAIT_FOR_ALL = re.compile(r"(?i)all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier")
KEPT = 50  # collectives of a step, those with the longest waits
OF_SOME_RANKS = (
    "the job has several process groups, and kgprof does not tell which a call belongs to"
)

# name and microseconds of each collective of a step, in the order of their issue
Calls = tuple[tuple[str, float], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Matched:
    """Collectives of the steps in which all ranks issued the same ones, in the same order."""

    rows: tuple[m.CollectiveWait, ...]
    waits_us: npt.NDArray[np.float64]  # shape [ranks, steps]: what each rank waited in each step


def of_run(run: RunEvidence) -> Mapping[int, Calls] | m.Skipped:
    """Of TRACE, by the number that torch.profiler gave the step in which they were issued."""
    trace, work = run.trace(m.PassName.TRACE), run.once(launches.launched_in_trace)
    if isinstance(trace, m.Skipped) or isinstance(work, m.Skipped):
        return m.Skipped("there is no TRACE")
    job = run.trace_head.get("distributedInfo")
    groups = job.get("pg_config") if isinstance(job, dict) else None
    sizes = (
        [group.get("pg_size") for group in groups if isinstance(group, dict)]
        if isinstance(groups, list)
        else []
    )
    if isinstance(job, dict) and any(
        size not in (None, 1, job.get("world_size")) for size in sizes
    ):
        return m.Skipped(OF_SOME_RANKS)
    columns = trace.columns
    if len(work.events):
        talks = run.whole.once(kinds_of).are(columns, work.events, m.KernelKind.COMMUNICATION)
        which, calls = work.events[talks], work.calls[talks]
        issued_ns = np.where(calls == NOBODY, columns.start_ns[which], columns.start_ns[calls])
    else:
        which = np.flatnonzero(
            columns.named(*COLLECTIVE_SPANS) & columns.of_category("user_annotation")
        )
        issued_ns = columns.start_ns[which]
    order = np.lexsort((columns.start_ns[which], issued_ns))
    marks = np.flatnonzero(timeline.step_marks(columns))
    marks = marks[np.argsort(columns.start_ns[marks])]
    in_step = np.searchsorted(columns.start_ns[marks], issued_ns[order], side="right") - 1
    steps: dict[int, list[tuple[str, float]]] = {}
    for event, moment_ns, step in zip(
        which[order].tolist(), issued_ns[order].tolist(), in_step.tolist(), strict=True
    ):
        name = columns.names[columns.name[event]].partition("(")[0]
        if step >= 0 and moment_ns < columns.end_ns[marks[step]] and ALL_WAIT_FOR_ALL.search(name):
            number = columns.names[columns.name[marks[step]]].removeprefix(STEP_PREFIX)
            if number.isdecimal() and len(number) < 10:
                steps.setdefault(int(number), []).append(
                    (name, int(columns.duration_ns[event]) / 1000)
                )
    return {number: tuple(calls) for number, calls in steps.items()}


def matched(
    ranks: Sequence[Mapping[int, Calls] | m.Skipped], numbers: Sequence[int]
) -> Matched | m.Skipped:
    """``numbers``: the ranks', in the order of ``ranks``. Skipped where there is no step to
    match."""
    known = [steps for steps in ranks if not isinstance(steps, m.Skipped)]
    if len(known) < len(ranks):
        return next(steps for steps in ranks if isinstance(steps, m.Skipped))
    if not any(known):
        return m.Skipped("the traces have no collective in which every rank waits for all others")
    named = [
        {number: tuple(name for name, _ in calls) for number, calls in steps.items()}
        for steps in known
    ]
    common = [n for n in sorted(named[0]) if all(names.get(n) == named[0][n] for names in named)]
    if not common:
        return m.Skipped("in no traced step did all ranks issue the same collectives")
    by_call: dict[tuple[int, str], list[npt.NDArray[np.float64]]] = {}
    waits_us = np.zeros((len(ranks), len(common)))
    for column, number in enumerate(common):
        for place, name in enumerate(named[0][number]):
            took_us = np.array([steps[number][place][1] for steps in known])
            by_call.setdefault((place, name), []).append(took_us - took_us.min())
            waits_us[:, column] += by_call[place, name][-1]
    rows = []
    for (place, name), waits in by_call.items():
        every = np.stack(waits)  # shape [steps, ranks]
        last = np.bincount(every.argmin(axis=1), minlength=len(ranks))
        rows.append(
            m.CollectiveWait(
                name=name,
                place=place + 1,
                steps=len(waits),
                last_rank=numbers[int(last.argmax())],
                last_in=int(last.max()),
                apart_us=float(np.median(every.max(axis=1))),
                wait_us=tuple(float(wait) for wait in np.median(every, axis=0)),
            )
        )
    rows.sort(key=lambda row: (-row.apart_us, row.place))
    return Matched(rows=tuple(rows[:KEPT]), waits_us=waits_us)
