"""The page's findings: by rule, so that each is explained once, and below it each place with what was seen there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.escaping import clip, one_line, visible
from kgprof.render.finding_groups import Grouped, cost_order, failing, grouped, way_in, weights
from kgprof.render.limits import Limits
from kgprof.wording import relative

OPEN = 8  # lines of one rule that stand open; the others are folded
_RELATED = 8  # other places of one finding
_WORDS = 3000  # characters of torch's own
_NOT_AN_ID = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    where: str  # "src/step.py:41 forward"
    source: str  # the line itself; empty where it could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingLine:
    anchor: str
    runs: tuple[str, ...]
    message: str
    times: str  # how often, where more than once
    cost: str  # as it was measured; empty where it was not
    weight: int  # of the cost: a larger number is costlier; -1 where it is not known
    fix: str  # as code; empty: the rule's remedy is all that is known
    no_fix: str  # why there is none for the program's owner
    fails: str  # that the gate fails because of it, and in which runs where not in all of them; empty: it does not
    accepted: str  # who accepts it and why
    place: Place | None
    related: tuple[Place, ...]
    words: tuple[str, ...]  # torch's own, a paragraph each


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingGroup:
    """Findings of one rule on one level."""

    rule: m.Rule
    level: str
    level_word: str
    lines: tuple[FindingLine, ...]
    folded: tuple[FindingLine, ...]

    @property
    def weight(self) -> int:
        return max((line.weight for line in (*self.lines, *self.folded)), default=-1)

    @property
    def total(self) -> int:
        return len(self.lines) + len(self.folded)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingList:
    groups: tuple[FindingGroup, ...]
    anchors: dict[str, str]  # of a fingerprint: the anchor of the line that stands for it


def finding_list(profile: m.Profile, limits: Limits) -> FindingList:
    """Rules in the Profile's order, which is by level first; what fails the gate comes first, what is accepted last."""
    rules, fails = {rule.id: rule for rule in profile.rules}, failing(profile)
    ranks = {weight: rank for rank, weight in enumerate(sorted(set(weights(profile.findings))))}
    anchors: dict[str, str] = {}
    groups: dict[tuple[str, m.Level], list[FindingLine]] = {}
    used: set[str] = set()
    for same in _ordered(grouped(profile.findings[: limits.findings]), fails):
        line = _line(same, _anchor(same.first, used), fails, profile, limits, ranks)
        used.add(line.anchor)
        groups.setdefault((same.first.rule, same.first.level), []).append(line)
        anchors |= {finding.fingerprint: line.anchor for finding in same.members if finding.fingerprint}
    listed = tuple(
        FindingGroup(
            # A Profile of another version may hold findings whose rule it does not list.
            rule=rules.get(rule, m.unknown_rule(one_line(rule, limits.name), level)),
            level=level.value,
            level_word=level.value.capitalize(),
            lines=tuple(lines[:OPEN]),
            folded=tuple(lines[OPEN:]),
        )
        for (rule, level), lines in groups.items()
    )
    return FindingList(groups=listed, anchors=anchors)


def _ordered(groups: Sequence[Grouped], fails: frozenset[m.Finding]) -> list[Grouped]:
    """By level, then as they weigh; within one rule by cost, else by place: what one line does stands together."""
    rules = list(dict.fromkeys((same.first.rule, same.first.level) for same in groups))
    return sorted(
        groups,
        key=lambda same: (
            rules.index((same.first.rule, same.first.level)),
            bool(same.first.accepted),
            fails.isdisjoint(same.members),
            *cost_order(same.members),
            *((at.file, at.line) if (at := same.first.location) else ("", 0)),
        ),
    )


def _line(
    same: Grouped,
    anchor: str,
    failing: frozenset[m.Finding],
    profile: m.Profile,
    limits: Limits,
    ranks: Mapping[tuple[bool, float], int],
) -> FindingLine:
    finding, root = same.first, profile.environment.source_root
    said = "\n".join((*way_in(finding), finding.detail))
    detail = visible(clip(said, min(_WORDS, 8 * limits.name)), keep="\n\t")
    # A budget may stand for some of the runs that have the same finding.
    members, fails = tuple(member for member in same.members if member in failing), ""
    if members:
        runs = Grouped(members=members).runs
        where = f" in {one_line(', '.join(runs[: limits.lines]), limits.name)}" if members != same.members else ""
        fails = f"Fails the gate{where}."
    return FindingLine(
        anchor=anchor,
        runs=tuple(one_line(run, limits.name // 2) for run in same.runs[: limits.lines]),
        message=one_line(same.first.message, 2 * limits.name),
        times=same.times,
        cost=one_line(same.cost, limits.name),
        weight=max((ranks[weight] for weight in weights(same.members)), default=-1),
        fix=one_line(finding.fix, limits.name),
        no_fix=one_line(finding.no_fix, 2 * limits.name),
        fails=fails,
        accepted=one_line(finding.accepted, limits.name),
        place=place(finding.location, root, limits) if finding.location else None,
        related=tuple(place(other, root, limits) for other in finding.related[: min(_RELATED, limits.lines)]),
        words=tuple(shown for line in detail.splitlines() if (shown := " ".join(line.split()))),
    )


def place(location: m.Location, root: str, limits: Limits) -> Place:
    where = f"{relative(location.file, root)}:{location.line} {location.function}".strip()
    return Place(where=one_line(where, limits.name), source=clip(visible(location.text.strip()), limits.name))


def _anchor(finding: m.Finding, used: set[str]) -> str:
    """An id of HTML that no other finding of the page has."""
    base = clip(_NOT_AN_ID.sub("-", f"{finding.rule}-{finding.fingerprint}"), 80).rstrip("\u2026")
    anchor, number = base, 1
    while anchor in used:
        number += 1
        anchor = f"{base}-{number}"
    return anchor
