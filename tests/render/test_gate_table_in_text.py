"""The gate as a terminal and a log show it."""

from __future__ import annotations

import json

import msgspec

from kgprof.collectors.compile.graph_breaks import GRAPH_BREAK
from kgprof.collectors.compile.recompiles import IN_STEADY_STATE
from kgprof.gate import judge
from kgprof.model import Finding, Level, Location
from kgprof.render import by_name
from tests.gate import gated
from tests.render import profiles


def text(*findings: Finding, **how: object) -> list[str]:
    return (
        by_name("text").render(judge(gated.profile(*findings), gated.settings(**how))).splitlines()
    )  # type: ignore[arg-type]


def test_a_failed_gate_shows_each_line_then_the_budgets_then_the_verdict() -> None:
    call = Location(file=f"{gated.ROOT}/train.py", line=40, function="main")
    recompiled = msgspec.structs.replace(
        gated.finding("KGP103", line=7, count=4, message="size of x changed"), related=(call,)
    )

    assert text(gated.finding(), recompiled) == [
        "src/model.py:12: KGP101 graph break (GB0059): print() is called [fused.default]",
        "    12 |     print(x)",
        "       |     ^",
        f"    what to do: {GRAPH_BREAK.remedy}",
        "src/model.py:7: KGP103 size of x changed (4 times) [fused.default]",
        "     7 |     print(x)",
        "       |     ^",
        f"    what to do: {IN_STEADY_STATE.remedy}",
        "    related: train.py:40 in main",
        "",
        "run            budget             limit  observed  status",
        "fused.default  graph-breaks     0 sites    1 site  exceeded",
        "fused.default  recompiles      0 events  4 events  exceeded",
        "fused.default  skipped-frames   0 sites   0 sites  held",
        "fused.default  eager-calls      0 calls   0 calls  held",
        "no --backend, --fail-on error, 2 findings",
        "",
        "FAILED: gate failed: fused.default: 1 over the budget of 0 graph-breaks",
        "  also: fused.default: 4 over the budget of 0 recompiles",
    ]


def test_a_finding_says_its_fix_or_torchs_hint_and_not_torchs_debug_context() -> None:
    vague = "This graph break is fundamental - it is unlikely that Dynamo will ever trace it."
    hinted = gated.finding(line=1, hints=("Set torch._dynamo.config.allow_rnn=True", vague))
    fixed = msgspec.structs.replace(
        gated.finding(line=2, hints=("never shown",)), fix="if a:\n    b = 2"
    )
    hopeless = gated.finding("KGP102", level=Level.NOTE, line=3, by_torch=True)

    lines = text(hinted, fixed, hopeless)

    assert "    torch's hint: Set torch._dynamo.config.allow_rnn=True" in lines
    assert lines[lines.index("    to try: if a:") + 1] == "                b = 2"
    assert "    no fix as code: torch means it" in lines
    for unwanted in ("Developer debug context", "fundamental", "never shown", "what to do"):
        assert unwanted not in "\n".join(lines)


def test_that_a_raise_may_raise_in_eager_is_no_hint() -> None:
    doubt = "Your code may result in an error when running in eager. Please double check that."

    lines = "\n".join(text(gated.finding(line=1, hints=(doubt,))))

    assert "double check" not in lines
    assert "what to do: " in lines


def test_the_remedy_of_a_rule_is_said_once_and_only_of_what_fails() -> None:
    failed = "\n".join(text(gated.finding(line=1), gated.finding(line=2)))
    noted = "\n".join(text(gated.finding("KGP103", level=Level.NOTE)))

    assert (failed.count("what to do: "), noted.count("what to do: ")) == (1, 0)


def test_a_machine_reads_what_fails_as_an_error_with_its_fix() -> None:
    fails = msgspec.structs.replace(gated.finding(line=1), fix="x = 1")
    severe = gated.finding("KGP107", level=Level.ERROR, line=2)
    judged = judge(gated.profile(fails, severe), gated.settings())
    excused = judge(gated.profile(fails, severe), gated.settings(fail_on="never"))

    for profile, levels in ((judged, ["error", "error"]), (excused, ["warning", "warning"])):
        results = json.loads(by_name("sarif").render(profile))["runs"][0]["results"]
        assert [result["level"] for result in results] == levels
        annotations = by_name("github").render(profile)
        assert annotations.count("%0Ato try: x = 1") == 1
        assert [f"::{level} file=src/model.py,line=1," in annotations for level in levels[:1]] == [
            True
        ]
    assert results[0]["message"]["text"] == "graph break (GB0059): print() is called\nto try: x = 1"
    assert "print() is called\nto try: x = 1</failure>" in by_name("junit").render(judged)


def test_what_does_not_fail_the_gate_stands_last_with_its_level() -> None:
    lines = text(gated.finding("KGP107", level=Level.NOTE, line=3), gated.finding())

    assert [line.split()[1] for line in lines if line.startswith("src/")] == ["KGP101", "note"]


def test_an_accepted_and_an_expired_finding_say_who_and_why() -> None:
    lines = text(
        gated.finding(), entries=[gated.entry(), gated.entry("KGP102", expires="2026-01-01")]
    )

    assert lines[:2] == [
        "src/model.py:12: accepted KGP101 graph break (GB0059): print() is called [fused.default]",
        "    accepted by ana, until 2027-01-31: it is a demo",
    ]
    assert (
        "expired on 2026-01-01: accepted finding KGP102 in src/model.py:step (ana, it is a demo)"
        in lines
    )


def test_the_caret_stands_under_the_first_character_also_after_tabs() -> None:
    place = Location(file=f"{gated.ROOT}/a.py", line=1, text="\t  x = y\n")

    lines = text(msgspec.structs.replace(gated.finding(), location=place))

    assert lines[1:3] == ["     1 |       x = y", "       |       ^"]


def test_what_was_not_observed_is_a_dash_and_a_reason() -> None:
    judged = judge(gated.profile(), gated.settings(("cudagraph-skips", 0)))

    lines = by_name("text").render(judged).splitlines()

    row = next(line for line in lines if "cudagraph-skips" in line)
    reason = "CUDA graphs are not observable on a CPU run"
    assert row.endswith(f"  0 sites  \N{EN DASH} ({reason})  not observed")
    assert lines[-1].startswith(
        "INCONCLUSIVE: no verdict, not everything was observed: fused.default: cudagraph-skips"
    )


def test_hostile_names_steer_no_terminal_and_no_ci_system() -> None:
    found = [
        Finding(
            rule="KGP101",
            level=Level.ERROR,
            message=hostile,
            run=gated.FUSED,
            location=Location(file=hostile, line=1, function=hostile, text=hostile),
        )
        for hostile in profiles.HOSTILE
    ]

    lines = text(*found)

    assert not [line for line in lines if line.lstrip().startswith("::")]
    assert "\x1b" not in "".join(lines)
    assert "\u202e" not in "".join(lines)


def test_the_summary_for_a_pull_request_shows_the_budgets() -> None:
    markdown = by_name("markdown").render(judge(gated.profile(gated.finding()), gated.settings()))

    assert "| fused.default | graph-breaks | 0 sites | **1 site** | **exceeded** |" in markdown
    assert (
        "**Failed:** gate failed: `fused.default`: 1 over the budget of 0 graph-breaks" in markdown
    )
