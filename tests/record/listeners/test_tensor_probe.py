"""What is seen of tensors around compiled graphs, and that seeing it changes nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.output_graph import OutputGraph
from torch._functorch._aot_autograd import runtime_wrappers

from kgprof.model import Unavailable
from kgprof.model.memory_records import INCOMING, GraphInput, WatchedGraph
from kgprof.record.ground.source import unavailable
from kgprof.record.listeners import tensor_probe
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.tensor_probe import TensorProbe
from tests.collectors.watched import CALLS, lines_with, watch

ALL = tuple(range(CALLS))
AFTER_FIRST = ALL[1:]


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def only_graph(step: Callable[[int], object]) -> WatchedGraph:
    (graph,) = watch(step).graphs
    return graph


def by_name(graph: WatchedGraph) -> dict[str, GraphInput]:
    return {one.name: one for one in graph.inputs}


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4), requires_grad=False)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)  # written: seen
        return x * self.weight + self.seen


# ---------------------------------------------------------------- inputs


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_names_fixed_addresses_and_versions_of_what_a_module_takes(backend: str) -> None:
    compiled, x = torch.compile(Scaled(), backend=backend), torch.ones(4)

    graph = only_graph(lambda call: compiled(x))

    inputs = by_name(graph)
    assert {name: one.static for name, one in inputs.items()} == {
        "L['self']._buffers['seen']": "fixed",
        "L['x']": "",
        "L['self']._parameters['weight']": "parameter",
    }
    names = ("L['self']._buffers['seen']", "L['x']", "L['self']._parameters['weight']")
    seen, argument, weight = (inputs[name].held[0] for name in names)
    assert (seen.written, argument.written, weight.written) == (ALL, (), ())
    assert (seen.moved, argument.moved, weight.moved) == ((), (), ())
    assert (argument.first.address, argument.first.shape, argument.watched) == (
        x.data_ptr(),
        (4,),
        CALLS,
    )
    assert [(write.input, write.operator, write.frames[0].line) for write in graph.in_place] == [
        (0, "add_", lines_with(__file__, "written: seen")[0])
    ]
    assert (graph.function, graph.file, graph.arguments, graph.returns) == (
        "forward",
        __file__,
        ("self", "x"),
        True,
    )


def test_an_address_that_the_allocator_gives_out_again_is_another_one() -> None:
    compiled = torch.compile(torch.sin, backend="eager")

    def step(call: int) -> None:
        compiled(torch.ones(4))  # freed at once, so that the next call gets the same address or not

    (held,) = only_graph(step).inputs[0].held
    assert (held.moved, held.made_before, held.made_now) == (AFTER_FIRST, {}, {})
    assert (held.frames[0].file, held.frames[0].function) == (__file__, "step")


def test_what_a_graph_made_in_an_earlier_call_is_told_from_what_it_made_in_this_one() -> None:
    compiled, start = torch.compile(torch.sin, backend="aot_eager"), torch.ones(4)
    state = {"h": start}

    def carried(call: int) -> None:
        state["h"] = compiled(state["h"])

    def chained(call: int) -> None:
        compiled(compiled(start))

    (held,) = only_graph(carried).inputs[0].held
    first, second = only_graph(chained).inputs[0].held

    assert (held.moved, held.made_before, held.made_now) == (
        AFTER_FIRST,
        {"0/0 output 0": len(AFTER_FIRST)},
        {},
    )
    assert (first.run, first.moved) == (0, ())
    assert (second.run, second.moved, second.made_now) == (
        1,
        AFTER_FIRST,
        {"0/0 output 0": len(AFTER_FIRST)},
    )


def test_what_a_call_of_the_same_step_made_was_not_there_before() -> None:
    """A script's steps are known at its end: until then each of its compiled calls is a call."""
    compiled = torch.compile(torch.sin, backend="aot_eager")
    calls = CallIndex()
    state = {"h": torch.ones(4)}

    def two_layers_of_one_step() -> None:
        if calls.current % 2 == 0:
            state["h"] = torch.ones(4)  # a new batch
        state["h"] = compiled(state["h"])

    with (probe := TensorProbe(calls)):
        layer = calls.counted(two_layers_of_one_step)
        for _ in range(6):
            layer()

    (by_call,) = probe.records().graphs[0].inputs[0].held
    (by_step,) = probe.renumbered(lambda call: call // 2).graphs[0].inputs[0].held
    assert (by_call.made_before, by_call.made_now) == ({"0/0 output 0": 3}, {})
    assert (by_step.made_before, by_step.made_now) == ({}, {"0/0 output 0": 3})


def test_an_inference_tensor_has_no_version() -> None:
    compiled = torch.compile(torch.sin, backend="eager")
    with torch.inference_mode():
        x = torch.ones(4)

    def step(call: int) -> None:
        with torch.inference_mode():
            compiled(x)

    (held,) = only_graph(step).inputs[0].held
    assert held.written == ()


def test_a_view_writes_to_the_input_that_it_was_made_of() -> None:
    storage = torch.zeros(8)
    even, odd = storage[0::2], storage[1::2]

    @torch.compile(backend="eager")
    def region(even: torch.Tensor, odd: torch.Tensor) -> torch.Tensor:
        odd.view(-1)[1:].mul_(2)
        return even + 1

    graph = only_graph(lambda call: region(even, odd))

    assert [graph.inputs[write.input].name for write in graph.in_place] == ["L['odd']"]


def test_an_or_of_tensors_writes_nothing() -> None:
    @torch.compile(backend="eager")
    def region(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x | y

    x, y = torch.ones(4, dtype=torch.bool), torch.zeros(4, dtype=torch.bool)

    assert only_graph(lambda call: region(x, y)).in_place == ()


# ---------------------------------------------------------------- outputs


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_is_returned_as_it_is_twice_and_in_one_storage(backend: str) -> None:
    x, y = torch.ones(2, 2), torch.ones(2, 2)

    @torch.compile(backend=backend)
    def region(x: torch.Tensor, y: torch.Tensor) -> object:
        z = x + 1
        return {"z": z, "again": z, "given": x, "untouched": y}, z.t(), x[0]

    graph = only_graph(lambda call: region(x, y))

    assert graph.returned_inputs == ("L['x']", "L['y']")
    assert graph.returned_twice == ("z",)
    assert {(o.left, o.right, o.same_object, o.runs) for o in graph.overlaps} == {
        ("input 0", "output 2", False, CALLS),
        ("output 0", "output 1", False, CALLS),
    }


def test_tensors_that_only_lie_side_by_side_do_not_meet() -> None:
    storage = torch.zeros(8)
    low, high = storage[:4], storage[4:]
    compiled = torch.compile(torch.add, backend="eager")

    assert only_graph(lambda call: compiled(low, high)).overlaps == ()


def test_a_result_that_outlives_the_next_call_is_held() -> None:
    compiled, x = torch.compile(torch.sin, backend="eager"), torch.ones(4)
    kept: list[torch.Tensor] = []
    latest: dict[str, torch.Tensor] = {}

    def keeps_all(call: int) -> None:
        kept.append(compiled(x))

    def keeps_the_last(call: int) -> None:
        latest["y"] = compiled(x)

    (held,) = only_graph(keeps_all).held_outputs
    assert (held.output, held.calls) == (0, ALL[:-1])  # what becomes of the last one is not seen
    assert only_graph(keeps_the_last).held_outputs == ()


def test_where_the_next_run_was_not_looked_at_nothing_is_said_to_be_held() -> None:
    # given: every third call is looked at, and the graph keeps its result itself, as a CUDA graph
    compiled, x = torch.compile(torch.sin, backend=gives_out_one_tensor), torch.ones(4)
    calls = CallIndex()
    probe = TensorProbe(calls, watches=lambda call: call % 3 == 0)

    with probe:
        step = calls.counted(lambda: compiled(x) is None)
        for _ in range(8):
            step()

    (graph,) = probe.renumbered(lambda call: call).graphs
    assert graph.runs == 3
    assert graph.held_outputs == ()


def gives_out_one_tensor(
    graph: torch.fx.GraphModule, inputs: list[torch.Tensor]
) -> Callable[..., object]:
    """A backend that does what a CUDA graph does: every run writes to the same memory and returns
    the same tensor."""
    result = torch.empty(4)

    def run(*args: torch.Tensor) -> tuple[torch.Tensor]:
        result.copy_(graph(*args)[0])
        return (result,)

    return run


def test_of_a_graph_that_keeps_its_result_itself_only_more_and_more_references_say_that_it_is_held() -> (  # noqa: E501
    None
):
    compiled, x = torch.compile(torch.sin, backend=gives_out_one_tensor), torch.ones(4)
    kept: list[torch.Tensor] = []
    latest: dict[str, torch.Tensor] = {}

    def drops(call: int) -> None:
        compiled(x)

    def keeps_the_last(call: int) -> None:
        latest["y"] = compiled(x)

    def keeps_all(call: int) -> None:
        kept.append(compiled(x))

    assert [only_graph(step).held_outputs for step in (drops, keeps_the_last)] == [(), ()]
    (held,) = only_graph(keeps_all).held_outputs
    assert (held.output, held.calls) == (0, ALL[:-1])


def test_steps_that_the_program_marks_are_counted() -> None:
    import torch._inductor.cudagraph_trees

    compiled, x = torch.compile(torch.sin, backend="eager"), torch.ones(4)

    def step(call: int) -> None:
        torch.compiler.cudagraph_mark_step_begin()
        compiled(x)

    assert watch(step).steps_marked == CALLS


# ---------------------------------------------------------------- declared buffers


class Carries:
    def __init__(self, update: str) -> None:
        self.state, self.x = torch.zeros(4), torch.ones(4)
        self.update = update
        self.compiled = torch.compile(
            self.written if update == "inside" else self.pure, backend="aot_eager"
        )

    @staticmethod
    def pure(state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return state * 0.5 + x

    @staticmethod
    def written(state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        state.mul_(0.5)
        return state + x

    def __call__(self, call: int) -> None:
        new = self.compiled(self.state, self.x)
        if self.update == "copied":
            self.state.copy_(new)
        if self.update == "rebound":
            self.state = new


@pytest.mark.parametrize(
    ("update", "rebound", "inside", "outside", "made_by"),
    [
        ("copied", (), (), ALL, {}),
        ("inside", (), ALL, (), {}),
        ("rebound", ALL, (), (), {"0/0 output 0": CALLS}),
        ("none", (), (), (), {}),
    ],
)
def test_how_a_declared_buffer_gets_its_next_value(
    update: str,
    rebound: tuple[int, ...],
    inside: tuple[int, ...],
    outside: tuple[int, ...],
    made_by: dict[str, int],
) -> None:
    step = Carries(update)

    buffers = watch(step, buffers=lambda: {"state": step.state}).buffers

    assert buffers is not None
    (found,) = buffers
    assert (found.rebound, found.moved) == (rebound, rebound)
    assert (found.written_inside, found.written_outside, found.made_by) == (
        inside,
        outside,
        made_by,
    )


# ---------------------------------------------------------------- what it leaves alone


def programs() -> dict[str, Callable[[str], tuple[Callable[[], object], torch.nn.Module | None]]]:
    def trained(backend: str) -> tuple[Callable[[], object], torch.nn.Module]:
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        compiled, x = torch.compile(model, backend=backend), torch.linspace(0, 1, 12).reshape(3, 4)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            loss = compiled(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step, model

    def broken(backend: str) -> tuple[Callable[[], object], None]:
        @torch.compile(backend=backend)
        def region(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x.mul_(0.5)
            torch._dynamo.graph_break()
            return x, x.view(-1)[1:]

        x = torch.ones(4)
        return lambda: [one.clone() for one in region(x)], None

    def optimizer(backend: str) -> tuple[Callable[[], object], torch.nn.Module]:
        model = torch.nn.Linear(4, 1)
        adam = torch.optim.Adam(model.parameters(), lr=0.1)
        update, x = torch.compile(adam.step, backend=backend), torch.ones(3, 4)

        def step() -> torch.Tensor:
            adam.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            update()
            return loss.detach()

        return step, model

    return {"trained": trained, "broken": broken, "optimizer": optimizer}


@pytest.mark.filterwarnings("ignore:Profiler record function")
@pytest.mark.parametrize("name", ["trained", "broken", "optimizer"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_results_graphs_and_compilations_are_the_same_with_it(name: str, backend: str) -> None:
    def outcome(*, watched: bool) -> tuple[object, ...]:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.manual_seed(0)
        step, model = programs()[name](backend)
        calls = CallIndex()
        probe = TensorProbe(calls)
        results = []
        if watched:
            probe.__enter__()
        for _ in range(4):
            with calls.call():
                results.append(step())
        if watched:
            probe.__exit__(None, None, None)
            assert (probe.unavailable, len(probe.records().graphs) > 0) == ("", True)
        weights = [] if model is None else [*model.state_dict().values()]
        return str(results), str(weights), dict(torch._dynamo.utils.counters["stats"])

    assert outcome(watched=True) == outcome(watched=False)


@pytest.mark.parametrize("raises", [False, True])
def test_dynamo_is_as_it_was_afterwards(raises: bool) -> None:
    names = ("compile_subgraph", "call_user_compiler", "install_global_unsafe")
    before = [OutputGraph.__dict__[name] for name in names]
    calls, compiled = CallIndex(), torch.compile(torch.sin, backend="eager")
    probe = TensorProbe(calls)

    try:
        with probe, calls.call():
            compiled(torch.ones(3))
            if raises:
                raise ZeroDivisionError
    except ZeroDivisionError:
        assert raises

    assert [OutputGraph.__dict__[name] for name in names] == before
    assert calls.watchers == []
    compiled(torch.ones(3))
    assert probe.records().graphs[0].runs == 1


def test_an_error_of_its_own_does_not_fail_the_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_probe, "captured", lambda *given: 1 / 0)
    calls, compiled = CallIndex(), torch.compile(torch.sin, backend="eager")
    probe = TensorProbe(calls)

    with probe, calls.call():
        result = compiled(torch.zeros(3))

    assert torch.equal(result, torch.zeros(3))
    assert unavailable([probe]) == (
        Unavailable(
            capture="tensor probe",
            why="Dynamo's graph could not be read: ZeroDivisionError: division by zero",
        ),
    )
    assert (probe.records().graphs, probe.records().left_out) == ((), 1)


def test_a_torch_without_the_method_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(OutputGraph, "call_user_compiler")
    probe = TensorProbe(CallIndex())

    with probe:
        pass

    (lost,) = unavailable([probe])
    assert lost.capture == "tensor probe"
    assert lost.why.startswith("this torch has no OutputGraph.call_user_compiler")


def test_the_records_grow_with_states_and_not_with_calls() -> None:
    compiled = torch.compile(torch.sin, backend="eager")
    calls = CallIndex()
    probe = TensorProbe(calls)

    with probe:
        for _ in range(tensor_probe.WATCHED_CALLS + 2 * tensor_probe.SAMPLE):
            with calls.call():
                for _ in range(tensor_probe.RUNS + 2):
                    compiled(torch.ones(4))

    (graph,) = probe.records().graphs
    watched = tensor_probe.WATCHED_CALLS + 2
    assert len(graph.inputs[0].held) == tensor_probe.RUNS
    assert {held.watched for held in graph.inputs[0].held} == {watched}
    assert graph.runs == watched * tensor_probe.RUNS


# ---------------------------------------------------------------- backward graphs


class Counted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        ctx.seen = seen
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.seen.add_(1)
        return gradient * 2, None


class Residual(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor, skipped: torch.Tensor) -> torch.Tensor:
        return Counted.apply((x * self.weight).relu(), self.seen) + skipped


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # by Dynamo
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_backward_has_what_it_takes_writes_and_passes_on(backend: str) -> None:
    model = Residual()
    compiled, x, skipped = (
        torch.compile(model, backend=backend),
        torch.ones(4),
        torch.ones(4, requires_grad=True),
    )

    def step(call: int) -> None:
        compiled(x, skipped).pow(2).sum().backward()  # goes back

    records = watch(step)

    (forward,), (backward,) = records.graphs, records.backwards
    assert (forward.backward, backward.backward, backward.compile_id, backward.runs) == (
        False,
        True,
        "0/0",
        CALLS,
    )
    inputs = by_name(backward)
    assert {"L['x']", "L['self']._buffers['seen']", INCOMING} <= set(inputs)
    assert inputs["L['self']._buffers['seen']"].static == "fixed"
    # what comes in is new in each call, at the line that goes back
    (incoming,) = inputs[INCOMING].held
    assert (incoming.moved, incoming.frames[0].line) == (
        AFTER_FIRST,
        lines_with(__file__, "goes back")[0],
    )
    names = [one.name for one in backward.inputs]
    assert [names[write.input] for write in backward.in_place] == ["L['self']._buffers['seen']"]
    # and it is the gradient of what was added
    (passed_on,) = backward.overlaps
    assert (names[int(passed_on.left.split()[1])], passed_on.right.split()[0]) == (
        INCOMING,
        "output",
    )
    assert torch.equal(model.seen, torch.full((4,), float(CALLS)))


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # by Dynamo
def test_backwards_of_a_function_with_a_break_are_told_apart_and_nothing_is_kept() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = (x * 3).tanh()
        torch._dynamo.graph_break()
        return y.exp() * x

    compiled, x = torch.compile(broken, backend="aot_eager"), torch.ones(4, requires_grad=True)
    kept = []

    def step(call: int) -> None:
        x.grad = None
        loss = compiled(x).sum()
        kept.append(weakref.ref(loss))
        loss.backward()

    before = runtime_wrappers.call_func_at_runtime_with_args
    records = watch(step)

    assert [graph.compile_id for graph in records.backwards] == ["1/0", "0/0"]
    # the gradient that the second hands to the first was made in the same call
    (handed,) = by_name(records.backwards[1])[INCOMING].held
    assert list(handed.made_now) == ["1/0 backward output 0"]
    assert [reference() for reference in kept] == [None] * CALLS
    assert runtime_wrappers.call_func_at_runtime_with_args is before
