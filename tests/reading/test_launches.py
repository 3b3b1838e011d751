"""Delays and depth of the launch queue: by hand, and the depth against a slow count."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgprof.model import LaunchQueue, Skipped
from kgprof.reading import kineto
from kgprof.reading.launches import AFTER_STEPS, launched, queue, waits
from kgprof.reading.timeline import Window, profiler_steps
from tests.analysis.events import event, step, write
from tests.measures.test_idle import kernel, launch


def queue_of(path: Path, end_us: int) -> LaunchQueue | Skipped:
    columns = kineto.read(path).columns
    return queue(columns, launched(columns), Window(start_ns=0, end_ns=end_us * 1000))


def test_a_queue_by_hand(tmp_path: Path) -> None:
    # given: a kernel 5 us after its launch returned; a graph of two kernels, launched in [20, 30),
    # that begin at 25 and 60; and a kernel that nobody launched
    path = write(
        tmp_path / "t.json",
        [
            launch(0.0, 10.0, 1),
            kernel(15.0, 5.0, 1),
            launch(20.0, 10.0, 2, name="cudaGraphLaunch"),
            kernel(25.0, 10.0, 2),
            kernel(60.0, 10.0, 2),
            kernel(80.0, 10.0, 9),
        ],
    )

    found = queue_of(path, 100)

    # then: one waits in [0, 15), two in [20, 25) and one in [25, 60): 15 + 10 + 35 of 100 us
    assert found == LaunchQueue(
        calls=2,
        median_us=2.5,
        p10_us=0.5,
        p90_us=4.5,
        maximum_us=5.0,
        before_return=1,
        mean_depth=0.6,
        maximum_depth=2,
        empty_share=0.45,
    )


def test_without_a_known_call_the_reason_is_said(tmp_path: Path) -> None:
    found = queue_of(write(tmp_path / "t.json", [kernel(80.0, 10.0, 9)]), 100)

    assert found == Skipped(reason="the trace has no call that launched GPU work")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(st.lists(st.tuples(st.integers(0, 90), st.integers(-5, 40)), min_size=1, max_size=20))
def test_depth_against_a_count_of_every_microsecond(
    tmp_path: Path, made: list[tuple[int, int]]
) -> None:
    # given: launches and, so long after each, the start of its kernel; clocks may disagree by some
    # microseconds
    events = []
    for number, (asked, after) in enumerate(made):
        events += [launch(asked, 1.0, number), kernel(asked + after, 1.0, number)]

    found = queue_of(write(tmp_path / "t.json", events), 100)

    assert isinstance(found, LaunchQueue)
    depths = [sum(asked <= us < asked + after for asked, after in made) for us in range(100)]
    assert found.mean_depth == pytest.approx(sum(depths) / 100)
    assert found.empty_share == pytest.approx(depths.count(0) / 100)
    assert found.maximum_depth >= max(depths)


def test_what_a_program_launched_after_its_last_whole_step_is_left_out(tmp_path: Path) -> None:
    # given: a step in which a kernel was launched that outlives it, and one that the program
    # launched before it ended
    path = write(
        tmp_path / "t.json",
        [
            step(0, 0.0, 10.0),
            launch(1.0, 2.0, 1),
            kernel(5.0, 20.0, 1),
            event("user_annotation", AFTER_STEPS, 10.0, 90.0),
            launch(12.0, 2.0, 2),
            kernel(30.0, 40.0, 2),
            kernel(80.0, 1.0, 9),  # nobody knows who launched it
        ],
    )
    columns = kineto.read(path).columns

    found = launched(columns)

    assert columns.start_ns[found.events].tolist() == [5_000, 80_000]
    assert columns.start_ns[found.calls[:1]].tolist() == [1_000]


def test_the_wait_with_which_torch_begins_a_capture_is_none_of_the_programs(tmp_path: Path) -> None:
    calls = (
        "cudaDeviceSynchronize",
        "cudaDeviceSynchronize",
        "cudaLaunchKernel",
        "cudaStreamBeginCapture",
    )
    after = ("cudaStreamEndCapture", "cudaStreamSynchronize")
    events = [
        event("cuda_runtime", name, 10 + 5 * number, 2)
        for number, name in enumerate((*calls, *after))
    ]
    columns = kineto.read(write(tmp_path / "t.json", [step(0, 0, 100), *events])).columns

    # its own before the capture, and the one after it
    assert waits(columns, profiler_steps(columns)).sum() == 2
