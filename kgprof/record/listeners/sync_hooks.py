"""The hooks under which a read of a tensor's value, or a wait for a GPU, passes.

    dispatch        a kernel under ``BackendSelect`` of each operator that reads
    methods         ``.cpu()``, ``.numpy()``, ``.tolist()`` and ``.to(...)`` of a tensor
    waits           ``synchronize`` of torch.cuda, torch.accelerator, events and streams
    sync_debug      torch's warning of each synchronising call, by a filter of warnings
    tensor places   where tensors would be on a GPU, on a machine that has none

Each kind is on once in a process. Its hook tells every Syncs that listens of a Read before, and of
the time that it took after.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.overrides import handle_torch_function

from kgprof import model as m
from kgprof.record.ground.source import Function, not_compiled, replace
from kgprof.record.ground.tensor_memory import PLAIN, answer, device_type
from kgprof.record.listeners import tensor_places
from kgprof.record.listeners.tensor_places import (
    HOST,
    Inside,
    TensorPlaces,
    outside_of_dynamo,
    watch_places,
)

if TYPE_CHECKING:
    from kgprof.record.listeners.syncs import Syncs

# Operators that bring a value to the host, or make a shape of one. The dispatcher calls them for
# every device.
READING = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "equal",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",  # on a GPU: its least and its largest value
)
# methods of a tensor that dispatch nothing where it lies on the CPU
ON_A_CPU = ("cpu", "numpy", "tolist", "to")
# Calls of Python's that wait and read nothing.
WAITS = (
    "cuda.synchronize",
    "accelerator.synchronize",
    "Event.synchronize",
    "Stream.synchronize",
)
SYNCHRONIZING = "called a synchronizing CUDA operation"  # torch's warning in its sync-debug mode
WARNS = 1  # that mode, as torch.cuda.get_sync_debug_mode says it
# what a Python number that torch made a tensor of gives way to, in type promotion
NARROWER = {
    torch.float64: torch.float32,
    torch.int64: torch.int32,
    torch.complex128: torch.complex64,
}

TENSORS = TensorPlaces()


class Read(NamedTuple):
    source: str
    op: str
    device: str
    tensor: torch.Tensor | None = None
    text: str = ""


Seen = list[tuple["Syncs", m.SyncRecord]]  # who wrote it down, and where


class Hooks:
    """Hooks of one kind: once in a process, for every Syncs that listens. The dispatcher takes one
    kernel for an operator and a key, and wrappers around wrappers come off cleanly in one order
    only."""

    def __init__(
        self, name: str, put_on: Callable[[Hooks, ExitStack], None], *, on: str = ""
    ) -> None:
        self.on = on  # the one device that they are for
        self._name = name
        self._put_on = put_on
        self.listening: tuple[Syncs, ...] = ()
        self.lacking = ""
        self._undo = ExitStack()

    def join(self, syncs: Syncs) -> str:
        """What this torch lacks of them; the rest is on."""
        self.listening = (*self.listening, syncs)
        if len(self.listening) == 1:
            self.lacking = ""
            try:
                self._put_on(self, self._undo)
            except (AssertionError, AttributeError, ImportError, RuntimeError, TypeError) as error:
                self.lacking = f"{self._name}: {type(error).__name__}: {error}"
        return self.lacking

    def leave(self, syncs: Syncs) -> None:
        self.listening = tuple(one for one in self.listening if one is not syncs)
        if not self.listening:
            self._undo.close()

    def see(self, *read: Any) -> Seen:
        """Tells all that listen of a Read; what each of them counted it under."""
        seen = []
        # no comprehension, which is a frame of its own before Python 3.12
        for one in self.listening:
            if (place := one.sees(Read(*read))) is not None:
                seen.append((one, place))
        return seen


def _took(seen: Seen, began_ns: int) -> None:
    for one, place in seen:
        one.took(place, began_ns)


def _watch_dispatch(hooks: Hooks, undo: ExitStack) -> None:
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    undo.callback(library._destroy)
    inside = Inside()  # what one reads for another is no read of its own
    for name in READING:
        operator = getattr(getattr(torch.ops.aten, name, None), "default", None)
        if operator is not None:
            hook = _reading(hooks, inside, name, operator)
            library.impl(  # type: ignore[no-untyped-call]
                operator, hook, "BackendSelect", with_keyset=True
            )


def _reading(hooks: Hooks, inside: Inside, name: str, operator: Any) -> Function:
    below = torch._C.DispatchKey.BackendSelect
    op = f"aten::{name}"

    @outside_of_dynamo
    def hook(keys: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(tensor, torch.Tensor):
            return tensor  # a Python number that torch wraps comes as the number (torch.jit.trace)
        is_outermost = inside.depth == 0 == tensor_places.ON_A_CPU_ALONE.depth
        own = is_outermost and not answer(tensor, _gives_way)
        seen = hooks.see("dispatch", op, device_type(tensor), tensor) if own else []
        began = time.perf_counter_ns()
        with inside:
            found = operator.redispatch(keys.remove(below), tensor, *args, **kwargs)
        _took(seen, began)
        TENSORS.derived((tensor, *args), found)
        return found

    return hook


def _watch_methods(hooks: Hooks, undo: ExitStack) -> None:
    # else Dynamo would look for them among kgprof's functions
    known = torch._dynamo.trace_rules.get_tensor_method()
    replace(torch._dynamo.trace_rules, "get_tensor_method", cache(lambda: known), undo)
    for name in ON_A_CPU:
        replace(torch.Tensor, name, _bringing(hooks, name, getattr(torch.Tensor, name)), undo)


def _bringing(hooks: Hooks, name: str, method: Function) -> Function:
    op = f"Tensor.{name}"

    @outside_of_dynamo
    def seen_in(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        target = _target(tensor, name, args, kwargs)
        waits = name != "to" or not (
            kwargs.get("non_blocking") or any(given is True for given in args[1:])
        )
        seen: Seen = []
        if target == HOST and waits:
            seen = hooks.see("python-call", op, device_type(tensor), tensor)
        if name == "numpy":
            TENSORS.given_to_numpy(tensor)
        began = time.perf_counter_ns()
        if type(tensor) not in PLAIN and _has_a_table_of_methods(type(tensor)):
            found = handle_torch_function(method, (tensor,), tensor, *args, **kwargs)
        else:
            found = method(tensor, *args, **kwargs)
        _took(seen, began)
        if target is not None and isinstance(found, torch.Tensor) and device_type(found) == "cpu":
            TENSORS.moved(tensor, found, target)
        return found

    def watched(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        # Under a torch function mode (torch.set_default_device) Dynamo traces this, and a disabled
        # function is a break.
        if torch.compiler.is_compiling():
            return method(tensor, *args, **kwargs)
        return seen_in(tensor, *args, **kwargs)

    # what runs after a graph break is offered to Dynamo like any function
    not_compiled(watched)
    # Dynamo knows a method of an input by its name: under another one it would break the graph.
    watched.__name__ = name
    return watched


def _has_a_table_of_methods(kind: type[torch.Tensor]) -> bool:
    """Whether it is a subclass of torch's own with a table of the methods that it allows (a lazy
    parameter). It was made of the methods before they were watched, and torch would hand on what
    stands under their names now."""
    function = getattr(kind.__torch_function__, "__func__", None)
    of_torch: Any = torch.Tensor.__torch_function__
    own = function is not None and function is not of_torch.__func__
    return own and str(function.__module__).startswith("torch.")


def _watch_waits(hooks: Hooks, undo: ExitStack) -> None:
    for label, owner in (
        ("cuda", torch.cuda),
        ("accelerator", torch.accelerator),
        ("Event", torch.cuda.Event),
        ("Stream", torch.cuda.Stream),
    ):
        waiting = _waiting(hooks, f"{label}.synchronize", owner.synchronize)
        replace(owner, "synchronize", waiting, undo)


def _waiting(hooks: Hooks, op: str, function: Function) -> Function:

    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def watched(*args: Any, **kwargs: Any) -> Any:
        seen = hooks.see("python-call", op, "cuda")
        began = time.perf_counter_ns()
        found = function(*args, **kwargs)
        _took(seen, began)
        return found

    return watched  # type: ignore[no-any-return]


class _AskedFirst(list[Any]):
    """``warnings.filters`` whose first one stays first, whatever the program puts in front or in
    place of all; a copy, as catch_warnings makes one, is the same."""

    def insert(self, at: Any, one: Any) -> None:
        super().insert(max(int(at), 1), one)

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        if at == slice(None):
            return _AskedFirst(found)
        return found

    def __setitem__(self, at: Any, given: Any) -> None:
        if at == slice(None):
            given = [self[0], *given]
        super().__setitem__(at, given)


def _watch_sync_debug(hooks: Hooks, undo: ExitStack) -> None:
    """torch warns at each synchronising call. A filter that is asked before all others counts that
    and ignores it: no filter of the program's hides it, and the program's own warnings go where
    they went."""
    before = torch.cuda.get_sync_debug_mode()

    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def match(message: str) -> bool:
        is_torchs = bool(hooks.listening) and SYNCHRONIZING in message
        if is_torchs:
            hooks.see("sync-debug", "synchronizing operation", "cuda", None, message)
        return is_torchs

    not_compiled(_AskedFirst.insert, _AskedFirst.__getitem__, _AskedFirst.__setitem__)
    own = ("ignore", SimpleNamespace(match=match), Warning, None, 0)
    warnings.filters = _AskedFirst([own, *warnings.filters])
    undo.callback(_ask_no_more, own)
    torch.cuda.set_sync_debug_mode("warn")
    undo.callback(torch.cuda.set_sync_debug_mode, before)


def _ask_no_more(own: tuple[Any, ...]) -> None:
    warnings.filters = [each for each in warnings.filters if each is not own]


def deaf_to_sync_debug() -> str:
    """Why torch's sync-debug mode may have seen more than was heard; empty where all was heard."""
    if not isinstance(warnings.filters, _AskedFirst):
        return "torch's sync-debug mode was not heard: the program replaced warnings.filters"
    if torch.cuda.get_sync_debug_mode() != WARNS:
        return "the program set torch's sync-debug mode itself"
    return ""


def _watch_places(hooks: Hooks, undo: ExitStack) -> None:
    def tell(why: str) -> None:
        for one in hooks.listening:
            one.lost = f"where tensors would be on a GPU is not known: {why}"

    watch_places(TENSORS, lambda: any(one.runs_a_graph for one in hooks.listening), tell, undo)


def _gives_way(tensor: torch.Tensor) -> bool:
    """As a Python number that torch made a tensor of does, to any other of its kind in type
    promotion."""
    if tensor.dim() or tensor.device.type != "cpu":
        return False
    other = NARROWER.get(tensor.dtype)
    return other is not None and torch.result_type(tensor, torch.empty((), dtype=other)) == other


def _target(
    tensor: torch.Tensor, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> str | None:
    """Where a method of ON_A_CPU brings a tensor to; None: nowhere."""
    if name != "to":
        return HOST
    if device_type(tensor) == "cpu":
        return TENSORS.target_of(args, kwargs)
    target = kwargs.get("device", args[0] if args else None)
    if isinstance(target, str | torch.device) and torch.device(target).type == "cpu":
        return HOST
    return None


SYNC_DEBUG_HOOKS = Hooks("sync_debug", _watch_sync_debug, on="cuda")
PLACES_HOOKS = Hooks("tensor places", _watch_places, on="cpu")
ALL_HOOKS = (
    Hooks("dispatch", _watch_dispatch),
    Hooks("methods", _watch_methods),
    Hooks("waits", _watch_waits, on="cuda"),
    SYNC_DEBUG_HOOKS,
    PLACES_HOOKS,
)
