"""Whether the step of a script on a CPU mostly waits for the next batch of its DataLoader."""

from collections.abc import Iterator
from statistics import fmean, median

from kgprof import model as m
from kgprof.collectors.event import Event, finding, of_each
from kgprof.collectors.time.input_pipeline import UNEVEN, clocked_share
from kgprof.measures.traced_steps import Extent
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.wording import figure, plural

WORTH_SHARE = 0.2  # of the step

LOADER_ON_CPU = m.Rule(
    id="KGP614",
    name="step-waits-for-data",
    level=m.Level.WARNING,
    summary="A step on a CPU spends much of its time in next() of its DataLoader.",
    why=(
        "TIMING has a clock around next() of the DataLoaders that the main thread calls. Without "
        "worker processes the batch is made there, item by item; with them the step waits until "
        "one has made it. Compiling the model does not shorten this time. It is told from "
        f"{100 * WORTH_SHARE:.0f} % of the median step, or of the time of all steps, on."
    ),
    example="A DataLoader over a dataset whose __getitem__ parses a line of text in Python.",
    remedy=(
        "Make the batch at once in place of item by item (index the tensors with a batch of "
        "indices), prepare the data once and keep it, or load in worker processes (num_workers) "
        "where there are cores that the step does not use."
    ),
    topic=m.Topic.TIME,
    seen_in=((m.Witness.CPU, m.Witness.TIMING, m.Witness.LOADER_CLOCK),),
    can_cost=(m.CostKind.HOST,),
    judged_from_times=True,
    relieves=(m.LimitKind.INPUT,),
)
RULES = (LOADER_ON_CPU,)


class LoaderOnCpu(Event):
    """What the steps of one run spend in ``next()`` of their DataLoaders."""

    loader_us: float  # of a median step; of a mean one where the median one waits for less
    extent: Extent
    workers: int


def collect(evidence: Evidence) -> tuple[LoaderOnCpu, ...]:
    """Of the scripts on a CPU."""
    if evidence.device == "cuda":
        return ()
    return tuple(event for run in evidence.runs for event in _of_run(run))


def _of_run(run: RunEvidence) -> Iterator[LoaderOnCpu]:
    timing = run.record.timing
    if not isinstance(timing, m.TimingPass) or not any(timing.loader_us):
        return
    step_us, loader_us, whole = median(timing.every_us), median(timing.loader_us), ""
    if clocked_share(timing) > UNEVEN * (loader_us / step_us):
        step_us, loader_us = fmean(timing.every_us), fmean(timing.loader_us)
        whole = "time of all steps"
    extent = Extent(
        steps=len(timing.every_us),
        per="step",
        step_us=step_us,
        whole=whole,
        measured_in=(m.PassName.TIMING,),
    )
    yield LoaderOnCpu(
        run=run.key, loader_us=loader_us, extent=extent, workers=timing.loader_workers
    )


@of_each
def diagnose(event: LoaderOnCpu) -> Iterator[m.Finding]:
    if event.loader_us < WORTH_SHARE * event.extent.step_us:
        return
    extent = event.extent
    loader, step = figure(event.loader_us / 1e3), figure(extent.step_us / 1e3)
    its = "without worker processes"
    advice = "or try num_workers where there are cores that the step does not use"
    if event.workers:
        its = f"with {plural(event.workers, 'worker process', 'worker processes')}"
        advice = "or try more of them where there are cores that the step does not use"
    each = "medians"
    if extent.whole:
        each = "means"
    yield finding(
        LOADER_ON_CPU,
        event,
        f"next() of the DataLoader, {its}, takes {extent.share(event.loader_us)}: {loader} "
        f"of {step} ms ({each} of {extent.steps} steps)",
        no_fix=(
            "make the batch at once in place of item by item, prepare the data once and keep it, "
            f"{advice}; none of these was tried"
        ),
        cost=extent.cost(event.loader_us, "time in next() of the DataLoader"),
        saves=extent.saving(event.loader_us, "the time in next() of the DataLoader"),
    )
