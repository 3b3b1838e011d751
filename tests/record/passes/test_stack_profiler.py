"""STACK holds Python's stacks over a few steps, and says why where it holds fewer or none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from kgprof.model import HostPass, HostRow, Options, Skipped, TracePass
from kgprof.record.passes import stack_profiler
from kgprof.record.passes.stack_profiler import MOST_CALLS, NO_STACKS, STEPS, calls_of, stack_pass
from kgprof.record.passes.torch_profiler import profiled
from tests.record.sessions import Stepping

CPU = torch.device("cpu")


def a_function_of_a_known_name() -> torch.Tensor:
    return torch.ones(8) + 1


def recorded(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as trace:
        found: list[dict[str, Any]] = json.load(trace)["traceEvents"]
        return found


def test_a_few_steps_are_kept_with_the_functions_that_ran_in_them(tmp_path: Path) -> None:
    path = tmp_path / "stack_trace.json.gz"
    session = Stepping(a_function_of_a_known_name)

    found = stack_pass(session, CPU, Options(steps=20, warmup=3), path)

    assert isinstance(found, TracePass)
    assert (session.steps, len(found.step_us)) == (STEPS + 1, STEPS)
    assert (found.trace_file, found.cut) == (path.name, "")
    calls = [
        event
        for event in recorded(path)
        if event.get("name", "").endswith(": a_function_of_a_known_name")
    ]
    assert len(calls) == STEPS
    assert {call["cat"] for call in calls} == {"python_function"}
    assert list(tmp_path.iterdir()) == [path]


def test_where_they_take_too_much_room_fewer_are_kept_and_it_says_so(tmp_path: Path) -> None:
    path = tmp_path / "stack_trace.json.gz"
    session = Stepping(a_function_of_a_known_name)
    _, size = profiled_into(path, session, steps=4)

    found = stack_pass(session, CPU, Options(steps=4, warmup=1), path, most_bytes=size * 3 // 4)

    assert isinstance(found, TracePass)
    assert 1 <= len(found.step_us) < 4
    assert path.stat().st_size <= size * 3 // 4
    assert found.cut.startswith("the trace of ")
    assert found.cut.endswith("so fewer of the 4 steps were kept")


def profiled_into(path: Path, session: Stepping, *, steps: int) -> tuple[int, int]:
    profiler, step_us = profiled(session, CPU, warmup=1, steps=steps, with_stack=True)
    return len(step_us), stack_profiler.export(profiler, path)


def test_a_single_step_that_is_too_large_is_left_out_with_its_size(tmp_path: Path) -> None:
    found = stack_pass(
        Stepping(a_function_of_a_known_name),
        CPU,
        Options(steps=1),
        tmp_path / "stack_trace.json.gz",
        most_bytes=10,
    )

    assert isinstance(found, Skipped)
    assert found.reason.startswith("the trace of 1 step takes ")
    assert found.reason.endswith(" bytes, more than 10")
    assert list(tmp_path.iterdir()) == []


def test_a_step_of_too_many_calls_is_not_tried(tmp_path: Path) -> None:
    session = Stepping(a_function_of_a_known_name)

    found = stack_pass(
        session, CPU, Options(), tmp_path / "stack_trace.json.gz", calls_a_step=MOST_CALLS + 1
    )

    assert session.steps == 0
    assert found == Skipped(
        reason=(
            "1 step makes 2,000,001 calls of functions, more than 2,000,000, and each is one event"
        )
    )


def test_of_many_calls_as_many_steps_are_taken_as_there_may_be(tmp_path: Path) -> None:
    session = Stepping(a_function_of_a_known_name)

    found = stack_pass(
        session, CPU, Options(), tmp_path / "stack_trace.json.gz", calls_a_step=MOST_CALLS / 2
    )

    assert isinstance(found, TracePass)
    assert len(found.step_us) == 2
    assert found.cut == (
        "5 steps make 5,000,000 calls of functions, more than 2,000,000, so fewer of the 5 steps "
        "were kept"
    )


def test_what_host_counted_is_calls_a_step() -> None:
    def row(calls: int) -> HostRow:
        return HostRow(
            function="f", file="a.py", line=1, calls=calls, self_us=1.0, cumulative_us=1.0
        )

    assert calls_of(HostPass(step_us=(1.0, 1.0), rows=(row(30), row(10)))) == 20.0
    assert calls_of(None) == 0.0


def test_a_torch_that_gives_no_stacks_is_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(*args: Any, with_stack: bool, **kwargs: Any) -> Any:
        return profiled(*args, **kwargs)

    monkeypatch.setattr(stack_profiler, "profiled", without)

    found = stack_pass(
        Stepping(a_function_of_a_known_name),
        CPU,
        Options(steps=1),
        tmp_path / "stack_trace.json.gz",
    )

    assert found == Skipped(reason=NO_STACKS)
    assert list(tmp_path.iterdir()) == []
