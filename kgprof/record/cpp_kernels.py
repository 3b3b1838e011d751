"""KERNELS: TRACE once more on code that was compiled with Inductor's C++ kernels visible to the profiler by name."""

from __future__ import annotations

from kgprof import model as m
from kgprof.record.run import Run
from kgprof.record.torch_profiler import trace_pass


def measure(run: Run) -> None:
    path = run.trace_path(m.PassName.KERNELS)
    run.write(m.PassName.KERNELS, trace_pass(run.session, run.device, run.options, path, cpp_kernel_profile=True))


def profile_cpp_kernels() -> str:
    """Make Inductor's C++ kernels visible by name in this process; why it cannot be done, where it cannot.

    It changes the generated code, so it stands before any compiling and in a child of its own.
    """
    try:
        from torch._inductor import config

        if not hasattr(config.cpp, "enable_kernel_profile"):
            return "capture C++ kernels unavailable: no torch._inductor.config.cpp.enable_kernel_profile"
        config.cpp.enable_kernel_profile = True
    except (ImportError, AttributeError) as error:
        return f"capture C++ kernels unavailable: {error}"
    return ""
