"""Sessions that do as they are told, for tests of the instruments."""

from __future__ import annotations

from collections.abc import Callable

from kgprof.model import Evaluation
from kgprof.reading.link_prediction import CandidateResults, CapCounters
from kgprof.workloads.protocol import Tick

EVALUATION = CandidateResults(
    candidates=3,
    proved=1,
    failed=2,
    depth_truncated=0,
    overflow=0,
    unfinished=0,
    invalid=0,
    deep=0,
    steps=3,
    dropped=CapCounters(),
    nan_scores=0,
    metrics=(),
    settings={},
).declared()


class Stepping:
    """Counts its steps, and does ``work`` in each."""

    def __init__(self, work: Callable[[], object] = lambda: None) -> None:
        self.steps = 0
        self._work = work

    def step(self) -> object:
        self.steps += 1
        return self._work()


class Evaluating(Stepping):
    """Three steps an evaluation, each counted by the clock."""

    def evaluate(self, tick: Tick) -> Evaluation:
        for _ in range(3):
            self.step()
            tick()
        return EVALUATION
