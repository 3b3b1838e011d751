"""One result, whatever the strategy, batch size, padding, order or mode (float64): every class,
step and counter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from kgprof.workloads.linkpred.evaluator import Found, SlotSearch
from kgprof.workloads.linkpred.graph import FIRST_PREDICATE
from kgprof.workloads.linkpred.options import LinkpredOptions
from kgprof.workloads.linkpred.proof import FAILED, OVERFLOW, PROVED, TRUNCATED
from kgprof.workloads.linkpred.sampler import Candidates
from kgprof.workloads.linkpred.slots import SlotStrategy
from kgprof.workloads.linkpred.strategies.batched import Batched
from kgprof.workloads.linkpred.strategies.fused import Fused
from kgprof.workloads.linkpred.strategies.recycled import Recycled
from kgprof.workloads.linkpred.strategies.sequential import Sequential
from kgprof.workloads.linkpred.strategies.stepped import FusedSteps
from kgprof.workloads.linkpred.strategies.torch_cond import TorchCond
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
from tests.workloads.linkpred.random_graphs import random_graph

KINDS = (Batched, Recycled, TorchCond, Fused, FusedSteps)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with one_thread():
        yield


def test_the_problem_has_every_class_deep_proofs_and_drops() -> None:
    truth = reference(workload())

    assert {PROVED, FAILED, TRUNCATED, OVERFLOW} == set(truth.outcome.tolist())
    assert ((truth.outcome == PROVED) & (truth.steps > 2)).sum() >= 20
    assert any(truth.dropped)


# In eager mode, too, torch.cond compiles each of its branches again for every size: seconds. That
# the size, padding and order change nothing of it one of its sizes shows, the long tests more.
LONG_FOR_COND = [
    pytest.param(kind, id=kind.name, marks=[pytest.mark.long] if kind is TorchCond else [])
    for kind in KINDS
]


def kinds_and_sizes(sizes: tuple[int, ...]) -> list[object]:
    return [
        pytest.param(
            kind,
            size,
            id=f"{kind.name}-{size}",
            marks=[pytest.mark.long] if kind is TorchCond and size != 7 else [],
        )
        for kind, size in product(KINDS, sizes)
    ]


@pytest.mark.parametrize(("kind", "batch_size"), kinds_and_sizes((7, 64, 256, 400)))
def test_any_batch_size(kind: type[SlotStrategy], batch_size: int) -> None:
    """320 candidates: 7 and 64 are fewer, 400 are more."""
    found = evaluate(workload("--batch-size", str(batch_size)), kind).found

    assert same(found, reference(workload()))


@pytest.mark.parametrize("kind", LONG_FOR_COND)
def test_a_wider_children_tensor_at_the_same_cap(kind: type[SlotStrategy]) -> None:
    narrow, wide = (
        workload("--batch-size", "64"),
        workload("--batch-size", "64", "--children-width", "11"),
    )

    assert (narrow.caps.children, narrow.caps.width) == (2, 2)
    assert (wide.caps.children, wide.caps.width) == (2, 11)
    assert same(evaluate(wide, kind).found, reference(narrow))


@pytest.mark.parametrize("kind", LONG_FOR_COND)
def test_shuffled_candidates(kind: type[SlotStrategy]) -> None:
    straight = workload("--batch-size", "64")
    order = np.random.default_rng(3).permutation(len(straight.candidates.triples))

    found = evaluate(shuffled(straight, order), kind).found

    truth = reference(straight)
    expected = Found(
        outcome=truth.outcome[order],
        steps=truth.steps[order],
        dropped=truth.dropped,
        nans=truth.nans,
    )
    assert same(found, expected)


def shuffled(of: LinkPrediction, order: np.ndarray) -> LinkPrediction:
    """The same candidates handed out in another order."""
    place = np.argsort(order)
    slots = np.where(of.candidates.slots >= 0, place[of.candidates.slots], -1)
    candidates = replace(of.candidates, triples=of.candidates.triples[order], slots=slots)
    return LinkPrediction(of.options, of.graph, candidates, of.seed)


def test_shuffled_candidates_rank_the_same() -> None:
    straight = workload("--batch-size", "64")
    order = np.random.default_rng(3).permutation(len(straight.candidates.triples))

    assert (
        evaluate(shuffled(straight, order), Fused).evaluation.metrics
        == evaluate(straight, Fused).evaluation.metrics
    )


def every_triple_of_a_random_graph(seed: int) -> LinkPrediction:
    """Recursion, loops, constants and repeated variables in rules, unsafe heads; caps so low that
    each one drops."""
    graph = random_graph(seed)
    constants = range(1, len(graph.constants) + 1)
    predicates = range(FIRST_PREDICATE, FIRST_PREDICATE + len(graph.predicates))
    triples = np.array(list(product(predicates, constants, constants)), dtype=np.int64)
    candidates = Candidates(
        queries=triples[:1], triples=triples, slots=np.zeros((1, 2, 1), dtype=np.int64)
    )
    caps = {
        "max_atoms": 3,
        "max_children": 3,
        "children_width": 4,
        "fact_fanout": 2,
        "rule_fanout": 2,
    }
    options = LinkpredOptions(batch_size=16, depth=6, embedding=8, hidden=8, layers=1, **caps)
    return LinkPrediction(options, graph, candidates, seed)


OTHERS = [pytest.param(kind, 100, marks=pytest.mark.long) for kind in (*KINDS, Sequential)]


@pytest.mark.parametrize(
    ("kind", "graphs"),
    [(Batched, 20), (Fused, 20), *OTHERS],
    ids=lambda each: str(getattr(each, "name", each)),
)
def test_random_graphs_under_tight_caps(kind: type[SlotStrategy], graphs: int) -> None:
    dropped = np.zeros(4, dtype=np.int64)
    outcomes: set[int] = set()
    for seed in range(graphs):
        of = every_triple_of_a_random_graph(seed)
        truth = reference(of)
        assert same(evaluate(of, kind).found, truth), seed
        dropped += truth.dropped
        outcomes |= set(truth.outcome.tolist())

    assert dropped.min() > 0
    assert outcomes == {PROVED, FAILED, TRUNCATED, OVERFLOW}


@pytest.mark.parametrize(("kind", "batch_size"), kinds_and_sizes((7, 64)))
def test_each_slot_with_the_candidates_of_its_own_queries(
    kind: type[SlotStrategy], batch_size: int
) -> None:
    """40 queries: 7 slots take several each, and of 64 slots 24 get none."""
    of = workload("--batch-size", str(batch_size), "--layout", "transposed")

    assert same(evaluate(of, kind).found, reference(workload()))


def test_slots_that_take_their_own_queries_take_more_steps() -> None:
    queue, own = (
        evaluate(workload("--batch-size", "64", *args), Recycled)
        for args in ((), ("--layout=transposed",))
    )

    # 8 candidates of a query one after the other, where 320 candidates in 64 slots are 5 each.
    assert own.evaluation.steps > 1.3 * queue.evaluation.steps


@pytest.mark.parametrize("choices", [1, 3, 50])
def test_any_number_of_choices_in_a_call(choices: int) -> None:
    found = evaluate(workload("--batch-size", "64", "--choices", str(choices)), FusedSteps)

    assert same(found.found, reference(workload()))
    one_by_one = evaluate(workload("--batch-size", "64"), Fused).evaluation.steps
    assert found.evaluation.steps == math.ceil(one_by_one / choices)


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        pytest.param(
            kind,
            part,
            id=f"{kind.name}-{part}",
            marks=[pytest.mark.long] if kind is TorchCond else [],
        )
        for kind, part in product((Batched, TorchCond, FusedSteps), ("engine", "policy"))
    ],
)
def test_only_a_part_is_compiled(kind: type[SlotStrategy], part: str) -> None:
    captured: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., object]:
        captured.append(graph)
        return graph.forward

    of = workload("--batch-size", "64")
    search = SlotSearch(kind(of.problem(CPU)), "default", backend, part=part)
    while not search.done:
        search.advance()

    assert same(search.found(), reference(workload()))
    linear = [
        node for graph in captured for node in graph.graph.nodes if "linear" in str(node.target)
    ]
    assert captured
    assert bool(linear) is (part == "policy")


# torch_cond's step has all the parts of the others' and the branch besides.
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=kind.name, marks=[] if kind is TorchCond else [pytest.mark.long])
        for kind in KINDS
    ],
)
def test_compiled_as_one_graph_by_a_backend_without_code_generation(
    kind: type[SlotStrategy],
) -> None:
    # two choices are a loop that is unrolled; more only make the graph longer
    of = workload("--batch-size", "64", "--choices", "2")
    found = evaluate(of, kind, mode="default", backend="aot_eager").found

    assert same(found, reference(workload()))


# torch 2.13 itself uses what it deprecates, in a module that Inductor imports.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_compiled_by_inductor() -> None:
    found = evaluate(workload("--batch-size", "64"), TorchCond, mode="default").found

    assert same(found, reference(workload()))


def test_the_same_again() -> None:
    of = workload("--batch-size", "64")

    assert same(evaluate(of, Fused).found, evaluate(of, Fused).found)


def test_another_seed_is_another_result() -> None:
    """So that the tests above compare something."""
    assert wrong_rows(evaluate(workload(seed=1), Fused).found, reference(workload()))
