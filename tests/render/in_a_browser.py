"""What the tests in a browser share: a visit that notes what the page did, and axe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
# target-size is off by default; everything else as axe ships it. Only violations are told node by
# node: the paths to all that passed take longer than the audit.
RUN_AXE = """async () => {
  const options = {rules: {"target-size": {enabled: true}}, resultTypes: ["violations"]};
  const result = await axe.run(document, options);
  return result.violations.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200)).join(" | ")}`);
}"""  # noqa: E501
OPEN_ALL = "document.querySelectorAll('details').forEach((fold) => { fold.open = true; })"
CLOSE_ALL = "document.querySelectorAll('details').forEach((fold) => { fold.open = false; })"


class Windows:
    """One window of each kind, for all tests whose pages leave nothing behind; a new one takes half
    a second of a processor."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._kept: dict[str, BrowserContext] = {}

    @contextmanager
    def of(self, **kind: Any) -> Iterator[BrowserContext]:
        """Its pages are closed afterwards."""
        name = json.dumps(kind, sort_keys=True)
        if name not in self._kept:
            self._kept[name] = self._browser.new_context(**kind)
        window = self._kept[name]
        try:
            yield window
        finally:
            for page in window.pages:
                page.close()


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


def accessibility_violations(page: Page) -> list[str]:
    """With every fold open: axe does not look at what is hidden."""
    page.evaluate(OPEN_ALL)
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE)
    found = page.evaluate(RUN_AXE)
    assert isinstance(found, list)
    return found
