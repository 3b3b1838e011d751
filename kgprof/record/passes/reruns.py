"""TIMING, HOST and STACK of a script, and TRACE of one without steps: it runs once more from its
first line on, under one instrument alone."""

import cProfile
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from msgspec.structs import replace

from kgprof import model as m
from kgprof.reading import layout
from kgprof.record.ground import store
from kgprof.record.ground.load import load_from_now
from kgprof.record.ground.run import Place
from kgprof.record.listeners.loader_clock import LoaderClock
from kgprof.record.passes.account import Account
from kgprof.record.passes.host_profiler import host_table
from kgprof.record.passes.steps import Kind, StepMarks, Steps
from kgprof.record.passes.timing import between_us
from kgprof.record.passes.trace_window import TraceWindow, WholeTrace
from kgprof.wording import plural


class Rerun:
    """The program's watcher while it runs again for pass ``name``."""

    def __init__(self, place: Place, name: m.PassName, *, runs_eagerly: bool = False) -> None:
        self._place, self._name, self._runs_eagerly = place, name, runs_eagerly
        self._steps = Steps(self._marked)
        self._instrument = INSTRUMENTS[name](place, self._steps)
        self._account = Account(self._steps)
        self._marks = StepMarks(self._steps, place.project)
        self._stack = ExitStack()
        self._over = False
        self._began_ns = 0
        self._ended_ns: int | None = None  # at the program's last line, where its exit code is 0

    def begin(self) -> None:
        self._stack.enter_context(self._marks)
        if self._name is m.PassName.TIMING:
            self._stack.enter_context(self._account)
        self._stack.enter_context(self._instrument)
        if self._runs_eagerly:
            torch.compiler.set_stance("force_eager")
        self._began_ns = time.perf_counter_ns()

    @property
    def step(self) -> int | None:
        """As of Capture."""
        return self._steps.running

    def write_now(self) -> None:
        return None  # half a rerun is none

    def end(self, why: str = "") -> None:
        """Once: takes the instrument off and writes what it has."""
        if not self._over:
            self._over = True
            self._steps.paused = True
            self._stack.close()
            result = self._instrument.result or m.Skipped("the program ended before its first line")
            if self._name is m.PassName.TIMING and isinstance(result, m.Skipped) and self._ended_ns:
                result = self._as_one_window(result, self._ended_ns)
            if isinstance(result, m.TimingPass):
                result = replace(result, account=self._accounted())
            if self._runs_eagerly:
                # the program may have switched compiling on again
                if self._steps.compiled_in():
                    why = "with compiling switched off, torch compiled all the same"
                    result = m.Skipped(why)
                store.write_json(self._place.folder / layout.EAGER_TIMES, result)
            else:
                self._place.write(self._name, result)
        if self._steps.fault is not None:
            raise self._steps.fault

    def _accounted(self) -> m.ScriptAccount | m.Skipped:
        ended_ns = self._ended_ns
        if ended_ns is None:
            return m.Skipped("the rerun for TIMING did not come to the program's last line")
        return self._account.answer(
            ended_ns, under_listeners=False, trains_on=self._marks.uncounted > 0
        )

    def ended_well(self) -> None:
        """The program came to its last line; its atexit handlers and compile workers are no part of
        its time."""
        self._ended_ns = self._steps.now_ns()

    def _as_one_window(self, lacking: m.Skipped, ended_ns: int) -> m.TimingPass | m.Skipped:
        """A program that came to its end took a time, whatever is called in it; a step that
        compiles does not count."""
        if compiled := len(self._steps.compiled_in()):
            return m.Skipped(
                f"torch compiled in {plural(compiled, 'step')} of the rerun, and there was no other"
            )
        began = self._began_ns
        what = "from its first line to its end"
        if boundaries := self._steps.boundaries():
            began = boundaries[-1]
            what = "from its only step on"
        took = (ended_ns - began) / 1e3
        note = f"TIMING: one rerun of the program {what}, including compilation; {lacking.reason}"
        return m.TimingPass(
            clock="perf_counter", step_us=((took,),), evaluation_s=(), notes=(note,)
        )

    def _marked(self, kind: Kind) -> None:
        self._instrument.marked(kind)
        if self._steps.full:
            self.end()


class Clock:
    """TIMING: nothing but the marks and their clock. Watches some steps of the program; left, it
    has a ``result``."""

    def __init__(self, place: Place, steps: Steps) -> None:
        self._options = place.options
        self._steps = steps
        self._load = load_from_now()
        self._undo = ExitStack()
        self._loaders = LoaderClock()
        self._cpu_ns, self._loader_ns = array("q"), array("q")  # at each mark
        self.result: m.TimingPass | m.HostPass | m.Skipped | None = None

    def __enter__(self) -> None:
        self._loaders.watch(self._undo)

    def marked(self, kind: Kind) -> None:
        """At each mark, which stands before the step that it begins; ``steps`` has its time, which
        this is no part of."""
        if len(self._cpu_ns) <= self._steps.current:  # a mark may be of two kinds
            self._cpu_ns.append(time.process_time_ns())
            self._loader_ns.append(self._loaders.spent_ns)

    def __exit__(self, *_: object) -> None:
        self._undo.close()
        warmup = self._options.warmup
        kind = self._steps.reported
        compiled_in = frozenset(self._steps.compiled_in())
        step_us = between_us(self._steps.boundaries())
        timed = {
            step: us
            for step, us in enumerate(step_us[: self._options.max_steps])
            if step not in compiled_in
        }
        if kind is None or not timed:
            without = " without a compilation" if compiled_in else ""
            self.result = m.Skipped(f"the rerun for TIMING saw no complete step{without}")
            return
        first = min((step for step in timed if step >= warmup), default=min(timed))
        last = max(timed)
        kept = tuple(us for step, us in timed.items() if step >= first)
        cpu_us = between_us(self._steps.at(self._cpu_ns))
        loader_us = between_us(self._steps.at(self._loader_ns))
        short = f", none of them after --warmup {warmup}" if first < warmup else ""
        if compiling := last - first + 1 - len(kept):
            short += f", without {compiling} in which torch compiled"
        from_to = f"steps {first} to {last} of one rerun of the program{short}"
        note = (
            f"TIMING: {from_to}; a step is {kind.words}; its time is that until the next, "
            "by the CPU's clock"
        )
        start_us = step_us[: max(1, warmup)] if len(step_us) > max(1, warmup) else ()
        self.result = m.TimingPass(
            clock="perf_counter",
            step_us=(kept,),
            evaluation_s=(),
            notes=(note,),
            start_us=start_us,
            cpu_us=tuple(cpu_us[step] for step in timed if step >= first),
            loader_us=tuple(loader_us[step] for step in timed if step >= first),
            loader_workers=self._loaders.workers,
            load=self._load(),
            step=kind.words,
        )


class HostProfile(Clock):
    def __init__(self, place: Place, steps: Steps) -> None:
        super().__init__(place, steps)
        self._profiler = cProfile.Profile()
        self._began = 0
        self._step_us: list[float] = []
        self._seen: Sequence[Any] = ()  # in those steps; what comes after the last of them is none
        self._kind: Kind | None = None

    def __enter__(self) -> None:
        return None

    def marked(self, kind: Kind) -> None:
        if self.result is not None or kind is not (self._kind or self._steps.chosen):
            return
        if self._kind is not None:
            self._profiler.disable()
            self._step_us.append((time.perf_counter_ns() - self._began) / 1e3)
            self._seen = self._profiler.getstats()
            if len(self._step_us) == self._options.steps:
                self.__exit__()
                return
        elif self._steps.counts[kind] <= self._options.warmup:
            return
        self._kind = kind
        try:
            self._profiler.enable()
        except ValueError as error:  # the program has a profiler of its own
            self.result = m.Skipped(f"cProfile cannot be switched on: {error}")
        self._began = time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        if self.result is not None:
            return
        self._profiler.disable()
        why = f"the rerun for HOST had no complete step after --warmup {self._options.warmup}"
        self.result = (
            host_table(self._seen, tuple(self._step_us)) if self._step_us else m.Skipped(why)
        )


INSTRUMENTS: Mapping[m.PassName, Callable[[Place, Steps], Clock | TraceWindow]] = {
    m.PassName.TRACE: lambda place, steps: WholeTrace(
        steps, place.device, place.options, place.trace_path(m.PassName.TRACE)
    ),
    m.PassName.TIMING: Clock,
    m.PassName.HOST: HostProfile,
    m.PassName.STACK: lambda place, steps: TraceWindow(
        steps, place.device, place.options, place.trace_path(m.PassName.STACK), with_stack=True
    ),
}
