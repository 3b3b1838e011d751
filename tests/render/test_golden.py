"""What people read of one Profile, kept to be looked at: a change of wording or layout shows in the
diff.

KGPROF_UPDATE_GOLDEN=1 python -m pytest tests/render/test_golden.py writes them anew. Of the HTML
only the text is kept, as a reader without scripts sees it; its style and script have tests of their
own.
"""

from __future__ import annotations

import os
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from kgprof.render import by_name
from tests.render import profiles

GOLDEN = Path(__file__).parent / "golden"
BLOCKS = {
    "p",
    "li",
    "tr",
    "h1",
    "h2",
    "summary",
    "dt",
    "dd",
    "figcaption",
    "section",
    "pre",
    "table",
}


class VisibleText(HTMLParser):
    """One line a block, cells apart by a bar; style and script left out."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.lines: list[str] = [""]
        self._skipping = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skipping = tag in ("style", "script") or (self._skipping and tag == "title")
        if tag in BLOCKS:
            self.lines.append("")
        if tag in ("td", "th"):
            self.lines[-1] += " | "
        if tag in ("span", "rect", "text"):
            self.lines[-1] += " "
        if tag == "svg":
            self.lines[-1] += dict(attrs).get("aria-label") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("style", "script"):
            self._skipping = False

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self.lines[-1] += data

    def text(self) -> str:
        lines = (" ".join(line.split()) for line in self.lines)
        return "\n".join(line for line in lines if line) + "\n"


@pytest.mark.parametrize("name", ["html", "text", "markdown"])
def test_the_findings_report_reads_as_it_did(name: str) -> None:
    renderer = by_name(name)
    profile = profiles.findings()
    # given: the rules that it breaks; each new one would else change this page
    rules = tuple(
        rule for rule in profile.rules if rule.id in {finding.rule for finding in profile.findings}
    )
    made = renderer.render(msgspec.structs.replace(profile, rules=rules))
    if name == "html":
        made = VisibleText(made).text()
    golden = GOLDEN / f"findings{renderer.suffix}{'.txt' if name == 'html' else ''}"

    if os.environ.get("KGPROF_UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(made, encoding="utf-8")

    assert made == golden.read_text(encoding="utf-8")
