"""Code that was compiled while a workload was loaded and that no call ran is kept apart from the
run's."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.model import Compilation, CompilePass, RunKey, RunRecord, ScriptRun
from kgprof.model.compile_records import CompileRecords, GraphRuns, OfferedFrame, TraceRecord
from kgprof.reading import while_loading
from tests.analysis.recordings import recording, run

KEY = RunKey(strategy="step", mode="as-is")


def frame(name: str, compile_id: str, call: int = -1, outcome: str = "compiled") -> OfferedFrame:
    return OfferedFrame(
        call=call,
        function=name,
        file="job.py",
        first_line=3,
        outcome=outcome,
        compile_id=compile_id,
    )


def graph(compile_id: str, *calls: int) -> GraphRuns:
    return GraphRuns(compile_id=compile_id, runs=dict.fromkeys(calls, 1))


def of(frames: list[OfferedFrame], graphs: list[GraphRuns]) -> RunRecord:
    ids = dict.fromkeys(each.compile_id for each in frames if each.compile_id)
    made = [
        Compilation(compile_id=each, function="f", location="job.py:3", duration_s=0.5, call=-1)
        for each in ids
    ]
    numbers = [each.split("/") for each in ids]
    records = [
        TraceRecord(metadata={"frame_id": int(one), "frame_compile_id": int(other)})
        for one, other in numbers
    ]
    compiled = CompilePass(call_us=(5.0, 4.0, 4.0), steady_from=1, compilations=tuple(made))
    kept = CompileRecords(records=tuple(records), frames=tuple(frames), graphs=tuple(graphs))
    return msgspec.structs.replace(run(KEY), compile=compiled, records=kept)


def unused(record: RunRecord) -> list[str]:
    """Compile ids that were set apart; what is left holds none of them."""
    (found,) = while_loading.apart(recording(record, baseline=None)).runs
    assert isinstance(found.compile, CompilePass)
    assert isinstance(found.records, CompileRecords)
    left = {each.compile_id for each in found.compile.compilations}
    apart = [each.compile_id for each in found.compile.unused]
    assert left.isdisjoint(apart)
    assert {each.compile_id for each in found.records.frames if each.compile_id} == left
    assert len(found.records.records) == len(left)
    return apart


def test_what_ran_in_no_call_is_set_apart_with_what_follows_its_break() -> None:
    resumed = frame("torch_dynamo_resume_in_check_at_9", "1/0")
    frames = [frame("check", "0/0"), resumed, frame("fast", "2/0")]

    assert unused(of(frames, [graph("0/0", -1), graph("1/0", -1), graph("2/0", -1, 0, 1, 2)])) == [
        "0/0",
        "1/0",
    ]


@pytest.mark.parametrize(
    ("frames", "graphs"),
    [
        pytest.param([frame("f", "0/0")], [graph("0/0", -1, 2)], id="ran in a call"),
        pytest.param(
            [frame("f", "0/0"), frame("f", "0/1")],
            [graph("0/0", -1), graph("0/1", 1)],
            id="another entry",
        ),
        pytest.param([frame("f", "0/0")], [], id="no graph tells"),
        pytest.param(
            [frame("f", "0/0"), frame("f", "", outcome="run-only")],
            [graph("0/0", -1)],
            id="at its limit",
        ),
        pytest.param(
            [frame("f", "0/0"), frame("f", "0/1", call=1)],
            [graph("0/0", -1)],
            id="compiled in a call",
        ),
        pytest.param(
            [frame("f", "0/0"), frame("torch_dynamo_resume_in_f_at_4", "1/0")],
            [graph("1/0", 0)],
            id="its rest ran",
        ),
    ],
)
def test_what_a_call_may_run_stays(frames: list[OfferedFrame], graphs: list[GraphRuns]) -> None:
    assert unused(of(frames, graphs)) == []


def test_all_of_a_program_is_its_own() -> None:
    script = ScriptRun(step="an optimizer step", steps=3, counted={})
    program = msgspec.structs.replace(of([frame("f", "0/0")], [graph("0/0", -1)]), script=script)

    assert unused(program) == []
