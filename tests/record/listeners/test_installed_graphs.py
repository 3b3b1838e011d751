"""Several that stand around the compiled graphs of one process: each is told, and each is taken off
when it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch._dynamo.output_graph import OutputGraph

from kgprof.record.listeners.installed_graphs import InstalledGraphs


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Listener(InstalledGraphs):
    """Writes its name when a graph runs."""

    def __init__(self, name: str, told: list[str]) -> None:
        super().__init__()
        self._word, self._told = name, told

    def around(
        self, output: object, graph: Callable[..., object], captured: object
    ) -> Callable[..., object]:
        def watched(*args: object) -> object:
            self._told.append(self._word)
            return graph(*args)

        return torch._dynamo.disable(watched)


@pytest.mark.parametrize("leaves_first", ["outer", "inner"])
def test_whichever_leaves_first_nothing_of_the_two_is_left(leaves_first: str) -> None:
    original, told = OutputGraph.__dict__["install_global_unsafe"], []
    outer, inner = Listener("outer", told), Listener("inner", told)
    compiled, x = torch.compile(lambda x: x + 1, backend="eager"), torch.ones(2)
    first, last = (outer, inner) if leaves_first == "outer" else (inner, outer)

    outer.__enter__()
    inner.__enter__()
    compiled(x)
    both, told[:] = list(told), []
    first.__exit__(None, None, None)
    compiled(x)
    one, told[:] = list(told), []
    last.__exit__(None, None, None)
    result = compiled(x)

    # what came later stands outside, and one that is buried below another waits for that one
    assert (both, one) == (
        ["inner", "outer"],
        ["inner", "outer"] if leaves_first == "outer" else ["outer"],
    )
    assert told == []
    assert torch.equal(result, torch.full((2,), 2.0))
    assert OutputGraph.__dict__["install_global_unsafe"] is original


def test_what_was_read_of_a_graph_that_a_backend_refuses_is_not_kept() -> None:
    def refuses(graph: object, inputs: object) -> Callable[..., object]:
        raise RuntimeError("no such operator")

    with Listener("any", []) as listener:
        with pytest.raises(Exception, match="no such operator"):
            torch.compile(lambda x: x + 1, backend=refuses)(torch.ones(2))

        assert listener._captured == {}
