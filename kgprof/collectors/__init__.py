"""One topic a file: the rules it speaks for, what it collects from a Recording, and what that
means.

COLLECTORS is the room's table of contents: a new collector is one module and one line here.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors.compile import (
    caches,
    compilations,
    graph_breaks,
    recompiles,
    runs_eagerly,
    skipped_frames,
    unrolled_loops,
)
from kgprof.collectors.compile.library_switches import with_switches
from kgprof.collectors.graphs import addresses, cuda_graphs, handmade_graphs, small_cuda_graphs
from kgprof.collectors.tensors import aliases, mutations
from kgprof.collectors.time import (
    break_even,
    device_idle,
    host_code,
    input_pipeline,
    loader_on_cpu,
    matmul_precision,
    optimizer_steps,
    own_kernels,
    slow_operators,
    syncs,
)
from kgprof.collectors.trust import disagreements, nothing_measured, results
from kgprof.collectors.trust.nothing_measured import measured
from kgprof.reading.code_to_write import fitted
from kgprof.reading.evidence import Evidence

__all__ = ["COLLECTORS", "RULES", "Collector", "findings", "measured", "rule_of", "weight"]


class Collector(Protocol):
    """A module of this room."""

    @property
    def RULES(self) -> tuple[m.Rule, ...]:  # noqa: N802 - a module's constant
        """The rules whose findings ``diagnose`` may return, and no others."""

    def collect(self, evidence: Evidence, /) -> tuple[Any, ...]:
        """The topic's events, in the order of the plan's runs."""

    def diagnose(self, events: tuple[Any, ...], /) -> tuple[m.Finding, ...]:
        """What is wrong, from the events alone."""


COLLECTORS: tuple[Collector, ...] = (
    results,
    nothing_measured,
    graph_breaks,
    skipped_frames,
    recompiles,
    runs_eagerly,
    caches,
    compilations,
    unrolled_loops,
    cuda_graphs,
    addresses,
    aliases,
    mutations,
    syncs,
    handmade_graphs,
    device_idle,
    matmul_precision,
    input_pipeline,
    loader_on_cpu,
    host_code,
    slow_operators,
    optimizer_steps,
    small_cuda_graphs,
    own_kernels,
    break_even,
    disagreements,
)

RULES: tuple[m.Rule, ...] = tuple(
    sorted((rule for collector in COLLECTORS for rule in collector.RULES), key=lambda rule: rule.id)
)

_BY_ID = {rule.id: rule for rule in RULES}
_SEVERITY = {m.Level.ERROR: 0, m.Level.WARNING: 1, m.Level.NOTE: 2}


def findings(evidence: Evidence) -> tuple[m.Finding, ...]:
    """What every collector found: errors first, then what costs most, then by rule and in the
    plan's order."""
    found = [
        finding
        for collector in COLLECTORS
        for finding in collector.diagnose(evidence.once(collector.collect))
    ]
    return tuple(sorted(_fitting(evidence, with_switches(evidence, found)), key=weight))


def _fitting(evidence: Evidence, findings: Iterable[m.Finding]) -> Iterator[m.Finding]:
    """The findings, each with its code only where that fits the line. A command of a shell is no
    code."""
    sources = {run.key: run.source for run in evidence.runs}
    first = next(iter(sources.values()), None)
    for each in findings:
        source = first
        if each.run is not None:
            source = sources.get(each.run, first)
        is_code = each.fix != "" and rule_of(each).topic is not m.Topic.COVERAGE
        if source is None or not is_code:
            yield each
        else:
            yield replace(each, fix=fitted(source, each, each.fix))


def rule_of(finding: m.Finding) -> m.Rule:
    """With today's facts about it; a finding of a newer kgprof may be by a rule that is not known
    here."""
    return _BY_ID.get(finding.rule) or m.unknown_rule(finding.rule, finding.level)


def weight(finding: m.Finding) -> tuple[int, bool, bool, float, str, float]:
    """For sorting, the gravest first: one whose cost is not known stands behind those of its level
    whose cost is, and a read in each step before one in a few."""
    often = 0.0
    if finding.reads is not None:
        often = finding.reads.events / max(1, finding.reads.steps)
    if isinstance(finding.cost, m.Skipped):
        return _SEVERITY[finding.level], True, False, 0.0, finding.rule, -often
    each_step, value = finding.cost.weight
    return _SEVERITY[finding.level], False, not each_step, -value, finding.rule, -often
