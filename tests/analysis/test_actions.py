"""What is to be done next: for which run, in which order, and with which bound."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kgprof import limits
from kgprof.analysis import analyse
from kgprof.document import practices
from kgprof.document.finding_list import grouped
from kgprof.model import (
    Action,
    CompileRecords,
    LimitKind,
    LimitShare,
    Outcome,
    PracticeStatus,
    Profile,
    Recording,
    RunKey,
    RunLimits,
    RunRecord,
    Saving,
    ScriptRun,
    Skipped,
    SourceFile,
    Sources,
)
from kgprof.model.memory_records import Frame
from kgprof.reading import recordings
from kgprof.render.markdown import Markdown
from tests.analysis.recordings import recording, run
from tests.archives import unpacked
from tests.collectors import written, written_gpu_time, written_syncs, written_tensors
from tests.collectors.written_device import launched_in, steps, traced
from tests.collectors.written_syncs import STEADY_FROM

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "recordings"


def actions(recording: Recording) -> list[tuple[str, float | None]]:
    """Rule and bound, in microseconds a step."""
    return [(action.rule, bound_us(action)) for action in analyse(recording).actions]


def bound_us(action: Action) -> float | None:
    return round(action.saves.us_per_step, 3) if isinstance(action.saves, Saving) else None


def test_a_fix_has_its_code_its_bound_and_its_share_of_the_step() -> None:
    (action,) = analyse(written_gpu_time.exact_float32()).actions

    assert (action.rule, action.fix) == ("KGP604", 'torch.set_float32_matmul_precision("high")')
    assert bound_us(action) == 400.0
    assert action.share == pytest.approx(0.8)


def test_what_could_save_most_comes_first() -> None:
    assert actions(optimizer_and_loader()) == [("KGP607", 200.0), ("KGP609", 100.0)]


@pytest.mark.parametrize(
    ("undecided", "order"),
    [("", ["KGP609", "KGP607"]), ("steps vary", ["KGP607", "KGP609"])],
)
def test_what_relieves_the_limit_comes_before_what_could_save_more(
    undecided: str, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: 100 us of an optimizer, whose small kernels limit the step, and 200 us of a loader
    share = LimitShare(limit=LimitKind.SMALL_KERNELS, us=1000.0, share=1.0)
    limited = RunLimits(step_us=1000.0, busy_us=1000.0, shares=(share,), undecided=undecided)
    monkeypatch.setattr(limits, "limits", lambda *of_run: limited)

    assert [rule for rule, _ in actions(optimizer_and_loader())] == order


def optimizer_and_loader() -> Recording:
    """100 us of an optimizer, and 200 us of a loader in which the GPU is idle, in steps of 1,000
    us."""
    optimizer = launched_in(
        ("user_annotation", "Optimizer.step#AdamW.step"), ("kernel", "k", 100.0)
    )
    span = ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    loader = (event for event in launched_in(span, span_us=200.0) if event["name"] == span[1])
    return traced(
        [*optimizer, *({**event, "ts": event["ts"] + 500} for event in loader)], step_us=None
    )


def test_launching_is_worth_the_idle_time_and_idleness_alone_is_no_action() -> None:
    assert actions(steps(step_us=400.0, kernels=40, kernel_us=2.0, in_operators=0.9)) == [
        ("KGP602", 320.0)
    ]
    assert actions(steps(step_us=400.0, kernels=4, kernel_us=5.0)) == [("KGP601", None)]


@pytest.mark.parametrize("span_us", [900.0, 300.0])
def test_idleness_comes_after_an_optimizer_that_is_most_of_its_reason(span_us: float) -> None:
    # given: a step of 1,000 us with 240 small kernels of an optimizer that is not fused, in a part
    # of it, in which Python runs between them
    kernels = (("kernel", "k", 0.5),) * 240
    events = launched_in(("user_annotation", "Optimizer.step#Adam.step"), *kernels, span_us=span_us)

    first, second = actions(traced(events, step_us=1000.0))

    assert first[0] == "KGP609"
    assert second == ("KGP601", None)


def test_without_a_bound_the_reports_order_stands_and_three_are_enough() -> None:
    recording = written.recording(*written.a_break())

    found = actions(recording)

    assert found[0] == ("KGP101", None)
    assert len(found) <= 3


def test_one_fix_for_several_places_is_one_action() -> None:
    file = "/v/lib/python3.11/site-packages/torch/distributions/distribution.py"
    checks = Frame(file=file, line=323, function="_validate_sample")
    lines = (
        written_syncs.READ_LINE,
        msgspec.structs.replace(written_syncs.READ_LINE, line=4, function="report"),
    )
    recording = written_syncs.recording(
        *(written_syncs.read(line, chain=(checks,)) for line in lines)
    )

    profile = analyse(recording)

    assert [one.fix[:26] for one in profile.findings if one.rule == "KGP201"] == [
        "torch.distributions.Distri"
    ] * 2
    assert [one.rule for one in profile.actions].count("KGP201") == 1


def test_what_is_set_for_all_graph_breaks_of_a_kind_is_one_action() -> None:
    step, report = (written.FILE, 17, "step"), (written.FILE, 5, "report")
    printed = "builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] False"
    reason = written.builtin().replace("context: builtin print", f"context: {printed}")
    first = [*written.compiled("0/0", written.STEP), written.broken("0/0", step, reason=reason)]
    other = [*written.compiled("1/0", written.REPORT), written.broken("1/0", report, reason=reason)]

    profile = analyse(written.recording(*first, *other))

    assert [one.rule for one in profile.findings].count("KGP101") == 2
    (action,) = (one for one in profile.actions if one.rule == "KGP101")
    assert "reorderable_logging_functions" in action.fix
    assert list(action.lines.values()) == [[17, 5]]
    assert action.text.endswith("on line 17, and on 1 more line")


def at(line: int, function: str = "train") -> Frame:
    return msgspec.structs.replace(written_syncs.READ_LINE, line=line, function=function)


def test_what_one_function_reads_on_several_lines_is_one_action_and_stays_a_finding_for_each() -> (
    None
):
    # given: three numbers read for a log, a branch in the same function, and a number read in
    # another one
    log = [written_syncs.read(at(line), each=each) for line, each in ((22, 1), (21, 2), (25, 1))]
    branch = written_syncs.read(at(23), expression="loss > 1", instruction="POP_JUMP_IF_FALSE")
    other = written_syncs.read(at(4, "report"))

    profile = analyse(written_syncs.recording(*log, branch, other))

    assert [one.rule for one in profile.findings].count("KGP201") == 5
    assert [list(action.lines.values()) for action in profile.actions] == [
        [[21, 22, 25]],
        [[23]],
        [[4]],
    ]
    assert [len(action.also) for action in profile.actions] == [2, 0, 0]
    first = next(action.text for action in profile.actions)
    assert first.endswith("2 times per step on line 21, and on 2 more lines")
    (what, *_), *_ = practices.next_steps(profile)
    assert what == f"{first} (fused.default, KGP201, /src/shop/model.py:21-22,25)"


def test_a_comprehension_outside_of_functions_is_no_function_of_its_own() -> None:
    reads = [
        written_syncs.read(at(line, name)) for line, name in ((40, "<module>"), (41, "<listcomp>"))
    ]

    (action,) = analyse(written_syncs.recording(*reads)).actions

    assert list(action.lines.values()) == [[40, 41]]


def test_of_lines_with_a_fix_as_code_the_first_shows_it_for_all() -> None:
    text = "total += a.item()\nseen += b.item()\na = b = 0.0\n"
    reads = [
        written_syncs.read(at(line), expression=f"{name}.item()")
        for line, name in ((1, "a"), (2, "b"))
    ]
    whole = written_syncs.recording(*reads)
    records = CompileRecords(records=(), sources=written.sources(text))
    run = msgspec.structs.replace(whole.runs[0], records=records)

    (action,) = analyse(msgspec.structs.replace(whole, runs=(run,))).actions

    assert action.text.endswith("once per step, on each of 2 lines")
    assert action.fix.partition("  #")[0] == "total += a.detach()"
    assert action.fix.endswith("# and likewise on the other lines")


@pytest.mark.parametrize(
    ("waited_us", "bound"), [((100.0, 150.0), 250.0), ((500.0, 600.0), 920.0), ((5.0, 4.0), None)]
)
def test_a_habit_saves_what_all_its_lines_wait_and_at_most_the_idle_time(
    waited_us: tuple[float, float], bound: float | None
) -> None:
    # given: steps of 1,000 us with 80 us of kernels, and two lines that wait in each
    whole = steps(step_us=1000.0, kernels=4, kernel_us=20.0)
    waits = (dict.fromkeys(range(written_syncs.CALLS), us) for us in waited_us)
    reads = [
        written_syncs.read(at(21 + n), device="cuda", waited_us=waited)
        for n, waited in enumerate(waits)
    ]
    run = msgspec.structs.replace(whole.runs[0], memory=written_syncs.memory(*reads))

    profile = analyse(msgspec.structs.replace(whole, runs=(run,)))

    found = [
        (bound_us(action), action.share) for action in profile.actions if action.rule == "KGP201"
    ]
    assert found == ([(bound, bound / 1000)] if bound else [])


@pytest.mark.parametrize(("calls", "bounds"), [(1, []), (56, [920.0])])
def test_a_wait_in_few_steps_may_be_for_the_work_of_an_evaluation_and_saves_nothing(
    calls: int, bounds: list[float]
) -> None:
    # given: steps of 1,000 us with 80 us of kernels, and a line that waits in some of 56
    whole = steps(step_us=1000.0, kernels=4, kernel_us=20.0)
    waiting = range(STEADY_FROM, STEADY_FROM + calls)
    waited = dict.fromkeys(waiting, 90_000.0)
    line = written_syncs.read(at(21), device="cuda", calls=waiting, waited_us=waited)
    memory = written_syncs.memory(line, step_us=(1000.0,) * (STEADY_FROM + 56))
    run = msgspec.structs.replace(whole.runs[0], memory=memory)

    found = analyse(msgspec.structs.replace(whole, runs=(run,))).actions

    assert [bound_us(action) for action in found if action.rule == "KGP201"] == bounds


@pytest.mark.parametrize(("calls", "first"), [(5, []), (6, ["KGP201"])])
def test_what_is_read_in_an_eighth_of_the_steps_to_log_it_is_no_action(
    calls: int, first: list[str]
) -> None:
    # given: 40 steps after warm-up
    logged = written_syncs.read(calls=range(STEADY_FROM, STEADY_FROM + calls))

    profile = analyse(written_syncs.recording(logged, calls=STEADY_FROM + 40))

    assert "KGP201" in {finding.rule for finding in profile.findings}
    assert [action.rule for action in profile.actions if action.rule == "KGP201"] == first


def would_sync() -> Recording:
    """A script on a CPU that copies its loss in three of five steps, which costs nothing there."""
    steady = range(STEADY_FROM, STEADY_FROM + 3)
    copied = written_syncs.read(
        source="python-call", op="Tensor.cpu", expression="loss.cpu()", each=9, calls=steady
    )
    whole = written_syncs.recording(copied)
    script = ScriptRun(step="an optimizer step", steps=8, counted={"an optimizer step": 8})
    run = msgspec.structs.replace(whole.runs[0], script=script)
    return msgspec.structs.replace(whole, runs=(run,))


def test_what_would_sync_on_a_gpu_is_told_and_leads_no_answer_about_a_cpu() -> None:
    profile = analyse(would_sync())

    (action,) = profile.actions
    assert (action.rule, action.only_on_gpu) == ("KGP203", True)
    assert (
        action.text
        == "with the tensor on a GPU, .cpu() would force a sync, 27 times in 3 of 5 steps"
    )
    # then: nor does the checklist say "0 syncs" and no more
    (item,) = (item for item in profile.checklist if item.id == "few-reads")
    assert item.status == PracticeStatus.NOT_OBSERVED
    assert item.evidence.startswith("0 syncs per step on this CPU; on a GPU this would sync: ")
    assert "first:" not in profile.verdict.text
    assert "would force a sync" not in Markdown().render(profile).partition("<details>")[0]
    assert [one.times for one in grouped(profile.findings) if one.first.rule == "KGP203"] == [""]
    assert "speed-up" not in {missing.what for missing in profile.omissions}


def untouched() -> RunRecord:
    """A run of a script that calls its model and compiles nothing."""
    sources = Sources(files={written.FILE: SourceFile(sha256="", text="out = model(x)\n")})
    eager = run(RunKey(strategy="train", mode="as-is"), compiled=0)
    return msgspec.structs.replace(eager, records=CompileRecords(records=(), sources=sources))


def test_compiling_an_eager_script_which_nobody_tried_leads_no_answer() -> None:
    script = ScriptRun(step="an optimizer step", steps=8, counted={"an optimizer step": 8})

    profile = analyse(recording(msgspec.structs.replace(untouched(), script=script)))

    assert "first:" not in profile.verdict.text
    assert "nothing was compiled in this run" in profile.verdict.trust
    (eager,) = (finding for finding in profile.findings if finding.rule == "KGP504")
    assert (eager.fix, profile.actions) == ("", ())


@pytest.mark.parametrize(
    ("outcome", "steps", "told"),
    [("timed-out", 8, True), ("interrupted", 8, True), ("timed-out", 0, False)],
)
def test_a_training_that_was_stopped_has_its_actions_as_well(
    outcome: str, steps: int, told: bool
) -> None:
    script = ScriptRun(step="an optimizer step", steps=steps, counted={"an optimizer step": steps})
    (copies,) = would_sync().runs
    stopped = msgspec.structs.replace(copies.exit, outcome=Outcome(outcome))

    profile = analyse(recording(msgspec.structs.replace(copies, script=script, exit=stopped)))

    assert bool(profile.actions) is told


def test_a_run_whose_results_differ_is_not_the_one_to_mend() -> None:
    recording = written_gpu_time.exact_float32()
    profile = analyse(recording)
    (run,) = profile.runs

    died = msgspec.structs.replace(
        recording.runs[0], exit=msgspec.structs.replace(run.exit, outcome="raised")
    )

    assert analyse(msgspec.structs.replace(recording, runs=(died,))).actions == ()


@pytest.fixture(scope="module")
def evaluator() -> Profile:
    return analyse(recordings.load(unpacked("evaluator_h200.tgz") / "recording"))


def test_of_the_evaluator_it_is_the_fastest_runs_sync_which_is_worth_at_most_the_idle_time(
    evaluator: Profile,
) -> None:
    (action,) = evaluator.actions

    assert (action.run.slug, action.rule) == ("fused.reduce-overhead", "KGP201")
    assert not isinstance(action.saves, Skipped)
    assert action.saves.us_per_step == pytest.approx(29.0, abs=0.1)


def test_what_cuda_graphs_ask_of_tensors_leads_no_answer_about_a_cpu() -> None:
    memory = written_tensors.a_written_argument().runs[0].memory
    (written_to,) = memory.tensors.graphs  # type: ignore[union-attr]
    whole = written_tensors.recording(msgspec.structs.replace(written_to, cuda_graphs=True))
    (run_,) = whole.runs
    script = ScriptRun(step="an optimizer step", steps=8, counted={"an optimizer step": 8})
    graphs = msgspec.structs.replace(whole, runs=(msgspec.structs.replace(run_, script=script),))

    for recorded in (whole, graphs):
        profile = analyse(recorded)
        assert all(action.only_on_gpu for action in profile.actions if action.rule == "KGP404")
        assert "writes to its argument" not in profile.verdict.text
    assert "KGP404" in {action.rule for action in analyse(whole).actions}
    plain = analyse(written_tensors.a_written_argument())
    assert "KGP404" in {finding.rule for finding in plain.findings}
    assert "KGP404" not in {action.rule for action in plain.actions}
