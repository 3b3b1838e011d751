"""Where the time went: how much slower a run is, and in parts what of that its traces show.

TIMING says how much slower; the traces say where, under an instrument that costs something. So a
microsecond of the trace is taken for as much of TIMING's as a traced step was longer than a timed
one (both sides together), or for less where the trace would explain more than there is.

Kernels of one name are launched n times and take t each: the difference of n·t is (change of
n)·(mean t) for the launches and (mean n)·(change of t) for the kernel, which add up to it. Kernels
that only one side has are one pool, because fusion gives new names to old work. What is left of the
window is the host's: on a GPU the time in which the device had nothing to do, on a CPU the time in
no operator, and in both the frames of Dynamo and of compiled regions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from kgprof import model as m
from kgprof.compare.metrics import TIMES, Metrics, Sides, both_known, named
from kgprof.judge import judge
from kgprof.measures.kernel_kinds import plain_name
from kgprof.wording import plural, relative, short, short_name

# launches a step: below it is one in some steps only, which the traced ones may have met by chance
LEAST_MORE = 0.5
# of base's calls a step: steps differ in what they meet, and a profile leaves small functions out
CALLS_SHARE = 0.10
# A part below this share of the regression is no cause; it stays in the remainder.
LEAST_SHARE = 0.05
# Below it, what the traces say does not account for the time, and a new finding that can cost time
# comes first.
ACCOUNTED_FOR = 0.5
# Where the limit is not decided, a time is explained if head is slower at all. With fewer rounds
# than this two recordings of one program, on a machine with others on it, were seen to lie apart.
FEWEST_TO_EXPLAIN = 5

_NAME = 70  # characters of a kernel's name in a sentence


class Part(m.Model, kw_only=False):
    """``us``: of a step of the trace, or of what the regression is of; negative: less than
    before."""

    kind: m.CostKind
    us: float
    text: str
    subject: str = ""  # as a Cause's
    more: float = 0.0  # launches a step
    location: m.Location | None = None


# ---------------------------------------------------------------- the traces: kernels


# of a kernel the first line that is new in head, else its first
_Place = Callable[[str], m.Location | None]


def parts(
    trace: m.TraceDifference, base: m.RunReport, head: m.RunReport, root: str
) -> tuple[Part, ...]:
    """They add up to the change of the window, but for what runs at the same time. Empty without
    comparable traces."""
    both = both_known(base.kernels, head.kernels)
    if trace.total is None or both is None:
        return ()
    before, after = both
    copies: list[m.Change] = []
    stayed: list[m.Change] = []
    on_one_side: list[m.Change] = []
    framework_us = 0.0
    for kernel in trace.kernels:
        if kernel.kind is m.KernelKind.FRAMEWORK:
            framework_us += kernel.delta_us
        elif kernel.kind is m.KernelKind.COPY:
            copies.append(kernel)
        elif kernel.before > 0 and kernel.after > 0:
            stayed.append(kernel)
        else:
            on_one_side.append(kernel)
    known = {
        (plain_name(row.name), line.function, line.line)
        for row in before.rows
        for line in row.lines
    }
    places: dict[str, m.Location] = {}
    for row in after.rows:
        name = plain_name(row.name)
        new = [line for line in row.lines if (name, line.function, line.line) not in known]
        for line in (*new, *row.lines)[:1]:
            places.setdefault(name, line)
    place = places.get
    work = (*_copies(copies, place), *_launched(stayed, place), *_pool(on_one_side, place))
    host = _host(trace, framework_us, base, head, root)
    # What a launch costs the host in base. Kernels in a CUDA graph are launched by one call, so
    # calls count there.
    steps = before.steps or 1
    launched = sum(
        kernel.before for kernel in trace.kernels if kernel.kind is not m.KernelKind.FRAMEWORK
    )
    if isinstance(before.launches, int) and before.launches:
        launched = before.launches / steps
    each = 0.0
    if launched:
        each = before.idle_us / steps / launched
    left = host.us
    split = []
    for part in work:  # what launching costs the host goes to what is launched more often
        us = 0.0
        if part.kind in (m.CostKind.LAUNCHES, m.CostKind.COPIES):
            us = min(max(0.0, part.more) * each, max(0.0, left))
        left -= us
        split.append(replace(part, us=part.us + us))
    return tuple(part for part in (*split, replace(host, us=left)) if part.us or part.more)


def _copies(copies: Sequence[m.Change], place: _Place) -> Iterator[Part]:
    if not copies:
        return
    more = sum(kernel.more for kernel in copies)
    us = sum(kernel.delta_us for kernel in copies)
    largest = max(copies, key=lambda kernel: kernel.delta_us)
    name = short_name(largest.name, _NAME)
    text = f"the same copies and fills take longer, {name} first"
    subject = ""
    if abs(more) >= LEAST_MORE:
        before = short(sum(kernel.before for kernel in copies), 4)
        after = short(sum(kernel.after for kernel in copies), 4)
        subject = "copies and fills"
        text = f"{subject}: {short(more, sign='+')} per step ({before} -> {after}), {name} first"
    yield Part(m.CostKind.COPIES, us, text, subject, more, place(largest.name))


def _launched(kernels: Sequence[m.Change], place: _Place) -> Iterator[Part]:
    """Kernels that were there: those launched more often, or less, together, and each for the time
    of a launch."""
    changed = [kernel for kernel in kernels if kernel.more]
    if changed:
        more = sum(kernel.more for kernel in changed)
        largest = max(changed, key=lambda kernel: kernel.launches_us)
        which = (
            f"{plural(len(changed), 'kernel')} on both sides, "
            f"{short_name(largest.name, _NAME)} first"
        )
        text = f"{plural(more, 'launch', 'launches', sign='+')} per step of {which}"
        us = sum(kernel.launches_us for kernel in changed)
        yield Part(m.CostKind.LAUNCHES, us, text, more=more, location=place(largest.name))
    for kernel in kernels:
        name = short_name(kernel.name, _NAME)
        us = kernel.delta_us - kernel.launches_us
        each = (
            f"{short(kernel.before_us / kernel.before)} -> "
            f"{short(kernel.after_us / kernel.after)} µs per launch"
        )
        text = f"{name}: {each}, {plural(kernel.after, 'launch', 'launches')} per step"
        yield Part(m.CostKind.KERNEL, us, text, name, location=place(kernel.name))


def _pool(kernels: Sequence[m.Change], place: _Place) -> Iterator[Part]:
    """Kernels that only one side has: more launches, or other kernels for the work of those that
    are gone."""
    if not kernels:
        return
    new = [kernel for kernel in kernels if kernel.after]
    gone = [kernel for kernel in kernels if not kernel.after]
    more = sum(kernel.more for kernel in kernels)
    us = sum(kernel.delta_us for kernel in kernels)
    launched = plural(sum(kernel.after for kernel in new), "launch", "launches", digits=4)
    text = f"{launched} per step of {plural(len(new), 'new kernel')}"
    if gone:
        text += f" replacing {short(sum(kernel.before for kernel in gone), 4)} of {len(gone)}"
    location = None
    if new:
        largest = max(new, key=lambda kernel: kernel.after_us)
        text = f"{text}, {short_name(largest.name, _NAME)} first"
        location = place(largest.name)
    kind = m.CostKind.REPLACED
    if more >= LEAST_MORE:
        kind = m.CostKind.LAUNCHES
    yield Part(kind, us, text, more=more, location=location)


# ---------------------------------------------------------------- the traces: the host


def _host(
    trace: m.TraceDifference, framework_us: float, base: m.RunReport, head: m.RunReport, root: str
) -> Part:
    """With the function whose own time under cProfile grew most; its place where it lies in the
    repository."""
    us = framework_us
    if idle := trace.of_window("idle"):
        us += idle.delta_us
    text = "more time outside of operators"
    if trace.device == "cuda":
        text = "the GPU waits longer"
    location = None
    if both := _profiled(base, head):
        before, after = both
        was = {name: row.self_us / before.steps for name, row in _functions(before).items()}
        grown = [
            (row.self_us / after.steps - was.get(name, 0.0), row)
            for name, row in _functions(after).items()
        ]
        most, row = max(grown, key=lambda pair: pair[0], default=(0.0, None))
        if row is not None and most > 0:
            text += (
                f"; the Python function that grew most is {row.function} (+{short(most)} µs "
                "per step under cProfile)"
            )
            location = _own_place(row, root)
    return Part(m.CostKind.HOST, us, text, location=location)


def _profiled(
    base: m.RunReport, head: m.RunReport
) -> tuple[m.HostBreakdown, m.HostBreakdown] | None:
    """cProfile's breakdowns, of a step at least; None unless both sides have one."""
    both = both_known(base.host, head.host)
    if both and all(side.steps for side in both):
        return both
    return None


def _functions(host: m.HostBreakdown) -> Mapping[tuple[str, str], m.HostRow]:
    """By the file's name without its folders, and the function's. Lines move and folders differ, so
    two lambdas of a function, or ``main`` of two ``__init__.py``, are added up."""
    rows: dict[tuple[str, str], m.HostRow] = {}
    for row in host.rows:
        name = row.file.replace("\\", "/").rpartition("/")[2], row.function
        if was := rows.get(name):
            sums = {
                field: getattr(was, field) + getattr(row, field)
                for field in ("calls", "self_us", "cumulative_us")
            }
            row = replace(was, **sums)
        rows[name] = row
    return rows


def _own_place(row: m.HostRow, root: str) -> m.Location | None:
    """None outside of the repository: below ``root``, or named from there, as a report that is to
    be shared does."""
    path = relative(row.file, root)
    if not path.endswith(".py") or path.startswith(("/", "<", "~")) or path[1:2] == ":":
        return None
    return m.Location(row.file, row.line, row.function)


def more_calls(base: m.RunReport, head: m.RunReport, root: str) -> Part | None:
    """Calls of Python's functions in a step, as cProfile counts them. None where there are no more,
    or where a side was not profiled.

    A profile holds the functions with the most own time: one that base's does not list was called
    there 0 times only if head's is well above what base's leaves out. The place: of the project's
    own functions the one whose time with all that it calls grew most, as a share of the whole,
    because the machine may have been slower on a side.
    """
    if not (both := _profiled(base, head)):
        return None
    before, after = both
    there = _functions(before)
    totals = before.total_self_us or 1.0, after.total_self_us or 1.0
    left_out_us = 0.0
    if before.rows_left_out:
        left_out_us = min((row.self_us for row in before.rows), default=0.0)
    calls = sum(row.calls for row in before.rows) / before.steps
    number = 0.0
    grown = []
    share, place = 0.0, None
    for name, row in _functions(after).items():
        more = row.calls / after.steps
        more_share = row.cumulative_us / totals[1]
        listed = row.self_us / after.steps >= 2 * left_out_us / before.steps
        if was := there.get(name):
            more -= was.calls / before.steps
            more_share -= was.cumulative_us / totals[0]
            listed = True
        if listed and more >= LEAST_MORE:
            number += more
            grown.append(row)
        own = _own_place(row, root)
        if own is not None and more_share > share:
            share, place = more_share, own
    if not grown or number < CALLS_SHARE * calls:
        return None
    largest = max(grown, key=lambda row: row.self_us).function
    text = f"{calls:,.0f} -> {calls + number:,.0f} Python function calls per step, {largest} first"
    return Part(m.CostKind.HOST, 0.0, text, location=place)


# ---------------------------------------------------------------- is it slower, and by how much


class Slower(m.Model):
    """How much longer, per ``per``; ``scale`` turns the trace's microseconds a step into TIMING's.

    ``parts`` are in TIMING's microseconds of what the regression is of; none where the traces are
    not longer as well.
    """

    metric: m.ComparedMetric
    per: str
    delta_us: float
    scale: m.Figure
    more_steps: str  # empty: there are no more
    # what they cost; at most the whole difference, and 0 where they do not explain a part of it
    more_steps_us: float
    shown: bool  # the traces are longer as well; else what is longer in them is not what TIMING met
    parts: tuple[Part, ...]

    @property
    def accounted_for(self) -> bool:
        return self.more_steps_us + _longer_us(self.parts) >= ACCOUNTED_FOR * self.delta_us

    def is_a_share(self, us: float) -> bool:
        return us >= LEAST_SHARE * self.delta_us


def slower(
    sides: Sides,
    metrics: Metrics,
    trace: m.TraceDifference,
    seen: Sequence[Part],
) -> Slower | None:
    """None where no time is worse. ``seen``: the parts of the traces' difference, in their own
    microseconds a step."""
    metric = _worse(sides, metrics)
    if metric is None or metric.time_of is None:
        return None
    # or it would not be worse
    delta_us = m.known(longer(metric)) * TIMES[metric.time_of].unit_us
    steps = _Steps.of(sides, metrics, metric.time_of)
    more_steps, more_steps_us = steps.more(delta_us)
    left_us = delta_us - more_steps_us
    scale = trace_scale(metrics, trace)
    placed = []
    shown = False
    if not isinstance(scale, m.Skipped):
        longer_us = _longer_us(seen) * steps.mean
        if 0 < left_us < longer_us * scale:
            # A profiler makes each event longer, and so also what more events cost: it explains no
            # more than there is.
            scale = left_us / longer_us
        share_us = sum(part.us for part in seen) * steps.mean * scale
        shown = left_us > LEAST_SHARE * delta_us and share_us >= LEAST_SHARE * left_us
        if shown:
            placed = [replace(part, us=part.us * (scale * steps.mean)) for part in seen]
    between_us = min(steps.between(delta_us), left_us - _longer_us(placed))
    if between_us >= (1 - ACCOUNTED_FOR) * delta_us:
        subject = "outside the median step"
        text = f"{subject}: between the steps, or in a few that take longer than the others"
        placed.append(Part(m.CostKind.HOST, between_us, text, subject))
    return Slower(
        metric=metric,
        per=steps.per,
        delta_us=delta_us,
        scale=scale,
        more_steps=more_steps,
        more_steps_us=more_steps_us,
        shown=shown,
        parts=tuple(placed),
    )


@m.skippable
def longer(metric: m.ComparedMetric) -> float:
    """What the program takes more than in base, in the metric's unit; less is below 0."""
    base = m.known(metric.base)
    return base * (m.known(metric.ratio) - 1)


def _longer_us(parts: Sequence[Part]) -> float:
    """Of those that take longer: what became shorter explains nothing, and hides nothing of the
    others."""
    return sum(max(0.0, part.us) for part in parts)


def _worse(sides: Sides, metrics: Metrics) -> m.ComparedMetric | None:
    """By its interval, or, where that does not settle it, by far. In another environment nothing is
    known of the program's part in it."""
    if sides.doubt:
        return None
    deciding = [metric for metric in metrics if metric.time_of and metric.decides]
    worse = [metric for metric in deciding if metric.verdict is m.MetricVerdict.WORSE]
    unsettled = [metric for metric in deciding if metric.verdict is m.MetricVerdict.INCONCLUSIVE]
    return next(iter(worse or [metric for metric in unsettled if _far_apart(metric, sides)]), None)


@m.otherwise(False)
def _far_apart(metric: m.ComparedMetric, sides: Sides) -> bool:
    """Of a metric whose interval settles nothing: whether head is slower, if not by how much."""
    if metric.time_of is None or metric.undecided is m.Undecided.MACHINE_MOVED:
        return False
    limit = 1 + (metric.budget_percent or 0.0) / 100
    few = 1 < min(metric.base_rounds, metric.head_rounds) < FEWEST_TO_EXPLAIN
    if few or m.known(metric.ratio) <= limit:
        return False
    base, head = (m.known(TIMES[metric.time_of].samples(run)) for run in (sides.base, sides.head))
    return judge(base, head, in_turn=sides.pairs).verdict is m.Judged.FASTER


class _Steps(m.Model, kw_only=False):
    """How many there are in what the time is of, and how long TIMING's median one takes."""

    per: str  # what the time is of
    before: float
    after: float
    us: tuple[float, float] | None  # None: TIMING has no step on both sides

    @classmethod
    def of(cls, sides: Sides, metrics: Metrics, time_of: m.TimeOf) -> _Steps:
        step = named(metrics, m.TimeOf.STEP)
        both = both_known(step.base, longer(step)) if step else None
        us = None
        if both:
            us = both[0], both[0] + both[1]
        per: str = time_of
        if time_of is m.TimeOf.UNIT:
            per = sides.head.unit.name
        before, after = (_steps_in(time_of, run) for run in (sides.base, sides.head))
        return cls(per, before, after, us)

    @property
    def mean(self) -> float:
        return (self.before + self.after) / 2

    def between(self, delta_us: float) -> float:
        """What lies outside of the steps' usual time; of a step nothing does."""
        if self.us is None or not self.before or not self.after:
            return 0.0
        return delta_us - (self.after * self.us[1] - self.before * self.us[0])

    def more(self, delta_us: float) -> tuple[str, float]:
        """More steps, and what they cost. Where each takes less than before (a smaller batch), what
        both come to."""
        if self.after <= self.before:
            return "", 0.0
        text = f"{plural(self.after, 'step')} per {self.per}, {short(self.before)} in base"
        if self.us is None:
            return text, 0.0
        before_us, after_us = self.us
        us = (self.after - self.before) * (before_us + after_us) / 2
        if after_us <= before_us:
            us = self.after * after_us - self.before * before_us
            text += f", each {before_us:,.0f} -> {after_us:,.0f} µs"
        if us < LEAST_SHARE * delta_us:
            return text, 0.0
        return text, min(us, delta_us)


def _steps_in(time_of: m.TimeOf, run: m.RunReport) -> float:
    """How many; a step advances many units of work, so it is a part of each. 0: not known."""
    if time_of is m.TimeOf.STEP:
        return 1.0
    counted = 0.0
    if isinstance(run.evaluation, m.Evaluation):
        counted = float(run.evaluation.steps)
        if time_of is m.TimeOf.UNIT:
            counted /= run.evaluation.units
    elif time_of is m.TimeOf.UNIT and run.unit.per_step:
        counted = 1 / run.unit.per_step
    return counted


def trace_scale(metrics: Metrics, trace: m.TraceDifference) -> m.Figure:
    """A microsecond of the traced window in TIMING's."""
    step = named(metrics, m.TimeOf.STEP)
    window = trace.of_window("window")
    if window is None or trace.per != "step":
        return m.Skipped(trace.missing or "the traces mark no steps")
    both = step and both_known(step.base, step.head)
    if not both:
        return m.Skipped("TIMING has no step to compare the traces with")
    traced = window.before_us + window.after_us
    if traced <= 0:
        return m.Skipped("the traced windows are empty")
    return sum(both) / traced
