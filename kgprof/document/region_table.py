"""What compiling made of each graph: kernels and bytes beside eager mode's, buffers, and what was
tuned for it."""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from kgprof import model as m
from kgprof.document import breakdown
from kgprof.document.breakdown import broken_down
from kgprof.document.kernel_table import distinct_names
from kgprof.document.limits import Limits
from kgprof.document.quantity import DASH, figure, percent, ratio, size
from kgprof.document.table import (
    Block,
    Blocks,
    Cell,
    Row,
    Table,
    known,
    missing,
    number,
    plain,
    row,
    share,
    whole,
)
from kgprof.wording import middle_out, plural, relative, short

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


def _head(run: m.RunReport, work: m.GraphWork) -> Cell:
    return Cell(f"{run.key.slug} {work.compile_id}{' backward' if work.backward else ''}")


def _bytes(value: int) -> Cell:
    return Cell(size(value), value=float(value))


def fusion_blocks(runs: m.Runs, limits: Limits) -> Blocks:
    """A row a graph, and how many kernels a step takes in all; none where Inductor compiled
    nothing."""
    graphs = list(_graphs(runs))
    if not graphs:
        return ()
    notes = []
    for run in runs:
        if isinstance(run.fusion, m.Fusion) and isinstance(run.fusion.kernels, float):
            eager = run.fusion.eager_kernels
            beside = (
                f"; {run.key.strategy}.{m.EAGER}: {short(eager)}"
                if isinstance(eager, float)
                else ""
            )
            notes.append(
                f"{run.key.slug}: {plural(run.fusion.kernels, 'kernel')} per step in TRACE{beside}"
            )
    if (more := len(graphs) - limits.lines) > 0:
        notes.append(f"{more:,} more graphs in report.json.")
    headings = (
        *(
            "graph",
            "operators in eager",
            "kernels",
            "eager moves",
            "moved",
            "must move",
            "moved / must",
        ),
        *("\N{MICRO SIGN}s/call", "GB/s", "of copy bandwidth"),
    )
    rows = (_fused(run, graph) for run, graph in graphs[: limits.lines])
    return plain(FUSION, headings, rows), *notes


def _fused(run: m.RunReport, graph: m.FusedGraph) -> Row:
    work = graph.work
    least = "\N{GREATER-THAN OR EQUAL TO} " if work.unknown else ""
    unknown = (f"{work.unknown} of unknown size",) if least else ()
    generated = f"{work.generated:,} generated"

    def at_least(text: str, value: float) -> Cell:
        return Cell(f"{least}{text}", value=value)

    times = work.moved_bytes / max(1, work.needed_bytes)
    why = (
        unknown[0]
        if unknown
        else ""
        if work.needed_bytes
        else "no kernel reads its inputs or writes its outputs"
    )
    return row(
        _head(run, work),
        known(work.eager, lambda eager: whole(eager.operators)),
        whole(work.kernels, generated, *unknown),
        known(work.eager, lambda eager: _bytes(eager.bytes_moved)),
        at_least(size(work.moved_bytes), work.moved_bytes),
        at_least(size(work.needed_bytes), work.needed_bytes),
        missing(why) if why else Cell(ratio(times), value=times),
        known(
            graph.us,
            lambda us: number(
                us, plural(graph.calls, "call") if isinstance(graph.calls, int) else ""
            ),
        ),
        known(graph.bytes_per_s, lambda rate: at_least(figure(rate / 1e9), rate)),
        known(graph.of_copy, lambda part: at_least(percent(part), part)),
    )


def generator_table(runs: m.Runs) -> Table:
    rows = [
        (
            run.key.slug,
            total.generator,
            whole(total.names),
            whole(total.count),
            number(total.total_us / 1000),
            of_all,
        )
        for _, run, kernels in broken_down(runs)
        for total in kernels.generators
        for of_all in (share(total.total_us / kernels.total_us if kernels.total_us else 0.0),)
    ]
    return plain(
        GENERATORS, ("run", "generator", "names", "calls", "total ms", "share"), rows, words=2
    )


def place_table(runs: m.Runs, root: str, limits: Limits) -> Table:
    """Microseconds a step by the function whose lines the kernels compute, a column a run; largest
    in any run first."""
    times: dict[str, dict[int, float]] = {}
    found = [
        (index, run, kernels)
        for index, run, kernels in broken_down(runs)
        if not isinstance(kernels.lines_us, m.Skipped) and kernels.total_us
    ]
    for index, _, kernels in found:
        for kernel in kernels.rows:
            for where, us in (
                (_of(kernel.lines, root), kernel.lines_us),
                ("", kernel.total_us - kernel.lines_us),
            ):
                of_run = times.setdefault(where, {})
                of_run[index] = of_run.get(index, 0.0) + us / breakdown.steps_of(kernels)
    unknown = times.pop("", {})
    places = sorted(times, key=lambda where: -max(times[where].values()))
    shown = places[: limits.lines]
    rest = places[limits.lines :]
    rows = [(where, times[where]) for where in shown]
    if rest:
        summed = {
            index: sum(times[where].get(index, 0.0) for where in rest) for index, _, _ in found
        }
        rows.append((plural(len(rest), "more function", "more functions"), summed))
    rows.append(("(lines not known)", unknown))
    whole_us = {
        index: kernels.total_us / breakdown.steps_of(kernels) for index, _, kernels in found
    }
    cells = [
        row(
            where,
            *(
                number(us.get(index, 0.0), percent(us.get(index, 0.0) / whole_us[index]))
                for index, _, _ in found
            ),
        )
        for where, us in rows
        if found
    ]
    headings = ("function", *(run.key.slug for _, run, _ in found))
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
    return f"{files[0]} {functions.pop()}".rstrip() if files else ""


def buffer_blocks(runs: m.Runs, limits: Limits) -> Blocks:
    """What a call of each graph allocates; of a backward, what the forward keeps for it."""
    graphs = list(_graphs(runs))
    if not graphs:
        return ()
    training = any(graph.work.backward for _, graph in graphs)
    headings = ["graph", "allocated", "bytes", "reused", "bytes reused"]
    headings += (
        ["activations saved", "bytes saved", "inputs kept", "operators recomputed"]
        if training
        else []
    )
    rows = []
    for run, graph in graphs[: limits.lines]:
        plan = graph.work.buffers
        saved = graph.work.saved
        cells = [
            known(plan, lambda plan: whole(plan.allocated)),
            known(plan, lambda plan: _bytes(plan.allocated_bytes)),
            known(plan, lambda plan: whole(plan.reused)),
            known(plan, lambda plan: _bytes(plan.reused_bytes)),
        ]
        if training:
            cells += [
                known(saved, lambda saved: whole(saved.activations)),
                known(saved, lambda saved: _bytes(saved.activation_bytes)),
                known(saved, lambda saved: whole(saved.inputs)),
                known(
                    saved,
                    lambda saved: whole(saved.recomputed, f"of {saved.operators:,} in the forward"),
                ),
            ]
        rows.append(row(_head(run, graph.work), *cells))
    return (plain(BUFFERS, headings, rows),)


def tuning_blocks(runs: m.Runs, limits: Limits) -> Blocks:
    """A row for each choice that was timed, the longest search first, and one for each kernel's way
    through Triton."""
    compiled = [(run, run.compile) for run in runs if isinstance(run.compile, m.CompileSummary)]
    tuned = [
        (run, one)
        for run, found in compiled
        if isinstance(found.autotuned, tuple)
        for one in found.autotuned
    ]
    tuned.sort(key=lambda each: -each[1].seconds)
    blocks: list[Block] = []
    if tuned:
        headings = (
            "run",
            "kernel",
            "inputs",
            "chosen",
            "tried",
            "chosen, \N{MICRO SIGN}s",
            "next, \N{MICRO SIGN}s",
            "slowest, \N{MICRO SIGN}s",
            "search, s",
        )
        blocks.append(
            plain(AUTOTUNED, headings, (_tuned(*each) for each in tuned[: limits.lines]), words=4)
        )
        seconds = sum(one.seconds for _, one in tuned)
        more = (
            f", {len(tuned) - limits.lines:,} of them in report.json only"
            if len(tuned) > limits.lines
            else ""
        )
        blocks.append(f"{plural(len(tuned), 'search', 'searches')} in {figure(seconds)} s{more}.")
    staged = [
        (run, kernel, found.stages)
        for run, found in compiled
        if isinstance(found.stages, m.TritonStages)
        for kernel in found.stages.kernels
    ]
    if staged:
        names = distinct_names([kernel.kernel for _, kernel, _ in staged], _NAME, limits.name)
        stages = tuple(dict.fromkeys(stage for _, kernel, _ in staged for stage in kernel.seconds))
        rows = []
        for (run, kernel, _), name in zip(staged, names, strict=True):
            each = [figure(kernel.seconds.get(stage, 0.0)) for stage in stages]
            rows.append(row(run.key.slug, name, *each, number(sum(kernel.seconds.values()))))
        columns = ("run", "kernel", *(_STAGES.get(stage, stage) for stage in stages), "all")
        blocks.append(plain(STAGES, columns, rows[: limits.lines], words=2))
        left_out = sum({run.key: stages.left_out for run, _, stages in staged}.values()) + len(
            rows[limits.lines :]
        )
        lacking = f"; {plural(left_out, 'kernel')} left out" if left_out else ""
        blocks.append(
            "Each kernel was compiled again in the second process, bypassing Triton's "
            f"cache{lacking}."
        )
    return tuple(blocks)


def _tuned(run: m.RunReport, one: m.Autotuned) -> Row:
    first, *others = one.choices or (None,)
    what = "library or template" if one.template else "block sizes"
    return row(
        run.key.slug,
        Cell(middle_out(one.kernel, _NAME), details=(what,)),
        one.inputs or DASH,
        Cell(middle_out(first.name, 2 * _NAME), title=first.name)
        if first
        else missing("all failed"),
        whole(one.tried, *((f"{one.failed:,} failed",) if one.failed else ())),
        number(first.us) if first else missing("all failed"),
        number(others[0].us) if others else missing("no other choice ran"),
        number(one.slowest_us) if one.slowest_us is not None else missing("all failed"),
        number(one.seconds),
    )
