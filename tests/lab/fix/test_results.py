"""Whether the results under a lever are those of the program as it is."""

import numpy as np
import pytest

from kgprof import model as m
from kgprof.lab.fix.results import compared

EAGER = {"loss": np.array([1.0, 2.0, np.nan], np.float32), "index": np.array([1, 2])}
WIDE = {"loss": np.array([1.0000001, 2.0, np.nan]), "index": np.array([1, 2])}


def moved(by: float) -> dict[str, np.ndarray]:
    return {**EAGER, "loss": EAGER["loss"] + np.float32(by)}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (moved(0.0), m.Results.SAME),
        (moved(2e-7), m.Results.ROUNDED),
        (moved(1e-2), m.Results.DIFFERENT),
        ({**EAGER, "index": np.array([1, 3])}, m.Results.DIFFERENT),
        ({"loss": EAGER["loss"]}, m.Results.DIFFERENT),
        ({**EAGER, "more": np.array([1])}, m.Results.DIFFERENT),
        ({**EAGER, "loss": EAGER["loss"].astype(np.float64)}, m.Results.DIFFERENT),
        ({**EAGER, "loss": EAGER["loss"][:2]}, m.Results.DIFFERENT),
    ],
)
def test_a_result_is_held_to_float64(found: dict[str, np.ndarray], expected: m.Results) -> None:
    assert compared(found, EAGER, EAGER, WIDE) is expected


def test_two_starts_that_differ_compare_with_nothing() -> None:
    assert compared(EAGER, EAGER, moved(1e-7), WIDE) is m.Results.NOT_COMPARABLE


def test_a_program_without_results_compares_with_nothing() -> None:
    assert compared({}, {}, {}, {}) is m.Results.NOT_COMPARABLE


def test_without_float64_the_tolerance_of_the_dtype_holds() -> None:
    assert compared(moved(1e-6), EAGER, EAGER, {}) is m.Results.ROUNDED
    assert compared(moved(1e-2), EAGER, EAGER, {}) is m.Results.DIFFERENT
