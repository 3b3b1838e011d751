"""Compilation run by run: the first call, and where the compiler's own time went in six stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.chart import Bar, LegendEntry, Part, of_parts
from kgprof.render.limits import Limits, anchor, run_name
from kgprof.render.quantity import DASH, count, figure, milliseconds, percent
from kgprof.render.spread import ranged, sampled
from kgprof.render.visible import one_line

# In the order in which a compilation goes through them: field, letter, name, meaning.
STAGES = (
    ("capture_s", "C", "capture", "Dynamo: from bytecode to a graph, and the guards"),
    ("frontend_s", "F", "frontend", "AOTAutograd and the passes over the graph"),
    ("scheduling_s", "S", "scheduling", "Inductor's lowering, partition and fusion"),
    ("code_generation_s", "G", "code generation", "writing C++ or Triton"),
    ("machine_code_s", "M", "machine code", "waiting for g++ or Triton's compiler"),
    ("caching_s", "K", "caching", "making cache keys, reading and loading what they lead to"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilationLine:
    compile_id: str
    function: str
    location: str
    seconds: str
    stages: tuple[str, ...]  # of STAGES; empty where they were not recorded
    why: str  # they were not
    failure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileLine:
    anchor: str
    run: str
    first_call_s: str
    compilations: str
    compile_s: str
    steady: str
    details: tuple[CompilationLine, ...]
    left_out: str  # how many more compilations there were


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileTable:
    lines: tuple[CompileLine, ...]
    stages: tuple[str, ...]
    totals: tuple[tuple[str, tuple[str, ...]], ...]  # run, seconds in each stage and in all of them
    bars: tuple[Bar, ...]
    scale_s: str
    legend: tuple[LegendEntry, ...]


def compile_table(runs: Sequence[m.RunReport], limits: Limits) -> CompileTable:
    staged = [(index, run, total) for index, run in enumerate(runs) if (total := _total(run))]
    scale = max((sum(total) for _, _, total in staged), default=0.0) or 1.0
    return CompileTable(
        lines=tuple(
            _line(index, run, run.compile, limits)
            for index, run in enumerate(runs)
            if isinstance(run.compile, m.CompileSummary)
        ),
        stages=tuple(name for _, _, name, _ in STAGES),
        totals=tuple((run_name(run, limits), _figures((*total, sum(total)))) for _, run, total in staged),
        bars=tuple(_bar(index, run, total, scale, limits) for index, run, total in staged),
        scale_s=figure(scale),
        legend=tuple(
            LegendEntry(kind=kind(field), letter=letter, name=name, meaning=meaning)
            for field, letter, name, meaning in STAGES
        ),
    )


def kind(field: str) -> str:
    """The class of a stage's colour: "machine_code_s" is k-machine-code."""
    return field.removesuffix("_s").replace("_", "-")


def _total(run: m.RunReport) -> tuple[float, ...]:
    """Seconds of the whole run in each stage; empty where no compilation recorded any."""
    if not isinstance(run.compile, m.CompileSummary):
        return ()
    known = [c.stages for c in run.compile.compilations if isinstance(c.stages, m.CompileStages)]
    return tuple(sum(_seconds(stages, field) for stages in known) for field, *_ in STAGES) if known else ()


def _seconds(stages: m.CompileStages, field: str) -> float:
    value = getattr(stages, field)
    assert isinstance(value, float | int)
    return float(value)


def _figures(seconds: Sequence[float]) -> tuple[str, ...]:
    return tuple("0" if value == 0 else "< 0.001" if value < 0.001 else figure(value) for value in seconds)


def _bar(index: int, run: m.RunReport, total: Sequence[float], scale: float, limits: Limits) -> Bar:
    whole = sum(total) or 1.0
    parts = [
        Part(kind=kind(field), letter=letter, length=value / scale, share=value / whole)
        for (field, letter, _, _), value in zip(STAGES, total, strict=True)
        if value
    ]
    said = [
        f"{name} {figure(value)} s ({percent(value / whole)})"
        for (_, _, name, _), value in zip(STAGES, total, strict=True)
        if value
    ]
    assert isinstance(run.compile, m.CompileSummary)
    known = sum(isinstance(c.stages, m.CompileStages) for c in run.compile.compilations)
    of_all = f" of {count(len(run.compile.compilations))}" if known < len(run.compile.compilations) else ""
    noun = "compilation" if known == 1 and not of_all else "compilations"
    return Bar(
        anchor=anchor(index),
        run=run_name(run, limits),
        caption=f"{figure(sum(total))} s in {count(known)}{of_all} {noun}",
        description=f"{figure(sum(total))} s: {', '.join(said)}",
        segments=of_parts(parts),
    )


def _line(index: int, run: m.RunReport, compiled: m.CompileSummary, limits: Limits) -> CompileLine:
    seconds = [c.duration_s for c in compiled.compilations if not isinstance(c.duration_s, m.Skipped)]
    more = len(compiled.compilations) - limits.lines
    return CompileLine(
        anchor=anchor(index),
        run=run_name(run, limits),
        first_call_s=DASH if isinstance(compiled.first_call_s, m.Skipped) else figure(compiled.first_call_s),
        compilations=count(len(compiled.compilations)),
        compile_s=figure(sum(seconds)) if seconds else DASH,
        steady=_spread_ms(compiled.steady, limits),
        details=tuple(_compilation(c, limits) for c in compiled.compilations[: limits.lines]),
        left_out=count(more) if more > 0 else "",
    )


def _compilation(compilation: m.Compilation, limits: Limits) -> CompilationLine:
    stages, seconds = compilation.stages, compilation.duration_s
    return CompilationLine(
        compile_id=one_line(compilation.compile_id, limits.name),
        function=one_line(compilation.function, limits.name),
        location=one_line(compilation.location, limits.name),
        seconds=DASH if isinstance(seconds, m.Skipped) else figure(seconds),
        stages=() if isinstance(stages, m.Skipped) else _figures([_seconds(stages, field) for field, *_ in STAGES]),
        why=one_line(stages.reason, limits.name) if isinstance(stages, m.Skipped) else "",
        failure=one_line(compilation.fail_reason, limits.name),
    )


def _spread_ms(time: m.Spread | m.Skipped, limits: Limits) -> str:
    if isinstance(time, m.Skipped):
        return one_line(time.reason, limits.name)
    known = [part for part in (ranged(time, 1e-3), sampled(time)) if part]
    return f"{milliseconds(time.median)} ({', '.join(known)})"
