"""TIMING: nothing but a clock, and the clock that every other pass uses for its own steps.

The garbage collector stays on, because it runs in the workload's real life too; one collection
before the first sample keeps the garbage of an earlier pass out of them.
"""

import gc
import statistics
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import pairwise
from time import process_time_ns
from typing import Any

import torch
from msgspec.structs import replace

from kgprof import model as m
from kgprof.reading import layout
from kgprof.record.ground import store
from kgprof.record.ground.load import load_from_now
from kgprof.record.ground.machine_speed import MachineClock
from kgprof.record.ground.run import Run
from kgprof.record.ground.turns import IN_TURN_FROM, Turns
from kgprof.workloads.protocol import EvaluationSession, Session, Step

# A third evaluation, or a second group of steps, starts only while it is expected to end within
# this. The second evaluation is there for the spread, which one alone has not: it may take TIMING
# up to half of --timeout.
TIMING_BUDGET_S = 20.0
AGREEING, AGREE = 2, 1.03  # no third one where two took the same time within 3 %
# Beside another process (turns.py) it takes as many as end within this, at most so many.
IN_TURN_S = 2.0
IN_TURN = 20
GROUPS = 5  # groups of ``--steps`` steps for a workload without evaluations
# the first evaluation is remarked on when it took this many times the median of the others
IN_TURN_WITH = m.Skipped("it was timed in turn with another process")
FIRST_DIFFERS = 1.25

# Keys of torch._dynamo.utils.counters["inductor"], as torch 2.11 to 2.13 count
# (torch/_inductor/codecache.py).
DYNAMO = "torch._dynamo.utils"  # the module that has these counters
HIT, MISS, BYPASS = "fxgraph_cache_hit", "fxgraph_cache_miss", "fxgraph_cache_bypass"


Times = tuple[float, ...]  # microseconds, of each step


def between_us(ns: Iterable[int]) -> Times:
    """Return the microseconds from each moment to the next."""
    return tuple((later - earlier) / 1e3 for earlier, later in pairwise(ns))


class StepClock:
    """``start`` once, then ``tick`` after every step; ``stop`` gives the microseconds of host time
    of each step."""

    name = "perf_counter"
    stood_s = 0.0  # since ``start``, while another process had its turn

    def prepare(self, steps: int) -> None:
        """What makes ``tick`` cheaper, for so many steps."""

    def start(self) -> None:
        self._ticks: list[Any] = []
        self.tick()

    def tick(self) -> None:
        self._ticks.append(time.perf_counter_ns())

    def stop(self) -> Times:
        return between_us(self._ticks)


AHEAD = 256  # steps that a clock is prepared for, if their number is not known
_events: dict[int, list[Any]] = defaultdict(list)  # of each GPU, recorded before and free again


class CudaEventClock(StepClock):
    """Device time between ticks on the current stream. A tick does not synchronise and neither does
    ``start``.

    An event is made at its first record: ``prepare`` makes them (7 us a tick and not 8, on an
    H200's host).
    """

    name = "cuda events"

    def __init__(self) -> None:
        self._free = _events[torch.cuda.current_device()]

    def prepare(self, steps: int) -> None:
        while len(self._free) <= steps:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self._free.append(event)

    def tick(self) -> None:
        self.prepare(0)
        event = self._free.pop()
        event.record()
        self._ticks.append(event)

    def stop(self) -> Times:
        torch.cuda.synchronize()
        taken = tuple(earlier.elapsed_time(later) * 1e3 for earlier, later in pairwise(self._ticks))
        self._free += self._ticks
        return taken


def clock_for(device: torch.device) -> StepClock:
    return CudaEventClock() if device.type == "cuda" else StepClock()


class SlicedClock(StepClock):
    """Gives the turn away after every slice of steps, and stands still until it comes back."""

    def __init__(self, device: torch.device, turns: Turns) -> None:
        self._clock, self._device, self._turns = clock_for(device), device, turns
        self.name = self._clock.name

    def prepare(self, steps: int) -> None:
        self._clock.prepare(steps)

    def start(self) -> None:
        self._before: list[float] = []  # the steps of the slices so far
        self._taken = 0
        self.stood_s = 0.0
        self._clock.start()

    def tick(self) -> None:
        self._clock.tick()
        self._taken += 1
        if self._taken % self._turns.steps == 0:
            synchronize(self._device)
            stands_from = time.perf_counter()
            self._before += self._clock.stop()
            self._turns.give()
            self._turns.take()
            self._clock.start()
            self.stood_s += time.perf_counter() - stands_from

    def stop(self) -> Times:
        return *self._before, *self._clock.stop()


def captures_a_graph() -> bool:
    """Whether this thread records a CUDA graph: what waits for the GPU now ends that recording."""
    is_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return is_used and torch.cuda.is_current_stream_capturing()


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def wall_us(step: Step, device: torch.device) -> float:
    """Microseconds of one call, up to the end of the device's work."""
    began = time.perf_counter_ns()
    step()
    synchronize(device)
    return (time.perf_counter_ns() - began) / 1e3


def timed_steps(step: Step, clock: StepClock, count: int) -> Times:
    """Microseconds of each of ``count`` steps."""
    clock.prepare(count)
    clock.start()
    _take_steps(step, clock.tick, count)
    return clock.stop()


def _take_steps(step: Step, tick: Callable[[], None], count: int) -> None:
    for _ in range(count):
        step()
        tick()


def measure(run: Run) -> None:
    """With the Evaluation beside it, and the result of the last evaluation."""
    timed, evaluation = timing_pass(run.session, run.device, run.options)
    run.write(m.PassName.TIMING, timed)
    why = (
        "its evaluate() counts no units of work"
        if run.evaluates
        else "the workload has no evaluation"
    )
    store.write_json(run.folder / layout.EVALUATION, evaluation or m.Skipped(why))
    if run.evaluates:
        run.write_result()


def timing_pass(
    session: Session, device: torch.device, options: m.Options, turns: Turns | None = None
) -> tuple[m.TimingPass, m.Evaluation | None]:
    """Whole evaluations where the session has them, else groups of steps; and what the last
    evaluation found."""
    turns = turns or Turns()
    gc.collect()
    seen = compilations_seen()
    last: deque[object] = deque([None], maxlen=1)
    if isinstance(session, EvaluationSession):
        # The first step of one holds its set-up, and what follows the last tick (ranking) is in no
        # step.
        evaluate = session.evaluate
        timing = _timed(
            device,
            options.evaluations,
            "evaluations",
            lambda tick: last.append(evaluate(tick)),
            turns,
            second_s=options.timeout_s / 2,
        )
    else:
        # The step before a group is in no sample: it finds the caches as whatever ran between the
        # groups left them.
        step, count, groups = session.step, options.steps, f"groups of {options.steps} steps"
        timing = _timed(
            device, GROUPS, groups, lambda tick: _take_steps(step, tick, count), turns, before=step
        )
        timing = replace(timing, evaluation_s=())
    compiled = compilations_seen() > seen
    note = "torch compiled during TIMING, so some samples include compilation"
    slow_first = None
    if len(timing.evaluation_s) > 1:
        first, *others = timing.evaluation_s
        ratio = first / statistics.median(others)
        slow_first = ratio if ratio > FIRST_DIFFERS else None
    evaluation = last[0] if isinstance(last[0], m.Evaluation) else None
    notes = (note,) if compiled else ()
    return replace(timing, notes=notes, compiled=compiled, slow_first=slow_first), evaluation


def _timed(
    device: torch.device,
    wanted: int,
    what: str,
    run: Callable[[Callable[[], None]], object],
    turns: Turns,
    *,
    before: Step = lambda: None,
    second_s: float = 0.0,
) -> m.TimingPass:
    """``run`` so many times. The first one always runs; another one when, as long as the longest so
    far, it would end within the budget, which for the second one is ``second_s`` where that is
    more. It is given for evaluations: two of them that agree have the spread that a third is for.
    """
    clock = SlicedClock(device, turns) if turns.shared else clock_for(device)
    machine = MachineClock(device)
    clock.prepare(AHEAD)
    steps = []
    walls: list[float] = []
    cpu_us = []
    early = ""
    load = load_from_now()
    fill_s = IN_TURN_S if turns.shared else 0.0
    while len(walls) < wanted or (len(walls) < IN_TURN and sum(walls) + max(walls) <= fill_s):
        budget_s = TIMING_BUDGET_S if len(walls) > 1 else max(TIMING_BUDGET_S, second_s)
        if walls and sum(walls) + max(walls) > budget_s:
            early = (
                f"{len(walls)} of {wanted} {what}: another would have exceeded TIMING's "
                f"limit of {budget_s:.0f} s"
            )
            break
        if (
            second_s
            and len(walls) == AGREEING
            and max(walls) <= AGREE * min(walls)
            and sum(walls) > fill_s
        ):
            early = (
                f"{len(walls)} of {wanted} {what}: they took the same time within "
                f"{100 * (AGREE - 1):.0f} %"
            )
            break
        turns.take()
        machine.sample()
        before()
        synchronize(device)
        began = time.perf_counter()
        cpu_began_ns = process_time_ns()
        clock.start()
        run(clock.tick)
        synchronize(device)
        walls.append(time.perf_counter() - began - clock.stood_s)
        cpu_ns = process_time_ns() - cpu_began_ns
        steps.append(clock.stop())
        cpu_us += [cpu_ns / 1e3 / len(steps[-1])] if steps[-1] else []
        turns.give()
    turns.take()
    machine.sample()
    turns.leave()
    return m.TimingPass(
        clock=clock.name,
        step_us=tuple(steps),
        evaluation_s=tuple(walls),
        stopped_early=early,
        machine=machine.speed(),
        cpu_us=tuple(cpu_us),
        load=IN_TURN_WITH if turns.shared else load(),
        slice_steps=turns.steps if turns.shared else 0,
    )


def dynamo_counters(name: str) -> Mapping[str, int]:
    """Return what Dynamo counts under a name; nothing while it is not loaded."""
    counters: Mapping[str, Mapping[str, int]] = getattr(sys.modules.get(DYNAMO), "counters", {})
    return counters.get(name, {})


def frames_seen_by_dynamo() -> int:
    """Frames that Dynamo was given to compile since the process began; 0 while it is not loaded."""
    return dynamo_counters("frames").get("total", 0)


def compilations_seen() -> int:
    """A number that grows with each frame and graph of Dynamo's (it counts no frame of
    ``fullgraph``) and each graph of Inductor's, a backward one too."""
    inductor = dynamo_counters("inductor")
    graphs = dynamo_counters("stats").get("unique_graphs", 0)
    graphs += sum(inductor.get(name, 0) for name in (HIT, MISS, BYPASS))
    return frames_seen_by_dynamo() + graphs


# ---------------------------------------------------------------- one more round


def timed_round(
    session: Session,
    device: torch.device,
    options: m.Options,
    phase: Callable[[str], AbstractContextManager[None]],
    turns: Turns | None = None,
) -> m.TimedRound:
    """In a process of its own: intervals are over rounds, not over the steps of one process.

    The first call on warm caches, the further calls that COMPILE makes, then TIMING as in the first
    round.
    """
    with phase("first call"):
        first_call_s = wall_us(session.step, device) / 1e6
        for _ in range(options.steps - 1):
            session.step()
        synchronize(device)
    with phase(IN_TURN_FROM):
        timed, _ = timing_pass(session, device, options, turns)
    from_cache: int | m.Skipped = m.Skipped("nothing was compiled")
    compiled: int | m.Skipped = from_cache
    if DYNAMO in sys.modules:
        graphs = dynamo_counters("inductor")  # in this process
        from_cache = graphs.get(HIT, 0)
        compiled = graphs.get(MISS, 0) + graphs.get(BYPASS, 0)
    return m.TimedRound(
        first_call_s=first_call_s,
        graphs_from_cache=from_cache,
        graphs_compiled=compiled,
        timing=timed,
    )
