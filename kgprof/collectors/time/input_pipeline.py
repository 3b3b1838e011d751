"""Whether the GPU waits for its input: for the DataLoader, and for copies out of memory that is not
pinned."""

from collections.abc import Iterator
from statistics import fmean, median

import msgspec
import numpy as np

from kgprof import model as m
from kgprof.collectors.event import Event, finding, of_each, on_gpu
from kgprof.measures.traced_steps import WORTH_SHARE, Extent, TracedSteps, traced_steps
from kgprof.reading import launches
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import Columns
from kgprof.reading.timeline import NOBODY
from kgprof.wording import clause, plural

_LOADER = "enumerate(DataLoader)#"
_WITHOUT_WORKERS = "_SingleProcessDataLoaderIter"
_DRAWS = "aten::random_"  # the seed of an iterator, where it is made
_OF_A_PROGRAM = ("aten::randint", "aten::randint_like")  # which call it, as a compiled dropout does
ONCE_AN_EPOCH = (
    "most of the wait lies where an epoch begins, whose first batch cannot be loaded ahead: "
    "persistent_workers=True keeps the workers; of an epoch of one batch, keep the batch, if its "
    "items stay the same"
)
ON_THE_GPU = (
    "next() itself works on the GPU, which a forked worker cannot: index a whole batch at once, if "
    "its items lie there"
)
WITH_WORKERS = ("num_workers=4", "persistent_workers=True", "pin_memory=True")
STEADY = 2  # calls of next() that begin no epoch and end none: with fewer, none loads ahead
UNEVEN = 1.25  # times what the median step waits: the steps together are what is told then
_COPIES = ("aten::copy_", "aten::_to_copy")

SLOW_DATA_LOADER = m.Rule(
    id="KGP607",
    name="gpu-waits-for-data",
    level=m.Level.WARNING,
    summary="The GPU is idle while the step waits for the next batch of its DataLoader.",
    why=(
        "The step calls next() on the loader's iterator, and the GPU has nothing to do meanwhile. "
        "Only the time in which the GPU was idle counts: a loader that is slow while the GPU still "
        "works costs nothing. Workers that bring batches in bursts let few steps wait for long: "
        "the share of all steps is told where the traced ones are unlike the others, or the "
        "median step waits less."
    ),
    example="A DataLoader with num_workers=0 whose dataset decodes images.",
    remedy=(
        "Load in worker processes (num_workers), keep them (persistent_workers=True), and "
        "prefetch; move decoding and augmentation to the GPU, or prepare the data once and keep it."
    ),
    topic=m.Topic.TIME,
    seen_in=((m.Witness.CUDA, m.Witness.TRACE, m.Witness.OPERATORS),),
    can_cost=(m.CostKind.HOST,),
    judged_from_times=True,
    relieves=(m.LimitKind.INPUT,),
)
PAGEABLE_COPY = m.Rule(
    id="KGP608",
    name="copy-from-pageable-memory",
    level=m.Level.WARNING,
    summary=(
        "Tensors are copied to the GPU from memory that is not pinned, so the CPU "
        "waits for each copy."
    ),
    why=(
        "The driver reads pinned memory directly. Pageable memory goes through a staging buffer at "
        "about half the rate, and .to(device) returns only when the copy is done, even with "
        "non_blocking=True."
    ),
    example=(
        "for x, y in loader: x = x.to('cuda'), with a DataLoader that does not pin its batches."
    ),
    remedy=(
        "DataLoader(..., pin_memory=True), or tensor.pin_memory() once, and then "
        ".to(device, non_blocking=True). A tensor that the step makes: device='cuda' where it does."
    ),
    topic=m.Topic.TIME,
    seen_in=((m.Witness.CUDA, m.Witness.TRACE, m.Witness.OPERATORS),),
    can_cost=(m.CostKind.COPIES, m.CostKind.HOST),
    judged_from_times=True,
    relieves=(m.LimitKind.COPIES,),
)
RULES = (SLOW_DATA_LOADER, PAGEABLE_COPY)


class InputWait(Event):
    """What one run's GPU lost to its input."""

    rule: m.Rule
    idle_us: float  # per step, or in the window; the GPU's, inside the loader or the copying call
    extent: Extent
    copy_us: float = 0.0  # as ``idle_us``; device time of the copies
    # in all of ``extent``: copies, or calls of next(), of which the last of an epoch gives no batch
    count: int = 0
    fix: str = ""  # of a loader
    no_fix: str = ""
    clocked_us: float = 0.0  # what next() takes of a mean step, where all are told together

    @property
    def lost_us(self) -> float:
        return self.idle_us + self.copy_us


@on_gpu
def collect(run: RunEvidence) -> Iterator[InputWait]:
    """Of the runs on a GPU whose TRACE can be read."""
    traced = run.once(traced_steps)
    if not isinstance(traced, TracedSteps):
        return
    columns = traced.columns
    loading = _loading(columns)
    without = columns.named(f"{_LOADER}{_WITHOUT_WORKERS}")[loading].any()
    waited_us, timing = run.once(loader_us), run.record.timing
    made_there = _works_on_the_gpu(traced, loading)
    if isinstance(timing, m.TimingPass) and _is_told_of_all(traced.extent, timing):
        number, us = len(timing.every_us), clocked_share(timing) * fmean(timing.every_us)
        extent = msgspec.structs.replace(
            traced.extent,
            steps=number,
            step_us=fmean(timing.every_us),
            whole=f"time of all {plural(number, 'step')}",
            unlike="",
            measured_in=(m.PassName.TIMING, m.PassName.TRACE),
        )
        fix = no_fix = ""
        if made_there:
            no_fix = ON_THE_GPU
        elif without and not timing.loader_workers:
            fix = _options(run, *WITH_WORKERS)
        yield InputWait(
            run=run.key,
            rule=SLOW_DATA_LOADER,
            idle_us=max(0.0, us - max(traced.work_us)),
            extent=extent,
            fix=fix,
            no_fix=no_fix,
            clocked_us=us,
        )
    elif waited_us is not None:
        fix, no_fix = "", ON_THE_GPU
        if not made_there:
            fix, no_fix = _loader_fix(run, traced, loading, workers=not without)
        yield InputWait(
            run=run.key,
            rule=SLOW_DATA_LOADER,
            idle_us=waited_us,
            count=len(loading),
            extent=traced.extent,
            fix=fix,
            no_fix=no_fix,
        )
    pageable = columns.named(m.PAGEABLE)[traced.work.events]
    if pageable.any():
        calls = traced.work.calls[pageable & (traced.work.calls != NOBODY)]
        operators = launches.innermost(
            columns, columns.named(*_COPIES) & columns.of_category("cpu_op"), calls
        )
        yield InputWait(
            run=run.key,
            rule=PAGEABLE_COPY,
            idle_us=traced.idle_us(np.unique(operators[operators != NOBODY])),
            copy_us=traced.device_us(pageable),
            count=int(pageable.sum()),
            extent=traced.extent,
        )


def _loader_fix(
    run: RunEvidence, traced: TracedSteps, loading: launches.Indices, *, workers: bool
) -> tuple[str, str]:
    """Code for where the loader waits, in the first call of an iterator or between; and why there
    is none."""
    columns = traced.columns
    calls = loading[np.argsort(columns.start_ns[loading])]
    draws = np.flatnonzero(columns.named(_DRAWS))
    own = launches.innermost(columns, columns.named(*_OF_A_PROGRAM), draws) == NOBODY
    drawn_ns = np.sort(columns.start_ns[draws[own]])
    drawn_before = np.searchsorted(drawn_ns, columns.start_ns[calls[1:]])
    made = drawn_before > np.searchsorted(drawn_ns, columns.end_ns[calls[:-1]])
    steady = len(calls) - 2 * int(made.sum())  # the last call of an epoch gives no batch
    if 2 * columns.lasted_ns(calls[1:][made]) > columns.lasted_ns(calls):
        if workers and steady >= STEADY and (fix := _options(run, "persistent_workers=True")):
            return fix, ""
        return "", ONCE_AN_EPOCH
    if workers or steady < STEADY:
        return "", ""  # what takes the time of a loader with workers is not known
    return _options(run, *WITH_WORKERS), ""


def _works_on_the_gpu(traced: TracedSteps, loading: launches.Indices) -> bool:
    """Whether a call within next() starts work there, as collating does what lies there."""
    is_loading = np.zeros(len(traced.columns.start_ns), dtype=bool)
    is_loading[loading] = True
    within = launches.innermost(traced.columns, is_loading, traced.work.calls)
    return bool(np.any(within != NOBODY))


def _options(run: RunEvidence, *options: str) -> str:
    """Without what the program switches on already; empty where that is all."""
    new = [
        each
        for each in options
        if not each.endswith("=True") or not run.source.gives(each.removesuffix("=True"))
    ]
    return clause("DataLoader(..., ", ", ".join(new), ")")


@m.otherwise(None)
def loader_us(run: RunEvidence) -> float | None:
    """What a step waits for its DataLoader while the GPU has nothing to do; None without one.

    A clock of TIMING's says how long ``next()`` takes, TRACE how much of that the GPU is idle.
    Without the clock it is TRACE's idle time, scaled.
    """
    traced = m.known(run.once(traced_steps))
    loading = _loading(traced.columns)
    if not len(loading):
        return None
    extent, timing = traced.extent, run.record.timing
    clocked_us = timing.loader_us if isinstance(timing, m.TimingPass) else ()
    if extent.unlike or not extent.steps or not clocked_us:
        return traced.idle_us(loading)
    taken_us = median(clocked_us) * traced.idle_share(loading)
    return min(taken_us, traced.without_work_us)


def clocked_share(timing: m.TimingPass) -> float:
    """Of the time of all timed steps, what passed in ``next()``; nothing where one of them has most
    of that, as the start of worker processes has."""
    taken_us = sum(timing.loader_us)
    if taken_us <= 0 or max(timing.loader_us) > taken_us / 2:
        return 0.0
    return taken_us / sum(timing.every_us)


def _is_told_of_all(extent: Extent, timing: m.TimingPass) -> bool:
    """Whether neither the traced steps nor the median one stand for what all steps wait."""
    if not timing.loader_us or not extent.steps:
        return False
    usual = median(timing.loader_us) / median(timing.every_us)
    return bool(extent.unlike) or clocked_share(timing) > UNEVEN * usual


def _loading(columns: Columns) -> launches.Indices:
    return np.flatnonzero(columns.named(_LOADER) & columns.of_category("user_annotation", "cpu_op"))


@of_each
def diagnose(event: InputWait) -> Iterator[m.Finding]:
    if event.lost_us < WORTH_SHARE * event.extent.step_us:
        return
    extent = event.extent
    steps = extent.words
    share = extent.share(event.lost_us)
    if event.rule is SLOW_DATA_LOADER:
        message = (
            f"the GPU waits for the DataLoader: {share}, "
            f"next() called {plural(event.count, 'time')} in {steps}"
        )
        what = "the GPU was idle while the next batch was loaded"
        how = "GPU idle time while the next batch was loaded"
        if event.clocked_us:
            message = (
                f"the GPU waits for the DataLoader: next() takes {extent.share(event.clocked_us)}"
            )
            how = "the time in next() of the DataLoader, mean of all steps"
            what = "time in next() of the DataLoader beyond the most GPU work of a traced step"
    else:
        message = (
            f"copies to the GPU from pageable memory: {share}, "
            f"{plural(event.count, 'copy', 'copies')} in {steps}"
        )
        what = "copy time, and GPU idle time meanwhile"
        how = "the copies' time and GPU idle time inside the calls that copy"
    yield finding(
        event.rule,
        event,
        message,
        cost=extent.cost(event.lost_us, what),
        saves=extent.saving(event.clocked_us or event.lost_us, how),
        fix=event.fix,
        no_fix=event.no_fix,
    )
