"""Guards on values are kept with their line; those on what a name stands for are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kgprof.model import CompiledGuards
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground.source import listening
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.frame_hook import FrameHook
from kgprof.record.listeners.guard_tree import MOST, TEXT, checked

HERE = ProjectFiles(libraries=(), own=(str(Path(__file__).parent),))


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def guards_of(step: Any) -> list[CompiledGuards]:
    hook = FrameHook(CallIndex(), HERE)
    with listening([hook]):
        step(torch.ones(3))
    assert [line for line in hook.lines() if "guards" in line]
    return hook.guards


def test_a_value_that_is_read_is_a_guard_with_its_line() -> None:
    (guards,) = guards_of(torch.compile(Scaled(), backend="eager"))

    (value,) = [text for text in guards.values if "self'].scale ==" in text]
    assert value.startswith("EQUALS_MATCH: L['self'].scale == 2.5")
    assert "return x * self.scale" in value
    assert "test_guard_tree.py:" in value
    assert not any("TYPE_MATCH" in text for text in guards.values)
    assert not guards.missing


def test_every_state_of_torch_that_is_guarded_is_kept_whole() -> None:
    (guards,) = guards_of(torch.compile(Scaled(), backend="eager"))

    (state,) = [text for text in guards.values if text.startswith("GLOBAL_STATE")]
    assert '"allow_tf32"' in state
    assert '"grad_mode"' in state


def leaf(text: str) -> Any:
    class EQUALS_MATCH:  # noqa: N801  the kind is the name of torch's class
        def verbose_code_parts(self) -> list[str]:
            return [text]

    return EQUALS_MATCH()


def manager(*leaves: Any, below: Any = ()) -> Any:
    return SimpleNamespace(get_leaf_guards=lambda: leaves, get_child_managers=lambda: below)


def test_what_stands_at_several_places_is_counted_once() -> None:
    root = manager(leaf("x == 1"), below=[manager(leaf("x == 1"), leaf("y == 2"))])

    found = checked(SimpleNamespace(root=root), "0/0")

    assert found.values == ("EQUALS_MATCH: x == 1", "EQUALS_MATCH: y == 2")


def test_more_than_are_kept_are_counted() -> None:
    root = manager(*(leaf(f"x == {number}") for number in range(MOST + 3)))

    found = checked(SimpleNamespace(root=root), "0/0")

    assert len(found.values) == MOST
    assert found.left_out == 3


def test_a_long_one_is_cut() -> None:
    found = checked(SimpleNamespace(root=manager(leaf("x" * 2 * TEXT))), "0/0")

    assert len(found.values[0]) == len("EQUALS_MATCH: ") + TEXT


def test_a_tree_of_another_torch_is_said_to_be_unreadable() -> None:
    found = checked(SimpleNamespace(root=object()), "0/0")

    assert "get_leaf_guards" in found.missing
    assert found.values == ()
