"""The tensors that a step without arguments reads: found by running it, given other values, moved,
and compared.

A CUDA graph reads and writes the addresses of its capture. Which tensors these are is known from
the operators of one eager call: what a storage holds that the call read and did not make. A
nn.Parameter is a weight, what the call writes is state, and everything else is an input. "Moved"
gives every Python tensor that shares an input's storage another one, as the program does that
assigns a new tensor to the variable; the graph still reads the old one, which is kept.
"""

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
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
            if (key := storage_of(tensor, self._device)) and key not in self._made:
                self.seen.setdefault(key, tensor.detach())
        for tensor in tree_leaves(result):
            if (key := storage_of(tensor, self._device)) and key not in self.seen:
                self._made[key] = StorageWeakRef(  # type: ignore[no-untyped-call]
                    tensor.untyped_storage()
                )
        return result


def storage_of(value: object, device: str) -> int:
    """What names its storage; 0 for what is no plain tensor on ``device``."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return 0
    assert isinstance(value, torch.Tensor)
    return storage_id(value) or 0 if device_type(value) == device else 0


class _Held:
    """One storage that the step reads, and the Python tensors that name it."""

    def __init__(
        self, tensor: torch.Tensor, objects: list[torch.Tensor], name: str, *, is_weight: bool
    ) -> None:
        # stays at the address of the capture
        self.tensor = max([tensor, *objects], key=torch.numel).detach()
        self.objects = [(each, each.detach()) for each in objects]
        self.name = name
        self.is_weight = is_weight
        # Of all its elements: the tensors may be views, of which not every one can be written to.
        self.flat = _laid_out(self.tensor, self.tensor.untyped_storage(), flat=True)
        self.saved = self.flat.clone()
        self.variants = [self.saved]

    def make_variants(self, *, floats: bool) -> None:
        """The values themselves, then two that are shuffled and, of floats, smaller."""
        generator = torch.Generator(self.saved.device).manual_seed(0)
        for number in range(1, ROUNDS):
            order = torch.randperm(
                self.saved.numel(), generator=generator, device=self.saved.device
            )
            # float8 has no indexing: its bytes have.
            bits = self.saved.view(torch.uint8) if self.saved.itemsize == 1 else self.saved
            shuffled = bits[order].view(self.saved.dtype)
            self.variants.append(
                shuffled * SHRUNK**number if floats and self.saved.itemsize > 1 else shuffled
            )

    def values(self, number: int) -> torch.Tensor:
        return self.variants[number % len(self.variants)]

    def come_home(self) -> None:
        for each, home in self.objects:
            each.data = home

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
        return self.objects[0][0] if self.objects else self.tensor


def _laid_out(
    like: torch.Tensor, storage: torch.UntypedStorage, *, flat: bool = False
) -> torch.Tensor:
    """A tensor over ``storage`` with the shape and strides of another, or over all of it."""
    empty = like.detach().new_empty(0)
    if flat:
        return empty.set_(storage, 0, (storage.nbytes() // like.itemsize,), (1,))
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
        with _Reads(device.type) as reads:
            step()
        apart = {id(leaf) for leaf in (*tree_leaves(results), *reads.seen.values())}
        objects: dict[int, list[torch.Tensor]] = {}
        constants = set()
        for each in gc.get_objects():
            if id(each) not in apart and (key := storage_of(each, device.type)) in reads.seen:
                objects.setdefault(key, []).append(each)
                constants |= {key} if isinstance(each, torch.nn.Parameter) else set()
            elif issubclass(type(each), torch.nn.Module):
                constants |= {
                    storage_of(buffer, device.type)
                    for buffer in vars(each).get("_buffers", {}).values()
                }
        names = names_of(owner, device.type)
        named = {storage_of(tensor, device.type): name for name, tensor in declared.items()}
        self._declared = {name for key, name in named.items() if key not in constants}
        with torch.no_grad():
            self._held = [
                _Held(
                    tensor,
                    objects.get(key, []),
                    named.get(key) or names.get(key) or f"input {number}",
                    is_weight=key in constants,
                )
                for number, (key, tensor) in enumerate(reads.seen.items())
            ]
        self.inputs: list[_Held] = []
        self._written: list[_Held] = []

    @torch.no_grad()
    def classify(self) -> None:
        """After one call from the saved state: what has changed is state, and what is neither that
        nor a weight an input. Only floats get other values where there are any: shuffled indices
        may be none."""
        self._written = [held for held in self._held if _differs(held.flat, held.saved)]
        self.inputs = [
            held for held in self._held if not held.is_weight and held not in self._written
        ]
        floats = [
            held
            for held in self.inputs
            if held.saved.is_floating_point() or held.saved.is_complex()
        ]
        for held in floats or self.inputs:
            held.make_variants(floats=bool(floats))

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
        that the workload declares, or all where it declares none, are at another address."""
        moved = self.changing
        for held in self.inputs:
            if move and number and held in moved:
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
        leaves, _ = tree_flatten_with_path(result)
        tensors = {
            f"result{keystr(path)}": leaf for path, leaf in leaves if isinstance(leaf, torch.Tensor)
        }
        tensors |= {held.name: held.tensor for held in self._written}
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def halve(self, step: Step) -> str:
        """Halve the first dimension of an input, or of all that are as long, so that ``step`` still
        runs; their names.

        It stays so until ``restore``. Empty where there is none.
        """
        rows = {held.name: held.tensor.shape[0] for held in self.inputs if held.tensor.dim()}
        long = [held for held in self.inputs if rows.get(held.name, 0) > 1]
        groups = [[held] for held in long]
        groups += [
            [held for held in long if rows[held.name] == size]
            for size in dict.fromkeys(rows.values())
        ]
        for group in groups:
            for each, home in (pair for held in group for pair in held.objects):
                each.data = home[: home.shape[0] // 2] if home.dim() else home
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
    named: dict[int, str] = {}
    todo: list[tuple[str, object]] = [("", owner)]
    seen: set[int] = set()
    while todo and len(seen) < _NAMED:
        name, value = todo.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if key := storage_of(value, device):
            named.setdefault(key, name)
        else:
            todo += _inside(name, value)
    return named


def _inside(name: str, value: object) -> Iterator[tuple[str, object]]:
    dot = f"{name}." if name else ""
    if isinstance(value, FunctionType):
        code = value.__code__
        for variable, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            with suppress(ValueError):  # not bound yet
                yield variable, cell.cell_contents
        yield from (
            (each, value.__globals__[each]) for each in code.co_names if each in value.__globals__
        )
    elif isinstance(value, MethodType):
        yield from ((name, value.__self__), (name, value.__func__))
    elif isinstance(value, list | tuple):
        yield from ((f"{name}[{index}]", each) for index, each in enumerate(value[:64]))
    elif isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", each) for key, each in list(value.items())[:64])
    elif isinstance(value, torch.nn.Module):
        yield from (
            (f"{dot}{each}", tensor)
            for each, tensor in [*value.named_parameters(), *value.named_buffers()]
        )
        yield from (
            (f"{dot}{each}", held) for each, held in vars(value).items() if not each.startswith("_")
        )
    elif hasattr(type(value), "__dict__") and type(value).__module__.partition(".")[0] not in (
        "torch",
        "builtins",
    ):
        with suppress(TypeError):
            yield from ((f"{dot}{each}", held) for each, held in vars(value).items())


# ---------------------------------------------------------------- comparing


def _differs(now: torch.Tensor, before: torch.Tensor) -> bool:
    if now.itemsize == 1:
        now = now.view(torch.uint8)
        before = before.view(torch.uint8)
    return not bool(torch.isclose(now, before, rtol=0, atol=0, equal_nan=True).all())


def worst(expected: Iterable[Tensors], got: Iterable[Tensors]) -> m.CaptureDifference | None:
    """The element furthest beyond the tolerance over all rounds, or nearest to it where none is;
    None without one."""
    differences = [
        _difference(name, tensor, there.get(name))
        for here, there in zip(expected, got, strict=True)
        for name, tensor in here.items()
        if tensor.numel()
    ]

    def beyond(each: m.CaptureDifference) -> tuple[bool, float]:
        far = float("inf") if each.largest is None else each.largest / max(each.tolerance, 1e-30)
        return bool(each.differing), far

    return max(differences, key=beyond, default=None)


def _difference(name: str, expected: torch.Tensor, got: torch.Tensor | None) -> m.CaptureDifference:
    dtype = str(expected.dtype).removeprefix("torch.")
    if got is None or got.shape != expected.shape:
        shape = "nothing" if got is None else f"shape {tuple(got.shape)}"
        return m.CaptureDifference(
            of=name,
            index=(),
            expected=f"shape {tuple(expected.shape)}",
            got=shape,
            largest=None,
            tolerance=0.0,
            differing=expected.numel(),
            elements=expected.numel(),
            dtype=dtype,
        )
    wide = torch.complex128 if expected.is_complex() else torch.float64
    ours = got.to(wide)
    theirs = expected.to(wide)
    relative = TOLERANCES.get(expected.dtype, _FLOAT8 if expected.is_floating_point() else 0.0)
    finite = theirs[theirs.isfinite()].abs()
    tolerance = max(
        relative * float(finite.max()) if finite.numel() else 0.0, 1e-9 if relative else 0.0
    )
    apart = (ours - theirs).abs()
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    apart = torch.where(same, 0.0, apart.nan_to_num(nan=float("inf"), posinf=float("inf")))
    at = int(apart.argmax())
    index = tuple(int(each) for each in np.unravel_index(at, tuple(expected.shape)))
    largest = float(apart.reshape(-1)[at])
    return m.CaptureDifference(
        of=name,
        index=index,
        expected=_shown(theirs[index].item()),
        got=_shown(ours[index].item()),
        largest=largest if largest != float("inf") else None,
        tolerance=tolerance,
        differing=int((apart > tolerance).sum()),
        elements=expected.numel(),
        dtype=dtype,
    )


def _shown(value: complex) -> str:
    return f"{value:.6g}"
