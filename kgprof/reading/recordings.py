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
from kgprof.reading.layout import (
    ACCEPTED,
    AGREEMENT,
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

# The passes of the first kgprof: where a run ended well, the absence of any other is the Recording's age.
_IN_EVERY_RECORDING = frozenset(m.PassName) & {"compile", "timing", "trace", "host", "kernels", "memory"}

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
    found = _read_if_there(run_folder(folder, key) / f"{name}.json", kind | m.Skipped)
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
    header = load_header(folder)
    runs = tuple(_load_run(folder, key, header) for key in header.plan.runs)
    agreement: m.Agreement | m.Skipped
    if header.plan.agreement:
        without = m.Skipped(reason="kgprof ended before the results were compared")
        agreement = _read_if_there(folder / AGREEMENT, m.Agreement | m.Skipped) or without
    else:
        agreement = m.Skipped(reason="there is nothing that the results could be compared with")
    return m.Recording(
        folder=str(folder),
        header=header,
        runs=runs,
        agreement=agreement,
        gate=_read_if_there(folder / GATE, m.GateSettings),
        accepted=_read_if_there(folder / ACCEPTED, tuple[m.AcceptedEntry, ...]) or (),
        ceilings=_read_if_there(folder / CEILINGS, m.Ceilings | m.Skipped)
        or m.Skipped(reason="this Recording holds no ceilings"),
    )


def load_header(folder: Path) -> m.RecordingHeader:
    """What a Recording was made of, without what it measured. Raises InputError."""
    path = folder / HEADER
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
    """Every pass of the list, and what stands beside the passes."""
    run = run_folder(folder, key)
    ended = _read_if_there(run / exit_name(False), m.Exit) or _never_ended(run.is_dir(), header)
    probe_exit = _read_if_there(run / exit_name(True), m.Exit)
    not_probed = m.Skipped(reason=_why_missing(probe_exit or ended))
    missing = m.Skipped(reason=_why_missing(ended))
    no_hta = "HolisticTraceAnalysis was not asked (--no-hta, or it is not installed where this was read)"
    no_holistic = m.Skipped(reason=no_hta)
    left: dict[str, Any] = {}
    for name, declared in m.PASSES.items():
        absent, child = (not_probed, probe_exit or ended) if declared.in_probe else (missing, ended)
        if name not in _IN_EVERY_RECORDING and child.outcome == "ok":
            absent = m.Skipped(reason=f"this Recording holds no {name.upper()} pass")
        left[name] = _read_if_there(run / f"{name}.json", declared.kind | m.Skipped) or absent
    left[m.PassName.TIMING] = _with_slow_first(left[m.PassName.TIMING])
    evaluation, unit = _load_evaluation(run / EVALUATION, header)
    beside = ((KERNEL_ORIGINS, m.KernelOrigins, not_probed), (COMPILED_KERNELS, m.CompiledKernels, missing))
    for file, kind, absent in beside:
        left[file.removesuffix(".json")] = _read_if_there(run / file, kind | m.Skipped) or absent
    return m.RunRecord(
        key=key,
        exit=ended,
        probe_exit=probe_exit,
        **{name: value for name, value in left.items() if name in m.RunRecord.__struct_fields__},
        evaluation=evaluation or missing,
        unit=unit,
        further={name: left[name] for name in m.PASSES if name not in m.RunRecord.__struct_fields__},
        log=_read_log(run / LOG) + _read_log(run / PROBE_LOG),
        records=_read_records(run) or missing,
        script=_read_if_there(run / SCRIPT, m.ScriptRun),
        holistic=_read_if_there(run / HOLISTIC, m.Holistic | m.Skipped) or no_holistic,
        rounds=tuple(_load_round(run, number, header) for number in range(2, header.options.rounds + 1)),
    )


def _load_evaluation(path: Path, header: m.RecordingHeader) -> tuple[m.Evaluation | m.Skipped | None, m.WorkUnit]:
    """None where there is no file; and what the workload counts its work in."""
    if header.schema_version > 1:
        return _read_if_there(path, m.Evaluation | m.Skipped), header.plan.unit
    found = _read_if_there(path, CandidateResults | m.Skipped)
    if isinstance(found, CandidateResults):
        return found.declared(), UNIT
    return found, header.plan.unit


# Recordings and Profiles that an older kgprof wrote, which put into sentences what are fields now.
_SLOW_FIRST = re.compile(r"the first evaluation took (?P<ratio>[\d.]+) times the median of the others")
_CAPTURE = re.compile(r"capture (?P<capture>.+?) (?P<how>unavailable|incomplete): (?P<why>.*)", re.DOTALL)
_CAPTURES_AS_SENTENCES = re.compile(rb'"capture_unavailable":\s*\[\s*"')


def with_captures_as_fields(data: bytes) -> bytes:
    """JSON of a pass or a Profile, in which every capture that was unavailable is an object. Raises DecodeError."""
    if not _CAPTURES_AS_SENTENCES.search(data):
        return data

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {key: lost(each) if key == "capture_unavailable" else walk(each) for key, each in value.items()}

    def lost(sentences: Any) -> Any:
        return [
            {"capture": match["capture"], "why": match["why"], "incomplete": match["how"] == "incomplete"}
            if isinstance(sentence, str) and (match := _CAPTURE.fullmatch(sentence))
            else sentence
            for sentence in sentences
        ]

    return msgspec.json.encode(walk(msgspec.json.decode(data)))


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
        return records_of(_lines(path), _read_if_there(run / SOURCES, m.Sources) or m.Sources())
    except msgspec.ValidationError as error:
        return m.Skipped(reason=InputError(f"is not what kgprof writes: {error}", path=path).message)
    except InputError as error:
        return m.Skipped(reason=error.message)


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


def _read_log(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=path) from error


def _read_if_there(path: Path, kind: Any) -> Any:
    """A Struct, or Skipped, of ``kind``, which may be a union; None where there is no such file."""
    return _read(path, kind) if path.exists() else None


def _read(path: Path, kind: type[T]) -> T:
    try:
        return m.decode_json(with_captures_as_fields(path.read_bytes()), kind)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=path) from error
    except msgspec.DecodeError as error:
        raise InputError(f"is not what kgprof writes: {error}", path=path) from error
