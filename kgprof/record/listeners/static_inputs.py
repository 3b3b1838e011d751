"""The tensors that a step without arguments reads: found by running it, given other values, moved,
and compared.

    StaticInputs(step)   one eager call ──► the storages that it read, each a _Held with its values
      .classify()        after the next call ──► weights, state (it has changed), inputs (the rest)
      .vary(number)      the inputs of a round ──► .results(step()), and .restore() after all rounds
    worst(eager, graph)  the results of two sets of rounds ──► the element that differs most

A CUDA graph reads and writes the addresses of its capture. Which tensors these are is known from
the operators of one eager call: what a storage holds that the call read and did not make. A
nn.Parameter is a weight, what the call writes is state, and everything else is an input. "Moved"
gives every Python tensor that shares an input's storage another one, as the program does that
assigns a new tensor to the variable; the graph still reads the old one, which is kept.
"""

import gc
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace as replaced
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves

from kgprof import model as m
from kgprof.record.ground.tensor_memory import OperatorWatch, device_type, storage_id
from kgprof.workloads.protocol import Step

Tensors = Mapping[str, torch.Tensor]
ROUNDS = 3  # calls with other inputs each
SHRUNK = 0.9  # of floats, which keeps their sign and range
# Of the largest expected value, by type. Rounding of another order of operations stays below it; a
# result for other inputs, or of freed memory, is as large as the values themselves.
TOLERANCES = {
    torch.float64: 1e-6,
    torch.float32: 1e-3,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
    torch.complex64: 1e-3,
    torch.complex128: 1e-6,
}
_FLOAT8 = 0.25
_NAMED = 5_000  # objects that are looked through for names
_ITEMS = 64  # of a list or dict among them


class _Reads(OperatorWatch):
    """The storages on a device that a call reads and does not make, in the order of reading."""

    def __init__(self, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        # holds the address, so that it names nothing else
        self._made: dict[int, StorageWeakRef] = {}
        self.seen: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves((args, kwargs)):
            key = storage_of(tensor, self._device)
            if key and key not in self._made:
                self.seen.setdefault(key, tensor.detach())
        for tensor in tree_leaves(result):
            key = storage_of(tensor, self._device)
            if key and key not in self.seen:
                storage = tensor.untyped_storage()
                self._made[key] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        return result


def storage_of(value: object, device: str) -> int:
    """What names its storage; 0 for what is no plain tensor on ``device``."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return 0
    assert isinstance(value, torch.Tensor)
    if device_type(value) != device:
        return 0
    return storage_id(value) or 0


class _Held:
    """One storage that the step reads, and the Python tensors that share it."""

    def __init__(
        self, tensor: torch.Tensor, objects: list[torch.Tensor], name: str, *, is_weight: bool
    ) -> None:
        # stays at the address of the capture
        self.tensor = max([tensor, *objects], key=torch.numel).detach()
        # each with a tensor that stays where the object was
        self.objects = [(each, each.detach()) for each in objects]
        self.name = name
        self.is_weight = is_weight
        self.is_float = tensor.is_floating_point() or tensor.is_complex()
        # Of all its elements: the tensors may be views, of which not every one can be written to.
        storage = self.tensor.untyped_storage()
        elements = storage.nbytes() // self.tensor.itemsize
        self.flat = self.tensor.new_empty(0).set_(storage, 0, (elements,), (1,))
        self.saved = self.flat.clone()
        self._variants = [self.saved]

    def make_variants(self) -> None:
        """The values themselves, then two that are shuffled and, of floats, smaller."""
        saved = self.saved
        generator = torch.Generator(saved.device).manual_seed(0)
        for number in range(1, ROUNDS):
            order = torch.randperm(saved.numel(), generator=generator, device=saved.device)
            if saved.itemsize == 1:  # float8 has no indexing: its bytes have
                shuffled = saved.view(torch.uint8)[order].view(saved.dtype)
            else:
                shuffled = saved[order]
                if self.is_float:
                    shuffled *= SHRUNK**number
            self._variants.append(shuffled)

    def values(self, number: int) -> torch.Tensor:
        return self._variants[number % len(self._variants)]

    def come_home(self) -> None:
        for each, home in self.objects:
            each.data = home

    def halve(self) -> None:
        """Leave the first half of the rows of each object."""
        for each, home in self.objects:
            if home.dim():
                each.data = home[: home.shape[0] // 2]

    def move(self, number: int) -> None:
        """All objects to a new storage with the values of one round."""
        storage = self.values(number).clone().untyped_storage()
        for each, home in self.objects:
            each.data = _laid_out(home, storage)

    def elsewhere(self, number: int) -> torch.Tensor:
        """The values of one round in a tensor of their own."""
        return _laid_out(self.program, self.values(number).untyped_storage())

    @property
    def program(self) -> torch.Tensor:
        """The tensor as the program has it."""
        for each, _ in self.objects:
            return each
        return self.tensor


def _laid_out(like: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """A tensor over ``storage`` with the shape and strides of another."""
    empty = like.detach().new_empty(0)
    return empty.set_(storage, like.storage_offset(), like.size(), like.stride())


class StaticInputs:
    """What a step reads, and its state as it was when this was made."""

    def __init__(
        self,
        step: Step,
        device: torch.device,
        *,
        declared: Tensors,
        owner: object,
        results: object = (),
    ) -> None:
        """``results`` are of a capture: its tensors are no inputs, even where they share memory
        with one."""
        kind = device.type
        with _Reads(kind) as reads:
            step()
        no_inputs = {id(leaf) for leaf in (*tree_leaves(results), *reads.seen.values())}
        objects: dict[int, list[torch.Tensor]] = {key: [] for key in reads.seen}
        weights: set[int] = set()
        for each in gc.get_objects():
            if issubclass(type(each), torch.nn.Module):
                buffers = vars(each).get("_buffers", {})
                weights.update(storage_of(buffer, kind) for buffer in buffers.values())
                continue
            key = storage_of(each, kind)
            if key not in objects or id(each) in no_inputs:
                continue
            objects[key].append(each)
            if isinstance(each, torch.nn.Parameter):
                weights.add(key)
        named = {storage_of(tensor, kind): name for name, tensor in declared.items()}
        self._declared = {name for key, name in named.items() if key not in weights}
        names = names_of(owner, kind) | named
        self._held: list[_Held] = []
        for number, (key, tensor) in enumerate(reads.seen.items()):
            name = names.get(key) or f"input {number}"
            with torch.no_grad():
                held = _Held(tensor, objects[key], name, is_weight=key in weights)
            self._held.append(held)
        self.inputs: list[_Held] = []
        self._written: list[_Held] = []

    @torch.no_grad()
    def classify(self) -> None:
        """After one call from the saved state: what has changed is state, and what is neither that
        nor a weight an input. Only floats get other values where there are any: shuffled indices
        may be none."""
        for held in self._held:
            if _differs(held.flat, held.saved):
                self._written.append(held)
            elif not held.is_weight:
                self.inputs.append(held)
        floats = [held for held in self.inputs if held.is_float]
        for held in floats or self.inputs:
            held.make_variants()

    @property
    def described(self) -> tuple[m.CaptureInput, ...]:
        return tuple(
            m.CaptureInput(
                name=held.name,
                shape=tuple(held.tensor.shape),
                dtype=str(held.tensor.dtype).removeprefix("torch."),
                declared=held.name in self._declared,
            )
            for held in self.inputs
        )

    @property
    def changing(self) -> list[_Held]:
        """The inputs that are new in each call: those that the workload declares, or all where it
        declares none."""
        return [held for held in self.inputs if held.name in self._declared] or self.inputs

    @torch.no_grad()
    def restore(self) -> None:
        for held in self._held:
            held.come_home()
            held.flat.copy_(held.saved)

    @torch.no_grad()
    def vary(self, number: int, *, move: bool) -> None:
        """The inputs of one round in their places. With ``move``, from the second round on, those
        that are new in each call are at another address."""
        moved: list[_Held] = []
        if move and number:
            moved = self.changing
        for held in self.inputs:
            if held in moved:
                held.move(number)
            else:
                held.flat.copy_(held.values(number))

    @torch.no_grad()
    def copies(self) -> None:
        """What a program does before each replay that has new inputs."""
        for held in self.changing:
            held.flat.copy_(held.values(ROUNDS - 1))

    @torch.no_grad()
    def results(self, result: object) -> dict[str, torch.Tensor]:
        """Copies of the tensors that the step returned, and of those that it writes."""
        copies: dict[str, torch.Tensor] = {}
        for path, leaf in tree_flatten_with_path(result)[0]:
            if isinstance(leaf, torch.Tensor):
                copies[f"result{keystr(path)}"] = leaf.detach().clone()
        for held in self._written:
            copies[held.name] = held.tensor.detach().clone()
        return copies

    def halve(self, step: Step) -> str:
        """Halve the first dimension of an input, or of all that are as long, so that ``step`` still
        runs; their names.

        It stays so until ``restore``. Empty where there is none.
        """
        same_length: dict[int, list[_Held]] = {}
        for held in self.inputs:
            if held.tensor.dim() and held.tensor.shape[0] > 1:
                same_length.setdefault(held.tensor.shape[0], []).append(held)
        alone = [[held] for group in same_length.values() for held in group]
        for group in (*alone, *same_length.values()):
            for held in group:
                held.halve()
            try:
                step()
            # whatever a step raises for a shape that does not fit the others
            except Exception:  # noqa: BLE001
                for held in group:
                    held.come_home()
            else:
                return " and ".join(held.name for held in group)
        return ""


def names_of(owner: object, device: str) -> dict[int, str]:
    """The variables that ``owner`` reaches a storage by: what a function encloses and the globals
    it names, attributes, what lists, tuples and dicts hold."""
    names: dict[int, str] = {}
    todo: list[tuple[str, object]] = [("", owner)]
    seen: set[int] = set()
    while todo and len(seen) < _NAMED:
        name, value = todo.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        key = storage_of(value, device)
        if key:
            names.setdefault(key, name)
        else:
            todo += _inside(name, value)
    return names


def _inside(name: str, value: object) -> Iterator[tuple[str, object]]:
    """What a value holds, each with the expression for it."""
    if isinstance(value, FunctionType):
        yield from _of_function(value)
    elif isinstance(value, MethodType):
        yield name, value.__self__
        yield name, value.__func__
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value[:_ITEMS]):
            yield f"{name}[{index}]", item
    elif isinstance(value, dict):
        for key, item in islice(value.items(), _ITEMS):
            yield f"{name}[{key!r}]", item
    else:
        for attribute, item in _attributes(value):
            yield f"{name}.{attribute}".removeprefix("."), item


def _of_function(function: FunctionType) -> Iterator[tuple[str, object]]:
    code = function.__code__
    for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not bound yet
            yield variable, cell.cell_contents
    for variable in code.co_names:
        if variable in function.__globals__:
            yield variable, function.__globals__[variable]


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, torch.nn.Module):
        yield from value.named_parameters()
        yield from value.named_buffers()
        for name, item in vars(value).items():
            if not name.startswith("_"):
                yield name, item
    elif type(value).__module__.partition(".")[0] not in ("torch", "builtins"):
        yield from getattr(value, "__dict__", {}).items()


# ---------------------------------------------------------------- comparing


def _differs(now: torch.Tensor, before: torch.Tensor) -> bool:
    if now.itemsize == 1:
        now = now.view(torch.uint8)
        before = before.view(torch.uint8)
    return not bool(torch.isclose(now, before, rtol=0, atol=0, equal_nan=True).all())


def worst(expected: Iterable[Tensors], got: Iterable[Tensors]) -> m.CaptureDifference | None:
    """The element furthest beyond the tolerance over all rounds, or nearest to it where none is;
    None without one."""
    differences = (
        _difference(name, tensor, there.get(name))
        for here, there in zip(expected, got, strict=True)
        for name, tensor in here.items()
        if tensor.numel()
    )
    return max(differences, key=_severity, default=None)


def _severity(difference: m.CaptureDifference) -> tuple[bool, float]:
    far = float("inf")
    if difference.largest is not None:
        far = difference.largest / max(difference.tolerance, 1e-30)
    return bool(difference.differing), far


def _difference(name: str, expected: torch.Tensor, got: torch.Tensor | None) -> m.CaptureDifference:
    elements = expected.numel()
    difference = m.CaptureDifference(
        of=name,
        index=(),
        expected=f"shape {tuple(expected.shape)}",
        got="nothing",
        largest=None,
        tolerance=0.0,
        differing=elements,
        elements=elements,
        dtype=str(expected.dtype).removeprefix("torch."),
    )
    if got is None:
        return difference
    if got.shape != expected.shape:
        return replaced(difference, got=f"shape {tuple(got.shape)}")
    wide = torch.complex128 if expected.is_complex() else torch.float64
    ours = got.to(wide)
    theirs = expected.to(wide)
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    apart = (ours - theirs).abs().nan_to_num(nan=math.inf, posinf=math.inf)
    apart = torch.where(same, 0.0, apart)
    at = int(apart.argmax())
    index = tuple(map(int, np.unravel_index(at, tuple(expected.shape))))
    largest: float | None = float(apart.reshape(-1)[at])
    if largest == math.inf:
        largest = None
    tolerance = _tolerance(expected.dtype, theirs)
    return replaced(
        difference,
        index=index,
        expected=f"{theirs[index].item():.6g}",
        got=f"{ours[index].item():.6g}",
        largest=largest,
        tolerance=tolerance,
        differing=int((apart > tolerance).sum()),
    )


def _tolerance(dtype: torch.dtype, expected: torch.Tensor) -> float:
    """Of values of this type; 0 of integers."""
    relative = TOLERANCES.get(dtype, _FLOAT8 * dtype.is_floating_point)
    if not relative:
        return 0.0
    finite = expected[expected.isfinite()].abs()
    if not finite.numel():
        return 1e-9
    return max(relative * float(finite.max()), 1e-9)
