"""What Inductor says about where its kernels come from, listened to and put back."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch._inductor import config, debug
from torch._inductor.scheduler import Scheduler

from kgprof.model.compile_records import KernelOrigin, SourceLine
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground.project_sources import project_files
from kgprof.record.listeners import kernel_provenance
from kgprof.record.listeners.kernel_provenance import (
    HANDLE,
    FallbackProvenance,
    KernelProvenance,
    innermost,
    origins,
)

HERE = str(Path(__file__))
PROJECT = ProjectFiles(
    libraries=(str(Path(torch.__file__).parent),), own=(str(Path(__file__).parent),)
)
STACK = (
    '  File "/p/train.py", line 3, in main\n    step(x)\n'
    '  File "/p/model.py", line 9, in forward\n    return helper(x)\n'
    '  File "/env/site-packages/einops/einops.py", line 5, in rearrange\n    pass\n'
)


def product(x: torch.Tensor) -> torch.Tensor:
    scaled = x * 3
    return (scaled @ scaled).sin()


def test_a_line_is_the_innermost_one_of_the_project() -> None:
    project = ProjectFiles(libraries=(), own=())

    assert innermost(STACK, project) == SourceLine(file="/p/model.py", line=9, function="forward")
    in_a_library = SourceLine(file="/env/site-packages/lib/x.py", line=1, function="f")
    assert (
        innermost('  File "/env/site-packages/lib/x.py", line 1, in f\n', project) == in_a_library
    )
    assert innermost('  File "/env/site-packages/torch/x.py", line 1, in f\n', project) is None
    assert innermost("", project) is None


def test_the_artifact_in_the_order_of_its_calls() -> None:
    project = ProjectFiles(libraries=(), own=())
    payload = json.dumps(
        {"triton_poi_fused_add_0:2": [STACK, STACK], "extern_kernels.mm:1": [], "odd": ["nothing"]}
    )

    assert list(origins("3/1", payload, project, {})) == [
        KernelOrigin(
            compile_id="3/1",
            kernel="triton_poi_fused_add_0",
            number=2,
            lines=(SourceLine(file="/p/model.py", line=9, function="forward"),),
        ),
        KernelOrigin(compile_id="3/1", kernel="extern_kernels.mm", number=1, lines=()),
        KernelOrigin(compile_id="3/1", kernel="odd", number=0, lines=()),
    ]


def test_inductors_kernels_lead_to_these_lines() -> None:
    first = product.__code__.co_firstlineno
    torch._dynamo.reset()

    with KernelProvenance(PROJECT) as listening:
        torch.compile(product)(torch.ones(8, 8))

    assert listening.unavailable == ""
    found = {line.line for origin in listening.origins for line in origin.lines}
    assert found == {first + 1, first + 2}
    assert {line.file for origin in listening.origins for line in origin.lines} == {HERE}
    (library,) = [origin for origin in listening.origins if origin.kernel == "extern_kernels.mm"]
    assert [line.line for line in library.lines] == [first + 2]


def test_a_module_of_torchs_own_has_the_line_that_calls_it_its_backward_too() -> None:
    layers = torch.compile(
        torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    )
    with KernelProvenance(project_files("linkpred")) as provenance:
        out = layers(torch.randn(4, 8, requires_grad=True))  # here
        out.sum().backward()

    line = (
        test_a_module_of_torchs_own_has_the_line_that_calls_it_its_backward_too.__code__.co_firstlineno
        + 5
    )
    assert len(provenance.origins) > 3
    assert {(one.file, one.line) for origin in provenance.origins for one in origin.lines} == {
        (HERE, line)
    }
    assert all(origin.lines for origin in provenance.origins)


def test_everything_is_as_it_was_also_when_the_workload_raises() -> None:
    handlers, level = (
        list(logging.getLogger("torch.__trace").handlers),
        config.trace.provenance_tracking_level,
    )

    seen: list[int] = []

    def workload() -> None:
        seen.append(config.trace.provenance_tracking_level)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), KernelProvenance(PROJECT):
        workload()

    assert seen == [1]
    assert logging.getLogger("torch.__trace").handlers == handlers
    assert config.trace.provenance_tracking_level == level


def test_there_is_a_limit_and_it_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_provenance, "MAX_ORIGINS", 1)
    listening = KernelProvenance(PROJECT)

    metadata = {
        "frame_id": 0,
        "frame_compile_id": 0,
        "artifact": {"name": kernel_provenance.ARTIFACT},
    }
    payload = json.dumps({"a:1": [], "b:2": []})
    listening._take(logging.makeLogRecord({"metadata": metadata, "payload": payload}))

    assert (len(listening.origins), listening.left_out) == (1, 1)


def test_a_graph_has_the_key_that_comes_after_it_and_only_the_first_of_a_key() -> None:
    listening = KernelProvenance(PROJECT)

    def hears(name: str, **payload: object) -> None:
        metadata = {"frame_id": 0, "frame_compile_id": 0, "artifact": {"name": name}}
        listening._take(
            logging.makeLogRecord({"metadata": metadata, "payload": json.dumps(payload)})
        )

    for kernel, key in (("a:1", "fa"), ("b:1", "fb"), ("again:1", "fa"), ("bypassed:1", None)):
        hears(kernel_provenance.ARTIFACT, **{kernel: []})
        hears("fx_graph_cache_bypass" if key is None else "fx_graph_cache_miss", key=key)

    assert [(one.kernel, one.graph) for one in listening.origins] == [
        ("a", "fa"),
        ("b", "fb"),
        ("again", ""),
        ("bypassed", ""),
    ]


# ------------------------------------------------------------ scatters that Inductor leaves to ATen


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

    assert f"has no attribute '{HANDLE}'" in watch.unavailable


def test_another_process_finds_the_graphs_that_were_compiled_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo.utils import counters

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    found = []
    for listener in (KernelProvenance(PROJECT), nullcontext()):
        torch._dynamo.reset()
        counters.clear()
        with listener:
            torch.compile(lambda x: (x.sin() + 1).relu())(torch.ones(33))
        caches = (
            counters["inductor"]["fxgraph_cache_hit"],
            counters["aot_autograd"]["autograd_cache_hit"],
        )
        found.append(caches)

    assert found == [(0, 0), (1, 1)]
