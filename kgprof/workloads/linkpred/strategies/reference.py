"""Plain Python, one candidate at a time (proof.py): the truth that the other strategies are held
to.

A step is one candidate. The policy is asked in float64 on the CPU, whatever the other strategies
use.
"""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from kgprof import model as m
from kgprof.workloads.linkpred.agreement import Replays
from kgprof.workloads.linkpred.caps import Dropped
from kgprof.workloads.linkpred.evaluator import Found
from kgprof.workloads.linkpred.proof import UNFINISHED


class Reference:
    """A Search (evaluator.py)."""

    name = "reference"
    summary = "Plain Python, one candidate at a time: the reference for the others."
    modes = (m.EAGER,)
    problem = None

    def __init__(self, replays: Replays) -> None:
        self._replays = replays
        self._size = len(replays.triples)
        self.restart()

    @property
    def done(self) -> bool:
        return self._next == self._size

    def restart(self) -> None:
        self._next = 0
        self._outcome = np.full(self._size, UNFINISHED, dtype=np.int8)
        self._steps = np.zeros(self._size, dtype=np.int32)
        self._dropped = Dropped()
        self._nans_before = self._replays.choose.nans

    def advance(self) -> None:
        if self.done:
            return
        proof = self._replays.proof(self._next)
        self._outcome[self._next] = proof.outcome
        self._steps[self._next] = proof.steps
        self._dropped = self._dropped.plus(proof.dropped)
        self._next += 1

    def found(self) -> Found:
        nans = self._replays.choose.nans - self._nans_before
        return Found(
            outcome=self._outcome.copy(), steps=self._steps.copy(), dropped=self._dropped, nans=nans
        )

    def buffers(self) -> Mapping[str, Tensor]:
        """Plain Python keeps no tensors."""
        return {}
