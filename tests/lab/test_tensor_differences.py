"""What differs beyond eager's own rounding, and the figures of it."""

from __future__ import annotations

import numpy as np
import pytest

from kgprof import model as m
from kgprof.lab.tensor_differences import difference, differences
from kgprof.workloads.user import DTYPE

RANDOM = np.random.default_rng(0)
WIDE = RANDOM.standard_normal(100_000)
EAGER = (WIDE + 1e-7 * RANDOM.standard_normal(WIDE.size)).astype(np.float32)


def changed(at: int, value: float) -> np.ndarray:
    array = EAGER.copy()
    array[at] = value
    return array


def test_rounding_in_another_order_is_no_difference() -> None:
    other = (WIDE + 1e-7 * RANDOM.standard_normal(WIDE.size)).astype(np.float32)

    assert difference("x", "float32", other, EAGER, WIDE).differing == 0


def test_one_wrong_element_of_many_is_found_with_its_place_and_values() -> None:
    found = difference("x", "float32", changed(70_001, WIDE[70_001] + 1e-3), EAGER, WIDE)

    assert (found.differing, found.worst, found.reference) == (1, (70_001,), m.Reference.FLOAT64)
    assert found.max_abs == pytest.approx(1e-3, rel=1e-3)
    assert float(found.worst_value) - float(found.worst_reference) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_no_number_differs(value: float) -> None:
    found = difference("x", "float32", changed(5, value), EAGER, WIDE)

    assert (found.differing, found.worst, found.nans + found.infs, found.reference_nans) == (
        1,
        (5,),
        1,
        0,
    )


def test_an_overflow_that_eager_has_too_is_no_difference() -> None:
    eager = changed(3, np.inf)

    assert difference("x", "float32", eager.copy(), eager, WIDE).differing == 0
    assert difference("x", "float32", changed(3, -np.inf), eager, WIDE).differing == 1


def test_an_index_as_in_float64_is_as_good_as_eagers() -> None:
    eager, wide = np.array([1, 2, 3]), np.array([1, 5, 3])

    assert difference("x", "int64", wide.copy(), eager, wide).differing == 0
    assert difference("x", "int64", np.array([1, 4, 3]), eager, wide).differing == 1


def test_float64_that_computed_something_else_is_no_reference() -> None:
    other_draws = RANDOM.standard_normal(WIDE.size)

    found = difference("x", "float32", changed(9, EAGER[9] + 1e-3), EAGER, other_draws)

    assert (found.reference, found.differing, found.worst) == (m.Reference.EAGER, 1, (9,))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_neighbours_are_one_step_apart_on_both_sides_of_zero(dtype: type[np.floating]) -> None:
    eager = np.array([1.0, -1.0, 1.5, -2.0], dtype)
    found = np.nextafter(np.nextafter(eager, dtype(np.inf)), dtype(np.inf))

    assert (
        difference("x", np.dtype(dtype).name, found, eager, eager.astype(np.float64)).max_ulp == 2
    )


def test_a_step_of_bfloat16_is_its_own() -> None:
    eager = np.array([1.0, -3.0], np.float32)
    found = np.array([1.0 + 2**-7, -3.0], np.float32)

    assert difference("x", "bfloat16", found, eager, eager.astype(np.float64)).max_ulp == 1


def test_a_scalar_has_figures() -> None:
    found = difference(
        "x", "float32", np.float32(2.0).reshape(()), np.float32(1.0).reshape(()), np.array(1.0)
    )

    assert (found.differing, found.worst, found.max_abs, found.max_rel) == (1, (), 1.0, 1.0)


def test_another_shape_another_dtype_and_a_missing_tensor_differ() -> None:
    one = np.ones(2, np.float32)
    eager = {"shape": one, "dtype": one, "gone": one, "same": one, "kgprof.flag": one}
    found = {
        "shape": np.ones(3, np.float32),
        "dtype": one,
        f"{DTYPE}dtype": np.asarray("bfloat16"),
        "same": one,
    }

    why = {each.name: each.why for each in differences(found, eager, {})}

    assert why == {
        "shape": "shape (3,), but (2,) in eager",
        "dtype": "dtype bfloat16, but float32 in eager",
        "gone": "only eager has it",
        "same": "",
    }
