"""Nothing invisible, and nothing that steers a terminal or reorders a line, gets through."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgprof.document.escaping import clip, escaped, one_line
from kgprof.wording import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("a\u2028b", "a\\u2028b"),
        ("nul\x00", "nul\\x00"),
        ("\U000e0041", "\\U000e0041"),
        ("日本語 é 🔥", "日本語 é 🔥"),
        ("line\nend", "line\\x0aend"),
    ],
)
def test_invisible_characters_are_spelt_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_log_keeps_its_line_ends() -> None:
    assert visible("a\nb\tc\rd", keep="\n\t") == "a\nb\tc\\x0dd"


@given(st.text())
def test_what_is_shown_can_be_seen(text: str) -> None:
    assert not {unicodedata.category(character) for character in visible(text)} & {
        "Cc",
        "Cf",
        "Cs",
        "Zl",
        "Zp",
    }


@given(st.text(), st.integers(1, 50))
def test_one_line_is_one_line_of_that_length(text: str, limit: int) -> None:
    line = one_line(text, limit)

    assert len(line) <= limit
    assert "\n" not in line


def test_a_cut_is_marked() -> None:
    assert clip("abcdef", 4) == "abc\N{HORIZONTAL ELLIPSIS}"
    assert clip("abcd", 4) == "abcd"


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("three short words", 12, "three short\N{HORIZONTAL ELLIPSIS}"),
        ("three short words", 11, "three\N{HORIZONTAL ELLIPSIS}"),
        ("three short words", 17, "three short words"),
        ("a name_without_any_space", 12, "a name_with\N{HORIZONTAL ELLIPSIS}"),
    ],
)
def test_prose_is_cut_after_a_word_unless_that_costs_half_of_it(
    text: str, limit: int, shown: str
) -> None:
    assert (
        clip(text, limit, words=True)
        == one_line(text, limit, words=True)
        == escaped(text, limit)
        == shown
    )
