"""Where the time of a script went: what is compiled first, and again, recorded, and the steps."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kgprof import limits
from kgprof.analysis import analyse
from kgprof.model import (
    CompilePass,
    LimitKind,
    Profile,
    Recording,
    Saving,
    ScriptRun,
    Skipped,
    TracePass,
    WholeRun,
)
from kgprof.model.compile_records import TraceRecord
from kgprof.wording import figure
from tests.collectors import written, written_syncs

CALLS = written.CALLS
SIZE = "tensor 'x' size mismatch at index 0. expected 8, actual 9"


def taking(line: Any, seconds: dict[int, float]) -> Any:
    """A compilation that torch itself says took so long; any other line as it is."""
    if not isinstance(line, TraceRecord) or "compilation_metrics" not in line.metadata:
        return line
    metrics = {
        **line.metadata["compilation_metrics"],
        "duration_us": int(1e6 * seconds.get(line.call, 0.001)),
    }
    return msgspec.structs.replace(line, metadata={**line.metadata, "compilation_metrics": metrics})


def script(
    *lines: Any,
    compiled_in: dict[int, float],
    steps: int = CALLS,
    torch_says: dict[int, float] | None = None,
) -> Recording:
    """A script whose steps take 1 ms, but for those that compile; these take so many seconds."""
    whole = written.recording(*(taking(line, torch_says or compiled_in) for line in lines))
    (run,) = whole.runs
    assert isinstance(run.compile, CompilePass)
    times = tuple(1e6 * compiled_in.get(step, 0.001) for step in range(steps))
    run = msgspec.structs.replace(
        run,
        compile=msgspec.structs.replace(run.compile, compiled_in=tuple(compiled_in)),
        memory=written_syncs.memory(step_us=times),
        script=ScriptRun(step="a call of a compiled function", steps=steps, counted={}),
        timing=Skipped(reason="not measured"),
    )
    return msgspec.structs.replace(whole, runs=(run,))


def account(profile: Profile) -> dict[LimitKind, float]:
    (run,) = profile.runs
    assert isinstance(run.whole, WholeRun)
    assert sum(share.us for share in run.whole.shares) == pytest.approx(run.whole.total_us)
    return {share.limit: share.us for share in run.whole.shares}


def test_compiling_again_is_told_from_compiling_for_the_first_time() -> None:
    found = account(analyse(script(*written.recompiled(5), compiled_in={0: 2.0, 5: 3.0})))

    assert found[LimitKind.COMPILING] == pytest.approx(2e6, rel=0.01)
    assert found[LimitKind.RECOMPILING] == pytest.approx(3e6, rel=0.01)
    assert found[LimitKind.STEPS] == pytest.approx(CALLS * 1e3)


def test_what_a_reset_dropped_is_compiled_again() -> None:
    first, second = ([*written.compiled("0/0", written.STEP, call=call)] for call in (0, 5))
    lines = [*first, written.reset(5), *second]

    found = account(analyse(script(*lines, compiled_in={0: 2.0, 5: 3.0})))

    assert found[LimitKind.COMPILING] == pytest.approx(2e6, rel=0.01)
    assert found[LimitKind.RECOMPILING] == pytest.approx(3e6, rel=0.01)


@pytest.mark.parametrize(
    ("one", "other"),
    [(("Conv2d", "detector"), ("Sequential", "classifier")), (("Sequential", ""),) * 2],
    ids=["with names", "of one class, without a name"],
)
def test_the_second_of_two_modules_is_compiled_for_the_first_time(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    """They share torch's own function around a module, of which torch counts both as entries."""
    detector, classifier = (
        written.called(
            written.STEP,
            number=number,
            module=module,
            path=path,
            compilations=(written.begun(f"0/{number}", call),),
        )
        for number, call, (module, path) in ((0, 0, one), (1, 5, other))
    )
    lines = [*written.recompiled(5), detector, classifier]

    found = account(analyse(script(*lines, compiled_in={0: 2.0, 5: 3.0})))

    assert found[LimitKind.COMPILING] == pytest.approx(5e6, rel=0.01)
    assert LimitKind.RECOMPILING not in found


def test_an_attempt_that_torch_refuses_is_no_first_compilation() -> None:
    lines = [
        *written.compiled("0/0", written.STEP),
        *written.compiled("0/1", written.STEP, call=5, fail_type="FailOnRecompileLimitHit"),
    ]

    found = account(analyse(script(*lines, compiled_in={0: 2.0, 5: 3.0})))

    assert found[LimitKind.COMPILING] == pytest.approx(2e6, rel=0.01)


def test_what_else_a_step_does_that_compiles_is_no_compiling() -> None:
    lines = written.recompiled(5)
    recording = script(*lines, compiled_in={0: 8.0, 5: 2.0}, torch_says={0: 2.0, 5: 1.0})

    found = account(analyse(recording))

    assert found[LimitKind.COMPILING] + found[LimitKind.RECOMPILING] == pytest.approx(3e6)


def test_recompiles_that_have_stopped_ask_for_nothing_though_they_took_most_of_a_short_run() -> (
    None
):
    over = analyse(script(*written.recompiled(1), compiled_in={0: 2.0, 1: 3.0}))
    again = analyse(script(*written.recompiled(5, 8), compiled_in={0: 2.0, 5: 3.0, 8: 3.0}))

    assert "KGP103" in {finding.rule for finding in over.findings}
    assert "KGP103" not in {action.rule for action in over.actions}
    assert "KGP103" in {action.rule for action in again.actions}


def test_recording_a_graph_is_neither_compiling_nor_a_step() -> None:
    lines = [*written.compiled_once(), written.sized_graph(4, 10), *written.new_size(6, 11)]
    recording = script(*lines, compiled_in={0: 0.2, 4: 0.1, 6: 0.1})
    (run,) = recording.runs
    assert isinstance(run.compile, CompilePass)
    compiled = msgspec.structs.replace(run.compile, compiled_in=(0,))
    run = msgspec.structs.replace(run, compile=compiled)

    profile = analyse(msgspec.structs.replace(recording, runs=(run,)))

    assert account(profile)[LimitKind.RECORDING] == pytest.approx(0.2e6, rel=0.02)
    mean = f"takes {figure((200 + CALLS - 2) / CALLS)} ms/step on average without compiling"
    assert f"{mean}, about 1.00 ms/step" in profile.verdict.reasons[0]


def test_a_script_that_mostly_compiles_again_is_told_so_first_with_what_to_write() -> None:
    profile = analyse(script(*written.recompiled(5, reason=SIZE), compiled_in={0: 2.0, 5: 3.0}))

    (run,) = profile.runs
    leads = "limited by compiling again, mostly at model.py:13 (60 % of the 5.0"
    assert limits.words(run).startswith(leads)
    first = profile.actions[0]
    assert first.rule == "KGP103"
    assert isinstance(first.saves, Saving)
    assert (first.saves.per, first.share) == ("run", None)


def test_a_recompile_that_the_steps_outweigh_is_no_action() -> None:
    # given: compiling again takes 3 ms, and the steps 9
    profile = analyse(script(*written.recompiled(5), compiled_in={0: 2.0, 5: 0.004}))

    (run,) = profile.runs
    assert "compiling again" not in limits.words(run)
    assert "KGP103" not in {action.rule for action in profile.actions}


@pytest.mark.parametrize("lacks", ["script", "memory"])
def test_without_the_steps_of_one_run_there_is_no_account(lacks: str) -> None:
    recording = script(*written.recompiled(5), compiled_in={0: 2.0, 5: 3.0})
    gone = {"script": None, "memory": Skipped(reason="not requested")}
    run = msgspec.structs.replace(recording.runs[0], **{lacks: gone[lacks]})

    (report,) = analyse(msgspec.structs.replace(recording, runs=(run,))).runs

    assert isinstance(report.whole, Skipped)


def test_the_time_of_a_step_is_that_of_all_steps_and_not_of_the_first_few() -> None:
    # given: the five steps that COMPILE timed took 1 ms, and most of the later ones 0.4
    recording = script(*written.compiled_once(), compiled_in={0: 2.0}, steps=40)
    (run,) = recording.runs
    times = (2e6, *(1000.0 for _ in range(9)), *(400.0 for _ in range(30)))
    traced = TracePass(
        step_us=(1200.0,) * 4,
        trace_file="trace.json.gz",
        cpp_kernel_profile=False,
    )
    run = msgspec.structs.replace(run, memory=written_syncs.memory(step_us=times), trace=traced)

    (report,) = analyse(msgspec.structs.replace(recording, runs=(run,))).runs

    assert not isinstance(report.compile, Skipped)
    assert not isinstance(report.compile.steady, Skipped)
    assert report.compile.steady.median == 400.0


def test_steps_that_become_longer_have_no_time_of_the_first_ones() -> None:
    # given: the five steps that COMPILE timed took 1 ms; later the program accumulates gradients
    recording = script(*written.compiled_once(), compiled_in={0: 2.0}, steps=40)
    (run,) = recording.runs
    times = (2e6, *(1000.0 for _ in range(9)), *(4000.0 for _ in range(30)))
    traced = TracePass(step_us=(1200.0,) * 4, trace_file="trace.json.gz", cpp_kernel_profile=False)
    run = msgspec.structs.replace(run, memory=written_syncs.memory(step_us=times), trace=traced)

    found = analyse(msgspec.structs.replace(recording, runs=(run,)))

    said = " ".join(found.verdict.reasons)
    assert "step time not decided, about 1.00 to 4.00 ms/step (with kgprof's listeners on)" in said


def test_long_steps_among_short_ones_are_said_where_nothing_was_timed_again() -> None:
    recording = script(*written.compiled_once(), compiled_in={0: 2.0}, steps=40)
    (run,) = recording.runs
    times = (2e6, *(1000.0 for _ in range(37)), 6e4, 8e4)
    run = msgspec.structs.replace(run, memory=written_syncs.memory(step_us=times))

    found = analyse(msgspec.structs.replace(recording, runs=(run,)))

    said = " ".join(found.verdict.reasons)
    assert "ms/step (with kgprof's listeners on), in the median; half of the time of the" in said
    assert "lies in 2 of 37 of them, up to 80.0 ms" in said


def test_a_step_in_which_the_profiler_starts_is_no_long_one_of_the_program() -> None:
    recording = script(*written.compiled_once(), compiled_in={0: 2.0}, steps=40)
    (run,) = recording.runs
    assert isinstance(run.compile, CompilePass)
    starts = len(run.compile.call_us)
    times = (2e6, *(1000.0 for _ in range(starts - 1)), 2e5, *(1000.0 for _ in range(39 - starts)))
    traced = TracePass(step_us=(1e3,) * 4, trace_file="trace.json.gz", cpp_kernel_profile=False)
    run = msgspec.structs.replace(run, memory=written_syncs.memory(step_us=times), trace=traced)

    (found,) = analyse(msgspec.structs.replace(recording, runs=(run,))).runs

    assert found.long_steps is None


def test_a_script_that_mostly_compiles_a_loop_is_told_so_first_with_its_line() -> None:
    profile = analyse(script(*written.an_unrolled_loop(60.0), compiled_in={0: 60.0}))

    (run,) = profile.runs
    assert limits.words(run).startswith("limited by compiling (100 % of the 60.0 s of its 20 steps")
    first = profile.actions[0]
    assert first.rule == "KGP701"
    assert first.location is not None
    assert first.location.line == written.LOOP[1] - 1


def test_compiling_for_the_first_time_limits_nothing_where_no_cause_is_known() -> None:
    profile = analyse(script(*written.compiled_once(), compiled_in={0: 60.0}))

    assert "compiling" not in limits.words(profile.runs[0])
