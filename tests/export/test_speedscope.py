"""The file against the rules that speedscope's documentation of its format gives; sums against the
trace's."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kgprof.export.speedscope import speedscope
from kgprof.measures.host_stacks import Change, Frame, Nesting, Track, nesting
from kgprof.measures.idle import HOST_CATEGORIES
from kgprof.reading import kineto, timeline
from tests.analysis.events import event, write

UNITS = {"none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"}


def faults(document: dict[str, Any]) -> list[str]:
    """What speedscope would not open."""
    frames, found = document["shared"]["frames"], []
    if document["$schema"] != "https://www.speedscope.app/file-format-schema.json":
        found.append("schema")
    if not 0 <= document["activeProfileIndex"] < len(document["profiles"]):
        found.append("active profile")
    for frame in frames:
        if not isinstance(frame["name"], str) or not set(frame) <= {"name", "file", "line", "col"}:
            found.append(f"frame {frame}")
    for profile in document["profiles"]:
        if (
            profile["type"] != "evented"
            or profile["unit"] not in UNITS
            or not isinstance(profile["name"], str)
        ):
            found.append(f"profile {profile['name']}")
        found += event_faults(profile, len(frames))
    return found


def event_faults(profile: dict[str, Any], frames: int) -> list[str]:
    """Times that do not decrease, frames that exist, and each closing that of what was opened
    last."""
    found: list[str] = []
    open_now: list[int] = []
    before = profile["startValue"]
    for at, change in enumerate(profile["events"]):
        if not before <= change["at"] <= profile["endValue"]:
            found.append(f"time of event {at}")
        before = change["at"]
        if not 0 <= change["frame"] < frames:
            found.append(f"frame of event {at}")
        if change["type"] == "O":
            open_now.append(change["frame"])
        elif change["type"] != "C" or not open_now or open_now.pop() != change["frame"]:
            found.append(f"closing of event {at}")
    return [*found, *(["left open"] if open_now else [])]


def whole_ns(document: dict[str, Any]) -> Counter[str]:
    """What each frame was open for, over all profiles."""
    spent = Counter[str]()
    for profile in document["profiles"]:
        for change in profile["events"]:
            name = document["shared"]["frames"][change["frame"]]["name"]
            spent[name] += change["at"] if change["type"] == "C" else -change["at"]
    return +spent


def test_the_file_has_the_fields_of_the_format() -> None:
    changes = (Change(at_ns=0, opens=True, frame=1), Change(at_ns=1500, opens=False, frame=1))
    found = Nesting(
        frames=(Frame(name="forward", file="model.py", line=12), Frame(name="aten::mm")),
        tracks=(Track(name="thread 1 of process 1", changes=changes),),
    )

    document = json.loads(speedscope(found, name="fused.default, TRACE"))

    assert document.pop("exporter").startswith("kgprof@")
    assert document == {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {
            "frames": [{"name": "forward", "file": "model.py", "line": 12}, {"name": "aten::mm"}]
        },
        "profiles": [
            {
                "type": "evented",
                "name": "thread 1 of process 1",
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": 1500,
                "events": [
                    {"type": "O", "at": 0, "frame": 1},
                    {"type": "C", "at": 1500, "frame": 1},
                ],
            }
        ],
        "name": "fused.default, TRACE",
        "activeProfileIndex": 0,
    }


def test_the_rules_find_what_breaks_them() -> None:
    events = [
        {"type": "O", "at": 5, "frame": 0},
        {"type": "O", "at": 4, "frame": 7},
        {"type": "C", "at": 9, "frame": 0},
    ]
    profile = {
        "type": "evented",
        "name": "x",
        "unit": "hours",
        "startValue": 0,
        "endValue": 8,
        "events": events,
    }
    document = {
        "$schema": "",
        "shared": {"frames": [{"name": "a"}]},
        "profiles": [profile],
        "activeProfileIndex": 1,
    }

    assert faults(document) == [
        *("schema", "active profile", "profile x", "time of event 1", "frame of event 1"),
        *("time of event 2", "closing of event 2", "left open"),
    ]


def test_names_are_text_whatever_they_hold(tmp_path: Path) -> None:
    name = '"\\</script>\x00\u2028\U0001f525'
    columns = kineto.read(write(tmp_path / "trace.json", [event("cpu_op", name, 0, 5)])).columns

    document = json.loads(speedscope(nesting(columns), name="x"))

    assert faults(document) == []
    assert [frame["name"] for frame in document["shared"]["frames"]] == [name]


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["trace_default_plain", "trace_reduce-overhead_plain", "trace_reduce-overhead_stack"]
)
def test_real_traces_keep_their_rules_and_their_sums(shared: Path, name: str) -> None:
    # given: traces of an H200, the last one with Python stacks whose events overlap
    path = shared / "traces" / "h200" / f"{name}.json.gz"
    columns = kineto.read(path).columns

    document = json.loads(speedscope(nesting(columns), name=name))

    # then: also by Python's own reading of the file
    raw = json.loads(
        gzip.decompress(path.read_bytes()).decode("utf-8", errors="replace"), strict=False
    )["traceEvents"]
    wanted = {*HOST_CATEGORIES, "kernel", "gpu_memcpy", "gpu_memset"}
    expected = sum(
        round(e["dur"] * 1000) for e in raw if e.get("ph") == "X" and e.get("cat") in wanted
    )
    assert faults(document) == []
    assert sum(whole_ns(document).values()) == pytest.approx(expected, abs=len(raw))
    streams = [profile for profile in document["profiles"] if profile["name"].startswith("stream")]
    kernels = columns.of_category("kernel", "gpu_memcpy", "gpu_memset")
    busy = sum(
        timeline.union_ns(timeline.intervals_of(columns, kernels & (columns.stream == stream)))
        for stream in set(columns.stream[kernels].tolist())
    )
    assert sum(covered_ns(profile) for profile in streams) == busy


def covered_ns(profile: dict[str, Any]) -> int:
    """While anything at all is open."""
    depth, covered, since = 0, 0, 0
    for change in profile["events"]:
        if depth:
            covered += change["at"] - since
        since = change["at"]
        depth += 1 if change["type"] == "O" else -1
    return covered
