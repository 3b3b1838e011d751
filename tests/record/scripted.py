"""Runs a few lines of Python as kgprof runs a script, in a child of its own, and reads back what
that left."""

from __future__ import annotations

import os
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from kgprof.model import (
    RECORDING_SCHEMA_VERSION,
    CompilePass,
    Exit,
    Options,
    PassName,
    Plan,
    RecordingHeader,
    RunKey,
    RunRecord,
    ScriptRun,
    Skipped,
    StrategyPlan,
)
from kgprof.reading import layout, recordings
from kgprof.record.ground import store
from kgprof.record.ground.job import Job, Task
from kgprof.record.processes import children
from kgprof.record.processes.children import Caches, Start
from tests.record import one_server
from tests.record.handmade import ENVIRONMENT

KEY = RunKey(strategy="program", mode="as-is")
CAPTURED = (PassName.COMPILE, PassName.TRACE)
COMPILES = """
import torch

@torch.compile(backend="eager", dynamic=False)
def doubled(x):
    return x * 2
"""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What one run of a program came to."""

    exit: Exit
    run: RunRecord
    echoed: str
    folder: Path = field(repr=False)

    @property
    def script(self) -> ScriptRun:
        assert self.run.script is not None
        return self.run.script

    @property
    def compiled(self) -> CompilePass:
        assert isinstance(self.run.compile, CompilePass)
        return self.run.compile

    @property
    def notes(self) -> str:
        return "\n".join(self.script.notes)


def ran(
    folder: Path,
    text: str,
    *args: str,
    workload: str = "",
    passes: tuple[PassName, ...] = CAPTURED,
    steps: int = 20,
    warmup: int = 3,
    timeout_s: float = 120.0,
    max_steps: int | None = None,
    duration_s: float | None = None,
    traces_all: bool = False,
    ends_as_python: bool = False,
) -> Ran:
    """``text`` is the program; ``workload`` is what the user called it, where that is not the
    file's path. Python's own end takes a second more, where torch's modules are taken apart."""
    file = folder / "program.py"
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    options = Options(
        workload=workload or str(file),
        workload_args=args,
        passes=passes,
        steps=steps,
        warmup=warmup,
        timeout_s=timeout_s,
        max_steps=max_steps,
        duration_s=duration_s,
    )
    header = RecordingHeader(
        schema_version=RECORDING_SCHEMA_VERSION,
        created_utc="2026-01-02T03:04:05+00:00",
        command=("kgprof",),
        options=options,
        plan=plan(options),
    )
    recording = folder / "out" / layout.FOLDER
    store.create(recording, header)
    echoed: list[bytes] = []
    job = Job(
        task=Task.SCRIPT,
        options=options,
        parent_pid=os.getpid(),
        recording=str(recording),
        key=KEY,
        plan=header.plan,
        traces_all=traces_all,
    )
    log = layout.run_folder(recording, KEY) / layout.LOG
    caches = Caches(folder=folder / "caches")
    with one_server.imports_shared(ends_as_python=ends_as_python):
        ended = children.run(
            Start(job=job, scratch=folder, log=log, caches=caches), echo=echoed.append
        ).exit
    store.write_exit(recording, KEY, ended)
    (run,) = recordings.load(recording).runs
    return Ran(exit=ended, run=run, echoed=b"".join(echoed).decode(), folder=recording)


def plan(options: Options) -> Plan:
    return Plan(
        workload=options.workload,
        strategies=(StrategyPlan(name=KEY.strategy, modes=(KEY.mode,)),),
        runs=(KEY,),
        baseline=None,
        device="cpu",
        environment=ENVIRONMENT,
        vector_isa_probe_s=Skipped(reason="not probed"),
        agreement=False,
    )
