"""torch's flight recorder: each rank's collectives, read where a launched program did not end well.

torch keeps the last 2,000 of them. NCCL's watchdog writes them to a file when a collective has
taken too long, or when somebody writes to its pipe; what ends by an exception writes its own.
"""

import contextlib
import glob
import io
import os
import pickle
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from kgprof import model as m
from kgprof.progress import tell
from kgprof.reading import layout
from kgprof.record.ground import store
from kgprof.record.ground.flags import Variables

FILE, PIPE = "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
OLDER_FILE = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"  # which torch reads where FILE is not set
MOST_BYTES = 2**26
ANSWERS_WITHIN_S = 4.0  # NCCL's monitor looks at its pipe once a second
MOST_FRAMES = 12
# of a process that was killed while it wrote, or of a torch that writes another form
UNREADABLE = (
    AttributeError,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
)
_OF_TORCH = f"-packages{os.sep}torch{os.sep}"
_OWN = str(Path(__file__).resolve().parents[2])


def variables(prefix: Path, environment: Variables) -> dict[str, str]:
    """What makes torch write below ``prefix``; nothing that the program's owner has set."""
    wanted = {PIPE: str(prefix)}
    if OLDER_FILE not in environment:
        wanted[FILE] = str(prefix)
    return {name: value for name, value in wanted.items() if name not in environment}


def write(prefix: Path) -> None:
    """In the rank itself, from its main thread: the stacks need the interpreter.

    The program has failed: what fails here is said, and its own failure stays.
    """
    import torch  # not in the parent, which reads what was written

    rank = os.environ.get("RANK", "")
    distributed = torch.distributed
    if not rank or not distributed.is_available() or not distributed.is_initialized():
        return
    file = Path(f"{prefix}{rank}")
    if file.exists():
        return
    recorder: Any = torch._C._distributed_c10d
    try:
        file.write_bytes(recorder._dump_fr_trace())
    except Exception as error:  # noqa: BLE001  a full disk, or a torch without the recorder
        line = f"[kgprof: collectives not kept: {type(error).__name__}: {error}]"
        with contextlib.suppress(OSError, ValueError):  # stderr may be full or closed as well
            print(line, file=sys.stderr, flush=True)  # noqa: T201


def ask(prefix: Path) -> None:
    """Let NCCL's monitor write what it knows of a rank that hangs, and wait for it."""
    for pipe in glob.glob(f"{glob.escape(str(prefix))}*.pipe"):
        with contextlib.suppress(OSError):  # nobody reads it any more
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(descriptor, b"1\n")
            os.close(descriptor)
        until = time.monotonic() + ANSWERS_WITHIN_S
        while time.monotonic() < until and not Path(pipe.removesuffix(".pipe")).is_file():
            time.sleep(0.1)


def keep(prefix: Path, folder: Path) -> None:
    """Put what this rank's process wrote into its run's folder, in kgprof's own form; say why where
    it cannot be read."""
    rank = os.environ.get("RANK", "")
    file = Path(f"{prefix}{rank}")
    if not file.is_file():
        return
    try:
        if file.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES // 2**20} MB")
        kept = order(file.read_bytes(), int(rank), file.stat().st_mtime_ns)
    except UNREADABLE as error:
        why = f"{type(error).__name__}: {error}"
        tell(f"kgprof: torch's record of rank {rank}'s collectives was not read: {why}")
        return
    store.write_json(folder / layout.COLLECTIVES, kept)


class _Plain(pickle.Unpickler):
    """Numbers, texts and their collections; no class is looked up, and none of its code called."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is not a plain value")


class _Entry(msgspec.Struct):
    frames: list[dict[str, Any]]
    pg_id: int  # of this process alone; ``pg_status`` has it as its key
    process_group: tuple[str, str]  # name, which all ranks have, and description
    collective_seq_id: int
    profiling_name: str  # "nccl:all_reduce"
    input_sizes: list[list[int]]
    is_p2p: bool
    time_created_ns: int


def order(data: bytes, rank: int, written_ns: int) -> m.CollectiveOrder:
    """Read torch's pickle. Raises what pickle and msgspec raise for something else."""
    written = _Plain(io.BytesIO(data)).load()
    entries = msgspec.convert(written.get("entries", []), list[_Entry])
    status: Mapping[Any, Mapping[str, int]] = written.get("pg_status", {})
    completed = {}
    places: dict[m.CollectiveCall, int] = {}
    begun = []
    waits_s = {}
    for entry in entries:
        if entry.is_p2p:
            continue
        call = m.CollectiveCall(
            entry.profiling_name.rpartition(":")[2],
            sizes=tuple(tuple(size) for size in entry.input_sizes),
            frames=tuple(_frames(entry.frames)),
        )
        place = places.setdefault(call, len(places))
        group = entry.process_group[0]
        number = entry.collective_seq_id
        begun.append((group, number, place))
        if (of_group := status.get(str(entry.pg_id))) is not None:
            # -1 before the first has ended
            completed[group] = max(0, of_group["last_completed_collective"])
        if number == completed.get(group, 0) + 1:
            waits_s[group] = (written_ns - entry.time_created_ns) / 1e9
    return m.CollectiveOrder(rank, tuple(places), tuple(begun), completed, waits_s)


def _frames(frames: list[dict[str, Any]]) -> Iterator[m.SourceLine]:
    outside = (
        frame
        for frame in frames
        if _OF_TORCH not in frame["filename"] and not frame["filename"].startswith(_OWN)
    )
    for _, frame in zip(range(MOST_FRAMES), outside, strict=False):
        yield m.SourceLine(frame["filename"], frame["line"], frame["name"])
