"""Does compiling pay: one row a compiled run, and below it what is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kgprof import model as m
from kgprof.render.limits import Limits
from kgprof.render.quantity import figure, milliseconds
from kgprof.render.table import Cell, Table, known, number, plain, row, timed
from kgprof.wording import plural

WORDS = {"pays": "pays", "level": "not measurably faster", "never": "never", "not observed": "not observed"}
HEADINGS = (
    "worth it",
    "break-even (cold)",
    "break-even (warm)",
    "compiling, cold s",
    "compiling, warm s",
    "eager start-up s",
    "compiled",
    "eager",
)


def economics_table(profile: m.Profile, limits: Limits) -> Table:
    """Columns that at least one run has a figure for; the notes say what is not known, and why."""
    shown = weighed(profile)[: limits.runs]
    rows = (row(one.run.slug, *_figures(one, profile.unit)) for one in shown)
    table = plain("Compile time against time saved, per run", ("run", *HEADINGS), rows)
    known = (name for at, name in enumerate(HEADINGS, start=1) if any(line.cells[at].measured for line in table.rows))
    return replace(table.only("run", *known), notes=_unknown(shown, limits))


def sentences(profile: m.Profile) -> tuple[str, ...]:
    """For reports without a table: the runs that pay. Those that do not are findings, and stand there."""
    return tuple(f"{one.run.slug}: {one.text}" for one in weighed(profile) if one.verdict == m.Payoff.PAYS)


def weighed(profile: m.Profile) -> tuple[m.Economics, ...]:
    """Of the runs that compiled something and were timed."""
    return tuple(run.economics for run in profile.runs if isinstance(run.economics, m.Economics))


def _figures(one: m.Economics, unit: m.WorkUnit) -> tuple[Cell, ...]:
    saved: tuple[str, ...] = ()
    if not isinstance(one.saved_us, m.Skipped):
        saved = (f"{'saves' if one.saved_us >= 0 else 'loses'} {milliseconds(abs(one.saved_us))} ms/{one.per}",)
    scale, per = 1e-3 if one.per == "step" else 1.0, f" ms/{one.per}"

    def break_even(found: m.BreakEven) -> Cell:
        work = () if isinstance(found.units, m.Skipped) else (plural(round(found.units), unit.name, unit.plural),)
        details = (*work, f"≈ {figure(found.after_s)} s of running")
        return Cell(plural(round(found.steps), "step"), details=details, value=found.steps)

    return (
        Cell(WORDS.get(one.verdict, one.verdict), details=saved),
        known(one.cold, break_even),
        known(one.warm, break_even),
        number(one.cold_s),
        timed(one.warm_s),
        number(one.eager_s),
        timed(one.compiled_time, scale, per),
        timed(one.eager_time, scale, per),
    )


def _unknown(shown: Sequence[m.Economics], limits: Limits) -> tuple[str, ...]:
    """Each reason once, with all its runs, under the first figure that it is the reason for."""
    runs: dict[str, list[str]] = {}
    for one in shown:
        figures = (
            ("compiling, cold", one.cold_s),
            ("compiling, warm", one.warm_s),
            ("the eager run", one.eager_s),
            ("the compiled run's time", one.compiled_time),
            ("the eager run's time", one.eager_time),
            ("the break-even", one.cold),
            ("the break-even with warm caches", one.warm),
        )
        first: dict[str, str] = {}
        for what, value in figures:
            if isinstance(value, m.Skipped):
                first.setdefault(value.reason, f"{what}: {value.reason}")
        for reason in first.values():
            runs.setdefault(reason, []).append(one.run.slug)
    known = list(runs.items())[: limits.lines]
    return tuple(f"{', '.join(slugs[: limits.lines])}: {reason}" for reason, slugs in known)
