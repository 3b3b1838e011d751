"""Does compiling pay? What it took before the first steady step, against what each step then saves
over eager.

With W for what the calls before steady state take beyond as many steady ones, and t for the time of
a steady step, n steps take W + n t. Compiled and eager are equal at n = (W compiled - W eager) / (t
eager - t compiled): what eager needs to start (the first kernel of a process, the allocator) is no
cost of compiling.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from kgprof import model as m
from kgprof.judge import Answer
from kgprof.measures.times import (
    PER_STEP,
    RunTimes,
    Unit,
    held,
    of_both,
    over_rounds,
    per_unit,
    spread,
    step_time,
    why_not,
)
from kgprof.reading.evidence import RunEvidence
from kgprof.wording import plural, short

ONE_ROUND = m.Skipped(
    "TIMING ran in one process; --rounds 2 or more also starts it with warm caches"
)
AT_IMPORT = m.Skipped(
    "the workload compiles while it is imported, which the further rounds do not time"
)
UNTIMED = m.Skipped("no times were requested")
RESULTS_DIFFER = m.Skipped("results differ")
NOT_FASTER = m.Skipped("not measurably faster than eager")
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
PREDICTED = ("break_even", "of_100", "returns")
# A shorter eager step is said to have torch's wrapper in it: under set_stance("force_eager") 4 to
# 15 us for a call of a compiled function or module, and 250 for torch.compile itself (torch 2.13,
# CPU), where a program calls it in each step.
WRAPPED_US = 1000.0
EAGER_STEPS = m.Skipped("most of its steps run no compiled graph")
NO_GRAPH = m.Skipped("torch made no graph of what it tried to compile")
DRAWS, SEED, TAIL = 20_000, 15, 0.025  # of a prediction: 95 % lie between both tails
# times the deviation of all others: says nothing about theirs (by chance in 1 of 200 sets of three)
OUTLYING = 5.0
Estimated = m.Estimate | m.Skipped
Floats = npt.NDArray[np.float64]


@m.skippable
def economics(evidence: RunEvidence) -> m.Economics | m.Skipped:
    """What compiling this run costs and saves; Skipped where it compiled nothing, and where no
    times were asked for."""
    recording = evidence.whole.recording
    run = evidence.record
    if recording.header.options.untimed:
        if run.script is None:
            return UNTIMED
        m.known(run.timing)
        m.known(run.eager_timing)
    if run.key.is_eager:
        return m.Skipped("mode eager is what compiled runs are compared with")
    compiled = m.known(run.compile)
    if not compiled.compilations:
        return m.Skipped(m.nothing_compiled(compiled.unused))
    if all(each.fail_reason or each.operators == 0 for each in compiled.compilations):
        return NO_GRAPH
    if run.script is not None and _steps_are_eager(evidence):
        return EAGER_STEPS
    eager_key = m.RunKey(run.key.strategy, m.EAGER)
    found = evidence.whole.run(eager_key)
    eager = found.record if found else None
    if run.script:
        eager = _eager_script(run)
    cold_s = _cold_s(run)
    warm_s = _warm_s(run)
    eager_s: m.Figure = _without_eager(run)
    warm_eager_s = eager_s
    if eager is not None:
        warm_eager_s = eager_s = _cold_s(eager)
        # Eager code has no cache, and its start varies: its own further rounds count, where there
        # are any.
        if isinstance(warm_eager := _warm_s(eager), m.Spread):
            warm_eager_s = warm_eager.median
    times = _times(run, eager)
    # Where eager's differ from the baseline's as well, that is another program's result and says
    # nothing of compiling.
    differ = _differs(recording, run.key) and not _differs(recording, eager_key)
    verdict = m.Payoff.NOT_OBSERVED if differ else times.verdict
    cold = _break_even(cold_s, eager_s, times, verdict, run)
    paid_s = _paid_s(cold_s, eager_s, compiled) if run.script else cold_s
    started_s = warm_s.median if isinstance(warm_s, m.Spread) else warm_s
    return m.Economics(
        run=run.key,
        eager=eager_key,
        cold_s=cold_s,
        paid_s=paid_s,
        warm_s=warm_s,
        eager_s=eager_s,
        per=times.per,
        compiled_time=times.compiled,
        eager_time=times.eager,
        rounds=times.rounds,
        saved_us=times.saved_us,
        cold=cold,
        warm=_break_even(started_s, warm_eager_s, times, verdict, run),
        verdict=verdict,
        text=_text(_took(paid_s, compiled, run, evidence.whole.device), times, cold, verdict),
    )


@m.skippable
def _paid_s(cold_s: m.Figure, eager_s: m.Figure, compiled: m.CompilePass) -> m.Figure:
    """What the first steps of a script take longer than in eager, where they do the same besides:
    they evaluate, or time another function. One slow step of eager's does not take off what torch
    itself timed."""
    took = [each.duration_s for each in compiled.compilations]
    own_s = sum(seconds for seconds in took if isinstance(seconds, float))
    longer_s = max(m.known(cold_s) - m.known(eager_s), min(own_s, m.known(cold_s)))
    if longer_s <= 0:
        return m.Skipped("its first steps took no longer than those of eager code")
    return longer_s


def _steps_are_eager(evidence: RunEvidence) -> bool:
    """Whether most steps of a script after its warm-up, and so the median one, ran no compiled
    graph, as far as calls were counted: it compiles what it does besides, or reached a limit."""
    trace = evidence.compiler
    script = evidence.record.script
    if trace is None or script is None or isinstance(trace.all.compiled_calls, m.Skipped):
        return False
    counted = trace.all.compiled_calls
    if counted.left_out or not counted.callables:
        return False
    steps = range(trace.steady_from, script.steps)
    ran = {
        step
        for each in counted.callables
        for step, calls in each.calls.items()
        if step in steps and calls > each.eager.get(step, 0)
    }
    return 2 * len(ran) < len(steps)


def _eager_script(run: m.RunRecord) -> m.RunRecord | None:
    """The same script with compiling switched off; its start is that of the steps before TIMING's.

    None where it was not run so, or its steps are others.
    """
    timing = run.timing
    eager = run.eager_timing
    if isinstance(timing, m.Skipped) or isinstance(eager, m.Skipped) or timing.step != eager.step:
        return None
    started = (*eager.start_us, *eager.every_us)
    compiled = run.compile
    if isinstance(compiled, m.CompilePass):
        compiled = replace(
            compiled,
            call_us=started,
            steady_from=len(eager.start_us),
            while_loading_s=0.0,
            compilations=(),
            compiled_in=(),
        )
    key = m.RunKey(run.key.strategy, m.EAGER)
    return replace(run, key=key, timing=eager, compile=compiled)


def _without_eager(run: m.RunRecord) -> m.Skipped:
    """Say why a run has no eager one beside it; nobody chooses the modes of a script."""
    if run.script is None:
        both = f"--mode {run.key.mode} --mode {m.EAGER}"
        return m.Skipped(f"this strategy was not run in mode eager; {both} runs it in both")
    if isinstance(run.eager_timing, m.Skipped):
        return run.eager_timing
    return m.Skipped("with compiling switched off it has other steps")


def _differs(recording: m.Recording, key: m.RunKey) -> bool:
    if not isinstance(recording.agreement, m.Agreement):
        return False
    judged = dict(recording.agreement.runs).get(key)
    return isinstance(judged, m.RunAgreement) and judged.verdict == m.AgreementVerdict.DIFFERENT


@m.skippable
def _cold_s(run: m.RunRecord) -> m.Figure:
    """What the calls before steady state take beyond as many steady ones, and the later ones that
    compile again."""
    compiled = m.known(run.compile)
    call_us = compiled.call_us
    before_steady = max(1, compiled.steady_from)
    if len(call_us) <= before_steady:
        return m.Skipped("COMPILE has no call after warm-up")
    compiling = _compiling(compiled)
    later = range(before_steady, len(call_us))
    steady = [call_us[call] for call in later if call not in compiling]
    timed = step_time(run.timing)
    if not steady and isinstance(timed, m.Spread):
        steady = [timed.median]
    steady_s = median(steady or call_us[before_steady:]) / 1e6
    calls_s = beyond([us / 1e6 for us in call_us[:before_steady]], steady_s)
    again_s = sum(max(0.0, call_us[call] / 1e6 - steady_s) for call in later if call in compiling)
    return calls_s + again_s + compiled.while_loading_s


def _compiling(compiled: m.CompilePass) -> set[int]:
    """The calls in which it compiled."""
    called = (each.call for each in compiled.compilations if each.call is not None)
    return {*called, *compiled.compiled_in}


def _warm_s(run: m.RunRecord) -> m.Time:
    if not run.rounds:
        return ONE_ROUND
    if isinstance(run.compile, m.CompilePass) and run.compile.while_loading_s:
        return AT_IMPORT
    measured = run.timed_rounds.values()
    if not measured:
        return m.Skipped("every other round was lost")
    started = [
        beyond(found.warm_up_s or (found.first_call_s,), step.median / 1e6)
        for found in measured
        if isinstance(step := step_time(found.timing), m.Spread)
    ]
    return spread(started, "s")


def beyond(calls_s: Sequence[float], steady_s: float) -> float:
    return max(0.0, sum(calls_s) - len(calls_s) * steady_s)


class _Times(m.Model):
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
        return 1.0 if self.unit is PER_STEP else 1000.0

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


def _times(run: m.RunRecord, eager: m.RunRecord | None) -> _Times:
    """Of units of work where both runs finished theirs; over rounds where both have them."""
    mine = RunTimes.of(run)
    if eager is None:
        return _Times(compiled=mine.step, eager=_without_eager(run))
    theirs = RunTimes.of(eager)
    counted = isinstance(run.evaluation, m.Evaluation) and isinstance(
        eager.evaluation, m.Evaluation
    )
    for unit in (per_unit(run.unit), PER_STEP) if counted else (PER_STEP,):
        both = of_both(mine, theirs, unit)
        answer = held(mine, theirs, unit)
        if isinstance(both, m.Skipped):
            continue
        in_rounds = both[0] == over_rounds(mine, unit) and both[1] == over_rounds(theirs, unit)
        rounds = min(time.samples for time in both) if in_rounds else 1
        return _Times(
            compiled=both[0],
            eager=both[1],
            unit=unit,
            rounds=rounds,
            answer=answer,
            doubt=why_not(answer, mine, theirs, unit),
        )
    return _Times(compiled=mine.step, eager=theirs.step)


@m.skippable
def _break_even(
    started_s: m.Figure,
    eager_s: m.Figure,
    times: _Times,
    verdict: m.Payoff,
    run: m.RunRecord,
) -> m.BreakEven | m.Skipped:
    paid_s = m.known(started_s) - m.known(eager_s)
    saved_us = m.known(times.saved_us)
    compiled = m.known(times.compiled)
    if verdict != m.Payoff.PAYS:
        undecided = m.Skipped(times.doubt)
        return {m.Payoff.NOT_OBSERVED: RESULTS_DIFFER, m.Payoff.UNDECIDED: undecided}.get(
            verdict, NOT_FASTER
        )
    # steps, or units of work, of which a step advances many
    many = max(0.0, paid_s) * 1e6 / saved_us
    after_s = many * compiled.median * times.to_us / 1e6
    if isinstance(run.evaluation, m.Evaluation) and run.evaluation.units:
        steps_each = run.evaluation.steps / run.evaluation.units
    elif run.unit.per_step:
        steps_each = 1 / run.unit.per_step
    else:
        uncounted = m.Skipped(f"the workload counts no {run.unit.plural}")
        return m.BreakEven(steps=many, units=uncounted, after_s=after_s)
    if times.unit is not PER_STEP:
        return m.BreakEven(steps=many * steps_each, units=many, after_s=after_s)
    work = many / steps_each if steps_each else m.Skipped("its evaluation counts no step")
    return m.BreakEven(steps=many, units=work, after_s=after_s)


def _took(paid_s: m.Figure, compiled: m.CompilePass, run: m.RunRecord, device: str) -> str:
    """On a CPU Inductor also probes for vector instructions once: kgprof keeps that apart."""
    if isinstance(paid_s, m.Skipped):
        return "its compile time"
    records = run.records
    by_others = isinstance(records, m.CompileRecords) and all(
        graph.cuda_graphs is None for graph in records.graphs
    )
    beside = "" if device == "cuda" or by_others else " (without the vector-ISA probe)"
    # of a script those before TRACE's steps are timed
    is_all = all(call < len(compiled.call_us) for call in _compiling(compiled))
    least = "" if is_all else "at least "
    return f"{least}{short(paid_s)} s of cold compile time{beside}"


def _text(took: str, times: _Times, cold: m.BreakEven | m.Skipped, verdict: m.Payoff) -> str:
    if (
        isinstance(times.compiled, m.Skipped)
        or isinstance(times.eager, m.Skipped)
        or verdict == m.Payoff.NOT_OBSERVED
    ):
        missing = m.first_skipped(times.compiled, times.eager, RESULTS_DIFFER)
        return f"not compared with eager: {missing.reason}"
    if verdict == m.Payoff.UNDECIDED:
        return f"cannot tell whether it is faster than eager: {times.doubt}"
    samples = (
        f"medians of {times.rounds} rounds" if times.rounds > 1 else "medians, in one process each"
    )
    scale = times.unit.name.partition("/")[0]
    compiled, eager = (
        f"{times.unit.bare(time.median)} {scale}" for time in (times.compiled, times.eager)
    )
    is_short = times.eager.median * times.to_us < WRAPPED_US
    wrapped = " with torch's wrapper" if is_short else ""
    figures = f"{compiled} per {times.per}, {eager} in mode eager{wrapped} (TIMING, {samples})"
    if verdict == m.Payoff.NEVER:
        return f"slower than eager; {took} is not recovered: {figures}"
    if verdict == m.Payoff.LEVEL:
        return f"not measurably faster than eager; {took} is not recovered: {figures}"
    if isinstance(cold, m.Skipped):
        return f"faster than eager: {figures}; its break-even is unknown: {cold.reason}"
    return f"{took} pays off after {plural(round(cold.steps), 'step')}: {figures}"


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
        while (
            len(logs) > 2
            and np.std(logs[-1]) > OUTLYING * np.mean([np.var(each) for each in logs[:-1]]) ** 0.5
        ):
            logs.pop()
        freedom = sum(len(each) - 1 for each in logs)
        return (
            cls(sum(float(np.var(each)) * len(each) for each in logs) / freedom, freedom)
            if freedom
            else None
        )


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
        if each.start_noise is None or each.step_noise is None or not each.first_s:
            return dict.fromkeys(PREDICTED, ONE_START if each.first_s else NO_START)
        step_us = _drawn(each.step_us, each.step_noise, random)
        sides.append(
            (_drawn(each.first_s, each.start_noise, random) - each.calls * step_us / 1e6, step_us)
        )
    paid_s = sides[0][0] - sides[1][0]
    saved_s = (sides[1][1] - sides[0][1]) / 1e6
    lost, free = (float((each[1:] <= 0).mean()) for each in (saved_s, paid_s))
    even = np.maximum(paid_s, 0) / np.where(saved_s > 0, saved_s, np.nan)
    rate = steps * saved_s / np.where(paid_s > 0, paid_s, np.inf) - 1
    unpaid = NOT_KNOWN if saved_s[0] > 0 else NEVER
    return {
        "break_even": _middle(np.nan_to_num(even, nan=np.inf), "steps") if lost < TAIL else unpaid,
        "of_100": _middle(100 * saved_s - paid_s, "s"),
        "returns": _middle(rate, "times") if free < TAIL else NOTHING_PAID,
    }


def _drawn(samples: Sequence[float], noise: Noise, random: np.random.Generator) -> Floats:
    """The median sample, then DRAWS that a new process may take."""
    variance = max(noise.variance, own.variance if (own := Noise.pooled([samples])) else 0.0)
    apart = np.sqrt(variance * (1 + 1 / len(samples))) * random.standard_t(noise.freedom, DRAWS)
    return np.concatenate(
        ([median(samples)], np.exp(np.mean(np.log(samples)) + np.clip(apart, -300, 300)))
    )


def _middle(values: Floats, unit: str) -> m.Estimate:
    low, high = np.quantile(values[1:], (TAIL, 1 - TAIL), method="nearest")
    value = float(values[0])
    return m.Estimate(
        value=value, low=min(float(low), value), high=max(float(high), value), unit=unit
    )


@m.skippable
def total(start: Estimated, step: Estimated, steps: int) -> Estimated:
    """Seconds that so many steps take from a start on, with the extremes of both for ``low`` and
    ``high``."""
    us = m.known(step)
    first_s = m.known(start)
    return m.Estimate(
        value=first_s.value + steps * us.value / 1e6,
        low=first_s.low + steps * us.low / 1e6,
        high=first_s.high + steps * us.high / 1e6,
        unit="s",
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
