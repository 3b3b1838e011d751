"""The three lines below the verdict."""

from __future__ import annotations

import msgspec

from kgprof.model import PassName, Profile, Rounds, Skipped, Spread
from kgprof.render.finding_list import finding_list
from kgprof.render.first_answers import answers
from kgprof.render.html import LEVELS
from tests.render import profiles

LIMITS = LEVELS[0]


def glance(profile: Profile) -> dict[str, tuple[str, str]]:
    """question: its text, and where its link leads."""
    return {
        answer.question: (answer.text, answer.anchor)
        for answer in answers(profile, finding_list(profile, LIMITS), LIMITS)
    }


def test_on_a_cpu_it_says_what_fills_the_step_of_the_fastest_run() -> None:
    said = glance(profiles.clean())

    assert said == {
        "Where the time goes": ("fused.default, traced step: pointwise 38 %, idle 23 %, GEMM 22 %", "time"),
        "Where to look first": (
            "no finding; 49 % of the kernel time of fused.default is " + profiles.clean().runs[5].kernels.rows[0].name,  # type: ignore[union-attr]
            "kernels",
        ),
        "What it stands on": (
            "results equal in all 6 runs that were compared; 306 step times per run, in one process each; "
            "p10 to p90 at most 9 % of the median; 2 reasons why something was not measured",
            "method",
        ),
    }


def test_on_a_gpu_it_says_how_busy_the_device_is_in_a_bare_step() -> None:
    text, _ = glance(profiles.cuda())["Where the time goes"]

    assert text.startswith("fused.default: GPU busy ")
    assert "without the profiler); of the device's time " in text
    assert "idle" not in text


def test_the_first_finding_of_the_page_is_where_to_look() -> None:
    text, anchor = glance(profiles.gate())["Where to look first"]

    assert text.startswith("KGP101 graph-break at step.py:41 derive: graph break in derive")
    assert anchor == "KGP101-broken41"


def test_what_went_wrong_leads_what_the_figures_stand_on() -> None:
    assert glance(profiles.dead())["What it stands on"][0].startswith("2 of 6 runs did not end well; ")
    assert "results DIFFER in 1 of 6 runs" in glance(profiles.findings())["What it stands on"][0]


def test_rounds_are_processes() -> None:
    profile = profiles.clean()
    unknown = Skipped(reason="no whole evaluation")
    step = profile.runs[0].step
    assert isinstance(step, Spread)
    rounds = Rounds(
        asked=4,
        numbers=(1, 2, 4),
        step_us=(5200.0, 5210.0, 5230.0),
        evaluation_s=(),
        warm_first_call_s=(1.0, 1.1),
        step=msgspec.structs.replace(step, samples=3, measured_in=PassName.TIMING),
        evaluation_time=unknown,
        per_unit=unknown,
        warm_first_call=unknown,
    )
    runs = tuple(msgspec.structs.replace(run, rounds=rounds) for run in profile.runs)

    text, _ = glance(msgspec.structs.replace(profile, runs=runs))["What it stands on"]

    assert "306 step times per run, in the first of 3 processes each" in text


def test_a_report_of_nothing_says_nothing_it_does_not_know() -> None:
    assert set(glance(profiles.empty())) <= {"What it stands on"}
