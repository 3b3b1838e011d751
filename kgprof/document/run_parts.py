"""The parts of a section that are about one run each, and the runs that have what such a part
needs."""

from collections.abc import Iterable
from typing import TypeVar

from kgprof import model as m
from kgprof.document.escaping import one_line
from kgprof.document.limits import anchor
from kgprof.document.table import Block, Fold
from kgprof.wording import clause

T = TypeVar("T")
K = TypeVar("K")
_NAME = 400  # characters of a run's


def having(runs: m.Runs, name: str, kind: type[T]) -> list[tuple[int, m.RunReport, T]]:
    """Index, run, and what it holds under ``name``; without the runs of which that was not
    measured."""
    values = [(index, run, getattr(run, name)) for index, run in enumerate(runs)]
    return [each for each in values if isinstance(each[2], kind)]


def measured(values: Iterable[T | m.Skipped]) -> list[T]:
    """Without those that were not."""
    return [value for value in values if not isinstance(value, m.Skipped)]


def collected(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """The values of each key; keys and values in the order in which they were met."""
    values: dict[K, list[T]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values


def name_of(run: m.RunKey) -> str:
    """What a drawing calls it, whose texts nobody else shortens."""
    return one_line(run.slug, _NAME)


def run_part(
    index: int,
    run: m.RunReport,
    blocks: Iterable[Block],
    caption: str = "",
    name: str = "",
    lead: str = "",
) -> Fold:
    """``name``: what its anchor begins with; without one no link leads there."""
    place = anchor(index)
    anchored = clause("", name, f"-{place}")
    return Fold(name_of(run.key), [*blocks], caption, lead, anchored, run=place)
