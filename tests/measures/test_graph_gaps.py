"""What a graph break costs the CPU: from one graph's end to the region that goes on behind the
line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kgprof import model as m
from kgprof.measures.graph_gaps import between_graphs
from kgprof.reading import kineto
from kgprof.reading.evidence import RunEvidence
from tests.analysis.events import event, step, write
from tests.measures.test_origins import region

BROKEN = {"0": {"2"}}  # the frame 0 goes on as frame 2


class Traced(RunEvidence):
    """A run of which only TRACE is looked at."""

    def __init__(self, made: kineto.Trace | m.Skipped) -> None:
        self.made = made

    def trace(self, name: m.PassName = m.PassName.TRACE) -> kineto.Trace | m.Skipped:
        assert name is m.PassName.TRACE
        return self.made


def cost(
    path: Path, *events: dict[str, Any], broken: dict[str, set[str]] = BROKEN
) -> m.FindingCost | m.Skipped:
    return between_graphs(Traced(kineto.read(write(path / "t.json", events))), broken)


def graph(start: float, duration: float, name: str = "CompiledFunction") -> dict[str, Any]:
    return event("cpu_op", name, start, duration)


def broken_call(start: float, *, line_us: float) -> list[dict[str, Any]]:
    """Frame 0 with a graph, then ``line_us`` of Python, then frame 2 with another graph; as a
    region holds them."""
    after = start + 20 + line_us
    return [
        region(start, 30 + line_us + 10, "0/1"),
        graph(start + 5, 15),
        region(after, 20, "2/0"),
        graph(after + 1, 15),
    ]


@pytest.mark.parametrize(
    ("lines", "value", "extremes"), [((4, 4), 4.0, (4.0, 4.0)), ((2, 4, 9), 4.0, (2.0, 9.0))]
)
def test_the_gap_is_from_the_graphs_end_to_the_next_region(
    tmp_path: Path, lines: tuple[float, ...], value: float, extremes: tuple[float, float]
) -> None:
    events = [step(number, 100.0 * number, 90) for number in range(len(lines))]
    for number, line_us in enumerate(lines):
        events += broken_call(100.0 * number + 10, line_us=line_us)

    found = cost(tmp_path, *events)

    assert isinstance(found, m.FindingCost)
    assert (found.value, found.extremes, found.samples) == (value, extremes, len(lines))
    assert (found.unit, found.measured_in) == ("us/step", (m.PassName.TRACE,))


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([step(0, 0, 90), region(10, 50), region(17, 20, "2/0")], "the backend does not mark"),
        (broken_call(10, line_us=4), "marks no steps"),
        (
            [step(0, 0, 90), region(10, 50), graph(12, 5)],
            "no step of TRACE went through both graphs",
        ),
        (
            [step(0, 0, 90), *broken_call(200, line_us=4)],
            "no step of TRACE went through both graphs",
        ),
        (
            [step(0, 0, 90), region(10, 50), region(17, 20, "2/0"), graph(18, 15)],
            "TRACE does not show the break alone",
        ),
        (
            [step(0, 0, 90), *broken_call(10, line_us=16), region(33, 10, "1/0"), graph(34, 8)],
            "TRACE does not show the break alone",
        ),
    ],
    ids=[
        "another backend",
        "no steps",
        "never resumed",
        "outside of the steps",
        "no mark of a graph before the break",
        "another function between them",
    ],
)
def test_what_was_not_seen_is_no_cost(
    tmp_path: Path, events: list[dict[str, Any]], reason: str
) -> None:
    found = cost(tmp_path, *events)

    assert isinstance(found, m.Skipped)
    assert reason in found.reason


def test_without_trace_nothing_is_measured() -> None:
    found = between_graphs(Traced(m.Skipped(reason="too few steps")), BROKEN)

    assert found == m.Skipped(reason="only TRACE can measure it: too few steps")
