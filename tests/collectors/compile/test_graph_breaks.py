"""KGP101: one finding a line, at the innermost line of the project, in torch's own words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kgprof.collectors.compile import graph_breaks, skipped_frames
from kgprof.collectors.compile.graph_breaks import GraphBreak
from kgprof.model import (
    Finding,
    Folded,
    Level,
    Location,
    PackageLine,
    Refusal,
    ScriptRun,
    Skipped,
    TorchCause,
)
from kgprof.reading.evidence import Evidence
from tests.analysis.recordings import FUSED
from tests.collectors import written, written_syncs
from tests.collectors.written import (
    CALLER,
    FILE,
    LIBRARY,
    PRINT,
    REPORT,
    STEP,
    broken,
    compiled,
    offered,
    resumed,
)
from tests.collectors.written_syncs import GOES_ON

PRINTS = TorchCause(
    kind="Failed to trace builtin operator",
    gb_ids=("GB0059",),
    explanation="Dynamo does not know how to trace builtin operator `print`",
    hints=("Avoid calling builtin `print`.", "Please report an issue to PyTorch."),
    context="builtin print",
    operator="print",
)
IN_TORCH = PackageLine(
    package="torch",
    version="",
    file="nn/modules/activation.py",
    line=12,
    function="forward",
    text="...",
)

UNTRACED = Skipped(reason="only TRACE can measure it: not in this Recording")


@pytest.mark.parametrize(
    ("steps", "account", "is_note"),
    [(4, GOES_ON, True), (4, UNTRACED, False), (400, GOES_ON, False), (6, GOES_ON, False)],
    ids=["replayed from then on", "unknown", "few replays", "replayed in its steps"],
)
def test_a_break_in_what_is_replayed_from_then_on_leads_nothing(
    steps: int, account: Any, is_note: bool
) -> None:
    # given: a program that captures what it compiled, and replays it eight times
    plain = written.recording(*written.a_break())
    memory = written_syncs.memory(graphs=(written_syncs.graph(),))
    script = ScriptRun(
        step="a call of a compiled function", steps=steps, counted={}, account=account
    )
    runs = tuple(msgspec.structs.replace(run, memory=memory, script=script) for run in plain.runs)
    evidence = Evidence(msgspec.structs.replace(plain, runs=runs))

    (found,) = graph_breaks.diagnose(graph_breaks.collect(evidence))

    assert found.level is (Level.NOTE if is_note else Level.WARNING)
    assert (found.no_fix == graph_breaks.REPLAYED) is is_note


def quoted(file: str, line: int, function: str) -> Location:
    """As torch's stack has it; the text of the line is torch's."""
    return Location(file=file, line=line, function=function, text="...")


def collected(*lines: Any) -> tuple[GraphBreak, ...]:
    return graph_breaks.collect(Evidence(written.recording(*lines)))


def diagnosed(*lines: Any) -> tuple[Finding, ...]:
    return graph_breaks.diagnose(collected(*lines))


def test_a_line_that_several_frames_met_is_one_break_with_its_records() -> None:
    (found,) = collected(*written.a_break())

    assert found == GraphBreak(
        run=FUSED,
        location=written.place(*PRINT),
        library=None,
        refusal=Refusal(
            cause=PRINTS,
            stack=(quoted(*CALLER), quoted(FILE, 17, "step"), quoted(*PRINT)),
            folded=Folded(gb_id="GB0059", into_fallen=False),
        ),
        records=2,
        calls=(0,),
        functions=("Model.step", "report"),
        identity=found.identity,
        cost=UNTRACED,
    )


def test_what_torchs_wrapper_calls_is_named_in_its_place() -> None:
    inner = ("/lib/site-packages/torch/_dynamo/external_utils.py", 67, "inner")

    (found,) = collected(
        *compiled("0/0", inner),
        offered(inner, compile_id="0/0", wraps="Sequential"),
        offered(inner, compile_id="3/0", wraps="Linear"),
        broken("0/0", CALLER, PRINT),
    )

    assert found.functions == ("Sequential",)


def test_a_line_that_torch_leaves_out_is_the_one_behind_which_the_function_goes_on() -> None:
    """torch's stack leads from the caller to the library, without the line of step between them."""
    lines = [
        *compiled("0/0", STEP),
        broken("0/0", CALLER, (LIBRARY, 12, "forward")),
        offered(resumed(STEP, 17), compile_id="1/0"),
    ]

    (found,) = collected(*lines)
    (without_frames,) = collected(*lines[:-1])
    (of_two,) = collected(*lines, offered(resumed(STEP, 15), compile_id="2/0"))

    assert found.location == written.place(FILE, 17, "step")
    assert [place.line for place in found.refusal.stack] == [21, 17, 12]
    assert without_frames.location == of_two.location == written.place(*CALLER)


def test_the_finding_says_where_why_and_what_torch_advises() -> None:
    (found,) = diagnosed(*written.a_break())

    assert found == Finding(
        rule="KGP101",
        level=Level.WARNING,
        message=(
            "print breaks the graph in report: Failed to trace builtin operator (GB0059); seen "
            "while compiling Model.step, report"
        ),
        run=FUSED,
        location=written.place(*PRINT),
        count=2,
        refusal=found.refusal,
        detail=(
            "Dynamo does not know how to trace builtin operator `print`\n"
            "Hint: Avoid calling builtin `print`.\n"
            "Hint: Please report an issue to PyTorch."
        ),
        names=("print",),
        fingerprint=found.fingerprint,
        cost=UNTRACED,
    )


def test_a_break_in_a_library_counts_at_the_projects_line_that_leads_there() -> None:
    stack = ((LIBRARY, 77, "forward"), CALLER, (FILE, 14, "step"), (LIBRARY, 12, "forward"))

    (found,) = collected(*compiled("0/0", STEP), broken("0/0", *stack))

    assert found.location == written.place(FILE, 14, "step")
    assert found.library == IN_TORCH
    assert graph_breaks.diagnose((found,))[0].library == IN_TORCH


def test_one_line_of_a_library_is_one_break_however_many_lines_lead_there() -> None:
    inside, first, second = (LIBRARY, 12, "forward"), (FILE, 14, "step"), (FILE, 17, "step")
    lines = [
        *compiled("0/0", STEP),
        broken("0/0", CALLER, first, inside),
        *compiled("1/0", resumed(STEP, 14)),
        broken("1/0", CALLER, second, inside),
        *compiled("2/0", (LIBRARY, 10, "forward")),
        broken("2/0", CALLER, second, inside),
    ]

    (found,) = collected(*lines)

    assert (found.location, found.ways_in) == (written.place(*second), (written.place(*first),))
    assert (found.records, found.library) == (3, IN_TORCH)
    (finding,) = graph_breaks.diagnose((found,))
    assert finding.related == (written.place(*first),)
    assert finding.message.endswith("; 2 lines of your code lead there")


def test_the_line_that_calls_another_way_in_is_none() -> None:
    """What a library's function is compiled for by itself has no line of compiled code above it."""
    inside = (LIBRARY, 12, "forward")
    (found,) = collected(
        *compiled("0/0", STEP),
        broken("0/0", CALLER, (FILE, 14, "step"), inside),
        *compiled("1/0", resumed(STEP, 14)),
        broken("1/0", CALLER, (FILE, 14, "step"), inside),
        *compiled("2/0", (LIBRARY, 10, "forward")),
        broken("2/0", CALLER, inside),
    )

    assert (found.location, found.ways_in) == (written.place(FILE, 14, "step"), ())
    (finding,) = graph_breaks.diagnose((found,))
    assert "lead there" not in finding.message


def test_a_line_that_torchs_stack_leaves_out_is_taken_from_another_record() -> None:
    """A compiled forward that is one call of a library's module: torch names its caller."""
    inside = (LIBRARY, 12, "forward")
    (found,) = collected(
        *compiled("0/0", STEP),
        broken("0/0", CALLER, inside),
        *compiled("1/0", (LIBRARY, 10, "forward")),
        broken("1/0", CALLER, (FILE, 14, "step"), inside),
    )

    assert (found.location, found.ways_in) == (written.place(FILE, 14, "step"), ())


def test_a_break_of_a_library_compiled_by_a_library_has_no_line_of_the_project() -> None:
    (found,) = collected(
        *compiled("0/0", (LIBRARY, 10, "forward"), above=()),
        broken("0/0", (LIBRARY, 12, "forward")),
    )

    assert (found.location, found.library) == (None, IN_TORCH)


def test_the_function_is_the_users_also_behind_an_earlier_break() -> None:
    going_on = (FILE, 16, "torch_dynamo_resume_in_step_at_14")

    (found,) = collected(*compiled("1/0", resumed(STEP, 14)), broken("1/0", CALLER, going_on))

    assert found.location == written.place(FILE, 16, "step")
    assert found.functions == ("Model.step",)


def test_two_lines_are_two_breaks_whatever_their_reason() -> None:
    found = collected(
        *compiled("0/0", STEP),
        broken("0/0", CALLER, (FILE, 14, "step")),
        *compiled("1/0", resumed(STEP, 14)),
        broken("1/0", CALLER, (FILE, 17, "step")),
    )

    assert [event.location for event in found] == [
        written.place(FILE, 14, "step"),
        written.place(FILE, 17, "step"),
    ]
    assert len({finding.fingerprint for finding in graph_breaks.diagnose(found)}) == 2


def test_equal_lines_of_one_function_have_different_fingerprints() -> None:
    program = "def f(x):\n    print(x)\n    x = x + 1\n    print(x)\n"
    lines = [
        *compiled("0/0", (FILE, 1, "f")),
        broken("0/0", (FILE, 2, "f")),
        broken("0/0", (FILE, 4, "f")),
    ]

    first, second = graph_breaks.diagnose(
        graph_breaks.collect(Evidence(written.recording(*lines, program=program)))
    )

    assert first.fingerprint != second.fingerprint


def test_the_first_of_a_chain_of_causes_is_the_root() -> None:
    chain = (
        f"{written.builtin()}\n\n*** While handling this graph break, another graph "
        "break occurred: ***\n\n"
    )
    chain += written.builtin("for", "7000").replace(
        "Failed to trace builtin operator", "graph break in loop"
    )

    (found,) = collected(
        *compiled("0/0", STEP), broken("0/0", CALLER, (FILE, 16, "step"), reason=chain)
    )

    assert (found.refusal.cause.kind, found.refusal.cause.gb_ids) == (
        "Failed to trace builtin operator",
        ("GB0059", "GB7000"),
    )


def test_an_explanation_may_have_paragraphs() -> None:
    reason = (
        "Data-dependent branching\n  Explanation: Detected branching.\n\n      The condition was "
        "computed as\n"
        '        # File "/src/shop/model.py", line 3\n    \n'
        "  Hint: Use `torch.cond`.\n\n  Developer debug context: none\n\n"
        " For more details about this graph break, please visit: https://example.org/gb/gb0170.html"
    )

    (found,) = collected(
        *compiled("0/0", STEP), broken("0/0", CALLER, (FILE, 14, "step"), reason=reason, prefix="")
    )

    assert found.location == written.place(FILE, 14, "step")
    assert found.refusal.cause == TorchCause(
        kind="Data-dependent branching",
        gb_ids=("GB0170",),
        explanation=(
            'Detected branching. The condition was computed as # File "/src/shop/model.py", line 3'
        ),
        hints=("Use `torch.cond`.",),
        context="none",
    )


def test_a_reason_in_a_form_not_known_is_explained_by_the_registry() -> None:
    reason = (
        "something that a later torch words differently, see https://example.org/gb/gb0170.html"
    )

    (found,) = collected(
        *compiled("0/0", STEP), broken("0/0", CALLER, (FILE, 14, "step"), reason=reason, prefix="")
    )

    assert found.refusal.cause == TorchCause(
        kind="Data-dependent branching",
        gb_ids=("GB0170",),
        explanation="Branches on data.",
        hints=("Use `torch.cond`.",),
    )


def test_a_reason_without_an_id_stands_as_it_is() -> None:
    (found,) = collected(
        *compiled("0/0", STEP), broken("0/0", CALLER, (FILE, 14, "step"), reason="torn", prefix="")
    )

    assert found.refusal.cause == TorchCause(kind="torn")
    assert graph_breaks.diagnose((found,))[0].message == "graph break in Model.step: torn"


def test_the_record_that_convert_frame_writes_has_its_reason_at_the_end() -> None:
    text = (
        "Graph break: torch.compile cannot properly resume from this graph break, which results "
        "in a skip.\n"
        "torch.compile will skip tracing the frame step and fall back to eager.\n"
        "The graph break occurred in the following user code:\n"
        f"{written.traceback(CALLER, (FILE, 14, 'step'))}\n"
        'Traceback (most recent call last):\n  File "/lib/site-packages/torch/_dynamo/x.py", line '
        "1, in y\n"
        f"torch._dynamo.exc.Unsupported: {written.builtin('open', '0142')}"
    )

    (found,) = collected(
        *compiled("0/0", STEP), written.artifact("dynamo_graph_break_reason", "0/0", text)
    )

    assert found.location == written.place(FILE, 14, "step")
    assert found.refusal.cause.words == "Failed to trace builtin operator (GB0142)"


def test_a_break_that_made_a_frame_fall_back_is_another_rules() -> None:
    assert collected(*written.a_skipped_frame()) == ()


def test_what_torch_calls_unresumable_and_then_resumes_is_a_break() -> None:
    # given: the wording of a skipped rest, and a frame hook that saw the rest compiled
    lines = [
        *compiled("0/0", STEP),
        broken("0/0", CALLER, (FILE, 17, "step"), PRINT, prefix=written.NOT_RESUMABLE),
        offered(STEP, compile_id="0/0"),
        offered(resumed(STEP, 17), compile_id="1/0"),
    ]

    assert [event.location for event in collected(*lines)] == [written.place(*PRINT)]


OPTIMIZER = ("/lib/site-packages/torch/optim/optimizer.py", 79, "_use_grad")
SHELF = ("/lib/site-packages/shelf/stack.py", 7, "settle")


def refused(kind: str, context: str) -> str:
    """A reason's block with this debug context."""
    return (
        f"{kind}\n  Explanation: it is not traced.\n  Hint: Avoid it.\n\n  Developer "
        f"debug context: {context}"
    )


ASKED_FOR = refused(
    "Call to `torch._dynamo.graph_break()`", "Called `torch._dynamo.graph_break()` with args `[]`"
)
DISABLED = refused(
    "Attempted to inline function marked as skipped",
    "qualname: Optimizer.zero_grad, name: inner, filename: "
    "`/lib/site-packages/torch/_compile.py`, skip reason: none",
)
WRAPPED = refused(
    "Attempted to call function marked as skipped",
    "module: torch.optim.adam, qualname: Adam.step, skip reason: file is force-skipped "
    "(/lib/lr_scheduler.py)",
)
OWN = (FILE, 17, "step")


@pytest.mark.parametrize(
    ("stack", "reason", "by_torch"),
    [
        ((OWN, OPTIMIZER), ASKED_FOR, True),
        ((OWN, OPTIMIZER), DISABLED, True),
        ((OWN,), WRAPPED, True),
        ((OWN, SHELF), ASKED_FOR, False),  # another library's
        ((OWN,), ASKED_FOR, False),  # the program's own
        ((OWN,), DISABLED, False),  # the program's line calls it, and can leave it out
        # torch prints, which nobody meant to break a graph
        ((OWN, OPTIMIZER), written.builtin(), False),
    ],
)
def test_what_torch_breaks_on_purpose_is_a_note_that_no_budget_counts(
    stack: tuple[written.Frame, ...], reason: str, by_torch: bool
) -> None:
    (found,) = diagnosed(*compiled("0/0", STEP), broken("0/0", CALLER, *stack, reason=reason))

    assert found.made_by_torch is by_torch
    assert (found.level is Level.NOTE, bool(found.no_fix), found.counts) == (
        by_torch,
        by_torch,
        not by_torch,
    )


def test_a_break_that_torch_tries_again_and_cannot_resume_from_is_only_a_skipped_frame() -> None:
    stack = (CALLER, (FILE, 17, "step"))
    lines = [
        *compiled("0/0", STEP),
        broken("0/0", *stack),
        broken("0/0", *stack, prefix=written.NOT_RESUMABLE),
    ]

    # then: one record of it is left; another cause on the line, or the same in a later call, stays
    # a break
    (skipped,) = skipped_frames.collect(Evidence(written.recording(*lines)))
    assert (collected(*lines), skipped.records, skipped.scope) == ((), 1, "rest")
    assert (
        len(collected(*lines, broken("0/0", *stack, reason=written.builtin("input", "0142")))) == 1
    )
    assert (
        len(collected(*lines, *compiled("0/1", STEP, call=3), broken("0/1", *stack, call=3))) == 1
    )


def test_a_break_that_an_earlier_one_may_have_caused_points_to_that_line() -> None:
    """Of a value that cannot be rebuilt behind a break torch also says what to do in a return."""
    earlier = "This graph break may have been caused by an earlier graph break"
    returned = "Hint: If Dynamo is attempting to trace a return statement, remove it from it."
    reason = written.builtin().replace(
        "Hint: Avoid calling builtin `print`.", f"{returned}\n  Hint: {earlier}. Resolve it."
    )
    first = broken("0/0", CALLER, (FILE, 14, "step"))
    second = broken("0/0", CALLER, (FILE, 17, "step"), reason=reason)

    after, alone = (
        collected(*compiled("0/0", STEP), *lines)[-1].refusal.cause.hints
        for lines in ((first, second), (second,))
    )

    assert after[0] == f"{earlier}, in line 14. Resolve it."
    assert alone[:2] == (returned.removeprefix("Hint: "), f"{earlier}. Resolve it.")


def test_a_librarys_function_that_is_compiled_by_itself_has_the_line_above_it_as_its_place() -> (
    None
):
    lines = [*compiled("0/0", SHELF, above=(CALLER,)), broken("0/0", SHELF)]

    (found,) = collected(*lines)

    assert found.location == written.place(*CALLER)


def test_a_program_without_breaks_has_none() -> None:
    assert collected(*written.compiled_once()) == ()


def test_without_source_text_places_stay_as_torch_named_them() -> None:
    elsewhere = ("/src/other.py", 3, "<lambda>")

    (found,) = collected(*compiled("0/0", elsewhere), broken("0/0", elsewhere))

    assert found.location == Location(file="/src/other.py", line=3, function="<lambda>", text="")


def test_reports_frame_may_be_missing_from_the_records() -> None:
    # given: a record whose compilation began before the pass did
    (found,) = collected(broken("7/0", CALLER, REPORT))

    assert found.functions == ()


# ---------------------------------------------------------------- causes, operators, libraries


def test_one_line_of_the_project_that_leads_to_two_lines_of_a_library_is_two_breaks() -> None:
    found = collected(
        *compiled("0/0", STEP),
        broken("0/0", CALLER, (FILE, 14, "step"), (LIBRARY, 12, "forward")),
        broken(
            "0/0", CALLER, (FILE, 14, "step"), (LIBRARY, 9, "prepare"), (LIBRARY, 77, "forward")
        ),
    )

    assert [event.location for event in found] == [written.place(FILE, 14, "step")] * 2
    assert [event.library and event.library.line for event in found] == [12, 77]
    assert [[line.line for line in event.refusal.chain] for event in found] == [[], [9]]
    assert len({finding.fingerprint for finding in graph_breaks.diagnose(found)}) == 2


def test_dynamos_own_wrappers_are_no_library() -> None:
    wrapper = ("/lib/site-packages/torch/_dynamo/external_utils.py", 69, "inner")

    (found,) = collected(*compiled("0/0", STEP), broken("0/0", CALLER, (FILE, 14, "step"), wrapper))

    assert (found.location, found.library, found.refusal.chain) == (
        written.place(FILE, 14, "step"),
        None,
        (),
    )


def test_calls_of_modules_and_what_goes_on_behind_a_break_are_no_lines_of_the_way_in() -> None:
    calls = ("/lib/site-packages/torch/nn/modules/module.py", 1778, "_call_impl")
    forward, going_on = (
        (LIBRARY, 30, "forward"),
        (LIBRARY, 31, "torch_dynamo_resume_in_forward_at_30"),
    )

    (found,) = collected(
        *compiled("0/0", STEP),
        broken(
            "0/0",
            CALLER,
            (FILE, 14, "step"),
            (LIBRARY, 9, "fit"),
            calls,
            forward,
            going_on,
            (LIBRARY, 77, "loss"),
        ),
    )

    assert [(line.line, line.function) for line in found.refusal.chain] == [
        (9, "fit"),
        (31, "forward"),
    ]


def test_two_causes_of_one_line_are_two_breaks_which_were_told_under_the_first() -> None:
    found = collected(
        *compiled("0/0", STEP),
        broken("0/0", CALLER, PRINT),
        broken("0/0", CALLER, PRINT, reason=written.builtin("open")),
        broken("0/0", CALLER, PRINT, reason=written.builtin("exec", "0142")),
    )

    assert [(event.refusal.cause.operator, event.refusal.cause.gb_id) for event in found] == [
        ("print", "GB0059"),
        ("open", "GB0059"),
        ("exec", "GB0142"),
    ]
    assert {event.refusal.folded for event in found} == {Folded(gb_id="GB0059", into_fallen=False)}
    assert len({finding.fingerprint for finding in graph_breaks.diagnose(found)}) == 3


@pytest.mark.parametrize(
    ("context", "operator"),
    [
        ("builtin print [<class 'ConstantVariable'>] False", "print"),
        (
            "module: time, qualname: perf_counter, skip reason: <missing reason>",
            "time.perf_counter",
        ),
        ("module: <unknown module>, qualname: Random.random, skip reason: x", "Random.random"),
        ("call_method TensorVariable() item () {}", "Tensor.item"),
        ("call_method TensorVariable() to_list", "Tensor.tolist"),
        ("call_method ConstantVariable(bytes: b'a.') replace [x] {}", "bytes.replace"),
        (
            "call_method UserDefinedObjectVariable(Queue) put [TensorVariable()] {}",
            "Queue.put",
        ),
        (
            "call_method UserDefinedClassVariable(<class '_json.Encoder'>) __new__ [x] {}",
            "_json.Encoder.__new__",
        ),
        (
            "method: <Logger corpus.logger_call (WARNING)>.debug, args: [x], kwargs: {}",
            "Logger.debug",
        ),
        ("numpy function: <function interp at 0x7f>, args: []", "numpy.interp"),
        ("numpy function: <built-in function lexsort>, args: []", "numpy.lexsort"),
        ("<function audit at 0x7f2040296520>", "audit"),
        (
            "Called `torch._dynamo.graph_break()` with args `[]`, kwargs `{}`",
            "torch._dynamo.graph_break",
        ),
        ("copy.deepcopy(TensorVariable())", "copy.deepcopy"),
        ("aten.nonzero.default", "aten.nonzero.default"),
        ("attempted to jump with TensorVariable()", "bool(tensor)"),
        ("attempted to jump with SymNodeVariable()", ""),
        ("Active generic context managers: [GenericContextWrappingVariable(Section)]", ""),
    ],
)
def test_the_operator_is_read_from_torchs_debug_context(context: str, operator: str) -> None:
    text = (
        f"Kind\n  Explanation: Why.\n\n  Developer debug context: {context}\n\n For "
        "more details: https://x/gb/gb0001.html"
    )

    assert graph_breaks.cause_of(text, {}).operator == operator


def test_a_graph_that_broke_is_not_told_to_do_without_fullgraph() -> None:
    hint = "Consider using fullgraph=False to allow graph breaks, or move its creation outside."
    reason = f"Sparse\n  Explanation: None.\n  Hint: {hint}\n"

    (found,) = collected(*compiled("0/0", STEP), broken("0/0", PRINT, reason=reason))

    assert found.refusal.cause.hints == ("Move its creation outside.",)


def test_torchs_hint_to_compile_what_the_program_disables_is_not_called_tried() -> None:
    hint = "Remove the `torch.compiler.disable` call"
    reason = f"Skip\n  Explanation: None.\n  Hint: {hint}\n"

    (found,) = collected(*compiled("0/0", STEP), broken("0/0", PRINT, reason=reason))

    (told,) = found.refusal.cause.hints
    assert told == f"{hint} (not tried: what is disabled may not compile, nor what it calls)"
