"""Whether a line waits for the GPU so that the program can read a clock.

    torch.cuda.synchronize()        a wait
    t0 = time.perf_counter()        and the clock that it is for: the statement before or after it

A function that does nothing but wait belongs to the line that calls it. A wait at the end (or the
beginning) of a block belongs to what stands behind (before) the block as well: to a loop, say.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kgprof.reading.number_uses import is_on

# The last part of the name of a call that reads a clock: time.time, timeit.default_timer,
# torch.cuda.Event.elapsed_time, datetime.now.
READ_A_CLOCK = frozenset(
    (
        *("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns"),
        *("process_time", "process_time_ns", "default_timer", "elapsed_time", "now"),
    )
)
WAIT = "synchronize"
# What a function calls that only waits: whether there is anything to wait for.
ASKED_BEFORE = frozenset(
    (WAIT, "is_available", "is_initialized", "current_device", "current_stream", "device")
)
# What a benchmark does between its wait and its clock, and no work of a GPU.
PREPARE = frozenset(
    ("reset_peak_memory_stats", "reset_max_memory_allocated", "empty_cache", "collect")
)
# Files that wait in order to time what they are given, by the end of their path.
TIMERS = ("torch/utils/benchmark/utils/timer.py", "triton/testing.py")

_Block = list[ast.stmt]
_Loop = ast.For | ast.AsyncFor | ast.While
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A statement in the block that holds it, and the statement that the block is a part of."""

    block: _Block
    index: int
    owner: ast.stmt | None

    @property
    def statement(self) -> ast.stmt:
        return self.block[self.index]

    @property
    def previous(self) -> ast.stmt | None:
        return _first_that_counts(self.block[: self.index][::-1])

    @property
    def following(self) -> ast.stmt | None:
        return _first_that_counts(self.block[self.index + 1 :])


def _first_that_counts(statements: Sequence[ast.stmt]) -> ast.stmt | None:
    return next((each for each in statements if not _prepares(each)), None)


def _prepares(statement: ast.stmt) -> bool:
    """Tell whether a statement does nothing but prepare a measurement."""
    called = set(_called(statement))
    return isinstance(statement, ast.Expr) and bool(called) and called <= PREPARE


def waits_for_a_clock(calls: Sequence[tuple[ast.Module, int]]) -> bool:
    """Tell whether a wait is for a clock. ``calls``: file and line of it, then of each caller."""
    for tree, line in calls:
        places = _places(tree, line)
        if not places:
            return False
        if _is_beside_a_clock(places):
            return True
        if not _only_waits(tree, line):
            return False
    return False


def _is_beside_a_clock(places: Sequence[_Place]) -> bool:
    """``places``: the statement, then the ones around it, up to the function's own block."""
    before = after = True  # whether what stands there is next to the wait
    if _reads_a_clock(places[0].statement):
        return True
    for place in places:
        previous, following = place.previous, place.following
        if before and previous is not None and _ends_with_a_clock(previous):
            return True
        if after and following is not None and _begins_with_a_clock(following):
            return True
        before = before and previous is None
        after = after and following is None
        # Behind the last statement of a loop comes its first one.
        if after and isinstance(place.owner, _Loop) and _begins_with_a_clock(place.block[0]):
            return True
    return False


def _begins_with_a_clock(statement: ast.stmt) -> bool:
    if isinstance(statement, _Loop | ast.With | ast.AsyncWith | ast.Try):
        return _begins_with_a_clock(statement.body[0])
    return _reads_a_clock(statement)


def _ends_with_a_clock(statement: ast.stmt) -> bool:
    if isinstance(statement, _Loop | ast.With | ast.AsyncWith | ast.Try):
        return _ends_with_a_clock(statement.body[-1])
    return _reads_a_clock(statement)


def _reads_a_clock(statement: ast.stmt) -> bool:
    if isinstance(statement, _Scope):
        return False
    return not READ_A_CLOCK.isdisjoint(_called(statement))


def _called(tree: ast.AST) -> Iterator[str]:
    """Give the last part of the name of each call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute):
                yield function.attr
            elif isinstance(function, ast.Name):
                yield function.id


def _only_waits(tree: ast.Module, line: int) -> bool:
    """Tell whether the function around a line does nothing else."""
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_on(node, line)
    ]
    if not functions:
        return False
    innermost = max(functions, key=lambda node: node.lineno)
    called = {name for statement in innermost.body for name in _called(statement)}
    return WAIT in called and called <= ASKED_BEFORE


def _places(tree: ast.Module, line: int) -> tuple[_Place, ...]:
    """Find the statement of a line: of several the one that waits, else the first."""
    around: list[_Place] = []
    owner: ast.stmt | None = None
    blocks: list[_Block] = [tree.body]
    while blocks:
        here = [
            _Place(block=block, index=index, owner=owner)
            for block in blocks
            for index, statement in enumerate(block)
            if is_on(statement, line)
        ]
        if not here:
            break
        waiting = [place for place in here if WAIT in _called(place.statement)]
        place = (waiting or here)[0]
        owner = place.statement
        if isinstance(owner, _Scope):
            around = []
        else:
            around.insert(0, place)
        blocks = list(_blocks(owner))
    return tuple(around)


def _blocks(statement: ast.stmt) -> Iterator[_Block]:
    """Give the blocks of statements that a statement has: body, else, finally, handlers."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, [])
        if isinstance(block, list) and block:
            yield block
    for handler in getattr(statement, "handlers", []):
        yield handler.body
    for case in getattr(statement, "cases", []):
        yield case.body
