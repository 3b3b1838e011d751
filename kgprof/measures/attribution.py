"""Device time by what the host had asked for it in (step, compiled region, the user's own span), and in collectives."""

from __future__ import annotations

import numpy as np

from kgprof import model as m
from kgprof.measures.kernel_kinds import Kinds
from kgprof.reading import launches, timeline
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import Launched, Mask
from kgprof.reading.timeline import NOBODY, STEP_PREFIX

REGION_PREFIX = "Torch-Compiled Region: "  # and the compile id
GENERATED_CODE_PREFIX = "## Call CompiledFxGraph "  # Inductor's, an annotation where shapes are recorded
UNATTRIBUTED = "(unattributed)"
# What a trace of the CPU shows of a collective: c10d's span from its issue to its end, on a thread of its backend, and
# the operators that issue it or wait for it.
COLLECTIVE_SPANS = ("gloo:", "mpi:", "ucc:")
COLLECTIVE_OPERATORS = ("c10d::", "_c10d_functional::", "c10d_functional::")


def users_spans(columns: Columns) -> Mask:
    """Each ``record_function`` of the user's."""
    torchs_own = columns.named(STEP_PREFIX, GENERATED_CODE_PREFIX, REGION_PREFIX, launches.OWN_SPANS)
    return columns.of_category("user_annotation") & ~torchs_own


def by_span(columns: Columns, launched: Launched, spans: Mask) -> tuple[m.SpanTotal, ...]:
    """Device time by the innermost of ``spans`` at the launch; a graph's replay counts for the span that launched it.

    By the spans' names, a compiled region's its compile id ("0/1"), in the order of their first launch; what stands in
    none of them last, always.
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


def communication(columns: Columns, launched: Launched, window: timeline.Window, kinds: Kinds) -> m.Communication:
    """Collectives in the window, told by the names of their kernels; a trace of one rank alone usually has none."""
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
    """As ``communication``, of operators. Skipped where no backend says how long its collectives took."""
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
    every_ns, own_ns = (timeline.union_ns(np.concatenate([one, talks])) for one in (all_ops, issuing))
    return m.Communication(
        count=int(spans.sum()),
        total_us=int(columns.duration_ns[spans].sum()) / 1000,
        busy_us=own_ns / 1000,
        exposed_us=(every_ns - work_ns) / 1000,
        work_us=work_ns / 1000,
        copies_us=0.0,
    )
