"""Which functions were compiled again: in which call, for which reason, at what price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.limits import Limits, run_name
from kgprof.render.quantity import DASH, count, figure
from kgprof.render.visible import one_line
from kgprof.wording import plural, relative

OPEN = 8  # rows that stand open; the others are folded


@dataclass(frozen=True, slots=True, kw_only=True)
class RecompileLine:
    run: str
    call: str
    steady: bool
    compile_id: str
    function: str
    place: str
    reason: str
    words: str  # torch's own, where they say more
    seconds: str
    why: str  # there are none
    call_site: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecompileTable:
    lines: tuple[RecompileLine, ...]
    folded: tuple[RecompileLine, ...]
    left_out: str  # how many more there are
    summary: str  # of all of them, in words
    unknown: tuple[tuple[str, str], ...]  # reason, runs; those only where not all share it


def recompile_table(runs: Sequence[m.RunReport], root: str, limits: Limits) -> RecompileTable:
    known = [
        (run, entry)
        for run in runs
        if isinstance(run.compile, m.CompileSummary) and not isinstance(run.compile.recompiles, m.Skipped)
        for entry in run.compile.recompiles
    ]
    lines = [_line(run, entry, root, limits) for run, entry in known[: limits.lines]]
    more = len(known) - limits.lines
    return RecompileTable(
        lines=tuple(lines[:OPEN]),
        folded=tuple(lines[OPEN:]),
        left_out=count(more) if more > 0 else "",
        summary=_summary([entry for _, entry in known], runs),
        unknown=_unknown(runs, limits),
    )


def _line(run: m.RunReport, entry: m.RecompileEntry, root: str, limits: Limits) -> RecompileLine:
    place, site, seconds = entry.location, entry.call_site, entry.duration_s
    return RecompileLine(
        run=run_name(run, limits),
        call=DASH if entry.call is None else count(entry.call),
        steady=entry.steady,
        compile_id=one_line(entry.compile_id, limits.name) or "refused",
        function=one_line(place.function, limits.name) if place else "a library's function",
        place=one_line(f"{relative(place.file, root)}:{place.line}", limits.name) if place else "",
        reason=one_line(entry.reason, limits.name),
        words="" if entry.words in entry.reason else one_line(entry.words, limits.name),
        seconds=DASH if isinstance(seconds, m.Skipped) else figure(seconds),
        why=one_line(seconds.reason, limits.name) if isinstance(seconds, m.Skipped) else "",
        call_site=one_line(f"{relative(site.file, root)}:{site.line} {site.function}", limits.name) if site else "",
    )


def _summary(entries: Sequence[m.RecompileEntry], runs: Sequence[m.RunReport]) -> str:
    """ "3 recompiles, 1 of them after warm-up, 4.21 s in all; 1 refused"; empty where no run's are known."""
    if not any(isinstance(run.compile, m.CompileSummary) and isinstance(run.compile.recompiles, tuple) for run in runs):
        return ""
    made = [entry for entry in entries if not entry.refused]
    if not entries:
        return "no function was compiled again"
    seconds = sum(entry.duration_s for entry in made if not isinstance(entry.duration_s, m.Skipped))
    said = [plural(len(made), "recompile"), f"{count(sum(entry.steady for entry in made))} of them after warm-up"]
    said += [f"{figure(seconds)} s in all"] if seconds else []
    refused = len(entries) - len(made)
    return ", ".join(said) + (f"; {count(refused)} refused by torch's limit" if refused else "")


def _unknown(runs: Sequence[m.RunReport], limits: Limits) -> tuple[tuple[str, str], ...]:
    found: dict[str, list[str]] = {}
    for run in runs:
        if isinstance(run.compile, m.CompileSummary) and isinstance(run.compile.recompiles, m.Skipped):
            found.setdefault(run.compile.recompiles.reason, []).append(run.key.slug)
    return tuple(
        (
            one_line(reason, limits.name),
            one_line(", ".join(slugs[: limits.lines]), 2 * limits.name) if len(slugs) < len(runs) else "",
        )
        for reason, slugs in found.items()
    )
