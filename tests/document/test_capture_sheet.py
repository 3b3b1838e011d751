"""The sheet of a capture says what to write, and of each case what came of it, whatever its texts
hold."""

from __future__ import annotations

import pytest

from kgprof import model as m
from kgprof.document.capture_sheet import capture_sheet
from kgprof.model import CaptureCase, CaptureOutcome, CaptureWay
from kgprof.render import sheet
from tests.lab.test_captures import environment

HOSTILE = "<script>x</script>\x1b[31m"
FAR = m.CaptureDifference(
    of="result",
    index=(3, 7),
    expected="1.5",
    got="-2",
    largest=3.5,
    tolerance=0.01,
    differing=9,
    elements=10,
    dtype="float32",
)


def report(
    *results: m.CaptureResult, advice: m.CaptureAdvice | None = None, **fields: object
) -> m.CaptureReport:
    return m.CaptureReport(
        created_utc="2026-11-23T06:00:00+00:00",
        command=("kgprof", "capture"),
        workload="model.py:step",
        strategy="step",
        environment=environment(),
        timeout_s=150.0,
        results=results,
        advice=advice or m.Skipped(reason="no way was tried"),
        **fields,  # type: ignore[arg-type]
    )


def result(outcome: CaptureOutcome, **fields: object) -> m.CaptureResult:
    case = CaptureCase(way=CaptureWay.CAPTURE, mode="default")
    return m.CaptureResult(case=case, name=case.name, outcome=outcome, **fields)  # type: ignore[arg-type]


def test_a_wrong_element_is_shown_with_its_place_and_both_values() -> None:
    answer = m.CaptureAnswer(
        phase="replay", outcome=CaptureOutcome.WRONG, difference=FAR, stale=True
    )
    page = capture_sheet(report(result(CaptureOutcome.WRONG, answer=answer)))

    row = next(
        line for line in sheet.markdown(page).splitlines() if line.startswith("| capture-default")
    )
    assert "**WRONG**" in row
    assert "old inputs" in row
    assert (
        r"result\[3, 7\] is -2, not 1.5; 9 of 10 differ" in row
        or "result[3, 7] is -2, not 1.5; 9 of 10 differ" in row
    )
    assert page.status is m.VerdictStatus.FAILED


def test_stacks_and_tracebacks_are_on_the_page_and_cannot_run() -> None:
    at = m.Location(file="model.py", line=12, function="step", text=HOSTILE)
    raised = m.CaptureAnswer(
        phase="capture", outcome=CaptureOutcome.RAISED, why=HOSTILE, at=at, traceback=HOSTILE
    )
    page = sheet.html(
        capture_sheet(
            report(
                result(CaptureOutcome.RAISED, answer=raised, why=HOSTILE),
                result(
                    CaptureOutcome.HUNG,
                    stacks="File model.py, line 3 in step",
                    native_stacks="#0 futex_wait",
                ),
            )
        )
    )

    assert "<script>x" not in page
    assert "\x1b" not in page
    assert "model.py:12 in step" in page
    assert "line 3 in step" in page
    assert "#0 futex_wait" in page


@pytest.mark.parametrize(
    ("confidence", "status"),
    [(m.Confidence.HIGH, m.VerdictStatus.OK), (m.Confidence.MEDIUM, m.VerdictStatus.ATTENTION)],
)
def test_the_verdict_is_the_recommendation_and_as_sure_as_it(
    confidence: m.Confidence, status: str
) -> None:
    advice = m.CaptureAdvice(
        case="capture-default",
        summary="Capture it.",
        code="graph.replay()",
        reason="It is the fastest.",
        confidence=confidence,
        because=("nothing else was tried",),
        warnings=("x must not be rebound",),
    )
    page = capture_sheet(report(result(CaptureOutcome.CORRECT), advice=advice))

    assert (page.status, page.verdict) == (status, "Capture it.")
    text = sheet.text(page)
    for words in (
        "graph.replay()",
        "It is the fastest.",
        "nothing else was tried",
        "x must not be rebound",
    ):
        assert words in text


def test_no_case_that_could_be_run_is_said_with_its_reason() -> None:
    page = capture_sheet(report(result(CaptureOutcome.NOT_APPLICABLE, why="no CUDA device")))

    assert (page.status, page.verdict) == (
        m.VerdictStatus.INCONCLUSIVE,
        "No case could be run: no CUDA device.",
    )
    assert (page.sections, page.pictures) == ([], ())


@pytest.mark.parametrize(
    ("worst", "status"),
    [(CaptureOutcome.NOT_APPLICABLE, "inconclusive"), (CaptureOutcome.HUNG, "failed")],
)
def test_without_a_recommendation_only_what_went_wrong_is_a_failure(
    worst: CaptureOutcome, status: str
) -> None:
    page = capture_sheet(report(result(CaptureOutcome.CORRECT), result(worst)))

    assert page.status == status


def test_an_interruption_names_what_was_not_tried() -> None:
    page = capture_sheet(
        report(result(CaptureOutcome.CORRECT), interrupted=True, not_tried=("callables-eager",))
    )

    assert "callables-eager" in sheet.text(page)
