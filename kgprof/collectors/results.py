"""Whether the runs computed the same thing, and all of it: a fast wrong answer is not fast."""

from __future__ import annotations

from kgprof.collectors.fingerprint import fingerprint
from kgprof.counted import counted
from kgprof.model import Agreement, Evaluation, Finding, Level, Model, Recording, Rule, RunAgreement, RunKey

RESULT_DIFFERS = Rule(
    id="KGP501",
    name="result-differs-from-eager",
    level=Level.ERROR,
    summary="A run's results differ from the baseline's or from the reference's.",
    why=(
        "A strategy or a compile mode may change how the answer is computed, never the answer. As long as it differs, "
        "its times belong to another computation and no speed-up can be claimed. Differences that come from logits "
        "closer than the stated threshold are counted as near-ties and are not reported here."
    ),
    example=(
        "An in-place update of a buffer that the compiled graph still reads; a batch whose padding is not masked; "
        "children of the previous query left in a reused slot."
    ),
    remedy=(
        "Run the strategy in eager mode: if it still differs, the strategy is wrong. If only the compiled mode "
        "differs, compile with backend='aot_eager' to tell Inductor from the tracing, and compare in float64."
    ),
)
WORK_UNFINISHED = Rule(
    id="KGP502",
    name="work-unfinished",
    level=Level.ERROR,
    summary="An evaluation ended while some of its candidates had no result.",
    why=(
        "A run that leaves work undone looks faster by what it left, and its ranking metrics are about other "
        "candidates than the baseline's. Milliseconds per candidate are therefore not shown for it."
    ),
    example="--max-steps 100 on an evaluation that needs 160 steps: the last batches are never proved or refuted.",
    remedy="Raise or drop the step limit, or evaluate fewer candidates, so that every one of them is finished.",
)
RULES = (RESULT_DIFFERS, WORK_UNFINISHED)


class ResultEvent(Model, frozen=True, kw_only=True):
    """What one run left: how it compares and how much of it there is."""

    run: RunKey
    baseline: RunKey | None
    agreement: RunAgreement | None  # None: the workload or this run has no comparison
    unfinished: int
    candidates: int


def collect(recording: Recording) -> tuple[ResultEvent, ...]:
    agreement = recording.agreement
    verdicts = dict(agreement.runs) if isinstance(agreement, Agreement) else {}
    baseline = agreement.baseline if isinstance(agreement, Agreement) else None
    events = []
    for run in recording.runs:
        compared = verdicts.get(run.key)
        evaluation = run.evaluation if isinstance(run.evaluation, Evaluation) else None
        events.append(
            ResultEvent(
                run=run.key,
                baseline=baseline,
                agreement=compared if isinstance(compared, RunAgreement) else None,
                unfinished=evaluation.unfinished if evaluation else 0,
                candidates=evaluation.candidates if evaluation else 0,
            )
        )
    return tuple(events)


def diagnose(events: tuple[ResultEvent, ...]) -> tuple[Finding, ...]:
    findings = []
    for event in events:
        if event.agreement is not None and event.agreement.verdict == "different":
            findings.append(_differs(event, event.agreement))
        if event.unfinished:
            findings.append(_unfinished(event))
    return tuple(findings)


def _differs(event: ResultEvent, agreement: RunAgreement) -> Finding:
    against = []
    if agreement.compared:
        name = event.baseline.slug if event.baseline else "the baseline"
        against.append(f"{agreement.differing:,} of {agreement.compared:,} results differ from {name}")
    if agreement.reference_compared:
        counted = f"{agreement.reference_differing:,} of {agreement.reference_compared:,}"
        against.append(f"{counted} differ from the reference")
    detail = " and ".join(against) or "its results differ"
    note = f" ({agreement.note})" if agreement.note else ""
    return Finding(
        rule=RESULT_DIFFERS.id,
        level=Level.ERROR,
        message=f"{event.run.slug}: {detail}{note}",
        run=event.run,
        count=max(agreement.differing, agreement.reference_differing, 1),
        fingerprint=fingerprint(RESULT_DIFFERS.id, event.run),
    )


def _unfinished(event: ResultEvent) -> Finding:
    return Finding(
        rule=WORK_UNFINISHED.id,
        level=Level.ERROR,
        message=f"{event.run.slug}: {event.unfinished:,} of {counted(event.candidates, 'candidate')} are unfinished",
        run=event.run,
        count=event.unfinished,
        fingerprint=fingerprint(WORK_UNFINISHED.id, event.run),
    )
