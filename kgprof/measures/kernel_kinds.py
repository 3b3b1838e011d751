"""What a kernel's name tells: the operators that Inductor fused into it, and from them and the name
its kind.

Inductor names a kernel ``triton_<category>_fused_<ops>_<n>`` or ``cpp_fused_<ops>_<n>`` (in a trace
with ``graph_<id>_`` before it), where ``<ops>`` are the distinct operators in alphabetical order,
joined by underscores (torch/_inductor/utils.py: get_fused_kernel_name). ``parse`` reads them back.

The kind of such a kernel follows from its schedule, the word after ``triton_``: what reduces is a
reduction, else it is pointwise, whatever else was fused in (those operators are listed beside it;
splitting its time would be a guess). It is of a more exact kind only where its operators leave no
choice: all that reduce in it are of one kind (``triton_red_fused_add_native_layer_norm_0``:
normalisation), or all that are computed in a pointwise one (``triton_poi_fused_index_0``: index). A
C++ kernel's name has no such word: it reduces where one of its operators does. Any other kernel's
kind is decided by the first rule below that knows its name; one that none knows is OTHER, never the
nearest guess. The project's own rules (``Kinds``) come before all of it.
"""

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources

import numpy as np
from msgspec.structs import replace

from kgprof import model as m
from kgprof.reading.evidence import Evidence
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import Indices, Mask

# What is known of torch's operators by name.
_LISTS = {
    kind: frozenset(names.split())
    for kind, names in tomllib.loads(
        resources.files("kgprof.measures").joinpath("operators.toml").read_text(encoding="utf-8")
    ).items()
}
# In the order in which they are asked; no name is in two of them.
OPERATOR_KINDS = {
    m.KernelKind(kind): names for kind, names in _LISTS.items() if kind != "of_no_kind"
}
MULTI_WORD_OPERATORS = frozenset(
    name for names in _LISTS.values() for name in names if "_" in name.strip("_")
)

# The category is the first three letters of Inductor's own word: pointwise, reduction,
# persistent_reduction, template, foreach, split_scan.
_GENERATED = re.compile(
    r"(?:.*?_)??(?P<generator>triton|cpp)(?:_(?P<category>[a-z]{3}))?_fused"
    r"(?:_(?P<ops>.+?))??_(?P<number>\d+)"
)
_GRAPH = re.compile(r"^graph_\d+_")
_WORD = re.compile(r"__[a-z0-9]+__|_?[A-Za-z0-9]+_?")  # aten::__lshift__ is one word too
_MAX_NAME = 1000  # beyond it a name is no longer taken apart: the search is quadratic in its length


class GeneratedName(m.Model, kw_only=False):
    generator: str  # "triton" or "cpp"
    category: str  # "poi", "red", "per", "tem" ...; empty for C++
    ops: tuple[str, ...]


def parse(name: str) -> GeneratedName | None:
    """What the name of a kernel that Inductor generated says; None for any other kernel."""
    found = _GENERATED.fullmatch(name)
    if found is None:
        return None
    operators = split_operators(found["ops"] or "")
    return GeneratedName(found["generator"], found["category"] or "", operators)


def plain_name(name: str) -> str:
    """A generated kernel's name without the numbers of its graph and of itself, which another
    compilation gives otherwise; any other name as it is."""
    if not _GENERATED.fullmatch(name):
        return name
    return _GRAPH.sub("", name).rpartition("_")[0]


@cache
def split_operators(joined: str) -> tuple[str, ...]:
    """``index_add_mul`` -> ``("index_add", "mul")``.

    The fewest operators that spell the text in ascending order, each one word or a known name of
    several words. Where no ascending reading exists (another ``descriptive_names`` setting) the
    order is given up, then the known names.
    """
    if not joined:
        return ()
    if len(joined) > _MAX_NAME:
        return (joined,)
    return _fewest(joined, ascending=True) or _fewest(joined, ascending=False) or (joined,)


def _fewest(joined: str, *, ascending: bool) -> tuple[str, ...] | None:
    """Shortest path over the positions where an operator may begin; a state is (where it begins,
    the one before)."""
    frontier: dict[tuple[int, str], tuple[str, ...]] = {(0, ""): ()}
    while frontier:
        # All states of one frontier hold equally many operators, so the first to reach the end is
        # the shortest; among equals the reading with the longest first operator wins.
        done = [path for (position, _), path in frontier.items() if position > len(joined)]
        if done:
            return max(done, key=lambda path: [len(operator) for operator in path])
        following: dict[tuple[int, str], tuple[str, ...]] = {}
        for (position, last), path in frontier.items():
            for operator in _operators_at(joined, position):
                if not ascending or operator > last:
                    following.setdefault(
                        (position + len(operator) + 1, operator), (*path, operator)
                    )
        frontier = following
    return None


@cache
def _operators_at(joined: str, position: int) -> tuple[str, ...]:
    """The operators that may stand here, each followed by an underscore or the end."""
    ends = [i for i in range(position + 1, len(joined) + 1) if i == len(joined) or joined[i] == "_"]
    texts = (joined[position:end] for end in ends)
    return tuple(
        text
        for text in texts
        if _WORD.fullmatch(text) or {text, text.rstrip("_")} & MULTI_WORD_OPERATORS
    )


K = m.KernelKind

# --------------------------------------------------------------- CPU: operators of a trace, by name

# Kinds whose operators reduce: several elements make one.
REDUCING = (K.NORMALISATION, K.REDUCTION, K.SORT, K.ATTENTION)
# What Inductor's schedules are called in a name, as far as they say a kind.
SCHEDULES = {
    "poi": K.POINTWISE,
    "for": K.POINTWISE,  # combinations of small pointwise kernels
    "red": K.REDUCTION,
    "per": K.REDUCTION,  # persistent: the whole row in one block
    "coo": K.REDUCTION,  # cooperative: several blocks a row
    "spl": K.SORT,  # a scan in several blocks
    "tem": K.OTHER,  # a hand-written template: what it computes its operators say
}

# Frames that torch.compile and autograd put around the operators: their self time is what the
# framework costs.
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
_COMPILING = re.compile(
    r"dynamo|gc|entire_frame_compile|bytecode_tracing|compile_attempt_\d+|.*\(dynamo_timed\)"
)
# Nodes of the backward graph: their own time is autograd's, the operators that they call stand for
# themselves.
BACKWARD_NODE = re.compile(r"[A-Z]\w*Backward\d*")
# Wrapper frames in whose self time a generated C++ kernel hides unless it was compiled with its own
# profiling on.
CALL_OF_GENERATED_CODE = "## Call CompiledFxGraph"

# ---------------------------------------------------------------- CUDA: names of device kernels

# First match wins, so the order matters: attention kernels are often built on CUTLASS, a
# convolution's are GEMMs that say so, a top-k gathers, a direct copy and a fill are instances of
# the elementwise template, and the split-K reduction belongs to the GEMM it finishes.
DEVICE_KINDS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (K.COMMUNICATION, r"(?i)^(?:nccl|rccl|nvshmem)|(?:one|two)_shot_all_reduce|multimem_all"),
        (K.ATTENTION, r"(?i)flash|fmha|attention|_attn|sdpa"),
        # cuDNN's changes of layout, before what is built from its name.
        (K.COPY, r"(?i)nchwToNhwc|nhwcToNchw|transpose_readWrite|batched_transpose"),
        (
            K.CONVOLUTION,
            r"(?i)conv(?:olution|olve|[123]d|_depthwise)|fprop|wgrad|dgrad|winograd|im2col|col2im",
        ),
        (K.GEMM, r"(?i)gemm|gemv|cutlass|cublas|nvjet|xmma|splitk|dot_kernel"),
        (
            K.NORMALISATION,
            r"(?i)layer_?norm|rms_?norm|group_?norm|batch_?norm|softmax|RowwiseMoments|GammaBeta"
            r"|ComputeFusedParams"
            r"|cudnn::bn_|weight_norm",
        ),
        (
            K.SORT,
            r"(?i)radix_?sort|merge_?sort|segmented_?sort|bitonic|sort_(?:pairs|keys)|SortKV"
            r"|(?<!s)top_?k(?!ernel)"
            r"|KthValue|gatherMedian|DeviceScan|scan_(?:innermost|outer|by_key)|kernel_scan"
            r"|unique(?!_ptr)"
            r"|RunLengthEncode|compute_mode",
        ),
        (
            K.COPY,
            r"direct_copy|CatArrayBatchedCopy|native::Copy<|FillFunctor|CopyFunctor|copy_kernel"
            r"|[Mm]emcpy|[Mm]emset"
            r"|split_with_sizes_copy|chunk_cat|repeat_interleave|compute_cuda_kernel|flip_kernel"
            r"|roll_cuda"
            r"|reflection_pad|replication_pad",
        ),
        (
            K.INDEX,
            r"gather|scatter|index_(?:elementwise|put|select|add|copy|fill|kernel)"
            r"|index(?:Select|Add|Copy|Func)"
            r"|embedding|masked_select|take_kernel|put_kernel|nonzero|searchsorted|DeviceSelect"
            r"|DeviceCompactInit"
            r"|bucketize|histogram|kernelHistogram",
        ),
        (
            K.REDUCTION,
            r"reduce_kernel|DeviceReduce|LpNormFunctor|lpnorm_cleanup|nll_loss|_pool|norm_kernel"
            r"|aminmax",
        ),
        (
            K.POINTWISE,
            r"elementwise_kernel|elementwise_grid_stride|multi_tensor_apply|Functor|foreach_"
            r"|fused_dropout|upsample"
            r"|triu_tril|_assert_async",
        ),
    )
)

UNKNOWN = "no rule knows the name"


class Classified(m.Model, kw_only=False):
    kind: m.KernelKind
    generator: str  # as model.KernelRow.generator
    ops: tuple[str, ...] = ()
    rule: str = UNKNOWN  # as model.KernelRow.rule


class Kinds:
    """The rules below, after those of the project's own. The first of these that is found in a name
    decides.

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

    def are(self, columns: Columns, events: Indices, kind: m.KernelKind) -> Mask:
        """Which of these device events are of a kind; each name is looked at once."""
        names = columns.name[events].astype(np.int64)
        keys = names * len(columns.categories) + columns.category[events]
        of_kind = np.zeros(len(columns.names) * len(columns.categories), np.bool_)
        for key in np.flatnonzero(np.bincount(keys)).tolist():
            name, category = divmod(key, len(columns.categories))
            of_kind[key] = (
                self.of_device_event(columns.names[name], columns.categories[category]).kind is kind
            )
        found: Mask = of_kind[keys]
        return found

    def _overridden(self, name: str, found: Classified) -> Classified:
        for pattern, kind, rule in self._own:
            if pattern.search(name):
                return replace(found, kind=kind, rule=rule)
        return found


def kinds_of(evidence: Evidence) -> Kinds:
    """The rules for every kernel of a Recording, the project's own before them. Raises re.error as
    Kinds does."""
    return Kinds(evidence.kind_overrides)


def rule_of(override: m.KindOverride) -> str:
    return f'{override.origin}: kernel-kinds "{override.pattern}"'


@cache
def of_operator(name: str) -> Classified:
    generated = parse(name)
    if generated is not None:
        return _of_generated(generated)
    namespace, _, operator = name.rpartition("::")
    generator = "library"
    if namespace in ("aten", "prims"):
        generator = "aten"
    kind = kind_of_operator(operator)
    if prefix := next((prefix for prefix in FRAMEWORK_PREFIXES if name.startswith(prefix)), ""):
        why = f"begins with {prefix!r}"
    elif _COMPILING.fullmatch(name):
        why = "a part of Dynamo's compilation"
    elif kind is not None:
        return Classified(kind, generator, rule=f"operator {operator}")
    elif BACKWARD_NODE.fullmatch(operator):
        why = "a node of autograd's graph"
    else:
        return Classified(K.OTHER, generator)
    return Classified(K.FRAMEWORK, "framework", rule=why)


@cache
def kind_of_operator(operator: str) -> m.KernelKind | None:
    """Of a name without its namespace; None where no list has it."""
    bare = operator.removeprefix("_foreach_").rstrip("_") or operator
    return next(
        (kind for kind, names in OPERATOR_KINDS.items() if operator in names or bare in names), None
    )


@cache
def of_device_event(name: str, category: str) -> Classified:
    if category in ("gpu_memcpy", "gpu_memset"):
        generator = category.removeprefix("gpu_")
        return Classified(K.COPY, generator, rule=f"a {generator} of the driver's")
    generated = parse(name)
    if generated is not None:
        return _of_generated(generated)
    generator = "library"
    if "at::native" in name or "at_cuda_detail" in name:
        generator = "aten"
    for kind, pattern in DEVICE_KINDS:
        if found := pattern.search(name):
            return Classified(kind, generator, rule=f'"{found[0]}" in its name')
    return Classified(K.OTHER, generator)


# Whose kernels they are, in the order in which they are asked; cuBLAS names its own after the
# product alone.
_LIBRARIES = (
    ("NCCL", re.compile("nccl")),
    ("attention", re.compile(r"flash_(fwd|bwd)|flash::|fmha|attention")),
    (
        "cuDNN",
        re.compile(r"cudnn|implicit_convolve|nchwToNhwc|nhwcToNchw|conv2d|_fprop_|_dgrad_|_wgrad_"),
    ),
    ("cuBLAS", re.compile(r"cublas|nvjet|gemm|gemv|splitK", re.IGNORECASE)),
)


def library_of(name: str) -> str:
    """Of a kernel that neither Inductor nor ATen made: "cuBLAS", "cuDNN", "NCCL", "attention"; else
    "library"."""
    return next((library for library, pattern in _LIBRARIES if pattern.search(name)), "library")


def _of_generated(generated: GeneratedName) -> Classified:
    # The operators without those that touch no element, and without those that no list has.
    known = ((op, kind_of_operator(op)) for op in generated.ops)
    computed: dict[str, m.KernelKind] = {
        op: kind for op, kind in known if kind not in (None, K.FRAMEWORK)
    }
    if generated.category == "tem":
        kind, why = _of_template(computed)
    else:
        kind, why = _of_schedule(generated.category, computed)
    return Classified(kind, generated.generator, generated.ops, rule=why)


def _of_template(computed: dict[str, m.KernelKind]) -> tuple[m.KernelKind, str]:
    for kind in (K.ATTENTION, K.CONVOLUTION, K.GEMM):
        for operator in computed:
            if computed[operator] is kind:
                return kind, f"template (tem) of {operator}"
    return K.OTHER, "template (tem) of no operator that is known"


def _of_schedule(word: str, computed: dict[str, m.KernelKind]) -> tuple[m.KernelKind, str]:
    """``word`` is empty for C++."""
    reducing = {op: kind for op, kind in computed.items() if kind in REDUCING}
    schedule = SCHEDULES.get(word, K.POINTWISE)
    said = f"schedule {word}"
    if not word:
        said = "C++, which does not reduce"
        if reducing:
            schedule = K.REDUCTION
            said = "C++, which reduces"
    deciding = computed
    if schedule is K.REDUCTION:
        # A product may be generated too, as a sum of products: where nothing else in the kernel
        # reduces, it is that.
        deciding = reducing or {op: K.GEMM for op, kind in computed.items() if kind is K.GEMM}
    kinds = set(deciding.values())
    if schedule is K.SORT or len(kinds) != 1 or kinds == {schedule}:
        return schedule, said
    (kind,) = kinds
    named = ", ".join(deciding)
    if schedule is K.REDUCTION:
        return kind, f"{said}, and {named} alone reduces in it"
    # what is left of one: a mean's division, a sum over so few that it is unrolled
    if kind is K.REDUCTION:
        return schedule, said
    return kind, f"{said}, and it computes {named} alone"
