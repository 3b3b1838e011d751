"""The tabled strategy: the reference's result on random graphs, and each distinct state derived once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from kgprof.workloads.linkpred.evaluator import Found
from kgprof.workloads.linkpred.proof import FAILED, OVERFLOW, PROVED, TRUNCATED
from kgprof.workloads.linkpred.strategies import levels
from kgprof.workloads.linkpred.strategies.levels import Levels, distinct
from kgprof.workloads.linkpred.workload import LinkPrediction
from tests.workloads.linkpred.evaluations import CPU, one_thread, reference, same, workload
from tests.workloads.linkpred.test_determinism import every_triple_of_a_random_graph


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with one_thread():
        yield


def run(of: LinkPrediction, mode: str = "eager", backend: str = "inductor") -> Found:
    return finish(Levels(of.problem(CPU), mode, backend))


def finish(search: Levels) -> Found:
    while not search.done:
        search.advance()
    return search.found()


LONG = [pytest.param(range(start, start + 100), marks=pytest.mark.long) for start in (20, 120)]


@pytest.mark.parametrize("seeds", [range(20), *LONG], ids=str)
def test_random_graphs_under_tight_caps(seeds: range) -> None:
    """Every triple is a candidate, facts among them, so that keys with the own atom in them occur."""
    dropped = np.zeros(4, dtype=np.int64)
    outcomes: set[int] = set()
    for seed in seeds:
        of = every_triple_of_a_random_graph(seed)
        truth = reference(of)
        assert same(run(of), truth), seed
        dropped += truth.dropped
        outcomes |= set(truth.outcome.tolist())

    assert dropped.min() > 0
    assert outcomes == {PROVED, FAILED, TRUNCATED, OVERFLOW}


def test_passes_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that is longer than a pass goes on in the next one."""
    monkeypatch.setitem(levels.DERIVED_ROWS, "cpu", 3)
    monkeypatch.setitem(levels.ENCODED_ROWS, "cpu", 2)

    assert same(run(workload()), reference(workload()))


def test_compiled_and_run_twice() -> None:
    search = Levels(workload().problem(CPU), "default", "aot_eager")
    for _ in range(2):
        search.restart()
        assert same(finish(search), reference(workload()))


def test_each_state_is_derived_once() -> None:
    search = Levels(workload().problem(CPU), "eager")
    derive = search._derive
    derived: list[tuple[int, ...]] = []

    def noted(states: torch.Tensor, own: torch.Tensor) -> object:
        rows = torch.cat([states.flatten(1), own], dim=1)
        derived.extend(tuple(row) for row in rows.tolist() if row[0])
        return derive(states, own)

    search._derive = noted
    found = finish(search)

    assert len(derived) == len(set(derived))
    assert len(derived) < found.steps.sum()  # what it would take without the table


@pytest.mark.parametrize("mixer", [levels.MIXER, 0], ids=["hashed", "one hash for many"])
def test_keys_that_differ_in_one_word_are_different(mixer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "MIXER", mixer)  # 0: the hash is the last word
    keys = torch.tensor([[5, 5, 1, 5, 1, 5, 6], [0, 7, 2, 0, 2, 8, 0]])

    ids, first = distinct(keys)

    assert ids.tolist() == [0, 1, 2, 0, 2, 3, 4]
    assert first.tolist() == [0, 1, 2, 5, 6]
