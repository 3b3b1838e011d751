"""A plot with two axes, drawn without a script: lengths across are shares of the width, those up
are pixels; its twin is a table beside it, and each of its shapes says what it is when the pointer
rests on it. And how the steps of TIMING lie: how many are how long, and each in its turn, process
by process."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import ClassVar

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.breakdown import legend_of
from kgprof.document.limits import Limits, kept
from kgprof.document.quantity import count, figure, milliseconds, of_width, span
from kgprof.document.run_parts import name_of, run_part
from kgprof.document.table import Block, Drawing, View, plain
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


class Plot(Drawing, kw_only=False):
    across: ClassVar[int] = ACROSS
    height: ClassVar[int] = HIGH + 38
    bottom: ClassVar[int] = HIGH
    description: str
    shapes: Sequence[Shape]
    x_name: str
    x_ticks: Sequence[tuple[str, str, str]]  # where, text, and the text's anchor
    y_name: str
    y_ticks: Sequence[tuple[float, str]]
    # vertical lines: where, what, the text's anchor and height
    marks: Sequence[tuple[str, str, str, int]] = ()

    @property
    def groups(self) -> list[tuple[str, list[Shape]]]:
        """The shapes in their order, those of one style that follow each other together."""
        return [
            (style, [*shapes])
            for style, shapes in groupby(self.shapes, key=lambda shape: shape.style)
        ]


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
    x: Axis,
    y: Axis,
    x_name: str,
    y_name: str,
    *,
    marks: Sequence[tuple[float, str]] = (),
    low_marks: bool = False,
) -> Plot:
    """``low_marks``: the texts of the marks stand at the foot of the plot."""
    sides = []
    for value in x.ticks(_ACROSS_TICKS):
        share = x.at(value)
        side = "middle"
        if share > 0.93:
            side = "end"
        sides.append((of_width(share), ticked(value), side))
    drawn = []
    for place, (value, text) in enumerate(marks):
        share = x.at(value)
        rightmost, height = 0.6, TOP + 12 * (place % 3)
        if low_marks:
            rightmost, height = 0.9, HIGH - 6
        side = "end"
        if share < rightmost:
            side = "start"
        drawn.append((of_width(share), text, side, height))
    return Plot(
        description,
        shapes,
        x_name,
        sides,
        y_name,
        [(y.y(value), ticked(value)) for value in y.ticks(_UP_TICKS)],
        drawn,
    )


_IN = {"us": (1e3, "ms"), "bytes": (2**20, "MiB")}  # of an axis
_NAMES, _COLOURS = 5, 6  # recordings that have their names below


def course(
    metric: m.ComparedMetric,
    values: Sequence[m.Figure],
    names: Sequence[str],
    at: Sequence[tuple[int, Shape]],
    sections: Sequence[int],
    marks: Sequence[tuple[float, str]] = (),
) -> Plot:
    """A metric over recordings, from its least to its largest value with a tenth of room. A
    recording without a value is a gap, and each of ``sections`` has a line of its own. ``at``:
    what is to be said of values, the path left empty."""
    scale, unit = _IN.get(metric.unit, (1.0, metric.unit))
    known = {
        place: number / scale
        for place, number in enumerate(values)
        if not isinstance(number, m.Skipped)
    }
    least, most = min(known.values()), max(known.values())
    room = (most - least) / 10 or abs(most) / 10 or 1.0
    x = Axis(low=0, high=len(values))
    y = Axis(low=least - room, high=most + room)
    shapes = []
    for colour, section in enumerate(dict.fromkeys(sections)):
        mine = [place for place, each in enumerate(sections) if each == section]
        path = ""
        for measured, piece in groupby(mine, known.__contains__):
            if measured:
                path += line([(x.x(place), y.y(known[place])) for place in piece]) + "h2"
        shapes.append(Shape(f"curve c-{colour % _COLOURS}", path))
    for place, shape in at:
        path = bar(x.x(place) - 3, 6, y.y(known[place]) - 3, 6)
        shapes.append(replace(shape, path=path))
    name = metric.name
    if unit.partition("/")[0] not in name:
        name += f", {unit}"
    made = plot(
        f"{metric.name} of {metric.run.slug} over {plural(len(values), 'recording')}",
        shapes,
        x,
        y,
        "recording",
        name,
        marks=marks,
    )
    shown = range(0, len(values), -(-len(values) // _NAMES))
    return replace(
        made, x_ticks=[(of_width(x.at(place)), names[place], "start") for place in shown]
    )


def ticked(value: float) -> str:
    """Without the zeros that no tick needs."""
    text = figure(value)
    if "." in text:
        return text.rstrip("0").rstrip(".")
    return text


_BARS = (("range", "fastest to slowest of a few consecutive steps"), ("middle", "their median"))
_SINGLE = (("range", "one step"),)
_OTHERS = (("band", "p10 to p90 of all steps"), ("far", "longer than the picture shows"))
_NAMED = 5  # processes whose marks say so; of more they have numbers only
_FAR = 20  # entries above the picture that it marks


def timed_steps(runs: m.Runs) -> bool:
    return any(isinstance(run.series, m.StepSeries) for run in runs)


def step_time_folds(runs: m.Runs, limits: Limits) -> Iterator[Block]:
    """Of the runs that there is room for; what is left out is said once."""
    drawn = kept(runs, limits.timelines)
    left_out = 0
    for index, run in enumerate(runs):
        series = run.series
        if isinstance(series, m.Skipped):
            why = f"No step times: {series.reason}."
            yield run_part(index, run, [why], name="steps")
        elif index in drawn:
            name = name_of(run.key)
            bars = [*_BARS]
            if _single(series):
                bars = [*_SINGLE]
            blocks = (
                _distribution(series, name),
                legend_of("p", *bars, *_OTHERS),
                _over_time(series, name),
                _table(series, name),
            )
            yield run_part(index, run, blocks, name="steps")
        else:
            left_out += 1
    if left_out:
        yield (
            f"The step times of {plural(left_out, 'run')} are left out of this page; report.json "
            "holds them."
        )


def _single(series: m.StepSeries) -> bool:
    return all(process.every == 1 for process in series.processes)


def _distribution(series: m.StepSeries, name: str) -> Plot:
    time = series.time
    steps = sum(series.counts) + series.above
    start = series.bins_from_us / 1000
    width = series.bin_us / 1000
    end = start + width * len(series.counts)
    x = Axis(low=start, high=end + 2 * width * bool(series.above))
    y = Axis(low=0.0, high=1.1 * max(*series.counts, series.above, 1))

    def shape(style: str, left: float, wide: float, many: int, title: str) -> Shape:
        return Shape(style, bar(left, wide, y.y(many), y.y(0) - y.y(many)), title)

    shapes = []
    for place, many in enumerate(series.counts):
        if many:
            begin = start + place * width
            when = span(milliseconds(begin * 1000), milliseconds((begin + width) * 1000))
            title = f"{when} ms: {count(many)} of {plural(steps, 'step')}"
            wide = x.x(begin + width) - x.x(begin) - 1.5
            shapes.append(shape("p-bar", x.x(begin), wide, many, title))
    if series.above:
        longer = f"{plural(series.above, 'step')}, up to {milliseconds(time.maximum)} ms"
        title = f"above {milliseconds(end * 1000)} ms: {longer}"
        left, wide = x.x(end + 0.5 * width), x.x(width * 1.5 + start)
        shapes.append(shape("p-far", left, wide, series.above, title))
    return plot(
        f"Distribution of {plural(steps, 'step')} of {name}: median {milliseconds(time.median)} "
        f"ms, {count(series.above)} far above; the table below has the figures",
        shapes,
        x,
        y,
        "step time, ms",
        "steps",
        marks=((time.p10 / 1000, "p10"), (time.median / 1000, "median"), (time.p90 / 1000, "p90")),
    )


def _over_time(series: m.StepSeries, name: str) -> Plot:
    time = series.time
    top = max(series.bins_from_us + series.bin_us * len(series.counts), time.p90)
    x = Axis(low=0, high=time.samples)
    y = Axis(low=0.0, high=1.08 * top)
    single = _single(series)
    processes = len(series.processes)
    low, high = y.y(time.p10), y.y(time.p90)
    usual = f"p10 to p90: {span(milliseconds(time.p10), milliseconds(time.p90))} ms"
    shapes = [Shape("p-band", bar(0, x.x(time.samples), high, low - high), usual)]
    far: list[Shape] = []
    marks = []
    middles = []
    at = 0
    for process in series.processes:
        if processes > _NAMED:
            marks.append((at, str(process.number)))
        elif processes > 1:
            marks.append((at, f"process {process.number}"))
        entries = zip(process.low_us, process.middle_us, process.high_us, strict=True)
        for entry, (least, mid, most) in enumerate(entries):
            first = entry * process.every
            last = min(first + process.every, process.time.samples)
            left = x.x(at + first)
            wide = x.x(at + last) - left
            if last == first + 1:
                title = f"step {count(last)}: {milliseconds(mid)} ms"
            else:
                between = span(milliseconds(least), milliseconds(most))
                when = f"steps {count(first + 1)} to {count(last)}"
                title = f"{when}: median {milliseconds(mid)}, {between} ms"
            foot = y.y(0.0)
            if not single:
                foot = y.y(least)
                middles.append(line(((left, y.y(mid)), (left + 0.8 * wide, y.y(mid)))))
            path = bar(left, max(0.8 * wide, 0.5), y.y(most), foot - y.y(most))
            shapes.append(Shape("p-range", path, title))
            if most > top and len(far) < _FAR:
                far.append(Shape("p-far", bar(left, max(wide, 3.0), 16, 6), title))
        at += process.time.samples
    if middles:
        shapes.append(Shape("p-middle", "".join(middles)))
    return plot(
        f"{plural(time.samples, 'step')} of {name} in their order, "
        f"{plural(processes, 'process', 'processes')}: median {milliseconds(time.median)} "
        "ms; the table below has the figures",
        (*shapes, *far),
        x,
        replace(y, high=1.08 * top / 1000),
        "step, in order",
        "step time, ms",
        marks=marks,
        low_marks=True,
    )


def _table(series: m.StepSeries, name: str) -> Block:
    rows = []
    for process in series.processes:
        time = process.time
        times = (time.median, time.p10, time.p90, time.minimum, time.maximum)
        rows.append((f"process {process.number}", count(time.samples), *map(milliseconds, times)))
    headings = ("process", "steps", "median ms", "p10", "p90", "fastest", "slowest")
    return plain(f"Step times of {name} by process", headings, rows)
