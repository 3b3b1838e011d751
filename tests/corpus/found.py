"""What kgprof finds in a Recording of the corpus, in the words of the marks, so that both can be
compared as sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from kgprof.collectors.compile import caches, compilations, graph_breaks, recompiles, skipped_frames
from kgprof.collectors.compile.recompiled_functions import RecompiledFunction
from kgprof.collectors.trust import disagreements
from kgprof.model import Level, Location, Recording, RunKey, Skipped
from kgprof.reading.evidence import Evidence
from tests.corpus.truth import CORPUS, NOTE, Mark


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A finding or a note; what its rule says nothing about stays at the default."""

    rule: str
    path: str  # relative to the corpus
    line: int
    guards: tuple[str, ...] = ()
    records: int | None = None
    calls: tuple[int, ...] = ()
    eager_calls: int | None = None
    scope: str = ""


def expected(mark: Mark, found: Found | None) -> Found:
    """The mark as a finding; what the mark leaves open is taken from the finding at its place."""
    open_count = mark.records is None
    return Found(
        rule=mark.rule,
        path=str(mark.path.relative_to(CORPUS)),
        line=mark.line,
        guards=(mark.guard,) if mark.guard else (),
        records=found.records if open_count and found else mark.records,
        calls=mark.calls,
        eager_calls=mark.eager_calls,
        scope=mark.scope,
    )


def of_run(recording: Recording, key: RunKey) -> tuple[Found, ...]:
    runs = tuple(run for run in recording.runs if run.key == key)
    return tuple(_all(msgspec.structs.replace(recording, runs=runs)))


def _all(recording: Recording) -> Iterator[Found]:
    for broken in graph_breaks.collect(Evidence(recording)):
        yield Found(rule="KGP101", **_place(broken.location), records=broken.records)
    for skipped in skipped_frames.collect(Evidence(recording)):
        yield Found(
            rule="KGP102", **_place(skipped.location), records=skipped.records, scope=skipped.scope
        )
    for function in recompiles.collect(Evidence(recording)):
        yield from _recompiled(function)
    for collector in (caches, compilations, disagreements):
        for finding in collector.diagnose(collector.collect(Evidence(recording))):
            yield Found(rule=finding.rule, **_place(finding.location))


def _recompiled(function: RecompiledFunction) -> Iterator[Found]:
    for finding in recompiles.diagnose((function,)):
        is_note = finding.level is Level.NOTE and not finding.one_off
        steady = [each for each in function.recompiles if function.is_steady(each)]
        before = [each for each in function.recompiles if not function.is_steady(each)]
        chosen = function.recompiles if finding.rule != "KGP103" else steady
        chosen = before if is_note else chosen
        limit = function.limit
        yield Found(
            rule=NOTE if is_note else finding.rule,
            **_place(function.location),
            guards=tuple(sorted({recompile.guard.kind for recompile in chosen})),
            calls=tuple(sorted({recompile.call for recompile in chosen})),
            eager_calls=None
            if limit is None or isinstance(limit.eager_calls, Skipped)
            else limit.eager_calls,
        )


def _place(location: Location | None) -> dict[str, Any]:
    """Relative to the corpus, wherever the machine that recorded it had its checkout."""
    if location is None:
        return {"path": "", "line": 0}
    _, _, inside = location.file.rpartition("/fixtures/corpus/")
    return {"path": inside or location.file, "line": location.line}
