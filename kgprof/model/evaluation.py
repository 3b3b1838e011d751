"""What a workload's whole job came to, in its own unit of work, and whether two runs came to the
same."""

from enum import StrEnum

import msgspec

from kgprof.model.passes import RunKey
from kgprof.model.structs import Model, Skipped, Tagged

# share of the units: above it the metrics are said to rest on unknown results
UNDECIDED_TO_SAY = 0.10


class TallyKind(StrEnum):
    """Each unit of work is in exactly one tally of the first three kinds, where a workload tells
    its outcomes apart."""

    OUTCOME = "outcome"
    UNDECIDED = "undecided"  # it has ended, and its result is not known
    UNFINISHED = "unfinished"
    BESIDE = "beside"  # a part of an outcome, or something that is no unit of work
    DROPPED = "dropped"  # work that a limit left out
    FAULT = "fault"


class Better(StrEnum):
    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = ""  # the workload does not say


class Tally(Model, kw_only=False):
    """Something that the workload counted over its whole job. All words are the workload's."""

    name: str  # as in "412 solved"
    count: int
    kind: TallyKind = TallyKind.OUTCOME
    heading: str = ""  # of its column; empty: the name
    always: bool = False  # said where it is 0 too
    # rounding may move a unit in or out of it: a near-tie is no other result
    can_turn: bool = False
    why: str = ""  # UNDECIDED: why nothing is known, as the end of "... are unknown: "
    effect: str = ""  # and what follows for the metrics: "so they count as failed"


class Metric(Model):
    """How good the result is. Metrics of one ``group`` stand in one row."""

    label: str
    value: float
    unit: str = ""
    better: Better = Better.NEITHER
    # What tells it apart from others of its label: {"split": "test"}.
    group: dict[str, str] = msgspec.field(default_factory=dict)
    over: int = 0  # results that it is the mean of; 0: not known
    over_what: str = ""  # what these are: "queries"
    # stands in the table of runs; the first of them in figures, the others below it
    headline: bool = False
    title: str = ""  # what it is, in a sentence
    decimals: int | None = None  # None: three significant digits
    tolerance: float = 1e-9  # a smaller difference between two recordings is rounding


class Evaluation(Tagged):
    """One whole job. ``units``: of work, the unfinished among them; 0 where the workload counts
    none."""

    units: int
    steps: int  # calls of the step function
    tallies: tuple[Tally, ...] = ()
    metrics: tuple[Metric, ...] = ()
    metrics_note: str = ""  # how to read the table of them
    # data set, batch size, dtype ...
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    # Without them the metrics mean nothing to a stranger: "dtype": "float32".
    conditions: dict[str, str] = msgspec.field(default_factory=dict)

    def tallied(self, *kinds: TallyKind) -> tuple[Tally, ...]:
        return tuple(tally for tally in self.tallies if tally.kind in kinds)

    @property
    def unfinished(self) -> int:
        return sum(tally.count for tally in self.tallied(TallyKind.UNFINISHED))

    @property
    def finished(self) -> int:
        return self.units - self.unfinished

    @property
    def undecided(self) -> Tally | None:
        """The largest tally of units of which nothing is known, where they are too many to be
        passed over."""
        largest = max(
            self.tallied(TallyKind.UNDECIDED), key=lambda tally: tally.count, default=None
        )
        return (
            largest
            if largest is not None and largest.count > UNDECIDED_TO_SAY * self.units > 0
            else None
        )


class AgreementVerdict(StrEnum):
    EQUAL = "equal"
    NEAR_TIES = "near-ties"  # equal but for them
    DIFFERENT = "different"


class RunAgreement(Tagged, tag="agreement"):
    """How the result vector of one run compares with the baseline run's (all of it) and the
    reference's (a sample)."""

    verdict: AgreementVerdict
    compared: int  # entries compared with the baseline run
    differing: int
    near_ties: int  # of these: the reference's path has a top-2 gap below the threshold
    reference_compared: int  # entries compared with the reference
    reference_differing: int
    reference_near_ties: int
    note: str = ""  # dtype, tolerance, threshold
    sha256: str = ""  # of the whole result, where the workload says how it is formed


class Agreement(Tagged, tag="agreements"):
    """What the AGREEMENT child wrote: one verdict per run that left a result, and why any has
    none."""

    baseline: RunKey | None
    runs: tuple[tuple[RunKey, RunAgreement | Skipped], ...]
