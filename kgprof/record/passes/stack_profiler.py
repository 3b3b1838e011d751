"""STACK: torch.profiler with Python's stacks over a few steps, exported as gzipped Kineto JSON.

A few, because every call of a Python function is an event: some steps fill what TRACE takes for
twenty. Never beside cProfile: the two silently switch each other off.
"""

import gzip
from pathlib import Path

import torch

from kgprof import model as m
from kgprof.reading import recordings
from kgprof.record.ground.run import Run
from kgprof.record.passes.timing import Times
from kgprof.record.passes.torch_profiler import Traced, export, profiled
from kgprof.wording import plural
from kgprof.workloads.protocol import Session

STEPS = 5  # or --steps, where that is fewer
WARMUP = 1
MOST_CALLS = 2_000_000  # of functions, over all steps: an event each, with some 300 bytes in memory
STACK_BYTES = 12 * 2**20  # gzipped; of the 64 MiB that a strategy may take
NO_STACKS = (
    "capture Python stacks unavailable: torch.profiler's with_stack=True gave no python_function "
    "events (this torch has none, or another profiler held Python's hook)"
)
_PYTHON_EVENT = b'"python_function"'


def measure(run: Run) -> None:
    calls = calls_of(recordings.read_pass(run.recording, run.key, m.PassName.HOST, m.HostPass))
    path = run.trace_path(m.PassName.STACK)
    run.write(
        m.PassName.STACK, stack_pass(run.session, run.device, run.options, path, calls_a_step=calls)
    )


def stack_pass(
    session: Session,
    device: torch.device,
    options: m.Options,
    path: Path,
    *,
    calls_a_step: float = 0.0,
    most_bytes: int = STACK_BYTES,
) -> Traced:
    """As many of STEPS steps as are below MOST_CALLS and fit into ``most_bytes``; the trace goes to
    ``path``.

    ``calls_a_step``: as HOST counted them; 0 where it did not.
    """
    meant = min(options.steps, STEPS)
    if calls_a_step > MOST_CALLS:
        return m.Skipped(f"{too_many(1, calls_a_step)}, and each is one event")
    steps = max(1, min(meant, int(MOST_CALLS / calls_a_step) if calls_a_step else meant))
    cut = "" if steps == meant else fewer(too_many(meant, calls_a_step), meant)
    while True:
        profiler, step_us = profiled(
            session, device, warmup=min(options.warmup, WARMUP), steps=steps, with_stack=True
        )
        size = export(profiler, path)
        if size <= most_bytes:
            return kept(path, step_us, cut)
        path.unlink()
        if steps == 1:
            return m.Skipped(too_large(1, size, most_bytes))
        cut = fewer(too_large(steps, size, most_bytes), meant)
        steps = max(1, steps * most_bytes // size)


def calls_of(host: m.HostPass | None) -> float:
    """A step, in the functions that HOST lists; 0 where there is no HOST."""
    return sum(row.calls for row in host.rows) / len(host.step_us) if host and host.step_us else 0.0


def kept(path: Path, step_us: Times, cut: str = "") -> Traced:
    """A trace without stacks is none of this pass: it goes."""
    with gzip.open(path) as lines:
        has_stacks = any(_PYTHON_EVENT in line for line in lines)
    if not has_stacks:
        path.unlink()
        return m.Skipped(NO_STACKS)
    return m.TracePass(step_us=step_us, trace_file=path.name, cpp_kernel_profile=False, cut=cut)


def fewer(why: str, meant: int) -> str:
    return f"{why}, so fewer of the {plural(meant, 'step')} were kept"


def too_many(steps: int, calls_a_step: float) -> str:
    calls = f"{round(steps * calls_a_step):,} calls of functions, more than {MOST_CALLS:,}"
    return f"{plural(steps, 'step')} {'makes' if steps == 1 else 'make'} {calls}"


def too_large(steps: int, size: int, most_bytes: int) -> str:
    return f"the trace of {plural(steps, 'step')} takes {size:,} bytes, more than {most_bytes:,}"
