"""What is recommended from which outcomes, with which confidence, and what is warned of."""

from __future__ import annotations

import ast

import msgspec
import pytest

from kgprof import model as m
from kgprof.analysis.capture_advice import advise
from kgprof.measures.times import spread
from kgprof.model import Beside, CaptureCase, CaptureOutcome, CaptureWay, Confidence

X = m.CaptureInput(name="x", shape=(8, 4), dtype="float32", declared=False)
ODD = m.CaptureInput(name="cache['k']", shape=(8, 4), dtype="float32", declared=False)
CAPTURE, CALL, CALLABLES = CaptureWay.CAPTURE, CaptureWay.CALL, CaptureWay.CALLABLES


def result(
    case: CaptureCase,
    us: float | None = None,
    *,
    copies: float | None = None,
    outcome: CaptureOutcome = CaptureOutcome.CORRECT,
    noise: float = 0.0,
    inputs: tuple[m.CaptureInput, ...] = (X,),
    **answer: object,
) -> m.CaptureResult:
    """A case whose call takes ``us`` microseconds, from ``1 - noise`` to ``1 + noise`` of it."""
    given = m.CaptureAnswer(phase="timing", outcome=outcome, inputs=inputs, **answer)  # type: ignore[arg-type]
    for name, value in (("call_us", us), ("copies_us", copies)):
        if value is not None:
            samples = [value * (1 - noise), value, value * (1 + noise)]
            given = msgspec.structs.replace(
                given, **{name: spread(samples, unit="us", measured_in=m.PassName.TIMING)}
            )
    return m.CaptureResult(case=case, name=case.name, outcome=outcome, answer=given)


def case(way: CaptureWay, mode: str, **changes: object) -> CaptureCase:
    return CaptureCase(way=way, mode=mode, **changes)  # type: ignore[arg-type]


def advised(*results: m.CaptureResult) -> m.CaptureAdvice:
    advice = advise(results, "step")
    assert isinstance(advice, m.CaptureAdvice)
    ast.parse(advice.code)
    return advice


def test_the_fastest_correct_way_is_recommended_with_code_that_copies_its_inputs() -> None:
    advice = advised(
        result(case(CALL, m.EAGER), 100.0),
        result(case(CALL, "default"), 60.0),
        result(case(CAPTURE, "default"), 10.0, copies=2.0),
        result(case(CAPTURE, "default", warmups=1), 10.0, copies=2.0),
    )

    assert (advice.case, advice.confidence) == ("capture-default", Confidence.HIGH)
    lines = advice.code.splitlines()
    assert lines[0] == "compiled = torch.compile(step)"
    assert "    for _ in range(3):" in lines
    assert lines[-3].startswith("x.copy_(new_x)")
    assert lines[-2] == "graph.replay()"


@pytest.mark.parametrize(
    ("declared", "better"), [(True, "reduce-overhead"), (False, "capture-default")]
)
def test_copies_count_against_a_capture_where_the_changing_inputs_are_declared(
    declared: bool, better: str
) -> None:
    inputs = (msgspec.structs.replace(X, declared=declared),)
    advice = advised(
        result(case(CALL, "reduce-overhead"), 12.0, inputs=inputs),
        result(case(CAPTURE, "default"), 10.0, copies=5.0, inputs=inputs),
    )

    assert advice.case == better


def test_modes_with_graphs_of_their_own_are_marked_before_each_step() -> None:
    advice = advised(result(case(CALL, m.EAGER), 50.0), result(case(CALL, "reduce-overhead"), 12.0))

    assert "cudagraph_mark_step_begin()" in advice.code
    assert "torch.compile(step, mode='reduce-overhead')" in advice.code


def test_of_ways_within_the_noise_the_simpler_is_recommended_and_the_other_named() -> None:
    advice = advised(
        result(case(CALL, "reduce-overhead"), 11.0, noise=0.2),
        result(case(CAPTURE, "default"), 10.0, noise=0.2),
    )

    assert (advice.case, advice.confidence) == ("reduce-overhead", Confidence.MEDIUM)
    assert "capture-default" in " ".join(advice.because)


def test_a_wrong_way_is_not_recommended_however_fast_and_is_warned_of() -> None:
    wrong = CaptureOutcome.WRONG
    advice = advised(
        result(case(CALL, m.EAGER), 100.0),
        result(case(CAPTURE, m.EAGER), 1.0, outcome=wrong, stale=True),
        result(case(CAPTURE, "default"), 10.0),
        result(case(CAPTURE, "default", warmups=0), outcome=wrong),
    )

    assert (advice.case, advice.confidence) == ("capture-default", Confidence.MEDIUM)
    assert [warning.split()[0] for warning in advice.warnings] == [
        "capture-eager",
        "capture-default-cold",
    ]
    assert "old inputs" in advice.warnings[0]


@pytest.mark.parametrize(
    ("results", "because"),
    [
        ([result(case(CAPTURE, m.EAGER), 5.0, blind=True)], "old values"),
        ([result(case(CAPTURE, m.EAGER))], "nothing was timed"),
    ],
    ids=["inputs do not matter", "no times"],
)
def test_confidence_is_low_when_little_was_seen(
    results: list[m.CaptureResult], because: str
) -> None:
    advice = advised(*results)

    assert advice.confidence is Confidence.LOW
    assert because in advice.because[0]


def test_a_case_that_provokes_a_failure_is_no_way_to_write_it() -> None:
    advice = advise(
        [
            result(case(CAPTURE, m.EAGER, beside=Beside.RNG), 1.0),
            result(case(CALL, "default"), outcome=CaptureOutcome.RAISED),
        ],
        "step",
    )

    assert isinstance(advice, m.Skipped)
    assert "none of the 1" in advice.reason


def test_names_that_are_no_code_stand_for_themselves_in_no_code() -> None:
    advice = advised(
        result(case(CALL, m.EAGER), 50.0, inputs=(X, ODD)),
        result(case(CALLABLES, m.EAGER), 5.0, inputs=(X, ODD)),
    )

    assert advice.case == "callables-eager"
    assert "(x, input_1,)" in advice.code


def test_threads_that_allocate_are_warned_of_with_what_allows_them() -> None:
    threads = [
        case(CAPTURE, m.EAGER, beside=Beside.THREAD, error_mode=mode) for mode in m.ERROR_MODES
    ]
    advice = advised(
        result(case(CAPTURE, m.EAGER), 5.0),
        result(threads[0], outcome=CaptureOutcome.RAISED),
        *(result(each, 5.0) for each in threads[1:]),
    )

    assert "thread_local" in advice.warnings[-1]
