"""The table that all renderers for people share."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from kgprof import model as m
from kgprof.document import summary
from kgprof.model import (
    Compilation,
    CompileSummary,
    Evaluation,
    KernelBreakdown,
    MachineSpeed,
    Profile,
    RunKey,
    RunReport,
    Skipped,
)
from kgprof.render import by_name
from tests.record import handmade
from tests.render import profiles

for_people = pytest.mark.parametrize("name", ["html", "text", "markdown"])


def with_runs(profile: Profile, *runs: RunReport) -> Profile:
    return msgspec.structs.replace(profile, runs=runs)


def words(name: str, profile: Profile) -> str:
    return " ".join(by_name(name).render(profile).replace("<br>", " ").split())


@for_people
def test_an_evaluation_that_counts_nothing_is_shown_by_its_whole_time(name: str) -> None:
    gone = Skipped(reason="the workload's evaluation counts nothing")
    run = msgspec.structs.replace(
        profiles.clean().runs[0], evaluation=gone, per_unit=gone, throughput=gone
    )

    shown = words(name, with_runs(profiles.clean(), run))

    assert "s/evaluation" in shown
    assert "0.531" in shown
    assert "s/evaluation" not in words(name, profiles.clean())


@for_people
def test_metrics_over_unknown_candidates_carry_a_mark_and_a_note(name: str) -> None:
    run = profiles.clean().runs[0]
    assert isinstance(run.evaluation, Evaluation)
    unknown = handmade.counted(run.evaluation, overflow=2520)

    shown = words(
        name, with_runs(profiles.clean(), msgspec.structs.replace(run, evaluation=unknown))
    )

    assert "0.4123 †" in shown
    assert "† batched.eager: 2,520 of 5,040 candidates (50.0 %) are undecided" in shown
    assert "†" not in words(name, profiles.clean())


@for_people
def test_a_stand_in_for_the_baseline_is_named(name: str) -> None:
    stand_in, other = (
        msgspec.structs.replace(run, is_baseline=False) for run in profiles.clean().runs[1:3]
    )
    profile = with_runs(
        profiles.clean(),
        msgspec.structs.replace(stand_in, compared_with=None),
        msgspec.structs.replace(other, compared_with=stand_in.key),
    )

    assert (
        "Results were compared with those of batched.default, not with the baseline batched.eager, "
        "which left none."
    ) in words(name, profile)
    results = next(column for column in summary.columns(profile) if column.name == "results")
    assert results.cell(profile.runs[1]).details[0] == "same as batched.default (5,040)"


# ---------------------------------------------------------------- for a stranger


@for_people
def test_the_conditions_of_the_evaluation_are_in_sight(name: str) -> None:
    assert (
        "The evaluation: ties realistic, corruptions 10 per side, policy seeded random weights, "
        "dtype float64, depth 6."
    ) in words(name, profiles.clean())


def test_the_strategies_that_ran_are_explained() -> None:
    shown = words("html", profiles.clean())

    assert "Lockstep batches." in shown
    assert "Slots are refilled at once." in shown
    assert "Did not run." not in shown


def test_steps_of_an_evaluation_stand_beside_what_it_finished() -> None:
    finished = next(
        column for column in summary.columns(profiles.clean()) if column.name == "finished"
    )

    assert finished.cell(profiles.clean().runs[0]).details[-1] == "in 102 steps"


def test_below_the_first_call_is_what_it_compiled_and_apart_what_a_later_one_did() -> None:
    compiled = profiles.clean().runs[0].compile
    assert isinstance(compiled, CompileSummary)
    each = [
        Compilation(compile_id="0/0", function="step", location="x.py:1", duration_s=1.0, call=n)
        for n in (0, 0, 60)
    ]

    words = [
        summary.made(msgspec.structs.replace(compiled, compilations=tuple(each[:n])))
        for n in (1, 2, 3)
    ]

    assert words == ["1 compilation", "2 compilations", "2 compilations, 1 later"]


@pytest.mark.parametrize(
    ("device", "kernel"), [("cuda", "GPU check kernel"), ("cpu", "arithmetic on all threads")]
)
def test_how_far_the_machine_moved_over_the_rounds_is_said_once(device: str, kernel: str) -> None:
    run = profiles.clean().runs[0]
    rounds = profiles._rounds(1000.0)
    slower = msgspec.structs.replace(
        rounds, machine=MachineSpeed(host_us=(6.5,), device_us=(208.0,))
    )
    runs = [msgspec.structs.replace(run, rounds=each) for each in (rounds, slower)]

    notes = summary.footnotes(
        with_runs(msgspec.structs.replace(profiles.clean(), device=device), *runs)
    )

    assert [note for note in notes if "Machine" in note] == [
        f"Machine stability across processes: CPU check loop 4.00 to 6.50 µs, {kernel} 208 to 212 "
        "µs."
    ]


def test_modes_that_promise_cuda_graphs_say_whether_any_was_launched() -> None:
    runs = []
    for run, launches in zip(profiles.cuda().runs, (20, 0), strict=False):
        assert isinstance(run.kernels, KernelBreakdown)
        kernels = msgspec.structs.replace(run.kernels, graph_launches=launches)
        key = RunKey(strategy=f"s{launches}", mode="reduce-overhead")
        runs.append(msgspec.structs.replace(run, key=key, kernels=kernels))

    notes = summary.footnotes(with_runs(profiles.cuda(), *runs))

    assert "s0.reduce-overhead: no CUDA graph launched in the traced steps." in notes
    assert "CUDA graphs launched in the traced steps: s20.reduce-overhead 20 in 20 steps." in notes
    assert not [note for note in summary.footnotes(profiles.cuda()) if "CUDA graph" in note]


@pytest.mark.parametrize(
    ("profile", "level", "word", "tone"),
    [
        (profiles.clean, m.Level.WARNING, "Measured", "attention"),
        (profiles.clean, m.Level.NOTE, "Measured", "ok"),
        (profiles.dead, m.Level.NOTE, "Failed", "failed"),
        (profiles.comparison, m.Level.WARNING, "Regression", "failed"),
    ],
)
def test_ok_is_no_word_for_what_was_only_measured(
    profile: Callable[[], Profile], level: m.Level, word: str, tone: str
) -> None:
    found = m.Finding(rule="KGP101", level=level, message="breaks", run=None, fingerprint="0" * 12)
    measured = msgspec.structs.replace(profile(), findings=(found,))
    assert (summary.status_word(measured), summary.tone(measured)) == (word, tone)


def test_a_gate_that_passed_is_ok_and_an_accepted_warning_asks_for_nothing() -> None:
    ok = m.Verdict(status=m.VerdictStatus.OK, text="every budget holds")
    passed = msgspec.structs.replace(profiles.gate(), verdict=ok)
    assert (summary.status_word(passed), summary.tone(passed)) == ("OK", "ok")
    found = m.Finding(
        rule="KGP101",
        level=m.Level.WARNING,
        message="breaks",
        run=None,
        fingerprint="0" * 12,
        accepted="known",
    )
    measured = msgspec.structs.replace(profiles.clean(), findings=(found,))
    assert summary.tone(measured) == "ok"


def test_what_a_script_compiles_before_its_first_step_is_not_in_it() -> None:
    compiled = profiles.clean().runs[1].compile
    assert isinstance(compiled, CompileSummary)
    calls = [msgspec.structs.replace(compiled.compilations[0], call=call) for call in (-1, 0, 0, 7)]

    said = summary.made(msgspec.structs.replace(compiled, compilations=tuple(calls)))

    assert said == "2 compilations, 1 before it, 1 later"
