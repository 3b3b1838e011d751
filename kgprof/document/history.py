"""The sheet of a history: for each metric that changed a line over the recordings, and a row for
each of them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.compare_words import SYMBOLS, change, signed_percent, value
from kgprof.document.escaping import one_line
from kgprof.document.quantity import of_width
from kgprof.document.sheet import Section, Sheet
from kgprof.document.table import Block, Cell, Drawing, Table, View, missing, plain
from kgprof.wording import plural

_HIGH, _TOP, _LEFT = 120, 20, 0.04  # pixels; pixels; of the width
_LABELS = 10  # of recordings, below the line
_ALWAYS = (m.COLD_FIRST_CALL, m.KERNELS_PER_STEP)  # beside times, whether they changed or not


class Mark(View):
    x: str
    y: float
    title: str
    label: str
    worse: bool


class Line(Drawing):
    kind: ClassVar[str] = "line"
    description: str
    height: int
    bottom: int
    marks: Sequence[Mark]
    lines: Sequence[tuple[str, float, str, float]]  # between neighbours that were both measured
    up: Sequence[tuple[float, str]]


def sheet(found: m.History) -> Sheet:
    runs = dict.fromkeys(metric.run for metric in found.metrics)
    machine = found.environment
    facts = [
        plural(len(found.recordings), "recording"),
        machine.device_name,
        f"torch {machine.torch}",
    ]
    facts += [
        f"kgprof {found.kgprof_version}",
        found.recordings[0].created_utc,
        found.recordings[-1].created_utc,
    ]
    steps = [
        (metric, at, each.verdict)
        for metric in found.metrics
        for at, each in enumerate(metric.against_previous, start=1)
        if each is not None and each.decides
    ]
    worse = [(metric, at) for metric, at, verdict in steps if verdict is m.MetricVerdict.WORSE]
    unsure = sum(verdict is m.MetricVerdict.INCONCLUSIVE for *_, verdict in steps)
    status = m.VerdictStatus.INCONCLUSIVE if unsure else m.VerdictStatus.OK
    trust = "; ".join(found.environments_differ[:3])

    # The largest step for the worse; of the first time that decides how far the last recording is
    # from the first.
    def ratio(metric: m.ComparedMetric | None) -> float:
        return metric.ratio if metric is not None and isinstance(metric.ratio, float) else 1.0

    times = [each.against_first[-1] for each in found.metrics]
    last = next(
        (one for one in times if one is not None and one.decides and one.time_of is not None), None
    )
    whole = (
        f"{last.name} of {last.run.slug} {signed_percent(ratio(last) - 1)} from first to last"
        if last
        else ""
    )
    first = "No recording is worse than the one before"
    if worse:
        metric, at = max(
            worse, key=lambda pair: round(ratio(pair[0].against_previous[pair[1] - 1]), 3)
        )
        step = (
            f"{metric.name} of {metric.run.slug} "
            f"{signed_percent(ratio(metric.against_previous[at - 1]) - 1)}"
        )
        first = f"{step} at {_named(found, at)}, the largest of {plural(len(worse), 'regression')}"
    elif unsure:
        open_ = f"{unsure} of {plural(len(steps), 'change')} cannot be judged (see the table)"
        first = f"{open_}; no recording is surely worse than the one before"
    return Sheet(
        title=f"History of {found.workload}",
        status=m.VerdictStatus.ATTENTION if worse else status,
        verdict=f"{first}; {whole}" if whole else first,
        trust=f"The environments differ: {trust}" if trust else "",
        facts=facts,
        sections=[Section(run.slug, tuple(_blocks(found, run))) for run in runs],
    )


def _named(found: m.History, at: int) -> str:
    side = found.recordings[at]
    commit = f" ({side.commit[:10]})" if side.commit else ""
    return f"{one_line(side.source, 60)}{commit}"


def _blocks(found: m.History, run: m.RunKey) -> Iterator[Block]:
    quiet = []
    for metric in (each for each in found.metrics if each.run == run):
        known = next(
            (
                each
                for each in (*metric.against_first, *metric.against_previous)
                if each is not None
            ),
            None,
        )
        if known is None or all(isinstance(each, m.Skipped) for each in metric.values):
            continue
        if not (known.time_of is not None or metric.name in _ALWAYS or metric.changed):
            quiet.append(metric.name)
            continue
        yield _line(found, metric, known)
        yield _table(found, metric, known)
    if quiet:
        yield ("Unchanged", ", ".join(quiet))


def _table(found: m.History, metric: m.MetricHistory, known: m.ComparedMetric) -> Table:
    def changed(each: m.ComparedMetric | None) -> Cell:
        if each is None:
            return missing("the run is not in both recordings")
        said = (
            f"{SYMBOLS[each.verdict]} {each.verdict}"
            if each.verdict is not m.MetricVerdict.SAME
            else ""
        )
        ratio = each.ratio if isinstance(each.ratio, float) else None
        wrong = each.decides and each.verdict is m.MetricVerdict.WORSE
        return Cell(
            change(each), details=(said,) if said else (), value=ratio, title=each.note, wrong=wrong
        )

    rows = []
    for at, measured in enumerate(metric.values):
        shown = (
            missing(measured)
            if isinstance(measured, m.Skipped)
            else Cell(value(known, measured), value=measured)
        )
        first = changed(metric.against_first[at - 1]) if at else Cell("")
        before = changed(metric.against_previous[at - 1]) if at else Cell("")
        rows.append((_named(found, at), shown, first, before))
    headings = ("recording", metric.name, "vs first", "vs previous")
    table = plain(
        f"{metric.name} of {metric.run.slug} over the recordings", headings, rows, style=""
    )
    return replace(table, columns=tuple(replace(column, details=1) for column in table.columns))


def _line(found: m.History, metric: m.MetricHistory, known: m.ComparedMetric) -> Line:
    """From the least to the largest value, with a tenth of room; the axis says so by its
    figures."""
    measured = [each for each in metric.values if not isinstance(each, m.Skipped)]
    low, high = min(measured), max(measured)
    room = (high - low) / 10 or abs(high) / 10 or 1.0
    low = max(0.0, low - room) if low >= 0 else low - room
    high = high + room

    def x(at: int) -> str:
        return of_width(_LEFT + (1 - 2 * _LEFT) * at / (len(metric.values) - 1))

    def y(number: float) -> float:
        return round(_TOP + (_HIGH - _TOP) * (high - number) / (high - low), 1)

    every = -(-len(metric.values) // _LABELS)
    marks = []
    places = []
    for at, number in enumerate(metric.values):
        if isinstance(number, m.Skipped):
            continue
        step = metric.against_previous[at - 1] if at else None
        is_worse = step is not None and step.verdict is m.MetricVerdict.WORSE
        side = found.recordings[at]
        commit = side.commit[:7] or str(at + 1)
        words = f"{_named(found, at)}: {value(known, number)}"
        words += f", {change(step)} against the previous" if step is not None else ""
        label = commit if at % every == 0 else ""
        marks.append(Mark(x=x(at), y=y(number), title=words, label=label, worse=is_worse))
        places.append((at, x(at), y(number)))
    lines = [
        (one[1], one[2], other[1], other[2])
        for one, other in pairwise(places)
        if other[0] == one[0] + 1
    ]
    return Line(
        description=f"{metric.name} of {metric.run.slug} over "
        f"{plural(len(metric.values), 'recording')}; the table "
        "below has the same figures",
        height=_HIGH + 26,
        bottom=_HIGH,
        marks=marks,
        lines=lines,
        up=[
            (y(number), value(known, number).partition(" (")[0])
            for number in (max(measured), min(measured))
        ],
    )
