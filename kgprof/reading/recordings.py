"""Reads a Recording back from its folder."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kgprof import model as m
from kgprof.errors import InputError
from kgprof.reading.layout import (
    ACCEPTED,
    CEILINGS,
    COMPILED_KERNELS,
    EVALUATION,
    GATE,
    HEADER,
    HOLISTIC,
    KERNEL_ORIGINS,
    LOG,
    PROBE_LOG,
    RESULT,
    SCRIPT,
    SOURCES,
    TRACE_RECORDS,
    exit_name,
    resolve,
    round_name,
    run_folder,
)
from kgprof.reading.link_prediction import UNIT, CandidateResults

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
    return (run_folder(folder, key) / RESULT).exists()


def read_pass(folder: Path, key: m.RunKey, name: m.PassName, kind: type[T]) -> T | None:
    """One pass while the Recording is still being made; None where it is missing or was skipped."""
    found = _read_if_there(run_folder(folder, key) / f"{name}.json", kind | m.Skipped)  # type: ignore[arg-type]
    return found if isinstance(found, kind) else None


def read_result(folder: Path, key: m.RunKey) -> dict[str, np.ndarray] | None:
    """What write_result wrote, or None."""
    import numpy as np

    path = run_folder(folder, key) / RESULT
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {str(name): stored[f"array_{index}"] for index, name in enumerate(stored["names"])}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"is not what kgprof writes: {error}", path=path) from error


def load(path: Path) -> m.Recording:
    """Read a Recording back. Raises InputError naming the file that is missing, malformed or too new."""
    folder = resolve(path)
    header = _read_header(folder / HEADER)
    return m.Recording(
        folder=str(folder),
        header=header,
        runs=tuple(_load_run(folder, key, header) for key in header.plan.runs),
        agreement=_load_agreement(folder, header),
        gate=_read_if_there(folder / GATE, m.GateSettings),
        accepted=_read_if_there(folder / ACCEPTED, tuple[m.GateEntry, ...]) or (),
        ceilings=_read_if_there(folder / CEILINGS, m.Ceilings | m.Skipped)  # type: ignore[arg-type]
        or m.Skipped(reason="this Recording holds no ceilings"),
    )


def load_header(folder: Path) -> m.RecordingHeader:
    """What a Recording was made of, without what it measured. Raises InputError."""
    return _read_header(folder / HEADER)


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
    ended = _read_if_there(run / exit_name(False), m.Exit) or _never_ended(run.is_dir(), header)
    probe_exit = _read_if_there(run / exit_name(True), m.Exit)
    not_probed = m.Skipped(reason=_why_missing(probe_exit or ended))
    missing = m.Skipped(reason=_why_missing(ended))
    older = m.Skipped(reason="this Recording holds no STACK pass")
    evaluation, unit = _load_evaluation(run / f"{EVALUATION}.json", header)
    return m.RunRecord(
        key=key,
        exit=ended,
        probe_exit=probe_exit,
        compile=_read_if_there(run / "compile.json", m.CompilePass | m.Skipped) or missing,  # type: ignore[arg-type]
        timing=_read_if_there(run / "timing.json", m.TimingPass | m.Skipped) or missing,  # type: ignore[arg-type]
        trace=_read_if_there(run / "trace.json", m.TracePass | m.Skipped) or missing,  # type: ignore[arg-type]
        host=_read_if_there(run / "host.json", m.HostPass | m.Skipped) or missing,  # type: ignore[arg-type]
        stack=_read_if_there(run / "stack.json", m.TracePass | m.Skipped)  # type: ignore[arg-type]
        or (older if ended.outcome == "ok" else missing),
        kernels=_read_if_there(run / "kernels.json", m.TracePass | m.Skipped)  # type: ignore[arg-type]
        or not_probed,
        memory=_read_if_there(run / "memory.json", m.MemoryPass | m.Skipped) or not_probed,  # type: ignore[arg-type]
        kernel_origins=_read_if_there(run / KERNEL_ORIGINS, m.KernelOrigins | m.Skipped) or not_probed,  # type: ignore[arg-type]
        compiled_kernels=_read_if_there(run / COMPILED_KERNELS, m.CompiledKernels | m.Skipped)  # type: ignore[arg-type]
        or missing,
        unit=unit,
        evaluation=evaluation or missing,
        log=_read_log(run / LOG) + _read_log(run / PROBE_LOG),
        records=_read_records(run) or missing,
        script=_read_if_there(run / SCRIPT, m.ScriptRun),
        holistic=_read_if_there(run / HOLISTIC, m.Holistic | m.Skipped) or _no_holistic(),  # type: ignore[arg-type]
        rounds=tuple(_load_round(run, number, header) for number in range(2, header.options.rounds + 1)),
    )


def _load_evaluation(path: Path, header: m.RecordingHeader) -> tuple[m.Evaluation | m.Skipped | None, m.WorkUnit]:
    """None where there is no file; and what the workload counts its work in."""
    if header.schema_version > 1:
        return _read_if_there(path, m.Evaluation | m.Skipped), header.plan.unit  # type: ignore[arg-type]
    found = _read_if_there(path, CandidateResults | m.Skipped)  # type: ignore[arg-type]
    if isinstance(found, CandidateResults):
        return found.declared(), UNIT
    return found, header.plan.unit


def _load_round(run: Path, number: int, header: m.RecordingHeader) -> m.RoundRecord:
    name = round_name(number)
    began = (run / f"{name}_{LOG}").exists()
    ended = _read_if_there(run / f"{name}_exit.json", m.Exit) or _never_ended(began, header)
    measured = _read_if_there(run / f"{name}.json", m.TimedRound)
    return m.RoundRecord(number=number, exit=ended, measured=measured or m.Skipped(reason=_why_missing(ended, "round")))


def _read_records(run: Path) -> m.CompileRecords | m.Skipped | None:
    """What COMPILE's sources wrote; None where the pass did not come to its end. Damage costs no more than these."""
    path = run / TRACE_RECORDS
    if not path.exists():
        return None
    try:
        return _parse_records(path)
    except InputError as error:
        return m.Skipped(reason=error.message)


def _parse_records(path: Path) -> m.CompileRecords:
    try:
        return records_of(_lines(path), _read_if_there(path.with_name(SOURCES), m.Sources) or m.Sources())
    except msgspec.ValidationError as error:
        raise InputError(f"is not what kgprof writes: {error}", path=path) from error


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


def _no_holistic() -> m.Skipped:
    return m.Skipped(
        reason="HolisticTraceAnalysis was not asked (--no-hta, or it is not installed where this was read)"
    )


def _never_ended(began: bool, header: m.RecordingHeader) -> m.Exit:
    if began:
        return m.Exit(outcome="interrupted", message="kgprof itself ended before this run did")
    why = "kgprof was interrupted before it" if header.interrupted else "kgprof ended before it"
    return m.Exit(outcome="interrupted", message=f"never started: {why}")


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
        return m.decode_json(path.read_bytes(), kind)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=path) from error
    except msgspec.DecodeError as error:
        raise InputError(f"is not what kgprof writes: {error}", path=path) from error
