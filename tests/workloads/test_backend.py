"""torch.compile with another backend in Inductor's place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kgprof.workloads.backend import in_place_of_inductor

seen: list[str] = []


def counting(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    seen.append("called")
    return graph.forward


class Doubles(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.fixture(autouse=True)
def _fresh() -> None:
    seen.clear()
    torch.compiler.reset()


@pytest.mark.parametrize(
    "settings",
    [{}, {"mode": "max-autotune"}, {"backend": "inductor"}, {"options": {"max_autotune": True}}, {"fullgraph": True}],
    ids=str,
)
def test_who_names_no_backend_or_inductor_gets_the_other_one(settings: dict[str, Any]) -> None:
    with in_place_of_inductor(counting):  # type: ignore[arg-type]  a function is a backend as well as a name
        compiled = torch.compile(lambda x: x + 1, **settings)

    assert compiled(torch.zeros(2)).tolist() == [1.0, 1.0]
    assert seen == ["called"]


def test_a_decorator_with_settings_and_a_modules_own_compile_are_reached() -> None:
    with in_place_of_inductor(counting):  # type: ignore[arg-type]

        @torch.compile(dynamic=False)
        def step(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        module = Doubles()
        module.compile()

    step(torch.zeros(2))
    module(torch.zeros(2))

    assert seen == ["called", "called"]


def test_dynamos_own_entry_is_reached() -> None:
    with in_place_of_inductor(counting):  # type: ignore[arg-type]
        compiled = [
            torch._dynamo.optimize()(lambda x: x + 1),
            torch._dynamo.optimize("inductor", nopython=True)(lambda x: x + 2),
            torch._dynamo.optimize(backend="inductor")(lambda x: x + 3),
            torch._dynamo.optimize("eager")(lambda x: x + 4),
        ]

    assert [one(torch.zeros(1)).item() for one in compiled] == [1.0, 2.0, 3.0, 4.0]
    assert seen == ["called"] * 3


def test_a_backend_of_the_users_own_choice_stays() -> None:
    with in_place_of_inductor(counting):  # type: ignore[arg-type]
        compiled = torch.compile(lambda x: x + 1, backend="eager")

    compiled(torch.zeros(2))

    assert seen == []


@pytest.mark.parametrize("backend", ["", "eager"])
def test_torch_is_left_as_it_was_found(backend: str) -> None:
    before, optimize = torch.compile, torch._dynamo.optimize

    with in_place_of_inductor(backend):
        assert (torch.compile is before) == (not backend)
    with contextlib.suppress(ZeroDivisionError), in_place_of_inductor(backend):
        raise ZeroDivisionError

    assert torch.compile is before
    assert torch._dynamo.optimize is optimize
