"""What hardly measures times is done for all runs at the end, two children at a time, where there
is room for two."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kgprof.model import Exit, MemoryPeaks, Options, Outcome, PassName, Skipped, encode_json
from kgprof.reading import layout, recordings
from kgprof.record.ground import store
from kgprof.record.ground.job import Job, Task
from kgprof.record.processes import recorder
from kgprof.record.processes.children import Ended, Start
from tests.record import handmade
from tests.record.handmade import BATCHED, FUSED
from tests.record.processes.test_rounds import OK, Children

RAISED = Exit(outcome=Outcome.RAISED, message="address already in use", during="prepare")
LATE = Exit(outcome=Outcome.TIMED_OUT, during="memory")
LEFT_OUT = Skipped(reason="not needed here")
A_MEGABYTE = 2**20


class OnACpu(Children):
    """FUSED compiles for longer. ``together`` are the children that ran at the same time, as far as
    a signal let them begin; ``alone`` all others, the plan's left out."""

    def __init__(
        self,
        *,
        resident: int | Skipped = A_MEGABYTE,
        ends: dict[Task, Exit] | None = None,
        begun: int | None = None,
    ) -> None:
        super().__init__()
        self._resident, self._ends_beside, self._begun = resident, ends or {}, begun
        self.together: list[tuple[Task, str]] = []
        self.alone: list[tuple[Task, str]] = []

    def run_beside(self, starts: Sequence[Start]) -> list[Ended]:
        begun = starts if self._begun is None else starts[: self._begun]
        self.together += [what(each.job) for each in begun]
        return [self._end(each.job) for each in begun]

    def _end(self, job: Job) -> Ended:
        ended = self._ends_beside.get(job.task, OK)
        if job.task is Task.AGREEMENT and ended == OK:
            store.write_json(Path(job.recording) / layout.AGREEMENT, handmade._agreement())
        return Ended(exit=ended, interrupted=self._begun is not None)

    def run(self, given: Start, **others: Any) -> Ended:
        job = given.job
        if job.task is Task.PLAN:
            plan = msgspec.structs.replace(handmade._header().plan, runs=(BATCHED, FUSED))
            Path(job.answer).write_bytes(encode_json(plan))
            return Ended(exit=OK)
        self.alone.append(what(job))
        if job.task is Task.MEASURE and job.key is not None:
            compiled = handmade._compile_pass(2000.0 if job.key == FUSED else 1000.0)
            peaks = MemoryPeaks(
                allocated_bytes=LEFT_OUT,
                reserved_bytes=LEFT_OUT,
                resident_bytes=self._resident,
                resident_before_bytes=LEFT_OUT,
            )
            first = 9e6 if job.key == FUSED else 1e6
            compiled = msgspec.structs.replace(
                compiled, compiling=peaks, call_us=(first, *compiled.call_us[1:])
            )
            store.write_pass(Path(job.recording), job.key, PassName.COMPILE, compiled)
            (layout.run_folder(Path(job.recording), job.key) / layout.RESULT).write_bytes(b"")
        return Ended(exit=OK)


def what(job: Job) -> tuple[Task, str]:
    return job.task, job.key.strategy if job.key is not None else ""


MEASURED = [(Task.MEASURE, BATCHED.strategy), (Task.MEASURE, FUSED.strategy)]
PROBED = [(Task.PROBE, FUSED.strategy), (Task.PROBE, BATCHED.strategy)]
COMPARED = [(Task.AGREEMENT, "")]


def recorded(
    children: OnACpu, folder: Path, monkeypatch: pytest.MonkeyPatch, cores: int = 2
) -> Path:
    monkeypatch.setattr(recorder.children, "run", children.run)
    monkeypatch.setattr(recorder.children, "run_beside", children.run_beside)
    monkeypatch.setattr(recorder.os, "sched_getaffinity", lambda process: set(range(cores)))
    return recorder.record(Options(workload="invented"), folder, children)


def test_all_runs_are_timed_first_and_then_probed_two_at_a_time_with_the_longest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = OnACpu()

    recording = recordings.load(recorded(children, tmp_path / "out", monkeypatch))

    assert (children.alone, children.together) == (MEASURED, PROBED + COMPARED)
    assert [run.probe_exit for run in recording.runs] == [OK, OK]
    assert recording.agreement == handmade._agreement()


@pytest.mark.parametrize(
    ("resident", "cores"),
    [(2**60, 2), (Skipped(reason="/proc/self/status has no VmHWM"), 2), (A_MEGABYTE, 1)],
)
def test_where_there_is_no_room_for_two_they_run_one_by_one(
    resident: int | Skipped, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = OnACpu(resident=resident)

    recorded(children, tmp_path / "out", monkeypatch, cores)

    assert children.alone == [*MEASURED, *reversed(PROBED), *COMPARED]
    assert children.together == []


def test_what_fails_beside_another_one_runs_again_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = OnACpu(ends={Task.PROBE: RAISED, Task.AGREEMENT: RAISED})

    recording = recordings.load(recorded(children, tmp_path / "out", monkeypatch))

    assert children.alone == MEASURED + PROBED + COMPARED
    assert [run.probe_exit for run in recording.runs] == [OK, OK]


def test_what_timed_out_has_had_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    children = OnACpu(ends={Task.PROBE: LATE})

    recording = recordings.load(recorded(children, tmp_path / "out", monkeypatch))

    assert children.alone == MEASURED
    assert [run.probe_exit for run in recording.runs] == [LATE, LATE]


def test_ctrl_c_leaves_what_has_ended_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = OnACpu(begun=1)

    recording = recordings.load(recorded(children, tmp_path / "out", monkeypatch))

    assert recording.header.interrupted
    assert [run.probe_exit for run in recording.runs] == [None, OK]
    assert children.alone == MEASURED
