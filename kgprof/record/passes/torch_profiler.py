"""TRACE and KERNELS: torch.profiler over ``--steps`` steps, exported as gzipped Kineto JSON.

No shapes and no stacks: they cost up to 1.8 times the step and silence cProfile; stacks have a pass
of their own (stack_profiler.py). The events are never read here: ``key_averages()`` takes 50 to 120
us an event, the exported file is read on the other side of the wall.
"""

import gzip
import shutil
import tempfile
import warnings
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from kgprof import model as m
from kgprof.reading import layout
from kgprof.record.ground import store
from kgprof.record.ground.run import Run
from kgprof.record.listeners.compiled_kernels import compiled_kernels
from kgprof.record.passes import timing
from kgprof.workloads.protocol import Session, Step

AWAITING = "kgprof: GPU sync"  # a span around the one synchronisation in the window that is ours
GZIP_LEVEL = 6  # that of the gzip command; 9 takes four times as long for a tenth less
Traced = m.TracePass | m.Skipped
TRACE_BYTES = 48 * 2**20  # gzipped; of the 64 MiB that a strategy may take


def measure(run: Run) -> None:
    """With what Triton made of the kernels in it, from the same process."""
    path = run.trace_path(m.PassName.TRACE)
    run.write(m.PassName.TRACE, trace_pass(run.session, run.device, run.options, path))
    store.write_json(run.folder / layout.COMPILED_KERNELS, compiled_kernels(run.device))


def trace_pass(
    session: Session,
    device: torch.device,
    options: m.Options,
    path: Path,
    *,
    cpp_kernel_profile: bool = False,
) -> Traced:
    """Profile ``--warmup`` steps that are thrown away and ``--steps`` that are kept; the trace goes
    to ``path``."""
    profiler, step_us = profiled(session, device, warmup=options.warmup, steps=options.steps)
    size = export(profiler, path)
    if size > TRACE_BYTES:
        path.unlink()
        return m.Skipped(
            f"the trace of {options.steps} steps takes {size} bytes, more than {TRACE_BYTES}"
        )
    return m.TracePass(
        step_us=step_us,
        trace_file=path.name,
        cpp_kernel_profile=cpp_kernel_profile,
    )


def export(profiler: profile, path: Path, mark: bytes = b"", put: bytes = b"") -> int:
    """The bytes that it takes. torch's own way to a .gz goes line by line and takes ten times as
    long; ours does only where ``put`` is to stand in place of ``mark``."""
    with store.replacing(path) as partial, tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(plain))
        with plain.open("rb") as text, gzip.open(partial, "wb", compresslevel=GZIP_LEVEL) as packed:
            if mark:
                packed.writelines(line.replace(mark, put) for line in text)
            else:
                shutil.copyfileobj(text, packed)
    return path.stat().st_size


def profiled(
    session: Session, device: torch.device, *, warmup: int, steps: int, with_stack: bool = False
) -> tuple[profile, timing.Times]:
    """The profiler's own warm-up (a first session in a process is dearer) and then the window, with
    each step's us.

    ``with_stack``: of STACK, whose times are none of the workload's: it records allocations too."""
    clock = timing.clock_for(device)
    with warnings.catch_warnings():
        # torch warns of what was asked for (--warmup 0), and that an earlier cycle's events are
        # cleared (there is one).
        warnings.filterwarnings("ignore", message="Profiler won't be using warmup")
        warnings.filterwarnings(
            "ignore", message=".*Profiler clears events at the end of each cycle.*"
        )
        window = schedule(wait=0, warmup=warmup, active=steps, repeat=1)
        profiler = profile(
            activities=activities(device),
            schedule=window,
            with_stack=with_stack,
            profile_memory=with_stack,
        )
        # What the device still has to do from before would lie in the window, so it is awaited
        # before each way into it.
        timing.synchronize(device)
        profiler.start()
        try:
            _run(warmup - 1, session.step, profiler.step)
            _run(min(warmup, 1), session.step, lambda: timing.synchronize(device), profiler.step)
            clock.start()
            _run(steps - 1, session.step, clock.tick, profiler.step)
            _run(1, session.step, clock.tick)
            await_the_last_step(device)
            profiler.step()
        finally:
            profiler.stop()
    return profiler, clock.stop()


def await_the_last_step(device: torch.device) -> None:
    """Its span must not end before the device has."""
    if device.type == "cuda":
        with record_function(AWAITING):
            timing.synchronize(device)


def _run(times: int, *calls: Step) -> None:
    for _ in range(times):
        for call in calls:
            call()


def activities(device: torch.device) -> list[ProfilerActivity]:
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
