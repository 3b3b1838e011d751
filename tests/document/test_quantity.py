"""Numbers as a reader sees them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgprof.document import quantity


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (0.0310, "0.0310"),
        (0.1074, "0.107"),
        (1.0, "1.00"),
        (9.999, "10.00"),
        (12.34, "12.3"),
        (123.4, "123"),
        (1234.5, "1,234"),
        (1_564_762.9, "1,564,763"),
        (1e-12, "0.000000000"),
        (-2.5, "-2.50"),
    ],
)
def test_three_significant_digits_and_no_exponent(value: float, said: str) -> None:
    assert quantity.figure(value) == said


@given(st.floats(1e-6, 1e12))
def test_a_figure_is_within_half_a_percent_of_what_it_says(value: float) -> None:
    assert float(quantity.figure(value).replace(",", "")) == pytest.approx(value, rel=0.0051)


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.0, "0.0 %"), (0.0004, "< 0.1 %"), (0.0005, "0.1 %"), (0.29, "29.0 %"), (1.0, "100.0 %")],
)
def test_a_share_that_is_there_never_reads_as_nothing(share: float, said: str) -> None:
    assert quantity.percent(share) == said


@pytest.mark.parametrize(
    ("size_bytes", "said"),
    [
        (0, "0 B"),
        (52, "52.0 B"),
        (1536, "1.50 KiB"),
        (24 * 2**30, "24.0 GiB"),
        (2**50, "1,024 TiB"),
    ],
)
def test_sizes(size_bytes: int, said: str) -> None:
    assert quantity.size(size_bytes) == said


def test_a_span_of_one_value_is_that_value() -> None:
    assert quantity.span("2.00", "2.00") == "2.00"
    assert quantity.span("1.00", "2.00") == "1.00\N{EN DASH}2.00"
