"""A flame graph under the keyboard and the pointer."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, Page

from tests.render.in_a_browser import visit

FIRST = "svg.flame >> nth=0"
FOCUSED = "document.activeElement.querySelector('title')?.textContent.split('\\n')[0]"
WIDTHS = """() => [...document.querySelector('svg.flame').children]
  .filter((box) => !box.hasAttribute('hidden'))
  .map((box) => [box.querySelector('title').textContent.split('\\n')[0], box.getAttribute('width')])
  .map(([name, width]) => [name, Math.round(parseFloat(width))])
"""


def at_the_first_frame(page: Page) -> None:
    page.locator(FIRST).locator("[tabindex='0']").focus()


def test_arrows_walk_enter_shows_a_frame_over_the_whole_width_and_escape_all_again(
    browser: Browser, reports: dict[str, Path]
) -> None:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        visited = visit(context, reports["clean"], anchor="#flame-run-1")
        page = visited.page
        whole = page.evaluate(WIDTHS)
        at_the_first_frame(page)

        # when
        walked = []
        for key in (
            "ArrowDown",
            "ArrowDown",
            "ArrowRight",
            "ArrowDown",
            "ArrowUp",
            "ArrowLeft",
            "ArrowRight",
        ):
            page.keyboard.press(key)
            walked.append(page.evaluate(FOCUSED))
        page.keyboard.press("Enter")
        shown = page.evaluate(WIDTHS)
        said = page.locator(".flame-at").first.inner_text()
        page.keyboard.press("Escape")

        # then
        score, module = "score <of> & a thing", "nn.Module: Linear_0"
        assert walked == ["step", "compile_wrapper", score, module, score, "compile_wrapper", score]
        assert shown == [
            ["step", 100],
            ["step", 100],
            [score, 100],
            [module, 59],
            ["aten::linear", 54],
        ]
        assert said.startswith(f"{score}: Python, /src/policy.py:77; ")
        assert page.evaluate(WIDTHS) == whole
        assert page.locator(FIRST).locator("[tabindex='0']").count() == 1
        assert visited.messages == []


def test_a_click_shows_a_frame_and_hovering_says_what_it_is(
    browser: Browser, reports: dict[str, Path]
) -> None:
    with browser.new_context(viewport={"width": 390, "height": 900}) as context:
        page = visit(context, reports["clean"], anchor="#flame-run-1").page
        chart = page.locator(FIRST)
        kernel = chart.locator("> svg", has_text="<built-in function kernel>").first

        kernel.hover()
        said = page.locator(".flame-at").first.inner_text()
        kernel.click()
        shown = dict(page.evaluate(WIDTHS))
        chart.locator("> svg").first.click()

        assert said.startswith("<built-in function kernel>: C function; ")
        assert shown["<built-in function kernel>"] == 100
        assert "score <of> & a thing" not in shown
        assert len(page.evaluate(WIDTHS)) == chart.locator("> svg").count()


def test_a_search_marks_frames_says_their_share_and_goes_to_the_largest(
    browser: Browser, reports: dict[str, Path]
) -> None:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = visit(context, reports["clean"], anchor="#flame-run-1").page
        section = page.locator(".of-run.chosen", has=page.locator("svg.flame"))
        find, marked = (
            section.get_by_role("searchbox"),
            section.locator("svg.flame > svg.hit title"),
        )

        find.fill("policy.py")
        by_file, share = (
            marked.all_text_contents(),
            section.locator(".tools [role=status]").inner_text(),
        )
        find.fill("kernel no such thing")
        none = section.locator(".tools [role=status]").inner_text()
        find.fill("linear_0")
        find.press("Enter")
        crumbs, focused = (
            section.locator(".crumbs button").all_inner_texts(),
            page.evaluate(FOCUSED),
        )
        shown = dict(page.evaluate(WIDTHS))
        section.get_by_role("button", name="score <of> & a thing").click()
        back = dict(page.evaluate(WIDTHS))
        section.get_by_role("button", name="Reset").click()

        assert len(by_file) > 0
        assert all("policy.py" in title for title in by_file)
        assert share.startswith(f"{len(by_file)} frame")
        assert 0 < float(share.split(", ")[1].removesuffix(" % of the time")) <= 100
        assert none == "0 frames, 0.0 % of the time"
        assert (crumbs, focused) == (
            ["step", "step", "score <of> & a thing", "Linear_0"],
            "nn.Module: Linear_0",
        )
        assert shown["nn.Module: Linear_0"] == 100 == back["score <of> & a thing"]
        assert back["nn.Module: Linear_0"] < 100
        assert section.locator(".crumbs button").count() == marked.count() == 0
        assert len(page.evaluate(WIDTHS)) == page.locator(FIRST).locator("> svg").count()


def test_a_label_names_the_file(browser: Browser, reports: dict[str, Path]) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = visit(context, reports["clean"], anchor="#flame-run-1").page
        labels = page.locator(FIRST).locator("text").all_text_contents()

    assert "score <of> & a thing policy.py:77" in labels
