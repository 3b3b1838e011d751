"""Compile records written by hand: a program of twenty lines, and what torch would have recorded of
it.

The texts have the form of torch 2.13's; nothing was run. ``run(lines...)`` gives a RunRecord that a
Recording can hold.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from kgprof.collectors.graphs.cuda_graphs import LAUNCH
from kgprof.model import (
    CompilePass,
    Location,
    PassName,
    Recording,
    RunKey,
    RunRecord,
    Skipped,
    TracePass,
    Unavailable,
)
from kgprof.model.compile_records import (
    CALLS_NOT_COUNTED,
    DYNAMO_RESET,
    BegunCompilation,
    CompiledCallable,
    CompiledCalls,
    CompileRecords,
    GraphRuns,
    LineOperators,
    LogLine,
    OfferedFrame,
    RegistryEntry,
    SourceFile,
    SourceLine,
    Sources,
    TraceRecord,
)
from kgprof.reading import layout
from kgprof.reading.evidence import Evidence
from kgprof.reading.structured_trace import RunTrace
from tests import scratch
from tests.analysis import recordings
from tests.analysis.recordings import FUSED

FILE = "/src/shop/model.py"
LIBRARY = "/lib/site-packages/torch/nn/modules/activation.py"
PROGRAM = """\
import torch


def report(y):
    print("halfway", y.shape)
    return y.cos()


class Model(torch.nn.Module):
    @torch.compile(
        dynamic=False,
    )
    def step(self, x):
        y = x.sin()
        for row in y:
            print(row)
        return report(y)


def train(x):
    return Model().step(x)
"""
# first lines of the code objects
REPORT, STEP, TRAIN = (FILE, 4, "report"), (FILE, 10, "step"), (FILE, 20, "train")
CALLER = (FILE, 21, "train")  # the line that calls step
PRINT = (FILE, 5, "report")
LOOP = (FILE, 16, "step")
STEP_DEF, REPORT_DEF = 13, 4
CALLS = 20

CALLS_COUNTED = "calls of compiled functions were counted"

Frame = tuple[str, int, str]


def called(
    frame: Frame,
    *eager: int,
    of: int = CALLS,
    number: int = 0,
    compiled_as: str = "",
    **fields: Any,
) -> CompiledCallable:
    """A compiled callable that was called once in each of ``of`` calls, and ran no graph in those
    of ``eager``."""
    file, line, name = frame
    return CompiledCallable(
        **{
            "number": number,
            "function": name,
            "definition": SourceLine(file=file, line=line, function=name),
            "offered": SourceLine(file=file, line=line, function=name),
            "calls": dict.fromkeys(range(of), 1),
            "eager": dict.fromkeys(eager, 1),
            "compilations": (begun(compiled_as),) if compiled_as else (),
            **fields,
        }
    )


def begun(compile_id: str, call: int = 0) -> BegunCompilation:
    return BegunCompilation(call=call, compile_id=compile_id)


def reset(call: int) -> TraceRecord:
    return TraceRecord(metadata={DYNAMO_RESET: True}, call=call)


def place(file: str, line: int, function: str) -> Location:
    """As SourceText gives it for this program: with the qualified name and the text of the line."""
    qualified = {"step": "Model.step"}.get(function, function)
    return Location(file=file, line=line, function=qualified, text=PROGRAM.splitlines()[line - 1])


# ---------------------------------------------------------------- lines


def record(
    compile_id: str, call: int = 0, payload: str | None = None, **metadata: Any
) -> TraceRecord:
    frame, _, compiled = compile_id.partition("/")
    ids = {"frame_id": int(frame), "frame_compile_id": int(compiled), "attempt": 0}
    return TraceRecord(metadata={**metadata, **ids}, payload=payload, call=call)


def artifact(name: str, compile_id: str, payload: str, call: int = 0) -> TraceRecord:
    return record(compile_id, call, payload, artifact={"name": name, "encoding": "string"})


def compiled(
    compile_id: str,
    frame: Frame,
    *,
    call: int = 0,
    above: tuple[Frame, ...] = (CALLER,),
    **metrics: Any,
) -> list[TraceRecord]:
    """dynamo_start and compilation_metrics of one compilation; ``fail_type`` makes it a failed
    one."""
    stack = [{"filename": file, "line": line, "name": name} for file, line, name in (*above, frame)]
    failed = "fail_type" in metrics
    measured = {
        "co_name": frame[2],
        "co_filename": frame[0],
        "co_firstlineno": frame[1],
        "duration_us": 500_000,
        "guard_count": None if failed else 7,
        "graph_op_count": None if failed else 2,
        "has_guarded_code": not failed,
        **metrics,
    }
    return [
        record(compile_id, call, dynamo_start={"stack": stack}),
        record(compile_id, call, compilation_metrics=measured),
    ]


def offered(
    frame: Frame, outcome: str = "compiled", *, call: int = 0, compile_id: str = "", **fields: Any
) -> OfferedFrame:
    file, line, name = frame
    return OfferedFrame(
        call=call,
        function=name,
        file=file,
        first_line=line,
        outcome=outcome,
        compile_id=compile_id,
        **fields,
    )


def resumed(frame: Frame, line: int) -> Frame:
    return (frame[0], line, f"torch_dynamo_resume_in_{frame[2]}_at_{line}")


def traceback(*frames: Frame) -> str:
    return "".join(
        f'  File "{file}", line {line}, in {name}\n    ...\n' for file, line, name in frames
    )


def builtin(name: str = "print", gb_id: str = "0059") -> str:
    """A reason's block as torch words it, ended by the link that carries its id."""
    return (
        f"Failed to trace builtin operator\n"
        f"  Explanation: Dynamo does not know how to trace builtin operator `{name}`\n"
        f"  Hint: Avoid calling builtin `{name}`.\n"
        f"  Hint: Please report an issue to PyTorch.\n\n"
        f"  Developer debug context: builtin {name}\n\n"
        " For more details about this graph break, please visit: https://example.org/gb/"
        f"gb{gb_id}.html"
    )


RESUMABLE = (
    "Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):\n\n"
)
NOT_RESUMABLE = (
    "Encountered graph break that we cannot resume from. Compiling up to the previous resumable "
    "state, then skipping the rest of the function. Graph break encountered:\n\n"
)
GIVEN_UP = (
    "Failed to handle graph break gracefully. Skipping the function and falling back to eager. "
    "Graph break encountered:\n\n"
)


def broken(
    compile_id: str,
    *stack: Frame,
    reason: str = "",
    prefix: str = RESUMABLE,
    call: int = 0,
    named: Frame | None = None,
) -> TraceRecord:
    file, line, _ = named or stack[-1]
    text = (
        f"Graph break in user code at {file}:{line}\n"
        f"Graph Break Reason: {prefix}{reason or builtin()}\n\n"
        f"Stack variable source attribution:\n"
        f'  ConstantVariable originated from:\n  File "{FILE}", line 1, in '
        "attributed_to_no_stack\n\n"
        f"User code traceback:\n{traceback(*stack)}\n"
        f'Traceback (most recent call last):\n  File "{FILE}", line 2, in dynamos_own_internals\n'
    )
    return artifact("dynamo_graph_break_reason", compile_id, text, call)


def rejected(compile_id: str, *reasons: str, call: int) -> TraceRecord:
    """torch writes the bare sentence where there is one, and JSON where there are several."""
    return artifact(
        "recompile_reasons",
        compile_id,
        reasons[0] if len(reasons) == 1 else json.dumps(reasons),
        call,
    )


def ran(compile_id: str, *calls: int) -> GraphRuns:
    return GraphRuns(compile_id=compile_id, inputs=("L['x']",), runs=dict.fromkeys(calls, 1))


def span(
    name: str, begin_us: float, end_us: float, compile_id: str = "0/0"
) -> list[tuple[float, TraceRecord]]:
    """A begin and an end, each with its time to sort by."""
    return [
        (at, record("0/0", payload=json.dumps(_event(name, ph, at, compile_id)), chromium_event={}))
        for ph, at in (("B", begin_us), ("E", end_us))
    ]


def _event(name: str, ph: str, at: float, compile_id: str) -> dict[str, Any]:
    return {
        "name": name,
        "ph": ph,
        "ts": at,
        "pid": 0,
        "tid": 1,
        "args": {"compile_id": compile_id},
    }


TREES, REASONS, SCHEDULER = (
    f"torch._inductor.{name}.__cudagraphs"
    for name in ("cudagraph_trees", "cudagraph_utils", "scheduler")
)


def said(
    function: str,
    text: str,
    *,
    logger: str = TREES,
    level: str = "DEBUG",
    call: int = 0,
    compile_id: str = "",
) -> LogLine:
    return LogLine(
        call=call, logger=logger, level=level, function=function, compile_id=compile_id, text=text
    )


def skipped_graph(reason: str, *stack: Frame, call: int = 1) -> LogLine:
    text = f"skipping cudagraphs due to {reason}" + (
        f". Found from : \n {traceback(*stack)}" if stack else ""
    )
    return said(
        "log_cudagraph_skip_and_bump_counter", text, logger=REASONS, level="WARNING", call=call
    )


def partitioned(reason: str, *stack: Frame, compile_id: str = "0/0") -> list[LogLine]:
    """One piece that can be a CUDA graph and one that cannot, as the scheduler logs them line by
    line."""
    counts = "Created 2 graph partitions: 1 cudagraphable, 1 non-cudagraphable"
    pieces = [
        ("_log_graph_partitions", counts),
        ("_log_graph_partitions", "  Partition 0: 3 nodes, cudagraphable, inputs=1, outputs=1"),
        ("_log_graph_partitions", "  Partition 1: 1 nodes, non-cudagraphable, inputs=1, outputs=1"),
        (
            "_log_non_cudagraphable_node",
            f"    buf1: reason={reason}, ir=Conditional, fx=cond(arg0, arg1)",
        ),
        *(
            ("_log_non_cudagraphable_node", f"         {line}")
            for line in traceback(*stack).splitlines()
        ),
    ]
    return [
        said(function, text, logger=SCHEDULER, compile_id=compile_id) for function, text in pieces
    ]


def recorded_graph(call: int, *, compile_id: str = "0/0", again: str = "") -> list[LogLine]:
    """A recording, and before it the reason where it is not the first."""
    text = f"[{compile_id}] Recording function=step, mode=FORWARD, cuda_graph_id=1, inputs: f32[8]"
    why = f"[{compile_id}] Re-recording function=step, mode=FORWARD, reason={again}"
    return [
        *([said("_run", why, call=call)] if again else []),
        said("record_function", text, call=call),
    ]


def new_size(call: int, size: int, *, compile_id: str = "0/1") -> list[LogLine]:
    """What torch 2.11 logs of the first run with a size: no CUDA graph yet."""
    return [
        said("deferred_cudagraphify", f"Recording cudagraph tree for symint key {size}", call=call),
        said("run_eager", f"[{compile_id}] Running warmup function=partition_0", call=call),
    ]


def sized_graph(call: int, size: int, *, compile_id: str = "0/1") -> LogLine:
    """A recording for a size, with an input that has it and one that never changes."""
    inputs = f"[0]: Tensor(size=[{size}, 8], dtype=f32), [1]: Tensor(size=[8, 8], dtype=f32)"
    text = f"[{compile_id}] Recording function=partition_0, cuda_graph_id=1, inputs: {inputs}"
    return said("record_function", text, call=call)


def many_sizes(steps: int) -> list[LogLine]:
    """Each second step brings a size for the first time, and the next one the same size again."""
    lines = []
    for step in range(0, steps - 1, 2):
        lines += [*new_size(step, 10 + step), sized_graph(step + 1, 10 + step)]
    return lines


# ---------------------------------------------------------------- what holds them


def sources(program: str = PROGRAM) -> Sources:
    return Sources(
        libraries=("/lib/site-packages",),
        files={FILE: SourceFile(sha256="0" * 64, text=program, repository="/src/shop")},
        registry={
            "GB0170": RegistryEntry(
                type="Data-dependent branching",
                explanation="Branches on data.",
                hints=("Use `torch.cond`.",),
            )
        },
    )


def records(*lines: Any, left_out: int = 0, program: str = PROGRAM) -> CompileRecords:
    """Lines of any kind, in any order; lists are taken apart."""
    flat = [one for line in lines for one in (line if isinstance(line, list) else [line])]
    return CompileRecords(
        records=tuple(line for line in flat if isinstance(line, TraceRecord)),
        frames=tuple(line for line in flat if isinstance(line, OfferedFrame)),
        graphs=tuple(line for line in flat if isinstance(line, GraphRuns)),
        logs=tuple(line for line in flat if isinstance(line, LogLine)),
        compiled_calls=_calls(flat),
        left_out=left_out,
        sources=sources(program),
    )


def _calls(flat: list[Any]) -> CompiledCalls | Skipped:
    """An older Recording has none: it is written without a line of them."""
    callables = tuple(line for line in flat if isinstance(line, CompiledCallable))
    if not callables and CALLS_COUNTED not in flat:
        return Skipped(reason=CALLS_NOT_COUNTED)
    return CompiledCalls(callables=callables)


def run(
    *lines: Any, calls: int = CALLS, unavailable: tuple[Unavailable, ...] = (), **fields: Any
) -> RunRecord:
    passed = CompilePass(
        call_us=(2e6, *(1000.0 for _ in range(calls - 1))),
        steady_from=3,
        compilations=(recordings.COMPILATION,),
        capture_unavailable=unavailable,
    )
    return msgspec.structs.replace(
        recordings.run(FUSED), compile=passed, records=records(*lines, **fields)
    )


def compiler(*lines: Any) -> RunTrace:
    """What COMPILE left of one run."""
    found = Evidence(recording(*lines)).runs[0].compiler
    assert found is not None
    return found


def recording(*lines: Any, **fields: Any) -> Recording:
    return recordings.recording(run(*lines, **fields), baseline=None)


REDUCE_OVERHEAD = RunKey(strategy="fused", mode="reduce-overhead")


class Region(NamedTuple):
    """A compiled region that ran ``runs`` times in TRACE, and what was launched in all of them
    together."""

    compile_id: str
    runs: int
    graphs: int
    kernels: int = 1
    recorded: int = 0  # of the runs, the first ones: torch records a graph in them
    generated: bool = True  # whether it calls what Inductor generated; else eager operators only


RAN = Region("0/0", runs=4, graphs=0, kernels=0)


def on_cuda(
    *lines: Any,
    launches: int | None = None,
    steps: int = 4,
    key: RunKey = REDUCE_OVERHEAD,
    regions: tuple[Region, ...] = (RAN,),
) -> Recording:
    """A run on a GPU. ``launches``: CUDA graphs launched in all steps of TRACE together; None:
    there is no trace.

    ``regions`` stand in the trace besides, one behind the other, each with its own launches.
    """
    folder = scratch.new_folder()
    gone: TracePass | Skipped = recordings.GONE
    if launches is not None:
        gone = TracePass(
            step_us=(100.0,) * steps,
            trace_file="trace.json.gz",
            cpp_kernel_profile=False,
        )
        path = layout.run_folder(folder, key) / layout.TRACE_FILES[PassName.TRACE]
        path.parent.mkdir(parents=True)
        events = [*_launched(launches, steps), *_in_regions(regions)]
        path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    traced = msgspec.structs.replace(run(*lines), key=key, trace=gone)
    whole = recordings.recording(traced, baseline=None)
    plan = msgspec.structs.replace(whole.header.plan, device="cuda")
    return msgspec.structs.replace(
        whole, folder=str(folder), header=msgspec.structs.replace(whole.header, plan=plan)
    )


def _launched(launches: int, steps: int) -> Iterator[dict[str, Any]]:
    event = {"ph": "X", "pid": 1, "tid": 1, "args": {}}
    for step in range(steps):
        yield {
            **event,
            "cat": "user_annotation",
            "name": f"ProfilerStep#{step}",
            "ts": step * 100.0,
            "dur": 100.0,
        }
    for number in range(launches):
        yield {**event, "cat": "cuda_runtime", "name": LAUNCH, "ts": 1.0 + number, "dur": 0.5}


def _in_regions(regions: tuple[Region, ...]) -> Iterator[dict[str, Any]]:
    event = {"ph": "X", "pid": 1, "tid": 1, "args": {}}
    for number, region in enumerate(regions):
        start = 1000.0 * (number + 1)
        for run in range(region.runs):
            name = f"Torch-Compiled Region: {region.compile_id}"
            yield {**event, "cat": "cpu_op", "name": name, "ts": start + 100 * run, "dur": 90.0}
        for run in range(region.runs if region.generated else 0):
            name = "## Call CompiledFxGraph fabc ##"
            at = start + 100 * run + 0.25
            yield {**event, "cat": "cpu_op", "name": name, "ts": at, "dur": 89.0}
        for run in range(region.recorded):
            name = "cudagraphify.get_container"
            yield {**event, "cat": "cpu_op", "name": name, "ts": start + 100 * run + 4, "dur": 2.0}
        for launched in range(region.graphs):
            at = start + 100 * (launched % region.runs) + 1 + 2 * (launched // region.runs)
            yield {**event, "cat": "cuda_runtime", "name": LAUNCH, "ts": at, "dur": 1.0}
        for launched in range(region.kernels):
            yield {
                **event,
                "cat": "cuda_driver",
                "name": "cuLaunchKernelEx",
                "ts": start + 5 + launched,
                "dur": 0.5,
            }


# ---------------------------------------------------------------- a case for each rule


def compiled_once() -> list[Any]:
    """A function that is compiled in the first call and runs in all of them."""
    return [*compiled("0/0", STEP), offered(STEP, compile_id="0/0"), ran("0/0", *range(CALLS))]


def an_unrolled_loop(seconds: float = 60.0, *, again: int = 20) -> list[Any]:
    """The loop of ``step`` gives all but one of the graph's operators; each kind of them comes
    ``again`` times."""
    file, line, function = LOOP
    loop = LineOperators(
        file=file,
        line=line,
        function=function,
        operators=12 * again,
        kinds=12,
        of=12 * again + 1,
    )
    graph = msgspec.structs.replace(ran("0/0", *range(CALLS)), lines=(loop,))
    return [*compiled("0/0", STEP, duration_us=int(1e6 * seconds)), graph]


def a_break() -> list[Any]:
    """report prints: step goes on behind the line that called it, and report behind its own
    line."""
    return [
        *compiled("0/0", STEP),
        broken("0/0", CALLER, (FILE, 17, "step"), PRINT),
        *compiled("1/0", REPORT),
        broken("1/0", CALLER, (FILE, 17, "step"), PRINT),
        *compiled("2/0", resumed(REPORT, 5)),
        offered(STEP, compile_id="0/0"),
        offered(REPORT, compile_id="1/0"),
        offered(resumed(REPORT, 5), compile_id="2/0"),
        *(ran(name, *range(CALLS)) for name in ("0/0", "1/0", "2/0")),
    ]


def a_skipped_frame(first: str = "") -> list[Any]:
    reason = (
        f"{first or builtin()}\n\n"
        "*** While handling this graph break, another graph break occurred: ***\n\n"
    )
    reason += builtin("for", "7000").replace(
        "Failed to trace builtin operator", "graph break in loop"
    )
    return [
        *compiled("0/0", STEP, fail_type="Unsupported", fail_reason=reason),
        broken("0/0", CALLER, LOOP, reason=reason, prefix=GIVEN_UP),
        offered(STEP, "skipped", why="error", text=reason),
    ]


def recompiled(
    *calls: int, reason: str = "tensor 'x' dtype mismatch. expected Float, actual Double"
) -> list[Any]:
    """Compiled in step 0 and again in ``calls``; each entry runs until the next one is made."""
    starts = (0, *calls)
    lines: list[Any] = []
    for entry, call in enumerate(starts):
        until = starts[entry + 1] if entry + 1 < len(starts) else CALLS
        lines += [
            *compiled(f"0/{entry}", STEP, call=call),
            offered(STEP, compile_id=f"0/{entry}", call=call),
        ]
        lines += [ran(f"0/{entry}", *range(call, until))]
        if entry:
            lines += [
                rejected(
                    f"0/{entry}",
                    *(f"0/{old}: {reason}" for old in reversed(range(entry))),
                    call=call,
                )
            ]
    return lines


def to_the_limit(*calls: int, limit: int, reason: str) -> list[Any]:
    """Compiled in step 0 and ``calls``; refused in call ``limit``, and silent from then on."""
    lines = [line for line in recompiled(*calls, reason=reason) if not isinstance(line, GraphRuns)]
    entry = len(calls) + 1
    starts = (0, *calls, limit)
    return [
        *lines,
        *(
            ran(f"0/{number}", *range(starts[number], starts[number + 1]))
            for number in range(entry)
        ),
        rejected(
            f"0/{entry}", *(f"0/{old}: {reason}" for old in reversed(range(entry))), call=limit
        ),
        record(
            f"0/{entry}", limit, compilation_metrics={"fail_type": "Unsupported", "co_name": None}
        ),
        offered(STEP, "run-only", call=limit),
    ]


def a_stance() -> list[Any]:
    """step is compiled once; from call 5 on torch may not compile again, and the inputs fit no
    compiled code."""
    late = range(5, CALLS)
    set_at = SourceLine(file=FILE, line=21, function="train")
    stances = {"eager_on_recompile": dict.fromkeys(late, 1)}
    return [
        *compiled("0/0", STEP),
        offered(STEP, compile_id="0/0"),
        ran("0/0", *range(5)),
        called(STEP, *late, compiled_as="0/0", stances=stances, stance_set_at=set_at),
    ]


def a_bypass() -> list[Any]:
    why = json.dumps({"cache_bypass_reason": "Can't cache HigherOrderOperator: cond"})
    return [*compiled_once(), artifact("fx_graph_cache_bypass", "0/0", why)]


def a_failure() -> list[Any]:
    return [
        *compiled(
            "0/0",
            STEP,
            fail_type="Unsupported",
            fail_reason=builtin(),
            fail_user_frame_filename=FILE,
            fail_user_frame_lineno=16,
        ),
        offered(STEP, "raised", text=f"Unsupported: {builtin()}"),
    ]


def a_contradiction() -> list[Any]:
    """The frame hook saw a function go on after a break that the trace does not know."""
    return [
        *compiled_once(),
        *compiled("1/0", resumed(STEP, 16)),
        offered(resumed(STEP, 16), compile_id="1/0"),
        ran("1/0", 0),
    ]


def a_rerecording() -> list[Any]:
    why = "StaticInputIdxMismatch: input name: primals_1. data pointer changed from 1 to 2."
    return [*compiled_once(), *recorded_graph(1), *recorded_graph(7, again=why)]
