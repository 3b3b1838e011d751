"""benchmarks/diagnostics.py: how it scores answers, and that docs/benchmarks.md shows the committed
result."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.corpus.truth import CORPUS, programs

ROOT = CORPUS.parents[1]
RESULT = ROOT / "benchmarks" / "results" / "diagnostics.json"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "diagnostics_benchmark", ROOT / "benchmarks" / "diagnostics.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where a dataclass looks for its annotations
    spec.loader.exec_module(module)
    return module


def score_of(benchmark: ModuleType, name: str, **answer: Any) -> dict[str, Any]:
    (program,) = (program for program in programs() if program.name == name)
    scored: dict[str, Any] = benchmark.score(
        "a tool", (program,), {name: benchmark.Answer(**answer)}
    )
    return scored


def test_the_readme_shows_the_committed_result(benchmark: ModuleType) -> None:
    result = json.loads(RESULT.read_text(encoding="utf-8"))

    assert benchmark.table(result["scores"]) in (ROOT / "docs" / "benchmarks.md").read_text(
        encoding="utf-8"
    )
    assert set(result["answers"]["kgprof"]) == {program.name for program in programs()}


def test_a_missed_and_an_invented_line_are_counted_apart(benchmark: ModuleType) -> None:
    # given: breaks in lines 10 and 12
    scored = score_of(
        benchmark, "two_breaks", breaks={("two_breaks.py", 10), ("two_breaks.py", 11)}, own_count=3
    )

    counted = {
        name: scored[name]
        for name in ("break_lines_exact", "breaks", "breaks_missed", "breaks_invented")
    }
    assert counted == {
        "break_lines_exact": 0,
        "breaks": 2,
        "breaks_missed": 1,
        "breaks_invented": 1,
    }
    assert scored["own_count_wrong_in"] == ["two_breaks"]


def test_a_guard_of_another_class_is_wrong_and_its_text_is_enough(benchmark: ModuleType) -> None:
    place = ("size_changes_every_call.py", 8)

    right, text, wrong = (
        score_of(benchmark, "size_changes_every_call", recompiled={place: {kind}})["guards_right"]
        for kind in ("size", "text", "dtype")
    )

    assert (right, text, wrong) == (1, 1, 0)


def test_a_clean_program_with_anything_said_of_it_is_accused(benchmark: ModuleType) -> None:
    place = ("compiled_twice.py", 11)

    assert score_of(benchmark, "compiled_twice")["clean_programs_accused"] == []
    assert score_of(benchmark, "compiled_twice", recompiled={place: {"text"}})[
        "clean_programs_accused"
    ] == ["compiled_twice"]


def test_a_note_that_is_left_out_or_told_is_neither_missed_nor_invented(
    benchmark: ModuleType,
) -> None:
    program = next(
        program for program in programs() if any(not mark.is_finding for mark in program.marks)
    )
    note = next(mark for mark in program.marks if not mark.is_finding)
    told = {(str(note.path.relative_to(CORPUS)), note.line): {note.guard}}

    assert (
        score_of(benchmark, program.name, recompiled=told)["recompiling_functions_invented"] == []
    )
    assert score_of(benchmark, program.name)["recompiling_functions"] in (0, 1)


def test_tlparse_is_read_from_its_files(benchmark: ModuleType, tmp_path: Path) -> None:
    # given: what tlparse writes for a loop that prints and for a function that recompiles
    loop, sizes = CORPUS / "break_in_loop.py", CORPUS / "size_changes_every_call.py"
    reason = (
        f'User code traceback:\n  File "{loop}", line 18, in <lambda>\n  File '
        f'"{loop}", line 12, in accumulate\n'
    )
    (tmp_path / "reason.txt").write_text(
        f'{reason}\nTraceback (most recent call last):\n  File "x.py", line 1\n'
    )
    (tmp_path / "guard.json").write_text(
        "0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3"
    )
    (tmp_path / "index.html").write_text(
        "<p>This run had <a>2 restart(s) and/or compilation failure(s)</a>.</p>"
    )
    first, second = {"frame_id": 0, "frame_compile_id": 0}, {"frame_id": 1, "frame_compile_id": 1}
    records = [
        {
            **first,
            "artifact": {"name": "dynamo_graph_break_reason"},
            "payload_filename": "reason.txt",
        },
        {**first, "compilation_metrics": {"fail_type": "Unsupported"}},
        {**second, "artifact": {"name": "recompile_reasons"}, "payload_filename": "guard.json"},
        {**second, "compilation_metrics": {"co_filename": str(sizes), "co_firstlineno": 8}},
    ]
    (tmp_path / "raw.jsonl").write_text("\n".join(json.dumps(record) for record in records))

    answer = benchmark.read_tlparse(tmp_path)

    assert answer.encoded() == {
        "breaks": [("break_in_loop.py", 12)],
        "skipped": [("break_in_loop.py", 12)],
        "recompiled": [["size_changes_every_call.py", 8, ["text"]]],
        "other": [],
        "own_count": 2,
        "failed": "",
    }
