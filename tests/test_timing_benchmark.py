"""benchmarks/timing.py: whether two clocks agree, from slices that they took in turn."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable

import pytest
import torch

from tests.test_seeds import BENCHMARKS, loaded

timing = loaded("timing")
KEPT = json.loads((BENCHMARKS / "results" / "timing_h100.json").read_text("utf-8"))


@pytest.mark.parametrize("pair", ["wall", "flushed"])
def test_on_an_h100_the_clocks_agree_with_the_tools(pair: str) -> None:
    """20 closures from 5 us to 50 ms; each by its slices' ratios and by the plain medians."""
    found = KEPT["pairs"][pair]
    again = {
        name: timing.compared(*([[us] for us in side] for side in each["slices_us"]))
        for name, each in found.items()
    }
    medians = [each["median_of_all_calls_us"] for each in found.values()]

    assert len(found) == 20
    assert min(min(each["us"]) for each in found.values()) >= timing.LEAST_US
    assert max(max(each["us"]) for each in found.values()) == pytest.approx(50_000, rel=0.02)
    assert all(len(side) >= 20 for each in found.values() for side in each["slices_us"])
    assert all(abs(each["ratio"] - 1) <= timing.LIMIT for each in again.values())
    assert all(abs(ours / tool - 1) <= timing.LIMIT for ours, tool in medians)
    assert {name: each["ratio"] for name, each in found.items()} == pytest.approx(
        {name: each["ratio"] for name, each in again.items()}, rel=1e-3
    )


@pytest.mark.parametrize(
    ("true_ratio", "within"), [(1.0, True), (1.01, True), (1.05, False), (0.95, False)]
)
def test_a_machine_that_drifts_hides_no_difference_and_makes_none(
    true_ratio: float, within: bool
) -> None:
    """Both sides of a slice see the same drift; one slice in ten is interrupted."""
    draw = random.Random(0)
    ours, tool = [], []
    for number in range(24):
        drift = 100 * (1 + 0.5 * (number / 24)) * draw.gauss(1, 0.01)
        ours.append([true_ratio * drift * (3 if number % 10 == 4 else 1)])
        tool.append([drift * (2 if number % 10 == 7 else 1)])

    found = timing.compared(ours, tool)

    low, high = found["ratio_95"]
    assert (abs(found["ratio"] - 1) <= timing.LIMIT) == within
    assert low <= true_ratio <= high
    assert ("24 of 24" if within else "0 of 24") in timing.summary("wall", [found] * 24)


def test_an_event_clock_of_half_a_microsecond_is_read_finer_than_a_tick() -> None:
    """The median of 5.2 us jumps between 5.0 and 5.5; the mean of the middle half does not."""
    draw = random.Random(1)

    def ticked(us: float) -> list[float]:
        return [round((us + draw.gauss(0, 0.3)) * 2) / 2 for _ in range(500)]

    found = timing.compared([ticked(5.2) for _ in range(24)], [ticked(5.2) for _ in range(24)])

    assert found["ratio"] == pytest.approx(1, abs=0.01)
    assert set(found["median_of_all_calls_us"]) <= {5.0, 5.5}


@pytest.mark.parametrize(("count", "rank"), [(6, 0), (10, 1), (20, 5), (24, 6)])
def test_the_interval_of_a_median_is_as_wide_as_the_tables_of_order_statistics_say(
    count: int, rank: int
) -> None:
    assert timing.interval_rank(count) == rank


@pytest.mark.parametrize("pair", ["wall", "stepped"])
def test_both_sides_time_the_closure_once_a_slice(
    monkeypatch: pytest.MonkeyPatch, pair: str, busy: Callable[[], object]
) -> None:
    monkeypatch.setattr(timing, "SLICE_S", 0.004)
    monkeypatch.setattr(timing, "WARM_S", 0.0)

    found = timing.measured(busy, torch.device("cpu"), pair, 6)

    assert len(found["slices_us"][0]) == len(found["slices_us"][1]) == 6
    assert statistics.median(found["slices_us"][1]) == pytest.approx(found["us"][1], rel=1e-3)
    assert 0.2 < found["ratio"] < 5


@pytest.fixture
def busy() -> Callable[[], object]:
    x = torch.zeros(4096)
    return lambda: x.add_(1.0)
