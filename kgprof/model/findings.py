"""What the rules find, and what each finding was measured to cost."""

from __future__ import annotations

from enum import StrEnum

from kgprof.model.options import PassName, RunKey
from kgprof.model.structs import Model, Skipped, Tagged


class Level(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Rule(Model, frozen=True, kw_only=True):
    """A diagnostic's promise: the id is never reused."""

    id: str
    name: str
    level: Level
    summary: str
    why: str
    example: str
    remedy: str


class Location(Model, frozen=True, kw_only=True):
    file: str
    line: int
    function: str = ""
    text: str = ""  # the line itself, where it could be read


class FindingCost(Tagged, frozen=True, kw_only=True, tag="cost"):
    """What a finding was measured to cost, and where."""

    value: float
    unit: str  # "us/step", or "s" for what is paid once
    what: str  # "the host waited", "the device did nothing"
    measured_in: tuple[PassName, ...]
    samples: int
    extremes: tuple[float, float] | None = None  # the smallest and the largest sample, where each is a cost

    @property
    def weight(self) -> tuple[bool, float]:
        """Larger is costlier: what each step pays weighs more than what is paid once."""
        return self.unit == "us/step", self.value


class Finding(Model, frozen=True, kw_only=True):
    rule: str  # the rule's id
    level: Level
    message: str
    run: RunKey | None = None
    location: Location | None = None
    count: int = 1
    fingerprint: str = ""
    related: tuple[Location, ...] = ()  # other places that matter: the call that recompiled, the frame that fell back
    detail: str = ""  # torch's own words, over several lines
    accepted: str = ""  # who accepts it and why (check-graphs); empty: nobody does
    cost: FindingCost | Skipped = Skipped(reason="no pass measures what this costs")


class PracticeStatus(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    NOT_OBSERVED = "not observed"


class ChecklistItem(Model, frozen=True, kw_only=True):
    """One practice that torch.compile rewards, looked at on this program."""

    id: str  # "static-shapes"; never reused
    title: str
    status: PracticeStatus
    evidence: str  # what was seen, with its figures; or why nothing was
    findings: tuple[str, ...] = ()  # fingerprints of the findings that speak against it
