"""Time grows with the length of a text and not with its square: no expression reads a run again
from each character."""

from __future__ import annotations

import re
import time
from collections import Counter

import pytest

from kgprof import model as m
from kgprof.analysis.redaction import Redactor
from tests.analysis.test_secrets import PLAIN
from tests.expressions import MADE, PACKAGE, expressions
from tests.gathering import for_all
from tests.rescans import rescanned

# Those that stopped every report of a log with 150,000 zeros, and others of the kind.
BAD = (
    r"[0-9]+(?:x[0-9]+)+",
    r"""(?i)[^\s"'<>]*%(?:25)?(?:3[ad]|2[0f6]|40|0[ad])[^\s"'<>]*""",
    r"(?:(?<=file://)|(?<![\w.\-~>/]))(?:/[^/\s\"'<>|:,;()\[\]{}\\`]+)*/(?:site|dist)-packages(?=/|\b)",
    r"(?:(?<=file://)|(?<![\w.\-~>/]))(?:/[\w.+@%=~-]+)+?(?=(?:/[\w.+@%=~-]+){2}/*(?![\w.+@%=~-]|/))",
    r'"[^"\\]*(?:\\.[^"\\]*)*"',
    r"eyJ[\w-]{8,}\.[\w-]{8,}",
    r"(?m)^(\s*)::",
    r"\b[\w.]+@",
    r"[\w.-]*$",
    r"\s+$",
    r".*/x",
    r"x(?:[^\n]*y)?",
    r"(?=[^\n]*z)a",
    r"(?<![0-9])[0-9.]+x",
    r"(?:ab|[ab])+c",
    r"(?s)Reason: (.*?)(?=\n\nStack)",
)
GOOD = (
    r"(?<![0-9])[0-9]+(?:x[0-9]+)+",
    r'(?<!\\)"[^"\\]*(?:\\.[^"\\]*)*"',
    r"(?s)\A(?>.*?Reason: )(.*?)(?=\n\nStack)",
    r"[\w.-]{1,80}=",
    r'"[^"]*x',
    r"(?m)^[^\S\n]*::",
    r"(?m)^.*x",
    r"\b\w+@",
    r"[0-9]+",
    r"a*",
    r"aa|a+b",
)


@pytest.mark.parametrize("pattern", BAD)
def test_an_expression_that_reads_a_run_again_is_seen(pattern: str) -> None:
    assert rescanned(re.compile(pattern))


@pytest.mark.parametrize("pattern", GOOD)
def test_an_expression_that_reads_a_run_once_is_left_alone(pattern: str) -> None:
    assert rescanned(re.compile(pattern)) is None


def test_no_expression_of_kgprof_reads_a_run_again() -> None:
    searched = [expression for expression in expressions() if expression.searches]
    again = [
        (place, word) for place, pattern, _ in searched if (word := rescanned(pattern)) is not None
    ]

    assert again == []
    assert len(searched) > 150


@for_all(MADE)
def test_a_function_that_is_said_to_make_expressions_is_there(place: str) -> None:
    file, name = place.split()

    assert f"def {name}(" in (PACKAGE / file).read_text("utf-8")


LENGTHS = (10_000, 100_000, 1_000_000)
PIECES = (
    *(
        "0",
        "%",
        "%41",
        "a",
        "A",
        "aB3",
        "-",
        ".",
        "=",
        "/",
        "/%",
        "/a=",
        "'",
        '"',
        '\\"',
        "\\",
        " ",
        "\n",
        "\t",
    ),
    *(
        "(",
        "[",
        "{",
        ":",
        ";",
        "|",
        "#",
        "<",
        "&",
        "&amp;",
        "$",
        "é",
        "1x",
        "-eyJabc",
        "key",
        "token=",
        "pw:",
        "digest ",
    ),
    *(";PWD={A", "A=<<B\n", "File: ", "a.b(", "::", "https://h/x ", "x" * 15 + " "),
)


@pytest.mark.long
@pytest.mark.parametrize("piece", PIECES)
def test_redaction_takes_a_time_that_grows_with_the_length(piece: str) -> None:
    names = m.PrivateNames(
        users=("annabel",), hosts=("build7.corp.example",), homes=("/srv/annabel",)
    )
    seconds = {}
    for length in LENGTHS:
        text = (piece * length)[:length]
        began = time.process_time()
        Redactor(names, root="/work/project")(text)
        seconds[length] = max(time.process_time() - began, 0.001)
    few, many, most = seconds.values()
    print(  # noqa: T201
        f"{piece!r}: {most:.2f} s for {LENGTHS[-1]:,} characters; ratios {many / few:.1f}, "
        f"{most / many:.1f}"
    )

    # ten times as long: ten times as much, and a hundred times if it were the square
    assert most < 30 * many + 1


@pytest.mark.long
def test_no_expression_takes_longer_than_the_text_is_long() -> None:
    """Prints the slowest ratio of each expression, from 100,000 to 1,000,000 characters of each
    alphabet."""
    worst: Counter[str] = Counter()
    for place, pattern, asked in expressions():
        if isinstance(pattern.pattern, bytes) or (asked and asked <= {"match", "fullmatch"}):
            continue
        for piece in PIECES:
            seconds = []
            for length in LENGTHS:
                text = (piece * length)[:length]
                began = time.process_time()
                sum(1 for _ in pattern.finditer(text))
                seconds.append(max(time.process_time() - began, 0.005))
            worst[f"{place} {piece!r}"] = seconds[2] / seconds[1]
    for name, ratio in worst.most_common(40):
        print(f"{ratio:6.1f}  {name}")  # noqa: T201

    assert max(worst.values()) < 40


def test_innocent_text_stays() -> None:
    redact = Redactor(m.PrivateNames())

    assert [text for text in PLAIN if redact(text) != text] == []
