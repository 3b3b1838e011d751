"""What could not be seen is in no sentence "pass", "fixed", "checked" or "OK": every rule, every
pass, every verb.

The truth is the program itself: each rule's case shows it, and a part of the same recording is
taken away. If nothing is found by the rule any more, it could not be seen in what is left, whatever
``seen_in`` says.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from kgprof import coverage
from kgprof.analysis import analyse
from kgprof.collectors import RULES
from kgprof.collectors.trust.witnesses import WITNESSES
from kgprof.compare import compare
from kgprof.gate import judge
from kgprof.gate.metrics import METRICS
from kgprof.model import (
    Budget,
    BudgetStatus,
    CompilePass,
    CompileRecords,
    Coverage,
    CoverageStatus,
    FailOn,
    FindingCost,
    FindingStatus,
    GateSettings,
    MemoryPass,
    PassName,
    PracticeStatus,
    Profile,
    Recording,
    Rule,
    RunRecord,
    Skipped,
    Unavailable,
    Witness,
)
from kgprof.reading import layout
from kgprof.render import by_name
from tests import scratch
from tests.contract.rule_cases import CASES
from tests.gathering import for_all

every_rule = for_all(RULES, lambda rule: rule.id)
GONE = Skipped(reason="it was taken away")
ALWAYS = ("KGP504",)  # speaks of a recording that has nothing


# ---------------------------------------------------------------- what is taken away


def _without(*fields: str) -> Callable[[RunRecord], RunRecord]:
    return lambda run: msgspec.structs.replace(run, **dict.fromkeys(fields, GONE))


def _without_capture(name: str, *kinds: str) -> Callable[[RunRecord], RunRecord]:
    """A hook or a log of torch's that this torch does not have."""

    def taken(run: RunRecord) -> RunRecord:
        if not isinstance(run.compile, CompilePass) or not isinstance(run.records, CompileRecords):
            return run
        lost = (
            *run.compile.capture_unavailable,
            Unavailable(capture=name, why="this torch has none"),
        )
        records = msgspec.structs.replace(run.records, **dict.fromkeys(kinds, ()))
        passed = msgspec.structs.replace(run.compile, capture_unavailable=lost)
        return msgspec.structs.replace(run, compile=passed, records=records)

    return taken


def _without_room(run: RunRecord) -> RunRecord:
    """More records than are kept."""
    if not isinstance(run.records, CompileRecords):
        return run
    cut = msgspec.structs.replace(
        run.records, records=(), frames=(), graphs=(), logs=(), left_out=99
    )
    return msgspec.structs.replace(run, records=cut)


def _all_of_it_warm_up(run: RunRecord) -> RunRecord:
    compiled, memory = run.compile, run.memory
    if isinstance(compiled, CompilePass):
        compiled = msgspec.structs.replace(compiled, steady_from=len(compiled.call_us))
    if isinstance(memory, MemoryPass):
        memory = msgspec.structs.replace(memory, steady_from=len(memory.step_us))
    return msgspec.structs.replace(run, compile=compiled, memory=memory)


def _without_in_memory(part: str, capture: str) -> Callable[[RunRecord], RunRecord]:
    def taken(run: RunRecord) -> RunRecord:
        if not isinstance(run.memory, MemoryPass) or isinstance(getattr(run.memory, part), Skipped):
            return run
        lost = (Unavailable(capture=capture, why="this torch has none"),)
        empty = type(getattr(run.memory, part))()
        memory = msgspec.structs.replace(run.memory, **{part: empty}, capture_unavailable=lost)
        return msgspec.structs.replace(run, memory=memory)

    return taken


_COMPILE, _TRACE = ("compile", "records"), ("trace", "kernels", "stack")
LOSSES: Mapping[str, Callable[[RunRecord], RunRecord]] = {
    "COMPILE": _without(*_COMPILE),
    "records": _without_room,
    "structured trace": _without_capture("structured trace", "records"),
    "frame hook": _without_capture("frame hook", "frames"),
    "graph hook": _without_capture("graph hook", "graphs"),
    "cuda graph log": _without_capture("cuda graph log", "logs"),
    "TIMING": _without("timing"),
    "TRACE": _without(*_TRACE),
    "MEMORY": _without("memory"),
    "sync hooks": _without_in_memory("syncs", "sync hooks"),
    "tensor probe": _without_in_memory("tensors", "tensor probe"),
    "evaluation": _without("evaluation"),
    "steps after warm-up": _all_of_it_warm_up,
    # what the other verbs have
    "check-graphs": _without("timing", "memory", "evaluation", *_TRACE),
    "check-graphs with a budget on syncs": _without("timing", "evaluation", *_TRACE),
    "trace": _without("timing", "memory", "evaluation", *_COMPILE),
    "watch": _without("timing", "evaluation", *_TRACE),
}
PASSES = {
    "check-graphs": (PassName.COMPILE,),
    "check-graphs with a budget on syncs": (PassName.COMPILE, PassName.MEMORY),
}
WITHOUT_RESULTS = (*PASSES, "trace", "watch")


def parts(recording: Recording) -> Iterator[tuple[str, Recording]]:
    """The recording with one thing less each time, or as another verb would have made it."""
    yield "results", msgspec.structs.replace(recording, agreement=GONE)
    for name, take in LOSSES.items():
        agreement = GONE if name in WITHOUT_RESULTS else recording.agreement
        header = recording.header
        if name in PASSES:
            options = msgspec.structs.replace(header.options, passes=PASSES[name])
            header = msgspec.structs.replace(header, options=options)
        runs = tuple(map(take, recording.runs))
        yield (
            name,
            msgspec.structs.replace(recording, header=header, runs=runs, agreement=agreement),
        )


def rules_found(profile: Profile) -> set[str]:
    return {finding.rule for finding in profile.findings}


def escapes(rule: Rule) -> list[tuple[str, Profile, Profile]]:
    """What was taken away so that the rule sees nothing: its name, the whole Profile and the one
    that is left."""
    whole = CASES[rule.id].written
    profile = analyse(whole)
    assert rule.id in rules_found(profile)
    left = ((name, analyse(part)) for name, part in parts(whole))
    return [(name, profile, after) for name, after in left if rule.id not in rules_found(after)]


# ---------------------------------------------------------------- the contract


@every_rule
def test_what_could_not_be_seen_is_said_to_be_nothing_else(rule: Rule) -> None:
    escaped = [] if rule.id in ALWAYS else escapes(rule)
    assert escaped or rule.id in ALWAYS, "nothing that can be taken away hides it"

    for name, whole, left in escaped:
        answers = [row for row in left.coverage if rule.id in row.rules]
        mine = {finding.run for finding in whole.findings if finding.rule == rule.id}
        for row in answers:
            assert row.run not in mine or row.status is CoverageStatus.NOT_LOOKED_FOR, (name, row)
        _is_not_checked(rule, left)
        _is_no_pass(rule, whole, left)
        _is_neither_new_nor_fixed(rule, whole, left)
        _is_within_no_budget(rule, left)


def _is_not_checked(rule: Rule, left: Profile) -> None:
    """It is listed as not measured, with the reason, and by no form as checked (if all runs are
    alike)."""
    gaps = [gap for gap in left.omissions if rule.id in gap.what]
    assert gaps
    assert all(gap.reason for gap in gaps)
    if any(rule.id in row.rules and not row.missing for row in left.coverage):
        return
    assert rule not in coverage.checked(left.coverage, left.rules)
    if not left.findings:
        markdown, text = (by_name(form).render(left) for form in ("markdown", "text"))
        checked = markdown.partition("rules checked: ")[2].partition(")")[0]
        assert rule.id not in checked
        assert f"no finding; {coverage.tally(left.coverage, left.rules)}" in text


def _is_no_pass(rule: Rule, whole: Profile, left: Profile) -> None:
    """A practice that fails by a finding of the rule does not pass for want of looking."""
    marks = {finding.fingerprint for finding in whole.findings if finding.rule == rule.id}
    failed = {
        item.id
        for item in whole.checklist
        if item.status is PracticeStatus.FAIL and marks & {*item.findings}
    }
    assert not [
        item for item in left.checklist if item.id in failed and item.status is PracticeStatus.PASS
    ]


def _is_neither_new_nor_fixed(rule: Rule, whole: Profile, left: Profile) -> None:
    for base, head in ((whole, left), (left, whole)):
        found = compare(base, head)
        assert found.comparison is not None
        mine = [each for each in found.comparison.findings if each.finding.rule == rule.id]
        assert {each.status for each in mine} == {FindingStatus.NOT_LOOKED_FOR}
        assert not any(each.fails for each in mine)
        side = "head" if head is left else "base"
        text, markdown = (by_name(form).render(found) for form in ("text", "markdown"))
        assert f"not looked for in {side}" in text
        assert f"not looked for in {side}" in markdown
        assert not [
            line
            for line in text.splitlines()
            if line.strip().startswith("fixed ") and rule.id in line
        ]
        assert f"<s>**{rule.id}**" not in markdown


def _is_within_no_budget(rule: Rule, left: Profile) -> None:
    """The gate does not call a budget met that counts the rule."""
    budgets = tuple(
        Budget(metric=metric.name, limit=1e9, scope="", origin="--max")
        for metric in METRICS
        if rule.id in metric.rules
    )
    if not budgets:
        return
    settings = GateSettings(
        budgets=budgets, fail_on=FailOn.NEVER, backend="", accepted=(), accepted_path=""
    )
    gate = judge(left, settings).gate
    assert gate is not None
    mine = [check for check in gate.budgets if coverage.missing(left.coverage, check.run, rule.id)]
    assert mine
    assert {check.status for check in mine} == {BudgetStatus.NOT_OBSERVED}


# --------------------------------------------------------------- a trace whose steps are not marked


@every_rule
def test_without_marks_of_steps_a_rule_is_judged_over_the_window_or_not_at_all(rule: Rule) -> None:
    whole = CASES[rule.id].written
    folder = scratch.new_folder()
    unmarked = msgspec.structs.replace(whole, folder=str(folder))
    for run in whole.runs:
        path = layout.run_folder(Path(whole.folder), run.key) / layout.TRACE_FILES[PassName.TRACE]
        if not path.is_file():
            return
        trace = json.loads(gzip.decompress(path.read_bytes()))
        trace["traceEvents"] = [
            e for e in trace["traceEvents"] if not e["name"].startswith("ProfilerStep#")
        ]
        there = layout.run_folder(folder, run.key) / path.name
        there.parent.mkdir(parents=True)
        there.write_bytes(gzip.compress(json.dumps(trace).encode()))

    found = analyse(unmarked)

    assert rule.id in rules_found(found) or all(
        row.status is CoverageStatus.NOT_LOOKED_FOR
        for row in found.coverage
        if rule.id in row.rules
    )
    in_time = any(Witness.TRACE in way for way in rule.seen_in)
    units = {
        finding.cost.unit for finding in found.findings if isinstance(finding.cost, FindingCost)
    }
    assert not in_time or units <= {"us/window"}


# ---------------------------------------------------------------- the table itself


@every_rule
def test_each_rule_has_one_answer_in_each_run(rule: Rule) -> None:
    profile = analyse(CASES[rule.id].written)

    for run in profile.runs:
        answers = [
            row
            for row in profile.coverage
            if row.run == run.key
            for name in row.rules
            if name == rule.id
        ]
        assert len(answers) == 1
        assert bool(answers[0].looked_at) != bool(answers[0].missing) or rule.id in ALWAYS
    seen = {
        row.run
        for row in profile.coverage
        if rule.id in row.rules and row.status is CoverageStatus.SEEN
    }
    found = {finding.run for finding in profile.findings if finding.rule == rule.id}
    assert found - {None} <= seen


def test_every_witness_is_asked_for_and_answered() -> None:
    asked = {witness for rule in RULES for way in rule.seen_in for witness in way}

    # METADATA: of reports that an earlier version wrote
    assert set(WITNESSES) == set(Witness) - {Witness.METADATA} == asked


def test_a_report_without_the_table_has_looked_for_nothing() -> None:
    """Of an earlier kgprof: what it did not find is neither fixed nor new against it."""
    rule = next(rule for rule in RULES if rule.id == "KGP101")
    profile = analyse(CASES[rule.id].written)
    old = msgspec.structs.replace(profile, findings=(), coverage=())

    _is_neither_new_nor_fixed(rule, profile, old)
    assert coverage.tally(old.coverage, old.rules) == "which rules were checked is not known"


def test_a_rule_that_the_other_kgprof_does_not_have_was_not_looked_for() -> None:
    profile = analyse(CASES["KGP101"].written)
    (run,) = profile.runs
    row = Coverage(
        run=run.key,
        rules=("KGP102",),
        status=CoverageStatus.NOT_SEEN,
        looked_at="COMPILE, 20 calls",
    )

    assert coverage.missing((row,), run.key, "KGP102") == ""
    assert coverage.missing((row,), run.key, "KGP101") == coverage.UNKNOWN_RULE


def test_a_report_of_the_first_kgprof_is_read() -> None:
    """Its rules name these witnesses, and it has no coverage."""
    named = (
        "COMPILE",
        "calls",
        "frame hook",
        "graph hook",
        "cuda graph log",
        "TIMING",
        "TRACE",
        "reads",
        "tensors",
    )
    named += ("results", "evaluation", "eager times", "CPU", "CUDA")
    document = msgspec.to_builtins(analyse(CASES["KGP101"].written))
    del document["coverage"]
    document["rules"][0]["seen_in"] = [list(named)]

    read = msgspec.convert(document, Profile)

    assert read.coverage == ()
    assert read.rules[0].seen_in == (tuple(map(Witness, named)),)
