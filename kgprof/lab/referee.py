"""A program run in float64 as the referee between eager and compiled code, which round in different
orders.

torch's own check of accuracy does the same to a captured graph
(``torch._dynamo.debug_utils.cast_to_fp64``); here it is a whole program. Every live tensor is
widened in place, whoever holds it, and what a step makes is made in float64. Random numbers are
drawn in float32, because a generator gives other ones in float64.
"""

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64}
WIDE |= {torch.complex32: torch.complex128, torch.complex64: torch.complex128}
CASTS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)


def live(kind: type[Any]) -> list[Any]:
    """All objects of a kind that Python holds, oldest first."""
    gc.collect()
    return [found for found in gc.get_objects() if issubclass(type(found), kind)]


def widen(tensors: Iterable[torch.Tensor]) -> None:
    """In place. Views of one storage stay views of one storage; a gradient that is there is widened
    with its tensor."""
    storages = {}
    for tensor in tensors:
        if (
            tensor.dtype not in WIDE
            or tensor.layout is not torch.strided
            or tensor.is_quantized
            or tensor.is_meta
        ):
            continue
        if (
            type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
            or tensor.is_inference()
        ):
            # a subclass widens itself or not at all; inference tensors cannot be changed here
            continue
        gradient = tensor.grad if tensor.is_leaf else None
        tensor.grad = None
        storage = tensor.untyped_storage()
        if (key := (storage.data_ptr(), tensor.dtype)) not in storages or not storage.nbytes():
            flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage)
            storages[key] = flat.to(WIDE[tensor.dtype])
        tensor.data = storages[key].as_strided(
            tensor.shape, tensor.stride(), tensor.storage_offset()
        )
        if gradient is not None:
            tensor.grad = gradient.to(tensor.dtype)


@contextmanager
def in_float64() -> Iterator[None]:
    """Within, floating-point tensors are made in float64, casts to a narrower type are casts to it,
    autocast is off."""
    autocast, from_numpy, default = (
        torch.autocast.__init__,
        torch.from_numpy,
        torch.get_default_dtype(),
    )

    def switched_off(self: torch.autocast, *args: Any, **settings: Any) -> None:
        autocast(self, *args, **settings)
        self._enabled = False

    def from_wide_numpy(array: Any) -> torch.Tensor:  # no mode sees this function
        made = from_numpy(array)
        return made.to(WIDE.get(made.dtype, made.dtype))

    torch.autocast.__init__ = switched_off  # type: ignore[method-assign]
    torch.from_numpy = from_wide_numpy  # type: ignore[assignment]
    torch.set_default_dtype(torch.float64)
    try:
        with _Widening(), _Drawing():  # type: ignore[no-untyped-call]
            yield
    finally:
        torch.set_default_dtype(default)
        torch.from_numpy = from_numpy
        torch.autocast.__init__ = autocast  # type: ignore[method-assign]


class _Widening(TorchFunctionMode):
    """Calls of torch's Python interface, with float64 for every narrower dtype that they name."""

    def __torch_function__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.set_default_dtype:
            return None
        args, kwargs = tree_map(
            lambda leaf: WIDE.get(leaf, leaf) if type(leaf) is torch.dtype else leaf,
            (args, dict(kwargs or {})),
        )
        made = (torch.Tensor.double if func in CASTS else func)(*args, **kwargs)
        narrow = isinstance(made, torch.Tensor) and made.dtype in WIDE
        if narrow and not any(
            isinstance(leaf, torch.Tensor) for leaf in tree_flatten((args, kwargs))[0]
        ):
            return made.to(WIDE[made.dtype])  # of numpy's numbers, say
        return made


class _Drawing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operators that draw random numbers, run in float32."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = (args, dict(kwargs or {}))
        if (
            torch.Tag.nondeterministic_seeded not in func.tags
            or "scaled_dot_product" in func.name()
        ):
            return func(*given[0], **given[1])

        def narrowed(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float64:
                return leaf.to(torch.float32)
            return torch.float32 if leaf is torch.float64 else leaf

        # torch.randn(64) names no dtype and means the default one; randint's and randperm's own is
        # int64.
        unnamed = any(
            each.name == "dtype" and each.default_value is None for each in func._schema.arguments
        )
        if unnamed and not any(
            isinstance(leaf, torch.Tensor | torch.dtype) for leaf in tree_flatten(given)[0]
        ):
            given[1]["dtype"] = torch.get_default_dtype()
        narrow = tree_map(narrowed, given)
        made = func(*narrow[0], **narrow[1])
        # float32's mask, and nothing of its rounding
        if func is torch.ops.aten.native_dropout.default:
            return args[0] * made[1] / (1 - args[1]), made[1]
        kept = {}
        for wide, thin in zip(tree_flatten(given)[0], tree_flatten(narrow)[0], strict=True):
            if func._schema.is_mutable and wide is not thin and isinstance(wide, torch.Tensor):
                wide.copy_(thin)
                kept[id(thin)] = wide
        return tree_map(
            lambda leaf: (
                kept.get(id(leaf), leaf.to(WIDE.get(leaf.dtype, leaf.dtype)))
                if isinstance(leaf, torch.Tensor)
                else leaf
            ),
            made,
        )
