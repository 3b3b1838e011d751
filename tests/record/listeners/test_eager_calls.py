"""Operators that eager code calls, by the line that calls them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils.flop_counter import FlopCounterMode

from kgprof.model import Skipped
from kgprof.model.compile_records import KernelOrigin, KernelOrigins, SourceLine
from kgprof.reading.project import ProjectFiles
from kgprof.record.listeners import eager_calls
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.eager_calls import EagerCalls

HERE = str(Path(__file__))
PROJECT = ProjectFiles(
    libraries=(str(Path(torch.__file__).parent),), own=(str(Path(__file__).parent),)
)


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
    (number,) = [
        number for number, text in enumerate(lines, start=1) if text.strip().startswith(words)
    ]
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

    found = watched(step)

    assert [origin.number for origin in found] == list(range(1, len(found) + 1))
    assert [(origin.kernel, *origin.lines) for origin in found if "lift" not in origin.kernel] == [
        ("torch.ops.aten.scatter_", line("self.x.scatter_")),
        ("torch.ops.aten.scatter_", line("self.y.scatter_")),
        # One entry for what is always called from one line.
        (
            "torch.ops.aten.relu",
            msgspec.structs.replace(line("return torch.relu"), function="doubled"),
        ),
        (
            "torch.ops.aten.mul",
            msgspec.structs.replace(line("return torch.relu"), function="doubled"),
        ),
        ("torch.ops.aten._foreach_copy_", line("torch._foreach_copy_")),
        ("torch.ops.aten.softplus", line("self.y = torch.nn")),  # from within torch.nn.functional
        ("torch.ops.aten.add", line("self.y = torch.nn")),  # an operator of Python's
    ]


class Training:
    """Two products forward and four backward, from two lines; an optimizer."""

    def __init__(self) -> None:
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.optimizer = torch.optim.SGD(
            [*self.first.parameters(), *self.second.parameters()], lr=0.1, foreach=True
        )

    def __call__(self) -> None:
        hidden = self.first(torch.ones(2, 4, requires_grad=True)).tanh()
        loss = self.second(hidden).sum()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def test_a_backward_is_of_the_line_of_its_forward() -> None:
    step = Training()
    step()

    found = [
        (origin.kernel.removeprefix("torch.ops.aten."), *origin.lines) for origin in watched(step)
    ]

    first, second, update = (
        msgspec.structs.replace(line(words), function="Training.__call__")
        for words in ("hidden =", "loss =", "self.optimizer.step")
    )
    assert [at for name, at in found if name == "mm"] == [second, second, first, first]
    assert dict(found)["tanh_backward"] == first
    assert dict(found)["_foreach_add_"] == update


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad.add(grad)


def test_a_derivative_of_the_programs_own_is_where_it_is_written() -> None:
    weight = torch.ones(2, requires_grad=True)

    found = watched(lambda: Doubled.apply(weight).sum().backward())

    (added,) = (origin.lines for origin in found if origin.kernel == "torch.ops.aten.add")
    assert added == (msgspec.structs.replace(line("return grad.add"), function="Doubled.backward"),)


def test_a_gradient_that_is_accumulated_is_at_the_backward() -> None:
    weight = torch.ones(2, requires_grad=True)
    weight.grad = torch.ones(2)

    def step() -> None:
        total = (weight * 3).sum()
        total.backward()  # accumulated

    found = watched(step)

    (added,) = (origin.lines for origin in found if origin.kernel == "torch.ops.aten.add_")
    at = line("total.backward()")
    assert [one.line for one in added] == [at.line]


def test_gradients_of_one_tensor_that_autograd_adds_up_are_told_from_additions_of_the_program() -> (
    None
):
    weight = torch.ones(2, requires_grad=True)
    weight.register_hook(lambda gradient: gradient + 1)

    def step() -> None:
        both = (weight * 3).sum() + weight.exp().sum()
        both.backward()

    found = [(origin.kernel, [one.line for one in origin.lines]) for origin in watched(step)]

    assert sorted(one for one in found if one[0].endswith(".add")) == [
        ("torch.ops.aten.add", [line("weight.register_hook").line]),
        ("torch.ops.aten.add", [line("both = ").line]),
        ("torch.ops.autograd.add", [line("both = ").line]),
    ]


def test_results_are_the_same_bit_for_bit() -> None:
    def trained(run: Callable[[Training], object]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        step = Training()
        run(step)
        return [parameter.detach() for parameter in step.first.parameters()]

    plain = trained(lambda step: [step() for _ in range(5)])

    assert all(map(torch.equal, plain, trained(lambda step: watched(step, times=5))))


def test_a_compilation_in_the_watched_step_goes_on_as_it_would() -> None:
    @torch.compile(backend="eager")
    def fresh(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    before = torch._dynamo.utils.counters["frames"]["ok"]

    watched(lambda: fresh(torch.ones(3)))

    assert torch._dynamo.utils.counters["frames"]["ok"] == before + 1


@pytest.mark.parametrize("backend", ["aot_eager", "eager"])
def test_a_graph_that_is_run_as_it_is_has_the_lines_that_its_nodes_know(backend: str) -> None:
    def squared(x: torch.Tensor) -> torch.Tensor:
        once = x * x
        return once.sum()

    compiled = torch.compile(squared, backend=backend)
    weight = torch.ones(2, requires_grad=True)
    compiled(weight).backward()

    found = watched(lambda: compiled(weight).backward())

    at = {origin.kernel: {one.line for one in origin.lines} for origin in found}
    assert at["torch.ops.aten.mul"] == {line("once = x * x").line}
    assert at["torch.ops.aten.sum"] == {line("return once.sum").line}


def test_what_generated_code_calls_is_not_eager() -> None:
    @torch.compile
    def product(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    product(torch.ones(8, 8))

    assert "torch.ops.aten.mm" not in {
        origin.kernel for origin in watched(lambda: product(torch.ones(8, 8)))
    }


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

    assert "torch.ops.aten._foreach_copy_" in names
    assert "torch.ops.aten.scatter_" not in names


def test_too_many_calls_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_calls, "MAX_CALLS", 3)
    step, calls = Step(), CallIndex()

    assert watched(step) == ()
    with EagerCalls(calls, PROJECT) as watching, calls.call():
        step()
    skipped = watching.beside(Skipped(reason="nothing was compiled"))
    assert isinstance(skipped, Skipped)
    assert "more than 3 operators" in skipped.reason


def test_the_mode_is_taken_off_also_when_the_workload_raises() -> None:
    modes: list[object] = []

    def workload() -> None:
        modes.append(_get_current_dispatch_mode())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), EagerCalls(CallIndex(), PROJECT):
        workload()

    assert modes != [None]
    assert _get_current_dispatch_mode() is None


def test_a_program_with_a_mode_of_its_own_keeps_it() -> None:
    with FlopCounterMode(display=False):
        own = _get_current_dispatch_mode()
        with EagerCalls(CallIndex(), PROJECT) as watching:
            assert _get_current_dispatch_mode() is own
        assert _get_current_dispatch_mode() is own

    assert "a TorchDispatchMode of its own" in watching.unavailable


def test_a_mode_that_the_program_enters_meanwhile_outlives_the_watching() -> None:
    watching = EagerCalls(CallIndex(), PROJECT)
    with ExitStack() as stack:
        watching.__enter__()
        own = stack.enter_context(FlopCounterMode(display=False))

        watching.__exit__()
        seen = watching.origins()
        _ = torch.ones(2, 2) @ torch.ones(2, 2)

        assert own.get_total_flops() == 16
        assert watching.origins() == seen
    left = _get_current_dispatch_mode()
    # below the program's own mode it could not be taken off; it passes everything on
    assert left is not None
    left.__exit__(None, None, None)


def test_inside_a_call_of_a_compiled_function_no_mode_is_set() -> None:
    watching = EagerCalls(CallIndex(), PROJECT)

    @torch._dynamo.disable
    def entered() -> object:
        with watching:
            return _get_current_dispatch_mode()

    assert entered() is None
    assert "inside a call of a compiled function" in watching.unavailable


def test_an_operator_has_the_types_of_what_it_is_given_per_step() -> None:
    calls = CallIndex()
    x = torch.ones(2, 3)
    with EagerCalls(calls, PROJECT) as watching:
        for number in range(2):
            with calls.call():
                torch.cat([x, x.double()])
                torch.mm(x, x.t()) if number else x.exp()

    found = watching.beside(Skipped("nothing was compiled"))

    assert isinstance(found, KernelOrigins)
    assert not isinstance(found.eager, Skipped)
    assert dict(found.eager) == {
        "aten::_to_copy(float32[2, 3], float64)": 1.0,
        "aten::cat([float32[2, 3], float64[2, 3]])": 1.0,
        "aten::exp(float32[2, 3])": 0.5,
        "aten::mm(float32[2, 3], float32[3, 2])": 0.5,
        "aten::t(float32[2, 3])": 0.5,
    }
