"""What cells are worth, and which of them to take: break-even with its interval, totals, tiers, the
verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import msgspec
import numpy as np
import pytest

from kgprof import model as m
from kgprof.measures.economics import (
    NEVER,
    NOT_KNOWN,
    ONE_START,
    Noise,
    Sample,
    predicted,
    tier,
    total,
)
from kgprof.measures.sweep import ahead, weighed
from tests.sweeps import DEFAULT, EAGER, TUNED, cell, dead, started, sweep

SECOND = m.Cell(mode="reduce-overhead")
BF16 = m.Cell(mode="default", precision=m.Precision.BF16)


def estimate(value: float, low: float = -1.0, high: float = -1.0, unit: str = "s") -> m.Estimate:
    return m.Estimate(
        value=value, low=value if low < 0 else low, high=value if high < 0 else high, unit=unit
    )


def worth(found: m.Sweep, of: m.Cell) -> m.CellWorth:
    return next(each for each in found.worth if each.cell == of)


def steps(value: m.Estimate | m.Skipped) -> tuple[float, ...]:
    assert isinstance(value, m.Estimate)
    return tuple(round(each, 6) for each in (value.value, value.low, value.high))


def sample(
    start_s: float | Sequence[float],
    step_us: float | Sequence[float],
    noise: Noise | None = None,
    calls: int = 1,
) -> Sample:
    """Three processes alike where one figure is given; ``start_s`` is beyond as many steady
    calls."""
    starts, steps = (
        [each] * 3 if isinstance(each, float | int) else list(each) for each in (start_s, step_us)
    )
    first_s = [each + calls * median(steps) / 1e6 for each in starts]
    return Sample(first_s, calls, steps, noise or Noise.pooled([first_s]), Noise.pooled([steps]))


def compared(
    mine: Sample, other: Sample, executions: int = 10
) -> dict[str, m.Estimate | m.Skipped]:
    return predicted(mine, other, executions)


def test_two_modes_are_equal_where_the_document_says() -> None:
    """S1: 240 s against 15 s of compiling, 4.2 ms against 5.0 ms a call: 281,250 calls."""
    found = compared(sample(240, 4200), sample(15, 5000))["break_even"]

    assert steps(found) == (281_250.0,) * 3


def test_one_side_that_varies_gives_the_interval_of_students_t() -> None:
    """95 % of one further start: 4.303 deviations of two degrees of freedom, times the root of 1 +
    1/3."""
    starts = [10 * math.exp(apart) for apart in (-0.1, 0.0, 0.1)]

    found = compared(sample(starts, 100, calls=0), sample(1e-9, 200, calls=0))["break_even"]

    assert isinstance(found, m.Estimate)
    half = 4.303 * 0.1 * math.sqrt(4 / 3)
    assert found.value == pytest.approx(100_000)
    assert [math.log(each / 100_000) for each in (found.low, found.high)] == pytest.approx(
        [-half, half], rel=0.08
    )


@pytest.mark.parametrize(
    ("start_noise", "step_noise", "eager_noise"),
    [
        (0.03, 0.01, 0.01),
        (0.2, 0.1, 0.1),
        pytest.param(0.1, 0.02, 0.02, marks=pytest.mark.long),
        pytest.param(0.1, 0.02, 0.1, marks=pytest.mark.long),
        pytest.param(0.05, 0.1, 0.02, marks=pytest.mark.long),
    ],
)
def test_a_new_pair_of_processes_crosses_within_the_interval_95_times_in_100(
    start_noise: float, step_noise: float, eager_noise: float
) -> None:
    # given: starts of 8 s and 0.1 s, steps of 1 ms and 3 ms, three processes of each
    random = np.random.default_rng(7)

    def taken(median: float, noise: float, count: int) -> list[float]:
        return [median * math.exp(apart) for apart in random.normal(0, noise, count)]

    def sides(count: int) -> list[list[float]]:
        compiled = taken(8.0, start_noise, count), taken(1000.0, step_noise, count)
        return [*compiled, taken(0.1, start_noise, count), taken(3000.0, eager_noise, count)]

    inside, trials = 0, 300
    for _ in range(trials):
        start_s, step_us, eager_s, eager_us = sides(3)
        steps = Noise.pooled([step_us, eager_us])
        mine = Sample(start_s, 0, step_us, Noise.pooled([start_s]), steps)
        said = compared(mine, Sample(eager_s, 0, eager_us, Noise.pooled([eager_s]), steps))[
            "break_even"
        ]

        # when: both run once more
        (paid_s,), (us,), (eager_paid_s,), (other_us,) = sides(1)
        crossed = (paid_s - eager_paid_s) * 1e6 / (other_us - us) if other_us > us else math.inf

        # then
        inside += isinstance(said, m.Skipped) or said.low <= crossed <= said.high

    assert inside >= 0.93 * trials  # 95 % less one and a half standard errors
    assert inside < trials  # the interval is not so wide that it says nothing


def test_a_gain_that_may_be_zero_is_not_known_and_a_loss_never_pays() -> None:
    noisy = compared(sample(9, [90, 100, 150]), sample(1, [140, 160, 200]))

    assert noisy["break_even"] == NOT_KNOWN
    assert isinstance(noisy["of_100"], m.Estimate)
    assert compared(sample(9, 200), sample(1, 100))["break_even"] == NEVER


def test_one_start_has_the_noise_of_the_others_or_no_interval() -> None:
    eager = sample(1, 200)

    assert compared(sample([9], 100), eager)["break_even"] == ONE_START
    found = compared(sample([9], 100, Noise(0.01, 8)), eager)["break_even"]
    assert isinstance(found, m.Estimate)
    # 9 s / exp(2.31 * 0.1 * 2**0.5) less 1 s
    assert found.low < 60_000 < found.value < 100_000 < found.high


def test_a_cell_that_varies_far_more_than_the_others_does_not_blur_their_gains() -> None:
    quiet = [[100, 100.2, 100.1], [90, 90.1, 90.2], [91, 91.1, 90.9]]

    noises = [
        Noise.pooled(kinds)
        for kinds in (quiet, [*quiet, [30, 30.1, 50]], [*quiet, [80, 80.3, 79.8]])
    ]

    (alone, beside, wider) = (noise for noise in noises if noise is not None)
    assert beside.variance == pytest.approx(alone.variance)
    assert beside.freedom == alone.freedom == 6
    # three times as much may be chance
    assert (wider.variance > alone.variance, wider.freedom) == (True, 8)


def test_a_start_that_is_no_dearer_has_paid_at_once() -> None:
    assert steps(compared(sample(1, 100), sample(2, 200))["break_even"]) == (0.0, 0.0, 0.0)


def test_the_benefit_of_steps_is_a_loss_before_the_break_even() -> None:
    assert steps(compared(sample(10, 100), sample(0, 200))["of_100"])[0] == pytest.approx(-9.99)
    assert steps(compared(sample(0.01, 100), sample(0, 200))["of_100"])[0] == pytest.approx(
        0.0, abs=1e-6
    )
    assert total(estimate(10), estimate(100), 1_000).value == pytest.approx(10.1)


def test_the_return_is_what_was_saved_over_what_was_paid() -> None:
    """After 200,000 steps: 20 s saved for 9 s paid. Nothing may have been paid: no rate."""
    value, low, high = steps(compared(sample([9, 10, 11], 100), sample(1, 200), 200_000)["returns"])
    assert value == pytest.approx(11 / 9, rel=1e-5)
    assert low < 1 < 1.5 < high
    assert isinstance(
        compared(sample([1, 2, 9], 100), sample([1, 2, 9], 200))["returns"], m.Skipped
    )


@pytest.mark.parametrize(
    ("speedup", "break_even", "expected"),
    [
        *((16.5, 17.4, "excellent"), (16.5, 60, "good"), (3, 60, "good"), (3, 100, "moderate")),
        *((1.5, 499, "moderate"), (1.5, 500, "poor"), (30.0, 800, "poor")),
    ],
)
def test_the_tiers_are_those_of_the_document(
    speedup: float, break_even: float, expected: str
) -> None:
    assert tier(estimate(speedup), estimate(break_even), m.Judged.FASTER) == expected


def test_a_cell_that_never_pays_is_poor_and_one_without_times_has_no_tier() -> None:
    gone = m.Skipped(reason="gone")

    assert tier(estimate(0.9), gone, m.Judged.SLOWER) is m.Tier.POOR
    assert tier(estimate(1.01, 0.98, 1.03), gone, m.Judged.LEVEL) is m.Tier.POOR
    assert tier(estimate(1.2, 0.9, 1.5), gone, m.Judged.UNDECIDED) == NOT_KNOWN
    assert tier(estimate(2.0), gone, m.Judged.FASTER) == gone
    assert tier(gone, gone, m.Judged.UNDECIDED) == gone


def test_a_cell_is_weighed_against_eager_and_the_next_best() -> None:
    # given: eager 200 us; default 100 us after 10 s; tuned 80 us after 60 s
    eager = cell(EAGER, 200, 200, 200, cold_s=[1.0])
    default, tuned = (
        cell(DEFAULT, 100, 100, 100, cold_s=[11.0] * 3),
        cell(TUNED, 80, 80, 80, cold_s=[61.0] * 3),
    )

    # when
    found = weighed(sweep(eager, default, tuned), 200_000)

    # then
    mine = worth(found, TUNED)
    assert round(steps(mine.break_even)[0]) == 500_000  # 60 s / 120 us
    assert mine.next_best == DEFAULT
    assert round(steps(mine.break_even_next)[0]) == 2_500_000  # 50 s / 20 us
    assert steps(mine.speedup)[0] == 2.5
    assert worth(found, DEFAULT).next_best == EAGER
    assert worth(found, EAGER).break_even == m.Skipped(reason="the others are compared with it")
    (verdict,) = found.verdicts
    assert (verdict.status, verdict.best, verdict.runner_up) == (m.VerdictStatus.OK, DEFAULT, EAGER)
    assert verdict.code == "step = torch.compile(step)"


def test_the_number_of_executions_decides() -> None:
    cells = (
        cell(EAGER, 200, 200, 200, cold_s=[1.0]),
        cell(DEFAULT, 100, 100, 100, cold_s=[11.0]),
        cell(TUNED, 80, 80, 80, cold_s=[61.0]),
    )

    best = [
        weighed(sweep(*cells), executions).verdicts[0].best
        for executions in (50, 500_000, 10_000_000)
    ]

    assert best == [EAGER, DEFAULT, TUNED]


def test_totals_that_overlap_are_inconclusive_and_name_both() -> None:
    cells = (
        cell(EAGER, 900, 900, 900, cold_s=[0.0]),
        cell(DEFAULT, 95, 100, 105, cold_s=[10.0]),
        cell(SECOND, 96, 101, 106, cold_s=[10.0]),
    )

    (verdict,) = weighed(sweep(*cells), 1_000_000).verdicts

    assert verdict.status is m.VerdictStatus.INCONCLUSIVE
    assert (verdict.best, verdict.runner_up) == (DEFAULT, SECOND)
    assert "default and reduce-overhead" in verdict.text


def test_any_total_that_overlaps_makes_it_inconclusive() -> None:
    """The runner-up by the median is apart from the best, a noisy third is not."""
    cells = (
        cell(EAGER, 108, 108, 108, cold_s=[0.0]),
        cell(DEFAULT, 99, 100, 101, cold_s=[0.0]),
        cell(SECOND, 100, 110, 150, cold_s=[0.0]),
    )

    (verdict,) = weighed(sweep(*cells), 1_000_000).verdicts

    assert (verdict.status, verdict.best) == (m.VerdictStatus.INCONCLUSIVE, DEFAULT)
    assert "default and reduce-overhead take equally long" in verdict.text
    assert "a step of default is 1.08\N{MULTIPLICATION SIGN} faster than in eager" in verdict.text
    assert "(99 to 150 s)" in verdict.text


def test_a_speedup_within_the_noise_is_not_in_the_verdict() -> None:
    cells = cell(EAGER, 100, 140, 400, cold_s=[0.0]), cell(DEFAULT, 90, 100, 110, cold_s=[0.0])

    (verdict,) = weighed(sweep(*cells), 1_000_000).verdicts

    assert verdict.best == DEFAULT
    assert "as fast" not in verdict.text


def test_a_recommended_cell_whose_results_differ_needs_attention() -> None:
    cells = cell(EAGER, 200, 200, 200, cold_s=[0.0]), cell(DEFAULT, 100, 100, 100, cold_s=[1.0])
    ladder = m.Ladder(
        strategy="step",
        cell=DEFAULT.name,
        steps=1,
        rungs=(),
        first=m.Rung.DECOMPOSITION,
        minified=m.Skipped(reason="not tried"),
    )

    def judged(ladder: m.Ladder) -> m.SweepVerdict:
        return weighed(msgspec.structs.replace(sweep(*cells), ladder=ladder), 1_000_000).verdicts[0]

    assert judged(ladder).status is m.VerdictStatus.ATTENTION
    assert "default changes the results (at decomposition)" in judged(ladder).text
    assert judged(msgspec.structs.replace(ladder, first=None)).status is m.VerdictStatus.OK
    assert judged(msgspec.structs.replace(ladder, cell=TUNED.name)).status is m.VerdictStatus.OK


def test_another_precision_is_recommended_if_nothing_else_was_swept() -> None:
    cells = cell(EAGER, 200, 200, 200, cold_s=[0.0]), cell(BF16, 20, 20, 20, cold_s=[1.0])

    (verdict,) = weighed(sweep(*cells), 1_000_000).verdicts

    assert (verdict.status, verdict.best) == (m.VerdictStatus.OK, BF16)
    assert "rounds differently" in verdict.trust
    assert "not recommended" not in verdict.trust


def test_other_rounding_is_reported_and_not_recommended() -> None:
    cells = (
        cell(EAGER, 200, 200, 200, cold_s=[0.0]),
        cell(DEFAULT, 100, 100, 100, cold_s=[1.0]),
        cell(BF16, 20, 20, 20, cold_s=[1.0]),
    )

    (verdict,) = weighed(sweep(*cells), 1_000_000).verdicts

    assert verdict.best == DEFAULT
    assert "default, bf16" in verdict.trust


def test_a_cell_that_does_not_fit_is_not_recommended() -> None:
    cells = (
        cell(EAGER, 200, 200, 200, cold_s=[0.0], memory=1_000),
        cell(DEFAULT, 100, 100, 100, cold_s=[1.0], memory=2_000),
    )

    def best(memory: int) -> m.Cell | None:
        return weighed(sweep(*cells), 1_000_000, memory).verdicts[0].best

    assert (best(2_500), best(2_499), best(1_249)) == (DEFAULT, EAGER, None)


def test_a_cell_that_alone_fits_is_recommended_and_eager_alone_is_not() -> None:
    eager = cell(EAGER, 200, 200, 200, cold_s=[0.0], memory=1_000)
    late = msgspec.structs.replace(
        cell(DEFAULT, 100, cold_s=[1.0], memory=2_000), not_run="the time was up"
    )

    both = cell(DEFAULT, 100, 100, 100, cold_s=[1.0], memory=2_000)
    (fits,) = weighed(sweep(eager, both), 1_000_000, 1_300).verdicts
    (alone,) = weighed(sweep(eager, late), 1_000_000).verdicts

    assert (fits.status, fits.text[:23]) == (m.VerdictStatus.OK, "Only eager is known to ")
    assert (alone.status, alone.code) == (m.VerdictStatus.INCONCLUSIVE, "")
    assert "1 cell not or only partly measured: default" in alone.trust


def test_fewer_than_three_processes_judge_nothing() -> None:
    found = weighed(
        sweep(cell(EAGER, 200, 200, cold_s=[0.0]), cell(DEFAULT, 100, 100, cold_s=[1.0])), 1_000_000
    )

    assert isinstance(worth(found, DEFAULT).break_even, m.Skipped)
    assert found.verdicts[0].status is m.VerdictStatus.INCONCLUSIVE
    assert found.verdicts[0].best is None


def test_cold_starts_of_one_cell_stand_for_those_of_the_others() -> None:
    cells = (
        cell(EAGER, 200, 200, 200, cold_s=[1.0]),
        cell(DEFAULT, 100, 100, 100, cold_s=[10.0, 9.0, 11.0]),
        cell(TUNED, 90, 90, 90, cold_s=[20.0]),
    )

    found = worth(weighed(sweep(*cells), 1_000_000), TUNED).break_even

    value, low, high = steps(found)
    assert value == pytest.approx(19e6 / 110)
    # a deviation of 0.1, two degrees of freedom, one start
    assert [(each * 110e-6 + 1) / 20 for each in (low, high)] == pytest.approx(
        [math.exp(-0.61), math.exp(0.61)], rel=0.1
    )


def test_all_dead_is_a_failure_and_one_dead_costs_itself() -> None:
    (none,) = weighed(sweep(dead(EAGER), dead(DEFAULT)), 10).verdicts
    alive = cell(EAGER, 200, 200, 200, cold_s=[0.0]), cell(DEFAULT, 100, 100, 100, cold_s=[1.0])
    (some,) = weighed(sweep(*alive, dead(TUNED)), 1_000_000).verdicts
    (uncompiled,) = weighed(sweep(started(EAGER), started(DEFAULT)), 10).verdicts

    assert (uncompiled.status, "nothing was compiled" in uncompiled.text) == (
        m.VerdictStatus.INCONCLUSIVE,
        True,
    )
    assert (none.status, none.best) == (m.VerdictStatus.FAILED, None)
    assert (some.status, some.best) == (m.VerdictStatus.OK, DEFAULT)
    assert "1 cell died: max-autotune" in some.trust


def test_a_size_has_a_verdict_of_its_own() -> None:
    def sized(batch: str, eager_us: float, default_us: float) -> list[m.CellResult]:
        size = ("--batch", batch)
        eager, default = (
            m.Cell(mode="eager", backend="eager", size=size),
            m.Cell(mode="default", size=size),
        )
        return [
            cell(eager, *[eager_us] * 3, cold_s=[0.0]),
            cell(default, *[default_us] * 3, cold_s=[1.0]),
        ]

    found = weighed(sweep(*sized("8", 100, 110), *sized("64", 900, 300)), 1_000_000)

    assert [verdict.best and verdict.best.mode for verdict in found.verdicts] == [
        "eager",
        "default",
    ]


def test_further_cold_starts_are_made_of_the_best_the_second_and_eager() -> None:
    cells = (
        cell(EAGER, 900, 900, 900, cold_s=[0.0]),
        cell(DEFAULT, 100, 100, 100, cold_s=[10.0]),
        cell(TUNED, 90, 90, 90, cold_s=[90.0]),
        cell(SECOND, 50, 50, 50, cold_s=[10.0]),
    )

    assert ahead(sweep(*cells), 1_000_000) == [SECOND, DEFAULT, EAGER]
