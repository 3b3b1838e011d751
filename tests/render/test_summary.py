"""The table that all renderers for people share."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.model import Evaluation, Profile, RunReport, Skipped
from kgprof.render import by_name, summary
from tests.render import profiles

for_people = pytest.mark.parametrize("name", ["html", "text", "markdown"])


def with_runs(profile: Profile, *runs: RunReport) -> Profile:
    return msgspec.structs.replace(profile, runs=runs)


def words(name: str, profile: Profile) -> str:
    return " ".join(by_name(name).render(profile).replace("<br>", " ").split())


@for_people
def test_an_evaluation_that_counts_nothing_is_shown_by_its_whole_time(name: str) -> None:
    gone = Skipped(reason="the workload's evaluation counts nothing")
    run = msgspec.structs.replace(profiles.clean().runs[0], evaluation=gone, ms_per_candidate=gone)

    shown = words(name, with_runs(profiles.clean(), run))

    assert "s/evaluation" in shown
    assert "0.531" in shown
    assert "s/evaluation" not in words(name, profiles.clean())


@for_people
def test_metrics_over_unknown_candidates_carry_a_mark_and_a_note(name: str) -> None:
    run = profiles.clean().runs[0]
    assert isinstance(run.evaluation, Evaluation)
    unknown = msgspec.structs.replace(run.evaluation, overflow=2520)

    shown = words(name, with_runs(profiles.clean(), msgspec.structs.replace(run, evaluation=unknown)))

    assert "0.4123 †" in shown
    assert "† batched.eager: 2,520 of 5,040 candidates (50.0 %) are unknown" in shown
    assert "†" not in words(name, profiles.clean())


@for_people
def test_a_stand_in_for_the_baseline_is_named(name: str) -> None:
    stand_in, other = (msgspec.structs.replace(run, is_baseline=False) for run in profiles.clean().runs[1:3])
    profile = with_runs(
        profiles.clean(),
        msgspec.structs.replace(stand_in, compared_with=None),
        msgspec.structs.replace(other, compared_with=stand_in.key),
    )

    assert (
        "Results were compared with those of batched.default, not with the baseline batched.eager, which left none."
    ) in words(name, profile)
    results = next(column for column in summary.columns(profile) if column.name == "results")
    assert results.cell(profile.runs[1]).details[0] == "5,040 = batched.default"
