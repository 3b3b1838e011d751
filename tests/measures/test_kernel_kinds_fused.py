"""Kernel names of Inductor, taken apart. The names are real ones, from torch 2.11 on an H200 and
2.13 on a CPU."""

from __future__ import annotations

import pytest
import torch

from kgprof.measures.kernel_kinds import MULTI_WORD_OPERATORS, GeneratedName, parse, split_operators


@pytest.mark.parametrize(
    ("name", "generator", "category", "ops"),
    [
        (
            "graph_0_cpp_fused__softmax_add_gather_gelu_index_native_layer_norm_remainder_sum_unsqueeze_0",
            "cpp",
            "",
            "_softmax add gather gelu index native_layer_norm remainder sum unsqueeze",
        ),
        ("cpp_fused_add_max_1", "cpp", "", "add max"),
        (
            "triton_red_fused_gather_gt_mul_sigmoid_sub_sum_unsqueeze_1",
            "triton",
            "red",
            "gather gt mul sigmoid sub sum unsqueeze",
        ),
        ("triton_poi_fused_index_mul_0", "triton", "poi", "index mul"),
        ("triton_red_fused_native_layer_norm_0", "triton", "red", "native_layer_norm"),
        ("triton_poi_fused_mul_silu_1", "triton", "poi", "mul silu"),
        ("triton_tem_fused_addmm_relu_t_2", "triton", "tem", "addmm relu t"),
        ("triton_poi_fused_add_copy__3", "triton", "poi", "add copy_"),
        (
            "triton_per_fused__to_copy_add_index_add_index_put_native_layer_norm_12",
            "triton",
            "per",
            "_to_copy add index_add index_put native_layer_norm",
        ),
        ("triton_poi_fused_bitwise_and_constant_pad_nd_2", "triton", "poi", "bitwise_and constant_pad_nd"),  # noqa: E501
        ("graph_0_cpp_fused___lshift____to_copy_add_4", "cpp", "", "__lshift__ _to_copy add"),
        ("triton_poi_fused_0", "triton", "poi", ""),
    ],
)  # fmt: skip
def test_the_fused_operators_are_read_from_the_name(
    name: str, generator: str, category: str, ops: str
) -> None:
    assert parse(name) == GeneratedName(
        generator=generator, category=category, ops=tuple(ops.split())
    )


@pytest.mark.parametrize(
    "name", ["aten::addmm", "add_kernel", "Memcpy DtoD (Device -> Device)", "triton_fused", ""]
)
def test_other_kernels_are_left_alone(name: str) -> None:
    assert parse(name) is None


def test_sets_of_operators_survive_being_joined() -> None:
    # given: what Inductor does with the operators it fused
    names = [*sorted(MULTI_WORD_OPERATORS)[::7], "add", "mul", "index", "where", "sum", "t", "gelu"]
    batches = [sorted(set(names[i::40])) for i in range(40)]

    read = [split_operators("_".join(batch)) for batch in batches]

    # Two readings of one text can both be right: nothing tells "a" and "b_c" from "a_b" and "c"
    # where all are names.
    exact = sum(list(ops) == batch for ops, batch in zip(read, batches, strict=True))
    assert exact >= 36
    assert all("_".join(ops) == "_".join(batch) for ops, batch in zip(read, batches, strict=True))


@pytest.mark.parametrize("length", [5_000, 900])
def test_a_hostile_name_takes_no_time(length: int) -> None:
    joined = "a_" * (length // 2) + "b"

    assert "_".join(split_operators(joined)) == joined


def test_the_list_knows_the_operators_of_the_installed_torch() -> None:
    registered = {
        name.split("::")[1].split(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith(("aten::", "prims::"))
    }
    wanted = {name for name in registered if "_" in name.strip("_")}
    known = {
        name
        for name in wanted
        if name in MULTI_WORD_OPERATORS or name.rstrip("_") in MULTI_WORD_OPERATORS
    }

    # Another torch adds and renames a few; when this fails, make the list again as its module says.
    assert len(known) / len(wanted) > 0.97, sorted(wanted - known)
