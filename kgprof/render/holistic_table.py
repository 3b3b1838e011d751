"""HolisticTraceAnalysis' figures beside ours, one table a run, and how each of its calls ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.limits import Limits, run_name
from kgprof.render.quantity import DASH, count, figure, milliseconds
from kgprof.render.visible import one_line

_SAID = ("kernels, copies and fills", "device idle")  # in a sentence, beside what differs


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureLine:
    name: str
    note: str
    ours: str
    hta: str
    difference: str
    differs: bool
    missing: str  # why a side has no figure; empty where both have one


@dataclass(frozen=True, slots=True, kw_only=True)
class HolisticTable:
    run: str
    caption: str
    figures: tuple[FigureLine, ...]
    kernels: tuple[FigureLine, ...]  # those that differ
    more: str  # what the page has no room for
    asked: str  # how many calls ended how
    calls: tuple[tuple[str, str, str], ...]  # name, outcome, why
    versions: str


def compared(runs: Sequence[m.RunReport]) -> tuple[tuple[m.RunReport, m.HolisticCheck], ...]:
    return tuple((run, run.holistic) for run in runs if isinstance(run.holistic, m.HolisticCheck))


def holistic_tables(runs: Sequence[m.RunReport], limits: Limits) -> tuple[HolisticTable, ...]:
    return tuple(
        HolisticTable(
            run=run_name(run, limits),
            caption=one_line(caption(found), limits.name),
            figures=_lines(found.figures, limits),
            kernels=_lines(found.differing, limits),
            more=_more(found, limits),
            asked=one_line(outcomes(found), limits.name),
            calls=tuple(
                (
                    one_line(call.name, limits.name),
                    one_line(call.outcome, limits.name),
                    one_line(call.reason, limits.name),
                )
                for call in found.calls[: limits.lines]
            ),
            versions=one_line(versions(found), limits.name),
        )
        for run, found in compared(runs)
    )


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
    rows = [row for row in (*found.figures, *found.differing) if row.name in _SAID or row.differs]
    said = [
        f"{row.name} {quantity(row.ours, row.unit)}, HTA {quantity(row.hta, row.unit)} ({difference(row)})"
        for row in rows
    ]
    return "; ".join((caption(found), *said))


def versions(found: m.HolisticCheck) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.versions.items())


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


def missing(row: m.HolisticFigure) -> str:
    for side in (row.hta, row.ours, row.difference_percent):
        if isinstance(side, m.Skipped):
            return side.reason
    return ""


def _lines(rows: Sequence[m.HolisticFigure], limits: Limits) -> tuple[FigureLine, ...]:
    return tuple(
        FigureLine(
            name=one_line(row.name, limits.name),
            note=one_line(row.note, limits.name),
            ours=quantity(row.ours, row.unit),
            hta=quantity(row.hta, row.unit),
            difference=difference(row),
            differs=row.differs,
            missing=one_line(missing(row), limits.name),
        )
        for row in rows[: limits.lines]
    )


def _more(found: m.HolisticCheck, limits: Limits) -> str:
    figures = max(0, len(found.figures) - limits.lines)
    kernels = found.kernels_differing - len(found.differing[: limits.lines])
    said = [f"{count(n)} more {what}" for n, what in ((figures, "figures"), (kernels, "kernels that differ")) if n > 0]
    return " and ".join(said)
