"""What a run has to have before a rule can be seen in it; tests/contract/test_coverage.py takes it
away bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kgprof.collectors import RULES
from kgprof.collectors.trust import witnesses
from kgprof.model import CompilePass, Recording, ScriptRun, Skipped, Unavailable
from kgprof.reading.evidence import Evidence
from tests.analysis.recordings import (
    COMPILED,
    EAGER,
    FUSED,
    agreed,
    agreement,
    died,
    recording,
    run,
)
from tests.collectors import (
    written,
    written_device,
    written_gpu_time,
    written_syncs,
    written_tensors,
)

DIRECTORY = ScriptRun(step="", steps=0, counted={})


def answers(recorded: Recording, *, of: int = 0) -> dict[str, str]:
    """Of each rule with what it was looked for in one run, or why it could not be seen."""
    rows = witnesses.coverage(Evidence(recorded), RULES, ())
    key = recorded.runs[of].key
    return {
        rule: row.looked_at or f"not: {row.missing}"
        for row in rows
        if row.run == key
        for rule in row.rules
    }


def with_run(recorded: Recording, **fields: object) -> Recording:
    (only,) = recorded.runs
    return msgspec.structs.replace(recorded, runs=(msgspec.structs.replace(only, **fields),))


def with_backend(recorded: Recording, backend: str) -> Recording:
    options = msgspec.structs.replace(recorded.header.options, backend=backend)
    return msgspec.structs.replace(
        recorded, header=msgspec.structs.replace(recorded.header, options=options)
    )


def test_a_rule_of_compilation_was_looked_for_in_the_calls_of_compile() -> None:
    found = answers(written.recording(*written.compiled_once()))

    assert {found[rule] for rule in ("KGP101", "KGP103", "KGP105", "KGP107", "KGP406")} == {
        "COMPILE, 20 calls"
    }
    assert (found["KGP301"], found["KGP302"]) == ("not: this is a CPU run",) * 2
    assert found["KGP201"].startswith("not: ")


@pytest.mark.parametrize(
    ("backend", "unseen"), [("", set()), ("aot_eager", {"KGP106"}), ("eager", {"KGP106"})]
)
def test_what_a_backend_does_not_do_cannot_be_seen(backend: str, unseen: set[str]) -> None:
    found = answers(with_backend(written.recording(*written.compiled_once()), backend))

    assert {rule for rule, answer in found.items() if answer.startswith("not: backend")} == unseen


def test_a_directory_of_torchs_traces_tells_no_call_from_another() -> None:
    """Which matters only where something was recompiled."""
    once = with_run(written.recording(*written.compiled_once()), script=DIRECTORY)
    again = with_run(written.recording(*written.recompiled(10)), script=DIRECTORY)

    assert answers(once)["KGP105"] == "COMPILE, 20 calls"
    assert answers(again)["KGP105"].startswith("not: functions were recompiled")
    assert answers(again)["KGP104"] == "COMPILE, 20 calls"


def test_a_file_that_was_cut_off_proves_nothing() -> None:
    torn = Unavailable(
        capture="structured trace", why="it ends in the middle of a record", incomplete=True
    )

    found = answers(written.recording(*written.compiled_once(), unavailable=(torn,)))

    assert (
        found["KGP101"]
        == "not: capture structured trace incomplete: it ends in the middle of a record"
    )


def test_a_run_that_died_says_how() -> None:
    assert (
        answers(recording(died(FUSED)))["KGP101"]
        == "not: the run was killed during timing: SIGKILL"
    )


def test_results_are_looked_at_where_another_runs_are() -> None:
    both = recording(run(EAGER), run(FUSED), agreement=agreement(agreed(EAGER), agreed(FUSED)))
    key, alone = agreed(EAGER)
    unchecked = msgspec.structs.replace(alone, reference_compared=0)

    assert answers(both, of=1)["KGP501"] == answers(both)["KGP501"] == "100 results compared"
    single = recording(run(EAGER), agreement=agreement((key, unchecked)))
    assert answers(single)["KGP501"] == "not: there was no other result"


def test_what_compiling_costs_is_weighed_where_eager_was_timed() -> None:
    both = recording(run(EAGER), run(COMPILED))

    assert answers(both, of=1)["KGP603"] == "COMPILE, TIMING and eager's"
    assert answers(both)["KGP603"] == "nothing is compiled in mode eager"
    assert answers(recording(run(COMPILED)))["KGP603"].startswith("not: ")


def test_compiled_graphs_that_did_not_run_in_memory_were_not_watched() -> None:
    seen = written_tensors.a_moving_input()
    (only,) = seen.runs
    assert not isinstance(only.memory, Skipped)
    assert isinstance(only.compile, CompilePass)
    assert only.compile.compilations
    none = msgspec.structs.replace(only.memory, tensors=type(only.memory.tensors)())

    assert answers(seen)["KGP401"].startswith("MEMORY, ")
    assert (
        answers(with_run(seen, memory=none))["KGP401"]
        == "not: no compiled graph ran while MEMORY watched"
    )


def test_syncs_beyond_the_limit_leave_it_open() -> None:
    (cut,) = written_syncs.a_read().runs
    assert not isinstance(cut.memory, Skipped)
    syncs = msgspec.structs.replace(cut.memory.syncs, left_out=7)

    found = answers(
        with_run(written_syncs.a_read(), memory=msgspec.structs.replace(cut.memory, syncs=syncs))
    )

    assert found["KGP201"] == "not: 7 syncs are beyond what MEMORY keeps"


# ---------------------------------------------------------------- what a trace has to hold


def of_gpu(step_us: float | None = 1_000.0, *, kernel_us: float = 150.0) -> Recording:
    return written_device.steps(step_us=step_us, kernels=4, kernel_us=kernel_us)


def test_a_trace_of_kernels_alone_shows_no_operator() -> None:
    found = answers(of_gpu())

    assert found["KGP604"] == found["KGP610"] == "TRACE, 4 steps"
    assert {found[rule] for rule in ("KGP605", "KGP607", "KGP608", "KGP609")} == {
        "not: the trace has no operators of the CPU"
    }


def test_a_busy_cpu_under_the_profiler_may_be_the_profilers_doing() -> None:
    assert answers(of_gpu(None, kernel_us=150.0))["KGP604"] == "TRACE, 4 steps"
    hidden = answers(of_gpu(None, kernel_us=50.0))["KGP604"]
    assert hidden == (
        "not: under the profiler the GPU is busy 20 % of the time; whether it limits the program "
        "is not known without TIMING"
    )
    assert answers(of_gpu(kernel_us=50.0))["KGP604"] == "TRACE, 4 steps"


def unmarked() -> Iterator[dict[str, Any]]:
    for number in range(4):
        call, place = {"correlation": number + 1}, {"ph": "X", "pid": 1}
        at = {"ts": 100.0 * number, "dur": 5.0}
        yield {
            **place,
            **at,
            "tid": 1,
            "args": call,
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
        }
        kernel = {"ts": 100.0 * number + 10, "dur": 90.0, "name": "cutlass_80_simt_sgemm_128x64"}
        yield {**place, **kernel, "tid": 7, "args": {**call, "stream": 7}, "cat": "kernel"}


def test_where_no_steps_are_marked_the_window_is_judged() -> None:
    recorded = written_device.traced(unmarked(), step_us=None)

    found = answers(recorded)

    assert found["KGP604"] == "TRACE, the traced window"
    assert {found[rule] for rule in ("KGP601", "KGP602", "KGP610")} == {
        "not: no steps are marked in the trace"
    }


def test_a_gpu_that_the_trace_does_not_name_may_have_no_tensor_cores() -> None:
    named = written_gpu_time.exact_float32()
    assert answers(named)["KGP604"] == "TRACE, 4 steps"

    old = Evidence(named)
    old.runs[0].trace_head = {"deviceProperties": [{"computeMajor": 7, "computeMinor": 5}]}
    unnamed = Evidence(named)
    unnamed.runs[0].trace_head = {}
    rule = next(rule for rule in RULES if rule.id == "KGP604")

    whys = [witnesses.looked_for(rule, evidence.runs[0]) for evidence in (old, unnamed)]
    assert whys == [
        Skipped(reason="compute capability 7.5 has no tensor cores for TF32"),
        Skipped(reason="the trace does not name the GPU"),
    ]
