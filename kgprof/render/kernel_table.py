"""The tables of kernels and of host functions, one of each a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kgprof import model as m
from kgprof.render import breakdown, origin_table
from kgprof.render.chart import LETTERS, broken_down
from kgprof.render.escaping import one_line
from kgprof.render.limits import Limits, anchor
from kgprof.render.quantity import figure, milliseconds, percent, span
from kgprof.render.table import Block, Cell, Column, Fold, Row, Small, Table, columns, number, plain, row, share, whole
from kgprof.wording import KERNEL_NAME_LENGTH, middle_out, plural, short_name

_OPS = 8  # that a generated kernel shows at once; a large one fuses dozens
_WHOLE = 20_000  # characters: no compiler makes longer names


def kernel_folds(runs: Sequence[m.RunReport], root: str, limits: Limits) -> tuple[Fold, ...]:
    folds = []
    for index, run, kernels in broken_down(runs):
        unit, total = breakdown.unit(kernels), f"{milliseconds(kernels.total_us)} ms"
        blocks: list[Block] = [f"{origin_table.known(kernels)}.", *kernels.warnings[: limits.lines]]
        if limits.kernel_rows:
            blocks.append(kernel_table(run, kernels, root, limits))
        else:
            calls = sum(kernel.count for kernel in kernels.rows)
            blocks.append(f"Omitted to keep the page small; report.json has {calls:,} calls with {total}.")
        caption = (
            f"{plural(len(kernels.rows), 'name')}, {total} of {unit} in {plural(kernels.steps, 'step')}, "
            f"{kernels.measured_in.upper()} pass"
        )
        folds.append(Fold(run.key.slug, blocks=tuple(blocks), caption=caption, anchor=f"kernels-{anchor(index)}"))
    return tuple(folds)


def kernel_table(
    run: m.RunReport, kernels: m.KernelBreakdown, root: str, limits: Limits, *, length: int = KERNEL_NAME_LENGTH
) -> Table:
    """The largest kernels under names of ``length`` characters; below them what the others and all of them come to."""
    shown, rest = kernels.rows[: limits.kernel_rows], kernels.rows[limits.kernel_rows :]
    names = distinct_names([kernel.name for kernel in shown], length, limits.name)
    calls, totals = sum(kernel.count for kernel in kernels.rows), []
    if rest:
        ms, share = milliseconds(sum(kernel.total_us for kernel in rest)), percent(sum(kernel.share for kernel in rest))
        totals.append(row("", f"{len(rest):,} more", "", f"{sum(kernel.count for kernel in rest):,}", ms, share, ""))
    name, ms = f"all kernels, {breakdown.unit(kernels)}", milliseconds(kernels.total_us)
    totals.append(row("", name, "", f"{calls:,}", ms, "100.0 %", ""))
    return Table(
        label=f"Kernels of {run.key.slug}",
        columns=(
            Column("#", style="number rank"),
            Column("kernel", style="name"),
            Column("kind", style="kind"),
            *columns("count", "total ms", "share", "median \N{MICRO SIGN}s (min to max)", words=0),
        ),
        rows=tuple(
            _kernel_row(rank, kernel, name, root, limits)
            for rank, (kernel, name) in enumerate(zip(shown, names, strict=True), start=1)
        ),
        totals=tuple(totals),
        style="sortable filtered",
        named_by=1,
    )


def distinct_names(names: Sequence[str], length: int, longest: int) -> tuple[str, ...]:
    """Short names of which no two are alike unless the whole ones are: longer, up to ``longest``, then numbered."""
    shown = {name: short_name(one_line(name, _WHOLE), length) for name in names}
    while length < longest and (alike := _alike(shown)):
        length = min(2 * length, longest)
        shown.update({name: short_name(one_line(name, _WHOLE), length) for name in alike})
    numbers = {name: f" ({number})" for number, name in enumerate(_alike(shown), start=1)}
    return tuple(f"{shown[name]}{numbers.get(name, '')}" for name in names)


def _alike(shown: Mapping[str, str]) -> list[str]:
    times = Counter(shown.values())
    return [name for name, short in shown.items() if times[short] > 1]


def name_cell(whole_name: str, name: str, limits: Limits, *below: Small) -> Cell:
    """A short name, and the whole one for those who hover."""
    full = middle_out(one_line(whole_name, _WHOLE), limits.name)
    return Cell(name, title=full if full != name else "", below=below)


def _kernel_row(rank: int, kernel: m.KernelRow, name: str, root: str, limits: Limits) -> Row:
    ops, lines = kernel.ops[: limits.lines], origin_table.places(kernel.lines, root, limits)
    below = [Small(ops[:_OPS], "ops")] if ops else []
    if more := ops[_OPS:]:
        below.append(Small(more, "ops", fold=f"and {plural(len(more), 'more operation')}"))
    if lines:
        below.append(Small(lines[:1], "from"))
    if len(kernel.lines) > 1:
        below.append(Small(lines[1:], "from", fold=f"and {plural(len(kernel.lines) - 1, 'more line')}"))
    kind = Cell(
        name=kernel.kind.value,
        mark=LETTERS[kernel.kind],
        mark_style=f"swatch k-{kernel.kind.value}",
        below=(Small((kernel.generator,), "detail"),),
        title=kernel.rule,
    )
    median = number(kernel.median_us, span(figure(kernel.min_us), figure(kernel.max_us)))
    of_all = Cell(percent(kernel.share), value=kernel.share, bar=kernel.share, bar_style=f"k-{kernel.kind.value}")
    named = name_cell(kernel.name, name, limits, *below)
    return row(f"{rank:,}", named, kind, whole(kernel.count), number(kernel.total_us / 1000), of_all, median)


def host_folds(runs: Sequence[m.RunReport], limits: Limits) -> tuple[Fold, ...]:
    folds = []
    for index, run in enumerate(runs):
        host = run.host
        if isinstance(host, m.Skipped):
            continue
        shown, rows = host.rows[: limits.host_rows], []
        for function in shown:
            # cProfile files what is written in C under "~", without a line.
            line = f":{function.line}" if function.line else ""
            place = "built-in" if function.file in ("", "~") else f"{function.file}{line}"
            of_all = share(function.self_us / host.total_self_us if host.total_self_us else 0.0)
            own, with_callees = number(function.self_us / 1000), number(function.cumulative_us / 1000)
            name = Cell(function.function, below=(Small((place,), "place"),))
            rows.append((name, whole(function.calls), own, of_all, with_callees))
        headings = ("function", "calls", "self ms", "share", "with callees ms")
        blocks: list[Block] = []
        if rows:
            label = f"Host functions of {run.key.slug}"
            blocks.append(plain(label, headings, rows, style="sortable filtered", first="name"))
        if others := len(host.rows) - len(shown) + host.rows_left_out:
            remaining = max(0.0, host.total_self_us - sum(function.self_us for function in shown))
            blocks.append(f"{others:,} more functions: {milliseconds(remaining)} ms")
        caption = f"{milliseconds(host.total_self_us)} ms in {plural(host.steps, 'step')} under cProfile, HOST pass"
        folds.append(Fold(run.key.slug, blocks=tuple(blocks), caption=caption, anchor=f"host-{anchor(index)}"))
    return tuple(folds)
