"""What each compiled graph replaces, moves, allocates and saves, against figures reckoned by
hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._inductor import compile_fx, config
from torch._inductor.graph import GraphLowering
from torch.utils.checkpoint import checkpoint

from kgprof import model as m
from kgprof.record.listeners.graph_work import NO_BACKWARD, GraphWatch, eager_work
from kgprof.record.listeners.kernel_provenance import KernelWatch

FLOAT = 4


def test_eager_modes_operators_are_those_that_write_memory() -> None:
    def layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        # mm; two views
        heads = torch.nn.functional.linear(x, weight).view(4, 2, 32).transpose(0, 1)
        return torch.empty_like(heads).copy_(heads).relu_()  # no kernel; copy; in place

    forward, backward = eager_work(layer, (torch.randn(4, 16), torch.randn(64, 16)))

    product = FLOAT * (4 * 16 + 16 * 64 + 4 * 64)
    assert forward == m.EagerWork(
        operators=3, bytes_moved=product + 2 * FLOAT * 4 * 64 + 2 * FLOAT * 4 * 64
    )
    assert backward == NO_BACKWARD


def test_the_backward_of_its_results_is_counted_by_itself() -> None:
    forward, backward = eager_work(lambda x: x.sin() * 2, (torch.randn(8, requires_grad=True),))

    assert isinstance(forward, m.EagerWork)
    assert isinstance(backward, m.EagerWork)
    assert (forward.operators, backward.operators) == (2, 3)  # a product; a cosine and a product


def test_a_gather_reads_no_more_than_it_gives() -> None:
    forward, _ = eager_work(
        lambda table, rows: table[rows], (torch.randn(1000, 4), torch.zeros(8, dtype=torch.int64))
    )

    assert forward == m.EagerWork(operators=1, bytes_moved=8 * 8 + 2 * FLOAT * 8 * 4)


def test_hooks_of_the_programs_on_saved_tensors_see_nothing_of_it() -> None:
    """Checkpointing counts what a layer saves, and raises if it is another number the next time."""
    seen: list[torch.Tensor] = []

    def packed(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(packed, lambda tensor: tensor):
        _, backward = eager_work(lambda x: x.sin(), (torch.randn(8, requires_grad=True),))

    assert seen == []
    assert isinstance(backward, m.EagerWork)
    assert backward.operators > 0


def test_an_operand_that_is_given_twice_is_read_once() -> None:
    forward, _ = eager_work(lambda x: x * x, (torch.randn(8),))

    assert forward == m.EagerWork(operators=1, bytes_moved=2 * FLOAT * 8)


def test_a_compiled_optimizer_updates_what_it_owns_once() -> None:
    """Its graph owns parameters and state, and some of its operators take nothing else."""
    works: list[m.EagerWork | m.Skipped] = []

    def counted(model: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        works.extend(eager_work(model, inputs))
        return model.forward

    def updated(*, compiled: bool) -> list[torch.Tensor]:
        parameter = torch.nn.Parameter(torch.arange(4.0))
        optimizer = torch.optim.AdamW([parameter], lr=0.1, foreach=True)
        parameter.grad = torch.ones(4)
        update = torch.compile(optimizer.step, backend=counted) if compiled else optimizer.step
        for _ in range(2):
            update()
        return [parameter.detach(), *optimizer.state[parameter].values()]

    torch.testing.assert_close(updated(compiled=True), updated(compiled=False))
    assert isinstance(works[0], m.EagerWork), works[0]
    assert works[0].operators > 5


def test_parameters_of_a_module_in_a_graph_get_no_gradient() -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    graph = torch.fx.GraphModule(layer, torch.fx.Tracer().trace(layer))
    forward, backward = eager_work(graph, [torch.randn(8, 4)])

    assert isinstance(forward, m.EagerWork)
    assert isinstance(backward, m.EagerWork)
    assert backward.operators > 0
    assert [parameter.grad for parameter in layer.parameters()] == [None] * 4
    assert int(layer.get_buffer("1.num_batches_tracked")) == 0


def test_a_tensor_of_the_program_is_not_written() -> None:
    state = torch.zeros(2)
    forward, _ = eager_work(lambda: torch._foreach_add_([state], 1), ())

    assert state.tolist() == [0, 0]
    assert isinstance(forward, m.Skipped)
    assert "would write a tensor of the program" in forward.reason


def test_a_graph_that_needs_its_data_says_so() -> None:
    forward, backward = eager_work(lambda x: x[x > 0], (torch.randn(8),))

    assert forward == backward
    assert isinstance(forward, m.Skipped)
    assert forward.reason.startswith(
        "the graph could not be run without data: DynamicOutputShapeException"
    )


def test_a_graph_that_raises_leaves_no_state_of_its_own() -> None:
    def raising(x: torch.Tensor) -> torch.Tensor:
        torch.amp.autocast_mode._enter_autocast("cpu", torch.bfloat16, True, None)
        torch._C._set_grad_enabled(False)
        torch._C._functorch._vmap_increment_nesting(2, "error")
        return torch.nonzero(x)

    forward, _ = eager_work(raising, (torch.randn(8),))

    assert isinstance(forward, m.Skipped)
    assert not torch.is_autocast_enabled("cpu")
    assert torch.autocast_increment_nesting() == 1
    assert torch.autocast_decrement_nesting() == 0
    assert torch.is_grad_enabled()
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0


def test_gradients_of_torch_func_in_a_graph_are_counted() -> None:
    works: list[m.EagerWork | m.Skipped] = []

    def counted(model: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        works.extend(eager_work(model, inputs))
        return model.forward

    def slope(x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(torch.func.grad(lambda one: one.sin()))(x)

    x = torch.randn(3)
    torch.testing.assert_close(torch.compile(slope, backend=counted)(x), x.cos())
    assert isinstance(works[0], m.EagerWork), works[0]


@pytest.fixture
def generating() -> Iterator[None]:
    """Code is generated, and not found in a cache; and torch counts the calls of kernels, as kgprof
    has it do."""
    torch._dynamo.reset()
    with config.patch({"fx_graph_cache": False, "trace.provenance_tracking_level": 1}):
        yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("generating")
def test_a_graph_and_its_backward() -> None:
    def step(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda y: (y @ weight).sin().cos(), x, use_reentrant=False).sum()

    x, weight = torch.randn(8, 16, requires_grad=True), torch.randn(16, 32)
    with GraphWatch() as watch, KernelWatch(lambda key, work: None, watch):
        torch.compile(step)(x, weight).backward()

    found = watch.answer()
    assert watch.unavailable == ""
    assert isinstance(found, tuple)
    forward, backward = found
    assert (forward.compile_id, forward.backward, backward.backward) == ("0/0", False, True)
    # The product by a library; sine, cosine and sum in one kernel.
    assert (forward.kernels, forward.generated, forward.unknown) == (2, 1, 0)
    assert forward.needed_bytes == FLOAT * (8 * 16 + 16 * 32 + 1)
    assert forward.moved_bytes == FLOAT * (8 * 16 + 16 * 32 + 2 * 8 * 32 + 1)
    assert forward.buffers == m.BufferPlan(allocated=2, allocated_bytes=FLOAT * (8 * 32 + 1))
    # Nothing but the inputs is kept: the backward computes the product and the sine again.
    assert isinstance(backward.saved, m.SavedForBackward)
    assert (backward.saved.activations, backward.saved.inputs) == (0, 2)
    assert backward.saved.recomputed >= 2


@pytest.mark.usefixtures("generating")
def test_what_is_not_checkpointed_may_be_kept() -> None:
    def step(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (x @ weight).sin().sum()

    with GraphWatch() as watch, KernelWatch(lambda key, work: None, watch):
        torch.compile(step)(torch.randn(8, 16, requires_grad=True), torch.randn(16, 32)).backward()

    found = watch.answer()
    assert isinstance(found, tuple)
    assert isinstance(found[1].saved, m.SavedForBackward)
    # The product, and the transposed weight, which is a view.
    assert (found[1].saved.activations, found[1].saved.activation_bytes) == (1, FLOAT * 8 * 32)
    assert found[1].saved.inputs == 1


def test_everything_is_as_it_was_also_when_the_workload_raises() -> None:
    before = (compile_fx.compile_fx, compile_fx._compile_fx_inner, GraphLowering.codegen)

    with pytest.raises(ZeroDivisionError), GraphWatch():
        raise ZeroDivisionError

    assert (compile_fx.compile_fx, compile_fx._compile_fx_inner, GraphLowering.codegen) == before


def test_a_torch_without_these_functions_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(compile_fx, "_compile_fx_inner")

    with GraphWatch() as watch:
        pass

    assert "has no attribute '_compile_fx_inner'" in watch.unavailable
    assert watch.answer() == m.Skipped(reason=watch.unavailable)
