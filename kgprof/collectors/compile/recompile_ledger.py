"""The Profile's list of recompiles."""

from collections.abc import Iterator

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors.compile.recompile_limit import LimitReached
from kgprof.collectors.compile.recompiled_functions import RecompiledFunction, recompiled_functions
from kgprof.reading.structured_trace import RunTrace


def ledger(trace: RunTrace) -> tuple[m.RecompileEntry, ...]:
    """Every recompile of a run, and each time that torch's limit stood against one, in the order of
    the calls."""
    entries = [entry for event in recompiled_functions(trace) for entry in _entries(event)]
    if not trace.calls:  # no call was told from another
        return tuple(replace(entry, call=None, steady=False) for entry in entries)
    return tuple(sorted(entries, key=lambda entry: entry.call or 0))


def _entries(event: RecompiledFunction) -> Iterator[m.RecompileEntry]:
    for recompile in event.recompiles:
        yield m.RecompileEntry(
            compile_id=recompile.compile_id,
            location=event.location,
            call=recompile.call,
            steady=event.is_steady(recompile),
            reason=recompile.words,
            words=recompile.guard.text,
            guard=recompile.guard.kind,
            duration_s=recompile.duration_s,
            call_site=recompile.call_site,
            function=event.function,
            library=event.library,
        )
    if event.limit is not None:
        yield _refused(event, event.limit)


def _refused(event: RecompiledFunction, limit: LimitReached) -> m.RecompileEntry:
    entry = m.RecompileEntry(
        compile_id="",
        location=event.location,
        call=limit.call,
        steady=limit.call >= event.steady_from,
        reason=limit.words,
        words="",
        duration_s=m.Skipped("torch's recompile limit was reached: nothing was compiled"),
        refused=True,
        function=event.function,
        library=event.library,
    )
    if limit.guard is None:
        return entry
    return replace(entry, words=limit.guard.text, guard=limit.guard.kind)
