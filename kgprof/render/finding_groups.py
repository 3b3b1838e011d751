"""The same finding in several runs, said once with all their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.quantity import count, figure, span
from kgprof.wording import relative


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """Findings that have the rule, level, message, place and acceptance of ``first``."""

    members: tuple[m.Finding, ...]

    @property
    def first(self) -> m.Finding:
        return self.members[0]

    @property
    def runs(self) -> tuple[str, ...]:
        """Slugs; empty where it concerns no run."""
        return tuple(dict.fromkeys(finding.run.slug for finding in self.members if finding.run))

    @property
    def times(self) -> str:
        """How often in a run; empty for once, or where the words say it, as a sync's do."""
        return "" if self.first.reads else times([finding.count for finding in self.members], self.first.message)

    @property
    def cost(self) -> str:
        """ "310 µs per step (CPU wait; MEMORY, n = 17)", a range over the runs; empty where no run's is known."""
        known = [member.cost for member in self.members if isinstance(member.cost, m.FindingCost)]
        units = {cost.unit for cost in known}
        return said_cost(known) if len(units) == 1 else ""

    @property
    def message(self) -> str:
        return f"{', '.join(self.runs)}: {self.first.message}" if self.runs else self.first.message

    def line(self, root: str) -> str:
        """Place, runs, message and how often: "src/step.py:41: fused.default: ... (4 times)"."""
        times = f" ({self.times})" if self.times else ""
        return f"{where(self.first.location, root)}{self.message}{times}"


def grouped(findings: Iterable[m.Finding]) -> tuple[Grouped, ...]:
    """In the order in which each was first met."""
    groups: dict[tuple[object, ...], list[m.Finding]] = {}
    for finding in findings:
        key = (finding.rule, finding.level, finding.location, finding.message, finding.accepted)
        groups.setdefault(key, []).append(finding)
    return tuple(Grouped(members=tuple(same)) for same in groups.values())


def failing(profile: m.Profile) -> frozenset[m.Finding]:
    """Those that the gate fails because of."""
    return frozenset(profile.findings[i] for i in profile.gate.failing) if profile.gate else frozenset()


def where(place: m.Location | None, root: str) -> str:
    """ "src/step.py:41: ", with ``root`` cut off; empty where there is no place."""
    return f"{relative(place.file, root)}:{place.line}: " if place else ""


def times(counts: Sequence[int], said: str) -> str:
    """ "4 times", or a range over the runs; empty for once, and where ``said`` holds it already."""
    how_often = f"{span(count(min(counts)), count(max(counts)))} times"
    return "" if max(counts) < 2 or re.search(rf"\b{re.escape(how_often)}\b", said) else how_often


def said_cost(costs: Sequence[m.FindingCost]) -> str:
    """Of one unit: the range of the values, what it is, where it was measured, and how far all samples lie apart."""
    values, first = [cost.value for cost in costs], costs[0]
    passes = "".join(f"{name.upper()}, " for name in first.measured_in)
    samples = span(count(min(cost.samples for cost in costs)), count(max(cost.samples for cost in costs)))
    unit = "\N{MICRO SIGN}s per step" if first.unit == "us/step" else f"{first.unit}, once"
    known = [end for cost in costs if cost.extremes for end in cost.extremes]
    extremes = f"{span(figure(min(known)), figure(max(known)))}, " if known and min(known) < max(known) else ""
    return f"{span(figure(min(values)), figure(max(values)))} {unit} ({first.what}; {passes}{extremes}n = {samples})"


def way_in(finding: m.Finding) -> tuple[str, ...]:
    """Of what happened in a library: its line, and those between it and the project's; and torch's debug context."""
    refusal, line = finding.refusal, finding.library
    lines = refusal.chain if refusal else finding.reads.chain if finding.reads else ()
    chain = " > ".join(each.words for each in lines)
    said = (
        f"In {line.words}{f': {line.text}' if line.text else ''}" if line else "",
        f"Through {chain}" if chain else "",
        f"Developer debug context: {refusal.cause.context}" if refusal and refusal.cause.context else "",
    )
    return tuple(filter(None, said))


def with_cost(finding: m.Finding) -> str:
    """The message, and what it was measured to cost."""
    cost = finding.cost
    return f"{finding.alone}; costs {said_cost([cost])}" if isinstance(cost, m.FindingCost) else finding.alone


def cost_order(findings: Iterable[m.Finding]) -> tuple[bool, float]:
    """Sorts what each step pays before what is paid once, the costlier first, and what nobody measured last."""
    each_step, value = max(weights(findings), default=(False, 0.0))
    return not each_step, -value


def weights(findings: Iterable[m.Finding]) -> tuple[tuple[bool, float], ...]:
    """Of those whose cost is known; a larger one is costlier."""
    return tuple(finding.cost.weight for finding in findings if isinstance(finding.cost, m.FindingCost))
