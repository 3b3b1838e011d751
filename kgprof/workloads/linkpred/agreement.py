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

import numpy as np
import numpy.typing as npt

from kgprof import model as m
from kgprof.workloads.linkpred.chunks import VectorHash
from kgprof.workloads.linkpred.policy import GreedyChooser
from kgprof.workloads.linkpred.proof import UNFINISHED, Prover

SAMPLE = 200  # candidates drawn from all of them
SAMPLE_OF_CLASS = 40  # and from each class of the baseline's result: most candidates fail at once
MOST_REPLAYS = 2000

Rows = npt.NDArray[np.int64]  # candidate numbers, ascending
Mask = npt.NDArray[np.bool_]
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """What a run left: outcome classes (codes of proof.py) and steps, each [N]."""

    outcome: npt.NDArray[np.int8]
    steps: npt.NDArray[np.int32]

    @property
    def finished(self) -> Mask:
        return np.asarray(self.outcome != UNFINISHED)

    def differs(self, other: Result) -> Mask:
        """bool [N]; what is unfinished in either differs from nothing, it is reported as
        unfinished."""
        unlike: Mask = (self.outcome != other.outcome) | (self.steps != other.steps)
        return unlike & self.finished & other.finished


@dataclass(frozen=True, kw_only=True)
class Replay:
    outcome: int
    steps: int
    narrowest: float  # the smallest gap between the two best logits of a state on the path


class Replays:
    """The reference's answers, each found when it is first asked for."""

    def __init__(
        self, prover: Prover, choose: GreedyChooser, triples: npt.NDArray[np.int64], depth: int
    ) -> None:
        self._prover = prover
        self._choose = choose
        self._triples = triples
        self._depth = depth
        self._known: dict[int, Replay] = {}

    @property
    def candidates(self) -> int:
        return len(self._triples)

    def of(self, candidate: int) -> Replay:
        if candidate not in self._known:
            self._choose.restart()
            predicate, first, second = self._triples[candidate].tolist()
            proof = self._prover.prove((predicate, first, second), self._choose, self._depth)
            self._known[candidate] = Replay(
                outcome=proof.outcome, steps=proof.steps, narrowest=self._choose.narrowest
            )
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
        usable = {
            key: Result(**arrays) for key, arrays in results.items() if not self._unusable(arrays)
        }
        if baseline not in usable:
            baseline = next(iter(usable), None)
        if baseline is None:
            runs = ((key, m.Skipped(self._unusable(arrays))) for key, arrays in results.items())
            return m.Agreement(baseline=None, runs=tuple(runs))
        replayed = self._rows_to_replay(usable, usable[baseline])
        judged = {
            key: self._judge(result, usable[baseline], replayed) for key, result in usable.items()
        }
        return m.Agreement(
            baseline=baseline,
            runs=tuple(
                (key, judged.get(key, m.Skipped(self._unusable(results[key])))) for key in results
            ),
        )

    def _unusable(self, arrays: Arrays) -> str:
        """Why these arrays cannot be compared, or ''."""
        if sorted(arrays) != ["outcome", "steps"]:
            return (
                f"the result holds {', '.join(sorted(arrays)) or 'nothing'}, expected outcome "
                "and steps"
            )
        number = self.replays.candidates
        wrong = [(name, array.shape) for name, array in arrays.items() if array.shape != (number,)]
        return (
            f"{wrong[0][0]} has shape {wrong[0][1]}, the workload has {number} candidates"
            if wrong
            else ""
        )

    def _rows_to_replay(self, results: Mapping[m.RunKey, Result], baseline: Result) -> Rows:
        """The sample, some of each class, and what differs anywhere, the latter up to
        ``most_replays``."""
        random = np.random.default_rng(self.seed)
        rows = [_draw(random, np.arange(self.replays.candidates), SAMPLE)]
        for outcome in np.unique(baseline.outcome[baseline.finished]):
            rows.append(_draw(random, np.flatnonzero(baseline.outcome == outcome), SAMPLE_OF_CLASS))
        differing = [result.differs(baseline) for result in results.values()]
        rows.append(np.flatnonzero(np.logical_or.reduce(differing))[: self.most_replays])
        return np.unique(np.concatenate(rows))

    def _judge(
        self, result: Result, baseline: Result, replayed: Rows
    ) -> m.RunAgreement | m.Skipped:
        compared = int((result.finished & baseline.finished).sum())
        replayed = replayed[result.finished[replayed]]
        if not compared and not len(replayed):
            return m.Skipped("no candidate finished, so there is no result to compare")
        differing = np.flatnonzero(result.differs(baseline))
        replays = [self.replays.of(row) for row in replayed.tolist()]
        answers = np.array([(replay.outcome, replay.steps) for replay in replays]).reshape(-1, 2)
        unlike: Mask = (result.outcome[replayed] != answers[:, 0]) | (
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

    def _near_ties(self, differing: Rows, replayed: Rows) -> int:
        if self.threshold is None:
            return 0
        known = np.intersect1d(differing, replayed)
        return sum(self.replays.of(row).narrowest < self.threshold for row in known.tolist())

    def _note(self, result: Result, baseline: Result, unreplayed: int) -> str:
        parts = [
            "outcome class and steps of each candidate; reference: plain Python, policy in float64"
        ]
        if self.threshold is None:
            parts.append(f"{self.dtype}: equal or different")
        else:
            parts.append(
                f"{self.dtype}: near-tie below a top-2 gap of {self.threshold:g} on the "
                "reference's path"
            )
        unfinished = int((~(result.finished & baseline.finished)).sum())
        if unfinished:
            parts.append(f"{unfinished} unfinished candidates are not compared")
        if unreplayed:
            parts.append(
                f"{unreplayed} differing candidates were not replayed (limit {self.most_replays})"
            )
        return "; ".join(parts)


def _draw(random: np.random.Generator, rows: Rows, count: int) -> Rows:
    return random.choice(rows, size=min(count, len(rows)), replace=False)
