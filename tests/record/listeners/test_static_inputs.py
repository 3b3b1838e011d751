"""The tensors that a function without arguments reads are found by running it, named, varied, moved
and put back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kgprof.record.listeners.static_inputs import StaticInputs, worst

CPU = torch.device("cpu")


def inputs_of(step: Callable[[], object], **declared: torch.Tensor) -> StaticInputs:
    found = StaticInputs(step, CPU, declared=declared, owner=step)
    found.restore()
    step()
    found.classify()
    found.restore()
    return found


def names(found: StaticInputs) -> list[str]:
    return [held.name for held in found.inputs]


def test_what_a_closure_reads_is_an_input_and_weights_and_state_are_none() -> None:
    layer, total, pair = (
        torch.nn.BatchNorm1d(4).eval(),
        torch.zeros(4),
        [torch.ones(4), torch.randn(4)],
    )
    x = torch.randn(8, 4)

    def step() -> torch.Tensor:
        total.add_(1)
        return torch.as_tensor(layer(x) * pair[1] + torch.ones(4))

    found = inputs_of(step)

    assert names(found) == ["x", "pair[1]"]
    assert list(found.results(())) == ["total"]


def test_rounds_have_other_values_and_restore_brings_back_the_first() -> None:
    x, ids = torch.randn(6, 2), torch.tensor([0, 1])
    before = x.clone()

    def step() -> torch.Tensor:
        return x[:, ids] * 2

    found = inputs_of(step)
    found.vary(1, move=False)
    changed = x.clone()
    found.restore()

    assert not torch.equal(changed, before)
    assert ids.tolist() == [0, 1]  # shuffled indices may be none
    assert torch.equal(x, before)


def test_moved_inputs_are_at_another_address_and_the_old_one_keeps_its_values() -> None:
    x = torch.randn(6, 2)
    view, kept = x[1:], x.detach().numpy()
    before, address = kept.copy(), x.data_ptr()

    def step() -> torch.Tensor:
        return view + 1

    found = inputs_of(step)
    found.vary(1, move=True)

    assert x.data_ptr() != address
    assert view.data_ptr() == x.data_ptr() + 2 * x.itemsize
    assert (kept == before).all()
    assert not torch.equal(x, torch.from_numpy(before))
    found.restore()
    assert x.data_ptr() == address


def test_only_declared_inputs_are_moved_where_some_are() -> None:
    x, y = torch.randn(3), torch.randn(3)
    addresses = x.data_ptr(), y.data_ptr()

    def step() -> torch.Tensor:
        return x + y

    inputs_of(step, batch=y).vary(1, move=True)

    assert x.data_ptr() == addresses[0]
    assert y.data_ptr() != addresses[1]


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float8_e4m3fn, torch.int64, torch.bool, torch.complex64]
)
def test_inputs_of_every_type_can_be_varied(dtype: torch.dtype) -> None:
    x = torch.arange(64).to(dtype).expand(2, 64)

    def step() -> torch.Tensor:
        return x.clone()

    found = inputs_of(step)
    found.vary(1, move=False)

    assert names(found) == ["x"]


def test_the_first_dimension_is_halved_of_as_few_inputs_as_fit_together() -> None:
    a, b, weight = torch.randn(8, 4), torch.randn(8, 4), torch.randn(4, 4)

    def step() -> torch.Tensor:
        return (a + b) @ weight

    found = inputs_of(step)

    assert found.halve(step) == "a and b"
    assert step().shape == (4, 4)
    found.restore()
    assert step().shape == (8, 4)


def test_rounding_is_no_difference_and_old_values_are() -> None:
    expected = torch.linspace(-1, 1, 100)
    rounded, old = expected * (1 + 1e-5), expected.flip(0)

    near, far = (worst([{"result": expected}], [{"result": got}]) for got in (rounded, old))

    assert near is not None
    assert far is not None
    assert (near.differing, far.differing, far.elements) == (0, 100, 100)
    assert (far.of, far.index, far.expected, far.got, far.largest) == (
        "result",
        (0,),
        "-1",
        "1",
        2.0,
    )


def test_variables_of_one_name_are_apart() -> None:
    def pair() -> tuple[Callable[[], torch.Tensor], Callable[[], torch.Tensor]]:
        def reading(x: torch.Tensor) -> Callable[[], torch.Tensor]:
            return lambda: x * 2

        def writing(x: torch.Tensor) -> Callable[[], torch.Tensor]:
            return lambda: x.add_(1)

        return reading(torch.randn(4)), writing(torch.randn(4))

    reads, writes = pair()

    found = inputs_of(lambda: (reads(), writes()))

    assert names(found) == ["x"]


@pytest.mark.parametrize("other", [float("nan"), float("inf")])
def test_another_shape_and_a_value_that_is_not_finite_are_differences(other: float) -> None:
    ones = torch.ones(2, 2)
    broken = torch.tensor([[1.0, 1.0], [1.0, other]])

    shape, value = (worst([{"result": ones}], [{"result": got}]) for got in (ones[:1], broken))

    assert shape is not None
    assert value is not None
    assert (shape.expected, shape.got) == ("shape (2, 2)", "shape (1, 2)")
    assert (value.index, value.got, value.largest, value.differing) == ((1, 1), str(other), None, 1)
    assert worst([{"result": broken}], [{"result": broken.clone()}]) != value
