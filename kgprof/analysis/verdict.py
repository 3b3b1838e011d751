"""Which run is the fastest, by how much, and whether these times can tell at all; and the report's
first line, in words: what a reviewer should take away if they read nothing else.

Its colour says how far the sentence stands, and nothing else. Green: it stands. Amber: it stands
with a reservation, which the line before or below it names (results that were not compared, a part
of the work undecided, a run in which nothing was compiled, two sources that disagree, an accepted
finding that has expired); or it is inconclusive. Red: something failed. Other warnings are
something to gain and are counted beside the sentence: none makes it doubtful.
"""

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

import msgspec

from kgprof import limits
from kgprof import model as m
from kgprof.collectors import rule_of
from kgprof.collectors.time.break_even import NEVER_BREAKS_EVEN
from kgprof.collectors.trust.nothing_measured import NOTHING_MEASURED
from kgprof.judge import FEWEST_ROUNDS, NOISY, Level
from kgprof.measures import times
from kgprof.measures.times import PER_STEP, Ranked, Unit, ranked, timed, whole_jobs, within_process
from kgprof.wording import and_more, clause, figure, plural, ranges, short

OK, ATTENTION, FAILED, INCONCLUSIVE = m.VerdictStatus
TRACED_TO_NAME = 3  # runs that were only traced, in the first line
# Of CUPTI's records, where its calls were recorded.
LOST = (
    "the profiler may have no right to record the GPU, another one may be recording it, or the "
    "window ended before the kernels did (call torch.cuda.synchronize() before it ends)"
)
GO_ON = (
    m.RunPhase.ANOTHER_KIND_AND_AFTER,
    m.RunPhase.OTHERS_AND_AFTER,
    m.RunPhase.STEP_AND_AFTER,
)


class Remark(m.Model, kw_only=False):
    """A part of the verdict. ``status`` is what the whole verdict is at best, with this in it."""

    text: str
    status: m.VerdictStatus = OK
    notes: tuple[str, ...] = ()  # how far to trust it
    says_step: bool = False  # what a step takes


def fastest(runs: m.Runs, baseline: m.RunKey | None, workload: str = "") -> Remark:
    """The fastest among the runs whose results may be believed, on what all of them have in
    common."""
    if (found := ranked(runs)) is not None:
        return _ranking(found, baseline)
    sound = [run for run in runs if not run.results_differ]
    per_step = timed(sound, lambda run: run.step)
    if not per_step:
        return _untimed(runs)
    if all(run.script is not None and run.script.is_one_window for run, _ in per_step):
        takes = ", ".join(f"{run.slug} takes {_whole(time.median)}" for run, time in per_step)
        takes += " from its first line to its end (no steps)"
        asks = _never_called([run.script for run, _ in per_step if run.script], workload)
        if asks:
            return Remark(takes + asks, ATTENTION)
        return Remark(takes)
    for finished, unit in whole_jobs(sound):
        if finished:
            run, time = finished[0]
            text = f"only {run.slug} has an evaluation to rank by: {unit.say(time.median)}"
            return Remark(text, ATTENTION)
    return Remark(f"the runs cannot be ranked: {times.STEPS_DIFFER}", ATTENTION)


def _never_called(scripts: Sequence[m.ScriptRun], workload: str) -> str:
    """Which functions of a file could have been meant, where the file alone has no steps."""
    functions = [name for script in scripts for name in script.uncalled]
    if not functions or not workload:
        return ""
    target = f"{workload.removeprefix('-m ')}:{functions[0]}"
    return f"; it never calls {functions[0]}(): did you mean kgprof profile {target}?"


def _untimed(runs: m.Runs) -> Remark:
    """What there is instead: the steps of scripts, traces, or compilations of a TORCH_TRACE
    directory."""
    scripts = [
        (run, run.script)
        for run in runs
        if run.script and (run.script.steps or run.script.is_one_window)
    ]
    if scripts:
        remarks = [_about(run, script) for run, script in scripts]
        statuses = [remark.status for remark in remarks]
        text = "; ".join(remark.text for remark in remarks)
        untimed = (run.step.reason for run, _ in scripts if isinstance(run.step, m.Skipped))
        notes = (f"not timed without instruments: {why}" for why in dict.fromkeys(untimed))
        return Remark(text, max(statuses, key=WORST_LAST.index), (*notes,))
    if runs and all(run.exit.failure is not None for run in runs):
        return Remark("")  # how they ended is a headline
    if traced := _traced(runs):
        return traced
    compiled = [run.compile for run in runs if isinstance(run.compile, m.CompileSummary)]
    if compiled and all(run.script is not None and not run.script.counted for run in runs):
        compilations = plural(sum(len(each.compilations) for each in compiled), "compilation")
        among = plural(len(runs), "process", "processes")
        return Remark(f"{compilations} in {among}; a TORCH_TRACE directory holds no times")
    return Remark("no run has a time")


@m.otherwise("")
def _small_part(runs: Sequence[m.RunReport]) -> str:
    """Say of the one script that more of it lies in another kind of step, or in other optimizers'
    steps, than in its own, or most of it behind them; else nothing."""
    if len(runs) != 1 or runs[0].script is None:
        return ""
    account = m.known(runs[0].account)
    phase = max(GO_ON, key=account.share)
    others = account.share(phase)
    is_small = phase is m.RunPhase.STEP_AND_AFTER and others < SPOILED_FROM
    if others <= account.share(m.RunPhase.STEPS) or is_small:
        return ""
    counted = f"what is counted as a step is {runs[0].script.step}"
    return f"{short(100 * others, 2)} % of the run is {account.words(phase)}; {counted}"


def _whole(us: float) -> str:
    """How long a whole program takes."""
    if us >= 1e6:
        return f"{figure(us / 1e6)} s"
    return f"{figure(us / 1e3)} ms"


def _about(run: m.RunReport, script: m.ScriptRun) -> Remark:
    """The step of a script that was not run again for TIMING: as long as it took under the
    instruments."""
    finer = clause("; kgprof.step() at the top of ", script.closure, " makes a step of each call")
    if script.is_one_window:
        untimed = f"{run.slug} has no steps, and was not timed{finer}"
        return Remark(untimed, INCONCLUSIVE)
    steps = f"{run.slug}: {plural(script.steps, 'step')} counted"
    if isinstance(run.compile, m.Skipped):
        return Remark(steps, INCONCLUSIVE)
    steady = run.compile.steady
    if isinstance(steady, m.Skipped):
        text = f"{steps}; no step time: {steady.reason}{finer}"
        return Remark(text, INCONCLUSIVE)
    under = "with kgprof's listeners on"
    if steady.measured_in == m.PassName.TRACE:
        under = "under torch.profiler"
    took = f"about {times.said(steady, PER_STEP)} {PER_STEP.name} ({under})"
    if steady.samples > 1 and within_process(steady, PER_STEP).is_steady:
        if isinstance(run.whole, m.WholeRun) and (mean_us := run.whole.with_recordings_us):
            mean = f"{PER_STEP.say(mean_us)} on average without compiling"
            return Remark(f"{run.slug} takes {mean}, {took} if it records no CUDA graph")
        if run.long_steps is not None:
            return Remark(
                f"{run.slug} takes {took}, in the median; {run.long_steps.words}", ATTENTION
            )
        return Remark(f"{run.slug} takes {took}")
    text = f"{run.slug}: step time not decided"
    if steady.samples == 1:
        text += ": one step was timed"
    return Remark(f"{text}, {took}", INCONCLUSIVE)


def _traced(runs: m.Runs) -> Remark | None:
    """How busy each device was, of runs that were only traced; None where none was."""
    found = [(run.slug, run.kernels) for run in runs if isinstance(run.kernels, m.KernelBreakdown)]
    if not found:
        return None
    remarks = [_busy(slug, kernels) for slug, kernels in found]
    named = "; ".join(remark.text for remark in remarks[:TRACED_TO_NAME])
    status = max((remark.status for remark in remarks), key=WORST_LAST.index)
    return Remark(named + and_more(found, TRACED_TO_NAME), status)


def _busy(slug: str, kernels: m.KernelBreakdown) -> Remark:
    # an empty window has no busy time either
    share = kernels.busy_us / (kernels.window_us or 1.0)
    window = "the traced window, in which no steps are marked"
    if kernels.steps:
        window = plural(kernels.steps, "traced step")
    if kernels.device == "cuda":
        status = OK if share >= limits.MOSTLY else ATTENTION
        return Remark(f"{slug}: GPU busy {100 * share:.1f} % of {window}", status)
    if isinstance(kernels.launches, int):
        launched = plural(kernels.launches, "launch", "launches")
        return Remark(f"{slug}: {launched} and no GPU kernel in the trace; {LOST}", INCONCLUSIVE)
    return Remark(f"{slug}: operators running {100 * share:.1f} % of {window}")


def _undecided(run: m.RunReport, time: m.Spread, unit: Unit) -> Remark | None:
    """Of a run whose median stands for none of its times; None for one whose does."""
    if unit is PER_STEP and (ahead := limits.starts_ahead(run, run.limits)):
        text = f"{run.slug}: step time not decided: {ahead}"
        return Remark(text, INCONCLUSIVE)
    if unit is PER_STEP and time.samples == 1:
        took = f"one step was timed, {unit.say(time.median)}"
        return Remark(f"{run.slug}: step time not decided: {took}", INCONCLUSIVE)
    known = within_process(time, unit)
    if unit is PER_STEP and _only_warmed_up(run):
        took = f"{unit.bare(time.minimum)} to {unit.say(time.maximum)}"
        which = f"only {plural(time.samples, 'step')} of the warm-up were timed"
        text = f"{run.slug}: step time not decided: {which}, {took}"
        return Remark(text, INCONCLUSIVE)
    crowded = unit is PER_STEP and limits.is_crowded(run)
    if known.is_steady and not crowded:
        return None
    took = f"{unit.bare(known.low)} to {unit.say(known.high)}"
    if unit is PER_STEP:
        ends = f"p10 to p90 of {plural(time.samples, 'step')}"
        text = f"{run.slug}: step time not decided, {took} ({ends})"
        if run.long_steps is not None and run.long_steps.longest_us > NOISY * time.p90:
            text += f"; {run.long_steps.words}"
    else:
        ends = plural(time.samples, "evaluation")
        text = f"{run.slug}: evaluation time not decided, {took} ({ends})"
    notes = [times.beside_unsteady(run)]
    if limits.is_gpu_bound(run):
        notes.insert(0, limits.busy_words(run))
    return Remark(text, INCONCLUSIVE, (*filter(None, notes),))


def _only_warmed_up(run: m.RunReport) -> bool:
    """Whether no step of a script came after its warm-up."""
    if run.script is None or isinstance(run.compile, m.Skipped):
        return False
    return isinstance(run.compile.steady, m.Skipped) and not run.script.is_one_window


def processes(*runs: m.RunReport) -> str:
    """How many of them the times that are ranked are from."""
    found = [len(run.rounds.numbers) for run in runs if isinstance(run.rounds, m.Rounds)]
    if len(found) == len(runs) and min(found) >= FEWEST_ROUNDS:
        each = " or ".join(map(str, sorted({*found})))
        return f"{each} processes each"
    return "one process each"


# ---------------------------------------------------------------- ranking


def _ranking(found: Ranked, baseline: m.RunKey | None) -> Remark:
    """By the medians of all rounds where every run has several, else by those of one process
    each."""
    unit, ((first, best), *others) = found.unit, found.runs
    if not others:
        if (undecided := _undecided(first, best, unit)) is not None:
            return undecided
        text = f"{first.slug} takes {unit.say(best.median)}"
        if best.samples == 1 and not found.in_rounds:
            text += ", measured once (n = 1)"
        if unit is PER_STEP and first.long_steps is not None:
            return Remark(f"{text}, in the median; {first.long_steps.words}", ATTENTION)
        return Remark(text, says_step=unit is PER_STEP)
    against, time = next(((run, time) for run, time in others if run.key == baseline), others[0])
    answers = {run.key: answer for (run, _), answer in zip(others, found.answers, strict=True)}
    notes: tuple[str, ...] = (processes(first, *(run for run, _ in others)),)
    notes += tuple(
        f"in {run.slug} {times.slow_first_words(run.slow_first)}"
        for run in (first, against)
        if run.slow_first
    )
    notes += tuple(
        f"in {run.slug} {run.long_steps.words}"
        for run in (first, against)
        if unit is PER_STEP and run.long_steps is not None
    )
    if answers[against.key].verdict is not m.Judged.FASTER:
        why = times.why_not(answers[against.key], first, against, unit)
        figures = (
            f"{first.slug} took {unit.say(best.median)}, {against.slug} {unit.say(time.median)}"
        )
        if isinstance(answers[against.key], Level):
            return Remark(
                f"{first.slug} and {against.slug} are level: {figures}",
                notes=(*notes, why),
            )
        return Remark(f"cannot rank: {figures}; {why}", INCONCLUSIVE, notes)
    close = [
        (run, other) for run, other in others if answers[run.key].verdict is not m.Judged.FASTER
    ]
    names = " and ".join([first.slug, *(run.slug for run, _ in close)][:2])
    names += and_more(close, 1)
    gain = f"{figure(time.median / best.median)}× faster than {against.slug}"
    gain += f" ({unit.bare(best.median)} vs {unit.say(time.median)})"
    if close:
        which, _ = close[0]
        why = times.why_not(answers[which.key], first, which, unit)
        notes += (f"{first.slug} and {which.slug} cannot be told apart: {why}",)
        return Remark(f"{names} are fastest: {gain}", notes=notes)
    text = f"{first.slug} is fastest: {gain}"
    second, next_best = others[0]
    if second is not against:
        text += f" and {figure(next_best.median / best.median)}× faster than {second.slug}"
    return Remark(text, notes=notes)


WORST_LAST = (OK, ATTENTION, INCONCLUSIVE)  # of what a verdict is made of; a failure is a headline
# warnings about what the report rests on
DOUBTS = (m.Topic.COVERAGE, m.Topic.SOURCES, m.Topic.RESULTS)
SPOILED_FROM = 0.5  # of the work: so much of it undecided is said before anything else


def verdict(
    runs: m.Runs,
    findings: m.Findings,
    *,
    baseline: m.RunKey | None,
    interrupted: bool,
    uncompared: str = "",
    balance: m.RankBalance | None = None,
    differences: Sequence[m.TraceDifference] = (),
    expired: Sequence[str] = (),
    actions: Sequence[m.Action] = (),
    workload: str = "",
    hang: str = "",
    untraced: str = "",
) -> m.Verdict:
    """The worst thing that happened leads; what stands in spite of it follows as reasons.

    ``uncompared``: why a workload that can compare its results did not. ``findings``: those that
    nobody accepts. ``actions``: of a script the first of them stands in the first line.
    ``hang``: which collective the ranks wait in. ``untraced``: why the one run on a GPU has no
    TRACE, though it was asked for.
    """
    headlines = _headlines(runs, findings, interrupted=interrupted)
    if hang:
        headlines.insert(0, (FAILED, hang))
    rank = fastest(runs, baseline, workload)
    if untraced and rank.text:
        rank = _untraced(rank, runs[0], untraced)
    results = _results(runs, uncompared)
    work, lead = _work(runs)
    lead = lead or _small_part(runs)
    remarks = [rank, *filter(None, (results,)), *work]
    if balance is not None and balance.straggler is not None:
        remarks.insert(0, Remark(balance.text, ATTENTION))
    elif balance is not None:
        remarks.append(Remark(balance.text))
    remarks += map(_became, differences[:TRACED_TO_NAME])
    added: list[str] = []  # to the first remark
    named: Sequence[m.Location | None] = ()  # in what was added
    if len(runs) == 1:
        limited = _limited(runs[0], rank, acts=bool(actions))
        added += filter(None, (_what_a_step_is(runs[0]), limited))
        if limited:
            named = limits.places(runs[0])
    if balance is not None and (last := _last(runs, balance)):
        added.append(last)
    here = [action for action in actions if not action.only_on_gpu]
    if balance is not None and balance.straggler is not None:
        here = []  # what makes the late rank faster is not known beyond its cause
    bounded = bool(here) and isinstance(here[0].saves, m.Saving)
    if here and any(run.script is not None and (run.script.step or bounded) for run in runs):
        added.append(f"first: {_first(here[0], named)}")
    answer, *further = remarks
    text = "; ".join((answer.text, *added))
    rest = [remark.text for remark in further]
    doubts = [
        each for each in findings if each.level is m.Level.WARNING and rule_of(each).topic in DOUBTS
    ]
    eager = [f for f in findings if f.rule == NOTHING_MEASURED.id and f.level is m.Level.NOTE]
    trust = "; ".join((*answer.notes, *rest, *_by_message((*doubts, *eager))))
    if not headlines:
        statuses = [remark.status for remark in remarks]
        if expired or lead or doubts:
            statuses.append(ATTENTION)
        status = max(statuses, key=WORST_LAST.index)
        # an action has the long sentence of what compiling costs, and that is enough
        costs = {each.finding for each in actions if each.rule == NEVER_BREAKS_EVEN.id}
        others = [f for f in findings if f.fingerprint not in costs and f not in eager]
        notes = (*expired, *_by_message(others))
        return m.Verdict(status=status, lead=lead, text=text, trust=trust, reasons=_once(notes))
    (status, headline), *more = headlines
    said = filter(None, (lead, text, *rest))
    return m.Verdict(
        status=status, text=headline, reasons=_once((*(line for _, line in more), *expired, *said))
    )


def _untraced(rank: Remark, run: m.RunReport, why: str) -> Remark:
    """Say that nothing was looked at but the clock, or not even that."""
    text = f"{rank.text}; what the GPU did is not known: {why}"
    if isinstance(run.step, m.Skipped):
        return Remark("; ".join((text, *rank.notes)), INCONCLUSIVE)
    status = max(rank.status, ATTENTION, key=WORST_LAST.index)
    return msgspec.structs.replace(rank, text=text, status=status)


def _became(one: m.TraceDifference) -> Remark:
    """Of a trace held against another, what became of the whole."""
    if one.total is None:
        return Remark(f"{one.run.strategy} was not compared: {one.missing}", ATTENTION)
    was = f"was {figure(one.total.before_us)}"
    spent = f"{figure(one.total.after_us)} µs of kernels per {one.per}"
    return Remark(f"{one.run.strategy}: {spent}, {was}")


def _what_a_step_is(run: m.RunReport) -> str:
    """Say what a step of a script is, where a reader would take it for more."""
    if run.script is not None and run.script.step in m.CALLS_AS_STEPS:
        return f"a step is {run.script.step}"
    return ""


def _limited(run: m.RunReport, rank: Remark, *, acts: bool) -> str:
    """Say what limits the step, if that is certain enough to stand beside the time."""
    is_gpu_bound = limits.is_gpu_bound(run)
    said = limits.words(run, says_step=rank.says_step)
    if not said and is_gpu_bound:
        return limits.busy_words(run)
    if not said:
        return limits.kernel_words(run) or _idle(run, rank)
    if is_gpu_bound and not acts:
        return f"{said}; no finding is known to save 1 % of the step"
    if not is_gpu_bound and not limits.is_of_the_whole(run) and rank.status is INCONCLUSIVE:
        return ""
    return said


@m.otherwise("")
def _idle(run: m.RunReport, rank: Remark) -> str:
    """Say why nothing is named, where it was seen that the GPU does nothing for most of a trace."""
    undecided = m.known(run.limits).undecided
    if isinstance(run.step, m.Spread) or run.script is not None or rank.status is OK:
        return ""
    return f"what it waits for is not decided: {undecided}"


def _first(action: m.Action, named: Sequence[m.Location | None]) -> str:
    """Name what to do first, and its place unless that was just ``named``; what compiling costs
    stands with the action itself."""
    if action.rule == NEVER_BREAKS_EVEN.id:
        return "its steps took longer than in eager mode"
    if action.location in named and not action.also:
        return action.text
    places = [f"{PurePosixPath(file).name}:{ranges(lines)}" for file, lines in action.lines.items()]
    return ": ".join(filter(None, (", ".join(places), action.text)))


def _last(runs: m.Runs, balance: m.RankBalance) -> str:
    """Say what limits the rank that the others wait for, where nobody is called late."""
    ranks = {load.run: load.rank for load in balance.ranks}
    for run in runs:
        if run.key == balance.last:
            return clause(
                f"rank {ranks.get(run.key)}, which comes last, is ", limits.step_words(run)
            )
    return ""


def _by_message(findings: m.Findings) -> tuple[str, ...]:
    """Each message once, with all its runs."""
    runs: dict[str, dict[str, None]] = {}
    for finding in findings:
        slugs = runs.setdefault(finding.message, {})
        if finding.run:
            slugs[finding.run.slug] = None
    return tuple(clause("", ", ".join(slugs), ": ") + message for message, slugs in runs.items())


def _once(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lines))


def _interrupted(runs: m.Runs) -> str:
    """A run whose process ended may lack what another process was to measure."""
    ended = sum(run.exit.outcome != m.Outcome.INTERRUPTED for run in runs)
    if ended == len(runs):
        return "interrupted before all was measured"
    return f"interrupted: {ended} of {plural(len(runs), 'run')} had ended"


def _headlines(
    runs: m.Runs, findings: m.Findings, *, interrupted: bool
) -> list[tuple[m.VerdictStatus, str]]:
    """(status, sentence), worst first."""
    lines: list[tuple[m.VerdictStatus, str]] = []
    if interrupted:
        lines.append((INCONCLUSIVE, _interrupted(runs)))
    ended = (m.Outcome.OK, m.Outcome.INTERRUPTED)
    failed = [run.how_it_ended for run in runs if run.exit.outcome not in ended]
    for run in runs:
        probe = run.probe_exit  # that of MEMORY and KERNELS
        if probe is not None and probe.outcome not in ended:
            failed.append(f"{run.slug}: its second process {probe.words}")
        if isinstance(run.rounds, m.Rounds) and not interrupted:
            failed += [f"{run.slug}: {lost}" for lost in run.rounds.lost]
    failed += _by_message([finding for finding in findings if finding.level is m.Level.ERROR])
    return [*lines, *((FAILED, text) for text in failed)]


# ---------------------------------------------------------------- what else holds


def _results(runs: m.Runs, uncompared: str) -> Remark | None:
    """What the comparison of results came to. A run that was held against nothing but itself has
    not been compared."""
    if uncompared:
        return Remark(f"results were not compared: {uncompared}", ATTENTION)
    compared = [
        run.agreement
        for run in runs
        if isinstance(run.agreement, m.RunAgreement)
        and (run.compared_with or run.agreement.reference_compared)
    ]
    if any(run.results_differ for run in runs):
        return None
    missing = _without_agreement(runs)
    if not compared:
        if all(isinstance(run.agreement, m.Skipped) for run in runs):
            return None
        text = f"results were not compared: {missing or 'there was no other result'}"
        if len(runs) > 1:
            return Remark(text, ATTENTION)
        return Remark(text)
    text = "results equal"
    if any(agreement.verdict == m.AgreementVerdict.NEAR_TIES for agreement in compared):
        ties = sum(agreement.near_ties + agreement.reference_near_ties for agreement in compared)
        text += f" except for {plural(ties, 'near-tie')}"
    if missing:
        return Remark(f"{text} ({missing})", ATTENTION)
    return Remark(text)


def _without_agreement(runs: m.Runs) -> str:
    """The runs that were not compared, by their reason."""
    by_reason: dict[str, list[str]] = {}
    for run in runs:
        if isinstance(run.agreement, m.Skipped):
            by_reason.setdefault(run.agreement.reason, []).append(run.slug)
    return "; ".join(
        f"{', '.join(names)} not compared: {reason}" for reason, names in by_reason.items()
    )


def _work(runs: m.Runs) -> tuple[tuple[Remark, ...], str]:
    """Whether all of it was finished; and how much of it is not known of the run with the most,
    whose metrics rest on that: the second, to stand before everything else, where that is most of
    it."""
    units = set()
    unknown = []
    unfinished = False
    for run in runs:
        if isinstance(run.evaluation, m.Skipped):
            unfinished = True
            continue
        units.add(run.evaluation.units)
        unfinished |= bool(run.evaluation.unfinished)
        if (tally := run.evaluation.undecided) is not None:
            unknown.append((tally.count / run.evaluation.units, tally, run.evaluation.units))
    unit = next((run.unit for run in runs if run.counts_units), None)
    remarks = []
    if unit is not None and len(units) == 1 and not unfinished:
        remarks.append(Remark(f"all {plural(units.pop(), unit.name, unit.plural)} finished"))
    if not unknown:
        return tuple(remarks), ""
    share, worst, of = max(unknown, key=lambda each: each[0])
    named = "units"
    if unit is not None:
        named = unit.plural
    text = f"{100 * share:.0f} % of the {named} ({worst.count:,} of {of:,}) are undecided"
    text += clause(": ", worst.why)
    if share < SPOILED_FROM:
        return (*remarks, Remark(text, ATTENTION)), ""
    return tuple(remarks), f"{text}; results and times are of truncated work"
