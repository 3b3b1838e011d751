"""The child that runs a whole program: ``script.py`` or ``-m pkg.mod`` as ``__main__``, once, while
it is watched.

The program has no steps that could be called, so the instruments follow it: COMPILE's sources and
the reads of tensors are listened to from its first line on, torch.profiler is on for some of its
steps, and what was seen is written down again and again, because a program may end in any way it
likes. TIMING, HOST and STACK are reruns of it under a clock, cProfile or torch.profiler with stacks
alone.
"""

from __future__ import annotations

import atexit
import operator
import os
import resource
import signal
import statistics
import sys
import time
import traceback
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from os import getpid  # a program may put another in its place
from pathlib import Path
from resource import setrlimit  # its own calls are preceded by a write
from sys import gettrace, settrace
from typing import Any, NoReturn

from msgspec.structs import replace as replaced

from kgprof import model as m
from kgprof.reading import layout
from kgprof.reading.compile_calls import condition, first_compile, thrown_away, uncalled
from kgprof.record.files import flight_recorder
from kgprof.record.ground import kept_records, project_sources, store
from kgprof.record.ground.environment import ProbeWhenAsked
from kgprof.record.ground.flags import flags
from kgprof.record.ground.job import (
    PLUMBING,
    WRITE_NOW,
    Done,
    Event,
    Failed,
    Job,
    describe_failure,
    failure,
)
from kgprof.record.ground.kept_records import compilations
from kgprof.record.ground.own_terms import OwnTerms
from kgprof.record.ground.run import Place
from kgprof.record.ground.source import listeners_in, replace, unavailable
from kgprof.record.listeners import skip_records, standard_input
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.checkpoints import Checkpoints
from kgprof.record.listeners.compiled_kernels import compiled_kernels
from kgprof.record.listeners.eager_calls import EagerCalls
from kgprof.record.listeners.handmade_graphs import HandmadeGraphs
from kgprof.record.listeners.kernel_provenance import KernelProvenance
from kgprof.record.listeners.launchers import WATCH, Launchers
from kgprof.record.listeners.syncs import Syncs
from kgprof.record.listeners.tensor_probe import SAMPLE, WATCHED_CALLS, TensorProbe
from kgprof.record.passes.account import Account
from kgprof.record.passes.control import Control
from kgprof.record.passes.memory import files_named
from kgprof.record.passes.reruns import Rerun
from kgprof.record.passes.steps import Kind, Numbering, StepMarks, Steps
from kgprof.record.passes.timing import Times, between_us
from kgprof.record.passes.torch_profiler import Traced
from kgprof.record.passes.torch_trace import CompileSources
from kgprof.record.passes.trace_window import ENOUGH_CPU_S, TraceWindow
from kgprof.wording import plural
from kgprof.workloads import programs
from kgprof.workloads.backend import as_in, in_place_of_inductor
from kgprof.workloads.programs import Program

WRITTEN_EVERY_S = 0.5  # at most, at the next mark; a write that takes long is made rarer
WRITING_SHARE = 0.05  # of the program's time, at most
CALLS_TIMED = 10_000  # first steps whose times are kept
TENSORS_BEFORE = 2  # steps after warm-up in which tensors are looked at, before the traced ones
RANK = "RANK"  # torchrun's
ANYTHING, MEMORY = BaseException, MemoryError  # a program may delete these names

Send = Callable[[Event], None]


def run(job: Job, send: Send) -> BaseException | None:
    """Run the program up to its last line under what ``job.options.passes`` asks for; returns what
    it raised.

    The interpreter then ends the process in its own order: what was raised is shown, non-daemon
    threads are joined, executors and compile workers shut down, atexit handlers called. The handler
    registered here is called after all of the program's, since atexit calls the last registered
    first; it says how the program ended and writes the passes.
    """
    place = Place(job)
    program = programs.find(job.options.workload)
    watcher = _watcher(job, place)
    if WRITE_NOW is not None:
        signal.signal(WRITE_NOW, lambda number, frame: watcher.write_now())
    standard_input.copy_to(job.input_copy)
    restored = ExitStack()
    last_word: list[Event] = []
    finish = partial(_finish, getpid(), watcher, send, restored)

    def at_exit() -> None:
        atexit.register(finish, last_word)
        # called before it: a program's own trace function may raise
        atexit.register(settrace, None)

    at_exit()
    _last_words(watcher, finish, restored)
    cell = job.cell
    backend = job.options.backend
    restored.enter_context(
        in_place_of_inductor(backend) if cell is None else as_in(cell, place.device.type)
    )
    raised = _run_to_its_end(program, job.options.workload_args, watcher)
    traced = gettrace()
    settrace(None)
    with OwnTerms():
        if raised is not None:
            _show_from_its_own_frame(raised)
        last_word.append(_word(raised, place, watcher.step))
        if job.collectives and isinstance(last_word[0], Failed):
            flight_recorder.write(Path(job.collectives))
        if isinstance(watcher, Rerun) and isinstance(last_word[0], Done):
            watcher.ended_well()
        if not atexit._ncallbacks():  # the program cleared them, as what makes a daemon may
            at_exit()
    settrace(traced)
    return raised


def _watcher(job: Job, place: Place) -> Watcher:
    if job.control:
        return Control(Path(job.answer), job.setting)
    if job.is_rerun:
        return Rerun(place, job.options.passes[0], runs_eagerly=job.runs_eagerly)
    return Capture(place)


def _finish(
    pid: int, watcher: Watcher, send: Send, restored: ExitStack, last_word: Sequence[Event]
) -> None:
    """Says how the program ended, then writes what was seen; a failure of the latter is kgprof's
    and said after it."""
    if getpid() != pid:
        return  # a process that the program forked: it ends as it would without kgprof
    try:
        with OwnTerms():
            _told(watcher, send, restored, last_word)
    except MEMORY:
        return  # the program's own limit: its exit code says how it ended


def _told(watcher: Watcher, send: Send, restored: ExitStack, last_word: Sequence[Event]) -> None:
    try:
        for event in last_word:
            send(event)
        with restored:
            watcher.end()
    except MemoryError:
        raise
    # atexit would print it and forget it; the parent has to know
    except BaseException as error:  # noqa: BLE001
        send(describe_failure(error))


# ---------------------------------------------------------------- the program


def _run_to_its_end(
    program: Program, args: Sequence[str], watcher: Watcher
) -> BaseException | None:
    """What it raised."""
    try:
        code, module = programs.prepared(program, args)
        programs.become_main(module)
        watcher.begin()  # which makes torch import more
        programs.give_way()
        exec(code, module.__dict__)
    except ANYTHING as error:
        return error
    return None


def _show_from_its_own_frame(error: BaseException) -> None:
    """Its traceback begins with the program's first frame, through its own excepthook if any."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(PLUMBING):
        frames = frames.tb_next
    error.__traceback__ = frames
    if hasattr(sys, "excepthook"):  # else Python says itself that it is missing
        hook = sys.excepthook

        def shown(kind: type[BaseException], value: BaseException, trace: object) -> None:
            # this one holds the program's objects, which would be taken apart too late
            sys.excepthook = hook
            # on its way here kgprof's frames have come to it again
            value.__traceback__ = frames
            hook(kind, value, frames)

        sys.excepthook = shown


def _word(raised: BaseException | None, place: Place, step: int | None) -> Event:
    """How the program ended, by what it raised; sys.exit() takes None, a number, or anything else
    to be printed."""
    code = raised.code if isinstance(raised, SystemExit) else 0
    if raised is None or code is None:
        return Done()
    if isinstance(raised, SystemExit):
        # what C's long cannot hold is -1 to Python, and the system keeps the low byte
        if isinstance(code, int):
            code = code if -(2**63) <= code < 2**63 else -1
            return Failed(message=f"sys.exit({code})", exited=True) if code & 0xFF else Done()
        # also of what has no words
        said = "".join(traceback.format_exception_only(SystemExit(code))).strip()
        return Failed(message=said.replace("SystemExit", "sys.exit", 1), exited=True)
    text = "".join(traceback.format_exception(raised))
    message = traceback.format_exception_only(raised)[-1].strip()
    if isinstance(raised, SyntaxError) and raised.filename:
        message = f"{message} [{raised.filename}:{raised.lineno}]"
    return Failed(
        message=message,
        traceback=text,
        failure=failure(raised, place.project.holds, step),
        through=listeners_in(raised),
    )


def _last_words(
    watcher: Watcher, finish: Callable[[Sequence[Event]], None], undo: ExitStack
) -> None:
    """``os._exit`` ends a process on the spot, ``os.exec*`` this program, and behind a hard limit
    nothing may be written any more; what was seen is written down first."""
    original = os._exit
    pid = getpid()

    def leave(status: int) -> NoReturn:
        left = operator.index(status) & 0xFF
        finish([Failed(message=f"os._exit({status})", exited=True) if left else Done()])
        original(status)

    def written_before(call: Callable[..., None]) -> Callable[..., None]:
        def both(*args: Any, **kwargs: Any) -> None:
            if getpid() == pid:
                watcher.write_now()
            call(*args, **kwargs)

        return both

    replace(os, "_exit", leave, undo)
    for name in ("execv", "execve"):  # the others call these
        replace(os, name, written_before(getattr(os, name)), undo)
    replace(resource, "setrlimit", written_before(setrlimit), undo)


# ------------------------------------------------------------- COMPILE, the reads of tensors, TRACE


class Capture:
    """Everything that one run of the program can give."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._options = place.options
        self._project = place.project
        self._steps = Steps(self._marked)
        self._marks = StepMarks(self._steps, place.project)
        self._compile = CompileSources(self._steps, self._project, to_stderr=False)
        self._account = Account(self._steps)
        self._launchers = Launchers(place.project)
        self._checkpoints = Checkpoints()
        self._isa_probe = ProbeWhenAsked(Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")))
        self._syncs = Syncs(self._steps, place.device, self._project)
        self._graphs = HandmadeGraphs(self._steps, place.device.type, self._project)
        # and the label of the mark that began each
        self._calls = CallIndex()
        self._call_marks = array("q")
        self._tensors = TensorProbe(self._calls, watches=self._watches_tensors)
        self._tensors_watched = 0
        self._window = TraceWindow(
            self._steps,
            place.device,
            place.options,
            place.trace_path(m.PassName.TRACE),
            # no rule asks which lines a CPU that waits for no GPU was in
            project=place.project if place.device.type == "cuda" else None,
        )
        self._window.first = self._eager = EagerCalls(CallIndex(), place.project)
        self._provenance = KernelProvenance(place.project)
        if m.PassName.TRACE not in place.options.passes:
            self._window.result = m.Skipped("the TRACE pass was not requested")
        self._stack = ExitStack()
        self._flags = flags()
        self._began = self._written = time.monotonic()
        self._pause_s = 0.0
        self._writing = False
        self._stopped = ""
        self._over = False
        self._ended_ns: int | None = None
        self._own_logs = False

    def begin(self) -> None:
        asked = {
            m.PassName.MEMORY: (self._syncs, self._graphs, self._tensors),
            m.PassName.TRACE: (self._provenance, self._window),
        }
        others = (
            source
            for name, some in asked.items()
            if name in self._options.passes
            for source in some
        )
        for source in (
            *self._compile.sources,
            *others,
            self._marks,
            self._account,
            self._launchers,
            self._checkpoints,
        ):
            self._stack.enter_context(source)
        if self._place.device.type == "cpu":
            self._stack.enter_context(self._isa_probe)
        # looked up now: a slow first write would make the next ones rare
        project_sources.distributions()
        project_sources.started_in()
        self._began = self._written = time.monotonic()

    def end(self, why: str = "") -> None:
        """Once: takes everything off and writes it down. ``why``, where the program goes on without
        it."""
        if not self._over:
            self._over = True
            self._ended_ns = self._steps.now_ns()  # closing the profiler is no part of the program
            self._stopped = why
            self._steps.paused = True
            self._own_logs = not skip_records.are_written()
            # from the last to the first; what one raises keeps the others from nothing
            with ExitStack() as each:
                each.callback(self._write)
                each.callback(self._stack.close)
                each.callback(self._window.close, f"the recording stopped: {why}" if why else "")
        if self._steps.fault is not None:
            raise self._steps.fault

    @property
    def step(self) -> int | None:
        """The one that runs, from 1; None before the first and where nothing is a step."""
        return self._steps.running

    # ---- while it runs

    def _marked(self, kind: Kind) -> None:
        """At each mark, which stands before the step that it begins."""
        now = time.monotonic()
        if why := self._enough(now):
            self.end(why)
            return
        self._window.marked(kind)
        if kind is self._steps.chosen:
            if self._call_marks:
                self._calls.end()
            self._call_marks.append(self._steps.current)
            self._calls.begin()
            self._syncs.step_begins()
        if now - self._written > self._pause_s:
            self.write_now()

    def _watches_tensors(self, call: int) -> bool:
        """A look costs up to a millisecond a graph, so that none falls into a traced step, and at
        most TENSORS_BEFORE into the steps whose median the traced ones are set against; behind
        those as in any workload."""
        if self._window.result is None:
            after_warm_up = self._steps.ended() - self._options.warmup
            watches = self._window.opened_at is None and after_warm_up < TENSORS_BEFORE
        else:
            watches = self._tensors_watched < WATCHED_CALLS or call % SAMPLE == 0
        self._tensors_watched += watches
        return watches

    def _enough(self, now: float) -> str:
        """Why the recording stops here; empty where it goes on."""
        limit = self._options.max_steps
        if limit is not None and self._steps.ended() >= limit:
            return f"{plural(limit, 'step')} (--max-steps)"
        limit_s = self._options.duration_s
        if limit_s is not None and now - self._began > limit_s:
            return f"{limit_s:g} s (--duration)"
        if self._steps.full:
            return f"{self._steps.current + 1:,} marks of steps, the most that kgprof keeps"
        return ""

    def _step_count(self) -> int:
        """With the one that the program's end cut off, where marks begin steps and it was
        watched."""
        begins = self._steps.reported not in (None, Kind.OPTIMIZER)
        return self._steps.ended() + int(begins and not self._stopped)

    def write_now(self) -> None:
        """What there is so far. A write that fails is none of the program's business; the last one
        says so."""
        if not self._over and not self._writing:
            with suppress(MEMORY), OwnTerms(), suppress(Exception):
                self._write(unfinished=True)

    # ---- what is written

    def _write(self, *, unfinished: bool = False) -> None:
        self._writing = True
        began = time.monotonic()
        try:
            self._write_each(unfinished)
        # a disk that was full for a moment must not keep what is measured later from being written
        finally:
            self._writing = False
            self._written = time.monotonic()
            self._pause_s = max(WRITTEN_EVERY_S, (self._written - began) / WRITING_SHARE)

    def _write_each(self, unfinished: bool) -> None:
        place = self._place
        number = self._steps.numbers()
        # The steps that ended before the TRACE window; where there is none, what has begun, or the
        # whole program, is one.
        until = None if self._window.opened_at is None else number(self._window.opened_at)
        call_us = self._ended_us()[:until] or (self._running_us(),)
        compiled_in = self._steps.compiled_in()
        warmup = self._options.warmup
        trace = self._window.result
        bare_us = [
            us for step, us in enumerate(call_us) if step >= warmup and step not in compiled_in
        ]
        if isinstance(trace, m.TracePass) and bare_us:
            trace = replaced(trace, bare_us=statistics.median(bare_us))

        def write_trace() -> None:
            if trace is not None:
                place.write(m.PassName.TRACE, trace)
                origins = self._eager.beside(self._provenance.answer())
                store.write_json(place.folder / layout.KERNEL_ORIGINS, origins)
                store.write_json(
                    place.folder / layout.COMPILED_KERNELS, compiled_kernels(place.device)
                )

        def write_compiled() -> None:
            lost = [*unavailable((self._marks, self._isa_probe))]
            if self._own_logs:
                why = "the program called torch._logging.set_logs itself"
                lost.append(m.Unavailable("torch logs", why, incomplete=True))
            compiled = self._compile.answer(call_us, warmup, *lost, calls=self._step_count())
            place.write(m.PassName.COMPILE, replaced(compiled, compiled_in=compiled_in))

        def write_records() -> None:
            lines = [renumbered(line, number) for line in self._compile.lines()]
            kept_records.write_records(place.folder / layout.TRACE_RECORDS, lines)
            store.write_json(
                place.folder / layout.SOURCES,
                project_sources.gather(lines, self._project, imported=True),
            )

        # from the last to the first; what one raises keeps the others from nothing
        with ExitStack() as each:
            each.callback(self._write_script, bare_us, trace, unfinished)
            each.callback(write_trace)
            each.callback(lambda: place.write(m.PassName.MEMORY, self._memory_pass(number)))
            each.callback(write_compiled)
            each.callback(write_records)

    def _uncounted(self) -> int:
        return self._marks.uncounted if self._steps.reported is Kind.OPTIMIZER else 0

    def _took_us(self) -> float:
        """Since the program's first line."""
        return (time.monotonic() - self._began) * 1e6

    def _running_us(self) -> float:
        """Since the last step began; of a program without steps, since its first line."""
        boundaries = self._steps.boundaries()
        if not boundaries:
            return self._took_us()
        return (self._now_ns() - boundaries[-1]) / 1e3

    def _now_ns(self) -> int:
        """Until the program ended, on the clock of its steps."""
        return self._steps.now_ns() if self._ended_ns is None else self._ended_ns

    def _compiling_in(self, trace: m.TracePass) -> int:
        """Count the traced steps in which torch compiled; the profiler starts in the one before
        the first."""
        if self._window.opened_at is None:
            return 0
        first = self._steps.numbers()(self._window.opened_at) + 1
        traced = range(first, first + len(trace.step_us))
        return sum(step in traced for step in self._steps.compiled_in())

    def _ended_us(self) -> Times:
        return between_us(self._steps.boundaries())[:CALLS_TIMED]

    def _memory_pass(self, number: Numbering) -> m.MemoryPass | m.Skipped:
        if m.PassName.MEMORY not in self._options.passes:
            return m.Skipped("the MEMORY pass was not requested")
        step_us = self._ended_us()
        steady_from = self._options.warmup
        if self._steps.reported is None:  # one window, in which all of it happens
            step_us = (self._took_us(),)
            steady_from = 0
            number = _the_only_step
        # the last one is not over: up to now
        if len(step_us) < min(self._step_count(), CALLS_TIMED):
            step_us = (*step_us, self._running_us())
        syncs = self._syncs.records()
        steps = (
            replaced(
                one,
                calls=added_up(one.calls, number),
                waited_us=added_up(one.waited_us, number),
            )
            for one in syncs.records
        )
        graphs = self._graphs.records()
        named = (
            frame.file
            for graph in graphs
            for frame in (*graph.frames, *(one.at for one in graph.wrong))
        )
        tensors = self._tensors.renumbered(
            lambda call: number(self._call_marks[call]) if call >= 0 else number(call)
        )
        return m.MemoryPass(
            step_us=step_us,
            steady_from=steady_from,
            syncs=replaced(syncs, records=tuple(steps)),
            sources=project_sources.of_files([*files_named(syncs, tensors), *named], self._project),
            graphs=tuple(
                replaced(
                    one, captured_in=number(one.captured_in), replays=added_up(one.replays, number)
                )
                for one in graphs
            ),
            tensors=tensors,
            peaks=m.Skipped(
                "not measured in a script, whose single run includes compilation and the profiler"
            ),
            capture_unavailable=unavailable((self._syncs, self._tensors)),
        )

    def _write_script(
        self, bare_us: Sequence[float], trace: Traced | None, unfinished: bool
    ) -> None:
        kind = self._steps.reported
        rank = os.environ.get(RANK, "")
        counted = {other.words: self._steps.count(other) for other in Kind}
        step = ""
        if kind is not None:
            step = kind.words
            counted[step] = self._step_count()
        script = m.ScriptRun(
            step=step,
            steps=self._step_count(),
            left_out=self._steps.left_out,
            uncounted=self._uncounted(),
            traced=self._window.kind.words if self._window.kind not in (None, kind) else "",
            counted=counted,
            stopped=self._stopped,
            rank=int(rank) if rank.isdecimal() else None,
            launched=tuple(self._launchers.found),
            checkpoints=tuple(self._checkpoints.found),
            closure=self._closure(),
            loop=self._marks.iterations.loop if kind is Kind.ITERATION else None,
            account=self._accounted(unfinished),
            notes=tuple(self._notes(kind, bare_us, trace, unfinished)),
        )
        if not unfinished and not any(compilations(self._compile.records())):
            place, under = self._compile_call()
            script = replaced(
                script,
                workers=self._launchers.workers,
                compile_call=place,
                compile_under=under,
                was_asked=self._compile.was_asked,
            )
        if not unfinished and (script.compile_call or script.is_one_window):
            main = self._files().get(_main())
            # functions of the script itself that no line of it calls
            script = replaced(script, uncalled=uncalled(main.text or "") if main else ())
        store.write_json(self._place.folder / layout.SCRIPT, script)

    def _accounted(self, unfinished: bool) -> m.ScriptAccount | m.Skipped:
        """Of a program that was watched to its end."""
        if unfinished:
            return m.Skipped("the process ended abruptly")
        if self._stopped:
            return m.Skipped(f"the recording stopped after {self._stopped}")
        return self._account.answer(
            self._now_ns(), under_listeners=True, trains_on=self._uncounted() > 0
        )

    def _compile_call(self) -> tuple[str, str]:
        """Where the program's own text calls torch.compile, of one that compiled nothing, and what
        that line stands under, unless one took effect."""
        files = self._files()
        main = _main()
        for name in sorted(files, key=lambda file: file != main):
            text = files[name].text or ""
            if (line := first_compile(text)) is not None:
                under = "" if self._compile.was_asked else condition(text, line)
                return f"{Path(name).name}:{line}", thrown_away(text, line) or under
        return "", ""

    def _files(self) -> Mapping[str, m.SourceFile]:
        return project_sources.gather((), self._project, imported=True).files

    def _closure(self) -> str:
        """The program's own one, in which it can say where a step begins."""
        code = self._marks.closure
        if code is None or not self._project.holds(code.co_filename):
            return ""
        return f"{code.co_name} ({Path(code.co_filename).name}:{code.co_firstlineno})"

    def _notes(
        self,
        kind: Kind | None,
        bare_us: Sequence[float],
        trace: Traced | None,
        unfinished: bool,
    ) -> Iterator[str]:
        """``bare_us``: steps after warm-up, before the profiler was on."""
        if kind is None:
            none = (
                "no kgprof.step(), optimizer, compiled function, CUDA graph replay or "
                "nn.Module was called"
            )
            if self._launchers.found or self._launchers.workers:
                none += " in the main process"
            if self._steps.counts[Kind.OPTIMIZER]:
                none = "the only optimizer step has an end, and no beginning that kgprof could see"
            yield f"the program has no steps: {none}; times are of the whole program"
        else:
            seen = [(self._steps.count(other), other.words) for other in Kind if other is not kind]
            others = ", ".join(f"{plural(count, 'time')} {words}" for count, words in seen if count)
            also = f" (also seen: {others})" if others else ""
            loop = self._marks.iterations.loop if kind is Kind.ITERATION else None
            where = f" ({Path(loop.file).name}:{loop.line})" if loop else ""
            first = ", from the second on" if self._steps.left_out else ""
            counted = f"{self._step_count():,} counted{first}{also}"
            yield f"a step is {kind.words}{where}; {counted}"
            if uncounted := self._uncounted():
                steps = plural(uncounted, "step")
                after = "of other optimizers came after the last counted one"
                yield f"{steps} {after}: no step time contains them"
            if first:
                yield "where the first optimizer step began is not known: no step time contains it"
            for function in (one.function for one in self._launchers.found if one.function):
                yield (
                    f"{function} ran in processes of its own, which are not in this report; "
                    f"{WATCH} in it shows them"
                )
        if (closure := self._closure()) and not isinstance(trace, m.TracePass):
            each = (
                f"each optimizer step calls {closure}: import kgprof, and kgprof.step() as "
                "its first line"
            )
            yield f"too few steps for a TRACE; {each}, make a step of every call"
        if self._syncs.followed_until is not None:
            steps = plural(self._steps.numbers()(self._syncs.followed_until), "step")
            yield (
                "all reads are counted; whether a tensor would be on a GPU was looked up in "
                f"{steps} and new reads"
            )
        if self._stopped:
            yield f"the recording stopped after {self._stopped}; the program continued"
        if isinstance(trace, m.TracePass):
            yield what_the_profiler_cost(trace, bare_us)
            if self._window.kind is kind and (compiling := self._compiling_in(trace)):
                of = plural(len(trace.step_us), "traced step")
                yield f"torch compiled in {compiling} of the {of}, and their times contain it"
            if self._window.enough_after:
                yield (
                    f"TRACE followed {self._window.enough_after} of the "
                    f"{plural(self._options.steps, 'step')} it may follow: they took "
                    f"{ENOUGH_CPU_S:g} s of CPU time under torch.profiler"
                )
            if self._window.kind not in (None, kind):
                each = self._window.kind.words
                yield (
                    f"a step of TRACE is {each}, because the first step of the other kind came "
                    "later"
                )
        now = flags()
        if late := ", ".join(sorted(name for name in now if now[name] != self._flags.get(name))):
            yield (
                f"the program, or a library of it, set {late} after kgprof imported torch: it "
                "may have no effect"
            )
        if unfinished:
            yield "the process ended abruptly: what followed the last written mark is missing"


Watcher = Capture | Rerun | Control


def renumbered(line: dict[str, Any], number: Numbering) -> dict[str, Any]:
    """A line of the file of records, with its label made the number of its step."""
    if "metadata" in line:
        return {**line, "call": number(line["call"])}
    for source in ("frame", "log", "backend"):
        if source in line:
            return {source: {**line[source], "call": number(line[source]["call"])}}
    if "graph" in line:
        return {"graph": {**line["graph"], "runs": added_up(line["graph"].get("runs", {}), number)}}
    for what in ("callable", "plain"):
        if what in line:
            return {what: _callable_by_step(line[what], number)}
    if "compiled_calls" in line:
        counted = line["compiled_calls"]
        asked = added_up(counted.get("asked", {}), number)
        return {"compiled_calls": {**counted, "asked": asked}}
    return line


def _callable_by_step(counted: dict[str, Any], number: Numbering) -> dict[str, Any]:
    began = counted.get("compilations", ())
    return {
        **counted,
        **{name: added_up(counted.get(name, {}), number) for name in ("calls", "eager", "raised")},
        "stances": {
            name: added_up(calls, number) for name, calls in counted.get("stances", {}).items()
        },
        "compilations": [{**each, "call": number(each["call"])} for each in began],
    }


def _the_only_step(label: int) -> int:
    return 0


def added_up(noted: Mapping[Any, float], number: Numbering) -> dict[int, Any]:
    """Add up by step what was counted or timed by mark."""
    found: dict[int, float] = {}
    for label, amount in noted.items():
        step = number(int(label))
        found[step] = found.get(step, 0) + amount
    return found


def _main() -> str:
    """The script's file, as its sources name it."""
    return getattr(sys.modules.get("__main__"), "__file__", None) or ""


def what_the_profiler_cost(trace: m.TracePass, bare_us: Sequence[float]) -> str:
    """The traced steps beside those just before them."""
    steps = f"TRACE: {plural(len(trace.step_us), 'step')}"
    if not bare_us:
        return f"{steps}; all before it were warm-up or compiled: there is none to compare with"
    traced = statistics.median(trace.step_us)
    bare = statistics.median(bare_us)
    against = (
        f"{traced:,.0f} µs under torch.profiler, {bare:,.0f} µs in the {len(bare_us)} "
        "steps before it (medians)"
    )
    return (
        f"{steps}: {against}, a ratio of {traced / bare:.2f}; COMPILE's listeners were on in both"
    )
