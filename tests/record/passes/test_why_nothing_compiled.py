"""A program whose text asks for a compilation and that compiles nothing is told why, on its first
screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import commands

BEHIND_A_FLAG = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--fast", action="store_true")
net = torch.nn.Linear(3, 3)
if parser.parse_args().fast:
    net = torch.compile(net, backend="eager")
for _ in range(8):
    net(torch.ones(2, 3))
"""
SWITCHED_OFF = """
import torch._dynamo

torch._dynamo.config.disable = True
double = torch.compile(lambda x: 2 * x, backend="eager")


def step():
    return double(torch.ones(3))


for _ in range(8):
    step()
"""
NOTHING = "nothing was compiled in this run: "
DISABLED = "torch._dynamo.config.disable (train.py:4) is set, so torch.compile compiles nothing"


@pytest.mark.parametrize(
    ("text", "workload", "why"),
    [
        (
            BEHIND_A_FLAG,
            "train.py",
            "no torch.compile took effect: train.py:9 stands under `if parser.parse_args().fast`",
        ),
        (SWITCHED_OFF, "train.py", DISABLED),
        (SWITCHED_OFF, "train.py:step", DISABLED),
    ],
)
def test_what_keeps_torch_from_compiling_is_said(
    text: str, workload: str, why: str, tmp_path: Path
) -> None:
    assert NOTHING + why in screen(tmp_path, text, workload)


def test_a_torch_compile_that_is_switched_off_by_its_argument_did_run(tmp_path: Path) -> None:
    text = BEHIND_A_FLAG.replace('backend="eager"', "disable=True")

    shown = screen(tmp_path, text, "train.py", "--", "--fast")

    assert NOTHING + "no torch.compile took effect: train.py:9 stands under" in shown
    assert "did not run" not in shown


def test_a_flag_that_is_given_is_no_reason(tmp_path: Path) -> None:
    shown = screen(tmp_path, BEHIND_A_FLAG, "train.py", "--", "--fast")
    assert "nothing was compiled" not in shown


def test_a_switch_of_the_environment_is_said(tmp_path: Path) -> None:
    enabled = SWITCHED_OFF.replace("True", "False")
    shown = screen(tmp_path, enabled, "train.py", TORCHDYNAMO_DISABLE="1")
    assert f"{NOTHING}TORCHDYNAMO_DISABLE=1 is set" in shown


def screen(tmp_path: Path, text: str, *words: str, **environment: str) -> str:
    (tmp_path / "train.py").write_text(text)
    done = commands.run(
        *("profile", "--passes", "compile", "-o", "out", *words),
        cwd=tmp_path,
        environment={**commands.without_settings(), **environment},
    )
    assert done.returncode in (0, 5), done.stderr
    return " ".join(done.stderr.split())
