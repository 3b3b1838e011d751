"""One child process: one run of one strategy in one mode, or the plan, or what is done once at the
end.

Started by children.py as ``python -P -c BOOTSTRAP <folder of kgprof> <job.json> <fd for events>``.
What it measures goes to the Recording pass by pass; what it is doing goes to the parent as JSON
lines; what anything prints goes to the log.
"""

import atexit
import ctypes
import faulthandler
import gc
import importlib
import os
import signal
import sys
import threading
import traceback
from _io import _IOBase
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import _TemporaryFileWrapper
from typing import Any

import msgspec
from msgspec.structs import replace

import kgprof
from kgprof import model as m
from kgprof.errors import KgprofError, OutputError, UsageError, WorkloadError
from kgprof.reading import layout, recordings
from kgprof.record.ground import project_sources, source, store
from kgprof.record.ground.alone import alone
from kgprof.record.ground.job import (
    PACKAGE,
    Checkout,
    Done,
    Event,
    Job,
    Phase,
    Task,
    asks_for_child_b,
    describe_failure,
    failure,
)
from kgprof.record.ground.run import Run, seed_everything
from kgprof.record.listeners.call_index import CallIndex

PR_SET_PDEATHSIG = 1  # linux/prctl.h
TRIES = 2  # of a write
IS_A, INTERRUPT = isinstance, KeyboardInterrupt  # a program may replace these
_interrupted: list[AbstractContextManager[object]] = []  # where a program raised KeyboardInterrupt
EAGER_STEPS = 3  # that have to call the same operators from the same lines


class Events:
    """JSON lines to the parent, and the same phase as a heading in the log of what is no
    program.

    Of a program the last words are a file. Where that cannot be written, the exit code says how it
    ended."""

    def __init__(self, descriptor: int, last_words: str) -> None:
        os.set_inheritable(descriptor, False)
        self.stream = os.fdopen(descriptor, "wb", buffering=0)
        self._last_words = Path(last_words) if last_words else None
        self._said = b""  # all of them, also what could not be written

    def send(self, event: Event) -> None:
        line = msgspec.json.format(m.encode_json(event), indent=-1) + b"\n"
        if self._last_words is None or isinstance(event, Phase):
            self.stream.write(line)
            return
        self._said += line
        for _ in range(TRIES):
            with suppress(OutputError):
                store.write_export(self._last_words, self._said)
                return

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.send(Phase(name))
        # what the workload printed; it may have set stdout to None
        print(end="", flush=True)  # noqa: T201
        if self._last_words is None:  # what a program writes to stderr is shown
            print(f"[kgprof: {name}]", file=sys.stderr, flush=True)  # noqa: T201
        yield
        print(end="", flush=True)  # noqa: T201


def main(job_file: str, descriptor: str) -> None:
    """Exit code 0 when everything asked for is written; the parent reads the rest from the
    events."""
    # before the workload is imported: its kgprof.watch would listen in every pass
    kgprof._profiled = True
    job = m.decode_json(Path(job_file).read_bytes(), Job)
    events = Events(int(descriptor), job.last_words)
    end_with_the_parent(job.parent_pid)
    # A segmentation fault prints its Python stack; SIGUSR1 (sent before a time-out ends the child)
    # does so as well.
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)
    for stream in (sys.stdout, sys.stderr):
        # In blocks, a killed child would take its last words with it, and stdout would come after
        # stderr.
        errors = stream.errors if job.task is Task.SCRIPT else "backslashreplace"
        stream.reconfigure(line_buffering=True, errors=errors)  # type: ignore[union-attr]
    # before installed packages, of which one may be an editable install of the other side
    if job.checkout is not None:
        own = [job.checkout.folder, *(str(path) for path in Path(job.checkout.folder).glob("src/"))]
        packages = ("site-packages", "dist-packages")
        installed = (at for at, path in enumerate(sys.path) if path.endswith(packages))
        at = next(installed, len(sys.path))
        sys.path[at:at] = own
    source.switched_off.update({each.capture: each.why for each in job.without})
    try:
        raised = TASKS[job.task](job, events)
    # this is the end of the process: everything is told to the parent
    except BaseException as error:  # noqa: BLE001
        failed = replace(describe_failure(error), failure=_failure(error, job))
        print(failed.traceback, file=sys.stderr, flush=True)  # noqa: T201
        events.send(failed)
        leave(1)
    if job.task is not Task.SCRIPT:
        events.send(Done())
        leave()
    elif raised is not None:
        raise raised  # by a program: the interpreter shows it and ends as it would without kgprof


def _failure(error: BaseException, job: Job) -> m.Failure | None:
    """Where the workload raised; of a step of COMPILE or MEMORY also in which one."""
    if isinstance(error, KgprofError) and not isinstance(error, WorkloadError):
        return None
    number = CallIndex.raised_in
    own = project_sources.project_files(job.options.workload)
    if number is None:
        return failure(error, own.holds)
    return failure(error, own.holds, number + 1, job.options.steps)


def leave(code: int = 0) -> None:
    """Ends the process as the interpreter does, but does not take its modules apart first: 1.3 s
    with Inductor's.

    What lies in the buffers of files that the workload left open is written, and its temporary
    files are deleted.
    """
    # Private names: what is public (a handler of atexit that is called last, and ends the process
    # there) would have to be registered first, before torch, which the fork server has imported
    # before it knows of any child.
    # waits for threads, as multiprocessing's children do
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    files = [
        each
        for each in gc.get_objects()
        if issubclass(type(each), (_IOBase, _TemporaryFileWrapper))
    ]
    for file in (sys.stdout, sys.stderr, *files):
        # its reader is gone, or the workload has closed it; the interpreter is as silent
        with suppress(Exception):
            (file.close if isinstance(file, _TemporaryFileWrapper) else file.flush)()
    ctypes.CDLL(None).fflush(None)  # what C code printed
    os._exit(code)


def end_with_the_parent(parent_pid: int) -> None:
    """A parent that is killed outright cannot end its children; on Linux the kernel does it for
    it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit("the parent is gone")


# ---------------------------------------------------------------- the tasks


def plan(job: Job, events: Events) -> None:
    """Raises UsageError where torch cannot be imported, WorkloadError where the workload raises
    what it is asked."""
    try:
        import torch  # noqa: F401
    except Exception as error:
        told = ", ".join(f"{name}={value}" for name, value in job.flags.items())
        hint = (
            f"python -c 'import torch' fails in the same way{f'; set are {told}' if told else ''}"
        )
        why = f"torch cannot be imported: {source.first_line(error)}"
        raise UsageError(why, hint=hint) from error
    from kgprof.record.processes.planning import make_plan, unloaded_plan

    with events.phase("plan"):
        seed_everything(job.options.seed)
        unloaded = unloaded_plan(job)
        # A workload that dies while it is loaded is a run that died, and no plan that failed.
        store.write_json(Path(job.answer), unloaded)
        try:
            made = make_plan(job, unloaded)
        except KgprofError:
            raise
        except Exception as error:
            own = project_sources.project_files(job.options.workload)
            workload = job.options.workload
            files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
            if not any(own.holds(file) and not file.startswith(str(PACKAGE)) for file in files):
                raise  # a fault of kgprof's
            raised = f"{workload} raised {type(error).__name__} while listing its runs: {error}"
            raise WorkloadError(raised) from error
        refuse_the_other_side(job.checkout)
        store.write_json(Path(job.answer), made)


def refuse_the_other_side(checkout: Checkout | None) -> None:
    """Raises WorkloadError where this side has imported a module from the other one, and would
    measure that."""
    if checkout is None or not checkout.other:
        return
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name.partition(".")[0] == "kgprof" or not file.startswith(checkout.other + os.sep):
            continue
        if not file.startswith((sys.prefix + os.sep, checkout.folder + os.sep)):
            where = f"the module {name} comes from the other side ({file})"
            raise WorkloadError(
                f"{where}: let sys.path find it in {checkout.folder} first (is PYTHONPATH set?)"
            )


def measure(job: Job, events: Events) -> None:
    """Child A: every pass on the same compiled code, the instruments one after the other.

    Where each kernel came from is noted beside COMPILE's own listeners, because Inductor lowers a
    graph then and never again; only if child B is to come, for whose passes it is wanted. What it
    costs: docs/reference.md.
    """
    from kgprof.record.ground.environment import ProbeWhenAsked
    from kgprof.record.listeners.kernel_provenance import KernelProvenance
    from kgprof.record.passes import control, torch_trace
    from kgprof.record.passes.control_flow_cache import ControlFlowCache
    from kgprof.workloads.backend import in_place_of_inductor

    if job.control:
        if job.setting is None or control.changes_something(job.setting):
            with in_place_of_inductor(job.options.backend):
                control.of_steps(Run(job, events.phase), Path(job.answer), job.setting)
        return
    for declared in m.PASSES.values():  # so that nothing is imported between two passes
        importlib.import_module(f"kgprof.record.passes.{declared.module}")
    isa_probe = ProbeWhenAsked(Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")))
    on_cpu = job.plan is not None and job.plan.device == "cpu"
    probed = asks_for_child_b(job.options)
    provenance = KernelProvenance(project_sources.project_files(job.options.workload))
    with in_place_of_inductor(job.options.backend), isa_probe if on_cpu else nullcontext():
        with ExitStack() as beside:
            if probed and job.compiles_its_run:
                beside.enter_context(provenance)
                beside.enter_context(ControlFlowCache(keeps=True))
            run = Run(job, events.phase)
            run.isa_probe_s = lambda: isa_probe.took_s
            # COMPILE always: what the others measure is the code that it compiles. It loads the
            # workload.
            torch_trace.measure(run)
        if probed:
            store.write_json(run.folder / layout.KERNEL_ORIGINS, provenance.answer())
        for name, declared in m.PASSES.items():
            if not declared.in_probe and name is not m.PassName.COMPILE and run.wants(name):
                measure_pass(run, name, events)


def measure_pass(run: Run, name: m.PassName, events: Events) -> None:
    module = importlib.import_module(f"kgprof.record.passes.{m.PASSES[name].module}")
    with events.phase(name):
        module.measure(run)


def timing_round(job: Job, events: Events) -> None:
    from kgprof.record.ground.turns import Turns
    from kgprof.record.passes.timing import timed_round, wall_us
    from kgprof.workloads.backend import in_place_of_inductor

    turns = Turns(job.turns, job.slice_steps)
    with in_place_of_inductor(job.options.backend):
        run = Run(job, events.phase)
        session = run.load()
        if job.cold:
            with events.phase("first call"):
                first_call_s = wall_us(session.step, run.device) / 1e6
            refuse_the_other_side(job.checkout)
            store.write_json(run.folder / layout.cold_name(job.round), first_call_s)
            return
        timed = timed_round(session, run.device, run.options, events.phase, turns)
    refuse_the_other_side(job.checkout)
    store.write_json(run.folder / f"{layout.round_name(job.round)}.json", timed)


def script(job: Job, events: Events) -> BaseException | None:
    """A whole program, up to its last line; what it raised. The interpreter does the rest
    (kgprof.record.passes.script)."""
    from kgprof.record.ground.own_terms import OwnTerms
    from kgprof.record.passes import control
    from kgprof.record.passes import script as scripts

    if job.setting is not None and not control.changes_something(job.setting):
        events.send(Done())
        return None
    rerun = job.options.passes[0] if job.is_rerun and not job.control else "script"
    rerun = "timing with compiling off" if job.runs_eagerly else rerun
    with events.phase("control" if job.control and job.setting is None else rerun):
        # else its number may be that of a file of the program's when Python closes it
        events.stream.close()
    raised = scripts.run(job, events.send)
    if IS_A(raised, INTERRUPT):  # no function of Python's: a program's trace function may raise
        _interrupted.append(OwnTerms())
    return raised


@atexit.register  # before torch is imported, which has handlers too
def _still_interrupted() -> None:
    """Called after all of torch's handlers. An unhandled KeyboardInterrupt ends Python by SIGINT,
    which it forgets when one of them executes text, as imports do; one more makes it remember."""
    for terms in _interrupted:
        with terms, suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def probe(job: Job, events: Events) -> None:
    """Child B: the same run captured anew under the probes, and the names of its C++ kernels.

    What child A compiled is in the caches: the probes look at how it is called.
    """
    from kgprof.record.listeners.eager_calls import EagerCalls
    from kgprof.record.listeners.kernel_provenance import Origins
    from kgprof.record.listeners.triton_stages import triton_stages
    from kgprof.record.passes import cpp_kernels, memory
    from kgprof.record.passes.control_flow_cache import ControlFlowCache
    from kgprof.workloads.backend import in_place_of_inductor

    if job.kernels:
        cpp_kernels.prepare()  # before the workload is loaded: it may compile on import
    with (
        in_place_of_inductor(job.options.backend),
        ControlFlowCache(keeps=False) if job.compiles_its_run else nullcontext(),
    ):
        run = Run(job, events.phase)
        if run.wants(m.PassName.MEMORY):  # it begins from a cold start, and loads the workload
            memory.measure(run)
        else:  # the passes after it need the same shapes to have been seen
            run.load()
            for _ in range(run.options.steps):
                run.session.step()
        for name, declared in m.PASSES.items():
            later = declared.in_probe and name not in (m.PassName.MEMORY, m.PassName.KERNELS)
            if later and run.wants(name):
                measure_pass(run, name, events)
        # The lines of what the program calls between its compiled graphs; a device's trace has no
        # other way to them.
        calls = CallIndex()
        with EagerCalls(calls, run.project) as eager:
            for _ in range(EAGER_STEPS):
                with calls.call():
                    run.session.step()
    file = run.folder / layout.KERNEL_ORIGINS
    compiled: Origins = m.Skipped("COMPILE did not end")
    if file.exists():
        kinds: Any = Origins
        compiled = m.decode_json(file.read_bytes(), kinds)
    store.write_json(file, eager.beside(compiled, triton_stages(run.device)))
    if job.kernels:
        with alone(job.beside):
            measure_pass(run, m.PassName.KERNELS, events)


def agreement(job: Job, events: Events) -> None:
    """Every run's result vector against the baseline's, judged by the workload."""
    from kgprof.workloads import loading
    from kgprof.workloads.protocol import ComparableWorkload

    asked = job.plan
    assert asked is not None
    with events.phase("agreement"):
        workload = loading.load(job.options.workload, job.options.workload_args, job.options.seed)
        if not isinstance(workload, ComparableWorkload):
            raise KgprofError(f"{workload.name} was comparable during planning but is not any more")
        recording = Path(job.recording)
        results = {
            key: found
            for key in asked.runs
            if (found := recordings.read_result(recording, key)) is not None
        }
        judged = workload.agreement(results, asked.baseline)
        without = [
            (key, m.Skipped("the run left no result")) for key in asked.runs if key not in results
        ]
        judged = m.Agreement(baseline=judged.baseline, runs=(*judged.runs, *without))
        store.write_json(recording / layout.AGREEMENT, judged)


def ceilings(job: Job, events: Events) -> None:
    import torch

    from kgprof.record.passes.ceilings import measure_ceilings

    assert job.plan is not None
    with events.phase("ceilings"):
        measured = measure_ceilings(torch.device(job.plan.device))
        store.write_json(Path(job.recording) / layout.CEILINGS, measured)


def trial(job: Job, events: Events) -> None:
    """Each answer replaces the one before it, whole: what a child that hangs or dies had found by
    then is kept."""
    module, _, name = job.function.partition(":")
    with events.phase("trial"):
        answer = getattr(importlib.import_module(module), name)
        answer(
            job.question.encode(),
            job.options,
            lambda found: store.write_json(Path(job.answer), found),
        )


TASKS: Mapping[Task, Callable[[Job, Events], BaseException | None]] = {
    Task.PLAN: plan,
    Task.SCRIPT: script,
    Task.MEASURE: measure,
    Task.PROBE: probe,
    Task.ROUND: timing_round,
    Task.AGREEMENT: agreement,
    Task.CEILINGS: ceilings,
    Task.TRIAL: trial,
}
