"""Which files' text a MEMORY pass keeps."""

from __future__ import annotations

from kgprof.model.memory_records import Memory, SyncRecords, TensorRecords, WatchedBuffer
from kgprof.record.memory import files_named
from kgprof.workloads.linkpred import slots

WHERE = Memory(
    address=64, storage=64, storage_bytes=8, shape=(2,), stride=(1,), itemsize=4, dtype="float32", device="cpu"
)


def named(*, moved: tuple[int, ...]) -> set[str]:
    buffer = WatchedBuffer(name="states", watched=4, first=WHERE, last=WHERE, moved=moved)
    return set(files_named(SyncRecords(), TensorRecords(buffers=(buffer,))))


def test_the_line_that_rebinds_a_buffer_is_on_no_stack_so_whatever_was_imported_may_hold_it() -> None:
    assert slots.__file__ in named(moved=(2, 3))


def test_while_every_buffer_stays_nobody_asks() -> None:
    assert named(moved=()) == set()
