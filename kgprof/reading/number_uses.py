"""Whether a function only computes with a number, so that a tensor could stand in its place.

The answer is drawn from the text: each use of the number is followed through assignments and
through calls of functions of the same file until it meets a tensor in an operation. A use of
another kind (a condition, an index, an argument of a function that is not listed here) needs the
number itself, or may need it.
"""

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef

_DEEPEST = 4  # calls from one function of the file to the next
_BOUNDED = ("clamp", "clamp_")
# Where a tensor may be passed for a number, by position (a method's own object is not counted).
_TAKES_A_TENSOR: dict[str, tuple[int | str, ...]] = {
    **dict.fromkeys(("mul", "mul_", "div", "div_", "sub", "sub_", "add", "add_", "pow"), (0,)),
    **dict.fromkeys(("gt", "lt", "ge", "le", "eq", "ne", "maximum", "minimum"), (0,)),
    **dict.fromkeys(_BOUNDED, (0, 1, "min", "max")),
    **dict.fromkeys(("lerp", "lerp_", "masked_fill", "masked_fill_"), (1, "weight", "value")),
    "where": (1, 2),
}
# Calls that do not return a tensor.
_NO_TENSORS = (
    *("abs", "bool", "divmod", "float", "getattr", "int", "len", "max", "min", "pow", "range"),
    *("round", "str", "sum"),
)
_NO_TENSOR_MODULES = ("math.", "np.", "numpy.", "os.", "random.", "time.")
_NO_TENSOR_METHODS = ("dim", "get", "item", "numel", "size", "tolist")
# What a number stays in, and what takes one as a size or a value.
_STILL_NUMBERS = ("int", "float", "round", "min", "max", "abs")
# methods that tensors have and hardly anything else: a meter may have add() and update(), too
_TAKES_A_SIZE = (
    *("narrow", "expand", "roll", "topk", "masked_fill", "clamp"),
    *("new_zeros", "new_ones", "new_full", "new_empty", "fill_", "clamp_", "add_", "sub_"),
    *("mul_", "div_", "lerp", "lerp_", "index_fill"),
)
# functions of torch that take a symbol for a number; with others the call may raise: linspace,
# chunk, one_hot, norm, pooling
_TAKES_A_SYMBOL = (
    *("arange", "zeros", "ones", "full", "empty", "eye", "narrow", "roll", "topk", "pad"),
    *("interpolate", "repeat_interleave", "tril", "triu", "dropout", "quantile"),
)
# of pieces whose sizes are symbols: operators on them decide by these, and break the graph instead
_SPLITS = ("split", "split_with_sizes", "tensor_split")
_GROWING = ("append", "extend", "insert", "appendleft")
_VIEWS = ("T", "mT", "H", "data", "grad", "real", "imag")
_OF_A_TENSOR = ("device", "dtype", "ndim", "shape", "size", "new_zeros", "new_ones")
_MODULES = ("torch", "F", "functional")


def only_computed_with(
    tree: ast.Module, function: Function, name: str, tensors: Collection[str], *, is_symbol: bool
) -> bool:
    """Tell whether each use of ``name`` in ``function`` is an operation with a tensor.

    ``name`` is a variable or an attribute as it is written there; ``tensors`` are names of which
    it is known that they are tensors. ``is_symbol``: an integer that torch makes a symbol, which
    may also be compared for the smallest.
    """
    return _Uses(tree, tensors, is_symbol).hold(function, name)


def only_flows_into_a_graph(function: Function, line: int) -> bool:
    """Tell whether each number that a line reads from a tensor is computed with, is a size or an
    end of a slice, or is returned, so that torch can make a symbol of it. What an object keeps of
    it would be a new constant in each call, and what Python decides by it needs the number."""
    parents = _parents(function)
    read = [
        node
        for node in parents
        if isinstance(node, ast.Call) and is_on(node, line) and _reads_a_tensor(node)
    ]
    met: set[str] = set()
    return bool(read) and all(_flows_on(node, parents, met) for node in read)


def _flows_on(node: ast.AST, parents: dict[ast.AST, ast.AST], met: set[str]) -> bool:
    """Follow a number to where it is used up. ``met``: variables that were followed already."""
    while True:
        node, parent = parents[node], node
        match node:
            case ast.Return() | ast.Slice():
                return True
            case ast.Call():
                if parent is node.func:
                    continue
                written = ast.unparse(node.func)
                if written in _STILL_NUMBERS:
                    continue
                owner, _, method = written.rpartition(".")
                if method in _SPLITS:
                    return False
                if owner in _MODULES:
                    return method in _TAKES_A_SYMBOL
                return bool(owner) and method in _TAKES_A_SIZE
            case ast.Assign(targets=[ast.Name(id=name)]):
                if name in met:
                    return True
                met.add(name)
                uses = [each for each in parents if _is_read(each, name)]
                return all(_flows_on(each, parents, met) for each in uses)
            case ast.BinOp() | ast.UnaryOp(op=ast.USub()) | ast.Tuple() | ast.List():
                continue
            case ast.Compare() if _asks_for_none(node):
                return True
            case ast.Dict() | ast.keyword() | ast.Attribute() | ast.JoinedStr():
                continue
            case ast.FormattedValue():
                continue
        return False


def _reads_a_tensor(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in ("item", "tolist")
    return ast.unparse(call.func) in ("int", "float")


def needs_what_is_read(function: Function, line: int) -> bool:
    """Tell whether a condition, a loop, the index of a list or a function of ``math`` depends on a
    number or a size that a line reads from a tensor: it is there, or in a variable that is."""
    nodes = list(ast.walk(function))
    names = _derived(nodes, line)
    for node in nodes:
        for place in _decided_by(node):
            if is_on(place, line) or _reads(place) & names:
                return True
        for place in _needs_a_number(node):
            is_read_here = is_on(place, line) and _reads_a_number(place)
            if is_read_here or (_reads(place) & names and _reads_a_number_at(nodes, line)):
                return True
    return False


def only_appends(function: Function, name: str) -> bool:
    """Tell whether all that a function does to a list is to append to it."""
    nodes = list(ast.walk(function))
    appended = [
        node.func.value
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _GROWING
        and ast.unparse(node.func.value) == name
    ]
    reads = [node for node in nodes if _is_read(node, name)]
    is_counted = any(_counts(node, name) for node in nodes)
    return bool(appended) and len(appended) == len(reads) and not is_counted


def is_used(function: Function, name: str) -> bool:
    """Whether a function reads a variable or attribute, or counts it on in place."""
    return any(_is_read(node, name) or _counts(node, name) for node in ast.walk(function))


@dataclass
class _Uses:
    tree: ast.Module
    tensors: Collection[str]
    is_symbol: bool
    met: set[tuple[int, str]] = field(default_factory=set)
    are_tensors: dict[tuple[int, str], bool] = field(default_factory=dict)
    depth: int = 0

    def hold(self, function: Function, name: str) -> bool:
        key = (id(function), name)
        if key in self.met:
            return True
        self.met.add(key)
        parents = _parents(function)
        uses = [node for node in parents if _is_read(node, name)]
        owner = name.rpartition(".")[0]
        passed_on = owner not in ("", "self") and _is_passed(function, owner, parents)
        by_others = name.startswith("self.") and not self._methods_hold(function, name)
        if passed_on or by_others or not is_used(function, name):
            return False
        return all(self._is_computed(function, node, parents) for node in uses)

    def _methods_hold(self, function: Function, name: str) -> bool:
        """The same for every other function of the file that reads the attribute."""
        others = (node for node in ast.walk(self.tree) if isinstance(node, Function))
        reading = (
            other
            for other in others
            if other is not function and other.name != "__init__" and is_used(other, name)
        )
        return all(self.hold(other, name) for other in reading)

    def _is_computed(
        self, function: Function, node: ast.AST, parents: dict[ast.AST, ast.AST]
    ) -> bool:
        """Follow one use up to the operation that takes it."""
        parent = parents[node]
        while True:
            if isinstance(parent, ast.BinOp):
                other = parent.right if parent.left is node else parent.left
                if self._is_tensor(function, other):
                    return True
            elif isinstance(parent, ast.Compare):
                others = [each for each in (parent.left, *parent.comparators) if each is not node]
                return len(others) == 1 and self._is_tensor(function, others[0])
            elif isinstance(parent, ast.keyword):
                call = parents[parent]
                return isinstance(call, ast.Call) and self._takes(function, call, node)
            elif isinstance(parent, ast.Call) and not self._is_smallest(parent):
                return self._takes(function, parent, node)
            elif isinstance(parent, ast.Assign | ast.AugAssign):
                return self._is_kept(function, parent, node)
            elif not isinstance(parent, ast.UnaryOp | ast.Call) or _negates(parent):
                return False
            node, parent = parent, parents[parent]

    def _is_smallest(self, call: ast.Call) -> bool:
        """The smallest or largest of numbers is a symbol again if one of them is."""
        return self.is_symbol and ast.unparse(call.func) in ("min", "max")

    def _takes(self, function: Function, call: ast.Call, given: ast.AST) -> bool:
        """Whether a call takes a tensor where the number is given."""
        at: int | str | None = next(
            (position for position, each in enumerate(call.args) if each is given), None
        )
        if at is None:
            at = next((each.arg or "" for each in call.keywords if each.value is given), None)
        if at is None or not isinstance(call.func, ast.Name | ast.Attribute):
            return False
        written = ast.unparse(call.func)
        owner, _, method = written.rpartition(".")
        if method in _BOUNDED and _bounds(call, owner) > 1:
            return False  # both have to be tensors, or numbers
        if owner in ("", "self"):
            return self._called_function_holds(method, at, is_method=owner == "self")
        allowed = _TAKES_A_TENSOR.get(method, ())
        if owner not in _MODULES:
            return at in allowed
        return at in tuple(each + 1 if isinstance(each, int) else each for each in allowed)

    def _called_function_holds(self, name: str, at: int | str, *, is_method: bool) -> bool:
        functions = [
            node for node in ast.walk(self.tree) if isinstance(node, Function) and node.name == name
        ]
        if len(functions) != 1 or self.depth >= _DEEPEST:
            return False
        arguments = [each.arg for each in functions[0].args.args][1 if is_method else 0 :]
        if isinstance(at, int):
            at = arguments[at] if at < len(arguments) else ""
        self.depth += 1
        holds = at in arguments and self.hold(functions[0], at)
        self.depth -= 1
        return holds

    def _is_kept(
        self, function: Function, statement: ast.Assign | ast.AugAssign, node: ast.AST
    ) -> bool:
        """Under a variable that is used alike, or added to a tensor."""
        targets: list[ast.expr] = (
            [statement.target] if isinstance(statement, ast.AugAssign) else statement.targets
        )
        if isinstance(statement, ast.AugAssign) and self._is_tensor(function, targets[0]):
            return True
        for target in targets:
            written = ast.unparse(target)
            is_itself = any(_is_read(each, written) for each in ast.walk(statement.value))
            plain = isinstance(target, ast.Name) and self.hold(function, written)
            if not plain and not is_itself:
                return False
        return True

    def _is_tensor(self, function: Function, node: ast.AST) -> bool:
        """Whether an expression is a tensor, as far as the text shows it."""
        match node:
            case ast.Call():
                return _returns_a_tensor(node)
            case ast.BinOp():
                sides = (node.left, node.right)
                return any(self._is_tensor(function, side) for side in sides)
            case ast.UnaryOp():
                return self._is_tensor(function, node.operand)
            case ast.Subscript():
                return self._is_tensor(function, node.value)
            case ast.Attribute():
                if ast.unparse(node) in self.tensors:
                    return True
                return node.attr in _VIEWS and self._is_tensor(function, node.value)
            case ast.Name():
                return self._is_tensor_variable(function, node.id)
        return False

    def _is_tensor_variable(self, function: Function, name: str) -> bool:
        if name in self.tensors or _is_used_as_a_tensor(function, name):
            return True
        key = (id(function), name)
        if key not in self.are_tensors:
            self.are_tensors[key] = False  # while its own values are looked at
            values = list(_values(function, name))
            holds = all(self._is_tensor(function, value) for value in values)
            self.are_tensors[key] = bool(values) and holds
        return self.are_tensors[key]


def _bounds(call: ast.Call, owner: str) -> int:
    return len(call.args) + len(call.keywords) - (owner in _MODULES)


def _decided_by(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        return [] if _asks_for_none(node.test) else [node.test]
    return [node.iter] if isinstance(node, ast.For) else []


def _asks_for_none(node: ast.AST) -> bool:
    """Tell a comparison with None, which needs no value."""
    match node:
        case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
    return False


def _needs_a_number(node: ast.AST) -> list[ast.expr]:
    """An index, which may be one of a list, and what ``math`` is given."""
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice | ast.Tuple):
        return [node.slice]
    if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(_NO_TENSOR_MODULES):
        return list(node.args)
    return []


def is_on(node: ast.expr | ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _reads(place: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(place) if isinstance(node, ast.Name)}


def _reads_a_number(place: ast.AST) -> bool:
    calls = (node for node in ast.walk(place) if isinstance(node, ast.Call))
    return any(not _returns_a_tensor(call) for call in calls)


def _reads_a_number_at(nodes: list[ast.AST], line: int) -> bool:
    here = (node for node in nodes if isinstance(node, ast.Assign) and node.lineno == line)
    return any(_reads_a_number(node.value) for node in here)


def _derived(nodes: list[ast.AST], line: int) -> set[str]:
    """The variables that a line assigns, and those that are computed from them as numbers."""
    assigned = [node for node in nodes if isinstance(node, ast.Assign)]
    names = {name for node in assigned if node.lineno == line for name in _targets(node)}
    while True:
        more = {
            name
            for node in assigned
            if not any(_is_call_of_a_tensor(each) for each in ast.walk(node.value))
            and names & _reads(node.value)
            for name in _targets(node)
        }
        if more <= names:
            return names
        names |= more


def _is_call_of_a_tensor(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _returns_a_tensor(node)


def _targets(statement: ast.Assign) -> set[str]:
    return {
        node.id
        for target in statement.targets
        for node in ast.walk(target)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _parents(function: Function) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}


def _negates(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _is_read(node: ast.AST, name: str) -> bool:
    """Tell whether a node is the variable or attribute of this name, where it is read."""
    if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return False
    return ast.unparse(node) == name


def _counts(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.AugAssign) and ast.unparse(node.target) == name


def _is_passed(function: Function, owner: str, parents: dict[ast.AST, ast.AST]) -> bool:
    """Tell whether the object that holds the attribute is used as a whole."""
    whole = (node for node in ast.walk(function) if _is_read(node, owner))
    return any(not isinstance(parents[node], ast.Attribute) for node in whole)


def _returns_a_tensor(call: ast.Call) -> bool:
    written = ast.unparse(call.func)
    if written in _NO_TENSORS or written.startswith(_NO_TENSOR_MODULES):
        return False
    return written.rpartition(".")[2] not in _NO_TENSOR_METHODS


def _is_used_as_a_tensor(function: Function, name: str) -> bool:
    """An argument annotated as one, or of which the function asks what only tensors have."""
    for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
        annotation = argument.annotation
        if argument.arg == name and annotation is not None:
            return ast.unparse(annotation).rpartition(".")[2] == "Tensor"
    return any(_asks_a_tensor(node, name) for node in ast.walk(function))


def _asks_a_tensor(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _OF_A_TENSOR and ast.unparse(node.value) == name
    if not isinstance(node, ast.Call) or not node.args:
        return False
    of_torch = ast.unparse(node.func).partition(".")[0] in _MODULES
    return of_torch and ast.unparse(node.args[0]) == name


def _values(function: Function, name: str) -> Iterator[ast.AST]:
    """What the function assigns to a variable; one of several that a call returns is the call."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            is_one_of = isinstance(target, ast.Tuple | ast.List)
            names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            if not any(isinstance(each, ast.Name) and each.id == name for each in names):
                continue
            yield node.value if not is_one_of or isinstance(node.value, ast.Call) else node
