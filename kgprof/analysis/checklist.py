"""The practices that torch.compile and CUDA graphs reward, each looked at on this program: pass,
fail, not observed.

An item fails by findings (or figures) of this Profile and names them. It passes only by something
that was seen, in runs in which its rules were looked for (the Profile's coverage): where they were
not, or there was nothing to look at, it is not observed, with the reason. What a practice forbids
is judged by its effect and not by the words of the program: nobody reads whether ``fullgraph=True``
stands in it, but whether it would hold.

One item needs to know how declared buffers get their next values, and what the copies cost: kernels
per step, and their share of the time. A copy is ``copy_`` or ``_foreach_copy_`` called from eager
code, so outside of every compiled region and of every other operator. A trace does not say into
which tensor, so all such copies of a step are counted, whether they go into a declared buffer or
not.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from kgprof import coverage
from kgprof import model as m
from kgprof.collectors import (
    addresses,
    aliases,
    cuda_graphs,
    device_idle,
    graph_breaks,
    matmul_precision,
    mutations,
    recompiles,
    syncs,
)
from kgprof.collectors.addresses import COPIED_INTO, MUTATED, REBOUND, UNWRITTEN, BufferUse
from kgprof.collectors.skipped_frames import SKIPPED_FRAME
from kgprof.collectors.tensor_facts import RunTensors, run_tensors, said
from kgprof.reading import launches
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import Launched, launched_in_trace
from kgprof.reading.timeline import NOBODY, STEP_PREFIX
from kgprof.wording import plural, relative, short

COPIES = ("aten::_foreach_copy_", "aten::copy_")
ONE_COPY = "aten::copy_"
NONE_COPIED = m.Skipped("no declared buffer is copied into outside of compiled code")


class CopyCost(m.Tagged):
    """Per step of ``measured_in``: CUDA: kernels and copies on the device; CPU: ``aten::copy_``
    operators."""

    kernels: float
    duration_us: float
    share: float  # of the duration of all kernels (CUDA) or of all outermost operators (CPU), 0..1
    measured_in: m.PassName


class BufferCopies(m.Model):
    """One run that declares buffers; their names by pattern."""

    run: m.RunKey
    copied: tuple[str, ...]
    dtypes: int  # of those; one _foreach_copy_ of tensors of one dtype is one kernel
    mutated: tuple[str, ...]  # inside a compiled region
    rebound: tuple[str, ...]
    unwritten: tuple[str, ...]
    cost: CopyCost | m.Skipped


def buffer_copies(evidence: Evidence) -> tuple[BufferCopies, ...]:
    """In the plan's order; nothing for a run that declares no buffers or whose MEMORY pass watched
    none."""
    named: dict[m.RunKey, dict[str, list[str]]] = {}
    dtypes: dict[m.RunKey, set[str]] = defaultdict(set)
    for event in evidence.once(addresses.collect):
        if isinstance(event, BufferUse):
            by_pattern = named.setdefault(
                event.run, {each: [] for each in (COPIED_INTO, MUTATED, REBOUND, UNWRITTEN)}
            )
            by_pattern[event.pattern].append(event.name)
            dtypes[event.run] |= {event.dtype} if event.pattern == COPIED_INTO else set()
    return tuple(
        BufferCopies(
            run=run.key,
            dtypes=len(dtypes[run.key]),
            cost=_cost(run) if named[run.key][COPIED_INTO] else NONE_COPIED,
            **{pattern: tuple(names) for pattern, names in named[run.key].items()},
        )
        for run in evidence.runs
        if run.key in named
    )


def _cost(run: RunEvidence) -> CopyCost | m.Skipped:
    traced, trace, work = run.record.trace, run.trace(m.PassName.TRACE), run.once(launched_in_trace)
    if isinstance(traced, m.Skipped) or isinstance(trace, m.Skipped) or isinstance(work, m.Skipped):
        return m.first_skipped(traced, trace, work)
    return cost(
        trace.columns, work if run.whole.device == "cuda" else None, steps=len(traced.step_us)
    )


def cost(columns: Columns, work: Launched | None, *, steps: int) -> CopyCost | m.Skipped:
    """What the copies in a trace of ``steps`` steps cost. ``work``: what ran on the GPU; None for a
    CPU run."""
    outermost = launches.outermost(
        columns, columns.of_category("cpu_op") & ~columns.named(STEP_PREFIX)
    )
    copies = np.zeros(len(columns), np.bool_)
    copies[outermost] = columns.named(*COPIES)[outermost]
    if not len(outermost) or not steps:
        return m.Skipped("the trace has no operator")
    if work is None:
        single = np.flatnonzero(columns.of_category("cpu_op") & columns.named(ONE_COPY))
        kernels = int((launches.innermost(columns, copies, single) != NOBODY).sum())
        spent_ns, total_ns = (
            int(columns.duration_ns[which].sum()) for which in (copies, outermost)
        )
    else:
        ours = work.events[launches.innermost(columns, copies, work.calls) != NOBODY]
        kernels = len(ours)
        spent_ns, total_ns = (
            int(columns.duration_ns[which].sum()) for which in (ours, work.events)
        )
    if not total_ns:
        return m.Skipped("nothing ran on the GPU in the traced steps")
    return CopyCost(
        kernels=kernels / steps,
        duration_us=spent_ns / steps / 1000,
        share=spent_ns / total_ns,
        measured_in=m.PassName.TRACE,
    )


# from so many copy kernels a step, and more than dtypes, one _foreach_copy_ a dtype pays
SEPARATE_COPIES = 3
NAMED = 3  # runs; beyond it their number says more than their names
EAGER_SHARE = 0.25  # of the device time: what eager code may take before it is worth compiling

# Every item, in the order of the report.
TITLES = {
    "buffers-allocated-once": "Persistent buffers are allocated once",
    "captured-by-reference": "CUDA graph inputs keep their addresses, so none is copied",
    "no-writes-inside": "Compiled functions return new tensors and do not write to their arguments",
    "copied-outside": "Persistent buffers are updated by copy_ outside compiled code",
    "steps-marked": "No result of a CUDA graph is kept beyond the next replay "
    "(torch.compiler.cudagraph_mark_step_begin())",
    "static-shapes": "Every call has the same shapes",
    "no-reads-inside": "No sync inside a compiled function",
    "cuda-graphs-tried": (
        "CUDA graphs (mode='reduce-overhead') are tried where the GPU waits for the CPU"
    ),
    "whole-graphs": "Every compiled function is one graph (fullgraph=True would work)",
    "no-dynamic-shapes": "No dynamic shapes are compiled",
    "no-branch-on-values": "No Python branch on a tensor's value in compiled code",
    "no-prints": "Compiled functions neither print nor log",
    "no-recompile-in-loop": "No function is compiled again and again after warm-up",
    "mixed-precision": (
        "Matmuls run in bfloat16 or float16 if that makes this GPU faster (torch.autocast)"
    ),
    "measured-against-eager": "Compiled code was timed against eager",
    "plain-checkpoints": "Checkpoints have the uncompiled module's keys, without _orig_mod.",
    "cond-predicate": "The predicate of torch.cond is one boolean tensor",
    "cond-branches-match": (
        "Both branches of torch.cond return the same number of tensors, with equal shapes and "
        "dtypes"
    ),
    "cond-no-aliasing": "No branch of torch.cond returns an operand without a copy",
    "cond-no-writes": "No branch of torch.cond writes to an operand",
    "cond-costs-cuda-graphs": "No torch.cond inside CUDA-graph code",
    "device-profiled": "GPU times come from GPU events, not from a Python profiler",
    "few-reads": "No sync in the step loop",
    "copied-together": "Several buffers are copied with one torch._foreach_copy_",
    "reads-weighed": "Syncs that skip work are worth it",
    "expensive-parts-compiled": (
        f"Most GPU time is compiled code (eager code launches at most {EAGER_SHARE:.0%} of it)"
    ),
}

# torch's registry: data-dependent operator, assert, branch
_DATA_DEPENDENT = {"GB0033", "GB0034", "GB0035", "GB0170"}
_SAYS = re.compile(r"\bprint\s*\(|\blogg(?:er|ing)\.\w+\s*\(|\bwarnings\.warn\s*\(")
NO_CUDA_GRAPHS = "a CPU has no CUDA graphs"
NO_BUFFERS = "the workload declares no persistent buffers"


class Seen:
    """What the items are judged by, gathered once: of the runs that compile."""

    def __init__(
        self,
        evidence: Evidence,
        runs: Sequence[m.RunReport],
        findings: Sequence[m.Finding],
        trade_offs: Sequence[m.TradeOff],
        covered: Sequence[m.Coverage],
    ) -> None:
        self.evidence, self.findings = evidence, findings
        self.covered = covered
        self.on_cuda = evidence.device == "cuda"
        self.runs = [run for run in runs if run.key.mode != m.EAGER]
        self.timed_in_eager = {
            run.key.strategy
            for run in runs
            if run.key.mode == m.EAGER and isinstance(run.step, m.Spread)
        }
        self.trade_offs = [one for one in trade_offs if one.guarded.mode != m.EAGER]
        watched = self.looked_for(addresses.UNSTABLE)
        self.tensors = [run for run in evidence.once(run_tensors) if run.key in watched]
        self.buffers = [run for run in evidence.once(buffer_copies) if run.run.mode != m.EAGER]
        # What ran on the GPU in each.
        self.kernels = {
            run.key: run.kernels
            for run in self.runs
            if isinstance(run.kernels, m.KernelBreakdown) and run.kernels.device == "cuda"
        }
        # Whose reads MEMORY counted.
        self.read_watched = [
            run.key
            for run in self.runs
            if isinstance(run.memory, m.MemorySummary)
            and not isinstance(run.memory.syncs_per_step, m.Skipped)
        ]
        recorded = [
            (run, run.records)
            for run in evidence.recording.runs
            if isinstance(run.records, m.CompileRecords)
        ]
        # With at least one compiled graph, whose records are whole.
        whole = self.looked_for(graph_breaks.GRAPH_BREAK)
        self.compiled = [
            run.key
            for run in self.runs
            if run.key in whole
            and isinstance(run.compile, m.CompileSummary)
            and _made_a_graph(run.compile)
        ]
        # Calls of compiled functions after warm-up: no guard looked at what they were given.
        self.eager_calls = sum(
            sum(run.compile.compiled_calls.eager.values())
            for run in self.runs
            if isinstance(run.compile, m.CompileSummary)
            and isinstance(run.compile.compiled_calls, m.CallsOfCompiled)
        )
        # In which Inductor was asked for CUDA graphs, eager ones too.
        self.requested = [
            run.key
            for run, records in recorded
            if any(graph.cuda_graphs for graph in records.graphs)
        ]
        # In which a compiled graph took a decision by torch.cond.
        self.conds = [
            run.key
            for run in evidence.recording.runs
            if isinstance(run.memory, m.MemoryPass)
            and isinstance(run.memory.syncs, m.SyncRecords)
            and any(record.operator == "cond" for record in run.memory.syncs.records)
        ]

    def of(self, *rules: m.Rule) -> list[m.Finding]:
        """Findings of these rules in runs that compile; a note speaks against nothing."""
        ids = {rule.id for rule in rules}
        return [one for one in self.findings if one.rule in ids and one.counts and _compiles(one)]

    def looked_for(self, *rules: m.Rule) -> list[m.RunKey]:
        """List the runs that compile in all of which each of these rules was looked for."""
        ids = [rule.id for rule in rules]
        return [run.key for run in self.runs if not coverage.missing(self.covered, run.key, *ids)]

    def missing(self, *rules: m.Rule) -> str:
        """Say why these rules were looked for in no run that compiles; empty where they were in
        one."""
        if self.looked_for(*rules):
            return ""
        ids = [rule.id for rule in rules]
        return next(
            (coverage.missing(self.covered, run.key, *ids) for run in self.runs), "no run compiles"
        )

    @property
    def unwatched(self) -> str:
        """Say why no tensor was looked at; empty where some were."""
        if any(graph.inputs for run in self.tensors for graph in run.tensors.graphs):
            return ""
        return self.missing(addresses.UNSTABLE) or "no compiled graph ran while MEMORY watched"

    @property
    def unread(self) -> str:
        """Say why no sync was counted; empty where they were in one run."""
        return (
            ""
            if self.read_watched
            else self.missing(*syncs.WAITING) or "the program has no steps to count"
        )

    @property
    def no_replay(self) -> str:
        """Why no CUDA graph was replayed; empty where one was."""
        if not self.on_cuda or not self.requested:
            none = "no run requested CUDA graphs (mode reduce-overhead or max-autotune)"
            return none if self.on_cuda else NO_CUDA_GRAPHS
        replays = (kernels.graph_launches for kernels in self.kernels.values())
        replayed = any(isinstance(count, int) and count for count in replays)
        return "" if replayed else "no CUDA graph was replayed in TRACE"


def checklist(
    evidence: Evidence,
    runs: Sequence[m.RunReport],
    findings: Sequence[m.Finding],
    trade_offs: Sequence[m.TradeOff],
    covered: Sequence[m.Coverage],
) -> tuple[m.ChecklistItem, ...]:
    """As TITLES has them, always. Empty for a gate, which has budgets instead."""
    if evidence.recording.header.options.for_a_gate:
        return ()
    seen = Seen(evidence, runs, findings, trade_offs, covered)
    judged = (
        *_for_cuda_graphs(seen),
        *_for_compile(seen),
        *_for_training(seen),
        *_for_cond(seen),
        *_for_speed(seen),
    )
    items = {item.id: item for item in judged}
    return tuple(items[id_] for id_ in TITLES)


def _compiles(finding: m.Finding) -> bool:
    return finding.run is None or finding.run.mode != m.EAGER


def _at(one: m.Finding | aliases.Alias) -> tuple[object, ...]:
    """Where a finding or an event stands: the same for an event and the finding that it became."""
    return one.run, one.location and (one.location.file, one.location.line)


def _for_cuda_graphs(seen: Seen) -> Iterator[m.ChecklistItem]:
    graphs = sum(len(run.tensors.graphs) for run in seen.tensors)
    of_graphs = f"{plural(graphs, 'compiled graph')} of {_named(run.key for run in seen.tensors)}"
    inputs = [
        (run, tensor)
        for run in seen.tensors
        for graph in run.tensors.graphs
        for tensor in graph.inputs
    ]
    kept = sum(not any(run.steady(held.moved) for held in tensor.held) for run, tensor in inputs)
    against = seen.of(addresses.UNSTABLE)
    carried = [] if against else [*filter(None, map(_carried, seen.tensors))]
    declared = sum(len(one.copied) + len(one.mutated) + len(one.unwritten) for one in seen.buffers)
    yield _item(
        "buffers-allocated-once",
        against=against,
        failed=[
            *carried,
            *(
                f"{', '.join(one.rebound)} replaced by a new tensor in {one.run.slug}"
                for one in seen.buffers
                if one.rebound
            ),
        ],
        passed=f"all {plural(len(inputs), 'input')} of {of_graphs} kept their addresses after "
        "warm-up"
        + (
            f"; {plural(declared, 'declared buffer')}, none replaced by a new tensor"
            if declared
            else ""
        ),
        unseen=seen.unwatched or _moving(len(inputs) - kept, of_graphs),
    )
    copied = [
        found for found in seen.findings if found.rule == addresses.COPIED.id and seen.on_cuda
    ]
    none = "no input was copied before a replay"
    unseen = seen.no_replay or seen.missing(addresses.COPIED)
    yield _item("captured-by-reference", against=copied, passed=none, unseen=unseen)
    yield _no_writes(seen, of_graphs)
    yield _copied_outside(seen.buffers)
    yield _steps_marked(seen)
    # Also those that are none yet on this CPU and will be one on CUDA.
    inside = [event for event in seen.evidence.once(syncs.collect) if event.where == syncs.COMPILED]
    yield _item(
        "no-reads-inside",
        against=[found for found in syncs.diagnose(tuple(inside)) if _compiles(found)],
        passed=f"no sync in the compiled regions of {_named(seen.read_watched)}",
        unseen=seen.unread or seen.unwatched,
    )


def _moving(number: int, of_graphs: str) -> str:
    """Of inputs at new addresses nobody knows whether they are new batches or replaced buffers."""
    if not number:
        return ""
    inputs = plural(number, "input")
    return f"{inputs} of {of_graphs} moved after warm-up: new batches, or buffers that are replaced"


def _carried(run: RunTensors) -> str:
    """Name what one call takes from an earlier one at a new address, which a script's owner is told
    nowhere else; empty where there is nothing."""
    names = dict.fromkeys(
        said(tensor.name)
        for _, tensor, held in addresses.passed_inputs(run)
        if held.made_before and run.steady(held.moved)
    )
    return f"{', '.join(names)} replaced by a new tensor in {run.key.slug}" if names else ""


def _no_writes(seen: Seen, of_graphs: str) -> m.ChecklistItem:
    """A script's findings are about CUDA graphs alone; what it writes to is named here."""
    written = [event for run in seen.tensors for event in mutations.writes(run)]
    moving = [event for event in written if event.kind != mutations.FIXED]
    fixed = "only to inputs with fixed addresses" if written else "to no input"
    against = seen.of(mutations.INPUT_MUTATED)
    words = {
        f"{event.function} writes to {', '.join(event.names)} ({event.run.slug})": None
        for event in moving
    }
    return _item(
        "no-writes-inside",
        against=against,
        failed=() if against else [*words][:NAMED],
        passed=f"{of_graphs} wrote {fixed}",
        unseen=seen.unwatched,
    )


def _copied_outside(buffers: Sequence[BufferCopies]) -> m.ChecklistItem:
    """Rebound and written-inside ones break the pattern."""
    bad = [
        f"{', '.join(names)} {how} in {one.run.slug}"
        for one in buffers
        for names, how in (
            (one.rebound, "rebound"),
            (one.mutated, "written to inside a compiled function"),
        )
        if names
    ]
    copied = [one for one in buffers if one.copied]
    none = "" if copied else "no declared buffer is written to" if buffers else NO_BUFFERS
    names = {name for one in copied for name in one.copied}
    runs = _named(one.run for one in copied)
    passed = (
        f"{plural(len(names), 'buffer')} updated by copy_, none replaced or written "
        f"to inside compiled code, in {runs}"
    )
    return _item("copied-outside", failed=bad, passed=passed, unseen=none)


def _steps_marked(seen: Seen) -> m.ChecklistItem:
    events = seen.evidence.once(aliases.collect)
    held = {_at(event) for event in events if event.kind == aliases.REPLAY and event.serious}
    steps = {run.key.slug: run.tensors.steps_marked for run in seen.tensors}
    marked = [
        f"{plural(number, 'step')} marked in {slug}" for slug, number in steps.items() if number
    ]
    watched = {*seen.requested} & {run.key for run in seen.tensors}
    return _item(
        "steps-marked",
        against=[finding for finding in seen.of(aliases.OUTPUTS) if _at(finding) in held],
        passed=f"none kept; {', '.join(marked)}"
        if marked
        else ("none kept (cudagraph_mark_step_begin() not called)"),
        unseen=seen.no_replay or ("" if watched else seen.unwatched),
    )


def _made_a_graph(summary: m.CompileSummary) -> bool:
    return any(not compilation.fail_reason for compilation in summary.compilations)


def _for_compile(seen: Seen) -> Iterator[m.ChecklistItem]:
    def in_compiled(
        id_: str,
        passed: str,
        against: Sequence[m.Finding] = (),
        failed: Sequence[str] = (),
        unseen: str = "",
    ) -> m.ChecklistItem:
        if not seen.compiled:
            unseen = seen.missing(graph_breaks.GRAPH_BREAK) or "nothing was compiled"
        return _item(
            id_,
            against=against,
            failed=failed,
            passed=f"{passed} in {_named(seen.compiled)}",
            unseen=unseen,
        )

    for_sizes = [
        event
        for event in seen.evidence.once(recompiles.collect)
        if any(recompile.guard.kind in ("size", "stride", "rank") for recompile in event.recompiles)
    ]
    again = [
        found for found in recompiles.diagnose(tuple(for_sizes)) if found.level is not m.Level.NOTE
    ]
    unseen = "what was recompiled because of a size was so in few calls" if for_sizes else ""
    if seen.eager_calls:
        unseen = (
            f"{plural(seen.eager_calls, 'call')} of compiled functions ran eagerly, with "
            "sizes that nobody saw"
        )
    yield in_compiled("static-shapes", "no recompile because of a size", again, unseen=unseen)
    yield _cuda_graphs_tried(seen)
    broken = seen.of(graph_breaks.GRAPH_BREAK, SKIPPED_FRAME)
    by_torch = sum(finding.made_by_torch and _compiles(finding) for finding in seen.findings)
    beside = f" besides {plural(by_torch, 'break')} that torch makes on purpose" if by_torch else ""
    yield in_compiled("whole-graphs", f"no graph break and no skipped frame{beside}", broken)
    # A number that the function takes may be symbolic as well; only ``x.size()[0]`` is a tensor's.
    symbolic = [
        f"{run.key.slug} has symbolic sizes: right if they change, else "
        "torch.compile(dynamic=False)"
        for run in seen.evidence.recording.runs
        if isinstance(run.records, m.CompileRecords)
        and any(
            isinstance(symbol := record.metadata.get("create_symbol"), dict)
            and ".size()" in str(symbol.get("source"))
            for record in run.records.records
        )
    ]
    yield in_compiled("no-dynamic-shapes", "every size is a constant", failed=symbolic)
    events = seen.evidence.once(graph_breaks.collect)
    breaks = list(zip(events, graph_breaks.diagnose(events), strict=True))
    on_values = [
        finding for event, finding in breaks if _DATA_DEPENDENT & set(event.refusal.cause.gb_ids)
    ]
    yield in_compiled("no-branch-on-values", "no graph break for a value", on_values)
    prints = [
        finding for event, finding in breaks if event.location and _SAYS.search(event.location.text)
    ]
    yield in_compiled("no-prints", "no graph break at a line that prints, warns or logs", prints)
    lines, failed = [each for run in seen.runs if run.script for each in run.script.checkpoints], []
    root = seen.evidence.recording.header.plan.environment.source_root
    strip = "{key.replace('_orig_mod.', ''): value for key, value in state.items()}"
    for line in lines:
        at = f"{relative(line.location.file, root)}:{line.location.line}"
        if line.into_compiled is None and line.compiled_keys:
            failed.append(
                f"{at} saves keys with _orig_mod.; save "
                f"{strip.replace('state.', 'model.state_dict().')}"
            )
        elif line.into_compiled and not line.compiled_keys:
            failed.append(
                f"{at} loads plain keys into a compiled module: load them before torch.compile"
            )
        elif line.into_compiled is False and line.compiled_keys:
            failed.append(
                f"{at} loads keys with _orig_mod. into a module that is not compiled: load {strip}"
            )
    passed = f"{plural(len(lines), 'line')} saved or loaded tensors, none under such keys,"
    yield in_compiled(
        "plain-checkpoints", passed, failed=failed, unseen="" if lines else "no checkpoint was seen"
    )


def _after_warm_up(compiled: m.CompileSummary, steady_from: int) -> list[m.Compilation]:
    """Without what belongs to the first calls of a module, as the list of recompiles says."""
    again = () if isinstance(compiled.recompiles, m.Skipped) else compiled.recompiles
    warm = {(each.compile_id, each.call) for each in again if not each.steady}
    late = (each for each in compiled.compilations if (each.call or 0) >= steady_from)
    return [each for each in late if (each.compile_id, each.call) not in warm]


def _for_training(seen: Seen) -> Iterator[m.ChecklistItem]:
    told_apart = seen.looked_for(*recompiles.RULES)
    steady_from = {
        run.key: run.compile.steady_from
        for run in seen.evidence.recording.runs
        if run.key in seen.compiled
        and run.key in told_apart
        and isinstance(run.compile, m.CompilePass)
    }
    warm = {
        run.key: _after_warm_up(run.compile, steady_from[run.key])
        for run in seen.runs
        if run.key in steady_from
        and isinstance(run.compile, m.CompileSummary)
        and all(one.call is not None for one in run.compile.compilations)
    }
    late = [
        f"torch compiles {function} in {plural(number, 'step')} of {key.slug} after warm-up"
        for key, compilations in warm.items()
        for (function, _), number in Counter(
            of for of, _ in {((one.function, one.location), one.call) for one in compilations}
        ).items()
        if number > 1
    ]
    number = sum(map(len, warm.values()))
    once = (
        f"{plural(number, 'compilation')} after warm-up in {_named(warm)}, each "
        "function in one step only"
    )
    against = seen.of(recompiles.IN_STEADY_STATE, recompiles.LIMIT_REACHED, recompiles.UNBOUNDED)
    yield _item(
        "no-recompile-in-loop",
        against=against,
        failed=() if against else late[:1],
        passed=once if number else f"nothing was compiled after warm-up in {_named(warm)}",
        unseen="" if warm else seen.missing(*recompiles.RULES) or "nothing was compiled",
    )
    in_half = {
        key: next(
            (row.name for row in kernels.rows if matmul_precision.IN_HALF.search(row.name)), ""
        )
        for key, kernels in seen.kernels.items()
    }
    slow = (matmul_precision.FLOAT32_ON_CUDA_CORES, matmul_precision.NO_AUTOCAST)
    ids = [rule.id for rule in slow]
    unseen = "" if any(in_half.values()) else "float32 matmuls are too small a part of the step"
    if not seen.on_cuda:
        unseen = "not applicable on a CPU"
    elif why := seen.missing(*slow):
        unseen = why
    yield _item(
        "mixed-precision",
        against=[
            found
            for found in seen.findings
            if found.rule in ids and found.run and in_half.get(found.run) == ""
        ],
        passed="; ".join(f"{key.slug} runs {name}" for key, name in in_half.items() if name),
        unseen=unseen,
    )
    timed = (run.key for run in seen.runs if isinstance(run.step, m.Spread))
    both = [key for key in timed if key.strategy in seen.timed_in_eager]
    yield _item(
        "measured-against-eager",
        passed=f"TIMING has both for {_named(both)}",
        unseen="" if both else "no compiled run was also timed in eager",
    )


def _cuda_graphs_tried(seen: Seen) -> m.ChecklistItem:
    """Where the device waits for the host, CUDA graphs are the first thing to try."""
    if requested := seen.requested:
        passed = f"CUDA graphs were requested in {_named(requested)}"
        return _item(
            "cuda-graphs-tried", passed=passed, unseen="" if seen.on_cuda else NO_CUDA_GRAPHS
        )
    return _item(
        "cuda-graphs-tried",
        against=seen.of(*device_idle.RULES),
        passed=(
            f"the GPU is busy for most of the step in {_named(seen.looked_for(*device_idle.RULES))}"
        ),
        unseen=seen.missing(*device_idle.RULES) if seen.on_cuda else NO_CUDA_GRAPHS,
    )


def _for_cond(seen: Seen) -> Iterator[m.ChecklistItem]:
    conds = seen.conds
    refused = [
        event for event in seen.evidence.once(aliases.collect) if event.rule == aliases.COND.id
    ]
    none = "" if conds or refused else "no torch.cond ran in compiled code while MEMORY watched"
    unlooked = seen.missing(aliases.COND)
    for id_, kind, refuses, otherwise in (
        ("cond-predicate", None, "any other predicate", "before it ran"),
        ("cond-branches-match", None, "branches that differ", "for another reason"),
        (
            "cond-no-aliasing",
            aliases.ALIASING,
            "a branch that returns its operand",
            "for another reason",
        ),
        (
            "cond-no-writes",
            aliases.MUTATION,
            "a branch that writes to its operand",
            "for another reason",
        ),
    ):
        at = {_at(event) for event in refused if event.kind == kind}
        yield _item(
            id_,
            against=[finding for finding in seen.of(aliases.COND) if _at(finding) in at],
            passed=f"torch compiled it in {_named(conds)}, and it refuses {refuses}",
            unseen=unlooked if conds or at else none or f"torch refused the branches {otherwise}",
        )
    lost_by = (cuda_graphs.SKIPPED, cuda_graphs.PARTITIONED, cuda_graphs.NONE_LAUNCHED)
    together = (
        "" if set(seen.requested) & set(conds) else "no run with torch.cond requested CUDA graphs"
    )
    on_cpu = f"{NO_CUDA_GRAPHS}; on a GPU they leave torch.cond out"
    yield _item(
        "cond-costs-cuda-graphs",
        against=[finding for finding in seen.of(*lost_by) if finding.run in conds],
        passed=(
            f"CUDA graphs were requested in {_named(seen.requested)}, and torch.cond prevented none"
        ),
        unseen=none or (together or seen.missing(*lost_by) if seen.on_cuda else on_cpu),
    )


def _for_speed(seen: Seen) -> Iterator[m.ChecklistItem]:
    untraced = "no run has a trace with GPU events" if seen.on_cuda else "this is a CPU run"
    traced = f"{m.PassName.TRACE.upper()} has the GPU kernels of {_named(seen.kernels)}"
    yield _item("device-profiled", passed=traced, unseen="" if seen.kernels else untraced)
    none = f"0 syncs per step in {_named(seen.read_watched)}"
    yield _item("few-reads", against=seen.of(*syncs.WAITING), passed=none, unseen=seen.unread)
    yield copies_together(seen.buffers, on_cuda=seen.on_cuda)
    slower = [one for one in seen.trade_offs if one.verdict == m.ReadVerdict.REMOVE]
    faster = [one for one in seen.trade_offs if one.verdict == m.ReadVerdict.KEEP]
    undecided = next(
        (one.text for one in seen.trade_offs), "the workload declares no alternatives to compare"
    )
    yield _item(
        "reads-weighed",
        failed=[f"{one.guarded.slug} takes longer than {one.always.slug}" for one in slower],
        passed="; ".join(f"{one.guarded.slug} takes less than {one.always.slug}" for one in faster),
        unseen="" if faster else undecided,
    )
    in_regions = {
        key: [one.total_us for one in kernels.by_region] for key, kernels in seen.kernels.items()
    }
    shares = {key: 1 - sum(us[:-1]) / sum(us) for key, us in in_regions.items() if sum(us)}
    eager = {key: share for key, share in shares.items() if share > EAGER_SHARE}
    yield _item(
        "expensive-parts-compiled",
        failed=[_outside(eager)] if eager else [],
        passed=_outside(shares),
        unseen="" if shares else "only a GPU trace shows what was launched where",
    )


def _outside(shares: Mapping[m.RunKey, float]) -> str:
    each = ", ".join(f"{share:.0%} in {key.slug}" for key, share in shares.items())
    return f"launched outside of compiled code: {each}"


def copies_together(buffers: Sequence[BufferCopies], *, on_cuda: bool) -> m.ChecklistItem:
    costs = [
        (one.run.slug, one, one.cost)
        for one in buffers
        if one.copied and not isinstance(one.cost, m.Skipped)
    ]
    skipped = [one.cost.reason for one in buffers if isinstance(one.cost, m.Skipped)]
    on_cpu = "" if on_cuda else "a CPU launches no kernels: one copy or several cost the same"
    return _item(
        "copied-together",
        failed=[
            f"{slug}: {plural(round(cost.kernels), 'copy', 'copies')} per step for "
            f"{plural(len(one.copied), 'buffer')} of {plural(one.dtypes, 'dtype')}; copy the "
            "buffers of each dtype with a torch._foreach_copy_ of their own"
            for slug, one, cost in costs
            if on_cuda and cost.kernels >= SEPARATE_COPIES and cost.kernels > one.dtypes
        ],
        passed="; ".join(
            f"{slug}: {short(cost.kernels)} {'copy' if cost.kernels == 1 else 'copies'} per step "
            f"for {plural(len(one.copied), 'buffer')}, {cost.share:.1%} of the time"
            for slug, one, cost in costs
        ),
        unseen=on_cpu if costs else next(iter(skipped), NO_BUFFERS),
    )


def _item(
    id_: str,
    *,
    passed: str,
    unseen: str = "",
    against: Sequence[m.Finding] = (),
    failed: Sequence[str] = (),
) -> m.ChecklistItem:
    """Something against it outweighs everything; then comes why it could not be seen."""
    status, evidence = (
        (m.PracticeStatus.NOT_OBSERVED, unseen) if unseen else (m.PracticeStatus.PASS, passed)
    )
    if against or failed:
        status, reasons = m.PracticeStatus.FAIL, [*failed]
        for first in against[:1]:  # its message; the others are behind the links
            where = f" ({first.run.slug})" if first.run else ""
            more = f", and {plural(len(against) - 1, 'finding')} more" if len(against) > 1 else ""
            reasons.append(f"{first.rule}: {first.message}{where}{more}")
        evidence = "; ".join(reasons)
    marks = tuple(dict.fromkeys(finding.fingerprint for finding in against if finding.fingerprint))
    return m.ChecklistItem(
        id=id_, title=TITLES[id_], status=status, evidence=evidence, findings=marks
    )


def _named(runs: Iterable[m.RunKey]) -> str:
    names = tuple(dict.fromkeys(key.slug for key in runs))
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} runs"
