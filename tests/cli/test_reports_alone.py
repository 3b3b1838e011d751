"""`kgprof report` of a page that came alone, and of a comparison."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgprof import cli
from kgprof.render import by_name
from tests.render import profiles


def report(*arguments: object) -> int:
    """The exit code. Not by ``main``, which has this process ignore Ctrl-C from then on."""
    return cli.run(["report", *map(str, arguments)])


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    """The folder of a comparison of two recordings."""
    folder = tmp_path / "compared"
    folder.mkdir()
    for name in ("html", "json"):
        text = by_name(name).render(profiles.comparison())
        (folder / f"report.{name}").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("what", ["", "report.html", "report.json"])
def test_the_comment_of_a_comparison_comes_from_its_page_its_json_or_its_folder(
    compared: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(compared / what, "--format", "markdown") == 0
    assert "❌ **Regression:** Step 12.4 % slower" in capsys.readouterr().out


def test_a_page_under_another_name_is_read_too(
    compared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (compared / "report.html").rename(compared.parent / "from-a-pull-request.html")

    assert report(page, "--format", "text") == 0
    assert "kgprof compare: linkpred" in capsys.readouterr().out


def test_a_comparison_is_not_replaced_by_the_report_of_its_head(compared: Path) -> None:
    before = (compared / "report.html").read_bytes()

    for given in ((compared,), (compared, "--format", f"html={compared / 'report.html'}")):
        assert report(*given) == 2
        assert (compared / "report.html").read_bytes() == before


def test_a_file_that_is_no_report_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>nothing</p>", encoding="utf-8")

    assert report(page, "--format", "text") == 2
    assert str(page) in capsys.readouterr().err
