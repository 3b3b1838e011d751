"""Does compiling pay: one row a compiled run with what is not known below it, and a curve for each
mode of a strategy, from what compiling takes; where a compiled one crosses eager's, compiling has
paid for itself."""

import math
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.breakdown import Legend, legend_of
from kgprof.document.plot import Axis, Plot, Shape, line, plot
from kgprof.document.quantity import count, duration, figure, if_known, milliseconds, p10_to_p90
from kgprof.document.run_parts import collected, name_of
from kgprof.document.table import (
    Block,
    Cell,
    Table,
    Texts,
    dashed,
    number,
    plain,
    row,
    timed,
    written,
)
from kgprof.wording import plural

HEADINGS = (
    "worth it",
    "break-even",
    "compiling s",
    "compiled",
    "eager",
)


def economics_table(profile: m.Profile) -> Table:
    """Columns that at least one run has a figure for; the notes say what is not known, and why."""
    shown = weighed(profile)
    rows = [row(one.run.slug, *_figures(one, profile.unit)) for one in shown]
    table = plain("Compile time against time saved, per run", ("run", *HEADINGS), rows)
    known = [
        column.name
        for at, column in enumerate(table.columns)
        if any(row.cells[at].measured for row in rows)
    ]
    return replace(table.only(*known), notes=_unknown(shown))


def sentences(profile: m.Profile) -> Texts:
    """For reports without a table: the runs that pay. Those that do not are findings, and stand
    there."""
    return [
        f"{one.run.slug}: {one.text}" for one in weighed(profile) if one.verdict == m.Payoff.PAYS
    ]


def weighed(profile: m.Profile) -> Sequence[m.Economics]:
    """Of the runs that compiled something and were timed."""
    return [run.economics for run in profile.runs if isinstance(run.economics, m.Economics)]


def _figures(one: m.Economics, unit: m.WorkUnit) -> Sequence[Cell]:
    per = f" ms/{one.per}"

    def saves(us: float) -> str:
        if us >= 0:
            return f"saves {milliseconds(us)}{per}"
        return f"loses {milliseconds(-us)}{per}"

    saved = if_known(one.saved_us, saves)
    if one.verdict not in (m.Payoff.PAYS, m.Payoff.NEVER):
        saved = ()
    scale = 1.0
    if one.per == "step":
        scale = 1e-3

    @dashed
    def break_even(when: m.BreakEven | m.Skipped) -> Cell:
        found = m.known(when)
        units = if_known(found.units, lambda units: plural(round(units), unit.name, unit.plural))
        after = f"≈ {figure(found.after_s)} s of running"
        return written(found.steps, lambda steps: plural(round(steps), "step"), *units, after)

    return (
        Cell(one.verdict, saved),
        break_even(one.cold),
        number(one.cold_s),
        timed(one.compiled_time, scale, per),
        timed(one.eager_time, scale, per),
    )


def _unknown(shown: Sequence[m.Economics]) -> Texts:
    """Each reason once, with all its runs, under the first figure that it is the reason for."""
    reasons = []
    for one in shown:
        figures = {
            "compiling": one.cold_s,
            "the compiled run's time": one.compiled_time,
            "the eager run's time": one.eager_time,
            "the break-even": one.cold,
        }
        first: dict[str, str] = {}
        for what, value in figures.items():
            if isinstance(value, m.Skipped):
                first.setdefault(value.reason, what)
        reasons += [(f"{what}: {reason}", one.run.slug) for reason, what in first.items()]
    return [f"{', '.join(slugs)}: {reason}" for reason, slugs in collected(reasons).items()]


_POINTS = 48
_MOST = 6  # modes of one strategy
_PLOTS = 4
_LEAST_S = 1e-3


def break_even_plots(found: Sequence[m.Economics], units: str) -> Iterator[Block]:
    """One for each eager run that others have a break-even against. ``units``: the plural of the
    unit of work."""
    by_eager = collected(((one.eager, one.per), one) for one in found if _calls(one))
    for (eager, per), modes in list(by_eager.items())[:_PLOTS]:
        yield from _plotted(name_of(eager), per, modes[: _MOST - 1], units)


# style, name, seconds of compiling, and the time of each call
_Curve = tuple[str, str, float, m.Spread]


def _curves(eager: str, modes: Sequence[m.Economics], names: Texts) -> Iterator[_Curve]:
    yield ("c-0", eager, 0.0, m.known(modes[0].eager_time))
    for at, (one, name) in enumerate(zip(modes, names, strict=True), start=1):
        yield (f"c-{at}", name, m.known(one.cold_s), m.known(one.compiled_time))


def _plotted(
    eager: str, per: str, modes: Sequence[m.Economics], units: str
) -> Iterator[Legend | Plot]:
    names = [name_of(one.run) for one in modes]
    letters = [chr(66 + at) for at in range(len(modes))]
    scale, calls_name = 1e-3, units
    if per == "step":
        scale, calls_name = 1e-6, "steps"
    curves = [*_curves(eager, modes, names)]
    counts = [_calls(one) for one in modes]
    x = Axis(
        low=10.0 ** max(0, math.floor(math.log10(max(1.0, min(counts)))) - 3),
        high=max(1e3, 20 * max(counts)),
        log=True,
    )
    ends = [
        start_s + calls * time.median * scale
        for _, _, start_s, time in curves
        for calls in (x.low, x.high)
    ]
    y = Axis(low=max(_LEAST_S, min(ends) / 2), high=max(ends) * 1.5, log=True)
    steps = [x.low * (x.high / x.low) ** (place / (_POINTS - 1)) for place in range(_POINTS)]

    def through(start_s: float, each_time: float) -> list[tuple[float, float]]:
        return [(x.x(calls), y.y(start_s + calls * each_time * scale)) for calls in steps]

    shapes = []
    for style, name, start_s, time in curves:
        each = duration(time.median * scale * 1e6)
        title = f"{name}: {figure(start_s)} s once, then {each} per {per}"
        low, high = (through(start_s, end) for end in p10_to_p90(time))
        shapes.append(Shape(f"band {style}", f"{line([*low, *reversed(high)])}z", title))
        shapes.append(Shape(f"curve {style}", line(through(start_s, time.median)), title))
    after = [count(round(calls)) for calls in counts]
    said = [f"{name} after {calls}" for name, calls in zip(names, after, strict=True)]
    marks = zip(counts, letters, after, strict=True)
    styles = zip((eager, *names), ("A", *letters), strict=True)
    yield legend_of("c", *((str(at), name, "", letter) for at, (name, letter) in enumerate(styles)))
    yield plot(
        f"Total time against {calls_name} of {eager} and {plural(len(names), 'compiled mode')}; "
        f"compiling has paid for itself: {', '.join(said)}; the table has the figures",
        shapes,
        x,
        y,
        f"{calls_name} (log scale)",
        "s in all (log scale)",
        marks=[(calls, f"{letter} after {words}") for calls, letter, words in marks],
    )


@m.otherwise(0.0)
def _calls(one: m.Economics) -> float:
    """After how many calls compiling has paid for itself; 0 where it has not, or where that is not
    known."""
    cold = m.known(one.cold)
    if one.per == "step":
        return cold.steps
    return m.known(cold.units)
