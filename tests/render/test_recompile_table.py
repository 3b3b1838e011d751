"""The ledger of recompiles: which function, why, in which call, at what price."""

from __future__ import annotations

import msgspec

from kgprof.model import CompileSummary, Location, RecompileEntry, RunReport, Skipped
from kgprof.render.html import LEVELS
from kgprof.render.recompile_table import OPEN, RecompileLine, RecompileTable, recompile_table
from tests.render import profiles

LIMITS = LEVELS[0]
REFUSED = Skipped(reason="torch's recompile limit was reached: nothing was compiled")


def run_with(*entries: RecompileEntry) -> RunReport:
    run = profiles.clean().runs[1]
    assert isinstance(run.compile, CompileSummary)
    return msgspec.structs.replace(run, compile=msgspec.structs.replace(run.compile, recompiles=entries))


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
    table = recompile_table([run_with(entry(10, steady=True))], "/src", LIMITS)

    assert table == RecompileTable(
        lines=(
            RecompileLine(
                run="batched.default",
                call="10",
                steady=True,
                compile_id="0/1",
                function="step",
                place="step.py:7",
                reason="size of x, dimension 0: expected 8, got 9",
                words="tensor 'x' size mismatch at index 0. expected 8, actual 9",
                seconds="1.25",
                why="",
                call_site="main.py:3 main",
            ),
        ),
        folded=(),
        left_out="",
        summary="1 recompile, 1 of them after warm-up, 1.25 s in all",
        unknown=(),
    )


def test_what_torch_refused_has_no_seconds_and_says_why() -> None:
    table = recompile_table([run_with(entry(1, steady=False), entry(9, steady=True, refused=True))], "/src", LIMITS)

    assert (table.lines[1].compile_id, table.lines[1].seconds, table.lines[1].why) == (
        "refused",
        "\N{EN DASH}",
        REFUSED.reason,
    )
    assert table.summary == "1 recompile, 0 of them after warm-up, 1.25 s in all; 1 refused by torch's limit"


def test_none_is_said_and_not_known_is_not_none() -> None:
    none, unknown = run_with(), profiles.clean().runs[3]

    assert recompile_table([none], "", LIMITS).summary == "no function was compiled again"
    assert recompile_table([unknown], "", LIMITS).summary == ""
    assert recompile_table([none, unknown], "", LIMITS).unknown == (
        ("this Recording holds no records of the compiler", "torch_cond.default"),
    )
    assert recompile_table([unknown], "", LIMITS).unknown == (("this Recording holds no records of the compiler", ""),)


def test_many_are_folded_and_more_are_left_out() -> None:
    many = run_with(*(entry(i, steady=True) for i in range(LIMITS.lines + 3)))

    table = recompile_table([many], "", LIMITS)

    assert (len(table.lines), len(table.folded), table.left_out) == (OPEN, LIMITS.lines - OPEN, "3")
    assert table.summary.startswith(f"{LIMITS.lines + 3} recompiles, ")
