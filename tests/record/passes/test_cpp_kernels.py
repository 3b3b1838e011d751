"""C++ kernels get their names from a function around each call, while KERNELS traces and no
longer."""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from torch._inductor import config
from torch.profiler import ProfilerActivity, profile

from kgprof.record.passes import cpp_kernels


def generated(**kernels: Any) -> ModuleType:
    module = ModuleType("generated")
    vars(module).update(kernels)
    return module


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> list[ModuleType]:
    """What Inductor has generated here: a kernel stands in a module of machine code, as a builtin
    function."""
    listed = [
        generated(call=lambda: None),
        generated(cpp_fused_add_0=math.hypot, cpp_fused_mul_1=math.fabs, cpp_helper=lambda: None),
        generated(cpp_fused_add_0=math.atan2),
    ]
    codecache = SimpleNamespace(PyCodeCache=SimpleNamespace(modules=listed))
    monkeypatch.setitem(sys.modules, "torch._inductor.codecache", codecache)  # type: ignore[arg-type]
    return listed


def test_each_call_of_a_kernel_is_a_range_of_its_name_and_its_graphs_number(
    modules: list[ModuleType],
) -> None:
    with ExitStack() as undo:
        assert cpp_kernels.name_kernels(undo)
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            answers = [modules[1].cpp_fused_add_0(3.0, 4.0), modules[1].cpp_fused_mul_1(-2.0)]
            answers.append(modules[2].cpp_fused_add_0(0.0, 1.0))

    assert answers == [5.0, 2.0, 0.0]
    names = [
        event.name() for event in profiled.profiler.kineto_results.events() if "cpp" in event.name()
    ]  # type: ignore[union-attr]
    assert names == [
        "graph_0_cpp_fused_add_0",
        "graph_0_cpp_fused_mul_1",
        "graph_1_cpp_fused_add_0",
    ]
    assert modules[1].cpp_fused_add_0 is math.hypot
    assert modules[2].cpp_fused_add_0 is math.atan2


def test_where_inductor_names_them_itself_no_call_is_a_range_twice(
    modules: list[ModuleType],
) -> None:
    with config.patch({"cpp.enable_kernel_profile": True}), ExitStack() as undo:
        assert cpp_kernels.name_kernels(undo)
        assert modules[1].cpp_fused_add_0 is math.hypot


@pytest.mark.parametrize("wrapper", [False, True])
def test_only_the_cpp_wrapper_has_inductor_name_them(wrapper: bool) -> None:
    with config.patch({"cpp_wrapper": wrapper, "cpp.enable_kernel_profile": False}):
        cpp_kernels.prepare()

        assert config.cpp.enable_kernel_profile is wrapper


def test_without_generated_kernels_none_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._inductor.codecache", None)  # type: ignore[arg-type]

    assert not cpp_kernels.name_kernels(ExitStack())
