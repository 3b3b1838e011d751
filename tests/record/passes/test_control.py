"""What kgprof's listening changed is found by a run without it, and is not held against the
program."""

from __future__ import annotations

import functools
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
    Setting,
    Skipped,
)
from kgprof.reading import recordings
from kgprof.reading.evidence import Evidence
from kgprof.record.processes import children, fork_server, recorder
from kgprof.record.processes.children import Ended, Start
from tests.record import one_server

# A listener that fails where nothing of its own catches it: the program takes a function away from
# it.
BREAKS_A_LISTENER = """
import sys
import torch

hooks = sys.modules.get("kgprof.record.listeners.sync_hooks")
if hooks is not None:
    def broken(*seen):
        raise LookupError("a fault of the listener's")
    hooks._took = broken
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


def recorded(
    folder: Path, text: str, *passes: PassName, function: str = "", **more: Any
) -> RunRecord:
    file = folder / "program.py"
    file.write_text(text, encoding="utf-8")
    options = Options(
        workload=f"{file}{function}", device="cpu", steps=3, warmup=1, passes=passes, **more
    )
    shared = functools.partial(one_server.imports_shared, runs_functions=bool(function))
    with mock.patch.object(fork_server, "imports_shared", shared):
        recording = recorder.record(options, folder / "out", progress.Progress())
    (run,) = recordings.load(recording).runs
    return run


def well() -> tuple[Outcome, int | None]:
    return Outcome.OK, 0


def ended(exit_: Exit) -> tuple[Outcome, int | None]:
    return exit_.outcome, exit_.exit_code


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The folder of caches that each child is given, and whether it is there already."""
    given: list[tuple[str, bool]] = []

    def start(starts: Start, **more: Any) -> Ended:
        given.append((starts.caches.folder.name, starts.caches.folder.is_dir()))
        ended = run_child(starts, **more)
        starts.caches.folder.mkdir(exist_ok=True)  # as Inductor makes it
        return ended

    run_child = children.run
    monkeypatch.setattr(children, "run", start)
    return given


def test_a_program_that_a_listener_killed_is_run_again_without_it(
    tmp_path: Path, starts: list[tuple[str, bool]]
) -> None:
    """The run without the listener begins with cold caches."""
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
    *_, first, control, again = (is_warm for _, is_warm in starts)
    assert (first, control, again) == (False, True, False)


def test_a_program_that_raises_under_a_hook_by_itself_is_said_to(tmp_path: Path) -> None:
    run = recorded(tmp_path, FAILS_BY_ITSELF, PassName.COMPILE, PassName.MEMORY)

    assert (run.exit.outcome, run.exit.through) == (Outcome.RAISED, ("sync hooks",))
    assert isinstance(run.control, Control)
    assert run.control.exit.outcome is Outcome.RAISED
    assert isinstance(run.memory, MemoryPass)
    assert run.memory.capture_unavailable == ()
    (report,) = analyse(recordings.load(tmp_path / "out")).runs
    assert "came through" not in report.how_it_ended


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
    monkeypatch.setattr(recorder.ranks, "launch", object)
    run = recorded(tmp_path, FAILS_BY_ITSELF, PassName.COMPILE, PassName.MEMORY)

    assert run.control == Skipped(reason="launched ranks are not run again automatically")
    assert run.exit.outcome is Outcome.RAISED
    (report,) = analyse(recordings.load(tmp_path / "out")).runs
    assert "it came through kgprof's sync hooks, and no run without" in report.how_it_ended


# ------------------------------------------------------------- a trial: a control with a setting


OF_A_NUMBER = """
import torch

@torch.compile(backend="aot_eager")
def grid(x, n):
    k = int(n.item())
    return {made} + x.sum()

def step():
    grid(torch.ones(4, 4), torch.tensor(3))

if __name__ == "__main__":
    for number in range(3):
        grid(torch.ones(4, 4), torch.tensor(3 + number))
"""
NEEDS_THE_NUMBER = OF_A_NUMBER.format(made="torch.linspace(0.0, 1.0, k)")
SIZE_ONLY = OF_A_NUMBER.format(made="torch.zeros(k)")
ATTENDS = """
import torch
import torch.nn.functional as F

@torch.compile
def attend(x, mask):
    kept = torch.masked_select(x * 2, mask[:, None]).view(1, -1, 8)
    return F.scaled_dot_product_attention(kept, kept, kept)

def step():
    attend(torch.ones(16, 8), torch.arange(16) % 2 == 0)
"""
WHEN_IT_IS_SET = """
import torch

if torch._dynamo.config.capture_scalar_outputs:
    {then}
"""
SETS_IT_ITSELF = "import torch\ntorch._dynamo.config.capture_scalar_outputs = False\n"
COUNTS_ITS_CALLS = """
import torch

class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls

model = torch.compile(Counter(), backend="aot_eager")

def step():
    model(torch.ones(4))

if __name__ == "__main__":
    for _ in range(9):
        step()
"""


def fixes(folder: Path, rule: str) -> list[str]:
    profile = analyse(recordings.load(folder / "out"))
    return [finding.fix for finding in profile.findings if finding.rule == rule]


def tried(folder: Path, text: str, function: str = "") -> RunRecord:
    """As kgprof profile records it, without the passes that time it."""
    passes = (PassName.COMPILE, PassName.TRACE)
    return recorded(folder, text, *passes, function=function, timing_below_s=60.0)


def trials(run: RunRecord) -> tuple[Control, ...]:
    assert isinstance(run.setting_trials, tuple)
    return tuple(each for each in run.setting_trials if each.setting is not None)


def without_a_setting(run: RunRecord) -> list[Control]:
    """What the trials are held against."""
    assert isinstance(run.setting_trials, tuple)
    return [each for each in run.setting_trials if each.setting is None]


@pytest.mark.parametrize("function", ["", ":step"])
def test_a_setting_with_which_the_program_dies_is_no_fix(
    tmp_path: Path, starts: list[tuple[str, bool]], function: str
) -> None:
    """Its trial begins with cold caches of its own."""
    run = tried(tmp_path, NEEDS_THE_NUMBER, function=function)

    (trial,) = trials(run)
    assert trial.setting == Setting(name="capture_scalar_outputs", value=True)
    assert trial.exit.outcome is Outcome.RAISED
    assert without_a_setting(run) == []
    assert ended(run.exit) == well()
    assert fixes(tmp_path, "KGP101") == [""]
    assert [is_warm for name, is_warm in starts if name == "caches-trial"] == [False]
    if not function:  # a rerun of the script finds those of the run's first process
        assert starts[-1] == ("caches-0", True)


@pytest.mark.parametrize(
    ("function", "effect"),
    [("", "tried: 1 graph instead of 2"), (":step", "tried: 1 graph, no break at this line")],
)
def test_a_setting_that_helps_is_a_fix_and_says_how(
    tmp_path: Path, function: str, effect: str
) -> None:
    run = tried(tmp_path, SIZE_ONLY, function=function)

    (trial,) = trials(run)
    assert (trial.graphs, trial.breaks) == (1, ())
    assert [count.times for count in trial.counts] == [1]
    (without,) = without_a_setting(run)
    assert ended(without.exit) == well()
    assert without.breaks
    assert 0 < trial.compiled_s < trial.exit.elapsed_s
    assert 0 < without.compiled_s < without.exit.elapsed_s
    setting = "torch._dynamo.config.capture_scalar_outputs = True"
    assert fixes(tmp_path, "KGP101") == [f"{setting}  # {effect}"]


def test_a_setting_with_which_the_run_takes_longer_is_no_fix(tmp_path: Path) -> None:
    """As torch's LSTM on a CPU, of which Dynamo makes the loop over its steps."""
    longer = WHEN_IT_IS_SET.format(then="import time; time.sleep(2)")
    run = tried(tmp_path, SIZE_ONLY + longer)

    (trial,) = trials(run)
    assert trial.breaks == ()
    assert fixes(tmp_path, "KGP101") == [""]


@pytest.mark.long
def test_a_size_by_values_is_no_symbol_where_an_operator_needs_it(tmp_path: Path) -> None:
    """Only Inductor asks for it."""
    run = tried(tmp_path, ATTENDS, function=":step")

    (trial,) = trials(run)
    assert trial.setting == Setting(name="capture_dynamic_output_shape_ops", value=True)
    assert trial.exit.outcome is Outcome.RAISED
    assert fixes(tmp_path, "KGP101") == [""]


@pytest.mark.long
def test_a_setting_against_recompiles_is_tried(tmp_path: Path) -> None:
    tried(tmp_path, COUNTS_ITS_CALLS)

    (fix,) = fixes(tmp_path, "KGP105")
    setting = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"
    assert fix == f"{setting}  # tried: compiled 2 times instead of 8"


def test_a_trial_that_hangs_is_no_error_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "TRIAL_AT_LEAST_S", 3.0)
    monkeypatch.setattr(recorder, "TRIAL_MOST", 0)
    hangs = WHEN_IT_IS_SET.format(then="import time; time.sleep(600)")
    run = tried(tmp_path, hangs + SIZE_ONLY)

    (trial,) = trials(run)
    assert trial.exit.outcome is Outcome.TIMED_OUT
    assert ended(run.exit) == well()
    assert fixes(tmp_path, "KGP101") == [""]


@pytest.mark.long
def test_a_trial_that_is_killed_is_no_error_of_the_run(tmp_path: Path) -> None:
    dies = WHEN_IT_IS_SET.format(then="import os; os.kill(os.getpid(), 9)")
    run = tried(tmp_path, dies + SIZE_ONLY)

    (trial,) = trials(run)
    assert trial.exit.outcome is Outcome.KILLED
    assert ended(run.exit) == well()


@pytest.mark.long
def test_a_script_that_makes_the_setting_itself_is_not_tried(tmp_path: Path) -> None:
    run = tried(tmp_path, SETS_IT_ITSELF + SIZE_ONLY)

    assert trials(run) == ()
    assert fixes(tmp_path, "KGP101") == [""]  # torch's own hint stands in its place


@pytest.mark.long
def test_a_file_of_steps_that_makes_the_setting_itself_is_tried(tmp_path: Path) -> None:
    tried(tmp_path, SETS_IT_ITSELF + SIZE_ONLY, function=":step")

    (fix,) = fixes(tmp_path, "KGP101")
    assert fix.endswith("# tried: 1 graph, no break at this line")


def test_nothing_is_tried_where_torch_names_no_setting(tmp_path: Path) -> None:
    whole = SIZE_ONLY.replace("int(n.item())", "3")
    run = tried(tmp_path, whole, function=":step")

    assert run.setting_trials == ()
    assert not list((tmp_path / "out").rglob("setting_trials.json"))


@pytest.mark.long
def test_a_program_that_takes_long_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "CONTROLLED_BELOW_S", 0.01)
    run = tried(tmp_path, SIZE_ONLY, function=":step")

    assert isinstance(run.setting_trials, Skipped)
    assert "only a program that takes less than 0.01 s is run again" in run.setting_trials.reason
    assert fixes(tmp_path, "KGP101") == [""]  # torch's own hint stands in its place


@pytest.mark.long
def test_a_program_that_resets_the_compiler_is_not_run_again(tmp_path: Path) -> None:
    run = tried(tmp_path, f"{SIZE_ONLY}    torch._dynamo.reset()\n")

    why = "the program resets torch.compile, which then forgets where graphs broke"
    assert run.setting_trials == Skipped(why)


@pytest.mark.long
def test_a_script_is_run_for_chosen_passes_only(tmp_path: Path) -> None:
    passes = (PassName.COMPILE, PassName.MEMORY, PassName.TRACE)
    run = recorded(tmp_path, SIZE_ONLY, *passes)

    assert run.setting_trials == Skipped(
        "the program is run only for the passes that --passes names"
    )


def test_a_gate_tries_nothing(tmp_path: Path) -> None:
    passes = (PassName.COMPILE, PassName.MEMORY)
    run = recorded(tmp_path, SIZE_ONLY, *passes, function=":step")

    assert run.setting_trials == Skipped("a gate tries no setting; kgprof profile does")
    assert fixes(tmp_path, "KGP101") == [""]  # torch's own hint stands in its place
