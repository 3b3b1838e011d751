"""The planted regressions: a patch against the evaluator each, and what is true of it, written down
before any tool that could say it. The words of a truth stand in fixtures/regressions/README.md.
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

    All recordings of a setting are made at one ``place``: on one machine, one after the other on
    the same GPU (places 0 to 3 are the GPUs of a first machine, places 4 to 7 those of a second;
    CPU is none of them).
    """

    run: str
    place: int
    args: tuple[str, ...] = ()
    sizes: str = "small"
    verb: str = "profile"
    passes: tuple[str, ...] = ("compile", "timing", "trace", "host", "memory")
    rounds: int = 5

    @property
    def name(self) -> str:
        return f"{self.run}.{self.sizes}.{self.device}{self.place if self.place != CPU else ''}"

    @property
    def device(self) -> str:
        return "cpu" if self.place == CPU else "cuda"


CPU = -1
DEFAULT_0, DEFAULT_1, DEFAULT_3, DEFAULT_5 = (
    Setting(run="fused.default", place=place) for place in (0, 1, 3, 5)
)
REPLAYED_2, REPLAYED_4, REPLAYED_6 = (
    Setting(run="fused.reduce-overhead", place=place) for place in (2, 4, 6)
)
CONDITIONAL_6 = Setting(run="torch_cond.default", place=6)
BATCHED_7 = Setting(run="batched.default", place=7)
WIDE_7 = Setting(  # matrix products enough for their number format to matter
    run="fused.reduce-overhead",
    place=7,
    args=(
        *("--dtype", "float32", "--embedding", "256", "--hidden", "512", "--layers", "4"),
        *("--batch-size", "1024", "--allow-tf32"),
    ),
    sizes="wide",
)
# Each compilation of a step that is compiled anew in every call takes Inductor 12 s: the gate needs
# none of its code.
GATED = Setting(
    run="fused.default",
    place=CPU,
    args=("--queries", "20", "--batch-size", "32"),
    sizes="gated",
    verb="check-graphs",
)
FEW = ("--queries", "40", "--batch-size", "32")
IN_ONE_PROCESS = ("compile", "timing", "trace", "host")
EAGER = Setting(
    run="fused.eager", place=CPU, args=FEW, sizes="few", passes=IN_ONE_PROCESS, rounds=3
)
COMPILED = Setting(
    run="fused.default",
    place=CPU,
    args=FEW,
    sizes="few",
    passes=("compile", "timing", "memory"),
    rounds=3,
)

# How often the unchanged tree is recorded; the first of each is the base that patched trees are
# compared with.
UNCHANGED = {
    **dict.fromkeys((DEFAULT_0, DEFAULT_1, DEFAULT_3, REPLAYED_2, REPLAYED_4, WIDE_7), 1),
    **dict.fromkeys((DEFAULT_5, CONDITIONAL_6, REPLAYED_6, BATCHED_7, COMPILED), 2),
    **dict.fromkeys((EAGER, GATED), 3),
}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two recordings of the unchanged tree, each by its setting and number."""

    base: tuple[Setting, int]
    head: tuple[Setting, int]
    allow_different_environment: bool = False

    @property
    def name(self) -> str:
        return " and ".join(
            f"{setting.name} {number}" for setting, number in (self.base, self.head)
        )


NO_CHANGE = (
    # Two GPUs of one machine, by CUDA_VISIBLE_DEVICES: another environment, unless compare is told
    # otherwise.
    Pair(base=(DEFAULT_0, 0), head=(DEFAULT_1, 0), allow_different_environment=True),
    Pair(base=(DEFAULT_1, 0), head=(DEFAULT_3, 0), allow_different_environment=True),
    Pair(base=(DEFAULT_3, 0), head=(DEFAULT_0, 0), allow_different_environment=True),
    # One CPU, shared with other work.
    Pair(base=(EAGER, 0), head=(EAGER, 1)),
    Pair(base=(EAGER, 1), head=(EAGER, 2)),
    Pair(base=(EAGER, 2), head=(EAGER, 0)),
    Pair(base=(GATED, 0), head=(GATED, 1)),
    Pair(base=(GATED, 1), head=(GATED, 2)),
    Pair(base=(GATED, 2), head=(GATED, 0)),
    Pair(base=(COMPILED, 0), head=(COMPILED, 1)),
    # One GPU twice.
    Pair(base=(DEFAULT_5, 0), head=(DEFAULT_5, 1)),
    Pair(base=(CONDITIONAL_6, 0), head=(CONDITIONAL_6, 1)),
    Pair(base=(REPLAYED_6, 0), head=(REPLAYED_6, 1)),
    Pair(base=(BATCHED_7, 0), head=(BATCHED_7, 1)),
)

SETTING_OF = {  # by the regression's number
    **dict.fromkeys(("01", "02", "03"), DEFAULT_0),
    **dict.fromkeys(("11", "13", "14"), DEFAULT_1),
    **dict.fromkeys(("07", "09"), REPLAYED_2),
    "10": DEFAULT_5,
    **dict.fromkeys(("12", "17"), REPLAYED_4),
    **dict.fromkeys(("04", "05", "19"), GATED),
    **dict.fromkeys(("15", "16", "20"), EAGER),
    "08": WIDE_7,
    **dict.fromkeys(("06", "18"), COMPILED),
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
    def recorded(self) -> Path:
        """The patch as the recorded tree had it: the lines of a recording are that tree's."""
        return self.patch.with_name("recorded.patch")

    @property
    def added(self) -> frozenset[tuple[str, int]]:
        """File and number of each line that the patch brought to the recorded tree."""
        file, number, lines = "", 0, set()
        for text in self.recorded.read_text(encoding="utf-8").splitlines():
            if text.startswith("+++ b/"):
                file = text[6:]
            elif text.startswith("@@ "):
                number = int(text.split("+")[1].partition(",")[0])
            elif not text.startswith("-"):
                lines |= {(file, number)} if text.startswith("+") else set()
                number += 1
        return frozenset(lines)

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
