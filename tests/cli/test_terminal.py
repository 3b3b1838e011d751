"""On a terminal: one live table, the result in short, a link, the next command; and a terminal that
is left clean."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import msgspec
import pytest

from kgprof.cli.terminal import next_command
from kgprof.model import RunReport, Skipped, VerdictStatus
from kgprof.render.text import Text
from tests.render import profiles

ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "fixtures" / "recordings" / "cuda_graphs_h200" / "breaks"
STEP = """
import time
import torch

def step():
    time.sleep(0.01)
    return torch.ones(2) + 1
"""
ESCAPES = re.compile(r"\x1b\][^\x1b]*\x1b\\|\x1b\[[0-9;?]*[A-Za-z]")


def on_a_terminal(
    *command: str,
    columns: int = 80,
    stop: tuple[str, int] | None = None,
    cwd: Path | None = None,
    **variables: str,
) -> tuple[int, str]:
    """The exit code and all that was written. ``stop``: a text after which a signal is sent."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    dropped = ("CI", "NO_COLOR", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "COLUMNS", "LINES")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    environment |= {"TERM": "xterm-256color", **variables}
    with subprocess.Popen(
        [sys.executable, "-m", "kgprof", *command],
        stdin=writer,
        stdout=writer,
        stderr=writer,
        cwd=cwd,
        env=environment,
        start_new_session=True,
    ) as process:
        os.close(writer)
        said, deadline = b"", time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                data = os.read(reader, 65536)
            except OSError:  # EIO: the other end is closed
                break
            said += data
            if stop is not None and stop[0].encode() in said:
                process.send_signal(stop[1])
                stop = None
        code = process.wait(30)
    os.close(reader)
    return code, said.decode("utf-8", errors="replace")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    shutil.copytree(RECORDING, folder / "recording")
    return folder


def reported(recorded: Path, *args: str, columns: int = 80, **variables: str) -> tuple[int, str]:
    """Without HTA, which takes most of a report's time."""
    return on_a_terminal("report", "--no-hta", str(recorded), *args, columns=columns, **variables)


@pytest.fixture(scope="module")
def short(recorded: Path) -> tuple[int, str]:
    return reported(recorded)


@pytest.mark.parametrize("columns", [80, 160])
def test_a_report_is_shown_in_short_as_wide_as_the_terminal_with_a_link_as_the_last_line(
    recorded: Path, short: tuple[int, str], columns: int
) -> None:
    code, said = short if columns == 80 else reported(recorded, columns=columns)

    plain = ESCAPES.sub("", said).replace("\r", "")
    assert code == 0
    assert re.search(r"\x1b\[1[0-9;]*m(OK|INCONCLUSIVE)", said)  # the verdict stands out
    lines = plain.rstrip("\n").splitlines()
    assert lines[-1].endswith("report.html")
    assert max(map(len, lines[:-1])) <= columns
    assert next(line for line in reversed(lines) if line.startswith("next: ")).startswith(
        "next: kgprof "
    )
    assert f"\x1b]8;;{(recorded / 'report.html').resolve().as_uri()}" in said


def test_without_colour_there_is_none(recorded: Path) -> None:
    _, said = reported(recorded, NO_COLOR="1")

    assert not re.search(r"\x1b\[[0-9;]*3\dm", said)


def test_verbose_shows_all_of_it(recorded: Path, short: tuple[int, str]) -> None:
    _, whole = reported(recorded, "-v")

    assert "Not measured" in whole
    assert "Not measured" not in short[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_terminal_as_it_was(tmp_path: Path, number: int) -> None:
    # long enough for the signal to come while it is timed, also on a busy machine
    (tmp_path / "slow.py").write_text(STEP.replace("0.01", "0.2"), encoding="utf-8")
    given = ("profile", "slow.py:step", "--mode", "eager", "--passes", "timing")

    ended, said = on_a_terminal(*given, stop=("timing", number), cwd=tmp_path)

    assert ended in (130, 128 + number)
    assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l")  # the cursor is shown again
    assert "\x1b[?1049h" not in said  # and no other screen was opened


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize(
    "state", ["comparison", "gate", "findings", "hostile", "hostile_comparison"]
)
def test_the_short_form_of_every_verb_fits_its_width(state: str, width: int) -> None:
    said = Text(color=True, width=width, brief=True).render(profiles.STATES[state]())

    assert max(len(ESCAPES.sub("", line)) for line in said.splitlines()) <= width
    assert "\x1b[" in said


@pytest.mark.parametrize("columns", [70, 150])
def test_a_sweep_is_shown_as_wide_as_the_terminal_and_in_colour(
    tmp_path: Path, columns: int
) -> None:
    shutil.copy(ROOT / "fixtures" / "sweeps" / "h100" / "linkpred.json", tmp_path / "sweep.json")
    (tmp_path / "sweep.html").touch()

    code, shown = on_a_terminal("advise", str(tmp_path), "--executions", "10000", columns=columns)

    lines = ESCAPES.sub("", shown).replace("\r", "").splitlines()
    widths = [len(line) for line in lines if not line.startswith("kgprof: inputs:")]
    assert code == 0
    assert re.search(r"\x1b\[[0-9;]*3\dm", shown)  # the verdict has a colour
    assert columns - 25 < max(widths) <= columns


def test_a_sweep_has_no_colour_where_none_is_wanted(tmp_path: Path) -> None:
    shutil.copy(ROOT / "fixtures" / "sweeps" / "h100" / "linkpred.json", tmp_path / "sweep.json")

    _, said = on_a_terminal("advise", str(tmp_path), "--executions", "10000", NO_COLOR="1")

    assert "10,000" in said
    assert not re.search(r"\x1b\[[0-9;]*3\dm", said)


@pytest.mark.parametrize("timed", [True, False])
def test_more_processes_are_offered_only_where_steps_were_timed(
    timed: bool, tmp_path: Path
) -> None:
    profile = profiles.clean()
    verdict = msgspec.structs.replace(profile.verdict, status=VerdictStatus.INCONCLUSIVE)
    runs = profile.runs if timed else untimed(profile.runs)
    undecided = msgspec.structs.replace(profile, verdict=verdict, runs=runs, actions=())

    assert ("--rounds 3" in next_command(undecided, tmp_path)) == timed


def untimed(runs: tuple[RunReport, ...]) -> tuple[RunReport, ...]:
    return tuple(msgspec.structs.replace(run, step=Skipped("not timed")) for run in runs)
