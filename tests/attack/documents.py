"""Documents of each format, good ones, with the command line that reads each; and where their
numbers stand."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kgprof import model as m
from tests import archives, scratch
from tests.attack.asked import Ended, ask
from tests.record import handmade
from tests.record.files.test_kineto_files import saved, work
from tests.render.everything import everything

ROOT = Path(__file__).resolve().parents[2]
SWEEPS = ROOT / "fixtures" / "sweeps"
Path_ = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    """``file`` of a folder, and what reads it there. A file that is taken away or changed is put
    back."""

    name: str
    folder: Path
    file: str
    reader: str

    @property
    def path(self) -> Path:
        return self.folder / self.file

    def asked(self) -> Ended:
        words = self.reader.replace("{p}", str(self.folder)).split()
        return ask(*words)

    def with_bytes(self, data: bytes) -> Ended:
        before = self.path.read_bytes()
        self.path.write_bytes(data)
        try:
            return self.asked()
        finally:
            self.path.write_bytes(before)

    def with_in_place(self, place: Callable[[Path], None]) -> Ended:
        """With what ``place`` makes at its path instead."""
        kept = self.folder.with_name("kept")
        self.path.rename(kept)
        try:
            place(self.path)
            return self.asked()
        finally:
            if self.path.is_dir() and not self.path.is_symlink():
                self.path.rmdir()
            self.path.unlink(missing_ok=True)
            kept.rename(self.path)


def missing(path: Path) -> None:
    """Nothing is there."""


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link_out(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


NO_FILES = (missing, a_folder, a_link_out, a_pipe)


def with_long_name(data: bytes) -> bytes:
    value = json.loads(data)
    value["cells"][0]["cell"]["mode"] = "m" * 7_000_000
    return json.dumps(value).encode()


REPORT = "report {p} --no-hta --no-ci -o {p}.out --format text"
COMPARE = "compare {p} {p} --no-ci --format text"
# a folder in an archive, and how it is read
RECORDINGS = {
    "break_even.tgz": "",
    "linkpred_h200.tgz": "",
    "first_answers_h200.tar.xz": "eager_resnet",
    "first_answers_h100.tar.xz": "busy_gpu",
    "gpu_time_h200.tgz": "graphs",
}


@cache
def recordings() -> dict[str, Path]:
    """Copies that may be written into: of five on GPUs and CPUs, and of one that hangs."""
    found = {}
    top = scratch.new_folder()
    kept = [*RECORDINGS.items(), ("first_answers_h200.tar.xz", "rank_skips_a_sum")]
    for archive, inside in kept:
        name = inside or archive.partition(".")[0]
        found[name] = shutil.copytree(archives.unpacked(archive) / inside, top / name)
    found["handmade"] = top / "handmade"
    handmade.write(found["handmade"])
    return found


@cache
def numbered() -> tuple[Document, ...]:
    """A document for each JSON format: of a Recording every file name once a Recording."""
    top = scratch.new_folder()
    found = []
    for name, folder in recordings().items():
        files = sorted(folder.rglob("*.json"))
        for file in {each.name: each for each in files}.values():
            inside = str(file.relative_to(folder))
            which = f"{name}/{file.name}"
            found.append(Document(name=which, folder=folder, file=inside, reader=REPORT))
    for sweep in (SWEEPS / "h200" / "small-ops.json",):
        folder = top / sweep.stem
        folder.mkdir()
        (folder / "sweep.json").write_text(json.dumps(with_trials(json.loads(sweep.read_text()))))
        reader = "advise {p} --executions 1000 --format text"
        found.append(
            Document(name=f"sweep/{sweep.stem}", folder=folder, file="sweep.json", reader=reader)
        )
    folder = top / "report"
    folder.mkdir()
    (folder / "report.json").write_bytes(m.encode_json(everything(["one", "two", "three"])))
    (folder / "base.json").write_bytes(m.encode_json(everything(["one", "two", "three"])))
    reader = "compare {p}/base.json {p}/report.json --no-ci --format text"
    found.append(Document(name="report.json", folder=folder, file="report.json", reader=reader))
    (folder / "trace").mkdir()
    saved(folder / "trace" / "t.json", work(compute_us=300.0, talk_us=100.0))
    reader = "trace {p}/trace/t.json --no-hta --no-ci -q -o {p}/out --format text"
    found.append(Document(name="trace", folder=folder, file="trace/t.json", reader=reader))
    return tuple(found)


@cache
def recorded() -> tuple[Document, ...]:
    """Every file name of each Recording once, for `report`, and for `compare` those of two."""
    found = []
    for name, folder in recordings().items():
        files = {each.name: each for each in sorted(folder.rglob("*")) if each.is_file()}
        for file in files.values():
            inside = str(file.relative_to(folder))
            which = f"{name}/{file.name}"
            found.append(Document(name=which, folder=folder, file=inside, reader=REPORT))
            if name in ("handmade", "break_even"):
                against = f"{which} compared"
                found.append(Document(name=against, folder=folder, file=inside, reader=COMPARE))
    return tuple(found)


def with_trials(sweep: dict[str, Any]) -> dict[str, Any]:
    """With a correctness ladder, policies for sizes and a start with shipped caches, which the kept
    ones lack."""
    return sweep | {"shapes": _shapes(), "ladder": _ladder()}


def _shapes() -> Any:
    time = m.Spread(2.0, 1.5, 3.0, 1.0, 4.0, 5, "ms", m.PassName.TIMING)
    costs = tuple(m.SizeCost(size, 3, 16, time) for size in (7, 16))
    found = m.PolicyResult(graphs=2, compile_s=3.5, sizes=costs)
    policies = tuple((each, found) for each in m.SizePolicy)
    shapes = m.Shapes(
        function="f", tensor="x", sizes=(7, 16, 7), collected=True, buckets=(8, 16),
        policies=policies, recommended=m.SizePolicy.BUCKETS, code="x = 1",
    )  # fmt: skip
    return json.loads(m.encode_json(shapes))


def _ladder() -> Any:
    worst = m.TensorDifference(
        name="out", dtype="float32", elements=12, differing=3, reference=m.Reference.FLOAT64,
        max_abs=0.5, max_rel=0.25, max_ulp=9, eager_max_abs=0.001, nans=1, infs=1,
        reference_nans=1, reference_infs=1, worst=(1, 2), worst_value="1", worst_reference="2",
    )  # fmt: skip
    rung = m.RungResult(differs=True, seconds=2.5, compared=3, tensors=(worst,), metrics=())
    minified = m.Minified("repro.py", ("add",), 5, 2, True)
    ladder = m.Ladder("step", "default", 3, ((m.Rung.EAGER, rung),), m.Rung.EAGER, minified)
    return json.loads(m.encode_json(ladder))


# ---------------------------------------------------------------- numbers


def number_fields(value: Any) -> dict[tuple[str, ...], Path_]:
    """Where a number stands, one place for each field: of the entries of a list, and of a dict
    whose keys are numbers, the last that has it."""
    return {shape: path for path, shape in _numbers(value, (), ())}


def _numbers(
    value: Any, path: Path_, shape: tuple[str, ...]
) -> Iterator[tuple[Path_, tuple[str, ...]]]:
    if isinstance(value, dict):
        keys = list(value)
        is_table = all(not key or key.lstrip("-").isdigit() for key in keys)
        for key, entry in value.items():
            yield from _numbers(entry, (*path, key), (*shape, "*" if is_table else key))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _numbers(entry, (*path, index), (*shape, "*"))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, shape


def with_literal(document: Any, path: Path_, literal: str) -> bytes:
    """Its JSON, with ``literal`` at ``path`` as it stands, whether that is JSON or not."""
    *above, last = path
    place = document
    for step in above:
        place = place[step]
    before, place[last] = place[last], "@LITERAL@"
    try:
        return json.dumps(document).replace('"@LITERAL@"', literal).encode()
    finally:
        place[last] = before


VALUES = (
    *("0", "-0.0", "-1", "0.5", "7", "1e-320", "1e-90", "1e90", "1e308", "-1e308", "1e400"),
    *(str(2**31), str(2**53 + 1), str(2**63 - 1), "1" + "0" * 30, "1" * 5000, "NaN", '"7"'),
)
assert len(VALUES) == 18


def environment() -> None:
    """What an own run by hand has in place of the tests' settings."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
