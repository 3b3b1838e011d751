"""The policy network and the greedy choice."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kgprof.errors import InputError
from kgprof.workloads.linkpred.policy import (
    ROUNDING,
    GreedyChooser,
    PolicyNetwork,
    PolicySizes,
    choose,
    load_weights,
)

SIZES = PolicySizes(predicates=6, terms=20, embedding=10, hidden=8, layers=2)
INF = math.inf


def network(
    seed: int = 0, dtype: torch.dtype = torch.float64, sizes: PolicySizes = SIZES
) -> PolicyNetwork:
    return PolicyNetwork(sizes, dtype, seed)


def states(*shape: int, seed: int = 0) -> Tensor:
    """Random atoms [..., A, 3] with no padding among them."""
    generator = torch.Generator().manual_seed(seed)
    predicate = torch.randint(3, SIZES.predicates, (*shape, 1), generator=generator)
    arguments = torch.randint(1, SIZES.terms, (*shape, 2), generator=generator)
    return torch.cat([predicate, arguments], -1).to(torch.int32)


# ---------------------------------------------------------------- the choice


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("logits", "index", "nans"),
    [
        ([0.5, 2.0, 1.0], 1, 0),
        ([2.0, 1.0, 2.0], 0, 0),
        ([math.nan, 1.0, 2.0], 2, 1),
        ([math.nan, -5.0, -INF], 1, 1),
        ([math.nan, math.nan, -INF], 0, 2),
        ([-INF, -INF, -INF], 0, 0),
        ([1.0, INF, INF], 1, 0),
        ([-3.0, -INF, -INF], 0, 0),
    ],
)
def test_the_best_logit_is_chosen_nan_is_the_worst_and_the_lowest_index_wins(
    logits: list[float], index: int, nans: int, dtype: torch.dtype
) -> None:
    choice = choose(torch.tensor([logits], dtype=dtype))

    assert (choice.child.tolist(), choice.nans.tolist()) == ([index], [nans])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_logits_closer_than_the_grain_are_a_tie_and_those_further_apart_are_not(
    dtype: torch.dtype,
) -> None:
    grain = ROUNDING[dtype]
    logits = torch.tensor(
        [[1.0, 1.0 + 0.3 * grain, 0.0], [1.0, 1.0 + 3 * grain, 0.0]], dtype=torch.float64
    ).to(dtype)

    assert choose(logits).child.tolist() == [0, 1]


def test_rows_choose_for_themselves() -> None:
    logits = torch.tensor([[0.0, 1.0], [1.0, 0.0], [math.nan, math.nan]], dtype=torch.float64)

    choice = choose(logits)

    assert (choice.child.tolist(), choice.nans.tolist()) == ([1, 0, 0], [0, 0, 2])


# ---------------------------------------------------------------- the network


def test_slots_beyond_the_count_are_minus_infinity_and_real_ones_are_not() -> None:
    logits = network()(states(3, 2), states(3, 4, 2, seed=1), torch.tensor([4, 1, 2]))

    assert torch.isfinite(logits).tolist() == [
        [True] * 4,
        [True, False, False, False],
        [True, True, False, False],
    ]
    assert torch.isneginf(logits).sum() == 5


def test_padding_atoms_do_not_change_a_logit() -> None:
    policy, parent, children = network(), states(3, 2), states(3, 4, 2, seed=1)
    count = torch.tensor([4, 4, 4])

    padded = policy(
        torch.nn.functional.pad(parent, (0, 0, 0, 3)),
        torch.nn.functional.pad(children, (0, 0, 0, 3)),
        count,
    )

    assert torch.equal(padded, policy(parent, children, count))


def test_a_state_is_the_mean_of_its_atoms_so_their_order_is_no_matter() -> None:
    policy, state = network(), states(1, 4)

    torch.testing.assert_close(
        policy.encode(state.flip(1)), policy.encode(state), rtol=1e-13, atol=1e-13
    )


def test_an_atom_is_predicate_plus_subject_minus_object() -> None:
    policy = network()
    predicate, term = policy.predicate.weight, policy.term.weight

    assert torch.equal(policy.embed(torch.tensor([3, 5, 7])), predicate[3] + term[5] - term[7])


def test_the_encoding_is_projection_and_residual_blocks_over_the_mean() -> None:
    policy, state = network(), states(1, 3)[0]

    encoded = policy.projection(torch.stack([policy.embed(atom) for atom in state]).mean(0))
    for block in policy.blocks:
        encoded = encoded + block.linear(
            torch.relu(torch.nn.functional.layer_norm(encoded, (SIZES.hidden,)))
        )

    torch.testing.assert_close(policy.encode(state), encoded, rtol=1e-13, atol=1e-13)


def test_one_seed_gives_one_set_of_weights_whatever_the_global_generator_did() -> None:
    torch.manual_seed(1)
    one = network(seed=5).state_dict()
    torch.manual_seed(2)
    two = network(seed=5).state_dict()

    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["term.weight"], network(seed=6).state_dict()["term.weight"])


def test_float32_weights_are_the_float64_ones_rounded() -> None:
    wide, narrow = network().state_dict(), network(dtype=torch.float32).state_dict()

    assert all(torch.equal(wide[name].float(), narrow[name]) for name in wide)


# ---------------------------------------------------------------- weights from a file


def test_saved_weights_are_loaded_and_converted(tmp_path: Path) -> None:
    saved = network(seed=9)
    torch.save(saved.state_dict(), tmp_path / "policy.pt")
    policy = network(seed=1, dtype=torch.float32)

    load_weights(policy, tmp_path / "policy.pt")

    assert all(
        torch.equal(saved.state_dict()[n].float(), t) for n, t in policy.state_dict().items()
    )


def test_a_loaded_row_for_padding_does_not_count(tmp_path: Path) -> None:
    weights = network(seed=9).state_dict()
    weights["predicate.weight"][0] = 7.0
    torch.save(weights, tmp_path / "policy.pt")
    policy, clean = network(), network(seed=9)

    load_weights(policy, tmp_path / "policy.pt")

    state = torch.nn.functional.pad(states(1, 2), (0, 0, 0, 2))
    assert torch.equal(policy.encode(state), clean.encode(state))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"no weights", "not a file that torch.load(weights_only=True) reads"),
        ([1, 2], "has no state_dict"),
        ({"projection.bias": 3}, "has no state_dict"),
        ({}, "missing ['blocks.0.linear.bias', "),
        (
            {**network().state_dict(), "surplus": torch.zeros(1)},
            "missing none, unexpected ['surplus']",
        ),
        (
            {**network().state_dict(), "projection.bias": torch.zeros(3)},
            "projection.bias has shape [3], expected [8]",
        ),
    ],
    ids=["not-torch", "a-list", "no-tensor", "empty", "surplus", "shape"],
)
def test_a_file_that_does_not_fit_is_one_clear_error(
    tmp_path: Path, content: object, expected: str
) -> None:
    path = tmp_path / "policy.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)

    with pytest.raises(InputError) as caught:
        load_weights(network(), path)

    assert str(caught.value).startswith(f"{path}: ")
    assert expected in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_file_with_code_in_it_is_refused_and_not_run(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "ran",)  # type: ignore[return-value]

    torch.save(Payload(), tmp_path / "policy.pt")

    with pytest.raises(InputError, match="not a file that"):
        load_weights(network(), tmp_path / "policy.pt")

    assert not (tmp_path / "ran").exists()


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="file not found"):
        load_weights(network(), tmp_path / "absent.pt")


# ---------------------------------------------------------------- one state at a time


def test_the_chooser_asks_the_same_question_as_the_batch() -> None:
    policy, parent, children = network(), states(6, 3), states(6, 5, 3, seed=1)
    in_a_batch = choose(policy(parent, children, torch.full((6,), 5))).child.tolist()
    chooser = GreedyChooser(policy, atoms=3)

    one_by_one = [
        chooser(as_state(parent[row]), [as_state(child) for child in children[row]])
        for row in range(6)
    ]

    assert one_by_one == in_a_batch


def test_the_chooser_remembers_its_narrowest_choice_until_it_restarts() -> None:
    policy, parent, children = network(), states(4, 3), states(4, 2, 3, seed=1)
    gaps = policy(parent, children, torch.full((4,), 2)).diff(dim=1).abs().flatten()
    chooser = GreedyChooser(policy, atoms=3)

    for row in range(4):
        chooser(as_state(parent[row]), [as_state(child) for child in children[row]])

    assert chooser.narrowest == pytest.approx(float(gaps.min()), rel=1e-9)
    chooser.restart()
    assert chooser.narrowest == INF


def test_one_child_is_no_choice_and_permuted_children_are_a_tie() -> None:
    state = as_state(states(1, 3)[0])
    chooser = GreedyChooser(network(), atoms=3)

    assert chooser(state, [state]) == 0
    assert chooser.narrowest == INF
    assert chooser(state, [state[::-1], state]) == 0
    assert chooser.narrowest < ROUNDING[torch.float64]


def test_the_chooser_counts_nan_logits() -> None:
    policy = network()
    policy.term.weight[5] = math.nan
    chooser = GreedyChooser(policy, atoms=1)

    index = chooser(((3, 1, 2),), [((3, 5, 2),), ((3, 1, 3),), ((4, 2, 5),)])

    assert (index, chooser.nans) == (1, 2)


def as_state(rows: Tensor) -> tuple[tuple[int, int, int], ...]:
    return tuple(tuple(atom) for atom in rows.tolist())  # type: ignore[misc]
