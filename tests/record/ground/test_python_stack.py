"""What a frame is evaluating, while a hook looks at it from within."""

from __future__ import annotations

import sys

import pytest

from kgprof.record.ground.python_stack import expression_at


class Asked:
    """Writes down what is evaluated where its truth is asked for."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.seen: list[str] = []

    def __bool__(self) -> bool:
        frame = sys._getframe(1)
        self.seen.append(expression_at(frame))
        return self.answer

    def itself(self) -> Asked:
        return self


def over_lines(x: Asked | None) -> bool:
    if (
        not isinstance(x, int)
        and (x is None or x.itself())
        # a comment
        and sys.platform
    ):
        return True
    return False


def plain(x: Asked) -> bool:
    return True if x else False  # noqa: SIM210  a jump, not a call of bool()


def negated(x: Asked) -> bool:
    while not x.itself():
        return False
    return True


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize(
    ("function", "tested"),
    [(over_lines, "x.itself()"), (plain, "x"), (negated, "x.itself()")],
    ids=lambda given: "",
)
def test_what_is_tested_is_the_value_before_the_jump(
    function: object, tested: str, answer: bool
) -> None:
    x = Asked(answer)

    assert callable(function)
    assert function(x) is answer
    assert x.seen == [tested]
