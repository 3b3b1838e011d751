"""Which lines each operator of Dynamo's graph comes from, and how many of a large graph come from
each line: what a loop was unrolled to is seen here."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

from kgprof import model as m

STACK = 8  # frames that are kept of one operator
FEWEST = 200  # operators of a graph; a smaller one is compiled in no time
MOST_LINES = 200  # that are kept, those with the most operators first
_OPERATORS = ("call_function", "call_method", "call_module")

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>\S+)')

_Line = tuple[str, int, str]  # file, line, function


def frames_of(node: torch.fx.Node) -> tuple[m.Frame, ...]:
    """The user's stack where the operator was traced, innermost first."""
    text = node.meta.get("stack_trace") or ""
    found = [
        m.Frame(match["file"], int(match["line"]), match["function"])
        for match in _FRAME.finditer(text)
    ]
    return tuple(reversed(found))[:STACK]


def lines_of_operators(graph: torch.fx.Graph) -> tuple[m.LineOperators, ...]:
    """Counts the operators below each line, as Dynamo traced them; none for a small graph.

    A line that calls has the operators of what it calls, too.
    """
    nodes = [node for node in graph.nodes if node.op in _OPERATORS]
    if len(nodes) < FEWEST:
        return ()
    operators: Counter[_Line] = Counter()
    kinds: dict[_Line, set[tuple[str, _Line]]] = {}
    for node in nodes:
        lines = [(frame.file, frame.line, frame.function) for frame in frames_of(node)]
        for line in dict.fromkeys(lines):
            operators[line] += 1
            kinds.setdefault(line, set()).add((str(node.target), lines[0]))
    return tuple(
        m.LineOperators(*line, operators=count, kinds=len(kinds[line]), of=len(nodes))
        for line, count in operators.most_common(MOST_LINES)
    )
