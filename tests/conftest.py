"""One Inductor cache directory for all tests; the only skips allowed are a missing GPU, ../shared
or right to mount."""

from __future__ import annotations

import compileall
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from unittest import mock

import pytest

from kgprof.signals import ENDING
from tests import scratch, unprofiled_guards

TESTS = Path(__file__).resolve().parent
SHARED = TESTS.parents[1] / "shared"
PACKAGE = TESTS.parent / "kgprof"
# What takes longest, begun first, so that of two processes none is left with a minute's work at the
# end. (By itself pytest-xdist begins with the files that hold most tests, which are the quick
# ones.)
LONGEST = (
    "tests/programs/",
    "tests/test_cli.py",
    "tests/record/passes/test_script",
    "tests/record/processes/test_fork_server.py",
    "tests/collectors/compile/test_remedies.py",
    "tests/test_check_graphs.py",
    "tests/cli/test_selftest.py",
    "tests/test_scripts.py",
    "tests/test_sweep.py",
    "tests/workloads/",
    "tests/reports/",
    "tests/attack/",
    "tests/test_fix.py",
    "tests/test_units.py",
    "tests/record/",
    "tests/lab/",
    "tests/test_linkpred",
    "tests/corpus",
    "tests/cli/",
    "tests/test_watch.py",
    "tests/watching/",
    "tests/breaks/",
    "tests/syncs/",
    "tests/test_compare_recorded.py",
    "tests/regressions/",
    "tests/contract/",
    "tests/render/",
    "tests/test_compiled_at_import.py",
    "tests/test_rescans.py",
    "tests/test_packaging.py",
    "tests/test_compare_moved.py",
    "tests/test_seeds.py",
    "tests/analysis/",
)

# One cold compile for the whole session, and no vector instructions: torch 2.13 would compile and
# load six small libraries in each process with cold caches to learn which ones this CPU has, also
# where "1" says that they all work. That is 2.2 s of a processor, of 8 for a small `check-graphs`.
# tests/workloads/linkpred and the ten-line example of tests/test_cli.py have them.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(scratch.new_folder()))
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
# Two test processes start programs on two cores: torch's threads would wait for each other,
# spinning. tests/programs/test_own.py took 184 s of a processor with them and 148 s without, both
# times on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The tests' own job is not the job of the commands that they run.
for _name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
    os.environ.pop(_name, None)


def pytest_configure(config: pytest.Config) -> None:
    # Hundreds of tests start kgprof in processes of their own. Where PYTHONDONTWRITEBYTECODE is
    # set, as in most images, each of them would compile its modules again; what is compiled once
    # they all read.
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(PACKAGE, quiet=2)
    # A shell has what it starts in the background ignore SIGINT and SIGQUIT, nohup SIGHUP, and so
    # would every process that a test sends them to.
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Eleven thousand tests and torch stay until the end: the garbage collector need not look at
    them each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _signals_are_taken_as_before() -> Iterator[None]:
    """A file that leaves a signal ignored has all commands of the files after it ignore it."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    assert {number: signal.getsignal(number) for number in ENDING} == before


@pytest.fixture(autouse=True, scope="module")
def _garbage_collector_sees_one_file() -> None:
    """What the files before have kept is looked at no more, neither by the garbage collector nor
    by what asks it for all objects. test_remedies alone spent four minutes there."""
    gc.collect()
    gc.freeze()
    unprofiled_guards.keep()


@pytest.fixture(autouse=True, scope="module")
def _a_program_consists_of_no_other_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each process has imported all test files, and all of them would be files of a program that a
    test watches in it: half a second for each time that one is looked for."""
    sources = sys.modules.get("kgprof.record.ground.project_sources")
    if sources is None:
        yield
        return
    imported = sources.imported_files

    def without_other_tests() -> Iterator[str]:
        for file in imported():
            is_a_test = Path(file).name.startswith("test_") and TESTS in Path(file).parents
            if not is_a_test or file == str(request.path):
                yield file

    with mock.patch.object(sources, "imported_files", without_other_tests):
        yield


def pytest_sessionfinish() -> None:
    scratch.FOLDER.cleanup()  # later pytest-xdist may kill a process that takes long to end


def pytest_unconfigure() -> None:
    gc.unfreeze()  # what is left of C++ objects is told as leaks else


def _cuda_available() -> bool:
    import torch

    return torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only a GPU, ../shared and the right to mount may be missing. Anything else that is absent is
    a failure."""
    items.sort(
        key=lambda item: next(
            (at for at, path in enumerate(LONGEST) if item.nodeid.startswith(path)), 99
        )
    )
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items and not _cuda_available():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this machine"))
    if not SHARED.is_dir():
        for item in items:
            if item.get_closest_marker("shared"):
                item.add_marker(pytest.mark.skip(reason=f"{SHARED} is absent"))


def _may_skip(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("gpu", "shared", "mounts"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip for any other reason would hide a missing dependency: it counts as a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and not _may_skip(item):
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} skipped without the marker gpu, shared or mounts: {report.longrepr}"
        )
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.getreports("skipped")
    if skipped:
        terminalreporter.section(
            "skipped tests, by name (only a missing GPU, ../shared or right to mount may skip)"
        )
        for report in skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            terminalreporter.line(f"{report.nodeid}: {reason}")


@pytest.fixture(scope="session")
def shared() -> Path:
    return SHARED
