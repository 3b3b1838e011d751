from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgprof.wording import figure, opening, ranges, short


@pytest.mark.parametrize(
    ("value", "column", "sentence"),
    [
        (0.0, "0", "0"),
        (20.0, "20.0", "20"),
        (0.0367, "0.0367", "0.0367"),
        (-1.5, "-1.50", "-1.5"),
        (999.6, "1,000", "1,000"),
        (1234.5, "1,234", "1,234"),
        (4.2e6, "4,200,000", "4,200,000"),
        (1.2e-5, "0.0000120", "0.000012"),
    ],
)
def test_a_figure_has_three_significant_digits_and_no_exponent(
    value: float, column: str, sentence: str
) -> None:
    assert (figure(value), short(value)) == (column, sentence)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([84, 81, 82, 83, 82], "81-84"),
        ([18, 81, 82], "18,81-82"),
        ([7], "7"),
        ([*range(1, 15, 2)], "1,3,5,7,9,11,\N{HORIZONTAL ELLIPSIS}"),
    ],
)
def test_neighbouring_lines_of_a_file_are_said_together(lines: list[int], expected: str) -> None:
    assert ranges(lines) == expected


@pytest.mark.parametrize(("value", "expected"), [(42000.0, "+42,000"), (-0.5, "-0.5"), (3.0, "+3")])
def test_a_change_may_carry_its_sign(value: float, expected: str) -> None:
    assert short(value, sign="+") == expected


@given(st.floats(min_value=1e-9, max_value=1e15))
def test_a_short_figure_reads_back_as_the_value_to_its_digits(value: float) -> None:
    assert float(short(value).replace(",", "")) == pytest.approx(value, rel=0.006)
    assert "e" not in short(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("backend='x' raised:\nValueError: no\n\nSet ...", "backend='x' raised: ValueError: no"),
        ("\n no such file \nsee there", "no such file"),
        ("raised:", "raised:"),
        ("", ""),
    ],
)
def test_an_errors_first_line_and_what_it_announces(text: str, said: str) -> None:
    assert opening(text) == said
