"""What was compiled while a workload was loaded and ran in none of its calls: it is not a part of
the step.

A module compiles and warms up what it likes while it is imported, all strategies of an object
together. What a run's calls use of it counts like what they compile; the rest is kept apart.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from kgprof import model as m
from kgprof.reading.source_text import user_function
from kgprof.reading.structured_trace import compile_id

COMPILED = "compiled"  # an outcome of OfferedFrame

Function = tuple[str, str]  # file and name, behind a graph break as well


def apart(recording: m.Recording) -> m.Recording:
    """The Recording with what no call ran moved to ``CompilePass.unused``; a program's is all of it
    its own."""
    return replace(recording, runs=tuple(_apart(run) for run in recording.runs))


def _apart(run: m.RunRecord) -> m.RunRecord:
    records = run.records
    compiled = run.compile
    if run.script is not None or isinstance(records, m.Skipped) or isinstance(compiled, m.Skipped):
        return run
    unused = _unused(records) if compiled.call_us else frozenset()
    if not unused:
        return run
    left = replace(
        records,
        records=tuple(
            record for record in records.records if compile_id(record.metadata) not in unused
        ),
        frames=tuple(frame for frame in records.frames if frame.compile_id not in unused),
        graphs=tuple(graph for graph in records.graphs if graph.compile_id not in unused),
        texts=tuple(text for text in records.texts if text.compile_id not in unused),
        guards=tuple(each for each in records.guards if each.compile_id not in unused),
    )
    kept = tuple(each for each in compiled.compilations if each.compile_id not in unused)
    rest = tuple(each for each in compiled.compilations if each.compile_id in unused)
    return replace(run, records=left, compile=replace(compiled, compilations=kept, unused=rest))


def _unused(records: m.CompileRecords) -> frozenset[str]:
    """Compile ids of functions that were compiled before the calls alone, with graphs that ran in
    no call.

    Of a function without a graph, or one that torch did not compile every time, nothing tells
    whether it ran.
    """
    runs: Mapping[str, int] = {
        graph.compile_id: max(graph.runs, default=m.BEFORE_THE_FIRST) for graph in records.graphs
    }
    offered: dict[Function, list[m.OfferedFrame]] = {}
    for frame in records.frames:
        offered.setdefault((frame.file, user_function(frame.function)), []).append(frame)
    unused = set[str]()
    used = set[str]()
    for frames in offered.values():
        ids = {frame.compile_id for frame in frames}
        whole = all(
            frame.outcome == COMPILED and frame.call == m.BEFORE_THE_FIRST for frame in frames
        )
        last = max((runs[each] for each in ids if each in runs), default=None)
        into = unused if whole and last == m.BEFORE_THE_FIRST else used
        into |= ids
    return frozenset(unused - used)
