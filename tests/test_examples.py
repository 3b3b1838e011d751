"""The committed example reports are what today's kgprof writes, so that a reader of them sees
today's page."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgprof import model as m
from kgprof.lab.sweep import Grid
from tests import examples


@pytest.fixture(scope="module")
def made() -> dict[str, bytes]:
    return examples.reports()


def test_nothing_else_lies_in_the_folder(made: dict[str, bytes]) -> None:
    assert {path.name for path in examples.EXAMPLE.iterdir()} == {
        *made,
        *(f"{name}.png" for name in examples.SHOWN),
        "README.md",
        "seeds.html",  # held by tests/test_seeds.py
    }


def test_a_picture_is_small_enough_for_a_readme() -> None:
    for name in examples.SHOWN:
        picture = (examples.EXAMPLE / f"{name}.png").read_bytes()

        assert picture.startswith(b"\x89PNG")
        assert len(picture) <= examples.PICTURE_BYTES


@pytest.mark.parametrize(
    "name", ["evaluator.html", "comparison.html", "capture.html", "sweep.html"]
)
def test_it_is_todays(name: str, made: dict[str, bytes]) -> None:
    today = made[name] == (examples.EXAMPLE / name).read_bytes()

    assert today, f"reports/example/{name} is of an older renderer or analysis: make example"


@pytest.mark.parametrize("path", examples.SWEEPS, ids=lambda path: path.stem)
def test_the_sweeps_of_the_example_are_whole_grids(path: Path) -> None:
    """Every cell of the default grid of a GPU, in three processes each."""
    sweep = m.decode_json(path.read_bytes(), m.Sweep)

    cells = {each.cell: len(each.measured()) for each in sweep.cells}

    assert {*cells} == {*Grid().cells("cuda", own_settings=False)}
    assert min(cells.values()) >= 3
    assert not any(each.not_run or each.failed for each in sweep.cells)
