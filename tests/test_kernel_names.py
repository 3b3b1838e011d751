from __future__ import annotations

import pytest

from kgprof.wording import short_name

COPY = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
    "namespace)::TensorListMetadata<2>, at::native::Copy<int, int> >(at::native::(anonymous "
    "namespace)::TensorListMetadata<2>, int)"
)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous "
            "namespace)::silu_kernel>(int)",
            "vectorized_elementwise_kernel<4, silu_kernel>",
        ),
        (COPY, "multi_tensor_apply_kernel<TensorListMetadata<2>, Copy<int, int> >"),
        ("f<g(int)::{lambda(float)#1}>(int)", "f<g(int)::{lambda(float)#1}>"),
        ("Memcpy DtoH (Device -> Pinned)", "Memcpy DtoH (Device -> Pinned)"),
        ("triton_red_fused_add_3", "triton_red_fused_add_3"),
        ("(other)", "(other)"),
        ("", ""),
        ("a > b (c)", "a > b (c)"),
    ],
)
def test_what_all_kernels_share_and_their_parameters_are_left_out(name: str, short: str) -> None:
    assert short_name(name) == short


def test_a_long_generated_name_keeps_its_number() -> None:
    name = "graph_0_cpp_fused_" + "_".join(["bitwise_and"] * 30) + "_17"

    assert short_name(name).startswith("graph_0_cpp_fused_bitwise_and")
    assert short_name(name).endswith("_bitwise_and_17")
    assert len(short_name(name)) == 110
