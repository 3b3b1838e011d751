"""CUDA graphs that a program records itself: what its replays read and write, with a stand-in where
no GPU is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from kgprof.model import HandmadeGraph
from kgprof.record.ground import project_sources
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.handmade_graphs import GROWS, HandmadeGraphs
from tests.collectors.watched import lines_with

PROJECT = project_sources.project_files(__file__)
Graphs = Any  # torch.cuda.CUDAGraph or the stand-in


class StandIn:
    """Has the methods of torch's class. Its replay does nothing: the hooks look at addresses, not
    at values."""

    def capture_begin(self, *args: object, **kwargs: object) -> None:
        """As torch's."""

    def capture_end(self) -> None:
        """As torch's."""

    def replay(self) -> None:
        """As torch's."""


@contextmanager
def capture(graph: Any, graphs: Graphs) -> Iterator[None]:
    if graphs is not StandIn:
        with torch.cuda.graph(graph):
            yield
        return
    graph.capture_begin()
    yield
    graph.capture_end()


Program = Callable[[Graphs, str], None]


def copied_into(graphs: Graphs, device: str) -> None:
    weight, x = torch.ones(3, device=device), torch.ones(3, device=device)
    graph = graphs()
    with capture(graph, graphs):
        y = (x * weight).sum()
    for _ in range(5):
        x.copy_(torch.full((3,), 2.0, device=device))
        graph.replay()
        y.clone()


def rebound_and_held_elsewhere(graphs: Graphs, device: str) -> None:
    batches = [torch.ones(3, device=device) for _ in range(5)]
    x = batches[0]
    graph = graphs()
    with capture(graph, graphs):
        y = x * 2  # reads the first batch
    for x in batches[1:]:  # noqa: B007
        graph.replay()
    assert y.shape == x.shape


def rebound_and_freed(graphs: Graphs, device: str) -> None:
    x = torch.ones(3, device=device)
    graph = graphs()
    with capture(graph, graphs):
        y = x * 3  # reads what is freed
    for _ in range(5):
        x = torch.ones(3, device=device)
        graph.replay()
    assert y.shape == x.shape


class Model:
    def __init__(self, device: str) -> None:
        self.static = torch.ones(3, device=device)

    def load(self, x: torch.Tensor) -> None:
        self.static = x


def an_attribute_rebound(graphs: Graphs, device: str) -> None:
    model, graph = Model(device), graphs()
    with capture(graph, graphs):
        y = model.static * 4  # reads the attribute
    kept = [torch.ones(3, device=device) for _ in range(5)]
    for each in kept:
        model.load(each)
        graph.replay()
    assert y.shape == kept[0].shape


def a_list_keeps_the_input(graphs: Graphs, device: str) -> None:
    x = torch.ones(3, device=device)
    static, graph = [x], graphs()
    with capture(graph, graphs):
        y = static[0] * 5
    for _ in range(5):
        x = torch.ones(3, device=device)
        static[0].copy_(x)
        graph.replay()
    assert y.shape == x.shape


def outputs_collected(graphs: Graphs, device: str) -> None:
    x, graph, outputs = torch.ones(3, device=device), graphs(), []
    with capture(graph, graphs):
        y = x * 6  # makes what is kept
    for _ in range(GROWS + 3):
        graph.replay()
        outputs.append(y)


def views_collected(graphs: Graphs, device: str) -> None:
    x, graph, outputs = torch.ones(3, device=device), graphs(), []
    with capture(graph, graphs):
        y = x * 7  # makes what is viewed
    for _ in range(GROWS + 3):
        graph.replay()
        outputs.append(y[:2])


def copies_collected(graphs: Graphs, device: str) -> None:
    x, graph, outputs = torch.ones(3, device=device), graphs(), []
    with capture(graph, graphs):
        y = x * 8
        z = y + 1
    for _ in range(GROWS + 3):
        graph.replay()
        outputs.append(z.clone())
        last = z
    assert last is z


def compiled_code_allocates(graphs: Graphs, device: str) -> None:
    """As Inductor's code does, which calls no operator for it."""
    empty = getattr(torch._C._dynamo.guards, f"_empty_strided_{device}")
    x, graph = torch.ones(3, device=device), graphs()
    with capture(graph, graphs):
        buffer = empty((3,), (1,), torch.float32)
        y = torch.mul(x, 9, out=buffer) + 1
        del buffer
    other = graphs()
    with capture(other, graphs):
        kept = empty((3,), (1,), torch.float32)
    third = graphs()
    with capture(third, graphs):
        z = kept * 2  # of the memory of another graph
    del kept
    for _ in range(5):
        graph.replay()
        third.replay()
    assert y.shape == z.shape


def graphs_of(program: Program, graphs: Graphs, device: str) -> tuple[HandmadeGraph, ...]:
    calls = CallIndex()
    watch = HandmadeGraphs(calls, device, PROJECT, graphs)
    before = dict(vars(graphs))
    with watch, calls.call():
        program(graphs, device)
    assert dict(vars(graphs)) == before
    return watch.records()


PROGRAMS = pytest.mark.parametrize(
    ("program", "wrong"),
    [
        (copied_into, []),
        (rebound_and_held_elsewhere, [("rebound", "x", "reads the first batch", 4)]),
        (rebound_and_freed, [("freed", "x", "reads what is freed", 5)]),
        (an_attribute_rebound, [("freed", "model.static", "reads the attribute", 5)]),
        (a_list_keeps_the_input, []),
        (outputs_collected, [("kept", "", "makes what is kept", 3)]),
        (views_collected, [("kept", "", "makes what is viewed", 3)]),
        (copies_collected, []),
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)


def held_to(
    program: Program, wrong: list[tuple[str, str, str, int]], graphs: Graphs, device: str
) -> None:
    (found,) = graphs_of(program, graphs, device)

    assert [(one.what, one.name, one.at.line) for one in found.wrong[-1:]] == [
        (what, name, *lines_with(__file__, mark)) for what, name, mark, _ in wrong
    ]
    # Of a local variable Python may keep the old value in sight for one replay: rebound, then
    # freed.
    assert {one.name for one in found.wrong} == {name for _, name, _, _ in wrong}
    assert sum(one.replays for one in found.wrong) == sum(replays for *_, replays in wrong)
    assert (found.captured_in, sum(found.replays.values()) > 0) == (0, True)


@PROGRAMS
def test_what_a_replay_reads_and_what_outlives_it(program: Program, wrong: list[Any]) -> None:
    held_to(program, wrong, StandIn, "cpu")


@pytest.mark.gpu
@PROGRAMS
def test_it_is_seen_of_torchs_own_graphs(program: Program, wrong: list[Any]) -> None:
    held_to(program, wrong, torch.cuda.CUDAGraph, "cuda")


@pytest.mark.gpu
# of torch: autograd's thread has no CUDA context, another stream
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_callables_that_copy_their_inputs_are_clean() -> None:
    def program(graphs: Graphs, device: str) -> None:
        model, x = torch.nn.Linear(3, 3, device=device), torch.ones(2, 3, device=device)
        graphed = torch.cuda.make_graphed_callables(model, (x,))
        for _ in range(5):
            x = torch.ones(2, 3, device=device)
            graphed(x).sum().backward()

    assert [graph.wrong for graph in graphs_of(program, torch.cuda.CUDAGraph, "cuda")] == [(), ()]


# of torch: one of the captures launches nothing
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
@pytest.mark.parametrize(
    ("graphs", "device"),
    [
        pytest.param(StandIn, "cpu"),
        pytest.param(torch.cuda.CUDAGraph, "cuda", marks=pytest.mark.gpu),
    ],
)
def test_memory_that_was_allocated_in_a_capture_is_no_input(graphs: Graphs, device: str) -> None:
    found = graphs_of(compiled_code_allocates, graphs, device)

    assert [graph.wrong for graph in found] == [(), (), ()]


class Unreadable:
    """As a TypeVar of Python 3.12: its type has room for a `__dict__`, and there is none to
    read."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise AttributeError("'Unreadable' object has no attribute '__dict__'")


def test_a_variable_without_readable_attributes_is_passed_over() -> None:
    def program(graphs: Graphs, device: str) -> None:
        held, graph = Unreadable(), graphs()
        with capture(graph, graphs):
            torch.ones(3, device=device)
        graph.replay()
        assert held

    (found,) = graphs_of(program, StandIn, "cpu")

    assert found.wrong == ()


def test_a_graph_of_torchs_own_making_is_none_of_the_programs() -> None:
    text = "graph = graphs(); graph.capture_begin(); graph.capture_end(); graph.replay()"
    code = compile(text, "/torch/_inductor/cudagraph_trees.py", "exec")

    assert graphs_of(lambda graphs, device: exec(code, {"graphs": graphs}), StandIn, "cpu") == ()
