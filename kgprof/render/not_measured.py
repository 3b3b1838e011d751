"""Omissions, said once each: the same gap in several runs is one line that names them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.limits import Limits
from kgprof.render.table import Table, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    what: tuple[str, ...]
    reason: str
    runs: tuple[str, ...]  # slugs; empty where it concerns the whole recording


def gathered(omissions: tuple[m.Omission, ...]) -> tuple[Gap, ...]:
    """First the runs that lack the same thing for the same reason, then the things that one cause took from them."""
    runs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for omission in omissions:
        runs[omission.what, omission.reason] += [omission.run.slug] if omission.run else []
    things: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (what, reason), slugs in runs.items():
        things[reason, tuple(slugs)].append(what)
    return tuple(Gap(what=tuple(what), reason=reason, runs=slugs) for (reason, slugs), what in things.items())


def gap_table(omissions: tuple[m.Omission, ...], limits: Limits) -> Table:
    rows = (
        (", ".join(gap.what[: limits.lines]), gap.reason, ", ".join(gap.runs[: limits.lines]) or "all")
        for gap in gathered(omissions)[: limits.lines]
    )
    return plain("Not measured, with reasons", ("what", "why", "runs"), rows, style="", words=3)
