"""Does compiling pay? What it took before the first steady step, against what each step then saves over eager.

With W for what the calls before steady state take beyond as many steady ones, and t for the time of a steady step, n
steps take W + n t. Compiled and eager are equal at n = (W compiled - W eager) / (t eager - t compiled): what eager
needs to start (the first kernel of a process, the allocator) is no cost of compiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from kgprof import model as m
from kgprof.measures.rounds import rounds
from kgprof.measures.times import FEWEST_TO_RANK, PER_STEP, Unit, per_unit, spread, step_time, unit_time
from kgprof.wording import plural, short

PAYS, LEVEL, NEVER, NOT_OBSERVED = "pays", "level", "never", "not observed"
ROUNDS_TO_JUDGE = 3  # on both sides: with fewer the spread of one process' own samples is the better one
ONE_ROUND = m.Skipped(reason="TIMING was made in one process; --rounds 2 or more starts it on warm caches")
NO_EAGER = m.Skipped(reason="this strategy was not run in mode eager; add --mode eager")
UNTIMED = m.Skipped(reason="no times were asked for")
RESULTS_DIFFER = m.Skipped(reason="results differ")
NOT_FASTER = m.Skipped(reason="it is not faster than eager beyond the noise")


def economics(recording: m.Recording, run: m.RunRecord) -> m.Economics | m.Skipped:
    """Skipped for a run that compiled nothing, and where no times were asked for."""
    if recording.header.options.untimed:
        return UNTIMED
    if run.key.mode == m.EAGER:
        return m.Skipped(reason="mode eager is what compiled runs are held against")
    if not _compiled(run):
        return (
            run.compile if isinstance(run.compile, m.Skipped) else m.Skipped(reason="nothing was compiled in this run")
        )
    eager = m.RunKey(strategy=run.key.strategy, mode=m.EAGER)
    unlike = next((other for other in recording.runs if other.key == eager), None)
    # where eager's differ from the baseline's as well, that is another program's result and says nothing of compiling
    differ = _differs(recording, run.key) and not _differs(recording, eager)
    return _economics(run, unlike, eager, results_differ=differ)


def _compiled(run: m.RunRecord) -> bool:
    return isinstance(run.compile, m.CompilePass) and bool(run.compile.compilations)


def _differs(recording: m.Recording, key: m.RunKey) -> bool:
    if not isinstance(recording.agreement, m.Agreement):
        return False
    judged = dict(recording.agreement.runs).get(key)
    return isinstance(judged, m.RunAgreement) and judged.verdict == "different"


def _economics(
    run: m.RunRecord, eager: m.RunRecord | None, eager_key: m.RunKey, *, results_differ: bool
) -> m.Economics:
    cold_s, warm_s = _cold_s(run), _warm_s(run)
    eager_s = NO_EAGER if eager is None else _cold_s(eager)
    times = _times(run, eager)
    verdict = NOT_OBSERVED if results_differ else times.verdict
    cold = _break_even(cold_s, eager_s, times, verdict, run)
    started_s = warm_s.median if isinstance(warm_s, m.Spread) else warm_s
    return m.Economics(
        run=run.key,
        eager=eager_key,
        cold_s=cold_s,
        warm_s=warm_s,
        eager_s=eager_s,
        per=times.per,
        compiled_time=times.compiled,
        eager_time=times.eager,
        rounds=times.rounds,
        saved_us=times.saved_us,
        cold=cold,
        warm=_break_even(started_s, _warm_eager_s(eager, eager_s), times, verdict, run),
        verdict=verdict,
        text=_text(run.key, cold_s, times, cold, verdict),
    )


# ---------------------------------------------------------------- what starting costs


def _cold_s(run: m.RunRecord) -> float | m.Skipped:
    if isinstance(run.compile, m.Skipped):
        return run.compile
    call_us = run.compile.call_us
    before_steady = max(1, run.compile.steady_from)
    if len(call_us) <= before_steady:
        return m.Skipped(reason="COMPILE holds no call after warm-up")
    return _beyond([us / 1e6 for us in call_us[:before_steady]], median(call_us[before_steady:]) / 1e6)


def _warm_s(run: m.RunRecord) -> m.Spread | m.Skipped:
    if not run.rounds:
        return ONE_ROUND
    measured = [record.measured for record in run.rounds if isinstance(record.measured, m.TimedRound)]
    if not measured:
        return m.Skipped(reason="every further round was lost")
    started = [
        _beyond(found.warm_up_s or (found.first_call_s,), step.median / 1e6)
        for found in measured
        if isinstance(step := step_time(found.timing), m.Spread)
    ]
    return spread(started, unit="s", measured_in=m.PassName.TIMING)


def _warm_eager_s(eager: m.RunRecord | None, cold_s: float | m.Skipped) -> float | m.Skipped:
    """In its own further rounds, where there are any: eager code has no cache, and its start varies."""
    warm_s = NO_EAGER if eager is None else _warm_s(eager)
    return warm_s.median if isinstance(warm_s, m.Spread) else cold_s


def _beyond(calls_s: Sequence[float], steady_s: float) -> float:
    return max(0.0, sum(calls_s) - len(calls_s) * steady_s)


# ---------------------------------------------------------------- what each step saves


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    compiled: m.Spread | m.Skipped
    eager: m.Spread | m.Skipped
    unit: Unit = PER_STEP
    rounds: int = 1

    @property
    def per(self) -> str:
        return self.unit.name.partition("/")[2]

    @property
    def to_us(self) -> float:
        return 1.0 if self.unit is PER_STEP else 1000.0

    @property
    def saved_us(self) -> float | m.Skipped:
        if isinstance(self.compiled, m.Skipped):
            return self.compiled
        if isinstance(self.eager, m.Skipped):
            return self.eager
        return (self.eager.median - self.compiled.median) * self.to_us

    @property
    def verdict(self) -> str:
        if isinstance(self.compiled, m.Skipped) or isinstance(self.eager, m.Skipped):
            return NOT_OBSERVED
        if self._below(self.compiled, self.eager):
            return PAYS
        return NEVER if self._below(self.eager, self.compiled) else LEVEL

    def _below(self, first: m.Spread, second: m.Spread) -> bool:
        """All of ``first`` under all of ``second``; steps of one process are many and have outliers."""
        if self.rounds == 1 and self.unit is PER_STEP:
            return first.p90 < second.p10
        return min(first.samples, second.samples) >= FEWEST_TO_RANK and first.maximum < second.minimum


def _times(run: m.RunRecord, eager: m.RunRecord | None) -> _Times:
    """Of units of work where both runs finished theirs; over rounds where both have enough of them."""
    if eager is None:
        return _Times(compiled=step_time(run.timing), eager=NO_EAGER)
    counted = isinstance(run.evaluation, m.Evaluation) and isinstance(eager.evaluation, m.Evaluation)
    for unit in (per_unit(run.unit), PER_STEP) if counted else (PER_STEP,):
        compiled, other = _time(run, unit), _time(eager, unit)
        if isinstance(compiled, m.Spread) and isinstance(other, m.Spread):
            return _over_rounds(run, eager, unit) or _Times(compiled=compiled, eager=other, unit=unit)
    return _Times(compiled=step_time(run.timing), eager=step_time(eager.timing))


def _time(run: m.RunRecord, unit: Unit) -> m.Spread | m.Skipped:
    return step_time(run.timing) if unit is PER_STEP else unit_time(run)


def _over_rounds(run: m.RunRecord, eager: m.RunRecord, unit: Unit) -> _Times | None:
    both = [found for one in (run, eager) if isinstance(found := rounds(one), m.Rounds)]
    spreads = [found.step if unit is PER_STEP else found.per_unit for found in both]
    enough = [one for one in spreads if isinstance(one, m.Spread) and one.samples >= ROUNDS_TO_JUDGE]
    if len(enough) < len((run, eager)):
        return None
    compiled, other = enough
    return _Times(compiled=compiled, eager=other, unit=unit, rounds=min(compiled.samples, other.samples))


# ---------------------------------------------------------------- together


def _break_even(
    started_s: float | m.Skipped, eager_s: float | m.Skipped, times: _Times, verdict: str, run: m.RunRecord
) -> m.BreakEven | m.Skipped:
    for missing in (started_s, eager_s, times.saved_us):
        if isinstance(missing, m.Skipped):
            return missing
    assert not isinstance(started_s, m.Skipped)
    assert not isinstance(eager_s, m.Skipped)
    assert not isinstance(times.saved_us, m.Skipped)
    assert isinstance(times.compiled, m.Spread)
    if verdict != PAYS:
        return RESULTS_DIFFER if verdict == NOT_OBSERVED else NOT_FASTER
    units = max(0.0, started_s - eager_s) * 1e6 / times.saved_us
    return _counted(units, units * times.compiled.median * times.to_us / 1e6, times.unit, run)


def _counted(units: float, after_s: float, unit: Unit, run: m.RunRecord) -> m.BreakEven:
    """``units``: steps, or units of work, of which a step of the evaluation advances many."""
    if isinstance(run.evaluation, m.Evaluation) and run.evaluation.units:
        steps_each = run.evaluation.steps / run.evaluation.units
    elif run.unit.per_step:
        steps_each = 1 / run.unit.per_step
    else:
        return m.BreakEven(
            steps=units, units=m.Skipped(reason=f"the workload counts no {run.unit.plural}"), after_s=after_s
        )
    if unit is PER_STEP:
        work = units / steps_each if steps_each else m.Skipped(reason="its evaluation counts no step")
        return m.BreakEven(steps=units, units=work, after_s=after_s)
    return m.BreakEven(steps=units * steps_each, units=units, after_s=after_s)


# ---------------------------------------------------------------- in words


def _text(key: m.RunKey, cold_s: float | m.Skipped, times: _Times, cold: m.BreakEven | m.Skipped, verdict: str) -> str:
    if isinstance(times.compiled, m.Skipped) or isinstance(times.eager, m.Skipped) or verdict == NOT_OBSERVED:
        missing = next(one for one in (times.compiled, times.eager, RESULTS_DIFFER) if isinstance(one, m.Skipped))
        return f"{key.slug}: it was not weighed against eager: {missing.reason}"
    figures = (
        f"a {times.per} takes {_ranged(times.compiled, times.unit)}, in mode eager {_ranged(times.eager, times.unit)} "
        f"({_samples(times)})"
    )
    took = "" if isinstance(cold_s, m.Skipped) else f" the {short(cold_s)} s that compiling takes on a cold cache"
    if verdict == NEVER:
        return f"{key.slug}: it never earns back{took or ' what compiling takes'}: {figures}"
    if verdict == LEVEL:
        lost = took or " what compiling takes"
        return f"{key.slug}: it is not faster than eager beyond the noise, so nothing earns back{lost}: {figures}"
    if isinstance(cold, m.Skipped):
        return f"{key.slug}: it is faster than eager: {figures}; when it breaks even is not known: {cold.reason}"
    return f"{key.slug}: it has earned back{took} after {plural(round(cold.steps), 'step')}: {figures}"


def _ranged(time: m.Spread, unit: Unit) -> str:
    return f"{unit.bare(time.median)} {unit.name.partition('/')[0]}"


def _samples(times: _Times) -> str:
    if times.rounds > 1:
        return f"TIMING, medians of {times.rounds} rounds"
    return "TIMING, medians, in one process each"
