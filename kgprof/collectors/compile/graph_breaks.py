"""KGP101: where a compiled function fell into several graphs, and why torch could not go on.

torch writes one record (artifact ``dynamo_graph_break_reason``) for each frame that it was
compiling when it met the break, so a line that is inlined into two callers has three. A site is the
line at which torch stopped, and a cause; its record count is kept. Where that is a library's line,
the project's line that leads there most often stands for the site and the others beside it.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kgprof import model as m
from kgprof.collectors.event import Event, finding
from kgprof.collectors.fingerprint import grouped, line_of
from kgprof.measures.graph_gaps import between_graphs
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.reading.source_text import SourceText, is_resumed, user_function
from kgprof.reading.structured_trace import Compiled, RunTrace, compile_id, frame_id
from kgprof.wording import clause, opening, plural

ARTIFACT = "dynamo_graph_break_reason"
GRAPH_BREAK = m.Rule(
    id="KGP101",
    name="graph-break",
    level=m.Level.WARNING,
    summary="A line that torch cannot trace splits a compiled function into several graphs.",
    why=(
        "The code before and after the line becomes two separate graphs: nothing is fused across "
        "the gap, the line itself runs in Python, each graph is launched on its own, and no CUDA "
        "graph can span it. The code after the break is a function with its own guards, so one "
        "break can also cause recompiles."
    ),
    example=(
        "print(loss.shape) between two operations; x.max().item() used as a Python "
        "number; if mask.any(): ..."
    ),
    remedy=(
        "Move the line before what is compiled and pass its result in (a number that is another "
        "one from call to call as a tensor), or behind it with all that needs its result, "
        "gradients too, or express it in operators: torch.where or torch.cond for a branch on "
        "data, a tensor instead of a number read with .item(), a return value instead of a print. "
        "With fullgraph=True torch raises an error at the first such line instead of splitting."
    ),
    topic=m.Topic.COMPILATION,
    seen_in=((m.Witness.COMPILE,),),
    # Two graphs, Python between them, and nothing is fused across.
    can_cost=(m.CostKind.HOST, m.CostKind.LAUNCHES, m.CostKind.COPIES, m.CostKind.REPLACED),
    relieves=(m.LimitKind.LAUNCHES, m.LimitKind.HOST, m.LimitKind.UNFUSED),
)
RULES = (GRAPH_BREAK,)

# torch puts this before the reason when what follows the line cannot become a function of its own
# (2.11 to 2.15).
_CANNOT_RESUME = "Encountered graph break that we cannot resume from"

_IN_STACK = re.compile(
    r'^ *File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.*)$'
    r'(?:\n +(?!File ")(?P<text>.*))?',
    re.MULTILINE,
)
_BREAKS_OFFERED = "Consider using fullgraph=False to allow graph breaks, or move "
_DISABLED = "Remove the `torch.compiler.disable` call"
_MAY_NOT_COMPILE = " (not tried: what is disabled may not compile, nor what it calls)"
STACK = 24  # innermost lines of a stack that a finding keeps
# Dynamo's wrappers and stand-ins, and the hooks of kgprof on it, stand between a call and what it
# calls.
_BETWEEN = ("/torch/_dynamo/", "/kgprof/record/")
# a module's __call__, two lines in every stack for each module
_CALLS = "/torch/nn/modules/module.py"
_NAMED_PLACE = re.compile(r"Graph break in user code at (?P<file>.+):(?P<line>\d+)\n")
_REASON = re.compile(
    r"\A(?>.*?Graph Break Reason: )(?P<reason>.*?)"
    r"(?=\n\n(?:Stack variable source|User code traceback:))",
    re.S,
)
_USER_STACK = re.compile(
    r"(?:User code traceback|in the following user code|from user code|User stack):\n(?P<stack>.*)",
    re.S,
)
_NOT_CONVERTED = "WON'T CONVERT "
_ATTEMPT = ("frame_id", "frame_compile_id", "attempt")
# the line of a traceback that names the exception
_ERROR = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*): ", re.MULTILINE)
_INTERNALS = "\nTraceback (most recent call last)"
_CAUSE = re.compile(
    r"^(?P<kind>[^\n*][^\n]*)\n  Explanation: (?P<explanation>.*?)(?P<hints>(?:\n  Hint: .*?)*)"
    r"(?:\n\n  Developer debug context: (?P<context>.*?))?"
    r"(?=\n\n For more details|\n+\*\*\* While|\Z)",
    re.S | re.M,
)
_HINT = re.compile(r"\n  Hint: (.*?)(?=\n  Hint: |\Z)", re.S)
_GB_ID = re.compile(r"/gb/gb(\d+)\.html")
# What could not be traced, in the forms that torch's debug contexts have (2.11 to 2.15).
_OPERATORS = tuple(
    re.compile(form)
    for form in (
        r"builtin (?P<name>\w+)(?: |$)",
        r"module: (?P<owner>[\w.]+|<unknown module>), qualname: (?P<name>[\w.<>]+)",
        r"qualname: (?P<name>[\w.<>]+), name: ",
        r"call_method:? UserDefined(?:Object|Class)Variable\((?:<class ')?(?P<owner>\w[\w.]*)"
        r"(?:'>)?\) (?P<name>\w+)(?: |$)",
        r"call_method:? ConstantVariable\((?P<owner>\w+): .{0,1000}?\) (?P<name>\w+)(?: |$)",
        r"call_method:? (?P<owner>\w+?)(?:Variable)?\(.{0,1000}?\) (?P<name>\w+)(?: |$)",
        r"method: <?(?P<owner>\w+)[^,]{0,1000}\.(?P<name>\w+), args",
        r"(?P<owner>numpy) function: <(?:built-in )?function (?P<name>\w+)(?: at |>)",
        r"<function (?P<name>[\w.<>]+) at ",
        r"Called `(?P<name>[\w.]+)\(",
        r"(?P<name>[a-z_]\w{0,200}(?:\.\w{1,200}){1,50})(?:\(|$)",
    )
)
_JUMPED = "attempted to jump with "
# torch's decorator for its own functions is in _compile.py; the other files it lists as never to be
# traced.
_NEVER_TRACED_BY_TORCH = re.compile(r"filename: `[^`]*[/\\]torch[/\\]_compile\.py`")
_FORCE_SKIPPED = "skip reason: file is force-skipped"
_ON_PURPOSE = "torch._dynamo.graph_break"
REPLAYED = (
    "the run goes on behind its steps, with replays of CUDA graphs of its own, in which a break "
    "costs nothing"
)
BACKEND_FAILED = "GB0219"  # on a graph as a whole, at no line
INTENDED = "torch breaks the graph here on purpose, in its own source; your code needs no change"
_MARKED = re.compile(r"You marked L\['(?P<name>\w+)'\]\.size\(\)\[(?P<dimension>\d+)\]")
_REGISTERS_FAKE = re.compile(
    r"(?<![\w.])(?:[^\WA-Za-z_]|\.)*+(?P<name>[A-Za-z_][\w.]*\.register_fake)\b"
)


class BreakRecord(m.Model, kw_only=False):
    """One record: one frame that met a break while it was compiled."""

    call: int
    compiled: Compiled | None
    # the innermost line of the project; None where no line of it called the library
    site: m.Location | None
    named: m.Location | None  # the line that torch named, which may be a library's
    stack: tuple[m.Location, ...]
    cause: m.TorchCause
    resumable: bool  # torch did not say that it cannot go on behind the line

    @property
    def stopped(self) -> m.Location | None:
        return (outside_dynamo(self.stack) or (self.named,))[-1]


class GraphBreak(Event):
    """One site of one run."""

    library: m.PackageLine | None  # where torch stopped, when that was in a library
    refusal: m.Refusal
    records: int  # frames that met it, over all calls
    calls: tuple[int, ...]
    functions: tuple[str, ...]  # whose compilation met it
    # the project's other lines that lead to the same line of a library
    ways_in: tuple[m.Location, ...] = ()
    cost: m.FindingCost | m.Skipped
    is_replayed: bool = False  # the program goes on with replays of CUDA graphs that it recorded


# ---------------------------------------------------------------- reading records


def break_records(trace: RunTrace) -> list[BreakRecord]:
    """The graph-break records of a run, in torch's order.

    torch may break a graph, compile the frame again and then find that it cannot go on behind the
    same line, or that the backend fails: of the records that it writes of this, only the last one
    is kept.
    """
    artifacts = [record for record in trace.artifacts(ARTIFACT) if record.payload]
    reasoned = {_attempt(record) for record in artifacts if not _is_raw(record)}
    written = [
        _break_record(trace, record, record.payload or "")
        for record in artifacts
        if not (_is_raw(record) and _attempt(record) in reasoned)
    ]
    written = [*written[:1], *itertools.starmap(_with_earlier_line, itertools.pairwise(written))]
    last = {_attempted(record): record for record in written if fell_back(trace, record)}
    kept = [record for record in written if last.get(_attempted(record), record) is record]
    ends = {
        id(record.compiled): record for record in kept if record.compiled and record.compiled.failed
    }
    kept = [record for record in kept if ends.get(id(record.compiled), record) is record]
    named = {(place.file, place.line) for record in kept for place in record.stack}
    return [_with_own_line(trace, record, named) for record in kept]


def _with_earlier_line(before: BreakRecord, record: BreakRecord) -> BreakRecord:
    """torch says that an earlier break may be the cause, but not which: that of the attempt before
    it to compile the frame. It is no variable of a return statement then."""
    if before.compiled is not record.compiled or before.site is None:
        return record
    earlier = f"an earlier graph break, in line {before.site.line}."
    hints = tuple(
        hint.replace("an earlier graph break.", earlier)
        for hint in record.cause.hints
        if not hint.startswith("If Dynamo is attempting to trace a return")
    )
    return msgspec.structs.replace(record, cause=msgspec.structs.replace(record.cause, hints=hints))


def _with_own_line(
    trace: RunTrace, record: BreakRecord, named: Collection[tuple[str, int]]
) -> BreakRecord:
    """The record with the line of the function that was being compiled, where torch left that out:
    the one line of it, named in no stack, behind which the frame hook saw it go on."""
    frame = compiled_frame(record)
    if frame is None or _has_its_line(trace, record):
        return record
    name = user_function(frame.function)
    lines = {
        row.first_line
        for row in trace.all.frames
        if is_resumed(row.function)
        and row.call == record.call
        and (row.file, user_function(row.function)) == (frame.file, name)
    }
    unnamed = [line for line in lines if (frame.file, line) not in named]
    if len(unnamed) != 1:
        return record
    own = trace.source.at(frame.file, unnamed[0], name)
    holds = trace.source.project.holds
    above = max((at for at, place in enumerate(record.stack) if holds(place.file)), default=-1)
    stack = (*record.stack[: above + 1], own, *record.stack[above + 1 :])
    return msgspec.structs.replace(record, stack=stack, site=own)


def compiled_frame(record: BreakRecord) -> m.Location | None:
    if record.compiled is None:
        return None
    return record.compiled.frame


def _is_raw(record: m.TraceRecord) -> bool:
    """Whether torch wrote the traceback of an error alone. Of a backend's error it writes this
    first, and then a record with the reason."""
    return (record.payload or "").startswith(_NOT_CONVERTED)


def _attempt(record: m.TraceRecord) -> object:
    """The same for what one attempt to compile a frame wrote."""
    metadata = record.metadata
    return record.call, *(metadata.get(name) for name in _ATTEMPT)


def _attempted(record: BreakRecord) -> object:
    """The same for every attempt of one compilation that ended at one line for one cause."""
    if record.compiled is None:
        return id(record)
    cause = (record.cause.identity, record.cause.operator)
    return record.call, record.compiled.compile_id, line_of(record.stopped), cause


def _break_record(trace: RunTrace, record: m.TraceRecord, payload: str) -> BreakRecord:
    text = payload.partition(_INTERNALS)[0]
    stack = tuple(stack_in(text))
    compiled = trace.compilation(compile_id(record.metadata), record.call)
    named = next(reversed(stack), None)
    if place := _NAMED_PLACE.match(text):
        named = m.Location(place["file"], int(place["line"]))
    reason = _last_error(payload)
    if found := _REASON.search(text):
        reason = found["reason"]
    cause = _in_this_program(cause_of(reason, trace.all.sources.registry))
    if compiled is not None and compiled.frame is not None and cause.gb_id == BACKEND_FAILED:
        frame = compiled.frame  # torch has a line of what it traced last
        line = trace.source.definition(frame.file, frame.line, frame.function).line
        stack = (m.Location(frame.file, line, user_function(frame.function)),)
    site = trace.source.innermost(stack)
    if site is None and compiled is not None:
        # A library's function that Dynamo compiles by itself has the project's line in the Python
        # stack above it.
        site = trace.source.innermost(compiled.stack)
    resumable = not reason.startswith(_CANNOT_RESUME)
    return BreakRecord(record.call, compiled, site, named, stack, cause, resumable)


def _last_error(payload: str) -> str:
    """What the exception says that ends a traceback; of several torch's own, which explains."""
    errors = list(_ERROR.finditer(payload))
    own = [error for error in errors if error["kind"].startswith("torch._dynamo.exc.")]
    explaining = own or errors
    if not explaining:
        return payload
    return payload[explaining[-1].end() :]


def stack_in(text: str, *, anywhere: bool = True) -> Iterator[m.Location]:
    """The user's stack, outermost first. The lines above it attribute values to places and are no
    stack; ``anywhere``: a text without torch's heading for it is all of it stack."""
    stack = ""
    if found := _USER_STACK.search(text):
        stack = found["stack"]
    elif anywhere:
        stack = text
    for frame in _IN_STACK.finditer(stack):
        function, code = user_function(frame["function"]), frame["text"] or ""
        yield m.Location(
            file=frame["file"], line=int(frame["line"]), function=function, text=code.strip()
        )


def _in_this_program(cause: m.TorchCause) -> m.TorchCause:
    """A graph that broke was not compiled with fullgraph=True, and what the program disables may
    not compile."""
    hints = tuple(
        hint.replace(_BREAKS_OFFERED, "Move ").replace(_DISABLED, _DISABLED + _MAY_NOT_COMPILE)
        for hint in cause.hints
    )
    return msgspec.structs.replace(cause, hints=hints)


def cause_of(text: str, registry: dict[str, m.RegistryEntry]) -> m.TorchCause:
    """The root cause in a reason: the first block with an explanation. The registry fills in what
    the text lacks."""
    ids = tuple(dict.fromkeys(f"GB{number}" for number in _GB_ID.findall(text)))
    known = next((registry.get(each) for each in ids[:1]), None)
    found = _CAUSE.search(text)
    if found is not None:
        context = " ".join((found["context"] or "").split())
        return m.TorchCause(
            found["kind"].strip(),
            ids,
            " ".join(found["explanation"].split()),
            tuple(" ".join(hint.split()) for hint in _HINT.findall(found["hints"])),
            context,
            _operator(context),
        )
    if known is not None:
        return m.TorchCause(known.type, ids, known.explanation, known.hints)
    first = text.strip().partition("\n")[0]
    return m.TorchCause(first, ids, opening(text).removeprefix(first).strip())


def _operator(context: str) -> str:
    """``print``, ``Tensor.item``, ``time.perf_counter``; empty where the context names none."""
    jumped = context.startswith(_JUMPED)
    if jumped and "Tensor" in context:
        return "bool(tensor)"
    found = next((found for form in _OPERATORS if (found := form.match(context))), None)
    if jumped or found is None:
        return ""
    owner = found.groupdict().get("owner") or ""
    name = found["name"].replace("to_list", "tolist")  # as Dynamo calls it
    if owner.startswith("<"):
        return name
    return clause("", owner, ".") + name


# ---------------------------------------------------------------- the way into a library


def outside_dynamo(stack: Sequence[m.Location]) -> tuple[m.Location, ...]:
    return tuple(place for place in stack if not any(folder in place.file for folder in _BETWEEN))


def library_of(trace: RunTrace, stopped: m.Location | None) -> m.PackageLine | None:
    """The line at which torch stopped, if it is no line of the project's."""
    if stopped is None or trace.source.project.holds(stopped.file):
        return None
    return trace.source.package_line(stopped)


def refusal_of(
    trace: RunTrace,
    cause: m.TorchCause,
    stack: Sequence[m.Location],
    folded: m.Folded | None = None,
) -> m.Refusal:
    """The cause with the lines between the project's and the library's, both left out."""
    holds, source = trace.source.project.holds, trace.source
    lines = outside_dynamo(stack)
    own = max((at for at, place in enumerate(lines) if holds(place.file)), default=-1)
    return m.Refusal(
        cause,
        tuple(
            source.package_line(place)
            for place, below in zip(lines[own + 1 : -1], lines[own + 2 :], strict=True)
            # What goes on behind a break is a frame of its own, of the same function.
            if _CALLS not in place.file
            and (place.file, place.function) != (below.file, below.function)
        ),
        tuple(stack[-STACK:]),
        folded,
        intended=_intended_by_torch(source, cause, next(reversed(lines), None)),
    )


def _intended_by_torch(source: SourceText, cause: m.TorchCause, stopped: m.Location | None) -> bool:
    """Whether torch's own source breaks the graph: it calls graph_break(), or a function that it
    keeps untraced."""
    if _FORCE_SKIPPED in cause.context:
        return True
    if (
        stopped is None
        or source.project.package(stopped.file)[0] != "torch"
        or source.project.holds(stopped.file)
    ):
        return False
    return cause.operator == _ON_PURPOSE or _NEVER_TRACED_BY_TORCH.search(cause.context) is not None


# ---------------------------------------------------------------- what fell back, and what did not


def fell_back(trace: RunTrace, record: BreakRecord) -> str:
    """``frame`` if the whole frame runs in eager because of this record, ``rest`` if what follows
    does, else empty."""
    compiled = record.compiled
    if compiled is None:
        return ""
    if compiled.failed:
        if any(row.outcome == "raised" for row in trace.frame_rows(compiled)):
            return ""
        return "frame"
    # torch says that it cannot go on, and sometimes does: the frame hook saw the rest compiled.
    if record.resumable or _resumed(trace, record, compiled):
        return ""
    return "rest"


def _resumed(trace: RunTrace, record: BreakRecord, compiled: Compiled) -> frozenset[str]:
    """The ids of the frames that go on behind the break, as far as they were compiled in the same
    call."""
    frame = compiled.frame
    if frame is None:
        return frozenset()
    name = user_function(frame.function)
    lines = {
        place.line for place in record.stack if place.file == frame.file and place.function == name
    }
    return frozenset(
        frame_id(row.compile_id)
        for row in trace.all.frames
        if row.outcome == "compiled"
        and row.call == record.call
        and row.file == frame.file
        and row.function != frame.function
        and user_function(row.function) == name
        and row.first_line in lines
    )


def sites(trace: RunTrace, *, fallen: bool) -> Iterator[tuple[list[BreakRecord], m.Folded]]:
    """The records of each site at which the frame fell back (or did not), those of the line that
    leads there most often first, and how they were told before. What fell back is told by the
    function that did: each way in is a site."""
    told: list[tuple[BreakRecord, m.Folded]] = []
    for on_a_line in grouped(
        break_records(trace), lambda record: line_of(record.site or record.named)
    ):
        lost = [bool(fell_back(trace, record)) for record in on_a_line]
        first = on_a_line[lost.index(any(lost))]  # that fell back, if one did
        folded = m.Folded(first.cause.gb_id, any(lost))
        told += [
            (record, folded)
            for record, is_lost in zip(on_a_line, lost, strict=True)
            if is_lost is fallen
        ]

    def site(one: tuple[BreakRecord, m.Folded]) -> object:
        record, _ = one
        way_in = line_of(record.site or record.named)
        if not fallen and record.site and library_of(trace, record.stopped):
            way_in = None
        return way_in, line_of(record.stopped), record.cause.identity, record.cause.operator

    for same in grouped(told, site):
        ways = grouped(same, lambda one: line_of(one[0].site))
        by_way = sorted(ways, key=lambda way: (_has_its_line(trace, way[0][0]), len(way)))[::-1]
        yield [record for way in by_way for record, _ in way], by_way[0][0][1]


def _has_its_line(trace: RunTrace, record: BreakRecord) -> bool:
    """Whether torch's stack holds a line of the project's function that was being compiled.

    torch leaves it out where that function calls a library's module and the break lies there: the
    innermost line of the project is then the caller's.
    """
    frame = compiled_frame(record)
    if frame is None or not trace.source.project.holds(frame.file):
        return True
    name = user_function(frame.function)
    return any(place.file == frame.file and place.function == name for place in record.stack)


# ---------------------------------------------------------------- events and findings


def collect(evidence: Evidence) -> tuple[GraphBreak, ...]:
    return tuple(
        _graph_break(trace, records, folded, evidence.run(trace.run))
        for trace in evidence.compilers_and_cut_off
        for records, folded in sites(trace, fallen=False)
    )


def _graph_break(
    trace: RunTrace, records: Sequence[BreakRecord], folded: m.Folded, run: RunEvidence | None
) -> GraphBreak:
    first = records[0]
    cost: m.FindingCost | m.Skipped = m.Skipped("the Recording has no run of this name")
    is_replayed = False
    broken: dict[str, set[str]] = defaultdict(set)
    for record in records:
        if record.compiled is not None:
            broken[record.compiled.frame_id] |= _resumed(trace, record, record.compiled)
    functions = dict.fromkeys(_compiled_function(trace, record) for record in records)
    if run is not None:
        cost = between_graphs(run, broken)
        is_replayed = _is_replayed(run.record)
    return GraphBreak(
        run=trace.run,
        location=first.site,
        library=library_of(trace, first.stopped),
        refusal=refusal_of(trace, first.cause, first.stack, folded),
        records=len(records),
        calls=calls_of(records),
        functions=tuple(filter(None, functions)),
        ways_in=_other_ways_in(trace, records),
        identity=identity_of(trace, first),
        cost=cost,
        is_replayed=is_replayed,
    )


@m.otherwise(False)
def _is_replayed(run: m.RunRecord) -> bool:
    if run.script is None or not run.script.goes_on:
        return False
    last = run.script.steps - 1
    behind = (
        sum(count for call, count in graph.replays.items() if call >= last)
        for graph in m.known(run.memory).graphs
    )
    return any(count > run.script.steps for count in behind)


def _compiled_function(trace: RunTrace, record: BreakRecord) -> str:
    """What torch's wrapper calls, "Sequential", in place of the wrapper."""
    compiled = record.compiled
    if compiled is None or compiled.frame is None:
        return ""
    rows = (row for row in trace.frame_rows(compiled) if row.compile_id == compiled.compile_id)
    wrapped = next((row.wraps for row in rows if row.wraps), "")
    frame = compiled.frame
    return wrapped or trace.source.definition(frame.file, frame.line, frame.function).function


def _other_ways_in(trace: RunTrace, records: Sequence[BreakRecord]) -> tuple[m.Location, ...]:
    """The other lines that lead to a line of a library. One that calls another of them is met where
    compiled code, which stands in no Python stack, lies between, or where torch leaves a line out:
    it is no way of its own."""
    callers = set()
    for record in records:
        if record.compiled is not None:
            above = map(line_of, record.compiled.stack[:-1])
            callers |= {*above} - {line_of(record.site)}
    ways = grouped(records, lambda record: line_of(record.site))[1:]
    sites = (same[0].site for same in ways if _has_its_line(trace, same[0]))
    return tuple(site for site in sites if site is not None and line_of(site) not in callers)


def calls_of(records: Iterable[BreakRecord]) -> tuple[int, ...]:
    return tuple(sorted({record.call for record in records}))


def identity_of(trace: RunTrace, record: BreakRecord) -> str:
    """File, function, root cause and the line's text, and the same of a library's line without its
    version: line numbers move with every edit above them."""
    identity = [*trace.source.identity(record.site or record.named), record.cause.identity]
    if library := library_of(trace, record.stopped):
        identity += (library.package, library.file, library.function, library.text)
    return "\0".join(identity)


def diagnose(events: tuple[GraphBreak, ...]) -> tuple[m.Finding, ...]:
    return tuple(_finding(event, ordinal) for event, ordinal in numbered(events))


def named_remedy(text: str) -> str:
    """What torch names as the remedy in its error, as code."""
    size = _MARKED.search(text)
    fake = _REGISTERS_FAKE.search(text)
    if size and "maybe_mark_dynamic" in text:
        return (
            f"torch._dynamo.maybe_mark_dynamic({size['name']}, {size['dimension']})"
            "  # in place of mark_dynamic: the program fixes this size"
        )
    if fake:
        return (
            f"@{fake['name']}  # above a function of the same arguments that returns an empty "
            "tensor of the result's shape and dtype"
        )
    return ""


def numbered(events: Iterable[Any]) -> Iterator[tuple[Any, str]]:
    """Events whose identity is the same (two equal lines in one function) are told apart by their
    order."""
    seen = Counter[tuple[m.RunKey, str]]()
    for event in events:
        key = (event.run, event.identity)
        seen[key] += 1
        ordinal = ""
        if seen[key] > 1:
            ordinal = str(seen[key])
        yield event, ordinal


def _finding(event: GraphBreak, ordinal: str) -> m.Finding:
    cause = event.refusal.cause
    what = "graph break"
    names: tuple[str, ...] = ()
    if cause.operator:
        what = f"{cause.operator} breaks the graph"
        names = (cause.operator,)
    if event.library is not None:
        what += clause(" in ", event.library.words)
    elif event.location is not None:
        what += clause(" in ", event.location.function)
    message = f"{what}: {cause.words}"
    if len(event.functions) > 1:
        message += f"; seen while compiling {', '.join(event.functions)}"
    if event.ways_in:
        message += f"; {plural(len(event.ways_in) + 1, 'line')} of your code lead there"
    no_fix = ""
    if event.refusal.intended:
        no_fix = INTENDED
    if event.is_replayed:
        no_fix = REPLAYED
    return finding(
        GRAPH_BREAK,
        event,
        message,
        event.identity,
        ordinal,
        is_note=no_fix != "",
        count=event.records,
        library=event.library,
        refusal=event.refusal,
        related=event.ways_in,
        detail=detail_of(cause),
        names=names,
        no_fix=no_fix,
        cost=event.cost,
    )


def detail_of(cause: m.TorchCause) -> str:
    """torch's explanation and hints, a paragraph each."""
    return "\n".join(filter(None, (cause.explanation, *(f"Hint: {hint}" for hint in cause.hints))))


def because(cause: m.TorchCause, library: m.PackageLine | None) -> str:
    """`` because of print in shelf 1.4.2 layers.py:12 (clipped)``; empty where neither is known."""
    return clause(" because of ", cause.operator) + clause(" in ", library and library.words)
