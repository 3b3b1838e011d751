"""The checklist and the trade-offs."""

from __future__ import annotations

import msgspec

from kgprof.analysis.checklist import PRACTICES
from kgprof.document.finding_list import Place, finding_list
from kgprof.document.practices import (
    MEMORY_CONTRACT,
    memory_contract,
    practices,
    tally,
    weighings,
)
from kgprof.document.table import Shown
from kgprof.model import PracticeStatus, Skipped
from kgprof.render import by_name
from kgprof.render.html import LEVELS
from tests.render import profiles

LIMITS = LEVELS[0]


def test_what_failed_comes_first_and_leads_to_its_findings() -> None:
    profile = profiles.watched()

    shown = practices(profile.checklist, finding_list(profile, LIMITS).anchors)

    assert shown[0] == Shown(
        status=PracticeStatus.FAIL,
        mark="\N{MULTIPLICATION X}",
        title="No value is read back in the step",
        evidence="11 places read 22 values a step",
        anchors=["KGP201-read000", "KGP305-copied"],
    )
    assert [practice["status"] for practice in shown] == ["fail", "pass", "not observed"]


def test_a_finding_that_the_page_has_no_room_for_is_no_link() -> None:
    shown = practices(profiles.watched().checklist, {"read000": "KGP201-read000"})

    assert shown[0]["anchors"] == ["KGP201-read000"]


def test_the_memory_contract_is_the_part_of_the_checklist_that_is_about_tensors() -> None:
    profile = profiles.watched()
    first, *others = profile.checklist
    about = msgspec.structs.replace(first, id="captured-by-reference", status="pass")
    kept = msgspec.structs.replace(first, id="steps-marked", status="fail")
    profile = msgspec.structs.replace(profile, checklist=(about, *others, kept))

    shown = memory_contract(profile, {})

    assert [practice["status"] for practice in shown] == ["fail", "pass"]


def test_the_tally_leaves_out_what_there_is_none_of() -> None:
    items = profiles.watched().checklist

    assert tally(items) == "1 fail, 1 pass, 1 not observed"
    assert tally(items[:1]) == "1 pass"


def test_a_trade_off_shows_the_figures_that_decide() -> None:
    kept, unknown = weighings(profiles.watched())

    assert kept == Shown(
        verdict="remove the sync",
        text=(
            "Reading the predicate costs 0.310 ms per step and saves 0.040 ms: do the "
            "work in every step."
        ),
        place=Place(where="policy.py:77 choose", source="if candidates.any():"),
        guarded="torch_cond.default",
        always="fused.default",
        figures=(
            ("extra syncs per step", "1.00"),
            ("wait per step, ms", "0.310"),
            ("saved before that wait, ms/step", "0.0400"),
            ("torch_cond.default", "1.84 ms (1.78\N{EN DASH}1.95, n = 306)"),
            ("fused.default", "1.51 ms (1.46\N{EN DASH}1.60, n = 306)"),
        ),
    )
    assert unknown["place"] is None
    assert unknown["figures"][1] == (
        "wait per step, ms",
        Skipped("\N{EN DASH} (no wait was timed on a CPU)"),
    )


def test_the_summary_holds_what_failed_and_counts_the_rest() -> None:
    text = by_name("markdown").render(profiles.watched())

    assert "**Checklist**: 1 fail, 1 pass, 1 not observed" in text
    assert "- No value is read back in the step: 11 places read 22 values a step" in text
    assert "Shapes are static" not in text
    assert "**remove the sync:** Reading the predicate costs" in text


def test_the_memory_contract_names_items_that_the_checklist_has() -> None:
    assert set(MEMORY_CONTRACT) <= {name for name, _, _ in PRACTICES}
