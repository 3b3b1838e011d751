"""What calls cost in all: one curve for each mode of a strategy, from what starting takes; where a compiled one crosses
eager's, compiling has paid for itself. Its twin is the table of economics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kgprof import model as m
from kgprof.render.chart import Legend, LegendEntry
from kgprof.render.escaping import one_line
from kgprof.render.limits import Limits
from kgprof.render.plot import Axis, Plot, Shape, line, plot
from kgprof.render.quantity import count, duration, figure
from kgprof.render.spread import FEWEST_FOR_PERCENTILES
from kgprof.render.table import Block
from kgprof.wording import plural

_POINTS = 48
_MOST = 6  # modes of one strategy
_PLOTS = 4
_LEAST_S = 1e-3


def break_even_plots(found: Sequence[m.Economics], units: str, limits: Limits) -> Iterator[Block]:
    """One for each eager run that others are held against. ``units``: the plural of the unit of work."""
    by_eager: dict[tuple[m.RunKey, str], list[m.Economics]] = {}
    for one in found:
        if isinstance(one.compiled_time, m.Spread) and isinstance(one.cold_s, float):
            by_eager.setdefault((one.eager, one.per), []).append(one)
    for (eager, per), modes in list(by_eager.items())[:_PLOTS]:
        yield from _plotted(one_line(eager.slug, limits.name), per, modes[: _MOST - 1], units, limits)


def _plotted(eager: str, per: str, modes: Sequence[m.Economics], units: str, limits: Limits) -> Iterator[Legend | Plot]:
    names = [one_line(one.run.slug, limits.name) for one in modes]
    scale = 1e-6 if per == "step" else 1e-3
    curves: list[tuple[str, str, float, m.Spread]] = []  # style, what it is, seconds at the start, time of a call
    first = modes[0]
    if isinstance(first.eager_time, m.Spread):
        start_s = first.eager_s if isinstance(first.eager_s, float) else 0.0
        curves.append(("c-0", eager, start_s, first.eager_time))
    for at, (one, name) in enumerate(zip(modes, names, strict=True), start=1):
        if isinstance(one.compiled_time, m.Spread) and isinstance(one.cold_s, float):
            curves.append((f"c-{at}", f"{name}, cold caches", one.cold_s, one.compiled_time))
            if isinstance(one.warm_s, m.Spread):
                curves.append((f"warm c-{at}", f"{name}, warm caches", one.warm_s.median, one.compiled_time))
    points = [(chr(65 + at), _calls(one)) for at, one in enumerate(modes, start=1)]
    known = [(letter, calls) for letter, calls in points if calls]
    nearest = min((calls for _, calls in known), default=1e3)
    x = Axis(
        low=10.0 ** max(0, math.floor(math.log10(max(1.0, nearest))) - 3),
        high=max(1e3, 20 * max((calls for _, calls in known), default=1e4)),
        log=True,
    )
    ends = [start + calls * time.median * scale for _, _, start, time in curves for calls in (x.low, x.high)]
    y = Axis(low=max(_LEAST_S, min(ends) / 2), high=max(ends) * 1.5, log=True)
    steps = [x.low * (x.high / x.low) ** (place / (_POINTS - 1)) for place in range(_POINTS)]
    shapes = []
    for style, name, start_s, time in curves:
        enough = time.samples >= FEWEST_FOR_PERCENTILES
        low, high = (time.p10, time.p90) if enough else (time.minimum, time.maximum)
        each = duration(time.median * scale * 1e6)
        title = f"{name}: {figure(start_s)} s to start, then {each} per {per}"

        def through(each_time: float, start_s: float = start_s) -> list[tuple[float, float]]:
            return [(x.x(calls), y.y(start_s + calls * each_time * scale)) for calls in steps]

        if not style.startswith("warm"):
            path = f"{line([*through(low), *reversed(through(high))])}z"
            shapes.append(Shape(style=f"band {style}", path=path, title=title))
        shapes.append(Shape(style=f"curve {style}", path=line(through(time.median)), title=title))
    calls_name = "steps" if per == "step" else units
    said = [f"{names[ord(letter) - 66]} after {count(round(calls))}" for letter, calls in known]
    entries = [LegendEntry(kind="0", letter="A", name=eager, meaning="", family="c")]
    entries += [
        LegendEntry(kind=str(at), letter=chr(65 + at), name=name, meaning="", family="c")
        for at, name in enumerate(names, start=1)
    ]
    yield Legend(entries=tuple(entries))
    yield plot(
        f"Total time against {calls_name} of {eager} and {plural(len(names), 'compiled mode')}; compiling has paid for "
        f"itself: {', '.join(said) or 'in none'}; the table has the figures",
        shapes,
        x=x,
        y=y,
        x_name=f"{calls_name} (log scale)",
        y_name="s in all (log scale)",
        marks=[(calls, f"{letter} after {count(round(calls))}") for letter, calls in known],
    )


def _calls(one: m.Economics) -> float:
    """After how many calls a cold start has paid for itself; 0 where it has not, or where that is not known."""
    if isinstance(one.cold, m.Skipped):
        return 0.0
    if one.per == "step":
        return one.cold.steps
    return 0.0 if isinstance(one.cold.units, m.Skipped) else one.cold.units
