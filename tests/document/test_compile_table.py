"""Compilation in six stages."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.document.compile_table import (
    STAGES,
    compilation_folds,
    compile_table,
    kind,
    stage_bars,
    stage_table,
)
from kgprof.document.quantity import DASH
from kgprof.model import Compilation, CompileStages, CompileSummary, RunReport, Skipped
from kgprof.render.html import LEVELS
from tests.render import profiles
from tests.render.tables import small, tables, texts

LIMITS = LEVELS[0]


def compiled(*stages: CompileStages | Skipped) -> RunReport:
    run = profiles.clean().runs[1]
    assert isinstance(run.compile, CompileSummary)
    made = tuple(
        Compilation(
            compile_id=f"{i}/0", function="f", location="a.py:1", duration_s=1.0, stages=stage
        )
        for i, stage in enumerate(stages)
    )
    return msgspec.structs.replace(
        run, compile=msgspec.structs.replace(run.compile, compilations=made)
    )


def lasting(capture_s: float, machine_code_s: float) -> CompileStages:
    return CompileStages(
        capture_s=capture_s,
        frontend_s=0.0,
        scheduling_s=0.0,
        code_generation_s=0.0,
        machine_code_s=machine_code_s,
        caching_s=0.00005,
    )


def test_every_stage_of_the_model_has_a_place() -> None:
    assert [field for field, *_ in STAGES] == list(CompileStages.__struct_fields__)


def test_a_runs_stages_add_up_over_its_compilations() -> None:
    runs = (compiled(lasting(1.0, 2.0), lasting(0.5, 4.5)),)

    assert texts(stage_table(runs)) == (
        ("batched.default", "1.50", "0", "0", "0", "6.50", "< 0.001", "8.00"),
    )
    (bar,) = stage_bars(runs)
    assert bar.caption == "8.00 s in 2 compilations"
    assert bar.description.startswith(
        "8.00 s: capture 1.50 s (18.7 %), machine code 6.50 s (81.2 %)"
    )
    assert [segment["kind"] for segment in bar.segments] == ["capture", "machine-code", "caching"]


def test_a_compilation_without_stages_says_why_and_is_not_counted() -> None:
    runs = (compiled(lasting(1.0, 2.0), Skipped(reason="cut")),)

    assert [bar.caption for bar in stage_bars(runs)] == ["3.00 s in 1 of 2 compilations"]
    (table,) = tables(compilation_folds(runs, LIMITS))
    assert texts(table)[1] == ("1/0", "f", "1.00", DASH, DASH, "cut")
    assert (table.rows[1].cells[5].span, small(table.rows[1].cells[1])) == (
        len(STAGES),
        ("a.py:1",),
    )


@pytest.mark.parametrize(
    "run", [compiled(Skipped(reason="cut")), compiled()], ids=["none known", "none compiled"]
)
def test_without_any_stage_there_is_no_bar(run: RunReport) -> None:
    assert (stage_bars((run,)), stage_table((run,)).rows) == ([], [])
    assert texts(compile_table((run,)))[0][0] == "batched.default"


def test_the_class_of_a_colour() -> None:
    assert [kind(field) for field, *_ in STAGES] == [
        "capture",
        "frontend",
        "scheduling",
        "code-generation",
        "machine-code",
        "caching",
    ]
