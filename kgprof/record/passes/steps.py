"""What a step of a script is, when the script does not say: six ways to count, and the choice
between them.

All of them are counted while the program runs, because which of them it has is known only then.
Everything that a source writes down is labelled with the number of *marks* so far, of whichever
kind; when the choice is made, a label becomes the number of the step.
"""

import os
import sys
import time
import weakref
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from enum import IntEnum
from itertools import chain, pairwise
from types import CodeType, FrameType
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

import kgprof
from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground.python_stack import upwards
from kgprof.record.ground.source import Source, aside, not_compiled, preceded, replace
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.iterations import Iterations
from kgprof.record.passes.timing import captures_a_graph, compilations_seen

# beyond it the recording stops: the rows of each graph and of each read grow with them
MARKS = 200_000
# steps of others in a row, after which the first optimizer is taken to have done its work
OTHERS_IN_A_ROW = 100
# below it the calls themselves say more: the first iteration compiles
FEWEST_ITERATIONS = 5


Numbering = Callable[[int], int]  # from a label to the number of its step


class Kind(IntEnum):
    """In the order in which they are preferred."""

    EXPLICIT = 0  # the program calls kgprof.step(), which begins a step
    # the first optimizer that steps, or what takes its place; its step ends one, and so does the
    # replay of a CUDA graph that was recorded with its step in it
    OPTIMIZER = 1
    # a call of compiled code that is the first in an iteration of the loop around it, where an
    # iteration makes several; it begins one, and is a call like the next kind's
    ITERATION = 2
    REGION = 3  # a call of compiled code from code that is not compiled, which begins one
    REPLAY = 4  # a replay of a CUDA graph that the program recorded itself, which begins one
    # a call of an nn.Module from no other nn.Module, which begins one, where nothing is compiled or
    # trained
    MODULE = 5

    @property
    def words(self) -> str:
        return (
            "a call of kgprof.step()",
            "an optimizer step",
            m.ITERATION,
            *m.CALLS_AS_STEPS,
        )[self]


class Steps(CallIndex):
    """``current`` counts marks of every kind from 0 on; ``numbers`` turns it into steps of one
    kind."""

    __slots__ = (
        "_began_in",
        "_compiled",
        "_kinds",
        "_on_mark",
        "_own_ns",
        "_times",
        "counts",
        "fault",
        "has_iterations",
        "of_others_ns",
        "paused",
    )

    def __init__(self, on_mark: Callable[[Kind], None] = lambda kind: None) -> None:
        super().__init__()
        self._kinds = bytearray()
        # ns of time.perf_counter, less what was spent in ``on_mark`` before
        self._times = array("q")
        self._compiled = array("q")
        self._own_ns = 0
        self._on_mark = on_mark
        self._began_in = os.getpid()
        self.counts = [0 for _ in Kind]
        self.paused = False
        self.has_iterations = False  # that make several calls each
        self.of_others_ns = array("q")  # when optimizers stepped that are not counted
        self.fault: Exception | None = None  # of ``on_mark``, to be told when the program has ended

    def mark(self, kind: Kind) -> None:
        """Nothing in a process that was forked from the one that is watched, nor while a CUDA graph
        is recorded, in which no GPU work is done: the next call is the next mark."""
        if self.paused or captures_a_graph() or os.getpid() != self._began_in:
            return
        now = time.perf_counter_ns()
        self._times.append(now - self._own_ns)
        self._compiled.append(compilations_seen())
        self._kinds.append(kind)
        kinds = (Kind.REGION, kind) if kind is Kind.ITERATION else (kind,)
        for each in kinds:
            self.counts[each] += 1
        self.current += 1
        try:
            for each in kinds:
                self._on_mark(each)
        except Exception as error:  # noqa: BLE001  the program that makes the mark must not see it
            self.fault = error
        # writing and the profiler's start are no part of a step
        self._own_ns += time.perf_counter_ns() - now

    def forget_iterations(self) -> None:
        """What has begun an iteration so far is a call like any other."""
        self._kinds = self._kinds.replace(bytes([Kind.ITERATION]), bytes([Kind.REGION]))
        self.counts[Kind.ITERATION] = 0

    def now_ns(self) -> int:
        """On the clock of ``boundaries``."""
        return time.perf_counter_ns() - self._own_ns

    @property
    def full(self) -> bool:
        return len(self._kinds) >= MARKS

    @property
    def chosen(self) -> Kind | None:
        """The first kind that there was any mark of, in the order of preference."""
        return next((kind for kind in Kind if self._is_counted(kind)), None)

    def _is_counted(self, kind: Kind) -> bool:
        """Whether there are any; iterations of one call each are nothing beside their calls."""
        if kind is not Kind.ITERATION:
            return self.counts[kind] > 0
        return self.has_iterations and self.counts[kind] >= FEWEST_ITERATIONS

    def count(self, kind: Kind) -> int:
        """How many marks there were of it."""
        return self.counts[kind] if self._is_counted(kind) else 0

    @property
    def reported(self) -> Kind | None:
        """The chosen kind; None where its only mark ends a step of which the beginning is not
        known."""
        return self.chosen if self.chosen is not Kind.OPTIMIZER or self.ended() else None

    def numbers(self) -> Numbering:
        """From a label to the number of its step, -1 before the first one."""
        kind = self.reported
        if kind is None:
            return lambda label: m.BEFORE_THE_FIRST
        at = self._at(kind)
        ahead = self._ahead(kind)

        def number(label: int) -> int:
            passed = bisect_right(at, label)
            return passed - 1 + ahead if label >= 0 else m.BEFORE_THE_FIRST

        return number

    def boundaries(self) -> tuple[int, ...]:
        """When the first step began, and where each later one did; the end of the last only where a
        mark ends steps."""
        return self.at(self._times)

    def at(self, noted: Sequence[int]) -> tuple[int, ...]:
        """What was noted at each of these boundaries; ``noted``: at every mark."""
        kind = self.reported
        return () if kind is None else tuple(noted[label] for label in self._labels(kind))

    def of_optimizers_ns(self) -> list[int]:
        """When optimizers stepped, and when the first of these steps began; none without any."""
        if not self.counts[Kind.OPTIMIZER] and not self.of_others_ns:
            return []
        counted = (self._times[label] for label in self._labels(Kind.OPTIMIZER))
        return sorted((*counted, *self.of_others_ns))

    def compiled_in(self) -> tuple[int, ...]:
        """The steps in which torch compiled something, up to now: what they take is not what a step
        takes."""
        seen = (*self.at(self._compiled), compilations_seen())
        return tuple(step for step, (before, after) in enumerate(pairwise(seen)) if after > before)

    def _labels(self, kind: Kind) -> tuple[int, ...]:
        first = self._at(Kind.REGION)[:1] if self._ahead(kind) else []
        return (*first, *self._at(kind))

    def _at(self, kind: Kind) -> list[int]:
        """List the labels of its marks."""
        kinds = (kind, Kind.ITERATION) if kind is Kind.REGION else (kind,)
        return [label for label, marked in enumerate(self._kinds) if marked in kinds]

    def ended(self) -> int:
        """How many steps are over."""
        kind = self.chosen
        return 0 if kind is None else max(0, self.counts[kind] - 1 + self._ahead(kind))

    def after_the_last(self) -> dict[Kind, int]:
        """Count the marks of each less preferred kind after the last step, if more than between any
        two steps: the program goes on in steps of that kind."""
        kind = self.reported
        found: dict[Kind, int] = {}
        if kind is None or len(labels := self._labels(kind)) < 2:
            return found
        for other in list(Kind)[kind + 1 :]:
            marks = self._at(other)
            passed = [*(bisect_left(marks, label) for label in labels), len(marks)]
            *between, after = (later - earlier for earlier, later in pairwise(passed))
            if after > max(1, *between):
                found[other] = after
        return found

    @property
    def left_out(self) -> int:
        """How many marks end a step whose beginning is not known."""
        return 1 - self._ahead(Kind.OPTIMIZER) if self.reported is Kind.OPTIMIZER else 0

    @property
    def running(self) -> int | None:
        """The number of the step that runs, from 1; None where nothing marks where steps begin or
        end, and for calls, of which the program's own step may make several."""
        kind = self.chosen
        if kind is Kind.OPTIMIZER:  # also the first has ended, of which the beginning may be unseen
            return self.counts[kind] + 1
        return self.counts[kind] if kind is Kind.EXPLICIT else None

    def _ahead(self, kind: Kind) -> int:
        """1 where the first step began before the first mark of a kind that ends steps: compiled
        code ran before it."""
        if kind is not Kind.OPTIMIZER:
            return 0
        before = self._kinds[: self._kinds.find(kind)]
        return int(Kind.REGION in before or Kind.ITERATION in before)


class StepMarks(Source):
    """Source: puts the marks of every kind into ``steps`` while it listens."""

    name = "step marks"

    def __init__(self, steps: Steps, project: ProjectFiles) -> None:
        self._steps = steps
        self.iterations = Iterations(project)
        self._optimizer: Callable[[], Any] = lambda: None
        self.closure: CodeType | None = None  # of what the counted optimizer's last step called
        # steps of other optimizers since the counted one's last, and the most between two of its
        self._in_a_row = self._longest = 0
        # likewise of steps inside a backward, which are none of the program's steps
        self._in_hooks = self._most_in_hooks = 0
        # torch compiled an optimizer's step before any was counted: compiled, it calls no hook
        self._is_compiled = False
        # the last that has stepped since, if it was another one
        self._other: Callable[[], Any] = lambda: None
        # the first that has stepped in the capture that runs, and in that of each CUDA graph
        self._captured: weakref.ref[Any] | None = None
        self._in_graphs: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = (
            weakref.WeakKeyDictionary()
        )

    def listen(self, undo: ExitStack) -> None:
        def marked() -> None:
            if not torch.compiler.is_compiling():
                self._steps.mark(Kind.EXPLICIT)

        undo.callback(setattr, kgprof, "_on_step", kgprof._on_step)
        kgprof._on_step = marked
        self._watch_replays(undo)
        self._watch_optimizers(undo)
        self._watch_regions(undo)
        self._watch_modules(undo)

    def _watch_optimizers(self, undo: ExitStack) -> None:
        from torch._dynamo.comptime import comptime

        def compiling(context: object) -> None:
            self._is_compiled = not self._steps.counts[Kind.OPTIMIZER]

        def stepped(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            # An optimizer step that is being compiled is traced through this: nothing of it must
            # stay in the graph. One that steps as soon as a gradient is there ends no step: the
            # backward goes on, and a profiler must not be switched inside of it.
            if torch.compiler.is_compiling():
                comptime(compiling)
                return
            if torch._C._current_graph_task_id() != -1:
                self._in_hooks += 1
            else:
                self._stepped(optimizer, (*args[1:], *kwargs.values()))

        # Else it is offered to Dynamo like any function; the frame hook leaves it out.
        not_compiled(stepped, StepMarks._stepped)
        undo.callback(register_optimizer_step_post_hook(stepped).remove)

    @aside
    def _stepped(self, optimizer: Any, values: tuple[Any, ...]) -> None:
        if self._is_compiled:
            return
        if captures_a_graph():
            self._captured = self._captured or weakref.ref(optimizer)
            return
        if self._counts(optimizer):
            self.closure = getattr(next(filter(callable, values), None), "__code__", None)
            self._steps.mark(Kind.OPTIMIZER)
        elif len(self._steps.of_others_ns) < MARKS:
            self._steps.of_others_ns.append(self._steps.now_ns())

    def _counts(self, optimizer: Any) -> bool:
        """Of two in turn (a generator's, a discriminator's) one counts, until another takes its
        place: it is gone, the other has stepped twice in a row on the same parameters (Adam first,
        then LBFGS), or others alone have stepped for long (a second phase of training)."""
        counted = self._optimizer()
        again = self._other() is optimizer
        self._other = weakref.ref(optimizer)
        if counted is optimizer:
            self._longest = max(self._longest, self._in_a_row)
            self._most_in_hooks = max(self._most_in_hooks, self._in_hooks)
            self._in_a_row = self._in_hooks = 0
            return True
        self._in_a_row += 1
        takes_over = (
            counted is None
            or (again and bool(_parameters(optimizer) & _parameters(counted)))
            or self._in_a_row > max(OTHERS_IN_A_ROW, 2 * self._longest)
        )
        if takes_over:
            self._optimizer = self._other
            self._in_a_row = self._in_hooks = 0
        return takes_over

    @property
    def uncounted(self) -> int:
        """How many optimizer steps came after the last counted one, if more than ever before."""
        uncounted = 0
        if self._in_a_row > max(1, self._longest):
            uncounted += self._in_a_row
        if self._in_hooks > max(1, self._most_in_hooks):
            uncounted += self._in_hooks
        return uncounted

    def _watch_regions(self, undo: ExitStack) -> None:
        """Every compiled callable, when it is entered, asks for its callback through one name, with
        Dynamo off."""
        try:
            from torch._dynamo import eval_frame

            original = eval_frame._callback_from_stance
        except (ImportError, AttributeError) as error:
            self.unavailable = (
                f"this torch has no torch._dynamo.eval_frame._callback_from_stance ({error})"
            )
            return

        def entered(callback: Any) -> Any:
            """A call from no other compiled function's wrapper is a step."""
            if callback is not None and callback is not False:
                # This frame is the wrapper that torch.compile put around a function; so may one
                # above it be.
                wrapper = sys._getframe(1)
                if all(above.f_code is not wrapper.f_code for above in upwards(wrapper.f_back)):
                    begins = self._begins_iteration(wrapper)
                    self._steps.mark(Kind.ITERATION if begins else Kind.REGION)
            return original(callback)

        replace(eval_frame, "_callback_from_stance", entered, undo)

    @aside
    def _begins_iteration(self, wrapper: FrameType) -> bool:
        if self._steps.counts[Kind.OPTIMIZER] or self._steps.counts[Kind.EXPLICIT]:
            return False  # those are the steps
        loop = self.iterations.loop
        begins = self.iterations.begins(wrapper)
        if loop is not None and self.iterations.loop != loop:
            self._steps.forget_iterations()
        calls = self._steps.counts[Kind.REGION] + 1
        self._steps.has_iterations = (
            self.iterations.has_several_calls and 2 * self.iterations.calls >= calls
        )
        return begins

    def _watch_replays(self, undo: ExitStack) -> None:
        """torch's own CUDA graphs are replayed inside a call of compiled code, which is the
        step."""
        original = torch.cuda.CUDAGraph.replay
        ends = torch.cuda.CUDAGraph.capture_end

        def replayed(graph: Any) -> None:
            optimizer = self._in_graphs.get(graph, lambda: None)()
            if optimizer is None and not self._steps.counts[Kind.REGION]:
                self._steps.mark(Kind.REPLAY)
            original(graph)
            if optimizer is not None:
                self._stepped(optimizer, ())

        def capture_end(graph: Any) -> None:
            self._in_graphs.pop(graph, None)  # it may be captured again
            if self._captured is not None:
                self._in_graphs[graph], self._captured = self._captured, None
            ends(graph)

        replace(torch.cuda.CUDAGraph, "replay", replayed, undo)
        replace(torch.cuda.CUDAGraph, "capture_end", capture_end, undo)

    @aside
    def _called(self, module: torch.nn.Module) -> None:
        """A transform of one picture and a loss are modules too; they hold no tensors."""
        if next(chain(module.parameters(), module.buffers()), None) is not None:
            self._steps.mark(Kind.MODULE)

    def _watch_modules(self, undo: ExitStack) -> None:
        """By a hook on all modules. torch.compile warns about one and would compile it too, so it
        goes when the program first asks for anything to be compiled; and when it makes an
        optimizer, whose steps are the program's."""
        from torch._dynamo.eval_frame import OptimizeContext

        calling = torch.nn.Module._wrapped_call_impl.__code__

        def called(module: torch.nn.Module, args: object) -> None:
            calls = (frame for frame in upwards(sys._getframe(1)) if frame.f_code is calling)
            innermost = next(calls, None)
            outermost = next(calls, None) is None
            if innermost and innermost.f_back and outermost:
                self._called(module)

        leave = register_module_forward_pre_hook(called).remove
        undo.callback(leave)
        for made in (OptimizeContext, torch.optim.Optimizer):
            replace(made, "__init__", preceded(leave, made.__init__), undo)


def _parameters(optimizer: Any) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
