"""What kgprof's listening changed is found by a run without it, and is not held against the
program."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kgprof import progress
from kgprof.analysis import analyse
from kgprof.gate.metrics import nothing_captured
from kgprof.model import (
    CompilePass,
    Control,
    Exit,
    MemoryPass,
    Options,
    Outcome,
    PassName,
    RunRecord,
    Skipped,
)
from kgprof.reading import recordings
from kgprof.reading.evidence import Evidence
from kgprof.record import children, fork_server, recorder
from kgprof.record.children import Ended, Start
from tests.record import one_server

# A listener that fails where nothing of its own catches it: the program takes a function away from
# it.
BREAKS_A_LISTENER = """
import sys
import torch

syncs = sys.modules.get("kgprof.record.syncs")
if syncs is not None:
    def broken(*seen):
        raise LookupError("a fault of the listener's")
    syncs._took = broken
print("began", flush=True)
for _ in range(3):
    torch.ones(2).to("cpu")
print("ended", flush=True)
"""
FAILS_BY_ITSELF = """
import torch

for _ in range(3):
    torch.ones(2).sum().to("nowhere")
"""
WANTS_QUIET = """
import logging
import torch

def quiet(graph, inputs):
    if logging.getLogger("torch._dynamo.exc.__graph_breaks").isEnabledFor(logging.DEBUG):
        raise RuntimeError("no verbose logs")
    return graph.forward

@torch.compile(backend=quiet)
def halved(rows):
    return rows / 2

def step():
    try:
        halved(torch.ones(4))
    except Exception:
        return None
"""


def recorded(folder: Path, text: str, *passes: PassName, function: str = "") -> RunRecord:
    file = folder / "program.py"
    file.write_text(text, encoding="utf-8")
    options = Options(workload=f"{file}{function}", device="cpu", steps=3, warmup=1, passes=passes)
    # a function's server begins otherwise than that of programs, which other tests share
    shared = fork_server.imports_shared if function else one_server.imports_shared
    with mock.patch.object(fork_server, "imports_shared", shared):
        recording = recorder.record(options, folder / "out", progress.Silent())
    (run,) = recordings.load(recording).runs
    return run


def well() -> tuple[Outcome, int | None]:
    return Outcome.OK, 0


def ended(exit_: Exit) -> tuple[Outcome, int | None]:
    return exit_.outcome, exit_.exit_code


def test_a_program_that_a_listener_killed_is_run_again_without_it(tmp_path: Path) -> None:
    run = recorded(tmp_path, BREAKS_A_LISTENER, PassName.COMPILE, PassName.MEMORY)

    assert ended(run.exit) == well()
    assert isinstance(run.control, Control)
    assert ended(run.control.exit) == well()
    assert isinstance(run.memory, MemoryPass)
    (lost,) = run.memory.capture_unavailable
    assert lost.capture == "sync hooks"
    assert lost.why == (
        "LookupError: a fault of the listener's came through it; without it the run ends well"
    )


def test_the_run_without_the_listener_begins_with_cold_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bool] = []

    def start(starts: Start, **more: Any) -> Ended:
        given.append(starts.caches.folder.is_dir())
        ended = run_child(starts, **more)
        starts.caches.folder.mkdir(exist_ok=True)  # as Inductor makes it
        return ended

    run_child = children.run
    monkeypatch.setattr(children, "run", start)
    recorded(tmp_path, BREAKS_A_LISTENER, PassName.COMPILE, PassName.MEMORY)

    *_, first, control, again = given
    assert (first, control, again) == (False, True, False)


def test_a_program_that_raises_under_a_hook_by_itself_is_said_to(tmp_path: Path) -> None:
    run = recorded(tmp_path, FAILS_BY_ITSELF, PassName.COMPILE, PassName.MEMORY)

    assert (run.exit.outcome, run.exit.through) == (Outcome.RAISED, ("sync hooks",))
    assert isinstance(run.control, Control)
    assert run.control.exit.outcome is Outcome.RAISED
    assert isinstance(run.memory, MemoryPass)
    assert run.memory.capture_unavailable == ()


def test_a_backend_that_fails_under_kgprof_alone_is_no_finding(tmp_path: Path) -> None:
    file = tmp_path / "out"
    run = recorded(tmp_path, WANTS_QUIET, PassName.COMPILE, function=":step")

    assert isinstance(run.control, Control)
    assert (run.control.graphs, run.control.frames, run.control.frames_ok) == (1, 1, 1)
    assert [code.function for code in run.control.compiled] == ["halved"]
    assert isinstance(run.compile, CompilePass)
    recording = recordings.load(file)
    (failure,) = Evidence(recording).runs[0].changed_by_listening
    assert (failure.function, failure.error) == ("halved", "RuntimeError: no verbose logs")
    profile = analyse(recording)
    assert not {finding.rule for finding in profile.findings} & {"KGP102", "KGP107"}
    assert "kgprof's listening changed the program" in nothing_captured(profile.runs[0])


def test_a_healthy_program_is_not_run_once_more(tmp_path: Path) -> None:
    run = recorded(tmp_path, "import torch\ntorch.ones(1)\n", PassName.COMPILE)

    assert ended(run.exit) == well()
    assert run.control is None


def test_a_rank_of_several_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder.ranks, "launch", lambda environment: object())
    run = recorded(tmp_path, FAILS_BY_ITSELF, PassName.COMPILE, PassName.MEMORY)

    assert run.control == Skipped(reason="launched ranks are not run again automatically")
    assert run.exit.outcome is Outcome.RAISED
