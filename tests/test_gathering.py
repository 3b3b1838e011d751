"""A test of many cases fails with all that fail of them, each with its name and error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gathering import for_all


@for_all(("one", "two"))
def test_pytest_gives_what_is_no_case(case: str, tmp_path: Path) -> None:
    assert case in ("one", "two")
    assert tmp_path.is_dir()


def test_every_case_that_fails_is_named_with_its_error() -> None:
    @for_all((1, 2, 0), lambda number: f"the number {number}")
    def check(number: int) -> None:
        assert 2 / number == 1

    with pytest.raises(pytest.fail.Exception, match="2 of 3 fail") as failed:
        check()

    first, second = str(failed.value).split("the number ")[1:]
    assert (first[0], second[0]) == ("1", "0")
    assert "assert (2 / 1) == 1" in first
    assert "assert 2 / number == 1" in second
    assert "ZeroDivisionError: division by zero" in second


def test_a_case_that_raises_nothing_where_it_should_has_failed() -> None:
    @for_all(("a case",))
    def check(case: str) -> None:
        with pytest.raises(ValueError, match=case):
            pass

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        check()


def test_nothing_to_check_is_a_failure() -> None:
    @for_all(())
    def check(case: str) -> None: ...

    with pytest.raises(AssertionError, match="nothing to check"):
        check()
