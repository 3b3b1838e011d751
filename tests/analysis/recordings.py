"""Recordings in memory, for what needs no trace: every figure chosen, nothing measured."""

from __future__ import annotations

import msgspec

from kgprof.model import (
    Agreement,
    Compilation,
    CompilePass,
    Evaluation,
    Exit,
    HostPass,
    HostRow,
    Recording,
    RunAgreement,
    RunKey,
    RunRecord,
    Skipped,
    TimingPass,
)
from kgprof.reading.link_prediction import UNIT
from tests.record import handmade

EAGER = RunKey(strategy="batched", mode="eager")
COMPILED = RunKey(strategy="batched", mode="default")
FUSED = RunKey(strategy="fused", mode="default")
GONE = Skipped(reason="not in this Recording")
COMPILATION = Compilation(
    compile_id="0/0", function="step", location="/src/fused.py:10", duration_s=1.5
)


def recording(
    *runs: RunRecord,
    baseline: RunKey | None = EAGER,
    agreement: Agreement | Skipped = GONE,
    compares: bool | None = None,
) -> Recording:
    """``compares``: the workload can compare its results (None: where there is a comparison)."""
    header = handmade._header()
    offered = isinstance(agreement, Agreement) if compares is None else compares
    plan = msgspec.structs.replace(
        header.plan, runs=tuple(run.key for run in runs), baseline=baseline, agreement=offered
    )
    return Recording(
        folder="/nowhere",
        header=msgspec.structs.replace(header, plan=plan),
        runs=runs,
        agreement=agreement,
    )


def run(
    key: RunKey,
    *,
    step_us: float = 1000.0,
    evaluation_s: float | None = 0.5,
    compiled: int | None = None,
    unfinished: int | None = 0,
    ended: Exit | None = None,
) -> RunRecord:
    """Steps at 0.9, 1.0 and 1.1 times ``step_us``, evaluations likewise; ``compiled`` compilations
    (None: by mode)."""
    compilations = (0 if key.mode in ("eager", "as-is") else 1) if compiled is None else compiled
    factors = (1.0, 0.9, 1.1)
    whole = () if evaluation_s is None else tuple(evaluation_s * factor for factor in factors)
    return RunRecord(
        key=key,
        exit=ended or Exit(outcome="ok", exit_code=0),
        probe_exit=None,
        compile=CompilePass(
            call_us=(2e6, *(step_us * factor for factor in factors)),
            steady_from=1,
            compilations=(COMPILATION,) * compilations,
        ),
        timing=TimingPass(
            clock="perf_counter",
            step_us=(tuple(step_us * factor for factor in factors),) * max(1, len(whole)),
            evaluation_s=whole,
        ),
        trace=GONE,
        host=HostPass(
            step_us=(1.5 * step_us,) * 3,
            rows=(
                HostRow(
                    function="step",
                    file="fused.py",
                    line=1,
                    calls=3,
                    self_us=30.0,
                    cumulative_us=90.0,
                ),
            ),
            total_self_us=90.0,
        ),
        kernels=GONE,
        unit=UNIT,
        evaluation=GONE if unfinished is None else evaluation(unfinished),
        log="",
    )


def died(
    key: RunKey, outcome: str = "killed", message: str = "SIGKILL", during: str = "timing"
) -> RunRecord:
    gone = Skipped(reason=f"the run was {outcome} during {during}: {message}")
    return RunRecord(
        key=key,
        exit=Exit(outcome=outcome, message=message, during=during),
        probe_exit=None,
        compile=gone,
        timing=gone,
        trace=gone,
        host=gone,
        stack=gone,
        kernels=gone,
        memory=gone,
        unit=UNIT,
        evaluation=gone,
        log="",
    )


def evaluation(unfinished: int = 0) -> Evaluation:
    return handmade.counted(handmade._evaluation(), failed=50 - unfinished, unfinished=unfinished)


def agreed(
    key: RunKey, verdict: str = "equal", *, differing: int = 0, near_ties: int = 0
) -> tuple[RunKey, RunAgreement]:
    return key, RunAgreement(
        verdict=verdict,
        compared=100,
        differing=differing,
        near_ties=near_ties,
        reference_compared=50,
        reference_differing=0,
        reference_near_ties=0,
    )


def agreement(*runs: tuple[RunKey, RunAgreement | Skipped]) -> Agreement:
    return Agreement(baseline=EAGER, runs=runs)
