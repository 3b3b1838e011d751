"""KERNELS: TRACE once more, with Inductor's C++ kernels visible to the profiler by name.

Generated code calls each of its C++ kernels by a name of its module. During this pass a function
stands there that opens a range of the profiler around the call, so that no second code is compiled:
Inductor's own way (``cpp.enable_kernel_profile``) changes the source of each kernel and keeps its
precompiled header from being used. The time of a kernel therefore holds its call from Python, a few
tenths of a microsecond.
"""

import sys
from contextlib import ExitStack
from types import BuiltinFunctionType
from typing import Any

from kgprof import model as m
from kgprof.record.ground.run import Run
from kgprof.record.ground.source import Function, replace
from kgprof.record.passes.torch_profiler import trace_pass

PREFIX = "cpp_"  # of the names of C++ kernels in generated modules


def measure(run: Run) -> None:
    path = run.trace_path(m.PassName.KERNELS)
    with ExitStack() as undo:
        try:
            named = name_kernels(undo)
        except (ImportError, AttributeError) as error:
            run.write(m.PassName.KERNELS, m.Skipped(f"capture C++ kernels unavailable: {error}"))
            return
        traced = trace_pass(run.session, run.device, run.options, path, cpp_kernel_profile=named)
    run.write(m.PassName.KERNELS, traced)


def prepare() -> None:
    """Before any compiling: under Inductor's C++ wrapper Python calls no kernel, and Inductor has
    to name them."""
    from torch._inductor import config

    if config.cpp_wrapper:
        config.cpp.enable_kernel_profile = True


def name_kernels(undo: ExitStack) -> bool:
    """From now on each call of a C++ kernel is a range named as Inductor names it,
    ``graph_<number>_<kernel>``; whether there are any. Raises ImportError and AttributeError where
    this torch is built otherwise."""
    # not imported for this: what has not been used has none
    inductor = sys.modules.get("torch._inductor.codecache")
    if inductor is None:
        return False
    from torch._C._profiler import _RecordFunctionFast
    from torch._inductor import config

    if config.cpp.enable_kernel_profile:
        return True
    number = 0
    for module in tuple(inductor.PyCodeCache.modules):
        kernels = {
            name: value
            for name, value in vars(module).items()
            if name.startswith(PREFIX) and isinstance(value, BuiltinFunctionType)
        }
        for name, kernel in kernels.items():
            replace(
                module, name, _in_range(kernel, _RecordFunctionFast(f"graph_{number}_{name}")), undo
            )
        number += bool(kernels)
    return number > 0


def _in_range(kernel: Function, named: Any) -> Function:
    def called(*args: Any) -> Any:
        with named:
            return kernel(*args)

    return called
