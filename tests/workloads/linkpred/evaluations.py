"""Small evaluations for the tests, and the one check that all of them are held to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from kgprof.reading.link_prediction import CandidateResults
from kgprof.workloads.linkpred.evaluator import EvaluatorSession, Found, SlotSearch
from kgprof.workloads.linkpred.slots import SlotStrategy
from kgprof.workloads.linkpred.workload import LinkPrediction, build

CPU = torch.device("cpu")

# 320 candidates. With two children a state and five steps every class occurs: 40 proved (all of
# them deep), 99 failed, 177 truncated, 4 overflow.
TREE = (
    "--dataset",
    "family-tree:120",
    "--queries",
    "40",
    "--corruptions",
    "3",
    "--max-children",
    "2",
    "--depth",
    "5",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluated:
    evaluation: CandidateResults
    found: Found
    strategy: SlotStrategy


@cache
def workload(*args: str, seed: int = 0) -> LinkPrediction:
    return build([*TREE, *args], seed)


@cache
def reference(of: LinkPrediction) -> Found:
    """What plain Python finds, the truth for ``of``."""
    from kgprof.workloads.linkpred.strategies.reference import Reference

    search = Reference(of.replays())
    while not search.done:
        search.advance()
    return search.found()


def evaluate(
    of: LinkPrediction, kind: type[SlotStrategy], *, mode: str = "eager", backend: str = "inductor"
) -> Evaluated:
    """A whole evaluation of ``of`` by ``kind`` on the CPU."""
    strategy = kind(of.problem(CPU))
    search = SlotSearch(strategy, mode, backend)
    session = EvaluatorSession(search, of.candidates, of.settings(), of.options.max_steps)
    evaluation = session.count(lambda: None)
    return Evaluated(evaluation=evaluation, found=search.found(), strategy=strategy)


def wrong_rows(found: Found, truth: Found) -> list[int]:
    """Candidates whose class or number of steps is not the truth's."""
    return np.flatnonzero((found.outcome != truth.outcome) | (found.steps != truth.steps)).tolist()


def same(found: Found, truth: Found) -> bool:
    """Nothing differs: no row, no counter."""
    return not wrong_rows(found, truth) and (found.dropped, found.nans) == (
        truth.dropped,
        truth.nans,
    )


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
