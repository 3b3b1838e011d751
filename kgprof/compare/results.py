"""Did the results change? From what each side says of its own evaluation, because neither holds the other's results."""

from __future__ import annotations

from collections.abc import Iterator

from kgprof import model as m
from kgprof.wording import short


def changed_results(base: m.RunReport, head: m.RunReport) -> tuple[str, ...]:
    """What differs, in words; empty where nothing does, or where nothing is known on a side."""
    return (*_agreement(base.agreement, head.agreement), *_evaluations(base, head))


def _agreement(base: m.RunAgreement | m.Skipped, head: m.RunAgreement | m.Skipped) -> Iterator[str]:
    """Head's results differ from those of its own reference run, and base's did not."""
    if isinstance(head, m.Skipped) or head.verdict != "different":
        return
    if isinstance(base, m.Skipped) or base.verdict == "different":
        return
    differing = head.differing + head.reference_differing
    compared = head.compared + head.reference_compared
    yield f"{differing:,} of {compared:,} results differ from the reference's, and in base they did not"


def _evaluations(base: m.RunReport, head: m.RunReport) -> Iterator[str]:
    before, after = base.evaluation, head.evaluation
    if isinstance(before, m.Skipped) or isinstance(after, m.Skipped):
        return
    if before.units != after.units:
        yield f"{head.unit.plural} {before.units:,} -> {after.units:,}"
    ties = _near_ties(base) + _near_ties(head)
    counted = {tally.name: tally.count for tally in before.tallies}
    for tally in after.tallies:
        was = counted.get(tally.name, tally.count)
        if tally.kind is not m.TallyKind.DROPPED and abs(tally.count - was) > (ties if tally.can_turn else 0):
            yield f"{tally.name} {was:,} -> {tally.count:,}"
    yield from _metrics(before, after, ties)


def _near_ties(run: m.RunReport) -> int:
    """Results that rounding may turn, as the run's own comparison says."""
    agreement = run.agreement
    return agreement.near_ties + agreement.reference_near_ties if isinstance(agreement, m.RunAgreement) else 0


def _metrics(before: m.Evaluation, after: m.Evaluation, ties: int) -> Iterator[str]:
    """The first metric that moved by more than near-ties can move it: a result is at most 1 of those averaged."""
    there = {(metric.label, *sorted(metric.group.items())): metric.value for metric in before.metrics}
    for metric in after.metrics:
        was = there.get((metric.label, *sorted(metric.group.items())), metric.value)
        if abs(metric.value - was) > max(metric.tolerance, ties / max(1, metric.over)):
            group = f" ({', '.join(metric.group.values())})" if metric.group else ""
            figures = (f"{value:.4f}" if metric.over else short(value, 6) for value in (was, metric.value))
            yield f"{metric.label}{group} {' -> '.join(figures)}"
            return
