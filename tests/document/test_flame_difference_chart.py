"""Base and head in one flame graph: never by colour alone, and what there is no room for said."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kgprof.compare.flame_diff import flame_difference
from kgprof.document.flame_chart import Icicle, change, differing, flame_difference_folds, style_of
from kgprof.document.table import Fold
from kgprof.model import Presence, RunComparison
from kgprof.render import by_name
from kgprof.render.html import LEVELS
from tests.render import profiles
from tests.render.flames import SLOWER, flame
from tests.render.tables import drawn, tables, texts

LIMITS = LEVELS[0]
RUN = RunComparison(
    run=profiles.KEYS[1],
    status=Presence.BOTH,
    flame=flame_difference(flame(), flame(SLOWER, steps=3)),
)


def chart() -> Fold:
    (found,) = flame_difference_folds([RUN], "/src", LIMITS, {})
    return found


def test_a_sentence_and_a_table_say_what_changed_most() -> None:
    found = chart()

    assert (
        found.caption
        == "0.596 to 0.661 ms per step in the STACK pass, +0.0660 ms; 5 steps of base, 3 of head"
    )
    assert found.lead == (
        "Largest changes of self time: <built-in function kernel> (+0.0800 ms), "
        "aten::linear (\N{MINUS SIGN}0.0400 ms), mask (+0.0300 ms)."
    )
    assert texts(tables(found.blocks)[0])[:4] == (
        ("<built-in function kernel> (C function)", "400", "480", "+80.0"),
        ("aten::linear (operator)", "40.0", "0", "\N{MINUS SIGN}40.0"),
        ("mask (policy.py:90)", "0", "30.0", "+30.0"),
        ("nn.Module: Linear_0 (module)", "4.00", "0", "\N{MINUS SIGN}4.00"),
    )


def test_each_box_says_its_change_in_its_name_and_in_its_title() -> None:
    drawing = drawn(Icicle, chart().blocks)

    assert drawing is not None
    boxes = {box["title"].partition("\n")[2].partition(",")[0]: box for box in drawing.boxes}
    kernel, new, gone = (
        boxes[name] for name in ("<built-in function kernel>", "mask", "nn.Module: Linear_0")
    )
    assert (kernel["style"], kernel["label"]) == ("d-more2", "+0.0800 ms kernel")
    assert kernel["title"] == (
        "+0.0800 ms kernel\n<built-in function kernel>, C function; 0.400 to 0.480 ms per step, "
        "+0.0800; itself +0.0800"
    )
    assert new["title"].endswith("0 to 0.0300 ms per step, +0.0300; itself +0.0300; not in base")
    assert gone["style"] == "d-less2 narrow"
    assert gone["title"].endswith(
        "0.0440 to 0 ms per step, \N{MINUS SIGN}0.0440; itself \N{MINUS SIGN}0.00400; not in head"
    )
    same = boxes["TorchDynamo Cache Lookup"]
    assert (same["style"], same["title"].partition("\n")[0]) == (
        "d-same narrow",
        "TorchDynamo Cache Lookup",
    )


@pytest.mark.parametrize(
    ("share", "style"),
    [
        (0.05, "more2"),
        (0.049, "more1"),
        (0.0049, "same"),
        (0.0, "same"),
        (-0.005, "less1"),
        (-0.3, "less2"),
    ],
)
def test_a_colour_stands_for_a_share_of_the_step(share: float, style: str) -> None:
    assert style_of(share) == style


def test_a_change_has_a_sign_unless_there_is_none() -> None:
    assert [change(ns) for ns in (1_500_000.0, 0.0, -20_000.0)] == [
        "+1.50",
        "0",
        "\N{MINUS SIGN}0.0200",
    ]


def test_runs_beyond_the_limit_keep_their_table() -> None:
    first, second = flame_difference_folds([RUN, RUN], "/src", replace(LIMITS, flames=1), {})

    assert drawn(Icicle, first.blocks) is not None
    assert isinstance(second.blocks[0], str)
    assert drawn(Icicle, second.blocks) is None
    assert tables(second.blocks) == tables(first.blocks)


def test_runs_of_which_a_side_has_no_stacks_are_left_away() -> None:
    assert differing([RunComparison(run=profiles.KEYS[0], status=Presence.NEW), RUN]) == [
        (1, RUN, RUN.flame)
    ]
    assert 'id="flame-difference"' in by_name("html").render(profiles.comparison())
    assert 'id="flame-difference"' not in by_name("html").render(profiles.clean())
