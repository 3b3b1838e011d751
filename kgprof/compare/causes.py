"""What a regression is put down to, with what each cause explains of it, and what is left.

What the causes do not account for is the remainder. Facts that need no clock (a CUDA graph less, other results, a new
finding) are causes also where no time can be called worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest

from kgprof import model as m
from kgprof.compare.claims import timed, untimed
from kgprof.compare.facts import facts, results, settings
from kgprof.compare.intervals import WORSE
from kgprof.compare.metrics import STEP, Sides
from kgprof.compare.order import CLOCKLESS, in_order
from kgprof.compare.parts import parts
from kgprof.compare.slower import Slower, longer, named, slower, trace_scale
from kgprof.wording import short


def explained(
    sides: Sides,
    metrics: Sequence[m.ComparedMetric],
    trace: m.TraceDifference,
    findings: Sequence[m.ComparedFinding],
    root: str,
) -> m.RunComparison:
    """One run's causes, with the sums. ``findings``: those of this run."""
    found = parts(trace, sides.base, sides.head, root)
    worse = slower(sides, metrics, trace, found)
    causes = in_order(
        [
            *results(sides, findings),
            *settings(sides, metrics),
            *facts(sides, metrics, found, worse, root),
            *(timed(sides, metrics, findings, worse) if worse else untimed(sides, findings)),
        ]
    )
    delta, explained_us = _sums(sides, worse, causes, metrics)
    return m.RunComparison(
        run=sides.head.key,
        status="both",
        metrics=tuple(metrics),
        decided_by=_decided_by(metrics, worse),
        per=worse.per if worse else "step",
        delta_us=delta,
        explained_us=explained_us,
        remainder_us=_less(delta, explained_us),
        traced_us=_traced(trace),
        scale=worse.scale if worse else trace_scale(metrics, trace),
        trace=trace,
        settings=sides.settings,
        causes=causes,
        notes=_notes(sides, worse, trace),
    )


# ---------------------------------------------------------------- the sums


def _decided_by(metrics: Sequence[m.ComparedMetric], worse: Slower | None) -> str:
    if worse is not None:
        return worse.metric.name
    return next((metric.name for metric in metrics if metric.time_of and metric.decides), "")


def _sums(
    sides: Sides, worse: Slower | None, causes: Sequence[m.Cause], metrics: Sequence[m.ComparedMetric]
) -> tuple[float | m.Skipped, float | m.Skipped]:
    """The difference, and what the causes explain of it."""
    if worse is None:
        step = named(metrics, STEP)
        delta = longer(step) if step else m.Skipped(reason="there is no time")
        return delta, m.Skipped(reason=sides.doubt or "no time is worse, so there is nothing to explain")
    us = [cause.explains_us for cause in causes if not isinstance(cause.explains_us, m.Skipped)]
    return worse.delta_us, sum(us, 0.0)


def _less(one: float | m.Skipped, other: float | m.Skipped) -> float | m.Skipped:
    if isinstance(one, m.Skipped):
        return one
    return other if isinstance(other, m.Skipped) else one - other


def _traced(trace: m.TraceDifference) -> float | m.Skipped:
    window = next((row for row in trace.window if row.name == "window"), None)
    return window.delta_us if window else m.Skipped(reason=trace.missing or "there is no trace")


def _notes(sides: Sides, worse: Slower | None, trace: m.TraceDifference) -> tuple[str, ...]:
    said = []
    if worse is not None and worse.metric.verdict != WORSE:
        said.append("the interval does not settle it; it is explained because the samples lie apart")
    if worse is not None and isinstance(worse.scale, m.Skipped):
        said.append(f"the traces explain nothing here: {worse.scale.reason}")
    elif worse is not None and not isinstance(worse.scale, m.Skipped):
        taken = f"a microsecond of the traces is taken for {short(worse.scale)} of TIMING's"
        window = _traced(trace)
        shown = "" if isinstance(window, m.Skipped) else f"the traced step differs by {short(window, sign='+')} us; "
        said.append(f"{shown}{taken if worse.shown else 'the traces explain nothing of what is slower'}")
    before, after = sides.base.kernels, sides.head.kernels
    traced = [side.measured_in.upper() for side in (before, after) if isinstance(side, m.KernelBreakdown)]
    if len(set(traced)) > 1:
        said.append(f"base was traced in {traced[0]} and head in {traced[1]}")
    return tuple(said)


# ---------------------------------------------------------------- of all runs


def overall(runs: Sequence[m.RunComparison], whole: Sequence[m.ComparedFinding]) -> tuple[m.Cause, ...]:
    """Of all runs: first what each puts first, that of the slowest run before the others', and so on; each kind at each
    place once. ``whole``: findings of no run."""
    ranked = sorted(runs, key=lambda run: -relative_time(run))
    found: dict[tuple[str, str, object], m.Cause] = {}
    for cause in chain.from_iterable(zip_longest(*(run.causes for run in ranked))):
        if cause is not None:
            found.setdefault((cause.cause, _rule(cause), _place(cause)), cause)
    unplaced = [
        m.Cause(
            cause="finding",
            text=f"new {one.finding.rule} {one.finding.message}",
            explains_us=CLOCKLESS,
            fingerprint=one.finding.fingerprint,
            location=one.finding.location,
        )
        for one in whole
        if one.status == "new"
    ]
    return (*found.values(), *unplaced)


def relative_time(run: m.RunComparison) -> float:
    """How much slower, by the metric that decides; a run that is not slower comes after all that are."""
    metric = named(run.metrics, run.decided_by)
    if metric is None or isinstance(metric.ratio, m.Skipped) or isinstance(run.explained_us, m.Skipped):
        return 0.0
    return metric.ratio


def _rule(cause: m.Cause) -> str:
    words = cause.text.split()
    return next((word for word in words[:5] if word.startswith("KGP")), "") if cause.fingerprint else ""


def _place(cause: m.Cause) -> object:
    """Where it is and what it is about. Of a finding with a place that alone, of settings the text with its figures, of
    the rest what stands before them."""
    where = (cause.location.file, cause.location.line) if cause.location else None
    if cause.fingerprint and where:
        return where
    return where, cause.text if cause.cause == "setting" else cause.text.partition(": ")[0]
