"""The tables of kernels and of host functions, one of each a run; whose lines the kernels compute,
what the device waited for, and in which region or span its work began."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.breakdown import LETTERS, NAMES, broken_down, per, steps_of, unit
from kgprof.document.escaping import one_line
from kgprof.document.finding_list import line_of
from kgprof.document.limits import FIRST_RUNS, Limits, kept
from kgprof.document.quantity import (
    DASH,
    count,
    figure,
    if_known,
    milliseconds,
    percent,
    share_of,
    size,
    span,
)
from kgprof.document.run_parts import collected, having, run_part
from kgprof.document.table import (
    Block,
    Blocks,
    Cell,
    Cells,
    Column,
    Fold,
    Small,
    Table,
    Texts,
    dashed,
    missing,
    number,
    plain,
    row,
    share,
    whole,
)
from kgprof.wording import KERNEL_NAME_LENGTH, clause, middle_out, plural, short_name

_LINES = 9  # of one kernel; a fused one may hold hundreds
_HOST_PARTS = 4  # of the host's step, in a sentence
_SPANS = 12  # rows of a table of spans, and of what the device waited for
# Why a device was idle: its field of DeviceIdle, its name, what it means, its colour. They add up
# to its ``total_us``.
_CAUSES = (
    ("host_us", "waiting for the CPU", "the next launch had not been issued", "t-idle-host"),
    ("launch_us", "launch latency", "issued, not yet started", "t-idle-launch"),
    ("unknown_us", "unknown", "the trace has no launch call for the next work", "t-idle-other"),
    (
        "edges_us",
        "before the first / after the last",
        "GPU work of the traced window",
        "t-idle-other",
    ),
)
_UNATTRIBUTED = "(unattributed)"  # the row that every table of spans has, last


def place(location: m.Location, root: str) -> str:
    inside = clause(" in ", location.function)
    return f"{line_of(location, root)}{inside}"


def first_line(kernel: m.KernelRow, root: str) -> str:
    first, *others = kernel.lines
    more = clause(", and ", len(others), " more")
    return f"{place(first, root)}{more}"


def places(lines: Sequence[m.Location], root: str) -> Texts:
    return [place(line, root) for line in lines[:_LINES]]


def known_lines(kernels: m.KernelBreakdown) -> str:
    """How much of the time has source lines, or why none has."""
    if isinstance(kernels.lines_us, m.Skipped):
        return f"No source lines: {kernels.lines_us.reason}"
    share = percent(share_of(kernels.lines_us, kernels.total_us))
    return f"{share} of the {unit(kernels)} comes from known source lines"


def idle_sentence(kernels: m.KernelBreakdown) -> str:
    if isinstance(kernels.idle, m.Skipped):
        return f"reasons for GPU idle time unknown: {kernels.idle.reason}"
    causes = []
    for field, cause, *_ in _CAUSES:
        per_step, of_window = _idle(getattr(kernels.idle, field), kernels)
        causes.append(f"{cause} {per_step} ({of_window})")
    return f"GPU idle, µs per traced {per(kernels)} (share of the window): {', '.join(causes)}"


def _idle(us: float, kernels: m.KernelBreakdown) -> tuple[str, str]:
    """Microseconds of a step, and the share of the window."""
    return figure(us / steps_of(kernels)), percent(share_of(us, kernels.window_us))


def device_folds(runs: m.Runs, limits: Limits) -> Iterator[Fold]:
    """Of each CUDA run where its device's time went, and what its idle time waited for."""
    for index, run, kernels in broken_down(runs):
        if kernels.device != "cuda":
            continue
        name = run.slug
        blocks: list[Block] = [*_idle_tables(name, kernels, limits)]
        blocks += [
            f"{said}." for said in (*steps_sentence(kernels), *input_copies_sentence(kernels))
        ]
        for title, spans in (
            ("compiled region", kernels.by_region),
            ("user span", kernels.by_span),
        ):
            if any(span.span != _UNATTRIBUTED for span in spans):
                label = f"GPU time of {name} by {title}"
                blocks.append(_span_table(label, title, spans, kernels))
        yield run_part(index, run, blocks, "Why the GPU was idle")


def _idle_tables(name: str, kernels: m.KernelBreakdown, limits: Limits) -> Blocks:
    """Idle time by cause, and by what the CPU did if it had not launched yet; or why that is not
    known."""
    idle = kernels.idle
    if isinstance(idle, m.Skipped):
        return (f"Reasons for GPU idle time unknown: {idle.reason}",)
    scale_us = max(getattr(idle, field) for field, *_ in _CAUSES) or 1.0
    unit = f"\N{MICRO SIGN}s per {per(kernels)}"
    units = (unit, "of the window")
    drawing = Column(f"0{DASH}{figure(scale_us / steps_of(kernels))} {unit}", style="drawn")

    def drawn(cause: str, us: float, style: str) -> tuple[str, str, Cell]:
        per_step, of_window = _idle(us, kernels)
        title = f"{cause}: {per_step} {unit}, {of_window} of the window"
        return per_step, of_window, Cell(bar=us / scale_us, title=title, bar_style=style)

    rows: list[Cells] = []
    for field, cause, meaning, style in _CAUSES:
        named = Cell(cause, below=(Small((meaning,), "detail"),))
        rows.append((named, *drawn(cause, getattr(idle, field), style)))
    rows.append(("all idle time", *_idle(idle.total_us, kernels), ""))
    tables = [plain(f"Idle time of {name}", ("GPU idle time", *units, drawing), rows, style="")]
    spans = [
        m.SpanTotal(span=each.words, count=0, total_us=each.total_us) for each in idle.host_spans
    ]
    if shown := _largest(spans):
        host = ((each.span, *drawn(each.span, each.total_us, _CAUSES[0][3])) for each in shown)
        label = f"CPU activity while the GPU of {name} was idle"
        headings = ("CPU meanwhile", *units, drawing)
        tables.append(plain(label, headings, host, style="", first="name"))
    if not limits.timelines:  # no room for pictures
        tables = [table.only(table.columns[0].name, *units) for table in tables]
    return tables


def _largest(spans: Sequence[m.SpanTotal]) -> list[m.SpanTotal]:
    """The largest first; below them the sum of those that the page has no room for."""
    ordered = sorted(spans, key=lambda span: -span.total_us)
    if rest := ordered[_SPANS:]:
        calls = sum(span.count for span in rest)
        total_us = sum(span.total_us for span in rest)
        others = m.SpanTotal(span=f"{len(rest):,} more", count=calls, total_us=total_us)
        return [*ordered[:_SPANS], others]
    return ordered


def input_copies_sentence(kernels: m.KernelBreakdown) -> Iterator[str]:
    """Nothing where no CUDA graph was launched."""
    copies = kernels.input_copies
    if not isinstance(copies, m.InputCopies):
        return
    if not copies.count:
        launches = plural(copies.replays, "CUDA-graph launch", "CUDA-graph launches")
        yield f"No input was copied before {launches}"
        return
    each = figure(copies.total_us / copies.count)
    in_all = "in all"
    if kernels.steps:
        in_all = "per step"
    yield (
        "Inputs copied because their address changes between CUDA-graph replays: "
        f"{plural(copies.count, 'copy', 'copies')} of {each} µs each on average before "
        f"{plural(copies.replays, 'launch', 'launches')}, "
        f"{figure(copies.total_us / steps_of(kernels))} µs {in_all}, "
        f"{percent(copies.share)} of the GPU time"
    )


def host_sentence(host: m.HostTime) -> str:
    """The largest parts of it."""
    parts = sorted((part for part in host.parts if part.mean_us), key=lambda part: -part.mean_us)
    named = [
        f"{part.name} {figure(part.mean_us)} ({percent(share_of(part.mean_us, host.mean_us))})"
        for part in parts[:_HOST_PARTS]
    ]
    if rest := parts[_HOST_PARTS:]:
        named.append(f"{len(rest)} more {figure(sum(part.mean_us for part in rest))}")
    step = f"CPU time of a {figure(host.mean_us)} µs step, µs, mean of {host.steps}"
    return f"{step}: {', '.join(named)}"


def queue_sentence(queue: m.LaunchQueue) -> str:
    spread = span(figure(queue.p10_us), figure(queue.p90_us))
    return (
        f"launch delay median {figure(queue.median_us)} µs (p10 to p90 {spread}), queue depth mean "
        f"{figure(queue.mean_depth)}, at most {count(queue.maximum_depth)}, empty "
        f"{percent(queue.empty_share)} of the time"
    )


def sentences(kernels: m.KernelBreakdown) -> Iterator[str]:
    """Why the device was idle, what was copied, and the host's step, as far as they are known."""
    if kernels.device == "cuda":
        yield idle_sentence(kernels)
    yield from input_copies_sentence(kernels)
    if isinstance(kernels.host_time, m.HostTime):
        yield host_sentence(kernels.host_time)
    if isinstance(kernels.queue, m.LaunchQueue):
        yield queue_sentence(kernels.queue)


def steps_sentence(kernels: m.KernelBreakdown) -> Iterator[str]:
    """Nothing where no marked step launched anything. Of an even number of steps the lower
    median."""
    marked = (step for step in kernels.by_step if step.span != _UNATTRIBUTED)
    steps = sorted(marked, key=lambda step: step.total_us)
    if steps:
        named = {"least": steps[0], "median": steps[(len(steps) - 1) // 2], "most": steps[-1]}
        each = [f"{word} {figure(step.total_us)} µs ({step.span})" for word, step in named.items()]
        launched = f"the step that launched it, {plural(len(steps), 'step')}"
        yield f"GPU time by {launched}: {', '.join(each)}"


def _span_table(
    label: str, title: str, spans: Sequence[m.SpanTotal], kernels: m.KernelBreakdown
) -> Table:
    """What is in no span stays last."""
    *named, unattributed = spans
    steps = steps_of(kernels)
    rows = [
        (
            span.span,
            figure(span.count / steps),
            figure(span.total_us / steps),
            percent(share_of(span.total_us, kernels.total_us)),
        )
        for span in (*_largest(named), replace(unattributed, span=f"(in no {title})"))
    ]
    of = per(kernels)
    headings = (title, f"kernels and copies per {of}", f"\N{MICRO SIGN}s per {of}", "of GPU time")
    return plain(label, headings, rows, style="", first="name")


_SHORT_NAME = 60  # of a kernel that has one line
_OPS = 8  # that a generated kernel shows at once; a large one fuses dozens
_WHOLE = 20_000  # characters: no compiler makes longer names
_LONGEST = 400  # of a name that is told apart from others


def kernel_folds(runs: m.Runs, root: str, limits: Limits) -> Iterator[Fold]:
    first = kept(runs, FIRST_RUNS)
    for index, run, kernels in broken_down(runs):
        total = f"{milliseconds(kernels.total_us)} ms"
        most = limits.kernels_of(index, first)
        blocks: list[Block] = [*kernels.warnings]
        if most:
            blocks.append(kernel_table(run, kernels, root, most, longest=limits.name))
            if rest := kernels.rows[most:][: limits.more_kernels]:
                table = _more_kernels(run, rest, most)
                blocks.append(Fold(f"{len(rest):,} more kernels", (table,)))
        else:
            names = plural(len(kernels.rows), "kernel")
            blocks.append(
                f"Left out to keep the page under 1 MB: {names} with {total} (in report.json)."
            )
        caption = (
            f"{plural(len(kernels.rows), 'name')}, {total} of {unit(kernels)} in "
            f"{plural(kernels.steps, 'step')}, {kernels.measured_in.upper()} pass"
        )
        blocks.append(f"{known_lines(kernels)}.")
        yield run_part(index, run, blocks, caption, "kernels")


def _more_kernels(run: m.RunReport, rest: Sequence[m.KernelRow], after: int) -> Table:
    """What the first table has no room for, in a line each, so that the filter finds every
    kernel."""
    names = distinct_names([kernel.name for kernel in rest], _SHORT_NAME)
    rows = [
        (
            str(rank),
            name,
            NAMES[kernel.kind],
            count(kernel.count),
            milliseconds(kernel.total_us),
        )
        for rank, (kernel, name) in enumerate(zip(rest, names, strict=True), start=after + 1)
    ]
    return plain(
        f"More kernels of {run.slug}",
        ("#", "kernel", "kind", "count", "total ms"),
        rows,
        words=3,
        style="sortable filtered",
        named_by=1,
    )


def _first_open(texts: Texts, most: int, style: str, more: str) -> Sequence[Small]:
    """The first ``most`` in sight, the others behind the words ``more``."""
    parts = (Small(texts[:most], style), Small(texts[most:], style, more))
    return [part for part in parts if part.texts]


# What is said of a launch, by the field that holds it.
_OF_A_LAUNCH: Mapping[str, Callable[[Any], str]] = {
    "grid": lambda sizes: f"grid {extent(sizes)}",
    "block": lambda sizes: f"block {extent(sizes)}",
    "registers": "{} registers".format,
    "spills": lambda number: clause("", number, " spilled"),
    "shared_bytes": lambda number: clause("", number and size(number), " shared"),
    "warps": lambda number: plural(number, "warp"),
    "stages": lambda number: plural(number, "stage"),
    "occupancy_percent": lambda percent: f"occupancy {occupancy(percent)}",
    "bytes_per_s": lambda rate: f"{figure(rate / 1e9)} GB/s",
    "flops_per_s": lambda rate: f"{figure(rate / 1e12)} TFLOP/s",
}


def _launch_words(one: m.KernelLaunches) -> str:
    """ "132x256 threads, 32 registers, 4.0 KiB shared, 50 % occupancy, 1,020 GB/s"."""
    values = ((getattr(one, field), words) for field, words in _OF_A_LAUNCH.items())
    parts = [text for value, words in values for text in if_known(value, words)]
    times = f"{one.count:,} \N{MULTIPLICATION SIGN} {figure(one.median_us)} \N{MICRO SIGN}s"
    return f"{times}: {', '.join(filter(None, parts))}"


def occupancy(percent: float) -> str:
    """CUPTI gives whole per cent, so its 0 is less than one."""
    if not percent:
        return "< 1 %"
    return f"{percent:.0f} %"


def extent(sizes: Sequence[int]) -> str:
    """Without the trailing ones."""
    last = max((index for index, number in enumerate(sizes) if number != 1), default=0)
    return "\N{MULTIPLICATION SIGN}".join(f"{number:,}" for number in sizes[: last + 1])


@dashed
def _bound_of(alike: Sequence[m.KernelLaunches]) -> Cell:
    if not alike:
        return missing("this kernel is not among the largest, which report.json holds")
    first = max(alike, key=lambda each: each.total_us)
    bound = Cell(m.known(first.bound))
    if isinstance(first.of_ceiling, m.Skipped):
        return bound
    share = first.of_ceiling
    return replace(bound, details=(f"{percent(share)} of peak",), value=share, bar=share)


def _could_save(alike: Sequence[m.KernelLaunches], steps: int) -> Cell:
    known = [
        (each.total_us, each.of_ceiling) for each in alike if isinstance(each.of_ceiling, float)
    ]
    if not known:
        return missing("its bytes and operations are not known")
    us = sum(total * max(0.0, 1 - share) for total, share in known) / steps
    return Cell(figure(us), value=us)


def kernel_table(
    run: m.RunReport,
    kernels: m.KernelBreakdown,
    root: str,
    most: int,
    *,
    length: int = KERNEL_NAME_LENGTH,
    longest: int = _LONGEST,
) -> Table:
    """The ``most`` largest kernels under names of ``length`` characters, which those who hover see
    up to ``longest``; below them what the others and all of them come to. Where the card was
    measured, each with its bound, how much of the measured peak it reaches, what it could save, and
    how it was launched."""
    headings: list[str | Column] = [
        Column("#", style="number rank"),
        Column("kernel", style="name"),
        Column("kind", style="kind"),
        "count",
        "total ms",
        "share",
        "median \N{MICRO SIGN}s (min to max)",
    ]
    measured = False
    launches: dict[str, list[m.KernelLaunches]] = {}
    if isinstance(kernels.roofline, m.Roofline):
        measured = True
        launches = collected((each.name, each) for each in kernels.roofline.rows)
        headings += _OF_THE_CARD
    shown = kernels.rows[:most]
    names = distinct_names([kernel.name for kernel in shown], length, longest)
    rows: list[Cells] = []
    for rank, (kernel, name) in enumerate(zip(shown, names, strict=True), start=1):
        alike = launches.get(kernel.name, [])
        cells = _kernel_cells(rank, kernel, name, alike, root, longest)
        if measured:
            cells = (*cells, _bound_of(alike), _could_save(alike, steps_of(kernels)))
        rows.append(cells)
    calls = count(sum(kernel.count for kernel in kernels.rows))
    name = f"all kernels, {unit(kernels)}"
    empty = [""] * (len(headings) - 6)
    totals = [row("", name, "", calls, milliseconds(kernels.total_us), "100.0 %", *empty)]
    if rest := kernels.rows[most:]:
        calls = count(sum(kernel.count for kernel in rest))
        ms = milliseconds(sum(kernel.total_us for kernel in rest))
        share = percent(sum(kernel.share for kernel in rest))
        totals.insert(0, row("", f"{len(rest):,} more", "", calls, ms, share, *empty))
    label = f"Kernels of {run.slug}"
    table = plain(label, headings, rows, style="sortable filtered", named_by=1)
    return replace(table, totals=totals)


_OF_THE_CARD = (
    Column(
        "bound by",
        style="",
        title="of the launches with the most time; share of the peak measured on this card",
    ),
    Column(
        "could save, \N{MICRO SIGN}s/step",
        title="at most: if it ran at the peak that its bound allows",
    ),
)


def distinct_names(names: Texts, length: int, longest: int = _LONGEST) -> Texts:
    """Short names of which no two are alike unless the whole ones are: longer, up to ``longest``,
    then numbered."""
    shown = {name: short_name(one_line(name, _WHOLE), length) for name in names}
    while length < longest and (alike := _alike(shown)):
        length = min(2 * length, longest)
        shown.update({name: short_name(one_line(name, _WHOLE), length) for name in alike})
    numbers = {name: f" ({number})" for number, name in enumerate(_alike(shown), start=1)}
    return [f"{shown[name]}{numbers.get(name, '')}" for name in names]


def _alike(shown: Mapping[str, str]) -> list[str]:
    times = Counter(shown.values())
    return [name for name, short in shown.items() if times[short] > 1]


def _kernel_cells(
    rank: int,
    kernel: m.KernelRow,
    name: str,
    alike: Sequence[m.KernelLaunches],
    root: str,
    longest: int,
) -> Cells:
    """``name``: a short one; those who hover see the whole. ``alike``: the launches that the card
    was measured for."""
    title = middle_out(one_line(kernel.name, _WHOLE), longest)
    if title == name:
        title = ""
    ops = kernel.ops
    more_ops = f"and {plural(len(ops) - _OPS, 'more operation')}"
    lines = places(kernel.lines, root)
    more_lines = f"and {plural(len(kernel.lines) - 1, 'more line')}"
    launches = tuple(map(_launch_words, alike[:9]))
    more_launches = plural(len(alike) - 1, "more launch shape")
    below = (
        *_first_open(ops, _OPS, "ops", more_ops),
        *_first_open(lines, 1, "from", more_lines),
        *_first_open(launches, 1, "from", more_launches),
    )
    colour = f"k-{kernel.kind.value}"
    kind = Cell(
        name=kernel.kind.value,
        mark=LETTERS[kernel.kind],
        mark_style=f"swatch {colour}",
        below=(Small((kernel.generator,), "detail"),),
        title=kernel.rule,
    )
    return (
        count(rank),
        Cell(name, title=title, below=below),
        kind,
        whole(kernel.count),
        number(kernel.total_us / 1000),
        replace(share(kernel.share), bar=kernel.share, bar_style=colour),
        number(kernel.median_us, span(figure(kernel.min_us), figure(kernel.max_us))),
    )


def host_folds(runs: m.Runs, limits: Limits) -> Iterator[Fold]:
    headings = ("function", "calls", "self ms", "share", "with callees ms")
    for index, run, host in having(runs, "host", m.HostBreakdown):
        shown = host.rows[: limits.host_rows]
        rows = []
        for function in shown:
            place = f"{function.file}{clause(':', function.line)}"
            # cProfile files what is written in C under "~", without a line.
            if function.file in ("", "~"):
                place = "built-in"
            rows.append(
                (
                    Cell(function.function, below=(Small((place,), "place"),)),
                    whole(function.calls),
                    number(function.self_us / 1000),
                    share(share_of(function.self_us, host.total_self_us)),
                    number(function.cumulative_us / 1000),
                )
            )
        blocks: list[Block] = []
        if rows:
            label = f"Host functions of {run.slug}"
            blocks.append(plain(label, headings, rows, style="sortable filtered", first="name"))
        if others := len(host.rows) - len(shown) + host.rows_left_out:
            remaining = max(0.0, host.total_self_us - sum(function.self_us for function in shown))
            left_out = f"Left out to keep the page under 1 MB: {others:,}"
            if shown:
                left_out = f"{others:,} more"
            blocks.append(f"{left_out} functions, {milliseconds(remaining)} ms of self time.")
        caption = (
            f"{milliseconds(host.total_self_us)} ms in {plural(host.steps, 'step')} under "
            "cProfile, HOST pass"
        )
        yield run_part(index, run, blocks, caption, "host")
