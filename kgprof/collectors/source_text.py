"""The project's source as the Recording holds it: which function a line is in, and where that function's ``def`` is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kgprof.compile_records import Sources
from kgprof.model import Location
from kgprof.project import ProjectFiles

# Dynamo continues after a break in a function of this name; its first line is the line of the break.
_RESUME = re.compile(r"torch_dynamo_resume_in_(?P<function>.*)_at_(?P<line>\d+)")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def user_function(name: str) -> str:
    """The user's function behind one that Dynamo made to go on after a break, or ``name`` itself."""
    while found := _RESUME.fullmatch(name):
        name = found["function"]
    return name


def is_resumed(name: str) -> bool:
    return _RESUME.fullmatch(name) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Definition:
    """A function in a file: ``first`` is its first decorator's line, ``line`` that of ``def``."""

    qualified: str
    name: str
    first: int
    line: int
    last: int

    def begins_at(self, first_line: int, *, resumed: bool) -> bool:
        """Whether a code object with this first line is the function's; one that goes on after a break lies in it."""
        return self.first <= first_line <= self.last if resumed else self.first == first_line


class SourceText:
    """Answers from the files that the Recording brought along; without their text, places stay as torch named them."""

    def __init__(self, sources: Sources) -> None:
        self.project = ProjectFiles(libraries=sources.libraries, own=sources.own)
        self._files = sources.files
        self._lines: dict[str, list[str]] = {}
        self._definitions: dict[str, tuple[_Definition, ...]] = {}

    def at(self, file: str, line: int, function: str = "") -> Location:
        """A line as a place to point at, with the function that it is in and its text."""
        inside = [found for found in self._functions(file) if found.first <= line <= found.last]
        name = max(inside, key=lambda found: found.line).qualified if inside else user_function(function)
        return Location(file=file, line=line, function=name, text=self._line(file, line))

    def definition(self, file: str, first_line: int, function: str) -> Location:
        """The ``def`` line of a code object. A lambda or a comprehension has none: its own line stands for it."""
        name = user_function(function)
        found = [
            candidate
            for candidate in self._functions(file)
            if candidate.name == name and candidate.begins_at(first_line, resumed=is_resumed(function))
        ]
        if not found:
            return self.at(file, first_line, function)
        definition = max(found, key=lambda candidate: candidate.line)
        line = definition.line
        return Location(file=file, line=line, function=definition.qualified, text=self._line(file, line))

    def in_repository(self, file: str) -> str:
        """``file`` relative to the repository that it lies in, so that two checkouts name it alike."""
        root = self._files[file].repository if file in self._files else ""
        return file[len(root) + 1 :] if root and file.startswith(root) else file

    def innermost(self, stack: tuple[Location, ...]) -> Location | None:
        """The project's line nearest to what happened (a stack is outermost first)."""
        own = [place for place in stack if self.project.holds(place.file)]
        return self.at(own[-1].file, own[-1].line, own[-1].function) if own else None

    def arguments(self, file: str, first_line: int, function: str) -> tuple[str, ...]:
        """The names of a function's arguments as its ``def`` has them, whatever part of it the code object is."""
        place = self.definition(file, first_line, function)
        for node in ast.walk(self._tree(file)):
            if isinstance(node, _Function) and node.lineno == place.line:
                given = node.args
                stars = [star for star in (given.vararg, given.kwarg) if star is not None]
                return tuple(a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs, *stars))
        return ()

    def rebound(self, name: str) -> tuple[Location, ...]:
        """The project's lines that put something else under the attribute, key, global or closed-over variable
        ``name``, constructors and the module's own level left out. A ``setattr`` with a computed name stands in for
        them where there is none."""
        found: list[Location] = []
        computed: list[Location] = []
        for file in self._files:
            if self.project.holds(file):
                for line, exact in _bindings(self._tree(file), name):
                    (found if exact else computed).append(self.at(file, line))
        return tuple(dict.fromkeys(found or computed))

    def branches(self, place: Location, call: str) -> tuple[tuple[Location, ...], ...]:
        """The lines on which each function given to ``call`` (``cond``) at ``place`` returns: of those that plainly
        return an argument, a view of one or a name twice where there are any, else of all of them."""
        tree = self._tree(place.file)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _named(node.func) == call and _covers(node, place.line):
                functions = [found for argument in node.args if (found := _function_in(tree, argument)) is not None]
                returned = [[*_returning(function)] for function in functions]
                plain = [
                    [value for value in values if _aliases(f, value)]
                    for f, values in zip(functions, returned, strict=True)
                ]
                return tuple(
                    tuple(self.at(place.file, line) for line in dict.fromkeys(value.lineno for value in values))
                    for values in (plain if any(plain) else returned)
                )
        return ()

    def _tree(self, file: str) -> ast.AST:
        text = self._files[file].text if file in self._files else None
        try:
            return ast.parse(text or "")
        except (SyntaxError, ValueError):  # written for another Python, or no Python at all
            return ast.Module(body=[], type_ignores=[])

    def _line(self, file: str, line: int) -> str:
        if file not in self._lines:
            text = self._files[file].text if file in self._files else None
            self._lines[file] = (text or "").splitlines()
        lines = self._lines[file]
        return lines[line - 1] if 0 < line <= len(lines) else ""

    def _functions(self, file: str) -> tuple[_Definition, ...]:
        if file not in self._definitions:
            text = self._files[file].text if file in self._files else None
            self._definitions[file] = tuple(_definitions(text)) if text else ()
        return self._definitions[file]


def _definitions(text: str) -> Iterator[_Definition]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # written for another Python, or no Python at all
        return
    yield from _inside(tree, "")


def _inside(node: ast.AST, prefix: str) -> Iterator[_Definition]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function):
            yield _definition(child, prefix)
        named = isinstance(child, _Function | ast.ClassDef)
        yield from _inside(child, f"{prefix}{child.name}." if named else prefix)  # type: ignore[attr-defined]


def _definition(node: _Function, prefix: str) -> _Definition:
    return _Definition(
        qualified=f"{prefix}{node.name}",
        name=node.name,
        first=min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]),
        line=node.lineno,
        last=node.end_lineno or node.lineno,
    )


# ---------------------------------------------------------------- what rebinds a name


def _bindings(tree: ast.AST, name: str) -> Iterator[tuple[int, bool]]:
    """Lines inside functions that bind ``name``, and whether the name stands there or is computed."""
    for function in ast.walk(tree):
        if not isinstance(function, _Function) or function.name == "__init__":
            continue
        outer = {n for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal) for n in node.names}
        for node in ast.walk(function):
            if _binds(node, name, outer):
                yield node.lineno, True  # type: ignore[attr-defined]
            elif isinstance(node, ast.Call) and _named(node.func) == "setattr" and len(node.args) == 3:
                given = node.args[1]
                if not isinstance(given, ast.Constant) or given.value == name:
                    yield node.lineno, isinstance(given, ast.Constant)


def _binds(node: ast.AST, name: str, outer: set[str]) -> bool:
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        inner = node.value if node.attr == "data" else node
        return isinstance(inner, ast.Attribute) and inner.attr == name
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return isinstance(node.slice, ast.Constant) and str(node.slice.value) == name
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name and name in outer


# ---------------------------------------------------------------- what a branch returns


def _named(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _covers(node: ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _function_in(tree: ast.AST, argument: ast.expr) -> ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function that an argument names (or a method of that name), in the same file."""
    if isinstance(argument, ast.Lambda):
        return argument
    name = _named(argument)
    found = [node for node in ast.walk(tree) if isinstance(node, _Function) and node.name == name]
    return found[-1] if name and found else None


def _returning(function: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    if isinstance(function, ast.Lambda):
        yield function.body
        return
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value


# Methods and attributes of a tensor that may give a view of it or the tensor itself.
_VIEWS = frozenset(
    {
        "view",
        "view_as",
        "reshape",
        "t",
        "T",
        "mT",
        "transpose",
        "permute",
        "squeeze",
        "unsqueeze",
        "expand",
        "flatten",
        "expand_as",
        "narrow",
        "select",
        "detach",
        "contiguous",
        "diagonal",
        "unfold",
        "swapaxes",
        "movedim",
    }
)


def _aliases(function: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef, value: ast.expr) -> bool:
    """Whether what is returned is an argument, a view of one, or the same name twice, as far as the text tells."""
    values = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
    names = [entry.id for entry in values if isinstance(entry, ast.Name)]
    arguments = {argument.arg for argument in function.args.args}
    return len(set(names)) < len(names) or any(_base_name(entry) in arguments for entry in values)


def _base_name(value: ast.expr) -> str:
    """The variable that views were taken of, one after the other; empty where something else was done to it."""
    while not isinstance(value, ast.Name):
        if isinstance(value, ast.Subscript):
            value = value.value
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _VIEWS:
            value = value.func.value
        elif isinstance(value, ast.Attribute) and value.attr in _VIEWS:
            value = value.value
        else:
            return ""
    return value.id
