"""A whole evaluation: a strategy run to its end, every candidate in exactly one class, ranks and
counters.

What is counted, so that every strategy gives the same figures: the caps' counters and the NaN
logits are summed over the states on each candidate's path that were derived and chosen from, the
query among them. A state is derived for its own candidate alone, so a state that two candidates
pass counts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np
import torch

from kgprof import model as m
from kgprof.reading.link_prediction import CandidateResults, CapCounters
from kgprof.workloads.linkpred.arrays import Ints, Outcomes, Steps
from kgprof.workloads.linkpred.caps import Dropped
from kgprof.workloads.linkpred.proof import FAILED, OVERFLOW, PROVED, TRUNCATED, UNFINISHED
from kgprof.workloads.linkpred.ranking import rank
from kgprof.workloads.linkpred.sampler import Candidates
from kgprof.workloads.linkpred.slots import Problem, SlotStrategy

P = ParamSpec("P")
R = TypeVar("R")
Backend = str | Callable[..., Any]
DEEP_STEPS = 2  # a proof with more steps than this is deep


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """What a search has found so far, in the candidates' order."""

    outcome: Outcomes  # [N], codes of proof.py
    steps: Steps  # [N], choices made; 0 while unfinished
    dropped: Dropped
    nans: int
    settings: tuple[tuple[str, str], ...] = ()  # what the search itself came to


class Search(Protocol):
    """A search over all candidates that goes forward step by step."""

    @property
    def done(self) -> bool: ...

    @property
    def problem(self) -> Problem | None:
        """None where it holds the candidates in a form of its own."""

    def restart(self) -> None: ...

    def advance(self) -> None:
        """One step; harmless when done."""

    def found(self) -> Found: ...

    def buffers(self) -> Mapping[str, torch.Tensor]:
        """The tensors that live from step to step, by the name of the attribute."""


class SlotSearch:
    """A SlotStrategy, its step compiled unless ``mode`` is eager, or only the ``part`` "engine" or
    "policy" of it.

    ``marked`` tells CUDA graphs where a step begins. ``backend`` is for tests; runs use Inductor.
    """

    def __init__(
        self,
        strategy: SlotStrategy,
        mode: str,
        backend: Backend = "inductor",
        part: str = "step",
        marked: bool = False,
    ) -> None:
        self.strategy, self.step, self.marked = strategy, strategy.step, marked
        if part == "step":
            self.step = compiled(strategy.step, mode, backend)
        elif part == "engine":
            engine = strategy.problem.engine
            engine.derive = compiled(engine.derive, mode, backend)  # type: ignore[method-assign]
        else:
            policy = strategy.problem.policy
            policy.forward = compiled(policy.forward, mode, backend)  # type: ignore[method-assign]
        self.problem = strategy.problem
        self.done = bool(strategy.done)

    def restart(self) -> None:
        self.strategy.reset()
        self.done = bool(self.strategy.done)

    def advance(self) -> None:
        if self.marked:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        self.strategy.commit(self.step())
        # The one value that the host reads back in a step, and so the one place where it waits for
        # the device. (torch.cond reads its predicate besides: that is what the strategy torch_cond
        # is there to show.) In every step, although a step beyond the end is harmless and each k-th
        # would do: the evaluation counts the steps that it needed, and up to k - 1 idle ones would
        # be timed with them. All strategies pay the same here.
        self.done = bool(self.strategy.done)

    def found(self) -> Found:
        strategy = self.strategy
        return Found(
            outcome=strategy.outcome[:-1].cpu().numpy().copy(),
            steps=strategy.depths[:-1].cpu().numpy().copy(),
            dropped=Dropped(*strategy.dropped.tolist()),
            nans=int(strategy.nans),
        )

    def buffers(self) -> Mapping[str, torch.Tensor]:
        """Of the slots, the queue and the results; the tables of the problem are no state."""
        return dict(self.strategy.named_buffers(recurse=False))


def compiled(step: Callable[P, R], mode: str, backend: Backend) -> Callable[P, R]:
    """``step``, or a part of it, with static shapes in a mode of torch.compile, or as it is when
    the mode is eager.

    Not with fullgraph=True: a break would then be an error that ends the run, and not a finding
    beside the others. That every strategy's step is one graph is held by
    tests/contract/test_strategies.py, and by `kgprof check-graphs`.
    """
    if mode == m.EAGER:
        return step
    if backend != "inductor":  # another backend knows no modes
        return torch.compile(step, dynamic=False, backend=backend)
    return torch.compile(step, dynamic=False, mode=mode)


class EvaluatorSession:
    """EvaluationSession, ResultSession and BufferSession of one strategy in one mode."""

    def __init__(
        self,
        search: Search,
        candidates: Candidates,
        settings: Mapping[str, str],
        max_steps: int | None,
    ) -> None:
        self._search = search
        self._candidates = candidates
        self._settings = dict(settings)
        self._max_steps = max_steps
        self._result: Found | None = None

    def step(self) -> None:
        if self._search.done:
            self._search.restart()
        self._search.advance()

    def buffers(self) -> Mapping[str, torch.Tensor]:
        return self._search.buffers()

    def evaluate(self, tick: Callable[[], None]) -> m.Evaluation:
        return self.count(tick).declared()

    def count(self, tick: Callable[[], None]) -> CandidateResults:
        found, steps = self.search(tick)
        return summarise(found, self._candidates, steps, self._settings)

    def search(self, tick: Callable[[], None]) -> tuple[Found, int]:
        """From the start to the end, or to the step cap, which leaves candidates unfinished; and
        the steps it took."""
        self._search.restart()
        steps = 0
        while not self._search.done and steps != self._max_steps:
            self._search.advance()
            steps += 1
            tick()
        self._result = self._search.found()
        return self._result, steps

    @property
    def finished(self) -> int:
        """Candidates that are done so far. It waits for the device."""
        return int((self._search.found().outcome != UNFINISHED).sum())

    def load(self, triples: Ints) -> bool:
        """Put other candidates, as many as before, in the place of those that are there: tables,
        weights and what was compiled stay. False where the search cannot, and another session has
        to be prepared."""
        problem = self._search.problem
        if problem is None or problem.size != len(triples):
            return False
        problem.goals[:-1].copy_(torch.from_numpy(triples))
        return True

    def result(self) -> Mapping[str, np.ndarray]:
        """``outcome`` int8 [N] and ``steps`` int32 [N] of the last whole evaluation; nothing before
        the first."""
        if self._result is None:
            return {}
        return {"outcome": self._result.outcome, "steps": self._result.steps}


def summarise(
    found: Found, candidates: Candidates, steps: int, settings: Mapping[str, str]
) -> CandidateResults:
    """Classes, counters and ranks; a proved candidate scores 1.0, every other one 0.0."""
    classes = np.bincount(found.outcome, minlength=5).tolist()
    proved = found.outcome == PROVED
    ranking = rank(proved.astype(np.float64), candidates)
    return CandidateResults(
        candidates=len(found.outcome),
        proved=classes[PROVED],
        failed=classes[FAILED],
        depth_truncated=classes[TRUNCATED],
        overflow=classes[OVERFLOW],
        unfinished=classes[UNFINISHED],
        invalid=candidates.invalid,
        deep=int((proved & (found.steps > DEEP_STEPS)).sum()),
        steps=steps,
        dropped=CapCounters(**found.dropped._asdict()),
        nan_scores=found.nans + ranking.nan_scores,
        metrics=ranking.metrics,
        settings={**settings, **dict(found.settings)},
    )
