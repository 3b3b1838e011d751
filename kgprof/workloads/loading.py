"""From the name on the command line to a Workload: a built-in's, ``pkg.mod:name`` or
``path/file.py:name``.

Torch-free to import, so that the parent can refuse a bad name before any child starts; ``load``
imports torch. A file's folder goes on sys.path as Python does it for a script, the current folder
for a module as ``python -m`` does. What stands after ``--`` is the workload's ``sys.argv``.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from kgprof.errors import UsageError, WorkloadError
from kgprof.reading.compile_calls import no_step
from kgprof.workloads import catalog, programs
from kgprof.workloads.catalog import BUILT_IN

if TYPE_CHECKING:
    from kgprof import model as m
    from kgprof.workloads.protocol import Workload

FORMS = (
    "a workload must be one of: pkg.mod:name, path/file.py:name, a whole script.py, "
    "or a built-in (kgprof workloads lists them)"
)

_STEP = "give a function without arguments, which calls it: def step(): ..., or an instance"
_WORDS = re.compile(r"\w+")
_ALL = re.compile(r"import\s*\(?\s*\*")
_BINDS_UNSEEN = {
    *("__dict__", "__getattr__", "eval", "exec", "f_globals", "globals", "locals", "modules"),
    *("setattr", "vars"),
}


@dataclass(frozen=True, kw_only=True)
class Target:
    """An object in a user's module or file; the object may be nested (``mod:Class.method``)."""

    module: str = ""
    file: Path | None = None
    name: str

    @property
    def place(self) -> str:
        return str(self.file) if self.file else self.module


def files_of(workload: str) -> list[Path]:
    """The file of a user's workload or program, if it is in one. Raises UsageError as ``find``
    does."""
    found = programs.find(workload) if programs.is_program(workload) else find(workload)
    return [found.file] if found is not None and found.file is not None else []


def find(workload: str) -> Target | None:
    """Where a user's workload is; None for a built-in or a whole program. Raises UsageError for
    anything else."""
    if workload in BUILT_IN:
        return None
    if programs.is_program(workload):
        programs.find(workload)
        return None
    place, colon, name = workload.rpartition(":")
    if not colon and workload and Path(workload).is_dir():
        programs.find(workload)  # says that it is a folder
    if not colon or place.endswith(":"):
        near_by = did_you_mean(workload, BUILT_IN)
        if (spelt := _spelt(workload)) is not None:
            near_by = f"; did you mean {spelt!r}?"
        raise UsageError(f"no workload {workload!r}{near_by}", hint=FORMS)
    if not name or not place:
        raise UsageError(f"workload {workload!r} is incomplete", hint=FORMS)
    if place.endswith(".py") or os.sep in place:
        file = Path(place)
        if not file.is_file():
            hint = "a workload in a file is path/file.py:name"
            raise programs.no_file(file, hint)
        return Target(file=file.resolve(), name=name)
    if not all(part.isidentifier() for part in place.split(".")):
        raise UsageError(f"{place!r} is not a module name", hint=FORMS)
    return Target(module=place, name=name)


def refuse_from_its_text(workload: str) -> None:
    """Raises UsageError for what would fail before its first line ran: a module that is not there,
    a file, or a module's file, with a syntax error (in Python's own words), or one whose text does
    not hold the name."""
    file = _file_of(workload)
    target = None
    if not programs.is_program(workload):
        target = find(workload)
    if target is not None and target.module:
        _refuse_a_missing_package(target)
    if file is None:
        return
    try:
        text = file.read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python says them again when it runs the file
            code = compile(text, str(file), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:  # ValueError: null bytes, before Python 3.12
        said = "".join(traceback.format_exception_only(error)).rstrip()
        raise UsageError(f"Python cannot read {file}\n{said}") from None
    except (OSError, RecursionError, MemoryError):
        return  # who runs it will say so
    if target is None:
        return
    if not _may_bind(file, text, target.name):
        raise _lacks(target, target.name.partition(".")[0], code.co_names)
    words = set(_WORDS.findall(importlib.util.decode_source(text)))
    if not words & _BINDS_UNSEEN and (why := no_step(text.decode(errors="replace"), target.name)):
        raise UsageError(f"{target.place}:{target.name} {why}", hint=_STEP)


def _spelt(workload: str) -> str | None:
    """A workload that is there, of which this may be another spelling: ``model`` and ``model.step``
    of a file model.py, ``model.py::step``."""
    file, _, name = workload.partition("::")
    if name.isidentifier() and Path(file).is_file():
        return f"{file}:{name}"
    module, _, name = workload.rpartition(".")
    for place, end in ((workload, ""), (module, f":{name}")):
        file = f"{place.replace('.', os.sep)}.py"
        if place and Path(file).is_file():
            return file + end
    return None


def _refuse_a_missing_package(target: Target) -> None:
    top = target.module.partition(".")[0]
    is_there = top in sys.modules or programs.spec_of(top) is not None
    if not is_there and importlib.util.find_spec(top) is None:
        raise _no_module(top)


def _may_bind(file: Path, data: bytes, name: str) -> bool:
    """Whether the text holds the first part of the name, or a word by which a module gets names
    that do not stand in it. A package has its modules, too."""
    if file.name == "__init__.py" or not name.isascii():
        return True
    text = importlib.util.decode_source(data)
    words = set(_WORDS.findall(text))
    has_all = _ALL.search(text) is not None
    return name.partition(".")[0] in words or bool(words & _BINDS_UNSEEN) or has_all


def _lacks(target: Target, part: str, known: Iterable[str]) -> UsageError:
    near = did_you_mean(part, known)
    hint = "give a function without arguments, or an object with strategies"
    if part == "main" and target.file is not None:
        hint += f"; of a script the file alone: {os.path.relpath(target.file)}"
    return UsageError(f"{target.place} has no {target.name!r}{near}", hint=hint)


def _no_module(name: str) -> UsageError:
    hint = f"searched {os.getcwd()} and sys.path; a file is path/file.py:name"
    return UsageError(f"no module named {name!r}", hint=hint)


def _file_of(workload: str) -> Path | None:
    """The source of what is named; None of a built-in, and where it is not known."""
    if workload in BUILT_IN:
        return None
    if programs.is_program(workload):
        program = programs.find(workload)
        return program.file or programs.source_of(program.module)
    target = find(workload)
    if target is None or target.file is not None:
        return None if target is None else target.file
    return programs.source_of(target.module)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Empty where nothing known is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def options_given(
    command: click.Command, name: str, args: Sequence[str], hint: str, **how: Any
) -> dict[str, Any]:
    """The options of a built-in that are among ``args``; nothing is printed. Raises UsageError."""
    try:
        context = command.make_context(name, list(args), **how)
    except click.NoSuchOption as error:
        near = did_you_mean(
            error.option_name, [spelt for known in command.params for spelt in known.opts]
        )
        raise UsageError(f"no option {error.option_name!r}{near}", hint=hint) from None
    except click.UsageError as error:
        text = error.format_message()
        raise UsageError(text[:1].lower() + text[1:].removesuffix("."), hint=hint) from None
    return {
        option: value
        for option, value in context.params.items()
        if value is not None and value is not False
    }


def check_arguments(workload: str, args: Sequence[str]) -> None:
    """Raises UsageError for a built-in's wrong options before a child is started for them."""
    if workload in catalog.EXAMPLES:
        catalog.shapes_of(workload, args)
    elif workload in BUILT_IN:
        _evaluator("options").parse(args)


def asks_for_help(workload: str, args: Sequence[str]) -> bool:
    """``-- --help``; a user's own workload gets its arguments untouched."""
    return workload in BUILT_IN and any(arg in ("--help", "-h") for arg in args)


def help_text(workload: str) -> str:
    """What ``kgprof profile WORKLOAD -- --help`` prints."""
    if workload in catalog.EXAMPLES:
        return catalog.help_text(workload)
    text: str = _evaluator("options").help_text()
    return text


def listing() -> Iterator[tuple[str, str, str]]:
    """Of each built-in its name, what it shows, and the document that it comes from."""
    evaluator = _evaluator("options")
    yield catalog.EVALUATOR, evaluator.SHOWS, evaluator.SOURCE
    for name, example in catalog.EXAMPLES.items():
        yield name, example.shows, example.source


def evaluate(args: Sequence[str]) -> tuple[str, int]:
    """What the built-in evaluator prints when it is run alone, and its exit code. Help needs no
    torch."""
    wanted = {"-h", "--help"}
    if wanted & set(args):
        return _evaluator("evaluation_options").parse(args), 0
    answer: tuple[str, int] = _evaluator("evaluation").main(args)
    return answer


def datasets(form: str) -> str:
    """The graphs that the evaluator has, each with its counts, licence and source."""
    text: str = _evaluator("datasets").listing(form)
    return text


def _evaluator(part: str) -> ModuleType:
    """``options`` has parse(args) and help_text(), ``workload`` build(args, seed)."""
    return importlib.import_module(f"kgprof.workloads.{catalog.EVALUATOR}.{part}")


# ---------------------------------------------------------------- from here on with torch


def load(workload: str, args: Sequence[str], seed: int) -> Workload:
    """Raises UsageError for a name that is not there, WorkloadError (with its cause) for a module
    that raises."""
    target = find(workload)
    if programs.is_program(workload):
        return programs.ProgramWorkload(workload)
    if workload in catalog.EXAMPLES:
        from kgprof.workloads.example import ExampleWorkload

        return ExampleWorkload(workload, args, seed)
    if target is None:
        built: Workload = _evaluator("workload").build(args, seed)
        return built
    from kgprof.workloads import user

    sys.argv = [target.place, *args]
    module = _imported(target)
    return user.as_workload(_attribute(module, target), name=workload, module=module)


def is_comparable(workload: Workload, runs: Sequence[m.RunKey]) -> bool:
    """Whether an AGREEMENT child has something to do: a reference of the workload's own, or two
    runs."""
    from kgprof.workloads import protocol, user

    if isinstance(workload, user.UserWorkload):
        return len(runs) > 1 and workload.baseline(runs) is not None
    return isinstance(workload, protocol.ComparableWorkload)


def _imported(target: Target) -> ModuleType:
    try:
        if target.file:
            return _import_file(target.file)
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(target.module)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        # A module that is missing itself, or a package above it; one that *it* imports is its own
        # failure.
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and target.module and f"{target.module}.".startswith(f"{missing}."):
            raise _no_module(missing) from None
        place = str(target.file) if target.file else f"module {target.module}"
        first = next(iter(str(error).strip().splitlines()), "")
        raise WorkloadError(
            f"{place} raised {type(error).__name__} while it was imported: {first}"
        ) from error


def _import_file(file: Path) -> ModuleType:
    sys.path.insert(0, str(file.parent))
    # Its stem is its name, so that what it defines can be pickled; but it must not hide a module
    # that is already in.
    name = file.stem
    if not name.isidentifier() or name in sys.modules:
        name = "kgprof_workload"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} is not a Python file", hint=FORMS)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _attribute(module: ModuleType, target: Target) -> Any:
    found: Any = module
    for part in target.name.split("."):
        if not hasattr(found, part):
            members = getattr(found, "__dict__", ())
            raise _lacks(target, part, [name for name in members if not name.startswith("_")])
        found = getattr(found, part)
    return found
