"""However kgprof is ended, and whenever: what was measured is there, and nothing that it started
is."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kgprof import cli
from kgprof.reading import layout, recordings

ROOT = Path(__file__).resolve().parents[2]
UNMEASURED = ("before", "planning")  # and so without a report
MEASURED = (
    "starting",
    "pass",
    "between",
    "clearing",
    "reading",
    "analysing",
    "rendering",
    "placing",
)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
EVERY = [(number, phase) for number in SIGNALS for phase in (*UNMEASURED, *MEASURED)]
SAMPLE = (
    (signal.SIGQUIT, "planning"),
    (signal.SIGTERM, "pass"),
    (signal.SIGHUP, "clearing"),
    (signal.SIGINT, "rendering"),
)
KILLED = 10
GONE_S = 10.0


def started(folder: Path, phase: str = "", *args: str) -> subprocess.Popen[str]:
    """``kgprof profile`` in a process group of its own, with a folder for temporary files of its
    own."""
    (folder / "tmp").mkdir(exist_ok=True)
    (folder / "s.py").touch()
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("KGPROF_") and name != "CI"
    }
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cli.waiting", "profile", "s.py", "-o", "out", *args],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp"), "WAIT_AT": phase},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(
    condition: Callable[[], object], running: subprocess.Popen[str] | None = None
) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert running is None or running.poll() is None, "it ended too early"
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def left(folder: Path) -> list[str]:
    """Processes that were started with the folder's own TMPDIR, and what is in that."""
    mark, found = (
        os.fsencode(f"TMPDIR={folder / 'tmp'}\0"),
        [str(one) for one in (folder / "tmp").iterdir()],
    )
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


def interrupted(
    folder: Path, phase: str, number: signal.Signals, *, twice: bool = False
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command that gets the signal as `timeout` sends it: to it,
    and to its group."""
    with started(folder, phase) as running:
        wait_until((folder / "at").exists, running)
        for _ in range(1 + twice):
            os.kill(running.pid, number)
            os.killpg(running.pid, number)
            time.sleep(0.45)
        out, err = running.communicate(timeout=60)
    return running.returncode, out, err


def ends_well(folder: Path, phase: str, number: signal.Signals) -> None:
    code, out, err = interrupted(folder, phase, number)

    assert code == 130, err
    # no traceback of kgprof's; a program shows its own, as on a terminal
    assert "kgprof/cli/" not in err
    assert not (folder / "out" / layout.UNFINISHED).exists()
    wait_until(lambda: not left(folder))
    if phase in UNMEASURED:
        assert err.splitlines()[-1] == "kgprof: error: interrupted"
        assert not (folder / "out").exists()
        return
    assert out == "out/report.html\n"
    assert (folder / "out" / "report.html").is_file()
    recording = recordings.load(folder / "out")
    assert ("Ctrl-C" in err + recording.runs[0].exit.message) <= (number is signal.SIGINT)
    if phase == "pass":
        said = "Ctrl-C" if number is signal.SIGINT else number.name
        assert (recording.runs[0].exit.outcome, recording.runs[0].exit.message) == (
            "interrupted",
            said,
        )


@pytest.mark.parametrize(("number", "phase"), SAMPLE)
def test_a_signal_in_each_phase_leaves_the_report_of_what_was_measured_and_nothing_else(
    tmp_path: Path, number: signal.Signals, phase: str
) -> None:
    ends_well(tmp_path, phase, number)


@pytest.mark.long
@pytest.mark.parametrize(("number", "phase"), EVERY)
def test_every_signal_in_every_phase(tmp_path: Path, number: signal.Signals, phase: str) -> None:
    ends_well(tmp_path, phase, number)


def test_a_second_signal_while_the_report_is_written_names_the_command_that_writes_it(
    tmp_path: Path,
) -> None:
    code, out, err = interrupted(tmp_path, "rendering", signal.SIGTERM, twice=True)

    unfinished = Path("out", layout.UNFINISHED)
    assert (code, out) == (130, "")
    assert err.splitlines()[-2:] == [
        "kgprof: error: interrupted",
        f"  hint: what was measured is in {unfinished}; to report on it: kgprof report "
        f"{unfinished}",
    ]
    assert cli.run(["report", str(tmp_path / unfinished)]) == 0
    assert (tmp_path / unfinished / "report.html").is_file()
    assert not left(tmp_path)


@pytest.mark.long
def test_what_was_told_to_ignore_a_hangup_ignores_it(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        code, _, err = interrupted(tmp_path, "analysing", signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)

    assert code == 5, err


def killed(folder: Path, after_s: float, capsys: pytest.CaptureFixture[str]) -> None:
    """SIGKILL; then 10 s later."""
    with started(folder) as running:
        try:
            running.wait(after_s)
        except subprocess.TimeoutExpired:
            running.kill()
        running.communicate()
    until = time.monotonic() + GONE_S
    while left(folder) and time.monotonic() < until:
        time.sleep(0.1)

    assert not left(folder)
    assert {one.name for one in folder.iterdir()} <= {"tmp", "s.py", "out"}
    code = cli.run(["report", str(folder / "out")])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    if code:
        assert code == 2
        assert (
            len([line for line in said.err.splitlines() if line.startswith("kgprof: error: ")]) == 1
        )
    else:
        assert Path(said.out.strip()).is_file()


MOMENTS = [random.Random(14).uniform(0.2, 5.0) for _ in range(1)] + [
    round(1.5 + 0.9 * at, 1) for at in range(2)
]


@pytest.mark.parametrize("after_s", MOMENTS)
def test_a_kgprof_that_is_killed_leaves_a_recording_and_nothing_else(
    tmp_path: Path, after_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    killed(tmp_path, after_s, capsys)


@pytest.mark.long
def test_ten_moments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moments = random.Random(2026)
    for number in range(KILLED):
        (tmp_path / str(number)).mkdir()
        killed(tmp_path / str(number), moments.uniform(0.0, 6.0), capsys)


def test_a_kgprof_that_is_killed_leaves_the_older_result(tmp_path: Path) -> None:
    with started(tmp_path) as running:
        running.communicate()
    older = (tmp_path / "out" / "report.json").read_bytes()

    with started(tmp_path, "pass") as running:
        wait_until((tmp_path / "at").exists, running)
        running.kill()
        running.communicate()

    assert (tmp_path / "out" / "report.json").read_bytes() == older
    assert recordings.load(tmp_path / "out").runs[0].exit.outcome == "ok"
    assert (
        recordings.load(tmp_path / "out" / layout.UNFINISHED).runs[0].exit.outcome == "interrupted"
    )


def test_two_runs_into_one_folder_do_not_mix(tmp_path: Path) -> None:
    with started(tmp_path, "pass") as first:
        wait_until((tmp_path / "at").exists, first)
        with started(tmp_path) as second:
            _, err = second.communicate()
        first.terminate()
        first.communicate()

    assert second.returncode == 2
    assert err.splitlines()[-2:] == [
        f"kgprof: error: another kgprof (process {first.pid}) is writing to out",
        "  hint: wait until it ends, or choose another folder with -o",
    ]
    assert first.returncode == 130
    assert recordings.load(tmp_path / "out").header.interrupted


@pytest.mark.parametrize(
    "happens",
    [
        "moved",
        pytest.param("deleted", marks=pytest.mark.long),
        pytest.param("replaced", marks=pytest.mark.long),
    ],
)
def test_a_run_whose_folder_goes_away_says_so_and_keeps_what_it_can(
    tmp_path: Path, happens: str
) -> None:
    with started(tmp_path, "between") as running:
        wait_until((tmp_path / "at").exists, running)
        if happens != "deleted":
            (tmp_path / "out").rename(tmp_path / "elsewhere")
        else:
            subprocess.run(["rm", "-r", tmp_path / "out"], check=True)
        if happens == "replaced":
            (tmp_path / "out" / layout.UNFINISHED).mkdir(parents=True)
        _, err = running.communicate()

    assert running.returncode == 2
    error, hint = err.splitlines()[-2:]
    unfinished = Path("out", layout.UNFINISHED)
    assert (
        error
        == f"kgprof: error: {unfinished} was moved, deleted or replaced while kgprof wrote to it"
    )
    if happens != "deleted":
        assert recordings.load(Path(hint.rpartition("kgprof report ")[2])).runs
    assert not left(tmp_path)
