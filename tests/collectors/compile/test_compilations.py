"""KGP107, and the six stages that add up to a compilation's duration."""

from __future__ import annotations

from typing import Any

import pytest

from kgprof.analysis import analyse
from kgprof.collectors.compile import compilations
from kgprof.collectors.compile.compilations import STAGE_OF, FailedCompile
from kgprof.model import (
    Compilation,
    CompileStages,
    CompileSummary,
    Finding,
    Level,
    Location,
    PackageLine,
    Refusal,
    Skipped,
    SourceLine,
)
from kgprof.model.compile_records import TraceRecord
from kgprof.reading.evidence import Evidence
from kgprof.record.ground.kept_records import KEPT_SPANS
from tests.analysis.recordings import FUSED
from tests.collectors import written
from tests.collectors.compile.test_graph_breaks import PRINTS
from tests.collectors.written import (
    FILE,
    LIBRARY,
    LOOP,
    STEP,
    STEP_DEF,
    compiled,
    offered,
    record,
    span,
)

STEPS_DEF = written.place(FILE, STEP_DEF, "step")


def collected(*lines: Any) -> tuple[FailedCompile, ...]:
    return compilations.collect(Evidence(written.recording(*lines)))


def rows(*lines: Any) -> tuple[Compilation, ...]:
    return compilations.compilations(written.compiler(*lines))


def in_time(*spans: list[tuple[float, TraceRecord]]) -> list[TraceRecord]:
    """Begins and ends in the order in which torch would write them."""
    events = [event for one in spans for event in one]
    return [event for _, event in sorted(events, key=lambda event: event[0])]


# ---------------------------------------------------------------- failures


def test_fullgraph_fails_at_the_line_that_torch_refused() -> None:
    (found,) = collected(*written.a_failure())

    assert found == FailedCompile(
        run=FUSED,
        location=written.place(*LOOP),
        library=None,
        function="Model.step",
        error="Unsupported",
        refusal=Refusal(cause=PRINTS, stack=(Location(file=FILE, line=16),)),
        calls=(0,),
        identity=found.identity,
    )


def test_the_finding_is_an_error_with_torchs_advice() -> None:
    (found,) = compilations.diagnose(collected(*written.a_failure()))

    assert found == Finding(
        rule="KGP107",
        level=Level.ERROR,
        message=(
            "compiling Model.step raised Unsupported because of print: Failed to trace "
            "builtin operator (GB0059)"
        ),
        run=FUSED,
        location=written.place(*LOOP),
        count=1,
        refusal=found.refusal,
        detail=found.detail,
        fingerprint=found.fingerprint,
    )
    assert "Hint: Please report an issue to PyTorch." in found.detail


def test_a_library_that_torch_refused_is_named_with_the_projects_line_that_leads_there() -> None:
    traced = (
        SourceLine(file=FILE, line=17, function="step"),
        SourceLine(file=LIBRARY, line=12, function="forward"),
    )
    failed = {"fail_type": "Unsupported", "fail_reason": written.builtin()}

    (found,) = collected(
        *compiled(
            "0/0", STEP, **failed, fail_user_frame_filename=LIBRARY, fail_user_frame_lineno=12
        ),
        offered(STEP, "raised", text="Unsupported: x", stack=traced),
    )

    assert found.location == written.place(FILE, 17, "step")
    assert found.library == PackageLine(
        package="torch", version="", file="nn/modules/activation.py", line=12, function="forward"
    )


def test_torchs_words_are_read_where_the_frame_hook_kept_no_stack() -> None:
    text = (
        "Unsupported: x\n\nfrom user "
        f"code:\n{written.traceback((FILE, 17, 'step'), (LIBRARY, 12, 'forward'))}"
    )

    (found,) = collected(
        *compiled("0/0", STEP, fail_type="Unsupported"), offered(STEP, "raised", text=text)
    )

    assert (found.location, found.library and found.library.line) == (
        written.place(FILE, 17, "step"),
        12,
    )


def test_a_backend_that_fails_is_blamed_at_the_def() -> None:
    failed = {
        "fail_type": "BackendCompilerFailed",
        "fail_reason": "backend='refuses' raised:\nZeroDivisionError: no",
    }
    lines = [
        *compiled("0/0", STEP, **failed),
        offered(STEP, "raised", text="BackendCompilerFailed: backend"),
    ]

    (found,) = collected(*lines)

    assert (found.location, found.error, found.refusal.cause.kind) == (
        STEPS_DEF,
        "BackendCompilerFailed",
        "backend='refuses' raised:",
    )
    assert found.refusal.cause.words == "backend='refuses' raised: ZeroDivisionError: no"


def test_what_torchs_wrapper_calls_is_named_in_its_place() -> None:
    inner = ("/lib/site-packages/torch/_dynamo/external_utils.py", 67, "inner")

    (found,) = collected(offered(inner, "raised", text="UserError: x", wraps="Linear"))

    assert found.function == "Linear"


def test_an_attempt_in_every_call_is_one_finding_with_its_calls() -> None:
    lines = [line for call in (0, 1, 2, 2) for line in _failed_in(call)]

    (found,) = compilations.diagnose(collected(*lines))

    assert found.count == 4
    assert found.message.startswith(
        "compiling Model.step raised Unsupported 4 times because of print: "
    )


def _failed_in(call: int) -> list[Any]:
    failed = {"fail_type": "Unsupported", "fail_reason": written.builtin()}
    refused = {"fail_user_frame_filename": FILE, "fail_user_frame_lineno": 16}
    return [
        *compiled(f"0/{call}", STEP, call=call, **failed, **refused),
        offered(STEP, "raised", call=call, text="Unsupported: x"),
    ]


def test_a_recompile_that_the_program_forbids_is_blamed_on_the_setting() -> None:
    words = (
        "RecompileError: Recompiling function inner in external_utils.py:67\n"
        "    triggered by the following guard failure(s):\n"
        "    - 0/0: tensor 'args[0]' size mismatch at index 0. expected 8, actual 5"
    )
    raised = written.offered(STEP, "raised", call=4, text=words, wraps="Linear", arguments=("x",))

    (found,) = compilations.diagnose(collected(*compiled("0/0", STEP), raised))

    assert found.message == (
        "compiling Linear again raised RecompileError: size of x, dimension 0: expected 8, got 5; "
        "torch._dynamo.config.error_on_recompile makes each recompile an error"
    )
    assert found.fix.startswith("torch._dynamo.config.error_on_recompile = False")


def test_a_limit_that_is_an_error_is_said_to_be_one() -> None:
    text = "FailOnRecompileLimitHit: Hard failure due to fullgraph=True"

    (found,) = compilations.diagnose(collected(offered(STEP, "raised", call=9, text=text)))

    assert found.message.endswith(
        "raised FailOnRecompileLimitHit: torch's recompile limit was reached, and the program "
        "makes that an error (fullgraph=True or fail_on_recompile_limit_hit)"
    )


def test_a_failure_without_records_is_told_by_the_frame_hook() -> None:
    (found,) = collected(offered(STEP, "raised", text="InternalTorchDynamoError: KeyError: 'x'"))

    assert (found.location, found.error, found.refusal.cause.kind) == (
        STEPS_DEF,
        "InternalTorchDynamoError",
        "KeyError: 'x'",
    )


def test_a_compiled_function_is_no_failure() -> None:
    assert collected(*written.compiled_once()) == ()


# ---------------------------------------------------------------- stages


def test_every_named_span_is_recorded() -> None:
    assert set(STAGE_OF) == KEPT_SPANS


def test_a_spans_own_time_belongs_to_its_stage() -> None:
    spans = in_time(
        span("dynamo", 0, 10e6),
        span("backend_compile", 1e6, 9e6),
        span("inductor_compile", 3e6, 8e6),
        span("_recursive_post_grad_passes", 3.5e6, 4e6),
        span("code_gen", 5e6, 7.5e6),
        span("PyCodeCache.load_by_key_path", 6e6, 7.25e6),
        span("async_compile.wait", 6.25e6, 7e6),
    )

    (row,) = rows(*compiled("0/0", STEP, duration_us=10_000_000), *spans)

    assert row == Compilation(
        compile_id="0/0",
        function="step",
        location=f"{FILE}:10",
        duration_s=10.0,
        call=0,
        operators=2,
        stages=CompileStages(
            capture_s=2.0,
            frontend_s=3.5,
            scheduling_s=2.0,
            code_generation_s=1.25,
            machine_code_s=0.75,
            caching_s=0.5,
        ),
    )


def test_a_graph_from_the_cache_was_looked_up_and_loaded() -> None:
    spans = in_time(
        span("dynamo", 0, 3e6),
        span("backend_compile", 1e6, 2.5e6),
        span("inductor_compile", 1.5e6, 2.25e6),
    )

    (row,) = rows(*compiled("0/0", STEP), *spans)

    assert isinstance(row.stages, CompileStages)
    assert (row.stages.scheduling_s, row.stages.caching_s) == (0.0, 0.75)


def test_two_compilations_and_a_backward_are_told_apart() -> None:
    backward = record("0/0", bwd_compilation_metrics={"duration_us": 1_000_000})
    spans = in_time(
        span("dynamo", 0, 1e6),
        span("entire_backward_compile", 2e6, 3e6),
        span("inductor_compile", 2.25e6, 3e6),
        span("code_gen", 2.5e6, 3e6),
        span("dynamo", 5e6, 7e6, "1/0"),
    )

    first, behind, second = rows(
        *compiled("0/0", STEP), backward, *compiled("1/0", written.REPORT), *spans
    )

    assert [row.function for row in (first, behind, second)] == [
        "step",
        "step (backward)",
        "report",
    ]
    totals = [sum(_seconds(row.stages)) for row in (first, behind, second)]
    assert totals == pytest.approx([1.0, 1.0, 2.0])
    assert isinstance(behind.stages, CompileStages)
    assert (
        behind.stages.frontend_s,
        behind.stages.scheduling_s,
        behind.stages.code_generation_s,
    ) == (0.25, 0.25, 0.5)


def _seconds(stages: CompileStages | Skipped) -> list[float]:
    assert isinstance(stages, CompileStages)
    return [getattr(stages, name) for name in CompileStages.__struct_fields__]


def test_what_a_worker_thread_does_meanwhile_is_the_waiting_threads_time() -> None:
    spans = in_time(
        span("dynamo", 0, 4e6),
        span("async_compile.wait", 1e6, 3e6),
        span("compile_file", 1.5e6, 2.5e6, "None"),
    )

    (row,) = rows(*compiled("0/0", STEP), *spans)

    assert isinstance(row.stages, CompileStages)
    assert (row.stages.capture_s, row.stages.machine_code_s) == (2.0, 2.0)


def test_a_compilation_inside_another_one_takes_its_own_time() -> None:
    spans = in_time(span("dynamo", 0, 10e6), span("dynamo", 4e6, 6e6, "1/0"))

    outer, inner = rows(*compiled("0/0", STEP), *compiled("1/0", written.REPORT), *spans)

    assert [sum(_seconds(row.stages)) for row in (outer, inner)] == [8.0, 2.0]


def test_a_span_that_never_ended_ends_with_the_one_around_it() -> None:
    spans = in_time(span("dynamo", 0, 2e6), span("backend_compile", 1e6, 9e6)[:1])

    (row,) = rows(
        *compiled("0/0", STEP, fail_type="X"), *spans, *in_time(span("dynamo", 5e6, 6e6, "1/0"))
    )

    assert sum(_seconds(row.stages)) == 2.0


def test_without_spans_the_stages_are_not_observed() -> None:
    (row,) = rows(*compiled("0/0", STEP))

    assert row.stages == Skipped(reason="torch wrote no spans for it")


def test_the_profile_shows_the_stages() -> None:
    profile = analyse(
        written.recording(*compiled("0/0", STEP), *in_time(span("dynamo", 0, 500_000)))
    )

    summary = profile.runs[0].compile
    assert isinstance(summary, CompileSummary)
    assert [sum(_seconds(row.stages)) for row in summary.compilations] == [0.5]
