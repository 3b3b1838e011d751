"""Whether the runs computed the same thing, and all of it: a fast wrong answer is not fast."""

from collections.abc import Iterator

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors.event import Event, finding, of_each
from kgprof.reading.evidence import Evidence
from kgprof.wording import clause, plural

RESULT_DIFFERS = m.Rule(
    id="KGP501",
    name="result-differs-from-eager",
    level=m.Level.ERROR,
    summary="A run's results differ from the baseline's or from the reference's.",
    why=(
        "A strategy or compile mode may change how the answer is computed, never the answer. As "
        "long as results differ, the times belong to a different computation and no speed-up can "
        "be claimed. Differences caused by logits closer than the stated threshold count as "
        "near-ties and are not reported here."
    ),
    example=(
        "An in-place update of a buffer that the compiled graph still reads; a batch whose padding "
        "is not masked; children of the previous query left in a reused slot."
    ),
    remedy=(
        "Run the strategy in eager mode: if it still differs, the strategy is wrong. If only the "
        "compiled mode differs, compile with backend='aot_eager' to tell Inductor from the "
        "tracing, and compare in float64."
    ),
    topic=m.Topic.RESULTS,
    seen_in=((m.Witness.RESULTS,),),
    can_cost=(),
)
WORK_UNFINISHED = m.Rule(
    id="KGP502",
    name="work-unfinished",
    level=m.Level.ERROR,
    summary="An evaluation ended before all of its work was finished.",
    why=(
        "A run that skips work looks faster than it is, and its metrics cover different work from "
        "the baseline's. Its time per unit of work is therefore not shown."
    ),
    example=(
        "--max-steps 100 on an evaluation that needs 160 steps: the last batches "
        "never get a result."
    ),
    remedy="Raise or drop the step limit, or evaluate less, so that all of the work is finished.",
    topic=m.Topic.RESULTS,
    seen_in=((m.Witness.EVALUATION,),),
    can_cost=(),
)
RULES = (RESULT_DIFFERS, WORK_UNFINISHED)


class ResultEvent(Event):
    """What one run left: how it compares and how much of it there is."""

    baseline: m.RunKey | None
    agreement: m.RunAgreement | None = None  # None: the workload or this run has no comparison
    unfinished: int = 0
    units: int = 0
    unit: m.WorkUnit


def collect(evidence: Evidence) -> tuple[ResultEvent, ...]:
    agreement = evidence.recording.agreement
    verdicts: dict[m.RunKey, m.RunAgreement | m.Skipped] = {}
    baseline = None
    if isinstance(agreement, m.Agreement):
        verdicts = dict(agreement.runs)
        baseline = agreement.baseline
    events = []
    for run in evidence.recording.runs:
        event = ResultEvent(run=run.key, baseline=baseline, unit=run.unit)
        compared = verdicts.get(run.key)
        if isinstance(compared, m.RunAgreement):
            event = replace(event, agreement=compared)
        if isinstance(run.evaluation, m.Evaluation):
            unfinished, units = run.evaluation.unfinished, run.evaluation.units
            event = replace(event, unfinished=unfinished, units=units)
        events.append(event)
    return tuple(events)


@of_each
def diagnose(event: ResultEvent) -> Iterator[m.Finding]:
    if event.agreement is not None and event.agreement.verdict == "different":
        yield _differs(event, event.agreement)
    if event.unfinished:
        units = plural(event.units, event.unit.name, event.unit.plural)
        unfinished = finding(
            WORK_UNFINISHED,
            event,
            f"{event.unfinished:,} of {units} are unfinished",
            count=event.unfinished,
        )
        yield unfinished


def _differs(event: ResultEvent, agreement: m.RunAgreement) -> m.Finding:
    against = []
    if agreement.compared:
        name = "the baseline"
        if event.baseline is not None:
            name = event.baseline.slug
        against.append(
            f"{agreement.differing:,} of {agreement.compared:,} results differ from {name}"
        )
    if agreement.reference_compared:
        figures = f"{agreement.reference_differing:,} of {agreement.reference_compared:,}"
        against.append(f"{figures} differ from the reference")
    detail = " and ".join(against) or "its results differ"
    return finding(
        RESULT_DIFFERS,
        event,
        detail + clause(" (", agreement.note, ")"),
        count=max(agreement.differing, agreement.reference_differing, 1),
    )
