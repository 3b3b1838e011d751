"""One child process: one run of one strategy in one mode, or the plan, or what is done once at the end.

Started by children.py as ``python -P -c BOOTSTRAP <folder of kgprof> <job.json> <fd for events>``. What it measures
goes to the Recording pass by pass; what it is doing goes to the parent as JSON lines; what anything prints goes to the
log.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

import kgprof
from kgprof import model as m
from kgprof.errors import KgprofError
from kgprof.reading import layout, recordings
from kgprof.record import project_sources, store
from kgprof.record.failure import describe_failure
from kgprof.record.job import Done, Event, Job, Phase, Task, not_asked_for

PR_SET_PDEATHSIG = 1  # linux/prctl.h
EAGER_STEPS = 3  # that have to call the same operators from the same lines


class Events:
    """JSON lines to the parent, and the same phase as a heading in the log."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._stream = os.fdopen(descriptor, "wb", buffering=0)

    def send(self, event: Event) -> None:
        self._stream.write(msgspec.json.encode(event) + b"\n")

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.send(Phase(name=name))
        sys.stdout.flush()
        print(f"[kgprof: {name}]", file=sys.stderr, flush=True)  # noqa: T201
        yield
        sys.stdout.flush()


def main(job_file: str, descriptor: str) -> None:
    """Exit code 0 when everything asked for is written; the parent reads the rest from the events."""
    kgprof._profiled = True  # before the workload is imported: its kgprof.watch would listen in every pass
    events = Events(int(descriptor))
    job = m.decode_json(Path(job_file).read_bytes(), Job)
    end_with_the_parent(job.parent_pid)
    make_crashes_speak()
    try:
        code = TASKS[job.task](job, events)
    except BaseException as error:  # noqa: BLE001  this is the end of the process: everything is told to the parent
        failed = describe_failure(error)
        print(failed.traceback, file=sys.stderr, flush=True)  # noqa: T201
        events.send(failed)
        sys.exit(1)
    if code is not None:
        sys.exit(code)  # of a program; it has said itself how it ended
    events.send(Done())


def end_with_the_parent(parent_pid: int) -> None:
    """A parent that is killed outright cannot end its children; on Linux the kernel does it for it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit("the parent is gone")


def make_crashes_speak() -> None:
    """A segmentation fault prints its Python stack; SIGUSR1 (sent before a time-out ends the child) does so as well."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)
    for stream in (sys.stdout, sys.stderr):
        # In blocks, a killed child would take its last words with it, and stdout would come after stderr.
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]


# ---------------------------------------------------------------- the tasks


def plan(job: Job, events: Events) -> None:
    from kgprof.record.planning import make_plan, unloaded_plan

    def write(answer: m.Plan) -> None:
        with store.replacing(Path(job.answer)) as partial:
            partial.write_bytes(m.encode_json(answer))

    with events.phase("plan"):
        seed_everything(job.options.seed)
        unloaded = unloaded_plan(job)
        write(unloaded)  # a workload that dies while it is loaded is a run that died, and no plan that failed
        write(make_plan(job, unloaded))


def measure(job: Job, events: Events) -> None:
    """Child A, from the import of the workload on with the backend that was asked for."""
    from kgprof.workloads.backend import in_place_of_inductor

    with in_place_of_inductor(job.options.backend):
        measure_passes(job, events)


def measure_passes(job: Job, events: Events) -> None:
    """Every pass on the same compiled code, the instruments one after the other."""
    from kgprof.record.compiled_kernels import compiled_kernels
    from kgprof.record.host_profiler import host_pass
    from kgprof.record.stack_profiler import calls_of, stack_pass
    from kgprof.record.timing import timing_pass
    from kgprof.record.torch_profiler import trace_pass
    from kgprof.record.torch_trace import compile_pass
    from kgprof.workloads.protocol import EvaluationSession

    run = Run(job, events)
    folder, options, device, session = run.folder, job.options, run.device, run.session
    evaluates = isinstance(session, EvaluationSession)

    with events.phase(m.PassName.COMPILE):
        records, first = folder / layout.TRACE_RECORDS, (lambda: None) if evaluates else run.write_result
        run.write(
            m.PassName.COMPILE, compile_pass(session, device, options, records_to=records, after_first_call=first)
        )
    if run.wants(m.PassName.TIMING):
        with events.phase(m.PassName.TIMING):
            timing, evaluation = timing_pass(session, device, options)
            run.write(m.PassName.TIMING, timing)
            run.write_evaluation(evaluation, evaluates)
        if evaluates:
            run.write_result()
    if run.wants(m.PassName.TRACE):
        with events.phase(m.PassName.TRACE):
            run.write(
                m.PassName.TRACE, trace_pass(session, device, options, folder / layout.TRACE_FILES[m.PassName.TRACE])
            )
        store.write_compiled_kernels(run.recording, run.key, compiled_kernels(device))
    if run.wants(m.PassName.HOST):
        with events.phase(m.PassName.HOST):
            run.write(m.PassName.HOST, host_pass(session, device, options))
    if run.wants(m.PassName.STACK):
        with events.phase(m.PassName.STACK):
            calls = calls_of(recordings.read_pass(run.recording, run.key, m.PassName.HOST, m.HostPass))
            path = folder / layout.TRACE_FILES[m.PassName.STACK]
            run.write(m.PassName.STACK, stack_pass(session, device, options, path, calls_a_step=calls))


def timing_round(job: Job, events: Events) -> None:
    """TIMING of the same run once more, and nothing else."""
    from kgprof.record.rounds import timed_round
    from kgprof.workloads.backend import in_place_of_inductor

    with in_place_of_inductor(job.options.backend):
        run = Run(job, events)
        timed = timed_round(run.session, run.device, run.options, events.phase)
    store.write_round(run.recording, run.key, job.round, timed)


def script(job: Job, events: Events) -> int:
    """A whole program, up to its last line; its exit code. The interpreter does the rest (kgprof.record.script)."""
    from kgprof.record import script as scripts

    rerun = len(job.options.passes) == 1 and not job.options.for_a_gate
    with events.phase(job.options.passes[0] if rerun else "script"):
        return scripts.run(job, events.send)


def probe(job: Job, events: Events) -> None:
    """Child B: the same run compiled anew under the probes, and with Inductor's C++ kernels visible to the profiler."""
    from kgprof.record.kernel_provenance import KernelProvenance
    from kgprof.record.torch_profiler import profile_cpp_kernels
    from kgprof.workloads.backend import in_place_of_inductor

    unavailable = (
        profile_cpp_kernels() if job.kernels else ""
    )  # before the workload is loaded: it may compile on import
    provenance = KernelProvenance(project_sources.project_files(job.options.workload))
    with in_place_of_inductor(job.options.backend), provenance:
        run = Run(job, events)
        probe_memory(run, events)
        eager = eager_calls(run)
    store.write_kernel_origins(run.recording, run.key, provenance.answer(eager))
    if unavailable:
        run.write(m.PassName.KERNELS, m.Skipped(reason=unavailable))
    elif job.kernels:
        trace_kernels(run, events)


def probe_memory(run: Run, events: Events) -> None:
    """MEMORY, or as many calls without it as KERNELS needs for the same shapes to have been seen."""
    from kgprof.record.memory import memory_pass

    if not run.wants(m.PassName.MEMORY):
        for _ in range(run.options.steps):
            run.session.step()
        return
    with events.phase(m.PassName.MEMORY):
        project = project_sources.project_files(run.options.workload)
        run.write(m.PassName.MEMORY, memory_pass(run.session, run.device, run.options, project=project))


def eager_calls(run: Run) -> tuple[m.KernelOrigin, ...]:
    """The lines of what the program calls between its compiled graphs; a device's trace has no other way to them."""
    from kgprof.record.call_index import CallIndex
    from kgprof.record.eager_calls import EagerCalls

    calls = CallIndex()
    with EagerCalls(calls, project_sources.project_files(run.options.workload)) as watching:
        for _ in range(EAGER_STEPS):
            with calls.call():
                run.session.step()
    return watching.origins()


def trace_kernels(run: Run, events: Events) -> None:
    from kgprof.record.torch_profiler import trace_pass

    with events.phase(m.PassName.KERNELS):
        path = run.folder / layout.TRACE_FILES[m.PassName.KERNELS]
        traced = trace_pass(run.session, run.device, run.options, path, cpp_kernel_profile=True)
        run.write(m.PassName.KERNELS, traced)


def agreement(job: Job, events: Events) -> None:
    """Every run's result vector against the baseline's, judged by the workload."""
    from kgprof.workloads import loading
    from kgprof.workloads.protocol import ComparableWorkload

    with events.phase("agreement"):
        asked = planned(job)
        workload = loading.load(job.options.workload, job.options.workload_args, job.options.seed)
        if not isinstance(workload, ComparableWorkload):
            raise KgprofError(f"{workload.name} was comparable when the plan was made and is no longer")
        recording = Path(job.recording)
        results = {key: found for key in asked.runs if (found := recordings.read_result(recording, key)) is not None}
        judged = workload.agreement(results, asked.baseline)
        without = [(key, m.Skipped(reason="the run left no result")) for key in asked.runs if key not in results]
        store.write_agreement(recording, m.Agreement(baseline=judged.baseline, runs=(*judged.runs, *without)))


def ceilings(job: Job, events: Events) -> None:
    """What the card does at most, when nothing else runs on it."""
    import torch

    from kgprof.record.ceilings import measure_ceilings

    with events.phase("ceilings"):
        store.write_ceilings(Path(job.recording), measure_ceilings(torch.device(planned(job).device)))


TASKS: Mapping[Task, Callable[[Job, Events], int | None]] = {
    Task.PLAN: plan,
    Task.SCRIPT: script,
    Task.MEASURE: measure,
    Task.PROBE: probe,
    Task.ROUND: timing_round,
    Task.AGREEMENT: agreement,
    Task.CEILINGS: ceilings,
}


# ---------------------------------------------------------------- what they share


class Run:
    """A prepared session, and where its passes go."""

    def __init__(self, job: Job, events: Events) -> None:
        import torch

        from kgprof.workloads import loading

        if job.key is None:
            raise KgprofError(f"a {job.task} job without a run")
        self.key: m.RunKey = job.key
        self.options: m.Options = job.options
        self.recording = Path(job.recording)
        self.folder = layout.run_folder(self.recording, self.key)
        self.device = torch.device(planned(job).device)
        with events.phase("prepare"):
            seed_everything(job.options.seed)
            workload = loading.load(job.options.workload, job.options.workload_args, job.options.seed)
            self.session = workload.prepare(self.key, self.device)

    def write(self, name: m.PassName, value: m.Model) -> None:
        store.write_pass(self.recording, self.key, name, value)

    def wants(self, name: m.PassName) -> bool:
        """Otherwise it is written down that nobody asked for it."""
        if self.options.wants(name):
            return True
        skipped = m.Skipped(reason=not_asked_for(self.options, name))
        self.write(name, skipped)
        if name is m.PassName.TIMING:
            store.write_evaluation(self.recording, self.key, skipped)
        return False

    def write_evaluation(self, evaluation: m.Evaluation | None, evaluates: bool) -> None:
        why = "its evaluate() counts no units of work" if evaluates else "the workload has no evaluation"
        store.write_evaluation(self.recording, self.key, evaluation or m.Skipped(reason=why))

    def write_result(self) -> None:
        """Leaves nothing when there is nothing to compare."""
        from kgprof.workloads.protocol import ResultSession

        if isinstance(self.session, ResultSession) and (arrays := self.session.result()):
            store.write_result(self.recording, self.key, arrays)


def planned(job: Job) -> m.Plan:
    if job.plan is None:
        raise KgprofError(f"a {job.task} job without a plan")
    return job.plan


def seed_everything(seed: int) -> None:
    """Every run of a Recording starts from the same random numbers."""
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
