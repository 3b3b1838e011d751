"""What a comparison comes to: the exit code and the sentence. The first of ORDER that applies leads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.compare.causes import relative_time
from kgprof.compare.claims import SEEN_AS
from kgprof.compare.intervals import BETTER, INCONCLUSIVE, WORSE
from kgprof.compare.metrics import CANDIDATE, EVALUATION, NOT_OBSERVED, ONE_ROUND_NOTES, STEP, plain
from kgprof.errors import (
    EXIT_GATE_FAILED,
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_NOTHING_MEASURED,
    EXIT_OK,
    EXIT_WORKLOAD,
)
from kgprof.wording import plural, relative, short

ORDER = (EXIT_INTERRUPTED, EXIT_WORKLOAD, EXIT_GATE_FAILED, EXIT_NOTHING_MEASURED, EXIT_INCONCLUSIVE)
_STATUS = {EXIT_OK: "ok", EXIT_GATE_FAILED: "failed", EXIT_WORKLOAD: "failed"}
_LEADS = {  # before the first reason, where the status alone would not say what it means
    EXIT_WORKLOAD: "no verdict, the workload failed: ",
    EXIT_NOTHING_MEASURED: "no verdict, nothing to compare: ",
    EXIT_INTERRUPTED: "no verdict, interrupted: ",
}
TIMES = (STEP, EVALUATION, CANDIDATE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    exit_code: int
    text: str
    same_for_all: str = ""  # what it says of every run alike, where it does
    worse: m.RunKey | None = None  # the run of which a metric is worse


def reasons(base: m.Profile, head: m.Profile, compared: m.Comparison) -> tuple[Reason, ...]:
    """Everything that keeps the comparison from passing, worst first."""
    found = (
        *_deaths(head, EXIT_WORKLOAD),
        *_metrics(compared),
        *_findings(compared, head.environment.source_root),
        *_results(compared),
        *_nothing(compared),
        *_deaths(base, EXIT_INCONCLUSIVE, side="base: "),
        *_gone(compared),
        *_inconclusive(compared),
    )
    return tuple(sorted(found, key=lambda reason: ORDER.index(reason.exit_code)))


def _deaths(profile: m.Profile, code: int, side: str = "") -> Iterator[Reason]:
    for run in profile.runs:
        for ended in (run.exit, run.probe_exit):
            if ended is None or ended.outcome == "ok":
                continue
            interrupted = ended.outcome == "interrupted" and code == EXIT_WORKLOAD
            yield Reason(
                exit_code=EXIT_INTERRUPTED if interrupted else code, text=f"{side}{run.key.slug} {ended.words}"
            )


def _findings(compared: m.Comparison, root: str) -> Iterator[Reason]:
    for one in compared.findings:
        place = one.finding.location
        where = f" at {relative(place.file, root)}:{place.line}" if place else ""
        run = f"{one.finding.run.slug}: " if one.finding.run else ""
        if one.fails:
            text = f"{run}new {one.finding.rule}{where}: {one.finding.message}"
            yield Reason(exit_code=EXIT_GATE_FAILED, text=text)


def _metrics(compared: m.Comparison) -> Iterator[Reason]:
    for run in sorted(compared.runs, key=lambda run: -relative_time(run)):
        for metric in run.metrics:
            if metric.decides and metric.verdict == WORSE and compared.fail_on != "never":
                yield Reason(exit_code=EXIT_GATE_FAILED, text=f"{run.run.slug}: {said(metric)}", worse=run.run)


def _results(compared: m.Comparison) -> Iterator[Reason]:
    """A program that gives something else is another program: that no time can make up for."""
    for run in compared.runs:
        for cause in run.causes:
            if cause.cause == "results" and compared.fail_on != "never" and not run.settings:
                yield Reason(exit_code=EXIT_GATE_FAILED, text=f"{run.run.slug}: {cause.text}")


def _nothing(compared: m.Comparison) -> Iterator[Reason]:
    if not any(run.status == "both" for run in compared.runs):
        yield Reason(exit_code=EXIT_NOTHING_MEASURED, text="the two sides have no run in common")


def _gone(compared: m.Comparison) -> Iterator[Reason]:
    for run in compared.runs:
        if run.status == "gone":
            yield Reason(exit_code=EXIT_INCONCLUSIVE, text=f"{run.run.slug} was not run in head")


def _inconclusive(compared: m.Comparison) -> Iterator[Reason]:
    for run in compared.runs:
        undecided = [metric for metric in run.metrics if metric.decides and metric.verdict == INCONCLUSIVE]
        for metric in undecided[:1]:  # the step and the evaluation of one run are of one mind mostly
            yield Reason(
                exit_code=EXIT_INCONCLUSIVE,
                text=f"{run.run.slug}: {said(metric)}",
                same_for_all=metric.note if metric.note in ONE_ROUND_NOTES else "",
            )
        unseen = [metric for metric in run.metrics if metric.decides and metric.verdict == NOT_OBSERVED]
        unseen += [metric for metric in run.metrics if metric.name in TIMES and _on_one_side(metric)][:1]
        timed = any(metric.decides and metric.name in TIMES for metric in run.metrics)
        if not timed and (
            other := next((metric for metric in run.metrics if metric.note.startswith("not the same work")), None)
        ):
            unseen.append(other)
        for metric in unseen:
            yield Reason(exit_code=EXIT_INCONCLUSIVE, text=f"{run.run.slug}: {metric.name} {_unseen(metric)}")


def _on_one_side(metric: m.ComparedMetric) -> bool:
    return isinstance(metric.base, m.Skipped) != isinstance(metric.head, m.Skipped)


def _unseen(metric: m.ComparedMetric) -> str:
    return f"was not compared: {metric.note}"


# ---------------------------------------------------------------- in words


def verdict(found: Sequence[Reason], compared: m.Comparison, root: str) -> m.Verdict:
    """``root``: of head's sources, from which places are named."""
    if not found:
        return m.Verdict(status="ok", text=_passed(compared), reasons=_also(compared))
    code = found[0].exit_code
    if all(reason.exit_code == EXIT_INCONCLUSIVE and reason.same_for_all for reason in found):
        return m.Verdict(
            status="inconclusive", text=f"no time decides: {found[0].same_for_all}", reasons=_also(compared)
        )
    return m.Verdict(
        status=_STATUS.get(code, "inconclusive"),
        text=f"{_LEADS.get(code, '')}{found[0].text}{_cause(compared, found[0], root)}",
        reasons=(*(dict.fromkeys(reason.text for reason in found[1:])), *_also(compared)),
    )


def exit_code(found: Sequence[Reason]) -> int:
    return found[0].exit_code if found else EXIT_OK


def _cause(compared: m.Comparison, reason: Reason, root: str) -> str:
    """Of the run that the reason is about; empty where none of its times is worse."""
    run = next((run for run in compared.runs if run.run == reason.worse), None)
    if run is None or isinstance(run.explained_us, m.Skipped) or not run.causes:
        return ""
    first = run.causes[0]
    where = f"{relative(first.location.file, root)}:{first.location.line}: " if first.location else ""
    return f"; likely cause: {where}{one_sentence(first, run)}"


def one_sentence(cause: m.Cause, run: m.RunComparison) -> str:
    """A cause with what it explains: "4.1 of 4.5 ms"; how the traces show it stands with the causes."""
    text = cause.text.partition(SEEN_AS)[0]
    if isinstance(cause.explains_us, m.Skipped) or isinstance(run.delta_us, m.Skipped):
        return text
    return f"{text} (explains {milliseconds(cause.explains_us)} of {milliseconds(run.delta_us)} ms/{run.per})"


def milliseconds(us: float) -> str:
    return short(us / 1000)


def said(metric: m.ComparedMetric) -> str:
    """One metric with its change, interval and budget."""
    if isinstance(metric.ratio, m.Skipped):
        return f"{metric.name} {_from_to(metric)}"
    change = f"{metric.name} {_percent(metric.ratio)}"
    if isinstance(metric.low, m.Skipped) or isinstance(metric.high, m.Skipped):
        note = f": {metric.note}" if metric.note else ""
        return f"{change} ({_from_to(metric)}){note}"
    rounds = f"{metric.base_rounds} + {metric.head_rounds} rounds"
    budget = f", budget +{metric.budget_percent:g} %" if metric.budget_percent is not None else ""
    within = f"95 % {_percent(metric.low)} to {_percent(metric.high)}, {rounds}{budget}"
    note = f"; {metric.note}" if metric.note and metric.verdict != WORSE else ""  # which alters nothing about it
    return f"{change} ({within}){note}"


def _from_to(metric: m.ComparedMetric) -> str:
    """Of the unit that every renderer gives it in."""
    scale, unit = (1000, "ms") if metric.unit == "us" else (1, metric.unit)
    base, head = (plain(side if isinstance(side, m.Skipped) else side / scale) for side in (metric.base, metric.head))
    return f"{base} -> {head} {unit}"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _passed(compared: m.Comparison) -> str:
    times = [metric for run in compared.runs for metric in run.metrics if metric.decides and metric.name in TIMES]
    faster = [metric for metric in times if metric.verdict == BETTER]
    common = sum(run.status == "both" for run in compared.runs)
    if faster:
        best = min(faster, key=lambda metric: metric.ratio if not isinstance(metric.ratio, m.Skipped) else 1.0)
        return f"better, {best.run.slug}: {said(best)}"
    if not times:
        return f"no new finding that fails, over {plural(common, 'run')}; no time was compared"
    slower = [metric for metric in times if metric.verdict == WORSE]  # with --fail-on never
    if slower:
        return f"worse, and --fail-on never: {slower[0].run.slug}: {said(slower[0])}"
    return f"the same: every time within its budget over {plural(common, 'run')}, and no new finding that fails"


def _also(compared: m.Comparison) -> tuple[str, ...]:
    """What stands in spite of the verdict."""
    new = sum(one.status == "new" and not one.fails for one in compared.findings)
    fixed = sum(one.status == "fixed" for one in compared.findings)
    grew = sum(one.grew for one in compared.findings)
    only = [f"{run.run.slug} is new: base did not run it" for run in compared.runs if run.status == "new"]
    said_of = ((new, "further new"), (fixed, "fixed"), (grew, "more frequent"))
    return (*(f"{plural(n, f'{word} finding')}" for n, word in said_of if n), *only)
