"""kgprof selftest: right on this machine, and not to be deceived by a capture that is missing or
wrong."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

from kgprof import cli
from kgprof.cli import selftest
from kgprof.cli.selftest import UNAVAILABLE, WORKS, WRONG, Answers, Checked
from kgprof.model import (
    CompilePass,
    MemoryPass,
    PassName,
    Recording,
    RunRecord,
    Skipped,
    Unavailable,
    decode_json,
)
from kgprof.model.compile_records import CompileRecords, KernelOrigins
from kgprof.model.kernels import COPY, MATMUL, Ceilings, CeilingSamples
from kgprof.model.memory_records import SyncRecords
from kgprof.progress import Progress
from kgprof.reading import layout, recordings
from kgprof.record import record
from kgprof.record.ground import store
from tests.record import handmade

ON_CUDA_ONLY = {"CUDA-graph log", "CUDA graphs launched", "peak rates of the GPU"}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("selftest")
    return recordings.load(record(selftest.asked("cpu", timeout_s=300), folder, Progress()))


def with_run(recording: Recording, **changed: object) -> Recording:
    (run,) = recording.runs
    return msgspec.structs.replace(recording, runs=(msgspec.structs.replace(run, **changed),))


def statuses(answers: Answers) -> dict[str, str]:
    return {check.capture: check.status for check in answers.checks}


def records_of(recording: Recording) -> CompileRecords:
    assert isinstance(recording.runs[0].records, CompileRecords)
    return recording.runs[0].records


def test_every_answer_is_right_here(recording: Recording) -> None:
    answers = selftest.compare(recording)

    assert [check for check in answers.checks if check.status == WRONG] == []
    assert {
        check.capture for check in answers.checks if check.status == UNAVAILABLE
    } == ON_CUDA_ONLY
    assert all(check.got for check in answers.checks)


def test_numbers_of_the_workload_are_those_of_the_comparison() -> None:
    tree = ast.parse(selftest.WORKLOAD.read_text(encoding="utf-8"))
    constants = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        if isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant)
    }

    assert (constants["RESIZED_AT"], constants["PRODUCTS"]) == (
        selftest.RESIZED_AT,
        selftest.PRODUCTS,
    )
    assert selftest.WARMUP <= selftest.RESIZED_AT < selftest.STEPS


def test_interrupted_it_gives_no_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cut_off(*_: object) -> Path:
        header = handmade.write(tmp_path).header
        store.write_json(
            tmp_path / layout.HEADER, msgspec.structs.replace(header, interrupted=True)
        )
        return tmp_path

    monkeypatch.setattr(selftest, "record", cut_off)

    code = cli.run(["selftest", "-q"])

    # behind the terminal's ^C
    assert (code, *capsys.readouterr()) == (130, "", "\nkgprof: error: interrupted\n")


def test_a_trace_without_its_breaks_is_wrong(recording: Recording) -> None:
    records = records_of(recording)
    kept = tuple(r for r in records.records if "graph_break" not in str(r.metadata.get("artifact")))

    found = statuses(
        selftest.compare(
            with_run(recording, records=msgspec.structs.replace(records, records=kept))
        )
    )

    assert found["structured trace: graph break"] == WRONG
    assert found["sources agree"] == WRONG  # the frame hook still saw it


def test_a_stack_trace_of_another_program_is_wrong_and_one_that_is_missing_unavailable(
    recording: Recording,
) -> None:
    other = handmade.write(Path(recording.folder).parent / "other")
    path = layout.trace_path(recording, recording.runs[0].key, PassName.STACK)
    kept = path.read_bytes()
    path.write_bytes(layout.trace_path(other, handmade.FUSED, PassName.STACK).read_bytes())

    wrong = {check.capture: check for check in selftest.compare(recording).checks}["STACK"]
    path.write_bytes(kept)
    missing = selftest.compare(
        with_run(recording, stack=Skipped(reason="no python_function events"))
    )

    assert (wrong.status, wrong.expected) == (WRONG, "known_work under step, 6 products in 2 steps")
    assert wrong.got == "known_work under nothing, 0 products in 2 steps"
    assert statuses(missing)["STACK"] == UNAVAILABLE


def test_frames_that_were_not_seen_are_wrong_and_a_hook_that_is_missing_is_unavailable(
    recording: Recording,
) -> None:
    compiled = recording.runs[0].compile
    assert isinstance(compiled, CompilePass)
    unseen = msgspec.structs.replace(records_of(recording), frames=())
    missing = msgspec.structs.replace(
        compiled, capture_unavailable=(Unavailable(capture="frame hook", why="no such class"),)
    )

    wrong = selftest.compare(with_run(recording, records=unseen))
    lacking = selftest.compare(with_run(recording, records=unseen, compile=missing))

    assert statuses(wrong)["frame hook"] == WRONG
    assert (
        Checked(capture="frame hook", status=UNAVAILABLE, expected="", got="no such class")
        in lacking.checks
    )


def test_reads_that_were_not_counted_are_wrong(recording: Recording) -> None:
    memory = recording.runs[0].memory
    assert isinstance(memory, MemoryPass)
    assert isinstance(memory.syncs, SyncRecords)
    fewer = tuple(
        msgspec.structs.replace(r, calls=dict(list(r.calls.items())[1:]))
        for r in memory.syncs.records
    )
    deceived = msgspec.structs.replace(
        memory, syncs=msgspec.structs.replace(memory.syncs, records=fewer)
    )

    assert (
        statuses(selftest.compare(with_run(recording, memory=deceived)))["MEMORY: syncs"] == WRONG
    )


def test_lines_that_lead_elsewhere_are_wrong(recording: Recording) -> None:
    origins = recording.runs[0].kernel_origins
    assert isinstance(origins, KernelOrigins)
    lost = tuple(msgspec.structs.replace(one, lines=()) for one in origins.origins)

    found = statuses(
        selftest.compare(
            with_run(recording, kernel_origins=msgspec.structs.replace(origins, origins=lost))
        )
    )

    assert (found["lines of eager calls"], found["lines of library calls"]) == (WRONG, WRONG)


@pytest.mark.parametrize(("rate", "status"), [(1e12, WORKS), (0.0, WRONG)])
def test_a_card_that_copies_nothing_is_wrong(
    recording: Recording, rate: float, status: str
) -> None:
    def timed(operation: str, per_s: float) -> CeilingSamples:
        return CeilingSamples(operation=operation, dtype="", unit="bytes/s", per_s=(per_s,), how="")

    ceilings = Ceilings(device_name="a card", measured=(timed(COPY, rate), timed(MATMUL, 1e12)))

    answers = selftest.compare(msgspec.structs.replace(recording, ceilings=ceilings))

    assert statuses(answers)["peak rates of the GPU"] == status


def test_a_run_that_left_nothing_has_no_right_answer(recording: Recording) -> None:
    gone = Skipped(reason="the run was killed")
    passes = (
        "compile",
        "timing",
        "trace",
        "host",
        "stack",
        "kernels",
        "memory",
        "records",
        "kernel_origins",
    )

    answers = selftest.compare(with_run(recording, log="", **dict.fromkeys(passes, gone)))

    assert WORKS not in statuses(answers).values()


def test_the_text_says_what_was_expected_of_a_wrong_answer(recording: Recording) -> None:
    unseen = msgspec.structs.replace(records_of(recording), frames=())
    said = list(selftest.lines(selftest.compare(with_run(recording, records=unseen))))

    assert [
        line
        for line in said
        if line.startswith("frame hook") and "WRONG" in line and "expected breaks" in line
    ]
    assert said[-1].endswith("wrong")


@pytest.mark.parametrize(("broken", "code"), [(False, 0), (True, 1)])
def test_exit_code_and_json(
    recording: Recording,
    broken: bool,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = with_run(recording, log="") if broken else recording
    monkeypatch.setattr(
        selftest, "record", lambda options, folder, progress: Path(recording.folder)
    )
    monkeypatch.setattr(selftest.recordings, "load", lambda folder: made)

    assert cli.run(["selftest", "--device", "cpu", "--format", "json", "-q"]) == code
    answers = decode_json(capsys.readouterr().out, Answers)
    assert statuses(answers)["torch logs"] == (WRONG if broken else WORKS)


def test_a_device_that_is_not_there_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["selftest", "--device", "tpu"]) == 2
    assert "tpu" in capsys.readouterr().err


def test_the_run_is_one_child_a_pass_group(recording: Recording) -> None:
    run: RunRecord = recording.runs[0]

    assert (run.key.slug, run.exit.outcome) == ("known-answers.as-is", "ok")
