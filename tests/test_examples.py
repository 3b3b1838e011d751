"""The committed example reports are what today's kgprof writes, so that a reader of them sees today's page."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("name", ["evaluator.html", "comparison.html", "capture.html", "sweep.html"])
def test_it_is_todays(name: str, made: dict[str, bytes]) -> None:
    today = made[name] == (examples.EXAMPLE / name).read_bytes()

    assert today, f"reports/example/{name} is of an older renderer or analysis: make example"
