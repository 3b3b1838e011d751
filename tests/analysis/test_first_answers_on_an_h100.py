"""Five programs whose cause is known, as an H100 ran them: the first sentence and the first advice.

What each takes, and what it took with its cause gone, was measured without kgprof on the same card.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kgprof.analysis import analyse
from kgprof.model import LimitKind, Profile, RunLimits, WholeRun
from kgprof.reading import recordings
from tests.archives import RECORDINGS, unpacked

ARCHIVE = "first_answers_h100.tar.xz"


@dataclass(frozen=True, kw_only=True, slots=True)
class Truth:
    """``limit`` of ``whole`` run or of its step; ``line`` and ``fix`` of the first advice."""

    limit: LimitKind
    whole: bool = False
    rule: str = ""  # empty: there is nothing to do
    line: int | None = None
    fix: str = ""
    never: tuple[str, ...] = ()  # rules that have no finding here


TRUTHS = {
    # 400 kernels in a training step of 13.9 ms, and three reads; 5.9 ms with CUDA graphs
    "many_small_kernels": Truth(
        limit=LimitKind.LAUNCHES,
        rule="KGP602",
        fix="",  # of eager code, before it is tried
        never=("KGP202", "KGP503"),
    ),
    # 118 batch sizes with mode="reduce-overhead", 14.4 s in all; 5.2 s with four sizes
    "many_sizes": Truth(
        limit=LimitKind.RECOMPILING,
        whole=True,
        rule="KGP304",
        line=10,
        fix="",  # whether padding changes the result is not known
        never=("KGP201", "KGP202", "KGP303", "KGP503"),
    ),
    # generate() with a cache that grows, 0.293 s; 0.165 s with a static one
    "growing_cache": Truth(
        limit=LimitKind.RECOMPILING,
        whole=True,
        rule="KGP103",
        line=12,
        fix='generate(..., cache_implementation="static")',
        never=("KGP202", "KGP503", "KGP602"),
    ),
    # a number that is a constant of the graph until it changes, 6.9 s in all; 3.5 s as a tensor
    "changing_number": Truth(
        limit=LimitKind.RECOMPILING,
        whole=True,
        rule="KGP103",
        line=8,
        fix="temp=torch.tensor(temp)",
        never=("KGP201", "KGP202", "KGP503"),
    ),
    # large matmuls in bfloat16, 12.2 ms per step: the GPU is busy
    "busy_gpu": Truth(limit=LimitKind.COMPUTE, never=("KGP201", "KGP202", "KGP503")),
}


@pytest.fixture(scope="module")
def profiles() -> dict[str, Profile]:
    folder = unpacked(ARCHIVE)
    return {name: analyse(recordings.load(folder / name)) for name in TRUTHS}


def leading(profile: Profile, whole: bool) -> LimitKind | None:
    (run,) = profile.runs
    found = run.whole if whole else run.limits
    assert isinstance(found, RunLimits | WholeRun)
    return found.leading.limit if found.leading else None


@pytest.mark.parametrize("name", TRUTHS)
def test_the_first_sentence_names_what_limits_the_program(
    profiles: dict[str, Profile], name: str
) -> None:
    truth, profile = TRUTHS[name], profiles[name]

    assert leading(profile, truth.whole) is truth.limit
    assert truth.whole or leading(profile, whole=True) is None
    assert f"limited by {truth.limit}" in profile.verdict.text


@pytest.mark.parametrize("name", TRUTHS)
def test_the_first_advice_is_what_helped(profiles: dict[str, Profile], name: str) -> None:
    truth, profile = TRUTHS[name], profiles[name]
    if not truth.rule:
        assert profile.actions == ()
        return
    first = profile.actions[0]

    assert first.rule == truth.rule
    assert (first.location.line if first.location else None) == truth.line
    assert bool(truth.fix) is bool(first.fix)
    assert truth.fix in first.fix


@pytest.mark.parametrize("name", TRUTHS)
def test_nothing_is_said_that_is_not_so(profiles: dict[str, Profile], name: str) -> None:
    rules = {finding.rule for finding in profiles[name].findings}

    assert rules.isdisjoint(TRUTHS[name].never)


def test_the_five_are_small_enough_to_keep() -> None:
    assert 0 < (RECORDINGS / ARCHIVE).stat().st_size < 2**20


def test_a_busy_gpu_is_told_that_there_is_nothing_to_do(
    profiles: dict[str, Profile],
) -> None:
    verdict = profiles["busy_gpu"].verdict

    assert verdict.text.endswith("; no finding is known to save 1 % of the step")
    assert "the GPU works 100 % of the step" in verdict.trust
    assert all(
        "no finding is known" not in profiles[name].verdict.text
        for name in TRUTHS
        if TRUTHS[name].rule
    )


def test_a_clock_is_named_as_one_wherever_a_program_has_it(profiles: dict[str, Profile]) -> None:
    clocks = {
        name: [
            (one.location.line if one.location else None)
            for one in profile.findings
            if one.rule == "KGP204"
        ]
        for name, profile in profiles.items()
    }

    assert clocks == {
        "many_small_kernels": [13],
        "many_sizes": [10],
        "growing_cache": [12],
        "changing_number": [13],
        "busy_gpu": [7],
    }


def test_many_sizes_are_counted_and_torchs_own_warning_is_read(
    profiles: dict[str, Profile],
) -> None:
    text = profiles["many_sizes"].actions[0].text

    assert "a CUDA graph is recorded for each of 116 input sizes" in text
    assert text.endswith("torch warns of it")
