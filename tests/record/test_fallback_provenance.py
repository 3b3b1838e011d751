"""Scatters that Inductor leaves to ATen lead to their lines as its own kernels do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._inductor import debug
from torch._inductor.scheduler import Scheduler

from kgprof.reading.project import ProjectFiles
from kgprof.record.fallback_provenance import HANDLE, FallbackProvenance
from kgprof.record.kernel_provenance import KernelProvenance

PROJECT = ProjectFiles(libraries=(str(Path(torch.__file__).parent),), own=(str(Path(__file__).parent),))


def multiplied_into(x: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    products = x.scatter_reduce(0, index, values, reduce="prod")
    return products @ products


def arguments() -> tuple[torch.Tensor, ...]:
    return torch.ones(8, 8), torch.zeros(8, 8, dtype=torch.int64), torch.ones(8, 8)


def test_a_scatter_that_is_left_to_aten_leads_to_its_line() -> None:
    first = multiplied_into.__code__.co_firstlineno
    torch._dynamo.reset()

    with KernelProvenance(PROJECT) as listening:
        torch.compile(multiplied_into)(*arguments())

    called = {origin.kernel: [line.line for line in origin.lines] for origin in listening.origins}
    assert called["aten.scatter_reduce_.two"] == [first + 1]
    assert called["extern_kernels.mm"] == [first + 2]  # noted by Inductor itself, and once
    assert len(called) == len(listening.origins)


def test_the_scheduler_is_as_it_was_also_when_the_workload_raises() -> None:
    before = Scheduler.codegen_extern_call

    with pytest.raises(ZeroDivisionError), FallbackProvenance():
        raise ZeroDivisionError

    assert Scheduler.codegen_extern_call is before


def test_a_torch_that_does_not_count_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(debug, HANDLE)
    before = Scheduler.codegen_extern_call

    with FallbackProvenance() as watch:
        assert Scheduler.codegen_extern_call is before

    assert "does not say what it leaves out" in watch.unavailable
