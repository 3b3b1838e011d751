"""Holds kgprof's clocks to torch.utils.benchmark and triton.testing.do_bench, on the same closures.

    python benchmarks/timing.py --device cuda -o benchmarks/results/timing_h200.json
    python benchmarks/timing.py --device cpu --rounds 1

Each pair measures the same thing:

- wall: the mean time of a call in a group of calls, of which the last is awaited. kgprof's are the groups of a sweep's
  cell; the tool is torch.utils.benchmark.Timer.
- flushed: a call between two CUDA events, after a write that empties the L2 cache. kgprof's is the clock of TIMING; the
  tool is triton.testing.do_bench.
- stepped: every call between two CUDA events, as TIMING times steps. There is no tool for it, so it is held to Timer:
  what it has more is the price of an event, which only a step of a few kernels shows.

The two sides take turns over --rounds, in the other order in every second one, and the medians of their rounds are
compared; the rounds of one side show how much the machine itself moves. Before each the closure runs for WARM_S, so
that the card's clocks are those of its load.
"""

from __future__ import annotations

import argparse
import functools
import json
import platform
import statistics
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import torch

from kgprof.record import sweep_cell, timing

LIMIT = 0.03
FLUSHED_BYTES = 256 * 2**20  # as do_bench writes
GROUP_S, GROUP_STEPS = 0.01, 20
FLUSHED_S = 0.1  # as do_bench's default
BLOCKED_S = 0.3
WARM_S = 0.1

Closure = Callable[[], object]


class Stepped:
    """A closure as a session of a workload, which the clocks of kgprof take steps of."""

    def __init__(self, step: Closure) -> None:
        self.step = step


def closures(device: torch.device) -> Iterator[tuple[str, Closure]]:
    """20, on an H200 from 5 us to 50 ms: single kernels, chains that the CPU launches, and matmuls."""
    large = device.type == "cuda"

    def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=dtype)

    for power in (10, 22, 24, 26, 28, 29, 30) if large else (10, 16, 18, 20):
        x = tensor(2**power)
        yield f"add_ of 2^{power} floats", functools.partial(x.add_, 1.0)
    for count in (2, 4, 10, 40, 200, 1000) if large else (2, 10, 100):
        yield f"{count} add_ of 1,024 floats", functools.partial(chain, tensor(1024), count)
    for side in (1024, 2048, 4096, 8192, 12288) if large else (128, 512):
        dtype = torch.bfloat16 if large else torch.float32
        a, b = tensor(side, side, dtype=dtype), tensor(side, side, dtype=dtype)
        yield f"matmul of {side} x {side}", functools.partial(torch.mm, a, b, out=torch.empty_like(a))
    for side in (4096, 10752) if large else ():
        a, b = tensor(side, side), tensor(side, side)
        yield f"float32 matmul of {side} x {side}", functools.partial(torch.mm, a, b, out=torch.empty_like(a))


def chain(x: torch.Tensor, count: int) -> None:
    for _ in range(count):
        x.add_(1.0)


def kgprof_wall(closure: Closure, device: torch.device, step_s: float) -> float:
    steps = max(sweep_cell.FEWEST_STEPS, min(GROUP_STEPS, int(GROUP_S / step_s)))  # fewer only to save time
    session: Any = Stepped(closure)
    return statistics.median(sweep_cell.steady_us(session, device, steps, step_s=step_s))


def timer_wall(closure: Closure) -> float:
    from torch.utils.benchmark import Timer

    timer = Timer("call()", globals={"call": closure}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=BLOCKED_S).median * 1e6


def kgprof_flushed(closure: Closure, device: torch.device, step_s: float) -> float:
    cache = torch.empty(FLUSHED_BYTES // 4, dtype=torch.int32, device=device)
    clock, count = timing.clock_for(device), max(5, min(2000, int(FLUSHED_S / step_s)))
    clock.prepare(2 * count)
    clock.start()
    for _ in range(count):
        cache.zero_()
        clock.tick()
        closure()
        clock.tick()
    return statistics.median(clock.stop()[1::2])


def do_bench(closure: Closure) -> float:
    from triton.testing import do_bench as triton_do_bench  # type: ignore[import-untyped]

    return float(triton_do_bench(closure, return_mode="median")) * 1e3


def kgprof_stepped(closure: Closure, device: torch.device, step_s: float) -> float:
    count = max(10, min(1000, int(FLUSHED_S / step_s)))
    return statistics.median(timing.timed_steps(closure, timing.clock_for(device), count))


def measured(closure: Closure, device: torch.device, rounds: int, pairs: Collection[str]) -> dict[str, Any]:
    for _ in range(3):
        closure()
    step_s = max(min(timing.wall_us(closure, device) for _ in range(3)), 1.0) / 1e6
    sides: dict[str, Callable[[], float]] = {
        "wall": lambda: kgprof_wall(closure, device, step_s),
        "Timer": lambda: timer_wall(closure),
        "stepped": lambda: kgprof_stepped(closure, device, step_s),
    }
    if device.type == "cuda":
        sides |= {
            "flushed": lambda: kgprof_flushed(closure, device, step_s),
            "do_bench": lambda: do_bench(closure),
        }
    wanted = {side for name in pairs for side in PAIRS[name]}
    us: dict[str, list[float]] = {name: [] for name in sides if name in wanted}
    for number in range(rounds):
        for name in reversed(us) if number % 2 else us:
            until = time.perf_counter() + WARM_S
            while time.perf_counter() < until:
                closure()
                timing.synchronize(device)
            us[name].append(sides[name]())
    return {"us": us, **{name: compared(us, *PAIRS[name]) for name in pairs if PAIRS[name][1] in us}}


PAIRS = {"wall": ("wall", "Timer"), "flushed": ("flushed", "do_bench"), "stepped": ("stepped", "Timer")}


def compared(us: dict[str, list[float]], ours: str, tool: str) -> dict[str, float]:
    """How far the medians are apart, and how far the rounds of one side alone."""
    mid = statistics.median(us[tool])
    return {
        "apart": statistics.median(us[ours]) / mid - 1,
        "rounds_apart": max((max(us[side]) - min(us[side])) / mid for side in (ours, tool)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pair", action="append", choices=PAIRS, help="only this one; repeatable")
    parser.add_argument("--until-s", type=float, default=float("inf"), help="start no closure later than this")
    parser.add_argument("-o", "--output", type=Path, default=Path("reports/timing.json"))
    asked = parser.parse_args()
    device, began = torch.device(asked.device), time.monotonic()
    torch.manual_seed(0)
    kept: dict[str, Any] = {
        "command": f"python benchmarks/timing.py --device {asked.device} --rounds {asked.rounds}"
        + "".join(f" --pair {name}" for name in asked.pair or ()),
        "limit": LIMIT,
        "environment": {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "gpu": torch.cuda.get_device_name() if device.type == "cuda" else None,
            "threads": torch.get_num_threads(),
        },
        "closures": {},
    }
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    for name, closure in closures(device):
        if time.monotonic() - began > asked.until_s:
            break
        found = kept["closures"][name] = measured(closure, device, asked.rounds, asked.pair or [*PAIRS])
        asked.output.write_text(json.dumps(kept, indent=1) + "\n")
        apart = ", ".join(f"{pair} {found[pair]['apart']:+.1%}" for pair in PAIRS if pair in found)
        tool = next(tool for _, tool in PAIRS.values() if tool in found["us"])
        print(f"{name:<28} {statistics.median(found['us'][tool]):>10,.1f} us  {apart}", flush=True)
    for pair in asked.pair or PAIRS:
        each = [found[pair]["apart"] for found in kept["closures"].values() if pair in found]
        print(f"{pair}: {sum(abs(apart) <= LIMIT for apart in each)} of {len(each)} within {LIMIT:.0%}")


if __name__ == "__main__":
    main()
