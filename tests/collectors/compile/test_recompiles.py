"""KGP103 to KGP105: what failed, where, how often, and whether it ends."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from kgprof.collectors.compile import recompiles
from kgprof.collectors.compile.guard_rejections import reasons, rejections
from kgprof.collectors.compile.guard_words import in_words
from kgprof.collectors.compile.recompile_causes import Recompile
from kgprof.collectors.compile.recompile_limit import LimitReached, modules_with_room
from kgprof.collectors.compile.recompiled_functions import RecompiledFunction
from kgprof.collectors.guard_text import Guard, parse
from kgprof.model import (
    CompiledCallable,
    Finding,
    FindingCost,
    Level,
    PackageLine,
    PassName,
    RecompileEntry,
    Skipped,
    SourceLine,
)
from kgprof.model.compile_records import GraphRuns, TraceRecord
from kgprof.reading.evidence import Evidence
from tests.analysis.recordings import FUSED
from tests.collectors import written
from tests.collectors.written import (
    CALLER,
    FILE,
    LIBRARY,
    STEP,
    STEP_DEF,
    compiled,
    offered,
    ran,
    recompiled,
    rejected,
    resumed,
    to_the_limit,
)

STEPS_DEF = written.place(FILE, STEP_DEF, "step")
CALL_SITE = written.place(*CALLER)
DTYPE = Guard(
    kind="dtype",
    entry="0/0",
    source="x",
    expected="Float",
    actual="Double",
    text="tensor 'x' dtype mismatch. expected Float, actual Double",
)

AT_STEP = SourceLine(file=FILE, line=STEP[1], function="<module>")
AT_LINE = written.called(STEP, compiled_at=AT_STEP)
STATIC = written.called(STEP, is_static=True)
FIX = (
    "x = x.to(torch.float32)  # before the call, and the same for what it is computed with, if it "
    "only reads x and its results may have this dtype, too: one for all calls"
)


def collected(*lines: Any, **fields: Any) -> tuple[RecompiledFunction, ...]:
    return recompiles.collect(Evidence(written.recording(*lines, **fields)))


def diagnosed(*lines: Any, **fields: Any) -> tuple[Finding, ...]:
    return recompiles.diagnose(collected(*lines, **fields))


def limit_of(*lines: Any, **fields: Any) -> LimitReached:
    (found,) = collected(*lines, **fields)
    assert found.limit is not None
    return found.limit


def rules(*lines: Any, **fields: Any) -> list[tuple[str, Level]]:
    return [(finding.rule, finding.level) for finding in diagnosed(*lines, **fields)]


@pytest.mark.parametrize(
    ("function", "package", "name"),
    [
        ("Base.score", "shelf", "score of model (Ranker)"),
        ("Base.forward", "shelf", "model (Ranker)"),
        ("Module._call_impl", "torch", "model (Ranker)"),
    ],
)
def test_a_method_that_a_library_defines_is_named_with_the_module(
    function: str, package: str, name: str
) -> None:
    (found,) = collected(*recompiled(10))
    line = PackageLine(package=package, version="1.0", file="base.py", line=3, function=function)

    of_library = msgspec.structs.replace(
        found, function=function, library=line, modules="model (Ranker)"
    )

    assert of_library.name == name


def test_a_recompile_knows_its_guard_its_caller_and_its_price() -> None:
    (found,) = collected(*recompiled(10))

    assert found == RecompiledFunction(
        run=FUSED,
        location=STEPS_DEF,
        function="Model.step",
        recompiles=(
            Recompile(
                compile_id="0/1",
                call=10,
                guard=DTYPE,
                rejected=(DTYPE,),
                call_site=CALL_SITE,
                duration_s=0.5,
                once=True,
                fix=FIX,
                words="dtype of x: expected Float, got Double",
            ),
        ),
        steady_from=3,
        every_value_new=False,
        identity=found.identity,
    )


def test_the_finding_stands_on_the_def_and_relates_the_call() -> None:
    (found,) = diagnosed(*recompiled(10))

    assert found == Finding(
        rule="KGP103",
        level=Level.NOTE,
        message=(
            "Model.step recompiled 1 time in step 10, 0.50 s: dtype of x: "
            "expected Float, got Double"
        ),
        run=FUSED,
        location=STEPS_DEF,
        count=1,
        related=(CALL_SITE,),
        detail="step 10, 0/1: tensor 'x' dtype mismatch. expected Float, actual Double",
        names=("x",),
        fingerprint=found.fingerprint,
        cost=FindingCost(
            value=0.5,
            unit="s",
            what="compile time in all",
            measured_in=(PassName.COMPILE,),
            samples=1,
        ),
        one_off=True,
        fix=FIX,
    )


def test_a_recompile_costs_what_its_backward_took_as_well() -> None:
    backward = written.record("0/1", bwd_compilation_metrics={"duration_us": 1_500_000})
    (found,) = diagnosed(*recompiled(10), backward)

    assert isinstance(found.cost, FindingCost)
    assert found.cost.value == 2.0
    assert "recompiled 1 time in step 10, 2.00 s" in found.message


def test_what_happened_once_is_a_note_and_what_came_again_a_finding() -> None:
    assert rules(*recompiled(10)) == [("KGP103", Level.NOTE)]
    assert rules(*recompiled(10, 15)) == [("KGP103", Level.WARNING)]


def test_two_guards_that_failed_once_each_are_one_note() -> None:
    (found,) = diagnosed(*once_and_once("GLOBAL_STATE changed: grad_mode"))

    assert (found.level, found.one_off, found.count) == (Level.NOTE, True, 2)
    assert (
        "it ran with gradients and without (no_grad, inference_mode): torch compiles each"
        in found.message
    )


def test_two_dtypes_of_autocast_are_not_called_autocast_and_none() -> None:
    of_dtype = parse("0/0: GLOBAL_STATE changed: autocast(cpu)_dtype ")

    assert (
        in_words(of_dtype) == "autocast was set in more than one way, and torch compiles for each"
    )
    cache = parse("0/0: GLOBAL_STATE changed: autocast_cache_enabled ")
    assert in_words(cache) == in_words(of_dtype)
    assert "with autocast and without" in in_words(
        parse("0/0: GLOBAL_STATE changed: autocast(cpu)_enabled ")
    )


def test_a_size_that_a_line_made_a_constant_of_is_not_to_be_marked() -> None:
    size = "tensor 'x' size mismatch at index 0. expected {}, actual {}"
    line = {"line": 14, "name": "step", "filename": 7}
    sources = {"sources": ["L['x'].size()[0]"], "value": "9", "user_stack": [line]}
    lines = [
        TraceRecord(metadata={"str": [FILE, 7]}),
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=4),
        rejected("0/1", f"0/0: {size.format(6, 9)}", call=4),
        *compiled("0/2", STEP, call=8),
        rejected("0/2", f"0/1: {size.format(9, 12)}", call=8),
        *(ran(f"0/{entry}", *range(first, 20)) for entry, first in enumerate((0, 4, 8))),
    ]
    fixed = written.record("0/1", 4, symbolic_shape_specialization=sources)
    varies = written.record("0/2", 8, create_symbol={"source": "L['x'].size()[0]"})

    (marked,) = diagnosed(*lines)
    (padded,) = diagnosed(*lines, fixed)
    (of_one_size,) = diagnosed(*lines, fixed, varies)

    assert of_one_size.fix == ""

    assert marked.fix.startswith("torch._dynamo.maybe_mark_dynamic(x, 0)")
    assert padded.fix.startswith("x = torch.nn.functional.pad(x, ...)  # before the call")
    assert "used in line 14" in padded.message
    assert "mark_dynamic" not in padded.detail


def test_what_only_failed_to_compile_before_is_not_recompiled() -> None:
    lines = [*compiled("0/0", STEP, fail_type="TorchRuntimeError"), *compiled("0/1", STEP, call=4)]

    assert collected(*lines, ran("0/1", *range(4, 20))) == ()


def test_a_size_that_was_dynamic_and_failed_is_not_to_be_marked() -> None:
    sized = "tensor 'x' size mismatch at index 0. expected 960, actual 720"
    counted = "(x.size()[0] // 480) == {}  # for t in range(n):"
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=4),
        rejected("0/1", f"0/0: {sized}", call=4),
        *compiled("0/2", STEP, call=8),
        rejected("0/2", f"0/1: {counted.format(1)}", f"0/0: {sized}", call=8),
        *(ran(f"0/{entry}", *range(first, 20)) for entry, first in enumerate((0, 4, 8))),
    ]

    assert [found.fix for found in diagnosed(*lines) if "mark_dynamic" in found.fix] == []


@pytest.mark.parametrize(
    ("caller", "owner", "fix"),
    [
        (compiled("1/0", written.TRAIN), (), "torch.compile(..., dynamic=True)"),
        # its torch.compile is given dynamic=False
        (compiled("1/0", written.TRAIN), (AT_LINE,), "torch.compile()"),
        (compiled("1/0", written.TRAIN), (STATIC,), "torch.compile(...)  # without dynamic=False"),
        (compiled("1/0", written.TRAIN, fail_type="Unsupported"), (), "torch._dynamo.maybe_mark"),
        (compiled("1/0", written.REPORT), (), "torch._dynamo.maybe_mark"),
    ],
)
def test_no_size_is_marked_in_a_function_that_is_compiled_itself(
    caller: list[TraceRecord], owner: tuple[CompiledCallable, ...], fix: str
) -> None:
    reason = "tensor 'x' size mismatch at index 0. expected 8, actual 6"
    begun = tuple(written.begun(f"0/{entry}", call) for entry, call in ((0, 0), (1, 10)))
    owners = [msgspec.structs.replace(each, compilations=begun) for each in owner]

    (found,) = diagnosed(*recompiled(10, reason=reason), *caller, *owners)

    assert found.fix.startswith(fix)
    assert ("before the first call" in found.fix) is ("mark" in fix)


def test_a_guard_that_failed_once_stands_beside_one_that_failed_again() -> None:
    again = [
        *compiled("0/3", STEP, call=15),
        rejected("0/3", "0/2: n == 2", call=15),
        ran("0/3", *range(15, 20)),
    ]

    found = diagnosed(*once_and_once("n == 3"), *again)

    assert [(each.level, each.count) for each in found] == [(Level.WARNING, 2), (Level.NOTE, 1)]
    assert found[0].fingerprint != found[1].fingerprint


def test_two_values_within_one_call_are_not_once() -> None:
    lines = [
        *recompiled(),
        *compiled("0/1", STEP, call=10),
        rejected("0/1", "0/0: tensor 'x' size mismatch at index 0. expected 8, actual 9", call=10),
        *compiled("0/2", STEP, call=10),
        rejected("0/2", "0/1: tensor 'x' size mismatch at index 0. expected 9, actual 7", call=10),
        ran("0/2", *range(10, 20)),
    ]

    assert rules(*lines) == [("KGP103", Level.WARNING)]


@pytest.mark.parametrize(
    ("sizes", "line"),
    [
        ((8, 6), "torch._dynamo.maybe_mark_dynamic(x, 0)  # before the first call"),
        ((8, 1), ""),  # torch compiles for 1 apart, marked or not
        ((8, 1, 6), "torch._dynamo.maybe_mark_dynamic(x, 0)  # before the first call"),
    ],
)
def test_a_size_is_marked_if_that_saves_a_graph(sizes: tuple[int, ...], line: str) -> None:
    text = "tensor 'x' size mismatch at index 0. expected {}, actual {}"
    lines = [*compiled("0/0", STEP), ran("0/0", *range(20))]
    for entry, (before, size) in enumerate(itertools.pairwise(sizes), 1):
        call = 5 * entry
        lines += [*compiled(f"0/{entry}", STEP, call=call), ran(f"0/{entry}", *range(call, 20))]
        lines.append(
            rejected(f"0/{entry}", f"0/{entry - 1}: {text.format(before, size)}", call=call)
        )

    fixes = {found.fix for found in diagnosed(*lines)}

    assert any(line and fix.startswith(line) for fix in fixes) is bool(line)
    assert any("mark_dynamic" in fix for fix in fixes) is bool(line)
    assert any("torch compiles for 1 apart" in fix for fix in fixes) is (len(sizes) == 3)


def test_a_size_for_which_a_range_was_compiled_is_not_marked() -> None:
    lines = [*compiled("0/0", STEP), ran("0/0", *range(20))]
    for entry, said in (
        (1, ["0/0: tensor 'x' size mismatch at index 0. expected 16, actual 14"]),
        (
            2,
            [
                "0/1: 2 <= x.size()[0] <= 15",
                "0/0: tensor 'x' size mismatch at index 0. expected 16, actual 1",
            ],
        ),
    ):
        lines += [*compiled(f"0/{entry}", STEP, call=5 * entry), ran(f"0/{entry}", 5 * entry)]
        lines.append(rejected(f"0/{entry}", *said, call=5 * entry))

    assert {found.fix for found in diagnosed(*lines)} == {""}


def test_sizes_of_which_each_has_an_entry_are_not_the_cause_beside_a_new_value() -> None:
    """A helper called for two parameters: in the second step the number that a break returned is
    another one, and each entry says no to what it is asked first."""
    size = "0/2: tensor 'x' size mismatch at index 1. expected 5, actual 3"
    lines = [
        *compiled("0/0", STEP),
        *described("0/0", 0, "x", 8, 3),
        *compiled("0/1", STEP, call=1),
        *described("0/1", 1, "x", 8),
        rejected("0/1", "0/0: tensor 'x' rank mismatch. expected 2, actual 1", call=1),
        *compiled("0/2", STEP, call=2),
        *described("0/2", 2, "x", 8, 5),
        rejected(
            "0/2",
            "0/1: tensor 'x' rank mismatch. expected 1, actual 2",
            "0/0: tensor 'y' dtype mismatch. expected Float, actual Half",
            call=2,
        ),
        *compiled("0/3", STEP, call=10),
        rejected("0/3", size, "0/0: k == 1.0", call=10),
        ran("0/0", *range(10)),
        ran("0/3", *range(10, 20)),
    ]

    said = " ".join(found.message + found.detail for found in diagnosed(*lines))

    assert "k == 1.0" in said or "value of k" in said
    assert "expected 5" not in said


def test_sizes_that_vary_together_are_marked_together() -> None:
    reason = "0/0: tensor 'x' size mismatch at index 0. expected 8, actual 6"
    lines = [
        *compiled("0/0", STEP),
        *described("0/0", 0, "x", 8, 3),
        *described("0/0", 1, "labels", 8),
        *described("0/0", 2, "table", 5),
        *compiled("0/1", STEP, call=10),
        *described("0/1", 3, "x", 6, 3),
        *described("0/1", 4, "labels", 6),
        *described("0/1", 5, "table", 5),
        rejected("0/1", reason, call=10),
        ran("0/0", *range(10)),
        ran("0/1", *range(10, 20)),
    ]
    symbols = [
        written.record("0/1", 10, create_symbol={"source": f"L['{name}'].size()[0]"})
        for name in ("x", "labels")
    ]

    (unknown,) = diagnosed(*lines)
    (known,) = diagnosed(*lines, *symbols)

    at_times = [
        *described("0/0", 6, "weights", 8),
        *compiled("0/2", STEP, call=12),
        *described("0/2", 7, "x", 6, 3),
        *described("0/2", 8, "weights", 6),
        ran("0/2", *range(12, 20)),
    ]

    # torch compiles for what comes at times, whatever the sizes are
    assert {each.fix for each in diagnosed(*lines, *at_times)} == {""}
    both = "torch._dynamo.{0}(x, 0); torch._dynamo.{0}(labels, 0)"
    code, _, effect = unknown.fix.partition("  # ")
    assert code == both.format("maybe_mark_dynamic")
    assert effect.startswith("before the first call, unless a line needs a size as a number")
    code, _, effect = known.fix.partition("  # ")
    assert code == both.format("mark_dynamic")  # torch itself has made both of them symbols
    assert effect == "before the first call; sizes such as 6, 8; not tried"


def test_a_size_that_varies_where_another_argument_is_missing_is_not_to_be_marked() -> None:
    """torch compiles for the argument that is None there, whatever the sizes are."""
    reason = "0/0: tensor 'x' size mismatch at index 0. expected 8, actual 6"
    lines = [
        *compiled("0/0", STEP),
        *described("0/0", 0, "x", 8, 3),
        *described("0/0", 1, "labels", 8),
        *compiled("0/1", STEP, call=10),
        *described("0/1", 2, "x", 6, 3),
        rejected("0/1", reason, call=10),
        ran("0/0", *range(10)),
        ran("0/1", *range(10, 20)),
    ]

    (alone,) = diagnosed(*lines)
    (with_labels,) = diagnosed(*lines, *described("0/1", 3, "labels", 6))

    assert alone.fix == ""
    assert "mark_dynamic(x, 0)" in with_labels.fix


def test_what_varies_behind_a_break_alone_is_not_to_be_marked() -> None:
    behind = resumed(STEP, 12)
    lines = [
        *compiled("1/0", behind),
        *compiled("1/1", behind, call=10),
        rejected("1/1", "1/0: tensor 'y' size mismatch at index 0. expected 8, actual 6", call=10),
    ]

    (found,) = diagnosed(*lines, ran("1/0", *range(10)), ran("1/1", *range(10, 20)))

    assert found.fix == ""


@pytest.mark.parametrize(
    "again", [False, True], ids=["a size of one alone", "and another size that fails"]
)
def test_a_size_that_became_dynamic_and_then_came_as_one_is_a_note_each(again: bool) -> None:
    size, bounds = "tensor 'x' size mismatch at index 0. expected 8, actual {}", "2 <= x.size()[0]"
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=2),
        rejected("0/1", f"0/0: {size.format(6)}", call=2),
        *compiled("0/2", STEP, call=10),
        rejected("0/2", f"0/1: {bounds}", f"0/0: {size.format(1)}", call=10),
        *(ran(f"0/{entry}", *range(first, 20)) for entry, first in enumerate((0, 2, 10))),
    ]
    if again:
        lines += [
            *compiled("0/3", STEP, call=12),
            rejected("0/3", f"0/2: {bounds}", f"0/0: {size.format(0)}", call=12),
        ]

    found = [(each.level, each.count) for each in diagnosed(*lines)]

    assert found == ([(Level.WARNING, 2), (Level.NOTE, 1)] if again else [(Level.NOTE, 1)] * 2)


def once_and_once(second: str) -> list[Any]:
    """A smaller batch in step 5, and ``second`` in step 8."""
    return [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=5),
        rejected("0/1", "0/0: tensor 'x' size mismatch at index 0. expected 8, actual 6", call=5),
        *compiled("0/2", STEP, call=8),
        rejected("0/2", f"0/1: {second}", call=8),
        *(ran(f"0/{entry}", *range(first, 20)) for entry, first in enumerate((0, 5, 8))),
    ]


def test_what_recompiles_in_the_warm_up_is_a_note() -> None:
    (found,) = diagnosed(*recompiled(1))

    assert (found.rule, found.level) == ("KGP103", Level.NOTE)
    assert found.message == (
        "Model.step recompiled 1 time in step 1, 0.50 s, during warm-up: dtype of x: expected "
        "Float, got Double"
    )


def test_a_note_may_stand_beside_the_finding() -> None:
    assert rules(*recompiled(1, 10, 12)) == [("KGP103", Level.WARNING), ("KGP103", Level.NOTE)]


def test_what_recompiles_after_the_warm_up_is_told_apart_from_what_did_before() -> None:
    _, note = diagnosed(*recompiled(1, 10, 12))

    assert "recompiled 1 time in step 1, 0.50 s, during warm-up: dtype of x" in note.message


def test_each_recompile_for_a_flag_happens_once() -> None:
    """Two flags that are each set once, as the stages of a training do."""
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=6),
        rejected("0/1", "0/0: self.observing == True", call=6),
        *compiled("0/2", STEP, call=14),
        rejected("0/2", "0/1: self.quantising == False", "0/0: self.observing == True", call=14),
        *compiled("0/3", STEP, call=17),
        rejected(
            "0/3",
            "0/2: self.observing == False",
            "0/1: self.quantising == False",
            "0/0: self.quantising == False",
            call=17,
        ),
        *(ran(f"0/{entry}", *range(first, 20)) for entry, first in enumerate((0, 6, 14, 17))),
    ]

    (found,) = diagnosed(*lines)

    assert (found.level, found.one_off, found.count) == (Level.NOTE, True, 3)


def test_conditions_are_each_a_cause() -> None:
    larger = "(24*min(64, 16 + L['cache'].used)) != 1536"
    full = "0 <= L['cache'].used <= 48"
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=1),
        rejected("0/1", "0/0: L['cache'].used == 0", call=1),
        *compiled("0/2", STEP, call=13),
        rejected("0/2", f"0/1: {larger}", call=13),
        *compiled("0/3", STEP, call=14),
        rejected("0/3", f"0/2: {full}", call=14),
        *(ran(f"0/{entry}", *range(first, 20)) for entry, first in enumerate((0, 1, 13, 14))),
    ]

    found = diagnosed(*lines)

    message = " ".join(each.message for each in found)
    assert "!= 1536" in message
    assert "<= 48" in message


def test_a_reason_that_torch_failed_to_read_again_is_not_told_as_one_of_an_older_entry() -> None:
    unread = "0/1: 'NoneType' object has no attribute 'size'"
    size = "0/0: tensor 'x' size mismatch at index 0. expected 8, actual 6"
    lines = [*compiled("0/0", STEP), *compiled("0/2", STEP, call=10)]

    (newest,) = diagnosed(*lines, rejected("0/2", unread, size, call=10))
    (oldest,) = diagnosed(*lines, rejected("0/2", size, unread, call=10))

    assert newest.message.endswith("a guard that torch could not work out again")
    assert "NoneType" not in newest.message + newest.detail
    assert oldest.message.endswith("size of x, dimension 0: expected 8, got 6")


def heads(*own: int) -> CompiledCallable:
    """One of the modules of a script, which is called in these calls of it."""
    entry = own[0]
    return written.called(
        STEP,
        number=entry,
        module="Head",
        path=f"heads.{entry}",
        calls=dict.fromkeys(own, 1),
        compilations=(written.begun(f"0/{entry}", entry),),
    )


def compiled_for_each_head(*calls: int) -> list[Any]:
    lines = [*compiled("0/0", STEP), ran("0/0", 0)]
    for entry in calls:
        lines += [
            *compiled(f"0/{entry}", STEP, call=entry),
            rejected(f"0/{entry}", f"0/{entry - 1}: self.width == {entry}", call=entry),
            ran(f"0/{entry}", *range(entry, 25, 5)),
        ]
    return lines


def test_the_first_call_of_a_module_is_not_after_the_warm_up() -> None:
    # given: five modules of a class, which a script calls in turn
    lines = compiled_for_each_head(1, 2, 3, 4)
    modules = [heads(*range(number, 25, 5)) for number in range(5)]

    (found,) = diagnosed(*lines, *modules, calls=25)

    assert (found.rule, found.level, found.count) == ("KGP103", Level.NOTE, 4)
    assert (
        ", each in the first steps of its module; among the causes: value of self.width"
        in found.message
    )


def test_a_module_of_one_call_has_but_one_first_call() -> None:
    """A module that is made for each of two calls, and recompiles in both, has no warm-up."""
    lines = compiled_for_each_head(3, 4)
    of_two_calls = [heads(number, number + 1) for number in (0, 3)]
    both = written.begun("0/3", 3), written.begun("0/4", 4)
    of_two_calls[1] = msgspec.structs.replace(of_two_calls[1], compilations=both)

    found = collected(*lines, *of_two_calls, calls=25)

    assert [each.call for each in found[0].recompiles if found[0].is_steady(each)] == [4]


def test_the_last_call_may_be_of_the_warm_up() -> None:
    lines = [*recompiled(1)]
    last = [line for line in lines if not isinstance(line, GraphRuns)]

    (ended,) = diagnosed(*last, ran("0/0", 0), ran("0/1", 1), calls=2)

    assert "recompiled 1 time in step 1, 0.50 s, during warm-up: " in ended.message


def test_several_rejected_entries_give_their_reasons_newest_first() -> None:
    (found,) = collected(*recompiled(1, 10))

    assert [guard.entry for guard in found.recompiles[1].rejected] == ["0/1", "0/0"]
    assert found.recompiles[1].guard.entry == "0/1"


def test_a_value_that_came_before_is_not_what_the_next_recompile_is_about() -> None:
    """A name comes, then another, then the first again with another strength."""
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=4),
        rejected("0/1", "0/0: name == 'a'", call=4),
        *compiled("0/2", STEP, call=6),
        rejected("0/2", "0/1: name == 'b'", "0/0: strength == 1.0", call=6),
        *(ran(f"0/{entry}", *range(first, 20)) for entry, first in enumerate((0, 4, 6))),
    ]

    (found,) = collected(*lines)

    assert [each.guard.source for each in found.recompiles] == ["name", "strength"]


def test_one_size_then_one_then_any_size_happened_once() -> None:
    size = "tensor 'x' size mismatch at index 0. expected {}, actual {}"
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=4),
        rejected("0/1", f"0/0: {size.format(6, 1)}", call=4),
        *compiled("0/2", STEP, call=8),
        rejected("0/2", f"0/1: {size.format(1, 9)}", f"0/0: {size.format(6, 9)}", call=8),
        *(ran(f"0/{entry}", *range(first, 20)) for entry, first in enumerate((0, 4, 8))),
    ]

    assert rules(*lines) == [("KGP103", Level.NOTE)]


def test_the_fix_of_the_rarer_of_two_causes_is_not_offered() -> None:
    lines: list[Any] = [*compiled("0/0", STEP)]
    reasons = ["0/0: tensor 'x' dtype mismatch. expected Float, actual Double"]
    reasons += [f"0/{entry}: name == '{entry}'" for entry in range(1, 3)]
    for entry, reason in enumerate(reasons, 1):
        call = 3 + 3 * entry
        lines += [*compiled(f"0/{entry}", STEP, call=call), ran(f"0/{entry}", call, call + 1)]
        lines.append(rejected(f"0/{entry}", reason, call=call))
    (event,) = collected(*lines)

    assert [bool(each.fix) for each in event.recompiles] == [True, False, False]
    assert recompiles._fix(event) == ""
    assert (
        recompiles._fix(recompiles._only(event, event.recompiles[:2]))
        == f"{FIX}; other causes may stay"
    )
    assert recompiles._fix(recompiles._only(event, event.recompiles[:1])) == FIX


def described(compile_id: str, number: int, source: str, *sizes: int, **more: Any) -> list[Any]:
    """A tensor as torch describes it among the inputs of a compilation."""
    key = {"describer_id": 0, "id": number}
    return [
        written.record(compile_id, describe_tensor={**key, "size": list(sizes), **more}),
        written.record(compile_id, describe_source={**key, "source": f"L['{source}']"}),
    ]


@pytest.mark.parametrize(("is_parameter", "offered"), [(False, True), (True, False)])
def test_a_size_that_a_parameter_keeps_static_is_not_marked(
    is_parameter: bool, offered: bool
) -> None:
    size = "0/0: tensor 'x' size mismatch at index 0. expected 8, actual 6"
    lines = [
        *compiled("0/0", STEP),
        *described("0/0", 0, "weight", 8, is_parameter=is_parameter),
        *compiled("0/1", STEP, call=10),
        *described("0/1", 1, "weight", 6, is_parameter=is_parameter),
        rejected("0/1", size, call=10),
    ]

    (found,) = diagnosed(*lines, ran("0/0", *range(10)), ran("0/1", *range(10, 20)))

    assert ("mark_dynamic(x, 0)" in found.fix) is offered


def test_what_came_is_known_from_what_was_rejected_next() -> None:
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=1),
        rejected("0/1", "0/0: n == 2", call=1),
        *compiled("0/2", STEP, call=5),
        rejected("0/2", "0/1: n == 3", "0/0: n == 2", call=5),
        ran("0/0", 0),
        ran("0/1", 1, 2, 3, 4),
        ran("0/2", *range(5, 20)),
    ]

    (found,) = collected(*lines)

    assert [(r.guard.expected, r.guard.actual) for r in found.recompiles] == [("2", "3"), ("3", "")]


def test_the_limit_is_reached_and_silence_is_counted() -> None:
    (found,) = collected(*to_the_limit(2, 4, 6, limit=8, reason="len(xs) == 2"))

    assert found.limit is not None
    assert (found.limit.call, found.limit.eager_calls, found.every_value_new) == (8, 12, False)
    (finding,) = recompiles.diagnose((found,))
    assert (finding.rule, finding.count) == ("KGP104", 3)
    assert finding.message.endswith(
        "in step 8; in 12 calls since then it, or a part of it, ran eagerly or was not called"
    )


def test_a_recompile_that_the_program_makes_an_error_reaches_no_limit() -> None:
    lines = to_the_limit(2, limit=4, reason="n == 1")
    refused = {"fail_type": "RecompileError", "co_name": None}
    lines = [
        line
        for line in lines
        if not (
            isinstance(line, TraceRecord)
            and line.call == 4
            and "compilation_metrics" in line.metadata
        )
    ]
    raised = written.offered(STEP, "raised", call=4)

    events = collected(*lines, written.record("0/2", 4, compilation_metrics=refused), raised)

    assert all(event.limit is None for event in events)


def test_values_seen_before_still_run_compiled_after_the_limit() -> None:
    lines = to_the_limit(2, 4, 6, limit=8, reason="len(xs) == 2")
    revisited = [ran("0/0", 9, 11, 13)]  # the first entry's value comes back

    found = limit_of(*lines, *revisited)

    assert found.eager_calls == 9


def test_a_call_that_loses_some_of_its_runs_counts_once() -> None:
    twice = [written.GraphRuns(compile_id="0/0", runs={0: 2, 1: 2, 2: 1, 4: 1})]
    lines = [*compiled("0/0", STEP), *twice, *to_the_limit(2, limit=3, reason="n == 1")[3:]]

    found = limit_of(*lines, calls=5)

    assert found.eager_calls == 2


def test_nothing_is_counted_of_a_part_that_not_every_call_reaches() -> None:
    limited = to_the_limit(2, limit=3, reason="n == 1")
    lines = [line for line in limited if not isinstance(line, written.GraphRuns)]

    found = limit_of(*lines, written.GraphRuns(compile_id="0/0", runs={0: 1, 2: 1}), calls=5)

    assert found.eager_calls == Skipped(reason="it does not run in every call")


def test_without_counted_graphs_silence_is_not_observed() -> None:
    lines = [
        line
        for line in to_the_limit(2, limit=4, reason="n == 1")
        if not isinstance(line, written.GraphRuns)
    ]

    found = limit_of(*lines)

    assert found.eager_calls == Skipped(reason="no graph of it was counted")
    (finding,) = diagnosed(*lines)
    assert finding.message.endswith(
        "torch's limit was reached in step 4; how often it ran eagerly since then is not known"
    )


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ((), "; no graph of it ran in the 19 calls since then"),
        ((4,), "; how often it ran eagerly since then is not known"),
    ],
)
def test_since_a_limit_in_the_first_call_it_is_not_known_how_often_a_part_ran_eagerly(
    later: tuple[int, ...], said: str
) -> None:
    lines = [*to_the_limit(0, 0, limit=0, reason="n == 1"), ran("0/2", 0, *later)]
    evidence = Evidence(written.recording(*lines))

    (finding,) = recompiles.diagnose(recompiles.collect(evidence))
    eager = recompiles.eager_by_finding(evidence, FUSED)

    assert finding.message.endswith(f"torch's limit was reached in step 0{said}")
    assert isinstance(eager[finding.fingerprint], Skipped)


def test_since_a_later_limit_the_gate_counts_calls_in_which_a_part_ran_eagerly() -> None:
    evidence = Evidence(written.recording(*to_the_limit(2, 4, 6, limit=8, reason="n == 2")))

    (finding,) = recompiles.diagnose(recompiles.collect(evidence))

    assert recompiles.eager_by_finding(evidence, FUSED) == {finding.fingerprint: 12}


def test_a_value_that_no_entry_had_comes_before_a_guard_that_failed_before() -> None:
    """Every compilation without gradients is rejected by the one with gradients; only the first
    was made for that."""
    grad = "0/0: GLOBAL_STATE changed: grad_mode "
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=4),
        rejected("0/1", grad, call=4),
        *compiled("0/2", STEP, call=8),
        rejected("0/2", grad, "0/1: future == 4", call=8),
        *compiled("0/3", STEP, call=12),
        rejected("0/3", grad, "0/2: future == 8", "0/1: future == 4", call=12),
        *(ran(f"0/{entry}", first) for entry, first in enumerate((0, 4, 8, 12))),
    ]

    (found,) = collected(*lines)

    assert [each.guard.source for each in found.recompiles] == ["grad_mode", "future", "future"]
    assert [each.guard.expected for each in found.recompiles[1:]] == ["4", "8"]


def test_a_size_that_has_to_be_a_multiple_is_no_constant() -> None:
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=4),
        rejected("0/1", "0/0: (x.size()[0] % 4) == 0  # x.view(-1, 4)", call=4),
        *(ran(f"0/{entry}", first) for entry, first in enumerate((0, 4))),
    ]

    (found,) = diagnosed(*lines)

    assert "makes a constant" not in found.fix


def test_an_entry_of_the_calls_own_mode_tells_the_cause() -> None:
    """The entry without gradients rejects every call with them, before anything else is asked."""
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=4),
        rejected("0/1", "0/0: weight is None", call=4),
        *compiled("0/2", STEP, call=8),
        rejected("0/2", "0/1: GLOBAL_STATE changed: grad_mode ", "0/0: weight is None", call=8),
        *(ran(f"0/{entry}", first) for entry, first in enumerate((0, 4, 8))),
    ]

    (found,) = collected(*lines)

    assert [each.guard.source for each in found.recompiles] == ["weight", "weight"]


def test_of_entries_of_other_modes_that_of_the_fewest_settings_tells_the_cause() -> None:
    """Not the last one made, which rejects the call for its own mode as well."""
    both = "GLOBAL_STATE changed: deterministic_algorithms num_threads "
    autocast = "GLOBAL_STATE changed: autocast(cpu)_enabled "
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=4),
        rejected("0/1", f"0/0: {autocast}", call=4),
        *compiled("0/2", STEP, call=8),
        rejected(
            "0/2", f"0/1: {autocast}deterministic_algorithms num_threads ", f"0/0: {both}", call=8
        ),
        *(ran(f"0/{entry}", first) for entry, first in enumerate((0, 4, 8))),
    ]

    (found,) = collected(*lines)

    assert [each.guard.source for each in found.recompiles] == [
        "autocast(cpu)_enabled",
        "deterministic_algorithms num_threads",
    ]


def test_an_entry_of_another_backend_is_not_the_cause_where_one_of_its_own_fails() -> None:
    other, size = "BACKEND_MATCH failure: different", "len(x) == {}"
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=4),
        rejected("0/1", f"0/0: {other}", call=4),
        *compiled("0/2", STEP, call=8),
        rejected("0/2", f"0/1: {other}", f"0/0: {size.format(2)}", call=8),
        *(ran(f"0/{entry}", first) for entry, first in enumerate((0, 4, 8))),
    ]

    (found,) = collected(*lines)

    assert [each.guard.kind for each in found.recompiles] == ["backend", "length"]


def test_where_all_guards_failed_before_the_entry_that_never_failed_on_one_tells() -> None:
    mode, ratio = "mode == 'lin'", "ratio == 0.5"
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=2),
        rejected("0/1", f"0/0: {ratio}", call=2),
        *compiled("0/2", STEP, call=4),
        rejected("0/2", f"0/1: {mode}", f"0/0: {mode}", call=4),
        *compiled("0/3", STEP, call=8),
        rejected("0/3", f"0/1: {mode}", f"0/2: {ratio}", f"0/0: {mode}", call=8),
        *(ran(f"0/{entry}", first) for entry, first in enumerate((0, 2, 4, 8))),
    ]

    (found,) = collected(*lines)

    assert [each.guard.source for each in found.recompiles] == ["ratio", "mode", "ratio"]


def test_a_value_that_an_entry_was_made_for_is_not_the_cause_where_that_entry_fails() -> None:
    depth, noise = "self.depth == {}", "self.noise == 0.0"
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=2),
        rejected("0/1", f"0/0: {depth.format(3)}", call=2),
        *compiled("0/2", STEP, call=4),
        rejected("0/2", f"0/1: {depth.format(2)}", f"0/0: {noise}", call=4),
        *compiled("0/3", STEP, call=8),
        rejected("0/3", f"0/2: {depth.format(3)}", f"0/1: {noise}", call=8),
        *(ran(f"0/{entry}", first) for entry, first in enumerate((0, 2, 4, 8))),
    ]

    (found,) = collected(*lines)

    assert [each.guard.source for each in found.recompiles][:2] == ["self.depth", "self.noise"]


def test_every_call_a_new_value_is_unbounded() -> None:
    calls = tuple(range(1, 8))

    (found,) = diagnosed(*to_the_limit(*calls, limit=8, reason="G['TALLY'] == 1"))

    assert (found.rule, found.count) == ("KGP105", 7)
    assert found.message.startswith(
        "Model.step recompiled 7 times in 7 steps (1 to 7), 3.50 s; among the causes: value of "
        "the global TALLY"
    )


def test_a_new_value_in_every_call_is_unbounded_before_any_limit() -> None:
    assert rules(*recompiled(*range(1, 8)), calls=8) == [("KGP105", Level.WARNING)]


def test_a_function_called_in_every_other_call_is_unbounded_too() -> None:
    # given: each call that runs it brings a new value; the calls between do not run it
    lines = [line for line in recompiled(2, 4, 6, 8) if not isinstance(line, written.GraphRuns)]
    once_each = [ran(f"0/{entry}", 2 * entry) for entry in range(5)]

    assert rules(*lines, *once_each, calls=10) == [("KGP105", Level.WARNING)]


def test_blocks_that_share_their_code_in_two_calls_are_not_unbounded() -> None:
    # given: an evaluation runs four blocks, twice; each time some of them need new code
    lines = [line for line in recompiled(4, 4, 4, 8) if not isinstance(line, written.GraphRuns)]
    runs = [ran(f"0/{entry}", 4, 8) for entry in range(4)]

    assert "KGP105" not in [rule for rule, _ in rules(*lines, *runs, calls=9)]


def test_new_values_within_one_call_are_unbounded_too() -> None:
    # given: one call runs it five times, each time with another value
    lines = [*compiled("0/0", STEP), ran("0/0", 0)]
    for entry in range(1, 5):
        lines += [
            *compiled(f"0/{entry}", STEP),
            rejected(f"0/{entry}", f"0/{entry - 1}: n == 1", call=0),
        ]
        lines += [ran(f"0/{entry}", 0)]

    assert rules(*lines, calls=1) == [("KGP105", Level.WARNING)]


@pytest.mark.parametrize(
    ("rounds", "entries"),
    [(20, 11), (1, 0)],
    ids=["the modules come again", "all calls are of new modules"],
)
def test_room_is_for_modules_that_come_again(rounds: int, entries: int) -> None:
    """Eleven modules of one class, which a script calls one after the other; the eighth call meets
    the limit."""
    line = SourceLine(file=FILE, line=4, function="forward")
    modules = [
        CompiledCallable(
            number=number,
            function="Head.forward",
            module="Head",
            definition=line,
            offered=line,
            calls={11 * turn + number: 1 for turn in range(rounds)},
            eager={11 * turn + number: 1 for turn in range(rounds) if number > 7},
        )
        for number in range(11)
    ]

    assert modules_with_room(modules, 8) == entries


def test_values_that_come_again_after_the_limit_were_not_new_in_every_call() -> None:
    lines = to_the_limit(*range(1, 8), limit=8, reason="name == 'left'")

    assert rules(*lines) == [("KGP105", Level.WARNING)]
    assert rules(*lines, ran("0/3", 12)) == [("KGP104", Level.WARNING)]


@pytest.mark.parametrize("shown", ["shop/model.py", "rc/shop/model.py", "hop/model.py"])
def test_the_line_that_used_a_value_is_named_and_related(shown: str) -> None:
    """torch shows a path without what it has in common with its own, and one character less."""
    reason = (
        f"n == 2     # y = x.sin()  # {shown}:14 in step\nUser stack trace:\n  "
        f'File "{FILE}", line 14, in step'
    )
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=10),
        rejected("0/1", f"0/0: {reason}", call=10),
    ]

    (found,) = diagnosed(*lines, ran("0/0", *range(10)), ran("0/1", *range(10, 20)))

    assert found.message.endswith("value of n: expected 2, used in line 14")
    assert found.related == (written.place(FILE, 14, "step"), CALL_SITE)


@pytest.mark.parametrize(("line", "used"), [(1, ""), (2, ", used in line 2")])
def test_a_line_is_said_to_use_an_entry_only_if_it_names_it(line: int, used: str) -> None:
    """torch gives the line that first looked at the list of groups."""
    texts = ("    for group in self.param_groups:  # clear", 'weights.sub_(group["lr"])')
    shown = f"{texts[line - 1].strip()}  # shop/model.py:{line} in step"
    reason = f"self.param_groups[0]['lr'] == 0.1     # {shown}"
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=10),
        rejected("0/1", f"0/0: {reason}", call=10),
    ]

    (found,) = diagnosed(*lines, ran("0/0", 0), ran("0/1", 10), program="\n".join(texts))

    words = "value of lr of the optimizer's param group 0: expected 0.1"
    assert found.message.endswith(f"{words}{used}")
    assert len(found.related) == 1 + bool(used)


def test_a_line_of_a_library_is_not_named_as_the_line_that_used_the_value() -> None:
    reason = (
        "n == 2     # for group in groups:  # optim/adam.py:229 in step\n  File "
        f'"{LIBRARY}", line 229, in step'
    )
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=10),
        rejected("0/1", f"0/0: {reason}", call=10),
    ]

    (found,) = diagnosed(*lines, ran("0/0", *range(10)), ran("0/1", *range(10, 20)))

    assert found.message.endswith("value of n: expected 2")


def returned_by_a_break(*calls: int) -> list[Any]:
    going_on = resumed(STEP, 16)
    lines = [*compiled("0/0", STEP), *compiled("1/0", going_on), ran("1/0", 0)]
    for entry, call in enumerate(calls, 1):
        lines += [*compiled(f"1/{entry}", going_on, call=call), ran(f"1/{entry}", call)]
        lines.append(rejected(f"1/{entry}", f"1/{entry - 1}: ___stack0 == 0.{entry}", call=call))
    return lines


@pytest.mark.parametrize("calls", [(10,), (4, 10), (1,), tuple(range(1, 20))])
def test_what_a_break_returned_is_a_note_that_names_the_break(calls: tuple[int, ...]) -> None:
    (found,) = diagnosed(*returned_by_a_break(*calls))

    assert (found.level, found.count, found.fix) == (Level.NOTE, len(calls), "")
    assert "because of the graph break at line 16" in found.message
    assert ": that line returned another value than before" in found.message
    assert "___stack" not in found.message
    assert written.place(FILE, 16, "step") in found.related


def test_a_cause_beside_the_break_keeps_its_finding() -> None:
    of_its_own = [*compiled("0/1", STEP, call=10), rejected("0/1", "0/0: n == 1", call=10)]
    of_its_own += [
        *compiled("0/2", STEP, call=15),
        rejected("0/2", "0/1: n == 2", call=15),
        ran("0/2", *range(15, 20)),
    ]

    found = diagnosed(*returned_by_a_break(4, 10), *of_its_own)

    assert [(each.level, each.count) for each in found] == [(Level.NOTE, 2), (Level.WARNING, 2)]
    assert "graph break" not in found[1].message


def test_of_several_causes_the_break_is_a_part() -> None:
    of_its_own = [*compiled("0/1", STEP, call=19), rejected("0/1", "0/0: n == 1", call=19)]

    (found,) = diagnosed(*returned_by_a_break(*range(1, 19)), *of_its_own)

    assert "in part because of the graph break at line 16; among the causes: " in found.message


def test_a_dtype_that_came_through_a_break_is_not_because_of_the_break() -> None:
    going_on = resumed(STEP, 16)
    reason = "1/0: tensor '___stack0' size mismatch at index 0. expected 8, actual 9"
    lines = [
        *compiled("0/0", STEP),
        *compiled("1/0", going_on),
        *compiled("1/1", going_on, call=10),
    ]

    (found,) = diagnosed(*lines, rejected("1/1", reason, call=10), ran("1/0", 0), ran("1/1", 10))

    assert "because of the graph break" not in found.message
    assert found.message.endswith(
        "size of the result of a graph break's line, dimension 0: expected 8, got 9"
    )
    assert (found.fix, "___stack0, 0" in found.detail) == ("", False)


def test_what_the_line_of_a_break_holds_is_not_its_result_and_is_told_once() -> None:
    going_on = resumed(STEP, 16)
    size = "size mismatch at index 0. expected 8, actual 9"
    held = [
        *compiled("0/0", STEP),
        *compiled("1/0", going_on),
        offered(going_on, compile_id="1/0", on_stack=3),
        *compiled("1/1", going_on, call=10),
        rejected("1/1", f"1/0: tensor '___stack1' {size}", call=10),
        ran("1/0", 0),
        ran("1/1", 10),
    ]
    also_told = [*compiled("0/1", STEP, call=10), ran("0/1", 10)]
    also_told.append(rejected("0/1", f"0/0: tensor 'x' {size}", call=10))

    (alone,), (once,) = diagnosed(*held), diagnosed(*held, *also_told)

    assert alone.message.endswith(
        "size of a value that the line of a graph break holds, dimension 0: expected 8, got 9"
    )
    assert "size of x" in once.message
    assert "graph break" not in once.message


def test_a_module_of_torch_is_named_with_the_argument_that_it_was_given() -> None:
    frame = (LIBRARY, 67, "inner")
    lines = [
        *compiled("0/0", frame),
        *compiled("0/1", frame, call=10),
        rejected("0/1", "0/0: tensor 'args[0]' rank mismatch. expected 2, actual 3", call=10),
        offered(
            frame,
            compile_id="0/0",
            qualified="wrap_inline.<locals>.inner",
            wraps="Linear",
            arguments=("input",),
        ),
        ran("0/0", *range(10)),
        ran("0/1", *range(10, 20)),
    ]

    (found,) = diagnosed(*lines)

    assert found.message == (
        "Linear recompiled 1 time in step 10, 0.50 s: rank of input: expected 2, got 3"
    )


def test_a_few_new_values_in_a_row_are_not_unbounded() -> None:
    assert rules(*recompiled(4, 5, 6), calls=20) == [("KGP103", Level.WARNING)]


def test_what_follows_a_break_belongs_to_its_function() -> None:
    reason = "tensor 'y' dtype mismatch. expected Float, actual Double"
    going_on = resumed(STEP, 16)
    lines = [
        *recompiled(10),
        *compiled("1/0", going_on),
        *compiled("1/1", going_on, call=10),
        rejected("1/1", f"1/0: {reason}", call=10),
        offered(going_on, compile_id="1/1", call=10),
    ]

    (found,) = diagnosed(*lines)

    assert (found.location, found.count) == (STEPS_DEF, 2)


def test_a_librarys_function_counts_at_the_line_that_leads_there() -> None:
    frame = (LIBRARY, 50, "forward")
    lines = [
        *compiled("0/0", frame),
        *compiled("0/1", frame, call=10),
        rejected("0/1", "0/0: tensor 'args[0]' rank mismatch. expected 1, actual 2", call=10),
        offered(frame, compile_id="0/0", qualified="MultiheadAttention.forward"),
        ran("0/0", *range(10)),
        ran("0/1", *range(10, 20)),
    ]

    (found,) = diagnosed(*lines)

    assert found.location == CALL_SITE
    assert found.library == PackageLine(
        package="torch",
        version="",
        file="nn/modules/activation.py",
        line=50,
        function="MultiheadAttention.forward",
    )


def test_a_librarys_function_counts_at_the_line_that_compiled_it_again() -> None:
    frame = (LIBRARY, 50, "forward")
    earlier = (written.CALLER[0], 7, "main")
    lines = [
        *compiled("0/0", frame, above=(earlier,)),
        *compiled("0/1", frame, call=10),
        rejected("0/1", "0/0: tensor 'args[0]' rank mismatch. expected 1, actual 2", call=10),
        *compiled("0/2", frame, call=10, above=((written.CALLER[0], 22, "train"),)),
        rejected("0/2", "0/1: tensor 'args[0]' rank mismatch. expected 2, actual 3", call=10),
        *(ran(f"0/{entry}", *range(10, 20)) for entry in range(3)),
    ]

    (found,) = diagnosed(*lines)

    assert found.location == CALL_SITE


def test_two_functions_of_a_library_behind_one_line_are_two_findings() -> None:
    lines: list[Any] = []
    for number, frame in enumerate([(LIBRARY, 50, "forward"), (LIBRARY, 90, "forward")]):
        lines += [
            *compiled(f"{number}/0", frame),
            *compiled(f"{number}/1", frame, call=10),
            rejected(f"{number}/1", f"{number}/0: n == 2", call=10),
        ]
    going_on = resumed((LIBRARY, 90, "forward"), 95)
    lines += [
        *compiled("2/0", going_on),
        *compiled("2/1", going_on, call=12),
        rejected("2/1", "2/0: n == 2", call=12),
    ]

    found = diagnosed(*lines)

    assert [(each.location, each.library and each.library.line, each.count) for each in found] == [
        (CALL_SITE, 50, 1),
        (CALL_SITE, 90, 2),
    ]
    assert len({finding.fingerprint for finding in found}) == 2


def test_two_functions_are_two_findings() -> None:
    lines = [
        *recompiled(10),
        *compiled("1/0", written.REPORT),
        *compiled("1/1", written.REPORT, call=5),
        rejected("1/1", "1/0: n == 2", call=5),
        ran("1/0", 0),
    ]

    found = diagnosed(*lines)

    assert [finding.location for finding in found] == [STEPS_DEF, written.place(FILE, 4, "report")]
    assert len({finding.fingerprint for finding in found}) == 2


def test_a_failed_attempt_is_no_recompile() -> None:
    lines = [
        *compiled("0/0", STEP, fail_type="Unsupported"),
        *compiled("0/1", STEP, call=1, fail_type="Unsupported"),
    ]

    assert collected(*lines, offered(STEP, "raised"), offered(STEP, "raised", call=1)) == ()


def test_the_limit_is_known_without_the_frame_hook() -> None:
    lines = [
        line
        for line in to_the_limit(2, 4, limit=6, reason="n == 1")
        if not isinstance(line, written.OfferedFrame)
    ]

    assert rules(*lines) == [("KGP104", Level.WARNING)]


def test_a_recompile_without_a_reason_says_so() -> None:
    lines = [
        *compiled("0/0", STEP),
        *compiled("0/1", STEP, call=10),
        ran("0/0", 0, 1),
        ran("0/1", 10, 11),
    ]

    (found,) = diagnosed(*lines)

    assert found.level is Level.WARNING
    assert found.message == "Model.step recompiled 1 time in step 10, 0.50 s: torch gave no reason"


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ("0/0: n == 2", ("0/0: n == 2",)),
        ('["0/1: n == 3", "0/0: n == 2"]', ("0/1: n == 3", "0/0: n == 2")),
        ('"0/0: n == 2"', ("0/0: n == 2",)),
        ("2", ("2",)),
        ("[]", ()),
    ],
)
def test_reasons_are_read_whether_they_are_json_or_not(
    payload: str, expected: tuple[str, ...]
) -> None:
    assert reasons(payload) == expected


def test_the_same_reason_has_the_same_fingerprint_in_another_call() -> None:
    (first,), (second,) = diagnosed(*recompiled(10)), diagnosed(*recompiled(12))

    assert first.fingerprint == second.fingerprint


def test_a_wrapped_method_calls_its_object_self() -> None:
    guard = parse("0/0: fn.__self__.last is None")

    assert in_words(guard, wraps="method") == "type of self.last: expected None"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "___check_obj_id(mask.mod.__code__, 7), type=<class 'code'>",
            "mask.mod is another function than before",
        ),
        ("___check_obj_id(how, 7), type=<class 'shop.Way'>", "how is another object than before"),
        ("other is x", "other and x were one object, and are two now"),
        ("___dict_contains('a', kw)", "kw has 'a' in some calls and not in others"),
        ("not ___dict_contains('a', kw)", "kw has 'a' in some calls and not in others"),
        ("len(kw) != 2", "length of kw: expected 2"),
        (
            "self._modules['head']._parameters['bias'] is None",
            "type of self.head.bias: expected None",
        ),
        ("fn.keywords['by'] == 2", "value of by in the functools.partial fn: expected 2"),
        (
            "opt.param_groups[1]['lr'] == 0.5",
            "value of lr of the optimizer's param group 1: expected 0.5",
        ),
        (
            "GLOBAL_STATE changed: num_threads ",
            "the setting num_threads of the process changed, and torch compiles for each",
        ),
        (
            "GLOBAL_STATE changed: autocast(cpu)_enabled num_threads ",
            "it ran with autocast and without, and torch compiles for each "
            "(the setting num_threads changed in the same call)",
        ),
        ('Duplicate tensors found: ["a", "b"]', "a and b are one tensor, and were not before"),
        (
            'Duplicate tensors found: ["a", "b", "c"]',
            "two or more of a, b, c are one tensor, and were not before",
        ),
        (
            "len(self.state[list(dict.keys(self.state))[0]]) != 0",
            "length of self.state[its key 1]: expected 0",
        ),
        ("___stack0 >= 0.5", "that line returned another value than before"),
        (
            "___check_metadata_14064_c0/0",
            "what a tensor subclass keeps beside its data is another than before",
        ),
        (
            "BACKEND_MATCH failure: ...",
            "several torch.compile calls compile it, with different backends or arguments",
        ),
    ],
)
def test_a_guard_on_what_has_no_value_says_that_it_is_another(text: str, words: str) -> None:
    assert in_words(parse(text)) == words


def test_a_compiled_partial_is_named_by_the_function_that_it_calls() -> None:
    guard = parse("fn.keywords['by'] == 2")

    assert in_words(guard, wraps="functools.partial of scale") == (
        "value of by in the functools.partial of scale: expected 2"
    )


def made_anew(*calls: int, frame: tuple[str, int, str] = ("<string>", 1, "f")) -> list[Any]:
    """A function of the same place and name, and each time another code object."""
    lines: list[Any] = []
    for number, call in enumerate(calls):
        lines += [*compiled(f"{number}/0", frame, call=call), ran(f"{number}/0", call)]
    return lines


def test_a_function_that_is_made_anew_in_every_call_is_compiled_in_every_call() -> None:
    (found,) = diagnosed(*made_anew(*range(6)), calls=6)

    assert (found.rule, found.location, found.count) == ("KGP105", CALL_SITE, 5)
    assert (
        found.message
        == "f in <string>:1 recompiled 5 times in 5 steps (1 to 5), 2.50 s; among the causes: "
        "it was created again, or torch._dynamo.reset() was called"
    )


def test_where_resets_are_known_a_function_that_is_made_anew_is_another_one() -> None:
    (found,) = diagnosed(*made_anew(*range(6)), written.CALLS_COUNTED, calls=6)

    assert found.message.endswith(": f is another object than before")


def test_what_is_compiled_after_a_reset_is_no_recompile() -> None:
    # given: the same id in every call, since reset() gives them out again; reset_code_caches() goes
    # on counting
    again = [[written.reset(n), *compiled("0/0", STEP, call=n), ran("0/0", n)] for n in range(6)]
    further = [
        [written.reset(n), *compiled(f"0/{n}", STEP, call=n), ran(f"0/{n}", n)] for n in range(6)
    ]

    assert collected(*again, written.CALLS_COUNTED, calls=6) == ()
    assert collected(*further, written.CALLS_COUNTED, calls=6) == ()


def test_resets_within_one_call_are_told_apart() -> None:
    lines = [[written.reset(0), *compiled("0/0", STEP, call=0), ran("0/0", 0)] for _ in range(6)]

    trace = written.compiler(*lines, written.CALLS_COUNTED)

    assert len(trace.compiled) == 6
    assert collected(*lines, written.CALLS_COUNTED) == ()


def test_a_recompile_between_two_resets_stays_one() -> None:
    lines = [
        written.reset(5),
        *compiled("0/0", STEP, call=5),
        *compiled("0/1", STEP, call=9),
        written.reset(12),
    ]

    (found,) = collected(*lines, written.CALLS_COUNTED)

    assert [(each.compile_id, each.call) for each in found.recompiles] == [("0/1", 9)]


def test_values_that_come_again_after_each_reset_are_not_new_values() -> None:
    lines = [
        line
        for call in range(8)
        for line in (
            written.reset(call),
            *compiled("0/0", STEP, call=call),
            *compiled("0/1", STEP, call=call),
            rejected(
                "0/1", "0/0: tensor 'x' size mismatch at index 1. expected 8, actual 12", call=call
            ),
            ran("0/1", call),
        )
    ]

    steady, early = diagnosed(*lines, written.CALLS_COUNTED, calls=8)

    assert (steady.rule, steady.level, steady.count) == ("KGP103", Level.WARNING, 5)
    assert (early.rule, early.level, early.count) == ("KGP103", Level.NOTE, 3)
    assert ", during warm-up; among the causes: " in early.message


def test_the_limit_in_the_first_call_is_counted_from_the_callables() -> None:
    # given: four layers of one method, the last of which found no room
    lines = [*compiled("0/0", STEP), offered(STEP, compile_id="0/0"), ran("0/0", *range(20))]
    lines += [
        written.record("0/1", 0, compilation_metrics={"fail_type": "Unsupported", "co_name": None}),
        offered(STEP, "run-only", call=0),
        rejected("0/1", "0/0: self.index == 0", call=0),
    ]
    layers = [
        written.called(
            STEP, *(range(20) if n == 3 else ()), number=n, module="Layer", path=f"layers.{n}"
        )
        for n in range(4)
    ]

    counted = limit_of(*lines, *layers)
    unknown = limit_of(*lines)

    assert (counted.eager_calls, counted.calls_since, counted.eager_names) == (
        20,
        80,
        "layers.3 (Layer)",
    )
    assert counted.eager_steady == 17
    assert isinstance(unknown.eager_calls, Skipped)
    assert diagnosed(*lines, *layers)[0].message.endswith(
        "torch's limit was reached in step 0; 20 of its 80 calls in step 0 and later ran eagerly: "
        "layers.3 (Layer)"
    )
    assert diagnosed(*lines, *layers)[0].fix.startswith("torch._dynamo.config.recompile_limit = 4")
    assert diagnosed(*lines)[0].fix == ""
    assert diagnosed(*lines)[0].message.endswith(
        "torch's limit was reached in step 0; how often it ran eagerly since then is not known"
    )


def test_no_limit_is_enough_for_modules_that_each_call_makes_anew() -> None:
    lines = [*compiled("0/0", STEP), offered(STEP, compile_id="0/0"), ran("0/0", 0)]
    lines += [
        written.record("0/1", 1, compilation_metrics={"fail_type": "Unsupported", "co_name": None}),
        offered(STEP, "run-only", call=1),
        rejected("0/1", "0/0: self.index == 0", call=1),
    ]
    layers = [
        written.called(STEP, *([n] if n else ()), number=n, calls={n: 1}, module="Layer")
        for n in range(4)
    ]

    found = limit_of(*lines, *layers)

    assert found.eager_calls == 3
    assert found.modules == 0


def test_calls_under_a_stance_are_not_the_limits() -> None:
    lines = to_the_limit(2, 4, 6, 8, limit=10, reason="len(xs) == 2")
    late = dict.fromkeys(range(15, 20), 1)
    own = written.called(STEP, *range(10, 20), stances={"force_eager": late})

    found = limit_of(*lines, own)

    assert (found.eager_calls, found.calls_since) == (5, 10)


def test_calls_before_the_limit_that_made_no_graph_are_not_of_the_limit() -> None:
    """Each of 20 calls runs eagerly: torch captures nothing of the function, and still compiles it
    for new sizes until the limit in step 16."""
    own = written.called(STEP, *range(20))
    lines = to_the_limit(2, 4, 6, limit=16, reason="len(xs) == 2")

    found = limit_of(*lines, own)

    assert (found.eager_calls, found.calls_since) == (4, 4)


def test_modules_of_torchs_own_have_their_names() -> None:
    # given: Dynamo's function around two modules, compiled once for each
    inner = ("/lib/site-packages/torch/_dynamo/external_utils.py", 67, "inner")
    lines = [
        *compiled("0/0", inner),
        *compiled("0/1", inner, call=5),
        rejected("0/1", "0/0: args[0].size", call=5),
    ]
    heads = [
        written.called(inner, number=n, module="Linear", path=f"heads[{n}]", compilations=begun)
        for n, begun in enumerate(((written.begun("0/0"),), (written.begun("0/1", 5),)))
    ]

    (found,) = diagnosed(*lines, *heads)

    assert found.message.startswith("heads[0] to heads[1] (Linear) recompiled 1 time in step 5")


def test_what_reset_makes_torch_forget_is_compiled_anew() -> None:
    # given: the same compile id in every call, because reset gives them out again
    lines = [
        line for call in range(6) for line in [*compiled("0/0", STEP, call=call), ran("0/0", call)]
    ]

    assert rules(*lines, calls=6) == [("KGP105", Level.WARNING)]


def test_a_few_functions_of_one_name_are_no_recompile() -> None:
    assert collected(*made_anew(0, 1, 2)) == ()
    assert collected(*made_anew(0, 0, 0, 0, 0, 0)) == ()


def test_functions_of_one_name_that_are_called_again_are_no_recompile() -> None:
    """A program makes formulas from texts, and calls each of them many times."""
    formulas = [
        [
            *compiled(f"{number}/0", ("<string>", 2, "formula"), call=10 * number),
            ran(f"{number}/0", *range(10 * number, 10 * number + 10)),
        ]
        for number in range(8)
    ]

    assert collected(*itertools.chain(*formulas), calls=80) == ()


def test_what_follows_several_breaks_of_one_line_is_no_recompile() -> None:
    assert collected(*made_anew(0, 1, 2, 3, 4, 5, frame=resumed(STEP, 16))) == ()


def ledger(*lines: Any, **fields: Any) -> list[RecompileEntry]:
    evidence = Evidence(written.recording(*lines, **fields))
    events = recompiles.collect(evidence)
    return [entry for trace in evidence.compilers for entry in recompiles.ledger(events, trace)]


def test_the_ledger_holds_each_recompile_with_reason_call_and_price() -> None:
    (found,) = ledger(*recompiled(10))

    assert found == RecompileEntry(
        compile_id="0/1",
        location=STEPS_DEF,
        call=10,
        steady=True,
        reason="dtype of x: expected Float, got Double",
        words=DTYPE.text,
        guard="dtype",
        duration_s=0.5,
        call_site=CALL_SITE,
        function="Model.step",
    )


def test_the_ledger_says_what_recompiled_and_what_torch_refused_in_the_order_of_the_calls() -> None:
    assert [(entry.call, entry.steady) for entry in ledger(*recompiled(1))] == [(1, False)]

    entries = ledger(*to_the_limit(2, 4, 6, limit=8, reason="len(xs) == 2"))

    assert [entry.call for entry in entries] == sorted(entry.call or 0 for entry in entries)
    assert [entry.refused for entry in entries] == [False] * (len(entries) - 1) + [True]
    assert entries[-1].duration_s == Skipped(
        reason="torch's recompile limit was reached: nothing was compiled"
    )


def test_the_ledger_of_a_function_that_was_compiled_once_is_empty() -> None:
    assert ledger(*compiled("0/0", STEP)) == []


def test_what_met_no_operator_is_no_recompile_and_ends_no_row_of_new_values() -> None:
    # given: a recompile in each call until one has nothing to compile, after which torch skips it
    calls = range(1, 6)
    flags = [written.rejected(f"0/{call}", f"0/0: flag == {call}", call=call) for call in calls]
    lines = [
        *written.compiled_once()[:-1],
        written.ran("0/0", 0),
        *flags,
        *(line for call in range(1, 5) for line in compiled(f"0/{call}", STEP, call=call)),
        *(offered(STEP, call=call, compile_id=f"0/{call}") for call in range(1, 5)),
        *(written.ran(f"0/{call}", call) for call in range(1, 5)),
        *compiled("0/5", STEP, call=5, guard_count=None, graph_op_count=None),
        offered(STEP, "skipped", call=5),
    ]

    found = recompiles.diagnose(recompiles.collect(Evidence(written.recording(*lines))))

    assert {each.rule for each in found} == {"KGP103"}
    assert sum(each.count for each in found) == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, ADInplaceOrView, "
            "AutogradCPU), actual DispatchKeySet(CPU)",
            "x was made under torch.inference_mode in some calls and not in others",
        ),
        (
            "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, AutogradCPU), "
            "actual DispatchKeySet(CPU, NestedTensor, AutogradNestedTensor)",
            "dispatch-keys of x: expected DispatchKeySet(CPU, AutogradCPU), got "
            "DispatchKeySet(CPU, NestedTensor, AutogradNestedTensor)",
        ),
        (
            "expected type of 'x' to be a tensor type, ' but found <class 'shop.Named'>",
            "type of x: got <class 'shop.Named'>",
        ),
        (
            "expected type of 'x' to be a tensor type, ' but found <class 'NoneType'>",
            "type of x: expected a tensor, got <class 'NoneType'>",
        ),
        (
            "not ___dict_contains('size', G['cur'].__dict__)",
            "the global cur has 'size' of its own in some calls and not in others",
        ),
        (
            "not set.__contains__(skip, 0)",
            "skip has 0 in some calls and not in others",
        ),
        (
            "tensor '___from_numpy(wave)' dtype mismatch. expected Float, actual Short",
            "dtype of wave: expected Float, got Short",
        ),
    ],
)
def test_the_words_say_what_happened_without_torchs_own_names(text: str, words: str) -> None:
    assert in_words(parse(text)) == words


def test_a_condition_is_no_value_that_came() -> None:
    guards = rejections(
        Evidence(
            written.recording(
                written.rejected("0/1", "0/0: x.size()[2] == x.size()[1]", call=1),
                written.rejected("0/2", "0/1: (x.size()[1] % 4) != 0", call=2),
            )
        ).compilers[0]
    )

    assert [in_words(guard) for (guard,) in guards.values()] == [
        "size of x, dimension 2: expected x.size()[2] == x.size()[1]",
        "size of x, dimension 1: expected (x.size()[1] % 4) != 0",
    ]


def test_a_text_with_a_relation_in_it_is_a_value() -> None:
    (evidence,) = Evidence(
        written.recording(
            written.rejected("0/1", "0/0: rule == 'a < b'", call=1),
            written.rejected("0/2", "0/1: rule == 'b == c'", call=2),
        )
    ).compilers

    (guard,) = rejections(evidence)["0/1"]

    assert (guard.expected, guard.actual) == ("'a < b'", "'b == c'")


def test_each_thing_that_failed_is_named() -> None:
    lines = [*written.compiled_once()[:-1], ran("0/0", 0)]
    reasons = ("name == 'a'", "scale == 2.0", "depth == 3", "width == 4")
    for entry, reason in enumerate(reasons, 1):
        lines += [*compiled(f"0/{entry}", STEP, call=3 * entry), ran(f"0/{entry}", 3 * entry)]
        lines.append(rejected(f"0/{entry}", f"0/0: {reason}", call=3 * entry))

    (event,) = collected(*lines)

    assert recompiles._why(event) == (
        "; among the causes: value of name: expected 'a'; value of scale: expected 2.0; value of "
        "depth: expected 3 and 1 more"
    )
