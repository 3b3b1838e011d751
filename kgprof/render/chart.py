"""Where the time went, as bars: geometry in per cent of the width, so that it needs neither style nor script."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from kgprof import model as m
from kgprof.render import breakdown
from kgprof.render.quantity import figure
from kgprof.render.quantity import of_width as of_width
from kgprof.render.table import Drawing

# One letter a kind but idle, in their order, so that a bar can be read without its colours.
LETTERS = {kind: letter for (kind, _, _), letter in zip(breakdown.KINDS, (*"GAVNPRISCMFO", ""), strict=True)}
_LETTER_FROM = 0.025  # of the bar's width: narrower segments carry no letter
_SHARE_FROM = 0.05  # from here on the share fits too on a wide screen
_SHARE_ALWAYS_FROM = 0.14  # and from here on also on a phone


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a bar: ``length`` of the full width, ``share`` of the whole that the bar shows; both 0..1."""

    kind: str
    letter: str
    length: float
    share: float
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    kind: str
    x: str
    width: str
    middle: str
    letter: str
    share: str
    wide: bool  # the share fits on a wide screen only
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    anchor: str
    run: str
    caption: str
    description: str  # the bar in words
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars(Drawing):
    kind: ClassVar[str] = "bars"
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendEntry:
    kind: str
    letter: str
    name: str
    meaning: str
    family: str = "k"  # FAMILY-KIND is the class of its colour


@dataclass(frozen=True, slots=True, kw_only=True)
class Legend(Drawing):
    kind: ClassVar[str] = "legend"
    entries: tuple[LegendEntry, ...]


def broken_down(runs: Sequence[m.RunReport]) -> list[tuple[int, m.RunReport, m.KernelBreakdown]]:
    return [(i, run, run.kernels) for i, run in enumerate(runs) if isinstance(run.kernels, m.KernelBreakdown)]


def of_parts(parts: Sequence[Part]) -> tuple[Segment, ...]:
    """One after the other from the left; a letter and a share where there is room for them."""
    segments, x = [], 0.0
    for part in parts:
        segments.append(
            Segment(
                kind=part.kind,
                x=of_width(x),
                width=of_width(part.length),
                middle=of_width(x + part.length / 2),
                letter=part.letter if part.length >= _LETTER_FROM else "",
                share=f"{100 * part.share:.0f} %" if part.length >= _SHARE_FROM else "",
                wide=part.length < _SHARE_ALWAYS_FROM,
                title=part.title,
            )
        )
        x += part.length
    return tuple(segments)


def legend(present: Collection[str]) -> tuple[LegendEntry, ...]:
    return tuple(
        LegendEntry(kind=str(kind), letter=LETTERS[kind], name=name, meaning=meaning)
        for kind, name, meaning in breakdown.KINDS
        if kind in present
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    name: str
    value: str
    width: str
    first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths(Drawing):
    """A row and a bar each, all on one scale."""

    kind: ClassVar[str] = "lengths"
    what: str
    unit: str
    rows: tuple[Length, ...]


def lengths(what: str, unit: str, rows: Sequence[tuple[str, float]], *, marked: str = "") -> Lengths:
    longest = max((value for _, value in rows), default=0.0) or 1.0
    made = []
    for name, value in rows:
        words = f"{value:,.0f}" if unit == "cases" else figure(value)
        made.append(Length(name=name, value=words, width=of_width(max(value, 0.0) / longest), first=name == marked))
    return Lengths(what=what, unit=unit, rows=tuple(made))
