"""A program that raised: where, with its line, in which step of which pass; on the terminal and on
the page, which is this alone where nothing was measured."""

from collections.abc import Sequence
from pathlib import Path

from kgprof import model as m
from kgprof.document.escaping import one_line
from kgprof.document.finding_list import line_of
from kgprof.document.table import View
from kgprof.wording import clause, plural, visible

_TEXT = 300  # characters of an error, and of a line
_TRACEBACK = 20_000


class Failed(View):
    """One line of the program that raised, in however many runs."""

    run: m.RunKey  # the first of them
    place: str
    error: str
    line: str  # with its number; empty where the report may not quote it
    where: str
    traceback: str


def measured_nothing(profile: m.Profile) -> bool:
    """Whether each run ended in a line of the program before a pass was complete."""
    return bool(profile.runs) and all(run.exit.failure and _unmeasured(run) for run in profile.runs)


def _unmeasured(run: m.RunReport) -> bool:
    return isinstance(run.compile, m.Skipped) and isinstance(run.step, m.Skipped)


def failed(profile: m.Profile) -> Sequence[Failed]:
    shown: dict[tuple[str, str], list[m.RunReport]] = {}
    for run in profile.runs:
        if failure := run.exit.failure:
            place = line_of(failure.location, profile.source_root)
            shown.setdefault((place, failure.error), []).append(run)
    return [_failed(place, runs) for (place, _), runs in shown.items()]


def lines(one: Failed, log: Path) -> Sequence[str]:
    """For a terminal, as compilers write them."""
    where = one.where
    if log.exists():
        where += f"; its log: {log}"
    return tuple(filter(None, (f"{one.place}: {one.error}", one.line, where)))


def _failed(place: str, runs: m.Runs) -> Failed:
    first = runs[0]
    failure = first.exit.failure
    assert failure
    slug = one_line(first.slug, _TEXT)
    if len(runs) > 1:
        slug += f" and {plural(len(runs) - 1, 'other run')}"
    where = f"{slug}: {first.exit.where}"
    if _unmeasured(first):
        where += ", before anything was measured"
    text = one_line(failure.location.text.strip(), _TEXT)
    return Failed(
        run=first.key,
        place=one_line(place, _TEXT),
        error=one_line(failure.error, _TEXT),
        line=clause(f"{failure.location.line:>6} | ", text),
        where=where,
        traceback=visible(first.exit.traceback[-_TRACEBACK:], keep="\n\t"),
    )
