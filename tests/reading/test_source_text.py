"""Which function a line is in, where its def is, and what the line says."""

from __future__ import annotations

import ast

import pytest

from kgprof.model import Location
from kgprof.model.compile_records import SourceFile, Sources
from kgprof.reading.source_text import (
    SourceText,
    _may_bind,
    bindings,
    is_resumed,
    user_function,
)
from tests.collectors import written
from tests.collectors.written import FILE, LIBRARY

SOURCE = SourceText(written.sources())


def source(text: str | None) -> SourceText:
    return SourceText(Sources(files={FILE: SourceFile(sha256="", text=text)}))


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("step", "step"),
        ("torch_dynamo_resume_in_step_at_16", "step"),
        ("torch_dynamo_resume_in_<lambda>_at_3", "<lambda>"),
        ("torch_dynamo_resume_in_torch_dynamo_resume_in_step_at_16_at_18", "step"),
        ("torch_dynamo_resume_in_step", "torch_dynamo_resume_in_step"),
    ],
)
def test_the_users_function_behind_a_resumed_one(name: str, function: str) -> None:
    assert user_function(name) == function
    assert is_resumed(name) == (function != name)


@pytest.mark.parametrize(
    ("first_line", "function", "line"),
    [
        (4, "report", 4),
        (10, "step", 13),  # the decorator takes three lines
        (16, "torch_dynamo_resume_in_step_at_16", 13),
        (5, "torch_dynamo_resume_in_report_at_5", 4),
    ],
)
def test_a_code_objects_def(first_line: int, function: str, line: int) -> None:
    assert SOURCE.definition(FILE, first_line, function) == written.place(
        FILE, line, user_function(function)
    )


def test_what_has_no_def_stands_on_its_own_line() -> None:
    assert SOURCE.definition(FILE, 15, "<listcomp>") == Location(
        file=FILE, line=15, function="Model.step.<listcomp>", text="        for row in y:"
    )


def test_a_lambda_is_named_behind_the_function_around_it() -> None:
    found = source("def step(x):\n    f = lambda t: t * 2\n    return f(x)\ng = lambda t: t\n")

    names = [found.definition(FILE, line, "<lambda>").function for line in (2, 4)]
    assert names == ["step.<lambda>", "<lambda>"]


@pytest.mark.parametrize(
    ("body", "only"),
    [
        ("return f(x + 1)", True),
        ("return f(x, 1)", False),
        ("return f(*x)", False),
        ("if x.ndim: return x\n    return f(x)", False),
    ],
)
def test_a_function_that_only_returns_a_call(body: str, only: bool) -> None:
    found = source(f"def step(x, f):\n    {body}\n")

    assert found.only_returns(found.at(FILE, 2), "f") is only


@pytest.mark.parametrize(
    ("other", "known"), [("'a'", True), ("Task.A", True), ("wanted", False), ("x", False)]
)
def test_a_comparison_that_a_caller_can_make(other: str, known: bool) -> None:
    body = f"    wanted = len(x)\n    return x if task == {other} else -x\n"
    found = source(f"def step(x, task):\n{body}")

    expected = f"task == {other}" if known else ""
    assert found.comparison(found.at(FILE, 3), "task") == expected


def test_a_line_outside_of_every_function_keeps_the_name_it_came_with() -> None:
    assert SOURCE.at(FILE, 1, "<module>") == Location(
        file=FILE, line=1, function="<module>", text="import torch"
    )


def test_the_innermost_function_of_a_line_is_named_with_what_it_stands_in() -> None:
    text = (
        "def outer():\n    def inner(x):\n        return x\n    async def other():\n "
        "       pass\n    return inner\n"
    )

    found = source(text)

    assert [found.at(FILE, line).function for line in (1, 3, 5, 6)] == [
        "outer",
        "outer.inner",
        "outer.other",
        "outer",
    ]


def test_a_decorator_belongs_to_the_function_that_runs_it() -> None:
    text = "def outer(x):\n    @apart\n    def inner(x):\n        return x\n    return inner(x)\n"

    found = source(text)

    assert found.at(FILE, 2, "outer").function == "outer"
    assert found.at(FILE, 2, "inner").function == "outer.inner"
    assert found.at(FILE, 2).function == "outer.inner"


@pytest.mark.parametrize("text", [None, "", "this is ( no Python"])
def test_without_readable_text_places_stay_as_they_are(text: str | None) -> None:
    found = source(text)

    assert found.definition(FILE, 3, "f").line == 3
    assert found.definition(FILE, 3, "f").function == "f"


def test_a_line_beyond_the_end_has_no_text() -> None:
    assert SOURCE.at(FILE, 999, "f") == Location(file=FILE, line=999, function="f", text="")


def test_the_innermost_line_of_the_project_in_a_stack() -> None:
    stack = (
        Location(file=FILE, line=21, function="train"),
        Location(file=FILE, line=17, function="step"),
        Location(file=LIBRARY, line=3, function="forward"),
    )

    assert SOURCE.innermost(stack) == written.place(FILE, 17, "step")
    assert SOURCE.innermost(stack[2:]) is None


def test_two_checkouts_name_a_file_alike() -> None:
    assert SOURCE.identity(written.place(*written.LOOP)) == ("model.py", "Model.step", "print(row)")
    assert SOURCE.identity(Location(file="/src/other.py", line=3)) == ("/src/other.py", "", "")
    assert SOURCE.identity(None) == ()


# --------------------------------------------------------- what binds a name, what a branch returns

BINDS = """\
state = 0


class Model:
    def __init__(self):
        self.state = 1

    def step(self, new, /, *more, key=None, **rest):
        self.state = new
        local, self.state = 1, 2
        self.weight.data = new
        options["state"] = new
        state = new

    def load(self, tensors):
        for name, tensor in tensors.items():
            setattr(self, name, tensor)


def swap():
    global state
    state = 2


def choose(x):
    return torch.cond(
        x.sum() > 0,
        lambda t: t.sin(),
        part,
        (x,),
    )


def part(t):
    if t.dim():
        return t[0].view(-1)
    return t * 2
"""


def test_the_lines_that_bind_a_name_outside_of_constructors() -> None:
    program = source(BINDS)

    assert [place.line for place in program.rebound("state")] == [9, 10, 12, 22]
    assert [place.line for place in program.rebound("weight")] == [11]


def test_a_computed_name_stands_in_where_no_line_has_the_name() -> None:
    (place,) = source(BINDS).rebound("table")

    assert (place.line, place.function) == (17, "Model.load")


def test_the_arguments_of_a_function_behind_its_own_break_as_well() -> None:
    program = source(BINDS)

    whole = ("self", "new", "key", "more", "rest")
    assert program.arguments(written.FILE, 8, "step") == whole
    assert program.arguments(written.FILE, 10, "torch_dynamo_resume_in_step_at_10") == whole
    assert program.arguments(written.FILE, 99, "nowhere") == ()


def test_an_argument_whose_name_is_given_to_something_else_is_not_kept() -> None:
    program = source("def f(scores, ids):\n    scores = scores.clone()\n    return scores, ids\n")

    assert program.kept_arguments(FILE, 1, "f") == ("ids",)
    assert program.kept_arguments(FILE, 3, "torch_dynamo_resume_in_f_at_3") == ("ids",)
    assert program.kept_arguments(FILE, 9, "nowhere") == ()


def test_of_two_branches_the_one_that_plainly_returns_its_argument() -> None:
    program = source(BINDS)
    cond = program.at(written.FILE, 26)

    assert [place.line for place in program.branches(cond, "cond")] == [36]
    assert program.branches(program.at(written.FILE, 21), "cond") == ()


def test_where_none_does_so_plainly_both_are_named() -> None:
    program = source(
        "def f(x):\n    return cond(x.any(), lambda t: g(t),\n        lambda t: t + 1, (x,))\n"
    )

    assert [place.line for place in program.branches(program.at(written.FILE, 2), "cond")] == [2, 3]


@pytest.mark.parametrize(
    ("text", "switched"),
    [
        ("net.train()\nnet.eval()\n", "net"),
        ("net.train(epoch % 2 == 0)\n", "net"),
        ("net.train()\nnet.body.eval()\n", ""),
        ("trainer = Trainer(net)\ntrainer.train()\n", ""),
        ("class Net:\n    def freeze(self):\n        self.body.eval()\n", ""),
        ("eval('1 + 1')\n", ""),
    ],
)
def test_the_only_module_that_is_set_to_training_or_evaluation(text: str, switched: str) -> None:
    assert source(text).switched([FILE]) == switched
    assert source(text).switched(["/elsewhere.py"]) == ""  # which leads to no call


@pytest.mark.parametrize(
    ("text", "is_given"),
    [
        ("DataLoader(rows, pin_memory=True)", True),
        ("options = {'pin_memory': args.pin}", True),
        ("DataLoader(rows, pin_memory = False)", False),
        ("DataLoader(rows)", False),
    ],
)
def test_an_option_that_the_program_gives(text: str, is_given: bool) -> None:
    assert source(text).gives("pin_memory") is is_given


KEPT = """
for x in batches:
    total += loss.item()
    if x:
        losses.append(loss.item())
        print(sum(losses))
    stats["loss"] += loss.item()
    self.rows.append(loss.item())
print(total, stats, self.rows)


def step():
    seen.append(loss.item())
    return len(seen)


def write():
    at, words = 0, [start]
    for token in range(9):
        words.append(propose(token).item())
    texts = []
    for token in range(9):
        texts.append(propose(texts[-1]).item())


def fit():
    kept = []
    for epoch in range(9):
        if epoch % 3 == 0:
            save(np.array(kept))
        for x in batches:
            kept.append(loss.item())
"""


@pytest.mark.parametrize(
    ("line", "is_read", "later"),
    [
        *((3, False, 9), (5, True, 0), (7, False, 9), (8, False, 9)),
        *((13, True, 0), (6, False, 0), (20, True, 0), (23, True, 0), (32, True, 0)),
    ],
)
def test_what_a_line_adds_to_is_read_in_its_loop_or_behind_it(
    line: int, is_read: bool, later: int
) -> None:
    assert source(KEPT).reads_what_it_keeps(FILE, line) == (is_read, later, 0)


@pytest.mark.parametrize(
    ("behind", "until"),
    [
        ("plot(rows)\nrows = []\nplot(rows)", 5),
        ("plot(rows)\nfor rate in rates:\n    rows = []\n    plot(rows)", 6),
        ("plot(rows)\nfor rate in rates:\n    rows = []\nplot(rows)", 0),
        ("if late:\n    rows = []\nplot(rows)", 0),
        ("rows = sorted(rows)\nplot(rows)", 0),
        ("plot(rows)", 0),
    ],
)
def test_the_line_from_which_on_its_name_stands_for_something_else(behind: str, until: int) -> None:
    text = f"rows = []\nfor x in batches:\n    rows.append(loss.item())\n{behind}\n"

    assert source(text).reads_what_it_keeps(FILE, 3)[2] == until


def test_a_lambda_has_arguments_as_a_def_has() -> None:
    text = "outer = compiled(lambda q, temp: q * temp)\n\n\ndef plain(a, *, b):\n    return a\n"

    assert source(text).arguments(FILE, 1, "<lambda>") == ("q", "temp")
    assert source(text).arguments(FILE, 4, "plain") == ("a", "b")
    assert source("").arguments(FILE, 1, "<lambda>") == ()


BINDINGS = (
    "x.state = 1",
    "x.y, x.state = 1, 2",
    "for x.state in y: pass",
    "x.state.data = 1",
    "x['state'] = 1",
    'x["state"] += 1',
    "global state\n    state = 1",
    "nonlocal state\n    state = 1",
    "setattr(x, 'state', 1)",
    "setattr(x, name, 1)",
    "setattr(x, 'a' 'b' if y else name, 1)",
    "setattr(f(x, 'a'), name, 1)",
    'setattr(x, f"{name}", 1)',
    "setattr(x, 'other', 1); setattr(x, name, 1)",
    "put = setattr; x.setattr(\n        y, name, 1)",
)
OTHERS = (
    "x.states = 1",
    "state = 1",
    "x.update(states=1)",
    "setattr(x, 'other', 1)",
    "patch.setattr('a.b', 1)",
    "global other\n    other = 1",
)


def test_a_text_that_binds_a_name_is_parsed_and_one_of_other_names_is_not() -> None:
    def found(text: str) -> tuple[bool, bool]:
        """Whether it is parsed, and whether it binds the name."""
        function = f"def outer():\n  state = name = y = 0\n  def f(x):\n    {text}\n"
        lines = bindings(ast.parse(function), "state", but=("outer",))
        return _may_bind(f"def f(x):\n    {text}\n", "state"), bool(list(lines))

    assert [text for text in BINDINGS if found(text) != (True, True)] == []
    assert [text for text in OTHERS if found(text) != (False, False)] == []


@pytest.mark.parametrize(
    ("text", "is_frozen"),
    [
        ("@dataclass(frozen=True)\nclass Config:\n    eps: float = 1e-5\n", True),
        ("class Config(typing.NamedTuple):\n    eps: float\n", True),
        ("@dataclass(frozen=False)\nclass Config:\n    eps: float = 1e-5\n", False),
        ("@dataclass(frozen=True)\nclass Config:\n    order: int = 2\n", False),
    ],
)
def test_a_field_that_takes_no_assignment(text: str, is_frozen: bool) -> None:
    assert source(text).is_frozen("eps") == is_frozen
