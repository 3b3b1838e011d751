"""The same finding in several runs, said once with all their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.quantity import count, figure, span


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """Findings that have the rule, level, words, place and acceptance of ``first``."""

    members: tuple[m.Finding, ...]
    words: str  # without the run's name

    @property
    def first(self) -> m.Finding:
        return self.members[0]

    @property
    def runs(self) -> tuple[str, ...]:
        """Slugs; empty where it concerns no run."""
        return tuple(dict.fromkeys(finding.run.slug for finding in self.members if finding.run))

    @property
    def times(self) -> str:
        """How often in a run; empty for once, or where the words say it."""
        return times([finding.count for finding in self.members], self.words)

    @property
    def cost(self) -> str:
        """ "310 us/step (the host waited; MEMORY, n = 17)", a range over the runs; empty where no run's is known."""
        known = [member.cost for member in self.members if isinstance(member.cost, m.FindingCost)]
        units = {cost.unit for cost in known}
        return said_cost(known) if len(units) == 1 else ""

    @property
    def message(self) -> str:
        return f"{', '.join(self.runs)}: {self.words}" if self.runs else self.words


def grouped(findings: Iterable[m.Finding]) -> tuple[Grouped, ...]:
    """In the order in which each was first met. Some messages begin with the run, so that they can stand alone; here
    it is said beside them."""
    groups: dict[tuple[object, ...], list[m.Finding]] = {}
    words: dict[tuple[object, ...], str] = {}
    for finding in findings:
        text = finding.message.removeprefix(f"{finding.run.slug}: ") if finding.run else finding.message
        key = (finding.rule, finding.level, finding.location, text, finding.accepted)
        groups.setdefault(key, []).append(finding)
        words[key] = text
    return tuple(Grouped(members=tuple(same), words=words[key]) for key, same in groups.items())


def times(counts: Sequence[int], said: str) -> str:
    """ "4 times", or a range over the runs; empty for once, and where ``said`` holds it already."""
    how_often = f"{span(count(min(counts)), count(max(counts)))} times"
    return "" if max(counts) < 2 or re.search(rf"\b{re.escape(how_often)}\b", said) else how_often


def said_cost(costs: Sequence[m.FindingCost]) -> str:
    """Of one unit: the range of the values, what it is, where it was measured, and how far all samples lie apart."""
    values, first = [cost.value for cost in costs], costs[0]
    passes = "".join(f"{name.upper()}, " for name in first.measured_in)
    samples = span(count(min(cost.samples for cost in costs)), count(max(cost.samples for cost in costs)))
    unit = "us/step" if first.unit == "us/step" else f"{first.unit}, once"
    known = [end for cost in costs if cost.extremes for end in cost.extremes]
    extremes = f"{span(figure(min(known)), figure(max(known)))}, " if known and min(known) < max(known) else ""
    return f"{span(figure(min(values)), figure(max(values)))} {unit} ({first.what}; {passes}{extremes}n = {samples})"


def with_cost(finding: m.Finding) -> str:
    """The message, and what it was measured to cost."""
    cost = finding.cost
    return f"{finding.message}; costs {said_cost([cost])}" if isinstance(cost, m.FindingCost) else finding.message


def cost_order(findings: Iterable[m.Finding]) -> tuple[bool, float]:
    """Sorts what each step pays before what is paid once, the costlier first, and what nobody measured last."""
    each_step, value = max((f.cost.weight for f in findings if isinstance(f.cost, m.FindingCost)), default=(False, 0.0))
    return not each_step, -value
