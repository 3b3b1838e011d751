"""Every frame that is offered to Dynamo, and what became of it: the one place that also sees what
is never compiled.

Dynamo's callback is an instance of ``convert_frame.CatchErrorsWrapper``; its class is patched, so
that callbacks made before and after are both seen and ``torch._dynamo.reset()`` changes nothing.
Nothing runs for a call that finds its compiled code, nor for a frame that was skipped before.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

import msgspec

from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground.kept_records import Lines
from kgprof.record.ground.python_stack import upwards
from kgprof.record.ground.source import Function, Source, aside, replace
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.guard_tree import checked

ROWS = 20_000  # beyond it frames are counted and not kept
TEXT = 4000  # characters of torch's words about one frame
STACK = 40  # of the innermost lines that torch was tracing when it raised
GUARDED = 100  # compilations whose guards are kept: more are recompiles without end
Fields = Mapping[str, Any]  # of OfferedFrame
FAULTS = ("error", "dispatch-mode")  # why a frame is skipped that could have been compiled

# torch calls through it whatever has no code of the program's own.
_WRAPPER = "wrap_inline.<locals>.inner"
_WRAPPER_FILE = "external_utils.py"

# Dynamo's counters of what it could not trace carry the full text; only what this frame added is
# wanted.
_UNIMPLEMENTED = "unimplemented"


class FrameHook(Source):
    """Rows of what was compiled anywhere, and of what was skipped or raised in the project's own
    files."""

    name = "frame hook"

    def __init__(self, calls: CallIndex, project: ProjectFiles) -> None:
        self.frames: list[m.OfferedFrame] = []
        self.guards: list[m.CompiledGuards] = []
        self.left_out = 0
        self._calls = calls
        self._project = project
        # Skipped for a fault: what runs inside them does so in consequence. By id, as a code
        # object's hash is that of its constants, and in Dynamo's bytecode a dict may be one.
        self._given_up: dict[int, CodeType] = {}

    def listen(self, undo: ExitStack) -> None:
        from torch._dynamo.convert_frame import CatchErrorsWrapper

        original = vars(CatchErrorsWrapper)["__call__"]
        replace(CatchErrorsWrapper, "__call__", self._watching(original), undo)

    def lines(self) -> Lines:
        """For the file of records."""
        yield from ({"frame": msgspec.to_builtins(frame)} for frame in self.frames)
        yield from ({"guards": msgspec.to_builtins(guards)} for guards in self.guards)
        if self.left_out:
            yield {"left_out": self.left_out, "limit_rows": ROWS}

    def _watching(self, original: Function) -> Function:
        from torch._dynamo.utils import counters

        def offered(this: Any, frame: Any, *arguments: Any) -> Any:
            code = frame.f_code
            before = _Counts(counters)
            wrapped = self._wraps(frame) or {}
            try:
                result = original(this, frame, *arguments)
            except Exception as error:
                self._refused(code, error, wrapped)
                raise
            self._judge(code, result, before, sys._getframe(1), wrapped)
            return result

        return offered

    @aside
    def _wraps(self, frame: Any) -> Fields:
        """What torch's wrapper calls, a module of torch.nn or a partial, and its arguments. Reads
        types and code objects only: the program's own ``__getattr__`` could raise."""
        code = frame.f_code
        if code.co_qualname != _WRAPPER or not code.co_filename.endswith(_WRAPPER_FILE):
            return {}
        called = frame.f_locals.get("fn")
        is_partial = isinstance(called, functools.partial)
        function = (
            called.func if is_partial else inspect.getattr_static(type(called), "forward", called)
        )
        is_method = isinstance(function, MethodType) or (function is not called and not is_partial)
        function = function.__func__ if isinstance(function, MethodType) else function
        if not isinstance(function, FunctionType):
            return {"wraps": type(called).__qualname__}
        name = (
            function.__qualname__ if called is function or is_partial else type(called).__qualname__
        )
        # a decorator such as torch.no_grad() passes on what it is given
        below = function.__dict__.get("__wrapped__")
        if not function.__code__.co_argcount and isinstance(below, FunctionType):
            function = below
        # self, or what the partial brings along
        given = len(called.args) if is_partial else int(is_method)
        arguments = function.__code__.co_varnames[given : function.__code__.co_argcount]
        return {
            "wraps": f"functools.partial of {name}" if is_partial else name,
            "arguments": arguments,
        }

    @aside
    def _refused(self, code: CodeType, error: Exception, wrapped: Fields) -> None:
        text = f"{type(error).__name__}: {error}"
        self._add(code, outcome="raised", text=text, stack=_traced(error), **wrapped)

    @aside
    def _judge(
        self,
        code: CodeType,
        result: Any,
        before: _Counts,
        caller: FrameType | None,
        wrapped: Fields,
    ) -> None:
        guarded = result.guarded_code
        # After a recompile limit Dynamo asks for cached code to run and for nothing more to be
        # compiled.
        action = str(result.frame_exec_strategy.cur_action)
        if guarded is not None:
            self._add(code, outcome="compiled", compile_id=str(guarded.compile_id), **wrapped)
            if len(self.guards) <= GUARDED:
                self.guards.append(checked(guarded.guard_manager, str(guarded.compile_id)))
        elif re.search(r"run_?only", action, re.IGNORECASE):
            self._add(code, outcome="run-only", text="\n".join(before.refused()), **wrapped)
        else:
            self._skipped(code, result, before, caller, wrapped)

    def _skipped(
        self,
        code: CodeType,
        result: Any,
        before: _Counts,
        caller: FrameType | None,
        wrapped: Fields,
    ) -> None:
        own = self._project.holds(code.co_filename)
        if not own and not wrapped:
            return
        why = _why_skipped(code, before)
        # torch never compiles its wrapper's one code object again, whatever module it calls
        if not own and why != "dispatch-mode":
            return
        text = getattr(result, "skip_reason", None) or ""
        text = "\n".join(filter(None, [*before.refused(), text]))
        codes = (above.f_code for above in upwards(caller if self._given_up else None))
        above = next((given_up.co_name for given_up in codes if id(given_up) in self._given_up), "")
        self._add(code, outcome="skipped", why=why, text=text, called_in=above, **wrapped)
        if why in FAULTS:
            self._given_up[id(code)] = code

    def _add(self, code: CodeType, *, outcome: str, text: str = "", **fields: Any) -> None:
        """``fields``: the others of OfferedFrame that are known."""
        if len(self.frames) >= ROWS:
            self.left_out += 1
            return
        self.frames.append(
            m.OfferedFrame(
                call=self._calls.current,
                function=code.co_name,
                file=code.co_filename,
                first_line=code.co_firstlineno,
                outcome=outcome,
                text=text[:TEXT],
                qualified=code.co_qualname if code.co_qualname != code.co_name else "",
                on_stack=sum(
                    name.startswith(m.ON_STACK) for name in code.co_varnames[: code.co_argcount]
                ),
                **fields,
            )
        )


class _Counts:
    """Dynamo's own counters before a frame, to tell what happened in it whichever words this torch
    has for it."""

    def __init__(self, counters: Mapping[str, Mapping[str, int]]) -> None:
        self.counters = counters
        self.frames = dict(counters.get("frames", {}))
        self._refused = dict(counters.get(_UNIMPLEMENTED, {}))

    def refused(self) -> Iterator[str]:
        """What Dynamo could not trace since then, in its own words with the GB id."""
        for text, times in self.counters.get(_UNIMPLEMENTED, {}).items():
            if times > self._refused.get(text, 0):
                yield str(text)


def _why_skipped(code: CodeType, before: _Counts) -> str:
    """Asked of torch's own conditions, in its order: 2.11 gives no reason, and wording changes."""
    begun, ended = (
        before.counters.get("frames", {}).get(key, 0) - before.frames.get(key, 0)
        for key in ("total", "ok")
    )
    if begun > ended:  # one more frame was begun than was ended well: an error was suppressed
        return "error"
    from torch._dynamo import config, trace_rules
    from torch.utils._python_dispatch import is_in_any_mode_without_ignore_compile_internals

    if trace_rules.check(code):
        return "skip-list"
    if config.disable:
        return "disabled"
    return "dispatch-mode" if is_in_any_mode_without_ignore_compile_internals() else ""


def _traced(error: BaseException) -> tuple[m.SourceLine, ...]:
    """The user's lines that torch was tracing; a backend fails at none of them."""
    if type(error).__name__ == "BackendCompilerFailed":
        return ()
    lines = list(getattr(error, "real_stack", None) or ())[-STACK:]
    return tuple(m.SourceLine(one.filename, one.lineno or 0, one.name) for one in lines)
