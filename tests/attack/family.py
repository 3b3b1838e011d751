"""A family of attacks: its cases by a seed, and how one of them is tried.

``tried`` runs cases and prints how many were tried and how many failed; a default test run takes a
sample, ``make test-long`` all of them.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEED = 42


@dataclass(frozen=True)
class Family:
    """``attack`` raises AssertionError where kgprof does not hold; it gets an empty folder."""

    name: str
    cases: Callable[[random.Random], Sequence[Any]]
    attack: Callable[[Any, Path], None]


def tried(
    family: Family, folder: Path, *, seed: int = SEED, share: float = 1.0
) -> tuple[int, list[str]]:
    """The number of cases and what failed; of a ``share`` below 1 a random sample."""
    cases = family.cases(random.Random(seed))
    if share < 1:
        count = max(1, round(share * len(cases)))
        cases = random.Random(seed + 1).sample(list(cases), count)
    failed = []
    for number, case in enumerate(cases):
        place = folder / f"{family.name}-{seed}-{number}"
        place.mkdir()
        try:
            family.attack(case, place)
        except Exception:  # noqa: BLE001 - counted and told; whatever was raised is a failure
            failed.append(f"{case!r:.400}\n{traceback.format_exc(limit=-3)}")
    print(f"{family.name}, seed {seed}: {len(cases)} tried, {len(failed)} failed")  # noqa: T201
    return len(cases), failed
