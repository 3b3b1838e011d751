"""KGP102: frames that torch gave up on, so that they run in eager: in whole, or from one line to
their end.

Two witnesses are asked. The trace has the line and the cause of most of them; a generator, a
dispatch mode and an error that torch suppresses leave no record there, and only the frame hook saw
them.
"""

import ast
from collections.abc import Iterator, Sequence

from kgprof import model as m
from kgprof.collectors.compile.graph_breaks import (
    BACKEND_FAILED,
    BreakRecord,
    because,
    break_records,
    calls_of,
    cause_of,
    compiled_frame,
    detail_of,
    fell_back,
    identity_of,
    library_of,
    named_remedy,
    numbered,
    refusal_of,
    sites,
)
from kgprof.collectors.event import Event, finding
from kgprof.collectors.fingerprint import grouped, line_of
from kgprof.reading import compiled_callables
from kgprof.reading.evidence import Evidence
from kgprof.reading.source_text import is_resumed, resumed_at
from kgprof.reading.structured_trace import Compiled, RunTrace
from kgprof.wording import and_more, clause

SKIPPED_FRAME = m.Rule(
    id="KGP102",
    name="frame-fell-back-to-eager",
    level=m.Level.WARNING,
    summary=(
        "torch.compile skipped a function: all of it, or everything after one line, runs eagerly."
    ),
    why=(
        "torch cannot resume after a break inside a loop, a try block, a generator or a custom "
        "context manager, so it skips the whole frame: there is no graph of it, nothing in it is "
        "fused, and torch counts no graph break. It is the most expensive kind of break and the "
        "quietest. Functions that it calls are still compiled one by one."
    ),
    example=(
        "for batch in batches: ...; print(step) -- the print is one line, but the "
        "whole function runs eagerly."
    ),
    remedy=(
        "Fix the line that caused it, or move it, the loop or the with block outside of what is "
        "compiled, with all that needs its result, gradients too."
    ),
    topic=m.Topic.COMPILATION,
    seen_in=((m.Witness.COMPILE,),),
    can_cost=tuple(m.CostKind),
    relieves=(m.LimitKind.LAUNCHES, m.LimitKind.HOST, m.LimitKind.UNFUSED),
)
RULES = (SKIPPED_FRAME,)

_UNDER_A_MODE = (
    "leave no TorchDispatchMode active around the call: torch then skips the function, up to 2.13 "
    "permanently"
)
# torch goes back to the last line at which it can end a graph
_IN_A_BLOCK = ", or from the start of a try or with block around it"
_AT_NO_LINE = (
    "a backend refuses a graph as a whole: look for what the error names, in this function and in "
    "what it calls, and move it outside of what is compiled"
)
NAMED = 3  # functions of a list
_UNDER_A_TRANSFORM = "GB0149"  # vmap, grad, jvp
_RAISES = "GB0088"  # the program raised while it was traced
_CAUSES = {
    "dispatch-mode": (
        "a TorchDispatchMode was active when it was called, and torch.compile supports none"
    ),
    "error": "an error that torch suppressed while compiling it",
}


class SkippedFrame(Event):
    """One site of one run that made a frame fall back.

    ``location``: the line that caused it, or the def where no line is to blame."""

    frame: m.Location | None  # the def of the function that fell back
    scope: str  # "frame", or "rest" where operations before the line are compiled
    library: m.PackageLine | None  # where torch stopped, when that was in a library
    refusal: m.Refusal
    records: int  # graph-break records of ``frame`` in the trace: 0 where torch writes none
    calls: tuple[int, ...]
    since: int = 0  # of a part behind a break that fell back as a whole: that break's line
    compiled_inside: tuple[str, ...] = ()  # functions of the project that it calls
    eager_too: tuple[str, ...] = ()  # others that the same line made fall back as a whole


def collect(evidence: Evidence) -> tuple[SkippedFrame, ...]:
    return tuple(event for trace in evidence.compilers_and_cut_off for event in _of_run(trace))


def _of_run(trace: RunTrace) -> Iterator[SkippedFrame]:
    """From torch's records first; the frame hook tells of the frames that no record explains."""
    explained: list[Compiled] = []
    known = break_records(trace)
    for records, folded in sites(trace, fallen=True):
        explained += [record.compiled for record in records if record.compiled]
        frame = compiled_frame(records[0])
        if frame is not None and trace.is_changed(frame.file, frame.line, frame.function):
            continue
        own_causes = [
            record
            for record in records
            if not _follows_from_another(trace, record, known)
            and not _is_branch_that_raises(trace, record)
        ]
        if own_causes:
            yield _from_records(trace, own_causes, folded)
    rows = {id(row) for compiled in explained for row in trace.frame_rows(compiled)}
    yield from _from_frames(trace, [row for row in trace.all.frames if id(row) not in rows])


def _follows_from_another(
    trace: RunTrace, record: BreakRecord, known: Sequence[BreakRecord]
) -> bool:
    """Whether torch refused a function unseen that it had traced into from a caller, up to the line
    that broke there.

    Behind that break, which is a finding of its own, the function runs by itself, as under vmap
    outside of a graph. What runs under a transform of a caller that fell back follows from that,
    too: torch would have traced the transform with it.
    """
    frame = compiled_frame(record)
    if frame is None or record.stack:
        return False
    if record.cause.gb_id == _UNDER_A_TRANSFORM and record.compiled is not None:
        callers = {(place.file, place.function) for place in record.compiled.stack[:-1]}
        if any(
            (at.file, at.function) in callers
            for other in known
            if other is not record
            and other.call == record.call
            and (at := compiled_frame(other)) is not None
            and fell_back(trace, other)
        ):
            return True
    return any(
        (place.file, place.function) == (frame.file, frame.function)
        for other in known
        if other.call == record.call and other.site is not None
        for place in other.stack
    )


def _is_branch_that_raises(trace: RunTrace, record: BreakRecord) -> bool:
    """Whether the frame is the branch of an ``if`` that broke the graph, which is a finding of its
    own, and ends in the raise: nothing behind it could be compiled."""
    frame = compiled_frame(record)
    place = record.site
    if frame is None or place is None or record.cause.gb_id != _RAISES:
        return False
    if not is_resumed(frame.function):
        return False
    branch = trace.source.condition(m.Location(frame.file, frame.line, place.function))
    if branch is None:
        return False
    statements = (*branch.body, *branch.orelse)
    return any(isinstance(each, ast.Raise) and each.lineno == place.line for each in statements)


def _from_records(
    trace: RunTrace, records: Sequence[BreakRecord], folded: m.Folded
) -> SkippedFrame:
    first = records[0]
    scope = "rest"
    since = 0
    compiled_inside: tuple[str, ...] = ()
    definition = None
    if (frame := compiled_frame(first)) is not None:
        definition = trace.source.definition(frame.file, frame.line, frame.function)
    if any(fell_back(trace, record) == "frame" for record in records):
        if frame is not None:
            since = resumed_at(frame.function)
        if frame is None or not is_resumed(frame.function):
            scope = "frame"
            compiled_inside = _compiled_inside(trace, records)
    return SkippedFrame(
        run=trace.run,
        location=first.site,
        frame=definition,
        scope=scope,
        library=library_of(trace, first.stopped),
        refusal=refusal_of(trace, first.cause, first.stack, folded),
        records=sum(one.compiled is not None and one.compiled.frame == frame for one in records),
        calls=calls_of(records),
        since=since,
        compiled_inside=compiled_inside,
        eager_too=_eager_too(trace, records, definition),
        identity=identity_of(trace, first),
    )


def _compiled_inside(trace: RunTrace, records: Sequence[BreakRecord]) -> tuple[str, ...]:
    """Name the functions of the project that torch compiled in calls of a skipped one that was to
    be compiled itself, from the call on that skipped it."""
    skipped = compiled_frame(records[0])
    called, since = compiled_callables.of_code(trace, skipped), calls_of(records)[0]
    names = [
        trace.source.definition(frame.file, frame.line, frame.function).function
        for compiled in trace.compiled
        if (frame := compiled.frame) is not None
        and frame != skipped
        and compiled.call >= since
        and not (compiled.failed or compiled.is_empty or is_resumed(frame.function))
        and compiled.metrics.get("graph_op_count") != 0
        and frame.file in trace.source.own
        and compiled_callables.of_compilation(trace, compiled) in called
    ]
    return tuple(dict.fromkeys(names))


def _eager_too(
    trace: RunTrace, records: Sequence[BreakRecord], definition: m.Location | None
) -> tuple[str, ...]:
    places = (
        trace.source.definition(frame.file, frame.line, frame.function)
        for record in records
        if (frame := compiled_frame(record)) is not None
        and not is_resumed(frame.function)
        and fell_back(trace, record) == "frame"
        and trace.source.project.holds(frame.file)
    )
    return tuple(dict.fromkeys(place.function for place in places if place != definition))


def _from_frames(trace: RunTrace, rows: Sequence[m.OfferedFrame]) -> Iterator[SkippedFrame]:
    """Skipped for a fault, and nothing in the trace says so. One event a function."""
    refused = []
    for row in rows:
        # Refused unseen, inside a function that had been skipped: a generator that would have been
        # part of its caller.
        in_consequence = row.called_in and not trace.compilations_of(row)
        changed = trace.is_changed(row.file, row.first_line, row.function)
        if row.wraps or in_consequence or changed:  # what torch's wrapper calls is KGP108's
            continue
        if row.outcome == "skipped" and row.why in _CAUSES:
            refused.append((trace.source.definition(row.file, row.first_line, row.function), row))
    for same in grouped(refused, lambda one: line_of(one[0])):
        yield _from_rows(trace, same[0][0], [row for _, row in same])


def _from_rows(
    trace: RunTrace, definition: m.Location, rows: Sequence[m.OfferedFrame]
) -> SkippedFrame:
    first = rows[0]
    cause = _cause(trace, first)
    return SkippedFrame(
        run=trace.run,
        location=definition,
        frame=definition,
        scope="frame",
        library=library_of(trace, definition),
        refusal=m.Refusal(cause),
        records=0,
        calls=tuple(sorted({row.call for row in rows})),
        identity="\0".join((*trace.source.identity(definition)[:2], cause.gb_id or first.why)),
    )


def _cause(trace: RunTrace, row: m.OfferedFrame) -> m.TorchCause:
    """torch's own words where the frame left some, or the metrics of its compilation; else the
    class alone."""
    if row.why == "error":
        failed = [compiled.metrics.get("fail_reason") for compiled in trace.compilations_of(row)]
        text = next((str(reason) for reason in failed if reason), row.text)
        cause = cause_of(text, trace.all.sources.registry)
        if cause.gb_ids or failed:
            return cause
    return m.TorchCause(_CAUSES[row.why], explanation=row.text)


def diagnose(events: tuple[SkippedFrame, ...]) -> tuple[m.Finding, ...]:
    return tuple(_finding(event, ordinal) for event, ordinal in numbered(events))


def _finding(event: SkippedFrame, ordinal: str) -> m.Finding:
    what = "a frame"
    related: tuple[m.Location, ...] = ()
    if event.frame is not None:
        what = event.frame.function
        if event.frame != event.location:
            related = (event.frame,)
    what += " runs eagerly"
    if event.since:
        what += f" from line {event.since} on"
    elif event.scope != "frame":
        what += f" from here on{_IN_A_BLOCK}"
    cause = event.refusal.cause
    no_fix = ""
    if cause.kind == _CAUSES["dispatch-mode"]:
        no_fix = _UNDER_A_MODE
    if cause.gb_id == BACKEND_FAILED:
        no_fix = _AT_NO_LINE
    message = f"{what}{because(cause, event.library)}: {cause.words}"
    lists = {"eager as well": event.eager_too, "compiled by themselves": event.compiled_inside}
    for lead, names in lists.items():
        message += clause(f"; {lead}: ", ", ".join(names[:NAMED])) + and_more(names, NAMED)
    return finding(
        SKIPPED_FRAME,
        event,
        message,
        event.identity,
        ordinal,
        count=max(1, event.records),
        library=event.library,
        refusal=event.refusal,
        fix=named_remedy(cause.explanation),
        related=related,
        detail=detail_of(cause),
        no_fix=no_fix,
    )
