"""Compilation run by run: the first call, and where the compiler's own time went in six stages."""

from __future__ import annotations

from collections.abc import Sequence

from kgprof import model as m
from kgprof.render.chart import Bar, LegendEntry, Part, of_parts
from kgprof.render.limits import Limits, anchor, run_name
from kgprof.render.quantity import DASH, figure, percent
from kgprof.render.table import Block, Cell, Column, Fold, Row, Small, Table, columns, number, row, timed
from kgprof.wording import plural

# In the order in which a compilation goes through them: field, letter, name, meaning.
STAGES = (
    ("capture_s", "C", "capture", "Dynamo: from bytecode to a graph, and the guards"),
    ("frontend_s", "F", "frontend", "AOTAutograd and the passes over the graph"),
    ("scheduling_s", "S", "scheduling", "Inductor's lowering, partition and fusion"),
    ("code_generation_s", "G", "code generation", "writing C++ or Triton"),
    ("machine_code_s", "M", "machine code", "waiting for g++ or Triton's compiler"),
    ("caching_s", "K", "caching", "making cache keys, reading and loading what they lead to"),
)
_NAMES = tuple(name for _, _, name, _ in STAGES)


def kind(field: str) -> str:
    """The class of a stage's colour: "machine_code_s" is k-machine-code."""
    return field.removesuffix("_s").replace("_", "-")


LEGEND = tuple(
    LegendEntry(kind=kind(field), letter=letter, name=name, meaning=why) for field, letter, name, why in STAGES
)


def compile_table(runs: Sequence[m.RunReport]) -> Table:
    """One row a run that the compiler left records of."""
    rows = []
    for run in runs:
        if isinstance(run.compile, m.Skipped):
            continue
        compiled = run.compile
        seconds = [c.duration_s for c in compiled.compilations if not isinstance(c.duration_s, m.Skipped)]
        later = compiled.steady
        rows.append(
            row(
                run.key.slug,
                number(compiled.first_call_s),
                f"{len(compiled.compilations):,}",
                figure(sum(seconds)) if seconds else DASH,
                later.reason if isinstance(later, m.Skipped) else timed(later, 1e-3),
            )
        )
    headings = ("run", "first call s", "compilations", "reported by Dynamo s", "later calls ms (range, calls)")
    return Table(label="Compilation per run", columns=columns(*headings), rows=tuple(rows), style="sortable")


def _totals(runs: Sequence[m.RunReport]) -> list[tuple[int, m.RunReport, m.CompileSummary, tuple[float, ...]]]:
    """Seconds in each stage, of the runs of which at least one compilation recorded them."""
    totals = []
    for index, run in enumerate(runs):
        if isinstance(run.compile, m.Skipped):
            continue
        recorded = [c.stages for c in run.compile.compilations if isinstance(c.stages, m.CompileStages)]
        if recorded:
            each = [_seconds(stages) for stages in recorded]
            totals.append((index, run, run.compile, tuple(sum(stage) for stage in zip(*each, strict=True))))
    return totals


def _seconds(stages: m.CompileStages) -> tuple[float, ...]:
    return tuple(float(getattr(stages, field)) for field, *_ in STAGES)


def _figures(seconds: Sequence[float]) -> tuple[str, ...]:
    return tuple("0" if value == 0 else "< 0.001" if value < 0.001 else figure(value) for value in seconds)


def stage_table(runs: Sequence[m.RunReport]) -> Table:
    return Table(
        label="Seconds of compilation by stage",
        columns=columns("run", *_NAMES, "all six"),
        rows=tuple(row(run.key.slug, *_figures((*total, sum(total)))) for _, run, _, total in _totals(runs)),
        style="sortable",
    )


def bar_scale_s(runs: Sequence[m.RunReport]) -> float:
    """Length of the longest bar."""
    return max((sum(total) for *_, total in _totals(runs)), default=0.0) or 1.0


def stage_bars(runs: Sequence[m.RunReport], limits: Limits) -> tuple[Bar, ...]:
    scale, bars = bar_scale_s(runs), []
    for index, run, compiled, total in _totals(runs):
        whole = sum(total) or 1.0
        shown = [(stage, value) for stage, value in zip(STAGES, total, strict=True) if value]
        parts = [
            Part(kind=kind(field), letter=letter, length=value / scale, share=value / whole)
            for (field, letter, _, _), value in shown
        ]
        said = ", ".join(f"{name} {figure(value)} s ({percent(value / whole)})" for (_, _, name, _), value in shown)
        number_of = len(compiled.compilations)
        recorded = sum(isinstance(c.stages, m.CompileStages) for c in compiled.compilations)
        number_said = (
            plural(recorded, "compilation") if recorded == number_of else f"{recorded} of {number_of:,} compilations"
        )
        bars.append(
            Bar(
                anchor=anchor(index),
                run=run_name(run, limits),
                caption=f"{figure(sum(total))} s in {number_said}",
                description=f"{figure(sum(total))} s: {said}",
                segments=of_parts(parts),
            )
        )
    return tuple(bars)


def compilation_folds(runs: Sequence[m.RunReport], limits: Limits) -> tuple[Fold, ...]:
    """Each compilation, run by run."""
    folds = []
    for index, run in enumerate(runs):
        made = run.compile.compilations if isinstance(run.compile, m.CompileSummary) else ()
        if not made:
            continue
        table = Table(
            label=f"Compilations of {run.key.slug}",
            columns=(Column("id", style="kind"), Column("function", style=""), *columns("s", *_NAMES, words=0)),
            rows=tuple(_compilation(compilation) for compilation in made[: limits.lines]),
        )
        blocks: list[Block] = [table]
        if len(made) > limits.lines:
            blocks.append(f"{len(made) - limits.lines:,} more in report.json.")
        place = f"compile-{anchor(index)}"
        folds.append(Fold(run.key.slug, blocks=tuple(blocks), caption="each compilation", anchor=place, style=""))
    return tuple(folds)


def _compilation(compilation: m.Compilation) -> Row:
    below = [Small((compilation.location,), "place")]
    if compilation.fail_reason:
        below.append(Small((f"failed: {compilation.fail_reason}",), "wrong"))
    stages: tuple[Cell | str, ...]
    if isinstance(compilation.stages, m.Skipped):
        stages = (Cell(compilation.stages.reason, style="missing", span=len(STAGES)),)
    else:
        stages = _figures(_seconds(compilation.stages))
    function = Cell(compilation.function, below=tuple(below))
    return row(compilation.compile_id, function, number(compilation.duration_s), *stages)
