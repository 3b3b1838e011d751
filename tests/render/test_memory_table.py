"""Reads and memory: columns that have a figure, and why the others have none."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.document.memory_table import COLUMNS, columns, line, signed, unknown
from kgprof.model import MemoryPeaks, MemorySummary, RunReport, Skipped
from kgprof.render import by_name
from tests.render import profiles

NONE = Skipped(reason="not asked for")


def with_memory(memory: MemorySummary | Skipped) -> RunReport:
    return msgspec.structs.replace(profiles.clean().runs[1], memory=memory)


def test_only_columns_with_a_figure_are_shown() -> None:
    assert [column.name for column in columns(profiles.watched().runs)] == [
        "syncs/step",
        "peak resident",
        "over eager",
    ]
    assert columns((with_memory(NONE),)) == ()


def test_each_reason_is_said_once_with_its_columns() -> None:
    assert unknown(profiles.watched().runs) == (
        ("peak allocated, peak reserved", "a CPU has no caching allocator"),
        ("CUDA-graph pools, taken", "this Recording has no data on the pools of CUDA graphs"),
        ("over eager", "this run is in mode eager (batched.eager, torch_cond.eager, fused.eager)"),
        ("efficiency, budget per model", "this report has none"),
    )


def test_a_pass_that_is_missing_is_missing_in_every_column() -> None:
    assert unknown((with_memory(NONE),)) == (
        (", ".join(column.name for column in COLUMNS), "not asked for"),
    )


def test_a_cell_says_what_was_held_before() -> None:
    run = profiles.watched().runs[1]
    cells = {column.name: column.cell(run) for column in columns((run,))}

    assert (cells["peak resident"].text, cells["peak resident"].details) == (
        "731 MiB",
        ("690 MiB before",),
    )
    assert (cells["over eager"].text, cells["over eager"].details) == ("+31.0 MiB", ("resident",))
    assert (cells["syncs/step"].text, cells["syncs/step"].value) == ("0", 0.0)


def test_a_run_in_a_line() -> None:
    peaks = MemoryPeaks(
        allocated_bytes=3 * 2**30,
        reserved_bytes=4 * 2**30,
        resident_bytes=5 * 2**30,
        allocated_before_bytes=2**30,
        resident_before_bytes=2**30,
    )
    known = MemorySummary(
        steps=17,
        peaks=peaks,
        over_eager_bytes=-(2**20),
        over_eager_of="allocated",
        syncs_per_step=1.5,
    )
    bare = msgspec.structs.replace(known, peaks=NONE, over_eager_bytes=NONE, syncs_per_step=NONE)

    assert (
        line(with_memory(known)) == "peak 3.00 GiB allocated (-1.00 MiB over eager), 1.5 syncs/step"
    )
    assert line(with_memory(bare)) == line(with_memory(NONE)) == ""


@pytest.mark.parametrize(
    ("size_bytes", "said"), [(0, "+0 B"), (2048, "+2.00 KiB"), (-2048, "-2.00 KiB")]
)
def test_a_difference_carries_its_sign(size_bytes: int, said: str) -> None:
    assert signed(size_bytes) == said


def test_a_report_without_the_pass_has_no_section_for_it() -> None:
    assert 'id="memory"' not in by_name("html").render(profiles.clean())
    assert "Syncs and memory" not in by_name("markdown").render(profiles.clean())


def test_text_says_it_in_one_line() -> None:
    words = " ".join(by_name("text").render(profiles.watched()).split())

    assert (
        "memory: batched.eager peak 700 MiB resident, 0 syncs/step; batched.default peak 731 MiB"
        in words
    )
    assert "checklist: 1 fail, 1 pass, 1 not observed (No value is read back in the step)" in words
    assert "trade-off: remove the sync: Reading the predicate costs 0.310 ms per step" in words
