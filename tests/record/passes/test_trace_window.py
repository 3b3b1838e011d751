"""The window of TRACE where torch.profiler, or the GPU under it, fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kgprof.model import Options, Skipped
from kgprof.record.passes import timing
from kgprof.record.passes.steps import Kind
from kgprof.record.passes.trace_window import BARE_STEPS, TraceWindow


@pytest.mark.parametrize("fails_at", ["start", "step", "stop"])
def test_a_gpu_that_fails_costs_the_trace_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    """A program's own fault on the GPU is raised wherever the GPU is waited for next."""
    steps: Any = SimpleNamespace(chosen=Kind.OPTIMIZER, counts={Kind.OPTIMIZER: 0}, current=0)
    options = Options(workload="train.py", steps=3, warmup=0)
    window = TraceWindow(steps, torch.device("cpu"), options, tmp_path / "trace.json.gz")

    def fails(*_: object) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered\nFor debugging ...")

    if fails_at == "start":
        monkeypatch.setattr(timing, "synchronize", fails)
    else:
        monkeypatch.setattr(torch.profiler.profile, fails_at, fails)
    for number in range(BARE_STEPS + 6):
        steps.counts[Kind.OPTIMIZER] = steps.current = number + 1
        window.marked(Kind.OPTIMIZER)
    window.close()

    assert window.result == Skipped(
        reason="torch.profiler could not be used: "
        "RuntimeError: CUDA error: device-side assert triggered"
    )
