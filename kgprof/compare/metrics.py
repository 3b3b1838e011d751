"""Every quantity of one run on both sides: times with an interval over rounds, counts and sizes as
they stand.

A count that is not there on one side is not observed; it is never taken for zero. TIMES and COUNTS
are the tables of what is compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import Any, TypeVar

from msgspec.structs import replace

from kgprof import coverage
from kgprof import model as m
from kgprof.collectors.compile import graph_breaks, recompiles, skipped_frames
from kgprof.compare import machine
from kgprof.judge import (
    COLD_ROUNDS,
    FEWEST_ROUNDS,
    MOST_ROUNDS,
    InTurn,
    Samples,
    could_have_seen,
    decided,
    judge,
    looks,
    pairs,
    rounds_to_settle,
)
from kgprof.measures import times
from kgprof.wording import clause, plural, short

STEP, EVALUATION, UNIT = m.TimeOf  # a time has a budget by what it is the time of
KERNELS, LAUNCH_CALLS, GRAPH_LAUNCHES = (
    m.KERNELS_PER_STEP,
    "launches per step",
    "CUDA-graph launches per step",
)
READS = "syncs per step"
BYTES, GENERATED = "bytes per step", "generated code"
STEPS = "steps per evaluation"
COMPILE, WARM_COMPILE = m.FIRST_CALLS
COMPILATIONS = "compilations"
ALLOCATED, RESERVED, RESIDENT = "peak allocated", "peak reserved", "peak resident"
BREAKS, FRAMES, RECOMPILES = "graph breaks", "skipped frames", "recompiles"


Budgets = Mapping[str, float]  # percent, by metric
Metrics = Sequence[m.ComparedMetric]
T = TypeVar("T")


class Sides(m.Model):
    """One run on both sides, and what is known about the work that each of them did."""

    base: m.RunReport
    head: m.RunReport
    settings: tuple[m.ChangedFact, ...]  # that make a step another amount of work
    # of the machine itself, between base's rounds and head's
    drift: machine.MachineDrifts = machine.ONE_ROUND
    in_turn: m.InTurn | None = None  # recorded pair by pair, so that no drift matters
    # times whose limit is what the pairs can see, where that is more
    widening: Collection[str] = ()
    doubt: str = ""  # why times cannot be compared at all (another machine); empty where they can
    coverage: tuple[tuple[m.Coverage, ...], tuple[m.Coverage, ...]] = ((), ())  # base's, head's

    @property
    def pairs(self) -> InTurn | None:
        """Rounds from the second on, lost ones too."""
        if self.in_turn is None:
            return None
        made = min(_rounds_from_second(self.base), _rounds_from_second(self.head))
        return InTurn(self.in_turn.most_rounds, made)

    @property
    def other_settings(self) -> str:
        return "; ".join(setting.words for setting in self.settings)

    @property
    def other_step(self) -> str:
        """Why a step is not the same work on both sides; empty where it is."""
        if self.settings:
            return self.other_settings
        if self.evaluations:
            before, after = self.evaluations
            if before.steps != after.steps:
                return f"{before.steps:,} -> {after.steps:,} steps per evaluation"
        was = self.base.unit.per_step
        now = self.head.unit.per_step
        if was and now and was != now:
            return f"{was:,} -> {now:,} {self.head.unit.plural} per step"
        return ""

    @property
    def other_evaluation(self) -> str:
        """Why a whole evaluation is not; empty where it is."""
        if not self.evaluations:
            return self.other_step
        before, after = self.evaluations
        units = self.head.unit.plural
        if before.units != after.units:
            return f"{before.units:,} -> {after.units:,} {units}"
        if before.unfinished or after.unfinished:
            return f"unfinished {units}: {before.unfinished:,} -> {after.unfinished:,}"
        return ""

    @property
    def evaluations(self) -> tuple[m.Evaluation, m.Evaluation] | None:
        """None unless both sides have one."""
        return both_known(self.base.evaluation, self.head.evaluation)


@m.otherwise(None)
def both_known(base: T | m.Skipped, head: T | m.Skipped) -> tuple[T, T]:
    """None unless both sides were measured."""
    return m.known(base), m.known(head)


@m.otherwise(0)
def _rounds_from_second(run: m.RunReport) -> int:
    return m.known(run.rounds).asked - 1


def metrics(
    sides: Sides, budgets: Budgets, findings: Sequence[m.ComparedFinding]
) -> tuple[m.ComparedMetric, ...]:
    """``budgets``: percent, by metric."""
    return (*_times(sides, budgets), *_counts(sides, budgets, findings))


def named(compared: Metrics, name: str) -> m.ComparedMetric | None:
    return next((metric for metric in compared if metric.name == name), None)


def compiles(compared: Metrics) -> bool:
    """On one side at least, as far as is known; else a longer first call has another cause."""
    made = named(compared, COMPILATIONS)
    return made is None or bool(made.base or made.head)


@m.skippable
def _ratio(base: m.Figure, head: m.Figure) -> m.Figure:
    before = m.known(base)
    after = m.known(head)
    if not before:
        return m.Skipped("base is 0")
    return after / before


# ---------------------------------------------------------------- times


class Time(m.Model, kw_only=False):
    """A time that TIMING measures."""

    of: m.TimeOf
    unit: str  # empty: milliseconds for a unit of work
    unit_us: float  # microseconds in its unit

    def samples(self, run: m.RunReport) -> Samples | m.Skipped:
        measured = times.samples(run, self._of(run))
        if isinstance(measured, Samples) and min(measured.rounds.values()) <= 0:
            return m.Skipped("no time above 0 was measured")
        return measured

    def _of(self, run: m.RunReport) -> times.Unit:
        return {STEP: times.PER_STEP, EVALUATION: times.PER_EVALUATION}.get(
            self.of, times.per_unit(run.unit)
        )


VERDICTS = {  # of head, by what the judge says of base
    m.Judged.FASTER: m.MetricVerdict.WORSE,
    m.Judged.SLOWER: m.MetricVerdict.BETTER,
    m.Judged.LEVEL: m.MetricVerdict.SAME,
    m.Judged.UNDECIDED: m.MetricVerdict.INCONCLUSIVE,
}
TIMES: Mapping[m.TimeOf, Time] = {  # in the order in which they decide
    STEP: Time(STEP, "us", 1.0),
    EVALUATION: Time(EVALUATION, "s", 1e6),
    UNIT: Time(UNIT, "", 1e3),
}


def _times(sides: Sides, budgets: Budgets) -> list[m.ComparedMetric]:
    """The step decides where it is the same work, the evaluation where that is, else the time of a
    unit of work, which a budget of its own makes decide too."""
    other_work = {STEP: sides.other_step, EVALUATION: sides.other_evaluation, UNIT: ""}
    both = (sides.base, sides.head)
    on_both = {
        of
        for of, time in TIMES.items()
        if all(isinstance(time.samples(run), Samples) for run in both)
    }
    deciding = {of for of in on_both - {UNIT} if not other_work[of]}
    whole = STEP
    if sides.base.counts_units and sides.head.counts_units:
        whole = EVALUATION
    if UNIT in on_both and (UNIT in budgets or whole not in deciding):
        deciding.add(UNIT)
    counted = any(run.counts_units or run.unit.per_step for run in (sides.base, sides.head))
    return [
        _time(
            time,
            sides,
            budgets.get(of, budgets[EVALUATION]),
            other_work[of],
            decides=of in deciding,
        )
        for of, time in TIMES.items()
        if of is not UNIT or counted
    ]


def _time(
    time: Time, sides: Sides, budget: float, other_work: str, *, decides: bool
) -> m.ComparedMetric:
    """``budget``: percent."""
    base, head, work = time.samples(sides.base), time.samples(sides.head), sides.head.unit
    middles = _middle(base), _middle(head)
    metric = m.ComparedMetric(
        name=time.of,
        run=sides.head.key,
        unit=time.unit or work.time,
        time_of=time.of,
        measured_in=m.PassName.TIMING,
        base=middles[0],
        head=middles[1],
        ratio=_ratio(*middles),
        low=machine.ONE_ROUND,
        high=machine.ONE_ROUND,
        base_rounds=_rounds(base),
        head_rounds=_rounds(head),
        verdict=m.MetricVerdict.NOT_OBSERVED,
        decides=decides,
    )
    if time.of is UNIT:
        metric = replace(metric, name=work.time, rate=work.rate)
    if decides:
        metric = replace(metric, budget_percent=budget)
    both = both_known(base, head)
    if both is None:
        note = m.first_skipped(base, head).reason
        return replace(metric, undecided=m.Undecided.NOT_MEASURED, note=note)
    if sides.pairs is not None:
        number = len(pairs(*both, sides.pairs))
        metric = replace(metric, base_rounds=number, head_rounds=number)
    if other_work:
        note = f"not the same work on both sides: {other_work}"
        return replace(metric, undecided=m.Undecided.OTHER_WORK, note=note)
    return _judged(metric, *both, sides, budget / 100)


@m.skippable
def _middle(samples: Samples | m.Skipped) -> float:
    return geometric_mean(m.known(samples).rounds.values())


@m.otherwise(0)
def _rounds(samples: Samples | m.Skipped) -> int:
    return len(m.known(samples).rounds)


def _judged(
    metric: m.ComparedMetric, base: Samples, head: Samples, sides: Sides, budget: float
) -> m.ComparedMetric:
    """By an interval. Where it is not decided and no more pairs come, a limit that nobody gave is
    at least what they could have seen."""
    answer = judge(base, head, budget, sides.pairs)
    within = answer.interval
    in_turn = sides.pairs
    is_last = in_turn is not None and in_turn.look == in_turn.planned
    open_limit = is_last and metric.decides and metric.time_of in sides.widening
    if within and open_limit and answer.verdict is m.Judged.UNDECIDED:
        percent = math.ceil(1000 * could_have_seen(within.low, within.high)) / 10
        if percent > 100 * budget:
            answer = decided(within, percent / 100)
            metric = replace(metric, budget_percent=percent, note=_WIDENED.format(100 * budget))
    if within is not None:
        metric = replace(metric, ratio=within.ratio, low=within.low, high=within.high)
        if sides.in_turn is not None:
            metric = replace(metric, base=within.first, head=within.second)
    undecided = replace(metric, verdict=m.MetricVerdict.INCONCLUSIVE)
    if sides.doubt:
        return replace(undecided, undecided=m.Undecided.OTHER_ENVIRONMENT, note=sides.doubt)
    if within is None:
        return replace(undecided, undecided=m.Undecided.ONE_ROUND, note=_too_few(metric, sides))
    # empty where both were recorded in turn
    if moved := machine.drift_words(sides.drift, budget):
        note = f"{moved}, more than the limit; `kgprof compare --record` records both in turn"
        return replace(undecided, undecided=m.Undecided.MACHINE_MOVED, note=note)
    verdict = VERDICTS[answer.verdict]
    if verdict is m.MetricVerdict.SAME and within.low > 1:
        slower = f"slower, within the budget{clause('; ', metric.note)}"
        return replace(metric, verdict=verdict, note=slower)
    if verdict is not m.MetricVerdict.INCONCLUSIVE:
        return replace(metric, verdict=verdict)
    settle = None
    need = "more rounds (--rounds) narrow it"
    if sides.in_turn is None:
        settle = rounds_to_settle(base, head, budget)
        need = f"{MOST_ROUNDS} rounds would not settle it"
        if settle:
            need = f"about {settle} rounds per side would settle it"
    note = f"the interval includes the limit; {need}"
    return replace(
        undecided, undecided=m.Undecided.STRADDLES_BUDGET, runs_to_settle=settle, note=note
    )


def _too_few(metric: m.ComparedMetric, sides: Sides) -> str:
    if sides.in_turn is not None:
        first = looks(sides.in_turn.most_rounds)[0]
        return (
            f"{plural(metric.base_rounds, 'round')} per side so far; the first interval "
            f"is taken after {first}"
        )
    which = "both sides were"
    if metric.head_rounds >= FEWEST_ROUNDS:
        which = "base was"
    elif metric.base_rounds >= FEWEST_ROUNDS:
        which = "head was"
    return (
        f"{which} timed in one process: an interval needs `kgprof profile --rounds 5` on both sides"
    )


_WIDENED = "these pairs could not have seen {:g} %: the limit is what they could have seen"


# ---------------------------------------------------------------- counts and sizes


def _per_step(count: int | m.Skipped, kernels: m.KernelBreakdown) -> m.Figure:
    """From the traced window to one step of it."""
    whole = m.known(count)
    if not kernels.steps:
        return m.Skipped("the trace marks no steps")
    return whole / kernels.steps


def _kernels(run: m.RunReport) -> m.Figure:
    kernels = m.known(run.kernels)
    work = (row.count for row in kernels.rows if row.generator != "framework")
    return _per_step(sum(work), kernels)


def _launches(run: m.RunReport) -> m.Figure:
    """On a CPU, which launches nothing: the calls of kernels and libraries in compiled code."""
    kernels = m.known(run.kernels)
    if kernels.device != "cuda":
        return m.known(run.work).calls_per_step
    return _per_step(kernels.launches, kernels)


def _bytes(run: m.RunReport) -> m.Figure:
    return m.known(run.work).bytes_per_step


@m.skippable
def _new_calls(base: m.RunReport, head: m.RunReport) -> m.Figure:
    """In head's generated code those that base's has not."""
    return float((_calls(head) - _calls(base)).total())


def _calls(run: m.RunReport) -> Counter[str]:
    """Raises as ``known`` does."""
    work = m.known(run.work)
    return Counter(item.text for item in work.named(m.known(work.calls)))


def _graph_launches(run: m.RunReport) -> m.Figure:
    kernels = m.known(run.kernels)
    return _per_step(kernels.graph_launches, kernels)


def _peaks(run: m.RunReport) -> m.MemoryPeaks:
    return m.known(m.known(run.memory).peaks)


class Count(m.Model, kw_only=False):
    """A count or a size. Two recordings of one program differ by up to ``tolerance`` percent and
    ``least``."""

    name: str
    unit: str
    of: Callable[[m.RunReport], m.Figure]  # asks ``known``
    measured_in: m.PassName | None  # None: the pass of the trace
    tolerance: float | None = None
    least: float = 0.0  # in its unit
    # it counts their findings, where ``of`` was measured on both sides
    rules: Sequence[str] = ()
    # of first calls: those of rounds that are pairs where two sides were recorded in turn
    calls: Callable[[m.Rounds], Mapping[int, float]] | None = None

    def values(
        self, sides: Sides, findings: Sequence[m.ComparedFinding]
    ) -> tuple[m.Figure, m.Figure]:
        """Base's and head's. Of findings the places, of recompiles the events; notes do not
        count."""
        if self.name == GENERATED:
            new = _new_calls(sides.base, sides.head)
            return (new if isinstance(new, m.Skipped) else 0.0), new
        measured = m.skippable(self.of)
        base, head = measured(sides.base), measured(sides.head)
        if not self.rules:
            return base, head
        if both_known(base, head) is None:
            return _NO_FINDINGS, _NO_FINDINGS
        key = sides.head.key
        held = [each for each in findings if each.finding.rule in self.rules]
        held = [each for each in held if each.finding.run == key and each.finding.counts]
        of_base, of_head = sides.coverage
        return (
            self._added_up([each.base_count for each in held], of_base, key),
            self._added_up([each.head_count for each in held], of_head, key),
        )

    def verdict(self, base: float, head: float, percent: float = 0.0) -> m.MetricVerdict:
        """``percent``: by how much head may be worse."""
        more = head - base
        if self.name in _FEWER_IS_WORSE:
            more = -more
        if abs(more) > max((self.tolerance or 0.0) / 100 * max(base, head), self.least):
            if more < 0:
                return m.MetricVerdict.BETTER
            if more > percent / 100 * base:
                return m.MetricVerdict.WORSE
        return m.MetricVerdict.SAME

    def _added_up(
        self, counts: Sequence[int], rows: Sequence[m.Coverage], key: m.RunKey
    ) -> m.Figure:
        """``rows``: empty where an earlier kgprof did not write down what it looked for."""
        if rows and (unseen := coverage.missing(rows, key, *self.rules)):
            return m.Skipped(unseen)
        if self.unit == "events":
            return float(sum(counts))
        return float(sum(map(bool, counts)))


# Steps of an evaluation differ in what they meet, and the traced ones are some of them. The caching
# allocator splits blocks in the order in which they come free; a process's resident set has the
# page cache, the imports and the threads' arenas in it. How long g++ and Triton compile depends on
# whatever else runs on the machine.
_TRACED, _COMPILER, _MIB = 1.0, 50.0, 2**20
_MEMORY, _COMPILE, _TIMING = m.PassName.MEMORY, m.PassName.COMPILE, m.PassName.TIMING
_NO_FINDINGS = m.Skipped("COMPILE did not run on both sides")


def _compilations(run: m.RunReport) -> m.Figure:
    return float(len(m.known(run.compile).compilations))


def _warm_first_call(run: m.RunReport) -> m.Figure:
    return m.known(m.known(run.rounds).warm_first_call).median


def _warm_calls(rounds: m.Rounds) -> Mapping[int, float]:
    """Without those of processes that compiled more than others did: they did not find the caches
    as these were left."""
    calls = dict(zip(rounds.numbers[1:], rounds.warm_first_call_s, strict=False))
    made = zip(calls, rounds.graphs_compiled, strict=False)
    compiled = {number: graphs for number, graphs in made if isinstance(graphs, int)}
    fewest = min(compiled.values(), default=0)
    return {
        number: seconds
        for number, seconds in calls.items()
        if compiled.get(number, fewest) == fewest
    }


def _cold_calls(rounds: m.Rounds) -> Mapping[int, float]:
    calls = zip(COLD_ROUNDS, rounds.cold_first_call_s, strict=False)
    return {number: seconds for number, seconds in calls if isinstance(seconds, float)}


def _findings(name: str, unit: str, *rules: m.Rule) -> Count:
    return Count(name, unit, _compilations, _COMPILE, rules=[rule.id for rule in rules])


COUNTS = (
    _findings(BREAKS, "sites", graph_breaks.GRAPH_BREAK),
    _findings(FRAMES, "sites", skipped_frames.SKIPPED_FRAME),
    _findings(RECOMPILES, "events", *recompiles.RULES),
    Count(STEPS, "steps", lambda run: float(m.known(run.evaluation).steps), _TIMING),
    Count(READS, "syncs/step", lambda run: m.known(run.memory).syncs_per_step, _MEMORY, _TRACED),
    Count(KERNELS, "kernels/step", _kernels, None, _TRACED),
    Count(LAUNCH_CALLS, "launches/step", _launches, None, _TRACED),
    Count(GRAPH_LAUNCHES, "launches/step", _graph_launches, None, _TRACED),
    Count(BYTES, "bytes", _bytes, _MEMORY),
    Count(GENERATED, "new calls", _compilations, _COMPILE),
    Count(ALLOCATED, "bytes", lambda run: _peaks(run).allocated_bytes, _MEMORY, 1.0, _MIB),
    Count(RESERVED, "bytes", lambda run: _peaks(run).reserved_bytes, _MEMORY, 10.0, 32 * _MIB),
    Count(RESIDENT, "bytes", lambda run: _peaks(run).resident_bytes, _MEMORY, 15.0, 64 * _MIB),
    Count(COMPILATIONS, "compilations", _compilations, _COMPILE),
    Count(
        COMPILE,
        "s",
        lambda run: m.known(run.compile).first_call_s,
        _COMPILE,
        _COMPILER,
        1.0,
        calls=_cold_calls,
    ),
    Count(WARM_COMPILE, "s", _warm_first_call, _TIMING, _COMPILER, 1.0, calls=_warm_calls),
)
_FEWER_IS_WORSE = (GRAPH_LAUNCHES,)
# metrics that a budget can be put on: percent of what base has
BUDGETED = (*m.TimeOf, *(each.name for each in COUNTS))


def _counts(
    sides: Sides, budgets: Budgets, findings: Sequence[m.ComparedFinding]
) -> Iterator[m.ComparedMetric]:
    """Without those that neither side can have, unless they have a limit: a CPU run has no
    launches. Within what a count moves by itself, or may move, it is the same."""
    for count in COUNTS:
        base, head = count.values(sides, findings)
        budget = budgets.get(count.name)
        if count.name == GENERATED and budget is None:
            continue  # other code is worse only where none was to be changed
        if isinstance(base, m.Skipped) and isinstance(head, m.Skipped) and budget is None:
            continue
        metric = m.ComparedMetric(
            name=count.name,
            run=sides.head.key,
            unit=count.unit,
            measured_in=count.measured_in or _traced_in(sides.head),
            base=base,
            head=head,
            ratio=_ratio(base, head),
            budget_percent=budget,
            tolerance_percent=count.tolerance,
            decides=budget is not None,
            verdict=m.MetricVerdict.SAME,
        )
        both = both_known(base, head)
        if both is None:
            note = m.first_skipped(base, head).reason
            unseen = m.MetricVerdict.NOT_OBSERVED
            yield replace(metric, verdict=unseen, undecided=m.Undecided.NOT_MEASURED, note=note)
            continue
        judged = replace(metric, verdict=count.verdict(*both, budget or 0.0))
        if count.calls is not None and sides.pairs is not None:
            moved = count.verdict(*both) is not m.MetricVerdict.SAME
            judged = _first_call(metric, count.calls, sides, moved=moved)
        yield judged


FIRST_CALL_PERCENT, FIRST_CALL_LEAST_S = 10.0, 0.1  # a change of a first call, judged in pairs
_CALLED_ONCE = "one process of each side cannot tell a change from chance"


def _first_call(
    metric: m.ComparedMetric,
    calls: Callable[[m.Rounds], Mapping[int, float]],
    sides: Sides,
    *,
    moved: bool,
) -> m.ComparedMetric:
    """By the pairs that there are. ``moved``: a single process of each side differs as two of one
    program rarely do."""
    base, head = (
        Samples(1.0, 1.0, 1.0, 1, rounds=_calls_of(run, calls)) for run in (sides.base, sides.head)
    )
    in_turn = sides.pairs
    if calls is _cold_calls:
        made = max((number - 1 for number in base.rounds.keys() & head.rounds.keys()), default=0)
        in_turn = InTurn(len(COLD_ROUNDS), made)
    assert in_turn is not None
    limit = metric.budget_percent
    if limit is None:
        limit = FIRST_CALL_PERCENT
        metric = replace(metric, tolerance_percent=limit)
    answer = judge(base, head, limit / 100, in_turn)
    unsettled = replace(metric, verdict=m.MetricVerdict.INCONCLUSIVE)
    if answer.interval is None:
        if not moved:
            return metric
        return replace(unsettled, undecided=m.Undecided.ONE_ROUND, note=_CALLED_ONCE)
    within = answer.interval
    number = len(pairs(base, head, in_turn))
    found: dict[str, Any] = {
        "base": within.first,
        "head": within.second,
        "ratio": within.ratio,
        "low": within.low,
        "high": within.high,
        "base_rounds": number,
        "head_rounds": number,
    }
    if answer.verdict is m.Judged.UNDECIDED:
        why = m.Undecided.STRADDLES_BUDGET
        return replace(unsettled, **found, undecided=why, note="the interval includes the limit")
    if metric.budget_percent is None and abs(within.second - within.first) < FIRST_CALL_LEAST_S:
        return replace(metric, **found)
    return replace(metric, **found, verdict=VERDICTS[answer.verdict])


@m.otherwise({})
def _calls_of(
    run: m.RunReport, calls: Callable[[m.Rounds], Mapping[int, float]]
) -> Mapping[int, float]:
    rounds: m.Rounds = m.known(run.rounds)
    return calls(rounds)


@m.otherwise(None)
def _traced_in(run: m.RunReport) -> m.PassName:
    return m.known(run.kernels).measured_in


@m.otherwise(m.MetricVerdict.NOT_OBSERVED)
def plain(value: m.Figure) -> str:
    return short(m.known(value), 4)
