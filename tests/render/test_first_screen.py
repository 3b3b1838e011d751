"""What a reader sees without scrolling, counted; and ten questions, each answered after two clicks
at most."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page

from kgprof.render.html import MAX_BYTES
from tests import examples
from tests.render.in_a_browser import Windows, visit

SCREEN = {"width": 1280, "height": 900}
MOST_WORDS = {"evaluator": 120, "capture": 120, "comparison": 135}
# Every piece of text between blanks that is drawn in the window, but for code to copy, and what is
# read aloud only.
DRAWN = """() => {
  const seen = (r) => r.width > 1 && r.height > 1 && r.bottom > 0 && r.top < innerHeight;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (parent.closest("script, style, title, option, pre, .unseen, .skip") || !parent.checkVisibility()) continue;
    for (const piece of node.data.matchAll(/\\S+/g)) {
      const range = document.createRange();
      range.setStart(node, piece.index);
      range.setEnd(node, piece.index + piece[0].length);
      if ([...range.getClientRects()].some(seen)) found.push(piece[0]);
    }
  }
  return found;
}"""  # noqa: E501
PICTURES = """() => [...document.querySelectorAll("svg, canvas")].filter((e) => {
  const r = e.getBoundingClientRect();
  return r.width >= 60 && r.height >= 10 && r.top >= 0 && r.bottom <= innerHeight;
}).map((e) => e.closest("section").querySelector("h2").id || e.closest("section").ariaLabel)"""
UNITS = {"ms", "\N{MICRO SIGN}s"}


def words(pieces: list[str]) -> list[str]:
    """Numbers, units and single letters are none."""
    return [
        p
        for p in pieces
        if re.search("[A-Za-z]{2}", p) and not re.match(r"[+\W]*\d", p) and p not in UNITS
    ]


@pytest.fixture(scope="module")
def pages() -> dict[str, Path]:
    """The example pages: tests/test_examples.py holds that today's kgprof writes them."""
    return {path.stem: path for path in examples.EXAMPLE.glob("*.html")}


@pytest.mark.parametrize("name", ["evaluator", "comparison", "capture"])
def test_the_first_screen_has_few_words_and_pictures(
    windows: Windows, pages: dict[str, Path], name: str
) -> None:
    with windows.of(viewport=SCREEN) as context:
        page = visit(context, pages[name]).page
        found, pictures = words(page.evaluate(DRAWN)), page.evaluate(PICTURES)

    assert 30 < len(found) <= MOST_WORDS[name], " ".join(found)
    assert len(set(pictures)) >= 2
    assert pages[name].stat().st_size <= MAX_BYTES


# ---------------------------------------------------------------- ten questions


class Reader:
    """Counts clicks; what is typed is none."""

    def __init__(self, context: BrowserContext, report: Path) -> None:
        self.page: Page = visit(context, report).page
        self.clicks = 0

    def click(self, what: Locator) -> None:
        assert self.in_view(what), f"it would have to be scrolled to: {what}"
        what.click()
        self.clicks += 1

    def nav(self, name: str) -> None:
        self.click(self.page.locator("nav .sections").get_by_role("link", name=name))

    def in_view(self, what: Locator) -> bool:
        """In the window, and not under the navigation."""
        box, nav = what.first.bounding_box(), self.page.locator("nav").bounding_box()
        if box is None or nav is None:
            return False
        top = (
            nav["y"] + nav["height"]
            if not what.first.evaluate("e => e.closest('nav') !== null")
            else 0
        )
        return box["y"] >= top - 1 and box["y"] + box["height"] <= SCREEN["height"]

    def reads(self, what: Locator) -> str:
        assert self.in_view(what), f"not in view after {self.clicks} clicks: {what}"
        assert self.clicks <= 2
        return " ".join(what.first.inner_text().split())


@pytest.fixture
def context(windows: Windows) -> Iterator[BrowserContext]:
    with windows.of(viewport=SCREEN) as window:
        yield window


@pytest.fixture
def own(browser: Browser) -> Iterator[BrowserContext]:
    """For a test that changes what its pages see."""
    with browser.new_context(viewport=SCREEN) as made:
        yield made


def test_task_1_which_run_is_fastest_and_by_how_much(
    context: BrowserContext, pages: dict[str, Path]
) -> None:
    reader = Reader(context, pages["evaluator"])

    verdict = reader.reads(reader.page.locator("#verdict"))
    winner = reader.reads(reader.page.locator("tr.winner"))

    # then: headline and bars have the same figure
    assert "fused.reduce-overhead is fastest: 30.6\N{MULTIPLICATION SIGN}" in verdict
    assert winner.startswith("fused.reduce-overhead 30.6\N{MULTIPLICATION SIGN}")


def test_task_2_where_the_winners_time_goes(
    context: BrowserContext, pages: dict[str, Path]
) -> None:
    reader = Reader(context, pages["evaluator"])
    row = reader.page.locator(".busy tbody tr").first

    said = reader.reads(row)

    assert said.startswith("fused.reduce-overhead")
    assert "35 %" in said
    assert said.endswith("112 \N{MICRO SIGN}s 51 %")
    assert "pointwise 35 %" in (row.locator("svg.bar").get_attribute("aria-label") or "")


def test_task_3_which_line_syncs_and_the_fix(
    context: BrowserContext, pages: dict[str, Path]
) -> None:
    reader = Reader(context, pages["evaluator"])
    assert "evaluator.py:74" in reader.reads(reader.page.locator(".next li .place"))

    reader.click(reader.page.locator(".next li > a").first)
    finding = reader.page.locator("#findings-list li:target")

    assert "evaluator.py:74" in reader.reads(finding)
    assert "bool(self.strategy.done)" in reader.reads(finding)
    fix = reader.page.locator("article", has=reader.page.locator("li:target")).locator(".remedy")
    assert reader.reads(fix).startswith("What to do:")


def test_task_4_which_kernel_first_and_what_it_could_save(
    context: BrowserContext, pages: dict[str, Path]
) -> None:
    reader = Reader(context, pages["evaluator"])

    reader.nav("Kernels")
    table = reader.page.locator(".of-run.chosen[id^=kernels-] table").first
    reader.click(table.get_by_role("button", name="could save"))
    first = table.locator("tbody tr").first

    assert "triton_" in reader.reads(first)
    saves = [
        float(cell.replace(",", ""))
        for cell in table.locator("tbody td:last-child").all_inner_texts()[:5]
    ]
    assert saves == sorted(saves, reverse=True)
    assert saves[0] > 1


def test_task_5_what_was_not_measured(context: BrowserContext, pages: dict[str, Path]) -> None:
    reader = Reader(context, pages["evaluator"])

    reader.nav("Method")

    assert reader.reads(reader.page.locator("#gaps")).startswith("Not measured")
    assert reader.reads(reader.page.locator("#gaps ~ .frame tbody tr"))


def test_task_6_whether_head_is_slower_and_why_and_which_line(
    context: BrowserContext, pages: dict[str, Path]
) -> None:
    reader = Reader(context, pages["comparison"])

    verdict = reader.reads(page_verdict(reader))
    assert re.match(
        r"Step 21\.8 % slower \(95 % CI 15\.4 to 28\.7 %; limit 5 %\); first call, cold cache 3\.7",
        verdict,
    )
    cause = reader.reads(reader.page.locator("#why ~ table tbody tr"))

    assert "KGP302" in cause
    assert "+41.5" in cause
    assert "slots.py:38" in cause


def page_verdict(reader: Reader) -> Locator:
    return reader.page.locator("#verdict")


def test_task_7_copy_a_finding(own: BrowserContext, pages: dict[str, Path]) -> None:
    own.add_init_script(
        "Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (t) => { "
        "window.copied = t; } } });"
    )
    reader = Reader(own, pages["evaluator"])

    reader.click(reader.page.locator(".tiles").get_by_role("link", name="Findings"))
    placed = reader.page.locator("#findings-list li:has(> .place > .where)").first
    placed.evaluate("(item) => item.scrollIntoView({ block: 'center' })")
    reader.click(placed.locator("button.copy"))
    reader.page.wait_for_function("window.copied")

    copied = reader.page.evaluate("window.copied")
    assert re.match(r"\*\*Warning\*\* `KGP\d+` ", copied)
    assert re.search(r"`kgprof/workloads/linkpred/[\w/]+\.py:\d+` in `[\w.]+`", copied)
    assert reader.clicks == 2


def test_task_8_open_the_winners_trace_in_perfetto(
    own: BrowserContext, pages: dict[str, Path]
) -> None:
    stand_in = """<script>addEventListener("message", (event) => {
      if (event.data === "PING") event.source.postMessage("PONG", "*");
      else window.trace = { name: event.data.perfetto.fileName, bytes: event.data.perfetto.buffer.byteLength };
    });</script>"""  # noqa: E501
    own.route(
        "https://**",
        lambda route: route.fulfill(status=200, content_type="text/html", body=stand_in),
    )
    reader = Reader(own, pages["evaluator"])

    reader.nav("Timeline")
    with own.expect_page() as popup:
        reader.click(reader.page.get_by_role("button", name="Open in Perfetto"))
    popup.value.wait_for_function("window.trace", timeout=10_000)
    trace = popup.value.evaluate("window.trace")

    assert trace["name"] == "fused.reduce-overhead.trace.json.gz"
    assert trace["bytes"] > 50_000
    status = reader.page.locator(".traces .chosen [role=status]")
    status.filter(has_text="Handed over.").wait_for(timeout=5_000)
    assert reader.reads(status) == "Handed over."


def test_task_9_find_a_kernel_by_its_name(context: BrowserContext, pages: dict[str, Path]) -> None:
    # given: a kernel of a run that is not the one that is shown, too small for the table of the
    # largest
    reader = Reader(context, pages["evaluator"])

    reader.click(reader.page.locator("#filter"))
    reader.page.keyboard.type("sort torch_cond.eager kernel")
    matches = reader.page.inner_text("#matches")
    shown = reader.page.locator("#hits li").count()
    reader.click(reader.page.locator("#hits button").last)
    hit = reader.page.locator(".found")

    assert int(matches.split()[0]) >= shown > 0
    assert "sort" in reader.reads(hit).lower()
    assert reader.page.input_value("#run") == "run-1"


def test_task_10_whether_the_gates_failure_is_mine(
    context: BrowserContext, pages: dict[str, Path]
) -> None:
    reader = Reader(context, pages["comparison"])

    reader.click(reader.page.locator(".tiles").get_by_role("link", name="New findings"))
    new = reader.page.locator("#compared-findings ~ details").first

    said = reader.reads(new.locator("table"))
    assert "2 new" in reader.reads(new.locator("summary"))
    assert "KGP302" in said
    assert "fails" in said
    # then: what was there before is told apart
    assert (
        "1 unchanged"
        in reader.page.locator("#compared-findings ~ details", has_text="1 unchanged").inner_text()
    )


# ---------------------------------------------------------------- the run that is shown


def test_details_of_one_run_are_shown_at_a_time_and_all_of_them_without_scripts_and_in_print(
    windows: Windows, pages: dict[str, Path]
) -> None:
    shown = (
        "[...document.querySelectorAll('.of-run')].map((e) => [e.dataset.run, e.checkVisibility()])"
    )
    with (
        windows.of(viewport=SCREEN) as context,
        windows.of(java_script_enabled=False) as plain,
    ):
        page, still = visit(context, pages["evaluator"]).page, visit(plain, pages["evaluator"]).page
        first = {run for run, visible in page.evaluate(shown) if visible}
        page.select_option("#run", "run-1")
        second = {run for run, visible in page.evaluate(shown) if visible}
        page.emulate_media(media="print")
        printed = page.evaluate(shown)
        without = still.evaluate(shown)

    assert first == {"run-6"}  # the winner
    assert second == {"run-1"}
    assert all(visible for _, visible in printed)
    assert all(visible for _, visible in without)
    assert len({run for run, _ in without}) == 6


def test_about_eight_chapters_of_which_the_one_that_is_read_is_marked(
    context: BrowserContext, pages: dict[str, Path]
) -> None:
    reader = Reader(context, pages["evaluator"])
    marked = "[...document.querySelectorAll('nav [aria-current]')].map((e) => e.textContent.trim())"
    names = [name.split()[0] for name in reader.page.locator("nav .sections a").all_inner_texts()]
    at_first = reader.page.evaluate(marked)

    reader.nav("Compile")
    reader.page.wait_for_function(f"({marked})[0] === 'Compile'")

    assert 7 <= len(names) <= 9
    assert at_first == []


def test_counts_agree_and_nothing_that_exists_is_shown_as_none(
    windows: Windows, pages: dict[str, Path]
) -> None:
    with windows.of(java_script_enabled=False, viewport=SCREEN) as context:
        page = visit(context, pages["evaluator"]).page
        listed = page.locator("#findings-list li[id]").count()
        tally = int(page.locator("nav .tally").inner_text())
        tile = page.locator(".tiles li", has_text="Findings").inner_text().split()
        empty = page.evaluate(
            "[...document.querySelectorAll('details, .of-run')].filter((e) => e.children.length < "
            "2).map((e) => e.id)"
        )
        rows = page.evaluate(
            "[...document.querySelectorAll('.of-run[id^=kernels-]')].map((e) => "
            "e.querySelectorAll('tbody tr').length)"
        )
        announced = page.locator(".of-run[id^=kernels-] > h3 .detail").all_inner_texts()

    assert tally == listed == int(tile[1]) + int(tile[2])
    assert empty == []
    # then: every kernel of every run is a row, so that the search finds it
    assert rows == [int(text.split()[0]) for text in announced]
