"""How fast the machine itself is while TIMING runs: the same small work, timed beside every sample.

Two recordings are made minutes apart, and on a shared machine those minutes differ: on a host with
four H200 the same program took 14 to 17 % longer a quarter of an hour later, alike in all of its
processes, because every function of the host did. The rounds of one recording cannot show that. A
loop that no change of the program touches can.

Two loops, because a step waits for the one or the other: of the host, the interpreter and the
dispatch of an operator to the device (on a GPU its launch); of the device, a kernel bound by
arithmetic, so that it follows the clock.
"""

import statistics

# Bound here, because the clocks of TIMING are replaced in its tests and these readings are none of
# theirs.
from time import perf_counter_ns as _now

import torch

from kgprof import model as m
from kgprof.workloads.protocol import Step

REPEATS = 5  # of which the median counts
DISPATCHES = 200  # below the 1,024 launches that a CUDA stream takes before the host has to wait


# A kernel that waits for arithmetic and not for memory: its operator, elements of float64 (enough
# for a GPU kernel to outlast its launch, and for a CPU's to go to all of torch's threads), and how
# many of it are one sample.
ARITHMETIC = {"cuda": (torch.erfinv, 2**20, 20), "cpu": (torch.exp, 2**18, 4)}


class MachineClock:
    """``sample`` before each timed piece of work and after the last, ``speed`` for all of them.

    Needs 16 MiB of a GPU, or 4 MiB of the host for a CPU. An error, such as there being no such
    memory, ends the sampling and is told by ``speed``.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._operator, elements, self._kernels = ARITHMETIC[
            "cuda" if device.type == "cuda" else "cpu"
        ]
        self._host_us: list[float] = []
        self._device_us: list[float] = []
        self._failed = ""
        try:
            self._one = torch.zeros(1, dtype=torch.float64, device=device)
            self._from = torch.linspace(-0.9, 0.9, elements, dtype=torch.float64, device=device)
            self._into = torch.empty_like(self._from)
            self._host(), self._kernel()  # loads the kernels
        # a mode that the workload left on raises what it likes
        except Exception as error:  # noqa: BLE001
            self._fail(error)

    def sample(self) -> None:
        if self._failed:
            return
        try:
            self._host_us.append(statistics.median(self._host() for _ in range(REPEATS)))
            self._device_us.append(statistics.median(self._kernel() for _ in range(REPEATS)))
        except Exception as error:  # noqa: BLE001  as above
            self._fail(error)

    def speed(self) -> m.MachineSpeed | m.Skipped:
        if self._failed:
            return m.Skipped(f"the machine's own speed could not be timed: {self._failed}")
        return m.MachineSpeed(host_us=tuple(self._host_us), device_us=tuple(self._device_us))

    def _fail(self, error: Exception) -> None:
        self._failed = (str(error).strip().splitlines() or [type(error).__name__])[0]

    def _host(self) -> float:
        """Microseconds of one turn: a write to a dict and an operator on one number, not waited
        for."""
        one = self._one
        seen = dict.fromkeys(range(8), 0)
        began = _now()
        for turn in range(DISPATCHES):
            seen[turn & 7] += turn
            one.add_(1)
        us = (_now() - began) / 1e3 / DISPATCHES
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return us

    def _kernel(self) -> float:
        return timed_us(self._compute, self._device) / self._kernels

    def _compute(self) -> None:
        for _ in range(self._kernels):
            self._operator(self._from, out=self._into)


def timed_us(call: Step, device: torch.device) -> float:
    """Microseconds of the work of one call: by CUDA events, or by the clock of the host."""
    if device.type != "cuda":
        began = _now()
        call()
        return (_now() - began) / 1e3
    before = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    after = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    before.record()
    call()
    after.record()
    torch.cuda.synchronize(device)
    return float(before.elapsed_time(after)) * 1e3
