"""Which compiled callable a compilation or a code object belongs to, and how a person names several
of them.

torch compiles every module of its own (Linear, Sequential) through one function,
``wrap_inline.<locals>.inner``, and a method once for all modules of its class. The callable says
which module it was.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from kgprof import model as m
from kgprof.reading.structured_trace import Compiled, RunTrace
from kgprof.wording import plural

NAMED = 3  # groups of modules; more are counted

_NUMBERED = re.compile(r"(?P<head>.*?)(?P<number>\d+)(?P<tail>\D*)")


def callables(trace: RunTrace) -> tuple[m.CompiledCallable, ...]:
    """Empty where calls were not counted."""
    counted = trace.all.compiled_calls
    return () if isinstance(counted, m.Skipped) else counted.callables


def of_compilation(trace: RunTrace, compiled: Compiled) -> m.CompiledCallable | None:
    """The innermost compiled callable in whose call torch began it."""
    began = m.BegunCompilation(call=compiled.call, compile_id=compiled.compile_id)
    return next((each for each in callables(trace) if began in each.compilations), None)


def begins_with(trace: RunTrace, compiled: Compiled) -> bool:
    """Whether a compilation is part of its own module's first calls: the very first one, or one of
    as many as count as warm-up, if the program calls the module beyond them."""
    called = of_compilation(trace, compiled)
    if called is None or not called.module:
        return False
    own = sorted(called.calls)
    warmup = trace.steady_from
    return compiled.call in (own[:warmup] if len(own) > warmup else own[:1])


def in_turn(these: Iterable[m.CompiledCallable]) -> bool:
    """Whether these are several, each of which is called no more once the next one is: the models
    of a search, one after the other."""
    by_number = {each.number: each for each in these if each.module and each.calls}
    spans = sorted((min(each.calls), max(each.calls)) for each in by_number.values())
    return len(spans) > 2 and all(
        before[1] < after[0] for before, after in itertools.pairwise(spans)
    )


def of_code(trace: RunTrace, frame: m.Location | None) -> tuple[m.CompiledCallable, ...]:
    """All whose calls run this code object first, by its first line."""
    if frame is None:
        return ()
    place = (frame.file, frame.line, frame.function)
    return tuple(each for each in callables(trace) if _key(each.offered) == place)


def _key(line: m.SourceLine) -> tuple[str, int, str]:
    return line.file, line.line, line.function


def eager_calls(called: m.CompiledCallable, since: int) -> int:
    """Calls that ran no compiled graph, from a call of the workload on."""
    return counted_since(called.eager, since)


def calls(called: m.CompiledCallable, since: int) -> int:
    return counted_since(called.calls, since)


def counted_since(counts: Mapping[int, int], since: int) -> int:
    return sum(count for call, count in counts.items() if call >= since)


def ran_a_graph(called: m.CompiledCallable) -> bool:
    """In any call. One that raised says nothing."""
    silent = sum(called.eager.values()) + sum(called.raised.values())
    return sum(called.calls.values()) > silent


def named(these: Iterable[m.CompiledCallable]) -> str:
    """``layers.8 to layers.11 (Layer)``, ``encoder (Encoder), 3 Linear modules``, ``f``."""
    by_kind: dict[str, list[m.CompiledCallable]] = {}
    for each in these:
        by_kind.setdefault(each.module, []).append(each)
    groups: list[str] = []
    for module, alike in by_kind.items():
        groups += (
            _paths(module, alike)
            if module
            else list(dict.fromkeys(each.function for each in alike))
        )
    more = len(groups) - NAMED
    return ", ".join(groups[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _paths(module: str, alike: Sequence[m.CompiledCallable]) -> list[str]:
    """Each run of consecutive numbers as one; modules that the program has no name for are
    counted."""
    paths = list(dict.fromkeys(each.path for each in alike if each.path))
    nameless = sum(not each.path for each in alike)
    runs: list[list[str]] = []
    for path in paths:
        if runs and _follows(runs[-1][-1], path):
            runs[-1].append(path)
        else:
            runs.append([path])
    words = []
    for run in runs:
        span = run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}"
        words.append(f"{span} ({module})")
    if nameless:
        words.append(plural(nameless, f"{module} module") if nameless > 1 else module)
    return words


def _follows(before: str, after: str) -> bool:
    first = _NUMBERED.fullmatch(before)
    second = _NUMBERED.fullmatch(after)
    if first is None or second is None:
        return False
    same = (first["head"], first["tail"]) == (second["head"], second["tail"])
    return same and int(second["number"]) == int(first["number"]) + 1
