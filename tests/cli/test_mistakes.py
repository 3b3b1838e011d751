"""What a newcomer may type wrong, and what is said: what happened, and what to do.

``mistakes.toml`` has every line and the whole of its answer; none of them loads a program. What a
person judged to be no good answer is marked there.
"""

from __future__ import annotations

import os
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kgprof import cli

TABLE = Path(__file__).with_name("mistakes.toml")
MODEL = """import torch

class Model:
    pass

def step():
    return torch.compile(torch.ones)(2)

def batch(x):
    return x
"""
FILES = {
    "my_model.py": MODEL,
    "train.py": "import torch\nfor _ in range(3):\n    torch.ones(2)\n",
    "typo.py": "import torch\ndef step(:\n    pass\n",
    "notes.txt": "hello\n",
    "page.html": "<p>hi</p>",
    "trace.json": "{}",
}


def mistakes() -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["mistake"]
    return table


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "empty").mkdir(parents=True)
    (folder / ".git").mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("mistake", mistakes(), ids=lambda mistake: str(mistake["typed"]))
def test_a_mistake_is_one_error_that_says_what_to_do(
    mistake: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.run(shlex.split(mistake["typed"]))

    out, err = capsys.readouterr()
    said = err[err.index("kgprof: error: ") :]  # after what was read
    said = said.replace(f"{here}{os.sep}", "").replace(str(here), "HERE")
    assert (code, out) == (2, "")
    assert said == mistake["said"]


def test_there_are_enough_of_them_and_most_are_answered_well() -> None:
    typed = [mistake["typed"] for mistake in mistakes()]
    good = [mistake for mistake in mistakes() if not mistake.get("lacks")]

    assert len(set(typed)) == len(typed) >= 70
    assert len(good) / len(typed) >= 66 / 70
