"""Reads and memory: columns that have a figure, and why the others have none."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.document.memory_table import COLUMNS, columns, signed, unknown
from kgprof.model import MemorySummary, RunReport, Skipped
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
    assert not columns((with_memory(NONE),))


def test_each_reason_is_said_once_with_its_columns() -> None:
    assert unknown(profiles.watched().runs) == [
        ("peak allocated, peak reserved", "a CPU has no caching allocator"),
        ("CUDA-graph pools, taken", "this Recording has no data on the pools of CUDA graphs"),
        ("over eager", "this run is in mode eager (batched.eager, torch_cond.eager, fused.eager)"),
        ("efficiency, budget per model", "this report has none"),
    ]


def test_a_pass_that_is_missing_is_missing_in_every_column() -> None:
    assert unknown((with_memory(NONE),)) == [
        (", ".join(column.name for column in COLUMNS), "not asked for")
    ]


def test_a_cell_says_what_was_held_before() -> None:
    run = profiles.watched().runs[1]
    cells = {column.name: column.cell(run) for column in columns((run,))}

    assert (cells["peak resident"].text, cells["peak resident"].details) == (
        "731 MiB",
        ("690 MiB before",),
    )
    assert (cells["over eager"].text, cells["over eager"].details) == ("+31.0 MiB", ("resident",))
    assert (cells["syncs/step"].text, cells["syncs/step"].value) == ("0", 0.0)


@pytest.mark.parametrize(
    ("size_bytes", "said"), [(0, "+0 B"), (2048, "+2.00 KiB"), (-2048, "-2.00 KiB")]
)
def test_a_difference_carries_its_sign(size_bytes: int, said: str) -> None:
    assert signed(size_bytes) == said


def test_a_report_without_the_pass_has_no_section_for_it() -> None:
    assert 'id="memory"' not in by_name("html").render(profiles.clean())
    assert "Syncs and memory" not in by_name("markdown").render(profiles.clean())


def test_text_says_it_in_sections() -> None:
    text = by_name("text").render(profiles.watched())

    row = next(line for line in text.splitlines() if line.endswith("over eager"))
    assert row.split() == ["run", "syncs/step", "peak", "resident", "over", "eager"]
    assert "batched.default 0 731 MiB +31.0 MiB" in " ".join(text.split())
    assert (
        "Checklist: 1 fail, 1 pass, 1 not observed\n- No value is read back in the step: " in text
    )
    assert "Trade-offs\nremove the sync: Reading the predicate costs 0.310 ms per step" in text
