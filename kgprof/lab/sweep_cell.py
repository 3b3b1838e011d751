"""One process of a cell: the calls before steady state, steps under nothing but a clock, what
memory they took."""

import resource
import sys
import time

import msgspec
import torch
from msgspec.structs import replace

from kgprof import model as m
from kgprof.record.ground import project_sources
from kgprof.record.ground.run import seed_everything
from kgprof.record.ground.source import listening
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.passes import timing
from kgprof.record.passes.torch_trace import CompileSources
from kgprof.record.processes.trials import Write
from kgprof.workloads import loading
from kgprof.workloads.backend import as_in
from kgprof.workloads.protocol import Session

# What the stages of a compilation are read from.
SPANS = frozenset(
    ("str", "dynamo_start", "compilation_metrics", "bwd_compilation_metrics", "chromium_event")
)
GROUP_LEAST_S = 0.005  # of a group: what the first launch of it takes more is then below 1 %
GROUPS = 25  # of --steps steps: enough for a median that a stall of the machine does not move
FEWEST_STEPS = 3  # of a group
# another group of steps is begun only while it is expected to end within this; the first always is
GROUPS_S = 3.0


def measure(question: bytes, options: m.Options, write: Write) -> None:
    """Writes a CellAnswer three times: after the first calls, after the steps, and with the call
    after a reset."""
    asked = m.decode_json(question, m.CellQuestion)
    device = torch.device(asked.device)
    seed_everything(options.seed)
    with as_in(asked.cell, device.type):
        workload = loading.load(
            options.workload, (*options.workload_args, *asked.cell.size), options.seed
        )
        session = workload.prepare(m.RunKey(asked.strategy, asked.mode), device)
        if asked.cell.precision is m.Precision.TF32:  # a workload may have set its own
            torch.set_float32_matmul_precision("high")
        calls = CallIndex()
        count = max(1, options.warmup)
        listened = CompileSources(
            calls, project_sources.project_files(options.workload), to_stderr=False
        )
        step = calls.counted(session.step) if asked.cold else session.step
        with listening(listened.sources if asked.cold else ()):
            start_s = tuple(timing.wall_us(step, device) / 1e6 for _ in range(count))
        spans = tuple(
            replace(record, metadata=msgspec.to_builtins(record.metadata, enc_hook=str))
            for record in listened.records()
            if SPANS & record.metadata.keys()
        )
        started = timing.frames_seen_by_dynamo()
        times = m.CellTimes(
            start_s=start_s, step_us=(), clock=timing.clock_for(device).name, frames=started
        )
        write(m.CellAnswer(times, spans))
        if not asked.steady:
            return
        groups = steady_us(session, device, options.steps, step_s=start_s[-1])
        times = replace(
            times,
            step_us=groups,
            frames=timing.frames_seen_by_dynamo(),
            compiled_late=timing.frames_seen_by_dynamo() - started,
            device_bytes=torch.cuda.max_memory_reserved(device)
            if device.type == "cuda"
            else times.device_bytes,
            # KiB on Linux, bytes on macOS
            host_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            * (1 if sys.platform == "darwin" else 1024),
        )
        write(m.CellAnswer(times, spans))
        if asked.last and times.frames:
            torch.compiler.reset()
            times = replace(times, again_s=timing.wall_us(session.step, device) / 1e6)
            write(m.CellAnswer(times))


def steady_us(session: Session, device: torch.device, steps: int, *, step_s: float) -> timing.Times:
    """The mean step of each of up to GROUPS groups; the steps of a group need not be the same work.
    A group has fewer if a step, which takes about ``step_s``, is so long that one group would take
    more than half of the time, and more if it would be too short to be timed."""
    step_s = max(step_s, 1e-9)
    steps = min(
        max(steps, int(GROUP_LEAST_S / step_s)), max(FEWEST_STEPS, int(GROUPS_S / 2 / step_s))
    )
    groups: list[float] = []
    began = time.monotonic()
    longest = 0.0
    while len(groups) < GROUPS and time.monotonic() - began + longest <= GROUPS_S:
        group_began = time.monotonic()
        groups.append(group_us(session, device, steps))
        longest = max(longest, time.monotonic() - group_began)
    return tuple(groups)


def group_us(session: Session, device: torch.device, steps: int) -> float:
    """The mean step of one group. The clock reads both ends only: an event per step is a part of a
    short one."""
    clock = timing.clock_for(device)
    clock.prepare(1)
    session.step()  # as in TIMING: it finds the caches as what ran between the groups left them
    timing.synchronize(device)
    clock.start()
    for _ in range(steps):
        session.step()
    clock.tick()
    return clock.stop()[0] / steps
