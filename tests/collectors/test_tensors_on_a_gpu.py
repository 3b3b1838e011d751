"""What only CUDA graphs show: inputs that are copied before each replay, and results that outlive
theirs."""

from __future__ import annotations

import pytest
import torch

from kgprof.collectors.graphs import addresses
from kgprof.collectors.graphs.addresses import CopiedInput
from kgprof.collectors.tensors import aliases, mutations
from kgprof.model import Recording
from kgprof.reading.evidence import Evidence
from tests.collectors.watched import Step, lines_with, recording, watch

# Of Inductor's and torch's own: the precision that it would choose, and the empty graph that warms
# up a pool.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning"),
]

CUDA = torch.device("cuda")


def seen(step: Step) -> Recording:
    return recording(watch(step), __file__, device="cuda")


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64, 64), requires_grad=False)
        self.register_buffer("seen", torch.zeros(16, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # def of Scaled
        self.seen.add_(1)
        return x @ self.weight + self.seen


def test_the_argument_is_copied_and_the_modules_own_tensors_are_not() -> None:
    compiled = torch.compile(Scaled().to(CUDA), mode="reduce-overhead")
    x = torch.ones(16, 64, device=CUDA)

    def step(call: int) -> None:
        compiled(x)  # passes x

    (event,) = addresses.collect(Evidence(seen(step)))

    assert isinstance(event, CopiedInput)
    assert (event.names, event.size_bytes, event.on_cuda) == (("x",), 16 * 64 * 4, True)
    assert event.location is not None
    assert [event.location.line] == lines_with(__file__, "passes x")


def test_what_is_marked_as_static_is_not_copied_and_may_be_written() -> None:
    x = torch.ones(16, 64, device=CUDA)
    torch._dynamo.mark_static_address(x)

    @torch.compile(mode="reduce-overhead")
    def halved(x: torch.Tensor) -> torch.Tensor:
        x.mul_(0.5)
        return x.sum(0)

    whole = seen(lambda call: halved(x))

    assert addresses.collect(Evidence(whole)) == ()
    assert [event.kind for event in mutations.collect(Evidence(whole))] == ["fixed address"]


def test_a_result_that_is_collected_is_overwritten_and_one_that_is_dropped_or_replaced_is_not() -> (
    None
):
    compiled = torch.compile(Scaled().to(CUDA), mode="reduce-overhead")
    x = torch.ones(16, 64, device=CUDA)
    torch._dynamo.mark_static_address(x)
    kept: list[torch.Tensor] = []
    latest: dict[str, torch.Tensor] = {}

    def collects(call: int) -> None:
        kept.append(compiled(x))

    def drops(call: int) -> None:
        compiled(x)

    def replaces(call: int) -> None:
        latest["y"] = compiled(x)

    (event,) = aliases.collect(Evidence(seen(collects)))
    assert (event.rule, event.kind, event.serious) == ("KGP403", "replay", True)
    assert event.location is not None
    assert [event.location.line] == lines_with(__file__, "def of Scaled")
    assert [aliases.collect(Evidence(seen(step))) for step in (drops, replaces)] == [(), ()]
