"""The sheet of a history: for each metric that changed a line over the recordings, and a row for
each of them."""

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.compare_words import SYMBOLS, change, signed_percent, value
from kgprof.document.escaping import one_line
from kgprof.document.plot import Plot, Shape, course
from kgprof.document.run_parts import measured
from kgprof.document.sheet import Section, Sheet
from kgprof.document.table import (
    Block,
    Cell,
    Cells,
    Column,
    Table,
    missing,
    plain,
    written,
)
from kgprof.wording import clause, plural

_ALWAYS = (m.COLD_FIRST_CALL, m.KERNELS_PER_STEP)  # beside times, whether they changed or not


def sheet(found: m.History) -> Sheet:
    runs = dict.fromkeys(metric.run for metric in found.metrics)
    machine = found.environment
    steps = [
        (metric, at, each)
        for metric in found.metrics
        for at, each in enumerate(metric.against_previous, start=1)
        if each and each.decides
    ]
    worse = [step for step in steps if step[2].verdict is m.MetricVerdict.WORSE]
    unsure = sum(each.verdict is m.MetricVerdict.INCONCLUSIVE for *_, each in steps)
    status = m.VerdictStatus.OK
    verdict = "No recording is worse than the one before"
    if worse:
        # The largest step for the worse.
        metric, at, each = max(worse, key=lambda step: round(_ratio(step[2]), 3))
        status = m.VerdictStatus.ATTENTION
        verdict = (
            f"{metric.name} of {metric.run.slug} {signed_percent(_ratio(each) - 1)} "
            f"at {_named(found, at)}, the largest of {plural(len(worse), 'regression')}"
        )
    elif unsure:
        status = m.VerdictStatus.INCONCLUSIVE
        verdict = (
            f"{unsure} of {plural(len(steps), 'change')} cannot be judged (see the table); no "
            "recording is surely worse than the one before"
        )
    # Of the first time that decides how far the last recording is from the first.
    times = (each.against_first[-1] for each in found.metrics)
    last = next((one for one in times if one and one.decides and one.time_of), None)
    if last:
        whole = signed_percent(_ratio(last) - 1)
        verdict += f"; {last.name} of {last.run.slug} {whole} from first to last"
    trust = "; ".join(found.environments_differ[:3])
    return Sheet(
        title=f"History of {found.workload}",
        status=status,
        verdict=verdict,
        trust=clause("The environments differ: ", trust),
        facts=(
            plural(len(found.recordings), "recording"),
            machine.device_name,
            f"torch {machine.torch}",
            f"kgprof {found.kgprof_version}",
            found.recordings[0].created_utc,
            found.recordings[-1].created_utc,
        ),
        sections=[Section(run.slug, [*_blocks(found, run)]) for run in runs],
    )


@m.otherwise(1.0)
def _ratio(metric: m.ComparedMetric) -> float:
    return m.known(metric.ratio)


def _named(found: m.History, at: int) -> str:
    side = found.recordings[at]
    commit = clause(" (", side.commit[:10], ")")
    return f"{one_line(side.source, 60)}{commit}"


def _blocks(found: m.History, run: m.RunKey) -> Iterator[Block]:
    quiet = []
    for metric in found.metrics:
        compared = (*metric.against_first, *metric.against_previous)
        known = next((each for each in compared if each), None)
        if metric.run != run or not known or not measured(metric.values):
            continue
        if known.time_of or metric.name in _ALWAYS or metric.changed:
            yield _line(found, metric, known)
            yield _table(found, metric, known)
        else:
            quiet.append(metric.name)
    if quiet:
        yield ("Unchanged", ", ".join(quiet))


def _table(found: m.History, metric: m.MetricHistory, known: m.ComparedMetric) -> Table:
    rows: list[Cells] = []
    for at, number in enumerate(metric.values):
        shown = written(number, partial(value, known))
        changes = [Cell(), Cell()]
        if at:
            against = (metric.against_first[at - 1], metric.against_previous[at - 1])
            changes = [_changed(each) for each in against]
        rows.append((_named(found, at), shown, *changes))
    headings = [
        Column("recording", style="", details=1),
        *(Column(name, details=1) for name in (metric.name, "vs first", "vs previous")),
    ]
    label = f"{metric.name} of {metric.run.slug} over the recordings"
    return plain(label, headings, rows, style="")


def _changed(each: m.ComparedMetric | None) -> Cell:
    if not each:
        return missing("the run is not in both recordings")
    details = []
    if each.verdict is not m.MetricVerdict.SAME:
        details.append(f"{SYMBOLS[each.verdict]} {each.verdict}")
    wrong = each.decides and each.verdict is m.MetricVerdict.WORSE
    cell = Cell(change(each), details, title=each.note, wrong=wrong)
    if isinstance(each.ratio, float):
        return replace(cell, value=each.ratio)
    return cell


def _line(found: m.History, metric: m.MetricHistory, known: m.ComparedMetric) -> Plot:
    shapes = []
    for at, step in enumerate(metric.against_previous, start=1):
        if step and step.verdict is m.MetricVerdict.WORSE:
            words = f"{_named(found, at)}: {change(step)} against the previous"
            shapes.append((at, Shape("p-far", "", words)))
    names = [side.commit[:7] or str(at) for at, side in enumerate(found.recordings, start=1)]
    return course(known, metric.values, names, shapes, [0] * len(names))
