"""KGP701, from graphs whose operators carry their lines."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kgprof import model as m
from kgprof.collectors.compile import unrolled_loops
from kgprof.reading.evidence import Evidence
from tests.collectors import written

CELL = """\
import torch


@torch.compile
def forecast(readings, state):
    for hour in range(readings.shape[1]):
        state = cell(readings[:, hour], state)
        print(len(state))
    return state
"""
BODY, FORECAST = (written.FILE, 7, "forecast"), (written.FILE, 4, "forecast")


def found(*lines: Any, **fields: Any) -> tuple[m.Finding, ...]:
    evidence = Evidence(written.recording(*lines, **fields))
    return unrolled_loops.diagnose(unrolled_loops.collect(evidence))


def graph(*lines: m.LineOperators, compile_id: str = "0/0") -> m.GraphRuns:
    return msgspec.structs.replace(written.ran(compile_id, 0, 1), lines=lines)


def operators(frame: written.Frame, count: int, *, kinds: int, of: int = 1000) -> m.LineOperators:
    file, line, function = frame
    return m.LineOperators(
        file=file, line=line, function=function, operators=count, kinds=kinds, of=of
    )


def forecast(seconds: float = 60.0) -> list[Any]:
    return written.compiled("0/0", FORECAST, duration_us=int(seconds * 1e6))


def test_the_loop_is_named_with_its_part_of_the_graph_and_of_the_time() -> None:
    (finding,) = found(*written.an_unrolled_loop(60.0, again=20))

    assert finding.location is not None
    assert finding.location.line == written.LOOP[1] - 1
    assert "240 of the 241 operators" in finding.message
    assert isinstance(finding.saves, m.Saving)
    assert finding.saves.per == "run"
    assert finding.saves.us_per_step == pytest.approx(60e6 * 240 / 241)
    assert finding.saves.how.startswith("at most ")  # the body is still to be compiled


@pytest.mark.parametrize(
    ("seconds", "again"), [(9.0, 20), (60.0, 5)], ids=["compiled soon", "few iterations"]
)
def test_a_loop_that_costs_little_or_repeats_little_is_none(seconds: float, again: int) -> None:
    assert not found(*written.an_unrolled_loop(seconds, again=again))


def test_a_loop_that_is_the_smaller_part_of_a_graph_is_none() -> None:
    lines = (operators(BODY, 400, kinds=10), operators(FORECAST, 600, kinds=600))

    assert not found(*forecast(), graph(*lines), program=CELL)


def test_operators_outside_of_a_loop_are_none() -> None:
    outside = operators((written.FILE, 9, "forecast"), 1000, kinds=10)

    assert not found(*forecast(), graph(outside), program=CELL)


def test_what_a_library_unrolls_is_not_the_programs() -> None:
    library = operators((written.LIBRARY, 7, "forward"), 1000, kinds=10)

    assert not found(*forecast(), graph(library), program=CELL)


def test_a_part_behind_a_break_is_called_as_its_function() -> None:
    part = written.compiled("0/0", written.resumed(FORECAST, 6), duration_us=60_000_000)

    (finding,) = found(*part, graph(operators(BODY, 900, kinds=10)), program=CELL)

    assert "operators of forecast's graph" in finding.message


def test_of_two_loops_the_inner_one_is_named() -> None:
    program = CELL.replace(
        "        state = cell(readings[:, hour], state)\n        print(len(state))\n",
        "        for cell in cells:\n            state = cell(readings[:, hour], state)\n",
    )
    inner = (written.FILE, 8, "forecast")

    (finding,) = found(*forecast(), graph(operators(inner, 900, kinds=10)), program=program)

    assert finding.location is not None
    assert finding.location.line == 7
    assert not finding.fix  # what to do is the rule's, and was not tried


def test_the_time_of_the_backward_counts_too() -> None:
    backward = written.record("0/0", bwd_compilation_metrics={"duration_us": 8_000_000})
    lines = graph(operators(BODY, 900, kinds=10))

    assert len(found(*forecast(7.0), backward, lines, program=CELL)) == 1
