"""Faults that a published evaluator had (evaluator.md), each put back: the checks must notice every
one.

Each test has one check, which holds for the code as it is and fails for the code with the fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from kgprof.workloads.linkpred import evaluator, policy, queue, ranking, slots
from kgprof.workloads.linkpred.evaluator import EvaluatorSession, SlotSearch
from kgprof.workloads.linkpred.policy import Choice
from kgprof.workloads.linkpred.proof import FAILED
from kgprof.workloads.linkpred.queue import Handout
from kgprof.workloads.linkpred.sampler import NO_CANDIDATE, Candidates
from kgprof.workloads.linkpred.slots import Slots, SlotStrategy
from kgprof.workloads.linkpred.strategies import batched, fused, torch_cond
from kgprof.workloads.linkpred.unification import Children
from kgprof.workloads.linkpred.workload import LinkPrediction
from tests.workloads.linkpred.evaluations import (
    CPU,
    evaluate,
    one_thread,
    reference,
    same,
    workload,
    wrong_rows,
)

KINDS = (batched.Batched, torch_cond.TorchCond, fused.Fused)
ONE_CALL = (batched.Batched, fused.Fused)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with one_thread():
        yield


def small() -> LinkPrediction:
    return workload("--batch-size", "64")


def agrees_with_reference(kind: type[SlotStrategy], of: LinkPrediction | None = None) -> bool:
    of = of or small()
    return same(evaluate(of, kind).found, reference(of))


# ---------------------------------------------------------------- stale children


class StaleChildren(torch_cond.TorchCond):
    """A slot that goes on keeps the children of its first query, as if the engine ran for refilled
    slots only."""

    def derive_continuing(self, slots: Slots, fresh: Tensor) -> Children:
        return Children(
            *(
                tensor.clone()
                for tensor in (self.child_states, self.child_number, self.child_dropped)
            )
        )


def test_stale_children_are_noticed() -> None:
    assert agrees_with_reference(torch_cond.TorchCond)

    assert not agrees_with_reference(StaleChildren)


# ---------------------------------------------------------------- overwritten slot 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_an_overwritten_result_of_candidate_0_is_noticed(
    kind: type[SlotStrategy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: a slot with nothing to write writes to row -1, clamped to 0."""
    assert agrees_with_reference(kind)

    def clamped(candidate: Tensor, finished: Tensor, size: int) -> Tensor:
        return torch.where(finished, candidate, -1).clamp(min=0)

    for module in (batched, torch_cond, fused):
        monkeypatch.setattr(module, "result_row", clamped)

    assert wrong_rows(evaluate(small(), kind).found, reference(small())) == [0]


# ---------------------------------------------------------------- N > B


@pytest.mark.parametrize("kind", ONE_CALL, ids=lambda kind: kind.name)
def test_candidates_beyond_the_first_batch_that_never_run_are_noticed(
    kind: type[SlotStrategy], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert evaluate(small(), kind).evaluation.declared().finished == 320

    def one_batch(head: Tensor, asking: Tensor, size: int) -> Handout:
        handout = queue.hand_out(head, asking, size)
        return Handout(
            torch.where(handout.candidate < len(asking), handout.candidate, size), handout.head
        )

    monkeypatch.setattr(slots, "hand_out", one_batch)

    assert evaluate(small(), kind).evaluation.declared().finished == 64
    assert not agrees_with_reference(kind)


# ---------------------------------------------------------------- unmasked padding


def test_chosen_padding_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault: the slots after the real children keep their logits."""
    of = workload("--batch-size", "64", "--children-width", "5")
    assert agrees_with_reference(fused.Fused, of)

    monkeypatch.setattr(
        policy, "real_children", lambda children, number: torch.ones(children.shape[:2], dtype=bool)
    )

    assert not agrees_with_reference(fused.Fused, of)


def short_of_corruptions() -> LinkPrediction:
    """Every second query has lost its last two corruptions: four slots of it hold no candidate."""
    full = small()
    slots = full.candidates.slots.copy()
    slots[::2, :, -2:] = NO_CANDIDATE
    kept = np.unique(slots[slots != NO_CANDIDATE])
    renumbered = np.where(slots == NO_CANDIDATE, NO_CANDIDATE, np.searchsorted(kept, slots))
    candidates = replace(full.candidates, triples=full.candidates.triples[kept], slots=renumbered)
    return LinkPrediction(full.options, full.graph, candidates, full.seed)


def metrics_are_right(of: LinkPrediction) -> bool:
    """The realistic MRR of both sides, query by query in plain Python, against the evaluation's."""
    evaluation = evaluate(of, fused.Fused).evaluation
    scores = (reference(of).outcome == 1).astype(float)
    places = []
    for row in of.candidates.slots.reshape(-1, of.candidates.slots.shape[2]):
        own, others = scores[row[0]], [scores[i] for i in row[1:] if i != NO_CANDIDATE]
        places.append(1 + sum(o > own for o in others) + sum(o == own for o in others) / 2)
    mrr = sum(1 / place for place in places) / len(places)
    (both,) = [m for m in evaluation.metrics if (m.side, m.ties) == ("both", "realistic")]
    return (
        evaluation.invalid == int((of.candidates.slots < 0).sum()) and abs(both.mrr - mrr) < 1e-12
    )


def test_ranked_padding_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault: a slot without a candidate is ranked like one (its index clamped to candidate
    0)."""
    of = short_of_corruptions()
    assert of.candidates.invalid == 80
    assert metrics_are_right(of)

    def unmasked(scores: np.ndarray, candidates: Candidates) -> ranking.Ranking:
        return ranking.rank(scores, replace(candidates, slots=np.maximum(candidates.slots, 0)))

    monkeypatch.setattr(evaluator, "rank", unmasked)

    assert not metrics_are_right(of)


# ---------------------------------------------------------------- a step cap taken for completion


def capped() -> tuple[int, int]:
    """(unfinished, finished) of an evaluation that is stopped after four steps."""
    evaluation = evaluate(
        workload("--batch-size", "64", "--max-steps", "4"), fused.Fused
    ).evaluation
    assert evaluation.steps == 4
    return evaluation.unfinished, evaluation.declared().finished


def test_a_step_cap_taken_for_completion_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault: a candidate without a result counts as one that failed."""
    unfinished, finished = capped()
    assert unfinished > 64
    assert 0 < finished <= 3 * 64
    assert unfinished + finished == 320

    monkeypatch.setattr(slots, "UNFINISHED", FAILED)

    assert capped() != (unfinished, finished)


# ---------------------------------------------------------------- unseeded ties


def tied() -> LinkPrediction:
    """Weights of zero: every child of a state has the same logit."""
    of = small()

    class Indifferent(LinkPrediction):
        def policy(self) -> policy.PolicyNetwork:
            network = super().policy()
            for weight in network.parameters():
                weight.zero_()
            return network

    return Indifferent(of.options, of.graph, of.candidates, of.seed)


def test_ties_broken_at_random_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    of = tied()
    assert agrees_with_reference(fused.Fused, of)

    def at_random(logits: Tensor) -> Choice:
        best = logits == logits.amax(1, keepdim=True)
        return Choice((best * torch.rand(logits.shape)).argmax(1), logits.isnan().sum(1))

    monkeypatch.setattr(slots, "choose", at_random)

    assert not agrees_with_reference(fused.Fused, of)


def test_nan_logits_taken_for_the_best_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault: argmax takes the first NaN for the maximum."""
    of = broken()
    assert agrees_with_reference(fused.Fused, of)
    assert reference(of).nans > 0

    monkeypatch.setattr(
        slots, "choose", lambda logits: Choice(logits.argmax(1), logits.isnan().sum(1))
    )

    assert not agrees_with_reference(fused.Fused, of)


def broken() -> LinkPrediction:
    """A NaN among the weights of every third predicate."""
    of = small()

    class Broken(LinkPrediction):
        def policy(self) -> policy.PolicyNetwork:
            network = super().policy()
            network.predicate.weight[5::3, 0] = torch.nan
            return network

    return Broken(of.options, of.graph, of.candidates, of.seed)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_strategy_counts_the_same_nan_logits(kind: type[SlotStrategy]) -> None:
    of = broken()

    assert same(evaluate(of, kind).found, reference(of))


# ---------------------------------------------------------------- what the checks are made of


def test_steps_after_the_end_change_nothing() -> None:
    of = small()
    for kind in KINDS:
        search = SlotSearch(kind(of.problem(CPU)), "eager")
        session = EvaluatorSession(search, of.candidates, {}, None)
        before = session.evaluate(lambda: None)
        for _ in range(3):
            search.advance()
        assert search.done
        assert same(search.found(), reference(of))
        assert (
            evaluator.summarise(search.found(), of.candidates, before.steps, {}).declared()
            == before
        )
