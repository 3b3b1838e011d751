"""One line per run, as text: the table that every renderer for people shows, so that they cannot disagree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from kgprof import model as m
from kgprof.render.quantity import count, figure, fixed, percent, ratio
from kgprof.render.spread import of_speedup
from kgprof.render.table import Cell, missing, number, timed
from kgprof.wording import plural

UNKNOWN_MARK = "\N{DAGGER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunColumn:
    """A figure that each run may have."""

    name: str
    title: str  # what the figure is: unit, pass, statistic
    cell: Callable[[m.RunReport], Cell]
    key: str = ""  # of a column of the runs: the same whatever the workload calls its unit and its metrics
    details: int = 0  # how many of a cell's details a terminal has room for
    bar: bool = False  # the page shows by a bar how the runs compare


def columns(profile: m.Profile) -> tuple[RunColumn, ...]:
    """The columns that at least one run has a figure for; a workload without an evaluation has no metrics."""
    counted = any(run.counts_units and isinstance(run.per_unit, m.Spread) for run in profile.runs)
    return tuple(
        column
        for column in _all_columns(profile, counted=counted)
        if (_anywhere(column, profile) or column is STEP)
        and not (column is SPEEDUP and len(profile.runs) == 1)  # the baseline alone
        and not (column is EVALUATION and counted)  # the same times, as a unit's share
    )


def _anywhere(column: RunColumn, profile: m.Profile) -> bool:
    return any(column.cell(run).measured for run in profile.runs)


def _all_columns(profile: m.Profile, *, counted: bool) -> tuple[RunColumn, ...]:
    """``counted``: whole evaluations are timed by their units of work."""
    unit, metric = profile.unit, next((headline[0] for run in profile.runs if (headline := headlines(run))), None)
    each = RunColumn(
        key="unit",
        name=unit.time,
        title=f"TIMING: whole evaluation over its {unit.plural}; median, range, n evaluations"
        if counted
        else f"TIMING: step over its {unit.plural}; median, range, n steps",
        cell=_unit,
        details=3,
        bar=True,
    )
    rounds_of_units = RunColumn(
        key="rounds",
        name=f"{unit.time}, rounds",
        title=_EACH,
        cell=_over_rounds(lambda found: found.per_unit, 1.0),
        details=3,
    )
    # The first of which there is a figure: the quantity that runs are ranked by.
    over_rounds = ((rounds_of_units,) if counted else ()) + OVER_ROUNDS
    results = RunColumn(
        key="results",
        name="results",
        title="against the baseline run in full, against the reference on a sample",
        cell=partial(_results, baseline=profile.baseline),
        details=1,
    )
    finished = RunColumn(
        key="finished",
        name="finished",
        title=f"{unit.plural} with a result, of all; what became of them; the steps of an evaluation",
        cell=_finished,
    )
    metrics = (
        () if metric is None else (RunColumn(key="metrics", name=metric.label, title=metric.title, cell=_metrics),)
    )
    further = [column for column in over_rounds if _anywhere(column, profile)][:1]
    return (STEP, each, EVALUATION, *further, SPEEDUP, results, finished, *metrics, DROPPED, FIRST_CALL)


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
    against, stand_in = next((run.compared_with for run in profile.runs if run.compared_with is not None), None), ""
    if against is not None and against != profile.baseline:
        declared = f", not with the baseline {profile.baseline.slug}, which left none" if profile.baseline else ""
        stand_in = f"Results were compared with those of {against.slug}{declared}."
    notes = (
        _conditions(profile),
        stand_in,
        *_unknown(profile),
        *_compiled_in_eager(profile),
        *_graphs(profile),
        _machine(profile),
    )
    return tuple(note for note in notes if note)


def _conditions(profile: m.Profile) -> str:
    """The line without which the metrics mean nothing to a stranger."""
    values: dict[str, dict[str, None]] = {}
    for run in profile.runs:
        declared = run.evaluation.conditions if isinstance(run.evaluation, m.Evaluation) else {}
        for name, value in declared.items():
            values.setdefault(name, {})[value] = None
    conditions = [f"{name} {' or '.join(known)}" for name, known in values.items()]
    return f"The evaluation: {', '.join(conditions)}." if conditions else ""


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
        if kernels.graph_launches == 0:
            none.append(run.key.slug)
        elif isinstance(kernels.graph_launches, int):
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
    loops = ([us for speed in known for us in speed.host_us], [us for speed in known for us in speed.device_us])
    host, device = (f"{figure(min(us))} to {figure(max(us))} us" for us in loops)
    return f"The machine itself, over the rounds: a turn of the host's loop took {host}, the device's kernel {device}."


def _unknown(profile: m.Profile) -> tuple[str, ...]:
    """One line for all runs with the same counts."""
    lines: dict[str, list[str]] = {}
    for run in profile.runs:
        if isinstance(run.evaluation, m.Evaluation) and (tally := run.evaluation.undecided) is not None:
            units = run.evaluation.units
            of_all = f"{count(tally.count)} of {plural(units, run.unit.name, run.unit.plural)}"
            unknown = f"{of_all} ({percent(tally.count / units)}) are unknown{f': {tally.why}' if tally.why else ''}"
            lines.setdefault(", ".join(part for part in (unknown, tally.effect) if part), []).append(run.key.slug)
    return tuple(f"{UNKNOWN_MARK} {', '.join(runs)}: {unknown}." for unknown, runs in lines.items())


# ---------------------------------------------------------------- cells


def _unit(run: m.RunReport) -> Cell:
    cell, rate = timed(run.per_unit), run.throughput
    if isinstance(rate, m.Skipped):
        return cell
    return replace(cell, details=(*cell.details, f"{figure(rate.median)} {rate.unit}"))


def _over_rounds(quantity: Callable[[m.Rounds], m.Spread | m.Skipped], scale: float) -> Callable[[m.RunReport], Cell]:
    def cell(run: m.RunReport) -> Cell:
        if isinstance(run.rounds, m.Skipped):
            return missing(run.rounds)
        found = timed(quantity(run.rounds), scale)
        lost = (f"{len(run.rounds.lost)} of {run.rounds.asked} rounds lost",) if run.rounds.lost else ()
        return replace(found, details=(*found.details, *lost))

    return cell


def _finished(run: m.RunReport) -> Cell:
    evaluation = run.evaluation
    if isinstance(evaluation, m.Skipped):
        return missing(evaluation)
    if not evaluation.units:
        return missing(f"its evaluation counts no {run.unit.plural}")
    text = f"{count(evaluation.finished)}/{count(evaluation.units)}"
    return Cell(
        text,
        details=(*outcomes(evaluation), f"in {plural(evaluation.steps, 'step')}"),
        value=float(evaluation.finished),
        wrong=evaluation.unfinished > 0,
    )


def outcomes(evaluation: m.Evaluation) -> tuple[str, ...]:
    """Those that hold units of work, and those that the workload wants shown always."""
    kinds = (m.TallyKind.OUTCOME, m.TallyKind.UNDECIDED, m.TallyKind.UNFINISHED)
    tallies = evaluation.tallied(*kinds)
    return tuple(f"{count(tally.count)} {tally.name}" for tally in tallies if tally.count or tally.always)


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


def headlines(run: m.RunReport) -> tuple[m.Metric, ...]:
    """The metrics that the workload wants beside the times."""
    if not isinstance(run.evaluation, m.Evaluation):
        return ()
    return tuple(metric for metric in run.evaluation.metrics if metric.headline)


def metric_value(metric: m.Metric) -> str:
    value = figure(metric.value) if metric.decimals is None else fixed(metric.value, metric.decimals)
    return f"{value} {metric.unit}".rstrip()


def _metrics(run: m.RunReport) -> Cell:
    if isinstance(run.evaluation, m.Skipped):
        return missing(run.evaluation)
    metrics = headlines(run)
    if not metrics:
        return missing("its evaluation has no metric")
    mark = f" {UNKNOWN_MARK}" if run.evaluation.undecided is not None else ""
    details = tuple(f"{metric.label} {metric_value(metric)}" for metric in metrics[1:])
    return Cell(f"{metric_value(metrics[0])}{mark}", details=details, value=metrics[0].value)


def _dropped(run: m.RunReport) -> Cell:
    if isinstance(run.evaluation, m.Skipped):
        return missing(run.evaluation)
    dropped = run.evaluation.tallied(m.TallyKind.DROPPED)
    if not dropped:
        return missing("its evaluation has no limit that drops work")
    total = sum(tally.count for tally in dropped)
    details = tuple(f"{count(tally.count)} {tally.name}" for tally in dropped if tally.count)
    return Cell(count(total), details=details, value=float(total))


def _first_call(run: m.RunReport) -> Cell:
    if not isinstance(run.compile, m.CompileSummary):
        return missing(run.compile)
    return number(run.compile.first_call_s, plural(len(run.compile.compilations), "compilation"))


STEP = RunColumn(
    key="step",
    name="ms/step",
    title="TIMING: median, range, n steps",
    cell=lambda run: timed(run.step, 1e-3),
    details=2,
    bar=True,
)
EVALUATION = RunColumn(
    key="evaluation",
    name="s/evaluation",
    title="TIMING: whole evaluation; median, range, n evaluations",
    cell=lambda run: timed(run.evaluation_time),
    details=2,
    bar=True,
)
_EACH = "TIMING in several processes, one figure (its median) from each round; median of these, range, n rounds"
OVER_ROUNDS = (
    RunColumn(
        key="rounds",
        name="s/evaluation, rounds",
        title=_EACH,
        cell=_over_rounds(lambda found: found.evaluation_time, 1.0),
        details=3,
    ),
    RunColumn(
        key="rounds", name="ms/step, rounds", title=_EACH, cell=_over_rounds(lambda found: found.step, 1e-3), details=3
    ),
)
SPEEDUP = RunColumn(
    key="speed-up",
    name="speed-up",
    title="baseline's median over this run's; range from the extremes of evaluations, or p10 and p90 of steps; what it "
    "is taken on",
    cell=_speedup,
    details=1,
)
DROPPED = RunColumn(key="dropped", name="dropped", title="work that the workload's limits left out", cell=_dropped)
FIRST_CALL = RunColumn(
    key="first call",
    name="first call s",
    title="COMPILE: wall time of the first call on a cold cache",
    cell=_first_call,
)
