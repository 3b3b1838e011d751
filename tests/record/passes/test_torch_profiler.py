"""TRACE holds exactly the steps that were asked for."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from kgprof.model import Options, Skipped, TracePass
from kgprof.record.passes import torch_profiler
from kgprof.record.passes.torch_profiler import trace_pass
from tests.record.sessions import Stepping

CPU = torch.device("cpu")


def events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as trace:
        found: list[dict[str, Any]] = json.load(trace)["traceEvents"]
        return found


def test_the_window_holds_the_steps_and_not_the_warm_up(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    session = Stepping(lambda: torch.ones(8, 8) @ torch.ones(8, 8))

    found = trace_pass(session, CPU, Options(steps=5, warmup=2), path)

    assert session.steps == 7
    assert isinstance(found, TracePass)
    assert found.trace_file == "trace.json.gz"
    assert len(found.step_us) == 5
    recorded = events(path)
    spans = [event for event in recorded if event["name"].startswith("ProfilerStep#")]
    products = [event for event in recorded if event["name"] == "aten::mm"]
    assert (len(spans), len(products)) == (5, 5)
    for span, product in zip(spans, products, strict=True):
        assert (
            span["ts"]
            <= product["ts"]
            <= product["ts"] + product["dur"]
            <= span["ts"] + span["dur"]
        )
    assert list(tmp_path.iterdir()) == [path]


def test_a_workload_may_be_traced_without_warm_up(tmp_path: Path) -> None:
    found = trace_pass(
        Stepping(lambda: torch.ones(2) + 1),
        CPU,
        Options(steps=1, warmup=0),
        tmp_path / "trace.json.gz",
    )

    assert isinstance(found, TracePass)
    spans = [
        event
        for event in events(tmp_path / "trace.json.gz")
        if event["name"].startswith("ProfilerStep#")
    ]
    assert len(spans) == len(found.step_us) == 1


def test_a_trace_that_is_too_large_is_left_out_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_profiler, "TRACE_BYTES", 10)

    found = trace_pass(
        Stepping(lambda: torch.ones(2) + 1), CPU, Options(steps=2), tmp_path / "trace.json.gz"
    )

    assert isinstance(found, Skipped)
    assert found.reason.startswith("the trace of 2 steps takes ")
    assert list(tmp_path.iterdir()) == []


def test_the_profiler_is_off_after_a_step_that_raised(tmp_path: Path) -> None:
    def step() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        trace_pass(Stepping(step), CPU, Options(steps=2), tmp_path / "trace.json.gz")

    assert not torch.autograd.profiler._is_profiler_enabled
    assert list(tmp_path.iterdir()) == []


@pytest.mark.gpu
@pytest.mark.parametrize("warmup", [0, 1, 3])
def test_the_window_holds_the_devices_work_of_its_steps_and_no_other(
    tmp_path: Path, warmup: int
) -> None:
    # given: steps that return at once and keep the device busy for long
    matrix = torch.ones(64 * 2**20, device="cuda")
    path = tmp_path / "trace.json.gz"
    session = Stepping(matrix.sin_)
    session.step()

    trace_pass(session, torch.device("cuda"), Options(steps=4, warmup=warmup), path)

    recorded = events(path)
    spans = [
        e
        for e in recorded
        if e["name"].startswith("ProfilerStep#") and e.get("cat") == "user_annotation"
    ]
    kernels = [event for event in recorded if event.get("cat") == "kernel"]
    assert (len(spans), len(kernels)) == (4, 4)
    assert min(span["ts"] for span in spans) <= min(kernel["ts"] for kernel in kernels)
    end = max(span["ts"] + span["dur"] for span in spans)
    assert max(kernel["ts"] + kernel["dur"] for kernel in kernels) <= end
