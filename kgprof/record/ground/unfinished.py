"""A result in the making: in a folder beside the older result, and put in its place at the end.

One process holds that folder, by a lock that ends with it. After a SIGKILL the older result stands,
and ``kgprof report`` reads what was measured from the unfinished folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from kgprof.errors import OutputError, UsageError, remedy
from kgprof.reading import files
from kgprof.reading.layout import FOLDER, HEADER, PARTIAL, REPORTS, UNFINISHED

LOCK = "lock"  # in the unfinished folder; names the process that holds it
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h
_OPENED = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
DEFAULT = Path("reports")  # where a report is put that has no -o
NOT_IN_GIT = "# Recordings hold paths, output and source lines of the programs that were run.\n*\n"


def refuse_overwriting(
    inputs: Iterable[Path], outputs: Iterable[Path], recording: Path | None = None
) -> None:
    """Raises UsageError where an input is an output or lies in one, by whatever links, or an output
    in ``recording`` (in which reports may stand). To be called before anything is written."""
    given = list(inputs)
    kept = (
        [one for one in recording.glob("*") if one.name not in REPORTS]
        if recording is not None
        else []
    )
    given += [*kept, *(file for one in kept for file in one.rglob("*") if file.is_file())]
    for output in outputs:
        place = Path(os.path.realpath(output))  # Path.resolve raises at a loop of links
        for path in given:
            real = Path(os.path.realpath(path))
            why = ""
            if real == place or (path.exists() and place.exists() and path.samefile(place)):
                why = "would be overwritten"
            elif place in real.parents:
                why = f"is inside {output}, which would be replaced"
            elif path in kept and real in place.parents:
                why = f"is an input, and {output} would be written into it"
            if why:
                raise UsageError(f"{path} {why}", hint="choose another place to write to")


def results(path: Path) -> list[Path]:
    """The reports in a folder; a file is its own."""
    return [path / name for name in REPORTS] if path.is_dir() else [path]


def refuse_in_the_way(output: Path, names: Sequence[str] = REPORTS) -> None:
    """Raises UsageError where ``output`` holds what a result would replace, and that is no result.
    ``names``: the result's files, REPORTS beside a Recording, or others whose JSON names the kgprof
    that wrote it."""
    if names == REPORTS:
        names, own, whose = (
            (FOLDER, *REPORTS),
            (output / FOLDER / HEADER).is_file(),
            "a Recording's",
        )
    else:
        written = (output / name for name in names if name.endswith(".json"))
        own = any(map(_names_kgprof, written))
        whose = "an earlier result's"
    for name in names:
        if (output / name).exists() and not own:
            raise UsageError(
                f"{output / name} already exists and is not {whose}",
                hint="choose another folder with -o",
            )


def _names_kgprof(path: Path) -> bool:
    try:
        written = files.json_object(files.content(path))
    except OSError:
        return False
    environment = written.get("environment")
    return "schema_version" in written and isinstance(environment, dict) and "kgprof" in environment


class Unfinished:
    """The unfinished folder of ``output``, from the lock to ``finish``.

    Left without ``finish`` it stays, if a Recording has begun in it and is ``worth_keeping`` (it
    cannot be made again from what it was read from). Raises UsageError where ``output`` cannot be
    written or another process writes there.
    """

    def __init__(self, output: Path, *, worth_keeping: bool = True) -> None:
        self.output = output
        self.folder = output / UNFINISHED
        self.recording = self.folder / FOLDER
        self._worth_keeping = worth_keeping
        self._made: list[Path] = []
        self._lock = -1
        self._stale: os.stat_result | None = None  # the header that a killed process left

    @property
    def begun(self) -> bool:
        """Whether a Recording has been begun since this folder was entered."""
        header = self.recording / HEADER
        return header.is_file() and not (
            self._stale and os.path.samestat(header.stat(), self._stale)
        )

    def __enter__(self) -> Unfinished:
        self._made = [
            folder for folder in (self.output, *self.output.parents) if not folder.exists()
        ]
        try:
            while not self._is_here():  # another run's end took the folder away
                self.folder.mkdir(parents=True, exist_ok=True)
                self._lock = os.open(self.folder / LOCK, _OPENED, 0o644)
                self._hold()
            os.ftruncate(self._lock, 0)
            os.write(self._lock, str(os.getpid()).encode())
            if (self.recording / HEADER).is_file():
                self._stale = (self.recording / HEADER).stat()
        except OSError as error:
            self.__exit__()
            hint = remedy(error, "choose a writable folder with -o")
            raise OutputError(
                f"cannot write to {self.output}: {error.strerror or error}", hint=hint
            ) from error
        return self

    def _hold(self) -> None:
        if sys.platform == "win32":
            return
        import fcntl

        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._lock, 32).decode()
            raise UsageError(
                f"another kgprof (process {holder}) is writing to {self.output}",
                hint="wait until it ends, or choose another folder with -o",
            ) from None
        except OSError:
            return  # a file system without locks

    def _is_here(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.folder / LOCK), os.fstat(self._lock))
        except OSError:
            return False

    def check(self) -> None:
        """Raises UsageError where the folder is no longer the one that was begun, and says where
        that is now."""
        if self._is_here():
            return
        hint = "run again"
        with contextlib.suppress(OSError):  # only Linux says where
            now = Path(os.readlink(f"/proc/self/fd/{self._lock}")).parent
            if (now / FOLDER / HEADER).is_file():
                hint = f"what was measured is in {now}: kgprof report {shlex.quote(str(now))}"
        raise UsageError(
            f"{self.folder} was moved, deleted or replaced while kgprof wrote to it", hint=hint
        )

    def finish(self) -> Path:
        """Put everything that is whole in its place, the Recording first; what stood there is
        deleted last, and with an older Recording a report that this one has none of. Returns
        ``output``.

        Raises UsageError where the folder has changed or cannot be moved. What stood there is put
        back then; where that fails too the older Recording stays in the unfinished folder.
        """
        self.check()
        put: list[tuple[Path, Path]] = []
        try:
            whole = [
                entry
                for entry in self.folder.iterdir()
                if entry.name != LOCK and not entry.name.startswith(PARTIAL)
            ]
            whole.sort(key=lambda entry: (entry.name != FOLDER, entry.name))
            names = {entry.name for entry in whole}
            moves = [(entry, self.output / entry.name) for entry in whole]
            if (self.recording / HEADER).is_file():
                older = (self.output / name for name in REPORTS if name not in names)
                moves += [(file, self.folder / file.name) for file in older if file.exists()]
            if (self.output / FOLDER / HEADER).is_file():
                self._stale = (self.output / FOLDER / HEADER).stat()
            for move in moves:
                _exchange(*move)
                put.append(move)
        except OSError as error:
            with contextlib.suppress(OSError):
                for entry, place in reversed(put):
                    _exchange(place, entry)
            raise OutputError(
                f"cannot replace what is in {self.output}: {error.strerror}",
                hint=remedy(error, "choose a writable folder with -o"),
            ) from error
        shutil.rmtree(self.folder, ignore_errors=True)
        return self.output

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # what somebody else put there stays
            if self._is_here():
                if not (self.recording / HEADER).is_file() or (
                    self.begun and not self._worth_keeping
                ):
                    shutil.rmtree(self.recording, ignore_errors=True)
                if {entry.name for entry in self.folder.iterdir()} == {LOCK}:
                    (self.folder / LOCK).unlink()
                self.folder.rmdir()
        with contextlib.suppress(OSError):
            for folder in self._made:
                folder.rmdir()
        self._keep_out_of_git()
        if self._lock >= 0:
            os.close(self._lock)

    def _keep_out_of_git(self) -> None:
        """The folder of all reports, where this one was the first in it."""
        if DEFAULT not in self._made or not DEFAULT.is_dir():
            return
        ignoring = DEFAULT / ".gitignore"
        # another one may just have done it
        with contextlib.suppress(OSError), ignoring.open("x", encoding="utf-8") as file:
            file.write(NOT_IN_GIT)


def _exchange(new: Path, old: Path) -> None:
    """At once where the system can; elsewhere the older one lies beside the new one for a
    moment. Where nothing is in one of the places it is moved to."""
    if not os.path.lexists(new):
        new, old = old, new
    if not os.path.lexists(old):
        new.replace(old)
        return
    exchange = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if (
        exchange
        and exchange(AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(old), RENAME_EXCHANGE) == 0
    ):
        return
    older = new.with_name(f"older-{new.name}")
    old.rename(older)
    try:
        new.rename(old)
    except OSError:
        older.rename(old)
        raise
    older.rename(new)
