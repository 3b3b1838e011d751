"""Checkpoints of `kgprof evaluate` that no kgprof wrote: chunks and manifests, read in this
process; some of them in an evaluation that goes on with them."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from functools import cache, partial
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from kgprof.errors import UsageError
from kgprof.workloads.linkpred import chunks as read
from tests import scratch
from tests.attack import damage
from tests.workloads.linkpred.test_evaluation import evaluated, result

QUERIES, CANDIDATES = 20, 160
ODD_BOUNDS: tuple[list[Any], ...] = (
    *([0, 10**30], [0.5, 40], [0, 20, 40, 10**9], [-1, 40], ["0", 40], [0] * 10_000),
)


@cache
def kept() -> Path:
    """A checkpoint of two chunks, finished."""
    folder = scratch.new_folder()
    evaluated("--checkpoint", folder, "--chunk", "160", "--check", "closure")
    return folder


def good() -> dict[str, bytes]:
    data = (kept() / "chunk-000000.bin").read_bytes()
    return msgspec.msgpack.decode(data[32:], type=dict[str, bytes])


def signed(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest() + payload


def chunks_of(held: dict[str, Any]) -> bytes:
    return signed(msgspec.msgpack.encode(held))


def chunks_as_numpy(held: dict[str, bytes]) -> bytes:
    buffer = BytesIO()
    np.savez(buffer, **{name: np.frombuffer(data, "<i1") for name, data in held.items()})
    return signed(buffer.getvalue())


def chunks(rng: random.Random) -> Iterator[tuple[str, bytes]]:
    held = good()
    yield "in numpy's own format", chunks_as_numpy(held)
    yield "of pickle", signed(b"\x80\x04cposix\nsystem\n(S'true'\ntR.")
    for name, make in damage.of_bytes(rng):
        yield name, make(chunks_of(held))
        yield f"signed, {name}", signed(make(msgspec.msgpack.encode(held)))
    for field, data in held.items():
        yield f"{field} missing", chunks_of({key: held[key] for key in held if key != field})
        for name, other in _others(data, rng):
            yield f"{field} {name}", chunks_of({**held, field: other})


def _others(data: bytes, rng: random.Random) -> Iterator[tuple[str, Any]]:
    yield "empty", b""
    yield "longer", data + data[:8]
    yield "twice", data * 2
    yield "a row less", data[:-32]
    yield "a byte less", data[:-1]
    yield "text", "x"
    yield "null", None
    yield "ones", b"\xff" * len(data)
    yield "largest", b"\x7f" * len(data)
    yield "NaN", b"\x00\x00\x00\x00\x00\x00\xf8\x7f" * (len(data) // 8)
    yield "zeros", bytes(len(data))
    for number in range(4):
        yield f"of chance {number}", rng.randbytes(len(data))


def chunk_fault(data: bytes) -> str:
    """What it leads to besides an answer: a chunk that is taken has sums and ranks."""
    try:
        found = read.ChunkResult.unpacked(data, CANDIDATES, (QUERIES, QUERIES))
        if found is not None:
            total = read.Total()
            total.add(found)
            read.ranked(total.places)
            read.ranked(total.upper_places)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return ""


def manifests(rng: random.Random) -> Iterator[tuple[str, bytes]]:
    data = (kept() / "evaluation.json").read_bytes()
    for name, make in (*damage.of_bytes(rng), *damage.of_json(rng, 60)):
        yield name, make(data)
    known = json.loads(data)
    for bounds in ODD_BOUNDS:
        yield f"bounds {str(bounds)[:20]}", json.dumps({**known, "bounds": bounds}).encode()


def manifest_fault(data: bytes) -> str:
    folder = scratch.new_folder()
    known = json.loads((kept() / "evaluation.json").read_bytes())
    (folder / "evaluation.json").write_bytes(data)
    sizes = np.full(2 * QUERIES, CANDIDATES // QUERIES)
    try:
        store = read.Checkpoint(folder, known["settings"], known["bounds"], sizes, resume=True)
        for chunk in range(store.chunks):
            store.load(chunk)
    except UsageError:
        return ""
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(folder)
    return ""


def live(rng: random.Random) -> Iterator[tuple[str, Callable[[], str]]]:
    """One chunk of each kind, in an evaluation that goes on with it: it is computed again, and the
    result is that of a whole one."""
    held = good()
    steps = np.frombuffer(held["steps"], "<i4").copy()
    steps[:] = 2**31 - 1
    places = np.frombuffer(held["places"], "<i8").reshape(-1, 4).copy()
    places[:, 0] = 0
    cases = {
        "steps of 2,147,483,647": {**held, "steps": steps.tobytes()},
        "one side": {**held, "places": places.tobytes()},
        "no places": {**held, "places": b""},
        "outcomes of 7": {**held, "outcome": b"\x07" * CANDIDATES},
        "no time": {**held, "seconds": np.array(np.nan).tobytes()},
        "counts of chance": {**held, "counts": rng.randbytes(32)},
    }
    for name, other in cases.items():
        yield name, partial(_goes_on, chunks_of(other))
    yield "in numpy's own format", partial(_goes_on, chunks_as_numpy(held))


def _goes_on(data: bytes) -> str:
    folder = scratch.new_folder() / "copy"
    shutil.copytree(kept(), folder)
    expected = evaluated("--resume", folder, "--check", "closure")
    (folder / "chunk-000000.bin").write_bytes(data)
    said = StringIO()
    try:
        with redirect_stderr(said):
            found = evaluated("--resume", folder, "--check", "closure")
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    if result(found) != result(expected):
        return "another result"
    if said.getvalue().count("is damaged; this chunk is computed again") != 1:
        return f"it says {said.getvalue()!r}"
    return ""
