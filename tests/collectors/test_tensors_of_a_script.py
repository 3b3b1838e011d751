"""What is a finding for a step that somebody wrote for kgprof is none in a script: new batches, a
library's caches."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.collectors.graphs import addresses
from kgprof.collectors.tensors import aliases, mutations
from kgprof.model import Finding, Level, Recording, ScriptRun
from kgprof.reading.evidence import Evidence
from tests.collectors.written_tensors import (
    ALL,
    CALLS,
    MOVED,
    a_written_argument,
    given,
    graph,
    recording,
)

LIBRARY = "/venv/lib/python3.11/site-packages/transformers/cache_utils.py"
CARRIED = {"0/0 output 0": len(MOVED)}
BATCH, STATE = given(moved=MOVED), given(moved=MOVED, made_before=CARRIED)
LEFT = "L['___stack0'][1]"  # by a graph break on Python's stack


def found(recording: Recording, *, script: bool) -> list[tuple[str, Level]]:
    steps = ScriptRun(step="an optimizer step", steps=CALLS, counted={})
    run = msgspec.structs.replace(recording.runs[0], script=steps if script else None)
    evidence = Evidence(msgspec.structs.replace(recording, runs=(run,)))
    findings: list[Finding] = [
        *addresses.diagnose(addresses.collect(evidence)),
        *aliases.diagnose(aliases.collect(evidence)),
        *mutations.diagnose(mutations.collect(evidence)),
    ]
    return [(finding.rule, finding.level) for finding in findings]


@pytest.mark.parametrize(
    ("recorded", "of_workload", "of_script"),
    [
        (recording(graph(BATCH)), [("KGP401", Level.NOTE)], []),
        (recording(graph(STATE)), [("KGP401", Level.WARNING)], []),
        (a_written_argument(), [("KGP404", Level.WARNING)], []),
        (
            recording(graph(given(written=ALL), file=LIBRARY, returned_inputs=("L['x']",))),
            [],
            [],
        ),
    ],
    ids=[
        "a new batch",
        "the output of the block before",
        "a write without CUDA graphs",
        "a library's cache",
    ],
)
def test_what_costs_a_script_nothing_is_not_found_in_one(
    recorded: Recording, of_workload: list[tuple[str, Level]], of_script: list[tuple[str, Level]]
) -> None:
    assert found(recorded, script=False) == of_workload
    assert found(recorded, script=True) == of_script


def test_what_a_cuda_graph_copies_or_loses_is_found_in_a_script_too() -> None:
    moving = recording(graph(BATCH, cuda_graphs=True))
    carried = recording(graph(STATE, cuda_graphs=True))
    writes = a_written_argument().runs[0].memory
    (written,) = writes.tensors.graphs  # type: ignore[union-attr]

    assert found(moving, script=True) == [("KGP305", Level.NOTE)]
    assert found(carried, script=True) == [("KGP401", Level.WARNING), ("KGP305", Level.NOTE)]
    assert found(recording(msgspec.structs.replace(written, cuda_graphs=True)), script=True) == [
        ("KGP404", Level.WARNING)
    ]


def test_what_a_graph_break_left_on_pythons_stack_is_nobodys_argument() -> None:
    resumed = graph(
        given(LEFT), function="torch_dynamo_resume_in_step_at_12", returned_inputs=(LEFT,)
    )

    assert found(recording(resumed), script=False) == []


def test_the_name_that_a_library_has_for_a_result_is_no_argument_of_the_function() -> None:
    taken = graph(given("L['preds']"), file=LIBRARY, function="update", arguments=("preds",))
    resumed = graph(
        given("L['guess']", moved=MOVED, lies_in="L['preds']", made_now={"0/0 output 0": CALLS}),
        compile_id="2/0",
        function="torch_dynamo_resume_in_step_at_12",
        returned_inputs=("L['guess']",),
    )

    assert found(recording(taken, resumed), script=False) == []
