"""Holds what `kgprof sweep` says against running it: break-even intervals, and the recommended
cell.

    python benchmarks/sweep_check.py SWEEP_DIR... -o benchmarks/results/sweep_check.json [--seconds
    30]
    python benchmarks/sweep_check.py --make FOLDER -o benchmarks/results/sweep_check_cpu.json

With --make the functions of sweep_functions.py are swept first, each in mode default and, if fusion
pays, in max-autotune-no-cudagraphs (on a GPU: in reduce-overhead), and each is checked right after
its sweep. A sweep that FOLDER has is not made again, and what the output has is not checked again,
so that both can be interrupted.

Each cell of each sweep runs once more, in a fresh process with cold compiler caches, through
nothing of kgprof's but the loading of the workload: a plain loop by the wall clock, CHUNK steps at
a time in turn over the cells. Where a compiled cell's cumulative time falls below eager's for good
is the measured break-even; it is inside if the sweep's interval holds it. The time at the sweep's
number of executions is what brute force would choose by. A run that is stopped after --seconds goes
on in a straight line with the slope of its second half, and is marked.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

CHUNK = 20
NOISE = 0.05  # two totals closer than this are level
FUNCTIONS, EXECUTIONS = (
    Path(__file__).with_name("sweep_functions.py"),
    {"cpu": 2_000, "cuda": 10_000},
)


def child(question: str) -> None:
    """For each line of stdin, a number of steps, the seconds that they took."""
    import torch

    from kgprof import model as m
    from kgprof.record.ground.run import seed_everything
    from kgprof.workloads import loading
    from kgprof.workloads.backend import as_in

    sweep = m.decode_json(Path(question).read_bytes(), m.Sweep)
    cell = m.decode_json(os.environ["CELL"], m.Cell)
    asked = sweep.question
    device = torch.device(asked.device)
    seed_everything(asked.seed)
    with as_in(cell, device.type):
        workload = loading.load(asked.workload, (*asked.workload_args, *cell.size), asked.seed)
        modes = next(each.modes for each in workload.strategies() if each.name == asked.strategy)
        mode = cell.mode if cell.mode in modes else m.AS_IS
        session = workload.prepare(m.RunKey(strategy=asked.strategy, mode=mode), device)
        print("READY", flush=True)
        for count in map(int, sys.stdin):
            began = time.perf_counter()
            for _ in range(count):
                session.step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            print("TOOK", time.perf_counter() - began, flush=True)


class Curve:
    """Cumulative seconds over steps."""

    def __init__(self, points: list[list[float]]) -> None:
        self.steps, self.seconds = [int(n) for n, _ in points], [s for _, s in points]
        half = len(points) // 2
        self.slope = (self.seconds[-1] - self.seconds[half]) / max(
            1, self.steps[-1] - self.steps[half]
        )

    def at(self, steps: float) -> float:
        if steps >= self.steps[-1]:
            return self.seconds[-1] + (steps - self.steps[-1]) * self.slope
        after = next(i for i, n in enumerate(self.steps) if n > steps)
        n, s = self.steps[after - 1], self.seconds[after - 1]
        return s + (steps - n) * (self.seconds[after] - s) / (self.steps[after] - n)


def crossing(compiled: Curve, eager: Curve) -> float | None:
    """The last step count at which eager is still ahead; None if that never ends."""
    if compiled.slope >= eager.slope:
        return None
    end = max(compiled.steps[-1], eager.steps[-1])
    behind = [n for n in sorted({*compiled.steps, *eager.steps}) if compiled.at(n) > eager.at(n)]
    if not behind:
        return 0.0
    if behind[-1] < end:
        return float(behind[-1])
    return end + (compiled.at(end) - eager.at(end)) / (eager.slope - compiled.slope)


class Running:
    """One cell in a fresh process with cold compiler caches, which waits while another one has its
    turn."""

    def __init__(self, sweep: Path, cell: dict[str, Any], caches: str) -> None:
        private = {
            "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
            "TRITON_CACHE_DIR": f"{caches}/triton",
        }
        # as a sweep has it: the probe is paid once for a machine
        private["TORCHINDUCTOR_VEC_ISA_OK"] = "1"
        environment = {**os.environ, **private, "CELL": json.dumps(cell)}
        command = [sys.executable, __file__, "--child", str(sweep)]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.points = [[0.0, 0.0]]
        self.said("READY")

    def said(self, word: str) -> str:
        assert self.process.stdout is not None
        found = next((line for line in self.process.stdout if line.startswith(word)), None)
        if found is None:
            raise SystemExit(f"a cell did not run: exit code {self.process.wait()}")
        return found.removeprefix(word)

    def take(self, count: int) -> None:
        assert self.process.stdin is not None
        print(count, file=self.process.stdin, flush=True)
        steps, seconds = self.points[-1]
        self.points.append([steps + count, seconds + float(self.said("TOOK"))])


def run(sweep: Path, cells: Sequence[dict[str, Any]], seconds: float, most: int) -> list[Curve]:
    """All cells of a workload, a CHUNK of steps each in turn: a machine that others use is as busy
    for all of them."""
    with tempfile.TemporaryDirectory() as caches:
        running = [Running(sweep, cell, f"{caches}/{number}") for number, cell in enumerate(cells)]
        for each in running:
            for _ in range(3):
                each.take(1)
        began = [each.points[-1][1] for each in running]
        while going := [
            each
            for each, start_s in zip(running, began, strict=True)
            if each.points[-1][0] < most and each.points[-1][1] - start_s < seconds
        ]:
            for each in going:
                each.take(CHUNK)
        for each in running:
            each.process.communicate()
    return [Curve(each.points) for each in running]


def check(folder: Path, seconds: float) -> dict[str, Any]:
    from kgprof import model as m
    from kgprof.measures.sweep import weighed

    file = folder / "sweep.json"
    read = m.decode_json(file.read_bytes(), m.Sweep)
    # intervals as this kgprof says them
    sweep = json.loads(m.encode_json(weighed(read, read.executions)))
    worths = [
        each
        for each in sweep["worth"]
        if each["total"]["kind"] == "estimate" and not each["cell"]["size"]
    ]
    executions = sweep["executions"]
    wanted = [each["break_even"].get("high", 0) * 1.2 for each in worths]
    most = int(max([executions, *wanted]))
    curves = list(
        zip(worths, run(file, [each["cell"] for each in worths], seconds, most), strict=True)
    )
    eager = next(curve for each, curve in curves if each["cell"]["mode"] == "eager")
    rows = []
    for each, curve in curves:
        cell, said = each["cell"], each["break_even"]
        interval = (said["low"], said["high"]) if said["kind"] == "estimate" else None
        measured = crossing(curve, eager) if curve is not eager else None
        inside = (
            measured is not None and interval[0] <= measured <= interval[1] if interval else None
        )
        row = {
            "cell": cell,
            "interval": interval,
            "said": said.get("value"),
            "measured": measured,
            "inside": inside,
        }
        reached = curve.steps[-1] >= executions
        rows.append(
            row
            | {
                "total_s": curve.at(executions),
                "total_said_s": each["total"]["value"],
                "measured_whole": reached,
            }
        )
        print(
            f"{folder.name}: {cell['mode']}/{cell['backend']}: said {interval}, measured "
            f"{measured}, inside {inside}"
        )
    own = [row for row in rows if row["cell"]["precision"] == "as-is"]
    best = min(own, key=lambda row: row["total_s"])
    chosen = next(row for row in rows if row["cell"] == sweep["verdicts"][0]["best"])
    held = chosen["total_s"] <= best["total_s"] * (1 + NOISE)
    print(
        f"{folder.name}: recommended {chosen['total_s']:.3g} s, fastest {best['total_s']:.3g} s, "
        f"within noise: {held}"
    )
    return {
        "workload": sweep["question"]["workload"].rpartition("/")[2],
        "device": sweep["question"]["device_name"],
        "load_per_core": round(os.getloadavg()[0] / (os.cpu_count() or 1), 1),
        "executions": executions,
        "rows": rows,
        "recommended_is_best": held,
    }


def made(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """A sweep of each function. On a CPU on one thread: other programs then take less of its
    time."""
    from sweep_functions import DOES_NOT, PAYS, device

    cells = ["--mode", "default"]
    if device == "cpu":
        os.environ["OMP_NUM_THREADS"] = "1"
    for name in names or (*PAYS, *DOES_NOT):
        output = folder / name
        further = [
            "--mode",
            "reduce-overhead" if device == "cuda" else "max-autotune-no-cudagraphs",
        ]
        command = [
            sys.executable,
            "-m",
            "kgprof",
            "sweep",
            f"{FUNCTIONS}:{name}",
            "-o",
            str(output),
        ]
        command += [*cells, *(further if name in PAYS else [])]
        command += ["--executions", str(EXECUTIONS[device]), "--no-ladder", "--no-ci", "-q"]
        if not (output / "sweep.json").exists():
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        yield output


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("sweeps", nargs="*", type=Path)
    parser.add_argument("--make", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--name", action="append", default=[], help="of sweep_functions.py; all by default"
    )
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--child")
    given = parser.parse_args()
    if given.child:
        child(given.child)
        return 0
    checked = json.loads(given.output.read_text()) if given.output and given.output.exists() else []
    done = {each["workload"].rpartition(":")[2] for each in checked}
    for folder in itertools.chain(given.sweeps, made(given.make, given.name) if given.make else ()):
        if folder.name in done:  # a run that was interrupted goes on
            continue
        checked.append(check(folder, given.seconds))
        if given.output is not None:
            given.output.write_text(json.dumps(checked, indent=2) + "\n")
    pairs = [row["inside"] for each in checked for row in each["rows"] if row["inside"] is not None]
    errors = [
        abs(row["total_s"] / row["total_said_s"] - 1) for each in checked for row in each["rows"]
    ]
    print(f"break-even inside its interval: {sum(pairs)} of {len(pairs)}")
    print(
        f"recommended cell is the fastest within {NOISE:.0%}: "
        f"{sum(each['recommended_is_best'] for each in checked)} of {len(checked)}"
    )
    print(
        f"totals differ from those measured by {statistics.median(errors):.1%} (median)"
        if errors
        else "no totals"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
