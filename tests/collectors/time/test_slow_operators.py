"""Which operator of torch the GPU waits for while the CPU works in it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kgprof.collectors.time.slow_operators import SLOW_OPERATOR, collect, diagnose
from kgprof.model import (
    Finding,
    HostLine,
    HostLines,
    PassName,
    Recording,
    Saving,
    Skipped,
    SourceLine,
    TracePass,
)
from kgprof.reading.evidence import Evidence
from tests.collectors.written_gpu_time import slow_operator


def found(recording: Recording) -> tuple[Finding, ...]:
    return diagnose(collect(Evidence(recording)))


def test_the_operator_is_named_with_its_time_and_its_line() -> None:
    # given: 797 of 1,000 us before the one launch of the operator, in all steps but the first
    (finding,) = found(slow_operator(lines=(7,)))

    assert finding.rule == SLOW_OPERATOR.id
    assert finding.message == (
        "the GPU waits for aten::attend on the CPU: 0.598 of 1.00 ms per traced step, 0.598 ms "
        "per launch"
    )
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("/src/shop/model.py", 7)
    assert isinstance(finding.saves, Saving)
    assert finding.saves.us_per_step == pytest.approx(598.425)


def test_an_operator_that_launches_nothing_has_no_time_per_launch_but_a_line_and_a_fix() -> None:
    # given: a kernel beside it, and a line in which all but 200 of the 4,000 us were sampled
    recorded = slow_operator(launches=0, beside=True)
    (run,) = recorded.runs
    assert isinstance(run.trace, TracePass)
    row = HostLine(at=SourceLine(file="/src/shop/model.py", line=9, function="step"), us=3_800.0)
    trace = replace(run.trace, host_lines=HostLines(rows=(row,)))

    (finding,) = found(replace(recorded, runs=(replace(run, trace=trace),)))

    assert finding.message == (
        "the GPU waits for aten::attend on the CPU: 0.600 of 1.00 ms per traced step; it launches "
        "nothing"
    )
    assert finding.fix == ""
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("/src/shop/model.py", 9)


def test_a_line_that_need_not_hold_the_operator_is_not_named() -> None:
    (finding,) = found(slow_operator(launches=0, beside=True))

    assert finding.location is None


def test_forward_and_backward_are_one_operator() -> None:
    (finding,) = found(slow_operator("aten::attend_forward", "aten::attend_backward"))

    assert "aten::attend_backward and aten::attend_forward on the CPU" in finding.message


@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param(slow_operator("aten::attend", "aten::mm", "aten::add"), id="in turn"),
        pytest.param(slow_operator(launches=8), id="it launches"),
        pytest.param(slow_operator(operator_us=180.0), id="a small part of the step"),
        pytest.param(slow_operator(step_us=0.12), id="busy without the profiler"),
        pytest.param(slow_operator(operator_us=10.0, second_us=9_000.0), id="in one step"),
    ],
)
def test_an_operator_that_launches_is_none(recorded: Recording) -> None:
    assert found(recorded) == ()


def test_without_timing_nothing_is_said_to_be_saved() -> None:
    (finding,) = found(slow_operator(step_us=None))

    assert isinstance(finding.saves, Skipped)
    assert PassName.TRACE in finding.cost.measured_in  # type: ignore[union-attr]


def test_kernels_of_two_lines_have_no_place() -> None:
    (event,) = collect(Evidence(slow_operator()))

    assert event.location is None
    assert diagnose((replace(event, launches=event.launches * 4),)) == ()
