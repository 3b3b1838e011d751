"""Whether code that is offered fits the place where it would be written.

It parses; its names are visible there; a library's class, and a function that gets an argument
more, stand in the program; what it adds is not there yet.
"""

import ast
import builtins
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import PurePath

from kgprof import model as m
from kgprof.reading.number_uses import is_on
from kgprof.reading.source_text import SourceText

COMMENT = "  # "
_LONGEST = 120  # of a call of the program's own that is written again with an argument more
# what every program of torch may name, or import
_KNOWN = {*dir(builtins), *sys.stdlib_module_names, "torch", "nn", "DataLoader", "..."}
_Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Scope = _Named | ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def fitted(source: SourceText, finding: m.Finding, fix: str) -> str:
    """The fix, if it fits; with the call that stands at the finding's line where it adds an
    argument to that. Empty if it does not fit."""
    place = finding.location
    places = [place, *finding.related] if place else finding.related
    code, mark, comment = fix.partition(COMMENT)
    tree = _parsed(code)
    if tree is None or not _is_made_of_known_names(source, places, tree):
        return ""
    adding = (call for call in _open_calls(tree) if call.keywords)
    if not all(_is_in_the_program(source, call) for call in adding):
        return ""
    if place is None:
        return fix
    calls = [
        node
        for node in ast.walk(source.tree(place.file))
        if isinstance(node, ast.Call) and is_on(node, place.line)
    ]
    if _stands_there(tree, calls):
        return ""
    return f"{_with_own_call(tree, calls) or code}{mark}{comment}"


def _parsed(code: str) -> ast.Module | None:
    """The head of a statement and a decorator are code, too."""
    for whole in (code, f"{code} ...", f"{code}\ndef f(): ..."):
        try:
            return ast.parse(whole)
        except (SyntaxError, ValueError):
            continue
    return None


def _is_made_of_known_names(
    source: SourceText, places: Sequence[m.Location], tree: ast.Module
) -> bool:
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    free = {node.id for node in names} - made - _KNOWN
    # a library's class has a capital letter, and so has a number to choose
    free = {name for name in free if not name[0].isupper()}
    if not free or not places:
        return True
    own = [place for place in places if source.project.holds(place.file)]
    trees = [(source.tree(place.file), place.line) for place in own]
    trees += _written_again(source, tree)
    called = {_last(call.func) for call in _open_calls(tree)}
    known = {PurePath(file).stem for file in source.own} | _words(source, frozenset(called))
    for its, line in trees:
        known |= visible(its, line)
    if not own:
        return False
    if not all(its.body for its, _ in trees):  # the text of one is not known
        return True
    return free <= known or "*" in known


def _written_again(source: SourceText, tree: ast.Module) -> Iterator[tuple[ast.Module, int]]:
    """The lines of the program with the call that the code is, but for its keywords."""
    match tree.body:
        case [ast.Expr(value=ast.Call() as new)] if not _is_open(new):
            written = ast.unparse(ast.Call(new.func, new.args, []))
        case _:
            return
    for file in source.files_with(_last(new.func)):
        for node in ast.walk(source.tree(file)):
            if not isinstance(node, ast.Call):
                continue
            if ast.unparse(ast.Call(node.func, node.args, [])) == written:
                yield source.tree(file), node.lineno


def visible(tree: ast.Module, line: int) -> set[str]:
    """The names that a line of a module may use: of the functions around it, and of the module;
    "*" where it imports all of another one."""
    names: set[str] = set()
    around: list[ast.AST] = [tree]
    while around:
        for child in ast.iter_child_nodes(around.pop()):
            names |= _bound(child)
            if not isinstance(child, _Scope) or is_on(child, line):
                around.append(child)
    return names


def _bound(node: ast.AST) -> set[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return {name}
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            return {name}
        case ast.Import(names=given) | ast.ImportFrom(names=given):
            return {each.asname or each.name.partition(".")[0] for each in given}
    return set()


@lru_cache(maxsize=64)  # several findings ask for the same
def _words(source: SourceText, names: frozenset[str]) -> frozenset[str]:
    """Those of the names that the program calls, defines or imports, by its last name."""
    words = set[str]()
    for file in source.files_with(*names):
        for node in ast.walk(source.tree(file)):
            match node:
                case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word):
                    words.add(word)
                case ast.FunctionDef(name=word) | ast.ClassDef(name=word):
                    words.add(word)
    return names & words


def _open_calls(tree: ast.Module) -> list[ast.Call]:
    """The calls of the program that are not written out: ``f(...)``, ``f(..., x=1)``."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_open(node)]


def _is_open(call: ast.Call) -> bool:
    return bool(call.args) and ast.unparse(call.args[0]) == "..."


def _is_in_the_program(source: SourceText, call: ast.Call) -> bool:
    """Whether what is called is torch's, or stands there, as far as texts are known."""
    name = _last(call.func)
    if ast.unparse(call.func).startswith("torch.") or name in _KNOWN:
        return True
    texts = any(file.text for file in source.own.values())
    return not texts or bool(_words(source, frozenset({name})))


def _last(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)


def _stands_there(tree: ast.Module, calls: list[ast.Call]) -> bool:
    """Whether a call at the line has the argument already."""
    match tree.body:
        case [ast.Assign(targets=[ast.Name(id=argument)], value=ast.Constant() as value)]:
            added = [ast.keyword(argument, value)]
            return any(_has_all(_given(call), added) for call in calls)
        case [ast.Expr(value=ast.Call() as new)] if _is_open(new) and new.keywords:
            same = [call for call in calls if _last(call.func) == _last(new.func)]
            has = [_given(call) for call in same]
            is_default = len(has) == 1 and _is_left_out(has[0], new.keywords)
            return is_default or any(_has_all(its, new.keywords) for its in has)
    return False


def _given(call: ast.Call) -> dict[str | None, str]:
    return {each.arg: ast.unparse(each.value) for each in call.keywords}


def _is_left_out(its: dict[str | None, str], keywords: list[ast.keyword]) -> bool:
    """Whether all that is added is None, as it is without these arguments."""
    is_nothing = all(ast.unparse(each.value) == "None" for each in keywords)
    return is_nothing and its.keys().isdisjoint({None, *(each.arg for each in keywords)})


def _has_all(its: dict[str | None, str], keywords: list[ast.keyword]) -> bool:
    """``...`` is any value."""
    values = ((its.get(each.arg), ast.unparse(each.value)) for each in keywords)
    return all(value is not None and wanted in ("...", value) for value, wanted in values)


def _with_own_call(tree: ast.Module, calls: list[ast.Call]) -> str:
    """The one call at the line that gets an argument, with it; empty where there is none."""
    match tree.body:
        case [ast.Expr(value=ast.Call() as new)] if _is_open(new) and len(new.args) == 1:
            same = [call for call in calls if _last(call.func) == _last(new.func)]
        case _:
            return ""
    if len(same) != 1 or not new.keywords or any(each.arg is None for each in same[0].keywords):
        return ""  # what ``**options`` brings is not known
    (call,) = same
    added = {each.arg for each in new.keywords}
    kept = [each for each in call.keywords if each.arg not in added]
    written = ast.unparse(ast.Call(call.func, call.args, [*kept, *new.keywords]))
    return written if len(written) <= _LONGEST else ""
