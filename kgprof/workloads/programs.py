"""Whole programs as workloads: ``script.py`` and ``-m pkg.mod``, found as Python finds them, and
not yet run."""

from __future__ import annotations

import builtins
import difflib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

from kgprof import model as m
from kgprof.errors import InputError, KgprofError, UsageError

if TYPE_CHECKING:
    import torch

    from kgprof.workloads.protocol import Session

MODULE_OPTION = "-m "  # before a module's name, in Options.workload
SUMMARY = "a program as it stands, run as __main__"


@dataclass(frozen=True, kw_only=True)
class Program:
    """``python file args`` or ``python -m module args``."""

    file: Path | None = None  # as the user wrote it
    module: str = ""

    @property
    def name(self) -> str:
        return self.file.stem if self.file else self.module


def is_program(workload: str) -> bool:
    """Whether it can be nothing else: a module's name after -m, or a file without the name of
    anything in it."""
    return workload.startswith(MODULE_OPTION) or workload.endswith(".py")


def find(workload: str) -> Program:
    """Raises InputError or UsageError for what ``python`` itself would refuse to start."""
    if workload.startswith(MODULE_OPTION):
        name = workload.removeprefix(MODULE_OPTION)
        if not name or not all(part.isidentifier() for part in name.split(".")):
            raise UsageError(
                f"-m {name!r} is not a module name", hint="-m takes pkg.mod; give a file without -m"
            )
        spec = spec_of(name)
        if spec is None:
            raise UsageError(
                f"no module named {name!r}", hint=f"searched {os.getcwd()} and sys.path"
            )
        inside = spec.submodule_search_locations
        if inside is not None and PathFinder.find_spec(f"{name}.__main__", list(inside)) is None:
            raise UsageError(f"{name!r} is a package without __main__", hint="name a module in it")
        return Program(module=name)
    file = Path(workload)
    if file.is_dir():
        raise InputError(
            "is a folder, not a script",
            path=file,
            hint="name the script in it, or a module with -m",
        )
    if not file.is_file():
        hint = "a script is path/script.py; a workload in a file is file.py:name"
        raise no_file(file, hint)
    if not os.access(file, os.R_OK):
        raise InputError("cannot be read: permission denied", path=file)
    return Program(file=file)


def no_file(file: Path, hint: str) -> InputError:
    """Return the error, which asks whether a Python file beside it was meant."""
    beside = (each.name for each in file.parent.glob("*.py"))
    near = difflib.get_close_matches(file.name, beside, n=1, cutoff=0.7)
    what = "file not found"
    if near:
        what += f"; did you mean {str(file.with_name(near[0]))!r}?"
    return InputError(what, path=file, hint=hint)


def spec_of(name: str) -> ModuleSpec | None:
    """The packages above a module are not imported for it."""
    spec: ModuleSpec | None = None
    search: list[str] | None = [os.getcwd(), *sys.path]
    for end in range(1, name.count(".") + 2):
        spec = PathFinder.find_spec(".".join(name.split(".")[:end]), search)
        if spec is None:
            return None
        search = list(spec.submodule_search_locations or ())
    return spec


def source_of(module: str) -> Path | None:
    """Its file, which a package has not: what runs of it lies in another one."""
    spec = spec_of(module)
    if spec is None or not spec.has_location or not spec.origin:
        return None
    return Path(spec.origin) if spec.origin.endswith(".py") else None


def folders(program: Program) -> Iterator[str]:
    """Whose files are the program's own, wherever they lie: a script's folder, a module's
    package."""
    if program.file is not None:
        yield str(program.file.absolute().parent)
        return
    top = spec_of(program.module.partition(".")[0])
    if top is not None and top.submodule_search_locations is not None:
        yield from top.submodule_search_locations
    elif top is not None and top.origin:
        yield top.origin


class ProgramWorkload:
    """One strategy in one mode; a script child runs it (record.passes.script), because it has no
    steps to be called."""

    def __init__(self, workload: str) -> None:
        self.name = workload
        rank = os.environ.get("RANK", "")  # tells the ranks of one launch apart
        suffix = f"-rank{rank}" if rank and os.environ.get("WORLD_SIZE", "1") != "1" else ""
        self._label = find(workload).name + suffix

    def strategies(self) -> Sequence[m.StrategyPlan]:
        return [m.StrategyPlan(self._label, (m.AS_IS,), SUMMARY)]

    def default_runs(self, device: torch.device) -> Sequence[m.RunKey]:
        return [m.RunKey(self._label, m.AS_IS)]

    def baseline(self, runs: Sequence[m.RunKey]) -> m.RunKey | None:
        return None

    def prepare(self, run: m.RunKey, device: torch.device) -> Session:
        raise KgprofError(f"{self.name} is a program, which has no step to call")


# ---------------------------------------------------------------- running it


def prepared(program: Program, args: Sequence[str]) -> tuple[CodeType, ModuleType]:
    """Its code and an empty ``__main__`` for it, with sys.argv and sys.path[0] as Python sets them.

    Raises what compiling it raises (SyntaxError), or importing the packages above a module.
    """
    if program.file is not None:
        # Python resolves links for sys.path[0] and not for __file__.
        sys.argv = [str(program.file), *args]
        sys.orig_argv = [sys.executable, *sys.argv]
        sys.path.insert(0, str(program.file.resolve().parent))
        file = str(program.file.absolute())
        script = compile(program.file.read_bytes(), file, "exec", dont_inherit=True)
        return script, _main_module(file=file, spec=None)
    sys.argv = ["-m", *args]
    sys.orig_argv = [sys.executable, "-m", program.module, *args]
    sys.path.insert(0, os.getcwd())
    name = program.module
    found = importlib.util.find_spec(name)
    if found is not None and found.submodule_search_locations is not None:
        found = importlib.util.find_spec(f"{name}.__main__")
    get_code = getattr(found.loader, "get_code", None) if found else None
    code = get_code(found.name) if found and get_code else None
    if found is None or code is None:
        raise UsageError(f"no code for module {name!r}")
    sys.argv[0] = found.origin or name
    return code, _main_module(file=found.origin or "", spec=found)


def give_way() -> None:
    """To a prepared program: where a file in its folder has the name of something that kgprof has
    imported (msgspec.py, json.py), ``import`` finds that file, as it does in Python. What has been
    imported keeps what it has."""
    loaded = list(sys.modules)
    folder = sys.path[0]
    ours = loaded[loaded.index("kgprof") :]  # what Python itself had imported stands before it
    kept = {"kgprof", "torch", *sys.builtin_module_names}
    for name in {name.partition(".")[0] for name in ours} - kept:
        spec = PathFinder.find_spec(name, [folder])
        origin = getattr(sys.modules.get(name), "__file__", None)
        if spec is not None and spec.loader is not None and spec.origin != origin:
            for each in ours:
                if each == name or each.startswith(f"{name}."):
                    del sys.modules[each]


def _main_module(*, file: str, spec: ModuleSpec | None) -> ModuleType:
    module = ModuleType("__main__")
    module.__dict__.update(
        __file__=file,
        __spec__=spec,
        __loader__=spec.loader if spec else SourceFileLoader("__main__", file),
        __package__=getattr(spec, "parent", None),
        __cached__=getattr(spec, "cached", None),
        __builtins__=builtins,  # the module, as Python documents it for __main__
        __annotations__={},
    )
    return module


def become_main(module: ModuleType) -> None:
    """Where pickle and multiprocessing look for it; for good, as in Python."""
    sys.modules["__main__"] = module
