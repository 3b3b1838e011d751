"""Where the tensors of a CPU run would lie if the program ran on a GPU.

A CPU run has one device, so nothing about a tensor says whether the program meant it for the GPU.
What is known is where values come from: a factory that is called without a device, an array, a file
or a loader give tensors of the host; ``.to(device)``, ``device=``, a module's parameters and
buffers, and what compiled code returns are the GPU's; an operator's result lies where its operands
do. Only what lies on the host is followed: all else counts as the GPU's.

A program that names no device anywhere would run on a GPU under a default device alone, and there
what its factories make lies on the GPU; so they are told apart (UNNAMED), and the reader decides.

The hooks are kernels under ``BackendSelect`` of operators that make new tensors. Views share their
storage, which is what is remembered; none is hooked, since a view that Python has seen is another
object than the one that it hands out.
"""

import ast
import linecache
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Parameter
from torch.utils import _device as default_device

from kgprof.record.ground.python_stack import IN_TORCH, TORCH, expression_at, position_at, upwards
from kgprof.record.ground.source import Function, aside, not_compiled, raised, replace
from kgprof.record.ground.tensor_memory import base_of, device_type, is_whole, storage_of

UNKNOWN, HOST, UNNAMED, DEVICE = "", "host", "unnamed", "device"

# A hook and the line that calls.
BETWEEN = (
    str(Path(__file__).parents[1]),
    *(f"{TORCH}/{part}" for part in ("_dynamo", "_ops.py", "_compile.py")),
)
LOADERS = f"{TORCH}/utils/data"
FUNCTIONAL = f"{TORCH}/nn/functional.py"
# their arguments
KEEPING = frozenset({"append", "add", "extend", "insert", "put", "tuple", "list", "dict", "zip"})
NUMBERS = {int: torch.int64, float: torch.float64, bool: torch.bool, complex: torch.complex128}
SWEEP = 4096  # storages that are remembered before those that are gone are forgotten

# What every factory writes its result with, as far as it has tensors to be dispatched by.
FILLING = (
    "random_",
    "uniform_",
    "normal_",
    "bernoulli_",
    "exponential_",
    "zero_",
    "fill_",
    "lift_fresh",
    "arange.start_out",
    "randperm.generator_out",
    "linspace.out",
    "eye.m_out",
)
FACTORIES = frozenset(
    {
        "tensor",
        "as_tensor",
        "asarray",
        "scalar_tensor",
        "zeros",
        "ones",
        "full",
        "empty",
        "eye",
        "arange",
        "linspace",
        "rand",
        "randn",
        "randint",
        "randperm",
        "normal",
        "bernoulli",
    }
)
OF_THE_HOST = frozenset(
    f"{kind}Tensor"
    for kind in ("", "Float", "Double", "Half", "Long", "Int", "Short", "Byte", "Bool")
)
# Operators that data is prepared, drawn and counted with; what another one makes counts as the
# GPU's.
DERIVING = (
    "add",
    "sub",
    "mul",
    "div",
    "floor_divide",
    "remainder",
    "fmod",
    "pow",
    "neg",
    "abs",
    "sign",
    "floor",
    "ceil",
    "round",
    "trunc",
    "sqrt",
    "exp",
    "log",
    "sin",
    "cos",
    "clamp",
    "clamp_min",
    "clamp_max",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_not",
    "bitwise_and",
    "bitwise_or",
    "bitwise_not",
    "isnan",
    "sum",
    "mean",
    "prod",
    "amax",
    "amin",
    "max",
    "min",
    "argmax",
    "argmin",
    "any",
    "all",
    "cumsum",
    "std",
    "var",
    "sort",
    "topk",
    "median",
    "index",
    "index_select",
    "gather",
    "take",
    "cat",
    "stack",
    "clone",
    "_to_copy",
    "flip",
    "roll",
    "repeat",
    "tril",
    "triu",
    "histc",
    "multinomial",
    "bernoulli",
    "zeros_like",
    "ones_like",
    "full_like",
    "empty_like",
    "rand_like",
    "randn_like",
    "randint_like",
)
# A Python number among tensors (``x + 1``) comes to a kernel of Python's as the number. Of
# operators on several tensors only those are hooked that torch takes it back from, that have an
# overload for it, or that never have one.
TAKE_NUMBERS = frozenset({"add", "sub", "mul", "div", "floor_divide"})
TURNED_ROUND = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
# They check their input, or take a fast path, on the CPU alone: on CUDA their counterparts read
# nothing (benchmarks/reads_of_operators.py, on an H200).
CHECKING = (
    "_assert_async",
    "_cholesky_solve_helper",
    "linalg_ldl_solve",
    "linalg_lu_solve",
    "linalg_lu_solve.out",
    "rrelu_with_noise",
)
READ_ON_A_CPU = frozenset(
    {"std", "var", "multinomial", *(name.partition(".")[0] for name in CHECKING)}
)
TAKE_INDICES = frozenset({"index_select", "gather", "take"})
# operators on several tensors none of which can be a Python number
TAKE_NO_NUMBERS = TAKE_INDICES | READ_ON_A_CPU


class Inside(threading.local):
    """How many operators of a kind are running on this thread, one in the other."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


ON_A_CPU_ALONE = Inside()  # what they read is read by no kernel of a GPU


class TensorPlaces:
    """What is known of the tensors of this process, while hooks listen. All of it is called under
    hooks."""

    def __init__(self) -> None:
        self.forget()

    def gives_up(self, error: Exception) -> None:
        """Nothing is known of any tensor from here on, and who asks is told why."""
        self.gave_up = True
        self.listens = False
        self.tells(raised(error))

    def forget(self) -> None:
        self.gave_up = False
        self.tells: Callable[[str], None] = lambda why: None
        self.listens = False  # else nothing is known, and nothing remembered
        # whether compiled code runs, whose results are the GPU's
        self.idle: Callable[[], bool] = lambda: False
        self.names_a_device = False
        self.rest = False  # then no operator is hooked for what its result is derived from
        # puts other hooks of operators into the dispatcher
        self.hook_again: Callable[[], object] = lambda: None
        # by address, which StorageWeakRef keeps taken
        self._storages: dict[int, tuple[Any, str]] = {}
        self._tensors: dict[int, _Moved] = {}  # by id; goes before the storage's
        # by what finds it, the code's id, where
        self._found: dict[tuple[Any, int, int], tuple[CodeType, Any]] = {}
        self._sweep_at = SWEEP

    def rests(self, rests: bool) -> None:
        if rests != self.rest:
            self.rest = rests
            self.hook_again()

    def of(self, tensor: torch.Tensor) -> str:
        """HOST, UNNAMED, DEVICE, or UNKNOWN, which counts as the GPU's."""
        if not self.listens:
            return UNKNOWN
        if self._tensors:
            base = base_of(tensor)
            for one in filter(lambda one: one is not None, (tensor, base)):
                known = self._tensors.get(id(one))
                moved = None if known is None else known.tensor()
                # With a view of a whole base, what is a view of the view moved as well, and the
                # base did not.
                is_it = moved is one or (
                    one is not tensor and moved is not None and base_of(moved) is base
                )
                if known is not None and is_it and (known.during is None or _runs(known.during)):
                    return known.place
        if type(tensor) is not torch.Tensor and isinstance(tensor, Parameter):
            return DEVICE
        storage = storage_of(tensor)
        found = None if storage is None else self._storages.get(storage._cdata)
        if found is not None:
            return found[1]
        # What cannot be resized is memory of an array, a file or another process.
        return UNKNOWN if storage is None or storage.resizable() else HOST

    # ------------------------------------------------------------ what the hooks tell

    @aside
    def derived(self, operands: Iterable[Any], results: Any) -> None:
        """An operator made ``results``, new tensors, of ``operands``."""
        place = UNKNOWN
        for operand in operands:
            if type(operand) in NUMBERS:
                continue
            for tensor in (operand,) if type(operand) is torch.Tensor else _tensors_in((operand,)):
                if type(tensor) is not torch.Tensor:
                    return  # a parameter, or a subclass with rules of its own
                found = self.of(tensor)
                if found in (HOST, UNNAMED):
                    place = UNNAMED if UNNAMED in (found, place) else HOST
                elif tensor.numel():
                    return
        if place and not self.idle() and not _is_a_part(_caller()):
            for result in _tensors_in(results if isinstance(results, tuple | list) else (results,)):
                if type(result) is torch.Tensor:
                    self._remember(result, place)

    @aside
    def lie(self, results: Iterable[tuple[Any, str]]) -> None:
        """Of those with a place a compiled graph made each of Python's numbers, or by a factory
        without a device."""
        for result, place in results:
            if place and type(result) is torch.Tensor and not self.idle():
                self._remember(result, place)

    @aside
    def filled(self, _operands: Iterable[Any], tensor: Any) -> None:
        """Something wrote to all of ``tensor``: if it is a factory, this is its result."""
        if type(tensor) is not torch.Tensor or tensor.device.type != "cpu":
            return
        frame = _caller()
        call = self._once(_call_at, frame)
        made_by = None if call is None else _factory(call)
        if made_by is None or any(keyword.arg is None for keyword in made_by.keywords):
            return
        device = next(
            (keyword.value for keyword in made_by.keywords if keyword.arg == "device"), None
        )
        if _name_of(made_by.func) in OF_THE_HOST:
            place = HOST
        elif device is not None and (given := self._named(device, frame)) is not None:
            place = given
        else:
            place = UNNAMED if default_device.CURRENT_DEVICE is None else DEVICE
        if place in (HOST, UNNAMED) and not self.idle():
            self._remember(tensor, place)

    @aside
    def registered(self, tensor: Any) -> None:
        """As a parameter or a buffer of a module."""
        if isinstance(tensor, torch.Tensor) and device_type(tensor) == "cpu":
            self._remember(tensor, DEVICE)

    @aside
    def given_to_numpy(self, tensor: torch.Tensor) -> None:
        """Its memory is an array's as well from now on, and was not before."""
        if self.listens and device_type(tensor) == "cpu" and self.of(tensor) == UNKNOWN:
            self._remember(tensor, DEVICE)

    @aside
    def target_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Where the program's line ``x.to(...)`` moves to; None: nowhere, only another type is
        asked for."""
        target = kwargs.get("device", kwargs.get("other", args[0] if args else None))
        if not self.listens:
            return HOST if isinstance(target, str) and target.partition(":")[0] == "cpu" else None
        if isinstance(target, torch.Tensor):
            return self.of(target)
        if (
            target is None
            or isinstance(target, torch.dtype)
            or str(target).partition(":")[0] != "cpu"
        ):
            return None
        frame = _caller(outside_of_torch=True)
        call = self._once(_call_at, frame)
        if call is not None and _name_of(call.func) == "to":
            node = next(
                (keyword.value for keyword in call.keywords if keyword.arg == "device"), None
            )
            node = node or (call.args[0] if call.args else None)
            if node is not None and (named := self._named(node, frame)) is not None:
                return named
        return HOST if isinstance(target, str) and call is None else DEVICE

    @aside
    def moved(self, tensor: torch.Tensor, result: torch.Tensor, place: str) -> None:
        """``.to()`` or ``.cpu()`` of ``tensor`` gave ``result``. On a CPU that is often the very
        same tensor; then the line says whether it is another one from now on (``x = x.to(device)``)
        or within the line alone (``model(x.to(device))``, after which ``x`` lies where it lay)."""
        if isinstance(result, Parameter) or not self.listens:
            return
        if result is not tensor:
            self._remember(result, place or DEVICE)
            return
        during = self._once(_the_line_alone, _caller(outside_of_torch=True))
        if (
            during is None
            and place != HOST
            and id(tensor) not in self._tensors
            and is_whole(tensor)
        ):
            self._remember(tensor, place or DEVICE)
            return
        base = base_of(tensor)
        shown = base is not None and id(base) not in self._tensors and is_whole(tensor)
        keys = (id(tensor), id(base)) if shown else (id(tensor),)

        def forget(gone: object) -> None:
            for key in keys:
                if (known := self._tensors.get(key)) is not None and known.tensor is gone:
                    self._tensors.pop(key, None)

        moved = _Moved(tensor=weakref.ref(tensor, forget), place=place, during=during)
        self._tensors.update(dict.fromkeys(keys, moved))

    def before_it_was_moved(self, tensor: torch.Tensor) -> str:
        """Where it would lie, whatever became of it on the host: ``x.cpu()`` in every step copies
        in every step."""
        base = base_of(tensor)
        moved = {
            key: known
            for key in (id(tensor), id(base))
            if (known := self._tensors.get(key)) is not None
            and known.place == HOST
            and (key == id(tensor) or known.tensor() is not base)
        }
        for key in moved:
            del self._tensors[key]
        place = self.of(tensor)
        self._tensors.update(moved)
        return place

    # ------------------------------------------------------------ how it is known

    def _remember(self, tensor: torch.Tensor, place: str) -> None:
        storage = storage_of(tensor)
        if storage is None:
            return
        key = storage._cdata
        known = self._storages.get(key)
        if known is None:
            reference: Any = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        else:
            reference = known[0]
        self._storages[key] = (reference, place)
        if len(self._storages) > self._sweep_at:
            for gone in [
                key for key, (reference, _) in [*self._storages.items()] if reference.expired()
            ]:
                self._storages.pop(gone, None)
            self._sweep_at = max(SWEEP, 2 * len(self._storages))

    def _once(self, find: Callable[[FrameType], Any], frame: FrameType | None) -> Any:
        """What ``find`` finds for the instruction at which a frame stands; None where there is no
        frame."""
        if frame is None:
            return None
        key = (find, id(frame.f_code), frame.f_lasti)
        if key not in self._found:
            self._found[key] = frame.f_code, find(frame)
        return self._found[key][1]

    def _named(self, node: ast.expr, frame: FrameType | None) -> str | None:
        """The place that an expression for a device stands for; None where it stands for no
        device."""
        if isinstance(node, ast.Constant) and node.value is None:
            return None
        if _says_cpu(node):
            return HOST
        if isinstance(node, ast.Name) and _variable(node.id, frame) is None:
            return None
        if (
            isinstance(node, ast.Attribute)
            and node.attr == "device"
            and isinstance(node.value, ast.Name)
        ):
            other = _variable(node.value.id, frame)
            if isinstance(other, torch.Tensor):
                return self.of(other)
        if frame is not None and not frame.f_code.co_filename.startswith(IN_TORCH):
            self.names_a_device = True
        return DEVICE


@dataclass(frozen=True, kw_only=True, slots=True)
class _Moved:
    tensor: weakref.ref[torch.Tensor]
    place: str
    # code, and the first and last line of what it is true within
    during: tuple[CodeType, int, int] | None


def _runs(during: tuple[CodeType, int, int]) -> bool:
    code, first, last = during
    return any(
        frame.f_code is code and first <= frame.f_lineno <= last
        for frame in upwards(sys._getframe(1))
    )


def _tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from (one for one in value if isinstance(one, torch.Tensor))


def _caller(*, outside_of_torch: bool = False) -> FrameType | None:
    """Who called the operator or the method; beyond torch's own functions, where it is asked
    for."""
    for frame in upwards(sys._getframe(2)):
        file = frame.f_code.co_filename
        if not file.startswith(BETWEEN) and not (outside_of_torch and file.startswith(IN_TORCH)):
            return frame
    return None


def _is_a_part(frame: FrameType | None) -> bool:
    """Whether a function of torch.nn.functional runs the operator as one of its own: a loss begins
    with ``1 - target`` and then works in place with what the model gave."""
    return frame is not None and frame.f_code.co_filename == FUNCTIONAL


def _variable(name: str, frame: FrameType | None) -> Any:
    """Its value in ``frame``; something that is no tensor and no None where there is none of that
    name."""
    if frame is None:
        return name
    return frame.f_locals.get(name, frame.f_globals.get(name, name))


# ---------------------------------------------------------------- what a line says


def _name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _factory(call: ast.Call) -> ast.Call | None:
    """The factory that a call is, or whose result it fills: ``torch.empty(1).uniform_()``."""
    name = _name_of(call.func)
    if name in FACTORIES or name in OF_THE_HOST:
        return call
    if (
        name.endswith("_")
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Call)
    ):
        return _factory(call.func.value)
    return None


def _says_cpu(node: ast.expr) -> bool:
    """``"cpu"``, ``torch.device("cpu")``, or a variable that is called so."""
    if isinstance(node, ast.Constant):
        return str(node.value).partition(":")[0] == "cpu"
    if isinstance(node, ast.Call):
        return len(node.args) == 1 and _says_cpu(node.args[0])
    return "cpu" in _name_of(node).lower()


def _call_at(frame: FrameType) -> ast.Call | None:
    """The call that a frame is in, as it is written."""
    try:
        tree = ast.parse(expression_at(frame).strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    return tree if isinstance(tree, ast.Call) else None


def _the_line_alone(frame: FrameType) -> tuple[CodeType, int, int] | None:
    """The lines of the expression that a call's result does not outlive; None where it may: it is
    assigned, returned, or put into something."""
    calls, parents = _calls_of(frame.f_code.co_filename)
    node = calls.get(position_at(frame))
    while node is not None:
        parent = parents.get(node)
        if isinstance(
            parent, ast.Attribute | ast.Tuple | ast.List | ast.Dict | ast.Starred | ast.IfExp
        ):
            node = parent
        elif isinstance(parent, ast.Call) and (
            parent.func is node or _name_of(parent.func) in KEEPING
        ):
            node = parent if parent.func is node else None
        elif isinstance(
            parent,
            ast.Call | ast.keyword | ast.BinOp | ast.UnaryOp | ast.Compare | ast.BoolOp | ast.Expr,
        ):
            return frame.f_code, node.lineno, node.end_lineno or node.lineno
        else:
            node = None
    return None


@cache
def _calls_of(file: str) -> tuple[dict[tuple[int | None, ...], ast.expr], dict[ast.AST, ast.AST]]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}, {}
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    calls = (node for node in parents if isinstance(node, ast.Call))
    return {
        (one.lineno, one.end_lineno, one.col_offset, one.end_col_offset): one for one in calls
    }, parents


# ---------------------------------------------------------------- the hooks


def watch_places(
    places: TensorPlaces, idle: Callable[[], bool], tells: Callable[[str], None], undo: ExitStack
) -> None:
    """``idle``: see TensorPlaces; ``tells`` is called with why they are known no longer, if that
    comes to be."""
    kernels = [
        (name, _hook(operator, tell))
        for names, tell in (
            (FILLING, places.filled),
            (DERIVING, places.derived),
            (CHECKING, places.derived),
        )
        for name, operator in _operators(names)
    ]
    undo.callback(places.forget)
    _between_compilations(kernels, places, undo)
    for name in ("register_parameter", "register_buffer"):
        replace(torch.nn.Module, name, _registering(places, getattr(torch.nn.Module, name)), undo)
    places.listens, places.idle, places.tells = True, idle, tells


def _between_compilations(
    kernels: list[tuple[str, Function]], places: TensorPlaces, undo: ExitStack
) -> None:
    """Has the kernels in the dispatcher, but for as long as anything is traced: under a kernel of
    Python's torch finds no way to compute on fake tensors whose sizes are symbols. A fake mode is
    entered before anything else of a trace.
    """
    from torch._dynamo.callback import callback_handler
    from torch._guards import CompileContext, TracingContext

    standing: list[Any] = []  # a torch.library.Library, or none

    # Torch calls it while it holds its lock for such callbacks. Where a backward is compiled under
    # loss.backward() in a compiled function Dynamo would capture it, and so wait for that lock for
    # ever.
    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def stand(_: object = None) -> None:
        if not standing:
            library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
            for name, hook in kernels:
                if not places.rest or name.partition(".")[0] in READ_ON_A_CPU:
                    library.impl(  # type: ignore[no-untyped-call]
                        name, hook, "BackendSelect", with_keyset=True
                    )
            standing.append(library)

    def stand_aside() -> None:
        while standing:
            standing.pop()._destroy()

    def again() -> None:
        stand_aside()
        stand()

    enter = FakeTensorMode.__enter__
    leave = FakeTensorMode.__exit__

    def entered(mode: FakeTensorMode) -> Any:
        stand_aside()
        if stand not in callback_handler.end_callbacks:  # torch._dynamo.reset() forgets them
            callback_handler.register_end_callback(stand)
        return enter(mode)

    def left(mode: FakeTensorMode, *raised: Any) -> None:
        leave(mode, *raised)
        if CompileContext.try_get() is None and TracingContext.try_get() is None:
            stand()

    def forget() -> None:
        stand_aside()
        with suppress(ValueError):  # nothing was compiled, or torch._dynamo.reset() came after it
            callback_handler.remove_end_callback(stand)

    undo.callback(forget)
    places.hook_again = again
    replace(FakeTensorMode, "__enter__", entered, undo)
    replace(FakeTensorMode, "__exit__", left, undo)
    stand()


def _operators(names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Each overload that this torch has a kernel of for the CPU, and nothing under BackendSelect; a
    name without overload means those that write to nothing but their own result."""
    known = torch._C._dispatch_has_kernel
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for name in names:
        packet, _, wanted = name.partition(".")
        operators = getattr(torch.ops.aten, packet, None)
        for overload in () if operators is None else operators.overloads():
            operator = getattr(operators, overload)
            full = f"aten::{packet}" if overload == "default" else f"aten::{packet}.{overload}"
            writes = any(
                one.alias_info is not None and one.alias_info.is_write
                for one in operator._schema.arguments
            )
            if overload != wanted if wanted else writes != packet.endswith("_"):
                continue
            taken = (
                not known(full)
                or has(full, "CompositeImplicitAutograd")
                or has(full, "BackendSelect")
            )
            several = len(_tensors_of(operator)) > 1
            if several and packet not in TAKE_NUMBERS | TURNED_ROUND.keys() | TAKE_NO_NUMBERS:
                continue
            if not taken and any("Tensor" in str(one.type) for one in operator._schema.arguments):
                yield full.removeprefix("aten::"), operator


def _tensors_of(operator: Any) -> list[int]:
    return [
        at
        for at, one in enumerate(operator._schema.arguments)
        if str(one.type) == "Tensor" and not one.kwarg_only
    ]


def _hook(operator: Any, tell: Callable[[tuple[Any, ...], Any], None]) -> Function:
    below = torch._C.DispatchKey.BackendSelect
    redispatch = operator.redispatch
    first = operator._schema.arguments[0]
    name = operator._schema.name.removeprefix("aten::")
    of_a_tensor = str(first.type) == "Tensor"
    of_several = len(_tensors_of(operator)) > 1 and name not in TAKE_NO_NUMBERS
    if name in TURNED_ROUND and of_several:
        with_numbers = _compared(name)
    else:
        with_numbers = (
            _with_numbers(operator) if of_several or name == "_to_copy" else _of_a_number(operator)
        )

    @outside_of_dynamo
    def hook(keys: Any, *args: Any, **kwargs: Any) -> Any:
        left = keys.remove(below)
        if (of_a_tensor and type(args[0]) in NUMBERS) or (of_several and type(args[1]) in NUMBERS):
            found = with_numbers(left, *args, **kwargs)
        elif name in READ_ON_A_CPU:
            with ON_A_CPU_ALONE:
                found = redispatch(left, *args, **kwargs)
        else:
            found = redispatch(left, *args, **kwargs)
        tell(args, found)
        return found

    return hook


def outside_of_dynamo(function: Function) -> Function:
    """As ``torch._dynamo.disable``, which takes 1.5 us a call, does; else a hook would be traced
    after a graph break. It is left out where Dynamo looks at no frames anyway."""
    from torch._C._dynamo.eval_frame import get_eval_frame_callback

    disabled = torch._dynamo.disable(function)  # type: ignore[no-untyped-call]

    def called(*args: Any, **kwargs: Any) -> Any:
        return (function if get_eval_frame_callback() is None else disabled)(*args, **kwargs)

    not_compiled(called)
    return wraps(disabled)(called)


def _of_a_number(operator: Any) -> Function:
    """With the number as the tensor that torch made of it."""

    def run(keys: Any, number: Any, *args: Any, **kwargs: Any) -> Any:
        return operator.redispatch(keys, _as_a_tensor(number), *args, **kwargs)

    return run


def _as_a_tensor(value: Any) -> Any:
    return (
        torch.scalar_tensor(value, dtype=NUMBERS[type(value)]) if type(value) in NUMBERS else value
    )


def _compared(name: str) -> Function:
    """With a number in the place of either tensor."""
    straight = getattr(torch.ops.aten, name).Scalar.redispatch
    turned = getattr(torch.ops.aten, TURNED_ROUND[name]).Scalar.redispatch

    def run(keys: Any, one: Any, other: Any) -> Any:
        if type(other) not in NUMBERS:
            return turned(keys, other, one)
        return straight(keys, _as_a_tensor(one), other)

    return run


def _with_numbers(operator: Any) -> Function:
    """``redispatch`` refuses the number. What takes it looks for a kernel under one key and calls
    nothing where there is none, so it is told where the kernel is."""
    composite = ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd")
    call = operator._op_dk

    @cache
    def kernel_of(key: Any) -> Any:
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        name = next((found for found in (key.name, *composite) if has(operator.name(), found)), "")
        if not name:
            raise NotImplementedError(
                f"Could not run '{operator.name()}' with arguments from '{key.name}'."
            )
        return torch._C._dispatch_key_parse(name)

    def run(keys: Any, *args: Any, **kwargs: Any) -> Any:
        return call(kernel_of(keys.highestPriorityTypeId()), *args, **kwargs)

    return run


def _registering(places: TensorPlaces, method: Function) -> Function:
    @wraps(method)
    def registering(module: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            places.registered(
                args[1] if len(args) > 1 else kwargs.get("param", kwargs.get("tensor"))
            )
        return method(module, *args, **kwargs)

    return registering
