"""torch.compile with another backend in Inductor's place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kgprof import model as m
from kgprof.workloads.backend import as_in, in_place_of_inductor

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
    [
        {},
        {"mode": "max-autotune"},
        {"backend": "inductor"},
        {"options": {"max_autotune": True}},
        {"fullgraph": True},
    ],
    ids=str,
)
def test_who_names_no_backend_or_inductor_gets_the_other_one(settings: dict[str, Any]) -> None:
    # a function is a backend as well as a name
    with in_place_of_inductor(counting):  # type: ignore[arg-type]
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


# ---------------------------------------------------------------- a cell of a sweep


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What torch.compile was called with in the end."""
    called: list[dict[str, Any]] = []
    monkeypatch.setattr(torch, "compile", lambda function, **given: called.append(given))
    return called


@pytest.mark.parametrize(
    ("cell", "own", "expected"),
    [
        (m.Cell(mode="reduce-overhead"), {}, {"mode": "reduce-overhead", "backend": "inductor"}),
        (
            m.Cell(mode="default"),
            {"options": {"max_autotune": True}},
            {"mode": "default", "backend": "inductor"},
        ),
        (m.Cell(mode="default"), {"backend": "eager"}, {"mode": "default", "backend": "inductor"}),
        (
            m.Cell(mode="default", backend="aot_eager"),
            {"mode": "max-autotune"},
            {"backend": "aot_eager"},
        ),
        (
            m.Cell(mode="as-is"),
            {"backend": "eager", "dynamic": False},
            {"backend": "eager", "dynamic": False},
        ),
        (m.Cell(mode="as-is"), {"mode": "max-autotune"}, {"mode": "max-autotune"}),
        (
            m.Cell(mode="default", dynamic=m.Dynamic.TRUE),
            {"dynamic": False, "fullgraph": True},
            {"mode": "default", "dynamic": True, "fullgraph": True, "backend": "inductor"},
        ),
    ],
    ids=str,
)
def test_a_programs_own_calls_compile_as_the_cell_has_it(
    settings: list[dict[str, Any]], cell: m.Cell, own: dict[str, Any], expected: dict[str, Any]
) -> None:
    with as_in(cell, "cpu"):
        torch.compile(lambda x: x, **own)

    assert settings == [expected]


def test_a_cell_of_mode_eager_compiles_nothing() -> None:
    try:
        with as_in(m.Cell(mode="eager", backend="eager"), "cpu"):
            compiled = torch.compile(lambda x: x + 1, backend=counting)

            assert compiled(torch.zeros(2)).tolist() == [1.0, 1.0]
    finally:
        torch.compiler.set_stance("default")

    assert not seen


def test_a_cell_in_bf16_runs_under_autocast() -> None:
    x = torch.ones(2, 2)

    with as_in(m.Cell(mode="default", precision=m.Precision.BF16), "cpu"):
        inside = (x @ x).dtype

    assert (inside, (x @ x).dtype) == (torch.bfloat16, torch.float32)
