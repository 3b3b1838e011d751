"""Open in Perfetto, with a page of ours that answers in Perfetto's place; no request leaves the
machine."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route

from kgprof.model import PassName
from kgprof.render.embedded_profile import EMBEDDED_BYTES, TraceFile
from kgprof.render.html import Html
from tests.render import profiles
from tests.render.in_a_browser import accessibility_violations

DATA = gzip.compress(b'{"traceEvents": []}' * 5000, mtime=0)
# Perfetto's side of the protocol: deaf until its page has loaded, then PONG to each PING, and one
# trace.
PERFETTO = """<!doctype html><title>stand-in</title><script>
window.pings = 0; window.traces = [];
addEventListener("message", async (event) => {
  if (event.source !== window.opener) return;
  if (event.data === "PING") {
    window.pings += 1;
    if (window.pings > 1) event.source.postMessage("PONG", "*");
    return;
  }
  const { buffer, ...rest } = event.data.perfetto;
  const kind = Object.prototype.toString.call(buffer);
  window.traces.push({ keys: Object.keys(event.data), ...rest, kind, bytes: [...new Uint8Array(buffer)] });
});
</script>"""  # noqa: E501


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Its first run's trace is carried, its second one's lies beside it."""
    carried, beside = (
        TraceFile(
            run=run,
            measured_in=PassName.KERNELS,
            size_bytes=size,
            read=lambda: DATA,
            file_name=f"{run.slug}.kernels.json.gz",
            link="recording/runs/x/kernels.json.gz",
        )
        for run, size in ((profiles.KEYS[0], len(DATA)), (profiles.KEYS[1], EMBEDDED_BYTES + 1))
    )
    file = tmp_path / "report.html"
    file.write_text(Html(lambda: (carried, beside)).render(profiles.clean()), encoding="utf-8")
    return file


def opened(
    context: BrowserContext, report: Path, requests: list[str], *, answer: str = PERFETTO
) -> Page:
    def fulfil(route: Route) -> None:
        route.fulfill(status=200, content_type="text/html", body=answer)

    context.route("https://**", fulfil)
    context.on("request", lambda request: requests.append(request.url))
    page = context.new_page()
    page.goto(f"{report.as_uri()}#run-1")
    return page


def test_nothing_is_requested_before_the_click_and_one_trace_handed_over_after_it(
    browser: Browser, report: Path
) -> None:
    requests: list[str] = []
    with browser.new_context() as context:
        page = opened(context, report, requests)
        page.wait_for_timeout(300)
        before = list(requests)

        # when
        with context.expect_page() as popup:
            page.get_by_role("button", name="Open in Perfetto").click()
        perfetto = popup.value
        perfetto.wait_for_function("window.traces.length > 0", timeout=10_000)
        status = page.locator(".traces [role=status]")
        status.filter(has_text="Handed over.").wait_for(timeout=5_000)
        pings = perfetto.evaluate("window.pings")
        page.wait_for_timeout(500)

        # then: it stops to ask, and the one message has the documented form
        assert before == [report.as_uri()]
        assert requests == [report.as_uri(), "https://ui.perfetto.dev/"]
        assert perfetto.evaluate("window.pings") == pings
        (trace,) = perfetto.evaluate("window.traces")
        assert bytes(trace.pop("bytes")) == DATA
        assert trace == {
            "keys": ["perfetto"],
            "kind": "[object ArrayBuffer]",
            "title": "linkpred: batched.eager, KERNELS",
            "fileName": "batched.eager.kernels.json.gz",
        }


def test_a_pong_from_elsewhere_gets_no_trace(browser: Browser, report: Path) -> None:
    # given: a stand-in that never answers
    requests: list[str] = []
    silent = PERFETTO.replace("window.pings > 1", "false")
    with browser.new_context() as context:
        page = opened(context, report, requests, answer=silent)
        with context.expect_page() as popup:
            page.get_by_role("button", name="Open in Perfetto").click()
        perfetto = popup.value
        perfetto.wait_for_function("window.pings > 2", timeout=10_000)

        # when: the report's own page says PONG to itself
        page.evaluate("window.postMessage('PONG', '*')")
        page.wait_for_timeout(300)

        assert perfetto.evaluate("window.traces") == []
        assert page.inner_text(".traces [role=status]") == "Waiting for Perfetto."


def test_a_blocked_tab_is_said(browser: Browser, report: Path) -> None:
    requests: list[str] = []
    with browser.new_context() as context:
        context.add_init_script("window.open = () => null;")
        page = opened(context, report, requests)

        page.get_by_role("button", name="Open in Perfetto").click()

        assert page.inner_text(".traces [role=status]").startswith(
            "The browser kept the new tab closed."
        )
        assert requests == [report.as_uri()]


def test_no_answer_is_said_in_the_end(browser: Browser, report: Path) -> None:
    with browser.new_context() as context:
        context.add_init_script(
            "window.open = () => ({ postMessage: () => { window.asked = (window.asked ?? 0) + 1; } "
            "});"
        )
        context.add_init_script(
            "const later = window.setTimeout; window.setTimeout = (f, ms) => later(f, ms / 100);"
        )
        page = opened(context, report, [])

        page.get_by_role("button", name="Open in Perfetto").click()
        page.locator(".traces [role=status]", has_text="No answer from ui.perfetto.dev").wait_for(
            timeout=5_000
        )
        asked = page.evaluate("window.asked")
        page.wait_for_timeout(300)

        assert asked >= 1
        assert page.evaluate("window.asked") == asked


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_the_trace_is_downloaded_with_and_without_scripts(
    browser: Browser, report: Path, scripts: bool
) -> None:
    requests: list[str] = []
    with browser.new_context(java_script_enabled=scripts) as context:
        page = opened(context, report, requests)

        with page.expect_download() as download:
            page.get_by_role("link", name="batched.eager.kernels.json.gz").click()

        assert download.value.suggested_filename == "batched.eager.kernels.json.gz"
        assert download.value.path().read_bytes() == DATA
        assert page.get_by_role("button", name="Open in Perfetto").count() == int(scripts)
        assert page.locator("a[download='batched.default.kernels.json.gz']").get_attribute(
            "href"
        ) == ("recording/runs/x/kernels.json.gz")
        assert [url for url in requests if url.startswith("http")] == []


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
def test_it_is_accessible_and_fits(browser: Browser, report: Path, theme: str, width: int) -> None:
    with browser.new_context(
        color_scheme=theme, viewport={"width": width, "height": 900}
    ) as context:
        page = opened(context, report, [])
        page.evaluate("scrollTo(0, 0)")  # else the navigation lies over a part of what is below it

        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert accessibility_violations(page) == []
