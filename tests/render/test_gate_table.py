"""The budgets as the page shows them."""

from __future__ import annotations

from kgprof.render import by_name
from kgprof.render.gate_table import AcceptedLine, BudgetLine, gate_table
from kgprof.render.html import LEVELS
from tests.render import profiles

LIMITS = LEVELS[0]


def test_what_is_exceeded_comes_first_then_what_nobody_saw() -> None:
    table = gate_table(profiles.gate().gate, LIMITS)

    assert table is not None
    assert [(line.metric, line.status) for line in table.budgets] == [
        ("graph-breaks", "exceeded"),
        ("cudagraph-skips", "not observed"),
        ("skipped-frames", "held"),
        ("graph-breaks", "held"),
    ]


def test_a_budget_says_limit_observed_accepted_and_origin() -> None:
    table = gate_table(profiles.gate().gate, LIMITS)

    assert table is not None
    exceeded, unseen, *_, fractional = table.budgets
    assert exceeded == BudgetLine(
        run="batched.default",
        metric="graph-breaks",
        limit="0 sites",
        observed="1",
        why="",
        accepted="1",
        mark="\N{MULTIPLICATION X}",
        status="exceeded",
        origin="default",
        exceeded=True,
    )
    assert (unseen.observed, unseen.why) == ("\N{EN DASH}", "a CPU run")
    assert fractional.limit == "2.50 sites"


def test_an_entry_that_has_expired_stands_out() -> None:
    table = gate_table(profiles.gate().gate, LIMITS)

    assert table is not None
    assert table.accepted[1] == AcceptedLine(
        rule="KGP101",
        place="src/old.py derive GB0170",
        reason="gone soon",
        owner="ada",
        expires="2026-01-31",
        status="expired",
        wrong=True,
    )


def test_a_profile_without_a_gate_has_no_table() -> None:
    assert gate_table(profiles.clean().gate, LIMITS) is None
    assert 'id="gate"' not in by_name("html").render(profiles.clean())


def test_the_summary_strikes_out_what_is_accepted_and_names_what_expired() -> None:
    text = by_name("markdown").render(profiles.gate())

    assert "- <s>**KGP101** step.py:58: batched.default: graph break in derive" in text
    assert "</s> accepted by ada, until 2027-01-31: see #12" in text
    assert "- expired on 2026-01-31: KGP101 in src/old.py derive (ada: gone soon)" in text


def test_a_gate_without_times_has_no_section_for_them() -> None:
    page = by_name("html").render(profiles.gate())

    for anchor in ("results", "time", "kernels", "host", "cost"):
        assert f'href="#{anchor}"' not in page
        assert f'id="{anchor}"' not in page
