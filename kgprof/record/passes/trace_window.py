"""TRACE of a script, and STACK: torch.profiler over some of its steps, while it runs, or over all
of one that has none.

Kineto has one session a process. A program that profiles itself has the first claim on it: the
window closes before the program's own session begins. It sees one thread, and unless that is the
main one it ends the process by SIGSEGV.
"""

import threading
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import profile as torch_profile
from torch.profiler import schedule

from kgprof import model as m
from kgprof.reading.launches import AFTER_STEPS
from kgprof.reading.project import ProjectFiles
from kgprof.reading.timeline import STEP_PREFIX
from kgprof.record.ground import ranks
from kgprof.record.ground.source import Source, first_line, replace
from kgprof.record.listeners.line_samples import LineSamples
from kgprof.record.passes import stack_profiler, timing
from kgprof.record.passes.steps import Kind, Steps
from kgprof.record.passes.torch_profiler import (
    TRACE_BYTES,
    Traced,
    activities,
    await_the_last_step,
    export,
)

ELSEWHERE = (
    "kgprof starts torch.profiler on the main thread, and the steps are taken on another one"
)
# Under the profiler: steps that take so much CPU time hold so many operators that a few of them say
# all there is, and each of the others costs as much again to write and to read.
ENOUGH_CPU_S = 0.4
FEWEST_STEPS = 5
BARE_STEPS = 5  # after warm-up and before the window: what the steps inside it are set against


def _elsewhere() -> bool:
    return threading.current_thread() is not threading.main_thread()


class TraceWindow(Source):
    """Opens in step ``--warmup`` + BARE_STEPS, one step before it counts; closed, it has a
    ``result``.

    A program that evaluates before it trains has calls of compiled code first and steps of its
    optimizer later. When there are enough of a kind that is preferred to the window's, all begins
    again; a trace that was whole by then stays until there is another one.
    """

    name = "trace window"

    def __init__(
        self,
        steps: Steps,
        device: torch.device,
        options: m.Options,
        path: Path,
        *,
        project: ProjectFiles | None = None,
        with_stack: bool = False,
    ) -> None:
        """``project``: whose lines are sampled; None: nobody's. ``with_stack``: STACK, which takes
        fewer steps."""
        self.result: Traced | None = None
        self.opened_at: int | None = None  # the label of the mark
        self.kind: Kind | None = None  # whose marks are its steps
        self._steps, self._device, self._path = steps, device, path
        self._opens_after = options.warmup + BARE_STEPS
        self._with_stack = with_stack
        self._wanted = min(options.steps, stack_profiler.STEPS) if with_stack else options.steps
        self._profiler: torch_profile | None = None
        self._project = project
        self._samples: LineSamples | None = None
        self._host_lines: m.HostLines | None = None
        self._times: list[int] = []
        self._ours = False
        self._began_cpu_s = 0.0
        self._ends_at_mark = False  # else the program ended in a step that has begun
        self.enough_after = 0  # steps, where those that were wanted would have been more
        self._whole: tuple[Traced | None, Kind | None, int | None] = (None, None, None)
        # closed for good: there is no other window, whatever steps come later
        self._is_last = False
        # listens in the step before those that count, whose time nobody takes
        self.first: Source | None = None
        self._in_first = ExitStack()

    # ---- what the program does

    def marked(self, kind: Kind) -> None:
        """At each mark; steps of another kind than the preferred one so far are none of the
        window's."""
        better = self.kind is not None and kind is self._steps.chosen is not self.kind
        if (
            better
            and self._steps.counts[kind] > self._opens_after
            and not self._is_last
            and not _elsewhere()
        ):
            self._begin_again()
        if self.result is not None or kind is not (self.kind or self._steps.chosen):
            return
        if _elsewhere():
            self.result = None if self._profiler else m.Skipped(ELSEWHERE)
            return
        if self._profiler is None:
            if self._steps.counts[kind] > self._opens_after:
                self.kind = kind
                self.opened_at = self._steps.current
                window = schedule(wait=0, warmup=1, active=self._wanted + 1, repeat=1)
                self._profiler = torch_profile(
                    activities=activities(self._device),
                    schedule=window,
                    with_stack=self._with_stack,
                    profile_memory=self._with_stack,
                )
                if self.first is not None:
                    self._in_first.enter_context(self.first)
                self._tell(partial(timing.synchronize, self._device), self._profiler.start)
            return
        self._in_first.close()
        self._times.append(time.perf_counter_ns())
        if not self._began_cpu_s:
            self._began_cpu_s = time.process_time()
            if self._project is not None:
                self._samples = LineSamples(self._project)
                self._samples.start()
        if len(self._times) > self._wanted or self._has_enough():
            self._ends_at_mark = True
            self.close(for_good=False)
        else:
            self._tell(self._profiler.step)

    def _has_enough(self) -> bool:
        if ranks.launch() is not None:
            return False  # ranks that end at different steps wait for each other's exports
        steps = len(self._times) - 1
        if steps < FEWEST_STEPS or time.process_time() - self._began_cpu_s < ENOUGH_CPU_S:
            return False
        self.enough_after = steps
        return True

    def _sampled(self) -> None:
        """End the sampling, if there is any."""
        if self._samples is not None:
            self._host_lines = self._samples.stop()
            self._samples = None

    def _begin_again(self) -> None:
        self._in_first.close()
        self._sampled()
        if self._profiler is not None:
            self._tell(self._profiler.stop)
        self._whole = self.result, self.kind, self.opened_at
        self._profiler = self.result = self.kind = self.opened_at = None
        self._times.clear()
        self._began_cpu_s, self.enough_after, self._ends_at_mark = 0.0, 0, False

    def close(self, why: str = "", *, for_good: bool = True) -> None:
        """Once; ``why`` it was not open for as long as it should have been."""
        self._is_last = self._is_last or for_good
        if self.result is not None:
            return
        self._sampled()
        if self._profiler is not None and _elsewhere():
            self.result = m.Skipped(ELSEWHERE)
            return
        self._in_first.close()
        too_few = f"too few steps: torch.profiler starts after {self._opens_after}"
        without = m.Skipped(why or too_few)
        if self._profiler is None:
            self.result = without
            return
        if not self._tell(partial(await_the_last_step, self._device), self._profiler.stop):
            return
        steps = timing.between_us(self._times)
        if steps:
            self.result = self._exported(self._profiler, steps)
        elif self._whole[0] is None:
            self.result = without
        else:
            self.result, self.kind, self.opened_at = self._whole
        self._profiler = None

    # ---- the profiler

    def _tell(self, *calls: Callable[[], None]) -> bool:
        """Whether it worked: what one raises (the GPU may have failed) costs the trace and nothing
        else."""
        self._ours = True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the program may have made errors of them
                for call in calls:
                    call()
        except Exception as error:  # noqa: BLE001
            self._in_first.close()
            self._sampled()
            self._profiler = None
            self.result = m.Skipped(f"torch.profiler could not be used: {first_line(error)}")
            return False
        finally:
            self._ours = False
        return True

    def _exported(self, profiler: torch_profile, step_us: timing.Times) -> Traced:
        most_bytes = stack_profiler.STACK_BYTES if self._with_stack else TRACE_BYTES
        mark = b""
        if not self._ends_at_mark:
            # The program ended, or went on to something else, in the last step, which torch began
            # to mark.
            mark = f'"{STEP_PREFIX}{profiler.step_num}"'.encode()
        size = export(profiler, self._path, mark, f'"{AFTER_STEPS}"'.encode())
        if size > most_bytes:
            self._path.unlink()
            return m.Skipped(stack_profiler.too_large(len(step_us), size, most_bytes))
        if self._with_stack:
            return stack_profiler.kept(self._path, step_us)
        return m.TracePass(
            step_us=step_us,
            trace_file=self._path.name,
            cpp_kernel_profile=False,
            host_lines=self._host_lines,
        )

    # ---- beside a program that profiles itself

    def listen(self, undo: ExitStack) -> None:
        session: Any = torch.autograd.profiler.profile
        original: Any = session._prepare_trace

        def prepare(this: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._ours:
                self.close(
                    "the program runs torch.profiler itself, and a process can have only one "
                    "session"
                )
            return original(this, *args, **kwargs)

        undo.callback(self.close)
        replace(session, "_prepare_trace", prepare, undo)


class WholeTrace(TraceWindow):
    """All of a program that has no steps, as one window."""

    def listen(self, undo: ExitStack) -> None:
        super().listen(undo)
        self._profiler = torch_profile(activities=activities(self._device))
        self._tell(self._profiler.start)

    def marked(self, kind: Kind) -> None:
        """A step that came after all begins nothing."""

    def close(self, why: str = "", *, for_good: bool = True) -> None:
        """Once; ``why``: the program begins a session of its own."""
        profiler = self._profiler
        self._profiler = None
        if profiler is None or _elsewhere():
            self.result = self.result or m.Skipped(ELSEWHERE)
            return
        if not self._tell(partial(timing.synchronize, self._device), profiler.stop):
            return
        self._ends_at_mark = True  # none was begun
        self.result = m.Skipped(why) if why else self._exported(profiler, ())
