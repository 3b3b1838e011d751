"""Kineto traces that others recorded as a Recording: one run a file. No torch is needed.

The files are read before anything is written, so that a wrong name costs no older report. Each is
copied into the Recording (packed, where it was not), and read again from there by every analysis.
What a trace alone cannot show is Skipped with its reason.
"""

from __future__ import annotations

import gzip
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kgprof import model as m
from kgprof.errors import InputError
from kgprof.reading import kineto, layout, timeline
from kgprof.reading.files import opened
from kgprof.reading.launches import DEVICE_CATEGORIES
from kgprof.record.files import foreign
from kgprof.record.ground import store

if TYPE_CHECKING:
    from kgprof.progress import Progress

SUFFIXES = (".json", ".json.gz")  # .pt.trace.json[.gz] among them
HOW = "torch.profiler's export_chrome_trace and tensorboard_trace_handler write such files"
NOT_SHOWN = "a Kineto trace does not show it"
NOT_SHOWN_OF = {
    m.PassName.COMPILE: "a Kineto trace has no compiler records (a TORCH_TRACE directory has)",
    m.PassName.TIMING: "the times in a trace were taken under torch.profiler",
    m.PassName.HOST: "a Kineto trace has operators but no profile of Python functions",
    m.PassName.STACK: (
        "there is one trace per rank; stacks are in the report if it was recorded with them"
    ),
    m.PassName.MEMORY: (
        "a Kineto trace has neither the lines that sync nor the addresses of tensors"
    ),
    m.PassName.KERNELS: "there is one trace per rank",
}
# gzip's level for a file that was not packed: a trace shrinks some twelvefold, at 60 MB/s or so
PACKED_AT = 3

_RANK_IN_NAME = re.compile(r"rank[_\-. ]?(\d{1,6})", re.IGNORECASE)
# such names stand there only under Inductor's profiling
_GENERATED_CPP = re.compile(r"(?:graph_\d+_)?cpp_fused")


class Found(m.Model, kw_only=False):
    """One readable trace, and what the header of the Recording needs of it."""

    path: Path
    within: Path | None  # the folder that was named, for a file that was not
    head: Mapping[str, Any]  # what the file says before its events
    file: m.TraceFile  # whose rank is the trace's, or else its name's
    on_device: bool
    traced: m.TracePass | m.Skipped  # a trace holds an operator, a kernel, a copy or a fill
    rank_in_trace: bool


def _number(value: Any) -> int | None:
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
        else None
    )


# ---------------------------------------------------------------- which files


def title(paths: Sequence[Path]) -> str:
    first = os.path.basename(os.path.realpath(paths[0]))  # a loop of links has a name too
    return f"{first} and {len(paths) - 1} more" if len(paths) > 1 else first


def find(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The files named, and of each folder those whose name is a trace's; each once. Raises
    InputError."""
    found = [file for path in paths for file in ([path] if path.is_file() else _in_folder(path))]
    return tuple({file.resolve(): file for file in found}.values())


def _in_folder(folder: Path) -> list[Path]:
    if not folder.exists():
        raise InputError(
            "file or folder not found",
            path=folder,
            hint=f"give a Kineto trace, or a folder of them; {HOW}",
        )
    try:
        files = sorted(
            file for file in folder.iterdir() if file.name.endswith(SUFFIXES) and file.is_file()
        )
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=folder, hint=HOW) from error
    if (folder / layout.HEADER).is_file() or (folder / layout.FOLDER / layout.HEADER).is_file():
        again = f"kgprof report {shlex.quote(str(folder))} reads it again"
        raise InputError("this is a kgprof Recording", path=folder, hint=again)
    if not files:
        hint = HOW
        if deeper := next(
            (file.parent for suffix in SUFFIXES for file in folder.rglob(f"*{suffix}")), None
        ):
            hint = f"{deeper} has such files"
        elif any(folder.glob("dedicated_log_torch_trace_*")):
            hint = f"it is a TORCH_TRACE directory: kgprof report --torch-trace {folder} reads it"
        raise InputError("has no trace (*.json, *.json.gz)", path=folder, hint=hint)
    return files


def read_files(
    paths: Sequence[Path], against: Sequence[Path], progress: Progress
) -> tuple[tuple[Found, ...], tuple[str, ...]]:
    """Those that can be read, in the order of their ranks, and a sentence for each that cannot.

    Raises InputError where none of either side can.
    """
    every = []
    unread: list[str] = []
    for named, is_against in ((paths, False), (against, True)):
        files, found, refused = find(named), list[Found](), len(unread)
        for file in files:
            try:
                found.append(
                    _read(file, None if file in named else file.parent, is_against, progress)
                )
            except InputError as error:
                why = error.message.removeprefix(f"{file.name}: ")
                if len(files) == 1:
                    raise InputError(why, path=file, hint=error.hint or HOW) from error
                unread.append(f"{file}: {why}")
        if files and not found:
            where = named[0] if len(named) == 1 else " ".join(map(str, named))
            raise InputError(
                f"none of {len(files)} files is a Kineto trace", path=where, hint=unread[refused]
            )
        every += sorted(found, key=_by_rank)
    return tuple(every), tuple(unread)


def _read(file: Path, within: Path | None, against: bool, progress: Progress) -> Found:
    progress.phase(f"reading {file.name}", None)
    try:
        size_bytes = file.stat().st_size
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=file.name) from error
    head = kineto.metadata(file, within)
    trace = kineto.read(file, within)
    columns = trace.columns
    if not len(columns):
        raise InputError(
            "; ".join(("it has no complete event (ph X)", *trace.warnings)), path=file.name
        )
    on_device = bool(columns.of_category(*DEVICE_CATEGORIES).any())
    traced: m.TracePass | m.Skipped = m.Skipped("the trace has neither operators nor GPU kernels")
    if on_device or columns.of_category("cpu_op").any():
        steps = timeline.profiler_steps(columns)
        traced = m.TracePass(
            step_us=tuple(((steps[:, 1] - steps[:, 0]) / 1000).tolist()),
            trace_file=layout.TRACE_FILES[m.PassName.TRACE],
            cpp_kernel_profile=any(_GENERATED_CPP.match(name) for name in columns.names),
        )
    distributed = head.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    rank = in_trace = _number(distributed.get("rank"))
    named = _RANK_IN_NAME.search(file.name)
    if rank is None and named:
        rank = int(named[1])
    stem = file.name.removesuffix(".gz").removesuffix(".json").removesuffix(".pt.trace")
    name = f"rank{rank}" if rank is not None else stem or file.name
    described = m.TraceFile(
        key=m.RunKey(f"against-{name}" if against else name, m.AS_IS),
        file=str(file),
        size_bytes=size_bytes,
        rank=rank,
        world_size=_number(distributed.get("world_size")),
        backend=str(distributed.get("backend") or ""),
        against=against,
    )
    return Found(file, within, head, described, on_device, traced, in_trace is not None)


def _by_rank(one: Found) -> tuple[bool, int, str]:
    return one.file.rank is None, one.file.rank or 0, one.file.file


# ---------------------------------------------------------------- the Recording


def record_files(
    paths: Sequence[Path],
    output: Path,
    options: m.Options,
    progress: Progress,
    *,
    against: Sequence[Path] = (),
) -> tuple[Path, tuple[str, ...]]:
    """Write the Recording of these traces into ``output/recording``; that folder, and what could
    not be read.

    Raises InputError where there is nothing to read, UsageError for a folder that cannot be
    written.
    """
    found, unread = read_files(paths, against, progress)
    keys = foreign.run_keys((one.file.key.strategy for one in found), "file", 2)
    files = tuple(
        replace(one.file, key=key, notes=(*_notes(one, found), *(() if number else unread)))
        for number, (one, key) in enumerate(zip(found, keys, strict=True))
    )
    properties = [one.head.get("deviceProperties") for one in found]
    devices = [device for listed in properties if isinstance(listed, list) for device in listed]
    named = [device.get("name") for device in devices if isinstance(device, dict)]
    device_names = dict.fromkeys(name for name in named if name and isinstance(name, str))
    versions = {
        "cuda": _version(found, "cuda_runtime_version"),
        "driver": _version(found, "cuda_driver_version"),
    }
    environment = foreign.environment(
        reason=NOT_SHOWN,
        device_name=", ".join(device_names) or "an unnamed machine",
        **{name: version for name, version in versions.items() if version},
    )
    on_cuda = any(one.on_device for one in found)
    folder = foreign.create(
        output, options, keys, environment, on_cuda=on_cuda, reason=NOT_SHOWN, trace_files=files
    )
    for one, file in zip(found, files, strict=True):
        progress.phase("keeping its trace", file.key)
        _write_run(folder, one, file)
    return folder, unread


def _notes(one: Found, every: Sequence[Found]) -> Iterator[str]:
    side = [other.file for other in every if other.file.against == one.file.against]
    rank = one.file.rank
    if one.head.get("with_stack"):
        yield "recorded with stacks (with_stack), which slows down everything on the CPU"
    if rank is not None and not one.rank_in_trace:
        yield "the trace does not name its rank (distributedInfo), so the file name decides"
    if rank is not None and (same := sum(other.rank == rank for other in side)) > 1:
        yield f"{same} files are of rank {rank}: all are shown, but ranks are compared by the first"
    if (size := one.file.world_size) is None:
        return
    if one.file is side[0] and (
        lacking := sorted(set(range(min(size, 2**16))) - {other.rank for other in side})
    ):
        shown = ", ".join(map(str, lacking[:8])) + (", ..." if len(lacking) > 8 else "")
        yield f"the job had {size} ranks; there is no trace of {len(lacking)} of them ({shown})"
    sizes = {other.world_size for other in side if other.world_size is not None}
    if len(sizes) > 1:
        yield (
            "the traces are of jobs of different sizes "
            f"({', '.join(map(str, sorted(sizes)))} ranks)"
        )


def _write_run(folder: Path, one: Found, file: m.TraceFile) -> None:
    run = layout.run_folder(folder, file.key)
    if isinstance(one.traced, m.TracePass):
        _keep(one, run / one.traced.trace_file)
    foreign.write_run(
        folder, file.key, m.PassName.TRACE, one.traced, reason=NOT_SHOWN, reasons=NOT_SHOWN_OF
    )
    origins = m.Skipped("a Kineto trace does not name the source lines of kernels")
    store.write_json(run / layout.KERNEL_ORIGINS, origins)


def _keep(one: Found, kept: Path) -> None:
    """A copy, packed. Raises InputError where the source went away meanwhile, OutputError for a
    full disk."""
    try:
        file = opened(one.path, one.within)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=one.path) from error
    with file, store.replacing(kept) as partial:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        with partial.open("wb") as raw:
            if packed:
                shutil.copyfileobj(file, raw, 2**20)
                return
            with gzip.GzipFile(
                filename="", fileobj=raw, mode="wb", compresslevel=PACKED_AT, mtime=0
            ) as target:
                shutil.copyfileobj(file, target, 2**20)


def _version(found: Sequence[Found], field: str) -> str:
    """CUDA writes 13.0 as 13000; empty where no file says it."""
    numbers = dict.fromkeys(
        number for one in found if (number := _number(one.head.get(field))) is not None
    )
    return ", ".join(f"{number // 1000}.{number % 1000 // 10}" for number in numbers)
