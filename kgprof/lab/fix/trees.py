"""Copies of an owner's files: every start of the program is in one, and none touches the original.

Copied are the files that git knows or would add; without git all below the folder of the workload's
file. What git ignores (data, checkpoints) is not in a copy.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from kgprof import model as m
from kgprof.errors import UsageError
from kgprof.wording import plural

MOST_BYTES = 512 * 2**20
MOST_FILES = 20_000
GIT_S = 60.0
_NOT_SOURCE = frozenset((".git", ".venv", "venv", "node_modules", "__pycache__"))

# of each file below a folder: its size, and when it was last written
State = Mapping[str, tuple[int, int]]


class Tree(m.Model, kw_only=False):
    """The owner's files: the folder, and their names in it."""

    root: Path
    files: tuple[str, ...]
    has_git: bool
    # what git knows and no copy holds: links to folders, other repositories
    left_out: tuple[str, ...] = ()

    def copy(self, to: Path) -> Path:
        """Make ``to`` hold these files and nothing else. Raises UsageError where one cannot be
        read."""
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        for name in self.files:
            source = self.root / name
            target = to / name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copy2(source, target, follow_symlinks=True)
            except OSError as error:
                why = error.strerror or str(error)
                raise UsageError(
                    f"{source} cannot be copied: {why}",
                    "the program runs in a copy of its folder: make the file readable",
                ) from error
        return to


def tree_of(file: Path) -> Tree:
    """Return the files around the workload's file: without git those below the folder that holds
    its package. Raises UsageError where they are too many or too large to copy."""
    folder = file.parent
    root = _top_of_git(folder)
    if root is None:
        while (folder / "__init__.py").is_file():
            folder = folder.parent
        tree = Tree(folder, tuple(sorted(_names_below(folder))), False)
    else:
        known = _names_git_knows(root)
        files = tuple(name for name in known if (root / name).is_file())
        others = tuple(name for name in known if (root / name).is_dir())
        tree = Tree(root, files, True, others)
    size = sum((tree.root / name).stat().st_size for name in tree.files)
    hint = "put the program into a folder (or a git repository) of its own"
    if size > MOST_BYTES:
        raise UsageError(
            f"{tree.root} holds {size / 2**20:,.0f} MiB, and at most {MOST_BYTES >> 20} are copied",
            hint,
        )
    return tree


def _top_of_git(folder: Path) -> Path | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "--show-toplevel"],
            capture_output=True,
            text=True,
            timeout=GIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None  # no git, or no repository
    return Path(done.stdout.strip()).resolve()


def _names_git_knows(root: Path) -> tuple[str, ...]:
    done = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        timeout=GIT_S,
        check=True,
    )
    names = sorted({os.fsdecode(name) for name in done.stdout.split(b"\0") if name})
    _refuse_many(root, len(names))
    return tuple(names)


def _names_below(root: Path) -> Iterator[str]:
    count = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _NOT_SOURCE)
        for name in names:
            path = Path(folder, name)
            if not path.is_file():
                continue  # a pipe, a socket, a link to nothing
            count += 1
            _refuse_many(root, count)
            yield str(path.relative_to(root))


def _refuse_many(root: Path, count: int) -> None:
    if count > MOST_FILES:
        raise UsageError(
            f"{root} holds more than {plural(MOST_FILES, 'file')}, which are too many to copy",
            "put the program into a folder (or a git repository) of its own",
        )


# ---------------------------------------------------------------- what a start changed


def state_of(root: Path, without: Path | None = None) -> State:
    """Return the size and the time of each file below a folder, without Python's own caches, git's
    and what is below another one."""
    found = {}
    for folder, folders, names in os.walk(root):
        kept = [name for name in folders if name not in (".git", "__pycache__")]
        folders[:] = [name for name in kept if Path(folder, name) != without]
        for name in names:
            path = Path(folder, name)
            try:
                stat = path.lstat()
            except OSError:
                continue  # it was removed meanwhile
            found[str(path.relative_to(root))] = (stat.st_size, stat.st_mtime_ns)
    return found


def changes_between(before: State, after: State) -> Iterator[m.Effect]:
    """Say which files were written, made or removed."""
    for name in sorted({*before, *after}):
        if name not in after:
            yield m.Effect(what="removes", path=name)
        elif name not in before:
            yield m.Effect(what="makes", path=name)
        elif before[name] != after[name]:
            yield m.Effect(what="writes", path=name)
