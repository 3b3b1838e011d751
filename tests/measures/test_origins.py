"""Kernels back to lines: by name, and library calls by their order inside one run of a compiled
region."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kgprof.measures import kernels
from kgprof.measures.origins import operator_of
from kgprof.model import KernelBreakdown, Location, PassName
from kgprof.model.compile_records import KernelOrigin, SourceLine
from kgprof.reading import kineto
from tests.analysis.events import event, write
from tests.measures.test_idle import kernel, launch

NORM, FIRST, SECOND = (SourceLine(file="/p/m.py", line=line, function="step") for line in (5, 7, 9))
GELU = "triton_poi_fused_gelu_0"


def origin(name: str, number: int, *lines: SourceLine, compile_id: str = "0/0") -> KernelOrigin:
    return KernelOrigin(compile_id=compile_id, kernel=name, number=number, lines=lines)


def region(start: float, duration: float, compile_id: str = "0/0") -> dict[str, Any]:
    return event("cpu_op", f"Torch-Compiled Region: {compile_id}", start, duration)


def broken_down(path: Path, device: str, *origins: KernelOrigin) -> KernelBreakdown:
    found = kernels.breakdown(
        kineto.read(path),
        device=device,
        measured_in=PassName.TRACE,
        cpp_kernel_profile=True,
        origins=origins,
    )
    assert isinstance(found, KernelBreakdown)
    return found


def lines(found: KernelBreakdown) -> dict[str, tuple[list[int], float]]:
    return {row.name: ([line.line for line in row.lines], row.lines_us) for row in found.rows}


@pytest.mark.parametrize(
    ("kernel_name", "operator"),
    [
        ("extern_kernels.addmm", "aten::addmm"),
        ("torch.ops.aten.searchsorted.Tensor", "aten::searchsorted"),
        ("aten.cumsum", "aten::cumsum"),
        ("torch.ops.mylib.fancy.default", "mylib::fancy"),
        (GELU, ""),
        ("cpp_fused_add_0", ""),
    ],
)
def test_what_is_called_in_generated_code_is_an_operator_in_the_trace(
    kernel_name: str, operator: str
) -> None:
    assert operator_of(kernel_name) == operator


def test_a_generated_kernel_has_the_lines_of_its_graph_whoever_launched_it(tmp_path: Path) -> None:
    # given: two graphs with a kernel of one name; the second is replayed by a CUDA graph
    path = write(
        tmp_path / "t.json",
        [
            region(0, 10),
            launch(1, 1, 1, name="cuLaunchKernelEx"),
            kernel(3, 4, 1, name=GELU),
            region(20, 10, "1/0"),
            launch(21, 1, 2, name="cudaGraphLaunch"),
            kernel(25, 6, 2, name=GELU),
            launch(40, 1, 3),
            kernel(45, 1, 3, name=GELU),
        ],
    )

    found = broken_down(
        path, "cuda", origin(GELU, 1, NORM, FIRST), origin(GELU, 4, SECOND, compile_id="1/0")
    )

    # then: the launch outside of both is of no known line
    assert lines(found) == {GELU: ([9, 5, 7], 10.0)}  # the longer one's first
    assert (found.lines_us, found.total_us) == (10.0, 11.0)
    assert found.rows[0].lines[0] == Location(file="/p/m.py", line=9, function="step")


def test_library_kernels_are_matched_by_the_order_of_their_calls(tmp_path: Path) -> None:
    # given: two products in each of two runs of a region; one calls itself under another overload
    events = []
    for number, start in enumerate((0.0, 100.0)):
        correlation = 10 * number
        events += [
            region(start, 50),
            event("cpu_op", "aten::addmm", start + 1, 10),
            event("cpu_op", "aten::addmm", start + 2, 5),
            launch(start + 3, 1, correlation + 1),
            kernel(start + 5, 3, correlation + 1, name="sgemm"),
            event("cpu_op", "aten::addmm", start + 20, 10),
            launch(start + 21, 1, correlation + 2),
            kernel(start + 25, 4, correlation + 2, name="other_gemm"),
        ]
    path = write(tmp_path / "t.json", events)

    found = broken_down(
        path,
        "cuda",
        origin("extern_kernels.addmm", 9, SECOND),
        origin("extern_kernels.addmm", 2, FIRST),
    )

    assert lines(found) == {"other_gemm": ([9], 8.0), "sgemm": ([7], 6.0)}


def test_where_the_counts_differ_nothing_is_guessed(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json",
        [
            region(0, 50),
            event("cpu_op", "aten::addmm", 1, 10),
            launch(3, 1, 1),
            kernel(5, 3, 1, name="sgemm"),
        ],
    )

    found = broken_down(
        path,
        "cuda",
        origin("extern_kernels.addmm", 1, FIRST),
        origin("extern_kernels.addmm", 2, SECOND),
    )

    assert lines(found) == {"sgemm": ([], 0.0)}
    assert found.lines_us == 0.0


def test_on_a_cpu_what_an_operator_calls_belongs_to_its_line(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json",
        [
            region(0, 100),
            event("cpu_op", "graph_0_cpp_fused_gelu_0", 10, 20),
            event("cpu_op", "aten::addmm", 40, 30),
            event("cpu_op", "aten::copy_", 45, 10),
            event("cpu_op", "aten::copy_", 80, 5),
        ],
    )

    found = broken_down(
        path, "cpu", origin("cpp_fused_gelu_0", 1, NORM), origin("extern_kernels.addmm", 2, FIRST)
    )

    assert lines(found) == {
        # what it takes to enter the graph of these lines
        "Torch-Compiled Region: 0/0": ([5, 7], 45.0),
        "graph_0_cpp_fused_gelu_0": ([5], 20.0),
        "aten::addmm": ([7], 20.0),
        "aten::copy_": ([7], 10.0),
    }
    assert found.lines_us == 95.0


def test_the_line_that_takes_longest_is_the_first_of_a_row(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json",
        [
            *(region(0, 100), event("cpu_op", "aten::addmm", 10, 5)),
            *(event("cpu_op", "aten::addmm", 20, 30), event("cpu_op", "aten::addmm", 60, 6)),
        ],
    )
    calls = [
        origin("extern_kernels.addmm", number, line)
        for number, line in enumerate((NORM, FIRST, NORM), start=1)
    ]

    assert lines(broken_down(path, "cpu", *calls))["aten::addmm"] == ([7, 5], 41.0)


def test_without_origins_nothing_is_said_about_lines(tmp_path: Path) -> None:
    found = broken_down(write(tmp_path / "t.json", [launch(0, 1, 1), kernel(2, 1, 1)]), "cuda")

    assert not isinstance(found.lines_us, float)
    assert found.rows[0].lines == ()


def eager_step(start: float, correlation: int, *, copies: int = 1) -> list[dict[str, Any]]:
    """A step with a compiled region, and after it copies and a division that copies for itself."""
    events = [event("cpu_op", f"ProfilerStep#{correlation}", start, 90), region(start + 1, 20)]
    events += [event("cpu_op", "aten::copy_", start + 2, 2)]  # in the region: no eager call
    for number in range(copies):
        at = start + 30 + 10 * number
        events += [
            event("cpu_op", "aten::copy_", at, 5),
            launch(at + 1, 1, correlation + number),
            kernel(at + 2, 3, correlation + number, name="copied"),
        ]
    at = start + 70
    return [
        *events,
        event("cpu_op", "aten::div", at, 9),
        event("cpu_op", "aten::copy_", at + 1, 5),
        launch(at + 2, 1, correlation + 9),
        kernel(at + 3, 4, correlation + 9, name="divided"),
    ]


def test_eager_calls_are_matched_by_their_order_in_a_step(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json", [*eager_step(0, 10, copies=2), *eager_step(100, 30, copies=2)]
    )

    found = broken_down(
        path,
        "cuda",
        origin("aten.copy_", 1, FIRST, compile_id=""),
        origin("aten.copy_", 4, SECOND, compile_id=""),
    )

    # what the division copies is not the program's call of copy_
    assert lines(found) == {"copied": ([7, 9], 12.0), "divided": ([], 0.0)}


def test_a_step_with_other_eager_calls_has_no_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json", [*eager_step(0, 10, copies=1), *eager_step(100, 30, copies=2)]
    )

    found = broken_down(path, "cuda", origin("aten.copy_", 1, FIRST, compile_id=""))

    assert lines(found) == {"copied": ([7], 3.0), "divided": ([], 0.0)}


def dispatched(operator: str, number: int, *lines: SourceLine) -> KernelOrigin:
    return origin(f"torch.ops.{operator}", number, *lines, compile_id="")


def training_step(start: float, correlation: int, *, extra: int = 0) -> list[dict[str, Any]]:
    """A linear layer forward, and backward on a thread of autograd's; ``extra`` products after
    it."""
    forward = [
        event("cpu_op", "aten::linear", start + 1, 20),
        event("cpu_op", "aten::addmm", start + 2, 15),
    ]
    node = event(
        "cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", start + 40, 40, thread=2
    )
    products = [
        event("cpu_op", "aten::mm", start + 41 + 10 * number, 8, thread=2)
        for number in range(2 + extra)
    ]
    launches = [launch(start + 3, 1, correlation)]
    launches += [
        {**launch(start + 42 + 10 * number, 1, correlation + 1 + number), "tid": 2}
        for number in range(2 + extra)
    ]
    kernels = [kernel(start + 5, 3, correlation, name="forward")]
    kernels += [
        kernel(start + 44 + 10 * n, 5, correlation + 1 + n, name="backward")
        for n in range(2 + extra)
    ]
    return [
        event("user_annotation", f"ProfilerStep#{correlation}", start, 90),
        *forward,
        node,
        *products,
        *launches,
        *kernels,
    ]


@pytest.mark.parametrize("extra", [0, 1])
def test_what_torch_dispatched_is_found_in_composite_operators_and_on_other_threads(
    tmp_path: Path, extra: int
) -> None:
    path = write(tmp_path / "t.json", [*training_step(0, 10), *training_step(100, 30, extra=extra)])

    found = broken_down(
        path,
        "cuda",
        dispatched("aten.mm", 2, FIRST),
        dispatched("aten.mm", 3, SECOND),
        dispatched("aten.addmm", 1, NORM),
    )

    # then: all calls of addmm are of one line; of two lines only as many as were seen are told
    # apart
    known = 20.0 if not extra else 10.0
    assert lines(found) == {"forward": ([5], 6.0), "backward": ([7, 9], known)}


def test_on_a_cpu_a_node_of_autograd_has_the_line_of_what_it_calls(tmp_path: Path) -> None:
    found = broken_down(
        write(tmp_path / "t.json", training_step(0, 10)), "cpu", dispatched("aten.mm", 1, FIRST)
    )

    assert lines(found) == {
        "aten::linear": ([], 0.0),
        "aten::addmm": ([], 0.0),
        "autograd::engine::evaluate_function: AddmmBackward0": ([7], 24.0),
        "aten::mm": ([7], 16.0),
    }


def test_a_compiled_backward_is_of_the_region_whose_forward_has_its_sequence_number(
    tmp_path: Path,
) -> None:
    # given: two regions; the backward of the second one runs first, in none of them
    node = {"Sequence number": 7}
    other = {"Sequence number": 8}
    path = write(
        tmp_path / "t.json",
        [
            region(0, 10),
            {**event("cpu_op", "CompiledFunction", 1, 8), "args": node},
            launch(2, 1, 1),
            kernel(3, 1, 1, name=GELU),
            region(20, 10, "1/0"),
            {**event("cpu_op", "CompiledFunction", 21, 8), "args": other},
            {**event("cpu_op", "CompiledFunctionBackward", 40, 10), "args": other},
            event("cpu_op", "aten::mm", 41, 5),
            launch(42, 1, 2),
            kernel(45, 2, 2, name="gemm of 1/0"),
            {**event("cpu_op", "CompiledFunctionBackward", 60, 10), "args": node},
            launch(62, 1, 3),
            kernel(65, 4, 3, name=GELU),
        ],
    )

    found = broken_down(
        path,
        "cuda",
        origin(GELU, 1, NORM),  # a forward and a backward have kernels of one name
        origin(GELU, 1, FIRST),
        origin("extern_kernels.mm", 1, NORM, compile_id="1/0"),
        origin("extern_kernels.mm", 1, SECOND, compile_id="1/0"),
    )

    assert lines(found) == {GELU: ([7, 5], 5.0), "gemm of 1/0": ([9], 2.0)}


def test_graphs_of_one_compile_id_are_told_apart_by_the_key_that_the_trace_names(
    tmp_path: Path,
) -> None:
    # given: a forward that DDP split in two, whose backwards run in the other order; the key of one
    # was not recorded
    def in_graph(key: str, start: float, correlation: int) -> list[dict[str, Any]]:
        return [
            event("cpu_op", "CompiledFunctionBackward", start, 10),
            event("user_annotation", f"## Call CompiledFxGraph {key} ##", start + 1, 8),
            event("cpu_op", "aten::mm", start + 2, 5),
            launch(start + 3, 1, correlation),
            kernel(start + 5, 2, correlation, name=f"gemm of {key}"),
        ]

    path = write(
        tmp_path / "t.json", [*in_graph("fb", 0, 1), *in_graph("fa", 20, 2), *in_graph("fc", 40, 3)]
    )

    found = broken_down(
        path,
        "cuda",
        *(
            replace(origin("extern_kernels.mm", 1, line), graph=key)
            for line, key in ((FIRST, "fa"), (SECOND, "fb"))
        ),
    )

    assert lines(found) == {
        "gemm of fb": ([9], 2.0),
        "gemm of fa": ([7], 2.0),
        "gemm of fc": ([], 0.0),
    }


def test_gradients_that_autograd_adds_up_have_the_line_of_backward_in_place_or_not(
    tmp_path: Path,
) -> None:
    # given: two residual additions of the program's, and two of gradients, one of them in place
    engine = "autograd::engine::evaluate_function: NativeLayerNormBackward0"
    path = write(
        tmp_path / "t.json",
        [
            event("user_annotation", "ProfilerStep#1", 0, 100),
            *(event("cpu_op", "aten::add", start, 5) for start in (1, 10)),
            event("cpu_op", engine, 40, 40),
            event("cpu_op", "NativeLayerNormBackward0", 41, 9),
            event("cpu_op", "aten::add_", 55, 5),
            event("cpu_op", "aten::add", 65, 5),
            *(launch(start, 1, start) for start in (2, 11, 56, 66)),
            *(
                kernel(start + 2, 2, start, name=name)
                for start, name in ((2, "a"), (11, "b"), (56, "c"), (66, "d"))
            ),
        ],
    )

    found = broken_down(
        path,
        "cuda",
        dispatched("aten.add", 1, NORM),
        dispatched("aten.add", 2, FIRST),
        dispatched("autograd.add", 3, SECOND),
    )

    assert lines(found) == {"a": ([5], 2.0), "b": ([7], 2.0), "c": ([9], 2.0), "d": ([9], 2.0)}


def autocast_step(start: float, correlation: int, *, extra: bool = False) -> list[dict[str, Any]]:
    """A product that autocast enters by casting (twice, of one line), its backward by another
    thread, which casts back; ``extra``: a cast of the program's own as well."""
    named = lambda name, at, took, number=None, thread=1: {  # noqa: E731
        **event("cpu_op", name, start + at, took, thread=thread),
        "args": {} if number is None else {"Sequence number": number},
    }
    node = correlation
    events = [
        event("user_annotation", f"ProfilerStep#{correlation}", start, 95),
        named("aten::bmm", 1, 30, node),
        *(
            op
            for at in (2, 8)
            for op in (named("aten::to", at, 5, node), named("aten::_to_copy", at + 1, 3, node))
        ),
        named("aten::bmm", 20, 10, node + 2),
        named("autograd::engine::evaluate_function: ToCopyBackward0", 50, 10, node, 2),
        named("aten::_to_copy", 52, 5, None, 2),
    ]
    launched = [(3, "cast", 1), (9, "cast", 1), (22, "product", 1), (53, "cast back", 2)]
    if extra:
        events.append(named("aten::_to_copy", 70, 5))
        launched.append((71, "of its own", 1))
    for number, (at, name, thread) in enumerate(launched):
        events.append({**launch(start + at, 1, correlation + number), "tid": thread})
        events.append(kernel(start + at + 1, 2, correlation + number, name=name))
    return events


@pytest.mark.parametrize("extra", [False, True])
def test_casts_that_autocast_makes_have_the_line_of_what_they_are_made_for(
    tmp_path: Path, extra: bool
) -> None:
    # given: what torch dispatched in one step; another traced step casts once more
    path = write(tmp_path / "t.json", [*autocast_step(0, 10), *autocast_step(100, 30, extra=extra)])
    casts = (
        dispatched("aten._to_copy", number, line)
        for number, line in ((1, NORM), (2, NORM), (4, NORM))
    )

    found = broken_down(path, "cuda", *casts, dispatched("aten.bmm", 3, NORM))

    # then: where they are counted alike their order decides, elsewhere the operator and the node
    # that they belong to
    assert lines(found) == {
        "cast": ([5], 8.0),
        "product": ([5], 4.0),
        "cast back": ([5], 4.0),
        **({"of its own": ([], 0.0)} if extra else {}),
    }
