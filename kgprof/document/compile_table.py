"""Compilation run by run: the first call, where the compiler's own time went in six stages, and
which functions were compiled again, in which call, for which reason, at what price."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.breakdown import Bar, LegendEntry, Part, of_parts
from kgprof.document.escaping import one_line
from kgprof.document.limits import Limits, anchor
from kgprof.document.memory_table import peak_cell
from kgprof.document.quantity import DASH, count, figure, percent, size
from kgprof.document.run_parts import having, run_part
from kgprof.document.table import (
    Block,
    Blocks,
    Cell,
    Fold,
    Small,
    Table,
    known,
    missing,
    number,
    plain,
    timed,
    whole,
)
from kgprof.wording import plural, relative

# In the order in which a compilation goes through them: field, letter, name, meaning.
STAGES = (
    ("capture_s", "C", "capture", "Dynamo: bytecode to graph, and guards"),
    ("frontend_s", "F", "frontend", "AOTAutograd and the passes over the graph"),
    ("scheduling_s", "S", "scheduling", "Inductor's lowering, partition and fusion"),
    ("code_generation_s", "G", "code generation", "writing C++ or Triton"),
    ("machine_code_s", "M", "machine code", "g++ or Triton's compiler"),
    ("caching_s", "K", "caching", "computing cache keys, reading and loading entries"),
)
_NAMES = tuple(name for _, _, name, _ in STAGES)


def kind(field: str) -> str:
    """The class of a stage's colour: "machine_code_s" is k-machine-code."""
    return field.removesuffix("_s").replace("_", "-")


LEGEND = tuple(
    LegendEntry("k", kind(field), name, why, letter) for field, letter, name, why in STAGES
)


def _compiled(runs: m.Runs) -> list[tuple[int, m.RunReport, m.CompileSummary]]:
    return having(runs, "compile", m.CompileSummary)


def compile_table(runs: m.Runs) -> Table:
    """Columns that no run has a figure for are left out, with a note that says why."""
    found = _compiled(runs)
    rows: list[list[Cell | str]] = []
    for _, run, compiled in found:
        seconds = [
            c.duration_s for c in compiled.compilations if not isinstance(c.duration_s, m.Skipped)
        ]
        reported = figure(sum(seconds)) if seconds else DASH
        later = compiled.steady
        calls = later.reason if isinstance(later, m.Skipped) else timed(later, 1e-3)
        first = number(compiled.first_call_s)
        number_of = f"{len(compiled.compilations):,}"
        rows.append([run.key.slug, first, number_of, reported, calls])
    headings = [
        "run",
        "first call (s)",
        "compilations",
        "Dynamo total s",
        "later calls ms (range, calls)",
    ]
    why: dict[str, list[str]] = {}
    for name, cell_of in _OFFERED.items():
        cells = [cell_of(compiled) for _, _, compiled in found]
        if any(cell.measured for cell in cells):
            headings.append(name)
            for shown, cell in zip(rows, cells, strict=True):
                shown.append(cell)
        elif cells:
            why.setdefault(cells[0].title, []).append(name)
    notes = tuple((", ".join(names), reason) for reason, names in why.items())
    return replace(plain("Compilation per run", headings, rows), notes=notes)


def _looks(compiled: m.CompileSummary, what: str) -> Cell:
    """Of all caches together; below it each of them."""
    tallies = compiled.caches
    if isinstance(tallies, m.Skipped):
        return missing(tallies)
    each = [(tally.cache, int(getattr(tally, what))) for tally in tallies]
    return whole(
        sum(number for _, number in each), *(f"{name} {number}" for name, number in each if number)
    )


def _on_disk(kept: m.CacheFolder) -> Cell:
    return Cell(size(kept.bytes), (plural(kept.files, "file"),), value=kept.bytes)


_OFFERED: Mapping[str, Callable[[m.CompileSummary], Cell]] = {
    "host peak while compiling": lambda made: known(made.compiling, partial(peak_cell, "resident")),
    "GPU peak while compiling": lambda made: known(made.compiling, partial(peak_cell, "allocated")),
    **{f"cache {what}": partial(_looks, what=what) for what in ("hits", "misses", "bypasses")},
    "cache on disk": lambda made: known(made.cache, _on_disk),
}


def _totals(
    runs: m.Runs,
) -> Iterator[tuple[int, m.RunReport, list[tuple[float, ...]], list[float]]]:
    """Seconds in each stage of each compilation that recorded them, and their sums; of the runs
    that have any."""
    for index, run, compiled in _compiled(runs):
        each = [
            _seconds(c.stages)
            for c in compiled.compilations
            if isinstance(c.stages, m.CompileStages)
        ]
        if each:
            yield index, run, each, [sum(stage) for stage in zip(*each, strict=True)]


def _seconds(stages: m.CompileStages) -> tuple[float, ...]:
    return tuple(float(getattr(stages, field)) for field, *_ in STAGES)


def _figures(seconds: Sequence[float]) -> tuple[str, ...]:
    return tuple(
        "0" if value == 0 else "< 0.001" if value < 0.001 else figure(value) for value in seconds
    )


def stage_table(runs: m.Runs) -> Table:
    rows = ((run.key.slug, *_figures((*total, sum(total)))) for _, run, _, total in _totals(runs))
    return plain("Seconds of compilation by stage", ("run", *_NAMES, "all six"), rows)


def bar_scale_s(runs: m.Runs) -> float:
    """Length of the longest bar."""
    return max((sum(total) for *_, total in _totals(runs)), default=0.0) or 1.0


def stage_bars(runs: m.Runs, limits: Limits) -> tuple[Bar, ...]:
    scale = bar_scale_s(runs)
    bars = []
    for index, run, each, total in _totals(runs):
        whole = sum(total) or 1.0
        parts = []
        words = []
        for (field, letter, name, _), value in zip(STAGES, total, strict=True):
            if value:
                words.append(f"{name} {figure(value)} s ({percent(value / whole)})")
                length = value / scale
                share = value / whole
                parts.append(
                    Part(
                        kind=kind(field), letter=letter, length=length, share=share, title=words[-1]
                    )
                )
        of = len(run.compile.compilations) if isinstance(run.compile, m.CompileSummary) else 0
        made = (
            plural(len(each), "compilation")
            if len(each) == of
            else f"{len(each)} of {of:,} compilations"
        )
        bar = Bar(
            anchor=anchor(index),
            run=one_line(run.key.slug, limits.name),
            caption=f"{figure(sum(total))} s in {made}",
            description=f"{figure(sum(total))} s: {', '.join(words)}",
            segments=of_parts(parts),
        )
        bars.append(bar)
    return tuple(bars)


def compilation_folds(runs: m.Runs, limits: Limits) -> Iterator[Fold]:
    for index, run, compiled in _compiled(runs):
        made = compiled.compilations
        headings = ("id", "function", "s", "operators", "capture ms/operator", *_NAMES)
        rows = map(_compilation, made[: limits.lines])
        label = f"Compilations of {run.key.slug}"
        more = (
            (f"{len(made) - limits.lines:,} more in report.json.",)
            if len(made) > limits.lines
            else ()
        )
        blocks = (plain(label, headings, rows, style="", first="kind", words=2), *more)
        if made:
            yield run_part(index, run, blocks, "each compilation", "compile")


def _compilation(compilation: m.Compilation) -> tuple[Cell | str, ...]:
    below = [Small((compilation.location,), "place")]
    if compilation.fail_reason:
        below.append(Small((f"failed: {compilation.fail_reason}",), "wrong"))
    operators = compilation.operators
    stages = compilation.stages
    named = Cell(compilation.function, below=tuple(below))
    each = DASH
    if operators and isinstance(stages, m.CompileStages):
        each = figure(stages.capture_s * 1e3 / operators)
    count = DASH if operators is None else f"{operators:,}"
    head = (compilation.compile_id, named, number(compilation.duration_s), count, each)
    if isinstance(compilation.stages, m.Skipped):
        return (*head, Cell(compilation.stages.reason, style="missing", span=len(STAGES)))
    return (*head, *_figures(_seconds(compilation.stages)))


OPEN = 8  # rows that stand open; the others are folded
_RECOMPILE_HEADINGS = ("function", "reason", "run", "call", "s")


def recompile_blocks(runs: m.Runs, root: str, limits: Limits) -> Blocks:
    """The first ones in sight, the others folded, how many are not on the page, and of which runs
    nothing is known."""
    known = [
        (run, entry)
        for _, run, compiled in _compiled(runs)
        if not isinstance(compiled.recompiles, m.Skipped)
        for entry in compiled.recompiles
    ]
    rows = [_recompile_row(run, entry, root) for run, entry in known[: limits.lines]]
    blocks: list[Block] = []
    if rows:
        blocks.append(plain("Recompiles", _RECOMPILE_HEADINGS, rows[:OPEN], words=3))
    if folded := rows[OPEN:]:
        table = plain("More recompiles", _RECOMPILE_HEADINGS, folded, words=3)
        blocks.append(Fold(f"{len(folded)} more", blocks=(table,)))
    if len(known) > limits.lines:
        blocks.append(f"{len(known) - limits.lines:,} more in report.json.")
    unknown: dict[str, list[str]] = {}
    for _, run, compiled in _compiled(runs):
        if isinstance(compiled.recompiles, m.Skipped):
            unknown.setdefault(compiled.recompiles.reason, []).append(run.key.slug)
    for reason, slugs in unknown.items():
        of = f" of {', '.join(slugs[: limits.lines])}" if len(slugs) < len(runs) else ""
        blocks.append(f"Unknown{of}: {reason}.")
    return tuple(blocks)


def _recompile_row(run: m.RunReport, entry: m.RecompileEntry, root: str) -> tuple[Cell | str, ...]:
    place = entry.location
    site = entry.call_site
    places = (
        str(entry.library) if entry.library else "",
        f"{relative(place.file, root)}:{place.line}" if place else "",
        f"called at {relative(site.file, root)}:{site.line} {site.function}" if site else "",
    )
    below = (
        Small((entry.compile_id or "refused",), "detail"),
        Small(tuple(filter(None, places)), "place"),
    )
    function = Cell(
        entry.function or (place.function if place else "a library's function"), below=below
    )
    words = () if entry.words in entry.reason else (Small((entry.words,), "place"),)
    number_of = DASH if entry.call is None else f"{entry.call:,}"
    number_of = "before the first" if number_of == "-1" else number_of
    call = Cell(number_of, details=("after warm-up",) if entry.steady else ())
    return function, Cell(entry.reason, below=words), run.key.slug, call, number(entry.duration_s)


def recompile_summary(runs: m.Runs) -> str:
    """ "3 recompiles, 1 of them after warm-up, 4.21 s in all; 1 refused"; empty where no run's are
    known."""
    found = [compiled.recompiles for _, _, compiled in _compiled(runs)]
    known = [entries for entries in found if not isinstance(entries, m.Skipped)]
    if not known:
        return ""
    entries = [entry for each in known for entry in each]
    made = [entry for entry in entries if not entry.refused]
    if not entries:
        return "no recompiles"
    seconds = sum(entry.duration_s for entry in made if not isinstance(entry.duration_s, m.Skipped))
    said = [
        plural(len(made), "recompile"),
        f"{count(sum(entry.steady for entry in made))} of them after warm-up",
    ]
    if seconds:
        said.append(f"{figure(seconds)} s in all")
    refused = len(entries) - len(made)
    return ", ".join(said) + (f"; {count(refused)} refused by torch's limit" if refused else "")
