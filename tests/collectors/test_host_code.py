"""Which Python code of the program the GPU waits for."""

from __future__ import annotations

import pytest

from kgprof.collectors.host_code import HOST_CODE, collect, diagnose
from kgprof.model import Recording, Saving, SyncRecord
from kgprof.model.memory_records import Frame
from kgprof.reading.evidence import Evidence
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
