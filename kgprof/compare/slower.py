"""How much slower a run is, and how much of that its traces show.

TIMING says how much slower; the traces say where, under an instrument that costs something. So a microsecond of the
trace is taken for as much of TIMING's as a traced step was longer than a timed one (both sides together), or for less
where the trace would explain more than there is: more steps, the parts of a step and what lies between the steps never
come to more than the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kgprof import model as m
from kgprof.compare.intervals import INCONCLUSIVE, WORSE
from kgprof.compare.metrics import EVALUATION, STEP, UNIT, Sides, one_process, round_times
from kgprof.compare.parts import HOST, Part

# A part below this share of the regression is no cause; it stays in the remainder.
LEAST_SHARE = 0.05
# Below it, what the traces say does not account for the time, and a new finding that can cost time comes first.
ACCOUNTED_FOR = 0.5
# Where the interval does not settle it, a time is explained only if every round of head took longer than every round of
# base: with five a side that happens by chance once in 252 times (exact rank test), with three once in 20, which two
# recordings of one program on a machine with others on it were seen to do.
FEWEST_TO_RANK = 5
# Without rounds what differs between processes is not known, and on an H200 processes of one program were 1.4x apart:
# one of head's is explained only from here on, and only if nine of ten of its samples are above nine of ten of base's.
FAR_APART = 1.5

_US = {STEP: 1.0, EVALUATION: 1e6, UNIT: 1e3}  # of each time's unit


@dataclass(frozen=True, kw_only=True, slots=True)
class MoreSteps:
    """``us``: what they cost; at most the whole difference, and 0 where they do not explain a part of it."""

    text: str
    us: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Slower:
    """How much longer, per ``per``, without the machine's own part; ``scale`` turns the trace's microseconds a step
    into TIMING's.

    ``parts`` are in TIMING's microseconds of what the regression is of; none where the traces are not longer as well.
    """

    metric: m.ComparedMetric
    per: str
    delta_us: float
    scale: float | m.Skipped
    more_steps: MoreSteps | None
    shown: bool  # the traces are longer as well; else what is longer in them is not what TIMING met
    parts: tuple[Part, ...]

    @property
    def accounted_us(self) -> float:
        return (self.more_steps.us if self.more_steps else 0.0) + _longer(self.parts)

    @property
    def accounted_for(self) -> bool:
        return self.accounted_us >= ACCOUNTED_FOR * self.delta_us

    def is_a_share(self, us: float) -> bool:
        return us >= LEAST_SHARE * self.delta_us

    def share(self, us: float) -> float:
        return us / self.delta_us


def slower(
    sides: Sides, metrics: Sequence[m.ComparedMetric], trace: m.TraceDifference, found: Sequence[Part]
) -> Slower | None:
    """None where no time is worse. ``found``: the parts of the traces' difference, in their own microseconds a step."""
    metric = _worse(sides, metrics)
    if metric is None:
        return None
    more = longer(metric)
    assert not isinstance(more, m.Skipped)  # or it would not be worse
    delta_us = more * _US[metric.time_of]
    per = sides.head.unit.name if metric.time_of == UNIT else metric.time_of
    steps = _Steps.of(sides, metrics, metric.time_of, per)
    more_steps = steps.more(delta_us)
    left_us = delta_us - (more_steps.us if more_steps else 0.0)
    scale = _fitted(trace_scale(metrics, trace), _longer(found) * steps.mean, left_us)
    shown = _shown(scale, sum(part.us for part in found) * steps.mean, left_us, delta_us)
    parts = [] if isinstance(scale, m.Skipped) or not shown else [_times(part, scale * steps.mean) for part in found]
    parts += _between(min(steps.between(delta_us), left_us - _longer(parts)), delta_us)
    return Slower(
        metric=metric,
        per=per,
        delta_us=delta_us,
        scale=scale,
        more_steps=more_steps,
        shown=shown,
        parts=tuple(parts),
    )


def longer(metric: m.ComparedMetric) -> float | m.Skipped:
    """What the program takes more than in base, in the metric's unit; less is below 0."""
    if isinstance(metric.base, m.Skipped):
        return metric.base
    return metric.ratio if isinstance(metric.ratio, m.Skipped) else metric.base * (metric.ratio - 1)


def named(metrics: Sequence[m.ComparedMetric], name: str) -> m.ComparedMetric | None:
    return next((one for one in metrics if one.name == name), None)


# ---------------------------------------------------------------- is it slower


def _worse(sides: Sides, metrics: Sequence[m.ComparedMetric]) -> m.ComparedMetric | None:
    """By its interval, or, where that does not settle it, by far. In another environment nothing is known of the
    program's part in it."""
    if not sides.comparable:
        return None
    deciding = [metric for metric in metrics if metric.time_of and metric.decides]
    worse = [metric for metric in deciding if metric.verdict == WORSE]
    worse = worse or [metric for metric in deciding if metric.verdict == INCONCLUSIVE and _far_apart(metric, sides)]
    return worse[0] if worse else None


def _far_apart(metric: m.ComparedMetric, sides: Sides) -> bool:
    """Of a metric whose interval settles nothing: see FEWEST_TO_RANK and FAR_APART."""
    if isinstance(metric.ratio, m.Skipped) or metric.ratio <= 1 + (metric.budget_percent or 0.0) / 100:
        return False
    if not isinstance(metric.machine, m.Skipped):
        return False  # rounds may lie apart because the machine did, and the interval knows how much
    base, head = (round_times(metric.time_of, side) for side in (sides.base, sides.head))
    if min(len(base), len(head)) > 1:
        return min(len(base), len(head)) >= FEWEST_TO_RANK and min(head) > max(base)
    before, after = (one_process(metric.time_of, side) for side in (sides.base, sides.head))
    if isinstance(before, m.Skipped) or isinstance(after, m.Skipped):
        return False
    return metric.ratio >= FAR_APART and min(before.samples, after.samples) > 1 and after.p10 > before.p90


# ---------------------------------------------------------------- the steps


@dataclass(frozen=True, kw_only=True, slots=True)
class _Steps:
    """How many there are in what the time is of, and how long TIMING's median one takes."""

    per: str
    before: float
    after: float
    before_us: float | None  # None: TIMING has no step on both sides
    after_us: float | None

    @classmethod
    def of(cls, sides: Sides, metrics: Sequence[m.ComparedMetric], time_of: str, per: str) -> _Steps:
        step = named(metrics, STEP)
        more = m.Skipped(reason="there is no step") if step is None else longer(step)
        if step is None or isinstance(step.base, m.Skipped) or isinstance(more, m.Skipped):
            times: tuple[float | None, float | None] = (None, None)
        else:
            times = (step.base, step.base + more)
        before, after = (_number(side, time_of) for side in (sides.base, sides.head))
        return cls(per=per, before=before, after=after, before_us=times[0], after_us=times[1])

    @property
    def mean(self) -> float:
        return (self.before + self.after) / 2

    def between(self, delta_us: float) -> float:
        """What lies outside of the steps' usual time; of a step nothing does."""
        if self.before_us is None or self.after_us is None or not self.before or not self.after:
            return 0.0
        return delta_us - (self.after * self.after_us - self.before * self.before_us)

    def more(self, delta_us: float) -> MoreSteps | None:
        """What more steps cost. Where each takes less than before (a smaller batch), what both come to."""
        if self.after <= self.before:
            return None
        figure = ",.0f" if self.per == EVALUATION else ",.3g"
        article = "an" if self.per[0] in "aeio" else "a"  # u as in unit and user is no vowel
        text = f"{self.after:{figure}} steps {article} {self.per}, {self.before:{figure}} in base"
        if self.before_us is None or self.after_us is None:
            return MoreSteps(text=text, us=0.0)
        us = (self.after - self.before) * (self.before_us + self.after_us) / 2
        if self.after_us <= self.before_us:
            us = self.after * self.after_us - self.before * self.before_us
            text += f", each {self.before_us:,.0f} -> {self.after_us:,.0f} us"
        return MoreSteps(text=text, us=min(us, delta_us) if us >= LEAST_SHARE * delta_us else 0.0)


def _number(run: m.RunReport, time_of: str) -> float:
    """A step is one, an evaluation has several, and a unit of work is a part of one, because a step advances many."""
    if time_of == STEP:
        return 1.0
    if isinstance(run.evaluation, m.Skipped):
        return 1 / run.unit.per_step if time_of == UNIT and run.unit.per_step else 0.0
    return run.evaluation.steps / (run.evaluation.units if time_of == UNIT else 1)


# ---------------------------------------------------------------- what the traces show of it


def trace_scale(metrics: Sequence[m.ComparedMetric], trace: m.TraceDifference) -> float | m.Skipped:
    """A microsecond of the traced window in TIMING's."""
    step, window = named(metrics, STEP), next((row for row in trace.window if row.name == "window"), None)
    if window is None or trace.per != "step":
        return m.Skipped(reason=trace.missing or "the traces mark no steps")
    if step is None or isinstance(step.base, m.Skipped) or isinstance(step.head, m.Skipped):
        return m.Skipped(reason="TIMING has no step to hold the traces against")
    traced = window.before_us + window.after_us
    return (step.base + step.head) / traced if traced > 0 else m.Skipped(reason="the traced windows are empty")


def _fitted(scale: float | m.Skipped, longer_us: float, left_us: float) -> float | m.Skipped:
    """A profiler makes each event longer, and so also what more events cost: a trace that explains more than there is
    is scaled to what there is."""
    if isinstance(scale, m.Skipped) or left_us <= 0 or longer_us * scale <= left_us:
        return scale
    return left_us / longer_us


def _shown(scale: float | m.Skipped, traced_us: float, left_us: float, delta_us: float) -> bool:
    if isinstance(scale, m.Skipped) or left_us <= LEAST_SHARE * delta_us:
        return False
    return traced_us * scale >= LEAST_SHARE * left_us


def _longer(parts: Sequence[Part]) -> float:
    """Of those that take longer: what became shorter explains nothing, and hides nothing of the others."""
    return sum(max(0.0, part.us) for part in parts)


def _times(part: Part, factor: float) -> Part:
    return replace(part, us=part.us * factor)


def _between(us: float, delta_us: float) -> list[Part]:
    """Of an evaluation: what no part accounts for and lies outside of the steps' usual time."""
    if us < (1 - ACCOUNTED_FOR) * delta_us:
        return []
    text = "outside of the median step: between the steps, or in a few that take longer than the others"
    return [Part(what=HOST, us=us, text=text)]
