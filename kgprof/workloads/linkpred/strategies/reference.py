"""Plain Python, one candidate at a time (proof.py): the truth that the other strategies are held
to.

A step is one candidate. The policy is asked in float64 on the CPU, whatever the other strategies
use.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from kgprof import model as m
from kgprof.workloads.linkpred.caps import Dropped
from kgprof.workloads.linkpred.evaluator import Found
from kgprof.workloads.linkpred.policy import GreedyChooser
from kgprof.workloads.linkpred.proof import UNFINISHED, Prover


class Reference:
    """A Search (evaluator.py) over ``triples`` int64 [N, 3]."""

    name: ClassVar[str] = "reference"
    summary: ClassVar[str] = "Plain Python, one candidate at a time: the reference for the others."
    modes: ClassVar[tuple[str, ...]] = (m.EAGER,)
    problem: ClassVar[None] = None

    def __init__(
        self, prover: Prover, choose: GreedyChooser, triples: npt.NDArray[np.int64], depth: int
    ) -> None:
        self._prover = prover
        self._choose = choose
        self._triples = triples
        self._depth = depth
        self.restart()

    @property
    def done(self) -> bool:
        return self._next == len(self._triples)

    def restart(self) -> None:
        self._next = 0
        self._outcome = np.full(len(self._triples), UNFINISHED, dtype=np.int8)
        self._steps = np.zeros(len(self._triples), dtype=np.int32)
        self._dropped = Dropped()
        self._nans_before = self._choose.nans

    def advance(self) -> None:
        if self.done:
            return
        predicate, first, second = self._triples[self._next].tolist()
        proof = self._prover.prove((predicate, first, second), self._choose, self._depth)
        self._outcome[self._next] = proof.outcome
        self._steps[self._next] = proof.steps
        self._dropped = self._dropped.plus(proof.dropped)
        self._next += 1

    def found(self) -> Found:
        nans = self._choose.nans - self._nans_before
        return Found(
            outcome=self._outcome.copy(), steps=self._steps.copy(), dropped=self._dropped, nans=nans
        )

    def buffers(self) -> Mapping[str, Tensor]:
        """Plain Python keeps no tensors."""
        return {}
