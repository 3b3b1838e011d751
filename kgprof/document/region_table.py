"""What compiling made of each graph: kernels and bytes beside eager mode's, buffers, and what was
tuned for it."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from kgprof import model as m
from kgprof.document import breakdown
from kgprof.document.breakdown import broken_down
from kgprof.document.kernel_table import distinct_names
from kgprof.document.limits import Limits
from kgprof.document.quantity import DASH, count, figure, if_known, percent, ratio, share_of, size
from kgprof.document.run_parts import having
from kgprof.document.table import (
    Block,
    Cell,
    Cells,
    Table,
    missing,
    number,
    plain,
    several,
    share,
    sized,
    whole,
    written,
)
from kgprof.wording import clause, middle_out, plural, relative, short

_NAME = 60  # characters of a kernel or a configuration
IN_TERMINAL = (
    "graph",
    "operators in eager",
    "kernels",
    "eager moves",
    "moved",
    "must move",
    "GB/s",
)
_FUSION_HEADINGS = (
    *("graph", "operators in eager", "kernels", "eager moves", "moved", "must move"),
    *("moved / must", "\N{MICRO SIGN}s/call", "GB/s", "of copy bandwidth"),
)
_TUNED_HEADINGS = (
    *("run", "kernel", "inputs", "chosen", "tried", "chosen, \N{MICRO SIGN}s"),
    *("next, \N{MICRO SIGN}s", "slowest, \N{MICRO SIGN}s", "search, s"),
)
FUSION = "Eager operators and compiled kernels per graph"
GENERATORS = "Kernels by what generated them"
PLACES = "Time per step by function, \N{MICRO SIGN}s"
BUFFERS = "Buffers of each compiled graph"
AUTOTUNED = "Autotuning: kernels that torch timed"
STAGES = "Triton's stages, seconds"
_STAGES = {
    "ir": "Python to IR",
    "ttir": "TTIR",
    "ttgir": "TTGIR",
    "llir": "LLVM IR",
    "ptx": "PTX",
    "cubin": "cubin (ptxas)",
    "store": "store",
}


def _graphs(runs: m.Runs) -> Iterator[tuple[m.RunReport, m.FusedGraph]]:
    for run in runs:
        if isinstance(run.fusion, m.Fusion):
            yield from ((run, graph) for graph in run.fusion.graphs)


def _head(run: m.RunReport, work: m.GraphWork) -> str:
    name = f"{run.slug} {work.compile_id}"
    if work.backward:
        name += " backward"
    return name


def fusion_blocks(runs: m.Runs, limits: Limits) -> Iterator[Block]:
    """A row a graph, and how many kernels a step takes in all; none where Inductor compiled
    nothing."""
    graphs = list(_graphs(runs))
    if not graphs:
        return
    rows = [_fused(run, graph) for run, graph in graphs[: limits.lines]]
    yield plain(FUSION, _FUSION_HEADINGS, rows)
    for _, run, fusion in having(runs, "fusion", m.Fusion):
        if isinstance(fusion.kernels, float):
            said = f"{run.slug}: {plural(fusion.kernels, 'kernel')} per step in TRACE"
            if isinstance(fusion.eager_kernels, float):
                said += f"; {run.key.strategy}.{m.EAGER}: {short(fusion.eager_kernels)}"
            yield said
    if (more := len(graphs) - limits.lines) > 0:
        yield f"{more:,} more graphs in report.json."


def _fused(run: m.RunReport, graph: m.FusedGraph) -> Cells:
    work = graph.work
    unknown = clause("", work.unknown, " of unknown size")

    def at_least(value: m.Figure, words: Callable[[Any], str]) -> Cell:
        if not unknown:
            return written(value, words)
        return written(value, lambda known: f"\N{GREATER-THAN OR EQUAL TO} {words(known)}")

    operators, moved = several(
        work.eager, 2, lambda eager: (whole(eager.operators), sized(eager.bytes_moved))
    )
    times = work.moved_bytes / max(1, work.needed_bytes)
    moved_must = Cell(ratio(times), value=times)
    if unknown:
        moved_must = missing(unknown)
    elif not work.needed_bytes:
        moved_must = missing("no kernel reads its inputs or writes its outputs")
    calls = if_known(graph.calls, lambda number: plural(number, "call"))
    return (
        _head(run, work),
        operators,
        whole(work.kernels, f"{work.generated:,} generated", unknown),
        moved,
        at_least(work.moved_bytes, size),
        at_least(work.needed_bytes, size),
        moved_must,
        number(graph.us, *calls),
        at_least(graph.bytes_per_s, lambda rate: figure(rate / 1e9)),
        at_least(graph.of_copy, percent),
    )


def generator_table(runs: m.Runs) -> Table:
    rows = [
        (
            run.slug,
            total.generator,
            whole(total.names),
            whole(total.count),
            number(total.total_us / 1000),
            share(share_of(total.total_us, kernels.total_us)),
        )
        for _, run, kernels in broken_down(runs)
        for total in kernels.generators
    ]
    headings = ("run", "generator", "names", "calls", "total ms", "share")
    return plain(GENERATORS, headings, rows, words=2)


def place_table(runs: m.Runs, root: str, limits: Limits) -> Table:
    """Microseconds a step by the function whose lines the kernels compute, a column a run; largest
    in any run first."""
    found = [
        (run, kernels, breakdown.steps_of(kernels))
        for _, run, kernels in broken_down(runs)
        if not isinstance(kernels.lines_us, m.Skipped) and kernels.total_us
    ]
    times: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(found))
    for at, (_, kernels, steps) in enumerate(found):
        for kernel in kernels.rows:
            times[_of(kernel.lines, root)][at] += kernel.lines_us / steps
            times[""][at] += (kernel.total_us - kernel.lines_us) / steps
    unknown = times.pop("", [0.0] * len(found))
    places = sorted(times, key=lambda where: -max(times[where]))
    rows = [(where, times[where]) for where in places[: limits.lines]]
    if rest := places[limits.lines :]:
        summed = [sum(us) for us in zip(*(times[where] for where in rest), strict=True)]
        rows.append((plural(len(rest), "more function", "more functions"), summed))
    rows.append(("(lines not known)", unknown))
    wholes = [kernels.total_us / steps for _, kernels, steps in found]
    cells: list[Cells] = [
        [
            where,
            *(number(us, percent(us / whole)) for us, whole in zip(of_runs, wholes, strict=True)),
        ]
        for where, of_runs in rows
        if found
    ]
    headings = ("function", *(run.slug for run, _, _ in found))
    return plain(PLACES, headings, cells, style="", first="name")


def _of(lines: Sequence[m.Location], root: str) -> str:
    """The function that all lines are in, else the file, else the files."""
    files = sorted({relative(line.file, root) for line in lines})
    functions = {line.function for line in lines}
    if len(files) > 1:
        return "fused across " + ", ".join(
            dict.fromkeys(PurePosixPath(file).name for file in files)
        )
    if len(functions) > 1:
        return f"{files[0]}, several functions"
    if not files:
        return ""
    return f"{files[0]} {functions.pop()}".rstrip()


def buffer_blocks(runs: m.Runs) -> Iterator[Table]:
    """What a call of each graph allocates; of a backward, what the forward keeps for it."""
    graphs = list(_graphs(runs))
    if not graphs:
        return
    training = any(graph.work.backward for _, graph in graphs)
    headings = ["graph", "allocated", "bytes", "reused", "bytes reused"]
    if training:
        headings += ["activations saved", "bytes saved", "inputs kept", "operators recomputed"]
    rows: list[Cells] = []
    for run, graph in graphs:
        work = graph.work
        cells: list[Cell | str] = [_head(run, work), *several(work.buffers, 4, _planned)]
        if training:
            cells += several(work.saved, 4, _saved)
        rows.append(cells)
    yield plain(BUFFERS, headings, rows)


def _planned(plan: m.BufferPlan) -> Sequence[Cell]:
    allocated = (whole(plan.allocated), sized(plan.allocated_bytes))
    return *allocated, whole(plan.reused), sized(plan.reused_bytes)


def _saved(saved: m.SavedForBackward) -> Sequence[Cell]:
    activations = (whole(saved.activations), sized(saved.activation_bytes))
    recomputed = whole(saved.recomputed, f"of {saved.operators:,} in the forward")
    return *activations, whole(saved.inputs), recomputed


def tuning_blocks(runs: m.Runs, limits: Limits) -> Iterator[Block]:
    """A row for each choice that was timed, the longest search first, and one for each kernel's way
    through Triton."""
    compiled = having(runs, "compile", m.CompileSummary)
    tuned = [
        (run, one)
        for _, run, found in compiled
        if isinstance(found.autotuned, tuple)
        for one in found.autotuned
    ]
    if tuned:
        tuned.sort(key=lambda each: -each[1].seconds)
        rows = [_tuned(*each) for each in tuned[: limits.lines]]
        yield plain(AUTOTUNED, _TUNED_HEADINGS, rows, words=4)
        seconds = sum(one.seconds for _, one in tuned)
        said = f"{plural(len(tuned), 'search', 'searches')} in {figure(seconds)} s"
        if (left_out := len(tuned) - limits.lines) > 0:
            said += f", {left_out:,} of them in report.json only"
        yield f"{said}."
    staged = [
        (run, found.stages)
        for _, run, found in compiled
        if isinstance(found.stages, m.TritonStages) and found.stages.kernels
    ]
    if staged:
        kernels = [(run, kernel) for run, stages in staged for kernel in stages.kernels]
        names = distinct_names([kernel.kernel for _, kernel in kernels], _NAME)
        every = dict.fromkeys(stage for _, kernel in kernels for stage in kernel.seconds)
        made: list[Cells] = []
        for (run, kernel), name in zip(kernels, names, strict=True):
            each = [figure(kernel.seconds.get(stage, 0.0)) for stage in every]
            made.append([run.slug, name, *each, number(sum(kernel.seconds.values()))])
        headings = ("run", "kernel", *(_STAGES.get(stage, stage) for stage in every), "all")
        yield plain(STAGES, headings, made[: limits.lines], words=2)
        said = "Each kernel was compiled again in the second process, bypassing Triton's cache"
        if lost := sum(stages.left_out for _, stages in staged) + len(made[limits.lines :]):
            said += f"; {plural(lost, 'kernel')} left out"
        yield f"{said}."


def _tuned(run: m.RunReport, one: m.Autotuned) -> Cells:
    failed = missing("all failed")
    chosen, us, next_us, slowest = failed, failed, missing("no other choice ran"), failed
    if one.choices:
        first, *others = one.choices
        chosen = Cell(middle_out(first.name, 2 * _NAME), title=first.name)
        us = number(first.us)
        if others:
            next_us = number(others[0].us)
    if one.slowest_us is not None:
        slowest = number(one.slowest_us)
    what = "block sizes"
    if one.template:
        what = "library or template"
    return (
        run.slug,
        Cell(middle_out(one.kernel, _NAME), (what,)),
        one.inputs or DASH,
        chosen,
        whole(one.tried, clause("", one.failed and count(one.failed), " failed")),
        us,
        next_us,
        slowest,
        number(one.seconds),
    )
