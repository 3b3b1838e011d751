"""``kgprof selftest``: a workload with known answers through every capture, on this machine and
this torch.

What is run is what ``kgprof profile`` runs, in child processes; this module is torch-free and only
compares. A capture works, is unavailable (and says why), or gave a wrong answer.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from kgprof import model as m
from kgprof.analysis import analyse
from kgprof.collectors.compile.graph_breaks import GRAPH_BREAK
from kgprof.collectors.compile.recompiles import IN_STEADY_STATE
from kgprof.collectors.compile.skipped_frames import SKIPPED_FRAME
from kgprof.collectors.trust.disagreements import SOURCES_DISAGREE
from kgprof.progress import Progress
from kgprof.reading import recordings
from kgprof.record import record
from kgprof.record.ground.scratch import scratch_folder

T = TypeVar("T")

WORKLOAD = Path(__file__).resolve().parents[1] / "workloads" / "known_answers.py"
STEPS, WARMUP, RESIZED_AT, PRODUCTS = 8, 3, 5, 3  # the latter two stand in WORKLOAD as well
WORKS, UNAVAILABLE, WRONG = "works", "unavailable", "wrong"
NO_DISAGREEMENT = f"no {SOURCES_DISAGREE.id}"
PRINT_BREAK = "GB0059"  # torch's id of the break that a call of print is

# What is known to differ from release to release: read by people who wonder why two machines say
# different things.
KNOWN_DIFFERENCES = MappingProxyType(
    {
        "2.11": (
            f"torch 2.11 gives no reason for a generator that it skips ({SKIPPED_FRAME.id} names "
            "none)",
        ),
        "2.13": (
            "torch 2.13 gives a reason for a generator that it skips, and still writes no record "
            "of it",
        ),
    }
)


class Checked(m.Model):
    """One capture and its answer. ``status``: works, unavailable, wrong."""

    capture: str
    status: str
    expected: str
    got: str  # of a capture that is unavailable: why


class Answers(m.Model):
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
    """Raises UsageError where the device is not there, KgprofError where kgprof itself fails,
    KeyboardInterrupt where it was interrupted: half of a run would be full of wrong answers."""
    with scratch_folder("kgprof-selftest-") as scratch:
        recording = recordings.load(record(asked(device, timeout_s=timeout_s), scratch, progress))
        if recording.header.interrupted:
            raise KeyboardInterrupt
        return compare(recording)


def asked(device: str, *, timeout_s: float) -> m.Options:
    return m.Options(
        f"{WORKLOAD}:{device}",
        device=device,
        modes=(m.AS_IS,),
        steps=STEPS,
        warmup=WARMUP,
        timeout_s=timeout_s,
    )


def compare(recording: m.Recording) -> Answers:
    """The answers in a Recording of the workload against those that its source says."""
    profile = analyse(recording)
    seen = Seen(recording, profile)
    environment = profile.environment
    release = ".".join(environment.torch.split(".")[:2])
    triton, cuda = (
        value if isinstance(value, str) else f"none ({value.reason})"
        for value in (environment.triton, environment.cuda)
    )
    return Answers(
        kgprof=environment.kgprof,
        torch=environment.torch,
        python=environment.python,
        triton=triton,
        cuda=cuda,
        device=f"{profile.device}: {environment.device_name}",
        platform=environment.platform,
        checks=tuple(probe.check(seen) for probe in PROBES),
        differences=KNOWN_DIFFERENCES.get(release, ()),
    )


def lines(answers: Answers) -> Iterator[str]:
    """For people: one line a capture, then what torch of this version is known to do otherwise."""
    yield (
        f"kgprof {answers.kgprof}, torch {answers.torch}, triton {answers.triton}, "
        f"Python {answers.python}"
    )
    yield f"{answers.device}; {answers.platform}"
    yield ""
    width = max(len(check.capture) for check in answers.checks)
    for check in answers.checks:
        wrong = check.status == WRONG
        got = f"expected {check.expected}, got {check.got}" if wrong else check.got
        yield (
            f"{check.capture:<{width}}  "
            f"{check.status.upper() if wrong else check.status:<11}  {got}"
        )
    if answers.differences:
        yield ""
        yield from answers.differences
    yield ""
    counts = Counter(check.status for check in answers.checks)
    yield ", ".join(f"{counts[status]} {status}" for status in (WORKS, UNAVAILABLE, WRONG))


# ---------------------------------------------------------------- the answers


class Seen:
    """The one run, and where the marks of its source are."""

    def __init__(self, recording: m.Recording, profile: m.Profile) -> None:
        self.profile, self.report = profile, profile.runs[0]
        self.run: m.RunRecord = recording.runs[0]
        self.ceilings = recording.ceilings
        self.on_cuda = profile.device == "cuda"
        self.environment: m.Environment = profile.environment
        text = WORKLOAD.read_text(encoding="utf-8").splitlines()
        marks = (
            (re.search(r"# answer: (.+)$", line), number)
            for number, line in enumerate(text, start=1)
        )
        self.line = {mark[1].strip(): number for mark, number in marks if mark}
        unavailable = (
            self.run.compile.capture_unavailable
            if isinstance(self.run.compile, m.CompilePass)
            else ()
        )
        if isinstance(self.run.memory, m.MemoryPass):
            unavailable += self.run.memory.capture_unavailable
        self.unavailable = unavailable

    def lacking(self, source: str) -> str:
        lost = next((one for one in self.unavailable if one.capture == source), None)
        if lost is None:
            return ""
        return lost.words if lost.incomplete else lost.why

    def findings(self, rule: str) -> set[int]:
        return {
            finding.location.line
            for finding in self.profile.findings
            if finding.rule == rule and finding.location and finding.location.file == str(WORKLOAD)
        }

    def messages(self, rule: str) -> str:
        return "; ".join(
            finding.message for finding in self.profile.findings if finding.rule == rule
        )


class Unavailable(Exception):  # noqa: N818  no error: the check has no answer
    """There is nothing to compare, and why."""


Answer = tuple[str, str]  # (expected, got), equal where the capture is right


class Probe(m.Model, kw_only=False):
    """``source``: what has to have been listened to; ``compiled``: whether there have to be records
    of compilations; ``device``: the only one on which there is something to see."""

    capture: str
    answer: Callable[[Seen], Answer]
    source: str = ""
    compiled: bool = False
    device: str = ""

    def check(self, seen: Seen) -> Checked:
        try:
            if self.device and (self.device == "cuda") is not seen.on_cuda:
                raise Unavailable(ELSEWHERE[self.device])
            if why := seen.lacking(self.source) if self.source else "":
                raise Unavailable(why)
            if self.compiled:
                there(seen.run.records)
            expected, got = self.answer(seen)
        except Unavailable as why:
            return Checked(capture=self.capture, status=UNAVAILABLE, expected="", got=str(why))
        return Checked(
            capture=self.capture,
            status=WORKS if expected == got else WRONG,
            expected=expected,
            got=got,
        )


ELSEWHERE = {"cuda": "CUDA graphs are not observable on a CPU run", "cpu": "not needed on a GPU"}


def there(value: T | m.Skipped) -> T:
    """Raises Unavailable for what was not measured."""
    if isinstance(value, m.Skipped):
        raise Unavailable(value.reason)
    return value


def listed(values: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, values))) or "none"


def at_line(what: str, line: int, seen: Iterable[int]) -> Answer:
    return f"{what} line {line}", f"{what} line {', '.join(map(str, sorted(seen))) or 'none'}"


def demand(expected: str, right: bool, got: str) -> Answer:
    return expected, expected if right else got


def _graph_break(seen: Seen) -> Answer:
    want, got = at_line(
        f"{GRAPH_BREAK.id} at", seen.line["graph break"], seen.findings(GRAPH_BREAK.id)
    )
    return (
        f"{want}, {PRINT_BREAK}",
        f"{got}, {PRINT_BREAK if PRINT_BREAK in seen.messages(GRAPH_BREAK.id) else 'no id'}",
    )


def _recompile(seen: Seen) -> Answer:
    entries = there(there(seen.report.compile).recompiles)
    reasons = (f"{entry.reason} in call {entry.call}" for entry in entries)
    want, got = at_line(
        f"{IN_STEADY_STATE.id} at", seen.line["recompile"], seen.findings(IN_STEADY_STATE.id)
    )
    return (
        f"{want}, size of x, dimension 0: expected 8, got 9 in call {RESIZED_AT}",
        f"{got}, {listed(reasons)}",
    )


def _frames(seen: Seen) -> Answer:
    rows = [row for row in there(seen.run.records).frames if row.file == str(WORKLOAD)]
    resumed = f"torch_dynamo_resume_in_breaks_at_{seen.line['graph break']}"
    want = {"breaks": "compiled", resumed: "compiled", "loops": "skipped"}
    got = {name: listed({row.outcome for row in rows if row.function == name}) for name in want}
    expected, outcome = (
        ", ".join(f"{name} {value}" for name, value in side.items()) for side in (want, got)
    )
    return expected, outcome


def _graphs(seen: Seen) -> Answer:
    """A graph of ``resized`` runs once in each call: the first in those before the size changed."""
    records = there(seen.run.records)
    frames = {
        row.compile_id for row in records.frames if row.function == "resized" and row.compile_id
    }
    runs = sorted(
        sum(graph.runs.values()) for graph in records.graphs if graph.compile_id in frames
    )
    want, got = (
        ", ".join(map(str, side)) or "none"
        for side in (sorted([RESIZED_AT, STEPS - RESIZED_AT]), runs)
    )
    return f"runs {want}", f"runs {got}"


def _registry(seen: Seen) -> Answer:
    registry = there(seen.run.records).sources.registry
    if not registry:
        raise Unavailable("this torch ships no graph_break_registry.json")
    entry = registry.get(PRINT_BREAK)
    return demand(
        f"{PRINT_BREAK} explained", bool(entry and entry.explanation), f"only {listed(registry)}"
    )


def _inductor(seen: Seen) -> Answer:
    if not seen.on_cuda:
        there(seen.environment.compiler)
    rows = [row for row in there(seen.run.compile).compilations if row.function == "generated"]
    times = "once" if len(rows) == 1 else f"{len(rows)} times"
    failed = any(row.fail_reason for row in rows)
    got = f"generated compiles {times}, {'and fails' if failed else 'without fault'}"
    return "generated compiles once, without fault", got


def _cuda_graph_log(seen: Seen) -> Answer:
    logs = there(seen.run.records).logs
    return demand(
        "a recording is logged",
        any("ecord" in line.text for line in logs),
        f"{len(logs)} other messages",
    )


def _cuda_graphs(seen: Seen) -> Answer:
    kernels = there(seen.report.kernels)
    return (
        f"{STEPS} launches in {STEPS} steps",
        f"{there(kernels.graph_launches)} launches in {kernels.steps} steps",
    )


def _clock(seen: Seen) -> Answer:
    timing = there(seen.run.timing)
    clock = "cuda events" if seen.on_cuda else "perf_counter"
    whole = all(len(group) == STEPS and min(group) > 0 for group in timing.step_us)
    return (
        f"{clock}, groups of {STEPS} steps above 0 µs",
        f"{timing.clock}, {f'groups of {STEPS}' if whole else 'other'} steps above 0 µs",
    )


def _trace(seen: Seen) -> Answer:
    rows = there(seen.report.kernels).rows
    if seen.on_cuda:
        products = sum(row.count for row in rows if row.kind == "gemm")
        least = PRODUCTS * STEPS
        return demand(
            f"at least {least} GEMM kernels on the GPU",
            products >= least,
            f"{products} GEMM kernels",
        )
    products = sum(row.count for row in rows if row.name == "aten::mm")
    return f"aten::mm {PRODUCTS * STEPS} times", f"aten::mm {products} times"


def _cpp_kernels(seen: Seen) -> Answer:
    there(seen.run.kernels)
    kernels = seen.report.kernels
    named = isinstance(kernels, m.KernelBreakdown) and any(
        row.generator == "cpp" for row in kernels.rows
    )
    return demand("a C++ kernel by name", named, "none")


def _eager_calls(seen: Seen) -> Answer:
    """In one entry: all products are of one line."""
    products = [
        origin
        for origin in there(seen.run.kernel_origins).origins
        if origin.kernel == "torch.ops.aten.mm"
    ]
    return at_line(
        "a product at",
        seen.line["eager call"],
        {line.line for origin in products for line in origin.lines},
    )


def _library_calls(seen: Seen) -> Answer:
    """The generated code calls ATen for a scatter, which torch itself says nothing of."""
    origins = there(seen.run.kernel_origins).origins
    if not seen.on_cuda:
        there(seen.environment.compiler)
    scatters = [
        origin
        for origin in origins
        if origin.compile_id and origin.kernel.startswith("aten.scatter_reduce")
    ]
    lines = {
        line.line for origin in scatters for line in origin.lines if line.file == str(WORKLOAD)
    }
    return at_line("a scatter from", seen.line["aten"], lines)


def _ceilings(seen: Seen) -> Answer:
    measured = {
        row.operation for row in there(seen.ceilings).measured if row.per_s and min(row.per_s) > 0
    }
    wanted = {m.COPY, m.MATMUL}
    return demand(
        f"{m.COPY} and {m.MATMUL} above 0 a second",
        measured == wanted,
        f"{listed(measured)} above 0 a second",
    )


def _host(seen: Seen) -> Answer:
    calls = sum(
        row.calls for row in there(seen.run.host).rows if row.function.endswith("known_work")
    )
    return f"known_work called {STEPS} times", f"known_work called {calls} times"


def _stacks(seen: Seen) -> Answer:
    """A function of a known name stands under its caller, and its products under it."""
    flame = there(seen.report.flame)
    names = [flame.names[flame.frames[frame].name] for frame in flame.frame]
    at = [
        node
        for node, name in enumerate(names)
        if name == "known_work" and names[flame.parent[node]] == "step"
    ]
    below = set(at)
    for node, parent in enumerate(flame.parent):  # parents come first
        if parent in below:
            below.add(node)
    products = sum(flame.calls[node] for node in below if names[node] == "aten::mm")
    want = f"known_work under step, {PRODUCTS * flame.steps} products in {flame.steps} steps"
    return (
        want,
        f"known_work under {'step' if at else 'nothing'}, {products} products in {flame.steps} "
        "steps",
    )


def _syncs(seen: Seen) -> Answer:
    records = there(there(seen.run.memory).syncs).records
    read = [
        r for r in records if r.op == "aten::_local_scalar_dense" and r.frames and not r.compile_id
    ]
    at = sum(
        sum(record.calls.values()) for record in read if record.frames[0].line == seen.line["sync"]
    )
    elsewhere = sorted({record.frames[0].line for record in read} - {seen.line["sync"]})
    also = f", and at {', '.join(map(str, elsewhere))}" if elsewhere else ""
    return (
        f"line {seen.line['sync']} reads {STEPS} times",
        f"line {seen.line['sync']} reads {at} times{also}",
    )


def _cond(seen: Seen) -> Answer:
    """A compiled torch.cond reads its predicate, on the CPU as well."""
    records = there(there(seen.run.memory).syncs).records
    read = {r.frames[0].line for r in records if r.compile_id and r.operator == "cond" and r.frames}
    return at_line("a read by torch.cond at", seen.line["cond"], read)


def _tensors(seen: Seen) -> Answer:
    graphs = there(there(seen.run.memory).tensors).graphs
    written = {place.frames[0].line for graph in graphs for place in graph.in_place if place.frames}
    return at_line("a write at", seen.line["in-place"], written)


def _peaks(seen: Seen) -> Answer:
    peaks = there(there(seen.run.memory).peaks)
    peak = there(peaks.allocated_bytes if seen.on_cuda else peaks.resident_bytes)
    return demand("a peak above 0 bytes", peak > 0, f"{peak} bytes")


# In the order in which they are told.
PROBES = (
    Probe("structured trace: graph break", _graph_break, source="structured trace", compiled=True),
    Probe("structured trace: recompile", _recompile, source="structured trace", compiled=True),
    Probe(
        "skip records",
        lambda seen: at_line(
            f"{SKIPPED_FRAME.id} at", seen.line["skipped frame"], seen.findings(SKIPPED_FRAME.id)
        ),
        source="skip records",
        compiled=True,
    ),
    Probe("frame hook", _frames, source="frame hook", compiled=True),
    Probe("graph hook", _graphs, source="graph hook", compiled=True),
    Probe(
        "sources agree",
        lambda seen: (NO_DISAGREEMENT, seen.messages(SOURCES_DISAGREE.id) or NO_DISAGREEMENT),
        compiled=True,
    ),
    Probe(
        "torch logs",
        lambda seen: demand(
            "torch's text of the break", "Graph break" in seen.run.log, "none in the log"
        ),
        source="torch logs",
    ),
    Probe("graph-break registry", _registry, compiled=True),
    Probe("Inductor", _inductor),
    Probe("CUDA-graph log", _cuda_graph_log, source="cuda graph log", compiled=True, device="cuda"),
    Probe("CUDA graphs launched", _cuda_graphs, device="cuda"),
    Probe("TIMING clock", _clock),
    Probe("TRACE", _trace),
    Probe("C++ kernel profile", _cpp_kernels, device="cpu"),
    Probe("lines of eager calls", _eager_calls, source="eager calls"),
    Probe("lines of library calls", _library_calls),
    Probe("peak rates of the GPU", _ceilings),
    Probe("HOST", _host),
    Probe("STACK", _stacks),
    Probe("MEMORY: syncs", _syncs, source="syncs"),
    Probe("MEMORY: torch.cond", _cond),
    Probe("MEMORY: tensor probe", _tensors, source="tensor probe"),
    Probe("MEMORY: peaks", _peaks),
)
