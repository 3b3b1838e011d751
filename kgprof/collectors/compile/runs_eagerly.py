"""KGP108: compiled callables whose calls ran no compiled graph, and why.

A callable that reached torch's recompile limit is the limit's finding, and a function of the
project's that torch skipped is the skipped frame's: one cause is one finding. A callable that ran
no graph, and in which torch met neither a break nor a fault, had nothing to compile: it is no
finding.
"""

from collections.abc import Iterable, Iterator, Sequence

from kgprof import model as m
from kgprof.collectors.compile import recompiles, skipped_frames
from kgprof.collectors.compile.graph_breaks import BreakRecord, break_records, numbered
from kgprof.collectors.compile.recompile_limit import reached_limit
from kgprof.collectors.event import Event, finding
from kgprof.collectors.fingerprint import grouped
from kgprof.reading import compiled_callables
from kgprof.reading.evidence import Evidence
from kgprof.reading.structured_trace import RunTrace
from kgprof.wording import in_steps, plural

RUNS_EAGERLY = m.Rule(
    id="KGP108",
    name="runs-eagerly",
    level=m.Level.WARNING,
    summary="A compiled function was called, and no compiled graph ran in the call.",
    why=(
        "torch.compile falls back to eager code without an error: under "
        "torch.compiler.set_stance, after a graph break in a module of torch's own "
        "(nn.Sequential, DistributedDataParallel, a quantised layer), because torch skipped the "
        "function, or after a call that had no operator to compile. A compiled module has only "
        "its forward compiled: flow.log_prob(x) runs eagerly. The program is then as slow as "
        "without torch.compile, and a count of graph breaks looks small. Calls after warm-up are "
        "counted. Calls that run eagerly since "
        f"torch's recompile limit belong to {recompiles.LIMIT_REACHED.id}, and those of a function "
        f"of yours that torch skipped to {skipped_frames.SKIPPED_FRAME.id}."
    ),
    example='torch.compiler.set_stance("eager_on_recompile") with inputs of many sizes.',
    remedy=(
        "Remove the stance once the program is warm, or set it only around calls that may run "
        "eagerly. If a graph break leaves no graph at all, fix that line, or compile the parts of "
        "the model that have no break (block.compile() for each block). If one call had nothing to "
        "compile, do not call the function then: decide in front of it. Leave no TorchDispatchMode "
        "active around a compiled call: torch then skips what it calls, up to 2.13 permanently. "
        "Give torch.compile each method of a module that the program calls beside forward."
    ),
    topic=m.Topic.COMPILATION,
    seen_in=((m.Witness.COMPILED_CALLS, m.Witness.STEADY_CALLS),),
    can_cost=tuple(m.CostKind),
    relieves=(m.LimitKind.LAUNCHES, m.LimitKind.HOST, m.LimitKind.UNFUSED),
)
RULES = (RUNS_EAGERLY,)

_SWITCHED_OFF = m.Skipped("kgprof switches torch.compile off in mode eager")
STANCE = "stance"
BREAK = "break"
# Why the frame hook saw a frame skipped, in words. Without a reason there was nothing to compile.
_SKIPPED = {
    "error": "torch suppressed an error while compiling it",
    "dispatch-mode": (
        "a TorchDispatchMode was active when torch was to compile it, and torch.compile supports "
        "none"
    ),
    "skip-list": "torch never compiles code of this file",
    "disabled": "torch._dynamo.config.disable is set",
}
_SWITCHED_ON = "torch._dynamo.config.disable = False  # or remove the line that sets it"
TORCH_MODULES = "/torch/nn/"
_INSIDE_DDP = (
    "DistributedDataParallel(torch.compile(module))  # compile what it holds: its own forward "
    "breaks the graph"
)
_FAULTS = ("error", "dispatch-mode")  # of these, torch says something for some calls only


class _Cause(m.Model, kw_only=False):
    kind: str  # STANCE, BREAK, "library", or one of _SKIPPED
    words: str
    identity: str
    place: m.Location | None = None  # the line of it
    fix: str = ""


class EagerCallables(Event):
    """Compiled callables of one run with one cause, whose calls ran eagerly after warm-up.

    ``location``: the def; of a library's code the line that calls torch.compile."""

    names: str
    eager: int  # calls after warm-up
    calls: int  # after warm-up, of the same callables
    never: bool  # no call of theirs ran a graph
    why: str
    because_of: m.Location | None
    fix: str
    is_plain: bool = False  # a method that was not compiled: no call of it counts in a budget


def counted_calls(run: m.RunKey, records: m.CompileRecords) -> m.CompiledCalls | m.Skipped:
    """In mode eager kgprof itself switches torch.compile off: no call there is one of compiled
    code."""
    if run.mode == m.EAGER:
        return _SWITCHED_OFF
    return records.compiled_calls


def collect(evidence: Evidence) -> tuple[EagerCallables, ...]:
    return tuple(event for trace in evidence.compilers for event in _of_run(evidence, trace))


def _methods(trace: RunTrace) -> Iterator[EagerCallables]:
    """Methods of compiled modules beside forward, by the line that calls one."""
    for called in m.known(trace.all.compiled_calls).plain:
        count = compiled_callables.calls(called, trace.steady_from)
        place = _at(trace, called.called_at)
        if place is None or not count or f".{called.function}(" not in place.text:
            continue  # it is handed on, to torch.compile, say
        name = f"{called.path or 'module'}.{called.function}"
        yield EagerCallables(
            run=trace.run,
            location=place,
            names=f"{name} ({called.module})",
            eager=count,
            calls=count,
            never=True,
            why="torch.compile(module) compiles the module's forward alone",
            because_of=_at(trace, called.compiled_at),
            fix=f"{name} = torch.compile({name})  # once, before the first call",
            identity="\0".join((*trace.source.identity(place)[:2], called.module, name)),
            is_plain=True,
        )


def _of_run(evidence: Evidence, trace: RunTrace) -> Iterator[EagerCallables]:
    if isinstance(counted_calls(trace.run, trace.all), m.Skipped):
        return
    breaks = list(break_records(trace))
    skipped = _skipped_frames(evidence, trace)
    explained = []
    others = []
    for called in compiled_callables.callables(trace):
        if not compiled_callables.eager_calls(called, trace.steady_from):
            continue
        cause = _cause(trace, called, breaks)
        if cause is None:
            others.append(called)
        elif cause.kind == STANCE or _code(trace, called) not in skipped:
            explained.append((called, cause))
    explained += _given_up_with(others, explained, trace)
    for alike in grouped(
        explained, lambda pair: (pair[0].definition, pair[0].compiled_at, pair[1].identity)
    ):
        yield _event(trace, [called for called, _ in alike], alike[0][1])
    yield from _methods(trace)


def _given_up_with(
    others: Iterable[m.CompiledCallable],
    explained: Sequence[tuple[m.CompiledCallable, _Cause]],
    trace: RunTrace,
) -> list[tuple[m.CompiledCallable, _Cause]]:
    """Those that share the code of one that a break left without a graph: torch gives a code up
    once, and does not try the others' calls."""
    causes = {
        called.definition: cause
        for called, cause in explained
        if cause.kind == BREAK and not compiled_callables.ran_a_graph(called)
    }
    return [
        (called, causes[called.definition])
        for called in others
        if called.definition in causes
        and not called.compiled_before
        and not compiled_callables.ran_a_graph(called)
        and not reached_limit(trace, called)
    ]


def _skipped_frames(evidence: Evidence, trace: RunTrace) -> dict[tuple[str, int], str]:
    """Functions of the project's that fell back as a whole, by their def, with the finding that
    says so."""
    events = evidence.once(skipped_frames.collect)
    return {
        (event.frame.file, event.frame.line): finding.fingerprint
        for event, finding in zip(events, skipped_frames.diagnose(events), strict=True)
        if event.run == trace.run
        and event.scope == "frame"
        and event.frame is not None
        and trace.source.project.holds(event.frame.file)
    }


def _code(trace: RunTrace, called: m.CompiledCallable) -> tuple[str, int]:
    place = trace.source.definition(
        called.offered.file, called.offered.line, called.offered.function
    )
    return place.file, place.line


def _event(trace: RunTrace, alike: Sequence[m.CompiledCallable], cause: _Cause) -> EagerCallables:
    first = alike[0]
    since = trace.steady_from
    place = _location(trace, first)
    count = compiled_callables.eager_calls
    if cause.kind == STANCE:
        count = _under_a_stance
    return EagerCallables(
        run=trace.run,
        location=place,
        names=compiled_callables.named(alike),
        eager=sum(count(each, since) for each in alike),
        calls=sum(compiled_callables.calls(each, since) for each in alike),
        never=not any(map(compiled_callables.ran_a_graph, alike)),
        why=cause.words,
        because_of=cause.place,
        fix=cause.fix,
        identity="\0".join((*trace.source.identity(place)[:2], first.module, cause.identity)),
    )


def _under_a_stance(called: m.CompiledCallable, since: int) -> int:
    """Eager calls under any stance; the finding names the first."""
    counts = called.stances.values()
    return sum(each[call] for each in counts for call in each if call >= since)


def _location(trace: RunTrace, called: m.CompiledCallable) -> m.Location | None:
    place = called.definition
    if trace.source.project.holds(place.file):
        return trace.source.definition(place.file, place.line, place.function)
    return _at(trace, called.compiled_at or called.called_at)


def _at(trace: RunTrace, line: m.SourceLine | None) -> m.Location | None:
    if line is None:
        return None
    return trace.source.at(line.file, line.line, line.function)


# ---------------------------------------------------------------- causes


def _cause(
    trace: RunTrace, called: m.CompiledCallable, breaks: Sequence[BreakRecord]
) -> _Cause | None:
    """None where there was nothing to compile, where the recompile limit is the cause, or where it
    is not known. A stance is the cause of no more calls than were made under it."""
    since = trace.steady_from
    under = [stance for stance, calls in called.stances.items() if max(calls, default=-1) >= since]
    if not under:
        return _lasting(trace, called, breaks)
    stance = _stance(trace, called, under[0])
    if _under_a_stance(called, since) == compiled_callables.eager_calls(called, since):
        return stance
    return _lasting(trace, called, breaks) or stance


def _lasting(
    trace: RunTrace, called: m.CompiledCallable, breaks: Sequence[BreakRecord]
) -> _Cause | None:
    """What no stance explains."""
    if called.compiled_before or reached_limit(trace, called):
        return None
    if compiled_callables.ran_a_graph(called):
        return _skipped(trace, called, of=_FAULTS) or _emptied(trace, called)
    cause = (
        _break(called, breaks)
        or _skipped(trace, called, of=tuple(_SKIPPED))
        or _left_to_torch(called)
    )
    if cause is None and _may_have_more_to_do(trace, called):
        return _emptied(trace, called)
    return cause


def _may_have_more_to_do(trace: RunTrace, called: m.CompiledCallable) -> bool:
    """A function without any operator has no branch in which one could stand."""
    code = called.offered
    return trace.source.has_branches(trace.source.definition(code.file, code.line, code.function))


def _stance(trace: RunTrace, called: m.CompiledCallable, stance: str) -> _Cause:
    place = _at(trace, called.stance_set_at)
    words = f'torch.compiler.set_stance("{stance}") was in force'
    fix = (
        f'torch.compiler.set_stance("default")  # in place of "{stance}", after '
        "warm-up at the latest"
    )
    if stance == "eager_on_recompile":
        words += ", and no compiled code fitted the inputs"
    return _Cause(STANCE, words, stance, place, fix)


def _break(called: m.CompiledCallable, breaks: Sequence[BreakRecord]) -> _Cause | None:
    """The first break of a compilation that began in its calls."""
    mine = {(each.call, each.compile_id) for each in called.compilations}
    for record in breaks:
        compiled = record.compiled
        if compiled is None or (compiled.call, compiled.compile_id) not in mine:
            continue
        words = f"graph break ({record.cause.words})"
        if record.cause.operator:
            words = f"{record.cause.operator} breaks the graph"
        fix = ""
        if called.module == "DistributedDataParallel":
            fix = _INSIDE_DDP
        return _Cause(BREAK, words, f"break\0{record.cause.identity}", record.site, fix)
    return None


def _skipped(trace: RunTrace, called: m.CompiledCallable, *, of: tuple[str, ...]) -> _Cause | None:
    code = called.offered
    for row in trace.all.frames:
        same = (row.file, row.first_line, row.function) == (code.file, code.line, code.function)
        if same and row.outcome == "skipped" and row.why in of:
            fix = ""
            if row.why == "disabled":
                fix = _SWITCHED_ON
            return _Cause(row.why, _SKIPPED[row.why], row.why, fix=fix)
    return None


def _emptied(trace: RunTrace, called: m.CompiledCallable) -> _Cause | None:
    """A call without an operator ends the use of compiled code."""
    code = called.offered
    call = trace.emptied.get((code.file, code.line, code.function))
    if call is None or any(
        called.calls[each] > called.eager.get(each, 0) for each in called.calls if each > call
    ):
        return None
    words = (
        f"{in_steps([call])} there was nothing to compile, and torch skips the function from then "
        "on, whatever it is given"
    )
    return _Cause("empty", words, "empty")


def _left_to_torch(called: m.CompiledCallable) -> _Cause | None:
    """``module.compile()`` of nn.Sequential and the like: Dynamo skips torch's own forward without
    a word."""
    in_torch = TORCH_MODULES in called.offered.file
    # torch.compile(module) puts a function around it that is compiled
    wrapped = called.offered != called.definition
    if not called.module or not in_torch or wrapped or called.compilations:
        return None
    words = (
        f"module.compile() compiles nothing of a {called.module}: torch skips the "
        "forward of its own modules"
    )
    name = "module"
    if called.path.isidentifier():
        name = called.path
    fix = (
        f"{name} = torch.compile({name})  # in place of {name}.compile(), with its arguments; its "
        "state_dict() then has _orig_mod. before each name"
    )
    return _Cause("library", words, "library", fix=fix)


# ---------------------------------------------------------------- findings


def diagnose(events: tuple[EagerCallables, ...]) -> tuple[m.Finding, ...]:
    return tuple(_finding(event, ordinal) for event, ordinal in numbered(events))


def _finding(event: EagerCallables, ordinal: str) -> m.Finding:
    of = f"{event.eager:,} of {plural(event.calls, 'call')} after warm-up ran eagerly"
    if event.never:
        of = f"no graph at all: {of}"
    return finding(
        RUNS_EAGERLY,
        event,
        f"{event.names}: {of}; {event.why}",
        event.identity,
        ordinal,
        related=tuple(filter(None, (event.because_of,))),
        names=(event.names,),
        fix=event.fix,
    )


def calls_of_compiled(evidence: Evidence, trace: RunTrace) -> m.CallsOfCompiled | m.Skipped:
    """For the gate and the report: of all compiled callables of a run."""
    counted = counted_calls(trace.run, trace.all)
    if isinstance(counted, m.Skipped):
        return counted
    events = evidence.once(collect)
    mine = (pair for pair in zip(events, diagnose(events), strict=True) if pair[0].run == trace.run)
    by_finding: dict[str, int | m.Skipped] = {
        finding.fingerprint: event.eager for event, finding in mine if not event.is_plain
    }
    by_finding |= recompiles.eager_by_finding(evidence, trace.run)
    by_finding |= _eager_by_skipped_frame(evidence, trace)
    known = [each for each in counted.callables if not each.compiled_before]
    eager = sum(sum(each.eager.values()) + sum(each.raised.values()) for each in known)
    total = sum(sum(each.calls.values()) for each in known)
    return m.CallsOfCompiled(
        calls=total,
        with_a_graph=total - eager,
        graph_runs=sum(sum(graph.runs.values()) for graph in trace.all.graphs),
        unknown=sum(sum(each.calls.values()) for each in counted.callables if each.compiled_before),
        eager=by_finding,
    )


def _eager_by_skipped_frame(evidence: Evidence, trace: RunTrace) -> dict[str, int]:
    """Calls of functions that fell back as a whole; those under a stance have a finding of their
    own."""
    skipped = _skipped_frames(evidence, trace)
    by_finding: dict[str, int] = {}
    for called in compiled_callables.callables(trace):
        name = skipped.get(_code(trace, called))
        if name is not None and not called.compiled_before and not called.stances:
            eager = compiled_callables.eager_calls(called, trace.steady_from)
            by_finding[name] = by_finding.get(name, 0) + eager
    return by_finding
