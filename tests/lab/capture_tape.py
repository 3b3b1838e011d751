"""A CUDA graph's imitation on the CPU: it records operators with the memory they read and write,
and runs them again.

As with a graph, no Python runs in a replay, the addresses are those of the capture, and a read of a
value raises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from kgprof import model as m


@dataclass(frozen=True)
class _Place:
    """A tensor's memory, without a tensor that could be given other memory."""

    storage: torch.UntypedStorage
    dtype: torch.dtype
    layout: tuple[Any, ...]

    @staticmethod
    def of(value: object) -> object:
        if not isinstance(value, torch.Tensor):
            return value
        return _Place(
            value.untyped_storage(),
            value.dtype,
            (value.storage_offset(), value.size(), value.stride()),
        )

    @staticmethod
    def tensor(place: object) -> Any:
        if not isinstance(place, _Place):
            return place
        return torch.empty(0, dtype=place.dtype).set_(place.storage, *place.layout)


class Tape(TorchDispatchMode):
    """In the place of a CudaGraph."""

    def __init__(self) -> None:
        super().__init__()
        self.device = torch.device("cpu")
        self._recorded: list[Callable[[], None]] = []

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def unavailable(self) -> str:
        return ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "_local_scalar_dense" in str(func):
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        result = func(*args, **(kwargs or {}))
        given, kept = tree_map(_Place.of, (args, kwargs)), tree_map(_Place.of, tree_leaves(result))

        def again() -> None:
            args, kwargs = tree_map(_Place.tensor, given)
            for old, new in zip(
                map(_Place.tensor, kept), tree_leaves(func(*args, **(kwargs or {}))), strict=False
            ):
                if isinstance(new, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)

        self._recorded.append(again)
        return result

    def warming_up(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def capturing(self, case: m.CaptureCase) -> Iterator[None]:
        with self:
            yield

    def replay(self) -> None:
        with torch.no_grad():
            for again in self._recorded:
                again()

    def callables(
        self, step: Callable[..., object], inputs: Sequence[torch.Tensor]
    ) -> Callable[..., object]:
        with self:
            result = step(*inputs)

        def graphed(*values: torch.Tensor) -> object:
            for kept, value in zip(inputs, values, strict=True):
                kept.copy_(value)
            self.replay()
            return result

        return graphed
