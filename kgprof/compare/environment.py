"""What is not the same around two recordings: the machine and its software, and what was asked for."""

from __future__ import annotations

from collections.abc import Mapping

from kgprof import model as m
from kgprof.wording import relative

# Names, and the fields of Environment that they stand for. The commit is meant to differ. The kernel's release, the
# memory's size and the probe of the compiler change from one machine of a CI pool to the next and move no time alone.
_FACTS = (
    ("GPU or CPU in use", "device_name"),
    ("driver", "driver"),
    ("torch", "torch"),
    ("triton", "triton"),
    ("CUDA", "cuda"),
    ("Python", "python"),
    ("CPU", "cpu_name"),
    ("CPU cores", "cpu_count"),
    ("threads of torch's", "torch_threads"),
    ("C++ compiler", "compiler"),
    ("kgprof", "kgprof"),
)
# They say where things are put or written down, not what runs.
_WHERE_TO = ("_DIR", "_PATH", "_FILE", "_TRACE", "_ROOT", "_HOME")
_NOT_OF_A_STEP = ("KGPROF_",)  # kgprof's own options, which are compared as options
NOT_SET = "not set"


def environment_changes(base: m.Profile, head: m.Profile) -> tuple[m.EnvironmentChange, ...]:
    """Empty where times may be compared."""
    ours, theirs = head.environment, base.environment
    facts = [("device", base.device, head.device)]
    facts += [(name, _said(theirs, field), _said(ours, field)) for name, field in _FACTS]
    before, after = _flags(theirs), _flags(ours)
    facts += [
        (f"environment variable {name}", before.get(name, NOT_SET), after.get(name, NOT_SET))
        for name in sorted({*before, *after})
    ]
    return tuple(m.EnvironmentChange(name=name, base=was, head=now) for name, was, now in facts if was != now)


def _said(environment: m.Environment, field: str) -> str:
    value = getattr(environment, field)
    return value.reason if isinstance(value, m.Skipped) else str(value)


def _flags(environment: m.Environment) -> Mapping[str, str]:
    return {
        name: relative(value, environment.source_root)
        for name, value in environment.flags.items()
        if not name.endswith(_WHERE_TO) and not name.startswith(_NOT_OF_A_STEP)
    }


# ---------------------------------------------------------------- what was asked for


def option_changes(base: m.Profile, head: m.Profile) -> tuple[m.SettingChange, ...]:
    """Of what the command line says about the work; how long it was measured is no part of that."""
    before, after = base.options, head.options
    pairs = [
        ("the workload's own options", " ".join(before.workload_args), " ".join(after.workload_args)),
        ("--seed", str(before.seed), str(after.seed)),
        ("backend", before.backend or "inductor", after.backend or "inductor"),
        ("--steps", str(before.steps), str(after.steps)),
        ("--warmup", str(before.warmup), str(after.warmup)),
    ]
    return tuple(m.SettingChange(name=name, base=was, head=now) for name, was, now in pairs if was != now)


OF_THE_MEASUREMENT = ("--steps", "--warmup")  # they leave a step what it is


def declared_changes(base: m.RunReport, head: m.RunReport) -> tuple[m.SettingChange, ...]:
    """Of the settings that an evaluation declares (batch size, depth, dtype ...)."""
    before = {} if isinstance(base.evaluation, m.Skipped) else base.evaluation.settings
    after = {} if isinstance(head.evaluation, m.Skipped) else head.evaluation.settings
    return tuple(
        m.SettingChange(name=name, base=before.get(name, ""), head=after.get(name, ""))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )
