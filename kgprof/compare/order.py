"""In which order the causes of one run are told, and that each is told once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kgprof import model as m

MOST_CAUSES = 8  # of one run, but for those that are known to explain a part of the time

# Within one the larger share comes first, and of two alike the one that was found first.
RESULT, REASON, COUNTED, PART, UNTIMED, FACT, SYMPTOM = range(7)

CLOCKLESS = m.Skipped(reason="how much of the time is its doing is not known")
OTHERS = m.Skipped(reason="counted with another cause")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked:
    rank: int
    cause: m.Cause
    share: float = 0.0

    @property
    def order(self) -> tuple[int, float]:
        return self.rank, -self.share


def in_order(ranked: Iterable[Ranked]) -> tuple[m.Cause, ...]:
    """A finding or a fact stands where it comes first, and nowhere else. A part of the time that is known is told
    however many there are, so that it is not left to the remainder."""
    found: dict[tuple[str, str], m.Cause] = {}
    for one in sorted(ranked, key=lambda one: one.order):
        found.setdefault((one.cause.cause, one.cause.fingerprint or one.cause.text), one.cause)
    told = enumerate(found.values())
    return tuple(cause for place, cause in told if place < MOST_CAUSES or not isinstance(cause.explains_us, m.Skipped))
