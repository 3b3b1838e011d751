"""Triton's stages of a kernel as Inductor writes it, compiled for a card that need not be here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._inductor.codecache import PyCodeCache
from torch._inductor.runtime import triton_heuristics

from kgprof import model as m
from kgprof.record.listeners.triton_stages import triton_stages

pytest.importorskip("triton")

SOURCE = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties

@triton_heuristics.pointwise(
    size_hints={'x': 1024},
    filename=__file__,
    triton_meta={
        'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'},
        'device': DeviceProperties(
            type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536,
            max_threads_per_multi_processor=2048, warp_size=32
        ),
        'constants': {},
        'configs': [{}],
    },
    inductor_meta={
        'grid_type': 'Grid1D', 'kernel_name': 'triton_poi_fused_add_0', 'mutated_arg_names': [], 'backend_hash': 'x',
        'are_deterministic_algorithms_enabled': False
    },
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_fused_add_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + xindex, xmask)
    tl.store(out_ptr0 + xindex, tmp0 + 1.0, xmask)
"""  # noqa: E501


# Triton 3.9 at its first compilation
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
def test_each_stage_of_a_kernel_that_was_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = PyCodeCache.load(SOURCE)
    tuner = module.triton_poi_fused_add_0
    monkeypatch.setattr(tuner, "launchers", [SimpleNamespace(config=tuner.configs[0])])
    monkeypatch.setattr(
        PyCodeCache, "modules", [module, SimpleNamespace(again=tuner), SimpleNamespace(other=3)]
    )
    monkeypatch.setattr(triton_heuristics.triton_helpers, "set_driver_to_gpu", lambda: None)

    found = triton_stages(torch.device("cuda"))

    assert isinstance(found, m.TritonStages)
    (kernel,) = found.kernels  # once, though two modules hold it
    assert (kernel.kernel, found.left_out) == ("triton_poi_fused_add_0", 0)
    assert list(kernel.seconds) == ["ir", "ttir", "ttgir", "llir", "ptx", "cubin", "store"]
    assert all(seconds > 0 for seconds in kernel.seconds.values())


def test_without_a_kernel_or_a_gpu_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PyCodeCache, "modules", [])

    assert triton_stages(torch.device("cuda")) == m.Skipped(
        reason="Inductor generated no Triton kernel"
    )
    assert isinstance(triton_stages(torch.device("cpu")), m.Skipped)
