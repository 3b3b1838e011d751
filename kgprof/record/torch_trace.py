"""COMPILE: calls on a cold cache while torch's structured trace and its log artifacts are listened to."""

from __future__ import annotations

import gzip
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from kgprof.compile_records import TraceRecord
from kgprof.model import Compilation, CompilePass, Options, Skipped
from kgprof.project import ProjectFiles
from kgprof.record import project_sources, store, timing
from kgprof.record.call_index import CallIndex
from kgprof.record.cuda_graph_log import CudaGraphLog
from kgprof.record.frame_hook import FrameHook
from kgprof.record.graph_hook import GraphHook
from kgprof.record.skip_records import SkipRecords
from kgprof.record.source import Source, listening, unavailable
from kgprof.workloads.protocol import Session

TRACE_LOGGER = "torch.__trace"
RECORDS_BYTES = 16 * 2**20  # of JSON, before compression; what comes after it is counted

# Of the records that torch.__trace emits. The rest (generated code, graphs, chromium events) is 30 times as much.
KEPT_RECORDS = frozenset(
    {
        "str",  # file names in stacks are numbers that these explain
        "dynamo_start",
        "compilation_metrics",
        "bwd_compilation_metrics",
        "aot_autograd_backward_compilation_metrics",
        "create_symbol",
        "describe_storage",
        "describe_tensor",
        "describe_source",
        "link",
    }
)
KEPT_ARTIFACTS = frozenset(
    {
        "dynamo_graph_break_reason",
        "recompile_reasons",
        "fx_graph_cache_hit",
        "fx_graph_cache_miss",
        "fx_graph_cache_bypass",
        "aotautograd_cache_hit",
        "aotautograd_cache_miss",
        "aotautograd_cache_bypass",
        "aot_forward_graph_fw_metadata",
        "cudagraph_skip_reason",
    }
)
# Of the spans in chromium_event records: those that tell the stages of a compilation apart.
KEPT_SPANS = frozenset(
    {
        "dynamo",
        "entire_frame_compile",
        "backend_compile",
        "entire_backward_compile",
        "create_aot_dispatcher_function",
        "inductor_compile",
        "_recursive_post_grad_passes",
        "Scheduler.__init__",
        "code_gen",
        "GraphLowering.compile_to_fn",
        "async_compile.wait",
        "async_compile.precompile",
        "compile_file",
        "inductor_codecache_torch_key",
        "CacheBase.get_system.triton_key",
        "PyCodeCache.load_by_key_path",
        "AOTAutogradCache.inductor_load",
        "TritonBundler.collect",
        "TritonBundler.read_and_emit",
    }
)
PAYLOAD_BYTES = 64 * 1024  # of one record
KEY_BYTES = 2 * 1024  # of a cache miss, which carries its whole key: 70 KB a graph
# 38 KB of settings stand in every metrics record; once is enough.
SETTINGS = ("dynamo_config", "inductor_config", "functorch_config", "compiler_config")
LOG_ARTIFACTS = ("graph_breaks", "recompiles", "cudagraphs", "perf_hints")

Metadata = Mapping[str, Any]


def compile_pass(
    session: Session,
    device: torch.device,
    options: Options,
    *,
    records_to: Path,
    after_first_call: Callable[[], None] = lambda: None,
) -> CompilePass:
    """``--steps`` calls, each timed as CompilePass says; the records that were kept go to ``records_to``."""
    calls, project = CallIndex(), project_sources.project_files(options.workload)
    listened = CompileSources(calls, project)
    try:
        with listening(listened.sources):
            call_us = [_timed_call(session, device, calls)]
            after_first_call()
            on_wall_clock = min(max(1, options.warmup), options.steps)
            call_us += [_timed_call(session, device, calls) for _ in range(on_wall_clock - 1)]
            clock = timing.clock_for(device)
            call_us += timing.timed_steps(_Counted(session, calls), clock, options.steps - on_wall_clock)
    finally:  # of a workload that raised as well: where torch refused to compile, this says what and where
        lines = list(listened.lines())
        write_records(records_to, lines)
        store.write_sources(records_to, project_sources.gather(lines, project))
    return CompilePass(
        call_us=tuple(call_us),
        steady_from=options.warmup,
        compilations=listened.compilations(),
        capture_unavailable=listened.unavailable(),
    )


class CompileSources:
    """All that COMPILE listens to, each event labelled with the call in which it came."""

    def __init__(self, calls: CallIndex, project: ProjectFiles) -> None:
        self._trace = StructuredTrace(calls)
        self._frames, self._graphs = FrameHook(calls, project), GraphHook(calls)
        self._cuda_graphs = CudaGraphLog(calls)
        self.sources: tuple[Source, ...] = (
            TorchLogs(),
            SkipRecords(),
            self._trace,
            self._frames,
            self._graphs,
            self._cuda_graphs,
        )

    def lines(self) -> Iterator[dict[str, Any]]:
        """Of the file of records, as far as they have come."""
        yield from _as_lines(self._trace)
        yield from self._frames.lines()
        yield from self._graphs.lines()
        yield from self._cuda_graphs.lines()

    def compilations(self) -> tuple[Compilation, ...]:
        return tuple(compilations(self._trace.records))

    def unavailable(self) -> tuple[str, ...]:
        return unavailable(self.sources) + _switched_off()


class _Counted:
    """The session, with each of its steps counted as a call."""

    def __init__(self, session: Session, calls: CallIndex) -> None:
        self._session = session
        self._calls = calls

    def step(self) -> object:
        with self._calls.call():
            return self._session.step()


def _timed_call(session: Session, device: torch.device, calls: CallIndex) -> float:
    with calls.call():
        began = time.perf_counter_ns()
        session.step()
        timing.synchronize(device)
        return (time.perf_counter_ns() - began) / 1e3


def _switched_off() -> tuple[str, ...]:
    by = compilation_switched_off_by(os.environ)
    return (f"capture compilation unavailable: {by} is set, so torch.compile compiles nothing",) if by else ()


def compilation_switched_off_by(environment: Mapping[str, str]) -> str:
    """``NAME=1`` of the variable that makes torch.compile do nothing, or an empty string."""
    for name in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"):
        if environment.get(name) == "1":
            return f"{name}=1"
    return ""


class StructuredTrace:
    """The records of torch.__trace, kept in memory until the pass is over."""

    name = "structured trace"

    def __init__(self, calls: CallIndex) -> None:
        self.records: list[TraceRecord] = []
        self._calls = calls
        self.left_out = 0
        self.unavailable = ""
        self._bytes = 0
        self._handler = _RecordHandler(self)

    def __enter__(self) -> StructuredTrace:
        if TRACE_LOGGER not in logging.Logger.manager.loggerDict:
            self.unavailable = f"this torch has no logger {TRACE_LOGGER}"
            return self
        # addHandler would lose the first record: torch's own lazy handler takes itself off the list while the list is
        # being walked, and what stands behind it is skipped once.
        logging.getLogger(TRACE_LOGGER).handlers.insert(0, self._handler)
        self.records += [TraceRecord(metadata={"str": [name, number]}) for name, number in _names_given_out().items()]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handlers = logging.getLogger(TRACE_LOGGER).handlers
        if self._handler in handlers:
            handlers.remove(self._handler)

    def take(self, metadata: dict[str, Any], payload: str | None) -> None:
        if not _is_kept(metadata, payload):
            return
        size = len(payload or "") + 200
        if self._bytes + size > RECORDS_BYTES:
            self.left_out += 1
            return
        self._bytes += size
        self.records.append(TraceRecord(metadata=metadata, payload=payload, call=self._calls.current))


def _names_given_out() -> dict[str, int]:
    """A file's number is told once a process; these were before the pass began (a workload may compile on import)."""
    try:
        from torch._logging.structured import INTERN_TABLE
    except ImportError:
        return {}
    return dict(INTERN_TABLE)


class _RecordHandler(logging.Handler):
    """Does as little as it can: when a compile happens inside another one's callback, Dynamo traces this as well."""

    def __init__(self, source: StructuredTrace) -> None:
        super().__init__()
        self._source = source

    def emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", None)
        if isinstance(metadata, dict):
            self._source.take(metadata, getattr(record, "payload", None))


def _is_kept(metadata: Metadata, payload: str | None) -> bool:
    if not KEPT_RECORDS.isdisjoint(metadata):
        return True
    if "chromium_event" in metadata:
        return _span_name(payload) in KEPT_SPANS
    artifact = metadata.get("artifact")
    return isinstance(artifact, dict) and artifact.get("name") in KEPT_ARTIFACTS


def _span_name(payload: str | None) -> str:
    """Found in the text, because the payload is JSON that is made for every span and needed of few."""
    _, _, rest = (payload or "").partition('"name": "')
    return rest.partition('"')[0]


def _is_cache_miss(metadata: Metadata) -> bool:
    artifact = metadata.get("artifact")
    return isinstance(artifact, dict) and str(artifact.get("name")).endswith("_cache_miss")


def write_records(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line, gzipped; which keys a line has tells its source (kgprof.compile_records)."""
    with store.replacing(path) as partial, gzip.open(partial, "wt", encoding="utf-8") as written:
        for line in lines:
            written.write(json.dumps(line, default=str) + "\n")


def _as_lines(trace: StructuredTrace) -> Iterable[dict[str, Any]]:
    settings_seen = False
    for record in trace.records:
        metadata = record.metadata
        payload = _slim_span(record.payload) if "chromium_event" in metadata else record.payload
        limit = KEY_BYTES if _is_cache_miss(metadata) else PAYLOAD_BYTES
        cut = max(0, len(payload or "") - limit)
        line: dict[str, Any] = {"call": record.call, "metadata": dict(metadata), "payload": payload and payload[:limit]}
        if cut:
            line["payload_cut"] = cut
        if isinstance(metrics := metadata.get("compilation_metrics"), dict):
            if settings_seen:
                line["metadata"]["compilation_metrics"] = {k: v for k, v in metrics.items() if k not in SETTINGS}
            settings_seen = True
        yield line
    if trace.left_out:
        yield {"left_out": trace.left_out, "limit_bytes": RECORDS_BYTES}


def _slim_span(payload: str | None) -> str | None:
    """When it began or ended and what it belongs to. The rest, a whole pass's settings at times, is cut: a payload that
    is longer than PAYLOAD_BYTES would be JSON no more."""
    if not payload:
        return payload
    span = json.loads(payload)
    slim = {name: span.get(name) for name in ("name", "ph", "ts")}
    return json.dumps({**slim, "args": {"compile_id": (span.get("args") or {}).get("compile_id")}})


def compilations(records: Iterable[TraceRecord]) -> Iterable[Compilation]:
    """A row for each compilation_metrics record, in torch's order."""
    for record in records:
        for name in ("compilation_metrics", "bwd_compilation_metrics"):
            if isinstance(metrics := record.metadata.get(name), dict):
                yield _compilation(metrics, backward=name.startswith("bwd"))


def _compilation(metrics: Metadata, *, backward: bool) -> Compilation:
    file, line = metrics.get("co_filename"), metrics.get("co_firstlineno")
    duration_us = metrics.get("duration_us")
    return Compilation(
        compile_id=str(metrics.get("compile_id") or ""),
        function=str(metrics.get("co_name") or ("(backward)" if backward else "")),
        location=f"{file}:{line}" if file else "",
        duration_s=Skipped(reason="torch gave no duration_us") if duration_us is None else duration_us / 1e6,
        fail_reason=str(metrics.get("fail_reason") or metrics.get("fail_type") or ""),
    )


class TorchLogs:
    """torch's own text about breaks, recompiles, CUDA graphs and performance hints, on stderr and so in log.txt."""

    name = "torch logs"

    def __init__(self) -> None:
        self.unavailable = ""
        self._restore: Callable[[], None] | None = None

    def __enter__(self) -> TorchLogs:
        if "TORCH_LOGS" in os.environ:
            self.unavailable = "TORCH_LOGS is set, so the log holds what it asks for"
            return self
        try:
            self._restore = _remember_loggers()
            from torch._logging import set_logs  # type: ignore[attr-defined]

            settings: dict[str, Any] = dict.fromkeys(LOG_ARTIFACTS, True)
            set_logs(**settings)
        except (AttributeError, ImportError, TypeError, ValueError) as error:
            self.unavailable = f"{type(error).__name__}: {error}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._restore is not None:
            self._restore()


def _remember_loggers() -> Callable[[], None]:
    """A function that puts level, propagation and handlers of every logger of torch's back, and torch's log choice."""
    from torch._logging import _internal

    chosen = _internal.log_state
    levels, artifacts = dict(chosen.log_qname_to_level), set(chosen.artifact_names)
    registry = _internal.log_registry
    names = [
        *registry.get_log_qnames(),
        *registry.get_artifact_log_qnames(),  # type: ignore[no-untyped-call]
        *registry.get_child_log_qnames(),  # type: ignore[no-untyped-call]
        TRACE_LOGGER,
    ]
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger, logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]

    def restore() -> None:
        chosen.log_qname_to_level.clear()
        chosen.log_qname_to_level.update(levels)
        chosen.artifact_names.clear()
        chosen.artifact_names.update(artifacts)
        for logger, level, propagate, handlers in before:
            logger.setLevel(level)
            logger.propagate = propagate
            logger.handlers[:] = handlers

    return restore
