"""What kgprof asks of a tensor of the program's, and how: the one place where a listener touches
one.

A tensor need not have what is asked for. A parameter of a lazy module has no shape yet, a sparse or
nested one has no storage, one that functorch wraps has no address, and a subclass may answer with
code of its own, which may raise or count. So torch itself is asked, past the ``__torch_function__``
of a subclass, and what it refuses is "not known".
"""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from kgprof import model as m

T = TypeVar("T")
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})  # these have no code of their own


class OperatorWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees the operators that a call dispatches."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """torch.compile refuses to compile under any other mode."""
        return True


def answer(tensor: torch.Tensor, question: Callable[[torch.Tensor], T]) -> T | None:
    """None where the tensor has no such thing."""
    try:
        if type(tensor) in PLAIN:
            return question(tensor)
        with torch._C.DisableTorchFunctionSubclass():
            return question(tensor)
    except Exception:  # noqa: BLE001  a subclass may raise anything: then it is not known
        return None


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    return answer(tensor, _storage)


def storage_id(tensor: torch.Tensor) -> int | None:
    """What names its storage; None for what is no strided tensor."""
    return answer(
        tensor, lambda one: int(_storage(one)._cdata) if one.layout is torch.strided else None
    )


def device_type(tensor: torch.Tensor) -> str:
    return answer(tensor, lambda one: one.device.type) or ""


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """What it is a view of."""
    return answer(tensor, lambda one: one._base)


def version_of(tensor: torch.Tensor) -> int | None:
    """None for an inference tensor, which has none."""
    return answer(tensor, lambda one: None if one.is_inference() else one._version)


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether its elements are all that its storage holds."""
    storage = storage_of(tensor)
    size = answer(tensor, lambda one: one.numel() * one.element_size())
    return storage is None or size is None or size == storage.nbytes()


def memory_of(tensor: torch.Tensor) -> tuple[m.Memory, StorageWeakRef] | None:
    """Where it lies, and its storage by a weak reference; None for a tensor that lies nowhere."""
    return answer(tensor, _memory)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()


def _memory(tensor: torch.Tensor) -> tuple[m.Memory, StorageWeakRef] | None:
    if tensor.layout is not torch.strided:
        return None
    storage = tensor.untyped_storage()
    memory = m.Memory(
        address=tensor.data_ptr(),
        storage=storage.data_ptr(),
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        itemsize=tensor.element_size(),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=str(tensor.device),
    )
    return memory, StorageWeakRef(storage)  # type: ignore[no-untyped-call]
