"""Did the results change? From what each side says of its own evaluation, because neither holds the other's results."""

from __future__ import annotations

from collections.abc import Iterator

from kgprof import model as m

# Of one recording to the next the metrics are means over the same queries in the same order; what is left is rounding.
LEAST_DIFFERENCE = 1e-9
_COUNTS = (
    "candidates",
    "proved",
    "failed",
    "depth_truncated",
    "overflow",
    "unfinished",
    "invalid",
    "deep",
    "nan_scores",
)


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
    ties = _near_ties(base) + _near_ties(head)
    for name in _COUNTS:
        was, now = getattr(before, name), getattr(after, name)
        if abs(now - was) > (ties if name in ("proved", "failed", "deep") else 0):
            yield f"{name.replace('_', ' ')} {was:,} -> {now:,}"
    yield from _metrics(before, after, ties)


def _near_ties(run: m.RunReport) -> int:
    """Results that rounding may turn, as the run's own comparison says."""
    agreement = run.agreement
    return agreement.near_ties + agreement.reference_near_ties if isinstance(agreement, m.RunAgreement) else 0


def _metrics(before: m.Evaluation, after: m.Evaluation, ties: int) -> Iterator[str]:
    """The first ranking metric that moved by more than near-ties can move it: a rank is at most 1 of the queries."""
    there = {(one.side, one.ties): one for one in before.metrics}
    for now in after.metrics:
        was = there.get((now.side, now.ties))
        if was is None:
            continue
        least = max(LEAST_DIFFERENCE, ties / max(1, now.queries))
        for name in ("mrr", "hits_at_1", "hits_at_3", "hits_at_10"):
            if abs(getattr(now, name) - getattr(was, name)) > least:
                label = name.upper() if name == "mrr" else name.replace("_", " ")
                yield f"{label} ({now.side}, {now.ties}) {getattr(was, name):.4f} -> {getattr(now, name):.4f}"
                return
