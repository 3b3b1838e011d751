"""Which files are the project's own: a finding about compilation never points anywhere else.

A library is what lies in the standard library, in a site-packages folder, in torch or in kgprof.
Everything else that is a file is the project's, and so are the folders named as its own (the
workload's, and kgprof's evaluator, which is a workload like any other). Where one lies in the
other, the deeper folder decides.
"""

import functools
import posixpath
import re
from collections.abc import Iterable

import msgspec

_SEPARATORS = "/\\"
_INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages(?=[/\\])")
_STANDARD = re.compile(r".*[/\\]python3(?:\.\d+t?)?(?:\.zip)?(?=[/\\])")
# a module of Inductor's: named by a hash, in a folder named by two of its letters, wherever the
# cache lies
_GENERATED = re.compile(r".*[/\\]([a-z2-7]{2})[/\\]c\1[a-z2-7]{40,}\.py")
STANDARD_LIBRARY = "Python"
# what IPython compiles a cell under; a notebook's kernel has files for them
_CELL = "<ipython-input-"
# packages (by ``package``) whose lines say nothing about a program
TOOLS = ("", STANDARD_LIBRARY, "torch", "kgprof")


class ProjectFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Folders (or single files), absolute and without a separator at their end."""

    libraries: tuple[str, ...]
    own: tuple[str, ...] = ()

    def holds(self, file: str) -> bool:
        """Whether ``file``, as a code object or a stack names it, is the project's."""
        return _holds(self, file)

    def named(self, file: str, repositories: Iterable[str] = ()) -> str:
        """``file`` as every checkout and every environment names it: the project's from the top of
        its repository, or of the folder that was said to be its own; a library's from the folder
        that it is installed in."""
        if not posixpath.isabs(file):
            return file
        if self.holds(file):
            top = _deepest(file, repositories) or _deepest(file, self.own)
        else:
            top = max(_deepest(file, self.libraries), _installed(file))
        return (
            (file[top:].lstrip(_SEPARATORS) or posixpath.basename(file)).replace("\\", "/")
            if top
            else file
        )

    def package(self, file: str) -> tuple[str, str]:
        """The name that a library's file is imported under (STANDARD_LIBRARY for Python's own) and
        the file below that package's folder; an empty name where it is not known."""
        if not posixpath.isabs(file):
            return "", file
        installed = _installed(file)
        library = _deepest(file, self.libraries)
        if not installed and (standard := _STANDARD.match(file)):
            return STANDARD_LIBRARY, file[standard.end() :].lstrip(_SEPARATORS)
        name, _, below = (
            file[installed or library :].lstrip(_SEPARATORS).replace("\\", "/").partition("/")
        )
        if installed:
            return (name, below) if below else (name.partition(".")[0], name)
        folder = posixpath.basename(file[:library])
        return (folder, posixpath.join(name, below).rstrip("/")) if library else ("", file)


@functools.lru_cache(maxsize=100_000)
def _holds(project: ProjectFiles, file: str) -> bool:
    """Every run asks for each of the three thousand modules that torch imports."""
    if not posixpath.isabs(file):
        # "<string>", "<frozen importlib>", "<eval_with_key>.3"; "<stdin>" if it is said so
        return file in project.own or file.startswith(_CELL)
    if _GENERATED.fullmatch(file):
        return False
    library = max(_deepest(file, project.libraries), _installed(file))
    return not library or _deepest(file, project.own) >= library


def _deepest(file: str, folders: Iterable[str]) -> int:
    """Length of the longest of ``folders`` that ``file`` is or lies in; 0 for none."""
    return max(
        (len(folder) for folder in folders if file == folder or file.startswith(f"{folder}/")),
        default=0,
    )


def _installed(file: str) -> int:
    found = _INSTALLED.match(file)
    return found.end() if found else 0
