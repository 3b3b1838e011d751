"""Medians, spreads and ratios, against numpy and by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgprof.analysis import analyse
from kgprof.measures import times
from kgprof.model import (
    CompilePass,
    MemoryPass,
    ObserverCost,
    PassName,
    RunKey,
    RunRecord,
    Skipped,
    Speedup,
    Spread,
    TimingPass,
)
from kgprof.model.compile_records import CompiledCalls, CompileRecords
from tests.analysis.recordings import EAGER, FUSED, GONE, died, evaluation, recording, run
from tests.collectors.written import STEP, called


@given(st.lists(st.floats(0.001, 1e9), min_size=1, max_size=50))
def test_percentiles_are_numpys(samples: list[float]) -> None:
    found = times.spread(samples, unit="us", measured_in=PassName.TIMING)

    assert isinstance(found, Spread)
    expected = np.percentile(samples, [0, 10, 50, 90, 100])
    assert [found.minimum, found.p10, found.median, found.p90, found.maximum] == pytest.approx(
        expected
    )
    assert found.samples == len(samples)


def test_no_sample_is_not_zero() -> None:
    found = times.spread([], unit="us", measured_in=PassName.TIMING)

    assert found == Skipped(reason="TIMING has no sample")


def test_step_time_is_over_the_steps_of_all_evaluations() -> None:
    timing = TimingPass(clock="perf_counter", step_us=((1.0, 2.0), (3.0,)), evaluation_s=(0.1, 0.2))

    found = times.step_time(timing)

    assert isinstance(found, Spread)
    assert (found.median, found.samples, found.unit, found.measured_in) == (
        2.0,
        3,
        "us",
        PassName.TIMING,
    )


def test_candidate_time_is_the_evaluation_over_its_candidates() -> None:
    found = times.unit_time(run(EAGER, evaluation_s=0.5))

    assert isinstance(found, Spread)
    assert (found.median, found.samples, found.unit) == (pytest.approx(5.0), 3, "ms/candidate")


def test_candidate_time_is_not_given_for_unfinished_work() -> None:
    found = times.unit_time(run(EAGER, unfinished=7))

    assert found == Skipped(reason="7 of 100 candidates are unfinished")


def test_candidate_time_says_what_is_missing() -> None:
    empty = msgspec.structs.replace(evaluation(), units=0, tallies=())

    def of(**changes: object) -> Spread | Skipped:
        return times.unit_time(msgspec.structs.replace(run(EAGER), **changes))

    assert of(timing=GONE) == GONE
    assert of(evaluation=GONE) == GONE
    assert of(evaluation=empty) == Skipped(reason="the evaluation has no candidate")


def speedup(of: RunRecord, baseline: RunRecord | None) -> Speedup | Skipped:
    """What the report says of a run."""
    runs = [of] if baseline in (None, of) else [baseline, of]
    profile = analyse(recording(*runs, baseline=baseline.key if baseline else None))
    return profile.runs[-1].speedup


def test_speedup_is_on_whole_evaluations_where_both_have_one() -> None:
    found = speedup(run(FUSED, evaluation_s=0.2, step_us=900.0), run(EAGER, evaluation_s=0.5))

    assert isinstance(found, Speedup)
    assert (found.ratio, found.basis) == (pytest.approx(2.5), "whole evaluation")
    assert (found.low, found.high) == (pytest.approx(0.45 / 0.22), pytest.approx(0.55 / 0.18))


def test_speedup_is_on_the_step_where_there_are_no_evaluations() -> None:
    runs = [
        run(key, step_us=us, evaluation_s=None, unfinished=None)
        for key, us in ((FUSED, 250.0), (EAGER, 1000.0))
    ]

    found = speedup(*runs)

    # then: the range is of p10 and p90, so that one slow step does not widen it
    assert isinstance(found, Speedup)
    assert (found.ratio, found.basis) == (pytest.approx(4.0), "step")
    assert (found.low, found.high) == (
        pytest.approx(4 * 0.92 / 1.08),
        pytest.approx(4 * 1.08 / 0.92),
    )


def test_steps_of_one_strategy_are_the_same_work() -> None:
    compiled = RunKey(strategy=EAGER.strategy, mode="default")

    found = speedup(run(compiled, step_us=250.0, unfinished=7), run(EAGER, step_us=1000.0))

    assert isinstance(found, Speedup)
    assert (found.ratio, found.basis) == (pytest.approx(4.0), "step")


def test_steps_of_two_strategies_of_an_evaluation_have_no_ratio() -> None:
    found = speedup(run(FUSED, step_us=250.0, unfinished=7), run(EAGER, step_us=1000.0))

    assert found == Skipped(
        reason="there is no evaluation to compare, and strategies differ in work per step"
    )


def test_speedup_of_what_was_measured_once_has_no_range() -> None:
    eager = run(EAGER, evaluation_s=0.5)
    assert isinstance(eager.timing, TimingPass)
    once = msgspec.structs.replace(
        eager, timing=msgspec.structs.replace(eager.timing, evaluation_s=(0.5,))
    )

    found = speedup(run(FUSED, evaluation_s=0.2), once)

    gone = Skipped(reason="1 sample")
    assert found == Speedup(ratio=pytest.approx(2.5), low=gone, high=gone, basis="whole evaluation")


def test_speedup_of_evaluations_needs_no_step() -> None:
    def stepless(key: RunKey, seconds: float) -> RunRecord:
        timing = TimingPass(clock="perf_counter", step_us=((), ()), evaluation_s=(seconds, seconds))
        return msgspec.structs.replace(run(key), timing=timing)

    found = speedup(stepless(FUSED, 0.2), stepless(EAGER, 0.5))

    assert isinstance(found, Speedup)
    assert (found.ratio, found.basis, found.verdict) == (
        pytest.approx(2.5),
        "whole evaluation",
        "faster",
    )


def test_speedup_says_why_there_is_none() -> None:
    baseline = run(EAGER)
    lost = died(EAGER)

    assert speedup(baseline, baseline) == Skipped(reason="this run is the baseline")
    assert speedup(run(FUSED), None) == Skipped(
        reason="no run is declared as the baseline; --mode default --mode eager compares with eager"
    )
    assert speedup(died(FUSED), baseline) == died(FUSED).timing
    assert speedup(run(FUSED), lost) == Skipped(
        reason="the baseline has no time: the run was killed during timing: SIGKILL"
    )


def test_a_clock_that_shows_zero_gives_no_ratio() -> None:
    found = speedup(
        run(FUSED, step_us=0.0, evaluation_s=None, unfinished=None),
        run(EAGER, evaluation_s=None, unfinished=None),
    )

    assert found == Skipped(reason="a measured time is zero, so there is no ratio")


def test_what_most_steps_have_not_alike_is_known_where_it_was_counted() -> None:
    timed = run(EAGER, step_us=1000.0)
    assert isinstance(timed.compile, CompilePass)
    counted = {call: 15 if call % 2 else 1 for call in range(timed.compile.made)}
    calls = CompiledCalls(callables=(called(STEP, calls=counted),))
    some = msgspec.structs.replace(timed, records=CompileRecords(compiled_calls=calls))
    waits = TimingPass(
        clock="perf_counter",
        step_us=((1e3, 9e3, 1e3, 9e3),),
        evaluation_s=(),
        loader_us=(10.0, 8e3, 10.0, 8e3),
    )

    assert times.unlike_steps(some) == (
        "most of its steps that were counted call compiled functions 1 to 15 times"
    )
    assert times.unlike_steps(msgspec.structs.replace(some, timing=waits)) == (
        "its steps wait for a DataLoader, 0.0100 to 8.00 ms"
    )
    alike = CompiledCalls(callables=(called(STEP, calls=dict.fromkeys(counted, 2)),))
    level = msgspec.structs.replace(timed, records=CompileRecords(compiled_calls=alike))
    assert times.unlike_steps(level) == ""
    assert isinstance(times.unlike_steps(timed), Skipped)


def test_observer_costs_are_medians_over_the_bare_median() -> None:
    assert times.observer_costs(run(EAGER, step_us=1000.0)) == (
        ObserverCost(observer=PassName.COMPILE, ratio=1.0, samples=3),
        ObserverCost(observer=PassName.HOST, ratio=1.5, samples=3),
    )


def test_the_probes_cost_is_that_of_the_steady_calls() -> None:
    gone = Skipped(reason="not asked for")
    memory = MemoryPass(
        step_us=(90_000.0, 1500.0, 1700.0, 1600.0),
        steady_from=1,
        syncs=gone,
        tensors=gone,
        peaks=gone,
    )
    watched = msgspec.structs.replace(run(EAGER, step_us=1000.0), memory=memory)

    assert times.observer_costs(watched)[-1] == ObserverCost(
        observer=PassName.MEMORY, ratio=1.6, samples=3
    )


def test_observer_costs_without_a_bare_time_are_not_one() -> None:
    lost = msgspec.structs.replace(run(EAGER), timing=GONE)

    assert {cost.ratio for cost in times.observer_costs(lost)} == {
        Skipped(reason="TIMING has no step to compare with: not in this Recording")
    }
