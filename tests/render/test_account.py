"""Where the time of a script went is the first picture of its page, and a line elsewhere."""

import msgspec
import pytest

from kgprof import model as m
from kgprof.analysis import analyse
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
    rerun: m.ScriptAccount | m.Skipped, watched: m.ScriptAccount | m.Skipped = WATCHED
) -> m.Profile:
    timing = m.TimingPass(
        clock="perf_counter", step_us=((900.0, 910.0, 905.0),), evaluation_s=(), account=rerun
    )
    script = m.ScriptRun(step="an optimizer step", steps=4, counted={}, account=watched)
    record = msgspec.structs.replace(run(TRAIN, evaluation_s=None), timing=timing, script=script)
    return analyse(recording(record, baseline=None))


RERUN = account(under_listeners=False, START=0.2, COMPILING=0.304, STEPS=0.49, AFTER=0.005)
UNDER_LISTENERS = account(under_listeners=True, START=0.75, STEPS=0.25)
LINE = (
    "8.00 s from first line to end: steps 49 %, compiling 30 %, start and imports 20 % "
    "(rerun without instruments, with warm compile caches; torch was imported before)"
)


def test_the_rerun_is_told_before_what_was_watched() -> None:
    shown = profile(RERUN, UNDER_LISTENERS)

    assert LINE in " ".join(Text().render(shown).split())
    assert LINE in Markdown().render(shown)
    assert shown.runs[0].account == RERUN


def test_without_a_rerun_the_line_says_what_was_on() -> None:
    shown = profile(m.Skipped("it was not run again"), UNDER_LISTENERS)

    text = " ".join(Text().render(shown).split())
    assert "start and imports 75 %, steps 25 % (with kgprof's listeners on and cold" in text


def test_the_picture_comes_before_the_figures_and_has_each_phase() -> None:
    page = Html().render(profile(RERUN))

    picture, _, below = page.partition('<ul class="tiles">')
    assert 'id="account"' in picture
    assert LINE in picture
    assert "<title>after the last step: 40.0 ms</title>" in picture
    assert below


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
