"""Programs on packages of others, run live: what kgprof says of them is what torch does."""

from __future__ import annotations

import pytest

from tests.programs.live import cases, held_to_its_truth
from tests.programs.truth import Program


@pytest.mark.parametrize(("program", "family"), cases(with_packages=True))
def test_it_is_held_to_its_truth(program: Program, family: str) -> None:
    held_to_its_truth(program, family)
