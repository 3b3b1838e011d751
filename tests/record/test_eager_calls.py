"""Operators that eager code calls, by the line that calls them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from kgprof.model.compile_records import KernelOrigin, SourceLine
from kgprof.reading.project import ProjectFiles
from kgprof.record import eager_calls
from kgprof.record.call_index import CallIndex
from kgprof.record.eager_calls import EagerCalls

HERE = str(Path(__file__))
PROJECT = ProjectFiles(libraries=(str(Path(torch.__file__).parent),), own=(str(Path(__file__).parent),))


@torch.compile(backend="aot_eager")
def doubled(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x).mul(2)


class Step:
    """Copies, scatters twice and adds with an operator of Python's, around a compiled function."""

    def __init__(self) -> None:
        self.x, self.y = torch.ones(4), torch.zeros(4)
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        torch._foreach_copy_([self.x], [doubled(self.y)])
        self.x.scatter_(0, torch.tensor([1]), 1.0)
        self.y = torch.nn.functional.softplus(self.x) + 1
        self.y.scatter_(0, torch.tensor([2]), 1.0)


def line(words: str) -> SourceLine:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [number for number, text in enumerate(lines, start=1) if text.strip().startswith(words)]
    return SourceLine(file=HERE, line=number, function="Step.__call__")


def watched(step: object, times: int = 3) -> tuple[KernelOrigin, ...]:
    calls = CallIndex()
    with EagerCalls(calls, PROJECT) as watching:
        for _ in range(times):
            with calls.call():
                step()  # type: ignore[operator]
    assert watching.unavailable == ""
    return watching.origins()


def test_each_call_has_the_line_it_stands_in_and_its_place() -> None:
    step = Step()
    step()

    found = [(origin.number, origin.kernel, origin.lines) for origin in watched(step)]

    tensors = [one for one in found if one[1] == "aten.tensor"]
    assert [one[1:] for one in found if one not in tensors] == [
        ("aten._foreach_copy_", (line("torch._foreach_copy_"),)),
        ("aten.scatter_", (line("self.x.scatter_"),)),
        ("aten.softplus", (line("self.y = torch.nn"),)),  # from within torch.nn.functional
        ("aten.scatter_", (line("self.y.scatter_"),)),
    ]
    assert [number for number, _, _ in found] == sorted(number for number, _, _ in found)


def test_what_compiled_code_calls_is_not_eager() -> None:
    assert not [origin for origin in watched(Step()) if origin.kernel in ("aten.relu", "aten.mul")]


def test_an_operator_that_is_called_otherwise_in_another_step_is_left_out() -> None:
    class Changing(Step):
        def __call__(self) -> None:
            super().__call__()
            if self.calls == 2:
                torch.scatter(self.x, 0, torch.tensor([3]), 1.0).scatter_(0, torch.tensor([3]), 1.0)

    step = Changing()
    step()
    step.calls = 0

    names = {origin.kernel for origin in watched(step)}

    assert "aten._foreach_copy_" in names
    assert "aten.scatter_" not in names


def test_too_many_calls_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_calls, "MAX_CALLS", 3)

    assert watched(Step()) == ()


def test_the_hook_is_taken_off_also_when_the_workload_raises() -> None:
    hooks: list[object] = []

    def workload() -> None:
        hooks.append(sys.getprofile())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), EagerCalls(CallIndex(), PROJECT):
        workload()

    assert hooks != [None]
    assert sys.getprofile() is None


def test_a_program_with_a_hook_of_its_own_keeps_it() -> None:
    def own(*_: object) -> None: ...

    sys.setprofile(own)
    try:
        with EagerCalls(CallIndex(), PROJECT) as watching:
            assert sys.getprofile() is own
        assert sys.getprofile() is own
    finally:
        sys.setprofile(None)

    assert "a profiling hook of its own" in watching.unavailable
