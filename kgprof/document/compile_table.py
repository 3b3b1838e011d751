"""Compilation run by run: the first call, where the compiler's own time went in six stages, and
which functions were compiled again, in which call, for which reason, at what price."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.breakdown import Bar, LegendEntry, Part
from kgprof.document.finding_list import line_of
from kgprof.document.limits import Limits, anchor
from kgprof.document.memory_table import peak_cell
from kgprof.document.quantity import DASH, count, figure, or_dash, percent
from kgprof.document.run_parts import collected, having, measured, name_of, run_part
from kgprof.document.table import (
    Block,
    Cell,
    Cells,
    Fold,
    Small,
    Table,
    dashed,
    number,
    plain,
    sized,
    small,
    timed,
    whole,
)
from kgprof.wording import clause, plural

# In the order in which a compilation goes through them: field, letter, name, meaning.
STAGES = (
    ("capture_s", "C", "capture", "Dynamo: bytecode to graph, and guards"),
    ("frontend_s", "F", "frontend", "AOTAutograd and the passes over the graph"),
    ("scheduling_s", "S", "scheduling", "Inductor's lowering, partition and fusion"),
    ("code_generation_s", "G", "code generation", "writing C++ or Triton"),
    ("machine_code_s", "M", "machine code", "g++ or Triton's compiler"),
    ("caching_s", "K", "caching", "computing cache keys, reading and loading entries"),
)
_NAMES = [name for _, _, name, _ in STAGES]


def kind(field: str) -> str:
    """The class of a stage's colour: "machine_code_s" is k-machine-code."""
    return field.removesuffix("_s").replace("_", "-")


LEGEND = [LegendEntry("k", kind(field), name, why, letter) for field, letter, name, why in STAGES]


def _compiled(runs: m.Runs) -> list[tuple[int, m.RunReport, m.CompileSummary]]:
    return having(runs, "compile", m.CompileSummary)


def compile_table(runs: m.Runs) -> Table:
    """Columns that no run has a figure for are left out, with a note that says why."""
    found = _compiled(runs)
    rows: list[list[Cell | str]] = []
    for _, run, compiled in found:
        seconds = measured(each.duration_s for each in compiled.compilations)
        total = DASH
        if seconds:
            total = figure(sum(seconds))
        later = timed(compiled.steady, 1e-3)
        if not later.measured:
            later = Cell(later.title)
        rows.append(
            [
                run.slug,
                number(compiled.first_call_s),
                count(len(compiled.compilations)),
                total,
                later,
            ]
        )
    headings = [
        "run",
        "first call (s)",
        "compilations",
        "Dynamo total s",
        "later calls ms (range, calls)",
    ]
    missed = []
    for name, cell_of in _OFFERED.items():
        cells = [dashed(cell_of)(compiled) for _, _, compiled in found]
        if any(cell.measured for cell in cells):
            headings.append(name)
            for shown, cell in zip(rows, cells, strict=True):
                shown.append(cell)
        elif cells:
            missed.append((cells[0].title, name))
    notes = [(", ".join(names), reason) for reason, names in collected(missed).items()]
    return replace(plain("Compilation per run", headings, rows), notes=notes)


def _looks(what: str, compiled: m.CompileSummary) -> Cell:
    """Of all caches together; below it each of them."""
    each = {tally.cache: int(getattr(tally, what)) for tally in m.known(compiled.caches)}
    return whole(
        sum(each.values()), *(f"{name} {number}" for name, number in each.items() if number)
    )


def _peak(name: str, compiled: m.CompileSummary) -> Cell:
    return peak_cell(name, m.known(compiled.compiling))


def _on_disk(compiled: m.CompileSummary) -> Cell:
    kept = m.known(compiled.cache)
    return sized(kept.bytes, plural(kept.files, "file"))


_OFFERED: Mapping[str, Callable[[m.CompileSummary], Cell]] = {
    "host peak while compiling": partial(_peak, "resident"),
    "GPU peak while compiling": partial(_peak, "allocated"),
    **{f"cache {what}": partial(_looks, what) for what in ("hits", "misses", "bypasses")},
    "cache on disk": _on_disk,
}


def _totals(
    runs: m.Runs,
) -> Iterator[tuple[int, m.RunReport, list[Sequence[float]], list[float]]]:
    """Seconds in each stage of each compilation that recorded them, and their sums; of the runs
    that have any."""
    for index, run, compiled in _compiled(runs):
        each = [*map(_seconds, measured(made.stages for made in compiled.compilations))]
        if each:
            yield index, run, each, [sum(stage) for stage in zip(*each, strict=True)]


def _seconds(stages: m.CompileStages) -> Sequence[float]:
    return [float(getattr(stages, field)) for field, *_ in STAGES]


def _stage_s(value: float) -> str:
    if 0 < value < 0.001:
        return "< 0.001"
    return figure(value)


def stage_table(runs: m.Runs) -> Table:
    rows = ((run.slug, *map(_stage_s, (*total, sum(total)))) for _, run, _, total in _totals(runs))
    return plain("Seconds of compilation by stage", ("run", *_NAMES, "all six"), rows)


def bar_scale_s(runs: m.Runs) -> float:
    """Length of the longest bar."""
    return max((sum(total) for *_, total in _totals(runs)), default=0.0) or 1.0


def stage_bars(runs: m.Runs) -> Sequence[Bar]:
    scale = bar_scale_s(runs)
    bars = []
    for index, run, each, total in _totals(runs):
        whole = sum(total)
        parts = []
        for (field, letter, name, _), value in zip(STAGES, total, strict=True):
            if value:
                share = value / whole
                title = f"{name} {figure(value)} s ({percent(share)})"
                parts.append(Part(kind(field), letter, value / scale, share, title))
        made = plural(len(each), "compilation")
        if isinstance(run.compile, m.CompileSummary) and len(run.compile.compilations) != len(each):
            made = f"{len(each)} of {len(run.compile.compilations):,} compilations"
        words = f"{figure(whole)} s: {', '.join(part.title for part in parts)}"
        bars.append(
            Bar(words, parts, name_of(run.key), f"{figure(whole)} s in {made}", anchor(index))
        )
    return bars


def compilation_folds(runs: m.Runs, limits: Limits) -> Iterator[Fold]:
    headings = ("id", "function", "s", "operators", "capture ms/operator", *_NAMES)
    for index, run, compiled in _compiled(runs):
        made = compiled.compilations
        if not made:
            continue
        rows = [_compilation(each) for each in made[: limits.lines]]
        label = f"Compilations of {run.slug}"
        blocks: list[Block] = [plain(label, headings, rows, style="", first="kind", words=2)]
        if len(made) > limits.lines:
            blocks.append(f"{len(made) - limits.lines:,} more in report.json.")
        yield run_part(index, run, blocks, "each compilation", "compile")


def _compilation(compilation: m.Compilation) -> Cells:
    failed = clause("failed: ", compilation.fail_reason)
    below = (Small((compilation.location,), "place"), *small(failed, style="wrong"))
    operators = compilation.operators
    stages = compilation.stages
    head = (
        compilation.compile_id,
        Cell(compilation.function, below=below),
        number(compilation.duration_s),
        or_dash(operators, count),
    )
    if isinstance(stages, m.Skipped):
        return (*head, DASH, Cell(stages.reason, style="missing", span=len(STAGES)))
    each = DASH
    if operators:
        each = figure(stages.capture_s * 1e3 / operators)
    return (*head, each, *map(_stage_s, _seconds(stages)))


OPEN = 8  # rows that stand open; the others are folded
_RECOMPILE_HEADINGS = ("function", "reason", "run", "step", "s")


def recompile_blocks(runs: m.Runs, root: str, limits: Limits) -> Iterator[Block]:
    """The first ones in sight, the others folded, how many are not on the page, and of which runs
    nothing is known."""
    rows = []
    unknown = []
    for _, run, compiled in _compiled(runs):
        if isinstance(compiled.recompiles, m.Skipped):
            unknown.append((compiled.recompiles.reason, run.slug))
        else:
            rows += [_recompile_row(run, entry, root) for entry in compiled.recompiles]
    if rows:
        yield plain("Recompiles", _RECOMPILE_HEADINGS, rows[:OPEN], words=3)
    if folded := rows[OPEN : limits.lines]:
        table = plain("More recompiles", _RECOMPILE_HEADINGS, folded, words=3)
        yield Fold(f"{len(folded)} more", (table,))
    if len(rows) > limits.lines:
        yield f"{len(rows) - limits.lines:,} more in report.json."
    for reason, slugs in collected(unknown).items():
        of = ""
        if len(slugs) < len(runs):
            of = f" of {', '.join(slugs)}"
        yield f"Unknown{of}: {reason}."


def _recompile_row(run: m.RunReport, entry: m.RecompileEntry, root: str) -> Cells:
    place = entry.location
    site = entry.call_site
    places = []
    function = "a library's function"
    if entry.library:
        places.append(str(entry.library))
    if place:
        function = place.function
        places.append(line_of(place, root))
    if site:
        places.append(f"called at {line_of(site, root)} {site.function}")
    below = (Small((entry.compile_id or "refused",), "detail"), Small(places, "place"))
    words = entry.words
    if words in entry.reason:
        words = ""
    call = or_dash(entry.call, count)
    if entry.call == -1:
        call = "before the first"
    step = Cell(call)
    if entry.steady:
        step = Cell(call, ("after warm-up",))
    return (
        Cell(entry.function or function, below=below),
        Cell(entry.reason, below=small(words, style="place")),
        run.slug,
        step,
        number(entry.duration_s),
    )


def recompile_summary(runs: m.Runs) -> str:
    """ "3 recompiles, 1 of them after warm-up, 4.21 s in all; 1 refused"; empty where no run's are
    known."""
    known = measured(compiled.recompiles for _, _, compiled in _compiled(runs))
    if not known:
        return ""
    entries = [entry for each in known for entry in each]
    if not entries:
        return "no recompiles"
    made = [entry for entry in entries if not entry.refused]
    seconds = sum(measured(entry.duration_s for entry in made))
    steady = count(sum(entry.steady for entry in made))
    said = f"{plural(len(made), 'recompile')}, {steady} of them after warm-up"
    if seconds:
        said += f", {figure(seconds)} s in all"
    if refused := len(entries) - len(made):
        said += f"; {count(refused)} refused by torch's limit"
    return said
