"""`kgprof extract`: what a report carries, as the report.json that was written beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from kgprof import cli
from kgprof.model import Profile, decode_json, encode_json
from kgprof.render.html import Html
from tests.record import handmade
from tests.render import profiles


def here(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    code = cli.run([str(arg) for arg in args])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_page_alone_gives_report_json_byte_for_byte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given: a report as kgprof writes it, and its page as somebody else downloaded it
    handmade.write(tmp_path / "out" / "recording")
    here(capsys, "report", tmp_path / "out", "--no-hta")
    downloaded = tmp_path / "elsewhere" / "kgprof-train-0123abc.html"
    downloaded.parent.mkdir()
    shutil.copy(tmp_path / "out" / "report.html", downloaded)
    written = (tmp_path / "out" / "report.json").read_text(encoding="utf-8")

    on_stdout = here(capsys, "extract", downloaded)
    into_a_file = here(capsys, "extract", downloaded, "-o", tmp_path / "new" / "x.json")

    assert on_stdout == (0, written, "")
    assert into_a_file == (0, f"{tmp_path / 'new' / 'x.json'}\n", "")
    assert (tmp_path / "new" / "x.json").read_text(encoding="utf-8") == written


def test_what_the_page_had_to_leave_out_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = profiles.huge()
    page = tmp_path / "report.html"
    page.write_text(
        Html().render(msgspec.structs.replace(profile, runs=profile.runs[:18])), encoding="utf-8"
    )

    code, out, err = here(capsys, "extract", page)

    assert code == 0
    assert len(decode_json(out, Profile).runs) == 18
    assert err.splitlines() == [
        "kgprof: not in this report's copy: the logs",
        "kgprof: not in this report's copy: the timelines",
        "kgprof: not in this report's copy: the step times and memory curves",
        "kgprof: not in this report's copy: the CPU functions",
        "kgprof: not in this report's copy: the roofline",
        "kgprof: not in this report's copy: the source files",
        "kgprof: not in this report's copy: the graphs and their code",
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("missing.html", "file not found\n  hint: give a report.html written by kgprof\n"),
        ("", "this is a folder, not a report\n  hint: give the report.html in it\n"),
        (
            "report.json",
            "not a report.html written by kgprof\n  hint: give a report.html written by kgprof\n",
        ),
        ("cut.html", "the report "),
    ],
)
def test_what_cannot_be_extracted_from_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, said: str
) -> None:
    page = Html().render(profiles.clean())
    (tmp_path / "cut.html").write_text(page[: len(page) // 2], encoding="utf-8")
    (tmp_path / "report.json").write_bytes(encode_json(profiles.clean()))
    target = tmp_path / "x.json"

    code, out, err = here(capsys, "extract", tmp_path / given, "-o", target)

    assert (code, out) == (2, "")
    assert err.startswith(f"kgprof: error: {tmp_path / given}: {said}")
    assert not target.exists()


def test_a_place_that_cannot_be_written_is_refused_before_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = here(capsys, "extract", tmp_path / "missing.html", "-o", tmp_path)

    assert (code, out) == (2, "")
    assert err.startswith(f"kgprof: error: cannot write to {tmp_path}")
