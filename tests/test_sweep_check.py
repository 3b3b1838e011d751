"""benchmarks/sweep_check.py: where two measured curves of cumulative seconds cross."""

from __future__ import annotations

import json

import pytest

from tests.test_seeds import BENCHMARKS, loaded


def line(start_s: float, step_s: float, steps: int = 100) -> list[list[float]]:
    return [[0, 0.0], *([n, start_s + n * step_s] for n in range(20, steps + 1, 20))]


@pytest.mark.parametrize(
    ("compiled", "crossed"),
    [
        (line(0.5, 0.01), 40.0),  # behind until 50 steps, by the points of every 20
        (line(5.0, 0.01), 500.0),  # beyond what ran: both go on in a straight line
        (line(0.0, 0.01), 0.0),
        (line(0.5, 0.03), None),
    ],
)
def test_curves_cross_where_the_compiled_one_is_ahead_for_good(
    compiled: list[list[float]], crossed: float | None
) -> None:
    check = loaded("sweep_check")

    found = check.crossing(check.Curve(compiled), check.Curve(line(0.0, 0.02)))

    assert found == (pytest.approx(crossed) if crossed is not None else None)


@pytest.mark.parametrize(
    ("name", "inside", "pairs"), [("sweep_check_cpu", 11, 12), ("sweep_check_h100", 6, 6)]
)
def test_the_kept_curves_cross_inside_their_intervals(name: str, inside: int, pairs: int) -> None:
    checked = json.loads((BENCHMARKS / "results" / f"{name}.json").read_text("utf-8"))

    rows = [row for each in checked for row in each["rows"] if row["interval"]]
    held = [row["interval"][0] <= row["measured"] <= row["interval"][1] for row in rows]

    assert (sum(held), len(held)) == (inside, pairs)
