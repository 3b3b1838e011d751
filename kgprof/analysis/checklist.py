"""The practices that torch.compile and CUDA graphs reward, each looked at on this program: pass, fail, not observed.

An item fails by findings (or figures) of this Profile and names them. It passes only by something that was seen: where
nothing was looked at, or there was nothing to look at, it is not observed, with the reason. What a practice forbids is
judged by its effect and not by the words of the program: nobody reads whether ``fullgraph=True`` stands in it, but
whether it would hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.analysis.buffer_copies import BufferCopies, buffer_copies
from kgprof.collectors import (
    addresses,
    aliases,
    cuda_graphs,
    device_idle,
    graph_breaks,
    mutations,
    recompiles,
    skipped_frames,
    syncs,
)
from kgprof.collectors.tensor_facts import RunTensors, run_tensors
from kgprof.reading.evidence import Evidence
from kgprof.wording import plural, short

SEPARATE_COPIES = 3  # from so many copy kernels a step for as many buffers one _foreach_copy_ pays
NAMED = 3  # runs; beyond it their number says more than their names
EAGER_SHARE = 0.25  # of the device time: what eager code may take before it is worth compiling

_DATA_DEPENDENT = {"GB0033", "GB0034", "GB0035", "GB0170"}  # torch's registry: data-dependent operator, assert, branch
_SAYS = re.compile(r"\bprint\s*\(|\blogg(?:er|ing)\.\w+\s*\(|\bwarnings\.warn\s*\(")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the items are judged by, gathered once."""

    evidence: Evidence
    runs: tuple[m.RunReport, ...]  # those that compile
    findings: Sequence[m.Finding]
    trade_offs: Sequence[m.TradeOff]
    tensors: tuple[RunTensors, ...]
    buffers: tuple[BufferCopies, ...]
    compiled: tuple[m.RunKey, ...] = ()  # runs with at least one compiled graph whose records are whole

    @property
    def on_cuda(self) -> bool:
        return self.evidence.device == "cuda"

    @property
    def not_compiled(self) -> str:
        return "" if self.compiled else "nothing was compiled, or its records are not whole"

    @property
    def read_watched(self) -> list[m.RunKey]:
        """Runs whose reads MEMORY counted."""
        return [
            run.key
            for run in self.runs
            if isinstance(run.memory, m.MemorySummary) and not isinstance(run.memory.syncs_per_step, m.Skipped)
        ]

    def of(self, *rules: m.Rule) -> list[m.Finding]:
        """Findings of these rules in runs that compile; a note speaks against nothing."""
        ids = {rule.id for rule in rules}
        return [one for one in self.findings if one.rule in ids and one.level is not m.Level.NOTE and _compiles(one)]

    def requested(self) -> list[m.RunKey]:
        """Runs in which Inductor was asked for CUDA graphs."""
        return [
            run.key
            for run in self.evidence.recording.runs
            if isinstance(run.records, m.CompileRecords) and any(graph.cuda_graphs for graph in run.records.graphs)
        ]

    def conds(self) -> list[m.RunKey]:
        """Runs in which a compiled graph took a decision by torch.cond."""
        return [
            run.key
            for run in self.evidence.recording.runs
            if isinstance(run.memory, m.MemoryPass)
            and isinstance(run.memory.syncs, m.SyncRecords)
            and any(record.operator == "cond" for record in run.memory.syncs.records)
        ]

    def unwatched(self) -> str:
        """Why no tensor was looked at; empty where some were."""
        if any(graph.inputs for run in self.tensors for graph in run.tensors.graphs):
            return ""
        if self.tensors:
            return "no compiled graph ran while MEMORY watched"
        reasons = (run.memory.reason for run in self.evidence.recording.runs if isinstance(run.memory, m.Skipped))
        return next(reasons, "MEMORY could not watch tensors")


def checklist(
    evidence: Evidence, runs: Sequence[m.RunReport], findings: Sequence[m.Finding], trade_offs: Sequence[m.TradeOff]
) -> tuple[m.ChecklistItem, ...]:
    """In one order always. Empty for a gate, which has budgets instead."""
    if evidence.recording.header.options.for_a_gate:
        return ()
    compiled = tuple(
        run.key
        for run in evidence.recording.runs
        if isinstance(run.records, m.CompileRecords)
        and not run.records.left_out
        and run.key.mode != m.EAGER
        and isinstance(run.compile, m.CompilePass)
        and run.compile.compilations
    )
    seen = Seen(
        evidence=evidence,
        runs=tuple(run for run in runs if run.key.mode != m.EAGER),
        findings=findings,
        trade_offs=tuple(one for one in trade_offs if one.guarded.mode != m.EAGER),
        tensors=tuple(run for run in evidence.once(run_tensors) if run.key.mode != m.EAGER),
        buffers=tuple(run for run in evidence.once(buffer_copies) if run.run.mode != m.EAGER),
        compiled=compiled,
    )
    return (*_for_cuda_graphs(seen), *_for_compile(seen), *_for_cond(seen), *_for_speed(seen))


def _compiles(finding: m.Finding) -> bool:
    return finding.run is None or finding.run.mode != m.EAGER


def _at(one: m.Finding | aliases.Alias) -> tuple[object, ...]:
    """Where a finding or an event stands: the same for an event and the finding that it became."""
    return one.run, one.location and (one.location.file, one.location.line)


# ---------------------------------------------------------------- CUDA graphs


def _for_cuda_graphs(seen: Seen) -> Iterator[m.ChecklistItem]:
    unwatched = seen.unwatched()
    for_sizes = [
        event
        for event in seen.evidence.once(recompiles.collect)
        if any(recompile.guard.kind in ("size", "stride", "rank") for recompile in event.recompiles)
    ]
    # Also those that are none yet on this CPU and will be one on CUDA.
    inside = [event for event in seen.evidence.once(syncs.collect) if event.where == syncs.COMPILED]
    yield _item(
        "buffers-allocated-once",
        "Persistent buffers are allocated once",
        against=seen.of(addresses.UNSTABLE),
        failed=[f"{', '.join(one.rebound)} rebound in {one.run.slug}" for one in seen.buffers if one.rebound],
        passed=_addresses(seen),
        unseen=unwatched,
    )
    yield _item(
        "captured-by-reference",
        "A CUDA graph finds its inputs where they were, and copies none",
        against=[found for found in seen.findings if found.rule == addresses.COPIED.id and seen.on_cuda],
        passed="no input was copied before a replay",
        unseen=_why_no_replay(seen),
    )
    yield _item(
        "no-writes-inside",
        "Compiled functions return new tensors and write to none they were given",
        against=seen.of(mutations.INPUT_MUTATED),
        passed=f"{_graphs(seen)} wrote to no input but at a fixed address",
        unseen=unwatched,
    )
    yield _copied_outside(seen)
    yield _steps_marked(seen)
    yield _item(
        "static-shapes",
        "Every call has the same shapes",
        against=[found for found in recompiles.diagnose(tuple(for_sizes)) if found.level is not m.Level.NOTE],
        passed=f"nothing was compiled again for a size in {_named(seen.compiled)}",
        unseen=seen.not_compiled,
    )
    yield _item(
        "no-reads-inside",
        "No tensor is read by the host inside a compiled function",
        against=[found for found in syncs.diagnose(tuple(inside)) if _compiles(found)],
        passed=f"no read in the compiled regions of {_named(seen.read_watched)}",
        unseen="" if seen.read_watched else "no run's reads were watched",
    )


def _addresses(seen: Seen) -> str:
    inputs = [(run, tensor) for run in seen.tensors for graph in run.tensors.graphs for tensor in graph.inputs]
    kept = sum(not any(run.steady(held.moved) for held in tensor.held) for run, tensor in inputs)
    buffers = sum(len(one.copied) + len(one.mutated) + len(one.unwritten) for one in seen.buffers)
    declared = f"; {plural(buffers, 'declared buffer')}, none of them rebound" if buffers else ""
    others = " (of the others none lives from call to call)" if kept < len(inputs) else ""
    of_all = f"{kept:,} of {plural(len(inputs), 'input')} of {_graphs(seen)}"
    return f"{of_all} kept their addresses after warm-up{others}{declared}"


def _graphs(seen: Seen) -> str:
    graphs = sum(len(run.tensors.graphs) for run in seen.tensors)
    return f"{plural(graphs, 'compiled graph')} of {_named([run.key for run in seen.tensors])}"


def _why_no_replay(seen: Seen) -> str:
    if not seen.on_cuda:
        return "a CPU has no CUDA graphs"
    if not seen.requested():
        return "no run asked for CUDA graphs (mode reduce-overhead or max-autotune)"
    replayed = [
        run.key
        for run in seen.runs
        if isinstance(run.kernels, m.KernelBreakdown)
        and isinstance(run.kernels.graph_launches, int)
        and run.kernels.graph_launches
    ]
    return "" if replayed else "no CUDA graph was replayed in TRACE"


def _copied_outside(seen: Seen) -> m.ChecklistItem:
    """Of declared buffers: rebound and written-inside ones break the pattern."""
    bad = [
        f"{', '.join(names)} {how} in {one.run.slug}"
        for one in seen.buffers
        for names, how in ((one.rebound, "rebound"), (one.mutated, "written to inside a compiled function"))
        if names
    ]
    copied = [one for one in seen.buffers if one.copied]
    return _item(
        "copied-outside",
        "Persistent buffers get their next values by copy_ outside of compiled code",
        failed=bad,
        passed=f"{plural(len({name for one in copied for name in one.copied}), 'buffer')} copied into, "
        f"none rebound or written to inside, in {_named(one.run for one in copied)}",
        unseen=""
        if bad or copied
        else "no declared buffer is written to"
        if seen.buffers
        else "the workload declares no persistent buffers",
    )


def _steps_marked(seen: Seen) -> m.ChecklistItem:
    kept = [e for e in seen.evidence.once(aliases.collect) if e.kind == aliases.REPLAY and e.serious]
    held = {_at(event) for event in kept}
    against = [finding for finding in seen.of(aliases.OUTPUTS) if _at(finding) in held]
    marked = [run for run in seen.tensors if run.tensors.steps_marked]
    asked = {*seen.requested()}
    return _item(
        "steps-marked",
        "No result of a CUDA graph is kept beyond the next replay (torch.compiler.cudagraph_mark_step_begin())",
        against=against,
        passed="none was kept; "
        + (", ".join(f"{plural(run.tensors.steps_marked, 'step')} marked in {run.key.slug}" for run in marked))
        if marked
        else "none was kept, though no step was marked",
        unseen=_why_no_replay(seen) or ("" if asked & {run.key for run in seen.tensors} else seen.unwatched()),
    )


# ---------------------------------------------------------------- torch.compile


def _for_compile(seen: Seen) -> Iterator[m.ChecklistItem]:
    events = seen.evidence.once(graph_breaks.collect)
    breaks = list(zip(events, graph_breaks.diagnose(events), strict=True))
    # A number that the function takes may be symbolic as well; only ``x.size()[0]`` is a tensor's.
    symbolic = [
        f"{run.key.slug} has symbolic sizes"
        for run in seen.evidence.recording.runs
        if isinstance(run.records, m.CompileRecords)
        and any(
            isinstance(symbol := record.metadata.get("create_symbol"), dict) and ".size()" in str(symbol.get("source"))
            for record in run.records.records
        )
    ]
    yield _cuda_graphs_tried(seen)
    yield _item(
        "whole-graphs",
        "Every compiled function is one graph, so that fullgraph=True would hold",
        against=seen.of(graph_breaks.GRAPH_BREAK, skipped_frames.SKIPPED_FRAME),
        passed=f"no graph break and no frame in eager in {_named(seen.compiled)}",
        unseen=seen.not_compiled,
    )
    yield _item(
        "no-dynamic-shapes",
        "Nothing is compiled for sizes that never change (dynamic=False would hold)",
        failed=symbolic,
        passed=f"every size is a constant in {_named(seen.compiled)}",
        unseen=seen.not_compiled,
    )
    yield _item(
        "no-branch-on-values",
        "Python takes no decision by a tensor's value in compiled code",
        against=[finding for event, finding in breaks if _DATA_DEPENDENT & set(event.refusal.cause.gb_ids)],
        passed=f"no graph break for a value in {_named(seen.compiled)}",
        unseen=seen.not_compiled,
    )
    yield _item(
        "no-prints",
        "Compiled functions neither print nor log",
        against=[finding for event, finding in breaks if event.location and _SAYS.search(event.location.text)],
        passed=f"no graph break at a line that prints, warns or logs in {_named(seen.compiled)}",
        unseen=seen.not_compiled,
    )


def _cuda_graphs_tried(seen: Seen) -> m.ChecklistItem:
    """Where the device waits for the host, CUDA graphs are the first thing to try."""
    requested = seen.requested()
    timed = [
        run.key
        for run in seen.runs
        if isinstance(run.step, m.Spread)
        and isinstance(run.kernels, m.KernelBreakdown)
        and run.kernels.device == "cuda"
    ]
    return _item(
        "cuda-graphs-tried",
        "Inference that waits for the host is tried with CUDA graphs (mode='reduce-overhead')",
        against=[] if requested else seen.of(*device_idle.RULES),
        passed=f"CUDA graphs were asked for in {_named(requested)}"
        if requested
        else f"the device works for most of the step in {_named(timed)}",
        unseen="a CPU has no CUDA graphs"
        if not seen.on_cuda
        else ""
        if requested or timed
        else "no run on a GPU has both TIMING and a trace",
    )


# ---------------------------------------------------------------- torch.cond


def _for_cond(seen: Seen) -> Iterator[m.ChecklistItem]:
    conds = seen.conds()
    refused = [event for event in seen.evidence.once(aliases.collect) if event.rule == aliases.COND.id]
    none = "" if conds or refused else "no torch.cond ran in compiled code while MEMORY watched"
    compiled = f"torch compiled it in {_named(conds)}"
    yield _item(
        "cond-predicate",
        "The predicate of torch.cond is one boolean tensor",
        passed=f"{compiled}, and refuses any other predicate",
        unseen="" if conds else none or "torch refused the branches before it came to run",
    )
    yield _item(
        "cond-branches-match",
        "Both branches of torch.cond return as many tensors, of the same shapes and types",
        passed=f"{compiled}, and refuses branches that differ",
        unseen="" if conds else none or "torch refused the branches for another reason",
    )
    for id_, title, kind, done in (
        ("cond-no-aliasing", "No branch of torch.cond returns an operand as it is", aliases.ALIASING, "returns"),
        ("cond-no-writes", "No branch of torch.cond writes to an operand", aliases.MUTATION, "writes to"),
    ):
        at = {_at(event) for event in refused if event.kind == kind}
        yield _item(
            id_,
            title,
            against=[finding for finding in seen.of(aliases.COND) if _at(finding) in at],
            passed=f"{compiled}, and refuses a branch that {done} its operand",
            unseen="" if conds or at else none or "torch refused the branches for another reason",
        )
    lost_by = (cuda_graphs.SKIPPED, cuda_graphs.PARTITIONED, cuda_graphs.NONE_LAUNCHED)
    together = "" if set(seen.requested()) & set(conds) else "no run with torch.cond asked for CUDA graphs"
    yield _item(
        "cond-costs-cuda-graphs",
        "torch.cond does not stand where CUDA graphs were asked for",
        against=[f for f in seen.of(*lost_by) if f.run in conds],
        passed=f"CUDA graphs were asked for in {_named(seen.requested())} and torch.cond cost none",
        unseen=none
        or (together if seen.on_cuda else "a CPU has no CUDA graphs; on a GPU torch.cond is left out of them"),
    )


# ---------------------------------------------------------------- speed


def _for_speed(seen: Seen) -> Iterator[m.ChecklistItem]:
    traced = [
        run.key for run in seen.runs if isinstance(run.kernels, m.KernelBreakdown) and run.kernels.device == "cuda"
    ]
    yield _item(
        "device-profiled",
        "Times of the device come from its own events, not from a profiler of Python",
        passed=f"{m.PassName.TRACE.upper()} holds the device's kernels of {_named(traced)}",
        unseen="" if traced else "no run has a trace with device events" if seen.on_cuda else "this is a CPU run",
    )
    yield _item(
        "few-reads",
        "The host reads nothing from the device in the loop",
        against=seen.of(*syncs.WAITING),
        passed=f"0 reads per step in {_named(seen.read_watched)}",
        unseen="" if seen.read_watched else "no run's reads were watched",
    )
    yield _copies_together(seen)
    yield _weighed(seen)
    yield _compiled_share(seen)


def _copies_together(seen: Seen) -> m.ChecklistItem:
    costs = [(one, one.cost) for one in seen.buffers if one.copied and not isinstance(one.cost, m.Skipped)]
    apart = [
        f"{one.run.slug}: {cost.kernels:.0f} copies per step for {plural(len(one.copied), 'buffer')}"
        for one, cost in costs
        if cost.kernels >= SEPARATE_COPIES and seen.on_cuda and cost.kernels >= len(one.copied)
    ]
    skipped = [one.cost.reason for one in seen.buffers if isinstance(one.cost, m.Skipped)]
    return _item(
        "copied-together",
        "Several buffers are copied with one torch._foreach_copy_",
        failed=apart,
        passed="; ".join(
            f"{one.run.slug}: {short(cost.kernels)} {'copy' if cost.kernels == 1 else 'copies'} per step for "
            f"{plural(len(one.copied), 'buffer')}, "
            f"{cost.share:.1%} of the time"
            for one, cost in costs
        ),
        unseen=""
        if costs and seen.on_cuda
        else "a CPU launches no kernels: one copy or several cost the same"
        if costs
        else next(iter(skipped), "the workload declares no persistent buffers"),
    )


def _weighed(seen: Seen) -> m.ChecklistItem:
    by = {
        verdict: [one for one in seen.trade_offs if one.verdict == verdict]
        for verdict in (m.ReadVerdict.REMOVE, m.ReadVerdict.KEEP)
    }
    undecided = next((one.text for one in seen.trade_offs), "the workload declares no alternatives to weigh")
    return _item(
        "reads-weighed",
        "A read that saves work saves more than it costs",
        failed=[f"{one.guarded.slug} takes longer than {one.always.slug}" for one in by[m.ReadVerdict.REMOVE]],
        passed="; ".join(f"{one.guarded.slug} takes less than {one.always.slug}" for one in by[m.ReadVerdict.KEEP]),
        unseen="" if any(by.values()) else undecided,
    )


def _compiled_share(seen: Seen) -> m.ChecklistItem:
    shares = [
        (run.key, 1 - sum(one.total_us for one in regions[:-1]) / total)
        for run in seen.runs
        if isinstance(run.kernels, m.KernelBreakdown) and (regions := run.kernels.by_region)
        for total in (sum(one.total_us for one in regions),)
        if total
    ]
    said = [f"{share:.0%} in {key.slug}" for key, share in shares]
    eager = [words for words, (_, share) in zip(said, shares, strict=True) if share > EAGER_SHARE]
    return _item(
        "expensive-parts-compiled",
        f"What costs time on the device is compiled (eager code launches at most {EAGER_SHARE:.0%} of it)",
        failed=[f"launched outside of compiled code: {', '.join(eager)}"] if eager else [],
        passed=f"launched outside of compiled code: {', '.join(said)}",
        unseen="" if shares else "only a trace of a GPU tells what was launched where",
    )


# ---------------------------------------------------------------- one item


def _item(
    id_: str,
    title: str,
    *,
    passed: str,
    unseen: str = "",
    against: Sequence[m.Finding] = (),
    failed: Sequence[str] = (),
) -> m.ChecklistItem:
    """Something against it outweighs everything; then comes why it could not be seen."""
    if against or failed:
        evidence = "; ".join(failed)
        if against:  # the first one's message; the others are behind the links
            where = f" ({against[0].run.slug})" if against[0].run else ""
            more = f", and {plural(len(against) - 1, 'finding')} more" if len(against) > 1 else ""
            words = f"{against[0].rule}: {against[0].message}{where}{more}"
            evidence = f"{evidence}; {words}" if failed else words
        marks = tuple(dict.fromkeys(finding.fingerprint for finding in against if finding.fingerprint))
        return m.ChecklistItem(id=id_, title=title, status=m.PracticeStatus.FAIL, evidence=evidence, findings=marks)
    if unseen:
        return m.ChecklistItem(id=id_, title=title, status=m.PracticeStatus.NOT_OBSERVED, evidence=unseen)
    return m.ChecklistItem(id=id_, title=title, status=m.PracticeStatus.PASS, evidence=passed)


def _named(runs: Iterable[m.RunKey]) -> str:
    names = tuple(dict.fromkeys(key.slug for key in runs))
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} runs"
