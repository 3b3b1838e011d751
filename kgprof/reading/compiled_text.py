"""What stands in torch's own texts of a compilation: the operators of Dynamo's graph, the calls of
Inductor's code, and the guards.

Names of variables, numbers behind names, hashes, comments and line numbers are taken away, so that
the same work reads the same whatever its author calls things. Formats: the Python that
``GraphModule.print_readable`` and Inductor's ``PythonWrapperCodegen`` write (torch 2.8 to 2.15).
"""

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence

from kgprof import model as m

_PLACE = re.compile(r"\s*# File: (?P<file>.+?):(?P<line>\d+) in (?P<function>\S+)(?:, code: .*)?$")
_PARAMETER = re.compile(r"(?P<name>\w+): \"(?P<type>[^\"]*)\"")
_STATEMENT = re.compile(r"\s*(?P<name>\w+)(?:: \"(?P<type>[^\"]*)\")? = (?P<value>.*)")
_FORWARD = re.compile(r"\s*def forward\(self(?:, (?P<parameters>.*))?\):")
_RETURN = re.compile(r"\s*return (?P<value>.*)")
_DELETED = ";  "  # before what torch lets go of behind a statement
_SYMBOL = re.compile(r"\b[suz]\d+\b")
_NUMBER = re.compile(r"_\d+$")
_KERNEL_MAKER = "async_compile"
_CALLERS = re.compile(r"call|partition_\d+|inner_call")
_LIBRARY = re.compile(r"(?:extern_kernels|aten|torch\.ops)\.")
# fields of a Triton kernel that name the machine, the process or the kernel itself
_OWN_FIELDS = re.compile(r"'(?:backend_hash|kernel_name|device_str|autotune_local_cache)': [^,}]+")
_COMMENT = re.compile(r"#(?! *pragma).*|//.*")


# what it does, and the line of the program that torch names for it
Operator = tuple[str, m.SourceLine | None]
# the function's name in the code, and what the call is without the number behind that name
Call = tuple[str, str]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# ---------------------------------------------------------------- Dynamo's graph


def graph(text: str) -> tuple[tuple[Operator, ...], str]:
    """The operators of Dynamo's graph in torch's words, its nested graphs' too, and the graph's
    digest: of all operators with the digests of what they are given, in any order."""
    symbols: dict[str, str] = {}

    def renamed(words: str) -> str:
        """torch numbers a size's symbol by the name of what has it: here as they come."""
        return _SYMBOL.sub(lambda found: symbols.setdefault(found[0], f"s{len(symbols)}"), words)

    operators: list[Operator] = []
    digests: list[str] = []
    line: m.SourceLine | None = None
    types: dict[str, str] = {}
    given: dict[str, str] = {}
    for row in text.splitlines():
        if place := _PLACE.match(row):
            line = m.SourceLine(
                file=place["file"], line=int(place["line"]), function=place["function"]
            )
        elif begins := _FORWARD.match(row):
            parameters = _PARAMETER.findall(begins["parameters"] or "")
            types = {name: renamed(kind) for name, kind in parameters}
            given = dict(types)
            digests += given.values()
        elif ends := _RETURN.match(row):
            digests.append(digest(_written(ends["value"], given)))
        elif made := _STATEMENT.match(row):
            name = made["name"]
            value = renamed(made["value"].partition(_DELETED)[0])
            if value == "None":
                continue
            if value in types:
                types[name], given[name] = types[value], given[value]
                continue
            kind = renamed(made["type"] or "")
            operators.append((f"{_written(value, types)} -> {kind}", line))
            given[name] = digest(f"{_written(value, given)} -> {kind}")
            types[name] = kind or "_"
            digests.append(given[name])
    return tuple(operators), digest("\n".join(sorted(digests)))


def _written(expression: str, names: Mapping[str, str]) -> str:
    """The expression with each variable replaced by what ``names`` has for it; as it is where it is
    no Python."""
    try:
        tree = ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return expression
    return ast.unparse(_Replaced(names).visit(tree))


class _Replaced(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str], others: str = "") -> None:
        """``others``: for a name that is none of ``names``; empty: the name itself."""
        self._names = names
        self._others = others

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, self._others or node.id))

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """What is kept in the graph's module (a nested graph, a constant) has a number for a
        name."""
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return ast.Name("self._")
        self.generic_visit(node)
        return node


# ---------------------------------------------------------------- Inductor's code


def calls(code: str) -> tuple[Call, ...] | m.Skipped:
    """What the generated Python calls, in its order."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError) as error:
        return m.Skipped(f"the generated code is not Python ({type(error).__name__})")
    kernels = dict(_kernels(tree))
    callers = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and _CALLERS.fullmatch(node.name)
    ]
    found = [call for caller in callers for call in _called(caller.body, kernels)]
    if not callers:
        return m.Skipped("the generated code has no function call")
    return tuple(found)


def _kernels(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The name of each kernel in the code, and the digest of its source."""
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(value=ast.Name(id="async_compile"))) as made,
            ):
                texts = (ast.unparse(each) for each in made.args)
                yield name, digest("\n".join(_source(text, name) for text in texts))


def _source(text: str, name: str) -> str:
    """A kernel's argument of the compiler, without its name and what is only about this machine."""
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError, RecursionError):
        return text
    if not isinstance(value, str):
        return text
    bare = _OWN_FIELDS.sub("", value.replace(name, _NUMBER.sub("", name)))
    return "\n".join(_COMMENT.sub("", line).rstrip() for line in bare.splitlines())


def _called(body: Sequence[ast.stmt], kernels: Mapping[str, str]) -> Iterator[Call]:
    for statement in body:
        match statement:
            case ast.With(body=within):
                yield from _called(within, kernels)
            case ast.Expr(value=ast.Call() as call) | ast.Assign(value=ast.Call() as call):
                function = ast.unparse(call.func)
                kernel = function.removesuffix(".run")
                if kernel in kernels or _LIBRARY.match(function):
                    yield kernel, _call_text(call, kernel, kernels)


def _call_text(call: ast.Call, function: str, kernels: Mapping[str, str]) -> str:
    """With the numbers that it is given, and a line for each variable."""
    given = [_without_names(argument) for argument in call.args]
    given += [f"{named.arg}={_without_names(named.value)}" for named in call.keywords]
    name = function
    if function in kernels:
        name = f"{_NUMBER.sub('', function)} {kernels[function]}"
    return f"{name}({', '.join(given)})"


def _without_names(node: ast.expr) -> str:
    if isinstance(node, ast.Call):  # a view: its own name says what it is
        return f"{ast.unparse(node.func)}({', '.join(map(_without_names, node.args))})"
    return ast.unparse(_Replaced({}, "_").visit(node))
