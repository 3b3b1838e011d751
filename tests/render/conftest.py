from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kgprof.render.html import Html
from tests.render.page_states import PAGE_STATES

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.render.in_a_browser import Windows


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One for all tests of this folder: starting it takes longer than most of them."""
    # not there where only the other tests of this folder run
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    assert chromium, "Debian's chromium is not installed: apt-get install chromium"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="package")
def windows(browser: Browser) -> Windows:
    from tests.render.in_a_browser import Windows

    return Windows(browser)


class Reports(dict[str, Path]):
    """Each state's report as a file, the way it is opened from an attachment; made when it is first
    asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, state: str) -> Path:
        file = self._folder / f"{state}.html"
        file.write_text(Html().render(PAGE_STATES[state]()), encoding="utf-8")
        return self.setdefault(state, file)


@pytest.fixture(scope="package")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return Reports(tmp_path_factory.mktemp("reports"))
