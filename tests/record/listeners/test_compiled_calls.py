"""Calls of compiled callables, held against what Python itself saw run: sys.setprofile counts the
original code."""

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch
from torch._dynamo import decorators, eval_frame

from kgprof.model import CompiledCallable, CompiledCalls, Sources
from kgprof.reading.project import ProjectFiles
from kgprof.reading.recordings import records_of
from kgprof.reading.structured_trace import RunTrace
from kgprof.record.ground.source import unavailable
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.compiled_calls import CompiledCalls as Listener
from kgprof.record.listeners.graph_hook import GraphHook
from kgprof.record.passes.torch_trace import CompileSources, StructuredTrace
from tests.analysis.recordings import FUSED

HERE = ProjectFiles(libraries=(str(Path(torch.__file__).parent),), own=())
STEPS = 6
NOTHING_MORE: Any = Sources()
X = torch.ones(3)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def recorded(step: Callable[[], object], times: int = STEPS) -> tuple[CompiledCallable, ...]:
    return read_back(step, times).callables


def read_back(step: Callable[[], object], times: int = STEPS) -> CompiledCalls:
    """What is read back of ``times`` calls of a workload."""
    index = CallIndex()
    sources = CompileSources(index, HERE, to_stderr=False)
    with ExitStack() as stack:
        for source in sources.sources:
            stack.enter_context(source)
        counted = index.counted(step)
        for _ in range(times):
            counted()
    calls = records_of(sources.lines(), NOTHING_MORE).compiled_calls
    assert isinstance(calls, CompiledCalls)
    return calls


@contextmanager
def ran_in_python(code: CodeType) -> Iterator[list[int]]:
    """How often a code object ran as it was written; compiled code of it is another one."""
    count = [0]

    def saw(frame: FrameType, event: str, argument: object) -> None:
        count[0] += event == "call" and frame.f_code is code

    sys.setprofile(saw)
    try:
        yield count
    finally:
        sys.setprofile(None)


def eager(called: CompiledCallable) -> int:
    return sum(called.eager.values())


class Block(torch.nn.Module):
    def __init__(self, power: int) -> None:
        super().__init__()
        self.power = power

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin() ** self.power


class CompiledForward(Block):
    @torch.compile(backend="eager")
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cos() ** self.power


def plain(x: torch.Tensor) -> torch.Tensor:
    return x.tan() + 1


class Net(torch.nn.Module):
    def __init__(self, kind: type[Block], count: int) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(kind(power) for power in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Flow(Net):
    def log_prob(self, x: torch.Tensor) -> torch.Tensor:
        return sum(block(x) for block in self.blocks)

    @torch.no_grad()
    def sample(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks[0](x)

    @torch.compile(backend="eager")
    def compiled_by_itself(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks[0](x)

    def size(self) -> int:
        return sum(each.numel() for each in self.parameters())


def test_other_methods_of_a_compiled_module_than_forward_are_plain_ones() -> None:
    module = Flow(Block, 2)
    flow = torch.compile(module, backend="eager")

    def step() -> None:
        flow(X)
        flow.sample(flow.log_prob(X))
        flow.compiled_by_itself(X)
        flow.size()

    with ran_in_python(Flow.log_prob.__code__) as count:
        found = read_back(step).plain

    assert [(each.function, each.module) for each in found] == [
        ("sample", "Flow"),
        ("log_prob", "Flow"),
    ]
    assert [sum(each.calls.values()) for each in found] == [STEPS, *count]
    assert {each.called_at.line for each in found if each.called_at} == {
        step.__code__.co_firstlineno + 2
    }


@pytest.mark.parametrize("in_place", [False, True])
def test_a_method_over_layers_that_are_compiled_is_not_said_to_run_eagerly(in_place: bool) -> None:
    module = Flow(Block, 2)
    if in_place:
        module.blocks[0].compile(backend="eager")
    else:
        module.blocks[0] = torch.compile(module.blocks[0], backend="eager")  # type: ignore[assignment]
    flow = torch.compile(module, backend="eager")

    assert read_back(lambda: flow.log_prob(X)).plain == ()


def test_a_function_that_fits_runs_its_graph_in_each_call() -> None:
    compiled = torch.compile(plain, backend="eager")

    (called,) = recorded(lambda: compiled(X))

    assert called.name == "plain"
    assert called.calls == dict.fromkeys(range(STEPS), 1)
    assert (called.eager, called.raised, called.module) == ({}, {}, "")
    assert called.compiled_before is False


@pytest.mark.parametrize("how", ["decorated", "compile()", "torch.compile"])
def test_the_modules_beyond_the_limit_are_named_and_counted_from_the_first_call_on(
    how: str,
) -> None:
    # given: ten blocks with a number of their own each; torch compiles eight entries for one code
    # object
    net = Net(CompiledForward if how == "decorated" else Block, 10)
    for number, block in enumerate(net.blocks):
        if how == "compile()":
            block.compile(backend="eager")
        elif how == "torch.compile":
            net.blocks[number] = torch.compile(block, backend="eager")  # type: ignore[assignment]
    code = (
        Block.forward.__code__
        if how != "decorated"
        else CompiledForward.forward.__wrapped__.__code__
    )  # type: ignore[attr-defined]

    with ran_in_python(code) as python_ran:
        callables = recorded(lambda: net(X))

    assert [called.path for called in callables] == [f"blocks.{number}" for number in range(10)]
    assert [eager(called) for called in callables] == [0] * 8 + [STEPS] * 2
    assert python_ran[0] == sum(map(eager, callables))


def test_modules_of_torchs_own_share_a_code_object_and_are_told_apart() -> None:
    heads = [torch.compile(torch.nn.Linear(3, size), backend="eager") for size in range(1, 4)]
    globals()["HEADS"] = heads
    try:
        callables = recorded(lambda: [head(X) for head in heads])
    finally:
        del globals()["HEADS"]

    assert [(called.path, called.module) for called in callables] == [
        (f"HEADS[{at}]", "Linear") for at in range(3)
    ]
    assert {called.offered.function for called in callables} == {"inner"}
    assert {called.definition.function for called in callables} == {"forward"}


def test_a_stance_is_kept_with_the_line_that_set_it_and_its_calls() -> None:
    compiled = torch.compile(plain, backend="eager", dynamic=False)
    sizes = iter([3, 3, 4, 3, 5, 6])

    def step() -> None:
        size = next(sizes)
        with torch.compiler.set_stance("eager_on_recompile" if size != 3 else "default"):
            compiled(torch.ones(size))

    with ran_in_python(plain.__code__) as python_ran:
        (called,) = recorded(step)

    assert called.is_static
    assert called.eager == {2: 1, 4: 1, 5: 1}
    assert called.stances == {"eager_on_recompile": {2: 1, 4: 1, 5: 1}}
    assert called.stance_set_at is not None
    assert called.stance_set_at.line == step.__code__.co_firstlineno + 2
    assert python_ran[0] == 3


def test_a_call_inside_of_another_graph_is_none() -> None:
    inner = torch.compile(plain, backend="eager")
    outer = torch.compile(lambda x: inner(x) * 2, backend="eager")

    (called,) = recorded(lambda: outer(X))

    assert called.function.endswith("<lambda>")
    assert eager(called) == 0


def test_a_graph_belongs_to_the_innermost_callable() -> None:
    inner = torch.compile(plain, backend="eager")

    def outer(x: torch.Tensor) -> list[torch.Tensor]:
        results = []
        for _ in range(2):
            torch._dynamo.graph_break()
            results.append(inner(x))
        return results

    compiled = torch.compile(outer, backend="eager")

    first, second = recorded(lambda: compiled(X))

    # a break in a loop: skipped as a whole
    assert (first.function.endswith("outer"), eager(first)) == (True, STEPS)
    assert (second.function, second.calls[0], eager(second)) == ("plain", 2, 0)


def test_a_call_that_raises_ran_neither_way() -> None:
    def refuses(x: torch.Tensor) -> torch.Tensor:
        raise ValueError(x.shape)

    compiled = torch.compile(refuses, backend="eager")

    def step() -> None:
        with pytest.raises(ValueError, match="3"):
            compiled(X)

    (called,) = recorded(step)

    assert called.raised == dict.fromkeys(range(STEPS), 1)
    assert called.eager == {}


def test_what_is_handled_around_a_call_is_no_exception_of_it() -> None:
    compiled = torch.compile(plain, backend="eager")

    def step() -> None:
        try:
            raise KeyError(1)
        except KeyError:
            compiled(X)

    (called,) = recorded(step)

    assert called.raised == {}


def test_each_thread_has_its_own_open_calls() -> None:
    compiled = torch.compile(plain, backend="eager", dynamic=False)

    def under_a_stance(x: torch.Tensor) -> None:
        compiled(x)

    def step() -> None:
        threads = [threading.Thread(target=under_a_stance, args=(torch.ones(n),)) for n in (3, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    (called,) = recorded(step)

    assert sum(called.calls.values()) == 2 * STEPS
    assert eager(called) == 0


def test_what_was_compiled_before_is_marked() -> None:
    compiled = torch.compile(plain, backend="eager")
    compiled(X)

    (called,) = recorded(lambda: compiled(X))

    assert called.compiled_before is True


def test_what_has_the_id_of_code_that_is_gone_was_not_compiled_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener = Listener(CallIndex(), HERE)
    with GraphHook(CallIndex(), listener.runs), listener:
        listener._known_to_dynamo = {id(plain.__code__): lambda: None}

        torch.compile(plain, backend="eager")(X)

    (line,) = [line["callable"] for line in listener.lines() if "callable" in line]
    assert line["compiled_before"] is False


class Slotted:
    __slots__ = ("weight",)

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def test_an_object_that_nothing_can_refer_to_weakly_is_one_callable_and_not_kept_alive() -> None:
    weight = torch.ones(3)
    reference = weakref.ref(weight)
    compiled: Any = torch.compile(Slotted(weight), backend="eager")
    listener = Listener(CallIndex(), HERE)
    with GraphHook(CallIndex(), listener.runs), listener:
        for _ in range(STEPS):
            compiled(X)
        del compiled, weight
        torch._dynamo.reset()
        gc.collect()

        assert reference() is None
        (line,) = [line["callable"] for line in listener.lines() if "callable" in line]
    assert (line["function"], sum(line["calls"].values())) == ("Slotted", STEPS)


def test_functions_made_from_text_are_one_callable() -> None:
    def step() -> None:
        names: dict[str, Any] = {}
        exec("def made(x):\n    return x + 1\n", names)
        torch.compile(names["made"], backend="eager")(X)

    (called,) = recorded(step)

    assert sum(called.calls.values()) == STEPS
    assert len(called.compilations) == STEPS


def test_each_reset_stands_between_the_compilations() -> None:
    index = CallIndex()
    sources = CompileSources(index, HERE, to_stderr=False)
    with ExitStack() as stack:
        for source in sources.sources:
            stack.enter_context(source)
        with index.call():
            for reset in (
                torch._dynamo.reset,
                torch.compiler.reset,
                torch._dynamo.reset_code_caches,
            ):
                torch.compile(plain, backend="eager")(X)
                reset()
            torch.compile(plain, backend="eager")(X)
    records = records_of(sources.lines(), NOTHING_MORE)

    trace = RunTrace(FUSED, records, calls=1, steady_from=0, source=NOTHING_MORE)

    assert [(each.resets, each.first_since_reset) for each in trace.compiled] == [
        (0, False),
        (1, True),
        (2, True),
        (3, True),
    ]


def test_a_torch_without_a_function_that_drops_compiled_code_is_said_to_tell_no_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(torch._dynamo, "reset_code_caches")

    with StructuredTrace(CallIndex()) as trace:
        pass

    (lost,) = unavailable((trace,))
    assert lost.incomplete
    assert "compiled code counts as never dropped" in lost.why


def test_everything_is_put_back() -> None:
    names = ("_callback_from_stance", "_maybe_set_eval_frame")
    before = [getattr(eval_frame, name) for name in names]
    rest = (
        eval_frame.OptimizeContext.__init__,
        vars(decorators)["_set_stance"],
        torch._dynamo.reset_code_caches,
    )

    recorded(lambda: plain(X))

    assert [getattr(eval_frame, name) for name in names] == before
    after = (
        eval_frame.OptimizeContext.__init__,
        vars(decorators)["_set_stance"],
        torch._dynamo.reset_code_caches,
    )
    assert after == rest


def test_a_torch_without_the_wrapper_has_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(eval_frame, "_maybe_set_eval_frame")
    listener = Listener(CallIndex(), HERE)

    with listener:
        pass

    assert "_maybe_set_eval_frame" in listener.unavailable
    assert list(listener.lines()) == []


def test_an_exception_of_the_listener_is_not_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Listener, "_callable_of", lambda *_: {}[1])
    compiled = torch.compile(plain, backend="eager")
    listener = Listener(CallIndex(), HERE)

    with GraphHook(CallIndex(), listener.runs), listener:
        result = compiled(X)

    assert torch.equal(result, plain(X))
    assert listener.gave_up
    assert "KeyError" in listener.unavailable
    assert list(listener.lines()) == []


def test_the_calls_in_which_a_program_calls_torch_compile_are_counted() -> None:
    once = torch.compile(lambda x: x + 1, backend="eager")

    assert read_back(lambda: once(X)).asked == {}
    anew = read_back(lambda: torch.compile(lambda x: x * 2, backend="eager")(X), times=3)
    assert anew.asked == {0: 1, 1: 1, 2: 1}
