"""The tabled strategy: the reference's result on random graphs, and each distinct state derived once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from kgprof.errors import UsageError
from kgprof.model import RunKey
from kgprof.workloads.linkpred.evaluator import Found
from kgprof.workloads.linkpred.options import FIRST_LOOKS
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


def in_float32(seed: int) -> LinkPrediction:
    of = every_triple_of_a_random_graph(seed)
    return LinkPrediction(dataclasses.replace(of.options, dtype="float32"), of.graph, of.candidates, seed)


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU does to the operands of a product where TF32 is allowed, with 5 bits left in place of 10: on graphs as
    small as these nothing less would change a choice."""
    monkeypatch.setitem(levels.FIRST_LOOKS, "tf32", 2.0**-4)
    exact = torch.nn.functional.linear

    def rounded(x: torch.Tensor) -> torch.Tensor:
        return ((x.contiguous().view(torch.int32) + 0x20000) & ~0x3FFFF).view(torch.float32)

    def product(layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        if torch.get_float32_matmul_precision() == "high":
            return exact(rounded(x), rounded(layer.weight), layer.bias)
        return exact(x, layer.weight, layer.bias)

    monkeypatch.setattr(torch.nn.Linear, "forward", product)


def looked_at_first(of: LinkPrediction, mode: str = "eager") -> Found:
    return finish(Levels(of.problem(CPU), mode, "aot_eager", first_look="tf32"))


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("seeds", [range(20), *LONG], ids=str)
def test_a_first_look_in_tf32_changes_no_choice_of_float32(seeds: range) -> None:
    for seed in seeds:
        of = in_float32(seed)
        assert same(looked_at_first(of), run(of)), seed


@pytest.mark.usefixtures("coarse")
def test_a_first_look_says_how_often_it_looked_again_and_how_far_it_was_off() -> None:
    of = workload("--dtype", "float32", "--hidden", "32", "--layers", "3")
    search = Levels(of.problem(CPU), "eager", first_look="tf32")

    found = finish(search)

    assert same(found, run(of))
    assert levels.MEASURED <= search.again < search.choices / 2
    assert 0 < search.differed <= levels.FIRST_LOOKS["tf32"]
    assert f"{search.again:,} of {search.choices:,} choices made again" in dict(found.settings)["first look"]
    assert same(looked_at_first(of, "default"), run(of))
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.usefixtures("coarse")
def test_a_first_look_that_is_further_off_than_stated_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(levels.FIRST_LOOKS, "tf32", 1e-6)
    of = workload("--dtype", "float32")

    found = looked_at_first(of)

    assert same(found, run(of))
    assert dict(found.settings)["first look"].startswith("given up")


@pytest.mark.usefixtures("coarse")
def test_choices_that_are_not_made_again_would_be_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the tests above could fail."""
    monkeypatch.setattr(levels, "MEASURED", 0)
    monkeypatch.setattr(Levels, "_undecided", lambda self, logits, lengths: torch.zeros(len(logits), dtype=torch.bool))
    all_of = [in_float32(seed) for seed in range(20)]

    assert not all(same(looked_at_first(of), run(of)) for of in all_of)


@pytest.mark.parametrize("args", [("--dtype", "float64"), ("--dtype", "float32", "--allow-tf32")])
def test_a_first_look_needs_float32_results_to_reproduce(args: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        workload(*args, "--first-look", "tf32")


def test_each_first_look_that_can_be_asked_for_has_its_bound() -> None:
    assert tuple(levels.FIRST_LOOKS) == FIRST_LOOKS


def test_only_levels_has_a_first_look() -> None:
    of = workload("--dtype", "float32", "--first-look", "tf32")
    with pytest.raises(UsageError, match="'fused' has no --first-look"):
        of.prepare(RunKey(strategy="fused", mode="eager"), CPU)


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
