"""KGP201 to 203: what the records of the hooks come to, line by line; and what is no finding."""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from kgprof import collectors
from kgprof.analysis import analyse, memory
from kgprof.collectors.time import syncs
from kgprof.collectors.time.syncs import (
    BACKWARD,
    CAUSES,
    HOST_DEVICE_SYNC,
    SYNC_IN_GRAPH,
    WOULD_SYNC,
    Sync,
    called_function,
)
from kgprof.collectors.trust import disagreements
from kgprof.model import (
    CALLS_AS_STEPS,
    ITERATION,
    Checkpoint,
    CompilePass,
    Finding,
    FindingCost,
    Level,
    PassName,
    PracticeStatus,
    Reads,
    Recording,
    ScriptAccount,
    ScriptRun,
    Skipped,
    SourceFile,
    TimingPass,
    TracePass,
    Unavailable,
)
from kgprof.model.memory_records import EXPRESSION_KEPT, Frame, SyncRecord, SyncRecords
from kgprof.reading import layout
from kgprof.reading.evidence import Evidence
from tests.analysis.recordings import FUSED, GONE
from tests.collectors import written, written_device, written_syncs
from tests.collectors.written_syncs import (
    CALLS,
    ELSEWHERE,
    GOES_ON,
    IN_A_CLOCK,
    PREDICATE,
    READ_LINE,
    STEADY_FROM,
    on_a_gpu,
    predicate,
    read,
    waiting,
)

READ_PLACE, PREDICATE_PLACE = (
    written.place(*written.CALLER),
    written.place(written.FILE, 14, "step"),
)
IN_A_STEP = ("cpu_op", "aten::copy_")
HOSTILE = "\x1b[31m<script>alert(1)</script>\u202e\ud800\n"


def events(*reads: SyncRecord, **fields: Any) -> tuple[Sync, ...]:
    return syncs.collect(Evidence(written_syncs.recording(*reads, **fields)))


def findings(*reads: SyncRecord, **fields: Any) -> tuple[Finding, ...]:
    return syncs.diagnose(events(*reads, **fields))


# ---------------------------------------------------------------- a program without steps


def test_a_program_that_is_one_window_has_reads_in_all_and_its_result_is_none() -> None:
    often, once = read(each=40, calls=range(1)), read(PREDICATE, calls=range(1))
    recording = written_syncs.recording(often, once, calls=1, steady_from=0)
    script = ScriptRun(step="", steps=0, counted={"an optimizer step": 0})
    runs = tuple(msgspec.structs.replace(run, script=script) for run in recording.runs)
    evidence = Evidence(msgspec.structs.replace(recording, runs=runs))

    (event,) = syncs.collect(evidence)

    assert (event.location, event.events, event.steps) == (READ_PLACE, 40, 0)
    assert syncs.diagnose((event,))[0].message.endswith(", 40 times in the program")
    assert memory.summary(evidence.runs[0]).syncs_per_step == Skipped(
        reason="the program has no steps to count"
    )


@pytest.mark.parametrize(("waited_us", "level"), [(40.0, Level.NOTE), (60.0, Level.WARNING)])
def test_reads_that_wait_for_little_of_a_program_without_steps_are_a_note(
    waited_us: float, level: Level
) -> None:
    # given: a program of 1,000 us
    often = read(device="cuda", each=40, calls=range(1), waited_us={0: waited_us})
    recording = written_syncs.recording(often, device="cuda", calls=1, steady_from=0)
    script = ScriptRun(step="", steps=0, counted={"an optimizer step": 0})
    runs = tuple(msgspec.structs.replace(run, script=script) for run in recording.runs)

    (found,) = syncs.diagnose(
        syncs.collect(Evidence(msgspec.structs.replace(recording, runs=runs)))
    )

    assert (found.level, found.no_fix) == (level, "")


@pytest.mark.parametrize(
    ("account", "counts", "often"),
    [
        (GOES_ON, {0: 2, 7: 40}, "42 times in the program"),
        (Skipped("not accounted"), {0: 2, 7: 40}, "40 times in 1 of 5 steps"),
        # as often in each: the last step is one like the others
        (GOES_ON, dict.fromkeys(range(8), 40), "40 times per step"),
    ],
    ids=["behind its steps", "unknown", "in each step"],
)
def test_what_is_read_behind_the_last_step_is_no_rate_of_a_step(
    account: ScriptAccount | Skipped, counts: dict[int, int], often: str
) -> None:
    # given: a program that calls compiled code eight times, and goes on as a CUDA graph
    several = msgspec.structs.replace(read(device="cuda"), calls=counts)
    recording = written_syncs.recording(several, device="cuda")
    script = ScriptRun(step="a call of f", steps=8, counted={}, account=account)
    runs = tuple(msgspec.structs.replace(run, script=script) for run in recording.runs)

    found = syncs.collect(Evidence(msgspec.structs.replace(recording, runs=runs)))

    assert syncs.diagnose(found)[0].message.endswith(often)
    assert (syncs.syncs_per_step(found, FUSED) > 0) is ("step" in often)


@pytest.mark.parametrize(
    ("longer", "each", "level", "is_a_log"),
    [
        (1, 9, Level.NOTE, True),
        (100, 9, Level.WARNING, False),
        (100, 1, Level.NOTE, False),
    ],
)
def test_steps_that_hold_most_of_the_time_are_no_log(
    longer: int, each: int, level: Level, is_a_log: bool
) -> None:
    # given: reads in two of forty steps, which are the rollouts of the program
    rollouts = (5, 25)
    step_us = tuple(1000.0 * (longer if step in rollouts else 1) for step in range(43))
    seen = msgspec.structs.replace(read(device="cuda"), calls=dict.fromkeys(rollouts, each))

    (found,) = findings(seen, device="cuda", calls=43, step_us=step_us)

    assert (found.no_fix == syncs.IN_FEW_STEPS) is is_a_log
    assert found.level is level
    assert found.reads is not None
    assert found.reads.is_dear is (level is Level.WARNING)
    assert found.counts


def test_a_number_that_the_compiler_reads_is_no_sync_of_the_program() -> None:
    lies = "/venv/lib/python3.11/site-packages/torch/{}.py"
    compiler, library = (
        Frame(file=lies.format(name), line=587, function="f", first_line=451)
        for name in ("_subclasses/fake_tensor", "nn/functional")
    )

    assert events(read(chain=(compiler,))) == ()
    assert len(events(read(chain=(library,)))) == 1


@pytest.mark.parametrize(
    ("calls", "each", "found"),
    [(range(7, 8), 1, 0), (range(7, 8), 2, 1), (range(6, 7), 1, 1), (range(6, 8), 1, 1)],
    ids=["once behind the loop", "twice in its last call", "once before the end", "in two calls"],
)
def test_what_a_script_reads_once_behind_its_loop_is_in_no_step(
    calls: range, each: int, found: int
) -> None:
    recording = written_syncs.recording(read(each=each, calls=calls))
    script = ScriptRun(step="a call of f", steps=8, counted={})
    runs = tuple(msgspec.structs.replace(run, script=script) for run in recording.runs)

    assert len(syncs.collect(Evidence(msgspec.structs.replace(recording, runs=runs)))) == found
    assert len(syncs.collect(Evidence(recording))) == 1  # of a function, every read is a step's


def test_the_last_iteration_holds_no_read_of_a_next_one() -> None:
    """It begins at its first compiled call, and a line above that is the next iteration's."""
    recording = written_syncs.recording(read(calls=range(7)))
    script = ScriptRun(step=ITERATION, steps=8, counted={})
    runs = tuple(msgspec.structs.replace(run, script=script) for run in recording.runs)

    (event,) = syncs.collect(Evidence(msgspec.structs.replace(recording, runs=runs)))
    (of_a_function,) = syncs.collect(Evidence(recording))

    assert event.reads == of_a_function.reads[:-1]
    assert of_a_function.reads[-1] == 0
    assert syncs.diagnose((event,))[0].message.endswith(", once per step")


# ---------------------------------------------------------------- each rule


def test_the_operator_that_reads_inside_is_named_and_a_check_of_linalgs_can_be_left_out() -> None:
    (event,) = events(read(expression="torch.linalg.lu_factor(a)", instruction="CALL"))

    (found,) = syncs.diagnose((event,))

    assert (event.cause, event.called) == ("inside-operator", "lu_factor")
    assert found.message == (
        "with the tensor on a GPU, "
        "a value read inside lu_factor() would force a sync, at least once per step"
    )
    # where it fails, the program may need the error
    assert (found.fix, found.no_fix) == ("", syncs.UNCHECKED.format("lu_factor"))

    in_graph = msgspec.structs.replace(
        event, rule="KGP202", called="", operator="linalg_lu_factor", expression="f(a)"
    )
    line = msgspec.structs.replace(event.location, text="x = torch.linalg.lu_factor(a)")
    (there,) = syncs.diagnose((msgspec.structs.replace(in_graph, location=line),))
    (elsewhere,) = syncs.diagnose((in_graph,))

    assert there.no_fix == found.no_fix
    assert elsewhere.no_fix == syncs.READS_FOR_ITSELF


@pytest.mark.parametrize(
    ("expression", "reads"),
    [
        ("F.one_hot(labels)", [1]),
        ("F.one_hot(labels, 6)", []),
        ("F.one_hot(labels, num_classes=6)", []),
        ("torch.quantile(x, 0.5)", []),
        ("torch.normal(x, y)", [2]),
    ],
)
def test_what_is_checked_on_a_cpu_alone_is_no_read_of_a_gpu(
    expression: str, reads: list[int]
) -> None:
    found = events(read(expression=expression, instruction="CALL", each=2))

    assert [event.reads_per_step for event in found] == reads


@pytest.mark.parametrize(
    ("fields", "cause", "words"),
    [
        (
            {"op": "aten::nonzero", "expression": "x[y == 1]", "instruction": "BINARY_SUBSCR"},
            "mask-index",
            syncs.OF_SIZES,
        ),
        (
            {"op": "aten::nonzero", "expression": "x[:, keep]", "instruction": "BINARY_SUBSCR"},
            "mask-index",
            syncs.OF_SIZES,
        ),
        (
            {"op": "aten::nonzero", "expression": "loss.backward()", "instruction": "CALL"},
            "nonzero",
            syncs.BACKWARD,
        ),
        (
            {
                "op": "aten::masked_select",
                "expression": "x.masked_select(m)",
                "instruction": "CALL",
            },
            "mask-index",
            syncs.OF_SIZES,
        ),
        (
            {"op": "aten::nonzero", "expression": "torch.where(m)", "instruction": "CALL"},
            "nonzero",
            syncs.OF_SIZES,
        ),
        (  # an operator of a compiled graph calls it for itself
            {"op": "aten::nonzero", "expression": "", "instruction": "CALL"},
            "nonzero",
            "",
        ),
        (
            {"op": "aten::_unique2", "expression": "ids.unique()", "instruction": "CALL"},
            "unique",
            syncs.OF_SIZES,
        ),
    ],
)
def test_what_to_do_about_a_size_that_is_read_is_no_code(
    fields: dict[str, Any], cause: str, words: str
) -> None:
    (found,) = findings(read(**fields))

    assert found.reads is not None
    assert (found.reads.cause, found.fix, found.no_fix) == (cause, "", words)


def test_a_backward_that_reads_a_size_names_no_line_of_the_forward_pass() -> None:
    """torch.linalg.matrix_exp's backward reads sizes, too."""
    backward = read(op="aten::nonzero", expression="loss.backward()", instruction="CALL")
    indexes = read(PREDICATE, op="aten::nonzero", instruction="BINARY_SUBSCR", expression="x[keep]")

    (alone,) = findings(backward)
    both = {found.location.line: found for found in findings(backward, indexes)}
    beside = both[READ_LINE.line]

    assert " nonzero(), which a backward calls, would force a sync" in alone.message
    assert (beside.message, beside.fix) == (alone.message, "")
    assert alone.no_fix == beside.no_fix == BACKWARD


def test_a_read_in_eager_code() -> None:
    (event,) = events(read())

    assert event == Sync(
        run=FUSED,
        rule="KGP201",
        location=READ_PLACE,
        cause="item",
        where="eager",
        reads=(1,) * (CALLS - STEADY_FROM),
        steps=CALLS - STEADY_FROM,
        operator="aten::_local_scalar_dense",
        library=None,
        chain=(),
        expression="loss.item()",
        on_cuda=False,
        waited_us=Skipped(reason="not applicable on a CPU"),
        share=1.0,
        identity="model.py\0train\0return Model().step(x)\0item",
    )
    (finding,) = syncs.diagnose((event,))
    assert finding == Finding(
        rule="KGP201",
        level=Level.WARNING,
        message=(
            "with the tensor on a GPU, "
            "converting a tensor to a number would force a sync, once per step"
        ),
        run=FUSED,
        location=READ_PLACE,
        count=1,
        fingerprint=finding.fingerprint,
        reads=Reads(
            operator="aten::_local_scalar_dense", events=5, in_steps=5, steps=5, cause="item"
        ),
        cost=Skipped(reason="not applicable on a CPU"),
    )


def test_a_read_inside_compiled_code_is_at_the_operators_line() -> None:
    (finding,) = findings(predicate(each=2))

    assert (finding.rule, finding.level, finding.location, finding.count) == (
        SYNC_IN_GRAPH.id,
        Level.WARNING,
        PREDICATE_PLACE,
        2,
    )
    assert finding.message == (
        "with the tensor on a GPU, "
        "reading torch.cond's predicate would force a sync inside compiled code, 2 times "
        "per step"
    )


def test_while_loop_reads_its_condition_before_each_round() -> None:
    (finding,) = findings(
        read(each=9, operator="while_loop", compile_id="0/0", expression="while_loop(more, turn)")
    )

    assert (finding.rule, finding.fix) == (SYNC_IN_GRAPH.id, "")
    assert finding.message == (
        "with the tensor on a GPU, "
        "reading while_loop's condition would force a sync inside compiled code, 9 times "
        "per step"
    )


@pytest.mark.parametrize(
    ("source", "op", "operator", "where"),
    [
        ("python-call", "Tensor.cpu", "", ""),
        ("captured graph", "Tensor.cpu", "cpu", " inside compiled code"),
    ],
)
def test_what_costs_nothing_on_a_cpu_is_a_note(
    source: str, op: str, operator: str, where: str
) -> None:
    compile_id = "0/0" if operator else ""
    record = read(
        source=source, op=op, operator=operator, compile_id=compile_id, expression="loss.cpu()"
    )

    (finding,) = findings(record)

    assert (finding.rule, finding.level) == (WOULD_SYNC.id, Level.NOTE)
    assert (
        finding.message
        == f"with the tensor on a GPU, .cpu() would force a sync{where}, once per step"
    )
    assert syncs.syncs_per_step(events(record), FUSED) == 0


def test_numpy_alone_raises_on_a_gpu() -> None:
    (finding,) = findings(read(source="python-call", op="Tensor.numpy", expression="x.numpy()"))

    assert (
        "with the tensor on a GPU, .cpu(), which .numpy() needs there, would force a sync"
        in finding.message
    )


def test_on_a_gpu_the_same_call_waits() -> None:
    waited_us = dict.fromkeys(range(CALLS), 90.0)
    record = read(
        source="python-call",
        op="Tensor.cpu",
        device="cuda",
        expression="loss.cpu()",
        waited_us=waited_us,
    )

    (finding,) = findings(record, device="cuda")

    assert (finding.rule, finding.level) == (HOST_DEVICE_SYNC.id, Level.WARNING)
    assert finding.message == ".cpu() forces a GPU sync, once per step"
    assert finding.cost == FindingCost(
        value=90.0,
        unit="us/step",
        what="CPU wait at this line under instrumentation; part is GPU work still running",
        measured_in=(PassName.MEMORY,),
        samples=5,
        extremes=(90.0, 90.0),
    )


def read_at_a_break(*frames: tuple[Frame, ...]) -> Sync:
    broken = written.run(*written.a_break())
    reads = (msgspec.structs.replace(read(), frames=each) for each in frames)
    recording = written_syncs.recording(*reads)
    run = msgspec.structs.replace(broken, memory=recording.runs[0].memory)
    (event,) = syncs.collect(Evidence(msgspec.structs.replace(recording, runs=(run,))))
    return event


BREAKS = Frame(file=written.FILE, line=5, function="report", first_line=4)


def test_what_eager_code_reads_at_the_same_line_is_at_no_graph_break() -> None:
    # given: a line of a model of which the program calls a compiled and an eager copy
    compiled, eager = (
        (BREAKS, Frame(file=READ_LINE.file, line=line, function="train", first_line=20))
        for line in (21, 22)
    )

    event = read_at_a_break(compiled, eager)

    assert (event.where, event.reads) == ("eager", (2,) * (CALLS - STEADY_FROM))


def test_at_a_graph_break_it_is_said_so() -> None:
    event = read_at_a_break((BREAKS,))

    assert (event.where, event.location) == ("break", written.place(*written.PRINT))
    assert syncs.diagnose((event,))[0].message.startswith(
        "with the tensor on a GPU, "
        "converting a tensor to a number would force a sync at a graph break"
    )


def test_what_a_library_reads_below_a_line_with_a_break_is_said_to_be_at_none() -> None:
    """As a trainer's loop below trainer.train(): the break is a line of another function there."""
    broken = written.run(*written.a_break())
    below = in_a_library()
    recording = written_syncs.recording(msgspec.structs.replace(below, frames=(BREAKS,)))
    run = msgspec.structs.replace(broken, memory=recording.runs[0].memory)
    (event,) = syncs.collect(Evidence(msgspec.structs.replace(recording, runs=(run,))))

    assert (event.where, event.library is not None) == ("eager", True)


@pytest.mark.parametrize(
    ("record", "device"),
    [
        (read(device="cpu"), "cuda"),
        (read(compile_id="0/0"), "cpu"),
        (read(instruction="STORE_SUBSCR", expression="x[0] = 1"), "cpu"),
        (read(Frame(file=written.LIBRARY, line=3, function="forward")), "cpu"),
    ],
    ids=[
        "the host's own value",
        "an assertion of the graph",
        "a number that is assigned",
        "a library's line",
    ],
)
def test_what_is_no_sync_is_no_finding(record: SyncRecord, device: str) -> None:
    assert events(record, device=device) == ()


@pytest.mark.parametrize("op", list(syncs.WAITS))
def test_a_wait_that_the_program_asks_for_gets_no_advice_about_a_value(op: str) -> None:
    asked = read(op=op, source="python-call", device="cuda", expression="torch.cuda.synchronize()")

    (found,) = findings(asked, device="cuda")

    assert (found.fix, found.no_fix) == ("", syncs.ASKED)


def test_a_library_that_reads_is_told_at_the_projects_line_above() -> None:
    frames = (Frame(file=written.LIBRARY, line=3, function="forward"), READ_LINE)
    record = msgspec.structs.replace(read(), frames=frames)

    assert [event.location for event in events(record)] == [READ_PLACE]


# ---------------------------------------------------------------- causes


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"expression": "y.max().item()"}, "item"),
        ({"expression": "float(loss)"}, "item"),
        ({"expression": "names[index]"}, "item"),
        ({"expression": "x.any()", "instruction": "POP_JUMP_FORWARD_IF_FALSE"}, "truth-value"),
        ({"expression": "not done", "instruction": "UNARY_NOT"}, "truth-value"),
        ({"expression": "bool(done)"}, "truth-value"),
        ({"expression": "torch.allclose(x, y)"}, "inside-operator"),
        ({"op": "aten::nonzero", "expression": "x.nonzero()"}, "nonzero"),
        (
            {"op": "aten::nonzero", "expression": "x[x > 0]", "instruction": "BINARY_SUBSCR"},
            "mask-index",
        ),
        ({"op": "aten::masked_select", "expression": "x.masked_select(m)"}, "mask-index"),
        ({"op": "aten::nonzero", "expression": "loss.backward()"}, "nonzero"),
        ({"op": "aten::nonzero", "expression": "torch.matrix_exp(x)"}, "inside-operator"),
        ({"op": "aten::nonzero", "expression": "x.to_sparse()"}, "inside-operator"),
        (
            {"op": "aten::unique_consecutive", "expression": "torch.unique_consecutive(x)"},
            "inside-operator",
        ),
        (
            {"op": "aten::masked_select", "expression": "print(x)", "instruction": "CALL"},
            "inside-operator",
        ),
        (
            {"op": "aten::nonzero", "expression": "'{}'.format(x)", "instruction": "CALL"},
            "inside-operator",
        ),
        (
            {"op": "aten::masked_select", "expression": "f'{x}'", "instruction": "FORMAT_VALUE"},
            "inside-operator",
        ),
        (
            {"op": "aten::masked_select", "expression": "'%s' % x", "instruction": "BINARY_OP"},
            "inside-operator",
        ),
        ({"op": "aten::_unique2", "expression": "torch.unique(x)"}, "unique"),
        ({"op": "aten::equal"}, "inside-operator"),
        ({"op": "Tensor.numpy", "source": "python-call"}, "numpy"),
        ({"op": "Tensor.to", "source": "python-call"}, "to"),
        ({"op": "cuda.synchronize", "source": "python-call"}, "device-synchronize"),
        ({"op": "accelerator.synchronize", "source": "python-call"}, "device-synchronize"),
        ({"op": "Event.synchronize", "source": "python-call"}, "event-synchronize"),
        ({"op": "Stream.synchronize", "source": "python-call"}, "stream-synchronize"),
        ({"source": "sync-debug", "expression": "held.copy_(new)"}, "blocking-copy"),
        (
            {"source": "sync-debug", "expression": "torch.tensor([1, 2], device=d)"},
            "tensor-from-data",
        ),
        (
            {"source": "sync-debug", "expression": "x[i]", "instruction": "BINARY_SUBSCR"},
            "copied-index",
        ),
        (
            {"source": "sync-debug", "expression": "x[i]", "instruction": "STORE_SUBSCR"},
            "copied-index",
        ),
        ({"expression": "torch.tensor([loss, lowest])"}, "item"),
        ({"operator": "cond", "compile_id": "0/0"}, "cond-predicate"),
        ({"operator": "while_loop", "compile_id": "0/0"}, "loop-condition"),
        ({"operator": "repeat_interleave", "compile_id": "0/0"}, "inside-operator"),
    ],
)
def test_why_it_reads(fields: dict[str, str], cause: str) -> None:
    assert syncs.cause_of(read(**fields)) == cause


@pytest.mark.parametrize("expression", ["", "x.item(", "a = 1", "\x00", "f(" * 3, "\ud800"])
def test_what_is_no_expression_calls_nothing(expression: str) -> None:
    assert called_function(expression) == ""


def test_every_cause_has_words() -> None:
    causes = {*CAUSES.values(), *syncs.OF_OPERATORS.values(), *syncs.WAITS.values(), syncs.INSIDE}
    causes |= {*syncs.COPIES, syncs.UNNAMED}

    assert causes == set(syncs.SAID)


# ---------------------------------------------------------------- how often


@pytest.mark.parametrize(
    ("record", "reads", "calls", "often"),
    [
        (read(), 1.0, 5, "once per step"),
        (read(each=3), 3.0, 5, "3 times per step"),
        (read(calls=range(0, CALLS, 5)), 0.2, 1, "in 1 of 5 steps"),
        (read(each=2, calls=range(2, 5)), 0.8, 2, "4 times in 2 of 5 steps"),
        (read(each=700, calls=range(2, 5)), 280.0, 2, "1,400 times in 2 of 5 steps"),
    ],
)
def test_reads_are_counted_by_step_after_warm_up(
    record: SyncRecord, reads: float, calls: int, often: str
) -> None:
    (event,) = events(record)

    assert (event.reads_per_step, event.calls) == (pytest.approx(reads), calls)
    assert syncs.diagnose((event,))[0].message.endswith(often)
    assert syncs.syncs_per_step((event,), FUSED) == pytest.approx(reads)


@pytest.mark.parametrize(
    ("line", "expression", "kept"),
    [
        ("    total += loss.item()", "loss.item()", "total += loss.detach()"),
        (
            "seen += float(loss.detach()) * len(x)",
            "float(loss.detach())",
            "seen += loss.detach() * len(x)",
        ),
        ("right += int((y == t).sum())", "int((y == t).sum())", "right += (y == t).sum().detach()"),
        ("both += float(a + b) * 2", "float(a + b)", "both += (a + b).detach() * 2"),
        ("losses.append( loss.item() )", "loss.item()", "losses.append(loss.detach())"),
        ("kept.append(net.a.item())", "net.a.item()", "kept.append(net.a.detach().clone())"),
        ("total += net.a.item()", "net.a.item()", "total += net.a.detach()"),
        ("losses += [2 * loss.item()]", "loss.item()", ""),
        # nobody knows where it is read next
        ("r = x / (self.width.item() / pi)", "self.width.item()", ""),
        ("self.total += loss.item()", "loss.item()", ""),
        ("self.losses.append(loss.item())", "loss.item()", ""),
        ("losses.append((a.item(), b.item() / 2))", "b.item()", ""),
        # round() and json.dump() of what a caller gets raise at a tensor
        ("return loss.item(), n", "loss.item()", ""),
        ("    'loss': loss.item(),", "loss.item()", ""),
        ("value = loss.item()", "loss.item()", ""),
        ("print(loss.item())", "loss.item()", ""),
        ("total += math.exp(loss.item())", "loss.item()", ""),
        ("rows.append(f'{loss.item():.2f}')", "loss.item()", ""),
        ("text += 'loss %.2f' % loss.item()", "loss.item()", ""),
        # an entry that somebody else reads: fused AdamW takes a number for its weight decay
        ("opt.param_groups[0]['weight_decay'] = 1 / loss.item()", "loss.item()", ""),
        ("group['lr'] *= loss.item()", "loss.item()", ""),
        ("total += loss.tolist()", "loss.tolist()", ""),
        ("total += weigh(", "loss.item()", ""),
        ("", "", ""),
    ],
)
def test_a_sum_is_kept_as_a_tensor(line: str, expression: str, kept: str) -> None:
    assert syncs.kept_as_a_tensor(line, expression).partition("  #")[0] == kept


def test_reads_that_grow_from_step_to_step_are_no_number_per_step() -> None:
    growing = msgspec.structs.replace(read(), calls={call: call for call in range(CALLS)})
    (event,) = events(growing)

    # 3 to 7 in five steps, whose mean is a whole number
    assert syncs.diagnose((event,))[0].message.endswith("25 times in 5 steps")


def test_two_ways_to_read_in_one_line_are_both_said() -> None:
    tested = read(instruction="POP_JUMP_IF_FALSE", expression="v < best")
    (finding,) = findings(tested, read(expression="v.item()"))

    assert "bool(tensor) and converting a tensor to a number would force a sync" in finding.message
    assert finding.message.endswith("2 times per step")


@pytest.mark.parametrize(
    ("line", "is_used", "where", "has_code"),
    [
        ("total += loss.item()", False, "eager", True),
        ("total += loss.item()", True, "eager", False),
        ("total += loss.item()", False, "break", False),
        ("losses.append(loss.item())", False, "eager", True),
        # without the break, a list that grows there recompiles the whole function
        ("losses.append(loss.item())", False, "break", False),
    ],
)
def test_a_sum_that_its_loop_reads_is_not_kept_as_a_tensor(
    line: str, is_used: bool, where: str, has_code: bool
) -> None:
    (event,) = events(read())
    place = msgspec.structs.replace(event.location, text=line)
    event = msgspec.structs.replace(event, location=place, is_used_at_once=is_used, where=where)

    (finding,) = syncs.diagnose((event,))

    assert ("loss.detach()" in finding.fix) is has_code


@pytest.mark.parametrize(
    ("line", "later"),
    [
        (
            "losses.append(loss.item())",
            "# tensors: use torch.stack(losses).tolist() after the loop",
        ),
        ("rows += rate * loss.item()", "# a tensor: use float(rows) after the loop"),
    ],
)
def test_what_is_kept_in_a_list_is_read_at_once_where_it_is_one_of_tensors(
    line: str, later: str
) -> None:
    assert syncs.kept_as_a_tensor(line, "loss.item()").endswith(later)


def test_code_of_a_list_ends_where_its_name_begins_another() -> None:
    line = "rows.append(loss.item())"

    fix = syncs.kept_as_a_tensor(line, "loss.item()", 307, 334)

    assert fix.endswith("# tensors: use torch.stack(rows).tolist() from line 307 to 333")


def test_the_line_behind_the_loop_that_needs_the_number_is_named() -> None:
    """round() and a format raise at a tensor."""
    file = "/src/shop/fit.py"
    text = (
        "def fit(batches):\n    total = 0.0\n    for batch in batches:\n"
        "        loss = batch.mean()\n        total += loss.item()\n    return round(total, 3)\n"
    )
    sources = written.sources()
    files = {**sources.files, file: SourceFile(sha256="0" * 64, text=text)}
    frame = Frame(file=file, line=5, function="fit")
    (event,) = events(read(frame), sources=msgspec.structs.replace(sources, files=files))

    (finding,) = syncs.diagnose((event,))

    assert finding.fix == "total += loss.detach()  # a tensor: use float(total) from line 6 on"
    outcome: dict[str, object] = {}
    mended = text.replace("loss.item()", "loss.detach()").replace("(total,", "(float(total),")
    exec(mended, outcome)
    assert outcome["fit"]([torch.ones(2), torch.ones(2)]) == 2.0  # type: ignore[operator]


@pytest.mark.parametrize(("compiled_in", "is_a_log"), [((), False), ((5,), True)])
def test_a_step_that_is_long_because_torch_compiled_holds_no_time(
    compiled_in: tuple[int, ...], is_a_log: bool
) -> None:
    """A log in two of forty steps of a script, of which one is compiled for another size."""
    step_us = tuple(1000.0 * (100 if step == 5 else 1) for step in range(43))
    seen = msgspec.structs.replace(read(device="cuda"), calls={5: 1, 25: 1})
    recording = written_syncs.recording(seen, device="cuda", calls=43, step_us=step_us)
    (run,) = recording.runs
    assert isinstance(run.compile, CompilePass)
    compiled = msgspec.structs.replace(run.compile, compiled_in=compiled_in)
    script = ScriptRun(step="an optimizer step", steps=43, counted={})
    run = msgspec.structs.replace(run, script=script, compile=compiled)
    recording = msgspec.structs.replace(recording, runs=(run,))

    (found,) = syncs.diagnose(syncs.collect(Evidence(recording)))

    assert (found.no_fix == syncs.IN_FEW_STEPS) is is_a_log


@pytest.mark.parametrize(
    ("every", "device", "level"),
    [(8, "cpu", Level.NOTE), (7, "cpu", Level.WARNING), (8, "cuda", Level.NOTE)],
)
def test_a_read_as_seldom_as_a_logs_is_a_note_where_no_code_helps(
    every: int, device: str, level: Level
) -> None:
    calls = range(written_syncs.STEADY_FROM, written_syncs.STEADY_FROM + 56)
    logged = dict.fromkeys(calls[::every], 1)
    record = msgspec.structs.replace(
        read(device=device, waited_us=dict.fromkeys(logged, 40.0) if device == "cuda" else {}),
        calls=logged,
    )

    (event,) = events(record, device=device, calls=calls.stop)
    (found,) = syncs.diagnose((event,))

    assert found.level is level
    assert (found.no_fix == syncs.IN_FEW_STEPS) is (every == 8)  # it is read every N steps already
    assert found.counts


@pytest.mark.parametrize("step", [*CALLS_AS_STEPS, "an optimizer step"])
def test_what_is_seldom_among_calls_may_be_in_each_iteration(step: str) -> None:
    # given: a read in 2 of 56 steps; an iteration may make 28 calls
    seen = msgspec.structs.replace(read(device="cuda"), calls=dict.fromkeys((10, 38), 1))
    recording = written_syncs.recording(seen, device="cuda", calls=written_syncs.STEADY_FROM + 56)
    script = ScriptRun(step=step, steps=59, counted={})
    runs = tuple(msgspec.structs.replace(run, script=script) for run in recording.runs)

    (found,) = syncs.diagnose(
        syncs.collect(Evidence(msgspec.structs.replace(recording, runs=runs)))
    )

    is_call = step in CALLS_AS_STEPS
    assert (found.level is Level.NOTE) is not is_call
    assert (found.no_fix == syncs.IN_FEW_STEPS) is not is_call


def test_a_stream_that_is_waited_for_in_a_library_is_told_once() -> None:
    def at(file: str) -> tuple[Frame]:
        return (Frame(file=f"/lib/site-packages/torch/{file}", line=1, function="wait"),)

    call = waiting(ELSEWHERE, op="Stream.synchronize", chain=at("distributed/filesystem.py"))
    debug = waiting(
        ELSEWHERE,
        source="sync-debug",
        op="synchronizing operation",
        chain=at("cuda/streams.py"),
    )

    found = list(syncs.collect(Evidence(on_a_gpu(call, debug))))

    assert [each.operator for each in found] == ["Stream.synchronize"]


def test_what_several_sources_saw_of_one_line_is_one_read() -> None:
    dispatch = read(device="cuda", waited_us=dict.fromkeys(range(CALLS), 40.0))
    debug = read(source="sync-debug", op="synchronizing operation", device="cuda")
    outer = read(
        source="python-call",
        op="Tensor.tolist",
        device="cuda",
        waited_us=dict.fromkeys(range(CALLS), 50.0),
    )

    (event,) = events(dispatch, debug, outer, device="cuda")

    # one wait, and the longest look at it
    assert (event.reads_per_step, event.waited_us) == (1.0, (50.0,) * 5)


def test_what_waits_in_some_steps_only_costs_its_share_of_each() -> None:
    # given: of the five calls after warm-up two that read
    record = read(device="cuda", calls=range(4, 8, 3), waited_us={4: 300.0, 7: 500.0})

    (found,) = findings(record, device="cuda")

    assert found.message.endswith("in 2 of 5 steps")
    assert found.cost == FindingCost(
        value=160.0,
        unit="us/step",
        what="CPU wait at this line under instrumentation; part is GPU work still running",
        measured_in=(PassName.MEMORY,),
        samples=5,
        extremes=(0.0, 500.0),
    )


def test_what_waits_in_every_step_costs_the_median() -> None:
    record = read(device="cuda", waited_us={call: 10.0 * call for call in range(CALLS)})

    (found,) = findings(record, device="cuda")

    assert isinstance(found.cost, FindingCost)
    assert (found.cost.value, found.cost.extremes) == (50.0, (30.0, 70.0))


def test_of_sources_that_count_differently_the_largest_count_stands() -> None:
    dispatch = read(each=2, device="cuda")
    debug = read(each=3, source="sync-debug", op="synchronizing operation", device="cuda")

    (event,) = events(dispatch, debug, device="cuda")

    assert event.reads_per_step == 3.0


def test_two_operators_that_one_source_saw_are_two_reads() -> None:
    (event,) = events(read(), read(op="aten::nonzero", expression="loss.nonzero()"))

    assert (event.reads_per_step, event.cause) == (2.0, "item")


def test_where_a_value_is_read_anyway_the_copy_beneath_is_not_told() -> None:
    copy = read(source="python-call", op="Tensor.cpu", expression="loss.cpu().item()")

    assert [event.rule for event in events(read(), copy)] == ["KGP201"]
    assert [event.rule for event in events(copy)] == ["KGP203"]


def test_a_line_in_compiled_code_and_in_eager_code_is_two_findings() -> None:
    eager = read(PREDICATE, expression="x.sum().item()")

    found = events(eager, predicate())

    assert [(event.rule, event.location, event.where) for event in found] == [
        ("KGP201", PREDICATE_PLACE, "eager"),
        ("KGP202", PREDICATE_PLACE, "compiled"),
    ]
    assert len({finding.fingerprint for finding in syncs.diagnose(found)}) == 2


def test_a_fingerprint_outlives_the_figures_and_what_is_around_the_line() -> None:
    once, often = findings(read(), read(PREDICATE)), findings(read(each=7), predicate())

    assert once[0].fingerprint == often[0].fingerprint
    assert len({once[0].fingerprint, once[1].fingerprint, often[1].fingerprint}) == 3


def test_reads_by_finding_add_up_to_the_reads_of_a_step() -> None:
    found = events(
        read(each=2), predicate(), read(PREDICATE, source="python-call", op="Tensor.cpu")
    )

    by_finding = syncs.reads_by_finding(found, FUSED)

    assert sorted(by_finding.values()) == [1.0, 2.0]
    assert sum(by_finding.values()) == syncs.syncs_per_step(found, FUSED)


def test_what_is_read_in_warm_up_alone_is_no_finding() -> None:
    assert events(read(calls=range(-1, 0)), read(PREDICATE, calls=range(STEADY_FROM))) == ()
    assert events(read(calls=range(2)), calls=STEADY_FROM) == ()


# ---------------------------------------------------------------- what is not there


def without(**fields: Any) -> Recording:
    whole = written_syncs.recording(read())
    return msgspec.structs.replace(whole, runs=(msgspec.structs.replace(whole.runs[0], **fields),))


@pytest.mark.parametrize(
    "memory", [GONE, written_syncs.memory(syncs=Skipped(reason="no hooks"))], ids=["pass", "syncs"]
)
def test_a_recording_without_it_has_no_finding(memory: Any) -> None:
    recording = without(memory=memory)

    assert syncs.collect(Evidence(recording)) == ()
    assert [
        one for one in disagreements.collect(Evidence(recording)) if one.fact in ("reads", "waits")
    ] == []


def test_a_recording_without_records_has_no_finding() -> None:
    assert events() == ()
    assert syncs.syncs_per_step((), FUSED) == 0
    assert syncs.reads_by_finding((), FUSED) == {}


def test_hostile_names_come_through_as_they_are() -> None:
    place = Frame(file=f"/src/{HOSTILE}.py", line=2**31, function=HOSTILE)
    records = (
        read(place, expression=HOSTILE, instruction=HOSTILE, op=HOSTILE),
        read(place, compile_id=HOSTILE, operator=HOSTILE),
    )

    found = events(*records)

    assert [(event.rule, event.cause) for event in found] == [
        ("KGP201", "inside-operator"),
        ("KGP202", "inside-operator"),
    ]
    assert {
        (event.location.file, event.location.function, event.location.text) for event in found
    } == {(place.file, HOSTILE, "")}
    assert all(HOSTILE not in finding.message for finding in syncs.diagnose(found))
    assert all(len(finding.fingerprint) == 12 for finding in syncs.diagnose(found))


def test_without_costs_a_read_in_each_step_comes_before_one_in_a_few() -> None:
    rare = read(PREDICATE, calls=range(STEADY_FROM, STEADY_FROM + 1))

    found = collectors.findings(Evidence(written_syncs.recording(rare, read(each=2))))

    assert [one.reads.events for one in found if one.reads is not None] == [
        2 * (CALLS - STEADY_FROM),
        1,
    ]


# ----------------------------------------------------------- KGP503: against the trace of a GPU run


STEPS = 4
SEEN = read(device="cuda"), read(source="sync-debug", op="synchronizing operation", device="cuda")


def traced_with(
    folder: Path,
    *reads: SyncRecord,
    waits: int,
    in_the_first: int = 0,
    timed_in: Collection[int] = (),
    inside: str = "",
    trace: bool = True,
    script: ScriptRun | None = None,
    **fields: Any,
) -> Recording:
    """Of a run whose TRACE has ``waits`` calls, over STEPS steps, in which the host waits, and more
    in the first; in the steps ``timed_in`` torch compiles or records. ``inside``: the operator that
    makes every call."""
    whole = written_syncs.recording(*reads, device="cuda", **fields)
    path = layout.run_folder(folder, FUSED) / layout.TRACE_FILES[PassName.TRACE]
    path.parent.mkdir(parents=True)
    if trace:
        events = [*_trace(waits, in_the_first), *_timed(timed_in)]
        events += _operators(events, inside)
        path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    traced = TracePass(step_us=(100.0,) * STEPS, trace_file=path.name, cpp_kernel_profile=False)
    run = msgspec.structs.replace(whole.runs[0], trace=traced, script=script)
    return msgspec.structs.replace(whole, folder=str(folder), runs=(run,))


def waits_said(folder: Path, *reads: SyncRecord, **fields: Any) -> list[str]:
    found = disagreements.collect(Evidence(traced_with(folder, *reads, **fields)))
    assert {one.fact for one in found} <= {"waits"}
    return [one.message for one in found]


def _operators(events: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    calls = [event for event in events if name and event["cat"] == "cuda_runtime"]
    return [{**call, "cat": "cpu_op", "name": name} for call in calls]


def _timed(steps: Collection[int]) -> Iterator[dict[str, Any]]:
    for step in steps:
        name = "cudagraphify.get_container (dynamo_timed)"
        event = {"ph": "X", "pid": 1, "tid": 1, "args": {}, "cat": "cpu_op", "name": name}
        yield {**event, "ts": step * 100.0 + 20, "dur": 5.0}


def _trace(waits: int, in_the_first: int) -> Iterator[dict[str, Any]]:
    event = {"ph": "X", "pid": 1, "tid": 1, "args": {}}
    for step in range(STEPS):
        yield {
            **event,
            "cat": "user_annotation",
            "name": f"ProfilerStep#{step}",
            "ts": step * 100.0,
            "dur": 100.0,
        }
    starts = [100.0 * (number % STEPS) + number // STEPS for number in range(waits)]
    for start in (*starts, *(50.0 + number for number in range(in_the_first))):
        yield {
            **event,
            "cat": "cuda_runtime",
            "name": "cudaStreamSynchronize",
            "ts": start,
            "dur": 0.5,
        }


@pytest.mark.parametrize(("reads", "waits"), [((), 0), (SEEN, STEPS), (SEEN, STEPS + 1), ((), 1)])
def test_a_trace_that_has_the_waits_that_the_hooks_saw_is_no_contradiction(
    tmp_path: Path, reads: tuple[SyncRecord, ...], waits: int
) -> None:
    assert waits_said(tmp_path, *reads, waits=waits) == []


@pytest.mark.parametrize(
    ("reads", "waits", "words"),
    [
        ((), 4, "the hooks saw 0 syncs in most steps, but the trace has 1"),
        (SEEN, 0, "the hooks saw 1 sync in most steps, but the trace has 0"),
        (SEEN, 10, "the hooks saw 1 sync in most steps, but the trace has 2.5"),
    ],
)
def test_a_trace_with_other_waits_contradicts(
    tmp_path: Path, reads: tuple[SyncRecord, ...], waits: int, words: str
) -> None:
    assert waits_said(tmp_path, *reads, waits=waits) == [words]


def test_waits_inside_an_operator_that_no_hook_sees_are_no_contradiction(tmp_path: Path) -> None:
    """torch's debug mode sees none of the sorts by Thrust in ``aten::_coalesce``."""
    inside = {"waits": 30 * STEPS, "inside": "aten::_coalesce"}
    item = {"waits": 30 * STEPS, "inside": "aten::_local_scalar_dense"}

    assert waits_said(tmp_path / "coalesce", **inside) == []
    assert waits_said(tmp_path / "item", **item) == [
        "the hooks saw 0 syncs in most steps, but the trace has 30"
    ]


def test_torch_save_copies_by_a_way_that_no_hook_sees(tmp_path: Path) -> None:
    def said(name: str, *checkpoints: Checkpoint) -> list[str]:
        script = ScriptRun(step="an optimizer step", steps=9, counted={}, checkpoints=checkpoints)
        copies = {"waits": 18 * STEPS, "inside": "aten::copy_", "script": script}
        return waits_said(tmp_path / name, **copies)

    saved = Checkpoint(location=READ_PLACE, compiled_keys=False, into_compiled=None)
    loaded = msgspec.structs.replace(saved, into_compiled=False)

    assert said("saved", saved) == []
    assert said("loaded", loaded) != []


def test_waits_that_no_hook_counts_keep_the_practice_open(tmp_path: Path) -> None:
    def few_reads(inside: str) -> PracticeStatus:
        recording = traced_with(tmp_path / inside, waits=STEPS, inside=inside)
        items = analyse(recording).checklist
        return next(item.status for item in items if item.id == "few-reads")

    assert few_reads("aten::copy_") == PracticeStatus.PASS
    assert few_reads("aten::_coalesce") == PracticeStatus.NOT_OBSERVED


def test_what_happens_in_a_few_steps_of_either_is_no_contradiction(tmp_path: Path) -> None:
    """An evaluation reads often in one step of the hooks'; in one of the trace's, cuDNN tries out
    kernels."""
    once = {"calls": range(STEADY_FROM, STEADY_FROM + 1), "each": 40, "device": "cuda"}
    evaluation = (
        read(PREDICATE, **once),
        read(PREDICATE, source="sync-debug", op="synchronizing operation", **once),
    )

    assert waits_said(tmp_path / "evaluation", *SEEN, *evaluation, waits=STEPS) == []
    assert waits_said(tmp_path / "once", *SEEN, waits=STEPS, in_the_first=30) == []


def test_traced_steps_that_wait_as_often_as_some_stretch_of_the_steps_are_no_contradiction(
    tmp_path: Path,
) -> None:
    """A solver reads more often in later steps than in those that TRACE followed."""
    early = range(STEADY_FROM, STEADY_FROM + STEPS)
    solver = tuple(
        read(each=each, calls=calls, device="cuda", **hook)
        for calls, each in ((early, 10), (range(early.stop, early.stop + 12), 20))
        for hook in ({}, {"source": "sync-debug", "op": "synchronizing operation"})
    )

    def said(name: str, waits: int) -> list[str]:
        return waits_said(tmp_path / name, *solver, waits=waits * STEPS, calls=early.stop + 12)

    assert said("early", 10) == []
    assert said("neither", 40) == ["the hooks saw 20 syncs in most steps, but the trace has 40"]


def test_steps_of_another_kind_are_not_compared(tmp_path: Path) -> None:
    script = ScriptRun(
        step="an optimizer step", steps=9, counted={}, traced="a call of a compiled function"
    )

    assert waits_said(tmp_path, *SEEN, waits=40, script=script) == []


@pytest.mark.parametrize(
    ("expression", "fix"),
    [
        ("x.to(device)", ""),  # from memory that is not known to be pinned
        ("x.pin_memory().cuda()", "x.pin_memory().cuda(non_blocking=True)"),
        # made on the CPU in the same line
        ("torch.randn((b,)).to(x.device)", "torch.randn((b,), device=x.device)"),
        ("torch.zeros(n).to(device=d)", "torch.zeros(n, device=d)"),
        ("torch.arange(n).cuda()", "torch.arange(n, device='cuda')"),
        ("torch.arange(n).to(x)", ""),  # may be another dtype
        ("torch.tensor([0.5], device=x.device)", "torch.full((1,), 0.5, device=x.device)"),
        ("torch.as_tensor(-1, device='cuda')", "torch.full((), -1, device='cuda')"),
    ],
)
def test_a_blocking_copy_to_the_gpu_gets_its_line_back_without_the_wait(
    expression: str, fix: str
) -> None:
    to_the_gpu = read(
        source="sync-debug", op="synchronizing operation", device="cuda", expression=expression
    )
    to_the_cpu = read(source="python-call", op="Tensor.to", device="cuda", expression="x.to('cpu')")

    def fix_of(record: SyncRecord) -> str:
        (event,) = syncs.collect(Evidence(written_syncs.recording(record, device="cuda")))
        return syncs.diagnose((event,))[0].fix

    assert fix_of(to_the_gpu).partition("  # ")[0] == fix
    assert fix_of(to_the_cpu) == ""


@pytest.mark.parametrize(
    ("expression", "instruction"),
    [
        ("to(t.device)", "CALL"),  # the end of an expression over several lines
        ("torch.tensor([t] * b).to(z.device)", "CALL"),
        ("torch.from_numpy(a).to(device)", "CALL"),
        ("torch.rand(3, generator=g).to(device)", "CALL"),
        ("torch.arange(n)[:3].to(device)", "CALL"),
        ("torch.tensor([1, 2], device=d)", "CALL"),
        ("q.new_tensor(range(heads))", "CALL"),
        ("a.copy_(batch['A'])", "CALL"),
        ("y[s + i]", "BINARY_SUBSCR"),
        ("torch.arange(n).add(y).to(device)", "CALL"),
        ("torch.zeros(n).to(device, torch.half)", "CALL"),
    ],
)
def test_a_copy_to_the_gpu_is_no_read_and_has_no_code_that_may_not_help(
    expression: str, instruction: str
) -> None:
    copied = read(
        source="sync-debug",
        op=syncs.SYNC_DEBUG,
        device="cuda",
        expression=expression,
        instruction=instruction,
    )

    (found,) = findings(copied, device="cuda")

    assert (found.fix, found.no_fix) == ("", syncs.PINS)


def test_a_number_that_is_written_on_the_gpu_is_the_tensor_that_was_copied() -> None:
    for code in ("torch.tensor([0.5])", "torch.tensor(-3)", "torch.tensor([True])"):
        call = ast.parse(code, mode="eval").body
        assert isinstance(call, ast.Call)
        filled, copied = eval(syncs._filled(call)), eval(code)

        assert (filled.dtype, filled.shape) == (copied.dtype, copied.shape)
        assert filled.equal(copied)


@pytest.mark.parametrize(
    ("memory", "code"), [("Pinned", "x.to(d, non_blocking=True)"), ("Pageable", "")]
)
def test_a_copy_is_told_not_to_wait_where_trace_saw_pinned_memory(memory: str, code: str) -> None:
    copy = ("gpu_memcpy", f"Memcpy HtoD ({memory} -> Device)", 200.0)
    run = written_device.traced(written_device.launched_in(IN_A_STEP, copy), step_us=None)
    debug = read(source="sync-debug", op=syncs.SYNC_DEBUG, device="cuda", expression="x.to(d)")
    record = msgspec.structs.replace(run.runs[0], memory=written_syncs.memory(debug))
    recording = msgspec.structs.replace(run, runs=(record,))

    (event,) = syncs.collect(Evidence(recording))
    (found,) = syncs.diagnose((event,))

    assert (found.fix, found.no_fix) == (code, "" if code else syncs.PINS)
    pinned = msgspec.structs.replace(event, expression="x.pin_memory().to(d)")
    assert syncs.diagnose((pinned,))[0].fix == "x.pin_memory().to(d, non_blocking=True)"


def test_a_copy_inside_of_a_dataset_is_told_to_leave_the_item_on_the_cpu() -> None:
    copied = read(
        source="sync-debug",
        op=syncs.SYNC_DEBUG,
        device="cuda",
        expression="full_seq.to(device)",
        loads=True,
    )

    (found,) = findings(copied, device="cuda")

    assert (found.fix, found.no_fix) == ("", syncs.LOADED)


def test_a_backward_that_waits_is_not_told_why() -> None:
    waits = read(
        source="sync-debug",
        op=syncs.SYNC_DEBUG,
        device="cuda",
        instruction="CALL",
        expression="loss.backward()",
    )

    (alone,) = findings(waits, device="cuda")

    assert alone.no_fix == syncs.BACKWARD


@pytest.mark.parametrize(
    ("each", "waited_us", "is_dear"),
    [
        (20, 3000.0, True),
        (20, 300.0, False),
        (1, 3000.0, False),  # a log's read waits for all that was launched before it
    ],
)
def test_many_reads_in_a_few_steps_that_take_much_of_the_time_are_no_logs(
    each: int, waited_us: float, *, is_dear: bool
) -> None:
    # given: one of 56 steps of 1,000 us reads
    call = written_syncs.STEADY_FROM + 5
    record = read(
        device="cuda", each=each, calls=range(call, call + 1), waited_us={call: waited_us}
    )
    recording = written_syncs.recording(
        record, device="cuda", step_us=(1000.0,) * (written_syncs.STEADY_FROM + 56)
    )
    timing = TimingPass(clock="perf_counter", step_us=((1000.0,) * 56,), evaluation_s=())
    timed = msgspec.structs.replace(recording.runs[0], timing=timing)
    recording = msgspec.structs.replace(recording, runs=(timed,))

    (found,) = syncs.diagnose(syncs.collect(Evidence(recording)))

    assert found.reads is not None
    assert found.reads.is_dear is is_dear
    assert (found.level is Level.WARNING) is is_dear
    assert (found.no_fix == syncs.IN_FEW_STEPS) is not is_dear


def test_many_reads_may_differ_by_a_tenth(tmp_path: Path) -> None:
    often = (
        read(each=20, device="cuda"),
        read(each=20, source="sync-debug", op="synchronizing operation", device="cuda"),
    )

    assert waits_said(tmp_path / "near", *often, waits=4 * 21) == []
    assert len(waits_said(tmp_path / "far", *often, waits=4 * 22)) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"left_out": 1},
        {
            "capture_unavailable": (
                Unavailable(capture="sync hooks", why="dispatch: RuntimeError: no such library"),
            )
        },
        {"syncs": Skipped(reason="no hooks")},
        {"trace": False},
    ],
    ids=[
        "records left out",
        "a hook that was not there",
        "no hooks",
        "a trace that cannot be read",
    ],
)
def test_what_was_not_whole_contradicts_no_trace(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert waits_said(tmp_path, *SEEN, waits=40, **fields) == []


def test_a_read_that_one_of_two_hooks_saw_is_said_beside_its_finding() -> None:
    recording = written_syncs.recording(SEEN[0], device="cuda")

    (event,), (disagreement,) = (
        syncs.collect(Evidence(recording)),
        disagreements.collect(Evidence(recording)),
    )

    assert (event.location, disagreement.location, disagreement.fact) == (
        READ_PLACE,
        READ_PLACE,
        "reads",
    )


# ----------------------------------------------------- in a library; and what would lie on the host


INNER = Frame(file=written.LIBRARY, line=3, function="softmax")
OUTER = Frame(file=written.LIBRARY, line=9, function="forward")


def in_a_library(expression: str = "int(index.max())", *chain: Frame, **fields: Any) -> SyncRecord:
    given = {
        "expression": "model(x)",
        "library_instruction": "CALL",
        "library_expression": expression,
        **fields,
    }
    return read(chain=chain or (INNER, OUTER), **given)


def test_a_read_in_a_library_names_its_line_its_cause_and_the_way() -> None:
    (event,) = events(in_a_library())
    (finding,) = syncs.diagnose((event,))

    assert event.library is not None
    assert (event.cause, event.location, event.library.line, event.library.text) == (
        "item",
        READ_PLACE,
        3,
        "int(index.max())",
    )
    assert [(line.line, line.function) for line in event.chain] == [(9, "forward")]
    assert finding.library == event.library
    assert finding.reads == Reads(
        operator="aten::_local_scalar_dense",
        events=5,
        in_steps=5,
        steps=5,
        chain=event.chain,
        cause="item",
    )


def test_two_lines_of_a_library_behind_one_line_are_two_findings() -> None:
    other = msgspec.structs.replace(INNER, line=4)

    found = findings(in_a_library(), in_a_library("bool(done)", other), read())

    assert len({finding.fingerprint for finding in found}) == 3
    assert {finding.location for finding in found} == {READ_PLACE}
    assert [finding.library and finding.library.line for finding in found] == [3, 4, None]


def test_a_line_of_a_library_that_moved_is_the_same_finding() -> None:
    moved = msgspec.structs.replace(INNER, line=40)

    assert (
        findings(in_a_library())[0].fingerprint
        == findings(in_a_library("int(index.max())", moved))[0].fingerprint
    )


@pytest.mark.parametrize(
    ("tensor", "names_a_device", "counts"),
    [
        ("host", False, 0),
        ("host", True, 0),
        ("unnamed", False, 1),
        ("unnamed", True, 0),
        ("", True, 1),
    ],
)
def test_what_would_lie_on_the_host_is_no_finding(
    tensor: str, names_a_device: bool, counts: int
) -> None:
    records = SyncRecords(records=(read(tensor=tensor),), names_a_device=names_a_device)

    found = events(syncs=records)

    assert len(found) == counts
    assert syncs.syncs_per_step(found, FUSED) == counts


@pytest.mark.parametrize(
    ("expression", "counts"),
    [
        ("torch.randint(len(data), (4,)).tolist()", 0),
        ("int(torch.randperm(9)[0])", 0),
        ("torch.rand(1).item() < 0.5", 0),
        ("torch.rand(1) < 0.5", 0),
        ("index.tolist()", 1),
        ("torch.max(torch.rand(3), x).item()", 1),
    ],
)
def test_what_is_drawn_only_to_be_read_is_a_number_of_the_host(
    expression: str, counts: int
) -> None:
    assert len(events(read(tensor="unnamed", expression=expression))) == counts
    assert len(events(read(tensor="", expression=expression))) == 1


def test_the_seed_of_a_data_loader_would_lie_on_the_host() -> None:
    sampler = Frame(file="/site/torch/utils/data/sampler.py", line=163, function="__iter__")

    assert not events(in_a_library("int(seed.item())", sampler, tensor="unnamed"))
    assert events(in_a_library("int(seed.item())", sampler, tensor=""))


def test_a_line_that_reads_both_counts_what_would_lie_on_the_gpu() -> None:
    (event,) = events(read(tensor="host", each=9), read(each=2))

    assert event.events == 10


# ---------------------------------------------------------------- KGP204: the program's own clock


def test_a_wait_for_the_programs_own_clock_is_a_kind_of_its_own() -> None:
    recording = on_a_gpu(waiting(IN_A_CLOCK), waiting(ELSEWHERE))
    evidence = Evidence(recording)

    clock, other = syncs.diagnose(syncs.collect(evidence))

    assert (clock.rule, clock.level, clock.fix) == ("KGP204", Level.NOTE, "")
    assert clock.message == (
        "the program's own clock waits for the GPU (cudaDeviceSynchronize), once per step"
    )
    assert isinstance(clock.cost, FindingCost)
    assert (clock.cost.value, clock.cost.unit) == (40.0, "us/step")
    assert other.rule == "KGP201"


def test_a_clock_counts_against_no_budget_and_is_a_wait_that_the_trace_has() -> None:
    found = syncs.collect(Evidence(on_a_gpu(waiting(IN_A_CLOCK))))

    assert syncs.syncs_per_step(found, FUSED) == 0
    assert syncs.reads_by_finding(found, FUSED) == {}
    assert syncs.syncs_of_steps(found, FUSED) == [1] * (CALLS - STEADY_FROM)


def test_a_clock_is_never_something_to_do() -> None:
    profile = analyse(on_a_gpu(waiting(IN_A_CLOCK)))

    assert [finding.rule for finding in profile.findings] == ["KGP204"]
    assert profile.actions == ()


def test_a_read_beside_a_clock_is_a_read() -> None:
    record = waiting(IN_A_CLOCK, source="dispatch", op="aten::_local_scalar_dense")

    assert [each.rule for each in syncs.collect(Evidence(on_a_gpu(record)))] == ["KGP201"]


@pytest.mark.parametrize(
    ("file", "rule"),
    [
        ("/lib/site-packages/triton/testing.py", "KGP204"),
        ("/lib/site-packages/torch/utils/benchmark/utils/timer.py", "KGP204"),
        ("/lib/site-packages/shop/sync.py", "KGP201"),
    ],
)
def test_a_library_that_times_is_a_clock_too(file: str, rule: str) -> None:
    record = waiting(ELSEWHERE, chain=(Frame(file=file, line=1, function="do_bench"),))

    assert [each.rule for each in syncs.collect(Evidence(on_a_gpu(record)))] == [rule]


@pytest.mark.parametrize(
    ("expression", "rules"), [("m(x)", []), ("torch.cuda.synchronize()", ["KGP202"])]
)
def test_where_torch_tries_kernels_no_compiled_line_waits(
    expression: str, rules: list[str]
) -> None:
    record = waiting(ELSEWHERE, compile_id="0/0", expression=expression)

    assert [each.rule for each in syncs.collect(Evidence(on_a_gpu(record)))] == rules


# ------------------------------------------------------- KGP503 that would be of our own making


def test_steps_in_which_torch_records_or_compiles_are_not_compared(tmp_path: Path) -> None:
    # given: two waits in each step; in all steps but the first torch times something of its own
    recorded = range(1, STEPS)

    assert waits_said(tmp_path / "all", waits=2 * STEPS) != []
    assert waits_said(tmp_path / "own", waits=2 * STEPS, timed_in=range(STEPS)) == []
    assert waits_said(tmp_path / "one", waits=2 * STEPS, timed_in=recorded) != []


@pytest.mark.parametrize(
    "record",
    [
        # the constructor of DDP reads in C++, and torch's warning does not come to Python
        read(device="cuda", expression="DDP(net)"),
        # ``item`` of a class of the program's, below which a library copies
        read(
            source="sync-debug",
            op="synchronizing operation",
            device="cuda",
            expression="metric.item()",
            chain=(Frame(file=written.LIBRARY, line=3, function="compute"),),
        ),
    ],
)
def test_what_one_of_two_sources_cannot_see_is_no_contradiction(record: SyncRecord) -> None:
    recording = written_syncs.recording(record, device="cuda")
    found = disagreements.collect(Evidence(recording))

    assert [one for one in found if one.fact == "reads"] == []


@pytest.mark.parametrize(("expression", "found"), [("print(x)", 0), ("x.item()", 1)])
def test_a_tensor_that_is_printed_behind_the_loop_is_one_read(expression: str, found: int) -> None:
    """For one text torch reads several times."""
    last = written_syncs.read(
        op="aten::masked_select", expression=expression, each=8, calls=range(7, 8)
    )
    recording = written_syncs.recording(last)
    script = ScriptRun(step="a call of f", steps=8, counted={})
    runs = tuple(msgspec.structs.replace(run, script=script) for run in recording.runs)

    assert len(syncs.collect(Evidence(msgspec.structs.replace(recording, runs=runs)))) == found


@pytest.mark.parametrize(
    ("expression", "each", "on_a_gpu"),
    [
        ("torch.quantile(a, q)", 1, 0),
        ("torch.matrix_exp(a)", 7, 1),
        ("torch.linalg.cholesky(a)", 1, 1),
    ],
)
def test_what_an_operator_checks_on_a_cpu_alone_is_no_read_of_a_gpu(
    expression: str, each: int, on_a_gpu: int
) -> None:
    found = events(read(expression=expression, instruction="CALL", each=each))

    assert [event.reads_per_step for event in found] == [on_a_gpu] * bool(on_a_gpu)


@pytest.mark.parametrize(
    ("cut", "called"),
    [
        ("torch._fused_layer(\n    src, self.attn(q), [self.", "_fused_layer"),
        ("make(src).run(a, b, ", ""),
        ("total + (", ""),
    ],
)
def test_a_call_whose_arguments_were_cut_off_has_its_name(cut: str, called: str) -> None:
    assert syncs.called_function(f"{cut:x<{EXPRESSION_KEPT}}") == called
    assert syncs.called_function(cut) == ""


def test_a_read_inside_a_call_and_one_around_it_are_both_told() -> None:
    inside = read(expression="torch.normal(x, y)", instruction="CALL")
    around = read(expression="int(torch.normal(x, y).sum())", instruction="CALL")

    (found,) = syncs.diagnose(events(inside, around))

    assert found.message == (
        "with the tensor on a GPU, "
        "a value read inside normal() and converting a tensor to a number would force a "
        "sync, at least 2 times per step"
    )


def test_two_causes_at_one_line_are_both_told_with_the_sum_of_their_reads() -> None:
    masked = read(op="aten::nonzero", expression="pred[mask]", instruction="BINARY_SUBSCR")
    number = read(expression="int(pred[mask].sum())", instruction="CALL")

    (event,) = events(masked, number)
    (found,) = syncs.diagnose((event,))

    assert (event.cause, event.other_causes) == ("mask-index", ("item",))
    assert found.message == (
        "with the tensor on a GPU, indexing with a boolean mask and converting a tensor to a "
        "number would force a sync, 2 times per step"
    )


def test_what_only_torchs_debug_mode_saw_may_be_a_copy_and_is_no_read() -> None:
    copied = waiting(
        ELSEWHERE,
        source="sync-debug",
        op=syncs.SYNC_DEBUG,
        expression="z.type_as(imgs)",
        waited_us={},
    )
    (found,) = syncs.diagnose(syncs.collect(Evidence(on_a_gpu(copied))))

    assert found.message == "type_as() forces a GPU sync, once per step"
    assert (found.fix, found.no_fix) == ("", syncs.PINS)


def run_by(folder: str) -> dict[str, Any]:
    """The fields of what reads in a file of one of torch's folders."""
    lies = f"/venv/lib/python3.11/site-packages/torch/{folder}/x.py"
    caller = Frame(file=lies, line=126, function="call", first_line=110)
    return {
        "chain": (caller,),
        "library_instruction": "CALL",
        "library_expression": "f(args)",
    }


@pytest.mark.parametrize("folder", ["_functorch/_aot_autograd", "_inductor", "_dynamo/backends"])
def test_what_waits_inside_a_compiled_backward_has_no_name(folder: str) -> None:
    """torch's debug mode tells no read from a copy, and the line is that of backward()."""
    in_graph = waiting(ELSEWHERE, **run_by(folder), source="sync-debug", op=syncs.SYNC_DEBUG)

    (found,) = syncs.diagnose(syncs.collect(Evidence(on_a_gpu(in_graph))))

    assert found.rule == "KGP202"
    said = "an operation that torch does not name forces a GPU sync inside compiled code"
    assert found.message.startswith(said)
    assert found.library is None
    assert found.no_fix.startswith("torch does not say what waits: it may be a read, or the copy")


@pytest.mark.parametrize("expression", ["", "self.unet(x, t)", "def forward(self, x):"])
def test_what_only_the_debug_mode_saw_in_compiled_code_is_called_neither_read_nor_copy(
    expression: str,
) -> None:
    """A table on the CPU that is indexed and copied in each call: nothing is read."""
    debug = read(
        source="sync-debug",
        op=syncs.SYNC_DEBUG,
        device="cuda",
        expression=expression,
        compile_id="0/0",
    )
    (found,) = syncs.diagnose(syncs.collect(Evidence(on_a_gpu(debug))))

    assert found.message.startswith("an operation that torch does not name forces a GPU sync")
    assert found.no_fix == syncs.READS_OR_COPIES


def test_a_read_of_a_compiled_backward_on_a_cpu_is_none_that_a_gpu_is_known_to_do() -> None:
    assert events(read(**run_by("_functorch/_aot_autograd"))) == ()


def test_what_reads_below_vmap_is_in_no_graph() -> None:
    (found,) = syncs.diagnose(events(read(**run_by("_functorch"))))

    assert found.rule == "KGP201"
    assert "compiled" not in found.message
