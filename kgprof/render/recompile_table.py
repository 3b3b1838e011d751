"""Which functions were compiled again: in which call, for which reason, at what price."""

from __future__ import annotations

from collections.abc import Sequence

from kgprof import model as m
from kgprof.render.limits import Limits
from kgprof.render.quantity import DASH, count, figure
from kgprof.render.table import Block, Cell, Fold, Small, number, plain
from kgprof.wording import plural, relative

OPEN = 8  # rows that stand open; the others are folded
_HEADINGS = ("function", "reason", "run", "call", "s")


def recompile_blocks(runs: Sequence[m.RunReport], root: str, limits: Limits) -> tuple[Block, ...]:
    """The first ones in sight, the others folded, how many are not on the page, and of which runs nothing is known."""
    known = [
        (run, entry)
        for run in runs
        if isinstance(run.compile, m.CompileSummary) and not isinstance(run.compile.recompiles, m.Skipped)
        for entry in run.compile.recompiles
    ]
    rows = [_row(run, entry, root) for run, entry in known[: limits.lines]]
    blocks: list[Block] = []
    if rows:
        blocks.append(plain("Recompiles", _HEADINGS, rows[:OPEN], words=3))
    if folded := rows[OPEN:]:
        table = plain("More recompiles", _HEADINGS, folded, words=3)
        blocks.append(Fold(f"{len(folded)} more", blocks=(table,)))
    if len(known) > limits.lines:
        blocks.append(f"{len(known) - limits.lines:,} more in report.json.")
    unknown: dict[str, list[str]] = {}
    for run in runs:
        if isinstance(run.compile, m.CompileSummary) and isinstance(run.compile.recompiles, m.Skipped):
            unknown.setdefault(run.compile.recompiles.reason, []).append(run.key.slug)
    for reason, slugs in unknown.items():
        of = f" of {', '.join(slugs[: limits.lines])}" if len(slugs) < len(runs) else ""
        blocks.append(f"Unknown{of}: {reason}.")
    return tuple(blocks)


def _row(run: m.RunReport, entry: m.RecompileEntry, root: str) -> tuple[Cell | str, ...]:
    place, site = entry.location, entry.call_site
    places = (
        str(entry.library) if entry.library else "",
        f"{relative(place.file, root)}:{place.line}" if place else "",
        f"called at {relative(site.file, root)}:{site.line} {site.function}" if site else "",
    )
    below = (Small((entry.compile_id or "refused",), "detail"), Small(tuple(filter(None, places)), "place"))
    function = Cell(entry.function or (place.function if place else "a library's function"), below=below)
    words = () if entry.words in entry.reason else (Small((entry.words,), "place"),)
    call = Cell(DASH if entry.call is None else f"{entry.call:,}", details=("after warm-up",) if entry.steady else ())
    return function, Cell(entry.reason, below=words), run.key.slug, call, number(entry.duration_s)


def recompile_summary(runs: Sequence[m.RunReport]) -> str:
    """ "3 recompiles, 1 of them after warm-up, 4.21 s in all; 1 refused"; empty where no run's are known."""
    found = [run.compile.recompiles for run in runs if isinstance(run.compile, m.CompileSummary)]
    known = [entries for entries in found if not isinstance(entries, m.Skipped)]
    if not known:
        return ""
    entries = [entry for each in known for entry in each]
    made = [entry for entry in entries if not entry.refused]
    if not entries:
        return "no recompiles"
    seconds = sum(entry.duration_s for entry in made if not isinstance(entry.duration_s, m.Skipped))
    said = [plural(len(made), "recompile"), f"{count(sum(entry.steady for entry in made))} of them after warm-up"]
    said += [f"{figure(seconds)} s in all"] if seconds else []
    refused = len(entries) - len(made)
    return ", ".join(said) + (f"; {count(refused)} refused by torch's limit" if refused else "")
