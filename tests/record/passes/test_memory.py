"""Which files' text a MEMORY pass keeps, and the most memory that was held."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from kgprof.model import Options, Skipped
from kgprof.model.memory_records import Memory, SyncRecords, TensorRecords, WatchedBuffer
from kgprof.record.ground.alone import LOCK
from kgprof.record.ground.project_sources import project_files
from kgprof.record.passes.memory import NOT_ON_A_CPU, Peaks, files_named, memory_pass
from kgprof.workloads.linkpred import slots

WHERE = Memory(
    address=64, storage=64, shape=(2,), stride=(1,), itemsize=4, dtype="float32", device="cpu"
)


def named(*, moved: tuple[int, ...]) -> set[str]:
    buffer = WatchedBuffer(name="states", watched=4, first=WHERE, last=WHERE, moved=moved)
    return set(files_named(SyncRecords(), TensorRecords(buffers=(buffer,))))


def test_the_line_that_rebinds_a_buffer_is_on_no_stack_so_whatever_was_imported_may_hold_it() -> (
    None
):
    assert slots.__file__ in named(moved=(2, 3))


def test_while_every_buffer_stays_nobody_asks() -> None:
    assert named(moved=()) == set()


@pytest.mark.skipif(sys.platform != "linux", reason="children run beside each other on Linux only")
def test_the_steady_calls_are_made_alone_and_what_captures_them_is_not(tmp_path: Path) -> None:
    import fcntl

    alone: list[bool] = []

    class Session:
        def step(self) -> None:
            with (tmp_path / LOCK).open("ab") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    alone.append(False)
                except BlockingIOError:
                    alone.append(True)

    options, project = Options(steps=5, warmup=2), project_files("linkpred")
    found = memory_pass(
        Session, torch.device("cpu"), options, project=project, beside=str(tmp_path)
    )

    assert alone[:5] == [False, False, True, True, True]
    assert not any(alone[5:])  # the calls whose memory is looked at
    assert len(found.step_us) == 5


def test_the_peak_of_a_stretch_is_what_was_held_within_it() -> None:
    before = torch.ones(2**26)  # 256 MiB that are gone before it begins
    del before
    peaks = Peaks(torch.device("cpu"))
    held = torch.ones(2**24)  # 64 MiB
    del held
    found = peaks.answer()

    assert (found.allocated_bytes, found.graph_pool_bytes, found.taken_bytes) == (NOT_ON_A_CPU,) * 3
    assert isinstance(found.resident_before_bytes, int)
    if not isinstance(found.resident_bytes, Skipped):  # where /proc/self/clear_refs may be written
        assert 2**25 < found.resident_bytes - found.resident_before_bytes < 2**27


def test_a_graph_that_was_compiled_while_the_workload_was_loaded_is_watched_in_the_calls() -> None:
    torch._dynamo.reset()
    made = torch.compile(lambda rows: rows.mul_(2), backend="eager")
    rows = torch.ones(4)

    class Session:
        def __init__(self) -> None:
            made(rows)

        def step(self) -> None:
            made(rows)

    project = project_files("linkpred")
    found = memory_pass(Session, torch.device("cpu"), Options(steps=4, warmup=1), project=project)
    torch._dynamo.reset()

    assert isinstance(found.tensors, TensorRecords)
    (graph,) = found.tensors.graphs
    (held,) = graph.inputs[0].held
    assert tuple(held.written) == (0, 1, 2, 3)  # and not in the import, which is no call
