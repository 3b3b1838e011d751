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
        steps: list[dict[str, list[m.SourceLine]]] = []
        for seen in self._seen.values():
            by_operator: dict[str, list[m.SourceLine]] = defaultdict(list)
            for name, line in seen:
                by_operator[name].append(line)
            steps.append(by_operator)
        if not steps or any(len(seen) >= MAX_CALLS for seen in self._seen.values()):
            return ()
        first = steps[0]
        steady = {name for name, lines in first.items() if all(step.get(name) == lines for step in steps)}
        kept = [(name, line) for name, line in next(iter(self._seen.values())) if name in steady]
        return tuple(
            m.KernelOrigin(compile_id="", kernel=f"aten.{name}", number=number, lines=(line,))
            for number, (name, line) in enumerate(kept, start=1)
        )

    def _hook(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and _is_operator(function):
            seen = self._seen[self._calls.current]
            if len(seen) < MAX_CALLS and (line := self._line(frame)) is not None:
                seen.append((function.__name__, line))

    def _line(self, frame: FrameType | None) -> m.SourceLine | None:
        """The project's line that is nearest to the call; None inside of compiled code."""
        while frame is not None:
            file = frame.f_code.co_filename
            if self._project.holds(file):
                return m.SourceLine(file=file, line=frame.f_lineno, function=frame.f_code.co_qualname)
            if any(part in file for part in _COMPILER):
                return None
            frame = frame.f_back
        return None


def _is_operator(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    if issubclass(type(owner), torch.Tensor):
        return True
    if owner is None:
        return str(getattr(function, "__qualname__", "")).startswith(_FUNCTIONS)
    return getattr(owner, "__name__", "") in _HOMES
