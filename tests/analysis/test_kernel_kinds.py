"""The classification rule, on names that real traces hold."""

from __future__ import annotations

import pytest

from kgprof.analysis.kernel_kinds import OPERATOR_KINDS, of_device_event, of_operator
from kgprof.model import KernelKind

G, N, P, I, C, F, O = (  # noqa: E741
    KernelKind.GEMM,
    KernelKind.NORMALISATION,
    KernelKind.POINTWISE,
    KernelKind.INDEX,
    KernelKind.COPY,
    KernelKind.FRAMEWORK,
    KernelKind.OTHER,
)


@pytest.mark.parametrize(
    ("name", "kind", "generator"),
    [
        ("aten::addmm", G, "aten"),
        ("aten::linear", G, "aten"),
        ("mkl::_mkl_linear", G, "library"),
        ("mkldnn::_linear_pointwise", G, "library"),
        ("aten::native_layer_norm", N, "aten"),
        ("aten::_softmax", N, "aten"),
        ("aten::index", I, "aten"),
        ("aten::index_put_", I, "aten"),
        ("aten::scatter_add_", I, "aten"),
        ("aten::embedding", I, "aten"),
        ("aten::copy_", C, "aten"),
        ("aten::_foreach_copy_", C, "aten"),
        ("aten::_to_copy", C, "aten"),
        ("aten::fill_", C, "aten"),
        ("aten::eq", P, "aten"),
        ("aten::add_", P, "aten"),
        ("aten::bitwise_and", P, "aten"),
        ("aten::__and__", P, "aten"),
        ("aten::sum", P, "aten"),
        ("aten::searchsorted", I, "aten"),
        ("aten::sort", O, "aten"),
        ("aten::view", O, "aten"),
        ("aten::empty", O, "aten"),
        ("mylib::add", P, "library"),
        ("mylib::my_op", O, "library"),
        ("graph_3_cpp_fused_add_mul_0", P, "cpp"),
        ("TorchDynamo Cache Lookup", F, "framework"),
        ("Torch-Compiled Region: 0/0", F, "framework"),
        ("AOTDispatcher Runtime Wrapper Prologue", F, "framework"),
        ("## Call CompiledFxGraph fouacj3v3spj3wndw73dmkh54ftjy4d672mgt6fsgqb7omc4mqxy ##", F, "framework"),
        ("", O, "library"),
        ("_", O, "library"),
    ],
)
def test_cpu_operators(name: str, kind: KernelKind, generator: str) -> None:
    found = of_operator(name)

    assert (found.kind, found.generator) == (kind, generator)


@pytest.mark.parametrize(
    ("name", "kind", "generator"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x256x8_stage3_execute_kernel__5x_cublas", G, "library"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(x::Params)", G, "library"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, float>(cublasLt::cublasSplitKParams)", G, "library"),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_TNT", G, "library"),
        ("triton_tem_fused_addmm_2", G, "triton"),
        ("triton_tem_fused_flex_attention_0", O, "triton"),
        ("triton_red_fused_native_layer_norm_0", P, "triton"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)", N, "aten"),
        ("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<double>(long, double, double)", N, "aten"),
        ("void at::native::(anonymous namespace)::searchsorted_cuda_kernel<long, long>(long*)", I, "aten"),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>(float*)",
            N,
            "library",
        ),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctorOnSelf_add<float>>(int)", P, "aten"),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>()",
            P,
            "aten",
        ),
        (
            "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda()::{lambda()#3}>()",
            C,
            "aten",
        ),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)", C, "aten"),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
            "TensorListMetadata<2>, at::native::(anonymous namespace)::UnaryOpFunctor<float, 2, 1, 1>, "
            "at::native::Copy<float, float> >()",
            C,
            "aten",
        ),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4, 64, 64>()", C, "aten"),
        ("void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)", I, "aten"),
        ("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>()", I, "aten"),
        ("void at::native::_scatter_gather_elementwise_kernel<128, 8>()", I, "aten"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>()", O, "library"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", O, "library"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", O, "library"),
        ("my_own_triton_function", O, "library"),
    ],
)
def test_device_kernels(name: str, kind: KernelKind, generator: str) -> None:
    found = of_device_event(name, "kernel")

    assert (found.kind, found.generator) == (kind, generator)


@pytest.mark.parametrize(("category", "generator"), [("gpu_memcpy", "memcpy"), ("gpu_memset", "memset")])
def test_copies_and_fills_of_the_device(category: str, generator: str) -> None:
    found = of_device_event("Memcpy DtoD (Device -> Device)", category)

    assert (found.kind, found.generator) == (C, generator)


def test_no_operator_has_two_kinds() -> None:
    names = [name for _, group in OPERATOR_KINDS for name in group]

    assert len(names) == len(set(names))
