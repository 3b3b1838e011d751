"""Tensor records written by hand, of the program in written.py; nothing was run."""

from __future__ import annotations

from typing import Any

import msgspec

from kgprof.model import MemoryPass, Recording
from kgprof.model.memory_records import (
    Frame,
    GraphInput,
    Held,
    InPlace,
    Memory,
    Overlap,
    TensorRecords,
    WatchedBuffer,
    WatchedGraph,
)
from tests.analysis.recordings import GONE
from tests.collectors import written

CALLS, STEADY_FROM = 8, 3
ALL = tuple(range(CALLS))
MOVED = tuple(range(1, CALLS))
CALL = Frame(file=written.FILE, line=21, function="train", first_line=20)
WRITES = Frame(file=written.FILE, line=14, function="step", first_line=10)


def lies(
    address: int = 4096,
    shape: tuple[int, ...] = (8,),
    stride: tuple[int, ...] = (1,),
    **fields: Any,
) -> Memory:
    """float32, at the beginning of a storage of 1024 bytes unless ``fields`` say otherwise."""
    given = {"storage": address, "itemsize": 4, "dtype": "float32", "device": "cpu", **fields}
    return Memory(address=address, shape=shape, stride=stride, **given)


def held(memory: Memory | None = None, **fields: Any) -> Held:
    place = memory or lies()
    return Held(
        **{"run": 0, "watched": CALLS, "first": place, "last": place, "frames": (CALL,), **fields}
    )


def given(
    name: str = "L['x']", *, static: str = "", memory: Memory | None = None, **fields: Any
) -> GraphInput:
    return GraphInput(name=name, static=static, held=(held(memory, **fields),))


def overlap(left: str, right: str, one: Memory, other: Memory, *, same: bool = False) -> Overlap:
    return Overlap(
        left=left,
        right=right,
        same_object=same,
        left_memory=one,
        right_memory=other,
        runs=CALLS,
        first_call=0,
    )


def graph(*inputs: GraphInput, **fields: Any) -> WatchedGraph:
    """Model.step, compiled once and run in each call."""
    about = {
        "compile_id": "0/0",
        "function": "step",
        "file": written.FILE,
        "first_line": 10,
        "arguments": ("self", "x"),
        "returns": True,
        "cuda_graphs": None,
        "outputs": 1,
        "runs": CALLS,
    }
    return WatchedGraph(**{**about, "inputs": inputs, **fields})


def buffer(name: str = "state", **fields: Any) -> WatchedBuffer:
    return WatchedBuffer(
        **{"name": name, "watched": CALLS, "first": lies(), "last": lies(), **fields}
    )


def recording(
    *graphs: WatchedGraph,
    buffers: tuple[WatchedBuffer, ...] | None = None,
    marked: int = 0,
    program: str = written.PROGRAM,
    on_cuda: bool = False,
    launches: int | None = None,
) -> Recording:
    """Launches: as in written.on_cuda."""
    tensors = TensorRecords(
        graphs=graphs, buffers=buffers, watched=tuple(range(CALLS)), steps_marked=marked
    )
    memory = MemoryPass(
        step_us=(1000.0,) * CALLS, steady_from=STEADY_FROM, syncs=GONE, tensors=tensors, peaks=GONE
    )
    whole = (
        written.on_cuda(*written.compiled_once(), launches=launches)
        if on_cuda
        else written.recording(*written.compiled_once(), program=program)
    )
    return msgspec.structs.replace(
        whole, runs=(msgspec.structs.replace(whole.runs[0], memory=memory),)
    )


# ---------------------------------------------------------------- a case for each rule


def a_moving_input() -> Recording:
    return recording(graph(given(moved=MOVED, made_before={"0/0 output 0": len(MOVED)})))


def a_copied_input() -> Recording:
    place = lies(shape=(1 << 20,), device="cuda:0")
    return recording(graph(given(memory=place), cuda_graphs=True), on_cuda=True, launches=4)


def a_returned_input() -> Recording:
    return recording(graph(given(), returned_inputs=("L['x']",)))


def two_results_of_one() -> Recording:
    one, other = lies(8192, (2, 4), (4, 1)), lies(8192, (4, 2), (1, 4))
    return recording(
        graph(given(), outputs=2, overlaps=(overlap("output 0", "output 1", one, other),))
    )


def a_written_argument() -> Recording:
    return recording(
        graph(given(written=ALL), in_place=(InPlace(input=0, operator="mul_", frames=(WRITES,)),))
    )


def a_written_window() -> Recording:
    windows = lies(shape=(3, 4), stride=(2, 1))
    return recording(graph(given(memory=windows, written=ALL)))


REFUSED = """UncapturedHigherOrderOpError: This higher order operator doesn't work unless it is captured completely.

Encountered aliasing during higher order op tracing
  Higher Order Operator: torch.cond
  Hint: Replace `return input` with `return input.clone()` to avoid aliasing.

 For more details about this graph break, please visit: https://example.org/gb/gb0040.html

from user code:
   File "/src/shop/model.py", line 16, in step
    return torch.cond(x.sum() > 0, report, other, (x,))
  File "/lib/site-packages/torch/_higher_order_ops/cond.py", line 196, in cond
    return cond_op(pred, true_fn, false_fn, operands)
"""  # noqa: E501


def a_refused_branch(text: str = REFUSED) -> Recording:
    lines = [
        *written.compiled(
            "0/0", written.STEP, fail_type="UncapturedHigherOrderOpError", fail_reason=text
        )
    ]
    return written.recording(*lines, written.offered(written.STEP, "raised", text=text))
