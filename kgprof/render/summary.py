"""One line per run, as text: the table that every renderer for people shows, so that they cannot disagree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from kgprof import model as m
from kgprof.render.quantity import count, figure, fixed, percent, ratio
from kgprof.render.spread import of_speedup
from kgprof.render.table import Cell, missing, timed
from kgprof.wording import plural

TIES = "realistic"  # the tie rule of the headline metrics: the mean of the optimistic and the pessimistic rank
SIDE = "both"
UNKNOWN_MARK = "\N{DAGGER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunColumn:
    """A figure that each run may have."""

    name: str
    title: str  # what the figure is: unit, pass, statistic
    cell: Callable[[m.RunReport], Cell]
    details: int = 0  # how many of a cell's details a terminal has room for
    bar: bool = False  # the page shows by a bar how the runs compare


def columns(profile: m.Profile) -> tuple[RunColumn, ...]:
    """The columns that at least one run has a figure for; a workload without an evaluation has no MRR column."""
    plural = any(isinstance(run.ms_per_candidate, m.Spread) for run in profile.runs)
    over_rounds = next((column for column in OVER_ROUNDS if _anywhere(column, profile)), None)
    return tuple(
        column
        for column in _all_columns(profile.baseline, over_rounds)
        if (_anywhere(column, profile) or column is STEP)
        and not (column is SPEEDUP and len(profile.runs) == 1)  # the baseline alone
        and not (column is EVALUATION and plural)  # the same times, as a candidate's share
    )


def _anywhere(column: RunColumn, profile: m.Profile) -> bool:
    return any(column.cell(run).measured for run in profile.runs)


def _all_columns(baseline: m.RunKey | None, over_rounds: RunColumn | None) -> tuple[RunColumn, ...]:
    results = RunColumn(
        name="results",
        title="against the baseline run in full, against the reference on a sample",
        cell=partial(_results, baseline=baseline),
        details=1,
    )
    further = () if over_rounds is None else (over_rounds,)
    return (STEP, CANDIDATE, EVALUATION, *further, SPEEDUP, results, *LATER_COLUMNS)


def ended(run: m.RunReport) -> str:
    """How the run's process ended, empty when well."""
    return "" if run.exit.outcome == "ok" else run.exit.words


REASONS = 5  # below a verdict; most of them are findings, which follow in full


def reasons(profile: m.Profile, at_most: int = REASONS) -> tuple[tuple[str, ...], int]:
    """Those that stand below the verdict, and how many more there are."""
    said = profile.verdict.reasons
    return said[:at_most], max(0, len(said) - at_most)


def footnotes(profile: m.Profile) -> tuple[str, ...]:
    """What a reader of the table must know, whoever renders it."""
    notes = (
        _conditions(profile),
        _stand_in(profile),
        *_unknown(profile),
        *_compiled_in_eager(profile),
        *_graphs(profile),
        _machine(profile),
    )
    return tuple(note for note in notes if note)


# What makes two evaluations comparable: the setting's name and how it is said.
_CONDITIONS = (
    ("corruptions evaluated", "corruptions {}"),
    ("policy", "policy {}"),
    ("dtype", "dtype {}"),
    ("depth", "depth {}"),
)


def _conditions(profile: m.Profile) -> str:
    """The line without which the ranking metrics mean nothing to a stranger."""
    evaluations = [run.evaluation for run in profile.runs if isinstance(run.evaluation, m.Evaluation)]
    said = [f"ties {TIES}"] if any(headline_metrics(run) for run in profile.runs) else []
    for name, words in _CONDITIONS:
        values = dict.fromkeys(found.settings[name] for found in evaluations if name in found.settings)
        said += [words.format(" or ".join(values))] if values else []
    return f"The evaluation: {', '.join(said)}." if said else ""


EAGER = "eager"
COND_FRAMES = "_cond_op_wrapper"  # torch/_higher_order_ops/cond.py compiles this one, whoever calls it


def _compiled_in_eager(profile: m.Profile) -> tuple[str, ...]:
    notes = []
    for run in profile.runs:
        compiled = run.compile.compilations if isinstance(run.compile, m.CompileSummary) else ()
        if run.key.mode != EAGER or not compiled:
            continue
        of_cond = any(compilation.function == COND_FRAMES for compilation in compiled)
        why = (
            "torch.cond compiles its branches even in eager mode" if of_cond else "the step itself calls torch.compile"
        )
        notes.append(f"{run.key.slug}: {plural(len(compiled), 'compilation')} in eager mode: {why}.")
    return tuple(notes)


GRAPH_MODES = ("reduce-overhead", "max-autotune")  # those in which torch.compile asks for CUDA graphs


def _graphs(profile: m.Profile) -> tuple[str, ...]:
    """On CUDA, whether the modes that promise CUDA graphs launched any."""
    none, some = [], []
    for run in profile.runs:
        kernels = run.kernels
        if run.key.mode not in GRAPH_MODES or not isinstance(kernels, m.KernelBreakdown) or kernels.device != "cuda":
            continue
        if not isinstance(kernels.graph_launches, int):
            continue
        if not kernels.graph_launches:
            none.append(run.key.slug)
        else:
            some.append(f"{run.key.slug} {count(kernels.graph_launches)} in {plural(kernels.steps, 'step')}")
    return (
        f"{', '.join(none)}: no CUDA graph launched in the traced steps." if none else "",
        f"CUDA graphs launched in the traced steps: {', '.join(some)}." if some else "",
    )


def _machine(profile: m.Profile) -> str:
    """How far the machine itself moved while the rounds were timed: what their spread may be."""
    speeds = [run.rounds.machine for run in profile.runs if isinstance(run.rounds, m.Rounds)]
    known = [speed for speed in speeds if isinstance(speed, m.MachineSpeed)]
    if not known:
        return ""
    host, device = (
        f"{figure(min(us))} to {figure(max(us))} us"
        for us in (
            [us for speed in known for us in speed.host_us],
            [us for speed in known for us in speed.device_us],
        )
    )
    return f"The machine itself, over the rounds: a turn of the host's loop took {host}, the device's kernel {device}."


def _stand_in(profile: m.Profile) -> str:
    against = next((run.compared_with for run in profile.runs if run.compared_with is not None), None)
    if against is None or against == profile.baseline:
        return ""
    declared = f", not with the baseline {profile.baseline.slug}, which left none" if profile.baseline else ""
    return f"Results were compared with those of {against.slug}{declared}."


def _unknown(profile: m.Profile) -> tuple[str, ...]:
    """One line for all runs with the same counts."""
    lines: dict[str, list[str]] = {}
    for run in profile.runs:
        if isinstance(run.evaluation, m.Evaluation) and overflows(run):
            evaluation = run.evaluation
            unknown = f"{count(evaluation.overflow)} of {plural(evaluation.candidates, 'candidate')} "
            lines.setdefault(f"{unknown}({percent(evaluation.overflow_share)}) are unknown", []).append(run.key.slug)
    return tuple(
        f"{UNKNOWN_MARK} {', '.join(runs)}: {said}: a cap dropped children on their path, so they rank as unproved."
        for said, runs in lines.items()
    )


# ---------------------------------------------------------------- cells


def _over_rounds(quantity: Callable[[m.Rounds], m.Spread | m.Skipped], scale: float) -> Callable[[m.RunReport], Cell]:
    def cell(run: m.RunReport) -> Cell:
        if isinstance(run.rounds, m.Skipped):
            return missing(run.rounds)
        lost = (f"{len(run.rounds.lost)} of {run.rounds.asked} rounds lost",) if run.rounds.lost else ()
        found = timed(quantity(run.rounds), scale)
        return replace(found, details=(*found.details, *lost))

    return cell


def _finished(run: m.RunReport) -> Cell:
    evaluation = run.evaluation
    if isinstance(evaluation, m.Skipped):
        return missing(evaluation)
    text = f"{count(evaluation.finished)}/{count(evaluation.candidates)}"
    return Cell(
        text,
        details=(*classes(evaluation), f"in {plural(evaluation.steps, 'step')}"),
        value=float(evaluation.finished),
        wrong=evaluation.unfinished > 0,
    )


def classes(evaluation: m.Evaluation) -> tuple[str, ...]:
    """The classes that hold candidates, proved and failed always."""
    plural = {
        "proved": evaluation.proved,
        "failed": evaluation.failed,
        "truncated": evaluation.depth_truncated,
        "overflow": evaluation.overflow,
        "unfinished": evaluation.unfinished,
    }
    return tuple(f"{count(n)} {name}" for name, n in plural.items() if n or name in ("proved", "failed"))


def _speedup(run: m.RunReport) -> Cell:
    if run.is_baseline:
        return Cell("baseline", value=1.0)
    if not isinstance(run.speedup, m.Speedup):
        return missing(run.speedup)
    speedup = run.speedup
    return Cell(ratio(speedup.ratio), details=(of_speedup(speedup), speedup.basis), value=speedup.ratio)


def _results(run: m.RunReport, *, baseline: m.RunKey | None) -> Cell:
    agreement = run.agreement
    if not isinstance(agreement, m.RunAgreement):
        return missing(agreement)
    words = {"equal": "equal", "different": "DIFFERENT", "near-ties": "equal but near-ties"}
    return Cell(
        words.get(agreement.verdict, agreement.verdict),
        details=compared(agreement, against=run.compared_with, baseline=baseline),
        wrong=agreement.verdict == "different",
    )


def compared(agreement: m.RunAgreement, *, against: m.RunKey | None, baseline: m.RunKey | None) -> tuple[str, ...]:
    """What was compared with what, and what came of it. That a run equals itself is not said."""
    parts = []
    other = "baseline" if against == baseline or against is None else against.slug
    for name, total, differing, ties in (
        (other, agreement.compared if against else 0, agreement.differing, agreement.near_ties),
        ("reference", agreement.reference_compared, agreement.reference_differing, agreement.reference_near_ties),
    ):
        if not total:
            continue
        parts.append(f"{count(differing)} of {count(total)} \u2260 {name}" if differing else f"{count(total)} = {name}")
        if ties:
            parts.append(plural(ties, "near-tie"))
    return tuple(parts)


def headline_metrics(run: m.RunReport) -> m.RankMetrics | None:
    """Both sides together under the realistic tie rule."""
    if not isinstance(run.evaluation, m.Evaluation):
        return None
    return next((metric for metric in run.evaluation.metrics if metric.side == SIDE and metric.ties == TIES), None)


def _metrics(run: m.RunReport) -> Cell:
    metrics = headline_metrics(run)
    if metrics is None:
        evaluation = run.evaluation
        return missing(evaluation.reason if isinstance(evaluation, m.Skipped) else "the workload ranks nothing")
    hits = (("1", metrics.hits_at_1), ("3", metrics.hits_at_3), ("10", metrics.hits_at_10))
    details = tuple(f"Hits@{k} {fixed(value, 4)}" for k, value in hits)
    mark = f" {UNKNOWN_MARK}" if overflows(run) else ""
    return Cell(f"{fixed(metrics.mrr, 4)}{mark}", details=details, value=metrics.mrr)


def overflows(run: m.RunReport) -> bool:
    """So many of its candidates are unknown that its metrics must not stand without saying so."""
    return isinstance(run.evaluation, m.Evaluation) and run.evaluation.overflow_share > m.OVERFLOW_TO_SAY


def _dropped(run: m.RunReport) -> Cell:
    if isinstance(run.evaluation, m.Skipped):
        return missing(run.evaluation)
    dropped = run.evaluation.dropped
    plural = {"atoms": dropped.atoms, "children": dropped.children, "facts": dropped.facts, "rules": dropped.rules}
    details = tuple(f"{count(n)} {name}" for name, n in plural.items() if n)
    return Cell(count(dropped.total), details=details, value=float(dropped.total))


def _first_call(run: m.RunReport) -> Cell:
    if not isinstance(run.compile, m.CompileSummary):
        return missing(run.compile)
    if isinstance(run.compile.first_call_s, m.Skipped):
        return missing(run.compile.first_call_s)
    compilations = len(run.compile.compilations)
    return Cell(
        figure(run.compile.first_call_s),
        details=(plural(compilations, "compilation"),),
        value=run.compile.first_call_s,
    )


STEP = RunColumn(
    name="ms/step", title="TIMING: median, range, n steps", cell=lambda run: timed(run.step, 1e-3), details=2, bar=True
)
CANDIDATE = RunColumn(
    name="ms/candidate",
    title="TIMING: whole evaluation over its candidates; median, range, n evaluations",
    cell=lambda run: timed(run.ms_per_candidate),
    details=2,
    bar=True,
)
EVALUATION = RunColumn(
    name="s/evaluation",
    title="TIMING: whole evaluation; median, range, n evaluations",
    cell=lambda run: timed(run.evaluation_time),
    details=2,
    bar=True,
)
_EACH = "TIMING in several processes, one figure (its median) from each round; median of these, range, n rounds"
OVER_ROUNDS = (  # the first of which there is a figure: the quantity that runs are ranked by
    RunColumn(
        name="ms/candidate, rounds",
        title=_EACH,
        cell=_over_rounds(lambda found: found.ms_per_candidate, 1.0),
        details=3,
    ),
    RunColumn(
        name="s/evaluation, rounds", title=_EACH, cell=_over_rounds(lambda found: found.evaluation_time, 1.0), details=3
    ),
    RunColumn(name="ms/step, rounds", title=_EACH, cell=_over_rounds(lambda found: found.step, 1e-3), details=3),
)
SPEEDUP = RunColumn(
    name="speed-up",
    title="baseline's median over this run's; range from the extremes of evaluations, or p10 and p90 of steps; what it "
    "is taken on",
    cell=_speedup,
    details=1,
)
LATER_COLUMNS = (
    RunColumn(
        name="finished",
        title="candidates with a result, of all; their classes; the steps of an evaluation",
        cell=_finished,
    ),
    RunColumn(
        name="MRR",
        title="filtered mean reciprocal rank and Hits@1, 3, 10; head and tail sides together, realistic ties",
        cell=_metrics,
    ),
    RunColumn(name="dropped", title="children, facts and rules that a cap of the engine dropped", cell=_dropped),
    RunColumn(name="first call s", title="COMPILE: wall time of the first call on a cold cache", cell=_first_call),
)
