"""What the sync hooks write down of each kind of read, that they change nothing, and that they are
taken off again.

A CPU run: what waits on CUDA is seen here as a read, or as the call that would copy.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.output_graph import OutputGraph
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.benchmark.utils import timer

import kgprof
from kgprof.collectors.time.syncs import READ, cause_of
from kgprof.model import Options, Unavailable
from kgprof.model.memory_records import SyncRecord, SyncRecords
from kgprof.reading import clocks
from kgprof.record.ground import project_sources
from kgprof.record.ground.source import listening, unavailable
from kgprof.record.listeners import syncs
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.sync_hooks import ALL_HOOKS, READING
from kgprof.record.listeners.syncs import Syncs
from kgprof.record.passes.memory import memory_pass
from tests.collectors.watched import lines_with
from tests.record.sessions import Stepping

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
CHOSEN = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PROJECT = project_sources.project_files(__file__)
Step = Callable[[torch.Tensor], object]


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    assert [hooks.listening for hooks in ALL_HOOKS] == [()] * len(ALL_HOOKS)


def listener(device: torch.device = CPU) -> tuple[CallIndex, Syncs]:
    calls = CallIndex()
    return calls, Syncs(calls, device, PROJECT)


def values() -> torch.Tensor:
    return torch.tensor([1.0, -2.0, 3.0])


def seen(step: Step, *, calls: int = 1, device: torch.device = CPU) -> tuple[SyncRecord, ...]:
    x, (index, hooks) = values(), listener(device)
    with hooks:
        for _ in range(calls):
            with index.call():
                step(x)
    assert hooks.unavailable == ""
    return hooks.records().records


def line(mark: str) -> int:
    (number,) = lines_with(__file__, mark)
    return number


def places(records: tuple[SyncRecord, ...]) -> list[tuple[str, int]]:
    return [(one.op, one.frames[0].line) for one in records]


# --------------------------------------------------------------- each kind, with its line and cause


def reads_item(x: torch.Tensor) -> object:
    return x.sum().item()  # item


def reads_float(x: torch.Tensor) -> object:
    return float(x.max())  # float


def reads_truth(x: torch.Tensor) -> object:
    if (x > 2).any():  # truth
        return 1
    return 0


def reads_negation(x: torch.Tensor) -> object:
    return not (x > 2).any()  # negation


def reads_index(x: torch.Tensor) -> object:
    return "abc"[x.argmax()]  # index


def reads_over_several_lines(x: torch.Tensor) -> object:
    return (
        x.abs().sum().item()  # the last of several lines
    )


def counts_nonzero(x: torch.Tensor) -> object:
    return x.nonzero()  # nonzero


def takes_by_mask(x: torch.Tensor) -> object:
    return x[x > 0]  # mask


def selects_by_mask(x: torch.Tensor) -> object:
    return torch.masked_select(x, x > 0)  # masked_select


def finds_unique(x: torch.Tensor) -> object:
    return torch.unique(x)  # unique


def compares_whole(x: torch.Tensor) -> object:
    return torch.equal(x, x + 1)  # equal


def compares_closely(x: torch.Tensor) -> object:
    return torch.allclose(x, x)  # allclose


def calls_cpu(x: torch.Tensor) -> object:
    return x.cpu()  # cpu


def calls_numpy(x: torch.Tensor) -> object:
    return x.numpy()  # numpy


def calls_tolist(x: torch.Tensor) -> object:
    return x.tolist()  # tolist


def calls_to(x: torch.Tensor) -> object:
    return x.to("cpu")  # to


@pytest.mark.parametrize(
    ("step", "mark", "source", "op", "cause"),
    [
        (reads_item, "item", "dispatch", READ, "item"),
        (reads_float, "float", "dispatch", READ, "item"),
        (reads_truth, "truth", "dispatch", READ, "truth-value"),
        (reads_negation, "negation", "dispatch", READ, "truth-value"),
        (reads_index, "index", "dispatch", READ, "item"),
        (reads_over_several_lines, "the last of several lines", "dispatch", READ, "item"),
        (counts_nonzero, "nonzero", "dispatch", "aten::nonzero", "nonzero"),
        (takes_by_mask, "mask", "dispatch", "aten::nonzero", "mask-index"),
        (selects_by_mask, "masked_select", "dispatch", "aten::masked_select", "mask-index"),
        (finds_unique, "unique", "dispatch", "aten::_unique2", "unique"),
        (compares_whole, "equal", "dispatch", "aten::equal", "inside-operator"),
        (compares_closely, "allclose", "dispatch", READ, "inside-operator"),
        (calls_cpu, "cpu", "python-call", "Tensor.cpu", "cpu"),
        (calls_numpy, "numpy", "python-call", "Tensor.numpy", "numpy"),
        (calls_tolist, "tolist", "python-call", "Tensor.tolist", "tolist"),
        (calls_to, "to", "python-call", "Tensor.to", "to"),
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)
def test_a_read_is_written_down_with_its_line_and_its_cause(
    step: Step, mark: str, source: str, op: str, cause: str
) -> None:
    records = seen(step, calls=2)

    assert [(one.source, one.op, one.device, cause_of(one), one.calls) for one in records] == [
        (source, op, "cpu", cause, {0: 1, 1: 1})
    ]
    (record,) = records
    place = record.frames[0]
    assert (place.file, place.line, place.function) == (__file__, line(mark), step.__name__)
    assert [frame.function for frame in record.frames[:2]] == [step.__name__, "seen"]
    assert (record.compile_id, record.operator, record.waited_us) == ("", "", {})


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x.to(torch.float64),
        lambda x: x.to(CHOSEN),  # on a machine with a GPU the same line moves there
        lambda x: x.to("cpu", non_blocking=True),
        lambda x: x.sum() + 1,
        lambda x: x[[0, 2]],
        lambda x: torch.where(x > 0, x, 0.0),
        lambda x: x.shape[0] + x.numel(),
    ],
    ids=["dtype", "torch.device", "non-blocking", "a number", "a list as index", "where", "sizes"],
)
def test_what_does_not_wait_is_not_written_down(step: Step) -> None:
    assert seen(step) == ()


def test_reads_are_counted_by_call_and_place() -> None:
    index, hooks = listener()
    x = values()

    with hooks:
        x.max().item()
        for call in range(3):
            with index.call():
                for _ in range(call):
                    x.sum().item()

    assert [record.calls for record in hooks.records().records] == [{-1: 1}, {1: 1, 2: 2}]


def test_two_reads_of_one_line_are_two_places() -> None:
    records = seen(lambda x: x.max().item() + x.min().item())

    assert [(record.expression, record.calls) for record in records] == [
        ("x.max().item()", {0: 1}),
        ("x.min().item()", {0: 1}),
    ]


def test_what_is_beyond_the_places_that_are_kept_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(syncs, "PLACES", 1)
    index, hooks = listener()

    with hooks, index.call():
        for _ in range(2):
            reads_item(values())
            reads_float(values())

    assert [(record.expression, record.calls) for record in hooks.records().records] == [
        ("x.sum().item()", {0: 2})
    ]
    assert hooks.records().left_out == 2


def test_the_step_count_of_an_optimizer_is_no_read() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([weight], foreach=False)

    def step(x: torch.Tensor) -> None:
        weight.sum().backward()
        optimizer.step()

    assert seen(step) == ()


def test_what_lbfgs_reads_is_the_programs() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.LBFGS([weight], max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight * weight).sum()
        loss.backward()
        return loss

    records = seen(lambda x: optimizer.step(closure))  # lbfgs

    assert "float(orig_loss)" in {record.library_expression for record in records}
    assert {record.frames[0].line for record in records} == set(lines_with(__file__, "lbfgs"))
    assert {Path(record.chain[0].file).name for record in records} == {"lbfgs.py"}


def test_a_read_in_backward_has_the_line_that_reads() -> None:
    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * gradient.sum().item()  # in backward

    def step(x: torch.Tensor) -> None:
        leaf = x.clone().requires_grad_()
        Reads.apply(leaf).sum().backward()

    assert places(seen(step)) == [(READ, line("in backward"))]


# ---------------------------------------------------------------- where else a program may read


class Tagged(torch.Tensor):
    """Goes through __torch_function__."""


class Wrapping(torch.Tensor):
    """Holds another tensor and dispatches to it."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapping:
        made: Wrapping = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(
            *[one.inner if isinstance(one, Wrapping) else one for one in args], **(kwargs or {})
        )


class Naming(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def in_inference_mode(x: torch.Tensor) -> object:
    with torch.inference_mode():
        return reads_item(x), takes_by_mask(x.clone())


def in_another_thread(x: torch.Tensor) -> object:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(reads_item(x)))
    thread.start()
    thread.join()
    return results


def under_autocast(x: torch.Tensor) -> object:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x[None] @ x[:, None]).sum().item()


def of_a_subclass(x: torch.Tensor) -> object:
    tagged = x.as_subclass(Tagged)
    return reads_item(tagged), calls_tolist(tagged), type(tagged.cpu()), takes_by_mask(tagged)


def of_a_wrapper(x: torch.Tensor) -> object:
    return reads_item(Wrapping(x)), takes_by_mask(Wrapping(x))


def under_a_dispatch_mode(x: torch.Tensor) -> object:
    with Naming() as mode:
        return reads_item(x), takes_by_mask(x), mode.names


def in_vmap(x: torch.Tensor) -> object:
    return torch.vmap(lambda row: row.sum().item())(x[None])


def in_vmap_a_mask(x: torch.Tensor) -> object:
    return torch.vmap(lambda row: row[row > 0])(x[None])


def beside_a_read_in_vmap(x: torch.Tensor) -> object:
    return torch.vmap(lambda row: row * reads_item(x))(x[None])


def in_a_gradient(x: torch.Tensor) -> object:
    return torch.func.grad(lambda given: (given * given.detach().sum().item()).sum())(x)


def with_fake_tensors(x: torch.Tensor) -> object:
    with torch._subclasses.FakeTensorMode() as mode:
        return reads_item(mode.from_tensor(x))


def of_a_sparse_tensor(x: torch.Tensor) -> object:
    return reads_item(x.to_sparse())


def outcome(step: Step) -> object:
    """What came of it, or the exception that it raised. To print it or compare it would be to read
    it."""
    try:
        return step(values())
    # what a program raises without the hooks it has to raise with them
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(
    ("step", "lines"),
    [
        (in_inference_mode, ["item", "mask"]),
        (in_another_thread, ["item"]),
        (under_autocast, None),
        (of_a_subclass, ["item", "tolist", "mask"]),
        (of_a_wrapper, ["item", "mask"]),
        (under_a_dispatch_mode, ["item", "mask"]),
        (in_vmap, None),
        (in_vmap_a_mask, None),
        (beside_a_read_in_vmap, ["item"]),
        (in_a_gradient, None),
        (with_fake_tensors, None),
        (of_a_sparse_tensor, None),
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)
def test_results_and_errors_are_the_same_with_it(step: Step, lines: list[str] | None) -> None:
    without = outcome(step)
    index, hooks = listener()

    with hooks, index.call():
        within = outcome(step)

    assert repr(within) == repr(without)
    if lines is not None:
        found = [_reading_line(record) for record in hooks.records().records]
        assert [place for place in found if place is not None] == [line(mark) for mark in lines]


def _reading_line(record: SyncRecord) -> int | None:
    """Of the functions above that read; where the program's own __torch_dispatch__ runs the
    operator, that is the innermost line, and theirs is above it."""
    functions = {reads_item.__name__, takes_by_mask.__name__, calls_tolist.__name__}
    return next((frame.line for frame in record.frames if frame.function in functions), None)


@pytest.mark.parametrize("backend", ["", "eager"])
def test_bincount_reads_on_a_gpu_what_no_cpu_reads(backend: str) -> None:
    def counted(x: torch.Tensor) -> torch.Tensor:
        return torch.bincount((x > 0).long(), minlength=2)

    step: Step = counted
    if backend:
        step = torch.compile(counted, backend=backend)

    (record,) = seen(step, calls=3)

    assert (record.op, sum(record.calls.values())) == ("aten::bincount", 3)


# ---------------------------------------------------------------- under torch.compile


def breaks_at_a_read(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    scale = y.sum().item()  # read at a break
    return y.cos() * scale


def sized_by_a_read(x: torch.Tensor) -> torch.Tensor:
    length = x.abs().max().to(torch.int64).item()  # a size
    return torch.ones(length).sum() + x.sum()


def copied_inside(x: torch.Tensor) -> torch.Tensor:
    return x.sin().cpu() + 1  # cpu inside


def masked_inside(x: torch.Tensor) -> torch.Tensor:
    y = x - 0.5
    return y[y > 0] * 2  # mask inside


def filled_and_assigned_inside(x: torch.Tensor) -> torch.Tensor:
    y = x.abs()
    y[y > 0.1] = 0.5  # masked_fill: on a GPU it reads nothing
    y[y < 1.0] = torch.arange(3.0)  # mask assigned
    return y


def mean_assigned_inside(x: torch.Tensor) -> torch.Tensor:
    y = x - 0.5
    y[y > 0] = y.mean()  # a mean assigned
    return y


def branches_inside(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return torch.cond(y.sum() > 0, lambda t: t * 2, lambda t: t * 3, (y,))  # cond inside


def compiled_outcome(
    function: Step, backend: str, *, hooks: Syncs | None, index: CallIndex
) -> tuple[object, ...]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled, x = torch.compile(function, backend=backend), values()
    results = []
    with listening([] if hooks is None else [hooks]):
        for _ in range(3):
            with index.call():
                results.append(compiled(x))
    return (
        repr(results),
        dict(torch._dynamo.utils.counters["stats"]),
        dict(torch._dynamo.utils.counters["graph_break"]),
    )


def classes_checked_on_the_gpu(x: torch.Tensor) -> torch.Tensor:
    """A CPU reads what torch's assertion is about; ``bool()`` of a tensor is another type."""
    return torch.nn.functional.one_hot(x.argmax(), 3).bool() & (x > 0).float().bool()


def test_a_check_that_runs_on_the_gpu_and_a_change_of_type_read_nothing() -> None:
    compiled = torch.compile(classes_checked_on_the_gpu, backend="aot_eager")

    assert seen(compiled, calls=2) == ()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    ("function", "captures", "mark", "operator", "cause"),
    [
        (breaks_at_a_read, False, "read at a break", "", "item"),
        (sized_by_a_read, True, "a size", "item", "item"),
        (copied_inside, False, "cpu inside", "cpu", "cpu"),
        (masked_inside, True, "mask inside", "getitem", "mask-index"),
        (filled_and_assigned_inside, False, "mask assigned", "setitem", "mask-index"),
        (mean_assigned_inside, False, "a mean assigned", "setitem", "mask-index"),
        (branches_inside, False, "cond inside", "cond", "cond-predicate"),
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)
def test_graphs_results_and_breaks_are_the_same_and_reads_have_the_users_line(
    function: Step, captures: bool, mark: str, operator: str, cause: str, backend: str
) -> None:
    index, hooks = listener()

    with torch._dynamo.config.patch(
        capture_scalar_outputs=captures, capture_dynamic_output_shape_ops=captures
    ):
        without = compiled_outcome(function, backend, hooks=None, index=CallIndex())
        within = compiled_outcome(function, backend, hooks=hooks, index=index)

    assert within == without
    steady = [one for one in hooks.records().records if 2 in one.calls]
    assert [(one.frames[0].line, one.operator, cause_of(one), one.calls[2]) for one in steady] == [
        (line(mark), operator, cause, 1)
    ]
    assert bool(steady[0].compile_id) is bool(operator)


def scaled_by_a_number_and_read(x: torch.Tensor, factor: float) -> torch.Tensor:
    y = x.sin() * factor
    return torch.cond(y.sum() > 0, lambda t: t * 2, lambda t: t * 3, (y,))  # the only read


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_python_float_that_dynamo_hands_to_a_graph_as_a_tensor_is_no_read(backend: str) -> None:
    index, hooks = listener()
    compiled = torch.compile(scaled_by_a_number_and_read, backend=backend, dynamic=True)

    with hooks:
        for number in range(4):
            with index.call():
                compiled(values(), 0.5 + number)

    found = [
        (one.operator, one.frames[0].line, one.calls)
        for one in hooks.records().records
        if one.compile_id
    ]
    assert found == [("cond", line("the only read"), {0: 1, 1: 1, 2: 1, 3: 1})]


spent = {"down": 0.0}


def summed_up_by_a_clock(x: torch.Tensor) -> torch.Tensor:
    started = time.perf_counter()
    y = x.sin()
    spent["down"] += time.perf_counter() - started
    return y + 1


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin")
def test_a_float_that_a_graph_returns_as_a_tensor_of_the_cpu_is_no_read() -> None:
    compiled = torch.compile(summed_up_by_a_clock, backend="eager")

    records = seen(compiled, calls=5)

    assert [one for one in records if one.tensor != syncs.HOST] == []
    assert spent["down"] > 0


# ---------------------------------------------------------------- the waits of CUDA, as calls


@pytest.mark.parametrize("module", ["cuda", "accelerator"])
def test_a_wait_is_a_call_with_the_time_that_it_took(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = getattr(torch, module)
    monkeypatch.setattr(owner, "synchronize", lambda: None)
    pretend_sync_debug(monkeypatch)

    (record,) = seen(lambda x: owner.synchronize(), device=CUDA)

    assert (record.source, record.op, record.device, cause_of(record)) == (
        "python-call",
        f"{module}.synchronize",
        "cuda",
        "device-synchronize",
    )
    assert record.calls == {0: 1}
    assert list(record.waited_us) == [0]
    assert record.waited_us[0] > 0


def test_a_wait_of_torchs_own_timer_is_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    pretend_sync_debug(monkeypatch)

    (record,) = seen(lambda x: timer.timer(), device=CUDA)

    assert cause_of(record) == "device-synchronize"
    assert record.chain[0].file.endswith(clocks.TIMERS)


def pretend_sync_debug(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    modes: list[object] = []
    monkeypatch.setattr(
        torch.cuda, "get_sync_debug_mode", lambda: int(bool(modes) and modes[-1] == "warn")
    )
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    return modes


TORCH, KGPROF = Path(torch.__file__).parent, Path(kgprof.__file__).parent


def called_in(file: Path, function: Callable[[], object]) -> Callable[[], object]:
    """``function``, called by a line of ``file``."""
    scope: dict[str, Any] = {"function": function}
    exec(compile("def calling():\n    return function()\n", str(file), "exec"), scope)
    calling: Callable[[], object] = scope["calling"]
    return calling


@pytest.mark.parametrize(
    ("files", "chain"),
    [
        ((TORCH / "autograd/profiler.py", KGPROF / "record/passes/trace_window.py"), None),
        ((TORCH / "_inductor/cudagraph_trees.py",), None),
        ((TORCH / "cuda/graphs.py",), None),
        ((TORCH / "_inductor/runtime/benchmarking.py", TORCH / "_dynamo/utils.py"), None),
        ((TORCH.parent / "triton/testing.py", TORCH / "_inductor/runtime/benchmarking.py"), None),
        ((TORCH / "profiler/profiler.py",), ["profiler.py"]),
        (
            (
                TORCH.parent / "shop/inner.py",
                TORCH / "nn/modules/module.py",
                TORCH.parent / "shop/outer.py",
            ),
            ["inner.py", "outer.py"],
        ),
        (
            (
                TORCH.parent / "torch_geometric/loop.py",
                TORCH / "nn/modules/module.py",
                TORCH.parent / "torch_geometric/gat_conv.py",
            ),
            ["loop.py", "gat_conv.py"],
        ),
    ],
    ids=[
        *(
            "kgprof's profiler",
            "a CUDA graph",
            "one by hand",
            "a benchmark",
            "Triton's for torch",
            "the program's profiler",
            "a library",
        ),
        "a library whose name begins with torch",
    ],
)
def test_who_waits_is_told_by_what_stands_between(
    files: tuple[Path, ...], chain: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``chain``: of the libraries' lines in the record; None where it is nothing that the program
    waits for."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    pretend_sync_debug(monkeypatch)

    def step(x: torch.Tensor) -> None:
        waits: Callable[[], object] = torch.cuda.synchronize
        for file in files:
            waits = called_in(file, waits)
        waits()

    records = seen(step, device=CUDA)

    assert [[Path(frame.file).name for frame in one.chain] for one in records] == (
        [] if chain is None else [chain]
    )


def test_a_read_in_a_comprehension_of_a_library_is_its_functions() -> None:
    """As of GradScaler._maybe_opt_step, which sums what it reads."""
    scope: dict[str, Any] = {}
    text = "class Scaler:\n    def step(self, x):\n        return sum(v.item() for v in [x])\n"
    exec(compile(text, str(TORCH / "amp/scaler.py"), "exec"), scope)
    scaler = scope["Scaler"]()

    def step(x: torch.Tensor) -> object:
        return scaler.step(x[0])

    assert {frame.function for one in seen(step) for frame in one.chain} == {"step"}


def test_in_compiled_code_only_what_the_program_says_itself_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given: an operator of the program's that waits, and one below which torch tries a kernel
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    pretend_sync_debug(monkeypatch)
    benchmarking = TORCH / "_inductor/runtime/benchmarking.py"

    def backend(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., object]:
        def run(*args: object) -> object:
            called_in(benchmarking, torch.cuda.synchronize)()
            torch.cuda.synchronize()  # the program's own
            return graph(*args)

        return run

    compiled = torch.compile(lambda x: x + 1, backend=backend)

    records = seen(compiled, calls=2, device=CUDA)

    assert [(one.frames[0].line, one.calls) for one in records if one.op == "cuda.synchronize"] == [
        (line("the program's own"), {0: 1, 1: 1})
    ]


def test_what_torch_warns_of_is_a_record_and_other_warnings_go_where_they_went(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modes = pretend_sync_debug(monkeypatch)
    shown: list[str] = []
    monkeypatch.setattr(
        warnings, "showwarning", lambda message, *args, **kwargs: shown.append(str(message))
    )

    def step(x: torch.Tensor) -> None:
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)  # warned
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("the user's own", stacklevel=1)

    (record,) = seen(step, device=CUDA)

    assert (record.source, record.text, record.frames[0].line, record.chain) == (
        "sync-debug",
        "called a synchronizing CUDA operation",
        line("warned"),
        (),
    )
    assert shown == ["the user's own"]
    assert modes == ["warn", 0]


def ignores_all() -> None:
    warnings.filterwarnings("ignore")


def ignores_simply() -> None:
    warnings.simplefilter("ignore")


def replaces_all() -> None:
    warnings.resetwarnings()
    filters: Any = warnings.filters
    filters[:] = [("error", None, Warning, None, 0)]


@pytest.mark.parametrize("hides", [ignores_all, ignores_simply, replaces_all])
@pytest.mark.parametrize("record", [False, True])
def test_no_filter_of_the_program_hides_what_torch_warns_of(
    monkeypatch: pytest.MonkeyPatch, hides: Callable[[], None], *, record: bool
) -> None:
    pretend_sync_debug(monkeypatch)
    index, hooks = listener(CUDA)
    mine = ("ignore", None, BytesWarning, None, 0)

    with warnings.catch_warnings():
        with hooks, index.call():
            hides()
            with warnings.catch_warnings(record=record) as shown:
                warnings.filterwarnings("ignore", category=BytesWarning)
                warnings.warn("called a synchronizing CUDA operation", stacklevel=1)  # within
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)  # after it
            left: Any = warnings.filters
            left.insert(0, mine)
        left = warnings.filters

    assert [one.frames[0].line for one in hooks.records().records] == [
        line("within"),
        line("after it"),
    ]
    assert not shown
    assert hooks.lost == ""
    assert type(left) is list
    assert left[0] == mine  # the program's own stay


class Items(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(2).cuda()  # an item


def batched(items: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(items).cuda()  # a batch


def test_what_a_loader_calls_is_told_from_what_the_loop_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend_sync_debug(monkeypatch)

    def cuda(tensor: torch.Tensor) -> torch.Tensor:
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        return tensor

    monkeypatch.setattr(torch.Tensor, "cuda", cuda)

    def step(x: torch.Tensor) -> None:
        for batch in torch.utils.data.DataLoader(Items(), batch_size=2, collate_fn=batched):
            batch.cuda()  # the loop

    found = [one for one in seen(step, device=CUDA) if one.source == "sync-debug"]

    assert {one.frames[1].line: one.loads for one in found} == {
        line("an item"): True,
        line("a batch"): True,
        line("the loop"): False,
    }


def replaces_the_list() -> None:
    warnings.filters = []


def sets_the_mode() -> None:
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("deafens", [replaces_the_list, sets_the_mode])
def test_where_torchs_warnings_may_be_missed_the_hooks_say_so(
    monkeypatch: pytest.MonkeyPatch, deafens: Callable[[], None]
) -> None:
    pretend_sync_debug(monkeypatch)
    index, hooks = listener(CUDA)

    with warnings.catch_warnings(), hooks, index.call():
        deafens()

    (said,) = unavailable((hooks,))
    assert said.incomplete
    assert "sync-debug mode" in said.why


def test_a_module_that_moves_its_parameters_is_told_from_a_tensor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Module.cuda takes no non_blocking."""
    pretend_sync_debug(monkeypatch)
    scope: dict[str, Any] = {"warn": warnings.warn}
    moved = "def cuda(self, *where):\n    warn('called a synchronizing CUDA operation')\n"
    exec(compile(f"{moved}    return self\n", str(TORCH / "_tensor.py"), "exec"), scope)
    monkeypatch.setattr(torch.Tensor, "cuda", scope["cuda"])
    module = torch.nn.Linear(2, 2)

    (of_tensor,) = seen(lambda x: x.cuda(), device=CUDA)
    (of_module,) = seen(lambda x: module.cuda(), device=CUDA)

    assert of_tensor.chain == ()
    assert [Path(frame.file).name for frame in of_module.chain] == ["module.py"]
    assert (cause_of(of_tensor), cause_of(of_module)) == ("cuda", "cuda")
    assert of_module.calls == {0: 2}


# ---------------------------------------------------------------- what it leaves behind


def hooked() -> dict[str, object]:
    """All that the hooks touch."""
    dispatcher = {name: torch._C._dispatch_dump(f"aten::{name}") for name in READING}
    waiting = (torch.cuda, torch.accelerator, torch.cuda.Event, torch.cuda.Stream)
    waits = [owner.synchronize for owner in waiting]
    return {
        "Tensor": dict(vars(torch.Tensor)),
        "OutputGraph": dict(vars(OutputGraph)),
        "dispatcher": dispatcher,
        "registered": set(torch.library._impls),
        "waits": waits,
        "warnings": (list(warnings.filters), warnings.showwarning),
    }


@pytest.mark.parametrize("device", [CPU, CUDA], ids=str)
@pytest.mark.parametrize("raises", [False, True])
def test_everything_is_as_it_was_afterwards(
    raises: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = pretend_sync_debug(monkeypatch)
    before = hooked()
    index, hooks = listener(device)

    def program() -> None:
        with hooks, index.call():
            during.update(hooked())
            torch.compile(breaks_at_a_read, backend="eager")(values())
            if raises:
                raise ZeroDivisionError

    during: dict[str, object] = {}
    if raises:
        with pytest.raises(ZeroDivisionError):
            program()
    else:
        program()

    on_cuda_alone = {"waits", "warnings"} if device is CPU else set()
    assert {name for name in before if during[name] == before[name]} == on_cuda_alone
    assert hooked() == before
    assert modes == ([] if device is CPU else ["warn", 0])


def moved_by_name(x: torch.Tensor) -> torch.Tensor:
    return x.sin().to(CHOSEN) + 1


def moved_by_word(x: torch.Tensor) -> torch.Tensor:
    return x.sin().to("cpu") + 1


@pytest.mark.parametrize(("function", "moves"), [(moved_by_name, 0), (moved_by_word, 1)])
def test_a_compiled_move_to_the_device_of_the_program_is_no_move_to_the_cpu(
    function: Step, moves: int
) -> None:
    index, hooks = listener()
    compiled = torch.compile(function, backend="eager")

    with hooks, index.call():
        compiled(values())

    assert len(hooks.records().records) == moves


def bounded_by_a_number(x: torch.Tensor) -> torch.Tensor:
    bound = float(x.max())  # read in a broken graph
    return x.clamp(-bound, bound)


def test_a_read_that_python_made_faster_stands_at_its_line() -> None:
    """Python 3.11 then calls in PRECALL, for which Dynamo's bytecode has the line of the def."""
    index, hooks = listener()
    compiled, limit = torch.compile(bounded_by_a_number, backend="eager"), values()

    with hooks:
        for _ in range(20):
            with index.call():
                compiled(limit)

    assert {one.frames[0].line for one in hooks.records().records} == {
        line("read in a broken graph")
    }


def test_a_compiled_function_goes_on_without_it() -> None:
    index, hooks = listener()
    compiled = torch.compile(copied_inside, backend="eager")

    with hooks, index.call():
        compiled(values())
    counted = hooks.records()
    compiled(values())
    reads_item(values())

    assert hooks.records() == counted


ARGUMENTS: dict[str, tuple[object, ...]] = {"to": (torch.float64,), "cpu": ()}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_default_device_makes_no_hook_a_graph_break(name: str) -> None:
    """Under a torch function mode Dynamo traces a tensor's method as the class has it."""
    index, hooks = listener()
    torch._dynamo.trace_rules.clear_lru_cache()  # as torch.distributed does
    compiled = torch.compile(
        lambda x: getattr(torch.sin(x), name)(*ARGUMENTS[name]) + 1, backend="eager", fullgraph=True
    )

    with hooks, torch.device("cpu"), torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(3):
            with index.call():
                result = compiled(values())

    assert torch.equal(result, getattr(torch.sin(values()), name)(*ARGUMENTS[name]) + 1)


# ---------------------------------------------------------------- two at a time


def test_within_another_one_both_see() -> None:
    (outer_index, outer), (inner_index, inner) = listener(), listener()
    compiled = torch.compile(copied_inside, backend="eager")

    with outer, outer_index.call():
        reads_item(values())
        with inner, inner_index.call():
            reads_item(values())
            calls_cpu(values())
            compiled(values())
        reads_item(values())
        compiled(values())
    reads_item(values())

    assert (outer.unavailable, inner.unavailable) == ("", "")
    counted = [
        sum(sum(r.calls.values()) for r in one.records().records if r.op == READ)
        for one in (outer, inner)
    ]
    assert counted == [3, 1]
    copies = [
        [
            (r.frames[0].line, r.calls)
            for r in one.records().records
            if r.source != "dispatch" and r.frames
        ]
        for one in (outer, inner)
    ]
    inside = [[(at, calls) for at, calls in one if at == line("cpu inside")] for one in copies]
    # compiled while both listened: of what stands around the graph the inner one's is taken off
    # first
    assert inside == [[(line("cpu inside"), {0: 2})], [(line("cpu inside"), {0: 1})]]
    assert [[at for at, _ in one].count(line("cpu")) for one in copies] == [1, 1]


@pytest.mark.parametrize("first", ["outer", "inner"])
def test_whichever_leaves_first_nothing_is_left(first: str) -> None:
    before = hooked()
    (outer_index, outer), (inner_index, inner) = listener(), listener()
    leaves, stays = (outer, inner) if first == "outer" else (inner, outer)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outer.__enter__()
        inner.__enter__()
        with outer_index.call(), inner_index.call():
            reads_item(values())
            leaves.__exit__(None, None, None)
            reads_item(values())
            stays.__exit__(None, None, None)
            reads_item(values())

    reads = [
        sum(sum(record.calls.values()) for record in one.records().records)
        for one in (leaves, stays)
    ]
    assert reads == [1, 2]
    assert hooked() == before


def test_a_program_that_watches_itself_is_seen_by_the_pass_around_it() -> None:
    watched = kgprof.watch(reads_item)
    x = values()

    taken = memory_pass(
        lambda: Stepping(lambda: watched(x)), CPU, Options(steps=4, warmup=1), project=PROJECT
    )
    watched.stop()

    assert isinstance(taken.syncs, SyncRecords)
    assert taken.capture_unavailable == ()
    assert [
        (place, record.calls) for record in taken.syncs.records for place in places((record,))
    ] == [((READ, line("item")), dict.fromkeys(range(4), 1))]
    assert (watched.steps, watched.syncs_per_step) == (7, 1)  # 4 calls, and 3 for the peaks


# ---------------------------------------------------------------- another torch


def test_a_torch_without_a_hook_is_said_and_the_others_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(*args: object) -> None:
        raise RuntimeError("no such library")

    monkeypatch.setattr(torch.library, "Library", refuses)
    before, (index, hooks) = hooked(), listener()

    with hooks, index.call():
        calls_cpu(values())
        reads_item(values())

    lost = "dispatch: RuntimeError: no such library; tensor places: RuntimeError: no such library"
    assert unavailable([hooks]) == (Unavailable(capture="sync hooks", why=lost),)
    assert places(hooks.records().records) == [("Tensor.cpu", line("cpu"))]
    assert hooked() == before


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("call_user_compiler", "this torch has no OutputGraph.call_user_compiler"),
        ("install_global_unsafe", "this torch has no OutputGraph.install_global_unsafe"),
    ],
)
def test_a_torch_that_hides_what_it_compiles_is_said(
    method: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(OutputGraph, method)
    index, hooks = listener()

    with hooks, index.call():
        reads_item(values())

    (said,) = unavailable([hooks])
    assert said.capture == "sync hooks"
    assert said.why.startswith(words)
    assert places(hooks.records().records) == [(READ, line("item"))]


def test_without_cuda_its_hooks_are_said_to_be_missing_and_the_rest_is_taken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses() -> int:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", refuses)
    before, (index, hooks) = hooked(), listener(CUDA)

    with hooks, index.call():
        reads_item(values())

    assert hooks.unavailable == "sync_debug: AssertionError: Torch not compiled with CUDA enabled"
    assert hooked() == before


# ------------------------------------------------------------- arrays that compiled code gives back


def _opaque(values: Any) -> Any:
    return values


def array_at_a_break(x: torch.Tensor) -> object:
    doubled = x * 2
    raised = _opaque(
        doubled.numpy()  # array at a break
    )
    return raised + 1


def array_at_the_end(x: torch.Tensor) -> object:
    halved = x / 2
    return halved.numpy()  # array at the end


@pytest.mark.parametrize("step", [array_at_a_break, array_at_the_end])
def test_an_array_out_of_compiled_code_is_read_at_the_line_that_asks_for_it(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dynamo's own call makes it, which stands at the function's first line, or at a break's."""
    monkeypatch.setitem(globals(), "_opaque", torch._dynamo.disable(_opaque))
    mark = step.__name__.replace("_", " ")
    # what is computed with the array behind the break lies on the host
    records = seen(torch.compile(step, backend="eager"), calls=3)
    (record,) = (record for record in records if record.tensor != "host")
    assert (record.op, record.frames[0].line) == ("Tensor.numpy", line(mark))
    assert record.expression == ""
    assert cause_of(record) == "numpy"


def test_arrays_in_and_out_of_compiled_code_stay_on_the_host() -> None:
    root = torch.compile(lambda array: np.sqrt(array) + 1, backend="eager")
    records = seen(lambda x: root(np.ones(3)), calls=2)
    assert {record.tensor for record in records} <= {"host"}


def drawn(x: torch.Tensor, **where: Any) -> torch.Tensor:
    chosen = torch.randperm(x.shape[0], **where)[:2] + 0
    return (x * 2)[chosen.tolist()]


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_a_graph_draws_without_a_device_lies_where_eager_code_would_draw_it(
    *, dynamic: bool
) -> None:
    compiled = torch.compile(drawn, backend="eager", dynamic=dynamic)

    unnamed = seen(compiled, calls=2)
    named = seen(lambda x: compiled(x, device=CHOSEN), calls=2)

    assert {record.tensor for record in unnamed} == {"unnamed"}
    assert {record.tensor for record in named} == {""}


def test_a_device_in_compiled_code_takes_its_result_from_the_host() -> None:
    moved = torch.compile(lambda x: (x * 2).to(CHOSEN).numpy(), backend="eager")
    records = seen(lambda x: moved(torch.from_numpy(np.ones(3))), calls=2)
    assert {record.tensor for record in records} == {""}


def test_the_lengths_of_packed_sequences_lie_on_the_cpu_everywhere() -> None:
    cells, rows = torch.nn.LSTM(1, 2, batch_first=True), torch.ones(2, 3, 1)
    packed = torch.nn.utils.rnn.pack_padded_sequence(rows, torch.tensor([3, 2]), batch_first=True)

    assert seen(lambda x: cells(packed)) == ()
