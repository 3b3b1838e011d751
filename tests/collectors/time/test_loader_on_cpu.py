"""What a step on a CPU spends in next() of its DataLoader is told with its share of the step."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kgprof.collectors.time.loader_on_cpu import LOADER_ON_CPU, collect, diagnose
from kgprof.collectors.trust.witnesses import looked_for
from kgprof.model import MEAN_STEP, Finding, FindingCost, Recording, Saving, Skipped
from kgprof.reading.evidence import Evidence
from tests.collectors.written_gpu_time import loaded_on_a_cpu


def found(recording: Recording) -> tuple[Finding, ...]:
    return diagnose(collect(Evidence(recording)))


def test_a_loader_that_takes_half_of_the_step_is_told_with_what_it_takes() -> None:
    (finding,) = found(loaded_on_a_cpu(0.5))

    assert finding.message == (
        "next() of the DataLoader, without worker processes, takes 50 % of the step: "
        "0.500 of 1.00 ms (medians of 20 steps)"
    )
    assert "or try num_workers" in finding.no_fix
    assert isinstance(finding.cost, FindingCost)
    assert (finding.cost.value, finding.cost.unit) == (500.0, "us/step")


def test_a_loader_with_workers_is_not_told_to_have_some() -> None:
    (finding,) = found(loaded_on_a_cpu(0.5, workers=2))

    assert "the DataLoader, with 2 worker processes, takes" in finding.message
    assert "num_workers" not in finding.no_fix


def test_a_loader_that_takes_little_of_the_step_is_none() -> None:
    assert found(loaded_on_a_cpu(0.1)) == ()


def waiting_now_and_then(*waits_us: float) -> Recording:
    """In 20 steps of 1,000 us."""
    recording = loaded_on_a_cpu(0.5)
    (run,) = recording.runs
    assert not isinstance(run.timing, Skipped)
    loader_us = (*(0.0,) * (20 - len(waits_us)), *waits_us)
    return replace(recording, runs=(replace(run, timing=replace(run.timing, loader_us=loader_us)),))


def test_a_loader_that_some_steps_wait_for_is_told_with_its_share_of_all() -> None:
    (finding,) = found(waiting_now_and_then(*(900.0,) * 8))

    assert finding.message == (
        "next() of the DataLoader, without worker processes, takes 36 % of the time of all steps: "
        "0.360 of 1.00 ms (means of 20 steps)"
    )
    assert isinstance(finding.cost, FindingCost)
    assert finding.cost.value == 360.0
    assert isinstance(finding.saves, Saving)
    assert finding.saves.per == MEAN_STEP


@pytest.mark.parametrize("waits_us", [(900.0,), (900.0,) * 3, (9000.0, 900.0)])
def test_one_long_wait_or_a_few_short_ones_are_no_slow_loader(waits_us: tuple[float, ...]) -> None:
    assert found(waiting_now_and_then(*waits_us)) == ()


def test_a_run_on_a_gpu_has_rules_of_its_own() -> None:
    recording = loaded_on_a_cpu(0.5)
    header = replace(recording.header, plan=replace(recording.header.plan, device="cuda"))

    assert found(replace(recording, header=header)) == ()


def test_where_no_clock_ran_nobody_looked() -> None:
    recording = loaded_on_a_cpu(0.5)
    (run,) = recording.runs
    assert not isinstance(run.timing, Skipped)
    without = replace(run, timing=replace(run.timing, loader_us=()))
    (evidence,) = Evidence(replace(recording, runs=(without,))).runs

    answer = looked_for(LOADER_ON_CPU, evidence)

    assert answer == Skipped("next() of DataLoaders is timed in the steps of scripts only")
