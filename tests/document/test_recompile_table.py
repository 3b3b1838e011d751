"""The ledger of recompiles: which function, why, in which call, at what price."""

from __future__ import annotations

import msgspec

from kgprof.document.compile_table import OPEN, recompile_blocks, recompile_summary
from kgprof.model import CompileSummary, Location, RecompileEntry, RunReport, Skipped
from kgprof.render.html import LEVELS
from tests.render import profiles
from tests.render.tables import notes, small, tables, texts

LIMITS = LEVELS[0]
REFUSED = Skipped(reason="nothing was compiled")


def run_with(*entries: RecompileEntry) -> RunReport:
    run = profiles.clean().runs[1]
    assert isinstance(run.compile, CompileSummary)
    return msgspec.structs.replace(
        run, compile=msgspec.structs.replace(run.compile, recompiles=entries)
    )


def entry(call: int | None, *, steady: bool, refused: bool = False) -> RecompileEntry:
    return RecompileEntry(
        compile_id="" if refused else "0/1",
        location=Location(file="/src/step.py", line=7, function="step"),
        call=call,
        steady=steady,
        reason="size of x, dimension 0: expected 8, got 9",
        words="tensor 'x' size mismatch at index 0. expected 8, actual 9",
        duration_s=REFUSED if refused else 1.25,
        call_site=Location(file="/src/main.py", line=3, function="main"),
        refused=refused,
    )


def test_a_line_says_which_why_when_and_how_long() -> None:
    run = run_with(entry(10, steady=True))
    (table,) = tables(recompile_blocks([run], "/src", LIMITS))

    function, reason, _, call, seconds = table.rows[0].cells
    assert texts(table) == (
        ("step", "size of x, dimension 0: expected 8, got 9", "batched.default", "10", "1.25"),
    )
    assert small(function) == ("0/1", "step.py:7", "called at main.py:3 main")
    assert small(reason) == ("tensor 'x' size mismatch at index 0. expected 8, actual 9",)
    assert (call.details, seconds.value) == (("after warm-up",), 1.25)
    assert recompile_summary([run]) == "1 recompile, 1 of them after warm-up, 1.25 s in all"


def test_what_torch_refused_has_no_seconds_and_says_why() -> None:
    run = run_with(entry(1, steady=False), entry(9, steady=True, refused=True))
    (table,) = tables(recompile_blocks([run], "/src", LIMITS))

    refused = table.rows[1].cells
    assert (small(refused[0])[0], refused[4].text, refused[4].title) == (
        "refused",
        "\N{EN DASH}",
        REFUSED.reason,
    )
    assert recompile_summary([run]) == (
        "1 recompile, 0 of them after warm-up, 1.25 s in all; 1 refused by torch's limit"
    )


def test_none_is_said_and_not_known_is_not_none() -> None:
    none, unknown = run_with(), profiles.clean().runs[3]

    assert recompile_summary([none]) == "no recompiles"
    assert recompile_summary([unknown]) == ""
    assert [*recompile_blocks([none, unknown], "", LIMITS)] == [
        "Unknown of torch_cond.default: this Recording has no records of the compiler."
    ]
    assert [*recompile_blocks([unknown], "", LIMITS)] == [
        "Unknown: this Recording has no records of the compiler."
    ]


def test_many_are_folded_and_more_are_left_out() -> None:
    many = run_with(*(entry(i, steady=True) for i in range(LIMITS.lines + 3)))

    blocks = tuple(recompile_blocks([many], "", LIMITS))

    assert [len(table.rows) for table in tables(blocks)] == [OPEN, LIMITS.lines - OPEN]
    assert notes(blocks) == ("3 more in report.json.",)
    assert recompile_summary([many]).startswith(f"{LIMITS.lines + 3} recompiles, ")
