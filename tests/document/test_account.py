"""Where the time of a script went is the first picture of its page, and a line elsewhere."""

from typing import Any

import msgspec
import pytest

from kgprof import model as m
from kgprof.analysis import analyse
from kgprof.document.account import lines, measured
from kgprof.render.html import Html
from kgprof.render.markdown import Markdown
from kgprof.render.text import Text
from tests.analysis.recordings import recording, run

TRAIN = m.RunKey(strategy="train", mode="as-is")
WATCHED = m.Skipped("nobody watched it")


def account(*, under_listeners: bool, **shares: float) -> m.ScriptAccount:
    return m.ScriptAccount(
        total_us=8e6,
        phases=tuple(
            m.RunPhaseTime(phase=m.RunPhase[name], us=8e6 * share, share=share)
            for name, share in shares.items()
        ),
        under_listeners=under_listeners,
    )


def profile(
    rerun: m.ScriptAccount | m.Skipped,
    watched: m.ScriptAccount | m.Skipped = WATCHED,
    **fields: Any,
) -> m.Profile:
    timing = m.TimingPass(
        clock="perf_counter", step_us=((900.0, 910.0, 905.0),), evaluation_s=(), account=rerun
    )
    script = m.ScriptRun(step="an optimizer step", steps=4, counted={}, account=watched)
    record = msgspec.structs.replace(run(TRAIN, evaluation_s=None), timing=timing, script=script)
    return analyse(recording(msgspec.structs.replace(record, **fields), baseline=None))


def slower_than_eager() -> m.Profile:
    """Of a script whose step is 1,000 us long compiled and 200 us with compiling off."""
    marks = "an optimizer step"
    timing = m.TimingPass(
        clock="perf_counter", step_us=((1000.0, 1001.0),), evaluation_s=(), step=marks
    )
    eager = msgspec.structs.replace(timing, step_us=((200.0, 201.0),), start_us=(600.0,))
    script = m.ScriptRun(step=marks, steps=4, counted={})
    record = msgspec.structs.replace(
        run(TRAIN, evaluation_s=None, compiled=1),
        timing=timing,
        eager_timing=eager,
        script=script,
    )
    return analyse(recording(record, baseline=None))


RERUN = account(under_listeners=False, START=0.2, COMPILING=0.304, STEPS=0.49, AFTER=0.005)
UNDER_LISTENERS = account(under_listeners=True, START=0.75, STEPS=0.25)
LINE = (
    "8.00 s from first line to end: steps 49 %, compiling 30 %, before the first step 20 % "
    "(rerun without instruments; torch was imported before)"
)


def test_the_rerun_is_told_before_what_was_watched() -> None:
    shown = profile(RERUN, UNDER_LISTENERS)

    assert LINE in " ".join(Text().render(shown).split())
    assert LINE in Markdown().render(shown)
    assert shown.runs[0].account == RERUN


def test_without_a_rerun_the_line_says_what_was_on() -> None:
    shown = profile(m.Skipped("it was not run again"), UNDER_LISTENERS)

    text = " ".join(Text().render(shown).split())
    assert (
        "before the first step 75 %, steps 25 % (with kgprof's listeners on; "
        "torch was imported before)" in text
    )


def test_what_listening_ended_is_no_account_of_the_program() -> None:
    gave_up = m.Skipped("kgprof's listening changed the program")
    control = m.Control(m.Exit(m.Outcome.OK))

    shown = profile(m.Skipped("interrupted"), UNDER_LISTENERS, control=control, compile=gave_up)

    assert shown.runs[0].account == gave_up
    assert list(lines(shown)) == []


def test_compile_caches_are_spoken_of_where_a_compiler_looked_into_them() -> None:
    compiled = account(under_listeners=True, COMPILING=0.5, STEPS=0.5)
    again = account(under_listeners=False, COMPILING=0.5, STEPS=0.5)
    from_disk = account(under_listeners=True, STEPS=1.0)
    cold = "with kgprof's listeners on and cold compile caches; "

    assert measured(compiled, looked=True).startswith(cold)
    assert measured(again, looked=True).endswith("from the first run; torch was imported before")
    assert "caches" not in measured(compiled, looked=False)
    assert "caches" not in measured(from_disk, looked=True)


@pytest.mark.parametrize(("misses", "is_said"), [(1, True), (0, False)])
def test_the_line_asks_the_records_of_the_caches(misses: int, is_said: bool) -> None:
    shown = profile(RERUN)
    (ran,) = shown.runs
    summary = ran.compile
    assert isinstance(summary, m.CompileSummary)
    tally = m.CacheTally("FX graph cache", 0, misses, 0)
    ran = msgspec.structs.replace(ran, compile=msgspec.structs.replace(summary, caches=(tally,)))

    (line, *_) = lines(msgspec.structs.replace(shown, runs=(ran,)))

    assert ("with compile caches from the first run" in line) == is_said


def test_the_picture_comes_before_the_figures_and_has_each_phase() -> None:
    page = Html().render(profile(RERUN))

    picture, _, below = page.partition('<ul class="tiles">')
    assert 'id="account"' in picture
    assert LINE in picture
    assert "<title>after the last step: 40.0 ms</title>" in picture
    assert below


def test_most_of_a_run_behind_its_last_step_is_said_first() -> None:
    goes_on = account(under_listeners=False, START=0.3, STEPS=0.1, STEP_AND_AFTER=0.6)
    ends = account(under_listeners=False, START=0.3, STEPS=0.6, STEP_AND_AFTER=0.1)

    found = profile(goes_on)

    assert found.verdict.lead.startswith("60 % of the run is from the last step that was seen on; ")
    assert "from the last step that was seen on 60 %" in " ".join(Text().render(found).split())
    assert profile(ends).verdict.lead == ""
    assert ends.words(m.RunPhase.STEP_AND_AFTER) == "the last step and after"


def test_the_last_of_two_steps_is_nothing_behind_them() -> None:
    two = account(under_listeners=False, START=0.3, STEPS=0.3, STEP_AND_AFTER=0.4)

    assert not two.goes_on


GOES_ON = msgspec.structs.replace(
    account(under_listeners=False, START=0.1, STEPS=0.0005, ANOTHER_KIND_AND_AFTER=0.8995),
    another_kind={"a replay of a CUDA graph": 6000},
)


def test_another_kind_of_step_is_named_wherever_the_account_stands() -> None:
    shown = profile(GOES_ON)

    named = "another kind of step and after (6,000 times a replay of a CUDA graph)"
    assert f"{named} 90 %" in " ".join(Text().render(shown).split())
    assert f"<title>{named}: 7.20 s</title>" in Html().render(shown)


def test_where_most_of_the_run_is_another_kind_of_step_the_verdict_says_so_first() -> None:
    found = profile(GOES_ON).verdict

    assert found.status is m.VerdictStatus.ATTENTION
    assert found.lead == (
        "90 % of the run is another kind of step and after (6,000 times a replay of a CUDA graph); "
        "what is counted as a step is an optimizer step"
    )
    others = profile(account(under_listeners=False, STEPS=0.2, OTHERS_AND_AFTER=0.8)).verdict
    assert others.lead.startswith("80 % of the run is other optimizers' steps and after; ")
    mostly_steps = account(under_listeners=False, STEPS=0.6, ANOTHER_KIND_AND_AFTER=0.4)
    assert profile(mostly_steps).verdict.lead == ""


@pytest.mark.parametrize("brief", [True, False])
def test_what_was_not_measured_is_not_drawn(brief: bool) -> None:
    shown = profile(m.Skipped("it was not run again"))

    assert "from first line to end" not in Text(brief=brief).render(shown)
    assert 'id="account"' not in Html().render(shown)
    assert shown.runs[0].account == WATCHED


def test_two_ranks_have_no_common_account() -> None:
    one = profile(RERUN)

    shown = msgspec.structs.replace(one, runs=2 * one.runs)

    assert "from first line to end" not in Text().render(shown)


@pytest.mark.parametrize("brief", [True, False])
def test_what_never_pays_is_said_once_with_its_figures(brief: bool) -> None:
    shown = slower_than_eager()

    (action,) = shown.actions
    assert action.rule == "KGP603"
    assert shown.verdict.text.endswith("; first: its steps took longer than in eager mode")
    text = " ".join(Text(brief=brief).render(shown).split())
    above_the_findings = text.partition("warning KGP603")[0]
    assert above_the_findings.count("slower than eager:") == 1
    assert above_the_findings.count("in mode eager with torch's wrapper (TIMING") == 1
    assert not any("compiled: " in line for line in lines(shown))


def test_whether_compiling_pays_is_a_line_of_its_own_where_no_action_says_it() -> None:
    shown = msgspec.structs.replace(slower_than_eager(), actions=())

    (line,) = lines(shown)
    assert line.startswith("compiled: slower than eager:")


def test_a_script_that_ran_with_compiling_off_was_timed_against_eager() -> None:
    checklist = slower_than_eager().checklist

    (item,) = (item for item in checklist if item.id == "measured-against-eager")

    assert item.status is m.PracticeStatus.PASS, item.evidence
