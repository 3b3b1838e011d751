"""Scores that tell proved candidates apart, where 1 and 0 alone leave most ranks to ties.

``probability`` is the log of the probability that the policy gives to the path it took: at each
state the softmax over the logits of the children. ``weights`` is the log of the product of the
weights of the rules that the path used; a fact weighs 1. Both walk the path of a proved candidate
again, in plain Python and float64; what is not proved scores -inf.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from kgprof.workloads.linkpred.arrays import Floats, Ints, Outcomes
from kgprof.workloads.linkpred.graph import Atom
from kgprof.workloads.linkpred.policy import GreedyChooser, choose
from kgprof.workloads.linkpred.proof import PROVED, TRUE_STATE, Prover, State


class Scorer:
    """``score`` is "probability" or "weights"."""

    def __init__(self, prover: Prover, choose: GreedyChooser, score: str, depth: int) -> None:
        self._prover = prover
        self._choose = choose
        self._by_weights = score == "weights"
        self._depth = depth

    def scores(self, triples: Ints, outcome: Outcomes) -> tuple[Floats, int]:
        """float64 [N] of int64 [N, 3] and the outcome of each; and how many were proved in the
        search, and not on the path that float64 takes."""
        scores = np.full(len(triples), -np.inf)
        unlike = 0
        for row in np.flatnonzero(outcome == PROVED):
            predicate, first, second = triples[row].tolist()
            score = self._score((predicate, first, second))
            if score is None:
                unlike += 1
            else:
                scores[row] = score
        return scores, unlike

    def _score(self, query: Atom) -> float | None:
        """None where the path proves nothing."""
        total = 0.0

        def chooser(parent: State, children: Sequence[State]) -> int:
            nonlocal total
            logits = self._choose.logits(parent, children)
            child = int(choose(logits).child)
            if self._by_weights:
                total += self._log_weight(parent, children[child], query)
            else:
                total += float(torch.log_softmax(logits[0], 0)[child])
            return child

        proof = self._prover.prove(query, chooser, self._depth)
        return total if proof.outcome == PROVED else None

    def _log_weight(self, parent: State, child: State, own: Atom) -> float:
        """Of the first fact or rule, in the order of the children, that leads from ``parent`` to
        ``child``."""
        return next(
            math.log(weight) if weight else -math.inf
            for weight, atoms in self._prover.resolvents(parent, own)
            if atoms == (() if child == TRUE_STATE else child)
        )
