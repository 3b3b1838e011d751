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


def test_after_an_optimizer_a_kind_is_held_to_float64_as_a_whole() -> None:
    """One element of a hundred that took a step to the other side is no other result."""
    random = np.random.default_rng(0)
    wide = {name: random.normal(size=100) for name in ("parameter a", "gradient a")}
    eager = {name: array.astype(np.float32) for name, array in wide.items()}
    eager["parameter a"][3] += np.float32(2e-4)
    other = {**eager, "parameter a": wide["parameter a"].astype(np.float32)}
    other["parameter a"][7] += np.float32(2e-4)
    wrong = {**other, "parameter a": other["parameter a"] + np.float32(1e-3)}
    broken = {**other, "parameter a": np.where(np.arange(100) == 1, np.nan, other["parameter a"])}
    broken["parameter a"] = broken["parameter a"].astype(np.float32)

    assert compared(other, eager, eager, wide) is m.Results.ROUNDED
    assert compared(wrong, eager, eager, wide) is m.Results.DIFFERENT
    assert compared(broken, eager, eager, wide) is m.Results.DIFFERENT


def test_a_small_parameter_that_is_wrong_is_not_hidden_by_a_large_one() -> None:
    random = np.random.default_rng(0)
    wide = {"parameter a": random.normal(size=10_000), "parameter b": random.normal(size=3)}
    wide["gradient a"] = random.normal(size=10_000)
    eager = {n: (a + 1e-2 * random.normal(size=a.size)).astype(np.float32) for n, a in wide.items()}
    wrong = {**eager, "parameter b": (wide["parameter b"] * 1.3).astype(np.float32)}

    assert compared(wrong, eager, eager, wide) is m.Results.DIFFERENT


def test_what_the_first_step_returned_is_held_element_by_element_in_any_case() -> None:
    first = "result of step 1:"
    wide = {first: np.linspace(1, 2, 100), "gradient a": np.ones(3)}
    eager = {name: array.astype(np.float32) for name, array in wide.items()}
    wrong = {**eager, first: eager[first] + np.float32(2e-4) * (np.arange(100) == 7)}
    wrong[first] = wrong[first].astype(np.float32)

    assert compared(wrong, eager, eager, wide) is m.Results.DIFFERENT


def test_two_starts_that_differ_compare_with_nothing() -> None:
    assert compared(EAGER, EAGER, moved(1e-7), WIDE) is m.Results.NOT_COMPARABLE


def test_a_program_without_results_compares_with_nothing() -> None:
    assert compared({}, {}, {}, {}) is m.Results.NOT_COMPARABLE


def test_without_float64_the_tolerance_of_the_dtype_holds() -> None:
    assert compared(moved(1e-6), EAGER, EAGER, {}) is m.Results.ROUNDED
    assert compared(moved(1e-2), EAGER, EAGER, {}) is m.Results.DIFFERENT
