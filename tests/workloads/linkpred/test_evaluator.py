"""A whole evaluation: classes, counters, the step cap, and the session that the recorder steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from kgprof.reading.link_prediction import CapCounters
from kgprof.workloads.linkpred.caps import Dropped
from kgprof.workloads.linkpred.evaluator import EvaluatorSession, Found, SlotSearch, summarise
from kgprof.workloads.linkpred.proof import FAILED, OVERFLOW, PROVED, TRUNCATED, UNFINISHED
from kgprof.workloads.linkpred.sampler import Candidates
from kgprof.workloads.linkpred.slots import BUFFERS, Problem, classify
from kgprof.workloads.linkpred.strategies.fused import Fused
from kgprof.workloads.linkpred.strategies.torch_cond import TorchCond
from kgprof.workloads.linkpred.workload import LinkPrediction
from kgprof.workloads.protocol import EvaluationSession, ResultSession
from tests.workloads.linkpred.evaluations import CPU, evaluate, one_thread, reference, workload


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with one_thread():
        yield


def small() -> LinkPrediction:
    return workload("--batch-size", "64")


def session(of: LinkPrediction | None = None) -> EvaluatorSession:
    of = of or small()
    return EvaluatorSession(
        SlotSearch(Fused(of.problem(CPU)), "eager"), of.candidates, {}, of.options.max_steps
    )


def test_every_candidate_is_in_one_class_and_the_counters_are_the_references() -> None:
    evaluation, truth = evaluate(small(), Fused).evaluation, reference(small())

    classes = [
        evaluation.proved,
        evaluation.failed,
        evaluation.depth_truncated,
        evaluation.overflow,
    ]
    assert classes == [
        int((truth.outcome == code).sum()) for code in (PROVED, FAILED, TRUNCATED, OVERFLOW)
    ]
    assert sum(classes) == evaluation.candidates == evaluation.declared().finished == 320
    assert evaluation.deep == int(((truth.outcome == PROVED) & (truth.steps > 2)).sum())
    assert evaluation.dropped == CapCounters(**truth.dropped._asdict())
    assert (evaluation.unfinished, evaluation.invalid, evaluation.nan_scores) == (0, 0, 0)


@pytest.mark.parametrize(
    ("proved", "overflowed", "failed", "outcome"),
    [
        (True, True, False, PROVED),
        (True, False, False, PROVED),
        (False, True, True, OVERFLOW),
        (False, True, False, OVERFLOW),
        (False, False, True, FAILED),
        (False, False, False, TRUNCATED),
    ],
)
def test_the_class_is_decided_in_the_order_proved_overflow_failed_truncated(
    proved: bool, overflowed: bool, failed: bool, outcome: int
) -> None:
    decided = classify(*(torch.tensor([flag]) for flag in (proved, overflowed, failed)))

    assert (decided.dtype, decided.tolist()) == (torch.int8, [outcome])


def test_a_summary_counts_scores_and_ranks() -> None:
    candidates = Candidates(
        queries=np.array([[3, 1, 2]]),
        triples=np.array([[3, 1, 2], [3, 4, 2], [3, 1, 2], [3, 1, 5], [3, 1, 6]]),
        slots=np.array([[[0, 1, -1], [2, 3, 4]]]),
    )
    found = Found(
        outcome=np.array([PROVED, FAILED, PROVED, PROVED, UNFINISHED], dtype=np.int8),
        steps=np.array([1, 4, 2, 3, 0], dtype=np.int32),
        dropped=Dropped(atoms=1, children=2, facts=3, rules=4),
        nans=5,
    )

    evaluation = summarise(found, candidates, 7, {"depth": "4"})

    assert (evaluation.candidates, evaluation.proved, evaluation.failed, evaluation.unfinished) == (
        5,
        3,
        1,
        1,
    )
    assert (evaluation.deep, evaluation.invalid, evaluation.steps, evaluation.nan_scores) == (
        1,
        1,
        7,
        5,
    )
    assert evaluation.dropped == CapCounters(atoms=1, children=2, facts=3, rules=4)
    assert evaluation.settings == {"depth": "4"}
    realistic = {m.side: (m.queries, m.mrr) for m in evaluation.metrics if m.ties == "realistic"}
    # Head: alone in front, rank 1. Tail: level with one of two corruptions, rank 1.5.
    assert realistic == {"head": (1, 1.0), "tail": (1, 1 / 1.5), "both": (2, (1 + 1 / 1.5) / 2)}


def test_a_tick_follows_each_step() -> None:
    ticks: list[int] = []

    evaluation = session().evaluate(lambda: ticks.append(1))

    assert len(ticks) == evaluation.steps > 0


def test_an_evaluation_starts_over_whatever_was_stepped_before() -> None:
    one = session()
    for _ in range(3):
        one.step()

    first = one.evaluate(lambda: None)

    assert first == one.evaluate(lambda: None) == session().evaluate(lambda: None)


def test_stepping_past_the_end_starts_over() -> None:
    one = session()
    steps = one.evaluate(lambda: None).steps

    for _ in range(2 * steps + 3):
        one.step()

    assert one.evaluate(lambda: None).steps == steps


def test_the_result_is_that_of_the_last_whole_evaluation() -> None:
    one = session()
    assert dict(one.result()) == {}
    one.evaluate(lambda: None)
    one.step()

    result = one.result()

    assert {name: (array.dtype, array.tolist()) for name, array in result.items()} == {
        "outcome": (np.dtype(np.int8), reference(small()).outcome.tolist()),
        "steps": (np.dtype(np.int32), reference(small()).steps.tolist()),
    }


def test_a_step_cap_leaves_candidates_unfinished_and_says_so() -> None:
    evaluated = evaluate(workload("--batch-size", "64", "--max-steps", "4"), Fused)

    evaluation, outcome = evaluated.evaluation, evaluated.found.outcome
    assert evaluation.steps == 4
    assert evaluation.unfinished == int((outcome == UNFINISHED).sum()) > 0
    assert evaluation.declared().finished == 320 - evaluation.unfinished
    assert evaluation.settings["max_steps"] == "4"
    done = outcome != UNFINISHED
    assert outcome[done].tolist() == reference(small()).outcome[done].tolist()


def test_without_candidates_there_is_nothing_to_do() -> None:
    of = small()
    problem = Problem(
        of.problem(CPU).engine,
        of.policy(),
        torch.zeros((0, 3), dtype=torch.int64),
        batch_size=4,
        depth=3,
    )
    search = SlotSearch(Fused(problem), "eager")

    assert search.done
    search.advance()
    assert search.done
    assert (search.found().outcome.shape, search.found().steps.shape) == ((0,), (0,))


def test_one_candidate_in_many_slots() -> None:
    full = small()
    candidates = replace(
        full.candidates,
        triples=full.candidates.triples[:1],
        slots=np.zeros((1, 2, 1), dtype=np.int64),
    )
    of = LinkPrediction(full.options, full.graph, candidates, full.seed)

    found = evaluate(of, TorchCond).found

    assert (found.outcome.tolist(), found.steps.tolist()) == (
        reference(full).outcome[:1].tolist(),
        reference(full).steps[:1].tolist(),
    )


def test_the_state_stays_at_its_addresses() -> None:
    search = SlotSearch(TorchCond(small().problem(CPU)), "eager")
    before = {name: tensor.data_ptr() for name, tensor in search.strategy.named_buffers()}
    for _ in range(3):
        search.advance()
    search.restart()
    search.advance()

    assert {name: tensor.data_ptr() for name, tensor in search.strategy.named_buffers()} == before
    assert set(BUFFERS) < set(before)


def test_a_step_writes_to_no_buffer() -> None:
    strategy = TorchCond(small().problem(CPU))
    strategy.commit(strategy.step())
    before = {name: tensor.clone() for name, tensor in strategy.named_buffers()}

    strategy.step()

    assert all(torch.equal(tensor, before[name]) for name, tensor in strategy.named_buffers())


def test_a_step_returns_no_buffer_and_no_view_of_one() -> None:
    strategy = TorchCond(small().problem(CPU))
    stepped = strategy.step()
    held = {tensor.untyped_storage().data_ptr() for tensor in strategy.buffers()}

    returned = [*stepped.carried.tensors(), stepped.row, stepped.outcome, stepped.depth]

    assert not [t for t in returned if t.untyped_storage().data_ptr() in held]


def test_a_session_is_one_of_the_recorders_kind() -> None:
    assert isinstance(session(), EvaluationSession)
    assert isinstance(session(), ResultSession)
