"""What a program's text says of torch.compile: where it stands, and which functions nothing in the
file calls."""

import ast
import re
from collections.abc import Iterator, Sequence

from kgprof.reading.number_uses import is_on

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Scope = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_OF_A_WORKLOAD = {"strategies", "prepare"}  # a class that has them may be one itself
_WORD = re.compile(r"[^\W\d]\w*")
# Python's own functions with which a file may call what it does not name.
_BY_ANY_NAME = {"eval", "exec", "getattr", "globals", "locals", "vars"}


def first_compile(text: str) -> int | None:
    """The line of the first ``torch.compile``, as a call or a decorator, whatever the file names
    it."""
    if "compile" not in text or (tree := _parsed(text)) is None:
        return None
    nodes = tuple(ast.walk(tree))
    modules = {"torch"}
    functions = set[str]()
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {each.asname for each in node.names if each.name == "torch" and each.asname}
        elif isinstance(node, ast.ImportFrom) and node.module == "torch":
            functions |= {each.asname or each.name for each in node.names if each.name == "compile"}
    taken = {
        id(each)
        for node in nodes
        if isinstance(node, ast.Call)
        for each in (*node.args, *(keyword.value for keyword in node.keywords))
    }
    lines = [
        node.lineno
        for node in nodes
        if id(node) not in taken  # as in signature(torch.compile)
        and (
            (isinstance(node, ast.Name) and node.id in functions)
            or (
                isinstance(node, ast.Attribute)
                and node.attr == "compile"
                and isinstance(node.value, ast.Name)
                and node.value.id in modules
            )
        )
    ]
    return min(lines, default=None)


def not_static(tree: ast.Module, line: int) -> str:
    """Write the call on a line that compiles with ``dynamic=False`` without it; "" where none
    does."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and is_on(call, line):
            others = [each for each in call.keywords if ast.unparse(each) != "dynamic=False"]
            if "compile" in ast.unparse(call.func) and len(others) < len(call.keywords):
                return ast.unparse(ast.Call(func=call.func, args=call.args, keywords=others))
    return ""


_THROWN_AWAY = "as a statement, which throws its result away (write {model} = {call})"


def thrown_away(text: str, line: int) -> str:
    """Say that nobody takes what the call of torch.compile on a line returns; else nothing."""
    tree = _parsed(text)
    for statement in () if tree is None else ast.walk(tree):
        if isinstance(statement, ast.Expr) and is_on(statement, line):
            call = statement.value
            is_one = isinstance(call, ast.Call) and ast.unparse(call.func).endswith("compile")
            if isinstance(call, ast.Call) and call.args and is_one:
                written = ast.unparse(call)
                return _THROWN_AWAY.format(model=ast.unparse(call.args[0]), call=written)
    return ""


_HIDDEN = "in a `try` whose `except` may hide what it raises"


def condition(text: str, line: int) -> str:
    """Name the innermost ``if`` that a line with torch.compile stands under, and a ``try`` that may
    hide what it raises; empty where there is neither.

    Whether the file is run as a script is no such condition.
    """
    tree = _parsed(text)
    found = ""
    for node in () if tree is None else ast.walk(tree):  # from the outside in
        if not isinstance(node, ast.If | ast.IfExp):
            continue
        test = ast.unparse(node.test)
        for side, words in ((node.body, "under"), (node.orelse, "in the else of")):
            if "__name__" not in test and _compiles(side, line):
                found = f"{words} `if {test}`"
    tried = any(
        isinstance(node, ast.Try) and node.handlers and _compiles(list(node.body), line)
        for node in (() if tree is None else ast.walk(tree))
    )
    return ", ".join(filter(None, (found, _HIDDEN if tried else "")))


def _compiles(side: ast.expr | list[ast.stmt], line: int) -> bool:
    """Whether what compiles on this line is on this side of a condition, on which both may be."""
    parts = side if isinstance(side, list) else [side]
    return any(is_on(node, line) and "compile" in ast.unparse(node) for node in parts)


def sets_true(text: str, name: str) -> int | None:
    """The first line that assigns True to an attribute of this name of a module of settings."""
    if name not in text or (tree := _parsed(text)) is None:
        return None
    lines = (
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and node.value.value is True
        and any(
            isinstance(target, ast.Attribute)
            and target.attr == name
            and "config" in ast.unparse(target.value)
            for target in node.targets
        )
    )
    return min(lines, default=None)


def uncalled(text: str) -> tuple[str, ...]:
    """Functions at the top of a file that can be called without arguments and that nothing in it
    leads to.

    Where one of them is called by another, the other alone: it is the one to begin with. A name in
    a string leads there too, as in ``Timer("step()")``. None where the file may call what it does
    not name.
    """
    tree = _parsed(text)
    if tree is None or any(_calls_by_any_name(node) for node in ast.walk(tree)):
        return ()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(None)  # a docstring calls nothing
    functions = {node.name: node for node in _top(tree.body) if isinstance(node, _Function)}
    reached = set[str]()
    new = {name for node in _top(tree.body) for name in _at_once(node)} & functions.keys()
    while new:
        reached |= new
        named = {name for function in new for name in _names(functions[function])}
        new = (named & functions.keys()) - reached
    left = [function for name, function in functions.items() if name not in reached]
    called = {name for function in left for name in _names(function) if name != function.name}
    roots = (
        function for function in left if function.name not in called and not _needed(function.args)
    )
    # Any other decorator may hand the function to somebody who calls it, as @app.command() does.
    return tuple(
        root.name for root in roots if set(map(_owner, root.decorator_list)) <= {"torch", "compile"}
    )


def no_step(text: str, name: str) -> str:
    """Return why what a file binds to a name cannot be one step, where the text alone shows it: a
    class, or a function that needs arguments; else nothing."""
    tree = _parsed(text)
    if tree is None:
        return ""
    bound = [node for node in ast.walk(tree) if name in _bound_by(node)]
    if len(bound) != 1 or bound[0] not in tree.body:
        return ""
    (node,) = bound
    if isinstance(node, ast.ClassDef) and not (node.decorator_list or node.bases or node.keywords):
        return "" if _assigned(node.body) & _OF_A_WORKLOAD else "is a class"
    if isinstance(node, ast.FunctionDef) and not node.decorator_list:
        needed = _needed(node.args)
        return f"needs {', '.join(needed)}" if needed else ""
    return ""


def _bound_by(node: ast.AST) -> set[str]:
    if isinstance(node, _Function | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        # function.__defaults__ = (3,) makes another function of it
        owner = node.value if isinstance(node, ast.Attribute) else node
        return {owner.id} if isinstance(owner, ast.Name) else set()
    if isinstance(node, ast.alias):
        return {node.asname or node.name.partition(".")[0]}
    return set()


def _assigned(body: Sequence[ast.stmt]) -> set[str]:
    """The names that statements of a class assign to."""
    parts = (part for each in body for part in ast.walk(each))
    return {name for part in parts for name in _bound_by(part)}


def _needed(arguments: ast.arguments) -> list[str]:
    """The names of the arguments that have no default."""
    positional = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    without = [each.arg for each, default in keywords if default is None]
    return positional[: len(positional) - len(arguments.defaults)] + without


def _owner(decorator: ast.expr) -> str:
    """``torch`` of ``@torch.compile(dynamic=True)``."""
    while isinstance(decorator, ast.Call | ast.Attribute):
        decorator = decorator.func if isinstance(decorator, ast.Call) else decorator.value
    return decorator.id if isinstance(decorator, ast.Name) else ""


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):  # written for another Python, or none
        return None


def _top(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module, those under an ``if`` or in a ``try`` or ``with`` among them."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody"):
            if not isinstance(node, (*_Scope, ast.ClassDef)):
                yield from _top(getattr(node, part, []))


def _at_once(node: ast.stmt) -> Iterator[str]:
    """Names that run with the statement: of a function its decorators and defaults."""
    if isinstance(node, _Function):
        parts: list[ast.AST] = [*node.decorator_list, *node.args.defaults]
        yield from (name for part in parts for name in _names(part))
    else:
        inner = {
            each
            for part in ast.walk(node)
            if isinstance(part, _Function)
            for each in ast.walk(part)
        }
        every = (
            part for part in ast.walk(node) if isinstance(node, ast.ClassDef) or part not in inner
        )
        yield from (name for part in every for name in _said_in(part))


def _names(node: ast.AST) -> Iterator[str]:
    return (name for part in ast.walk(node) for name in _said_in(part))


def _said_in(part: ast.AST) -> Sequence[str]:
    """The name that one part of the tree is, or the words of its string."""
    if isinstance(part, ast.Name):
        return (part.id,)
    if isinstance(part, ast.Constant) and isinstance(part.value, str):
        return _WORD.findall(part.value)
    return ()


def _calls_by_any_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in _BY_ANY_NAME
