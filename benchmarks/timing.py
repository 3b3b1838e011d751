"""Compares kgprof's clocks with torch.utils.benchmark and triton.testing.do_bench, on the same
closures.

    python benchmarks/timing.py --device cuda -o benchmarks/results/timing_h100.json
    python benchmarks/timing.py --device cpu

Each pair measures the same thing:

- wall: the mean time of a call in a group of calls, of which the last is awaited. kgprof's is a
  group of a sweep's
  cell; the tool is torch.utils.benchmark.Timer.
- flushed: a call between two CUDA events, after a write that empties the L2 cache. kgprof's is the
  clock of TIMING; the
  tool is triton.testing.do_bench.
- stepped: every call between two CUDA events, as TIMING times steps. There is no tool for it, so it
  is compared with
  Timer: the difference is the cost of an event, which only a step of a few kernels shows.

A clock, a CPU and a power limit drift by more than 3 % within seconds. So the two sides take short
slices in turn (ours, tool, tool, ours) of SLICE_S each. What is compared is the median of the
slices' ratios; its 95 % interval (order statistics) says how well that is known.

A flushed slice is the mean of the middle half of its calls, on both sides: events are read in steps
of up to 0.5 us, and the median of a short call jumps between two of them. The medians over all
calls are in the file too.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from kgprof.lab import sweep_cell
from kgprof.record.passes import timing

LIMIT = 0.03
LEAST_US = 5.0
FLUSHED_BYTES = 256 * 2**20  # as do_bench writes
SLICE_S = 0.05
WARM_S = 0.2  # before the first slice of a closure
WARM_CALLS = 7  # before each flushed slice: do_bench makes as many
PAIRS = {"wall": "Timer", "flushed": "do_bench", "stepped": "Timer"}

Closure = Callable[[], object]
Slice = Callable[[], Sequence[float]]  # microseconds of its calls, or of all of them as one mean


class Stepped:
    """A closure as a session of a workload, which the clocks of kgprof take steps of."""

    def __init__(self, step: Closure) -> None:
        self.step = step


def closures(device: torch.device) -> Iterator[tuple[str, Closure]]:
    """20, on an H100 from 6 us to 49 ms: single kernels, chains that the CPU launches, and
    matmuls."""
    large = device.type == "cuda"

    def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=dtype)

    for power in (21, 22, 24, 26, 28, 29, 30) if large else (16, 18, 20, 22):
        x = tensor(2**power)
        yield f"add_ of 2^{power} floats", functools.partial(x.add_, 1.0)
    for count in (2, 4, 10, 40, 200, 1000) if large else (10, 100, 1000):
        yield f"{count} add_ of 1,024 floats", functools.partial(chain, tensor(1024), count)
    for side in (1024, 2048, 4096, 8192, 12288) if large else (128, 512):
        dtype = torch.bfloat16 if large else torch.float32
        a, b = tensor(side, side, dtype=dtype), tensor(side, side, dtype=dtype)
        yield (
            f"matmul of {side} x {side}",
            functools.partial(torch.mm, a, b, out=torch.empty_like(a)),
        )
    for side in (4096, 10752) if large else ():
        a, b = tensor(side, side), tensor(side, side)
        yield (
            f"float32 matmul of {side} x {side}",
            functools.partial(torch.mm, a, b, out=torch.empty_like(a)),
        )


def chain(x: torch.Tensor, count: int) -> None:
    for _ in range(count):
        x.add_(1.0)


def wall(closure: Closure, device: torch.device, step_s: float) -> tuple[Slice, Slice]:
    from torch.utils.benchmark import Timer

    session: Any = Stepped(closure)
    calls = max(sweep_cell.FEWEST_STEPS, int(SLICE_S / step_s))
    timer = Timer("call()", globals={"call": closure}, num_threads=torch.get_num_threads())
    return lambda: [sweep_cell.group_us(session, device, calls)], lambda: [
        timer.timeit(calls).median * 1e6
    ]


def flushed(closure: Closure, device: torch.device, step_s: float) -> tuple[Slice, Slice]:
    from triton.testing import do_bench

    def empty_cache() -> torch.Tensor:
        return torch.empty(FLUSHED_BYTES // 4, dtype=torch.int32, device=device)

    clock, zero = timing.clock_for(device), empty_cache().zero_
    both_s = step_s + min(timing.wall_us(zero, device) for _ in range(3)) / 1e6
    calls = max(sweep_cell.FEWEST_STEPS, int(SLICE_S / both_s))

    def ours() -> Sequence[float]:
        cache = empty_cache()
        for _ in range(WARM_CALLS):
            closure()
        clock.prepare(2 * calls)
        clock.start()
        for _ in range(calls):
            cache.zero_()
            clock.tick()
            closure()
            clock.tick()
        return clock.stop()[1::2]

    def tool() -> Sequence[float]:
        each = do_bench(closure, warmup=0, rep=calls * both_s * 1e3, return_mode="all")
        return [milliseconds * 1e3 for milliseconds in each]

    return ours, tool


def stepped(closure: Closure, device: torch.device, step_s: float) -> tuple[Slice, Slice]:
    calls = max(sweep_cell.FEWEST_STEPS, int(SLICE_S / step_s))

    def ours() -> Sequence[float]:
        closure()
        timing.synchronize(device)
        return timing.timed_steps(closure, timing.clock_for(device), calls)

    return ours, wall(closure, device, step_s)[1]


SIDES = {"wall": wall, "flushed": flushed, "stepped": stepped}


def measured(closure: Closure, device: torch.device, pair: str, slices: int) -> dict[str, Any]:
    for _ in range(3):
        closure()
    until = time.perf_counter() + WARM_S
    calls_us = [timing.wall_us(closure, device)]
    while time.perf_counter() < until:
        calls_us.append(timing.wall_us(closure, device))
    step_s = max(statistics.median(calls_us), 1.0) / 1e6
    sides = SIDES[pair](closure, device, step_s)
    taken: tuple[list[Sequence[float]], ...] = ([], [])
    for number in range(slices):
        for side in (1, 0) if number % 2 else (0, 1):
            taken[side].append(sides[side]())
    return compared(*taken)


def compared(ours: Sequence[Sequence[float]], tool: Sequence[Sequence[float]]) -> dict[str, Any]:
    means = [[midmean(us) for us in side] for side in (ours, tool)]
    ratios = sorted(one / other for one, other in zip(*means, strict=True))
    rank = interval_rank(len(ratios))
    return {
        "ratio": statistics.median(ratios),
        "ratio_95": [ratios[rank], ratios[-1 - rank]],
        "us": [statistics.median(side) for side in means],
        "median_of_all_calls_us": [
            statistics.median(us for each in side for us in each) for side in (ours, tool)
        ],
        "calls_of_a_slice": [len(side[0]) for side in (ours, tool)],
        "slices_us": [[float(f"{us:.5g}") for us in side] for side in means],
    }


def midmean(us: Sequence[float]) -> float:
    """The mean of the middle half."""
    cut = len(us) // 4
    return statistics.fmean(sorted(us)[cut : len(us) - cut])


def interval_rank(count: int) -> int:
    """Between the ordered values ``rank`` and ``count - 1 - rank`` the median lies with 95 % or
    more."""
    below, rank = 0.0, 0
    while rank < (count - 1) // 2 and below + math.comb(count, rank) / 2**count <= 0.025:
        below += math.comb(count, rank) / 2**count
        rank += 1
    return max(0, rank - 1)


def line(name: str, pair: str, found: dict[str, Any]) -> str:
    low, high = found["ratio_95"]
    apart = f"{found['ratio'] - 1:+.2%} (95 % {low - 1:+.2%} to {high - 1:+.2%})"
    note = "" if min(found["us"]) >= LEAST_US else f"; below {LEAST_US:.0f} us"
    return (
        f"{pair:<8} {name:<30} {found['us'][0]:>10,.2f} {found['us'][1]:>10,.2f} us  {apart}{note}"
    )


def summary(pair: str, found: Sequence[dict[str, Any]]) -> str:
    apart = [abs(each["ratio"] - 1) for each in found]
    longest = max((max(each["us"]) for each in found), default=0)
    least = min((min(each["us"]) for each in found), default=0)
    within = (
        f"{sum(each <= LIMIT for each in apart)} of {len(apart)} within {LIMIT:.0%} "
        f"of {PAIRS[pair]}"
    )
    return (
        f"{pair}: {within}, at most {max(apart, default=0):.2%} apart; {least:.2f} us "
        f"to {longest / 1e3:.1f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--slices", type=int, default=24, help="of each side of a pair")
    parser.add_argument("--pair", action="append", choices=PAIRS, help="only this one; repeatable")
    parser.add_argument("--only", default="", help="closures whose name contains this")
    parser.add_argument(
        "--until-s", type=float, default=math.inf, help="start no closure later than this"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("reports/timing.json"))
    asked = parser.parse_args()
    device, began = torch.device(asked.device), time.monotonic()
    torch.manual_seed(0)
    pairs = [pair for pair in asked.pair or PAIRS if device.type == "cuda" or pair != "flushed"]
    kept: dict[str, Any] = {
        "command": f"python benchmarks/timing.py --device {asked.device} --slices {asked.slices}"
        + "".join(f" --pair {pair}" for pair in asked.pair or ()),
        "limit": LIMIT,
        "slice_s": SLICE_S,
        "environment": {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "gpu": torch.cuda.get_device_name() if device.type == "cuda" else None,
            "threads": torch.get_num_threads(),
        },
        "pairs": {pair: {} for pair in pairs},
    }
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    for pair, found in kept["pairs"].items():
        for name, closure in closures(device):
            if asked.only not in name or time.monotonic() - began > asked.until_s:
                continue
            found[name] = measured(closure, device, pair, asked.slices)
            kept["seconds"] = round(time.monotonic() - began, 1)
            asked.output.write_text(json.dumps(kept, indent=1) + "\n")
            print(line(name, pair, found[name]), flush=True)
        print(summary(pair, [*found.values()]), flush=True)


if __name__ == "__main__":
    main()
