"""Every frame that Dynamo was offered, what became of it, and Dynamo as it was afterwards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo import convert_frame
from torch.utils._python_dispatch import TorchDispatchMode

from kgprof.model.compile_records import OfferedFrame
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground.source import listening, unavailable
from kgprof.record.listeners import frame_hook
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.frame_hook import FrameHook

HERE = ProjectFiles(libraries=(str(Path(torch.__file__).parent),), own=())


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def offered(
    step: Callable[[], object], *, calls: int = 1, project: ProjectFiles = HERE
) -> list[OfferedFrame]:
    index = CallIndex()
    hook = FrameHook(index, project)
    with listening([hook]):
        for _ in range(calls):
            with index.call():
                step()
    return hook.frames


def summary(frames: list[OfferedFrame]) -> list[tuple[int, str, str, str]]:
    return [(frame.call, frame.function, frame.outcome, frame.why) for frame in frames]


def breaks_once(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


def adds(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def parts(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield x + 1


class Passing(TorchDispatchMode):
    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*args, **(kwargs or {}))


def test_a_break_gives_the_function_and_what_follows_it() -> None:
    compiled = torch.compile(breaks_once, backend="eager")

    frames = offered(lambda: compiled(torch.ones(3)), calls=3)

    line = breaks_once.__code__.co_firstlineno
    assert [(f.call, f.function, f.first_line, f.outcome, f.compile_id) for f in frames] == [
        (0, "breaks_once", line, "compiled", "0/0"),
        (0, f"torch_dynamo_resume_in_breaks_once_at_{line + 2}", line + 2, "compiled", "1/0"),
    ]
    assert {frame.file for frame in frames} == {__file__}


def holds_while_it_breaks(x: torch.Tensor) -> torch.Tensor:
    return torch.add(x, float(x.sum()))


def test_what_lies_on_the_stack_at_a_break_is_counted_with_its_result() -> None:
    compiled = torch.compile(holds_while_it_breaks, backend="eager")

    frames = offered(lambda: compiled(torch.ones(3)))

    assert [frame.on_stack for frame in frames] == [0, 3]  # torch.add, x, and the number


def test_a_recompile_has_the_call_in_which_it_happened() -> None:
    compiled = torch.compile(adds, backend="eager", dynamic=False)
    sizes = iter([3, 3, 4, 4, 3])

    frames = offered(lambda: compiled(torch.ones(next(sizes))), calls=5)

    assert [(frame.call, frame.compile_id) for frame in frames] == [(0, "0/0"), (2, "0/1")]


def test_a_frame_after_the_recompile_limit_is_run_only() -> None:
    compiled = torch.compile(adds, backend="eager", dynamic=False)
    sizes = iter(range(2, 12))

    with torch._dynamo.config.patch(recompile_limit=2):
        frames = offered(lambda: compiled(torch.ones(next(sizes))), calls=6)

    assert summary(frames) == [
        (0, "adds", "compiled", ""),
        (1, "adds", "compiled", ""),
        (2, "adds", "run-only", ""),
    ]
    assert "recompile limit" in frames[-1].text


def test_a_generator_leaves_a_row_although_torch_records_nothing() -> None:
    compiled = torch.compile(parts, backend="eager")

    (frame,) = offered(lambda: list(compiled(torch.ones(3))))

    assert (frame.function, frame.outcome, frame.why) == ("parts", "skipped", "error")
    assert frame.text.startswith("Attempt to trace generator")
    assert "gb0003" in frame.text


def test_what_runs_inside_a_skipped_function_says_so() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        for part in parts(x):
            torch._dynamo.graph_break()
            x = part
        return x

    compiled = torch.compile(fails, backend="eager")

    frames = offered(lambda: compiled(torch.ones(3)), calls=2)

    assert [(frame.function, frame.why, frame.called_in) for frame in frames] == [
        ("fails", "error", ""),
        ("parts", "error", "fails"),
    ]


def test_code_that_cannot_be_hashed_does_no_harm() -> None:
    """Dynamo's bytecode holds dicts among its constants, where a call after a break has
    keywords."""

    def fails(x: torch.Tensor) -> torch.Tensor:
        for part in parts(x):
            torch._dynamo.graph_break()
            x = part
        return x

    def fails_too(x: torch.Tensor) -> torch.Tensor:
        for part in parts(x):
            torch._dynamo.graph_break()
            x = part
        return x

    first, second = (torch.compile(each, backend="eager") for each in (fails, fails_too))

    def step() -> torch.Tensor:
        return second(first(torch.ones(3)))

    step.__code__ = step.__code__.replace(co_consts=(*step.__code__.co_consts, {"mask": None}))
    with pytest.raises(TypeError, match="unhashable"):
        hash(step.__code__)

    frames = offered(step)

    assert [(frame.function, frame.called_in) for frame in frames] == [
        ("fails", ""),
        ("parts", "fails"),
        ("fails_too", ""),
    ]


def test_a_dispatch_mode_is_named_as_the_reason() -> None:
    compiled = torch.compile(adds, backend="eager")

    with Passing():
        frames = offered(lambda: compiled(torch.ones(3)))

    assert summary(frames) == [(0, "adds", "skipped", "dispatch-mode")]


def test_a_dispatch_mode_around_a_module_of_torchs_own_is_named() -> None:
    compiled = torch.compile(torch.nn.Linear(3, 3), backend="eager")

    with Passing():
        (frame,) = offered(lambda: compiled(torch.ones(3)))

    assert (frame.outcome, frame.why, frame.wraps) == ("skipped", "dispatch-mode", "Linear")


def test_a_frame_without_tensors_is_skipped_for_no_fault() -> None:
    def text(length: int) -> str:
        return "x" * length

    compiled = torch.compile(text, backend="eager")

    assert summary(offered(lambda: compiled(3))) == [(0, "text", "skipped", "")]


def test_a_failing_backend_is_a_raised_frame_and_still_raises() -> None:
    def refuses(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> None:
        raise ZeroDivisionError("this backend compiles nothing")

    compiled = torch.compile(adds, backend=refuses)

    def step() -> None:
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
            compiled(torch.ones(3))

    (frame,) = offered(step)

    assert (frame.function, frame.outcome) == ("adds", "raised")
    assert "this backend compiles nothing" in frame.text


def test_an_error_that_torch_suppresses_is_a_skipped_frame() -> None:
    def refuses(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> None:
        raise ZeroDivisionError("this backend compiles nothing")

    compiled = torch.compile(adds, backend=refuses)

    with torch._dynamo.config.patch(suppress_errors=True):
        frames = offered(lambda: compiled(torch.ones(3)))

    assert summary(frames) == [(0, "adds", "skipped", "error")]


def test_of_libraries_only_what_was_compiled_is_kept() -> None:
    compiled = torch.compile(parts, backend="eager")
    library = ProjectFiles(libraries=(str(Path(__file__).parent),), own=())

    assert offered(lambda: list(compiled(torch.ones(3))), project=library) == []
    torch._dynamo.reset()
    model = torch.compile(torch.nn.Tanh(), backend="eager")
    (frame,) = offered(lambda: model(torch.ones(3)), project=library)
    assert (frame.outcome, library.holds(frame.file)) == ("compiled", False)


def test_rows_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_hook, "ROWS", 1)
    compiled = torch.compile(breaks_once, backend="eager")
    hook = FrameHook(CallIndex(), HERE)

    with listening([hook]):
        compiled(torch.ones(3))

    kinds = [list(line) for line in hook.lines() if "guards" not in line]
    assert kinds == [["frame"], ["left_out", "limit_rows"]]
    assert hook.left_out == 1


@pytest.mark.parametrize("raises", [False, True])
def test_dynamo_is_left_as_it_was(raises: bool) -> None:
    original = convert_frame.CatchErrorsWrapper.__call__

    def step() -> None:
        if raises:
            raise ZeroDivisionError

    try:
        offered(step)
    except ZeroDivisionError:
        assert raises

    assert convert_frame.CatchErrorsWrapper.__call__ is original


def test_a_fault_of_its_own_is_said_and_the_program_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FrameHook, "_add", lambda *_, **__: {}[1])
    hook = FrameHook(CallIndex(), HERE)

    with listening([hook]):
        result = torch.compile(adds, backend="eager")(torch.ones(3))

    assert torch.equal(result, torch.full((3,), 2.0))
    (lost,) = unavailable([hook])
    assert lost.why.startswith("it raised KeyError: 1 (")
    assert lost.why.endswith(") and was switched off")


def test_a_torch_without_the_class_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(convert_frame, "CatchErrorsWrapper")
    hook = FrameHook(CallIndex(), HERE)

    with listening([hook]):
        pass

    (lost,) = unavailable([hook])
    assert lost.capture == "frame hook"
    assert lost.why.startswith("it raised ImportError: cannot import name 'CatchErrorsWrapper'")


class Adding:
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return adds_and_breaks(x)


def adds_and_breaks(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x + 1


def test_a_refusal_keeps_the_lines_that_were_being_traced_and_the_qualified_name() -> None:
    compiled = torch.compile(Adding().forward, backend="eager", fullgraph=True)

    def step() -> None:
        with pytest.raises(torch._dynamo.exc.Unsupported):
            compiled(torch.ones(3))

    (frame,) = offered(step)

    assert frame.qualified == "Adding.forward"
    assert [(line.file, line.line, line.function) for line in frame.stack] == [
        (__file__, Adding.forward.__code__.co_firstlineno + 1, "forward"),
        (__file__, adds_and_breaks.__code__.co_firstlineno + 1, "adds_and_breaks"),
    ]


def scaled(x: torch.Tensor, by: float, offset: float) -> torch.Tensor:
    return x * by + offset


def test_what_torchs_wrapper_calls_is_known_with_its_arguments() -> None:
    layer = torch.compile(torch.nn.Linear(2, 2), backend="eager")
    # by position: x is given
    partial = torch.compile(functools.partial(scaled, 2.0), backend="eager")

    frames = [
        *offered(lambda: layer(torch.ones(1, 2))),
        *offered(lambda: partial(3.0, torch.ones(2))),
    ]

    assert [(frame.wraps, frame.arguments) for frame in frames if frame.wraps] == [
        ("Linear", ("input",)),
        ("functools.partial of scaled", ("by", "offset")),
    ]


def test_a_function_of_the_program_is_not_wrapped() -> None:
    frames = offered(lambda: torch.compile(adds, backend="eager")(torch.ones(2)))

    assert [(frame.wraps, frame.arguments) for frame in frames] == [("", ())]
