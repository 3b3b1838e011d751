"""The ranks of one job beside each other: whether they compiled the same graphs, and which of them
the others wait for.

Ranks that compile different graphs wait for each other's compilers, and collectives inside the
graphs may never meet. Ranks that meet in collectives take equally long for a step, whoever is slow,
as the others wait inside them: the late rank is the one that waits shortest, and what it does
longer than the others is the cause.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from statistics import median

import numpy as np
from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors.compile import recompiles
from kgprof.collectors.compile.guard_rejections import rejections
from kgprof.collectors.time.host_code import HOST_CODE
from kgprof.measures import collectives, host_time
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.reading.structured_trace import RunTrace
from kgprof.wording import and_more, clause, figure, plural, short_name

Graph = tuple[str, str]  # compile id, function and place

NAMED = 5  # differences in words; the others are counted


def notes(evidence: Evidence) -> Mapping[m.RunKey, tuple[str, ...]]:
    """By run: what only some ranks compiled, on each rank that did; nothing where there are no two
    ranks, or one of them left no records of what it compiled."""
    ranks = {}
    compiled = {}
    for run in evidence.runs:
        script = run.record.script
        if script is not None and script.rank is not None:
            ranks[run.key] = script.rank
            if run.compiler is None:
                return {}
            compiled[run.key] = _graphs(run.compiler)
    everything = dict.fromkeys(graph for graphs in compiled.values() for graph in graphs)
    partial = [
        graph for graph in everything if not all(graph in graphs for graphs in compiled.values())
    ]
    return {key: tuple(_said(key, ranks, compiled, partial)) for key in ranks}


def _graphs(trace: RunTrace) -> dict[Graph, str]:
    """What one rank compiled, with the guard that failed before it where it is a recompile."""
    why = rejections(trace)
    compiled = {}
    for one in trace.compiled:
        if (frame := one.frame) is not None:
            place = (
                f"{frame.function}, "
                f"{frame.file.replace(chr(92), '/').rpartition('/')[2]}:{frame.line}"
            )
            texts = [guard.text for guard in why.get(one.compile_id, ())[:1] if guard.text]
            compiled[one.compile_id, place] = "".join(f" ({text})" for text in texts)
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
        who = "rank"
        if len(having) > 1:
            who = "ranks"
        who += f" {', '.join(map(str, having))} of {len(ranks)}"
        yield f"compiled on {who} only: {compile_id} of {place}{compiled[key][graph]}"
    if len(mine) > NAMED:
        yield f"and {len(mine) - NAMED} more graphs that not every rank compiled"
    if lacking := len(partial) - len(mine):
        graphs = f"{plural(lacking, 'graph')} that other ranks compiled"
        yield f"not compiled on rank {ranks[key]}: {graphs}"


# without collectives: largest compute time over the median; below it ranks are called level
STRAGGLES_FROM = 1.05
LATE_FROM = 0.05  # of a step, that the others wait for the late rank and do nothing else meanwhile
# standard errors over the steps, by which the others' waits are longer than its own
SURE_FROM = 3.0
# of what the others wait: a late rank's CPU works that much longer than theirs, or it is not named
EXPLAINS_FROM = 0.5
RECOMPILES = frozenset(rule.id for rule in recompiles.RULES)


def rank_balance(
    evidence: Evidence, reports: m.Runs, findings: m.Findings = ()
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
        if isinstance(load, m.Skipped):
            left_out.append(f"{key.strategy}: {load.reason}")
        elif rank in loads:
            left_out.append(f"{key.strategy}: another file of rank {rank} is already counted")
        else:
            loads[rank] = load
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
    rows: tuple[m.CollectiveWait, ...] | m.Skipped
    if isinstance(waits, m.Skipped):
        rows = waits
        judged = _straggler(ranks, waits.reason)
    else:
        rows = waits.rows
        bare_us = {run.key: _bare_us(run) for run in runs}
        compiling = {run.key for run in runs if _compiles_in_trace(run.record)}
        of_groups = [
            _of_group(group, ranks, kernels, bare_us, compiling, findings) for group in waits.groups
        ]
        judged = max(
            of_groups,
            key=lambda each: (each.straggler is not None, each.last is not None, each.waited_us),
        )
    return m.RankBalance(
        ranks=ranks,
        straggler=judged.straggler,
        cause=judged.cause,
        last=judged.last,
        text=judged.text,
        collectives=rows,
        left_out=tuple(left_out),
    )


Kernels = Mapping[m.RunKey, m.Kernels]


class _Judged(m.Model, kw_only=False):
    """Of one process group."""

    text: str
    # in a step: by the others for the rank that came last, or at most by any where none is late
    waited_us: float = 0.0
    straggler: m.RunKey | None = None
    cause: m.LateCause | None = None
    last: m.RunKey | None = None  # that comes last and is not called late, for its cause is unseen


class _Last(m.Model, kw_only=False):
    """The rank of a process group that comes last, and what that costs the others."""

    load: m.RankLoad
    others: Sequence[m.RankLoad]
    everybody: bool  # the group is the whole job
    steps: int
    waited_us: float

    @property
    def who(self) -> str:
        """ "rank 0 waits", "the other ranks wait", "ranks 4, 6 and 7 wait"."""
        if len(self.others) == 1:
            return f"rank {self.others[0].rank} waits"
        if self.everybody:
            return "the other ranks wait"
        numbers = [str(load.rank) for load in self.others]
        if len(numbers) > NAMED:
            return f"ranks {', '.join(numbers[:NAMED])}{and_more(numbers, NAMED)} wait"
        return f"ranks {', '.join(numbers[:-1])} and {numbers[-1]} wait"

    @property
    def per(self) -> str:
        if self.steps == 1:
            return "in the only traced step"
        return "per traced step"

    @property
    def part(self) -> str:
        """ "1.50 of 10.0 ms per traced step"."""
        waited, step = figure(self.waited_us / 1000), figure(self.load.step_us / 1000)
        return f"{waited} of {step} ms {self.per}"


@m.otherwise(None)
def _bare_us(run: RunEvidence) -> float | None:
    timed = run.record.timing
    if isinstance(timed, m.TimingPass) and timed.every_us:
        return median(timed.every_us)
    return m.known(run.record.trace).bare_us


@m.otherwise(False)
def _compiles_in_trace(run: m.RunRecord) -> bool:
    """Whether torch compiled in the traced steps, which begin behind the one that starts the
    profiler."""
    compiled = m.known(run.compile)
    first = len(compiled.call_us) + 1
    traced = range(first, first + len(m.known(run.trace).step_us))
    return not {*traced}.isdisjoint(compiled.compiled_in)


def _of_group(
    group: collectives.Group,
    ranks: Sequence[m.RankLoad],
    kernels: Kernels,
    bare_us: Mapping[m.RunKey, float | None],
    compiling: Container[m.RunKey],
    findings: m.Findings,
) -> _Judged:
    """Name the rank that the others wait for, if they always do, it costs them a part of their
    step, and what it does longer than they is seen. ``bare_us``: a step without torch.profiler,
    where that is known; ``compiling``: runs that compile in the traced steps."""
    means_us = group.waits_us.mean(axis=1)
    place = int(means_us.argmin())
    members = [ranks[member] for member in group.members]
    others = [load for load in members if load is not members[place]]
    exposed_us = median(load.exposed_us for load in others) - members[place].exposed_us
    # What a rank waits in another process group is not waited for this one.
    waited_us = min(exposed_us, float(np.median(np.delete(means_us, place)) - means_us[place]))
    last = _Last(
        members[place], others, len(members) == len(ranks), group.waits_us.shape[1], waited_us
    )
    costs = waited_us >= LATE_FROM * last.load.step_us
    if costs and last.load.run in compiling and (text := _compiled_alone(last, findings)):
        return _Judged(text, waited_us, last.load.run, m.LateCause.COMPILING)
    if not costs or not _is_always_last(group.waits_us, place):
        return _Judged(_nobody(last, group.waits_us, place), float(means_us.max()))
    cause, why = _cause(last, kernels)
    # Python code that the late rank's GPU waits for, and no other rank's.
    host_code = [each for each in findings if each.rule == HOST_CODE.id]
    code = _alone(last.load, host_code, _function)
    bare = bare_us.get(last.load.run)
    doubt = _doubt(last, cause, why, kernels, bare, is_seen=bool(code))
    if doubt:
        return _Judged(
            f"no rank is called late: {last.who} {last.part}, {doubt}",
            waited_us,
            last=last.load.run,
        )
    share = f"{waited_us / last.load.step_us:.0%}"
    text = (
        f"rank {last.load.rank} is late: {last.who} {last.part} ({share}) for it, because "
        f"{why.words}: {why.figures}{why.most}{clause('; ', code)}"
    )
    return _Judged(text, waited_us, last.load.run, cause)


def _nobody(last: _Last, waits_us: collectives.Floats, place: int) -> str:
    """Say why no member is late."""
    most_us = float(waits_us.mean(axis=1).max())
    waits = f"{figure(most_us / 1000)} of {figure(last.load.step_us / 1000)} ms {last.per}"
    if most_us < LATE_FROM * last.load.step_us:
        return f"no rank is late: they wait on average at most {waits} for each other"
    if not _is_always_last(waits_us, place):
        came_last = int((waits_us.argmin(axis=0) == place).sum())
        return (
            f"no rank is late in every step: rank {last.load.rank} came last in {came_last} of "
            f"{plural(last.steps, 'step')}, and they wait on average up to {waits} for each other"
        )
    has = "have"
    if len(last.others) == 1:
        has = "has"
    return (
        f"no rank is late: {last.who} on average up to {waits} for rank {last.load.rank}, "
        f"and {has} other work meanwhile"
    )


def _is_always_last(waits_us: collectives.Floats, place: int) -> bool:
    """Whether it is no chance that this member waits shortest; one step alone cannot tell and is
    taken as it is."""
    steps = waits_us.shape[1]
    shorter_us = np.delete(waits_us, place, axis=0).mean(axis=0) - waits_us[place]
    if steps == 1:
        return True
    return bool(shorter_us.mean() > SURE_FROM * shorter_us.std(ddof=1) / np.sqrt(steps))


def _compiled_alone(last: _Last, findings: m.Findings) -> str:
    """Say what the rank that comes last recompiles and no other does; empty where it does not."""
    compiled = [each for each in findings if each.rule in RECOMPILES]
    alone = _alone(last.load, compiled, lambda each: (each.rule, each.location))
    who = f"rank {last.load.rank} alone recompiles, and {last.who} for it, {last.part}"
    return clause(f"{who}: ", alone)


def _alone(late: m.RankLoad, findings: m.Findings, about: Callable[[m.Finding], object]) -> str:
    """Give the message and line of its first finding that is about nothing that another rank has;
    empty where there is none."""
    elsewhere = {about(each) for each in findings if each.run != late.run}
    for each in findings:
        if each.run == late.run and about(each) not in elsewhere:
            line = each.location and each.location.line
            return f"{each.message}{clause(' (line ', line, ')')}"
    return ""


def _function(found: m.Finding) -> tuple[str, str] | None:
    """On two ranks, its longest line need not be the same."""
    if found.location is None:
        return None
    return found.location.file, found.location.function


class _Why(m.Model, kw_only=False):
    """What takes the last rank longer than the others."""

    more_us: float  # than the median of them, in a step
    words: str  # "it computes longer"
    figures: str
    most: str = ""  # the kernel or operator that grew most


def _doubt(
    last: _Last,
    cause: m.LateCause,
    why: _Why,
    kernels: Kernels,
    bare_us: float | None,
    *,
    is_seen: bool,
) -> str:
    """Say why the last rank is not called late: what it does longer does not explain the wait, or
    the profiler may be what makes it slow. Empty where neither is so.

    All ranks may be as slow as their CPUs, the more so under instruments: the one that comes last
    is then a matter of little, and the others wait in its place. ``is_seen``: so is the code that
    its GPU waits for, which is no work of the profiler's.
    """
    needed_us = EXPLAINS_FROM * last.waited_us
    on_gpu = _on_gpu(kernels[last.load.run])
    longer_us = _cpu_longer_us(last, kernels)
    if cause is m.LateCause.HOST and longer_us is not None and longer_us < needed_us:
        return (
            f"but the CPU of rank {last.load.rank} works only "
            f"{figure(max(0.0, longer_us) / 1000)} ms longer"
        )
    if why.more_us < needed_us:
        return (
            f"but only {figure(max(0.0, why.more_us) / 1000)} ms of that are seen in what rank "
            f"{last.load.rank} does longer"
        )
    of_cpu = not on_gpu or (cause is m.LateCause.HOST and not is_seen)
    if of_cpu and bare_us is not None and last.waited_us - last.load.step_us + bare_us < needed_us:
        return (
            f"but without the profiler a step takes {figure(bare_us / 1000)} ms: "
            f"rank {last.load.rank} may be slow because it is watched"
        )
    return ""


def _on_gpu(kernels: m.Kernels) -> bool:
    return isinstance(kernels, m.KernelBreakdown) and kernels.device == "cuda"


@m.otherwise(None)
def _cpu_longer_us(last: _Last, kernels: Kernels) -> float | None:
    """How much longer in a step the CPU of the last rank works than those of the others; None where
    the traces do not show what the CPUs did."""
    traces = [kernels[load.run] for load in (last.load, *last.others)]
    if not all(map(_on_gpu, traces)):
        return None
    mine, *theirs = map(_cpu_us, traces)
    return max(own - median(each[place] for each in theirs) for place, own in enumerate(mine))


def _cpu_us(kernels: m.Kernels) -> tuple[float, float]:
    """Microseconds per traced step in which the CPU worked and did not wait for the GPU: with, and
    without, what nothing in the trace names."""
    times = m.known(m.known(kernels).host_time)
    parts = {part.name: part.mean_us for part in times.parts}
    worked_us = times.mean_us - parts.get(host_time.WAITING, 0.0)
    return worked_us, worked_us - parts.get(host_time.UNEXPLAINED, 0.0)


def _cause(last: _Last, kernels: Kernels) -> tuple[m.LateCause, _Why]:
    """What takes the last rank longest, against the median of the others, and the kernel or
    operator that grew most."""

    def beyond(value: Callable[[m.RankLoad], float], words: str) -> _Why:
        mine = value(last.load)
        theirs = median(value(load) for load in last.others)
        figures = f"{figure(mine / 1000)} vs {figure(theirs / 1000)} ms per step"
        return _Why(mine - theirs, words, figures)

    waits = "it spends longer in Python between operators"
    if _on_gpu(kernels[last.load.run]):
        waits = "its GPU waits longer for its CPU"
    causes = {
        m.LateCause.COMPUTE: beyond(
            lambda load: load.compute_us - load.copies_us, "it computes longer"
        ),
        m.LateCause.HOST: beyond(lambda load: load.idle_us, waits),
        m.LateCause.COPIES: beyond(lambda load: load.copies_us, "its copies take longer"),
    }
    cause = max(causes, key=lambda each: causes[each].more_us)
    why = causes[cause]
    if cause is not m.LateCause.HOST:
        most = _grew_most(last, kernels, why.more_us, copies=cause is m.LateCause.COPIES)
        why = replace(why, most=most)
    return cause, why


def _grew_most(last: _Last, kernels: Kernels, more_us: float, *, copies: bool) -> str:
    """Name the kernel, operator or copy that makes up more than half of it; empty where none
    does."""
    mine, *theirs = (
        _by_name(load, kernels[load.run], copies=copies) for load in (last.load, *last.others)
    )
    growth = {
        name: us - median(other.get(name, 0.0) for other in theirs) for name, us in mine.items()
    }
    most = max(growth, key=lambda name: growth[name], default="")
    if not most or growth[most] <= more_us / 2:
        return ""
    return f", most of it {short_name(most)}"


def _by_name(load: m.RankLoad, kernels: m.Kernels, *, copies: bool) -> dict[str, float]:
    """Microseconds in a step."""
    not_work = (m.KernelKind.FRAMEWORK, m.KernelKind.COMMUNICATION)
    return {
        row.name: row.total_us / load.steps
        for row in m.known(kernels).rows
        if row.kind not in not_work and (row.generator == "memcpy") == copies
    }


@m.skippable
def _load(key: m.RunKey, rank: int, traced: m.Kernels) -> m.RankLoad | m.Skipped:
    kernels = m.known(traced)
    talk = m.known(kernels.communication)
    steps = kernels.steps
    if not steps:
        return m.Skipped("the trace marks no steps (ProfilerStep#), so there is no common unit")
    return m.RankLoad(
        run=key,
        rank=rank,
        steps=steps,
        step_us=kernels.window_us / steps,
        busy_us=(talk.work_us + talk.exposed_us) / steps,
        idle_us=(kernels.window_us - talk.work_us - talk.exposed_us) / steps,
        compute_us=talk.work_us / steps,
        communication_us=talk.busy_us / steps,
        exposed_us=talk.exposed_us / steps,
        copies_us=talk.copies_us / steps,
    )


def _straggler(ranks: Sequence[m.RankLoad], why: str) -> _Judged:
    """By compute alone, where ``why`` the waits are not known."""
    slowest = max(ranks, key=lambda load: load.compute_us)
    middle = median(load.compute_us for load in ranks)
    figures = (
        f"{figure(slowest.compute_us / 1000)} ms of compute per step, median "
        f"{figure(middle / 1000)}"
    )
    unknown = f"whether the others wait for it is not known: {why}"
    if not middle or slowest.compute_us < STRAGGLES_FROM * middle:
        return _Judged(
            f"no rank computes {STRAGGLES_FROM}× as long as the median (rank {slowest.rank}: "
            f"{figures}); {unknown}"
        )
    longer = f"{slowest.compute_us / middle:.2f}× as long as the median ({figures})"
    return _Judged(f"rank {slowest.rank} computes {longer}; {unknown}", straggler=slowest.run)
