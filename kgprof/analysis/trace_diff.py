"""The difference of two analysed traces: where the one spends more or less time in a step than the
other.

Both sides are ``KernelBreakdown``s, so a trace that kgprof recorded and one that somebody else did
compare alike. Times and counts are divided by the number of steps of their own side. Every table
adds up to the difference of the totals, because each table of a breakdown adds up to its total.
Kernels that Inductor generated go by their names without the number that it gives them in the order
in which it makes them.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from kgprof import model as m
from kgprof.measures.kernel_kinds import plain_name

_Name = tuple[str, m.KernelKind | None]
_Amount = tuple[float, int | None]  # microseconds and how many, of the whole window
_Side = dict[_Name, _Amount]


def differences(files: Sequence[m.TraceFile], reports: m.Runs) -> tuple[m.TraceDifference, ...]:
    """Each trace against the one of the same rank on the other side, or against the only one that
    there is."""
    kernels = {report.key: report.kernels for report in reports}
    others = [file for file in files if file.against]
    made: list[m.TraceDifference] = []
    for file in (file for file in files if not file.against):
        of_its_rank = [
            other for other in others if other.rank is not None and other.rank == file.rank
        ]
        if len(others) == 1:
            of_its_rank = others
        for other in of_its_rank[:1]:
            made.append(
                difference(kernels[other.key], kernels[file.key], run=file.key, against=other.key)
            )
    return tuple(made)


def difference(
    before: m.Kernels,
    after: m.Kernels,
    *,
    run: m.RunKey,
    against: m.RunKey,
) -> m.TraceDifference:
    """``after``, the trace of ``run``, less ``before``, that of ``against``; or why they cannot be
    compared."""
    answer = partial(m.TraceDifference, run=run, against=against)
    if isinstance(before, m.Skipped):
        return answer(missing=f"{against.strategy}: {before.reason}")
    if isinstance(after, m.Skipped):
        return answer(missing=f"{run.strategy}: {after.reason}")
    if reason := _incomparable(before, after, run, against):
        return answer(missing=reason)
    steps = before.steps or 1, after.steps or 1
    totals = [(side.total_us, sum(row.count for row in side.rows)) for side in (before, after)]

    def change(name: _Name, earlier: _Amount | None, later: _Amount | None) -> m.Change:
        before_us, before_count = _per_step(earlier, steps[0])
        after_us, after_count = _per_step(later, steps[1])
        status = m.Presence.BOTH
        if earlier is None:
            status = m.Presence.NEW
        elif later is None:
            status = m.Presence.GONE
        more_us = after_us - before_us
        return m.Change(*name, status, before_us, after_us, more_us, before_count, after_count)

    def changes(side: Callable[[m.KernelBreakdown], _Side]) -> tuple[m.Change, ...]:
        """One row a name that either side has, the largest difference first, up or down."""
        earlier = side(before)
        later = side(after)
        rows = [
            change(name, earlier.get(name), later.get(name))
            for name in dict.fromkeys((*earlier, *later))
        ]
        return tuple(sorted(rows, key=lambda row: (-abs(row.delta_us), row.name, row.kind or "")))

    per = "window"
    if after.steps:
        per = "step"
    return answer(
        device=after.device,
        per=per,
        before_steps=before.steps,
        after_steps=after.steps,
        total=change(("all kernels", None), *totals),
        window=tuple(
            change((name, None), (getattr(before, field), None), (getattr(after, field), None))
            for name, field in (("window", "window_us"), ("busy", "busy_us"), ("idle", "idle_us"))
        ),
        kinds=changes(
            lambda side: _added_up((kind.kind.value, kind.kind, kind) for kind in side.kinds)
        ),
        kernels=changes(
            lambda side: _added_up((plain_name(row.name), row.kind, row) for row in side.rows)
        ),
        spans=changes(lambda side: _added_up((span.span, None, span) for span in side.by_span)),
        regions=changes(lambda side: _added_up((span.span, None, span) for span in side.by_region)),
    )


def _per_step(amount: _Amount | None, steps: int) -> tuple[float, float | None]:
    us, count = amount or (0.0, 0)
    if count is None:
        return us / steps, None
    return us / steps, count / steps


def _added_up(
    rows: Iterable[tuple[str, m.KernelKind | None, m.KindTotal | m.KernelRow | m.SpanTotal]],
) -> _Side:
    """By name and kind; of two rows with the same of both (a kernel and a copy of one name) the
    sum."""
    found: _Side = {}
    for name, kind, row in rows:
        us, count = found.get((name, kind), (0.0, 0))
        found[name, kind] = us + row.total_us, (count or 0) + row.count
    return found


def _incomparable(
    before: m.KernelBreakdown, after: m.KernelBreakdown, run: m.RunKey, against: m.RunKey
) -> str:
    """Empty where the two can be compared."""
    if before.device != after.device:
        measured = {"cuda": "GPU kernels", "cpu": "CPU operators"}
        ours = measured[after.device]
        theirs = measured[before.device]
        return f"{run.strategy} has the times of {ours}, {against.strategy} those of {theirs}"
    marked = {run: after.steps, against: before.steps}
    unmarked = [key.strategy for key, steps in marked.items() if not steps]
    if len(unmarked) == 1:
        return (
            f"{unmarked[0]} marks no steps (ProfilerStep#) but the other one does, "
            "so there is no common unit"
        )
    return ""
