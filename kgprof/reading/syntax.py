"""What the text of a program says: which lines bind a name, and what the functions given to a call return."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
Callee = ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef


def bindings(tree: ast.AST, name: str) -> Iterator[tuple[int, bool]]:
    """Lines inside functions that bind ``name``, and whether the name stands there or is computed."""
    for function in ast.walk(tree):
        if not isinstance(function, Function) or function.name == "__init__":
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


def returned_by_branches(tree: ast.AST, call: str, line: int) -> tuple[tuple[int, ...], ...]:
    """For each function given to ``call`` (``cond``) on ``line`` the lines on which it returns: of those that plainly
    return an argument, a view of one or a name twice where there are any, else of all of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _named(node.func) == call and node.lineno <= line <= (node.end_lineno or 0):
            # The function that an argument names (or a method of that name), in the same file.
            named = {inner.name: inner for inner in ast.walk(tree) if isinstance(inner, Function)}
            given = [each if isinstance(each, ast.Lambda) else named.get(_named(each)) for each in node.args]
            functions: list[Callee] = [function for function in given if function is not None]
            returned = [
                [function.body]
                if isinstance(function, ast.Lambda)
                else [inner.value for inner in ast.walk(function) if isinstance(inner, ast.Return) and inner.value]
                for function in functions
            ]
            plain = [[v for v in values if _aliases(f, v)] for f, values in zip(functions, returned, strict=True)]
            return tuple(
                tuple(dict.fromkeys(value.lineno for value in values)) for values in (plain if any(plain) else returned)
            )
    return ()


def _named(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


# Methods and attributes of a tensor that may give a view of it or the tensor itself.
_VIEWS = frozenset(
    (
        *("view", "view_as", "reshape", "t", "T", "mT", "transpose", "permute", "squeeze", "unsqueeze", "expand"),
        *("flatten", "expand_as", "narrow", "select", "detach", "contiguous", "diagonal", "unfold", "swapaxes"),
        "movedim",
    )
)


def _aliases(function: Callee, value: ast.expr) -> bool:
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
