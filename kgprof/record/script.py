"""The child that runs a whole program: ``script.py`` or ``-m pkg.mod`` as ``__main__``, once, while it is watched.

The program has no steps that could be called, so the instruments follow it: COMPILE's sources and the reads of tensors
are listened to from its first line on, torch.profiler is on for some of its steps, and what was seen is written down
again and again, because a program may end in any way it likes. TIMING, HOST and STACK are reruns of it under a clock,
cProfile or torch.profiler with stacks alone.
"""

from __future__ import annotations

import atexit
import contextlib
import cProfile
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn, Protocol

import msgspec
import torch

from kgprof import model as m
from kgprof.errors import KgprofError
from kgprof.reading import layout
from kgprof.record import project_sources, store
from kgprof.record.compiled_kernels import compiled_kernels
from kgprof.record.failure import PLUMBING, describe_failure
from kgprof.record.flags import flags
from kgprof.record.host_profiler import host_table
from kgprof.record.job import WRITE_NOW, Done, Event, Failed, Job
from kgprof.record.kept_records import write_records
from kgprof.record.source import unavailable
from kgprof.record.steps import Kind, StepMarks, Steps
from kgprof.record.syncs import Syncs
from kgprof.record.torch_trace import CompileSources
from kgprof.record.trace_window import TraceWindow
from kgprof.wording import plural
from kgprof.workloads import programs
from kgprof.workloads.backend import in_place_of_inductor
from kgprof.workloads.programs import Program

WRITTEN_EVERY_S = 0.5  # at most, at the next mark; a write that takes long is made rarer
WRITING_SHARE = 0.05  # of the program's time, at most
CALLS_TIMED = 10_000  # first steps whose times are kept
RANK = "RANK"  # torchrun's

Send = Callable[[Event], None]


class Watcher(Protocol):
    """One instrument around one run of the program."""

    def begin(self) -> None: ...
    def write_now(self) -> None:
        """What there is so far: the parent is about to end the process."""

    def end(self, why: str = "") -> None:
        """Once: takes everything off and writes it down. ``why``, where the program goes on without it."""


def run(job: Job, send: Send) -> int:
    """Run the program up to its last line under what ``job.options.passes`` asks for; returns its exit code.

    The interpreter then ends the process in its own order: non-daemon threads are joined, executors and compile
    workers shut down, atexit handlers called. The handler registered here is called after all of the program's, since
    atexit calls the last registered first; it writes the passes and sends the last event.
    """
    place = Place(job)
    program = programs.find(job.options.workload)
    watcher = place.watcher()
    if WRITE_NOW is not None:
        signal.signal(WRITE_NOW, lambda number, frame: watcher.write_now())
    restored = ExitStack()
    last_event: list[Event] = []
    atexit.register(_finish, place.pid, watcher, send, last_event, restored)
    restored.enter_context(_last_words(watcher, send))
    restored.enter_context(in_place_of_inductor(job.options.backend))
    code, event = _run_to_its_end(program, job.options.workload_args, watcher)
    last_event.append(event)
    return code


def _finish(pid: int, watcher: Watcher, send: Send, last_event: Sequence[Event], restored: ExitStack) -> None:
    if os.getpid() != pid:
        return  # a process that the program forked: it ends as it would without kgprof
    try:
        with restored:
            watcher.end()
    except BaseException as error:  # noqa: BLE001  atexit would print it and forget it; the parent has to know
        failed = describe_failure(error)
        print(failed.traceback, file=sys.stderr, flush=True)  # noqa: T201
        send(failed)
        os._exit(1)
    for event in last_event:
        send(event)


class Place:
    """Which run this is, and where its passes go."""

    def __init__(self, job: Job) -> None:
        if job.key is None or job.plan is None:
            raise KgprofError("a script job without a run or a plan")
        self.pid = os.getpid()
        self.key: m.RunKey = job.key
        self.plan: m.Plan = job.plan
        self.options: m.Options = job.options
        self.recording = Path(job.recording)
        self.folder = layout.run_folder(self.recording, self.key)
        self.device = torch.device(job.plan.device)

    def watcher(self) -> Watcher:
        match self.options.passes:
            case (m.PassName.TIMING,):
                return Timed(self)
            case (m.PassName.HOST,):
                return HostProfiled(self)
            case (m.PassName.STACK,):
                return Stacked(self)
        return Capture(self)

    def write(self, name: m.PassName, value: m.Model) -> None:
        store.write_pass(self.recording, self.key, name, value)


# ---------------------------------------------------------------- the program


def _run_to_its_end(program: Program, args: Sequence[str], watcher: Watcher) -> tuple[int, Event]:
    """Its exit code, and what is to be said about it; whatever it raises ends here, as it would end in Python."""
    try:
        code, module = programs.prepared(program, args)
        programs.become_main(module)
        watcher.begin()
        exec(code, module.__dict__)
    except SystemExit as error:
        return _exited(error.code)
    except BaseException as error:  # noqa: BLE001  a program may raise anything
        return _raised(error)
    return 0, Done()


def _exited(code: object) -> tuple[int, Event]:
    """sys.exit() takes None, a number, or anything else to be printed with exit code 1."""
    if code is None or code == 0:
        return 0, Done()
    if isinstance(code, int):  # the system keeps its low byte
        return code & 0xFF, Failed(message=f"sys.exit({code})", exited=True) if code & 0xFF else Done()
    print(code, file=sys.stderr, flush=True)  # noqa: T201
    return 1, Failed(message=f"sys.exit: {code}", exited=True)


def _raised(error: BaseException) -> tuple[int, Event]:
    """The traceback from the program's first frame on, through its own excepthook where it has one."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(PLUMBING):
        frames = frames.tb_next
    error.__traceback__ = frames  # what hooks print, whatever they are handed
    try:
        sys.excepthook(type(error), error, frames)
    except Exception:  # noqa: BLE001  as Python does: a hook that fails is shown, and the error itself
        traceback.print_exc()
        traceback.print_exception(type(error), error, frames)
    text = "".join(traceback.format_exception(type(error), error, frames))
    message = traceback.format_exception_only(type(error), error)[-1].strip()
    if isinstance(error, SyntaxError) and error.filename:
        message = f"{message} [{error.filename}:{error.lineno}]"
    return (130 if isinstance(error, KeyboardInterrupt) else 1), Failed(message=message, traceback=text)


@contextlib.contextmanager
def _last_words(watcher: Watcher, send: Send) -> Iterator[None]:
    """``os._exit`` ends a process on the spot; what was seen is written down first."""
    original, pid = os._exit, os.getpid()

    def leave(status: int) -> NoReturn:
        if os.getpid() == pid:
            os._exit = original
            watcher.end()
            send(Failed(message=f"os._exit({status})", exited=True) if status else Done())
        original(status)

    os._exit = leave
    try:
        yield
    finally:
        if os._exit is leave:
            os._exit = original


# ---------------------------------------------------------------- COMPILE, the reads of tensors, TRACE


class Capture:
    """Everything that one run of the program can give."""

    def __init__(self, place: Place) -> None:
        self._place, self._options = place, place.options
        self._project = project_sources.project_files(place.options.workload)
        self._steps = Steps(self._marked)
        self._marks = StepMarks(self._steps)
        self._compile = CompileSources(self._steps, self._project)
        self._syncs = self._sync_source()
        self._window = self._trace_window()
        self._stack = ExitStack()
        self._flags = flags(os.environ)
        self._began = self._written = time.monotonic()
        self._pause_s = 0.0
        self._writing = False
        self._stopped = ""
        self._over = False
        self._logs_chosen: frozenset[str] = frozenset()

    def begin(self) -> None:
        for source in self._sources():
            self._stack.enter_context(source)
        self._logs_chosen = _chosen_artifacts()
        self._began = self._written = time.monotonic()

    def end(self, why: str = "") -> None:
        if self._over:
            return
        self._over = True
        self._stopped = why
        self._steps.paused = True
        own_logs = self._logs_chosen != _chosen_artifacts()
        with ExitStack() as each:  # from the last to the first; what one raises keeps the others from nothing
            each.callback(self._write, own_logs=own_logs)
            each.callback(self._stack.close)
            if self._window is not None:
                each.callback(self._window.close, f"the recording stopped: {why}" if why else "")

    def _sources(self) -> Iterator[Any]:
        yield from self._compile.sources
        if not isinstance(self._syncs, m.Skipped):
            yield self._syncs
        if self._window is not None:
            yield self._window
        yield self._marks

    def _asked_for(self, name: m.PassName) -> bool:
        return name in self._options.passes

    def _sync_source(self) -> Syncs | m.Skipped:
        if not self._asked_for(m.PassName.MEMORY):
            return m.Skipped(reason="the MEMORY pass was not asked for")
        return Syncs(self._steps, self._place.device, self._project)

    def _trace_window(self) -> TraceWindow | None:
        if not self._asked_for(m.PassName.TRACE):
            return None
        path = self._place.folder / layout.TRACE_FILES[m.PassName.TRACE]
        return TraceWindow(self._steps, self._place.device, self._options, path)

    # ---- while it runs

    def _marked(self, kind: Kind) -> None:
        """At each mark, which stands before the step that it begins."""
        now = time.monotonic()
        if why := self._enough(now):
            self.end(why)
            return
        if self._window is not None:
            self._window.marked(kind)
        if now - self._written > self._pause_s:
            self.write_now()

    def _enough(self, now: float) -> str:
        chosen, limit = self._steps.chosen, self._options.max_steps
        if limit is not None and self._steps.ended(chosen) >= limit:
            return f"{plural(limit, 'step')} (--max-steps)"
        if self._options.duration_s is not None and now - self._began > self._options.duration_s:
            return f"{self._options.duration_s:g} s (--duration)"
        return f"{self._steps.current + 1:,} marks of steps, which are as many as are kept" if self._steps.full else ""

    def _step_count(self, kind: Kind | None) -> int:
        """With the one that the program's end cut off, where marks begin steps and it was watched."""
        begins = kind in (Kind.EXPLICIT, Kind.REGION)
        return self._steps.ended(kind) + int(begins and not self._stopped)

    def write_now(self) -> None:
        if not self._over and not self._writing:
            self._write(unfinished=True)

    # ---- what is written

    def _write(self, *, unfinished: bool = False, own_logs: bool = False) -> None:
        self._writing = True
        began = time.monotonic()
        try:
            self._write_each(unfinished=unfinished, own_logs=own_logs)
        finally:  # a disk that was full for a moment must not keep what is measured later from being written
            self._writing = False
            self._written = time.monotonic()
            self._pause_s = max(WRITTEN_EVERY_S, (self._written - began) / WRITING_SHARE)

    def _write_each(self, *, unfinished: bool, own_logs: bool) -> None:
        kind = self._steps.chosen
        number = self._steps.numbers(kind)
        call_us, trace = self._call_us(kind, number), self._trace()
        with ExitStack() as each:  # from the last to the first; what one raises keeps the others from nothing
            each.callback(self._write_script, kind, call_us, trace, unfinished)
            each.callback(self._write_trace, trace)
            each.callback(lambda: self._place.write(m.PassName.MEMORY, self._memory_pass(kind, number)))
            each.callback(lambda: self._place.write(m.PassName.COMPILE, self._compile_pass(kind, call_us, own_logs)))
            each.callback(self._write_records, number)

    def _write_records(self, number: Callable[[int], int]) -> None:
        lines = [renumbered(line, number) for line in self._compile.lines()]
        records = self._place.folder / layout.TRACE_RECORDS
        write_records(records, lines)
        store.write_sources(records, project_sources.gather(lines, self._project))

    def _write_trace(self, trace: m.TracePass | m.Skipped | None) -> None:
        if trace is None:
            return
        self._place.write(m.PassName.TRACE, trace)
        kernels = compiled_kernels(self._place.device)
        store.write_compiled_kernels(self._place.recording, self._place.key, kernels)

    def _write_script(
        self, kind: Kind | None, call_us: Sequence[float], trace: m.TracePass | m.Skipped | None, unfinished: bool
    ) -> None:
        notes = self._notes(kind, call_us, trace, unfinished)
        store.write_script(self._place.recording, self._place.key, self._script_run(kind, notes))

    def _trace(self) -> m.TracePass | m.Skipped | None:
        if self._window is None:
            return m.Skipped(reason="the TRACE pass was not asked for")
        return self._window.result

    def _compile_pass(self, kind: Kind | None, call_us: tuple[float, ...], own_logs: bool) -> m.CompilePass:
        why = "the program called torch._logging.set_logs itself"
        lost = (m.Unavailable(capture="torch logs", why=why, incomplete=True),) if own_logs else ()
        return m.CompilePass(
            call_us=call_us,
            steady_from=self._options.warmup,
            compilations=self._compile.compilations(),
            capture_unavailable=(*self._compile.unavailable(), *unavailable((self._marks,)), *lost),
            calls=self._step_count(kind),
        )

    def _call_us(self, kind: Kind | None, number: Callable[[int], int]) -> tuple[float, ...]:
        """Of the steps that ended before the TRACE window; of a program with no such step, of all of it."""
        until = None if self._window is None or self._window.opened_at is None else number(self._window.opened_at)
        return self._ended_us(kind)[:until] or ((time.monotonic() - self._began) * 1e6,)

    def _ended_us(self, kind: Kind | None) -> tuple[float, ...]:
        return tuple((after - before) / 1e3 for before, after in pairwise(self._steps.boundaries(kind)))[:CALLS_TIMED]

    def _every_us(self, kind: Kind | None) -> tuple[float, ...]:
        """Also of the one that is not over, where there is one: up to now."""
        ended = self._ended_us(kind)
        if len(ended) >= min(self._step_count(kind), CALLS_TIMED):
            return ended
        return (*ended, (self._steps.now_ns() - self._steps.boundaries(kind)[-1]) / 1e3)

    def _memory_pass(self, kind: Kind | None, number: Callable[[int], int]) -> m.MemoryPass | m.Skipped:
        if isinstance(self._syncs, m.Skipped):
            return self._syncs
        not_in_a_script = m.Skipped(reason="not measured in a script: its one run holds compilation and the profiler")
        return m.MemoryPass(
            step_us=self._every_us(kind),
            steady_from=self._options.warmup,
            syncs=renumbered_syncs(self._syncs.records(), number),
            tensors=m.Skipped(reason="a script is not compiled under the probes: they change what is compiled"),
            peaks=not_in_a_script,
            capture_unavailable=unavailable((self._syncs,)),
        )

    def _script_run(self, kind: Kind | None, notes: tuple[str, ...]) -> m.ScriptRun:
        rank = os.environ.get(RANK, "")
        return m.ScriptRun(
            step=kind.words if kind is not None else "",
            steps=self._step_count(kind),
            counted={
                other.words: self._step_count(kind) if other is kind else self._steps.counts[other] for other in Kind
            },
            stopped=self._stopped,
            rank=int(rank) if rank.isdecimal() else None,
            notes=notes,
        )

    def _notes(
        self, kind: Kind | None, call_us: Sequence[float], trace: m.TracePass | m.Skipped | None, unfinished: bool
    ) -> tuple[str, ...]:
        return tuple(
            filter(
                None,
                (
                    _what_a_step_is(kind, self._steps.counts),
                    f"the recording stopped after {self._stopped}; the program ran on" if self._stopped else "",
                    _what_the_profiler_cost(trace, call_us[self._options.warmup :]),
                    self._other_steps_in_trace(kind, trace),
                    _set_too_late(self._flags, flags(os.environ)),
                    "the process ended without a word: what came after the last mark that was written is missing"
                    if unfinished
                    else "",
                ),
            )
        )

    def _other_steps_in_trace(self, kind: Kind | None, trace: m.TracePass | m.Skipped | None) -> str:
        if not isinstance(trace, m.TracePass) or self._window is None or self._window.kind in (None, kind):
            return ""
        return f"the steps of TRACE are each {self._window.kind.words}: the first of the other kind came later"


def renumbered(line: dict[str, Any], number: Callable[[int], int]) -> dict[str, Any]:
    """A line of the file of records, with its label made the number of its step."""
    if "metadata" in line:
        return {**line, "call": number(line["call"])}
    for source in ("frame", "log"):
        if source in line:
            return {source: {**line[source], "call": number(line[source]["call"])}}
    if "graph" in line:
        return {"graph": {**line["graph"], "runs": _summed(line["graph"].get("runs", {}), number)}}
    return line


def renumbered_syncs(records: m.SyncRecords | m.Skipped, number: Callable[[int], int]) -> m.SyncRecords | m.Skipped:
    if isinstance(records, m.Skipped):
        return records
    again = (msgspec.structs.replace(one, calls=_summed(one.calls, number)) for one in records.records)
    return msgspec.structs.replace(records, records=tuple(again))


def _summed(counts: Mapping[Any, int], number: Callable[[int], int]) -> dict[int, int]:
    """By step, what was counted by mark."""
    found: dict[int, int] = {}
    for label, count in counts.items():
        step = number(int(label))
        found[step] = found.get(step, 0) + count
    return found


def _chosen_artifacts() -> frozenset[str]:
    from torch._logging import _internal

    return frozenset(_internal.log_state.artifact_names)


def _what_a_step_is(kind: Kind | None, counts: Sequence[int]) -> str:
    if kind is None:
        return "no step was seen: no compiled function, optimizer or kgprof.step() was called"
    others = [f"{plural(counts[other], 'time')} {other.words}" for other in Kind if other is not kind and counts[other]]
    also = f" (also seen: {', '.join(others)})" if others else ""
    return f"a step is {kind.words}{also}"


def _what_the_profiler_cost(trace: m.TracePass | m.Skipped | None, bare_us: Sequence[float]) -> str:
    if not isinstance(trace, m.TracePass):
        return ""
    steps = f"TRACE: {plural(len(trace.step_us), 'step')}"
    if not bare_us:
        return f"{steps}; there is no step without the profiler after warm-up to set them against"
    traced, bare = statistics.median(trace.step_us), statistics.median(bare_us)
    against = f"{traced:,.0f} us under torch.profiler, {bare:,.0f} us in the {len(bare_us)} before it (medians)"
    return f"{steps} of {against}: {traced / bare:.2f} times; COMPILE's listeners were on in both"


def _set_too_late(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    set_by_it = sorted(name for name in now if now[name] != before.get(name))
    if not set_by_it:
        return ""
    return f"the program itself set {', '.join(set_by_it)}, after torch had been imported to listen: perhaps too late"


# ---------------------------------------------------------------- reruns


class Timed:
    """TIMING: a rerun with nothing but the marks and their clock."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._steps = Steps(self._marked)
        self._marks = StepMarks(self._steps)
        self._over = False

    def begin(self) -> None:
        self._marks.__enter__()

    def write_now(self) -> None:
        return None  # half a rerun is none

    def end(self, why: str = "") -> None:
        if self._over:
            return
        self._over = True
        self._steps.paused = True
        self._marks.__exit__(None, None, None)
        self._place.write(m.PassName.TIMING, self._timing())

    def _marked(self, kind: Kind) -> None:
        if self._steps.full:
            self.end()

    def _timing(self) -> m.TimingPass | m.Skipped:
        options, kind = self._place.options, self._steps.chosen
        at = self._steps.boundaries(kind)
        step_us = [(after - before) / 1e3 for before, after in pairwise(at)]
        kept = tuple(step_us[options.warmup : options.max_steps])
        if kind is None or not kept:
            return m.Skipped(
                reason=f"the rerun for TIMING had {len(step_us)} whole steps, and --warmup is {options.warmup}"
            )
        from_to = f"steps {options.warmup} to {options.warmup + len(kept) - 1} of one rerun of the program"
        return m.TimingPass(
            clock="perf_counter",
            step_us=(kept,),
            evaluation_s=(),
            notes=(f"TIMING: {from_to}; a step is {kind.words}, and its time is the host's up to the next",),
        )


class HostProfiled:
    """HOST: a rerun with cProfile on for ``--steps`` of its steps."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._steps = Steps(self._marked)
        self._marks = StepMarks(self._steps)
        self._profiler = cProfile.Profile()
        self._result: m.HostPass | m.Skipped | None = None
        self._began = 0
        self._step_us: list[float] = []
        self._seen: Sequence[Any] = ()  # in those steps; what comes after the last of them is none
        self._kind: Kind | None = None
        self._over = False

    def begin(self) -> None:
        self._marks.__enter__()

    def write_now(self) -> None:
        return None  # half a rerun is none

    def end(self, why: str = "") -> None:
        if self._over:
            return
        self._over = True
        self._steps.paused = True
        self._marks.__exit__(None, None, None)
        if self._result is None:
            self._close()
        self._place.write(m.PassName.HOST, self._result or m.Skipped(reason="cProfile was never on"))

    def _marked(self, kind: Kind) -> None:
        if self._result is not None or kind is not (self._kind or self._steps.chosen):
            return
        options = self._place.options
        if self._kind is None:
            if self._steps.counts[kind] > options.warmup:
                self._open(kind)
            return
        self._profiler.disable()
        self._step_us.append((time.perf_counter_ns() - self._began) / 1e3)
        self._seen = self._profiler.getstats()
        if len(self._step_us) == options.steps:
            self._close()
        else:
            self._begin_step()

    def _open(self, kind: Kind) -> None:
        self._kind = kind
        self._begin_step()

    def _begin_step(self) -> None:
        try:
            self._profiler.enable()
        except ValueError as error:  # the program has a profiler of its own
            self._result = m.Skipped(reason=f"cProfile cannot be switched on: {error}")
        self._began = time.perf_counter_ns()

    def _close(self) -> None:
        self._profiler.disable()
        why = f"the rerun for HOST had no whole step after --warmup {self._place.options.warmup}"
        self._result = host_table(self._seen, tuple(self._step_us)) if self._step_us else m.Skipped(reason=why)


class Stacked:
    """STACK: a rerun with torch.profiler and Python's stacks on for a few of its steps."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._steps = Steps(self._marked)
        self._marks = StepMarks(self._steps)
        path = place.folder / layout.TRACE_FILES[m.PassName.STACK]
        self._window = TraceWindow(self._steps, place.device, place.options, path, with_stack=True)
        self._over = False

    def begin(self) -> None:
        self._marks.__enter__()
        self._window.__enter__()

    def write_now(self) -> None:
        return None  # half a rerun is none

    def end(self, why: str = "") -> None:
        if self._over:
            return
        self._over = True
        self._steps.paused = True
        self._window.__exit__(None, None, None)
        self._marks.__exit__(None, None, None)
        self._place.write(m.PassName.STACK, self._window.result or m.Skipped(reason="torch.profiler was never on"))

    def _marked(self, kind: Kind) -> None:
        self._window.marked(kind)
