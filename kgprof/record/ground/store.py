"""Writes a Recording: every file beside its name, and renamed into place. The layout is
kgprof.reading.layout."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kgprof import model as m
from kgprof.errors import InputError, OutputError, UsageError, remedy
from kgprof.reading.layout import (
    FOLDER,
    HEADER,
    PARTIAL,
    PLAN_LOG,
    PRIVATE,
    REPORTS,
    RESULT,
    exit_name,
    run_folder,
)

if TYPE_CHECKING:  # the parent and the reader need no arrays
    import numpy as np

_PRIVATE_TEXT = """\
This folder is a kgprof Recording, and nothing in it is redacted: source files, logs, command lines,
traces, names of this machine and its user. Show others the report.html or report.json that
`kgprof report` makes from it.
"""


def clear(output: Path) -> None:
    """Remove the older Recording and its reports from a claimed folder. Raises OutputError."""
    try:
        if (output / FOLDER).exists():
            shutil.rmtree(output / FOLDER)
        for name in (*REPORTS, PLAN_LOG):
            (output / name).unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(
            f"cannot replace the Recording in {output}: {error.strerror or error}"
        ) from error


def create(folder: Path, header: m.RecordingHeader) -> None:
    """Start a Recording in ``folder``. Raises UsageError when it already holds one, OutputError."""
    if (folder / HEADER).exists():
        raise UsageError(
            f"{folder} already holds a Recording",
            hint=("choose another folder with -o, or remove this one"),
        )
    with contextlib.suppress(OSError):  # the first file says why
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(folder / HEADER, header)
    write_export(folder / PRIVATE, _PRIVATE_TEXT.encode())


def write_json(path: Path, value: object) -> None:
    """A Struct, or a tuple of them, in place at once. Raises OutputError when it cannot be
    written."""
    write_export(path, m.encode_json(value))


def write_pass(folder: Path, key: m.RunKey, name: m.PassName, value: m.Model) -> None:
    write_json(run_folder(folder, key) / f"{name}.json", value)


def write_exit(folder: Path, key: m.RunKey, value: m.Exit, *, probe: bool = False) -> None:
    """How child A (or child B, with ``probe``) of a run ended."""
    write_json(run_folder(folder, key) / exit_name(probe), value)


def write_reports(folder: Path, texts: Mapping[str, str]) -> None:
    """Rendered reports by their names, in place when all of them are written. Raises
    OutputError."""
    with contextlib.ExitStack() as stack:
        for name, text in texts.items():
            stack.enter_context(replacing(folder / name)).write_bytes(
                text.encode("utf-8", errors="replace")
            )


def write_export(path: Path, data: bytes) -> None:
    """In place at once. Raises OutputError when it cannot be written."""
    with replacing(path) as partial:
        partial.write_bytes(data)


def write_private(folder: Path, begins: str, text: str) -> str:
    """Writes a new file that nobody else can read, under a name that nobody can know before, and
    returns its path. Raises OSError."""
    descriptor, path = tempfile.mkstemp(".txt", begins, folder)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return path


def copy_trace(source: Path, path: Path) -> None:
    """Byte for byte. Raises OutputError when it cannot be written, InputError when it cannot be
    read."""
    try:
        file = source.open("rb")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=source) from error
    with file, replacing(path) as partial, partial.open("wb") as copy:
        shutil.copyfileobj(file, copy)


def write_result(
    folder: Path, key: m.RunKey, arrays: Mapping[str, np.ndarray], *, compressed: bool = True
) -> None:
    """``result.npz``: the names as one array, because any text is a name, and then the arrays in
    that order."""
    import numpy as np

    stored = {f"array_{index}": array for index, array in enumerate(arrays.values())}
    with replacing(run_folder(folder, key) / RESULT) as partial:
        names = np.asarray(list(arrays), dtype=np.str_)
        save = np.savez_compressed
        if not compressed:  # in a tenth of the time
            save = np.savez
        save(partial, names=names, **stored)  # type: ignore[arg-type]


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to that becomes ``path`` when the block ends well, and vanishes when it does
    not.

    What is no file (/dev/null, a named pipe) is written to as it is: to replace it would take it
    from everybody. Raises OutputError, in the system's words, when the place cannot be written or
    the disk is full.
    """
    # The suffix is kept: numpy and torch.profiler choose the format by it.
    stream = is_stream(path)
    partial = path if stream else path.with_name(f"{PARTIAL}{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not stream:
            partial.unlink(missing_ok=True)  # a link there would be followed
        yield partial
        if not stream:
            partial.replace(path)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}",
            hint=remedy(error, "free some disk space, or choose a writable place"),
        ) from error
    finally:
        if not stream:
            with contextlib.suppress(OSError):  # the error above says it
                partial.unlink(missing_ok=True)


_OPEN = ("/dev/fd/", "/proc/")


def is_stream(path: Path) -> bool:
    """A device, a pipe, or the name of something that is open: /dev/fd/63 may be a file, and keeps
    its name."""
    opened = str(path.absolute()).startswith(_OPEN)
    return opened or (path.exists() and not (path.is_file() or path.is_dir()))
