"""What the cells of a sweep are worth against eager and each other, and which to take for a number
of executions.

Steps are compared over processes: one sample each, so that the verdict is not one process's luck. A
start is what the calls before steady state took beyond as many steady ones. Eager is the cell of
mode eager of the same size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp
from statistics import fmean, median
from typing import TypeVar

from msgspec.structs import replace

from kgprof import model as m
from kgprof.judge import Answer, Samples, judge
from kgprof.measures.economics import (
    NEVER,
    NO_START,
    NOT_KNOWN,
    ONE_START,
    Estimated,
    Noise,
    Sample,
    predicted,
    tier,
    total,
)
from kgprof.measures.times import spread
from kgprof.wording import figure, plural, short

FEWEST_PROCESSES = 3  # on both sides, before one is called faster
NO_EAGER = m.Skipped("mode eager has no times")
ITSELF = m.Skipped("the others are compared with it")
FEW = m.Skipped(f"fewer than {FEWEST_PROCESSES} processes were measured")
AGAINST_EAGER = ("speedup", "break_even", "break_even_warm", "of_100", "returns")
TIMES_APART = 3.0  # and above: a percentage would not be read
SAFETY = 1.25  # of a memory budget, as document S2 has it
Number = TypeVar("Number", int, float)


def weighed(sweep: m.Sweep, executions: int, memory_bytes: int | None = None) -> m.Sweep:
    """With its worths and verdicts, for so many executions; ``memory_bytes``: no cell that needs
    more is chosen."""
    worth = []
    verdicts = []
    for size in sizes(sweep):
        of_size = _worth(sweep, size, executions)
        worth += of_size
        verdicts.append(_held(verdict(sweep, of_size, executions, memory_bytes), sweep.ladder))
    return replace(sweep, executions=executions, worth=tuple(worth), verdicts=tuple(verdicts))


def sizes(sweep: m.Sweep) -> tuple[tuple[str, ...], ...]:
    return tuple(dict.fromkeys(each.cell.size for each in sweep.cells))


def ahead(sweep: m.Sweep, executions: int) -> list[m.Cell]:
    """The best cell and the runner-up of each size, and eager, which they are held against; none if
    nothing is."""
    found = weighed(sweep, executions)
    named = [
        cell for one in found.verdicts for cell in (one.best, one.runner_up) if cell is not None
    ]
    if len(named) < 2:
        return []
    return list(
        dict.fromkeys([*named, *(each.cell for each in sweep.cells if not each.cell.compiles)])
    )


# ---------------------------------------------------------------- one cell


def _worth(sweep: m.Sweep, size: tuple[str, ...], executions: int) -> list[m.CellWorth]:
    parts = [_Parts(each) for each in sweep.cells if each.cell.size == size]
    eager = next((part for part in parts if not part.cell.compiles), None)
    steps = Noise.pooled(part.means for part in parts)
    for compiles in (True, False):
        alike = [part for part in parts if part.cell.compiles is compiles]
        starts = {cold: Noise.pooled(part.firsts(cold) for part in alike) for cold in (True, False)}
        for part in alike:
            part.noise = steps, starts
    return [_worth_of(part, eager, parts, executions) for part in parts]


class _Parts:
    """A cell's measured figures, as spreads over its processes."""

    def __init__(self, found: m.CellResult) -> None:
        self.cell = found.cell
        self.found = found
        steps = [each.step_us for each in found.measured() if each.step_us]
        self.means = [fmean(step_us) for step_us in steps]
        medians = [median(step_us) for step_us in steps]
        self.step = spread(medians, "us")
        self.medians = dict(enumerate(medians, start=1))
        self.steady_s = 0.0
        if isinstance(self.step, m.Spread):
            self.steady_s = self.step.median / 1e6
        self.cold, self.first_cold = self._starts(m.PassName.COMPILE, cold=True)
        self.warm, self.first_warm = self._starts(m.PassName.TIMING, cold=False)
        # of steps; of cold and of warm starts
        self.noise: tuple[Noise | None, dict[bool, Noise | None]] = None, {}

    def _starts(self, name: m.PassName, *, cold: bool) -> tuple[m.Time, m.Time]:
        """Seconds beyond steady state, and of the first call."""
        starts = [each.start_s for each in self.found.measured(cold=cold) if each.start_s]
        whole = spread([beyond(calls, self.steady_s) for calls in starts], "s", name)
        return whole, spread([calls[0] for calls in starts], "s", name)

    def firsts(self, cold: bool) -> list[float]:
        """Seconds of the calls before steady state; all of eager's are alike, as it has no
        caches."""
        chosen = self.found.measured()
        if self.cell.compiles:
            chosen = self.found.measured(cold=cold)
        return [sum(each.start_s) for each in chosen if sum(each.start_s) > 0]

    def sample(self, cold: bool) -> Sample:
        """Steps by their means, of which cumulative seconds are made: what stalls now and then
        counts."""
        calls = max((len(each.start_s) for each in self.found.measured(cold=cold)), default=0)
        steps, starts = self.noise
        noise = starts.get(cold) or starts.get(not cold)  # one start each: as the others vary
        return Sample(self.firsts(cold), calls, self.means, noise, steps)

    @m.skippable
    def start(self) -> Estimated:
        """A cold one; where there is but one, with the deviation of other cells' starts."""
        cold = m.known(self.cold)
        low = cold.minimum
        high = cold.maximum
        if cold.samples == 1 and (noise := self.noise[1].get(True)) is not None:
            low = low * exp(-(noise.variance**0.5))
            high = high * exp(noise.variance**0.5)
        return m.Estimate(cold.median, low, high, "s")

    @property
    @m.skippable
    def steady(self) -> Estimated:
        step = m.known(self.step)
        if step.samples < FEWEST_PROCESSES:
            return FEW
        return m.Estimate(step.median, step.minimum, step.maximum, "us")

    def faster(self, other: _Parts) -> Answer:
        """Of its steps; only of two that are steady."""
        return judge(self._samples(), other._samples())

    def _samples(self) -> Samples:
        step = m.known(self.step)
        return Samples(step.median, step.minimum, step.maximum, 1, step.samples, self.medians)

    def last(self, value: Callable[[m.CellTimes], Number | m.Skipped]) -> Number | m.Skipped:
        """Of the last process that has it, else why the last one has none."""
        every = [value(each) for each in self.found.measured()]
        known = [each for each in every if not isinstance(each, m.Skipped)]
        if known:
            return known[-1]
        return m.first_skipped(*reversed(every), NO_START)


def _worth_of(
    part: _Parts, eager: _Parts | None, others: Sequence[_Parts], executions: int
) -> m.CellWorth:
    whole = total(part.start(), part.steady, executions)
    made = _against_eager(part, eager, executions)
    if not isinstance(made, dict):
        made = dict.fromkeys(AGAINST_EAGER, made)
    against = m.Judged.UNDECIDED
    if eager is not None and isinstance(made["speedup"], m.Estimate):
        against = part.faster(eager).verdict
    next_best, against_next = _next_best(part, others)
    return m.CellWorth(
        cell=part.cell,
        step=part.step,
        cold=part.cold,
        warm=part.warm,
        first_cold=part.first_cold,
        first_warm=part.first_warm,
        again_s=part.last(lambda times: times.again_s),
        stages=next((each.stages for each in part.found.measured(cold=True)), NO_START),
        next_best=next_best,
        break_even_next=against_next,
        tier=tier(made["speedup"], made["break_even"], against),
        total=whole,
        device_bytes=part.last(lambda times: times.device_bytes),
        host_bytes=part.last(lambda times: times.host_bytes),
        verdict=against,
        **made,
    )


@m.skippable
def _against_eager(
    part: _Parts, eager: _Parts | None, executions: int
) -> dict[str, Estimated] | m.Skipped:
    if part is eager:
        return ITSELF
    step = m.known(part.steady)
    if eager is None:
        m.known(part.start())
        return NO_EAGER
    by = m.known(eager.steady).value / step.value
    answer = part.faster(eager)
    low = high = by
    if answer.interval is not None:
        low = min(by, answer.interval.low)
        high = max(by, answer.interval.high)
    cold, warm = (
        predicted(part.sample(each), eager.sample(each), executions) for each in (True, False)
    )
    return {
        "speedup": m.Estimate(by, low, high, "times"),
        **cold,
        "break_even": _if_faster(cold["break_even"], answer),
        "break_even_warm": _if_faster(warm["break_even"], answer),
    }


def _if_faster(break_even: Estimated, answer: Answer) -> Estimated:
    """What is not known to be faster pays at no number of steps that anybody knows."""
    if answer.verdict is m.Judged.FASTER or break_even in (NO_START, ONE_START):
        return break_even
    if answer.verdict is m.Judged.SLOWER:
        return NEVER
    return NOT_KNOWN


def _next_best(part: _Parts, others: Sequence[_Parts]) -> tuple[m.Cell | None, Estimated]:
    """The fastest of the cells that start sooner, and after how many steps this one has caught up
    with it."""
    found = _fastest_sooner(part, others)
    if not isinstance(found, _Parts):
        return None, found
    pays = predicted(part.sample(cold=True), found.sample(cold=True), 1)["break_even"]
    return found.cell, _if_faster(pays, part.faster(found))


@m.skippable
def _fastest_sooner(part: _Parts, others: Sequence[_Parts]) -> _Parts | m.Skipped:
    start_s = m.known(part.start()).value
    m.known(part.steady)
    sooner: dict[_Parts, float] = {}
    for other in others:
        theirs = other.start()
        time = other.steady
        if not (isinstance(theirs, m.Estimate) and isinstance(time, m.Estimate)):
            continue
        if theirs.value < start_s and other.cell.precision is part.cell.precision:
            sooner[other] = time.value
    if not sooner:
        return m.Skipped("no other cell starts sooner")
    return min(sooner, key=sooner.__getitem__)


def beyond(calls_s: Sequence[float], steady_s: float) -> float:
    """What so many calls take beyond as many steady ones."""
    return max(0.0, sum(calls_s) - len(calls_s) * steady_s)


# ---------------------------------------------------------------- which one


def verdict(
    sweep: m.Sweep, worth: Sequence[m.CellWorth], executions: int, memory_bytes: int | None = None
) -> m.SweepVerdict:
    """The cell that takes least time for so many executions from a cold start, among those of the
    program's own precision if any that compiles has it: another precision is another result."""
    judged = [(each.total, each) for each in worth if isinstance(each.total, m.Estimate)]
    own = [each for each in judged if each[1].cell.precision is m.Precision.AS_IS]
    if not any(each.cell.compiles and each.cell.precision is m.Precision.AS_IS for each in worth):
        own = []  # eager alone has it, and stands in every grid

    fitting = own or judged
    of = f"for {plural(executions, 'execution')}"
    if memory_bytes is not None:
        fitting = [each for each in fitting if _fits(each[1], memory_bytes)]
        of += f" in {plural(memory_bytes, 'byte')}"
    ranked = sorted(fitting, key=lambda each: each[0].value)
    trust = _trust(sweep, worth, recommendable=not own)
    if not ranked:
        why = "no cell is known to fit"
        status = m.VerdictStatus.INCONCLUSIVE
        if not judged:
            why = _why_none(sweep)
            if all(each.dead or each.not_run for each in sweep.cells):
                status = m.VerdictStatus.FAILED
        text = f"No mode can be recommended {of}: {why}"
        return m.SweepVerdict(status, text, trust, None, None)
    mine, best = ranked[0]
    name = sweep.question.strategy
    if not name.isidentifier():
        name = "model"
    code = best.cell.code(name, sweep.question.device)
    times = how = ""
    if isinstance(best.speedup, m.Estimate) and best.verdict is m.Judged.FASTER:
        times = f"{figure(best.speedup.value)}\N{MULTIPLICATION SIGN}"
        how = f", each step {times} faster than eager"
    runner_up = None
    level = [
        (each.cell.name, its)
        for its, each in ranked
        if judge(_sum(mine), _sum(its)).verdict is not m.Judged.FASTER
    ]
    status = m.VerdictStatus.OK
    if len(ranked) == 1:
        can = "is known to fit"  # the others need more memory
        if len(own or judged) == 1:
            can = "could be judged"
            status = m.VerdictStatus.INCONCLUSIVE
            if not best.cell.compiles:
                code = ""
        text = f"Only {best.cell.name} {can} {of}: {short(mine.value)} s{how}"
    else:
        theirs, second = ranked[1]
        runner_up = second.cell
        use = "Leave it uncompiled (eager)"
        if best.cell.compiles:
            use = f"Use {best.cell.name}"
        text = (
            f"{use} {of}: {short(mine.value)} s from a cold start{how}; "
            f"runner-up {runner_up.name}, {short(theirs.value)} s"
        )
    if len(level) > 1:
        names = [name for name, _ in level]
        low_s = min(its.low for _, its in level)
        high_s = max(its.high for _, its in level)
        together = " and ".join(names)
        if len(names) > 2:
            together = f"{names[0]}, {names[1]} and {len(names) - 2} more"
        text = (
            f"{together} take equally long {of} within the noise "
            f"({short(low_s)} to {short(high_s)} s)"
        )
        if times:
            text += f"; a step of {names[0]} is {times} faster than in eager"
        status = m.VerdictStatus.INCONCLUSIVE
    return m.SweepVerdict(status, text, trust, best.cell, runner_up, code)


def _fits(each: m.CellWorth, memory_bytes: int) -> bool:
    """With the margin for spikes; a cell whose memory is not known does not."""
    needed = each.device_bytes
    if not isinstance(needed, int):
        needed = each.host_bytes
    return isinstance(needed, int) and needed * SAFETY <= memory_bytes


def _sum(total: m.Estimate) -> Samples:
    """Of a start and of steps, each with its extremes over processes."""
    return Samples(total.value, total.low, total.high, 1, FEWEST_PROCESSES)


def _why_none(sweep: m.Sweep) -> str:
    compiled = [
        times.frames for each in sweep.cells if each.cell.compiles for times in each.measured()
    ]
    if compiled and not any(compiled):
        return "nothing was compiled"
    return "no cell was measured in enough processes"


def _held(found: m.SweepVerdict, ladder: m.Ladder | m.Skipped) -> m.SweepVerdict:
    """With what the correctness ladder found, if it was the recommended cell that climbed it."""
    if not isinstance(ladder, m.Ladder) or ladder.first is None or found.best is None:
        return found
    if ladder.cell != found.best.name:
        return found
    if found.status is m.VerdictStatus.OK:
        found = replace(found, status=m.VerdictStatus.ATTENTION)
    changes = f"but {ladder.cell} changes the results (at {ladder.first})"
    return replace(found, text=f"{found.text}; {changes}")


def _trust(sweep: m.Sweep, worth: Sequence[m.CellWorth], *, recommendable: bool) -> str:
    """How many processes, how far they lie apart, and what is missing."""
    steps = [each.step for each in worth if isinstance(each.step, m.Spread)]
    counts = [step.samples for step in steps]
    parts = []
    if steps:
        apart = max(
            (step.maximum / step.minimum for step in steps if step.minimum > 0), default=1.0
        )
        words = f"{short(apart)} times"
        if apart < TIMES_APART:
            words = f"{short(100 * (apart - 1), 2)} %"
        processes = "process"
        if max(counts) > 1:
            processes = f"processes, at most {words} apart"
        parts.append(f"each cell was timed in {span(counts)} {processes}")
    for each in worth:
        if each.cell.precision is not m.Precision.AS_IS and isinstance(each.speedup, m.Estimate):
            by = max(each.speedup.value, 1 / each.speedup.value)
            times = f"is {figure(by)}\N{MULTIPLICATION SIGN} {each.verdict} than eager"
            if each.verdict not in (m.Judged.FASTER, m.Judged.SLOWER):
                times = "cannot be told from eager"
            part = f"{each.cell.name} {times} and rounds differently"
            if not recommendable:
                part += ", so it is not recommended"
            parts.append(part)
    late = [
        each.cell.name
        for each in sweep.cells
        if any(times.compiled_late for times in each.measured())
    ]
    dead = [each.cell.name for each in sweep.cells if each.dead]
    cut = [each.cell.name for each in sweep.cells if each.not_run]
    for names, what in (
        (late, "torch still compiled while the steps were timed"),
        (dead, f"{plural(len(dead), 'cell')} died"),
        (cut, f"{plural(len(cut), 'cell')} not or only partly measured"),
    ):
        if names:
            parts.append(f"{what}: {', '.join(names[:2])}")
    if sweep.interrupted:
        parts.append("the sweep was interrupted")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}"


def span(counts: Sequence[int]) -> str:
    low = min(counts)
    high = max(counts)
    if low == high:
        return str(low)
    return f"{low} to {high}"
