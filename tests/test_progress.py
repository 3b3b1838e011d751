"""Progress is a live line on a terminal and plain lines anywhere else."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from kgprof import progress
from kgprof.model import RunKey

KEY = RunKey(strategy="fused", mode="default")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _a_good_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)


def shown(stream: io.StringIO, *, quiet: bool = False) -> str:
    with progress.choose(quiet=quiet, stream=stream) as told:
        told.phase("plan", None)
        told.phase("compile", KEY)
        told.result("7.42 ms/step", KEY)
    return stream.getvalue()


def test_a_pipe_gets_one_plain_line_a_phase() -> None:
    lines = shown(io.StringIO()).splitlines()

    assert [re.sub(r"\d+\.\d s", "0.0 s", line) for line in lines] == [
        "kgprof:     0.0 s  loading the workload",
        "kgprof:     0.0 s  fused.default  compile",
        "kgprof: fused.default: 7.42 ms/step",
    ]


@pytest.mark.parametrize(("variable", "value"), [("CI", "true"), ("TERM", "dumb")])
def test_ci_and_a_dumb_terminal_get_plain_lines_too(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)

    assert "\x1b" not in shown(Terminal())


def test_a_wide_terminal_shows_what_each_run_gave_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    stream = Terminal()
    with progress.choose(quiet=False, stream=stream) as told:
        told.expect((KEY,), ("timing",))
        told.phase("timing", KEY)
        told.result("7,420 ms/step, median of 3 steps", KEY, short="7,420 ms/step")

    assert "7,420 ms/step" in stream.getvalue()
    assert "median of 3" not in stream.getvalue()


def test_a_terminal_gets_one_table_of_runs_by_passes_that_goes_away() -> None:
    stream = Terminal()
    eager = RunKey(strategy="fused", mode="eager")
    with progress.choose(quiet=False, stream=stream) as told:
        told.phase("plan", None)
        told.expect((eager, KEY), ("compile", "timing"))
        told.phase("timing", eager)
        told.result("7,420 ms/step, median of 3 steps", eager, short="7,420 ms/step")
        told.phase("prepare", KEY)

    text = stream.getvalue()
    assert "\x1b[?25l" in text  # the cursor is hidden while the table is drawn
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # and shown again
    # what was drawn is erased
    assert text.rindex("\x1b[2K") > text.rindex("starting the process (fused.default)")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert re.search(r"run +compile +timing", plain)
    assert re.search(r"fused\.eager +· +0\.0 s", plain)
    assert re.search(
        r"starting the process \(fused\.default\); 0\.0 s elapsed, about 1\.0 s left", plain
    )


def test_two_runs_at_a_time_are_both_shown_until_each_has_ended() -> None:
    stream = Terminal()
    eager = RunKey(strategy="fused", mode="eager")
    with progress.choose(quiet=False, stream=stream) as told:
        told.expect((eager, KEY), ("memory",))
        told.phase("timing", KEY)
        told.phase("memory", eager, beside=True)
        told.phase("memory", KEY, beside=True)
        both = table(told)
        told.phase("", eager, beside=True)
        one = table(told)

    assert re.search(
        r"memory \(fused\.eager\), memory \(fused\.default\); 0\.0 s elapsed$", both, re.MULTILINE
    )
    runs_on = re.compile(r"(fused\.\w+) +0\.0 s(…?)$", re.MULTILINE)
    assert runs_on.findall(both) == [("fused.eager", "…"), ("fused.default", "…")]
    assert runs_on.findall(one) == [("fused.eager", ""), ("fused.default", "…")]


def table(told: progress.Progress) -> str:
    assert isinstance(told, progress.Live)
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as captured:
        console.print(told._table())
    return re.sub(r" +$", "", captured.get(), flags=re.MULTILINE)


def test_verbose_gets_every_phase_as_a_line_on_a_terminal_too() -> None:
    stream = Terminal()
    with progress.choose(quiet=False, verbose=True, stream=stream) as told:
        told.phase("compile", KEY)

    assert re.fullmatch(r"kgprof: +0\.0 s  fused\.default  compile\n", stream.getvalue())


@pytest.mark.parametrize(
    ("spent", "words"),
    [(3.21, "3.2 s"), (41.4, "41 s"), (125.2, "2 min 05 s"), (59.7, "1 min 00 s")],
)
def test_a_time_is_said_in_few_digits(spent: float, words: str) -> None:
    assert progress.seconds(spent) == words


def test_without_colour_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", shown(Terminal()))


def test_quiet_is_silent() -> None:
    assert shown(Terminal(), quiet=True) == ""


def test_a_name_of_the_users_is_not_read_as_markup(tmp_path: Path) -> None:
    stream = Terminal()
    with progress.choose(quiet=False, stream=stream) as told:
        told.phase("compile", RunKey(strategy="[red]x[/nothing]", mode="eager"))

    assert "[red]x[/nothing].eager" in stream.getvalue()
