"""Reads a Recording back from its folder."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kgprof import model as m
from kgprof.errors import InputError
from kgprof.judge import COLD_ROUNDS
from kgprof.reading import dynamo_settings, files, layout
from kgprof.reading.link_prediction import UNIT, CandidateResults
from kgprof.reading.structured_trace import is_whole

if TYPE_CHECKING:  # the parent and the reader need no arrays
    import numpy as np

T = TypeVar("T")

# The passes of the first kgprof: where a run ended well, the absence of any other is the
# Recording's age.
_IN_EVERY_RECORDING = frozenset(m.PassName) & {
    "compile",
    "timing",
    "trace",
    "host",
    "kernels",
    "memory",
}

# Which key a line of TRACE_RECORDS has, and what it holds.
_LINES: dict[str, type[Any]] = {
    "metadata": m.TraceRecord,
    "frame": m.OfferedFrame,
    "graph": m.GraphRuns,
    "log": m.LogLine,
    "text": m.CompiledText,
    "guards": m.CompiledGuards,
    "backend": m.BackendFailure,
    "compiled_calls": m.CompiledCalls,
    "callable": m.CompiledCallable,
    "plain": m.CompiledCallable,
}


_TRIALS = tuple[m.Control, ...] | m.Skipped

# What is read of TRACE_RECORDS: four times what kgprof writes at most.
_RECORDS_BYTES, _RECORDS, _LONGEST_RECORD = 2**27, 400_000, 2**23
_LOG_BYTES = 2**22  # kgprof keeps half a MiB
_MOST_RUNS = 2000


def read_pass(folder: Path, key: m.RunKey, name: m.PassName, kind: type[T]) -> T | None:
    """One pass while the Recording is still being made; None where it is missing or was skipped."""
    found = _read_if_there(
        layout.run_folder(folder, key) / f"{name}.json", kind | m.Skipped, folder
    )
    return found if isinstance(found, kind) else None


def read_result(folder: Path, key: m.RunKey) -> dict[str, np.ndarray] | None:
    """What write_result wrote, or None."""
    import numpy as np

    path = layout.run_folder(folder, key) / layout.RESULT
    if not path.exists():
        return None
    try:
        with files.opened(path, folder) as file, np.load(file, allow_pickle=False) as stored:
            return {
                str(name): stored[f"array_{index}"] for index, name in enumerate(stored["names"])
            }
    except Exception as error:  # np.load raises whatever the bytes provoke
        raise InputError(f"was not written by kgprof: {error}", path=path) from error


def load(path: Path) -> m.Recording:
    """Read a Recording back. Raises InputError naming the file that is missing, malformed or too
    new."""
    folder = layout.resolve(path)
    header = load_header(folder)
    alone = m.Skipped("there is nothing to compare the results with")
    without = (
        m.Skipped("kgprof ended before the results were compared")
        if header.plan.agreement
        else alone
    )
    agreement = folder / layout.AGREEMENT
    compared = (
        _read_if_there(agreement, m.Agreement | m.Skipped, folder)
        if header.plan.agreement
        else None
    )
    return m.Recording(
        folder=str(folder),
        header=header,
        runs=tuple(_load_run(folder, key, header) for key in header.plan.runs),
        agreement=compared or without,
        gate=_read_if_there(folder / layout.GATE, m.GateSettings, folder),
        accepted=_read_if_there(folder / layout.ACCEPTED, tuple[m.AcceptedEntry, ...], folder)
        or (),
        ceilings=_read_if_there(folder / layout.CEILINGS, m.Ceilings | m.Skipped, folder)
        or m.Skipped("this Recording has no ceilings"),
    )


def load_header(folder: Path) -> m.RecordingHeader:
    """What a Recording was made of, without what it measured. Raises InputError."""
    path = folder / layout.HEADER
    version = _read(path, dict[str, Any], folder).get("schema_version")
    if not isinstance(version, int):
        raise InputError("not a kgprof Recording: schema_version is missing", path=path)
    if version > m.RECORDING_SCHEMA_VERSION:
        raise InputError(
            f"Recording schema {version} is newer than this kgprof reads "
            f"({m.RECORDING_SCHEMA_VERSION})",
            path=path,
            hint="update kgprof",
        )
    header = _read(path, m.RecordingHeader, folder)
    rounds = header.options.rounds
    runs = len(header.plan.runs)
    if rounds > m.MOST_ROUNDS or runs > _MOST_RUNS:
        limits = f"{m.MOST_ROUNDS:,} rounds or {_MOST_RUNS:,} runs"
        raise InputError(
            f"{rounds:,} rounds of {runs:,} runs, but kgprof reads at most {limits}", path=path
        )
    return header


def _load_run(folder: Path, key: m.RunKey, header: m.RecordingHeader) -> m.RunRecord:
    """Every pass of the list, and what stands beside the passes."""
    run = layout.run_folder(folder, key)
    ended = _read_if_there(run / layout.exit_name(False), m.Exit, folder) or _never_ended(
        run.is_dir(), header
    )
    probe_exit = _read_if_there(run / layout.exit_name(True), m.Exit, folder)
    not_probed = m.Skipped(_why_missing(probe_exit or ended))
    missing = m.Skipped(_why_missing(ended))
    no_hta = "HolisticTraceAnalysis was not run (--no-hta, or it is not installed here)"
    left: dict[str, Any] = {}
    for name, declared in m.PASSES.items():
        absent, child = (not_probed, probe_exit or ended) if declared.in_probe else (missing, ended)
        if name not in _IN_EVERY_RECORDING and child.outcome == "ok":
            absent = m.Skipped(f"this Recording has no {name.upper()} pass")
        left[name] = (
            _read_if_there(run / f"{name}.json", declared.kind | m.Skipped, folder) or absent
        )
    if isinstance(timing := left[m.PassName.TIMING], m.TimingPass):
        matches = {note: _SLOW_FIRST.fullmatch(note) for note in timing.notes}
        if ratios := [float(match["ratio"]) for match in matches.values() if match]:
            kept = tuple(note for note in timing.notes if not matches[note])
            left[m.PassName.TIMING] = msgspec.structs.replace(
                timing, notes=kept, slow_first=ratios[0]
            )
    of_its_age = m.Evaluation if header.schema_version > 1 else CandidateResults
    evaluation = _read_if_there(run / layout.EVALUATION, of_its_age | m.Skipped, folder)
    unit = header.plan.unit
    if isinstance(evaluation, CandidateResults):
        evaluation = evaluation.declared()
        unit = UNIT
    traced = left[m.PassName.TRACE]
    if isinstance(traced, m.Skipped):
        not_probed = traced  # the kernels' lines come from TRACE
    for file, kind, absent in (
        (layout.KERNEL_ORIGINS, m.KernelOrigins, not_probed),
        (layout.COMPILED_KERNELS, m.CompiledKernels, missing),
    ):
        left[file.removesuffix(".json")] = (
            _read_if_there(run / file, kind | m.Skipped, folder) or absent
        )
    fields = m.RunRecord.__struct_fields__
    return m.RunRecord(
        key=key,
        exit=ended,
        probe_exit=probe_exit,
        **{name: value for name, value in left.items() if name in fields},
        evaluation=evaluation or missing,
        unit=unit,
        further={name: left[name] for name in m.PASSES if name not in fields},
        log=_read_log(run / layout.LOG, folder) + _read_log(run / layout.PROBE_LOG, folder),
        records=_read_records(run, folder) or missing,
        control=_read_if_there(run / layout.CONTROL, m.Control | m.Skipped, folder),
        setting_trials=_read_if_there(run / layout.SETTING_TRIALS, _TRIALS, folder) or (),
        script=_read_if_there(run / layout.SCRIPT, m.ScriptRun, folder),
        collectives=_read_if_there(run / layout.COLLECTIVES, m.CollectiveOrder, folder),
        eager_timing=_read_if_there(run / layout.EAGER_TIMES, m.TimingPass | m.Skipped, folder)
        or m.NOT_RUN_EAGERLY,
        holistic=_read_if_there(run / layout.HOLISTIC, m.Holistic | m.Skipped, folder)
        or m.Skipped(no_hta),
        rounds=tuple(
            _load_round(run, number, header, folder)
            for number in range(2, header.options.rounds + 1)
        ),
        cold_calls_s=_cold_first_calls(run, folder),
    )


# Recordings and Profiles that an older kgprof wrote, which put into sentences what are fields now.
_SLOW_FIRST = re.compile(
    r"the first evaluation took (?P<ratio>[\d.]+) times the median of the others"
)
_CAPTURE = re.compile(
    r"capture (?P<capture>.+?) (?P<how>unavailable|incomplete): (?P<why>.*)", re.DOTALL
)
_CAPTURES_AS_SENTENCES = re.compile(rb'"capture_unavailable":\s*\[\s*"')


def with_captures_as_fields(data: bytes) -> bytes:
    """JSON of a pass or a Profile, in which every capture that was unavailable is an object. Raises
    DecodeError."""
    if not _CAPTURES_AS_SENTENCES.search(data):
        return data

    def converted(value: dict[str, Any]) -> dict[str, Any]:
        given = value.get("capture_unavailable")
        if not isinstance(given, list):
            return value
        for at, sentence in enumerate(given):
            if isinstance(sentence, str) and (match := _CAPTURE.fullmatch(sentence)):
                lost = {
                    "capture": match["capture"],
                    "why": match["why"],
                    "incomplete": match["how"] == "incomplete",
                }
                given[at] = lost
        return value

    if files.nests_deeper(data, files.DEEPEST):
        raise msgspec.DecodeError("it nests too deeply")
    m.decode_json(data, dict[str, Any])  # raises where it is no JSON object
    return msgspec.json.encode(json.loads(data, object_hook=converted))


def _load_round(run: Path, number: int, header: m.RecordingHeader, within: Path) -> m.RoundRecord:
    name = layout.round_name(number)
    began = (run / f"{name}_{layout.LOG}").exists()
    ended = _read_if_there(run / f"{name}_exit.json", m.Exit, within) or _never_ended(began, header)
    measured = _read_if_there(run / f"{name}.json", m.TimedRound, within)
    return m.RoundRecord(
        number=number,
        exit=ended,
        measured=measured or m.Skipped(_why_missing(ended, "round")),
    )


def _cold_first_calls(run: Path, within: Path) -> tuple[float | m.Skipped, ...]:
    """Empty for a Recording that has none."""
    paths = [run / layout.cold_name(number) for number in COLD_ROUNDS]
    if not any(path.exists() for path in paths):
        return ()
    calls = (_read_if_there(path, m.Bounded, within) for path in paths)
    return tuple(m.Skipped("it did not end well") if call is None else call for call in calls)


def _read_records(run: Path, within: Path) -> m.CompileRecords | m.Skipped | None:
    """What COMPILE's sources wrote; None where the pass did not come to its end. Damage costs no
    more than these."""
    path = run / layout.TRACE_RECORDS
    if not path.exists():
        return None
    try:
        sources = _read_if_there(run / layout.SOURCES, m.Sources, within) or m.Sources()
        lines = files.lines(
            path, within, longest=_LONGEST_RECORD, most_bytes=_RECORDS_BYTES, most=_RECORDS
        )
        return records_of(map(_record, lines), sources)
    except InputError as error:
        return m.Skipped(error.message)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        return m.Skipped(InputError(f"cannot be read: {why}", path=path).message)
    except msgspec.DecodeError as error:  # also where a line is of another shape
        return m.Skipped(InputError(f"was not written by kgprof: {error}", path=path).message)


def _record(line: bytes) -> dict[str, Any]:
    """Raises DecodeError."""
    if files.nests_deeper(line, files.DEEPEST):
        raise msgspec.DecodeError("a record nests too deeply")
    return m.decode_json(line, dict[str, Any])


def records_of(lines: Iterable[Mapping[str, Any]], sources: m.Sources) -> m.CompileRecords:
    """Raises msgspec.ValidationError where a line is of another shape."""
    read: dict[str, list[Any]] = {key: [] for key in _LINES}
    left_out = 0
    for line in lines:
        left_out += count if isinstance(count := line.get("left_out"), int) else 0
        key = next((key for key in _LINES if key in line), None)
        if key == "metadata" and not is_whole(line[key]):
            left_out += 1
        elif key is not None:
            # The keys of a JSON object are text, calls are numbers.
            read[key].append(
                msgspec.convert(line if key == "metadata" else line[key], _LINES[key], strict=False)
            )
    records, frames, graphs, logs, texts, guards, backends, calls, callables, methods = (
        tuple(read[key]) for key in _LINES
    )
    counted: m.CompiledCalls | m.Skipped = m.Skipped(m.CALLS_NOT_COUNTED)
    if calls:
        counted = msgspec.structs.replace(calls[0], callables=callables, plain=methods)
    return m.CompileRecords(
        records=records,
        frames=frames,
        graphs=graphs,
        logs=logs,
        texts=texts,
        guards=guards,
        backends=backends,
        compiled_calls=counted,
        left_out=left_out,
        sources=sources,
    )


def backend_failures(folder: Path, key: m.RunKey) -> tuple[m.BackendFailure, ...]:
    """While the Recording is still being made, from the records of that kind alone: most runs have
    none."""
    told = [
        _record(line)["backend"]
        for line in _record_lines(folder, key)
        if line.startswith(b'{"backend"')
    ]
    return tuple(msgspec.convert(each, m.BackendFailure) for each in told)


def named_settings(folder: Path, key: m.RunKey) -> tuple[tuple[m.Setting, ...], bool]:
    """While the Recording is still being made: see ``dynamo_settings.named_in``."""
    return dynamo_settings.named_in(_record_lines(folder, key))


def _record_lines(folder: Path, key: m.RunKey) -> Iterable[bytes]:
    path = layout.run_folder(folder, key) / layout.TRACE_RECORDS
    if not path.exists():
        return ()
    return files.lines(
        path, folder, longest=_LONGEST_RECORD, most_bytes=_RECORDS_BYTES, most=_RECORDS
    )


def _never_ended(began: bool, header: m.RecordingHeader) -> m.Exit:
    if began:
        return m.Exit(m.Outcome.INTERRUPTED, "kgprof itself ended before this run did")
    why = "kgprof was interrupted before it" if header.interrupted else "kgprof ended before it"
    return m.Exit(m.Outcome.INTERRUPTED, f"never started: {why}")


def _why_missing(ended: m.Exit, what: str = "run") -> str:
    """Why a pass left no file, from how its child ended."""
    return (
        f"the {what} {'ended without writing this pass' if ended.outcome == 'ok' else ended.words}"
    )


def _read_log(path: Path, within: Path) -> str:
    try:
        return files.content(path, _LOG_BYTES, within).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=path) from error


def _read_if_there(path: Path, kind: Any, within: Path) -> Any:
    """A Struct, or Skipped, of ``kind``, which may be a union; None if there is no such file."""
    return _read(path, kind, within) if path.exists() else None


def _read(path: Path, kind: type[T], within: Path) -> T:
    """Raises InputError for a file that is missing, cannot be read or holds something else."""
    try:
        return m.decode_json(with_captures_as_fields(files.content(path, within=within)), kind)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=path) from error
    except msgspec.DecodeError as error:
        raise InputError(f"was not written by kgprof: {error}", path=path) from error
