"""The thread that looks where the CPU is."""

from __future__ import annotations

import time
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import torch

from kgprof.model import HostLines, Options, TracePass
from kgprof.reading.project import ProjectFiles
from kgprof.record.listeners.line_samples import LineSamples
from kgprof.record.passes.steps import Kind
from kgprof.record.passes.trace_window import BARE_STEPS, TraceWindow

HERE = ProjectFiles(libraries=(str(Path(torch.__file__).parent),), own=(__file__,))


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(range(50))


def by_function(found: HostLines) -> dict[str, float]:
    sums: dict[str, float] = {}
    for row in found.rows:
        sums[row.at.function] = sums.get(row.at.function, 0.0) + row.us / 1e6
    return sums


def test_python_that_holds_the_lock_counts_by_its_time_and_not_by_its_samples() -> None:
    samples = LineSamples(HERE)
    began = time.perf_counter()
    samples.start()
    spin(0.4)
    time.sleep(0.2)  # lets go of the lock: sampled three times as often
    found = samples.stop()
    took_s = time.perf_counter() - began

    assert by_function(found)["spin"] >= 0.25
    assert sum(row.us for row in found.rows) <= 1e6 * took_s


def test_code_that_cannot_be_hashed_is_sampled() -> None:
    """torch compiles slices into constants, which Python before 3.12 cannot hash."""
    code = spin.__code__
    constants = (*code.co_consts, slice(1, 2))
    sliced = FunctionType(code.replace(co_consts=constants), globals())
    samples = LineSamples(HERE)
    samples.start()
    sliced(0.1)

    assert by_function(samples.stop())["spin"] >= 0.05


def test_a_trace_window_samples_the_lines_of_its_steps(tmp_path: Path) -> None:
    steps: Any = SimpleNamespace(chosen=Kind.OPTIMIZER, counts={Kind.OPTIMIZER: 0}, current=0)
    options = Options(workload="train.py", steps=3, warmup=0)
    cpu, path = torch.device("cpu"), tmp_path / "trace.json.gz"
    window = TraceWindow(steps, cpu, options, path, project=HERE)

    for number in range(BARE_STEPS + 6):
        steps.counts[Kind.OPTIMIZER] = steps.current = number + 1
        window.marked(Kind.OPTIMIZER)
        spin(0.02)

    assert isinstance(window.result, TracePass)
    assert window.result.host_lines is not None
    assert by_function(window.result.host_lines)["spin"] >= 0.02


def test_what_torch_does_is_no_line_of_the_program() -> None:
    def loss(model: torch.nn.Module, rows: torch.Tensor) -> None:
        for _ in range(20):
            model(rows).sum().backward()

    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4)))
    rows = torch.randn(512, 256)
    samples = LineSamples(HERE)
    began = time.perf_counter()
    samples.start()
    loss(model, rows)
    found = samples.stop()
    took_s = time.perf_counter() - began

    # the bare call of .sum() may be seen in the line; the modules and the backward are not
    own = by_function(found).get(
        f"{test_what_torch_does_is_no_line_of_the_program.__name__}.<locals>.loss", 0.0
    )
    assert own <= 0.5 * took_s
