"""Where the wall time of a script goes: compiling, steps, evaluation, and what lies around them.

It listens to nothing that happens in a usual step: to what torch compiles and records, and to
modules that change between training and evaluation.
"""

import contextlib
import threading
import weakref
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from statistics import median
from typing import Any

import torch

from kgprof import model as m
from kgprof.record.ground.source import Source, not_compiled, replace
from kgprof.record.passes.steps import Kind, Steps

Span = tuple[int, int]  # nanoseconds on the clock of ``Steps``
Phase = m.RunPhase


class Account(Source):
    name = "account of the run"

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._began = steps.now_ns()
        self._compiling: list[Span] = []
        self._recording: list[Span] = []
        self._evaluating: list[Span] = []
        self._in_eval: dict[int, int] = {}  # id of a module -> since when
        self._in_train = threading.local()

    def listen(self, undo: ExitStack) -> None:
        from torch._dynamo.callback import CallbackTrigger, CompilationCallbackHandler

        install = CompilationCallbackHandler.install_callbacks
        records = CallbackTrigger.CUDAGRAPH_RECORDING

        @contextlib.contextmanager
        def installed(handler: Any, trigger: Any, compile_id: str) -> Iterator[None]:
            spans = self._recording if trigger is records else self._compiling
            with self._timed(spans), install(handler, trigger, compile_id):
                yield

        replace(CompilationCallbackHandler, "install_callbacks", installed, undo)
        self._watch_modes(undo)
        self._began = self._steps.now_ns()

    @contextlib.contextmanager
    def _timed(self, spans: list[Span]) -> Iterator[None]:
        began = self._steps.now_ns()
        try:
            yield
        finally:
            spans.append((began, self._steps.now_ns()))

    def _watch_modes(self, undo: ExitStack) -> None:
        original = torch.nn.Module.train
        # Where a frame fell back, Dynamo compiles what it calls.
        changed = torch._dynamo.disable(self._changed)  # type: ignore[no-untyped-call]

        def train(module: torch.nn.Module, mode: bool = True) -> torch.nn.Module:
            if torch.compiler.is_compiling() or getattr(self._in_train, "inside", False):
                return original(module, mode)  # a part of one that changes, or traced by Dynamo
            before = module.training
            self._in_train.inside = True
            try:
                return original(module, mode)
            finally:
                self._in_train.inside = False
                changed(module, before)

        not_compiled(train)
        replace(torch.nn.Module, "train", train, undo)

    def _changed(self, module: torch.nn.Module, before: bool) -> None:
        """A copy that is only evaluated leaves the mode when it is gone."""
        if before and not module.training:
            if id(module) not in self._in_eval:
                weakref.finalize(module, self._leaves, id(module)).atexit = False
            self._in_eval[id(module)] = self._steps.now_ns()
        elif module.training and not before:
            self._leaves(id(module))

    def _leaves(self, module: int) -> None:
        if module in self._in_eval:
            self._evaluating.append((self._in_eval.pop(module), self._steps.now_ns()))

    def answer(
        self, ended: int, *, under_listeners: bool, trains_on: bool = False
    ) -> m.ScriptAccount | m.Skipped:
        """``ended``: when the program came to its end, on the clock of ``Steps``; ``trains_on``:
        optimizers stepped after the last counted step."""
        if self.unavailable:
            return m.Skipped(self.unavailable)
        boundaries = self._steps.boundaries()
        last = max(boundaries, default=ended)
        goes_on = self._steps.after_the_last()
        inner = [
            (Phase.COMPILING, united(self._compiling)),
            (Phase.RECORDING, united(self._recording)),
            (Phase.EVALUATION, united(self._evaluations(last if goes_on else ended))),
            (Phase.BESIDE_COMPILING, self._beside_compiling(boundaries)),
        ]
        outer = [(Phase.REST, (self._began, ended))]
        if boundaries:
            start, after = self._around(len(boundaries), trains_on, bool(goes_on))
            outer = [
                (start, (self._began, boundaries[0])),
                (Phase.STEPS, (boundaries[0], last)),
                (after, (last, max(last, ended))),
            ]
        total = sum(end - begin for _, (begin, end) in outer)
        if total <= 0:
            return m.Skipped("the program ended before its first line")
        times = dict.fromkeys(Phase, 0)
        for phase, span in outer:
            left = [span]
            for each, spans in inner:
                rest = without(left, spans)
                times[each] += length(left) - length(rest)
                left = rest
            times[phase] += length(left)
        return m.ScriptAccount(
            total_us=total / 1e3,
            phases=tuple(
                m.RunPhaseTime(phase, ns / 1e3, ns / total) for phase, ns in times.items() if ns
            ),
            under_listeners=under_listeners,
            another_kind={each.words: count for each, count in goes_on.items()},
        )

    def _around(self, boundaries: int, trains_on: bool, goes_on: bool) -> tuple[Phase, Phase]:
        """Name what comes before the steps, and what comes after them."""
        is_ended = self._steps.reported is Kind.OPTIMIZER
        start = Phase.START
        if is_ended and boundaries == self._steps.counts[Kind.OPTIMIZER]:
            start = Phase.START_AND_STEP
        after = Phase.AFTER if is_ended else Phase.STEP_AND_AFTER
        if goes_on:
            after = Phase.ANOTHER_KIND_AND_AFTER
        if trains_on and is_ended:
            after = Phase.OTHERS_AND_AFTER
        return start, after

    def _beside_compiling(self, boundaries: Sequence[int]) -> list[Span]:
        """List what steps that compile or record take beyond a usual step, which ends each."""
        made = united([*self._compiling, *self._recording])
        steps = list(pairwise(boundaries))
        usual = [end - begin for begin, end in steps if not overlaps(made, begin, end)]
        if not usual:
            return []
        usual_ns = int(median(usual))
        return [
            (begin, end - usual_ns)
            for begin, end in steps
            if overlaps(made, begin, end) and end - begin > usual_ns
        ]

    def _evaluations(self, ended: int) -> list[Span]:
        """List the spans in eval mode without a step of an optimizer, from the first one on; none
        in a program without optimizer, which may be in that mode from its first line on. A model
        that is loaded is in it, too, until its training begins; and a generator may be in it while
        its discriminator learns. ``ended`` is the last step where calls go on: an
        optimizer's compiled step may be among them."""
        steps = self._steps.of_optimizers_ns()
        if not steps:
            return []
        to_the_end = [(since, ended) for since in self._in_eval.values()]
        return [
            (begin, end)
            for begin, end in (*self._evaluating, *to_the_end)
            if steps[0] <= begin < end <= ended
            and bisect_right(steps, begin) == bisect_right(steps, end)
        ]


# ---------------------------------------------------------------- spans of time


def united(spans: Sequence[Span]) -> list[Span]:
    """Join those that overlap, as of several threads."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return joined


def without(spans: Sequence[Span], cut: Sequence[Span]) -> list[Span]:
    """Take the spans ``cut`` out of others; both are in order, and none overlaps its neighbour."""
    left = []
    at = 0
    for begin, end in spans:
        while at < len(cut) and cut[at][1] <= begin:
            at += 1
        following = at
        while following < len(cut) and cut[following][0] < end:
            if begin < cut[following][0]:
                left.append((begin, cut[following][0]))
            begin = max(begin, cut[following][1])
            following += 1
        if begin < end:
            left.append((begin, end))
    return left


def overlaps(spans: Sequence[Span], begin: int, end: int) -> bool:
    """Tell whether any of the spans, in order and apart, lies in part between two moments."""
    after = bisect_right(spans, begin, key=lambda span: span[1])
    return after < len(spans) and spans[after][0] < end


def length(spans: Sequence[Span]) -> int:
    return sum(end - begin for begin, end in spans)
