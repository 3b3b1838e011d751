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
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kgprof import model as m
from kgprof.measures.kernel_kinds import Kinds, kinds_of
from kgprof.reading import launches, timeline
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import NONE, Columns
from kgprof.reading.launches import Launched, Mask
from kgprof.reading.timeline import NOBODY, STEP_PREFIX

REGION_PREFIX = "Torch-Compiled Region: "  # and the compile id
BACKWARD = "CompiledFunctionBackward"  # of any compiled graph: autograd runs it, in no region
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
    totals_ns = np.zeros(len(labels), np.int64)
    first = np.full(len(labels), len(label))
    np.add.at(totals_ns, label, columns.duration_ns[launched.events])
    np.minimum.at(first, label, np.arange(len(label)))
    found = sorted(np.flatnonzero(counts[:-1]).tolist(), key=lambda one: int(first[one]))
    return tuple(
        m.SpanTotal(labels[one], int(counts[one]), int(totals_ns[one]) / 1000)
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
    own = timeline.union_ns(every[talks])
    others = timeline.union_ns(every[~talks])
    computes = ~talks & ~columns.of_category("gpu_memcpy")[launched.events]
    return m.Communication(
        count=int(talks.sum()),
        total_us=columns.lasted_ns(launched.events[talks]) / 1000,
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
        total_us=columns.lasted_ns(spans) / 1000,
        busy_us=own_ns / 1000,
        exposed_us=(every_ns - work_ns) / 1000,
        work_us=work_ns / 1000,
        copies_us=0.0,
    )


# Those that no rank leaves before all have come; a broadcast's root need not wait for anybody.
ALL_WAIT_FOR_ALL = re.compile(r"(?i)all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier")
KEPT = 50  # collectives of a step, those with the longest waits
OF_SOME_RANKS = (
    "the job has several process groups, and the traces do not tell which a call belongs to"
)


Floats = npt.NDArray[np.float64]


class Call(NamedTuple):
    """One collective of a step."""

    name: str
    took_us: float
    group: str = ""  # as Collective has it; empty: of all ranks


Steps = Mapping[int, Sequence[Call]]  # by the step's number, in the order of their issue


class Group(m.Model, kw_only=False):
    """The ranks of one process group, in the steps in which all of them issued the same of its
    collectives, in the same order."""

    members: tuple[int, ...]  # places of its ranks among all
    waits_us: Floats  # shape [members, steps]: what each waited in each step


class Matched(m.Model):
    groups: tuple[Group, ...]
    rows: tuple[m.CollectiveWait, ...]


def of_run(run: RunEvidence) -> Steps | m.Skipped:
    """Of TRACE, by the number that torch.profiler gave the step in which they were issued."""
    trace = run.trace()
    work = run.once(launches.launched_in_trace)
    if isinstance(trace, m.Skipped) or isinstance(work, m.Skipped):
        return m.Skipped("there is no TRACE")
    columns = trace.columns
    if len(work.events):
        talks = run.whole.once(kinds_of).are(columns, work.events, m.KernelKind.COMMUNICATION)
        which = work.events[talks]
        calls = work.calls[talks]
        issued_ns = np.where(calls == NOBODY, columns.start_ns[which], columns.start_ns[calls])
    else:
        which = np.flatnonzero(
            columns.named(*COLLECTIVE_SPANS) & columns.of_category("user_annotation")
        )
        issued_ns = columns.start_ns[which]
    order = np.lexsort((columns.start_ns[which], issued_ns))
    marks = timeline.step_events(columns)
    in_step = np.searchsorted(columns.start_ns[marks], issued_ns[order], side="right") - 1
    steps: dict[int, list[Call]] = {}
    for event, moment_ns, step in zip(
        which[order].tolist(), issued_ns[order].tolist(), in_step.tolist(), strict=True
    ):
        call = _call(columns, event)
        if call is None or step < 0 or moment_ns >= columns.end_ns[marks[step]]:
            continue
        number = columns.name_of(marks[step]).removeprefix(STEP_PREFIX)
        if number.isdecimal() and len(number) < 10:
            steps.setdefault(int(number), []).append(call)
    unplaced = any(not call.group for calls in steps.values() for call in calls)
    if unplaced and _has_smaller_groups(run):
        return m.Skipped(OF_SOME_RANKS)
    return steps


def _call(columns: Columns, event: int) -> Call | None:
    """None for what need not wait for every rank. A kernel called SendRecv may be an all-to-all,
    which only torch's name of the collective says."""
    name = columns.name_of(event).partition("(")[0]
    group = ""
    place = int(columns.collective[event])
    if place != NONE:
        collective = columns.collectives[place]
        group = collective.group
        if not ALL_WAIT_FOR_ALL.search(name):
            name = collective.name
    if not ALL_WAIT_FOR_ALL.search(name):
        return None
    return Call(name, int(columns.duration_ns[event]) / 1000, group)


def _has_smaller_groups(run: RunEvidence) -> bool:
    """Whether the job has process groups of several, but not of all ranks."""
    job = run.trace_head.get("distributedInfo")
    if not isinstance(job, dict):
        return False
    groups = job.get("pg_config")
    if not isinstance(groups, list):
        return False
    sizes = [group.get("pg_size") for group in groups if isinstance(group, dict)]
    return any(size not in (None, 1, job.get("world_size")) for size in sizes)


@m.skippable
def matched(ranks: Sequence[Steps | m.Skipped], numbers: Sequence[int]) -> Matched | m.Skipped:
    """``numbers``: the ranks', in the order of ``ranks``. Skipped where there is no step to
    match."""
    known = [m.known(steps) for steps in ranks]
    names = dict.fromkeys(
        call.group for steps in known for calls in steps.values() for call in calls
    )
    if not names:
        return m.Skipped("the traces have no collective in which every rank waits for all others")
    groups: list[Group] = []
    rows: list[m.CollectiveWait] = []
    for name in names:
        if (found := _group(name, known, numbers)) is not None:
            groups.append(found[0])
            rows += found[1]
    if not groups:
        return m.Skipped("in no traced step did all ranks issue the same collectives")
    rows.sort(key=lambda row: (-row.apart_us, row.place))
    return Matched(groups=tuple(groups), rows=tuple(rows[:KEPT]))


def _group(
    name: str, ranks: Sequence[Steps], numbers: Sequence[int]
) -> tuple[Group, list[m.CollectiveWait]] | None:
    """None for a group with no step in which two ranks or more issued the same."""
    issued = [_issued(steps, name) for steps in ranks]
    members = tuple(place for place, steps in enumerate(issued) if steps)
    if not name:
        members = tuple(range(len(ranks)))
    if len(members) < 2:
        return None
    first, *others = (issued[place] for place in members)
    common = [n for n in sorted(first) if all(_same(steps.get(n), first[n]) for steps in others)]
    if not common:
        return None
    by_call: dict[tuple[int, str], list[Floats]] = {}
    waits_us = np.zeros((len(members), len(common)))
    for column, number in enumerate(common):
        for place, call in enumerate(first[number]):
            took_us = np.array([issued[member][number][place].took_us for member in members])
            waited_us = took_us - took_us.min()
            by_call.setdefault((place, call.name), []).append(waited_us)
            waits_us[:, column] += waited_us
    rows = [
        _row(place, called, np.stack(waits), members, numbers)
        for (place, called), waits in by_call.items()
    ]
    return Group(members, waits_us), rows


def _issued(steps: Steps, group: str) -> dict[int, list[Call]]:
    """The steps in which there is a call of the group, with those."""
    issued: dict[int, list[Call]] = defaultdict(list)
    for number, calls in steps.items():
        for call in calls:
            if call.group == group:
                issued[number].append(call)
    return issued


def _same(calls: Sequence[Call] | None, others: Sequence[Call]) -> bool:
    return calls is not None and [c.name for c in calls] == [c.name for c in others]


def _row(
    place: int,
    name: str,
    waits: Floats,  # shape [steps, members]
    members: Sequence[int],
    numbers: Sequence[int],
) -> m.CollectiveWait:
    last = np.bincount(waits.argmin(axis=1), minlength=len(members))
    middle = np.median(waits, axis=0).tolist()
    by_member = dict(zip(members, middle, strict=True))
    return m.CollectiveWait(
        name,
        place + 1,
        len(waits),
        last_rank=numbers[members[int(last.argmax())]],
        last_in=int(last.max()),
        apart_us=float(np.median(waits.max(axis=1))),
        wait_us=tuple(by_member.get(rank) for rank in range(len(numbers))),
    )
