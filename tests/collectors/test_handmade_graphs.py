"""KGP306 and KGP307: what the records of a program's own CUDA graphs come to."""

from __future__ import annotations

from kgprof.collectors import handmade_graphs
from kgprof.collectors.handmade_graphs import KEPT_OUTPUT, REPLACED_INPUT
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

    assert found.message.startswith("the CUDA graph reads x of shape [8, 3], which was freed after the capture; x now")
    assert found.count == 4


def test_a_kept_output_is_another_rules_and_two_inputs_are_two_findings() -> None:
    found = findings(tensor("kept", ""), tensor("freed", ""), tensor("freed", "y"))

    assert [each.rule for each in found] == [KEPT_OUTPUT.id, REPLACED_INPUT.id, REPLACED_INPUT.id]
    assert len({each.fingerprint for each in found}) == 3
