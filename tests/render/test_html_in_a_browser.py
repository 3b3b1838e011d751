"""What a reader can do with the page: sort, filter, walk, copy, link, and that nothing smuggled
into it runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Browser

from kgprof.render.html import Html
from tests.examples import EXAMPLE
from tests.render.in_a_browser import OPEN_ALL, Windows, visit
from tests.render.page_states import annotated


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_the_whole_text_can_be_read_with_folds_open(
    windows: Windows, reports: dict[str, Path], scripts: bool
) -> None:
    with windows.of(java_script_enabled=scripts) as context:
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


def test_injected_code_does_not_run(
    windows: Windows, reports: dict[str, Path], tmp_path: Path
) -> None:
    # given: a page into which somebody smuggled a script, a handler, a style and a beacon
    smuggled = (
        "<script>window.pwned = 1</script><img src='https://example.invalid/x.png' "
        "onerror='window.pwned = 2'><p style='color: red'>x</p>"
    )
    tampered = tmp_path / "tampered.html"
    text = reports["clean"].read_text(encoding="utf-8")
    tampered.write_text(
        text.replace('<main id="main">', f'<main id="main">{smuggled}'), encoding="utf-8"
    )

    with windows.of() as context:
        visited = visit(context, tampered)

        # then: the policy blocks each of them
        assert visited.page.evaluate("window.pwned") is None
        assert visited.answered == [tampered.as_uri()]
        assert sum("Content Security Policy" in message for message in visited.messages) >= 3


def test_sorting_puts_the_fastest_first_and_the_unmeasured_last(
    windows: Windows, reports: dict[str, Path]
) -> None:
    with windows.of(viewport={"width": 1280, "height": 900}) as context:
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


def test_the_search_finds_kernels_by_what_was_fused_into_them(
    windows: Windows, reports: dict[str, Path]
) -> None:
    with windows.of(viewport={"width": 1280, "height": 900}) as context:
        page = visit(context, reports["clean"]).page

        page.keyboard.press("/")
        page.keyboard.type("cpp gather")
        matches, hits = page.inner_text("#matches"), page.locator("#hits button").all_inner_texts()
        page.keyboard.press("Enter")
        found = page.locator(".found")

        assert matches == "3 kernels"
        assert len(hits) == 3
        assert all(hit.startswith("kernel") and "cpp_fused" in hit for hit in hits)
        assert found.is_visible()
        assert "cpp_fused" in found.inner_text()
        assert not page.locator("#hits").is_visible()


def test_the_theme_key_changes_the_theme_but_not_while_typing(
    windows: Windows, reports: dict[str, Path]
) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with windows.of(color_scheme="light") as context:
        page = visit(context, reports["clean"]).page
        light = page.evaluate(background)
        page.keyboard.press("t")
        dark = page.evaluate(background)
        page.locator("#filter").focus()
        page.keyboard.press("t")
        still_dark = page.evaluate(background)

    assert light != dark
    assert dark == still_dark


def test_a_link_to_a_runs_details_shows_that_run(
    windows: Windows, reports: dict[str, Path]
) -> None:
    with windows.of() as context:
        page = visit(context, reports["clean"], anchor="#kernels-run-2").page

        assert page.locator("#kernels-run-2").is_visible()
        assert page.input_value("#run") == "run-2"
        assert not page.locator("#kernels-run-6").is_visible()


def test_a_link_to_a_finding_opens_the_fold_that_it_lies_in(
    windows: Windows, reports: dict[str, Path]
) -> None:
    with windows.of(viewport={"width": 390, "height": 900}) as context:
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


def test_everything_that_acts_is_reached_by_the_keyboard(
    browser: Browser, reports: dict[str, Path]
) -> None:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = visit(context, reports["clean"]).page
        reached = set()
        for _ in range(400):
            page.keyboard.press("Tab")
            focused = page.evaluate(
                "document.activeElement.id || document.activeElement.outerHTML.slice(0, 120)"
            )
            if focused.startswith("<body"):
                break
            reached.add(focused)

    assert {"theme", "filter"} <= reached
    assert any("Results per run" in item for item in reached)


# ---------------------------------------------------------------- findings: keys, filter, order

FOCUSED = "document.activeElement.id"
COPIES = """Object.defineProperty(navigator, "clipboard", { value: {
  writeText: async (text) => { if (REFUSES) throw new Error("denied"); window.copied = text; },
} });"""


def test_j_and_k_walk_through_the_findings_and_open_their_folds(
    windows: Windows, reports: dict[str, Path]
) -> None:
    with windows.of(viewport={"width": 1280, "height": 900}) as context:
        page = visit(context, reports["watched"]).page
        ids = page.evaluate(
            "[...document.querySelectorAll('#findings-list li[id]')].map((item) => item.id)"
        )
        walked = []
        for _ in range(len(ids) + 2):
            page.keyboard.press("j")
            walked.append(page.evaluate(FOCUSED))
        page.keyboard.press("k")

        # then: it stays on the last one, and each was in sight
        assert walked == [*ids, ids[-1], ids[-1]]
        assert page.evaluate(FOCUSED) == ids[-2]
        assert page.locator(f"[id='{ids[-2]}']").is_visible()


def test_the_search_jumps_to_a_finding_and_escape_empties_it(
    windows: Windows, reports: dict[str, Path]
) -> None:
    with windows.of(viewport={"width": 1280, "height": 900}) as context:
        page = visit(context, reports["watched"]).page
        before = page.locator("#findings-list li[id]:visible").count()

        page.keyboard.press("/")
        page.keyboard.type("part_2.py:19 kgp201")
        matches, hits = page.inner_text("#matches"), page.locator("#hits button").count()
        page.keyboard.press("j")  # typed, not walked
        typed, none = page.input_value("#filter"), page.inner_text("#matches")
        page.keyboard.press("Backspace")
        page.locator("#hits button").first.click()
        found = page.locator(".found")
        jumped = found.inner_text()
        page.keyboard.press("Escape")

        assert int(matches.split()[0]) == hits > 0
        assert "finding" in matches
        assert (typed[-1], none) == ("j", "no hit")
        assert "part_2.py:19" in jumped
        assert page.input_value("#filter") == ""
        # then: nothing is hidden by it
        assert page.locator("#findings-list li[id]:visible").count() >= before


def test_findings_are_ordered_by_place_and_back(windows: Windows, reports: dict[str, Path]) -> None:
    first = (
        "[...document.querySelectorAll('#findings-list article:first-child "
        ".where')].map((e) => e.textContent)"
    )
    with windows.of() as context:
        page = visit(context, reports["five_hundred"]).page
        given = page.evaluate(first)
        page.select_option("#order", "place")
        placed = page.evaluate(first)
        page.select_option("#order", "given")

        # then: by number, not by letter, within the files
        lines = [
            int(where.split(":")[1].split()[0]) for where in placed if where.startswith("part_")
        ]
        assert lines[:8] == sorted(lines[:8])
        assert page.evaluate(first) == given


def test_the_keys_are_told_in_a_dialog_that_escape_closes(
    windows: Windows, reports: dict[str, Path]
) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with windows.of() as context:
        page = visit(context, reports["as_is"]).page
        color = page.evaluate(background)
        page.keyboard.press("?")
        told = page.inner_text("#keys")
        page.keyboard.press("t")  # not while it is open
        same = page.evaluate(background)
        page.keyboard.press("Escape")

        assert all(key in told for key in ("/", "j", "k", "c", "t", "?", "Esc"))
        assert same == color
        assert not page.locator("#keys").is_visible()


def test_a_finding_and_the_verdict_are_copied_as_markdown(
    browser: Browser, reports: dict[str, Path]
) -> None:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        context.add_init_script(COPIES.replace("REFUSES", "false"))
        page = visit(context, reports["watched"]).page
        page.keyboard.press("c")
        page.wait_for_function("window.copied")
        verdict = page.evaluate("window.copied")
        page.evaluate("window.copied = ''")
        page.keyboard.press("j")
        page.keyboard.press("c")
        page.wait_for_function("window.copied")
        finding = page.evaluate("window.copied")
        said = page.inner_text("#said")

    assert verdict.startswith(
        "**linkpred kgprof: ! Measured, 12 warnings.** fused.default is the fastest"
    )
    assert "| fused default | 1.51 (1.46\N{EN DASH}1.60, n = 306) |" in verdict
    assert finding.startswith("**Warning** `KGP201` ")
    assert "`/src/part_0.py:10` in `step`" in finding or "part_0.py:10` in `step`" in finding
    assert "What to do:" in finding
    assert said == "Copied."


def test_a_copied_finding_links_its_line_at_the_commit(browser: Browser, tmp_path: Path) -> None:
    """The page knows the repository's address in CI only; elsewhere it names the commit."""
    copied = {}
    for name, source_url in (("ci", "https://example.org/shop/model"), ("here", "")):
        report = tmp_path / f"{name}.html"
        profile = annotated()
        clean = msgspec.structs.replace(
            profile.environment, git_commit="0123456789abcdef", git_dirty=False
        )
        shown = msgspec.structs.replace(profile, environment=clean)
        report.write_text(Html(source_url=source_url).render(shown), encoding="utf-8")
        with browser.new_context() as context:
            context.add_init_script(COPIES.replace("REFUSES", "false"))
            page = visit(context, report).page
            page.locator("#findings-list button.copy").first.click()
            page.wait_for_function("window.copied")
            copied[name] = page.evaluate("window.copied")

    line = "https://example.org/shop/model/blob/0123456789abcdef/src/step.py#L20"
    assert f"[`src/step.py:20`]({line}), `line_20 = 20`" in copied["ci"]
    assert "`src/step.py:20` at `0123456789`, `line_20 = 20`" in copied["here"]


def test_what_the_clipboard_refuses_is_shown_to_be_copied_by_hand(
    browser: Browser, reports: dict[str, Path]
) -> None:
    with browser.new_context() as context:
        context.add_init_script(COPIES.replace("REFUSES", "true"))
        page = visit(context, reports["watched"]).page
        page.locator("#findings-list button.copy").first.click()
        page.locator("#by-hand[open]").wait_for(timeout=5000)

        assert page.input_value("#markdown").startswith("**Warning** `KGP201`")
        assert page.evaluate("getSelection().toString() || document.activeElement.id") != ""
        page.locator("#by-hand button.close").click()
        assert not page.locator("#by-hand").is_visible()


def test_copied_text_is_no_markup(browser: Browser, reports: dict[str, Path]) -> None:
    with browser.new_context() as context:
        context.add_init_script(COPIES.replace("REFUSES", "false"))
        page = visit(context, reports["hostile"]).page
        texts = []
        for key in ("c", *(["j", "c"] * 5)):
            page.keyboard.press(key)
            texts.append(page.evaluate("window.copied"))

    document = "\n\n".join(texts)
    found = [
        t
        for token in MarkdownIt("commonmark").enable("table").parse(document)
        for t in (token.children or [])
    ]
    assert {t.type for t in found} & {"link_open", "image"} == set()
    assert all(set("<>@#&").isdisjoint(t.content) for t in found if t.type == "code_inline")
    assert {t.content for t in found if t.type == "html_inline"} <= {"<!-- -->"}
    assert "@someone" not in document


def test_nothing_moves_for_a_reader_who_asked_for_it(
    windows: Windows, reports: dict[str, Path]
) -> None:
    with windows.of(reduced_motion="reduce", forced_colors="active") as context:
        page = visit(context, reports["as_is"]).page

        assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
        # the kinds keep their colours: they are what the bars say
        assert (
            page.evaluate(
                "new Set([...document.querySelectorAll('.bar rect')].map((e) => "
                "getComputedStyle(e).fill)).size"
            )
            > 2
        )


@pytest.mark.parametrize("state", ["watched", "eight", "cuda", "the example"])
def test_the_table_of_results_fits_a_laptops_width(
    windows: Windows, reports: dict[str, Path], state: str
) -> None:
    report = EXAMPLE / "evaluator.html" if state == "the example" else reports[state]
    with windows.of(viewport={"width": 1280, "height": 900}) as context:
        page = visit(context, report).page
        needed, given = page.evaluate(
            "(({parentElement: frame}) => [frame.scrollWidth, "
            "frame.clientWidth])(document.querySelector('.results'))"
        )

    assert needed <= given


def test_an_address_that_is_no_name_of_ours_stops_nothing(
    windows: Windows, reports: dict[str, Path]
) -> None:
    with windows.of() as context:
        visited = visit(context, reports["gate"], anchor="#100%")
        visited.page.keyboard.press("?")

        assert visited.messages == []
        assert visited.page.locator("#keys[open]").count() == 1


# Of each plot in view: how far its tick labels reach into what it draws, and out of the page.
OVERLAPS = """() => [...document.querySelectorAll("svg.plot")].filter((plot) => plot.checkVisibility()).map((plot) => {
  const labels = [...plot.querySelectorAll("text.up")].map((text) => text.getBoundingClientRect());
  const drawn = plot.querySelector("svg").getBoundingClientRect();
  const room = plot.parentElement.getBoundingClientRect();
  return [Math.max(...labels.map((box) => box.right)) - drawn.left, room.left - Math.min(...labels.map((b) => b.left)),
          drawn.right - room.right, labels.length];
})"""  # noqa: E501


@pytest.mark.parametrize("width", [1280, 390])
def test_the_labels_of_an_axis_stand_beside_what_it_measures(
    windows: Windows, reports: dict[str, Path], width: int
) -> None:
    with windows.of(viewport={"width": width, "height": 900}) as context:
        page = visit(context, reports["watched"]).page
        page.evaluate(OPEN_ALL)
        plots = page.evaluate(OVERLAPS)

    assert len(plots) >= 3
    assert [plot for plot in plots if max(plot[:3]) > 0.5 or not plot[3]] == []
