"""HolisticTraceAnalysis' figures beside ours, one table a run, and how each of its calls ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kgprof import model as m
from kgprof.render.limits import Limits, anchor
from kgprof.render.quantity import DASH, count, figure, milliseconds
from kgprof.render.table import Block, Cell, Fold, Small, Table, plain

_SAID = ("kernels, copies and fills", "GPU idle")  # in a sentence, beside what differs


def compared(runs: Sequence[m.RunReport]) -> tuple[tuple[m.RunReport, m.HolisticCheck], ...]:
    return tuple((run, run.holistic) for run in runs if isinstance(run.holistic, m.HolisticCheck))


def holistic_folds(runs: Sequence[m.RunReport], limits: Limits) -> tuple[Fold, ...]:
    folds = []
    for index, run in enumerate(runs):
        if not isinstance(check := run.holistic, m.HolisticCheck):
            continue
        name, versions = run.key.slug, ", ".join(f"{name} {version}" for name, version in check.versions.items())
        figures = figure_table(f"HTA's figures beside ours for {name}", "figure", check.figures[: limits.lines])
        label = f"Kernels of {name} whose time differs"
        kernels = figure_table(label, "kernels that differ", check.differing[: limits.lines])
        outcome = (
            (Cell(call.name, below=(Small((call.reason,)),) if call.reason else ()), call.outcome)
            for call in check.calls[: limits.lines]
        )
        calls = plain(f"Calls of HTA for {name}", ("call", "outcome"), outcome, style="")
        rest = (
            (len(check.figures) - len(figures.rows), "figures"),
            (check.kernels_differing - len(kernels.rows), "kernels that differ"),
        )
        more = " and ".join(f"{number:,} more {what}" for number, what in rest if number > 0)
        blocks: list[Block] = [figures, kernels] if kernels.rows else [figures]
        blocks += [f"{more} in report.json."] if more else []
        blocks.append(Fold("HTA calls", blocks=(calls, versions), caption=outcomes(check)))
        folds.append(Fold(name, blocks=tuple(blocks), caption=caption(check), run=anchor(index)))
    return tuple(folds)


def figure_table(label: str, heading: str, figures: Sequence[m.HolisticFigure]) -> Table:
    """Ours, HTA's, the difference; below the name why a side has none."""
    rows = []
    for found in figures:
        sides = (found.hta, found.ours, found.difference_percent)
        why = next((side.reason for side in sides if isinstance(side, m.Skipped)), "")
        name = Cell(found.name, below=tuple(Small((text,)) for text in (found.note, why) if text))
        both = (quantity(found.ours, found.unit), quantity(found.hta, found.unit))
        rows.append((name, *both, Cell(difference(found), wrong=found.differs)))
    return plain(label, (heading, "kgprof", "HTA", "difference"), rows, style="")


def caption(found: m.HolisticCheck) -> str:
    """How much was compared, and whether it agrees."""
    both = [row for row in found.figures if row.differs or not isinstance(row.difference_percent, m.Skipped)]
    far = sum(row.differs for row in both)
    tolerance = f"{found.tolerance_percent:g} %"
    if not both and not found.kernels:
        return "nothing could be compared"
    if not far and not found.kernels_differing:
        return f"{count(len(both))} figures and {count(found.kernels)} kernels agree within {tolerance}"
    return (
        f"{count(far)} of {count(len(both))} figures and {count(found.kernels_differing)} of {count(found.kernels)} "
        f"kernels differ by more than {tolerance}"
    )


def outcomes(found: m.HolisticCheck) -> str:
    """Of its calls: "4 ok, 1 empty"."""
    tally = Counter(call.outcome for call in found.calls)
    return ", ".join(f"{count(number)} {outcome}" for outcome, number in tally.items())


def sentence(found: m.HolisticCheck) -> str:
    """The caption, kernel and idle time, and every figure or kernel that differs."""
    said = [
        f"{row.name} {quantity(row.ours, row.unit)}, HTA {quantity(row.hta, row.unit)} ({difference(row)})"
        for row in (*found.figures, *found.differing)
        if row.name in _SAID or row.differs
    ]
    return "; ".join((caption(found), *said))


def quantity(value: float | m.Skipped, unit: str) -> str:
    """Times are in milliseconds of the whole traced window."""
    if isinstance(value, m.Skipped):
        return DASH
    if unit == "us":
        return f"{milliseconds(value)} ms"
    if unit == "operations":
        return f"{value:,.0f}"  # the figure's name says of what
    return f"{figure(value)} {unit}"


def difference(row: m.HolisticFigure) -> str:
    """HTA's less ours, of ours; 0 only where they are equal to the last digit."""
    percent = row.difference_percent
    if isinstance(percent, m.Skipped):
        return DASH
    if percent == 0:
        return "0 %"
    return f"{percent:+.2f} %" if abs(percent) >= 0.005 else "< 0.01 %"
