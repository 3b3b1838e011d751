"""A tiny Recording written by hand: two runs of an invented workload, every figure chosen and
nothing measured.

``write(folder)`` returns the Recording as store.load gives it. ``batched.eager`` is the baseline,
``fused.default`` is twice as fast; ``lost.default`` was killed during TIMING. Its traces are a few
lines of Kineto JSON.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec

from kgprof.model import (
    RECORDING_SCHEMA_VERSION,
    Agreement,
    AgreementVerdict,
    Compilation,
    CompilePass,
    Environment,
    Evaluation,
    Exit,
    HostPass,
    HostRow,
    Options,
    Outcome,
    PassName,
    Plan,
    Recording,
    RecordingHeader,
    RunAgreement,
    RunKey,
    Skipped,
    StrategyPlan,
    TimingPass,
    TracePass,
    Unavailable,
)
from kgprof.reading import layout, recordings
from kgprof.reading.link_prediction import UNIT, CandidateResults, CapCounters, RankMetrics
from kgprof.record.ground import store

BATCHED = RunKey(strategy="batched", mode="eager")
FUSED = RunKey(strategy="fused", mode="default")
LOST = RunKey(strategy="lost", mode="default")

ENVIRONMENT = Environment(
    kgprof="0.1.0",
    python="3.11.7",
    torch="2.13.0+cpu",
    triton=Skipped(reason="not installed"),
    cuda=Skipped(reason="torch was built without CUDA"),
    driver=Skipped(reason="no GPU"),
    device_name="Invented CPU",
    cpu_name="Invented CPU",
    cpu_count=2,
    torch_threads=2,
    memory_bytes=8 * 2**30,
    platform="Linux-6.1-x86_64",
    compiler="g++ 12.2.0",
    git_commit="0123456789abcdef0123456789abcdef01234567",
    git_dirty=False,
    flags={"TORCHINDUCTOR_VEC_ISA_OK": "1"},
)


def write(folder: Path) -> Recording:
    """Write the Recording to ``folder`` (which becomes the one that holds recording.json) and read
    it back."""
    store.create(folder, _header())
    for key, per_step in ((BATCHED, 1000.0), (FUSED, 500.0)):
        _write_run(folder, key, per_step)
    store.write_pass(
        folder, FUSED, PassName.KERNELS, _trace_pass(folder, FUSED, PassName.KERNELS, 500.0)
    )
    store.write_exit(
        folder, FUSED, Exit(outcome=Outcome.OK, exit_code=0, elapsed_s=9.0), probe=True
    )
    store.write_pass(folder, LOST, PassName.COMPILE, _compile_pass(700.0))
    store.write_exit(
        folder, LOST, Exit(outcome=Outcome.KILLED, message="SIGKILL", during="timing", exit_code=-9)
    )
    store.write_json(folder / layout.AGREEMENT, _agreement())
    return recordings.load(folder)


def _header() -> RecordingHeader:
    runs = (BATCHED, FUSED, LOST)
    return RecordingHeader(
        schema_version=RECORDING_SCHEMA_VERSION,
        created_utc="2026-01-02T03:04:05+00:00",
        command=("kgprof", "profile", "invented"),
        options=Options(workload="invented", steps=5, warmup=2),
        plan=Plan(
            workload="invented",
            strategies=tuple(
                StrategyPlan(name=key.strategy, modes=(key.mode,), summary="made up")
                for key in runs
            ),
            runs=runs,
            baseline=BATCHED,
            device="cpu",
            environment=ENVIRONMENT,
            vector_isa_probe_s=8.5,
            agreement=True,
            unit=UNIT,
        ),
    )


def _write_run(folder: Path, key: RunKey, per_step: float) -> None:
    steps = tuple(per_step * factor for factor in (1.0, 1.1, 0.9, 1.0, 1.2))
    store.write_pass(folder, key, PassName.COMPILE, _compile_pass(per_step))
    timing = TimingPass(
        clock="perf_counter", step_us=(steps, steps), evaluation_s=(sum(steps) / 1e6,) * 2
    )
    store.write_pass(folder, key, PassName.TIMING, timing)
    store.write_pass(
        folder, key, PassName.TRACE, _trace_pass(folder, key, PassName.TRACE, per_step)
    )
    store.write_pass(folder, key, PassName.HOST, _host_pass(per_step))
    store.write_pass(folder, key, PassName.STACK, _stack_pass(folder, key, per_step))
    if key.mode == "eager":
        store.write_pass(
            folder, key, PassName.KERNELS, Skipped(reason="eager mode has no kernels of Inductor")
        )
    store.write_json(layout.run_folder(folder, key) / layout.EVALUATION, _evaluation())
    store.write_exit(folder, key, Exit(outcome=Outcome.OK, exit_code=0, elapsed_s=12.0))
    log = layout.run_folder(folder, key) / layout.LOG
    log.write_text("a line that <torch> wrote & one more\n", encoding="utf-8")


def _compile_pass(per_step: float) -> CompilePass:
    compilation = Compilation(
        compile_id="0/0", function="step", location="/src/invented.py:10", duration_s=1.5
    )
    return CompilePass(
        call_us=(2e6, *(per_step * 1.05 for _ in range(4))),
        steady_from=2,
        compilations=(compilation,),
        capture_unavailable=(Unavailable(capture="recompiles", why="invented"),),
    )


def _trace_pass(folder: Path, key: RunKey, name: PassName, per_step: float) -> TracePass:
    """Five steps; in each an addmm, a fused C++ kernel (KERNELS only) and a gap."""
    kernel = "graph_0_cpp_fused_add_relu_0" if name is PassName.KERNELS else "aten::relu"
    events: list[dict[str, Any]] = []
    for step in range(5):
        start = step * per_step
        events.append(_event(f"ProfilerStep#{step}", "user_annotation", start, per_step))
        events.append(_event("aten::addmm", "cpu_op", start + 1, per_step * 0.5))
        events.append(_event(kernel, "cpu_op", start + per_step * 0.6, per_step * 0.3))
    path = layout.run_folder(folder, key) / layout.TRACE_FILES[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode(), mtime=0)
    )
    return TracePass(
        step_us=(per_step * 1.3,) * 5,
        trace_file=path.name,
        cpp_kernel_profile=name is PassName.KERNELS,
    )


def _stack_pass(folder: Path, key: RunKey, per_step: float) -> TracePass:
    """Two steps; in each a function, and in that an addmm."""
    events: list[dict[str, Any]] = []
    for start in (0.0, per_step):
        events.append(_event(f"ProfilerStep#{start}", "user_annotation", start, per_step))
        events.append(
            _event("/src/invented.py(10): forward", "python_function", start + 1, per_step * 0.8)
        )
        events.append(_event("aten::addmm", "cpu_op", start + 2, per_step * 0.5))
    path = layout.run_folder(folder, key) / layout.TRACE_FILES[PassName.STACK]
    path.write_bytes(
        gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode(), mtime=0)
    )
    return TracePass(
        step_us=(per_step * 1.8,) * 2,
        trace_file=path.name,
        cpp_kernel_profile=False,
    )


def _event(name: str, category: str, start_us: float, duration_us: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": start_us,
        "dur": duration_us,
        "args": {},
    }


def _host_pass(per_step: float) -> HostPass:
    row = HostRow(
        function="step",
        file="/src/invented.py",
        line=10,
        calls=5,
        self_us=per_step,
        cumulative_us=per_step * 5,
    )
    return HostPass(
        step_us=(per_step * 1.4,) * 5, rows=(row,), rows_left_out=7, total_self_us=per_step * 5
    )


def counted(evaluation: Evaluation, **counts: int) -> Evaluation:
    """Other numbers in the tallies of these names."""
    tallies = (
        msgspec.structs.replace(t, count=counts.pop(t.name, t.count)) for t in evaluation.tallies
    )
    changed = msgspec.structs.replace(evaluation, tallies=tuple(tallies))
    assert not counts
    return changed


def _evaluation() -> Evaluation:
    return CandidateResults(
        candidates=100,
        proved=20,
        failed=50,
        depth_truncated=25,
        overflow=5,
        unfinished=0,
        invalid=3,
        deep=8,
        steps=5,
        dropped=CapCounters(children=4, rules=1),
        nan_scores=0,
        metrics=(
            RankMetrics(
                side="both",
                ties="realistic",
                queries=10,
                mrr=0.5,
                hits_at_1=0.25,
                hits_at_3=0.5,
                hits_at_10=0.75,
            ),
        ),
        settings={"dataset": "invented", "dtype": "float64"},
    ).declared()


def _agreement() -> Agreement:
    equal = RunAgreement(
        verdict=AgreementVerdict.EQUAL,
        compared=100,
        differing=0,
        near_ties=0,
        reference_compared=50,
        reference_differing=0,
        reference_near_ties=0,
        note="float64, logits rounded at 1e-9",
    )
    lost = Skipped(reason="the run left no result")
    return Agreement(baseline=BATCHED, runs=((BATCHED, equal), (FUSED, equal), (LOST, lost)))
