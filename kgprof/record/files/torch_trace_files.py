"""The files of a TORCH_TRACE directory as a Recording: one run for each process that wrote one. No
torch is needed.

torch writes a file a process, ``dedicated_log_torch_trace_[rank_N_]*.log``
(torch/_logging/_internal.py, LazyTraceHandler and TorchLogsFormatter, torch 2.11 to 2.13). A record
is one line, and its payload the lines after it:

    V1121 06:10:20.163000 10595 torch/_dynamo/convert_frame.py:303] {"artifact": {...},
    "has_payload": "<md5>"}
    <tab>first line of the payload
    <tab>second line

Nothing in it says where one call of the program ended, so no record has a call: ``call`` counts how
often torch began its compile ids anew (``torch._dynamo.reset()``), which is needed to tell two
compilations of one id apart. What only the hooks of a live capture see is named as unavailable.

Under TORCH_TRACE torch prints tensors while it compiles, and a tensor subclass may raise there,
which fails the compilation. That says nothing about the program, nor does what torch then compiles
inside of such a function: both are left out, and the run is not judged.
"""

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from kgprof import model as m
from kgprof.errors import InputError
from kgprof.reading import layout
from kgprof.reading.files import json_object, lines
from kgprof.reading.project import ProjectFiles
from kgprof.reading.structured_trace import artifact_name, compile_id, is_whole
from kgprof.record.files import foreign
from kgprof.record.ground import kept_records, project_sources, store
from kgprof.record.ground.kept_records import KeptRecords, Metadata

FILES = "dedicated_log_torch_trace_*.log"
NOT_THERE = "a TORCH_TRACE directory does not contain it"
# what only a live capture has
UNSEEN = ("frame hook", "graph hook", "cuda graph log", "torch logs")
LONGEST_LINE = LONGEST_PAYLOAD = 64 * 2**20  # bytes; what is longer is no record of torch's
MOST_BYTES = 2**34  # of a file, unpacked
MOST_FOREIGN = 10**6  # lines of a file that are no record's, or of a payload that is too long

_PREFIX = re.compile(
    rb"(?:\[rank\d+\]:)?[VIWEC](?P<month>\d\d)(?P<day>\d\d) "
    rb"(?P<time>\d\d:\d\d:\d\d\.\d{6}) (?P<pid>\d+) "
    rb"[^\]\n]+:\d+\] (?P<metadata>\{.*)"
)
_RANK_IN_NAME = re.compile(r"_rank_(\d+)_")
# A frame of torch's structured trace within a traceback: the exception came out of what it printed.
_PRINTING = re.compile(
    r'File "[^"\n]*[/\\]torch[/\\]_logging[/\\]_internal\.py", line \d+, in trace_structured\n'
)
_WITH_TRACEBACK = ("dynamo_graph_break_reason", "dynamo_error")
# Folders that the names in a trace give away as a library's, also those of another machine.
_STDLIB = re.compile(r"(?P<folder>.*[/\\]lib(?:64)?[/\\]python3\.\d+t?)[/\\]")
_TORCH = re.compile(r"(?P<folder>.*[/\\]torch)[/\\]_(?:dynamo|logging|inductor|functorch|ops)\b")
_PYTHON = re.compile(r"[/\\]python(3\.\d+)t?[/\\]")
_GENERATED = re.compile(r"(?P<folder>.*[/\\]torchinductor_[^/\\]+)[/\\]")


# ---------------------------------------------------------------- what a file holds


@dataclass(kw_only=True)
class TraceFile(KeptRecords):
    """One file's kept records, each with the number of resets before it, and what is wrong with
    it."""

    path: Path
    seen: int = 0  # records of any kind that could be read
    damaged: int = 0  # records, or lines that belong to none, that could not
    last_is_short: bool = False
    cut: str = ""  # why the file ends before its end
    pid: str = ""
    rank: int | None = None
    torch: str = ""
    began: str = ""  # month, day and time, as torch wrote them: no year, the machine's own zone
    resets: int = 0
    # compile ids whose metrics have been written
    ended: set[tuple[Any, Any]] = field(default_factory=set)

    # Compile ids, each with the number of resets before it, that torch's own printing failed.
    failed_by_printing: set[tuple[str, int]] = field(default_factory=set)
    unprinted: tuple[str, ...] = ()  # the functions of these

    @property
    def compiled(self) -> bool:
        began = any("dynamo_start" in record.metadata for record in self.records)
        return began or bool(self.unprinted)

    def problems(self) -> Iterator[str]:
        if self.cut:
            yield f"{self.path.name} {self.cut}"
        if self.damaged:
            yield (
                f"{self.path.name}: {self.damaged:,} record{'s' * (self.damaged > 1)} damaged "
                "and left out"
            )
        if self.left_out:
            limit = kept_records.RECORDS_BYTES // 2**20
            yield f"{self.path.name}: {self.left_out:,} records left out beyond {limit} MiB"

    def take(self, prefix: re.Match[bytes], payload: bytes | None) -> None:
        metadata = json_object(prefix["metadata"])
        text = None
        whole = bool(metadata) and is_whole(metadata)
        if (md5 := metadata.get("has_payload")) is not None:
            data = payload or b""
            whole = whole and hashlib.md5(data, usedforsecurity=False).hexdigest() == md5
            text = data.decode("utf-8", errors="replace")
        self.last_is_short = not whole
        if not whole:
            self.damaged += 1
            return
        self.seen += 1
        self._describe(prefix, metadata, text)
        self._count_resets(metadata)
        if artifact_name(metadata) in _WITH_TRACEBACK and _PRINTING.search(text or ""):
            self.failed_by_printing.add((compile_id(metadata), self.resets))
        self.keep(metadata, text, self.resets)

    def _describe(self, prefix: re.Match[bytes], metadata: Metadata, text: str | None) -> None:
        if not self.began:
            month, day, time, pid = (
                prefix[name].decode() for name in ("month", "day", "time", "pid")
            )
            self.began = f"{month}-{day} {time}"
            self.pid = pid
            named = _RANK_IN_NAME.search(self.path.name)
            self.rank = int(named[1]) if named else None
        if isinstance(rank := metadata.get("rank"), int):
            self.rank = rank
        if artifact_name(metadata) == "torch_version" and text:
            self.torch = str(json_object(text).get("pytorch_version") or "")

    def _count_resets(self, metadata: Metadata) -> None:
        """A compile id that begins again after its metrics were written is another compilation of
        the same name."""
        name = (metadata.get("frame_id"), metadata.get("frame_compile_id"))
        if metadata.get("compiled_autograd_id") is not None or not all(
            isinstance(number, int) for number in name
        ):
            return
        if "compilation_metrics" in metadata:
            self.ended.add(name)
        elif "dynamo_start" in metadata and name in self.ended:
            self.resets += 1
            self.ended.clear()

    def leave_out_failed_by_printing(self) -> None:
        """Drop these compilations, and those of code that their functions called eagerly."""
        if not self.failed_by_printing:
            return
        stacks = {
            (compile_id(record.metadata), record.call): stack
            for record in self.records
            if (stack := self._stack(record.metadata))
        }
        failed = [stack[-1] for key, stack in stacks.items() if key in self.failed_by_printing]
        gone = {key for key, stack in stacks.items() if not set(failed).isdisjoint(stack)}
        self.unprinted = tuple(dict.fromkeys(function for _, function in failed))
        self.records = [
            record
            for record in self.records
            if (compile_id(record.metadata), record.call) not in gone
        ]

    def _stack(self, metadata: Metadata) -> list[tuple[object, str]]:
        """Read the file's number and the function of each frame, where a compilation begins."""
        start = metadata.get("dynamo_start")
        frames = start.get("stack") if isinstance(start, dict) else None
        listed = frames if isinstance(frames, list) else []
        return [(frame.get("filename"), str(frame.get("name"))) for frame in listed]

    @property
    def changed_by_the_trace(self) -> str:
        """Say why the run is not judged; empty if printing failed nothing."""
        if not self.unprinted:
            return ""
        functions = ", ".join(self.unprinted)
        return (
            f"printing a tensor for TORCH_TRACE raised while torch compiled {functions}, which "
            "failed the compilation; without TORCH_TRACE it may succeed"
        )


def read_file(path: Path, within: Path | None = None) -> TraceFile:
    """Whatever of it can be read. ``within``: as files.opened has it. Raises InputError where
    nothing can."""
    found = TraceFile(path=path)
    try:
        for prefix, payload in _records(path, within, found):
            found.take(prefix, payload)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        found.cut = f"ends in the middle of its compressed data ({error})"
    except OSError as error:
        if error.errno is not None:
            raise InputError(f"cannot be read: {error.strerror}", path=path) from error
        found.cut = f"is read up to a limit only: {error}"
    if not found.seen:
        empty = path.stat().st_size == 0
        cut = f" ({found.cut})" if found.cut else ""
        what = "it is empty" if empty else f"it has no record of torch's structured trace{cut}"
        raise InputError(what, path=path, hint=f"TORCH_TRACE=DIR makes torch write {FILES} to DIR")
    if not found.cut and found.last_is_short:
        found.cut = "ends in the middle of a record"
    found.leave_out_failed_by_printing()
    return found


def _records(
    path: Path, within: Path | None, found: TraceFile
) -> Iterator[tuple[re.Match[bytes], bytes | None]]:
    """(a record's first line, its payload), in the file's order."""
    prefix: re.Match[bytes] | None = None
    payload = []
    room = LONGEST_PAYLOAD
    foreign_lines = 0
    for line in chain(lines(path, within, longest=LONGEST_LINE, most_bytes=MOST_BYTES), (b"",)):
        if line.startswith(b"\t") and prefix is not None:
            room -= len(line) + 64  # with what a line takes in memory
            if room > 0:
                payload.append(line[1:])
                continue
            foreign_lines += 1  # it is not what torch wrote, and the record counts as damaged
        else:
            if prefix is not None:
                yield prefix, b"\n".join(payload) if payload else None
            prefix, payload, room = _PREFIX.fullmatch(line), [], LONGEST_PAYLOAD
            if prefix is not None or not line:
                continue
            found.damaged += 1
            foreign_lines += 1
        if foreign_lines > MOST_FOREIGN:
            raise OSError(f"more than {MOST_FOREIGN:,} of its lines are not torch records")


# ---------------------------------------------------------------- the directory


def read_directory(path: Path) -> tuple[tuple[TraceFile, ...], tuple[str, ...]]:
    """Its processes in the order in which they began, and a sentence for each file that is none of
    theirs.

    ``path`` may be one such file. Raises InputError where there is nothing to read.
    """
    files = []
    unread = []
    paths = _paths(path)
    for one in paths:
        try:
            files.append(read_file(one, None if one == path else path))
        except InputError as error:
            if len(paths) == 1:
                raise
            unread.append(error.message)
    if not files:
        raise InputError(
            f"none of its {len(paths)} files has a record of torch's structured trace",
            path=path,
            hint=unread[0],
        )
    idle = [file for file in files if not file.compiled]
    if len(idle) < len(files):
        unread += [f"{file.path}: this process compiled nothing" for file in idle]
        files = [file for file in files if file.compiled]
    return tuple(
        sorted(files, key=lambda file: (file.rank is not None, file.rank or 0, file.began))
    ), tuple(unread)


def _paths(path: Path) -> list[Path]:
    if not path.exists():
        raise InputError(
            "file or folder not found", path=path, hint="give the directory that TORCH_TRACE named"
        )
    if not path.is_dir():
        return [path]
    try:
        found = sorted(
            {
                one
                for pattern in (FILES, f"{FILES}.gz")
                for one in path.glob(pattern)
                if one.is_file()
            }
        )
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    if found:
        return found
    deeper = next((one.parent for one in path.rglob(FILES)), None)
    hint = (
        f"{deeper} has some"
        if deeper
        else "TORCH_TRACE=DIR python program.py makes torch write them"
    )
    raise InputError(f"has no {FILES}", path=path, hint=hint)


def record_directory(path: Path, output: Path, options: m.Options) -> Path:
    """Write the Recording of a TORCH_TRACE directory into ``output/recording`` and return that
    folder.

    Raises InputError where there is nothing to read, UsageError for a folder that cannot be
    written.
    """
    files, unread = read_directory(path)
    names = (
        f"rank{file.rank}" if file.rank is not None else f"process-{file.pid}" for file in files
    )
    keys = foreign.run_keys(names, "restart-", 1)
    records = [record.metadata for file in files for record in file.records]
    paths = (str(metadata["str"][0]) for metadata in records if "str" in metadata)
    pythons = (found[1] for name in paths if (found := _PYTHON.search(name)))
    tensors = (metadata.get("describe_tensor") for metadata in records)
    on_cuda = any(
        isinstance(tensor, dict) and "cuda" in str(tensor.get("device")) for tensor in tensors
    )
    environment = foreign.environment(
        reason=NOT_THERE,
        device_name="the machine that was traced",
        python=next(pythons, foreign.NO_VERSION),  # where a path says it
        torch=", ".join(dict.fromkeys(file.torch for file in files if file.torch))
        or foreign.NO_VERSION,
    )
    folder = foreign.create(output, options, keys, environment, on_cuda=on_cuda, reason=NOT_THERE)
    for file, key in zip(files, keys, strict=True):
        _write_run(folder, key, file, unread, options)
    return folder


def _write_run(
    folder: Path, key: m.RunKey, file: TraceFile, unread: Sequence[str], options: m.Options
) -> None:
    records = layout.run_folder(folder, key) / layout.TRACE_RECORDS
    missing = file.left_out + file.damaged + bool(file.cut and not file.damaged)
    lines = list(kept_records.as_lines(file.records, left_out=missing))
    kept_records.write_records(records, lines)
    sources = project_sources.gather(lines, _project(file.records), recorded_here=False)
    store.write_json(records.with_name(layout.SOURCES), sources)
    lost = [m.Unavailable("structured trace", why, incomplete=True) for why in file.problems()]
    if file.changed_by_the_trace:
        lost.append(m.Unavailable("compilation", file.changed_by_the_trace))
    compiled = m.CompilePass(
        call_us=(),
        steady_from=options.warmup,
        compilations=tuple(kept_records.compilations(file.records)),
        capture_unavailable=(
            *lost,
            *(m.Unavailable(name, NOT_THERE) for name in UNSEEN),
        ),
        calls=0,
    )
    foreign.write_run(folder, key, m.PassName.COMPILE, compiled, reason=NOT_THERE)
    read = (
        f"the text of {len(sources.files)} source files was read now and may differ from what ran"
    )
    none = "no source file is below the current folder, so source lines are not shown"
    notes = (
        f"read from {file.path.name}, which process {file.pid} began on {file.began} (its own "
        "clock, no year)",
        "calls are not in it, so recompiles during and after warm-up cannot be told apart",
        "frames that torch skipped without a record (a generator, a dispatch mode) are missing",
        read if sources.files else none,
        *file.problems(),
        *unread,
    )
    script = m.ScriptRun(step="", steps=0, counted={}, rank=file.rank, notes=notes)
    store.write_json(records.with_name(layout.SCRIPT), script)


def _project(records: Iterable[m.TraceRecord]) -> ProjectFiles:
    """The libraries of this machine, and those that the traced one's file names give away."""
    here = project_sources.project_files("")
    names = [str(record.metadata["str"][0]) for record in records if "str" in record.metadata]
    there = [
        found["folder"]
        for name in names
        for pattern in (_STDLIB, _TORCH, _GENERATED)
        if (found := pattern.match(name))
    ]
    return ProjectFiles(libraries=tuple(dict.fromkeys((*here.libraries, *there))), own=here.own)
