from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgprof.compare import OTHER_LOOPS, CompareSettings, compare
from kgprof.compare.causes import CLOCKLESS, changed_results
from kgprof.compare.metrics import BREAKS, named
from kgprof.compare.parts import more_calls
from kgprof.compare.verdict import reasons
from kgprof.document import compare_words
from kgprof.errors import EXIT_INCONCLUSIVE, UsageError
from kgprof.measures.times import spread
from kgprof.model import (
    ComparedMetric,
    CompileSummary,
    Finding,
    HostBreakdown,
    HostRow,
    InTurn,
    KernelKind,
    Level,
    Location,
    Profile,
    Rounds,
    RunAgreement,
    RunComparison,
    Skipped,
    TakenInTurn,
    Undecided,
)
from kgprof.render import by_name
from tests.analysis.compared import (
    BEFORE,
    KEY,
    ROOT,
    ROUNDS,
    STEP_US,
    STEPS,
    causes,
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
from tests.compare.test_findings import NO_MEMORY, without
from tests.record import handmade
from tests.render import profiles

# ---------------------------------------------------------------- nothing changed


@pytest.mark.parametrize("state", ["clean", "cuda", "findings", "as_is", "watched", "gate", "huge"])
def test_a_profile_beside_itself_is_clean(state: str) -> None:
    given = profiles.STATES[state]()
    if state in ("clean", "cuda"):
        given = msgspec.structs.replace(
            given, runs=tuple(timed(run, STEP_US) for run in given.runs)
        )

    found = compare(given, given)

    assert found.comparison is not None
    assert found.comparison.causes == ()
    assert {one.status for one in found.comparison.findings} <= {"unchanged"}
    verdicts = {metric.verdict for run in found.comparison.runs for metric in run.metrics}
    assert verdicts <= {"same", "inconclusive", "not observed"}
    if state in ("clean", "cuda"):
        assert (found.exit_code, found.verdict.status) == (0, "ok")


@settings(max_examples=40, deadline=None)
@given(
    base=st.lists(st.floats(min_value=900.0, max_value=1100.0), min_size=2, max_size=6),
    ratio=st.floats(min_value=0.7, max_value=1.5),
)
def test_swapping_the_sides_swaps_worse_and_better(base: list[float], ratio: float) -> None:
    one = with_run(profile(), **_times([us / STEP_US for us in base], 1.0))
    other = with_run(profile(), **_times([us / STEP_US for us in base], ratio))

    there, back = (metrics_of(only_run(*sides)) for sides in ((one, other), (other, one)))

    for name in ("step", "evaluation"):
        assert (there[name] == "worse") == (back[name] == "better")
        assert (there[name] == "better") == (back[name] == "worse")


def metrics_of(run: RunComparison) -> dict[str, str]:
    return {metric.name: metric.verdict for metric in run.metrics}


def _times(rounds: Sequence[float], ratio: float) -> dict[str, object]:
    run = timed(profile().runs[0], STEP_US * ratio, rounds=rounds)
    return {name: getattr(run, name) for name in ("step", "evaluation_time", "per_unit", "rounds")}


# ---------------------------------------------------------------- the machine itself

DRIFTED = (1.10, 1.13, 1.07, 1.12, 1.09)
STEADY = (1.0, 1.02, 0.97, 1.01, 0.99)


def on_a_machine(
    host: Sequence[float], *, device: Sequence[float] = (1.0,) * 5, program: float = 1.0
) -> Profile:
    """A step that follows its host: what the host takes longer, it takes longer."""
    given = profile()
    noise = (1.001, 0.999, 1.0, 1.002, 0.998)
    rounds = [program * factor * own for factor, own in zip(host, noise, strict=True)]
    run = timed(
        given.runs[0], STEP_US, rounds=rounds, machine=machine_speed(host=host, device=device)
    )
    return msgspec.structs.replace(given, runs=(run,))


def step_of(base: Profile, head: Profile) -> ComparedMetric:
    return next(metric for metric in only_run(base, head).metrics if metric.name == "step")


@pytest.mark.parametrize("loop", ["host", "device"])
def test_a_machine_that_moved_by_more_than_the_budget_leaves_every_time_open(loop: str) -> None:
    """The program may be 20 % slower or not at all: separately recorded sides cannot tell."""
    speeds = (
        {"host": DRIFTED, "device": STEADY}
        if loop == "host"
        else {"host": STEADY, "device": DRIFTED}
    )
    base, head = (
        on_a_machine(STEADY, device=STEADY),
        on_a_machine(speeds["host"], device=speeds["device"], program=1.2),
    )

    step, run = step_of(base, head), only_run(base, head)

    assert compare(base, head).exit_code == 6
    assert (step.verdict, step.undecided) == ("inconclusive", Undecided.MACHINE_MOVED)
    assert not isinstance(run.machine, Skipped)
    assert [drift.loop for drift in run.machine if not drift.low <= 1 <= drift.high] == [loop]
    assert run.causes == ()


def test_a_machine_that_moved_by_less_than_the_budget_is_said_and_the_time_is_judged() -> None:
    base, head = (
        on_a_machine(STEADY),
        on_a_machine([1.03 * factor for factor in STEADY], program=1.2),
    )

    assert step_of(base, head).verdict == "worse"
    assert len(only_run(base, head).notes) == 2  # the first is about the traces


def test_without_the_loop_the_same_times_are_blamed_on_the_program() -> None:
    unknown = Skipped(reason="not measured")
    base, head = (
        with_run(given, rounds=msgspec.structs.replace(given.runs[0].rounds, machine=unknown))  # type: ignore[type-var]
        for given in (on_a_machine(STEADY), on_a_machine(DRIFTED))
    )

    run = only_run(base, head)

    assert metrics_of(run)["step"] == "worse"
    assert run.machine == unknown


def test_another_torchs_loop_is_no_measure_of_the_machine() -> None:
    """A torch that dispatches in 10 % more time: asked for all the same, that is the difference and
    no machine's."""
    base, head = on_a_machine(STEADY), on_a_machine(DRIFTED)
    newer = msgspec.structs.replace(head.environment, torch="2.14.0")

    (run,) = comparison(
        base, msgspec.structs.replace(head, environment=newer), allow_different_environment=True
    ).runs

    assert metrics_of(run)["step"] == "worse"
    assert run.machine == OTHER_LOOPS


# ---------------------------------------------------------------- recorded in turn


def in_turn(
    side: str,
    rounds: Sequence[float],
    *,
    lost: Sequence[int] = (),
    most: int = 10,
    limit: float = 2.0,
) -> Profile:
    """The first of ``rounds`` is the one on cold caches; pairs are numbered from 2 on. Its host
    drifts as it likes."""
    kept = [number for number in range(1, len(rounds) + 1) if number not in lost]
    given = timed(profile().runs[0], STEP_US, rounds=[rounds[number - 1] for number in kept])
    assert isinstance(given.rounds, Rounds)
    run = msgspec.structs.replace(
        given, rounds=msgspec.structs.replace(given.rounds, asked=len(rounds), numbers=tuple(kept))
    )
    told = InTurn(
        id="a pair", side=side, most_rounds=most, limits={"step": limit, "evaluation": limit}
    )
    return msgspec.structs.replace(profile(), runs=(run,), in_turn=told)


MACHINE = (9.0, 1.0, 1.3, 1.7, 1.9, 2.4, 2.6)  # of the first round and six pairs: slower and slower
NOISE = (1.0, 1.004, 0.998, 1.003, 0.996, 1.002, 0.999)


@pytest.mark.parametrize(
    ("program", "limit", "verdict", "code"),
    [
        (1.00, 2.0, "same", 0),
        (1.05, 2.0, "worse", 1),
        (0.90, 2.0, "better", 0),
        (1.02, 2.0, "inconclusive", 6),
    ],
)
def test_drift_that_both_sides_share_cancels_in_pairs(
    program: float, limit: float, verdict: str, code: int
) -> None:
    base = in_turn("base", MACHINE, limit=limit)
    head = in_turn(
        "head", [program * at * own for at, own in zip(MACHINE, NOISE, strict=True)], limit=limit
    )

    step = step_of(base, head)

    assert (step.verdict, step.budget_percent, step.base_rounds, step.head_rounds) == (
        verdict,
        limit,
        6,
        6,
    )
    assert step.ratio == pytest.approx(program, abs=0.004)
    assert step.head / step.base == pytest.approx(step.ratio)  # type: ignore[operator]
    found = compare(base, head)
    assert found.exit_code == code
    # then: how small a slowdown would have been found is said, unless one was
    power = "slowdowns that four of five such recordings find: step "
    assert found.verdict.trust.startswith(power) == (verdict != "worse")
    assert found.comparison is not None
    assert found.comparison.in_turn == head.in_turn
    # As two recordings made one after the other they settle nothing.
    apart = msgspec.structs.replace(base, in_turn=None), msgspec.structs.replace(head, in_turn=None)
    assert step_of(*apart).verdict == "inconclusive"


def starting(given: Profile, cold_s: Sequence[float], warm_s: Sequence[float]) -> Profile:
    """``cold_s``: of the whole recording, then of pairs on empty caches."""
    rounds, compiled = given.runs[0].rounds, given.runs[0].compile
    assert isinstance(rounds, Rounds)
    assert not isinstance(compiled, Skipped)
    return with_run(
        given,
        compile=msgspec.structs.replace(compiled, first_call_s=cold_s[0]),
        rounds=msgspec.structs.replace(
            rounds,
            warm_first_call_s=tuple(warm_s),
            warm_first_call=spread(warm_s, "s"),
            graphs_compiled=(0,) * len(warm_s),
            cold_first_call_s=tuple(cold_s[1:]),
        ),
    )


WARM = (1.0, 1.1, 0.9, 1.0, 1.1, 0.95)


@pytest.mark.parametrize(
    ("of_base", "of_head", "verdicts"),
    [
        # of the whole recordings alone: as far apart as two of one program may be, and further
        ((10.0,), (12.0,), ("same", "same")),
        ((10.0,), (40.0,), ("inconclusive", "same")),
        ((10.0, 10.5, 9.8, 10.1), (40.0, 39.0, 41.0, 40.5), ("worse", "same")),
        ((10.0, 10.5, 9.8, 10.1), (40.0, 10.4, 9.9, 10.0), ("same", "same")),
        # no look: the third pair was not made
        ((10.0, 10.5, 9.8), (40.0, 39.0, 41.0), ("inconclusive", "same")),
    ],
)
def test_a_first_call_is_judged_by_pairs_that_alone_decide(
    of_base: tuple[float, ...],
    of_head: tuple[float, ...],
    verdicts: tuple[str, str],
) -> None:
    base = starting(in_turn("base", MACHINE), of_base, WARM)
    head = starting(in_turn("head", MACHINE), of_head, WARM)

    (run,) = comparison(base, head).runs

    found = metrics_of(run)
    assert (found["first call, cold cache"], found["first call, warm cache"]) == verdicts


def test_a_warm_start_that_is_longer_in_every_pair_is_said_first() -> None:
    base = starting(in_turn("base", MACHINE), (10.0,), WARM)
    head = starting(in_turn("head", MACHINE), (10.0,), [15.8 * own for own in WARM])

    found = compare(base, head)

    assert found.exit_code == 0
    assert found.verdict.text.startswith("first call, warm cache +1480.0 % (95 % CI +1480.0 to")
    # One process that found its cache empty is no sample of it.
    rounds = base.runs[0].rounds
    assert isinstance(rounds, Rounds)
    lost = msgspec.structs.replace(
        rounds, warm_first_call_s=(50.0, *WARM[1:]), graphs_compiled=(1, 0, 0, 0, 0, 0)
    )
    (run,) = comparison(
        with_run(base, rounds=lost), starting(in_turn("head", MACHINE), (10.0,), WARM)
    ).runs
    (call,) = (each for each in run.metrics if each.name == "first call, warm cache")
    assert (call.verdict, call.ratio, call.base_rounds) == ("same", 1.0, 5)


def test_a_limit_that_nobody_gave_is_what_the_last_look_could_have_seen() -> None:
    def sides(most: int, **limits: float) -> tuple[Profile, Profile]:
        wide = [1.0, *(at * own**8 for at, own in zip(MACHINE[1:], NOISE[1:], strict=True))]
        told = InTurn(id="a pair", side="base", most_rounds=most, limits=limits)
        pair = in_turn("base", MACHINE), in_turn("head", wide)
        base, head = (
            msgspec.structs.replace(one, in_turn=msgspec.structs.replace(told, side=side))
            for one, side in zip(pair, ("base", "head"), strict=True)
        )
        return base, head

    early = step_of(*sides(10))
    last = step_of(*sides(6))
    given = step_of(*sides(6, step=2.0))

    assert (early.verdict, early.budget_percent) == ("inconclusive", 2.0)
    assert (given.verdict, given.budget_percent) == ("inconclusive", 2.0)
    assert last.verdict == "same"
    assert isinstance(last.high, float)
    assert last.budget_percent is not None
    assert 2.0 < last.budget_percent < 6.0
    assert "could not have seen 2 %" in last.note


def taking_turns(given: Profile, pieces: Sequence[float]) -> Profile:
    """In every round but the first one."""
    rounds = given.runs[0].rounds
    assert isinstance(rounds, Rounds)
    taken = TakenInTurn(step_us=tuple(pieces), evaluation_s=tuple(pieces))
    in_turn = (None, *(taken for _ in rounds.numbers[1:]))
    return with_run(given, rounds=msgspec.structs.replace(rounds, in_turn=in_turn))


def test_pieces_that_were_timed_side_by_side_count_and_not_the_medians() -> None:
    """By the medians head would be 30 % slower."""
    base = taking_turns(in_turn("base", (1.0,) * 7), (100.0, 130.0, 100.0, 130.0))
    head = taking_turns(
        in_turn("head", [1.3 * own for own in NOISE]), (101.0, 131.3, 131.3, 131.3, 7.0)
    )

    (run,) = comparison(base, head).runs

    assert [metrics_of(run)[name] for name in ("step", "evaluation", "ms/candidate")] == [
        "same"
    ] * 3
    step = step_of(base, head)
    assert step.ratio == pytest.approx(1.01)
    # One side alone has pieces, or none: the medians count.
    assert step_of(base, in_turn("head", [1.3 * own for own in NOISE])).ratio == pytest.approx(
        1.3, abs=0.01
    )


def test_an_option_moves_the_limit_that_was_stated() -> None:
    base = in_turn("base", MACHINE)
    head = in_turn("head", [1.05 * at * own for at, own in zip(MACHINE, NOISE, strict=True)])

    (run,) = comparison(base, head, budgets={"step": 10.0, "evaluation": 10.0}).runs

    assert metrics_of(run)["step"] == "same"


def test_a_lost_round_takes_its_pair_and_what_is_beyond_the_last_look_waits() -> None:
    base = in_turn("base", (1.0,) * 8, lost=(3,))
    # seven pairs: the look is the one after six
    head = in_turn("head", (1.0, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 50.0))

    step = step_of(base, head)

    assert (step.base_rounds, step.head_rounds) == (5, 5)
    assert step.ratio == pytest.approx(1.1)


def test_before_the_first_look_nothing_is_said() -> None:
    step = step_of(in_turn("base", (1.0,) * 4), in_turn("head", (2.0,) * 4))

    assert (step.verdict, step.undecided) == ("inconclusive", Undecided.ONE_ROUND)


def test_only_the_two_sides_of_one_recording_are_pairs() -> None:
    base, head = in_turn("base", MACHINE), in_turn("head", MACHINE)
    other = msgspec.structs.replace(
        head, in_turn=msgspec.structs.replace(head.in_turn, id="another")
    )  # type: ignore[type-var]

    assert comparison(base, head).in_turn is not None
    assert comparison(base, other).in_turn is None
    assert comparison(head, base).in_turn is None
    assert comparison(base, profile()).in_turn is None


def test_three_percent_are_within_the_budget_and_said() -> None:
    found = compare(profile(), slower(profile(), 1030.0))

    assert found.comparison is not None
    assert found.exit_code == 0
    (step,) = [m for m in found.comparison.runs[0].metrics if m.name == "step"]
    assert (step.verdict, step.undecided) == ("same", None)
    assert isinstance(step.low, float)
    assert step.low > 1


# ---------------------------------------------------------------- times


def test_a_slower_step_fails_with_its_interval_and_its_budget() -> None:
    found = compare(profile(), slower(profile(), 1124.0))

    assert found.exit_code == 1
    assert found.verdict.status == "failed"
    assert found.comparison is not None
    step = found.comparison.runs[0].metrics[0]
    assert (step.name, step.verdict, step.budget_percent, step.base_rounds) == (
        "step",
        "worse",
        5.0,
        5,
    )
    assert (step.ratio, step.low, step.high) == pytest.approx((1.124, 1.118, 1.130), abs=0.001)


def test_a_faster_step_is_better() -> None:
    found = compare(profile(), slower(profile(), 800.0))

    assert (found.exit_code, found.verdict.status) == (0, "ok")
    assert found.comparison is not None
    assert metrics_of(found.comparison.runs[0])["step"] == "better"


def test_noise_wider_than_the_budget_is_inconclusive_and_says_how_many_rounds_settle_it() -> None:
    noisy = (1.0, 0.85, 1.15, 0.9, 1.1)
    base = with_run(profile(), **_times(noisy, 1.0))
    found = compare(base, with_run(profile(), **_times(noisy, 1.12)))

    assert found.exit_code == 6
    assert found.comparison is not None
    (step,) = [m for m in found.comparison.runs[0].metrics if m.name == "step"]
    assert step.verdict == "inconclusive"
    assert step.runs_to_settle is not None
    assert 6 < step.runs_to_settle < 100
    assert step.undecided is Undecided.STRADDLES_BUDGET
    assert found.comparison.causes == ()


def test_one_round_is_inconclusive_and_says_how_to_get_more() -> None:
    once = with_run(profile(), **_times((1.0,), 1.0))

    found = compare(once, once)

    assert (found.exit_code, found.verdict.status, found.verdict.reasons) == (6, "inconclusive", ())
    assert found.comparison is not None
    assert {metric.undecided for metric in found.comparison.runs[0].metrics if metric.decides} == {
        Undecided.ONE_ROUND
    }


def test_an_inconclusive_time_does_not_hide_a_new_finding() -> None:
    once = with_run(profile(), **_times((1.0,), 1.0))

    found = compare(
        once, msgspec.structs.replace(once, findings=(finding("KGP101", message="a graph break"),))
    )

    assert found.exit_code == 1
    assert found.comparison is not None
    first, second = reasons(once, found, found.comparison)
    assert (first.exit_code, second.exit_code) == (1, 6)
    assert (first.same_for_all, bool(second.same_for_all)) == ("", True)


def test_a_step_that_is_other_work_does_not_decide() -> None:
    """Half the batch: a step takes less, there are twice as many, and the evaluation takes
    longer."""
    base = profile()
    run = base.runs[0]
    assert not isinstance(run.evaluation, Skipped)
    halved = msgspec.structs.replace(
        run.evaluation,
        steps=2 * run.evaluation.steps,
        settings={**run.evaluation.settings, "batch size": "128"},
    )
    smaller = timed(msgspec.structs.replace(run, evaluation=halved), 700.0)

    found = compare(base, msgspec.structs.replace(base, runs=(smaller,)))

    assert found.exit_code == 1
    assert found.comparison is not None
    (compared,) = found.comparison.runs
    assert (compared.decided_by, compared.per) == ("evaluation", "evaluation")
    (step,) = [m for m in compared.metrics if m.name == "step"]
    assert (step.verdict, step.decides, step.undecided) == (
        "not observed",
        False,
        Undecided.OTHER_WORK,
    )
    first, second = compared.causes
    assert (first.cause, second.cause) == ("steps", "setting")
    assert [(s.name, s.base, s.head) for s in compared.settings] == [("batch size", "256", "128")]
    assert compared.delta_us == pytest.approx(400.0 * run.evaluation.steps, rel=1e-4)
    assert first.explains_us == pytest.approx(400.0 * run.evaluation.steps, rel=1e-4)
    assert compared.remainder_us == pytest.approx(0.0, abs=1.0)


def test_without_times_there_is_no_verdict_on_them() -> None:
    found = compare(profiles.gate(), profiles.gate())

    assert (found.exit_code, found.verdict.status) == (0, "ok")
    assert found.comparison is not None
    assert not any(metric.decides for run in found.comparison.runs for metric in run.metrics)


def test_a_time_that_is_gone_is_inconclusive() -> None:
    gone = Skipped(reason="TIMING timed out")
    head = with_run(profile(), step=gone, evaluation_time=gone, per_unit=gone, rounds=gone)

    found = compare(profile(), head)

    assert found.exit_code == 6
    assert found.comparison is not None
    times = [metric for metric in found.comparison.runs[0].metrics if metric.time_of]
    assert [(metric.undecided, metric.note) for metric in times] == [
        (Undecided.NOT_MEASURED, gone.reason)
    ] * 3


# ---------------------------------------------------------------- environments and inputs


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("device_name", "NVIDIA A100", "GPU or CPU in use"),
        ("torch", "2.14.0", "torch"),
        ("driver", "1.2", "driver"),
        ("python", "3.12.1", "Python"),
        ("torch_threads", 1, "torch threads"),
        ("flags", {"TORCH_LOGS": "all"}, "environment variable TORCH_LOGS"),
    ],
)
def test_another_environment_makes_times_inconclusive(field: str, value: object, name: str) -> None:
    base = profile()
    head = slower(base, 2000.0)
    head = msgspec.structs.replace(
        head, environment=msgspec.structs.replace(head.environment, **{field: value})
    )

    found, allowed = (
        compare(base, head),
        compare(base, head, CompareSettings(allow_different_environment=True)),
    )

    assert found.comparison is not None
    assert (found.exit_code, found.comparison.comparable) == (6, False)
    assert [change.name for change in found.comparison.environment] == [name]
    assert allowed.exit_code == 1
    with_finding = compare(base, msgspec.structs.replace(head, findings=(finding(),)))
    assert with_finding.exit_code == 1


def test_another_commit_or_cache_folder_is_no_other_environment() -> None:
    base = profile()
    head = msgspec.structs.replace(
        base,
        environment=msgspec.structs.replace(
            base.environment,
            git_commit="f" * 40,
            git_dirty=False,
            flags={"TORCHINDUCTOR_CACHE_DIR": "/elsewhere"},
        ),
    )

    assert comparison(base, head).environment == ()


def test_a_comparison_is_no_side_of_one() -> None:
    found = compare(profile(), profile())

    with pytest.raises(
        UsageError, match="there is itself a comparison and cannot be one of its sides"
    ):
        compare(profile(), found, sources=("here", "there"))


def test_two_workloads_are_no_comparison() -> None:
    with pytest.raises(
        UsageError, match=r"here is of linkpred and there of train\.py:step: two workloads"
    ):
        compare(profile(), profile(workload="train.py:step"), sources=("here", "there"))


def test_a_script_in_another_checkout_is_the_same_workload() -> None:
    def at(root: str) -> Profile:
        environment = msgspec.structs.replace(profile().environment, source_root=root)
        return profile(workload=f"{root}/bench/train.py:step", environment=environment)

    assert compare(at("/base"), at("/head")).exit_code == 0


def test_runs_of_one_side_are_said() -> None:
    one = profile()
    both = msgspec.structs.replace(
        one, runs=tuple(timed(run, STEP_US) for run in profiles.clean().runs)
    )

    found = comparison(both, one)

    assert [(run.run.slug, run.status) for run in found.runs][:2] == [
        ("fused.default", "both"),
        ("batched.eager", "gone"),
    ]
    assert compare(both, one).exit_code == 6
    assert compare(one, both).exit_code == 0


def test_no_run_in_common_is_nothing_to_compare() -> None:
    other = msgspec.structs.replace(
        profile().runs[0], key=msgspec.structs.replace(KEY, mode="eager")
    )

    assert compare(profile(), profile(runs=(other,))).exit_code == 5


def test_a_workload_that_died_in_head_leads_and_one_in_base_leaves_it_open() -> None:
    died = profiles.dead().runs[3]
    key_of_it = msgspec.structs.replace(profile().runs[0], key=died.key)
    alive, dead = profile(runs=(key_of_it,)), profile(runs=(died,))

    assert compare(alive, dead).exit_code == 4
    assert compare(dead, alive).exit_code == 6


# ---------------------------------------------------------------- causes of time


def test_a_slower_kernel_explains_what_the_trace_shows_of_it() -> None:
    """index takes 150 us more in a traced step of 1000 -> 1150, as TIMING's does."""
    base = traced(profile(), *BEFORE)
    head = traced(slower(base, 1150.0), *changed(BEFORE, "aten::index", 10.0, 350.0))  # type: ignore[arg-type]

    run = only_run(base, head)

    (cause,) = run.causes
    assert (cause.cause, cause.subject) == ("kernel", "aten::index")
    assert cause.explains_us == pytest.approx(150.0, rel=0.01)
    assert run.delta_us == pytest.approx(150.0, rel=0.01)
    assert run.traced_us == pytest.approx(150.0)
    assert run.remainder_us == pytest.approx(0.0, abs=1.0)


def test_a_traced_microsecond_is_scaled_to_timing_and_what_is_left_is_said() -> None:
    """The trace takes twice as long as a bare step; of 300 us in TIMING it shows 200 of its own."""
    base = traced(profile(), *((n, k, c, 2 * us) for n, k, c, us in BEFORE), idle_us=800.0)
    rows = [(n, k, c, 2 * us + (200.0 if n == "aten::index" else 0.0)) for n, k, c, us in BEFORE]
    run = only_run(base, traced(slower(base, 1300.0), *rows, idle_us=800.0))

    assert run.scale == pytest.approx(2300 / 4200, rel=0.01)
    assert run.causes[0].explains_us == pytest.approx(200 * 2300 / 4200, rel=0.01)
    assert isinstance(run.explained_us, float)
    assert run.remainder_us == pytest.approx(300.0 - run.explained_us, rel=0.02)
    assert run.traced_us == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("rows", "idle_us", "expected"),
    [
        ((*BEFORE, ("aten::mul", KernelKind.POINTWISE, 6.0, 200.0)), 400.0, "launches"),
        (changed(BEFORE, "aten::index", 20.0, 400.0), 400.0, "launches"),
        (changed(BEFORE, "aten::copy_", 8.0, 300.0), 400.0, "copies"),
        (changed(BEFORE, "aten::addmm", 4.0, 500.0), 400.0, "kernel"),
        (BEFORE, 600.0, "host"),
    ],
)
def test_what_the_trace_shows_more_of_is_the_cause(
    rows: object, idle_us: float, expected: str
) -> None:
    base = traced(profile(), *BEFORE)
    head = traced(slower(base, 1200.0), *rows, idle_us=idle_us)  # type: ignore[misc]

    (cause,) = only_run(base, head).causes

    assert cause.cause == expected
    assert cause.explains_us == pytest.approx(200.0, rel=0.01)


def test_kernels_that_inductor_numbers_otherwise_are_the_same_kernels() -> None:
    name = "triton_poi_fused_add_"
    base = traced(profile(), (f"{name}3", KernelKind.POINTWISE, 1.0, 600.0))
    head = traced(
        slower(base, 1200.0), (f"{name}4", KernelKind.POINTWISE, 1.0, 600.0), idle_us=600.0
    )

    assert causes(base, head) == ["host"]


def test_a_new_finding_that_can_be_the_reason_comes_before_the_bare_parts() -> None:
    """A read: the host waits, a copy more. The slower kernel beside it is no part of it."""
    base = traced(profile(), *BEFORE)
    rows = changed(changed(BEFORE, "aten::copy_", 3.0, 150.0), "aten::addmm", 4.0, 400.0)  # type: ignore[arg-type]
    head = traced(slower(base, 1400.0), *rows, idle_us=650.0)  # type: ignore[arg-type]
    head = msgspec.structs.replace(head, findings=(finding(),))

    first, second = only_run(base, head).causes

    assert (first.cause, first.fingerprint, first.location and first.location.line) == (
        "finding",
        "same",
        41,
    )
    assert first.explains_us == pytest.approx(300.0, rel=0.01)
    assert (second.cause, second.explains_us) == ("kernel", pytest.approx(100.0, rel=0.01))


def test_a_new_finding_that_costs_no_time_comes_after_what_does() -> None:
    base = traced(profile(), *BEFORE)
    head = traced(slower(base, 1200.0), *changed(BEFORE, "aten::addmm", 4.0, 500.0))  # type: ignore[arg-type]
    head = msgspec.structs.replace(
        head, findings=(finding("KGP403", message="results share memory"),)
    )

    assert causes(base, head) == ["kernel", "finding"]


def test_the_causes_and_the_remainder_add_up_to_the_difference() -> None:
    chance = random.Random(5)
    base = traced(profile(), *BEFORE)
    for _ in range(30):
        rows = [
            (n, k, c * chance.choice((1, 1, 2)), us * chance.uniform(0.8, 2.0))
            for n, k, c, us in BEFORE
        ]
        head = traced(
            slower(base, chance.uniform(1100.0, 1800.0)),
            *rows,
            idle_us=chance.uniform(300.0, 900.0),
        )
        run = only_run(base, head)
        assert isinstance(run.delta_us, float)
        told = sum(c.explains_us for c in run.causes if isinstance(c.explains_us, float))
        assert told == pytest.approx(run.explained_us)
        assert run.remainder_us == pytest.approx(run.delta_us - told)


def test_without_comparable_traces_the_whole_difference_is_the_remainder() -> None:
    gone = Skipped(reason="TRACE timed out")
    run = only_run(
        with_run(profile(), kernels=gone), with_run(slower(profile(), 1200.0), kernels=gone)
    )

    assert run.causes == ()
    assert run.remainder_us == run.delta_us
    assert isinstance(run.scale, Skipped)
    assert run.scale.reason.endswith(gone.reason)


def test_lost_cuda_graphs_take_the_hosts_time_with_them() -> None:
    rows = (("gemm", KernelKind.GEMM, 4.0, 300.0), ("index", KernelKind.INDEX, 10.0, 300.0))
    base = traced(profile(), *rows, device="cuda", graphs=2)
    base = with_run(base, kernels=msgspec.structs.replace(base.runs[0].kernels, launches=2 * STEPS))
    head = traced(slower(base, 1800.0), *rows, idle_us=1200.0, device="cuda", graphs=0)
    head = msgspec.structs.replace(head, findings=(finding("KGP301", message="a CPU tensor"),))

    (cause,) = only_run(base, head).causes

    assert cause.cause == "cuda-graphs"
    assert (cause.rule, cause.fingerprint) == ("KGP301", "same")
    assert cause.explains_us == pytest.approx(800.0, rel=0.01)
    assert cause.location is not None


def test_fewer_cuda_graphs_because_there_is_less_to_launch_are_none_lost() -> None:
    rows = (("gemm", KernelKind.GEMM, 4.0, 300.0), ("index", KernelKind.INDEX, 10.0, 300.0))

    assert (
        causes(
            traced(profile(), *rows, device="cuda", graphs=2),
            traced(profile(), *rows[:1], device="cuda"),
        )
        == []
    )


def test_what_launching_costs_the_host_is_told_with_the_launches() -> None:
    """Base waits 400 us over 20 launches: of 10 more, 200 us; the other 100 us of waiting are the
    host's own."""
    rows = (("gemm", KernelKind.GEMM, 20.0, 600.0),)
    base = traced(profile(), *rows, device="cuda")
    more = (*rows, ("mul", KernelKind.POINTWISE, 10.0, 20.0))
    head = traced(slower(base, 1320.0), *more, idle_us=700.0, device="cuda")

    first, second = only_run(base, head).causes

    assert (first.cause, first.explains_us) == ("launches", pytest.approx(220.0, rel=0.01))
    assert (second.cause, second.explains_us) == ("host", pytest.approx(100.0, rel=0.01))


@pytest.mark.parametrize("rule", ["KGP601", "KGP602", "KGP603", "KGP503"])
def test_what_is_judged_from_times_is_no_cause_where_no_time_is_worse(rule: str) -> None:
    assert causes(profile(), profile(findings=(finding(rule),))) == []


# ---------------------------------------------------------------- causes that need no clock


def test_other_results_are_a_cause_and_fail() -> None:
    base = profile()
    evaluation = base.runs[0].evaluation
    assert not isinstance(evaluation, Skipped)
    moved = handmade.counted(evaluation, proved=372, failed=4060)

    found = compare(base, with_run(base, evaluation=moved))

    assert found.comparison is not None
    assert [cause.cause for cause in found.comparison.causes] == ["results"]
    assert (found.exit_code, found.verdict.status) == (1, "failed")


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("equal", ("3 of 10 results differ from the reference; in base they did not",)),
        ("different", ()),
        ("", ()),  # nobody compared them: what they were is not known
    ],
)
def test_results_that_differ_in_head_changed_only_where_those_of_base_are_known_to_agree(
    before: str, expected: tuple[str, ...]
) -> None:
    def agreement(verdict: str) -> RunAgreement:
        return RunAgreement(
            verdict=verdict,
            compared=10,
            differing=3,
            near_ties=0,
            reference_compared=0,
            reference_differing=0,
            reference_near_ties=0,
        )

    base = with_run(
        profile(), agreement=agreement(before) if before else Skipped(reason="left no result")
    )
    head = with_run(profile(), agreement=agreement("different"))

    assert tuple(changed_results(base.runs[0], head.runs[0])) == expected


def test_what_near_ties_can_turn_is_no_other_result() -> None:
    ties = RunAgreement(
        verdict="near-ties",
        compared=100,
        differing=0,
        near_ties=3,
        reference_compared=0,
        reference_differing=0,
        reference_near_ties=0,
    )
    base = with_run(profile(), agreement=ties)
    evaluation = base.runs[0].evaluation
    assert not isinstance(evaluation, Skipped)
    moved = handmade.counted(evaluation, proved=410, failed=4022)

    assert compare(base, with_run(base, evaluation=moved)).exit_code == 0


def test_a_larger_peak_is_told_above_what_it_moves_by_itself() -> None:
    memory = profiles.watched().runs[0].memory
    assert not isinstance(memory, Skipped)
    assert not isinstance(memory.peaks, Skipped)

    def peak(mib: int) -> Profile:
        peaks = msgspec.structs.replace(memory.peaks, allocated_bytes=mib * 2**20)
        return with_run(profile(), memory=msgspec.structs.replace(memory, peaks=peaks))

    never = CompareSettings(budgets={"peak allocated": 10.0}, fail_on="never")
    faster = msgspec.structs.replace(peak(1400), runs=(timed(peak(1400).runs[0], 0.8 * STEP_US),))
    for head in (peak(1400), faster):
        told = compare(peak(1000), head, never).verdict.text
        assert told.startswith("worse, but --fail-on never: ")
        assert "peak allocated" in told
    assert causes(peak(1000), peak(1005)) == []
    found = comparison(peak(1000), peak(1400))
    assert [cause.cause for cause in found.causes] == ["memory"]
    assert compare(peak(1000), peak(1400)).exit_code == 0
    assert (
        compare(peak(1000), peak(1400), CompareSettings(budgets={"peak allocated": 10.0})).exit_code
        == 1
    )
    assert (
        compare(peak(1000), peak(1400), CompareSettings(budgets={"peak allocated": 50.0})).exit_code
        == 0
    )


def compiling(*known: bool) -> Profile:
    """One compilation each, with its stages or without."""
    given = profile()
    summary = given.runs[0].compile
    assert isinstance(summary, CompileSummary)
    compiled = summary.compilations[0]
    unknown = msgspec.structs.replace(
        compiled, stages=Skipped(reason="torch wrote no spans for it")
    )
    compilations = tuple(compiled if one else unknown for one in known)
    return with_run(given, compile=msgspec.structs.replace(summary, compilations=compilations))


def test_one_more_compilation_is_told() -> None:
    found = comparison(compiling(True), compiling(True, True))

    assert [cause.cause for cause in found.causes] == ["compile"]
    assert found.runs[0].phases[0].head_s == pytest.approx(2 * found.runs[0].phases[0].base_s)


@pytest.mark.parametrize("head", [(True, False), (False, False), ()])
def test_stages_of_which_some_are_not_known_are_not_compared(head: tuple[bool, ...]) -> None:
    assert only_run(compiling(True, True), compiling(*head)).phases == ()
    assert only_run(compiling(*head), compiling(True, True)).phases == ()


def test_another_option_of_the_workload_is_the_cause_of_what_follows_from_it() -> None:
    base = profile()
    head = slower(
        msgspec.structs.replace(base, options=msgspec.structs.replace(base.options, seed=7)), 1400.0
    )

    found = compare(base, head)

    assert found.comparison is not None
    assert [(s.name, s.base, s.head) for s in found.comparison.settings] == [("--seed", "0", "7")]
    assert found.comparison.causes[0].cause == "setting"


def test_findings_of_the_same_kind_in_several_runs_are_one_cause_of_the_whole() -> None:
    base = msgspec.structs.replace(
        profiles.clean(), runs=tuple(timed(r, STEP_US) for r in profiles.clean().runs)
    )
    found = [finding(run=run.key, fingerprint=f"in {run.key.slug}") for run in base.runs]

    compared = comparison(base, msgspec.structs.replace(base, findings=tuple(found)))

    assert len(compared.causes) == 1
    assert all(len(run.causes) == 1 for run in compared.runs)


def test_the_comparison_survives_json() -> None:
    base: Profile = traced(profile(), *BEFORE)
    more: tuple[Finding, ...] = (finding(level=Level.ERROR),)
    found = compare(base, msgspec.structs.replace(slower(base, 1200.0), findings=more))

    assert msgspec.json.decode(msgspec.json.encode(found), type=Profile) == found


def test_rounds_are_counted() -> None:
    (step,) = [m for m in only_run(profile(), profile()).metrics if m.name == "step"]

    assert (step.base_rounds, step.head_rounds) == (len(ROUNDS), len(ROUNDS))


def test_a_trace_never_explains_more_than_there_is() -> None:
    """Under the profiler ten copies took 150 us more, in TIMING 60."""
    base = traced(profile(), *BEFORE)
    head = traced(slower(base, 1060.0), *changed(BEFORE, "aten::copy_", 12.0, 250.0))  # type: ignore[arg-type]

    run = only_run(base, head)

    assert run.causes[0].cause == "copies"
    assert run.explained_us == pytest.approx(60.0, rel=0.01)
    assert run.remainder_us == pytest.approx(0.0, abs=0.1)
    assert run.scale == pytest.approx(60 / 150, rel=0.01)


def test_of_launches_in_a_cuda_graph_those_outside_of_it_cost_the_host() -> None:
    """One call replays the graph of 14 kernels, and the device waits 100 us for it; three copies
    wait as long."""
    rows = (("gemm", KernelKind.GEMM, 14.0, 600.0),)
    base = traced(profile(), *rows, idle_us=100.0, device="cuda", graphs=1)
    base = with_run(base, kernels=msgspec.structs.replace(base.runs[0].kernels, launches=STEPS))
    copied = (*rows, ("Memcpy DtoD", KernelKind.COPY, 3.0, 10.0))
    head = traced(slower(base, 1250.0), *copied, idle_us=300.0, device="cuda", graphs=1)

    (cause,) = only_run(base, head).causes

    assert (cause.cause, cause.explains_us) == ("copies", pytest.approx(210.0, rel=0.2))


def test_where_no_time_is_worse_what_there_is_more_of_is_told_first() -> None:
    fill = ("fill", KernelKind.COPY, 1.0, 1.0)
    more = [(f"mul{i}_of", KernelKind.POINTWISE, 1.0, 1.0) for i in range(6)]

    assert causes(traced(profile(), *BEFORE), traced(profile(), *BEFORE, fill, *more)) == [
        "launches",
        "copies",
    ]


@pytest.mark.parametrize(
    ("base_rounds", "head_rounds", "expected"),
    [
        # every one above every one
        ((1.0, 0.9, 1.1, 0.8, 1.05), (1.2, 1.15, 1.12, 1.14, 1.13), ["kernel"]),
        ((1.0, 0.9, 1.1, 0.8, 1.05), (1.2, 1.09, 1.12, 1.14, 1.13), []),
        ((1.0, 0.9, 1.1), (1.2, 1.15, 1.4), []),  # one in twenty, by chance
        ((1.0,), (1.3,), []),
        ((1.0,), (1.6,), []),  # one sample a process has no spread
    ],
)
def test_an_unsettled_time_is_explained_only_where_the_rounds_lie_apart(
    base_rounds: tuple[float, ...], head_rounds: tuple[float, ...], expected: list[str]
) -> None:
    base = traced(with_run(profile(), **_times(base_rounds, 1.0)), *BEFORE)
    head = with_run(profile(), **_times(head_rounds, 1.0))
    head = traced(head, *changed(BEFORE, "aten::addmm", 4.0, 500.0))  # type: ignore[arg-type]

    assert metrics_of(only_run(base, head))["step"] == "inconclusive"
    assert causes(base, head) == expected


@pytest.mark.parametrize(("step_us", "expected"), [(1400.0, []), (1600.0, ["kernel"])])
def test_one_process_a_side_is_explained_from_half_as_much_more_on(
    step_us: float, expected: list[str]
) -> None:
    """Each process has many samples, which lie close together."""

    def one(us: float) -> Profile:
        given = with_run(profile(), **_times(ROUNDS, us / STEP_US))
        return with_run(given, rounds=Skipped(reason="one process"))

    base = traced(one(STEP_US), *BEFORE)
    head = traced(one(step_us), *changed(BEFORE, "aten::addmm", 4.0, 500.0))  # type: ignore[arg-type]

    assert causes(base, head) == expected


def test_in_another_environment_no_time_is_explained() -> None:
    base = traced(profile(), *BEFORE)
    head = traced(slower(base, 2000.0), *changed(BEFORE, "aten::addmm", 4.0, 1300.0))  # type: ignore[arg-type]
    head = msgspec.structs.replace(
        head, environment=msgspec.structs.replace(head.environment, torch="2.14.0")
    )

    assert causes(base, head) == []


def profiled(given: Profile, *rows: tuple[str, str, int, float]) -> Profile:
    """Rows of (file, function, calls a step, own us a step); each calls nothing."""
    found = tuple(
        HostRow(
            file=file,
            function=name,
            line=7,
            calls=calls * STEPS,
            self_us=us * STEPS,
            cumulative_us=us * STEPS,
        )
        for file, name, calls, us in rows
    )
    total = sum(row.self_us for row in found)
    return with_run(
        given, host=HostBreakdown(steps=STEPS, total_self_us=total, rows=found, rows_left_out=0)
    )


# a report that is to be shared names no folders
@pytest.mark.parametrize("file", ["/src/step.py", "step.py"])
def test_more_calls_of_python_are_told_where_the_traces_do_not_show_what_is_slower(
    file: str,
) -> None:
    """head's trace is the shorter one, although TIMING is longer: then nothing in it is what TIMING
    met."""
    base = profiled(
        traced(profile(), *BEFORE), (file, "step", 1, 100.0), ("/lib/json.py", "dump", 20, 50.0)
    )
    rows = changed(BEFORE, "aten::addmm", 4.0, 500.0)
    head = traced(slower(base, 1200.0), *rows, idle_us=100.0)  # type: ignore[arg-type]
    head = profiled(head, (file, "step", 1, 200.0), ("/lib/json.py", "dump", 60, 90.0))

    run = only_run(base, head)

    (cause,) = run.causes
    assert (cause.cause, cause.explains_us) == ("host", CLOCKLESS)
    assert cause.location == Location(file=file, line=7, function="step")
    assert run.remainder_us == run.delta_us


def test_a_few_calls_more_are_none() -> None:
    base = profiled(profile(), ("/src/step.py", "step", 1, 100.0), ("json.py", "dump", 20, 50.0))

    assert (
        causes(
            base, profiled(base, ("/src/step.py", "step", 1, 100.0), ("json.py", "dump", 21, 90.0))
        )
        == []
    )


def test_functions_of_one_name_in_files_of_one_name_are_held_against_each_other_together() -> None:
    """Only the order in the profile tells one from the other."""
    base = profiled(
        profile(), ("/src/a/__init__.py", "put", 100, 50.0), ("/src/b/__init__.py", "put", 2, 10.0)
    )

    assert more_calls(base.runs[0], base.runs[0], ROOT) is None
    assert causes(base, profiled(base, ("/src/a/__init__.py", "put", 102, 60.0))) == []


def test_a_function_that_took_no_longer_is_none_that_grew() -> None:
    rows = (
        ("/src/step.py", "step.<locals>.<lambda>", 100, 50.0),
        ("/src/step.py", "step.<locals>.<lambda>", 2, 10.0),
    )
    base = profiled(traced(profile(), *BEFORE), *rows)
    head = traced(slower(base, 1200.0), *BEFORE, idle_us=600.0)

    (cause,) = only_run(base, head).causes

    assert (cause.cause, cause.location) == ("host", None)


# of base it takes 1.0 s, for twice as many candidates
@pytest.mark.parametrize("evaluation_s", [1.0, 0.9, 0.6])
def test_a_slower_candidate_is_explained_in_candidates_however_long_the_whole_evaluation_takes(
    evaluation_s: float,
) -> None:
    given = traced(profile(), *BEFORE)
    evaluation = given.runs[0].evaluation
    assert not isinstance(evaluation, Skipped)
    fewer = msgspec.structs.replace(
        evaluation, units=evaluation.units // 2, steps=evaluation.steps // 2
    )
    base = msgspec.structs.replace(given, runs=(timed(given.runs[0], STEP_US, evaluation_s=1.0),))
    halved = msgspec.structs.replace(given.runs[0], evaluation=fewer)
    head = msgspec.structs.replace(given, runs=(timed(halved, STEP_US, evaluation_s=evaluation_s),))

    run = only_run(base, head)

    more_us = 1e6 * (evaluation_s / fewer.units - 1.0 / evaluation.units)
    assert (run.decided_by, run.per, run.delta_us) == (
        "ms/candidate",
        "candidate",
        pytest.approx(more_us, rel=1e-4),
    )
    assert [cause.cause for cause in run.causes] == ["results", "host"]
    assert run.causes[1].subject == "outside the median step"
    assert run.explained_us == pytest.approx(more_us, rel=1e-4)


def test_two_slower_kernels_of_one_run_are_two_causes_of_the_whole() -> None:
    base = traced(profile(), *BEFORE)
    rows = changed(changed(BEFORE, "aten::addmm", 4.0, 450.0), "aten::index", 10.0, 300.0)  # type: ignore[arg-type]

    assert causes(base, traced(slower(base, 1250.0), *rows)) == ["kernel", "kernel"]  # type: ignore[arg-type]


# ---------------------------------------------------------------- what one side did not look for


def test_a_finding_that_base_did_not_look_for_leaves_the_answer_open() -> None:
    found = compare(without(profile(), "KGP201"), profile(findings=(finding(),)))

    assert found.exit_code == EXIT_INCONCLUSIVE
    assert (
        f"base did not look for 1 finding of head, which may be new: {NO_MEMORY}"
        in found.verdict.text
    )
    assert "1 finding not looked for in base" in found.verdict.reasons


@pytest.mark.parametrize("level", [Level.NOTE, Level.WARNING])
def test_one_that_would_fail_nothing_leaves_nothing_open(level: Level) -> None:
    accepted = "" if level is Level.NOTE else "the owner"
    one = msgspec.structs.replace(finding(level=level), accepted=accepted)

    found = compare(without(profile(), "KGP201"), profile(findings=(one,)))

    assert found.exit_code == 0
    assert "no new finding by the rules that both sides looked for" in found.verdict.text


def test_no_new_finding_is_said_of_what_both_sides_looked_for() -> None:
    everywhere, part = (
        compare(profile(), head) for head in (profile(), without(profile(), "KGP201", "KGP202"))
    )

    assert everywhere.verdict.text.endswith("there is no new finding")
    assert part.verdict.text.endswith(
        "there is no new finding by the rules that both sides looked for"
    )
    assert part.comparison is not None
    assert [(each.side, each.rules, each.reason) for each in part.comparison.not_looked_for] == [
        ("head", ("KGP201", "KGP202"), NO_MEMORY)
    ]
    for form in ("text", "markdown"):
        assert "not looked for in head: KGP201, KGP202" in by_name(form).render(part)


def test_a_new_note_is_a_new_finding() -> None:
    found = compare(profile(), profile(findings=(finding(level=Level.NOTE),)))

    assert found.verdict.text.endswith("there is no new finding that fails")


def test_a_count_of_findings_that_were_not_looked_for_is_no_zero() -> None:
    breaks = named(only_run(profile(), without(profile(), "KGP101")).metrics, BREAKS)

    assert breaks is not None
    assert (breaks.base, breaks.head, breaks.verdict) == (
        0.0,
        Skipped(reason=NO_MEMORY),
        "not observed",
    )


def test_other_settings_are_not_called_the_same() -> None:
    base, gated = (
        profile(),
        profile(options=msgspec.structs.replace(profile().options, backend="aot_eager")),
    )
    longer = profile(options=msgspec.structs.replace(profile().options, steps=40))

    same, other = (compare_words.comparability(comparison(base, head)) for head in (longer, gated))

    assert same == (
        "Both sides have the same kind of machine, the same versions and environment variables, "
        "so times can be compared."
    )
    assert other == (
        "Both sides have the same kind of machine and the same versions, but not the same "
        "settings: backend inductor \u2192 aot_eager."
    )
    assert "not the same settings" in by_name("html").render(compare(base, gated))
