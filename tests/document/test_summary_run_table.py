"""A run's line on the page."""

from __future__ import annotations

import msgspec

from kgprof.model import ScriptRun
from kgprof.render import by_name
from tests.render import profiles


def test_a_scripts_run_says_what_was_counted_as_a_step() -> None:
    profile = profiles.clean()
    note = "a step is an optimizer step; 1,200 counted"
    script = ScriptRun(step="an optimizer step", steps=1200, counted={})
    run = msgspec.structs.replace(profile.runs[0], script=script, notes=(note,))

    page = by_name("html").render(msgspec.structs.replace(profile, runs=(run,)))

    assert page.count("a step is an optimizer step") == 1
    assert note in page
    assert "a step is" not in by_name("html").render(profile)
