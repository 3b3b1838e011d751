"""Traces as they are found: gzipped or not, damaged, of odd shapes. What can be read is, what cannot is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kgprof.analysis import kineto
from kgprof.analysis.kineto import TraceEvent
from kgprof.errors import InputError
from tests.analysis.events import event, step, write

ADD = TraceEvent(
    category="cpu_op", name="aten::add", process=1, thread=1, start_ns=4_362_513_010_190_748, duration_ns=1_573
)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_nanoseconds_survive(tmp_path: Path, packed: bool) -> None:
    # given: a timestamp as large as real ones, whose three decimals HTA rounds away
    path = write(tmp_path / "trace", [event("cpu_op", "aten::add", 4362513010190.748, 1.573)], packed=packed)

    trace = kineto.read(path)

    assert trace == kineto.Trace(events=(ADD,))


def test_stream_and_correlation_are_kept_and_other_phases_are_not(tmp_path: Path) -> None:
    flow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 5.0, "id": 1}
    path = write(tmp_path / "t.json", [flow, event("kernel", "k", 1.0, 2.0, thread=7, stream=7)])

    (found,) = kineto.read(path).events

    assert (found.stream, found.correlation, found.end_ns) == (7, 7, 3000)


def test_names_that_are_no_utf8_do_not_lose_the_rest(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [event("cpu_op", "BROKEN", 1, 1), event("cpu_op", "aten::add", 2, 1)]})
    path = tmp_path / "t.json"
    path.write_bytes(text.encode().replace(b"BROKEN", b"\xff\xfe\x80x"))

    trace = kineto.read(path)

    assert [e.name for e in trace.events] == ["\ufffd\ufffd\ufffdx", "aten::add"]
    assert trace.warnings == ()


def test_raw_control_characters_in_a_name_do_not_lose_the_rest(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [event("cpu_op", "BROKEN", 1, 1), event("cpu_op", "aten::add", 2, 1)]})
    path = tmp_path / "t.json"
    path.write_bytes(text.encode().replace(b"BROKEN", b"a\x01\nb\\ud800"))

    trace = kineto.read(path)

    assert [e.name for e in trace.events] == ["a\x01\nb?", "aten::add"]


def test_a_truncated_tail_is_said_with_what_was_read(tmp_path: Path) -> None:
    whole = json.dumps({"traceEvents": [event("cpu_op", f"op{i}", i, 1) for i in range(10)]})
    path = tmp_path / "t.json"
    path.write_text(whole[: whole.index("op7") + 3], encoding="utf-8")

    trace = kineto.read(path)

    assert [e.name for e in trace.events] == [f"op{i}" for i in range(7)]
    (warning,) = trace.warnings
    assert warning.startswith("the trace breaks off: 7 events were read from its first ")


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_gzip_is_read_as_far_as_it_goes(tmp_path: Path, damage: str) -> None:
    events = [event("cpu_op", f"op{i * 2654435761 % 2**32:08x}", i, 1) for i in range(5000)]
    data = bytearray(gzip.compress(json.dumps({"traceEvents": events}).encode(), mtime=0))
    if damage == "flipped":
        data[len(data) // 2] ^= 0xFF
    path = tmp_path / "t.json.gz"
    path.write_bytes(data if damage == "flipped" else data[: len(data) // 2])

    trace = kineto.read(path)

    assert 500 < len(trace.events) < 5000
    assert [e.name for e in trace.events[:400]] == [e["name"] for e in events[:400]]
    assert trace.warnings[0].startswith("the gzip data ")
    assert trace.warnings[1].startswith("the trace breaks off")


def test_events_of_another_shape_are_counted(tmp_path: Path) -> None:
    odd = [{"ph": "X", "ts": "soon"}, 17, {"ph": "X", "name": "n", "ts": float("nan"), "dur": 1}]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [*odd, event("cpu_op", "aten::add", 1, 1)]}), encoding="utf-8")

    trace = kineto.read(path)

    assert [e.name for e in trace.events] == ["aten::add"]
    assert trace.warnings == ("3 events of an unknown shape were left out",)


def test_a_bare_array_is_a_trace_too(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([event("cpu_op", "aten::add", 1, 1)]), encoding="utf-8")

    assert [e.name for e in kineto.read(path).events] == ["aten::add"]


def test_reading_stops_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given: data that unpacks to a thousand times its size
    monkeypatch.setattr(kineto, "MAX_TRACE_BYTES", 100_000)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 50_000_000, mtime=0))

    trace = kineto.read(path)

    assert trace.events == ()
    assert trace.warnings[0] == "the trace is larger than 100,000 bytes: only its beginning was read"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "t.json: the trace is empty"),
        (b" \n", "t.json: the trace is empty"),
        (b'{"events": []}', "t.json: this is no Kineto trace: it holds no traceEvents"),
        (b"PK\x03\x04", "t.json: this is no Kineto trace: it holds no traceEvents"),
    ],
)
def test_what_is_no_trace_is_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)

    with pytest.raises(InputError) as raised:
        kineto.read(path)

    assert raised.value.message == message


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.json: cannot be read: No such file"):
        kineto.read(tmp_path / "gone.json")


def test_a_trace_of_one_event_is_a_trace(tmp_path: Path) -> None:
    assert len(kineto.read(write(tmp_path / "t.json", [step(0, 1, 2)])).events) == 1
