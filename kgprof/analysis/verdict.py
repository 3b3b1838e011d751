"""The report's first line, in words: what a reviewer should take away if they read nothing else.

Its colour says how far the sentence stands, and nothing else. Green: it stands. Amber: it stands with a reservation,
which the line before or below it names (results that were not compared, a part of the work undecided, a run in which
nothing was compiled, two sources that disagree, an accepted finding that has expired); or it is inconclusive. Red:
something failed. Other warnings are something to gain and are counted beside the sentence: none makes it doubtful.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from kgprof import model as m
from kgprof.analysis.ranking import TRACED_TO_NAME, Remark, fastest
from kgprof.collectors import rule_of
from kgprof.wording import figure, plural

OK, ATTENTION, FAILED, INCONCLUSIVE = m.VerdictStatus
WORST_LAST = (OK, ATTENTION, INCONCLUSIVE)  # of what a verdict is made of; a failure is a headline
DOUBTS = (m.Topic.COVERAGE, m.Topic.SOURCES, m.Topic.RESULTS)  # warnings about what the report rests on
SPOILED_FROM = 0.5  # of the work: so much of it undecided is said before anything else


def verdict(
    runs: Sequence[m.RunReport],
    findings: Sequence[m.Finding],
    *,
    baseline: m.RunKey | None,
    interrupted: bool,
    uncompared: str = "",
    balance: m.RankBalance | None = None,
    differences: Sequence[m.TraceDifference] = (),
    expired: Sequence[str] = (),
    actions: Sequence[m.Action] = (),
) -> m.Verdict:
    """The worst thing that happened leads; what stands in spite of it follows as reasons.

    ``uncompared``: why a workload that can compare its results did not. ``findings``: those that nobody accepts.
    ``actions``: of a script the first of them stands in the first line.
    """
    headlines = _headlines(runs, findings, interrupted=interrupted)
    rank, results, (work, lead) = fastest(runs, baseline), _results(runs, uncompared), _work(runs)
    remarks = [rank, *([results] if results else []), *work]
    if balance is not None and balance.straggler is not None:
        remarks.insert(0, Remark(text=balance.text, status=ATTENTION))
    remarks += _changed(differences)
    if actions and any(run.script is not None and run.script.step for run in runs):
        first = actions[0]
        place = f"{PurePosixPath(first.location.file).name}:{first.location.line}: " if first.location else ""
        remarks[0] = replace(remarks[0], text=f"{remarks[0].text}; first: {place}{first.text}")
    answer, *rest = remarks
    doubts = [each for each in findings if each.level is m.Level.WARNING and rule_of(each).topic in DOUBTS]
    trust = "; ".join((*answer.notes, *(remark.text for remark in rest), *_by_message(doubts)))
    if not headlines:
        statuses = [remark.status for remark in remarks]
        statuses += [ATTENTION] if expired or lead or doubts else []
        status = max(statuses, key=WORST_LAST.index)
        notes = (*expired, *_by_message(findings))
        return m.Verdict(status=status, lead=lead, text=answer.text, trust=trust, reasons=_once(notes))
    (status, text), *more = headlines
    said = tuple(line for line in (lead, *(remark.text for remark in remarks)) if line)
    return m.Verdict(status=status, text=text, reasons=_once((*(line for _, line in more), *expired, *said)))


def _changed(differences: Sequence[m.TraceDifference]) -> tuple[Remark, ...]:
    """Of traces held against others, what became of the whole."""
    return tuple(
        Remark(
            text=f"{one.run.strategy}: {figure(one.total.after_us)} µs of kernels per {one.per}, "
            f"was {figure(one.total.before_us)}"
        )
        if one.total is not None
        else Remark(text=f"{one.run.strategy} was not compared: {one.missing}", status=ATTENTION)
        for one in differences[:TRACED_TO_NAME]
    )


def _by_message(findings: Sequence[m.Finding]) -> tuple[str, ...]:
    """Each message once, with all its runs."""
    runs: dict[str, list[str]] = {}
    for finding in findings:
        slugs = runs.setdefault(finding.message, [])
        slugs += [finding.run.slug] if finding.run and finding.run.slug not in slugs else []
    return tuple(f"{', '.join(slugs)}: {message}" if slugs else message for message, slugs in runs.items())


def _once(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lines))


def _headlines(
    runs: Sequence[m.RunReport], findings: Sequence[m.Finding], *, interrupted: bool
) -> list[tuple[m.VerdictStatus, str]]:
    """(status, sentence), worst first."""
    lines: list[tuple[m.VerdictStatus, str]] = []
    if interrupted:
        ended = sum(run.exit.outcome == m.Outcome.OK for run in runs)
        lines.append((INCONCLUSIVE, f"interrupted: {ended} of {plural(len(runs), 'run')} are complete"))
    lines += [
        (FAILED, run.how_it_ended) for run in runs if run.exit.outcome not in (m.Outcome.OK, m.Outcome.INTERRUPTED)
    ]
    lines += [  # that of MEMORY and KERNELS
        (FAILED, f"{run.key.slug}: its second process {run.probe_exit.words}")
        for run in runs
        if run.probe_exit is not None and run.probe_exit.outcome not in (m.Outcome.OK, m.Outcome.INTERRUPTED)
    ]
    rounds = [(run, run.rounds.lost) for run in runs if isinstance(run.rounds, m.Rounds) and not interrupted]
    lines += [(FAILED, f"{run.key.slug}: {lost}") for run, every in rounds for lost in every]
    errors = [finding for finding in findings if finding.level is m.Level.ERROR]
    lines += [(FAILED, message) for message in _by_message(errors)]
    return lines


# ---------------------------------------------------------------- what else holds


def _results(runs: Sequence[m.RunReport], uncompared: str) -> Remark | None:
    """What the comparison of results came to. A run that was held against nothing but itself has not been compared."""
    if uncompared:
        return Remark(text=f"results were not compared: {uncompared}", status=ATTENTION)
    compared = [
        run.agreement
        for run in runs
        if isinstance(run.agreement, m.RunAgreement) and (run.compared_with or run.agreement.reference_compared)
    ]
    if any(run.results_differ for run in runs):
        return None
    if not compared:
        alone = any(isinstance(run.agreement, m.RunAgreement) for run in runs)
        reasons = _without_agreement(runs) or "there was no other result"
        status = ATTENTION if len(runs) > 1 else OK
        return Remark(text=f"results were not compared: {reasons}", status=status) if alone else None
    ties = sum(agreement.near_ties + agreement.reference_near_ties for agreement in compared)
    missing = _without_agreement(runs)
    unknown = f" ({missing})" if missing else ""
    near = any(agreement.verdict == m.AgreementVerdict.NEAR_TIES for agreement in compared)
    words = f"results equal except for {plural(ties, 'near-tie')}" if near else "results equal"
    return Remark(text=f"{words}{unknown}", status=ATTENTION if missing else OK)


def _without_agreement(runs: Sequence[m.RunReport]) -> str:
    """The runs that were not compared, by their reason."""
    by_reason: dict[str, list[str]] = {}
    for run in runs:
        if isinstance(run.agreement, m.Skipped):
            by_reason.setdefault(run.agreement.reason, []).append(run.key.slug)
    return "; ".join(f"{', '.join(names)} not compared: {reason}" for reason, names in by_reason.items())


def _work(runs: Sequence[m.RunReport]) -> tuple[tuple[Remark, ...], str]:
    """Whether all of it was finished; and how much of it is not known of the run with the most, whose metrics rest on
    that: the second, to stand before everything else, where that is most of it."""
    evaluations = [run.evaluation for run in runs if not isinstance(run.evaluation, m.Skipped)]
    units = {evaluation.units for evaluation in evaluations}
    unit = next((run.unit for run in runs if run.counts_units), None)
    remarks = []
    if unit is not None and len(units) == 1 and not any(evaluation.unfinished for evaluation in evaluations):
        remarks.append(Remark(text=f"all {plural(units.pop(), unit.name, unit.plural)} finished"))
    unknown = [(tally, evaluation.units) for evaluation in evaluations if (tally := evaluation.undecided) is not None]
    if not unknown:
        return tuple(remarks), ""
    worst, of = max(unknown, key=lambda pair: pair[0].count / pair[1])
    share = worst.count / of
    named = unit.plural if unit is not None else "units"
    why = f": {worst.why}" if worst.why else ""
    text = f"{100 * share:.0f} % of the {named} ({worst.count:,} of {of:,}) are undecided{why}"
    if share < SPOILED_FROM:
        return (*remarks, Remark(text=text, status=ATTENTION)), ""
    return tuple(remarks), f"{text}; results and times are of truncated work"
