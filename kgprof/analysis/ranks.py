"""Ranks of one program: whether they compiled the same, and for the same reasons.

Ranks that compile different graphs wait for each other's compilers, and collectives inside the graphs may never meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kgprof import model as m
from kgprof.collectors.recompiles import rejections
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.wording import plural

Graph = tuple[str, str]  # compile id, function and place

NAMED = 5  # differences in words; the others are counted


def notes(evidence: Evidence) -> Mapping[m.RunKey, tuple[str, ...]]:
    """By run: what only some ranks compiled, on each rank that did; nothing where there are no two ranks."""
    scripts = [(run, run.record.script) for run in evidence.runs if run.record.script is not None]
    ranks = {run.key: script.rank for run, script in scripts if script.rank is not None}
    if len(ranks) < 2:
        return {}
    compiled = {run.key: _graphs(run) for run, _ in scripts if run.key in ranks}
    everything = dict.fromkeys(graph for graphs in compiled.values() for graph in graphs)
    partial = [graph for graph in everything if not all(graph in graphs for graphs in compiled.values())]
    if not everything:
        return {}
    if not partial:
        same = f"all {len(ranks)} ranks compiled the same {plural(len(everything), 'graph')}, with the same compile ids"
        return dict.fromkeys(ranks, (same,))
    return {key: tuple(_said(key, ranks, compiled, partial)) for key in ranks}


def _graphs(run: RunEvidence) -> dict[Graph, str]:
    """What one rank compiled, with the guard that failed before it where it is a recompile."""
    trace = run.compiler
    if trace is None:
        return {}
    why = rejections(trace)
    compiled = {}
    for one in trace.compiled:
        if (frame := one.frame) is not None:
            place = f"{frame.function}, {frame.file.replace(chr(92), '/').rpartition('/')[2]}:{frame.line}"
            guards = why.get(one.compile_id, ())
            compiled[one.compile_id, place] = f" ({guards[0].text})" if guards and guards[0].text else ""
    return compiled


def _said(
    key: m.RunKey, ranks: Mapping[m.RunKey, int], compiled: Mapping[m.RunKey, dict[Graph, str]], partial: list[Graph]
) -> Iterable[str]:
    mine = [graph for graph in partial if graph in compiled[key]]
    for graph in mine[:NAMED]:
        having = [rank for other, rank in ranks.items() if graph in compiled[other]]
        compile_id, place = graph
        who = f"rank{'s' if len(having) > 1 else ''} {', '.join(map(str, having))} of {len(ranks)}"
        yield f"compiled on {who} only: {compile_id} of {place}{compiled[key][graph]}"
    if len(mine) > NAMED:
        yield f"and {len(mine) - NAMED} more graphs that not every rank compiled"
    if lacking := len(partial) - len(mine):
        graphs = f"{plural(lacking, 'graph')} that other ranks compiled {'was' if lacking == 1 else 'were'}"
        yield f"{graphs} not compiled on rank {ranks[key]}"
