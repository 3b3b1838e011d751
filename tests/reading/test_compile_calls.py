"""What a program's text says of torch.compile, and which of its functions nothing calls."""

from __future__ import annotations

import ast

import pytest

from kgprof.reading.compile_calls import (
    condition,
    first_compile,
    not_static,
    sets_true,
    thrown_away,
    uncalled,
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import torch\nfast = torch.compile(net)\n", 2),
        ("import torch\n\n@torch.compile\ndef f(x): ...\n", 3),
        ("import torch as t\nnet = t.compile(net, mode='default')\n", 2),
        ("from torch import compile as c\n@c(dynamic=True)\ndef f(x): ...\n", 2),
        ("import re\nPATTERN = re.compile('a')\n", None),
        ("import torch\nNOTE = 'write torch.compile(model)'  # torch.compile\n", None),
        ("compile = 3\nprint(compile)\n", None),
        ("import torch\nNAMES = signature(torch.compile).parameters\n", None),
        ("import torch\nrun(torch.compile(net), each=torch.compile)\n", 2),
        ("import torch\nfast = torch.compile(net\n", None),
    ],
)
def test_torch_compile_is_found_as_code_alone(text: str, line: int | None) -> None:
    assert first_compile(text) == line


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def step(): ...\n", ("step",)),
        ("def step(): ...\nstep()\n", ()),
        ("def load(): ...\ndef step(n=3, *, fast=True):\n    load()\n", ("step",)),
        ("def step(batch): ...\n", ()),
        ("def step(*, batch): ...\n", ()),
        ("def step(): ...\ndef main():\n    step()\nif __name__ == '__main__':\n    main()\n", ()),
        ("import app\n@app.command()\ndef train(): ...\napp.run()\n", ()),
        ("import torch\n@torch.no_grad()\ndef step(): ...\n", ("step",)),
        ("def init(): ...\nclass Job:\n    def run(self):\n        init()\nJob().run()\n", ()),
        ("def one(): ...\ndef two(x=one()): ...\n", ("two",)),
        ("def again():\n    again()\n", ("again",)),
        ("def broken(:\n", ()),
        ("def step(): ...\nTimer('step()', setup='pass').timeit()\n", ()),
        ("def step(): ...\nNAMES = {'fast': 'step'}\n", ()),
        ("def step(): ...\nexec(command)\n", ()),
        ("def step(): ...\ngetattr(module, name)()\n", ()),
        ("def main():\n    Timer(command, globals=globals())\ndef step(): ...\nmain()\n", ()),
        ('"It has a step."\ndef step():\n    "One step."\n    net.eval()\n', ("step",)),
    ],
)
def test_a_function_that_no_line_leads_to_is_one_to_run(text: str, names: tuple[str, ...]) -> None:
    assert uncalled(text) == names


UNDER_A_FLAG = """
def main(args):
    if args.compile and args.steps:
        net = torch.compile(net)
    else:
        step = torch.compile(step)
    fast = torch.compile(head) if args.fast else head
    loss = torch.compile(loss)
    body = body if args.plain else torch.compile(body)
    if args.all: rest = torch.compile(rest)
    try:
        if args.tail: tail = torch.compile(tail)
    except RuntimeError: log("no compile")


if __name__ == "__main__":
    tail = torch.compile(tail)
"""


@pytest.mark.parametrize(
    ("line", "under"),
    [
        (4, "under `if args.compile and args.steps`"),
        (6, "in the else of `if args.compile and args.steps`"),
        (7, "under `if args.fast`"),
        (8, ""),
        (9, "in the else of `if args.plain`"),
        (10, "under `if args.all`"),
        (12, "under `if args.tail`, in a `try` whose `except` may hide what it raises"),
        (17, ""),
    ],
)
def test_the_condition_of_a_line_is_the_innermost_if(line: int, under: str) -> None:
    assert condition(UNDER_A_FLAG, line) == under


@pytest.mark.parametrize(
    ("statement", "kept"),
    [
        ("torch.compile(net, mode='default')", "net = torch.compile(net, mode='default')"),
        ("net = torch.compile(net)", ""),
        ("torch.compile(net)(x)", ""),
        ("run(torch.compile(net))", ""),
    ],
)
def test_a_call_that_is_a_statement_has_no_effect(statement: str, kept: str) -> None:
    said = thrown_away(f"if True:\n    {statement}\n", 2)

    assert bool(said) is bool(kept)
    assert kept in said


@pytest.mark.parametrize(
    ("text", "without"),
    [
        (
            "f = torch.compile(net, mode='default', dynamic=False)",
            "torch.compile(net, mode='default')",
        ),
        ("@torch.compile(dynamic=False)\ndef f(x): ...", "torch.compile()"),
        ("f = torch.compile(net, dynamic=True)", ""),
        ("f = torch.compile(Net(dynamic=False))", ""),
    ],
)
def test_a_call_is_written_without_dynamic_false(text: str, without: str) -> None:
    assert not_static(ast.parse(text), 1) == without


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import torch._dynamo\ntorch._dynamo.config.disable = True\n", 2),
        ("import torch._dynamo.config as config\nconfig.disable = True\n", 2),
        ("config.disable = False\n", None),
        ("button.disable = True\n", None),
        ("config.disable = True\nconfig.disable = (\n", None),
    ],
)
def test_a_setting_of_torchs_has_its_line(text: str, line: int | None) -> None:
    assert sets_true(text, "disable") == line
