"""Traces that others recorded: one row a file, the ranks beside each other, and what changed
between two traces; and HolisticTraceAnalysis' figures beside ours, one table a run, with how each
of its calls ended."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document import breakdown
from kgprof.document.kernel_table import distinct_names
from kgprof.document.limits import Limits, anchor
from kgprof.document.quantity import (
    DASH,
    count,
    figure,
    milliseconds,
    or_dash,
    percent,
    plain_number,
    ratio,
    share_of,
    sign,
    size,
)
from kgprof.document.run_parts import having
from kgprof.document.sheet import Section
from kgprof.document.table import (
    Block,
    Cell,
    Column,
    Fold,
    Table,
    plain,
    row,
    small,
)
from kgprof.wording import plural

CHANGES = 20  # rows of a table of kernels or spans, the largest differences first
_SHORT = 90  # characters of a kernel's name, more where two would look alike
_UNATTRIBUTED = "(unattributed)"  # the row that every table of spans has
IN_TEXT = Limits(log_chars=0, host_rows=0, kernel_rows=0, findings=0, runs=64, name=200, lines=64)
_FILE_HEADINGS = (
    "size",
    "rank",
    "steps",
    "ms/step",
    "busy",
    "idle",
    "kernels, \N{MICRO SIGN}s/step",
)
_RANK_HEADINGS = ("rank", "step", "busy", "compute", "communication", "of it exposed", "idle")
_RANKS_MEAN = (
    "Microseconds per step, under torch.profiler. Compute: time covered by any kernel, copy or CPU "
    "operator other than a collective; exposed: time covered by collectives only."
)
_MOST_RANKS = 200  # rows
_RANKS_WIDE = 8  # ranks with a column of their own
_COLLECTIVE_HEADINGS = ("collective", "place", "last to arrive", "in steps", "apart")
_COLLECTIVES_MEAN = (
    "Collectives of a step, medians in µs: time between the arrival of the first and the last "
    "rank, and how long each rank waits inside for the last one. Waits come from durations, not "
    "from the ranks' clocks."
)


# ---------------------------------------------------------------- files and ranks


def file_table(profile: m.Profile) -> Table:
    """In the order of the runs; none of a workload that kgprof ran itself."""
    index = {run.key: number for number, run in enumerate(profile.runs)}
    files = [file for file in profile.trace_files if file.key in index]
    rows = []
    notes = []
    for file in files:
        kernels = profile.runs[index[file.key]].kernels
        figures = (DASH,) * 5
        if isinstance(kernels, m.KernelBreakdown):
            steps, of = "not marked", " in all"
            if kernels.steps:
                steps, of = count(kernels.steps), ""
            figures = (
                steps,
                f"{milliseconds(breakdown.step_us(kernels))}{of}",
                percent(share_of(kernels.busy_us, kernels.window_us)),
                percent(share_of(kernels.idle_us, kernels.window_us)),
                f"{figure(kernels.total_us / breakdown.steps_of(kernels))}{of}",
            )
        rank = or_dash(file.rank, str)
        if file.rank is not None and file.world_size:
            rank += f" of {file.world_size}"
        cells = (file.key.strategy, file.file, size(file.size_bytes), rank, *figures)
        rows.append(row(*cells, anchor=anchor(index[file.key])))
        notes += [(file.key.strategy, note) for note in file.notes]
    headings = (Column("run", style="strategy"), Column("file", style="name"), *_FILE_HEADINGS)
    return replace(plain("Traces", headings, rows, style=""), notes=notes)


def rank_blocks(balance: m.RankBalance) -> Iterator[Block]:
    """One row a rank, then median, largest and their ratio; then the collectives."""
    if balance.ranks:
        yield _RANKS_MEAN
        yield _ranks(balance.ranks)
    if isinstance(balance.collectives, m.Skipped):
        if balance.ranks:
            yield f"Arrivals at the collectives are unknown: {balance.collectives.reason}."
    elif balance.collectives:
        calls = []
        for call in balance.collectives:
            times = (call.apart_us, *call.wait_us[:_RANKS_WIDE])
            shown = [or_dash(us, figure) for us in times]
            last = (f"rank {call.last_rank}", f"{call.last_in} of {call.steps}")
            calls.append((call.name, count(call.place), *last, *shown))
        waits = [f"rank {load.rank} waits" for load in balance.ranks[:_RANKS_WIDE]]
        headings = (*_COLLECTIVE_HEADINGS, *waits)
        yield _COLLECTIVES_MEAN
        yield plain("Collectives", headings, calls, style="", first="name")
    yield from (f"Not compared: {left_out}" for left_out in balance.left_out)


def _ranks(ranks: Sequence[m.RankLoad]) -> Table:
    parts = ("step_us", "busy_us", "compute_us", "communication_us", "exposed_us", "idle_us")
    values = [[float(getattr(load, part)) for load in ranks] for part in parts]
    rows = [
        (f"rank {load.rank}", *(figure(getattr(load, part)) for part in parts))
        for load in ranks[:_MOST_RANKS]
    ]
    over = [DASH] * len(parts)
    for at, column in enumerate(values):
        if middle := median(column):
            over[at] = ratio(max(column) / middle)
    rows += [
        ("median", *(figure(median(column)) for column in values)),
        ("largest", *(figure(max(column)) for column in values)),
        ("largest over median", *over),
    ]
    return plain("Ranks", _RANK_HEADINGS, rows, style="", first="name")


# ---------------------------------------------------------------- differences


def difference(
    found: m.TraceDifference,
    *,
    rows: int = CHANGES,
    name: int = _SHORT,
) -> Section:
    """The window, kinds, spans, regions and kernels, ``rows`` of each under names of ``name``
    characters; no table where nothing could be compared."""
    title = f"{found.run.strategy} against {found.against.strategy.removeprefix('against-')}"
    if found.missing or not found.total:
        return Section(title, (), f"not compared: {found.missing}")
    by_name = {
        "the window": found.window,
        "kind": found.kinds,
        "span": found.spans,
        "compiled region": found.regions,
        "kernel": found.kernels,
    }
    tables = [
        _changes(label, changes, found, rows, name)
        for label, changes in by_name.items()
        # Where nothing was launched in any span, their table is the total once more.
        if any(change.name != _UNATTRIBUTED for change in changes)
    ]
    # The whole, and how many kernels came and went.
    total = found.total
    statuses = Counter(row.status for row in found.kernels)
    steps = ""
    if found.per == "step":
        steps = f", {plural(found.after_steps, 'step')} against {count(found.before_steps)}"
    times = f"{figure(total.after_us)} µs per {found.per}, before {figure(total.before_us)}"
    text = (
        f"{breakdown.unit(found)}: {times} ({signed(total.delta_us)}){steps}; "
        f"{plural(statuses[m.Presence.NEW], 'new kernel')}, {count(statuses[m.Presence.GONE])} gone"
    )
    return Section(title, tables, text)


def _changes(
    label: str,
    changes: Sequence[m.Change],
    found: m.TraceDifference,
    rows: int,
    length: int,
) -> Table:
    shown = changes[:rows]
    rest = changes[rows:]
    names = distinct_names([change.name for change in shown], length)
    lines: list[tuple[str, Sequence[m.Change]]] = []
    for name, change in zip(names, shown, strict=True):
        if change.status is not m.Presence.BOTH:
            name += f" ({change.status})"
        lines.append((name, [change]))
    if rest:
        lines.append((f"{count(len(rest))} more", rest))
    if label != "the window" and found.total:
        lines.append(("all", [found.total]))
    cells = [
        (
            name,
            figure(sum(change.before_us for change in group)),
            figure(sum(change.after_us for change in group)),
            signed(sum(change.delta_us for change in group)),
            _counted(change.before_count for change in group),
            _counted(change.after_count for change in group),
        )
        for name, group in lines
    ]
    per = f"\N{MICRO SIGN}s/{found.per}"
    headings = (
        label,
        f"before, {per}",
        f"after, {per}",
        "difference",
        "calls before",
        "calls after",
    )
    title = f"{found.run.strategy} against {found.against.strategy}, by {label}"
    return plain(title, headings, cells, style="", first="name")


def _counted(counts: Iterable[float | None]) -> str:
    """Per step, so it need not be whole."""
    known = [one for one in counts if one is not None]
    if not known:
        return ""
    return plain_number(round(sum(known), 9))


def signed(more: float) -> str:
    """What is less than a thousandth of its unit, a nanosecond of microseconds, is none."""
    if abs(more) < 0.0005:
        return "0"
    return f"{sign(more)}{figure(abs(more))}"


_SAID = ("kernels, copies and fills", "GPU idle")  # in a sentence, beside what differs


def holistic_folds(runs: m.Runs, limits: Limits) -> list[Fold]:
    folds = []
    for index, run, check in having(runs, "holistic", m.HolisticCheck):
        blocks = [*_holistic(run.slug, check, limits)]
        folds.append(Fold(run.slug, blocks, hta_caption(check), run=anchor(index)))
    return folds


def _holistic(slug: str, check: m.HolisticCheck, limits: Limits) -> Iterator[Block]:
    """The figures, the kernels that differ, and how HTA's calls ended."""
    figures = check.figures[: limits.lines]
    kernels = check.differing[: limits.lines]
    yield figure_table(f"HTA's figures beside ours for {slug}", "figure", figures)
    if kernels:
        label = f"Kernels of {slug} whose time differs"
        yield figure_table(label, "kernels that differ", kernels)
    rest = (
        (len(check.figures) - len(figures), "figures"),
        (check.kernels_differing - len(kernels), "kernels that differ"),
    )
    if more := [f"{number:,} more {what}" for number, what in rest if number > 0]:
        yield f"{' and '.join(more)} in report.json."
    outcomes = []
    for call in check.calls:
        outcomes.append((Cell(call.name, below=small(call.reason)), call.outcome))
    calls = plain(f"Calls of HTA for {slug}", ("call", "outcome"), outcomes, style="")
    versions = ", ".join(f"{name} {version}" for name, version in check.versions.items())
    yield Fold("HTA calls", (calls, versions), call_outcomes(check))


def figure_table(label: str, heading: str, figures: Sequence[m.HolisticFigure]) -> Table:
    """Ours, HTA's, the difference; below the name why a side has none."""
    rows = []
    for found in figures:
        sides = (found.hta, found.ours, found.difference_percent)
        why = next((side.reason for side in sides if isinstance(side, m.Skipped)), "")
        rows.append(
            (
                Cell(found.name, below=small(found.note, why)),
                hta_quantity(found.ours, found.unit),
                hta_quantity(found.hta, found.unit),
                Cell(hta_difference(found), wrong=found.differs),
            )
        )
    return plain(label, (heading, "kgprof", "HTA", "difference"), rows, style="")


def hta_caption(found: m.HolisticCheck) -> str:
    """How much was compared, and whether it agrees."""
    both = [
        row for row in found.figures if row.differs or isinstance(row.difference_percent, float)
    ]
    far = sum(row.differs for row in both)
    tolerance = f"{found.tolerance_percent:g} %"
    if not both and not found.kernels:
        return "nothing could be compared"
    if not far and not found.kernels_differing:
        both_agree = f"{count(len(both))} figures and {count(found.kernels)} kernels agree"
        return f"{both_agree} within {tolerance}"
    return (
        f"{count(far)} of {count(len(both))} figures and {count(found.kernels_differing)} of "
        f"{count(found.kernels)} kernels differ by more than {tolerance}"
    )


def call_outcomes(found: m.HolisticCheck) -> str:
    """Of its calls: "4 ok, 1 empty"."""
    tally = Counter(call.outcome for call in found.calls)
    return ", ".join(f"{count(number)} {outcome}" for outcome, number in tally.items())


def hta_sentence(found: m.HolisticCheck) -> str:
    """The caption, kernel and idle time, and every figure or kernel that differs."""
    said = [
        f"{row.name} {hta_quantity(row.ours, row.unit)}, HTA {hta_quantity(row.hta, row.unit)} "
        f"({hta_difference(row)})"
        for row in (*found.figures, *found.differing)
        if row.name in _SAID or row.differs
    ]
    return "; ".join((hta_caption(found), *said))


@m.otherwise(DASH)
def hta_quantity(value: m.Figure, unit: str) -> str:
    """Times are in milliseconds of the whole traced window."""
    known = m.known(value)
    if unit == "us":
        return f"{milliseconds(known)} ms"
    if unit == "operations":
        return f"{known:,.0f}"  # the figure's name says of what
    return f"{figure(known)} {unit}"


@m.otherwise(DASH)
def hta_difference(row: m.HolisticFigure) -> str:
    """HTA's less ours, of ours; 0 only where they are equal to the last digit."""
    percent = m.known(row.difference_percent)
    if percent == 0:
        return "0 %"
    if abs(percent) < 0.005:
        return "< 0.01 %"
    return f"{percent:+.2f} %"
