"""A program that raised: three lines in the terminal, and a page of its own."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kgprof.analysis import analyse
from kgprof.document import failures
from kgprof.model import Exit, Failure, Location, Profile, RunKey, RunRecord, VerdictStatus
from kgprof.render.html import Html
from tests.analysis.recordings import died, recording, run

STEP, OTHER = RunKey(strategy="step", mode="as-is"), RunKey(strategy="step", mode="default")
LINE = Location(
    file="/home/x/model.py", line=33, function="step", text='    raise ValueError("layer 3")'
)
RAISED = Failure(error="ValueError: layer 3", location=LINE, step=1, steps=20)


def raised(key: RunKey, failure: Failure | None = RAISED, during: str = "compile") -> RunRecord:
    ended = Exit(
        outcome="raised",
        message="ValueError: layer 3",
        traceback="Traceback (most recent call last):\n  <all of it>",
        during=during,
        failure=failure,
    )
    return msgspec.structs.replace(died(key), exit=ended)


def of(*records: RunRecord) -> Profile:
    whole = recording(*records, baseline=None)
    plan = whole.header.plan
    environment = msgspec.structs.replace(plan.environment, source_root="/home/x")
    plan = msgspec.structs.replace(plan, environment=environment)
    return analyse(
        msgspec.structs.replace(whole, header=msgspec.structs.replace(whole.header, plan=plan))
    )


def told(profile: Profile) -> list[str]:
    every = failures.failed(profile)
    return [line for one in every for line in failures.lines(one, Path("/nowhere/log.txt"))]


def test_the_terminal_gets_the_place_the_line_and_the_step() -> None:
    assert told(of(raised(STEP))) == [
        "model.py:33: ValueError: layer 3",
        '    33 | raise ValueError("layer 3")',
        "step.as-is: in step 1 of 20 of COMPILE, before anything was measured",
    ]


def test_one_line_that_raised_in_several_runs_is_told_once() -> None:
    lines = told(of(raised(STEP), raised(OTHER)))

    assert len(lines) == 3
    assert lines[-1].startswith("step.as-is and 1 other run: in step 1 of 20 of COMPILE")


def test_a_line_that_may_not_be_quoted_is_left_out() -> None:
    quiet = msgspec.structs.replace(RAISED, location=msgspec.structs.replace(LINE, text=""))

    assert [line[:12] for line in told(of(raised(STEP, quiet)))] == ["model.py:33:", "step.as-is: "]


def test_what_was_measured_before_is_not_denied() -> None:
    late = msgspec.structs.replace(RAISED, step=None, steps=None)
    ended = Exit(outcome="raised", during="timing", failure=late)
    measured = msgspec.structs.replace(run(STEP), exit=ended)

    assert told(of(measured))[-1] == "step.as-is: during TIMING"


@pytest.mark.parametrize(
    ("during", "step", "steps", "where"),
    [
        ("plan", None, None, "while it was loaded"),
        ("prepare", None, None, "while it was loaded"),
        ("script", 1_205, None, "after step 1,204 of the program"),
        ("script", 1, None, "before its first step ended"),
        ("script", None, None, "in the program"),
        ("memory", 3, 20, "in step 3 of 20 of MEMORY"),
        ("timing", None, None, "during TIMING"),
    ],
)
def test_where_it_ended(during: str, step: int | None, steps: int | None, where: str) -> None:
    failure = msgspec.structs.replace(RAISED, step=step, steps=steps)

    assert Exit(outcome="raised", during=during, failure=failure).where == where


def test_the_page_of_a_program_of_which_nothing_was_measured_is_its_failure() -> None:
    profile = of(raised(STEP))
    page = Html().render(profile)

    assert profile.verdict.status is VerdictStatus.FAILED
    assert profile.verdict.text == (
        "model.py:33: ValueError: layer 3 (step.as-is, in step 1 of 20 of COMPILE)"
    )
    assert not profile.verdict.reasons
    assert not profile.actions
    for anchor in ("failure", "logs", "environment", "contents"):
        assert f'aria-labelledby="{anchor}"' in page
    for anchor in ("findings", "kernels", "results", "gaps", "compile", "checklist"):
        assert f'aria-labelledby="{anchor}"' not in page
    assert 'class="tiles"' not in page
    assert "&lt;all of it&gt;" in page


def test_a_page_with_a_run_that_was_measured_has_the_failure_and_everything_else() -> None:
    page = Html().render(of(run(STEP), raised(OTHER)))

    assert 'aria-labelledby="failure"' in page
    assert 'aria-labelledby="results"' in page


def test_a_run_that_was_killed_has_no_line_that_raised() -> None:
    profile = of(raised(STEP, failure=None))

    assert told(profile) == []
    assert 'aria-labelledby="failure"' not in Html().render(profile)
    assert "KGP504" in {finding.rule for finding in profile.findings}
