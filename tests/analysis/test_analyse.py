"""From a Recording to the Profile: the verdict's words, the exit code, and everything that is
missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kgprof import coverage
from kgprof.analysis import LOG_LIMIT_BYTES, analyse
from kgprof.analysis.verdict import verdict
from kgprof.collectors import RULES
from kgprof.model import (
    AcceptedEntry,
    CompileSummary,
    Exit,
    Finding,
    FlameGraph,
    HostBreakdown,
    KernelBreakdown,
    Level,
    Omission,
    Options,
    PassName,
    Recording,
    RunKey,
    RunReport,
    Skipped,
    Topic,
    Verdict,
    encode_json,
)
from kgprof.model.compile_records import CompileRecords
from kgprof.reading import layout, recordings
from tests.analysis.recordings import (
    EAGER,
    FUSED,
    agreed,
    agreement,
    died,
    evaluation,
    recording,
    run,
)
from tests.record import handmade

COND = RunKey(strategy="torch_cond", mode="default")
BOTH_EQUAL = agreement(agreed(EAGER), agreed(FUSED))


# ---------------------------------------------------------------- a Recording on disk


def test_a_recording_becomes_a_profile(tmp_path: Path) -> None:
    profile = analyse(handmade.write(tmp_path))

    batched, fused, lost = profile.runs
    assert [run.key for run in profile.runs] == [handmade.BATCHED, handmade.FUSED, handmade.LOST]
    assert (batched.is_baseline, fused.is_baseline) == (True, False)
    assert (profile.exit_code, profile.verdict.status) == (4, "failed")
    assert profile.verdict.text == "lost.default was killed during TIMING: SIGKILL"
    assert isinstance(lost.step, Skipped)
    assert isinstance(fused.compile, CompileSummary)
    assert fused.compile.first_call_s == 2.0
    assert isinstance(fused.host, HostBreakdown)
    assert fused.host.rows_left_out == 7
    assert {c.observer: c.ratio for c in fused.observers} == pytest.approx(
        {
            PassName.COMPILE: 1.05,
            PassName.TRACE: 1.3,
            PassName.HOST: 1.4,
            PassName.STACK: 1.8,
            PassName.KERNELS: 1.3,
        }
    )


def test_host_stacks_come_from_the_stack_pass(tmp_path: Path) -> None:
    flame = analyse(handmade.write(tmp_path)).runs[1].flame

    assert isinstance(flame, FlameGraph)
    assert (flame.measured_in, flame.steps) == (PassName.STACK, 2)
    assert [flame.names[flame.frames[frame].name] for frame in flame.frame] == [
        "step",
        "forward",
        "aten::addmm",
    ]


def test_a_recording_that_is_older_than_the_stack_pass_says_so(tmp_path: Path) -> None:
    recorded = handmade.write(tmp_path)
    for path in tmp_path.rglob("stack*.json*"):
        path.unlink()

    profile = analyse(recordings.load(Path(recorded.folder)))

    assert profile.runs[1].flame == Skipped(reason="this Recording has no STACK pass")
    assert ("STACK pass", "this Recording has no STACK pass") in {
        (o.what, o.reason) for o in profile.omissions
    }


def test_a_stack_trace_that_cannot_be_read_is_an_omission(tmp_path: Path) -> None:
    recorded = handmade.write(tmp_path)
    layout.trace_path(recorded, handmade.FUSED, PassName.STACK).write_bytes(b"")

    profile = analyse(recorded)

    flame = profile.runs[1].flame
    assert isinstance(flame, Skipped)
    assert (
        Omission(what="host stacks", reason=flame.reason, run=handmade.FUSED) in profile.omissions
    )


def test_kernels_come_from_the_pass_that_names_them(tmp_path: Path) -> None:
    batched, fused, _ = analyse(handmade.write(tmp_path)).runs

    assert isinstance(batched.kernels, KernelBreakdown)
    assert isinstance(fused.kernels, KernelBreakdown)
    assert (batched.kernels.measured_in, fused.kernels.measured_in) == (
        PassName.TRACE,
        PassName.KERNELS,
    )
    assert [row.ops for row in fused.kernels.rows if row.generator == "cpp"] == [("add", "relu")]


def test_a_damaged_kernel_trace_falls_back_and_says_so(tmp_path: Path) -> None:
    recorded = handmade.write(tmp_path)
    layout.trace_path(recorded, handmade.FUSED, PassName.KERNELS).write_bytes(b"")

    kernels = analyse(recorded).runs[1].kernels

    assert isinstance(kernels, KernelBreakdown)
    assert kernels.measured_in is PassName.TRACE
    assert kernels.warnings == ("KERNELS: kernels.json.gz: the trace is empty",)


def test_a_lost_trace_is_an_omission(tmp_path: Path) -> None:
    recorded = handmade.write(tmp_path)
    layout.trace_path(recorded, handmade.BATCHED, PassName.TRACE).unlink()

    profile = analyse(recorded)

    reason = "TRACE: trace.json.gz: cannot be read: No such file or directory"
    assert profile.runs[0].kernels == Skipped(reason=reason)
    assert (
        Omission(what="kernel breakdown", reason=reason, run=handmade.BATCHED) in profile.omissions
    )


def test_the_same_recording_gives_the_same_bytes_wherever_it_lies(tmp_path: Path) -> None:
    here, there = handmade.write(tmp_path / "here"), handmade.write(tmp_path / "deeper" / "there")

    assert encode_json(analyse(here)) == encode_json(analyse(there))


def test_analysis_and_rendering_need_no_torch(tmp_path: Path) -> None:
    handmade.write(tmp_path)
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path; from kgprof.reading import recordings; from kgprof.analysis "
        "import analyse\n"
        "from kgprof.render import RENDERERS\n"
        "profile = analyse(recordings.load(Path(sys.argv[1])))\n"
        "print(sum(len(renderer.render(profile)) for renderer in RENDERERS))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10_000


# ---------------------------------------------------------------- the verdict


def said(recorded: Recording) -> Verdict:
    return analyse(recorded).verdict


def test_unfinished_strategies_are_not_ranked_by_their_steps() -> None:
    found = said(recording(run(EAGER, unfinished=3), run(FUSED, step_us=10.0, unfinished=3)))

    assert "fastest" not in " ".join((found.text, *found.reasons))
    assert (
        "the runs cannot be ranked: there is no evaluation to compare, and strategies differ in "
        "work per step"
    ) in found.reasons


def test_one_run_is_given_as_it_stands() -> None:
    key = RunKey(strategy="train_step", mode="as-is")

    found = said(recording(run(key, evaluation_s=None, unfinished=None), baseline=None))

    assert (found.status, found.text) == ("ok", "train_step.as-is takes 1.00 ms/step")
    assert found.trust == "nothing was compiled in this run; its times are those of eager code"
    assert found.reasons == ()


def test_a_wrong_result_leads_and_is_never_the_fastest() -> None:
    different = agreement(agreed(EAGER), agreed(FUSED, "different", differing=3), agreed(COND))

    found = said(
        recording(
            run(EAGER, evaluation_s=0.5),
            run(FUSED, evaluation_s=0.1),
            run(COND, evaluation_s=0.25),
            agreement=different,
        )
    )

    assert found.status == "failed"
    assert found.text.startswith("fused.default: 3 of 100 results differ from batched.eager")
    assert found.reasons[0].startswith("torch_cond.default is fastest: 2.00×")
    assert found.reasons[1:] == ("all 100 candidates finished",)


def test_a_death_leads_and_what_stands_follows() -> None:
    lost = died(COND, "raised", "AssertionError: expected size 256==256", "compile")

    found = said(
        recording(
            run(EAGER, evaluation_s=0.5), run(FUSED, evaluation_s=0.2), lost, agreement=BOTH_EQUAL
        )
    )

    assert found.status == "failed"
    assert (
        found.text
        == "torch_cond.default raised during COMPILE: AssertionError: expected size 256==256"
    )
    assert found.reasons[0].startswith("fused.default is fastest: 2.50×")
    assert found.reasons[1:] == (
        "results equal (torch_cond.default not compared: this run was left out when results were "
        "compared)",
    )


def test_near_ties_are_counted_in_words() -> None:
    near = agreement(agreed(EAGER), agreed(FUSED, "near-ties", differing=4, near_ties=4))

    assert (
        "results equal except for 4 near-ties"
        in said(recording(run(EAGER), run(FUSED), agreement=near)).trust
    )


def test_near_ties_with_the_reference_are_counted_too() -> None:
    (key, near) = agreed(FUSED, "near-ties")
    near = msgspec.structs.replace(near, reference_differing=2, reference_near_ties=2)

    found = said(recording(run(EAGER), run(FUSED), agreement=agreement(agreed(EAGER), (key, near))))

    assert "results equal except for 2 near-ties" in found.trust


def test_results_that_could_not_be_compared_need_attention() -> None:
    runs = run(EAGER, evaluation_s=0.5), run(FUSED, evaluation_s=0.2)

    found = said(
        recording(*runs, agreement=Skipped(reason="the process was killed: SIGKILL"), compares=True)
    )

    assert found.status == "attention"
    assert "; results were not compared: the process was killed: SIGKILL; " in found.trust


def test_a_baseline_that_equals_itself_is_no_equal_result() -> None:
    alone = msgspec.structs.replace(agreed(EAGER)[1], reference_compared=0)
    lost = FUSED, Skipped(reason="result.npz cannot be read")

    found = said(
        recording(
            run(EAGER, evaluation_s=0.5),
            run(FUSED, evaluation_s=0.2),
            agreement=agreement((EAGER, alone), lost),
        )
    )

    assert found.status == "attention"
    assert (
        "results were not compared: fused.default not compared: result.npz cannot be read"
        in found.trust
    )
    assert "results equal" not in found.trust


def test_a_run_names_the_one_that_its_results_were_held_against() -> None:
    # given: the declared baseline died, and torch_cond stood in for it
    stand_in = msgspec.structs.replace(agreement(agreed(COND), agreed(FUSED)), baseline=COND)

    profile = analyse(recording(died(EAGER), run(COND), run(FUSED), agreement=stand_in))

    assert [report.compared_with for report in profile.runs] == [None, None, COND]


def test_a_run_with_other_results_has_no_speedup() -> None:
    different = agreement(agreed(EAGER), agreed(FUSED, "different", differing=3))

    profile = analyse(recording(run(EAGER), run(FUSED, evaluation_s=0.1), agreement=different))

    assert profile.runs[1].speedup == Skipped(reason="results differ")


def test_many_unknown_candidates_need_attention() -> None:
    def of(overflow: int) -> Verdict:
        counted = handmade.counted(evaluation(), overflow=overflow, failed=50 - overflow)
        times = zip((EAGER, FUSED), (0.5, 0.1), strict=True)
        runs = (
            msgspec.structs.replace(run(key, evaluation_s=s), evaluation=counted)
            for key, s in times
        )
        return said(recording(*runs, agreement=BOTH_EQUAL))

    assert [of(count).status for count in (10, 11, 50)] == ["ok", "attention", "attention"]
    assert "11 % of the candidates (11 of 100) are undecided: they hit a size limit" in of(11).trust
    assert "undecided" not in of(10).trust
    assert (of(11).lead, of(50).lead) == (
        "",
        "50 % of the candidates (50 of 100) are undecided: they hit a size limit; results and "
        "times are of truncated work",
    )


def test_the_death_of_the_second_process_leads() -> None:
    ended = Exit(outcome="killed", message="SIGKILL", exit_code=-9)
    fused = msgspec.structs.replace(run(FUSED, evaluation_s=0.2), probe_exit=ended)

    profile = analyse(recording(run(EAGER), fused, agreement=BOTH_EQUAL))

    assert (profile.exit_code, profile.verdict.status) == (4, "failed")
    assert profile.verdict.text == "fused.default: its second process was killed: SIGKILL"
    assert (
        Omission(what="the second process of this run", reason="it was killed: SIGKILL", run=FUSED)
        in profile.omissions
    )


def test_a_mode_that_compiled_nothing_needs_attention() -> None:
    found = said(recording(run(EAGER), run(FUSED, evaluation_s=0.2, compiled=0)))

    assert found.status == "attention"
    assert found.reasons == ("fused.default: mode default was requested, but nothing was compiled",)


def test_warnings_alone_leave_a_true_sentence_green() -> None:
    """What could be gained is counted beside it; what the report rests on is not in doubt."""
    rules = {rule.topic: rule.id for rule in RULES}
    findings = {
        topic: Finding(rule=rules[topic], level=Level.WARNING, message=f"about {topic}", run=FUSED)
        for topic in (Topic.SYNCS, Topic.COVERAGE, Topic.SOURCES)
    }
    runs = analyse(recording(run(EAGER), run(FUSED, evaluation_s=0.2))).runs

    found = {
        topic: verdict(runs, [each], baseline=EAGER, interrupted=False)
        for topic, each in findings.items()
    }

    assert [found[topic].status for topic in findings] == ["ok", "attention", "attention"]
    assert "about coverage" in found[Topic.COVERAGE].trust  # amber says why
    assert "about syncs" not in found[Topic.SYNCS].trust


def test_a_finding_of_several_runs_is_one_reason() -> None:
    found = said(
        recording(run(EAGER), run(COND, evaluation_s=0.2, compiled=0), run(FUSED, compiled=0))
    )

    assert found.reasons == (
        "torch_cond.default, fused.default: mode default was requested, but nothing was compiled",
    )


def test_an_interruption_is_inconclusive() -> None:
    never = died(FUSED, "interrupted", "never started", "")

    found = said(recording(run(EAGER), never))

    assert (found.status, found.text) == ("inconclusive", "interrupted: 1 of 2 runs had ended")


def test_a_run_that_failed_before_the_interruption_had_ended() -> None:
    never = died(FUSED, "interrupted", "never started", "")

    found = said(recording(died(EAGER), never))

    assert found.text == "interrupted: 1 of 2 runs had ended"


def test_an_interruption_after_the_last_run_has_ended_does_not_call_it_complete() -> None:
    """It came in a second process of the run's, as the one for TIMING."""
    whole = recording(run(EAGER))
    header = msgspec.structs.replace(whole.header, interrupted=True)

    found = said(msgspec.structs.replace(whole, header=header))

    assert (found.status, found.text) == ("inconclusive", "interrupted before all was measured")


# ---------------------------------------------------------------- the exit code


@pytest.mark.parametrize(
    ("recorded", "code"),
    [
        (recording(run(EAGER)), 0),
        (recording(run(EAGER), run(FUSED, unfinished=3)), 0),
        (recording(run(EAGER), died(FUSED)), 4),
        (recording(died(EAGER)), 4),
        (recording(), 5),
        (recording(msgspec.structs.replace(run(EAGER), timing=Skipped(reason="x"))), 5),
        (recording(died(EAGER, "interrupted")), 130),
        (recording(died(EAGER), died(FUSED, "interrupted")), 130),
    ],
)
def test_the_exit_code_is_the_first_that_applies(recorded: Recording, code: int) -> None:
    assert analyse(recorded).exit_code == code


def test_an_interrupted_recording_exits_as_interrupted() -> None:
    recorded = recording(run(EAGER))
    header = msgspec.structs.replace(recorded.header, interrupted=True)

    assert analyse(msgspec.structs.replace(recorded, header=header)).exit_code == 130


# ---------------------------------------------------------------- what is missing


def omitted(recorded: Recording) -> set[tuple[str, str]]:
    return {(omission.what, omission.reason) for omission in analyse(recorded).omissions}


def test_every_skipped_pass_is_an_omission() -> None:
    reason = "the run was killed during timing: SIGKILL"

    gaps = omitted(recording(died(EAGER), agreement=agreement()))
    (rules,) = (what for what, why in gaps if why == reason and "KGP101" in what)
    assert "KGP201" in rules
    assert {gap for gap in gaps if "KGP" not in gap[0]} == {
        *(
            (f"{name} pass", reason)
            for name in ("COMPILE", "TIMING", "TRACE", "HOST", "STACK", "MEMORY", "KERNELS")
        ),
        ("evaluation", reason),
        ("comparison of results", "this run was left out when results were compared"),
    }


def test_a_dead_second_child_is_an_omission() -> None:
    recorded = msgspec.structs.replace(
        run(FUSED), probe_exit=Exit(outcome="killed", message="SIGKILL")
    )

    assert ("the second process of this run", "it was killed: SIGKILL") in omitted(
        recording(recorded)
    )


def test_unfinished_work_is_an_omission() -> None:
    assert ("ms/candidate", "7 of 100 candidates are unfinished") in omitted(
        recording(run(EAGER, unfinished=7))
    )


def test_a_long_log_keeps_its_head_and_its_tail() -> None:
    log = "first words\n" + "x" * 3 * LOG_LIMIT_BYTES + "\nlast words \u2603"
    recorded = recording(msgspec.structs.replace(run(EAGER), log=log))

    report: RunReport = analyse(recorded).runs[0]

    assert report.log.text.startswith("first words\n")
    assert report.log.text.endswith("\nlast words \u2603")
    assert f"[... {report.log.left_out_bytes:,} bytes left out ...]" in report.log.text
    assert len(report.log.text.encode()) + report.log.left_out_bytes == pytest.approx(
        len(log.encode()), abs=60
    )
    assert "the middle of the log" in {what for what, _ in omitted(recorded)}


def test_records_of_the_compiler_that_were_cut_or_are_missing_are_said() -> None:
    whole, cut = CompileRecords(), CompileRecords(left_out=1200)
    gone = Skipped(reason="not written")

    recorded = [
        recording(msgspec.structs.replace(run(FUSED), records=records))
        for records in (whole, cut, gone)
    ]
    lacking = [coverage.missing(analyse(one).coverage, FUSED, "KGP101") for one in recorded]

    assert lacking == ["", "1,200 records of the compiler exceed the limit", "not written"]


@pytest.mark.parametrize(
    ("device", "options", "said"),
    [
        ("cuda", Options(), True),
        ("cpu", Options(), False),  # there is no card
        ("cuda", Options(passes=(PassName.COMPILE,)), False),  # a gate measures nothing
    ],
)
def test_ceilings_that_a_gpu_run_lacks_are_an_omission(
    device: str, options: Options, said: bool
) -> None:
    made = recording(run(EAGER))
    plan = msgspec.structs.replace(made.header.plan, device=device)
    header = msgspec.structs.replace(made.header, plan=plan, options=options)

    profile = analyse(msgspec.structs.replace(made, header=header))

    lacking = Omission(what="the GPU's peak rates", reason="this Recording has no ceilings")
    assert (lacking in profile.omissions) == said


# ---------------------------------------------------------------- what the project accepts


def different_results(expires: str) -> Recording:
    """A recording of some day in 2026 whose results differ, which the project accepts up to
    ``expires``."""
    made = recording(
        run(EAGER),
        run(FUSED),
        agreement=agreement(agreed(EAGER), agreed(FUSED, verdict="different")),
    )
    entry = AcceptedEntry(
        rule="KGP501", file="", function="", gb="", reason="rounding", owner="ana", expires=expires
    )
    return msgspec.structs.replace(made, accepted=(entry,))


def test_an_accepted_finding_is_marked_and_leads_no_verdict() -> None:
    profile = analyse(different_results("2099-12-31"))

    (found,) = [finding for finding in profile.findings if finding.rule == "KGP501"]
    assert found.accepted == "ana, until 2099-12-31: rounding"
    assert profile.verdict.status != "failed"
    assert [(entry.status, entry.findings) for entry in profile.accepted] == [("used", 1)]


def test_an_expired_one_leads_again_and_says_so() -> None:
    profile = analyse(different_results("2001-01-01"))

    (found,) = [finding for finding in profile.findings if finding.rule == "KGP501"]
    assert found.accepted == ""
    assert profile.verdict.status == "failed"
    assert "expired on 2001-01-01: accepted KGP501 (ana: rounding)" in profile.verdict.reasons
    assert [(entry.status, entry.findings) for entry in profile.accepted] == [("expired", 1)]
