"""A TORCH_TRACE directory read as a Recording: whole, cut, damaged, somebody else's; and against
the corpus' marks."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kgprof import cli, collectors, coverage
from kgprof.analysis import analyse
from kgprof.errors import EXIT_NOTHING_MEASURED, InputError
from kgprof.model import CompilePass, Options, PassName, Profile, Recording, Skipped
from kgprof.reading import recordings
from kgprof.reading.evidence import Evidence
from kgprof.record.files import torch_trace_files
from kgprof.record.ground import kept_records
from tests.corpus import found
from tests.corpus.truth import CORPUS, NOTE, programs

ROOT = CORPUS.parents[1]
TWO_RANKS = ROOT / "fixtures" / "torch_trace" / "two_ranks"
NAME = "dedicated_log_torch_trace_abc.log"
METRICS = {"compilation_metrics": {"compile_id": "0/0", "co_name": "f", "duration_us": 5}}
PLACE = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}


def line(metadata: dict[str, object], payload: str | None = None, *, md5: str = "") -> str:
    """One record as torch writes it."""
    if payload is not None:
        metadata = {**metadata, "has_payload": md5 or hashlib.md5(payload.encode()).hexdigest()}
    text = f"V1121 06:10:20.163000 10595 torch/_dynamo/utils.py:2009] {json.dumps(metadata)}\n"
    return text + (
        "".join(f"\t{one}\n" for one in payload.split("\n")) if payload is not None else ""
    )


def a_break(*, md5: str = "") -> str:
    artifact = {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **PLACE}
    said = (
        "Graph break in user code at /src/model.py:5\nGraph Break Reason: nothing "
        'good\n  File "/src/model.py", line 5'
    )
    return line(artifact, said, md5=md5)


def whole() -> str:
    start = {"dynamo_start": {"stack": [{"line": 2, "name": "f", "filename": 1}]}, **PLACE}
    return (
        line({"str": ["/src/model.py", 1]}) + line(start) + a_break() + line({**METRICS, **PLACE})
    )


def read(text: str | bytes, folder: Path, name: str = NAME) -> torch_trace_files.TraceFile:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return torch_trace_files.read_file(path)


def recorded(directory: Path, output: Path) -> Recording:
    options = Options(workload="traced", passes=(PassName.COMPILE,))
    return recordings.load(torch_trace_files.record_directory(directory, output, options))


# ---------------------------------------------------------------- one file


def test_every_record_of_a_whole_file_is_read(tmp_path: Path) -> None:
    read_back = read(whole(), tmp_path)

    assert (read_back.seen, read_back.damaged, read_back.cut, read_back.pid) == (4, 0, "", "10595")
    assert [next(iter(record.metadata)) for record in read_back.records] == [
        "str",
        "dynamo_start",
        "artifact",
        "compilation_metrics",
    ]
    assert str(read_back.records[2].payload).startswith("Graph break in user code")


@pytest.mark.parametrize("drop", [1, 3, 40])
def test_a_file_that_was_cut_in_a_record_keeps_what_came_before(tmp_path: Path, drop: int) -> None:
    text = whole() + a_break()
    read_back = read(text[:-drop], tmp_path)

    # given without its last newline alone, nothing is missing
    assert read_back.seen == (5 if drop == 1 else 4)
    assert read_back.cut == ("" if drop == 1 else "ends in the middle of a record")


def test_a_payload_that_is_not_the_one_torch_wrote_is_left_out(tmp_path: Path) -> None:
    read_back = read(
        line({"str": ["/src/model.py", 1]}) + a_break(md5="0" * 32) + line({**METRICS, **PLACE}),
        tmp_path,
    )

    assert (read_back.seen, read_back.damaged, read_back.cut) == (2, 1, "")
    assert list(read_back.problems()) == [f"{NAME}: 1 record damaged and left out"]


def test_binary_junk_between_records_costs_no_other_record(tmp_path: Path) -> None:
    junk = b"\x00\xff\xfe\n{\xe2\x28\n"
    read_back = read(whole().encode() + junk + line({**METRICS, **PLACE}).encode(), tmp_path)

    assert (read_back.seen, read_back.damaged) == (5, 2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"\x00\x01\x02" * 500, "it has no record"),
        (b"INFO 2026-01-01 server started\nINFO stopped\n", "it has no record"),
        (b"V1121 06:10:20.163000 10595 torch/x.py:3] not json\n", "it has no record"),
        (b"\x1f\x8b" + b"junk" * 20, "it has no record"),
    ],
    ids=["empty", "binary", "another-log", "no-json", "no-gzip"],
)
def test_a_file_without_a_record_is_one_clear_error(
    tmp_path: Path, content: bytes, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        read(content, tmp_path)


def test_a_compressed_file_is_read_also_when_it_was_cut(tmp_path: Path) -> None:
    compressed = gzip.compress(whole().encode() * 50, mtime=0)

    assert read(compressed, tmp_path, NAME + ".gz").seen == 200
    cut = read(compressed[:-20], tmp_path, NAME + ".gz")
    assert 0 < cut.seen <= 200
    assert cut.cut.startswith("ends in the middle of its compressed data")


def test_records_beyond_the_limit_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_records, "RECORDS_BYTES", 500)

    read_back = read(whole(), tmp_path)

    assert (len(read_back.records), read_back.left_out) == (2, 2)


def test_ids_that_begin_anew_after_a_reset_are_other_compilations(tmp_path: Path) -> None:
    assert [record.call for record in read(whole() * 3, tmp_path).records] == [
        0,
        0,
        0,
        0,
        0,
        1,
        1,
        1,
        1,
        2,
        2,
        2,
    ]


# ---------------------------------------------------------------- a directory


def test_processes_are_runs_and_what_was_unreadable_is_said(tmp_path: Path) -> None:
    traced = tmp_path / "traced"
    traced.mkdir()
    (traced / NAME).write_text(whole())
    (traced / NAME.replace("abc", "again")).write_text(whole())
    (traced / NAME.replace("abc", "rank_3_x")).write_text(whole()[:-30])
    (traced / NAME.replace("abc", "empty")).write_text("")
    (traced / "notes.txt").write_text("not looked at")

    recording = recorded(traced, tmp_path / "out")

    assert [run.key.strategy for run in recording.runs] == [
        "process-10595",
        "process-10595-restart-1",
        "rank3",
    ]
    notes = [" ".join(run.script.notes) if run.script else "" for run in recording.runs]
    assert all("_empty.log: it is empty" in note for note in notes)
    assert ["ends in the middle" in note for note in notes] == [False, False, True]
    rows = analyse(recording).coverage
    lacking = [coverage.missing(rows, run.key, "KGP101") for run in recording.runs]
    assert lacking[:2] == ["", ""]
    assert lacking[2].endswith("_rank_3_x.log ends in the middle of a record")


def test_what_only_hooks_see_is_said_to_be_unavailable(tmp_path: Path) -> None:
    (run, _) = recorded(TWO_RANKS, tmp_path).runs

    assert isinstance(run.compile, CompilePass)
    assert [lost.capture for lost in run.compile.capture_unavailable] == [
        "frame hook",
        "graph hook",
        "cuda graph log",
        "torch logs",
    ]
    assert isinstance(run.timing, Skipped)
    assert run.timing.reason == torch_trace_files.NOT_THERE


def test_ranks_are_compared(tmp_path: Path) -> None:
    profile = analyse(recorded(TWO_RANKS, tmp_path))

    assert [run.key.slug for run in profile.runs] == ["rank0.as-is", "rank1.as-is"]
    assert any(
        note.startswith("compiled on rank 1 of 2 only: 0/2 of mean_of")
        for note in profile.runs[1].notes
    )
    assert {
        (f.rule, f.location.line) for f in profile.findings if f.location and f.rule == "KGP101"
    } == {("KGP101", 17)}
    assert (profile.environment.torch, profile.environment.python) == ("2.13.0+cpu", "3.11")
    assert isinstance(profile.environment.cpu_count, Skipped)


# ---------------------------------------------------------------- the corpus

SAMPLE = (
    "break_and_recompile",
    "break_in_callee_of_loop",
    "break_in_context_manager",
    "break_in_loop",
    "fullgraph_refused",
    "backend_raises",
    "generator_compiled",
    "grad_mode_changes",
    "method_under_long_decorator",
    "nested_in_library",
    "one_site_two_callers",
    "optional_mask_appears",
    "print_between_ops",
    "size_changes_every_call",
    "size_dynamic",
    "sparse_operand",
    "two_breaks",
    "while_on_tensor",
)
NO_CALLS = {"KGP103": NOTE, "KGP105": "KGP104"}  # as much as can be said without calls
NO_RECORD = frozenset({"generator_compiled"})  # torch skips it and writes nothing


@pytest.fixture(scope="module")
def traced_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traced")
    command = [sys.executable, "-m", "tests.corpus.run_plainly", *SAMPLE]
    env = {**os.environ, "TORCH_TRACE": str(folder)}
    ended = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return folder


def test_findings_are_the_marks_as_far_as_records_go(traced_corpus: Path, tmp_path: Path) -> None:
    recording = recorded(traced_corpus, tmp_path)
    torch = recording.header.plan.environment.torch
    actual = {
        (f.rule, f.path, f.line) for run in recording.runs for f in found.of_run(recording, run.key)
    }
    wanted = {
        (NO_CALLS.get(mark.rule, mark.rule), str(mark.path.relative_to(CORPUS)), mark.line)
        for program in programs()
        if program.name in SAMPLE and program.name not in NO_RECORD
        for mark in program.expected(torch=torch, python=platform.python_version())
    }

    assert actual == wanted
    assert {rule for rule, _, _ in wanted} == {"KGP101", "KGP102", "KGP104", "KGP107", NOTE}


def test_nothing_is_said_of_calls(traced_corpus: Path, tmp_path: Path) -> None:
    profile = analyse(recorded(traced_corpus, tmp_path))
    said = [f.message for f in profile.findings if f.rule in ("KGP103", "KGP104")]

    assert said
    assert [
        message
        for message in said
        if "in step" in message or "warm-up" in message.partition(" (calls")[0]
    ] == []
    assert {
        c.call
        for run in profile.runs
        if not isinstance(run.compile, Skipped)
        for c in run.compile.compilations
    } == {None}


# ---------------------------------------------------------------- the command line


def kgprof(*args: str | Path) -> int:
    return cli.run([str(arg) for arg in args])


def profile_in(folder: Path) -> Profile:
    from kgprof.model import decode_json

    return decode_json((folder / "report.json").read_bytes(), Profile)


def test_the_gate_judges_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = kgprof("check-graphs", "--torch-trace", TWO_RANKS, "-o", tmp_path / "out", "-q")

    said = capsys.readouterr().out
    assert code == 1
    assert re.search(r"KGP101 .* in mean_of", said)
    assert (
        "recompiles not observed: functions were recompiled, and which calls that was in is not "
        "recorded" in said
    )
    statuses = {
        (b.metric, b.run.strategy): b.status for b in profile_in(tmp_path / "out").gate.budgets
    }  # type: ignore[union-attr]
    assert statuses["graph-breaks", "rank0"] == "exceeded"
    assert statuses["recompiles", "rank1"] == "not observed"


PROGRAMS = ROOT / "tests" / "reports" / "programs"


@pytest.mark.parametrize(
    "name",
    [pytest.param("subclass_packed_weight", marks=pytest.mark.long), "subclass_page_number"],
)
def test_what_torch_fails_to_print_for_the_trace_is_no_fault_of_the_program(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traced, script = tmp_path / "traced", tmp_path / f"{name}.py"
    calls = "\nfor _ in range(3):\n    step()\n"
    script.write_text((PROGRAMS / script.name).read_text("utf-8") + calls, "utf-8")
    environment = {**os.environ, "TORCH_TRACE": str(traced)}
    subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, timeout=300, check=False
    )

    code = kgprof("check-graphs", "--torch-trace", traced, "-o", tmp_path / "out", "-q")

    (found,) = profile_in(tmp_path / "out").findings
    assert (code, found.rule) == (EXIT_NOTHING_MEASURED, "KGP504")
    assert "printing a tensor for TORCH_TRACE raised" in found.message
    verdict = capsys.readouterr().out.splitlines()[-1]
    assert "printing a tensor for TORCH_TRACE raised" in verdict
    assert "torch.compile(model)" not in verdict


def test_code_that_such_a_function_called_is_left_out_and_other_code_is_kept(
    tmp_path: Path,
) -> None:
    def begun(frame: int, *functions: str) -> str:
        stack = [{"line": 1, "name": name, "filename": 1} for name in functions]
        return line({"dynamo_start": {"stack": stack}, "frame_id": frame, "frame_compile_id": 0})

    said = (
        'Traceback\n  File "/lib/torch/_logging/_internal.py", line 1, in trace_structured\n'
        "    payload_fn()\nRuntimeError: no repr"
    )
    failed = line({"artifact": {"name": "dynamo_error", "encoding": "string"}, **PLACE}, said)
    names = line({"str": ["/src/model.py", 1]})

    file = read(
        names
        + begun(0, "main", "scale")
        + failed
        + begun(1, "main", "scale", "unpack")
        + begun(2, "main", "loss"),
        tmp_path,
    )

    kept = [record.metadata for record in file.records if "dynamo_start" in record.metadata]
    assert [metadata["frame_id"] for metadata in kept] == [2]
    assert file.unprinted == ("scale",)


def test_without_a_recompile_the_budget_is_held(tmp_path: Path) -> None:
    traced = tmp_path / "traced"
    traced.mkdir()
    (traced / NAME).write_text(whole().replace(a_break(), ""))

    assert kgprof("check-graphs", "--torch-trace", traced, "-o", tmp_path / "out", "-q") == 0


def test_what_a_directory_cannot_show_is_not_claimed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a backend, nor a time, nor a rule whose source is a hook."""
    traced = tmp_path / "traced"
    traced.mkdir()
    (traced / NAME).write_text(whole().replace(a_break(), ""))

    kgprof("check-graphs", "--torch-trace", traced, "-o", tmp_path / "gate", "-q")
    gate = capsys.readouterr().out
    kgprof("report", "--torch-trace", traced, "-o", tmp_path / "page", "--format", "markdown")
    page = capsys.readouterr().out

    compiled = sum(len(run.compile.compilations) for run in profile_in(tmp_path / "page").runs)  # type: ignore[union-attr]
    assert "compiled by" not in gate
    assert f"{compiled} compilation" in profile_in(tmp_path / "page").verdict.text
    assert re.search(
        "TIMING pass, TRACE pass, HOST pass, STACK pass, MEMORY pass, KERNELS pass, evaluation, "
        "rules ",
        page,
    )
    assert "(rules checked: KGP101, KGP102, KGP103, KGP104, KGP105, KGP106, KGP107, KGP504)" in page


def test_a_cut_file_is_never_a_pass(tmp_path: Path) -> None:
    traced = tmp_path / "traced"
    traced.mkdir()
    (traced / NAME).write_text(whole().replace(a_break(), "") + a_break()[:-20])

    assert kgprof("check-graphs", "--torch-trace", traced, "-o", tmp_path / "out", "-q") == 6


def test_report_renders_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kgprof("report", "--torch-trace", TWO_RANKS, "-o", tmp_path / "out") == 0

    assert capsys.readouterr().out.strip() == str(tmp_path / "out" / "report.html")
    assert "rank1" in (tmp_path / "out" / "report.html").read_text()
    again = recordings.load(tmp_path / "out")
    # then: the same findings; a report shortens the paths of the machine that was traced
    shown = profile_in(tmp_path / "out").findings
    assert [(f.fingerprint, f.message) for f in collectors.findings(Evidence(again))] == [
        (f.fingerprint, f.message) for f in shown
    ]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("report", "--torch-trace", "missing"), "missing: file or folder not found"),
        (("report", "--torch-trace", "."), "has no dedicated_log_torch_trace_*.log"),
        (("report", "somewhere", "--torch-trace", "."), "report needs exactly one input"),
        (("report",), "report needs exactly one input"),
        (
            ("check-graphs", "x.py:f", "--torch-trace", "."),
            "--torch-trace runs nothing, so workload",
        ),
        (
            ("check-graphs", "--torch-trace", ".", "--steps", "3"),
            "--torch-trace runs nothing, so steps",
        ),
    ],
)
def test_what_cannot_be_read_is_one_error(
    args: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    assert kgprof(*args) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
