"""Checkpoints of compiled and plain modules: which keys were saved, and whether they fit what they
are loaded into."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kgprof.record.listeners.checkpoints import Checkpoints


def plain() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2, 2))


def compiled() -> Any:
    return torch.compile(plain(), backend="eager")


def in_part() -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model[0] = torch.compile(model[0], backend="eager")
    return model


def compiled_in_place() -> torch.nn.Module:
    model = plain()
    model.compile(backend="eager")
    return model


MADE = [(plain, False), (compiled_in_place, False), (compiled, True), (in_part, True)]


@pytest.mark.parametrize(("made", "has_keys"), MADE)
@pytest.mark.parametrize(
    "inside", [lambda state: state, lambda state: {"epoch": 3, "model": state}]
)
def test_the_keys_of_what_is_saved_are_seen(
    made: Callable[[], torch.nn.Module],
    has_keys: bool,
    inside: Callable[[Any], Any],
    tmp_path: Path,
) -> None:
    before = torch.save, torch.nn.Module.load_state_dict
    with Checkpoints() as source:
        for _ in range(3):
            torch.save(inside(made().state_dict()), tmp_path / "model.pt")
        torch.save({"epoch": 3, "lines": ["_orig_mod."]}, tmp_path / "other.pt")

    (only,) = source.found
    assert (only.compiled_keys, only.into_compiled) == (has_keys, None)
    assert (Path(only.location.file), only.location.function) == (
        Path(__file__),
        test_the_keys_of_what_is_saved_are_seen.__name__,
    )
    assert (torch.save, torch.nn.Module.load_state_dict) == before


@pytest.mark.parametrize(("into", "into_has"), MADE)
@pytest.mark.parametrize(("made", "has_keys"), MADE)
def test_keys_that_do_not_fit_the_module_are_those_that_torch_refuses(
    made: Callable[[], torch.nn.Module],
    has_keys: bool,
    into: Callable[[], torch.nn.Module],
    into_has: bool,
) -> None:
    model, state = into(), made().state_dict()
    with Checkpoints() as source:
        if has_keys == into_has and set(state) == set(model.state_dict()):
            model.load_state_dict(state)
        else:
            with pytest.raises(RuntimeError, match=r"Missing key\(s\)"):
                model.load_state_dict(state)

    (only,) = source.found
    assert (only.compiled_keys, only.into_compiled) == (has_keys, into_has)


def test_where_a_frame_fell_back_dynamo_compiles_nothing_of_the_listener() -> None:
    model, seen = plain(), []

    @torch.compile(backend="eager")
    def restored(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            torch._dynamo.graph_break()
            model.load_state_dict(model.state_dict())
        return x + 1

    for source in (Checkpoints(), contextlib.nullcontext()):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        with source:
            restored(torch.ones(2))
        counters = torch._dynamo.utils.counters
        seen.append((dict(counters["frames"]), dict(counters["graph_break"])))

    assert seen[0] == seen[1]
    assert seen[0][0]["total"] > 0


def test_what_dynamo_traces_is_not_broken_by_the_listener() -> None:
    model, seen = plain(), []
    kept = {name: value.clone() for name, value in model.state_dict().items()}

    def restores(x: torch.Tensor) -> Any:
        model.load_state_dict(kept)
        return model(x)

    for source in (Checkpoints(), contextlib.nullcontext()):
        torch._dynamo.reset()
        with source:
            reasons = torch._dynamo.explain(restores)(torch.ones(2, 2)).break_reasons
        seen.append([each.reason for each in reasons])

    assert seen[0] == seen[1]
