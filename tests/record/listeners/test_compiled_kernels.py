"""What is read off a module of generated code, and off a real one on a GPU."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest
import torch

from kgprof.model import Skipped
from kgprof.model.compile_records import CompiledKernel, CompiledKernels
from kgprof.record.listeners.compiled_kernels import compiled_kernels, kernels_of


def tuned(name: str, *launchers: object) -> SimpleNamespace:
    return SimpleNamespace(inductor_meta={"kernel_name": name}, launchers=list(launchers))


def launcher(**figures: object) -> SimpleNamespace:
    return SimpleNamespace(config=SimpleNamespace(num_warps=4, num_stages=2), **figures)


def test_the_chosen_configuration_of_each_kernel_and_nothing_else_of_the_module() -> None:
    module = ModuleType("generated")
    module.triton_poi_fused_add_0 = tuned(
        "triton_poi_fused_add_0", launcher(n_regs=32, n_spills=3, shared=512)
    )
    module.not_yet_launched = tuned("triton_red_fused_sum_1", launcher(), launcher())
    module.call = lambda arguments: None

    assert list(kernels_of([module])) == [
        CompiledKernel(
            kernel="triton_poi_fused_add_0",
            warps=4,
            stages=2,
            registers=32,
            spills=3,
            shared_bytes=512,
        )
    ]


def test_what_a_launcher_does_not_tell_is_not_known() -> None:
    module = ModuleType("generated")
    module.kernel = SimpleNamespace(
        fn=SimpleNamespace(__name__="user_kernel"), launchers=[SimpleNamespace(n_spills=None)]
    )

    assert list(kernels_of([module])) == [
        CompiledKernel(
            kernel="user_kernel",
            warps=None,
            stages=None,
            registers=None,
            spills=None,
            shared_bytes=None,
        )
    ]


def test_a_cpu_run_has_none_and_says_why() -> None:
    assert compiled_kernels(torch.device("cpu")) == Skipped(
        reason="not available for the C++ that Inductor generates on a CPU"
    )


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")
def test_a_triton_kernel_on_a_gpu() -> None:
    torch.compile(lambda x: (x * 2).sin())(torch.randn(1024, 1024, device="cuda"))

    found = compiled_kernels(torch.device("cuda"))

    assert isinstance(found, CompiledKernels)
    (kernel,) = [one for one in found.kernels if one.kernel.startswith("triton_poi_fused_mul_sin")]
    assert kernel.registers is not None
    assert 0 < kernel.registers <= 255
    # sin keeps a table of constants on its stack: 8 bytes on an H200
    assert kernel.spills is not None
    assert kernel.shared_bytes == 0
    assert kernel.warps is not None
    assert kernel.stages is not None
