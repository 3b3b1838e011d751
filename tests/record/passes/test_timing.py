"""TIMING holds every step and every evaluation, stops in time, and says what its samples are."""

from __future__ import annotations

import itertools
import os
import threading
import time

import pytest
import torch

from kgprof.model import Evaluation, Options
from kgprof.record.ground.turns import DONE, WORD, YOURS, Turns
from kgprof.record.passes import timing
from kgprof.workloads.protocol import Tick
from tests.record.sessions import EVALUATION, Evaluating, Stepping

CPU = torch.device("cpu")


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test sets: every reading takes the next of these numbers, and then counts on
    by one."""
    readings: list[float] = []
    counter = itertools.count()

    def read() -> float:
        return readings.pop(0) if readings else float(next(counter))

    monkeypatch.setattr(timing.time, "perf_counter", read)
    return readings


def test_a_plain_workload_is_timed_in_groups_of_steps() -> None:
    session = Stepping()

    found, evaluation = timing.timing_pass(session, CPU, Options(steps=4))

    assert evaluation is None
    assert [len(group) for group in found.step_us] == [4] * timing.GROUPS
    assert all(step > 0 for group in found.step_us for step in group)
    assert (found.clock, found.evaluation_s, found.stopped_early, found.notes) == (
        "perf_counter",
        (),
        "",
        (),
    )
    assert session.steps == timing.GROUPS * (4 + 1)  # one step before each group is in no sample


def test_beside_another_process_the_turn_goes_over_after_every_slice_and_the_clock_stands_still() -> (  # noqa: E501
    None
):
    """The other one here takes 0.05 s a turn."""
    (mine, theirs), (reads, said) = os.pipe(), os.pipe()
    passed = 0

    def other() -> None:
        nonlocal passed
        os.write(said, YOURS + bytes(2))
        while os.read(mine, WORD)[:1] == YOURS:
            passed += 1
            time.sleep(0.05)
            os.write(said, YOURS + bytes(2))
        os.write(said, DONE + bytes(2))

    thread = threading.Thread(target=other)
    thread.start()
    found, _ = timing.timing_pass(
        Evaluating(), CPU, Options(evaluations=2), Turns((reads, theirs), steps=2)
    )
    thread.join()
    for end in (mine, theirs, reads, said):
        os.close(end)

    assert found.slice_steps == 2
    assert [len(steps) for steps in found.step_us] == [3] * timing.IN_TURN
    assert passed == 2 * timing.IN_TURN  # within each evaluation once, and after it
    assert max(found.evaluation_s) < 0.05
    assert max(us for group in found.step_us for us in group) < 50_000


def test_whole_evaluations_are_timed_where_there_are_any() -> None:
    found, evaluation = timing.timing_pass(Evaluating(), CPU, Options(evaluations=2))

    assert evaluation == EVALUATION
    assert [len(steps) for steps in found.step_us] == [3, 3]
    assert len(found.evaluation_s) == 2
    assert [sum(steps) / 1e6 for steps in found.step_us] <= list(found.evaluation_s)


def test_the_steps_of_an_evaluation_are_the_times_between_its_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stamps = iter([0, 5_000, 12_000, 13_000])
    monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: next(stamps))

    found, _ = timing.timing_pass(Evaluating(), CPU, Options(evaluations=1))

    assert found.step_us == ((5.0, 7.0, 1.0),)


def test_another_evaluation_starts_only_while_it_is_expected_to_end_in_time(
    seconds: list[float],
) -> None:
    seconds += [0.0, 7.0, 7.0, 14.0]  # a third one would end after 21 of the 20 s

    found, evaluation = timing.timing_pass(Evaluating(), CPU, Options(evaluations=3))

    assert evaluation == EVALUATION
    assert found.evaluation_s == (7.0, 7.0)
    assert (
        found.stopped_early
        == "2 of 3 evaluations: another would have exceeded TIMING's limit of 20 s"
    )


def test_a_second_evaluation_runs_beyond_the_budget_so_that_there_is_a_spread(
    seconds: list[float],
) -> None:
    seconds += [0.0, 25.0, 25.0, 51.0]

    found, _ = timing.timing_pass(Evaluating(), CPU, Options(evaluations=3))

    assert found.evaluation_s == (25.0, 26.0)
    assert (
        found.stopped_early
        == "2 of 3 evaluations: another would have exceeded TIMING's limit of 20 s"
    )


def test_a_second_evaluation_does_not_run_into_the_time_limit_of_the_child(
    seconds: list[float],
) -> None:
    seconds += [0.0, 226.0]

    found, _ = timing.timing_pass(Evaluating(), CPU, Options(evaluations=3, timeout_s=900.0))

    assert found.evaluation_s == (226.0,)
    assert (
        found.stopped_early
        == "1 of 3 evaluations: another would have exceeded TIMING's limit of 450 s"
    )


@pytest.mark.parametrize(("second_s", "evaluations"), [(1.02, 2), (1.05, 3)])
def test_a_third_evaluation_is_made_only_where_two_differ(
    seconds: list[float], second_s: float, evaluations: int
) -> None:
    seconds += [0.0, 1.0, 1.0, 1.0 + second_s]

    found, _ = timing.timing_pass(Evaluating(), CPU, Options(evaluations=3))

    assert len(found.evaluation_s) == len(found.step_us) == evaluations
    why = "2 of 3 evaluations: they took the same time within 3 %"
    assert found.stopped_early == (why if evaluations == 2 else "")


def test_one_evaluation_is_enough_where_one_is_asked_for(seconds: list[float]) -> None:
    seconds += [0.0, 25.0]

    found, _ = timing.timing_pass(Evaluating(), CPU, Options(evaluations=1))

    assert (found.evaluation_s, found.stopped_early) == ((25.0,), "")


def test_groups_stop_early_as_well(seconds: list[float]) -> None:
    seconds += [0.0, 7.0, 7.0, 14.0]

    found, _ = timing.timing_pass(Stepping(), CPU, Options(steps=2))

    assert len(found.step_us) == 2
    assert (
        found.stopped_early
        == "2 of 5 groups of 2 steps: another would have exceeded TIMING's limit of 20 s"
    )


def test_a_slow_first_evaluation_is_remarked_on(seconds: list[float]) -> None:
    seconds += [0.0, 3.0, 3.0, 4.0, 4.0, 5.0]

    found, _ = timing.timing_pass(Evaluating(), CPU, Options(evaluations=3))

    assert (found.slow_first, found.notes) == (3.0, ())


def test_a_compilation_among_the_samples_is_remarked_on() -> None:
    sizes = itertools.count(2)
    doubled = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)

    found, _ = timing.timing_pass(
        Stepping(lambda: doubled(torch.ones(next(sizes)))), CPU, Options(steps=1)
    )

    (note,) = found.notes
    assert note.startswith("torch compiled ")
    assert found.compiled


def test_an_evaluation_that_counts_nothing_has_times_all_the_same() -> None:
    class Silent(Evaluating):
        def evaluate(self, tick: Tick) -> Evaluation:
            super().evaluate(tick)
            return None  # type: ignore[return-value]

    found, evaluation = timing.timing_pass(Silent(), CPU, Options(evaluations=1))

    assert evaluation is None
    assert [len(steps) for steps in found.step_us] == [3]


@pytest.mark.gpu
def test_cuda_steps_are_timed_on_the_device() -> None:
    # given: a step that returns long before the device has done its work
    matrix = torch.ones(4096, 4096, device="cuda")
    session = Stepping(lambda: matrix @ matrix)

    found, _ = timing.timing_pass(session, torch.device("cuda"), Options(steps=5))

    assert found.clock == "cuda events"
    host = timing.timed_steps(session.step, timing.StepClock(), 5)
    assert min(found.step_us[-1]) > 2 * min(host)


def test_the_events_of_a_gpus_clock_are_made_before_the_first_step_and_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []
    at = itertools.count()

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            made.append(self)

        def record(self) -> None:
            self.at = next(at)

        def elapsed_time(self, later: Event) -> float:
            return float(later.at - self.at)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    during: list[int] = []

    for _ in range(2):
        taken = timing.timed_steps(lambda: during.append(len(made)), timing.CudaEventClock(), 4)
        assert taken == (1e3,) * 4

    assert during == [5] * 8
    clock = timing.CudaEventClock()
    clock.start()
    for _ in range(9):  # more than it was prepared for
        clock.tick()
    assert len(clock.stop()) == 9
