"""Of two interpreters the environment is the question: what was upgraded stands first, what of
torch itself changed is told, and no line is blamed."""

from __future__ import annotations

import msgspec
import pytest

from kgprof import model as m
from kgprof.compare import compare
from kgprof.document import compare_words
from tests.analysis.compared import ROOT, profile
from tests.compare.test_work import WORK, at, changed, with_work

BEFORE = {"inductor.max_fusion_size": "64", "decomposition of aten.sin.default": "there"}
MODEL = f"{ROOT}/model.py"


def side(
    name: str,
    defaults: dict[str, str],
    *,
    torch: str = "2.11.0+cu130",
    work: m.CompiledWork = WORK,
    text: str = "y = x.sin()\n",
) -> m.Profile:
    told = m.InTurn(id="one", side=name, most_rounds=10, limits={}, python=f"{torch}/bin/python")
    given = with_work(profile(), work)
    environment = msgspec.structs.replace(given.environment, torch=torch, defaults=defaults)
    sources = (m.ProjectSource(file=MODEL, text=text, sha256=""),)
    return msgspec.structs.replace(given, environment=environment, in_turn=told, sources=sources)


def compared(base: m.Profile, head: m.Profile) -> m.Comparison:
    found = compare(base, head)
    assert found.comparison is not None
    assert found.environment.defaults == {}
    assert all(cause.changed is None for cause in found.comparison.causes)
    return found.comparison


def test_the_first_sentence_says_what_was_upgraded_and_what_it_does_to_the_work() -> None:
    base = side("base", BEFORE)
    head = side("head", BEFORE, torch="2.15.0+cu132", work=changed(calls=()))

    found = compare(base, head)

    said = found.verdict.text
    assert said.startswith("torch 2.11.0 -> 2.15.0, same code: ")
    assert "what is compiled and run differs (generated code)" in said
    assert found.comparison is not None
    assert found.comparison.comparable
    assert "with two interpreters" in compare_words.comparability(found.comparison)


def test_versions_that_differ_by_their_build_alone_are_told_with_it() -> None:
    found = compared(side("base", {}, torch="2.15.0+cpu"), side("head", {}, torch="2.15.0+cu132"))

    assert found.upgrade == "torch 2.15.0+cpu -> 2.15.0+cu132, same code"


@pytest.mark.parametrize(
    ("defaults", "said"),
    [
        (
            BEFORE | {"inductor.max_fusion_size": "1"},
            "a default of torch's is another one: inductor.max_fusion_size 64 -> 1",
        ),
        (
            {"inductor.max_fusion_size": "64"},
            "Inductor decomposes other operators: "
            "decomposition of aten.sin.default there -> not there",
        ),
    ],
)
def test_what_torch_itself_sets_is_a_cause_where_the_work_differs(
    defaults: dict[str, str], said: str
) -> None:
    same = compared(side("base", BEFORE), side("head", defaults))
    other = compared(side("base", BEFORE), side("head", defaults, work=changed(calls=())))

    assert [cause.text for cause in other.causes[:1]] == [said]
    assert said not in [cause.text for cause in same.causes]
    assert len(same.defaults) == 1


def test_a_pass_that_did_other_work_is_told_with_its_numbers() -> None:
    base = side("base", {}, work=changed(passes={"pattern_matcher_count": "16"}))
    head = side("head", {}, work=changed(passes={}, calls=()))

    found = compared(base, head)

    assert found.causes[0].text == (
        "Inductor's passes did other work: pattern_matcher_count 16 -> 0"
    )


def test_code_that_changed_as_well_is_said_and_not_blamed() -> None:
    items = (*WORK.items, m.WorkItem(text="aten.tan() -> f32[8]", lines=(at(1),)))
    work = changed(items=items, operators=(0, 1, len(WORK.items)), graphs=("two",))
    base = side("base", {})
    head = side("head", {}, torch="2.15.0+cu132", work=work, text="y = x.tan()\n")

    found = compared(base, head)

    assert found.upgrade.endswith("and 1 changed line of the program")
    (note,) = found.notes
    assert note.startswith("the program changed as well, and either may be why")


def test_one_interpreter_is_no_upgrade() -> None:
    base, head = (
        msgspec.structs.replace(
            one, in_turn=m.InTurn(id="one", side=name, most_rounds=10, limits={})
        )
        for name, one in (("base", side("base", {})), ("head", side("head", {}, torch="2.15.0")))
    )

    found = compared(base, head)

    assert not found.upgrade
    assert not found.comparable
