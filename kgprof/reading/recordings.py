"""Reads a Recording back from its folder."""

from __future__ import annotations

import gzip
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kgprof import model as m
from kgprof.errors import InputError
from kgprof.reading import layout
from kgprof.reading.layout import run_folder

if TYPE_CHECKING:  # the parent and the reader need no arrays
    import numpy as np

T = TypeVar("T")

# Which key a line of TRACE_RECORDS has, and what it holds.
_LINES: dict[str, type[Any]] = {
    "metadata": m.TraceRecord,
    "frame": m.OfferedFrame,
    "graph": m.GraphRuns,
    "log": m.LogLine,
}


def has_result(folder: Path, key: m.RunKey) -> bool:
    return (run_folder(folder, key) / layout.RESULT).exists()


def read_pass(folder: Path, key: m.RunKey, name: m.PassName, kind: type[T]) -> T | None:
    """One pass while the Recording is still being made; None where it is missing or was skipped."""
    found = _read_if_there(run_folder(folder, key) / f"{name}.json", kind | m.Skipped)  # type: ignore[arg-type]
    return found if isinstance(found, kind) else None


def read_result(folder: Path, key: m.RunKey) -> dict[str, np.ndarray] | None:
    """What write_result wrote, or None."""
    import numpy as np

    path = run_folder(folder, key) / layout.RESULT
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {str(name): stored[f"array_{index}"] for index, name in enumerate(stored["names"])}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"is not what kgprof writes: {error}", path=path) from error


def load(path: Path) -> m.Recording:
    """Read a Recording back. Raises InputError naming the file that is missing, malformed or too new."""
    folder = layout.resolve(path)
    header = _read_header(folder / layout.HEADER)
    return m.Recording(
        folder=str(folder),
        header=header,
        runs=tuple(_load_run(folder, key, header) for key in header.plan.runs),
        agreement=_load_agreement(folder, header),
        gate=_read_if_there(folder / layout.GATE, m.GateSettings),
        accepted=_read_if_there(folder / layout.ACCEPTED, tuple[m.GateEntry, ...]) or (),
        ceilings=_read_if_there(folder / layout.CEILINGS, m.Ceilings | m.Skipped)  # type: ignore[arg-type]
        or m.Skipped(reason="this Recording holds no ceilings"),
    )


def load_header(folder: Path) -> m.RecordingHeader:
    """What a Recording was made of, without what it measured. Raises InputError."""
    return _read_header(folder / layout.HEADER)


def _read_header(path: Path) -> m.RecordingHeader:
    version = _read(path, dict[str, Any]).get("schema_version")
    if not isinstance(version, int):
        raise InputError("it has no schema_version, so this is no Recording", path=path)
    if version > m.RECORDING_SCHEMA_VERSION:
        raise InputError(
            f"Recording schema {version} is newer than this kgprof reads ({m.RECORDING_SCHEMA_VERSION})",
            path=path,
            hint="update kgprof",
        )
    return _read(path, m.RecordingHeader)


def _load_run(folder: Path, key: m.RunKey, header: m.RecordingHeader) -> m.RunRecord:
    run = run_folder(folder, key)
    ended = _read_if_there(run / layout.exit_name(False), m.Exit) or _never_ended(run.is_dir(), header)
    probe_exit = _read_if_there(run / layout.exit_name(True), m.Exit)
    missing = m.Skipped(reason=_why_missing(ended))
    not_probed = m.Skipped(reason=_why_missing(probe_exit or ended))
    older = m.Skipped(reason="this Recording holds no STACK pass")
    no_hta = m.Skipped(
        reason="HolisticTraceAnalysis was not asked (--no-hta, or it is not installed where this was read)"
    )

    def read(name: str, kind: type[T], otherwise: m.Skipped = missing) -> T | m.Skipped:
        return _read_if_there(run / name, kind | m.Skipped) or otherwise  # type: ignore[arg-type]

    rounds = []
    for number in range(2, header.options.rounds + 1):
        name = layout.round_name(number)
        began = (run / f"{name}_{layout.LOG}").exists()
        left = _read_if_there(run / f"{name}_exit.json", m.Exit) or _never_ended(began, header)
        measured = _read_if_there(run / f"{name}.json", m.TimedRound)
        lost = m.Skipped(reason=_why_missing(left, "round"))
        rounds.append(m.RoundRecord(number=number, exit=left, measured=measured or lost))
    return m.RunRecord(
        key=key,
        exit=ended,
        probe_exit=probe_exit,
        compile=read("compile.json", m.CompilePass),
        timing=_with_slow_first(read("timing.json", m.TimingPass)),
        trace=read("trace.json", m.TracePass),
        host=read("host.json", m.HostPass),
        stack=read("stack.json", m.TracePass, older if ended.outcome == m.Outcome.OK else missing),
        kernels=read("kernels.json", m.TracePass, not_probed),
        memory=read("memory.json", m.MemoryPass, not_probed),
        kernel_origins=read(layout.KERNEL_ORIGINS, m.KernelOrigins, not_probed),
        compiled_kernels=read(layout.COMPILED_KERNELS, m.CompiledKernels),
        evaluation=read(f"{layout.EVALUATION}.json", m.Evaluation),
        log=_read_log(run / layout.LOG) + _read_log(run / layout.PROBE_LOG),
        records=_read_records(run) or missing,
        script=_read_if_there(run / layout.SCRIPT, m.ScriptRun),
        holistic=read(layout.HOLISTIC, m.Holistic, no_hta),
        rounds=tuple(rounds),
    )


# Recordings and Profiles that an older kgprof wrote, which put into sentences what are fields now.
_SLOW_FIRST = re.compile(r"the first evaluation took (?P<ratio>[\d.]+) times the median of the others")
_CAPTURE = re.compile(r"capture (?P<capture>.+?) (?P<how>unavailable|incomplete): (?P<why>.*)", re.DOTALL)
_CAPTURES_AS_SENTENCES = re.compile(rb'"capture_unavailable":\s*\[\s*"')


def with_captures_as_fields(data: bytes) -> bytes:
    """JSON of a pass or a Profile, in which every capture that was unavailable is an object. Raises DecodeError."""

    def walk(value: Any, field: str = "") -> Any:
        if isinstance(value, list):
            return [walk(each, field) for each in value]
        if isinstance(value, dict):
            return {key: walk(each, key) for key, each in value.items()}
        if field != "capture_unavailable" or not isinstance(value, str) or not (found := _CAPTURE.fullmatch(value)):
            return value
        return {"capture": found["capture"], "why": found["why"], "incomplete": found["how"] == "incomplete"}

    return msgspec.json.encode(walk(msgspec.json.decode(data))) if _CAPTURES_AS_SENTENCES.search(data) else data


def _with_slow_first(timing: m.TimingPass | m.Skipped) -> m.TimingPass | m.Skipped:
    if isinstance(timing, m.Skipped) or not (
        matches := [match for note in timing.notes if (match := _SLOW_FIRST.fullmatch(note))]
    ):
        return timing
    return msgspec.structs.replace(
        timing,
        notes=tuple(note for note in timing.notes if not _SLOW_FIRST.fullmatch(note)),
        slow_first=float(matches[0]["ratio"]),
    )


def _read_records(run: Path) -> m.CompileRecords | m.Skipped | None:
    """What COMPILE's sources wrote; None where the pass did not come to its end. Damage costs no more than these."""
    path = run / layout.TRACE_RECORDS
    if not path.exists():
        return None
    try:
        sources = _read_if_there(run / layout.SOURCES, m.Sources) or m.Sources()
        return records_of(_lines(path), sources)
    except InputError as error:
        return m.Skipped(reason=error.message)
    except msgspec.ValidationError as error:
        return m.Skipped(reason=f"{path}: is not what kgprof writes: {error}")


def records_of(lines: Iterable[Mapping[str, Any]], sources: m.Sources) -> m.CompileRecords:
    """Raises msgspec.ValidationError where a line is of another shape."""
    read: dict[str, list[Any]] = {key: [] for key in _LINES}
    left_out = 0
    for line in lines:
        left_out += line.get("left_out", 0)
        key = next((key for key in _LINES if key in line), None)
        if key is not None:
            found = line if key == "metadata" else line[key]
            # The keys of a JSON object are text, calls are numbers.
            read[key].append(msgspec.convert(found, _LINES[key], strict=False))
    return m.CompileRecords(
        records=tuple(read["metadata"]),
        frames=tuple(read["frame"]),
        graphs=tuple(read["graph"]),
        logs=tuple(read["log"]),
        left_out=left_out,
        sources=sources,
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with gzip.open(path, "rb") as lines:
            for line in lines:
                yield m.decode_json(line, dict[str, Any])
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read: {error}", path=path) from error
    except msgspec.DecodeError as error:
        raise InputError(f"is not what kgprof writes: {error}", path=path) from error


def _never_ended(began: bool, header: m.RecordingHeader) -> m.Exit:
    if began:
        return m.Exit(outcome=m.Outcome.INTERRUPTED, message="kgprof itself ended before this run did")
    why = "kgprof was interrupted before it" if header.interrupted else "kgprof ended before it"
    return m.Exit(outcome=m.Outcome.INTERRUPTED, message=f"never started: {why}")


def _why_missing(ended: m.Exit, what: str = "run") -> str:
    """Why a pass left no file, from how its child ended."""
    return f"the {what} {'ended without writing this pass' if ended.outcome == 'ok' else ended.words}"


def _load_agreement(folder: Path, header: m.RecordingHeader) -> m.Agreement | m.Skipped:
    if not header.plan.agreement:
        return m.Skipped(reason="there is nothing that the results could be compared with")
    found = _read_if_there(folder / "agreement.json", m.Agreement | m.Skipped)  # type: ignore[arg-type]
    return found or m.Skipped(reason="kgprof ended before the results were compared")


def _read_log(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=path) from error


def _read_if_there(path: Path, kind: type[T]) -> T | None:
    return _read(path, kind) if path.exists() else None


def _read(path: Path, kind: type[T]) -> T:
    try:
        return m.decode_json(with_captures_as_fields(path.read_bytes()), kind)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=path) from error
    except msgspec.DecodeError as error:
        raise InputError(f"is not what kgprof writes: {error}", path=path) from error
