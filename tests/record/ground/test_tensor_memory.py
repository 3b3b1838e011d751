"""Whatever kind of tensor a program makes, asking about it raises nothing and calls nothing of the
program's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from kgprof.record.ground import tensor_memory

calls: list[object] = []


class Refusing(torch.Tensor):
    """Has code of its own for everything, and answers nothing."""

    @staticmethod
    def __new__(cls) -> Refusing:
        return torch.Tensor._make_wrapper_subclass(cls, (2, 3))  # type: ignore[attr-defined]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        calls.append(func)
        raise LookupError(func)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        calls.append(func)
        raise LookupError(func)


class Mute(torch.Tensor):
    """A Python method stands in place of torch's own."""

    def untyped_storage(self) -> Any:
        raise BufferError("no storage")


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(2, 3)


MADE: dict[str, Callable[[], torch.Tensor]] = {
    "lazy parameter": UninitializedParameter,
    "lazy buffer": UninitializedBuffer,
    "sparse": lambda: torch.eye(3).to_sparse(),
    "compressed": lambda: torch.eye(3).to_sparse_csr(),
    "meta": lambda: torch.ones(2, device="meta"),
    "fake": fake,
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged": lambda: torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged
    ),
    "refusing subclass": Refusing,
    "subclass with a method of its own": lambda: torch.ones(2).as_subclass(Mute),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
}
QUESTIONS = (
    tensor_memory.storage_of,
    tensor_memory.storage_id,
    tensor_memory.device_type,
    tensor_memory.base_of,
    tensor_memory.version_of,
    tensor_memory.is_whole,
    tensor_memory.memory_of,
)


@pytest.mark.filterwarnings(
    "ignore:Sparse CSR", "ignore:The PyTorch API of nested", "ignore:.*quantize"
)
@pytest.mark.parametrize("kind", MADE)
def test_every_question_can_be_put_to_every_kind_of_tensor(kind: str) -> None:
    tensor = MADE[kind]()
    calls.clear()

    answers = [question(tensor) for question in QUESTIONS]

    assert len(answers) == len(QUESTIONS)
    assert calls == []


def test_a_tensor_that_functorch_wraps_is_asked_as_well() -> None:
    seen: list[object] = []

    def asks(row: torch.Tensor) -> torch.Tensor:
        seen.extend(question(row) for question in QUESTIONS)
        return row * 2

    torch.func.vmap(asks)(torch.ones(3, 2))

    assert len(seen) == len(QUESTIONS)


def test_a_plain_tensor_and_its_view_lie_where_they_lie() -> None:
    whole = torch.arange(6.0)
    view = whole[2:]

    assert tensor_memory.storage_id(view) == whole.untyped_storage()._cdata
    assert tensor_memory.base_of(view) is whole
    assert (tensor_memory.is_whole(whole), tensor_memory.is_whole(view)) == (True, False)
    lies = tensor_memory.memory_of(view)
    assert lies is not None
    assert (lies[0].address, lies[0].shape, lies[0].dtype) == (view.data_ptr(), (4,), "float32")
    whole.add_(1)
    assert tensor_memory.version_of(view) == 1
    with torch.inference_mode():
        assert tensor_memory.version_of(torch.ones(1)) is None
