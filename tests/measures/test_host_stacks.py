"""The tree of host stacks: every nanosecond of a step in one node, and what is small shown as
such."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from kgprof.measures import host_stacks
from kgprof.model import FlameGraph, Options, PassName, Skipped, TracePass
from kgprof.reading import kineto
from kgprof.record.passes.stack_profiler import stack_pass
from tests.analysis.events import event, step, write
from tests.record.sessions import Stepping


def graph(tmp_path: Path, *events: dict[str, Any]) -> FlameGraph:
    found = stacks(tmp_path, *events)
    assert isinstance(found, FlameGraph)
    return found


def stacks(tmp_path: Path, *events: dict[str, Any]) -> FlameGraph | Skipped:
    return host_stacks.flame_graph(
        kineto.read(write(tmp_path / "trace.json", events)).columns, measured_in=PassName.STACK
    )


def python(name: str, start_us: float, duration_us: float, **where: Any) -> dict[str, Any]:
    return event("python_function", name, start_us, duration_us, **where)


def operator(name: str, start_us: float, duration_us: float, **where: Any) -> dict[str, Any]:
    return event("cpu_op", name, start_us, duration_us, **where)


def tree(found: FlameGraph) -> list[tuple[str, int, int, int]]:
    """Path of names, self and total nanoseconds, calls; in the order of the nodes."""
    paths: list[str] = []
    for node, parent in enumerate(found.parent):
        name = found.names[found.frames[found.frame[node]].name]
        paths.append(name if parent < 0 else f"{paths[parent]}/{name}")
    return list(zip(paths, found.self_ns, found.total_ns, found.calls, strict=True))


def test_every_node_has_its_own_time_and_that_of_what_it_called(tmp_path: Path) -> None:
    found = graph(
        tmp_path,
        step(1, 100.0, 50.0),
        python("model.py(7): forward", 110.0, 30.0),
        operator("aten::mm", 115.0, 10.0),
        step(2, 200.0, 50.0),
        python("model.py(7): forward", 205.0, 40.0),
        operator("aten::mm", 210.0, 5.0),
        operator("aten::mm", 220.0, 5.0),
    )

    assert tree(found) == [
        ("step", 30_000, 100_000, 2),
        ("step/forward", 50_000, 70_000, 2),
        ("step/forward/aten::mm", 20_000, 20_000, 3),
    ]
    assert (found.steps, found.per, found.measured_in) == (2, "step", PassName.STACK)
    assert [(found.names[frame.file], frame.line, frame.kind) for frame in found.frames] == [
        ("", 0, "step"),
        ("model.py", 7, "python"),
        ("", 0, "operator"),
    ]
    assert (found.pruned_below, found.pruned_nodes, found.pruned_ns) == (0.0005, 0, 0)


def test_what_was_open_before_the_step_and_after_it_is_no_node(tmp_path: Path) -> None:
    found = graph(
        tmp_path,
        python("train.py(1): <module>", 0.0, 1000.0),
        python("train.py(9): main", 10.0, 900.0),
        step(1, 100.0, 50.0),
        python("train.py(4): one", 110.0, 10.0),
    )

    assert [path for path, *_ in tree(found)] == ["step", "step/one"]


def test_what_begins_before_the_step_or_ends_after_it_counts_inside_it(tmp_path: Path) -> None:
    found = graph(
        tmp_path,
        python("torch/profiler/profiler.py(1227): step", 90.0, 15.0),
        step(1, 100.0, 50.0),
        python("a.py(1): late", 140.0, 30.0),
    )

    assert tree(found) == [
        ("step", 35_000, 50_000, 1),
        ("step/late", 10_000, 10_000, 1),
        ("step/step", 5_000, 5_000, 1),
    ]
    assert found.frames[found.frame[2]].kind == "profiler"


def test_what_goes_on_beyond_what_it_began_in_is_cut_there(tmp_path: Path) -> None:
    found = graph(
        tmp_path,
        step(1, 0.0, 100.0),
        python("a.py(1): outer", 10.0, 20.0),
        python("a.py(2): inner", 20.0, 40.0),
    )

    assert tree(found) == [
        ("step", 80_000, 100_000, 1),
        ("step/outer", 10_000, 20_000, 1),
        ("step/outer/inner", 10_000, 10_000, 1),
    ]


def test_an_operator_holds_the_operators_that_it_calls_and_not_the_python_that_it_calls(
    tmp_path: Path,
) -> None:
    found = graph(
        tmp_path,
        step(1, 0.0, 100.0),
        operator("mylib::custom", 10.0, 80.0),
        operator("aten::to", 20.0, 10.0),
        python("a.py(3): custom_kernel", 40.0, 40.0),
        operator("Torch-Compiled Region: 0/0", 50.0, 20.0),
        operator("aten::mm", 55.0, 10.0),
    )

    region = "step/mylib::custom/custom_kernel/Torch-Compiled Region: 0/0"
    assert tree(found) == [
        ("step", 20_000, 100_000, 1),
        ("step/mylib::custom", 40_000, 80_000, 1),
        ("step/mylib::custom/custom_kernel", 20_000, 40_000, 1),
        (region, 10_000, 20_000, 1),
        (f"{region}/aten::mm", 10_000, 10_000, 1),
    ]


@pytest.mark.parametrize(
    ("category", "name", "shown", "kind"),
    [
        ("python_function", "torch/nn/modules/module.py(1782): _call_impl", "_call_impl", "torch"),
        ("python_function", "/usr/lib/python3/site-packages/torch/_ops.py(1): f", "f", "torch"),
        ("python_function", "torchy/train.py(1): f", "f", "python"),
        ("python_function", "torch/autograd/profiler.py(918): __enter__", "__enter__", "profiler"),
        ("python_function", "/w/kgprof/record/timing.py(5): tick", "tick", "profiler"),
        ("python_function", "/w/kgprof/workloads/user.py(5): step", "step", "profiler"),
        ("python_function", "/w/kgprof/workloads/linkpred/queue.py(5): refill", "refill", "python"),
        (
            "python_function",
            "/tmp/kgprof-w8/caches/inductor/xu/"
            "cxukwsnys7dwncjhhmgm47krwzmvihq2iwm5zsjgd7wmdh7f3bzd.py(38): call",
            "call",
            "generated",
        ),
        ("python_function", "nn.Module: Linear_0", "nn.Module: Linear_0", "module"),
        (
            "python_function",
            "<built-in method ones of type object at 0x7f724f8cea40>",
            "<built-in method ones of type object>",
            "builtin",
        ),
        (
            "python_function",
            "<built-in method f of pybind11_builtins.pybind11_detail_function_record_v1_abi "
            "object at 0x7F>",
            "<built-in method f of pybind11 object>",
            "builtin",
        ),
        ("cpu_op", "## Call CompiledFxGraph fabc ##", "## Call CompiledFxGraph fabc ##", "region"),
        ("cpu_op", "TorchDynamo Cache Lookup", "TorchDynamo Cache Lookup", "operator"),
        ("user_annotation", "my span", "my span", "span"),
        ("cuda_runtime", "cudaLaunchKernel", "cudaLaunchKernel", "call"),
    ],
)
def test_what_a_node_is(tmp_path: Path, category: str, name: str, shown: str, kind: str) -> None:
    found = graph(
        tmp_path,
        step(1, 0.0, 100.0),
        event(category, name, 10.0, 20.0),
        python("a.py(1): other", 40.0, 10.0),
    )

    frame = found.frames[found.frame[1]]
    assert (found.names[frame.name], frame.kind) == (shown, kind)


def test_calls_of_one_builtin_through_two_objects_are_one_node(tmp_path: Path) -> None:
    found = graph(
        tmp_path,
        step(1, 0.0, 100.0),
        python("<built-in method keys of dict object at 0x1>", 10.0, 10.0),
        python("<built-in method keys of dict object at 0x2>", 30.0, 10.0),
    )

    assert tree(found)[1] == ("step/<built-in method keys of dict object>", 20_000, 20_000, 2)


def test_kgprofs_loop_around_the_steps_is_no_node_in_the_step_in_which_it_begins(
    tmp_path: Path,
) -> None:
    found = graph(
        tmp_path,
        step(1, 0.0, 100.0),
        python("/w/kgprof/record/torch_profiler.py(73): _run", 10.0, 180.0),
        python("a.py(1): one", 20.0, 50.0),
        step(2, 100.0, 100.0),
        python("a.py(1): one", 120.0, 50.0),
    )

    assert tree(found) == [("step", 100_000, 200_000, 2), ("step/one", 100_000, 100_000, 2)]


def test_small_nodes_are_pushed_together_under_their_parent(tmp_path: Path) -> None:
    small = [python(f"a.py({line}): small{line}", 100.0 + 10 * line, 4.0) for line in (1, 2)]
    found = graph(
        tmp_path,
        step(1, 0.0, 100_000.0),
        python("a.py(9): large", 90.0, 5_000.0),
        *small,
        python("a.py(3): inside", 111.0, 1.0),
    )

    assert tree(found) == [
        ("step", 95_000_000, 100_000_000, 1),
        ("step/large", 4_992_000, 5_000_000, 1),
        ("step/large/(other)", 8_000, 8_000, 3),
    ]
    assert (found.pruned_nodes, found.pruned_ns) == (3, 8_000)
    assert found.functions == 4
    assert {found.names[found.frames[row.frame].name] for row in found.top} == {
        "large",
        "small1",
        "small2",
        "inside",
    }


def test_a_tree_with_too_many_nodes_is_pruned_higher_up_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_stacks, "MOST_NODES", 4)
    functions = [
        python(f"a.py({line}): f{line}", 1_000.0 * line, 10.0 * line) for line in range(1, 9)
    ]

    found = graph(tmp_path, step(1, 0.0, 10_000.0), *functions)

    assert [path for path, *_ in tree(found)] == ["step", "step/f8", "step/(other)"]
    assert found.pruned_below == 0.0005 * 2**4
    assert sum(found.self_ns) == 10_000_000


def test_a_recursion_counts_once_in_what_a_function_took_with_what_it_called(
    tmp_path: Path,
) -> None:
    found = graph(
        tmp_path,
        step(1, 0.0, 100.0),
        python("a.py(1): again", 10.0, 60.0),
        python("a.py(1): again", 20.0, 40.0),
        python("a.py(5): leaf", 30.0, 10.0),
    )

    rows = [
        (found.names[found.frames[r.frame].name], r.self_ns, r.total_ns, r.calls) for r in found.top
    ]
    assert rows == [("again", 50_000, 60_000, 2), ("leaf", 10_000, 10_000, 1)]


def test_operators_of_other_threads_are_counted_and_not_drawn(tmp_path: Path) -> None:
    found = graph(
        tmp_path,
        step(1, 0.0, 100.0),
        python("a.py(1): main", 10.0, 60.0),
        operator("aten::mm", 20.0, 30.0, thread=2),
        operator("aten::add", 40.0, 20.0, thread=2),
        operator("aten::mm", 90.0, 30.0, thread=3),
        python("threading.py(1): wait", -100.0, 900.0, thread=2),
    )

    assert [path for path, *_ in tree(found)] == ["step", "step/main"]
    assert found.other_threads_ns == 50_000


def test_a_trace_without_marked_steps_is_one_window(tmp_path: Path) -> None:
    found = graph(tmp_path, python("a.py(1): main", 10.0, 60.0), python("a.py(2): f", 20.0, 30.0))

    assert (found.per, found.steps) == ("window", 1)
    assert tree(found) == [
        ("window", 0, 60_000, 1),
        ("window/main", 30_000, 60_000, 1),
        ("window/main/f", 30_000, 30_000, 1),
    ]


def test_of_a_large_trace_the_first_steps_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_stacks, "MOST_EVENTS", 2)
    events = [
        (step(n, 100.0 * n, 50.0), python("a.py(1): f", 100.0 * n + 10, 10.0)) for n in range(5)
    ]

    found = graph(tmp_path, *itertools.chain(*events))

    assert (found.steps, found.notes) == (2, ("the first 2 of 5 steps",))


def test_a_trace_without_stacks_has_none(tmp_path: Path) -> None:
    found = stacks(tmp_path, step(1, 0.0, 100.0), operator("aten::mm", 20.0, 30.0))

    assert found == Skipped(
        reason="its trace has no Python functions because it was recorded without stacks"
    )


def test_steps_without_a_duration_have_none(tmp_path: Path) -> None:
    found = stacks(tmp_path, step(1, 5.0, 0.0), python("a.py(1): f", 10.0, 10.0))

    assert found == Skipped(reason="its steps have no duration")


@settings(max_examples=60, deadline=None)
@given(data=some.data())
def test_own_times_always_add_up_to_the_steps(
    data: some.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    number = some.integers(min_value=0, max_value=120)
    spans = data.draw(
        some.lists(some.tuples(some.sampled_from("abcd"), number, number), max_size=30)
    )
    events = [
        python(f"x.py(1): {name}", start, length)
        if name < "c"
        else operator(f"aten::{name}", start, length)
        for name, start, length in spans
    ]

    found = graph(
        tmp_path_factory.mktemp("trace"),
        python("x.py(9): once", 5.0, 1.0),
        step(1, 0.0, 50.0),
        step(2, 60.0, 40.0),
        *events,
    )

    assert sum(found.self_ns) == found.total_ns[0] == 90_000
    assert min(found.self_ns) >= 0
    assert all(parent < node for node, parent in enumerate(found.parent))


# ---------------------------------------------------------------- a real one


def a_layer_of_a_known_name(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ x)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> FlameGraph:
    torch.compiler.reset()
    compiled = torch.compile(a_layer_of_a_known_name, backend="eager")
    path = tmp_path_factory.mktemp("stack") / "stack_trace.json.gz"
    session = Stepping(lambda: compiled(torch.ones(16, 16)))
    session.step()
    made = stack_pass(session, torch.device("cpu"), Options(steps=3, warmup=1), path)
    assert isinstance(made, TracePass)
    found = host_stacks.flame_graph(kineto.read(path).columns, measured_in=PassName.STACK)
    assert isinstance(found, FlameGraph)
    return found


def test_a_recording_shows_the_function_inside_its_compiled_region_and_the_operators_inside_it(
    recorded: FlameGraph,
) -> None:
    paths = {path: calls for path, _, _, calls in tree(recorded)}

    (layer,) = (
        path
        for path in paths
        if path.endswith("/Torch-Compiled Region: 0/0/a_layer_of_a_known_name")
    )
    assert (recorded.steps, paths[layer]) == (3, 3)
    assert any(path.startswith(layer) and path.endswith("/aten::matmul") for path in paths)
    assert sum(recorded.self_ns) == recorded.total_ns[0]


def test_a_recording_survives_its_json(recorded: FlameGraph) -> None:
    assert msgspec.json.decode(msgspec.json.encode(recorded), type=FlameGraph | Skipped) == recorded
