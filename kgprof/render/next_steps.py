"""What to do next, at most three things: lines in Markdown and on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from kgprof import model as m
from kgprof.render.quantity import duration
from kgprof.wording import relative

TITLE = "What to do next"


def lines(profile: m.Profile) -> Iterator[tuple[str, str, str]]:
    """Of each action what happens, what to do, and what that saves at most."""
    for action in profile.actions:
        amount, share, how = _saves(action)
        bound = f"saves at most {amount} ({', '.join(part for part in (share, how) if part)})"
        saves = bound if isinstance(action.saves, m.Saving) else f"saves: {amount} ({how})"
        yield f"{action.text} ({', '.join(_about(profile, action))})", _what(profile, action), saves


def _what(profile: m.Profile, action: m.Action) -> str:
    """Code where there is any, else what is left to do in a library, or what the rule says."""
    return action.fix or action.no_fix or next((rule.remedy for rule in profile.rules if rule.id == action.rule), "")


def _about(profile: m.Profile, action: m.Action) -> tuple[str, ...]:
    place = action.location
    where = (f"{relative(place.file, profile.environment.source_root)}:{place.line}",) if place else ()
    return (action.run.slug, action.rule, *where)


def _saves(action: m.Action) -> tuple[str, str, str]:
    """How much, its share of the step (empty where that is not known), and what the bound is made of or why none is."""
    if isinstance(action.saves, m.Skipped):
        return "not known", "", action.saves.reason
    share = "" if action.share is None else f"{100 * action.share:.0f} % of the step"
    return f"{duration(action.saves.us_per_step)} per step", share, action.saves.how
