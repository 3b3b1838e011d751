"""KGP503: facts that two independent sources were asked about, and on which they did not say the
same.

| fact | the trace says | the hooks say |
|---|---|---|
| graph breaks | a record with its stack | a function that goes on after it was offered to Dynamo |
| recompiles | a reason | a compile id that does not end in /0 |
| compilations | a row of metrics with guards | a frame that came back compiled |
| graphs | a row of metrics that counts operators | a graph was put into the module |

And on a GPU, of each CUDA graph, what torch logs (recorded, skipped) against the launches in its
compiled region; and of each line of eager code that makes a number of a tensor, the dispatcher's
hook against torch's sync-debug mode. What else reads is seen by one of the two alone: ``.cpu()`` by
sync-debug, the user's line of a read in compiled code by the hook.

A source that was not there, or that had to leave records out, takes no part: what it lacks is no
contradiction. Nor is what a run lacks that was stopped before its end.
"""

from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np

from kgprof import model as m
from kgprof.collectors.compile.compilations_by_function import place_of
from kgprof.collectors.compile.graph_breaks import break_records
from kgprof.collectors.compile.guard_rejections import ARTIFACT
from kgprof.collectors.event import Event, finding
from kgprof.collectors.graphs import cuda_graphs
from kgprof.collectors.graphs.cuda_graphs import CudaGraphs
from kgprof.collectors.time import syncs
from kgprof.collectors.time.syncs import READ, Sync, called_function
from kgprof.reading import launches, timeline
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.reading.kineto import Columns
from kgprof.reading.source_text import is_resumed, user_function
from kgprof.reading.structured_trace import RunTrace, compile_id
from kgprof.wording import plural

SOURCES_DISAGREE = m.Rule(
    id="KGP503",
    name="sources-disagree",
    level=m.Level.WARNING,
    summary="Two independent sources contradict each other about a fact that this report states.",
    why=(
        "Every counter that torch publishes is wrong somewhere, so kgprof takes the facts that a "
        "gate depends on from two sources. If they differ, one is wrong for this torch or this "
        "program; trust neither number until you know which."
    ),
    example=(
        "The frame hook saw a function resume after line 12, but the trace has no "
        "graph-break record for it."
    ),
    remedy=(
        "Look at the lines that the finding names in the raw records (trace_records.jsonl.gz in "
        "the Recording). If the program replaces torch's log settings or resets Dynamo at run "
        "time, stop it from doing so; otherwise report it with the Recording attached."
    ),
    topic=m.Topic.SOURCES,
    seen_in=((m.Witness.FRAME_HOOK, m.Witness.END), (m.Witness.READS, m.Witness.END)),
    can_cost=(),
    judged_from_times=True,
)
RULES = (SOURCES_DISAGREE,)

TRACE, FRAMES, GRAPHS = "structured trace", "frame hook", "graph hook"
Place = tuple[str, int]  # file, line
SYNC_HOOKS, DISPATCH, SYNC_DEBUG = "sync hooks", "dispatch", "sync-debug"
WAITS_APART, WAITS_SHARE = 1, 0.1  # a step, and of those that the hooks saw: below both they agree
# operators with one wait each, which the hooks count
WAITING_ONCE = ("aten::_local_scalar_dense", "aten::copy_", "aten::nonzero")
OPERATOR = "aten::"
NUMBERS = ("item", "float", "int", "bool")  # calls that read one
SAID = {DISPATCH: "dispatcher's hook", SYNC_DEBUG: "sync-debug mode"}


class Disagreement(Event):
    """One fact of one run."""

    # "graph breaks", "recompiles", "compilations", "graphs", "CUDA graphs", "reads", "waits"
    fact: str
    message: str


def collect(evidence: Evidence) -> tuple[Disagreement, ...]:
    passes = {run.key: run.record.compile for run in evidence.runs}
    compiled = (
        found for trace in evidence.compilers for found in _of_trace(trace, passes[trace.run])
    )
    every = (
        *compiled,
        *(found for event in evidence.once(cuda_graphs.collect) for found in _launches(event)),
        *(found for run in evidence.on_gpu for found in _reads(run)),
        *(found for run in evidence.on_gpu for found in _waits(run, evidence.once(syncs.collect))),
    )
    stopped = [run.key for run in evidence.runs if run.record.exit.is_early]
    return tuple(found for found in every if found.run not in stopped)


def _of_trace(trace: RunTrace, recorded: m.CompilePass | m.Skipped) -> Iterator[Disagreement]:
    lacking = set()
    if isinstance(recorded, m.CompilePass):
        lacking = {one.capture for one in recorded.capture_unavailable}
    if trace.all.left_out or TRACE in lacking:
        return
    if FRAMES not in lacking:
        yield from _breaks(trace)
    reasons = {compile_id(record.metadata) for record in trace.artifacts(ARTIFACT)}
    failed = {compiled.compile_id for compiled in trace.compiled if compiled.failed}
    frames = {row.compile_id for row in trace.all.frames if row.compile_id}
    first = {compiled.compile_id for compiled in trace.compiled if compiled.after_failures}
    again = {name for name in frames - first if not name.endswith("/0")}
    # has_guarded_code is true also where torch skipped a frame for want of operators
    worked = [compiled for compiled in trace.compiled if not compiled.failed]
    guarded = {
        compiled.compile_id
        for compiled in worked
        if compiled.metrics.get("guard_count") is not None
    }
    dropped = {compiled.compile_id for compiled in worked if compiled.is_empty}
    counted = {compiled.compile_id for compiled in worked if compiled.metrics.get("graph_op_count")}
    # A graph that hands its inputs on and computes nothing is compiled too; the hook sees it, the
    # count is 0.
    empty = {
        compiled.compile_id for compiled in worked if compiled.metrics.get("graph_op_count") == 0
    }
    # one that failed may have failed after its graph was made, while torch made the guards
    graphs = {graph.compile_id for graph in trace.all.graphs}
    for fact, other, traced, hooked in (
        ("recompiles", FRAMES, reasons - failed - dropped, again),
        ("compilations", FRAMES, guarded, frames),
        ("graphs", GRAPHS, counted, graphs - empty - failed),
    ):
        if other in lacking:
            continue
        for name in sorted(traced ^ hooked):
            location = None
            if compiled := trace.compilation(name, trace.calls):
                location = place_of(trace, compiled)
            witness, silent = other, TRACE
            if name in traced:
                witness, silent = TRACE, other
            message = f"the {witness} has compilation {name}, and the {silent} does not"
            yield _disagreement(
                trace.run, fact, location, message, *trace.source.identity(location), name, witness
            )


def _breaks(trace: RunTrace) -> Iterator[Disagreement]:
    """Each resumed function of the project goes on behind a line that some record's stack names."""
    records = list(break_records(trace))
    named = {(place.file, place.line) for record in records for place in record.stack}
    resumed = {
        (row.file, row.first_line): row
        for row in trace.all.frames
        if is_resumed(row.function) and trace.source.project.holds(row.file)
    }
    for row in (row for place, row in resumed.items() if place not in named):
        location = trace.source.at(row.file, row.first_line, row.function)
        function = user_function(row.function)
        message = (
            f"the {FRAMES} saw {function} resume after this line, but the {TRACE} has no "
            "graph break there"
        )
        yield _disagreement(
            trace.run, "graph breaks", location, message, *trace.source.identity(location)
        )


def _launches(event: CudaGraphs) -> Iterator[Disagreement]:
    """A graph that the log calls recorded and that is never launched, or one that it calls skipped
    and that is."""
    if isinstance(event.recorded, m.Skipped):
        return  # as on a CPU, where nothing is replayed either
    recorded = {one.compile_id for one in event.recorded}
    skipped = {skip.compile_id for skip in event.skips}
    for one in event.replayed:
        logged = ""
        if one.compile_id in recorded and one.kernels and not one.launches:
            logged = "recorded"
            launched = "no cudaGraphLaunch"
        elif one.compile_id in skipped - recorded and one.launches:
            logged = "skipped"
            launched = f"{one.launches} cudaGraphLaunch"
        if logged:
            name = f"compilation {one.compile_id}"
            if one.location is not None:
                name = one.location.function
            identity = name, one.compile_id.partition("/")[2], logged
            message = (
                f"CUDA graph of {name}: torch's log says that it was {logged}, but its "
                f"{one.runs} runs in TRACE have {launched}"
            )
            yield _disagreement(event.run, "CUDA graphs", one.location, message, *identity)


def _reads(run: RunEvidence) -> Iterator[Disagreement]:
    """By line: a line that is compiled in one call and not in the next cannot be compared call by
    call."""
    source = run.source
    records, lacking = _of_hooks(run)
    if any(one.capture == SYNC_HOOKS for one in lacking):
        return
    seen: dict[str, dict[Place, m.Frame]] = {DISPATCH: {}, SYNC_DEBUG: {}}  # by either at all
    # and what the other one has to see too
    certain: dict[str, dict[Place, m.Frame]] = {DISPATCH: {}, SYNC_DEBUG: {}}
    for record in records or ():
        own = next((frame for frame in record.frames if source.project.holds(frame.file)), None)
        if (
            own is not None
            and record.source in seen
            and record.device == "cuda"
            and not record.compile_id
        ):
            seen[record.source][own.file, own.line] = own
            if _both_see(record):
                certain[record.source][own.file, own.line] = own
    for witness, silent in ((DISPATCH, SYNC_DEBUG), (SYNC_DEBUG, DISPATCH)):
        for frame in (
            frame for place, frame in certain[witness].items() if place not in seen[silent]
        ):
            location = source.at(frame.file, frame.line, frame.function)
            said = (
                f"the {SAID[witness]} saw this line read a CUDA tensor, but the "
                f"{SAID[silent]} did not"
            )
            yield _disagreement(
                run.key, "reads", location, said, *source.identity(location), witness
            )


@m.otherwise((None, ()))
def _of_hooks(
    run: RunEvidence,
) -> tuple[Sequence[m.SyncRecord] | None, Sequence[m.Unavailable]]:
    """What MEMORY's hooks saw and what was not there to see; None where that is not all of it."""
    memory = run.record.memory
    syncs = m.known(m.known(memory).syncs)
    if syncs.left_out:
        return None, ()
    return syncs.records, m.known(memory).capture_unavailable


def _both_see(record: m.SyncRecord) -> bool:
    """Tell whether Python itself reads a number: torch's warning does not reach Python from a
    library in C++ that reads (the constructor of DDP), and ``item`` of another class may copy."""
    called = called_function(syncs.doing(record)[1])
    if record.source == DISPATCH:
        return record.op == READ and (called in NUMBERS or syncs.is_tested(record))
    return called == "item" and not record.chain


def _waits(run: RunEvidence, events: tuple[Sync, ...]) -> Iterator[Disagreement]:
    """Whatever makes the host wait is a call of CUDA's runtime in the end, and TRACE has them all;
    not their lines.

    Of the traced steps the middle half is compared, since in some a program evaluates, saves or
    tries out kernels. Which steps of the hooks' they are is not known: where any stretch of as many
    has as many, they agree. A solver waits more often in later steps than in the traced ones. What
    waits inside an operator may be unseen by the hooks and contradicts nothing.
    """
    script = run.record.script
    records, lacking = _of_hooks(run)
    if records is None or lacking:
        return  # the breakdown says so
    if script is not None and (script.traced or script.goes_on):
        return  # other steps
    waited, certain = run.once(waits_of_trace)
    if not waited:
        return
    seen = syncs.syncs_of_steps(events, run.key) or [0]
    usual = median(seen)
    starts = range(max(1, len(seen) - len(waited) + 1))
    apart = min(_apart(certain, waited, seen[start : start + len(waited)]) for start in starts)
    if apart >= max(WAITS_APART, WAITS_SHARE * usual):
        calls = f"the trace has {max(median(certain), min(usual, median(waited))):g}"
        yield _disagreement(
            run.key,
            "waits",
            None,
            f"the hooks saw {plural(usual, 'sync')} in most steps, but {calls}",
        )


@m.otherwise(([], []))
def waits_of_trace(run: RunEvidence) -> tuple[list[int], list[int]]:
    """Of each step of TRACE the waits, and those of them that the hooks cannot miss; empty without
    TRACE."""
    columns = m.known(run.trace()).columns
    steps = timeline.profiler_steps(columns)
    # the hooks leave out what torch waits for while it compiles or records
    steps = steps[~launches.torch_works_in(columns, steps)]
    unseen = _unseen_inside(columns, _seen_once(run))
    certain = launches.waits(columns, steps, but_inside=unseen)
    return launches.waits(columns, steps).tolist(), certain.tolist()


def _seen_once(run: RunEvidence) -> tuple[str, ...]:
    """Operators whose wait the hooks cannot miss: torch.save copies storages by a way on which
    torch's debug mode sees none."""
    script = run.record.script
    saves = script is not None and any(one.into_compiled is None for one in script.checkpoints)
    return tuple(name for name in WAITING_ONCE if not (saves and name == "aten::copy_"))


def _unseen_inside(columns: Columns, seen_once: tuple[str, ...]) -> launches.Mask:
    """Operators that wait in ways of their own (a sort by Thrust in ``aten::_coalesce``): torch's
    debug mode sees none, some or all of it."""
    names = columns.names
    waiting = [name.startswith(OPERATOR) and name not in seen_once for name in names]
    found: launches.Mask = np.array(waiting, np.bool_)[columns.name]
    return found


def _apart(certain: Sequence[int], waited: Sequence[int], seen: Sequence[int]) -> int:
    """How far the middle halves lie apart; negative where they overlap. ``certain``: of ``waited``
    what the hooks cannot miss."""
    least, most = _middle_half(seen)
    return max(_middle_half(certain)[0] - most, least - _middle_half(waited)[1])


def _middle_half(counts: Sequence[int]) -> tuple[int, int]:
    ordered = sorted(counts)
    return ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]


def _disagreement(
    run: m.RunKey, fact: str, location: m.Location | None, message: str, *identity: str
) -> Disagreement:
    where = "\0".join((fact, *identity))
    return Disagreement(run=run, fact=fact, location=location, message=message, identity=where)


def diagnose(events: tuple[Disagreement, ...]) -> tuple[m.Finding, ...]:
    return tuple(
        finding(
            SOURCES_DISAGREE,
            event,
            f"sources disagree on {event.fact}: {event.message}",
            event.identity,
        )
        for event in events
    )
