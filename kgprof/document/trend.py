"""The sheet of a trend: the newest change first, then a line over the recordings for each metric
that is a time or changed."""

from collections.abc import Iterator, Sequence

from kgprof import model as m
from kgprof.document.compare_words import SYMBOLS, change, ends, value
from kgprof.document.plot import Shape, course
from kgprof.document.run_parts import collected, measured
from kgprof.document.sheet import Section, Sheet
from kgprof.document.table import Block, Cell, Column, Note, plain
from kgprof.wording import and_more, clause, plural

_ROWS = 100  # changes in the table
_SHOWN, _MARKED = 20, 4  # changes that a drawing has and names, the newest


def sheet(found: m.Trend) -> Sheet:
    by_line = collected((_about(each), each) for each in found.changes)
    newest = [changes[0] for changes in by_line.values()]
    worse = [each for each in newest if each.metric.verdict is m.MetricVerdict.WORSE]
    status = m.VerdictStatus.OK
    verdict = "No metric changed"
    if waiting := [line for line in found.lines if line.note]:
        status = m.VerdictStatus.INCONCLUSIVE
        verdict = f"No count changed; {waiting[0].metric.name} has {waiting[0].note}"
    if found.changes:
        verdict = _sentence(found, (worse or found.changes)[0])
    if worse:
        status = m.VerdictStatus.ATTENTION
    environments = [*_environments(found)]
    trust = ["changes are searched for within one environment"] * bool(environments)
    if found.unread:
        trust.append(f"{plural(len(found.unread), 'file')} could not be read")
    sections = [Section("Changes, the newest first", _changes(found))]
    for name in dict.fromkeys(_about(line)[:2] for line in found.lines):
        lines = [
            (line, by_line.get(_about(line), ()))
            for line in found.lines
            if _about(line)[:2] == name
        ]
        sections.append(Section(" of ".join(name), [*_run(found, lines)]))
    for title, notes in (
        ("Environments", environments),
        ("Not part of the history", [*found.unread]),
    ):
        sections += [Section(title, notes)] * bool(notes)
    first, last = found.points[0], found.points[-1]
    return Sheet(
        title=f"Trend of {', '.join({line.workload: None for line in found.lines})}",
        status=status,
        verdict=verdict,
        trust="; ".join(trust),
        facts=(
            plural(len(found.points), "recording"),
            f"{first.named} of {first.when[:10]} to {last.named} of {last.when[:10]}",
            f"torch {last.environment.get('torch', 'not known')}",
        ),
        sections=sections,
    )


def _about(each: m.TrendChange | m.TrendLine) -> tuple[str, ...]:
    return each.metric.run.slug, each.workload, each.metric.name


def _sentence(found: m.Trend, of: m.TrendChange) -> str:
    """ "step of fused.default +5.1 % (95 % interval +4.2 to +6.0 %) at a1b2c3d, 3 recordings
    ago"."""
    metric = of.metric
    interval = clause(" (95 % interval ", ends(metric), ")")
    ago = plural(len(found.points) - 1 - of.last, "recording")
    what = f"{metric.name} of {metric.run.slug} {change(metric)}{interval}"
    return f"{what} at {_where(found, of)}, {ago} ago"


def _where(found: m.Trend, of: m.TrendChange) -> str:
    first, last = (found.points[at].named for at in (of.first, of.last))
    return f"{first}{clause(' to ', last if of.last > of.first else '')}"


def _short(metric: m.ComparedMetric, side: m.Figure) -> str:
    """Without its rate."""
    return value(metric, side).partition(" (")[0]


def _changes(found: m.Trend) -> Sequence[Block]:
    rows = []
    for of in found.changes[:_ROWS]:
        metric = of.metric
        is_worse = metric.verdict is m.MetricVerdict.WORSE
        changed = f"{SYMBOLS[metric.verdict]} {change(metric)}"
        rows.append(
            (
                Cell(metric.name, (metric.run.slug,)),
                Cell(changed, (ends(metric),), wrong=is_worse),
                Cell(_where(found, of), (f"after {found.points[of.since].named}",)),
                _short(metric, metric.base),
                _short(metric, metric.head),
            )
        )
    headings = (
        Column("metric", style="", details=1),
        Column("change", "below it the 95 % interval", details=1),
        Column("commit", style="", details=1),
        "before",
        "after",
    )
    blocks: list[Block] = [plain("Changes", headings, rows, style="")]
    if len(found.changes) > _ROWS:
        blocks.append(f"{len(found.changes) - _ROWS} older ones are left out.")
    return blocks if rows else ["None."]


def _run(
    found: m.Trend, lines: Sequence[tuple[m.TrendLine, Sequence[m.TrendChange]]]
) -> Iterator[Block]:
    quiet = []
    for each, mine in lines:
        metric = each.metric
        newest = _short(metric, metric.head)
        if not mine and metric.unit != "s" and metric.time_of is None:
            quiet.append(f"{metric.name} ({newest})")
            continue
        many = f"{len(measured(each.values))} of {plural(len(each.values), 'recording')}"
        text = f"{_short(metric, metric.base)} → {newest} in {many}{clause('; ', each.note)}"
        yield (metric.name, text)
        shapes, marks = [], []
        for of in mine[:_SHOWN]:
            style = "p-bar"
            if of.metric.verdict is m.MetricVerdict.WORSE:
                style = "p-far"
            shapes.append((of.first, Shape(style, "", _sentence(found, of))))
            marks.append((of.first, f"{found.points[of.first].named} {change(of.metric)}"))
        names = [point.named for point in found.points]
        yield course(metric, each.values, names, shapes, found.sections, marks[:_MARKED])
    if quiet:
        yield ("Unchanged", ", ".join(quiet))


def _environments(found: m.Trend) -> Iterator[Note]:
    """Of each but the first: its first recording, and what was not so in the one before."""
    for at in sorted({*found.sections} - {0}):
        before, now = (found.points[place].environment for place in (at - 1, at))
        others = [
            f"{name} {before.get(name, 'not set')} → {now.get(name, 'not set')}"
            for name in {**before, **now}
            if before.get(name) != now.get(name)
        ]
        yield (f"from {found.points[at].named} on", "; ".join(others[:3]) + and_more(others, 3))
