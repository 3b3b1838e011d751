"""Which lines of the program ask for the operators that run outside of compiled code, in the order
of one step.

A trace has the operators and no lines. Here every operator that torch dispatches is seen beneath
autograd, with Python's stack above it; one of a backward has no stack of its own on a GPU, and on a
CPU only that of ``backward()``, so it gets the lines of the forward operator with its node's
sequence number. The reader matches operator by operator.
"""

import os
import sys
import threading
from collections import Counter, defaultdict
from contextlib import ExitStack
from functools import cache
from types import FrameType
from typing import Any, cast

import torch
from msgspec.structs import replace as replaced
from torch.utils._python_dispatch import _get_current_dispatch_mode

from kgprof import model as m
from kgprof.reading.project import TOOLS, ProjectFiles
from kgprof.record.ground.python_stack import upwards
from kgprof.record.ground.source import Source, aside
from kgprof.record.ground.tensor_memory import OperatorWatch
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.kernel_provenance import Origins, innermost

MAX_CALLS = 20_000  # of operators, in one call of the workload
# Between a line and an operator: then compiled code, or the compiler, made the call.
_COMPILER = ("/torch/_dynamo/", "/torch/_inductor/", "/torch/_functorch/")
# from an operator to the mode
_OWN_WAY = ("/torch/_dynamo/", "/torch/_compile.py", "/torch/_ops.py")
_WRAPPER = "/torch/_dynamo/eval_frame.py"
_ENGINE = "_engine_run_backward"  # in which the caller of ``backward()`` waits

NO_STAGES = m.Skipped("kernels are not compiled a second time while a program waits")
Lines = tuple[m.SourceLine, ...]

_PLAIN = (int, str, torch.dtype, torch.device, torch.memory_format, torch.layout)

GRADIENTS = "aten::add"  # autograd adds two of one tensor with it, in place where no mode looks on


class EagerCalls(Source):
    """While entered, the operators that eager code calls on this thread and in its backward, by
    call of the workload.

    On a torch mode, which changes no value. It is taken off when it is left, unless the program has
    put one of its own above, or is inside a compiled call, where no mode may be taken off: then it
    stays and sees nothing.
    """

    name = "eager calls"

    def __init__(self, calls: CallIndex, project: ProjectFiles) -> None:
        self._calls = calls
        self._project = project
        self._seen: dict[int, list[tuple[str, Lines]]] = defaultdict(list)
        self._given: Counter[str] = Counter()  # the same with the types of what they are given
        self._forward: dict[int, Lines] = {}  # by the sequence number of the autograd node
        self._whose = cache(self._of_file)
        self._thread = 0

    def listen(self, undo: ExitStack) -> None:
        if not hasattr(torch._C, "_current_autograd_node") or not hasattr(
            torch.autograd, "_get_sequence_nr"
        ):
            self.unavailable = "this torch does not say which autograd node an operator belongs to"
            return
        if _get_current_dispatch_mode() is not None:
            self.unavailable = "the program has set a TorchDispatchMode of its own"
            return
        if _in_a_compiled_call():
            self.unavailable = (
                "a step begins inside a call of a compiled function, where no torch mode can be set"
            )
            return
        mode = _Mode(self)
        self._seen.clear()  # of a window that began again
        self._given.clear()
        self._forward.clear()
        self._thread = threading.get_ident()

        def leave() -> None:
            mode.calls = None
            if _get_current_dispatch_mode() is mode and not _in_a_compiled_call():
                cast(Any, mode).__exit__(None, None, None)

        undo.callback(leave)
        cast(Any, mode).__enter__()

    def origins(self) -> tuple[m.KernelOrigin, ...]:
        """The operators of one call of the workload, without those that another call called
        otherwise; one entry for an operator that is always called from the same lines."""
        steps = list(self._seen.values())
        if not steps or any(len(seen) >= MAX_CALLS for seen in steps):
            return ()
        of_operator: list[dict[str, list[Lines]]] = [defaultdict(list) for _ in steps]
        for seen, by_name in zip(steps, of_operator, strict=True):
            for name, lines in seen:
                by_name[name].append(lines)
        # An operator whose calls differ from step to step may still be called from one line in all
        # of them.
        every = {
            name: {lines for step in of_operator for lines in step[name]} for name, _ in steps[0]
        }
        steady = {
            name
            for name, first in of_operator[0].items()
            if all(step[name] == first for step in of_operator)
        }
        kept = [
            (name, lines) for name, lines in steps[0] if name in steady and len(every[name]) > 1
        ]
        kept += [(name, next(iter(lines))) for name, lines in every.items() if len(lines) == 1]
        return tuple(
            m.KernelOrigin(
                compile_id="",
                kernel=f"torch.ops.{name.replace('::', '.')}",
                number=number,
                lines=lines,
            )
            for number, (name, lines) in enumerate(kept, start=1)
        )

    def beside(self, compiled: Origins, stages: m.TritonStages | m.Skipped = NO_STAGES) -> Origins:
        """The origins of compiled code, with those of what is called outside of it."""
        seen = self.origins()
        if isinstance(compiled, m.KernelOrigins):
            origins = (*compiled.origins, *seen)
            return replaced(compiled, origins=origins, stages=stages, eager=self._per_step())
        if seen:
            eager = self._per_step()
            return m.KernelOrigins(origins=seen, graphs=(), stages=stages, eager=eager)
        many = any(len(each) >= MAX_CALLS for each in self._seen.values())
        seen_none = (
            f"a step calls more than {MAX_CALLS:,} operators"
            if many
            else "no step's operators were seen"
        )
        why = self.unavailable or seen_none
        return m.Skipped(f"{compiled.reason}; {why}")

    def _per_step(self) -> tuple[tuple[str, float], ...] | m.Skipped:
        if self.unavailable:
            return m.Skipped(self.unavailable)
        if len(self._given) >= MAX_CALLS or any(len(s) >= MAX_CALLS for s in self._seen.values()):
            return m.Skipped(f"a step calls more than {MAX_CALLS:,} operators")
        steps = max(1, len(self._seen))
        return tuple((text, number / steps) for text, number in sorted(self._given.items()))

    @aside
    def note(self, operator: str, frame: FrameType, given: tuple[Any, ...]) -> None:
        """``frame``: the one that dispatched; ``given``: the operator's arguments. Compiled code's
        operators are Inductor's to explain."""
        seen = self._seen[self._calls.current]
        node: Any = torch._C._current_autograd_node()
        if (
            len(seen) >= MAX_CALLS
            or (lines := self._lines(frame, in_backward=node is not None)) is None
        ):
            return
        in_engine = torch._C._current_graph_task_id() != -1
        # no hook of the program's
        if in_engine and operator == GRADIENTS and not self._lines(frame, in_backward=True):
            operator = m.GRADIENTS_ADDED
        if node is None and not in_engine:
            # The node of an operator is made before the operator runs; the first one that runs is
            # the operator's own.
            self._forward.setdefault(cast(Any, torch.autograd)._get_sequence_nr() - 1, lines)
        # else the program's own derivative, or a forward that is run again
        elif node is not None and not lines:
            lines = self._forward.get(node._sequence_nr(), ())
        # a gradient is accumulated or reduced: at ``backward()``, where another thread may wait for
        # it
        if not lines:
            here = threading.get_ident() == self._thread
            lines = self._lines(frame if here else sys._current_frames().get(self._thread)) or ()
        seen.append((operator, lines))
        types = ", ".join(filter(None, map(_typed, given)))
        self._given[f"{operator}({types})"] += 1

    def _lines(self, frame: FrameType | None, *, in_backward: bool = False) -> Lines | None:
        """The project's nearest line, then a library's where one stands below it; None within
        compiled code. Those that autograd runs, and not who waits for it, ``in_backward``."""
        library: Lines = ()
        on_the_way = True
        for above in upwards(frame):
            code = above.f_code
            if in_backward and code.co_name == _ENGINE:
                break
            on_the_way = on_the_way and any(part in code.co_filename for part in _OWN_WAY)
            if code.co_filename.startswith("<eval_with_key>"):
                return self._of_graph(above)
            whose = "torch" if on_the_way else self._whose(code.co_filename)
            if whose == "torch" or (library and whose != "project"):
                continue
            if whose == "compiler":
                return None
            line = m.SourceLine(code.co_filename, above.f_lineno, code.co_qualname)
            if whose == "project":
                return (line, *library)
            library = (line,)
        return library

    def _of_graph(self, frame: FrameType) -> Lines:
        """A backend that generates no code runs the graph as FX wrote it: its nodes know the lines
        that they are of."""
        module = frame.f_locals.get("self")
        numbers = getattr(module, "_lineno_map", None) or {}
        first = getattr(module, "_prologue_start", None) or 0
        if (number := numbers.get(frame.f_lineno - first)) is None:
            return ()
        text = list(cast(Any, module).graph.nodes)[number].stack_trace or ""
        line = innermost(text, self._project)
        return () if line is None else (line,)

    def _of_file(self, file: str) -> str:
        generated = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or "/torchinductor_"
        if generated in file or any(part in file for part in _COMPILER):
            return "compiler"
        if self._project.holds(file):
            return "project"
        return "torch" if self._project.package(file)[0] in TOOLS else "library"


def _typed(value: Any) -> str:
    """``float32[8, 4]``, a whole number, a word, a dtype, device or layout, and a list of them. Of
    a fraction that it is one: it may be drawn, or read from a tensor in another last digit."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{[*value.shape]}"
    if isinstance(value, list | tuple):
        within = list(filter(None, map(_typed, value)))
        return f"[{', '.join(within)}]" * bool(within)
    if isinstance(value, _PLAIN):
        return str(value).removeprefix("torch.")
    return "a float" if isinstance(value, float) else ""


def _in_a_compiled_call() -> bool:
    """There torch puts its dispatch keys back when the call returns, with those of a mode that has
    come or gone."""
    return any(above.f_code.co_filename.endswith(_WRAPPER) for above in upwards(sys._getframe()))


class _Mode(OperatorWatch):
    supports_higher_order_operators = True  # they are passed on like any other

    def __init__(self, calls: EagerCalls) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # None: it was left, and stands there for the program's own mode above it
        self.calls: EagerCalls | None = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.calls is not None and (schema := getattr(func, "_schema", None)) is not None:
            given = (*args, *(kwargs or {}).values())
            self.calls.note(schema.name, sys._getframe(1), given)
        return func(*args, **(kwargs or {}))
