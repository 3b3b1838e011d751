"""kgprof capture as its user sees it, on a machine without a GPU; the cases themselves are in
tests/record."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgprof import cli
from kgprof import model as m
from kgprof.errors import EXIT_OK, EXIT_USAGE, EXIT_WORKLOAD
from kgprof.lab import captures
from kgprof.model import CaptureOutcome

STEP = """
import torch
x = torch.ones(4)
def step():
    return x + 1
"""


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.usefixtures("without_gpu")
def test_without_a_gpu_every_case_does_not_apply_and_one_sentence_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload, out, copy = tmp_path / "model.py", tmp_path / "out", tmp_path / "copy.json"
    workload.write_text(STEP)

    code = cli.run(
        ["capture", f"{workload}:step", "-q", "-o", str(out), "--format", f"json={copy}"]
    )
    printed = capsys.readouterr()

    assert code == EXIT_WORKLOAD
    assert printed.err.count("no case could be run: no CUDA device") == 1
    assert printed.out.splitlines()[-1] == str(out / "capture.html")
    assert sorted(path.name for path in out.iterdir()) == ["capture.html", "capture.json"]
    report = m.decode_json((out / "capture.json").read_bytes(), m.CaptureReport)
    assert copy.read_bytes() == (out / "capture.json").read_bytes()
    assert [each.name for each in report.results] == [
        each.name for each in captures.all_cases(built_in=False)
    ]
    assert {each.outcome for each in report.results} == {CaptureOutcome.NOT_APPLICABLE}
    assert not report.tried
    assert "ones(4)" not in printed.out
    assert str(tmp_path) not in (out / "capture.json").read_text()


def test_a_workload_that_raises_when_it_is_loaded_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload, out = tmp_path / "model.py", tmp_path / "out"
    workload.write_text("raise ValueError('no such card')\ndef step(): ...\n")

    code = cli.run(["capture", f"{workload}:step", "-q", "-o", str(out)])

    assert code == EXIT_WORKLOAD
    error = capsys.readouterr().err
    assert "no case could be run" in error
    assert "no such card" in error
    assert not out.exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["capture"], "WORKLOAD"),
        (["capture", "train.py"], "is a script"),
        (["capture", "silu-mul", "--case", "capture-sideways"], "no case 'capture-sideways'"),
        (["capture", "silu-mull"], "did you mean 'silu-mul'"),
        (["capture", "silu-mul", "--format", "sarif"], "no format 'sarif'"),
        (["capture", "silu-mul", "--strategy", "float16"], "no strategy 'float16'"),
        (["capture", "silu-mul", "--", "--sides", "3"], "silu-mul"),
    ],
)
def test_what_cannot_be_is_refused(
    args: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    code = cli.run(args)

    assert code == EXIT_USAGE
    assert words in capsys.readouterr().err


def test_the_cases_are_listed_each_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["capture", "--list"]) == EXIT_OK
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]

    assert "capture-default-new-shape" in names
    assert len(set(names)) == len(names) < 40


def test_a_pattern_means_every_case_that_fits() -> None:
    some = captures.chosen(["capture-eager-[rs]*", "eager"], built_in=True)

    names = [case.name for case in some]
    assert names == ["capture-eager-rng", "capture-eager-sync", "capture-eager-rebound", "eager"]
