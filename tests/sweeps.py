"""Sweeps written by hand: cells with the times that a test gives them."""

from __future__ import annotations

from collections.abc import Sequence

from kgprof import model as m
from tests.record import handmade

OK = m.Exit(outcome=m.Outcome.OK)
DEAD = m.Exit(outcome=m.Outcome.KILLED, message="SIGABRT")
EAGER = m.Cell(mode="eager", backend="eager")
DEFAULT = m.Cell(mode="default")
TUNED = m.Cell(mode="max-autotune")
QUESTION = m.SweepQuestion(
    workload="model.py:step",
    workload_args=(),
    strategy="step",
    device="cuda",
    device_name="NVIDIA H200",
    cpu_count=16,
    torch="2.11.0",
    seed=0,
    steps=20,
    warmup=1,
)


def cell(
    cell: m.Cell,
    *step_us: float,
    cold_s: Sequence[float] = (),
    warm_s: float = 1.0,
    memory: int = 1000,
) -> m.CellResult:
    """A process for each step, of which the first has cold caches; a further cold one for each
    further ``cold_s``."""
    processes = []
    for number, us in enumerate((*step_us, *[step_us[0]] * (len(cold_s) - 1)), start=1):
        cold = number == 1 or number > len(step_us)
        first_s = cold_s[0 if number == 1 else number - len(step_us)] if cold else warm_s
        times = m.CellTimes(
            start_s=(first_s + us / 1e6,),
            step_us=(us,),
            clock="perf_counter",
            frames=1,
            device_bytes=memory,
        )
        processes.append(m.CellProcess(number=number, cold=cold, exit=OK, measured=times))
    return m.CellResult(cell=cell, processes=tuple(processes))


def dead(cell: m.Cell) -> m.CellResult:
    gone = m.Skipped(reason="the process was killed: SIGABRT")
    process = m.CellProcess(
        number=1, cold=True, exit=DEAD, measured=gone, log="Fatal Python error: Aborted"
    )
    return m.CellResult(cell=cell, processes=(process,))


def started(cell: m.Cell) -> m.CellResult:
    """Of a script, a cold process alone; it compiled nothing."""
    times = m.CellTimes(start_s=(1.0,), step_us=(), clock="perf_counter", frames=0)
    return m.CellResult(
        cell=cell, processes=(m.CellProcess(number=1, cold=True, exit=OK, measured=times),)
    )


def sweep(*cells: m.CellResult) -> m.Sweep:
    return m.Sweep(
        schema_version=m.SWEEP_SCHEMA_VERSION,
        created_utc="2026-01-02T03:04:05+00:00",
        question=QUESTION,
        environment=handmade.ENVIRONMENT,
        cells=cells,
        interrupted=False,
        command=("kgprof", "sweep", "model.py:step"),
    )
