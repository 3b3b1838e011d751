"""The loop of the program that calls compiled functions, and where its iterations begin.

    for batch in data:       <- the loop: the innermost one around a call, in a file of the program
        first = model(batch)         call 1    an iteration begins
        second = model(2 * batch)    call 2    the same iteration

A call that stands at the same place as the last one, or before it, begins an iteration; nothing
does that happens inside one call. That holds for calls that every iteration makes once: a loop with
another one (under an ``if``, beside a ``continue``) is not followed.
"""

import ast
import builtins
import linecache
import sys
import threading
from collections.abc import Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any

from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground.python_stack import position_at, upwards

LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# What stands between a loop and a call that some iteration may leave out, or make several times.
NOT_ALWAYS = (
    ast.If,
    ast.IfExp,
    ast.BoolOp,
    ast.ExceptHandler,
    ast.Match,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
Position = tuple[int, int]  # line, and column in bytes


# The loop that a call stands in, and whether every iteration of it makes the call, and once.
Place = tuple[m.SourceLine, bool]


def _in_one_call(frame: FrameType, event: str, argument: object) -> None:
    """Marks the frame of a call, so that it is known again while the call runs.

    Python reads ``f_trace`` only of a program that is being traced, and then calls it.
    """


class Iterations:
    """Tells of each call of a compiled function whether it begins an iteration."""

    def __init__(self, project: ProjectFiles) -> None:
        self._project = project
        self._places: dict[tuple[CodeType, int], Place | None] = {}
        self.loop: m.SourceLine | None = None
        self._last = -1  # the instruction of the last call in it
        self._is_refused = False
        self.begun = 0
        self.calls = 0  # in the loop
        self._thread = threading.get_ident()

    @property
    def has_several_calls(self) -> bool:
        """Whether the iterations that are over made more than one call each."""
        return not self._is_refused and self.calls > 1 and self.calls >= 2 * (self.begun - 1)

    def begins(self, wrapper: FrameType) -> bool:
        """Whether this call, of the frame of torch's wrapper, is the first of an iteration."""
        found = None
        if threading.get_ident() == self._thread and sys.gettrace() is None:
            found = self._around(wrapper)
        if found is None:
            return False
        (loop, is_always_made), frame, inner = found
        if loop != self.loop:
            if self.loop is not None and self.has_several_calls:
                return False  # calls of another loop: they are not counted here
            self.loop, self._last, self._is_refused = loop, sys.maxsize, False
            self.begun = self.calls = 0
        self._is_refused = self._is_refused or not is_always_made
        self.calls += 1
        if inner.f_trace is _in_one_call:
            return False
        inner.f_trace_lines = False
        inner.f_trace = _in_one_call
        begins = frame.f_lasti <= self._last
        self._last = frame.f_lasti
        self.begun += begins
        return begins

    def _around(self, wrapper: FrameType) -> tuple[Place, FrameType, FrameType] | None:
        """Find the innermost loop of the program's own, the frame that it runs in, and the frame
        of what that calls."""
        inner = wrapper
        for frame in upwards(wrapper.f_back):
            code = frame.f_code
            if code.co_name not in m.COMPREHENSIONS and self._project.holds(code.co_filename):
                key = code, frame.f_lasti
                if key not in self._places:
                    self._places[key] = _place(frame)
                place = self._places[key]
                if place is not None:
                    return place, frame, inner
            inner = frame
        return None


def _place(frame: FrameType) -> Place | None:
    """Find the loop around what a frame is calling; None without one in its function."""
    first, last, start, end = position_at(frame)
    tree = _tree(frame.f_code.co_filename)
    if tree is None or first is None or last is None or start is None or end is None:
        return None
    path = _path(tree, (first, start), (last, end))
    kinds = [at for at, node in enumerate(path) if isinstance(node, LOOPS + FUNCTIONS)]
    if not kinds or not isinstance(loop := path[kinds[-1]], LOOPS):
        return None
    between = path[kinds[-1] + 1 :]
    if not between or between[0] not in loop.body:
        return None  # what it iterates over, its condition, its ``else``
    always = not any(isinstance(node, NOT_ALWAYS) for node in between[:-1])
    always = always and not any(isinstance(node, ast.Continue) for node in ast.walk(loop))
    call = path[-1]
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
        always = always and not hasattr(builtins, call.func.id)  # map() makes several calls
    code = frame.f_code
    return m.SourceLine(code.co_filename, loop.lineno, code.co_name), always


@cache
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def _path(tree: ast.AST, begin: Position, end: Position) -> list[ast.AST]:
    """List the nodes around an expression, the outermost first and its own last."""
    path = [tree]
    node = tree
    while True:
        around = (each for each in _parts(node) if _begin(each) <= begin and end <= _end(each))
        inner = next(around, None)
        if inner is None:
            return path
        path.append(inner)
        node = inner


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """List what a node consists of, as far as that has a place."""
    for part in ast.iter_child_nodes(node):
        if hasattr(part, "lineno"):
            yield part
        else:
            yield from _parts(part)


def _begin(node: Any) -> Position:
    return node.lineno, node.col_offset


def _end(node: Any) -> Position:
    return node.end_lineno, node.end_col_offset
