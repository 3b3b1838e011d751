"""Time lost in one known way, and the same program after the fix that was named, as an H200 ran
both.

What the fix saved is the difference of the two TIMING medians. It must not be above the finding's
bound, beyond the spread of the two, and it should be a good part of it.
"""

from __future__ import annotations

import statistics

import msgspec
import pytest

from kgprof import collectors
from kgprof.measures.traced_steps import TracedSteps, traced_steps
from kgprof.model import Finding, Recording, RunRecord, Saving, Skipped, TimingPass
from kgprof.reading import recordings
from kgprof.reading.evidence import Evidence
from tests.archives import unpacked


@pytest.fixture(scope="module")
def kept() -> tuple[Recording, ...]:
    folder = unpacked("gpu_time_h200.tgz")
    return tuple(recordings.load(folder / name) for name in ("recording", "graphs"))


def run_of(kept: tuple[Recording, ...], strategy: str) -> RunRecord:
    return next(run for recording in kept for run in recording.runs if run.key.strategy == strategy)


def findings_of(kept: tuple[Recording, ...], strategy: str) -> dict[str, Finding]:
    every = [finding for recording in kept for finding in collectors.findings(Evidence(recording))]
    return {one.rule: one for one in every if one.run and one.run.strategy == strategy}


def deciles_us(run: RunRecord) -> list[float]:
    """Nine numbers, of which the fifth is the median."""
    assert isinstance(run.timing, TimingPass)
    return statistics.quantiles([us for group in run.timing.step_us for us in group], n=10)


def bound_us(finding: Finding | None) -> float:
    return finding.saves.us_per_step if finding and isinstance(finding.saves, Saving) else 0.0


@pytest.mark.parametrize(
    ("rule", "slow", "mended"),
    [
        ("KGP604", "exact_float32", "tf32"),
        ("KGP605", "math_attention", "fused_attention"),
        ("KGP607", "loaded_in_the_step", "loaded_by_workers"),
        ("KGP608", "pageable", "pinned"),
        ("KGP609", "adamw", "adamw_fused"),
        ("KGP610", "graph_for_each_layer", "graph_for_all_layers"),
    ],
)
def test_the_fix_saves_a_good_part_of_the_bound_and_no_more(
    kept: tuple[Recording, ...], rule: str, slow: str, mended: str
) -> None:
    before_us, after_us = deciles_us(run_of(kept, slow)), deciles_us(run_of(kept, mended))
    bound, left = (bound_us(findings_of(kept, strategy).get(rule)) for strategy in (slow, mended))
    saved_us, spread_us = before_us[4] - after_us[4], before_us[8] - before_us[0]

    assert left <= bound / 10  # a loader with workers is still waited for, a hundredth as long
    assert bound / 3 <= saved_us <= bound + spread_us


def test_without_timing_the_gpu_never_works_longer_than_the_step(
    kept: tuple[Recording, ...],
) -> None:
    untimed = Skipped(reason="TIMING was not requested")
    for recording in kept:
        runs = tuple(msgspec.structs.replace(run, timing=untimed) for run in recording.runs)
        for run in Evidence(msgspec.structs.replace(recording, runs=runs)).runs:
            traced = run.once(traced_steps)
            assert isinstance(traced, TracedSteps)
            assert traced.busy_us <= traced.extent.step_us
