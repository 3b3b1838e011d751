"""How the optimizer's step reaches the GPU: as one kernel for all parameters, or as many."""

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from kgprof import model as m
from kgprof.collectors.event import Event, finding, of_each, on_gpu
from kgprof.measures.traced_steps import WORTH_SHARE, Extent, traced_steps
from kgprof.reading.evidence import RunEvidence
from kgprof.wording import plural

_STEP = re.compile(r"Optimizer\.step#(\w+)\.step")
_FUSED = re.compile(r"FusedOptimizer|^triton_|fused_(?:adam|sgd|adagrad)", re.IGNORECASE)
_FOREACH = "multi_tensor_apply_kernel"
# Times: so much longer than in truth the optimizer's CPU time was under kgprof's listeners, which
# make many small operators and reads of numbers dearer (2.0 to 2.2 times on an H200), and some more
DEARER = 2.5
WITH_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")  # of torch.optim: those that take fused=True

UNFUSED_OPTIMIZER = m.Rule(
    id="KGP609",
    name="optimizer-not-fused",
    level=m.Level.WARNING,
    summary=(
        "The optimizer updates the parameters with many kernels, each of which reads "
        "and writes all of them."
    ),
    why=(
        "By default torch.optim applies each operation of the update to all parameters at once "
        "(foreach), or to one parameter after another on a CPU or with foreach=False. Each "
        "operation passes over the GPU's memory and takes at least one launch. fused=True does the "
        "whole update in one pass."
    ),
    example="torch.optim.AdamW(model.parameters()) without fused=True.",
    remedy=(
        "fused=True for Adam, AdamW, SGD and Adagrad; for another optimizer foreach=True, or "
        "compile its step: torch.compile(optimizer.step)."
    ),
    topic=m.Topic.TIME,
    seen_in=((m.Witness.CUDA, m.Witness.TRACE, m.Witness.OPERATORS),),
    can_cost=(m.CostKind.LAUNCHES, m.CostKind.KERNEL, m.CostKind.HOST),
    judged_from_times=True,
    relieves=(m.LimitKind.LAUNCHES, m.LimitKind.MEMORY, m.LimitKind.SMALL_KERNELS),
)
RULES = (UNFUSED_OPTIMIZER,)


class OptimizerTime(Event):
    """What the optimizer's step took of one run's traced steps."""

    optimizer: str  # its class
    device_us: float  # per step, or in the window
    idle_us: float  # likewise; the GPU's, while the optimizer ran on the CPU
    launches: int  # in all of ``extent``
    fused: bool  # a kernel of a fused optimizer, or one pass of foreach over all parameters
    extent: Extent
    listened: bool = False  # kgprof's listeners were on in TRACE: ``idle_us`` is too long

    @property
    def sure_idle_us(self) -> float:
        """What of ``idle_us`` no listener made longer."""
        if self.listened:
            return self.idle_us / DEARER
        return self.idle_us

    @property
    def is_mostly_cpu(self) -> bool:
        return self.sure_idle_us > self.device_us


@on_gpu
def collect(run: RunEvidence) -> Iterator[OptimizerTime]:
    """Of the runs on a GPU in whose TRACE an optimizer of torch.optim steps. Where a backward pass
    lies in its step, that has a closure, as Lightning's have: what of it is the optimizer's own is
    not told apart."""
    traced = run.once(traced_steps)
    if isinstance(traced, m.Skipped):
        return
    columns = traced.columns
    spans = columns.named("Optimizer.step#") & columns.of_category("user_annotation", "cpu_op")
    under = traced.launched_under(spans)
    backward_ns = np.sort(columns.start_ns[columns.named("autograd::engine::")])
    inside = backward_ns.searchsorted(columns.end_ns[spans])
    if not under.any() or (inside > backward_ns.searchsorted(columns.start_ns[spans])).any():
        return
    kernels = {columns.names[row] for row in columns.name[traced.work.events[under]].tolist()}
    is_one_pass = len(kernels) == 1 and _FOREACH in kernels.pop()
    classes = Counter(
        found[1] for row in columns.name[spans] if (found := _STEP.match(columns.names[row]))
    )
    yield OptimizerTime(
        run=run.key,
        optimizer=max(classes, key=classes.__getitem__, default=""),
        device_us=traced.device_us(under),
        idle_us=traced.idle_us(np.flatnonzero(spans)),
        launches=int(under.sum()),
        fused=is_one_pass or bool((under & traced.matching(_FUSED)).any()),
        extent=traced.extent,
        listened=run.record.script is not None,
    )


@of_each
def diagnose(event: OptimizerTime) -> Iterator[m.Finding]:
    if event.fused or event.device_us + event.sure_idle_us < WORTH_SHARE * event.extent.step_us:
        return
    name, extent = event.optimizer or "the optimizer", event.extent
    known_us, what = event.device_us + event.idle_us, "GPU time of the optimizer, and GPU idle"
    what, how = f"{what} while it ran", "GPU time, and GPU idle time while it ran on the CPU"
    if event.listened:
        known_us, what, how = event.device_us, "GPU time of the optimizer", "GPU time"
    said = extent.share(known_us)
    saves: m.Saving | m.Skipped = extent.saving(known_us, f"all of the optimizer's {how}")
    if event.listened and event.is_mostly_cpu:
        said = "mostly CPU time: its share is not decided, kgprof's listeners make it longer"
        saves = m.Skipped("most of it is CPU time, which kgprof's listeners make longer")
    elif event.listened:
        said = f"{said} in GPU work"
    elif event.is_mostly_cpu and m.PassName.TIMING not in extent.measured_in:
        saves = m.Skipped("most of it is CPU time, which was only seen under torch.profiler")
    fix = ""
    if name in WITH_FUSED:
        fix = f"torch.optim.{name}(..., fused=True)"
    yield finding(
        UNFUSED_OPTIMIZER,
        event,
        f"{name}.step() is not fused: {plural(event.launches, 'kernel')} in {extent.words}, {said}",
        event.optimizer,
        cost=extent.cost(known_us, what),
        saves=saves,
        fix=fix,
    )
