"""Events of collectors that still take a Recording, collected once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kgprof import model as m
from kgprof.reading.evidence import Evidence

T = TypeVar("T")


def collected(evidence: Evidence, collect: Callable[[m.Recording], T]) -> T:
    derived = evidence._derived
    if collect not in derived:
        derived[collect] = collect(evidence.recording)
    events: T = derived[collect]
    return events
