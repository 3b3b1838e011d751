"""How many graphs a step may replay, and how little may be in them."""

from __future__ import annotations

import pytest

from kgprof.collectors.graphs.small_cuda_graphs import MANY, SMALL_GRAPHS, collect, diagnose
from kgprof.model import Saving
from kgprof.reading.evidence import Evidence
from tests.collectors.written_device import replays, traced


def test_many_small_graphs_save_at_most_the_idle_time() -> None:
    (finding,) = diagnose(collect(Evidence(traced(replays(20, 10.0), step_us=500.0))))

    assert finding.rule == SMALL_GRAPHS.id
    assert isinstance(finding.saves, Saving)
    assert round(finding.saves.us_per_step, 6) == 300.0


@pytest.mark.parametrize(
    ("graphs", "kernel_us", "step_us"),
    [
        pytest.param(MANY - 1, 10.0, 500.0, id="few"),
        pytest.param(MANY, 60.0, 1_000.0, id="large"),
        pytest.param(20, 10.0, 240.0, id="hidden behind the work"),
    ],
)
def test_what_is_none(graphs: int, kernel_us: float, step_us: float) -> None:
    assert diagnose(collect(Evidence(traced(replays(graphs, kernel_us), step_us=step_us)))) == ()
