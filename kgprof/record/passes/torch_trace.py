"""COMPILE: calls on a cold cache while torch's structured trace and its log artifacts are listened
to."""

import gc
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec.structs import replace as replaced

from kgprof import model as m
from kgprof.reading import layout
from kgprof.reading.compile_calls import sets_true
from kgprof.reading.project import ProjectFiles
from kgprof.reading.structured_trace import compile_id
from kgprof.record.ground import kept_records, project_sources, store
from kgprof.record.ground.kept_records import Lines, as_lines, compilations, write_records
from kgprof.record.ground.run import Run
from kgprof.record.ground.source import LogListener, Source, aside, listening, replace, unavailable
from kgprof.record.listeners import skip_records
from kgprof.record.listeners.autotuning import Autotuning
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.compiled_calls import CompiledCalls
from kgprof.record.listeners.cuda_graph_log import CudaGraphLog
from kgprof.record.listeners.earlier_code import EarlierCode
from kgprof.record.listeners.frame_hook import FrameHook
from kgprof.record.listeners.graph_hook import GraphHook
from kgprof.record.listeners.skip_records import SkipRecords
from kgprof.record.listeners.trace_payloads import TracePayloads
from kgprof.record.passes import memory, timing
from kgprof.workloads.protocol import Session

TRACE_LOGGER = "torch.__trace"
NOT_OUR_STEPS = m.Skipped("measured only if kgprof itself calls the steps")
NO_CACHE = m.CacheFolder(files=0, bytes=0)
LOG_ARTIFACTS = ("graph_breaks", "recompiles", "cudagraphs", "perf_hints")


def measure(run: Run) -> None:
    """Loads the run as well: what is compiled while the workload is imported is a part of COMPILE.
    In mode eager, in which that code does not run, the sources come after the import.

    The result of the first call is kept, where no evaluation will give one.
    """
    load = run.load
    if run.key.mode == m.EAGER:
        load = partial(lambda session: session, run.load())

    def after_first_call() -> None:
        if not run.evaluates:
            run.write_result()

    compiled = compile_pass(
        load,
        run.device,
        run.options,
        records_to=run.folder / layout.TRACE_RECORDS,
        calling=run.phase(m.PassName.COMPILE),
        after_first_call=after_first_call,
        isa_probe_s=run.isa_probe_s,
    )
    run.write(m.PassName.COMPILE, compiled)


def compile_pass(
    load: Callable[[], Session],
    device: torch.device,
    options: m.Options,
    *,
    records_to: Path,
    calling: AbstractContextManager[None] | None = None,
    after_first_call: Callable[[], None] = lambda: None,
    isa_probe_s: Callable[[], float] = lambda: 0.0,
) -> m.CompilePass:
    """``--steps`` calls of what ``load`` gives, each timed as CompilePass says, without Inductor's
    probe of the CPU where a call asks for it first; the records that were kept go to
    ``records_to``.

    The sources listen while it loads, before the first call. ``calling`` is entered around the
    calls.
    """
    calls = CallIndex()
    project = project_sources.project_files(options.workload)
    listened = CompileSources(calls, project)
    cached = cache_folder()

    try:
        with listening(listened.sources), ExitStack() as again:
            session = load()
            listened.listen_again(again)
            step = calls.counted(session.step)

            def wall_us() -> float:
                probed_s = isa_probe_s()
                return timing.wall_us(step, device) - (isa_probe_s() - probed_s) * 1e6

            with calling or nullcontext():
                # what came before is imported modules and the workload's own, which stays
                gc.collect(1)
                peaks = memory.Peaks(device)
                call_us = [wall_us()]
                after_first_call()
                on_wall_clock = min(max(1, options.warmup), options.steps)
                call_us += [wall_us() for _ in range(on_wall_clock - 1)]
                compiling = peaks.answer()
                clock = timing.clock_for(device)
                call_us += timing.timed_steps(step, clock, options.steps - on_wall_clock)
    # of a workload that raised as well: where torch refused to compile, this says what and where
    finally:
        lines = list(listened.lines())
        write_records(records_to, lines)
        store.write_json(
            records_to.with_name(layout.SOURCES),
            project_sources.gather(lines, project, imported=True),
        )
    answer = listened.answer(call_us, options.warmup)
    before = compilations(
        record for record in listened.records() if record.call == m.BEFORE_THE_FIRST
    )
    while_loading_s = sum(
        each.duration_s for each in before if not isinstance(each.duration_s, m.Skipped)
    )
    return replaced(
        answer, compiling=compiling, cache=cache_folder(cached), while_loading_s=while_loading_s
    )


def cache_folder(before: m.CacheFolder = NO_CACHE) -> m.CacheFolder:
    """What Inductor's and Triton's caches of this process hold beyond ``before``; kgprof has made
    their folders."""
    folders = [os.environ.get(name, "") for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")]
    sizes = [
        path.stat().st_size
        for folder in folders
        if folder
        for path in Path(folder).rglob("*")
        if path.is_file()
    ]
    return m.CacheFolder(files=len(sizes) - before.files, bytes=sum(sizes) - before.bytes)


class CompileSources:
    """All that COMPILE listens to, each event labelled with the call in which it came."""

    def __init__(self, calls: CallIndex, project: ProjectFiles, *, to_stderr: bool = True) -> None:
        """``to_stderr``: torch's own words go there as well, where a child's log.txt takes them
        up."""
        self._project = project
        self._compiled_calls = CompiledCalls(calls, project)
        self._trace = StructuredTrace(calls, self._compiled_calls.compiling)
        self._frames = FrameHook(calls, project)
        self._graphs = GraphHook(calls, self._compiled_calls.runs)
        self._cuda_graphs = CudaGraphLog(calls)
        self._autotuning = Autotuning(calls)
        self._logs: tuple[Source, ...] = (*([TorchLogs()] if to_stderr else []), SkipRecords())
        self._earlier = EarlierCode(calls)
        self.sources: tuple[Source, ...] = (
            *self._logs,
            TracePayloads(),
            self._earlier,
            self._trace,
            self._frames,
            self._graphs,
            self._compiled_calls,
            self._cuda_graphs,
            self._autotuning,
        )

    def listen_again(self, undo: ExitStack) -> None:
        """Switches torch's logs on once more, where the program has chosen its own while it was
        loaded."""
        if not skip_records.are_written():
            for source in self._logs:
                undo.enter_context(type(source)())

    def records(self) -> Sequence[m.TraceRecord]:
        """Of torch's structured trace, those that are kept."""
        return self._trace.kept.records

    def lines(self) -> Lines:
        """The lines of the file of records, as far as they have come."""
        yield from as_lines(self._trace.kept.records, left_out=self._trace.kept.left_out)
        yield from self._frames.lines()
        yield from self._graphs.lines()
        if not self._graphs.unavailable:  # else every call would look eager
            yield from self._compiled_calls.lines()
        yield from self._cuda_graphs.lines()
        yield from ({"text": msgspec.to_builtins(text)} for text in self._trace.kept.texts)

    @property
    def was_asked(self) -> bool:
        """Whether a line of the program called torch.compile."""
        return bool(self._compiled_calls.asked)

    def _switched_off_by(self) -> str:
        """What keeps torch.compile from compiling anything; a setting of torch's with its line."""
        if by := compilation_switched_off_by():
            return by
        if not torch._dynamo.config.disable or any(compilations(self._trace.kept.records)):
            return ""
        files = project_sources.gather((), self._project, imported=True).files
        lines = ((Path(name).name, sets_true(files[name].text or "", "disable")) for name in files)
        places = [f" ({name}:{line})" for name, line in lines if line is not None]
        return f"torch._dynamo.config.disable{places[0] if places else ''}"

    def answer(
        self, call_us: Iterable[float], warmup: int, *lost: m.Unavailable, calls: int | None = None
    ) -> m.CompilePass:
        """The pass, as far as it has come; ``lost``: what else could not be seen."""
        by = self._switched_off_by()
        off = m.Unavailable(m.SWITCHED_OFF, f"{by} is set, so torch.compile compiles nothing")
        return m.CompilePass(
            call_us=tuple(call_us),
            steady_from=warmup,
            compilations=tuple(compilations(self._trace.kept.records)),
            capture_unavailable=(
                *unavailable(self.sources),
                *self._earlier.ran_unseen(),
                *((off,) if by else ()),
                *lost,
            ),
            calls=calls,
            autotuned=self._autotuning.answer(),
            compiling=NOT_OUR_STEPS,
            cache=NOT_OUR_STEPS,
            inductor={
                name: times
                for name, times in timing.dynamo_counters("inductor").items()
                if isinstance(times, int) and "cache" not in name
            },
        )


def compilation_switched_off_by() -> str:
    """``NAME=1`` of the variable that makes torch.compile do nothing, or an empty string."""
    switches = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
    return next((f"{name}=1" for name in switches if os.environ.get(name) == "1"), "")


class StructuredTrace(Source):
    """The records of torch.__trace, kept in memory until the pass is over."""

    name = "structured trace"

    def __init__(
        self, calls: CallIndex, compiling: Callable[[str], None] = lambda compile_id: None
    ) -> None:
        """``compiling`` is called with the id of each compilation that begins."""
        self.kept = kept_records.KeptRecords()
        self._calls = calls
        self._compiling = compiling

    def listen(self, undo: ExitStack) -> None:
        if TRACE_LOGGER not in logging.Logger.manager.loggerDict:
            self.unavailable = f"this torch has no logger {TRACE_LOGGER}"
            return

        LogListener(self._hear, kept_records.WANTED).stand_first(
            logging.getLogger(TRACE_LOGGER), undo
        )
        self._hear_resets(undo)
        from torch._logging.structured import INTERN_TABLE

        # A file's number is told once a process; these were before the pass began (a workload may
        # compile on import).
        self.kept.records += [
            m.TraceRecord({"str": [name, number]}) for name, number in INTERN_TABLE.items()
        ]

    @aside
    def _hear(self, record: logging.LogRecord) -> None:
        if isinstance(metadata := getattr(record, "metadata", None), dict):
            if "dynamo_start" in metadata:
                self._compiling(compile_id(metadata))
            self.kept.keep(metadata, getattr(record, "payload", None), self._calls.current)

    def _hear_resets(self, undo: ExitStack) -> None:
        """torch.compiler.reset() and torch._dynamo.reset() both come to this function by its
        name."""
        try:
            import torch._dynamo as dynamo

            original = dynamo.reset_code_caches
        except (ImportError, AttributeError) as error:
            self.lost = (
                "torch._dynamo.reset() is not seen, and compiled code counts as never "
                f"dropped ({error})"
            )
            return

        def reset_code_caches() -> None:
            self.kept.records.append(
                m.TraceRecord({m.DYNAMO_RESET: True}, call=self._calls.current)
            )
            original()

        replace(dynamo, "reset_code_caches", reset_code_caches, undo)


class TorchLogs(Source):
    """torch's own text about breaks, recompiles, CUDA graphs and performance hints, on stderr and
    so in log.txt."""

    name = "torch logs"

    def listen(self, undo: ExitStack) -> None:
        if "TORCH_LOGS" in os.environ:
            self.unavailable = "TORCH_LOGS is set, so the log follows it"
            return
        try:
            undo.callback(_remember_loggers())
            from torch._logging import set_logs  # type: ignore[attr-defined]

            settings: dict[str, Any] = dict.fromkeys(LOG_ARTIFACTS, True)
            set_logs(**settings)
        except (AttributeError, ImportError, TypeError, ValueError) as error:
            self.unavailable = f"{type(error).__name__}: {error}"


def _remember_loggers() -> Callable[[], None]:
    """A function that puts level, propagation and handlers of every logger of torch's back, and
    torch's log choice."""
    from torch._logging import _internal

    chosen = _internal.log_state
    levels = dict(chosen.log_qname_to_level)
    artifacts = set(chosen.artifact_names)
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
