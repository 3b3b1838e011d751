"""The project's source as the Recording holds it: which function a line is in, and where that
function's ``def`` is."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from msgspec.structs import replace

from kgprof import model as m
from kgprof.reading.number_uses import (
    is_on,
    is_used,
    needs_what_is_read,
    only_appends,
    only_computed_with,
    only_flows_into_a_graph,
)
from kgprof.reading.project import ProjectFiles

# Dynamo continues after a break in a function of this name; its first line is the line of the
# break.
_RESUME = re.compile(r"torch_dynamo_resume_in_(?P<function>.*)_at_(?P<line>\d+)")

LAMBDA = "<lambda>"  # as a code object names it

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Callee = ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef
# setattr(x, "name", value): which name it is stands there
_SETATTR_OF_A_WORD = re.compile(r"""setattr\((?:[\w.]+, )?["'][\w.]*["'],""")
# those whose names do not end in LR
_CYCLE_MOMENTUM = ("OneCycleLR", "CyclicLR")
# methods of a module, and functions of torch.nn.modules.module for all of them
_BACKWARD_HOOKS = (
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
)
FILLED = frozenset(  # by a kernel of the device
    f"torch.{name}"
    for name in (
        *("arange", "empty", "eye", "full", "linspace", "ones"),
        *("rand", "randint", "randn", "randperm", "zeros"),
    )
)
_FACTORIES = FILLED | {f"torch.{name}" for name in ("as_tensor", "from_numpy", "tensor")}


def is_made_in(expression: str) -> bool:
    """Whether an expression makes the tensor that it reads: ``torch.randint(9, (2,)).tolist()``."""
    try:
        node: ast.expr = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return False
    while True:
        match node:
            case ast.Call(func=function) if ast.unparse(function) in _FACTORIES:
                return True
            case ast.Call(func=ast.Name(id="int" | "float" | "bool"), args=[inner]):
                node = inner
            case ast.Call(func=ast.Attribute(value=inner)) | ast.Subscript(value=inner):
                node = inner
            case ast.Compare(left=inner) | ast.BinOp(left=inner):
                node = inner
            case _:
                return False


_Keeping = ast.AugAssign | ast.Assign | ast.Expr
_Scope = ast.For | ast.AsyncFor | ast.While | _Function
_Block = _Scope | ast.If | ast.Try | ast.Match


def _kept_in(statement: _Keeping) -> str:
    """``total`` of ``total[0] += x`` and ``rows`` of ``rows.append(x)``."""
    match statement:
        case ast.AugAssign(target=target) | ast.Assign(targets=[target]):
            node: ast.expr = target
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner))):
            node = owner
        case _:
            return ""
    while isinstance(node, ast.Subscript):
        node = node.value
    return ast.unparse(node)


def _place_of_what_is_kept(statement: _Keeping) -> ast.AST:
    """The part of the statement that names what it adds to; all of ``total = total + x``."""
    match statement:
        case ast.AugAssign(target=target):
            return target
        case ast.Expr(value=ast.Call(func=method)):
            return method
    return statement


def _begins_filled(nodes: Sequence[ast.AST], kept: str) -> bool:
    """Whether a statement binds the name to a list with entries."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                bound = zip(names, values, strict=False)
            case ast.Assign(targets=[name], value=value):
                bound = zip((name,), (value,), strict=True)
            case _:
                continue
        for name, value in bound:
            if isinstance(value, ast.List) and value.elts and ast.unparse(name) == kept:
                return True
    return False


def _bound_anew(nodes: Sequence[ast.AST], kept: str, reads: Sequence[int], behind: int) -> int:
    """Give the first line behind a loop that binds the name to something else for all that read it
    further down; 0 without one."""
    for statement in nodes:
        if not isinstance(statement, ast.Assign) or statement.lineno <= behind:
            continue
        bound = [ast.unparse(target) for target in statement.targets]
        own = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        if kept not in bound or any(line in own for line in reads):
            continue
        blocks = [node for node in nodes if isinstance(node, _Block) and is_on(node, own.start)]
        ends = [node.end_lineno or own.start for node in blocks if node.lineno > behind]
        if not any(line > min(ends, default=line) for line in reads):
            return own.start
    return 0


def user_function(name: str) -> str:
    """The user's function behind one that Dynamo made to go on after a break, or ``name``
    itself."""
    while found := _RESUME.fullmatch(name):
        name = found["function"]
    return name


def is_resumed(name: str) -> bool:
    return _RESUME.fullmatch(name) is not None


def resumed_at(name: str) -> int:
    """The line of the break behind which a function of Dynamo's goes on; 0 for any other
    function."""
    found = _RESUME.fullmatch(name)
    return int(found["line"]) if found else 0


class _Definition(m.Model):
    """A function in a file: ``first`` is its first decorator's line, ``line`` that of ``def``."""

    qualified: str
    name: str
    first: int
    line: int
    last: int


class Loop(m.Model):
    """The lines of a loop statement of a file."""

    first: int
    last: int

    def holds(self, line: int) -> bool:
        return self.first <= line <= self.last


class SourceText:
    """Answers from the files that the Recording brought along; without their text, places stay as
    torch named them."""

    def __init__(self, sources: m.Sources) -> None:
        self.project = ProjectFiles(libraries=sources.libraries, own=sources.own)
        self._files = sources.files
        self._packages = sources.packages

    @property
    def own(self) -> dict[str, m.SourceFile]:
        """The project's files."""
        return {name: file for name, file in self._files.items() if self.project.holds(name)}

    def at(self, file: str, line: int, function: str = "") -> m.Location:
        """A line as a place to point at, with the function that it is in and its text."""
        name = function_at(self._text(file), line, function) or user_function(function)
        return m.Location(file, line, name, text=self._line(file, line))

    def definition(self, file: str, first_line: int, function: str) -> m.Location:
        """The ``def`` line of a code object. A lambda or a comprehension has none: its own line
        stands for it, and it is named behind the function around it."""
        name = user_function(function)
        found = [each for each in _definitions(self._text(file)) if each.name == name]
        last_too = is_resumed(function)  # what goes on after a break lies in its function
        found = [
            each
            for each in found
            if each.first <= first_line <= (each.last if last_too else each.first)
        ]
        if not found:
            place = self.at(file, first_line, function)
            around = place.function
            inside = name in (LAMBDA, *m.COMPREHENSIONS) and around not in ("", name)
            return replace(place, function=f"{around}.{name}") if inside else place
        nearest = max(found, key=lambda each: each.line)
        return m.Location(
            file,
            nearest.line,
            nearest.qualified,
            text=self._line(file, nearest.line),
        )

    def identity(self, place: m.Location | None) -> tuple[str, ...]:
        """What of a place is the same in another checkout, in another environment and after an edit
        above it: its file as all of them name it, the function, the words of the line. No line
        number."""
        if place is None:
            return ()
        repositories = {file.repository for file in self._files.values() if file.repository}
        return (self.project.named(place.file, repositories), place.function, place.text.strip())

    def tree(self, file: str) -> ast.Module:
        """The file's syntax tree; empty where its text is not known."""
        return _parsed(self._text(file))

    def loops(self, file: str) -> Iterator[Loop]:
        """Gives each ``for`` and ``while`` of a file."""
        for node in ast.walk(self.tree(file)):
            if isinstance(node, ast.For | ast.AsyncFor | ast.While):
                last = node.end_lineno or node.lineno
                yield Loop(first=node.lineno, last=last)

    def reads_what_it_keeps(self, file: str, line: int) -> tuple[bool, int, int]:
        """Whether what the statement at a line adds to (``total += x``, ``rows.append(x)``) is read
        by it or by another one of the innermost loop around it, before that in a loop around both,
        or by its function outside of any; or whether it is a list that begins with entries of
        another kind. And the first line behind that loop that reads it, and from where on its name
        stands for something else; each 0 where its function has none."""
        nodes = list(ast.walk(self.tree(file)))
        keeping = [node for node in nodes if isinstance(node, _Keeping) and is_on(node, line)]
        scopes = [node for node in nodes if isinstance(node, _Scope) and is_on(node, line)]
        if not keeping or not scopes:
            return False, 0, 0
        statement = keeping[-1]
        kept = _kept_in(statement)
        own = set(ast.walk(_place_of_what_is_kept(statement)))
        around = [scope for scope in scopes if isinstance(scope, _Function)]
        within = list(ast.walk(around[-1] if around else self.tree(file)))
        last = scopes[-1].end_lineno or line
        loops = [scope for scope in scopes if scope not in around]
        reads = [
            node
            for node in within
            if isinstance(node, ast.Name | ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and node not in own
            and ast.unparse(node) == kept
        ]
        outermost = loops[0] if loops else scopes[-1]
        in_loop = any(outermost.lineno <= node.lineno <= last for node in reads)
        later = min((node.lineno for node in reads if node.lineno > last), default=0)
        until = _bound_anew(within, kept, [node.lineno for node in reads], last)
        return _begins_filled(nodes, kept) or in_loop, later, until

    def package_line(self, place: m.Location) -> m.PackageLine:
        """A library's line with the package that it belongs to, in the version that was installed
        where it ran."""
        name, file = self.project.package(place.file)
        package, _, version = self._packages.get(name, name).partition(" ")
        function = user_function(place.function)
        return m.PackageLine(
            package=package,
            version=version,
            file=file,
            line=place.line,
            function=function,
            text=place.text,
        )

    def innermost(self, stack: tuple[m.Location, ...]) -> m.Location | None:
        """The project's line nearest to what happened (a stack is outermost first)."""
        own = [place for place in stack if self.project.holds(place.file)]
        return self.at(own[-1].file, own[-1].line, own[-1].function) if own else None

    def arguments(
        self, file: str, first_line: int, function: str, *, stars: bool = True
    ) -> tuple[str, ...]:
        """The names of a function's arguments as its ``def`` or ``lambda`` has them, whatever part
        of it the code object is; empty where its text is not known. ``stars``: with those of
        ``*args`` and ``**kwargs``."""
        node = self._defined(file, first_line, function)
        if node is None:
            return ()
        given = node.args
        rest = [star for star in (given.vararg, given.kwarg) if star is not None and stars]
        return tuple(a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs, *rest))

    def kept_arguments(self, file: str, first_line: int, function: str) -> tuple[str, ...]:
        """The same without those whose names the function gives to something else."""
        node = self._defined(file, first_line, function)
        nodes = ast.walk(node) if node is not None else ()
        bound = {
            each.id
            for each in nodes
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        names = self.arguments(file, first_line, function)
        return tuple(name for name in names if name not in bound)

    def _defined(
        self, file: str, first_line: int, function: str
    ) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
        place = self.definition(file, first_line, function)
        kind = ast.Lambda if function.endswith("<lambda>") else _Function
        for node in ast.walk(self.tree(file)):
            if isinstance(node, kind) and node.lineno == place.line:
                return node
        return None

    def comparison(self, place: m.Location, name: str) -> str:
        """The one comparison for which the function around ``place`` uses its argument ``name``;
        empty if it also uses it otherwise, or compares it with what only the function knows."""
        function = self._function(place)
        compared = (
            [node for node in ast.walk(function) if isinstance(node, ast.Compare)]
            if function
            else []
        )
        about_it = {ast.unparse(node) for node in compared if _uses(node, name)}
        inside = sum(_uses(node, name) for node in compared)
        if function is None or len(about_it) != 1 or inside != _uses(function, name):
            return ""
        only = next(node for node in compared if _uses(node, name))
        nodes = list(ast.walk(function))
        own = {each.arg for each in nodes if isinstance(each, ast.arg)} | {
            each.id
            for each in nodes
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        return "" if any(_uses(only, each) for each in own - {name}) else about_it.pop()

    def only_computed(
        self,
        places: Sequence[m.Location],
        name: str,
        tensors: Collection[str],
        *,
        is_symbol: bool,
    ) -> bool:
        """Whether the functions around ``places`` that use a number use it only in operations with
        tensors, and one does: see ``number_uses``."""
        known = []
        for place in places:
            function, tree = self._function(place), self.tree(place.file)
            if function is not None and is_used(function, name):
                known.append(only_computed_with(tree, function, name, tensors, is_symbol=is_symbol))
        return bool(known) and all(known)

    def only_appends(self, place: m.Location, name: str) -> bool:
        """Whether all that the function around ``place`` does to a list is to append to it."""
        function = self._function(place)
        return function is not None and only_appends(function, name)

    def setting(self, name: str) -> m.Location | None:
        """The first line of the project's that sets something of this name, as an attribute or an
        argument."""
        for file in self.files_with(name):
            for node in ast.walk(self.tree(file)):
                match node:
                    case ast.keyword(arg=written):
                        line = node.value.lineno
                    case ast.Attribute(attr=written, ctx=ast.Store()):
                        line = node.lineno
                    case _:
                        continue
                if written == name:
                    return self.at(file, line)
        return None

    def is_frozen(self, name: str) -> bool:
        """Whether a class of the project whose objects take no assignment has a field of this
        name."""
        classes = (
            node
            for file in self.files_with("frozen", "NamedTuple")
            for node in ast.walk(self.tree(file))
            if isinstance(node, ast.ClassDef) and _takes_no_assignment(node)
        )
        fields = (field for node in classes for field in node.body)
        return any(
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and field.target.id == name
            for field in fields
        )

    def only_returns(self, place: m.Location, name: str) -> bool:
        """Whether all that the function around ``place`` returns, and its only use of ``name``, is
        ``f(x)``."""
        nodes = list(self._nodes(place))
        reads = sum(isinstance(node, ast.Name) and node.id == name for node in nodes)
        match [node.value for node in nodes if isinstance(node, ast.Return)]:
            case [ast.Call(func=ast.Name(id=called), args=[given], keywords=[])]:
                return called == name and reads == 1 and not isinstance(given, ast.Starred)
        return False

    def decides(self, place: m.Location) -> bool:
        """Whether Python needs the value that this line reads: see ``number_uses``."""
        function = self._function(place)
        return function is not None and needs_what_is_read(function, place.line)

    def returns(self, place: m.Location) -> bool:
        """Tell whether a line is of a ``return``, so that its value goes on in the caller's."""
        return any(
            isinstance(node, ast.Return) and is_on(node, place.line) for node in self._nodes(place)
        )

    def flows_into_a_graph(self, place: m.Location) -> bool:
        """Whether torch could make a symbol of what this line reads: see ``number_uses``."""
        function = self._function(place)
        return function is not None and only_flows_into_a_graph(function, place.line)

    def passed(self, place: m.Location, function: str, position: int) -> str:
        """The variable that the one call of ``function`` at ``place`` passes at a position; empty
        where it passes anything else."""
        calls = [
            node
            for node in ast.walk(self.tree(place.file))
            if isinstance(node, ast.Call)
            and is_on(node, place.line)
            and ast.unparse(node.func).rpartition(".")[2] == function
        ]
        given = calls[0].args[position : position + 1] if len(calls) == 1 else []
        return given[0].id if given and isinstance(given[0], ast.Name) else ""

    def condition(self, place: m.Location) -> ast.If | ast.While | None:
        """The ``if`` or ``while`` whose condition a line is in."""
        for node in self._nodes(place):
            if isinstance(node, ast.If | ast.While) and is_on(node.test, place.line):
                return node
        return None

    def asserted(self, place: m.Location) -> ast.Assert | None:
        """Find the ``assert`` whose condition a line is in."""
        for node in self._nodes(place):
            if isinstance(node, ast.Assert) and is_on(node.test, place.line):
                return node
        return None

    def has_handler(self, place: m.Location) -> bool:
        """Whether a ``try`` with an ``except`` is around the line in its function."""
        return any(
            isinstance(node, ast.Try) and node.handlers and is_on(node, place.line)
            for node in self._nodes(place)
        )

    def has_branches(self, place: m.Location) -> bool:
        """Whether the function at ``place`` has lines that a call may leave out."""
        branching = ast.If | ast.IfExp | ast.For | ast.While
        return any(isinstance(node, branching) for node in self._nodes(place))

    def is_all_of_its_function(self, place: m.Location) -> bool:
        """Whether the statement at ``place`` is the only one of its function, but for a
        docstring."""
        function = self._function(place)
        body = function.body if function else []
        work = [
            node
            for node in body
            if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        ]
        return len(work) == 1 and is_on(work[0], place.line)

    def _nodes(self, place: m.Location) -> Iterator[ast.AST]:
        """All of the function that a line is in."""
        function = self._function(place)
        yield from ast.walk(function) if function is not None else ()

    def _function(self, place: m.Location) -> _Function | None:
        """The innermost function that a line is in; of lambdas, the only one of the line."""
        tree = self.tree(place.file)
        if user_function(place.function) == LAMBDA:
            return _lambda_as_function(tree, place.line)
        functions = [node for node in ast.walk(tree) if isinstance(node, _Function)]
        around = [node for node in functions if is_on(node, place.line)]
        return max(around, key=lambda node: node.lineno, default=None)

    def rebound(self, name: str) -> tuple[m.Location, ...]:
        """The project's lines that put something else under the attribute, key, global or
        closed-over variable ``name``, constructors and the module's own level left out. A
        ``setattr`` with a computed name stands in for them where there is none."""
        return self.bound(name, but=("__init__",))

    def bound(self, name: str, *, but: tuple[str, ...] = ()) -> tuple[m.Location, ...]:
        """As ``rebound``, of all functions ``but`` these."""
        found: list[m.Location] = []
        computed: list[m.Location] = []
        for file in self.own:
            if _may_bind(self._text(file), name):
                for line, exact in sorted(bindings(self.tree(file), name, but)):
                    (found if exact else computed).append(self.at(file, line))
        return tuple(dict.fromkeys(found or computed))

    @property
    def packs_sequences(self) -> bool:
        """Whether the program packs sequences: torch traces no RNN that is given such."""
        return bool(self.files_with("pack_padded_sequence", "pack_sequence", "PackedSequence"))

    def gives(self, option: str) -> bool:
        """Whether the program gives an option a value other than False."""
        given = re.compile(rf"""\b{option}["']?\s*[=:](?!\s*False)""")
        return any(given.search(self._text(file)) for file in self.files_with(option))

    @property
    def momentum_scheduler(self) -> str:
        """The scheduler of torch that the program makes and that changes the momentum, too."""
        files = self.files_with(*_CYCLE_MOMENTUM)
        calls = (name for file in files for name, _ in _calls(self.tree(file)))
        made = (name.rpartition(".")[2] for name in calls)
        return next((name for name in made if name in _CYCLE_MOMENTUM), "")

    @property
    def backward_hooks(self) -> tuple[m.Location, ...]:
        """Find the project's lines that register a backward hook on a module."""
        return tuple(
            self.at(file, node.lineno)
            for file in self.files_with(*_BACKWARD_HOOKS)
            for node in ast.walk(self.tree(file))
            if isinstance(node, ast.Call) and _named(node.func) in _BACKWARD_HOOKS
        )

    def switched(self, files: Collection[str]) -> str:
        """The only variable whose ``train()`` or ``eval()`` the project's of these files call;
        empty where there are several, and of what is never set back: a trainer has a ``train()``,
        too."""
        known = [file for file in self.own if file in files]
        calls = [call for file in known for call in _calls(self.tree(file))]
        parts = [(*name.rpartition("."), given) for name, given in calls]
        owners = {owner for owner, _, method, _ in parts if owner and method in ("train", "eval")}
        both = any(
            method == "eval" or (method == "train" and given) for _, _, method, given in parts
        )
        return owners.pop() if both and len(owners) == 1 and min(owners).isidentifier() else ""

    def branches(self, place: m.Location, call: str) -> tuple[m.Location, ...]:
        """The lines on which the functions given to ``call`` (``cond``) at ``place`` return."""
        lines = returned_by_branches(self.tree(place.file), call, place.line)
        return tuple(self.at(place.file, line) for branch in lines for line in branch)

    def files_with(self, *words: str) -> list[str]:
        """The project's files with one of the words in them: a large project takes long to
        parse."""
        texts = ((file, self._text(file)) for file in self.own)
        return [file for file, text in texts if any(word in text for word in words)]

    def _text(self, file: str) -> str:
        return (self._files[file].text if file in self._files else None) or ""

    def _line(self, file: str, line: int) -> str:
        lines = _lines(self._text(file))
        return lines[line - 1] if 0 < line <= len(lines) else ""


@lru_cache(maxsize=64)  # the runs of a Recording bring the same files along
def _parsed(text: str) -> ast.Module:
    """Empty where it was written for another Python, or is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


@lru_cache
def _lines(text: str) -> list[str]:
    return text.splitlines()


@lru_cache(maxsize=64)  # to look for them takes as long as to parse
def _definitions(text: str) -> tuple[_Definition, ...]:
    return tuple(_inside(_parsed(text), ""))


def function_at(text: str, line: int, running: str = "") -> str:
    """The qualified name of the innermost function that a line is in, or that it decorates; empty
    outside of all.

    ``running``: the function that ran the line, where it is known. A decorator may be run by the
    function around.
    """
    inside = [found for found in _definitions(text) if found.first <= line <= found.last]
    name = user_function(running)
    if any(found.name == name for found in inside):
        inside = [found for found in inside if found.line <= line or found.name == name]
    return max(inside, key=lambda found: found.line).qualified if inside else ""


def _lambda_as_function(tree: ast.Module, line: int) -> ast.FunctionDef | None:
    """None where several lambdas begin in the line: nothing says which one is meant."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    here = [node for node in found if is_on(node, line)]
    if len(here) != 1:
        return None
    only = here[0]
    body: list[ast.stmt] = [ast.copy_location(ast.Return(only.body), only.body)]
    function = ast.FunctionDef(LAMBDA, only.args, body, [])
    return ast.copy_location(function, only)


def _takes_no_assignment(node: ast.ClassDef) -> bool:
    given = [
        each for call in node.decorator_list if isinstance(call, ast.Call) for each in call.keywords
    ]
    is_frozen = any(
        each.arg == "frozen" and isinstance(each.value, ast.Constant) and each.value.value
        for each in given
    )
    return is_frozen or any(_named(base) == "NamedTuple" for base in node.bases)


def _uses(tree: ast.AST, name: str) -> int:
    """How often a variable is read."""
    return sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


def _inside(node: ast.AST, prefix: str) -> Iterator[_Definition]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function):
            yield _Definition(
                qualified=f"{prefix}{child.name}",
                name=child.name,
                first=min(
                    [child.lineno, *(decorator.lineno for decorator in child.decorator_list)]
                ),
                line=child.lineno,
                last=child.end_lineno or child.lineno,
            )
        inside = prefix
        if isinstance(child, _Function | ast.ClassDef):
            inside = f"{prefix}{child.name}."
        yield from _inside(child, inside)


# ---------------------------------------------------------------- what the text says


def _calls(tree: ast.AST) -> list[tuple[str, list[str]]]:
    """What is called by a name, and what it is given."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    named = (node for node in nodes if isinstance(node.func, ast.Name | ast.Attribute))
    return [(ast.unparse(node.func), [ast.unparse(each) for each in node.args]) for node in named]


def _may_bind(text: str, name: str) -> bool:
    """Whether a function of this text could bind ``name``, see ``bindings``: to parse it takes 100
    times as long."""
    word = rf"{re.escape(name)}\b"
    bound = rf"""[.\["']{word}|(?:global|nonlocal) .*\b{word}"""
    return "setattr" in _SETATTR_OF_A_WORD.sub("", text) or re.search(bound, text) is not None


def bindings(
    tree: ast.AST, name: str, but: tuple[str, ...] = ("__init__",)
) -> Iterator[tuple[int, bool]]:
    """Lines inside functions that bind ``name``, and whether the name stands there or is
    computed."""
    for function in ast.walk(tree):
        if not isinstance(function, _Function) or function.name in but:
            continue
        nodes = list(ast.walk(function))
        outer = {
            n for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for n in node.names
        }
        for node in nodes:
            if _binds(node, name, outer):
                yield node.lineno, True  # type: ignore[attr-defined]
            elif (
                isinstance(node, ast.Call)
                and _named(node.func) == "setattr"
                and len(node.args) == 3
            ):
                given = node.args[1]
                if not isinstance(given, ast.Constant) or given.value == name:
                    yield node.lineno, isinstance(given, ast.Constant)


def _binds(node: ast.AST, name: str, outer: set[str]) -> bool:
    """Whether ``node`` assigns ``x.name``, ``x.name.data``, ``x["name"]``, or a ``name`` of an
    outer scope."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        inner = node.value if node.attr == "data" else node
        return isinstance(inner, ast.Attribute) and inner.attr == name
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return isinstance(node.slice, ast.Constant) and str(node.slice.value) == name
    return (
        isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and node.id == name
        and name in outer
    )


def returned_by_branches(tree: ast.AST, call: str, line: int) -> tuple[tuple[int, ...], ...]:
    """For each function given to ``call`` (``cond``) on ``line`` the lines on which it returns: of
    those that plainly return an argument, a view of one or a name twice where there are any, else
    of all of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _named(node.func) == call and is_on(node, line):
            # The function that an argument names (or a method of that name), in the same file.
            named = {inner.name: inner for inner in ast.walk(tree) if isinstance(inner, _Function)}
            given = [
                each if isinstance(each, ast.Lambda) else named.get(_named(each))
                for each in node.args
            ]
            functions: list[_Callee] = [function for function in given if function is not None]
            returned = [
                [function.body]
                if isinstance(function, ast.Lambda)
                else [
                    inner.value
                    for inner in ast.walk(function)
                    if isinstance(inner, ast.Return) and inner.value
                ]
                for function in functions
            ]
            plain = [
                [v for v in values if _aliases(f, v)]
                for f, values in zip(functions, returned, strict=True)
            ]
            return tuple(
                tuple(dict.fromkeys(value.lineno for value in values))
                for values in (plain if any(plain) else returned)
            )
    return ()


def _named(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


# Methods and attributes of a tensor that may give a view of it or the tensor itself.
_VIEWS = frozenset(
    (
        *(
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
        ),
        *(
            "flatten",
            "expand_as",
            "narrow",
            "select",
            "detach",
            "contiguous",
            "diagonal",
            "unfold",
            "swapaxes",
        ),
        "movedim",
    )
)


def _aliases(function: _Callee, value: ast.expr) -> bool:
    """Whether what is returned is an argument, a view of one, or the same name twice, as far as the
    text tells."""
    values = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
    names = [entry.id for entry in values if isinstance(entry, ast.Name)]
    arguments = {argument.arg for argument in function.args.args}
    return len(set(names)) < len(names) or any(_base_name(entry) in arguments for entry in values)


def _base_name(value: ast.expr) -> str:
    """The variable that views were taken of, one after the other; empty where something else was
    done to it."""
    while not isinstance(value, ast.Name):
        if isinstance(value, ast.Subscript):
            value = value.value
        elif (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and value.func.attr in _VIEWS
        ):
            value = value.func.value
        elif isinstance(value, ast.Attribute) and value.attr in _VIEWS:
            value = value.value
        else:
            return ""
    return value.id
