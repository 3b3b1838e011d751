"""The timeline as it is drawn: shapes and events that add up, hostile names that stay text, a page
that stays small."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import re
import tarfile
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path

import msgspec
import pytest

from kgprof.document.table import Drawn, Fold, Shown
from kgprof.document.timeline_chart import ACROSS, events, step_folds
from kgprof.measures import kernels
from kgprof.model import KernelBreakdown, Lane, PassName, Profile, Skipped, StepTimeline
from kgprof.reading import kineto
from kgprof.render.html import LEVELS, MAX_BYTES, Html
from tests.render import profiles
from tests.render.tables import drawn, notes, tables, texts

TRACES = (
    Path(__file__).resolve().parents[2]
    / "fixtures"
    / "recordings"
    / "cuda_graphs_h200"
    / "breaks"
    / "runs"
)
LIMITS = LEVELS[0]


def h200() -> KernelBreakdown:
    trace = kineto.read(TRACES / "cond.as-is" / "trace.json.gz")
    found = kernels.breakdown(
        trace, device="cuda", measured_in=PassName.TRACE, cpp_kernel_profile=False
    )
    assert isinstance(found, KernelBreakdown)
    return found


def profile_with(broken_down: KernelBreakdown, runs: int = 1) -> Profile:
    profile = profiles.findings()
    run = msgspec.structs.replace(profile.runs[0], kernels=broken_down)
    return msgspec.structs.replace(profile, runs=(run,) * runs, device="cuda")


def fold_of(broken_down: KernelBreakdown) -> Fold:
    (fold,) = step_folds(profile_with(broken_down).runs, LIMITS)
    return fold


def numbers(letters: str) -> list[int]:
    """As the page's script reads them."""
    return [ord(letter) - (0x85D if ord(letter) > 0xDFFF else 0x5D) for letter in letters]


Event = tuple[str, str, int, int]  # name, kind, start and duration in nanoseconds
SHAPE = re.compile(r"M([\d.e+-]+) ([\d.]+)h([\d.e+-]+)v(\d+)H[\d.e+-]+z")


def timeline_of(
    *events: Event, content: str = "operators", owner: str = "thread 1"
) -> StepTimeline:
    names, kinds = (tuple(dict.fromkeys(event[at] for event in events)) for at in (0, 1))
    lane = Lane(
        owner=owner,
        content=content,
        busy_us=sum(event[3] for event in events) / 1000,
        covered=0,
        name=tuple(names.index(event[0]) for event in events),
        kind=tuple(kinds.index(event[1]) for event in events),
        start_ns=tuple(event[2] for event in events),
        duration_ns=tuple(event[3] for event in events),
        left_out=7,
        left_out_us=1.4,
    )
    return StepTimeline(
        name="ProfilerStep#4",
        number=2,
        steps=3,
        duration_us=80.0,
        window_us=100.0,
        names=names,
        kinds=kinds,
        lanes=(lane,),
        lanes_left_out=1,
        left_out_us=4.0,
        left_out_below_us=0.5,
        from_other_steps=2,
        after_the_window=3,
    )


def drawing_of(timeline: StepTimeline) -> Shown:
    drawing = drawn(Drawn, fold_of(msgspec.structs.replace(h200(), timeline=timeline)).blocks)
    assert drawing is not None
    return drawing.shown


def test_a_drawing_by_hand() -> None:
    events = (("aten::mm", "gemm", 10_000, 25_000), ("aten::add", "pointwise", 60_000, 2_000))
    made = fold_of(msgspec.structs.replace(h200(), timeline=timeline_of(*events))).blocks

    drawing = drawing_of(timeline_of(*events))
    (row,) = drawing["rows"]
    assert (row["label"], row["busy"]) == ("thread 1: operators", "0.0270 ms, 27.0 %")
    assert [(one.style, one.path, one.title) for one in row["shapes"]] == [
        ("k-gemm", "M300 0h750v16H300z", "GEMM: 1 event, 0.0250 ms"),
        ("k-pointwise", "M1800 0h60v16H1800z", "pointwise: 1 event, 0.00200 ms"),
    ]
    assert (drawing["step_end"], drawing["note"]) == ("80.000%", "")
    assert notes(made)[:5] == (
        "7 events of at most 0.500 \N{MICRO SIGN}s each, 1.40 \N{MICRO SIGN}s in total, left out: "
        "the longest ones are here.",
        "The dashed line is the end of the step on the CPU; after it the GPU finishes what the "
        "step launched.",
        "2 GPU events were not launched by this step.",
        "3 GPU events that the step launched began later than is drawn.",
        "1 lane with 4.00 \N{MICRO SIGN}s in total omitted.",
    )
    assert texts(tables(made)[0]) == (("thread 1: operators", "27.0", "27.0 %", "9", "7"),)


def test_of_many_short_events_the_picture_shows_how_busy_each_stretch_was_and_no_order() -> None:
    # given: 200 operators in turn of 60 and 40 ns in the first half of 100 us, 1 or 2 to a cell of
    # 400 ns; a long one
    short = tuple(
        (f"aten::{i % 2}", ("gemm", "copy")[i % 2], 250 * i, (60, 40)[i % 2]) for i in range(200)
    )
    drawing = drawing_of(timeline_of(*short, ("aten::long", "gemm", 60_000, 30_000)))

    # then: one bar for each cell, as high as it was busy, in the colour of what took most; the long
    # one is itself
    (row,) = drawing["rows"]
    bars = {
        shape.style: [tuple(map(float, bar)) for bar in SHAPE.findall(shape.path)]
        for shape in row["shapes"]
    }
    assert bars["k-gemm"][-1] == (1800.0, 0.0, 900.0, 16.0)
    cells = sorted((*bars["k-gemm"][:-1], *bars["k-copy"]))
    assert len(cells) == 125 == len({x for x, *_ in cells})
    assert all(width == ACROSS / 250 and y + high == 16 for _, y, width, high in cells)
    area = sum(high / 16 * width for _, _, width, high in cells) / ACROSS
    assert area == pytest.approx(200 * 50 / 100_000, rel=0.1)
    assert drawing["note"]
    assert [shape.title for shape in row["shapes"]] == [
        "GEMM: 101 events, 0.0360 ms",
        "copy and fill: 100 events, 0.00400 ms",
    ]


def test_an_older_report_without_events_says_so() -> None:
    new = timeline_of(("aten::mm", "gemm", 0, 10))
    lanes = tuple(msgspec.structs.replace(lane, name=()) for lane in new.lanes)
    old = msgspec.structs.replace(new, names=(), kinds=(), lanes=lanes)

    assert "No timeline: this report has no single events." in notes(
        fold_of(msgspec.structs.replace(h200(), timeline=old)).blocks
    )


def test_the_page_carries_each_event_of_a_real_step() -> None:
    broken_down = h200()
    timeline = broken_down.timeline
    assert isinstance(timeline, StepTimeline)

    page = Html().render(profile_with(broken_down))

    (block,) = re.findall(r'<script type="application/gzip" id="events">([^<]*)</script>', page)
    unit, window, step, names, kinds, lanes = json.loads(gzip.decompress(base64.b64decode(block)))[
        "run-1"
    ]
    assert unit * window == pytest.approx(timeline.window_us * 1000, abs=unit)
    assert unit * step == pytest.approx(timeline.duration_us * 1000, abs=unit)
    moments: set[int] = set()
    for lane, (_, _, role, *columns, links) in zip(timeline.lanes, lanes, strict=True):
        name, kind, gaps, lengths = map(numbers, columns)
        assert (tuple(name), len(kind), max(kind) < len(kinds)) == (lane.name, len(lane.kind), True)
        ends = list(
            itertools.accumulate(gap + length for gap, length in zip(gaps, lengths, strict=True))
        )
        starts = [end - length for end, length in zip(ends, lengths, strict=True)]
        if role == 3:
            times = sorted(moments.union(links))
            starts, ends = [times[place] for place in starts], [times[place] for place in ends]
            assert len(links) <= 2
        else:
            assert tuple(itertools.accumulate(links)) == lane.call
            moments.update(starts if role else (), ends if role == 2 else ())
        assert [unit * start for start in starts] == pytest.approx(lane.start_ns, abs=unit)
        lasted = [unit * (end - start) for start, end in zip(starts, ends, strict=True)]
        assert lasted == pytest.approx(lane.duration_ns, abs=2 * unit)
    assert [lane.content for lane in timeline.lanes if "idle" in lane.content] == ["idle"]
    assert len(names) == len(timeline.names)
    assert block == re.findall(r'id="events">([^<]*)<', Html().render(profile_with(h200())))[0]


def test_an_eager_step_of_three_thousand_events_is_small(tmp_path: Path) -> None:
    # given: the eager evaluator of an H200, which spends most of a step on launches
    with tarfile.open(TRACES.parents[2] / "evaluator_h200.tgz") as packed:
        packed.extract("recording/runs/torch_cond.eager/trace.json.gz", tmp_path, filter="data")
    trace = kineto.read(tmp_path / "recording/runs/torch_cond.eager/trace.json.gz")
    eager = kernels.breakdown(
        trace, device="cuda", measured_in=PassName.TRACE, cpp_kernel_profile=False
    )
    assert isinstance(eager, KernelBreakdown)

    packed_events = base64.b64decode(events(profile_with(eager).runs, LIMITS))

    ((*_, lanes),) = json.loads(gzip.decompress(packed_events)).values()
    assert sum(len(name) for _, _, _, name, *_ in lanes) == 3271
    assert len(packed_events) < 9_000


@pytest.mark.parametrize(
    ("start", "length", "read"),
    [
        (7, 0, 0),
        (7, 0xD7FF - 93, 0xD7FF - 93),
        (7, 0xD800 - 93, 0xD800 - 93),
        (7, 40_000, 40_000),
        (-9, 10**9, 10**6),
    ],
)
def test_a_time_is_read_back_and_one_that_no_window_holds_is_cut(
    start: int, length: int, read: int
) -> None:
    timeline = timeline_of(("a", "gemm", start, length))

    packed = events(profile_with(msgspec.structs.replace(h200(), timeline=timeline)).runs, LIMITS)

    unit, *_, ((*_, gaps, lengths, _),) = json.loads(gzip.decompress(base64.b64decode(packed)))[
        "run-1"
    ]
    assert (unit, numbers(gaps), numbers(lengths)) == (1, [max(0, start)], [read])


def test_hostile_names_stay_text() -> None:
    hostile = "</title></svg><script>alert(1)</script>\u202e\x00" + "n" * 5000
    lane = timeline_of((hostile, hostile, 0, 1000), content=hostile, owner=hostile)

    page = Html().render(profile_with(msgspec.structs.replace(h200(), timeline=lane)))

    (svg,) = re.findall(r'<svg class="lanes".*?</svg>\s*</div>', page, re.DOTALL)
    assert "<script" not in svg
    assert "<script" in unescape(svg)
    (shape,) = ET.fromstring(svg.removesuffix("</div>")).iter("path")
    assert shape.attrib["class"] == "k-other"
    (block,) = re.findall(r'id="events">([^<]*)<', page)
    ((name,),) = [
        coded[3] for coded in json.loads(gzip.decompress(base64.b64decode(block))).values()
    ]
    assert len(name) < 100
    assert "\u202e" not in name
    assert "\x00" not in name


def test_without_a_timeline_the_reason_stands_in_its_place() -> None:
    broken_down = msgspec.structs.replace(
        h200(), timeline=Skipped(reason="the trace marks no steps")
    )

    assert "No timeline: the trace marks no steps." in Html().render(profile_with(broken_down))


def test_more_runs_than_the_page_has_room_for_are_drawn_only_at_first_and_that_is_said() -> None:
    runs = 14

    page = Html().render(profile_with(h200(), runs=runs))

    assert len(page.encode()) <= MAX_BYTES
    shown = page.count('<svg class="lanes"')
    assert 0 < shown < runs
    assert f"the timelines of {runs - shown} runs" in page
