"""Does compiling pay: one row a compiled run, and below it what is not known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kgprof.counted import counted
from kgprof.model import BreakEven, Economics, Profile, Skipped, Spread
from kgprof.render.evaluation_table import Table
from kgprof.render.limits import Limits
from kgprof.render.quantity import DASH, figure, milliseconds
from kgprof.render.spread import ranged, sampled
from kgprof.render.visible import one_line

WORDS = {"pays": "pays", "level": "not faster beyond the noise", "never": "never", "not observed": "not observed"}
HEADINGS = (
    "run",
    "does it pay",
    "compiling, cold s",
    "compiling, warm s",
    "eager's start s",
    "compiled",
    "eager",
    "saves",
    "breaks even, cold",
    "breaks even, warm",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EconomicsTable:
    table: Table
    unknown: tuple[str, ...]  # "fused.default, compiling warm: why"


def economics_table(profile: Profile, limits: Limits) -> EconomicsTable:
    shown = weighed(profile)[: limits.runs]
    return EconomicsTable(
        table=Table(headings=HEADINGS, rows=tuple(_row(one, limits) for one in shown)),
        unknown=tuple(dict.fromkeys(said for one in shown for said in _unknown(one, limits)))[: limits.lines],
    )


def sentences(profile: Profile) -> tuple[str, ...]:
    """For reports without a table: the runs that pay. Those that do not are findings, and stand there."""
    return tuple(one.text for one in weighed(profile) if one.verdict == "pays")


def weighed(profile: Profile) -> tuple[Economics, ...]:
    """Of the runs that compiled something and were timed."""
    return tuple(run.economics for run in profile.runs if isinstance(run.economics, Economics))


def _row(one: Economics, limits: Limits) -> tuple[str, ...]:
    return (
        one_line(one.run.slug, limits.name),
        WORDS.get(one.verdict, one_line(one.verdict, limits.name)),
        _seconds(one.cold_s),
        DASH if isinstance(one.warm_s, Skipped) else _ranged(one.warm_s, 1.0, ""),
        _seconds(one.eager_s),
        _time(one.compiled_time, one),
        _time(one.eager_time, one),
        DASH if isinstance(one.saved_us, Skipped) else f"{milliseconds(one.saved_us)} ms/{one.per}",
        _break_even(one.cold),
        _break_even(one.warm),
    )


def _seconds(value: float | Skipped) -> str:
    return DASH if isinstance(value, Skipped) else figure(value)


def _time(time: Spread | Skipped, one: Economics) -> str:
    if isinstance(time, Skipped):
        return DASH
    return _ranged(time, 1e-3 if time.unit == "us" else 1.0, f" ms/{one.per}")


def _ranged(time: Spread, scale: float, unit: str) -> str:
    known = [part for part in (ranged(time, scale), sampled(time)) if part]
    return f"{figure(time.median * scale)}{unit} ({', '.join(known)})"


def _break_even(found: BreakEven | Skipped) -> str:
    if isinstance(found, Skipped):
        return DASH
    candidates = "" if isinstance(found.candidates, Skipped) else f", {counted(round(found.candidates), 'candidate')}"
    return f"{counted(round(found.steps), 'step')}{candidates} ({figure(found.after_s)} s)"


def _unknown(one: Economics, limits: Limits) -> Iterator[str]:
    """Each reason once a run, under the first figure that it is the reason for."""
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
        if isinstance(value, Skipped) and value.reason not in said:
            said.add(value.reason)
            yield one_line(f"{one.run.slug}, {what}: {value.reason}", 2 * limits.name)
