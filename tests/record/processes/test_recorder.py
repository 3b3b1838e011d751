"""What the parent makes of a child that made no plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kgprof import progress
from kgprof.analysis.redaction import Redactor
from kgprof.errors import EXIT_USAGE, KgprofError, UsageError, WorkloadError
from kgprof.model import (
    Exit,
    Options,
    Outcome,
    PassName,
    PrivateNames,
    ScriptRun,
    Skipped,
    encode_json,
)
from kgprof.model.kernels import Ceilings, CeilingSamples
from kgprof.reading import layout, recordings
from kgprof.record.ground import ranks, store
from kgprof.record.ground.job import Failed, Task
from kgprof.record.processes import recorder
from kgprof.record.processes.children import Ended, Start
from tests.record import handmade


def test_a_refused_plan_is_a_usage_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*args: Any, **options: Any) -> Ended:
        failed = Failed(message="no strategy 'x'", traceback="", exit_code=EXIT_USAGE)
        return Ended(exit=Exit(outcome="raised"), failed=failed)

    monkeypatch.setattr(recorder.children, "run", refuses)

    with pytest.raises(UsageError, match="no strategy 'x'"):
        recorder.record(Options(), tmp_path / "out", progress.Progress())

    assert not (tmp_path / "out").exists()


def test_what_is_kept_of_a_start_that_failed_is_redacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(given: Start, **options: Any) -> Ended:
        given.log.write_bytes(b"connecting with password='hunter2' \xff\nKilled\n")
        return Ended(exit=Exit(outcome="killed", message="killed by SIGKILL"))

    monkeypatch.setattr(recorder.children, "run", dies)
    (tmp_path / "out").mkdir()  # as the command makes it

    with pytest.raises(WorkloadError, match="could not be loaded") as error:
        recorder.record(
            Options(), tmp_path / "out", progress.Progress(), redact=Redactor(PrivateNames())
        )

    kept = tmp_path / "out" / layout.PLAN_LOG
    assert (
        kept.read_text(encoding="utf-8") == "connecting with password='<secret>' \ufffd\nKilled\n"
    )
    assert str(kept) in error.value.hint


def test_ranks_that_share_the_cards_measure_no_ceilings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    tasks, found = recorded(
        tmp_path / "out",
        monkeypatch,
        device="cuda",
        options=Options(workload="train.py"),
        ends=Exit(outcome="ok"),
    )

    assert (tasks, found) == ([Task.PLAN], Skipped(reason=ranks.NOT_ALONE))


def test_a_program_that_is_too_long_to_be_traced_whole_is_told_what_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time without instruments, which is told too, may be shorter."""
    said: list[Skipped] = []
    monkeypatch.setattr(store, "write_pass", lambda *given: said.append(given[-1]))
    header = handmade._header()
    plan = msgspec.structs.replace(header.plan, device="cuda")
    made = recorder.Recorder(tmp_path, Options(), plan, tmp_path, progress.Progress())

    made._trace_program(
        plan.runs[0], ScriptRun(step="", steps=0, counted={"an optimizer step": 0}), 20.4
    )

    assert [each.reason for each in said] == [
        "the program has no steps, and only one that takes less than 20 s is traced as a whole; "
        "this one took 20 s with kgprof's listeners on"
    ]


def recorded(
    output: Path, monkeypatch: pytest.MonkeyPatch, *, device: str, options: Options, ends: Exit
) -> tuple[list[Task], Ceilings | Skipped]:
    """The tasks of a recording without runs, and its ceilings; the child that measures them
    ``ends`` so."""
    plan = msgspec.structs.replace(
        handmade._header().plan, device=device, runs=(), baseline=None, agreement=False
    )
    tasks: list[Task] = []

    def run(given: Start, **others: Any) -> Ended:
        job = given.job
        tasks.append(job.task)
        if job.task is Task.PLAN:
            Path(job.answer).write_bytes(encode_json(plan))
            return Ended(exit=Exit(outcome="ok"))
        if ends.outcome == "ok":
            store.write_json(Path(job.recording) / layout.CEILINGS, MEASURED)
        return Ended(exit=ends)

    monkeypatch.setattr(recorder.children, "run", run)
    folder = recorder.record(options, output, progress.Progress())
    return tasks, recordings.load(folder).ceilings


MEASURED = Ceilings(
    device_name="a card",
    measured=(
        CeilingSamples(operation="copy", dtype="", unit="bytes/s", per_s=(4e12,), how="1 GiB"),
    ),
)
OK = Exit(outcome="ok")


@pytest.mark.parametrize(
    ("device", "passes", "ends", "measures", "ceilings"),
    [
        pytest.param("cuda", (), OK, True, MEASURED, id="on a GPU"),
        pytest.param(
            "cpu",
            (),
            OK,
            False,
            Skipped(reason="a CPU run has no GPU kernels to compare with them"),
            id="on a CPU",
        ),
        pytest.param(
            "cuda",
            (PassName.COMPILE,),
            OK,
            False,
            Skipped(reason="only the COMPILE pass was requested"),
            id="for a gate",
        ),
        pytest.param(
            "cuda",
            (),
            Exit(outcome="killed", message="SIGKILL", during="ceilings"),
            True,
            Skipped(reason="their measurement was killed during CEILINGS: SIGKILL"),
            id="killed",
        ),
    ],
)
def test_the_cards_ceilings_are_measured_once_after_the_runs_or_it_is_said_why_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    passes: tuple[PassName, ...],
    ends: Exit,
    measures: bool,
    ceilings: Ceilings | Skipped,
) -> None:
    tasks, found = recorded(
        tmp_path / "out", monkeypatch, device=device, options=Options(passes=passes), ends=ends
    )

    assert tasks == [Task.PLAN, *([Task.CEILINGS] if measures else [])]
    assert found == ceilings


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome.OK, "train.py finished, but kgprof failed; "),
        (Outcome.RAISED, "train.py ended in an error, and kgprof failed; "),
    ],
)
def test_a_program_that_raised_is_not_said_to_have_finished_where_kgprof_failed_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, said: str
) -> None:
    plan = msgspec.structs.replace(handmade._header().plan, device="cuda", runs=())

    def run(given: Start, **options: Any) -> Ended:
        if given.job.task is Task.PLAN:
            Path(given.job.answer).write_bytes(encode_json(plan))
            return Ended(exit=OK)
        return Ended(exit=Exit(outcome=outcome), lost=Failed(message="a fault of kgprof's"))

    monkeypatch.setattr(recorder.children, "run", run)

    with pytest.raises(KgprofError) as error:
        recorder.record(Options(workload="train.py"), tmp_path / "out", progress.Progress())

    assert error.value.hint.startswith(said)
