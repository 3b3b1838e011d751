"""The timeline as it is drawn: geometry that adds up, hostile names that stay text, a page that stays small."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path

import msgspec
import pytest

from kgprof.measures import kernels
from kgprof.model import KernelBreakdown, Lane, LaneBlock, PassName, Profile, Skipped, StepTimeline
from kgprof.reading import kineto
from kgprof.render.html import LEVELS, MAX_BYTES, Html
from kgprof.render.table import Fold
from kgprof.render.timeline_chart import Lanes, step_folds
from tests.render import profiles
from tests.render.tables import drawn, notes, tables, texts

TRACES = Path(__file__).resolve().parents[2] / "fixtures" / "recordings" / "cuda_graphs_h200" / "breaks" / "runs"
LIMITS = LEVELS[0]


def h200() -> KernelBreakdown:
    trace = kineto.read(TRACES / "cond.as-is" / "trace.json.gz")
    found = kernels.breakdown(trace, device="cuda", measured_in=PassName.TRACE, cpp_kernel_profile=False)
    assert isinstance(found, KernelBreakdown)
    return found


def profile_with(broken_down: KernelBreakdown, runs: int = 1) -> Profile:
    profile = profiles.findings()
    run = msgspec.structs.replace(profile.runs[0], kernels=broken_down)
    return msgspec.structs.replace(profile, runs=(run,) * runs, device="cuda")


def fold_of(broken_down: KernelBreakdown) -> Fold:
    (fold,) = step_folds(profile_with(broken_down).runs, LIMITS)
    return fold


def timeline_of(*blocks: LaneBlock, content: str = "operators", owner: str = "thread 1") -> StepTimeline:
    lane = Lane(owner=owner, content=content, busy_us=sum(one.duration_us for one in blocks), covered=0, blocks=blocks)
    return StepTimeline(
        name="ProfilerStep#4",
        number=2,
        steps=3,
        duration_us=80.0,
        window_us=100.0,
        lanes=(lane,),
        lanes_left_out=1,
        left_out_us=4.0,
        merged_blocks=1,
        merged_events=7,
        merged_below_us=0.5,
        from_other_steps=2,
        after_the_window=3,
    )


def test_a_drawing_by_hand() -> None:
    blocks = (
        LaneBlock(name="aten::mm", kind="gemm", start_us=10.0, duration_us=25.0),
        LaneBlock(name="aten::add", kind="pointwise", start_us=60.0, duration_us=2.0, events=7),
    )
    made = fold_of(msgspec.structs.replace(h200(), timeline=timeline_of(*blocks))).blocks

    drawing = drawn(Lanes, made)
    assert drawing is not None
    (row,) = drawing.rows
    assert (row.label, row.busy) == ("thread 1: operators", "0.0270 ms, 27.0 %")
    assert [(one.style, one.x, one.width, one.title) for one in row.rectangles] == [
        ("k-gemm", "10.000%", "25.000%", "aten::mm: 25.0 \N{MICRO SIGN}s, starting at 10.0 \N{MICRO SIGN}s"),
        (
            "k-pointwise",
            "60.000%",
            "2.000%",
            "7 together, 2.00 \N{MICRO SIGN}s, starting at 60.0 \N{MICRO SIGN}s; the longest: aten::add",
        ),
    ]
    assert drawing.step_end == "80.000%"
    assert notes(made)[:5] == (
        "7 events shorter than 0.500 \N{MICRO SIGN}s are drawn as 1 block: neighbours of one kind are merged, and each "
        "block is as long as its events together.",
        "The dashed line is the end of the step on the CPU; after it the GPU finishes what the step launched.",
        "2 GPU events were not launched by this step.",
        "3 GPU events that the step launched began later than is drawn.",
        "1 lane with 4.00 \N{MICRO SIGN}s in total omitted.",
    )
    assert texts(tables(made)[0]) == (("thread 1: operators", "27.0", "27.0 %", "8", "2"),)


def test_the_rectangles_of_a_real_step_add_up_to_what_stands_beside_them() -> None:
    broken_down = h200()
    assert isinstance(broken_down.timeline, StepTimeline)

    page = Html().render(profile_with(broken_down))

    (svg,) = re.findall(r'<svg class="lanes".*?</svg>', page, re.DOTALL)
    shown = ET.fromstring(svg)
    rectangles = [float(one.attrib["width"].rstrip("%")) for one in shown.iter("rect")]
    busy_us = sum(lane.busy_us for lane in broken_down.timeline.lanes)
    # Each width is rounded to a thousandth of a per cent.
    rounding = 0.0005 * len(rectangles)
    assert sum(rectangles) == pytest.approx(100 * busy_us / broken_down.timeline.window_us, rel=1e-3, abs=rounding)
    assert all(one.find("title") is not None for one in shown.iter("rect"))
    assert svg == re.findall(r'<svg class="lanes".*?</svg>', Html().render(profile_with(h200())), re.DOTALL)[0]


def test_hostile_names_stay_text() -> None:
    hostile = "</title></svg><script>alert(1)</script>\u202e\x00" + "n" * 5000
    block = LaneBlock(name=hostile, kind=hostile, start_us=0.0, duration_us=1.0)
    lane = timeline_of(block, content=hostile, owner=hostile)

    page = Html().render(profile_with(msgspec.structs.replace(h200(), timeline=lane)))

    (svg,) = re.findall(r'<svg class="lanes".*?</svg>\n', page, re.DOTALL)
    assert "<script" not in svg
    assert "<script" in unescape(svg)
    (rectangle,) = ET.fromstring(svg).iter("rect")
    assert rectangle.attrib["class"] == "k-other"
    assert len(rectangle[0].text or "") < 100


def test_without_a_timeline_the_reason_stands_in_its_place() -> None:
    broken_down = msgspec.structs.replace(h200(), timeline=Skipped(reason="the trace marks no steps"))

    assert "No timeline: the trace marks no steps." in Html().render(profile_with(broken_down))


def test_more_runs_than_the_page_has_room_for_are_drawn_only_at_first_and_that_is_said() -> None:
    runs = 14

    page = Html().render(profile_with(h200(), runs=runs))

    assert len(page.encode()) <= MAX_BYTES
    shown = page.count('<svg class="lanes"')
    assert 0 < shown < runs
    assert f"the timelines of {runs - shown} runs" in page
