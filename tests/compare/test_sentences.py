"""The exact sentences of a comparison, one test a family. Elsewhere tests assert fields, so that a
sentence is improved here and in the goldens.
"""

from __future__ import annotations

import msgspec
import pytest

from kgprof.compare import compare
from kgprof.model import ComparedMetric, CompileSummary, KernelKind, Profile, Skipped
from tests.analysis.compared import (
    BEFORE,
    changed,
    comparison,
    finding,
    machine_speed,
    only_run,
    profile,
    slower,
    timed,
    traced,
    with_run,
)
from tests.record import handmade
from tests.render import profiles

NOISY = (1.0, 0.85, 1.15, 0.9, 1.1)
DRIFTED = (1.10, 1.13, 1.07, 1.12, 1.09)
OWN = (1.001, 0.999, 1.0, 1.002, 0.998)
STEADY = (1.0, 1.02, 0.97, 1.01, 0.99)


def in_rounds(
    *rounds: float, host: tuple[float, ...] = (1.0,) * 5, device: tuple[float, ...] = (1.0,) * 5
) -> Profile:
    """A step of so many milliseconds in each round."""
    run = timed(
        profile().runs[0], 1000.0, rounds=rounds, machine=machine_speed(host=host, device=device)
    )
    return msgspec.structs.replace(profile(), runs=(run,))


def placed(rule: str, message: str) -> Profile:
    return msgspec.structs.replace(profile(), findings=(finding(rule, message=message),))


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("base", "head", "text"),
    [
        (
            traced(profile(), *BEFORE),
            traced(slower(profile(), 1250.0), *changed(BEFORE, "aten::addmm", 4.0, 550.0)),  # type: ignore[arg-type]
            "fused.default: step 25.0 % slower (95 % CI +24.3 to +25.7 %, 5 + 5 rounds; limit 5 "
            "%); likely cause: aten::addmm: 75 -> 138 µs per launch, 4 launches per step "
            "(accounts for 0.25 of the 0.25 ms/step)",
        ),
        (
            profile(),
            slower(profile(), 800.0),
            "better, fused.default: step 20.0 % faster (95 % CI -20.4 to -19.6 %, 5 + 5 rounds; "
            "limit 5 %)",
        ),
        (
            profile(),
            profile(),
            "no regression: every time is within its limit in 1 run, and there is no new finding",
        ),
        (
            in_rounds(1.0),
            in_rounds(1.0),
            "no time could be judged: both sides were timed in one process: an interval needs "
            "`kgprof profile --rounds 5` on both sides",
        ),
        (
            profile(),
            placed("KGP101", "a graph break"),
            "fused.default: new KGP101 at step.py:41: a graph break",
        ),
        (
            profile(),
            with_run(profile(), step=Skipped(reason="TIMING timed out")),
            "fused.default: step was not compared: TIMING timed out",
        ),
        (profiles.gate(), profiles.gate(), "no new finding in 2 runs; no time was compared"),
        (
            profile(),
            profile(runs=()),
            "no verdict, nothing to compare: the two sides have no run in common",
        ),
    ],
    ids=["worse", "better", "same", "one round", "finding", "gone", "no times", "no run"],
)
def test_a_verdict_is_a_sentence(base: Profile, head: Profile, text: str) -> None:
    assert compare(base, head).verdict.text == text


def test_a_run_without_a_time_is_not_within_its_limit() -> None:
    timed_run = profile().runs[0]
    untimed = next(run for run in profiles.gate().runs if run.key != timed_run.key)
    both = profile(runs=(timed_run, untimed))

    assert compare(both, both).verdict.text.startswith(
        "no regression: every time is within its limit in 1 of 2 runs, "
    )


def test_a_difference_of_seconds_is_told_without_an_exponent() -> None:
    base = traced(slower(profile(), 1e6), *BEFORE)
    rows = changed(BEFORE, "aten::addmm", 4.0, 900.0)

    text = compare(base, traced(slower(base, 3.5e6), *rows)).verdict.text  # type: ignore[arg-type]

    assert "step 250.0 % slower" in text
    assert text.endswith(
        "aten::addmm: 75 -> 225 µs per launch, 4 launches per step (accounts for 1,038 of the "
        "2,500 ms/step)"
    )


# ---------------------------------------------------------------- notes


def step(base: Profile, head: Profile) -> ComparedMetric:
    return only_run(base, head).metrics[0]


@pytest.mark.parametrize(
    ("base", "head", "note"),
    [
        (profile(), slower(profile(), 1030.0), "slower, within the budget"),
        (
            in_rounds(*NOISY),
            in_rounds(*(1.12 * each for each in NOISY)),
            "the interval includes the limit; about 32 rounds per side would settle it",
        ),
        (
            in_rounds(*STEADY, host=STEADY),
            in_rounds(*(each * own for each, own in zip(DRIFTED, OWN, strict=True)), host=DRIFTED),
            "the machine itself was 10.4 % slower in head's rounds (CPU check loop), more than "
            "the limit; `kgprof compare --record` records both in turn",
        ),
    ],
    ids=["within", "straddles", "machine"],
)
def test_a_note_of_a_metric_says_what_a_reader_must_know(
    base: Profile, head: Profile, note: str
) -> None:
    assert step(base, head).note == note


def test_notes_of_a_run_say_how_far_the_traces_go_and_what_the_machine_did() -> None:
    slower = tuple(1.03 * each for each in STEADY)
    base, head = (
        in_rounds(*STEADY, host=STEADY),
        in_rounds(*(1.3 * each for each in STEADY), host=slower),
    )
    unknown = msgspec.structs.replace(head.environment, torch="2.14.0")

    (other,) = comparison(
        base, msgspec.structs.replace(head, environment=unknown), allow_different_environment=True
    ).runs

    assert only_run(traced(base, *BEFORE), traced(head, *BEFORE, idle_us=600.0)).notes == (
        "under the profiler the step changed by +200 µs; scaled by 1.04 to match the unprofiled "
        "times",
        "the machine itself was 3.0 % slower in head's rounds (CPU check loop)",
    )
    assert other.notes[-1] == (
        "whether the machine was slower during head's rounds is unknown: the environments differ, "
        "so the loops that check the machine's speed do too"
    )


# ---------------------------------------------------------------- causes


def texts(base: Profile, head: Profile) -> list[str]:
    return [cause.text for cause in comparison(base, head).causes]


@pytest.mark.parametrize(
    ("rows", "idle_us", "text"),
    [
        (
            changed(BEFORE, "aten::addmm", 4.0, 500.0),
            400.0,
            ("aten::addmm: 75 -> 125 µs per launch, 4 launches per step"),
        ),
        (
            (*BEFORE, ("aten::mul", KernelKind.POINTWISE, 6.0, 200.0)),
            400.0,
            "6 launches per step of 1 new kernel, aten::mul first",
        ),
        (
            changed(BEFORE, "aten::index", 20.0, 400.0),
            400.0,
            "+10 launches per step of 1 kernel on both sides, aten::index first",
        ),
        (
            changed(BEFORE, "aten::copy_", 8.0, 300.0),
            400.0,
            "copies and fills: +6 per step (2 -> 8), aten::copy_ first",
        ),
        (BEFORE, 600.0, "more time outside of operators"),
    ],
    ids=["kernel", "new", "more", "copies", "host"],
)
def test_a_part_of_the_time_says_what_takes_longer(rows: object, idle_us: float, text: str) -> None:
    base = traced(profile(), *BEFORE)

    assert texts(base, traced(slower(base, 1200.0), *rows, idle_us=idle_us)) == [text]  # type: ignore[misc]


def test_a_finding_says_what_of_the_traces_is_its_doing() -> None:
    base = traced(profile(), *BEFORE)
    head = traced(slower(base, 1200.0), *BEFORE, idle_us=600.0)
    head = msgspec.structs.replace(head, findings=(finding(),))

    (cause,) = comparison(base, head).causes

    assert cause.text == "new KGP201 Tensor.item reads 1 value a step"
    assert cause.seen_in_traces == ("more time outside of operators",)


def test_facts_say_both_sides() -> None:
    given = profile()
    evaluation, memory, summary = (
        given.runs[0].evaluation,
        profiles.watched().runs[0].memory,
        given.runs[0].compile,
    )
    assert not isinstance(evaluation, Skipped)
    assert not isinstance(memory, Skipped)
    assert not isinstance(memory.peaks, Skipped)
    assert isinstance(summary, CompileSummary)
    small, large = (
        with_run(
            given,
            memory=msgspec.structs.replace(
                memory, peaks=msgspec.structs.replace(memory.peaks, allocated_bytes=mib * 2**20)
            ),
            compile=msgspec.structs.replace(
                summary, compilations=summary.compilations[:1] * compilations
            ),
            evaluation=msgspec.structs.replace(evaluation, settings={"batch size": batch}),
        )
        for mib, compilations, batch in ((1000, 1, "256"), (1400, 2, "128"))
    )

    assert texts(small, large) == [
        "batch size: 256 -> 128",
        "peak allocated 1,000.0 MiB -> 1,400.0 MiB",
        "compilations 1 -> 2 compilations",
    ]


def test_lost_graphs_say_why() -> None:
    rows = (("gemm", KernelKind.GEMM, 4.0, 300.0),)
    base = traced(profile(), *rows, device="cuda", graphs=2)
    head = traced(placed("KGP301", "a CPU tensor"), *rows, device="cuda", graphs=0)

    assert "2 -> 0 CUDA-graph launches per step" in texts(base, head)


def test_results_say_how_many_moved() -> None:
    given = profile()
    evaluation = given.runs[0].evaluation
    assert not isinstance(evaluation, Skipped)
    moved = handmade.counted(evaluation, proved=372, failed=4060)

    (text,) = texts(given, with_run(given, evaluation=moved))

    assert text.startswith("results changed: proved ")
