"""One line per run, as text: the table that every renderer for people shows, so that they cannot disagree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kgprof.model import (
    CompileSummary,
    Evaluation,
    Profile,
    RankMetrics,
    RunAgreement,
    RunReport,
    Skipped,
    Speedup,
    Spread,
)
from kgprof.render.quantity import count, figure, fixed, ratio, span

TIES = "realistic"  # the tie rule of the headline metrics: the mean of the optimistic and the pessimistic rank
SIDE = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What stands in a table's cell: the figure, what qualifies it, and whether there is a figure at all."""

    text: str
    details: tuple[str, ...] = ()
    measured: bool = True
    value: float | None = None  # for sorting and for bars
    wrong: bool = False  # a reader must not miss it

    @property
    def detail(self) -> str:
        return ", ".join(self.details)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    title: str  # what the figure is: unit, pass, statistic
    cell: Callable[[RunReport], Cell]


def columns(profile: Profile) -> tuple[Column, ...]:
    """The columns that at least one run has a figure for; a workload without an evaluation has no MRR column."""
    return tuple(
        column for column in ALL_COLUMNS if any(column.cell(run).measured for run in profile.runs) or column is STEP
    )


def ended(run: RunReport) -> str:
    """How the run's process ended, empty when well."""
    return "" if run.exit.outcome == "ok" else run.exit.words


# ---------------------------------------------------------------- cells


def _missing(reason: str) -> Cell:
    return Cell(text="\N{EN DASH}", details=(reason,), measured=False)


def _spread(time: Spread | Skipped, scale: float) -> Cell:
    if isinstance(time, Skipped):
        return _missing(time.reason)
    low, high = figure(time.p10 * scale), figure(time.p90 * scale)
    value = time.median * scale
    return Cell(text=figure(value), details=(span(low, high), f"n = {count(time.samples)}"), value=value)


def _step(run: RunReport) -> Cell:
    return _spread(run.step, 1e-3)


def _candidate(run: RunReport) -> Cell:
    return _spread(run.ms_per_candidate, 1.0)


def _finished(run: RunReport) -> Cell:
    evaluation = run.evaluation
    if isinstance(evaluation, Skipped):
        return _missing(evaluation.reason)
    text = f"{count(evaluation.finished)}/{count(evaluation.candidates)}"
    return Cell(
        text=text, details=classes(evaluation), value=float(evaluation.finished), wrong=evaluation.unfinished > 0
    )


def classes(evaluation: Evaluation) -> tuple[str, ...]:
    """The classes that hold candidates, proved and failed always."""
    counted = {
        "proved": evaluation.proved,
        "failed": evaluation.failed,
        "truncated": evaluation.depth_truncated,
        "overflow": evaluation.overflow,
        "unfinished": evaluation.unfinished,
    }
    return tuple(f"{count(n)} {name}" for name, n in counted.items() if n or name in ("proved", "failed"))


def _speedup(run: RunReport) -> Cell:
    if run.is_baseline:
        return Cell(text="baseline", value=1.0)
    if not isinstance(run.speedup, Speedup):
        return _missing(run.speedup.reason)
    speedup = run.speedup
    low_high = span(figure(speedup.low), figure(speedup.high))
    return Cell(text=ratio(speedup.ratio), details=(low_high, speedup.basis), value=speedup.ratio)


def _results(run: RunReport) -> Cell:
    agreement = run.agreement
    if not isinstance(agreement, RunAgreement):
        return _missing(agreement.reason)
    words = {"equal": "equal", "different": "DIFFERENT", "near-ties": "equal but near-ties"}
    return Cell(
        text=words.get(agreement.verdict, agreement.verdict),
        details=compared(agreement, is_baseline=run.is_baseline),
        wrong=agreement.verdict == "different",
    )


def compared(agreement: RunAgreement, *, is_baseline: bool) -> tuple[str, ...]:
    """What was compared with what, and what came of it. That the baseline equals itself is not said."""
    parts = []
    for name, total, differing, ties in (
        ("baseline", 0 if is_baseline else agreement.compared, agreement.differing, agreement.near_ties),
        ("reference", agreement.reference_compared, agreement.reference_differing, agreement.reference_near_ties),
    ):
        if not total:
            continue
        parts.append(f"{count(differing)} of {count(total)} \u2260 {name}" if differing else f"{count(total)} = {name}")
        if ties:
            parts.append(f"{count(ties)} near-ties")
    return tuple(parts)


def headline_metrics(run: RunReport) -> RankMetrics | None:
    """Both sides together under the realistic tie rule."""
    if not isinstance(run.evaluation, Evaluation):
        return None
    return next((m for m in run.evaluation.metrics if m.side == SIDE and m.ties == TIES), None)


def _metrics(run: RunReport) -> Cell:
    metrics = headline_metrics(run)
    if metrics is None:
        evaluation = run.evaluation
        return _missing(evaluation.reason if isinstance(evaluation, Skipped) else "the workload ranks nothing")
    hits = (("1", metrics.hits_at_1), ("3", metrics.hits_at_3), ("10", metrics.hits_at_10))
    details = tuple(f"Hits@{k} {fixed(value, 4)}" for k, value in hits)
    return Cell(text=fixed(metrics.mrr, 4), details=details, value=metrics.mrr)


def _dropped(run: RunReport) -> Cell:
    if isinstance(run.evaluation, Skipped):
        return _missing(run.evaluation.reason)
    dropped = run.evaluation.dropped
    counted = {"atoms": dropped.atoms, "children": dropped.children, "facts": dropped.facts, "rules": dropped.rules}
    details = tuple(f"{count(n)} {name}" for name, n in counted.items() if n)
    return Cell(text=count(dropped.total), details=details, value=float(dropped.total))


def _first_call(run: RunReport) -> Cell:
    if not isinstance(run.compile, CompileSummary):
        return _missing(run.compile.reason)
    compilations = len(run.compile.compilations)
    noun = "compilation" if compilations == 1 else "compilations"
    return Cell(
        text=figure(run.compile.first_call_s),
        details=(f"{count(compilations)} {noun}",),
        value=run.compile.first_call_s,
    )


STEP = Column(name="ms/step", title="TIMING: median, 10th to 90th percentile, n steps", cell=_step)
ALL_COLUMNS = (
    STEP,
    Column(
        name="ms/candidate",
        title="TIMING: whole evaluation over its candidates; median, 10th to 90th percentile, n evaluations",
        cell=_candidate,
    ),
    Column(
        name="speed-up",
        title="baseline's median over this run's; range from the extremes; what it is taken on",
        cell=_speedup,
    ),
    Column(name="results", title="against the baseline run in full, against the reference on a sample", cell=_results),
    Column(name="finished", title="candidates with a result, of all; their classes", cell=_finished),
    Column(
        name="MRR",
        title="filtered mean reciprocal rank and Hits@1, 3, 10; head and tail sides together, realistic ties",
        cell=_metrics,
    ),
    Column(name="dropped", title="children, facts and rules that a cap of the engine dropped", cell=_dropped),
    Column(name="first call s", title="COMPILE: wall time of the first call on a cold cache", cell=_first_call),
)
