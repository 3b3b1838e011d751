"""Which lines the operators of a large graph come from."""

from __future__ import annotations

from contextlib import ExitStack

import torch

from kgprof import model as m
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.graph_hook import GraphHook
from kgprof.record.listeners.graph_lines import FEWEST

ITERATIONS = 120


def cell(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) + 1.0


def rolls(x: torch.Tensor) -> torch.Tensor:
    for _ in range(ITERATIONS):
        x = cell(x)
    return x


def lines_of_rolls() -> dict[str, m.LineOperators]:
    torch._dynamo.reset()
    hook = GraphHook(CallIndex())
    with ExitStack() as undo:
        hook.listen(undo)
        compiled = torch.compile(rolls, backend="eager")
        compiled(torch.ones(3))
    (graph,) = hook.graphs
    return {line.function: line for line in graph.lines if line.file == __file__}


def test_a_line_that_calls_has_the_operators_of_what_it_calls() -> None:
    found = lines_of_rolls()

    called, calls = found["cell"], found["rolls"]
    assert called.operators == calls.operators == called.of == 2 * ITERATIONS >= FEWEST
    assert called.kinds == calls.kinds == 2
    assert called.line == cell.__code__.co_firstlineno + 1
    assert calls.line == rolls.__code__.co_firstlineno + 2


def test_of_a_small_graph_nothing_is_kept() -> None:
    torch._dynamo.reset()
    hook = GraphHook(CallIndex())
    with ExitStack() as undo:
        hook.listen(undo)
        torch.compile(cell, backend="eager")(torch.ones(3))

    assert [graph.lines for graph in hook.graphs] == [()]
