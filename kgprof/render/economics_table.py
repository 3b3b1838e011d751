"""Does compiling pay: one row a compiled run, and below it what is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.limits import Limits
from kgprof.render.quantity import DASH, figure, milliseconds
from kgprof.render.spread import ranged, sampled
from kgprof.render.visible import one_line
from kgprof.wording import plural

_LENGTH = 120
WORDS = {"pays": "pays", "level": "not faster beyond the noise", "never": "never", "not observed": "not observed"}
HEADINGS = (
    "does it pay",
    "breaks even, cold",
    "breaks even, warm",
    "compiling, cold s",
    "compiling, warm s",
    "eager's start s",
    "compiled",
    "eager",
)

Figure = tuple[str, str]  # what stands in a cell, and the small line below it


@dataclass(frozen=True, slots=True, kw_only=True)
class EconomicsTable:
    headings: tuple[str, ...]  # of what at least one run has a figure for
    rows: tuple[tuple[str, tuple[Figure, ...]], ...]  # run, figures
    unknown: tuple[str, ...]  # "fused.default: compiling, warm: why"


def economics_table(profile: m.Profile, limits: Limits) -> EconomicsTable:
    shown = weighed(profile)[: limits.runs]
    rows = [(one_line(one.run.slug, limits.name), _figures(one, profile.unit, limits)) for one in shown]
    known = [column for column in range(len(HEADINGS)) if any(figures[column] != (DASH, "") for _, figures in rows)]
    return EconomicsTable(
        headings=tuple(HEADINGS[column] for column in known),
        rows=tuple((run, tuple(figures[column] for column in known)) for run, figures in rows),
        unknown=_unknown(shown, limits),
    )


def sentences(profile: m.Profile) -> tuple[str, ...]:
    """For reports without a table: the runs that pay. Those that do not are findings, and stand there."""
    return tuple(one.text for one in weighed(profile) if one.verdict == "pays")


def weighed(profile: m.Profile) -> tuple[m.Economics, ...]:
    """Of the runs that compiled something and were timed."""
    return tuple(run.economics for run in profile.runs if isinstance(run.economics, m.Economics))


def _figures(one: m.Economics, unit: m.WorkUnit, limits: Limits) -> tuple[Figure, ...]:
    return (
        (WORDS.get(one.verdict, one_line(one.verdict, limits.name)), _saved(one)),
        _break_even(one.cold, unit),
        _break_even(one.warm, unit),
        _seconds(one.cold_s),
        _time(one.warm_s, 1.0),
        _seconds(one.eager_s),
        _time(one.compiled_time, 1e-3 if one.per == "step" else 1.0, f" ms/{one.per}"),
        _time(one.eager_time, 1e-3 if one.per == "step" else 1.0, f" ms/{one.per}"),
    )


def _saved(one: m.Economics) -> str:
    if isinstance(one.saved_us, m.Skipped):
        return ""
    return f"{'saves' if one.saved_us >= 0 else 'loses'} {milliseconds(abs(one.saved_us))} ms/{one.per}"


def _seconds(value: float | m.Skipped) -> Figure:
    return (DASH if isinstance(value, m.Skipped) else figure(value)), ""


def _time(time: m.Spread | m.Skipped, scale: float, unit: str = "") -> Figure:
    if isinstance(time, m.Skipped):
        return DASH, ""
    known = [part for part in (ranged(time, scale), sampled(time)) if part]
    return f"{figure(time.median * scale)}{unit}", ", ".join(known)


def _break_even(found: m.BreakEven | m.Skipped, unit: m.WorkUnit) -> Figure:
    if isinstance(found, m.Skipped):
        return DASH, ""
    work = "" if isinstance(found.units, m.Skipped) else f"{plural(round(found.units), unit.name, unit.plural)}, "
    return plural(round(found.steps), "step"), one_line(f"{work}{figure(found.after_s)} s of them", _LENGTH)


def _unknown(shown: Sequence[m.Economics], limits: Limits) -> tuple[str, ...]:
    """Each reason once, with all its runs."""
    runs: dict[str, list[str]] = {}
    for one in shown:
        for said in _reasons(one):
            runs.setdefault(said, []).append(one.run.slug)
    return tuple(
        one_line(f"{', '.join(slugs[: limits.lines])}: {said}", 2 * limits.name) for said, slugs in runs.items()
    )[: limits.lines]


def _reasons(one: m.Economics) -> Iterator[str]:
    """Each once, under the first figure that it is the reason for."""
    figures = (
        ("compiling, cold", one.cold_s),
        ("compiling, warm", one.warm_s),
        ("the eager run", one.eager_s),
        ("the compiled run's time", one.compiled_time),
        ("the eager run's time", one.eager_time),
        ("the break-even", one.cold),
        ("the break-even with warm caches", one.warm),
    )
    said: set[str] = set()
    for what, value in figures:
        if isinstance(value, m.Skipped) and value.reason not in said:
            said.add(value.reason)
            yield f"{what}: {value.reason}"
