"""What to do next, at most three things: as a table on the page and in Markdown, as lines on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from kgprof import model as m
from kgprof.render.quantity import duration
from kgprof.render.table import Cell, Row, Table, columns
from kgprof.wording import relative

TITLE = "What to do next"


def next_steps(profile: m.Profile) -> Table:
    """A row an action; empty where nothing is to be done."""
    headings = columns("do", "because", "saves at most", words=2)
    rows = tuple(
        Row(cells=(_fix(profile, action), _why(profile, action), _saves(action))) for action in profile.actions
    )
    return Table(columns=headings, rows=rows, label=TITLE)


def lines(profile: m.Profile) -> Iterator[tuple[str, str]]:
    """Indentation and text."""
    for number, action in enumerate(profile.actions, start=1):
        why, saves = _why(profile, action), _saves(action)
        yield "", f"{number}. {why.text} ({why.detail})"
        yield "   ", f"fix: {_fix(profile, action).text}"
        yield "   ", f"saves at most {saves.text} ({saves.detail})" if saves.measured else f"saves: {saves.title}"


def _fix(profile: m.Profile, action: m.Action) -> Cell:
    """Code where there is any, else what the rule says."""
    remedies = {rule.id: rule.remedy for rule in profile.rules}
    return Cell(action.fix or remedies.get(action.rule, ""), style="name" if action.fix else "")


def _why(profile: m.Profile, action: m.Action) -> Cell:
    place, root = action.location, profile.environment.source_root
    where = (f"{relative(place.file, root)}:{place.line}",) if place else ()
    return Cell(action.text, details=(action.run.slug, action.rule, *where))


def _saves(action: m.Action) -> Cell:
    if isinstance(action.saves, m.Skipped):
        return Cell("not known", measured=False, title=action.saves.reason)
    share = () if action.share is None else (f"{100 * action.share:.0f} % of the step",)
    amount = f"{duration(action.saves.us_per_step)} per step"
    return Cell(amount, details=(*share, action.saves.how), value=action.saves.us_per_step)
