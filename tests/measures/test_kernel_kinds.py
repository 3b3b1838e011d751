"""The classification rule, on names that real traces hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgprof.measures.kernel_kinds import OPERATOR_KINDS, Kinds, of_device_event, of_operator
from kgprof.model import KernelKind, KindOverride
from kgprof.reading import kineto

G, A, V, N, P, R, I, S, C, M, F, O = KernelKind  # noqa: E741


OPERATORS = (
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
    ("aten::mkldnn_rnn_layer_backward", G, "aten"),
    ("aten::lstm", G, "aten"),
    ("aten::bitwise_and", P, "aten"),
    ("aten::__and__", P, "aten"),
    ("aten::sum", R, "aten"),
    ("aten::searchsorted", I, "aten"),
    ("aten::sort", S, "aten"),
    ("aten::cumsum_", S, "aten"),
    ("aten::_unique2", S, "aten"),
    ("aten::max_pool2d_with_indices", R, "aten"),
    ("aten::_native_batch_norm_legit_functional", N, "aten"),
    ("aten::scaled_dot_product_attention", A, "aten"),
    ("aten::_scaled_dot_product_flash_attention_for_cpu", A, "aten"),
    ("aten::convolution", V, "aten"),
    ("mkldnn::_convolution_pointwise", V, "library"),
    ("c10d::allreduce_", M, "library"),
    ("_c10d_functional::all_gather_into_tensor", M, "library"),
    ("record_param_comms", M, "library"),
    ("aten::view", F, "aten"),
    ("aten::empty", F, "aten"),
    ("AddmmBackward0", F, "framework"),
    ("_compile.compile_inner (dynamo_timed)", F, "framework"),
    ("gc", F, "framework"),
    ("gcn_layer", O, "library"),
    ("mylib::add", P, "library"),
    ("mylib::my_op", O, "library"),
    ("graph_3_cpp_fused_add_mul_0", P, "cpp"),
    ("graph_0_cpp_fused_add_max_1", R, "cpp"),
    ("graph_0_cpp_fused__softmax_add_0", N, "cpp"),
    ("cpp_fused_index_0", I, "cpp"),
    ("TorchDynamo Cache Lookup", F, "framework"),
    ("Torch-Compiled Region: 0/0", F, "framework"),
    ("AOTDispatcher Runtime Wrapper Prologue", F, "framework"),
    (
        "## Call CompiledFxGraph fouacj3v3spj3wndw73dmkh54ftjy4d672mgt6fsgqb7omc4mqxy ##",
        F,
        "framework",
    ),
    ("", O, "library"),
    ("_", O, "library"),
)


def test_cpu_operators() -> None:
    found = {name: of_operator(name) for name, *_ in OPERATORS}

    assert [(name, kinds.kind, kinds.generator) for name, kinds in found.items()] == [*OPERATORS]


KERNELS = (
    (
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x256x8_stage3_execute_kernel__5x_cublas",
        G,
        "library",
    ),
    (
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(x::Params)",
        G,
        "library",
    ),
    (
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, "
        "float>(cublasLt::cublasSplitKParams)",
        G,
        "library",
    ),
    ("nvjet_hsh_128x256_64x4_2x1_v_bz_TNT", G, "library"),
    ("triton_tem_fused_addmm_2", G, "triton"),
    ("triton_tem_fused_flex_attention_0", A, "triton"),
    ("triton_tem_fused_convolution_relu_4", V, "triton"),
    ("triton_tem_fused_7", O, "triton"),
    ("triton_red_fused_native_layer_norm_0", N, "triton"),
    ("triton_per_fused_add_addmm_native_layer_norm_relu_view_28", N, "triton"),
    ("triton_per_fused__softmax_sum_3", R, "triton"),
    ("triton_red_fused_mul_pow_1", R, "triton"),
    ("triton_red_fused_mv_0", G, "triton"),
    ("triton_per_fused_arange_bitwise_and_cumsum_eq_gt_slice_unsqueeze_view_13", S, "triton"),
    ("triton_spl_fused_cumsum_0", S, "triton"),
    ("triton_poi_fused_index_0", I, "triton"),
    ("triton_poi_fused_index_mul_0", P, "triton"),
    ("triton_poi_fused_add_addmm_25", P, "triton"),
    ("triton_poi_fused_clone_permute_2", C, "triton"),
    ("triton_poi_fused_mean_6", P, "triton"),
    ("triton_for_fused_0", P, "triton"),
    ("triton_red_fused_0", R, "triton"),
    (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
        N,
        "aten",
    ),
    (
        "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<double>(long, "
        "double, double)",
        N,
        "aten",
    ),
    (
        "void at::native::(anonymous namespace)::searchsorted_cuda_kernel<long, long>(long*)",
        I,
        "aten",
    ),
    (
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, "
        "false>(float*)",
        N,
        "library",
    ),
    (
        "void at::native::vectorized_elementwise_kernel<4, "
        "at::native::CUDAFunctorOnSelf_add<float>>(int)",
        P,
        "aten",
    ),
    (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
        "at::native::MeanOps<float>>>()",
        R,
        "aten",
    ),
    (
        "void at::native::elementwise_kernel<128, 4, "
        "at::native::direct_copy_kernel_cuda()::{lambda()#3}>()",
        C,
        "aten",
    ),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)",
        C,
        "aten",
    ),
    (
        "void at::native::(anonymous "
        "namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
        "namespace)::TensorListMetadata<2>, at::native::(anonymous "
        "namespace)::UnaryOpFunctor<float, 2, 1, 1>, at::native::Copy<float, float> >()",
        C,
        "aten",
    ),
    (
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4, "
        "64, 64>()",
        C,
        "aten",
    ),
    ("void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)", I, "aten"),
    (
        "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>()",
        I,
        "aten",
    ),
    ("void at::native::_scatter_gather_elementwise_kernel<128, 8>()", I, "aten"),
    ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>()", A, "library"),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", A, "library"),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x64_4x1x1_kernel0_0",
        A,
        "library",
    ),
    (
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4",
        V,
        "library",
    ),
    ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(x)", V, "library"),
    ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(x)", C, "library"),
    ("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(x)", S, "aten"),
    ("void at::native::stopKernel(int)", O, "aten"),
    (
        "void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortSingleTileKernel<x>()",
        S,
        "aten",
    ),
    ("void at_cuda_detail::cub::detail::scan::DeviceScanKernel<x>()", S, "aten"),
    ("void at_cuda_detail::cub::detail::select::DeviceSelectSweepKernel<x>()", I, "aten"),
    ("void at_cuda_detail::cub::detail::reduce::DeviceReduceSingleTileKernel<x>()", R, "aten"),
    (
        "void at::native::lpnorm_cleanup<float, (at::native::NormType)1, float>(float const*)",
        R,
        "aten",
    ),
    (
        "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float>>(float*)",
        S,
        "aten",
    ),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", M, "library"),
    ("my_own_triton_function", O, "library"),
)


def test_device_kernels() -> None:
    found = {name: of_device_event(name, "kernel") for name, *_ in KERNELS}

    assert [(name, kinds.kind, kinds.generator) for name, kinds in found.items()] == [*KERNELS]


@pytest.mark.parametrize(
    ("category", "generator"), [("gpu_memcpy", "memcpy"), ("gpu_memset", "memset")]
)
def test_copies_and_fills_of_the_device(category: str, generator: str) -> None:
    found = of_device_event("Memcpy DtoD (Device -> Device)", category)

    assert (found.kind, found.generator) == (C, generator)


def test_no_operator_has_two_kinds() -> None:
    names = [name for group in OPERATOR_KINDS.values() for name in group]

    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("triton_poi_fused_index_mul_0", "schedule poi"),
        ("triton_poi_fused_index_0", "schedule poi, and it computes index alone"),
        (
            "triton_red_fused_add_native_layer_norm_0",
            "schedule red, and native_layer_norm alone reduces in it",
        ),
        ("triton_tem_fused_addmm_2", "template (tem) of addmm"),
        ("ampere_sgemm_128x64_nn", '"gemm" in its name'),
        ("my_own_triton_function", "no rule knows the name"),
    ],
)
def test_the_rule_that_decided_is_said(name: str, rule: str) -> None:
    assert of_device_event(name, "kernel").rule == rule


def test_the_projects_own_rules_come_first_and_the_first_of_them_decides() -> None:
    kinds = Kinds(
        [
            KindOverride(pattern="^my_own", kind=A, origin="pyproject.toml"),
            KindOverride(pattern="own|gemm", kind=S, origin="pyproject.toml"),
        ]
    )

    found = [
        kinds.of_device_event(name, "kernel")
        for name in ("my_own", "triton_poi_fused_own_0", "sum_kernel")
    ]

    assert [(one.kind, one.generator, one.ops) for one in found] == [
        (A, "library", ()),
        (S, "triton", ("own",)),
        (O, "library", ()),
    ]
    assert found[0].rule == 'pyproject.toml: kernel-kinds "^my_own"'
    assert kinds.of_operator("aten::gemm_like").kind is S
    assert Kinds().of_operator("aten::mm").kind is G


@pytest.mark.shared
def test_no_kernel_of_the_h200_traces_is_of_an_unknown_kind(shared: Path) -> None:
    unknown = {
        columns.names[name]
        for path in sorted((shared / "traces" / "h200").glob("*.json.gz"))
        for columns in [kineto.read(path).columns]
        for name in set(columns.name[columns.of_category("kernel", "cpu_op")].tolist())
        if of_device_event(columns.names[name], "kernel").kind is O
        and of_operator(columns.names[name]).kind is O
    }

    assert unknown == set()
