"""Of the time in which the GPU waits for its input only what is idle counts."""

from __future__ import annotations

import pytest

from kgprof.collectors.input_pipeline import PAGEABLE_COPY, SLOW_DATA_LOADER, collect, diagnose
from kgprof.model import Finding, Recording, Saving
from kgprof.reading.evidence import Evidence
from tests.collectors.written_device import launched_in, traced
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
    assert ("persistent_workers" in finding.fix) is not workers


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


def test_a_copy_from_pageable_memory_costs_its_time_and_what_is_idle_in_its_call() -> None:
    (finding,) = found(pageable_copy())

    assert (finding.rule, bound_us(finding)) == (PAGEABLE_COPY.id, 250.0)
    assert "pin_memory=True" in finding.fix


def test_a_copy_from_pinned_memory_is_none() -> None:
    copy = ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 200.0)

    assert (
        found(traced(launched_in(("cpu_op", "aten::copy_"), copy, span_us=250.0), step_us=None))
        == ()
    )
