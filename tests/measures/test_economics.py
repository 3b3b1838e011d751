"""When compiling has paid for itself: what torch says that it took, over what a step or candidate
then saves; and why the two are not compared."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.measures.economics import (
    COMPILED_WHILE_TIMED,
    COMPILES_LATER,
    EAGER_COMPILES,
    LEVEL,
    NO_GRAPH,
    NOT_RECOVERED,
    RESULTS_DIFFER,
    UNTIMED,
    economics,
)
from kgprof.measures.times import AGAIN
from kgprof.model import (
    AS_IS,
    BreakEven,
    Compilation,
    CompilePass,
    Economics,
    Exit,
    Load,
    PassName,
    Recording,
    RoundRecord,
    RunRecord,
    ScriptRun,
    Skipped,
    TimedRound,
    TimingPass,
)
from kgprof.model.compile_records import CompiledCalls, CompileRecords
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
from tests.collectors import written_device
from tests.collectors.written import STEP, called
from tests.record import handmade

OK = Exit(outcome="ok")
AFTER = "steps after warm-up without a compilation"


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


def with_rounds(record: RunRecord, *medians_us: float, compiled: bool = False) -> RunRecord:
    """``compiled``: torch did while they were timed."""

    def measured(us: float) -> TimedRound:
        timing = TimingPass(
            clock="perf_counter", step_us=((us, us, us),), evaluation_s=(), compiled=compiled
        )
        return TimedRound(first_call_s=1.0, graphs_from_cache=1, graphs_compiled=0, timing=timing)

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


EAGER_CALLS = (101_000.0, 1000.0, 1000.0, 1000.0)
COMPILED_CALLS = (3_100_500.0, 1_000_500.0, 500.0, 500.0)


def eager(*step_us: float) -> RunRecord:
    return stepping(run(EAGER, evaluation_s=None, unfinished=None), *step_us, calls_us=EAGER_CALLS)


def compiled(*step_us: float) -> RunRecord:
    return stepping(
        run(COMPILED, evaluation_s=None, unfinished=None), *step_us, calls_us=COMPILED_CALLS
    )


def test_break_even_is_what_torch_timed_over_what_a_step_saves() -> None:
    found = of(eager(1000.0, 1000.0, 1000.0), compiled(500.0, 500.0, 500.0))

    assert (found.verdict, found.per, found.rounds, found.saved_us) == ("pays", "step", 1, 500.0)
    assert found.cold_s == COMPILATION.duration_s
    # 1.5 s over 500 us
    assert isinstance(found.cold, BreakEven)
    assert (found.cold.steps, found.cold.after_s) == (pytest.approx(3000.0), pytest.approx(1.5))
    assert found.cold.units == Skipped(reason="the workload counts no candidates")
    assert found.text == (
        "faster than eager: 0.500 ms per step, 1.00 ms in mode eager (TIMING, medians, in one "
        "process each); compiling took 1.5 s with cold caches and pays off after 3,000 steps"
    )


def test_all_compilations_that_torch_timed_are_what_compiling_took() -> None:
    fast = compiled(500.0, 500.0, 500.0)
    assert isinstance(fast.compile, CompilePass)
    untimed = msgspec.structs.replace(COMPILATION, duration_s=Skipped(reason="none"))
    slow = eager(1000.0, 1000.0)

    def took(*compilations: Compilation) -> float | Skipped:
        made = msgspec.structs.replace(fast.compile, compilations=compilations)
        return of(slow, msgspec.structs.replace(fast, compile=made)).cold_s

    assert took(COMPILATION, untimed, COMPILATION) == 3.0
    assert took(untimed) == Skipped(reason="torch gave no duration of its compilations")


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
    assert (found.cold in (LEVEL, NOT_RECOVERED)) == (verdict in ("never", "level"))
    assert found.text.startswith("cannot tell whether it is faster than eager: ") == (
        verdict == "not decided"
    )
    assert "1.00 ms in mode eager (TIMING, medians, in one process each)" in found.text


def test_steps_that_vary_too_much_weigh_nothing() -> None:
    busy = [5000.0 if call % 2 else 2000.0 for call in range(20)]  # all of them above eager's

    found = of(eager(900.0, 1000.0, 1100.0), compiled(*busy))

    varied = "the times of batched.default varied 2.50× within one process"
    assert (found.verdict, found.cold) == ("not decided", Skipped(reason=varied))


def test_candidates_decide_where_both_runs_finished_theirs() -> None:
    # given: 100 candidates in 5 steps; steps that are faster, and evaluations that are not
    slow = stepping(run(EAGER), 1000.0, calls_us=EAGER_CALLS, evaluation_s=(0.5, 0.5))
    slower = stepping(run(COMPILED), 500.0, calls_us=COMPILED_CALLS, evaluation_s=(0.8, 0.8))
    fast = stepping(run(COMPILED), 500.0, calls_us=COMPILED_CALLS, evaluation_s=(0.3, 0.3))

    assert (of(slow, slower).verdict, of(slow, slower).per) == ("never", "candidate")
    found = of(slow, fast)
    # 2 ms a candidate over 1.5 s: 750 candidates, 20 of which a step advances
    assert found.saved_us == pytest.approx(2000.0)
    assert found.cold == BreakEven(
        steps=pytest.approx(37.5), units=pytest.approx(750.0), after_s=pytest.approx(2.25)
    )


def test_one_evaluation_on_a_side_tells_nothing_beyond_the_noise() -> None:
    once = stepping(run(EAGER), 1000.0, evaluation_s=(0.5,))
    fast = stepping(run(COMPILED), 500.0, evaluation_s=(0.1, 0.1))

    assert of(once, fast).verdict == "not decided"


def test_with_rounds_on_both_sides_the_rounds_decide() -> None:
    # given: first processes that say "faster", and rounds that overlap
    slow = with_rounds(eager(1000.0, 1000.0), 1000.0, 400.0)
    fast = with_rounds(compiled(500.0, 500.0), 450.0, 500.0)
    steady = with_rounds(eager(1000.0, 1000.0), 1000.0, 900.0)

    assert of(slow, fast).verdict == "not decided"
    found = of(steady, fast)
    assert (found.verdict, found.rounds, found.saved_us) == ("pays", 3, 500.0)


def test_where_torch_compiled_in_the_timed_steps_nothing_is_compared() -> None:
    steady = with_rounds(eager(1000.0, 1000.0), 1000.0, 900.0)
    compiles = with_rounds(compiled(500.0, 500.0), 450.0, 500.0, compiled=True)

    found = of(steady, compiles)

    assert (found.verdict, found.cold) == ("not observed", Skipped(reason=COMPILED_WHILE_TIMED))


def test_of_code_that_compiles_after_warm_up_or_in_eager_mode_nothing_is_recovered() -> None:
    slow, fast, slower = eager(1000.0, 1000.0), compiled(500.0, 500.0), compiled(1500.0, 1600.0)

    def later(of: RunRecord) -> RunRecord:
        made = msgspec.structs.replace(of.compile, compiled_in=(0, 1, 3))
        return msgspec.structs.replace(of, compile=made)

    for side, verdict in ((fast, "pays"), (slower, "never")):
        found = of(slow, later(side))
        assert (found.verdict, found.cold) == (verdict, COMPILES_LATER)
        assert found.text.endswith("; compiling took 1.5 s with cold caches")
    assert isinstance(slow.compile, CompilePass)
    own = msgspec.structs.replace(slow.compile, compilations=(COMPILATION,))
    assert of(msgspec.structs.replace(slow, compile=own), fast).cold == EAGER_COMPILES


def test_without_an_eager_run_and_with_other_results_nothing_is_weighed() -> None:
    alone = of(compiled(500.0))
    differs = agreed(COMPILED, "different", differing=3)
    wrong = of(eager(1000.0), compiled(500.0), agreement=agreement(agreed(EAGER), differs))
    pair = eager(1000.0, 1000.0), compiled(500.0, 500.0)
    another = of(*pair, agreement=agreement(agreed(EAGER, "different", differing=3), differs))

    both = "--mode default --mode eager runs it in both"
    without = Skipped(reason=f"this strategy was not run in mode eager; {both}")
    assert (alone.verdict, alone.cold, alone.saved_us) == ("not observed", without, without)
    assert alone.cold_s == COMPILATION.duration_s
    assert (wrong.verdict, wrong.cold) == ("not observed", Skipped(reason=RESULTS_DIFFER))
    assert another.verdict == "pays"  # both are held against another strategy's results
    took = "compiling took 1.5 s with cold caches"
    assert wrong.text == f"not compared with eager: results differ; {took}"


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

    assert of(slow, without).cold == Skipped(reason=NO_GRAPH)


def script(
    eager: TimingPass | Skipped,
    compiled_us: float = 500.0,
    called_in: tuple[int, ...] = (),
    eager_in: tuple[int, ...] = (),
    asked_in: tuple[int, ...] = (),
    waits_us: tuple[float, ...] = (),
    traced: Recording | None = None,
) -> Economics | Skipped:
    """Of a short script, which is timed without a request: compiled, and with compiling off.

    ``called_in``: the steps that call its compiled function; none: nobody counted. ``eager_in``:
    those of them in which it ran eagerly. ``asked_in``: those that call torch.compile.
    ``waits_us``: further compiled steps. ``traced``: its TRACE is this one's.
    """
    timed = compiled(*[compiled_us] * 5, *waits_us)
    assert isinstance(timed.timing, TimingPass)
    assert isinstance(timed.compile, CompilePass)
    ran = msgspec.structs.replace(
        timed,
        compile=msgspec.structs.replace(timed.compile, calls=9, compiled_in=(0, 1)),
        key=msgspec.structs.replace(timed.key, mode=AS_IS),
        script=ScriptRun(step="an optimizer step", steps=9, counted={}),
        timing=msgspec.structs.replace(timed.timing, step="an optimizer step"),
        eager_timing=eager,
        records=CompileRecords(),
    )
    if called_in:
        eager_calls = dict.fromkeys(eager_in, 1)
        function = called(STEP, calls=dict.fromkeys(called_in, 1), eager=eager_calls)
        asked = dict.fromkeys(asked_in, 1)
        counted = CompileRecords(compiled_calls=CompiledCalls(callables=(function,), asked=asked))
        ran = msgspec.structs.replace(ran, records=counted)
    made = recording(ran)
    if traced is not None:
        ran = msgspec.structs.replace(ran, key=traced.runs[0].key, trace=traced.runs[0].trace)
        made = msgspec.structs.replace(traced, runs=(ran,))
    options = msgspec.structs.replace(made.header.options, passes=(PassName.COMPILE,))
    header = msgspec.structs.replace(made.header, options=options)
    return weighed(msgspec.structs.replace(made, header=header), ran)


def eagerly(us: tuple[float, ...], step: str = "an optimizer step") -> TimingPass:
    return TimingPass(
        clock="perf_counter", step_us=(us,), evaluation_s=(), start_us=(3 * us[0],), step=step
    )


def test_a_script_is_held_against_itself_with_compiling_off() -> None:
    faster, slower = script(eagerly((1000.0, 1010.0))), script(eagerly((200.0, 201.0)))
    assert isinstance(faster, Economics)
    assert isinstance(slower, Economics)

    assert faster.verdict == "pays"
    assert isinstance(faster.cold, BreakEven)
    assert slower.verdict == "never"
    assert slower.text == (
        "slower than eager: 0.500 ms per step, 0.201 ms in mode eager with torch's wrapper "
        "(TIMING, medians, in one process each); compiling took 1.5 s with cold caches and is not "
        "recovered"
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"called_in": tuple(range(9))}, ""),
        # it warms a compiled function up, takes eager steps, and calls the function after them
        ({"called_in": (0, 1, 9)}, f"7 of 7 {AFTER} call no compiled function"),
        ({"called_in": (0, 4, 8)}, f"5 of 7 {AFTER} call no compiled function"),
        # since torch's limit
        (
            {"called_in": tuple(range(9)), "eager_in": (4, 5, 6, 7, 8)},
            f"5 of 7 calls of compiled functions ran eagerly in 7 {AFTER}",
        ),
        (
            {"called_in": tuple(range(9)), "asked_in": (-1, 0, 3)},
            f"torch.compile is called in 1 of 7 {AFTER}",
        ),
    ],
)
def test_steps_that_do_something_else_than_compiled_code_are_not_compared(
    given: dict[str, tuple[int, ...]], why: str
) -> None:
    found = script(eagerly((1000.0, 1010.0)), **given)

    assert isinstance(found, Economics)
    assert (found.verdict == "not observed") == bool(why)
    assert not why or found.cold == Skipped(reason=why)
    assert not why or found.text.startswith(f"not compared with eager: {why}; compiling took")


def test_a_script_that_was_not_run_so_or_has_other_steps_is_not_compared() -> None:
    lost = Skipped(reason="run again with compiling switched off, the program raised")

    assert script(lost) == lost
    other = script(eagerly((900.0, 901.0), step="a call of the outermost nn.Module"))
    assert isinstance(other, Economics)
    assert other.verdict == "not observed"
    assert other.cold == Skipped(
        reason="with compiling switched off its steps are counted in another way"
    )


@pytest.mark.parametrize(
    ("starts_us", "waits_us", "why"),
    [
        (200.0, (), "the CPU starts one every 0.200 ms, and a traced one has 0.800 ms of GPU work"),
        (500.0, (9000.0,), "the CPU starts one every 0.500 ms, and a traced one has 0.800 ms"),
        (500.0, (), ""),  # another program may have made the work of the traced steps longer
        (790.0, (9000.0,), ""),
    ],
)
def test_steps_that_the_cpu_starts_faster_than_the_gpu_does_them_are_not_compared(
    starts_us: float, waits_us: tuple[float, ...], why: str
) -> None:
    """Generation by CUDA graphs that waits once a sample: the clock has none of the GPU's work."""
    traced = written_device.traced(
        written_device.steps_of(1, 800.0, 1, 0.0), step_us=None, mode=AS_IS
    )

    found = script(eagerly((9000.0, 9010.0)), starts_us, waits_us=waits_us, traced=traced)

    assert isinstance(found, Economics)
    assert why in found.text
    assert (found.verdict == "not observed") is bool(why)


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


@pytest.mark.parametrize(
    ("cpu_us", "others_s", "verdict"),
    [
        (600.0, 1.8, "not observed"),  # eager took 1.2 times the CPU time, and twice as long
        (950.0, 1.8, "pays"),
        (600.0, 0.1, "pays"),  # nobody was in the way: it waits for something
    ],
)
def test_where_others_were_in_the_way_of_one_side_nothing_is_compared(
    cpu_us: float, others_s: float, verdict: str
) -> None:
    def crowded(record: RunRecord, us: float) -> RunRecord:
        assert isinstance(record.timing, TimingPass)
        load = Load(seconds=1.0, cores=2, others_s=others_s)
        timing = msgspec.structs.replace(record.timing, cpu_us=(us, us), load=load)
        return msgspec.structs.replace(record, timing=timing)

    found = of(crowded(eager(1000.0, 1000.0), cpu_us), crowded(compiled(500.0, 500.0), 500.0))

    assert found.verdict == verdict
    said = "other processes used 1.8 of 2 cores, and eager took 2.0 times as long, in CPU time 1.2"
    assert (said in found.text) is (verdict == "not observed")
