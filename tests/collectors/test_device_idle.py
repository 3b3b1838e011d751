"""Which step is said to wait for the host, and for what: the device's work of TRACE against the step of TIMING."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.collectors.device_idle import DEVICE_IDLE, LAUNCH_BOUND, collect, diagnose
from kgprof.model import Finding, FindingCost, Level, PassName, Recording
from kgprof.reading.evidence import Evidence
from tests.collectors.written_device import RUN, steps


def found(recording: Recording) -> tuple[Finding, ...]:
    return diagnose(collect(Evidence(recording)))


def test_the_host_that_does_other_things_than_launch_leaves_the_device_idle() -> None:
    # given: four kernels of 5 us in a step of 400 us
    (finding,) = found(steps(step_us=400.0, kernels=4, kernel_us=5.0))

    assert (finding.rule, finding.level, finding.run) == (DEVICE_IDLE.id, Level.WARNING, RUN)
    assert finding.message == ("the GPU is idle 95 % of each step (20 of 400 µs busy, 4 launches, one every 100 µs)")
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
    (finding,) = found(steps(step_us=400.0, kernels=40, kernel_us=2.0))

    assert (finding.rule, finding.level) == (LAUNCH_BOUND.id, Level.WARNING)
    assert finding.message == ("the GPU is idle 80 % of each step (80 of 400 µs busy, 40 launches, one every 10.0 µs)")


def test_in_mode_eager_launching_is_what_is_expected_and_a_note() -> None:
    (finding,) = found(steps(step_us=400.0, kernels=40, kernel_us=2.0, mode="eager"))

    assert (finding.rule, finding.level) == (LAUNCH_BOUND.id, Level.NOTE)


@pytest.mark.parametrize(
    ("step_us", "kernel_us", "launches", "rules"),
    [
        pytest.param(100.0, 20.0, 4, [], id="four fifths busy"),
        pytest.param(160.0, 20.0, 4, [DEVICE_IDLE.id], id="half idle"),
        pytest.param(159.0, 20.0, 4, [], id="a little less than half"),
        pytest.param(100.0, 5.0, 4, [LAUNCH_BOUND.id], id="25 us for each launch"),
        pytest.param(100.4, 5.0, 4, [DEVICE_IDLE.id], id="a little more"),
        pytest.param(80.0, 5.0, 0, [DEVICE_IDLE.id], id="no launch at all"),
    ],
)
def test_where_the_lines_are(step_us: float, kernel_us: float, launches: int, rules: list[str]) -> None:
    recording = steps(step_us=step_us, kernels=4, kernel_us=kernel_us, launches=launches)

    assert [finding.rule for finding in found(recording)] == rules


def test_a_step_that_only_the_profiler_makes_long_is_no_finding() -> None:
    # given: 20 us of work in a step that takes 25 us bare, and 1000 us under the profiler
    assert found(steps(step_us=25.0, kernels=4, kernel_us=5.0)) == ()


def test_without_timing_nothing_is_said() -> None:
    assert collect(Evidence(steps(step_us=None, kernels=4, kernel_us=5.0))) == ()


def test_a_trace_that_is_gone_is_no_finding() -> None:
    recording = msgspec.structs.replace(steps(step_us=400.0, kernels=4, kernel_us=5.0), folder="/nowhere")

    assert collect(Evidence(recording)) == ()


def test_a_cpu_run_has_no_device_to_wait() -> None:
    recording = steps(step_us=400.0, kernels=4, kernel_us=5.0)
    plan = msgspec.structs.replace(recording.header.plan, device="cpu")
    header = msgspec.structs.replace(recording.header, plan=plan)

    assert collect(Evidence(msgspec.structs.replace(recording, header=header))) == ()
