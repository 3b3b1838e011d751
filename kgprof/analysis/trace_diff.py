"""The difference of two analysed traces: where the one spends more or less time in a step than the other.

Both sides are ``KernelBreakdown``s, so a trace that kgprof recorded and one that somebody else did compare alike.
Times and counts are divided by the number of steps of their own side. Every table adds up to the difference of the
totals, because each table of a breakdown adds up to its total.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kgprof import model as m

_Name = tuple[str, m.KernelKind | None]
_Side = Mapping[_Name, tuple[float, int]]  # microseconds and how many, of the whole window


def differences(files: Sequence[m.TraceFile], reports: Sequence[m.RunReport]) -> tuple[m.TraceDifference, ...]:
    """Each trace against the one of the same rank on the other side, or against the only one that there is."""
    kernels = {report.key: report.kernels for report in reports}
    others = [file for file in files if file.against]
    made: list[m.TraceDifference] = []
    for file in (file for file in files if not file.against):
        of_its_rank = [other for other in others if other.rank is not None and other.rank == file.rank]
        for other in others if len(others) == 1 else of_its_rank[:1]:
            made.append(difference(kernels[other.key], kernels[file.key], run=file.key, against=other.key))
    return tuple(made)


def difference(
    before: m.KernelBreakdown | m.Skipped, after: m.KernelBreakdown | m.Skipped, *, run: m.RunKey, against: m.RunKey
) -> m.TraceDifference:
    """``after``, the trace of ``run``, less ``before``, that of ``against``; or why they cannot be compared."""
    reason = _incomparable(before, after, run, against)
    if isinstance(before, m.Skipped) or isinstance(after, m.Skipped) or reason:
        return m.TraceDifference(run=run, against=against, missing=reason)
    sides = _Sides(before=before, after=after)
    return m.TraceDifference(
        run=run,
        against=against,
        device=after.device,
        per="step" if after.steps else "window",
        before_steps=before.steps,
        after_steps=after.steps,
        total=sides.change(("all kernels", None), _total(before), _total(after)),
        window=tuple(
            sides.change((name, None), (getattr(before, field), None), (getattr(after, field), None))
            for name, field in (("window", "window_us"), ("busy", "busy_us"), ("idle", "idle_us"))
        ),
        kinds=sides.changes(_kinds(before), _kinds(after)),
        kernels=sides.changes(_kernels(before), _kernels(after)),
        spans=sides.changes(_spans(before.by_span), _spans(after.by_span)),
        regions=sides.changes(_spans(before.by_region), _spans(after.by_region)),
    )


def _incomparable(
    before: m.KernelBreakdown | m.Skipped, after: m.KernelBreakdown | m.Skipped, run: m.RunKey, against: m.RunKey
) -> str:
    """Empty where the two can be compared."""
    for key, side in ((against, before), (run, after)):
        if isinstance(side, m.Skipped):
            return f"{key.strategy}: {side.reason}"
    assert isinstance(before, m.KernelBreakdown)
    assert isinstance(after, m.KernelBreakdown)
    if before.device != after.device:
        ours, theirs = _measure(after), _measure(before)
        return f"{run.strategy} holds the times of {ours} and {against.strategy} those of {theirs}"
    if bool(before.steps) != bool(after.steps):
        unmarked = run if before.steps else against
        return f"{unmarked.strategy} marks no steps (ProfilerStep#) and the other one does, so there is no common unit"
    return ""


def _measure(side: m.KernelBreakdown) -> str:
    return "kernels on the device" if side.device == "cuda" else "operators on the CPU"


class _Sides:
    """Divides what each side has by its own steps."""

    def __init__(self, *, before: m.KernelBreakdown, after: m.KernelBreakdown) -> None:
        self._before, self._after = before.steps or 1, after.steps or 1

    def changes(self, before: _Side, after: _Side) -> tuple[m.Change, ...]:
        """One row a name that either side has, the largest difference first, up or down."""
        names = dict.fromkeys((*before, *after))
        found = [self.change(name, before.get(name), after.get(name)) for name in names]
        return tuple(sorted(found, key=lambda one: (-abs(one.delta_us), one.name, one.kind or "")))

    def change(
        self, name: _Name, before: tuple[float, int | None] | None, after: tuple[float, int | None] | None
    ) -> m.Change:
        before_us, before_count = before or (0.0, 0)
        after_us, after_count = after or (0.0, 0)
        return m.Change(
            name=name[0],
            kind=name[1],
            status=m.Presence.NEW if before is None else m.Presence.GONE if after is None else m.Presence.BOTH,
            before_us=before_us / self._before,
            after_us=after_us / self._after,
            delta_us=after_us / self._after - before_us / self._before,
            before_count=None if before_count is None else before_count / self._before,
            after_count=None if after_count is None else after_count / self._after,
        )


def _total(side: m.KernelBreakdown) -> tuple[float, int]:
    return side.total_us, sum(row.count for row in side.rows)


def _kinds(side: m.KernelBreakdown) -> _Side:
    return {(total.kind.value, total.kind): (total.total_us, total.count) for total in side.kinds}


def _kernels(side: m.KernelBreakdown) -> _Side:
    """By name and kind; of two rows with the same of both (a kernel and a copy of one name) the sum."""
    found: dict[_Name, tuple[float, int]] = {}
    for row in side.rows:
        us, count = found.get((row.name, row.kind), (0.0, 0))
        found[row.name, row.kind] = (us + row.total_us, count + row.count)
    return found


def _spans(totals: Iterable[m.SpanTotal]) -> _Side:
    return {(total.span, None): (total.total_us, total.count) for total in totals}
