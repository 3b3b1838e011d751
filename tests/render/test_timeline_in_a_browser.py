"""The events of a step under the pointer and the keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.render.in_a_browser import visit

CANVAS = ".of-run.chosen .timeline canvas"
# Coloured columns of the row of the canvas that a lane's blocks begin in: what is drawn there.
COLOURED = """([selector, row]) => {
  const canvas = document.querySelector(selector);
  const dense = canvas.width / canvas.clientWidth;
  const { data } = canvas.getContext("2d").getImageData(0, Math.round((38 * row + 31) * dense), canvas.width, 1);
  let columns = 0;
  for (let at = 3; at < data.length; at += 4) columns += data[at] > 100;
  return columns / canvas.width;
}"""  # noqa: E501
CUDA_LANES = ("spans", "regions", "operators", "calls", "kernels", "copies", "idle")


def opened(page: Page) -> str:
    page.wait_for_selector(CANVAS, timeout=5000)
    page.locator(CANVAS).scroll_into_view_if_needed()
    return page.locator(".of-run.chosen .timeline [role=status]").inner_text()


def said(page: Page) -> str:
    return page.locator(".of-run.chosen .timeline [role=status]").inner_text()


def test_the_keyboard_walks_zooms_and_follows_a_launch(
    browser: Browser, reports: dict[str, Path]
) -> None:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        visited = visit(context, reports["cuda"], anchor="#step")
        page = visited.page
        assert opened(page) == ""
        whole = page.evaluate(COLOURED, [CANVAS, 4])
        page.locator(CANVAS).focus()

        walked = []
        for key in ("ArrowDown", "ArrowRight", "ArrowDown", "ArrowDown", "ArrowDown", " ", " "):
            page.keyboard.press(key)
            walked.append(said(page))
        page.keyboard.press("Enter")
        page.wait_for_timeout(100)
        near = page.evaluate(COLOURED, [CANVAS, 3])
        page.keyboard.press("Escape")
        page.wait_for_timeout(100)

        lanes = [text.split(" (")[0] for text in walked]
        assert lanes == [
            f"aten::{lane}"
            for lane in ("spans", "spans", "regions", "operators", "calls", "kernels", "calls")
        ]
        assert "; launched aten::kernels and 9 more, " in walked[4]
        assert "; launched by aten::calls, " in walked[5]
        assert walked[6] == walked[4]
        assert near > 0.1
        assert said(page) == ""
        assert page.evaluate(COLOURED, [CANVAS, 4]) == pytest.approx(whole)
        # which is this test's own
        assert [message for message in visited.messages if "readback" not in message] == []


def test_the_pointer_hovers_chooses_zooms_and_drags(
    browser: Browser, reports: dict[str, Path]
) -> None:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = visit(context, reports["cuda"], anchor="#step").page
        opened(page)
        box = page.locator(CANVAS).bounding_box()
        assert box is not None
        # given: the middle of the first span, which is 2 % of the window long
        x, y = box["x"] + 0.005 * box["width"], box["y"] + 25
        page.mouse.move(x, y)
        hovered, title = said(page), page.locator(CANVAS).get_attribute("title")
        page.mouse.dblclick(x, y)
        page.wait_for_timeout(100)
        page.mouse.move(box["x"] + 0.15 * box["width"], y)
        zoomed = said(page)
        page.mouse.move(box["x"] + 600, y)
        page.mouse.down()
        page.mouse.move(box["x"] + 100, y, steps=4)
        page.mouse.up()
        page.wait_for_timeout(100)
        page.mouse.move(box["x"] + 0.67 * box["width"], y)
        after = said(page)
        page.get_by_role("button", name="Whole step", exact=True).click()

        assert hovered.startswith("aten::spans (user span): ")
        assert hovered == title
        assert zoomed == hovered
        assert after != hovered
        assert said(page) == ""


def test_without_scripts_and_on_paper_the_picture_is_shown(
    browser: Browser, reports: dict[str, Path]
) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = visit(context, reports["cuda"]).page

        assert page.locator("svg.lanes:visible").count() == page.locator("svg.lanes").count() > 0
    with browser.new_context() as context:
        page = visit(context, reports["cuda"], anchor="#step").page
        opened(page)
        on_screen = page.locator(".of-run.chosen svg.lanes").is_visible()
        page.emulate_media(media="print")

        assert not on_screen
        assert page.locator(".of-run.chosen svg.lanes").is_visible()
        assert not page.locator(CANVAS).is_visible()
