"""What kgprof found in a program, matched against its truth by family: what is right, missed, and too much.

A finding is right only if everything that the truth knows of it is: its place in the program, the library's line,
the cause, the count. What a truth leaves open is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kgprof import model as m
from kgprof.collectors import graph_breaks, recompiles, skipped_frames, syncs
from kgprof.collectors.compilations import COMPILE_FAILED
from kgprof.collectors.recompiles import RecompiledFunction
from kgprof.reading.evidence import Evidence
from tests.programs.truth import OFTEN, SCRIPTS, Break, Program, Recompiled, Site

BREAKING = {
    "break": graph_breaks.GRAPH_BREAK.id,
    "rest": skipped_frames.SKIPPED_FRAME.id,
    "frame": skipped_frames.SKIPPED_FRAME.id,
    "error": COMPILE_FAILED.id,
}
READING = frozenset(rule.id for rule in syncs.RULES)
T = TypeVar("T")
F = TypeVar("F")


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Of one family of one program."""

    right: int
    missed: tuple[str, ...]
    wrong: tuple[str, ...]  # findings that no truth explains, or that say less than the truth

    @property
    def exact(self) -> bool:
        return not self.missed and not self.wrong


def _score(truths: Sequence[T], findings: Sequence[F], fits: Callable[[T, F], bool], said: Callable[[F], str]) -> Score:
    """Each truth takes one finding, and each finding one truth."""
    left, missed = list(findings), []
    for truth in truths:
        match = next((one for one in left if fits(truth, one)), None)
        if match is None:
            missed.append(str(truth))
        else:
            left.remove(match)
    return Score(right=len(truths) - len(missed), missed=tuple(missed), wrong=tuple(map(said, left)))


# ---------------------------------------------------------------- breaks


def breaks(program: Program, findings: Iterable[m.Finding]) -> Score:
    mine = [finding for finding in findings if finding.rule in BREAKING.values()]
    return _score(program.breaks, mine, lambda truth, one: _is_break(program, truth, one), _said)


def _is_break(program: Program, truth: Break, finding: m.Finding) -> bool:
    return (
        finding.rule == BREAKING[truth.kind]
        and at(program, truth.site, finding)
        and (truth.gb in finding.message + finding.detail)
        and truth.records in (0, finding.count)
    )


def at(program: Program, site: Site, finding: m.Finding) -> bool:
    """Its line of the program is the primary location, and the library's line is named if there is one."""
    place = finding.location
    own = place is not None and Path(place.file) == program.path and place.line in site.lines
    return own and (not site.library or any(_is_library_line(site, one) for one in finding.related))


def _is_library_line(site: Site, place: m.Location) -> bool:
    if not place.file.replace("\\", "/").endswith(f"/{site.library}"):
        return False
    return site.text in place.text if place.text and site.text else True


# ---------------------------------------------------------------- recompiles


def recompiled(program: Program, recording: m.Recording, findings: Iterable[m.Finding]) -> Score:
    mine = [finding for finding in findings if finding.rule in {rule.id for rule in recompiles.RULES}]
    guards = {_line(one): _guards(one) for one in recompiles.collect(Evidence(recording))}
    return _score(program.recompiles, mine, lambda truth, one: _is_recompiled(truth, one, guards), _said)


def _is_recompiled(truth: Recompiled, finding: m.Finding, guards: dict[object, frozenset[str]]) -> bool:
    """The function is named with its file; one that converged is a note, and one that torch gave up is not."""
    places = [place for place in (finding.location, *finding.related) if place is not None]
    named = any(_is_function(truth, place) for place in places)
    for_owner = bool(truth.stands_for) and truth.stands_for in finding.message
    note = finding.level is m.Level.NOTE
    kinds = guards.get((finding.location.file, finding.location.line) if finding.location else None, truth.guards)
    return (named or for_owner) and note is not truth.repeats and finding.count == truth.times and kinds == truth.guards


def _is_function(truth: Recompiled, place: m.Location) -> bool:
    named = place.function == truth.function or place.function.endswith(f".{truth.function}")
    return named and place.file.endswith(f"/{truth.file}")


def _line(event: RecompiledFunction) -> object:
    return (event.location.file, event.location.line) if event.location else None


def _guards(event: RecompiledFunction) -> frozenset[str]:
    return frozenset(one.guard.kind for one in event.recompiles)


# ---------------------------------------------------------------- syncs


def read(program: Program, findings: Iterable[m.Finding]) -> Score:
    """Every line that waits often has to be found; one that waits seldom may be. What waits for no GPU may not."""
    mine = [finding for finding in findings if finding.rule in READING and not _in_stand_in(finding)]
    often = tuple(one for one in program.syncs if one.per in OFTEN and one.only != "cuda")
    score = _score(often, mine, lambda truth, one: at(program, truth.site, one), _said)
    extra = [one for one in mine if not any(at(program, truth.site, one) for truth in program.syncs)]
    return Score(right=score.right, missed=score.missed, wrong=tuple(map(_said, extra)))


def _in_stand_in(finding: m.Finding) -> bool:
    """In the place of a C++ operator, of which nothing would be seen."""
    return finding.location is not None and Path(finding.location.file) == SCRIPTS / "cpu_torchvision.py"


def _said(finding: m.Finding) -> str:
    place = finding.location
    where = f"{place.file.removeprefix(f'{SCRIPTS}/')}:{place.line}" if place else "nowhere"
    return f"{finding.rule} {finding.level.value} {where} ({finding.count}) {finding.message}"
