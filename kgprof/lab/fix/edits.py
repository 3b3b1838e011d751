"""A program's text with lines and arguments added, each where a person would write it.

The syntax tree gives the positions; what stands between them stays as it is: comments, quotes,
blanks and line ends.
"""

import ast
import io
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, takewhile
from typing import NamedTuple

from kgprof.reading.code_to_write import visible

_BYTE_ORDER_MARK = "\ufeff"
_Import = ast.Import | ast.ImportFrom
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# what a keyword is that says no more than its default does
_SAYS_NOTHING = (None, "default")


class Edit(NamedTuple):
    """New text for the characters from ``start`` to ``end``."""

    start: int
    end: int
    text: str


class Program:
    """The text of a module, its tree, and what it calls the parts of torch.

    Raises SyntaxError for a text that is no program.
    """

    def __init__(self, text: str) -> None:
        self.text = text.removeprefix(_BYTE_ORDER_MARK)
        self.mark = text[: len(text) - len(self.text)]
        self.tree = ast.parse(self.text)
        self.nodes = list(ast.walk(self.tree))
        self._lines = list(io.StringIO(self.text, newline=""))
        self._starts = list(accumulate(map(len, self._lines), initial=0))
        self._line_end = "\r\n" if self._lines and self._lines[0].endswith("\r\n") else "\n"
        self._names = _imported(self.nodes)
        self._missing: list[str] = []

    def dotted(self, node: ast.AST) -> str:
        """``torch.optim.AdamW``, whatever the program calls it; empty for what it did not
        import."""
        match node:
            case ast.Name(id=name):
                return self._names.get(name, "")
            case ast.Attribute(value=value, attr=attr):
                owner = self.dotted(value)
                return owner and f"{owner}.{attr}"
        return ""

    def calls(self, *last: str) -> list[ast.Call]:
        """The calls of functions and classes of torch of these names."""
        calls = (node for node in self.nodes if isinstance(node, ast.Call))
        return [call for call in calls if self._is_of_torch(call.func, last)]

    def mentions(self, *last: str) -> bool:
        """Tell whether the program names a part of torch, or of gc, by one of these names."""
        return any(self._is_of_torch(node, last) for node in self.nodes)

    def values(self, name: str) -> Iterator[ast.AST]:
        """Yield the parts of what is assigned to a name."""
        for node in self.nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign) and _assigns(node, name):
                yield from ast.walk(node)

    def _is_of_torch(self, node: ast.AST, last: Sequence[str]) -> bool:
        owner, _, name = self.dotted(node).rpartition(".")
        return name in last and owner.partition(".")[0] in ("torch", "gc")

    def written(self, dotted: str) -> str:
        """Write a part of a module as the program can at its top level; what it has not imported is
        added to its imports by ``edited``."""
        offered = {
            target: local
            for local, target in _imported(self.tree.body).items()
            if f"{dotted}.".startswith(f"{target}.")
        }
        if not offered:
            self._missing.append(dotted.partition(".")[0])
            return dotted
        longest = max(offered)
        return offered[longest] + dotted.removeprefix(longest)

    def edited(self, edits: Sequence[Edit]) -> str | None:
        """Make the changes, and import what they need. None where there are none."""
        imports = [self._imports(module) for module in dict.fromkeys(self._missing)]
        if not edits or None in imports:
            return None
        pieces = []
        at = 0
        ordered = sorted(filter(None, (*imports, *edits)), key=lambda edit: edit.start)
        for edit in ordered:
            pieces += [self.text[at : edit.start], edit.text]
            at = edit.end
        return "".join((self.mark, *pieces, self.text[at:]))

    # ---------------------------------------------------------------- inside a line

    def replaced(self, node: ast.expr, text: str) -> Edit:
        return Edit(self._offset(node.lineno, node.col_offset), self._end(node), text)

    def argument(self, call: ast.expr, name: str, value: str) -> list[Edit]:
        """Give a call, or a decorator, a keyword. Nothing where it has it, or says what else it has
        in a variable; None and "default" are replaced."""
        end = self._end(call)
        new = f"{name}={value}"
        if not isinstance(call, ast.Call):
            return [Edit(end, end, f"({new})")]
        keywords = {each.arg: each.value for each in call.keywords}
        if None in keywords:
            return []
        match keywords.get(name):
            case ast.Constant(value=old) as given if old in _SAYS_NOTHING:
                return [self.replaced(given, value)]
            case ast.expr():
                return []
        tokens = self._tokens
        is_generator = bool(call.args) and self._end(call.args[-1]) == end
        if end not in tokens or is_generator:  # it is inside a string, or needs brackets of its own
            return []
        before, token = [each for each in tokens.items() if each[0] < end][-1]
        if not keywords and not call.args:
            return [Edit(before, before, new)]
        comma = "" if token.string == "," else ","
        last = _last_line(call)
        if self.text[self._starts[last - 1] : end - 1].strip():  # its bracket has company
            return [Edit(before, before, f"{comma} {new}")]
        return [Edit(before, before, comma), self._line(last, f"{new},", token.start[0])]

    def _offset(self, line: int, column: int) -> int:
        """Count characters; the tree counts the bytes of a line."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def _end(self, node: ast.expr) -> int:
        return self._offset(_last_line(node), node.end_col_offset or 0)

    @cached_property
    def _tokens(self) -> dict[int, tokenize.TokenInfo]:
        """By where they end: all but comments, and the line ends inside brackets."""
        reading = io.StringIO(self.text, newline="").readline
        return {
            self._starts[token.end[0] - 1] + token.end[1]: token
            for token in tokenize.generate_tokens(reading)
            if token.type != tokenize.COMMENT and token.string.strip()
        }

    # ---------------------------------------------------------------- whole lines

    def after_assignment(self, name: str, code: str, *, used: bool = False) -> list[Edit]:
        """Add a line after the last statement at the top level that assigns a name of the module,
        or that uses it. Nothing where a function assigns it too: at its first call, say."""
        if any(isinstance(node, ast.Global) and name in node.names for node in self.nodes):
            return []
        block = self.tree.body
        assigning = [at for at, each in enumerate(block) if _assigns(each, name)]
        if not assigning or _is_empty(block[assigning[-1]]):
            return []
        users = [at for at, each in enumerate(block) if used and _uses(each, name)]
        last = max(assigning + users)
        if isinstance(block[last], _Import):
            return self.after_imports(code)
        return [self._after(block, last, code)]

    def wrapped(self, function: str, code: str, *, inside: bool = False) -> list[Edit]:
        """Decorate a function of the module, outside or inside of its other decorators; where it is
        the value of a name, wrap that."""
        body = self.tree.body
        functions = (node for node in body if isinstance(node, ast.FunctionDef))
        found = [node for node in functions if node.name == function]
        if not found:
            return self.after_assignment(function, f"{function} = {code}({function})")
        its = found[-1]
        decorators = [] if inside else its.decorator_list
        first = min([its.lineno, *(each.lineno for each in decorators)])
        return [self._line(first, f"@{code}", its.lineno)]

    def after_imports(self, code: str) -> list[Edit]:
        """Add a line after the imports and the settings that follow them, apart from the imports
        where the rest of the program is."""
        top = self._top
        imports = [at for at, each in enumerate(top) if isinstance(each, _Import)]
        if not imports:
            return []
        settings = takewhile(_is_setting, top[imports[-1] + 1 :])
        last = imports[-1] + len(list(settings))
        following = self._lines[_last_line(top[last]) :]
        is_apart = last == imports[-1] and bool(following) and not following[0].strip()
        return [self._after(top, last, "\n" * is_apart + code)]

    def at_end(self, code: str) -> list[Edit]:
        """Add a line at the end, before what runs only as a script."""
        body = [node for node in self.tree.body if not _is_of_script(node)]
        if not body:
            return []
        return [self._after(body, len(body) - 1, "\n\n" * isinstance(body[-1], _Definition) + code)]

    @property
    def _top(self) -> list[ast.stmt]:
        """The module down to its first definition."""
        return list(takewhile(lambda node: not isinstance(node, _Definition), self.tree.body))

    def _imports(self, module: str) -> Edit | None:
        """Import a module where the order of names puts it. None in a program without imports."""
        imports = [each for each in self._top if isinstance(each, _Import)]
        imports = [each for each in imports if _root(each) != "__future__"]
        if not imports:
            return None
        is_standard = module in sys.stdlib_module_names
        alike = [
            each for each in imports if (_root(each) in sys.stdlib_module_names) == is_standard
        ]
        before = [each for each in alike if isinstance(each, ast.Import) and _root(each) < module]
        code = f"import {module}"
        if before:
            return self._after(before, len(before) - 1, code)
        first = (alike or imports)[0]
        return self._line(first.lineno, code if alike else f"{code}\n", first.lineno)

    def _after(self, block: Sequence[ast.stmt], at: int, code: str) -> Edit:
        """Add a line after a statement, and after those that share its line."""
        beside = block[at].lineno
        last = _last_line(block[at])
        for each in block[at + 1 :]:
            last = _last_line(each) if each.lineno == last else last
        return self._line(last + 1, code, beside)

    def _line(self, before: int, code: str, beside: int) -> Edit:
        """Add a line before that of a number, indented as another one is."""
        at = self._starts[before - 1]
        its = self._lines[beside - 1]
        indent = its[: len(its) - len(its.lstrip())]
        lines = (indent + line + self._line_end for line in code.split("\n"))
        new = "".join(lines)
        if at == len(self.text) and not self.text.endswith(("\n", "\r")):
            new = self._line_end + new.removesuffix(self._line_end)
        return Edit(at, at, new)


def _imported(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """By the name that the program gives it: what an import is of."""
    names: dict[str, str] = {}
    for node in nodes:
        match node:
            case ast.Import(names=given):
                for each in given:
                    root = each.name.partition(".")[0]
                    names |= {each.asname: each.name} if each.asname else {root: root}
            case ast.ImportFrom(module=str(module), names=given, level=0):
                names |= {each.asname or each.name: f"{module}.{each.name}" for each in given}
    return names


def _root(node: _Import) -> str:
    """The package of an import; empty of one from this package."""
    dotted = node.names[0].name if isinstance(node, ast.Import) else node.module or "."
    return dotted.partition(".")[0]


def _last_line(node: ast.expr | ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _is_setting(node: ast.stmt) -> bool:
    """Tell a call for its own sake, and a value of something that was imported."""
    match node:
        case ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
    return False


def _is_of_script(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _assigns(node: ast.stmt, name: str) -> bool:
    """Tell whether a statement gives a name its value, in its blocks too."""
    return not _is_of_script(node) and name in visible(ast.Module([node], []), 0)


def _is_empty(node: ast.stmt) -> bool:
    """Tell an assignment of None, or of nothing: ``model: Net``."""
    match node:
        case ast.Assign(value=ast.Constant()) | ast.AnnAssign(value=ast.Constant() | None):
            return True
    return False


def _uses(node: ast.stmt, name: str) -> bool:
    """Tell whether a statement names something when it is reached, and goes on."""
    if isinstance(node, _Definition | ast.Return) or _is_of_script(node):
        return False
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node))
