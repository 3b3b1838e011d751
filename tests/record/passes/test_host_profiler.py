"""HOST's table is the workload's functions, and nothing of the instrument."""

from __future__ import annotations

import cProfile

import pytest
import torch

from kgprof.model import Options
from kgprof.record.passes import host_profiler
from kgprof.record.passes.host_profiler import host_pass
from tests.record.sessions import Stepping

CPU = torch.device("cpu")


def callee() -> int:
    return sum(range(1000))


def caller() -> int:
    return callee() + callee()


def test_calls_are_counted_and_times_add_up() -> None:
    found = host_pass(Stepping(caller), CPU, Options(steps=5))

    rows = {row.function: row for row in found.rows}
    assert {name: row.calls for name, row in rows.items()} == {
        "Stepping.step": 5,
        "caller": 5,
        "callee": 10,
        "<built-in method builtins.sum>": 10,
    }
    assert (rows["callee"].file, rows["callee"].line) == (__file__, callee.__code__.co_firstlineno)
    assert rows["<built-in method builtins.sum>"].file == ""
    assert [row.self_us for row in found.rows] == sorted(
        (row.self_us for row in found.rows), reverse=True
    )
    assert found.total_self_us == pytest.approx(rows["Stepping.step"].cumulative_us)
    assert len(found.step_us) == 5
    assert found.total_self_us < sum(found.step_us)
    assert found.rows_left_out == 0


def test_rows_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_profiler, "ROWS", 1)

    found = host_pass(Stepping(caller), CPU, Options(steps=2))

    assert (len(found.rows), found.rows_left_out) == (1, 3)
    assert found.total_self_us > found.rows[0].self_us


def test_the_profiler_is_off_after_a_step_that_raised() -> None:
    def step() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        host_pass(Stepping(step), CPU, Options(steps=2))

    second = cProfile.Profile()
    second.enable()  # raises on Python 3.12 and later while another one is on
    second.disable()
