"""What was asked for: which passes, of which runs, in which modes, and every default of the command line."""

from __future__ import annotations

from enum import StrEnum

from kgprof.model.passes import PASSES, PassName
from kgprof.model.structs import Model

AS_IS = "as-is"  # a user's workload as it stands; kgprof compiles nothing
EAGER = "eager"  # nothing is compiled, the workload's own torch.compile included
# torch.compile(mode=...)
COMPILED_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

BACKENDS = ("inductor", "aot_eager", "eager")  # that --backend knows


def needs_cpp_compiler(mode: str, device: str) -> bool:
    """Inductor writes C++ for the CPU."""
    return device == "cpu" and mode in COMPILED_MODES


class FailOn(StrEnum):
    """The least level of a finding that fails the gate where no budget counts it."""

    ERROR = "error"
    WARNING = "warning"
    NEVER = "never"


class RunKey(Model, frozen=True, kw_only=True, order=True):
    """One strategy (what is computed differently) in one mode (how the same thing runs)."""

    strategy: str
    mode: str

    @property
    def slug(self) -> str:
        return f"{self.strategy}.{self.mode}"


MOST_ROUNDS = 1000  # a process each


class Options(Model, frozen=True, kw_only=True):
    """What the user asked of ``kgprof profile``; the only place where defaults live."""

    workload: str = "linkpred"
    workload_args: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()  # empty: the workload's own default
    modes: tuple[str, ...] = ()  # empty: the workload's own default
    device: str = "auto"
    steps: int = 20
    warmup: int = 3
    seed: int = 0
    timeout_s: float = 900.0
    evaluations: int = 3  # whole evaluations that TIMING aims at; a long one stops after two (see TIMING_BUDGET_S)
    rounds: int = 1  # processes in which TIMING is made, one after the other over all runs; not of a script
    passes: tuple[PassName, ...] = ()  # empty: the usual ones; a gate asks for COMPILE, and MEMORY for a budget on it
    backend: str = ""  # what stands in for Inductor in every torch.compile; empty: nothing does
    max_steps: int | None = None  # of a script: the recording stops after so many, the program runs on
    duration_s: float | None = None  # of a script: likewise, at the first step that begins after so long
    timing_below_s: float | None = None  # of a script: if its run took less, it runs once more for TIMING

    def wants(self, name: PassName) -> bool:
        return name in self.passes if self.passes else PASSES[name].by_default

    @property
    def for_a_gate(self) -> bool:
        """Nothing but what a gate looks at was asked for; it judges for itself whether it has seen enough."""
        return bool(self.passes) and set(self.passes) <= {PassName.COMPILE, PassName.MEMORY}

    @property
    def untimed(self) -> bool:
        """No pass that gives times was asked for."""
        return bool(self.passes) and PassName.TIMING not in self.passes
