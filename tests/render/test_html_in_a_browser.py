"""The page as a reader gets it: Debian's chromium over every state, theme, width, with and without scripts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from itertools import product
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from kgprof.render.html import MAX_BYTES, Html
from tests.render import profiles

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
# target-size is off by default; everything else as axe ships it.
RUN_AXE = """async () => {
  const result = await axe.run(document, {rules: {"target-size": {enabled: true}}});
  return result.violations.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200)).join(" | ")}`);
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "Debian's chromium is not installed: apt-get install chromium"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each state's report as a file, the way it is opened from an attachment."""
    folder = tmp_path_factory.mktemp("reports")
    files = {}
    for name, state in profiles.STATES.items():
        files[name] = folder / f"{name}.html"
        files[name].write_text(Html().render(state()), encoding="utf-8")
    return files


@dataclass
class Visit:
    """A page, and what it did that it should not."""

    page: Page
    requests: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


def visit(context: BrowserContext, report: Path, *, anchor: str = "") -> Visit:
    made = Visit(page=context.new_page())
    made.page.on("request", lambda request: made.requests.append(request.url))
    made.page.on("requestfinished", lambda request: made.answered.append(request.url))
    made.page.on("console", lambda message: made.messages.append(f"{message.type}: {message.text}"))
    made.page.on("pageerror", lambda error: made.messages.append(f"error: {error}"))
    made.page.goto(report.as_uri() + anchor)
    return made


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
@pytest.mark.parametrize("state", profiles.STATES)
def test_every_state_is_quiet_accessible_and_fits(
    browser: Browser, reports: dict[str, Path], state: str, scripts: bool
) -> None:
    report = reports[state]
    with browser.new_context(java_script_enabled=scripts) as context:
        visited = visit(context, report)
        page = visited.page

        # when: both themes at both widths
        wrong: dict[tuple[str, int], object] = {}
        for theme, width in product(("light", "dark"), (1280, 390)):
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size({"width": width, "height": 900})
            # Playwright evaluates in a world of its own, so it measures also where the page's scripts are off.
            needed, given = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            if needed > given:
                wrong[theme, width] = f"{needed} px wide"
            if scripts and is_audited(state, theme, width) and (violations := accessibility_violations(page)):
                wrong[theme, width] = violations

        # then
        assert wrong == {}
        assert visited.requests == [report.as_uri()]
        assert visited.messages == []
        assert page.evaluate("window.pwned") is None
        assert report.stat().st_size <= MAX_BYTES


def is_audited(state: str, theme: str, width: int) -> bool:
    """axe takes a second a page. Every state is audited in both themes and at both widths, one of them in all four
    combinations; ``huge`` repeats the elements of ``cuda`` and ``findings`` thousands of times."""
    if state == "clean":
        return True
    return state != "huge" and (theme, width) in (("light", 1280), ("dark", 390))


def accessibility_violations(page: Page) -> list[str]:
    """With every fold open: axe does not look at what is hidden."""
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE)
    found = page.evaluate(RUN_AXE)
    assert isinstance(found, list)
    return found


def test_the_audit_finds_what_is_wrong(browser: Browser, tmp_path: Path) -> None:
    # given: a page with a low contrast, a nameless button and no language
    bad = tmp_path / "bad.html"
    bad.write_text("<title>x</title><p style='color:#ccc;background:#fff'>faint</p><button></button>", encoding="utf-8")

    with browser.new_context() as context:
        found = accessibility_violations(visit(context, bad).page)

    assert {violation.split(":")[0] for violation in found} >= {"color-contrast", "button-name", "html-has-lang"}


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_the_whole_text_can_be_read_with_folds_open(browser: Browser, reports: dict[str, Path], scripts: bool) -> None:
    with browser.new_context(java_script_enabled=scripts) as context:
        page = visit(context, reports["clean"]).page
        page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
        text = page.inner_text("body")

    for said in (
        "fused.default is the fastest",
        "5.05\N{EN DASH}5.52",
        "native_layer_norm",
        "g++ 12.2.0",
        "Hits@10 0.6250",
    ):
        assert said in text


@pytest.mark.parametrize("state", ["clean", "dead", "empty", "hostile", "gate", "watched"])
def test_it_prints(browser: Browser, reports: dict[str, Path], state: str) -> None:
    with browser.new_context() as context:
        printed = visit(context, reports[state]).page.pdf()

    assert printed.startswith(b"%PDF")
    assert len(printed) > 10_000


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
