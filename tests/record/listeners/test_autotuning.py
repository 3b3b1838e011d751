"""What torch times to choose a kernel, heard once its module is there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch._inductor.select_algorithm import AlgorithmSelectorCache

from kgprof import model as m
from kgprof.record.listeners.autotuning import MAX_CHOICES, Autotuning
from kgprof.record.listeners.call_index import CallIndex


class Choice:
    def __init__(self, name: str, description: str = "") -> None:
        self.name, self.description = name, description


@dataclass(frozen=True)
class Launcher:
    config: str


def node(*size: int) -> SimpleNamespace:
    return SimpleNamespace(get_size=lambda: size, get_dtype=lambda: torch.float16)


def answering(timings: dict[Any, float]) -> Any:
    return lambda this, *args, **named: timings


def test_libraries_and_templates_of_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    timings = {
        Choice("mm"): 0.2,
        Choice("triton_mm_1", "BLOCK_M=64"): 0.1,
        Choice("triton_mm_2"): math.inf,
    }
    fake = answering(timings)
    monkeypatch.setattr(AlgorithmSelectorCache, "do_autotuning", fake)

    with Autotuning(CallIndex()) as listening:
        cache: Any = AlgorithmSelectorCache.__new__(AlgorithmSelectorCache)
        assert cache.do_autotuning("mm", [node(8, 4), node(4, 2)], None) is timings

    assert AlgorithmSelectorCache.do_autotuning is fake
    (found,) = listening.kernels
    assert listening.answer() == (found,)
    assert found.seconds > 0
    assert found == m.Autotuned(
        call=-1,
        kernel="mm",
        inputs="8x4 float16, 4x2 float16",
        template=True,
        tried=3,
        failed=1,
        slowest_us=200.0,
        choices=(
            m.TimedChoice(name="triton_mm_1 BLOCK_M=64", us=100.0),
            m.TimedChoice(name="mm", us=200.0),
        ),
        seconds=found.seconds,
    )


def test_block_sizes_of_a_kernel_the_fastest_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    of = {Launcher(config=f"XBLOCK: {2**n}, num_warps: 4"): 0.001 * (20 - n) for n in range(20)}
    monkeypatch.setattr(CachingAutotuner, "benchmark_all_configs", answering(of))

    with Autotuning(CallIndex()) as listening:
        tuner: Any = CachingAutotuner.__new__(CachingAutotuner)
        tuner.inductor_meta = {"kernel_name": "triton_red_fused_sum_0"}
        tuner.benchmark_all_configs()

    (found,) = listening.kernels
    assert (found.kernel, found.template, found.tried, len(found.choices)) == (
        "triton_red_fused_sum_0",
        False,
        20,
        MAX_CHOICES,
    )
    assert found.choices[0] == m.TimedChoice(
        name="XBLOCK: 524288, num_warps: 4", us=pytest.approx(1.0)
    )


def test_one_choice_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AlgorithmSelectorCache, "do_autotuning", answering({Choice("mm"): 0.2}))

    with Autotuning(CallIndex()) as listening:
        AlgorithmSelectorCache.__new__(AlgorithmSelectorCache).do_autotuning("mm", [], None)  # type: ignore[call-arg, arg-type]

    assert listening.answer() == ()


def test_a_torch_without_the_function_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(AlgorithmSelectorCache, "do_autotuning")

    with Autotuning(CallIndex()) as listening:
        pass

    assert listening.answer() == m.Skipped(
        reason="this torch has no AlgorithmSelectorCache.do_autotuning"
    )
