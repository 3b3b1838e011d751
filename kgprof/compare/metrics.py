"""Every quantity of one run on both sides: times with an interval over rounds, counts and sizes as they stand.

A count that is not there on one side is not observed; it is never taken for zero. TIMES and COUNTS are the tables of
what is compared.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from kgprof import coverage
from kgprof import model as m
from kgprof.collectors import graph_breaks, recompiles, skipped_frames
from kgprof.compare import intervals
from kgprof.wording import plural, short

STEP, EVALUATION, UNIT = m.TimeOf  # a time has a budget by what it is the time of
KERNELS, LAUNCH_CALLS, GRAPH_LAUNCHES = m.KERNELS_PER_STEP, "launches per step", "CUDA-graph launches per step"
READS, STEPS = "syncs per step", "steps per evaluation"
COMPILE, WARM_COMPILE, COMPILATIONS = m.COLD_FIRST_CALL, "first call, warm cache", "compilations"
ALLOCATED, RESERVED, RESIDENT = "peak allocated", "peak reserved", "peak resident"
BREAKS, FRAMES, RECOMPILES = "graph breaks", "skipped frames", "recompiles"

_Value = float | m.Skipped
T = TypeVar("T")


class Sides(msgspec.Struct, frozen=True, kw_only=True):
    """One run on both sides, and what is known about the work that each of them did."""

    base: m.RunReport
    head: m.RunReport
    settings: tuple[m.SettingChange, ...]  # that make a step another amount of work
    drift: tuple[m.MachineDrift, ...] = ()  # of the machine itself, between base's rounds and head's; empty: not known
    in_turn: m.InTurn | None = None  # recorded pair by pair, so that no drift matters
    doubt: str = ""  # why times cannot be compared at all (another machine); empty where they can
    coverage: tuple[tuple[m.Coverage, ...], tuple[m.Coverage, ...]] = ((), ())  # base's, head's

    @property
    def other_settings(self) -> str:
        return "; ".join(f"{s.name} {s.base or 'not given'} -> {s.head or 'not given'}" for s in self.settings)

    @property
    def other_step(self) -> str:
        """Why a step is not the same work on both sides; empty where it is."""
        before, after = self.base.evaluation, self.head.evaluation
        if self.settings:
            return self.other_settings
        if isinstance(before, m.Evaluation) and isinstance(after, m.Evaluation) and before.steps != after.steps:
            return f"{before.steps:,} -> {after.steps:,} steps per evaluation"
        was, now = self.base.unit.per_step, self.head.unit.per_step
        return f"{was:,} -> {now:,} {self.head.unit.plural} per step" if was and now and was != now else ""

    @property
    def other_evaluation(self) -> str:
        """Why a whole evaluation is not; empty where it is."""
        before, after = self.base.evaluation, self.head.evaluation
        if isinstance(before, m.Skipped) or isinstance(after, m.Skipped):
            return self.other_step
        if before.units != after.units:
            return f"{before.units:,} -> {after.units:,} {self.head.unit.plural}"
        if before.unfinished or after.unfinished:
            return f"unfinished {self.head.unit.plural}: {before.unfinished:,} -> {after.unfinished:,}"
        return ""


def metrics(
    sides: Sides, budgets: Mapping[str, float], findings: Sequence[m.ComparedFinding]
) -> tuple[m.ComparedMetric, ...]:
    """``budgets``: percent, by metric."""
    return (*_times(sides, budgets), *_counts(sides, budgets, findings))


def named(compared: Sequence[m.ComparedMetric], name: str) -> m.ComparedMetric | None:
    return next((metric for metric in compared if metric.name == name), None)


def compiles(compared: Sequence[m.ComparedMetric]) -> bool:
    """On one side at least, as far as is known; else a longer first call has another cause."""
    made = named(compared, COMPILATIONS)
    return made is None or bool(made.base or made.head)


def _ratio(base: _Value, head: _Value) -> _Value:
    if isinstance(base, m.Skipped) or isinstance(head, m.Skipped):
        return base if isinstance(base, m.Skipped) else head
    return head / base if base else m.Skipped(reason="base is 0")


# ---------------------------------------------------------------- times


class Time(msgspec.Struct, frozen=True):
    """A time that TIMING measures."""

    of: m.TimeOf
    unit: str  # empty: milliseconds for a unit of work
    unit_us: float  # microseconds in its unit
    columns: Callable[[m.RunReport, m.Rounds | m.TakenInTurn], Sequence[float]]  # one a round, or a piece of one
    spread: Callable[[m.RunReport], m.Spread | m.Skipped]  # of the first process

    def samples(self, run: m.RunReport) -> Sequence[float]:
        """A median a round, without rounds that of the only process; empty where there is no such time, or one of 0."""
        spread = self.spread(run)
        if isinstance(spread, m.Skipped):
            return ()
        each = self.columns(run, run.rounds) if isinstance(run.rounds, m.Rounds) else (spread.median,)
        return each if all(time > 0 for time in each) else ()

    def middle(self, run: m.RunReport) -> _Value:
        spread, samples = self.spread(run), self.samples(run)
        if isinstance(spread, m.Skipped):
            return spread
        return geometric_mean(samples) if samples else m.Skipped(reason="no time above 0 was measured")


def _of_units(run: m.RunReport, took: m.Rounds | m.TakenInTurn) -> Sequence[float]:
    if took.evaluation_s:
        units = run.evaluation.units if isinstance(run.evaluation, m.Evaluation) else 0
        return [1000 * seconds / units for seconds in took.evaluation_s] if units else ()
    return [us / 1000 / run.unit.per_step for us in took.step_us] if run.unit.per_step else ()


TIMES: Mapping[m.TimeOf, Time] = {  # in the order in which they decide
    STEP: Time(STEP, "us", 1.0, lambda run, took: took.step_us, lambda run: run.step),
    EVALUATION: Time(EVALUATION, "s", 1e6, lambda run, took: took.evaluation_s, lambda run: run.evaluation_time),
    UNIT: Time(UNIT, "", 1e3, _of_units, lambda run: run.per_unit),
}


def _times(sides: Sides, budgets: Mapping[str, float]) -> list[m.ComparedMetric]:
    """The step decides where it is the same work, the evaluation where that is, else the time of a unit of work, which
    a budget of its own makes decide too."""
    other_work = {STEP: sides.other_step, EVALUATION: sides.other_evaluation, UNIT: ""}
    on_both = {of for of, time in TIMES.items() if time.samples(sides.base) and time.samples(sides.head)}
    deciding = {of for of in on_both - {UNIT} if not other_work[of]}
    whole = EVALUATION if sides.base.counts_units and sides.head.counts_units else STEP
    if UNIT in on_both and (UNIT in budgets or whole not in deciding):
        deciding.add(UNIT)
    counted = any(run.counts_units or run.unit.per_step for run in (sides.base, sides.head))
    return [
        _time(time, sides, budgets.get(of, budgets[EVALUATION]), other_work[of], decides=of in deciding)
        for of, time in TIMES.items()
        if of is not UNIT or counted
    ]


def _time(time: Time, sides: Sides, budget: float, other_work: str, *, decides: bool) -> m.ComparedMetric:
    """``budget``: percent."""
    base, head = time.middle(sides.base), time.middle(sides.head)
    rounds, work = (time.samples(sides.base), time.samples(sides.head)), sides.head.unit
    pairs: list[intervals.Pair] = []
    if sides.in_turn is not None:
        pairs = _pairs(time, sides, sides.in_turn.most_rounds)
        rounds = [pair.base for pair in pairs], [pair.head for pair in pairs]
    metric = m.ComparedMetric(
        name=work.time if time.of is UNIT else time.of,
        run=sides.head.key,
        unit=time.unit or work.time,
        time_of=time.of,
        rate=work.rate if time.of is UNIT else "",
        measured_in=m.PassName.TIMING,
        base=base,
        head=head,
        ratio=_ratio(base, head),
        low=intervals.ONE_ROUND,
        high=intervals.ONE_ROUND,
        base_rounds=len(rounds[0]),
        head_rounds=len(rounds[1]),
        budget_percent=budget if decides else None,
        verdict=m.MetricVerdict.NOT_OBSERVED,
        decides=decides,
    )
    if isinstance(metric.ratio, m.Skipped):  # of a side without this time
        return replace(metric, undecided=m.Undecided.NOT_MEASURED, note=metric.ratio.reason)
    if other_work:
        note = f"not the same work on both sides: {other_work}"
        return replace(metric, undecided=m.Undecided.OTHER_WORK, note=note)
    return _judged(metric, rounds, pairs, sides, budget / 100)


def _judged(
    metric: m.ComparedMetric,
    rounds: tuple[Sequence[float], Sequence[float]],
    pairs: Sequence[intervals.Pair],
    sides: Sides,
    budget: float,
) -> m.ComparedMetric:
    """By an interval. ``rounds``: base's and head's; ``pairs``: the same of sides recorded in turn."""
    if sides.in_turn is not None:
        most = sides.in_turn.most_rounds
        look = intervals.last_look(_pairs_made(sides), most)
        within = intervals.paired(pairs, look, most) if look else None
    else:
        within = intervals.interval(*rounds)
    if within is not None:
        metric = replace(metric, ratio=within.ratio, low=within.low, high=within.high)
        metric = replace(metric, base=within.base, head=within.head) if sides.in_turn is not None else metric
    undecided = replace(metric, verdict=m.MetricVerdict.INCONCLUSIVE)
    if sides.doubt:
        return replace(undecided, undecided=m.Undecided.OTHER_ENVIRONMENT, note=sides.doubt)
    if within is None:
        return replace(undecided, undecided=m.Undecided.ONE_ROUND, note=_too_few(rounds, sides))
    if sides.in_turn is None and (moved := intervals.moved(sides.drift, budget)):
        note = f"{intervals.drift_words(moved)}, more than the limit; `kgprof compare --record` records both in turn"
        return replace(undecided, undecided=m.Undecided.MACHINE_MOVED, note=note)
    verdict = within.verdict(budget)
    if verdict is not m.MetricVerdict.INCONCLUSIVE:
        slower = verdict is m.MetricVerdict.SAME and within.low > 1
        return replace(metric, verdict=verdict, note="slower, within the budget" if slower else "")
    settle = intervals.rounds_to_settle(*rounds, budget)
    need = f"about {settle} rounds per side would" if settle else f"{intervals.MOST_ROUNDS} rounds would not"
    note = f"the interval includes the limit; {need} settle it"
    if sides.in_turn is not None:
        settle, note = None, "the interval includes the limit; more rounds (--rounds) narrow it"
    return replace(undecided, undecided=m.Undecided.STRADDLES_BUDGET, runs_to_settle=settle, note=note)


def _too_few(rounds: tuple[Sequence[float], Sequence[float]], sides: Sides) -> str:
    if sides.in_turn is not None:
        first = intervals.looks(sides.in_turn.most_rounds)[0]
        return f"{plural(len(rounds[0]), 'round')} per side so far; the first interval is taken after {first}"
    few = [name for name, side in zip(("base", "head"), rounds, strict=True) if len(side) < intervals.FEWEST_ROUNDS]
    which = "both sides were" if len(few) == 2 else f"{few[0]} was"
    return f"{which} timed in one process: an interval needs `kgprof profile --rounds 5` on both sides"


def _pairs_made(sides: Sides) -> int:
    """Rounds from the second on, lost ones too: at which look one stands is not for chance to say."""
    return min(run.rounds.asked - 1 if isinstance(run.rounds, m.Rounds) else 0 for run in (sides.base, sides.head))


def _pairs(time: Time, sides: Sides, most: int) -> list[intervals.Pair]:
    """Of the rounds that both sides have, up to the last look; never the first, whose caches were cold."""
    look = intervals.last_look(_pairs_made(sides), most) or most
    by_number: list[dict[int, float]] = []
    pieces: list[dict[int, Sequence[float]]] = []  # of the rounds that took turns with the other side's
    for run in (sides.base, sides.head):
        numbers, samples = run.rounds.numbers if isinstance(run.rounds, m.Rounds) else (), time.samples(run)
        by_number.append(dict(zip(numbers, samples, strict=True)) if len(numbers) == len(samples) else {})
        in_turn = run.rounds.in_turn if isinstance(run.rounds, m.Rounds) and samples else ()
        each = zip(numbers, in_turn, strict=False)
        pieces.append({number: time.columns(run, taken) for number, taken in each if taken is not None})
    found = []
    for number in sorted(by_number[0]):
        if number in by_number[1] and 1 < number <= look + 1:
            base, head = by_number[0][number], by_number[1][number]
            side_by_side = intervals.ratio_in_turn(pieces[0].get(number, ()), pieces[1].get(number, ()))
            found.append(intervals.Pair(base, head, side_by_side or head / base))
    return found


# ---------------------------------------------------------------- counts and sizes


def _known(whole: T | m.Skipped, of: Callable[[T], _Value]) -> _Value:
    return whole if isinstance(whole, m.Skipped) else of(whole)


def _each_step(of: Callable[[m.KernelBreakdown], int | m.Skipped]) -> Callable[[m.RunReport], _Value]:
    """From the traced window to one step of it."""

    def divided(kernels: m.KernelBreakdown) -> _Value:
        count = of(kernels)
        if isinstance(count, m.Skipped):
            return count
        return count / kernels.steps if kernels.steps else m.Skipped(reason="the trace marks no steps")

    return lambda run: _known(run.kernels, divided)


def _peak(of: Callable[[m.MemoryPeaks], int | m.Skipped]) -> Callable[[m.RunReport], _Value]:
    return lambda run: _known(run.memory, lambda memory: _known(memory.peaks, of))


class Count(msgspec.Struct, frozen=True):
    """A count or a size. Two recordings of one program differ by up to ``tolerance`` percent and ``least``."""

    name: str
    unit: str
    of: Callable[[m.RunReport], _Value]
    measured_in: m.PassName | None  # None: the pass of the trace
    tolerance: float | None = None
    least: float = 0.0  # in its unit
    rules: Sequence[str] = ()  # it counts their findings, where ``of`` was measured on both sides

    def values(self, sides: Sides, findings: Sequence[m.ComparedFinding]) -> tuple[_Value, _Value]:
        """Base's and head's. Of findings the places, of recompiles the events; notes do not count."""
        base, head = self.of(sides.base), self.of(sides.head)
        if not self.rules:
            return base, head
        if isinstance(base, m.Skipped) or isinstance(head, m.Skipped):
            return _NO_FINDINGS, _NO_FINDINGS
        key = sides.head.key  # an earlier kgprof did not write down what it looked for
        unseen = [coverage.missing(rows, key, *self.rules) if rows else "" for rows in sides.coverage]
        held = [each for each in findings if each.finding.run == sides.head.key and each.finding.rule in self.rules]
        held = [each for each in held if each.finding.counts]
        counts = [[each.base_count for each in held], [each.head_count for each in held]]
        each_side = [float(sum(side if self.unit == "events" else map(bool, side))) for side in counts]
        base, head = (m.Skipped(reason=why) if why else n for n, why in zip(each_side, unseen, strict=True))
        return base, head


# Steps of an evaluation differ in what they meet, and the traced ones are some of them. The caching allocator splits
# blocks in the order in which they come free; a process's resident set has the page cache, the imports and the threads'
# arenas in it. How long g++ and Triton compile depends on whatever else runs on the machine.
_TRACED, _COMPILER, _MIB = 1.0, 50.0, 2**20
_MEMORY, _COMPILE, _TIMING = m.PassName.MEMORY, m.PassName.COMPILE, m.PassName.TIMING
_NO_FINDINGS = m.Skipped(reason="COMPILE did not run on both sides")


def _compilations(run: m.RunReport) -> _Value:
    return _known(run.compile, lambda summary: float(len(summary.compilations)))


def _findings(name: str, unit: str, *rules: m.Rule) -> Count:
    return Count(name, unit, _compilations, _COMPILE, rules=[rule.id for rule in rules])


COUNTS = (
    _findings(BREAKS, "sites", graph_breaks.GRAPH_BREAK),
    _findings(FRAMES, "sites", skipped_frames.SKIPPED_FRAME),
    _findings(RECOMPILES, "events", *recompiles.RULES),
    Count(STEPS, "steps", lambda run: _known(run.evaluation, lambda whole: float(whole.steps)), _TIMING),
    Count(READS, "syncs/step", lambda run: _known(run.memory, lambda seen: seen.syncs_per_step), _MEMORY, _TRACED),
    Count(
        KERNELS,
        "kernels/step",
        _each_step(lambda kernels: sum(row.count for row in kernels.rows if row.generator != "framework")),
        None,
        _TRACED,
    ),
    Count(LAUNCH_CALLS, "launches/step", _each_step(lambda kernels: kernels.launches), None, _TRACED),
    Count(GRAPH_LAUNCHES, "launches/step", _each_step(lambda kernels: kernels.graph_launches), None, _TRACED),
    Count(ALLOCATED, "bytes", _peak(lambda peaks: peaks.allocated_bytes), _MEMORY, 1.0, _MIB),
    Count(RESERVED, "bytes", _peak(lambda peaks: peaks.reserved_bytes), _MEMORY, 10.0, 32 * _MIB),
    Count(RESIDENT, "bytes", _peak(lambda peaks: peaks.resident_bytes), _MEMORY, 15.0, 64 * _MIB),
    Count(COMPILATIONS, "compilations", _compilations, _COMPILE),
    Count(COMPILE, "s", lambda run: _known(run.compile, lambda made: made.first_call_s), _COMPILE, _COMPILER, 1.0),
    Count(
        WARM_COMPILE,
        "s",
        lambda run: _known(run.rounds, lambda rounds: _known(rounds.warm_first_call, lambda warm: warm.median)),
        _TIMING,
        _COMPILER,
        1.0,
    ),
)
_FEWER_IS_WORSE = (GRAPH_LAUNCHES,)
BUDGETED = (*m.TimeOf, *(each.name for each in COUNTS))  # metrics that a budget can be put on: percent of what base has


def _counts(
    sides: Sides, budgets: Mapping[str, float], findings: Sequence[m.ComparedFinding]
) -> Iterator[m.ComparedMetric]:
    """Without those that neither side can have: a CPU run has no launches. Within what a count moves by itself, or may
    move, it is the same."""
    kernels = sides.head.kernels
    traced_in = kernels.measured_in if isinstance(kernels, m.KernelBreakdown) else None
    for count in COUNTS:
        base, head = count.values(sides, findings)
        if isinstance(base, m.Skipped) and isinstance(head, m.Skipped):
            continue
        budget = budgets.get(count.name)
        metric = m.ComparedMetric(
            name=count.name,
            run=sides.head.key,
            unit=count.unit,
            measured_in=count.measured_in or traced_in,
            base=base,
            head=head,
            ratio=_ratio(base, head),
            budget_percent=budget,
            tolerance_percent=count.tolerance,
            decides=budget is not None,
            verdict=m.MetricVerdict.SAME,
        )
        if isinstance(base, m.Skipped) or isinstance(head, m.Skipped):
            note = next(side.reason for side in (base, head) if isinstance(side, m.Skipped))
            unseen = m.MetricVerdict.NOT_OBSERVED
            yield replace(metric, verdict=unseen, undecided=m.Undecided.NOT_MEASURED, note=note)
            continue
        more = base - head if count.name in _FEWER_IS_WORSE else head - base
        if abs(more) <= max((count.tolerance or 0.0) / 100 * max(base, head), count.least):
            yield metric
        elif more < 0:
            yield replace(metric, verdict=m.MetricVerdict.BETTER)
        else:
            worse = more > (budget or 0.0) / 100 * base
            yield replace(metric, verdict=m.MetricVerdict.WORSE) if worse else metric


def plain(value: _Value) -> str:
    return m.MetricVerdict.NOT_OBSERVED if isinstance(value, m.Skipped) else short(value, 4)
