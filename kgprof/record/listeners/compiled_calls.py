"""Every call of what torch.compile returned, and whether a compiled graph ran in it.

``torch.compile(f)``, ``@torch.compile``, ``torch.compile(module)`` and ``module.compile()`` all end
in one wrapper of torch's. It asks for its callback through ``_callback_from_stance`` when it
begins, and puts the former one back through ``_maybe_set_eval_frame`` when it ends, both with
Dynamo off. Both names are replaced, so that nothing of what Dynamo traces changes; a compiled
function inside another one's graph is inlined and is no call.

A graph belongs to the innermost compiled callable that is open in its thread. A call in which none
ran, ran eagerly.
"""

import functools
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from types import CodeType, FrameType, MethodType
from typing import Any

import msgspec
import torch
from msgspec.structs import replace as replaced

from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground.kept_records import Lines
from kgprof.record.ground.module_paths import ModulePaths
from kgprof.record.ground.python_stack import innermost_of, line_of, upwards
from kgprof.record.ground.source import Source, aside, not_compiled, replace
from kgprof.record.listeners.call_index import CallIndex

CALLABLES = 1000  # beyond it calls are counted and their callable is not kept
LISTENERS = 3  # that may stand between the wrapper and us, itself counted
UNWRAPPED = 20  # functions around one another, at most
DEFAULT_STANCE = "default"
WRAPPER = "compile_wrapper"  # torch's name of the function that stands in for a compiled one


class RunsHere(threading.local):
    """How many compiled graphs have run in this thread, and the calls that are open in it. An
    attribute, as Dynamo would look at a function's frame."""

    count = 0

    def __init__(self) -> None:
        self.open: list[_Open] = []


@dataclass(kw_only=True, slots=True)
class _Callable:
    """What one compiled callable did so far."""

    described: m.CompiledCallable  # whose counts grow
    # The module, or what else tells two callables of one code object apart; never kept alive.
    subject: weakref.ref[Any] | None
    compilations: list[m.BegunCompilation] = field(default_factory=list)


@dataclass(kw_only=True, slots=True)
class _Open:
    """A call that has begun. ``runs``: graphs of the thread before it; ``inner``: of the compiled
    callables in it."""

    frame: int
    callable: _Callable | None
    call: int
    stance: str
    raising: BaseException | None
    runs: int
    inner: int = 0
    entered: bool = False


class CompiledCalls(Source):
    """One CompiledCallable for each; ``runs`` is counted up by whoever sees a graph run."""

    name = "compiled calls"

    def __init__(self, calls: CallIndex, project: ProjectFiles) -> None:
        self.runs = RunsHere()
        self._calls = calls
        self._project = project
        self._callables: dict[tuple[str, int, str, int], _Callable] = {}
        self._gone: list[_Callable] = []  # whose module is no more
        self._left_out = 0
        self._paths = ModulePaths()
        self._wrapper: CodeType | None = None
        self._eval_frame: Any = None  # torch's module, while it is listened to
        # Code objects that Dynamo had seen before, by id, as one made later may have the id of one
        # that is gone.
        self._known_to_dynamo: dict[int, Callable[[], CodeType | None]] = {}
        self._compiled_at: weakref.WeakKeyDictionary[Any, m.SourceLine] = (
            weakref.WeakKeyDictionary()
        )
        self._stance_set_at: dict[str, m.SourceLine] = {}
        # Methods of compiled modules that are not compiled, with the line that asks for one.
        self._plain: dict[tuple[Any, int, m.SourceLine], m.CompiledCallable] = {}
        self.asked = Counter[int]()  # a line of the program called torch.compile, by call

    # ---- what is written down

    def lines(self) -> Lines:
        """For the file of records. The first line says that calls were counted, also where there
        was none."""
        if self.unavailable:
            return
        yield {"compiled_calls": {"left_out": self._left_out, "asked": {**self.asked}}}
        for each in (*self._gone, *self._callables.values()):
            stance = next(iter(each.described.stances), "")
            counted = replaced(
                each.described,
                stance_set_at=self._stance_set_at.get(stance),
                compilations=tuple(each.compilations),
            )
            yield {"callable": msgspec.to_builtins(counted, str_keys=True)}
        for plain in self._plain.values():
            yield {"plain": msgspec.to_builtins(plain, str_keys=True)}

    # ---- what is listened to

    def listen(self, undo: ExitStack) -> None:
        from torch._dynamo import convert_frame, decorators, eval_frame

        constants = eval_frame._TorchDynamoContext.__call__.__code__.co_consts
        self._wrapper, *_ = (
            each for each in constants if isinstance(each, CodeType) and each.co_name == WRAPPER
        )
        self._eval_frame = eval_frame
        begins = eval_frame._callback_from_stance
        switches = eval_frame._maybe_set_eval_frame
        made = eval_frame.OptimizeContext.__init__
        sets_stance = vars(decorators)["_set_stance"]
        gives = eval_frame.OptimizedModule.__getattr__
        self._known_to_dynamo = {id(seen()): seen for seen in convert_frame.input_codes.seen}

        def callback_from_stance(callback: Any) -> Any:
            in_force = begins(callback)
            # those of torch._dynamo.disable and run
            if callback is not None and callback is not False:
                self._begin(sys._getframe(1))
            return in_force

        def maybe_set_eval_frame(callback: Any) -> Any:
            caller = sys._getframe(1)
            if caller.f_code is self._wrapper:
                self._switched(caller)
            return switches(callback)

        def init(context: Any, *args: Any, **kwargs: Any) -> None:
            made(context, *args, **kwargs)
            self._note_context(context)

        def set_stance(stance: Any) -> Any:
            self._note_stance(stance)
            return sets_stance(stance)

        def getattribute(module: Any, name: str) -> Any:
            found = gives(module, name)
            if type(found) is MethodType and isinstance(found.__self__, torch.nn.Module):
                self._note_method(found, module)
            return found

        not_compiled(getattribute)
        # as the function that it replaces
        set_stance._dynamo_forbidden = True  # type: ignore[attr-defined]
        replace(eval_frame, "_callback_from_stance", callback_from_stance, undo)
        replace(eval_frame, "_maybe_set_eval_frame", maybe_set_eval_frame, undo)
        replace(eval_frame.OptimizeContext, "__init__", init, undo)
        replace(decorators, "_set_stance", set_stance, undo)
        replace(eval_frame.OptimizedModule, "__getattr__", getattribute, undo)

    def compiling(self, compile_id: str) -> None:
        """torch begins a compilation: it belongs to the callable that is open."""
        stack = self.runs.open
        if stack and stack[-1].callable is not None:
            began = m.BegunCompilation(call=self._calls.current, compile_id=compile_id)
            compilations = stack[-1].callable.compilations
            if compilations[-1:] != [began]:  # restarts of one attempt
                compilations.append(began)

    @aside
    def _note_context(self, context: Any) -> None:
        """The line on which the program asks torch to compile something."""
        if (place := line_of(innermost_of(self._project, sys._getframe(3)))) is not None:
            self._compiled_at[context] = place
            self.asked[self._calls.current] += 1

    @aside
    def _note_stance(self, stance: Any) -> None:
        """The line that sets it. A decorator makes its stance again in each call, on no line of the
        program's."""
        frame = sys._getframe(3)
        cloned = any(above.f_code.co_name == "clone" for above in islice(upwards(frame), LISTENERS))
        if stance.stance == DEFAULT_STANCE or cloned:
            return
        if (place := line_of(innermost_of(self._project, frame))) is not None:
            self._stance_set_at.setdefault(stance.stance, place)

    @aside
    def _note_method(self, method: MethodType, compiled: Any) -> None:
        """torch hands out the plain module's own."""
        caller = innermost_of(self._project, sys._getframe(3))
        line = line_of(caller)
        if caller is None or line is None:
            return
        key = method.__func__, id(method.__self__), line
        known = self._plain.get(key) or self._plain_method(method, compiled, caller)
        if known is not None and len(self._plain) < CALLABLES:
            self._plain[key] = known
            known.calls[self._calls.current] = known.calls.get(self._calls.current, 0) + 1

    def _plain_method(
        self, method: MethodType, compiled: Any, caller: FrameType
    ) -> m.CompiledCallable | None:
        """Only one that uses layers of its module, none of which is compiled."""
        module: Any = method.__self__
        code = _code_of(method)
        if code is None or hasattr(method, "_torchdynamo_orig_callable"):
            return None
        layers = [layer for name in code.co_names if (layer := module._modules.get(name))]
        if not layers or any(_is_compiled(part) for layer in layers for part in layer.modules()):
            return None
        return m.CompiledCallable(
            number=len(self._plain),
            function=code.co_name,
            module=type(module).__name__,
            path=self._paths.path(module, caller.f_globals),
            definition=_place(code),
            offered=_place(code),
            compiled_at=self._compiled_at.get(compiled.dynamo_ctx),
            called_at=line_of(caller),
        )

    # ---- a call

    @aside
    def _begin(self, caller: FrameType) -> None:
        """``caller``: the wrapper's frame, or that of another listener which was called by it."""
        wrapper: FrameType | None = caller
        for _ in range(LISTENERS):
            if wrapper is None or wrapper.f_code is self._wrapper:
                break
            wrapper = wrapper.f_back
        if wrapper is None or wrapper.f_code is not self._wrapper:
            return
        opened = _Open(
            frame=id(wrapper),
            callable=self._callable_of(wrapper),
            call=self._calls.current,
            stance=self._eval_frame._stance.stance,
            raising=sys.exc_info()[1],
            runs=self.runs.count,
        )
        self.runs.open.append(opened)

    @aside
    def _switched(self, wrapper: FrameType) -> None:
        """Called twice in each call that began: to turn Dynamo on, and to put things back at the
        end."""
        stack = self.runs.open
        if not stack or stack[-1].frame != id(wrapper):
            return  # torch calls the function plainly: inside of export, say
        opened = stack[-1]
        if not opened.entered:
            opened.entered = True
            return
        stack.pop()
        ran = self.runs.count - opened.runs
        if stack:
            stack[-1].inner += ran
        # What is handled further out is in exc_info as well.
        raised = sys.exc_info()[1] is not opened.raising
        if opened.callable is not None:
            _count(opened.callable.described, opened, eager=ran == opened.inner, raised=raised)

    def _callable_of(self, wrapper: FrameType) -> _Callable | None:
        variables = wrapper.f_locals
        function = variables["fn"]
        arguments = variables["args"]
        code = function.__code__
        subject = _subject(function, arguments)
        # By place: a function that is made from text in each call has a new code object every time.
        key = (
            code.co_filename,
            code.co_firstlineno,
            code.co_name,
            0 if subject is None else id(subject),
        )
        known = self._callables.get(key)
        if known is not None and (known.subject is None or known.subject() is subject):
            return known
        if known is not None:
            self._gone.append(self._callables.pop(key))
        if len(self._callables) + len(self._gone) >= CALLABLES:
            self._left_out += 1
            return None
        made = self._new(function, subject, wrapper, variables["self"])
        self._callables[key] = made
        return made

    def _new(self, function: Any, subject: object, wrapper: FrameType, context: Any) -> _Callable:
        code, module, path = function.__code__, "", ""
        caller = innermost_of(self._project, wrapper.f_back)
        definition = _code_of(function) or code
        if isinstance(subject, torch.nn.Module):
            module = type(subject).__name__
            path = self._paths.path(subject, caller.f_globals if caller else {})
            definition = _code_of(subject.forward) or code
        elif subject is not None:
            definition = _code_of(subject) or code
        # Dynamo skips a module's __call__, and sees the forward that it calls.
        offered = definition if code.co_filename.endswith("nn/modules/module.py") else code
        seen = self._known_to_dynamo.get(id(offered))
        described = m.CompiledCallable(
            number=len(self._callables) + len(self._gone),
            function=_name(definition, subject),
            module=module,
            path=path,
            definition=_place(definition),
            offered=_place(offered),
            compiled_at=self._compiled_at.get(context),
            is_static=getattr(context, "_dynamic", None) is False,
            called_at=line_of(caller),
            compiled_before=seen is not None and seen() is offered,
        )
        return _Callable(described=described, subject=_reference(subject))


def _count(counts: m.CompiledCallable, opened: _Open, *, eager: bool, raised: bool) -> None:
    call = opened.call
    counts.calls[call] = counts.calls.get(call, 0) + 1
    if raised:
        counts.raised[call] = counts.raised.get(call, 0) + 1
    elif eager:
        counts.eager[call] = counts.eager.get(call, 0) + 1
        if opened.stance != DEFAULT_STANCE:
            under = counts.stances.setdefault(opened.stance, {})
            under[call] = under.get(call, 0) + 1


def _subject(function: Any, arguments: tuple[Any, ...]) -> object:
    """The module (or other object) that a call is about; None where the function alone says it."""
    owner = getattr(function, "__self__", None)
    code = function.__code__
    if isinstance(owner, torch.nn.Module):
        return owner
    # torch's own function around a module or a partial
    if code.co_filename.endswith("_dynamo/external_utils.py"):
        for cell in function.__closure__ or ():
            if callable(cell.cell_contents):
                return _inner(cell.cell_contents)
    is_method = code.co_varnames[:1] == ("self",)
    if owner is None and is_method and arguments and isinstance(arguments[0], torch.nn.Module):
        return arguments[0]
    return None


def _inner(target: Any) -> object:
    """The module of a bound ``__call__``, else what it is."""
    if isinstance(target, torch.nn.Module):
        return target
    owner = getattr(target, "__self__", None)
    return owner if isinstance(owner, torch.nn.Module) else target


def _is_compiled(module: torch.nn.Module) -> bool:
    return "_orig_mod" in module._modules or module._compiled_call_impl is not None


def _code_of(function: Any) -> CodeType | None:
    """Of the function that torch.compile, functools.wraps or functools.partial stand around as
    well."""
    for _ in range(UNWRAPPED):
        inner = getattr(function, "_torchdynamo_orig_callable", None) or getattr(
            function, "__wrapped__", None
        )
        if isinstance(function, functools.partial):
            inner = function.func
        if inner is None:
            break
        function = inner
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _name(definition: CodeType, subject: object) -> str:
    if (
        subject is not None
        and not isinstance(subject, torch.nn.Module)
        and _code_of(subject) is None
    ):
        # a builtin, which has no code
        return str(getattr(subject, "__name__", type(subject).__name__))
    return definition.co_qualname.replace("<locals>.", "")


def _place(code: CodeType) -> m.SourceLine:
    return m.SourceLine(code.co_filename, code.co_firstlineno, code.co_name)


def _reference(subject: object) -> weakref.ref[Any] | None:
    try:
        return None if subject is None else weakref.ref(subject)
    except TypeError:  # of a class with __slots__, or a builtin: its id has to do
        return None
