"""Each practice passes, fails and is not observed on programs that an H200 ran, or on what two of
them had together."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kgprof.analysis import analyse
from kgprof.analysis.checklist import (
    BufferCopies,
    CopyCost,
    checklist,
    copies_together,
    judged,
)
from kgprof.model import (
    ChecklistItem,
    Checkpoint,
    Level,
    Location,
    MemoryPass,
    Overlap,
    PassName,
    PracticeStatus,
    Recording,
    RunKey,
    RunRecord,
    ScriptRun,
    Skipped,
    Spread,
    TensorRecords,
    TimingPass,
    TradeOff,
)
from kgprof.reading import recordings
from kgprof.reading.evidence import Evidence
from tests.archives import unpacked
from tests.collectors import written, written_tensors

RECORDINGS = Path(__file__).resolve().parents[2] / "fixtures" / "recordings"
H200, RUNTIME, COMPILER = "cuda_graphs_h200", "corpus_runtime_h200", "corpus_torch_2.11"
LINKPRED = "linkpred_h200"
GPU_TIME = "gpu_time_h200"

Load = Callable[[str, str], Recording]


@pytest.fixture(scope="module")
def load() -> Load:
    """One program's run out of a recording: of what stands in which file, by name."""
    kept: dict[str, list[Recording]] = {
        H200: [recordings.load(one) for one in (RECORDINGS / H200).iterdir() if one.is_dir()]
    }
    for name in (RUNTIME, COMPILER, LINKPRED, GPU_TIME):
        kept[name] = [recordings.load(unpacked(f"{name}.tgz"))]
    return lambda where, program: next(
        msgspec.structs.replace(recording, runs=(run,))
        for recording in kept[where]
        for run in recording.runs
        if program in (run.key.strategy, run.key.slug)
    )


def items(recording: Recording) -> dict[str, ChecklistItem]:
    return {item.id: item for item in analyse(recording).checklist}


def with_run(recording: Recording, **fields: object) -> Recording:
    (run,) = recording.runs
    return msgspec.structs.replace(recording, runs=(msgspec.structs.replace(run, **fields),))


CASES = {
    "buffers-allocated-once": (
        (RUNTIME, "buffer_copied"),
        (RUNTIME, "buffer_rebound"),
        (H200, "normalised"),
    ),
    "captured-by-reference": (
        (RUNTIME, "replay_of_static_input"),
        (RUNTIME, "replay_copies_input"),
        (RUNTIME, "buffer_copied"),
    ),
    "no-writes-inside": (
        (RUNTIME, "locals_written"),
        (RUNTIME, "argument_written"),
        (H200, "normalised"),
    ),
    "copied-outside": (
        (RUNTIME, "buffer_copied"),
        (RUNTIME, "buffer_mutated_inside"),
        (RUNTIME, "locals_written"),
    ),
    "steps-marked": (
        (RUNTIME, "replay_output_copied"),
        (RUNTIME, "replay_output_held"),
        (RUNTIME, "buffer_copied"),
    ),
    "static-shapes": (
        (COMPILER, "size_dynamic"),
        (COMPILER, "size_changes_every_call"),
        (RUNTIME, "adam_step"),
    ),
    "no-reads-inside": (
        (RUNTIME, "locals_written"),
        (RUNTIME, "cond_predicate"),
        (H200, "normalised"),
    ),
    "cuda-graphs-tried": (
        (H200, "normalised"),
        (LINKPRED, "batched.default"),
        (RUNTIME, "locals_written"),
    ),
    "whole-graphs": ((H200, "normalised"), (COMPILER, "two_breaks"), (RUNTIME, "adam_step")),
    "no-dynamic-shapes": (
        (COMPILER, "float_argument"),
        (COMPILER, "size_changes_late"),
        (RUNTIME, "adam_step"),
    ),
    "no-branch-on-values": (
        (COMPILER, "two_breaks"),
        (COMPILER, "branch_on_tensor"),
        (RUNTIME, "adam_step"),
    ),
    "no-prints": (
        (COMPILER, "branch_on_tensor"),
        (COMPILER, "print_between_ops"),
        (RUNTIME, "adam_step"),
    ),
    "mixed-precision": ((GPU_TIME, "bfloat16"), (GPU_TIME, "exact_float32"), (GPU_TIME, "adamw")),
    "cond-no-aliasing": (
        (RUNTIME, "cond_returns_clones"),
        (RUNTIME, "cond_returns_operand"),
        (RUNTIME, "locals_written"),
    ),
    "few-reads": ((RUNTIME, "locals_written"), (RUNTIME, "allclose"), (H200, "normalised")),
    "expensive-parts-compiled": (
        (H200, "normalised"),
        (RUNTIME, "adam_step"),
        (COMPILER, "two_breaks"),
    ),
}


@pytest.mark.parametrize("practice", CASES)
def test_it_passes_it_fails_and_it_is_not_observed(practice: str, load: Load) -> None:
    found = [items(load(*program))[practice] for program in CASES[practice]]

    assert [item.status for item in found] == [
        PracticeStatus.PASS,
        PracticeStatus.FAIL,
        PracticeStatus.NOT_OBSERVED,
    ]
    assert all(item.evidence for item in found)


@pytest.mark.parametrize(
    ("practice", "program", "untrue"),
    [
        ("static-shapes", "size_dynamic", "same shapes"),
        ("no-dynamic-shapes", "int_argument", "every size"),
        ("whole-graphs", "optimizer_step", "fullgraph"),
    ],
)
def test_a_practice_that_passes_claims_no_more_than_was_looked_at(
    practice: str, program: str, untrue: str, load: Load
) -> None:
    """Sizes that change without a recompile, an integer that becomes a size, and a break that torch
    makes on purpose."""
    item = items(load(COMPILER, program))[practice]

    assert item.status == PracticeStatus.PASS
    assert untrue not in item.title + item.evidence


def test_the_backward_of_a_compiled_graph_is_no_eager_code(load: Load) -> None:
    item = items(load(RUNTIME, "sgd_step"))["expensive-parts-compiled"]

    # of 115 us 13 are the forward and 37 the backward, the others the loss and the optimizer
    assert item.evidence == "launched outside of compiled code: 57% in sgd_step.as-is"


def test_a_result_that_is_kept_is_seen_beside_two_that_share_memory(load: Load) -> None:
    recording = load(RUNTIME, "replay_output_held")
    (run,) = recording.runs
    assert isinstance(run.memory, MemoryPass)
    assert isinstance(run.memory.tensors, TensorRecords)
    view = Overlap(
        left="output 0",
        right="output 1",
        same_object=False,
        left_memory=written_tensors.lies(),
        right_memory=written_tensors.lies(),
        runs=8,
        first_call=0,
    )
    graphs = [
        msgspec.structs.replace(each, overlaps=(view,), returned_outputs=None)
        for each in run.memory.tensors.graphs
    ]
    tensors = msgspec.structs.replace(run.memory.tensors, graphs=tuple(graphs))

    memory = msgspec.structs.replace(run.memory, tensors=tensors)
    item = items(with_run(recording, memory=memory))["steps-marked"]

    assert item.status == PracticeStatus.FAIL
    assert "is kept beyond the next replay" in item.evidence


def test_addresses_are_told_of_the_runs_that_were_watched() -> None:
    """One call of a compiled function in a step, of more than eight, may move an input unseen."""
    once = written_tensors.graph(written_tensors.given())

    item = items(written_tensors.recording(once))["buffers-allocated-once"]

    assert item.status == PracticeStatus.PASS
    assert "in the runs watched" in item.evidence


@pytest.mark.parametrize("practice", ["cond-predicate", "cond-branches-match"])
def test_what_torch_refuses_otherwise_passes_where_it_compiled(practice: str, load: Load) -> None:
    programs = ("cond_predicate", "cond_returns_operand", "locals_written")

    statuses = [items(load(RUNTIME, program))[practice].status for program in programs]

    assert statuses == [
        PracticeStatus.PASS,
        PracticeStatus.NOT_OBSERVED,
        PracticeStatus.NOT_OBSERVED,
    ]


def test_a_cond_that_compiled_proves_only_what_torch_refuses(load: Load) -> None:
    """torch 2.13 takes a float, a bool and a tensor of one element, branches of other shapes, and
    writes under no_grad."""
    said = [
        f"{item.title} {item.evidence}"
        for item in items(load(RUNTIME, "cond_predicate")).values()
        if item.id.startswith("cond") and item.status == PracticeStatus.PASS
    ]

    assert said
    assert not [text for text in said if re.search("boolean|shape|any other|writes", text)]


def test_a_profile_of_the_device_passes_and_a_cpu_has_none(load: Load) -> None:
    found = [
        items(load(*where))["device-profiled"].status
        for where in ((H200, "cond"), (COMPILER, "two_breaks"))
    ]

    assert found == [PracticeStatus.PASS, PracticeStatus.NOT_OBSERVED]


def test_a_cond_where_cuda_graphs_were_asked_for(load: Load) -> None:
    """The run under CUDA graphs had no MEMORY pass, the one with a MEMORY pass no CUDA graphs."""
    # given
    (watched,) = load(RUNTIME, "cond_predicate").runs
    graphed = load(H200, "cond")

    # when
    failed = items(with_run(graphed, memory=watched.memory))["cond-costs-cuda-graphs"]
    unseen = [
        items(one)["cond-costs-cuda-graphs"] for one in (graphed, load(RUNTIME, "cond_predicate"))
    ]

    # then
    assert failed.status == PracticeStatus.FAIL
    assert "KGP30" in failed.evidence
    assert [item.status for item in unseen] == [
        PracticeStatus.NOT_OBSERVED,
        PracticeStatus.NOT_OBSERVED,
    ]
    assert unseen[1].evidence == "no run with torch.cond requested CUDA graphs"


LOOP = "no-recompile-in-loop"


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("two_breaks", PracticeStatus.PASS),
        ("size_dynamic", PracticeStatus.PASS),
        ("size_changes_every_call", PracticeStatus.FAIL),
        ("module_counts_calls", PracticeStatus.FAIL),
    ],
)
def test_a_recompile_in_the_loop_is_read_from_what_a_program_left(
    program: str, status: str, load: Load
) -> None:
    item = items(load(COMPILER, program))[LOOP]

    assert item.status is status, item.evidence
    assert "or up to torch's limit" in item.title  # which a warm-up may reach as well


def again(compile_id: str, call: int, reason: str) -> list[object]:
    return [
        *written.compiled(compile_id, written.STEP, call=call),
        written.rejected(compile_id, reason, call=call),
    ]


def test_what_is_compiled_again_once_for_each_of_two_reasons_does_not_go_on() -> None:
    """The first smaller batch, and an evaluation."""
    lines = [
        *again("0/1", 5, "0/0: tensor 'x' dtype mismatch. expected Float, actual Double"),
        *again("0/2", 9, "0/1: GLOBAL_STATE changed: grad_mode"),
    ]

    item = items(written.recording(*written.compiled_once(), *lines))[LOOP]

    assert (item.status, item.evidence) == (
        PracticeStatus.NOT_OBSERVED,
        "2 compilations after warm-up belong to a graph break, or came once",
    )


def test_where_no_step_came_after_warm_up_no_loop_was_seen() -> None:
    item = items(written.recording(*written.compiled_once(), calls=3))[LOOP]

    assert (item.status, item.evidence) == (
        PracticeStatus.NOT_OBSERVED,
        "kgprof counted 3 steps, and --warmup is 3",
    )


def test_a_compiled_run_beside_an_eager_one_is_measured_against_it(load: Load) -> None:
    recording = load(LINKPRED, "batched.default")
    (run,) = recording.runs
    eager = msgspec.structs.replace(run, key=RunKey(strategy="batched", mode="eager"))
    beside = msgspec.structs.replace(recording, runs=(eager, run))

    found = [items(one)["measured-against-eager"].status for one in (beside, recording)]

    assert found == [PracticeStatus.PASS, PracticeStatus.NOT_OBSERVED]


def test_a_failing_item_names_the_findings_behind_it(load: Load) -> None:
    profile = analyse(load(COMPILER, "two_breaks"))
    breaks = {found.fingerprint for found in profile.findings if found.rule in ("KGP101", "KGP102")}

    (item,) = (item for item in profile.checklist if item.id == "whole-graphs")

    assert breaks
    assert set(item.findings) == breaks
    assert "1 finding more" in item.evidence


@pytest.mark.parametrize(
    ("compiled_keys", "into_compiled", "fix"),
    [
        (
            True,
            None,
            "saves keys with _orig_mod., which only a compiled module has",
        ),
        (
            True,
            False,
            "load {key.replace('_orig_mod.', ''): value for key, value in state.items()}",
        ),
        (False, True, "load them before torch.compile"),
        (False, None, ""),
        (False, False, ""),
        (True, True, ""),
    ],
)
def test_a_checkpoint_with_the_keys_of_a_compiled_module_fails_with_the_code_that_has_none(
    load: Load, compiled_keys: bool, into_compiled: bool | None, fix: str
) -> None:
    recording = load(COMPILER, "two_breaks")
    line = Checkpoint(
        location=Location(file="train.py", line=7),
        compiled_keys=compiled_keys,
        into_compiled=into_compiled,
    )

    def item(*lines: Checkpoint) -> ChecklistItem:
        script = ScriptRun(step="", steps=0, counted={}, checkpoints=lines)
        return items(with_run(recording, script=script))["plain-checkpoints"]

    found = item(line)

    assert item().status is PracticeStatus.NOT_OBSERVED
    assert found.status is (PracticeStatus.FAIL if fix else PracticeStatus.PASS)
    assert found.evidence.startswith("train.py:7 " if fix else "1 line saved or loaded tensors")
    assert fix in found.evidence


def test_every_item_is_there_once_and_in_one_order(load: Load) -> None:
    names = [
        tuple(items(load(*where)))
        for where in ((H200, "cond"), (RUNTIME, "adam_step"), (COMPILER, "two_breaks"))
    ]

    assert len(set(names)) == 1
    assert set(CASES) < set(names[0])
    assert len(names[0]) == len(set(names[0])) == 25


def test_findings_of_the_eager_run_speak_against_nothing(load: Load) -> None:
    recording = load(RUNTIME, "allclose")
    (run,) = recording.runs
    eager = with_run(recording, key=RunKey(strategy=run.key.strategy, mode="eager"))

    assert items(recording)["few-reads"].status == PracticeStatus.FAIL
    assert items(eager)["few-reads"].status == PracticeStatus.NOT_OBSERVED


def test_a_note_speaks_against_nothing(load: Load) -> None:
    profile = analyse(load(RUNTIME, "rows_interleaved"))

    assert {found.level for found in profile.findings if found.rule == "KGP404"} == {Level.NOTE}
    assert {item.id: item.status for item in profile.checklist}[
        "no-writes-inside"
    ] == PracticeStatus.PASS


def test_an_input_that_moves_is_not_counted_among_those_that_kept_their_addresses(
    load: Load,
) -> None:
    """An argument that is another tensor in each call does no harm, and moves."""
    names = ("batches_alternate", "buffer_copied")

    moves, stays = (items(load(RUNTIME, name))["buffers-allocated-once"] for name in names)

    assert (moves.status, stays.status) == (PracticeStatus.NOT_OBSERVED, PracticeStatus.PASS)
    assert moves.evidence.endswith(
        "moved after warm-up: new batches, tensors that torch makes of numbers, or buffers that "
        "are replaced"
    )
    assert stays.evidence.startswith("all ")


def test_a_gate_has_budgets_instead(load: Load) -> None:
    recording = load(COMPILER, "two_breaks")
    options = msgspec.structs.replace(recording.header.options, passes=(PassName.COMPILE,))
    gated = msgspec.structs.replace(
        recording, header=msgspec.structs.replace(recording.header, options=options)
    )

    assert checklist(Evidence(gated), (), (), (), ()) == ()


# ---------------------------------------------------------------- what no recording has


def trade_off(verdict: str, mode: str = "default") -> TradeOff:
    """Of a guarded and an always working strategy; only its verdict matters."""
    spread = Spread(
        median=1.0,
        p10=0.9,
        p90=1.1,
        minimum=0.9,
        maximum=1.1,
        samples=3,
        unit="us",
        measured_in=PassName.TIMING,
    )
    return TradeOff(
        guarded=RunKey(strategy="guarded", mode=mode),
        always=RunKey(strategy="always", mode=mode),
        location=None,
        syncs_per_step=1.0,
        sync_us=30.0,
        saved_us=10.0,
        net=spread,
        net_always=spread,
        verdict=verdict,
        text=f"the verdict is: {verdict}",
    )


@pytest.mark.parametrize(
    ("weighed", "status", "evidence"),
    [
        (
            (trade_off("remove it"), trade_off("keep the read")),
            PracticeStatus.FAIL,
            "guarded.default takes longer than always.default",
        ),
        (
            (trade_off("keep the read"),),
            PracticeStatus.PASS,
            "guarded.default takes less than always.default",
        ),
        ((trade_off("inconclusive"),), PracticeStatus.NOT_OBSERVED, "the verdict is: inconclusive"),
        (
            (trade_off("remove it", mode="eager"),),
            PracticeStatus.NOT_OBSERVED,
            "the workload declares no alternatives to compare",
        ),
        ((), PracticeStatus.NOT_OBSERVED, "the workload declares no alternatives to compare"),
    ],
)
def test_a_read_is_judged_by_its_trade_off(
    weighed: tuple[TradeOff, ...], status: str, evidence: str, load: Load
) -> None:
    found = {
        item.id: item for item in checklist(Evidence(load(H200, "normalised")), (), (), weighed, ())
    }["reads-weighed"]

    assert (found.status, found.evidence) == (status, evidence)


def copies(kernels: float, buffers: int, dtypes: int = 1) -> BufferCopies:
    cost = CopyCost(kernels=kernels, share=0.05)
    return BufferCopies(
        run=RunKey(strategy="step", mode="default"),
        copied=tuple(f"b{number}" for number in range(buffers)),
        dtypes=dtypes,
        mutated=(),
        rebound=(),
        unwritten=(),
        cost=cost,
    )


@pytest.mark.parametrize(
    ("program", "buffers", "status"),
    [
        ((H200, "normalised"), (copies(4.0, 4),), PracticeStatus.FAIL),
        ((H200, "normalised"), (copies(8.0, 10, dtypes=3),), PracticeStatus.FAIL),
        ((H200, "normalised"), (copies(3.0, 10, dtypes=3),), PracticeStatus.PASS),
        ((H200, "normalised"), (copies(2.0, 10),), PracticeStatus.PASS),
        ((H200, "normalised"), (copies(2.0, 2),), PracticeStatus.PASS),  # too few to be worth it
        ((COMPILER, "two_breaks"), (copies(4.0, 4),), PracticeStatus.NOT_OBSERVED),
        ((H200, "normalised"), (), PracticeStatus.NOT_OBSERVED),
    ],
)
def test_copies_one_by_one_fail_on_a_gpu_alone(
    program: tuple[str, str], buffers: tuple[BufferCopies, ...], status: str, load: Load
) -> None:
    on_cuda = Evidence(load(*program)).device == "cuda"

    answer = copies_together(buffers, on_cuda=on_cuda)

    assert judged("copied-together", "", answer).status == status


def test_a_run_that_left_nothing_passes_nothing(load: Load) -> None:
    gone = Skipped(reason="the run was killed during COMPILE: SIGKILL")
    recording = load(H200, "normalised")
    fields: dict[str, Skipped] = {
        name: gone
        for name in RunRecord.__struct_fields__
        if isinstance(getattr(recording.runs[0], name), msgspec.Struct)
    }
    for kept in ("key", "exit", "probe_exit", "script", "unit", "evaluation"):
        fields.pop(kept, None)

    assert {item.status for item in items(with_run(recording, **fields)).values()} == {
        PracticeStatus.NOT_OBSERVED
    }


def test_sizes_of_calls_that_ran_eagerly_were_seen_by_nobody() -> None:
    stance, without = (
        items(written.recording(*lines)) for lines in (written.a_stance(), written.compiled_once())
    )

    assert without["static-shapes"].status == PracticeStatus.PASS
    assert stance["static-shapes"].status == PracticeStatus.NOT_OBSERVED
    assert stance["static-shapes"].evidence.startswith("15 calls of compiled functions ran eagerly")


def test_where_every_compilation_failed_no_compiled_function_is_praised() -> None:
    failed = written.compiled(
        "0/0", written.STEP, fail_type="InternalTorchDynamoError", fail_reason="no __dict__"
    )
    practices = (
        "static-shapes",
        "whole-graphs",
        "no-dynamic-shapes",
        "no-branch-on-values",
        "no-prints",
    )

    statuses = {
        practice: items(written.recording(*failed))[practice].status for practice in practices
    }

    assert PracticeStatus.PASS not in statuses.values(), statuses


def test_the_logger_of_a_ddp_module_prints_nothing() -> None:
    statuses = []
    for name in ("logging, qualname: Logger.info", "torch, qualname: Logger.set_runtime_stats"):
        reason = written.builtin("x").replace("context: builtin x", f"context: module: {name}, ")
        line = written.broken("0/0", written.CALLER, (written.FILE, 17, "step"), reason=reason)
        recording = written.recording(*written.compiled("0/0", written.STEP), line)
        statuses.append(items(recording)["no-prints"].status)

    assert statuses == [PracticeStatus.FAIL, PracticeStatus.PASS]


@pytest.mark.parametrize(
    ("reason", "practice"),
    [
        (written.builtin("bool", gb_id="0170"), "no-branch-on-values"),
        (written.builtin("nonzero", gb_id="0036"), "no-branch-on-values"),
        (written.builtin("print"), "no-prints"),
    ],
)
def test_a_function_that_torch_gave_up_for_a_value_or_a_message_has_one(
    reason: str, practice: str
) -> None:
    """The line says no more than the loop that it stands in."""
    found = items(written.recording(*written.a_skipped_frame(reason)))

    assert found[practice].status == PracticeStatus.FAIL
    assert found[practice].evidence.startswith("KGP102: ")


def of_a_script(recording: Recording) -> dict[str, ChecklistItem]:
    steps = ScriptRun(step="a call of a compiled function", steps=20, counted={})
    return items(with_run(recording, script=steps))


def test_what_a_script_writes_to_is_named_although_no_finding_says_it() -> None:
    item = of_a_script(written_tensors.a_written_argument())["no-writes-inside"]

    assert (item.status, item.findings) == (PracticeStatus.FAIL, ())
    assert item.evidence.startswith("Model.step writes to x (")


def test_what_a_library_s_function_writes_to_is_meant() -> None:
    """As a compiled optimizer's step does to its state."""
    written_to = written_tensors.given(written=written_tensors.ALL)
    adam = written_tensors.graph(written_to, file="/lib/site-packages/torch/optim/adam.py")

    item = of_a_script(written_tensors.recording(adam))["no-writes-inside"]

    assert item.status == PracticeStatus.PASS
    assert item.evidence == "no such write was seen in 1 compiled graph of fused.default"


def test_a_graph_that_writes_to_nothing_is_said_to() -> None:
    still = written_tensors.recording(written_tensors.graph(written_tensors.given()))

    item = of_a_script(still)["no-writes-inside"]

    assert (item.status, "no input" in item.evidence) == ("pass", False)


@pytest.mark.parametrize(
    ("given", "status", "evidence"),
    [
        ({"made_before": {"0/0 output 0": 17}}, PracticeStatus.FAIL, "x replaced by a new tensor"),
        ({}, PracticeStatus.NOT_OBSERVED, "1 input of 1 compiled graph of "),
        (
            {"made_before": {"1/0 output 0": 17}},
            PracticeStatus.NOT_OBSERVED,
            "1 input of 1 compiled graph of ",
        ),
    ],
    ids=[
        "what a graph gave back",
        "a batch, or a buffer that eager code replaces",
        "of another graph",
    ],
)
def test_what_moves_from_call_to_call_of_a_script_passes_nothing(
    given: dict[str, dict[str, int]], status: PracticeStatus, evidence: str
) -> None:
    moves = written_tensors.given(moved=written_tensors.MOVED, **given)
    recorded = written_tensors.recording(written_tensors.graph(moves))

    item = of_a_script(recorded)["buffers-allocated-once"]

    assert item.status == status
    assert item.evidence.startswith(evidence)


def test_an_input_of_warm_up_alone_says_nothing_of_what_comes_after_it() -> None:
    """As where torch's limit was reached in the first call, and no graph ran in a later one."""
    given = written_tensors.given(watched=1)
    recorded = written_tensors.recording(written_tensors.graph(given, runs=1))

    item = items(recorded)["buffers-allocated-once"]

    assert item.status == PracticeStatus.NOT_OBSERVED
    assert item.evidence == (
        "no input of a compiled graph was watched in more calls than warm-up takes"
    )


def test_an_input_that_moves_in_a_few_late_calls_does_not_pass() -> None:
    whole = written_tensors.graph(written_tensors.given())
    moves = written_tensors.given(watched=2, moved=written_tensors.MOVED[-2:])
    late = written_tensors.graph(moves, compile_id="1/0", runs=2)

    item = items(written_tensors.recording(whole, late))["buffers-allocated-once"]

    assert item.status == PracticeStatus.NOT_OBSERVED
    assert item.evidence.startswith("1 input of 2 compiled graphs")


def test_where_torch_compiled_while_timing_ran_nobody_knows_why(load: Load) -> None:
    recording = load(COMPILER, "size_dynamic")
    timing = TimingPass(clock="perf_counter", step_us=(), evaluation_s=(), compiled=True)

    again = items(with_run(recording, timing=timing))

    for practice in ("static-shapes", "no-recompile-in-loop"):
        assert items(recording)[practice].status == PracticeStatus.PASS
        assert again[practice].status == PracticeStatus.NOT_OBSERVED
        assert again[practice].evidence.startswith(
            "torch compiled while TIMING ran in size_dynamic"
        )


def test_a_recompile_for_a_size_that_came_once_is_no_proof_of_equal_sizes() -> None:
    size = "0/0: tensor 'x' size mismatch at index 0. expected 16, actual 8"
    twice = written.recording(*written.compiled_once(), *again("0/1", 1, size))

    item = items(twice)["static-shapes"]

    assert item.status == PracticeStatus.NOT_OBSERVED
    assert item.evidence == "sizes caused one in a few calls only"


def test_titles_promise_no_more_than_was_judged(load: Load) -> None:
    """A view of an argument is no write, a message may break no graph, and an index is no
    branch."""
    titles = {id_: item.title for id_, item in items(load(RUNTIME, "locals_written")).items()}

    assert (
        titles["no-writes-inside"]
        == "No compiled function of the program writes to an input that moves"
    )
    assert titles["no-prints"] == "No graph break at a line that prints or logs"
    assert titles["no-branch-on-values"] == "No graph break because of a tensor's value"


def test_on_a_cpu_not_every_wait_of_a_gpu_is_seen(load: Load) -> None:
    """torch.bincount reads on a GPU alone, and a copy waits there alone."""
    recording = load(RUNTIME, "locals_written")
    plan = msgspec.structs.replace(recording.header.plan, device="cpu")
    header = msgspec.structs.replace(recording.header, plan=plan)

    found = items(msgspec.structs.replace(recording, header=header))

    assert found["few-reads"].status == PracticeStatus.NOT_OBSERVED
    assert found["no-reads-inside"].status == PracticeStatus.NOT_OBSERVED


def test_a_recompile_for_another_reason_does_not_speak_of_sizes() -> None:
    size = "0/0: tensor 'x' size mismatch at index 0. expected 16, actual 8"
    grads = "0/0: GLOBAL_STATE changed: grad_mode "
    lines = [*again("0/1", 1, size), *again("0/2", 5, grads), *again("0/3", 6, grads)]
    found = items(written.recording(*written.compiled_once(), *lines))

    item = found["static-shapes"]
    assert found[LOOP].status == PracticeStatus.FAIL
    assert (item.status, item.findings) == (PracticeStatus.NOT_OBSERVED, ())
