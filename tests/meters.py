"""Measures the size and density of kgprof by room: ``python -m tests.meters``.

Size is one sum of nodes of the syntax tree, nodes of the templates and entries of the data files,
so that moving a thing from one to another changes nothing. CONTRIBUTING.md says how to read the
table.
"""

import ast
import functools
import statistics
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import jinja2.nodes

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = 100
TEMPLATES = "templates"

# Counted by each module; ``size`` is the sum of the first three.
NODES, TEMPLATE_NODES, ENTRIES = "nodes", "template nodes", "entries"
STATEMENTS, LINES, LONG_LINES = "statements", "lines", "lines over 100"
CONDITIONAL, CLASSES, COPIED, SKIPPED = "conditional", "classes", "copied", "skipped"
CALLED_ON_TEXT = frozenset(("eval", "exec", "compile"))


class Meters(NamedTuple):
    counts: Counter[str]

    @property
    def size(self) -> int:
        return sum(self.counts[name] for name in (NODES, TEMPLATE_NODES, ENTRIES))

    @property
    def nodes_per_statement(self) -> float:
        return self.counts[NODES] / max(self.counts[STATEMENTS], 1)

    @property
    def conditional_per_1000_lines(self) -> float:
        return 1000 * self.counts[CONDITIONAL] / max(self.counts[LINES], 1)


@functools.cache
def by_room(root: Path = ROOT) -> dict[str, Meters]:
    """Returns the meters of each folder below kgprof/, of its own modules as "kgprof", and of the
    templates."""
    rooms: dict[str, Counter[str]] = {}
    package = root / "kgprof"
    for path in sorted(package.rglob("*.py")):
        rooms.setdefault(_room(path, package), Counter()).update(of_module(path.read_text("utf-8")))
    for path in sorted(package.rglob("*.toml")):
        rooms.setdefault(_room(path, package), Counter())[ENTRIES] += entries(
            tomllib.loads(path.read_text("utf-8"))
        )
    for path in sorted((root / TEMPLATES).rglob("*.jinja")):
        rooms.setdefault(TEMPLATES, Counter())[TEMPLATE_NODES] += template_nodes(
            path.read_text("utf-8")
        )
    return {room: Meters(counts) for room, counts in sorted(rooms.items())}


def whole(root: Path = ROOT) -> Meters:
    return Meters(sum((meters.counts for meters in by_room(root).values()), Counter()))


def _room(path: Path, package: Path) -> str:
    folders = path.relative_to(package).parts[:-1]
    return folders[0] if folders else "kgprof"


def of_module(text: str) -> Counter[str]:
    """Counts in the syntax tree of a module, without docstrings and without Load, Store and Del."""
    tree = ast.parse(text)
    docstrings = set(map(id, _docstrings(tree)))
    counts = Counter({LINES: len(text.splitlines())})
    counts[LONG_LINES] = sum(len(line) > COLUMNS for line in text.splitlines())
    for node in ast.walk(tree):
        if id(node) in docstrings or isinstance(node, ast.expr_context):
            continue
        counts[NODES] += 1
        counts[STATEMENTS] += isinstance(node, ast.stmt)
        counts[CONDITIONAL] += isinstance(node, ast.IfExp)
        counts[CLASSES] += isinstance(node, ast.ClassDef)
        if isinstance(node, ast.Call):
            counts[COPIED] += sum(map(_is_a_copy, node.keywords))
            counts[SKIPPED] += _asks_for_skipped(node)
    return counts


def median_function(root: Path = ROOT) -> float:
    """Returns the nodes of the function of which as many are smaller as are larger."""
    sizes = (
        sum(1 for _ in ast.walk(node))
        for path in (root / "kgprof").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return statistics.median(sizes)


def _docstrings(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields the statement and the constant of each docstring."""
    for node in ast.walk(tree):
        if (
            not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            or not node.body
        ):
            continue
        first = node.body[0]
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            yield first
            yield first.value


def _is_a_copy(keyword: ast.keyword) -> bool:
    """Says whether it is ``x=x`` or ``x=y.x``; an underscore before a name does not count."""
    value = keyword.value
    name = (
        value.id
        if isinstance(value, ast.Name)
        else value.attr
        if isinstance(value, ast.Attribute)
        else None
    )
    return (
        name is not None and keyword.arg is not None and name.lstrip("_") == keyword.arg.lstrip("_")
    )


def _asks_for_skipped(call: ast.Call) -> bool:
    """Says whether it is ``isinstance(x, Skipped)`` of a value that is not computed in the same
    place."""
    if not (
        isinstance(call.func, ast.Name) and call.func.id == "isinstance" and len(call.args) == 2
    ):
        return False
    asked, kind = call.args
    named = (
        kind.attr
        if isinstance(kind, ast.Attribute)
        else kind.id
        if isinstance(kind, ast.Name)
        else ""
    )
    return named == "Skipped" and not any(isinstance(node, ast.Call) for node in ast.walk(asked))


def template_nodes(text: str) -> int:
    """Counts the nodes of a template, as jinja2 parses it."""
    return sum(
        1
        for _ in _below(
            jinja2.Environment(extensions=["jinja2.ext.do"], autoescape=True).parse(text)
        )
    )


def _below(node: jinja2.nodes.Node) -> Iterator[jinja2.nodes.Node]:
    yield node
    for child in node.iter_child_nodes():
        yield from _below(child)


def entries(value: Any) -> int:
    """Counts the values of a data file that hold no others."""
    if isinstance(value, dict):
        return sum(map(entries, value.values()))
    if isinstance(value, list):
        return sum(map(entries, value))
    return 1


def made_code(tree: ast.Module) -> Iterator[str]:
    """Yields eval, exec and compile as often as they are named or called."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and node.id in CALLED_ON_TEXT
        ):
            yield node.id
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in CALLED_ON_TEXT
            and _is_builtins(node.value)
        ):
            yield node.attr


def _is_builtins(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("builtins", "__builtins__")


def table(rooms: dict[str, Meters]) -> Iterable[str]:
    """Yields the lines of the table; the last one is of all rooms."""
    yield (
        f"{'room':<12}{'size':>9}{'nodes/stmt':>12}{'cond/1000':>11}{'classes':>9}{'copied':>8}{'skipped':>9}{'>100 columns':>14}"  # noqa: E501
    )
    everything = Meters(sum((meters.counts for meters in rooms.values()), Counter()))
    for room, meters in (*rooms.items(), ("all", everything)):
        counts = meters.counts
        yield (
            f"{room:<12}{meters.size:>9,}{meters.nodes_per_statement:>12.2f}{meters.conditional_per_1000_lines:>11.1f}{counts[CLASSES]:>9}{counts[COPIED]:>8}{counts[SKIPPED]:>9}{counts[LONG_LINES]:>14,}"
        )


if __name__ == "__main__":
    print("\n".join(table(by_room())))  # noqa: T201
    print(f"nodes of the median function: {median_function():.0f}")  # noqa: T201
