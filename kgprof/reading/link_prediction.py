"""The result of an evaluation by link prediction: a file of its own shape in Recordings of schema
version 1.

The built-in workload still counts in these fields, so that an old Recording and a new one say the
same: ``declared`` puts both in the words that every workload has.
"""

import msgspec

from kgprof import model as m

UNIT = m.WorkUnit(name="candidate", plural="candidates")


class CapCounters(m.Model):
    """Children (or facts, or rules) that each cap of the engine dropped over a whole evaluation."""

    atoms: int = 0  # children with more than A atoms
    children: int = 0  # children beyond the first S
    facts: int = 0  # facts beyond the fact fan-out that were not looked at
    rules: int = 0  # rules beyond the rule fan-out that were not looked at


class RankMetrics(m.Model):
    """Filtered ranking of one side ("head", "tail") or of both together, under one rule for
    ties."""

    side: str
    ties: str  # optimistic, realistic, pessimistic, expected
    queries: int  # ranks that were averaged
    mrr: float
    hits_at_1: float
    hits_at_3: float
    hits_at_10: float

    @property
    def is_headline(self) -> bool:
        return (self.side, self.ties) == ("both", "realistic")


class CandidateResults(m.Tagged, tag="evaluation"):
    """One whole evaluation: every candidate is in exactly one class."""

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
    settings: dict[str, str]  # dataset, depth, batch size, caps, policy, dtype ...

    def declared(self) -> m.Evaluation:
        named = {
            "corruptions": "corruptions evaluated",
            "policy": "policy",
            "dtype": "dtype",
            "depth": "depth",
        }
        known = {
            name: self.settings[setting]
            for name, setting in named.items()
            if setting in self.settings
        }
        ties = {"ties": "realistic"} if any(of.is_headline for of in self.metrics) else {}
        return m.Evaluation(
            units=self.candidates,
            steps=self.steps,
            tallies=self._tallies(),
            metrics=tuple(metric for metrics in self.metrics for metric in _metrics(metrics)),
            metrics_note=(
                "Filtered against all known triples. Optimistic: a tie counts for the true triple; "
                "pessimistic: against it; realistic: the mean of both ranks; expected: the mean of "
                "1/rank over the tied places."
            ),
            settings=self.settings,
            conditions={**ties, **known},
        )

    def _tallies(self) -> tuple[m.Tally, ...]:
        kinds = m.TallyKind
        dropped = msgspec.structs.asdict(self.dropped).items()
        return (
            m.Tally("proved", self.proved, always=True, can_turn=True),
            m.Tally(
                "deep",
                self.deep,
                kind=kinds.BESIDE,
                heading="of these in > 2 steps",
                can_turn=True,
            ),
            m.Tally("failed", self.failed, always=True, can_turn=True),
            m.Tally("truncated", self.depth_truncated, heading="depth-truncated"),
            m.Tally(
                "overflow",
                self.overflow,
                kind=kinds.UNDECIDED,
                why="they hit a size limit",
                effect="so they rank as unproved",
            ),
            m.Tally("unfinished", self.unfinished, kind=kinds.UNFINISHED),
            m.Tally("invalid", self.invalid, kind=kinds.BESIDE, heading="invalid (padding)"),
            *(
                m.Tally(cap, count, kind=kinds.DROPPED, heading=f"{cap} dropped")
                for cap, count in dropped
            ),
            m.Tally("NaN scores", self.nan_scores, kind=kinds.FAULT),
        )


def _metrics(of: RankMetrics) -> tuple[m.Metric, ...]:
    values = {
        "MRR": of.mrr,
        "Hits@1": of.hits_at_1,
        "Hits@3": of.hits_at_3,
        "Hits@10": of.hits_at_10,
    }
    title = (
        "filtered mean reciprocal rank and Hits@1, 3, 10; head and tail sides "
        "together, realistic ties"
    )
    return tuple(
        m.Metric(
            label=label,
            value=value,
            better=m.Better.HIGHER,
            group={"side": of.side, "ties": of.ties},
            over=of.queries,
            over_what="ranks",
            headline=of.is_headline,
            title=title if label == "MRR" else "",
            decimals=4,
        )
        for label, value in values.items()
    )
