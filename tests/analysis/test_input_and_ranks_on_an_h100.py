"""Two programs whose cause is known, as H100s ran them: a DataLoader in the main process (its trace
is cut after five steps), and two ranks of which one meets new sizes.

They are ``crops_in_the_loop.py`` and ``ranks_meet_new_sizes.py`` in tests/situations. Without
kgprof, on the same card: an epoch of 9.7 s, and 1.6 s with eight workers; 1.5 s in all, and 1.1 s
with batches of one size.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from kgprof.analysis import analyse
from kgprof.model import CompilePass, LateCause, Profile
from kgprof.reading import recordings
from tests.archives import unpacked


@pytest.fixture(scope="module")
def kept() -> Path:
    return unpacked("first_answers_ranks_and_input_h100.tar.xz")


def profile_of(folder: Path) -> Profile:
    return analyse(recordings.load(folder))


def test_augmentation_in_the_main_process_is_input_and_no_launching(kept: Path) -> None:
    profile = profile_of(kept / "input_in_the_main_process")

    assert "limited by input (mostly DataLoader)" in profile.verdict.text
    assert profile.actions[0].rule == "KGP607"
    assert profile.actions[0].fix.startswith("DataLoader(..., num_workers=4")
    assert "KGP602" not in {finding.rule for finding in profile.findings}


def test_a_rank_that_recompiles_alone_is_named_with_the_size_and_leads_the_advice(
    kept: Path,
) -> None:
    profile = profile_of(kept / "one_rank_recompiles")

    assert profile.rank_balance is not None
    assert profile.rank_balance.cause is LateCause.COMPILING
    assert profile.verdict.text.startswith("rank 1 alone recompiles, and rank 0 waits for it")
    assert "expected 384, got 640 (line 28)" in profile.verdict.text
    assert profile.actions[0].rule == "KGP103"
    assert profile.actions[0].fix.startswith("torch.compile(net)  # without dynamic=False")


def test_recompiles_outside_of_the_traced_steps_are_no_cause_of_what_is_waited_in_them(
    kept: Path,
) -> None:
    recording = recordings.load(kept / "one_rank_recompiles")
    runs = []
    for run in recording.runs:
        assert isinstance(run.compile, CompilePass)
        untraced = tuple(step for step in run.compile.compiled_in if step not in range(10, 30))
        runs.append(replace(run, compile=replace(run.compile, compiled_in=untraced)))

    profile = analyse(replace(recording, runs=tuple(runs)))

    assert profile.rank_balance is not None
    assert profile.rank_balance.cause is not LateCause.COMPILING
    assert "alone recompiles" not in profile.verdict.text
