"""The report's first line, in words: what a reviewer should take away if they read nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.measures import times
from kgprof.measures.times import PER_EVALUATION, PER_STEP, Unit
from kgprof.wording import figure, plural

OK, ATTENTION, FAILED, INCONCLUSIVE = m.VerdictStatus

TRACED_TO_NAME = 3  # runs that were only traced, in the first line


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A part of the verdict, and whether it alone keeps the verdict from being OK."""

    text: str
    attention: bool = False


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
    results = _results(runs, uncompared)
    remarks = [_fastest(runs, baseline), *([results] if results else []), *_work(runs)]
    if balance is not None and balance.straggler is not None:
        remarks.insert(0, Remark(text=balance.text, attention=True))
    remarks += _changed(differences)
    if actions and any(run.script is not None and run.script.step for run in runs):
        remarks.append(Remark(text=f"first: {actions[0].text}"))
    said = tuple(remark.text for remark in remarks)
    if not headlines:
        warned = any(finding.level is m.Level.WARNING for finding in findings)
        status = ATTENTION if warned or expired or any(remark.attention for remark in remarks) else OK
        notes = (*expired, *_by_message(findings))
        return m.Verdict(status=status, text="; ".join(said), reasons=_once(notes))
    (status, text), *rest = headlines
    return m.Verdict(status=status, text=text, reasons=_once((*(more for _, more in rest), *expired, *said)))


def _changed(differences: Sequence[m.TraceDifference]) -> tuple[Remark, ...]:
    """Of traces held against others, what became of the whole."""
    return tuple(
        Remark(
            text=f"{one.run.strategy}: {figure(one.total.after_us)} us of kernels a {one.per}, "
            f"was {figure(one.total.before_us)}"
        )
        if one.total is not None
        else Remark(text=f"{one.run.strategy} was not compared: {one.missing}", attention=True)
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


# ---------------------------------------------------------------- speed


def _fastest(runs: Sequence[m.RunReport], baseline: m.RunKey | None) -> Remark:
    """The fastest among the runs whose results may be believed, on what all of them have in common."""
    sound = [run for run in runs if not run.results_differ]
    whole = (
        *((_timed(sound, counted_evaluation), times.per_unit(run.unit)) for run in sound[:1]),
        (_timed(sound, uncounted_evaluation), PER_EVALUATION),
    )
    per_step = _timed(sound, lambda run: run.step)
    for timed, unit in whole:
        if len(timed) > 1 or (timed and len(per_step) == 1):
            return _ranking(timed, baseline, unit)
    if not per_step:
        return Remark(text=_untimed(runs))
    if all(run.script is not None and run.script.is_one_window for run, _ in per_step):
        takes = ", ".join(f"{run.key.slug} takes {figure(time.median / 1e3)} ms" for run, time in per_step)
        return Remark(text=f"{takes} from its first line to its end (it has no steps)")
    stepped = [run for run, _ in per_step]
    if not any(map(evaluates, stepped)) or len({run.key.strategy for run in stepped}) == 1:  # their steps are alike
        return _ranking(per_step, baseline, PER_STEP)
    for timed, unit in whole:
        if timed:
            run, time = timed[0]
            return Remark(text=f"only {run.key.slug} finished its evaluation: {unit.say(time.median)}", attention=True)
    return Remark(text=f"the runs cannot be ranked: {times.STEPS_DIFFER}", attention=True)


def _untimed(runs: Sequence[m.RunReport]) -> str:
    """What there is instead: the steps of scripts, traces, or compilations of a TORCH_TRACE directory."""
    scripts = [(run, run.script) for run in runs if run.script and (run.script.steps or run.script.is_one_window)]
    if scripts:
        return "; ".join(_about(run, script) for run, script in scripts)
    compiled = [run.compile for run in runs if not isinstance(run.compile, m.Skipped)]
    from_files = compiled and all(run.script is not None and not run.script.counted for run in runs)
    compilations = plural(sum(len(summary.compilations) for summary in compiled), "compilation")
    among = f"{compilations} in {plural(len(runs), 'process', 'processes')}; a TORCH_TRACE directory holds no times"
    return _traced(runs) or (among if from_files else "no run has a time")


def _about(run: m.RunReport, script: m.ScriptRun) -> str:
    """The step of a script that was not run again for TIMING: as long as it took with COMPILE's listeners on."""
    if script.is_one_window:
        return f"{run.key.slug} has no steps, and was not timed"
    steps = f"{run.key.slug}: {plural(script.steps, 'step')}, each {script.step}"
    if isinstance(run.compile, m.Skipped) or isinstance(run.compile.steady, m.Skipped):
        return steps
    return f"{run.key.slug} takes about {PER_STEP.say(run.compile.steady.median)} (kgprof's listeners on)"


def _traced(runs: Sequence[m.RunReport]) -> str:
    """How busy each device was, of runs that were only traced; empty where none was."""
    found = [(run.key.slug, run.kernels) for run in runs if isinstance(run.kernels, m.KernelBreakdown)]
    parts = []
    for slug, kernels in found[:TRACED_TO_NAME]:
        what = "device busy" if kernels.device == "cuda" else "operators running"
        percent = 100 * kernels.busy_us / kernels.window_us if kernels.window_us else 0.0
        unmarked = "the traced window, in which no steps are marked"
        of = plural(kernels.steps, "traced step") if kernels.steps else unmarked
        parts.append(f"{slug}: {what} {percent:.1f} % of {of}")
    return "; ".join(parts) + (f"; and {len(found) - len(parts)} more" if len(found) > len(parts) else "")


def counted_evaluation(run: m.RunReport) -> m.Spread | m.Skipped:
    """What a unit of a whole evaluation takes; steps are compared as they stand."""
    return run.per_unit if run.counts_units else m.Skipped(reason="the evaluation counts no units of work")


def uncounted_evaluation(run: m.RunReport) -> m.Spread | m.Skipped:
    """Of a workload whose evaluation does not say how much work it is: then the whole of it is what compares."""
    return m.Skipped(reason="the evaluation counts its units of work") if run.counts_units else run.evaluation_time


def evaluates(run: m.RunReport) -> bool:
    """Whether it has, or should have, a whole evaluation."""
    return isinstance(run.evaluation_time, m.Spread) or not isinstance(run.evaluation, m.Skipped)


def _timed(
    runs: Sequence[m.RunReport], quantity: Callable[[m.RunReport], m.Spread | m.Skipped]
) -> list[tuple[m.RunReport, m.Spread]]:
    pairs = [(run, time) for run in runs if isinstance(time := quantity(run), m.Spread)]
    return sorted(pairs, key=lambda pair: pair[1].median)


def _ranking(timed: Sequence[tuple[m.RunReport, m.Spread]], baseline: m.RunKey | None, unit: Unit) -> Remark:
    (first, best), *others = timed
    if not others:
        once = ", measured once (n = 1)" if best.samples == 1 else ""
        return Remark(text=f"{first.key.slug} takes {unit.say(best.median)}{once}")
    against, time = next(((run, time) for run, time in others if run.key == baseline), others[0])
    unsure = doubt(first, best, against, time, unit)
    if unsure:
        compared = f"{first.key.slug} took {unit.say(best.median)}, {against.key.slug} {unit.say(time.median)}"
        return Remark(text=f"{compared}: {unsure}", attention=True)
    tied = [(run, other) for run, other in others if overlap(best, other, unit)]
    if tied:
        names = ", ".join([first.key.slug, *(run.key.slug for run, _ in tied)])
        slowest = max(other.median for _, other in tied)
        medians = f"medians {unit.bare(best.median)} to {unit.say(slowest)}"
        return Remark(text=f"{names} are level: {medians}, and their spreads overlap")
    if against.key != baseline:
        second = f"then {against.key.slug} with {unit.say(time.median)}"
        return Remark(
            text=f"{first.key.slug} is the fastest: {unit.say(best.median)}, {second}; {processes(first, against)}"
        )
    return Remark(
        text=f"{first.key.slug} is the fastest: {figure(time.median / best.median)}x as fast as {against.key.slug} "
        f"({unit.bare(best.median)} against {unit.say(time.median)}, {processes(first, against)})"
    )


def processes(*runs: m.RunReport) -> str:
    """Where the times that are ranked are from: with rounds, the first of them."""
    found = [len(run.rounds.numbers) for run in runs if isinstance(run.rounds, m.Rounds)]
    return f"in the first of {min(found)} processes each" if len(found) == len(runs) else "in one process each"


def doubt(first: m.RunReport, best: m.Spread, against: m.RunReport, time: m.Spread, unit: Unit) -> str:
    """Why two times cannot be ranked; empty where they can. That the samples of steps overlap is said elsewhere."""
    best_round, round_time = _over_rounds(first, unit), _over_rounds(against, unit)
    if best_round and round_time and best_round.maximum >= round_time.minimum:
        return f"too noisy to rank (range over rounds {_ranges(best_round, round_time, unit=unit)})"
    if unit is PER_STEP:
        return ""
    fewest = min(best.samples, time.samples)
    if fewest < times.FEWEST_TO_RANK:
        return f"measured once (n = {fewest}): not enough to rank"
    if overlap(best, time, unit):
        return f"too noisy to rank (range {_ranges(best, time, unit=unit)})"
    for run in (first, against):
        if run.slow_first:
            return f"too noisy to rank (in {run.key.slug} {times.slow_first_words(run.slow_first)})"
    return ""


def _ranges(*spreads: m.Spread, unit: Unit) -> str:
    ranges = (f"{unit.bare(time.minimum)} to {unit.bare(time.maximum)}" for time in spreads)
    return f"{' against '.join(ranges)} {unit.name}"


def _over_rounds(run: m.RunReport, unit: Unit) -> m.Spread | None:
    if isinstance(run.rounds, m.Skipped):
        return None
    found = {PER_EVALUATION: run.rounds.evaluation_time, PER_STEP: run.rounds.step}.get(unit, run.rounds.per_unit)
    return found if isinstance(found, m.Spread) and found.samples >= times.FEWEST_TO_RANK else None


def overlap(best: m.Spread, other: m.Spread, unit: Unit) -> bool:
    """``other`` has the larger median. Evaluations are few, so all of them count; steps are many and have outliers."""
    return other.p10 <= best.p90 if unit is PER_STEP else other.minimum <= best.maximum


# ---------------------------------------------------------------- what else holds


def _results(runs: Sequence[m.RunReport], uncompared: str) -> Remark | None:
    """What the comparison of results came to. A run that was held against nothing but itself has not been compared."""
    if uncompared:
        return Remark(text=f"results were not compared: {uncompared}", attention=True)
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
        return Remark(text=f"results were not compared: {reasons}", attention=len(runs) > 1) if alone else None
    ties = sum(agreement.near_ties + agreement.reference_near_ties for agreement in compared)
    missing = _without_agreement(runs)
    unknown = f" ({missing})" if missing else ""
    near = any(agreement.verdict == m.AgreementVerdict.NEAR_TIES for agreement in compared)
    words = f"results equal but for {plural(ties, 'near-tie')}" if near else "results equal"
    return Remark(text=f"{words}{unknown}", attention=bool(missing))


def _without_agreement(runs: Sequence[m.RunReport]) -> str:
    """The runs that were not compared, by their reason."""
    by_reason: dict[str, list[str]] = {}
    for run in runs:
        if isinstance(run.agreement, m.Skipped):
            by_reason.setdefault(run.agreement.reason, []).append(run.key.slug)
    return "; ".join(f"{', '.join(names)} not compared: {reason}" for reason, names in by_reason.items())


def _work(runs: Sequence[m.RunReport]) -> Iterator[Remark]:
    """Whether all of it was finished; and how much of it is not known of the run with the most, whose metrics rest on
    that."""
    evaluations = [run.evaluation for run in runs if not isinstance(run.evaluation, m.Skipped)]
    units = {evaluation.units for evaluation in evaluations}
    unit = next((run.unit for run in runs if run.counts_units), None)
    if unit is not None and len(units) == 1 and not any(evaluation.unfinished for evaluation in evaluations):
        yield Remark(text=f"all {plural(units.pop(), unit.name, unit.plural)} finished")
    unknown = [(tally, evaluation.units) for evaluation in evaluations if (tally := evaluation.undecided) is not None]
    if unknown:
        worst, of = max(unknown, key=lambda pair: pair[0].count / pair[1])
        why = f": {worst.why}" if worst.why else ""
        share = f"{worst.count:,} of {of:,} ({100 * worst.count / of:.0f} %)"
        yield Remark(text=f"{share} unknown{why}", attention=True)
