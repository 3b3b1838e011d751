"""Traces, ranks and differences as text: whole tables, and names that are no names."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgprof import cli
from kgprof.analysis import analyse
from kgprof.document.trace_table import difference, file_table, rank_blocks, signed
from kgprof.model import Profile
from kgprof.reading import recordings
from kgprof.render import RENDERERS
from tests.analysis.events import event, step, write
from tests.render.tables import tables, texts

HOSTILE = "<script>alert(1)</script>\x1b[31m | `x` ::error::"
US = "\N{MICRO SIGN}s/step"


def taken_in(tmp_path: Path, *arguments: str | Path) -> Profile:
    code = cli.run(["trace", "--no-hta", "-q", "-o", str(tmp_path / "out"), *map(str, arguments)])
    assert code == 0
    return analyse(recordings.load(tmp_path / "out"))


def a_trace(path: Path, kernel: str, us: float) -> Path:
    return write(
        path, [step(0, 0.0, 1000.0), event("kernel", kernel, 100.0, us, thread=7, stream=7)]
    )


def test_a_difference_reads_was_and_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = (
        a_trace(tmp_path / "old.json", "cutlass_gemm", 30.0),
        a_trace(tmp_path / "new.json", "triton_poi_0", 20.0),
    )
    (found,) = taken_in(tmp_path, new, "--against", old).differences
    shown = difference(found, rows=1)
    capsys.readouterr()
    assert shown.title == "new against old"
    assert shown.intro == (
        "GPU time: 20.0 µs per step, before 30.0 (\N{MINUS SIGN}10.0), 1 step against 1; 1 new "
        "kernel, 1 gone"
    )
    by_name = {table.columns[0].name: table for table in tables(shown.blocks)}
    headings = tuple(column.name for column in by_name["kernel"].columns)
    assert headings == (
        "kernel",
        f"before, {US}",
        f"after, {US}",
        "difference",
        "calls before",
        "calls after",
    )
    assert texts(by_name["kernel"]) == (
        ("cutlass_gemm (gone)", "30.0", "0", "\N{MINUS SIGN}30.0", "1", "0"),
        ("1 more", "0", "20.0", "+20.0", "0", "1"),
        ("all", "30.0", "20.0", "\N{MINUS SIGN}10.0", "1", "1"),
    )
    # no span holds a launch here, so a table of spans would be the total once more
    assert list(by_name) == ["the window", "kind", "kernel"]


def test_ranks_end_with_median_largest_and_their_ratio(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank, us in enumerate((100.0, 100.0, 150.0)):
        a_trace(tmp_path / f"rank{rank}.json", "triton_poi_0", us)
    found = taken_in(tmp_path, *sorted(tmp_path.glob("rank*.json")))
    capsys.readouterr()
    balance = found.rank_balance
    assert balance is not None
    (table,) = tables(rank_blocks(balance))
    assert texts(table) == (
        ("rank 0", "1,000", "100", "100", "0", "0", "900"),
        ("rank 1", "1,000", "100", "100", "0", "0", "900"),
        ("rank 2", "1,000", "150", "150", "0", "0", "850"),
        ("median", "1,000", "100", "100", "0", "0", "900"),
        ("largest", "1,000", "150", "150", "0", "0", "900"),
        (
            "largest over median",
            "1.00\u00d7",
            "1.50\u00d7",
            "1.50\u00d7",
            "\N{EN DASH}",
            "\N{EN DASH}",
            "1.00\u00d7",
        ),
    )
    assert "; whether the others wait for it is not known: " in balance.text
    assert [line[3:] for line in texts(file_table(found))] == [
        ("0", "1", "1.00", "10.0 %", "90.0 %", "100"),
        ("1", "1", "1.00", "10.0 %", "90.0 %", "100"),
        ("2", "1", "1.00", "15.0 %", "85.0 %", "150"),
    ]


def test_a_trace_that_marks_no_steps_has_times_of_its_window_and_none_per_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = event("kernel", "triton_poi_0", 100.0, 2000.0, thread=7, stream=7)
    last = event("kernel", "triton_poi_1", 3100.0, 1000.0, thread=7, stream=7)
    found = taken_in(tmp_path, write(tmp_path / "plain.json", [first, last]))
    capsys.readouterr()

    (line,) = texts(file_table(found))
    assert line[4:] == ("not marked", "4.00 in all", "75.0 %", "25.0 %", "3,000 in all")
    pages = {renderer.name: renderer.render(found) for renderer in RENDERERS}
    assert "4.00 ms/window in TRACE" in pages["text"]
    assert "plain.as-is (whole window)" in pages["markdown"]
    page = pages["html"]
    assert "busy/window" in page
    assert "kernels and copies per step" not in page


def test_a_name_steers_no_renderer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = a_trace(tmp_path / "<b>new|.json", HOSTILE, 20.0)
    old = a_trace(tmp_path / "old.json", f"{HOSTILE} too", 30.0)
    found = taken_in(tmp_path, new, "--against", old)
    capsys.readouterr()
    for renderer in RENDERERS:
        text = renderer.render(found)
        assert "\x1b" not in text, renderer.name
        if renderer.name in ("html", "markdown"):
            assert "<script>alert" not in text
            assert "<b>new" not in text


@pytest.mark.parametrize(
    ("us", "said"), [(0.0, "0"), (1e-4, "0"), (2.5, "+2.50"), (-1234.0, "\N{MINUS SIGN}1,234")]
)
def test_a_difference_has_a_sign(us: float, said: str) -> None:
    assert signed(us) == said
