"""What a program's text says of torch.compile, and which of its functions nothing calls."""

from __future__ import annotations

import pytest

from kgprof.reading.compile_calls import first_compile, uncalled


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
    ],
)
def test_a_function_that_no_line_leads_to_is_one_to_run(text: str, names: tuple[str, ...]) -> None:
    assert uncalled(text) == names
