"""A program in float64: tensors widened in place, its own dtypes and autocast overruled, random
numbers kept."""

from __future__ import annotations

import numpy as np
import torch

from kgprof.lab.referee import in_float64, live, widen


def test_views_stay_views_and_parameters_and_gradients_are_widened() -> None:
    whole = torch.arange(6.0)
    part, weight, count = whole[2:4], torch.nn.Parameter(torch.ones(3)), torch.arange(3)
    weight.grad = torch.ones(3)

    widen([whole, part, weight, count])
    whole.mul_(2)

    assert part.tolist() == [4.0, 6.0]
    kinds = {each.dtype for each in (whole, part, weight, weight.grad)}
    assert (kinds, count.dtype) == ({torch.float64}, torch.int64)


def test_all_tensors_that_python_holds_are_met() -> None:
    held = {"deep": [torch.full((2,), 0.125)]}

    assert any(tensor is held["deep"][0] for tensor in live(torch.Tensor))


def test_what_a_step_makes_is_made_in_float64() -> None:
    with in_float64():
        made = [
            torch.zeros(2),
            torch.zeros(2, dtype=torch.bfloat16),
            torch.ones(2).half(),
            torch.ones(2).to(torch.float32),
            torch.from_numpy(np.ones(2, np.float32)),
            torch.tensor([1.0]),
        ]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            made.append(torch.ones(2, 2) @ torch.ones(2, 2))

    assert {each.dtype for each in made} == {torch.float64}
    assert (torch.get_default_dtype(), (torch.ones(2)).dtype) == (torch.float32, torch.float32)


def test_random_numbers_are_those_of_float32() -> None:
    x = torch.randn(50, 40)

    def draws(values: torch.Tensor) -> list[torch.Tensor]:
        torch.manual_seed(3)
        filled = torch.empty_like(values).uniform_()
        indices = (torch.randint(9, (40,)), torch.randperm(30))
        assert {each.dtype for each in indices} == {torch.int64}
        drawn = [
            torch.randn(7),
            torch.randn(64),
            torch.rand(64),
            torch.rand(3, dtype=torch.float32),
        ]
        return [
            *(torch.nn.functional.dropout(values, 0.3), filled, torch.bernoulli(filled), *drawn),
            *(each.to(values.dtype) for each in indices),
        ]

    narrow = draws(x)
    with in_float64():
        wide = draws(x.double())

    assert {each.dtype for each in wide} == {torch.float64}
    for ours, theirs in zip(wide, narrow, strict=True):
        torch.testing.assert_close(ours, theirs.double(), rtol=1e-6, atol=1e-6)
