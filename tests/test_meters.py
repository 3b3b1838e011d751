"""kgprof does not grow or become denser without somebody deciding so: ceilings, and meters that
nothing fools."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import meters
from tests.meters import (
    ROOT,
    Meters,
    by_room,
    entries,
    made_code,
    median_function,
    of_module,
    table,
    template_nodes,
    whole,
)

# What the tree has today. Lower a number with the change that makes it lower; raise MOST_SIZE only
# with a feature.
MOST_SIZE = 423_142
CEILINGS = {
    "nodes per statement": 8.5,
    "nodes of the median function": 78,
    "conditional expressions per 1,000 lines": 9.3,
    meters.CLASSES: 787,
    meters.COPIED: 1459,
    meters.SKIPPED: 192,
    meters.LONG_LINES: 0,
}
# Where code is made from text: a person's own script, and an exception that Python raises at a
# signal.
MADE_CODE = {
    "record/processes/child.py": ["exec"],
    "record/passes/script.py": ["exec"],
    "lab/size_policies.py": ["exec"],
    "workloads/loading.py": ["compile"],  # whether Python can read it
    "workloads/programs.py": ["compile"],
}


def test_the_size_stays_below_its_ceiling() -> None:
    assert whole().size <= MOST_SIZE, "\n".join(table(by_room(ROOT)))


def test_the_code_becomes_no_denser() -> None:
    measured = whole()
    values = {name: float(measured.counts[name]) for name in CEILINGS}
    values["nodes per statement"] = measured.nodes_per_statement
    values["nodes of the median function"] = median_function()
    values["conditional expressions per 1,000 lines"] = measured.conditional_per_1000_lines

    assert all(values[name] > 0 for name in CEILINGS if CEILINGS[name])
    assert {name: value for name, value in values.items() if value > CEILINGS[name]} == {}


def test_code_is_made_from_text_only_where_it_is_known() -> None:
    package = ROOT / "kgprof"
    made = {
        path.relative_to(package).as_posix(): sorted(made_code(ast.parse(path.read_text("utf-8"))))
        for path in sorted(package.rglob("*.py"))
    }

    assert {path: calls for path, calls in made.items() if calls} == MADE_CODE


@pytest.mark.parametrize(
    ("text", "nodes", "statements"),
    [
        ("", 1, 0),
        ("x = 1", 4, 1),  # Module, Assign, Name, Constant; Store does not count
        ('"""Says nothing."""\nx = 1', 4, 1),
        # Module, FunctionDef, arguments, Return, Constant
        ("def f():\n    '''Says nothing.'''\n    return 1", 5, 2),
        ('f"{x}"', 5, 1),  # Module, Expr, JoinedStr, FormattedValue, Name
        ('f"{x + 1}"', 8, 1),  # BinOp, Add and Constant more
        ("x if y else z", 6, 1),
    ],
)
def test_nodes_are_those_of_the_syntax_tree(text: str, nodes: int, statements: int) -> None:
    counts = of_module(text)

    assert (counts[meters.NODES], counts[meters.STATEMENTS]) == (nodes, statements)


def test_copies_are_keywords_that_hand_on_what_has_their_name() -> None:
    counts = of_module("A(x=x, y=other.y, z=self._z, w=1, v=other.x, **more)")

    assert counts[meters.COPIED] == 3


def test_skipped_conditional_and_long_lines_are_counted() -> None:
    text = (
        "class A: pass\na = b if isinstance(c, m.Skipped) else isinstance(d, "
        f"int)\n{'e' * 101} = 1\n{'f' * 100} = 1"
    )

    counts = of_module(text)

    expected = {meters.CLASSES: 1, meters.CONDITIONAL: 1, meters.SKIPPED: 1, meters.LONG_LINES: 2}
    assert {name: counts[name] for name in expected} == expected


def test_what_moves_to_a_template_or_a_data_file_counts_there() -> None:
    assert template_nodes("{{ a }}{% if b %}c{% endif %}") == 7
    assert entries({"a": 1, "b": [1, {"c": "d"}], "e": {}}) == 3
    assert Meters(of_module("x = 1")).size == 4


@pytest.mark.parametrize(
    "text", ['exec("x = 1")', "run = eval", "builtins.exec(text)", "def f():\n    compile(a)"]
)
def test_code_that_is_made_from_text_is_seen(text: str) -> None:
    assert len(list(made_code(ast.parse(text)))) == 1


def test_every_room_has_its_line() -> None:
    rooms = by_room(ROOT)
    lines = list(table(rooms))

    assert {
        path.name for path in (ROOT / "kgprof").iterdir() if (path / "__init__.py").exists()
    } <= rooms.keys()
    assert sum(room.size for room in rooms.values()) == whole().size
    assert [line.split()[0] for line in lines] == ["room", *rooms, "all"]


def test_the_median_function_is_that_in_the_middle(tmp_path: Path) -> None:
    package = tmp_path / "kgprof"
    package.mkdir()
    (package / "a.py").write_text("def f(): pass\nx = 1\n")
    (package / "b.py").write_text("def g(): return 1\ndef h():\n    return [1, 2, 3]\n")

    assert median_function(tmp_path) == 4  # FunctionDef, arguments, Return and Constant of g
