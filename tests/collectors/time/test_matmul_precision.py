"""Which matmuls are said to run on the slow units, and what that bounds."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.collectors.time.matmul_precision import (
    FLOAT32_ON_CUDA_CORES,
    MATH_ATTENTION,
    NO_AUTOCAST,
    collect,
    diagnose,
)
from kgprof.model import Ceilings, CeilingSamples, Finding, Level, Recording, Saving, Skipped
from kgprof.reading.evidence import Evidence
from tests.collectors.written_gpu_time import (
    BF16,
    SIMT,
    TF32,
    exact_float32,
    math_attention,
    of_kernels,
    only_tf32,
)

EXACT, MATH, HALF = FLOAT32_ON_CUDA_CORES.id, MATH_ATTENTION.id, NO_AUTOCAST.id


def found(recording: Recording) -> dict[str, Finding]:
    return {finding.rule: finding for finding in diagnose(collect(Evidence(recording)))}


def bound_us(finding: Finding) -> float:
    assert isinstance(finding.saves, Saving)
    return round(finding.saves.us_per_step, 6)


def test_float32_on_cuda_cores_saves_at_most_its_time() -> None:
    (finding,) = found(exact_float32()).values()

    assert (finding.rule, finding.level) == (EXACT, Level.WARNING)
    assert finding.fix == 'torch.set_float32_matmul_precision("high")'
    assert bound_us(finding) == 400.0


def test_the_rates_of_large_matmuls_bound_no_others() -> None:
    rates = {"float32": 50e12, "tf32": 400e12}
    ceilings = Ceilings(
        device_name="",
        measured=tuple(
            CeilingSamples(
                operation="matmul", dtype=dtype, unit="FLOP/s", per_s=(rate,) * 3, how=""
            )
            for dtype, rate in rates.items()
        ),
    )

    (finding,) = found(msgspec.structs.replace(exact_float32(), ceilings=ceilings)).values()

    assert bound_us(finding) == 400.0  # other sizes gain otherwise


def test_attention_in_the_math_backend_is_one_finding() -> None:
    (finding,) = found(math_attention()).values()

    assert (finding.rule, bound_us(finding)) == (MATH, 400.0)


@pytest.mark.parametrize("operator", ["aten::cudnn_convolution", "aten::_cudnn_rnn_backward"])
def test_what_cudnn_runs_is_no_matmul_that_the_setting_reaches(operator: str) -> None:
    assert found(of_kernels((SIMT, 400.0), span=("cpu_op", operator))) == {}


def test_only_tf32_is_a_note() -> None:
    (finding,) = found(only_tf32()).values()

    assert (finding.rule, finding.level) == (HALF, Level.NOTE)


@pytest.mark.parametrize(
    ("kernels", "step_us", "rules"),
    [
        pytest.param([(TF32, 300.0), (BF16, 100.0)], 500.0, set(), id="bfloat16 is used"),
        pytest.param([(SIMT, 20.0), (BF16, 400.0)], 500.0, set(), id="a twentieth is not worth it"),
        pytest.param([(SIMT, 26.0), (BF16, 400.0)], 500.0, {EXACT}, id="and a little more is"),
        pytest.param([(SIMT, 300.0), (TF32, 100.0)], 500.0, {HALF}, id="TF32 is allowed already"),
        pytest.param([(SIMT, 400.0)], 2_000.0, set(), id="the GPU waits for the host anyway"),
        pytest.param(
            [("sm80_xmma_gemm_cf32cf32_f32f32_cf32_nt_n_ffma_execute", 400.0)],
            500.0,
            set(),
            id="complex",
        ),
        pytest.param(
            [("void sgemm_largek_lds64<true, false, 5>", 400.0)], 500.0, {EXACT}, id="a small batch"
        ),
        pytest.param([("ampere_sgemm_128x64_tn", 400.0)], 500.0, {EXACT}, id="older cuBLAS"),
        pytest.param(
            [("ampere_fp16_s16816gemm_fp16_128x64", 400.0)], 500.0, set(), id="half precision"
        ),
        pytest.param(
            [("cutlass_tensorop_s1688dgrad_optimized_tf32_256x64", 400.0)],
            500.0,
            {HALF},
            id="convolution",
        ),
        pytest.param(
            [("_ZN7cutlass6KernelINS_4conv23ImplicitGemmConvolutionINS_10tfloat32_tE", 400.0)],
            500.0,
            {HALF},
            id="mangled convolution",
        ),
    ],
)
def test_which_kernels_count(
    kernels: list[tuple[str, float]], step_us: float, rules: set[str]
) -> None:
    assert set(found(of_kernels(*kernels, step_us=step_us))) == rules


def test_a_cpu_run_has_none() -> None:
    recording = exact_float32()
    plan = msgspec.structs.replace(recording.header.plan, device="cpu")
    header = msgspec.structs.replace(recording.header, plan=plan)

    assert collect(Evidence(msgspec.structs.replace(recording, header=header))) == ()


def test_the_attentions_backward_pass_is_not_bounded() -> None:
    from tests.collectors.written_device import launched_in, traced

    span = ("cpu_op", "aten::_scaled_dot_product_attention_math")
    backward = {
        "ph": "X",
        "pid": 1,
        "tid": 2,
        "cat": "cpu_op",
        "name": "autograd::engine::evaluate_function: X",
    }
    events = [*launched_in(span, ("kernel", "k", 400.0)), {**backward, "ts": 500.0, "dur": 5.0}]

    (finding,) = found(traced(events, step_us=500.0)).values()

    assert isinstance(finding.saves, Skipped)


def test_no_share_of_a_step_is_more_than_all_of_it() -> None:
    # given: traced steps with 400 us of work, in a run whose usual step takes 300
    finding = found(of_kernels((SIMT, 400.0), step_us=300.0))[EXACT]

    assert finding.message.endswith(", 100 % of the traced steps' GPU work")


def test_a_share_of_the_timed_step_is_one_of_the_step() -> None:
    assert found(exact_float32())[EXACT].message.endswith(", 80 % of the step")


@pytest.mark.parametrize(("step_us", "is_known"), [(500.0, True), (600.0, False)])
def test_autocast_saves_nothing_for_sure_where_the_gpu_is_often_idle(
    step_us: float, is_known: bool
) -> None:
    # given: 400 us of work in the step
    (finding,) = diagnose(collect(Evidence(of_kernels((TF32, 400.0), step_us=step_us))))

    assert finding.rule == HALF
    assert isinstance(finding.saves, Saving) is is_known
