"""Traces as they are found: gzipped or not, damaged, of odd shapes. What can be read is, what
cannot is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kgprof.errors import InputError
from kgprof.reading import files, kineto
from kgprof.reading.kineto import LaunchShape, TraceEvent
from tests.analysis.events import event, step, write

ADD = TraceEvent(
    category="cpu_op",
    name="aten::add",
    process=1,
    thread=1,
    start_ns=4_362_513_010_190_748,
    duration_ns=1_573,
)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_nanoseconds_survive(tmp_path: Path, packed: bool) -> None:
    # given: a timestamp as large as real ones, whose three decimals HTA rounds away
    path = write(
        tmp_path / "trace", [event("cpu_op", "aten::add", 4362513010190.748, 1.573)], packed=packed
    )

    trace = kineto.read(path)

    assert (trace.events, trace.warnings) == ((ADD,), ())


def test_stream_and_correlation_are_kept_and_other_phases_are_not(tmp_path: Path) -> None:
    flow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 5.0, "id": 1}
    path = write(tmp_path / "t.json", [flow, event("kernel", "k", 1.0, 2.0, thread=7, stream=7)])

    (found,) = kineto.read(path).events

    assert (found.stream, found.correlation, found.end_ns) == (7, 7, 3000)


def test_names_that_are_no_utf8_do_not_lose_the_rest(tmp_path: Path) -> None:
    text = json.dumps(
        {"traceEvents": [event("cpu_op", "BROKEN", 1, 1), event("cpu_op", "aten::add", 2, 1)]}
    )
    path = tmp_path / "t.json"
    path.write_bytes(text.encode().replace(b"BROKEN", b"\xff\xfe\x80x"))

    trace = kineto.read(path)

    assert [e.name for e in trace.events] == ["\ufffd\ufffd\ufffdx", "aten::add"]
    assert trace.warnings == ()


def test_raw_control_characters_in_a_name_do_not_lose_the_rest(tmp_path: Path) -> None:
    text = json.dumps(
        {"traceEvents": [event("cpu_op", "BROKEN", 1, 1), event("cpu_op", "aten::add", 2, 1)]}
    )
    path = tmp_path / "t.json"
    path.write_bytes(text.encode().replace(b"BROKEN", b"a\x01\nb\\ud800"))

    trace = kineto.read(path)

    assert [e.name for e in trace.events] == ["a\x01\nb\ufffd", "aten::add"]


@pytest.mark.parametrize("field", ["cat", "pid", "tid", "name"])
@pytest.mark.parametrize("wrong", [b'"a\\ud800"', b'"a\xed\xa0\x80"', b'"\xff"'])
def test_a_lone_surrogate_or_a_bad_byte_in_a_text_is_replaced(
    tmp_path: Path, field: str, wrong: bytes
) -> None:
    damaged = event("cpu_op", "one", 1, 1) | {field: "BROKEN"}
    path = write(tmp_path / "t.json", [damaged, event("cpu_op", "aten::add", 2, 1)])
    path.write_bytes(path.read_bytes().replace(b'"BROKEN"', wrong))

    trace = kineto.read(path)

    assert [e.name for e in trace.events][1:] == ["aten::add"]
    columns = trace.columns
    texts = (
        *columns.categories,
        *columns.names,
        *(str(part) for thread in columns.threads for part in thread),
    )
    assert any("\ufffd" in text for text in texts)
    assert all(text.encode() for text in texts)


@pytest.mark.parametrize("wrong", [b"\xff", b"\xed\xa0\x80", b"\\ud800", b'"\\ud800"'])
def test_a_bad_byte_in_place_of_a_value_costs_its_event_and_is_said(
    tmp_path: Path, wrong: bytes
) -> None:
    damaged = event("cpu_op", "one", 1, 1) | {"dur": "BROKEN"}
    path = write(
        tmp_path / "t.json",
        [event("cpu_op", "zero", 0, 1), damaged, event("cpu_op", "aten::add", 2, 1)],
    )
    path.write_bytes(path.read_bytes().replace(b'"BROKEN"', wrong))

    trace = kineto.read(path)

    assert [e.name for e in trace.events] == ["zero", "aten::add"]
    assert len(trace.warnings) == 1


def test_a_lone_surrogate_before_the_events_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'{"deviceProperties": [{"name": "H\\ud800"}], "traceEvents": []}')

    assert kineto.metadata(path) == {"deviceProperties": [{"name": "H\ufffd"}]}


def test_a_truncated_tail_is_said_with_what_was_read(tmp_path: Path) -> None:
    whole = json.dumps({"traceEvents": [event("cpu_op", f"op{i}", i, 1) for i in range(10)]})
    path = tmp_path / "t.json"
    path.write_text(whole[: whole.index("op7") + 3], encoding="utf-8")

    trace = kineto.read(path)

    assert [e.name for e in trace.events] == [f"op{i}" for i in range(7)]
    lost = len(
        whole[whole.index('{"ph": "X", "cat": "cpu_op", "name": "op7') : whole.index("op7") + 3]
    )
    assert trace.warnings == (
        f"the trace was not read to its end: its last {lost} bytes are not a complete event",
    )


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
    assert trace.warnings[1].startswith("the trace was not read to its end")


def test_events_of_another_shape_are_counted(tmp_path: Path) -> None:
    odd = [{"ph": "X", "ts": "soon"}, 17, {"ph": "X", "name": "n", "ts": float("nan"), "dur": 1}]
    path = tmp_path / "t.json"
    path.write_text(
        json.dumps({"traceEvents": [*odd, event("cpu_op", "aten::add", 1, 1)]}), encoding="utf-8"
    )

    trace = kineto.read(path)

    assert [e.name for e in trace.events] == ["aten::add"]
    assert trace.warnings == (
        "2 events of an unknown shape were left out",
        "1 events with a missing or impossible time were left out",
    )


def test_a_bare_array_is_a_trace_too(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([event("cpu_op", "aten::add", 1, 1)]), encoding="utf-8")

    assert [e.name for e in kineto.read(path).events] == ["aten::add"]


def test_reading_stops_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given: data that unpacks to a thousand times its size
    monkeypatch.setattr(kineto, "MAX_BYTES", 100_000)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 50_000_000, mtime=0))

    trace = kineto.read(path)

    assert trace.events == ()
    assert (
        trace.warnings[0] == "the trace is larger than 100,000 bytes: only its beginning was read"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "t.json: the trace is empty"),
        (b" \n", "t.json: the trace is empty"),
        (b'{"events": []}', "t.json: not a Kineto trace: it has no traceEvents"),
        (b"PK\x03\x04", "t.json: not a Kineto trace: it has no traceEvents"),
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


# ---------------------------------------------------------------- cutting the text


names = st.text(max_size=12) | st.sampled_from(
    ['}, {"ph": "X"', "}]", "},\n  {", '"', "\\", "]}, "]
)


@given(st.lists(names, max_size=12), st.integers(1, 400), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_wherever_the_text_is_cut_no_event_is_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: list[str], size: int, packed: bool
) -> None:
    # given: names that look like the end of an event, and nested arguments, in pieces of any size
    monkeypatch.setattr(kineto, "PIECE_BYTES", size)
    events = [event("cpu_op", name, number, 1) for number, name in enumerate(found)]
    for number, each in enumerate(events):
        each["args"]["Input Dims"] = [{"shape": [number]}, {"shape": []}]
    path = write(tmp_path / "t", events, packed=packed)

    trace = kineto.read(path)

    assert [e.name for e in trace.events] == found
    assert trace.warnings == ()


@pytest.mark.parametrize("keep", range(1, 130, 7))
def test_a_trace_that_stops_anywhere_keeps_its_whole_events(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keep: int
) -> None:
    monkeypatch.setattr(kineto, "PIECE_BYTES", 50)
    text = json.dumps({"traceEvents": [event("cpu_op", "a", 1, 1), event("cpu_op", "b", 2, 1)]})
    start, second = text.index("[") + 1, text.index("{", text.index("}}") + 2)
    path = tmp_path / "t.json"
    path.write_text(text[: start + keep], encoding="utf-8")

    trace = kineto.read(path)

    assert [e.name for e in trace.events] == (["a"] if start + keep >= text.index("}}") + 2 else [])
    begin = start if start + keep < text.index("}}") + 2 else min(second, start + keep)
    assert trace.warnings == (
        f"the trace was not read to its end: its last {start + keep - begin} bytes are not a "
        "complete event",
    )


def test_what_is_broken_in_the_middle_is_skipped_and_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kineto, "PIECE_BYTES", 50)
    monkeypatch.setattr(kineto, "_LONGEST_EVENT", 200)
    parts = [json.dumps(event("cpu_op", name, number, 1)) for number, name in enumerate("abcdef")]
    parts[2] = '{"ph": "X", "name": 0x17, "ts": 5}'
    path = tmp_path / "t.json"
    path.write_text(
        '{"traceEvents": [' + ", ".join(parts) + '], "traceName": "t"}', encoding="utf-8"
    )

    trace = kineto.read(path)

    assert [e.name for e in trace.events] == ["a", "b", "d", "e", "f"]
    assert trace.warnings == (f"{len(parts[2]) + 2} bytes between the events could not be read",)


def test_numbers_beyond_sixty_four_bits_are_none_of_ours(tmp_path: Path) -> None:
    odd = event("kernel", "k", 1.0, 2.0, stream=7)
    odd["args"]["correlation"] = 2**70
    late = event("kernel", "k", 1e300, 1.0)
    back = event("kernel", "k", 1.0, -1.0)

    trace = kineto.read(write(tmp_path / "t.json", [odd, late, back]))

    assert [(e.stream, e.correlation) for e in trace.events] == [(7, None)]
    assert trace.warnings == ("2 events with a missing or impossible time were left out",)


def test_what_stands_around_the_events_is_not_taken_for_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kineto, "PIECE_BYTES", 64)
    ranks = [{"rank": number, "cat": "kernel", "ph": "X"} for number in range(9)]
    whole = {
        "before": ranks,
        "note": 'no "traceEvents": [ here',
        "traceEvents": [step(0, 1, 2)],
        "after": ranks,
    }
    path = tmp_path / "t.json"
    path.write_text(json.dumps(whole), encoding="utf-8")

    trace = kineto.read(path)

    assert [e.name for e in trace.events] == ["ProfilerStep#0"]
    assert trace.warnings == ()


# ---------------------------------------------------------------- how a kernel was launched

LAUNCHED = {
    "stream": 7,
    "registers per thread": 53,
    "shared memory": 8192,
    "blocks per SM": 0.030303,
    "warps per SM": 0.060606,
    "grid": [4, 1, 1],
    "block": [64, 1, 1],
    "est. achieved occupancy %": 0,
}
SHAPE = LaunchShape(
    registers=53,
    shared_bytes=8192,
    grid=(4, 1, 1),
    block=(64, 1, 1),
    blocks_per_sm=0.030303,
    warps_per_sm=0.060606,
    occupancy_percent=0.0,
)


def with_arguments(category: str, **arguments: object) -> dict[str, object]:
    return {**event(category, "k", 1.0, 2.0), "args": arguments}


def test_a_launchs_shape_is_kept_once_for_all_that_have_it(tmp_path: Path) -> None:
    events = [
        with_arguments("kernel", **LAUNCHED),
        event("cpu_op", "aten::add", 1, 1),
        with_arguments("gpu_memcpy", bytes=30720),
        with_arguments("kernel", **LAUNCHED),
    ]

    columns = kineto.read(write(tmp_path / "t.json", events)).columns

    assert columns.shapes == (SHAPE, LaunchShape(size_bytes=30720))
    assert columns.shape.tolist() == [0, kineto.NONE, 1, 0]


def test_a_shape_of_another_form_loses_neither_the_event_nor_the_rest_of_it(tmp_path: Path) -> None:
    odd = {
        "registers per thread": "many",
        "shared memory": -1,
        "grid": [1, 2],
        "block": [1, 2, "z"],
        "blocks per SM": [],
    }
    events = [with_arguments("kernel", **{**LAUNCHED, **odd}), with_arguments("cpu_op", bytes=5)]

    columns = kineto.read(write(tmp_path / "t.json", events)).columns

    assert columns.shapes == (LaunchShape(warps_per_sm=0.060606, occupancy_percent=0.0),)
    assert columns.shape.tolist() == [0, kineto.NONE]


# --------------------------------------------------------- what a hostile or careless writer leaves


def test_an_event_without_a_time_is_not_taken_for_one_at_the_beginning(tmp_path: Path) -> None:
    timeless, endless, fine = (
        event("kernel", name, 5.0, 1.0, stream=7) for name in ("timeless", "endless", "fine")
    )
    del timeless["ts"], endless["dur"]

    trace = kineto.read(write(tmp_path / "t.json", [timeless, endless, fine]))

    assert [e.name for e in trace.events] == ["fine"]
    assert trace.warnings == ("2 events with a missing or impossible time were left out",)


def test_a_gzip_file_that_unpacks_beyond_reason_is_read_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given events that pack three hundred times over, and a limit that they pass soon
    monkeypatch.setattr(files, "EXPANSION_FROM", 2**20)
    one = json.dumps(event("kernel", "k", 1.0, 1.0, stream=7)).encode() + b", "
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + one * (2**24 // len(one)), mtime=0))

    trace = kineto.read(path)

    # then what came before is there, and that it is not all is said
    read = len(trace.events) * len(one)
    assert 2**20 <= read < 100 * path.stat().st_size + 2**20
    assert trace.warnings[0].startswith(
        "the gzip data unpacks to more than 100 times its size, which is not plausible"
    )


@pytest.mark.parametrize("filling", [b"a", b'{"a":', b"[", b"}, {", b'"', b"\\", b"\0", b"}]"])
def test_an_event_that_never_ends_is_not_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filling: bytes
) -> None:
    # given one event after which nothing but a filling comes, far longer than any event is
    monkeypatch.setattr(kineto, "_LONGEST_EVENT", 4096)
    monkeypatch.setattr(kineto, "PIECE_BYTES", 1024)
    path = tmp_path / "t.json"
    first = json.dumps(event("cpu_op", "a", 1, 1)).encode()
    path.write_bytes(
        b'{"traceEvents": ['
        + first
        + b', {"ph": "X", "name": "'
        + filling * (200_000 // len(filling))
    )
    held: list[int] = []
    events = kineto._Text.events

    def watched(self: kineto._Text, piece: bytes, *, last: bool = False) -> list[kineto._Event]:
        found = events(self, piece, last=last)
        held.append(len(self.rest))
        return found

    monkeypatch.setattr(kineto._Text, "events", watched)

    trace = kineto.read(path)

    assert [e.name for e in trace.events] == ["a"]
    assert max(held) <= 4096 + 2 * 1024
    assert trace.warnings


@given(junk=st.binary(max_size=400))
@example(junk=b'"\x80"')  # a byte that is no UTF-8 where an event should be
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200
)
def test_whatever_stands_in_the_file_it_is_read_or_refused_in_words(
    tmp_path: Path, junk: bytes
) -> None:
    for content in (
        junk,
        b'{"traceEvents": [' + junk,
        gzip.compress(junk, mtime=0),
        b"\x1f\x8b" + junk,
    ):
        path = tmp_path / "t.json"
        path.write_bytes(content)
        said = _read_or_refused(path)
        assert said or b"]" in junk  # which ends the events: what follows is no part of them


def _read_or_refused(path: Path) -> str:
    """The reader's own words about what it could not read; empty where it read everything."""
    try:
        return "; ".join(kineto.read(path).warnings)
    except InputError as error:
        return error.message
