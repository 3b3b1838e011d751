"""Memory held over one step, as a curve beside its table; or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from kgprof import model as m
from kgprof.render.escaping import one_line
from kgprof.render.limits import Limits, anchor
from kgprof.render.plot import Axis, Plot, Shape, bar, plot
from kgprof.render.quantity import count, figure, milliseconds, size
from kgprof.render.run_order import kept
from kgprof.render.table import Block, Fold, plain
from kgprof.wording import plural

_MIB = 2**20


def memory_folds(runs: Sequence[m.RunReport], limits: Limits) -> tuple[Block, ...]:
    """A reason that all runs share stands once."""
    reasons = [run.memory_curve.reason for run in runs if isinstance(run.memory_curve, m.Skipped)]
    if len(reasons) == len(runs) and len(set(reasons)) == 1:
        return (f"Memory over a step is not drawn: {one_line(reasons[0], limits.name)}.",)
    folds, drawn = list[Block](), kept(runs, limits.timelines)
    for index, run in enumerate(runs):
        name, curve, caption, blocks = one_line(run.key.slug, limits.name), run.memory_curve, "", list[Block]()
        if isinstance(curve, m.Skipped):
            blocks.append(f"Memory over a step is not drawn: {one_line(curve.reason, limits.name)}.")
        elif index not in drawn:
            blocks.append("Memory over a step is left out of this page to keep it small; report.json holds it.")
        else:
            caption = (
                f"{one_line(curve.step, limits.name)}, {milliseconds(curve.duration_us)} ms, the median of "
                f"{plural(curve.steps, 'traced step')}, {curve.measured_in.upper()} pass"
            )
            blocks.append(_curve(curve, name))
            figures = (curve.before_bytes, curve.peak_bytes, curve.after_bytes)
            cells = (one_line(curve.device, limits.name), *(size(each) for each in figures), count(curve.events))
            headings = ("device", "before the step", "peak", "after it", "allocations and frees")
            blocks.append(plain(f"Memory of {name} over a step", headings, (cells,), style=""))
            if curve.device == "cpu":
                blocks.append("On a CPU, memory counts from the start of the trace: parameters are not in it.")
        folds.append(Fold(name, blocks=tuple(blocks), caption=caption, run=anchor(index)))
    return tuple(folds)


def _curve(curve: m.MemoryCurve, name: str) -> Plot:
    levels = [curve.before_bytes, *curve.allocated_bytes]
    low, high = min(levels) / _MIB, max(curve.peak_bytes, *levels) / _MIB
    # From zero, unless what changes would be a ripple on what is always held.
    start = 0.0 if high - low > 0.2 * high else max(0.0, low - 0.2 * (high - low))
    x, y = Axis(low=0.0, high=curve.duration_us), Axis(low=start, high=high + 0.1 * (high - start) or 1.0)
    moments = (0.0, *curve.at_us, curve.duration_us)
    shapes = []
    for (at, until), held in zip(pairwise(moments), levels, strict=True):
        mib = held / _MIB
        title = f"{size(held)} from {figure(at)} \N{MICRO SIGN}s"
        path = bar(x.x(at), x.x(until) - x.x(at), y.y(mib), y.y(start) - y.y(mib))
        shapes.append(Shape(style="p-bar", path=path, title=title))
    return plot(
        f"Memory of {name} on {curve.device} over a step: {size(curve.before_bytes)} before, at most "
        f"{size(curve.peak_bytes)}; the table below has the figures",
        shapes,
        x=x,
        y=y,
        x_name="time in the step, \N{MICRO SIGN}s",
        y_name=f"allocated on {curve.device}, MiB",
    )
