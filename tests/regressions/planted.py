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
    """What is recorded, of whatever tree: one run with the workload's own options.

    All recordings of a setting are made at one ``place``, by record.py on the same cores and the same GPU: two GPUs of
    one model are two environments.
    """

    run: str
    place: int
    args: tuple[str, ...] = ()
    sizes: str = "small"

    @property
    def name(self) -> str:
        return f"{self.run}.{self.sizes}.{self.place}"


WIDE = (  # matrix products enough for their number format to matter
    *("--dtype", "float32", "--embedding", "256", "--hidden", "512"),
    *("--layers", "4", "--batch-size", "1024", "--allow-tf32"),
)
DEFAULT = (
    Setting(run="fused.default", place=0),
    Setting(run="fused.default", place=1),
    Setting(run="fused.default", place=3),
)
REPLAYED = Setting(run="fused.reduce-overhead", place=2)
REPLAYED_WIDE = Setting(run="fused.reduce-overhead", place=3, args=WIDE, sizes="wide")
GUARDED = Setting(run="torch_cond.default", place=3)
LOCKSTEP = Setting(run="batched.default", place=3)

# How often the unchanged tree is recorded; the first of each is the base that patched trees are compared with.
UNCHANGED = {
    **dict.fromkeys((*DEFAULT, REPLAYED, REPLAYED_WIDE, GUARDED, LOCKSTEP), 2),
    DEFAULT[0]: 3,
    REPLAYED: 3,
}

# Ten pairs of them, base and head.
NO_CHANGE = (
    *((setting, 0, 1) for setting in UNCHANGED),
    *((setting, 0, 2) for setting in (DEFAULT[0], REPLAYED)),
    (REPLAYED, 1, 2),
)
PLACES = 1 + max(setting.place for setting in UNCHANGED)


def unchanged(setting: Setting, number: int) -> Path:
    """The archive of the recording of that number."""
    return REGRESSIONS / "unchanged" / f"{setting.name}_{number}.tgz"


@dataclass(frozen=True, kw_only=True)
class Regression:
    name: str
    patch: Path
    truth: Truth

    @property
    def setting(self) -> Setting:
        """Of two places with the same run, the first half of the regressions goes to the first."""
        run, args = self.truth.run, self.truth.args
        known = [setting for setting in UNCHANGED if (setting.run, setting.args) == (run, args)][:2]
        return known[len(known) * int(self.name[:2]) // 21]

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
