"""What the gate holds a workload to: options, a configuration file, and the defaults; every fault
told at once."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from kgprof import model as m
from kgprof.collectors.trust.accepted import FILE as ACCEPTED_FILE
from kgprof.errors import InputError, UsageError
from kgprof.gate.metrics import BY_NAME, DEFAULTS, REGRESSIONS, parse_option, parse_table
from kgprof.reading.files import toml
from kgprof.wording import nearest

PYPROJECT = "pyproject.toml"
KINDS = "kernel-kinds"
MOST_FAULTS = 20  # that are listed
KEYS = ("max", "fail-on", "backend", "accepted", "workload", KINDS, REGRESSIONS)

Choice = TypeVar("Choice", bound=str)


class Configuration(m.Model, kw_only=False):
    """What the command line or one file says; None where it says nothing."""

    budgets: tuple[m.Budget, ...] = ()
    fail_on: m.FailOn | None = None
    backend: str | None = None
    accepted: str | None = None  # path of the file of accepted findings
    # compare's own table, which kgprof.gate.metrics reads
    max_regression: object = msgspec.field(default_factory=dict)
    # not the gate's: for the breakdown of kernels in every report
    kernel_kinds: tuple[m.KindOverride, ...] = ()
    folder: str = "."  # which the file is in; where there is none, the working directory
    workload: str | None = None  # where the command line names none; a file is in that folder


def parse_options(
    budgets: Sequence[str],
    fail_on: str | None,
    backend: str | None,
    path: str | None,
    faults: list[str],
) -> Configuration:
    read = [parse_option(text, faults) for text in budgets]
    level = m.FailOn(fail_on) if fail_on else None
    return Configuration(tuple(filter(None, read)), level, backend, path)


def parse_file(path: str, text: str, faults: list[str]) -> Configuration | None:
    """``[tool.kgprof]`` of a pyproject.toml, or the whole of a kgprof.toml; None where it says
    nothing about kgprof."""
    try:
        document = toml(text)
    except ValueError as error:
        faults.append(f"{path}: {error}")
        return None
    table: object = document
    if path.endswith(PYPROJECT):
        table = document.get("tool")
        if isinstance(table, dict):
            table = table.get("kgprof")
    if table is None:
        return None
    if not isinstance(table, dict):
        faults.append(f"{path}: tool.kgprof must be a table")
        return None
    faults += [
        f"{path}: unknown key {key!r}{nearest(key, KEYS)}" for key in table if key not in KEYS
    ]
    return Configuration(
        tuple(parse_table(table.get("max", {}), path, faults)),
        _choice(table, "fail-on", tuple(m.FailOn), path, faults),
        _choice(table, "backend", m.BACKENDS, path, faults),
        _text(table, "accepted", path, faults),
        table.get(REGRESSIONS, {}),
        _kernel_kinds(table.get(KINDS, {}), path, faults),
        str(Path(path).parent),
        _text(table, "workload", path, faults),
    )


def _kernel_kinds(table: object, path: str, faults: list[str]) -> tuple[m.KindOverride, ...]:
    """``"regular expression" = "kind"``, in the file's order."""
    if not isinstance(table, dict):
        faults.append(
            f"{path}: {KINDS} must be a table of regular expressions and kinds, got {table!r}"
        )
        return ()
    kinds = tuple(m.KernelKind)
    overrides = []
    for pattern, kind in table.items():
        key = f"{path}: {KINDS}.{pattern!r}"
        wrong = ""
        if not pattern:
            wrong = "an empty pattern matches every name"
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            wrong = str(error)
        if kind not in kinds:
            faults.append(f"{key}: {kind!r} is not a kind{nearest(str(kind), kinds)}")
        elif wrong:
            faults.append(f"{key} is not a regular expression: {wrong}")
        else:
            overrides.append(m.KindOverride(pattern, m.KernelKind(kind), Path(path).name))
    return tuple(overrides)


def _text(table: dict[str, object], key: str, path: str, faults: list[str]) -> str | None:
    value = table.get(key)
    if value is None or isinstance(value, str):
        return value
    faults.append(f"{path}: {key} must be a string, got {value!r}")
    return None


def _choice(
    table: dict[str, object], key: str, choices: Sequence[Choice], path: str, faults: list[str]
) -> Choice | None:
    value = _text(table, key, path, faults)
    if value is None:
        return None
    if value not in choices:
        faults.append(f"{path}: {key} must be one of {', '.join(choices)}, got {value!r}")
        return None
    return choices[choices.index(value)]


def combined(
    options: Configuration,
    file: Configuration | None = None,
    entries: tuple[m.AcceptedEntry, ...] = (),
    path: str = ACCEPTED_FILE,
) -> m.GateSettings:
    """The command line over the file over the defaults; Inductor stays where a budget needs the
    code it generates.

    ``entries`` are those of the file of accepted findings at ``path``.
    """
    file = file or Configuration()
    budgets = (*options.budgets, *file.budgets, *DEFAULTS)
    backend = options.backend or file.backend or m.BACKENDS[0]
    needing = sorted({budget.metric for budget in budgets if BY_NAME[budget.metric].generated_code})
    notes: tuple[str, ...] = ()
    if backend == m.BACKENDS[0]:
        backend = ""
    elif needing:
        notes = (
            f"a budget on {', '.join(needing)} needs Inductor's generated code, so --backend "
            f"{backend} is ignored",
        )
        backend = ""
    return m.GateSettings(
        budgets=budgets,
        fail_on=options.fail_on or file.fail_on or m.FailOn.ERROR,
        backend=backend,
        accepted=entries,
        accepted_path=path,
        notes=notes,
    )


def passes(settings: m.GateSettings) -> tuple[m.PassName, ...]:
    """What has to run for these budgets: a second process is started only where one of them needs
    it."""
    if any(BY_NAME[budget.metric].in_memory for budget in settings.budgets):
        return m.PassName.COMPILE, m.PassName.MEMORY
    return (m.PassName.COMPILE,)


# ---------------------------------------------------------------- faults


def check_recorded(recorded: m.GateSettings, path: Path) -> None:
    """Raises InputError for a metric of another version, naming ``path``, the file that it stands
    in."""
    for budget in recorded.budgets:
        if budget.metric not in BY_NAME:
            wrong = f"no metric {budget.metric!r}{nearest(budget.metric, BY_NAME)}"
            raise InputError(wrong, path=path, hint="update kgprof")


def refuse(
    faults: Sequence[str],
    hint: str = "nothing has been run; `kgprof check-graphs --help` shows every form",
    where: str = "the gate's settings",
) -> None:
    """Raises UsageError with all of them, or does nothing when there are none."""
    if not faults:
        return
    if len(faults) == 1:
        raise UsageError(faults[0], hint)
    listed = [f"\n  - {fault}" for fault in faults[:MOST_FAULTS]]
    if len(faults) > MOST_FAULTS:
        listed.append(f"\n  and {len(faults) - MOST_FAULTS:,} more")
    raise UsageError(f"{len(faults):,} faults in {where}:{''.join(listed)}", hint)
