"""Which kind a kernel is, decided by its name: the whole rule, as data, in the order in which it is applied.

A kernel that Inductor generated is told by its schedule, the word after ``triton_``: what reduces is a reduction, else
it is pointwise, whatever else was fused in (those operators are listed beside it; splitting its time would be a guess).
It is of a more exact kind only where its operators leave no choice: all that reduce in it are of one kind
(``triton_red_fused_add_native_layer_norm_0``: normalisation), or all that are computed in a pointwise one
(``triton_poi_fused_index_0``: index). A C++ kernel's name has no such word: it reduces where one of its operators does.
A name that no rule knows is OTHER, never the nearest guess. The project's own rules (``Kinds``) come before all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from kgprof import model as m
from kgprof.measures import fused
from kgprof.measures.fused import GeneratedName
from kgprof.reading.evidence import Evidence

# ---------------------------------------------------------------- CPU: operators of a trace, by name


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Without namespace, without the trailing underscore of an in-place form, without "_foreach_".
OPERATOR_KINDS: tuple[tuple[m.KernelKind, frozenset[str]], ...] = (
    (
        m.KernelKind.GEMM,  # dense products; the wrappers (linear, matmul) keep only their own dispatch time
        _names(
            "mm addmm bmm baddbmm addbmm mv addmv addr dot vdot inner outer linear bilinear _trilinear matmul kron "
            "chain_matmul linalg_multi_dot tensordot einsum _addmm_activation _int_mm _scaled_mm _scaled_grouped_mm "
            "_grouped_mm _sparse_semi_structured_mm _sparse_mm _linear_pointwise _mkl_linear mkldnn_linear "
            "linear_backward matmul_backward _weight_int4pack_mm _weight_int8pack_mm"
        ),
    ),
    (
        m.KernelKind.ATTENTION,
        _names(
            "scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_flash_attention "
            "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention "
            "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_backward "
            "_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_efficient_attention_backward "
            "_scaled_dot_product_cudnn_attention_backward _scaled_dot_product_fused_attention_overrideable "
            "_flash_attention_forward _flash_attention_backward _efficient_attention_forward "
            "_efficient_attention_backward _cudnn_attention_forward _cudnn_attention_backward _fused_sdp_choice "
            "_native_multi_head_attention _transform_bias_rescale_qkv flex_attention flex_attention_backward"
        ),
    ),
    (
        m.KernelKind.CONVOLUTION,
        _names(
            "convolution _convolution convolution_overrideable conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
            "conv_transpose3d convolution_backward convolution_backward_overrideable conv_tbc cudnn_convolution "
            "cudnn_convolution_relu cudnn_convolution_add_relu cudnn_convolution_transpose mkldnn_convolution "
            "_convolution_pointwise _convolution_transpose_pointwise thnn_conv2d _slow_conv2d_forward "
            "_slow_conv2d_backward slow_conv3d slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d "
            "slow_conv_transpose2d slow_conv_transpose3d _conv_depthwise2d conv_depthwise3d _nnpack_spatial_convolution"
        ),
    ),
    (
        m.KernelKind.NORMALISATION,  # each divides by a statistic of a row: layer norm and its kin, softmax
        _names(
            "layer_norm native_layer_norm rms_norm _fused_rms_norm group_norm native_group_norm batch_norm "
            "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
            "_native_batch_norm_legit_no_training _batch_norm_impl_index _batch_norm_with_update "
            "_batch_norm_with_update_functional _batch_norm_no_update cudnn_batch_norm instance_norm normalize "
            "local_response_norm weight_norm _weight_norm _weight_norm_interface softmax _softmax log_softmax "
            "_log_softmax _safe_softmax _masked_softmax softmin prepare_softmax_online native_layer_norm_backward "
            "_fused_rms_norm_backward native_group_norm_backward native_batch_norm_backward cudnn_batch_norm_backward "
            "_softmax_backward_data _log_softmax_backward_data _weight_norm_interface_backward"
        ),
    ),
    (
        m.KernelKind.INDEX,  # addresses come from data: gather, scatter, lookup, selection by mask
        _names(
            "index index_select index_put _index_put_impl _unsafe_index _unsafe_index_put _unsafe_masked_index "
            "_unsafe_masked_index_put_accumulate index_add index_copy index_fill index_reduce gather gather_backward "
            "scatter scatter_add scatter_reduce select_scatter slice_scatter as_strided_scatter diagonal_scatter "
            "embedding embedding_backward embedding_bag _embedding_bag embedding_dense_backward take take_along_dim "
            "masked_select masked_scatter nonzero nonzero_static nonzero_numpy argwhere put searchsorted bucketize "
            "bincount histc one_hot segment_reduce"
        ),
    ),
    (
        m.KernelKind.SORT,  # sorting, selection by rank, and scans
        _names(
            "sort argsort msort topk kthvalue median nanmedian quantile nanquantile mode unique _unique _unique2 "
            "unique_dim unique_consecutive unique_dim_consecutive isin cumsum cumprod cummax cummin _cummax_helper "
            "_cummin_helper logcumsumexp _logcumsumexp associative_scan"
        ),
    ),
    (
        m.KernelKind.REDUCTION,  # many elements to one
        _names(
            "all allclose amax amin aminmax _aminmax any argmax argmin avg_pool1d avg_pool2d avg_pool3d "
            "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d "
            "binary_cross_entropy cdist _cdist_forward count_nonzero cosine_similarity cross_entropy "
            "cross_entropy_loss dist equal huber_loss is_nonzero kl_div l1_loss linalg_norm linalg_vector_norm "
            "logsumexp max max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices mean min "
            "mse_loss nanmean nansum nll_loss nll_loss_forward nll_loss2d_forward nll_loss_nd norm nuclear_norm "
            "pairwise_distance prod smooth_l1_loss std std_mean sum sum_to_size trace var var_mean xor_sum"
        ),
    ),
    (
        m.KernelKind.COPY,  # moves or fills memory and computes nothing
        _names(
            "copy _copy_from clone contiguous to _to_copy fill zero zeros zeros_like ones ones_like full full_like "
            "cat _cat stack hstack vstack concat repeat repeat_interleave tile pad constant_pad_nd reflection_pad1d "
            "reflection_pad2d replication_pad1d replication_pad2d roll flip rot90 im2col col2im unfold_backward "
            "select_backward slice_backward pixel_shuffle pixel_unshuffle channel_shuffle view_copy slice_copy "
            "expand_copy permute_copy _local_scalar_dense item pin_memory _pin_memory _to_cpu masked_fill new_zeros "
            "new_full new_ones scalar_tensor tensor to_mkldnn to_dense mkldnn_reorder_conv2d_weight _chunk_cat"
        ),
    ),
    (
        m.KernelKind.COMMUNICATION,  # functional collectives, those of c10d, and what both record
        _names(
            "record_param_comms allreduce allreduce_coalesced allgather allgather_coalesced allgather_into_tensor "
            "_allgather_base reduce_scatter reduce_scatter_tensor _reduce_scatter_base alltoall alltoall_base "
            "broadcast_coalesced all_reduce all_reduce_coalesced all_gather_into_tensor "
            "all_gather_into_tensor_coalesced reduce_scatter_tensor_coalesced all_to_all_single wait_tensor barrier "
            "monitored_barrier"
        ),
    ),
    (
        m.KernelKind.POINTWISE,  # element by element
        _names(
            "__and__ __iand__ __ilshift__ __ior__ __irshift__ __ixor__ __lshift__ __or__ __rshift__ __xor__ "
            "abs acos acosh add addcdiv addcmul angle arange asin asinh atan atan2 atanh bernoulli "
            "binary_cross_entropy_with_logits bitwise_and bitwise_left_shift bitwise_not bitwise_or "
            "bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min clip complex conj_physical copysign "
            "cos cosh deg2rad digamma div divide dropout elu elu_backward embedding_renorm eq erf erfc erfinv exp exp2 "
            "expm1 exponential eye floor floor_divide fmax fma fmin fmod frac ge gelu gelu_backward glu greater "
            "greater_equal gt hardshrink hardsigmoid hardswish hardtanh hardtanh_backward heaviside hypot i0 igamma "
            "isclose isfinite isinf isnan isneginf isposinf ldexp le leaky_relu leaky_relu_backward lerp less "
            "less_equal lgamma linspace log log10 log1p log2 log_sigmoid logaddexp logaddexp2 logical_and logical_not "
            "logical_or logical_xor logit log_normal logsigmoid logspace lt maximum minimum mish mish_backward mul "
            "multinomial multiply mvlgamma nan_to_num native_dropout native_dropout_backward ne neg negative nextafter "
            "normal not_equal polar polygamma positive pow prelu rad2deg rand rand_like randint randint_like randn "
            "randn_like random randperm real reciprocal relu relu6 remainder round rrelu_with_noise rsqrt rsub selu "
            "sgn sigmoid sigmoid_backward sign signbit silu silu_backward sin sinc sinh softplus softplus_backward "
            "softshrink sqrt square sub subtract tan tanh tanh_backward threshold threshold_backward tril triu "
            "tril_indices triu_indices true_divide trunc uniform upsample_bicubic2d upsample_bilinear2d "
            "upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d where "
            "xlogy _fused_adam _fused_adamw _fused_sgd _fused_adagrad _fused_dropout inductor_random inductor_seed "
            "inductor_seeds inductor_lookup_seed inductor_randint convert_element_type"
        ),
    ),
    (
        m.KernelKind.FRAMEWORK,  # views, allocation, checks of sizes: they touch no element
        _names(
            "alias as_strided broadcast_in_dim broadcast_tensors broadcast_to chunk detach diagonal empty empty_like "
            "empty_permuted empty_strided expand expand_as flatten imag is_same_size lift lift_fresh mT matrix_H "
            "movedim narrow new_empty new_empty_strided numpy_T output_nr permute requires_grad reshape reshape_as "
            "resize resize_as resolve_conj resolve_neg result_type select set size slice split split_with_sizes "
            "squeeze stride swapaxes swapdims sym_numel sym_size sym_storage_offset sym_stride t tensor_split "
            "transpose unbind unflatten unfold unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze view "
            "view_as view_as_complex view_as_real _conj _neg_view _reshape_alias _unsafe_view _shape_as_tensor "
            "_has_compatible_shallow_copy_type _assert_async _assert_scalar _assert_tensor_metadata "
            "_functional_assert_async _functional_assert_scalar sym_constrain_range record_stream"
        ),
    ),
)

# Kinds whose operators reduce: several elements make one.
REDUCING = (m.KernelKind.NORMALISATION, m.KernelKind.REDUCTION, m.KernelKind.SORT, m.KernelKind.ATTENTION)
# What Inductor's schedules are called in a name, as far as they say a kind.
SCHEDULES = {
    "poi": m.KernelKind.POINTWISE,
    "for": m.KernelKind.POINTWISE,  # combinations of small pointwise kernels
    "red": m.KernelKind.REDUCTION,
    "per": m.KernelKind.REDUCTION,  # persistent: the whole row in one block
    "coo": m.KernelKind.REDUCTION,  # cooperative: several blocks a row
    "spl": m.KernelKind.SORT,  # a scan in several blocks
    "tem": m.KernelKind.OTHER,  # a hand-written template: what it computes its operators say
}

# Frames that torch.compile and autograd put around the operators: their self time is what the framework costs.
FRAMEWORK_PREFIXES = (
    "TorchDynamo Cache Lookup",
    "Torch-Compiled Region",
    "Pregraph bytecode",
    "AOTDispatcher",
    "CompiledFunction",
    "## Call CompiledFxGraph",
    "inductor_wrapper_call",
    "autograd::engine::",
    "torch::autograd::",
    "PythonDispatchMode",
)
# Compilation inside the traced steps, as dynamo_timed records it.
COMPILING = re.compile(r"dynamo|gc|entire_frame_compile|bytecode_tracing|compile_attempt_\d+|.*\(dynamo_timed\)")
# Nodes of the backward graph: their own time is autograd's, the operators that they call stand for themselves.
BACKWARD_NODE = re.compile(r"[A-Z]\w*Backward\d*")
# Wrapper frames in whose self time a generated C++ kernel hides unless it was compiled with its own profiling on.
CALL_OF_GENERATED_CODE = "## Call CompiledFxGraph"

# ---------------------------------------------------------------- CUDA: names of device kernels

# First match wins, so the order matters: attention kernels are often built on CUTLASS, a convolution's are GEMMs that
# say so, a top-k gathers, a direct copy and a fill are instances of the elementwise template, and the split-K reduction
# belongs to the GEMM it finishes.
DEVICE_KINDS: tuple[tuple[m.KernelKind, re.Pattern[str]], ...] = (
    (m.KernelKind.COMMUNICATION, re.compile(r"^(?:nccl|rccl|nvshmem)|(?:one|two)_shot_all_reduce|multimem_all", re.I)),
    (m.KernelKind.ATTENTION, re.compile(r"flash|fmha|attention|_attn|sdpa", re.IGNORECASE)),
    (
        m.KernelKind.COPY,  # cuDNN's changes of layout, before what is built from its name
        re.compile(r"nchwToNhwc|nhwcToNchw|transpose_readWrite|batched_transpose", re.IGNORECASE),
    ),
    (
        m.KernelKind.CONVOLUTION,
        re.compile(r"conv(?:olution|olve|[123]d|_depthwise)|fprop|wgrad|dgrad|winograd|im2col|col2im", re.I),
    ),
    (m.KernelKind.GEMM, re.compile(r"gemm|gemv|cutlass|cublas|nvjet|xmma|splitk|dot_kernel", re.IGNORECASE)),
    (
        m.KernelKind.NORMALISATION,
        re.compile(
            r"layer_?norm|rms_?norm|group_?norm|batch_?norm|softmax|RowwiseMoments|GammaBeta|ComputeFusedParams"
            r"|cudnn::bn_|weight_norm",
            re.I,
        ),
    ),
    (
        m.KernelKind.SORT,
        re.compile(
            r"radix_?sort|merge_?sort|segmented_?sort|bitonic|sort_(?:pairs|keys)|SortKV|(?<!s)top_?k(?!ernel)|KthValue|gatherMedian"
            r"|DeviceScan|scan_(?:innermost|outer|by_key)|kernel_scan|unique(?!_ptr)|RunLengthEncode|compute_mode",
            re.I,
        ),
    ),
    (
        m.KernelKind.COPY,
        re.compile(
            r"direct_copy|CatArrayBatchedCopy|native::Copy<|FillFunctor|CopyFunctor|copy_kernel|[Mm]emcpy|[Mm]emset"
            r"|split_with_sizes_copy|chunk_cat|repeat_interleave|compute_cuda_kernel|flip_kernel|roll_cuda|reflection_pad|replication_pad"
        ),
    ),
    (
        m.KernelKind.INDEX,
        re.compile(
            r"gather|scatter|index_(?:elementwise|put|select|add|copy|fill|kernel)|index(?:Select|Add|Copy|Func)"
            r"|embedding|masked_select|take_kernel|put_kernel|nonzero|searchsorted|DeviceSelect|DeviceCompactInit"
            r"|bucketize|histogram|kernelHistogram"
        ),
    ),
    (
        m.KernelKind.REDUCTION,
        re.compile(r"reduce_kernel|DeviceReduce|LpNormFunctor|lpnorm_cleanup|nll_loss|_pool|norm_kernel|aminmax"),
    ),
    (
        m.KernelKind.POINTWISE,
        re.compile(
            r"elementwise_kernel|elementwise_grid_stride|multi_tensor_apply|Functor|foreach_|fused_dropout|upsample"
            r"|triu_tril|_assert_async"
        ),
    ),
)

UNKNOWN = "no rule knows the name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    kind: m.KernelKind
    generator: str  # as model.KernelRow.generator
    ops: tuple[str, ...] = ()
    rule: str = UNKNOWN  # as model.KernelRow.rule


class Kinds:
    """The rules below, after those of the project's own. The first of these that is found in a name decides.

    Raises re.error for a pattern that is none.
    """

    def __init__(self, overrides: Iterable[m.KindOverride] = ()) -> None:
        self._own = tuple((re.compile(own.pattern), own.kind, rule_of(own)) for own in overrides)

    def of_operator(self, name: str) -> Classified:
        """An event of category cpu_op."""
        return self._overridden(name, of_operator(name))

    def of_device_event(self, name: str, category: str) -> Classified:
        """An event of category kernel, gpu_memcpy or gpu_memset."""
        return self._overridden(name, of_device_event(name, category))

    def _overridden(self, name: str, found: Classified) -> Classified:
        for pattern, kind, rule in self._own:
            if pattern.search(name):
                return replace(found, kind=kind, rule=rule)
        return found


def kinds_of(evidence: Evidence) -> Kinds:
    """The rules for every kernel of a Recording, the project's own before them. Raises re.error as Kinds does."""
    return Kinds(evidence.kind_overrides)


def rule_of(override: m.KindOverride) -> str:
    return f'{override.origin}: kernel-kinds "{override.pattern}"'


@cache
def of_operator(name: str) -> Classified:
    generated = fused.parse(name)
    if generated is not None:
        return _of_generated(generated)
    for prefix in FRAMEWORK_PREFIXES:
        if name.startswith(prefix):
            return Classified(kind=m.KernelKind.FRAMEWORK, generator="framework", rule=f"begins with {prefix!r}")
    if COMPILING.fullmatch(name):
        return Classified(kind=m.KernelKind.FRAMEWORK, generator="framework", rule="a part of Dynamo's compilation")
    namespace, _, operator = name.rpartition("::")
    generator = "aten" if namespace in ("aten", "prims") else "library"
    kind = kind_of_operator(operator)
    if kind is not None:
        return Classified(kind=kind, generator=generator, rule=f"operator {operator}")
    if BACKWARD_NODE.fullmatch(operator):
        return Classified(kind=m.KernelKind.FRAMEWORK, generator="framework", rule="a node of autograd's graph")
    return Classified(kind=m.KernelKind.OTHER, generator=generator)


@cache
def kind_of_operator(operator: str) -> m.KernelKind | None:
    """Of a name without its namespace; None where no list has it."""
    bare = operator.removeprefix("_foreach_").rstrip("_") or operator
    return next((kind for kind, names in OPERATOR_KINDS if operator in names or bare in names), None)


@cache
def of_device_event(name: str, category: str) -> Classified:
    if category in ("gpu_memcpy", "gpu_memset"):
        generator = category.removeprefix("gpu_")
        return Classified(kind=m.KernelKind.COPY, generator=generator, rule=f"a {generator} of the driver's")
    generated = fused.parse(name)
    if generated is not None:
        return _of_generated(generated)
    generator = "aten" if "at::native" in name or "at_cuda_detail" in name else "library"
    for kind, pattern in DEVICE_KINDS:
        if found := pattern.search(name):
            return Classified(kind=kind, generator=generator, rule=f'"{found[0]}" in its name')
    return Classified(kind=m.KernelKind.OTHER, generator=generator)


# ---------------------------------------------------------------- what Inductor generated


def _of_generated(generated: GeneratedName) -> Classified:
    computed = _computed(generated.ops)
    if generated.category == "tem":
        kind, why = _of_template(computed)
    else:
        kind, why = _of_schedule(generated.category, computed)
    return Classified(kind=kind, generator=generated.generator, ops=generated.ops, rule=why)


def _computed(ops: Iterable[str]) -> dict[str, m.KernelKind]:
    """The operators without those that touch no element, and without those that no list has."""
    known = {op: kind_of_operator(op) for op in ops}
    return {op: kind for op, kind in known.items() if kind not in (None, m.KernelKind.FRAMEWORK)}


def _of_template(computed: dict[str, m.KernelKind]) -> tuple[m.KernelKind, str]:
    for kind in (m.KernelKind.ATTENTION, m.KernelKind.CONVOLUTION, m.KernelKind.GEMM):
        if named := [op for op, its_kind in computed.items() if its_kind is kind]:
            return kind, f"template (tem) of {named[0]}"
    return m.KernelKind.OTHER, "template (tem) of no operator that is known"


def _of_schedule(word: str, computed: dict[str, m.KernelKind]) -> tuple[m.KernelKind, str]:
    """``word`` is empty for C++."""
    reducing = {op: kind for op, kind in computed.items() if kind in REDUCING}
    schedule = SCHEDULES.get(word, m.KernelKind.REDUCTION if reducing and not word else m.KernelKind.POINTWISE)
    said = f"schedule {word}" if word else "C++, which reduces" if reducing else "C++, which does not reduce"
    # A product may be generated too, as a sum of products: where nothing else in the kernel reduces, it is that.
    products = {op: kind for op, kind in computed.items() if kind is m.KernelKind.GEMM}
    deciding = (reducing or products) if schedule is m.KernelKind.REDUCTION else computed
    kinds = set(deciding.values())
    if schedule is m.KernelKind.SORT or len(kinds) != 1 or kinds == {schedule}:
        return schedule, said
    (kind,) = kinds
    named = ", ".join(deciding)
    if schedule is m.KernelKind.REDUCTION:
        return kind, f"{said}, and {named} alone reduces in it"
    if kind is m.KernelKind.REDUCTION:  # what is left of one: a mean's division, a sum over so few that it is unrolled
        return schedule, said
    return kind, f"{said}, and it computes {named} alone"
