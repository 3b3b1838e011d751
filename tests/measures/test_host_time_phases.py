"""Each moment of a traced training step, and each kernel, belongs to one phase."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kgprof.measures.host_time import training_phases
from kgprof.model import Recording, Skipped, TrainingPhase, TrainingPhases
from kgprof.reading.evidence import Evidence
from tests.collectors.written_device import STEPS, TRACED_US, launched_in, traced

DATA, FORWARD, BACKWARD, OPTIMIZER, OTHER = TrainingPhase
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
ACCUMULATES = "torch::autograd::AccumulateGrad"
EVALUATES = f"autograd::engine::evaluate_function: {ACCUMULATES}"
COPY = "Memcpy HtoD (Pageable -> Device)"
# category, name, thread, start, duration, and what it launches: (category, name, microseconds)
STEP: tuple[tuple[str, str, int, float, float, tuple[str, str, float] | None], ...] = (
    ("user_annotation", LOADER, 1, 0.0, 100.0, None),
    ("cpu_op", "aten::copy_", 1, 100.0, 50.0, ("gpu_memcpy", COPY, 30.0)),
    ("cpu_op", "aten::linear", 1, 200.0, 100.0, ("kernel", "forward", 60.0)),
    (
        "user_annotation",
        "## Call CompiledFxGraph abc ##",
        1,
        300.0,
        20.0,
        ("kernel", "triton_poi_0", 5.0),
    ),
    (
        "cpu_op",
        "autograd::engine::evaluate_function: AddmmBackward0",
        2,
        400.0,
        200.0,
        ("kernel", "backward", 120.0),
    ),
    ("cpu_op", "aten::mm", 2, 410.0, 20.0, None),
    ("user_annotation", "Optimizer.step#AdamW.step", 1, 700.0, 90.0, ("kernel", "adam", 40.0)),
    ("cpu_op", "aten::_fused_adamw_", 1, 710.0, 50.0, None),
    ("user_annotation", "Optimizer.zero_grad#AdamW.zero_grad", 1, 800.0, 10.0, None),
)


def written(step: tuple[Any, ...] = STEP) -> Recording:
    def events() -> Iterator[dict[str, Any]]:
        for number in range(STEPS):
            start = number * TRACED_US
            event = {"ph": "X", "pid": 1}
            marked = {"cat": "user_annotation", "name": f"ProfilerStep#{number}", "tid": 1}
            yield {**event, **marked, "ts": start, "dur": TRACED_US}
            for place, (category, name, thread, at, us, launches) in enumerate(step):
                span = {**event, "tid": thread}
                yield {**span, "cat": category, "name": name, "ts": start + at, "dur": us}
                if launches is not None:
                    linked = {"args": {"correlation": 100 * number + place + 1, "stream": 7}}
                    call = {
                        "cat": "cuda_runtime",
                        "name": "cudaLaunchKernel",
                        "ts": start + at + 1,
                        "dur": 1.0,
                    }
                    yield {**span, **linked, **call}
                    kernel, kernel_name, kernel_us = launches
                    made = {
                        "cat": kernel,
                        "name": kernel_name,
                        "ts": start + at + 5,
                        "dur": kernel_us,
                    }
                    yield {**event, **linked, "tid": 7, **made}

    return traced(events(), step_us=None)


def phases(recording: Recording) -> TrainingPhases | Skipped:
    (run,) = Evidence(recording).runs
    return training_phases(run)


def test_every_moment_and_every_kernel_has_one_phase() -> None:
    found = phases(written())

    assert isinstance(found, TrainingPhases)
    assert found.steps == STEPS
    assert {part.phase: (part.host_us, part.device_us) for part in found.parts} == {
        DATA: (100.0, 30.0),
        FORWARD: (170.0, 65.0),
        BACKWARD: (200.0, 120.0),
        OPTIMIZER: (100.0, 40.0),
        OTHER: (TRACED_US - 570.0, Skipped(reason="work launched by no span counts as forward")),
    }


def test_without_a_gpu_the_host_has_its_phases_all_the_same() -> None:
    found = phases(written(tuple((*one[:5], None) for one in STEP)))

    assert isinstance(found, TrainingPhases)
    assert all(isinstance(part.device_us, Skipped) for part in found.parts)
    assert sum(part.host_us for part in found.parts) == TRACED_US


@pytest.mark.parametrize("name", ["aten::mm", "enumerate(DataLoader)#X.__next__"])
def test_what_trains_nothing_has_no_phases(name: str) -> None:
    recording = traced(launched_in(("cpu_op", name), ("kernel", "k", 5.0)), step_us=None)

    assert isinstance(phases(recording), Skipped)


@pytest.mark.parametrize("thread", [1, 2])
def test_a_closures_backward_is_not_the_optimizers_time(thread: int) -> None:
    stepping = ("user_annotation", "Optimizer.step#LBFGS.step", 1, 100.0, 400.0, None)
    backward = ("cpu_op", EVALUATES, thread, 200.0, 50.0, None)

    assert isinstance(phases(written((stepping, backward))), Skipped)


def test_a_compiled_optimizers_step_is_not_taken_for_a_forward_pass() -> None:
    zeroed = ("user_annotation", "Optimizer.zero_grad#Adam.zero_grad", 1, 100.0, 10.0, None)
    backward = ("cpu_op", EVALUATES, 1, 200.0, 50.0, None)
    compiled = ("user_annotation", "Torch-Compiled Region: 0/0", 1, 300.0, 50.0, None)

    assert isinstance(phases(written((zeroed, backward, compiled))), Skipped)


def test_compiling_is_no_phase_of_a_step() -> None:
    compiling = ("cpu_op", "_compile.compile_inner (dynamo_timed)", 1, 200.0, 90.0, None)

    assert phases(written((compiling, *STEP))) == Skipped(
        "torch compiled, or recorded a CUDA graph, in a traced step"
    )


@pytest.mark.parametrize("thread", [1, 2])
@pytest.mark.parametrize("optimizers", [1, 2])
@pytest.mark.parametrize("passes", [1, 2, 5])
def test_backward_passes_before_one_optimizer_step_are_gradient_accumulation(
    passes: int, optimizers: int, thread: int
) -> None:
    """Of two optimizers in a step nobody knows whose gradients a pass is for; a recomputed forward
    pass is none."""
    step: list[tuple[Any, ...]] = []
    for number in range(passes):
        at = 100.0 * number
        step.append(("cpu_op", "aten::linear", 1, at, 20.0, None))
        # autograd.grad hands the gradient out
        step.append(("cpu_op", EVALUATES, thread, at + 22, 3.0, None))
        step.append(("cpu_op", "aten::linear", 1, at + 26, 3.0, None))
        for node in range(3):
            step.append(("cpu_op", EVALUATES, thread, at + 30 + 20 * node, 18.0, None))
            step.append(("cpu_op", ACCUMULATES, thread, at + 31 + 20 * node, 8.0, None))
            step.append(("cpu_op", "aten::linear", thread, at + 32 + 20 * node, 5.0, None))
    for number in range(optimizers):
        step.append(
            ("user_annotation", "Optimizer.step#SGD.step", 1, 700.0 + 50 * number, 40.0, None)
        )
        step.append(("cpu_op", "aten::add_", 1, 710.0 + 50 * number, 5.0, None))

    found = phases(written(tuple(step)))

    assert isinstance(found, TrainingPhases)
    assert found.backward_passes == (passes if optimizers == 1 else 1)
