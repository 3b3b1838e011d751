"""What kgprof found in a program, matched against its truth by family: what is right, missed, and
too much.

A finding is right only if everything that the truth knows of it is: its place in the program, the
library's line, the cause, the count. What a truth leaves open is not looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kgprof import model as m
from kgprof.collectors.compile import graph_breaks, recompiles, skipped_frames
from kgprof.collectors.compile.compilations import COMPILE_FAILED
from kgprof.collectors.compile.recompiled_functions import RecompiledFunction
from kgprof.collectors.time import syncs
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


@dataclass(frozen=True, slots=True)
class _Place:
    file: str
    function: str = ""
    text: str = ""

    def is_of(self, file: str) -> bool:
        """``file`` begins with the folder of its package, and what kgprof writes with the path or
        below that folder."""
        return self.file.endswith(f"/{file}") or self.file == file.partition("/")[2]


def _libraries(finding: m.Finding) -> tuple[_Place, ...]:
    """The library's line where the finding has one, and the places beside its own."""
    library = getattr(finding, "library", None)
    found = (*finding.related, *((library,) if library is not None else ()))
    return tuple(_Place(one.file, one.function, one.text) for one in found)


def _score(
    truths: Sequence[T],
    findings: Sequence[F],
    fits: Callable[[T, F], bool],
    said: Callable[[F], str],
) -> Score:
    """Each truth takes one finding, and each finding one truth."""
    left, missed = list(findings), []
    for truth in truths:
        match = next((one for one in left if fits(truth, one)), None)
        if match is None:
            missed.append(str(truth))
        else:
            left.remove(match)
    return Score(
        right=len(truths) - len(missed), missed=tuple(missed), wrong=tuple(map(said, left))
    )


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
        and finding.made_by_torch is truth.by_torch
    )


def at(program: Program, site: Site, finding: m.Finding) -> bool:
    """Its line of the program is the primary location, and the library's line is named if there is
    one."""
    place = finding.location
    own = place is not None and Path(place.file) == program.path and place.line in site.lines
    return own and (not site.library or any(_is_line(site, place) for place in _libraries(finding)))


def _is_line(site: Site, place: _Place) -> bool:
    named = not place.function or place.function.rpartition(".")[2] == site.function
    # a whole line, or the expression in it that reads
    quoted = site.text in place.text or place.text in site.text
    return place.is_of(site.library) and named and quoted


# ---------------------------------------------------------------- recompiles


def recompiled(program: Program, recording: m.Recording, findings: Iterable[m.Finding]) -> Score:
    mine = [
        finding for finding in findings if finding.rule in {rule.id for rule in recompiles.RULES}
    ]
    guards: dict[object, set[frozenset[str]]] = defaultdict(set)
    events = recompiles.collect(Evidence(recording))
    for one in events:
        guards[_line(one.location)].add(
            frozenset(recompile.guard.kind for recompile in one.recompiles) - {"other"}
        )
    return _score(
        program.recompiles,
        mine,
        lambda truth, one: _is_recompiled(truth, one, events, guards),
        _said,
    )


def _is_recompiled(
    truth: Recompiled,
    finding: m.Finding,
    events: Sequence[RecompiledFunction],
    guards: dict[object, set[frozenset[str]]],
) -> bool:
    """The function is named with its file; one that converged is a note, and one that torch gave up
    is not."""
    own = finding.location
    named_so = [e for e in events if finding.message.startswith(f"{e.name} recompiled ")]
    # A library's module stands at the line that calls it, its event at its own.
    about = [e for e in named_so if e.location == own] or named_so
    # Where a finding names the owner's module, its event knows which function of which library was
    # compiled.
    behind = tuple(
        _Place(e.library.file, e.library.function) for e in about if e.modules and e.library
    )
    shown = (*_libraries(finding), *((_Place(own.file, own.function),) if own else ()))
    by_owner = _is_function(truth, behind) or any(e.wraps or e.modules for e in about)
    named = _is_function(truth, shown) or (by_owner and _names(truth.stands_for, finding))
    note = finding.level is m.Level.NOTE
    known = any(truth.guards in guards[_line(e.location)] for e in about)
    return named and note is not truth.repeats and finding.count == truth.times and known


def _is_function(truth: Recompiled, places: Iterable[_Place]) -> bool:
    return any(
        one.is_of(truth.file) and one.function.rpartition(".")[2] == truth.function
        for one in places
    )


def _names(stands_for: str, finding: m.Finding) -> bool:
    """A module is named by its path and class, "encoder (Sequential)", or by its class alone."""
    owner, _, method = stands_for.partition(".")
    alone = finding.message.startswith(f"{owner} recompiled ")
    named = alone or f"({owner})" in finding.message or stands_for in finding.message
    return bool(owner) and named and (method == "forward" or method in finding.message)


def _line(place: m.Location | None) -> object:
    return (place.file, place.line) if place else None


# ---------------------------------------------------------------- syncs


def read(program: Program, findings: Iterable[m.Finding]) -> Score:
    """Every line that waits often has to be found; one that waits seldom may be. What waits for no
    GPU may not."""
    mine = [
        finding for finding in findings if finding.rule in READING and not _in_stand_in(finding)
    ]
    often = tuple(one for one in program.syncs if one.per in OFTEN and one.only != "cuda")
    score = _score(often, mine, lambda truth, one: at(program, truth.site, one), _said)
    extra = [
        one for one in mine if not any(at(program, truth.site, one) for truth in program.syncs)
    ]
    return Score(right=score.right, missed=score.missed, wrong=tuple(map(_said, extra)))


def _in_stand_in(finding: m.Finding) -> bool:
    """In the place of a C++ operator, of which nothing would be seen."""
    return (
        finding.location is not None
        and Path(finding.location.file) == SCRIPTS / "cpu_torchvision.py"
    )


def _said(finding: m.Finding) -> str:
    place = finding.location
    where = f"{place.file.removeprefix(f'{SCRIPTS}/')}:{place.line}" if place else "nowhere"
    return f"{finding.rule} {finding.level.value} {where} ({finding.count}) {finding.message}"
