"""What makes a finding the same finding in the next commit, and several events one."""

import hashlib
from collections.abc import Callable, Iterable
from typing import TypeVar

from kgprof import model as m


def fingerprint(rule: str, run: m.RunKey | None, *identity: str) -> str:
    """Twelve hex digits over what the finding is about. Counts, times and line numbers change, so
    they stay out."""
    slug = ""
    if run is not None:
        slug = run.slug
    parts = (rule, slug, *identity)
    return hashlib.sha256("\0".join(parts).encode("utf-8", errors="replace")).hexdigest()[:12]


_Event = TypeVar("_Event")


def grouped(events: Iterable[_Event], key: Callable[[_Event], object]) -> list[list[_Event]]:
    """Those of one key together, in the order in which the keys come."""
    groups: dict[object, list[_Event]] = {}
    for event in events:
        groups.setdefault(key(event), []).append(event)
    return list(groups.values())


def line_of(place: m.Location | None, otherwise: object = None) -> object:
    """To group by: a line, whatever function it is told with."""
    if place is None:
        return otherwise
    return place.file, place.line
