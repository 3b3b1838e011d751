"""KGP404: the line that writes, what it writes to, and whether that does harm."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kgprof.collectors.tensors import mutations
from kgprof.collectors.tensors.mutations import ARGUMENT, CAPTURED, FIXED, Mutation
from kgprof.model import Finding, Level
from kgprof.reading.evidence import Evidence
from tests.collectors import written, written_tensors
from tests.collectors.watched import lines_with, recording, watch
from tests.collectors.written_tensors import ALL, given, graph

Step = Callable[[int], object]


def events(step: Step) -> tuple[Mutation, ...]:
    return mutations.collect(Evidence(recording(watch(step), __file__)))


def found(step: Step) -> list[tuple[int, Level]]:
    diagnosed = mutations.diagnose(events(step))
    assert all(
        finding.location is not None and finding.location.file == __file__ for finding in diagnosed
    )
    return [(finding.location.line, finding.level) for finding in diagnosed if finding.location]


def line(mark: str) -> int:
    (number,) = lines_with(__file__, mark)
    return number


class Counts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x)  # a module's buffer
        return x * 2


def test_an_argument_a_captured_tensor_and_a_modules_buffer_are_told_apart() -> None:
    history, x = torch.zeros(4), torch.ones(4)

    @torch.compile(backend="aot_eager")
    def captured(x: torch.Tensor) -> torch.Tensor:
        history.add_(x)  # captured
        return x + 1

    @torch.compile(backend="aot_eager")
    def argument(x: torch.Tensor) -> torch.Tensor:
        x[1:].mul_(0.5)  # argument
        return x + 1

    counts = torch.compile(Counts(), backend="aot_eager")

    (of_captured,), (of_argument,), (of_module,) = (
        events(lambda call: captured(x)),
        events(lambda call: argument(x)),
        events(lambda call: counts(x)),
    )

    assert (of_captured.kind, of_captured.names, of_captured.operators) == (
        CAPTURED,
        ("history",),
        ("add_",),
    )
    assert (of_argument.kind, of_argument.names) == (ARGUMENT, ("x",))
    assert (of_module.kind, of_module.names, of_module.function) == (
        FIXED,
        ("self.seen",),
        "Counts.forward",
    )
    assert [
        event.location and event.location.line for event in (of_captured, of_argument, of_module)
    ] == [
        line("captured"),
        line("argument"),
        line("a module's buffer"),
    ]


def test_what_the_function_itself_made_is_not_given_to_it() -> None:
    x = torch.ones(4)

    @torch.compile(backend="eager")
    def region(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        y.mul_(2)
        return y

    assert found(lambda call: region(x)) == []


def test_an_argument_that_is_written_behind_a_break_is() -> None:
    x = torch.ones(4)

    @torch.compile(backend="eager")
    def region(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        x.mul_(0.5)  # behind a break
        return y

    assert found(lambda call: region(x)) == [(line("behind a break"), Level.WARNING)]


def test_a_view_of_the_argument_that_is_written_behind_a_break_is_a_write_to_the_argument() -> None:
    x = torch.ones(4)

    @torch.compile(backend="eager")
    def region(x: torch.Tensor) -> torch.Tensor:
        head, y = x[:2], x + 1
        torch._dynamo.graph_break()
        head.mul_(0.5)  # through a view behind a break
        return y

    (event,) = events(lambda call: region(x))

    assert (event.names, event.kind) == (("x",), ARGUMENT)
    assert event.location is not None
    assert event.location.line == line("through a view behind a break")


def test_an_argument_that_another_graph_made_is_given_all_the_same() -> None:
    @torch.compile(backend="eager")
    def halve(y: torch.Tensor) -> torch.Tensor:
        return y.mul_(0.5)  # what another graph made

    made = torch.compile(torch.sin, backend="eager")
    x = torch.ones(4)

    assert found(lambda call: halve(made(x))) == [(line("what another graph made"), Level.WARNING)]


def test_an_argument_that_was_rebound_before_the_break_is_a_value_of_the_functions_own() -> None:
    x = torch.ones(4)

    @torch.compile(backend="eager")
    def region(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        x.mul_(2)
        return x.view(-1)

    assert found(lambda call: region(x)) == []


def scale_in_place(x: torch.Tensor) -> None:
    x.mul_(0.5)  # in a function that is called


def test_the_line_is_the_innermost_one_of_the_project() -> None:
    x = torch.ones(4)

    @torch.compile(backend="eager")
    def region(x: torch.Tensor) -> torch.Tensor:
        scale_in_place(x)
        return x + 1

    assert found(lambda call: region(x)) == [(line("in a function that is called"), Level.WARNING)]


def test_training_is_silent() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    compiled, x = torch.compile(model, backend="aot_eager"), torch.ones(3, 4)

    def step(call: int) -> None:
        optimizer.zero_grad()
        compiled(x).sum().backward()
        optimizer.step()

    assert events(step) == ()


@pytest.mark.parametrize("cuda_graphs", [None, True])
def test_whether_torch_captures_the_function_is_not_said_because_it_may(
    cuda_graphs: bool | None,
) -> None:
    """An argument that another CUDA graph made is written to in a CUDA graph."""
    write = written_tensors.InPlace(input=0, operator="mul_", frames=(written_tensors.WRITES,))
    whole = written_tensors.recording(
        graph(given(written=ALL), in_place=(write,), cuda_graphs=cuda_graphs)
    )

    (finding,) = mutations.diagnose(mutations.collect(Evidence(whole)))

    assert finding.message == "the compiled Model.step writes to its argument x (mul_)"


def test_a_version_that_rose_without_an_operator_points_at_the_def() -> None:
    whole = written_tensors.recording(graph(given(written=ALL)))

    (finding,) = mutations.diagnose(mutations.collect(Evidence(whole)))

    assert finding == Finding(
        rule="KGP404",
        level=Level.WARNING,
        message=(
            "the compiled Model.step writes to its argument x, by an operator whose line "
            "was not observed"
        ),
        run=written_tensors.recording().runs[0].key,
        location=written.place(written.FILE, written.STEP_DEF, "step"),
        names=("x",),
        fingerprint=finding.fingerprint,
    )
