"""A Recording on disk: one folder, one file a pass, every file written beside its name and renamed into place.

    recording/
      recording.json                     RecordingHeader: schema number, command, options, plan, environment
      agreement.json agreement_log.txt   Agreement, or Skipped with its reason
      ceilings.json ceilings_log.txt     what the card does at most, or Skipped
      accepted.json gate.json            findings that the project accepts; what check-graphs held it to
      PRIVATE.txt                        that nothing in here is redacted
      runs/<strategy>.<mode>/
        compile.json timing.json trace.json host.json stack.json memory.json kernels.json    one pass each, or Skipped
        evaluation.json                  Evaluation, or Skipped
        kernel_origins.json              which lines each generated kernel computes, or Skipped
        compiled_kernels.json            registers, spills and stages of each Triton kernel, or Skipped
        exit.json probe_exit.json        how child A and child B ended
        round_2.json round_2_exit.json round_2_log.txt    TIMING once more, one set a round from the second on
        trace.json.gz stack_trace.json.gz kernels.json.gz    what torch.profiler exported
        holistic.json                    what HolisticTraceAnalysis says of trace.json.gz, once it has been asked
        trace_records.jsonl.gz           what the sources of COMPILE wrote, one JSON object a line
        script.json                      of a whole program: what a step was taken to be, and how many there were
        sources.json                     source text and break registry for reading it elsewhere
        result.npz                       the result vector
        log.txt probe_log.txt            what torch and the workload wrote in child A and B, head and tail

A SIGKILL therefore costs the pass that was running and nothing else. The schema number is
model.RECORDING_SCHEMA_VERSION; its history stands beside it.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from kgprof.ceiling_records import Ceilings
from kgprof.compile_records import (
    CompiledKernels,
    CompileRecords,
    GraphRuns,
    KernelOrigins,
    LogLine,
    OfferedFrame,
    Sources,
    TraceRecord,
)
from kgprof.errors import InputError, KgprofError, UsageError
from kgprof.model import (
    RECORDING_SCHEMA_VERSION,
    Agreement,
    CompilePass,
    Evaluation,
    Exit,
    GateEntry,
    GateSettings,
    Holistic,
    HostPass,
    MemoryPass,
    Model,
    PassName,
    Recording,
    RecordingHeader,
    RoundRecord,
    RunKey,
    RunRecord,
    ScriptRun,
    Skipped,
    TimedRound,
    TimingPass,
    TracePass,
    decode_json,
    encode_json,
)

if TYPE_CHECKING:  # the parent and the reader need no arrays
    import numpy as np

T = TypeVar("T")

HEADER = "recording.json"
FOLDER = "recording"  # inside the output folder
REPORTS = ("report.html", "report.json")  # beside it
TRACE_FILES = {
    PassName.TRACE: "trace.json.gz",
    PassName.STACK: "stack_trace.json.gz",
    PassName.KERNELS: "kernels.json.gz",
}
TRACE_RECORDS = "trace_records.jsonl.gz"
SOURCES = "sources.json"  # beside it
RESULT = "result.npz"
SCRIPT = "script.json"
GATE = "gate.json"
ACCEPTED = "accepted.json"
LOG = "log.txt"
PROBE_LOG = "probe_log.txt"  # child B's
KERNEL_ORIGINS = "kernel_origins.json"
HOLISTIC = "holistic.json"
COMPILED_KERNELS = "compiled_kernels.json"
PRIVATE = "PRIVATE.txt"
_PRIVATE_TEXT = """\
This folder is a kgprof Recording, and nothing in it is redacted: source files, logs, command lines, traces, names of
this machine and its user. Show others the report.html or report.json that `kgprof report` makes from it.
"""
AGREEMENT_LOG = "agreement_log.txt"
CEILINGS = "ceilings.json"
CEILINGS_LOG = "ceilings_log.txt"
EVALUATION = "evaluation"
# Which key a line of TRACE_RECORDS has, and what it holds.
_LINES: dict[str, type[Any]] = {"metadata": TraceRecord, "frame": OfferedFrame, "graph": GraphRuns, "log": LogLine}
_NAME_LIMIT = 120  # characters of a folder name; file systems stop at 255 bytes


# ---------------------------------------------------------------- writing


def claim(output: Path) -> bool:
    """Make sure that ``output`` can be written and holds nothing but what kgprof wrote; whether it was made just now.

    Raises UsageError. An older Recording there is left alone until ``clear``.
    """
    if not (output / FOLDER / HEADER).is_file():
        for name in (FOLDER, *REPORTS):
            if (output / name).exists():
                raise UsageError(
                    f"{output / name} is in the way, and it is not a Recording's", hint="name another folder with -o"
                )
    made = not output.exists()
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write to {output}: {error.strerror or error}", hint="name a folder that can be written with -o"
        ) from error
    return made


def clear(output: Path) -> None:
    """Remove the older Recording and its reports from a claimed folder. Raises KgprofError."""
    try:
        if (output / FOLDER).exists():
            shutil.rmtree(output / FOLDER)
        for name in REPORTS:
            (output / name).unlink(missing_ok=True)
    except OSError as error:
        raise KgprofError(f"cannot replace the Recording in {output}: {error.strerror or error}") from error


def create(folder: Path, header: RecordingHeader) -> None:
    """Start a Recording in ``folder``. Raises UsageError when it cannot be written or already holds one."""
    if (folder / HEADER).exists():
        raise UsageError(f"{folder} already holds a Recording", hint="name another folder with -o, or remove this one")
    try:
        write_header(folder, header)
        _write(folder / PRIVATE, _PRIVATE_TEXT.encode())
    except KgprofError as error:
        raise UsageError(error.message, hint="name a folder that can be written with -o") from error


def write_header(folder: Path, header: RecordingHeader) -> None:
    """Replace ``recording.json`` (once more at the end, when the run was interrupted)."""
    _write(folder / HEADER, encode_json(header))


def write_pass(folder: Path, key: RunKey, name: PassName, value: Model) -> None:
    """One pass of one run: its own Struct, or Skipped with the reason."""
    _write(run_folder(folder, key) / f"{name}.json", encode_json(value))


def write_evaluation(folder: Path, key: RunKey, value: Evaluation | Skipped) -> None:
    _write(run_folder(folder, key) / f"{EVALUATION}.json", encode_json(value))


def write_script(folder: Path, key: RunKey, value: ScriptRun) -> None:
    """What was counted as a step in the run of a script."""
    _write(run_folder(folder, key) / SCRIPT, encode_json(value))


def write_exit(folder: Path, key: RunKey, value: Exit, *, probe: bool = False) -> None:
    """How child A (or child B, with ``probe``) of a run ended."""
    _write(run_folder(folder, key) / _exit_name(probe), encode_json(value))


def write_round(folder: Path, key: RunKey, number: int, value: TimedRound) -> None:
    _write(run_folder(folder, key) / f"{round_name(number)}.json", encode_json(value))


def write_round_exit(folder: Path, key: RunKey, number: int, value: Exit) -> None:
    """How the process of one round ended, or why there was none."""
    _write(run_folder(folder, key) / f"{round_name(number)}_exit.json", encode_json(value))


def write_kernel_origins(folder: Path, key: RunKey, value: KernelOrigins | Skipped) -> None:
    _write(run_folder(folder, key) / KERNEL_ORIGINS, encode_json(value))


def write_compiled_kernels(folder: Path, key: RunKey, value: CompiledKernels | Skipped) -> None:
    _write(run_folder(folder, key) / COMPILED_KERNELS, encode_json(value))


def write_gate(folder: Path, value: GateSettings) -> None:
    """What check-graphs holds this Recording to."""
    _write(folder / GATE, encode_json(value))


def write_accepted(folder: Path, value: Sequence[GateEntry]) -> None:
    """What the project accepts at the time of this Recording, so that it can be read again without that file."""
    _write(folder / ACCEPTED, encode_json(tuple(value)))


def write_agreement(folder: Path, value: Agreement | Skipped) -> None:
    _write(folder / "agreement.json", encode_json(value))


def write_ceilings(folder: Path, value: Ceilings | Skipped) -> None:
    _write(folder / CEILINGS, encode_json(value))


def write_holistic(folder: Path, key: RunKey, value: Holistic | Skipped) -> None:
    """``holistic.json``. Raises KgprofError where the Recording cannot be written to."""
    _write(run_folder(folder, key) / HOLISTIC, encode_json(value))


def write_report(folder: Path, name: str, text: str) -> None:
    """A rendered report, in place at once. Raises UsageError when it cannot be written."""
    try:
        _write(folder / name, text.encode("utf-8", errors="replace"))
    except KgprofError as error:
        raise UsageError(error.message, hint="name a folder that can be written") from error


def write_export(path: Path, data: bytes) -> None:
    """A file for another program, in place at once. Raises UsageError when it cannot be written."""
    try:
        _write(path, data)
    except KgprofError as error:
        raise UsageError(error.message, hint="name a file that can be written") from error


def copy_trace(source: Path, path: Path) -> None:
    """Byte for byte. Raises UsageError when it cannot be written, InputError when it cannot be read."""
    try:
        file = source.open("rb")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=source) from error
    try:
        with file, replacing(path) as partial, partial.open("wb") as copy:
            shutil.copyfileobj(file, copy)
    except KgprofError as error:
        raise UsageError(error.message, hint="name a place that can be written") from error


def write_sources(records: Path, value: Sources) -> None:
    """``sources.json`` beside the file of records."""
    _write(records.with_name(SOURCES), encode_json(value))


def write_result(folder: Path, key: RunKey, arrays: Mapping[str, np.ndarray]) -> None:
    """``result.npz``: the names as one array, because any text is a name, and then the arrays in that order."""
    import numpy as np

    stored = {f"array_{index}": array for index, array in enumerate(arrays.values())}
    with replacing(run_folder(folder, key) / RESULT) as partial:
        np.savez_compressed(partial, names=np.asarray(list(arrays), dtype=np.str_), **stored)  # type: ignore[arg-type]


def has_result(folder: Path, key: RunKey) -> bool:
    return (run_folder(folder, key) / RESULT).exists()


def read_pass(folder: Path, key: RunKey, name: PassName, kind: type[T]) -> T | None:
    """One pass while the Recording is still being made; None where it is missing or was skipped."""
    found = _read_if_there(run_folder(folder, key) / f"{name}.json", kind | Skipped)  # type: ignore[arg-type]
    return found if isinstance(found, kind) else None


def read_result(folder: Path, key: RunKey) -> dict[str, np.ndarray] | None:
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


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to that becomes ``path`` when the block ends well, and vanishes when it does not.

    What is no file (/dev/null, a named pipe) is written to as it is: to replace it would take it from everybody.
    Raises KgprofError, in the system's words, when the place cannot be written or the disk is full.
    """
    # The suffix is kept: numpy and torch.profiler choose the format by it.
    stream = is_stream(path)
    partial = path if stream else path.with_name(f".partial-{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        if not stream:
            partial.replace(path)
    except OSError as error:
        raise KgprofError(
            f"cannot write {path}: {error.strerror or error}",
            hint="what was written before stands in the Recording; make room and run again",
        ) from error
    finally:
        if not stream:
            with contextlib.suppress(OSError):  # the error above says it
                partial.unlink(missing_ok=True)


_OPEN = ("/dev/fd/", "/proc/")


def is_stream(path: Path) -> bool:
    """A device, a pipe, or the name of something that is open: /dev/fd/63 may be a file, and keeps its name."""
    opened = str(path.absolute()).startswith(_OPEN)
    return opened or (path.exists() and not (path.is_file() or path.is_dir()))


def _write(path: Path, data: bytes) -> None:
    with replacing(path) as partial:
        partial.write_bytes(data)


def round_name(number: int) -> str:
    """What the files of one further round begin with."""
    return f"round_{number}"


def _exit_name(probe: bool) -> str:
    return "probe_exit.json" if probe else "exit.json"


# ---------------------------------------------------------------- where things lie


def run_folder(folder: Path, key: RunKey) -> Path:
    """``runs/<strategy>.<mode>``; what a folder name cannot hold is percent-encoded, a long name ends in its hash."""
    name = quote(key.slug, safe=" +,=@()[]")
    if len(name) > _NAME_LIMIT:
        name = f"{name[: _NAME_LIMIT - 9]}-{hashlib.sha256(key.slug.encode()).hexdigest()[:8]}"
    return folder / "runs" / name


def trace_path(recording: Recording, key: RunKey, name: PassName) -> Path:
    """The gzipped Kineto trace of TRACE or KERNELS."""
    return run_folder(Path(recording.folder), key) / TRACE_FILES[name]


def resolve(path: Path) -> Path:
    """The Recording's folder, from itself, the output folder that holds it, or a report beside it.

    Raises InputError when there is none.
    """
    for folder in _candidates(path):
        if (folder / HEADER).is_file():
            return folder
    if not path.exists():
        raise InputError("no such file or folder", path=path, hint="give the folder that `kgprof profile` wrote")
    raise InputError(
        f"no Recording here ({FOLDER}/{HEADER} is missing)",
        path=path,
        hint="give the folder that `kgprof profile` wrote, or a report.html that still stands in it",
    )


def output_folder(folder: Path) -> Path:
    """Where the reports of a Recording stand: beside ``recording/``, or in a Recording that was moved out of it."""
    return folder.parent if folder.name == FOLDER else folder


def _candidates(path: Path) -> tuple[Path, ...]:
    if path.name in (*REPORTS, HEADER) and not path.is_dir():
        return (path.parent, path.parent / FOLDER)
    return (path, path / FOLDER)


# ---------------------------------------------------------------- reading


def load(path: Path) -> Recording:
    """Read a Recording back. Raises InputError naming the file that is missing, malformed or too new."""
    folder = resolve(path)
    header = _read_header(folder / HEADER)
    return Recording(
        folder=str(folder),
        header=header,
        runs=tuple(_load_run(folder, key, header) for key in header.plan.runs),
        agreement=_load_agreement(folder, header),
        gate=_read_if_there(folder / GATE, GateSettings),
        accepted=_read_if_there(folder / ACCEPTED, tuple[GateEntry, ...]) or (),
        ceilings=_read_if_there(folder / CEILINGS, Ceilings | Skipped)  # type: ignore[arg-type]
        or Skipped(reason="this Recording holds no ceilings"),
    )


def load_header(folder: Path) -> RecordingHeader:
    """What a Recording was made of, without what it measured. Raises InputError."""
    return _read_header(folder / HEADER)


def _read_header(path: Path) -> RecordingHeader:
    version = _read(path, dict[str, Any]).get("schema_version")
    if not isinstance(version, int):
        raise InputError("it has no schema_version, so this is no Recording", path=path)
    if version > RECORDING_SCHEMA_VERSION:
        raise InputError(
            f"Recording schema {version} is newer than this kgprof reads ({RECORDING_SCHEMA_VERSION})",
            path=path,
            hint="update kgprof",
        )
    return _read(path, RecordingHeader)


def _load_run(folder: Path, key: RunKey, header: RecordingHeader) -> RunRecord:
    run = run_folder(folder, key)
    ended = _read_if_there(run / _exit_name(False), Exit) or _never_ended(run.is_dir(), header)
    probe_exit = _read_if_there(run / _exit_name(True), Exit)
    not_probed = Skipped(reason=_why_missing(probe_exit or ended))
    missing = Skipped(reason=_why_missing(ended))
    older = Skipped(reason="this Recording holds no STACK pass")
    return RunRecord(
        key=key,
        exit=ended,
        probe_exit=probe_exit,
        compile=_read_if_there(run / "compile.json", CompilePass | Skipped) or missing,  # type: ignore[arg-type]
        timing=_read_if_there(run / "timing.json", TimingPass | Skipped) or missing,  # type: ignore[arg-type]
        trace=_read_if_there(run / "trace.json", TracePass | Skipped) or missing,  # type: ignore[arg-type]
        host=_read_if_there(run / "host.json", HostPass | Skipped) or missing,  # type: ignore[arg-type]
        stack=_read_if_there(run / "stack.json", TracePass | Skipped) or (older if ended.outcome == "ok" else missing),  # type: ignore[arg-type]
        kernels=_read_if_there(run / "kernels.json", TracePass | Skipped)  # type: ignore[arg-type]
        or not_probed,
        memory=_read_if_there(run / "memory.json", MemoryPass | Skipped) or not_probed,  # type: ignore[arg-type]
        kernel_origins=_read_if_there(run / KERNEL_ORIGINS, KernelOrigins | Skipped) or not_probed,  # type: ignore[arg-type]
        compiled_kernels=_read_if_there(run / COMPILED_KERNELS, CompiledKernels | Skipped)  # type: ignore[arg-type]
        or missing,
        evaluation=_read_if_there(run / f"{EVALUATION}.json", Evaluation | Skipped) or missing,  # type: ignore[arg-type]
        log=_read_log(run / LOG) + _read_log(run / PROBE_LOG),
        records=_read_records(run) or missing,
        script=_read_if_there(run / SCRIPT, ScriptRun),
        holistic=_read_if_there(run / HOLISTIC, Holistic | Skipped) or _no_holistic(),  # type: ignore[arg-type]
        rounds=tuple(_load_round(run, number, header) for number in range(2, header.options.rounds + 1)),
    )


def _load_round(run: Path, number: int, header: RecordingHeader) -> RoundRecord:
    name = round_name(number)
    began = (run / f"{name}_{LOG}").exists()
    ended = _read_if_there(run / f"{name}_exit.json", Exit) or _never_ended(began, header)
    measured = _read_if_there(run / f"{name}.json", TimedRound)
    return RoundRecord(number=number, exit=ended, measured=measured or Skipped(reason=_why_missing(ended, "round")))


def _read_records(run: Path) -> CompileRecords | Skipped | None:
    """What COMPILE's sources wrote; None where the pass did not come to its end. Damage costs no more than these."""
    path = run / TRACE_RECORDS
    if not path.exists():
        return None
    try:
        return _parse_records(path)
    except InputError as error:
        return Skipped(reason=error.message)


def _parse_records(path: Path) -> CompileRecords:
    try:
        return records_of(_lines(path), _read_if_there(path.with_name(SOURCES), Sources) or Sources())
    except msgspec.ValidationError as error:
        raise InputError(f"is not what kgprof writes: {error}", path=path) from error


def records_of(lines: Iterable[Mapping[str, Any]], sources: Sources) -> CompileRecords:
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
    return CompileRecords(
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
                yield decode_json(line, dict[str, Any])
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read: {error}", path=path) from error
    except msgspec.DecodeError as error:
        raise InputError(f"is not what kgprof writes: {error}", path=path) from error


def _no_holistic() -> Skipped:
    return Skipped(reason="HolisticTraceAnalysis was not asked (--no-hta, or it is not installed where this was read)")


def _never_ended(began: bool, header: RecordingHeader) -> Exit:
    if began:
        return Exit(outcome="interrupted", message="kgprof itself ended before this run did")
    why = "kgprof was interrupted before it" if header.interrupted else "kgprof ended before it"
    return Exit(outcome="interrupted", message=f"never started: {why}")


def _why_missing(ended: Exit, what: str = "run") -> str:
    """Why a pass left no file, from how its child ended."""
    return f"the {what} {'ended without writing this pass' if ended.outcome == 'ok' else ended.words}"


def _load_agreement(folder: Path, header: RecordingHeader) -> Agreement | Skipped:
    if not header.plan.agreement:
        return Skipped(reason="there is nothing that the results could be compared with")
    found = _read_if_there(folder / "agreement.json", Agreement | Skipped)  # type: ignore[arg-type]
    return found or Skipped(reason="kgprof ended before the results were compared")


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
        return decode_json(path.read_bytes(), kind)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=path) from error
    except msgspec.DecodeError as error:
        raise InputError(f"is not what kgprof writes: {error}", path=path) from error
