"""Which code Dynamo had compiled before kgprof listened, and in which calls of the workload it
still runs.

Nothing else sees it: the other sources hear a compilation, and stand around a graph from its
compilation on. Its graphs are found in Dynamo's caches and get a counter, which is taken off again
when listening ends.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

from kgprof import model as m
from kgprof.reading.source_text import user_function
from kgprof.record.ground.source import Source, not_compiled
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.installed_graphs import PREFIX, Graph
from kgprof.wording import and_more, plural

RESUMES = "__resume_at_"  # Dynamo's name of what goes on behind a graph break
NAMED = 2  # functions in a sentence


@dataclass(kw_only=True)
class _Earlier:
    """One compilation that a cache still holds."""

    file: str
    first_line: int
    function: str
    breaks: bool
    calls: set[int] = field(default_factory=set)  # in which a graph of it ran


class EarlierCode(Source):
    """What stands in Dynamo's caches when it is entered."""

    name = "Dynamo's caches"

    def __init__(self, calls: CallIndex) -> None:
        self._calls = calls
        self._earlier: list[_Earlier] = []

    def listen(self, undo: ExitStack) -> None:
        if "torch._dynamo.convert_frame" not in sys.modules:
            return  # nothing can have been compiled
        from torch._dynamo.convert_frame import input_codes
        from torch._dynamo.eval_frame import _debug_get_cache_entry_list

        codes = [code for known in input_codes.seen if (code := known()) is not None]
        for code in codes:
            for entry in _debug_get_cache_entry_list(code):
                self._follow(code, entry, undo)

    def _follow(self, code: CodeType, entry: Any, undo: ExitStack) -> None:
        names = entry.code.co_names
        earlier = _Earlier(
            file=code.co_filename,
            first_line=code.co_firstlineno,
            function=user_function(code.co_name),
            breaks=any(name.startswith(RESUMES) for name in names),
        )
        self._earlier.append(earlier)
        scope = entry.guard_manager.global_scope["G"]
        for name in names:
            if name.startswith(PREFIX) and name in scope:
                below = scope[name]
                counted = scope[name] = self._counted(below, earlier)
                not_compiled(counted)
                undo.callback(_take_off, scope, name, counted, below)

    def _counted(self, graph: Graph, earlier: _Earlier) -> Graph:
        calls = self._calls

        def counted(*args: Any, **named: Any) -> Any:
            earlier.calls.add(calls.current)
            return graph(*args, **named)

        return counted

    def ran_unseen(self) -> Iterator[m.Unavailable]:
        """What a reader must know of it; nothing where no such code ran in a call of the
        workload."""
        ran = [each for each in self._earlier if max(each.calls, default=-1) >= 0]
        if not ran:
            return
        first: dict[tuple[str, str], str] = {}
        for each in ran:
            place = f"{Path(each.file).name}:{each.first_line}"
            first.setdefault((each.file, each.function), f"{each.function} ({place})")
        functions = list(first.values())
        more = and_more(functions, NAMED)
        calls = {call for each in ran for call in each.calls if call >= 0}
        breaks = sum(each.breaks for each in ran)
        broken = f", with {plural(breaks, 'graph break')}" if breaks else ""
        why = f"{', '.join(functions[:NAMED])}{more}: compiled before kgprof listened{broken}; "
        why += f"that code ran in {plural(len(calls), 'call')}. "
        why += "Call torch._dynamo.reset() first, or start watching before the first call"
        yield m.Unavailable(m.EARLIER_CODE, why)


def _take_off(scope: dict[str, Any], name: str, counted: Graph, below: Graph) -> None:
    """Not where Dynamo has dropped the graph, or somebody else stands around it."""
    if scope.get(name) is counted:
        scope[name] = below
