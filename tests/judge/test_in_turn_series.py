"""The recorded series of benchmarks/in_turn.py: unchanged programs and planted slow-downs, each
pair as it was timed.

in_turn.tsv says what each of them came to when it was judged pair by pair, by the code of 6d38d6a8.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

from tests.gathering import for_all

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from in_turn import AGAIN, judged  # noqa: E402

EXPECTED = [
    line.split("\t")
    for line in Path(__file__).with_name("in_turn.tsv").read_text("utf-8").splitlines()
]


@functools.cache
def series(file: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(
        (ROOT / "benchmarks" / "results" / f"{file}.json").read_text("utf-8")
    )["series"]
    return made


def test_every_comparison_that_came_to_an_end_is_in_the_table() -> None:
    ended = [
        (file, name, str(number))
        for file in ("in_turn", "in_turn_h100")
        for name, of in series(file).items()
        for number, each in enumerate(of["found"])
        if "verdict" in each
    ]

    assert ended == [tuple(line[:3]) for line in EXPECTED]
    assert sum(line[0] == "in_turn" and line[3] == AGAIN for line in EXPECTED) == 40


@for_all(EXPECTED, lambda line: " ".join(line[:3]))
def test_each_series_is_judged_as_before(line: list[str]) -> None:
    file, name, number, head, looked, verdict, slower, *ends = line
    of = series(file)[name]
    pairs = of["found"][int(number)]["pairs"]
    most, limit = of["rounds"], of["limit_percent"] / 100

    answers = [judged(pairs[:made], most, limit) for made in range(1, int(looked) + 1)]

    assert not any(answers[:-1])
    assert (of["found"][int(number)]["head"], answers[-1]["verdict"]) == (head, verdict)
    assert answers[-1]["slower_beyond_chance"] == (slower == "slower")
    assert [f"{end:.6f}" for each in answers[-1]["ratios"].values() for end in each] == ends


def test_no_unchanged_program_is_called_slower_and_every_planted_one_is() -> None:
    for *_, head, _, verdict, slower in (line[:7] for line in EXPECTED):
        assert (verdict == "worse") == (head != AGAIN)
        assert (slower == "slower") == (head != AGAIN)
