"""A plot with two axes, drawn without a script: lengths across are shares of the width, those up
are pixels; its twin is a table beside it, and each of its shapes says what it is when the pointer
rests on it. And how the steps of TIMING lie: how many are how long, and each in its turn, process
by process."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import ClassVar

from kgprof import model as m
from kgprof.document.breakdown import legend_of
from kgprof.document.escaping import one_line
from kgprof.document.limits import Limits, kept
from kgprof.document.quantity import count, figure, milliseconds, of_width, span
from kgprof.document.run_parts import run_part
from kgprof.document.table import Block, Blocks, Drawing, View, plain
from kgprof.wording import plural

ACROSS = 1000  # units of the width
TOP, HIGH = 22, 170  # pixels: above the plot the name of its axis, below it 38 for the other one
_ACROSS_TICKS, _UP_TICKS = 8, 4  # at most
_NICE = (1, 2, 2.5, 5, 10)


class Shape(View, kw_only=False):
    """``path``: in units of ACROSS by pixels."""

    style: str
    path: str
    title: str = ""


class Plot(Drawing):
    kind: ClassVar[str] = "plot"
    across: ClassVar[int] = ACROSS
    height: ClassVar[int] = HIGH + 38
    bottom: ClassVar[int] = HIGH
    description: str
    shapes: tuple[Shape, ...]
    x_name: str
    x_ticks: tuple[tuple[str, str, str], ...]  # where, text, and the text's anchor
    y_name: str
    y_ticks: tuple[tuple[float, str], ...]
    # vertical lines: where, what, the text's anchor and height
    marks: tuple[tuple[str, str, str, int], ...] = ()

    @property
    def groups(self) -> tuple[tuple[str, tuple[Shape, ...]], ...]:
        """The shapes in their order, those of one style that follow each other together."""
        return tuple(
            (style, tuple(shapes))
            for style, shapes in groupby(self.shapes, key=lambda shape: shape.style)
        )


class Axis(m.Model):
    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """0..1 within the axis, and beyond it its end."""
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / ((self.high - self.low) or 1.0)
        return min(max(share, 0.0), 1.0)

    def x(self, value: float) -> float:
        return round(ACROSS * self.at(value), 1)

    def y(self, value: float) -> float:
        return round(HIGH - (HIGH - TOP) * self.at(value), 1)

    def ticks(self, most: int) -> list[float]:
        if self.log:
            powers = range(
                math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1
            )
            return [10.0**power for power in powers][:: max(1, -(-len(powers) // most))]
        span = (self.high - self.low) or 1.0
        power = 10 ** math.floor(math.log10(span / most))
        each = next(digit * power for digit in _NICE if digit * power >= span / most * 0.999)
        first = math.ceil(self.low / each - 1e-9)
        return [each * count for count in range(first, math.floor(self.high / each + 1e-9) + 1)]


def bar(x: float, width: float, y: float, high: float) -> str:
    """A rectangle whose upper edge is at ``y``."""
    return f"M{x:g} {y:g}h{max(width, 0.4):g}v{max(high, 1.5):g}H{x:g}z"


def line(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def plot(
    description: str,
    shapes: Sequence[Shape],
    *,
    x: Axis,
    y: Axis,
    x_name: str,
    y_name: str,
    marks: Sequence[tuple[float, str]] = (),
    low_marks: bool = False,
) -> Plot:
    """``low_marks``: the texts of the marks stand at the foot of the plot."""
    sides = []
    for value in x.ticks(_ACROSS_TICKS):
        share = x.at(value)
        sides.append((of_width(share), ticked(value), "end" if share > 0.93 else "middle"))
    drawn = []
    for place, (at, text) in enumerate(marks):
        side = "start" if x.at(at) < (0.9 if low_marks else 0.6) else "end"
        drawn.append(
            (of_width(x.at(at)), text, side, HIGH - 6 if low_marks else TOP + 12 * (place % 3))
        )
    return Plot(
        description=description,
        shapes=tuple(shapes),
        x_name=x_name,
        x_ticks=tuple(sides),
        y_name=y_name,
        y_ticks=tuple((y.y(value), ticked(value)) for value in y.ticks(_UP_TICKS)),
        marks=tuple(drawn),
    )


def ticked(value: float) -> str:
    """Without the zeros that no tick needs."""
    text = figure(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


_BARS = (("range", "fastest to slowest of a few consecutive steps"), ("middle", "their median"))
_SINGLE = (("range", "one step"),)
_OTHERS = (("band", "p10 to p90 of all steps"), ("far", "longer than the picture shows"))
_NAMED = 5  # processes whose marks say so; of more they have numbers only
_FAR = 20  # entries above the picture that it marks


def timed_steps(runs: m.Runs) -> bool:
    return any(isinstance(run.series, m.StepSeries) for run in runs)


def step_time_folds(runs: m.Runs, limits: Limits) -> Blocks:
    """Of the runs that there is room for; what is left out is said once."""
    folds = list[Block]()
    drawn = kept(runs, limits.timelines)
    left_out = 0
    for index, run in enumerate(runs):
        name = one_line(run.key.slug, limits.name)
        series = run.series
        blocks = list[Block]()
        if isinstance(series, m.Skipped):
            blocks.append(f"No step times: {one_line(series.reason, limits.name)}.")
        elif index in drawn:
            entries = legend_of("p", *(_SINGLE if _single(series) else _BARS), *_OTHERS)
            blocks += [
                _distribution(series, name),
                entries,
                _over_time(series, name),
                _table(series, name, limits),
            ]
        else:
            left_out += 1
            continue
        folds.append(run_part(index, run, blocks, name="steps"))
    if left_out:
        folds.append(
            f"The step times of {plural(left_out, 'run')} are left out of this page; report.json "
            "holds them."
        )
    return tuple(folds)


def _single(series: m.StepSeries) -> bool:
    return all(process.every == 1 for process in series.processes)


def _distribution(series: m.StepSeries, name: str) -> Plot:
    time = series.time
    steps = sum(series.counts) + series.above
    start = series.bins_from_us / 1000
    width = series.bin_us / 1000
    end = start + width * len(series.counts)
    x = Axis(low=start, high=end + (2 * width if series.above else 0.0))
    y = Axis(low=0.0, high=1.1 * max(*series.counts, series.above, 1))
    shapes = []
    for place, many in enumerate(series.counts):
        if many:
            begin = start + place * width
            when = span(milliseconds(begin * 1000), milliseconds((begin + width) * 1000))
            title = f"{when} ms: {count(many)} of {plural(steps, 'step')}"
            wide = x.x(begin + width) - x.x(begin) - 1.5
            shapes.append(
                Shape(
                    "p-bar",
                    bar(x.x(begin), wide, y.y(many), y.y(0) - y.y(many)),
                    title,
                )
            )
    if series.above:
        longer = plural(series.above, "step")
        title = (
            f"above {milliseconds(end * 1000)} ms: {longer}, up to {milliseconds(time.maximum)} ms"
        )
        path = bar(
            x.x(end + 0.5 * width),
            x.x(width * 1.5 + start),
            y.y(series.above),
            y.y(0) - y.y(series.above),
        )
        shapes.append(Shape("p-far", path, title))
    return plot(
        f"Distribution of {plural(steps, 'step')} of {name}: median {milliseconds(time.median)} "
        f"ms, {count(series.above)} far above; the table below has the figures",
        shapes,
        x=x,
        y=y,
        x_name="step time, ms",
        y_name="steps",
        marks=((time.p10 / 1000, "p10"), (time.median / 1000, "median"), (time.p90 / 1000, "p90")),
    )


def _over_time(series: m.StepSeries, name: str) -> Plot:
    low, middle, high = series.time.p10, series.time.median, series.time.p90
    top = max(series.bins_from_us + series.bin_us * len(series.counts), high)
    y = Axis(low=0.0, high=1.08 * top / 1000)
    steps = series.time.samples
    x = Axis(low=0, high=steps)
    shapes = [
        Shape(
            "p-band",
            bar(0, x.x(steps), y.y(high / 1000), y.y(low / 1000) - y.y(high / 1000)),
            f"p10 to p90: {span(milliseconds(low), milliseconds(high))} ms",
        )
    ]
    at = 0
    far = list[Shape]()
    marks = list[tuple[float, str]]()
    middles = list[str]()
    for process in series.processes:
        if len(series.processes) > 1:
            marks.append(
                (
                    at,
                    f"process {process.number}"
                    if len(series.processes) <= _NAMED
                    else str(process.number),
                )
            )
        for entry, (least, mid, most) in enumerate(
            zip(process.low_us, process.middle_us, process.high_us, strict=True)
        ):
            first = entry * process.every
            many = min(process.every, process.time.samples - entry * process.every)
            left = x.x(at + first)
            wide = x.x(at + first + many) - x.x(at + first)
            when = (
                f"step {count(first + 1)}"
                if many == 1
                else f"steps {count(first + 1)} to {count(first + many)}"
            )
            took = (
                f"{milliseconds(mid)} ms"
                if many == 1
                else f"{span(milliseconds(least), milliseconds(most))} ms"
            )
            title = (
                f"{when}: {took}" if many == 1 else f"{when}: median {milliseconds(mid)}, {took}"
            )
            foot = 0.0 if _single(series) else least / 1000
            path = bar(left, max(0.8 * wide, 0.5), y.y(most / 1000), y.y(foot) - y.y(most / 1000))
            shapes.append(Shape("p-range", path, title))
            middles.append(line(((left, y.y(mid / 1000)), (left + 0.8 * wide, y.y(mid / 1000)))))
            if most > top and len(far) < _FAR:
                far.append(Shape("p-far", bar(left, max(wide, 3.0), 16, 6), title))
        at += process.time.samples
    if not _single(series):
        shapes.append(Shape("p-middle", "".join(middles)))
    return plot(
        f"{plural(steps, 'step')} of {name} in their order, "
        f"{plural(len(series.processes), 'process', 'processes')}: median {milliseconds(middle)} "
        "ms; the table below has the figures",
        (*shapes, *far),
        x=x,
        y=y,
        x_name="step, in order",
        y_name="step time, ms",
        marks=marks,
        low_marks=True,
    )


def _table(series: m.StepSeries, name: str, limits: Limits) -> Block:
    def rows() -> Iterator[tuple[str, ...]]:
        for process in series.processes[: limits.lines]:
            time = process.time
            times = (time.median, time.p10, time.p90, time.minimum, time.maximum)
            yield (
                f"process {process.number}",
                count(time.samples),
                *(milliseconds(us) for us in times),
            )

    headings = ("process", "steps", "median ms", "p10", "p90", "fastest", "slowest")
    return plain(f"Step times of {name} by process", headings, rows())
