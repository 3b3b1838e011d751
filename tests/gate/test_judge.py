"""The gate over hand-made Profiles: it fails on what is over its budget, and never passes on what
was not seen."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kgprof import coverage
from kgprof.errors import (
    EXIT_GATE_FAILED,
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_NOTHING_MEASURED,
    EXIT_OK,
    EXIT_WORKLOAD,
)
from kgprof.gate import judge
from kgprof.gate.settings import Configuration, combined
from kgprof.gate.verdict import amount
from kgprof.model import (
    Budget,
    BudgetCheck,
    Compilation,
    CompilePass,
    CompileSummary,
    Exit,
    Gate,
    Level,
    Profile,
    RunKey,
    ScriptRun,
    Skipped,
    Unavailable,
)
from kgprof.model.memory_records import SyncRecord
from kgprof.render import by_name
from tests.analysis.recordings import died, run
from tests.collectors import written, written_syncs
from tests.gate.gated import BATCHED, FUSED, ROOT, entry, finding, profile, settings, with_calls
from tests.gathering import for_all

NO_HOOKS = Unavailable(capture="sync hooks", why="dispatch: AttributeError: no library")


def gate_of(judged: Profile) -> Gate:
    assert judged.gate is not None
    return judged.gate


def checks(judged: Profile) -> dict[str, BudgetCheck]:
    return {f"{check.run.slug}:{check.metric}": check for check in gate_of(judged).budgets}


def test_a_clean_run_passes_and_says_what_was_looked_at() -> None:
    judged = judge(profile(), settings())

    assert (judged.exit_code, judged.verdict.status) == (EXIT_OK, "ok")
    assert judged.verdict.text == "gate passed: 4 budgets met in 1 run"
    assert [(check.metric, check.observed, check.status) for check in gate_of(judged).budgets] == [
        ("graph-breaks", 0.0, "held"),
        ("skipped-frames", 0.0, "held"),
        ("recompiles", 0.0, "held"),
        ("eager-calls", 0.0, "held"),
    ]


def test_one_break_is_over_a_budget_of_none() -> None:
    judged = judge(profile(finding()), settings())

    assert (judged.exit_code, judged.verdict.status) == (EXIT_GATE_FAILED, "failed")
    assert judged.verdict.text == "gate failed: fused.default: 1 over the budget of 0 graph-breaks"
    assert gate_of(judged).failing == (0,)


def test_every_fault_is_said_at_once() -> None:
    found = (finding(line=1), finding("KGP102", line=2), finding("KGP103", line=3, count=4))

    judged = judge(profile(*found), settings())

    assert gate_of(judged).failing == (0, 1, 2)
    assert [judged.verdict.text, *judged.verdict.reasons] == [
        "gate failed: fused.default: 1 over the budget of 0 graph-breaks",
        "fused.default: 1 over the budget of 0 skipped-frames",
        "fused.default: 4 over the budget of 0 recompiles",
    ]


def test_recompiles_that_happened_once_are_told_beside_a_pass() -> None:
    once = replace(finding("KGP103", level=Level.NOTE, count=2), one_off=True)

    passed = judge(profile(once), settings())

    assert passed.exit_code == EXIT_OK
    assert passed.verdict.text.endswith("; 2 recompiles that happened once, not counted")


def test_breaks_that_torch_makes_on_purpose_are_counted_apart_and_fail_nothing() -> None:
    by_torch = (
        finding(level=Level.NOTE, line=3, by_torch=True),
        finding(level=Level.NOTE, line=4, by_torch=True),
    )

    passed = judge(profile(*by_torch), settings())
    failed = judge(profile(*by_torch, finding(line=5)), settings())

    assert (passed.exit_code, gate_of(passed).failing) == (EXIT_OK, ())
    assert passed.verdict.text == (
        "gate passed: 4 budgets met in 1 run; 2 breaks inside torch, made on purpose, not counted"
    )
    assert [(c.observed, c.made_by_torch) for c in gate_of(passed).budgets] == [
        (0.0, 2),
        (0.0, 0),
        (0.0, 0),
        (0.0, 0),
    ]
    assert gate_of(failed).failing == (2,)
    assert failed.verdict.text == "gate failed: fused.default: 1 over the budget of 0 graph-breaks"
    said = by_name("text").render(failed)
    assert (
        "not counted: fused.default graph-breaks: 2 more breaks inside torch, made on purpose\n"
        in said
    )


def test_breaks_are_counted_by_place_and_recompiles_by_how_often() -> None:
    judged = judge(
        profile(finding(count=20), finding("KGP104", count=7), finding("KGP105", count=2)),
        settings(),
    )

    assert checks(judged)["fused.default:graph-breaks"].observed == 1
    assert checks(judged)["fused.default:recompiles"].observed == 9


def test_a_budget_on_one_run_says_nothing_about_another_runs_finding() -> None:
    """What is marked as failing the gate fails it: exit code, verdict and the list of failing
    findings agree."""
    # given: reads have a budget on batched only, and both runs read
    reads = [finding("KGP201", on=on, message=f"{on.slug} reads") for on in (FUSED, BATCHED)]
    judged = judge(
        profile(*reads, runs=(run(FUSED), run(BATCHED))),
        settings(("syncs-per-step", 5), scope="batched", fail_on="warning"),
    )

    assert (gate_of(judged).failing, judged.exit_code) == ((0,), EXIT_GATE_FAILED)
    assert judged.verdict.text == "gate failed: KGP201 fused.default reads"


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (12345.0, "sites", "12,345"),
        (12345.0, "syncs/step", "12,345"),
        (12345.5, "syncs/step", "12,345.5"),
        (0.25, "syncs/step", "0.25"),
        (1 / 3, "syncs/step", "0.3333"),
        (12345.6, "s", "12345.6 s"),
    ],
)
def test_a_large_count_is_written_out(value: float, unit: str, said: str) -> None:
    assert amount(value, unit) == said


def test_a_large_count_is_written_out_by_every_renderer_for_machines() -> None:
    judged = judge(profile(finding("KGP103", count=1_234_567)), settings(("recompiles", 1_000_000)))

    assert "1,234,567 over the budget of 1,000,000 recompiles" in judged.verdict.text
    assert "1,234,567 events, the budget is 1,000,000" in by_name("github").render(judged)
    assert "1234567 events over the budget of 1000000" in by_name("junit").render(judged)


def test_a_refusal_that_the_program_caught_is_not_why_it_ended() -> None:
    refused = finding("KGP107", level=Level.ERROR, message="compiling step raised Unsupported: no")
    at_the_line = (
        f'Unsupported: no\nfrom user code:\n  File "{ROOT}/src/model.py", line 12, in step'
    )
    ended = [
        judge(
            profile(refused, runs=(died(FUSED, "raised", message, "compile"),)), settings()
        ).verdict
        for message in (at_the_line, "ValueError: no file")
    ]

    # what ended the program is said once
    assert [len(verdict.reasons) for verdict in ended] == [0, 1]
    assert [verdict.text for verdict in ended] == [
        "no verdict, the workload failed: src/model.py:12: KGP107 compiling step raised "
        "Unsupported: no, which ended the program: fused.default raised during COMPILE: "
        "Unsupported: no",
        "no verdict, the workload failed: fused.default raised during COMPILE: ValueError: no file",
    ]


MARKED = ("KGP101", "KGP201", "KGP401", "KGP406", "KGP503")


@for_all([*product(MARKED, (FUSED, None), Level, ("error", "warning", "never"))])
def test_the_gate_fails_exactly_where_a_finding_is_marked_as_failing_it(
    case: tuple[str, RunKey | None, Level, str],
) -> None:
    """No budget is exceeded here; KGP101 has one of five."""
    rule, on, level, fail_on = case
    judged = judge(
        profile(finding(rule, level=level, on=on)), settings(("graph-breaks", 5), fail_on=fail_on)
    )

    assert bool(gate_of(judged).failing) == (judged.exit_code == EXIT_GATE_FAILED)
    assert bool(gate_of(judged).failing) == judged.verdict.text.startswith(f"gate failed: {rule} ")


def test_a_recompile_that_is_only_a_note_is_not_counted() -> None:
    # given: what converged during warm-up is told as a note
    judged = judge(profile(finding("KGP103", level=Level.NOTE, count=2)), settings())

    assert judged.exit_code == EXIT_OK
    assert checks(judged)["fused.default:recompiles"].observed == 0


def test_calls_that_ran_eagerly_are_counted_though_a_note_says_so() -> None:
    # given: what follows from a graph break is a note, and reached the limit
    note = finding("KGP105", level=Level.NOTE, count=7)
    calls = {"calls": 20, "with_a_graph": 8, "graph_runs": 8, "eager": {note.fingerprint: 12}}
    judged = judge(with_calls(profile(note), **calls), settings())

    assert judged.exit_code == EXIT_OK
    assert checks(judged)["fused.default:recompiles"].observed == 0
    assert checks(judged)["fused.default:eager-calls"].observed == 12


def test_a_finding_within_its_budget_does_not_fail_even_as_an_error() -> None:
    judged = judge(profile(finding(level=Level.ERROR)), settings(("graph-breaks", 1)))

    assert judged.exit_code == EXIT_OK
    assert gate_of(judged).failing == ()


@pytest.mark.parametrize(
    ("level", "fail_on", "expected"),
    [
        (Level.ERROR, "error", EXIT_GATE_FAILED),
        (Level.ERROR, "never", EXIT_OK),
        (Level.WARNING, "error", EXIT_OK),
        (Level.WARNING, "warning", EXIT_GATE_FAILED),
        (Level.NOTE, "warning", EXIT_OK),
    ],
)
def test_what_no_budget_counts_is_judged_by_its_level(
    level: Level, fail_on: str, expected: int
) -> None:
    judged = judge(profile(finding("KGP107", level=level)), settings(fail_on=fail_on))

    assert judged.exit_code == expected
    assert gate_of(judged).failing == ((0,) if expected else ())


def test_never_fails_on_no_budget_and_says_how_many_are_exceeded() -> None:
    judged = judge(profile(finding()), settings(fail_on="never"))

    assert judged.exit_code == EXIT_OK
    assert "1 of 4 budgets exceeded" in judged.verdict.text


def test_the_narrower_budget_wins() -> None:
    runs = (run(FUSED), run(BATCHED))
    found = (finding(on=FUSED), finding(on=BATCHED))

    judged = judge(profile(*found, runs=runs), settings(("graph-breaks", 1), scope="fused"))

    assert checks(judged)["fused.default:graph-breaks"].status == "held"
    assert checks(judged)["batched.default:graph-breaks"].status == "exceeded"
    assert gate_of(judged).failing == (1,)


# ---------------------------------------------------------------- not observed


def test_nothing_compiled_is_no_pass() -> None:
    judged = judge(profile(runs=(run(FUSED, compiled=0),)), settings())

    assert (judged.exit_code, judged.verdict.status) == (EXIT_NOTHING_MEASURED, "inconclusive")
    assert judged.verdict.text == "no verdict: fused.default: nothing was compiled"


def test_what_compiles_nothing_by_itself_is_told_how_to() -> None:
    step = run(RunKey(strategy="step", mode="as-is"), compiled=0)
    script = msgspec.structs.replace(
        step, script=ScriptRun(step="an optimizer step", steps=9, counted={})
    )

    in_step, in_script = (
        judge(profile(runs=(one,)), settings()).verdict.text for one in (step, script)
    )

    assert (
        in_step
        == "no verdict: step.as-is: nothing was compiled; --mode default tries to compile the step"
    )
    assert in_script == (
        "no verdict: step.as-is: nothing was compiled; a script is gated on what it compiles itself"
    )


def test_a_run_whose_compiled_functions_ran_eagerly_is_not_told_to_compile() -> None:
    step = run(RunKey(strategy="step", mode="as-is"), compiled=0)

    judged = judge(with_calls(profile(runs=(step,)), calls=20, with_a_graph=0), settings())

    assert judged.exit_code == EXIT_NOTHING_MEASURED
    assert judged.verdict.text == (
        "no verdict: step.as-is: not one compiled graph ran in 20 calls of compiled functions"
    )


def test_one_of_two_runs_that_compiled_nothing_is_no_pass() -> None:
    judged = judge(profile(runs=(run(FUSED), run(BATCHED, compiled=0))), settings())

    assert judged.exit_code == EXIT_NOTHING_MEASURED
    assert "batched.default: nothing was compiled" in judged.verdict.text


def test_nothing_compiled_because_it_is_switched_off_names_the_variable() -> None:
    bare = run(FUSED, compiled=0)
    assert isinstance(bare.compile, CompilePass)
    line = Unavailable(
        capture="compilation",
        why="TORCH_COMPILE_DISABLE=1 is set, so torch.compile compiles nothing",
    )
    off = msgspec.structs.replace(
        bare, compile=msgspec.structs.replace(bare.compile, capture_unavailable=(line,))
    )

    judged = judge(profile(runs=(off,)), settings())

    assert judged.exit_code == EXIT_NOTHING_MEASURED
    assert "TORCH_COMPILE_DISABLE=1 is set" in judged.verdict.text


def test_a_finding_where_nothing_compiled_is_a_failure_and_not_silence() -> None:
    judged = judge(profile(finding("KGP102"), runs=(run(FUSED, compiled=0),)), settings())

    assert judged.exit_code == EXIT_GATE_FAILED


def test_a_run_that_died_is_the_workloads_failure() -> None:
    judged = judge(profile(runs=(died(FUSED, during="compile"),)), settings())

    assert (judged.exit_code, judged.verdict.status) == (EXIT_WORKLOAD, "failed")
    assert {check.status for check in gate_of(judged).budgets} == {"not observed"}


def test_an_interrupted_run_leads_over_everything() -> None:
    judged = judge(
        profile(finding(), runs=(run(FUSED), died(BATCHED, "interrupted", "SIGINT"))), settings()
    )

    assert judged.exit_code == EXIT_INTERRUPTED


def test_a_death_leads_over_a_break_and_both_are_said() -> None:
    judged = judge(profile(finding(), runs=(run(FUSED), died(BATCHED))), settings())

    assert judged.exit_code == EXIT_WORKLOAD
    assert judged.verdict.reasons == ("fused.default: 1 over the budget of 0 graph-breaks",)


def test_a_program_may_ask_for_cuda_graphs_in_any_mode() -> None:
    """By torch._inductor.config.triton.cudagraphs."""
    found = profile(finding("KGP301"), device="cuda")

    judged = judge(found, settings(("cudagraph-skips", 0)))

    assert judged.exit_code == EXIT_GATE_FAILED
    assert checks(judged)["fused.default:cudagraph-skips"].status == "exceeded"


def test_a_cuda_graph_budget_on_a_cpu_run_is_inconclusive() -> None:
    judged = judge(profile(), settings(("cudagraph-skips", 0)))

    assert judged.exit_code == EXIT_INCONCLUSIVE
    assert (
        "cudagraph-skips not observed: CUDA graphs are not observable on a CPU run"
        in judged.verdict.text
    )


@pytest.mark.parametrize("metric", ["cache-bypasses", "compile-seconds"])
def test_what_needs_generated_code_is_not_observed_without_it(metric: str) -> None:
    judged = judge(profile(backend="aot_eager"), settings((metric, 100)))

    assert judged.exit_code == EXIT_INCONCLUSIVE
    assert checks(judged)[f"fused.default:{metric}"].observed == Skipped(
        reason="backend aot_eager generates no code"
    )


def test_a_metric_without_its_collector_is_not_observed() -> None:
    found = profile()
    rows = [
        replace(row, rules=tuple(id_ for id_ in row.rules if id_ != "KGP101"))
        for row in found.coverage
    ]

    judged = judge(replace(found, coverage=tuple(rows)), settings())

    assert judged.exit_code == EXIT_INCONCLUSIVE
    assert f"graph-breaks not observed: {coverage.UNKNOWN_RULE}" in judged.verdict.text


def test_records_that_are_not_whole_prove_nothing() -> None:
    found = profile()
    rows = [
        replace(row, missing="12 records of the compiler exceed the limit")
        for row in found.coverage
    ]

    judged = judge(replace(found, coverage=tuple(rows)), settings(("compile-seconds", 9)))

    assert judged.exit_code == EXIT_INCONCLUSIVE
    assert {metric: check.status for metric, check in checks(judged).items()} == {
        "fused.default:graph-breaks": "not observed",
        "fused.default:skipped-frames": "not observed",
        "fused.default:recompiles": "not observed",
        "fused.default:eager-calls": "not observed",
        "fused.default:compile-seconds": "held",
    }


def test_sources_that_disagree_are_inconclusive() -> None:
    judged = judge(
        profile(finding("KGP503", message="2 breaks in one source, 1 in the other")), settings()
    )

    assert judged.exit_code == EXIT_INCONCLUSIVE
    assert "KGP503 2 breaks in one source, 1 in the other" in judged.verdict.text


def test_a_budget_for_a_run_that_there_is_not_is_inconclusive() -> None:
    judged = judge(profile(), settings(("graph-breaks", 0), scope="fusde"))

    assert judged.exit_code == EXIT_INCONCLUSIVE
    assert "the budget fusde:graph-breaks matches no run" in judged.verdict.text


def test_compile_seconds_are_added_up_and_an_unknown_one_is_no_zero() -> None:
    known = run(FUSED, compiled=2)
    assert isinstance(known.compile, CompilePass)
    lost = Compilation(
        compile_id="1/0", function="f", location="", duration_s=Skipped(reason="torch gave none")
    )
    unknown = msgspec.structs.replace(
        known.compile, compilations=(*known.compile.compilations, lost)
    )

    summed = judge(profile(runs=(known,)), settings(("compile-seconds", 2.9)))
    unsure = judge(
        profile(runs=(msgspec.structs.replace(known, compile=unknown),)),
        settings(("compile-seconds", 9)),
    )

    assert checks(summed)["fused.default:compile-seconds"].observed == 3.0
    assert summed.exit_code == EXIT_GATE_FAILED
    assert checks(unsure)["fused.default:compile-seconds"].observed == Skipped(
        reason="torch gave none"
    )
    assert unsure.exit_code == EXIT_INCONCLUSIVE


# ---------------------------------------------------------------- reads

OFTEN = written_syncs.read(each=2)
# in 2 of the 5 calls after warm-up
SELDOM = written_syncs.read(written_syncs.PREDICATE, calls=range(0, 8, 2))


def of_reads(*reads: SyncRecord, **fields: Any) -> Profile:
    return profile(runs=(written_syncs.run(*reads, **fields),))


@pytest.mark.parametrize(
    ("limit", "expected", "status"), [(2.4, EXIT_OK, "held"), (2.3, EXIT_GATE_FAILED, "exceeded")]
)
def test_reads_are_counted_by_step_after_warm_up(limit: float, expected: int, status: str) -> None:
    judged = judge(of_reads(OFTEN, SELDOM), settings(("syncs-per-step", limit)))

    check = checks(judged)["fused.default:syncs-per-step"]
    assert (judged.exit_code, check.observed, check.status) == (expected, 2.4, status)
    assert len(gate_of(judged).failing) == (2 if expected else 0)
    if expected:
        assert (
            judged.verdict.text
            == "gate failed: fused.default: 2.4 over the budget of 2.3 syncs-per-step"
        )


def test_a_line_that_reads_in_warm_up_alone_is_held_against_nobody() -> None:
    judged = judge(of_reads(written_syncs.read(calls=range(2))), settings(("syncs-per-step", 0)))

    assert (judged.exit_code, checks(judged)["fused.default:syncs-per-step"].observed) == (
        EXIT_OK,
        0.0,
    )


def test_what_costs_nothing_on_a_cpu_is_no_read() -> None:
    copies = written_syncs.read(source="python-call", op="Tensor.cpu", expression="loss.cpu()")

    judged = judge(of_reads(copies), settings(("syncs-per-step", 0)))

    assert (judged.exit_code, checks(judged)["fused.default:syncs-per-step"].observed) == (
        EXIT_OK,
        0.0,
    )


def test_an_accepted_read_is_off_the_number() -> None:
    accepts = msgspec.structs.replace(entry("KGP201", function="train"), file=written.FILE)

    judged = judge(of_reads(OFTEN, SELDOM), settings(("syncs-per-step", 0.4), entries=[accepts]))

    check = checks(judged)["fused.default:syncs-per-step"]
    assert (judged.exit_code, check.observed, check.accepted) == (EXIT_OK, 0.4, 1)


@pytest.mark.parametrize(
    ("watched", "reason"),
    [
        ({"left_out": 3}, "3 syncs are beyond what MEMORY keeps"),
        ({"calls": 3}, "MEMORY watched 3 steps, and warm-up takes 3"),
        ({"capture_unavailable": (NO_HOOKS,)}, NO_HOOKS.words),
        ({"capture_unavailable": (Unavailable(capture="tensor probe", why="why"),)}, ""),
        ({"syncs": Skipped(reason="the hooks were not there")}, "the hooks were not there"),
    ],
    ids=["cut off", "no step after warm-up", "no hooks", "another probe is missing", "no records"],
)
def test_reads_that_were_not_all_seen_are_not_observed(
    watched: dict[str, Any], reason: str
) -> None:
    judged = judge(of_reads(OFTEN, **watched), settings(("syncs-per-step", 9)))

    observed = checks(judged)["fused.default:syncs-per-step"].observed
    assert observed == (Skipped(reason=reason) if reason else 2.0)
    assert judged.exit_code == (EXIT_INCONCLUSIVE if reason else EXIT_OK)


def test_reads_are_not_observed_without_memory_or_where_its_process_died() -> None:
    killed = Exit(outcome="killed", message="SIGKILL", during="memory")
    died_there = msgspec.structs.replace(written_syncs.run(OFTEN), probe_exit=killed)

    without = judge(profile(), settings(("syncs-per-step", 9)))
    died = judge(profile(runs=(died_there,)), settings(("syncs-per-step", 9)))

    assert without.exit_code == died.exit_code == EXIT_INCONCLUSIVE
    assert checks(without)["fused.default:syncs-per-step"].observed == Skipped(
        reason="this Recording has no MEMORY pass"
    )
    assert checks(died)["fused.default:syncs-per-step"].observed == Skipped(
        reason="its second process was killed during MEMORY: SIGKILL"
    )


# ---------------------------------------------------------------- accepted findings


def test_an_accepted_finding_is_shown_and_not_counted() -> None:
    judged = judge(profile(finding()), settings(entries=[entry()]))

    assert judged.exit_code == EXIT_OK
    assert judged.findings[0].accepted == "ana, until 2027-01-31: it is a demo"
    assert checks(judged)["fused.default:graph-breaks"].accepted == 1
    assert [(a.status, a.findings) for a in gate_of(judged).accepted] == [("used", 1)]


@pytest.mark.parametrize("found", [(finding(),), ()], ids=["still there", "gone"])
def test_an_expired_entry_fails_and_says_so(found: tuple[object, ...]) -> None:
    judged = judge(profile(*found), settings(entries=[entry(expires="2026-11-20")]))  # type: ignore[arg-type]

    assert judged.exit_code == EXIT_GATE_FAILED
    said = [judged.verdict.text, *judged.verdict.reasons]
    assert any(
        "accepted finding KGP101 in src/model.py:step expired on 2026-11-20" in text
        for text in said
    )


def test_an_entry_holds_on_its_last_day() -> None:
    assert (
        judge(profile(finding()), settings(entries=[entry(expires="2026-11-21")])).exit_code
        == EXIT_OK
    )


def test_an_entry_that_matches_nothing_is_noted() -> None:
    judged = judge(profile(), settings(entries=[entry()]))

    assert judged.exit_code == EXIT_OK
    assert gate_of(judged).notes == (
        "accepted finding KGP101 in src/model.py:step matched nothing; remove it",
    )


def test_an_entry_is_not_called_superfluous_where_its_finding_may_have_been_missed() -> None:
    seen = profile()
    some = msgspec.structs.replace(
        seen, options=msgspec.structs.replace(seen.options, strategies=("fused",))
    )
    dead = profile(runs=[died(FUSED, "killed")])
    # none is found by COMPILE on a CPU
    unseen = [entry(rule) for rule in ("KGP301", "KGP302", "KGP201", "KGP501", "KGP602")]

    for judged in (
        judge(some, settings(entries=[entry()])),
        judge(dead, settings(entries=[entry()])),
    ):
        assert "matched nothing, but not everything was looked at: " in gate_of(judged).notes[0]
    for note in gate_of(judge(seen, settings(entries=unseen))).notes:
        assert "matched nothing, but not everything was looked at: fused.default: " in note


@pytest.mark.parametrize(
    "other",
    [entry("KGP102"), entry(function="other"), entry(gb="GB0001")],
    ids=["rule", "function", "id"],
)
def test_an_entry_accepts_its_own_finding_only(other: object) -> None:
    assert judge(profile(finding()), settings(entries=[other])).exit_code == EXIT_GATE_FAILED  # type: ignore[list-item]


def test_judging_changes_nothing_else() -> None:
    before = profile(finding())
    judged = judge(before, settings())

    undone = msgspec.structs.replace(
        judged, gate=None, exit_code=before.exit_code, verdict=before.verdict
    )
    assert undone == before


# ---------------------------------------------------------------- calls that ran no compiled graph


RUNS_EAGERLY = finding("KGP108")
EAGER = {"calls": 20, "with_a_graph": 5, "graph_runs": 5, "eager": {RUNS_EAGERLY.fingerprint: 15}}


def test_eager_calls_warn_unless_somebody_asks() -> None:
    found = with_calls(profile(RUNS_EAGERLY), **EAGER)

    warned, asked, more = (
        judge(found, settings()),
        *(judge(found, settings(("eager-calls", n))) for n in (0, 15)),
    )

    assert (warned.exit_code, checks(warned)["fused.default:eager-calls"].status) == (
        EXIT_OK,
        "warned",
    )
    assert "fused.default: 15 eager-calls (--max eager-calls=0 would fail)" in warned.verdict.text
    assert "3 budgets met" in warned.verdict.text
    assert (asked.exit_code, gate_of(asked).failing) == (EXIT_GATE_FAILED, (0,))
    assert (more.exit_code, checks(more)["fused.default:eager-calls"].status) == (EXIT_OK, "held")


def test_a_file_asks_as_well() -> None:
    found = with_calls(profile(RUNS_EAGERLY), **EAGER)
    budget = Budget(metric="eager-calls", limit=0, scope="", origin="kgprof.toml")

    judged = judge(found, combined(Configuration(), Configuration(budgets=(budget,))))

    assert judged.exit_code == EXIT_GATE_FAILED


def test_fail_on_warning_fails_on_a_finding_that_no_budget_decides() -> None:
    judged = judge(with_calls(profile(RUNS_EAGERLY), **EAGER), settings(fail_on="warning"))

    assert judged.exit_code == EXIT_GATE_FAILED


def test_an_accepted_finding_takes_its_calls_off_the_number() -> None:
    found = with_calls(profile(RUNS_EAGERLY), **EAGER)

    judged = judge(found, settings(("eager-calls", 0), entries=[entry("KGP108")]))

    assert (judged.exit_code, checks(judged)["fused.default:eager-calls"].observed) == (EXIT_OK, 0)


def test_calls_since_the_recompile_limit_are_eager_calls_too() -> None:
    limit = finding("KGP104", count=7)
    found = with_calls(profile(limit), **{**EAGER, "eager": {limit.fingerprint: 12}})

    judged = judge(found, settings())

    assert judged.exit_code == EXIT_GATE_FAILED
    assert checks(judged)["fused.default:recompiles"].observed == 7
    assert checks(judged)["fused.default:eager-calls"].observed == 12


@pytest.mark.parametrize(("known", "code"), [(0, EXIT_INCONCLUSIVE), (1, EXIT_GATE_FAILED)])
def test_where_it_is_not_known_how_often_a_part_ran_eagerly_no_limit_is_held(
    known: int, code: int
) -> None:
    limit = finding("KGP104", count=7)
    other = finding("KGP108")
    unknown = Skipped("the limit fell into the first call")
    eager = {limit.fingerprint: unknown, other.fingerprint: known}
    found = with_calls(profile(limit, other), **{**EAGER, "eager": eager})

    judged = judge(found, settings(("eager-calls", 0), ("recompiles", 9)))

    assert judged.exit_code == code
    status = checks(judged)["fused.default:eager-calls"].status
    assert status == ("exceeded" if known else "not observed")


def test_an_older_recording_is_judged_as_before_unless_somebody_asks() -> None:
    older = profile()
    compiled = older.runs[0].compile
    assert isinstance(compiled, CompileSummary)
    unknown = msgspec.structs.replace(compiled, compiled_calls=Skipped(reason="not counted"))
    older = msgspec.structs.replace(
        older, runs=(msgspec.structs.replace(older.runs[0], compile=unknown),)
    )

    judged, asked = judge(older, settings()), judge(older, settings(("eager-calls", 0)))

    assert (judged.exit_code, checks(judged)["fused.default:eager-calls"].status) == (
        EXIT_OK,
        "not observed",
    )
    assert asked.exit_code == EXIT_INCONCLUSIVE


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        pytest.param(1, EXIT_NOTHING_MEASURED, id="allowed"),
        pytest.param(0, EXIT_GATE_FAILED, id="not allowed"),
    ],
)
def test_no_limit_makes_a_program_without_a_graph_pass(limit: int, code: int) -> None:
    found = with_calls(profile(finding()), calls=20, with_a_graph=0)

    judged = judge(found, settings(("graph-breaks", limit)))

    assert judged.exit_code == code
    assert any(
        "not one compiled graph ran in 20 calls" in t
        for t in (judged.verdict.text, *judged.verdict.reasons)
    )


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"calls": 20, "with_a_graph": 0, "unknown": 20}, id="compiled before"),
        pytest.param(
            {"calls": 20, "with_a_graph": 0, "graph_runs": 3}, id="a graph outside of the calls"
        ),
        pytest.param({"calls": 0, "with_a_graph": 0}, id="no call"),
    ],
)
def test_what_may_have_run_a_graph_is_not_said_to_have_run_none(fields: dict[str, int]) -> None:
    assert judge(with_calls(profile(), **fields), settings()).exit_code == EXIT_OK
