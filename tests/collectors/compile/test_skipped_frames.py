"""KGP102: the line that made a frame fall back, also where the trace says nothing about it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kgprof.collectors.compile import graph_breaks, skipped_frames
from kgprof.collectors.compile.skipped_frames import SkippedFrame
from kgprof.model import Finding, Folded, Level, Location, Refusal
from kgprof.reading.evidence import Evidence
from tests.analysis.recordings import FUSED
from tests.collectors import written
from tests.collectors.compile.test_graph_breaks import PRINTS, quoted
from tests.collectors.written import (
    CALLER,
    FILE,
    LOOP,
    PRINT,
    REPORT,
    REPORT_DEF,
    STEP,
    STEP_DEF,
    broken,
    compiled,
    offered,
)

STEPS_DEF = written.place(FILE, STEP_DEF, "step")
GENERATOR = (
    "Attempt to trace generator\n  Explanation: Not possible.\n\n For more "
    "details: https://x/gb/gb0003.html"
)


def collected(*lines: Any) -> tuple[SkippedFrame, ...]:
    return skipped_frames.collect(Evidence(written.recording(*lines)))


def test_what_is_compiled_in_calls_of_the_function_is_named() -> None:
    both = (written.begun("0/0"), written.begun("1/0"))
    lines = [
        *written.a_skipped_frame(),
        *compiled("1/0", REPORT),
        written.called(STEP, compilations=both),
    ]

    (found,) = collected(*lines)

    assert found.compiled_inside == ("report",)
    (finding,) = skipped_frames.diagnose((found,))
    assert finding.message.endswith("; compiled by themselves: report")


def test_a_callee_that_the_same_line_makes_eager_is_named() -> None:
    lines = [
        *compiled("0/0", STEP, fail_type="Unsupported"),
        broken("0/0", CALLER, LOOP, PRINT, prefix=written.GIVEN_UP),
        offered(STEP, "skipped", why="error"),
        *compiled("1/0", REPORT, fail_type="Unsupported"),
        broken("1/0", CALLER, LOOP, PRINT, prefix=written.GIVEN_UP),
        offered(REPORT, "skipped", why="error"),
    ]

    (found,) = skipped_frames.diagnose(collected(*lines))

    assert found.message.startswith("Model.step runs eagerly because of print: ")
    assert found.message.endswith("; eager as well: report")


WRAPPER = ("/lib/site-packages/torch/nn/modules/module.py", 1789, "_call_impl")
REFUSED_BY_BACKEND = (
    "Backend compiler exception\n  Explanation: Backend compiler `aot_eager` failed with "
    "aten.nonzero.default. Adding a graph break.\n  Hint: Report an issue to the backend compiler "
    "repo.\n\n  Developer debug context: Backend: aot_eager\n\n"
    " For more details: https://x/gb/gb0219.html"
)


@pytest.mark.parametrize("stack", [(CALLER, WRAPPER), (CALLER, LOOP)])
def test_what_a_backend_refuses_is_a_function_and_no_line_of_it(stack: Any) -> None:
    """torch names the line that called it, or at which it went on behind a break."""
    lines = [
        *compiled("0/0", STEP, fail_type="BackendCompilerFailed"),
        broken("0/0", *stack, reason=REFUSED_BY_BACKEND, prefix=written.GIVEN_UP),
        offered(STEP, "skipped", why="error"),
    ]

    (event,) = collected(*lines)
    (found,) = skipped_frames.diagnose((event,))

    assert (event.location, event.library) == (STEPS_DEF, None)
    assert found.message.startswith("Model.step runs eagerly: Backend compiler exception (GB0219)")
    assert found.no_fix.startswith("a backend refuses a graph as a whole")


def test_neither_the_skipped_code_nor_what_was_compiled_before_it_is_named() -> None:
    both = (written.begun("0/0"), written.begun("1/0"), written.begun("0/1", 1))
    lines = [
        *compiled("0/0", STEP),
        *compiled("1/0", REPORT),
        *compiled("0/1", STEP, call=1, fail_type="Unsupported", fail_reason=GENERATOR),
        broken("0/1", CALLER, LOOP, reason=GENERATOR, prefix=written.GIVEN_UP, call=1),
        written.called(STEP, compilations=both),
    ]

    (found,) = collected(*lines)

    assert (found.calls, found.compiled_inside) == ((1,), ())


def test_a_break_in_a_loop_blames_the_line_and_names_the_frame() -> None:
    (found,) = collected(*written.a_skipped_frame())

    assert found == SkippedFrame(
        run=FUSED,
        location=written.place(*LOOP),
        frame=STEPS_DEF,
        scope="frame",
        library=None,
        refusal=Refusal(
            cause=msgspec.structs.replace(PRINTS, gb_ids=("GB0059", "GB7000")),
            stack=(quoted(*CALLER), quoted(*LOOP)),
            folded=Folded(gb_id="GB0059", into_fallen=True),
        ),
        records=1,
        calls=(0,),
        identity=found.identity,
    )


def test_the_finding_points_at_the_line_and_relates_the_def() -> None:
    (found,) = skipped_frames.diagnose(collected(*written.a_skipped_frame()))

    assert found == Finding(
        rule="KGP102",
        level=Level.WARNING,
        message=(
            "Model.step runs eagerly because of print: Failed to trace builtin operator (GB0059)"
        ),
        run=FUSED,
        location=written.place(*LOOP),
        count=1,
        refusal=found.refusal,
        related=(STEPS_DEF,),
        detail=found.detail,
        fingerprint=found.fingerprint,
    )
    assert "Hint: Avoid calling builtin `print`." in found.detail


def test_where_one_frame_falls_back_and_another_goes_on_it_is_both() -> None:
    # given: the loop's frame falls back at a line of its callee, which itself only breaks there
    lines = [
        *compiled("0/0", STEP, fail_type="Unsupported"),
        broken("0/0", CALLER, LOOP, PRINT, prefix=written.GIVEN_UP),
        offered(STEP, "skipped", why="error"),
        *compiled("1/0", REPORT),
        broken("1/0", CALLER, LOOP, PRINT),
        offered(REPORT, compile_id="1/0"),
    ]

    (fallen,) = collected(*lines)
    (gone_on,) = graph_breaks.collect(Evidence(written.recording(*lines)))

    assert (fallen.location, fallen.frame, fallen.records) == (written.place(*PRINT), STEPS_DEF, 1)
    assert (gone_on.location, gone_on.functions, gone_on.records) == (
        written.place(*PRINT),
        ("report",),
        1,
    )
    assert (
        fallen.refusal.folded == gone_on.refusal.folded == Folded(gb_id="GB0059", into_fallen=True)
    )


def test_what_precedes_the_line_may_be_compiled() -> None:
    (found,) = collected(
        *compiled("0/0", STEP),
        broken("0/0", CALLER, LOOP, prefix=written.NOT_RESUMABLE),
        offered(STEP, compile_id="0/0"),
    )

    assert (found.scope, found.location) == ("rest", written.place(*LOOP))
    # tried: of a try block that holds the line nothing is compiled
    assert (
        "Model.step runs eagerly from here on, or from the start of a try or with block around it"
        in skipped_frames.diagnose((found,))[0].message
    )


def test_a_part_behind_a_break_that_falls_back_does_so_from_that_break_on() -> None:
    part = written.resumed(STEP, PRINT[1])
    (found,) = collected(
        *compiled("1/0", part, fail_type="Unsupported"), broken("1/0", CALLER, LOOP)
    )

    assert (found.scope, found.location, found.since) == ("rest", written.place(*LOOP), PRINT[1])
    assert f"from line {PRINT[1]} on" in skipped_frames.diagnose((found,))[0].message


def test_a_break_before_the_backend_failed_is_not_why_the_function_fell_back() -> None:
    """torch breaks the graph, compiles the frame again up to there, and the backend fails."""
    lines = [
        *compiled("0/0", STEP, fail_type="BackendCompilerFailed", fail_reason=GENERATOR),
        broken("0/0", CALLER, (FILE, 12, "step")),
        broken("0/0", CALLER, LOOP, reason=GENERATOR, prefix=written.GIVEN_UP),
    ]

    (found,) = collected(*lines)

    assert found.location == written.place(*LOOP)


def test_a_generator_is_seen_by_the_frame_hook_alone() -> None:
    (found,) = collected(offered(REPORT, "skipped", why="error", text=GENERATOR))

    definition = written.place(FILE, REPORT_DEF, "report")
    assert (found.location, found.frame, found.records) == (definition, definition, 0)
    assert found.refusal.cause.words == "Attempt to trace generator (GB0003)"


def test_a_generator_inside_a_frame_that_fell_back_is_its_consequence() -> None:
    lines = [
        *written.a_skipped_frame(),
        offered(REPORT, "skipped", why="error", text=GENERATOR, called_in="step"),
    ]

    assert [event.location for event in collected(*lines)] == [written.place(*LOOP)]


def test_a_dispatch_mode_is_blamed_once_for_each_function_it_was_entered_around() -> None:
    mode = {"why": "dispatch-mode", "text": "non-infra torch dispatch mode present"}
    lines = [
        offered(STEP, "skipped", **mode),
        offered(REPORT, "skipped", **mode, called_in="step"),
    ]

    (found,) = collected(*lines)

    assert found.location == STEPS_DEF
    assert "TorchDispatchMode" in found.refusal.cause.kind
    assert found.refusal.cause.explanation == "non-infra torch dispatch mode present"
    (finding,) = skipped_frames.diagnose((found,))
    assert finding.no_fix.startswith("leave no TorchDispatchMode active around the call")
    # which holds for this cause only
    assert "TorchDispatchMode" not in skipped_frames.SKIPPED_FRAME.remedy


def test_what_torchs_wrapper_calls_is_no_skipped_frame_of_the_projects() -> None:
    inner = ("/lib/site-packages/torch/_dynamo/external_utils.py", 67, "inner")

    assert collected(offered(inner, "skipped", why="dispatch-mode", wraps="Linear")) == ()


def test_an_error_that_torch_suppressed_has_the_compilations_own_words() -> None:
    (found,) = collected(
        *compiled(
            "0/0",
            STEP,
            fail_type="BackendCompilerFailed",
            fail_reason="backend='x' raised ZeroDivisionError",
        ),
        offered(STEP, "skipped", why="error"),
    )

    assert (found.location, found.refusal.cause.kind) == (
        STEPS_DEF,
        "backend='x' raised ZeroDivisionError",
    )


def test_frames_that_are_rightly_left_alone_are_no_finding() -> None:
    harmless = [offered(STEP, "skipped", why=why) for why in ("", "skip-list", "disabled")]

    assert collected(*harmless, offered(REPORT, "run-only")) == ()


def test_a_function_that_is_skipped_again_is_one_finding() -> None:
    lines = [offered(REPORT, "skipped", why="error", text=GENERATOR, call=call) for call in (0, 4)]

    (found,) = collected(*lines)

    assert found.calls == (0, 4)


def test_a_frame_that_raised_did_not_fall_back() -> None:
    lines = [
        *compiled("0/0", STEP, fail_type="Unsupported"),
        broken("0/0", CALLER, LOOP),
        offered(STEP, "raised", text="Unsupported: x"),
    ]

    assert collected(*lines) == ()


def test_a_function_that_torch_refused_unseen_belongs_to_the_break_that_left_it_outside() -> None:
    # given: report is traced into from step and breaks it; then it runs by itself, where torch
    # refuses it unseen
    unseen = written.artifact("dynamo_graph_break_reason", "1/0", "refused in this mode")
    failed = compiled("1/0", REPORT, fail_type="Unsupported")
    breaks = [*compiled("0/0", STEP), broken("0/0", CALLER, (FILE, 17, "step"), PRINT)]

    assert collected(*breaks, *failed, unseen) == ()
    assert [event.frame for event in collected(*failed, unseen)] == [
        written.place(FILE, 4, "report")
    ]


@pytest.mark.parametrize(
    ("above", "fell", "found"),
    [((CALLER, LOOP), True, 1), ((CALLER,), True, 2), ((CALLER, LOOP), False, 1)],
    ids=["follows", "called elsewhere", "its caller goes on"],
)
def test_what_runs_under_a_transform_of_a_frame_that_fell_back_follows_from_that(
    above: Any, fell: bool, found: int
) -> None:
    under = "Unsupported functorch tracing attempt\n\n For more details: https://x/gb/gb0149.html"
    given_up = [
        *compiled("0/0", STEP, fail_type="Unsupported"),
        broken("0/0", CALLER, LOOP, prefix=written.GIVEN_UP),
    ]
    goes_on = [*compiled("0/0", STEP), broken("0/0", CALLER, (FILE, 17, "step"))]
    lines = [
        *(given_up if fell else goes_on),
        *compiled("1/0", REPORT, above=above, fail_type="Unsupported"),
        written.artifact("dynamo_graph_break_reason", "1/0", under),
    ]

    assert len(collected(*lines)) == found


def test_without_source_text_the_first_line_stands_for_the_def() -> None:
    (found,) = collected(
        offered(("/src/other.py", 3, "parts"), "skipped", why="error", text=GENERATOR)
    )

    assert found.location == Location(file="/src/other.py", line=3, function="parts", text="")


def test_a_finding_counts_the_records_of_the_function_that_it_names() -> None:
    skipped = written.a_skipped_frame()
    reason = skipped[-1].text
    lines = [
        *skipped,
        *compiled("1/0", REPORT, fail_type="Unsupported", fail_reason=reason),
        broken("1/0", CALLER, LOOP, reason=reason, prefix=written.GIVEN_UP),
    ]

    found = collected(*lines)

    assert [(one.frame, one.records) for one in found] == [(STEPS_DEF, 1)]


def test_a_custom_operator_without_a_fake_kernel_has_torchs_own_remedy() -> None:
    reason = (
        "RuntimeError when making fake tensor call\n  Explanation: There was no fake impl "
        "registered for <CustomOpDef(sketch::quantiles)>. Please use `quantiles.register_fake` to "
        "add an fake impl.\n\n For more details: https://x/gb/gb4315.html"
    )
    lines = compiled("0/0", STEP, fail_type="Unsupported", fail_reason=reason)

    (found,) = skipped_frames.diagnose(
        collected(*lines, offered(STEP, "skipped", why="error", text=reason))
    )

    assert found.fix.startswith("@quantiles.register_fake  # above a function")
