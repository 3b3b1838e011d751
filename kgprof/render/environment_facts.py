"""Where and how the recording was made."""

from __future__ import annotations

from kgprof import model as m
from kgprof.render.limits import Limits
from kgprof.render.quantity import figure, size
from kgprof.render.table import Fact


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
    commit = machine.git_commit
    dirty = " with uncommitted changes" if machine.git_dirty is True else ""
    pairs: list[tuple[str, str | m.Skipped]] = [
        ("device", f"{profile.device}: {machine.device_name}"),
        (
            "CPU",
            machine.cpu_name if unknown(machine.cpu_count) else f"{machine.cpu_name}, {machine.cpu_count} cores usable",
        ),
        ("memory", machine.memory_bytes if isinstance(machine.memory_bytes, m.Skipped) else size(machine.memory_bytes)),
        (
            "torch",
            machine.torch if unknown(machine.torch_threads) else f"{machine.torch}, {machine.torch_threads} threads",
        ),
        ("Triton", machine.triton),
        ("CUDA", machine.cuda),
        ("driver", machine.driver),
        ("Python", machine.python),
        ("C++ compiler", machine.compiler),
        ("platform", machine.platform),
        ("git commit", f"{commit}{dirty}" if isinstance(commit, str) else no_commit(commit)),
        ("kgprof", f"recorded with {machine.kgprof}, read with {profile.kgprof_version}"),
        *machine.flags.items(),
    ]
    return tuple(
        Fact(name=name, value=value.reason, missing=True)
        if isinstance(value, m.Skipped)
        else Fact(name=name, value=value)
        for name, value in pairs[: limits.lines]
    )


def cores(machine: m.Environment) -> list[str]:
    """Empty where the machine is known from a TORCH_TRACE directory alone."""
    if unknown(machine.cpu_count) or unknown(machine.torch_threads):
        return []
    return [f"{machine.cpu_count} cores, {machine.torch_threads} torch threads"]


def unknown(value: int | m.Skipped) -> bool:
    return isinstance(value, m.Skipped)


_NO_COMMITS = ("not a git repository", "ambiguous argument 'HEAD'", "unknown revision")  # in git's own words


def no_commit(commit: m.Skipped) -> m.Skipped:
    """The usual reason in ours; any other as it stands."""
    if any(words in commit.reason for words in _NO_COMMITS):
        return m.Skipped(reason="no commit: not a git repository with commits")
    return commit


def options(profile: m.Profile) -> tuple[Fact, ...]:
    asked = profile.options
    pairs = (
        ("strategies", ", ".join(asked.strategies) or "the workload's own default"),
        ("modes", ", ".join(asked.modes) or "the workload's own default"),
        ("device", asked.device),
        ("steps, warm-up", f"{asked.steps}, {asked.warmup}"),
        ("evaluations in TIMING", f"up to {asked.evaluations}"),
        ("rounds of TIMING", str(asked.rounds)),
        ("seed", str(asked.seed)),
        ("time limit of a process", f"{figure(asked.timeout_s)} s"),
        ("workload's own options", " ".join(asked.workload_args) or "none"),
    )
    return tuple(Fact(name=name, value=value) for name, value in pairs)
