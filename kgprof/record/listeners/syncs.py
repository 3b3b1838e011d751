"""Who reads a tensor's value on the host, and from which line.

Three hooks, because each misses something (measured on an H200): a kernel under ``BackendSelect``
sees every read that goes through the dispatcher, also from inside a C++ operator or a compiled
graph, but not ``.cpu()`` or a blocking copy; torch's sync-debug mode sees those and names generated
files; and explicit waits (``torch.cuda.synchronize``, events, streams) are calls of Python's that
neither sees. On a CPU ``.cpu()``, ``.numpy()``, ``.tolist()`` and ``.to("cpu")`` dispatch nothing
at all, so they are watched as calls too.

The hooks change no value. What reads inside a compiled graph is named by the operator that Dynamo
captured.
"""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import islice, takewhile
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace as replaced
from torch.overrides import handle_torch_function

import kgprof
from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground.python_stack import (
    BY_TORCH,
    IN_TORCH,
    TORCH,
    Frames,
    Stack,
    described,
    expression_at,
    instruction_at,
    line_at,
    upwards,
)
from kgprof.record.ground.source import Function, Source, aside, not_compiled, replace
from kgprof.record.ground.tensor_memory import PLAIN, answer, device_type
from kgprof.record.listeners import eager_calls, tensor_places
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.captured_graph import operator_of
from kgprof.record.listeners.graph_lines import frames_of
from kgprof.record.listeners.installed_graphs import (
    COMPILE,
    INSTALL,
    InstalledGraphs,
    compile_id_of,
)
from kgprof.record.listeners.tensor_places import (
    DEVICE,
    FACTORIES,
    HOST,
    LOADERS,
    UNKNOWN,
    UNNAMED,
    Inside,
    TensorPlaces,
    outside_of_dynamo,
    watch_places,
)

# Operators that bring a value to the host, or make a shape of one. The dispatcher calls them for
# every device.
READING = (
    ("_local_scalar_dense", "default"),
    ("nonzero", "default"),
    ("masked_select", "default"),
    ("equal", "default"),
    ("_unique2", "default"),
    ("unique_dim", "default"),
    ("unique_consecutive", "default"),
    ("bincount", "default"),  # on a GPU: its least and its largest value
)
# What of Dynamo's graph comes to one of them.
CAPTURED = frozenset(
    {
        "item",
        "tolist",
        "cond",
        "while_loop",
        "nonzero",
        "argwhere",
        "getitem",
        "__getitem__",
        "setitem",
        "where",
        "masked_select",
        "unique",
        "unique_dim",
        "unique_consecutive",
        "repeat_interleave",
        "equal",
        "allclose",
        "linalg_cholesky",
        "linalg_inv",
        "linalg_ldl_factor",
        "linalg_lu_factor",
        "linalg_solve",
        "cpu",
        "to",
        "numpy",
        "bool",
        "int",
        "float",
        "_local_scalar_dense",
        "_unique2",
    }
)
# methods of a tensor that dispatch nothing where it lies on the CPU
ON_A_CPU = ("cpu", "numpy", "tolist", "to")
# steps of a script in which tensors are followed, from the last one with a read of a new kind
FOLLOWED = 64
# or these, if they took so much CPU time: following a step of thousands of operators costs as much
# again as the step
FEWEST_FOLLOWED = 16
ENOUGH_CPU_S = 0.4
UNFOLLOWED = "unfollowed"  # in place of where a tensor lies; UNKNOWN in the records
PLACES = 4096
CODES = 65536  # of Python's stacks
STACK = 8  # frames of the project above a read
STANDARD = sysconfig.get_path("stdlib")
OPTIMIZERS = f"{TORCH}/optim/"  # their step count lies on the CPU wherever the parameters are
# how many sequences a PackedSequence has at each place lies on the CPU, too
PACKED = (f"{TORCH}/nn/modules/rnn.py", f"{TORCH}/nn/utils/rnn.py")
LBFGS = f"{OPTIMIZERS}lbfgs.py"  # has none, and reads losses and directions
# Dynamo's call behind a graph that makes an array of its result, in a line of its own making.
TO_NUMPY = "to_numpy_helper"
# A hook and the line that reads.
BETWEEN = (
    __file__,
    tensor_places.__file__,
    eager_calls.__file__,
    warnings.__file__,
    f"{TORCH}/_dynamo",
    f"{TORCH}/_ops.py",
    f"{TORCH}/_compile.py",
)
RECORD = str(Path(kgprof.__file__).resolve().parent / "record")
# Derivatives that read on the CPU alone (measured on an H200): on a GPU they select by a mask.
ON_A_CPU_ALONE = frozenset(
    {"MaxBackward1", "MinBackward1", "MedianBackward0", "NanmedianBackward0"}
)
CHAIN = 12  # lines of libraries between the project's line and a read
# torch's way to an operator, which is no place where anything is decided.
PLUMBING = tuple(
    f"{TORCH}/{file}"
    for file in (
        "_tensor.py",
        "_tensor_str.py",
        "functional.py",
        "_jit_internal.py",
        "overrides.py",
        "nn/modules/module.py",
        "utils/_contextlib.py",
        "utils/_device.py",
        "autograd",
        "_higher_order_ops",
        "_inductor",
    )
)
# but where a module moves its parameters, as a tensor's method of the same name moves one
MODULE = f"{TORCH}/nn/modules/module.py"
MOVES = ("<lambda>", "convert")
# Where torch waits for what is its own: it warms up and records a CUDA graph, or tries kernels.
CUDA_GRAPHS = (f"{TORCH}/_inductor/cudagraph", f"{TORCH}/cuda/graphs.py")
INDUCTOR = f"{TORCH}/_inductor"
FAKE_TENSORS = f"{TORCH}/_subclasses/"  # while Dynamo traces, of a number that became a tensor
TRITON = f"{Path(TORCH).parent}/triton/"
# Calls of Python's that wait and read nothing.
WAITS = (
    "cuda.synchronize",
    "accelerator.synchronize",
    "Event.synchronize",
    "Stream.synchronize",
)
SYNCHRONIZING = "called a synchronizing CUDA operation"  # torch's warning in its sync-debug mode
WARNS = 1  # that mode, as torch.cuda.get_sync_debug_mode says it


class Syncs(Source):
    """Source. One SyncRecord for each place, source and operator."""

    name = "sync hooks"
    parts = (tensor_places.__name__,)

    def __init__(self, calls: CallIndex, device: torch.device, project: ProjectFiles) -> None:
        self._calls = calls
        self._device = device
        self._project = project
        self._places: dict[tuple[Any, ...], m.SyncRecord] = {}  # whose counts grow
        self._sites: dict[tuple[Any, ...], _Site] = {}
        # and whether it is between a hook and the line that reads
        self._codes: dict[int, tuple[CodeType, bool]] = {}
        self._steps_alike = 0  # since a read was the first of its kind
        self._alike_since_s = 0.0  # CPU time
        # the call from which on tensors were not followed, but for new reads
        self.followed_until: int | None = None
        self._left_out = 0
        self._listens = self._names_a_device = False
        self._graphs = _RunningGraphs(self._graph_begins)
        self._holds = cache(project.holds)

    def records(self) -> m.SyncRecords:
        return m.SyncRecords(
            records=tuple(_so_far(place) for place in self._places.values() if place.calls),
            left_out=self._left_out,
            names_a_device=self._names_a_device or (self._listens and TENSORS.names_a_device),
        )

    def listen(self, undo: ExitStack) -> None:
        undo.enter_context(self._graphs)
        self.unavailable = self._graphs.unavailable
        for hooks in ALL_HOOKS:
            if hooks.on in ("", self._device.type):
                undo.callback(hooks.leave, self)
                lacking = hooks.join(self)
                self.unavailable = "; ".join(filter(None, (self.unavailable, lacking)))
        self._listens = True
        undo.callback(self._stops)

    def _stops(self) -> None:
        """Before the hooks that know it are taken off."""
        self._listens = False
        self._names_a_device = TENSORS.names_a_device
        if self in SYNC_DEBUG_HOOKS.listening and not SYNC_DEBUG_HOOKS.lacking:
            self.lost = self.lost or _deaf_to_sync_debug()

    @property
    def runs_a_graph(self) -> bool:
        return self._graphs.running is not None

    # ------------------------------------------------------------ what they see

    @aside
    def _graph_begins(self, graph: _Graph) -> None:
        """Where a compiled graph copies to the CPU, nothing is called on a CPU, and on CUDA torch's
        warning does not reach Python from every backend; so each run counts for what was captured.
        """
        for operator, frames, device in graph.on_a_cpu:
            inside, chain = self._captured_at(frames)
            if inside:
                new = partial(
                    m.SyncRecord,
                    source="captured graph",
                    op=f"Tensor.{operator}",
                    device=device,
                    operator=operator,
                    compile_id=graph.compile_id,
                    frames=inside,
                    chain=chain,
                    calls=Counter(),
                )
                self._counted((graph.compile_id, operator, inside), new)

    def _captured_at(self, frames: Frames) -> tuple[Frames, Frames]:
        """The project's lines of an operator that Dynamo captured, and the libraries' between it
        and them."""
        inside = tuple(frame for frame in frames if self._holds(frame.file))
        between = takewhile(lambda frame: not self._holds(frame.file), frames) if inside else ()
        return inside, tuple(
            islice((one for one in between if not one.file.startswith(PLUMBING)), CHAIN)
        )

    @aside
    def took(self, seen: m.SyncRecord, began_ns: int) -> None:
        """Under the hook, whose own few microseconds are outside of it. A read of the CPU's waits
        for nothing."""
        if self._device.type == "cuda":
            waited_us = (time.perf_counter_ns() - began_ns) / 1e3
            seen.waited_us[self._calls.current] += waited_us

    @aside
    def sees(self, read: _Read) -> m.SyncRecord | None:
        graph, hook, on_a_cpu = self._graphs.running, sys._getframe(3), self._device.type == "cpu"
        node = torch._C._current_autograd_node() if on_a_cpu and read.source == "dispatch" else None
        derives = "" if node is None else node.name()
        if graph is not None:
            return self._seen_from(hook, graph, derives, read)[0]
        site = self._site([*read[:3], derives], hook)
        if site.is_no_read:
            return None
        if (seen := site.decided) is None:
            lies = self._place_of(read, loads=site.loads)
            if TENSORS.rest and lies == UNKNOWN:  # else its memory tells, as an array's does
                lies = UNFOLLOWED
            seen = site.places.get(lies)
        if seen is not None:
            self._count(seen)
            return seen
        seen, site.is_no_read = self._seen_from(hook, None, derives, read, lies)
        if seen is not None:
            site.add(lies, seen)
            self._steps_alike = 0
        return seen

    def _site(self, at: list[Any], hook: FrameType) -> _Site:
        """What a read is follows from where the stack stands without hooks, and from where its
        tensor lies."""
        for frame in upwards(hook):
            code = frame.f_code
            known = self._codes.get(id(code))
            if known is None:  # kept, so that its number stays its own
                if len(self._codes) >= CODES:
                    return _Site()
                known = self._codes[id(code)] = code, code.co_filename.startswith(BETWEEN)
            if not known[1]:
                at += (id(code), frame.f_lasti)
        key = tuple(at)
        site = self._sites.get(key)
        if site is None:
            site = _Site(
                any(frame.f_code.co_filename.startswith(LOADERS) for frame in upwards(hook))
            )
            if len(self._sites) < PLACES:
                self._sites[key] = site
        return site

    @aside
    def step_begins(self) -> None:
        """Of a script. After FOLLOWED steps that read nothing new (FEWEST_FOLLOWED, if those took
        ENOUGH_CPU_S), each place of a read is taken to read what it has read so far, and tensors
        are not followed any more until there is a new place. All reads are counted."""
        if not self._steps_alike:
            self._alike_since_s = time.process_time()
        self._steps_alike += 1
        took_s = time.process_time() - self._alike_since_s
        fewest = FEWEST_FOLLOWED if took_s >= ENOUGH_CPU_S else FOLLOWED
        rests = self._steps_alike > fewest and len(PLACES_HOOKS.listening) == 1
        if rests and not TENSORS.rest:
            sites = [
                site
                for site in self._sites.values()
                if site.decided is None and site.places.keys() - {UNFOLLOWED}
            ]
            if any(len(site.places) > 1 for site in sites):
                self._steps_alike = 0
                return
            for site in sites:
                (site.decided,) = site.places.values()
            self.followed_until = self.followed_until or self._calls.current
        TENSORS.rests(rests)

    def _seen_from(
        self, hook: FrameType, graph: _Graph | None, derives: str, read: _Read, lies: str = UNKNOWN
    ) -> tuple[m.SyncRecord | None, bool]:
        """And whether it is no read that counts. ``derives``: the name of autograd's node that
        reads."""
        source, op, device, tensor, text = read
        files = (above.f_code.co_filename for above in upwards(hook))
        caller = next((file for file in files if not file.startswith(BETWEEN)), "")
        # kgprof waits for the device as well, and torch's optimizers read their step count on the
        # host.
        if caller.startswith(RECORD) or (
            caller.startswith((OPTIMIZERS, *PACKED)) and caller != LBFGS and device == "cpu"
        ):
            return None, True
        stack = tuple(upwards(hook))
        frames = tuple(
            islice((frame for frame in stack if self._holds(frame.f_code.co_filename)), STACK)
        )
        # Dynamo's guards read the scalars on the CPU that it looked at while it traced, and none on
        # a GPU.
        above = tuple(frame for frame in stack if not frame.f_code.co_filename.startswith(BETWEEN))
        nearest = (frame.f_code for frame in above[:8])
        if not frames or any(
            (code.co_filename, code.co_name) == ("<string>", "guard") for code in nearest
        ):
            return None, True
        if graph and (
            (source == "python-call" and self._device.type == "cpu") or id(tensor) in graph.numbers
        ):
            return None, True  # counted when the graph began, or no tensor of the program's
        reads_in_graph = graph is not None and op not in WAITS
        if derives in ON_A_CPU_ALONE or _is_torchs_own(above, reads_in_graph=reads_in_graph):
            return None, True
        operator, place, _ = graph.next_operator(source) if graph else ("", (), "")
        converts = graph is None and _makes_an_array(stack)
        if converts and tensor is not None:
            place = self._graphs.returned_at(tensor)
        inside, chain = self._captured_at(place)
        libraries = () if graph or inside else _libraries(above, frames[0])
        # By name: a code object's hash is that of its constants, and in Dynamo's bytecode a slice
        # may be one.
        named = (
            (frame.f_code.co_filename, frame.f_code.co_qualname, line_at(frame))
            for frame in (*libraries, *frames)
        )
        where = tuple(named)
        compile_id = graph.compile_id if graph else ""
        at = frames[0].f_lasti

        def new() -> m.SyncRecord:
            doing = {} if converts else _doing(frames[0], "")
            if libraries:
                doing |= _doing(libraries[0], "library_")
            return m.SyncRecord(
                source=source,
                op=op,
                device=device,
                operator=operator,
                compile_id=compile_id,
                frames=inside or tuple(map(described, frames)),
                chain=chain or tuple(map(_of_a_library, libraries)),
                tensor=lies,
                loads=any(one.f_code.co_filename.startswith(LOADERS) for one in upwards(frames[0])),
                text=text,
                calls=Counter(),
                waited_us=defaultdict(float),
                **doing,
            )

        key = (source, op, device, where, at, compile_id, operator, inside, lies)
        return self._counted(key, new), False

    def _place_of(self, read: _Read, *, loads: bool) -> str:
        """Where it would lie on a GPU's machine; a dataset, a sampler or a loader reads what lies
        on the host."""
        if read.tensor is None or self._device.type == "cuda":
            return UNKNOWN
        copies = read.op in ("Tensor.cpu", "Tensor.to")
        place = TENSORS.before_it_was_moved(read.tensor) if copies else TENSORS.of(read.tensor)
        if place == DEVICE:
            return UNKNOWN
        return HOST if loads else place

    def _counted(
        self, key: tuple[Any, ...], new: Callable[[], m.SyncRecord]
    ) -> m.SyncRecord | None:
        seen = self._places.get(key)
        if seen is None:
            if len(self._places) >= PLACES:
                self._left_out += 1
                return None
            seen = self._places[key] = new()
        self._count(seen)
        return seen

    def _count(self, seen: m.SyncRecord) -> None:
        seen.calls[self._calls.current] += 1


def _is_torchs_own(above: Stack, *, reads_in_graph: bool) -> bool:
    """Or kgprof's: what torch waits for in order to record a CUDA graph, to try a kernel, or to
    begin and end a profile that kgprof asked for.

    What reads in compiled code stands below Inductor's wrapper too; what waits there does so only
    where Inductor tries kernels, by itself or through Triton.
    """
    files = tuple(frame.f_code.co_filename for frame in above)
    by_torch = tuple(takewhile(lambda file: file.startswith((IN_TORCH, TRITON)), files))
    beyond = files[len(by_torch)] if len(by_torch) < len(files) else ""
    if beyond.startswith(RECORD) and not reads_in_graph:
        return True
    own = CUDA_GRAPHS if reads_in_graph else (INDUCTOR, FAKE_TENSORS, *CUDA_GRAPHS)
    return any(file.startswith(own) for file in by_torch)


def _libraries(above: Stack, project: FrameType) -> Stack:
    """The libraries' frames between a read and the project's line, innermost first; of torch's and
    Python's own the innermost alone, which tells a module that moves from a tensor."""
    found: list[FrameType] = []
    for frame in takewhile(lambda frame: frame is not project, above):
        file = frame.f_code.co_filename
        own = file.startswith(IN_TORCH) or (file.startswith(STANDARD) and "-packages" not in file)
        moves = file == MODULE and frame.f_code.co_name in MOVES
        plumbing = file.startswith(("<", RECORD, *PLUMBING)) and not moves
        if not plumbing and not (found and own):
            found.append(frame)
    return tuple(found[:CHAIN])


def _of_a_library(frame: FrameType) -> m.Frame:
    """A comprehension's frame has the name of the function around it: it has none of its own."""
    named = described(frame)
    if named.function not in m.COMPREHENSIONS:
        return named
    parts = reversed(frame.f_code.co_qualname.split("."))
    around = next((part for part in parts if not part.startswith("<")), named.function)
    return replaced(named, function=around)


def _doing(frame: FrameType, whose: str) -> dict[str, Any]:
    return {
        f"{whose}instruction": instruction_at(frame),
        f"{whose}expression": expression_at(frame)[: m.EXPRESSION_KEPT],
    }


def _so_far(place: m.SyncRecord) -> m.SyncRecord:
    """A record whose counts grow no more."""
    tensor = UNKNOWN if place.tensor == UNFOLLOWED else place.tensor
    calls = dict(place.calls)
    return replaced(place, tensor=tensor, calls=calls, waited_us=dict(place.waited_us))


class _Read(NamedTuple):
    source: str
    op: str
    device: str
    tensor: torch.Tensor | None = None
    text: str = ""


@dataclass(slots=True)
class _Site:
    """Reads outside of compiled graphs for which Python's stack stands at the same instructions."""

    loads: bool = False
    is_no_read: bool = False
    places: dict[str, m.SyncRecord] = field(default_factory=dict)  # by where the tensor lies
    decided: m.SyncRecord | None = None  # of all reads from now on

    def add(self, lies: str, seen: m.SyncRecord) -> None:
        """What was read while nobody followed tensors was like this."""
        self.places[lies] = seen
        if lies != UNFOLLOWED and (before := self.places.pop(UNFOLLOWED, None)) is not None:
            seen.calls.update(before.calls)
            before.calls.clear()


# ---------------------------------------------------------------- the hooks

Seen = list[tuple[Syncs, m.SyncRecord]]  # who wrote it down, and where


class _Hooks:
    """Hooks of one kind: once in a process, for every Syncs that listens. The dispatcher takes one
    kernel for an operator and a key, and wrappers around wrappers come off cleanly in one order
    only."""

    def __init__(
        self, name: str, put_on: Callable[[_Hooks, ExitStack], None], *, on: str = ""
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
        """Tells all that listen of a _Read; what each of them counted it under."""
        seen = []
        # no comprehension, which is a frame of its own before Python 3.12
        for one in self.listening:
            if (place := one.sees(_Read(*read))) is not None:
                seen.append((one, place))
        return seen


def _took(seen: Seen, began_ns: int) -> None:
    for one, place in seen:
        one.took(place, began_ns)


def _watch_dispatch(hooks: _Hooks, undo: ExitStack) -> None:
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    undo.callback(library._destroy)
    inside = Inside()  # what one reads for another is no read of its own
    for name, overload in READING:
        operator = getattr(getattr(torch.ops.aten, name, None), overload, None)
        if operator is not None:
            hook = _reading(hooks, inside, name, operator)
            library.impl(  # type: ignore[no-untyped-call]
                operator, hook, "BackendSelect", with_keyset=True
            )


def _reading(hooks: _Hooks, inside: Inside, name: str, operator: Any) -> Function:
    below, op, see = torch._C.DispatchKey.BackendSelect, f"aten::{name}", hooks.see

    @outside_of_dynamo
    def hook(keys: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(tensor, torch.Tensor):
            return tensor  # a Python number that torch wraps comes as the number (torch.jit.trace)
        is_outermost = inside.depth == 0 == tensor_places.ON_A_CPU_ALONE.depth
        own = is_outermost and not answer(tensor, _gives_way)
        seen = see("dispatch", op, device_type(tensor), tensor) if own else []
        began = time.perf_counter_ns()
        with inside:
            found = operator.redispatch(keys.remove(below), tensor, *args, **kwargs)
        _took(seen, began)
        TENSORS.derived((tensor, *args), found)
        return found

    return hook


def _watch_methods(hooks: _Hooks, undo: ExitStack) -> None:
    # else Dynamo would look for them among kgprof's functions
    known = torch._dynamo.trace_rules.get_tensor_method()
    replace(torch._dynamo.trace_rules, "get_tensor_method", cache(lambda: known), undo)
    for name in ON_A_CPU:
        replace(torch.Tensor, name, _bringing(hooks, name, getattr(torch.Tensor, name)), undo)


def _bringing(hooks: _Hooks, name: str, method: Function) -> Function:
    op = f"Tensor.{name}"
    see = hooks.see

    @outside_of_dynamo
    def seen_in(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        target = _target(tensor, name, args, kwargs)
        is_asynchronous = name == "to" and (
            bool(kwargs.get("non_blocking")) or any(one is True for one in args[1:])
        )
        brings = target == HOST and not is_asynchronous
        seen = see("python-call", op, device_type(tensor), tensor) if brings else []
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
        return (method if torch.compiler.is_compiling() else seen_in)(tensor, *args, **kwargs)

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


def _watch_waits(hooks: _Hooks, undo: ExitStack) -> None:
    for owner, label in (
        (torch.cuda, "cuda"),
        (torch.accelerator, "accelerator"),
        (torch.cuda.Event, "Event"),
        (torch.cuda.Stream, "Stream"),
    ):
        replace(
            owner, "synchronize", _waiting(hooks, f"{label}.synchronize", owner.synchronize), undo
        )


def _waiting(hooks: _Hooks, op: str, function: Function) -> Function:
    see = hooks.see

    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def watched(*args: Any, **kwargs: Any) -> Any:
        seen = see("python-call", op, "cuda")
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
        return _AskedFirst(found) if at == slice(None) else found

    def __setitem__(self, at: Any, given: Any) -> None:
        super().__setitem__(at, [self[0], *given] if at == slice(None) else given)


def _watch_sync_debug(hooks: _Hooks, undo: ExitStack) -> None:
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

    first = _AskedFirst
    not_compiled(first.insert, first.__getitem__, first.__setitem__)
    own = ("ignore", SimpleNamespace(match=match), Warning, None, 0)
    warnings.filters = first([own, *warnings.filters])
    undo.callback(_ask_no_more, own)
    torch.cuda.set_sync_debug_mode("warn")
    undo.callback(lambda: torch.cuda.set_sync_debug_mode(before))


def _ask_no_more(own: tuple[Any, ...]) -> None:
    warnings.filters = [each for each in warnings.filters if each is not own]


def _deaf_to_sync_debug() -> str:
    """Why torch's sync-debug mode may have seen more than was heard; empty where all was heard."""
    if not isinstance(warnings.filters, _AskedFirst):
        return "torch's sync-debug mode was not heard: the program replaced warnings.filters"
    if torch.cuda.get_sync_debug_mode() != WARNS:
        return "the program set torch's sync-debug mode itself"
    return ""


def _watch_places(hooks: _Hooks, undo: ExitStack) -> None:
    def tell(why: str) -> None:
        for one in hooks.listening:
            one.lost = f"where tensors would be on a GPU is not known: {why}"

    watch_places(TENSORS, lambda: any(one.runs_a_graph for one in hooks.listening), tell, undo)


TENSORS = TensorPlaces()
SYNC_DEBUG_HOOKS = _Hooks("sync_debug", _watch_sync_debug, on="cuda")
PLACES_HOOKS = _Hooks("tensor places", _watch_places, on="cpu")
ALL_HOOKS = (
    _Hooks("dispatch", _watch_dispatch),
    _Hooks("methods", _watch_methods),
    _Hooks("waits", _watch_waits, on="cuda"),
    SYNC_DEBUG_HOOKS,
    PLACES_HOOKS,
)


# ---------------------------------------------------------------- what is no read


def _made_on_the_host(node: torch.fx.Node, inputs: Collection[torch.fx.Node]) -> str:
    """Where what a node computes lies, if that comes from these inputs of its graph alone, from
    numbers that Dynamo took for constants and hands on as tensors of the CPU, and from factories
    that are given no device; else nothing."""
    met = {node}
    left = [node]
    place = HOST
    while left:
        here = left.pop()
        sources = [each for each in here.all_input_nodes if not _is_a_size(each)]
        if here.op in ("placeholder", "get_attr"):
            if here not in inputs:
                return ""
        elif not sources and here.target is not torch.scalar_tensor:
            if operator_of(here) not in FACTORIES or here.kwargs.get("device") is not None:
                return ""
            place = UNNAMED
        left.extend(each for each in sources if each not in met)
        met.update(sources)
    return place


def _is_a_size(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), int | torch.SymInt)


def _gives_way(tensor: torch.Tensor) -> bool:
    """As a Python number that torch made a tensor of does, to any other of its kind in type
    promotion."""
    if tensor.dim() or tensor.device.type != "cpu":
        return False
    narrow = {
        torch.float64: torch.float32,
        torch.int64: torch.int32,
        torch.complex128: torch.complex64,
    }
    other = narrow.get(tensor.dtype)
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
    return (
        HOST
        if isinstance(target, str | torch.device) and torch.device(target).type == "cpu"
        else None
    )


def _makes_an_array(stack: Stack) -> bool:
    """Whether the call that reads is Dynamo's own, between a hook and a line of the program."""
    called = takewhile(lambda frame: frame.f_code.co_filename.startswith(BETWEEN), stack)
    return any(frame.f_code.co_name == TO_NUMPY for frame in called)


# ---------------------------------------------------------------- within a compiled graph


# an operator's name, where it stands, and where what it reads lies
Captured = tuple[str, Frames, str]


@dataclass
class _Graph:
    """A compiled graph, and what in it comes to a read, in the order in which it runs; ``made``
    are the positions of arguments that are no tensors of the program's, ``computed``
    where each result lies that is made of these alone or by a factory without a device."""

    compile_id: str
    operators: tuple[Captured, ...] = ()
    made: tuple[int, ...] = ()
    returns: tuple[Frames, ...] = ()  # the lines of what made each of its results
    moves: bool = True  # a device is named in it
    computed: tuple[str, ...] = ()
    numbers: frozenset[int] = frozenset()  # the ids of ``made`` in the run that goes on
    at: Counter[str] = field(default_factory=Counter)  # by source

    @cached_property
    def on_a_cpu(self) -> tuple[Captured, ...]:
        return tuple(found for found in self.operators if found[0] in ON_A_CPU)

    @cached_property
    def _dispatched(self) -> tuple[Captured, ...]:
        return tuple(found for found in self.operators if found[0] not in ON_A_CPU)

    def begins(self, args: tuple[Any, ...]) -> None:
        self.at.clear()
        self.numbers = frozenset(id(args[index]) for index in self.made if index < len(args))

    def computes_on_the_host(self, args: tuple[Any, ...]) -> bool:
        """Whether all that it is given lies there, as the arrays of compiled code of numpy's do."""
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        return not self.moves and bool(tensors) and all(TENSORS.of(x) == HOST for x in tensors)

    def next_operator(self, source: str) -> Captured:
        """The captured operator of the next read. ``while_loop`` reads its predicate as often as it
        likes."""
        operators = self.operators
        if source != "sync-debug":
            operators = self._dispatched if source == "dispatch" else self.on_a_cpu
        if not operators:
            return "", (), ""
        at = self.at[source]
        self.at[source] += 1
        return operators[min(at, len(operators) - 1)]


class _Here(threading.local):
    """The graphs that this thread is running, one in the other: a read of another thread's is in
    none of them."""

    def __init__(self) -> None:
        self.stack: list[_Graph] = []
        # by the identity of what the last of them returned, the lines that made it
        self.returned: dict[int, Frames] = {}


class _RunningGraphs(InstalledGraphs):
    """Which compiled graph is running, and what Dynamo captured in it that reads; ``begins`` is
    told of each run."""

    name = Syncs.name
    needs = (INSTALL, COMPILE)

    def __init__(self, begins: Callable[[_Graph], None]) -> None:
        super().__init__()
        self._begins = begins
        self._here = _Here()

    @property
    def running(self) -> _Graph | None:
        return self._here.stack[-1] if self._here.stack else None

    def returned_at(self, tensor: torch.Tensor) -> Frames:
        """The lines that made a result of this thread's last graph; empty for any other tensor."""
        return self._here.returned.get(id(tensor), ())

    def capture(self, output: Any) -> _Graph:
        """Dynamo turns a Python float (a learning rate, a probability) into a tensor of the CPU
        that the graph reads again, and an array of numpy's into one that shares its memory: neither
        would lie on a GPU."""
        inputs = [node for node in output.graph.nodes if node.op == "placeholder"]
        numbers = {
            node: at
            for at, node in enumerate(inputs)
            if getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False)
        }
        operators = tuple(
            (name, frames_of(node), _device_of(node))
            for node in output.graph.nodes
            if node.op in ("call_function", "call_method")
            and (name := operator_of(node)) in CAPTURED
            and _reads(node, name)
            and not (node.args and node.args[0] in numbers)
        )
        returns = next(node.args[0] for node in output.graph.nodes if node.op == "output")
        moves = any(
            operator_of(node) in ("to", "cuda") or "device" in node.kwargs
            for node in output.graph.nodes
        )
        computed = tuple(_made_on_the_host(node, numbers) for node in returns)
        lines = tuple(map(frames_of, returns))
        made = tuple(numbers.values())
        return _Graph(compile_id_of(output), operators, made, lines, moves, computed)

    def around(self, output: Any, graph: Function, captured: Any) -> Function:
        if output.root_tx.f_code.co_filename.startswith(BY_TORCH):
            return graph  # where eager code calls torch.cond
        known = captured or _Graph(compile_id_of(output))
        here = self._here

        def watched(*args: Any, **kwargs: Any) -> Any:
            stack = here.stack
            known.begins(args)
            self._begins(known)
            stack.append(known)
            try:
                found = graph(*args, **kwargs)
            finally:
                stack.pop()
            if known.computes_on_the_host(args):
                TENSORS.derived(args, found)
            TENSORS.lie(zip(found, known.computed, strict=False))
            here.returned = dict(zip(map(id, found), known.returns, strict=False))
            return found

        return torch._dynamo.disable(watched)  # type: ignore[no-any-return,no-untyped-call]


def _device_of(node: torch.fx.Node) -> str:
    read = node.args[0] if node.args else None
    value = read.meta.get("example_value") if isinstance(read, torch.fx.Node) else None
    return value.device.type if isinstance(value, torch.Tensor) else ""


# As tensor_places reads a call in eager code: "cpu", or a variable that is called so.
_SAYS_CPU = re.compile(r"\.to\((?:torch\.device\()?[^()]*cpu", re.IGNORECASE)


def _reads(node: torch.fx.Node, name: str) -> bool:
    """An index reads only where it is a mask, ``where`` only with one argument, ``to`` only where
    its line says "cpu": a device in a variable is the CPU here, and a GPU where there is one."""
    if name in ("getitem", "__getitem__", "setitem"):
        index = node.args[1] if len(node.args) > 1 else None
        parts = index if isinstance(index, list | tuple) else [index]
        values = [
            part.meta.get("example_value") for part in parts if isinstance(part, torch.fx.Node)
        ]
        return any(
            isinstance(value, torch.Tensor) and value.dtype in (torch.bool, torch.uint8)
            for value in values
        )
    if name == "where":
        return len(node.args) + len(node.kwargs) == 1
    if name in ("bool", "int", "float"):  # of a tensor, the method only changes its type
        return node.op == "call_function"
    if name == "to":
        to_the_cpu = "cpu" in map(str, (*node.args[1:], *node.kwargs.values()))
        lines = [linecache.getline(at.file, at.line) for at in frames_of(node)[:1]]
        return to_the_cpu and all(_SAYS_CPU.search(line) for line in lines)
    return True
