"""The same finding in several runs, said once with all their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kgprof.model import Finding
from kgprof.render.quantity import count, span


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """Findings that have the rule, level, words, place and acceptance of ``first``."""

    members: tuple[Finding, ...]
    words: str  # without the run's name

    @property
    def first(self) -> Finding:
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
    def message(self) -> str:
        return f"{', '.join(self.runs)}: {self.words}" if self.runs else self.words


def grouped(findings: Iterable[Finding]) -> tuple[Grouped, ...]:
    """In the order in which each was first met."""
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        key = (finding.rule, finding.level, finding.location, words(finding), finding.accepted)
        groups.setdefault(key, []).append(finding)
    return tuple(Grouped(members=tuple(same), words=words(same[0])) for same in groups.values())


def words(finding: Finding) -> str:
    """Some messages begin with the run, so that they can stand alone; here it is said beside them."""
    return finding.message.removeprefix(f"{finding.run.slug}: ") if finding.run else finding.message


def times(counts: Sequence[int], said: str) -> str:
    """ "4 times", or a range over the runs; empty for once, and where ``said`` holds it already."""
    how_often = f"{span(count(min(counts)), count(max(counts)))} times"
    return "" if max(counts) < 2 or re.search(rf"\b{re.escape(how_often)}\b", said) else how_often
