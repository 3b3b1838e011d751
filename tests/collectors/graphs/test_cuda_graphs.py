"""KGP301 to KGP304, from what torch logs and from what the trace proves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kgprof.collectors.graphs import cuda_graphs
from kgprof.collectors.graphs.cuda_graphs import CudaGraphs, Partitioning, Recorded, Skip
from kgprof.model import (
    CompilePass,
    Exit,
    Finding,
    Level,
    Outcome,
    Recording,
    RunKey,
    Saving,
    ScriptRun,
    Skipped,
)
from kgprof.reading.evidence import Evidence
from tests.collectors import written, written_syncs
from tests.collectors.written import (
    FILE,
    LIBRARY,
    LOOP,
    REDUCE_OVERHEAD,
    STEP_DEF,
    Region,
    compiled_once,
    partitioned,
    recorded_graph,
    skipped_graph,
)

STEPS_DEF = written.place(FILE, STEP_DEF, "step")
MOVED = "StaticInputIdxMismatch: input name: primals_1. data pointer changed from 1 to 2."


def diagnosed(recording: Recording) -> tuple[Finding, ...]:
    return cuda_graphs.diagnose(cuda_graphs.collect(Evidence(recording)))


def rules(recording: Recording) -> list[tuple[str, Level]]:
    return [(finding.rule, finding.level) for finding in diagnosed(recording)]


def event(*lines: Any, **fields: Any) -> CudaGraphs:
    (found,) = cuda_graphs.collect(Evidence(written.on_cuda(*compiled_once(), *lines, **fields)))
    return found


# ---------------------------------------------------------------- what ran


def test_a_graph_that_is_launched_in_every_step_is_no_finding() -> None:
    recording = written.on_cuda(*compiled_once(), *recorded_graph(1), launches=4)

    (found,) = cuda_graphs.collect(Evidence(recording))

    assert found == CudaGraphs(
        run=REDUCE_OVERHEAD,
        requested=True,
        graphs=1,
        launches_per_step=1.0,
        recorded=(
            Recorded(compile_id="0/0", call=1, again="", location=STEPS_DEF, function="step"),
        ),
        skips=(),
        partitions=(),
        steady_from=3,
        identities={STEPS_DEF: "model.py\0Model.step\0def step(self, x):"},
    )
    assert diagnosed(recording) == ()


def test_none_launched_is_said_whatever_the_log_says() -> None:
    silent = written.on_cuda(*compiled_once(), launches=0)
    explained = written.on_cuda(
        *compiled_once(), skipped_graph("control flow operator", LOOP), launches=0
    )

    assert [f.message for f in diagnosed(silent)] == [
        "no CUDA graph was launched in TRACE, although 1 compiled graph ran in it; torch logged no "
        "skip"
    ]
    assert rules(explained) == [("KGP301", Level.WARNING), ("KGP303", Level.WARNING)]


def test_none_launched_is_not_said_of_a_scripts_graphs_that_may_have_been_recorded_later() -> None:
    regions = (Region("0/0", runs=4, graphs=0),)
    recording = written.on_cuda(*compiled_once(), *recorded_graph(1), launches=0, regions=regions)
    script = ScriptRun(step="optimizer.step()", steps=8, counted={})
    run = msgspec.structs.replace(recording.runs[0], script=script)

    assert rules(recording) == [("KGP303", Level.WARNING)]
    assert rules(msgspec.structs.replace(recording, runs=(run,))) == []


@pytest.mark.parametrize("outcome", [Outcome.INTERRUPTED, Outcome.TIMED_OUT])
def test_of_a_run_that_was_stopped_none_launched_is_not_said(outcome: Outcome) -> None:
    recording = written.on_cuda(*compiled_once(), launches=0)
    stopped = msgspec.structs.replace(recording.runs[0], exit=Exit(outcome))

    assert rules(msgspec.structs.replace(recording, runs=(stopped,))) == []


def test_of_steps_in_which_no_compiled_graph_ran_nothing_is_said() -> None:
    """A program that runs an eager loop first, which TRACE followed, and a compiled one later."""
    assert rules(written.on_cuda(*compiled_once(), launches=0, regions=())) == []


def test_where_no_cuda_graphs_were_asked_for_their_absence_is_no_finding() -> None:
    plain = RunKey(strategy="fused", mode="default")
    lines = [line for line in compiled_once() if not isinstance(line, written.GraphRuns)]
    told = written.GraphRuns(compile_id="0/0", runs={0: 1}, cuda_graphs=False)

    assert rules(written.on_cuda(*lines, launches=0, key=plain)) == []
    assert rules(written.on_cuda(*lines, told, launches=0)) == []


def test_of_a_graph_that_was_not_asked_to_be_one_nothing_is_said_beside_one_that_was() -> None:
    # given: step, and report in reduce-overhead, which does not run in the traced steps
    told = [
        written.GraphRuns(compile_id=name, inputs=("L['x']",), runs={0: 1}, cuda_graphs=asked)
        for name, asked in (("0/0", False), ("1/0", True))
    ]
    graphs = [*written.compiled("0/0", written.STEP), *written.compiled("1/0", written.REPORT)]
    regions = (Region("0/0", runs=4, graphs=0),)

    assert rules(written.on_cuda(*graphs, *told, launches=0, regions=regions)) == []


def test_what_the_users_own_torch_compile_asked_for_counts() -> None:
    as_is = RunKey(strategy="fused", mode="as-is")
    lines = [line for line in compiled_once() if not isinstance(line, written.GraphRuns)]
    told = written.GraphRuns(compile_id="0/0", runs={0: 1}, cuda_graphs=True)

    assert rules(written.on_cuda(*lines, told, launches=0, key=as_is)) == [
        ("KGP303", Level.WARNING)
    ]


def test_without_a_trace_launches_are_not_observed() -> None:
    found = event()

    assert isinstance(found.launches_per_step, Skipped)
    assert rules(written.on_cuda(*compiled_once())) == []


# ---------------------------------------------------------------- each graph's own launches


def two_graphs() -> list[Any]:
    """step and report, both asked to be CUDA graphs."""
    asked = [
        written.GraphRuns(compile_id=name, runs={0: 1}, cuda_graphs=True) for name in ("0/0", "1/0")
    ]
    return [
        *written.compiled("0/0", written.STEP),
        *written.compiled("1/0", written.REPORT),
        *asked,
    ]


def of_two(report: Region, *lines: Any) -> Recording:
    """step is launched in each of its four runs; report as told."""
    return written.on_cuda(
        *two_graphs(), *lines, launches=0, regions=(Region("0/0", runs=4, graphs=4), report)
    )


def test_launches_are_counted_in_each_compiled_region() -> None:
    (found,) = cuda_graphs.collect(Evidence(of_two(Region("1/0", runs=4, graphs=8, kernels=2))))

    assert [(one.compile_id, one.runs, one.launches, one.kernels) for one in found.replayed] == [
        ("0/0", 4, 4, 1),
        ("1/0", 4, 8, 2),
    ]
    assert found.launches_per_step == 3


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (
            Region("1/0", runs=4, graphs=0),
            "no CUDA graph of report was launched in each of its 4 runs in TRACE",
        ),
        (
            Region("1/0", runs=4, graphs=3),
            "no CUDA graph of report was launched in 1 of its 4 runs in TRACE",
        ),
    ],
)
def test_a_graph_left_out_among_others_that_are_launched_is_said(report: Region, said: str) -> None:
    (finding,) = diagnosed(of_two(report))

    assert (finding.rule, finding.message) == (
        "KGP303",
        f"{said}, though others were; torch logged no skip of it",
    )
    assert finding.location is not None
    assert finding.location.function == "report"


@pytest.mark.parametrize(
    "report",
    [
        Region("1/0", runs=4, graphs=4),
        Region("1/0", runs=4, graphs=0, kernels=0),
        Region("7/0", 4, 0),
        Region("1/0", runs=4, graphs=0, kernels=9, generated=False),  # of eager operators
    ],
)
def test_a_graph_that_is_launched_or_has_no_kernels_or_was_never_asked_to_be_one_is_no_finding(
    report: Region,
) -> None:
    assert diagnosed(of_two(report)) == ()


def test_without_any_launch_the_run_as_a_whole_is_said_once() -> None:
    none = written.on_cuda(
        *two_graphs(), launches=0, regions=(Region("0/0", 4, 0), Region("1/0", 4, 0))
    )

    assert [(f.rule, f.location) for f in diagnosed(none)] == [("KGP303", None)]


# ---------------------------------------------------------------- skips and partitions


def test_a_skip_points_at_the_projects_line_in_torchs_stack() -> None:
    line = skipped_graph("mutated inputs (1 instances)", LOOP, (LIBRARY, 3, "relu_"))

    (found,) = event(line).skips

    assert found == Skip(
        compile_id="",
        location=written.place(*LOOP),
        reason="skipping cudagraphs due to mutated inputs (1 instances)",
        text=line.text,
    )


def test_a_skip_without_a_stack_points_at_the_def() -> None:
    line = msgspec.structs.replace(skipped_graph("multiple devices"), compile_id="0/0")

    (found,) = diagnosed(written.on_cuda(*compiled_once(), line))

    assert (found.rule, found.location) == ("KGP301", STEPS_DEF)
    assert found.message == "skipping cudagraphs due to multiple devices"


def test_a_skip_that_is_said_twice_is_one() -> None:
    lines = [skipped_graph("mutated inputs", LOOP, call=call) for call in (1, 2)]

    assert len(event(*lines).skips) == 1


def test_another_message_of_the_same_logger_is_no_skip() -> None:
    warning = written.said(
        "warn_msg", "CUDAGraph supports dynamic shapes ...", logger=written.REASONS
    )

    assert event(warning).skips == ()


def test_a_partition_has_its_reasons_and_its_line() -> None:
    (found,) = event(*partitioned("cpu ops", LOOP)).partitions

    assert found == Partitioning(
        compile_id="0/0",
        graphed=1,
        not_graphed=1,
        reasons=("cpu ops",),
        location=written.place(*LOOP),
    )
    (finding,) = diagnosed(written.on_cuda(*compiled_once(), *partitioned("cpu ops", LOOP)))
    assert (
        finding.message == "CUDA graphs cover only 1 of 2 partitions of a compiled graph: cpu ops"
    )


def test_a_partition_without_a_user_line_points_at_the_def() -> None:
    (found,) = event(*partitioned("DeviceCopy")).partitions

    assert found.location == STEPS_DEF


@pytest.mark.parametrize("compile_id", ["0/0", ""])
def test_pieces_of_a_graph_that_was_skipped_are_not_spoken_of(compile_id: str) -> None:
    skip = msgspec.structs.replace(
        skipped_graph("control flow operator", LOOP), compile_id=compile_id
    )

    recording = written.on_cuda(*compiled_once(), *partitioned("Conditional ops"), skip)

    assert rules(recording) == [("KGP301", Level.WARNING)]


def test_pieces_of_a_graph_that_was_not_asked_to_be_one_are_not_spoken_of() -> None:
    reason = "partition includes all ops when cudagraphs is disabled"

    assert rules(written.on_cuda(*compiled_once(), *partitioned(reason))) == []


def test_pieces_that_can_all_be_graphs_are_no_finding() -> None:
    counts = "Created 1 graph partitions: 1 cudagraphable, 0 non-cudagraphable"
    line = written.said("_log_graph_partitions", counts, logger=written.SCHEDULER, compile_id="0/0")

    assert rules(written.on_cuda(*compiled_once(), line)) == []


# ---------------------------------------------------------------- recorded again


def test_a_recording_after_warm_up_has_its_reason() -> None:
    (found,) = diagnosed(written.on_cuda(*written.a_rerecording()))

    assert (found.rule, found.location, found.count) == ("KGP304", STEPS_DEF, 1)
    assert (
        found.message
        == f"the CUDA graph of Model.step was recorded again once after warm-up: {MOVED}"
    )
    assert (found.detail, found.fix) == (f"step 7: {MOVED}", "")


def test_recordings_of_the_warm_up_and_first_ones_are_no_finding() -> None:
    twice_early = [*recorded_graph(1), *recorded_graph(2, again="another path")]
    late_but_first = recorded_graph(9, compile_id="5/0")

    assert rules(written.on_cuda(*compiled_once(), *twice_early, *late_but_first)) == []


def test_after_a_reset_a_graph_of_the_same_id_is_another_one() -> None:
    """torch._dynamo.reset() gives out the compile ids again."""
    anew = written.compiled("0/0", written.STEP, call=8)

    whole = written.on_cuda(*compiled_once(), *recorded_graph(1), *anew, *recorded_graph(9))

    assert rules(whole) == []


# ---------------------------------------------------------------- a graph for each size

STEPS = 24


def as_script(*lines: Any, step_us: dict[int, float] | None = None, **fields: Any) -> Recording:
    """Steps of a script, 500 us each but for these; it compiled ``0/0`` and, for sizes, ``0/1``."""
    whole = written.on_cuda(*written.recompiled(1), *lines, **fields)
    (run,) = whole.runs
    assert isinstance(run.compile, CompilePass)
    times = tuple((step_us or {}).get(step, 500.0) for step in range(STEPS))
    run = msgspec.structs.replace(
        run,
        compile=msgspec.structs.replace(run.compile, calls=STEPS, compiled_in=(0, 1)),
        memory=written_syncs.memory(step_us=times),
        script=ScriptRun(step="a call of a compiled function", steps=STEPS, counted={}),
    )
    return msgspec.structs.replace(whole, runs=(run,))


def sized(*lines: Any, **fields: Any) -> tuple[Finding, ...]:
    return tuple(f for f in diagnosed(as_script(*lines, **fields)) if f.rule == "KGP304")


def test_a_graph_for_each_size_says_how_many_and_what_each_takes() -> None:
    slow = dict.fromkeys(range(2, 20), 8000.0)
    warns = written.said("maybe_warning_due_to_dynamic_shape", "We have observed 9 distinct sizes.")

    (found,) = sized(*written.many_sizes(20), warns, step_us=slow)

    assert found.level is Level.WARNING
    assert found.message == (
        "a CUDA graph is recorded for each of 10 input sizes: 17 of 21 steps record one or run a "
        "size for the first time, 8.00 ms each where a replay takes 0.500 ms; torch warns of it"
    )
    assert found.fix == ""  # whether padding changes the result is not known
    assert isinstance(found.saves, Saving)
    # 18 steps of 7.5 ms beyond a replay (steps 0 and 1 compile); torch gave no time for compiling
    assert (found.saves.us_per_step, found.saves.per) == (pytest.approx(18 * 7500.0), "run")


def test_sizes_that_stop_coming_are_a_note() -> None:
    # given: two sizes; two of the 21 steps after warm-up are for the second
    first, second = written.many_sizes(2), [*written.new_size(4, 99), written.sized_graph(5, 99)]

    (found,) = sized(*first, *second)

    assert found.level is Level.NOTE
    assert "torch warns" not in found.message


def test_without_times_the_sizes_are_counted() -> None:
    recording = written.on_cuda(*written.recompiled(1), *written.many_sizes(20))

    (found,) = (f for f in diagnosed(recording) if f.rule == "KGP304")

    assert found.message.endswith("each of 10 input sizes, 9 of them after warm-up")
    assert isinstance(found.saves, Skipped)


def test_one_size_is_no_finding_and_the_same_size_again_is_recorded_again() -> None:
    once = [*written.new_size(1, 10), written.sized_graph(2, 10)]
    again = [*once, written.sized_graph(9, 10)]

    assert sized(*once) == ()
    (found,) = sized(*again)
    assert "was recorded again once after warm-up: torch gave no reason" in found.message
    assert found.fix == ""  # another order of calls may be the program's own


def of_numbers(steps: int) -> list[Any]:
    """Each second step brings a number for the first time; a recording's log has none."""
    symbol = written.record("0/1", 0, create_symbol={"source": "L['position']"})
    lines = [line for line in written.many_sizes(steps) if line.function != "record_function"]
    return [symbol, *lines, *(written.sized_graph(step, 8) for step in range(1, steps, 2))]


def test_a_graph_for_each_number_is_recorded_for_the_first_time_and_named_by_it() -> None:
    (found,) = sized(*of_numbers(20))

    assert found.message.startswith("a CUDA graph is recorded for each of 10 values of position: ")
    assert "run a value for the first time" in found.message
    assert (found.fix, found.no_fix) == ("", cuda_graphs.NUMBERS)


def test_more_recordings_than_numbers_are_recorded_again() -> None:
    more = [written.sized_graph(step, 8) for step in (20, 21)]

    again, _ = sized(*of_numbers(20), *more)

    assert "was recorded again 2 times after warm-up" in again.message


def test_two_pieces_of_one_graph_are_each_recorded_for_the_first_time() -> None:
    other = msgspec.structs.replace(
        written.sized_graph(7, 10), text="[0/1] Recording function=partition_1, inputs: x"
    )

    assert sized(written.sized_graph(6, 10), other) == ()


def test_a_call_that_records_is_not_said_to_launch_nothing() -> None:
    # given: four runs of report, in all of which torch prepares or records a graph
    records = of_two(Region("1/0", runs=4, graphs=1, recorded=4))
    replays = of_two(Region("1/0", runs=4, graphs=1, kernels=120, recorded=1))

    assert diagnosed(records) == ()
    (found,) = diagnosed(replays)
    assert "in each of its 3 runs in TRACE" in found.message


def test_where_torch_only_records_no_run_had_to_launch() -> None:
    only = written.on_cuda(*two_graphs(), launches=0, regions=(Region("0/0", 4, 0, recorded=4),))

    assert diagnosed(only) == ()
