"""Memory over the median step: from a trace's allocations and frees, by hand and as torch records
them on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kgprof.measures.step_timeline import memory_curve
from kgprof.model import MemoryCurve, PassName, Skipped
from kgprof.reading import kineto
from tests.analysis.events import step, write


def point(at: float, change: int, held: int, device: int = 0, kind: int = 1) -> dict[str, Any]:
    arguments = {
        "Total Allocated": held,
        "Bytes": change,
        "Device Id": device,
        "Device Type": kind,
        "Total Reserved": 0,
    }
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": at,
        "args": arguments,
    }


def curve_of(path: Path) -> MemoryCurve | Skipped:
    return memory_curve(kineto.read(path).columns, measured_in=PassName.STACK)


def test_a_step_by_hand(tmp_path: Path) -> None:
    # given: three steps; in the median one, [1000, 1200), a GPU allocates and frees, and the CPU
    # does so more often
    path = write(
        tmp_path / "t.json",
        [
            step(0, 0.0, 300.0),
            step(1, 400.0, 100.0),
            step(2, 1000.0, 200.0),
            point(150.0, 512, 2048),
            point(1010.0, 4096, 6144),
            point(1100.0, -2048, 4096),
            point(1250.0, -4096, 0),
            *(point(1000.0 + i, 8, 8 * i, device=-1, kind=0) for i in range(1, 9)),
            point(1020.0, 1, 1, kind=7),
        ],
    )

    assert curve_of(path) == MemoryCurve(
        device="cuda:0",
        measured_in=PassName.STACK,
        step="ProfilerStep#2",
        steps=3,
        duration_us=200.0,
        events=2,
        before_bytes=2048,
        peak_bytes=6144,
        after_bytes=4096,
        at_us=(10.0, 100.0),
        allocated_bytes=(6144, 4096),
    )


def test_what_was_held_before_the_first_event_follows_from_it(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json", [step(0, 0.0, 100.0), point(10.0, -100, 900, device=-1, kind=0)]
    )

    found = curve_of(path)

    assert isinstance(found, MemoryCurve)
    assert (found.device, found.before_bytes, found.peak_bytes, found.after_bytes) == (
        "cpu",
        1000,
        1000,
        900,
    )


def test_of_many_events_the_peak_and_the_least_of_each_stretch_are_kept(tmp_path: Path) -> None:
    held, points = 0, []
    for i in range(5000):
        held += (change := 1000 if i % 2 == 0 else -900)
        points.append(point(0.01 * i, change, held))
    points[2501]["args"]["Total Allocated"] = 10**9

    found = curve_of(write(tmp_path / "t.json", [step(0, 0.0, 51.0), *points]))

    assert isinstance(found, MemoryCurve)
    assert len(found.at_us) <= 240
    assert found.events == 5000
    assert found.peak_bytes == max(found.allocated_bytes) == 10**9
    assert list(found.at_us) == sorted(found.at_us)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([point(1.0, 8, 8)], "the trace marks no steps"),
        (
            [step(0, 0.0, 5.0), point(9.0, 8, 8)],
            "nothing was allocated or freed in its median traced step",
        ),
    ],
)
def test_without_a_curve_the_reason_is_said(
    tmp_path: Path, events: list[dict[str, Any]], reason: str
) -> None:
    assert curve_of(write(tmp_path / "t.json", events)) == Skipped(reason=reason)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"Total Allocated": "many"},
        {"Total Allocated": -1},
        {"Total Allocated": 2**80},
        {"Bytes": None},
        {"Device Id": []},
    ],
)
def test_numbers_that_are_none_are_left_out_and_cost_no_other_event(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    broken = point(5.0, 8, 8)
    broken["args"] = {**broken["args"], **arguments} if arguments else {}

    trace = kineto.read(write(tmp_path / "t.json", [step(0, 0.0, 9.0), broken, point(6.0, 8, 16)]))

    assert trace.columns.memory.allocated_bytes.tolist() == [16]
    assert len(trace.columns) == 1


def test_torch_records_allocations_where_it_is_asked_to(tmp_path: Path) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    # given: each step makes 1 MiB, then another, and keeps none
    window = schedule(wait=0, warmup=1, active=3, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU], schedule=window, profile_memory=True
    ) as profiler:
        for _ in range(4):
            one = torch.ones(512, 512)
            two = one + one
            del one, two
            profiler.step()
    profiler.export_chrome_trace(str(tmp_path / "t.json"))

    found = curve_of(tmp_path / "t.json")

    assert isinstance(found, MemoryCurve)
    assert (found.device, found.steps) == ("cpu", 3)
    assert found.peak_bytes - found.before_bytes == 2 * 2**20
    assert found.after_bytes == found.before_bytes
