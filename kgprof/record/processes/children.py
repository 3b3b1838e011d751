"""The parent's side of a child process: start it, listen to it, and end its whole process group.

One child at a time, two that time in turn, or two beside each other. A child is a fresh interpreter
in a session of its own, with private compiler caches: cold, or as another child of the same run
left them. Its stdout and stderr go to a log, its progress comes over a pipe of its own.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import functools
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec.structs import replace

import kgprof
from kgprof import model as m
from kgprof.errors import UsageError
from kgprof.record.ground import alone, store
from kgprof.record.ground.flags import Variables
from kgprof.record.ground.job import EVENT_DECODER, WRITE_NOW, Done, Failed, Job, Phase, Task
from kgprof.record.ground.log import BoundedLog, Quiet
from kgprof.record.ground.turns import FIRST, IN_TURN_FROM
from kgprof.record.listeners import standard_input
from kgprof.record.processes import fork_server
from kgprof.record.processes.fork_server import Forked
from kgprof.signals import Signals, catches, words
from kgprof.workloads import programs

OnPhase = Callable[[str], None]  # an empty one: it has ended
Echo = Callable[[bytes], None]

FORKED = frozenset(Task) - {Task.ROUND}  # where imports_shared is entered
OF_FUNCTIONS = (Task.ROUND, Task.TRIAL)  # never of a program
HEARS_S = 1.0  # until a signal is heard that another thread than the main one took
CTRL_C_GRACE_S = 10.0  # for a program that ends on Ctrl-C, and what it does on its way out
AT_ONCE = 2  # children beside each other, where they need not be alone
# for the atexit handlers of a child that has done its work (Inductor's wait 10 s for its workers)
EXIT_GRACE_S = 2.0
TERM_GRACE_S = 3.0  # between SIGTERM and SIGKILL
STACK_GRACE_S = 0.5  # for the Python stack that SIGUSR1 asks a hung child for
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
DRAIN_S = 5.0  # for the pipes of a child that has ended

# -P keeps the current folder off sys.path, where a user's json.py would hide Python's. kgprof
# itself is taken from the
# folder that the parent has it from, which need not be installed.
BOOTSTRAP = (  # of a module with a ``main``
    "import sys; sys.path.insert(0, sys.argv[1]); import kgprof; del sys.path[0]; "
    "from {} import main; main(*sys.argv[2:])"
)
# A program would see -P in sys.flags, and hand it on to what it starts; there the current folder is
# taken off by hand.
PROGRAM_BOOTSTRAP = f"import sys; del sys.path[0]; {BOOTSTRAP}"
HOME = Path(kgprof.__file__).resolve().parent.parent
PROCESSES = __package__


def _processes_of(home: str) -> str:
    """Return the package of the child in a folder that holds kgprof, which may be an older one."""
    is_older = (Path(home) / "kgprof" / "record" / "child.py").is_file()
    return "kgprof.record" if is_older else PROCESSES


class Ended(m.Model):
    exit: m.Exit
    failed: Failed | None = None
    interrupted: bool = False  # Ctrl-C came while it ran, or while its group was ended
    # what kgprof failed at after a program had ended, whose end it does not change
    lost: Failed | None = None


class Start(m.Model, kw_only=False):
    job: Job
    scratch: Path
    log: Path
    caches: Caches
    on_phase: OnPhase = lambda name: None


def run(
    given: Start,
    *,
    echo: Echo = lambda data: None,
    on_timeout: Callable[[int], None] = lambda pid: None,
) -> Ended:
    """Run one job to its end. ``echo`` gets what a program writes, which goes to the log as well;
    ``on_timeout`` is given the process that has run out of time, before it is ended.

    Raises OSError when the log could not be written, UsageError for a name that is not UTF-8.
    """
    job_file = given.scratch / "job.json"
    last_words = given.scratch / "last_words.jsonl"
    if given.job.task is Task.SCRIPT:
        store.write_export(last_words, b"")  # made here: the program may set an umask
        job = replace(
            given.job,
            last_words=str(last_words.resolve()),
            input_copy=str((given.scratch / "stdin").resolve()),
        )
        given = replace(given, job=job)
    try:
        store.write_export(job_file, msgspec.json.encode(given.job))
    except UnicodeEncodeError as error:
        hint = "rename that file or folder, or change that argument"
        raise UsageError(f"{error.object!a} is not UTF-8", hint=hint) from error
    news: queue.SimpleQueue[None] = queue.SimpleQueue()
    with given.caches:
        # An exception could fall between the child's start and the wait for it, or into the ending
        # of its group, which would then be left behind: a signal is news for ``wait``, whose put is
        # safe in a handler.
        with Signals(lambda number: news.put(None)) as signals, _adopting() as adopted:
            child = _Child(
                given, job_file, signals=signals, news=news, end_adopted=adopted, echo=echo
            )
            ended = child.wait(given.job.options.timeout_s, on_timeout)
        return replace(ended, interrupted=signals.came is not None)


class _AtOnce(contextlib.ExitStack):
    """Children that are alive at the same time. A signal is news for all of them, as it is for one
    in ``run``."""

    def __init__(self, starts: Sequence[Start]) -> None:
        super().__init__()
        self._starts = starts
        self.news: list[queue.SimpleQueue[None]] = []

    def __enter__(self) -> _AtOnce:
        for given in self._starts:
            self.enter_context(given.caches)
        self.signals = self.enter_context(Signals(self._heard))
        self._end_adopted = self.enter_context(_adopting())
        self._threads = self.enter_context(ThreadPoolExecutor(len(self._starts)))
        return self

    def _heard(self, number: int) -> None:
        for each in self.news:
            each.put(None)

    def hears(self) -> queue.SimpleQueue[None]:
        self.news.append(queue.SimpleQueue())
        return self.news[-1]

    def start(self, given: Start, ends: tuple[int, int] | None = None) -> _Child:
        job_file = given.scratch / f"job-{len(self.news)}.json"
        store.write_export(job_file, msgspec.json.encode(replace(given.job, turns=ends)))
        return _Child(given, job_file, signals=self.signals, news=self.hears(), pass_fds=ends or ())

    def wait_for(
        self, child: _Child, of: Start, then: Callable[[], None] = lambda: None
    ) -> Future[Ended]:
        """Each has the others' time to wait for as well. ``then``: when it has ended, in any
        thread."""
        waits = self._threads.submit(child.wait, 2 * of.job.options.timeout_s, lambda pid: None)
        waits.add_done_callback(lambda _: then())
        return waits

    def ends(self, waits: Sequence[Future[Ended]]) -> list[Ended]:
        ended = [each.result() for each in waits]
        self._end_adopted()
        return [replace(each, interrupted=self.signals.came is not None) for each in ended]


def run_in_turn(first: Start, second: Start, *, at_once: bool = False) -> tuple[Ended, Ended]:
    """Two jobs to their ends that take their blocks in turn (record.ground.turns), the second one's
    first.

    The second child is started when the first one is ready to time, so that neither's first call is
    disturbed; ``at_once``: it does not wait for that. Raises as ``run`` does.
    """
    with _AtOnce((first, second)) as both:
        ready, here, there = both.hears(), os.pipe(), os.pipe()

        def on_phase(name: str) -> None:
            first.on_phase(name)
            if name == IN_TURN_FROM:
                ready.put(None)

        try:
            os.write(there[1], FIRST)
            child = both.start(replace(first, on_phase=on_phase), (here[0], there[1]))
            one = both.wait_for(child, first, lambda: ready.put(None))
            if not at_once:
                ready.get()
            other = both.wait_for(both.start(second, (there[0], here[1])), second)
        finally:  # else neither would see the other one's end
            for end in (*here, *there):
                os.close(end)
        one_ended, other_ended = both.ends((one, other))
    return one_ended, other_ended


def run_beside(starts: Sequence[Start]) -> list[Ended]:
    """Jobs to their ends, AT_ONCE at a time and in this order; after a signal no other one is
    begun. Who times has the machine to itself (record.ground.alone). Raises as ``run`` does."""
    waits: list[Future[Ended]] = []
    with (
        tempfile.TemporaryDirectory(dir=starts[0].scratch.resolve()) as folder,
        _AtOnce(starts) as several,
    ):
        others = Path(folder)
        for given in starts:
            while len(running := [each for each in waits if not each.done()]) >= AT_ONCE:
                concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            if several.signals.came:
                break
            begun = replace(given, job=replace(given.job, beside=folder))
            with alone.locked(others):
                child = several.start(begun)
                (others / str(child.pid)).touch()
            waits.append(
                several.wait_for(
                    child, given, functools.partial(_left, others, child.pid, given.on_phase)
                )
            )
        return several.ends(waits)


def _left(folder: Path, pid: int, on_phase: OnPhase) -> None:
    alone.has_ended(folder, pid)
    on_phase("")


def has_room_for_two(compiling: Sequence[m.MemoryPeaks | m.Skipped]) -> bool:
    """Two cores, and twice the memory that the two largest of these runs took."""
    taken = [one.resident_bytes for one in compiling if isinstance(one, m.MemoryPeaks)]
    known = sorted(each for each in taken if not isinstance(each, m.Skipped))
    if (
        sys.platform != "linux"
        or len(os.sched_getaffinity(0)) < AT_ONCE
        or len(known) < len(compiling)
    ):
        return False
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    available = next(
        (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0
    )
    return 2 * sum(known[-AT_ONCE:]) <= available


@dataclass(kw_only=True)
class Caches:
    """Private caches of Inductor and Triton, cold where ``folder`` is not there yet; deleted on
    exit unless ``kept``.

    ``seed`` holds files that are copied into cold ones.
    """

    folder: Path
    seed: Path | None = None
    kept: bool = False  # for another child, which finds them warm
    extra: Variables = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        private = {
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
            "TRITON_CACHE_DIR": str(self.folder / "triton"),
        }
        return {**os.environ, **self.extra, **private}

    def __enter__(self) -> Caches:
        if self.seed is not None and self.seed.is_dir() and not self.folder.exists():
            shutil.copytree(self.seed, self.folder / "inductor")
        return self

    def __exit__(self, *_: object) -> None:
        # The processes that could still write here are gone; a file that one of them just removed
        # is no error.
        if not self.kept:
            shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def _adopting() -> Iterator[Callable[[], None]]:
    """On Linux a process that leaves the child's group (a daemon) becomes a child of this process
    and not of init when its parent ends; what is yielded ends all of them. They are of another
    session than ours: the child began one."""

    def adopted() -> set[int]:
        found = set()
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has ended
                fields = (
                    stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                )
                parent, session = int(fields[1]), int(fields[3])  # proc(5), from the third field on
                if parent == os.getpid() and session != os.getsid(0):
                    found.add(int(stat.parent.name))
        return {pid for pid in found if not fork_server.is_server(pid)}

    def end() -> None:
        until = time.monotonic() + DRAIN_S
        while (new := adopted() - before) and time.monotonic() < until:
            for pid in new:  # what one of them started comes to us next
                with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.01)

    if sys.platform != "linux":
        yield lambda: None
        return
    before = adopted()
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield end
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


class _Child:
    """A running child: its process, the two threads that empty its pipes, and what it has said so
    far."""

    def __init__(
        self,
        given: Start,
        job_file: Path,
        *,
        signals: Signals,
        news: queue.SimpleQueue[None],
        end_adopted: Callable[[], None] = lambda: None,
        echo: Echo = lambda data: None,
        pass_fds: tuple[int, ...] = (),
    ) -> None:
        job = given.job
        self._log = BoundedLog(given.log)
        self._on_phase = given.on_phase
        self._phase = "start"
        self._last_word: Done | Failed | None = None
        self._lost: Failed | None = None
        # of a program; no descriptor of its own is safe from it
        self._last_words = Path(job.last_words)
        self._signals = signals
        self._news = news  # something for ``wait`` to look at
        self._end_adopted = end_adopted
        self._is_program = job.task is Task.SCRIPT
        self._echoes = True
        reading, writing = os.pipe()
        events = os.fdopen(reading, "rb")
        try:
            self._process, said = self._started(
                job, str(job_file), given.caches.environment(), writing, pass_fds
            )
        except OSError:
            events.close()
            self._log.close()
            raise
        finally:
            os.close(writing)
        self.pid = self._process.pid
        self._log.feed(said)
        if self._is_program:
            echo(said)
        self._began = time.monotonic()
        emptied: tuple[tuple[Callable[..., None], Any], ...] = (
            (self._read_events, (events,)),
            (self._read_log, (self._process.stdout, echo)),
        )
        self._readers = [
            threading.Thread(target=read, args=given, daemon=True) for read, given in emptied
        ]
        # Popen.wait(timeout) polls 20 times a second, beside a child that is being timed; these
        # threads sleep.
        for thread in (*self._readers, threading.Thread(target=self._await_exit, daemon=True)):
            thread.start()

    def _started(
        self,
        job: Job,
        job_file: str,
        environment: Variables,
        events: int,
        pass_fds: tuple[int, ...],
    ) -> tuple[subprocess.Popen[bytes] | Forked, bytes]:
        """The process, and what was printed before it began."""
        of_program = job.task not in OF_FUNCTIONS and programs.is_program(job.options.workload)
        options, code = (["-c"], PROGRAM_BOOTSTRAP) if of_program else (["-P", "-c"], BOOTSTRAP)
        home = str(HOME) if job.checkout is None or not job.checkout.home else job.checkout.home
        folder = "." if job.checkout is None else job.checkout.folder
        python = sys.executable
        if job.checkout is not None and job.checkout.python:
            python = job.checkout.python
        is_users = job.task is Task.SCRIPT and not job.is_rerun
        with standard_input.opened(job.input_copy, is_users=is_users) as stdin:
            if job.task in FORKED and home == str(HOME):
                server = [python, *options, code.format(f"{PROCESSES}.fork_server"), home]
                modes = job.options.modes if job.key is None else (job.key.mode,)
                is_any = job.key is not None or job.task in (Task.PLAN, Task.TRIAL)
                compiles = is_any and set(modes) != {m.EAGER}
                compiles = compiles and not job.options.backend and not of_program
                files = (events, stdin)
                forked = fork_server.forked(
                    server, job_file, environment, files, self._signals, compiles, folder
                )
                if forked is not None:
                    return forked
            child = code.format(f"{_processes_of(home)}.child")
            new = subprocess.Popen(
                [python, *options, child, home, job_file, str(events)],
                cwd=folder,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,  # in the order in which they were written
                pass_fds=(events, *pass_fds),
                env=environment,
                start_new_session=True,
            )
        return new, b""

    def wait(self, timeout_s: float, on_timeout: Callable[[int], None]) -> Ended:
        """Until it ends, its time is up, or a signal came; nothing that it started is left then."""
        timed_out = False
        try:
            try:
                self._await_news(timeout_s)
            except queue.Empty:
                timed_out = True
                self._echoes = False
                self._process.send_signal(signal.SIGUSR1)  # prints its Python stack, for the log
                time.sleep(STACK_GRACE_S)
                self._echoes = True
                on_timeout(self._process.pid)
            interrupted = self._signals.came  # one that comes later finds it ended already
            if self._is_program and (interrupted or timed_out):
                self._tell_to_end(interrupted or signal.SIGINT)
            left_alone = self._process.poll() is not None
        finally:
            self._end()
        if interrupted:
            return self._ended(m.Outcome.INTERRUPTED, words(interrupted))
        if timed_out:
            return self._ended(m.Outcome.TIMED_OUT, f"timed out after {timeout_s:g} s (--timeout)")
        return self._judge(left_alone)

    def _await_news(self, timeout_s: float) -> None:
        """Its end, or an interruption; a child that is no program need only have spoken. Raises
        queue.Empty."""
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            try:
                self._news.get(timeout=min(left_s, HEARS_S))
            except queue.Empty:
                if left_s <= HEARS_S:
                    raise
                continue
            if self._process.poll() is not None or self._signals.came:
                return
            if not self._is_program:
                with contextlib.suppress(queue.Empty):
                    self._news.get(timeout=EXIT_GRACE_S)
                return

    def _judge(self, left_alone: bool) -> Ended:
        # else it had done its work and was ended by us
        code = self._process.returncode if left_alone else 0
        # a KeyboardInterrupt
        if code < 0 and not (code == -signal.SIGINT and isinstance(self._last_word, Failed)):
            known = {number.value: number.name for number in signal.Signals}
            return self._ended(m.Outcome.KILLED, known.get(-code, f"signal {-code}"))
        match self._last_word:
            case Failed() as failed:
                outcome = m.Outcome.EXITED if failed.exited else m.Outcome.RAISED
                # Where it was on its way out with 1, the signal's number is ours.
                own = (
                    1
                    if outcome is m.Outcome.RAISED and not left_alone
                    else self._process.returncode
                )
                return self._ended(outcome, failed.message, own, failed)
            case Done() if code == 0:
                return self._ended(m.Outcome.OK, exit_code=0)
            # exec, another exit than Python's, a stdout that could not be flushed, a full disk
            case _ if self._is_program:
                outcome = m.Outcome.EXITED if code else m.Outcome.OK
                why = f"exit code {code}; kgprof does not know why"
                return self._ended(outcome, why if code else "")
        return self._ended(m.Outcome.RAISED, f"the process exited with code {code}")

    def _ended(
        self,
        outcome: m.Outcome,
        message: str = "",
        exit_code: int | None = None,
        failed: Failed | None = None,
    ) -> Ended:
        # What a signal or a time limit ended was raised by no line of the program.
        raised = failed.failure if failed and outcome is m.Outcome.RAISED else None
        ended = m.Exit(
            outcome,
            message,
            traceback="" if failed is None else failed.traceback,
            during="" if outcome is m.Outcome.OK else self._phase,
            exit_code=self._process.returncode if exit_code is None else exit_code,
            elapsed_s=round(time.monotonic() - self._began, 3),
            failure=raised,
            through=() if failed is None else failed.through,
        )
        return Ended(exit=ended, failed=failed, lost=self._lost)

    # ---- ending it

    def _tell_to_end(self, number: signal.Signals) -> None:
        """A program ends as it would on a terminal, and what was seen of it by then is written
        down. Twice ends it.

        It gets the signal that came if it has a handler of its own for it, and else SIGINT, which
        lets it unwind.
        """
        if self._process.poll() is not None or self._last_words.stat().st_size:
            return  # it has ended, or ends: Python has put the handlers of signals back by then
        # it would kill what has no handler for it
        if WRITE_NOW is not None and catches(self._process.pid, WRITE_NOW):
            self._process.send_signal(WRITE_NOW)
            time.sleep(STACK_GRACE_S)
        self._signal_group(number if catches(self._process.pid, number) else signal.SIGINT)
        with contextlib.suppress(queue.Empty):
            self._news.get(timeout=CTRL_C_GRACE_S)  # its end, or a second signal

    def _end(self) -> None:
        """End the group (compile workers outlive their parent) and what left it, then take what is
        in the pipes."""
        try:
            if self._process.poll() is None:
                self._signal_group(signal.SIGTERM)
                self._signal_group(signal.SIGCONT)  # one that stands still would not hear of it
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(TERM_GRACE_S)
        finally:
            self._signal_group(signal.SIGKILL)
        self._process.wait()
        self._end_adopted()
        for reader in self._readers:
            # A process that left the group may hold the pipe open for ever.
            reader.join(DRAIN_S)
        if self._is_program:
            self._read_last_words()
        self._log.close()

    def _read_last_words(self) -> None:
        """The first says how it ended, one after it what kgprof failed at then."""
        for line in self._last_words.read_bytes().splitlines():
            with contextlib.suppress(msgspec.DecodeError):  # the process was ended while it wrote
                event = EVENT_DECODER.decode(line)
                if self._last_word is None and not isinstance(event, Phase):
                    self._last_word = event
                elif isinstance(event, Failed):
                    self._lost = event
                    self._log.feed(event.traceback.encode())

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # nobody of the group is left
            os.killpg(self._process.pid, number)

    # ---- listening to it

    def _await_exit(self) -> None:
        self._process.wait()
        self._news.put(None)

    def _read_log(self, stream: IO[bytes], echo: Echo) -> None:
        quiet = Quiet()
        with stream:
            while data := os.read(stream.fileno(), 65536):
                self._log.feed(data := quiet(data))
                if self._echoes:
                    echo(data)

    def _read_events(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                try:
                    event = EVENT_DECODER.decode(line)
                except msgspec.DecodeError:
                    self._log.feed(b"[kgprof: not an event: %r]\n" % line[:200])
                    continue
                if isinstance(event, Phase):
                    self._phase = event.name
                    self._on_phase(event.name)
                else:
                    self._last_word = event
                    self._news.put(None)
