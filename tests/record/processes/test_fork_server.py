"""A child that is forked from a process with torch is what a new process would have been, and ends
as one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import pytest

from kgprof import progress
from kgprof.model import Exit, MemoryPass, Options, Outcome, PassName, TensorRecords
from kgprof.reading import layout, recordings
from kgprof.record.ground.flags import Variables
from kgprof.record.ground.job import Checkout, Job, Task
from kgprof.record.processes import children, fork_server, recorder
from kgprof.record.processes.children import Caches, Ended, Start
from tests.cli.test_endings import left
from tests.record import one_server
from tests.record.processes.test_children import is_gone
from tests.record.scripted import ran

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux only")

COMPILER = "torch._inductor.compile_fx"
NEW, FORKED = "kgprof.record.processes.child", "kgprof.record.processes.fork_server"
FACTS = """
import gc, json, logging, os, random, signal, stat, sys, tempfile, threading
import numpy, torch
def stream(one):
    kind = os.fstat(one.fileno()).st_mode
    return [one.encoding, one.errors, one.line_buffering, one.isatty(), stat.S_ISFIFO(kind), stat.S_ISCHR(kind)]
ours = [h for l in logging.root.manager.loggerDict.values() for h in getattr(l, "handlers", ()) if hasattr(h, "stream")]
facts = dict(
    argv=sys.argv, temporary=tempfile.gettempdir(), flags=str(sys.flags), path=sys.path, cwd=os.getcwd(), environment=dict(os.environ),
    leads=os.getsid(0) == os.getpid() == os.getpgid(0), parent=os.getppid(), stdin=os.read(0, 1).decode(),
    streams=[stream(sys.stdout), stream(sys.stderr)], same=os.path.sameopenfile(1, 2),
    logs_to_stderr=all(h.stream is sys.stderr for h in ours), umask=os.umask(0o22), threads=threading.active_count(),
    signals={n.name: str(signal.getsignal(n)) for n in signal.Signals if n.name != "SIGUSR1"}, gc=gc.isenabled(),
    drawn=[random.random(), float(numpy.random.rand()), float(torch.rand(()))], grad=torch.is_grad_enabled(),
    math=torch.get_num_threads(), inherited=[n for n in map(int, os.listdir("/proc/self/fd")) if n > 2
        and os.path.exists(f"/proc/self/fd/{n}") and os.get_inheritable(n)],
)
facts["environment"] = {k: v for k, v in facts["environment"].items() if k != "KGPROF_OUT"}
with open(os.environ["KGPROF_OUT"], "a") as out:
    out.write(json.dumps([os.getpid(), sys.modules["__main__"].main.__module__, facts]) + "\\n")
def step(): return torch.ones(2)
"""  # noqa: E501


Facts = tuple[int, str, dict[str, Any]]


class Plans:
    """Runs PLAN of a workload in a file; ``facts`` are what its children have written down."""

    def __init__(self, folder: Path, out: Path) -> None:
        self.folder, self._out = folder, out

    def run(
        self,
        program: str,
        timeout_s: float = 120.0,
        checkout: Checkout | None = None,
        extra: Variables | None = None,
    ) -> Ended:
        file = self.folder / "w.py"
        file.write_text(textwrap.dedent(program), encoding="utf-8")
        job = Job(
            task=Task.PLAN,
            options=Options(workload=f"{file}:step", timeout_s=timeout_s),
            parent_pid=os.getpid(),
            answer=str(self.folder / "plan.json"),
            checkout=checkout,
        )
        caches = Caches(folder=self.folder / "caches", extra=extra or {})
        return children.run(Start(job=job, scratch=self.folder, log=self.log, caches=caches))

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def facts(self) -> list[Facts]:
        """The process, the module that began it, and what it saw."""
        return [
            tuple(json.loads(line)) for line in self._out.read_text(encoding="utf-8").splitlines()
        ]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One variable for all tests: a server has those that it began with."""
    file = tmp_path_factory.mktemp("facts") / "facts.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KGPROF_OUT", str(file))
        yield file


@pytest.fixture
def plans(tmp_path: Path, out: Path) -> Plans:
    out.write_text("", encoding="utf-8")
    return Plans(tmp_path, out)


class Life(NamedTuple):
    """What children of one server saw, one after the other."""

    whole: list[Facts]
    without_inductor: list[Facts]  # once the process with Inductor had ended
    elsewhere: list[Facts]  # with another environment
    gone: list[Facts]  # once the server had ended


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory, out: Path) -> Life:
    plans = Plans(tmp_path_factory.mktemp("life"), out)

    def seen(*programs: str) -> list[Facts]:
        out.write_text("", encoding="utf-8")
        ended = [plans.run(program) for program in programs]
        assert [one.exit.outcome for one in ended] == [Outcome.OK] * len(programs)
        return plans.facts

    with fork_server.imports_shared():
        whole = seen(FACTS, FACTS)
        (server,) = (one.process for one in fork_server._servers)
        assert server is not None
        (inductor,) = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        # as it ends itself where importing Inductor opens a GPU
        os.kill(int(inductor), signal.SIGKILL)
        lacks = f"import sys; assert {COMPILER!r} not in sys.modules; {FACTS.lstrip()}"
        without_inductor = seen(lacks, lacks)
        with mock.patch.dict(os.environ, OMP_NUM_THREADS="3"):  # read while torch is imported
            elsewhere = seen(FACTS)
        server.kill()
        server.wait()
        return Life(whole, without_inductor, elsewhere, seen(FACTS))


def test_a_forked_child_is_what_a_new_process_is(life: Life) -> None:
    ((_, began, expected),) = life.gone

    assert began == NEW
    assert expected["parent"] == os.getpid()
    assert [facts for _, _, facts in life.whole] == [expected] * 2
    # the server itself has not imported the workload
    assert len({pid for pid, _, _ in (*life.whole, *life.gone)}) == 3


def test_a_server_that_is_gone_and_another_environment_cost_an_import(life: Life) -> None:
    assert [
        (began, facts["environment"].get("OMP_NUM_THREADS") == "3")
        for _, began, facts in (*life.whole, *life.elsewhere, *life.gone)
    ] == [(FORKED, False), (FORKED, False), (NEW, True), (NEW, False)]


def test_where_the_server_with_inductor_has_ended_its_children_import_that_themselves(
    life: Life,
) -> None:
    assert [began for _, began, _ in life.without_inductor] == [FORKED] * 2


def test_a_child_of_another_folder_runs_in_it(plans: Plans, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    with one_server.imports_shared():
        ended = plans.run(
            FACTS, checkout=Checkout(folder=str(folder)), extra={"TMPDIR": str(folder)}
        )

    assert ended.exit.outcome is Outcome.OK
    ((_, began, facts),) = plans.facts
    assert began == FORKED
    assert facts["cwd"] == facts["temporary"] == str(folder)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL"])
def test_a_child_that_dies_costs_itself_alone(plans: Plans, name: str) -> None:
    with one_server.imports_shared():
        dead = plans.run(f"import os, signal; os.kill(os.getpid(), signal.{name})").exit
        after = plans.run(FACTS).exit

    assert (dead.outcome, dead.message, dead.exit_code) == (
        Outcome.KILLED,
        name,
        -signal.Signals[name],
    )
    assert (after.outcome, plans.facts[0][1]) == (Outcome.OK, FORKED)


def test_what_it_raises_prints_and_leaves_to_atexit_comes_to_the_log(plans: Plans) -> None:
    with one_server.imports_shared():
        ended = plans.run(
            "import atexit; atexit.register(print, 'at the end'); print('here'); 1 / 0"
        )

    log = plans.log.read_text(encoding="utf-8")
    assert ended.exit.outcome is Outcome.RAISED
    assert ended.failed is not None
    assert "ZeroDivisionError" in ended.failed.message
    assert log.index("here") < log.index("ZeroDivisionError") < log.rindex("at the end")


def test_one_that_is_done_waits_for_threads_and_atexit_and_leaves_its_modules_as_they_are(
    plans: Plans,
) -> None:
    program = """
        import atexit, os, threading, time
        class Kept:
            def __del__(self):
                print("taken apart")
        kept = Kept()
        kept.itself = kept  # else unloading the module alone would end it
        def late():
            time.sleep(0.3)
            print("from a thread")
        atexit.register(lambda: print("at the end", end=""))  # without the line's end: nothing has been flushed
        threading.Thread(target=late).start()
        def step(): ...
    """  # noqa: E501
    new = plans.run(program).exit
    logs = [plans.log.read_text(encoding="utf-8")]
    with one_server.imports_shared():
        forked = plans.run(program).exit
    logs.append(plans.log.read_text(encoding="utf-8"))

    assert [(one.outcome, one.exit_code) for one in (new, forked)] == [(Outcome.OK, 0)] * 2
    assert [log.splitlines()[-2:] for log in logs] == [["from a thread", "at the end"]] * 2


def test_a_workload_may_do_without_streams(plans: Plans) -> None:
    ended = plans.run(
        "import sys; sys.stdout = sys.stderr = None; print('nowhere')\ndef step(): ..."
    )

    assert (ended.exit.outcome, ended.exit.exit_code) == (Outcome.OK, 0)


def test_files_that_are_left_open_are_written_and_temporary_ones_deleted(plans: Plans) -> None:
    program = f"""
        import ctypes, tempfile
        text, made = open("{plans.folder}/text", "w"), tempfile.NamedTemporaryFile(dir="{plans.folder}/made")
        print("a line", file=text)
        ctypes.CDLL(None).puts(b"from C")
        def step(): ...
    """  # noqa: E501
    (plans.folder / "made").mkdir()
    for shared in (contextlib.nullcontext(), one_server.imports_shared()):
        with shared:
            ended = plans.run(program)

        assert (ended.exit.outcome, ended.exit.exit_code) == (Outcome.OK, 0)
        assert (plans.folder / "text").read_text() == "a line\n"
        assert "from C" in plans.log.read_text(encoding="utf-8").splitlines()
        assert not list((plans.folder / "made").iterdir())


def test_a_plan_and_runs_that_compile_find_inductor_imported_and_eager_ones_dynamo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_VEC_ISA_OK", raising=False)
    file = tmp_path / "w.py"
    program = """
        import sys, torch
        names = [name for name in ("torch._dynamo", "torch._inductor.compile_fx") if name in sys.modules]
        isa = sys.modules["torch._inductor.config"].cpp.vec_isa_ok if len(names) == 2 else None
        print("FACTS", *names, isa, flush=True)
        def step(): return torch.ones(2)
    """  # noqa: E501
    file.write_text(textwrap.dedent(program), encoding="utf-8")

    def plan(mode: str, isa: dict[str, str]) -> list[str]:
        options, log = Options(workload=f"{file}:step", modes=(mode,)), tmp_path / "log.txt"
        answer, probe = str(tmp_path / "plan.json"), str(tmp_path / "isa")
        job = Job(
            task=Task.PLAN,
            options=options,
            parent_pid=os.getpid(),
            answer=answer,
            probe_cache=probe,
        )
        caches = Caches(folder=tmp_path / "caches", extra=isa)
        children.run(Start(job=job, scratch=tmp_path, log=log, caches=caches))
        return next(
            line for line in log.read_text().splitlines() if line.startswith("FACTS")
        ).split()[1:]

    with one_server.imports_shared():
        seen = [
            plan("eager", {}),
            *(
                plan("default", {"TORCHINDUCTOR_VEC_ISA_OK": isa} if isa else {})
                for isa in ("", "1", "0")
            ),
        ]

    imported = ["torch._dynamo", COMPILER]
    assert seen == [
        [*imported[:1], "None"],
        *([*imported, isa] for isa in ("None", "True", "False")),
    ]


@pytest.mark.parametrize("there", [True, False])
def test_whether_there_is_a_gpu_is_asked_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    def is_available() -> bool:
        (tmp_path / "asked").write_text(str(os.getpid()))
        return there

    monkeypatch.setattr("torch.cuda.is_available", is_available)

    assert fork_server.gpu_is_there() is there
    assert is_gone(int((tmp_path / "asked").read_text()))


def test_one_that_hangs_is_ended_with_its_group_and_its_stack_is_in_the_log(
    plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    await_news = children._Child._await_news

    def once_it_hangs(child: children._Child, timeout_s: float) -> None:
        """A busy machine may take long to import torch before that."""
        until = time.monotonic() + timeout_s
        while not (plans.log.exists() and b"pids" in plans.log.read_bytes()):
            assert time.monotonic() < until, "it never came so far"
            time.sleep(0.05)
        await_news(child, 1.0)

    monkeypatch.setattr(children._Child, "_await_news", once_it_hangs)
    program = """
        import os, subprocess, sys, time
        left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
        print("pids", os.getpid(), left.pid, flush=True)
        def hanging(): time.sleep(3600)
        hanging()
    """  # noqa: E501
    with one_server.imports_shared():
        ended = plans.run(program)

    log = plans.log.read_text(encoding="utf-8")
    pids = next(line for line in log.splitlines() if line.startswith("pids")).split()[1:]
    assert (ended.exit.outcome, ended.exit.exit_code) == (Outcome.TIMED_OUT, -signal.SIGTERM)
    assert "in hanging" in log
    assert all(is_gone(int(pid)) for pid in pids)


def test_ctrl_c_ends_it(plans: Plans) -> None:
    def press() -> None:
        until = time.monotonic() + 120
        while (
            not (plans.log.exists() and b"here" in plans.log.read_bytes())
            and time.monotonic() < until
        ):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    with one_server.imports_shared():
        ended = plans.run("import time; print('here', flush=True); time.sleep(3600)")
    pressing.join()

    assert ended.interrupted
    assert (ended.exit.outcome, ended.exit.message) == (Outcome.INTERRUPTED, "Ctrl-C")


def test_nothing_is_left_of_a_kgprof_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "w.py").write_text(
        "import time; open('here', 'w').close(); time.sleep(3600)\nstep = len", encoding="utf-8"
    )
    running = subprocess.Popen(
        [sys.executable, "-m", "kgprof", "profile", "w.py:step", "-o", "out"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(Path(children.HOME))},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until = time.monotonic() + 120
    while not (tmp_path / "here").exists() and time.monotonic() < until:
        time.sleep(0.05)
    began = left(tmp_path)

    running.kill()
    running.wait()

    until = time.monotonic() + 20
    while left(tmp_path) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(began) >= 3  # kgprof, the server and the child
    assert left(tmp_path) == []


COMPILED = """
import json, os, sys
import torch
def step():
    return compiled(torch.ones(64))
@torch.compile
def compiled(x):
    return (x.sin() + 1).relu() * 2
from torch._inductor import config
from torch._inductor.runtime.cache_dir_utils import cache_dir
print("FACTS", json.dumps([cache_dir() == os.environ["TORCHINDUCTOR_CACHE_DIR"], os.getppid(),
    sys.modules["__main__"].main.__module__]), flush=True)
"""


@pytest.fixture
def recorder_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder forks from the server of the other tests."""
    monkeypatch.setattr(fork_server, "imports_shared", one_server.imports_shared)


@pytest.mark.usefixtures("recorder_shares")
def test_a_run_that_compiles_is_measured_and_probed_in_forked_children(tmp_path: Path) -> None:
    file = tmp_path / "w.py"
    file.write_text(COMPILED, encoding="utf-8")
    options = Options(
        workload=f"{file}:step",
        device="cpu",
        steps=5,
        passes=(PassName.COMPILE, PassName.TIMING, PassName.MEMORY),
    )

    (run,) = recordings.load(recorder.record(options, tmp_path, progress.Progress())).runs

    said = [
        json.loads(line.partition(" ")[2])
        for line in run.log.splitlines()
        if line.startswith("FACTS")
    ]
    assert said == [[True, os.getpid(), FORKED]] * 2
    assert msgspec.structs.replace(run.exit, elapsed_s=0.0) == Exit(outcome=Outcome.OK, exit_code=0)
    kernels = json.loads(
        (layout.run_folder(tmp_path / layout.FOLDER, run.key) / layout.KERNEL_ORIGINS).read_bytes()
    )
    lines = {line["line"] for origin in kernels["origins"] for line in origin["lines"]}
    assert COMPILED.splitlines().index("    return (x.sin() + 1).relu() * 2") + 1 in lines
    assert isinstance(run.memory, MemoryPass)
    assert isinstance(run.memory.tensors, TensorRecords)
    assert (run.memory.code_cached, len(run.memory.tensors.graphs)) == (True, 1)


SWITCHED = """
import os
os.environ["TORCHINDUCTOR_COMPREHENSIVE_PADDING"] = "0"
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
os.environ["PYTHONHASHSEED"] = "7"  # too late, and so is what torch has read when it is imported
os.environ["OMP_WAIT_POLICY"] = "passive"
import torch
from torch._inductor import config
os.environ["OMP_NUM_THREADS"] = str(torch.get_num_threads() + 1)
os.environ["OMP_WAIT_POLICY"] = "active"
__import__("json", globals=globals(), fromlist=("loads",))
@torch.compile(backend="eager")
def step(): return torch.ones(8).relu()
print("PADS", config.comprehensive_padding, flush=True)
"""


@pytest.mark.usefixtures("recorder_shares")
def test_a_variable_that_the_workload_sets_is_read_by_the_torch_of_its_runs(tmp_path: Path) -> None:
    file = tmp_path / "w.py"
    file.write_text(SWITCHED, encoding="utf-8")
    options = Options(
        workload=f"{file}:step", device="cpu", steps=5, passes=(PassName.COMPILE, PassName.TIMING)
    )

    recording = recordings.load(recorder.record(options, tmp_path, progress.Progress()))

    assert [line for line in recording.runs[0].log.splitlines() if line.startswith("PADS")] == [
        "PADS False"
    ]
    assert recording.header.plan.variables == {
        "TORCHINDUCTOR_COMPREHENSIVE_PADDING": "0",
        "OMP_WAIT_POLICY": "passive",
    }


IS_FORKED = 'any("fork_server" in f.filename for f in __import__("traceback").extract_stack())'
PROGRAM = FACTS.replace('sys.modules["__main__"].main.__module__', IS_FORKED)
DRAWS = (
    "import random, numpy, torch\nprint([random.random(), "
    "float(numpy.random.rand()), torch.initial_seed()])"
)


def test_a_forked_program_is_what_one_in_a_new_process_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGPROF_OUT", str(tmp_path / "facts.jsonl"))
    text = f"{PROGRAM.partition('def step')[0]}\nprint('end of main')\n"
    forked = ran(tmp_path, text, "--lr", "1", ends_as_python=True)
    shutil.rmtree(forked.folder)
    monkeypatch.setattr(fork_server, "forked", lambda *given: None)
    new = ran(tmp_path, text, "--lr", "1", ends_as_python=True)

    seen = [
        json.loads(line)
        for line in (tmp_path / "facts.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [is_forked for _, is_forked, _ in seen] == [True, False]
    (_, _, forked_facts), (_, _, new_facts) = seen
    assert forked_facts.pop("drawn") != new_facts.pop("drawn")
    assert forked_facts == new_facts
    assert (forked.echoed, forked.exit.outcome, forked.exit.exit_code) == (
        "end of main\n",
        Outcome.OK,
        0,
    )
    assert (new.echoed, new.exit.outcome, new.exit.exit_code) == ("end of main\n", Outcome.OK, 0)


def test_programs_that_are_forked_draw_numbers_of_their_own(tmp_path: Path) -> None:
    drawn = []
    for name in ("one", "two"):  # both of the one server
        (tmp_path / name).mkdir()
        drawn.append(json.loads(ran(tmp_path / name, DRAWS).echoed))

    assert all(first != second for first, second in zip(*drawn, strict=True))


def test_what_is_printed_during_imports_is_the_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys; print('imported', file=sys.stderr)", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    assert ran(tmp_path, "print('main')").echoed == "imported\nmain\n"
