"""What kgprof finds in a Recording of the corpus, in the words of the marks, so that both can be
compared as sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from kgprof.collectors.graphs import addresses
from kgprof.collectors.graphs.addresses import AddressChange, BufferUse, CopiedInput
from kgprof.collectors.tensors import aliases, mutations
from kgprof.collectors.time import syncs
from kgprof.model import Finding, Location, MemoryPass, Recording, RunKey
from kgprof.reading.evidence import Evidence
from tests.corpus_runtime.truth import BUFFER, CORPUS, Mark

Place = tuple[str, str, int, str]  # rule, file relative to the corpus, line, name of a buffer


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A finding or a note; what its rule says nothing about stays at the default."""

    rule: str
    path: str
    line: int
    cause: str = ""
    where: str = ""
    reads: float | None = None
    level: str = ""
    since: int | None = None
    kind: str = ""
    size_bytes: int | None = None
    name: str = ""
    pattern: str = ""

    @property
    def place(self) -> Place:
        return (self.rule, self.path, self.line, self.name)


def place_of(mark: Mark) -> Place:
    """A buffer's note stands where it is declared; what is found of a buffer has its name alone."""
    if mark.rule == BUFFER:
        return (mark.rule, "", 0, mark.name)
    return (mark.rule, str(mark.path.relative_to(CORPUS)), mark.line, "")


def expected(mark: Mark, found: Found | None) -> Found:
    """The mark as a finding; what the mark leaves open is taken from the finding at its place."""
    rule, path, line, name = place_of(mark)
    blank = found or Found(rule=rule, path=path, line=line)
    return Found(
        rule=rule,
        path=path,
        line=line,
        cause=mark.cause or blank.cause,
        where=mark.where or blank.where,
        reads=blank.reads if mark.reads is None else mark.reads,
        level=mark.level or blank.level,
        since=mark.since,
        kind=mark.kind or blank.kind,
        size_bytes=blank.size_bytes if mark.size_bytes is None else mark.size_bytes,
        name=name,
        pattern=mark.pattern,
    )


def of_run(recording: Recording, key: RunKey) -> tuple[Found, ...]:
    """All of one program, in no order. Two findings of one rule at one place are two."""
    runs = tuple(run for run in recording.runs if run.key == key)
    one = msgspec.structs.replace(recording, runs=runs)
    return (*_of_addresses(one), *_of_aliases(one), *_of_mutations(one), *_of_syncs(one))


def _of_syncs(recording: Recording) -> Iterator[Found]:
    for event in syncs.collect(Evidence(recording)):
        (finding,) = syncs.diagnose((event,))
        where = event.where if event.rule != "KGP202" else ""
        yield replace(_found(finding), cause=event.cause, where=where, reads=event.reads_per_step)


def _of_addresses(recording: Recording) -> Iterator[Found]:
    for event in addresses.collect(Evidence(recording)):
        if isinstance(event, BufferUse):
            yield Found(rule=BUFFER, path="", line=0, name=event.name, pattern=event.pattern)
            continue
        (finding,) = addresses.diagnose((event,))
        found = _found(finding)
        if isinstance(event, AddressChange):
            yield replace(found, since=_settled(event, recording))
        if isinstance(event, CopiedInput):
            yield replace(found, size_bytes=event.size_bytes)


def _settled(event: AddressChange, recording: Recording) -> int | None:
    """The call of the last move, None if it moved in the last call as well."""
    (run,) = recording.runs
    assert isinstance(run.memory, MemoryPass)
    last = max(event.calls)
    return last if last < len(run.memory.step_us) - 1 else None


def _of_aliases(recording: Recording) -> Iterator[Found]:
    for event in aliases.collect(Evidence(recording)):
        for finding in aliases.diagnose((event,)):
            yield replace(_found(finding), kind=event.kind if event.rule != "KGP406" else "")


def _of_mutations(recording: Recording) -> Iterator[Found]:
    for finding in mutations.diagnose(mutations.collect(Evidence(recording))):
        yield _found(finding)


def _of_syncs(recording: Recording) -> Iterator[Found]:
    for event in syncs.collect(Evidence(recording)):
        (finding,) = syncs.diagnose((event,))
        where = event.where if event.rule != "KGP202" else ""
        yield replace(
            _found(finding), level="", cause=event.cause, where=where, reads=event.reads_per_step
        )


def _found(finding: Finding) -> Found:
    path, line = _place(finding.location)
    return Found(rule=finding.rule, path=path, line=line, level=finding.level.value)


def _place(location: Location | None) -> tuple[str, int]:
    """Relative to the corpus, wherever the machine that recorded it had its checkout."""
    if location is None:
        return "", 0
    _, _, inside = location.file.rpartition("/fixtures/corpus_runtime/")
    return inside or location.file, location.line
