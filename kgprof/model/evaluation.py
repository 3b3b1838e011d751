"""What an evaluation by link prediction came to, and whether two runs came to the same."""

from __future__ import annotations

from enum import StrEnum

from kgprof.model.options import RunKey
from kgprof.model.structs import Model, Skipped, Tagged

OVERFLOW_TO_SAY = 0.10  # share of candidates: above it the metrics are said to stand on unknown results


class CapCounters(Model, frozen=True, kw_only=True):
    """Children (or facts, or rules) that each cap of the engine dropped over a whole evaluation."""

    atoms: int = 0  # children with more than A atoms
    children: int = 0  # children beyond the first S
    facts: int = 0  # facts beyond the fact fan-out that were not looked at
    rules: int = 0  # rules beyond the rule fan-out that were not looked at

    @property
    def total(self) -> int:
        return self.atoms + self.children + self.facts + self.rules


class RankMetrics(Model, frozen=True, kw_only=True):
    """Filtered ranking of one side ("head", "tail") or of both together, under one rule for ties."""

    side: str
    ties: str  # optimistic, realistic, pessimistic, expected
    queries: int  # ranks that were averaged
    mrr: float
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float


class Evaluation(Tagged, frozen=True, kw_only=True, tag="evaluation"):
    """One whole evaluation by link prediction: every candidate is in exactly one class."""

    candidates: int  # valid ones: proved + failed + depth_truncated + overflow + unfinished
    proved: int
    failed: int
    depth_truncated: int
    overflow: int  # unproved, and a cap dropped a child on the way: unknown
    unfinished: int
    invalid: int  # padding where fewer corruptions exist than were asked for; not a candidate
    deep: int  # proved candidates that needed more than two steps
    steps: int  # calls of the step function
    dropped: CapCounters
    nan_scores: int
    metrics: tuple[RankMetrics, ...]
    settings: dict[str, str]  # dataset, depth, batch size, caps, policy, dtype ... as the report shows them

    @property
    def finished(self) -> int:
        return self.candidates - self.unfinished

    @property
    def overflow_share(self) -> float:
        return self.overflow / self.candidates if self.candidates else 0.0


class AgreementVerdict(StrEnum):
    EQUAL = "equal"
    NEAR_TIES = "near-ties"  # equal but for them
    DIFFERENT = "different"


class RunAgreement(Tagged, frozen=True, kw_only=True, tag="agreement"):
    """How the result vector of one run compares with the baseline run's (all of it) and the reference's (a sample)."""

    verdict: AgreementVerdict
    compared: int  # entries compared with the baseline run
    differing: int
    near_ties: int  # of these: the reference's path has a top-2 gap below the threshold
    reference_compared: int  # entries compared with the reference
    reference_differing: int
    reference_near_ties: int
    note: str = ""  # dtype, tolerance, threshold


class Agreement(Tagged, frozen=True, kw_only=True, tag="agreements"):
    """What the AGREEMENT child wrote: one verdict per run that left a result, and why any has none."""

    baseline: RunKey | None
    runs: tuple[tuple[RunKey, RunAgreement | Skipped], ...]
