"""The limits of the step, as each form of the report shows it."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.analysis import analyse
from kgprof.document import limit_table
from kgprof.document.table import Table
from kgprof.model import (
    LimitKind,
    LimitShare,
    Location,
    Profile,
    RunLimits,
    Skipped,
    WholeRun,
)
from kgprof.render import by_name
from tests.collectors.written_device import steps

SHARES = (
    LimitShare(limit=LimitKind.LAUNCHES, us=190.0, share=0.475),
    LimitShare(
        limit=LimitKind.SYNC, us=120.0, share=0.3, location=Location(file="train.py", line=18)
    ),
    LimitShare(
        limit=LimitKind.SYNC, us=86.0, share=0.215, location=Location(file="train.py", line=20)
    ),
    LimitShare(limit=LimitKind.UNKNOWN, us=3.0, share=0.0075, name="GPU kernels"),
    LimitShare(limit=LimitKind.INPUT, us=1.0, share=0.0025, name="DataLoader"),
)


def profile(undecided: str = "") -> Profile:
    found = analyse(steps(step_us=400.0, kernels=10, kernel_us=10.0))
    limits = RunLimits(step_us=400.0, busy_us=3.0, shares=SHARES, undecided=undecided)
    (run,) = found.runs
    return msgspec.structs.replace(found, runs=(msgspec.structs.replace(run, limits=limits),))


def test_kinds_stand_together_and_what_is_small_in_one_row() -> None:
    said, table = limit_table.limit_blocks(profile().runs, "")

    assert said == "fused.default: limited by sync (mostly train.py:18): 52 % of the 0.400 ms step"
    assert isinstance(table, Table)
    assert [tuple(cell.text for cell in row.cells) for row in table.rows] == [
        ("sync", "train.py:18", "30.0 %", "120 µs"),
        ("sync", "train.py:20", "21.5 %", "86.0 µs"),
        ("launches", "", "47.5 %", "190 µs"),
        ("2 smaller shares", "", "1.0 %", "4.00 µs"),
    ]


# It may hold all of a script too, so it does not say that it is of the step.
@pytest.mark.parametrize(
    ("name", "heading"),
    [
        ("html", '<h2 id="limits">Limits</h2>'),
        ("markdown", "**Limits**\n"),
        ("text", "\nLimits\n"),
    ],
)
def test_each_form_shows_the_table_and_why_nothing_is_decided(name: str, heading: str) -> None:
    shown = by_name(name).render(profile("steps vary"))

    for words in (heading, "not decided: steps vary", "2 smaller shares"):
        assert words in shown


@pytest.mark.parametrize(("step_us", "heading"), [(400.0, "per step"), (1000.0, "per traced step")])
def test_times_of_traced_steps_that_stand_for_no_other_say_so(step_us: float, heading: str) -> None:
    (run,) = profile("steps vary").runs
    found = RunLimits(step_us=step_us, busy_us=3.0, shares=SHARES, undecided="steps vary")

    _, table = limit_table.limit_blocks((msgspec.structs.replace(run, limits=found),), "")

    assert isinstance(table, Table)
    assert table.columns[-1].name == heading


def test_a_run_without_limits_has_no_table() -> None:
    found = profile()
    runs = [msgspec.structs.replace(run, limits=Skipped(reason="a CPU run")) for run in found.runs]

    assert limit_table.limit_blocks(runs, "") == ()
    assert limit_table.limit_blocks((), "") == ()


def test_a_script_that_compiles_again_has_an_account_of_all_its_steps() -> None:
    shares = (
        LimitShare(limit=LimitKind.RECOMPILING, us=6e6, share=0.6),
        LimitShare(limit=LimitKind.STEPS, us=4e6, share=0.4),
    )
    whole = WholeRun(total_us=1e7, steps=120, shares=shares)
    runs = [msgspec.structs.replace(run, whole=whole) for run in profile().runs]

    said, table, *_ = limit_table.limit_blocks(runs, "")

    assert said == (
        "fused.default: 120 steps took 10.0 s, with cold caches and kgprof's listeners on"
    )
    assert isinstance(table, Table)
    assert [row.cells[0].text for row in table.rows] == ["compiling again", "its steps"]


def test_a_script_that_pays_nothing_twice_has_no_such_account() -> None:
    shares = (LimitShare(limit=LimitKind.STEPS, us=4e6, share=1.0),)
    whole = WholeRun(total_us=4e6, steps=120, shares=shares)
    runs = [msgspec.structs.replace(run, whole=whole) for run in profile().runs]

    assert len(limit_table.limit_blocks(runs, "")) == 2
