"""HTA's figures held against ours: what each of ours counts, and when a difference is one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kgprof.measures import kernels
from kgprof.measures.holistic_check import KERNELS_SHOWN, check, idle_causes_us, longest_queues
from kgprof.model import (
    Holistic,
    HolisticCall,
    HolisticCheck,
    HolisticFigure,
    KernelBreakdown,
    PassName,
    Skipped,
)
from kgprof.reading import kineto, launches
from kgprof.reading.kineto import Trace
from tests.analysis.events import event, step, write
from tests.analysis.holistic_answers import answered, two_streams

NO_FIGURE = Skipped(reason="HTA gave no such figure")
NOT_CALLED = "it does not know cudaGraphLaunch"


def ours_of(trace: Trace) -> KernelBreakdown:
    found = kernels.breakdown(
        trace, device="cuda", measured_in=PassName.TRACE, cpp_kernel_profile=False
    )
    assert isinstance(found, KernelBreakdown)
    return found


def checked(tmp_path: Path, answer: Holistic) -> HolisticCheck:
    trace = two_streams(tmp_path)
    return check(answer, ours_of(trace), trace.columns)


def row(found: HolisticCheck, name: str) -> HolisticFigure:
    (row,) = (figure for figure in found.figures if figure.name == name)
    return row


def test_gaps_of_each_stream_have_htas_three_causes(tmp_path: Path) -> None:
    columns = two_streams(tmp_path).columns

    causes = idle_causes_us(columns, launches.launched(columns))

    assert causes == {"host_wait": 65.0, "kernel_wait": 5.0, "other": 40.0}


def test_a_queue_is_what_was_launched_and_had_not_begun(tmp_path: Path) -> None:
    columns = two_streams(tmp_path).columns

    assert longest_queues(columns, launches.launched(columns)) == {7: 2, 9: 1}


def test_work_without_a_launch_call_is_in_no_queue_and_nobody_was_late_with_it(
    tmp_path: Path,
) -> None:
    kernels_alone = [
        event("kernel", "k", start, 1.0, thread=7, stream=7) for start in (1.0, 10.0, 90.0)
    ]
    columns = kineto.read(write(tmp_path / "t.json", [step(0, 0, 99), *kernels_alone])).columns
    work = launches.launched(columns)

    assert longest_queues(columns, work) == {7: 0}
    assert idle_causes_us(columns, work) == {"host_wait": 0.0, "kernel_wait": 8.0, "other": 79.0}


def test_every_figure_agrees_where_hta_is_right(tmp_path: Path) -> None:
    found = checked(tmp_path, answered())

    assert [
        (figure.name, figure.ours, figure.hta, figure.difference_percent)
        for figure in found.figures
    ] == [
        ("kernels, copies and fills", 90.0, 90.0, 0.0),
        ("GPU busy", 75.0, 75.0, 0.0),
        ("GPU idle", 75.0, 75.0, 0.0),
        ("GPU computing", 40.0, 40.0, 0.0),
        ("idle: host_wait", 65.0, 65.0, 0.0),
        ("idle: kernel_wait", 5.0, 5.0, 0.0),
        ("idle: other", 40.0, 40.0, 0.0),
        ("longest queue, stream 7", 2.0, 2.0, 0.0),
        (
            "longest queue, stream 9",
            1.0,
            *[Skipped(reason="get_queue_length_summary does not hold it")] * 2,
        ),
        ("communication overlapped", 30.0, 30.0, 0.0),
    ]
    assert not [figure.name for figure in found.figures if figure.differs]
    assert row(found, "longest queue, stream 9").note.endswith(
        "HTA skips 1 of 5 with launch calls it does not recognise"
    )
    assert (found.kernels, found.kernels_differing, found.differing) == (4, 0, ())


@pytest.mark.parametrize(
    ("theirs", "percent", "differs"), [(75.3, 0.4, False), (75.6, 0.8, True), (60.0, -20.0, True)]
)
def test_a_difference_is_htas_less_ours_and_counts_above_the_tolerance(
    tmp_path: Path, theirs: float, percent: float, differs: bool
) -> None:
    idle = row(checked(tmp_path, answered(idle_us=theirs)), "GPU idle")

    assert idle.difference_percent == pytest.approx(percent)
    assert idle.differs is differs


def test_a_kernel_of_which_only_one_knows_differs(tmp_path: Path) -> None:
    # given: the CPU's launch time counted under the kernel's name, as HTA does with Inductor's
    # events unless corrected
    theirs = {"a": 25.0, "b": 10.0, "c": 10.0, "theirs alone": 3.0}

    found = checked(tmp_path, answered(kernels=theirs))

    assert (found.kernels, found.kernels_differing) == (5, 3)
    assert [(one.name, one.ours, one.hta, one.difference_percent) for one in found.differing] == [
        ("ncclDevKernel_AllReduce", 50.0, 0.0, -100.0),
        ("a", 20.0, 25.0, 25.0),
        ("theirs alone", 0.0, 3.0, Skipped(reason="ours is 0")),
    ]


def test_of_many_differing_kernels_the_largest_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    theirs = {f"k{number}": float(number) for number in range(1, 41)}

    found = checked(tmp_path, answered(kernels=theirs))

    assert found.kernels_differing == 44
    assert len(found.differing) == KERNELS_SHOWN
    assert [one.name for one in found.differing[:2]] == ["ncclDevKernel_AllReduce", "k40"]


def test_what_hta_did_not_say_is_skipped_with_the_call_that_would_have(tmp_path: Path) -> None:
    answer = msgspec.structs.replace(
        answered(
            kernels={},
            idle_us=NO_FIGURE,
            idle_causes=(),
            queue_length={},
            overlap_percent=NO_FIGURE,
        ),
        calls=(
            HolisticCall(name="get_gpu_kernel_breakdown", outcome="empty"),
            HolisticCall(name="get_idle_time_breakdown", outcome="raised", reason="KeyError: 'ts'"),
            HolisticCall(name="get_queue_length_summary", outcome="not called", reason=NOT_CALLED),
        ),
    )

    found = checked(tmp_path, answer)

    reasons = {
        figure.name: figure.hta.reason
        for figure in found.figures
        if isinstance(figure.hta, Skipped)
    }
    assert reasons == {
        "kernels, copies and fills": "get_gpu_kernel_breakdown: empty",
        "GPU busy": NO_FIGURE.reason,
        "GPU idle": NO_FIGURE.reason,
        "idle: host_wait": "get_idle_time_breakdown: raised: KeyError: 'ts'",
        "idle: kernel_wait": "get_idle_time_breakdown: raised: KeyError: 'ts'",
        "idle: other": "get_idle_time_breakdown: raised: KeyError: 'ts'",
        "longest queue, stream 7": f"get_queue_length_summary: not called: {NOT_CALLED}",
        "longest queue, stream 9": f"get_queue_length_summary: not called: {NOT_CALLED}",
        "communication overlapped": NO_FIGURE.reason,
    }
    assert not [figure for figure in found.figures if figure.differs]
    assert (found.kernels, found.differing) == (0, ())
