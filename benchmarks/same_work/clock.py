"""How much longer a step of each planted regression takes, as exactly as a clock can say here.

    python -m benchmarks.same_work.clock            # all; kept in results/same_work_truth.json
    python -m benchmarks.same_work.clock NAME ...   # these take their place in it

A process for each side, both alive at once, take turns in slices of STEPS steps while the other
waits; a ratio is that of two slices beside each other. Kept are the median of SLICES ratios and its
interval (capture_cost.py: order statistics, at least 95 %). Slices that a neighbour disturbs are
why it is a median. Nothing is judged here: the figures show what a clock would have to see.
"""

import argparse
import contextlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

STEPS, SLICES, WARM = 10, 60, 6
START, READY = "start", "ready"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--cache", type=Path, help="Inductor's folder, kept for the next time")
    asked = parser.parse_args()
    from . import cases, truth

    chosen = [case for case in cases.chosen(asked.names) if case.kind == cases.REGRESSION]
    rows = truth.kept(truth.RESULTS, truth.CLOCK)
    with tempfile.TemporaryDirectory(prefix="same-work-") as scratch:
        cache = asked.cache or Path(scratch) / "cache"
        for case in chosen:
            sides = [
                cases.make(case, side, Path(scratch) / side) for side in (cases.BASE, cases.HEAD)
            ]
            variables = {**truth.ALONE, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
            rows[case.name] = row = ratio_of(case.program, sides, variables)
            truth.keep(truth.RESULTS, rows, truth.CLOCK)
            interval = f"{row['low']:.3f} to {row['high']:.3f}"
            print(f"{case.name:<34} {row['ratio']:.3f} ({interval})", flush=True)
    return 0


def ratio_of(program: str, sides: list[Path], variables: dict[str, str]) -> dict[str, float]:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import capture_cost

    with contextlib.ExitStack() as stack:
        base, head = (stack.enter_context(stepping(program, side, variables)) for side in sides)
        ratios = [slice_of(head) / slice_of(base) for _ in range(SLICES)]
    low, high = capture_cost.interval(ratios)
    found = {"ratio": statistics.median(ratios), "low": low, "high": high}
    return {name: round(value, 4) for name, value in found.items()}


@contextlib.contextmanager
def stepping(program: str, folder: Path, variables: dict[str, str]) -> Iterator[Any]:
    """A process that has compiled and waits for the word to make a slice."""
    process = subprocess.Popen(
        [sys.executable, __file__, program],
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        answer(process.stdout)
        yield process
    finally:
        process.kill()
        process.communicate()


def slice_of(process: Any) -> float:
    process.stdin.write(f"{START}\n")
    process.stdin.flush()
    return float(answer(process.stdout))


def answer(stream: IO[str] | None) -> str:
    line = stream.readline() if stream else ""
    if not line:
        raise SystemExit("a side ended before its slices")
    return line.strip()


def side() -> None:
    """One side's process: a line on stdin, a slice, its seconds on stdout."""
    sys.path[0] = os.getcwd()
    step = importlib.import_module(sys.argv[1]).step
    for _ in range(WARM):
        step()
    print(READY, flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        for _ in range(STEPS):
            step()
        print(json.dumps(time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    if __package__:
        sys.exit(main())
    side()
