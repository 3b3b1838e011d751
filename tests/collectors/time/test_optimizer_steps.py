"""Which optimizers are told to be fused."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.collectors.time.optimizer_steps import UNFUSED_OPTIMIZER, collect, diagnose
from kgprof.model import Finding, FindingCost, Saving, Skipped
from kgprof.reading.evidence import Evidence
from tests.collectors.written_device import launched_in, traced
from tests.collectors.written_gpu_time import unfused_optimizer


def test_many_kernels_are_one_finding_with_the_line_to_write() -> None:
    (finding,) = diagnose(collect(Evidence(unfused_optimizer())))

    assert (finding.rule, finding.fix) == (
        UNFUSED_OPTIMIZER.id,
        "torch.optim.AdamW(..., fused=True)",
    )
    assert isinstance(finding.saves, Saving)
    assert round(finding.saves.us_per_step, 6) == 200.0  # 150 of work, 50 of the CPU's


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param("multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>>", id="fused"),
        pytest.param("triton_for_fused_1", id="compiled"),
        # SGD without momentum, and apex.optimizers.FusedAdam
        pytest.param("multi_tensor_apply_kernel<TensorListMetadata<2>, Functor>", id="one pass"),
    ],
)
def test_one_pass_over_the_parameters_is_none(kernel: str) -> None:
    assert diagnose(collect(Evidence(unfused_optimizer(kernel)))) == ()


def test_of_a_step_with_a_closure_nobody_knows_what_is_the_optimizers() -> None:
    # given: a backward pass inside the optimizer's step, as Lightning's closure has
    span = ("user_annotation", "Optimizer.step#Adam.step")
    mark = {"ph": "X", "pid": 1, "cat": "cpu_op"}
    node = {"name": "autograd::engine::evaluate_function: MmBackward0", "ts": 20, "dur": 5.0}
    events = launched_in(span, ("kernel", "a", 100.0), ("kernel", "b", 100.0))

    recording = traced([*events, {**mark, **node, "tid": 2}], step_us=None)

    assert collect(Evidence(recording)) == ()


def test_an_optimizer_that_takes_no_fused_has_no_code() -> None:
    span = ("user_annotation", "Optimizer.step#RAdam.step")

    (finding,) = diagnose(
        collect(Evidence(traced(launched_in(span, ("kernel", "k", 200.0)), step_us=None)))
    )

    assert finding.fix == ""


def test_cpu_time_that_only_the_profiler_saw_bounds_nothing() -> None:
    # given: 20 us of work in a span of 300, and no TIMING
    span = ("user_annotation", "Optimizer.step#AdamW.step")
    events = list(launched_in(span, ("kernel", "k", 20.0), span_us=300.0))
    unseen, timed = (
        diagnose(collect(Evidence(traced(events, step_us=step_us))))[0] for step_us in (None, 900.0)
    )

    assert isinstance(unseen.saves, Skipped)
    assert isinstance(timed.saves, Saving)


def test_cpu_time_under_kgprofs_listeners_is_no_share() -> None:
    # given: 20 us of work in a span of 300 (or 100), in a script
    def said(span_us: float) -> tuple[Finding, ...]:
        span = ("user_annotation", "Optimizer.step#AdamW.step")
        events = launched_in(span, ("kernel", "k", 20.0), span_us=span_us)
        found = collect(Evidence(traced(list(events), step_us=900.0)))
        return diagnose(tuple(msgspec.structs.replace(event, listened=True) for event in found))

    (finding,) = said(300.0)

    assert finding.message == (
        "AdamW.step() is not fused: 4 kernels in 4 steps, mostly CPU time: its share is not "
        "decided, kgprof's listeners make it longer"
    )
    assert isinstance(finding.saves, Skipped)
    assert isinstance(finding.cost, FindingCost)
    assert round(finding.cost.value, 6) == 20.0
    assert said(50.0) == ()
