"""Every write and every allocation failing in turn, as SQLite tests itself.

A library in front of the C library's makes the n-th call fail that opens a file to write, writes,
renames or makes a folder. Commands run in forks of one process that has it and has imported
kgprof; the child that records a program arms it in the program's last line.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import functools
import importlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from kgprof import cli
from kgprof.model import Outcome, PassName
from kgprof.reading import layout, recordings
from tests import scratch
from tests.attack.family import Family
from tests.cli import waiting
from tests.record import handmade
from tests.record.scripted import COMPILES, ran

ROOT = Path(__file__).resolve().parents[2]
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EDQUOT)
HANGS_S = 90
ALLOCATIONS = 250  # tried of a command's, at random
CHILD_WRITES = 60  # of a small script's Recording, from its last line on
CHILD_ALLOCATIONS = 60
TRACE = "run/recording/runs/fused.default/trace.json.gz"
# Each into a folder with an older result. A command's words, and what it may write besides it.
COMMANDS = (
    "report run",
    "report base -o run",
    "report base --format json=one.json --format markdown=two.md --format sarif=new/three.sarif",
    "compare base base -o run",
    "compare base base base -o run",
    f"trace {TRACE} -o old --no-hta",
    "extract base/report.html -o one.json",
    "export base --to perfetto --run fused.default -o one.json",
    "ci-init github -o one.yml --force",
)
PROFILE = "profile s.py -o run"  # under tests.cli.waiting: no child imports torch
MODULES = ("kgprof.cli.verbs", "kgprof.cli.reading", "kgprof.cli.writing", "kgprof.analysis")
MORE_MODULES = ("kgprof.compare", "kgprof.export.perfetto", "kgprof.render", "kgprof.record")


@dataclass(frozen=True, kw_only=True)
class Case:
    """The ``at``-th call fails, with ``error`` or for want of memory; ``all``: all after it too."""

    words: str
    at: int
    error: int = 0
    all: bool = False


# ---------------------------------------------------------------- the process that has the library


@functools.cache
def library() -> str:
    made = scratch.new_folder() / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return str(made)


class _Host:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.attack.faults"],
            cwd=ROOT,
            env={**os.environ, "LD_PRELOAD": library(), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.end)

    def end(self) -> None:
        self._process.communicate()

    def run(self, case: Case, folder: Path) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({**asdict(case), "folder": str(folder)}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@functools.cache
def host() -> _Host:
    return _Host()


def main() -> None:
    """Reads orders; each is run in a fork, which writes its answer to a file."""
    for name in (*MODULES, *MORE_MODULES):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        order = json.loads(line)
        folder = Path(order["folder"])
        answer = {"code": "none", "calls": 0, "err": ""}
        if (pid := os.fork()) == 0:
            _in_a_fork(order, folder)
        signal.signal(signal.SIGALRM, lambda *_: os.killpg(pid, signal.SIGKILL))
        signal.alarm(HANGS_S)
        _, status = os.waitpid(pid, 0)
        signal.alarm(0)
        with contextlib.suppress(OSError, ValueError):
            answer = json.loads((folder / "answer").read_text())
        if os.waitstatus_to_exitcode(status):
            answer["code"] = f"ended by {os.waitstatus_to_exitcode(status)}"
        answer["err"] = (folder / "err").read_text("utf-8", "replace")
        print(json.dumps(answer), flush=True)  # noqa: T201


def _in_a_fork(order: dict[str, Any], folder: Path) -> None:
    os.setsid()
    os.chdir(folder)
    answer = os.open("answer", os.O_WRONLY | os.O_CREAT)
    sys.stdout = open("out", "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = open("err", "w", encoding="utf-8")  # noqa: SIM115
    os.environ["TMPDIR"] = str(folder / "tmp")
    os.dup2(sys.stderr.fileno(), 2)  # so that its own writes do not count
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    os.dup2(sys.stdout.fileno(), 1)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    faults = ctypes.CDLL(None)
    if order["words"] == PROFILE:
        os.environ["PYTHONPATH"] = str(ROOT)
        call = waiting.main
        sys.argv[1:] = order["words"].split()
    else:
        call = functools.partial(cli.main, order["words"].split())
    code: object = 0
    try:
        if order["error"] or not order["at"]:
            faults.arm(ctypes.c_long(order["at"]), order["error"], int(order["all"]))
        else:
            nomemory = importlib.import_module("_testcapi").set_nomemory
            nomemory(order["at"], order["at"] + 1)
        call()
    except SystemExit as ended:
        code = ended.code
    except MemoryError:  # in these lines
        code = 3
    calls = faults.calls()
    faults.arm(ctypes.c_long(0), 0, 0)
    os.write(answer, json.dumps({"code": code, "calls": calls}).encode())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


# ---------------------------------------------------------------- commands


@functools.cache
def _kept() -> Path:
    """A Recording with its report, made once."""
    folder = scratch.new_folder()
    handmade.write(folder / "recording")
    _report(folder)
    return folder


def _place(folder: Path) -> None:
    for name in ("run", "base"):
        shutil.copytree(_kept(), folder / name)
    (folder / "old").mkdir()
    shutil.copy(folder / "run" / "report.html", folder / "old")
    shutil.copytree(folder / "run" / "recording", folder / "old" / "recording")
    for name in ("one.json", "two.md", "one.yml"):
        (folder / name).write_text("older\n", "utf-8")
    (folder / "s.py").touch()
    (folder / "tmp").mkdir()


@functools.cache
def _undisturbed(words: str) -> tuple[int, int]:
    """The exit code of a command, and how many calls it makes that may fail."""
    folder = scratch.new_folder()
    _place(folder)
    answer = host().run(Case(words=words, at=0), folder)
    assert "Traceback" not in answer["err"], answer
    return int(answer["code"]), int(answer["calls"])


def writes(seed: random.Random, of: Sequence[str] = COMMANDS) -> Sequence[Case]:
    made = []
    for words in of:
        for at in range(1, _undisturbed(words)[1] + 1):
            error = seed.choice(ERRORS)
            made.append(Case(words=words, at=at, error=error, all=seed.random() < 0.5))
    return made


def allocations(seed: random.Random) -> Sequence[Case]:
    """Most of them early, where little is imported again, and some late."""
    return [
        Case(words=seed.choice(COMMANDS), at=int(10 ** seed.uniform(0, 5.5)))
        for _ in range(ALLOCATIONS)
    ]


def attack(case: Case, folder: Path) -> None:
    _place(folder)
    before = _contents(folder)
    answer = host().run(case, folder)
    code, err = answer["code"], answer["err"]
    usual, _ = _undisturbed(case.words)
    wanted: tuple[int, ...] = (usual, 2)
    if not case.error:
        wanted += (3,)
    assert code in wanted, answer
    if case.error:
        assert "Traceback" not in err, err
        assert code != 2 or err.count("kgprof: error: ") == 1, err
    after = _contents(folder)
    assert not [name for name in after if ".partial" in name]
    for name, data in before.items():
        if code == usual and not name.startswith("base/"):
            continue  # replaced by a whole result
        aside = name.replace("recording/", f"{layout.UNFINISHED}/recording/", 1)
        if case.all and after.get(aside) == data:
            continue  # nothing could be put back, and the older one is kept beside the new one
        assert name in after, f"{name} is gone"
        whole = (b"</html>\n", b"}\n", b"older\n", b"\n")
        changed = after[name] != data
        assert not changed or after[name].endswith(whole), f"{name} is cut"
        assert not changed or code == usual or "recording/" not in name, f"{name} changed"
    _report(folder / "run")


def _report(folder: Path) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(io.StringIO()):
        assert cli.run(["report", str(folder)]) == 0


def _contents(folder: Path) -> dict[str, bytes]:
    found = (one for place in ("run", "base", "old") for one in (folder / place).rglob("*"))
    files = [one for one in found if one.is_file()]
    files += [folder / name for name in ("one.json", "two.md", "one.yml")]
    return {str(one.relative_to(folder)): one.read_bytes() for one in files}


# ---------------------------------------------------------------- the child that records


def child_writes(seed: random.Random) -> Sequence[Case]:
    return [
        Case(words="program", at=at, error=seed.choice(ERRORS), all=seed.random() < 0.5)
        for at in range(1, CHILD_WRITES + 1)
    ]


def child_allocations(seed: random.Random) -> Sequence[Case]:
    return [
        Case(words="program", at=int(10 ** seed.uniform(0.5, 5))) for _ in range(CHILD_ALLOCATIONS)
    ]


def attack_child(case: Case, folder: Path) -> None:
    """The program's end is the end, and what was recorded can be read."""
    fails = f"import _testcapi; _testcapi.set_nomemory({case.at}, {case.at + 1})"
    if case.error:
        fails = f"import ctypes; ctypes.CDLL(None).arm({case.at}, {case.error}, {int(case.all)})"
    text = f"{COMPILES}\nfor n in range(4):\n    doubled(torch.ones(2 + n))\n{fails}\n"
    with mock.patch.dict(os.environ, LD_PRELOAD=library()):
        done = ran(folder, text, passes=(PassName.COMPILE,))
    # where it is the program's own last line that has no memory, Python says so
    raised = not case.error and done.exit.exit_code == 1 and "MemoryError" in done.run.log
    assert raised or (done.exit.outcome, done.exit.exit_code) == (Outcome.OK, 0), done
    recordings.load(done.folder)


WRITES = Family("writes", writes, attack)
RECORDING = Family("writes of a recording", functools.partial(writes, of=[PROFILE]), attack)
ALLOCATED = Family("allocations", allocations, attack)
CHILD_WRITING = Family("writes of the child", child_writes, attack_child)
CHILD_ALLOCATED = Family("allocations of the child", child_allocations, attack_child)

if __name__ == "__main__":
    main()
