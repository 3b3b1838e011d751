"""Which Python code of the program the GPU waits for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kgprof.collectors.time.host_code import HOST_CODE, collect, diagnose
from kgprof.model import (
    HostLine,
    KernelOrigin,
    KernelOrigins,
    Recording,
    Saving,
    SourceLine,
    SyncRecord,
    TracePass,
)
from kgprof.model.memory_records import Frame
from kgprof.reading.evidence import Evidence
from tests.collectors.written_device import STEPS
from tests.collectors.written_gpu_time import sampled


def waits_in(*lines: int) -> list[SyncRecord]:
    return [
        SyncRecord(
            source="dispatch",
            op="aten::_local_scalar_dense",
            device="cuda:0",
            frames=(Frame(file="/src/shop/model.py", line=line, function="jitter"),),
            calls={8: 1},
        )
        for line in lines
    ]


def test_the_function_is_named_at_its_longest_line_with_its_time_as_the_bound() -> None:
    (found,) = diagnose(collect(Evidence(sampled())))

    assert found.rule == HOST_CODE.id
    assert found.message == (
        "the GPU waits for Python code: jitter() takes 0.500 of 1.00 ms per traced step"
    )
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("/src/shop/model.py", 9)
    assert isinstance(found.saves, Saving)
    assert found.saves.us_per_step == pytest.approx(500.0)


def test_no_more_is_saved_than_the_gpu_is_idle() -> None:
    (found,) = diagnose(collect(Evidence(sampled(in_step_us=900.0))))

    assert isinstance(found.saves, Saving)
    assert found.saves.us_per_step == pytest.approx(700.0)  # of 800 us, 100 are work


def beside(function: str, in_step_us: float, file: str = "/src/shop/train.py") -> Recording:
    """Another function's samples beside those of jitter()."""
    recorded = sampled()
    (run,) = recorded.runs
    assert isinstance(run.trace, TracePass)
    assert run.trace.host_lines is not None
    at = SourceLine(file=file, line=3, function=function)
    rows = (*run.trace.host_lines.rows, HostLine(at=at, us=in_step_us * STEPS))
    lines = replace(run.trace.host_lines, rows=rows)
    trace = replace(run.trace, host_lines=lines)
    return replace(recorded, runs=(replace(run, trace=trace),))


def test_what_inductor_wrote_is_no_python_code_of_the_program() -> None:
    written = "/tmp/cache/5v/c5v2ec52yn637ovwyj3jexavnsdos7oct6pypebadq3wykm6y4qu.py"

    assert collect(Evidence(beside("Runner.call", 600.0, written))) == collect(Evidence(sampled()))


def test_what_the_gpu_may_have_waited_for_another_function_is_not_this_ones() -> None:
    (alone,) = collect(Evidence(sampled()))

    events = collect(Evidence(beside("other", 600.0)))

    waits_us = {event.function: event.waits_us for event in events}
    assert waits_us == {"jitter": alone.waits_us - 600.0, "other": alone.waits_us - 500.0}
    savings = [found.saves for found in diagnose(events)]
    assert [each.us_per_step for each in savings if isinstance(each, Saving)] == [
        pytest.approx(us) for us in waits_us.values()
    ]


def test_a_function_is_not_named_for_what_another_ones_time_explains() -> None:
    (other,) = diagnose(collect(Evidence(beside("other", 850.0))))

    assert "other()" in other.message


@pytest.mark.parametrize(
    ("function", "words"),
    [("<lambda>", "<lambda>()"), ("<module>", "the script's own level"), ("f.<locals>.g", "f.g()")],
)
def test_the_place_is_said_as_it_is_named(function: str, words: str) -> None:
    found = diagnose(collect(Evidence(beside(function, 300.0))))

    assert f"{words} takes 0.300 of 1.00 ms" in found[-1].message


@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param(sampled(in_step_us=100.0), id="a little code"),
        pytest.param(sampled(kernel_us=95.0), id="the GPU works meanwhile"),
        pytest.param(sampled(*waits_in(7, 9)), id="the CPU waits there"),
    ],
)
def test_code_that_the_gpu_does_not_wait_for_is_none(recorded: Recording) -> None:
    assert diagnose(collect(Evidence(recorded))) == ()


def with_operators(*lines: int) -> Recording:
    """The same, where torch dispatched an operator of each of these lines."""
    recorded = sampled()
    (run,) = recorded.runs
    places = [SourceLine(file="/src/shop/model.py", line=line, function="jitter") for line in lines]
    origins = tuple(
        KernelOrigin(compile_id="", kernel="torch.ops.aten.mul", number=number, lines=(place,))
        for number, place in enumerate(places)
    )
    run = replace(run, kernel_origins=KernelOrigins(origins=origins))
    return replace(recorded, runs=(run,))


def test_lines_of_operators_are_no_python_code() -> None:
    # given: 125 us in line 7, and 375 us in line 9
    (left,) = diagnose(collect(Evidence(with_operators(7))))

    assert "jitter() takes 0.375 of 1.00 ms" in left.message
    assert diagnose(collect(Evidence(with_operators(9)))) == ()
    assert collect(Evidence(with_operators(7, 9))) == ()


def test_python_that_only_the_profiler_makes_slow_is_nothing_to_wait_for() -> None:
    (event,) = collect(Evidence(sampled()))
    step_us = event.extent.step_us

    assert diagnose((replace(event, idle_us=0.3 * step_us),))
    assert diagnose((replace(event, idle_us=0.1 * step_us),)) == ()
