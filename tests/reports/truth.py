"""The truth beside each program of ``programs/``: NAME.toml says what is true of NAME.py and what a
tool should name.

It is written from torch's own logs and counters before kgprof is run on the program.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

PROGRAMS = Path(__file__).resolve().parent / "programs"


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A finding; ``line`` is 0 where it has no place, ``count`` 0 where any is right."""

    rule: str
    line: int = 0
    count: int = 0


class Program(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One program after a public report."""

    name: str
    situation: str  # one sentence
    after: str = ""  # the thread: "owner/repo#123"
    kind: str  # short name of its family
    start: Literal["step", "script", "both"]
    args: tuple[str, ...] = ()  # more options of check-graphs
    exit: int  # of check-graphs
    findings: tuple[Expected, ...] = ()  # every warning and error
    notes: tuple[Expected, ...] = ()  # notes that have to be there, perhaps beside others
    says: tuple[str, ...] = ()  # regular expressions over what check-graphs prints in a terminal
    never_says: tuple[str, ...] = ()
    healthy: bool = False  # the program is as it should be: no warning and no error
    # regular expressions over any tool's output: one of each list must match
    cause: tuple[str, ...] = ()
    line: int = 0  # that a tool should name
    remedy: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return PROGRAMS / f"{self.name}.py"

    @property
    def starts(self) -> tuple[str, ...]:
        return ("step", "script") if self.start == "both" else (self.start,)

    @property
    def mends_itself(self) -> bool:
        """Whether the program holds its fixed form, which runs where FIX=1 is set."""
        return '"FIX"' in self.path.read_text("utf-8")

    def workload(self, start: str) -> str:
        """The program as check-graphs takes it."""
        return f"{self.path}:step" if start == "step" else str(self.path)


def programs() -> tuple[Program, ...]:
    """All programs, by name. Raises msgspec.ValidationError where a truth is not as it should
    be."""
    return tuple(_program(path) for path in sorted(PROGRAMS.glob("*.toml")))


def _program(path: Path) -> Program:
    written = tomllib.loads(path.read_text("utf-8"))
    return msgspec.convert({"name": path.stem, **written}, Program)
