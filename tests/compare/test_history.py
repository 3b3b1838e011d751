"""More than two recordings in order: what each metric is, and how it changed."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.compare import CompareSettings, history
from kgprof.errors import UsageError
from kgprof.model import History, MetricHistory, Profile, RunKey, Skipped
from tests.analysis.compared import KEY, STEP_US, profile, slower


def of(*profiles: Profile) -> History:
    return history(
        profiles, CompareSettings(), [f"v{number}" for number, _ in enumerate(profiles, start=1)]
    )


def metric(found: History, name: str = "step", run: RunKey = KEY) -> MetricHistory:
    (one,) = (each for each in found.metrics if (each.run, each.name) == (run, name))
    return one


def test_each_recording_is_held_against_the_first_and_the_one_before() -> None:
    found = of(
        profile(),
        slower(profile(), 1.2 * STEP_US),
        slower(profile(), 1.2 * STEP_US),
        slower(profile(), STEP_US),
    )

    step = metric(found)

    assert [side.source for side in found.recordings] == ["v1", "v2", "v3", "v4"]
    assert step.values == pytest.approx(
        [STEP_US * factor for factor in (1.0, 1.2, 1.2, 1.0)], rel=1e-3
    )
    assert [each and each.verdict for each in step.against_first] == ["worse", "worse", "same"]
    assert [each and each.verdict for each in step.against_previous] == ["worse", "same", "better"]
    assert [each and each.ratio for each in step.against_previous] == pytest.approx(
        [1.2, 1.0, 1 / 1.2]
    )
    assert step.changed
    assert not metric(of(profile(), profile(), profile())).changed


def test_a_run_that_a_recording_lacks_is_not_there_and_no_zero() -> None:
    without = profile(runs=())

    step = metric(of(profile(), without, slower(profile(), 1.1 * STEP_US)))

    assert isinstance(step.values[1], Skipped)
    assert [isinstance(each, Skipped) for each in step.values] == [False, True, False]
    assert step.against_previous == (None, None)
    assert [each and each.verdict for each in step.against_first] == [None, "worse"]


def test_a_run_that_begins_later_has_its_values_from_there_on() -> None:
    step = metric(of(profile(runs=()), profile(), profile()))

    assert [isinstance(each, Skipped) for each in step.values] == [True, False, False]
    assert step.against_first == (None, None)
    assert step.against_previous[0] is None
    assert step.against_previous[1] is not None


def test_another_torch_is_said_where_it_comes_in() -> None:
    newer = msgspec.structs.replace(profile().environment, torch="2.99.0")

    found = of(profile(), profile(), msgspec.structs.replace(profile(), environment=newer))

    assert found.environments_differ == (
        f"torch {profile().environment.torch} -> 2.99.0 at recording 3",
    )


def test_another_workload_is_refused() -> None:
    with pytest.raises(UsageError, match=r"v1 is of linkpred and v3 of other\.py:step"):
        of(profile(), profile(), profile(workload="other.py:step"))
