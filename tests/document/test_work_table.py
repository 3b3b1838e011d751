"""What differs stands first, with its line; what is equal is one sentence; what was not seen says
why."""

from __future__ import annotations

from kgprof import model as m
from kgprof.document.quantity import DASH
from kgprof.document.table import Table
from kgprof.document.work_table import work_blocks

RUN = m.RunKey(strategy="step", mode="as-is")
PLACE = m.Location(file="/w/model.py", line=12, function="forward", text="    y = x.clone()")
WORK = m.ComparedWork(
    differs=True,
    rows=(
        m.WorkRow(m.WorkAspect.OPERATORS, "operators", 3.0, 4.0, True),
        m.WorkRow(m.WorkAspect.BYTES, "bytes per step", 2048.0, 2048.0, False),
        m.WorkRow(
            m.WorkAspect.GUARDS,
            "guards on values",
            3.0,
            m.Skipped("no guards"),
            m.Skipped("no guards"),
        ),
    ),
    differences=(
        m.WorkDifference(m.WorkAspect.OPERATORS, "+ clone", PLACE, times=3),
        m.WorkDifference(m.WorkAspect.GRAPHS, "connected otherwise"),
    ),
    left_out=2,
)


def blocks(work: m.ComparedWork | m.Skipped, status: m.Presence = m.Presence.BOTH) -> list[object]:
    return [*work_blocks(m.RunComparison(run=RUN, status=status, work=work), "/w")]


def cells(table: object) -> list[list[str]]:
    assert isinstance(table, Table)
    return [[cell.plain for cell in row.cells] for row in table.rows]


def test_differences_come_first_with_their_lines() -> None:
    differences, more, _, equal, _ = blocks(WORK)

    assert cells(differences) == [
        ["operators", "+ clone (3 times)", "model.py:12 y = x.clone()"],
        ["graphs", "connected otherwise", DASH],
    ]
    assert more == "2 more differences in report.json."
    assert equal == "Equal on both sides: bytes per step: 2.00 KiB."


def test_what_was_not_seen_is_not_called_equal() -> None:
    *_, counted, _, unseen = blocks(WORK)

    assert cells(counted) == [["operators", "3", "4", "differs"]]
    assert unseen == "Not compared: guards on values (no guards)."


def test_a_run_that_was_not_compared_says_why_and_one_on_one_side_nothing() -> None:
    assert blocks(m.Skipped("texts are cut")) == [
        "step.as-is: what is compiled was not compared: texts are cut."
    ]
    assert blocks(WORK, m.Presence.NEW) == []
