"""What in a folder of somebody's may be meant where no workload is named."""

import ast
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from kgprof.reading import files
from kgprof.reading.compile_calls import first_compile, uncalled

MOST = 5  # that are offered
_LOOKED_AT = 2000  # files
_LARGEST_BYTES = 2**20
_EXAMPLE = Path("kgprof", "workloads", "linkpred", "__init__.py")


def has_the_example(folder: Path) -> bool:
    """Tell whether it is a checkout of kgprof's own, whose example linkpred is."""
    return (folder / _EXAMPLE).is_file()


def workloads_in(folder: Path) -> list[str]:
    """Return, of the files that call torch.compile, each function that the file itself never calls,
    as path/file.py:name, and else the file if it is a script; the first few, by their paths."""
    found = (name for file in islice(_files(folder), _LOOKED_AT) for name in _of_file(file, folder))
    return list(islice(found, MOST))


def _of_file(file: Path, folder: Path) -> list[str]:
    try:
        text = files.content(file, _LARGEST_BYTES, folder).decode()
    except (OSError, UnicodeDecodeError):  # nothing that could be offered
        return []
    if first_compile(text) is None:
        return []
    path = file.relative_to(folder).as_posix()
    functions = [f"{path}:{name}" for name in uncalled(text)]
    if functions or not _does_something(text):
        return functions
    return [path]


def _does_something(text: str) -> bool:
    """Tell whether a file runs more than its imports and definitions."""
    if "__main__" in text:
        return True
    body = ast.parse(text).body
    calls = any(isinstance(each, ast.Expr) and isinstance(each.value, ast.Call) for each in body)
    return calls or any(isinstance(each, ast.For | ast.While) for each in body)


def _files(folder: Path) -> Iterator[Path]:
    """Its Python files, without those of tests, of installed packages and in hidden folders."""
    for path, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if _is_looked_into(Path(path, name)))
        yield from (Path(path, name) for name in sorted(names) if name.endswith(".py"))


def _is_looked_into(folder: Path) -> bool:
    is_installed = (folder / "pyvenv.cfg").exists() or folder.name == "site-packages"
    return not (is_installed or folder.name.startswith(".") or folder.name == "tests")
