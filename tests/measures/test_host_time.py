"""What the host did in the steps: by hand, and as a property the parts add up to the step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgprof.measures.host_time import UNEXPLAINED, host_time
from kgprof.model import HostTime, Skipped, StepPart
from kgprof.reading import kineto
from kgprof.reading.launches import launched
from tests.analysis.events import event, step, write
from tests.measures.test_idle import kernel, launch


def host_of(path: Path) -> HostTime | Skipped:
    columns = kineto.read(path).columns
    return host_time(columns, launched(columns))


def part(name: str, first: float, second: float, calls: float | None) -> StepPart:
    """Of two steps."""
    mean = (first + second) / 2
    return StepPart(
        name=name,
        mean_us=mean,
        median_us=mean,
        minimum_us=min(first, second),
        maximum_us=max(first, second),
        calls=calls,
    )


def test_two_steps_by_hand(tmp_path: Path) -> None:
    # given: a compiled call in step 0, only a span and Python in step 1, and a second thread that
    # runs an operator
    path = write(
        tmp_path / "t.json",
        [
            step(0, 0.0, 200.0),
            event("cpu_op", "TorchDynamo Cache Lookup", 10.0, 15.0),
            event("cpu_op", "Torch-Compiled Region: 0/0", 30.0, 120.0),
            event("cpu_op", "Pregraph bytecode", 35.0, 2.0),
            event("cpu_op", "AOTDispatcher Runtime Wrapper Prologue", 40.0, 5.0),
            event("cpu_op", "## Call CompiledFxGraph abc ##", 50.0, 90.0),
            event("cpu_op", "triton_poi_fused_add_0", 55.0, 20.0),
            launch(60.0, 10.0, 1, name="cuLaunchKernel"),
            kernel(75.0, 5.0, 1),
            event("cpu_op", "aten::mm", 80.0, 30.0),
            event("cuda_runtime", "cudaFuncGetAttributes", 85.0, 4.0),
            event("cuda_runtime", "cudaStreamSynchronize", 160.0, 20.0),
            step(1, 200.0, 100.0),
            event("user_annotation", "forward", 210.0, 30.0),
            event("user_annotation", "kgprof: sync", 290.0, 10.0),
            event("cpu_op", "aten::add", 195.0, 25.0, thread=2),
        ],
    )

    found = host_of(path)

    assert found == HostTime(
        steps=2,
        mean_us=150.0,
        parts=(
            part("Dynamo cache lookup (guards)", 15.0, 0.0, 0.5),
            part("prologue", 7.0, 0.0, 1.0),
            part("wrapper of the compiled code", 63.0, 0.0, 1.0),
            part("generated kernels", 10.0, 0.0, 0.5),
            part("operators", 26.0, 0.0, 0.5),
            part("launch calls", 10.0, 0.0, 0.5),
            part("GPU syncs", 20.0, 0.0, 0.5),
            part("other CUDA calls", 4.0, 0.0, 0.5),
            part("user spans", 0.0, 30.0, 0.5),
            part("kgprof overhead", 0.0, 10.0, 0.5),
            part(UNEXPLAINED, 45.0, 60.0, None),
        ),
        other_threads_us=7.5,  # [195, 210) of two steps; in [210, 220) this thread was in a span
    )


def test_without_steps_the_reason_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [event("cpu_op", "aten::add", 0.0, 5.0)])

    assert host_of(path) == Skipped(
        reason="the trace marks no steps, or torch compiled or recorded a CUDA graph in each"
    )


names = st.sampled_from(
    [
        "aten::add",
        "TorchDynamo Cache Lookup",
        "Torch-Compiled Region: 0/0",
        "triton_poi_fused_add_0",
        "\udc80<b>",
        "",
    ]
)
spans = st.tuples(names, st.integers(-50, 900), st.integers(0, 300), st.integers(1, 2))


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(st.lists(spans, max_size=40), st.integers(1, 8))
def test_the_parts_add_up_to_the_step(
    tmp_path: Path, made: list[tuple[Any, ...]], steps: int
) -> None:
    marks = [step(number, 110.0 * number, 100.0) for number in range(steps)]
    events = [
        event("cpu_op", name, start, length, thread=thread) for name, start, length, thread in made
    ]

    found = host_of(write(tmp_path / "t.json", [*events, *marks]))

    assert isinstance(found, HostTime)
    assert found.mean_us == 100.0
    assert sum(one.mean_us for one in found.parts) == pytest.approx(100.0, rel=1e-9)
    assert found.parts[-1].name == UNEXPLAINED
    assert 0 <= found.other_threads_us <= found.parts[-1].mean_us + 1e-9
