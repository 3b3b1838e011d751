"""A trace that something has gone wrong with costs what is wrong with it: no fault of kgprof's,
whatever it is.

Each case is a small trace of two GPU steps, with a mutation of its bytes or of its values, drawn
from a fixed seed.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kgprof import cli
from kgprof.errors import EXIT_NOTHING_MEASURED, EXIT_OK, EXIT_USAGE
from tests.analysis.events import event, step

SEED = 20261122
WRONG: tuple[Any, ...] = (
    *(
        None,
        True,
        "",
        "1",
        "\ud800",
        "a\udfffb",
        "\x00",
        [],
        {},
        [[[]]],
        {"a": {"b": []}},
        [1, "x", None],
    ),
    *(0, -1, 2**31, 2**63, 2**64, -(2**63), 10**30, 0.0, -0.5, 1e308, 5e-324),
    *(float("nan"), float("inf"), float("-inf")),
)


def a_trace() -> dict[str, Any]:
    events = []
    for number in range(2):
        at, linked = 1000.0 * number, 2 * number + 1
        launch = event("cuda_runtime", "cudaLaunchKernel", at + 20, 4.0)
        kernel = event("kernel", "triton_poi_fused_add_0", at + 100, 300.0, thread=7, stream=7)
        copy = event(
            "gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", at + 500, 9.0, thread=7, stream=7
        )
        waits = event("cuda_runtime", "cudaStreamSynchronize", at + 300, 250.0)
        launch["args"] = {"correlation": linked, "cbid": 211}
        shape = {
            "grid": [8, 1, 1],
            "block": [128, 1, 1],
            "registers per thread": 16,
            "shared memory": 0,
        }
        kernel["args"] |= {
            "correlation": linked,
            "blocks per SM": 0.5,
            "warps per SM": 2.0,
            **shape,
        }
        copy["args"] |= {"correlation": linked + 1, "bytes": 4}
        stacked = event("python_function", "model.py(7): forward", at + 5, 700.0)
        stacked["args"] = {"Python id": linked, "Python parent id": None}
        operator = event("cpu_op", "aten::add", at + 12, 30.0)
        operator["args"] = {"External id": linked, "Input Dims": [[8, 8], [8, 8], []]}
        named = event("user_annotation", "forward é \U0001f600", at + 4, 710.0)
        flow = {
            "ph": "s",
            "cat": "ac2g",
            "name": "ac2g",
            "pid": 1,
            "tid": 1,
            "ts": at + 20,
            "id": linked,
        }
        events += [
            step(number, at, 1000.0),
            named,
            stacked,
            operator,
            launch,
            waits,
            flow,
            kernel,
            copy,
        ]
    card = {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    ranks = {"backend": "nccl", "rank": 0, "world_size": 2}
    head = {
        "schemaVersion": 1,
        "deviceProperties": [card],
        "cuda_runtime_version": 13010,
        "with_stack": 1,
    }
    return {**head, "distributedInfo": ranks, "traceEvents": events}


def flipped(data: bytes, draw: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8, 40))):
        out[draw.randrange(len(out))] = draw.randrange(256)
    return bytes(out)


def inserted(data: bytes, draw: random.Random) -> bytes:
    pieces = (
        b"\xff",
        b"\\ud800",
        b"\xed\xa0\x80",
        b'"',
        b"}",
        b"]",
        b"{" * 5000,
        b"[" * 5000,
        b"9" * 400,
        b"\x00" * 9,
    )
    for _ in range(draw.choice((1, 2, 5))):
        at = draw.randrange(len(data))
        data = data[:at] + draw.choice(pieces) + data[at:]
    return data


def cut(data: bytes, draw: random.Random) -> bytes:
    first, last = sorted(draw.randrange(len(data)) for _ in range(2))
    return data[:first] if draw.random() < 0.5 else data[:first] + data[last:]


def surrogate_in_a_text(data: bytes, draw: random.Random) -> bytes:
    """In a key or a value, as an escape or as bytes."""
    at = draw.choice([index for index in range(1, len(data)) if data[index - 1 : index] == b'"'])
    return (
        data[:at]
        + draw.choice((b"\\ud800", b"\\udc00x", b"\xed\xa0\x80", b"\x80", b"\xf8\x88"))
        + data[at:]
    )


def other_values(data: bytes, draw: random.Random) -> bytes:
    """Somewhere in the document a value of a wrong type, a huge number or no number."""
    whole = json.loads(data)
    for _ in range(draw.choice((1, 2, 6))):
        place: Any = whole
        while True:
            inner = list(place) if isinstance(place, dict) else range(len(place))
            key = draw.choice(list(inner))
            if not isinstance(place[key], dict | list) or not place[key] or draw.random() < 0.05:
                place[key] = copy.deepcopy(draw.choice(WRONG))
                break
            place = place[key]
        if not isinstance(whole.get("traceEvents"), list):
            break
    return json.dumps(whole, ensure_ascii=draw.random() < 0.7).encode(
        "utf-8", errors="surrogatepass"
    )


def damaged_gzip(data: bytes, draw: random.Random) -> bytes:
    return flipped(gzip.compress(data, mtime=0), draw)


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(
        flipped,
        inserted,
        cut,
        surrogate_in_a_text,
        surrogate_in_a_text,
        other_values,
        other_values,
        other_values,
    ),
    damaged_gzip,
)


def ends_with_a_documented_code(
    numbers: range,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    whole = json.dumps(a_trace()).encode()
    for number in numbers:
        draw = random.Random(SEED + number)
        mutation = draw.choice(MUTATIONS)
        (folder / "t.json").write_bytes(mutation(whole, draw))
        code = cli.run(["trace", "--no-hta", "-q", "t.json", "-o", "out"])
        said = capsys.readouterr().err
        assert code in (EXIT_OK, EXIT_USAGE, EXIT_NOTHING_MEASURED), (
            SEED + number,
            mutation.__name__,
            said,
        )
        assert "Traceback" not in said
        assert code == EXIT_OK or said.count("error: ") == 1, said


def test_50_fuzzed_traces_are_no_fault_of_kgprofs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = range(50)
    kinds = {random.Random(SEED + number).choice(MUTATIONS) for number in numbers}

    assert kinds == set(MUTATIONS)
    ends_with_a_documented_code(numbers, tmp_path, capsys, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("first", range(50, 1550, 100))
def test_1500_fuzzed_traces_are_no_fault_of_kgprofs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    ends_with_a_documented_code(range(first, first + 100), tmp_path, capsys, monkeypatch)
