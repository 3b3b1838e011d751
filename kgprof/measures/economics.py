"""Does compiling pay? What torch itself says that compiling took, against what each step then saves
over eager.

With W for the seconds of all compilations and t for the time of a steady step, n steps save as much
at n = W / (t eager - t compiled). What first calls take besides (autotuning, recording CUDA graphs,
imports) is no part of W.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from kgprof import model as m
from kgprof.judge import APART, Answer
from kgprof.measures.kernels import of_trace
from kgprof.measures.times import (
    PER_STEP,
    RunTimes,
    Unit,
    ahead_words,
    cpu_time,
    held,
    of_both,
    over_rounds,
    per_unit,
    step_time,
    why_not,
)
from kgprof.reading.evidence import RunEvidence
from kgprof.wording import figure, plural, short

UNTIMED = m.Skipped("no times were requested")
RESULTS_DIFFER = "results differ"
NO_GRAPH = "torch made no graph of what it tried to compile"
OTHER_STEPS = m.Skipped("with compiling switched off its steps are counted in another way")
COMPILED_WHILE_TIMED = "torch compiled in the steps that were timed"
LEVEL = m.Skipped("level with eager")
NOT_RECOVERED = m.Skipped("slower than eager")
COMPILES_LATER = m.Skipped("torch also compiles after warm-up")
EAGER_COMPILES = m.Skipped("torch also compiles in mode eager")
NO_START = m.Skipped("no process with cold caches was measured")
NEVER = m.Skipped("a step is not faster")
NOT_KNOWN = m.Skipped("the gain of a step is within the noise between processes")
ONE_START = m.Skipped("one cold start, which gives no interval; --repeats 3 makes three")
NOTHING_PAID = m.Skipped(
    "it starts as fast as eager within the noise, so there is no cost to recover"
)
PAYOFFS = {
    m.Judged.FASTER: m.Payoff.PAYS,
    m.Judged.SLOWER: m.Payoff.NEVER,
    m.Judged.LEVEL: m.Payoff.LEVEL,
    m.Judged.UNDECIDED: m.Payoff.UNDECIDED,
}
UNRECOVERED = {m.Payoff.LEVEL: LEVEL, m.Payoff.NEVER: NOT_RECOVERED}
UNKNOWN = (m.Payoff.NOT_OBSERVED, m.Payoff.UNDECIDED)
COMPARED = {
    m.Payoff.PAYS: "faster than eager: ",
    m.Payoff.LEVEL: "level with eager: ",
    m.Payoff.NEVER: "slower than eager: ",
    m.Payoff.UNDECIDED: "cannot tell whether it is faster than eager: ",
    m.Payoff.NOT_OBSERVED: "not compared with eager: ",
}
PREDICTED = ("break_even", "of_100", "returns")
OTHERWISE = 0.05  # of the steps or the calls that were timed: so many may run no compiled code
DRAWS, SEED, TAIL = 20_000, 15, 0.025  # of a prediction: 95 % lie between both tails
# times the deviation of all others: says nothing about theirs (by chance in 1 of 200 sets of three)
OUTLYING = 5.0
Estimated = m.Estimate | m.Skipped
Floats = npt.NDArray[np.float64]


@m.skippable
def economics(evidence: RunEvidence) -> m.Economics | m.Skipped:
    """What compiling this run costs and saves; Skipped where it compiled nothing, and where no
    times were asked for."""
    run = evidence.record
    if evidence.whole.recording.header.options.untimed:
        if run.script is None:
            return UNTIMED
        m.known(run.timing)
        m.known(run.eager_timing)
    if run.key.is_eager:
        return m.Skipped("mode eager is what compiled runs are compared with")
    compiled = m.known(run.compile)
    if not compiled.compilations:
        return m.Skipped(m.nothing_compiled(compiled.unused))
    eager = _eager(evidence)
    times = _times(run, eager)
    why = next(filter(None, _not_compared(evidence, eager, times)), "")
    verdict = times.verdict
    if why:
        verdict = m.Payoff.NOT_OBSERVED
    cold_s = _took_s(compiled)
    cold: m.BreakEven | m.Skipped = m.Skipped(why or times.doubt)
    if verdict not in UNKNOWN:
        cold = _break_even(evidence, eager, times, verdict)
    return m.Economics(
        run=run.key,
        eager=m.RunKey(run.key.strategy, m.EAGER),
        cold_s=cold_s,
        per=times.per,
        compiled_time=times.compiled,
        eager_time=times.eager,
        rounds=times.rounds,
        saved_us=times.saved_us,
        cold=cold,
        verdict=verdict,
        text=_text(cold_s, cold, times, verdict, run),
    )


def _took_s(compiled: m.CompilePass) -> m.Figure:
    """As torch timed it: of compilations inside of one another it gives the outermost alone."""
    took = [each.duration_s for each in compiled.compilations]
    known = [seconds for seconds in took if isinstance(seconds, float)]
    if not known:
        return m.Skipped("torch gave no duration of its compilations")
    return sum(known)


@m.skippable
def _eager(evidence: RunEvidence) -> m.RunRecord | m.Skipped:
    """The same strategy in mode eager; of a script itself with compiling switched off."""
    run = evidence.record
    key = m.RunKey(run.key.strategy, m.EAGER)
    if run.script is None:
        found = evidence.whole.run(key)
        if found:
            return found.record
        both = f"--mode {run.key.mode} --mode {m.EAGER}"
        return m.Skipped(f"this strategy was not run in mode eager; {both} runs it in both")
    eager = m.known(run.eager_timing)
    if m.known(run.timing).step != eager.step:
        return OTHER_STEPS
    return replace(run, key=key, timing=eager)


def _not_compared(
    evidence: RunEvidence, eager: m.RunRecord | m.Skipped, times: _Times
) -> Iterator[str]:
    """Give each reason why the times of a run are not those of compiled code beside eager's."""
    run = evidence.record
    compiled = m.known(run.compile)
    if all(each.fail_reason or each.operators == 0 for each in compiled.compilations):
        yield NO_GRAPH
    yield from _otherwise(evidence, compiled)
    if isinstance(eager, m.Skipped):
        yield eager.reason
        return
    for time in (times.compiled, times.eager):
        if not isinstance(time, m.Spread):
            yield time.reason
    # Where eager's differ from the baseline's as well, that is another program's result and says
    # nothing of compiling.
    agreement = evidence.whole.recording.agreement
    if _differs(agreement, run.key) and not _differs(agreement, eager.key):
        yield RESULTS_DIFFER
    rounds = (*run.timed_rounds.values(), *eager.timed_rounds.values())
    timings = [run.timing, eager.timing, *(each.timing for each in rounds)]
    if any(isinstance(timing, m.TimingPass) and timing.compiled for timing in timings):
        yield COMPILED_WHILE_TIMED
    yield _crowded(run.timing, eager.timing)
    for timing in (run.timing, eager.timing):
        yield _ahead(evidence, timing)


@m.otherwise("")
def _ahead(evidence: RunEvidence, timing: m.TimingPass | m.Skipped) -> str:
    """Say that the CPU starts a script's steps faster than the GPU does them: its clock does not
    tell how long they take."""
    found = m.known(evidence.once(of_trace))
    every_us = m.known(timing).every_us
    if evidence.record.script is None or found.device != "cuda" or not (found.steps and every_us):
        return ""
    return ahead_words(median(every_us), found.busy_us / found.steps, fmean(every_us))


@m.otherwise("")
def _crowded(compiled: m.TimingPass | m.Skipped, eager: m.TimingPass | m.Skipped) -> str:
    """Say that other processes were in the way of one side more than of the other: the ratio of the
    CPU times is another one."""
    ratios = []
    for time_of in (step_time, cpu_time):
        ratios.append(m.known(time_of(eager)).median / m.known(time_of(compiled)).median)
    loads = [each.load for each in (m.known(compiled), m.known(eager))]
    busy = [load for load in loads if isinstance(load, m.Load) and load.is_high]
    if not busy or max(ratios) < APART * min(ratios):
        return ""
    wall, cpu = (figure(ratio, 2) for ratio in ratios)
    return f"{busy[0].words}, and eager took {wall} times as long, in CPU time {cpu} times"


@m.otherwise(False)
def _differs(agreement: m.Agreement | m.Skipped, key: m.RunKey) -> bool:
    judged = dict(m.known(agreement).runs).get(key)
    return isinstance(judged, m.RunAgreement) and judged.verdict == m.AgreementVerdict.DIFFERENT


def _otherwise(evidence: RunEvidence, compiled: m.CompilePass) -> Iterator[str]:
    """Say what the steps after warm-up do besides running compiled code, as far as calls were
    counted; TIMING leaves out those of a script in which torch compiles."""
    trace = evidence.compiler
    steady = range(compiled.steady_from, compiled.made)
    compiling = _compiling(evidence, compiled)
    steps = len(steady) - sum(step in steady for step in compiling)
    if trace is None or not steps:
        return
    counted = trace.all.compiled_calls
    if isinstance(counted, m.Skipped):
        return

    def steady_counts(counts: Mapping[int, int]) -> list[int]:
        """The counts of the steps after warm-up in which nothing was compiled."""
        return [count for step, count in counts.items() if step in steady and step not in compiling]

    after = f"{plural(steps, 'step')} after warm-up without a compilation"
    if asking := steady_counts(counted.asked):
        yield f"torch.compile is called in {len(asking)} of {after}"
    if counted.left_out or any(each.compiled_before for each in counted.callables):
        return
    calls = Counter[int]()
    eager = Counter[int]()
    for each in counted.callables:
        calls.update(each.calls)
        eager.update(each.eager)
    without = steps - len(steady_counts(calls))
    if counted.callables and without > OTHERWISE * steps:
        yield f"{without:,} of {after} call no compiled function"
    made = sum(steady_counts(calls))
    ran_eagerly = sum(steady_counts(eager))
    if ran_eagerly > OTHERWISE * made:
        of = f"{plural(made, 'call')} of compiled functions"
        yield f"{ran_eagerly:,} of {of} ran eagerly in {after}"


def _compiling(evidence: RunEvidence, compiled: m.CompilePass) -> set[int]:
    """The calls, or steps of a script, in which torch compiled."""
    calls = {*compiled.compiled_in}
    if evidence.compiler is not None:
        calls |= {each.call for each in evidence.compiler.compiled}
    return calls


class _Times(m.Model, kw_only=False):
    compiled: m.Time
    eager: m.Time
    unit: Unit = PER_STEP
    rounds: int = 1
    answer: Answer | None = None  # of the compiled run against the eager one
    doubt: str = ""  # why the judge ranks neither before the other

    @property
    def per(self) -> str:
        return self.unit.name.partition("/")[2]

    @property
    def to_us(self) -> float:
        if self.unit is PER_STEP:
            return 1.0
        return 1000.0

    @property
    @m.skippable
    def saved_us(self) -> m.Figure:
        compiled = m.known(self.compiled)
        return (m.known(self.eager).median - compiled.median) * self.to_us

    @property
    def verdict(self) -> m.Payoff:
        if self.answer is None:
            return m.Payoff.NOT_OBSERVED
        return PAYOFFS[self.answer.verdict]


def _times(run: m.RunRecord, eager: m.RunRecord | m.Skipped) -> _Times:
    """Of units of work where both runs finished theirs; over rounds where both have them."""
    mine = RunTimes.of(run)
    if isinstance(eager, m.Skipped):
        return _Times(mine.step, eager)
    theirs = RunTimes.of(eager)
    units = [PER_STEP]
    if isinstance(run.evaluation, m.Evaluation) and isinstance(eager.evaluation, m.Evaluation):
        units.insert(0, per_unit(run.unit))
    for unit in units:
        both = of_both(mine, theirs, unit)
        if isinstance(both, m.Skipped):
            continue
        rounds = 1
        if both == (over_rounds(mine, unit), over_rounds(theirs, unit)):
            rounds = min(time.samples for time in both)
        answer = held(mine, theirs, unit)
        doubt = why_not(answer, mine, theirs, unit)
        return _Times(*both, unit, rounds, answer, doubt)
    return _Times(mine.step, theirs.step)


@m.skippable
def _break_even(
    evidence: RunEvidence, eager: m.RunRecord | m.Skipped, times: _Times, verdict: m.Payoff
) -> m.BreakEven | m.Skipped:
    """Of a run that is faster, and compiles nothing more once it is warm."""
    run = evidence.record
    made = m.known(run.compile)
    if max(_compiling(evidence, made), default=0) >= max(1, made.steady_from):
        return COMPILES_LATER
    if run.script is None and m.known(m.known(eager).compile).compilations:
        return EAGER_COMPILES
    if verdict in UNRECOVERED:
        return UNRECOVERED[verdict]
    paid_s = m.known(_took_s(made))
    saved_us = m.known(times.saved_us)
    compiled = m.known(times.compiled)
    # steps, or units of work, of which a step advances many
    many = paid_s * 1e6 / saved_us
    after_s = many * compiled.median * times.to_us / 1e6
    if isinstance(run.evaluation, m.Evaluation) and run.evaluation.units:
        steps_each = run.evaluation.steps / run.evaluation.units
    elif run.unit.per_step:
        steps_each = 1 / run.unit.per_step
    else:
        uncounted = m.Skipped(f"the workload counts no {run.unit.plural}")
        return m.BreakEven(many, uncounted, after_s)
    if times.unit is not PER_STEP:
        return m.BreakEven(many * steps_each, many, after_s)
    if not steps_each:
        return m.BreakEven(many, m.Skipped("its evaluation counts no step"), after_s)
    return m.BreakEven(many, many / steps_each, after_s)


def _text(
    cold_s: m.Figure,
    cold: m.BreakEven | m.Skipped,
    times: _Times,
    verdict: m.Payoff,
    run: m.RunRecord,
) -> str:
    """Say how the times compare, and what compiling took."""
    compared = COMPARED[verdict]
    if verdict in UNKNOWN and not isinstance(cold, m.BreakEven):
        compared += cold.reason
    if verdict is m.Payoff.UNDECIDED:
        compared += "; "
    if verdict is not m.Payoff.NOT_OBSERVED:
        compared += _figures(times, run)
    if not isinstance(cold_s, float):
        return compared
    text = f"{compared}; compiling took {short(cold_s)} s with cold caches"
    if isinstance(cold, m.BreakEven):
        return f"{text} and pays off after {plural(round(cold.steps), 'step')}"
    if cold is NOT_RECOVERED:
        text += " and is not recovered"
    return text


def _figures(times: _Times, run: m.RunRecord) -> str:
    compiled = m.known(times.compiled)
    eager = m.known(times.eager)
    samples = "medians, in one process each"
    if times.rounds > 1:
        samples = f"medians of {times.rounds} rounds"
    scale = times.unit.name.partition("/")[0]
    wrapped = ""
    # under set_stance("force_eager") 4 to 15 us for each call of a compiled function (torch 2.13)
    if run.key.mode == m.AS_IS:
        wrapped = " with torch's wrapper"
    return (
        f"{times.unit.bare(compiled.median)} {scale} per {times.per}, "
        f"{times.unit.bare(eager.median)} {scale} in mode eager{wrapped} (TIMING, {samples})"
    )


# ---------------------------------------------------------------- predicted for new processes


class Noise(NamedTuple):
    """How samples of one kind vary: of their logarithms the variance, and its degrees of
    freedom."""

    variance: float
    freedom: int

    @classmethod
    def pooled(cls, kinds: Iterable[Sequence[float]]) -> Noise | None:
        """Of several kinds, each about its own mean, without those that are OUTLYING; None if none
        has two samples."""
        logs = sorted((np.log(samples) for samples in kinds if len(samples) > 1), key=np.var)
        while len(logs) > 2:
            others = np.mean([np.var(each) for each in logs[:-1]]) ** 0.5
            if np.std(logs[-1]) <= OUTLYING * others:
                break
            logs.pop()
        freedom = sum(len(each) - 1 for each in logs)
        if not freedom:
            return None
        summed = sum(float(np.var(each)) * len(each) for each in logs)
        return cls(summed / freedom, freedom)


class Sample(NamedTuple):
    """What the processes of one cell took, one sample each, and how such samples vary in all cells
    that are alike."""

    first_s: Sequence[float]  # the calls before steady state together
    calls: int  # how many those are
    step_us: Sequence[float]
    start_noise: Noise | None
    step_noise: Noise | None


def predicted(cell: Sample, other: Sample, steps: int) -> dict[str, Estimated]:
    """Of two new processes: after how many steps the first has taken less time ("never" where a
    step is not faster, "not known" where its gain may be zero), the seconds that 100 steps save,
    and (saved - paid) / paid after ``steps``.

    Start and step are log-normal over processes. n samples whose logarithms have mean x and
    deviation s predict a further one by x + s * sqrt(1 + 1/n) * T, with T of Student's distribution
    (Meeker, Hahn, Escobar: Statistical Intervals, 2nd ed. 2017, chapter 4). s is that of all cells
    together, which one machine makes noisy, or the cell's own if that is larger. DRAWS of each,
    from a fixed seed, give the distribution of the ratio of differences, of which the middle 95 %
    are the interval. If the denominator may be zero there is no bounded one (Fieller 1954).
    """
    random = np.random.default_rng(SEED)
    sides = list[tuple[Floats, Floats]]()
    for each in (cell, other):
        if not each.first_s:
            return dict.fromkeys(PREDICTED, NO_START)
        if each.start_noise is None or each.step_noise is None:
            return dict.fromkeys(PREDICTED, ONE_START)
        step_us = _drawn(each.step_us, each.step_noise, random)
        first_s = _drawn(each.first_s, each.start_noise, random)
        sides.append((first_s - each.calls * step_us / 1e6, step_us))
    (first_s, step_us), (others_s, others_us) = sides
    paid_s = first_s - others_s
    saved_s = (others_us - step_us) / 1e6
    return {
        "break_even": _break_evens(paid_s, saved_s),
        "of_100": _middle(100 * saved_s - paid_s, "s"),
        "returns": _returns(paid_s, steps * saved_s),
    }


def _break_evens(paid_s: Floats, saved_s: Floats) -> Estimated:
    """``saved_s``: by each step."""
    if _share_of_none(saved_s) < TAIL:
        even = np.maximum(paid_s, 0) / np.where(saved_s > 0, saved_s, np.nan)
        return _middle(np.nan_to_num(even, nan=np.inf), "steps")
    if saved_s[0] > 0:
        return NOT_KNOWN
    return NEVER


def _returns(paid_s: Floats, saved_s: Floats) -> Estimated:
    if _share_of_none(paid_s) >= TAIL:
        return NOTHING_PAID
    rate = saved_s / np.where(paid_s > 0, paid_s, np.inf) - 1
    return _middle(rate, "times")


def _share_of_none(drawn: Floats) -> float:
    """How many of the draws are zero or less."""
    return float((drawn[1:] <= 0).mean())


def _drawn(samples: Sequence[float], noise: Noise, random: np.random.Generator) -> Floats:
    """The median sample, then DRAWS that a new process may take."""
    variance = noise.variance
    if own := Noise.pooled([samples]):
        variance = max(variance, own.variance)
    deviation = np.sqrt(variance * (1 + 1 / len(samples)))
    apart = np.clip(deviation * random.standard_t(noise.freedom, DRAWS), -300, 300)
    return np.concatenate(([median(samples)], np.exp(np.mean(np.log(samples)) + apart)))


def _middle(values: Floats, unit: str) -> m.Estimate:
    low, high = np.quantile(values[1:], (TAIL, 1 - TAIL), method="nearest")
    value = float(values[0])
    return m.Estimate(value, min(float(low), value), max(float(high), value), unit)


@m.skippable
def total(start: Estimated, step: Estimated, steps: int) -> Estimated:
    """Seconds that so many steps take from a start on, with the extremes of both for ``low`` and
    ``high``."""
    us = m.known(step)
    first_s = m.known(start)
    return m.Estimate(
        first_s.value + steps * us.value / 1e6,
        first_s.low + steps * us.low / 1e6,
        first_s.high + steps * us.high / 1e6,
        "s",
    )


@m.skippable
def tier(speedup: Estimated, break_even: Estimated, verdict: m.Judged) -> m.Tier | m.Skipped:
    """By the thresholds of document S2; a step that is level with eager's or slower is poor."""
    times_faster = m.known(speedup).value
    if verdict is m.Judged.UNDECIDED:
        return NOT_KNOWN
    if verdict is not m.Judged.FASTER:
        return m.Tier.POOR
    steps = m.known(break_even).value
    for name, times, within in (
        (m.Tier.EXCELLENT, 5, 50),
        (m.Tier.GOOD, 2, 100),
        (m.Tier.MODERATE, 1, 500),
    ):
        if times_faster > times and steps < within:
            return name
    return m.Tier.POOR
