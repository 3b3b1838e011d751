"""The planted regressions: a patch against the evaluator each, and what is true of it, written down before any tool
that could say it. The words of a truth stand in fixtures/regressions/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent.parent
REGRESSIONS = ROOT / "fixtures" / "regressions"
EVALUATOR = "kgprof/workloads/linkpred/"


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cause by its kind; of a finding also its rule and where it stands."""

    kind: str
    rule: str = ""
    file: str = ""
    function: str = ""


class Truth(Reading, frozen=True, kw_only=True, forbid_unknown_fields=True):
    run: str  # in which it shows
    device: str
    why: str
    kernel: str = ""  # part of the name of a kernel that tells it
    args: tuple[str, ...] = ()  # of the workload, beside what every recording is given
    accept: tuple[Reading, ...] = ()  # a second honest name


@dataclass(frozen=True, kw_only=True)
class Regression:
    name: str
    patch: Path
    truth: Truth


def regressions() -> tuple[Regression, ...]:
    return tuple(
        Regression(
            name=folder.name,
            patch=folder / "change.patch",
            truth=msgspec.json.decode((folder / "truth.json").read_bytes(), type=Truth),
        )
        for folder in sorted(REGRESSIONS.iterdir())
        if folder.is_dir() and (folder / "truth.json").is_file()
    )
