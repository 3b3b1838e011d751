"""Closed streams, and what a program's texts may not do on stderr and in a comment."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kgprof.cli import reading
from kgprof.cli.saying import inform, say
from kgprof.document.escaping import escaped
from kgprof.errors import EXIT_OK, EXIT_USAGE, OutputError
from kgprof.progress import STYLED, Plain, tell
from kgprof.record.ground import store
from kgprof.render import by_name
from tests.attack import documents
from tests.attack.asked import ask
from tests.record import handmade
from tests.render.everything import everything

ROOT = Path(__file__).resolve().parents[2]
TINY = """
import torch

@torch.compile(backend="eager")
def doubled(x):
    return x * 2

for _ in range(6):
    doubled(torch.ones(4))
print("printed")
"""


@pytest.mark.parametrize(
    "descriptors", [(2,), pytest.param((0, 1, 2), marks=pytest.mark.long)], ids=str
)
def test_a_script_is_checked_with_closed_streams(
    descriptors: tuple[int, ...], tmp_path: Path
) -> None:
    (tmp_path / "tiny.py").write_text(TINY, "utf-8")

    def close() -> None:
        for one in descriptors:
            os.close(one)

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "kgprof",
            *["check-graphs", "--backend", "eager", "tiny.py", "-o", "out"],
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=close,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0
    assert (tmp_path / "out" / "report.html").is_file()
    (log,) = tmp_path.glob("out/recording/runs/*/log.txt")
    assert "printed" in log.read_text("utf-8")


def test_whatever_is_told_on_stderr_steers_no_terminal_and_turns_no_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "evil \u202e txt \x1b[31m \x9b2J \u2066"
    stream = io.StringIO()

    say(text, text)
    inform(text)
    tell(text)
    Plain(stream).phase(f"reading {text}", None)

    for shown in (capsys.readouterr().err, stream.getvalue()):
        assert "evil \\u202e txt \\x1b[31m \\x9b2J \\u2066" in shown
        assert not set("\u202e\x1b\x9b\u2066") & set(shown)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_our_own_colours_reach_a_terminal() -> None:
    stream = Terminal()

    tell("\x1b[1mbold\x1b[0m \u202e", stream, kept=STYLED)

    assert stream.getvalue() == "\x1b[1mbold\x1b[0m \\u202e\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("fixes #1", "fixes #<!-- -->1"),
        ("#123", "\\#<!-- -->123"),
        ("o/r#4", "o/r#<!-- -->4"),
        ("gh-7 GH-8", "gh-<!-- -->7 GH-<!-- -->8"),
        ("!9", "!<!-- -->9"),
        ("https://github.com/o/r/pull/2", "https://github.com/o/r/pull/<!-- -->2"),
        ("https://github.com/o/r/Issues/2", "https://github.com/o/r/Issues/<!-- -->2"),
        ("@someone", "@<!-- -->someone"),
        ("a # comment, C#, high-7", "a # comment, C#, high-7"),
    ],
)
def test_a_text_in_a_comment_names_no_issue_and_no_person(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_json_of_a_sheet_on_a_terminal_steers_nothing_too(tmp_path: Path) -> None:
    sweep = json.loads((documents.SWEEPS / "h200" / "small-ops.json").read_text())
    sweep["question"]["workload"] = text = "a\x9b31m\u202e\x7f\u2028"
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))

    ended = ask("advise", tmp_path, "--executions", "10", "--format", "json")

    assert ended.code == EXIT_OK, ended.said
    assert not set(text[1:2] + text[5:]) & set(ended.out)
    assert json.loads(ended.out)["question"]["workload"] == text


def test_json_on_a_terminal_steers_nothing_and_is_the_same_json() -> None:
    profile = everything(["a\x9b31m\u202e\x7f\u2028"])

    text = by_name("json").render(profile)

    assert not set("\x9b\u202e\x7f\u2028") & set(text)
    assert json.loads(text)["workload"] == profile.workload


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.EIO, "a fault of the disk"),
        (errno.EACCES, "choose a writable place"),
        (errno.ENOSPC, "free some disk space"),
    ],
)
@pytest.mark.parametrize("file", [None, "place.html"])
def test_a_write_that_no_code_foresaw_is_one_error_that_says_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str, file: str | None
) -> None:
    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number), file)

    monkeypatch.setattr(reading, "analyse", fails)
    handmade.write(tmp_path / "recording")

    ended = ask("report", tmp_path)

    assert (ended.code, ended.fault) == (EXIT_USAGE, "")
    assert os.strerror(number) in ended.said
    assert hint.rpartition(" a ")[2] in ended.said or (file and number == errno.EACCES)


def test_a_device_that_fails_is_no_matter_of_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OutputError) as raised:
        store.write_export(tmp_path / "x", b"x")

    assert "writable" not in raised.value.hint
    assert "a fault of the disk" in raised.value.hint
