"""The tables of kernels and of host functions, one of each a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from kgprof import model as m
from kgprof.render import breakdown, origin_table
from kgprof.render.chart import LETTERS, broken_down
from kgprof.render.escaping import one_line
from kgprof.render.limits import FIRST_RUNS, Limits, anchor
from kgprof.render.quantity import figure, milliseconds, percent, size, span
from kgprof.render.run_order import kept
from kgprof.render.table import (
    Block,
    Cell,
    Column,
    Fold,
    Row,
    Small,
    Table,
    columns,
    missing,
    number,
    plain,
    row,
    share,
    whole,
)
from kgprof.wording import KERNEL_NAME_LENGTH, middle_out, plural, short_name

_SHORT_NAME = 60  # of a kernel that has one line
_OPS = 8  # that a generated kernel shows at once; a large one fuses dozens
_WHOLE = 20_000  # characters: no compiler makes longer names


def kernel_folds(runs: Sequence[m.RunReport], root: str, limits: Limits) -> tuple[Fold, ...]:
    folds, first = [], kept(runs, FIRST_RUNS)
    for index, run, kernels in broken_down(runs):
        unit, total = breakdown.unit(kernels), f"{milliseconds(kernels.total_us)} ms"
        most = limits if index in first else replace(limits, kernel_rows=min(limits.kernel_rows, limits.other_rows))
        blocks: list[Block] = [*kernels.warnings[: limits.lines]]
        if most.kernel_rows:
            blocks.append(_against_the_card(kernels, kernel_table(run, kernels, root, most)))
            if rest := kernels.rows[most.kernel_rows :][: limits.more_kernels]:
                table = _more_kernels(run, rest, most.kernel_rows, limits)
                blocks.append(Fold(f"{len(rest):,} more kernels", blocks=(table,)))
        else:
            names = plural(len(kernels.rows), "kernel")
            blocks.append(f"Left out to keep the page under 1 MB: {names} with {total} (in report.json).")
        caption = (
            f"{plural(len(kernels.rows), 'name')}, {total} of {unit} in {plural(kernels.steps, 'step')}, "
            f"{kernels.measured_in.upper()} pass"
        )
        blocks.append(f"{origin_table.known(kernels)}.")
        place = anchor(index)
        folds.append(Fold(run.key.slug, blocks=tuple(blocks), caption=caption, anchor=f"kernels-{place}", run=place))
    return tuple(folds)


def _more_kernels(run: m.RunReport, rest: Sequence[m.KernelRow], after: int, limits: Limits) -> Table:
    """What the first table has no room for, in a line each, so that the filter finds every kernel."""
    names = distinct_names([kernel.name for kernel in rest], _SHORT_NAME, limits.name)
    rows = (
        (str(rank), name, breakdown.NAMES[kernel.kind], f"{kernel.count:,}", milliseconds(kernel.total_us))
        for rank, (kernel, name) in enumerate(zip(rest, names, strict=True), start=after + 1)
    )
    table = plain(f"More kernels of {run.key.slug}", ("#", "kernel", "kind", "count", "total ms"), rows, words=3)
    return replace(table, style="sortable filtered", named_by=1)


def _against_the_card(kernels: m.KernelBreakdown, table: Table) -> Table:
    """The table with each kernel's bound, how much of the measured peak it reaches, what it could save, and how it was
    launched; as it is where the card was not measured."""
    if not isinstance(kernels.roofline, m.Roofline):
        return table
    launches: dict[str, list[m.KernelLaunches]] = {}
    for each in kernels.roofline.rows:
        launches.setdefault(each.name, []).append(each)
    rows = []
    for kernel, row_of in zip(kernels.rows, table.rows, strict=False):
        alike = launches.get(kernel.name, [])
        name, *others = row_of.cells[1:]
        if alike:
            below = (*name.below, Small(tuple(map(launch_words, alike[:1])), "from"))
            if alike[1:]:
                more = plural(len(alike) - 1, "more launch shape")
                below = (*below, Small(tuple(map(launch_words, alike[1:9])), "from", fold=more))
            name = structs.replace(name, below=below)
        bound, saves = _bound_of(alike), _could_save(alike, breakdown.steps_of(kernels))
        rows.append(structs.replace(row_of, cells=(row_of.cells[0], name, *others, bound, saves)))
    totals = tuple(structs.replace(total, cells=(*total.cells, Cell(), Cell())) for total in table.totals)
    columns_ = (
        *table.columns,
        Column(
            "bound by", style="", title="of the launches with the most time; share of the peak measured on this card"
        ),
        Column("could save, \N{MICRO SIGN}s/step", title="at most: if it ran at the peak that its bound allows"),
    )
    return replace(table, rows=tuple(rows), totals=totals, columns=columns_)


def launch_words(one: m.KernelLaunches) -> str:
    """ "132x256 threads, 32 registers, 4.0 KiB shared, 50 % occupancy, 1,020 GB/s"."""
    parts = (
        "" if isinstance(one.grid, m.Skipped) else f"grid {extent(one.grid)}",
        "" if isinstance(one.block, m.Skipped) else f"block {extent(one.block)}",
        "" if isinstance(one.registers, m.Skipped) else f"{one.registers} registers",
        "" if isinstance(one.spills, m.Skipped) or not one.spills else f"{one.spills} spilled",
        "" if isinstance(one.shared_bytes, m.Skipped) or not one.shared_bytes else f"{size(one.shared_bytes)} shared",
        "" if isinstance(one.warps, m.Skipped) else plural(one.warps, "warp"),
        "" if isinstance(one.stages, m.Skipped) else plural(one.stages, "stage"),
        "" if isinstance(one.occupancy_percent, m.Skipped) else f"occupancy {occupancy(one.occupancy_percent)}",
        "" if isinstance(one.bytes_per_s, m.Skipped) else f"{figure(one.bytes_per_s / 1e9)} GB/s",
        "" if isinstance(one.flops_per_s, m.Skipped) else f"{figure(one.flops_per_s / 1e12)} TFLOP/s",
    )
    times = f"{one.count:,} \N{MULTIPLICATION SIGN} {figure(one.median_us)} \N{MICRO SIGN}s"
    return f"{times}: {', '.join(filter(None, parts))}"


def occupancy(percent: float) -> str:
    """CUPTI gives whole per cent, so its 0 is less than one."""
    return f"{percent:.0f} %" if percent else "< 1 %"


def extent(sizes: Sequence[int]) -> str:
    """Without the trailing ones."""
    last = max((index for index, number in enumerate(sizes) if number != 1), default=0)
    return "\N{MULTIPLICATION SIGN}".join(f"{number:,}" for number in sizes[: last + 1])


def _bound_of(alike: Sequence[m.KernelLaunches]) -> Cell:
    if not alike:
        return missing("this kernel is not among the largest, which report.json holds")
    first = max(alike, key=lambda each: each.total_us)
    if isinstance(first.bound, m.Skipped):
        return missing(first.bound)
    if isinstance(first.of_ceiling, m.Skipped):
        return Cell(first.bound)
    share = first.of_ceiling
    return Cell(first.bound, value=share, bar=min(share, 1.0), details=(f"{percent(share)} of peak",))


def _could_save(alike: Sequence[m.KernelLaunches], steps: int) -> Cell:
    known = [(each.total_us, each.of_ceiling) for each in alike if isinstance(each.of_ceiling, float)]
    if not known:
        return missing("its bytes and operations are not known")
    us = sum(total * max(0.0, 1 - share) for total, share in known) / steps
    return Cell(figure(us), value=us)


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
            lead = f"{others:,} more" if shown else f"Left out to keep the page under 1 MB: {others:,}"
            blocks.append(f"{lead} functions, {milliseconds(remaining)} ms of self time.")
        caption = f"{milliseconds(host.total_self_us)} ms in {plural(host.steps, 'step')} under cProfile, HOST pass"
        folds.append(
            Fold(run.key.slug, blocks=tuple(blocks), caption=caption, anchor=f"host-{anchor(index)}", run=anchor(index))
        )
    return tuple(folds)
