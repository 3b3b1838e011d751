"""Openings and closings: balanced whatever the events, every event with its whole duration."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgprof.measures.host_stacks import Frame, Nesting, Track, frame_of, nesting
from kgprof.reading import kineto, timeline
from tests.analysis.events import event, step, write


def nested(folder: Path, *events: dict[str, Any]) -> Nesting:
    return nesting(kineto.read(write(folder / "trace.json", events)).columns)


def written(found: Nesting, track: Track) -> list[str]:
    """``+name@us`` and ``-name@us``."""
    return [
        f"{'+' if change.opens else '-'}{found.frames[change.frame].name}@{change.at_ns / 1000:g}"
        for change in track.changes
    ]


def test_what_runs_inside_another_opens_after_it_and_closes_before_it(tmp_path: Path) -> None:
    # given: the inner one stands first in the file, and both start and end together
    found = nested(
        tmp_path, event("cpu_op", "aten::mm", 102, 8), event("cpu_op", "aten::linear", 102, 8.5)
    )

    assert [track.name for track in found.tracks] == ["thread 1 of process 1"]
    assert written(found, found.tracks[0]) == [
        "+aten::linear@0",
        "+aten::mm@0",
        "-aten::mm@8",
        "-aten::linear@8.5",
    ]
    assert found.end_ns == 8500


def test_one_after_the_other_closes_before_the_next_opens(tmp_path: Path) -> None:
    found = nested(
        tmp_path,
        event("cpu_op", "b", 5, 5),
        event("cpu_op", "a", 0, 5),
        event("cpu_op", "nothing", 5, 0),
    )

    assert written(found, found.tracks[0]) == [
        "+a@0",
        "-a@5",
        "+b@5",
        "+nothing@5",
        "-nothing@5",
        "-b@10",
    ]


def test_what_ends_after_the_one_it_began_in_keeps_its_whole_duration(tmp_path: Path) -> None:
    # given: two that began inside ``a``, of which one goes on beyond it
    found = nested(
        tmp_path,
        event("cpu_op", "a", 0, 10),
        event("cpu_op", "b", 4, 10),
        event("cpu_op", "c", 5, 2),
    )

    assert written(found, found.tracks[0]) == [
        *("+a@0", "+b@4", "+c@5", "-c@7", "-b@10", "-a@10"),
        *("+b@10", "-b@14"),
    ]


def test_the_thread_that_takes_the_steps_comes_first_and_streams_last(tmp_path: Path) -> None:
    found = nested(
        tmp_path,
        event("kernel", "gemm", 20, 5, stream=7),
        event("kernel", "copy", 21, 5, stream=20),
        event("cpu_op", "aten::mm", 0, 5, thread=1),
        event("cpu_op", "aten::mm", 0, 5, thread=10),
        {**step(0, 0, 30), "tid": 2},
        event("Trace", "PyTorch Profiler (0)", 0, 40, thread=3),  # the recorder's own row
    )

    assert [track.name for track in found.tracks] == [
        "thread 2 of process 1 (takes the steps)",
        "thread 1 of process 1",
        "thread 10 of process 1",
        "stream 7 of device 1",
        "stream 20 of device 1",
    ]


def test_python_functions_have_file_and_line(tmp_path: Path) -> None:
    found = nested(
        tmp_path,
        event("python_function", "/src/my (old)/model.py(12): forward", 0, 9),
        event("python_function", "<built-in method linear of type object at 0x7f>", 1, 2),
    )

    assert set(found.frames) == {
        Frame(name="forward", file="/src/my (old)/model.py", line=12),
        Frame(name="<built-in method linear of type object at 0x7f>"),
    }


def test_a_trace_of_neither_host_nor_device_is_empty(tmp_path: Path) -> None:
    found = nested(tmp_path, event("Trace", "PyTorch Profiler (0)", 0, 40))

    assert (found.tracks, found.end_ns) == ((), 0)


intervals = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 20), st.integers(0, 3)), min_size=1, max_size=30
)


@given(intervals)
def test_whatever_overlaps_is_balanced_and_adds_up(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, int, int]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "nesting.json"
    columns = kineto.read(
        write(path, [event("cpu_op", f"op{name}", start, long) for start, long, name in drawn])
    ).columns
    found = nesting(columns)
    (track,) = found.tracks

    # when: the changes are played
    own, whole = Counter[str](), Counter[str]()
    open_now: list[tuple[int, int]] = []
    before = 0
    for change in track.changes:
        assert change.at_ns >= before
        if open_now:
            own[found.frames[open_now[-1][0]].name] += change.at_ns - before
        before = change.at_ns
        if change.opens:
            open_now.append((change.frame, change.at_ns))
        else:
            frame, since = open_now.pop()
            assert frame == change.frame
            whole[found.frames[frame].name] += change.at_ns - since

    # then: every event has its duration, and every moment belongs to the one that timeline gives it
    # to
    assert open_now == []
    expected, expected_own = Counter[str](), Counter[str]()
    selves = timeline.self_times_ns(np.stack([columns.start_ns, columns.end_ns], axis=1)).tolist()
    for (_, long, name), self_ns in zip(drawn, selves, strict=True):
        expected[f"op{name}"] += long * 1000
        expected_own[f"op{name}"] += self_ns
    assert +whole == +expected
    assert +own == +expected_own


def test_a_number_that_no_file_has_lines_for_is_no_line() -> None:
    """Of five thousand digits Python makes no number."""
    assert frame_of("a.py(12): f") == Frame(name="f", file="a.py", line=12)
    for digits in (10, 5000):
        name = f"a.py({'9' * digits}): f"
        assert frame_of(name) == Frame(name=name)
