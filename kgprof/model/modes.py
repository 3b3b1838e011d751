"""The modes a strategy can run in: how the same thing runs, in torch.compile's own words."""

from __future__ import annotations

AS_IS = "as-is"  # a user's workload as it stands; kgprof compiles nothing
EAGER = "eager"  # nothing is compiled, the workload's own torch.compile included
COMPILED_MODES = ("default", "reduce-overhead", "max-autotune")  # torch.compile(mode=...)

BACKENDS = ("inductor", "aot_eager", "eager")  # that --backend knows


def needs_cpp_compiler(mode: str, device: str) -> bool:
    """Inductor writes C++ for the CPU."""
    return device == "cpu" and mode in COMPILED_MODES
