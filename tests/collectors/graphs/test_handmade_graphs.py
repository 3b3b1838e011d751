"""KGP306 to KGP308: what the records of a program's own CUDA graphs come to."""

from __future__ import annotations

import pytest

from kgprof.collectors.graphs import handmade_graphs
from kgprof.collectors.graphs.handmade_graphs import CAPTURED_AGAIN, KEPT_OUTPUT, REPLACED_INPUT
from kgprof.model import Finding, GraphTensor, Level
from kgprof.reading.evidence import Evidence
from tests.collectors import written, written_syncs
from tests.collectors.written_syncs import PREDICATE, READ_LINE


def findings(*wrong: GraphTensor) -> tuple[Finding, ...]:
    evidence = Evidence(written_syncs.recording(graphs=(written_syncs.graph(*wrong),)))
    return handmade_graphs.diagnose(handmade_graphs.collect(evidence))


def tensor(what: str, name: str = "x", replays: int = 4) -> GraphTensor:
    return GraphTensor(what=what, name=name, shape=(8, 3), at=PREDICATE, replays=replays)


def test_a_graph_whose_replays_read_what_the_program_holds_is_no_finding() -> None:
    assert findings() == ()


def test_a_replaced_input_has_the_line_that_read_it_and_the_capture() -> None:
    (found,) = findings(tensor("rebound"))

    assert (found.rule, found.level, found.count) == (REPLACED_INPUT.id, Level.WARNING, 4)
    assert found.location == written.place(written.FILE, 14, "step")
    assert found.related == (written.place(READ_LINE.file, READ_LINE.line, READ_LINE.function),)
    assert found.message == (
        "the CUDA graph still reads the x of shape [8, 3] of the capture, which was not updated; "
        "x now holds another tensor (in 4 of the first 8 replays)"
    )


def test_what_was_rebound_and_then_freed_is_one_finding() -> None:
    (found,) = findings(tensor("rebound", replays=1), tensor("freed", replays=3))

    assert found.message.startswith(
        "the CUDA graph reads x of shape [8, 3], which was freed after the capture; x now"
    )
    assert found.count == 4


def test_a_kept_output_is_another_rules_and_two_inputs_are_two_findings() -> None:
    found = findings(tensor("kept", ""), tensor("freed", ""), tensor("freed", "y"))

    assert [each.rule for each in found] == [KEPT_OUTPUT.id, REPLACED_INPUT.id, REPLACED_INPUT.id]
    assert len({each.fingerprint for each in found}) == 3


ALL = tuple(range(written_syncs.CALLS))


@pytest.mark.parametrize(
    ("steps", "again"),
    [
        (tuple((step, (step,)) for step in ALL), 5),
        (tuple((step, ()) for step in ALL), 5),  # and never replayed
        (tuple((step, (step + 1,)) for step in ALL), 5),  # where a replay is what begins a step
        # once, and what make_graphed_callables captures for each direction
        (((-1, ALL), (0, ALL), (2, ALL)), 0),
        # a new shape in each step, replayed later
        (tuple((step, (step, *ALL[step + 1 :])) for step in ALL[:-1]), 0),
        (((0, (0,)), (1, (1,)), (2, (2,)), (3, (3,)), (5, (5,))), 0),  # in two steps after warm-up
    ],
)
def test_a_capture_in_each_step_is_told_from_one_for_each_shape(
    steps: tuple[tuple[int, tuple[int, ...]], ...], again: int
) -> None:
    evidence = Evidence(written_syncs.captures(*steps))

    found = handmade_graphs.diagnose(handmade_graphs.collect(evidence))

    expected = [
        (
            CAPTURED_AGAIN.id,
            again,
            written.place(READ_LINE.file, READ_LINE.line, READ_LINE.function),
        )
    ]
    assert [(one.rule, one.count, one.location) for one in found] == (expected if again else [])
