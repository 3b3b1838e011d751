"""Do the runs give the same result, and is it the right one?

Every run is compared with the baseline run in full, in outcome class and in steps, and with a
reference: proof.py's search in plain Python, following the policy in float64 on the CPU. The
reference replays a seeded sample, some candidates of each class of the baseline's result, and every
candidate that differs between runs, the latter up to ``MOST_REPLAYS``.

A float64 run is equal or different. In float32 a difference is a near-tie where the reference's own
path passes a state whose two best logits are less than the threshold apart: rounding may have
turned the choice there. Any other difference makes the run different.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kgprof import model as m
from kgprof.workloads.linkpred.arrays import Bools, Ints, Outcomes, Steps
from kgprof.workloads.linkpred.chunks import VectorHash
from kgprof.workloads.linkpred.policy import GreedyChooser
from kgprof.workloads.linkpred.proof import UNFINISHED, Proof, Prover

SAMPLE = 200  # candidates drawn from all of them
SAMPLE_OF_CLASS = 40  # and from each class of the baseline's result: most candidates fail at once
MOST_REPLAYS = 2000

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """What a run left: outcome classes (codes of proof.py) and steps, each [N]."""

    outcome: Outcomes
    steps: Steps

    @property
    def finished(self) -> Bools:
        return np.asarray(self.outcome != UNFINISHED)

    def differs(self, other: Result) -> Bools:
        """bool [N]; what is unfinished in either differs from nothing, it is reported as
        unfinished."""
        unlike: Bools = (self.outcome != other.outcome) | (self.steps != other.steps)
        return unlike & self.finished & other.finished


@dataclass(frozen=True, kw_only=True)
class Replays:
    """The reference's proofs of ``triples`` int64 [N, 3]; ``choose`` is asked for each choice."""

    prover: Prover
    choose: GreedyChooser
    triples: Ints
    depth: int

    def proof(self, candidate: int) -> Proof:
        predicate, first, second = self.triples[candidate].tolist()
        return self.prover.prove((predicate, first, second), self.choose, self.depth)

    @cached_property
    def _known(self) -> dict[int, tuple[int, int, float]]:
        return {}

    def of(self, candidate: int) -> tuple[int, int, float]:
        """Outcome, steps, and the smallest gap between the two best logits of a state on the path;
        found when it is first asked for."""
        if candidate not in self._known:
            self.choose.restart()
            proof = self.proof(candidate)
            self._known[candidate] = (proof.outcome, proof.steps, self.choose.narrowest)
        return self._known[candidate]


@dataclass(frozen=True, kw_only=True)
class Judge:
    """``threshold``: a path with a smaller top-2 gap makes a difference a near-tie; None: nothing
    does (float64)."""

    replays: Replays
    seed: int
    threshold: float | None
    dtype: str
    most_replays: int = MOST_REPLAYS

    def agreement(
        self, results: Mapping[m.RunKey, Arrays], baseline: m.RunKey | None
    ) -> m.Agreement:
        """Where ``baseline`` left no usable result, the first run that did is the baseline."""
        reasons = {key: self._unusable(arrays) for key, arrays in results.items()}
        usable = {key: Result(**results[key]) for key, reason in reasons.items() if not reason}
        if baseline not in usable:
            baseline = next(iter(usable), None)
        runs: dict[m.RunKey, m.RunAgreement | m.Skipped] = {
            key: m.Skipped(reason) for key, reason in reasons.items()
        }
        if baseline is not None:
            replayed = self._rows_to_replay(usable, usable[baseline])
            for key, result in usable.items():
                runs[key] = self._judge(result, usable[baseline], replayed)
        return m.Agreement(baseline=baseline, runs=tuple(runs.items()))

    def _unusable(self, arrays: Arrays) -> str:
        """Why these arrays cannot be compared, or ''."""
        if sorted(arrays) != ["outcome", "steps"]:
            return (
                f"the result holds {', '.join(sorted(arrays)) or 'nothing'}, expected outcome "
                "and steps"
            )
        number = len(self.replays.triples)
        for name, array in arrays.items():
            if array.shape != (number,):
                return f"{name} has shape {array.shape}, the workload has {number} candidates"
        return ""

    def _rows_to_replay(self, results: Mapping[m.RunKey, Result], baseline: Result) -> Ints:
        """The sample, some of each class, and what differs anywhere, the latter up to
        ``most_replays``."""
        random = np.random.default_rng(self.seed)
        rows = [_draw(random, np.arange(len(self.replays.triples)), SAMPLE)]
        for outcome in np.unique(baseline.outcome[baseline.finished]):
            rows.append(_draw(random, np.flatnonzero(baseline.outcome == outcome), SAMPLE_OF_CLASS))
        differing = [result.differs(baseline) for result in results.values()]
        rows.append(np.flatnonzero(np.logical_or.reduce(differing))[: self.most_replays])
        return np.unique(np.concatenate(rows))

    def _judge(
        self, result: Result, baseline: Result, replayed: Ints
    ) -> m.RunAgreement | m.Skipped:
        compared = int((result.finished & baseline.finished).sum())
        replayed = replayed[result.finished[replayed]]
        if not compared and not len(replayed):
            return m.Skipped("no candidate finished, so there is no result to compare")
        differing = np.flatnonzero(result.differs(baseline))
        answers = np.array([self.replays.of(row)[:2] for row in replayed.tolist()]).reshape(-1, 2)
        unlike: Bools = (result.outcome[replayed] != answers[:, 0]) | (
            result.steps[replayed] != answers[:, 1]
        )
        from_reference = replayed[unlike]
        near = self._near_ties(differing, replayed)
        near_reference = self._near_ties(from_reference, replayed)
        if not len(differing) and not len(from_reference):
            verdict = m.AgreementVerdict.EQUAL
        elif near + near_reference == len(differing) + len(from_reference):
            verdict = m.AgreementVerdict.NEAR_TIES
        else:
            verdict = m.AgreementVerdict.DIFFERENT
        vector = VectorHash()
        vector.add(result.outcome, result.steps)
        return m.RunAgreement(
            verdict=verdict,
            compared=compared,
            differing=len(differing),
            near_ties=near,
            reference_compared=len(replayed),
            reference_differing=len(from_reference),
            reference_near_ties=near_reference,
            sha256=vector.hexdigest(),
            note=self._note(result, baseline, unreplayed=len(np.setdiff1d(differing, replayed))),
        )

    def _near_ties(self, differing: Ints, replayed: Ints) -> int:
        if self.threshold is None:
            return 0
        known = np.intersect1d(differing, replayed)
        return sum(self.replays.of(row)[2] < self.threshold for row in known.tolist())

    def _note(self, result: Result, baseline: Result, unreplayed: int) -> str:
        rule = "equal or different"
        if self.threshold is not None:
            rule = f"near-tie below a top-2 gap of {self.threshold:g} on the reference's path"
        parts = [
            "outcome class and steps of each candidate; reference: plain Python, policy in float64",
            f"{self.dtype}: {rule}",
        ]
        unfinished = int((~(result.finished & baseline.finished)).sum())
        if unfinished:
            parts.append(f"{unfinished} unfinished candidates are not compared")
        if unreplayed:
            parts.append(
                f"{unreplayed} differing candidates were not replayed (limit {self.most_replays})"
            )
        return "; ".join(parts)


def _draw(random: np.random.Generator, rows: Ints, count: int) -> Ints:
    return random.choice(rows, size=min(count, len(rows)), replace=False)
