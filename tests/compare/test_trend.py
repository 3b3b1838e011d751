"""The trend of a history: what is a change and what is a gap, another environment, or nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from kgprof import model as m
from kgprof.compare.metrics import KERNELS, STEP
from kgprof.compare.trend import CHECK_LOOP, point, trend
from kgprof.document.trend import sheet
from kgprof.render import sheet as printers
from tests.analysis.compared import STEP_US, profile, slower, timed

HOSTILE = "<script>alert(1)</script>"


def points(factors: Sequence[float], **fields: object) -> list[m.TrendPoint]:
    """A step of so many times the usual in each of them, of commits 00..., 01..., ..."""
    return [
        replace(
            point(
                slower(profile(), factor * STEP_US), f"2026-01-01T{at // 60:02}:{at % 60:02}:00Z"
            ),
            commit=f"{at:02}" * 20,
            dirty=False,
            **fields,
        )
        for at, factor in enumerate(factors)
    ]


def with_value(given: m.TrendPoint, name: str, value: float | m.Skipped) -> m.TrendPoint:
    values = [replace(each, value=value) if each.name == name else each for each in given.values]
    return replace(given, values=tuple(values))


def in_torch(given: Sequence[m.TrendPoint], version: str) -> list[m.TrendPoint]:
    return [replace(each, environment={**each.environment, "torch": version}) for each in given]


def about(found: m.Trend, name: str) -> list[m.TrendChange]:
    return [each for each in found.changes if each.metric.name == name]


def noise(number: int) -> list[float]:
    chance = random.Random(1)
    return [math.exp(chance.gauss(0, 0.02)) for _ in range(number)]


def stepped(at: int, number: int, by: float) -> list[float]:
    return [each * (by if place >= at else 1) for place, each in enumerate(noise(number))]


def test_a_file_holds_what_a_comparison_judges_and_how_the_samples_lie() -> None:
    made = point(profile(), "")
    step = next(each for each in made.values if each.name == STEP)

    assert step.value == pytest.approx(STEP_US, rel=1e-3)
    assert isinstance(step.low, float)
    assert isinstance(step.high, float)
    assert step.low <= STEP_US <= step.high
    assert step.processes == 5
    assert {"graph breaks", "recompiles", "compilations", KERNELS, m.COLD_FIRST_CALL} <= {
        each.name for each in made.values
    }
    assert {"torch", "CPU", "device", "backend"} <= made.environment.keys()
    data = m.encode_json(made)
    assert m.decode_json(data, m.TrendPoint) == made
    assert len(data) < 8000


def test_the_machine_itself_has_a_line_of_its_own() -> None:
    for turns, values in (((6.0, 6.2, 9.0), [6.2]), ((), [])):
        speed = m.MachineSpeed(host_us=turns, device_us=())
        run = timed(profile().runs[0], STEP_US, machine=speed)
        made = point(profile(runs=(run,)), "")

        assert [each.value for each in made.values if each.name == CHECK_LOOP] == values


def test_a_step_is_put_down_to_its_commit_with_size_and_interval() -> None:
    found = trend(points(stepped(20, 40, 1.1)), ())

    (change,) = about(found, STEP)
    assert (change.first, change.last, change.since) == (20, 20, 19)
    assert change.commit.startswith("2020")
    assert change.metric.verdict is m.MetricVerdict.WORSE
    assert m.known(change.metric.low) < 1.1 < m.known(change.metric.high)
    page = sheet(found)
    assert page.status is m.VerdictStatus.ATTENTION
    assert "at 2020202, 19 recordings ago" in page.verdict


def test_a_count_is_compared_exactly() -> None:
    made = points([1.0] * 4)
    made[2] = with_value(made[2], "graph breaks", 1.0)
    found = trend(made, ())

    assert [
        (each.first, each.metric.base, each.metric.head, each.metric.verdict)
        for each in about(found, "graph breaks")
    ] == [(3, 1.0, 0.0, m.MetricVerdict.BETTER), (2, 0.0, 1.0, m.MetricVerdict.WORSE)]
    assert all(isinstance(each.metric.low, m.Skipped) for each in about(found, "graph breaks"))


def test_a_count_that_creeps_within_its_tolerance_is_found_when_it_has_left_it() -> None:
    made = [with_value(each, KERNELS, 1000.0 + 4 * at) for at, each in enumerate(points([1.0] * 6))]

    assert [each.first for each in about(trend(made, ()), KERNELS)] == [3]


def test_another_environment_is_no_commits_work() -> None:
    made = points(stepped(20, 40, 1.3))
    made = [*made[:20], *in_torch(made[20:], "9.0")]
    made[20:] = [with_value(each, "graph breaks", 3.0) for each in made[20:]]
    found = trend(made, ())

    assert found.changes == ()
    assert found.sections == (0,) * 20 + (20,) * 20
    text = printers.text(sheet(found))
    assert "from 2020202 on: torch 2.13.0+cpu → 9.0" in text
    assert "within one environment" in text


def test_machines_that_take_turns_have_a_series_each() -> None:
    """As in a pool of CI runners: one is half as fast."""
    made = points([each * (1 + at % 2) for at, each in enumerate(stepped(30, 60, 1.1))])
    made = [in_torch([each], "9.0")[0] if at % 2 else each for at, each in enumerate(made)]
    found = trend(made, ())

    assert sorted(each.first for each in about(found, STEP)) == [30, 31]
    assert {m.known(each.metric.ratio) > 1.05 for each in about(found, STEP)} == {True}


def test_a_recording_without_a_value_is_a_gap() -> None:
    made = points(noise(30))
    made[7] = with_value(made[7], STEP, m.Skipped("the step died"))
    made[8] = replace(made[8], values=())
    found = trend(made, ())

    assert about(found, STEP) == []
    (line,) = [each for each in found.lines if each.metric.name == STEP]
    assert [at for at, each in enumerate(line.values) if isinstance(each, m.Skipped)] == [7, 8]
    page = printers.html(sheet(found))
    assert "in 28 of 30 recordings" in page
    assert page.count('<g class="curve c-0">\n<path') >= 1


def test_of_few_recordings_times_are_not_said_to_be_unchanged() -> None:
    page = sheet(trend(points([1.0] * 4), ()))

    assert page.status is m.VerdictStatus.INCONCLUSIVE
    assert page.verdict == ("No count changed; step has 4 of the 10 recordings that a time needs")
    assert sheet(trend(points(noise(30)), ())).verdict == "No metric changed"


def test_the_newest_change_is_first_everywhere() -> None:
    made = points(stepped(12, 40, 1.2))
    made[30:] = [with_value(each, "graph breaks", 1.0) for each in made[30:]]
    found = trend(made, ())
    page = sheet(found)

    assert [each.first for each in found.changes] == sorted(
        (each.first for each in found.changes), reverse=True
    )
    assert page.verdict.startswith("graph breaks of fused.default")
    for text in (printers.text(page), printers.markdown(page), printers.html(page)):
        assert text.index("graph breaks") < text.index("+20")


def test_a_regression_that_was_fixed_is_no_reason_for_attention() -> None:
    factors = [each * (1.2 if 15 <= at < 25 else 1) for at, each in enumerate(noise(40))]
    page = sheet(trend(points(factors), ()))

    assert page.status is m.VerdictStatus.OK
    assert page.verdict.startswith("step of fused.default \N{MINUS SIGN}")


def test_a_page_over_500_commits_stays_below_a_megabyte() -> None:
    chance = random.Random(2)
    slugs = [m.RunKey("fused", f"mode-{number}") for number in range(6)]
    made = []
    for each in points(stepped(250, 500, 1.1)):
        values = [replace(value, run=run) for run in slugs for value in each.values]
        # counts that change every time: the most that there is to draw and to list
        values = [
            replace(value, value=float(chance.randrange(10**6))) if value.time_of is None else value
            for value in values
        ]
        made.append(replace(each, values=tuple(values)))
    found = trend(made, ())
    page = printers.html(sheet(found))

    assert len(found.lines) == 66
    assert len(found.changes) > 10_000
    assert len(page.encode()) < 2**20
    assert "older ones are left out" in page


def test_texts_of_others_are_no_markup() -> None:
    made = points(stepped(20, 40, 1.2), workload=HOSTILE)
    made = [*made[:30], *in_torch(made[30:], HOSTILE)]
    made = [replace(each, commit=HOSTILE) for each in made]
    page = sheet(trend(made, [(HOSTILE, HOSTILE)]))

    assert "<script" not in printers.html(page)
    assert "<script" not in printers.markdown(page)
