"""Every file that kgprof reads, in every form that no honest one has: kgprof ends soon, in bounded
memory, with one sentence and its documented exit code, and nothing of another file of the machine
is in what it writes."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kgprof import cli
from kgprof.errors import EXIT_NOTHING_MEASURED, EXIT_OK, EXIT_USAGE
from tests.reading.in_a_child import ROOT, Runner
from tests.record.files.test_kineto_files import saved, work

TWO_RANKS = ROOT / "fixtures" / "torch_trace" / "two_ranks"
CANARY = "canary-of-a-private-key-5f1c"
SECRET = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{CANARY}\n-----END OPENSSH PRIVATE KEY-----\n"
MOST_SECONDS = 10.0
MOST_BYTES = 1100 * 2**20  # of which the imports take 100

TRACED_RUN = "recording/runs/t.as-is"
RANK = "recording/runs/rank0.as-is"
DEEP = "[" * 200_000
NAMED = "dedicated_log_torch_trace_abc.log"
PREFIX = "V1121 06:10:20.163000 10595 torch/_dynamo/utils.py:2009] "


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A file in ``base``, and the command line that reads it. ``begins`` makes a text one of this
    reader's."""

    file: str
    base: str
    arguments: tuple[str, ...]
    begins: str = '{"schema_version": 1, "x": '
    many: str = "[" + "0," * 20_000_000
    packed: bool = False
    codes: tuple[int, ...] = (EXIT_USAGE,)
    own: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of one hostile form


REPORT = ("report", "in", "--no-hta", "-o", "out")
PART_LOST = (EXIT_OK, EXIT_USAGE, EXIT_NOTHING_MEASURED)
RECORD = PREFIX + '{"str": ["/src/model.py", 1], "x": '
READERS = {
    "header": Reader(file="recording/recording.json", base="ranks", arguments=REPORT),
    "pass": Reader(file=f"{RANK}/compile.json", base="ranks", arguments=REPORT),
    "exit": Reader(file=f"{RANK}/exit.json", base="ranks", arguments=REPORT),
    "log": Reader(file=f"{RANK}/log.txt", base="ranks", arguments=REPORT, own={"deep": PART_LOST, "bomb": PART_LOST}),  # noqa: E501
    "records": Reader(
        file=(f"{RANK}/" "trace_records.jsonl.gz"), base="ranks", arguments=REPORT, packed=True, codes=PART_LOST,  # noqa: E501
        begins='{"metadata": {"x": ', many="{}\n" * 10_000_000,
    ),
    "sources": Reader(file=f"{RANK}/sources.json", base="ranks", arguments=REPORT, codes=PART_LOST),
    "script": Reader(file=f"{RANK}/script.json", base="ranks", arguments=REPORT),
    "kept trace": Reader(
        file=f"{TRACED_RUN}/trace.json.gz", base="traced", arguments=REPORT, packed=True, codes=PART_LOST,  # noqa: E501
        begins=('{"traceEvents": [{"ph": ' '"X", ' '"args": '), many='{"traceEvents": [' + '{"ph": "M"},' * 3_000_000,  # noqa: E501
    ),
    "kept trace, exported": Reader(
        file=f"{TRACED_RUN}/trace.json.gz", base="traced", packed=True,
        arguments=("export", "in", "--to", "speedscope", "-o", "out.json"),
        begins=('{"traceEvents": [{"ph": ' '"X", ' '"args": '), many='{"traceEvents": [' + '{"ph": "M"},' * 3_000_000,  # noqa: E501
    ),
    "trace": Reader(
        file="t.json", base="empty", arguments=("trace", "in/t.json", "--no-hta", "-o", "out"),
        begins=('{"traceEvents": [{"ph": ' '"X", ' '"args": '), many='{"traceEvents": [' + '{"ph": "M"},' * 3_000_000,  # noqa: E501
    ),
    "trace in a folder": Reader(
        file="t.json.gz", base="empty", arguments=("trace", "in", "--no-hta", "-o", "out"), packed=True,  # noqa: E501
        begins=('{"traceEvents": [{"ph": ' '"X", ' '"args": '), many='{"traceEvents": [' + '{"ph": "M"},' * 3_000_000,  # noqa: E501
    ),
    "TORCH_TRACE file": Reader(
        file=NAMED, base="empty", arguments=("report", "--torch-trace", f"in/{NAMED}", "-o", "out"),
        begins=RECORD, many="\n" * 30_000_000,
    ),
    "TORCH_TRACE folder": Reader(
        file=f"{NAMED}.gz", base="empty", arguments=("report", "--torch-trace", "in", "-o", "out"), packed=True,  # noqa: E501
        begins=RECORD, many=PREFIX + '{"str": ["/a.py", 1]}\n' + "\t\n" * 30_000_000, codes=PART_LOST,  # noqa: E501
    ),
    "file that a record names": Reader(
        file="model.py", base="naming", arguments=("report", "--torch-trace", "in", "-o", "out"), codes=(EXIT_OK,),  # noqa: E501
        begins="def f(x):\n    x = ", many="x = 1\n" * 1_000_000,
    ),
    "kgprof.toml": Reader(
        file="kgprof.toml", base="ranks", arguments=("report", ".", "--no-hta"), begins="x = ",
        many="".join(f"k{number} = 1\n" for number in range(80_000)),
    ),
    "kgprof-accepted.toml": Reader(
        file="kgprof-accepted.toml", base="ranks", arguments=("compare", ".", "."), begins="accepted = ",  # noqa: E501
        many="[[accepted]]\n" * 70_000,
    ),
    "report.json": Reader(file="report.json", base="ranks", arguments=("compare", "in/report.json", "in")),  # noqa: E501
    "report.json of a folder": Reader(
        file="report.json", base="report", arguments=("compare", "in", "in"),
    ),
    "report.html": Reader(file="report.html", base="ranks", arguments=("extract", "in/report.html", "-o", "out.json")),  # noqa: E501
}  # fmt: skip


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What stands beside a hostile file: a Recording of two ranks, one of a trace, a report alone,
    a TORCH_TRACE."""
    top = tmp_path_factory.mktemp("bases")
    for name in ("empty", "naming", "report"):
        (top / name).mkdir()
    assert cli.run(["report", "--torch-trace", str(TWO_RANKS), "-o", str(top / "ranks")]) == EXIT_OK
    trace = saved(top / "t.json", work(compute_us=300.0, talk_us=100.0))
    assert cli.run(["trace", "--no-hta", str(trace), "-o", str(top / "traced"), "-q"]) == EXIT_OK
    place = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    start = {"dynamo_start": {"stack": [{"line": 2, "name": "f", "filename": 1}]}, **place}
    named = {"str": ["@HERE@/model.py", 1]}
    lines = (
        named,
        {"str": ["/etc/shadow", 2]},
        start,
        {"compilation_metrics": {"compile_id": "0/0"}, **place},
    )
    (top / "naming" / NAMED).write_text("".join(f"{PREFIX}{json.dumps(line)}\n" for line in lines))
    return {each.name: each for each in top.iterdir() if each.is_dir()}


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    started = Runner()
    yield started
    started.close()


def link_to_a_secret(path: Path, reader: Reader) -> None:
    here = path.parents[len(Path(reader.file).parts)]  # where kgprof is started
    secret = here.with_name(f"{here.name}-secret.py")
    secret.write_text(SECRET)
    path.symlink_to(secret)


def link_to_a_device(path: Path, reader: Reader) -> None:
    path.symlink_to("/dev/zero")


def pipe(path: Path, reader: Reader) -> None:
    os.mkfifo(path)


def folder(path: Path, reader: Reader) -> None:
    path.mkdir()


def bomb(path: Path, reader: Reader) -> None:
    """4 MB of gzip that unpack to one line of 4 GiB; in a page, of which the Profile is packed, 64
    MiB of JSON."""
    member = gzip.compress(b"x" * 2**24, mtime=0)
    start = gzip.compress(reader.begins.encode() + b'"', mtime=0)
    data = start + member * 256
    if path.suffix == ".html":
        data = page(gzip.compress(b'{"schema_version": 1, "x": "' + b"x" * (65 * 2**20), mtime=0))
    path.write_bytes(data)


def deep(path: Path, reader: Reader) -> None:
    write(path, reader, reader.begins + DEEP)


def long_line(path: Path, reader: Reader) -> None:
    write(path, reader, reader.begins + '"' + "x" * (80 * 2**20))


def many(path: Path, reader: Reader) -> None:
    text = reader.many if reader.many != Reader.many else reader.begins + reader.many
    if path.name == "recording.json":
        text = path.with_name("was.json").read_text().replace('"rounds": 1', '"rounds": 10000000')
        assert "10000000" in text
    write(path, reader, text)


def page(packed: bytes) -> bytes:
    text = base64.b64encode(packed).decode()
    meta = '<meta name="generator" content="kgprof 1">'
    script = f'<script type="application/vnd.kgprof.profile+json" id="profile">{text}</script>'
    return f"<html>{meta}{script}</html>".encode()


def write(path: Path, reader: Reader, text: str) -> None:
    data = text.encode()
    if path.suffix == ".html":
        data = page(gzip.compress(data[: 40 * 2**20], compresslevel=1, mtime=0))
    elif reader.packed:
        data = gzip.compress(data, compresslevel=1, mtime=0)
    path.write_bytes(data)


HOSTILE: tuple[Callable[[Path, Reader], None], ...] = (
    *(link_to_a_secret, link_to_a_device, pipe, folder, bomb, deep, long_line, many),
)


SLOW = (bomb, long_line, many, folder, link_to_a_device)
IN_EVERY_RUN = {
    *(
        "header-many",
        "header-folder",
        "records-bomb",
        "log-link_to_a_device",
        "TORCH_TRACE folder-bomb",
    ),
    *("trace-link_to_a_device", "report.html-bomb", "report.html-link_to_a_device"),
}


@pytest.mark.parametrize(
    ("name", "make"),
    [
        pytest.param(
            *(name, make),
            id=f"{name}-{make.__name__}",
            marks=[pytest.mark.long]
            if make in SLOW and f"{name}-{make.__name__}" not in IN_EVERY_RUN
            else [],
        )
        for name in READERS
        for make in HOSTILE
    ],
)
def test_a_hostile_file_costs_itself(
    name: str,
    make: Callable[[Path, Reader], None],
    bases: dict[str, Path],
    runner: Runner,
    tmp_path: Path,
) -> None:
    reader = READERS[name]
    shutil.copytree(bases[reader.base], tmp_path / "in")
    path = tmp_path / "in" / reader.file
    if path.exists():
        path.rename(path.with_name("was.json"))
    make(path, reader)
    (tmp_path / "in" / "was.json").unlink(missing_ok=True)
    for traced in (tmp_path / "in").glob(NAMED):
        if traced.is_file() and reader.base == "naming":
            traced.write_text(traced.read_text().replace("@HERE@", str(tmp_path / "in")))
    inside = any(each == "in" or each.startswith("in/") for each in reader.arguments)
    # when
    ended = runner.run(tmp_path if inside else tmp_path / "in", reader.arguments)
    # then
    form = make.__name__
    assert ended.code in reader.own.get(form, reader.codes), ended
    assert "Traceback" not in ended.said
    assert ended.said.count("error: ") == int(ended.code == EXIT_USAGE)
    assert ended.seconds < MOST_SECONDS
    assert ended.peak_bytes < MOST_BYTES
    written = [
        each for each in tmp_path.rglob("*") if each.suffix in (".html", ".json") and each.is_file()
    ]
    assert CANARY not in ended.said
    assert not [
        each
        for each in written
        if not each.is_symlink() and CANARY in each.read_text(errors="replace")
    ]
