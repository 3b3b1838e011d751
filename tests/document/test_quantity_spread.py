"""A range is said only where there are samples enough for it, and by its own name."""

from __future__ import annotations

import pytest

from kgprof.document.quantity import of_speedup, ranged, sampled
from kgprof.model import PassName, Skipped, Speedup, Spread


@pytest.mark.parametrize(
    ("samples", "range_", "words"),
    [
        (1, "", "1 sample"),
        (2, "", "2 samples"),
        (3, "1.00–9.00", "n = 3, min–max"),  # noqa: RUF001 - the dash of a range
        (9, "1.00–9.00", "n = 9, min–max"),  # noqa: RUF001
        (10, "2.00–8.00", "n = 10"),  # noqa: RUF001
    ],
)
def test_a_range_is_what_the_number_of_samples_can_carry(
    samples: int, range_: str, words: str
) -> None:
    time = Spread(
        median=5.0,
        p10=2.0,
        p90=8.0,
        minimum=1.0,
        maximum=9.0,
        samples=samples,
        unit="s",
        measured_in=PassName.TIMING,
    )

    assert (ranged(time), sampled(time)) == (range_, words)


def test_a_speedup_without_range_says_why() -> None:
    gone = Skipped(reason="1 sample")

    assert of_speedup(Speedup(ratio=2.0, low=gone, high=gone, basis="step")) == "1 sample"
    assert of_speedup(Speedup(ratio=2.0, low=1.5, high=3.0, basis="step")) == "1.50–3.00"  # noqa: RUF001
