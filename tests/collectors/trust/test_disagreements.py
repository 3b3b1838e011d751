"""KGP503: what two sources say differently, and that a source which was not there contradicts
nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kgprof.collectors.trust import disagreements
from kgprof.model import Exit, Finding, Level, Outcome, Unavailable
from kgprof.model.memory_records import SyncRecord
from kgprof.reading.evidence import Evidence
from tests.analysis.recordings import FUSED
from tests.collectors import written, written_syncs
from tests.collectors.written import (
    CALLER,
    FILE,
    LOOP,
    STEP,
    STEP_DEF,
    Region,
    broken,
    compiled,
    compiled_once,
    offered,
    ran,
    recompiled,
    rejected,
    resumed,
)

STEPS_DEF = written.place(FILE, STEP_DEF, "step")


def diagnosed(*lines: Any, **fields: Any) -> tuple[Finding, ...]:
    return disagreements.diagnose(
        disagreements.collect(Evidence(written.recording(*lines, **fields)))
    )


@pytest.mark.parametrize(
    "lines",
    [
        compiled_once(),
        written.a_break(),
        written.a_skipped_frame(),
        recompiled(2, 5),
        written.to_the_limit(2, 4, limit=6, reason="n == 1"),
        written.a_failure(),
        [
            *written.a_failure(),
            *written.compiled("0/1", STEP, call=4),
            offered(STEP, call=4, compile_id="0/1"),
            ran("0/1", *range(4, written.CALLS)),
        ],
        written.a_bypass(),
    ],
)
def test_sources_that_agree_are_no_finding(lines: list[Any]) -> None:
    assert diagnosed(*lines) == ()


def test_a_function_that_goes_on_where_no_break_is_known() -> None:
    (found,) = diagnosed(*written.a_contradiction())

    assert found == Finding(
        rule="KGP503",
        level=Level.WARNING,
        message=(
            "sources disagree on graph breaks: the frame hook saw step resume after this line, but "
            "the structured trace has no graph break there"
        ),
        run=FUSED,
        location=written.place(*LOOP),
        fingerprint=found.fingerprint,
    )


def test_a_recompile_that_only_one_of_them_saw() -> None:
    only_a_reason = [*compiled_once(), rejected("0/1", "0/0: n == 1", call=4)]
    only_a_frame = [line for line in recompiled(4) if not _is_reason(line)]

    assert [f.message for f in diagnosed(*only_a_reason)] == [
        "sources disagree on recompiles: the structured trace has compilation 0/1, and the frame "
        "hook does not"
    ]
    assert [f.message for f in diagnosed(*only_a_frame)] == [
        "sources disagree on recompiles: the frame hook has compilation 0/1, and the structured "
        "trace does not"
    ]


def _is_reason(line: Any) -> bool:
    return getattr(line, "metadata", {}).get("artifact", {}).get("name") == "recompile_reasons"


def test_a_compilation_that_only_one_of_them_saw() -> None:
    (found,) = diagnosed(*compiled_once(), offered(written.REPORT, compile_id="1/0"))

    assert (found.location, found.message) == (
        None,
        "sources disagree on compilations: the frame hook has compilation 1/0, and the structured "
        "trace does not",
    )


def test_a_graph_that_only_one_of_them_saw() -> None:
    (found,) = diagnosed(*compiled("0/0", STEP), offered(STEP, compile_id="0/0"))

    assert (found.location, found.message) == (
        STEPS_DEF,
        "sources disagree on graphs: the structured trace has compilation 0/0, and the graph hook "
        "does not",
    )


def test_a_run_that_was_stopped_contradicts_nothing() -> None:
    recording = written.recording(*written.a_contradiction())
    stopped = msgspec.structs.replace(recording.runs[0], exit=Exit(Outcome.INTERRUPTED))

    assert (
        disagreements.collect(Evidence(msgspec.structs.replace(recording, runs=(stopped,)))) == ()
    )


@pytest.mark.parametrize(
    "missing",
    [
        Unavailable(capture="frame hook", why="this torch has none"),
        Unavailable(capture="structured trace", why="this torch has none"),
    ],
)
def test_a_source_that_was_not_there_contradicts_nothing(missing: Unavailable) -> None:
    assert diagnosed(*written.a_contradiction(), unavailable=(missing,)) == ()


def test_the_graph_hook_alone_may_be_missing() -> None:
    missing = Unavailable(capture="graph hook", why="this torch has none")
    without = [line for line in compiled_once() if not isinstance(line, written.GraphRuns)]

    assert diagnosed(*without, unavailable=(missing,)) == ()
    assert len(diagnosed(*written.a_contradiction(), unavailable=(missing,))) == 1


def test_records_that_were_left_out_contradict_nothing() -> None:
    assert diagnosed(*written.a_contradiction(), left_out=1) == ()


def test_a_frame_that_torch_skipped_for_want_of_operators_is_no_contradiction() -> None:
    # given: torch's own row says has_guarded_code for a frame that it compiled nothing of
    going_on = resumed(STEP, 16)
    lines = [
        *compiled_once(),
        broken("0/0", CALLER, LOOP),
        *compiled("1/0", going_on, guard_count=None, graph_op_count=None, has_guarded_code=True),
        offered(going_on, "skipped"),
    ]

    assert diagnosed(*lines) == ()


def test_a_recompile_that_met_no_operator_is_no_contradiction() -> None:
    lines = [
        *compiled_once(),
        written.rejected("0/1", "0/0: flag is True", call=4),
        *compiled("0/1", STEP, call=4, guard_count=None, graph_op_count=None),
        offered(STEP, "skipped", call=4),
    ]

    assert diagnosed(*lines) == ()


def test_a_graph_of_no_operators_is_no_contradiction() -> None:
    lines = [*compiled("0/0", STEP, graph_op_count=0), offered(STEP, compile_id="0/0")]

    assert diagnosed(*lines) == ()
    # the hook counts the runs of one that only hands its inputs on
    assert diagnosed(*lines, ran("0/0", 0)) == ()
    assert diagnosed(*lines, ran("1/0", 0))[0].message.startswith("sources disagree on graphs")


def test_a_graph_of_a_compilation_that_failed_afterwards_is_no_contradiction() -> None:
    failed = compiled("0/0", STEP, fail_type="ConstraintViolationError", fail_reason="(4)")

    assert diagnosed(*failed, ran("0/0", 0), offered(STEP, "raised")) == ()


# -------------------------------------------------------- CUDA graphs: the log against the launches


def on_cuda(region: Region, *lines: Any) -> tuple[str, ...]:
    asked = written.GraphRuns(compile_id="0/0", runs={0: 1}, cuda_graphs=True)
    told = [line for line in compiled_once() if not isinstance(line, written.GraphRuns)]
    recording = written.on_cuda(*told, asked, *lines, launches=0, regions=(region,))
    return tuple(
        finding.message
        for finding in disagreements.diagnose(disagreements.collect(Evidence(recording)))
    )


def skipped_at_compile_time() -> Any:
    return msgspec.structs.replace(written.skipped_graph("multiple devices"), compile_id="0/0")


def test_a_recorded_cuda_graph_that_is_never_launched() -> None:
    assert on_cuda(Region("0/0", runs=4, graphs=0), *written.recorded_graph(1)) == (
        "sources disagree on CUDA graphs: CUDA graph of Model.step: torch's log says that it was "
        "recorded, but its 4 runs in TRACE have no cudaGraphLaunch",
    )


def test_a_skipped_cuda_graph_that_is_launched() -> None:
    assert on_cuda(Region("0/0", runs=4, graphs=4), skipped_at_compile_time()) == (
        "sources disagree on CUDA graphs: CUDA graph of Model.step: torch's log says that it was "
        "skipped, but its 4 runs in TRACE have 4 cudaGraphLaunch",
    )


@pytest.mark.parametrize(
    ("region", "lines"),
    [
        (Region("0/0", runs=4, graphs=4), written.recorded_graph(1)),
        (Region("0/0", runs=4, graphs=0), [skipped_at_compile_time()]),
        (Region("0/0", runs=4, graphs=0), []),
        (Region("0/0", runs=4, graphs=4), []),
    ],
)
def test_a_log_that_agrees_with_the_launches_or_is_silent_is_no_contradiction(
    region: Region, lines: list[Any]
) -> None:
    assert on_cuda(region, *lines) == ()


# ---------------------------------------------------------------- reads, on a GPU

SEEN = written_syncs.read(device="cuda")
DEBUGGED = written_syncs.read(source="sync-debug", op="synchronizing operation", device="cuda")


def of_reads(*reads: SyncRecord, device: str = "cuda", **fields: Any) -> list[str]:
    found = disagreements.collect(
        Evidence(written_syncs.recording(*reads, device=device, **fields))
    )
    return [f"{event.location.line if event.location else ''}: {event.message}" for event in found]


def test_a_number_read_that_only_one_of_them_saw() -> None:
    by_hook = (
        "21: the dispatcher's hook saw this line read a CUDA tensor, but the "
        "sync-debug mode did not"
    )
    by_mode = (
        "21: the sync-debug mode saw this line read a CUDA tensor, but the "
        "dispatcher's hook did not"
    )

    assert of_reads(SEEN) == [by_hook]
    assert of_reads(DEBUGGED) == [by_mode]
    assert of_reads(SEEN, DEBUGGED) == []


@pytest.mark.parametrize(
    "alone",
    [
        msgspec.structs.replace(SEEN, device="cpu"),
        written_syncs.predicate(device="cuda"),
        msgspec.structs.replace(SEEN, op="aten::_unique2"),
        msgspec.structs.replace(DEBUGGED, expression="loss.cpu()"),
        msgspec.structs.replace(DEBUGGED, expression="", instruction="STORE_FAST"),
    ],
    ids=["of the CPU's", "in compiled code", "of another operator", "a copy", "of unknown words"],
)
def test_what_one_of_them_sees_alone_by_its_nature_is_no_contradiction(alone: SyncRecord) -> None:
    assert of_reads(alone) == []


def test_reads_are_compared_on_a_gpu_and_where_both_hooks_were_whole() -> None:
    missing = (Unavailable(capture="sync hooks", why="sync_debug: RuntimeError: no such mode"),)

    assert of_reads(SEEN, device="cpu") == []
    assert of_reads(SEEN, left_out=1) == []
    assert of_reads(SEEN, capture_unavailable=missing) == []
