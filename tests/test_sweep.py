"""kgprof sweep and kgprof advise on the command line: what is written, what is printed, and how
they end."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from kgprof import model as m
from kgprof import progress
from kgprof.cli import sweeping
from kgprof.cli.sweeping import exit_code
from kgprof.measures.sweep import weighed
from kgprof.record.processes import trials
from kgprof.record.processes.children import Caches
from tests.sweeps import DEFAULT, EAGER, cell, dead, started, sweep
from tests.test_scripts import kgprof

PROGRAM = """
import os
import torch
from torch._dynamo import register_backend

@register_backend
def dying(graph, inputs):
    os.abort()

@register_backend
def raising(graph, inputs):
    raise ValueError("no such graph")

x = torch.linspace(0, 1, 64)

def step():
    return (x.sin() + x.cos()).sum()
"""
SCRIPT = """
import torch
net = torch.compile(torch.nn.Linear(4, 4), backend="eager")
for _ in range(12):
    net(torch.ones(2, 4)).sum()
"""
QUICK = (
    "--device",
    "cpu",
    "--processes",
    "1",
    "--steps",
    "4",
    "--minutes",
    "60",
    "--no-ladder",
    "--no-ci",
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which cells were swept of which one died and one raised; its ``out`` and what was
    printed."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "program.py").write_text(PROGRAM)
    backends = [
        option
        for name in ("dying", "raising", "aot_eager", "onnxrt")
        for option in ("--backend", name)
    ]
    done = kgprof("sweep", "program.py:step", *backends, *QUICK, "-o", "out", cwd=folder)
    (folder / "stdout").write_text(done.stdout)
    (folder / "stderr").write_text(done.stderr)
    (folder / "code").write_text(str(done.returncode))
    return folder


def test_a_cell_that_dies_or_raises_costs_itself(swept: Path) -> None:
    found = m.decode_json((swept / "out" / "sweep.json").read_bytes(), m.Sweep)
    ends = {
        each.cell.name: each.failed and each.failed.outcome
        for each in found.cells
        if each.processes
    }
    times = [each for result in found.cells for each in result.measured() if each.step_us]
    compiled = next(each for each in found.cells if each.cell.backend == "aot_eager").measured()[0]

    assert (swept / "code").read_text() == "0"
    assert ends == {
        "eager": None,
        "backend dying": "killed",
        "backend raising": "raised",
        "backend aot_eager": None,
    }
    assert [len(each.start_s) for each in times] == [3, 3]
    assert compiled.frames == 1
    assert isinstance(compiled.stages, m.CompileStages)
    assert compiled.stages.capture_s > 0


def test_the_plan_stands_before_the_first_process_and_the_page_on_stdout(swept: Path) -> None:
    printed = (swept / "stderr").read_text()

    assert printed.index("4 cells, each in 1 process,") < printed.index("process 1, cold caches")
    assert "backend onnxrt is left out: not installed" in printed
    assert "backend dying was killed: SIGABRT" in printed
    assert (swept / "stdout").read_text() == "out/sweep.html\n"
    assert "no such graph" in (swept / "out" / "sweep.html").read_text()
    assert not (swept / "out" / "recording.unfinished").exists()


def test_resume_runs_only_what_is_missing_and_refuses_another_question(swept: Path) -> None:
    again = ("--backend", "aot_eager", "--backend", "eager", "--resume", "-o", "out", *QUICK)

    more = kgprof("sweep", "program.py:step", *again, "--format", "json", cwd=swept)
    other = kgprof("sweep", "program.py:step", *again, "--seed", "1", cwd=swept)

    assert more.returncode == 0
    processes = [line for line in more.stderr.splitlines() if "cold caches" in line]
    assert [line.split("step.")[1] for line in processes] == [
        "backend eager  process 1, cold caches"
    ]
    measured = [len(each["processes"]) for each in json.loads(more.stdout)["cells"]]
    assert measured == [1, 1, 1, 1, 1]
    assert other.returncode == 2
    assert "seed was 0, is 1" in other.stderr


def test_advise_measures_nothing_and_names_its_inputs(swept: Path) -> None:
    done = kgprof(
        "advise", "out", "--executions", "7", "--memory", "1", "--format", "markdown", cwd=swept
    )
    nothing = kgprof("advise", "nowhere", "--executions", "7", cwd=swept)

    assert done.returncode == 0
    assert "inputs: program.py:step, 7 executions, 1 byte," in done.stderr
    assert "No mode can be recommended for 7 executions in 1 byte" in done.stdout
    assert (nothing.returncode, "cannot be read" in nothing.stderr) == (2, True)


@pytest.mark.long
def test_a_script_compiles_in_the_cells_backend(swept: Path) -> None:
    (swept / "script.py").write_text(SCRIPT)

    done = kgprof(
        "sweep",
        "script.py",
        "--mode",
        "as-is",
        "--backend",
        "aot_eager",
        *QUICK,
        "-o",
        "s",
        cwd=swept,
    )

    found = m.decode_json((swept / "s" / "sweep.json").read_bytes(), m.Sweep)
    assert done.returncode == 0
    cold = {each.cell.name: each.measured(cold=True)[0] for each in found.cells}
    assert {name: times.frames for name, times in cold.items()} == {
        "eager": 0,
        "backend aot_eager": 1,
    }
    (eager,), (warm,) = (each.measured(cold=False) for each in found.cells)
    assert [len(times.start_s) for times in (eager, warm)] == [3, 3]
    assert warm.start_s[0] > 10 * warm.start_s[2]  # it compiles with warm caches too
    assert all(times.step_us for times in (eager, warm))


def test_exit_codes() -> None:
    def code(*cells: m.CellResult) -> int:
        return exit_code(weighed(sweep(*cells), 10))

    eager, compiled = (
        cell(EAGER, 200, 200, 200, cold_s=[0.0]),
        cell(DEFAULT, 100, 100, 100, cold_s=[1.0]),
    )

    assert code(eager, compiled) == 0
    assert code(eager, dead(DEFAULT)) == 0
    assert code(dead(EAGER), dead(DEFAULT)) == 4
    assert code(m.CellResult(cell=EAGER), m.CellResult(cell=DEFAULT)) == 4
    assert code(started(EAGER), started(DEFAULT)) == 5
    assert code(started(EAGER), m.CellResult(cell=DEFAULT, not_run="time ran out")) == 0


def test_what_an_earlier_sweep_tried_is_not_tried_again_and_sizes_have_the_cells_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: the best cell has options of its own
    best = replace(DEFAULT, size=("--batch", "8"))
    eager = replace(EAGER, size=best.size)
    found = weighed(
        sweep(cell(eager, *[900] * 3, cold_s=[0.0]), cell(best, *[90] * 3, cold_s=[1.0])), 1_000_000
    )
    nothing = m.Skipped(reason="no rung differs")
    ladder = m.Ladder(
        strategy="step", cell=best.name, steps=1, rungs=(), first=None, minified=nothing
    )
    climbed, given, caches = [], [], Caches(folder=tmp_path / "caches")
    monkeypatch.setattr(sweeping, "climb", lambda of, _: climbed.append(of.cell) or ladder)
    monkeypatch.setattr(
        sweeping,
        "compare_policies",
        lambda of, _: given.append(of.options.workload_args) or nothing,
    )

    def tried(before: m.Sweep) -> m.Sweep:
        asked = m.Options(workload="model.py:step", workload_args=("--deep",))
        return sweeping.tried(
            before,
            asked,
            True,
            (2, 4),
            tmp_path,
            tmp_path,
            progress.choose(quiet=True),
            math.inf,
            caches,
        )

    # when
    once = tried(found)
    again = tried(replace(once, interrupted=False))

    # then
    assert climbed == [best]
    assert (once.ladder, again.ladder) == (ladder, ladder)
    assert given == [("--deep", "--batch", "8")] * 2


def test_a_ladder_that_ran_out_of_time_is_climbed_again_and_a_start_with_shipped_caches_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = weighed(
        sweep(cell(EAGER, *[900] * 3, cold_s=[0.0]), cell(DEFAULT, *[90] * 3, cold_s=[1.0])),
        1_000_000,
    )
    none, limits = m.Skipped(reason="no rung differs"), []

    def climb(of: trials.CellTrials, _: Path) -> m.Ladder:
        limits.append(of.until)
        rungs = ((m.Rung.CAPTURE, trials.TIME_UP),)
        return m.Ladder(
            strategy="step", cell=DEFAULT.name, steps=1, rungs=rungs, first=None, minified=none
        )

    monkeypatch.setattr(sweeping, "climb", climb)
    asked, quiet, caches = (
        m.Options(workload="model.py:step"),
        progress.choose(quiet=True),
        Caches(folder=tmp_path),
    )

    for _ in range(2):
        found = sweeping.tried(found, asked, True, None, tmp_path, tmp_path, quiet, 0.0, caches)

    assert limits == [0.0, 0.0]
    assert found.shipped == trials.TIME_UP


def test_an_interruption_keeps_the_ladder_and_says_that_sizes_were_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = weighed(
        sweep(cell(EAGER, *[900] * 3, cold_s=[0.0]), cell(DEFAULT, *[90] * 3, cold_s=[1.0])),
        1_000_000,
    )
    none = m.Skipped(reason="no rung differs")
    ladder = m.Ladder(
        strategy="step", cell=DEFAULT.name, steps=1, rungs=(), first=None, minified=none
    )

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeping, "climb", lambda *_, **__: ladder)
    monkeypatch.setattr(sweeping, "compare_policies", interrupted)

    asked, quiet, caches = (
        m.Options(workload="model.py:step"),
        progress.choose(quiet=True),
        Caches(folder=tmp_path),
    )
    kept = sweeping.tried(found, asked, True, (2, 4), tmp_path, tmp_path, quiet, math.inf, caches)

    assert (kept.interrupted, kept.ladder) == (True, ladder)
    assert kept.shapes == m.Skipped(reason="the sweep was interrupted")


def test_resume_without_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)

    refused = kgprof("sweep", "program.py:step", "--resume", cwd=tmp_path)

    assert refused.returncode == 2
    assert "name it with -o" in refused.stderr


@pytest.mark.parametrize("sizes", ["8", "8,8", "0,4", "8,x"])
def test_sizes_are_two_or_more(tmp_path: Path, sizes: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)

    refused = kgprof("sweep", "program.py:step", "--sizes", sizes, cwd=tmp_path)

    assert refused.returncode == 2
    assert f"--sizes must be two or more sizes, got {sizes}" in refused.stderr


@pytest.mark.long
def test_the_best_cell_is_held_to_float64_and_sizes_are_tried(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\ndef step(x=torch.ones(6, 4)):\n    return x.sin() + 1\n"
    )
    quick = [option for option in QUICK if option != "--no-ladder"]

    done = kgprof(
        *("sweep", "program.py:step", "--backend", "aot_eager", "--sizes", "2,4", *quick),
        *("--format", "json", "-o", "out"),
        cwd=tmp_path,
    )

    found = m.decode_json(done.stdout, m.Sweep)
    assert isinstance(found.ladder, m.Ladder)
    assert (found.ladder.first, found.ladder.cell) == (None, "backend aot_eager")
    assert [
        rung for rung, result in found.ladder.rungs if isinstance(result, m.RungResult)
    ] == list(m.Rung)
    assert isinstance(found.shapes, m.Shapes)
    assert all(isinstance(result, m.PolicyResult) for _, result in found.shapes.policies)
    page = (tmp_path / "out" / "sweep.html").read_text()
    assert "No rung differs (5 compared)" in page
    assert "Varying sizes" in page


@pytest.mark.parametrize(("workload", "kept"), [("train.py", False), ("model.py:step", True)])
def test_a_script_keeps_no_time_for_a_ladder_that_it_has_not(workload: str, kept: bool) -> None:
    assert sweeping.climbs(True, workload) is kept
