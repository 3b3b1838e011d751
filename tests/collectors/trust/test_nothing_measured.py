"""KGP504: nothing measured is an error, nothing compiled is a warning or a note, and unknown is
neither."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.collectors.trust import nothing_measured
from kgprof.model import (
    MULTIPROCESSING,
    PYTHON,
    CompiledCalls,
    CompilePass,
    CompileRecords,
    Exit,
    Launched,
    Level,
    Outcome,
    PassName,
    Recording,
    RunKey,
    RunRecord,
    ScriptRun,
    SourceFile,
    Sources,
    Unavailable,
)
from kgprof.reading.evidence import Evidence
from tests.analysis.recordings import EAGER, FUSED, GONE, died, recording, run
from tests.collectors import written
from tests.collectors.written_device import steps_of, traced

AS_IS = RunKey(strategy="train_step", mode="as-is")


def diagnosed(recorded: Recording) -> list[tuple[Level, RunKey | None, str]]:
    found = nothing_measured.diagnose(nothing_measured.collect(Evidence(recorded)))
    return [(finding.level, finding.run, finding.message) for finding in found]


def without_capture(recorded: RunRecord) -> RunRecord:
    assert isinstance(recorded.compile, CompilePass)
    compiled = msgspec.structs.replace(
        recorded.compile,
        compilations=(),
        capture_unavailable=(Unavailable(capture="compilations", why="no such hook"),),
    )
    return msgspec.structs.replace(recorded, compile=compiled)


def test_no_time_at_all_is_an_error() -> None:
    assert diagnosed(recording(died(EAGER), died(FUSED))) == [
        (Level.ERROR, None, "nothing was measured: no run has a time")
    ]
    assert diagnosed(recording()) == [
        (Level.ERROR, None, "nothing was measured: no run has a time")
    ]


def test_a_script_that_ran_without_steps_was_measured_where_no_time_was_asked_for() -> None:
    nothing = run(AS_IS, compiled=0)
    script = ScriptRun(step="", steps=0, counted={"an optimizer step": 0})
    ran = msgspec.structs.replace(nothing, timing=GONE, memory=GONE, trace=GONE, script=script)
    untimed = msgspec.structs.replace(
        recording().header.options, passes=(PassName.COMPILE, PassName.TRACE)
    )

    assert nothing_measured.measured(ran, untimed)
    assert not nothing_measured.measured(msgspec.structs.replace(ran, script=None), untimed)


def test_one_time_is_enough() -> None:
    assert diagnosed(recording(run(FUSED), died(EAGER))) == []


def test_a_compiled_mode_that_compiled_nothing_is_a_warning() -> None:
    assert diagnosed(recording(run(EAGER), run(FUSED, compiled=0))) == [
        (Level.WARNING, FUSED, "mode default was requested, but nothing was compiled")
    ]


def test_a_workload_that_compiles_nothing_by_itself_is_a_note() -> None:
    note = (Level.NOTE, None, "nothing was compiled in this run; its times are those of eager code")

    assert diagnosed(recording(run(AS_IS))) == [note]
    assert diagnosed(recording(run(EAGER))) == [note]


def test_a_workload_with_its_own_compilation_is_no_finding() -> None:
    assert diagnosed(recording(run(AS_IS, compiled=2))) == []
    assert diagnosed(recording(run(EAGER), run(FUSED))) == []


def test_what_this_torch_cannot_capture_is_not_called_missing() -> None:
    assert diagnosed(recording(run(EAGER), without_capture(run(FUSED)))) == []
    assert diagnosed(recording(without_capture(run(AS_IS)))) == []


def test_a_run_that_died_before_compiling_is_not_called_uncompiled() -> None:
    assert diagnosed(recording(run(EAGER), died(FUSED, during="compile"))) == []


def test_a_run_that_was_interrupted_may_have_been_compiling() -> None:
    stopped = msgspec.structs.replace(run(AS_IS), exit=Exit(Outcome.INTERRUPTED))

    assert diagnosed(recording(stopped)) == []


def test_a_script_without_steps_that_starts_python_scripts_says_which() -> None:
    nothing = run(AS_IS, compiled=0)
    starts = Launched(by=PYTHON, command="python -m kgprof profile worker.py -- --lr 1")
    alone = ScriptRun(step="", steps=0, counted={"an optimizer step": 0}, launched=(starts, starts))
    worker = Launched(
        by=MULTIPROCESSING, command="step = kgprof.watch(step)", function="work (train.py:7)"
    )
    spawning = msgspec.structs.replace(alone, launched=(worker, worker))
    with_steps = msgspec.structs.replace(alone, step="an optimizer step", steps=9)

    (found,) = nothing_measured.diagnose(
        nothing_measured.collect(
            Evidence(recording(msgspec.structs.replace(nothing, script=alone)))
        )
    )
    ((_, _, inside),) = diagnosed(recording(msgspec.structs.replace(nothing, script=spawning)))
    own = diagnosed(recording(msgspec.structs.replace(nothing, script=with_steps)))

    assert (found.level, found.run, found.fix) == (Level.NOTE, AS_IS, starts.command)
    assert found.message.endswith(f"Run {starts.command} and 1 other script")
    assert "It starts work (train.py:7) with multiprocessing" in inside
    assert "(step = kgprof.watch(step))" in inside
    assert [message for _, _, message in own] == [
        "nothing was compiled in this run; its times are those of eager code"
    ]


@pytest.mark.parametrize("steps", [0, 9])
def test_nothing_is_offered_as_code_that_was_not_tried(steps: int) -> None:
    # given: a program that calls a module; whether torch could compile it, nobody tried
    texts = {written.FILE: SourceFile(sha256="", text="out = model(x)\n")}
    records = CompileRecords(records=(), sources=Sources(files=texts))
    step = "a call of the outermost nn.Module" if steps else ""
    script = ScriptRun(step=step, steps=steps, counted={})
    eager = msgspec.structs.replace(run(AS_IS, compiled=0), records=records, script=script)

    (found,) = nothing_measured.diagnose(nothing_measured.collect(Evidence(recording(eager))))

    assert (found.fix, found.no_fix) == ("", "")
    assert "torch.compile is worth a try" in nothing_measured.NOTHING_MEASURED.remedy


def test_a_torch_compile_of_which_nothing_was_called_is_said_with_the_line_to_write() -> None:
    # given: a script with a torch.compile in its text, and no call of a compiled callable
    nothing = run(AS_IS, compiled=0)
    script = ScriptRun(
        step="a call of the outermost nn.Module",
        steps=20,
        counted={},
        compile_call="train.py:12",
        was_asked=True,
    )
    seen = CompileRecords(records=(), compiled_calls=CompiledCalls())
    ran = msgspec.structs.replace(nothing, script=script, records=seen)
    unseen = msgspec.structs.replace(ran, records=CompileRecords(records=()))
    # its line never ran
    not_asked = msgspec.structs.replace(
        ran, script=msgspec.structs.replace(script, was_asked=False)
    )

    # it may have been called in another process
    loading = msgspec.structs.replace(ran, script=msgspec.structs.replace(script, workers=2))

    found, *doubtful = (
        nothing_measured.diagnose(nothing_measured.collect(Evidence(recording(each))))[0]
        for each in (ran, unseen, not_asked, loading)
    )

    assert "stands in train.py:12, and nothing that it made was called" in found.message
    for each in doubtful:
        assert "no call of what it wraps compiled anything here" in each.message


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({-1: 2, 0: 1}, ": torch.compile was called 3 times, and nothing that it made was called;"),
        ({}, "nothing was compiled in this run;"),
    ],
)
def test_of_a_step_the_calls_of_torch_compile_are_counted(asked: dict[int, int], said: str) -> None:
    records = CompileRecords(records=(), compiled_calls=CompiledCalls(asked=asked))
    ran = msgspec.structs.replace(run(AS_IS, compiled=0), records=records)

    (found,) = nothing_measured.diagnose(nothing_measured.collect(Evidence(recording(ran))))

    assert said in found.message


@pytest.mark.parametrize("why", [nothing_measured.SPARSE, nothing_measured.RNN])
def test_steps_that_torch_compile_does_not_support_are_not_to_be_compiled(why: str) -> None:
    eager = recording(run(AS_IS, compiled=0))
    (event,) = nothing_measured.collect(Evidence(eager))
    unsupported = msgspec.structs.replace(event, uncompiled=why)

    (found,) = nothing_measured.diagnose((unsupported,))

    assert (found.level, found.fix, found.no_fix) == (Level.NOTE, "", why)


@pytest.mark.parametrize(
    ("operator", "why"), [("aten::mm", ""), ("aten::gru", nothing_measured.RNN)]
)
def test_an_rnn_of_the_traced_steps_is_what_speaks_against_compiling(
    operator: str, why: str
) -> None:
    events = list(steps_of(kernels=4, kernel_us=2.0, launches=4, in_operators=0.9))
    for event in events:
        if event["cat"] == "cpu_op":
            event["name"] = operator

    (event,) = nothing_measured.collect(Evidence(traced(events, step_us=400.0)))

    assert event.uncompiled == why
