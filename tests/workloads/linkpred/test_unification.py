"""The torch engine derives exactly what proof.py derives: eager, compiled, for any batch and any
padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from kgprof.errors import UsageError
from kgprof.workloads.linkpred import family_tree, unification
from kgprof.workloads.linkpred.caps import Caps, Selection
from kgprof.workloads.linkpred.graph import (
    FALSE,
    FIRST_PREDICATE,
    PAD,
    TRUE,
    KnowledgeGraph,
    load_directory,
)
from kgprof.workloads.linkpred.proof import Prover, State
from kgprof.workloads.linkpred.unification import Children, Engine
from tests.workloads.linkpred.random_graphs import Derivations, random_derivations

# torch uses its own deprecated decorators when Dynamo and Inductor are imported (2.13:
# torch/utils/mkldnn.py).
pytestmark = pytest.mark.filterwarnings(
    r"ignore:`torch\.jit\.\w+` is (deprecated|not supported):DeprecationWarning"
)

STATES = 32
GRAPHS = 250
Derive = Callable[[Tensor, Tensor], Children]


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    """Every engine compiles the same function: without this the limit on recompiles would be
    met."""
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small tensors: threads cost more than they give
    yield
    torch.set_num_threads(threads)


def tensors(cases: Derivations) -> tuple[Tensor, Tensor]:
    atoms = cases.caps.atoms
    padded = [[*state, *[(PAD, 0, 0)] * (atoms - len(state))] for state in cases.states]
    return torch.tensor(padded, dtype=torch.int32), torch.tensor(cases.own, dtype=torch.int32)


def expected(cases: Derivations) -> Children:
    """What proof.py says, in the engine's form."""
    prover = Prover(cases.graph, cases.caps, cases.selection)
    answers = [
        prover.derive(state, own) for state, own in zip(cases.states, cases.own, strict=True)
    ]
    table = np.zeros((len(answers), cases.caps.width, cases.caps.atoms, 3), dtype=np.int32)
    for row, (children, _) in zip(table, answers, strict=True):
        for slot, child in zip(row, children, strict=False):
            slot[: len(child)] = child
    return Children(
        torch.from_numpy(table),
        torch.tensor([len(children) for children, _ in answers]),
        torch.tensor([dropped for _, dropped in answers]),
    )


def differing(found: Children, truth: Children) -> int:
    """States whose children, count or counters differ."""
    assert [table.dtype for table in found] == [torch.int32, torch.int64, torch.int64]
    same = torch.stack(
        [(a == b).reshape(len(a), -1).all(1) for a, b in zip(found, truth, strict=True)]
    ).all(0)
    return int((~same).sum())


def engine(cases: Derivations) -> Engine:
    return Engine(cases.graph, cases.caps, cases.selection)


@pytest.fixture(scope="module")
def many() -> list[Derivations]:
    return [random_derivations(seed, states=STATES) for seed in range(GRAPHS)]


@pytest.fixture(scope="module")
def truths(many: list[Derivations]) -> list[Children]:
    return [expected(cases) for cases in many]


def test_the_cases_meet_every_kind_of_child_and_every_counter(
    many: list[Derivations], truths: list[Children]
) -> None:
    first = torch.cat([truth.states[:, 0, 0, 0] for truth in truths])
    counts = torch.cat([truth.number for truth in truths])
    dropped = torch.cat([truth.dropped for truth in truths])

    assert sum(len(cases.states) for cases in many) == len(counts) == GRAPHS * STATES
    assert (first == TRUE).sum() > 500
    assert (first == FALSE).sum() > 500
    assert (counts > 3).sum() > 200
    assert ((dropped > 0).sum(0) > 200).all()


@pytest.mark.parametrize(
    "pairwise", [unification.PAIRWISE_CHILDREN, 0], ids=["by pairs", "by sorting"]
)
def test_the_engine_derives_what_the_proof_derives(
    many: list[Derivations], truths: list[Children], monkeypatch: pytest.MonkeyPatch, pairwise: int
) -> None:
    monkeypatch.setattr(unification, "PAIRWISE_CHILDREN", pairwise)

    wrong = [
        differing(engine(cases).derive(*tensors(cases)), truth)
        for cases, truth in zip(many, truths, strict=True)
    ]

    assert wrong == [0] * GRAPHS


# -------------------------------------------------------------- faults that the comparison must see


def patched(name: str, replacement: Callable[..., object]) -> Callable[[pytest.MonkeyPatch], None]:
    """``replacement`` is called with the original and then its arguments."""

    def put(monkeypatch: pytest.MonkeyPatch) -> None:
        owner: object = Engine if hasattr(Engine, name) else unification
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *arguments: replacement(original, *arguments))

    return put


def without_own(original: Callable[..., object], *arguments: object) -> object:
    *others, own = arguments
    assert isinstance(own, unification.Atoms)
    return original(*others, own._replace(predicate=torch.zeros_like(own.predicate)))


def renumbered(
    original: Callable[..., unification.Atoms], engine: Engine, atoms: unification.Atoms
) -> object:
    """One-to-one, but not by first occurrence."""
    named = original(engine, atoms)
    last = named.terms.flatten(0, 1).amax(0)
    is_variable = named.terms > engine.constants
    return named._replace(
        terms=torch.where(is_variable, engine.constants + 1 + last - named.terms, named.terms)
    )


def reversed_atoms(states: Tensor) -> Tensor:
    """The atoms in reverse, PAD still last."""
    order = torch.argsort(
        (states[:, :, 0] == PAD).to(torch.int32) * 100 - torch.arange(states.shape[1]), dim=1
    )
    return states.gather(1, order.unsqueeze(-1).expand_as(states))


FAULTS = {
    "the own atom unifies as a fact": patched("_resolve_with_facts", without_own),
    "the own atom is pruned": patched("_prune", without_own),
    "all variables are one": patched(
        "_canonical",
        lambda _, engine, atoms: atoms._replace(terms=atoms.terms.clamp(max=engine.constants + 1)),
    ),
    "variables are numbered from the last one on": patched("_canonical", renumbered),
    "children with equal hashes are merged": patched(
        "_repeated", lambda original, words, valid: original(words.sum(0, keepdim=True) % 7, valid)
    ),
    "equal children are kept": patched(
        "_repeated", lambda _, words, valid: torch.zeros_like(valid)
    ),
    "equal to an invalid child is a repeat": patched(
        "_repeated", lambda original, words, valid: original(words, torch.ones_like(valid))
    ),
    "TRUE does not stand alone": patched(
        "_mark",
        lambda mark, engine, words, real, alone, proved: mark(
            engine, words, real, alone & ~proved, proved
        ),
    ),
    "FALSE is missing": patched(
        "_mark",
        lambda mark, engine, words, real, alone, proved: mark(
            engine, words, real, alone & proved, proved
        ),
    ),
    "look-ups beyond the cap are not counted": patched(
        "_excess", lambda original, length, cap: original(length, cap) * 0
    ),
    "the goal is the last of equals": patched(
        "_select", lambda original, engine, states: original(engine, reversed_atoms(states))
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_sees_a_fault(
    many: list[Derivations], truths: list[Children], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    FAULTS[fault](monkeypatch)
    some = zip(many[:80], truths, strict=False)

    wrong = [differing(engine(cases).derive(*tensors(cases)), truth) for cases, truth in some]

    assert sum(wrong) > 0


# ---------------------------------------------------------------- compiled


def compiled(cases: Derivations, backend: str) -> Derive:
    return torch.compile(engine(cases).derive, fullgraph=True, dynamic=False, backend=backend)


@pytest.mark.parametrize(
    "seed",
    [1000, 1001, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1002, 1006))],
)
def test_compiled_as_one_graph_it_derives_the_same(seed: int) -> None:
    cases = random_derivations(seed, states=STATES)

    assert differing(compiled(cases, "aot_eager")(*tensors(cases)), expected(cases)) == 0


@pytest.mark.long
def test_compiled_by_inductor_it_derives_the_same() -> None:
    cases = random_derivations(2000, states=STATES)
    cases = replace(
        cases,
        caps=Caps(atoms=3, children=5, width=7, facts=6, rules=4),
        states=tuple(state[:3] for state in cases.states),
    )
    derive = compiled(cases, "inductor")

    assert differing(derive(*tensors(cases)), expected(cases)) == 0
    other = replace(cases, states=cases.states[::-1], own=cases.own[::-1])
    assert differing(derive(*tensors(other)), expected(other)) == 0


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.long)])
def test_both_ways_to_find_repeated_children_agree_compiled_and_not(backend: str) -> None:
    choose = torch.Generator().manual_seed(0)
    # words as large as they get, often equal
    words = torch.randint(0, 3, (3, 16, 90), generator=choose) << 60
    valid = torch.rand(16, 90, generator=choose) < 0.8

    by_pairs = unification._repeated_by_pairs(words, valid) & valid
    by_sorting = unification._repeated_by_sorting(words, valid) & valid
    search = torch.compile(
        unification._repeated_by_sorting, fullgraph=True, dynamic=False, backend=backend
    )
    compiled = search(words, valid) & valid

    truth = torch.zeros_like(valid)
    for i, children in enumerate(words.permute(1, 2, 0).tolist()):
        seen = []
        for k in valid[i].nonzero().flatten().tolist():
            truth[i, k] = children[k] in seen
            seen.append(children[k])
    assert 0 < truth.sum() < valid.sum()
    assert torch.equal(by_pairs, truth)
    assert torch.equal(by_sorting, truth)
    assert torch.equal(compiled, truth)


def test_no_size_and_no_branch_depends_on_data() -> None:
    """fullgraph=True lets nonzero and item through; fake tensors, which hold no data, do not."""
    cases = random_derivations(0, states=STATES)
    built = engine(cases)
    with FakeTensorMode() as fake:
        for name, buffer in list(built.named_buffers()):
            setattr(built, name, fake.from_tensor(buffer))
        found = built.derive(*map(fake.from_tensor, tensors(cases)))

    assert [tuple(table.shape) for table in found] == [
        tuple(table.shape) for table in expected(cases)
    ]


@pytest.mark.gpu
def test_on_cuda_eager_and_compiled_it_derives_the_same(
    many: list[Derivations], truths: list[Children]
) -> None:
    for cases, truth in zip(many[:40], truths, strict=False):
        found = engine(cases).cuda().derive(*(table.cuda() for table in tensors(cases)))
        assert differing(Children(*(table.cpu() for table in found)), truth) == 0
    cases = many[3]
    derive = torch.compile(engine(cases).cuda().derive, fullgraph=True, dynamic=False)
    found = derive(*(table.cuda() for table in tensors(cases)))
    assert differing(Children(*(table.cpu() for table in found)), truths[3]) == 0


# ---------------------------------------------------------------- what must not matter


def test_neighbours_in_the_batch_do_not_matter(many: list[Derivations]) -> None:
    for cases in many[:20]:
        derive = engine(cases).derive
        states, own = tensors(cases)

        whole = derive(states, own)
        one_by_one = [derive(states[i : i + 1], own[i : i + 1]) for i in range(STATES)]

        assert differing(Children(*map(torch.cat, zip(*one_by_one, strict=True))), whole) == 0


def test_a_wider_tensor_holds_the_same_children(many: list[Derivations]) -> None:
    for cases in many[:20]:
        narrow, wide = (
            engine(replace(cases, caps=replace(cases.caps, width=width))).derive(*tensors(cases))
            for width in (cases.caps.children, 100)
        )

        assert differing(wide._replace(states=wide.states[:, : cases.caps.children]), narrow) == 0
        assert not wide.states[:, cases.caps.children :].any()


def test_a_state_of_padding_is_false(many: list[Derivations]) -> None:
    cases = many[0]
    empty = torch.zeros(3, cases.caps.atoms, 3, dtype=torch.int32)

    found = engine(cases).derive(empty, torch.zeros(3, 3, dtype=torch.int32))

    truth = torch.zeros_like(found.states)
    truth[:, 0, 0, 0] = FALSE
    assert differing(found, Children(truth, torch.ones(3).long(), torch.zeros(3, 4).long())) == 0


# ---------------------------------------------------------------- sizes


def walk(graph: KnowledgeGraph, caps: Caps, *, seed: int, states: int) -> Derivations:
    """States on random walks from the graph's own train and test triples."""
    choose = np.random.default_rng(seed)
    triples = np.concatenate([graph.test, graph.train])
    prover = Prover(graph, caps, Selection.MOST_BOUND)
    met: list[tuple[State, tuple[int, int, int]]] = []
    while len(met) < states:
        predicate, first, second = choose.choice(triples).tolist()
        if choose.random() < 0.5:
            second = int(choose.integers(1, len(graph.constants) + 1))
        own = (predicate, first, second)
        state: State = (own,)
        for _ in range(4):
            met.append((state, own))
            children, _ = prover.derive(state, own)
            state = children[int(choose.integers(len(children)))]
    return Derivations(
        graph=graph,
        caps=caps,
        selection=Selection.MOST_BOUND,
        states=tuple(state for state, _ in met[:states]),
        own=tuple(own for _, own in met[:states]),
    )


def test_on_the_family_tree_it_derives_the_same() -> None:
    graph = family_tree.generate(200, seed=0)

    cases = walk(graph, Caps.from_graph(graph, atoms=6, children=64), seed=0, states=256)

    assert differing(engine(cases).derive(*tensors(cases)), expected(cases)) == 0


@pytest.mark.shared
@pytest.mark.parametrize("name", ["family", "wn18rr"])
def test_on_public_graphs_it_derives_the_same(shared: Path, name: str) -> None:
    graph = load_directory(shared / "data" / name)

    cases = walk(graph, Caps.from_graph(graph, atoms=6, children=64), seed=0, states=128)

    assert differing(engine(cases).derive(*tensors(cases)), expected(cases)) == 0


def test_keys_above_32_bits_are_exact() -> None:
    """As many constants and predicates as FB15k-237 has, and facts at both ends of the range."""
    constants, predicates = 14_541, 237
    choose = np.random.default_rng(0)
    ends = np.array([1, 2, constants - 1, constants])
    facts = np.stack(
        [
            choose.choice([3, 4, predicates + 1, predicates + 2], 400),
            *choose.choice(ends, (2, 400)),
        ],
        axis=1,
    )
    small = random_derivations(0, states=1).graph
    graph = replace(
        small,
        predicates=tuple(f"p{i:03}" for i in range(predicates)),
        constants=tuple(f"c{i:05}" for i in range(constants)),
        train=np.unique(facts, axis=0),
    )
    cases = walk(
        replace(graph, test=graph.train[::-1]),
        Caps.from_graph(graph, atoms=6, children=64),
        seed=0,
        states=256,
    )

    assert (predicates + FIRST_PREDICATE) * (constants + 1) ** 2 > 2**32
    assert differing(engine(cases).derive(*tensors(cases)), expected(cases)) == 0


def test_a_graph_too_large_for_the_keys_is_refused() -> None:
    huge = replace(random_derivations(0, states=1).graph, constants=ManyNames())

    with pytest.raises(UsageError, match="over 3000000000 constants do not fit 64-bit keys"):
        Engine(huge, Caps(atoms=3, children=3, width=3, facts=3, rules=3), "most-bound")


class ManyNames(tuple[str, ...]):
    """Says that it is long without taking the memory."""

    def __len__(self) -> int:
        return 3_000_000_000
