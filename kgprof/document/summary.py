"""One line per run, as text: the table that every renderer for people shows, so that they cannot
disagree; how each run ended, and what its evaluation came to."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.limits import anchor
from kgprof.document.quantity import (
    DASH,
    count,
    figure,
    fixed,
    if_known,
    of_speedup,
    or_dash,
    percent,
    ratio,
)
from kgprof.document.run_parts import collected, having
from kgprof.document.table import (
    Cell,
    Column,
    Fact,
    Facts,
    Fold,
    Small,
    Table,
    Texts,
    dashed,
    missing,
    number,
    plain,
    row,
    timed,
    whole,
    written,
)
from kgprof.measures.times import PER_STEP, within_process
from kgprof.wording import clause, plural, short

REASONS = 5  # below a verdict; most of them are findings, which follow in full
UNKNOWN_MARK = "\N{DAGGER}"
# those in which torch.compile asks for CUDA graphs
GRAPH_MODES = ("reduce-overhead", "max-autotune")

_RESULTS = {
    m.AgreementVerdict.EQUAL: "equal",
    m.AgreementVerdict.DIFFERENT: "DIFFERENT",
    m.AgreementVerdict.NEAR_TIES: "equal except near-ties",
}


class RunColumn(m.Model, kw_only=False):
    """A figure that each run may have."""

    name: str
    title: str  # what the figure is: unit, pass, statistic
    figure: Callable[[m.RunReport], Cell]
    # of a column of the runs: the same whatever the workload calls its unit and its metrics
    key: str = ""
    details: int = 0  # how many of a cell's details a terminal has room for
    bar: bool = False  # the page shows by a bar how the runs compare

    def cell(self, run: m.RunReport) -> Cell:
        return dashed(self.figure)(run)


def columns(profile: m.Profile) -> Sequence[RunColumn]:
    """The step, and what at least one run has a figure for; where several columns have one key, the
    first of them."""
    shown: dict[str, RunColumn] = {}
    for column in _offered(profile):
        if column.key == "step" or any(column.cell(run).measured for run in profile.runs):
            shown.setdefault(column.key, column)
    return tuple(shown.values())


def _first_call(run: m.RunReport) -> Cell:
    compiled = m.known(run.compile)
    return number(compiled.first_call_s, made(compiled))


def _offered(profile: m.Profile) -> Iterator[RunColumn]:
    runs = profile.runs
    unit = profile.unit
    label = "ms/step"
    step = "Median step time without profiling; below it the range and the number of samples"
    if runs and all(run.script and run.script.is_one_window for run in runs):
        label = "ms, whole program"
        step = "TIMING: from the program's first line to its end"
    yield RunColumn(label, step, _step, "step", details=3, bar=True)
    if any(run.script and isinstance(run.step, m.Skipped) for run in runs):
        about = (
            "COMPILE: median of the steps before the profiler, with kgprof's listeners "
            "on; TRACE's if it is shorter"
        )
        yield RunColumn(
            "about ms/step",
            about,
            lambda run: timed(m.known(run.compile).steady, 1e-3),
            "about",
            details=2,
        )

    # Whole evaluations are timed by their units of work where these are known.
    counted = any(run.counts_units and isinstance(run.per_unit, m.Spread) for run in runs)
    each = f"TIMING: step over its {unit.plural}; median, range, n steps"
    if counted:
        each = f"TIMING: whole evaluation over its {unit.plural}; median, range, n evaluations"
    yield RunColumn(unit.time, each, _unit, "unit", details=3, bar=True)
    if not counted:
        whole = "TIMING: whole evaluation; median, range, n evaluations"
        yield RunColumn(
            "s/evaluation",
            whole,
            lambda run: timed(run.evaluation_time),
            "evaluation",
            details=2,
            bar=True,
        )

    # Over the rounds, the quantity that runs are ranked by.
    rounds = "TIMING: median over all processes of each process's median; range, number of rounds"
    over_rounds = {"s/evaluation": ("evaluation_time", 1.0), "ms/step": ("step", 1e-3)}
    if counted:
        over_rounds = {unit.time: ("per_unit", 1.0), **over_rounds}
    for name, time in over_rounds.items():
        of_rounds = partial(_over_rounds, *time)
        yield RunColumn(f"{name}, all processes", rounds, of_rounds, "rounds", details=3)

    if len(runs) > 1:  # else the baseline is alone
        title = (
            "baseline median / this run's median; whether that is decided; 95 % interval over "
            "processes, or in one process each the extremes of evaluations or p10 and p90 of "
            "steps; what it is taken on"
        )
        yield RunColumn("speed-up", title, _speedup, "speed-up", details=1)
    results = "against the baseline run in full, against the reference on a sample"
    agreement = partial(_results, baseline=profile.baseline)
    yield RunColumn("results", results, agreement, "results", details=1)
    finished = f"{unit.plural} finished, of all; their outcomes; steps per evaluation"
    yield RunColumn("finished", finished, _finished, "finished")
    if metric := next((found[0] for run in runs if (found := headlines(run))), None):
        yield RunColumn(metric.label, metric.title, _metrics, "metrics")
    dropped = "work dropped by the workload's limits"
    yield RunColumn("dropped", dropped, _dropped, "dropped")
    first = "call"
    if any(run.script for run in runs):
        first = "step"
    title = f"COMPILE: wall time of the first {first} with a cold cache"
    yield RunColumn(f"first {first} (s)", title, _first_call, "first call")


def made(compiled: m.CompileSummary) -> str:
    """For below the first call's time: what was compiled in it, before it and in a later call."""
    calls = [one.call for one in compiled.compilations if one.call is not None]
    later = sum(call > 0 for call in calls)
    before = sum(call < 0 for call in calls)
    words = plural(len(compiled.compilations) - before - later, "compilation")
    if before and compiled.while_loading_s:
        words += f", {before:,} while loading ({short(compiled.while_loading_s)} s)"
    elif before:
        words += f", {before:,} before it"
    if later:
        words += f", {later:,} later"
    return words


def ended(run: m.RunReport) -> str:
    """Empty if it ended well."""
    if run.exit.outcome == m.Outcome.OK:
        return ""
    return run.exit.words


def speedup_words(run: m.RunReport) -> str:
    """How often as fast as the baseline, if that is decided."""
    speedup = run.speedup
    if isinstance(speedup, m.Speedup):
        if speedup.ranks:
            return ratio(speedup.ratio)
        return speedup.verdict
    if run.is_baseline:
        return "baseline"
    return DASH


def _is_only_measured(profile: m.Profile) -> bool:
    """Whether nothing judged the program: no gate, no comparison."""
    return not (profile.gate or profile.comparison)


def status_word(profile: m.Profile) -> str:
    """Say in a word how far the first sentence stands. "OK" is the word of a gate or a comparison:
    without one a program was measured, and nobody approved of it."""
    status = profile.verdict.status
    if status is m.VerdictStatus.FAILED and profile.comparison:
        return "Regression"
    if status is not m.VerdictStatus.OK:
        return status.capitalize()
    if _is_only_measured(profile):
        return "Measured"
    return "OK"


def tone(profile: m.Profile) -> m.VerdictStatus:
    """Return the status that gives the first sentence its colour: that of the verdict, but amber
    for a program that was measured and has a warning, which says what to do."""
    status = profile.verdict.status
    warned = any(
        found.level == m.Level.WARNING and not found.accepted for found in profile.findings
    )
    if status is m.VerdictStatus.OK and warned and _is_only_measured(profile):
        return m.VerdictStatus.ATTENTION
    return status


def reasons(profile: m.Profile, at_most: int = REASONS) -> tuple[Texts, int]:
    """Those that stand below the verdict, and how many more there are."""
    every = profile.verdict.reasons
    return every[:at_most], max(0, len(every) - at_most)


# ---------------------------------------------------------------- below the table


def footnotes(profile: m.Profile) -> Texts:
    """What a reader of the table must know, whoever renders it."""
    return (
        *_conditions(profile),
        *_unknown(profile),
        *_graphs(profile),
        *_machine(profile),
    )


def _conditions(profile: m.Profile) -> Iterator[str]:
    """The lines without which metrics and results mean nothing to a stranger."""
    conditions = collected(
        condition
        for _, evaluation in _evaluated(profile.runs)
        for condition in evaluation.conditions.items()
    )
    if conditions:
        words = [
            f"{name} {' or '.join(dict.fromkeys(known))}" for name, known in conditions.items()
        ]
        yield f"The evaluation: {', '.join(words)}."
    compared = (run.compared_with for run in profile.runs)
    against = next((key for key in compared if key), None)
    if against and against != profile.baseline:
        declared = ""
        if profile.baseline:
            declared = f", not with the baseline {profile.baseline.slug}, which left none"
        yield f"Results were compared with those of {against.slug}{declared}."


def _unknown(profile: m.Profile) -> Iterator[str]:
    """One line for all runs with the same counts."""
    lines = []
    for run, evaluation in _evaluated(profile.runs):
        if tally := evaluation.undecided:
            units = evaluation.units
            share = percent(tally.count / units)
            of_all = f"{count(tally.count)} of {plural(units, run.unit.name, run.unit.plural)}"
            why = clause(": ", tally.why)
            effect = clause(", ", tally.effect)
            lines.append((f"{of_all} ({share}) are undecided{why}{effect}", run.slug))
    for unknown, slugs in collected(lines).items():
        yield f"{UNKNOWN_MARK} {', '.join(slugs)}: {unknown}."


def _graphs(profile: m.Profile) -> Iterator[str]:
    """On CUDA, whether the modes that promise CUDA graphs launched any."""
    none = []
    some = []
    for _, run, kernels in having(profile.runs, "kernels", m.KernelBreakdown):
        launches = kernels.graph_launches
        if run.key.mode not in GRAPH_MODES or kernels.device != "cuda":
            continue
        if launches == 0:
            none.append(run.slug)
        elif isinstance(launches, int):
            some.append(f"{run.slug} {count(launches)} in {plural(kernels.steps, 'step')}")
    if none:
        yield f"{', '.join(none)}: no CUDA graph launched in the traced steps."
    if some:
        yield f"CUDA graphs launched in the traced steps: {', '.join(some)}."


def _machine(profile: m.Profile) -> Iterator[str]:
    """How far the machine itself moved while the rounds were timed: what their spread may be."""
    rounds = having(profile.runs, "rounds", m.Rounds)
    known = [
        found.machine
        for *_, found in rounds
        if isinstance(found.machine, m.MachineSpeed)
        and found.machine.host_us
        and found.machine.device_us
    ]
    if known:
        host = [us for speed in known for us in speed.host_us]
        device = [us for speed in known for us in speed.device_us]
        loop, kernel = (f"{figure(min(us))} to {figure(max(us))} µs" for us in (host, device))
        name = "arithmetic on all threads"
        if profile.device == "cuda":
            name = "GPU check kernel"
        yield f"Machine stability across processes: CPU check loop {loop}, {name} {kernel}."


# ---------------------------------------------------------------- cells


def _step(run: m.RunReport) -> Cell:
    """With its CPU time, where other processes may have made it longer."""
    step = m.known(run.step)
    cell = timed(step, 1e-3)
    busy = isinstance(run.load, m.Load) and run.load.is_high
    if within_process(step, PER_STEP).is_steady and not busy:
        return cell
    cpu = if_known(run.cpu, lambda time: f"{figure(time.median / 1e3)} ms CPU time")
    return replace(cell, details=(*cell.details, *cpu))


def _unit(run: m.RunReport) -> Cell:
    cell = timed(m.known(run.per_unit))
    rate = if_known(run.throughput, lambda rate: f"{figure(rate.median)} {rate.unit}")
    return replace(cell, details=(*cell.details, *rate))


def _over_rounds(time: str, scale: float, run: m.RunReport) -> Cell:
    rounds = m.known(run.rounds)
    cell = timed(getattr(rounds, time), scale)
    if not rounds.lost:
        return cell
    return replace(
        cell, details=(*cell.details, f"{len(rounds.lost)} of {rounds.asked} rounds lost")
    )


def _finished(run: m.RunReport) -> Cell:
    evaluation = m.known(run.evaluation)
    if not evaluation.units:
        return missing(f"its evaluation counts no {run.unit.plural}")
    # Outcomes that hold units of work, and those that the workload wants shown always.
    tallies = evaluation.tallied(m.TallyKind.OUTCOME, m.TallyKind.UNDECIDED, m.TallyKind.UNFINISHED)
    outcomes = [
        f"{count(tally.count)} {tally.name}" for tally in tallies if tally.count or tally.always
    ]
    return Cell(
        f"{count(evaluation.finished)}/{count(evaluation.units)}",
        (*outcomes, f"in {plural(evaluation.steps, 'step')}"),
        value=float(evaluation.finished),
        wrong=evaluation.unfinished > 0,
    )


def _speedup(run: m.RunReport) -> Cell:
    if run.is_baseline:
        return Cell("baseline", value=1.0)
    speedup = m.known(run.speedup)
    open_question = ""
    if not speedup.ranks:
        open_question = speedup.verdict
    return written(speedup.ratio, ratio, open_question, of_speedup(speedup), speedup.basis)


def _results(run: m.RunReport, *, baseline: m.RunKey | None) -> Cell:
    """What was compared with what, and what came of it. That a run equals itself is not said."""
    agreement = m.known(run.agreement)
    against = run.compared_with
    details: list[str] = []
    if against:
        other = against.slug
        if against == baseline:
            other = "baseline"
        details += _same(other, agreement.compared, agreement.differing, agreement.near_ties)
    details += _same(
        "reference",
        agreement.reference_compared,
        agreement.reference_differing,
        agreement.reference_near_ties,
    )
    if agreement.sha256:
        details.append(f"sha256 {agreement.sha256[:12]}")
    wrong = agreement.verdict == m.AgreementVerdict.DIFFERENT
    return Cell(_RESULTS[agreement.verdict], tuple(details), wrong=wrong)


def _same(other: str, compared: int, differing: int, ties: int) -> Iterator[str]:
    if differing and compared:
        yield f"{count(differing)} of {count(compared)} \u2260 {other}"
    elif compared:
        yield f"same as {other} ({count(compared)})"
    if ties and compared:
        yield plural(ties, "near-tie")


@m.otherwise(())
def headlines(run: m.RunReport) -> Sequence[m.Metric]:
    """The metrics that the workload wants beside the times."""
    return [metric for metric in m.known(run.evaluation).metrics if metric.headline]


def metric_value(metric: m.Metric) -> str:
    value = or_dash(metric.decimals, partial(fixed, metric.value), figure(metric.value))
    return f"{value} {metric.unit}".rstrip()


def _metrics(run: m.RunReport) -> Cell:
    evaluation = m.known(run.evaluation)
    metrics = headlines(run)
    if not metrics:
        return missing("its evaluation has no metric")
    first, *others = metrics
    value = metric_value(first)
    if evaluation.undecided:
        value += f" {UNKNOWN_MARK}"
    details = tuple(f"{metric.label} {metric_value(metric)}" for metric in others)
    return Cell(value, details, value=first.value)


def _dropped(run: m.RunReport) -> Cell:
    dropped = m.known(run.evaluation).tallied(m.TallyKind.DROPPED)
    if not dropped:
        return missing("its evaluation has no limit that drops work")
    details = [f"{count(tally.count)} {tally.name}" for tally in dropped if tally.count]
    return whole(sum(tally.count for tally in dropped), *details)


def run_table(
    runs: m.Runs, shown: Sequence[RunColumn], label: str, *, anchored: bool = False
) -> Table:
    """``anchored``: links to a run lead to this table, and it says how a run ended."""
    figures = [_column(column, runs) for column in shown]
    rows = []
    for index, run in enumerate(runs):
        tags = [Small((run.key.mode,), "mode")]
        if run.is_baseline:
            tags.append(Small(("baseline",), "tag"))
        head = Cell(run.key.strategy, name=run.slug, below=tags)
        made = row(head, *(of_column[index] for of_column in figures))
        if anchored:
            made = replace(made, anchor=anchor(index))
        if anchored and (ending := ended(run)):
            head = replace(head, details=(ending,))
            made = replace(made, cells=(head, *made.cells[1:]), style="dead")
        rows.append(made)
    headings = [Column(column.name, column.title, details=column.details) for column in shown]
    run_heading = Column("run", style="strategy")
    return plain(label, [run_heading, *headings], rows, style="results sortable")


def _column(column: RunColumn, runs: m.Runs) -> Sequence[Cell]:
    """Its cells, with bars if it has them and there is something to compare."""
    cells = [column.cell(run) for run in runs]
    scale = max((cell.value or 0.0 for cell in cells if cell.measured), default=0.0)
    if column.bar and scale and len(runs) > 1:
        for at, cell in enumerate(cells):
            if cell.value is not None:
                cells[at] = replace(cell, bar=cell.value / scale)
    return cells


def without_constants(table: Table) -> tuple[Table, str]:
    """Columns in which all of several runs have the same go into one line: "finished 7,040/7,040
    (in 188 steps)"."""
    if len(table.rows) < 2:
        return table, ""
    names = ["run"]
    alike = []
    for at, column in enumerate(table.columns[1:], start=1):
        cells = [row.cells[at] for row in table.rows]
        first = cells[0]
        shown = {(cell.text, cell.details, cell.measured, cell.wrong) for cell in cells}
        if len(shown) > 1 or not first.measured or first.wrong or first.bar:
            names.append(column.name)
        else:
            details = clause(" (", first.detail, ")")
            alike.append(f"{column.name} {first.text}{details}")
    if not alike:
        return table, ""
    return table.only(*names), f"Same in all {len(table.rows)} runs: {'; '.join(alike)}."


def strategies(profile: m.Profile) -> Sequence[Fact]:
    """What each strategy that ran computes differently, in the workload's own words."""
    ran = {run.key.strategy for run in profile.runs}
    return [
        (strategy.name, strategy.summary)
        for strategy in profile.strategies
        if strategy.name in ran and strategy.summary
    ]


_COLUMNS = 16  # of metrics, and of what tells them apart


def evaluation_folds(units: str, runs: m.Runs) -> Iterator[Fold]:
    """What became of the units of work, every metric, and the settings; of these what the workload
    declares."""
    tallied, measured, declared = outcomes(runs), metrics(runs), settings(runs)
    if tallied.rows:
        yield Fold(f"Outcomes of the {units}", (tallied,))
    if measured.rows:
        # How to read them, as the workload says it.
        notes = dict.fromkeys(
            evaluation.metrics_note for _, evaluation in _evaluated(runs) if evaluation.metrics_note
        )
        yield Fold("Every metric of the evaluation", (*notes, measured))
    if declared:
        yield Fold("Settings of the evaluation", (Facts(declared),))


def _evaluated(runs: m.Runs) -> list[tuple[m.RunReport, m.Evaluation]]:
    return [(run, found) for _, run, found in having(runs, "evaluation", m.Evaluation)]


def outcomes(runs: m.Runs) -> Table:
    """Every tally of every run; what was left out, and what is wrong, behind the number of
    steps."""
    evaluated = [(run, found) for run, found in _evaluated(runs) if found.units or found.tallies]
    last = (m.TallyKind.DROPPED, m.TallyKind.FAULT)
    tallies = {tally.name: tally for _, evaluation in evaluated for tally in evaluation.tallies}
    before = [tally for tally in tallies.values() if tally.kind not in last]
    behind = [tally for tally in tallies.values() if tally.kind in last]
    rows = []
    for run, evaluation in evaluated:
        counts = Counter({tally.name: tally.count for tally in evaluation.tallies})
        first = [counts[tally.name] for tally in before]
        others = [counts[tally.name] for tally in behind]
        figures = (evaluation.units, *first, evaluation.steps, *others)
        rows.append((run.slug, *map(count, figures)))
    units = ""
    if evaluated:
        units = evaluated[0][0].unit.plural
    first_names, others_names = (
        [tally.heading or tally.name for tally in side] for side in (before, behind)
    )
    headings = ("run", units, *first_names, "steps", *others_names)
    return plain("Outcomes per run", headings, rows)


def metrics(runs: m.Runs) -> Table:
    """One row for each group of metrics; runs with the same figures share their rows."""
    evaluated = _evaluated(runs)
    every = [metric for _, evaluation in evaluated for metric in evaluation.metrics]
    labels = [*dict.fromkeys(metric.label for metric in every)][:_COLUMNS]
    keys = [*dict.fromkeys(key for metric in every for key in metric.group)][:_COLUMNS]
    averaged = [metric.over_what for metric in every if metric.over][:1]

    def figures(metrics: Sequence[m.Metric]) -> tuple[tuple[str, ...], ...]:
        groups = collected(
            (tuple(metric.group.get(key, "") for key in keys), metric) for metric in metrics
        )
        rows = []
        for group, members in groups.items():
            shown = {metric.label: metric_value(metric) for metric in members}
            over = [count(max(metric.over for metric in members)) for _ in averaged]
            rows.append((*group, *over, *(shown.get(label, "") for label in labels)))
        return tuple(rows)

    alike = collected((figures(found.metrics), run.slug) for run, found in evaluated)
    rows = []
    for of_runs, slugs in alike.items():
        names = ", ".join(slugs)
        if len(slugs) > 3:
            names = f"{slugs[0]} and {len(slugs) - 1} others with the same values"
        rows += [(names, *group) for group in of_runs]
    return plain("Metrics of the evaluation", ("runs", *keys, *averaged, *labels), rows)


def settings(runs: m.Runs) -> Sequence[Fact]:
    """Once where all runs agree, else each value with its runs."""
    found = collected(
        (name, (value, run.slug))
        for run, evaluation in _evaluated(runs)
        for name, value in evaluation.settings.items()
    )
    facts: list[Fact] = []
    for name, values in found.items():
        by_value = collected(values)
        each = [*by_value]
        if len(each) > 1:
            each = [f"{value} ({', '.join(slugs)})" for value, slugs in by_value.items()]
        facts.append((name, "; ".join(each)))
    return facts
