"""Recordings of a size that no page can show: the report of each ends, in bounded memory, and its
page stays below 1 MB and says what it left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kgprof.model import (
    Exit,
    Outcome,
    PassName,
    Profile,
    RunKey,
    Sources,
    StrategyPlan,
    decode_json,
)
from kgprof.reading import layout
from kgprof.record.ground import kept_records, store
from kgprof.render.html import MAX_BYTES
from tests.analysis import recordings
from tests.collectors import written
from tests.reading.in_a_child import Runner
from tests.record import handmade

FILE = "/src/shop/large.py"
MOST_PEAK = 700 * 2**20


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    started = Runner()
    yield started
    started.close()


def breaks(count: int) -> Iterator[Any]:
    """Each in a function of its own."""
    for number in range(count):
        frame = (FILE, 3 * number + 1, f"layer_{number}")
        yield from written.compiled(f"{number}/0", frame)
        yield written.broken(f"{number}/0", (FILE, 3 * number + 2, f"layer_{number}"))
        yield written.offered(frame, compile_id=f"{number}/0")
        yield written.ran(f"{number}/0", *range(written.CALLS))


def recompiles(count: int) -> Iterator[Any]:
    """Of one function; torch names every entry that was rejected, and the recorder cuts what is too
    long."""
    for line in written.recompiled(*range(1, count + 1)):
        payload = getattr(line, "payload", None)
        cut = payload is not None and len(payload) > kept_records.PAYLOAD_BYTES
        yield (
            msgspec.structs.replace(line, payload=payload[: kept_records.PAYLOAD_BYTES])
            if cut
            else line
        )


def as_records(line: Any) -> dict[str, Any]:
    kinds = {"OfferedFrame": "frame", "GraphRuns": "graph", "LogLine": "log"}
    built: dict[str, Any] = msgspec.to_builtins(line, str_keys=True)
    kind = kinds.get(type(line).__name__)
    return built if kind is None else {kind: built}


def recorded(folder: Path, lines: list[Any], runs: int = 1) -> None:
    """``runs`` strategies, each with these lines."""
    keys = tuple(RunKey(strategy=f"strategy_{number}", mode="default") for number in range(runs))
    plans = tuple(
        StrategyPlan(name=key.strategy, modes=(key.mode,), summary="made up") for key in keys
    )
    header = handmade._header()
    plan = msgspec.structs.replace(
        header.plan, strategies=plans, runs=keys, baseline=keys[0], agreement=False
    )
    store.create(folder, msgspec.structs.replace(header, plan=plan))
    for number, key in enumerate(keys):
        made = (
            written.run(calls=written.CALLS)
            if lines
            else recordings.run(key, step_us=1000.0 + number)
        )
        for name in (PassName.COMPILE, PassName.TIMING, PassName.HOST):
            store.write_pass(folder, key, name, made.left_by(name))
        store.write_exit(folder, key, Exit(outcome=Outcome.OK, exit_code=0, elapsed_s=1.0))
        records = layout.run_folder(folder, key) / layout.TRACE_RECORDS
        kept_records.write_records(records, map(as_records, lines))
        store.write_json(
            records.with_name(layout.SOURCES), Sources(libraries=("/lib/site-packages",))
        )


@pytest.mark.parametrize(
    ("make", "runs", "rule", "findings"),
    [
        pytest.param(lambda: breaks(200), 1, "KGP101", 200, id="200 breaks"),
        pytest.param(
            lambda: breaks(10_000), 1, "KGP101", 10_000, id="10000 breaks", marks=pytest.mark.long
        ),
        pytest.param(lambda: recompiles(1_000), 1, "KGP105", 1, id="1000 recompiles"),
        pytest.param(lambda: (), 64, "", 0, id="64 strategies"),
        pytest.param(
            lambda: breaks(200),
            64,
            "KGP101",
            12_800,
            id="64 strategies of 200 breaks",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_large_recording_has_a_small_page(
    make: Callable[[], Iterator[Any]],
    runs: int,
    rule: str,
    findings: int,
    tmp_path: Path,
    runner: Runner,
) -> None:
    # given
    recorded(tmp_path / "in" / "recording", list(make()), runs)
    # when
    ended = runner.run(tmp_path, ("report", "in", "--no-hta", "-o", "out"))
    # then
    assert ended.code == 0, ended
    assert ended.peak_bytes < MOST_PEAK
    profile = decode_json((tmp_path / "out" / "report.json").read_bytes(), Profile)
    assert Counter(finding.rule for finding in profile.findings) == (
        {rule: findings} if rule else {}
    )
    page = (tmp_path / "out" / "report.html").read_bytes()
    assert len(page) <= MAX_BYTES
    if len(profile.findings) > 1000 or rule == "KGP105":  # what is less stands there in full
        assert " more in report.json." in page.decode()
