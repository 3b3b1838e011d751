"""The terms on which kgprof works in a process that is a program's: what the program has put into
the standard library, its umask and its soft limits do not hold for what kgprof writes.

Imported before the program runs.
"""

from __future__ import annotations

import builtins
import os
import resource
import sys
from resource import getrlimit, setrlimit  # a program's own calls are preceded by a write
from types import ModuleType
from typing import Any, Self

LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_DATA)
DELETED = object()
REPLACED_HERE = ("_exit", "execv", "execve", "setrlimit", "system")  # by kgprof
ONLY = ("exc_info", "_getframe")  # of sys: a program's hooks are there


def _kept(module: ModuleType) -> dict[str, Any]:
    """What can be called, and of those that every line uses all names."""
    if module is sys:
        return {name: getattr(sys, name) for name in ONLY}
    whole = module in (builtins, os)
    return {
        name: value
        for name, value in vars(module).items()
        if (whole or callable(value)) and name not in REPLACED_HERE
    }


ORIGINALS = tuple(
    (vars(module), _kept(module))
    for name, module in tuple(sys.modules.items())
    if name.partition(".")[0] in sys.stdlib_module_names
)
UMASK = os.umask(0o077)  # before the program; it can only be read by being set
os.umask(UMASK)


class OwnTerms:
    """A class, because contextlib calls builtins before anything is put back."""

    def __enter__(self) -> Self:
        replaced: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for names, known in ORIGINALS:
            theirs = {
                name: now
                for name, value in known.items()
                if (now := names.get(name, DELETED)) is not value
            }
            if theirs:
                names.update(known)
                replaced.append((names, theirs))
        self._replaced = replaced
        self._limits = {what: getrlimit(what) for what in LIMITS}
        self._umask = os.umask(UMASK)
        for what, (_, most) in self._limits.items():
            setrlimit(what, (most, most))
        return self

    def __exit__(self, *_: object) -> None:
        os.umask(self._umask)
        for what, limits in self._limits.items():
            setrlimit(what, limits)
        for names, theirs in self._replaced:
            for name, value in theirs.items():
                if value is DELETED:
                    del names[name]
                else:
                    names[name] = value
