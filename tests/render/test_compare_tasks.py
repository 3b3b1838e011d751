"""Ten questions of a reviewer to the page of a comparison, each answered on the first screen or
after one click."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Locator

from kgprof import model as m
from kgprof.render.html import Html
from tests.render import profiles
from tests.render.test_first_screen import SCREEN, Reader

PLACE = m.Location("kgprof/policy.py", 77, "choose", text="        n = scores.max().item()")
WAS = m.Location("kgprof/policy.py", 77, "choose", text="        n = scores.max()")
WORK = m.ComparedWork(
    differs=True,
    rows=(
        m.WorkRow(m.WorkAspect.GRAPHS, "graphs", 1.0, 2.0, True),
        m.WorkRow(m.WorkAspect.BYTES, "bytes per step", 2048.0, 2048.0, False),
    ),
    differences=(m.WorkDifference(m.WorkAspect.GRAPHS, "2 graphs, 1 in base", PLACE),),
)


def profile() -> m.Profile:
    """The comparison of the goldens, whose first cause has its changed line and its work."""
    told = profiles.comparison()
    assert told.comparison is not None
    first, *others = told.comparison.causes
    cause = msgspec.structs.replace(first, changed=PLACE, was=WAS)
    run, *runs = told.comparison.runs
    found = msgspec.structs.replace(
        told.comparison,
        causes=(cause, *others),
        runs=(msgspec.structs.replace(run, work=WORK), *runs),
    )
    return msgspec.structs.replace(told, comparison=found)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compared") / "report.html"
    path.write_text(Html().render(profile()), encoding="utf-8")
    return path


@pytest.fixture
def reader(browser: Browser, page: Path) -> Iterator[Reader]:
    with browser.new_context(viewport=SCREEN) as context:
        reader = Reader(context, page)
        yield reader
        assert reader.clicks <= 1


def why(reader: Reader) -> Locator:
    return reader.page.locator("section", has=reader.page.locator("#why"))


def test_is_it_slower_by_how_much_and_beyond_which_limit(reader: Reader) -> None:
    verdict = reader.reads(reader.page.locator("#verdict"))

    assert re.match(r"Step 12\.4 % slower \(95 % CI 9\.8 to 15\.1 %; limit 5 %\)", verdict)


def test_what_is_it_put_down_to(reader: Reader) -> None:
    row = reader.reads(why(reader).locator("tbody tr"))

    assert "KGP201" in row
    assert "+4100.0" in row


def test_which_line_changed_and_what_stood_there(reader: Reader) -> None:
    assert reader.reads(why(reader).locator("pre.diff")) == (
        "@@ policy.py:77 @@ - n = scores.max() + n = scores.max().item()"
    )


def test_what_do_i_write_instead(reader: Reader) -> None:
    assert reader.reads(why(reader).locator("p.note")).startswith("What to do:")


def test_how_far_is_the_interval_from_the_limit(reader: Reader) -> None:
    row = reader.page.locator(".intervals tbody tr").first
    assert reader.reads(row).endswith("+9.8 to +15.1 %")
    limit, interval = (row.locator(f"rect.{name}").bounding_box() for name in ("beyond", "range"))

    assert limit is not None
    assert interval is not None
    assert interval["x"] > limit["x"]


def test_how_many_processes_is_it_from(reader: Reader) -> None:
    assert "5 + 6 processes" in reader.reads(reader.page.locator(".trust"))


def test_which_findings_are_new_and_fail(reader: Reader) -> None:
    reader.click(reader.page.locator(".tiles").get_by_role("link", name="New findings"))

    new = reader.reads(reader.page.locator("#compared-findings ~ details table"))
    assert "KGP" in new
    assert "fails" in new


def test_which_metrics_changed_with_both_sides(reader: Reader) -> None:
    reader.click(reader.page.locator(".tiles").get_by_role("link", name="Step"))

    row = reader.reads(reader.page.locator("#metrics ~ .frame tbody tr"))
    assert "36.70 ms 41.25 ms" in row


def test_can_the_two_sides_be_compared(reader: Reader) -> None:
    assert "same kind of machine" in reader.reads(reader.page.locator(".meta"))


def test_what_is_compiled_and_run_otherwise(reader: Reader) -> None:
    reader.nav("Comparison")

    told = reader.reads(reader.page.locator("#work ~ .frame tbody tr"))
    assert "2 graphs, 1 in base" in told
