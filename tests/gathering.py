"""Many small checks of one kind in one test, whose message has all that fail.

A check that takes microseconds costs less than the test that would hold it alone.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")


def for_all(
    cases: Iterable[Case], name: Callable[[Case], str] = str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a test of a check whose first argument is a case; pytest gives it the others."""

    def made(check: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(check)
        def test(**fixtures: Any) -> None:
            _check_all([*cases], functools.partial(check, **fixtures), name)

        of_check = inspect.signature(check)
        of_test = of_check.replace(parameters=[*of_check.parameters.values()][1:])
        test.__signature__ = of_test  # type: ignore[attr-defined]
        return test

    return made


def _check_all(
    cases: list[Case], check: Callable[[Case], None], name: Callable[[Case], str]
) -> None:
    assert cases, "there is nothing to check"
    failed = [error for case in cases if (error := _error(check, case, name(case)))]
    if failed:
        pytest.fail("\n".join([f"{len(failed)} of {len(cases)} fail:", *failed]), pytrace=False)


def _error(check: Callable[[Case], None], case: Case, name: str) -> str:
    """The line that fails and its error; nothing if the check holds."""
    try:
        check(case)
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  whatever it is, it is shown
        return f"\n{name}\n" + "".join(traceback.format_exception(error, limit=-1))
    return ""
