"""What collectors have in common: an event of one run, and the finding that a rule makes of it."""

from collections.abc import Callable, Iterable
from typing import TypedDict, TypeVar, Unpack

from kgprof import model as m
from kgprof.collectors.fingerprint import fingerprint
from kgprof.reading.evidence import Evidence, RunEvidence

T = TypeVar("T")


class Event(m.Model):
    """Something in one run, and the line of the project where it happened."""

    run: m.RunKey
    location: m.Location | None = None
    identity: str = ""  # of the place: the same in another checkout and after an edit above it


class Details(TypedDict, total=False):
    """What some findings have beside the event's run and place."""

    count: int
    library: m.PackageLine | None
    refusal: m.Refusal | None
    related: tuple[m.Location, ...]
    names: tuple[str, ...]
    detail: str
    fix: str
    tried: bool
    no_fix: str
    cost: m.FindingCost | m.Skipped
    saves: m.Saving | m.Skipped
    reads: m.Reads | None


def finding(
    rule: m.Rule,
    event: Event,
    message: str,
    *identity: str,
    level: m.Level | None = None,
    is_note: bool = False,
    **details: Unpack[Details],
) -> m.Finding:
    """Make the rule's finding of the event.

    ``identity``: what the fingerprint is of, beside the rule and the run; ``level``: the rule's
    where nothing is given, but for a note.
    """
    if is_note:
        level = m.Level.NOTE
    return m.Finding(
        rule=rule.id,
        level=level or rule.level,
        message=message,
        run=event.run,
        location=event.location,
        fingerprint=fingerprint(rule.id, event.run, *identity),
        **details,
    )


def on_gpu(
    of_run: Callable[[RunEvidence], Iterable[T]],
) -> Callable[[Evidence], tuple[T, ...]]:
    """Make what collects the events of one run a collector of those of all runs on a GPU."""
    return lambda evidence: tuple(event for run in evidence.on_gpu for event in of_run(run))


def of_each(
    findings: Callable[[T], Iterable[m.Finding]],
) -> Callable[[tuple[T, ...]], tuple[m.Finding, ...]]:
    """Make what judges one event a judge of all events."""
    return lambda events: tuple(each for event in events for each in findings(event))
