"""Four programs whose cause is known, as H200s ran them; their traces are cut after a few steps.

Three are in tests/situations; the fourth is a DistributedDataParallel training whose second rank
runs 15 ms of Python before each forward. Without kgprof, on the same card: eager_resnet takes 42.3
ms a step, 21.4 compiled; one_slow_kernel 2.3 ms a round (H100), 0.5 with a kernel that reads along
the rows.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kgprof.analysis import analyse
from kgprof.model import LateCause, Profile, VerdictStatus
from kgprof.reading import recordings
from tests.archives import unpacked


@pytest.fixture(scope="module")
def kept() -> Path:
    return unpacked("first_answers_h200.tar.xz")


def profile_of(folder: Path) -> Profile:
    return analyse(recordings.load(folder))


def test_an_eager_training_on_a_busy_gpu_is_called_eager(kept: Path) -> None:
    profile = profile_of(kept / "eager_resnet")

    assert "limited by unfused kernels (mostly normalisation)" in profile.verdict.text
    assert "stands in eager_resnet.py:22" in profile.verdict.trust
    assert "torch.compile is worth a try" in profile.remedy("KGP504")
    assert profile.actions == ()  # what was not tried is offered as no code


def test_the_slow_kernel_of_a_program_without_steps_is_named_with_its_line(kept: Path) -> None:
    profile = profile_of(kept / "one_slow_kernel")

    assert "(no steps); first: one_slow_kernel.py:15: the kernel sum_rows" in profile.verdict.text
    assert profile.actions[0].rule == "KGP611"


def test_the_rank_that_left_a_sum_out_is_named_with_the_collective(kept: Path) -> None:
    profile = profile_of(kept / "rank_skips_a_sum")

    assert profile.verdict.status is VerdictStatus.FAILED
    assert profile.verdict.text == (
        "rank 1 did not call all_reduce of one number (rank_skips_a_sum.py:29), which rank 0 "
        "called as collective 130; rank 1 called all_reduce of [512, 512] "
        "(rank_skips_a_sum.py:25) instead"
    )


def test_a_rank_that_is_late_for_its_python_is_named_and_so_is_the_function(kept: Path) -> None:
    profile = profile_of(kept / "late_for_its_python")

    assert profile.rank_balance is not None
    assert profile.rank_balance.cause is LateCause.HOST
    assert profile.verdict.text.startswith("rank 1 is late: rank 0 waits")
    assert "augment() takes 14.6 of 22.5 ms per traced step (line 8)" in profile.verdict.text
    first = profile.actions[0]
    assert (first.rule, first.run.strategy) == ("KGP612", "d1_hostlate-rank1")
