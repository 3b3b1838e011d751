"""The report's first line, in words: what a reviewer should take away if they read nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kgprof.model import Finding, Level, RunAgreement, RunKey, RunReport, Skipped, Spread, Verdict

OK, ATTENTION, FAILED, INCONCLUSIVE = "ok", "attention", "failed", "inconclusive"


def verdict(
    runs: Sequence[RunReport], findings: Sequence[Finding], *, baseline: RunKey | None, interrupted: bool
) -> Verdict:
    """The worst thing that happened leads; what stands in spite of it follows as reasons."""
    headlines = _headlines(runs, findings, interrupted=interrupted)
    speed = _fastest(runs, baseline)
    facts = _facts(runs)
    if not headlines:
        status = ATTENTION if any(finding.level is Level.WARNING for finding in findings) else OK
        text = "; ".join((speed, *facts))
        notes = tuple(finding.message for finding in findings)
        return Verdict(status=status, text=text, reasons=notes)
    (status, text), *rest = headlines
    return Verdict(status=status, text=text, reasons=(*(more for _, more in rest), speed, *facts))


def _headlines(runs: Sequence[RunReport], findings: Sequence[Finding], *, interrupted: bool) -> list[tuple[str, str]]:
    """(status, sentence), worst first."""
    lines: list[tuple[str, str]] = []
    if interrupted:
        ended = sum(run.exit.outcome == "ok" for run in runs)
        lines.append((INCONCLUSIVE, f"interrupted: {ended} of {len(runs)} runs are complete"))
    lines += [(FAILED, death(run)) for run in runs if run.exit.outcome not in ("ok", "interrupted")]
    errors = [finding for finding in findings if finding.level is Level.ERROR]
    lines += [(FAILED, finding.message) for finding in errors]
    return lines


def death(run: RunReport) -> str:
    """One sentence on a run whose process did not end well."""
    return f"{run.key.slug} {run.exit.words}"


# ---------------------------------------------------------------- speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """How the verdict says a quantity: in ``name``, ``scale`` times the value that was measured."""

    name: str
    scale: float

    def bare(self, value: float) -> str:
        return _figure(value * self.scale)

    def say(self, value: float) -> str:
        return f"{self.bare(value)} {self.name}"


def _fastest(runs: Sequence[RunReport], baseline: RunKey | None) -> str:
    """The fastest among the runs whose results may be believed, on what all of them have in common."""
    sound = [run for run in runs if not _differs(run)]
    per_candidate = _timed(sound, lambda run: run.ms_per_candidate)
    per_step = _timed(sound, lambda run: run.step)
    if len(per_candidate) > 1 or (per_candidate and len(per_step) == 1):
        return _ranking(per_candidate, baseline, Unit(name="ms/candidate", scale=1.0))
    if per_step:
        return _ranking(per_step, baseline, Unit(name="ms/step", scale=1e-3))
    return "no run has a time"


def _differs(run: RunReport) -> bool:
    return isinstance(run.agreement, RunAgreement) and run.agreement.verdict == "different"


def _timed(
    runs: Sequence[RunReport], quantity: Callable[[RunReport], Spread | Skipped]
) -> list[tuple[RunReport, Spread]]:
    pairs = [(run, time) for run in runs if isinstance(time := quantity(run), Spread)]
    return sorted(pairs, key=lambda pair: pair[1].median)


def _ranking(timed: Sequence[tuple[RunReport, Spread]], baseline: RunKey | None, unit: Unit) -> str:
    (first, best), *others = timed
    if not others:
        return f"{first.key.slug} takes {unit.say(best.median)}"
    tied = [(run, time) for run, time in others if time.p10 <= best.p90]
    if tied:
        names = ", ".join([first.key.slug, *(run.key.slug for run, _ in tied)])
        slowest = max(time.median for _, time in tied)
        return f"{names} are level: medians {unit.bare(best.median)} to {unit.say(slowest)}, and their spreads overlap"
    against = next(((run, time) for run, time in others if run.key == baseline), None)
    if against is None:
        runner_up, time = others[0]
        second = f"then {runner_up.key.slug} with {unit.say(time.median)}"
        return f"{first.key.slug} is the fastest: {unit.say(best.median)}, {second}"
    run, time = against
    return (
        f"{first.key.slug} is the fastest: {_figure(time.median / best.median)}x as fast as {run.key.slug} "
        f"({unit.bare(best.median)} against {unit.say(time.median)})"
    )


def _figure(value: float) -> str:
    """Three significant digits, never in exponent form."""
    if value == 0:
        return "0"
    digits = max(0, 2 - _exponent(value))
    return f"{value:,.{digits}f}"


def _exponent(value: float) -> int:
    return int(f"{value:e}".rpartition("e")[2])


# ---------------------------------------------------------------- what else holds


def _facts(runs: Sequence[RunReport]) -> tuple[str, ...]:
    return tuple(fact for fact in (_results(runs), _candidates(runs)) if fact)


def _results(runs: Sequence[RunReport]) -> str:
    compared = [run.agreement for run in runs if isinstance(run.agreement, RunAgreement)]
    if not compared or any(agreement.verdict == "different" for agreement in compared):
        return ""
    near_ties = sum(agreement.near_ties for agreement in compared)
    missing = len(runs) - len(compared)
    unknown = f" ({missing} of {len(runs)} runs left no result)" if missing else ""
    if any(agreement.verdict == "near-ties" for agreement in compared):
        return f"results equal but for {near_ties:,} near-ties{unknown}"
    return f"results equal{unknown}"


def _candidates(runs: Sequence[RunReport]) -> str:
    totals = {run.evaluation.candidates for run in runs if not isinstance(run.evaluation, Skipped)}
    unfinished = sum(run.evaluation.unfinished for run in runs if not isinstance(run.evaluation, Skipped))
    if len(totals) != 1 or unfinished:
        return ""
    return f"all {totals.pop():,} candidates finished"
