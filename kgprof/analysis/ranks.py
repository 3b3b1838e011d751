"""The ranks of one job beside each other: whether they compiled the same graphs, and which of them
the others wait for.

Ranks that compile different graphs wait for each other's compilers, and collectives inside the
graphs may never meet. Ranks that meet in collectives take equally long for a step, whoever is slow,
as the others wait inside them: the late rank is the one that waits shortest, and what it does
longer than the others is the cause.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

import numpy as np

from kgprof import model as m
from kgprof.collectors import recompiles
from kgprof.collectors.host_code import HOST_CODE
from kgprof.collectors.recompiles import rejections
from kgprof.measures import collectives, host_time
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.wording import figure, plural, short_name

Graph = tuple[str, str]  # compile id, function and place

NAMED = 5  # differences in words; the others are counted


def notes(evidence: Evidence) -> Mapping[m.RunKey, tuple[str, ...]]:
    """By run: what only some ranks compiled, on each rank that did; nothing where there are no two
    ranks."""
    scripts = [(run, run.record.script) for run in evidence.runs if run.record.script is not None]
    ranks = {run.key: script.rank for run, script in scripts if script.rank is not None}
    if len(ranks) < 2:
        return {}
    compiled = {run.key: _graphs(run) for run, _ in scripts if run.key in ranks}
    everything = dict.fromkeys(graph for graphs in compiled.values() for graph in graphs)
    partial = [
        graph for graph in everything if not all(graph in graphs for graphs in compiled.values())
    ]
    if not everything:
        return {}
    if not partial:
        same = (
            f"all {len(ranks)} ranks compiled the same "
            f"{plural(len(everything), 'graph')}, with the same compile ids"
        )
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
            place = (
                f"{frame.function}, "
                f"{frame.file.replace(chr(92), '/').rpartition('/')[2]}:{frame.line}"
            )
            guards = why.get(one.compile_id, ())
            compiled[one.compile_id, place] = (
                f" ({guards[0].text})" if guards and guards[0].text else ""
            )
    return compiled


def _said(
    key: m.RunKey,
    ranks: Mapping[m.RunKey, int],
    compiled: Mapping[m.RunKey, dict[Graph, str]],
    partial: list[Graph],
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
        graphs = (
            f"{plural(lacking, 'graph')} that other ranks compiled "
            f"{'was' if lacking == 1 else 'were'}"
        )
        yield f"{graphs} not compiled on rank {ranks[key]}"


# without collectives: largest compute time over the median; below it ranks are called level
STRAGGLES_FROM = 1.05
LATE_FROM = 0.05  # of a step, that the others wait for the late rank and do nothing else meanwhile
# standard errors over the steps, by which the others' waits are longer than its own
SURE_FROM = 3.0
# of what the others wait: a late rank's CPU works that much longer than theirs, or it is not named
EXPLAINS_FROM = 0.5
RECOMPILES = frozenset(rule.id for rule in recompiles.RULES)


def rank_balance(
    evidence: Evidence, reports: Sequence[m.RunReport], findings: Sequence[m.Finding] = ()
) -> m.RankBalance | None:
    """Of traces, or of the ranks of one launch. None where there are no two ranks, or none of a
    launch was traced.

    Of two files of one rank the first counts.
    """
    files = evidence.recording.header.plan.trace_files
    every = [(file.key, file.rank) for file in files if not file.against]
    if not files and any(isinstance(report.kernels, m.KernelBreakdown) for report in reports):
        every = [
            (report.key, report.script.rank) for report in reports if report.script is not None
        ]
    numbered = [(key, rank) for key, rank in every if rank is not None]
    if len({rank for _, rank in numbered}) < 2:
        return None
    kernels = {report.key: report.kernels for report in reports}
    loads: dict[int, m.RankLoad] = {}
    left_out = []
    for key, rank in numbered:
        load = _load(key, rank, kernels[key])
        if isinstance(load, m.RankLoad) and rank not in loads:
            loads[rank] = load
        else:
            why = (
                load if isinstance(load, str) else f"another file of rank {rank} is already counted"
            )
            left_out.append(f"{key.strategy}: {why}")
    ranks = tuple(loads[rank] for rank in sorted(loads))
    if len(ranks) < 2:
        text = (
            "the ranks cannot be compared: fewer than two have work and collectives in marked steps"
        )
        return m.RankBalance(ranks=ranks, text=text, left_out=tuple(left_out))
    runs = [run for load in ranks if (run := evidence.run(load.run)) is not None]
    waits = collectives.matched(
        [run.once(collectives.of_run) for run in runs], [load.rank for load in ranks]
    )
    straggler, late, cause, unnamed = None, None, None, None
    if isinstance(waits, m.Skipped):
        straggler, text = _straggler(ranks)
    else:
        late, text = _late(ranks, waits)
        last = ranks[int(waits.waits_us.mean(axis=1).argmin())]
        if recompiled := _compiled_alone(last, ranks, findings):
            straggler, cause, text = last.run, m.LateCause.COMPILING, recompiled
            late = None
    if late is not None:
        others = [load for load in ranks if load is not late]
        cause, why = _cause(late, others, kernels)
        text = f"{text}, {why}"
        code = _in_its_code(late, findings)
        unexplained = "" if code else _unexplained(late, others, kernels)
        if cause is m.LateCause.HOST and unexplained:
            cause, text, unnamed = None, unexplained, late.run
        else:
            straggler = late.run
            text += code
    return m.RankBalance(
        ranks=ranks,
        straggler=straggler,
        cause=cause,
        last=unnamed,
        text=text,
        collectives=waits if isinstance(waits, m.Skipped) else waits.rows,
        left_out=tuple(left_out),
    )


def _late(ranks: Sequence[m.RankLoad], waits: collectives.Matched) -> tuple[m.RankLoad | None, str]:
    """The rank that waits shortest, if that is no chance and costs the others a part of their
    step."""
    steps = waits.waits_us.shape[1]
    place = int(waits.waits_us.mean(axis=1).argmin())
    late, others = ranks[place], [load for load in ranks if load is not ranks[place]]
    step_us = median(load.step_us for load in others)  # of those that wait
    cost_us = median(load.exposed_us for load in others) - late.exposed_us
    shorter_us = np.delete(waits.waits_us, place, axis=0).mean(axis=0) - waits.waits_us[place]
    by_chance = steps < 2 or shorter_us.mean() <= SURE_FROM * shorter_us.std(ddof=1) / np.sqrt(
        steps
    )
    if by_chance or cost_us < LATE_FROM * step_us:
        last = int((waits.waits_us.argmin(axis=0) == place).sum())
        who = f"rank {others[0].rank}" if len(others) == 1 else "the others"
        waited = (
            f"{who} waited {figure(max(0.0, cost_us) / 1000)} of {figure(step_us / 1000)} "
            "ms per step for it"
        )
        return (
            None,
            f"no rank is late: rank {late.rank} came last in {last} of {plural(steps, 'step')}, "
            f"and {waited}",
        )
    who = f"rank {others[0].rank} waits" if len(others) == 1 else "the other ranks wait"
    part = (
        f"{figure(cost_us / 1000)} of {figure(step_us / 1000)} ms per step "
        f"({cost_us / step_us:.0%})"
    )
    return late, f"rank {late.rank} is late: {who} {part} for it"


def _compiled_alone(
    last: m.RankLoad, ranks: Sequence[m.RankLoad], findings: Sequence[m.Finding]
) -> str:
    """Say what the rank that comes last recompiles and no other does; empty where it does not, or
    where nobody waits for it."""
    others = [load for load in ranks if load is not last]
    waited_us = median(load.exposed_us for load in others) - last.exposed_us
    if waited_us < LATE_FROM * last.step_us:
        return ""
    compiled = [each for each in findings if each.rule in RECOMPILES]
    elsewhere = {(each.rule, each.location) for each in compiled if each.run != last.run}
    alone = [
        each
        for each in compiled
        if each.run == last.run and (each.rule, each.location) not in elsewhere
    ]
    if not alone:
        return ""
    who = f"rank {others[0].rank} waits" if len(others) == 1 else "the other ranks wait"
    took = f"{figure(waited_us / 1000)} of {figure(last.step_us / 1000)} ms per traced step"
    first = alone[0]
    at = ""
    if first.location is not None:
        at = f" (line {first.location.line})"
    return f"rank {last.rank} alone recompiles, and {who} for it, {took}: {first.message}{at}"


def _in_its_code(late: m.RankLoad, findings: Sequence[m.Finding]) -> str:
    """Say which Python code of the late rank its GPU waits for; empty where none was seen that no
    other rank waits for."""
    found = [each for each in findings if each.rule == HOST_CODE.id]
    elsewhere = {each.location for each in found if each.run != late.run}
    its = [each for each in found if each.run == late.run and each.location not in elsewhere]
    if not its:
        return ""
    place = its[0].location
    at = f" (line {place.line})" if place is not None else ""
    return f"; {its[0].message}{at}"


def _unexplained(
    late: m.RankLoad,
    others: Sequence[m.RankLoad],
    kernels: Mapping[m.RunKey, m.KernelBreakdown | m.Skipped],
) -> str:
    """Say why a rank is not called late whose CPU works hardly longer than the others'; empty where
    it works longer, and where the traces do not show what the CPU did.

    All ranks may be as slow as their CPUs, the more so under instruments: the one that comes last
    is then a matter of little, and the others wait in its place.
    """
    worked = {load.run: _cpu_us(kernels[load.run]) for load in (late, *others)}
    mine = worked.pop(late.run)
    theirs = [each for each in worked.values() if each is not None]
    if mine is None or len(theirs) < len(others):
        return ""
    longer_us = max(own - median(each[place] for each in theirs) for place, own in enumerate(mine))
    waited_us = median(load.exposed_us for load in others) - late.exposed_us
    if longer_us >= EXPLAINS_FROM * waited_us:
        return ""
    who = f"rank {others[0].rank} waits" if len(others) == 1 else "the other ranks wait"
    return (
        f"no rank is called late: {who} {figure(waited_us / 1000)} of "
        f"{figure(late.step_us / 1000)} ms per traced step, but the CPU of rank {late.rank} works "
        f"only {figure(max(0.0, longer_us) / 1000)} ms longer"
    )


def _cpu_us(kernels: m.KernelBreakdown | m.Skipped) -> tuple[float, float] | None:
    """Microseconds per traced step in which the CPU worked and did not wait for the GPU: with, and
    without, what nothing in the trace names. None where that is not known, or on a CPU."""
    if isinstance(kernels, m.Skipped) or kernels.device != "cuda":
        return None
    times = kernels.host_time
    if isinstance(times, m.Skipped):
        return None
    parts = {part.name: part.mean_us for part in times.parts}
    worked_us = times.mean_us - parts.get(host_time.WAITING, 0.0)
    return worked_us, worked_us - parts.get(host_time.UNEXPLAINED, 0.0)


def _cause(
    late: m.RankLoad,
    others: Sequence[m.RankLoad],
    kernels: Mapping[m.RunKey, m.KernelBreakdown | m.Skipped],
) -> tuple[m.LateCause | None, str]:
    """What takes the late rank longest, against the median of the others, and the kernel or
    operator that grew most."""

    def beyond(value: Callable[[m.RankLoad], float]) -> tuple[float, str]:
        mine, theirs = value(late), median(value(load) for load in others)
        return mine - theirs, f"{figure(mine / 1000)} vs {figure(theirs / 1000)} ms per step"

    shown = {
        load.run: found
        for load in (late, *others)
        if isinstance(found := kernels[load.run], m.KernelBreakdown)
    }
    on_gpu = shown[late.run].device == "cuda"
    waits = (
        "its GPU waits longer for its CPU"
        if on_gpu
        else "it spends longer in Python between operators"
    )
    causes = {
        m.LateCause.COMPUTE: (
            *beyond(lambda load: load.compute_us - load.copies_us),
            "it computes longer",
        ),
        m.LateCause.HOST: (*beyond(lambda load: load.idle_us), waits),
        m.LateCause.COPIES: (*beyond(lambda load: load.copies_us), "its copies take longer"),
    }
    cause = max(causes, key=lambda each: causes[each][0])
    more_us, figures, words = causes[cause]
    if more_us <= 0:
        return None, "but the traces do not show why"
    if cause is m.LateCause.HOST:
        return cause, f"because {words}: {figures}"
    copies, not_work = (
        cause is m.LateCause.COPIES,
        (m.KernelKind.FRAMEWORK, m.KernelKind.COMMUNICATION),
    )
    mine, *theirs = (
        {
            row.name: row.total_us / load.steps
            for row in shown[load.run].rows
            if row.kind not in not_work and (row.generator == "memcpy") == copies
        }
        for load in (late, *others)
    )
    growth = {
        name: us - median(other.get(name, 0.0) for other in theirs) for name, us in mine.items()
    }
    most = max(growth, key=lambda name: growth[name], default="")
    named = f", most of it {short_name(most)}" if most and growth[most] > more_us / 2 else ""
    return cause, f"because {words}: {figures}{named}"


def _load(key: m.RunKey, rank: int, kernels: m.KernelBreakdown | m.Skipped) -> m.RankLoad | str:
    """Or why there is none."""
    if isinstance(kernels, m.Skipped):
        return kernels.reason
    if not isinstance(kernels.communication, m.Communication):
        return kernels.communication.reason
    if not kernels.steps:
        return "the trace marks no steps (ProfilerStep#), so there is no common unit"
    talk, exposed_us = kernels.communication, kernels.communication.exposed_us
    return m.RankLoad(
        run=key,
        rank=rank,
        steps=kernels.steps,
        step_us=kernels.window_us / kernels.steps,
        busy_us=(talk.work_us + exposed_us) / kernels.steps,
        idle_us=(kernels.window_us - talk.work_us - exposed_us) / kernels.steps,
        compute_us=talk.work_us / kernels.steps,
        communication_us=talk.busy_us / kernels.steps,
        exposed_us=exposed_us / kernels.steps,
        copies_us=talk.copies_us / kernels.steps,
    )


def _straggler(ranks: Sequence[m.RankLoad]) -> tuple[m.RunKey | None, str]:
    slowest = max(ranks, key=lambda load: load.compute_us)
    middle = median(load.compute_us for load in ranks)
    evidence = (
        f"{figure(slowest.compute_us / 1000)} ms of compute per step, median "
        f"{figure(middle / 1000)}"
    )
    if not middle or slowest.compute_us < STRAGGLES_FROM * middle:
        return (
            None,
            f"no rank computes {STRAGGLES_FROM}× as long as the median (rank {slowest.rank}: "
            f"{evidence})",
        )
    said = (
        f"rank {slowest.rank} computes {slowest.compute_us / middle:.2f}× as long as "
        f"the median ({evidence})"
    )
    return slowest.run, f"{said}; the traces do not show whether the others wait for it"
