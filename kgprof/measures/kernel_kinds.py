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
from kgprof.measures.operator_names import OPERATOR_KINDS
from kgprof.reading.evidence import Evidence

# ---------------------------------------------------------------- CPU: operators of a trace, by name

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
    return next((kind for kind, names in OPERATOR_KINDS.items() if operator in names or bare in names), None)


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
    # The operators without those that touch no element, and without those that no list has.
    known = ((op, kind_of_operator(op)) for op in generated.ops)
    computed: dict[str, m.KernelKind] = {op: kind for op, kind in known if kind not in (None, m.KernelKind.FRAMEWORK)}
    if generated.category == "tem":
        kind, why = _of_template(computed)
    else:
        kind, why = _of_schedule(generated.category, computed)
    return Classified(kind=kind, generator=generated.generator, ops=generated.ops, rule=why)


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
