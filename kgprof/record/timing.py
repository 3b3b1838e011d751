"""TIMING: nothing but a clock, and the clock that every other pass uses for its own steps.

The garbage collector stays on, because it runs in the workload's real life too; one collection before the first
sample keeps the garbage of an earlier pass out of them.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Protocol

import torch
from msgspec.structs import replace

from kgprof import model as m
from kgprof.record.machine_speed import MachineClock
from kgprof.workloads.protocol import EvaluationSession, Session

# A third evaluation, or a second group of steps, starts only while it is expected to end within this. The second
# evaluation is there for the spread, which one alone has not: it may take TIMING up to half of --timeout.
TIMING_BUDGET_S = 20.0
GROUPS = 5  # groups of ``--steps`` steps for a workload without evaluations
FIRST_DIFFERS = 1.25  # the first evaluation is remarked on when it took this many times the median of the others


class StepClock(Protocol):
    """``start`` once, then ``tick`` after every step; ``stop`` gives the microseconds of each step."""

    name: str

    def start(self) -> None: ...
    def tick(self) -> None: ...
    def stop(self) -> tuple[float, ...]: ...


class PerfCounterClock:
    """Host time between ticks."""

    name = "perf_counter"

    def start(self) -> None:
        self._stamps = [time.perf_counter_ns()]

    def tick(self) -> None:
        self._stamps.append(time.perf_counter_ns())

    def stop(self) -> tuple[float, ...]:
        pairs = zip(self._stamps, self._stamps[1:], strict=False)
        return tuple((later - earlier) / 1e3 for earlier, later in pairs)


class CudaEventClock:
    """Device time between ticks on the current stream. A tick does not synchronise and neither does ``start``."""

    name = "cuda events"

    def start(self) -> None:
        self._events: list[torch.cuda.Event] = []
        self.tick()

    def tick(self) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._events.append(event)

    def stop(self) -> tuple[float, ...]:
        torch.cuda.synchronize()
        pairs = zip(self._events, self._events[1:], strict=False)
        return tuple(earlier.elapsed_time(later) * 1e3 for earlier, later in pairs)


def clock_for(device: torch.device) -> StepClock:
    return CudaEventClock() if device.type == "cuda" else PerfCounterClock()


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed_steps(session: Session, clock: StepClock, count: int) -> tuple[float, ...]:
    """Microseconds of each of ``count`` steps."""
    step, tick = session.step, clock.tick
    clock.start()
    for _ in range(count):
        step()
        tick()
    return clock.stop()


def timing_pass(session: Session, device: torch.device, options: m.Options) -> tuple[m.TimingPass, m.Evaluation | None]:
    """Whole evaluations where the session has them, else groups of steps; and what the last evaluation found."""
    gc.collect()
    frames = _frames_seen_by_dynamo()
    if isinstance(session, EvaluationSession):
        timing, evaluation = _time_evaluations(session, device, options)
    else:
        timing, evaluation = _time_groups(session, device, options), None
    return _with_notes(timing, _frames_seen_by_dynamo() - frames), evaluation


def _time_evaluations(
    session: EvaluationSession, device: torch.device, options: m.Options
) -> tuple[m.TimingPass, m.Evaluation | None]:
    """The first step of an evaluation holds its set-up, and what follows the last tick (ranking) is in no step."""
    clock = clock_for(device)
    steps: list[tuple[float, ...]] = []
    walls: list[float] = []
    found: object = None
    machine = MachineClock(device)
    while len(walls) < options.evaluations and _time_is_left(walls, _budget_s(len(walls), options)):
        machine.sample()
        synchronize(device)
        began = time.perf_counter()
        clock.start()
        found = session.evaluate(clock.tick)
        synchronize(device)
        walls.append(time.perf_counter() - began)
        steps.append(clock.stop())
    machine.sample()
    timing = m.TimingPass(
        clock=clock.name,
        step_us=tuple(steps),
        evaluation_s=tuple(walls),
        stopped_early=_why_early(len(walls), options.evaluations, "evaluations", _budget_s(len(walls), options)),
        machine=machine.speed(),
    )
    return timing, found if isinstance(found, m.Evaluation) else None


def _time_groups(session: Session, device: torch.device, options: m.Options) -> m.TimingPass:
    clock = clock_for(device)
    groups: list[tuple[float, ...]] = []
    walls: list[float] = []
    machine = MachineClock(device)
    while len(groups) < GROUPS and _time_is_left(walls, TIMING_BUDGET_S):
        machine.sample()
        session.step()  # in no sample: it finds the caches as whatever ran between the groups left them
        synchronize(device)
        began = time.perf_counter()
        groups.append(timed_steps(session, clock, options.steps))
        walls.append(time.perf_counter() - began)
    machine.sample()
    why = _why_early(len(groups), GROUPS, f"groups of {options.steps} steps", TIMING_BUDGET_S)
    return m.TimingPass(
        clock=clock.name, step_us=tuple(groups), evaluation_s=(), stopped_early=why, machine=machine.speed()
    )


def _budget_s(evaluations_done: int, options: m.Options) -> float:
    return TIMING_BUDGET_S if evaluations_done > 1 else max(TIMING_BUDGET_S, options.timeout_s / 2)


def _time_is_left(walls: list[float], budget_s: float) -> bool:
    """The first one always runs; another one when, as long as the longest so far, it would end within the budget."""
    return not walls or sum(walls) + max(walls) <= budget_s


def _why_early(done: int, wanted: int, what: str, budget_s: float) -> str:
    if done == wanted:
        return ""
    return f"{done} of {wanted} {what}: one more would have passed the {budget_s:.0f} s that TIMING may take"


def _with_notes(timing: m.TimingPass, frames_compiled: int) -> m.TimingPass:
    compiled = f"torch compiled during TIMING ({frames_compiled} frames): some samples hold compilation"
    slow_first = None
    if len(walls := timing.evaluation_s) > 1 and walls[0] > FIRST_DIFFERS * statistics.median(walls[1:]):
        slow_first = walls[0] / statistics.median(walls[1:])
    return replace(timing, notes=(compiled,) if frames_compiled else (), slow_first=slow_first)


def _frames_seen_by_dynamo() -> int:
    """Frames that Dynamo was given to compile since the process began; 0 while it is not loaded."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    counters: Callable[..., object] | None = getattr(dynamo, "counters", None)
    return counters["frames"]["total"] if counters is not None else 0  # type: ignore[index]
