"""Finds every regular expression of kgprof and how it is asked: in the tree of its modules and in
secrets.toml."""

import ast
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeGuard

from kgprof import model as m
from kgprof.analysis import redaction, secrets
from kgprof.compare import changes

PACKAGE = Path(__file__).resolve().parent.parent / "kgprof"
CALLS = ("compile", "match", "search", "sub", "subn", "fullmatch", "split", "findall", "finditer")
FROM_ONE_PLACE = frozenset(("match", "fullmatch"))

# Functions that make expressions, and what is known of those.
MADE = {
    "analysis/redaction.py _beginning": "of the module's constants, which are looked at",
    "analysis/redaction.py _folders": "looked at below, with names of a machine",
    "analysis/redaction.py _names": "looked at below, with names of a machine",
    "analysis/redaction.py redacted_trace": "looked at below, with names of secrets",
    "compare/changes.py _takes": "looked at below, with names of a module",
    "compare/changes.py weight": "of the module's constants, which are looked at below",
    "compare/findings.py _by_text_without_names": "names as they are, between two ends of a word",
    "compare/upgrade.py causes": "an operator's name between two ends of a word",
    "gate/settings.py _kernel_kinds": "the person's own",
    "measures/kernel_kinds.py __init__": "the person's own",
    "reading/source_text.py _may_bind": "a name between two ends of a word",
    "reading/source_text.py gives": "an option's name at one end of a word, and blanks",
    "document/finding_list.py times": "a number and a word as they are",
}

# Expressions that a loop goes through, and calls match on.
MATCHED = {"torch_trace_files.py": ("_STDLIB", "_TORCH", "_GENERATED")}


class Expression(NamedTuple):
    place: str
    pattern: re.Pattern[Any]
    asked: frozenset[str]  # the methods that are called on it; empty if that is not known

    @property
    def searches(self) -> bool:
        """Says whether a match may begin anywhere in a text."""
        return not self.asked or not self.asked <= FROM_ONE_PLACE


def expressions() -> Iterator[Expression]:
    """Yields those of the modules, those of secrets.toml, and those that are made of names."""
    texts = {path: path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    everywhere = _uses(trees.values())
    for path, text in texts.items():
        if re.search(r"\bre\.\w", text):
            yield from _held(path, _module(path), _uses([trees[path]]), everywhere)
            yield from _called(path, trees[path])
    text = texts[Path(secrets.__file__)]
    for name, pattern in secrets._FIND.items():
        asked = frozenset(re.findall(rf'_FIND\["{name}"\]\.(\w+)', text))
        yield Expression(f"secrets.toml {name}", pattern, asked)
    yield from _made()


def _made() -> Iterator[Expression]:
    names = m.PrivateNames(
        users=("annabel", "al"),
        hosts=("build7.corp.example",),
        homes=("/srv/annabel",),
        import_folders=("/opt/x",),
    )
    for known in redaction.Redactor(names, root="/work/project")._patterns:
        yield Expression(f"redaction, {known.category}", known.find, frozenset())
    string = redaction._JSON_STRING.pattern
    yield Expression(
        "a trace's secrets", re.compile(rf'((?:"a_token"|"key")\s*:\s*){string}'), frozenset()
    )
    imported = r"\bsettings import [^#\n]{0,1000}\bWIDTH\b|\bsettings\.WIDTH\b"
    yield Expression("compare/changes.py _takes", re.compile(imported), frozenset())
    for doing in changes._DOING.values():
        yield Expression("compare/changes.py weight", re.compile(doing), frozenset())


def _module(path: Path) -> ModuleType:
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    return importlib.import_module(name.removesuffix(".__init__"))


def _held(
    path: Path, module: ModuleType, here: dict[str, set[str]], everywhere: dict[str, set[str]]
) -> Iterator[Expression]:
    """Yields what the names of a module hold, at any depth."""
    for name, value in vars(module).items():
        if isinstance(value, re.Pattern):
            asked = frozenset((here if name.startswith("_") else everywhere).get(name, ()))
            if name in MATCHED.get(path.name, ()):
                asked = frozenset(("match",))
            yield Expression(f"{path.name} {name}", value, frozenset() if "" in asked else asked)
        elif not isinstance(value, ModuleType) and name not in ("_FIND", "__builtins__"):
            for pattern in _inside(value):
                yield Expression(f"{path.name} {name}", pattern, frozenset())


def _inside(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _inside(item)
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from _inside(item)


def _uses(trees: Iterable[ast.Module]) -> dict[str, set[str]]:
    """Returns the methods that are called on each name anywhere; "" if it is handed on."""
    uses: dict[str, set[str]] = {}
    for tree in trees:
        nodes, called = list(ast.walk(tree)), set()
        for node in nodes:
            if isinstance(node, ast.Attribute) and (name := _last_name(node.value)):
                uses.setdefault(name, set()).add(node.attr)
                called.add(id(node.value))
        for node in nodes:
            if id(node) not in called and isinstance(getattr(node, "ctx", None), ast.Load):
                uses.setdefault(_last_name(node), set()).add("")
    return uses


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _called(path: Path, tree: ast.Module) -> Iterator[Expression]:
    """Yields what functions compile or ask at once."""
    place = path.relative_to(PACKAGE).as_posix()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        for call in ast.walk(function):
            if not _of_re(call):
                continue
            pattern, method = call.args[0], call.func.attr
            if isinstance(pattern, ast.Constant):
                yield Expression(
                    f"{place}:{call.lineno}", re.compile(pattern.value), frozenset((method,))
                )
            elif method not in FROM_ONE_PLACE and not _is_made(place, functions, call):
                raise AssertionError(
                    f"{place}:{call.lineno}: put its function into MADE of {__file__}"
                )


def _of_re(node: ast.AST) -> TypeGuard[Any]:
    called = node.func if isinstance(node, ast.Call) else None
    return (
        isinstance(called, ast.Attribute)
        and called.attr in CALLS
        and _last_name(called.value) == "re"
    )


def _is_made(place: str, functions: list[ast.FunctionDef], call: ast.Call) -> bool:
    return any(
        f"{place} {function.name}" in MADE
        and function.lineno <= call.lineno <= (function.end_lineno or 0)
        for function in functions
    )
