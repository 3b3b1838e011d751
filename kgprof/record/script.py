"""The child that runs a whole program: ``script.py`` or ``-m pkg.mod`` as ``__main__``, once, while it is watched.

The program has no steps that could be called, so the instruments follow it: COMPILE's sources and the reads of tensors
are listened to from its first line on, torch.profiler is on for some of its steps, and what was seen is written down
again and again, because a program may end in any way it likes. TIMING, HOST and STACK are reruns of it under a clock,
cProfile or torch.profiler with stacks alone.
"""

from __future__ import annotations

import atexit
import os
import signal
import statistics
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, NoReturn

import msgspec

from kgprof import model as m
from kgprof.reading import layout
from kgprof.record import kept_records, project_sources, store
from kgprof.record.checkpoints import Checkpoints
from kgprof.record.compiled_kernels import compiled_kernels
from kgprof.record.flags import flags
from kgprof.record.job import PLUMBING, WRITE_NOW, Done, Event, Failed, Job, describe_failure
from kgprof.record.launchers import Launchers
from kgprof.record.memory import files_of_reads
from kgprof.record.reruns import Rerun
from kgprof.record.run import Place
from kgprof.record.source import replace, unavailable
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


def run(job: Job, send: Send) -> int:
    """Run the program up to its last line under what ``job.options.passes`` asks for; returns its exit code.

    The interpreter then ends the process in its own order: non-daemon threads are joined, executors and compile
    workers shut down, atexit handlers called. The handler registered here is called after all of the program's, since
    atexit calls the last registered first; it writes the passes and sends the last event.
    """
    place, passes = Place(job), job.options.passes
    program = programs.find(job.options.workload)
    reruns = len(passes) == 1 and m.PASSES[passes[0]].reruns
    watcher = Rerun(place, passes[0]) if reruns else Capture(place)
    if WRITE_NOW is not None:
        signal.signal(WRITE_NOW, lambda number, frame: watcher.write_now())
    restored = ExitStack()
    last_event: list[Event] = []
    atexit.register(_finish, os.getpid(), watcher, send, last_event, restored)
    _last_words(watcher, send, restored)
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


def _last_words(watcher: Watcher, send: Send, undo: ExitStack) -> None:
    """``os._exit`` ends a process on the spot; what was seen is written down first."""
    original, pid = os._exit, os.getpid()

    def leave(status: int) -> NoReturn:
        if os.getpid() == pid:
            os._exit = original
            watcher.end()
            send(Failed(message=f"os._exit({status})", exited=True) if status else Done())
        original(status)

    replace(os, "_exit", leave, undo)


# ---------------------------------------------------------------- COMPILE, the reads of tensors, TRACE


class Capture:
    """Everything that one run of the program can give."""

    def __init__(self, place: Place) -> None:
        self._place, self._options = place, place.options
        self._project = place.project
        self._steps = Steps(self._marked)
        self._marks = StepMarks(self._steps)
        self._compile = CompileSources(self._steps, self._project)
        self._launchers, self._checkpoints = Launchers(), Checkpoints()
        self._syncs = Syncs(self._steps, place.device, self._project)
        self._window = TraceWindow(self._steps, place.device, place.options, place.trace_path(m.PassName.TRACE))
        if m.PassName.TRACE not in place.options.passes:
            self._window.result = m.Skipped(reason="the TRACE pass was not asked for")
        self._stack = ExitStack()
        self._flags = flags(os.environ)
        self._began = self._written = time.monotonic()
        self._pause_s = 0.0
        self._writing = False
        self._stopped = ""
        self._over = False
        self._logs_chosen: frozenset[str] = frozenset()
        self._own_logs = False

    def begin(self) -> None:
        asked = {m.PassName.MEMORY: self._syncs, m.PassName.TRACE: self._window}
        others = (source for name, source in asked.items() if name in self._options.passes)
        for source in (*self._compile.sources, *others, self._marks, self._launchers, self._checkpoints):
            self._stack.enter_context(source)
        self._logs_chosen = _chosen_artifacts()
        project_sources.distributions()  # looked up now: a slow first write would make the next ones rare
        self._began = self._written = time.monotonic()

    def end(self, why: str = "") -> None:
        """Once: takes everything off and writes it down. ``why``, where the program goes on without it."""
        if self._over:
            return
        self._over = True
        self._stopped = why
        self._steps.paused = True
        self._own_logs = self._logs_chosen != _chosen_artifacts()
        with ExitStack() as each:  # from the last to the first; what one raises keeps the others from nothing
            each.callback(self._write)
            each.callback(self._stack.close)
            each.callback(self._window.close, f"the recording stopped: {why}" if why else "")

    # ---- while it runs

    def _marked(self, kind: Kind) -> None:
        """At each mark, which stands before the step that it begins."""
        now = time.monotonic()
        if why := self._enough(now):
            self.end(why)
            return
        self._window.marked(kind)
        if now - self._written > self._pause_s:
            self.write_now()

    def _enough(self, now: float) -> str:
        """Why the recording stops here; empty where it goes on."""
        chosen, limit = self._steps.chosen, self._options.max_steps
        if limit is not None and self._steps.ended(chosen) >= limit:
            return f"{plural(limit, 'step')} (--max-steps)"
        if self._options.duration_s is not None and now - self._began > self._options.duration_s:
            return f"{self._options.duration_s:g} s (--duration)"
        return f"{self._steps.current + 1:,} marks of steps, which are as many as are kept" if self._steps.full else ""

    def _step_count(self, kind: Kind | None) -> int:
        """With the one that the program's end cut off, where marks begin steps and it was watched."""
        begins = kind not in (None, Kind.OPTIMIZER)
        return self._steps.ended(kind) + int(begins and not self._stopped)

    def write_now(self) -> None:
        """What there is so far."""
        if not self._over and not self._writing:
            self._write(unfinished=True)

    # ---- what is written

    def _write(self, *, unfinished: bool = False) -> None:
        self._writing = True
        began = time.monotonic()
        try:
            self._write_each(unfinished)
        finally:  # a disk that was full for a moment must not keep what is measured later from being written
            self._writing = False
            self._written = time.monotonic()
            self._pause_s = max(WRITTEN_EVERY_S, (self._written - began) / WRITING_SHARE)

    def _write_each(self, unfinished: bool) -> None:
        place, kind = self._place, self._steps.chosen
        number = self._steps.numbers(kind)
        # The steps that ended before the TRACE window; where there is none, the whole program is one.
        until = None if self._window.opened_at is None else number(self._window.opened_at)
        call_us = self._ended_us(kind)[:until] or ((time.monotonic() - self._began) * 1e6,)
        trace = self._window.result

        def write_trace() -> None:
            if trace is not None:
                place.write(m.PassName.TRACE, trace)
                store.write_json(place.folder / layout.COMPILED_KERNELS, compiled_kernels(place.device))

        def write_compiled() -> None:
            lost = [*unavailable((self._marks,))]
            if self._own_logs:
                why = "the program called torch._logging.set_logs itself"
                lost.append(m.Unavailable(capture="torch logs", why=why, incomplete=True))
            compiled = self._compile.answer(call_us, self._options.warmup, *lost, calls=self._step_count(kind))
            place.write(m.PassName.COMPILE, compiled)

        def write_records() -> None:
            lines = [renumbered(line, number) for line in self._compile.lines()]
            kept_records.write_records(place.folder / layout.TRACE_RECORDS, lines)
            store.write_json(place.folder / layout.SOURCES, project_sources.gather(lines, self._project))

        with ExitStack() as each:  # from the last to the first; what one raises keeps the others from nothing
            each.callback(self._write_script, kind, call_us[self._options.warmup :], trace, unfinished)
            each.callback(write_trace)
            each.callback(lambda: place.write(m.PassName.MEMORY, self._memory_pass(kind, number)))
            each.callback(write_compiled)
            each.callback(write_records)

    def _ended_us(self, kind: Kind | None) -> tuple[float, ...]:
        return tuple((after - before) / 1e3 for before, after in pairwise(self._steps.boundaries(kind)))[:CALLS_TIMED]

    def _memory_pass(self, kind: Kind | None, number: Callable[[int], int]) -> m.MemoryPass | m.Skipped:
        if m.PassName.MEMORY not in self._options.passes:
            return m.Skipped(reason="the MEMORY pass was not asked for")
        step_us = self._ended_us(kind)
        if len(step_us) < min(self._step_count(kind), CALLS_TIMED):  # the last one is not over: up to now
            step_us = (*step_us, (self._steps.now_ns() - self._steps.boundaries(kind)[-1]) / 1e3)
        syncs = self._syncs.records()
        steps = (msgspec.structs.replace(one, calls=_summed(one.calls, number)) for one in syncs.records)
        return m.MemoryPass(
            step_us=step_us,
            steady_from=self._options.warmup,
            syncs=msgspec.structs.replace(syncs, records=tuple(steps)),
            sources=project_sources.of_files(files_of_reads(syncs), self._project),
            tensors=m.Skipped(reason="a script is not compiled under the probes: they change what is compiled"),
            peaks=m.Skipped(reason="not measured in a script: its one run holds compilation and the profiler"),
            capture_unavailable=unavailable((self._syncs,)),
        )

    def _write_script(
        self, kind: Kind | None, bare_us: Sequence[float], trace: m.TracePass | m.Skipped | None, unfinished: bool
    ) -> None:
        rank, counts = os.environ.get(RANK, ""), self._steps.counts
        script = m.ScriptRun(
            step=kind.words if kind is not None else "",
            steps=self._step_count(kind),
            counted={other.words: self._step_count(kind) if other is kind else counts[other] for other in Kind},
            stopped=self._stopped,
            rank=int(rank) if rank.isdecimal() else None,
            launched=tuple(self._launchers.found),
            checkpoints=tuple(self._checkpoints.found),
            notes=tuple(self._notes(kind, bare_us, trace, unfinished)),
        )
        store.write_json(self._place.folder / layout.SCRIPT, script)

    def _notes(
        self, kind: Kind | None, bare_us: Sequence[float], trace: m.TracePass | m.Skipped | None, unfinished: bool
    ) -> Iterator[str]:
        """``bare_us``: steps after warm-up, before the profiler was on."""
        if kind is None:
            yield "no step was seen: no kgprof.step(), optimizer, compiled function, CUDA graph or nn.Module was called"
        else:
            seen = [(self._steps.counts[other], other.words) for other in Kind if other is not kind]
            others = ", ".join(f"{plural(count, 'time')} {words}" for count, words in seen if count)
            yield f"a step is {kind.words}{f' (also seen: {others})' if others else ''}"
        if self._stopped:
            yield f"the recording stopped after {self._stopped}; the program ran on"
        if isinstance(trace, m.TracePass):
            yield _what_the_profiler_cost(trace, bare_us)
            if self._window.kind not in (None, kind):
                each = self._window.kind.words
                yield f"the steps of TRACE are each {each}: the first of the other kind came later"
        now = flags(os.environ)
        if late := ", ".join(sorted(name for name in now if now[name] != self._flags.get(name))):
            yield f"the program itself set {late}, after torch had been imported to listen: perhaps too late"
        if unfinished:
            yield "the process ended without a word: what came after the last mark that was written is missing"


Watcher = Capture | Rerun


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


def _summed(counts: Mapping[Any, int], number: Callable[[int], int]) -> dict[int, int]:
    """By step, what was counted by mark."""
    found: Counter[int] = Counter()
    for label, count in counts.items():
        found[number(int(label))] += count
    return dict(found)


def _chosen_artifacts() -> frozenset[str]:
    from torch._logging import _internal

    return frozenset(_internal.log_state.artifact_names)


def _what_the_profiler_cost(trace: m.TracePass, bare_us: Sequence[float]) -> str:
    """The traced steps beside those just before them."""
    steps = f"TRACE: {plural(len(trace.step_us), 'step')}"
    if not bare_us:
        return f"{steps}; there is no step without the profiler after warm-up to set them against"
    traced, bare = statistics.median(trace.step_us), statistics.median(bare_us)
    against = f"{traced:,.0f} us under torch.profiler, {bare:,.0f} us in the {len(bare_us)} before it (medians)"
    return f"{steps} of {against}: {traced / bare:.2f} times; COMPILE's listeners were on in both"
