"""What torch does not cache is kept for another process, and COMPILE sees what it would have
seen."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor import codecache, compile_fx, config
from torch._inductor.utils import fresh_cache

from kgprof import progress
from kgprof.model import CompilePass, MemoryPass, Options, PassName, TensorRecords
from kgprof.reading import recordings
from kgprof.record.passes.control_flow_cache import ControlFlowCache
from kgprof.record.passes.timing import BYPASS, HIT, MISS
from kgprof.record.processes import fork_server, recorder
from tests.record import one_server

ROWS = (torch.full((4,), 2.0), torch.full((4,), -2.0))


def chosen(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x * 3, (x,))


def plain(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


@pytest.fixture(autouse=True)
def cold() -> Iterator[None]:
    with fresh_cache():
        yield
    torch._dynamo.reset()


def compiled(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[list[torch.Tensor], tuple[int, ...]]:
    """Its results for both rows, and how often the cache was passed by, lacked a graph and had
    it."""
    torch._dynamo.reset()
    counters.clear()
    with torch.no_grad():
        results = [torch.compile(function)(row) for row in ROWS]
    return results, tuple(counters["inductor"][name] for name in (BYPASS, MISS, HIT))


def test_a_graph_with_a_branch_is_kept_where_torch_passes_its_cache_by() -> None:
    with ControlFlowCache(keeps=True) as keeping:
        first, seen = compiled(chosen)
    _, without = compiled(chosen)
    with ControlFlowCache(keeps=False) as finding:
        found, found_seen = compiled(chosen)

    assert keeping.unavailable == finding.unavailable == ""
    # COMPILE's record is what it would be, and so is that of whoever comes later
    assert seen == without == (1, 0, 0)
    assert found_seen == (1, 0, 1)
    for results in (first, found):
        torch.testing.assert_close(results, [chosen(row) for row in ROWS])


RUN = """
import atexit
import torch
from torch._dynamo.utils import counters
def step():
    return chosen(torch.ones(64))
@torch.compile
def chosen(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x * 3, (x,))
atexit.register(lambda: print("FACTS", *(counters["inductor"]["fxgraph_cache_" + n] for n in ("bypass", "hit"))))
"""  # noqa: E501


def test_the_probe_of_a_run_finds_what_its_measurement_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = functools.partial(one_server.imports_shared, runs_functions=True)
    monkeypatch.setattr(fork_server, "imports_shared", shared)
    file = tmp_path / "w.py"
    file.write_text(RUN, encoding="utf-8")
    passes = (PassName.COMPILE, PassName.TIMING, PassName.MEMORY)
    options = Options(workload=f"{file}:step", device="cpu", steps=5, passes=passes)

    (run,) = recordings.load(recorder.record(options, tmp_path, progress.Progress())).runs

    facts = [line.split()[1:] for line in run.log.splitlines() if line.startswith("FACTS")]
    assert facts == [["1", "0"], ["1", "1"]]  # of child A, then of child B
    assert isinstance(run.compile, CompilePass)
    assert len(run.compile.compilations) == 1
    assert isinstance(run.memory, MemoryPass)
    assert isinstance(run.memory.tensors, TensorRecords)
    assert len(run.memory.tensors.graphs) == 1


def test_others_are_cached_as_ever_and_nothing_stays_replaced() -> None:
    prepare, generate = (
        vars(codecache.FxGraphCache)["prepare_key"],
        compile_fx.fx_codegen_and_compile,
    )
    with ControlFlowCache(keeps=True):
        _, seen = compiled(plain)
    with ControlFlowCache(keeps=False):
        _, again = compiled(plain)

    assert (seen, again) == ((0, 1, 0), (0, 0, 1))
    assert vars(codecache.FxGraphCache)["prepare_key"] is prepare
    assert compile_fx.fx_codegen_and_compile is generate


def test_what_torch_cannot_cache_for_another_reason_is_not_kept() -> None:
    passed: list[Any] = []
    with config.patch(post_grad_custom_pre_pass=passed.append):  # it has no uuid
        with ControlFlowCache(keeps=True):
            _, seen = compiled(chosen)
        with ControlFlowCache(keeps=False):
            _, again = compiled(chosen)

    assert seen == again == (1, 0, 0)
    assert passed


def test_a_graph_that_cannot_be_written_is_said_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*args: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(codecache.FxGraphCache, "_save_graph", staticmethod(failing))
    with ControlFlowCache(keeps=True):
        results, _ = compiled(chosen)

    torch.testing.assert_close(results, [chosen(row) for row in ROWS])
    assert "OSError: no space" in capsys.readouterr().err
