"""PLAN: which strategies run in which modes, on which device, and what this machine lacks for
them."""

import builtins
import difflib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from msgspec.structs import replace

from kgprof import model as m
from kgprof.errors import UsageError
from kgprof.record.files import foreign
from kgprof.record.ground import environment
from kgprof.record.ground.flags import flags
from kgprof.record.ground.job import Job
from kgprof.record.passes.torch_trace import compilation_switched_off_by
from kgprof.workloads import loading, programs
from kgprof.workloads.protocol import (
    StrategyCheckingWorkload,
    WeighedWorkload,
    Workload,
    require_mode,
)

# read by the libraries that torch loads, and not again
ON_IMPORT = ("OMP_", "GOMP_", "KMP_", "MKL_")
# And what is read when a process starts, or when a GPU is opened: torch sets some of these itself.
NOT_LATER = (*ON_IMPORT, "LD_PRELOAD", "PYTHONHASHSEED", "CUDA_", "CUBLAS_")


def unloaded_plan(job: Job) -> m.Plan:
    """What can be said before the workload is loaded, and all there is of one that cannot be: one
    run, as it stands."""
    device = environment.choose_device(job.options.device)
    name = job.options.workload.rpartition(":")[2]
    key = m.RunKey(name, m.AS_IS)
    named = job.checkout is not None and bool(job.checkout.python)
    described = environment.describe(device, job.flags, with_defaults=named)
    why = "the workload could not be loaded"
    return foreign.as_it_stands(job.options.workload, (key,), device.type, described, reason=why)


def make_plan(job: Job, unloaded: m.Plan) -> m.Plan:
    """Raises UsageError for what cannot run as asked, WorkloadError for a workload that cannot be
    loaded."""
    device = torch.device(unloaded.device)
    workload, set_by_it = loaded(job)
    runs = select_runs(workload, job.options, device)
    if not job.options.for_a_gate:  # a gate says itself what it could not see
        refuse_if_compilation_is_off(runs)
    compiler = unloaded.environment.compiler
    if not job.options.backend:
        refuse_without_compiler(runs, device, compiler)
    if job.options.backend:
        why = f"backend {job.options.backend} generates no code"
    elif device.type != "cpu":
        why = "not a CPU run"
    elif isinstance(compiler, m.Skipped):
        why = "no C++ compiler"
    elif programs.is_program(job.options.workload):
        why = "the program's own process runs it when it first uses Inductor, so it is not timed"
    elif all(run.mode == m.EAGER for run in runs):
        why = "nothing is compiled in mode eager"
    elif not job.compiles and not any(run.mode in m.COMPILED_MODES for run in runs):
        why = "a run's own process runs it when it first uses Inductor, so it is not timed"
    else:
        why = ""
    probe_s: float | m.Skipped = m.Skipped(why)
    isa_works = False
    if not why:
        assert job.probe_cache  # else its files would come to the working directory
        probe_s, isa_works = environment.probe_vector_isa(Path(job.probe_cache))
    return replace(
        unloaded,
        workload=workload.name,
        strategies=tuple(workload.strategies()),
        runs=runs,
        baseline=workload.baseline(runs),
        vector_isa_probe_s=probe_s,
        vector_isa_works=isa_works,
        agreement=loading.is_comparable(workload, runs),
        unit=getattr(workload, "unit", m.WorkUnit()),
        alternatives=alternatives_of(workload),
        variables=set_by_it,
    )


def loaded(job: Job) -> tuple[Workload, dict[str, str]]:
    """And the variables that it sets in time for a torch that it imports itself. Here torch is
    imported already."""
    before = flags()
    by_then = list[dict[str, str]]()

    def noting(name: str, *given: Any, **named: Any) -> ModuleType:
        importer = str(
            ((given[0] if given else named.get("globals")) or {}).get("__name__")
        ).partition(".")[0]
        if (
            not by_then
            and name.partition(".")[0] == "torch"
            and importer not in ("torch", "kgprof")
        ):
            by_then.append(flags())
        return importing(name, *given, **named)

    importing = builtins.__import__
    with mock.patch("builtins.__import__", noting):
        workload = loading.load(job.options.workload, job.options.workload_args, job.options.seed)
    at_import = (*by_then, flags())[0]
    after = {name: value for name, value in at_import.items() if name.startswith(ON_IMPORT)}
    after |= {name: value for name, value in flags().items() if not name.startswith(NOT_LATER)}
    return workload, {name: value for name, value in after.items() if before.get(name) != value}


def alternatives_of(workload: Workload) -> tuple[m.Alternative, ...]:
    """Raises UsageError for a name that is none of the workload's strategies."""
    if not isinstance(workload, WeighedWorkload):
        return ()
    offered = [strategy.name for strategy in workload.strategies()]
    pairs = tuple(workload.alternatives())
    for name in (name for pair in pairs for name in (pair.guarded, pair.always)):
        _check(f"alternatives of {workload.name}: no strategy", name, offered)
    return pairs


# ---------------------------------------------------------------- which runs


def select_runs(
    workload: Workload, options: m.Options, device: torch.device
) -> tuple[m.RunKey, ...]:
    """The workload's own choice where --strategy and --mode leave it open. Raises UsageError for an
    unknown name."""
    offered = {strategy.name: strategy.modes for strategy in workload.strategies()}
    usual = [
        run
        for run in workload.default_runs(device)
        if run.mode != m.EAGER or not options.for_a_gate
    ]
    for name in options.strategies:
        if isinstance(workload, StrategyCheckingWorkload):
            workload.check_strategy(name)
        _check(f"{workload.name} has no strategy", name, list(offered))
    modes_offered = list(dict.fromkeys(chain.from_iterable(offered.values())))
    for mode in options.modes:
        _check(f"{workload.name} has no mode", mode, modes_offered)
    strategies = dict.fromkeys(options.strategies)
    modes = dict.fromkeys(options.modes)
    runs = []
    if strategies and modes:
        runs = [m.RunKey(name, mode) for name in strategies for mode in modes]
        for run in runs:
            require_mode(run, offered[run.strategy])
        return tuple(runs)
    for name in strategies:
        first = m.RunKey(name, offered[name][0])
        runs += [run for run in usual if run.strategy == name] or [first]
    if not modes:
        return tuple(runs or usual)
    # The usual strategies; one that has none of the modes stays out, but not all of them.
    names = dict.fromkeys(run.strategy for run in usual)
    runs = [m.RunKey(name, mode) for name in names for mode in modes if mode in offered[name]]
    if not runs:
        raise UsageError(
            f"no default strategy has mode {' or '.join(modes)}",
            hint="name the strategy with --strategy",
        )
    return tuple(runs)


def _check(lacking: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"{lacking} {name!r}{meant}", hint=f"it has: {', '.join(known)}")


# ---------------------------------------------------------------- what is missing


def refuse_if_compilation_is_off(runs: Sequence[m.RunKey]) -> None:
    switched_off_by = compilation_switched_off_by()
    compiled = [run.slug for run in runs if run.mode in m.COMPILED_MODES]
    if switched_off_by and compiled:
        raise UsageError(
            f"{switched_off_by} is set, so torch.compile would compile nothing in "
            f"{', '.join(compiled)}",
            hint=f"unset {switched_off_by.partition('=')[0]}, or use --mode {m.EAGER}",
        )


def refuse_without_compiler(
    runs: Sequence[m.RunKey], device: torch.device, compiler: str | m.Skipped
) -> None:
    """An error only where nothing else could run; otherwise those runs alone fail, and the others
    are kept."""
    if isinstance(compiler, m.Skipped) and all(
        m.needs_cpp_compiler(run.mode, device.type) for run in runs
    ):
        raise UsageError(
            f"no C++ compiler, and Inductor needs one on the CPU: {compiler.reason}",
            hint=f"install g++ (apt-get install g++), name one in CXX, or use --mode {m.EAGER}",
        )
