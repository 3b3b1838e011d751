"""A prepared session, and where its passes go: what ``measure(run)`` of every pass is given."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kgprof import model as m
from kgprof.reading import layout
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground import project_sources, store
from kgprof.record.ground.job import Job, not_asked_for

if TYPE_CHECKING:
    from kgprof.workloads.protocol import Session


class Place:
    def __init__(self, job: Job) -> None:
        import torch

        assert job.key is not None  # a job of a run has it, and a plan
        assert job.plan is not None
        self.key: m.RunKey = job.key
        self.options: m.Options = job.options
        self.code_cached = job.code_cached
        self.beside = job.beside
        self.recording = Path(job.recording)
        self.folder = layout.run_folder(self.recording, self.key)
        self.device = torch.device(job.plan.device)

    @cached_property
    def project(self) -> ProjectFiles:
        return project_sources.project_files(self.options.workload)

    def trace_path(self, name: m.PassName) -> Path:
        return self.folder / layout.TRACE_FILES[name]

    def write(self, name: m.PassName, value: m.Model) -> None:
        store.write_pass(self.recording, self.key, name, value)


class Run(Place):
    """One strategy in one mode, ready to step once it is loaded.

    The pass that comes first loads it, so that its sources also hear what compiles while the
    workload is imported.
    """

    session: Session
    evaluates = False

    def __init__(self, job: Job, phase: Callable[[str], AbstractContextManager[None]]) -> None:
        super().__init__(job)
        self.phase = phase
        # what Inductor's probe of the CPU has taken so far
        self.isa_probe_s: Callable[[], float] = lambda: 0.0

    def load(self) -> Session:
        """Raises WorkloadError where the workload cannot be loaded."""
        from kgprof.workloads import loading
        from kgprof.workloads.protocol import EvaluationSession

        options = self.options
        with self.phase("prepare"):
            seed_everything(options.seed)
            workload = loading.load(options.workload, options.workload_args, options.seed)
            self.session = workload.prepare(self.key, self.device)
        self.evaluates = isinstance(self.session, EvaluationSession)
        return self.session

    def wants(self, name: m.PassName) -> bool:
        """Otherwise the Recording says that nobody asked for it."""
        if why := not_asked_for(self.options, name):
            self.write(name, m.Skipped(why))
            if name is m.PassName.TIMING:
                store.write_json(self.folder / layout.EVALUATION, m.Skipped(why))
        return not why

    def write_result(self) -> None:
        """Leaves nothing when there is nothing to compare."""
        from kgprof.workloads.protocol import ResultSession

        if isinstance(self.session, ResultSession) and (arrays := self.session.result()):
            store.write_result(self.recording, self.key, arrays)


def seed_everything(seed: int) -> None:
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
