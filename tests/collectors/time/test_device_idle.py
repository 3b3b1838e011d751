"""Which step is said to wait for the host, and for what: the device's work of TRACE against the
step of TIMING."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.collectors.time.device_idle import (
    DEVICE_IDLE,
    GRADIENTS_GIVEN,
    LAUNCH_BOUND,
    REPLAY,
    RESULTS_KEPT,
    SIZES_CHANGE,
    STEPS_CHANGE,
    collect,
    diagnose,
)
from kgprof.collectors.trust.witnesses import WITNESSES
from kgprof.limits import MAKES_CODE
from kgprof.measures.host_time import ACCUMULATES, BACKWARD_SPANS
from kgprof.model import (
    Finding,
    FindingCost,
    Level,
    MemoryPass,
    PassName,
    Recording,
    Saving,
    Skipped,
    Witness,
)
from kgprof.model.memory_records import HeldOutput
from kgprof.reading.evidence import Evidence
from tests.collectors import written_syncs, written_tensors
from tests.collectors.written_device import (
    RUN,
    TRACED_US,
    steps,
    steps_of,
    timed,
    traced,
    unlike_steps,
    with_bare,
)
from tests.collectors.written_syncs import CALLS, read
from tests.collectors.written_tensors import given, graph


def found(recording: Recording) -> tuple[Finding, ...]:
    return diagnose(collect(Evidence(recording)))


def test_the_host_that_does_other_things_than_launch_leaves_the_device_idle() -> None:
    # given: four kernels of 5 us in a step of 400 us
    (finding,) = found(steps(step_us=400.0, kernels=4, kernel_us=5.0))

    assert (finding.rule, finding.level, finding.run) == (DEVICE_IDLE.id, Level.WARNING, RUN)
    assert finding.message == (
        "the GPU is idle 95 % of each step (20 of 400 µs busy, 4 launches, one every 100 µs); "
        "93 % of that in Python between operators on the CPU"
    )
    assert finding.cost == FindingCost(
        value=380.0,
        unit="us/step",
        what="GPU idle time",
        measured_in=(PassName.TIMING, PassName.TRACE),
        samples=5,
    )
    assert finding.detail.splitlines()[:3] == [
        "step: median of 5 steps, TIMING",
        "work and launches: mean of 4 steps, TRACE",
        "what the CPU did while the GPU waited, under the profiler:",
    ]


def test_many_short_kernels_are_bound_by_their_launches() -> None:
    # given: forty kernels of 2 us in a step of 400 us
    (finding,) = found(steps(step_us=400.0, kernels=40, kernel_us=2.0, in_operators=0.9))

    assert (finding.rule, finding.level) == (LAUNCH_BOUND.id, Level.WARNING)
    assert finding.message == (
        "the GPU is idle 80 % of each step (80 of 400 µs busy, 40 launches, one every 10.0 µs); "
        "89 % of that while the CPU issues launches"
    )
    assert finding.fix == ""  # operators of eager code


def test_launches_of_compiled_code_are_replayed_and_save_its_idle_time() -> None:
    (finding,) = found(in_compiled_code())

    assert (finding.rule, finding.fix) == (LAUNCH_BOUND.id, REPLAY)
    assert isinstance(finding.saves, Saving)
    assert finding.saves.us_per_step == pytest.approx(320.0, rel=0.1)


def in_compiled_code() -> Recording:
    """Steps of forty short kernels, each all in a region of torch.compile's."""
    return traced([*steps_of(40, 2.0, 40, 0.9), *REGIONS], step_us=400.0)


REGIONS = tuple(
    {
        "ph": "X",
        "pid": 1,
        "tid": 1,
        "cat": "user_annotation",
        "name": "Torch-Compiled Region: 0/0",
        "ts": step * TRACED_US + 1,
        "dur": TRACED_US - 2,
    }
    for step in range(4)
)


def test_in_mode_eager_launching_is_what_is_expected_and_a_note() -> None:
    (finding,) = found(
        steps(step_us=400.0, kernels=40, kernel_us=2.0, mode="eager", in_operators=0.9)
    )

    assert (finding.rule, finding.level) == (LAUNCH_BOUND.id, Level.NOTE)


@pytest.mark.parametrize(
    ("step_us", "kernel_us", "in_operators", "rules"),
    [
        pytest.param(100.0, 10.0, 0.0, [], id="four fifths busy"),
        pytest.param(160.0, 10.0, 0.0, [DEVICE_IDLE.id], id="half idle"),
        pytest.param(159.0, 10.0, 0.0, [], id="a little less than half"),
        pytest.param(100.0, 5.0, 0.7, [LAUNCH_BOUND.id], id="most of it in operators"),
        pytest.param(100.0, 5.0, 0.4, [DEVICE_IDLE.id], id="a little less"),
    ],
)
def test_where_the_lines_are(
    step_us: float, kernel_us: float, in_operators: float, rules: list[str]
) -> None:
    recording = steps(step_us=step_us, kernels=8, kernel_us=kernel_us, in_operators=in_operators)

    assert [finding.rule for finding in found(recording)] == rules


def test_few_launches_are_not_what_the_gpu_waits_for() -> None:
    (finding,) = found(steps(step_us=400.0, kernels=7, kernel_us=5.0, in_operators=0.9))

    assert finding.rule == DEVICE_IDLE.id


def test_work_of_unknown_launches_is_idle_without_a_cause() -> None:
    (finding,) = found(steps(step_us=80.0, kernels=4, kernel_us=5.0, launches=0))

    assert finding.rule == DEVICE_IDLE.id
    assert finding.message == "the GPU is idle 75 % of each step (20 of 80 µs busy, no launches)"


def test_a_cuda_graph_is_proposed_where_none_was_tried_and_inputs_stay() -> None:
    (event,) = collect(Evidence(in_compiled_code()))

    def fix(**changed: object) -> str:
        (finding,) = diagnose((msgspec.structs.replace(event, **changed),))
        assert finding.rule == LAUNCH_BOUND.id
        return finding.fix

    assert fix() == REPLAY
    assert fix(asks_for_graphs=True) == ""
    assert fix(graph_launches=1.0) == ""
    assert fix(against_graphs=SIZES_CHANGE) == ""
    assert fix(in_compiled_us=100.0) == ""  # a part of it alone


def launching(memory: MemoryPass) -> Recording:
    """A step of many short kernels, and what MEMORY saw in it."""
    whole = in_compiled_code()
    run = msgspec.structs.replace(whole.runs[0], memory=memory)
    return msgspec.structs.replace(whole, runs=(run,))


def keeping(calls: tuple[int, ...]) -> MemoryPass:
    """Compiled code whose result of these calls was there when the next call had ended."""
    held = (HeldOutput(output=0, calls=calls),)
    memory = written_tensors.recording(graph(given(), held_outputs=held)).runs[0].memory
    assert isinstance(memory, MemoryPass)
    return memory


@pytest.mark.parametrize(
    ("memory", "against"),
    [
        (written_syncs.memory(read(device="cuda")), ""),
        (keeping(tuple(range(CALLS - 1))), RESULTS_KEPT),
        (keeping((0,)), ""),
    ],
)
def test_no_cuda_graph_is_proposed_where_the_run_speaks_against_it(
    memory: MemoryPass, against: str
) -> None:
    (finding,) = found(launching(memory))

    assert finding.rule == LAUNCH_BOUND.id
    assert finding.fix == ("" if against else REPLAY)
    assert against in finding.detail


def launching_over(*grids: int, operator: str = "aten::mm") -> Recording:
    """Four steps of forty short kernels, each over as many blocks; an operator before each."""
    events = list(steps_of(kernels=40, kernel_us=2.0, launches=40, in_operators=0.9))
    for event in events:
        if event["cat"] == "kernel":
            step = int(event["ts"] // TRACED_US)
            event["args"] |= {"grid": [grids[step], 1, 1], "block": [32, 1, 1]}
        if event["cat"] == "cpu_op":
            event["name"] = event["name"].replace("aten::mm", operator)
    return traced([*events, *REGIONS], step_us=400.0)


@pytest.mark.parametrize(
    ("recording", "against"),
    [
        pytest.param(launching_over(4, 4, 4, 4), "", id="one size"),
        pytest.param(launching_over(4, 8, 4, 8), "", id="two sizes in turn"),
        pytest.param(launching_over(4, 8, 6, 5), STEPS_CHANGE, id="four sizes"),
        pytest.param(launching_over(4, 4, 4, 4, operator=ACCUMULATES), "", id="gradients kept"),
        pytest.param(
            launching_over(4, 4, 4, 4, operator=BACKWARD_SPANS[0]), GRADIENTS_GIVEN, id="given"
        ),
    ],
)
def test_no_cuda_graph_is_proposed_to_steps_of_other_sizes_or_gradients_that_are_results(
    recording: Recording, against: str
) -> None:
    (finding,) = found(recording)

    assert finding.rule == LAUNCH_BOUND.id
    assert finding.fix == ("" if against else REPLAY)
    assert against in finding.detail


def test_steps_that_vary_are_idle_as_a_short_one_is_and_promise_no_gain() -> None:
    # given: 80 us of work in steps of 300 to 900 us
    recording = steps(step_us=400.0, kernels=40, kernel_us=2.0, in_operators=0.9)
    (finding,) = found(timed(recording, (300.0, 300.0, 400.0, 900.0, 900.0)))

    # and: what the traced steps wait for is no limit of the others, and no graph is proposed
    assert (finding.rule, finding.fix) == (DEVICE_IDLE.id, "")
    assert finding.saves == Skipped("step times varied 3.0× within the run (p90 over p10)")
    assert finding.message == (
        "the GPU is idle at least 73 % of the traced steps (at most 80 of 300 µs busy); "
        "89 % of that while the CPU issues launches"
    )


def test_what_the_gpu_waits_for_while_torch_compiles_is_no_cause_of_other_steps() -> None:
    # given: steps that vary and launch nearly all of the time, one of which torch compiles in
    recording = traced([*steps_of(40, 2.0, 40, 0.9), *COMPILATION], step_us=400.0)
    (finding,) = found(timed(recording, (300.0, 300.0, 400.0, 900.0, 900.0)))

    assert finding.rule == DEVICE_IDLE.id
    assert finding.message == (
        "the GPU is idle at least 73 % of the traced steps (at most 80 of 300 µs busy)"
    )
    assert finding.detail.splitlines()[-1] == MAKES_CODE


COMPILATION = (
    {
        "ph": "X",
        "pid": 1,
        "tid": 1,
        "cat": "user_annotation",
        "name": "entire_frame_compile (dynamo_timed)",
        "ts": TRACED_US + 1,
        "dur": TRACED_US - 2,
    },
)


def test_an_evaluation_among_the_traced_steps_makes_no_gpu_busy() -> None:
    # given: three steps of 20 us of work and one of 400, and a median step of 150 us
    recording = traced(unlike_steps(20.0, 20.0, 20.0, 400.0), step_us=150.0)
    evidence = Evidence(recording)

    assert found(recording) == ()
    assert WITNESSES[Witness.WHAT_LIMITS](evidence.runs[0]) == Skipped(
        "the traced steps differ: 0.115 ms of GPU work on average, 0.0200 ms in the median one"
    )


def test_traced_steps_that_are_shorter_than_most_give_no_rate_of_launches() -> None:
    # given: 200 us just before the traced steps, and 400 us in the median step
    recording = with_bare(steps(step_us=400.0, kernels=4, kernel_us=5.0), 200.0)
    (finding,) = found(recording)

    assert finding.message == (
        "the GPU is idle at least 90 % of the traced steps (at most 20 of 200 µs busy); "
        "93 % of that in Python between operators on the CPU"
    )


def test_a_step_that_only_the_profiler_makes_long_is_no_finding() -> None:
    # given: 20 us of work in a step that takes 25 us bare, and 1000 us under the profiler
    assert found(steps(step_us=25.0, kernels=4, kernel_us=5.0)) == ()


def test_without_timing_nothing_is_said() -> None:
    assert collect(Evidence(steps(step_us=None, kernels=4, kernel_us=5.0))) == ()


def test_a_trace_that_is_gone_is_no_finding() -> None:
    recording = msgspec.structs.replace(
        steps(step_us=400.0, kernels=4, kernel_us=5.0), folder="/nowhere"
    )

    assert collect(Evidence(recording)) == ()


def test_a_cpu_run_has_no_device_to_wait() -> None:
    recording = steps(step_us=400.0, kernels=4, kernel_us=5.0)
    plan = msgspec.structs.replace(recording.header.plan, device="cpu")
    header = msgspec.structs.replace(recording.header, plan=plan)

    assert collect(Evidence(msgspec.structs.replace(recording, header=header))) == ()


def test_a_cuda_graph_is_proposed_on_a_condition() -> None:
    (event,) = collect(Evidence(steps(step_us=400.0, kernels=7, kernel_us=5.0, in_operators=0.9)))

    (found,) = diagnose((msgspec.structs.replace(event, against_graphs=SIZES_CHANGE),))

    assert (found.rule, found.fix, found.no_fix) == (DEVICE_IDLE.id, "", "")
    assert "Where sizes and numbers stay the same" in DEVICE_IDLE.remedy
