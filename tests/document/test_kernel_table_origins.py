"""Source lines of kernels, causes of idle time, and device time by region and span."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.document.kernel_table import (
    device_folds,
    idle_sentence,
    input_copies_sentence,
    kernel_table,
    known_lines,
    place,
    places,
    sentences,
    steps_sentence,
)
from kgprof.model import (
    DeviceIdle,
    HostSpan,
    HostTime,
    InputCopies,
    KernelBreakdown,
    LaunchQueue,
    Location,
    Profile,
    RunReport,
    Skipped,
    SpanTotal,
    StepPart,
)
from kgprof.render import by_name
from kgprof.render.html import LEVELS
from tests.render import profiles
from tests.render.tables import notes, small, tables, texts

LIMITS = LEVELS[0]


def with_known_times() -> KernelBreakdown:
    """Ten steps, a window of 1000 us, of which the device was idle for 400."""
    kernels = profiles.cuda().runs[1].kernels
    assert isinstance(kernels, KernelBreakdown)
    return msgspec.structs.replace(
        kernels,
        steps=10,
        window_us=1000.0,
        total_us=600.0,
        lines_us=450.0,
        idle=DeviceIdle(
            total_us=400.0,
            host_us=200.0,
            launch_us=100.0,
            unknown_us=60.0,
            edges_us=40.0,
            gaps=7,
            host_spans=(
                HostSpan(name="small", total_us=50.0),
                HostSpan(name="large", total_us=150.0),
            ),
        ),
        by_region=(
            SpanTotal(span="0/0", count=3, total_us=150.0),
            SpanTotal(span="1/0", count=5, total_us=300.0),
            SpanTotal(span="(unattributed)", count=2, total_us=150.0),
        ),
        by_span=(SpanTotal(span="(unattributed)", count=10, total_us=600.0),),
    )


def run_of(kernels: KernelBreakdown) -> RunReport:
    return msgspec.structs.replace(profiles.cuda().runs[1], kernels=kernels)


def test_idle_time_is_split_by_cause_per_step_and_of_the_window() -> None:
    (fold,) = device_folds((run_of(with_known_times()),), LIMITS)
    causes, host, _ = tables(fold.blocks)

    assert texts(causes) == (
        ("waiting for the CPU", "20.0", "20.0 %", ""),
        ("launch latency", "10.0", "10.0 %", ""),
        ("unknown", "6.00", "6.0 %", ""),
        ("before the first / after the last", "4.00", "4.0 %", ""),
        ("all idle time", "40.0", "40.0 %", ""),
    )
    # then: bars on one scale, which its column says
    assert (
        causes.columns[-1].name
        == host.columns[-1].name
        == "0\N{EN DASH}20.0 \N{MICRO SIGN}s per step"
    )
    assert [row.cells[-1].bar for row in causes.rows] == [1.0, 0.5, 0.3, 0.2, None]
    assert [row.cells[-1].bar for row in host.rows] == [0.75, 0.25]
    assert (
        causes.rows[1].cells[-1].title
        == "launch latency: 10.0 \N{MICRO SIGN}s per step, 10.0 % of the window"
    )
    assert [bool(small(row.cells[0])) for row in causes.rows] == [True, True, True, True, False]
    assert texts(host) == (("large", "15.0", "15.0 %", ""), ("small", "5.00", "5.0 %", ""))


def test_regions_stand_largest_first_with_the_unattributed_last_and_a_table_of_nothing_is_left_out() -> (  # noqa: E501
    None
):
    (fold,) = device_folds((run_of(with_known_times()),), LIMITS)

    *_, regions = tables(fold.blocks)
    assert regions.columns[0].name == "compiled region"
    assert texts(regions) == (
        ("1/0", "0.500", "30.0", "50.0 %"),
        ("0/0", "0.300", "15.0", "25.0 %"),
        ("(in no compiled region)", "0.200", "15.0", "25.0 %"),
    )


def test_device_time_by_step_is_said_with_the_numbers_of_the_steps() -> None:
    steps = tuple(
        SpanTotal(span=f"ProfilerStep#{n}", count=1, total_us=us)
        for n, us in ((3, 20.0), (4, 50.0), (5, 30.0))
    )
    nowhere = SpanTotal(span="(unattributed)", count=1, total_us=900.0)
    kernels = msgspec.structs.replace(with_known_times(), by_step=(*steps, nowhere))

    (by_step,) = steps_sentence(kernels)
    assert by_step == (
        "GPU time by the step that launched it, 3 steps: least 20.0 µs (ProfilerStep#3), median "
        "30.0 µs (ProfilerStep#5), most 50.0 µs (ProfilerStep#4)"
    )
    assert [*steps_sentence(msgspec.structs.replace(kernels, by_step=(nowhere,)))] == []


def test_why_the_idle_time_is_not_known_is_said() -> None:
    kernels = msgspec.structs.replace(
        with_known_times(), idle=Skipped(reason="no launch in the trace")
    )

    (fold,) = device_folds((run_of(kernels),), LIMITS)

    assert fold.blocks[0] == "Reasons for GPU idle time unknown: no launch in the trace"
    assert [table.columns[0].name for table in tables(fold.blocks)] == ["compiled region"]
    assert idle_sentence(kernels) == "reasons for GPU idle time unknown: no launch in the trace"


@pytest.mark.parametrize("name", ["html", "markdown", "text"])
def test_a_cpu_run_has_no_word_of_a_waiting_device(name: str) -> None:
    assert list(device_folds(profiles.clean().runs, LIMITS)) == []
    assert "waiting for the CPU" not in by_name(name).render(profiles.clean())
    assert "waiting for the CPU" in by_name(name).render(profiles.cuda())


def test_the_share_of_time_with_known_lines_or_why_there_is_none() -> None:
    kernels = with_known_times()

    assert known_lines(kernels) == "75.0 % of the GPU time comes from known source lines"
    missing = msgspec.structs.replace(kernels, lines_us=Skipped(reason="not recorded"))
    assert known_lines(missing) == "No source lines: not recorded"


def test_a_line_is_named_relative_to_the_root_and_the_others_are_counted() -> None:
    line = Location(file="/src/a/step.py", line=4, function="derive")

    assert place(line, "/src") == "a/step.py:4 in derive"
    assert places((), "/src") == []
    assert places((line,), "/src") == ["a/step.py:4 in derive"]
    run = profiles.cuda().runs[1]
    assert isinstance(run.kernels, KernelBreakdown)
    rows = (msgspec.structs.replace(run.kernels.rows[0], lines=(line,) * 40, ops=()),)
    table = kernel_table(
        run, msgspec.structs.replace(run.kernels, rows=rows), "/src", LIMITS.kernel_rows
    )
    assert [part.fold for part in table.rows[0].cells[1].below][:2] == ["", "and 39 more lines"]


def test_copies_before_replays_are_told_with_their_share() -> None:
    copied = InputCopies(replays=300, count=300, total_us=11_730.0, share=0.097)
    kernels = msgspec.structs.replace(with_known_times(), input_copies=copied)

    (fold,) = device_folds((run_of(kernels),), LIMITS)

    assert (
        "Inputs copied because their address changes between CUDA-graph replays: 300 copies of "
        "39.1 µs each on average before 300 launches, 1,173 µs per step, 9.7 % of the GPU time."
    ) in notes(fold.blocks)
    for name in ("text", "markdown", "html"):
        said = " ".join(by_name(name).render(one_run(kernels)).split())
        assert "300 copies of 39.1 µs each on average before 300 launches" in said


def one_run(kernels: KernelBreakdown) -> Profile:
    return msgspec.structs.replace(profiles.cuda(), runs=(run_of(kernels),))


def test_without_graphs_nothing_is_said_of_their_copies() -> None:
    assert [*input_copies_sentence(with_known_times())] == []


def test_the_hosts_step_and_the_queue_are_a_line_each() -> None:
    part = StepPart(
        name="operators", mean_us=60.0, median_us=60.0, minimum_us=60.0, maximum_us=60.0, calls=3.0
    )
    small = [msgspec.structs.replace(part, name=f"part {i}", mean_us=10.0 - i) for i in range(5)]
    queue = LaunchQueue(
        calls=9,
        median_us=4.0,
        p10_us=2.0,
        p90_us=8.0,
        maximum_us=9.0,
        before_return=0,
        mean_depth=1.5,
        maximum_depth=7,
        empty_share=0.25,
    )
    kernels = msgspec.structs.replace(
        with_known_times(),
        host_time=HostTime(steps=10, mean_us=100.0, parts=(*small, part), other_threads_us=0.0),
        queue=queue,
    )

    *_, host, waiting = sentences(kernels)

    assert (host, waiting) == (
        "CPU time of a 100 µs step, µs, mean of 10: operators 60.0 (60.0 %), part 0 10.0 (10.0 "
        "%), part 1 9.00 (9.0 %), part 2 8.00 (8.0 %), 2 more 13.0",
        "launch delay median 4.00 µs (p10 to p90 2.00\N{EN DASH}8.00), queue depth mean 1.50, at "
        "most 7, empty 25.0 % of the time",
    )
    for name in ("text", "markdown"):
        text = " ".join(by_name(name).render(one_run(kernels)).split())
        assert "CPU time of a 100 µs step, µs, mean of 10: operators 60.0" in text
        assert "queue depth mean 1.50, at most 7" in text
