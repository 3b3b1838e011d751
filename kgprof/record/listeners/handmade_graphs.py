"""CUDA graphs that the program records itself: what a replay reads that is no longer there, and
what outlives one.

A graph reads and writes the addresses that it was captured with. What it read is known from the
operators that ran in the capture and took a tensor that Python knew before it began: compiled code
allocates without an operator, in the graph's own memory. Under which variables of the program it
stood, is known from the frames above (local and global variables, and the attributes of what they
hold). At each replay, a storage
that is gone was freed; one that none of its variables holds any more, to which nothing was written
since the last replay, while one of them holds another tensor of its kind, was rebound. What only a
list, a dict or a frame that has returned held is followed until it is freed, and no further; a
write through ``.data`` or by an extension that tells no version is not seen.
"""

import gc
import inspect
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial, wraps
from itertools import islice, pairwise
from types import CodeType, FrameType, ModuleType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Parameter
from torch.utils._pytree import tree_leaves

from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground.python_stack import Stack, described, upwards
from kgprof.record.ground.source import Source, aside, replace
from kgprof.record.ground.tensor_memory import (
    OperatorWatch,
    answer,
    device_type,
    storage_id,
    storage_of,
    version_of,
)
from kgprof.record.listeners.call_index import CallIndex

WATCHED = 64  # graphs
GROWS = 3  # replays in a row after each of which there is one reference more
COPIES_ITS_INPUTS = "make_graphed_callables"  # to the tensors of the capture, before each replay
# what looks a variable up (None: it cannot any more), and its name
Holder = tuple[Callable[[], Any], str]


class HandmadeGraphs(Source):
    """Source. ``graphs`` is torch's class, and another in its place where no GPU is."""

    name = "CUDA graphs of the program"

    def __init__(
        self,
        calls: CallIndex,
        device: str,
        project: ProjectFiles,
        graphs: Any = torch.cuda.CUDAGraph,
    ) -> None:
        self._calls, self._device, self._project, self._class = calls, device, project, graphs
        self._made: dict[int, Any] = {}  # storages of captures, which their pool keeps
        self._known: list[_Graph] = []
        self._by_graph: weakref.WeakKeyDictionary[Any, _Graph] = weakref.WeakKeyDictionary()

    def records(self) -> tuple[m.HandmadeGraph, ...]:
        return tuple(graph.record() for graph in self._known)

    def listen(self, undo: ExitStack) -> None:
        begin, end, replay = (
            getattr(self._class, name) for name in ("capture_begin", "capture_end", "replay")
        )

        @wraps(begin)
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            found = begin(graph, *args, **kwargs)
            self._begun(graph, self._frames())
            return found

        @wraps(end)
        def capture_end(graph: Any) -> Any:
            made_callables = any(
                above.f_code.co_name == COPIES_ITS_INPUTS for above in upwards(sys._getframe(1))
            )
            self._ended(graph, () if made_callables else self._frames())
            return end(graph)

        @wraps(replay)
        def replayed(graph: Any) -> Any:
            self._replayed(graph, self._frames)
            return replay(graph)

        for hook in (capture_begin, capture_end, replayed):
            replace(self._class, hook.__name__, hook, undo)

    @aside
    def _begun(self, graph: Any, frames: Stack) -> None:
        self._by_graph.pop(graph, None)  # it may be captured again
        if frames and len(self._known) < WATCHED:
            known = self._by_graph[graph] = _Graph(
                self._made, self._device, self._calls.current, frames, self._frames
            )
            self._known.append(known)
            known.__enter__()  # type: ignore[no-untyped-call]

    @aside
    def _ended(self, graph: Any, frames: Stack) -> None:
        if (known := self._by_graph.get(graph)) is not None:
            known.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            known.find_holders(frames)

    @aside
    def _replayed(self, graph: Any, frames: Callable[[], Stack]) -> None:
        if (known := self._by_graph.get(graph)) is not None and known.counted(self._calls.current):
            known.replayed(frames())

    def _frames(self) -> Stack:
        """The project's, innermost first; none for a graph of torch's own, which is no business of
        the program's."""
        above = tuple(islice(upwards(sys._getframe(2)), 64))
        if any("/torch/_inductor/" in frame.f_code.co_filename for frame in above):
            return ()
        return tuple(frame for frame in above if self._project.holds(frame.f_code.co_filename))


class _Graph(OperatorWatch):
    """Sees the operators of the capture, and after it each replay."""

    def __init__(
        self,
        made: dict[int, Any],
        device: str,
        call: int,
        frames: Stack,
        above: Callable[[], Any],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made, self._device, self._above = made, device, above
        self._captured = (call, tuple(map(described, frames)))
        self._before = self._storages()
        self._inputs: dict[int, _Read] = {}  # by storage
        self._outputs: list[tuple[weakref.ref[torch.Tensor], m.Frame, list[int]]] = []
        self._replays: Counter[int] = Counter()  # by step
        self._seen = 0
        self._wrong: Counter[tuple[str, str, tuple[int, ...], m.Frame]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        frames = self._above()
        at = described(frames[0]) if frames else self._captured[1][0]
        taken = set()
        for tensor, storage in self._stored((args, kwargs)):
            taken.add(storage.cdata)
            if storage.cdata in self._before and storage.cdata not in self._made:
                self._inputs.setdefault(storage.cdata, _Read(storage, tensor, at))
        for tensor, storage in self._stored(found):
            if storage.cdata not in taken:
                self._made[storage.cdata] = storage
                self._outputs.append((weakref.ref(tensor), at, []))
        return found

    def _storages(self) -> dict[int, StorageWeakRef]:
        """Those of all tensors that Python knows."""
        known = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
        return {storage.cdata: storage for _, storage in self._stored(known)}

    def _stored(self, values: Any) -> Iterator[tuple[torch.Tensor, StorageWeakRef]]:
        for value in tree_leaves(values):
            if not isinstance(value, torch.Tensor) or device_type(value) != self._device:
                continue
            if (storage := storage_of(value)) is not None:
                yield value, StorageWeakRef(storage)  # type: ignore[no-untyped-call]

    def find_holders(self, frames: Stack) -> None:
        """At the end of the capture: the variables that hold what it read, and the results that
        somebody holds."""
        self._made.update(
            (cdata, storage)
            for cdata, storage in self._storages().items()
            if cdata not in self._before
        )
        self._before = {}
        self._outputs = [output for output in self._outputs if output[0]() is not None]
        for frame in frames:
            for name, value in [*_locals(frame).items(), *frame.f_globals.items()]:
                # isinstance and hasattr would run the program's code, and raise for a dead proxy
                kind = type(value)
                if issubclass(kind, torch.Tensor):
                    of_module = frame.f_globals.get(name) is value
                    look_up = (
                        partial(frame.f_globals.get, name)
                        if of_module
                        else _local(frame.f_code, name)
                    )
                    self._holds(value, look_up, name)
                elif (
                    kind.__dictoffset__
                    and kind.__weakrefoffset__
                    and not issubclass(kind, ModuleType | type)
                ):
                    for attribute, tensor in list(_attributes(value).items()):
                        if issubclass(type(tensor), torch.Tensor):
                            self._holds(
                                tensor,
                                _attribute(weakref.ref(value), attribute),
                                f"{name}.{attribute}",
                            )

    def _holds(self, tensor: torch.Tensor, look_up: Callable[[], Any], name: str) -> None:
        for _, storage in self._stored(tensor):
            read = self._inputs.get(storage.cdata)
            if read is not None and all(name != known for _, known in read.holders):
                read.holders.append((look_up, name))

    def counted(self, call: int) -> bool:
        """Whether this replay is among the first, which are looked at."""
        self._replays[call] += 1
        self._seen += 1
        return self._seen <= m.REPLAYS_WATCHED

    def replayed(self, frames: Stack) -> None:
        if not frames:
            return
        for read in self._inputs.values():
            what, name = read.lacks()
            if what:
                self._wrong[what, name, read.shape, read.at] += 1
        for reference, at, counts in self._outputs:
            tensor = reference()
            if tensor is not None and (storage := storage_id(tensor)) is not None:
                views = torch._C._storage_Use_Count(storage)
                counts.append(sys.getrefcount(tensor) + views)
                last = counts[-GROWS - 1 :]
                if len(last) > GROWS and all(before < after for before, after in pairwise(last)):
                    shape = answer(tensor, lambda one: tuple(one.shape)) or ()
                    self._wrong["kept", "", shape, at] += 1

    def record(self) -> m.HandmadeGraph:
        call, frames = self._captured
        wrong = (m.GraphTensor(*tensor, replays) for tensor, replays in self._wrong.items())
        return m.HandmadeGraph(
            captured_in=call, frames=frames, replays=dict(self._replays), wrong=tuple(wrong)
        )


class _Read:
    """Something that a capture read and did not make."""

    def __init__(self, storage: StorageWeakRef, tensor: torch.Tensor, at: m.Frame) -> None:
        self._storage = storage
        self.at = at
        self._dtype = answer(tensor, lambda one: one.dtype)
        self.shape: tuple[int, ...] = answer(tensor, lambda one: tuple(one.shape)) or ()
        self._tensor = weakref.ref(tensor)
        self._version = version_of(tensor)
        self.holders: list[Holder] = []

    def lacks(self) -> tuple[str, str]:
        """("freed" or "rebound", the variable); empty where a replay reads what the program holds,
        or may hold."""
        tensor = self._tensor()
        before = self._version
        self._version = None if tensor is None else version_of(tensor)
        held = [
            (one, name)
            for look_up, name in self.holders
            if type(one := look_up()) in (torch.Tensor, Parameter)
        ]
        alike = [
            name
            for one, name in held
            if tuple(one.shape) == self.shape and one.dtype == self._dtype
        ]
        if self._storage.expired():  # type: ignore[no-untyped-call]
            return "freed", next(iter(alike), "")
        holds = any(storage_id(one) == self._storage.cdata for one, _ in held)
        stale = self._version is not None and self._version == before
        return ("rebound", alike[0]) if alike and stale and not holds else ("", "")


def _locals(frame: FrameType) -> dict[str, Any]:
    """A copy: up to Python 3.12 a function's frame keeps the one that it gives, and with it what is
    deleted."""
    found = dict(frame.f_locals)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        for name in [name for name, value in found.items() if isinstance(value, torch.Tensor)]:
            frame.f_locals.pop(name, None)
    return found


def _local(code: CodeType, name: str) -> Callable[[], Any]:
    def look_up() -> Any:
        frame = next((one for one in upwards(sys._getframe(1)) if one.f_code is code), None)
        return None if frame is None else _locals(frame).get(name)

    return look_up


def _attributes(value: object) -> dict[str, Any]:
    """Empty where nobody can read them: a TypeVar of Python 3.12 has room for a `__dict__` and none
    to give."""
    try:
        found: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found


def _attribute(owner: weakref.ref[Any], name: str) -> Callable[[], Any]:
    return lambda: _attributes(held).get(name) if (held := owner()) is not None else None
