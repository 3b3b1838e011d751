"""The tables of kernels and of host functions, one of each a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render import breakdown, origin_table
from kgprof.render.chart import LETTERS, broken_down, of_width
from kgprof.render.limits import Limits, anchor, run_name
from kgprof.render.quantity import count, figure, milliseconds, percent, span
from kgprof.render.visible import one_line
from kgprof.wording import KERNEL_NAME_LENGTH, middle_out, plural, short_name

_OPS = 8  # that a generated kernel shows at once; a large one fuses dozens
_WHOLE = 20_000  # characters: no compiler makes longer names


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    rank: str
    name: str
    full_name: str  # empty where ``name`` already is the whole
    kind: str
    letter: str
    generator: str
    rule: str  # by which it is of its kind
    ops: tuple[str, ...]
    more_ops: tuple[str, ...]  # those that a reader sees on demand
    lines: tuple[str, ...]  # "file:line in function"
    more_lines: str  # "3 more" than the first
    count: str
    total_ms: str
    share: str
    share_width: str
    median_us: str
    extremes_us: str
    sort: tuple[str, str, str, str]  # count, total, share, median


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    anchor: str
    run: str
    caption: str
    unit: str
    known_lines: str
    lines: tuple[KernelLine, ...]
    rest: tuple[str, str, str, str]  # how many, count, total, share; empty strings when there is no rest
    total: tuple[str, str]  # count, total
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLine:
    function: str
    place: str
    calls: str
    self_ms: str
    share: str
    cumulative_ms: str
    sort: tuple[str, str, str, str]  # calls, self, share, cumulative


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTable:
    anchor: str
    run: str
    caption: str
    lines: tuple[HostLine, ...]
    rest: str


def kernel_tables(runs: Sequence[m.RunReport], root: str, limits: Limits) -> tuple[KernelTable, ...]:
    return tuple(
        KernelTable(
            anchor=anchor(index),
            run=run_name(run, limits),
            caption=_kernel_caption(kernels),
            unit=breakdown.unit(kernels),
            known_lines=one_line(origin_table.known(kernels), 2 * limits.name),
            lines=_kernel_lines(kernels.rows[: limits.kernel_rows], root, limits),
            rest=_kernel_rest(kernels.rows[limits.kernel_rows :]),
            total=(count(sum(row.count for row in kernels.rows)), milliseconds(kernels.total_us)),
            warnings=tuple(one_line(warning, 2 * limits.name) for warning in kernels.warnings[: limits.lines]),
        )
        for index, run, kernels in broken_down(runs)
    )


def _kernel_caption(kernels: m.KernelBreakdown) -> str:
    names, steps = plural(len(kernels.rows), "name"), plural(kernels.steps, "step")
    return (
        f"{names}, {milliseconds(kernels.total_us)} ms of {breakdown.unit(kernels)} in {steps}, "
        f"{kernels.measured_in.upper()} pass"
    )


def _kernel_lines(rows: Sequence[m.KernelRow], root: str, limits: Limits) -> tuple[KernelLine, ...]:
    names = distinct_names([row.name for row in rows], KERNEL_NAME_LENGTH, limits.name)
    return tuple(_kernel_line(rank, row, names[rank - 1], root, limits) for rank, row in enumerate(rows, start=1))


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


def _kernel_line(rank: int, row: m.KernelRow, name: str, root: str, limits: Limits) -> KernelLine:
    lines, more_lines = origin_table.places(row.lines, root, limits)
    ops = tuple(one_line(op, limits.name) for op in row.ops[: limits.lines])
    whole = middle_out(one_line(row.name, _WHOLE), limits.name)
    return KernelLine(
        rank=count(rank),
        name=name,
        full_name=whole if whole != name else "",
        kind=row.kind.value,
        letter=LETTERS[row.kind],
        generator=one_line(row.generator, limits.name),
        rule=one_line(row.rule, limits.name),
        ops=ops[:_OPS],
        more_ops=ops[_OPS:],
        lines=lines,
        more_lines=more_lines,
        count=count(row.count),
        total_ms=milliseconds(row.total_us),
        share=percent(row.share),
        share_width=of_width(row.share),
        median_us=figure(row.median_us),
        extremes_us=span(figure(row.min_us), figure(row.max_us)),
        sort=(repr(row.count), repr(row.total_us), repr(row.share), repr(row.median_us)),
    )


def _kernel_rest(rest: Sequence[m.KernelRow]) -> tuple[str, str, str, str]:
    if not rest:
        return ("", "", "", "")
    return (
        count(len(rest)),
        count(sum(row.count for row in rest)),
        milliseconds(sum(row.total_us for row in rest)),
        percent(sum(row.share for row in rest)),
    )


# ---------------------------------------------------------------- host


def host_tables(runs: Sequence[m.RunReport], limits: Limits) -> tuple[HostTable, ...]:
    return tuple(
        HostTable(
            anchor=anchor(index),
            run=run_name(run, limits),
            caption=f"{milliseconds(host.total_self_us)} ms in {plural(host.steps, 'step')} under cProfile, HOST pass",
            lines=tuple(_host_line(row, host, limits) for row in host.rows[: limits.host_rows]),
            rest=_host_rest(host, limits),
        )
        for index, run in enumerate(runs)
        if isinstance(host := run.host, m.HostBreakdown)
    )


def _host_line(row: m.HostRow, host: m.HostBreakdown, limits: Limits) -> HostLine:
    share = row.self_us / host.total_self_us if host.total_self_us else 0.0
    # cProfile files what is written in C under "~", without a line.
    place = "built-in" if row.file in ("", "~") else f"{row.file}:{row.line}" if row.line else row.file
    return HostLine(
        function=one_line(row.function, limits.name),
        place=one_line(place, limits.name),
        calls=count(row.calls),
        self_ms=milliseconds(row.self_us),
        share=percent(share),
        cumulative_ms=milliseconds(row.cumulative_us),
        sort=(repr(row.calls), repr(row.self_us), repr(share), repr(row.cumulative_us)),
    )


def _host_rest(host: m.HostBreakdown, limits: Limits) -> str:
    shown = host.rows[: limits.host_rows]
    others = len(host.rows) - len(shown) + host.rows_left_out
    if not others:
        return ""
    remaining = max(0.0, host.total_self_us - sum(row.self_us for row in shown))
    return f"{count(others)} more functions: {milliseconds(remaining)} ms"
