"""``kgprof selftest``: a workload with known answers through every capture, on this machine and this torch.

What is run is what ``kgprof profile`` runs, in child processes; this module is torch-free and only compares. A capture
works, is unavailable (and says why), or gave a wrong answer.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType

from kgprof import model as m
from kgprof.analysis import analyse
from kgprof.collectors.disagreements import SOURCES_DISAGREE
from kgprof.collectors.graph_breaks import GRAPH_BREAK
from kgprof.collectors.recompiles import IN_STEADY_STATE
from kgprof.collectors.skipped_frames import SKIPPED_FRAME
from kgprof.progress import Progress
from kgprof.reading import recordings
from kgprof.record import record

WORKLOAD = Path(__file__).resolve().parents[1] / "workloads" / "known_answers.py"
STEPS, WARMUP, RESIZED_AT, PRODUCTS = 8, 3, 5, 3  # the latter two stand in WORKLOAD as well
WORKS, UNAVAILABLE, WRONG = "works", "unavailable", "wrong"
PRINT_BREAK = "GB0059"  # torch's id of the break that a call of print is

# What is known to differ from release to release: read by people who wonder why two machines say different things.
KNOWN_DIFFERENCES = MappingProxyType(
    {
        "2.11": (f"torch 2.11 gives no reason for a generator that it skips ({SKIPPED_FRAME.id} names none)",),
        "2.13": ("torch 2.13 gives a reason for a generator that it skips, and still writes no record of it",),
    }
)


class Checked(m.Model, frozen=True, kw_only=True):
    """One capture and its answer. ``status``: works, unavailable, wrong."""

    capture: str
    status: str
    expected: str
    got: str  # of a capture that is unavailable: why


class Answers(m.Model, frozen=True, kw_only=True):
    """What ``--format json`` prints."""

    kgprof: str
    torch: str
    python: str
    triton: str
    cuda: str
    device: str
    platform: str
    checks: tuple[Checked, ...]
    differences: tuple[str, ...]

    @property
    def wrong(self) -> tuple[Checked, ...]:
        return tuple(check for check in self.checks if check.status == WRONG)


def selftest(device: str, progress: Progress, *, timeout_s: float) -> Answers:
    """Raises UsageError where the device is not there, KgprofError where kgprof itself fails, KeyboardInterrupt where
    it was interrupted: half of a run would be full of wrong answers."""
    with tempfile.TemporaryDirectory(prefix="kgprof-selftest-") as scratch:
        recording = recordings.load(record(asked(device, timeout_s=timeout_s), Path(scratch) / "out", progress))
        if recording.header.interrupted:
            raise KeyboardInterrupt
        return compare(recording)


def asked(device: str, *, timeout_s: float) -> m.Options:
    return m.Options(
        workload=f"{WORKLOAD}:{device}",
        device=device,
        modes=(m.AS_IS,),
        steps=STEPS,
        warmup=WARMUP,
        timeout_s=timeout_s,
    )


def compare(recording: m.Recording) -> Answers:
    """The answers in a Recording of the workload against those that its source says."""
    profile = analyse(recording)
    environment = profile.environment
    release = ".".join(environment.torch.split(".")[:2])
    return Answers(
        kgprof=environment.kgprof,
        torch=environment.torch,
        python=environment.python,
        triton=_words(environment.triton),
        cuda=_words(environment.cuda),
        device=f"{profile.device}: {environment.device_name}",
        platform=environment.platform,
        checks=tuple(_checks(recording, profile)),
        differences=KNOWN_DIFFERENCES.get(release, ()),
    )


def lines(answers: Answers) -> Iterator[str]:
    """For people: one line a capture, then what torch of this version is known to do otherwise."""
    yield f"kgprof {answers.kgprof}, torch {answers.torch}, triton {answers.triton}, Python {answers.python}"
    yield f"{answers.device}; {answers.platform}"
    yield ""
    width = max(len(check.capture) for check in answers.checks)
    for check in answers.checks:
        said = {WORKS: check.got, UNAVAILABLE: check.got, WRONG: f"expected {check.expected}, got {check.got}"}
        status = check.status.upper() if check.status == WRONG else check.status
        yield f"{check.capture:<{width}}  {status:<11}  {said[check.status]}"
    if answers.differences:
        yield ""
        yield from answers.differences
    yield ""
    counts = [
        (sum(check.status == status for check in answers.checks), status) for status in (WORKS, UNAVAILABLE, WRONG)
    ]
    yield ", ".join(f"{count} {status}" for count, status in counts)


def _words(value: str | m.Skipped) -> str:
    return value if isinstance(value, str) else f"none ({value.reason})"


# ---------------------------------------------------------------- the answers


class Seen:
    """The one run, and where the marks of its source are."""

    def __init__(self, recording: m.Recording, profile: m.Profile) -> None:
        self.profile = profile
        self.run: m.RunRecord = recording.runs[0]
        self.ceilings = recording.ceilings
        self.on_cuda = profile.device == "cuda"
        self.environment: m.Environment = profile.environment
        text = WORKLOAD.read_text(encoding="utf-8").splitlines()
        marks = ((re.search(r"# answer: (.+)$", line), number) for number, line in enumerate(text, start=1))
        self.line = {mark[1].strip(): number for mark, number in marks if mark}
        self.records = self.run.records if isinstance(self.run.records, m.CompileRecords) else None
        unavailable = self.run.compile.capture_unavailable if isinstance(self.run.compile, m.CompilePass) else ()
        if isinstance(self.run.memory, m.MemoryPass):
            unavailable += self.run.memory.capture_unavailable
        self.unavailable = unavailable

    def lacking(self, source: str) -> str:
        """Why a source was not there."""
        lost = next((one for one in self.unavailable if one.capture == source), None)
        return "" if lost is None else lost.words if lost.incomplete else lost.why

    def findings(self, rule: str) -> set[int]:
        return {
            finding.location.line
            for finding in self.profile.findings
            if finding.rule == rule and finding.location and finding.location.file == str(WORKLOAD)
        }

    def messages(self, rule: str) -> str:
        return "; ".join(finding.message for finding in self.profile.findings if finding.rule == rule)


Answer = tuple[str, str] | m.Skipped  # (expected, got), equal where the capture is right


def _checks(recording: m.Recording, profile: m.Profile) -> Iterator[Checked]:
    seen = Seen(recording, profile)
    for name, ask in CHECKS:
        answer = ask(seen)
        if isinstance(answer, m.Skipped):
            yield Checked(capture=name, status=UNAVAILABLE, expected="", got=answer.reason)
        else:
            expected, got = answer
            yield Checked(capture=name, status=WORKS if expected == got else WRONG, expected=expected, got=got)


def _graph_break(seen: Seen) -> Answer:
    if why := seen.lacking("structured trace") or _no_compile(seen):
        return m.Skipped(reason=why)
    named = PRINT_BREAK if PRINT_BREAK in seen.messages(GRAPH_BREAK.id) else "no id"
    at = sorted(seen.findings(GRAPH_BREAK.id))
    want = f"{GRAPH_BREAK.id} at line {seen.line['graph break']}, {PRINT_BREAK}"
    return want, f"{GRAPH_BREAK.id} at line {_list(at)}, {named}"


def _recompile(seen: Seen) -> Answer:
    if why := seen.lacking("structured trace") or _no_compile(seen):
        return m.Skipped(reason=why)
    said = seen.messages(IN_STEADY_STATE.id)
    what = "size" if "size of x, dimension 0: expected 8, got 9" in said else said or "nothing"
    calls = re.search(r"in call (\d+)", said)
    at = sorted(seen.findings(IN_STEADY_STATE.id))
    want = f"{IN_STEADY_STATE.id} at line {seen.line['recompile']}, size, in call {RESIZED_AT}"
    return want, f"{IN_STEADY_STATE.id} at line {_list(at)}, {what}, in call {calls[1] if calls else 'none'}"


def _skipped_frame(seen: Seen) -> Answer:
    if why := seen.lacking("skip records") or _no_compile(seen):
        return m.Skipped(reason=why)
    want = f"{SKIPPED_FRAME.id} at line {seen.line['skipped frame']}"
    return want, f"{SKIPPED_FRAME.id} at line {_list(sorted(seen.findings(SKIPPED_FRAME.id)))}"


def _frames(seen: Seen) -> Answer:
    if why := seen.lacking("frame hook") or _no_compile(seen):
        return m.Skipped(reason=why)
    assert seen.records is not None
    rows = [row for row in seen.records.frames if row.file == str(WORKLOAD)]
    resumed = f"torch_dynamo_resume_in_breaks_at_{seen.line['graph break']}"
    outcomes = {
        name: _list(sorted({r.outcome for r in rows if r.function == name})) for name in ("breaks", resumed, "loops")
    }
    want = {"breaks": "compiled", resumed: "compiled", "loops": "skipped"}
    return _pairs(want), _pairs(outcomes)


def _graphs(seen: Seen) -> Answer:
    """A graph of ``resized`` runs once in each call: the first in those before the size changed."""
    if why := seen.lacking("graph hook") or _no_compile(seen):
        return m.Skipped(reason=why)
    assert seen.records is not None
    frames = {row.compile_id for row in seen.records.frames if row.function == "resized" and row.compile_id}
    runs = sorted(sum(graph.runs.values()) for graph in seen.records.graphs if graph.compile_id in frames)
    return f"runs {_list(sorted([RESIZED_AT, STEPS - RESIZED_AT]))}", f"runs {_list(runs)}"


def _disagreements(seen: Seen) -> Answer:
    if seen.records is None:
        return m.Skipped(reason=_no_compile(seen))
    none = f"no {SOURCES_DISAGREE.id}"
    return none, seen.messages(SOURCES_DISAGREE.id) or none


def _torch_logs(seen: Seen) -> Answer:
    if why := seen.lacking("torch logs"):
        return m.Skipped(reason=why)
    return (
        "torch's text of the break",
        "torch's text of the break" if "Graph break" in seen.run.log else "none in the log",
    )


def _registry(seen: Seen) -> Answer:
    if seen.records is None:
        return m.Skipped(reason=_no_compile(seen))
    registry = seen.records.sources.registry
    if not registry:
        return m.Skipped(reason="this torch ships no graph_break_registry.json")
    entry = registry.get(PRINT_BREAK)
    explained = bool(entry and entry.explanation)
    return f"{PRINT_BREAK} explained", f"{PRINT_BREAK} explained" if explained else f"only {_list(sorted(registry))}"


def _cuda_graph_log(seen: Seen) -> Answer:
    if not seen.on_cuda:
        return m.Skipped(reason="CUDA graphs are not observable on a CPU run")
    if why := seen.lacking("cuda graph log") or _no_compile(seen):
        return m.Skipped(reason=why)
    assert seen.records is not None
    recorded = any("ecord" in line.text for line in seen.records.logs)
    return "a recording is logged", "a recording is logged" if recorded else f"{len(seen.records.logs)} other messages"


def _cuda_graphs(seen: Seen) -> Answer:
    kernels = seen.profile.runs[0].kernels
    if not seen.on_cuda:
        return m.Skipped(reason="CUDA graphs are not observable on a CPU run")
    if isinstance(kernels, m.Skipped):
        return kernels
    launched = kernels.graph_launches
    if isinstance(launched, m.Skipped):
        return launched
    return f"{STEPS} launches in {STEPS} steps", f"{launched} launches in {kernels.steps} steps"


def _inductor(seen: Seen) -> Answer:
    if isinstance(seen.environment.compiler, m.Skipped) and not seen.on_cuda:
        return seen.environment.compiler
    if not isinstance(seen.run.compile, m.CompilePass):
        return m.Skipped(reason=seen.run.compile.reason)
    rows = [row for row in seen.run.compile.compilations if row.function == "generated"]
    return "generated compiles once, without fault", _compiled_times(len(rows), any(row.fail_reason for row in rows))


def _compiled_times(count: int, failed: bool) -> str:
    times = "once" if count == 1 else f"{count} times"
    return f"generated compiles {times}, {'and fails' if failed else 'without fault'}"


def _clock(seen: Seen) -> Answer:
    timing = seen.run.timing
    if not isinstance(timing, m.TimingPass):
        return timing
    clock = "cuda events" if seen.on_cuda else "perf_counter"
    whole = all(len(group) == STEPS and min(group) > 0 for group in timing.step_us)
    return (
        f"{clock}, groups of {STEPS} steps above 0 us",
        f"{timing.clock}, {f'groups of {STEPS}' if whole else 'other'} steps above 0 us",
    )


def _trace(seen: Seen) -> Answer:
    kernels = seen.profile.runs[0].kernels
    if isinstance(kernels, m.Skipped):
        return kernels
    if seen.on_cuda:
        products = sum(row.count for row in kernels.rows if row.kind == "gemm")
        want = f"at least {PRODUCTS * STEPS} GEMM kernels on the device"
        return want, want if products >= PRODUCTS * STEPS else f"{products} GEMM kernels"
    products = sum(row.count for row in kernels.rows if row.name == "aten::mm")
    return f"aten::mm {PRODUCTS * STEPS} times", f"aten::mm {products} times"


def _cpp_kernels(seen: Seen) -> Answer:
    if seen.on_cuda:
        return m.Skipped(reason="on CUDA the trace itself names the device's kernels")
    if isinstance(seen.run.kernels, m.Skipped):
        return seen.run.kernels
    kernels = seen.profile.runs[0].kernels
    named = isinstance(kernels, m.KernelBreakdown) and any(row.generator == "cpp" for row in kernels.rows)
    return "a C++ kernel by name", "a C++ kernel by name" if named else "none"


def _eager_calls(seen: Seen) -> Answer:
    if isinstance(seen.run.kernel_origins, m.Skipped):
        return seen.run.kernel_origins
    if why := seen.lacking("eager calls"):
        return m.Skipped(reason=why)
    products = [origin for origin in seen.run.kernel_origins.origins if origin.kernel == "aten.mm"]
    at = sorted({line.line for origin in products for line in origin.lines})
    want = f"aten.mm called {PRODUCTS} times at line {seen.line['eager call']}"
    return want, f"aten.mm called {len(products)} times at line {_list(at)}"


def _library_calls(seen: Seen) -> Answer:
    """The generated code calls ATen for a scatter, which torch itself says nothing of."""
    if isinstance(seen.run.kernel_origins, m.Skipped):
        return seen.run.kernel_origins
    if isinstance(seen.environment.compiler, m.Skipped) and not seen.on_cuda:
        return seen.environment.compiler
    origins = seen.run.kernel_origins.origins
    scatters = [one for one in origins if one.compile_id and one.kernel.startswith("aten.scatter_reduce")]
    at = sorted({line.line for origin in scatters for line in origin.lines if line.file == str(WORKLOAD)})
    return f"a scatter from line {seen.line['library call']}", f"a scatter from line {_list(at)}"


def _ceilings(seen: Seen) -> Answer:
    if isinstance(seen.ceilings, m.Skipped):
        return seen.ceilings
    measured = {one.operation for one in seen.ceilings.measured if one.per_s and min(one.per_s) > 0}
    want = f"{m.COPY} and {m.MATMUL} above 0 a second"
    return want, want if measured == {m.COPY, m.MATMUL} else f"{_list(sorted(measured))} above 0 a second"


def _host(seen: Seen) -> Answer:
    host = seen.run.host
    if not isinstance(host, m.HostPass):
        return host
    calls = sum(row.calls for row in host.rows if row.function.endswith("known_work"))
    return f"known_work called {STEPS} times", f"known_work called {calls} times"


def _stacks(seen: Seen) -> Answer:
    """A function of a known name stands under its caller, and its products under it."""
    flame = seen.profile.runs[0].flame
    if isinstance(flame, m.Skipped):
        return flame
    names = [flame.names[flame.frames[frame].name] for frame in flame.frame]
    at = [node for node, name in enumerate(names) if name == "known_work" and names[flame.parent[node]] == "step"]
    below = set(at)
    for node, parent in enumerate(flame.parent):  # parents come first
        if parent in below:
            below.add(node)
    products = sum(flame.calls[node] for node in below if names[node] == "aten::mm")
    want = f"known_work under step, {PRODUCTS * flame.steps} products in {flame.steps} steps"
    return want, f"known_work under {'step' if at else 'nothing'}, {products} products in {flame.steps} steps"


def _syncs(seen: Seen) -> Answer:
    memory = seen.run.memory
    if not isinstance(memory, m.MemoryPass):
        return memory
    if why := seen.lacking("syncs"):
        return m.Skipped(reason=why)
    if not isinstance(memory.syncs, m.SyncRecords):
        return memory.syncs
    read = [r for r in memory.syncs.records if r.op == "aten::_local_scalar_dense" and r.frames and not r.compile_id]
    at = sum(sum(record.calls.values()) for record in read if record.frames[0].line == seen.line["sync"])
    elsewhere = sorted({record.frames[0].line for record in read} - {seen.line["sync"]})
    also = f", and at {_list(elsewhere)}" if elsewhere else ""
    return f"line {seen.line['sync']} reads {STEPS} times", f"line {seen.line['sync']} reads {at} times{also}"


def _cond(seen: Seen) -> Answer:
    """A compiled torch.cond reads its predicate, on the CPU as well."""
    memory = seen.run.memory
    if not isinstance(memory, m.MemoryPass):
        return memory
    if not isinstance(memory.syncs, m.SyncRecords):
        return memory.syncs
    read = {r.frames[0].line for r in memory.syncs.records if r.compile_id and r.operator == "cond" and r.frames}
    return f"a read by torch.cond at line {seen.line['cond']}", f"a read by torch.cond at line {_list(sorted(read))}"


def _tensors(seen: Seen) -> Answer:
    memory = seen.run.memory
    if not isinstance(memory, m.MemoryPass):
        return memory
    if why := seen.lacking("tensor probe"):
        return m.Skipped(reason=why)
    if not isinstance(memory.tensors, m.TensorRecords):
        return memory.tensors
    written = {place.frames[0].line for graph in memory.tensors.graphs for place in graph.in_place if place.frames}
    return f"a write at line {seen.line['in-place']}", f"a write at line {_list(sorted(written))}"


def _peaks(seen: Seen) -> Answer:
    memory = seen.run.memory
    if not isinstance(memory, m.MemoryPass):
        return memory
    if isinstance(memory.peaks, m.Skipped):
        return memory.peaks
    peak = memory.peaks.allocated_bytes if seen.on_cuda else memory.peaks.resident_bytes
    if isinstance(peak, m.Skipped):
        return peak
    return "a peak above 0 bytes", "a peak above 0 bytes" if peak > 0 else f"{peak} bytes"


def _no_compile(seen: Seen) -> str:
    """Empty where there are records."""
    if seen.records is not None:
        return ""
    return seen.run.records.reason if isinstance(seen.run.records, m.Skipped) else "no records"


def _list(values: object) -> str:
    return ", ".join(map(str, values)) or "none" if isinstance(values, list) else str(values)


def _pairs(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


CHECKS: tuple[tuple[str, Callable[[Seen], Answer]], ...] = (
    ("structured trace: graph break", _graph_break),
    ("structured trace: recompile", _recompile),
    ("skip records", _skipped_frame),
    ("frame hook", _frames),
    ("graph hook", _graphs),
    ("sources agree", _disagreements),
    ("torch logs", _torch_logs),
    ("graph-break registry", _registry),
    ("Inductor", _inductor),
    ("CUDA-graph log", _cuda_graph_log),
    ("CUDA graphs launched", _cuda_graphs),
    ("TIMING clock", _clock),
    ("TRACE", _trace),
    ("C++ kernel profile", _cpp_kernels),
    ("lines of eager calls", _eager_calls),
    ("lines of library calls", _library_calls),
    ("ceilings of the card", _ceilings),
    ("HOST", _host),
    ("STACK", _stacks),
    ("MEMORY: syncs", _syncs),
    ("MEMORY: torch.cond", _cond),
    ("MEMORY: tensor probe", _tensors),
    ("MEMORY: peaks", _peaks),
)
