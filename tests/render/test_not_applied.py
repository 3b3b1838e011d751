"""An answer that offers a fix says once that it was not applied; one without says nothing."""

from __future__ import annotations

import msgspec
import pytest

from kgprof import model as m
from kgprof.analysis import analyse
from kgprof.document import gate_table
from kgprof.document.finding_list import not_applied, to_do
from kgprof.render.html import Html
from kgprof.render.markdown import Markdown
from kgprof.render.text import Text
from tests.analysis.recordings import recording, run
from tests.collectors import written_syncs
from tests.render import profiles

SENTENCE = "No fix was applied, nor tried unless it says so"
RENDERERS = {
    "terminal": Text(brief=True),
    "text": Text(),
    "page": Html(),
    "comment": Markdown(),
}


def with_actions() -> m.Profile:
    read = written_syncs.read(calls=range(written_syncs.STEADY_FROM, written_syncs.STEADY_FROM + 9))
    return analyse(written_syncs.recording(read, calls=written_syncs.STEADY_FROM + 9))


def without_findings() -> m.Profile:
    nothing = analyse(recording(run(m.RunKey(strategy="step", mode="eager"))))
    return msgspec.structs.replace(nothing, findings=(), actions=())


@pytest.mark.parametrize("name", RENDERERS)
def test_an_answer_with_an_action_says_it_once(name: str) -> None:
    profile = with_actions()

    assert profile.actions
    assert " ".join(RENDERERS[name].render(profile).split()).count(SENTENCE) == 1


def test_torchs_own_hint_is_what_to_do_in_place_of_the_rules_remedy() -> None:
    profile = with_actions()
    action = msgspec.structs.replace(profile.actions[0], fix="", no_fix="")
    refusal = m.Refusal(cause=m.TorchCause(kind="Lock", hints=("Please report", "Avoid `lock`.")))
    findings = [msgspec.structs.replace(each, refusal=refusal) for each in profile.findings]

    assert to_do(profile, action) == profile.remedy(action.rule)
    hinted = msgspec.structs.replace(profile, findings=tuple(findings))
    assert to_do(hinted, action) == "torch's hint: Avoid `lock`."


@pytest.mark.parametrize("name", RENDERERS)
def test_an_answer_without_a_fix_does_not_say_it(name: str) -> None:
    assert SENTENCE not in RENDERERS[name].render(without_findings())


@pytest.mark.parametrize("name", ["text", "page", "comment"])
def test_a_finding_whose_fix_is_no_action_says_it_as_well(name: str) -> None:
    profile = msgspec.structs.replace(with_actions(), actions=())
    mended = tuple(
        msgspec.structs.replace(finding, fix="loss.detach()") for finding in profile.findings
    )
    shown = RENDERERS[name].render(msgspec.structs.replace(profile, findings=mended))

    assert " ".join(shown.split()).count(SENTENCE) == 1


def test_a_comparison_with_a_fix_in_its_findings_says_it() -> None:
    profile = msgspec.structs.replace(profiles.comparison(), actions=with_actions().actions)
    mended = tuple(
        msgspec.structs.replace(finding, fix="loss.detach()") for finding in with_actions().findings
    )
    shown = RENDERERS["page"].render(msgspec.structs.replace(profile, findings=mended))

    assert " ".join(shown.split()).count(SENTENCE) == 1


def test_a_fix_that_is_accepted_or_that_nobody_can_make_is_not_offered() -> None:
    (action, *_), (finding, *_) = with_actions().actions, with_actions().findings
    mended = msgspec.structs.replace(finding, fix="loss.detach()")

    assert not_applied([mended]) == SENTENCE
    assert not not_applied([msgspec.structs.replace(mended, accepted="for the demo")])
    assert not not_applied([msgspec.structs.replace(finding, fix="")])
    assert not not_applied([msgspec.structs.replace(action, fix="", no_fix="it is a library's")])


def test_the_gate_says_it_below_the_findings() -> None:
    profile = profiles.gate()
    assert profile.gate is not None

    for fix, often in (("loss.detach()", 1), ("", 0)):
        found = tuple(msgspec.structs.replace(each, fix=fix) for each in profile.findings)
        shown = msgspec.structs.replace(profile, findings=found)
        assert list(gate_table.lines(shown, profile.gate)).count(SENTENCE) == often
