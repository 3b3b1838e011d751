"""Of the time in which the GPU waits for its input only what is idle counts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kgprof.analysis import analyse
from kgprof.collectors.time.device_idle import DEVICE_IDLE
from kgprof.collectors.time.input_pipeline import (
    ON_THE_GPU,
    ONCE_AN_EPOCH,
    PAGEABLE_COPY,
    SLOW_DATA_LOADER,
    collect,
    diagnose,
)
from kgprof.model import (
    MEAN_STEP,
    Finding,
    FindingCost,
    LimitKind,
    Recording,
    RunLimits,
    Saving,
    TimingPass,
)
from kgprof.reading.evidence import Evidence
from tests.collectors import written
from tests.collectors.written_device import STEPS, TRACED_US, launched_in, traced, unlike_steps
from tests.collectors.written_gpu_time import pageable_copy, slow_loader


def found(recording: Recording) -> tuple[Finding, ...]:
    return diagnose(collect(Evidence(recording)))


def bound_us(finding: Finding) -> float:
    assert isinstance(finding.saves, Saving)
    return round(finding.saves.us_per_step, 6)


@pytest.mark.parametrize("workers", [False, True])
def test_the_loader_costs_the_gpus_idle_time(workers: bool) -> None:
    (finding,) = found(slow_loader(workers=workers))

    assert (finding.rule, bound_us(finding)) == (SLOW_DATA_LOADER.id, 300.0)
    assert "30 % of the traced step, " in finding.message  # there is no TIMING
    assert ("persistent_workers" in finding.fix) is not workers


def test_a_loader_whose_items_are_made_on_the_gpu_gets_no_workers() -> None:
    (finding,) = found(slow_loader(launches=True))

    assert (finding.fix, finding.no_fix) == ("", ON_THE_GPU)


def test_a_loader_that_is_hidden_behind_work_costs_nothing() -> None:
    span = ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")

    assert (
        found(traced(launched_in(span, ("kernel", "k", 400.0), span_us=300.0), step_us=None)) == ()
    )


def test_the_profilers_slower_host_is_scaled_to_the_step_that_was_timed() -> None:
    # given: 900 us of a traced step without work on the GPU, 300 of them in the loader; 300 of a
    # timed one
    span = ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    events = launched_in(span, ("kernel", "k", 100.0), span_us=300.0, late_us=300.0)

    (finding,) = found(traced(events, step_us=400.0))

    assert bound_us(finding) == 100.0


def with_a_clock(loader_us: float, *, late_us: float = 300.0) -> Recording:
    """400 us a step in TIMING, and so much of it in ``next()``; in TRACE 900 of 1,000 us without
    work on the GPU, 300 of them in the loader."""
    span = ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    events = launched_in(span, ("kernel", "k", 100.0), span_us=300.0, late_us=late_us)
    recording = traced(events, step_us=400.0)
    (run,) = recording.runs
    assert isinstance(run.timing, TimingPass)
    timing = replace(run.timing, loader_us=(loader_us,) * len(run.timing.every_us))
    return replace(recording, runs=(replace(run, timing=timing),))


@pytest.mark.parametrize(
    ("loader_us", "late_us", "waits_us"),
    [
        (250.0, 300.0, 250.0),
        (350.0, 300.0, 300.0),  # no more than the idle time
        (210.0, 200.0, 140.0),  # the GPU works in a third of it
    ],
)
def test_what_next_took_without_the_profiler_is_what_the_loader_takes(
    loader_us: float, late_us: float, waits_us: float
) -> None:
    (finding,) = found(with_a_clock(loader_us, late_us=late_us))

    assert bound_us(finding) == waits_us


def bursting(waits_us: tuple[float, ...], step_us: tuple[float, ...], *work_us: float) -> Recording:
    """Steps with so much GPU work in TRACE; so long ones in TIMING, and so much of them in
    ``next()``, by workers whose batches are at hand in the traced steps."""
    recording = traced(unlike_steps(*work_us), step_us=400.0)
    (run,) = recording.runs
    assert isinstance(run.timing, TimingPass)
    timing = replace(run.timing, step_us=(step_us,), loader_us=waits_us, loader_workers=8)
    return replace(recording, runs=(replace(run, timing=timing),))


@pytest.mark.parametrize(
    "work_us",
    [
        (40.0, 40.0, 40.0, 200.0),  # unlike each other
        (40.0, 40.0, 40.0, 40.0),
    ],
)
def test_workers_that_bring_batches_in_bursts_are_told_with_their_share_of_all_steps(
    work_us: tuple[float, ...],
) -> None:
    # given: 8 of 100 steps wait for 5,000 us, and the median one for nothing
    recording = bursting((0.0,) * 92 + (5000.0,) * 8, (400.0,) * 92 + (5400.0,) * 8, *work_us)

    (finding,) = (one for one in found(recording) if one.rule == SLOW_DATA_LOADER.id)

    assert finding.message == (
        "the GPU waits for the DataLoader: next() takes 50 % of the time of all 100 steps"
    )
    assert finding.fix == ""  # of a loader with workers
    assert bound_us(finding) == 400.0
    assert isinstance(finding.saves, Saving)
    assert finding.saves.per == MEAN_STEP  # no share of the median step, which is 400 us as well
    assert isinstance(finding.cost, FindingCost)
    assert finding.cost.value == pytest.approx(400.0 - max(work_us))


@pytest.mark.parametrize(
    ("waits_us", "work_us"),
    [
        ((0.0,) * 99 + (40000.0,), 40.0),  # the start of the workers
        ((0.0,) * 92 + (5000.0,) * 8, 395.0),  # may lie below the GPU's work
        ((0.0,) * 92 + (300.0,) * 8, 40.0),  # little
    ],
)
def test_one_long_wait_and_what_work_may_hide_are_no_slow_loader(
    waits_us: tuple[float, ...], work_us: float
) -> None:
    step_us = tuple(400.0 + us for us in waits_us)

    rules = [one.rule for one in found(bursting(waits_us, step_us, *(work_us,) * 4))]

    assert SLOW_DATA_LOADER.id not in rules


def test_the_loader_has_one_figure_in_all_that_is_said_of_it() -> None:
    profile = analyse(with_a_clock(250.0))
    (run,) = profile.runs
    idle = next(one for one in profile.findings if one.rule == DEVICE_IDLE.id)
    (loader,) = (one for one in profile.findings if one.rule == SLOW_DATA_LOADER.id)

    assert isinstance(run.limits, RunLimits)
    assert run.limits.leading is not None
    assert (run.limits.leading.limit, run.limits.leading.us) == (LimitKind.INPUT, 250.0)
    assert bound_us(loader) == 250.0
    assert "83 % of that in DataLoader" in idle.message  # 250 of 300


def test_a_copy_from_pageable_memory_costs_its_time_and_what_is_idle_in_its_call() -> None:
    (finding,) = found(pageable_copy())

    assert (finding.rule, bound_us(finding)) == (PAGEABLE_COPY.id, 250.0)
    assert finding.fix == ""  # which tensor it is, TRACE does not say


def test_a_copy_from_pinned_memory_is_none() -> None:
    copy = ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 200.0)

    assert (
        found(traced(launched_in(("cpu_op", "aten::copy_"), copy, span_us=250.0), step_us=None))
        == ()
    )


def with_loader_calls(
    *calls: tuple[tuple[float, float], ...],
    workers: bool = False,
    text: str = "",
    seeds: int = 1,
    drawn_by: str = "",
) -> Recording:
    """In the n-th step calls of next() at these microseconds, of these durations, each behind the
    seeds of iterators unless it is the first of its step; and 100 us of GPU work at the end.
    ``drawn_by``: the operator that draws them, which is a number of the program's then."""
    kind = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
    base = {"ph": "X", "pid": 1, "tid": 1}
    events = list(launched_in(("cpu_op", "aten::mm"), ("kernel", "k", 100.0), late_us=890.0))
    for step, its in enumerate(calls):
        for number, (at, us) in enumerate(its):
            start = step * TRACED_US + at
            name = f"enumerate(DataLoader)#{kind}.__next__"
            called = {"cat": "user_annotation", "name": name, "ts": start, "dur": us}
            drawn = {"cat": "cpu_op", "name": "aten::random_", "ts": start - 1, "dur": 0.5}
            events += [{**base, **each} for each in (called, *(drawn,) * seeds * bool(number))]
            if drawn_by:
                events.append({**base, **drawn, "name": drawn_by, "ts": start - 2, "dur": 1.8})
    recording = traced(events, step_us=None)
    (run,) = recording.runs
    return replace(recording, runs=(replace(run, records=written.records(program=text)),))


ONE, NEXT = ((110.0, 30.0),), ((110.0, 30.0), (200.0, 500.0))


@pytest.mark.parametrize(
    ("calls", "workers", "text", "fix"),
    [
        ((NEXT,) * STEPS, False, "", ""),
        ((NEXT,) * STEPS, True, "", ""),
        ((NEXT, *(ONE,) * (STEPS - 1)), True, "", "DataLoader(..., persistent_workers=True)"),
        ((NEXT, *(ONE,) * (STEPS - 1)), True, "persistent_workers=True", ""),
        (
            (NEXT[1:],) * STEPS,
            True,
            "persistent_workers=True",
            "",
        ),
        (
            (NEXT[1:],) * STEPS,
            False,
            "pin_memory=True",
            "DataLoader(..., num_workers=4, persistent_workers=True)",
        ),
    ],
)
def test_what_helps_a_loader_follows_from_where_it_waits_and_what_it_has(
    calls: tuple[tuple[tuple[float, float], ...], ...], workers: bool, text: str, fix: str
) -> None:
    (finding,) = found(with_loader_calls(*calls, workers=workers, text=text))

    assert (finding.rule, finding.fix) == (SLOW_DATA_LOADER.id, fix)
    assert (finding.no_fix == ONCE_AN_EPOCH) is (not fix and NEXT in calls)


def test_a_number_that_the_program_draws_between_two_batches_begins_no_epoch() -> None:
    """As a compiled dropout does in each step."""
    (finding,) = found(with_loader_calls(*(NEXT,) * STEPS, drawn_by="aten::randint"))

    assert finding.no_fix == ""
    assert finding.fix.startswith("DataLoader(..., num_workers=4")


def test_two_loaders_in_each_step_are_no_epochs_of_one_batch() -> None:
    (finding,) = found(with_loader_calls(*(NEXT,) * STEPS, seeds=0))

    assert finding.fix == "DataLoader(..., num_workers=4, persistent_workers=True, pin_memory=True)"


def test_a_wait_in_the_middle_of_an_epoch_is_no_epochs_beginning() -> None:
    """Of one traced step: too few calls for code, and none of them made an iterator."""
    first = next(iter(found(with_loader_calls(NEXT[1:], *((),) * (STEPS - 1)))))

    assert (first.fix, first.no_fix) == ("", "")
