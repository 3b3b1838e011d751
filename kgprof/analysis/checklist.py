"""The practices that torch.compile and CUDA graphs reward, each looked at on this program: pass,
fail, not observed.

An item fails by findings (or figures) of this Profile and names them. It passes only by something
that was seen, in runs in which its rules were looked for (the Profile's coverage): where they were
not, or there was nothing to look at, it is not observed, with the reason. What a practice forbids
is judged by its effect and not by the words of the program.

One item needs to know how declared buffers get their next values, and what the copies cost: kernels
per step, and their share of the time. A copy is ``copy_`` or ``_foreach_copy_`` called from eager
code, so outside of every compiled region and of every other operator. A trace does not say into
which tensor, so all such copies of a step are counted, whether they go into a declared buffer or
not.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kgprof import coverage
from kgprof import model as m
from kgprof.collectors.compile import graph_breaks, recompiles
from kgprof.collectors.compile.recompile_causes import Recompile
from kgprof.collectors.compile.recompiled_functions import RecompiledFunction
from kgprof.collectors.compile.skipped_frames import SKIPPED_FRAME
from kgprof.collectors.graphs import addresses, cuda_graphs
from kgprof.collectors.graphs.addresses import COPIED_INTO, MUTATED, REBOUND, UNWRITTEN, BufferUse
from kgprof.collectors.tensors import aliases, mutations
from kgprof.collectors.tensors.tensor_facts import RunTensors, run_tensors, said
from kgprof.collectors.time import device_idle, matmul_precision, syncs
from kgprof.collectors.trust import disagreements
from kgprof.reading import launches
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import Launched, launched_in_trace
from kgprof.reading.timeline import NOBODY, STEP_PREFIX
from kgprof.wording import plural, relative

COPIES = ("aten::_foreach_copy_", "aten::copy_")
ONE_COPY = "aten::copy_"
NONE_COPIED = m.Skipped("no declared buffer is copied into outside of compiled code")


class CopyCost(m.Tagged):
    """Per step of TRACE: CUDA: kernels and copies on the device; CPU: ``aten::copy_`` operators."""

    kernels: float
    share: float  # of the duration of all kernels (CUDA) or of all outermost operators (CPU), 0..1


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
            if event.pattern == COPIED_INTO:
                dtypes[event.run].add(event.dtype)
    return tuple(
        BufferCopies(
            run=run.key,
            dtypes=len(dtypes[run.key]),
            cost=_cost(run, named[run.key][COPIED_INTO]),
            **{pattern: tuple(names) for pattern, names in named[run.key].items()},
        )
        for run in evidence.runs
        if run.key in named
    )


@m.skippable
def _cost(run: RunEvidence, copied: Sequence[str]) -> CopyCost | m.Skipped:
    if not copied:
        return NONE_COPIED
    steps = len(m.known(run.record.trace).step_us)
    columns = m.known(run.trace()).columns
    work: Launched | None = m.known(run.once(launched_in_trace))
    if run.whole.device != "cuda":
        work = None
    return cost(columns, work, steps=steps)


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
        ours, every = np.flatnonzero(copies), outermost
        single = np.flatnonzero(columns.of_category("cpu_op") & columns.named(ONE_COPY))
        kernels = int((launches.innermost(columns, copies, single) != NOBODY).sum())
    else:
        ours = work.events[launches.innermost(columns, copies, work.calls) != NOBODY]
        every = work.events
        kernels = len(ours)
    total_ns = columns.lasted_ns(every)
    if not total_ns:
        return m.Skipped("nothing ran on the GPU in the traced steps")
    return CopyCost(kernels=kernels / steps, share=columns.lasted_ns(ours) / total_ns)


# from so many copy kernels a step, and more than dtypes, one _foreach_copy_ a dtype pays
SEPARATE_COPIES = 3
NAMED = 3  # runs; beyond it their number says more than their names
EAGER_SHARE = 0.25  # of the device time: what eager code may take before it is worth compiling

# torch's registry: operators, asserts, branches, and results whose size a value decides
_DATA_DEPENDENT = {
    "GB0033",
    "GB0034",
    "GB0035",
    "GB0036",
    "GB0037",
    "GB0124",
    "GB0170",
    "GB0246",
    "GB0360",
}
_REFUSED = re.compile(
    r"print|(?:warnings\.)?warn"
    r"|(?:logging\.)?Logger\.(?:debug|info|warn|warning|error|exception|critical|log)\w*"
)
_SAYS = re.compile(r"\bprint\s*\(|\blogg(?:er|ing)\.\w+\s*\(|\bwarnings\.warn\s*\(")
NO_CUDA_GRAPHS = "a CPU has no CUDA graphs"
ON_A_GPU_ALONE = (
    "none was seen; on a CPU not all are, as copies and operators that wait on a GPU alone"
)
NO_COND = "no torch.cond ran in compiled code while MEMORY watched"
NO_BUFFERS = "the workload declares no persistent buffers"


class Seen:
    """What the items are judged by, gathered once: of the runs that compile."""

    def __init__(
        self,
        evidence: Evidence,
        runs: m.Runs,
        findings: m.Findings,
        trade_offs: Sequence[m.TradeOff],
        covered: Sequence[m.Coverage],
    ) -> None:
        self.evidence, self.findings = evidence, findings
        self.covered = covered
        self.on_cuda = evidence.device == "cuda"
        self.runs = [run for run in runs if not run.key.is_eager]
        self.trade_offs = [one for one in trade_offs if not one.guarded.is_eager]
        watched = self.looked_for(addresses.UNSTABLE)
        self.tensors = [run for run in evidence.once(run_tensors) if run.key in watched]
        self.buffers = [one for one in evidence.once(buffer_copies) if not one.run.is_eager]
        # What ran on the GPU in each.
        self.kernels = {
            run.key: kernels for run in self.runs if (kernels := run.gpu_kernels) is not None
        }
        # Whose reads MEMORY counted.
        self.read_watched = [
            run.key
            for run in self.runs
            if isinstance(run.memory, m.MemorySummary)
            and isinstance(run.memory.syncs_per_step, float | int)
        ]
        # With at least one compiled graph, whose records are whole.
        whole = self.looked_for(graph_breaks.GRAPH_BREAK)
        self.compiled = []
        # Calls of compiled functions after warm-up: no guard looked at what they were given.
        self.eager_calls: list[int | m.Skipped] = []
        for run in self.runs:
            if not isinstance(run.compile, m.CompileSummary):
                continue
            made_a_graph = any(not one.fail_reason for one in run.compile.compilations)
            if run.key in whole and made_a_graph:
                self.compiled.append(run.key)
            if isinstance(run.compile.compiled_calls, m.CallsOfCompiled):
                self.eager_calls += run.compile.compiled_calls.eager.values()
        # In which Inductor was asked for CUDA graphs, eager ones too.
        self.requested = []
        # In which a compiled graph took a decision by torch.cond.
        self.conds = []
        # In which torch compiled while TIMING ran, where nobody asks it why.
        timed = []
        for record in evidence.recording.runs:
            records = record.records
            if isinstance(records, m.CompileRecords) and any(
                graph.cuda_graphs for graph in records.graphs
            ):
                self.requested.append(record.key)
            if any(sync.operator == "cond" for sync in _syncs(record)):
                self.conds.append(record.key)
            if isinstance(record.timing, m.TimingPass) and record.timing.compiled:
                timed.append(record.key)
        self.why_unknown = ""
        if timed:
            self.why_unknown = (
                f"torch compiled while TIMING ran in {_named(timed)}, and nothing recorded why"
            )

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
    def watched_graphs(self) -> str:
        graphs = sum(len(run.tensors.graphs) for run in self.tensors)
        return f"{plural(graphs, 'compiled graph')} of {_named(run.key for run in self.tensors)}"

    @property
    def unwatched(self) -> str:
        """Say why no tensor was looked at; empty where some were."""
        if any(graph.inputs for run in self.tensors for graph in run.tensors.graphs):
            return ""
        return self.missing(addresses.UNSTABLE) or "no compiled graph ran while MEMORY watched"

    @property
    def unread(self) -> str:
        """Say why not all syncs were counted; empty where they were in one run."""
        if not self.read_watched:
            return self.missing(*syncs.WAITING) or "the program has no steps to count"
        if not self.on_cuda:
            return ON_A_GPU_ALONE
        return ""

    @property
    def no_replay(self) -> str:
        """Why no CUDA graph was replayed; empty where one was."""
        if not self.on_cuda:
            return NO_CUDA_GRAPHS
        if not self.requested:
            return "no run requested CUDA graphs (mode reduce-overhead or max-autotune)"
        replays = (kernels.graph_launches for kernels in self.kernels.values())
        if any(isinstance(count, int) and count for count in replays):
            return ""
        return "no CUDA graph was replayed in TRACE"


@m.otherwise(())
def _syncs(run: m.RunRecord) -> Sequence[m.SyncRecord]:
    return m.known(m.known(run.memory).syncs).records


def checklist(
    evidence: Evidence,
    runs: m.Runs,
    findings: m.Findings,
    trade_offs: Sequence[m.TradeOff],
    covered: Sequence[m.Coverage],
) -> tuple[m.ChecklistItem, ...]:
    """As PRACTICES has them, always. Empty for a gate, which has budgets instead."""
    if evidence.recording.header.options.for_a_gate:
        return ()
    seen = Seen(evidence, runs, findings, trade_offs, covered)
    return tuple(judged(id_, title, answer(seen)) for id_, title, answer in PRACTICES)


def _compiles(finding: m.Finding) -> bool:
    return finding.run is None or not finding.run.is_eager


def _at(one: m.Finding | aliases.Alias) -> tuple[object, ...]:
    """Where a finding or an event stands: the same for an event and the finding that it became."""
    return one.run, one.location and (one.location.file, one.location.line)


class Answer(NamedTuple):
    """To a practice. Something against it outweighs everything; then comes why it could not be
    seen."""

    passed: str
    unseen: str = ""
    against: m.Findings = ()
    failed: Sequence[str] = ()


Question = Callable[[Seen], Answer]


def judged(id_: str, title: str, answer: Answer) -> m.ChecklistItem:
    passed, unseen, against, failed = answer
    status, evidence = m.PracticeStatus.PASS, passed
    if against or failed:
        status = m.PracticeStatus.FAIL
        reasons = [*failed]
        for first in against[:1]:  # its message; the others are behind the links
            reason = f"{first.rule}: {first.message}"
            if first.run:
                reason += f" ({first.run.slug})"
            if len(against) > 1:
                reason += f", and {plural(len(against) - 1, 'finding')} more"
            reasons.append(reason)
        evidence = "; ".join(reasons)
    elif unseen:
        status, evidence = m.PracticeStatus.NOT_OBSERVED, unseen
    marks = tuple(dict.fromkeys(finding.fingerprint for finding in against if finding.fingerprint))
    return m.ChecklistItem(id_, title, status, evidence, marks)


def _named(runs: Iterable[m.RunKey]) -> str:
    names = tuple(dict.fromkeys(key.slug for key in runs))
    if len(names) > NAMED:
        return f"{len(names)} runs"
    return ", ".join(names)


# ---------------------------------------------------------------- for CUDA graphs


def _allocated_once(seen: Seen) -> Answer:
    every = [
        (run, tensor)
        for run in seen.tensors
        for graph in run.tensors.graphs
        for tensor in graph.inputs
    ]
    moved = sum(any(run.steady(held.moved) for held in tensor.held) for run, tensor in every)
    inputs = [
        tensor
        for run, tensor in every
        if any(held.watched > run.steady_from for held in tensor.held)
    ]
    declared = sum(len(one.copied) + len(one.mutated) + len(one.unwritten) for one in seen.buffers)
    passed = (
        f"all {plural(len(inputs), 'input')} of {seen.watched_graphs} that were watched in more "
        "calls than warm-up takes kept their addresses in the runs watched after it"
    )
    if declared:
        passed += f"; {plural(declared, 'declared buffer')}, none replaced by a new tensor"
    # Of inputs at new addresses nobody knows whether they are new batches or replaced buffers.
    unseen = seen.unwatched
    if not (unseen or inputs or moved):
        unseen = "no input of a compiled graph was watched in more calls than warm-up takes"
    if moved and not unseen:
        unseen = (
            f"{plural(moved, 'input')} of {seen.watched_graphs} moved after warm-up: new batches, "
            "tensors that torch makes of numbers, or buffers that are replaced"
        )
    against = seen.of(addresses.UNSTABLE)
    replaced = [(one.rebound, one.run) for one in seen.buffers]
    if not against:
        replaced = [*((_carried(run), run.key) for run in seen.tensors), *replaced]
    failed = [
        f"{', '.join(names)} replaced by a new tensor in {run.slug}"
        for names, run in replaced
        if names
    ]
    return Answer(passed, unseen, against, failed)


def _carried(run: RunTensors) -> tuple[str, ...]:
    """Name what one call takes from an earlier one at a new address, which a script's owner is told
    nowhere else. What another graph made is no state: a step may end between a generator and its
    discriminator."""
    names = dict.fromkeys(
        said(tensor.name)
        for graph, tensor, held in addresses.passed_inputs(run)
        if run.steady(held.moved)
        and any(maker.partition(" ")[0] == graph.compile_id for maker in held.made_before)
    )
    return tuple(names)


def _no_writes_inside(seen: Seen) -> Answer:
    """A script's findings are about CUDA graphs alone; what it writes to is named here."""
    written = (event for run in seen.tensors for event in mutations.writes(run))
    moving = [event for event in written if event.kind != mutations.FIXED]
    against = seen.of(mutations.INPUT_MUTATED)
    words = dict.fromkeys(
        f"{event.function} writes to {', '.join(event.names)} ({event.run.slug})"
        for event in moving
        if event.in_project and not against
    )
    passed = f"no such write was seen in {seen.watched_graphs}"
    return Answer(passed, seen.unwatched, against, tuple(words)[:NAMED])


def _captured_by_reference(seen: Seen) -> Answer:
    copied = [
        found for found in seen.findings if found.rule == addresses.COPIED.id and seen.on_cuda
    ]
    unseen = seen.no_replay or seen.missing(addresses.COPIED)
    return Answer("no input was copied before a replay", unseen, copied)


def _copied_outside(seen: Seen) -> Answer:
    """Rebound and written-inside ones break the pattern."""
    buffers = seen.buffers
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
    unseen = ""
    if not buffers:
        unseen = NO_BUFFERS
    elif not copied:
        unseen = "no declared buffer is written to"
    names = {name for one in copied for name in one.copied}
    passed = (
        f"{plural(len(names), 'buffer')} updated by copy_, none replaced or written to inside "
        f"compiled code, in {_named(one.run for one in copied)}"
    )
    return Answer(passed, unseen, failed=bad)


def _steps_marked(seen: Seen) -> Answer:
    events = seen.evidence.once(aliases.collect)
    held = {_at(event) for event in events if event.kind == aliases.REPLAY and seen.on_cuda}
    steps = {run.key.slug: run.tensors.steps_marked for run in seen.tensors}
    marked = [
        f"{plural(number, 'step')} marked in {slug}" for slug, number in steps.items() if number
    ]
    passed = "none kept (cudagraph_mark_step_begin() not called)"
    if marked:
        passed = f"none kept; {', '.join(marked)}"
    unseen = seen.no_replay
    if {*seen.requested}.isdisjoint(run.key for run in seen.tensors):
        unseen = unseen or seen.unwatched
    against = [finding for finding in seen.of(aliases.OUTPUTS) if _at(finding) in held]
    return Answer(passed, unseen, against)


def _no_reads_inside(seen: Seen) -> Answer:
    """Also those that are none yet on this CPU and will be one on CUDA."""
    inside = [event for event in seen.evidence.once(syncs.collect) if event.where == syncs.COMPILED]
    against = [found for found in syncs.diagnose(tuple(inside)) if _compiles(found)]
    passed = f"no sync in the compiled regions of {_named(seen.read_watched)}"
    return Answer(passed, seen.unread or seen.unwatched, against)


def _cuda_graphs_tried(seen: Seen) -> Answer:
    """Where the device waits for the host, CUDA graphs are the first thing to try."""
    rules = device_idle.RULES
    passed = f"no finding of an idle GPU in {_named(seen.looked_for(*rules))}"
    unseen = seen.missing(*rules)
    against = seen.of(*rules)
    if seen.requested:
        passed = f"CUDA graphs were requested in {_named(seen.requested)}"
        unseen = ""
        against = []
    if not seen.on_cuda:
        unseen = NO_CUDA_GRAPHS
    return Answer(passed, unseen, against)


# ---------------------------------------------------------------- for torch.compile


def _in_compiled(
    seen: Seen,
    passed: str,
    against: m.Findings = (),
    failed: Sequence[str] = (),
    unseen: str = "",
) -> Answer:
    if not seen.compiled:
        unseen = seen.missing(graph_breaks.GRAPH_BREAK) or "nothing was compiled"
    return Answer(f"{passed} in {_named(seen.compiled)}", unseen, against, failed)


def _is_for_a_size(recompile: Recompile) -> bool:
    return recompile.guard.kind in ("size", "stride", "rank")


def _goes_on_for_a_size(event: RecompiledFunction) -> bool:
    """Whether the finding of a function that compiles again and again is about its sizes."""
    if event.every_value_new or event.limit is not None or not event.calls_known:
        return True
    steady = filter(event.is_steady, event.recompiles)
    return any(_is_for_a_size(each) and not each.once for each in steady)


def _static_shapes(seen: Seen) -> Answer:
    for_sizes = [
        event
        for event in seen.evidence.once(recompiles.collect)
        if any(map(_is_for_a_size, event.recompiles))
    ]
    going_on = tuple(filter(_goes_on_for_a_size, for_sizes))
    again = [found for found in recompiles.diagnose(going_on) if found.level is not m.Level.NOTE]
    counts = [calls for calls in seen.eager_calls if isinstance(calls, int)]
    unseen = seen.why_unknown
    if any(counts):
        unseen = (
            f"{plural(sum(counts), 'call')} of compiled functions ran eagerly, with sizes that "
            "nobody saw"
        )
    elif len(counts) < len(seen.eager_calls):
        unseen = "how often compiled functions ran eagerly is not known"
    elif for_sizes:
        unseen = "sizes caused one in a few calls only"
    return _in_compiled(seen, "no recompile because of a size", again, unseen=unseen)


def _whole_graphs(seen: Seen) -> Answer:
    by_torch = sum(finding.made_by_torch and _compiles(finding) for finding in seen.findings)
    passed = "no graph break and no skipped frame"
    if by_torch:
        passed += f" besides {plural(by_torch, 'break')} that torch makes on purpose"
    return _in_compiled(seen, passed, seen.of(graph_breaks.GRAPH_BREAK, SKIPPED_FRAME))


def _no_dynamic_shapes(seen: Seen) -> Answer:
    """A number that the function takes may be symbolic as well; only ``x.size()[0]`` is a
    tensor's."""
    symbolic = []
    for run in seen.evidence.recording.runs:
        if not isinstance(run.records, m.CompileRecords):
            continue
        symbols = [record.metadata.get("create_symbol") for record in run.records.records]
        sources = [str(symbol.get("source")) for symbol in symbols if isinstance(symbol, dict)]
        if any(".size()" in source for source in sources):
            what_to_do = "right if they change, else torch.compile(dynamic=False)"
            symbolic.append(f"{run.key.slug} has symbolic sizes: {what_to_do}")
    return _in_compiled(seen, "no size of an input is symbolic", failed=symbolic)


def _refusals(seen: Seen) -> Iterator[tuple[m.TorchCause, m.Finding]]:
    """Breaks, and functions that torch gave up for one."""
    for found in seen.of(graph_breaks.GRAPH_BREAK, SKIPPED_FRAME):
        if found.refusal is not None:
            yield found.refusal.cause, found


def _no_branch_on_values(seen: Seen) -> Answer:
    on_values = [found for cause, found in _refusals(seen) if _DATA_DEPENDENT & {*cause.gb_ids}]
    return _in_compiled(seen, "none among torch's reasons", on_values)


def _no_prints(seen: Seen) -> Answer:
    """By what torch refused, else by the line: a logger may have any name."""
    prints = [
        found
        for cause, found in _refusals(seen)
        if _REFUSED.fullmatch(cause.operator)
        or (found.location and _SAYS.search(found.location.text))
    ]
    return _in_compiled(seen, "none was seen", prints)


def _plain_checkpoints(seen: Seen) -> Answer:
    lines = [each for run in seen.runs if run.script for each in run.script.checkpoints]
    failed = []
    environment = seen.evidence.recording.header.plan.environment
    for line in lines:
        at = f"{relative(line.location.file, environment.source_root)}:{line.location.line}"
        if line.into_compiled is None and line.compiled_keys:
            failed.append(
                f"{at} saves keys with _orig_mod., which only a compiled module has; "
                "model._orig_mod has plain ones"
            )
        elif line.into_compiled and not line.compiled_keys:
            failed.append(
                f"{at} loads plain keys into a compiled module: load them before torch.compile"
            )
        elif line.into_compiled is False and line.compiled_keys:
            failed.append(
                f"{at} loads keys with _orig_mod. into a module that is not compiled: load "
                "{key.replace('_orig_mod.', ''): value for key, value in state.items()}"
            )
    unseen = ""
    if not lines:
        unseen = "no checkpoint was seen"
    return _in_compiled(
        seen,
        f"{plural(len(lines), 'line')} saved or loaded tensors, none under such keys,",
        failed=failed,
        unseen=unseen,
    )


def _no_recompile_in_loop(seen: Seen) -> Answer:
    going_on = (recompiles.IN_STEADY_STATE, recompiles.LIMIT_REACHED, recompiles.UNBOUNDED)
    against, unseen = seen.of(*going_on), seen.missing(*recompiles.RULES)
    late = sum(entry.steady for run in seen.runs for entry in _recompiles(run))
    if late:
        told = f"{plural(late, 'compilation')} after warm-up belong to a graph break, or came once"
        unseen = unseen or told
    unseen = unseen or seen.why_unknown
    return _in_compiled(seen, "no finding of one", against, (), unseen)


@m.otherwise(())
def _recompiles(run: m.RunReport) -> tuple[m.RecompileEntry, ...]:
    return m.known(m.known(run.compile).recompiles)


def _mixed_precision(seen: Seen) -> Answer:
    in_half = {
        key: next(
            (row.name for row in kernels.rows if matmul_precision.IN_HALF.search(row.name)), ""
        )
        for key, kernels in seen.kernels.items()
    }
    slow = (matmul_precision.FLOAT32_ON_CUDA_CORES, matmul_precision.NO_AUTOCAST)
    ids = [rule.id for rule in slow]
    unseen = seen.missing(*slow)
    if not seen.on_cuda:
        unseen = "not applicable on a CPU"
    elif not unseen and not any(in_half.values()):
        unseen = "float32 matmuls are too small a part of the step"
    against = [
        found
        for found in seen.findings
        if found.rule in ids and found.run and in_half.get(found.run) == ""
    ]
    passed = "; ".join(f"{key.slug} runs {name}" for key, name in in_half.items() if name)
    return Answer(passed, unseen, against)


@m.otherwise(False)
def _has_both_times(found: m.Economics | m.Skipped) -> bool:
    """Of a script eager's are those of a rerun with compiling switched off."""
    times = m.known(found)
    return bool(m.known(times.compiled_time) and m.known(times.eager_time))


def _measured_against_eager(seen: Seen) -> Answer:
    timed = [run for run in seen.runs if _has_both_times(run.economics)]
    both = [run.key for run in timed if m.known(run.economics).verdict is not m.Payoff.NOT_OBSERVED]
    if timed and not both:
        return Answer("", "its times could not be compared with those in eager")
    if not both:
        return Answer("", "no compiled run was also timed in eager")
    return Answer(f"TIMING has both for {_named(both)}")


# ---------------------------------------------------------------- for torch.cond


def _cond(kind: str | None, refuses: str, otherwise: str) -> Question:
    """A practice that torch enforces: ``kind`` of the events in which it ``refuses`` a program."""

    def answer(seen: Seen) -> Answer:
        refused = _refused(seen)
        at = {_at(event) for event in refused if event.kind == kind}
        unseen = NO_COND
        if seen.conds or at:
            unseen = seen.missing(aliases.COND)
        elif refused:
            unseen = f"torch refused the branches {otherwise}"
        return Answer(
            f"torch compiled it in {_named(seen.conds)}, and it refuses {refuses}",
            unseen,
            [finding for finding in seen.of(aliases.COND) if _at(finding) in at],
        )

    return answer


def _refused(seen: Seen) -> list[aliases.Alias]:
    return [event for event in seen.evidence.once(aliases.collect) if event.rule == aliases.COND.id]


def _cond_costs_cuda_graphs(seen: Seen) -> Answer:
    lost_by = (cuda_graphs.SKIPPED, cuda_graphs.PARTITIONED, cuda_graphs.NONE_LAUNCHED)
    unseen = seen.missing(*lost_by)
    if not seen.conds and not _refused(seen):
        unseen = NO_COND
    elif not seen.on_cuda:
        unseen = f"{NO_CUDA_GRAPHS}; on a GPU they leave torch.cond out"
    elif {*seen.requested}.isdisjoint(seen.conds):
        unseen = "no run with torch.cond requested CUDA graphs"
    return Answer(
        f"CUDA graphs were requested in {_named(seen.requested)}, and torch.cond prevented none",
        unseen,
        [finding for finding in seen.of(*lost_by) if finding.run in seen.conds],
    )


# ---------------------------------------------------------------- for speed


def _device_profiled(seen: Seen) -> Answer:
    if seen.kernels:
        return Answer(f"TRACE has the GPU kernels of {_named(seen.kernels)}")
    if seen.on_cuda:
        return Answer("", "no run has a trace with GPU events")
    return Answer("", "this is a CPU run")


def _reads_weighed(seen: Seen) -> Answer:
    slower = [one for one in seen.trade_offs if one.verdict == m.ReadVerdict.REMOVE]
    faster = [one for one in seen.trade_offs if one.verdict == m.ReadVerdict.KEEP]
    unseen = ""
    if not seen.trade_offs:
        unseen = "the workload declares no alternatives to compare"
    elif not faster:
        unseen = seen.trade_offs[0].text
    return Answer(
        "; ".join(f"{one.guarded.slug} takes less than {one.always.slug}" for one in faster),
        unseen,
        failed=[f"{one.guarded.slug} takes longer than {one.always.slug}" for one in slower],
    )


def _expensive_parts_compiled(seen: Seen) -> Answer:
    in_regions = {
        key: [one.total_us for one in kernels.by_region] for key, kernels in seen.kernels.items()
    }
    shares = {key: 1 - sum(us[:-1]) / sum(us) for key, us in in_regions.items() if sum(us)}
    if not shares:
        return Answer("", "only a GPU trace shows what was launched where")
    eager = {key: share for key, share in shares.items() if share > EAGER_SHARE}
    if eager:
        return Answer("", failed=[_outside(eager)])
    return Answer(_outside(shares))


def _outside(shares: Mapping[m.RunKey, float]) -> str:
    each = ", ".join(f"{share:.0%} in {key.slug}" for key, share in shares.items())
    return f"launched outside of compiled code: {each}"


def _would_sync(seen: Seen) -> str:
    """What waits for nothing on a CPU is no sync here; empty where nothing would on a GPU."""
    would = [one for one in seen.findings if one.rule == syncs.WOULD_SYNC.id and _compiles(one)]
    if not would:
        return ""
    return f"0 syncs per step on this CPU; on a GPU this would sync: {would[0].message}"


def _uncounted(seen: Seen) -> str:
    """Why steps of a script, or waits of its operators, were not counted."""
    after = max((run.script.uncounted for run in seen.runs if run.script), default=0)
    if after:
        return f"{plural(after, 'optimizer step')} came after the last counted one"
    for run in seen.evidence.on_gpu:
        waited, certain = run.once(disagreements.waits_of_trace)
        if sum(waited) > sum(certain):
            return "operators wait for the GPU inside, where no hook counts it"
    return ""


def copies_together(buffers: Sequence[BufferCopies], *, on_cuda: bool) -> Answer:
    costs = [
        (one.run.slug, one, one.cost)
        for one in buffers
        if one.copied and isinstance(one.cost, CopyCost)
    ]
    skipped = (one.cost.reason for one in buffers if isinstance(one.cost, m.Skipped))
    unseen = ""
    if not costs:
        unseen = next(skipped, NO_BUFFERS)
    elif not on_cuda:
        unseen = "a CPU launches no kernels: one copy or several cost the same"
    return Answer(
        "; ".join(
            f"{slug}: {plural(cost.kernels, 'copy', 'copies')} per step "
            f"for {plural(len(one.copied), 'buffer')}, {cost.share:.1%} of the time"
            for slug, one, cost in costs
        ),
        unseen,
        failed=[
            f"{slug}: {plural(round(cost.kernels), 'copy', 'copies')} per step for "
            f"{plural(len(one.copied), 'buffer')} of {plural(one.dtypes, 'dtype')}; copy the "
            "buffers of each dtype with a torch._foreach_copy_ of their own"
            for slug, one, cost in costs
            if on_cuda and cost.kernels >= SEPARATE_COPIES and cost.kernels > one.dtypes
        ],
    )


# Every practice in the order of the report: its name, what it says, and how it is judged.
PRACTICES: tuple[tuple[str, str, Question], ...] = (
    ("buffers-allocated-once", "Persistent buffers are allocated once", _allocated_once),
    (
        "captured-by-reference",
        "CUDA graph inputs keep their addresses, so none is copied",
        _captured_by_reference,
    ),
    (
        "no-writes-inside",
        "No compiled function of the program writes to an input that moves",
        _no_writes_inside,
    ),
    (
        "copied-outside",
        "Persistent buffers are updated by copy_ outside compiled code",
        _copied_outside,
    ),
    (
        "steps-marked",
        "No result of a CUDA graph is kept beyond the next replay "
        "(torch.compiler.cudagraph_mark_step_begin())",
        _steps_marked,
    ),
    ("static-shapes", "Changing sizes cause no recompile", _static_shapes),
    ("no-reads-inside", "No sync inside a compiled function", _no_reads_inside),
    (
        "cuda-graphs-tried",
        "CUDA graphs (mode='reduce-overhead') are tried where the GPU waits for the CPU",
        _cuda_graphs_tried,
    ),
    (
        "whole-graphs",
        "Compiled functions have no avoidable graph break",
        _whole_graphs,
    ),
    ("no-dynamic-shapes", "No input is compiled with dynamic sizes", _no_dynamic_shapes),
    (
        "no-branch-on-values",
        "No graph break because of a tensor's value",
        _no_branch_on_values,
    ),
    ("no-prints", "No graph break at a line that prints or logs", _no_prints),
    (
        "no-recompile-in-loop",
        "No function recompiles after warm-up, or up to torch's limit",
        _no_recompile_in_loop,
    ),
    (
        "mixed-precision",
        "Matmuls run in bfloat16 or float16 if that makes this GPU faster (torch.autocast)",
        _mixed_precision,
    ),
    ("measured-against-eager", "Compiled code was timed against eager", _measured_against_eager),
    (
        "plain-checkpoints",
        "Checkpoints have the uncompiled module's keys, without _orig_mod.",
        _plain_checkpoints,
    ),
    (
        "cond-predicate",
        "The predicate of torch.cond is one value",
        _cond(None, "a predicate of several", "before it ran"),
    ),
    (
        "cond-branches-match",
        "Both branches of torch.cond return the same number of tensors, with equal dtypes",
        _cond(None, "branches that differ in them", "for another reason"),
    ),
    (
        "cond-no-aliasing",
        "No branch of torch.cond returns an operand without a copy",
        _cond(aliases.ALIASING, "a branch that returns its operand", "for another reason"),
    ),
    (
        "cond-costs-cuda-graphs",
        "No torch.cond inside CUDA-graph code",
        _cond_costs_cuda_graphs,
    ),
    (
        "device-profiled",
        "GPU times come from GPU events, not from a Python profiler",
        _device_profiled,
    ),
    (
        "few-reads",
        "No sync in the step loop",
        lambda seen: Answer(
            f"0 syncs per step in {_named(seen.read_watched)}",
            _would_sync(seen) or seen.unread or _uncounted(seen),
            seen.of(*syncs.WAITING, syncs.WOULD_SYNC),
        ),
    ),
    (
        "copied-together",
        "Several buffers are copied with one torch._foreach_copy_",
        lambda seen: copies_together(seen.buffers, on_cuda=seen.on_cuda),
    ),
    ("reads-weighed", "Syncs that skip work are worth it", _reads_weighed),
    (
        "expensive-parts-compiled",
        f"Most GPU time is compiled code (eager code launches at most {EAGER_SHARE:.0%} of it)",
        _expensive_parts_compiled,
    ),
)
