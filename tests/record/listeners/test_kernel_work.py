"""Bytes and operations of kernels against figures reckoned by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch._inductor import config, debug, ir

from kgprof.model.compile_records import KernelWork
from kgprof.record.listeners import kernel_provenance
from kgprof.record.listeners.graph_work import GraphWatch
from kgprof.record.listeners.kernel_provenance import KernelWatch, work_of

FLOAT = 4


@pytest.fixture(autouse=True)
def generating(tmp_path: Path) -> Iterator[None]:
    """Code is generated, and not found in a cache; and torch counts the calls of kernels, as kgprof
    has it do."""
    torch._dynamo.reset()
    with config.patch({"fx_graph_cache": False, "trace.provenance_tracking_level": 1}):
        yield
    torch._dynamo.reset()


def watched(function: Callable[..., object], *arguments: torch.Tensor) -> dict[str, KernelWork]:
    """By kernel, without the number of the call."""
    found: dict[str, KernelWork] = {}
    with KernelWatch(found.__setitem__, GraphWatch()) as watch:
        torch.compile(function)(*arguments)
    assert watch.unavailable == ""
    return {key.rpartition(":")[0]: work for key, work in found.items()}


def test_a_library_call_moves_its_operands_and_its_result_and_a_fused_kernel_what_it_reads_and_writes() -> (  # noqa: E501
    None
):
    def layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return (torch.addmm(bias, x, weight) * 2).sin() + 1

    found = watched(layer, torch.randn(64, 32), torch.randn(32, 128), torch.randn(128))

    # the product in, the result out; what is between them is in registers
    fused = FLOAT * 2 * 64 * 128
    assert {name.partition("_")[0]: work for name, work in found.items()} == {
        # The bias is one row, though it is added to each.
        "extern": KernelWork(
            bytes_moved=FLOAT * (64 * 32 + 32 * 128 + 128 + 64 * 128),
            flops=2 * 64 * 32 * 128,
            dtype="float32",
        ),
        "cpp": KernelWork(bytes_moved=fused),
    }


def test_a_product_of_float8_is_held_against_float8_though_its_result_is_not() -> None:
    left, right = (torch.randn(32, 32).to(torch.float8_e4m3fn) for _ in range(2))

    def product(left: torch.Tensor, right: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(left, right.t(), scale, scale, out_dtype=torch.bfloat16)

    (work,) = watched(product, left, right, torch.ones(())).values()

    assert (work.dtype, work.flops) == ("float8", 2 * 32**3)


def test_a_gather_is_not_charged_for_the_whole_table() -> None:
    (work,) = watched(
        lambda table, rows: table[rows] + 1, torch.randn(10_000, 16), torch.randint(0, 10_000, (8,))
    ).values()

    assert work == KernelWork(bytes_moved=8 * 8 + FLOAT * 2 * 8 * 16)


def test_a_scatter_is_charged_for_what_it_adds_to_not_for_the_whole_target() -> None:
    def add_rows(total: torch.Tensor, rows: torch.Tensor, some: torch.Tensor) -> None:
        total.index_add_(0, rows, some)

    (work,) = watched(
        add_rows, torch.zeros(10_000, 16), torch.randint(0, 10_000, (8,)), torch.randn(8, 16)
    ).values()

    # Each element is added to: read and written; the source and the indices are read.
    assert work == KernelWork(bytes_moved=8 * 8 + FLOAT * 3 * 8 * 16)


@pytest.mark.parametrize(
    ("scatter", "of_target"),
    [
        (lambda total, rows, some: total.scatter_(0, rows, some), 1),  # written
        # multiplied: read and written
        (lambda total, rows, some: total.scatter_reduce_(0, rows, some, "prod"), 2),
    ],
)
def test_a_librarys_scatter_is_charged_for_each_index_not_for_the_whole_target(
    monkeypatch: pytest.MonkeyPatch, scatter: Callable[..., torch.Tensor], of_target: int
) -> None:
    # given: torch 2.11 tells of this call as of the others, torch 2.13 of none; so the node itself
    # is looked at
    found: list[KernelWork] = []
    generate = ir.ScatterFallback.codegen

    def looked_at(node: ir.ScatterFallback, wrapper: object) -> None:
        found.append(work_of(node, "aten.scatter_"))
        generate(node, wrapper)

    monkeypatch.setattr(ir.ScatterFallback, "codegen", looked_at)
    # when: Inductor leaves it to the library where it must be deterministic
    torch.use_deterministic_algorithms(True)
    try:
        torch.compile(scatter)(
            torch.zeros(10_000, 4), torch.randint(0, 10_000, (8, 4)), torch.randn(32, 4)
        )
    finally:
        torch.use_deterministic_algorithms(False)
    # then: the indices, as much of the source as there are indices, and the elements that they name
    assert found == [KernelWork(bytes_moved=8 * 4 * (8 + FLOAT + of_target * FLOAT))]


def test_a_slice_is_charged_as_a_slice_and_a_broadcast_row_once() -> None:
    (work,) = watched(lambda x, row: x[:4] * row, torch.randn(1_000, 32), torch.randn(32)).values()

    assert work == KernelWork(bytes_moved=FLOAT * (4 * 32 + 32 + 4 * 32))


def test_a_library_call_that_looks_up_by_index_says_that_it_is_not_known() -> None:
    assert work_of(object(), "torch.ops.aten.index_put_").unknown == (
        "the bytes it moves depend on its indices"
    )


def test_nodes_of_another_shape_disturb_no_compilation() -> None:
    (work,) = (work_of([Strange()], "triton_poi_fused_0"),)

    assert work == KernelWork(
        unknown="Inductor's nodes could not be read: KeyError: 'nothing of the kind'"
    )


class Strange:
    def get_nodes(self) -> list[object]:
        raise KeyError("nothing of the kind")


def test_a_torch_without_the_function_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_provenance, "WATCHED", "no_such_function")

    with KernelWatch(lambda key, work: None, GraphWatch()) as watch:
        pass

    assert "has no attribute 'no_such_function'" in watch.unavailable


def test_the_function_is_put_back_also_when_the_workload_raises() -> None:
    from torch._inductor.codegen import cpp, triton

    modules = (debug, cpp, triton)
    before = [module.set_kernel_post_grad_provenance_tracing for module in modules]

    seen: list[object] = []

    def workload() -> None:
        seen.extend(module.set_kernel_post_grad_provenance_tracing for module in modules)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), KernelWatch(lambda key, work: None, GraphWatch()):
        workload()

    assert not set(seen) & set(before)

    assert [module.set_kernel_post_grad_provenance_tracing for module in modules] == before


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")
def test_triton_kernels_and_cublas_on_a_gpu() -> None:
    def layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ weight) + 1

    found = watched(layer, *(torch.randn(256, 256, device="cuda") for _ in range(2)))

    assert sorted(name.partition("_")[0] for name in found) == ["extern", "triton"]
    by_name = {name.partition("_")[0]: work for name, work in found.items()}
    assert by_name["triton"] == KernelWork(bytes_moved=FLOAT * 2 * 256 * 256)
    assert by_name["extern"].bytes_moved == FLOAT * 3 * 256 * 256
    assert by_name["extern"].flops == 2 * 256**3
