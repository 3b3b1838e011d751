"""One document: what a comment says, a log says as well."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.document.build import COMPARED_ROWS, compared, sections
from kgprof.document.escaping import escaped
from kgprof.document.sheet import Section
from kgprof.model import RankBalance, TraceFile
from kgprof.render.markdown import Markdown
from kgprof.render.text import Text
from tests.render import profiles

ONLY_WIDE = ("Where the time went", "More findings")
# these have a log of their own: lines that an editor opens, or two sides
IN_LINES = ("gate", "hostile_gate")
COMPARED = ("comparison", "other_machine", "hostile_comparison")
SECTIONED = [
    state for state in profiles.STATES if state not in (*IN_LINES, *COMPARED, "huge", "hostile")
]


def titles(shown: list[Section]) -> list[str]:
    return [section.title for section in shown if section.title]


@pytest.mark.parametrize("state", SECTIONED)
def test_a_log_has_the_sections_of_a_comment_in_their_order(state: str) -> None:
    profile = profiles.STATES[state]()
    wide, narrow = (titles([*sections(profile, wide=wide)]) for wide in (True, False))
    text, comment = Text(width=10_000).render(profile), Markdown(limit=10**7).render(profile)

    assert narrow == [title for title in wide if title not in ONLY_WIDE]
    at = [text.index(f"\n{title}") for title in narrow]
    assert at == sorted(at)
    assert [title for title in wide if escaped(title) not in comment] == []


@pytest.mark.parametrize("state", COMPARED)
def test_a_comparison_has_the_same_sections_in_both(state: str) -> None:
    profile = profiles.STATES[state]()
    assert profile.comparison is not None
    shown = titles([*compared(profile, profile.comparison)])
    comment = Markdown(limit=10**7).render(profile)

    assert "Findings" in shown
    assert [title for title in shown if f"\n{title}" not in Text().render(profile)] == []
    folded = titles([*compared(profile, profile.comparison, below=COMPARED_ROWS)])
    assert [title for title in folded if f"**{title}**" not in comment] == []


def test_a_terminal_shows_the_ranks_of_traces_in_its_short_form() -> None:
    balance = RankBalance(text="rank 1 computes 2× as long as the median", ranks=())
    file = TraceFile(key=profiles.KEYS[0], file="rank_0.json.gz", size_bytes=2048)
    profile = msgspec.structs.replace(profiles.clean(), trace_files=(file,), rank_balance=balance)

    said = Text(brief=True).render(profile)

    assert f"\nRanks: {balance.text}\n" in said
    assert "rank_0.json.gz" in said.partition("\nRanks: ")[0]
