"""Records of the sync hooks written by hand, of the program in written.py; nothing was run."""

from __future__ import annotations

from typing import Any

import msgspec

from kgprof.model import (
    MemoryPass,
    Recording,
    RunKey,
    RunPhase,
    RunPhaseTime,
    RunRecord,
    ScriptAccount,
)
from kgprof.model.compile_records import SourceFile
from kgprof.model.memory_records import Frame, GraphTensor, HandmadeGraph, SyncRecord, SyncRecords
from tests.analysis.recordings import FUSED, GONE
from tests.collectors import written

CALLS, STEADY_FROM = 8, 3
PREDICATE = Frame(file=written.FILE, line=14, function="step", first_line=10)
READ_LINE = Frame(file=written.FILE, line=21, function="train", first_line=20)
# of a script that takes most of its time behind its last step
GOES_ON = ScriptAccount(
    total_us=1e6,
    phases=(
        RunPhaseTime(phase=RunPhase.STEPS, us=1e5, share=0.1),
        RunPhaseTime(phase=RunPhase.STEP_AND_AFTER, us=9e5, share=0.9),
    ),
    under_listeners=True,
)


def read(
    frame: Frame = READ_LINE, *, each: int = 1, calls: range = range(CALLS), **fields: Any
) -> SyncRecord:
    """``.item()`` of eager code as the dispatcher's hook sees it, ``each`` times in each of
    ``calls``."""
    given = {
        "source": "dispatch",
        "op": "aten::_local_scalar_dense",
        "device": "cpu",
        "expression": "loss.item()",
        **fields,
    }
    return SyncRecord(frames=(frame,), calls=dict.fromkeys(calls, each), **given)


def memory(*reads: SyncRecord, left_out: int = 0, calls: int = CALLS, **fields: Any) -> MemoryPass:
    given = {
        "step_us": (1000.0,) * calls,
        "steady_from": STEADY_FROM,
        "syncs": SyncRecords(records=reads, left_out=left_out),
        "tensors": GONE,
        "peaks": GONE,
        "sources": written.sources(),
        **fields,
    }
    return MemoryPass(**given)


def run(*reads: SyncRecord, key: RunKey = FUSED, **fields: Any) -> RunRecord:
    """Compiled once and clean but for these reads."""
    return msgspec.structs.replace(
        written.run(*written.compiled_once()), key=key, memory=memory(*reads, **fields)
    )


def recording(*reads: SyncRecord, device: str = "cpu", **fields: Any) -> Recording:
    whole = written.recording(*written.compiled_once())
    plan = msgspec.structs.replace(whole.header.plan, device=device)
    header = msgspec.structs.replace(whole.header, plan=plan)
    return msgspec.structs.replace(whole, header=header, runs=(run(*reads, **fields),))


def graph(*wrong: GraphTensor) -> HandmadeGraph:
    """Captured in ``train`` before the first call, and replayed once in each."""
    return HandmadeGraph(
        captured_in=-1, frames=(READ_LINE,), replays=dict.fromkeys(range(CALLS), 1), wrong=wrong
    )


# ---------------------------------------------------------------- a case for each rule


def a_wrong_graph(what: str) -> Recording:
    tensor = GraphTensor(what=what, name="x", shape=(8, 3), at=PREDICATE, replays=4)
    return recording(device="cuda", graphs=(graph(tensor),))


def captures(*steps: tuple[int, tuple[int, ...]]) -> Recording:
    """At one line: in which step each was, and in which it was replayed, twice in each."""
    graphs = (
        HandmadeGraph(captured_in=captured, frames=(READ_LINE,), replays=dict.fromkeys(replayed, 2))
        for captured, replayed in steps
    )
    return recording(device="cuda", graphs=tuple(graphs))


def captured_in_each_step() -> Recording:
    return captures(*((step, (step,)) for step in range(CALLS)))


def predicate(**fields: Any) -> SyncRecord:
    """Of ``torch.cond``, in compiled code."""
    return read(PREDICATE, compile_id="0/0", operator="cond", **fields)


def a_read() -> Recording:
    return recording(read())


def a_read_predicate() -> Recording:
    return recording(predicate())


def a_copy_that_costs_nothing_here() -> Recording:
    return recording(read(source="python-call", op="Tensor.cpu", expression="loss.cpu()"))


# ---------------------------------------------------------------- waits, one of them for a clock

TIMED = "/src/shop/timed.py"
IN_A_CLOCK, ELSEWHERE = 3, 8
TIMED_TEXT = """\
for x in y:
    t = time.time(); f(x)
    torch.cuda.synchronize()
    took.append(time.time() - t)


def step(x):
    torch.cuda.synchronize()
    return f(x)
"""


def waiting(line: int, **fields: Any) -> SyncRecord:
    frame = Frame(file=TIMED, line=line, function="<module>")
    given = {
        "source": "python-call",
        "op": "cuda.synchronize",
        "device": "cuda",
        "expression": "torch.cuda.synchronize()",
        "waited_us": dict.fromkeys(range(CALLS), 40.0),
        **fields,
    }
    return read(frame, **given)


def on_a_gpu(*records: SyncRecord) -> Recording:
    sources = written.sources()
    files = {**sources.files, TIMED: SourceFile(sha256="0" * 64, text=TIMED_TEXT)}
    return recording(*records, device="cuda", sources=msgspec.structs.replace(sources, files=files))


def a_wait_for_a_clock() -> Recording:
    return on_a_gpu(waiting(IN_A_CLOCK))
