"""COMPILE sees what torch compiled, and leaves torch's loggers as it found them."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kgprof.model import CompilePass, Options, Skipped, Unavailable
from kgprof.record.ground import kept_records
from kgprof.record.ground.source import listening, unavailable
from kgprof.record.listeners import skip_records
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.passes import timing, torch_trace
from kgprof.record.passes.torch_trace import StructuredTrace, TorchLogs, compile_pass
from tests.record.sessions import Stepping

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    torch._logging.set_logs()  # also closes over a stderr that pytest takes away


def breaks_once(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


def recorded(
    session: Stepping, folder: Path, *, steps: int = 4
) -> tuple[CompilePass, list[dict[str, Any]]]:
    path = folder / "trace_records.jsonl.gz"
    found = compile_pass(lambda: session, CPU, Options(steps=steps, warmup=1), records_to=path)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        parsed = [json.loads(line) for line in lines]
    return found, [line for line in parsed if "metadata" in line or "left_out" in line]


def torch_loggers() -> dict[str, tuple[object, ...]]:
    from torch._logging import _internal

    state = (dict(_internal.log_state.log_qname_to_level), set(_internal.log_state.artifact_names))
    loggers = {
        name: (logger.level, logger.propagate, list(logger.handlers))
        for name, logger in logging.Logger.manager.loggerDict.items()
        if name.startswith("torch") and isinstance(logger, logging.Logger)
    }
    return {**loggers, "": state}


def test_every_call_is_timed_and_every_compilation_is_a_row(tmp_path: Path) -> None:
    compiled = torch.compile(breaks_once, backend="eager")
    session = Stepping(lambda: compiled(torch.ones(3)))

    found, _ = recorded(session, tmp_path)

    assert (session.steps, len(found.call_us), found.steady_from) == (4, 4, 1)
    assert found.capture_unavailable == ()
    first, resumed = found.compilations
    line = breaks_once.__code__.co_firstlineno
    assert (first.compile_id, first.function, first.location) == (
        "0/0",
        "breaks_once",
        f"{__file__}:{line}",
    )
    assert resumed.compile_id == "1/0"
    assert resumed.function.startswith("torch_dynamo_resume_in_breaks_once")
    durations = [row.duration_s for row in found.compilations]
    assert all(not isinstance(duration, Skipped) and duration > 0 for duration in durations)


def test_inductors_probe_of_the_cpu_is_no_part_of_the_call_that_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed_s, took_us = [0.0], iter([9e6, 1e6])

    def wall_us(step: Callable[[], object], device: torch.device) -> float:
        step()
        return next(took_us)

    monkeypatch.setattr(timing, "wall_us", wall_us)
    session = Stepping(lambda: probed_s.__setitem__(0, 8.0))

    options, path = Options(steps=2, warmup=2), tmp_path / "records.jsonl.gz"
    found = compile_pass(
        lambda: session, CPU, options, records_to=path, isa_probe_s=lambda: probed_s[0]
    )

    assert found.call_us == (1e6, 1e6)


@pytest.mark.parametrize(
    ("steps", "warmup", "on_wall_clock"), [(6, 2, 2), (6, 0, 1), (6, 1, 1), (1, 0, 1), (2, 3, 2)]
)
def test_calls_after_warm_up_are_on_the_clock_of_timing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, warmup: int, on_wall_clock: int
) -> None:
    class Sevens:
        name = "sevens"

        def prepare(self, steps: int) -> None:
            pass

        def start(self) -> None:
            self.ticks = 0

        def tick(self) -> None:
            self.ticks += 1

        def stop(self) -> tuple[float, ...]:
            return (7e9,) * self.ticks

    waited: list[int] = []
    session = Stepping()
    monkeypatch.setattr(torch_trace.timing, "clock_for", lambda device: Sevens())
    monkeypatch.setattr(
        torch_trace.timing, "synchronize", lambda device: waited.append(session.steps)
    )

    options = Options(steps=steps, warmup=warmup)
    found = compile_pass(lambda: session, CPU, options, records_to=tmp_path / "records.jsonl.gz")

    assert session.steps == steps
    assert [us == 7e9 for us in found.call_us] == [False] * on_wall_clock + [True] * (
        steps - on_wall_clock
    )
    # The peaks of compiling wait once more before the later calls, which do not wait for the
    # device.
    assert waited == [*range(1, on_wall_clock + 1), on_wall_clock]


def test_the_records_hold_the_break_and_why_it_was_recompiled(tmp_path: Path) -> None:
    compiled = torch.compile(breaks_once, backend="eager", dynamic=False)
    sizes = iter([3, 3, 4, 4])

    _, records = recorded(Stepping(lambda: compiled(torch.ones(next(sizes)))), tmp_path)

    artifacts = [r["metadata"]["artifact"]["name"] for r in records if "artifact" in r["metadata"]]
    # once a compilation of the function's first part
    assert artifacts.count("dynamo_graph_break_reason") == 2
    reasons = [
        r["payload"]
        for r in records
        if r["metadata"].get("artifact", {}).get("name") == "recompile_reasons"
    ]
    assert any("size mismatch at index 0. expected 3, actual 4" in reason for reason in reasons)
    files = {
        r["metadata"]["str"][1]: r["metadata"]["str"][0] for r in records if "str" in r["metadata"]
    }
    starts = [
        r["metadata"]["dynamo_start"]["stack"] for r in records if "dynamo_start" in r["metadata"]
    ]
    assert {files[frame["filename"]] for frame in starts[0]} >= {__file__}
    spans = {json.loads(r["payload"])["name"] for r in records if "chromium_event" in r["metadata"]}
    assert {"dynamo", "backend_compile"} <= spans <= kept_records.KEPT_SPANS
    assert {
        (r["call"], r["metadata"]["frame_compile_id"])
        for r in records
        if "dynamo_start" in r["metadata"]
    } == {
        (0, 0),  # the function and what follows its break
        (2, 1),  # both again, for the other size
    }


def test_a_span_longer_than_a_payload_may_be_stays_readable(tmp_path: Path) -> None:
    # given: what a cold compile by Inductor writes, whose span carries the settings of the whole
    # process
    long = {
        "name": "inductor_compile",
        "ph": "E",
        "ts": 5.0,
        "args": {"compile_id": "0/0", "settings": "x" * 10**5},
    }
    logger = logging.getLogger(torch_trace.TRACE_LOGGER)

    def step() -> None:
        logger.debug(
            "", extra={"metadata": {"chromium_event": {}}, "payload": json.dumps(long, indent=2)}
        )

    _, records = recorded(Stepping(step), tmp_path)

    spans = [json.loads(r["payload"]) for r in records if "chromium_event" in r["metadata"]]
    assert spans
    assert spans[0] == {
        "name": "inductor_compile",
        "ph": "E",
        "ts": 5.0,
        "args": {"compile_id": "0/0"},
    }


def test_torchs_settings_stand_in_the_first_metrics_record_only(tmp_path: Path) -> None:
    compiled = torch.compile(breaks_once, backend="eager")

    _, records = recorded(Stepping(lambda: compiled(torch.ones(3))), tmp_path)

    first, second = [
        r["metadata"]["compilation_metrics"]
        for r in records
        if "compilation_metrics" in r["metadata"]
    ]
    assert "dynamo_config" in first
    assert "dynamo_config" not in second
    assert second["co_name"].startswith("torch_dynamo_resume")


def test_a_failed_compilation_has_its_reason(tmp_path: Path) -> None:
    def refuses(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> None:
        raise ZeroDivisionError("this backend compiles nothing")

    compiled = torch.compile(lambda x: x + 1, backend=refuses)

    def step() -> None:
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
            compiled(torch.ones(3))

    found, _ = recorded(Stepping(step), tmp_path, steps=1)

    assert "this backend compiles nothing" in found.compilations[0].fail_reason


def test_where_nothing_is_compiled_there_is_no_row(tmp_path: Path) -> None:
    found, records = recorded(Stepping(lambda: torch.ones(3) + 1), tmp_path)

    assert found.compilations == ()
    assert [record for record in records if "str" not in record["metadata"]] == []


def test_what_is_beyond_the_limit_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_records, "RECORDS_BYTES", 1000)
    compiled = torch.compile(breaks_once, backend="eager")

    _, records = recorded(Stepping(lambda: compiled(torch.ones(3))), tmp_path)

    assert records[-1]["left_out"] > 0
    assert records[-1]["limit_bytes"] == 1000


def test_a_long_payload_is_cut_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_records, "PAYLOAD_BYTES", 10)
    compiled = torch.compile(breaks_once, backend="eager")

    _, records = recorded(Stepping(lambda: compiled(torch.ones(3))), tmp_path)

    cut = [record for record in records if "payload_cut" in record]
    assert cut
    assert all(len(record["payload"]) == 10 and record["payload_cut"] > 0 for record in cut)


def test_the_key_of_a_cache_miss_is_cut() -> None:
    kept = kept_records.KeptRecords()
    kept.keep({"artifact": {"name": "fx_graph_cache_miss"}}, "k" * 5000, 0)
    kept.keep({"artifact": {"name": "fx_graph_cache_bypass"}}, "b" * 5000, 0)

    miss, bypass = kept_records.as_lines(kept.records, left_out=kept.left_out)

    assert (len(miss["payload"]), miss["payload_cut"]) == (2048, 2952)
    assert len(bypass["payload"]) == 5000


@pytest.mark.parametrize("raises", [False, True])
def test_every_logger_is_left_as_it_was_found(tmp_path: Path, raises: bool) -> None:
    # given: a workload that touches torch's logs itself
    def step() -> None:
        torch._logging.set_logs(dynamo=logging.DEBUG, guards=True)
        if raises:
            raise ZeroDivisionError

    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    torch._logging.set_logs(inductor=logging.INFO)
    before = torch_loggers()

    try:
        recorded(Stepping(step), tmp_path)
    except ZeroDivisionError:
        assert raises

    after = torch_loggers()
    assert {name: after[name] for name in before} == before


def test_torchs_own_text_goes_to_stderr_while_it_is_listened_to(
    capfd: pytest.CaptureFixture[str],
) -> None:
    compiled = torch.compile(breaks_once, backend="eager", dynamic=False)

    with listening([TorchLogs()]):
        compiled(torch.ones(3))
        compiled(torch.ones(4))
    during = capfd.readouterr().err
    compiled(torch.ones(5))
    afterwards = capfd.readouterr().err

    assert "[__graph_breaks]" in during
    assert "[__recompiles]" in during
    assert "[__recompiles]" not in afterwards


def test_a_users_torch_logs_are_not_overruled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOGS", "+dynamo")
    source = TorchLogs()
    before = torch_loggers()

    with listening([source]):
        assert torch_loggers() == before

    assert unavailable([source]) == (
        Unavailable(capture="torch logs", why="TORCH_LOGS is set, so the log follows it"),
    )


def test_a_torch_without_the_trace_logger_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_trace, "TRACE_LOGGER", "torch.__no_such_trace")
    source = StructuredTrace(CallIndex())

    with listening([source]):
        pass

    assert unavailable([source]) == (
        Unavailable(
            capture="structured trace", why="this torch has no logger torch.__no_such_trace"
        ),
    )


def test_compilation_that_is_switched_off_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")

    found, _ = recorded(Stepping(), tmp_path)

    assert found.capture_unavailable == (
        Unavailable(
            capture="compilation",
            why="TORCHDYNAMO_DISABLE=1 is set, so torch.compile compiles nothing",
        ),
    )


# ------------------------------------------------------- what compiles while the workload is loaded


def warmed_up(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Stepping]:
    """What loads a step that is compiled by then, as a module does that warms up while it is
    imported."""

    def load() -> Stepping:
        made = torch.compile(function, backend="eager")
        made(torch.ones(3))
        return Stepping(lambda: made(torch.ones(3)))

    return load


def records_of(path: Path, what: str) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [found[what] for line in lines if what in (found := json.loads(line))]


def test_what_compiles_while_loading_comes_before_the_first_call_and_its_graphs_are_counted(
    tmp_path: Path,
) -> None:
    path = tmp_path / "trace_records.jsonl.gz"

    found = compile_pass(warmed_up(breaks_once), CPU, Options(steps=4, warmup=1), records_to=path)

    assert [compilation.compile_id for compilation in found.compilations] == ["0/0", "1/0"]
    assert {frame["call"] for frame in records_of(path, "frame")} == {-1}
    runs = {graph["compile_id"]: graph["runs"] for graph in records_of(path, "graph")}
    assert runs == {name: {"-1": 1, "0": 1, "1": 1, "2": 1, "3": 1} for name in ("0/0", "1/0")}
    assert 0 < found.while_loading_s < 60
    assert found.call_us[0] < 1e6 * found.while_loading_s  # of which the first call took nothing


def test_what_compiles_in_the_first_call_is_no_time_of_loading(tmp_path: Path) -> None:
    made = torch.compile(breaks_once, backend="eager")

    found, _ = recorded(Stepping(lambda: made(torch.ones(3))), tmp_path)

    assert found.while_loading_s == 0


def test_a_module_that_chooses_torchs_logs_does_not_switch_off_what_is_recorded(
    tmp_path: Path,
) -> None:
    levels: list[bool] = []

    def load() -> Stepping:
        torch._logging.set_logs(recompiles=True)
        return Stepping(lambda: levels.append(skip_records.are_written()))

    compile_pass(load, CPU, Options(steps=2, warmup=1), records_to=tmp_path / "records.jsonl.gz")

    assert levels == [True, True]


def test_a_workload_that_cannot_be_loaded_leaves_what_it_compiled(tmp_path: Path) -> None:
    path = tmp_path / "trace_records.jsonl.gz"

    def load() -> Stepping:
        warmed_up(breaks_once)()
        raise RuntimeError("no weights")

    with pytest.raises(RuntimeError, match="no weights"):
        compile_pass(load, CPU, Options(steps=2, warmup=1), records_to=path)

    assert {frame["outcome"] for frame in records_of(path, "frame")} == {"compiled"}
