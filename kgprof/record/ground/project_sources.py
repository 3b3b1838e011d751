"""What a Recording must hold so that it can be read elsewhere: source text, break registry, library
folders.

Everything here is read once, after the calls of the COMPILE pass.
"""

import hashlib
import importlib.util
import json
import os
import platform
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import kgprof
from kgprof import model as m
from kgprof.errors import KgprofError
from kgprof.reading.files import content
from kgprof.reading.project import STANDARD_LIBRARY, ProjectFiles
from kgprof.workloads import loading, programs

FILE_BYTES = 256 * 1024  # of one source file
TEXT_BYTES = 4 * 2**20  # of all of them together
# not imported for this
TORCH = Path(getattr(importlib.util.find_spec("torch"), "origin", None) or "torch").parent
REGISTRY = TORCH / "_dynamo" / "graph_break_registry.json"

_GB_ID = re.compile(r"/gb/gb(\d+)\.html")
_IN_A_STACK = re.compile(r'File "([^"\n]+)", line \d+')

Line = Mapping[str, Any]


# ---------------------------------------------------------------- whose files are whose


def project_files(workload: str) -> ProjectFiles:
    """The libraries of this interpreter; the workload's folder (or package) is the project's
    wherever it lies."""
    package = Path(kgprof.__file__).resolve().parent
    paths = sysconfig.get_paths()
    libraries = [
        *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
        str(TORCH),
        str(package),
        *filter(
            None, (os.environ.get("TORCHINDUCTOR_CACHE_DIR"), os.environ.get("TRITON_CACHE_DIR"))
        ),
    ]
    built_in = (str(package / "workloads" / name) for name in ("linkpred", "examples"))
    own = [*built_in, *_workload_folders(workload, libraries)]
    elsewhere = [
        entry
        for entry in _installed_elsewhere()
        if not any(Path(each).is_relative_to(entry) for each in own)
    ]
    return ProjectFiles(
        libraries=_both_spellings([*libraries, *elsewhere]), own=_both_spellings(own)
    )


def _installed_elsewhere() -> Iterator[str]:
    """The folders on sys.path into which pip installed something (``pip install --target``),
    whatever their name. The sources of an editable package lie elsewhere: they are their owner's.
    """
    for entry in filter(None, sys.path):
        with suppress(OSError):
            if next(Path(entry).glob("*.dist-info"), None) is not None:
                yield str(Path(entry).absolute())


def _folder_of(file: Path, libraries: Sequence[str]) -> str:
    """The file's folder, or the file alone where libraries lie beside it."""
    folder = file.absolute().parent
    among_libraries = folder.name in ("site-packages", "dist-packages") or str(
        folder
    ) in _both_spellings(libraries)
    return str(file.absolute()) if among_libraries else str(folder)


def _workload_folders(workload: str, libraries: Sequence[str]) -> Iterator[str]:
    try:
        target = loading.find(workload)
        if programs.is_program(workload):
            program = programs.find(workload)
            yield from (
                programs.folders(program)
                if program.file is None
                else [_folder_of(program.file, libraries)]
            )
    except KgprofError:  # a name that only a test knows
        return
    if target is None:
        return
    if target.file is not None:
        yield _folder_of(target.file, libraries)
        return
    top = sys.modules.get(target.module.partition(".")[0])
    yield from getattr(top, "__path__", ())
    if not hasattr(top, "__path__") and (file := getattr(top, "__file__", None)):
        yield file


def _both_spellings(folders: Iterable[str]) -> tuple[str, ...]:
    """As Python spells them and with symbolic links resolved: a code object may have either."""
    return tuple(
        dict.fromkeys(
            spelling for folder in folders for spelling in (folder, os.path.realpath(folder))
        )
    )


# ---------------------------------------------------------------- what the reader will need


def gather(
    lines: Iterable[Line],
    project: ProjectFiles,
    *,
    recorded_here: bool = True,
    imported: bool = False,
) -> m.Sources:
    """The text of every project file that ``lines`` name (``imported``: and of every module of the
    project that is imported), the registry entries of the GB ids in them and, if they were
    ``recorded_here``, the versions of the packages whose files they name."""
    named: dict[str, None] = {}
    ids: dict[str, None] = {}
    for line in lines:
        frame, told, payload = (
            line.get("frame", {}),
            line.get("metadata", {}),
            line.get("payload") or "",
        )
        interned = str(told["str"][0]) if told.get("str") else ""
        stack = (place["file"] for place in frame.get("stack", ()))
        files = (frame.get("file", ""), interned, *stack, *_IN_A_STACK.findall(payload))
        named |= dict.fromkeys(filter(None, files))
        failed = str((told.get("compilation_metrics") or {}).get("fail_reason") or "")
        texts = (payload, frame.get("text", ""), failed)
        ids |= dict.fromkeys(f"GB{number}" for text in texts for number in _GB_ID.findall(text))
    # behind what records name: a setting that a change of a default altered is in none of them
    if imported:
        named |= dict.fromkeys(filter(project.holds, imported_files()))
    return replace(
        of_files(named, project, recorded_here=recorded_here), registry=dict(_registry_entries(ids))
    )


def imported_files() -> Iterator[str]:
    """Yield the Python file of each module that is imported."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and file.endswith(".py"):
            yield file


@cache
def _package_and_version(imported: str) -> str:
    """``transformers 4.57.1``; empty for what no distribution is known to hold."""
    if imported == STANDARD_LIBRARY:
        return f"{STANDARD_LIBRARY} {platform.python_version()}"
    # the program emptied sys.modules, and nothing can be imported any more
    with suppress(ImportError, AttributeError):
        for name in _distributions_of(imported):
            try:
                found = metadata.distribution(name)
            # a distribution of another name; an empty name
            except (metadata.PackageNotFoundError, ValueError):
                continue
            return f"{found.metadata['Name']} {found.version}"
    return ""


def _distributions_of(imported: str) -> Iterator[str]:
    """Most have the name that they are imported by; only for others all are looked through."""
    if imported:
        yield imported
        yield from distributions().get(imported, ())


@cache
def distributions() -> Mapping[str, Sequence[str]]:
    """Of each name that can be imported, the distributions that hold it. The first call takes a
    third of a second."""
    return metadata.packages_distributions()


@cache
def started_in() -> Path:
    """The working directory at the first call; a program may leave it, or remove it."""
    return Path.cwd()


def of_files(
    files: Iterable[str], project: ProjectFiles, *, recorded_here: bool = True
) -> m.Sources:
    """The text of those among ``files`` that are the project's, and the versions of the others'
    packages."""
    named = dict.fromkeys(files)
    libraries = (
        {project.package(file)[0] for file in named if not project.holds(file)}
        if recorded_here
        else ()
    )
    return m.Sources(
        libraries=project.libraries,
        own=project.own,
        files=dict(_read_all(filter(project.holds, named), recorded_here)),
        packages={
            name: version for name in sorted(libraries) if (version := _package_and_version(name))
        },
    )


def _read_all(files: Iterable[str], recorded_here: bool) -> Iterator[tuple[str, m.SourceFile]]:
    """What somebody else's records name is read where it is Python below the working directory, or
    in its repository: they could name any file of this machine."""
    room = TEXT_BYTES
    here = started_in()
    within = None if recorded_here else _repository((here, *here.parents)) or here
    for file in files:
        if not recorded_here and not file.endswith(".py"):
            continue
        try:
            data = content(Path(file), within=within)
        except OSError:  # a stack may name what is no file (a notebook's cell) or is gone by now
            continue
        limit = min(FILE_BYTES, room)
        # Git's top folder above it; where there is none the working directory stands for it (a copy
        # in an image).
        above = Path(file).parents
        top = _repository(above) or (here if here in above else "")
        fits = len(data) <= limit
        source = m.SourceFile(
            sha256=hashlib.sha256(data).hexdigest(),
            text=data.decode("utf-8", errors="replace") if fits else None,
            left_out="" if fits else f"{len(data)} bytes, more than the {limit} still allowed",
            repository=str(top),
        )
        room -= len(source.text or "")
        yield file, source


def _repository(folders: Iterable[Path]) -> Path | None:
    """Return the first of the folders that is Git's top folder."""
    return next((folder for folder in folders if (folder / ".git").exists()), None)


def _registry_entries(ids: Iterable[str]) -> Iterator[tuple[str, m.RegistryEntry]]:
    """torch's file holds a list an id, the newest wording first."""
    wanted = list(ids)
    registry = (
        json.loads(REGISTRY.read_text(encoding="utf-8")) if wanted and REGISTRY.is_file() else {}
    )
    for gb_id in wanted:
        for newest in registry.get(gb_id, ())[:1]:
            kind = newest.get("Gb_type", "")
            explanation = newest.get("Explanation", "")
            yield (
                gb_id,
                m.RegistryEntry(kind, explanation, tuple(newest.get("Hints", ()))),
            )
