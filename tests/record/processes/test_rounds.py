"""TIMING in fresh processes: which children run, on which caches, and what is left of a round that
dies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from kgprof import progress
from kgprof.model import (
    Exit,
    Options,
    PassName,
    RoundRecord,
    RunKey,
    Skipped,
    TimedRound,
    TimingPass,
    encode_json,
)
from kgprof.reading import layout, recordings
from kgprof.record.ground import store
from kgprof.record.ground.job import Job, Task
from kgprof.record.passes.timing import timed_round
from kgprof.record.processes import recorder
from kgprof.record.processes.children import Ended, Start
from tests.record import handmade
from tests.record.sessions import Evaluating

FIRST, SECOND = handmade.BATCHED, handmade.FUSED
OK = Exit(outcome="ok")
TIMED = TimingPass(clock="perf_counter", step_us=((1.0, 2.0, 3.0),), evaluation_s=())
ROUND = TimedRound(first_call_s=0.5, graphs_from_cache=1, graphs_compiled=0, timing=TIMED)


class Children:
    """In the place of processes: what was started, and in which order; each ends as ``ends`` says,
    or well."""

    def __init__(self, ends: dict[tuple[Task, str, int], Exit] | None = None) -> None:
        self.started: list[tuple[Task, str, int]] = []
        self.caches: list[tuple[str, bool]] = []
        self.phases: list[str] = []
        self.results: list[str] = []
        self.probed_on: list[tuple[str, bool]] = []
        self._ends = ends or {}

    def expect(self, runs: object, passes: object) -> None:
        """What a recorder says to its progress in advance."""

    def run(self, given: Start, **others: Any) -> Ended:
        job = given.job
        if job.task is Task.PLAN:
            plan = msgspec.structs.replace(
                handmade._header().plan,
                device="cuda",
                runs=(FIRST, SECOND),
                baseline=None,
                agreement=False,
            )
            Path(job.answer).write_bytes(encode_json(plan))
            return Ended(exit=OK)
        if job.key is None:
            return Ended(exit=OK)
        what = (job.task, job.key.strategy, job.round)
        self.started.append(what)
        if job.task in (Task.MEASURE, Task.ROUND):
            self.caches.append((given.caches.folder.name, given.caches.kept))
        if job.task is Task.MEASURE:
            given.caches.folder.mkdir(exist_ok=True)
        if job.task is Task.PROBE:
            self.probed_on.append((given.caches.folder.name, job.code_cached))
        ended = self._ends.get(what, OK)
        if ended.outcome == "ok":
            self._write(job, job.key)
        return Ended(exit=ended, interrupted=ended.outcome == "interrupted")

    @staticmethod
    def _write(job: Job, key: RunKey) -> None:
        if job.task is Task.MEASURE:
            store.write_pass(Path(job.recording), key, PassName.TIMING, TIMED)
        elif job.task is Task.ROUND:
            store.write_json(
                layout.run_folder(Path(job.recording), key)
                / f"{layout.round_name(job.round)}.json",
                ROUND,
            )

    def phase(self, name: str, key: RunKey | None, *, beside: bool = False) -> None:
        self.phases.append(name)

    def result(self, text: str, key: RunKey, *, short: str = "") -> None:
        self.results.append(f"after {self.started[-1][0]} {key.slug}: {text}")


def recorded(
    children: Children,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    rounds: int,
    passes: tuple[PassName, ...] = (PassName.COMPILE, PassName.TIMING),
) -> Path:
    monkeypatch.setattr(recorder.children, "run", children.run)
    asked = Options(workload="invented", rounds=rounds, passes=passes)
    return recorder.record(asked, folder, children)


def test_further_rounds_go_in_turn_over_all_runs_and_find_each_runs_own_caches_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = Children()

    folder = recorded(children, tmp_path / "out", monkeypatch, 3)

    assert children.started == [
        (Task.MEASURE, "batched", 1),
        (Task.MEASURE, "fused", 1),
        (Task.ROUND, "batched", 2),
        (Task.ROUND, "fused", 2),
        (Task.ROUND, "batched", 3),
        (Task.ROUND, "fused", 3),
    ]
    kept = [("caches-0", True), ("caches-1", True)]
    assert children.caches == [*kept, *kept, ("caches-0", False), ("caches-1", False)]
    assert [name for name in children.phases if name.startswith("round")] == [
        *("round 2: prepare", "round 2: prepare", "round 3: prepare", "round 3: prepare")
    ]
    for run in recordings.load(folder).runs:
        assert run.rounds == tuple(
            RoundRecord(number=number, exit=OK, measured=ROUND) for number in (2, 3)
        )


def test_one_round_starts_nothing_more_and_keeps_no_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = Children()

    folder = recorded(children, tmp_path / "out", monkeypatch, 1)

    assert children.started == [(Task.MEASURE, "batched", 1), (Task.MEASURE, "fused", 1)]
    assert children.caches == [("caches", False)] * 2
    assert [run.rounds for run in recordings.load(folder).runs] == [(), ()]


def test_the_second_process_of_a_run_and_its_rounds_find_what_the_first_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rounds, kept in ((1, [True, True]), (2, [True, True, False, False])):
        children, passes = Children(), (PassName.COMPILE, PassName.TIMING, PassName.MEMORY)

        recorded(children, tmp_path / str(rounds), monkeypatch, rounds, passes)

        assert children.probed_on == [("caches-0", True), ("caches-1", True)]
        assert children.caches == [(f"caches-{index % 2}", keep) for index, keep in enumerate(kept)]


def test_each_run_says_its_step_time_as_soon_as_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = Exit(outcome="killed", message="SIGKILL", during="trace", exit_code=-9)
    children = Children({(Task.MEASURE, "fused", 1): dead})

    recorded(children, tmp_path / "out", monkeypatch, 2)

    assert children.results == [
        "after measure batched.eager: 0.00120 to 0.00280 ms/step, p10 to p90 of 3 steps",
        "after measure fused.default: was killed during TRACE: SIGKILL",
    ]


def test_a_round_that_dies_costs_that_round_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Exit(outcome="killed", message="SIGKILL", during="timing", exit_code=-9)

    folder = recorded(
        Children({(Task.ROUND, "batched", 2): killed}), tmp_path / "out", monkeypatch, 3
    )

    first, second = recordings.load(folder).runs
    lost = Skipped(reason="the round was killed during TIMING: SIGKILL")
    assert [record.measured for record in first.rounds] == [lost, ROUND]
    assert first.rounds[0].exit == killed
    assert [record.measured for record in second.rounds] == [ROUND, ROUND]


def test_a_run_without_timing_has_no_further_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = Children(
        {(Task.MEASURE, "batched", 1): Exit(outcome="killed", message="SIGKILL", during="compile")}
    )

    folder = recorded(children, tmp_path / "out", monkeypatch, 2)

    assert (Task.ROUND, "batched", 2) not in children.started
    (record,) = recordings.load(folder).runs[0].rounds
    assert record.exit == Exit(outcome="not started", message="the first round has no TIMING")
    assert record.measured == Skipped(reason="the round not started: the first round has no TIMING")


def test_ctrl_c_in_a_round_keeps_what_was_timed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pressed = Exit(outcome="interrupted", message="Ctrl-C", during="timing")

    folder = recorded(
        Children({(Task.ROUND, "fused", 2): pressed}), tmp_path / "out", monkeypatch, 3
    )

    recording = recordings.load(folder)
    assert recording.header.interrupted
    assert [record.exit.words for run in recording.runs for record in run.rounds] == [
        "ok",
        "was interrupted: never started: kgprof was interrupted before it",
        "was interrupted during TIMING: Ctrl-C",
        "was interrupted: never started: kgprof was interrupted before it",
    ]
    assert recording.runs[0].rounds[0].measured == ROUND


def test_a_recording_of_before_there_were_rounds_has_one(tmp_path: Path) -> None:
    recording = handmade.write(tmp_path)
    header = tmp_path / layout.HEADER
    older = header.read_text(encoding="utf-8").replace('    "rounds": 1,\n', "")
    assert "rounds" not in older
    header.write_text(older, encoding="utf-8")

    assert recordings.load(tmp_path) == recording


def test_a_round_makes_the_calls_that_come_before_timing_and_times_what_timing_times() -> None:
    session, phases = Evaluating(), []

    @contextlib.contextmanager
    def phase(name: str) -> Iterator[None]:
        phases.append((name, session.steps))
        yield

    timed = timed_round(session, torch.device("cpu"), Options(steps=4, evaluations=2), phase)

    assert phases == [("first call", 0), ("timing", 4)]
    assert session.steps == 4 + 2 * 3
    assert [len(steps) for steps in timed.timing.step_us] == [3, 3]
    assert len(timed.timing.evaluation_s) == 2
    assert timed.first_call_s > 0


def test_a_compiled_run_is_timed_twice_and_the_second_process_compiles_nothing(
    tmp_path: Path,
) -> None:
    workload = tmp_path / "tiny.py"
    workload.write_text(
        "import torch\nx = torch.ones(8)\n\n@torch.compile\ndef step():\n    return x * 2 + 1\n",
        encoding="utf-8",
    )
    asked = Options(
        workload=f"{workload}:step", rounds=2, steps=4, passes=(PassName.COMPILE, PassName.TIMING)
    )

    folder = recorder.record(asked, tmp_path / "out", progress.Progress())

    (run,) = recordings.load(folder).runs
    (further,) = run.rounds
    assert further.exit.outcome == "ok", further.exit
    assert isinstance(further.measured, TimedRound)
    assert (further.measured.graphs_from_cache, further.measured.graphs_compiled) == (1, 0)
    assert [len(steps) for steps in further.measured.timing.step_us] == [4] * 5
    assert not isinstance(run.compile, Skipped)
    assert further.measured.first_call_s < run.compile.call_us[0] / 1e6
    assert sorted(path.name for path in (folder / "runs" / run.key.slug).glob("round*")) == [
        *("round_2.json", "round_2_exit.json", "round_2_log.txt")
    ]
