"""When compiling has paid for itself: what starting took, over what a step or candidate then
saves."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.measures.economics import (
    EAGER_STEPS,
    NO_GRAPH,
    NOT_FASTER,
    ONE_ROUND,
    RESULTS_DIFFER,
    UNTIMED,
    economics,
)
from kgprof.measures.times import AGAIN
from kgprof.model import (
    AS_IS,
    BreakEven,
    CompilePass,
    Economics,
    Exit,
    PassName,
    Recording,
    RoundRecord,
    RunRecord,
    ScriptRun,
    Skipped,
    Spread,
    TimedRound,
    TimingPass,
)
from kgprof.model.compile_records import CompiledCalls, CompileRecords, GraphRuns
from kgprof.reading.evidence import Evidence
from tests.analysis.recordings import (
    COMPILATION,
    COMPILED,
    EAGER,
    agreed,
    agreement,
    recording,
    run,
)
from tests.collectors.written import STEP, called
from tests.record import handmade

OK = Exit(outcome="ok")


def stepping(
    record: RunRecord,
    *step_us: float,
    calls_us: tuple[float, ...] = (),
    evaluation_s: tuple[float, ...] = (),
) -> RunRecord:
    """Those samples of TIMING; ``calls_us`` are COMPILE's, of which two come before steady
    state."""
    compiled = record.compile
    assert isinstance(compiled, CompilePass)
    calls = (
        msgspec.structs.replace(compiled, call_us=calls_us, steady_from=2) if calls_us else compiled
    )
    timing = TimingPass(clock="perf_counter", step_us=(step_us,), evaluation_s=evaluation_s)
    return msgspec.structs.replace(record, timing=timing, compile=calls)


def with_rounds(record: RunRecord, *medians_us: float, warm_up_s: tuple[float, ...]) -> RunRecord:
    def measured(us: float) -> TimedRound:
        timing = TimingPass(clock="perf_counter", step_us=((us, us, us),), evaluation_s=())
        return TimedRound(
            first_call_s=warm_up_s[0],
            graphs_from_cache=1,
            graphs_compiled=0,
            timing=timing,
            warm_up_s=warm_up_s,
        )

    further = tuple(
        RoundRecord(number=number, exit=OK, measured=measured(us))
        for number, us in enumerate(medians_us, start=2)
    )
    return msgspec.structs.replace(record, rounds=further)


def weighed(recording: Recording, run: RunRecord) -> Economics | Skipped:
    (evidence,) = (one for one in Evidence(recording).runs if one.record is run)
    return economics(evidence)


def of(*runs: RunRecord, **given: object) -> Economics:
    found = weighed(recording(*runs, **given), runs[-1])  # type: ignore[arg-type]
    assert isinstance(found, Economics)
    return found


# ``eager`` starts with 0.1 s beyond its two first steps, ``compiled`` with 4.1 s.
EAGER_CALLS = (101_000.0, 1000.0, 1000.0, 1000.0)
COMPILED_CALLS = (3_100_500.0, 1_000_500.0, 500.0, 500.0)


def eager(*step_us: float) -> RunRecord:
    return stepping(run(EAGER, evaluation_s=None, unfinished=None), *step_us, calls_us=EAGER_CALLS)


def compiled(*step_us: float) -> RunRecord:
    return stepping(
        run(COMPILED, evaluation_s=None, unfinished=None), *step_us, calls_us=COMPILED_CALLS
    )


def test_break_even_is_what_starting_takes_beyond_eagers_own_start_over_what_a_step_saves() -> None:
    found = of(eager(1000.0, 1000.0, 1000.0), compiled(500.0, 500.0, 500.0))

    assert (found.verdict, found.per, found.rounds, found.saved_us) == ("pays", "step", 1, 500.0)
    assert found.cold_s == pytest.approx(4.1 - 0.0, abs=1e-9)
    assert found.eager_s == pytest.approx(0.1)
    # 4.0 s over 500 us
    assert isinstance(found.cold, BreakEven)
    assert (found.cold.steps, found.cold.after_s) == (pytest.approx(8000.0), pytest.approx(4.0))
    assert found.cold.units == Skipped(reason="the workload counts no candidates")
    assert (found.warm_s, found.warm) == (ONE_ROUND, ONE_ROUND)
    assert found.text == (
        "4.1 s of cold compile time (without the vector-ISA probe) pays off after 8,000 steps: "
        "0.500 ms per step, 1.00 ms in mode eager (TIMING, medians, in one process each)"
    )


@pytest.mark.parametrize(
    ("step_us", "verdict"),
    [
        pytest.param((400.0, 500.0, 600.0), "pays", id="all below"),
        pytest.param((1500.0, 1600.0, 1700.0), "never", id="all above, and far apart"),
        pytest.param(
            (1200.0, 1300.0, 1400.0),
            "not decided",
            id="all above, as far as two processes of one program",
        ),
        pytest.param((700.0, 800.0, 1200.0), "not decided", id="below, and they overlap"),
        pytest.param((900.0, 1050.0, 1200.0), "level", id="as good as equal"),
    ],
)
def test_faster_and_slower_are_said_beyond_the_noise_only(
    step_us: tuple[float, ...], verdict: str
) -> None:
    found = of(eager(900.0, 1000.0, 1100.0), compiled(*step_us))

    assert found.verdict == verdict
    assert isinstance(found.cold, BreakEven) == (verdict == "pays")
    assert (found.cold == NOT_FASTER) == (verdict in ("never", "level"))
    assert found.text.startswith("cannot tell whether it is faster than eager: ") == (
        verdict == "not decided"
    )


def test_steps_that_vary_too_much_weigh_nothing() -> None:
    busy = [5000.0 if call % 2 else 2000.0 for call in range(20)]  # all of them above eager's

    found = of(eager(900.0, 1000.0, 1100.0), compiled(*busy))

    busy_us = (
        "the times of batched.default varied 2.50× within one process: its steps differ, or the "
        "machine was busy"
    )
    assert (found.verdict, found.cold, found.warm) == (
        "not decided",
        Skipped(reason=busy_us),
        ONE_ROUND,
    )


def test_candidates_decide_where_both_runs_finished_theirs() -> None:
    # given: 100 candidates in 5 steps; steps that are faster, and evaluations that are not
    slow = stepping(run(EAGER), 1000.0, calls_us=EAGER_CALLS, evaluation_s=(0.5, 0.5))
    slower = stepping(run(COMPILED), 500.0, calls_us=COMPILED_CALLS, evaluation_s=(0.8, 0.8))
    fast = stepping(run(COMPILED), 500.0, calls_us=COMPILED_CALLS, evaluation_s=(0.3, 0.3))

    assert (of(slow, slower).verdict, of(slow, slower).per) == ("never", "candidate")
    found = of(slow, fast)
    # 2 ms a candidate over 4 s: 2,000 candidates, 20 of which a step advances
    assert found.saved_us == pytest.approx(2000.0)
    assert found.cold == BreakEven(
        steps=pytest.approx(100.0), units=pytest.approx(2000.0), after_s=pytest.approx(6.0)
    )


def test_one_evaluation_on_a_side_tells_nothing_beyond_the_noise() -> None:
    once = stepping(run(EAGER), 1000.0, evaluation_s=(0.5,))
    fast = stepping(run(COMPILED), 500.0, evaluation_s=(0.1, 0.1))

    assert of(once, fast).verdict == "not decided"


def test_with_rounds_on_both_sides_the_rounds_decide_and_warm_caches_are_counted_apart() -> None:
    # given: first processes that say "faster", and rounds that overlap
    slow = with_rounds(eager(1000.0, 1000.0), 1000.0, 400.0, warm_up_s=(0.051, 0.001))
    fast = with_rounds(compiled(500.0, 500.0), 450.0, 500.0, warm_up_s=(1.05, 0.25))
    steady = with_rounds(eager(1000.0, 1000.0), 1000.0, 900.0, warm_up_s=(0.051, 0.001))

    assert of(slow, fast).verdict == "not decided"
    found = of(steady, fast)
    assert (found.verdict, found.rounds, found.saved_us) == ("pays", 3, 500.0)
    assert isinstance(found.warm_s, Spread)
    assert (found.warm_s.samples, found.warm_s.measured_in) == (2, PassName.TIMING)
    assert found.warm_s.median == pytest.approx(1.3 - 2 * 475e-6)
    assert isinstance(found.warm, BreakEven)
    # 1.3 s less two steps, less eager's 0.052 s less two steps, over 500 us
    assert found.warm.steps == pytest.approx((1.3 - 2 * 475e-6 - (0.052 - 2 * 950e-6)) / 500e-6)
    assert isinstance(found.cold, BreakEven)
    assert found.cold.steps == pytest.approx(8000.0)


def test_what_starts_faster_than_eager_has_paid_at_once() -> None:
    quick = stepping(
        run(COMPILED, evaluation_s=None, unfinished=None),
        500.0,
        500.0,
        calls_us=(500.0, 500.0, 500.0, 500.0),
    )

    found = of(eager(1000.0, 1000.0), quick)

    assert isinstance(found.cold, BreakEven)
    assert found.cold.steps == 0


def test_without_an_eager_run_and_with_other_results_nothing_is_weighed() -> None:
    alone = of(compiled(500.0))
    differs = agreed(COMPILED, "different", differing=3)
    wrong = of(eager(1000.0), compiled(500.0), agreement=agreement(agreed(EAGER), differs))
    pair = eager(1000.0, 1000.0), compiled(500.0, 500.0)
    another = of(*pair, agreement=agreement(agreed(EAGER, "different", differing=3), differs))

    both = "--mode default --mode eager runs it in both"
    without = Skipped(reason=f"this strategy was not run in mode eager; {both}")
    assert (alone.verdict, alone.cold, alone.saved_us) == ("not observed", without, without)
    assert alone.cold_s == pytest.approx(4.1)
    assert (wrong.verdict, wrong.cold) == ("not observed", RESULTS_DIFFER)
    assert another.verdict == "pays"  # both are held against another strategy's results
    assert wrong.text == "not compared with eager: results differ"


def test_eager_runs_runs_that_compiled_nothing_and_untimed_ones_have_no_economics() -> None:
    slow, fast = eager(1000.0), compiled(500.0)
    nothing = run(COMPILED, compiled=0)
    gate = recording(slow, fast)
    options = msgspec.structs.replace(gate.header.options, passes=(PassName.COMPILE,))
    untimed: Recording = msgspec.structs.replace(
        gate, header=msgspec.structs.replace(gate.header, options=options)
    )

    assert isinstance(weighed(gate, slow), Skipped)
    assert weighed(recording(slow, nothing), nothing) == Skipped(reason="nothing was compiled")
    assert weighed(untimed, fast) == UNTIMED


def test_where_torch_made_no_graph_nothing_pays_off() -> None:
    slow, fast = eager(1000.0), compiled(500.0)
    assert isinstance(fast.compile, CompilePass)
    failed = msgspec.structs.replace(fast.compile.compilations[0], fail_reason="Unsupported")
    passed = msgspec.structs.replace(fast.compile, compilations=(failed,))
    without = msgspec.structs.replace(fast, compile=passed)

    assert weighed(recording(slow, without), without) == NO_GRAPH


def script(
    eager: TimingPass | Skipped,
    compiled_us: float = 500.0,
    called_in: tuple[int, ...] = (),
    eager_in: tuple[int, ...] = (),
) -> Economics | Skipped:
    """Of a short script, which is timed without a request: compiled, and with compiling off.

    ``called_in``: the steps that call its compiled function; none: nobody counted. ``eager_in``:
    those of them in which it ran eagerly.
    """
    timed = compiled(compiled_us, compiled_us)
    assert isinstance(timed.timing, TimingPass)
    ran = msgspec.structs.replace(
        timed,
        key=msgspec.structs.replace(timed.key, mode=AS_IS),
        script=ScriptRun(step="an optimizer step", steps=9, counted={}),
        timing=msgspec.structs.replace(timed.timing, step="an optimizer step"),
        eager_timing=eager,
        records=CompileRecords(),
    )
    if called_in:
        eager_calls = dict.fromkeys(eager_in, 1)
        function = called(STEP, calls=dict.fromkeys(called_in, 1), eager=eager_calls)
        counted = CompileRecords(compiled_calls=CompiledCalls(callables=(function,)))
        ran = msgspec.structs.replace(ran, records=counted)
    asked = recording(ran)
    options = msgspec.structs.replace(asked.header.options, passes=(PassName.COMPILE,))
    header = msgspec.structs.replace(asked.header, options=options)
    return weighed(msgspec.structs.replace(asked, header=header), ran)


def eagerly(us: tuple[float, ...], step: str = "an optimizer step") -> TimingPass:
    return TimingPass(
        clock="perf_counter", step_us=(us,), evaluation_s=(), start_us=(3 * us[0],), step=step
    )


def test_of_a_short_eager_step_it_is_said_that_torchs_wrapper_is_in_it() -> None:
    found = of(eager(50.0, 50.0, 50.0), compiled(95.0, 95.0, 95.0))

    assert "0.0500 ms in mode eager with torch's wrapper (TIMING" in found.text


def test_a_script_is_held_against_itself_with_compiling_off() -> None:
    faster, slower = script(eagerly((1000.0, 1010.0))), script(eagerly((200.0, 201.0)))
    assert isinstance(faster, Economics)
    assert isinstance(slower, Economics)

    assert faster.verdict == "pays"
    assert faster.eager_s == pytest.approx(1.995e-3)
    assert isinstance(faster.cold, BreakEven)
    assert slower.verdict == "never"
    assert slower.text.startswith("slower than eager;")
    assert "in mode eager with torch's wrapper (TIMING, medians, in one" in slower.text


def test_what_compiles_after_warm_up_costs_too_and_is_no_usual_step() -> None:
    before, later = compiled(1500.0, 1600.0), compiled(1500.0, 1600.0)
    assert isinstance(later.compile, CompilePass)
    calls_us = (*COMPILED_CALLS[:2], 2_000_500.0, 500.0, 3_000_500.0)
    again = msgspec.structs.replace(later.compile, call_us=calls_us, compiled_in=(0, 1, 2, 4))
    beyond = msgspec.structs.replace(again, compiled_in=(0, 1, 2, 4, 7))
    slow = eager(1000.0, 1000.0)

    assert of(slow, before).cold_s == pytest.approx(4.1)
    assert of(slow, msgspec.structs.replace(later, compile=again)).cold_s == pytest.approx(9.1)
    not_all = of(slow, msgspec.structs.replace(later, compile=beyond))
    assert "; at least 9.1 s of cold compile time" in not_all.text


def test_a_script_whose_steps_are_eager_code_is_not_compared_with_eager() -> None:
    """It warms a compiled function up, takes eager steps, and times the function after them."""
    times = eagerly((1000.0, 1010.0))

    assert script(times, called_in=(0, 1, 9)) == EAGER_STEPS
    assert script(times, called_in=(0, 4, 8)) == EAGER_STEPS
    assert isinstance(script(times, called_in=(0, 1, 2, 4, 6, 8)), Economics)
    # since torch's limit
    assert script(times, called_in=(*range(9),), eager_in=(4, 5, 6, 7, 8)) == EAGER_STEPS


def test_where_every_step_before_the_timed_ones_compiles_the_usual_step_is_a_timed_one() -> None:
    fast = compiled(500.0, 500.0, 500.0)
    assert isinstance(fast.compile, CompilePass)
    made = msgspec.structs.replace(fast.compile, compiled_in=(*range(len(COMPILED_CALLS)),))

    found = of(eager(1000.0, 1000.0, 1000.0), msgspec.structs.replace(fast, compile=made))

    assert found.cold_s == pytest.approx(4.1 - 0.0, abs=1e-9)


def test_what_the_first_step_of_a_script_does_besides_is_no_compile_time() -> None:
    times = eagerly((200.0, 201.0))
    evaluates_first = script(msgspec.structs.replace(times, start_us=(2e6,)))
    assert isinstance(evaluates_first, Economics)

    assert evaluates_first.cold_s == pytest.approx(4.1, rel=0.01)
    assert evaluates_first.paid_s == pytest.approx(2.1, rel=0.01)
    assert "2.1 s of cold compile time" in evaluates_first.text


def test_where_first_steps_took_no_longer_than_in_eager_compiling_took_what_torch_timed() -> None:
    times = eagerly((200.0, 201.0))
    slow_start = script(msgspec.structs.replace(times, start_us=(9e6,)))
    assert isinstance(slow_start, Economics)

    assert slow_start.paid_s == COMPILATION.duration_s
    assert "1.5 s of cold compile time is not recovered" in slow_start.text


def test_a_script_that_was_not_run_so_or_has_other_steps_is_not_compared() -> None:
    lost = Skipped(reason="run again with compiling switched off, the program raised")

    assert script(lost) == lost
    other = script(eagerly((900.0, 901.0), step="a call of the outermost nn.Module"))
    assert isinstance(other, Economics)
    assert other.verdict == "not observed"
    assert other.text.endswith("with compiling switched off it has other steps")


def test_times_that_cannot_be_told_apart_say_why() -> None:
    undecided = script(eagerly((520.0, 530.0)))
    noisy = script(eagerly((200.0, 900.0)))

    assert isinstance(undecided, Economics)
    assert isinstance(noisy, Economics)
    for found in (undecided, noisy):
        assert found.verdict == "not decided"
        assert found.text.partition("faster than eager: ")[2]
        assert "add --rounds" not in found.text  # a script takes none
    assert AGAIN in undecided.text


def test_no_call_after_warm_up_leaves_the_cost_of_compiling_unknown() -> None:
    short = stepping(
        run(COMPILED, evaluation_s=None, unfinished=None), 500.0, 500.0, calls_us=(2e6, 1e6)
    )

    found = of(eager(1000.0, 1000.0), short)

    why = Skipped(reason="COMPILE has no call after warm-up")
    assert (found.verdict, found.cold_s, found.cold) == ("pays", why, why)
    assert found.text.endswith(f"its break-even is unknown: {why.reason}")


def test_an_evaluation_that_counts_no_step_gives_no_candidates() -> None:
    evaluation = run(COMPILED).evaluation
    assert not isinstance(evaluation, Skipped)
    stepless = handmade.counted(
        msgspec.structs.replace(evaluation, steps=0), unfinished=evaluation.units
    )

    found = of(
        eager(1000.0, 1000.0, 1000.0),
        msgspec.structs.replace(compiled(500.0, 500.0, 500.0), evaluation=stepless),
    )

    assert isinstance(found.cold, BreakEven)
    assert found.cold.units == Skipped(reason="its evaluation counts no step")


def test_a_round_that_timed_no_step_has_no_warm_start() -> None:
    """Evaluations of a session that never says that a step is over."""
    given = with_rounds(compiled(500.0, 500.0, 500.0), 500.0, warm_up_s=(1.0,))
    (timed,) = given.rounds
    assert isinstance(timed.measured, TimedRound)
    stepless = TimingPass(clock="perf_counter", step_us=((), ()), evaluation_s=(1.0, 1.0))
    without = msgspec.structs.replace(
        timed, measured=msgspec.structs.replace(timed.measured, timing=stepless)
    )

    assert of(given).warm_s != of(msgspec.structs.replace(given, rounds=(without,))).warm_s
    assert of(msgspec.structs.replace(given, rounds=(without,))).warm_s == Skipped(
        reason="TIMING has no sample"
    )


@pytest.mark.parametrize(
    ("asks_for_cuda_graphs", "took"),
    [
        (None, "4.1 s of cold compile time"),
        (False, "4.1 s of cold compile time (without the vector-ISA probe)"),
    ],
)
def test_the_vector_isa_probe_is_named_only_of_what_inductor_compiled(
    asks_for_cuda_graphs: bool | None, took: str
) -> None:
    graph = GraphRuns(compile_id="0/0", cuda_graphs=asks_for_cuda_graphs)
    fast = msgspec.structs.replace(
        compiled(500.0, 500.0, 500.0), records=CompileRecords(graphs=(graph,))
    )

    assert of(eager(1000.0, 1000.0, 1000.0), fast).text.partition(" pays")[0] == took
