"""The cases of cases.toml, and the two folders that each one makes of its program."""

import ast
import re
import shutil
import tomllib
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
REGRESSION, REFACTORING = "regression", "refactoring"
BASE, HEAD = "base", "head"


@dataclass(frozen=True, kw_only=True)
class Edit:
    """``old`` occurs once in ``file`` and becomes ``new``; without ``old`` the file is new."""

    file: str
    old: str = ""
    new: str


@dataclass(frozen=True, kw_only=True)
class Case:
    """``line``: its owner must be shown it; ``in_base``: it is no longer in the changed program.

    ``truth``: what torch alone counts before and after, where the two differ.
    """

    name: str
    program: str
    kind: str
    what: str
    edits: tuple[Edit, ...]
    line: str = ""
    in_base: bool = False
    truth: dict[str, list[int]] = field(default_factory=dict)
    differs: tuple[str, ...] = ()

    @property
    def workload(self) -> str:
        return f"{self.program}.py:step"

    @property
    def place(self) -> tuple[str, int]:
        """The file and the number of the line, on the side that has it."""
        for edit in self.edits:
            text = edited(self, edit.file, HEAD)
            if self.in_base:
                text = edited(self, edit.file, BASE)
            numbers = [
                number
                for number, line in enumerate(text.splitlines(), start=1)
                if line.strip() == self.line
            ]
            if len(numbers) == 1:
                return edit.file, numbers[0]
        raise SystemExit(f"{self.name}: its line is not once in a file that it edits: {self.line}")


def all_cases() -> list[Case]:
    rows = tomllib.loads((HERE / "cases.toml").read_text(encoding="utf-8"))["case"]
    return [case_of(row) for row in rows]


def case_of(row: dict[str, Any]) -> Case:
    edits = tuple(Edit(**edit) for edit in row["edits"])
    return Case(**{**row, "edits": edits, "differs": tuple(row.get("differs", ()))})


def chosen(names: list[str]) -> list[Case]:
    """Those of these names, or all."""
    cases = all_cases()
    unknown = set(names) - {case.name for case in cases}
    if unknown:
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}")
    return [case for case in cases if case.name in names or not names]


def files_of(program: str) -> list[Path]:
    """The program, and what it imports from folders beside it."""
    file = PROGRAMS / f"{program}.py"
    text = file.read_text(encoding="utf-8")
    packages = re.findall(r"^from (\w+)[.\w]* import", text, re.MULTILINE)
    folders = [PROGRAMS / name for name in dict.fromkeys(packages) if (PROGRAMS / name).is_dir()]
    return [file, *chain.from_iterable(sorted(folder.rglob("*.py")) for folder in folders)]


def edited(case: Case, file: str, side: str) -> str:
    path = PROGRAMS / file
    text = ""
    if path.is_file():
        text = path.read_text(encoding="utf-8")
    if side == BASE:
        return text
    for edit in case.edits:
        if edit.file == file:
            text = replaced(case, edit, text)
    return text


def replaced(case: Case, edit: Edit, text: str) -> str:
    if not edit.old and text:
        raise SystemExit(f"{case.name}: {edit.file} exists, so its edit needs the text to replace")
    if edit.old and text.count(edit.old) != 1:
        times = text.count(edit.old)
        raise SystemExit(f"{case.name}: {times} times in {edit.file}, not once: {edit.old!r}")
    if not edit.old:
        return edit.new
    return text.replace(edit.old, edit.new)


def make(case: Case, side: str, folder: Path) -> Path:
    """The program in ``folder``, as it is or with the case's edits."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in files_of(case.program):
        target = folder / path.relative_to(PROGRAMS)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    if side == HEAD:
        for edit in case.edits:
            target = folder / edit.file
            text = edited(case, edit.file, HEAD)
            ast.parse(text)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    return folder
