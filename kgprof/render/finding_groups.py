"""The same finding in several runs, said once with all their names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kgprof.model import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """``first`` stands for all of them: they have its rule, level, words and place."""

    first: Finding
    words: str  # without the run's name
    runs: tuple[str, ...]  # slugs; empty where it concerns no run

    @property
    def message(self) -> str:
        return f"{', '.join(self.runs)}: {self.words}" if self.runs else self.words


def grouped(findings: Iterable[Finding]) -> tuple[Grouped, ...]:
    """In the order in which each was first met."""
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.rule, finding.level, finding.location, words(finding)), []).append(finding)
    return tuple(
        Grouped(
            first=same[0],
            words=words(same[0]),
            runs=tuple(dict.fromkeys(finding.run.slug for finding in same if finding.run)),
        )
        for same in groups.values()
    )


def words(finding: Finding) -> str:
    """Some messages begin with the run, so that they can stand alone; here it is said beside them."""
    return finding.message.removeprefix(f"{finding.run.slug}: ") if finding.run else finding.message
