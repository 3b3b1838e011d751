"""What stands in torch's own texts of a compilation: the operators of Dynamo's graph, the calls of
Inductor's code, and the guards.

Names of variables, numbers behind names, hashes, comments and line numbers are taken away, so that
the same work reads the same whatever its author calls things. Formats: the Python that
``GraphModule.print_readable`` and Inductor's ``PythonWrapperCodegen`` write (torch 2.8 to 2.15).
"""

import ast
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping

from kgprof import model as m

_PLACE = re.compile(
    r"\s*# File: (?P<file>.+?):(?P<line>\d{1,9}) in (?P<function>\S+)(?:, code: .*)?$"
)
_PARAMETER = re.compile(r"(?<!\w)(?P<name>\w+): \"(?P<type>[^\"]*)\"")
_FORWARD = re.compile(r"\s*def forward\(self(?:, (?P<parameters>.*))?\):")
# functions that change more than what they are given
_EFFECT = re.compile(r"_set_|_enter|_exit|autocast|_mode|nesting|dispatch|_push|_pop")
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # by ast.parse
_CLASS = re.compile(r"\s*class (?P<name>\w+)\(")
_SYMBOL = re.compile(r"\b[suz]\d+\b")
_NUMBER = re.compile(r"_?(?<!\d)\d+$")
_CALLERS = ("call", "inner_call")
# functions of the generated module that are not a part of a step
_BESIDE = ("benchmark_compiled_module", "get_args", "recursively_apply_fns", "__init__")
_COPY = ".copy_"  # between devices
_LIBRARY = re.compile(r"(?:extern_kernels|aten|torch\.ops)\.")
# fields of a Triton kernel that name the machine, the process or the kernel itself
_OWN_FIELDS = re.compile(
    r"'(?:backend_hash|kernel_name|device_str|autotune_local_cache)': [^,}]+,?"
)
_CPP_COMMENT = re.compile(r"(?://|#include ).*")

_USED = re.compile(
    r"(?>.*?#\s+)(?P<text>.*?)# (?P<file>[^#]+?):(?P<line>\d{1,9}) in (?P<function>[^\s(]+)"
)


# what it does, and the line of the program that torch names for it
Operator = tuple[str, m.SourceLine | None]
# the function's name in the code, and what the call is without the number behind that name
Call = tuple[str, str]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# ---------------------------------------------------------------- Dynamo's graph


def graph(text: str) -> tuple[tuple[Operator, ...], str] | m.Skipped:
    """The operators of Dynamo's graph in torch's words, its nested graphs' too, and the graph's
    digest: of each operator with the digests of what it is given, in any order that has the same
    effects. Inputs of one type are exchangeable."""
    nested: list[tuple[str, list[str]]] = []
    for row in text.splitlines():
        if begins := _CLASS.match(row):
            nested.append((begins["name"], []))
        elif nested:
            nested[-1][1].append(row)
    symbols: dict[str, str] = {}
    digests: dict[str, str] = {}
    operators: list[Operator] = []
    bodies: list[_Body] = []
    # a graph stands before those that it has within it
    for name, rows in reversed(nested):
        body = _Body(symbols, digests)
        bodies.append(body)
        for row in rows:
            body.read(row)
        operators = body.operators + operators
        digests[name] = body.digest
    if not bodies or not all(body.is_read for body in bodies):
        return m.Skipped("a graph is not in torch's words")
    return tuple(operators), digests[nested[0][0]]


class _Body:
    """The ``forward`` of one graph, read row by row."""

    def __init__(self, symbols: dict[str, str], nested: Mapping[str, str]) -> None:
        """``symbols``: of sizes, with their names here; ``nested``: digests of graphs by name."""
        self.operators: list[Operator] = []
        self._symbols = symbols
        self._nested = nested
        self._digests: list[str] = []
        self._line: m.SourceLine | None = None
        self._types: dict[str, str] = {}
        self._given: dict[str, str] = {}  # the same variables with the digests of their values
        self.is_read = False
        self._state = ""  # of what has changed more than a variable: grad mode, a context

    @property
    def digest(self) -> str:
        return digest("\n".join(sorted(self._digests)))

    def read(self, row: str) -> None:
        if place := _PLACE.match(row):
            self._line = m.SourceLine(
                file=place["file"], line=int(place["line"]), function=place["function"]
            )
        elif begins := _FORWARD.match(row):
            parameters = _PARAMETER.findall(begins["parameters"] or "")
            self._types = {name: self._renamed(kind) for name, kind in parameters}
            self._given = dict(self._types)
            self._digests += self._given.values()
        elif row.lstrip().startswith("#"):
            self._line = None  # torch has no line for what follows
        elif row.strip():
            self._statements(row.strip())

    def _statements(self, row: str) -> None:
        try:
            statements = ast.parse(row).body
        except _UNREADABLE:
            self._operator(row, row)
            return
        for statement in statements:
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(value=ast.Constant(value=None)):
                return  # torch lets go of a variable
            case ast.Return(value=ast.expr() as value):
                self.is_read = True
                self._digests.append(digest(self._written(value, self._given)))
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.Name(id=other))
                | ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=other))
            ) if other in self._types:
                self._types[name] = self._types[other]
                self._given[name] = self._given[other]
            case ast.AnnAssign(
                target=ast.Name(id=name),
                annotation=ast.Constant(value=str(kind)),
                value=ast.expr() as value,
            ):
                self._makes(name, value, f" -> {self._renamed(kind)}", self._renamed(kind))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._makes(name, value, "", "_")
                if _EFFECT.search(ast.unparse(value).partition("(")[0]):
                    self._state = self._given[name]
            case ast.AugAssign(target=target) | ast.Assign(targets=[target]):
                self._changed(target, self._made(statement))
            case _:
                self._state = self._made(statement)

    def _makes(self, name: str, value: ast.expr, words: str, kind: str) -> None:
        made = self._made(value, words)
        match value:
            case ast.Call(func=ast.Attribute(value=target, attr=method)) if method.endswith(
                "_"
            ) and not method.endswith("__"):
                self._changed(target, made)
        self._types[name] = kind
        self._given[name] = made

    def _changed(self, target: ast.expr, made: str) -> None:
        """In place: whoever reads the variable or a view of it from here on reads another
        value."""
        self._state = made
        while isinstance(target, ast.Subscript | ast.Attribute):
            target = target.value
        if isinstance(target, ast.Name) and target.id in self._given:
            self._given[target.id] = made

    def _made(self, node: ast.AST, words: str = "") -> str:
        types, given = (self._written(node, names) for names in (self._types, self._given))
        return self._operator(types + words, given + words)

    def _operator(self, text: str, given: str) -> str:
        """The digest of an operator that is added; ``given``: it with digests for variables."""
        self.operators.append((text, self._line))
        made = digest(given + self._state)
        self._digests.append(made)
        return made

    def _written(self, node: ast.AST, names: Mapping[str, str]) -> str:
        copied = ast.parse(ast.unparse(node))
        replaced = _Replaced(names, nested=self._nested, symbols=self._renamed).visit(copied)
        return ast.unparse(replaced)

    def _renamed(self, words: str) -> str:
        """torch numbers a size's symbol by the name of what has it: here as they come."""
        symbols = self._symbols
        return _SYMBOL.sub(lambda found: symbols.setdefault(found[0], f"s{len(symbols)}"), words)


class _Replaced(ast.NodeTransformer):
    def __init__(
        self,
        names: Mapping[str, str],
        *,
        nested: Mapping[str, str],
        symbols: Callable[[str], str] = str,
        others: str = "",
    ) -> None:
        """``others``: for a name that is none of ``names``; empty: the name itself."""
        self._names = names
        self._nested = nested
        self._symbols = symbols
        self._others = others

    def visit_Name(self, node: ast.Name) -> ast.Name:
        known = self._names.get(node.id)
        return ast.Name(known or self._others or self._symbols(node.id))

    def visit_keyword(self, node: ast.keyword) -> ast.keyword | None:
        """A Triton kernel's place in a table of the process is no part of it."""
        if node.arg in ("kernel_idx", "constant_args_idx"):
            return None
        self.generic_visit(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """What is kept in the graph's module is a nested graph, or has a number for a name."""
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            kept = self._nested.get(node.attr) or _NUMBER.sub("", node.attr)
            return ast.Name(f"self.{kept}")
        self.generic_visit(node)
        return node


# ---------------------------------------------------------------- Inductor's code


def calls(code: str) -> tuple[Call, ...] | m.Skipped:
    """What the generated Python calls of kernels, libraries and copies, branches and loops
    included, in the order of its lines."""
    try:
        tree = ast.parse(code)
    except _UNREADABLE as error:
        return m.Skipped(f"the generated code is not Python ({type(error).__name__})")
    kernels = dict(_kernels(tree))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    if not any(function.name in _CALLERS for function in functions):
        return m.Skipped("the generated code has no function call")
    found = {
        (node.lineno, node.end_lineno, node.end_col_offset, node.col_offset): node
        for function in functions
        if function.name not in _BESIDE
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
    }
    sizes = dict(_sizes(tree))
    called = [_call(found[place], kernels, sizes) for place in sorted(found)]
    return tuple(call for call in called if call is not None)


def _kernels(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The name of each kernel in the code, and the digest of its source."""
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id="async_compile"), attr=language)
                ) as made,
            ):
                texts = (_source(each, name, language) for each in made.args)
                yield name, digest("\n".join(texts))


def _source(argument: ast.expr, name: str, language: str) -> str:
    """An argument of the kernel's compiler, without comments, the kernel's name and what is only
    about this machine."""
    if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
        return ast.unparse(argument)
    text = _OWN_FIELDS.sub("", argument.value.replace(name, _NUMBER.sub("", name)))
    if language.startswith("cpp"):
        return "\n".join(_CPP_COMMENT.sub("", line).rstrip() for line in text.splitlines())
    try:
        return ast.unparse(ast.parse(text))
    except _UNREADABLE:
        return text


def _sizes(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Variables that hold a number: symbols of sizes, and what is computed of them."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp() | ast.Constant()):
                yield name, _SYMBOL.sub("s", ast.unparse(node.value))
            case ast.Name(id=name) if _SYMBOL.fullmatch(name):
                yield name, "s"


def _call(call: ast.Call, kernels: Mapping[str, str], sizes: Mapping[str, str]) -> Call | None:
    """None for what launches nothing: views, allocations, checks."""
    function = ast.unparse(call.func)
    kernel = function.removesuffix(".run")
    name = function
    if kernel in kernels:
        name = f"{_NUMBER.sub('', kernel)} {kernels[kernel]}"
    elif function.endswith(_COPY):
        name = _COPY
    elif not _LIBRARY.match(function):
        return None
    return kernel, f"{name}({_given(call, sizes)})"


def _given(call: ast.Call, sizes: Mapping[str, str]) -> str:
    given = [_without_names(argument, sizes) for argument in call.args]
    given += [f"{named.arg}={_without_names(named.value, sizes)}" for named in call.keywords]
    return ", ".join(given)


def _without_names(node: ast.expr, sizes: Mapping[str, str]) -> str:
    if isinstance(node, ast.Call):  # a view: its own name says what it is
        return f"{ast.unparse(node.func).rpartition('.')[2]}({_given(node, sizes)})"
    return ast.unparse(_Replaced(sizes, nested={}, others="_").visit(node))


# ---------------------------------------------------------------- torch's guards


def without_comment(text: str) -> tuple[str, str]:
    """The guard itself, and the comment behind it. A hash within quotes is part of the guard;
    torch's comment stands behind two spaces at least, and a hint without a line behind one."""
    line = text.partition("\n")[0]
    quote = ""
    for index, character in enumerate(line):
        if quote:
            quote = "" if character == quote and line[index - 1] != "\\" else quote
        elif character in "'\"" and not (index and line[index - 1].isalnum()):
            quote = character
        elif line.startswith(("  #", " (HINT: "), index):
            return line[:index].rstrip(), line[index:]
    return line.rstrip(), ""


def used_at(comment: str) -> m.Location | None:
    """The line that asked for what is guarded, with its text; of its file torch gives the last
    part."""
    found = _USED.match(comment)
    return found and place(found)


def place(found: re.Match[str]) -> m.Location:
    """Of the groups "file", "line", "function" and "text"."""
    text = (found["text"] or "").strip()
    return m.Location(found["file"], int(found["line"]), found["function"], text=text)
