"""How often each graph ran in which call, and nothing left behind in the workload's module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.exc import TensorifyScalarRestartAnalysis
from torch._dynamo.output_graph import OutputGraph

from kgprof.model.compile_records import GraphRuns
from kgprof.record.ground.source import listening, unavailable
from kgprof.record.listeners import graph_hook
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.graph_hook import GraphHook
from kgprof.record.listeners.installed_graphs import PREFIX


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def breaks_once(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = x @ weight
    torch._dynamo.graph_break()
    return y * 2


def adds(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def counted(step: Callable[[], object], *, calls: int) -> tuple[GraphRuns, ...]:
    index = CallIndex()
    hook = GraphHook(index)
    with listening([hook]):
        for _ in range(calls):
            with index.call():
                step()
    return hook.graphs


def graphs_in_this_module() -> dict[str, Callable[..., object]]:
    """Dynamo takes one out again only when nothing holds the code that calls it any more."""
    return {name: value for name, value in globals().items() if name.startswith(PREFIX)}


def test_each_graph_is_counted_in_each_call() -> None:
    compiled = torch.compile(breaks_once, backend="eager")
    x, weight = torch.ones(2, 2), torch.ones(2, 2)

    def step() -> None:
        compiled(x, weight)
        compiled(x, weight)

    found = counted(step, calls=3)

    twice_a_call = {0: 2, 1: 2, 2: 2}
    assert found == (
        GraphRuns(compile_id="0/0", inputs=("L['x']", "L['weight']"), runs=twice_a_call),
        GraphRuns(compile_id="1/0", inputs=("L['y']",), runs=twice_a_call),
    )


def test_silence_after_the_recompile_limit_is_seen() -> None:
    compiled = torch.compile(adds, backend="eager", dynamic=False)
    sizes = iter([2, 3, 4, 5, 2])  # the last one finds the code of the first again

    with torch._dynamo.config.patch(recompile_limit=2):
        found = counted(lambda: compiled(torch.ones(next(sizes))), calls=5)

    assert [(graph.compile_id, graph.runs) for graph in found] == [
        ("0/0", {0: 1, 4: 1}),
        ("0/1", {1: 1}),
    ]


def test_results_and_compilations_are_the_same_with_it() -> None:
    x, weight = torch.ones(2, 2), torch.eye(2)
    plain = torch.compile(breaks_once, backend="aot_eager")(x, weight)
    torch._dynamo.reset()

    compiled = torch.compile(breaks_once, backend="aot_eager")
    results = []
    before = torch._dynamo.utils.counters["frames"]["ok"]
    counted(lambda: results.append(compiled(x, weight)), calls=2)

    assert all(torch.equal(result, plain) for result in results)
    # the function and what follows its break
    assert torch._dynamo.utils.counters["frames"]["ok"] - before == 2


@pytest.mark.parametrize("raises", [False, True])
def test_the_graphs_themselves_stand_in_the_module_afterwards(raises: bool) -> None:
    original = OutputGraph.install_global_unsafe
    compiled = torch.compile(adds, backend="eager")
    earlier = graphs_in_this_module()
    during: dict[str, Callable[..., object]] = {}

    def step() -> None:
        compiled(torch.ones(3))
        during.update(graphs_in_this_module())
        if raises:
            raise ZeroDivisionError

    try:
        counted(step, calls=1)
    except ZeroDivisionError:
        assert raises

    assert OutputGraph.install_global_unsafe is original
    (name,) = graphs_in_this_module().keys() - earlier.keys()
    assert during[name].__module__ == "kgprof.record.listeners.graph_hook"
    assert graphs_in_this_module()[name].__module__ != "kgprof.record.listeners.graph_hook"
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))


def test_code_that_dynamo_has_dropped_is_no_error() -> None:
    index = CallIndex()
    hook = GraphHook(index)

    with listening([hook]):
        torch.compile(adds, backend="eager")(torch.ones(3))
        torch._dynamo.reset()

    assert [graph.runs for graph in hook.graphs] == [{-1: 1}]


def test_a_torch_without_the_method_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(OutputGraph, "install_global_unsafe")
    hook = GraphHook(CallIndex())

    with listening([hook]):
        pass

    (lost,) = unavailable([hook])
    assert lost.capture == "graph hook"
    assert lost.why.startswith("this torch has no OutputGraph.install_global_unsafe")


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"backend": "eager"}, None),
        ({}, False),
        ({"mode": "reduce-overhead"}, True),
        ({"mode": "max-autotune-no-cudagraphs"}, False),
        ({"options": {"triton.cudagraphs": True}}, True),
    ],
)
def test_whether_cuda_graphs_were_asked_for(options: dict[str, Any], asked: bool | None) -> None:
    compiler_fn = torch._dynamo.eval_frame.get_compiler_fn(_backend_of(options))

    assert graph_hook.asks_for_cuda_graphs(compiler_fn) is asked


def _backend_of(options: dict[str, Any]) -> object:
    """What torch.compile hands to Dynamo for these arguments."""
    if "backend" in options:
        return options["backend"]
    return torch._TorchCompileInductorWrapper(options.get("mode"), options.get("options"), None)


def test_a_backend_that_asks_torch_to_trace_again_has_not_failed() -> None:
    tried: list[str] = []

    def starts_over(
        graph: torch.fx.GraphModule, examples: list[torch.Tensor]
    ) -> Callable[..., object]:
        tried.append("once")
        if len(tried) == 1:
            raise TensorifyScalarRestartAnalysis(restart_reason="a number is to be a tensor")
        return graph.forward

    hook = GraphHook(CallIndex())
    with listening([hook]):
        assert torch.equal(
            torch.compile(adds, backend=starts_over)(torch.ones(2)), torch.full((2,), 2.0)
        )

    assert len(tried) == 2
    assert [line for line in hook.lines() if "backend" in line] == []
