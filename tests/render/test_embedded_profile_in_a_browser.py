"""The Profile in the page, in a browser: saved by its button, inert whatever it holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgprof.model import Profile, decode_json
from kgprof.render.html import Html
from tests.render import profiles
from tests.render.everything import everything
from tests.render.in_a_browser import OPEN_ALL, Windows, visit

if TYPE_CHECKING:
    pass


def test_the_button_saves_the_profile_that_the_page_shows(
    windows: Windows, reports: dict[str, Path], tmp_path: Path
) -> None:
    with windows.of(accept_downloads=True) as context:
        visited = visit(context, reports["comparison"])
        with visited.page.expect_download() as waiting:
            visited.page.click("#save-profile")
        waiting.value.save_as(tmp_path / "saved.json")
        name = waiting.value.suggested_filename

    assert name == "report.json"
    assert decode_json((tmp_path / "saved.json").read_bytes(), Profile) == profiles.comparison()
    # then: the bytes came from the page itself
    assert [url for url in visited.requests if not url.startswith(("file:", "blob:"))] == []
    assert visited.messages == []


def test_without_scripts_there_is_no_button(windows: Windows, reports: dict[str, Path]) -> None:
    with windows.of(java_script_enabled=False) as context:
        page = visit(context, reports["comparison"]).page

        assert not page.locator("#save-profile").is_visible()
        assert "kgprof extract" in page.inner_text("footer")


@pytest.mark.parametrize("skipped", [False, True], ids=["present", "skipped"])
def test_no_field_of_a_profile_runs_or_asks_for_anything(
    windows: Windows, tmp_path: Path, skipped: bool
) -> None:
    # given: every string field of every Struct holds one of the hostile texts
    report = tmp_path / "hostile.html"
    report.write_text(
        Html().render(everything(profiles.HOSTILE, skipped=skipped)), encoding="utf-8"
    )

    with windows.of(viewport={"width": 1280, "height": 900}) as context:
        visited = visit(context, report)
        visited.page.evaluate(OPEN_ALL)

        assert visited.page.evaluate("window.pwned") is None
        # then: its own script, the Profile, and the events of the steps that it has
        assert visited.page.evaluate("document.querySelectorAll('script').length") == (
            2 if skipped else 3
        )
        assert visited.requests == [report.as_uri()]
        assert visited.messages == []
