"""KGP107, and where the seconds of each compilation went: six stages that add up to its duration.

The stages come from the spans that torch writes for its own timeline (``chromium_event`` records, a
begin and an end each). A span's own time, without that of the spans inside it, belongs to its
stage; spans that are not named here belong to the stage around them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kgprof import model as m
from kgprof.collectors.compile.graph_breaks import ARTIFACT as BREAK
from kgprof.collectors.compile.graph_breaks import (
    because,
    cause_of,
    detail_of,
    library_of,
    named_remedy,
    outside_dynamo,
    refusal_of,
    stack_in,
)
from kgprof.collectors.compile.guard_words import in_words
from kgprof.collectors.event import Event, finding
from kgprof.collectors.fingerprint import grouped
from kgprof.collectors.guard_text import parse
from kgprof.collectors.tensors.aliases import refused_branch
from kgprof.reading.evidence import Evidence
from kgprof.reading.files import json_object
from kgprof.reading.source_text import user_function
from kgprof.reading.structured_trace import Compiled, RunTrace, compile_id

COMPILE_FAILED = m.Rule(
    id="KGP107",
    name="compile-failed",
    level=m.Level.ERROR,
    summary="Compiling a function raised an exception instead of falling back to eager.",
    why=(
        "With fullgraph=True the first line that torch cannot trace raises an error, and so does "
        "any backend failure. A program that catches it runs eagerly, pays for the attempt again "
        "in every call (failures are not cached) and shows no graph break anywhere."
    ),
    example=(
        "torch.compile(step, fullgraph=True) where step prints; a custom backend "
        "that raises NotImplementedError."
    ),
    remedy=(
        "Fix the line that the finding points to. If a backend failed, compile with "
        "backend='eager', then 'aot_eager', then 'inductor': the first one that fails is the stage "
        "to examine."
    ),
    topic=m.Topic.COMPILATION,
    seen_in=((m.Witness.COMPILE,),),
    can_cost=tuple(m.CostKind),
)
RULES = (COMPILE_FAILED,)

_POINT = re.compile(r"^  - (.+)$", re.MULTILINE)  # of torch's list of what is violated

_REFUSED = "RecompileError"
_FORBIDS = "error_on_recompile"
_OVER_THE_LIMIT = "FailOnRecompileLimitHit"
_REJECTED = re.compile(r"^ *- (?P<reason>\d+/\d+: .*)$", re.MULTILINE)

CAPTURE, FRONTEND, SCHEDULING = "capture_s", "frontend_s", "scheduling_s"
CODE, MACHINE, CACHING = "code_generation_s", "machine_code_s", "caching_s"
# The names are the same in torch 2.11 to 2.13.
STAGE_OF = {
    "dynamo": CAPTURE,
    "entire_frame_compile": CAPTURE,
    "backend_compile": FRONTEND,
    "create_aot_dispatcher_function": FRONTEND,
    "entire_backward_compile": FRONTEND,
    "_recursive_post_grad_passes": FRONTEND,
    "inductor_compile": SCHEDULING,
    "Scheduler.__init__": SCHEDULING,
    "GraphLowering.compile_to_fn": CODE,
    "code_gen": CODE,
    "async_compile.wait": MACHINE,
    "async_compile.precompile": MACHINE,
    "compile_file": MACHINE,
    "inductor_codecache_torch_key": CACHING,
    "CacheBase.get_system.triton_key": CACHING,
    "PyCodeCache.load_by_key_path": CACHING,
    "AOTAutogradCache.inductor_load": CACHING,
    "TritonBundler.collect": CACHING,
    "TritonBundler.read_and_emit": CACHING,
}


class FailedCompile(Event):
    """One function of one run whose compilation raised."""

    # the project's line that torch refused, or the def where a backend failed
    library: m.PackageLine | None  # the line that torch refused, where that is a library's
    function: str
    error: str  # the exception's type
    refusal: m.Refusal
    calls: tuple[int, ...]  # the step of each time
    fix: str = ""
    # of a recompile that the program makes an error: the guard in words, and the line that does
    guard: str = ""
    forbidden_at: m.Location | None = None


# ---------------------------------------------------------------- the stages


def compilations(trace: RunTrace) -> tuple[m.Compilation, ...]:
    """A row for each compilation of a run, with its stages; the backward graph of one is a row of
    its own."""
    try:
        seconds, why = _seconds_of_stages(trace), "torch wrote no spans for it"
    # a span that cannot be read would leave its time in the one around it
    except ValueError as error:
        seconds, why = {}, f"its record of spans could not be read: {error}"
    rows = []
    for compiled in trace.compiled:
        for metrics in (*filter(None, [compiled.metrics]), *compiled.backward):
            backward = metrics is not compiled.metrics
            name = location = ""
            if (frame := compiled.frame) is not None:
                name = frame.function
                location = f"{frame.file}:{frame.line}"
            if backward:
                name += " (backward)"
            duration_s: float | m.Skipped = m.Skipped("torch gave no duration_us")
            if (duration_us := metrics.get("duration_us")) is not None:
                duration_s = duration_us / 1e6
            call = None
            if trace.calls:
                call = compiled.call
            rows.append(
                m.Compilation(
                    compiled.compile_id,
                    name,
                    location,
                    duration_s,
                    str(metrics.get("fail_reason") or metrics.get("fail_type") or ""),
                    call,
                    metrics.get("graph_op_count"),
                    _stages(seconds.get((id(compiled), backward), {}), why),
                )
            )
    return tuple(rows)


def _stages(known: Mapping[str, float], why: str) -> m.CompileStages | m.Skipped:
    if not known:
        return m.Skipped(why)
    spent = {
        stage: known.get(stage, 0.0)
        for stage in (CAPTURE, FRONTEND, SCHEDULING, CODE, MACHINE, CACHING)
    }
    # the graph came from a cache: Inductor looked it up and loaded it
    if CODE not in known:
        spent[CACHING] += spent[SCHEDULING]
        spent[SCHEDULING] = 0.0
    return m.CompileStages(**spent)


def _seconds_of_stages(trace: RunTrace) -> dict[tuple[int, bool], dict[str, float]]:
    """(identity of the Compiled, is backward) -> stage -> seconds, from the nesting of the
    compiling thread's spans."""
    totals: dict[tuple[int, bool], dict[str, float]] = {}
    open_spans: list[tuple[str, tuple[int, bool], str]] = []
    last_us = 0.0
    for event, compiled in _spans(trace):
        now_us = float(event["ts"])
        name = str(event["name"])
        if open_spans:
            _, owner, stage = open_spans[-1]
            stages = totals.setdefault(owner, {})
            stages[stage] = stages.get(stage, 0.0) + (now_us - last_us) / 1e6
        last_us = now_us
        if event["ph"] == "B":
            backward = name == "entire_backward_compile" or (
                bool(open_spans) and open_spans[-1][1][1]
            )
            open_spans.append((name, (id(compiled), backward), STAGE_OF[name]))
        elif name in (open_name for open_name, _, _ in open_spans):
            while open_spans.pop()[0] != name:
                pass  # a span that an exception left open ends with the one around it
    return totals


def _spans(trace: RunTrace) -> Iterator[tuple[Mapping[str, Any], Compiled | None]]:
    """Begins and ends in the order of time. Spans of worker threads belong to no compile id and are
    left out."""
    for record in trace.all.records:
        if "chromium_event" not in record.metadata or not record.payload:
            continue
        event = json_object(record.payload)
        args = event.get("args")
        if not isinstance(args, dict):
            continue
        # torch writes the text "None" for a span of a worker thread.
        name = str(args.get("compile_id") or "None")
        if event.get("ph") in ("B", "E") and event.get("name") in STAGE_OF and name != "None":
            yield event, trace.compilation(name, record.call)


# ---------------------------------------------------------------- failures


def collect(evidence: Evidence) -> tuple[FailedCompile, ...]:
    """One event a place, whatever the number of calls that tried again."""
    return tuple(
        msgspec.structs.replace(
            same[0], calls=tuple(sorted(call for event in same for call in event.calls))
        )
        for trace in evidence.compilers_and_cut_off
        for same in grouped(_of_run(trace), lambda event: (event.location, event.error))
    )


def _of_run(trace: RunTrace) -> Iterator[FailedCompile]:
    for row in trace.all.frames:
        changed = trace.is_changed(row.file, row.first_line, row.function)
        # that is KGP406
        if row.outcome == "raised" and not changed and not refused_branch(row.text):
            failed = next(iter(trace.compilations_of(row)), None)
            yield _failed(trace, (row.file, row.first_line, row.function), row.text, failed, row)
    if trace.all.frames:
        return
    # Where no frame was seen: compilations that failed, and for which torch wrote no graph break to
    # fall back at.
    records = trace.artifacts(BREAK)
    broken = {id(trace.compilation(compile_id(record.metadata), record.call)) for record in records}
    for compiled in trace.compiled:
        refused_by_limit = compiled.metrics.get("co_name") is None
        why = compiled.metrics.get("fail_reason")
        told = refused_by_limit or id(compiled) in broken or refused_branch(str(why))
        if compiled.failed and (frame := compiled.frame) is not None and not told:
            text = f"{compiled.metrics.get('fail_type')}: {why}"
            yield _failed(trace, (frame.file, frame.line, frame.function), text, compiled, compiled)


def _failed(
    trace: RunTrace,
    code: tuple[str, int, str],
    text: str,
    compiled: Compiled | None,
    seen: m.OfferedFrame | Compiled,
) -> FailedCompile:
    """``code``: file, first line and name of the code object; ``seen``: in which call, and what
    torch traced."""
    metrics = (compiled and compiled.metrics) or {}
    definition = trace.source.definition(*code)
    is_own = trace.source.project.holds(code[0])
    error, _, said = text.partition(": ")
    cause = cause_of(str(metrics.get("fail_reason") or said), trace.all.sources.registry)
    # the first line says only that constraints are violated
    if points := tuple(_POINT.findall(said)):
        cause = msgspec.structs.replace(cause, explanation=" ".join(points))
    stack = traced = _traced(seen, text, metrics)
    if compiled is not None and not is_own:
        stack = (*compiled.stack[:-1], *traced)
    location = trace.source.innermost(stack)
    if location is None and is_own:
        location = definition
    library = library_of(trace, (outside_dynamo(traced) or (None,))[-1])
    guard, forbidden_at = "", None
    function = definition.function
    if isinstance(seen, m.OfferedFrame) and seen.wraps:
        function = seen.wraps
    if error == _REFUSED:
        guard = _guard(said, seen)
        forbidden_at = trace.source.setting(_FORBIDS)
        location = location or forbidden_at
    identity = [
        *(trace.source.identity(location)[:2] or (user_function(code[2]),)),
        error,
        cause.identity,
    ]
    if library is not None:
        identity += (library.package, library.file, library.function)
    if not traced:
        stack = ()
    return FailedCompile(
        run=trace.run,
        location=location,
        library=library,
        function=function,
        error=error,
        refusal=refusal_of(trace, cause, stack),
        calls=(seen.call,),
        fix=named_remedy(text),
        guard=guard,
        forbidden_at=forbidden_at,
        identity="\0".join(identity),
    )


def _guard(text: str, seen: m.OfferedFrame | Compiled) -> str:
    """The guard of the newest entry, which torch names first in its error."""
    found = _REJECTED.search(text)
    if found is None:
        return "torch gave no reason"
    guard = parse(found["reason"])
    if isinstance(seen, m.OfferedFrame):
        return in_words(guard, wraps=seen.wraps, arguments=seen.arguments)
    return in_words(guard)


def _traced(
    seen: m.OfferedFrame | Compiled, text: str, metrics: Mapping[str, Any]
) -> tuple[m.Location, ...]:
    """The lines that torch was tracing when it gave up, outermost first: of the exception, as the
    frame hook kept them or as its words quote them, else the innermost one alone, from the metrics.
    A backend fails at no line."""
    if isinstance(seen, m.OfferedFrame) and seen.stack:
        return tuple(m.Location(one.file, one.line, one.function) for one in seen.stack)
    if text.startswith("BackendCompilerFailed"):
        return ()
    if quoted := tuple(stack_in(text, anywhere=False)):
        return quoted
    file = metrics.get("fail_user_frame_filename")
    line = metrics.get("fail_user_frame_lineno")
    if not (file and line):
        return ()
    return (m.Location(str(file), int(line)),)


def diagnose(events: tuple[FailedCompile, ...]) -> tuple[m.Finding, ...]:
    return tuple(_finding(event) for event in events)


def _finding(event: FailedCompile) -> m.Finding:
    times = ""
    if len(event.calls) > 1:
        times = f" {len(event.calls)} times"
    cause = event.refusal.cause
    if event.error == _REFUSED:
        return _forbidden(event, times)
    why = because(cause, event.library)
    words = cause.words
    if event.fix and not cause.gb_id:
        words = cause.explanation
    no_fix = ""
    if event.error == _OVER_THE_LIMIT:
        no_fix = "the finding about its recompiles says what to change"
        words = (
            "torch's recompile limit was reached, and the program makes that an error "
            "(fullgraph=True or fail_on_recompile_limit_hit)"
        )
    return finding(
        COMPILE_FAILED,
        event,
        f"compiling {event.function} raised {event.error}{times}{why}: {words}",
        event.identity,
        count=len(event.calls),
        library=event.library,
        refusal=event.refusal,
        detail=detail_of(cause),
        fix=event.fix,
        no_fix=no_fix,
    )


def _forbidden(event: FailedCompile, times: str) -> m.Finding:
    """A recompile that the program makes an error."""
    return finding(
        COMPILE_FAILED,
        event,
        f"compiling {event.function} again raised {event.error}{times}: {event.guard}; "
        f"torch._dynamo.config.{_FORBIDS} makes each recompile an error",
        event.identity,
        count=len(event.calls),
        detail=event.refusal.cause.explanation,
        related=tuple(filter(None, (event.forbidden_at,))),
        fix=f"torch._dynamo.config.{_FORBIDS} = False  # it then compiles again; or give "
        f"{event.function} the same kind of input in every call",
    )
