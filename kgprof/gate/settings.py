"""What the gate holds a workload to: options, a configuration file, and the defaults; every fault told at once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from kgprof import model as m
from kgprof.collectors.accepted import FILE as ACCEPTED_FILE
from kgprof.collectors.accepted import Entry
from kgprof.errors import InputError, UsageError
from kgprof.gate.budgets import DEFAULTS, Budget, parse_option, parse_table
from kgprof.gate.metrics import BY_NAME
from kgprof.gate.regressions import KEY as REGRESSIONS
from kgprof.wording import nearest

PYPROJECT = "pyproject.toml"
FAIL_ON = ("error", "warning", "never")
KINDS = "kernel-kinds"
KEYS = ("max", "fail-on", "backend", "accepted", KINDS, REGRESSIONS)


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """A file that was looked for; ``text`` is None where there is none."""

    path: str
    text: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What one place says; None where it says nothing."""

    budgets: tuple[Budget, ...] = ()
    fail_on: str | None = None
    backend: str | None = None
    accepted: str | None = None  # path of the file of accepted findings
    max_regression: object = None  # compare's own table, which kgprof.gate.regressions reads
    kernel_kinds: tuple[m.KindOverride, ...] = ()  # not the gate's: for the breakdown of kernels in every report


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    budgets: tuple[Budget, ...] = DEFAULTS
    fail_on: str = "error"
    backend: str = ""  # empty: Inductor
    accepted: tuple[Entry, ...] = ()
    accepted_path: str = ACCEPTED_FILE
    notes: tuple[str, ...] = ()

    @property
    def passes(self) -> tuple[m.PassName, ...]:
        """What has to run for these budgets: a second process is started only where one of them needs it."""
        watched = any(budget.metric.in_memory for budget in self.budgets)
        return (m.PassName.COMPILE, m.PassName.MEMORY) if watched else (m.PassName.COMPILE,)


def parse_options(
    budgets: Sequence[str], fail_on: str | None, backend: str | None, path: str | None, faults: list[str]
) -> Written:
    read = [parse_option(text, faults) for text in budgets]
    return Written(budgets=tuple(b for b in read if b is not None), fail_on=fail_on, backend=backend, accepted=path)


def parse_file(file: File, faults: list[str]) -> Written | None:
    """``[tool.kgprof]`` of a pyproject.toml, or the whole of a kgprof.toml; None where it says nothing about kgprof."""
    if file.text is None:
        return None
    try:
        document = tomllib.loads(file.text)
    except tomllib.TOMLDecodeError as error:
        faults.append(f"{file.path}: {error}")
        return None
    pyproject = file.path.endswith(PYPROJECT)
    table = document.get("tool", {}).get("kgprof") if pyproject else document
    if table is None:
        return None
    if not isinstance(table, dict):
        faults.append(f"{file.path}: tool.kgprof is no table")
        return None
    faults += [f"{file.path}: unknown key {key!r}{nearest(key, KEYS)}" for key in table if key not in KEYS]
    return Written(
        budgets=tuple(parse_table(table.get("max", {}), file.path, faults)),
        fail_on=_choice(table, "fail-on", FAIL_ON, file.path, faults),
        backend=_choice(table, "backend", m.BACKENDS, file.path, faults),
        accepted=_text(table, "accepted", file.path, faults),
        max_regression=table.get(REGRESSIONS),
        kernel_kinds=_kernel_kinds(table.get(KINDS, {}), file.path, faults),
    )


def _kernel_kinds(table: object, path: str, faults: list[str]) -> tuple[m.KindOverride, ...]:
    """``"regular expression" = "kind"``, in the file's order."""
    if not isinstance(table, dict):
        faults.append(f"{path}: {KINDS} is a table of regular expressions and kinds, not {table!r}")
        return ()
    kinds = tuple(m.KernelKind)
    found = []
    for pattern, kind in table.items():
        key = f"{path}: {KINDS}.{pattern!r}"
        if kind not in kinds:
            near = nearest(str(kind), kinds)
            faults.append(f"{key}: {kind!r} is no kind{near}")
        elif why := _why_no_expression(pattern):
            faults.append(f"{key} is no regular expression: {why}")
        else:
            found.append(m.KindOverride(pattern=pattern, kind=m.KernelKind(kind), origin=Path(path).name))
    return tuple(found)


def _why_no_expression(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return "it is found in every name" if not pattern else ""


def _text(table: dict[str, object], key: str, path: str, faults: list[str]) -> str | None:
    value = table.get(key)
    if value is None or isinstance(value, str):
        return value
    faults.append(f"{path}: {key} is a text, not {value!r}")
    return None


def _choice(table: dict[str, object], key: str, choices: Sequence[str], path: str, faults: list[str]) -> str | None:
    value = _text(table, key, path, faults)
    if value is None or value in choices:
        return value
    faults.append(f"{path}: {key} is one of {', '.join(choices)}, not {value!r}")
    return None


def combined(options: Written, file: Written | None, entries: tuple[Entry, ...], path: str) -> Settings:
    """The command line over the file over the defaults; Inductor stays where a budget needs the code it generates."""
    file = file or Written()
    budgets = (*options.budgets, *file.budgets, *DEFAULTS)
    backend = options.backend or file.backend or ""
    backend = "" if backend == "inductor" else backend
    needing = sorted({budget.metric.name for budget in budgets if budget.metric.generated_code})
    notes: tuple[str, ...] = ()
    if backend and needing:
        notes = (f"Inductor compiles, not {backend}: a budget on {', '.join(needing)} needs its generated code",)
        backend = ""
    return Settings(
        budgets=budgets,
        fail_on=options.fail_on or file.fail_on or "error",
        backend=backend,
        accepted=entries,
        accepted_path=path,
        notes=notes,
    )


# ---------------------------------------------------------------- in the Recording


def to_record(settings: Settings) -> m.GateSettings:
    return m.GateSettings(
        fail_on=settings.fail_on,
        backend=settings.backend,
        budgets=tuple(
            m.GateBudget(metric=b.metric.name, limit=b.limit, scope=b.scope, origin=b.origin) for b in settings.budgets
        ),
        accepted=tuple(m.GateEntry(**asdict(entry)) for entry in settings.accepted),
        accepted_path=settings.accepted_path,
        notes=settings.notes,
    )


def from_record(recorded: m.GateSettings, path: Path) -> Settings:
    """Raises InputError for a metric of another version, naming ``path``, the file that it stands in."""
    unknown = [budget.metric for budget in recorded.budgets if budget.metric not in BY_NAME]
    if unknown:
        raise InputError(f"no metric {unknown[0]!r}{nearest(unknown[0], BY_NAME)}", path=path, hint="update kgprof")
    return Settings(
        budgets=tuple(
            Budget(metric=BY_NAME[b.metric], limit=b.limit, scope=b.scope, origin=b.origin) for b in recorded.budgets
        ),
        fail_on=recorded.fail_on,
        backend=recorded.backend,
        accepted=tuple(Entry(**msgspec.structs.asdict(entry)) for entry in recorded.accepted),
        accepted_path=recorded.accepted_path,
        notes=recorded.notes,
    )


# ---------------------------------------------------------------- faults


def refuse(
    faults: Sequence[str],
    hint: str = "nothing has been run; `kgprof check-graphs --help` shows every form",
    where: str = "what the gate is told",
) -> None:
    """Raises UsageError with all of them, or does nothing when there are none."""
    if not faults:
        return
    if len(faults) == 1:
        raise UsageError(faults[0], hint=hint)
    listed = "".join(f"\n  - {fault}" for fault in faults)
    raise UsageError(f"{len(faults)} faults in {where}:{listed}", hint=hint)
