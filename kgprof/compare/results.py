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
    if isinstance(base, m.Skipped) or isinstance(head, m.Skipped):
        return
    if head.verdict == m.AgreementVerdict.DIFFERENT and base.verdict != m.AgreementVerdict.DIFFERENT:
        differing = head.differing + head.reference_differing
        compared = head.compared + head.reference_compared
        yield f"{differing:,} of {compared:,} results differ from the reference's, and in base they did not"


def _evaluations(base: m.RunReport, head: m.RunReport) -> Iterator[str]:
    """Of the metrics only the first that moved by more than near-ties can move it: a result is at most 1 of those
    averaged."""
    before, after = base.evaluation, head.evaluation
    if isinstance(before, m.Skipped) or isinstance(after, m.Skipped):
        return
    if before.units != after.units:
        yield f"{head.unit.plural} {before.units:,} -> {after.units:,}"
    judged = [run.agreement for run in (base, head) if isinstance(run.agreement, m.RunAgreement)]
    ties = sum(each.near_ties + each.reference_near_ties for each in judged)  # results that rounding may turn
    counted = {tally.name: tally.count for tally in before.tallies}
    for tally in after.tallies:
        was = counted.get(tally.name, tally.count)
        if tally.kind is not m.TallyKind.DROPPED and abs(tally.count - was) > (ties if tally.can_turn else 0):
            yield f"{tally.name} {was:,} -> {tally.count:,}"
    there = {(metric.label, *sorted(metric.group.items())): metric.value for metric in before.metrics}
    for metric in after.metrics:
        value = there.get((metric.label, *sorted(metric.group.items())), metric.value)
        if abs(metric.value - value) > max(metric.tolerance, ties / max(1, metric.over)):
            group = f" ({', '.join(metric.group.values())})" if metric.group else ""
            figures = (f"{each:.4f}" if metric.over else short(each, 6) for each in (value, metric.value))
            yield f"{metric.label}{group} {' -> '.join(figures)}"
            return
