"""Which lines of the program call operators outside of compiled code, in the order of one step.

A trace has the operators and no lines. Python's profiling hook sees every call of a C function together with the line
that it is called from; what an operator of Python's own does (``a + b``, ``if tensor``) calls no function and is not
seen. So the reader matches call by call, and only where a step of the trace has as many of an operator as were seen.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import ExitStack
from types import FrameType
from typing import Any

import torch

from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record.call_index import CallIndex
from kgprof.record.python_stack import upwards
from kgprof.record.source import Source

MAX_CALLS = 2_000  # of operators, in one call of the workload
# Whose C functions are operators, beside a tensor's own methods.
_HOMES = frozenset(f"torch._C.{part}" for part in ("_nn", "_linalg", "_fft", "_special"))
_FUNCTIONS = "_VariableFunctionsClass."  # torch.cat and its kin: static methods, which have no owner
# Between a line of the program's and a C function: then compiled code, or the compiler, made the call.
_COMPILER = ("/torch/_dynamo/", "/torch/_inductor/", "/torch/_functorch/", "/torchinductor_", "<string>")

Seen = list[tuple[str, m.SourceLine]]


class EagerCalls(Source):
    """While entered, the operators that eager code calls on this thread, by call of the workload."""

    name = "eager calls"

    def __init__(self, calls: CallIndex, project: ProjectFiles) -> None:
        self._calls = calls
        self._project = project
        self._seen: dict[int, Seen] = defaultdict(list)

    def listen(self, undo: ExitStack) -> None:
        if sys.getprofile() is not None:
            self.unavailable = "the program has set a profiling hook of its own"
            return
        undo.callback(sys.setprofile, None)
        sys.setprofile(self._hook)

    def origins(self) -> tuple[m.KernelOrigin, ...]:
        """The operators of one call of the workload, without those that another call called otherwise."""
        steps = list(self._seen.values())
        if not steps or any(len(seen) >= MAX_CALLS for seen in steps):
            return ()
        lines: list[dict[str, list[m.SourceLine]]] = [defaultdict(list) for _ in steps]
        for seen, of_operator in zip(steps, lines, strict=True):
            for name, line in seen:
                of_operator[name].append(line)
        steady = {name for name, first in lines[0].items() if all(step.get(name) == first for step in lines)}
        kept = [(name, line) for name, line in steps[0] if name in steady]
        return tuple(
            m.KernelOrigin(compile_id="", kernel=f"aten.{name}", number=number, lines=(line,))
            for number, (name, line) in enumerate(kept, start=1)
        )

    def _hook(self, frame: FrameType, event: str, function: Any) -> None:
        """Notes the project's line that is nearest to the call of an operator; none inside of compiled code."""
        if event != "c_call" or not _is_operator(function):
            return
        seen = self._seen[self._calls.current]
        for above in upwards(frame if len(seen) < MAX_CALLS else None):
            code = above.f_code
            if self._project.holds(code.co_filename):
                line = m.SourceLine(file=code.co_filename, line=above.f_lineno, function=code.co_qualname)
                seen.append((function.__name__, line))
                return
            if any(part in code.co_filename for part in _COMPILER):
                return


def _is_operator(function: Any) -> bool:
    """A method of a tensor, a function of ``torch``, or one of the modules below ``torch._C`` that hold operators."""
    owner = getattr(function, "__self__", None)
    if issubclass(type(owner), torch.Tensor):
        return True
    if owner is None:
        return str(getattr(function, "__qualname__", "")).startswith(_FUNCTIONS)
    return getattr(owner, "__name__", "") in _HOMES
