"""What stood there to be run: the workload's strategies, the traces that were handed in, and the machine."""

from __future__ import annotations

from kgprof.model.options import RunKey
from kgprof.model.structs import Model, Skipped


class StrategyPlan(Model, frozen=True, kw_only=True):
    """A strategy that the workload offers, and the modes it can run in."""

    name: str
    modes: tuple[str, ...]
    summary: str = ""


class WorkUnit(Model, frozen=True, kw_only=True):
    """What the workload's work is counted in, in its own word: tokens, samples, queries."""

    name: str = "unit"
    plural: str = "units"
    per_step: int | None = None  # None: steps differ, or the workload does not say; then its whole job may count them

    @property
    def time(self) -> str:
        """What one of them takes, in milliseconds: "ms/token"."""
        return f"ms/{self.name}"

    @property
    def rate(self) -> str:
        return f"{self.plural}/s"


class Alternative(Model, frozen=True, kw_only=True):
    """Two strategies of a workload that do the same work: one behind a read of its predicate, the other always."""

    guarded: str
    always: str


class TraceFile(Model, frozen=True, kw_only=True):
    """A Kineto trace that somebody else recorded, as `kgprof trace` took it in."""

    key: RunKey  # of the run that it became
    file: str
    size_bytes: int  # as it lay there, packed or not
    rank: int | None = None  # from its distributedInfo, else from its name
    world_size: int | None = None
    backend: str = ""  # of the process group: "nccl"
    against: bool = False  # --against: the others are held against this one
    notes: tuple[str, ...] = ()


class Environment(Model, frozen=True, kw_only=True):
    kgprof: str
    python: str
    torch: str
    triton: str | Skipped
    cuda: str | Skipped
    driver: str | Skipped
    device_name: str  # the GPU's name, or the CPU's on a CPU run
    cpu_name: str
    cpu_count: int | Skipped  # cores this process may use
    torch_threads: int | Skipped
    memory_bytes: int | Skipped
    platform: str
    compiler: str | Skipped  # the C++ compiler that Inductor would call
    git_commit: str | Skipped  # of the working directory
    git_dirty: bool | Skipped
    flags: dict[str, str]  # torch's and kgprof's environment variables that were set (TORCH_*, TORCHINDUCTOR_*, ...)
    source_root: str = ""  # git's top folder above the working directory, or that directory itself


class Plan(Model, frozen=True, kw_only=True):
    """What the PLAN child found: the workload as it stands and the machine it stands on."""

    workload: str
    strategies: tuple[StrategyPlan, ...]  # all that the workload offers
    runs: tuple[RunKey, ...]  # what will run, in order
    baseline: RunKey | None  # what speed-ups are relative to; None when no run is declared as one
    device: str  # "cpu" or "cuda"
    environment: Environment
    vector_isa_probe_s: float | Skipped  # Inductor compiles test files once per machine; never part of a compile time
    vector_isa_works: bool = False  # each instruction set of this CPU passed the probe, so the runs need not try them
    agreement: bool  # the workload can compare the results of its runs (an AGREEMENT child runs at the end)
    unit: WorkUnit = WorkUnit()
    alternatives: tuple[Alternative, ...] = ()  # what the workload declares to be weighed
    trace_files: tuple[TraceFile, ...] = ()  # of `kgprof trace`, one a run; empty: kgprof ran the workload itself
