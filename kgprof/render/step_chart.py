"""How the steps of TIMING lie: how many are how long, and each in its turn, process by process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kgprof import model as m
from kgprof.render.breakdown import Legend, LegendEntry
from kgprof.render.escaping import one_line
from kgprof.render.limits import Limits, anchor, kept
from kgprof.render.plot import Axis, Plot, Shape, bar, line, plot
from kgprof.render.quantity import count, milliseconds, span
from kgprof.render.table import Block, Fold, plain
from kgprof.wording import plural

_BARS = (("range", "fastest to slowest of a few consecutive steps"), ("middle", "their median"))
_SINGLE = (("range", "one step"),)
_OTHERS = (("band", "p10 to p90 of all steps"), ("far", "longer than the picture shows"))
_NAMED = 5  # processes whose marks say so; of more they have numbers only
_FAR = 20  # entries above the picture that it marks


def timed_steps(runs: Sequence[m.RunReport]) -> bool:
    return any(isinstance(run.series, m.StepSeries) for run in runs)


def step_time_folds(runs: Sequence[m.RunReport], limits: Limits) -> tuple[Block, ...]:
    """Of the runs that there is room for; what is left out is said once."""
    folds, drawn, left_out = list[Block](), kept(runs, limits.timelines), 0
    for index, run in enumerate(runs):
        name, series, blocks = one_line(run.key.slug, limits.name), run.series, list[Block]()
        if isinstance(series, m.Skipped):
            blocks.append(f"No step times: {one_line(series.reason, limits.name)}.")
        elif index in drawn:
            entries = (*(_SINGLE if _single(series) else _BARS), *_OTHERS)
            blocks += [
                _distribution(series, name),
                Legend(
                    entries=tuple(
                        LegendEntry(kind=kind, letter="", name=name, meaning="", family="p") for kind, name in entries
                    )
                ),
                _over_time(series, name),
            ]
            blocks.append(_table(series, name, limits))
        else:
            left_out += 1
            continue
        folds.append(Fold(name, blocks=tuple(blocks), anchor=f"steps-{anchor(index)}", run=anchor(index)))
    if left_out:
        folds.append(f"The step times of {plural(left_out, 'run')} are left out of this page; report.json holds them.")
    return tuple(folds)


def _single(series: m.StepSeries) -> bool:
    return all(process.every == 1 for process in series.processes)


def _distribution(series: m.StepSeries, name: str) -> Plot:
    time = series.time
    steps, start, width = sum(series.counts) + series.above, series.bins_from_us / 1000, series.bin_us / 1000
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
            shapes.append(Shape(style="p-bar", path=bar(x.x(begin), wide, y.y(many), y.y(0) - y.y(many)), title=title))
    if series.above:
        longer = plural(series.above, "step")
        title = f"above {milliseconds(end * 1000)} ms: {longer}, up to {milliseconds(time.maximum)} ms"
        path = bar(x.x(end + 0.5 * width), x.x(width * 1.5 + start), y.y(series.above), y.y(0) - y.y(series.above))
        shapes.append(Shape(style="p-far", path=path, title=title))
    return plot(
        f"Distribution of {plural(steps, 'step')} of {name}: median {milliseconds(time.median)} ms, "
        f"{count(series.above)} far above; the table below has the figures",
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
            style="p-band",
            path=bar(0, x.x(steps), y.y(high / 1000), y.y(low / 1000) - y.y(high / 1000)),
            title=f"p10 to p90: {span(milliseconds(low), milliseconds(high))} ms",
        )
    ]
    at, far, marks, middles = 0, list[Shape](), list[tuple[float, str]](), list[str]()
    for process in series.processes:
        if len(series.processes) > 1:
            marks.append((at, f"process {process.number}" if len(series.processes) <= _NAMED else str(process.number)))
        for entry, (least, mid, most) in enumerate(
            zip(process.low_us, process.middle_us, process.high_us, strict=True)
        ):
            first, many = entry * process.every, min(process.every, process.time.samples - entry * process.every)
            left, wide = x.x(at + first), x.x(at + first + many) - x.x(at + first)
            when = f"step {count(first + 1)}" if many == 1 else f"steps {count(first + 1)} to {count(first + many)}"
            took = f"{milliseconds(mid)} ms" if many == 1 else f"{span(milliseconds(least), milliseconds(most))} ms"
            title = f"{when}: {took}" if many == 1 else f"{when}: median {milliseconds(mid)}, {took}"
            foot = 0.0 if _single(series) else least / 1000
            path = bar(left, max(0.8 * wide, 0.5), y.y(most / 1000), y.y(foot) - y.y(most / 1000))
            shapes.append(Shape(style="p-range", path=path, title=title))
            middles.append(line(((left, y.y(mid / 1000)), (left + 0.8 * wide, y.y(mid / 1000)))))
            if most > top and len(far) < _FAR:
                far.append(Shape(style="p-far", path=bar(left, max(wide, 3.0), 16, 6), title=title))
        at += process.time.samples
    if not _single(series):
        shapes.append(Shape(style="p-middle", path="".join(middles)))
    return plot(
        f"{plural(steps, 'step')} of {name} in their order, {plural(len(series.processes), 'process', 'processes')}: "
        f"median {milliseconds(middle)} ms; the table below has the figures",
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
            yield f"process {process.number}", count(time.samples), *(milliseconds(us) for us in times)

    headings = ("process", "steps", "median ms", "p10", "p90", "fastest", "slowest")
    return plain(f"Step times of {name} by process", headings, rows())
