"""A script of steps of about 1 ms, beside busy processes and alone: page, comment and terminal say
the same, and only one of them says what a step takes."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.analysis import analyse
from kgprof.document.finding_list import finding_list
from kgprof.document.first_screen import first_screen
from kgprof.document.summary import columns
from kgprof.model import (
    Load,
    Profile,
    RunKey,
    ScriptRun,
    Skipped,
    Spread,
    TimingPass,
    VerdictStatus,
)
from kgprof.render.html import LEVELS, Html
from kgprof.render.markdown import Markdown
from kgprof.render.text import Text
from tests.analysis.recordings import recording, run
from tests.render.profiles import kernels_of

TRAIN = RunKey(strategy="train", mode="as-is")
QUIET_US = tuple(1150.0 + 5 * (step % 9) for step in range(37))
BUSY_US = tuple(1150.0 if step % 3 else 90_000.0 + 9_000 * step for step in range(37))


def profile(step_us: tuple[float, ...], others_s: float) -> Profile:
    timing = TimingPass(
        clock="perf_counter",
        step_us=(step_us,),
        evaluation_s=(),
        cpu_us=QUIET_US,
        load=Load(seconds=4.0, cores=2, others_s=others_s, own_s=1.0),
    )
    script = ScriptRun(step="an optimizer step", steps=37, counted={"an optimizer step": 37})
    record = msgspec.structs.replace(run(TRAIN, evaluation_s=None), timing=timing, script=script)
    return analyse(recording(record, baseline=None))


QUIET, BUSY = profile(QUIET_US, 0.1), profile(BUSY_US, 7.6)
NOT_DECIDED = "train.as-is: step time not decided, 1.15 to "


def tiles(of: Profile) -> dict[str, str]:
    shown = first_screen(of, finding_list(of, LEVELS[0]))["tiles"]
    assert isinstance(shown, list)
    return {tile.label: f"{tile.value} | {tile.below} | {tile.tone}" for tile in shown}


def test_times_that_vary_are_not_decided_wherever_they_are_told() -> None:
    page, comment, terminal = Html().render(BUSY), Markdown().render(BUSY), Text().render(BUSY)

    assert BUSY.verdict.status is VerdictStatus.INCONCLUSIVE
    for told in (page, comment.replace("`", ""), terminal):
        assert NOT_DECIDED in told
        assert "takes" not in told.partition(NOT_DECIDED)[2][:60]
    assert "INCONCLUSIVE: train.as-is" in terminal
    assert "❔ **Inconclusive:** train.as-is" in comment.replace("`", "")
    busy = "other processes used 1.9 of 2 cores"
    assert busy in " ".join(terminal.split())
    assert tiles(BUSY)["Step"].endswith("not decided | attention")


def test_steady_steps_that_other_processes_held_up_are_not_decided() -> None:
    held_up = tuple(30 * each for each in QUIET_US)
    beside, alone = profile(held_up, 7.6), profile(held_up, 0.1)

    assert beside.verdict.status is VerdictStatus.INCONCLUSIVE
    assert "step time not decided, 34.5 to 35.6 ms/step" in beside.verdict.text
    assert tiles(beside)["Step"].endswith("other processes were busy: not decided | attention")
    assert "takes 35.1 ms/step" in alone.verdict.text


def test_the_same_script_alone_takes_its_median_and_is_green() -> None:
    page, comment, terminal = Html().render(QUIET), Markdown().render(QUIET), Text().render(QUIET)

    assert QUIET.verdict.status is VerdictStatus.OK
    for told in (page, comment, terminal):
        assert "takes 1.17 ms/step" in told.replace("`", "")
        assert "not decided" not in told.partition("Results")[0]
    assert tiles(QUIET)["Step"].startswith("1.17 ms | p10")


def test_the_first_step_of_a_script_is_not_called_a_call() -> None:
    """It lasts until the second one begins, whatever the program does before that."""
    assert "First step" in tiles(QUIET)
    assert "first step (s)" in {column.name for column in columns(QUIET)}


def test_cpu_time_stands_beside_wall_time_where_the_machine_was_busy() -> None:
    def details(profile: Profile) -> tuple[str, ...]:
        step = next(column for column in columns(profile) if column.key == "step")
        return step.cell(profile.runs[0]).details

    assert details(BUSY)[-1] == "1.17 ms CPU time"
    assert details(profile(QUIET_US, 7.6))[-1] == "1.17 ms CPU time"
    assert not any("CPU" in each for each in details(QUIET))


@pytest.mark.parametrize(
    ("window_us", "shares"),
    [
        (5 * 2_000.0, "50 % | 1.00 of 2.00 ms"),
        (5 * 20_000.0, "1.00 ms | per traced step, which took 17.1× the time of others"),
    ],
)
def test_of_traced_steps_far_from_the_timed_ones_no_share_is_told(
    window_us: float, shares: str
) -> None:
    (own,) = QUIET.runs
    assert isinstance(own.step, Spread)
    kernels = msgspec.structs.replace(
        kernels_of(TRAIN, "cpu"), steps=5, window_us=window_us, busy_us=5_000.0
    )
    traced = msgspec.structs.replace(own, kernels=kernels, compile=Skipped(reason="not here"))

    shown = tiles(msgspec.structs.replace(QUIET, runs=(traced,)))

    assert shown["Operators busy"].startswith(shares)


def test_the_share_of_a_step_that_is_not_decided_is_not_told() -> None:
    (own,) = BUSY.runs
    kernels = msgspec.structs.replace(kernels_of(TRAIN, "cuda"), steps=5, busy_us=5_000.0)

    shown = tiles(
        msgspec.structs.replace(BUSY, runs=(msgspec.structs.replace(own, kernels=kernels),))
    )

    assert shown["GPU busy"] == "1.00 ms | per traced step; its share is not decided | "
