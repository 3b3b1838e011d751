"""Which kind a kernel is, decided by its name: the whole rule, as data, in the order in which it is applied.

A kernel that Inductor generated is POINTWISE whatever it fused (its operators are listed beside it): a name such as
``fused_add_index_native_layer_norm`` belongs to no single kind, and splitting its time would be a guess. Only its GEMM
templates are GEMM. A name that no rule knows is OTHER, never the nearest guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from kgprof.analysis import fused
from kgprof.model import KernelKind

# ---------------------------------------------------------------- CPU: operators of a trace, by name


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Without namespace, without the trailing underscore of an in-place form, without "_foreach_".
OPERATOR_KINDS: tuple[tuple[KernelKind, frozenset[str]], ...] = (
    (
        KernelKind.GEMM,  # dense products; the wrappers (linear, matmul) keep only their own dispatch time
        _names(
            "mm addmm bmm baddbmm addbmm mv addmv dot vdot inner linear matmul chain_matmul einsum _addmm_activation "
            "_int_mm _scaled_mm _grouped_mm _linear_pointwise _mkl_linear mkldnn_linear"
        ),
    ),
    (
        KernelKind.NORMALISATION,  # each divides by a statistic of a row: layer norm and its kin, softmax
        _names(
            "layer_norm native_layer_norm rms_norm _fused_rms_norm group_norm native_group_norm batch_norm "
            "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training instance_norm softmax "
            "_softmax log_softmax _log_softmax _safe_softmax native_layer_norm_backward native_group_norm_backward "
            "native_batch_norm_backward _softmax_backward_data _log_softmax_backward_data"
        ),
    ),
    (
        KernelKind.INDEX,  # addresses come from data: gather, scatter, lookup, selection by mask
        _names(
            "index index_select index_put _index_put_impl _unsafe_index _unsafe_index_put index_add index_copy "
            "index_fill index_reduce gather scatter scatter_add scatter_reduce embedding embedding_bag _embedding_bag "
            "embedding_dense_backward take take_along_dim masked_select masked_scatter nonzero nonzero_static argwhere "
            "put searchsorted"
        ),
    ),
    (
        KernelKind.COPY,  # moves or fills memory and computes nothing
        _names(
            "copy _copy_from clone contiguous to _to_copy fill zero zeros zeros_like ones ones_like full full_like "
            "cat stack hstack vstack concat repeat repeat_interleave tile pad constant_pad_nd roll flip "
            "_local_scalar_dense item pin_memory _to_cpu masked_fill new_zeros new_full new_ones"
        ),
    ),
    (
        KernelKind.POINTWISE,  # element by element, and reductions over elements
        _names(
            "__and__ __ilshift__ __irshift__ __lshift__ __or__ __rshift__ __xor__ "
            "abs acos add addcdiv addcmul all amax amin aminmax any arange argmax argmin asin atan atan2 bernoulli "
            "bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor cdist ceil clamp "
            "clamp_max clamp_min clip cos cosh count_nonzero cummax cummin cumprod cumsum dist div divide dropout elu "
            "eq equal erf erfc exp exp2 expm1 floor floor_divide fmax fmin fmod frac ge gelu gelu_backward greater "
            "greater_equal gt hardsigmoid hardswish hardtanh isfinite isin isinf isnan isneginf isposinf le leaky_relu "
            "lerp less less_equal linalg_vector_norm linspace log log10 log1p log2 logaddexp logcumsumexp logical_and "
            "logical_not logical_or logical_xor logit logsigmoid logsumexp lt max maximum mean min minimum mish mul "
            "multiply nan_to_num nanmean nansum native_dropout ne neg negative norm normal not_equal pow prelu prod "
            "rand rand_like randint randn randn_like random reciprocal relu remainder round rsqrt rsub sgn sigmoid "
            "sigmoid_backward sign silu silu_backward sin sinh softplus sqrt square std std_mean sub subtract sum tan "
            "tanh tanh_backward threshold threshold_backward tril triu trunc true_divide uniform var var_mean where "
            "xlogy"
        ),
    ),
)

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
)
# Wrapper frames in whose self time a generated C++ kernel hides unless it was compiled with its own profiling on.
CALL_OF_GENERATED_CODE = "## Call CompiledFxGraph"

# ---------------------------------------------------------------- CUDA: names of device kernels

# First match wins, so the order matters: attention kernels are often built on CUTLASS, a direct copy and a fill are
# instances of the elementwise template, and the split-K reduction belongs to the GEMM it finishes.
DEVICE_KINDS: tuple[tuple[KernelKind, re.Pattern[str]], ...] = (
    (KernelKind.OTHER, re.compile(r"flash_|fmha|attention|_attn", re.IGNORECASE)),
    (KernelKind.OTHER, re.compile(r"conv(?:olution|2d|3d|_depthwise)|implicit_convolve|wgrad|dgrad|winograd", re.I)),
    (KernelKind.OTHER, re.compile(r"^nccl", re.IGNORECASE)),
    (KernelKind.GEMM, re.compile(r"gemm|gemv|cutlass|cublas|nvjet|xmma|splitk", re.IGNORECASE)),
    (
        KernelKind.NORMALISATION,
        re.compile(r"layer_?norm|rms_?norm|group_?norm|batch_?norm|softmax|RowwiseMoments", re.I),
    ),
    (
        KernelKind.COPY,
        re.compile(
            r"direct_copy|CatArrayBatchedCopy|native::Copy<|FillFunctor|CopyFunctor|copy_kernel|[Mm]emcpy|[Mm]emset"
        ),
    ),
    (
        KernelKind.INDEX,
        re.compile(
            r"gather|scatter|index_(?:elementwise|put|select|add|copy|fill|kernel)|index(?:Select|Add|Copy|Func)"
            r"|embedding|masked_select|take_kernel|put_kernel|nonzero|searchsorted"
        ),
    ),
    (
        KernelKind.POINTWISE,
        re.compile(r"elementwise_kernel|reduce_kernel|multi_tensor_apply|Functor|tensor_kernel_scan|foreach_"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    kind: KernelKind
    generator: str  # as model.KernelRow.generator
    ops: tuple[str, ...] = ()


@cache
def of_operator(name: str) -> Classified:
    """An event of category cpu_op."""
    generated = fused.parse(name)
    if generated is not None:
        return Classified(kind=KernelKind.POINTWISE, generator=generated.generator, ops=generated.ops)
    if name.startswith(FRAMEWORK_PREFIXES):
        return Classified(kind=KernelKind.FRAMEWORK, generator="framework")
    namespace, _, operator = name.rpartition("::")
    bare = operator.removeprefix("_foreach_").rstrip("_") or operator
    generator = "aten" if namespace in ("aten", "prims") else "library"
    for kind, names in OPERATOR_KINDS:
        if operator in names or bare in names:
            return Classified(kind=kind, generator=generator)
    return Classified(kind=KernelKind.OTHER, generator=generator)


@cache
def of_device_event(name: str, category: str) -> Classified:
    """An event of category kernel, gpu_memcpy or gpu_memset."""
    if category in ("gpu_memcpy", "gpu_memset"):
        return Classified(kind=KernelKind.COPY, generator=category.removeprefix("gpu_"))
    generated = fused.parse(name)
    if generated is not None:
        return Classified(kind=_of_generated(generated), generator=generated.generator, ops=generated.ops)
    generator = "aten" if "at::native" in name or "at_cuda_detail" in name else "library"
    for kind, pattern in DEVICE_KINDS:
        if pattern.search(name):
            return Classified(kind=kind, generator=generator)
    return Classified(kind=KernelKind.OTHER, generator=generator)


def _of_generated(generated: fused.GeneratedName) -> KernelKind:
    if generated.category != "tem":
        return KernelKind.POINTWISE
    products = dict(OPERATOR_KINDS)[KernelKind.GEMM]
    return KernelKind.GEMM if products.intersection(generated.ops) else KernelKind.OTHER
