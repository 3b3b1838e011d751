"""The machine's own speed is timed beside TIMING's samples, takes nothing of them, and never ends a
measurement."""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode

from kgprof.model import MachineSpeed, Options, Skipped
from kgprof.record.ground import machine_speed
from kgprof.record.ground.machine_speed import MachineClock
from kgprof.record.passes import timing
from tests.record.sessions import Evaluating, Stepping

CPU = torch.device("cpu")


def test_both_loops_are_timed_once_a_sample() -> None:
    clock = MachineClock(CPU)
    for _ in range(3):
        clock.sample()

    speed = clock.speed()

    assert isinstance(speed, MachineSpeed)
    assert (len(speed.host_us), len(speed.device_us)) == (3, 3)
    assert min(*speed.host_us, *speed.device_us) > 0


def test_a_host_that_takes_longer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a machine that became ten times slower after the first sample."""
    now, pace = [0], [1_000_000]

    def read() -> int:
        now[0] += pace[0]
        return now[0]

    monkeypatch.setattr(machine_speed, "_now", read)
    clock = MachineClock(CPU)
    clock.sample()
    pace[0] *= 10
    clock.sample()

    speed = clock.speed()

    assert isinstance(speed, MachineSpeed)
    assert speed.host_us == (5.0, 50.0)  # 1 and 10 ms for 200 turns
    assert speed.device_us == (250.0, 2500.0)  # for four kernels


@pytest.mark.parametrize(
    "session", [Evaluating(), Stepping()], ids=["evaluations", "groups of steps"]
)
def test_it_is_timed_before_each_sample_of_timing_and_after_the_last(
    session: Evaluating | Stepping,
) -> None:
    found, _ = timing.timing_pass(session, CPU, Options(evaluations=2, steps=3))

    assert isinstance(found.machine, MachineSpeed)
    assert len(found.machine.host_us) == len(found.step_us) + 1


def test_a_device_without_memory_left_costs_the_speed_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> torch.Tensor:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 8.00 MiB.\nSee the documentation."
        )

    monkeypatch.setattr(torch, "linspace", full)
    found, _ = timing.timing_pass(Evaluating(), CPU, Options(evaluations=2))

    assert len(found.evaluation_s) == 2
    assert found.machine == Skipped(
        reason=(
            "the machine's own speed could not be timed: CUDA out of memory. Tried to "
            "allocate 8.00 MiB."
        )
    )


def test_an_error_between_samples_ends_the_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MachineClock(CPU)
    clock.sample()
    monkeypatch.setattr(clock, "_compute", _raising)
    clock.sample()
    clock.sample()

    assert clock.speed() == Skipped(
        reason="the machine's own speed could not be timed: lost the device"
    )


class Refusing(TorchFunctionMode):
    """A mode of the workload's that takes calls of its own only."""

    def __torch_function__(self, *_: object, **__: object) -> object:
        raise TypeError("not one of ours")


def test_a_mode_that_the_workload_left_on_ends_no_measurement() -> None:
    with Refusing():
        clock = MachineClock(CPU)
        clock.sample()

    assert clock.speed() == Skipped(
        reason="the machine's own speed could not be timed: not one of ours"
    )


def _raising() -> None:
    raise RuntimeError("lost the device")


def test_the_state_of_random_numbers_is_left_as_it_was() -> None:
    before = torch.get_rng_state()
    clock = MachineClock(CPU)
    clock.sample()

    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.gpu
def test_a_gpus_loops_are_timed_on_it() -> None:
    clock = MachineClock(torch.device("cuda"))
    clock.sample()

    speed = clock.speed()

    assert isinstance(speed, MachineSpeed)
    assert 1 < speed.host_us[0] < 1000
    assert 1 < speed.device_us[0] < 10_000
