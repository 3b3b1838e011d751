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

    All recordings of a setting are made at one ``place``: on one machine, one after the other on the same GPU (places 0
    to 3 of the first machine; place 4 is a second one, whose recordings were made six at a time; 5 is a CPU).
    """

    run: str
    place: int
    args: tuple[str, ...] = ()
    sizes: str = "small"
    verb: str = "profile"

    @property
    def name(self) -> str:
        return f"{self.run}.{self.sizes}.{self.place}"


WIDE = (  # matrix products enough for their number format to matter
    *("--dtype", "float32", "--embedding", "256", "--hidden", "512"),
    *("--layers", "4", "--batch-size", "1024", "--allow-tf32"),
)
FEW = ("--queries", "20", "--batch-size", "32")
DEFAULT_0, DEFAULT_1, DEFAULT_3, DEFAULT_4 = (Setting(run="fused.default", place=place) for place in (0, 1, 3, 4))
REPLAYED_2, REPLAYED_4 = (Setting(run="fused.reduce-overhead", place=place) for place in (2, 4))
REPLAYED_WIDE = Setting(run="fused.reduce-overhead", place=4, args=WIDE, sizes="wide")
LOCKSTEP = Setting(run="batched.default", place=4)
# Each compilation of a step that is compiled anew in every call takes Inductor 12 s: the gate needs none of its code.
GATED = Setting(run="fused.default", place=5, args=FEW, sizes="few", verb="check-graphs")

# How often the unchanged tree is recorded; the first of each is the base that patched trees are compared with.
UNCHANGED = {
    DEFAULT_0: 1,
    DEFAULT_1: 1,
    DEFAULT_3: 1,
    REPLAYED_2: 1,
    DEFAULT_4: 3,
    REPLAYED_4: 3,
    REPLAYED_WIDE: 1,
    LOCKSTEP: 2,
    GATED: 2,
}

SETTING_OF = {  # by the regression's number
    **dict.fromkeys(("01", "02", "03"), DEFAULT_0),
    **dict.fromkeys(("11", "13", "14"), DEFAULT_1),
    **dict.fromkeys(("07", "09"), REPLAYED_2),
    **dict.fromkeys(("06", "10", "15", "18", "19", "20"), DEFAULT_4),
    **dict.fromkeys(("12", "16", "17"), REPLAYED_4),
    "08": REPLAYED_WIDE,
    **dict.fromkeys(("04", "05"), GATED),
}


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
        return SETTING_OF[self.name[:2]]

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
