"""Memory over a step as a curve with its table, and the reason where there is none."""

from __future__ import annotations

import re

import msgspec

from kgprof.document.memory_table import memory_folds
from kgprof.document.plot import ACROSS, Plot
from kgprof.document.table import Fold
from kgprof.model import MemoryCurve, PassName, Skipped
from kgprof.render.html import LEVELS, Html
from tests.render import profiles
from tests.render.tables import drawn, notes, tables, texts

CURVE = MemoryCurve(
    device="cuda:0",
    measured_in=PassName.STACK,
    step="ProfilerStep#4",
    steps=5,
    duration_us=100.0,
    events=2,
    before_bytes=2**20,
    peak_bytes=4 * 2**20,
    after_bytes=2**20,
    at_us=(25.0, 75.0),
    allocated_bytes=(4 * 2**20, 2**20),
)


def test_a_curve_holds_each_level_for_as_long_as_it_lasted() -> None:
    run = msgspec.structs.replace(profiles.cuda().runs[0], memory_curve=CURVE)
    (fold,) = memory_folds([run], LEVELS[0])

    assert isinstance(fold, Fold)
    plot = drawn(Plot, fold.blocks)
    assert plot is not None
    bars = [
        re.fullmatch(r"M([\d.]+) [\d.]+h([\d.]+)v([\d.]+)H[\d.]+z", shape.path)
        for shape in plot.shapes
    ]
    x, width, high = zip(
        *((float(bar[1]), float(bar[2]), float(bar[3])) for bar in bars if bar), strict=True
    )
    assert (x, width) == (
        (0, 0.25 * ACROSS, 0.75 * ACROSS),
        (0.25 * ACROSS, 0.5 * ACROSS, 0.25 * ACROSS),
    )
    assert high[1] / high[0] == 4 or abs(high[1] / high[0] - 4) < 0.05
    assert [shape.title for shape in plot.shapes] == [
        "1.00 MiB from 0 \N{MICRO SIGN}s",
        "4.00 MiB from 25.0 \N{MICRO SIGN}s",
        "1.00 MiB from 75.0 \N{MICRO SIGN}s",
    ]
    assert texts(tables(fold.blocks)[0]) == (("cuda:0", "1.00 MiB", "4.00 MiB", "1.00 MiB", "2"),)


def test_a_reason_of_all_runs_stands_once_and_of_one_with_its_run() -> None:
    none = Skipped(reason="its traces hold no allocations")
    runs = [msgspec.structs.replace(run, memory_curve=none) for run in profiles.cuda().runs[:2]]
    said = "Memory over a step is not drawn: its traces hold no allocations."

    assert [*memory_folds(runs, LEVELS[0])] == [said]
    first, second = memory_folds(
        [msgspec.structs.replace(runs[0], memory_curve=CURVE), runs[1]], LEVELS[0]
    )
    assert isinstance(first, Fold)
    assert isinstance(second, Fold)
    assert (notes(first.blocks), notes(second.blocks)) == ((), (said,))


def test_a_run_with_nothing_but_a_curve_has_the_section_and_no_table_of_the_memory_pass() -> None:
    profile = profiles.clean()
    run = msgspec.structs.replace(profile.runs[0], memory_curve=CURVE)
    page = Html().render(msgspec.structs.replace(profile, runs=(run,)))

    assert 'id="memory-over-a-step"' in page
    assert "Memory of batched.eager over a step" in page
    assert "Syncs and memory per run" not in page
    assert 'id="memory-over-a-step"' not in Html().render(profile)
