"""Where and how the recording was made, in which passes, and what watching cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kgprof import model as m
from kgprof.render.limits import Limits
from kgprof.render.quantity import DASH, figure, ratio, size
from kgprof.render.table import Cell, Fact, Table, plain, row
from kgprof.wording import plural

_NO_COMMITS = ("not a git repository", "ambiguous argument 'HEAD'", "unknown revision")  # in git's own words


def headline(profile: m.Profile) -> tuple[str, ...]:
    environment = profile.environment
    facts = [environment.device_name, f"torch {environment.torch}"]
    if profile.device == "cuda":
        facts += [f"CUDA {environment.cuda}"] if isinstance(environment.cuda, str) else []
        facts += [f"Triton {environment.triton}"] if isinstance(environment.triton, str) else []
    else:
        facts += cores(environment)
    if isinstance(environment.git_commit, str):
        facts.append(f"commit {environment.git_commit[:10]}{' with changes' if environment.git_dirty is True else ''}")
    facts += [] if profile.trace_files else [f"seed {profile.options.seed}"]  # what was run elsewhere had its own
    return tuple(facts)


def environment(profile: m.Profile, limits: Limits) -> tuple[Fact, ...]:
    machine = profile.environment
    commit, cpu, torch = machine.git_commit, machine.cpu_name, machine.torch
    if isinstance(commit, str):
        commit += " with uncommitted changes" if machine.git_dirty is True else ""
    elif any(words in commit.reason for words in _NO_COMMITS):
        commit = m.Skipped(reason="not a git repository")
    if not isinstance(machine.cpu_count, m.Skipped):
        cpu = f"{cpu}, {machine.cpu_count} cores usable"
    if not isinstance(machine.torch_threads, m.Skipped):
        torch = f"{torch}, {machine.torch_threads} threads"
    pairs: list[tuple[str, str | m.Skipped]] = [
        ("device", f"{profile.device}: {machine.device_name}"),
        ("CPU", cpu),
        ("memory", machine.memory_bytes if isinstance(machine.memory_bytes, m.Skipped) else size(machine.memory_bytes)),
        ("torch", torch),
        ("Triton", machine.triton),
        ("CUDA", machine.cuda),
        ("driver", machine.driver),
        ("Python", machine.python),
        ("C++ compiler", machine.compiler),
        ("platform", machine.platform),
        ("git commit", commit),
        ("kgprof", f"recorded with {machine.kgprof}, read with {profile.kgprof_version}"),
        *machine.flags.items(),
    ]
    return tuple(
        Fact(name=name, value=value if isinstance(value, str) else value.reason, missing=not isinstance(value, str))
        for name, value in pairs[: limits.lines]
    )


def cores(machine: m.Environment) -> list[str]:
    """Empty where the machine is known from a TORCH_TRACE directory alone."""
    if isinstance(machine.cpu_count, m.Skipped) or isinstance(machine.torch_threads, m.Skipped):
        return []
    return [f"{machine.cpu_count} cores, {machine.torch_threads} torch threads"]


def options(profile: m.Profile) -> tuple[Fact, ...]:
    asked = profile.options
    pairs = (
        ("strategies", ", ".join(asked.strategies) or "the workload's default"),
        ("modes", ", ".join(asked.modes) or "the workload's default"),
        ("device", asked.device),
        ("steps, warm-up", f"{asked.steps}, {asked.warmup}"),
        ("TIMING evaluations", f"up to {asked.evaluations}"),
        ("TIMING rounds", str(asked.rounds)),
        ("seed", str(asked.seed)),
        ("time limit per process", f"{figure(asked.timeout_s)} s"),
        ("workload options", " ".join(asked.workload_args) or "none"),
    )
    return tuple(Fact(name=name, value=value) for name, value in pairs)


def observer_table(runs: Sequence[m.RunReport], *, drawn: bool = True) -> Table:
    """``drawn``: with a bar in each cell."""
    seen = {cost.observer for run in runs for cost in run.observers}
    passes: list[m.PassName] = [name for name in m.PassName if name in seen and name is not m.PassName.TIMING]
    most = max((cost.ratio for run in runs for cost in run.observers if isinstance(cost.ratio, float)), default=1.0)
    rows = []
    for run in runs:
        cells = dict.fromkeys(passes, Cell(DASH, details=("no such pass",)))
        for cost in run.observers:
            if isinstance(cost.ratio, m.Skipped):
                cells[cost.observer] = Cell(DASH, details=(cost.ratio.reason,))
            else:
                cells[cost.observer] = Cell(
                    ratio(cost.ratio),
                    details=(plural(cost.samples, "step"),),
                    value=cost.ratio,
                    bar=cost.ratio / most if drawn else None,
                )
        if run.observers:
            rows.append(row(run.key.slug, *(cells[name] for name in passes)))
    table = plain("Profiling overhead per run", ("run", *(name.upper() for name in passes)), rows)
    return replace(table, notes=(f"Bars: 0 to {ratio(most)}.",)) if rows and drawn else table


def passes(profile: m.Profile) -> frozenset[str]:
    """Those that left steps in any run; where none did, those that were asked for."""
    seen = {cost.observer for run in profile.runs for cost in run.observers}
    if any(isinstance(time, m.Spread) for run in profile.runs for time in (run.step, run.evaluation_time)):
        seen.add(m.PassName.TIMING)
    return frozenset(name.upper() for name in seen or profile.options.passes or m.PassName)
