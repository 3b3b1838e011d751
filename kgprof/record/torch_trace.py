"""COMPILE: calls on a cold cache while torch's structured trace and its log artifacts are listened to."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record import kept_records, project_sources, store, timing
from kgprof.record.call_index import CallIndex
from kgprof.record.cuda_graph_log import CudaGraphLog
from kgprof.record.frame_hook import FrameHook
from kgprof.record.graph_hook import GraphHook
from kgprof.record.kept_records import as_lines, compilations, is_kept, write_records
from kgprof.record.skip_records import SkipRecords
from kgprof.record.source import Source, listening, unavailable
from kgprof.workloads.protocol import Session

TRACE_LOGGER = "torch.__trace"
LOG_ARTIFACTS = ("graph_breaks", "recompiles", "cudagraphs", "perf_hints")


def compile_pass(
    session: Session,
    device: torch.device,
    options: m.Options,
    *,
    records_to: Path,
    after_first_call: Callable[[], None] = lambda: None,
) -> m.CompilePass:
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
    return m.CompilePass(
        call_us=tuple(call_us),
        steady_from=options.warmup,
        compilations=listened.compilations(),
        capture_unavailable=listened.unavailable(),
    )


class CompileSources:
    """All that COMPILE listens to, each event labelled with the call in which it came."""

    def __init__(self, calls: CallIndex, project: ProjectFiles, *, to_stderr: bool = True) -> None:
        """``to_stderr``: torch's own words go there as well, where a child's log.txt takes them up."""
        self._trace = StructuredTrace(calls)
        self._frames, self._graphs = FrameHook(calls, project), GraphHook(calls)
        self._cuda_graphs = CudaGraphLog(calls)
        self.sources: tuple[Source, ...] = (
            *([TorchLogs()] if to_stderr else []),
            SkipRecords(),
            self._trace,
            self._frames,
            self._graphs,
            self._cuda_graphs,
        )

    def lines(self) -> Iterator[dict[str, Any]]:
        """Of the file of records, as far as they have come."""
        yield from as_lines(self._trace.records, left_out=self._trace.left_out)
        yield from self._frames.lines()
        yield from self._graphs.lines()
        yield from self._cuda_graphs.lines()

    def compilations(self) -> tuple[m.Compilation, ...]:
        return tuple(compilations(self._trace.records))

    def unavailable(self) -> tuple[m.Unavailable, ...]:
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


def _switched_off() -> tuple[m.Unavailable, ...]:
    by = compilation_switched_off_by(os.environ)
    return (m.Unavailable(capture="compilation", why=f"{by} is set, so torch.compile compiles nothing"),) if by else ()


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
        self.records: list[m.TraceRecord] = []
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
        self.records += [m.TraceRecord(metadata={"str": [name, number]}) for name, number in _names_given_out().items()]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handlers = logging.getLogger(TRACE_LOGGER).handlers
        if self._handler in handlers:
            handlers.remove(self._handler)

    def take(self, metadata: dict[str, Any], payload: str | None) -> None:
        if not is_kept(metadata, payload):
            return
        size = len(payload or "") + 200
        if self._bytes + size > kept_records.RECORDS_BYTES:
            self.left_out += 1
            return
        self._bytes += size
        self.records.append(m.TraceRecord(metadata=metadata, payload=payload, call=self._calls.current))


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
