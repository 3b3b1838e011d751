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
class Setting:
    """What is recorded, of whatever tree: one run, and the workload's own options."""

    name: str
    run: str
    args: tuple[str, ...] = ()


DEFAULT = Setting(name="fused.default", run="fused.default")
REPLAYED = Setting(name="fused.reduce-overhead", run="fused.reduce-overhead")
GUARDED = Setting(name="torch_cond.default", run="torch_cond.default")
LOCKSTEP = Setting(name="batched.default", run="batched.default")
WIDE = Setting(
    name="fused.reduce-overhead.wide",  # matrix products enough for their number format to matter
    run="fused.reduce-overhead",
    args=(
        *("--dtype", "float32", "--embedding", "256", "--hidden", "512"),
        *("--layers", "4", "--batch-size", "1024", "--allow-tf32"),
    ),
)

# How often the unchanged tree is recorded; the first of each is the base that patched trees are compared with.
UNCHANGED = {DEFAULT: 4, REPLAYED: 3, GUARDED: 2, LOCKSTEP: 2, WIDE: 2}

# Ten pairs of them, base and head.
NO_CHANGE = (
    *((DEFAULT, 0, head) for head in (1, 2, 3)),
    (DEFAULT, 1, 2),
    *((REPLAYED, 0, head) for head in (1, 2)),
    (REPLAYED, 1, 2),
    *((setting, 0, 1) for setting in (GUARDED, LOCKSTEP, WIDE)),
)


def unchanged(setting: Setting, number: int) -> Path:
    """The archive of the recording of that number."""
    return REGRESSIONS / "unchanged" / f"{setting.name}.{number}.tgz"


@dataclass(frozen=True, kw_only=True)
class Regression:
    name: str
    patch: Path
    truth: Truth

    @property
    def setting(self) -> Setting:
        return next(known for known in UNCHANGED if (known.run, known.args) == (self.truth.run, self.truth.args))

    @property
    def recording(self) -> Path:
        return self.patch.with_name("recording.tgz")


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
