"""Every reader of files that others may have made, as one function of the file's bytes.

Not here is what a run itself wrote a moment before, with the rights of the program: the answers of
child processes, and torch's pickle of collectives (numbers and texts only, but a place in it can
ask for gigabytes).

A reader ends, or raises a ``KgprofError`` whose exit code is documented for bad input. Whatever
else it raises is a fault, whatever the bytes are.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import io
import json
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path, PurePosixPath

import numpy as np

from kgprof import model as m
from kgprof.analysis.redaction import redacted, redacted_trace
from kgprof.cli.options import Sharing
from kgprof.cli.reading import judged_profile, side
from kgprof.cli.sweeping import read_sweep
from kgprof.collectors.trust import accepted
from kgprof.compare import CompareSettings, compare
from kgprof.document import sweep as sweep_document
from kgprof.errors import EXIT_NOTHING_MEASURED, EXIT_USAGE, KgprofError
from kgprof.gate import metrics
from kgprof.gate.settings import parse_file
from kgprof.measures.sweep import weighed
from kgprof.progress import Progress
from kgprof.reading import files, recordings
from kgprof.record.files import kineto_files, torch_trace_files
from kgprof.render import RENDERERS, embedded_profile
from kgprof.workloads.linkpred.chunks import Checkpoint
from tests import archives, scratch

DOCUMENTED = (EXIT_USAGE, EXIT_NOTHING_MEASURED)
BASE = "break_even.tgz"
RUN = "runs/one_small_operator.default"
LOG = "dedicated_log_torch_trace_abc.log"
NPZ_MAGIC = b"PK\x03\x04"
SETTINGS = {"data": "umls", "closure": "none"}  # of an evaluation
_whole = True
SHARING = Sharing(redact=False, source="all")


def ends_well(name: str, data: bytes, *, rarely: bool = False) -> None:
    """Read the bytes as a file of this kind. Raises whatever is a fault.

    ``rarely``: what takes longest, the redaction and the page, is made of one in sixteen.
    """
    global _whole
    _whole = not rarely or not zlib.crc32(data) % 16
    try:
        READERS[name](data)
    except KgprofError as error:
        if error.exit_code not in DOCUMENTED or not error.message:
            raise


# ---------------------------------------------------------------- where the bytes lie


@cache
def base() -> Path:
    """A Recording of one run, whose Profile takes milliseconds to make."""
    folder = scratch.new_folder() / "base"
    shutil.copytree(archives.unpacked(BASE), folder)
    path = folder / "recording.json"
    header = json.loads(path.read_bytes())
    (header["plan"]["runs"],) = (
        [key] for key in header["plan"]["runs"] if RUN.endswith(".".join(key.values()))
    )
    header["options"]["rounds"] = 2
    path.write_text(json.dumps(header), "utf-8")
    return folder


@cache
def work() -> Path:
    return scratch.new_folder()


def written(name: str, data: bytes) -> Path:
    path = work() / name
    path.write_bytes(data)
    return path


def fresh(name: str) -> Path:
    """A new folder of this name, without what the last bytes left in it."""
    folder = work() / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


# ---------------------------------------------------------------- the readers


def shown(folder: Path) -> None:
    """From a Recording to what every format says of it."""
    loaded = recordings.load(folder)
    profile = judged_profile(loaded, ())
    if _whole:
        profile = redacted(profile, loaded.header.private)
    in_all_formats(profile)


def in_all_formats(profile: m.Profile) -> None:
    for renderer in RENDERERS:
        if _whole or renderer.name not in ("html", "text"):
            renderer.render(profile)


def recording(data: bytes) -> None:
    """The first line names a file of the Recording, the others are what stands in it."""
    named, _, content = data.partition(b"\n")
    name = PurePosixPath(named.decode("utf-8", errors="replace")).name
    top = name in ("recording.json", "agreement.json", "gate.json", "accepted.json", "ceilings.json")  # fmt: skip # noqa: E501
    path = base() / (name if top else f"{RUN}/{name}")
    if name not in names_of_files():
        return
    before = path.read_bytes() if path.exists() else None
    try:
        path.write_bytes(content)
        shown(base())
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)


@cache
def names_of_files() -> frozenset[str]:
    """Of every file that a Recording may have."""
    passes = {f"{name}.json" for name in m.PASSES}
    ends = {"exit.json", "probe_exit.json", "round_2.json", "round_2_exit.json", "log.txt"}
    beside = {"evaluation.json", "kernel_origins.json", "compiled_kernels.json", "sources.json"}
    more = {"script.json", "control.json", "setting_trials.json", "collectives.json"}
    last = {"eager_timing.json", "holistic.json", "trace_records.jsonl.gz", "result.npz"}
    top = {"recording.json", "agreement.json", "gate.json", "accepted.json", "ceilings.json"}
    return frozenset(passes | ends | beside | more | last | top)


def records(data: bytes) -> None:
    recording(b"trace_records.jsonl.gz\n" + data)


def result(data: bytes) -> None:
    """The archive itself, or else what stands in one of its arrays."""
    if not data.startswith(NPZ_MAGIC):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            names = io.BytesIO()
            np.save(names, np.array(["outcome"]))
            archive.writestr("names.npy", names.getvalue())
            archive.writestr("array_0.npy", data)
        data = buffer.getvalue()
    loaded = recordings.load(base())
    path = base() / RUN / "result.npz"
    path.write_bytes(data)
    recordings.read_result(base(), next(r.key for r in loaded.runs if r.key.slug in RUN))


def kineto(data: bytes) -> None:
    folder = fresh("kineto")
    trace = written("t.json", data)
    options = m.Options("t", passes=(m.PassName.TRACE,))
    made, _ = kineto_files.record_files([trace], folder, options, Progress())
    shown(made)
    if _whole:
        redacted_trace(data.decode("utf-8", errors="replace"), m.PrivateNames())


def torch_trace(data: bytes) -> None:
    folder = fresh("torch_trace")
    log = written(LOG, data)
    shown(torch_trace_files.record_directory(log, folder, m.Options("t")))


def report_json(data: bytes) -> None:
    """Read as BASE and as HEAD."""
    profile = side(written("report.json", data), SHARING)
    in_all_formats(profile)
    compare(profile, profile, CompareSettings())


def report_html(data: bytes) -> None:
    """A page. What follows ``\\0`` is JSON that is packed as a page's data are."""
    page, mark, inner = data.partition(b"\0")
    if mark:
        page = page.replace(b"PACKED", base64.b64encode(gzip.compress(inner, mtime=0)))
    embedded_profile.read(written("report.html", page))


def configuration(data: bytes) -> None:
    for name in ("kgprof.toml", "pyproject.toml"):
        faults: list[str] = []
        with contextlib.suppress(UnicodeDecodeError):  # text_of says it
            read = parse_file(name, data.decode(), faults)
            if read is not None:
                list(metrics.of_table(read.max_regression, ".", faults))
        assert all(faults)


def accepted_findings(data: bytes) -> None:
    faults: list[str] = []
    with contextlib.suppress(UnicodeDecodeError):
        entries = accepted.parse(data.decode(), accepted.FILE, faults)
        accepted.parse(accepted.write(entries), accepted.FILE, again := [])
        assert not again


def sweep(data: bytes) -> None:
    found = weighed(read_sweep(written("sweep.json", data)), 1000, 2**30)
    sweep_document.sheet(found)


def checkpoint(data: bytes) -> None:
    folder = fresh("checkpoint")
    (folder / "evaluation.json").write_bytes(data)
    kept = Checkpoint(folder, SETTINGS, [0, 1, 2], np.array([1, 1]), resume=True)
    for number in range(kept.chunks):
        kept.load(number)


def chunk(data: bytes) -> None:
    """With its right hash in front: only what a person made on purpose gets that far."""
    folder = fresh("chunk")
    kept = Checkpoint(folder, SETTINGS, [0, 1], np.array([2]), resume=False)
    (folder / "chunk-000000.bin").write_bytes(hashlib.sha256(data).digest() + data)
    kept.load(0)


def record(data: bytes) -> None:
    """A payload of torch's."""
    assert isinstance(files.json_object(data), dict)


READERS: Mapping[str, Callable[[bytes], None]] = {
    "recording": recording,
    "records": records,
    "result": result,
    "kineto": kineto,
    "torch_trace": torch_trace,
    "report_json": report_json,
    "report_html": report_html,
    "configuration": configuration,
    "accepted": accepted_findings,
    "sweep": sweep,
    "checkpoint": checkpoint,
    "chunk": chunk,
    "record": record,
}
