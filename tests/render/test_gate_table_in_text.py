"""The gate as a terminal and a log show it."""

from __future__ import annotations

import msgspec

from kgprof.gate import judge
from kgprof.model import Finding, Level, Location
from kgprof.render import by_name
from tests.gate import gated
from tests.render import profiles


def text(*findings: Finding, **how: object) -> list[str]:
    return by_name("text").render(judge(gated.profile(*findings), gated.settings(**how))).splitlines()  # type: ignore[arg-type]


def test_a_failed_gate_shows_each_line_then_the_budgets_then_the_verdict() -> None:
    call = Location(file=f"{gated.ROOT}/train.py", line=40, function="main")
    recompiled = msgspec.structs.replace(
        gated.finding("KGP103", line=7, count=4, message="size of x changed"), related=(call,)
    )

    assert text(gated.finding(), recompiled) == [
        "src/model.py:12: KGP101 graph break (GB0059): print() is called [fused.default]",
        "    12 |     print(x)",
        "       |     ^",
        "src/model.py:7: KGP103 size of x changed (4 times) [fused.default]",
        "     7 |     print(x)",
        "       |     ^",
        "    related: train.py:40 in main",
        "",
        "run            budget          limit  observed  accepted",
        "fused.default  graph-breaks        0         1            exceeded",
        "fused.default  skipped-frames      0         0            held",
        "fused.default  recompiles          0         4            exceeded",
        "fused.default  eager-calls         0         0            held",
        "the default backend, --fail-on error, 2 findings",
        "",
        "FAILED: gate failed: fused.default: 1 over the budget of 0 graph-breaks",
        "  also: fused.default: 4 over the budget of 0 recompiles",
    ]


def test_what_does_not_fail_the_gate_stands_last_with_its_level() -> None:
    lines = text(gated.finding("KGP107", level=Level.NOTE, line=3), gated.finding())

    assert [line.split()[1] for line in lines if line.startswith("src/")] == ["KGP101", "note"]


def test_an_accepted_and_an_expired_finding_say_who_and_why() -> None:
    lines = text(gated.finding(), entries=[gated.entry(), gated.entry("KGP102", expires="2026-01-01")])

    assert lines[:2] == [
        "src/model.py:12: accepted KGP101 graph break (GB0059): print() is called [fused.default]",
        "    accepted by ana, until 2027-01-31: it is a demo",
    ]
    assert "expired on 2026-01-01: accepted finding KGP102 in src/model.py:step (ana, it is a demo)" in lines


def test_the_caret_stands_under_the_first_character_also_after_tabs() -> None:
    place = Location(file=f"{gated.ROOT}/a.py", line=1, text="\t  x = y\n")

    lines = text(msgspec.structs.replace(gated.finding(), location=place))

    assert lines[1:3] == ["     1 |       x = y", "       |       ^"]


def test_what_was_not_observed_is_a_dash_and_a_reason() -> None:
    judged = judge(gated.profile(), gated.settings(("cudagraph-skips", 0)))

    lines = by_name("text").render(judged).splitlines()

    assert "fused.default  cudagraph-skips      0         -            not observed" in lines
    assert "not observed: CUDA graphs are not observable on a CPU run" in lines
    assert lines[-1].startswith("INCONCLUSIVE: no verdict, not everything was observed: fused.default: cudagraph-skips")


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

    assert "| fused.default | graph-breaks | 0 sites | **1** | **exceeded** |" in markdown
    assert "**Failed:** gate failed: `fused.default`: 1 over the budget of 0 graph-breaks" in markdown
