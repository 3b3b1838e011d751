"""What new findings are the reason of, and the parts of the regression that none of them claims.

A new finding takes over the parts that its rule can be the reason of; each part is counted with one cause.
"""

from __future__ import annotations

from collections.abc import Sequence

from kgprof import model as m
from kgprof.collectors import rule_of
from kgprof.compare.facts import by_setting, lost_graphs
from kgprof.compare.intervals import WORSE
from kgprof.compare.metrics import Sides
from kgprof.compare.order import CLOCKLESS, OTHERS, PART, REASON, SYMPTOM, UNTIMED, Ranked
from kgprof.compare.parts import COPIES, HOST, KERNEL, LAUNCHES, REPLACED, Part
from kgprof.compare.slower import LEAST_SHARE, Slower

SEEN_AS = "; seen in the traces as "  # behind it stands what a finding takes over of the traces
_GRAPHS_COST = (HOST, LAUNCHES, COPIES)  # what takes the place of a launch of a whole CUDA graph


def timed(
    sides: Sides, metrics: Sequence[m.ComparedMetric], findings: Sequence[m.ComparedFinding], slower: Slower
) -> list[Ranked]:
    """More steps; what new findings and lost CUDA graphs take over of the parts; then the bare parts."""
    lost = lost_graphs(metrics)
    claimed, left = _claims(sides, findings, slower, lost)
    graphs, left = _graphs(sides, lost, findings, left, slower)
    bare = [_bare(sides, part, slower) for part in left if slower.is_a_share(part.us)]
    return [*_more_steps(sides, slower), *claimed, *graphs, *bare, *_alike(sides, left, slower)]


def untimed(sides: Sides, findings: Sequence[m.ComparedFinding]) -> list[Ranked]:
    """No time is worse: a new finding is what there is to tell, but for one that is judged from times.

    One that can cost time comes before one that cannot.
    """
    return [
        Ranked(
            rank=SYMPTOM if _is_symptom(one.finding) else REASON,
            cause=_finding_cause(sides, one, CLOCKLESS),
            share=-_weight(one) + 0.5 * bool(rule_of(one.finding).can_cost),
        )
        for one in _told(findings, "")
        if not rule_of(one.finding).judged_from_times
    ]


def _more_steps(sides: Sides, slower: Slower) -> list[Ranked]:
    more = slower.more_steps
    if more is None or not more.us:
        return []
    cause = m.Cause(cause="steps", run=sides.head.key, text=f"{more.text}{by_setting(sides)}", explains_us=more.us)
    return [Ranked(rank=REASON, cause=cause, share=slower.share(more.us))]


# ---------------------------------------------------------------- new findings


def _told(findings: Sequence[m.ComparedFinding], graphs_lost: str) -> list[m.ComparedFinding]:
    """New, or more often than before; located and severe ones claim first. Results and lost graphs have causes of
    their own."""
    told = [
        one
        for one in findings
        if (one.status == "new" or _much_more(one))
        and rule_of(one.finding).topic is not m.Topic.RESULTS
        and not (graphs_lost and _loses_graphs(one.finding))
    ]
    return sorted(told, key=lambda one: (_weight(one), one.finding.rule))


def _is_symptom(finding: m.Finding) -> bool:
    """It says that something is slow, or that the report cannot be relied on, and not why."""
    rule = rule_of(finding)
    return bool(rule.symptom_of) or rule.topic in (m.Topic.SOURCES, m.Topic.COVERAGE)


def _loses_graphs(finding: m.Finding) -> bool:
    """About CUDA graphs that are not launched; a copy before a replay costs no launch of the host's."""
    rule = rule_of(finding)
    return rule.topic is m.Topic.CUDA_GRAPHS and m.CostKind.LAUNCHES in rule.can_cost


def _weight(one: m.ComparedFinding) -> int:
    severity = {m.Level.ERROR: 0, m.Level.WARNING: 1, m.Level.NOTE: 3}[one.finding.level]
    return severity + (one.finding.location is None) + (one.status != "new")


def _much_more(one: m.ComparedFinding) -> bool:
    """Counts of some rules move by one with the number of steps that were watched."""
    return one.grew and one.head_count >= 2 * one.base_count and one.finding.level is not m.Level.NOTE


def _claims(
    sides: Sides, findings: Sequence[m.ComparedFinding], slower: Slower, graphs_lost: str
) -> tuple[list[Ranked], list[Part]]:
    """New findings, each with the parts that its rule can be the reason of, and the parts that are left."""
    ranked: list[Ranked] = []
    left = list(slower.parts)
    for one in _told(findings, graphs_lost):
        can = rule_of(one.finding).can_cost
        mine = _longer_of(can, left)
        us = sum(part.us for part in mine)
        if mine and slower.is_a_share(us):
            left = [part for part in left if part not in mine]
            cause = _finding_cause(sides, one, us, mine)
            ranked.append(Ranked(rank=REASON, cause=cause, share=slower.share(us)))
        else:
            ranked.append(_unmeasured(sides, one, slower, shared=_claimed(can, slower.parts, left)))
    return ranked, left


def _longer_of(can: Sequence[str], parts: Sequence[Part]) -> list[Part]:
    return [part for part in parts if part.what in can and part.us > 0]


def _claimed(can: Sequence[str], parts: Sequence[Part], left: Sequence[Part]) -> bool:
    """Some of what it can be the reason of is counted with another cause."""
    return any(part not in left for part in _longer_of(can, parts))


def _unmeasured(sides: Sides, one: m.ComparedFinding, slower: Slower, *, shared: bool) -> Ranked:
    """It may be the reason of a part that another one claims, or of what nothing accounts for; a note is neither."""
    finding = one.finding
    unaccounted = bool(rule_of(finding).can_cost) and not slower.accounted_for
    leads = (shared or unaccounted) and finding.level is not m.Level.NOTE
    return Ranked(
        rank=REASON if leads else SYMPTOM if _is_symptom(finding) else UNTIMED,
        cause=_finding_cause(sides, one, OTHERS if shared else CLOCKLESS),
    )


def _finding_cause(
    sides: Sides, one: m.ComparedFinding, explains: float | m.Skipped, claimed: Sequence[Part] = ()
) -> m.Cause:
    finding = one.finding
    status = "new" if one.status == "new" else f"{one.base_count:,} -> {one.head_count:,} times"
    seen = SEEN_AS + "; ".join(part.text for part in claimed[:2]) if claimed else ""
    return m.Cause(
        cause="finding",
        run=sides.head.key,
        text=f"{status} {finding.rule} {finding.message}{seen}",
        explains_us=explains,
        fingerprint=finding.fingerprint,
        location=finding.location,
    )


# ---------------------------------------------------------------- lost CUDA graphs


def _graphs(
    sides: Sides, lost: str, findings: Sequence[m.ComparedFinding], left: Sequence[Part], slower: Slower
) -> tuple[list[Ranked], list[Part]]:
    """Launches of whole CUDA graphs that are gone: the launches and the host's time are theirs."""
    if not lost:
        return [], list(left)
    mine = _longer_of(_GRAPHS_COST, left)
    us = sum(part.us for part in mine)
    unknown = OTHERS if _claimed(_GRAPHS_COST, slower.parts, left) else CLOCKLESS
    cause = _graphs_cause(sides, lost, findings, us if mine else unknown)
    return [Ranked(rank=REASON, cause=cause, share=slower.share(us))], [part for part in left if part not in mine]


def _graphs_cause(
    sides: Sides, lost: str, findings: Sequence[m.ComparedFinding], explains: float | m.Skipped
) -> m.Cause:
    said = next((one.finding for one in findings if one.status == "new" and _loses_graphs(one.finding)), None)
    return m.Cause(
        cause="cuda-graphs",
        run=sides.head.key,
        text=f"{lost}: {said.rule} {said.message}" if said else lost,
        explains_us=explains,
        fingerprint=said.fingerprint if said else "",
        location=said.location if said else None,
    )


# ---------------------------------------------------------------- bare parts


def _bare(sides: Sides, part: Part, slower: Slower) -> Ranked:
    kind = KERNEL if part.what == REPLACED else part.what
    cause = m.Cause(cause=kind, run=sides.head.key, text=part.text, explains_us=part.us, location=part.location)
    return Ranked(rank=PART, cause=cause, share=slower.share(part.us))


def _alike(sides: Sides, left: Sequence[Part], slower: Slower) -> list[Ranked]:
    """Kernels that are each too little to be told, and together are not."""
    small = [part for part in left if part.what == KERNEL and not slower.is_a_share(abs(part.us))]
    us = sum(part.us for part in small)
    if not slower.is_a_share(us) or slower.metric.verdict != WORSE:
        return []
    text = f"{len(small):,} further kernels, each of them below {100 * LEAST_SHARE:.0f} % of it"
    cause = m.Cause(cause=KERNEL, run=sides.head.key, text=text, explains_us=us)
    return [Ranked(rank=PART, cause=cause, share=slower.share(us))]
