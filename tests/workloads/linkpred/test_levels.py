"""The tabled strategy: the reference's result on random graphs, and each distinct state derived
once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from kgprof.errors import UsageError
from kgprof.model import RunKey
from kgprof.workloads.linkpred import first_look
from kgprof.workloads.linkpred.evaluator import Found
from kgprof.workloads.linkpred.first_look import FirstLook
from kgprof.workloads.linkpred.options import FIRST_LOOKS
from kgprof.workloads.linkpred.policy import PolicyNetwork
from kgprof.workloads.linkpred.proof import FAILED, OVERFLOW, PROVED, TRUNCATED
from kgprof.workloads.linkpred.slots import Problem
from kgprof.workloads.linkpred.strategies import levels
from kgprof.workloads.linkpred.strategies.levels import Levels, first_equal
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
    """Every triple is a candidate, facts among them, so that keys with the own atom in them
    occur."""
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


def test_padding_fails_at_once_and_counts_for_nothing() -> None:
    """A chunk of `kgprof evaluate` is filled up with rows of zeros."""
    of = workload()
    problem, truth = of.problem(CPU), reference(of)
    problem.goals[300:] = 0
    found = finish(Levels(problem, "eager"))
    without = finish(Levels(replaced(problem, problem.goals[:300]), "eager"))

    assert (found.outcome[:300] == truth.outcome[:300]).all()
    assert set(found.outcome[300:].tolist()) == {FAILED}
    assert set(found.steps[300:].tolist()) == {1}
    assert found.dropped == without.dropped


def replaced(problem: Problem, goals: Tensor) -> Problem:
    return Problem(problem.engine, problem.policy, goals.long(), batch_size=1, depth=problem.depth)


def test_passes_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that is longer than a pass goes on in the next one."""
    monkeypatch.setitem(levels.DERIVED_ROWS, "cpu", 3)
    monkeypatch.setitem(levels.ENCODED_ROWS, "cpu", 2)

    assert same(run(workload()), reference(workload()))


def in_float32(seed: int) -> LinkPrediction:
    of = every_triple_of_a_random_graph(seed)
    return LinkPrediction(
        dataclasses.replace(of.options, dtype="float32"), of.graph, of.candidates, seed
    )


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands of 2 bits in place of float16's 11: on graphs as small as these nothing less would
    change a choice."""
    monkeypatch.setitem(levels.FIRST_LOOKS, "float16", 2.0**-2)

    def rounded(operand: Tensor) -> Tensor:
        return (
            ((operand.contiguous().view(torch.int32) + 0x200000) & ~0x3FFFFF)
            .view(torch.float32)
            .half()
        )

    monkeypatch.setattr(first_look, "rounded", rounded)


def looked_at_first(of: LinkPrediction, mode: str = "eager") -> Found:
    return finish(Levels(of.problem(CPU), mode, "aot_eager", first_look="float16"))


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("seeds", [range(20), *LONG], ids=str)
def test_a_first_look_changes_no_choice_of_float32(seeds: range) -> None:
    for seed in seeds:
        of = in_float32(seed)
        assert same(looked_at_first(of), run(of)), seed


@pytest.mark.usefixtures("coarse")
def test_a_first_look_says_how_many_children_float32_encoded_and_how_far_it_was_off() -> None:
    of = workload("--dtype", "float32", "--hidden", "32", "--layers", "3")
    search = Levels(of.problem(CPU), "eager", first_look="float16")

    found = finish(search)
    truth = run(of)

    assert same(found, truth)
    assert 0 < search.again < search.children
    assert 0 < search.differed <= levels.FIRST_LOOKS["float16"]
    assert (
        f"{search.again:,} of {search.children:,} children encoded"
        in dict(found.settings)["first look"]
    )


@pytest.mark.long
@pytest.mark.usefixtures("coarse")
def test_a_first_look_with_three_layers_is_compiled() -> None:
    """test_level_table compiles one in each test run."""
    of = workload("--dtype", "float32", "--hidden", "32", "--layers", "3")

    assert same(looked_at_first(of, "default"), run(of))


@pytest.mark.usefixtures("coarse")
def test_a_first_look_that_is_further_off_than_stated_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(levels.FIRST_LOOKS, "float16", 1e-6)
    of = workload("--dtype", "float32")

    found = looked_at_first(of)

    assert same(found, run(of))
    assert dict(found.settings)["first look"].startswith("given up")


@pytest.mark.usefixtures("coarse")
def test_the_best_of_the_first_look_alone_would_be_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the tests above could fail."""

    def best_only(seen: Tensor, parents: Tensor, parent: Tensor, scale: float, _: float) -> Tensor:
        logits = levels.weigh(seen, parents, parent, scale)
        return (
            logits
            >= logits.new_full((len(parents),), -torch.inf).scatter_reduce(
                0, parent, logits, "amax"
            )[parent]
        )

    monkeypatch.setattr(levels, "contenders", best_only)
    all_of = [in_float32(seed) for seed in range(20)]

    assert not all(same(looked_at_first(of), run(of)) for of in all_of)


def random_states(policy: PolicyNetwork, atoms: int) -> Tensor:
    """150 states of 0 to ``atoms`` atoms: more than one program of the kernel, and its last one not
    full."""
    generator = torch.Generator().manual_seed(0)
    states = torch.zeros(150, atoms, 3, dtype=torch.int32)
    states[..., 0] = torch.randint(
        1, policy.sizes.predicates, states.shape[:2], generator=generator
    )
    states[..., 1:] = torch.randint(
        1, policy.sizes.terms, states[..., 1:].shape, generator=generator
    )
    states[torch.arange(atoms) >= torch.arange(150).unsqueeze(1) % (atoms + 1)] = 0
    return states


def furthest(found: Tensor, exact: Tensor) -> float:
    """Of the rows, over their lengths."""
    return float(((found - exact).norm(dim=1) / exact.norm(dim=1).clamp(min=1e-6)).max())


@pytest.mark.parametrize("atoms", ["4", "12"])
def test_a_first_look_is_close_to_the_policy(atoms: str) -> None:
    policy = workload("--dtype", "float32", "--layers", "8", "--max-atoms", atoms).policy()
    states = random_states(policy, int(atoms))

    assert (
        1e-5
        < furthest(FirstLook(policy).encode(states), policy.encode(states))
        < levels.FIRST_LOOKS["float16"]
    )


@pytest.mark.parametrize("args", [("--dtype", "float64"), ("--dtype", "float32", "--allow-tf32")])
def test_a_first_look_needs_float32_results_to_reproduce(args: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        workload(*args, "--first-look", "float16")


def test_each_first_look_that_can_be_asked_for_has_its_bound() -> None:
    assert tuple(levels.FIRST_LOOKS) == FIRST_LOOKS


def test_only_levels_has_a_first_look() -> None:
    of = workload("--dtype", "float32", "--first-look", "float16")
    with pytest.raises(UsageError, match="'fused' has no --first-look"):
        of.prepare(RunKey(strategy="fused", mode="eager"), CPU)


def test_compiled_and_run_twice() -> None:
    search = Levels(workload().problem(CPU), "default", "aot_eager")
    for _ in range(2):
        search.restart()
        assert same(finish(search), reference(workload()))


def test_each_state_is_derived_once() -> None:
    search = Levels(workload().problem(CPU), "eager")
    calls = search.by_torch
    derive = calls.unify
    derived: list[tuple[int, ...]] = []

    def noted(states: torch.Tensor, own: torch.Tensor) -> object:
        rows = torch.cat([states.flatten(1), own], dim=1)
        derived.extend(tuple(row) for row in rows.tolist() if row[0])
        return derive(states, own)

    search.by_torch = calls._replace(unify=noted)
    found = finish(search)

    assert len(derived) == len(set(derived))
    assert len(derived) < found.steps.sum()  # what it would take without the table


KEYS = torch.tensor([[5, 5, 1, 5, 1, 5, 6], [0, 7, 2, 0, 2, 8, 0]]).T


@pytest.mark.parametrize("by_hash", [True, False])
def test_keys_that_differ_in_one_word_are_different(by_hash: bool) -> None:
    first, collisions = first_equal(KEYS, by_hash)

    assert (first.tolist(), int(collisions)) == ([0, 1, 2, 0, 2, 5, 6], 0)


def test_different_keys_with_one_hash_are_counted_and_told_apart_in_another_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(levels, "MIXER", 0)  # the hash is the last word
    of = every_triple_of_a_random_graph(3)
    search = Levels(of.problem(CPU), "eager")

    assert int(first_equal(KEYS, True)[1]) > 0
    assert same(finish(search), reference(of))
    assert not search.by_hash
