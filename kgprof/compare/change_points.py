"""At which values does a series of times take a new level or begin to drift, and by how much?

A level ends where an arc of the series differs most from the rest of it, if not more than ALPHA of
the orders of the same values have an arc that differs as much; then the parts are searched in the
same way. This is circular binary segmentation (A. B. Olshen, E. S. Venkatraman, R. Lucito and
M. Wigler, Biostatistics 5, 2004, 557-572): it finds a regression that was fixed a few commits
later, which halving does not, and the orders make it right for noise of any shape that does not
hang together from value to value. The orders are drawn by a generator that always begins alike.

Levels that rise one after the other, or fall, are a drift where a slope describes them better, by
Schwarz's criterion (G. Schwarz, Annals of Statistics 6, 1978, 461-464).
"""

import math
from collections.abc import Sequence
from itertools import combinations, groupby, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kgprof.judge import t_quantile

Floats = npt.NDArray[np.float64]
FEWEST_VALUES = 10  # of a series: of fewer no order is rare enough
FEWEST = 2  # values of a level: one alone may be anything
LEAST_DRIFT = 10  # values that a drift goes over
ALPHA = 0.01
_DRAWS = 199
_KNOTS = 9  # places at which a drift may begin or end
_LEAST = 1e-12


class Change(NamedTuple):
    """``now`` over ``before`` lies in ``low`` to ``high`` with 95 %."""

    first: int  # value at the new level; of a drift where it begins
    last: int  # of a drift where it ends; of a step ``first``
    before: float
    now: float
    low: float
    high: float


def changes(times: Sequence[float]) -> list[Change]:
    """In order. Of fewer than FEWEST_VALUES there are none."""
    logs = np.log(np.asarray(times, dtype=np.float64))
    steps = _sure(logs, _edges(logs, np.random.default_rng(0)))
    bounds = [0, *(step.first for step in steps), len(logs)]
    found: list[Change] = []
    for _, group in groupby(enumerate(steps), lambda each: each[1].now > each[1].before):
        places, alike = zip(*group, strict=True)
        drift = _drift(logs, bounds[places[0] : places[-1] + 3])
        found += [drift] if drift else alike
    return found


# ---------------------------------------------------------------- steps


def _edges(logs: Floats, chance: np.random.Generator) -> list[int]:
    arc = _arc(logs, chance)
    if not arc:
        return []
    found: list[int] = []
    for low, high in pairwise([0, *arc, len(logs)]):
        found += [low + edge for edge in _edges(logs[low:high], chance)]
        found.append(high)
    return found[:-1]


def _arc(logs: Floats, chance: np.random.Generator) -> list[int]:
    """Where the most different one begins and ends, within the series; empty where other orders of
    its values have one as well. Neither it nor what is left at either side has fewer than FEWEST
    values."""
    size = len(logs)
    if size < FEWEST_VALUES:
        return []
    ends = np.array([0, *range(FEWEST, size - FEWEST + 1), size])
    lengths = ends - ends[:, None]
    whole = (lengths >= FEWEST) & (lengths < size)
    weights = whole / np.maximum(lengths * (size - lengths), 1)

    def heights(values: Floats) -> Floats:
        sums = np.append(0.0, np.cumsum(values))[ends]
        apart: Floats = (sums - sums[:, None]) ** 2 * weights
        return apart

    centred = logs - logs.mean()
    found = heights(centred)
    as_high = 0
    for _ in range(_DRAWS):
        as_high += bool(heights(chance.permutation(centred)).max() >= found.max() * (1 - 1e-9))
        if as_high >= ALPHA * _DRAWS:
            return []
    arc = ends[[*divmod(int(found.argmax()), len(ends))]]
    return [int(edge) for edge in arc if 0 < edge < size]


def _sure(logs: Floats, edges: list[int]) -> list[Change]:
    """Without those whose interval has no change in it: an arc has two ends, and only one of them
    may be a step."""
    around = zip([0, *edges], edges, [*edges[1:], len(logs)], strict=False)
    steps = [_step(logs, *each) for each in around]
    for at, step in enumerate(steps):
        if step.low <= 1 <= step.high:
            return _sure(logs, edges[:at] + edges[at + 1 :])
    return steps


def _step(logs: Floats, low: int, edge: int, high: int) -> Change:
    """Student's interval, as if the noise of both levels were alike: one may have two values."""
    before, after = logs[low:edge], logs[edge:high]
    rest = before.var() * len(before) + after.var() * len(after)
    error = math.sqrt(rest / (high - low - 2) * (1 / len(before) + 1 / len(after)))
    return _change(edge, edge, before.mean(), after.mean(), error, high - low)


def _change(first: int, last: int, before: float, now: float, error: float, size: int) -> Change:
    """Of logarithms."""
    half = t_quantile(size - 2) * error
    ends = before, now, now - before - half, now - before + half
    return Change(first, last, *map(math.exp, ends))


# ---------------------------------------------------------------- drifts


def _drift(logs: Floats, bounds: Sequence[int]) -> Change | None:
    """None where the levels between ``bounds`` describe the values better."""
    low, high = bounds[0], bounds[-1]
    part = logs[low:high]
    levels = [logs[one:other] - logs[one:other].mean() for one, other in pairwise(bounds)]
    best = _score(np.concatenate(levels), 2 * len(levels) - 1)
    found = None
    knots = np.unique(np.linspace(0, len(part) - 1, _KNOTS, dtype=int)).tolist()
    for begin, end in combinations(knots, 2):
        over = end - begin
        if over < LEAST_DRIFT:
            continue
        course = np.clip(np.arange(len(part)), begin, end) - begin
        (slope, base), spread = np.polyfit(course, part, 1, cov=True)
        kinks = (begin > 0) + (end < len(part) - 1)
        score = _score(part - base - slope * course, 2 + kinks)
        if score < best:
            best = score
            error = over * math.sqrt(spread[0, 0])
            found = _change(low + begin, low + end, base, base + slope * over, error, len(part))
    return found


def _score(rest: Floats, free: int) -> float:
    """Less is better."""
    return len(rest) * math.log(rest.var() + _LEAST) + free * math.log(len(rest))
