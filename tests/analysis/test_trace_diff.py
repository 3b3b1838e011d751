"""The difference of two traces: every table adds up to the difference of the totals, on written and
real traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgprof.analysis.trace_diff import difference
from kgprof.measures import kernels
from kgprof.model import (
    Change,
    KernelBreakdown,
    KernelKind,
    PassName,
    RunKey,
    Skipped,
    TraceDifference,
)
from kgprof.reading import kineto
from tests.analysis.events import event, step, write

OURS, THEIRS = RunKey(strategy="new", mode="as-is"), RunKey(strategy="old", mode="as-is")
GEMM, POINTWISE = "cutlass_80_tensorop_gemm", "triton_poi_fused_add_0"
ADDED = "triton_poi_fused_add"  # without the number, which another compilation gives otherwise


def broken_down(path: Path, *, device: str = "cuda") -> KernelBreakdown | Skipped:
    trace = kineto.read(path)
    return kernels.breakdown(
        trace, device=device, measured_in=PassName.TRACE, cpp_kernel_profile=True
    )


def compared(
    before: KernelBreakdown | Skipped, after: KernelBreakdown | Skipped
) -> TraceDifference:
    return difference(before, after, run=OURS, against=THEIRS)


def a_trace(path: Path, steps: Sequence[Sequence[tuple[str, float]]]) -> Path:
    """Steps of 1000 us; in each, kernels one after the other, launched from a span with the
    kernel's first letters."""
    events: list[dict[str, Any]] = []
    for number, launched in enumerate(steps):
        at = 1000.0 * number
        events.append(step(number, at, 1000.0))
        for name, us in launched:
            correlation = len(events)
            events.append(event("user_annotation", f"span {name[:6]}", at, 2.0))
            call = event("cuda_runtime", "cudaLaunchKernel", at + 1, 1.0)
            kernel = event("kernel", name, at + 2, us, thread=7, stream=7)
            call["args"] = {"correlation": correlation}
            kernel["args"]["correlation"] = correlation
            events += [call, kernel]
            at += 2 + us
    return write(path, events)


def test_a_difference_is_per_step_whatever_the_number_of_steps(tmp_path: Path) -> None:
    # given two steps with 100 us of GEMM each, and one step with 80 us of it and a new pointwise
    # kernel
    before = broken_down(a_trace(tmp_path / "a.json", [[(GEMM, 100.0)], [(GEMM, 100.0)]]))
    after = broken_down(
        a_trace(tmp_path / "b.json", [[(GEMM, 40.0), (GEMM, 40.0), (POINTWISE, 5.0)]])
    )
    # when
    found = compared(before, after)
    # then
    gemm = Change(
        name=GEMM,
        kind=KernelKind.GEMM,
        status="both",
        before_us=100.0,
        after_us=80.0,
        delta_us=-20.0,
        before_count=1.0,
        after_count=2.0,
    )
    pointwise = Change(
        name=ADDED,
        kind=KernelKind.POINTWISE,
        status="new",
        before_us=0.0,
        after_us=5.0,
        delta_us=5.0,
        before_count=0.0,
        after_count=1.0,
    )
    assert (found.missing, found.per, found.before_steps, found.after_steps) == ("", "step", 2, 1)
    assert found.kernels == (gemm, pointwise)
    assert [(row.name, row.delta_us) for row in found.kinds] == [
        ("gemm", -20.0),
        ("pointwise", 5.0),
    ]
    assert [(row.name, row.delta_us, row.status) for row in found.spans] == [
        ("span cutlas", -20.0, "both"),
        ("span triton", 5.0, "new"),
        ("(unattributed)", 0.0, "both"),
    ]
    assert [(row.name, row.delta_us, row.before_count) for row in found.window] == [
        ("window", 0.0, None),
        ("busy", -15.0, None),
        ("idle", 15.0, None),
    ]


def test_a_kernel_that_went_is_gone_with_all_its_time(tmp_path: Path) -> None:
    before = broken_down(a_trace(tmp_path / "a.json", [[(GEMM, 100.0), (POINTWISE, 7.0)]]))
    after = broken_down(a_trace(tmp_path / "b.json", [[(GEMM, 100.0)]]))
    found = compared(before, after)
    assert [(row.name, row.status, row.delta_us) for row in found.kernels] == [
        (ADDED, "gone", -7.0),
        (GEMM, "both", 0.0),
    ]


LAUNCHES = st.lists(
    st.tuples(
        st.sampled_from([GEMM, POINTWISE, "Memcpy DtoD", "mystery", "layer_norm_kernel"]),
        st.integers(0, 400).map(lambda ns: ns / 8),
    ),
    max_size=6,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    before=st.lists(LAUNCHES, min_size=1, max_size=4),
    after=st.lists(LAUNCHES, min_size=1, max_size=4),
)
def test_every_table_adds_up_to_the_difference_of_the_totals(
    tmp_path: Path, before: list[list[tuple[str, float]]], after: list[list[tuple[str, float]]]
) -> None:
    sides = [
        broken_down(a_trace(tmp_path / name, steps))
        for name, steps in (("a.json", before), ("b.json", after))
    ]
    found = compared(*sides)
    lacking = [side for side in sides if isinstance(side, Skipped)]
    assert bool(found.missing) == bool(lacking)
    if lacking:
        return
    # The whole, from the written durations alone.
    whole = sum(us for one in after for _, us in one) / len(after) - sum(
        us for one in before for _, us in one
    ) / len(before)
    assert found.total is not None
    assert found.total.delta_us == pytest.approx(whole, abs=1e-6)
    for table in (found.kinds, found.kernels, found.spans, found.regions):
        assert sum(row.delta_us for row in table) == pytest.approx(whole, abs=1e-6)
        assert all(row.delta_us == row.after_us - row.before_us for row in table)
        assert sum(row.after_count or 0 for row in table) == pytest.approx(
            sum(map(len, after)) / len(after)
        )
    window, busy, idle = (row.delta_us for row in found.window)
    assert window == pytest.approx(busy + idle, abs=1e-6)


def test_turned_round_it_is_its_own_negative(tmp_path: Path) -> None:
    before = broken_down(a_trace(tmp_path / "a.json", [[(GEMM, 100.0), (POINTWISE, 7.0)]]))
    after = broken_down(
        a_trace(tmp_path / "b.json", [[(GEMM, 90.0)], [(GEMM, 80.0), ("mystery", 1.0)]])
    )
    there, back = compared(before, after), compared(after, before)
    turned = {"both": "both", "new": "gone", "gone": "new"}
    assert {row.name: (row.status, row.delta_us) for row in there.kernels} == {
        row.name: (turned[row.status], -row.delta_us) for row in back.kernels
    }


def test_what_cannot_be_compared_says_why(tmp_path: Path) -> None:
    stepped = broken_down(a_trace(tmp_path / "a.json", [[(GEMM, 100.0)]]))
    unmarked = broken_down(write(tmp_path / "b.json", [event("kernel", GEMM, 0.0, 5.0, stream=7)]))
    on_a_cpu = broken_down(
        write(tmp_path / "c.json", [event("cpu_op", "aten::mm", 0.0, 5.0)]), device="cpu"
    )
    empty = broken_down(write(tmp_path / "d.json", [step(0, 0.0, 1.0)]))
    assert {
        "steps": compared(unmarked, stepped).missing,
        "device": compared(on_a_cpu, stepped).missing,
        "nothing": compared(stepped, empty).missing,
    } == {
        "steps": (
            "old marks no steps (ProfilerStep#) but the other one does, so there is no common unit"
        ),
        "device": "new has the times of GPU kernels, old those of CPU operators",
        "nothing": "new: the trace has neither operators nor GPU kernels",
    }
    # and two that both mark none are compared as they are
    assert compared(unmarked, unmarked).per == "window"


@pytest.mark.shared
def test_two_traces_of_an_h200_differ_by_what_their_files_say(shared: Path) -> None:
    folder = shared / "traces" / "h200"
    eager, fused = (
        broken_down(folder / f"strategies_one_{name}.json.gz") for name in ("eager", "fused")
    )
    assert isinstance(eager, KernelBreakdown)
    assert isinstance(fused, KernelBreakdown)
    found = compared(eager, fused)
    whole = fused.total_us / fused.steps - eager.total_us / eager.steps
    for table in (found.kinds, found.kernels, found.spans, found.regions):
        assert sum(row.delta_us for row in table) == pytest.approx(whole, abs=1e-6)
    # what Inductor generated is new, what ATen ran is gone, and the products both have
    assert {row.status for row in found.kernels if row.name.startswith("triton_")} == {"new"}
    assert {row.status for row in found.kernels if "at::native" in row.name} == {"gone"}


def test_a_kernel_with_another_number_is_the_same_one(tmp_path: Path) -> None:
    """One kernel more in front of it gives each that follows another number; a library's name keeps
    its own."""
    numbered = [
        ("triton_poi_fused_mul_0", 3.0),
        ("triton_poi_fused_add_1", 5.0),
        ("sm90_gemm_tile_1", 8.0),
    ]
    before = broken_down(
        a_trace(tmp_path / "a.json", [[("triton_poi_fused_add_0", 5.0), ("sm90_gemm_tile_0", 8.0)]])
    )
    after = broken_down(a_trace(tmp_path / "b.json", [numbered]))

    assert {row.name: row.status for row in compared(before, after).kernels} == {
        "triton_poi_fused_add": "both",
        "triton_poi_fused_mul": "new",
        "sm90_gemm_tile_0": "gone",
        "sm90_gemm_tile_1": "new",
    }
