"""The page as a reader gets it: Debian's chromium over every state, theme, width, with and without
scripts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from kgprof.render.html import MAX_BYTES
from tests.render.in_a_browser import CLOSE_ALL, OPEN_ALL, accessibility_violations, visit
from tests.render.page_states import PAGE_STATES

THEMES, WIDTHS = ("light", "dark"), (1280, 390)
DOZEN = (
    *(
        "clean",
        "gate",
        "as_is",
        "eight",
        "watched",
        "cuda",
        "no_baseline",
        "comparison",
        "skipped",
        "five_hundred",
    ),
    *("hostile", "huge"),
)
# axe's time goes with the number of elements. Rows, findings, bars and folds of one list are made
# by one template: after the first ones nothing new is in them.
KEPT = {
    "tbody": 2,
    ".messages": 3,
    "#findings-list": 5,
    "dl.facts": 5,
    "svg": 8,
    ".checklist": 6,
    ".ops": 3,
}
SHORTEN = """(kept) => {
  const size = (element) => element.querySelectorAll("*").length;
  const shorten = (list, length) => [...list].slice(length).forEach((one) => one.remove());
  for (const [selector, length] of Object.entries(kept)) {
    for (const list of document.querySelectorAll(selector)) shorten(list.children, length);
  }
  for (const section of document.querySelectorAll("main section")) {
    const runs = [...section.querySelectorAll(":scope > .of-run")];
    shorten(runs.sort((one, other) => size(other) - size(one)).filter((e, i) => !i || !e.matches(".chosen")), 1);
    for (const kind of ["details", "figure"]) shorten(section.querySelectorAll(`:scope > ${kind}`), 2);
  }
}"""  # noqa: E501
DRAWN = (
    "svg ",
    "path ",
    "g ",
    "rect ",
    "text ",
    "line ",
    "title ",
    "circle ",
    "SPAN swatch k-",
)  # the first screen has every colour
# One template makes them all, and the test of every other state sees them too; themes and widths
# are long.
LIKE_OTHERS = ("clean", "as_is", "eight", "no_baseline", "five_hundred", "skipped")
EVERYWHERE = "watched"  # audited in each theme at each width: it has every kind of chapter
of_the_dozen = pytest.mark.parametrize(
    "state",
    [
        pytest.param(state, marks=pytest.mark.long) if state in LIKE_OTHERS else state
        for state in DOZEN
    ],
)


@of_the_dozen
def test_with_scripts_it_is_quiet_accessible_fits_and_prints(
    browser: Browser, reports: dict[str, Path], state: str
) -> None:
    report = reports[state]
    with browser.new_context() as context:
        visited = visit(context, report)
        page = visited.page

        # when
        too_wide = widths_needed(page)
        printed = page.pdf()
        page.evaluate(SHORTEN, KEPT)
        violations = audited(page, everywhere=state == EVERYWHERE)

        # then
        assert too_wide == {}
        assert violations == {}
        assert visited.requests == [report.as_uri()]
        assert visited.messages == []
        assert page.evaluate("window.pwned") is None
        assert printed.startswith(b"%PDF")
        assert len(printed) > 10_000
        assert report.stat().st_size <= MAX_BYTES


@pytest.fixture(scope="module")
def scripted(browser: Browser) -> Iterator[BrowserContext]:
    """One window for all pages that leave nothing behind: a new one takes a second."""
    with browser.new_context() as context:
        yield context


@pytest.fixture(scope="module")
def scriptless(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context(java_script_enabled=False) as context:
        yield context


@of_the_dozen
def test_without_scripts_it_is_quiet_and_fits(
    scriptless: BrowserContext, reports: dict[str, Path], state: str
) -> None:
    report = reports[state]
    visited = visit(scriptless, report)
    with closing(visited.page) as page:
        # then
        assert widths_needed(page) == {}
        assert visited.requests == [report.as_uri()]
        assert visited.messages == []
        assert (
            page.locator("main section").count() == page.locator("main section:visible").count() > 0
        )
        # what only a script can do is not offered
        assert page.locator("button:visible, input:visible, select:visible").count() == 0


@pytest.mark.parametrize(
    "state", [state for state in PAGE_STATES if state not in DOZEN or state in LIKE_OTHERS]
)
def test_every_other_state_is_quiet_and_fits(
    scripted: BrowserContext, reports: dict[str, Path], state: str
) -> None:
    report = reports[state]
    visited = visit(scripted, report)
    with closing(visited.page) as page:
        assert widths_needed(page) == {}
        assert visited.requests == [report.as_uri()]
        assert visited.messages == []
        assert page.evaluate("window.pwned") is None


def widths_needed(page: Page) -> dict[tuple[str, int, str], int]:
    """Where the page scrolls sideways, with every fold closed and with every fold open, and how
    wide it is there.

    No width goes with the theme, so each width meets each theme once.
    """
    found = {}
    for folds, script, themes in (("closed", CLOSE_ALL, THEMES), ("open", OPEN_ALL, THEMES[::-1])):
        # Playwright evaluates in a world of its own, so it measures also where the page's scripts
        # are off.
        page.evaluate(script)
        for theme, width in zip(themes, WIDTHS, strict=True):
            shown_as(page, theme, width)
            needed, given = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            if needed > given:
                found[theme, width, folds] = needed
    return found


def audited(page: Page, *, everywhere: bool) -> dict[tuple[str, int], list[str]]:
    """In every theme and width; or in each of them once, since no width goes with the theme."""
    found = {}
    shown = product(THEMES, WIDTHS) if everywhere else zip(THEMES, WIDTHS, strict=True)
    for theme, width in shown:
        shown_as(page, theme, width)
        if violations := accessibility_violations(page):
            found[theme, width] = violations
    return found


def shown_as(page: Page, theme: str, width: int) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 900})


@pytest.mark.parametrize("state", ["watched", "hostile"])
def test_4k_is_used_and_does_not_scroll(
    browser: Browser, reports: dict[str, Path], state: str
) -> None:
    with browser.new_context(viewport={"width": 3840, "height": 2160}) as context:
        page = visit(context, reports[state]).page

        assert page.evaluate("document.documentElement.scrollWidth") == 3840
        assert page.evaluate("document.body.clientWidth") > 2200


def test_the_audit_finds_what_is_wrong(browser: Browser, tmp_path: Path) -> None:
    # given: a page with a low contrast, a nameless button and no language
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<title>x</title><p style='color:#ccc;background:#fff'>faint</p><button></button>",
        encoding="utf-8",
    )

    with browser.new_context() as context:
        page = visit(context, bad).page
        found = {violation.split(":")[0] for violation in accessibility_violations(page)}

    assert found >= {"color-contrast", "button-name", "html-has-lang"}


def test_the_widths_are_measured_with_folds_open(browser: Browser, tmp_path: Path) -> None:
    # given: a page that is too wide only where a fold is open
    wide = tmp_path / "wide.html"
    body = "<details><summary>x</summary><p style='width:800px'>wide</p></details>"
    wide.write_text(
        f"<!DOCTYPE html><meta name='viewport' content='width=device-width'>{body}",
        encoding="utf-8",
    )

    with browser.new_context() as context:
        found = widths_needed(visit(context, wide).page)

    assert set(found) == {("light", 390, "open")}


def test_the_shortened_page_keeps_every_section_and_every_kind_of_element(
    browser: Browser, reports: dict[str, Path]
) -> None:
    # given: what the audit leaves out must be more of the same
    kinds = (
        "[...new Set([...document.querySelectorAll('main *')].map((e) => "
        "`${e.tagName} ${e.getAttribute('class')}`))]"
    )
    with browser.new_context() as context:
        page = visit(context, reports["watched"]).page
        before, sections = set(page.evaluate(kinds)), page.locator("main section").count()
        page.evaluate(SHORTEN, KEPT)
        lost = before - set(page.evaluate(kinds))

        assert page.locator("main section").count() == sections
        assert {kind for kind in lost if not kind.startswith(DRAWN)} == set()
