"""What two sides compile and run, beside each other: a row for each thing that was counted, then
what differs, with the line that it is put down to."""

from collections.abc import Iterator

from kgprof import model as m
from kgprof.document.finding_list import line_of
from kgprof.document.quantity import DASH, if_known, plain_number, size
from kgprof.document.table import Block, Cell, Column, plain
from kgprof.wording import plural

LABEL = "counted, without a clock"
_DIFFERS = "differs"


def work_blocks(run: m.RunComparison, root: str) -> Iterator[Block]:
    """Of one run; ``root``: of head's sources. One sentence where it was not compared."""
    work = run.work
    if run.status is not m.Presence.BOTH:
        return
    if isinstance(work, m.Skipped):
        yield f"{run.run.slug}: what is compiled was not compared: {work.reason}."
        return
    if work.differences:
        told = [
            (difference.aspect, _text(difference), _place(difference, root))
            for difference in work.differences
        ]
        label = f"{run.run.slug}: what differs"
        yield plain(label, ("what", "difference", "line"), told, style="", first="kind", words=3)
    if work.left_out:
        yield f"{plural(work.left_out, 'more difference')} in report.json."
    equal = [row for row in work.rows if row.differs is False]
    differing = [row for row in work.rows if row.differs is True]
    rows = [
        (row.name, _figure(row, row.base), _figure(row, row.head), Cell(_DIFFERS, wrong=True))
        for row in differing
    ]
    if rows:
        headings = ("counted", "base", "head", Column("verdict", style="kind"))
        yield plain(f"{run.run.slug}: {LABEL}", headings, rows, style="", first="kind", words=1)
    if equal:
        named = "; ".join(f"{row.name}: {_figure(row, row.base)}" for row in equal)
        yield f"Equal on both sides: {named}."
    if unseen := _not_compared(work):
        yield f"Not compared: {unseen}."


def _not_compared(work: m.ComparedWork) -> str:
    """By why it was not: "bytes per step, FLOPs per step (only COMPILE was requested)"."""
    names: dict[str, list[str]] = {}
    for row in work.rows:
        if isinstance(row.differs, m.Skipped):
            names.setdefault(row.differs.reason, []).append(row.name)
    return "; ".join(f"{', '.join(named)} ({why})" for why, named in names.items())


def _figure(row: m.WorkRow, side: m.Figure) -> str:
    def written(value: float) -> str:
        if row.name.startswith("bytes"):
            return size(round(value))
        return plain_number(value)

    return "".join(if_known(side, written)) or DASH


def _text(difference: m.WorkDifference) -> str:
    if difference.times > 1:
        return f"{difference.text} ({difference.times:,} times)"
    return difference.text


def _place(difference: m.WorkDifference, root: str) -> str:
    place = difference.place
    if place is None:
        return DASH
    if difference.only_in_base and difference.changed is None:
        return f"in base, {line_of(place, root)} {place.text.strip()}".strip()
    return f"{line_of(place, root)} {place.text.strip()}".strip()
