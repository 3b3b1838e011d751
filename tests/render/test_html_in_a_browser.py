"""What a reader can do with the page: sort, filter, walk, copy, link, and that nothing smuggled into it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.render.in_a_browser import OPEN_ALL, visit


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_the_whole_text_can_be_read_with_folds_open(browser: Browser, reports: dict[str, Path], scripts: bool) -> None:
    with browser.new_context(java_script_enabled=scripts) as context:
        page = visit(context, reports["clean"]).page
        page.evaluate(OPEN_ALL)
        text = page.inner_text("body")

    for said in (
        "fused.default is the fastest",
        "5.05\N{EN DASH}5.52",
        "native_layer_norm",
        "g++ 12.2.0",
        "Hits@10 0.6250",
    ):
        assert said in text


def test_injected_code_does_not_run(browser: Browser, reports: dict[str, Path], tmp_path: Path) -> None:
    # given: a page into which somebody smuggled a script, a handler, a style and a beacon
    smuggled = (
        "<script>window.pwned = 1</script><img src='https://example.invalid/x.png' onerror='window.pwned = 2'>"
        "<p style='color: red'>x</p>"
    )
    tampered = tmp_path / "tampered.html"
    text = reports["clean"].read_text(encoding="utf-8")
    tampered.write_text(text.replace('<main id="main">', f'<main id="main">{smuggled}'), encoding="utf-8")

    with browser.new_context() as context:
        visited = visit(context, tampered)

        # then: the policy blocks each of them
        assert visited.page.evaluate("window.pwned") is None
        assert visited.answered == [tampered.as_uri()]
        assert sum("Content Security Policy" in message for message in visited.messages) >= 3


def test_sorting_puts_the_fastest_first_and_the_unmeasured_last(browser: Browser, reports: dict[str, Path]) -> None:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = visit(context, reports["dead"]).page
        heading = page.locator(".results th", has_text="ms/step")

        heading.locator("button").click()
        slowest_first = page.locator(".results tbody th").all_inner_texts()
        heading.locator("button").click()
        fastest_first = page.locator(".results tbody th").all_inner_texts()
        order = heading.get_attribute("aria-sort")

    assert slowest_first[0].startswith("torch_cond eager")
    assert slowest_first[-1].startswith("torch_cond default")
    assert fastest_first[0].startswith("fused default")
    assert fastest_first[-1].startswith("torch_cond default")
    assert order == "ascending"


def test_the_filter_finds_kernels_by_what_was_fused_into_them(browser: Browser, reports: dict[str, Path]) -> None:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = visit(context, reports["clean"]).page

        page.keyboard.press("/")
        page.keyboard.type("cpp gather")
        shown = page.locator("table.filtered tbody tr:visible").all_inner_texts()
        matches = page.inner_text("#matches")

    assert len(shown) == 3
    assert all("cpp_fused" in text for text in shown)
    assert matches == "0 findings, 3 rows"


def test_the_theme_key_changes_the_theme_but_not_while_typing(browser: Browser, reports: dict[str, Path]) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with browser.new_context(color_scheme="light") as context:
        page = visit(context, reports["clean"]).page
        light = page.evaluate(background)
        page.keyboard.press("t")
        dark = page.evaluate(background)
        page.locator("#filter").focus()
        page.keyboard.press("t")
        still_dark = page.evaluate(background)

    assert light != dark
    assert dark == still_dark


def test_a_link_to_a_fold_opens_it(browser: Browser, reports: dict[str, Path]) -> None:
    with browser.new_context() as context:
        page = visit(context, reports["clean"], anchor="#kernels-run-6").page

        assert page.locator("#kernels-run-6").get_attribute("open") is not None


def test_a_link_to_a_finding_opens_the_fold_that_it_lies_in(browser: Browser, reports: dict[str, Path]) -> None:
    with browser.new_context(viewport={"width": 390, "height": 900}) as context:
        page = visit(context, reports["watched"], anchor="#KGP201-read009").page
        finding = page.locator("#KGP201-read009")

        # then: it is in sight, once the page has scrolled there
        page.wait_for_function(
            """() => {
                const place = document.querySelector("#KGP201-read009").getBoundingClientRect();
                return place.height > 0 && place.top >= 0 && place.top < innerHeight;
            }""",
            timeout=5000,
        )
        assert finding.is_visible()


def test_everything_that_acts_is_reached_by_the_keyboard(browser: Browser, reports: dict[str, Path]) -> None:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = visit(context, reports["clean"]).page
        reached = set()
        for _ in range(400):
            page.keyboard.press("Tab")
            focused = page.evaluate("document.activeElement.id || document.activeElement.outerHTML.slice(0, 120)")
            if focused.startswith("<body"):
                break
            reached.add(focused)

    assert {"theme", "filter"} <= reached
    assert any("Results per run" in item for item in reached)
