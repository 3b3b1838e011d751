"""KGP201 to 203: where the host waits for the device, or would if the program ran on one.

Three hooks saw it (``record/listeners/syncs.py``); here they are united by the line of the project.
Of one line each source's count is a lower bound, so the largest stands. What only happens in
warm-up is no finding.
"""

import ast
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import fmean, median

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors.compile import graph_breaks
from kgprof.collectors.event import Event, finding
from kgprof.collectors.fingerprint import fingerprint
from kgprof.reading import clocks
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.reading.source_text import FILLED, SourceText, is_made_in
from kgprof.wording import clause

WORTH_SHARE = 0.05  # of the time of all steps: reads that take more are no log's

HOST_DEVICE_SYNC = m.Rule(
    id="KGP201",
    name="host-device-sync",
    level=m.Level.WARNING,
    summary="A line makes the CPU wait for the GPU, usually to read a value.",
    why=(
        "The CPU launches work ahead of the GPU. A sync stops that until the GPU has caught up, "
        "and the GPU then idles until the next launch arrives. One sync per step is enough to "
        "serialise a loop of short steps. A boolean mask, nonzero and unique read the size of "
        "their result. A line that reads in at most an eighth of the steps is a note, unless it "
        "takes a part of their time, or a step is only a call; so is one that waits for less than "
        f"{100 * WORTH_SHARE:g} % of a program without steps. On a CPU nothing waits; the finding "
        "says what it would do on a GPU."
    ),
    example="if (x > 0.5).any(): ...; loss.item() in every step; x[mask] with a boolean mask.",
    remedy=(
        "A value that is only logged or summed up: keep it on the GPU, and read it once at the "
        "end or every N steps. One that may come a step late: copy it with non_blocking=True into "
        "pinned memory. One that decides what runs next: compute both ways and select with "
        "torch.where, or ask less often. One that is known beforehand, as the turns of a loop over "
        "a tensor: read all of them once, before the loop."
    ),
    topic=m.Topic.SYNCS,
    seen_in=((m.Witness.READS,),),
    can_cost=(m.CostKind.HOST, m.CostKind.COPIES, m.CostKind.LAUNCHES),
    relieves=(m.LimitKind.SYNC,),
)
SYNC_IN_GRAPH = m.Rule(
    id="KGP202",
    name="sync-inside-compiled-region",
    level=m.Level.WARNING,
    summary="Compiled code waits for a value from the GPU while it runs.",
    why=(
        "The generated code itself stops for the value: it selects a branch of torch.cond, decides "
        "on the next round of while_loop, or determines a shape. Later launches cannot be queued, "
        "and a function with such a sync cannot become one CUDA graph."
    ),
    example="torch.cond(fresh.any(), ...): one sync per step to read the predicate.",
    remedy=(
        "Always do the work and select with torch.where, if that costs less than the sync (the "
        "report's trade-offs show it if both were measured), or move the read out of the compiled "
        "function. In place of while_loop, run a fixed number of rounds."
    ),
    topic=m.Topic.SYNCS,
    seen_in=((m.Witness.READS,),),
    can_cost=(m.CostKind.HOST, m.CostKind.COPIES, m.CostKind.LAUNCHES),
    relieves=(m.LimitKind.SYNC,),
)
WOULD_SYNC = m.Rule(
    id="KGP203",
    name="would-sync-on-cuda",
    level=m.Level.NOTE,
    summary="This line costs nothing on a CPU but would sync with its tensor on a GPU.",
    why=(
        "For a tensor already on the CPU, .cpu(), .numpy(), .tolist() and .to('cpu') have nothing "
        "to do. On CUDA each of them copies (.numpy() raises without .cpu()), and the CPU waits "
        "for the copy. Tensors that would be on the CPU there too are not counted."
    ),
    example="history.append(loss.cpu().numpy()) in a loop written on a laptop.",
    remedy=(
        "Keep the value on the GPU until the CPU needs it. A value for a log or a list is copied "
        "once, after the loop or every N steps."
    ),
    topic=m.Topic.SYNCS,
    seen_in=((m.Witness.CPU, m.Witness.READS),),
    can_cost=(m.CostKind.HOST, m.CostKind.COPIES, m.CostKind.LAUNCHES),
)
OWN_CLOCK = m.Rule(
    id="KGP204",
    name="sync-for-own-clock",
    level=m.Level.NOTE,
    summary="The program waits for the GPU in order to time itself.",
    why=(
        "A program that synchronizes before it reads a clock times GPU work correctly. But the CPU "
        "launches nothing until the GPU has caught up, so each step is longer than without the "
        "clock: CPU and GPU time add up where they would overlap. Such a wait counts against no "
        "budget and no practice, and is not what limits the program."
    ),
    example="torch.cuda.synchronize(); times.append(time.perf_counter() - t0) in every step.",
    remedy=(
        "Time many steps together (synchronize before the first and after the last), or record "
        "torch.cuda.Event(enable_timing=True) in each step and read elapsed_time() after the loop."
    ),
    topic=m.Topic.SYNCS,
    seen_in=((m.Witness.CUDA, m.Witness.READS),),
    can_cost=(m.CostKind.HOST,),
)
RULES = (HOST_DEVICE_SYNC, SYNC_IN_GRAPH, WOULD_SYNC, OWN_CLOCK)
WAITING = (HOST_DEVICE_SYNC, SYNC_IN_GRAPH)  # whose reads are counted per step
_COUNTED = frozenset(rule.id for rule in WAITING)

COMPILED, BREAK, EAGER = "compiled", "break", "eager"
READ = "aten::_local_scalar_dense"
_LOADERS = "/torch/utils/data/"
# fake tensors, which only the compiler makes; and a call that waits, which is a record of its own
_NO_READ = re.compile(r"/torch/(_subclasses/|cuda/streams\.py)")
# all that torch's sync-debug mode says; a copy to the CPU is seen by hooks too
SYNC_DEBUG = "synchronizing operation"
DEVICE_WAITS = ("cuda.synchronize", "accelerator.synchronize")
WAITS = {
    **dict.fromkeys(DEVICE_WAITS, "device-synchronize"),
    "Event.synchronize": "event-synchronize",
    "Stream.synchronize": "stream-synchronize",
}
# What the called function's name says about a read. A function that is not here reads for purposes
# of its own.
CAUSES = {
    **dict.fromkeys(
        ("item", "float", "int", "complex", "range", "index", "round", "format"), "item"
    ),
    **dict.fromkeys(("bool", "all", "any"), "truth-value"),
    "cond": "cond-predicate",
    "while_loop": "loop-condition",
    **dict.fromkeys(("nonzero", "argwhere", "where"), "nonzero"),
    **dict.fromkeys(("masked_select", "getitem", "__getitem__", "setitem"), "mask-index"),
    **dict.fromkeys(("unique", "_unique2", "unique_dim"), "unique"),
    **{name: name for name in ("cpu", "cuda", "numpy", "tolist", "to")},
    "copy_": "blocking-copy",
    **dict.fromkeys(("tensor", "as_tensor", "asarray", "new_tensor"), "tensor-from-data"),
}
# of the steps: a log that is written every eighth step or more rarely reads as often
SELDOM = 1 / 8
MOST_OF_THE_TIME = 0.5  # of the steps: what happens in these is no log's
OF_OPERATORS = {
    "aten::nonzero": "nonzero",
    "aten::masked_select": "mask-index",
    **dict.fromkeys(("aten::_unique2", "aten::unique_dim"), "unique"),
}
INSIDE = "inside-operator"
UNNAMED = "unnamed-operation"  # of compiled code, seen by torch's debug mode alone
ONE_HOT = "one_hot"
# Operators that check their input on a CPU and not on a GPU: how often one reads on a CPU, and of
# these on a GPU. one_hot reads the number of classes anywhere, where it is not given.
CHECKS_ON_A_CPU = {
    ONE_HOT: (2, 1),
    **dict.fromkeys(("quantile", "nanquantile"), (1, 0)),
    "_transformer_encoder_layer_fwd": (1, 0),  # sizes of nested tensors, which lie on the CPU
}
# torch's folders of what runs a graph: the backward of compiled code stands at the line that calls
# backward(). Not all of _functorch, where torch.vmap lies.
_RUNS_GRAPHS = re.compile(r"/torch/(_dynamo/backends|_functorch/_aot_autograd|_inductor)/")
# They read in a loop on a CPU, and once at least on a GPU.
LOOPS_ON_A_CPU = frozenset({"matrix_exp", "embedding_renorm_"})
PINS = (
    "copied from pinned memory with non_blocking=True it does not wait: a DataLoader's with "
    "pin_memory=True, or that of tensor.pin_memory(). Or make it on the GPU (device=...), or copy "
    "it once before the loop, if it stays the same"
)
LOADED = (
    "it is called by a DataLoader: keep the tensor on the CPU there, and copy each batch once, in "
    "the loop"
)
ASKED = "the program asks for this wait: it reads no value, and only what follows may need it"
BACKWARD = "torch does not say which operator's backward waits"
_COPY_IN = re.compile(r"Memcpy HtoD \((\w+)")  # in a trace, and the memory that is copied from
OFTEN = 4  # per step
IN_FEW_STEPS = "this happens in few steps only, as in a log, an evaluation or a checkpoint"
IN_LONG_STEPS = "this happens in few steps, which hold most of the time, and seldom in each of them"
# of torch's debug mode, which sees no copy to the CPU before another hook does
COPIES = ("to", "cuda", "tensor-from-data", "copied-index", "blocking-copy")
SAID = {
    "item": "converting a tensor to a number",
    "truth-value": "bool(tensor)",
    "cond-predicate": "reading torch.cond's predicate",
    "loop-condition": "reading while_loop's condition",
    **{name: f"{name}()" for name in ("nonzero", "unique")},
    "mask-index": "indexing with a boolean mask",
    "inside-operator": "a value read inside an operator",
    "unnamed-operation": "an operation that torch does not name",
    **{name: f".{name}()" for name in ("cpu", "cuda", "numpy", "tolist", "to")},
    "numpy": ".cpu(), which .numpy() needs there,",  # without it, .numpy() raises
    "blocking-copy": "copy_()",
    "copied-index": "copying an index or a value to the GPU",
    "tensor-from-data": "making a tensor from CPU data",
    **{
        f"{what.lower()}-synchronize": f"cuda{what}Synchronize"
        for what in ("Device", "Event", "Stream")
    },
}


# Functions of torch.linalg that read whether they failed; each has a form that returns it.
CHECKING = ("cholesky", "inv", "ldl_factor", "lu_factor", "solve")
READS_OR_COPIES = (
    "torch does not say what waits: it may be a read, or the copy of a tensor that lies on the "
    "CPU, as an index or a table that is not one of the module's buffers"
)
READS_FOR_ITSELF = "an operator of the graph reads for itself, as to check a result"
UNCHECKED = (
    "torch.linalg.{}_ex() reads nothing and raises no error: its last result says if it fails"
)

COUNTED_CLASSES = (
    "torch.nn.functional.one_hot(..., num_classes=...)  # else the largest label is read"
)

# What is read is the size of the result.
OF_SIZES = (
    "a result of a fixed size reads nothing: torch.where(mask, ..., ...) or a weight of 0 for what "
    "the mask leaves out, torch.nonzero_static(..., size=...). If it stays the same, make the "
    "indices once, before the loop"
)
SIZED = ("mask-index", "nonzero", "unique")


class Sync(Event):
    """One line of one run that reads or waits, in steady state."""

    rule: str
    location: m.Location
    cause: str
    where: str
    reads: tuple[int, ...]  # of each call after warm-up
    steps: int  # how many these are; 0: the program is one window, or goes on behind its steps
    operator: str
    # the innermost line of a library that reads, where it is not the project's own
    library: m.PackageLine | None
    chain: tuple[m.PackageLine, ...]  # from the project's line down to it, both left out
    expression: str
    on_cuda: bool
    waited_us: tuple[float, ...] | m.Skipped  # by call, what the host spent in it
    called: str = ""  # at the innermost line, where it reads inside: "multinomial"
    other_causes: tuple[str, ...] = ()  # of what this line reads besides
    is_used_at_once: bool = False  # what the line adds to is read in the same loop
    read_in: int = 0  # the first line behind that loop that reads it, if there is one
    read_until: int = 0  # from here on its name stands for something else
    is_pinned: bool = False  # the memory of all that TRACE saw copied to the GPU
    is_loaded: bool = False  # by a DataLoader, which calls this line
    # of the time of the steps, what passed in those that read; not of the last, which has no end
    share: float = 0.0
    is_dear: bool = False  # many reads in each step that has some, and a part of the time of all
    of_calls: bool = False  # a step is a call, of which an iteration may make several
    is_short: bool = False  # in a program without steps, of whose time it takes little

    @property
    def events(self) -> int:
        return sum(self.reads)

    @property
    def reads_per_step(self) -> float:
        return self.events / len(self.reads)

    @property
    def calls(self) -> int:
        """In which it happened."""
        return sum(count > 0 for count in self.reads)


# ---------------------------------------------------------------- from records to events


def collect(evidence: Evidence) -> tuple[Sync, ...]:
    breaks = evidence.once(graph_breaks.collect)
    broken = {
        (event.run, place.file, place.line)
        for event in breaks
        if event.location
        for place in (event.location, *event.ways_in)
    }
    return tuple(
        event
        for run in evidence.runs
        if isinstance(run.record.memory, m.MemoryPass)
        and isinstance(run.record.memory.syncs, m.SyncRecords)
        for event in _of_run(run, run.record.memory, run.record.memory.syncs, broken)
    )


class _Site(m.Model, kw_only=False):
    rule: str
    place: tuple[str, int]  # file and line
    library: m.Frame | None  # the line of a library that reads below it


def _of_run(
    run: RunEvidence,
    memory: m.MemoryPass,
    seen_by_hooks: m.SyncRecords,
    broken: set[tuple[m.RunKey, str, int]],
) -> Iterator[Sync]:
    source, on_cuda = run.source, run.whole.device == "cuda"
    sites = _sites(source, seen_by_hooks, on_cuda)
    script = run.record.script
    calls = len(memory.step_us)
    memory = _whole_turns(memory, script)
    steady = range(memory.steady_from, len(memory.step_us))
    is_window = script is not None and script.is_one_window
    goes_on = script is not None and script.goes_on
    is_pinned = _copies_pinned_memory(run)
    for site, seen in sites.items():
        if site.rule == WOULD_SYNC.id and any(
            (one.place, one.library) == (site.place, site.library) for one in sites if one != site
        ):
            continue  # torch's own way to a value that is read at this line anyway
        # Of each call the most that one source saw.
        reads = [int(max(counts)) for counts in zip(*_by_source(seen, steady), strict=True)]
        window = is_window
        if goes_on and _is_behind_the_steps(seen, calls):
            window = True
            every = range(m.BEFORE_THE_FIRST, calls)
            reads = [int(max(map(sum, _by_source(seen, every))))]
        first = seen[0]
        if _is_the_result(first, reads, script, whole=window):
            continue
        (function, *_) = (
            frame.function for frame in first.frames if (frame.file, frame.line) == site.place
        )
        place = source.at(*site.place, function)
        in_graph = _is_in_a_graph(first)
        otherwise = UNNAMED if in_graph and first.source == "sync-debug" else INSIDE
        cause = next((cause for record in seen if (cause := cause_of(record))), otherwise)
        identity = [*source.identity(place), cause]
        library, chain = _way_into_a_library(source, first)
        if library is not None:  # the same in another version that moved the line
            identity += (library.package, library.file, library.function, library.text)
        called = ""
        if not in_graph and cause == INSIDE:
            called = called_function(doing(first)[1])
        if not on_cuda and not (reads := _on_a_gpu(reads, called, doing(first)[1])):
            continue
        waited_us = _waited(seen, steady, on_cuda)
        in_loop, later, until = source.reads_what_it_keeps(*site.place)
        # the same line may be read in eager code, too, called from another one
        is_one_way = len({record.frames for record in seen}) == 1
        where = EAGER
        if in_graph:
            where = COMPILED
        elif is_one_way and library is None and (run.key, *site.place) in broken:
            where = BREAK
        steps, share = 0, 0.0
        if not window:
            steps, share = len(reads), _share(reads, _without_compiling(run, memory))
        yield Sync(
            run=run.key,
            rule=site.rule,
            location=place,
            cause=cause,
            where=where,
            reads=tuple(reads),
            steps=steps,
            operator=first.operator or first.op,
            library=library,
            chain=chain,
            expression=first.expression,
            called=called,
            other_causes=tuple(other for other in _causes(seen) if other != cause),
            is_used_at_once=in_loop,
            read_in=later,
            read_until=until,
            is_pinned=is_pinned,
            is_loaded=any(record.loads for record in seen),
            share=share,
            is_dear=_is_dear(run, reads, waited_us),
            of_calls=script is not None and script.step in m.CALLS_AS_STEPS,
            is_short=window and _is_short(waited_us, memory.watched_us),
            on_cuda=on_cuda,
            waited_us=waited_us,
            identity="\0".join(identity),
        )


def _whole_turns(memory: m.MemoryPass, script: m.ScriptRun | None) -> m.MemoryPass:
    """Without a loop's last iteration: it begins at a call inside of the loop, and has no more of
    its turn than what follows that call."""
    is_loop = script is not None and script.step == m.ITERATION
    if not is_loop or len(memory.step_us) <= memory.steady_from + 1:
        return memory
    return replace(memory, step_us=memory.step_us[:-1])


def _is_the_result(
    first: m.SyncRecord, reads: Sequence[int], script: m.ScriptRun | None, *, whole: bool
) -> bool:
    """Tell whether a program reads it once at most, as its result: a script's last call holds what
    follows its loop. torch reads several times for one text."""
    texts = reads
    if _is_printed(first):
        texts = [min(count, 1) for count in reads]
    if sum(texts) <= whole:
        return True
    return script is not None and len(texts) > 1 and sum(texts) == texts[-1] == 1


def _on_a_gpu(reads: list[int], called: str, expression: str) -> list[int]:
    """What a function that loops or checks on a CPU reads on a GPU; empty where that is nothing."""
    if called in LOOPS_ON_A_CPU:
        return [min(count, 1) for count in reads]
    on_a_cpu, on_a_gpu = CHECKS_ON_A_CPU.get(called, (1, 1))
    if not on_a_gpu or (called == ONE_HOT and _is_told_classes(expression)):
        return []
    return [-(-count * on_a_gpu // on_a_cpu) for count in reads]


def _is_behind_the_steps(seen: Sequence[m.SyncRecord], steps: int) -> bool:
    """Whether a line reads most often after the last step began, in a program that goes on."""
    by_source = _by_source(seen, range(steps))
    counts: list[float] = [max(of_step) for of_step in zip(*by_source, strict=True)]
    return counts[-1] >= OFTEN and counts[-1] > max(counts[:-1], default=0)


def _without_compiling(run: RunEvidence, memory: m.MemoryPass) -> list[float]:
    """The microseconds of each watched step, none of those in which a script's torch compiled."""
    compiled = run.record.compile
    compiled_in: tuple[int, ...] = ()
    if run.record.script is not None and isinstance(compiled, m.CompilePass):
        compiled_in = compiled.compiled_in
    numbered = enumerate(memory.watched_us, memory.steady_from)
    return [us * (step not in compiled_in) for step, us in numbered]


def _share(reads: Sequence[int], step_us: Sequence[float]) -> float:
    ended = list(zip(reads, step_us, strict=True))[:-1]
    total = sum(us for _, us in ended)
    return sum(us for count, us in ended if count) / (total or math.inf)


def _is_dear(
    run: RunEvidence, reads: Sequence[int], waited_us: Sequence[float] | m.Skipped
) -> bool:
    """By the steps of TIMING, which have no listeners."""
    timing = run.record.timing
    if not isinstance(waited_us, tuple) or not isinstance(timing, m.TimingPass):
        return False
    its = [count for count in reads if count]
    is_often = sum(its) >= OFTEN * len(its)
    step_us = timing.every_us
    return is_often and bool(step_us) and fmean(waited_us) >= WORTH_SHARE * fmean(step_us)


@m.otherwise(False)
def _is_short(waited_us: Sequence[float] | m.Skipped, of_us: Sequence[float]) -> bool:
    return sum(m.known(waited_us)) < WORTH_SHARE * sum(of_us)


@m.otherwise(False)
def _copies_pinned_memory(run: RunEvidence) -> bool:
    from kgprof.measures.traced_steps import traced_steps  # NumPy, of which --help has no need

    traced = m.known(run.once(traced_steps))
    names = {traced.columns.names[index] for index in traced.columns.name[traced.work.events]}
    copied = {found[1] for name in names if (found := _COPY_IN.match(name))}
    return copied == {"Pinned"}


def _causes(seen: Sequence[m.SyncRecord]) -> tuple[str, ...]:
    """Of one source: another one sees the same reads, and may name them otherwise."""
    of_one = [record for record in seen if record.source == seen[0].source]
    return tuple(dict.fromkeys(cause for record in of_one if (cause := cause_of(record))))


def _is_in_a_graph(record: m.SyncRecord) -> bool:
    return bool(record.compile_id) or _is_run_by_a_graph(record)


def _is_run_by_a_graph(record: m.SyncRecord) -> bool:
    return bool(record.chain) and _RUNS_GRAPHS.search(record.chain[0].file) is not None


def _is_told_classes(expression: str) -> bool:
    """Whether a call of one_hot is given the number of classes."""
    call = ast.parse(expression.strip(), mode="eval").body  # called_function has read it
    if not isinstance(call, ast.Call):
        return False
    return len(call.args) > 1 or any(each.arg == "num_classes" for each in call.keywords)


def _way_into_a_library(
    source: SourceText, record: m.SyncRecord
) -> tuple[m.PackageLine | None, tuple[m.PackageLine, ...]]:
    """The line that reads, and those between the project's and it."""
    if not record.chain or _is_run_by_a_graph(record):
        return None, ()
    library, *between = (_package_line(source, frame, record) for frame in record.chain)
    return library, tuple(reversed(between))


def _package_line(source: SourceText, frame: m.Frame, record: m.SyncRecord) -> m.PackageLine:
    text = ""
    if frame is record.chain[0]:
        text = record.library_expression.partition("\n")[0]
    return source.package_line(m.Location(frame.file, frame.line, frame.function, text))


def _sites(
    source: SourceText, seen: m.SyncRecords, on_cuda: bool
) -> dict[_Site, list[m.SyncRecord]]:
    """What was read on a CPU would on a GPU's machine as well. A factory without a device makes
    what lies on the host, unless the program names no device at all: then it would run on a GPU
    under a default device alone. What is made only to be read is a number of the host's anyway."""
    sites: dict[_Site, list[m.SyncRecord]] = defaultdict(list)
    for record in seen.records:
        own = next((frame for frame in record.frames if source.project.holds(frame.file)), None)
        on_the_host = record.tensor == "host" or (
            record.tensor == "unnamed" and (seen.names_a_device or _is_made_to_be_read(record))
        )
        if own is None or on_the_host:
            continue
        rule = _rule(record, on_cuda)
        if rule == HOST_DEVICE_SYNC.id and record.op in WAITS and _is_for_a_clock(source, record):
            rule = OWN_CLOCK.id
        if rule:
            library = next(iter(record.chain), None)
            sites[_Site(rule, (own.file, own.line), library)].append(record)
    return sites


def _is_made_to_be_read(record: m.SyncRecord) -> bool:
    """The seed and the order of a data loader, and what the reading expression itself draws."""
    if record.chain and _LOADERS in record.chain[0].file:
        return True
    return is_made_in(doing(record)[1])


def _is_for_a_clock(source: SourceText, record: m.SyncRecord) -> bool:
    """A wait of the program's own timing, or of a library that times what it is given."""
    if record.chain:
        return record.chain[0].file.endswith(clocks.TIMERS)
    calls = [(source.tree(frame.file), frame.line) for frame in record.frames]
    return clocks.waits_for_a_clock(calls)


def _rule(record: m.SyncRecord, on_cuda: bool) -> str:
    """Empty for what is no sync on CUDA: a value that lies on the host already, an assertion that
    is checked on the device (a read within a graph of which Dynamo captured no operator that
    reads), a Python number that is assigned, a number that the compiler reads; and for torch's own
    waits in compiled code, where it tries kernels."""
    if on_cuda and record.device == "cpu":
        return ""
    if record.chain and _NO_READ.search(record.chain[0].file):
        return ""
    if _is_torchs_own_wait(record):
        return ""
    in_graph = _is_in_a_graph(record)
    if record.op == READ and (
        (in_graph and not record.operator) or doing(record)[0] == "STORE_SUBSCR"
    ):
        return ""
    if record.source in ("python-call", "captured graph") and not on_cuda:
        return WOULD_SYNC.id
    if in_graph:
        return SYNC_IN_GRAPH.id
    return HOST_DEVICE_SYNC.id


def _is_torchs_own_wait(record: m.SyncRecord) -> bool:
    """Dynamo captures no ``torch.cuda.synchronize()``: in compiled code a line waits only where it
    says so itself, as a custom operator's does."""
    return (
        record.compile_id != ""
        and record.op in DEVICE_WAITS
        and called_function(record.expression) != "synchronize"
    )


def _by_source(
    records: Sequence[m.SyncRecord], steady: range, *, waits: bool = False
) -> list[list[float]]:
    """What each source counted, or how long it waited, call by call; two operators of one source
    are added up."""
    by_source: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(steady))
    for record in records:
        seen: Mapping[int, float] = record.calls
        if waits:
            seen = record.waited_us
        for index, call in enumerate(steady):
            by_source[record.source][index] += seen.get(call, 0)
    return list(by_source.values())


def _waited(
    records: Sequence[m.SyncRecord], steady: range, on_cuda: bool
) -> tuple[float, ...] | m.Skipped:
    """Of the source that waited longest: one wait is seen by several, each around the other."""
    if not on_cuda:
        return m.Skipped("not applicable on a CPU")
    longest = max(_by_source(records, steady, waits=True), key=sum, default=[])
    if not any(longest):
        return m.Skipped("no hook timed this wait")
    return tuple(longest)


# ---------------------------------------------------------------- what a line does


def doing(record: m.SyncRecord) -> tuple[str, str]:
    """Python's instruction and the expression of the line that reads: a library's, where one
    does."""
    if record.chain and not record.compile_id:
        return record.library_instruction, record.library_expression
    return record.instruction, record.expression


def is_tested(record: m.SyncRecord) -> bool:
    """Tell whether a condition reads the value."""
    instruction, _ = doing(record)
    return "JUMP" in instruction or instruction in ("UNARY_NOT", "TO_BOOL")


def _is_indexed(record: m.SyncRecord) -> bool:
    return doing(record)[0].endswith("_SUBSCR")


def _is_printed(record: m.SyncRecord) -> bool:
    """Whether torch makes a tensor's text, for which it masks and counts its values."""
    instruction, expression = doing(record)
    by_operator = instruction.startswith("FORMAT_") or (
        instruction == "BINARY_OP" and "%" in expression
    )
    return by_operator or called_function(expression) in ("print", "str", "repr", "format")


# ---------------------------------------------------------------- why


def cause_of(record: m.SyncRecord) -> str:
    """From what ran, what Python was doing and what was called; empty where nothing of it tells."""
    if record.op in WAITS:
        return WAITS[record.op]
    if record.operator:
        return CAUSES.get(record.operator, INSIDE)
    if record.source == "sync-debug" and _is_in_a_graph(record):
        return ""  # the expression is that of the call of the graph
    if record.source == "python-call":
        return CAUSES.get(record.op.rpartition(".")[2], "")
    if record.op != READ and record.source == "dispatch":
        if _is_indexed(record):
            return "mask-index"
        if _is_printed(record):
            return INSIDE
        return _of_operator(record)
    if is_tested(record):
        return "truth-value"
    called, debug = called_function(doing(record)[1]), record.source == "sync-debug"
    if not called and debug and _is_indexed(record):
        # the size of a mask is read by nonzero, which the dispatcher's hook sees first
        return "copied-index"
    cause = CAUSES.get(called, INSIDE)
    # of tensors each of which is read
    if not called or (cause == "tensor-from-data" and not debug):
        return "item"
    return cause


def _of_operator(record: m.SyncRecord) -> str:
    """What the operator that reads says, where the line calls it by name, or by a backward; inside
    of another function it is that one's own matter."""
    cause, called = OF_OPERATORS.get(record.op, INSIDE), called_function(doing(record)[1])
    if called in ("", "backward") or CAUSES.get(called) == cause:
        return cause
    return INSIDE


def called_function(expression: str) -> str:
    """The name of the outermost call in an expression, ``item`` in ``y.max().item()``; empty where
    there is none."""
    try:
        tree = ast.parse(_closed(expression.strip()), mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    if not isinstance(tree, ast.Call):
        return ""
    match tree.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return str(name)
    return ""


def _closed(expression: str) -> str:
    """A call whose arguments were cut off, without them."""
    name, _, arguments = expression.partition("(")
    starts = (arguments[:end] for end in range(len(arguments) + 1))
    within = all(start.count("(") >= start.count(")") for start in starts)
    if within and len(expression) >= m.EXPRESSION_KEPT:
        return f"{name}()"
    return expression


# ---------------------------------------------------------------- what is said


def syncs_per_step(events: Sequence[Sync], run: m.RunKey) -> float:
    """Reads of a step that wait, or would on CUDA, and dispatch something: KGP201 and KGP202."""
    return sum(
        event.reads_per_step
        for event in events
        if event.run == run and event.rule in _COUNTED and event.steps
    )


def syncs_of_steps(events: Sequence[Sync], run: m.RunKey) -> list[int]:
    """The same of each step after warm-up, with the waits for a clock; empty without any."""
    counted = (
        event.reads
        for event in events
        if event.run == run and event.rule != WOULD_SYNC.id and event.steps
    )
    return [sum(of_step) for of_step in zip(*counted, strict=True)]


def reads_by_finding(events: Sequence[Sync], run: m.RunKey) -> dict[str, float]:
    """What ``syncs_per_step`` adds up, by fingerprint; the same words twice in one function have
    one between them."""
    reads: dict[str, float] = defaultdict(float)
    for event in events:
        if event.run == run and event.rule in _COUNTED and event.steps:
            reads[fingerprint(event.rule, event.run, event.identity)] += event.reads_per_step
    return dict(reads)


def diagnose(events: tuple[Sync, ...]) -> tuple[m.Finding, ...]:
    return tuple(map(_finding, events))


def _finding(event: Sync) -> m.Finding:
    rule = next(rule for rule in RULES if rule.id == event.rule)
    in_backward = event.cause == "nonzero" and called_function(event.expression) == "backward"
    is_eager = rule is HOST_DEVICE_SYNC
    seldom = is_eager and not event.of_calls and event.calls <= SELDOM * event.steps
    is_log = event.share < MOST_OF_THE_TIME
    is_dear = event.is_dear or (not is_log and event.events >= OFTEN * event.calls)
    # no line of the program's reads in its own backward
    is_note = in_backward or (is_eager and event.is_short) or (seldom and not is_dear)
    fix = no_fix = ""
    if not is_note:
        fix = _fix(event)
    if seldom and is_note and is_log:
        no_fix = IN_FEW_STEPS
    elif seldom and is_note:
        no_fix = IN_LONG_STEPS
    elif not fix:
        no_fix = _why_no_code(event, is_note=is_note)
    return finding(
        rule,
        event,
        _message(event, in_backward=in_backward),
        event.identity,
        is_note=is_note,
        no_fix=no_fix,
        count=max(1, round(event.reads_per_step)),
        library=event.library,
        fix=fix,
        reads=m.Reads(
            event.operator,
            event.events,
            event.calls,
            event.steps,
            event.chain,
            event.called or event.cause,
            is_dear,
        ),
        cost=_cost(event),
    )


def _message(event: Sync, *, in_backward: bool) -> str:
    what, often = SAID.get(event.cause, "reading a value"), _often(event)
    if in_backward:
        what += ", which a backward calls,"
    if event.called and event.operator == SYNC_DEBUG:
        what = f"{event.called}()"  # torch's debug mode tells no read from a copy
    elif event.called:
        what = f"a value read inside {event.called}()"
        if not often.startswith("in "):
            often = f"at least {often}"  # an operator may read several times
    forces = "forces"
    if event.other_causes and not in_backward:
        forces = "force"
        others = (SAID.get(each, "reading a value") for each in event.other_causes)
        what = " and ".join((what, *others))
    if event.library:
        what += f" in {event.library.words}"
    where = {COMPILED: " inside compiled code", BREAK: " at a graph break", EAGER: ""}[event.where]
    if event.rule == WOULD_SYNC.id or not event.on_cuda:
        return f"with the tensor on a GPU, {what} would force a sync{where}, {often}"
    if event.rule == OWN_CLOCK.id:
        return f"the program's own clock waits for the GPU ({what}), {often}"
    return f"{what} {forces} a GPU sync{where}, {often}"


def _cost(event: Sync) -> m.FindingCost | m.Skipped:
    if isinstance(event.waited_us, m.Skipped):
        return event.waited_us
    if not event.steps:
        return m.Skipped("it is not counted by step")
    return m.FindingCost(
        waited_a_step(event.waited_us),
        "us/step",
        "CPU wait at this line under instrumentation; part is GPU work still running",
        (m.PassName.MEMORY,),
        len(event.waited_us),
        extremes=(min(event.waited_us), max(event.waited_us)),
    )


def _fix(event: Sync) -> str:
    """Code for the project's own line, of its own names, that waits for nothing; a library's is
    looked up elsewhere, and at a graph break the break is what to mend."""
    if event.library or event.rule == OWN_CLOCK.id:
        return ""
    if event.called == ONE_HOT:
        return COUNTED_CLASSES
    if event.operator == SYNC_DEBUG and event.cause in COPIES:
        if event.is_loaded:
            return ""
        return _not_waiting(event)
    if event.is_used_at_once or event.where != EAGER:
        return ""
    return kept_as_a_tensor(event.location.text, event.expression, event.read_in, event.read_until)


def _why_no_code(event: Sync, *, is_note: bool) -> str:
    """What can be done about a wait of this kind, which no measurement proves to help here; nothing
    of one in a library, and of a note, which would count with it."""
    name = event.called or event.operator.removeprefix("linalg_")
    text = event.expression + event.location.text
    is_check = name in CHECKING and f"linalg.{name}(" in text
    if event.cause == UNNAMED:
        return READS_OR_COPIES
    if event.rule == SYNC_IN_GRAPH.id and event.cause == INSIDE:
        return UNCHECKED.format(name) if is_check else READS_FOR_ITSELF
    if event.library or event.rule not in _COUNTED:
        return ""
    if event.cause in WAITS.values() and not event.other_causes:
        return ASKED
    debug = event.operator == SYNC_DEBUG
    if called_function(event.expression) == "backward" and (debug or event.cause == "nonzero"):
        return BACKWARD
    if is_note:
        return ""
    if event.is_loaded and debug:
        return LOADED
    if debug and (event.cause in COPIES or event.called == "type_as"):
        return PINS
    if event.cause in SIZED and event.expression:
        return OF_SIZES
    return UNCHECKED.format(name) if is_check else ""


def _not_waiting(event: Sync) -> str:
    """A copy to the GPU from what TRACE saw, or the line says, to be pinned memory; or the tensor
    made on the GPU. Empty where neither is known to be possible."""
    with suppress(SyntaxError, ValueError):
        match ast.parse(event.expression.strip(), mode="eval").body:
            case ast.Call(func=ast.Attribute(ast.Call() as made)) as call if (
                device := _device_of(call)
            ) and _takes_a_device(made):
                filled = ast.unparse(_with(made, "device", device))
                return f"{filled}  # made there, nothing is copied; random numbers are others"
            case ast.Call(func=ast.Attribute(made, "to" | "cuda" | "copy_")) as call if (
                event.is_pinned or ".pin_memory()" in ast.unparse(made)
            ):
                return ast.unparse(_with(call, "non_blocking", ast.Constant(True)))
            case ast.Call() as call:
                return _filled(call)
    return ""


def _device_of(call: ast.Call) -> ast.expr | None:
    """Where ``.to()`` or ``.cuda()`` copies to; None where it may do something else, too."""
    match call:
        case ast.Call(func=ast.Attribute(attr="cuda"), args=[], keywords=[]):
            return ast.Constant("cuda")
        case ast.Call(func=ast.Attribute(attr="to"), args=[to], keywords=[]) if (
            "device" in ast.unparse(to) or isinstance(to, ast.Constant)
        ):
            return to
        case ast.Call(args=[], keywords=[ast.keyword(arg="device", value=to)]):
            return to
    return None


def _takes_a_device(factory: ast.Call) -> bool:
    """A generator and pinned memory are the CPU's."""
    named = {each.arg for each in factory.keywords}
    return ast.unparse(factory.func) in FILLED and not named & {"generator", "pin_memory"}


def _with(call: ast.Call, argument: str, value: ast.expr) -> ast.Call:
    kept = [each for each in call.keywords if each.arg != argument]
    return ast.Call(call.func, call.args, [*kept, ast.keyword(argument, value)])


def _filled(call: ast.Call) -> str:
    """``torch.tensor([0.0], device=d)`` by a kernel that writes the number."""
    if ast.unparse(call.func) not in ("torch.tensor", "torch.as_tensor") or len(call.args) != 1:
        return ""
    match ast.literal_eval(call.args[0]):
        case list([bool() | int() | float() as number]):
            size = "(1,)"
        case bool() | int() | float() as number:
            size = "()"
        case _:
            return ""
    named = "".join(f", {ast.unparse(each)}" for each in call.keywords)
    return f"torch.full({size}, {number!r}{named})  # written on the GPU: nothing is copied"


def kept_as_a_tensor(line: str, expression: str, read_in: int = 0, read_until: int = 0) -> str:
    """``total += loss.item()`` or an ``append`` to a variable without the read; empty for a line
    that does something else: who gets a returned value, an attribute or an entry of a dict may
    need a number.

    ``read_in``: a line that may need one of what is kept. ``read_until``: the name stands for
    something else from there on.
    """
    try:
        read = ast.parse(expression.strip(), mode="eval").body
        (statement,) = ast.parse(line.strip()).body
    except (SyntaxError, ValueError):
        return ""
    match statement:
        case ast.AugAssign(target=ast.Name(id=name), value=kept):
            later = f"a tensor: use float({name})"
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(attr="append", value=ast.Name(id=name)), args=[kept])
        ):
            later = f"tensors: use torch.stack({name}).tolist()"
        case _:
            return ""
    if read_in and read_until > read_in:
        later += f" from line {read_in} to {read_until - 1}"
    else:
        later += clause(" from line ", read_in, " on") or " after the loop"
    appends = isinstance(statement, ast.Expr)
    before, tensor = ast.unparse(kept), _without_reads(kept, ast.dump(read), appends)
    if ast.dump(read) in ast.dump(tensor):
        return ""
    code = ast.unparse(statement).replace(before, ast.unparse(tensor))
    return f"{code}  # {later}"


def _without_reads(value: ast.expr, read: str, keeps: bool) -> ast.expr:
    """Takes out reads that only arithmetic lies around: a function or a text would read the tensor
    all the same. ``keeps``: a list keeps it, so that a tensor that an object owns is copied: a
    later step may write to it."""
    match value:
        case ast.BinOp(left, op, right) if not isinstance(op, ast.Mod):
            left, right = (_without_reads(each, read, keeps) for each in (left, right))
            return ast.BinOp(left, op, right)
        case ast.Call(func=ast.Attribute(value=tensor, attr="item"), args=[]):
            pass
        case ast.Call(func=ast.Name(id="float" | "int"), args=[tensor]) if ast.dump(value) == read:
            pass
        case _:
            return value
    if not ast.unparse(tensor).endswith(".detach()"):
        tensor = _called(tensor, "detach")
    is_owned = isinstance(tensor, ast.Call) and isinstance(
        getattr(tensor.func, "value", None), ast.Attribute | ast.Subscript
    )
    if keeps and is_owned:
        return _called(tensor, "clone")
    return tensor


def _called(value: ast.expr, method: str) -> ast.Call:
    return ast.Call(ast.Attribute(value, method), [], [])


def _often(event: Sync) -> str:
    """In whole events: "once per step", "in 1 of 37 steps", "18 times in 3 of 12 steps", "40 times
    in the program"."""
    if not event.steps:
        return f"{event.events:,} times in the program"
    each, rest = divmod(event.events, event.steps)
    if event.calls == event.steps and not rest and len(set(event.reads)) == 1:
        if each == 1:
            return "once per step"
        return f"{each:,} times per step"
    steps = f"in {event.steps:,} steps"
    if event.calls < event.steps:
        steps = f"in {event.calls:,} of {event.steps:,} steps"
    if event.events == event.calls:
        return steps
    return f"{event.events:,} times {steps}"


def waited_a_step(waited_us: Sequence[float]) -> float:
    """Of the calls that waited the median, times their share: a median over all would be 0 for a
    read in every fifth.

    One of them has waited, at least.
    """
    waited = [us for us in waited_us if us]
    return float(median(waited) * len(waited) / len(waited_us))
