"""KGP101: where a compiled function fell into several graphs, and why torch could not go on.

torch writes one record (artifact ``dynamo_graph_break_reason``) for each frame that it was compiling when it met the
break, so a line that is inlined into two callers has three. A site is a line of the project; its record count is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kgprof import model as m
from kgprof.collectors.fingerprint import fingerprint, grouped, line_of
from kgprof.reading.evidence import Evidence
from kgprof.reading.source_text import user_function
from kgprof.reading.structured_trace import Compiled, RunTrace, compile_id

ARTIFACT = "dynamo_graph_break_reason"
UNMEASURED = m.Skipped(reason="what a break costs in a step is not told apart from the work around it")
GRAPH_BREAK = m.Rule(
    id="KGP101",
    name="graph-break",
    level=m.Level.WARNING,
    summary="A line that torch cannot trace splits a compiled function into several graphs.",
    why=(
        "Before the line and after it stand separate graphs: nothing is fused across the gap, the line itself and the "
        "hand-over run in Python, each graph is launched on its own, and a CUDA graph cannot span it. What follows "
        "becomes a function of its own with its own guards, so one break can also cause recompiles."
    ),
    example="print(loss.shape) between two operations; x.max().item() used as a Python number; if mask.any(): ...",
    remedy=(
        "Move the line out of the compiled function, or express it in operators: torch.where or torch.cond for a "
        "branch on data, a tensor for a number read with .item(), a return value for what is printed. With "
        "fullgraph=True torch stops at the first such line instead of splitting."
    ),
    topic=m.Topic.COMPILATION,
    seen_in=((m.Witness.COMPILE,),),
    # Two graphs, Python between them, and nothing is fused across.
    can_cost=(m.CostKind.HOST, m.CostKind.LAUNCHES, m.CostKind.COPIES, m.CostKind.REPLACED),
    judged_from_times=False,
    symptom_of=(),
)
RULES = (GRAPH_BREAK,)

# torch puts this before the reason when what follows the line cannot become a function of its own (2.11 to 2.15).
_CANNOT_RESUME = "Encountered graph break that we cannot resume from"

_IN_STACK = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.*)$', re.MULTILINE)
_NAMED_PLACE = re.compile(r"Graph break in user code at (?P<file>.+):(?P<line>\d+)\n")
_REASON = re.compile(r"Graph Break Reason: (?P<reason>.*?)(?=\n\n(?:Stack variable source|User code traceback:))", re.S)
_USER_STACK = re.compile(r"(?:User code traceback|in the following user code|from user code):\n(?P<stack>.*)", re.S)
_INTERNALS = "\nTraceback (most recent call last)"
_CAUSE = re.compile(
    r"^(?P<kind>[^\n*][^\n]*)\n  Explanation: (?P<explanation>.*?)(?P<hints>(?:\n  Hint: .*?)*)"
    r"(?=\n\n  Developer debug context:|\n\n For more details|\Z)",
    re.S | re.M,
)
_HINT = re.compile(r"\n  Hint: (.*?)(?=\n  Hint: |\Z)", re.S)
_GB_ID = re.compile(r"/gb/gb(\d+)\.html")


class Cause(m.Model, frozen=True, kw_only=True):
    """Why torch could not go on, in its own words."""

    kind: str  # "Failed to trace builtin operator"
    gb_ids: tuple[str, ...] = ()  # the root cause's first: "GB0059", "GB7000"
    explanation: str = ""
    hints: tuple[str, ...] = ()

    @property
    def gb_id(self) -> str:
        return self.gb_ids[0] if self.gb_ids else ""

    @property
    def words(self) -> str:
        return f"{self.kind} ({self.gb_id})" if self.gb_id else self.kind


@dataclass(frozen=True, kw_only=True, slots=True)
class BreakRecord:
    """One record: one frame that met a break while it was compiled."""

    call: int
    compiled: Compiled | None
    site: m.Location | None  # the innermost line of the project; None where libraries were compiled by libraries
    named: m.Location | None  # the line that torch named, which may be a library's
    stack: tuple[m.Location, ...]
    cause: Cause
    resumable: bool  # torch did not say that it cannot go on behind the line


class GraphBreak(m.Model, frozen=True, kw_only=True):
    """One site of one run."""

    run: m.RunKey
    location: m.Location | None
    cause: Cause
    records: int  # frames that met it, over all calls
    calls: tuple[int, ...]
    functions: tuple[str, ...]  # whose compilation met it
    library_line: m.Location | None  # where torch stopped, when that was in a library
    identity: str  # the same in another checkout and after an edit above the line


# ---------------------------------------------------------------- reading records


def break_records(trace: RunTrace) -> Iterator[BreakRecord]:
    """Every graph-break record of a run, in torch's order."""
    return (_break_record(trace, record, record.payload) for record in trace.artifacts(ARTIFACT) if record.payload)


def _break_record(trace: RunTrace, record: m.TraceRecord, payload: str) -> BreakRecord:
    text = payload.partition(_INTERNALS)[0]
    stack = tuple(_stack(text))
    place = _NAMED_PLACE.match(text)
    named = m.Location(file=place["file"], line=int(place["line"])) if place else stack[-1] if stack else None
    found = _REASON.search(text)
    # Records that convert_frame writes have the reason only in the exception that ends their traceback.
    last_error = payload.rpartition("torch._dynamo.exc.")[2].partition(": ")[2]
    reason = found["reason"] if found else last_error or payload
    return BreakRecord(
        call=record.call,
        compiled=trace.compilation(compile_id(record.metadata), record.call),
        site=trace.source.innermost(stack),
        named=named,
        stack=stack,
        cause=cause_of(reason, trace.all.sources.registry),
        resumable=not reason.startswith(_CANNOT_RESUME),
    )


def _stack(text: str) -> Iterator[m.Location]:
    """The user's stack, outermost first. The lines above it attribute values to places and are no stack."""
    found = _USER_STACK.search(text)
    for frame in _IN_STACK.finditer(found["stack"] if found else text):
        yield m.Location(file=frame["file"], line=int(frame["line"]), function=user_function(frame["function"]))


def cause_of(text: str, registry: dict[str, m.RegistryEntry]) -> Cause:
    """The root cause in a reason: the first block with an explanation. The registry fills in what the text lacks."""
    gb_ids = tuple(dict.fromkeys(f"GB{number}" for number in _GB_ID.findall(text)))
    known = registry.get(gb_ids[0]) if gb_ids else None
    found = _CAUSE.search(text)
    if found is not None:
        hints = tuple(" ".join(hint.split()) for hint in _HINT.findall(found["hints"]))
        explanation = " ".join(found["explanation"].split())
        return Cause(kind=found["kind"].strip(), gb_ids=gb_ids, explanation=explanation, hints=hints)
    if known is not None:
        return Cause(kind=known.type, gb_ids=gb_ids, explanation=known.explanation, hints=known.hints)
    return Cause(kind=text.strip().partition("\n")[0], gb_ids=gb_ids)


# ---------------------------------------------------------------- what fell back, and what did not


def fell_back(trace: RunTrace, record: BreakRecord) -> str:
    """``frame`` if the whole frame runs in eager because of this record, ``rest`` if what follows does, else empty."""
    compiled = record.compiled
    if compiled is None:
        return ""
    if compiled.failed:
        raised = any(row.outcome == "raised" for row in trace.frame_rows(compiled))
        return "" if raised else "frame"
    if record.resumable or _was_resumed(trace, record, compiled):
        return ""
    return "rest"


def _was_resumed(trace: RunTrace, record: BreakRecord, compiled: Compiled) -> bool:
    """Whether the frame hook saw the rest compiled: torch says that it cannot go on, and sometimes does."""
    frame = compiled.frame
    if frame is None:
        return False
    name = user_function(frame.function)
    lines = {place.line for place in record.stack if place.file == frame.file and place.function == name}
    return any(
        row.outcome == "compiled"
        and row.call == record.call
        and row.file == frame.file
        and row.function != frame.function
        and user_function(row.function) == name
        and row.first_line in lines
        for row in trace.all.frames
    )


def by_site(records: Iterable[BreakRecord]) -> list[list[BreakRecord]]:
    """Grouped by the project's line; records without one by the line that torch named."""
    return grouped(records, lambda record: line_of(record.site or record.named))


# ---------------------------------------------------------------- events and findings


def collect(evidence: Evidence) -> tuple[GraphBreak, ...]:
    return tuple(
        _graph_break(trace, records)
        for trace in evidence.compilers_and_cut_off
        for records in by_site(break_records(trace))
        if not any(fell_back(trace, record) for record in records)
    )


def _graph_break(trace: RunTrace, records: Sequence[BreakRecord]) -> GraphBreak:
    first = records[0]
    named = first.named
    frames = (record.compiled.frame for record in records if record.compiled is not None)
    functions = dict.fromkeys(user_function(frame.function) for frame in frames if frame is not None)
    in_library = named is not None and not trace.source.project.holds(named.file)
    return GraphBreak(
        run=trace.run,
        location=first.site,
        cause=first.cause,
        records=len(records),
        calls=calls_of(records),
        functions=tuple(functions),
        library_line=named if in_library else None,
        identity=identity_of(trace, first),
    )


def calls_of(records: Iterable[BreakRecord]) -> tuple[int, ...]:
    return tuple(sorted({record.call for record in records}))


def identity_of(trace: RunTrace, record: BreakRecord) -> str:
    """File, function, root cause and the line's text: line numbers move with every edit above them."""
    where = trace.source.identity(record.site or record.named)
    return "\0".join((*where, record.cause.gb_id or record.cause.kind))


def diagnose(events: tuple[GraphBreak, ...]) -> tuple[m.Finding, ...]:
    return tuple(_finding(event, ordinal) for event, ordinal in numbered(events))


def numbered(events: Iterable[Any]) -> Iterator[tuple[Any, str]]:
    """Events whose identity is the same (two equal lines in one function) are told apart by their order."""
    seen: dict[tuple[m.RunKey, str], int] = {}
    for event in events:
        key = (event.run, event.identity)
        seen[key] = seen.get(key, 0) + 1
        yield event, "" if seen[key] == 1 else str(seen[key])


def _finding(event: GraphBreak, ordinal: str) -> m.Finding:
    where = f" in {event.location.function}" if event.location and event.location.function else ""
    met = "" if len(event.functions) < 2 else f"; met while compiling {', '.join(event.functions)}"
    return m.Finding(
        rule=GRAPH_BREAK.id,
        level=m.Level.WARNING,
        message=f"graph break{where}: {event.cause.words}{met}",
        run=event.run,
        location=event.location,
        count=event.records,
        related=(event.library_line,) if event.library_line else (),
        detail=detail_of(event.cause),
        fingerprint=fingerprint(GRAPH_BREAK.id, event.run, event.identity, ordinal),
        cost=UNMEASURED,
    )


def detail_of(cause: Cause) -> str:
    """torch's explanation and hints, a paragraph each."""
    return "\n".join(filter(None, (cause.explanation, *(f"Hint: {hint}" for hint in cause.hints))))
