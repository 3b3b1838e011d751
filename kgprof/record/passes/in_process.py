"""COMPILE and MEMORY of the running program, at once and without a Recording on disk: what
``kgprof.watch`` listens to.

The sources are those of the two passes, entered once and left when watching ends, because Dynamo
takes up what stands around a compiled graph only when it compiles it. One process has one
dispatcher and one Dynamo, so one thing watches at a time.
"""

from __future__ import annotations

import hashlib
import linecache
import platform
import time
import warnings
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack

import torch
from msgspec.structs import replace

from kgprof import model as m
from kgprof.errors import UsageError
from kgprof.reading.project import ProjectFiles
from kgprof.reading.recordings import records_of
from kgprof.record.files import foreign
from kgprof.record.ground import project_sources
from kgprof.record.ground.flags import flags
from kgprof.record.ground.job import describe_failure
from kgprof.record.ground.source import unavailable
from kgprof.record.ground.tensor_memory import answer
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.syncs import Syncs
from kgprof.record.listeners.tensor_probe import Buffers, TensorProbe
from kgprof.record.passes.memory import files_named
from kgprof.record.passes.torch_trace import CompileSources

WORKLOAD = "kgprof.watch"
_NOT_HERE = m.Skipped("kgprof.watch does not run this pass")

_listening: list[InProcess] = []  # one at most


class InProcess:
    """Listens from ``begin`` to ``end``. Steps are told by ``step_begins`` and ``step_ends``."""

    def __init__(
        self,
        name: str,
        *,
        device: torch.device,
        warmup: int,
        files: Iterable[str],
        buffers: Buffers | None,
    ) -> None:
        """``files``: in which what is watched stands, as code objects name them; "<stdin>" is
        one."""
        self._files = tuple(files)
        self._name, self._device, self._warmup = name, device, warmup
        libraries = project_sources.project_files(WORKLOAD)
        typed = [file for file in self._files if file.startswith("<")]
        self._project = ProjectFiles(libraries=libraries.libraries, own=(*libraries.own, *typed))
        self._calls = CallIndex()
        self._compile = CompileSources(self._calls, self._project, to_stderr=False)
        self._syncs = Syncs(self._calls, device, self._project)
        self._tensors = TensorProbe(self._calls, buffers)
        self._began_utc = foreign.now_utc()
        self._step_us = array("d")
        self._step: AbstractContextManager[None] | None = None
        self._step_began = 0
        self._failure: BaseException | None = None
        self._stack = ExitStack()
        self.in_block = False  # of a with statement, which alone may end it
        self.over = False
        self.replaced_by = ""  # what is watched in its place

    @property
    def steps(self) -> int:
        """That are over, also by an exception."""
        return len(self._step_us)

    def begin(self) -> None:
        """What was watched gives way, and a warning says so. Raises UsageError inside its
        with-block or its step."""
        for before in tuple(_listening):
            if before.in_block or before._step is not None:
                raise UsageError(
                    f"{before._name} is already being watched; a process can watch one thing at a "
                    "time",
                    hint="Leave its with-block or call its stop() first.",
                )
            before.end()
            before.replaced_by = self._name
            instead = f"kgprof.watch: {self._name} is watched from now on instead of {before._name}"
            warnings.warn(f"{instead}; a process can watch one thing at a time", stacklevel=4)
        with ExitStack() as stack:
            for source in (*self._compile.sources, self._syncs, self._tensors):
                stack.enter_context(source)
            self._stack = stack.pop_all()
        _listening.append(self)

    def end(self) -> None:
        self.over = True
        if self in _listening:
            _listening.remove(self)
            self._stack.close()

    # ------------------------------------------------------------ steps

    def step_begins(self) -> None:
        self._step = self._calls.call()
        self._step.__enter__()
        self._step_began = time.perf_counter_ns()

    def step_ends(self, error: BaseException | None = None) -> None:
        """Nothing where none has begun. What a step that raised left behind is not compared with
        the step after."""
        if self._step is None:
            return
        self._step_us.append((time.perf_counter_ns() - self._step_began) / 1e3)
        step = self._step
        self._step = None
        if error is None:
            step.__exit__(None, None, None)
        else:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        self._failure = error

    # ------------------------------------------------------------ what came of it

    def recording(self) -> m.Recording:
        """As far as it has come."""
        key = m.RunKey(self._name, m.AS_IS)
        options = m.Options(
            WORKLOAD,
            steps=self.steps,
            warmup=self._warmup,
            device=self._device.type,
            passes=(m.PassName.COMPILE, m.PassName.MEMORY),
        )
        environment = _environment(self._device)
        why = _NOT_HERE.reason
        plan = foreign.as_it_stands(WORKLOAD, (key,), self._device.type, environment, reason=why)
        header = m.RecordingHeader(
            schema_version=m.RECORDING_SCHEMA_VERSION,
            created_utc=self._began_utc,
            command=(WORKLOAD, self._name),
            options=options,
            plan=plan,
        )
        return m.Recording(folder="", header=header, runs=(self._run(key),), agreement=_NOT_HERE)

    def _run(self, key: m.RunKey) -> m.RunRecord:
        lines = list(self._compile.lines())
        files = [line["frame"]["file"] for line in lines if "frame" in line]
        records = records_of(
            lines, self._typed(project_sources.gather(lines, self._project, imported=True), files)
        )
        ended = m.Exit(m.Outcome.OK, exit_code=0)
        if self._failure is not None:
            failed = describe_failure(self._failure)
            ended = m.Exit(
                m.Outcome.RAISED,
                failed.message,
                traceback=failed.traceback,
                exit_code=1,
            )
        read = self._syncs.records()
        held = self._tensors.records()
        named = (*self._files, *files_named(read, held))
        return m.RunRecord(
            key=key,
            exit=ended,
            probe_exit=None,
            compile=self._compile.answer(self._step_us, self._warmup),
            timing=_NOT_HERE,
            trace=_NOT_HERE,
            host=_NOT_HERE,
            stack=_NOT_HERE,
            kernels=_NOT_HERE,
            evaluation=_NOT_HERE,
            log="",
            records=records,
            memory=m.MemoryPass(
                step_us=tuple(self._step_us),
                steady_from=self._warmup,
                syncs=read,
                tensors=held,
                peaks=m.Skipped("kgprof.watch shares its process with other code"),
                sources=self._typed(project_sources.of_files(named, self._project), named),
                capture_unavailable=unavailable((self._syncs, self._tensors)),
            ),
        )

    def _typed(self, sources: m.Sources, files: Iterable[str]) -> m.Sources:
        """With what was typed into a REPL or a notebook: Python keeps such text in ``linecache``
        alone."""
        found = dict(sources.files)
        for file in files:
            if (
                file not in found
                and self._project.holds(file)
                and (text := "".join(linecache.getlines(file)))
            ):
                found[file] = m.SourceFile(
                    sha256=hashlib.sha256(text.encode()).hexdigest(), text=text
                )
        return replace(sources, files=found)


def _environment(device: torch.device) -> m.Environment:
    """What is there without a process of its own or a look at the machine: this is made in the
    middle of a test."""
    return foreign.environment(
        reason="not collected by kgprof.watch",
        device_name=torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else platform.processor(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        cuda=torch.version.cuda or m.Skipped("torch was built without CUDA"),
        cpu_name=platform.processor(),
        torch_threads=torch.get_num_threads(),
        platform=platform.platform(),
        flags=flags(),
    )


# ---------------------------------------------------------------- what a user hands over


def is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def device_of(device: str, values: Iterable[object]) -> torch.device:
    """``device``, or for "auto" that of the first tensor among ``values`` (one level of containers
    and a module's parameters included); a GPU where there is one and no tensor says otherwise."""
    if device != "auto":
        return torch.device(device)
    for value in values:
        inside: Iterable[object] = (value,)
        if isinstance(value, torch.nn.Module):
            inside = (*value.parameters(), *value.buffers())
        elif isinstance(value, Mapping):
            inside = value.values()
        elif isinstance(value, Sequence) and not isinstance(value, str):
            inside = value
        for tensor in inside:
            if (
                isinstance(tensor, torch.Tensor)
                and (found := answer(tensor, lambda one: one.device)) is not None
            ):
                return found
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
