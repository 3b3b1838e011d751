"""A child may end in any way; the parent says which, keeps its log, and leaves no process behind.

The child's own program is replaced by a few lines without torch, so that these tests take no time.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kgprof.model import Exit, Options
from kgprof.record.ground.job import Failed, Job, Task
from kgprof.record.processes import children
from kgprof.record.processes.children import Caches, Ended, Start
from kgprof.signals import Signals

PROLOGUE = """
import faulthandler, json, os, signal, sys, time
faulthandler.register(signal.SIGUSR1)
events = os.fdopen(int(sys.argv[3]), "w", buffering=1)
def send(**event): print(json.dumps(event), file=events)
send(event="phase", name="compile")
"""


class Text(str):
    """Holds braces of its own."""

    def format(self, *_: object, **__: object) -> str:
        return str(self)


class Laboratory:
    """Runs a child whose program is a few lines of Python."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.log = folder / "log.txt"
        self.phases: list[str] = []
        self._monkeypatch = monkeypatch

    def run(
        self,
        program: str,
        *,
        timeout_s: float = 60.0,
        seed: Path | None = None,
        kept: bool = False,
        task: Task = Task.PLAN,
    ) -> Ended:
        text = PROLOGUE + textwrap.dedent(program)
        for name in ("BOOTSTRAP", "PROGRAM_BOOTSTRAP"):
            self._monkeypatch.setattr(children, name, Text(text))
        job = Job(task=task, options=Options(timeout_s=timeout_s), parent_pid=os.getpid())
        caches = Caches(folder=self.folder / "caches", seed=seed, kept=kept)
        given = Start(
            job=job, scratch=self.folder, log=self.log, caches=caches, on_phase=self.phases.append
        )
        return children.run(given)


@pytest.fixture
def laboratory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


def without_time(ended: Exit) -> Exit:
    assert ended.elapsed_s > 0
    return Exit(
        outcome=ended.outcome,
        message=ended.message,
        traceback=ended.traceback,
        during=ended.during,
        exit_code=ended.exit_code,
    )


def is_gone(pid: int) -> bool:
    """Ended, or a zombie that waits for whoever adopted it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def test_a_child_that_does_its_work_is_ok(laboratory: Laboratory) -> None:
    ended = laboratory.run(
        "print('hello', flush=True); send(event='phase', name='host'); send(event='done')"
    )

    assert without_time(ended.exit) == Exit(outcome="ok", exit_code=0)
    assert laboratory.phases == ["compile", "host"]
    assert laboratory.log.read_text(encoding="utf-8") == "hello\n"


def test_a_failure_carries_the_childs_own_words(laboratory: Laboratory) -> None:
    ended = laboratory.run(
        "send(event='failed', message='ValueError: no', traceback='Traceback ...'); sys.exit(1)"
    )

    failed = Failed(message="ValueError: no", traceback="Traceback ...")
    assert ended.failed == failed
    assert without_time(ended.exit) == Exit(
        outcome="raised",
        message="ValueError: no",
        traceback="Traceback ...",
        during="compile",
        exit_code=1,
    )


@pytest.mark.parametrize("code", [0, 7])
def test_a_child_that_ends_itself_did_not_do_its_work(laboratory: Laboratory, code: int) -> None:
    ended = laboratory.run(f"os._exit({code})")

    assert without_time(ended.exit) == Exit(
        outcome="raised",
        message=f"the process exited with code {code}",
        during="compile",
        exit_code=code,
    )


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT"])
def test_a_signal_is_named(laboratory: Laboratory, name: str) -> None:
    ended = laboratory.run(f"os.kill(os.getpid(), signal.{name})")

    assert without_time(ended.exit) == Exit(
        outcome="killed", message=name, during="compile", exit_code=-signal.Signals[name]
    )


def test_a_hang_is_ended_and_its_stack_is_in_the_log(laboratory: Laboratory) -> None:
    ended = laboratory.run("def hanging(): time.sleep(3600)\nhanging()", timeout_s=3.0)

    assert without_time(ended.exit) == Exit(
        outcome="timed-out",
        message="timed out after 3 s (--timeout)",
        during="compile",
        exit_code=-signal.SIGTERM,
    )
    assert "in hanging" in laboratory.log.read_text(encoding="utf-8")


def test_a_hang_that_is_deaf_to_sigterm_is_ended_with_its_whole_group(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "TERM_GRACE_S", 0.5)

    ended = laboratory.run(
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        grandchild = os.fork()
        if grandchild:
            print(grandchild, flush=True)
        time.sleep(3600)
        """,
        timeout_s=3.0,
    )

    assert (ended.exit.outcome, ended.exit.exit_code) == ("timed-out", -signal.SIGKILL)
    grandchild = int(laboratory.log.read_text(encoding="utf-8").splitlines()[0])
    wait_until(lambda: is_gone(grandchild))


def test_a_child_that_lingers_after_its_work_is_ok_and_is_not_waited_for(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "EXIT_GRACE_S", 0.2)
    began = time.monotonic()

    ended = laboratory.run("import atexit; atexit.register(time.sleep, 3600); send(event='done')")

    assert without_time(ended.exit) == Exit(outcome="ok", exit_code=0)
    assert time.monotonic() - began < 60


def test_a_child_that_lingers_after_its_failure_ended_with_its_own_code_not_with_our_signal(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "EXIT_GRACE_S", 0.2)

    ended = laboratory.run("send(event='failed', message='ValueError: x'); time.sleep(3600)")

    assert (ended.exit.outcome, ended.exit.message, ended.exit.exit_code) == (
        "raised",
        "ValueError: x",
        1,
    )


def test_what_is_no_event_stands_in_the_log(laboratory: Laboratory) -> None:
    ended = laboratory.run(
        "print('the workload wrote to our pipe', file=events); send(event='done')"
    )

    assert ended.exit.outcome == "ok"
    assert "not an event: b'the workload wrote to our pipe\\n'" in laboratory.log.read_text(
        encoding="utf-8"
    )


def test_caches_are_private_cold_but_for_the_seed_and_deleted(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    seed = tmp_path / "probe"
    (seed / "ab").mkdir(parents=True)
    (seed / "ab" / "isa.so").write_bytes(b"")

    laboratory.run(
        """
        cache = os.environ["TORCHINDUCTOR_CACHE_DIR"]
        os.makedirs(os.environ["TRITON_CACHE_DIR"])
        print(os.environ["TRITON_CACHE_DIR"], sorted(os.listdir(cache)), os.listdir(cache + "/ab"))
        send(event="done")
        """,
        seed=seed,
    )

    caches = tmp_path / "caches"
    assert laboratory.log.read_text(encoding="utf-8") == f"{caches / 'triton'} ['ab'] ['isa.so']\n"
    assert not caches.exists()


def test_kept_caches_are_found_warm_by_the_next_child_and_the_probes_files_are_not_copied_again(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    seed = tmp_path / "seed"
    seed.mkdir()
    (seed / "isa.so").write_bytes(b"")
    add = """
        cache = os.environ["TORCHINDUCTOR_CACHE_DIR"]
        print(sorted(os.listdir(cache)), flush=True)
        open(cache + "/graph", "w").close()
        send(event="done")
    """

    laboratory.run(add, seed=seed, kept=True)
    first = laboratory.log.read_text(encoding="utf-8")
    laboratory.run(add, seed=seed)

    assert (first, laboratory.log.read_text(encoding="utf-8")) == (
        "['isa.so']\n",
        "['graph', 'isa.so']\n",
    )
    assert not (tmp_path / "caches").exists()


def test_ctrl_c_ends_the_group_and_says_where_it_was(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    def press() -> None:
        wait_until(lambda: laboratory.phases == ["compile"])
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()

    ended = laboratory.run("time.sleep(3600)")

    pressing.join()
    assert ended.interrupted
    assert without_time(ended.exit) == Exit(
        outcome="interrupted", message="Ctrl-C", during="compile", exit_code=-signal.SIGTERM
    )
    assert not (tmp_path / "caches").exists()


def test_a_second_ctrl_c_while_a_deaf_child_is_ended_leaves_nobody_of_its_group(
    laboratory: Laboratory,
) -> None:
    def press_twice() -> None:
        wait_until(lambda: laboratory.phases == ["compile", "deaf"])
        os.kill(os.getpid(), signal.SIGINT)
        wait_until(lambda: laboratory.phases == ["compile", "deaf", "told to end"])
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press_twice)
    pressing.start()

    ended = laboratory.run(
        """
        grandchild = os.fork()
        if not grandchild:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(120)
        print(grandchild, flush=True)
        signal.signal(signal.SIGTERM, lambda *_: send(event="phase", name="told to end"))
        send(event="phase", name="deaf")
        time.sleep(120)
        """
    )

    pressing.join()
    assert ended.interrupted
    assert (ended.exit.outcome, ended.exit.exit_code) == ("interrupted", -signal.SIGKILL)
    grandchild = int(laboratory.log.read_text(encoding="utf-8").splitlines()[0])
    wait_until(lambda: is_gone(grandchild))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_just_after_the_start_ends_the_child_all_the_same(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    class Interrupting(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self.pid)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(children.subprocess, "Popen", Interrupting)

    ended = laboratory.run("time.sleep(120)")

    assert ended.interrupted
    assert ended.exit.outcome == "interrupted"
    assert is_gone(started[0])


def test_ctrl_c_while_a_child_that_did_its_work_is_ended_is_not_lost(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = children.BoundedLog.close

    def close(log: children.BoundedLog) -> None:  # what the ending does last
        signal.raise_signal(signal.SIGINT)
        whole(log)

    monkeypatch.setattr(children.BoundedLog, "close", close)

    ended = laboratory.run("send(event='done')")

    assert ended.interrupted
    assert without_time(ended.exit) == Exit(outcome="ok", exit_code=0)


def test_what_leaves_the_childs_group_is_ended_with_it(laboratory: Laboratory) -> None:
    of_other_tests = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()

    ended = laboratory.run(
        """
        if not os.fork():
            os.setsid()
            if os.fork():
                os._exit(0)
            os.environ.clear()
            time.sleep(120)
        os.wait()
        children = open(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read()
        print(*(set(children.split()) - {str(os.getpid())}), flush=True)
        send(event="done")
        """
    )

    assert ended.exit.outcome == "ok"
    listed = laboratory.log.read_text(encoding="utf-8").split()
    daemons = [int(pid) for pid in listed if pid not in of_other_tests]
    assert daemons
    assert all(is_gone(pid) for pid in daemons)


PROGRAMS = {
    "its own handler": (
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), last_word('done'), sys.exit()))"
    ),
    "another program": (
        "os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(99)'])"
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_gets_the_signal_that_it_handles_and_never_one_of_ours_that_it_does_not(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    sent: list[int] = []
    send_signal = subprocess.Popen.send_signal
    monkeypatch.setattr(
        subprocess.Popen,
        "send_signal",
        lambda self, number: (sent.append(number), send_signal(self, number)),
    )
    own = signal.signal(signal.SIGTERM, lambda *_: None)  # as the command has one

    def terminate() -> None:
        wait_until(lambda: laboratory.phases == ["compile", "ready"])
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    terminating = threading.Thread(target=terminate)
    terminating.start()
    try:
        words = (
            "last_word = lambda name: "
            f"open({str(laboratory.folder / 'last_words.jsonl')!r}, 'w').write("
        )
        words += "json.dumps({'event': name}) + '\\n')"
        ended = laboratory.run(
            f"import json\n{words}\nsend(event='phase', name='ready'); "
            f"{PROGRAMS[program]}\ntime.sleep(120)",
            task=Task.SCRIPT,
        )
    finally:
        terminating.join()
        signal.signal(signal.SIGTERM, own)

    assert (ended.exit.outcome, ended.exit.message) == ("interrupted", "SIGTERM")
    assert sent == []
    if program == "its own handler":
        assert "saved" in laboratory.log.read_text(encoding="utf-8")
    else:
        assert ended.exit.exit_code == -signal.SIGINT


def test_a_child_ends_when_its_parent_is_killed_outright(tmp_path: Path) -> None:
    # given: a parent that starts a process which does what child.main does first, and then waits
    program = (
        "import os, subprocess, sys, time\n"
        "code = 'import os, sys, time; "
        "from kgprof.record.processes.child import end_with_the_parent; "
        "end_with_the_parent(int(sys.argv[1])); print(os.getpid(), flush=True); "
        "time.sleep(3600)'\n"
        "subprocess.Popen([sys.executable, '-c', code, str(os.getpid())], start_new_session=True)\n"
        "time.sleep(3600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())

        # when
        parent.kill()

        # then
        wait_until(lambda: is_gone(child))


def wait_until(condition: object, *, seconds: float = 60.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def test_a_signal_that_another_thread_takes_is_heard() -> None:
    """As after SIGSTOP, the signal and SIGCONT: `kill %1` of a stopped job."""
    news: queue.SimpleQueue[None] = queue.SimpleQueue()
    child = children._Child.__new__(children._Child)
    child._news = news
    child._is_program = True
    child._process = SimpleNamespace(poll=lambda: None)  # type: ignore[assignment]
    ready = threading.Event()

    def takes() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        ready.set()
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        with Signals(lambda _: news.put(None), unhandled=True) as child._signals:
            other = threading.Thread(target=takes, daemon=True)
            other.start()
            ready.wait()
            began = time.monotonic()
            child._await_news(60.0)
            assert child._signals.came is signal.SIGTERM
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    assert time.monotonic() - began < 30


def test_time_is_up_also_where_it_is_less_than_a_signal_takes() -> None:
    child = children._Child.__new__(children._Child)
    child._news = queue.SimpleQueue()

    for seconds in (0.0, 0.1, 1.5):
        began = time.monotonic()
        with pytest.raises(queue.Empty):
            child._await_news(seconds)
        assert seconds <= time.monotonic() - began
