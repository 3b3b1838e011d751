"""Which calls of compiled functions begin an iteration of the program's loop."""

import sys
from pathlib import Path

import pytest
import torch

from kgprof.reading.project import ProjectFiles
from kgprof.record.ground.source import listening
from kgprof.record.passes.steps import Kind, StepMarks, Steps

BEFORE = """
import torch

double = torch.compile(lambda x: 2 * x, backend="eager")
ones = torch.ones(2)


def twice(x):
    return double(double(x))

here, x = torch.no_grad(), ones

"""


def stepped(tmp_path: Path, program: str) -> tuple[Steps, StepMarks]:
    torch._dynamo.reset()
    file = tmp_path / "program.py"
    file.write_text(BEFORE + program)
    steps = Steps()
    marks = StepMarks(steps, ProjectFiles(libraries=()))
    with listening([marks]):
        exec(compile(file.read_text(), str(file), "exec"), {"__name__": "__main__"})
    assert not marks.unavailable
    return steps, marks


@pytest.mark.parametrize(
    ("loop", "iterations"),
    [
        ("for _ in range(7):\n    twice(ones)\n", 7),
        (
            "for _ in range(7):\n    double(x)\n    with here:\n        twice(x)\n",
            7,
        ),
        ("for _ in range(7):\n    double(ones); double(ones)\n", 7),
        ("at = 0\nwhile at < 6:\n    twice(ones)\n    at += 1\n", 6),
        ("for _ in range(2):\n    for _ in range(3):\n        twice(ones)\n", 6),
        # the loop of the warm-up makes one call each
        (
            "for _ in range(6):\n    double(ones)\nfor _ in range(8):\n    twice(ones)\n",
            8,
        ),
        ("def main():\n    for _ in range(5):\n        twice(ones)\n\n\nmain()\n", 5),
    ],
)
def test_an_iteration_with_several_calls_is_a_step(
    tmp_path: Path, loop: str, iterations: int
) -> None:
    steps, marks = stepped(tmp_path, loop)

    assert steps.chosen is Kind.ITERATION
    assert steps.counts[Kind.ITERATION] == iterations
    assert steps.ended() == iterations - 1
    place = marks.iterations.loop
    assert place is not None
    assert (
        (tmp_path / "program.py")
        .read_text()
        .splitlines()[place.line - 1]
        .lstrip()
        .startswith(("for", "while"))
    )


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("for _ in range(9):\n    double(ones)\n", "one call each"),
        ("for _ in range(4):\n    twice(ones)\n", "too few to leave out the first"),
        ("for at in range(9):\n    if at % 2:\n        twice(ones)\n", "not in every iteration"),
        (
            "for at in range(9):\n    if at % 2:\n        double(ones)\n    else:\n"
            "        double(-ones)\n",
            "two iterations would be taken for one",
        ),
        (
            "for at in range(9):\n    if at % 2:\n        continue\n    twice(ones)\n",
            "not in every iteration",
        ),
        ("for _ in range(9):\n    list(map(double, [ones, ones]))\n", "map is no call of ours"),
        ("for _ in map(double, 9 * [ones]):\n    pass\n", "what is iterated over"),
        (
            "for _ in range(6):\n    twice(ones)\nfor _ in range(90):\n    double(ones)\n",
            "most calls lie elsewhere",
        ),
    ],
)
def test_where_iterations_cannot_be_told_the_calls_are_the_steps(
    tmp_path: Path, program: str, why: str
) -> None:
    steps, _ = stepped(tmp_path, program)

    assert steps.chosen is Kind.REGION, why
    assert steps.count(Kind.ITERATION) == 0


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="a comprehension has no frame of its own")
def test_a_comprehension_in_a_loop_is_a_part_of_its_iteration(tmp_path: Path) -> None:
    steps, _ = stepped(tmp_path, "for _ in range(6):\n    [double(ones) for _ in range(3)]\n")

    assert steps.chosen is Kind.ITERATION
    assert steps.counts[Kind.ITERATION] == 6


def test_calls_of_several_threads_are_no_iterations(tmp_path: Path) -> None:
    program = (
        "from threading import Thread\nfor _ in range(9):\n"
        "    each = Thread(target=twice, args=[ones])\n    each.start()\n    each.join()\n"
    )

    steps, _ = stepped(tmp_path, program)

    assert steps.chosen is Kind.REGION
    assert steps.counts[Kind.REGION] == 18


def test_nothing_of_a_call_is_kept_alive(tmp_path: Path) -> None:

    program = (
        "import weakref\n\n\nclass Kept:\n    pass\n\n\nalive = []\n\n\ndef big(x):\n"
        "    kept = Kept()\n    alive.append(weakref.ref(kept))\n    twice(x)\n\n\n"
        "for _ in range(6):\n    big(ones)\n    assert alive[-1]() is None\n"
    )

    steps, _ = stepped(tmp_path, program)

    assert steps.chosen is Kind.ITERATION
