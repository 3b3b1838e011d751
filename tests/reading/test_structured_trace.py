"""Which compilation a record belongs to."""

from __future__ import annotations

import pytest

from kgprof.model import Skipped
from kgprof.reading.evidence import Evidence
from kgprof.reading.structured_trace import compile_id, frame_id
from tests.analysis import recordings
from tests.analysis.recordings import EAGER, FUSED
from tests.collectors import written
from tests.collectors.written import REPORT, STEP, compiled, offered


@pytest.mark.parametrize(
    ("metadata", "name", "code"),
    [
        ({"frame_id": 0, "frame_compile_id": 1, "attempt": 2}, "0/1", "0"),
        ({"frame_id": 3, "frame_compile_id": 0, "compiled_autograd_id": 2}, "!2/3/0", "!2/3"),
        ({"frame_id": 3, "frame_compile_id": 0, "compiled_autograd_id": None}, "3/0", "3"),
        ({"frame_id": 3}, "", ""),
        ({"str": ["/a.py", 3]}, "", ""),
    ],
)
def test_a_records_compile_id(metadata: dict[str, object], name: str, code: str) -> None:
    assert compile_id(metadata) == name
    assert frame_id(name) == code


def test_an_id_that_is_given_out_again_is_another_compilation() -> None:
    trace = written.compiler(*compiled("0/0", STEP), *compiled("0/0", REPORT, call=5))

    first, second = trace.compiled
    assert [trace.compilation("0/0", call) for call in (0, 4, 5, 19)] == [
        first,
        first,
        second,
        second,
    ]
    assert trace.compilation("7/0", 19) is None
    assert [(c.call, c.frame and c.frame.function) for c in trace.compiled] == [
        (0, "step"),
        (5, "report"),
    ]


def test_a_frame_and_its_compilation_find_each_other() -> None:
    row, other = offered(STEP, compile_id="0/0"), offered(STEP, "skipped", call=3)
    trace = written.compiler(*compiled("0/0", STEP), row, other)

    (one,) = trace.compiled
    assert list(trace.frame_rows(one)) == [row]
    assert trace.compilations_of(row) == [one]
    assert trace.compilations_of(other) == []


def test_a_run_without_records_has_no_trace() -> None:
    clean, died = Evidence(recordings.recording(recordings.run(FUSED), recordings.died(EAGER))).runs
    assert clean.compiler is None
    assert died.compiler is None
    assert isinstance(recordings.run(FUSED).records, Skipped)
