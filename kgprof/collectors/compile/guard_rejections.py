"""The guards because of which torch rejected the compiled code that it had, and compiled once more.

    recompile_reasons ──reasons──► torch's sentences ──guard_text.parse──► Guard, newest entry first

torch gives a reason for each cache entry that it rejected; the compile id on the record is that of
the new compilation. A reason says what the entry was compiled for, and of most Python values not
what came: that is what the next rejection says of the new entry.
"""

import functools
import itertools
import json
import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors.guard_text import Guard, is_condition, parse
from kgprof.reading.structured_trace import RunTrace, compile_id, frame_id

ARTIFACT = "recompile_reasons"
_UNREAD = re.compile(r": '\w+' object has no attribute '\w+'")
_NOT_SAID = ": a guard that torch could not work out again"
_ON_STACK = re.compile(rf"{m.ON_STACK}(\d+)")

# Of each compile id: the guards that failed, of the newest entry first.
Rejections = Mapping[str, tuple[Guard, ...]]


def rejections(trace: RunTrace) -> Rejections:
    """Return the failed guards of each compilation that followed a rejection."""
    read = functools.cache(parse)  # every later rejection names the entry again, in the same words
    rejected: dict[str, tuple[Guard, ...]] = {}
    for record in trace.artifacts(ARTIFACT):
        if record.payload:
            name = compile_id(record.metadata)
            rejected[name] = tuple(map(read, _readable(record.payload)))
    values: dict[tuple[str, str, str], str] = {}  # what the guards of an entry were made for
    for guard in itertools.chain(*rejected.values()):
        key = guard.entry, guard.source, guard.kind
        values[key] = "" if is_condition(guard) else guard.expected
    on_stack = {frame_id(row.compile_id): row.on_stack for row in trace.all.frames}
    for name, guards in rejected.items():
        held = on_stack.get(frame_id(name), 0) - 1
        rejected[name] = tuple(
            replace(
                guard,
                actual=guard.actual or _came(guard, values.get((name, guard.source, guard.kind))),
                is_held=_is_held(guard, held),
            )
            for guard in guards
        )
    return rejected


def _came(guard: Guard, value: str | None) -> str:
    """The value of the entry that was made instead. Two guards on one dict are about different
    keys."""
    if guard.kind == "keys" or is_condition(guard):
        return ""
    return value or ""


def _is_held(guard: Guard, held: int) -> bool:
    """Whether it is on one of the values that lay on the stack below a graph break's result."""
    found = _ON_STACK.match(guard.source)
    return found is not None and int(found[1]) < held


def _readable(payload: str) -> Sequence[str]:
    """torch's reasons, the newest entry's first; of the others none that it failed to work out
    again."""
    newest, *others = reasons(payload) or ("",)
    read = (reason for reason in others if not _UNREAD.search(reason))
    return [_UNREAD.sub(_NOT_SAID, newest), *read]


def reasons(payload: str) -> tuple[str, ...]:
    """A list as JSON where several entries were rejected; the bare sentence where one was."""
    try:
        decoded = json.loads(payload)
    except (ValueError, RecursionError):
        return (payload,)
    if isinstance(decoded, list):
        return tuple(map(str, decoded))
    return (str(decoded),)
