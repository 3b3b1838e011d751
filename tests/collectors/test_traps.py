"""Thirteen places where what torch publishes about a compilation is not so, and what kgprof says
there.

Each test also shows the trap on this torch, so that it fails when torch has repaired it and the
test has no point.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import torch
import torch._dynamo
from torch._dynamo.utils import counters, get_compilation_metrics

from kgprof import collectors
from kgprof.collectors.compile import caches, compilations, recompiles
from kgprof.collectors.compile.guard_rejections import ARTIFACT
from kgprof.collectors.graphs import cuda_graphs
from kgprof.measures import kernels
from kgprof.model import (
    Compilation,
    Finding,
    KernelBreakdown,
    KernelKind,
    Options,
    PassName,
    Recording,
    Skipped,
)
from kgprof.model.compile_records import CompileRecords
from kgprof.reading import kineto
from kgprof.reading.evidence import Evidence
from kgprof.reading.recordings import _read_records
from kgprof.record.passes import torch_trace
from kgprof.record.passes.torch_profiler import trace_pass
from kgprof.record.passes.torch_trace import compile_pass
from tests.analysis import recordings
from tests.analysis.recordings import FUSED
from tests.collectors import written
from tests.record.sessions import Stepping

CPU = torch.device("cpu")
X = torch.linspace(0.0, 1.0, 8)


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()
    torch._logging.set_logs()


def recorded(folder: Path, step: Callable[[], object], *, calls: int = 5) -> Recording:
    """The COMPILE pass over ``step``, as a Recording of one run."""
    options = Options(workload=f"{__file__}:step", steps=calls, warmup=3)
    path = folder / "records" / "trace_records.jsonl.gz"
    passed = compile_pass(lambda: Stepping(step), CPU, options, records_to=path)
    records = _read_records(path.parent, path.parent)
    assert isinstance(records, CompileRecords)
    run = msgspec.structs.replace(recordings.run(FUSED), compile=passed, records=records)
    return recordings.recording(run, baseline=None)


def found(recording: Recording) -> list[tuple[str, int]]:
    """(rule, line) of every finding; notes are left out."""
    return [
        (finding.rule, finding.location.line)
        for finding in collectors.findings(Evidence(recording))
        if finding.location is not None and finding.level != "note"
    ]


def rows(recording: Recording) -> tuple[Compilation, ...]:
    trace = Evidence(recording).runs[0].compiler
    assert trace is not None
    return compilations.compilations(trace)


def line(function: Callable[..., object], offset: int) -> int:
    return function.__code__.co_firstlineno + offset


# ------------------------------------------------------------ 1 to 3: counting breaks and operators


def loops(x: torch.Tensor) -> torch.Tensor:
    for power in range(3):
        x = x * power
        print("power", power)  # noqa: T201
    return x.cos()


def test_1_a_break_in_a_loop_is_counted_nowhere_and_loses_the_frame(tmp_path: Path) -> None:
    compiled = torch.compile(loops, backend="eager")
    recording = recorded(tmp_path, lambda: compiled(X))

    assert not counters["graph_break"]
    assert torch._dynamo.explain(loops)(X).graph_break_count == -1
    assert found(recording) == [("KGP102", line(loops, 3))]


def breaks_first(x: torch.Tensor) -> torch.Tensor:
    print("begin")  # noqa: T201
    return x.sin()


def breaks_last(x: torch.Tensor) -> torch.Tensor:
    y = x.sin().cos()
    print("end")  # noqa: T201
    return y


def breaks_only(x: torch.Tensor) -> torch.Tensor:
    print("nothing else")  # noqa: T201
    return x


@pytest.mark.parametrize(
    ("function", "offset", "explained"),
    [(breaks_first, 1, 0), (breaks_last, 2, 0), (breaks_only, 1, -1)],
)
def test_2_one_break_that_explain_counts_as_none_or_less(
    tmp_path: Path, function: Callable[..., object], offset: int, explained: int
) -> None:
    compiled = torch.compile(function, backend="eager")
    recording = recorded(tmp_path, lambda: compiled(X))
    without_a_graph = [("KGP108", line(function, 0))] if function is breaks_only else []

    assert torch._dynamo.explain(function)(X).graph_break_count == explained
    assert found(recording) == [("KGP101", line(function, offset)), *without_a_graph]


def three_methods_and_two_operators(x: torch.Tensor) -> torch.Tensor:
    return x.sin().cos().tanh() + 1 - 2


def test_3_methods_are_operators_too(tmp_path: Path) -> None:
    compiled = torch.compile(three_methods_and_two_operators, backend="eager")
    recording = recorded(tmp_path, lambda: compiled(X))

    assert torch._dynamo.explain(three_methods_and_two_operators)(X).op_count == 2
    assert [row.operators for row in rows(recording)] == [5]


# ---------------------------------------------------------------- 4, 5: torch's metrics


def breaks_between(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    print("between")  # noqa: T201
    return y.cos()


def another(x: torch.Tensor) -> torch.Tensor:
    return x.tanh() + 1


def test_4_a_running_total_is_no_count_of_this_function(tmp_path: Path) -> None:
    broken, clean = torch.compile(breaks_between), torch.compile(another)
    recording = recorded(tmp_path, lambda: (broken(X), clean(X)))

    totals = {metrics.co_name: metrics.num_graph_breaks for metrics in get_compilation_metrics()}
    assert totals["another"] >= 1  # it holds no break at all
    assert found(recording) == [("KGP101", line(breaks_between, 2))]


def test_5_more_compilations_than_torch_keeps_rows_for(tmp_path: Path) -> None:
    functions = [eval(f"lambda x: x + {number}") for number in range(70)]
    compiled = [torch.compile(function, backend="eager") for function in functions]
    recording = recorded(tmp_path, lambda: [function(X) for function in compiled], calls=1)

    assert len(get_compilation_metrics()) == 64
    assert len(rows(recording)) == 70


# ---------------------------------------------------------------- 6, 7: recompiles


def adds(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_6_recompiles_are_found_whatever_log_was_chosen(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    compiled = torch.compile(adds, backend="eager", dynamic=False)
    # after the warm-up it happens twice, so that it is more than a note
    sizes = iter([2, 2, 2, 3, 4])

    def step() -> None:
        torch._logging.set_logs(recompiles=True, recompiles_verbose=True)
        compiled(torch.ones(next(sizes)))

    recording = recorded(tmp_path, step)

    assert "[__recompiles]" not in capfd.readouterr().err  # the verbose one replaces it
    assert found(recording) == [("KGP103", line(adds, 0))]


def test_6_a_log_that_this_torch_lacks_is_said_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_trace, "LOG_ARTIFACTS", ("no_such_artifact",))
    compiled = torch.compile(breaks_between, backend="eager")

    recording = recorded(tmp_path, lambda: compiled(X))

    environment = {**os.environ, "TORCH_LOGS": "no_such_artifact"}
    ended = subprocess.run(
        [sys.executable, "-c", "import torch"], env=environment, capture_output=True, check=False
    )
    assert (ended.returncode, b"ValueError" in ended.stderr) == (1, True)
    (unavailable,) = recording.runs[0].compile.capture_unavailable  # type: ignore[union-attr]
    assert (unavailable.capture, unavailable.why.partition(":")[0]) == ("torch logs", "TypeError")
    assert found(recording) == [("KGP101", line(breaks_between, 2))]


def test_7_one_reason_is_bare_text_and_several_are_json(tmp_path: Path) -> None:
    compiled = torch.compile(adds, backend="eager", dynamic=False)
    sizes = iter([2, 3, 4, 4, 4])

    recording = recorded(tmp_path, lambda: compiled(torch.ones(next(sizes))))

    trace = Evidence(recording).runs[0].compiler
    assert trace is not None
    one, several = [record.payload or "" for record in trace.artifacts(ARTIFACT)]
    with pytest.raises(json.JSONDecodeError):
        json.loads(one)
    assert isinstance(json.loads(several), list)
    (function,) = recompiles.collect(Evidence(recording))
    rejected = [[(g.entry, g.expected, g.actual) for g in r.rejected] for r in function.recompiles]
    assert rejected == [[("0/0", "2", "3")], [("0/1", "3", "4"), ("0/0", "2", "4")]]


# -------------------------------------------------------------- 8 to 10: synchronisation and caches


def scales_by_float(x: torch.Tensor) -> torch.Tensor:
    return x * x.max().item()


def shifts_by_int(x: torch.Tensor) -> torch.Tensor:
    return x + x.argmax().item()


def picks(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda t: t * 2, lambda t: t * 3, (x,))


def traced(folder: Path, function: Callable[..., object]) -> tuple[Recording, kineto.Trace]:
    """COMPILE and then TRACE of five steps on the same compiled code."""
    compiled = torch.compile(function)
    recording = recorded(folder, lambda: compiled(X))
    path = folder / "trace.json.gz"
    assert not isinstance(
        trace_pass(Stepping(lambda: compiled(X)), CPU, Options(steps=5, warmup=1), path), Skipped
    )
    return recording, kineto.read(path)


@pytest.mark.parametrize(
    ("function", "nodes", "reads"), [(scales_by_float, 1, 0), (shifts_by_int, 1, 5), (picks, 0, 5)]
)
def test_8_reads_are_counted_where_they_happen_and_not_in_the_graph(
    tmp_path: Path, function: Callable[..., object], nodes: int, reads: int
) -> None:
    items: list[torch.fx.Node] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
        items.extend(node for node in graph.graph.nodes if node.target == "item")
        return graph.forward

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        torch.compile(function, backend=backend)(X)
        torch._dynamo.reset()
        _, trace = traced(tmp_path, function)

    breakdown = kernels.breakdown(
        trace, device="cpu", measured_in=PassName.TRACE, cpp_kernel_profile=False
    )
    assert isinstance(breakdown, KernelBreakdown)
    assert len(items) == nodes
    assert {row.name: row.count for row in breakdown.rows}.get(
        "aten::_local_scalar_dense", 0
    ) == reads


@pytest.fixture(scope="module")
def cond_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, kineto.Trace]:
    torch._dynamo.reset()
    return traced(tmp_path_factory.mktemp("cond"), picks)


def test_9_a_graph_that_was_not_cached_has_no_key_in_the_trace(
    cond_run: tuple[Recording, kineto.Trace],
) -> None:
    _, trace = cond_run

    names = {event.name for event in trace.events}
    assert "## Call CompiledFxGraph None ##" in names
    assert "Torch-Compiled Region: 0/0" in names
    breakdown = kernels.breakdown(
        trace, device="cpu", measured_in=PassName.TRACE, cpp_kernel_profile=False
    )
    assert isinstance(breakdown, KernelBreakdown)
    assert {row.kind for row in breakdown.rows if "CompiledFxGraph" in row.name} <= {
        KernelKind.FRAMEWORK
    }


def test_10_cond_is_compiled_anew_in_every_process(
    cond_run: tuple[Recording, kineto.Trace],
) -> None:
    recording, _ = cond_run

    assert {(use.cache, use.outcome) for use in caches.collect(Evidence(recording))} == {
        ("FX graph cache", "bypass"),
        ("AOTAutograd cache", "bypass"),
    }
    assert found(recording) == [("KGP106", line(picks, 0))]


# ---------------------------------------------------------------- 11, 12: CUDA graphs


@pytest.mark.parametrize("reason", ["Conditional ops", "Switch ops"])
def test_12_a_partition_is_known_by_its_place_and_not_by_the_words_for_it(reason: str) -> None:
    recording = written.on_cuda(*written.compiled_once(), *written.partitioned(reason))

    (partitioned,) = cuda_graphs.collect(Evidence(recording))[0].partitions
    assert (partitioned.graphed, partitioned.not_graphed, partitioned.reasons) == (1, 1, (reason,))


def test_11_a_silent_skip_shows_in_the_launches_alone() -> None:
    silent = written.on_cuda(*written.compiled_once(), launches=0)

    assert [finding.rule for finding in _about_cuda_graphs(silent)] == ["KGP303"]
    assert [
        finding.rule
        for finding in _about_cuda_graphs(written.on_cuda(*written.compiled_once(), launches=20))
    ] == []


def _about_cuda_graphs(recording: Recording) -> list[Finding]:
    return [
        finding
        for finding in collectors.findings(Evidence(recording))
        if finding.rule.startswith("KGP3")
    ]


# ---------------------------------------------------------------- 13: stances


def test_13_a_first_compilation_is_no_recompile_and_a_warm_functions_break_is_seen(
    tmp_path: Path,
) -> None:
    first = torch.compile(adds, backend="eager")
    with (
        torch.compiler.set_stance("fail_on_recompile"),
        pytest.raises(RuntimeError, match="Detected recompile"),
    ):
        first(X)
    torch._dynamo.reset()
    compiled = torch.compile(breaks_between, backend="eager")

    def step() -> None:
        compiled(X)
        with torch.compiler.set_stance("fail_on_recompile"):
            compiled(X)  # it says nothing of the break

    recording = recorded(tmp_path, step)

    assert recompiles.collect(Evidence(recording)) == ()
    assert found(recording) == [("KGP101", line(breaks_between, 2))]
