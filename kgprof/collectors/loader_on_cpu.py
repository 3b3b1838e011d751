"""Whether the step of a script on a CPU mostly waits for the next batch of its DataLoader."""

from collections.abc import Iterator
from statistics import fmean, median

from kgprof import model as m
from kgprof.collectors.event import Event, finding
from kgprof.collectors.input_pipeline import UNEVEN, clocked_share
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
    symptom_of=(),
    relieves=(m.LimitKind.INPUT,),
)
RULES = (LOADER_ON_CPU,)


class LoaderOnCpu(Event):
    """What the steps of one run spend in ``next()`` of their DataLoaders."""

    loader_us: float  # of a median step, or of a mean one
    share: float  # of ``step_us``
    step_us: float  # median, or mean
    of_all: bool  # the steps together: the median one waits for less
    samples: int
    workers: int


def collect(evidence: Evidence) -> tuple[LoaderOnCpu, ...]:
    """Of the scripts on a CPU."""
    if evidence.device == "cuda":
        return ()
    return tuple(event for run in evidence.runs for event in _of_run(run))


def _of_run(run: RunEvidence) -> Iterator[LoaderOnCpu]:
    timing = run.record.timing
    if isinstance(timing, m.Skipped) or not any(timing.loader_us):
        return
    step_us = timing.every_us
    usual = median(timing.loader_us) / median(step_us)
    share = clocked_share(timing)
    of_all = share > UNEVEN * usual
    middle = fmean if of_all else median
    yield LoaderOnCpu(
        run=run.key,
        loader_us=middle(timing.loader_us),
        share=share if of_all else usual,
        step_us=middle(step_us),
        of_all=of_all,
        samples=len(step_us),
        workers=timing.loader_workers,
    )


def diagnose(events: tuple[LoaderOnCpu, ...]) -> tuple[m.Finding, ...]:
    return tuple(_finding(event) for event in events if event.share >= WORTH_SHARE)


def _finding(event: LoaderOnCpu) -> m.Finding:
    loader, step = figure(event.loader_us / 1e3), figure(event.step_us / 1e3)
    its = "without worker processes"
    advice = "or try num_workers where there are cores that the step does not use"
    if event.workers:
        its = f"with {plural(event.workers, 'worker process', 'worker processes')}"
        advice = "or try more of them where there are cores that the step does not use"
    of, each = "the step", "medians"
    if event.of_all:
        of, each = "the time of all steps", "means"
    measured_in = (m.PassName.TIMING,)
    return finding(
        LOADER_ON_CPU,
        event,
        f"next() of the DataLoader, {its}, takes {100 * event.share:.0f} % of {of}: {loader} "
        f"of {step} ms ({each} of {event.samples} steps)",
        no_fix=(
            "make the batch at once in place of item by item, prepare the data once and keep it, "
            f"{advice}; none of these was tried"
        ),
        cost=m.FindingCost(
            value=event.loader_us,
            unit="us/step",
            what="time in next() of the DataLoader",
            measured_in=measured_in,
            samples=event.samples,
        ),
        saves=m.Saving(
            us_per_step=event.loader_us,
            how="the time in next() of the DataLoader",
            measured_in=measured_in,
        ),
    )
