"""The budgets as the page shows them."""

from __future__ import annotations

from kgprof.document.gate_table import accepted_table, budget_table
from kgprof.model import Gate
from kgprof.render import by_name
from kgprof.render.html import LEVELS
from tests.render import profiles
from tests.render.tables import small, texts

LIMITS = LEVELS[0]


def judged() -> Gate:
    gate = profiles.gate().gate
    assert gate is not None
    return gate


def test_what_is_exceeded_comes_first_then_what_nobody_saw() -> None:
    assert texts(budget_table(judged()).only("budget", "status")) == (
        ("graph-breaks", "exceeded"),
        ("cudagraph-skips", "not observed"),
        ("skipped-frames", "held"),
        ("graph-breaks", "held"),
    )


def test_a_budget_says_limit_observed_accepted_and_origin() -> None:
    table = budget_table(judged())

    assert texts(table)[0] == (
        "batched.default",
        "graph-breaks",
        "exceeded",
        "1 site",
        "0 sites",
        "1",
        "default",
    )
    assert [cell.wrong for cell in table.rows[0].cells] == [
        False,
        False,
        True,
        True,
        False,
        False,
        False,
    ]
    assert table.rows[0].cells[2].mark == "\N{MULTIPLICATION X}"
    unseen = table.rows[1].cells
    assert (unseen[3].text, unseen[3].name, small(unseen[1])) == (
        "\N{EN DASH}",
        "\N{EN DASH} (a CPU run)",
        ("torch_cond.default", "a CPU run"),
    )
    assert texts(table.only("limit"))[3] == ("2.50 sites",)


def test_an_entry_that_has_expired_stands_out() -> None:
    table = accepted_table(judged())

    assert texts(table)[1] == (
        "KGP101",
        "src/old.py derive GB0170",
        "gone soon",
        "ada",
        "2026-01-31",
        "expired",
    )
    assert [row.cells[5].wrong for row in table.rows] == [
        entry.status == "expired" for entry in judged().accepted
    ]


def test_a_profile_without_a_gate_has_no_section_for_it() -> None:
    assert 'id="gate"' not in by_name("html").render(profiles.clean())


def test_the_summary_strikes_out_what_is_accepted_and_names_what_expired() -> None:
    text = by_name("markdown").render(profiles.gate())

    assert "- <s>**KGP101** step.py:58: batched.default: graph break in derive" in text
    assert "</s> accepted by ada, until 2027-01-31: see #<!-- -->12" in text
    assert "- expired on 2026-01-31: KGP101 in src/old.py derive (ada: gone soon)" in text


def test_a_gate_without_times_has_no_section_for_them() -> None:
    page = by_name("html").render(profiles.gate())

    for anchor in ("results", "time", "kernels", "host", "cost"):
        assert f'href="#{anchor}"' not in page
        assert f'id="{anchor}"' not in page
