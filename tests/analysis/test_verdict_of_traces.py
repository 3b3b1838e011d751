"""What `kgprof trace` says first of a trace in which the GPU does little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kgprof import cli
from kgprof.analysis import analyse
from kgprof.model import DeviceIdle, KernelBreakdown, Verdict, VerdictStatus
from kgprof.reading import recordings
from tests.analysis.events import event, step, write
from tests.measures.test_idle import kernel, launch

STEPS = 4
STEP_US = 1000.0
Events = list[dict[str, Any]]


def operator(name: str, start: float, duration: float) -> dict[str, Any]:
    return event("cpu_op", name, start, duration)


def steps(*, gpu_us: float = 0.0, of_host: Events, marked: bool = True) -> Events:
    """Four steps, each with these events of the host's, 20 launches, and so much GPU work."""
    made = []
    for number in range(STEPS):
        begins = number * STEP_US
        if marked:
            made.append(step(number, begins, STEP_US))
        made += [{**each, "ts": each["ts"] + begins} for each in of_host]
        for at in range(20):
            call = 20 * number + at + 1
            asked = begins + at * 50.0
            made.append(launch(asked, 3.0, call))
            if gpu_us:
                made.append(kernel(asked + 5.0, gpu_us / 20, call))
    return made


def said(tmp_path: Path, events: Events) -> tuple[Verdict, KernelBreakdown]:
    path = write(tmp_path / "t.json", events)
    assert cli.run(["trace", "--no-hta", "-q", "-o", str(tmp_path / "out"), str(path)]) == 0
    profile = analyse(recordings.load(tmp_path / "out"))
    kernels = profile.runs[0].kernels
    assert isinstance(kernels, KernelBreakdown)
    return profile.verdict, kernels


def test_a_busy_gpu_is_all_right(tmp_path: Path) -> None:
    verdict, _ = said(tmp_path, steps(gpu_us=800.0, of_host=[]))

    assert verdict.status is VerdictStatus.OK


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("call", ["cudaFree", "hipFree"])
def test_calls_that_free_memory_are_named_where_the_gpu_waits_for_them(
    call: str, marked: bool, tmp_path: Path
) -> None:
    freeing = [event("cuda_runtime", call, at * 50.0 + 8.0, 40.0) for at in range(20)]

    verdict, _ = said(tmp_path, steps(gpu_us=60.0, of_host=freeing, marked=marked))

    # 40 of 50 us in the calls, and what is between them
    share = "83 % of the traced step" if marked else "84 % of the traced window"
    assert verdict.status is VerdictStatus.ATTENTION
    assert f"limited by host code (mostly {call}): {share}" in verdict.text


def test_an_idle_gpu_that_nothing_explains_is_not_all_right(tmp_path: Path) -> None:
    # given: work at the very start of two steps, and nothing else
    events = [step(0, 0.0, 1000.0), step(1, 1000.0, 1000.0), kernel(0.0, 10.0, 1)]

    verdict, _ = said(tmp_path, [*events, kernel(1000.0, 10.0, 2)])

    assert verdict.status is VerdictStatus.ATTENTION
    assert "GPU busy 1.0 % of 2 traced steps; what it waits for is not decided:" in verdict.text


def test_launches_that_load_code_are_no_launch_latency(tmp_path: Path) -> None:
    # given: 6 of 20 launches take 15 ms, as those of a first run do
    events = []
    at = 0.0
    for call in range(20):
        takes = 15_000.0 if call < 6 else 3.0
        events += [launch(at, takes, call + 1), kernel(at + takes + 2.0, 50.0, call + 1)]
        at += takes + 60.0

    verdict, kernels = said(tmp_path, events)

    assert isinstance(kernels.idle, DeviceIdle)
    assert kernels.idle.loading_calls == 5  # nothing is known of what came before the first kernel
    assert kernels.idle.loading_us == pytest.approx(75_000.0, rel=0.01)
    assert "limited by loading of kernels: 98 %" in verdict.text
    assert "5 launch calls of 1 ms or more" in verdict.text
    assert "trace later ones" in verdict.text


def test_a_launch_call_that_waits_for_a_busy_gpu_loads_nothing(tmp_path: Path) -> None:
    # given: the launch queue is full, so that the call returns when the GPU has done some work
    events = [launch(0.0, 3.0, 1), kernel(5.0, 5000.0, 1)]
    events += [launch(10.0, 4900.0, 2), kernel(5005.0, 5000.0, 2)]

    _, kernels = said(tmp_path, events)

    assert isinstance(kernels.idle, DeviceIdle)
    assert kernels.idle.loading_us == 0


def test_launches_without_kernels_are_not_a_program_on_the_cpu(tmp_path: Path) -> None:
    verdict, kernels = said(tmp_path, steps(of_host=[operator("aten::mm", 1.0, 900.0)]))

    assert verdict.status is VerdictStatus.INCONCLUSIVE
    assert kernels.launches == 80
    assert "80 launches and no GPU kernel in the trace" in verdict.text
    assert "operators running" not in verdict.text


def test_a_program_on_the_cpu_is_one(tmp_path: Path) -> None:
    verdict, kernels = said(tmp_path, [step(0, 0.0, 100.0), operator("aten::mm", 1.0, 90.0)])

    assert verdict.status is VerdictStatus.OK
    assert "operators running 90.0 % of 1 traced step" in verdict.text
    assert not isinstance(kernels.launches, int)


@pytest.mark.parametrize(
    "name", ["hipLaunchKernel", "hipExtModuleLaunchKernel", "cuLaunchKernelEx"]
)
def test_launches_are_counted_whoever_made_the_runtime(name: str, tmp_path: Path) -> None:
    events = [step(0, 0.0, 100.0), launch(5.0, 2.0, 1, name=name), kernel(10.0, 80.0, 1)]

    _, kernels = said(tmp_path, events)

    assert kernels.launches == 1


def test_the_steps_of_two_processes_in_one_trace_are_counted_once(tmp_path: Path) -> None:
    one = steps(gpu_us=800.0, of_host=[])
    other = [{**each, "pid": each["pid"] + 100} for each in one]

    _, kernels = said(tmp_path, [*one, *other])

    assert kernels.steps == STEPS


def test_categories_as_kineto_wrote_them_until_2021_are_read(tmp_path: Path) -> None:
    old = {"cpu_op": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel"}
    events = steps(gpu_us=800.0, of_host=[operator("aten::mm", 1.0, 900.0)])
    renamed = [{**each, "cat": old.get(each["cat"], "Operator")} for each in events]

    verdict, kernels = said(tmp_path, renamed)

    assert verdict.status is VerdictStatus.OK
    assert (kernels.steps, kernels.launches) == (STEPS, 80)
    assert kernels.busy_us == pytest.approx(STEPS * 800.0)
