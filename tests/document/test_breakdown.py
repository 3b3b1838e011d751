"""How the time of a step is put in words."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.document import breakdown
from kgprof.model import KernelBreakdown, Profile
from kgprof.render import by_name
from tests.render import profiles
from tests.render.tables import texts


def kernels_of(profile: Profile, index: int) -> KernelBreakdown:
    kernels = profile.runs[index].kernels
    assert isinstance(kernels, KernelBreakdown)
    return kernels


def test_a_gpu_is_busy_against_the_bare_step() -> None:
    # given: 20 traced steps, slowed down by the profiler to twice the bare step
    profile = profiles.cuda()
    kernels = msgspec.structs.replace(
        kernels_of(profile, 0), window_us=20 * 2 * 5210.0, busy_us=20 * 2605.0
    )

    said = breakdown.busy_caption(kernels, profile.runs[0].step)

    assert said == "GPU busy 50 % (2.60 of 5.21 ms without the profiler)"


def test_a_gpu_is_busy_against_the_traced_step_where_that_holds_more_than_a_usual_one() -> None:
    """One of the traced steps evaluates as well: 104 % of the bare step would be no share."""
    profile = profiles.cuda()
    kernels = msgspec.structs.replace(
        kernels_of(profile, 0), window_us=20 * 5500.0, busy_us=20 * 5420.0
    )

    said = breakdown.busy_caption(kernels, profile.runs[0].step)

    assert said == "busy 98.5 % under the profiler"


def test_a_cpu_is_busy_under_the_profiler() -> None:
    profile = profiles.clean()

    assert (
        breakdown.busy_caption(kernels_of(profile, 0), profile.runs[0].step)
        == "busy 86.0 % under the profiler"
    )


@pytest.mark.parametrize("state", ["cuda", "clean"])
def test_a_report_asks_to_read_the_shares_of_what_the_profiler_slowed(state: str) -> None:
    page = by_name("html").render(profiles.STATES[state]())

    assert "read the shares" in page
    assert "Idle time includes the profiler's own overhead" in page


def test_a_kind_that_only_generated_kernels_hold_is_not_zero() -> None:
    both = breakdown.time_table(profiles.clean().runs[:2]).only(
        "run", "normalisation", "gather, scatter, index"
    )

    assert texts(both)[1] == ("batched.default", "in fused", "0")


@pytest.mark.parametrize("name", ["html", "markdown"])
def test_the_table_says_in_fused(name: str) -> None:
    assert "in fused" in by_name(name).render(profiles.clean())
