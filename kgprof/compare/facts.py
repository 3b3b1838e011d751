"""Causes that need no clock: other results, other settings, and counts and sizes that are worse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kgprof import model as m
from kgprof.collectors import rule_of
from kgprof.compare.intervals import WORSE
from kgprof.compare.metrics import (
    ALLOCATED,
    COMPILATIONS,
    COMPILE,
    GRAPH_LAUNCHES,
    KERNELS,
    LAUNCH_CALLS,
    RESERVED,
    RESIDENT,
    STEPS,
    WARM_COMPILE,
    Sides,
    plain,
)
from kgprof.compare.order import CLOCKLESS, COUNTED, FACT, OTHERS, RESULT, Ranked
from kgprof.compare.parts import COPIES, HOST, LAUNCHES, LEAST_MORE, Part, more_calls
from kgprof.compare.results import changed_results
from kgprof.compare.slower import Slower, named

# Those with the larger weight are told first; of copies and launches (0 to 1 more each) what there is more of.
_GRAPHS_LOST, _STEPS, _LAUNCHED, _CALLS, _MEMORY, _COMPILED = 8.0, 7.0, 5.0, 4.5, 4.0, 3.0

_Worse = Mapping[str, m.ComparedMetric]


def results(sides: Sides, findings: Sequence[m.ComparedFinding]) -> list[Ranked]:
    told = [one for one in findings if one.status == "new" and rule_of(one.finding).topic is m.Topic.RESULTS]
    changed = changed_results(sides.base, sides.head)
    if not told and not changed:
        return []
    finding = told[0].finding if told else None
    words = [*(f"{one.finding.rule} {one.finding.alone}" for one in told), *changed]
    cause = m.Cause(
        cause="results",
        run=sides.head.key,
        text=f"results changed: {'; '.join(words[:4])}",
        explains_us=CLOCKLESS,
        fingerprint=finding.fingerprint if finding else "",
        location=finding.location if finding else None,
    )
    return [Ranked(rank=RESULT, cause=cause)]


def settings(sides: Sides, metrics: Sequence[m.ComparedMetric]) -> list[Ranked]:
    """All together, and first of all, unless they are told with the steps that they make more of."""
    if not sides.settings:
        return []
    steps = named(metrics, STEPS)
    with_steps = steps is not None and steps.verdict == WORSE
    cause = m.Cause(
        cause="setting",
        run=sides.head.key,
        text="; ".join(f"{s.name}: {s.base or 'not given'} -> {s.head or 'not given'}" for s in sides.settings),
        explains_us=OTHERS if with_steps else CLOCKLESS,
    )
    return [Ranked(rank=FACT if with_steps else RESULT, share=0.0 if with_steps else 1.0, cause=cause)]


def by_setting(sides: Sides) -> str:
    said = [f"{s.name} {s.base or 'not given'} -> {s.head or 'not given'}" for s in sides.settings]
    return f" ({'; '.join(said)})" if said else ""


def facts(
    sides: Sides, metrics: Sequence[m.ComparedMetric], found: Sequence[Part], slower: Slower | None, root: str
) -> list[Ranked]:
    """What is a cause of the time already is left out. Where the traces account for little of it, because they were
    made in other minutes than TIMING, what can be counted in them comes before what they timed."""
    worse = {metric.name: metric for metric in metrics if metric.verdict == WORSE}
    told = [*_steps(sides, worse, slower), *_sizes(sides, worse)]
    counted = [*_launched(sides, metrics, worse, found), *_more_calls(sides, root)]
    if slower is None or not slower.shown:
        return told + counted
    if slower.accounted_for:
        return told
    timed = {part.what for part in slower.parts if slower.is_a_share(part.us)}
    return told + [replace(one, rank=COUNTED) for one in counted if one.cause.cause not in timed]


def _fact(sides: Sides, kind: str, text: str, weight: float) -> Ranked:
    return Ranked(
        rank=FACT, share=weight, cause=m.Cause(cause=kind, run=sides.head.key, text=text, explains_us=CLOCKLESS)
    )


def _steps(sides: Sides, worse: _Worse, slower: Slower | None) -> Iterator[Ranked]:
    if STEPS in worse and not (slower and slower.more_steps and slower.more_steps.us):
        yield _fact(sides, "steps", f"{_from_to(worse[STEPS])} steps an evaluation{by_setting(sides)}", _STEPS)


def _launched(
    sides: Sides, metrics: Sequence[m.ComparedMetric], worse: _Worse, found: Sequence[Part]
) -> Iterator[Ranked]:
    if lost := lost_graphs(metrics):
        yield _fact(sides, "cuda-graphs", lost, _GRAPHS_LOST)
    copies = [part for part in found if part.what == COPIES and part.more >= LEAST_MORE]
    for part in copies:
        yield _fact(sides, "copies", part.text, _LAUNCHED + _share(part.more))
    only_copies = sum(part.more for part in copies) >= sum(part.more for part in found) - LEAST_MORE
    if KERNELS in worse and not only_copies:
        launched = [part for part in found if part.what == LAUNCHES and part.more >= LEAST_MORE]
        said = f": {'; '.join(part.text for part in launched)}" if launched else ""
        more = _share(sum(part.more for part in launched))
        yield _fact(sides, "launches", f"{_from_to(worse[KERNELS])} kernels a step{said}", _LAUNCHED + more)


def _share(more: float) -> float:
    """Between 0 and 1, larger for more."""
    return max(0.0, more) / (1 + max(0.0, more))


def _more_calls(sides: Sides, root: str) -> Iterator[Ranked]:
    """Python's functions are called more often, as cProfile counts: no clock is needed for that."""
    found = more_calls(sides.base, sides.head, root)
    if found is not None:
        text = f"{found.before:,.0f} -> {found.after:,.0f} calls of Python's functions a step, {found.largest} first"
        cause = m.Cause(cause=HOST, run=sides.head.key, text=text, explains_us=CLOCKLESS, location=found.location)
        yield Ranked(rank=FACT, cause=cause, share=_CALLS)


def _sizes(sides: Sides, worse: _Worse) -> Iterator[Ranked]:
    peak = next((worse[name] for name in (ALLOCATED, RESERVED, RESIDENT) if name in worse), None)
    if peak is not None:
        yield _fact(sides, "memory", f"{peak.name} {_mib(peak.base)} -> {_mib(peak.head)}", _MEMORY)
    compiled = next((worse[name] for name in (COMPILATIONS, COMPILE, WARM_COMPILE) if name in worse), None)
    if compiled is not None:
        yield _fact(sides, "compile", f"{compiled.name} {_from_to(compiled)} {compiled.unit}", _COMPILED)


def lost_graphs(metrics: Sequence[m.ComparedMetric]) -> str:
    """Empty where no launch of a CUDA graph is gone, or where nothing is launched in its place."""
    metric, calls = named(metrics, GRAPH_LAUNCHES), named(metrics, LAUNCH_CALLS)
    if metric is None or metric.verdict != WORSE:
        return ""
    if calls is None or isinstance(calls.ratio, m.Skipped) or calls.ratio < 1:
        return ""
    return f"{_from_to(metric)} launches of CUDA graphs a step"


def _from_to(metric: m.ComparedMetric) -> str:
    return f"{plain(metric.base)} -> {plain(metric.head)}"


def _mib(value: float | m.Skipped) -> str:
    return "not observed" if isinstance(value, m.Skipped) else f"{value / 2**20:,.1f} MiB"
