"""Whether matmuls and attention run on the tensor cores that the card has."""

import re
from collections.abc import Iterator

import numpy as np

from kgprof import model as m
from kgprof.collectors.event import Event, finding, of_each, on_gpu
from kgprof.measures.traced_steps import WORTH_SHARE, Extent, traced_steps
from kgprof.reading.evidence import RunEvidence
from kgprof.wording import plural

FIRST_WITH_TF32 = (8, 0)  # compute capability
OFTEN_IDLE = 0.3  # of the step without work on the GPU: more launches may make it longer
# cuBLAS, cuDNN and CUTLASS name their float32 kernels without tensor cores so; "s1688gemm" and
# "tf32" (CUTLASS's type: "tfloat32") are on them.
_ON_CUDA_CORES = re.compile(r"_simt_sgemm|_ffma_|(?:^|_|\b)sgemm_|(?:^|_)scudnn_|sgemm_largek")
_COMPLEX = re.compile("cf32")
_ON_TENSOR_CORES_AS_TF32 = re.compile(
    r"tf(?:loat)?32|tensorop_s1688|_s1688(?:gemm|fprop|dgrad|wgrad)"
)
IN_HALF = re.compile(
    r"bf16|fp16|f16f16|_h16816|_s16816|nvjet_\w{1,200}?_[th]s[th]|nvjet_\w{1,200}?_hsh",
    re.IGNORECASE,
)
_MATH_ATTENTION = "aten::_scaled_dot_product_attention_math"
# cuDNN's, which has a switch of its own: torch.backends.cudnn.allow_tf32, on by default
_OF_CUDNN = ("aten::cudnn_convolution", "aten::convolution_backward", "aten::_cudnn_rnn")

FLOAT32_ON_CUDA_CORES = m.Rule(
    id="KGP604",
    name="matmul-without-tensor-cores",
    level=m.Level.WARNING,
    summary="Float32 matmuls run on CUDA cores, although the GPU has tensor cores for TF32.",
    why=(
        "torch multiplies float32 matrices in full precision unless told otherwise. From compute "
        "capability 8.0 on, TF32 keeps float32's range, rounds the inputs to 10 bits of mantissa "
        "and is several times as fast (8× on an H100). The rule goes by kernel names (simt_sgemm, "
        "ffma). A Triton template's name does not say which it uses, so max-autotune's own matmuls "
        "are not counted, nor are cuDNN's, which have a switch of their own. Beside matmuls in "
        "TF32 nothing is said: it is allowed then, and cuBLAS chose otherwise."
    ),
    example="A transformer trained in float32 without torch.set_float32_matmul_precision.",
    remedy=(
        "torch.set_float32_matmul_precision('high') before the first compile, or bfloat16 under "
        "torch.autocast. Check the results: both change the last digits."
    ),
    topic=m.Topic.TIME,
    seen_in=((m.Witness.CUDA, m.Witness.TRACE, m.Witness.TENSOR_CORES, m.Witness.WHAT_LIMITS),),
    can_cost=(m.CostKind.KERNEL,),
    judged_from_times=True,
    relieves=(m.LimitKind.COMPUTE,),
)
MATH_ATTENTION = m.Rule(
    id="KGP605",
    name="attention-in-math-backend",
    level=m.Level.WARNING,
    summary=(
        "scaled_dot_product_attention runs as separate matmuls and a softmax, not as "
        "one fused kernel."
    ),
    why=(
        "The math backend writes the whole score matrix to memory and multiplies in float32 even "
        "if the inputs are float16. torch uses it when no fused backend accepts the call: an "
        "explicit mask with a gradient, an unsupported head dimension or dtype, or an sdpa_kernel "
        "context that allows nothing else. Attention written out by hand is not recognised."
    ),
    example="F.scaled_dot_product_attention under sdpa_kernel(SDPBackend.MATH).",
    remedy=(
        "Ask torch why: torch.backends.cuda.can_use_flash_attention(params, debug=True). Use "
        "float16 or bfloat16, is_causal=True instead of a mask, and a head dimension that is a "
        "multiple of 8."
    ),
    topic=m.Topic.TIME,
    seen_in=(
        (
            m.Witness.CUDA,
            m.Witness.TRACE,
            m.Witness.TENSOR_CORES,
            m.Witness.WHAT_LIMITS,
            m.Witness.OPERATORS,
        ),
    ),
    can_cost=(m.CostKind.KERNEL,),
    judged_from_times=True,
    relieves=(m.LimitKind.MEMORY,),
)
NO_AUTOCAST = m.Rule(
    id="KGP606",
    name="no-half-precision",
    level=m.Level.NOTE,
    summary="Tensor cores compute in TF32 alone; the GPU multiplies bfloat16 at a higher rate.",
    why=(
        "Tensor cores multiply bfloat16 about twice as fast as TF32 and read half the bytes. "
        "Whether the model tolerates it is your decision, so this is a note."
    ),
    example="A training loop with TF32 on and without torch.autocast.",
    remedy=(
        "Run the forward pass and the loss under torch.autocast('cuda', "
        "dtype=torch.bfloat16); check the results."
    ),
    topic=m.Topic.TIME,
    seen_in=((m.Witness.CUDA, m.Witness.TRACE, m.Witness.TENSOR_CORES, m.Witness.WHAT_LIMITS),),
    can_cost=(m.CostKind.KERNEL,),
    judged_from_times=True,
    relieves=(m.LimitKind.COMPUTE,),
)
RULES = (FLOAT32_ON_CUDA_CORES, MATH_ATTENTION, NO_AUTOCAST)


class SlowProducts(Event):
    """Device time of one run's matmuls, or of its attention's forward pass, that could run on
    faster units."""

    rule: m.Rule
    device_us: float  # per step, or in the window
    launches: int  # in all of ``extent``
    extent: Extent
    largest: str  # the kernel that took most of it
    idle_share: float  # of the step: the GPU's
    # of attention: more of its work runs in the backward pass, which is not told apart
    backward: bool


@on_gpu
def collect(run: RunEvidence) -> Iterator[SlowProducts]:
    """Of the runs whose step is bound by a GPU that has tensor cores for TF32."""
    traced = run.once(traced_steps)
    if (
        isinstance(traced, m.Skipped)
        or not traced.is_mostly_busy
        or run.compute_capability < FIRST_WITH_TF32
    ):
        return
    columns = traced.columns
    math = traced.launched_under(columns.named(_MATH_ATTENTION))
    cudnn = traced.launched_under(columns.named(*_OF_CUDNN))
    simt = traced.matching(_ON_CUDA_CORES) & ~traced.matching(_COMPLEX) & ~math & ~cudnn
    tf32 = traced.matching(_ON_TENSOR_CORES_AS_TF32)
    # allowed for matmuls: cuBLAS chose the other kernels
    allowed, in_half = (tf32 & ~cudnn).any(), traced.matching(IN_HALF).any()
    kinds = (
        (FLOAT32_ON_CUDA_CORES, simt & ~allowed),
        (MATH_ATTENTION, math),
        (NO_AUTOCAST, tf32 & ~in_half),
    )
    for rule, which in kinds:
        events = traced.work.events[which]
        if not len(events):
            continue
        totals = np.bincount(columns.name[events], columns.duration_ns[events])
        yield SlowProducts(
            run=run.key,
            rule=rule,
            device_us=traced.device_us(which),
            launches=len(events),
            extent=traced.extent,
            largest=columns.names[int(np.argmax(totals))],
            idle_share=traced.without_work_us / traced.extent.step_us,
            backward=rule is MATH_ATTENTION and bool(columns.named("autograd::engine::").any()),
        )


_TEXTS = {
    FLOAT32_ON_CUDA_CORES: "float32 matmuls run without tensor cores",
    MATH_ATTENTION: "scaled_dot_product_attention runs in the math backend",
    NO_AUTOCAST: "tensor cores compute in TF32, not in bfloat16 or float16",
}
_FIXES = {
    FLOAT32_ON_CUDA_CORES: 'torch.set_float32_matmul_precision("high")',
    NO_AUTOCAST: 'with torch.autocast("cuda", dtype=torch.bfloat16): ...',
}


@of_each
def diagnose(event: SlowProducts) -> Iterator[m.Finding]:
    if event.device_us < WORTH_SHARE * event.extent.step_us:
        return
    share = event.extent.share(event.device_us)
    kernels = f"{plural(event.launches, 'kernel')} in {event.extent.words}, {share}"
    yield finding(
        event.rule,
        event,
        f"{_TEXTS[event.rule]}: {kernels}",
        detail=f"the largest: {event.largest}",
        cost=event.extent.cost(event.device_us, "GPU time of these kernels", (m.PassName.TRACE,)),
        saves=_saving(event),
        fix=_FIXES.get(event.rule, ""),
    )


def _saving(event: SlowProducts) -> m.Saving | m.Skipped:
    if event.backward:
        return m.Skipped("the backward pass of attention cannot be told apart from the rest")
    if event.rule is NO_AUTOCAST and event.idle_share >= OFTEN_IDLE:
        idle = f"the GPU is idle {100 * event.idle_share:.0f} % of the step"
        return m.Skipped(f"autocast launches more kernels, and {idle}")
    return event.extent.saving(event.device_us, "all of these kernels' GPU time")
