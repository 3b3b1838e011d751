"""The truth beside each program of ``scripts/``: NAME.toml says what torch does with NAME.py, by
family.

It was written before kgprof saw the program, from ``python -m tests.programs.run_plainly NAME
[--reads]`` and reading.

``breaks``: ``kind`` is "break" (torch goes on behind the line), "rest" (what follows the line runs
in eager), "frame" (the whole function does) or "error" (the program ends there); ``gb`` is torch's
id of the cause, ``records`` how often torch wrote it down, ``by_torch`` that torch's own source
breaks on purpose, which no gate counts. ``recompiles``: one row per function, resumed parts with
it; ``guards`` are the classes of fixtures/corpus/README.md, ``repeats`` where torch would go on
compiling; ``stands_for`` is what the owner calls it where the function is a wrapper's, or a method
that a library defines for the owner's module. ``syncs``: what waits for a GPU if there is one;
uploads from pageable memory apart. ``per`` is how often: "step", "rollout", "call", "evaluation",
"log", "epoch", "once", or "end": after the last step, which kgprof counts in no step.

``line`` is a text in the innermost line of the program (of its ``function``, where several have
it); ``library``, ``function`` and ``text`` name the line in a library. ``gate`` is what
check-graphs has to say by default.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent / "scripts"
KINDS = frozenset({"break", "rest", "frame", "error"})
OFTEN = frozenset({"step", "rollout", "call", "evaluation"})
SELDOM = frozenset({"log", "epoch", "once", "end"})
GATES = frozenset({"pass", "fail", "error"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """The program's innermost lines that lead there, and the library's line if it happens in
    one."""

    lines: frozenset[int]
    library: str = ""  # relative to the folder of the package
    function: str = ""
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Break:
    site: Site
    kind: str
    gb: str
    records: int
    by_torch: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Recompiled:
    function: str
    file: str
    guards: frozenset[str]
    times: int
    repeats: bool = False
    stands_for: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sync:
    site: Site
    op: str
    times: int
    per: str
    only: str = ""  # "cuda" where a run on a CPU cannot show it


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    name: str
    style: str
    needs: tuple[str, ...]
    gate: str
    exit_code: int
    breaks: tuple[Break, ...]
    recompiles: tuple[Recompiled, ...]
    syncs: tuple[Sync, ...]

    @property
    def path(self) -> Path:
        return SCRIPTS / f"{self.name}.py"


def programs() -> tuple[Program, ...]:
    """All programs, by name. Raises ValueError where a truth does not fit its program."""
    return tuple(_program(path) for path in sorted(SCRIPTS.glob("*.toml")))


def _program(path: Path) -> Program:
    written = tomllib.loads(path.read_text("utf-8"))
    source = Source(path.with_suffix(".py"))
    return Program(
        name=path.stem,
        style=written["style"],
        needs=tuple(written.get("needs", ())),
        gate=written["gate"],
        exit_code=written.get("exit_code", 0),
        breaks=tuple(_break(source, row) for row in written["breaks"]),
        recompiles=tuple(_recompiled(row) for row in written["recompiles"]),
        syncs=tuple(_sync(source, row) for row in written["syncs"]),
    )


def _break(source: Source, row: dict[str, Any]) -> Break:
    by_torch = row.get("by_torch", False)
    return Break(
        site=source.site(row),
        kind=row["kind"],
        gb=row["gb"],
        records=row["records"],
        by_torch=by_torch,
    )


def _recompiled(row: dict[str, Any]) -> Recompiled:
    return Recompiled(**{**row, "guards": frozenset(row["guards"])})


def _sync(source: Source, row: dict[str, Any]) -> Sync:
    return Sync(
        site=source.site(row),
        op=row["op"],
        times=row["times"],
        per=row["per"],
        only=row.get("only", ""),
    )


class Source:
    """The lines of a program, found by their text."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = path.read_text("utf-8")
        self._lines = self._text.splitlines()

    def site(self, row: Mapping[str, Any]) -> Site:
        texts = row["line"] if isinstance(row["line"], list) else [row["line"]]
        library, function = row.get("library", ""), row.get("function", "")
        inside = "" if library else function
        lines = frozenset(self._line(text, inside) for text in texts)
        return Site(lines=lines, library=library, function=function, text=row.get("text", ""))

    def _line(self, text: str, function: str) -> int:
        found = [number for number in self._numbers(function) if text in self._lines[number - 1]]
        if len(found) != 1:
            raise ValueError(f"{self._path}: {text!r} stands in lines {found}, not in one line")
        return found[0]

    def _numbers(self, function: str) -> Iterator[int]:
        if not function:
            yield from range(1, len(self._lines) + 1)
        for node in ast.walk(ast.parse(self._text)):
            if isinstance(node, ast.FunctionDef) and node.name == function:
                yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)
