"""What the first line says of the fastest run, and when it says that these times cannot tell."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.analysis import analyse
from kgprof.analysis.verdict import Remark, fastest
from kgprof.judge import APART, NOISY
from kgprof.measures.times import long_steps
from kgprof.model import (
    CompilePass,
    Exit,
    Load,
    PassName,
    RoundRecord,
    RunKey,
    RunRecord,
    ScriptRun,
    Skipped,
    Speedup,
    TimedRound,
    TimingPass,
    TracePass,
    Verdict,
)
from tests.analysis.recordings import EAGER, FUSED, agreed, agreement, recording, run
from tests.render.profiles import kernels_of

COND = RunKey(strategy="torch_cond", mode="default")
KERNELS = kernels_of(FUSED, "cuda")
BOTH_EQUAL = agreement(agreed(EAGER), agreed(FUSED))


def ranked(*records: RunRecord, baseline: RunKey | None = EAGER) -> Remark:
    return fastest(analyse(recording(*records, baseline=baseline)).runs, baseline)


def in_rounds(record: RunRecord, *evaluation_s: float) -> RunRecord:
    """Timed in further processes."""
    further = (
        TimedRound(first_call_s=1.0, graphs_from_cache=1, graphs_compiled=0, timing=timing(s))
        for s in evaluation_s
    )
    ended = Exit(outcome="ok", exit_code=0)
    records = (
        RoundRecord(number=number, exit=ended, measured=one)
        for number, one in enumerate(further, start=2)
    )
    return msgspec.structs.replace(record, rounds=tuple(records))


def timing(evaluation_s: float) -> TimingPass:
    return TimingPass(clock="perf_counter", step_us=((1000.0,) * 3,), evaluation_s=(evaluation_s,))


def timed(record: RunRecord, *evaluation_s: float, slow_first: float | None = None) -> RunRecord:
    assert isinstance(record.timing, TimingPass)
    timing = msgspec.structs.replace(
        record.timing, evaluation_s=evaluation_s, slow_first=slow_first
    )
    return msgspec.structs.replace(record, timing=timing)


def stepping(key: RunKey, *step_us: float) -> RunRecord:
    """Without evaluations; with just these steps."""
    record = run(key, evaluation_s=None, unfinished=None)
    assert isinstance(record.timing, TimingPass)
    return msgspec.structs.replace(
        record, timing=msgspec.structs.replace(record.timing, step_us=(step_us,))
    )


# ---------------------------------------------------------------- a winner


def test_the_verdict_answers_in_a_sentence_and_says_how_far_to_trust_it() -> None:
    found = analyse(
        recording(run(EAGER, evaluation_s=0.5), run(FUSED, evaluation_s=0.2), agreement=BOTH_EQUAL)
    ).verdict

    assert found == Verdict(
        status="ok",
        text=(
            "fused.default is fastest: 2.50× faster than batched.eager (2.00 vs 5.00 ms/candidate)"
        ),
        trust="one process each; results equal; all 100 candidates finished",
    )


def test_the_gain_over_the_runner_up_stands_beside_that_over_the_baseline() -> None:
    found = ranked(
        run(EAGER, evaluation_s=0.9), run(FUSED, evaluation_s=0.1), run(COND, evaluation_s=0.2)
    )

    assert found.text == (
        "fused.default is fastest: 9.00× faster than batched.eager (1.00 vs 9.00 ms/candidate) and "
        "2.00× faster than torch_cond.default"
    )


def test_a_baseline_that_is_the_fastest_is_compared_with_the_next() -> None:
    found = ranked(run(EAGER, evaluation_s=0.1), run(FUSED, evaluation_s=0.5))

    assert (found.status, found.text) == (
        "ok",
        "batched.eager is fastest: 5.00× faster than fused.default (1.00 vs 5.00 ms/candidate)",
    )


def test_a_workload_without_evaluations_is_ranked_by_its_step() -> None:
    runs = [
        run(key, step_us=us, evaluation_s=None, unfinished=None)
        for key, us in ((EAGER, 1234.5), (FUSED, 400.0))
    ]

    assert "3.09× faster than batched.eager (0.400 vs 1.23 ms/step)" in ranked(*runs).text


def test_an_evaluation_that_counts_nothing_is_ranked_by_its_whole_time() -> None:
    # given: the fewer steps of fused take longer each
    eager = run(EAGER, step_us=500.0, evaluation_s=0.5, unfinished=None)
    fused = run(FUSED, step_us=900.0, evaluation_s=0.2, unfinished=None)

    profile = analyse(recording(eager, fused))

    assert "2.50× faster than batched.eager (0.200 vs 0.500 s/evaluation)" in profile.verdict.text
    assert isinstance(profile.runs[1].speedup, Speedup)
    assert (profile.runs[1].speedup.ratio, profile.runs[1].speedup.basis) == (
        pytest.approx(2.5),
        "whole evaluation",
    )


def test_a_slow_first_evaluation_is_a_note_where_all_samples_lie_apart() -> None:
    found = ranked(run(EAGER, evaluation_s=0.9), timed(run(FUSED), 0.32, 0.2, 0.2, slow_first=1.6))

    assert found.status == "ok"
    assert "fused.default is fastest" in found.text
    assert any("first evaluation took 1.60 times" in note for note in found.notes)


BUSY = Load(seconds=2.0, cores=2, others_s=3.8)
QUIET = Load(seconds=2.0, cores=2, others_s=0.1)
STEADY, UNSTEADY = (900.0, 1000.0, 1100.0), (900.0, 1000.0, 30_000.0)
A_SCRIPT = ScriptRun(step="a call of the outermost nn.Module", steps=9, counted={})


def measured(record: RunRecord, **fields: object) -> RunRecord:
    """With these fields of TIMING."""
    return msgspec.structs.replace(record, timing=msgspec.structs.replace(record.timing, **fields))


def test_a_single_run_whose_steps_are_alike_takes_their_median() -> None:
    found = ranked(measured(stepping(FUSED, *STEADY), load=BUSY, cpu_us=UNSTEADY))

    assert (found.status, found.text) == ("ok", "fused.default takes 1.00 ms/step")
    assert found.notes == ()


def test_a_single_run_whose_steps_vary_is_not_decided() -> None:
    found = ranked(stepping(FUSED, *UNSTEADY))

    assert found.status == "inconclusive"
    assert found.text == (
        "fused.default: step time not decided, 0.920 to 24.2 ms/step (p10 to p90 of 3 steps)"
    )
    assert found.notes == ()


def test_a_median_that_is_less_than_half_of_the_time_of_the_steps_says_so() -> None:
    """As of a training whose every sixteenth step has a rollout in it."""
    steps = (*(6000.0,) * 582, *(240e3,) * 37, 298e3)

    found = ranked(stepping(FUSED, *steps))

    assert found.status == "attention"
    assert found.text == (
        "fused.default takes 6.00 ms/step, in the median; half of the time of the steps lies in "
        "27 of 620 of them, up to 298 ms"
    )
    assert not found.says_step
    noisy = ranked(stepping(FUSED, *(4000.0,) * 300, *(9000.0,) * 282, *(240e3,) * 38))
    assert "p90 of 620 steps); half of the time of the steps lies in 27 of 620" in noisy.text
    assert long_steps(steps[:-38]) is None
    assert long_steps(()) is None


def test_two_runs_that_are_ranked_by_a_median_say_where_else_their_time_is() -> None:
    found = ranked(
        stepping(FUSED, *(1000.0,) * 20, 1e5), stepping(EAGER, *(3000.0,) * 20), baseline=EAGER
    )

    (note,) = (note for note in found.notes if "half of the time" in note)
    assert note == (
        "in fused.default half of the time of the steps lies in 1 of 21 of them, up to 100 ms"
    )


def test_steps_of_the_warm_up_alone_are_no_time_of_a_step() -> None:
    """As of a program that warms up what it then does in another way."""
    record = msgspec.structs.replace(
        stepping(FUSED, 1100.0, 1200.0),
        script=ScriptRun(step="an optimizer step", steps=2, counted={}),
    )
    assert isinstance(record.compile, CompilePass)
    few = msgspec.structs.replace(record.compile, call_us=(1300.0, 1200.0), steady_from=3)

    found = ranked(msgspec.structs.replace(record, compile=few))

    assert found.status == "inconclusive"
    assert found.text == (
        "fused.default: step time not decided: only 2 steps of the warm-up were timed, 1.10 to "
        "1.20 ms/step"
    )
    assert ranked(record).text == "fused.default takes 1.15 ms/step"


def test_the_times_of_whole_evaluations_are_held_to_the_same_rule() -> None:
    found = ranked(timed(run(FUSED), 0.2, 0.9, 0.3))

    assert (found.status, found.text) == (
        "inconclusive",
        "fused.default: evaluation time not decided, 2.00 to 9.00 ms/candidate (3 evaluations)",
    )


@pytest.mark.parametrize(
    ("load", "cpu_us", "beside"),
    [
        (BUSY, STEADY, "CPU time 1.00 ms/step; other processes used 1.9 of 2 cores"),
        (BUSY, UNSTEADY, "CPU time 0.920 to 24.2 ms/step; other processes used 1.9 of 2 cores"),
        (QUIET, UNSTEADY, "CPU time 0.920 to 24.2 ms/step"),
        (QUIET, STEADY, "CPU time 1.00 ms/step"),
    ],
)
def test_what_was_measured_beside_steps_that_vary_is_said_and_no_cause(
    load: Load, cpu_us: tuple[float, ...], beside: str
) -> None:
    assert ranked(measured(stepping(FUSED, *UNSTEADY), load=load, cpu_us=cpu_us)).notes == (beside,)


def test_the_load_before_the_start_counts_where_timing_was_too_short_to_see_one() -> None:
    noisy = recording(stepping(FUSED, *UNSTEADY))
    header = msgspec.structs.replace(noisy.header, load=BUSY)

    profile = analyse(msgspec.structs.replace(noisy, header=header))

    assert profile.verdict.trust.startswith("other processes used 1.9 of 2 cores")


@pytest.mark.parametrize(
    ("traced_us", "said"),
    [
        (1_200.0, "takes about 1.00 ms/step (with kgprof's listeners on)"),
        (20.0, "takes about 0.0200 ms/step (under torch.profiler)"),
    ],
)
def test_a_script_without_timing_takes_the_shorter_of_the_steps_that_were_watched(
    traced_us: float, said: str
) -> None:
    """The profiler only slows steps down, and few come before it."""
    trace = TracePass(step_us=(traced_us,) * 3, trace_file="t.json.gz", cpp_kernel_profile=False)
    record = msgspec.structs.replace(
        stepping(FUSED, 1.0),
        timing=Skipped(reason="it took 67 s"),
        trace=trace,
        script=ScriptRun(step="an optimizer step", steps=9, counted={}),
    )

    assert said in analyse(recording(record, baseline=None)).verdict.reasons[0]
    assert ranked(record).notes == ("not timed without instruments: it took 67 s",)


@pytest.mark.parametrize(
    ("step", "says"),
    [("a call of a compiled function", True), ("an optimizer step", False), ("", False)],
)
def test_a_step_that_is_a_call_is_said_beside_its_time(step: str, says: bool) -> None:
    script = ScriptRun(step=step, steps=9, counted={})
    record = msgspec.structs.replace(stepping(FUSED, *(1_000.0,) * 9), script=script)

    found = analyse(recording(record, baseline=None)).verdict

    assert ("; a step is a call of a compiled function" in found.text) is says


PROFILES_ITSELF = "the program runs torch.profiler itself"


@pytest.mark.parametrize(
    ("timing", "status", "said"),
    [
        (None, "attention", f"; what the GPU did is not known: {PROFILES_ITSELF}"),
        (
            Skipped(reason="it took 61 s"),
            "inconclusive",
            f"; what the GPU did is not known: {PROFILES_ITSELF}; not timed without instruments: "
            "it took 61 s",
        ),
    ],
)
def test_a_script_on_a_gpu_without_trace_is_not_ok_and_says_why(
    timing: Skipped | None, status: str, said: str
) -> None:
    record = msgspec.structs.replace(
        stepping(FUSED, *(1_000.0,) * 5),
        trace=Skipped(reason=PROFILES_ITSELF),
        script=ScriptRun(step="an optimizer step", steps=9, counted={}),
    )
    if timing is not None:
        record = msgspec.structs.replace(record, timing=timing)

    def judged(device: str) -> Verdict:
        whole = recording(record, baseline=None)
        plan = msgspec.structs.replace(whole.header.plan, device=device)
        passes = (PassName.COMPILE, PassName.MEMORY, PassName.TRACE)
        options = msgspec.structs.replace(whole.header.options, passes=passes, timing_below_s=60.0)
        header = msgspec.structs.replace(whole.header, plan=plan, options=options)
        return analyse(msgspec.structs.replace(whole, header=header)).verdict

    assert judged("cuda").status == status
    assert said in judged("cuda").text
    assert PROFILES_ITSELF not in judged("cpu").text


def test_traced_calls_are_no_time_of_another_kind_of_step() -> None:
    """Iterations of seconds each, and TRACE of the calls in them."""
    trace = TracePass(step_us=(671.0,) * 3, trace_file="t.json.gz", cpp_kernel_profile=False)
    script = ScriptRun(
        step="an epoch",
        traced="a call of f",
        steps=8,
        counted={},
    )
    record = msgspec.structs.replace(
        stepping(FUSED, 1.0), timing=Skipped(reason="it compiled"), trace=trace, script=script
    )
    assert isinstance(record.compile, CompilePass)

    def told(*call_us: float) -> str:
        compiled = msgspec.structs.replace(record.compile, call_us=call_us, steady_from=1)
        whole = recording(msgspec.structs.replace(record, compile=compiled), baseline=None)
        return analyse(whole).verdict.reasons[0]

    assert "; no step time: no step came after warm-up" in told(2e6)
    one = "step time not decided: one step was timed, about 1,900 ms/step (with kgprof's listeners"
    assert one in told(2e6, 1.9e6)
    assert "takes about 1,900 ms/step (with kgprof's listeners on)" in told(2e6, 1.9e6, 1.9e6)


def test_steps_of_a_script_in_which_torch_compiles_are_in_no_time_and_without_another_there_is_none() -> (  # noqa: E501
    None
):
    # given: four steps before the profiler and three in it, behind the one in which it starts
    trace = TracePass(step_us=(30.0, 900.0, 34.0), trace_file="t.json.gz", cpp_kernel_profile=False)
    record = msgspec.structs.replace(
        stepping(FUSED, 1.0),
        timing=Skipped(reason="it took 67 s"),
        trace=trace,
        script=ScriptRun(
            step="an optimizer step", steps=9, counted={}, closure="closure (train.py:12)"
        ),
    )
    assert isinstance(record.compile, CompilePass)
    compiled = msgspec.structs.replace(
        record.compile, call_us=(5e5, 29.0, 2e5, 31.0), steady_from=1
    )

    def told(*compiled_in: int) -> str:
        passed = msgspec.structs.replace(compiled, compiled_in=compiled_in)
        return analyse(
            recording(msgspec.structs.replace(record, compile=passed), baseline=None)
        ).verdict.reasons[0]

    assert "takes about 0.0300 ms/step (with kgprof's listeners on)" in told(0, 2)
    assert "takes about 0.0320 ms/step (under torch.profiler)" in told(0, 1, 2, 3, 6)
    without = "9 steps counted; no step time: no step came after warm-up without a compilation; "
    assert without + "kgprof.step() at the top of closure (train.py:12)" in told(*range(8))
    assert record.script is not None
    window = msgspec.structs.replace(
        record.script, step="", steps=0, counted={"an optimizer step": 1}
    )
    record = msgspec.structs.replace(record, script=window)
    assert (
        "has no steps, and was not timed; kgprof.step() at the top of closure (train.py:12)"
        in told()
    )


# ---------------------------------------------------------------- over several processes


def test_the_figures_are_of_all_rounds() -> None:
    eager, fused = run(EAGER, evaluation_s=0.5), run(FUSED, evaluation_s=0.2)

    found = ranked(in_rounds(eager, 0.51, 0.49), in_rounds(fused, 0.24, 0.23))

    assert "(2.30 vs 5.00 ms/candidate)" in found.text  # the first process of fused alone took 2.00
    assert found.notes == ("3 processes each",)


def test_rounds_of_which_some_were_lost_are_counted_for_each_run() -> None:
    eager, fused = run(EAGER, evaluation_s=0.5), run(FUSED, evaluation_s=0.2)

    found = ranked(in_rounds(eager, 0.51, 0.5), in_rounds(fused, 0.2))

    assert found.notes == ("2 or 3 processes each",)


def test_an_evaluation_with_other_results_is_finished_though_it_ranks_nothing() -> None:
    differs = agreement(agreed(EAGER), agreed(FUSED, "different", differing=3), agreed(COND))
    unfinished = run(COND, unfinished=3)

    runs = analyse(recording(run(EAGER), run(FUSED), unfinished, agreement=differs)).runs

    assert fastest(runs, EAGER).text.startswith("only batched.eager has an evaluation to rank by")


def test_rounds_rank_what_is_closer_than_one_process_each_could() -> None:
    eager, fused = run(EAGER, evaluation_s=0.5), run(FUSED, evaluation_s=0.45)

    found = ranked(in_rounds(eager, 0.51, 0.49), in_rounds(fused, 0.46, 0.44))

    assert (found.status, found.text.partition(":")[0]) == ("ok", "fused.default is fastest")


def test_rounds_that_overlap_rank_nothing() -> None:
    eager, fused = run(EAGER, evaluation_s=0.5), run(FUSED, evaluation_s=0.2)

    found = ranked(in_rounds(eager, 0.51, 0.3), in_rounds(fused, 0.35, 0.19))

    assert found.status == "inconclusive"
    assert (
        "batched.eager takes 0.779 to 4.12× as long as fused.default (95 % interval, 3 + 3 proc"
        in found.text
    )


# ---------------------------------------------------------------- nothing to rank by


@pytest.mark.parametrize(
    ("factor", "status"),
    [(APART - 0.1, "inconclusive"), (APART + 0.1, "ok")],
    ids=["close", "apart"],
)
def test_one_process_each_ranks_only_what_is_far_apart(factor: float, status: str) -> None:
    runs = stepping(EAGER, *[1000.0 * factor] * 9), stepping(FUSED, *[1000.0] * 9)

    found = ranked(*runs)

    assert found.status == status
    assert ("--rounds 3" in found.text) == (status == "inconclusive")


def test_times_that_vary_too_much_rank_nothing_however_far_apart_they_are() -> None:
    noisy = stepping(FUSED, *[100.0 * NOISY * 1.1 if i % 2 else 100.0 for i in range(20)])

    found = ranked(stepping(EAGER, *[9000.0] * 20), noisy)

    assert found.status == "inconclusive"
    assert "the times of fused.default varied 2.20× within one process" in found.text


@pytest.mark.parametrize("once", ["baseline", "fastest"])
def test_one_evaluation_is_not_enough_to_rank(once: str) -> None:
    eager = timed(run(EAGER), *([0.5] if once == "baseline" else [0.5, 0.51]))
    fused = timed(run(FUSED), *([0.2] if once == "fastest" else [0.2, 0.21, 0.19]))

    found = ranked(eager, fused)

    assert found.status == "inconclusive"
    assert "measured once (n = 1)" in found.text


def test_one_step_is_not_enough_to_say_what_a_step_takes() -> None:
    once, more = ranked(stepping(FUSED, 50.0)), ranked(stepping(FUSED, 50.0, 51.0, 52.0))

    assert once.status == "inconclusive"
    assert once.text == "fused.default: step time not decided: one step was timed, 0.0500 ms/step"
    assert more.status == "ok"


def test_times_that_overlap_and_are_as_good_as_equal_are_level() -> None:
    found = ranked(run(EAGER, evaluation_s=0.5), run(FUSED, evaluation_s=0.48))

    assert (found.status, found.text) == (
        "ok",
        "fused.default and batched.eager are level: fused.default took 4.80 ms/candidate, "
        "batched.eager 5.00 ms/candidate",
    )


def test_times_that_overlap_and_are_not_equal_are_inconclusive() -> None:
    found = ranked(timed(run(EAGER), 0.5, 0.38, 0.6), timed(run(FUSED), 0.4, 0.3, 0.45))

    assert found.status == "inconclusive"
    assert "their spreads overlap (3.00 to 4.50 vs 3.80 to 6.00 ms/candidate)" in found.text


def test_runs_beside_the_winner_that_cannot_be_told_from_it_share_the_first_place() -> None:
    found = ranked(
        run(EAGER, evaluation_s=0.9), run(FUSED, evaluation_s=0.39), run(COND, evaluation_s=0.4)
    )

    assert found.status == "ok"
    assert found.text.startswith(
        "fused.default and torch_cond.default are fastest: 2.31× faster than batched.eager"
    )
    assert any("cannot be told apart: their spreads overlap" in note for note in found.notes)


# ---------------------------------------------------------------- a file instead of its function


def whole_file(*uncalled: str) -> Verdict:
    script = ScriptRun(step="", steps=0, counted={"an optimizer step": 0}, uncalled=uncalled)
    whole = recording(msgspec.structs.replace(stepping(FUSED, 4.5e6), script=script), baseline=None)
    plan = msgspec.structs.replace(whole.header.plan, workload="my_model.py")
    header = msgspec.structs.replace(whole.header, plan=plan)
    return analyse(msgspec.structs.replace(whole, header=header)).verdict


@pytest.mark.parametrize(
    ("uncalled", "asks", "status"),
    [
        ((), "", "ok"),
        (
            ("step",),
            "; it never calls step(): did you mean kgprof profile my_model.py:step?",
            "attention",
        ),
        (
            ("step", "plain", "other"),
            "; it never calls step(): did you mean kgprof profile my_model.py:step?",
            "attention",
        ),
    ],
)
def test_a_file_without_steps_names_the_functions_that_could_have_been_meant(
    uncalled: tuple[str, ...], asks: str, status: str
) -> None:
    found = whole_file(*uncalled)

    assert found.text == (
        f"fused.default takes 4.50 s from its first line to its end (no steps){asks}"
    )
    assert found.status == status
