"""KGP108: which compiled callables ran no graph after warm-up, why, and when another finding says
it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kgprof.collectors.compile import runs_eagerly
from kgprof.model import CallsOfCompiled, Finding, Level, RunKey, Skipped, SourceLine
from kgprof.reading import compiled_callables
from kgprof.reading.evidence import Evidence
from tests.analysis import recordings
from tests.collectors import written
from tests.collectors.written import (
    CALLER,
    CALLS,
    FILE,
    PRINT,
    REPORT,
    STEP,
    STEP_DEF,
    broken,
    called,
    compiled,
    offered,
)

EVERY = range(CALLS)
AFTER_WARM_UP = CALLS - 3
INNER = ("/lib/site-packages/torch/_dynamo/external_utils.py", 67, "inner")


def diagnosed(*lines: Any, **fields: Any) -> tuple[Finding, ...]:
    return runs_eagerly.diagnose(
        runs_eagerly.collect(Evidence(written.recording(*lines, **fields)))
    )


def counted(*lines: Any) -> CallsOfCompiled | Skipped:
    evidence = Evidence(written.recording(*lines))
    return runs_eagerly.calls_of_compiled(evidence, evidence.compilers[0])


def a_module(number: int, *eager: int, **fields: Any) -> Any:
    return called(INNER, *eager, number=number, module="Linear", path=f"heads.{number}", **fields)


def test_a_stance_is_named_with_its_line_and_the_calls_after_warm_up() -> None:
    (found,) = diagnosed(*written.a_stance())

    assert (found.rule, found.level, found.fix[:36]) == (
        "KGP108",
        Level.WARNING,
        'torch.compiler.set_stance("default")',
    )
    assert found.location == written.place(FILE, STEP_DEF, "step")
    assert found.related == (written.place(FILE, 21, "train"),)
    assert found.message == (
        "step: 15 of 17 calls after warm-up ran eagerly; "
        'torch.compiler.set_stance("eager_on_recompile") was in '
        "force, and no compiled code fitted the inputs"
    )


def test_a_stance_in_warm_up_alone_is_no_finding() -> None:
    warm = called(STEP, 0, 1, 2, stances={"force_eager": {0: 1, 1: 1, 2: 1}})

    assert diagnosed(*written.compiled_once(), warm) == ()


def test_a_break_that_leaves_no_graph_is_named() -> None:
    # given: a module of torch's own, whose one compilation met a break
    module = a_module(
        0, *EVERY, compiled_as="0/0", compiled_at=SourceLine(file=FILE, line=20, function="train")
    )

    (found,) = diagnosed(*compiled("0/0", INNER), broken("0/0", CALLER, PRINT), module)

    assert found.location == written.place(FILE, 20, "train")
    assert found.related == (written.place(*PRINT),)
    assert found.message == (
        "heads.0 (Linear): no graph at all: 17 of 17 calls after warm-up ran eagerly; print breaks "
        "the graph"
    )


def test_calls_of_the_same_code_that_torch_did_not_try_share_the_break() -> None:
    asked = SourceLine(file=FILE, line=20, function="train")
    tried = a_module(0, *EVERY, compiled_as="0/0", compiled_at=asked)
    others = [a_module(number, *EVERY, compiled_at=asked) for number in (1, 2)]
    lines = (*compiled("0/0", INNER), broken("0/0", CALLER, PRINT), tried, *others)

    (found,) = diagnosed(*lines)

    assert found.message == (
        "heads.0 to heads.2 (Linear): no graph at all: 51 of 51 calls after warm-up ran eagerly; "
        "print breaks the graph"
    )
    known = counted(*lines)
    assert isinstance(known, CallsOfCompiled)
    assert known.eager == {found.fingerprint: 51}


def test_a_break_beside_which_graphs_ran_is_no_finding() -> None:
    assert diagnosed(*written.a_break(), called(STEP, compiled_as="0/0")) == ()


def test_what_had_nothing_to_compile_is_no_finding() -> None:
    # given: compiled code without a graph, or a skipped frame of a function whose calls all run the
    # same lines
    assert diagnosed(*compiled("0/0", STEP), called(STEP, *EVERY, compiled_as="0/0")) == ()
    assert diagnosed(offered(REPORT, "skipped"), called(REPORT, *EVERY)) == ()


def test_a_first_call_without_work_keeps_the_rest_of_a_function_from_being_compiled() -> None:
    (found,) = diagnosed(offered(STEP, "skipped", call=0), called(STEP, *EVERY))

    assert "in step 0 there was nothing to compile, and torch skips the function" in found.message


EMPTIED = (*written.compiled_once(), offered(STEP, "skipped", call=5))


def test_a_call_without_work_ends_the_use_of_compiled_code() -> None:
    (found,) = diagnosed(*EMPTIED, called(STEP, *range(5, CALLS), compiled_as="0/0"))

    assert found.message == (
        "step: 15 of 17 calls after warm-up ran eagerly; in step 5 there was nothing to compile, "
        "and torch skips the function from then on, whatever it is given"
    )


def test_a_call_without_work_is_no_cause_if_a_graph_ran_later() -> None:
    # given: compiled again after a reset, or another code object of the same place
    again = offered(STEP, call=7, compile_id="0/0")

    assert diagnosed(*EMPTIED, called(STEP, 5, compiled_as="0/0")) == ()
    assert diagnosed(*EMPTIED, again, called(STEP, *range(5, CALLS), compiled_as="0/0")) == ()


def test_the_limits_calls_are_the_limits_finding() -> None:
    lines = written.to_the_limit(2, 4, 6, 8, limit=10, reason="len(xs) == 2")
    late = called(STEP, *range(10, CALLS), compiled_as="0/0")

    assert diagnosed(*lines, late) == ()


def test_a_function_that_torch_skipped_is_the_skipped_frames_finding() -> None:
    lines = (*written.a_skipped_frame(), called(STEP, *EVERY, compiled_as="0/0"))

    assert diagnosed(*lines) == ()
    known = counted(*lines)
    assert isinstance(known, CallsOfCompiled)
    assert list(known.eager.values()) == [AFTER_WARM_UP]


@pytest.mark.parametrize(
    ("why", "fix"),
    [
        ("skip-list", ""),
        ("disabled", "torch._dynamo.config.disable = False  # or remove the line that sets it"),
    ],
)
def test_a_skip_that_is_no_fault_of_a_line_is_named(why: str, fix: str) -> None:
    (found,) = diagnosed(offered(STEP, "skipped", why=why), called(STEP, *EVERY))

    assert "no graph at all: 17 of 17 calls" in found.message
    assert found.fix == fix


def test_a_dispatch_mode_around_a_module_of_torchs_own_is_named() -> None:
    skipped = offered(INNER, "skipped", why="dispatch-mode", wraps="Linear")

    (found,) = diagnosed(skipped, a_module(0, *EVERY))

    assert found.message == (
        "heads.0 (Linear): no graph at all: 17 of 17 calls after warm-up ran eagerly; a "
        "TorchDispatchMode was active when torch was to compile it, and torch.compile supports none"
    )


def test_what_was_compiled_before_the_recording_says_nothing() -> None:
    before = called(STEP, *EVERY, compiled_before=True)

    assert diagnosed(offered(STEP, "skipped", why="skip-list"), before) == ()
    assert counted(before) == CallsOfCompiled(calls=0, with_a_graph=0, unknown=CALLS)


def test_an_older_recording_does_not_count_calls() -> None:
    known = counted(*written.compiled_once())

    assert isinstance(known, Skipped)
    assert diagnosed(*written.compiled_once()) == ()


def test_calls_with_and_without_a_graph_are_added_up() -> None:
    known = counted(*written.a_stance())

    assert isinstance(known, CallsOfCompiled)
    assert (known.calls, known.with_a_graph, known.graph_runs) == (20, 5, 5)
    assert list(known.eager.values()) == [15]


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["layers.8", "layers.9", "layers.10"], "layers.8 to layers.10 (Linear)"),
        (["layers.1", "layers.3"], "layers.1 (Linear), layers.3 (Linear)"),
        (["blocks.0.mlp", "blocks.1.mlp"], "blocks.0.mlp to blocks.1.mlp (Linear)"),
        (["heads[4]", "heads[5]"], "heads[4] to heads[5] (Linear)"),
        (["model"], "model (Linear)"),
        (["", ""], "2 Linear modules"),
        ([""], "Linear"),
        (["a", "b", "c", "d", "e"], "a (Linear), b (Linear), c (Linear) and 2 more"),
    ],
)
def test_modules_are_named_by_path(paths: list[str], words: str) -> None:
    modules = [called(INNER, number=n, module="Linear", path=path) for n, path in enumerate(paths)]

    assert compiled_callables.named(modules) == words


def test_a_compilation_belongs_to_the_callable_that_it_began_in() -> None:
    lines = [*compiled("0/0", INNER), *compiled("0/1", INNER)]
    modules = [a_module(0, compiled_as="0/0"), a_module(1, compiled_as="0/1")]
    trace = written.compiler(*lines, *modules)

    owners = [compiled_callables.of_compilation(trace, each) for each in trace.compiled]

    assert [owner and owner.path for owner in owners] == ["heads.0", "heads.1"]


def test_a_module_of_torchs_own_that_is_compiled_in_place_is_named() -> None:
    forward = ("/lib/site-packages/torch/nn/modules/container.py", 248, "forward")
    chain = called(forward, *EVERY, module="Sequential", path="chain")
    elsewhere = called((FILE, 4, "report"), *EVERY, module="Report", path="report")

    (found,) = diagnosed(chain, elsewhere)

    assert found.message.startswith(
        "chain (Sequential): no graph at all: 17 of 17 calls after warm-up ran eagerly"
    )
    assert found.fix.startswith("chain = torch.compile(chain)")


def test_a_module_without_a_name_is_to_be_compiled_as_a_whole_too() -> None:
    forward = ("/lib/site-packages/torch/nn/modules/container.py", 248, "forward")

    (found,) = diagnosed(called(forward, *EVERY, module="Sequential"))

    assert found.fix.startswith(
        "module = torch.compile(module)  # in place of module.compile(), with its arguments;"
    )


def test_calls_under_two_stances_are_added_up() -> None:
    stances = {
        "force_eager": dict.fromkeys(range(3, 8), 1),
        "eager_on_recompile": dict.fromkeys(range(8, 12), 1),
    }

    (found,) = diagnosed(*written.compiled_once(), called(STEP, *range(3, 12), stances=stances))

    assert "9 of 17 calls after warm-up ran eagerly" in found.message


def test_kgprofs_own_stance_in_mode_eager_is_no_finding_of_the_programs() -> None:
    # given: the same calls under torch's stance, in the mode that compiles nothing
    calls = recordings.recording(
        msgspec.structs.replace(
            written.run(*written.a_stance()), key=RunKey(strategy="step", mode="eager")
        ),
        baseline=None,
    )

    evidence = Evidence(calls)

    assert runs_eagerly.collect(evidence) == ()
    counted = runs_eagerly.calls_of_compiled(evidence, evidence.compilers[0])
    assert counted == Skipped("kgprof switches torch.compile off in mode eager")


def test_a_stance_is_not_the_cause_of_what_ran_eagerly_before_it() -> None:
    stances = {"eager_on_recompile": dict.fromkeys(range(10, 20), 1)}

    (found,) = diagnosed(
        offered(STEP, "skipped", why="disabled"), called(STEP, *EVERY, stances=stances)
    )

    assert "no graph at all: 17 of 17 calls" in found.message
    assert found.message.endswith("; torch._dynamo.config.disable is set")
