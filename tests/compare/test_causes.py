"""What is told as a cause is a part of what there is, is told once, and is told of the run that it
belongs to."""

from __future__ import annotations

import random

import msgspec
import pytest

from kgprof.compare import compare
from kgprof.compare.causes import (
    CLOCKLESS,
    MOST_CAUSES,
    OTHERS,
    PART,
    REASON,
    RESULT,
    Ranked,
    in_order,
)
from kgprof.compare.verdict import reasons
from kgprof.model import (
    Cause,
    CauseKind,
    KernelKind,
    Level,
    Location,
    Profile,
    RunKey,
    Skipped,
    Undecided,
)
from tests.analysis.compared import (
    BEFORE,
    STEP_US,
    STEPS,
    changed,
    comparison,
    finding,
    kernels,
    only_run,
    profile,
    slower,
    timed,
    traced,
    with_run,
)

RULES = ("KGP101", "KGP107", "KGP201", "KGP401", "KGP402", "KGP404", "KGP602")


def evaluated(
    given: Profile, step_us: float, *, times_as_many: float, evaluation_s: float
) -> Profile:
    """Another number of steps an evaluation, of the same candidates."""
    run = given.runs[0]
    assert not isinstance(run.evaluation, Skipped)
    steps = round(times_as_many * run.evaluation.steps)
    evaluation = msgspec.structs.replace(run.evaluation, steps=steps)
    again = timed(
        msgspec.structs.replace(run, evaluation=evaluation), step_us, evaluation_s=evaluation_s
    )
    return msgspec.structs.replace(given, runs=(again,))


def by_chance(base: Profile, chance: random.Random) -> Profile:
    rows = [
        (n, k, c * chance.choice((0.5, 1, 1, 2)), us * chance.uniform(0.3, 2.5))
        for n, k, c, us in BEFORE
    ]
    step_us, more = chance.uniform(200.0, 2000.0), chance.choice((0.5, 1, 1, 2, 4))
    whole_s = more * 102 * step_us / 1e6 * chance.choice((0.6, 1, 1, 1.5, 3))
    head = evaluated(base, step_us, times_as_many=more, evaluation_s=whole_s)
    found = [
        finding(rule, line=line, fingerprint=rule, level=chance.choice((Level.WARNING, Level.NOTE)))
        for line, rule in enumerate(RULES, start=1)
        if chance.random() < 0.3
    ]
    return msgspec.structs.replace(
        traced(head, *rows, idle_us=chance.uniform(0.0, 1200.0)), findings=tuple(found)
    )


def test_the_causes_are_parts_of_the_difference_and_never_more_than_all_of_it() -> None:
    base, explained = traced(profile(), *BEFORE), 0
    for seed in range(300):
        run = only_run(base, by_chance(base, random.Random(seed)))
        if isinstance(run.explained_us, Skipped):
            continue
        told = [
            cause.explains_us for cause in run.causes if not isinstance(cause.explains_us, Skipped)
        ]
        assert not isinstance(run.delta_us, Skipped)
        assert all(us > 0 for us in told), seed
        assert sum(told) == pytest.approx(run.explained_us), seed
        assert run.explained_us <= run.delta_us * (1 + 1e-9), seed
        assert run.remainder_us == pytest.approx(run.delta_us - run.explained_us), seed
        explained += bool(told)
    assert explained > 100


def test_more_steps_that_cost_nothing_together_are_told_without_a_figure() -> None:
    """Four times as many, each a fifth as long: what the evaluation takes longer lies between
    them."""
    base = traced(profile(), *BEFORE)
    head = evaluated(base, STEP_US / 5, times_as_many=4.0, evaluation_s=0.3)

    run = only_run(base, head)

    between, steps = run.causes
    assert (between.cause, between.subject) == ("host", "outside the median step")
    assert (steps.cause, steps.explains_us) == ("steps", CLOCKLESS)
    assert run.explained_us == between.explains_us == pytest.approx(run.delta_us)


def test_the_larger_of_more_steps_and_a_new_finding_comes_first() -> None:
    """Twice as many steps, each a tenth longer because a read waits."""
    base = traced(profile(), *BEFORE)
    head = evaluated(base, 1.1 * STEP_US, times_as_many=2.0, evaluation_s=0.2244)
    head = msgspec.structs.replace(traced(head, *BEFORE, idle_us=500.0), findings=(finding(),))

    first, second = only_run(base, head).causes

    assert (first.cause, second.cause) == ("steps", "finding")
    assert first.explains_us == pytest.approx(102 * 1050.0, rel=0.01)
    assert second.explains_us == pytest.approx(153 * 100.0, rel=0.01)


@pytest.mark.parametrize(("copies", "expected"), [(2.0, CLOCKLESS), (8.0, OTHERS)])
def test_a_finding_is_counted_with_another_only_where_that_one_claims_what_it_can_cost(
    copies: float, expected: Skipped
) -> None:
    """KGP201 comes first and claims what the host waits and the copies; KGP404 can cost copies
    alone."""
    base = traced(profile(), *BEFORE)
    rows = changed(BEFORE, "aten::copy_", copies, 50.0 * copies)
    head = traced(slower(base, 1500.0), *rows, idle_us=600.0)  # type: ignore[arg-type]
    found = (finding(), finding("KGP404", line=50, fingerprint="written", message="writes to x"))

    told = only_run(base, msgspec.structs.replace(head, findings=found)).causes

    written = next(cause for cause in told if cause.fingerprint == "written")
    assert written.explains_us == expected


def test_a_lost_graph_whose_cost_a_finding_claims_is_counted_with_it() -> None:
    rows = (("gemm", KernelKind.GEMM, 4.0, 300.0), ("index", KernelKind.INDEX, 10.0, 300.0))
    base = traced(profile(), *rows, device="cuda", graphs=2)
    base = with_run(base, kernels=msgspec.structs.replace(base.runs[0].kernels, launches=2 * STEPS))
    head = traced(slower(base, 1800.0), *rows, idle_us=1200.0, device="cuda", graphs=0)

    found, graphs = only_run(base, msgspec.structs.replace(head, findings=(finding(),))).causes

    assert (found.cause, found.explains_us) == ("finding", pytest.approx(800.0, rel=0.01))
    assert (graphs.cause, graphs.explains_us) == ("cuda-graphs", OTHERS)


def test_the_note_says_that_the_traces_explain_where_they_do() -> None:
    """Kernels that ran at the same time: each takes longer, and the window does not."""
    base = traced(profile(), *BEFORE)
    head = traced(slower(base, 1200.0), *changed(BEFORE, "aten::addmm", 4.0, 500.0))  # type: ignore[arg-type]
    overlapped = msgspec.structs.replace(
        head.runs[0].kernels, window_us=1000.0 * STEPS, busy_us=600.0 * STEPS
    )

    run = only_run(base, with_run(head, kernels=overlapped))

    assert run.explained_us == pytest.approx(200.0, rel=0.01)
    assert (run.traced_us, run.scale) == (0.0, pytest.approx(1.0, rel=0.01))


def test_more_kernels_of_which_no_part_says_which_are_told_by_their_number() -> None:
    """0.4 launches more of one that was there, and 0.4 of a new one: neither is half a launch."""
    base = traced(profile(), ("index", KernelKind.INDEX, 10.0, 600.0))
    more = (("index", KernelKind.INDEX, 10.4, 624.0), ("mul", KernelKind.POINTWISE, 0.4, 4.0))

    (cause,) = only_run(base, traced(profile(), *more)).causes

    assert (cause.cause, cause.subject) == ("launches", "10 -> 10.8 kernels per step")


def test_of_another_environment_it_is_not_said_that_no_time_is_worse() -> None:
    head = slower(profile(), 2000.0)
    head = msgspec.structs.replace(
        head, environment=msgspec.structs.replace(head.environment, torch="2.14.0")
    )

    run = only_run(profile(), head)

    assert run.metrics[0].undecided is Undecided.OTHER_ENVIRONMENT
    assert run.explained_us == Skipped(reason=run.metrics[0].note)


def test_settings_are_one_cause_and_crowd_out_no_other() -> None:
    """Nine settings come first, and leave what the traces show its place."""
    base = traced(profile(), *BEFORE)
    head = evaluated(base, 1.5 * STEP_US, times_as_many=1.0, evaluation_s=0.153)
    evaluation = head.runs[0].evaluation
    assert not isinstance(evaluation, Skipped)
    other = {**evaluation.settings, **{f"setting {number}": "on" for number in range(9)}}
    head = with_run(head, evaluation=msgspec.structs.replace(evaluation, settings=other))

    settings, host = only_run(base, traced(head, *BEFORE, idle_us=900.0)).causes

    assert (settings.cause, settings.explains_us) == ("setting", CLOCKLESS)
    assert (host.cause, host.explains_us) == ("host", pytest.approx(102 * 500.0, rel=0.01))


def test_of_too_many_causes_those_stay_that_explain_a_part() -> None:
    def ranked(rank: int, kind: CauseKind, explains_us: float | Skipped, number: int) -> Ranked:
        return Ranked(rank=rank, cause=Cause(cause=kind, text=f"{number}", explains_us=explains_us))

    results = ranked(RESULT, CauseKind.RESULTS, CLOCKLESS, 0)
    kernels = [ranked(PART, CauseKind.KERNEL, 1.0, number) for number in range(10)]
    findings = [ranked(REASON, CauseKind.FINDING, OTHERS, number) for number in range(10)]

    told = [cause.cause for cause in in_order([*kernels, *findings, results])]

    assert told == ["results", *["finding"] * (MOST_CAUSES - 1), *["kernel"] * 10]


# ---------------------------------------------------------------- several runs


def two_runs(*step_us: float) -> Profile:
    """fused.default and batched.default, each with a slower kernel of its own where it is above
    1000 us."""
    given = profile()
    runs = []
    for strategy, us, name in zip(
        ("fused", "batched"), step_us, ("aten::addmm", "aten::index"), strict=True
    ):
        number, was = next((number, was) for row, _, number, was in BEFORE if row == name)
        rows = changed(BEFORE, name, number, was + us - STEP_US)
        run = timed(given.runs[0], us)
        key = RunKey(strategy=strategy, mode="default")
        runs.append(msgspec.structs.replace(run, key=key, kernels=kernels(*rows)))  # type: ignore[arg-type]
    return msgspec.structs.replace(given, runs=tuple(runs))


def test_the_slowest_run_leads_with_its_own_cause() -> None:
    base, found = (
        two_runs(STEP_US, STEP_US),
        compare(two_runs(STEP_US, STEP_US), two_runs(1100.0, 1500.0)),
    )

    assert found.comparison is not None
    worse = [reason.worse for reason in reasons(base, found, found.comparison)]
    assert [run.slug for run in worse if run] == ["batched.default"] * 2 + ["fused.default"] * 2
    assert [cause.subject for cause in found.comparison.causes] == ["aten::index", "aten::addmm"]


def test_a_cause_of_one_run_is_not_said_of_another_that_nothing_explains() -> None:
    """fused is slower, and its trace is not: the kernel that is slower is batched's."""
    base, head = two_runs(STEP_US, STEP_US), two_runs(STEP_US, 1100.0)
    unexplained = timed(head.runs[0], 1500.0)

    found = compare(base, msgspec.structs.replace(head, runs=(unexplained, head.runs[1])))

    assert found.comparison is not None
    assert [[cause.subject for cause in run.causes] for run in found.comparison.runs] == [
        [],
        ["aten::index"],
    ]
    assert "aten::index" not in found.verdict.text


def copying(copies: float, *lines: tuple[int, ...]) -> Profile:
    """Copies in both runs, each in lines of its own."""
    given = two_runs(STEP_US, STEP_US)
    runs = []
    for mine, run in zip(lines, given.runs, strict=True):
        rows = changed(BEFORE, "aten::copy_", copies, 50.0 * copies)
        traced_run = kernels(*rows)  # type: ignore[arg-type]
        places = tuple(Location(file="/src/step.py", line=line) for line in mine)
        placed = tuple(msgspec.structs.replace(row, lines=places) for row in traced_run.rows)
        copied = msgspec.structs.replace(traced_run, rows=placed)
        us = STEP_US + 50.0 * (copies - 2.0)
        runs.append(msgspec.structs.replace(timed(run, us), kernels=copied))
    return msgspec.structs.replace(given, runs=tuple(runs))


def test_the_same_change_at_two_places_is_two_causes_of_the_whole() -> None:
    told = comparison(copying(2.0, (1,), (2,)), copying(8.0, (1,), (2,))).causes

    assert [(cause.cause, cause.location and cause.location.line) for cause in told] == [
        ("copies", 1),
        ("copies", 2),
    ]


def test_more_copies_are_shown_at_the_line_that_copies_only_in_head() -> None:
    told = comparison(copying(2.0, (10, 20), (1,)), copying(8.0, (10, 20, 30), (1,))).causes

    assert [(cause.cause, cause.location and cause.location.line) for cause in told] == [
        ("copies", 30),
        ("copies", 1),
    ]


@pytest.mark.parametrize("compiles", [True, False])
def test_a_first_call_is_about_compiling_only_where_something_is_compiled(compiles: bool) -> None:
    def starting(first_call_s: float) -> Profile:
        given = profile()
        made = given.runs[0].compile
        assert not isinstance(made, Skipped)
        compilations = made.compilations if compiles else ()
        return with_run(
            given,
            compile=msgspec.structs.replace(
                made, first_call_s=first_call_s, compilations=compilations
            ),
        )

    compared = comparison(starting(1.0), starting(9.0))

    assert [cause.cause for cause in compared.causes] == [CauseKind.COMPILE] * compiles
