"""Times with their spread, what they are relative to, another run or the same run without the
instrument; what the rounds of one run come to; and the runs by the time that ranks them: what they
have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from statistics import median

from msgspec.structs import replace

from kgprof import model as m
from kgprof.judge import FEWEST_ROUNDS, LEAST, Answer, Doubt, Faster, Samples, Unknown, judge
from kgprof.wording import figure, plural

LOW, HIGH = 0.10, 0.90  # the percentiles that a Spread gives beside the median
NO_BASELINE = m.Skipped("no run is declared as the baseline")
STEPS_DIFFER = "there is no evaluation to compare, and strategies differ in work per step"


class Unit(m.Model):
    """How the verdict says a quantity: in ``name``, ``scale`` times the value that was measured."""

    name: str
    scale: float

    def bare(self, value: float) -> str:
        return figure(value * self.scale)

    def of(self, timed: Run | m.Rounds) -> m.Time:
        """Its time among those of a run, or of several processes."""
        return {PER_STEP: timed.step, PER_EVALUATION: timed.evaluation_time}.get(
            self, timed.per_unit
        )

    def say(self, value: float) -> str:
        return f"{self.bare(value)} {self.name}"

    def ends(self, samples: Samples) -> str:
        return f"{self.bare(samples.low)} to {self.bare(samples.high)}"


PER_EVALUATION = Unit(name="s/evaluation", scale=1.0)
PER_STEP = Unit(name="ms/step", scale=1e-3)


def per_unit(unit: m.WorkUnit) -> Unit:
    return Unit(name=unit.time, scale=1.0)


def spread(
    samples: Sequence[float], unit: str, measured_in: m.PassName = m.PassName.TIMING
) -> m.Time:
    """Skipped when there is no sample."""
    if not samples:
        return m.Skipped(f"{measured_in.upper()} has no sample")
    ordered = sorted(samples)
    middle, low, high = (_percentile(ordered, share) for share in (0.5, LOW, HIGH))
    return m.Spread(middle, low, high, ordered[0], ordered[-1], len(ordered), unit, measured_in)


def _percentile(ordered: Sequence[float], fraction: float) -> float:
    """Linear interpolation between the two nearest samples (numpy's default)."""
    position = fraction * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


@m.skippable
def step_time(timing: m.TimingPass | m.Skipped) -> m.Time:
    """Microseconds a step, over the steps of all evaluations together."""
    return spread(m.known(timing).every_us, "us")


def long_steps(samples: Sequence[float]) -> m.LongSteps | None:
    """None where the median step stands for half of the time of all steps or more."""
    half_us = sum(samples) / 2
    if not samples or median(samples) * len(samples) >= half_us:
        return None
    longest = sorted(samples, reverse=True)
    steps = 1 + next(at for at, us in enumerate(accumulate(longest)) if us >= half_us)
    return m.LongSteps(steps, len(samples), longest[0])


@m.skippable
def cpu_time(timing: m.TimingPass | m.Skipped) -> m.Time:
    """Microseconds of CPU time a step, over steps or groups of steps."""
    cpu_us = m.known(timing).cpu_us
    if not cpu_us:
        return m.Skipped("TIMING did not take CPU times")
    return spread(cpu_us, "us")


def load(timing: m.TimingPass | m.Skipped, before: m.Load | m.Skipped) -> m.Load | m.Skipped:
    """What other processes took of the machine in TIMING, or ``before`` it where that is not
    known."""
    if isinstance(timing, m.TimingPass) and isinstance(timing.load, m.Load):
        return timing.load
    return before


def slow_first_words(ratio: float) -> str:
    return f"the first evaluation took {ratio:.2f} times the median of the others"


@m.skippable
def evaluation_time(timing: m.TimingPass | m.Skipped) -> m.Time:
    """Seconds a whole evaluation."""
    return _seconds(m.known(timing).evaluation_s, NO_EVALUATION)


def _seconds(samples: Sequence[float], without: m.Skipped) -> m.Time:
    if not samples:
        return without
    return spread(samples, "s")


@m.skippable
def unit_time(run: m.RunRecord) -> m.Time:
    """Milliseconds a unit of work."""
    timing = m.known(run.timing)
    return _unit_time(run, timing.every_us, timing.evaluation_s)


@m.skippable
def _unit_time(run: m.RunRecord, step_us: Sequence[float], evaluation_s: Sequence[float]) -> m.Time:
    """Of whole evaluations, only if they finished all units, else the division would flatter;
    without those of steps, if each is so many units."""
    unit = run.unit
    if not evaluation_s and unit.per_step:
        return spread([us / 1000 / unit.per_step for us in step_us], unit.time)
    evaluation = m.known(run.evaluation)
    if evaluation.unfinished:
        return m.Skipped(
            f"{evaluation.unfinished:,} of {evaluation.units:,} {unit.plural} are unfinished"
        )
    if not evaluation.units:
        return m.Skipped(f"the evaluation has no {unit.name}")
    samples = [1000 * seconds / evaluation.units for seconds in evaluation_s]
    return spread(samples, unit.time)


@m.skippable
def throughput(time_a_unit: m.Time, unit: m.WorkUnit) -> m.Time:
    """Units a second, from milliseconds a unit: the quickest sample is the highest rate."""
    time = m.known(time_a_unit)
    if time.minimum <= LEAST:
        return m.Skipped("a measured time is zero, so there is no rate")
    return m.Spread(
        1000 / time.median,
        1000 / time.p90,
        1000 / time.p10,
        1000 / time.maximum,
        1000 / time.minimum,
        time.samples,
        unit.rate,
        time.measured_in,
    )


def observer_costs(run: m.RunRecord) -> tuple[m.ObserverCost, ...]:
    """Median step of each instrumented pass over TIMING's median step; a skipped pass has no row.

    For COMPILE and MEMORY these are the steady calls: what handlers and probes cost once everything
    is compiled.
    """
    bare = step_time(run.timing)
    costs: list[m.ObserverCost] = []
    for name in m.PASSES:
        steps: Sequence[float] = getattr(run.left_by(name), "watched_us", ())
        if steps:
            costs.append(m.ObserverCost(name, _over_bare(steps, bare), len(steps)))
    return tuple(costs)


def _over_bare(steps_us: Sequence[float], bare: m.Time) -> m.Figure:
    if not isinstance(bare, m.Spread):
        return m.Skipped(f"TIMING has no step to compare with: {bare.reason}")
    if bare.median <= 0:
        return m.Skipped("TIMING's median step is zero")
    return _percentile(sorted(steps_us), 0.5) / bare.median


# Times the median step of a script: traced steps with more GPU work say that the CPU runs ahead.
AHEAD = 3.0
LONGER = 1.2  # the same where the program waits for many steps at once
AGAIN = "profile it several times: a script takes no --rounds"
ONE_ROUND = m.Skipped("TIMING ran in one process; --rounds N runs it in N")
NO_EVALUATION = m.Skipped("the workload has no whole evaluation")
_ENTRIES, _FEWEST_ENTRIES = 60, 12  # of steps over time: of a run, and of one of many processes
_BINS = 30
_SLICES = 100  # of an evaluation, evenly: a report holds them of every round
_FAR = 3.0  # times p10 to p90 above the median: from here on a step is no part of the bins
COLD = m.Skipped("no other round was timed, and the first one's caches were cold")


def ahead_words(starts_us: float, work_us: float, mean_us: float) -> str:
    """Say that the CPU starts steps in less time than the GPU takes for them; empty where it does
    not.

    Of a program that does not wait for its steps, the CPU's clock says no more: the median of its
    steps, ``starts_us``, is shorter than their work, and their mean is as long, since it waits
    for many at once.
    """
    if work_us <= AHEAD * starts_us and not LONGER * starts_us < work_us <= mean_us:
        return ""
    starts, work = figure(starts_us / 1e3), figure(work_us / 1e3)
    return f"the CPU starts one every {starts} ms, and a traced one has {work} ms of GPU work"


@m.skippable
def rounds(run: m.RunRecord) -> m.Rounds | m.Skipped:
    """Skipped for one round, and where the first one was not timed."""
    if not run.rounds:
        return ONE_ROUND
    warm = run.timed_rounds.values()
    first_call_s = tuple(found.first_call_s for found in warm)
    timed = [m.known(run.timing), *(found.timing for found in warm)]
    each = [timing.every_us for timing in timed]
    step_us = tuple(median(steps) for steps in each if steps)
    evaluation_s = tuple(median(timing.evaluation_s) for timing in timed if timing.evaluation_s)
    return m.Rounds(
        in_turn=tuple(taken_in_turn(timing) for timing in timed),
        asked=len(run.rounds) + 1,
        numbers=(1, *run.timed_rounds),
        step_us=step_us,
        evaluation_s=evaluation_s,
        warm_first_call_s=first_call_s,
        step=spread(step_us, "us"),
        evaluation_time=_seconds(evaluation_s, NO_EVALUATION),
        # By the units of the first round: each evaluation is the whole of the same work, and each
        # step as much.
        per_unit=_unit_time(run, step_us, evaluation_s),
        warm_first_call=_seconds(first_call_s, COLD),
        graphs_from_cache=tuple(found.graphs_from_cache for found in warm),
        graphs_compiled=tuple(found.graphs_compiled for found in warm),
        machine=_machine([timing.machine for timing in timed]),
        lost=tuple(_lost(run)),
        cold_first_call_s=run.cold_calls_s,
    )


def _lost(run: m.RunRecord) -> Iterator[str]:
    for record in run.rounds:
        if record.number in run.timed_rounds:
            continue
        why = record.exit.words
        if record.exit.outcome == m.Outcome.OK:
            why = "ended without writing its times"
        yield f"round {record.number} {why}"


def taken_in_turn(timing: m.TimingPass) -> m.TakenInTurn | None:
    if not timing.slice_steps:
        return None
    size = timing.slice_steps
    slices = []
    for group in timing.step_us:
        apart = size * max(1, -(-len(group) // (size * _SLICES)))
        slices += [group[at : at + size] for at in range(0, len(group), apart)]
    step_us = tuple(_digits(median(each)) for each in slices)
    return m.TakenInTurn(step_us, timing.evaluation_s)


@m.skippable
def step_series(run: m.RunRecord) -> m.StepSeries | m.Skipped:
    """Of all processes that were timed; what lies far above the others is counted beside the
    bins."""
    timed = {1: m.known(run.timing)}
    timed |= {number: found.timing for number, found in run.timed_rounds.items()}
    entries = max(_FEWEST_ENTRIES, _ENTRIES // len(timed))
    processes = []
    every = list[float]()
    for number, timing in timed.items():
        steps = timing.every_us
        if not steps:
            continue
        every += steps
        size = -(-len(steps) // entries)
        parts = [sorted(steps[at : at + size]) for at in range(0, len(steps), size)]
        processes.append(
            m.ProcessSteps(
                number=number,
                time=m.known(spread(steps, "us")),
                evaluations=tuple(len(group) for group in timing.step_us),
                every=size,
                low_us=tuple(_digits(part[0]) for part in parts),
                middle_us=tuple(_digits(median(part)) for part in parts),
                high_us=tuple(_digits(part[-1]) for part in parts),
            )
        )
    whole = m.known(spread(every, "us"))
    top = whole.maximum
    if whole.p90 > whole.p10:
        top = min(top, whole.median + _FAR * (whole.p90 - whole.p10))
    width = (top - whole.minimum) / _BINS or 1.0
    counts = [0] * _BINS
    for us in every:
        if us <= top:
            counts[min(int((us - whole.minimum) / width), _BINS - 1)] += 1
    return m.StepSeries(
        processes=tuple(processes),
        time=whole,
        bins_from_us=whole.minimum,
        bin_us=width,
        counts=tuple(counts),
        above=len(every) - sum(counts),
    )


def _digits(us: float) -> float:
    """With the five digits that a picture can show."""
    return float(f"{us:.5g}")


@m.skippable
def _machine(speeds: Sequence[m.MachineSpeed | m.Skipped]) -> m.MachineSpeed | m.Skipped:
    """A median of each round, or why one of them has none."""
    known = [m.known(speed) for speed in speeds]
    if not all(speed.host_us and speed.device_us for speed in known):
        return m.Skipped("a round of TIMING has no check of the machine's speed")
    return m.MachineSpeed(
        host_us=tuple(median(speed.host_us) for speed in known),
        device_us=tuple(median(speed.device_us) for speed in known),
    )


Timed = tuple[m.RunReport, m.Spread]


class Ranked(m.Model, kw_only=False):
    """The runs by the time that ranks them, the fastest first, and what the judge says of each
    other one against it."""

    unit: Unit
    in_rounds: bool  # over all rounds, which every run has several of
    runs: tuple[Timed, ...]
    answers: tuple[Answer, ...]  # of ``runs`` from the second on

    @property
    def has_winner(self) -> bool:
        """Whether the first run is faster than each of the others."""
        return bool(self.answers) and all(
            answer.verdict is m.Judged.FASTER for answer in self.answers
        )


def ranked(runs: m.Runs) -> Ranked | None:
    """None where nothing ranks them: no time, or steps that are not the same work."""
    sound = [run for run in runs if not run.results_differ]
    per_step = timed(sound, lambda run: run.step)
    for whole, unit in whole_jobs(sound):
        if len(whole) > 1 or (whole and len(per_step) == 1):
            return _in_order(whole, unit)
    stepped = [run for run, _ in per_step]
    if not stepped or all(run.script is not None and run.script.is_one_window for run in stepped):
        return None
    if any(map(evaluates, stepped)) and len({run.key.strategy for run in stepped}) > 1:
        return None
    return _in_order(per_step, PER_STEP)


def whole_jobs(sound: m.Runs) -> tuple[tuple[list[Timed], Unit], ...]:
    return (
        *((timed(sound, counted_evaluation), per_unit(run.unit)) for run in sound[:1]),
        (timed(sound, uncounted_evaluation), PER_EVALUATION),
    )


def _in_order(found: Sequence[Timed], unit: Unit) -> Ranked:
    rounds = {run.key: time for run, _ in found if (time := over_rounds(run, unit)) is not None}
    runs = sorted(
        ((run, rounds.get(run.key, time)) for run, time in found), key=lambda pair: pair[1].median
    )
    (first, _), *others = runs
    answers = tuple(held(first, run, unit) for run, _ in others)
    return Ranked(unit, len(rounds) == len(found), tuple(runs), answers)


def with_speedups(runs: m.Runs) -> tuple[m.RunReport, ...]:
    """Each against the declared baseline, on what ranks the two."""
    baseline = next((run for run in runs if run.is_baseline), None)
    return tuple(replace(run, speedup=_speedup(run, baseline)) for run in runs)


@m.skippable
def _speedup(run: m.RunReport, baseline: m.RunReport | None) -> m.Speedup | m.Skipped:
    if baseline is None and run.script is None:
        both = f"--mode {run.key.mode} --mode {m.EAGER}"
        return m.Skipped(f"{NO_BASELINE.reason}; {both} compares with eager")
    if baseline is None:
        return NO_BASELINE
    if run is baseline:
        return m.Skipped("this run is the baseline")
    if run.results_differ:
        return m.Skipped("results differ")
    found = ranked([baseline, run])
    if found is None or len(found.runs) < 2:
        m.known(run.step)
        if not isinstance(baseline.step, m.Spread):
            return m.Skipped(f"the baseline has no time: {baseline.step.reason}")
        return m.Skipped(STEPS_DIFFER)
    taken = {each.key: time for each, time in found.runs}
    mine = taken[run.key]
    theirs = taken[baseline.key]
    if mine.minimum <= 0:
        return m.Skipped("a measured time is zero, so there is no ratio")
    fewest = min(mine.samples, theirs.samples)
    basis = "whole evaluation"
    if found.unit is PER_STEP:
        basis = "step"
    if found.in_rounds:
        basis += f", {fewest} processes"
    answer = held(run, baseline, found.unit)
    low: m.Figure = m.Skipped(plural(fewest, "sample"))
    high = low
    if answer.interval:
        low = answer.interval.low
        high = answer.interval.high
    return m.Speedup(theirs.median / mine.median, low, high, basis, answer.verdict)


def counted_evaluation(run: m.RunReport) -> m.Time:
    """What a unit of a whole evaluation takes; steps are compared as they stand."""
    if run.counts_units:
        return run.per_unit
    return m.Skipped("the evaluation counts no units of work")


def uncounted_evaluation(run: m.RunReport) -> m.Time:
    """Of a workload whose evaluation does not say how much work it is: then the whole of it is what
    compares."""
    if run.counts_units:
        return m.Skipped("the evaluation counts its units of work")
    return run.evaluation_time


def evaluates(run: Run) -> bool:
    """Whether it has, or should have, a whole evaluation."""
    return isinstance(run.evaluation_time, m.Spread) or isinstance(run.evaluation, m.Evaluation)


def timed(runs: m.Runs, quantity: Callable[[m.RunReport], m.Time]) -> list[Timed]:
    return [(run, time) for run in runs if isinstance(time := quantity(run), m.Spread)]


# ---------------------------------------------------------------- what the judge is asked


class RunTimes(m.Model, kw_only=False):
    """The times of a run before it has a report."""

    key: m.RunKey
    step: m.Time
    evaluation_time: m.Time
    per_unit: m.Time
    rounds: m.Rounds | m.Skipped
    evaluation: m.Evaluation | m.Skipped
    unit: m.WorkUnit
    script: m.ScriptRun | None

    @property
    def slug(self) -> str:
        return self.key.slug

    @classmethod
    def of(cls, run: m.RunRecord) -> RunTimes:
        timing = run.timing
        times = step_time(timing), evaluation_time(timing), unit_time(run)
        return cls(run.key, *times, rounds(run), run.evaluation, run.unit, run.script)


Run = m.RunReport | RunTimes


@m.otherwise(None)
def over_rounds(run: Run, unit: Unit) -> m.Spread | None:
    """The same quantity over several processes; None where there are too few."""
    found = m.known(unit.of(m.known(run.rounds)))
    if found.samples < FEWEST_ROUNDS:
        return None
    return found


@m.otherwise(())
def columns(run: Run, took: m.Rounds | m.TakenInTurn, unit: Unit) -> Sequence[float]:
    """A time of each round, or of each piece of one."""
    if unit == PER_STEP:
        return took.step_us
    if unit == PER_EVALUATION:
        return took.evaluation_s
    times_ms = [us / 1000 for us in took.step_us]
    units = run.unit.per_step
    if took.evaluation_s:
        times_ms = [1000 * seconds for seconds in took.evaluation_s]
        units = m.known(run.evaluation).units
    if not units:
        return ()
    return [ms / units for ms in times_ms]


@m.skippable
def samples(run: Run, unit: Unit) -> Samples | m.Skipped:
    """What the judge is told of a run."""
    known = within_process(m.known(unit.of(run)), unit)
    if isinstance(run.rounds, m.Rounds):
        numbers = run.rounds.numbers
        in_turn = zip(run.rounds.numbers, run.rounds.in_turn, strict=False)
        each = columns(run, run.rounds, unit)
        pieces = {number: columns(run, took, unit) for number, took in in_turn if took is not None}
        if len(each) == len(numbers):  # else nobody knows which round has none
            return replace(known, rounds=dict(zip(numbers, each, strict=True)), pieces=pieces)
    return known


def within_process(time: m.Spread, unit: Unit) -> Samples:
    """Steps are many and have outliers, whole evaluations are few and all of them count."""
    low = time.minimum
    high = time.maximum
    if unit == PER_STEP:
        low = time.p10
        high = time.p90
    return Samples(time.median, low, high, time.samples, rounds={1: time.median})


def said(time: m.Spread, unit: Unit) -> str:
    """The median where it stands for the times, else their range."""
    known = within_process(time, unit)
    if known.is_steady:
        return unit.bare(time.median)
    return unit.ends(known)


def beside_unsteady(run: m.RunReport) -> str:
    """Say what else was measured of steps that took different times; no cause of that is known."""
    said_of = [run.unlike_steps]
    if isinstance(run.cpu, m.Spread):
        said_of.append(f"CPU time {said(run.cpu, PER_STEP)} {PER_STEP.name}")
    if isinstance(run.load, m.Load) and run.load.is_high:
        said_of.append(run.load.words)
    return "; ".join(filter(None, said_of))


@m.skippable
def unlike_steps(run: m.RunRecord) -> str | m.Skipped:
    """What is not the same in eight of ten steps, by what was counted or timed in each: waits for a
    DataLoader that make up most of the difference, or calls of compiled functions."""
    compiled = m.known(run.compile)
    took = m.known(step_time(run.timing))
    waited = spread(m.known(run.timing).loader_us, "us")
    if isinstance(waited, m.Spread) and 2 * (waited.p90 - waited.p10) > took.p90 - took.p10:
        ends = PER_STEP.ends(within_process(waited, PER_STEP))
        return f"its steps wait for a DataLoader, {ends} ms"
    calls = Counter[int]()
    for each in m.known(m.known(run.records).compiled_calls).callables:
        calls.update(each.calls)
    steady = range(compiled.steady_from, compiled.made)
    counts = sorted(count for step, count in calls.items() if step in steady)
    without = len(steady) - len(counts)
    tenth = len(steady) // 10
    places = tenth - without, len(steady) - 1 - tenth - without
    low, high = (counts[place] if 0 <= place < len(counts) else 0 for place in places)
    if low == high:
        return ""
    times = f"{low:,} to {high:,} times"
    return f"most of its steps that were counted call compiled functions {times}"


@m.skippable
def of_both(run: Run, other: Run, unit: Unit) -> tuple[m.Spread, m.Spread] | m.Skipped:
    """Over rounds where both have them."""
    mine = over_rounds(run, unit)
    theirs = over_rounds(other, unit)
    if mine is not None and theirs is not None:
        return mine, theirs
    return m.known(unit.of(run)), m.known(unit.of(other))


@m.otherwise(Unknown(Doubt.NO_TIME))
def held(run: Run, other: Run, unit: Unit) -> Answer:
    return judge(m.known(samples(run, unit)), m.known(samples(other, unit)))


def why_not(answer: Answer, run: Run, other: Run, unit: Unit) -> str:
    """Why the judge ranks neither of two runs before the other, with the figures; empty if it
    does."""
    sides = {
        each.slug: side for each in (run, other) if isinstance(side := samples(each, unit), Samples)
    }
    if isinstance(answer, Faster) or len(sides) < 2:
        return ""
    if isinstance(answer, Unknown):
        why = answer.why
    elif min(len(side.rounds) for side in sides.values()) >= FEWEST_ROUNDS:
        why = Doubt.STRADDLES
    else:
        why = Doubt.OVERLAP
    low = high = ""
    if answer.interval:
        low = figure(answer.interval.low)
        high = figure(answer.interval.high)
    noisy = max(sides, key=lambda name: sides[name].variation)
    ranges = " vs ".join(unit.ends(side) for side in sides.values())
    sentence = why.format(
        first=run.slug,
        second=other.slug,
        fewest=min(side.count for side in sides.values()),
        noisy=noisy,
        variation=figure(sides[noisy].variation),
        ranges=f"{ranges} {unit.name}",
        low=low,
        high=high,
        rounds=" + ".join(str(len(side.rounds)) for side in sides.values()),
    )
    if why is not Doubt.CLOSE:
        return sentence
    if run.script is None and other.script is None:
        return f"{sentence}; add --rounds 3"
    return f"{sentence}; {AGAIN}"
