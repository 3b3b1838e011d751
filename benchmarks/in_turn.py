"""How often `kgprof compare --record` is wrong about an unchanged program, and how often it finds a planted slow-down.

    python benchmarks/in_turn.py record user.json --workload user --minutes 25
    python benchmarks/in_turn.py record user-busy.json --workload user --busy --minutes 25
    python benchmarks/in_turn.py record linkpred.json --workload linkpred --minutes 25
    python benchmarks/in_turn.py replay user.json user-busy.json linkpred.json -o benchmarks/results/in_turn.json

``record`` makes checkouts (the program as it is, twice; 5 % and 10 % slower), records each once so that its caches are
warm, and then times one fresh process of each in turn, forwards and backwards (A A' B C, C B A' A, ...), with kgprof's
own recorder. A turn is in the file as soon as it is whole; the same command goes on where it stopped, in as many
sittings as one likes. ``--busy`` keeps a process that spins on one core, and records the unchanged program alone.

``replay`` applies the stopping rule of `kgprof compare --record` to disjoint blocks of a series, in order: it takes
turns until every time that decides lies on one side of --limit, at most --rounds, and begins the next comparison with
the turn after. What is left at the end is no comparison. Between the two processes of a pair there may be two of other
arms, which the verb has not: drift is a little worse than there.

What is slower: of ``user`` the number of layers, 42 and 44 for 40. Of ``linkpred`` every step of the evaluator, which
spins for that share of what it took. A process has OMP_NUM_THREADS=1 unless the variable is set.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kgprof import model as m
from kgprof.compare import intervals
from kgprof.progress import Silent
from kgprof.reading import layout
from kgprof.record import recorder, store
from kgprof.record.job import Checkout

ROOT = Path(__file__).resolve().parent.parent
ARMS = {"as it is": 0.0, "as it is, again": 0.0, "5 % slower": 0.05, "10 % slower": 0.10}
UNCHANGED = tuple(name for name, share in ARMS.items() if not share)
USER = """\
import torch

LAYERS = {layers}
torch.manual_seed(0)
x = torch.randn(64, 128, device="{device}")
weight = torch.randn(128, 128, device="{device}") / 12


@torch.compile(backend="eager")
def network(x):
    for _ in range(LAYERS):
        x = torch.tanh(x @ weight)
    return x


def step():
    return network(x)
"""
ADVANCE, EVALUATOR = "self._search.advance()", "kgprof/workloads/linkpred/evaluator.py"
SPIN = """

def _advance_slower(search: Search) -> None:
    import time

    began = time.perf_counter()
    search.advance()
    ends = time.perf_counter() + {share} * (time.perf_counter() - began)
    while time.perf_counter() < ends:
        pass
"""


def options_of(workload: str, device: str) -> m.Options:
    # Nothing here is Inductor's: naming another backend leaves out its probe of the CPU.
    common: dict[str, Any] = {"device": device, "backend": "eager", "passes": (m.PassName.TIMING,)}
    if workload == "user":
        return m.Options(workload="step.py:step", steps=100, **common)
    args = ("--queries", "10", "--batch-size", "32")
    return m.Options(workload="linkpred", workload_args=args, strategies=("fused",), modes=(m.EAGER,), **common)


def checkout(workload: str, share: float, folder: Path, device: str) -> Checkout:
    """A tree in which the program is slower by ``share``."""
    folder.mkdir()
    if workload == "user":
        (folder / "step.py").write_text(USER.format(layers=round(40 * (1 + share)), device=device))
        return Checkout(folder=str(folder))
    for part in ("kgprof", "templates", "fixtures/kg"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    if share:
        file = folder / EVALUATOR
        text = file.read_text()
        if text.count(ADVANCE) != 2:
            raise SystemExit(f"{EVALUATOR} has changed: plant the slow-down elsewhere")
        file.write_text(text.replace(ADVANCE, "_advance_slower(self._search)") + SPIN.format(share=share))
    return Checkout(folder=str(folder), home=str(folder))


# ---------------------------------------------------------------- record


def record(path: Path, workload: str, minutes: float, *, busy: bool, device: str, most: int) -> None:
    ends = time.monotonic() + 60 * minutes
    question = {"workload": workload, "busy": busy, "device": device}
    series: dict[str, Any] = (
        json.loads(path.read_text()) if path.exists() else {**question, "sittings": [], "turns": []}
    )
    if {name: series[name] for name in question} != question:
        raise SystemExit(f"{path} is of {[series[name] for name in question]}: choose another file")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    series["sittings"].append(
        {
            "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "from_turn": len(series["turns"]),
            "load": os.getloadavg(),
            "cores": os.cpu_count(),
            "machine": platform.platform(),
            "threads": os.environ["OMP_NUM_THREADS"],
        }
    )
    with tempfile.TemporaryDirectory(prefix="kgprof-in-turn-") as scratch, neighbour(busy):
        arms = {name: begun(name, workload, device, Path(scratch)) for name in (UNCHANGED if busy else ARMS)}
        took_s = 0.0
        while time.monotonic() + took_s < ends and len(series["turns"]) < most:
            began, at = time.monotonic(), len(series["turns"])
            order = list(arms) if at % 2 == 0 else list(arms)[::-1]
            turn = {name: one_process(arms[name], at + 2) for name in order}
            series["turns"].append(turn)
            partial = path.with_name(f"{path.name}.partial")
            partial.write_text(json.dumps(series))
            partial.replace(path)
            took_s = time.monotonic() - began
            print(f"turn {at + 1}: {took_s:.1f} s, {turn}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def neighbour(wanted: bool) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if wanted else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def begun(name: str, workload: str, device: str, scratch: Path) -> recorder.Recorder:
    """Its first process has cold caches and is no turn."""
    own = scratch / f"arm-{list(ARMS).index(name)}"
    tree = checkout(workload, ARMS[name], own, device)
    rest = own.with_name(f"{own.name}-scratch")
    rest.mkdir()
    options = options_of(workload, device)
    plan, dead = recorder.make_plan(options, rest, rest, Silent(), str, tree)
    if dead is not None:
        raise SystemExit(f"{name}: {dead.words}")
    options = msgspec.structs.replace(options, rounds=m.MOST_ROUNDS)
    made = recorder.Recorder(rest / "recording", options, plan, rest, Silent(), checkout=tree, side=name)
    store.create(made.folder, made.header)
    (key,) = plan.runs
    if not made.measure(key):
        raise SystemExit(f"{name}: it did not end well; see {made.folder}")
    return made


def one_process(arm: recorder.Recorder, number: int) -> dict[str, float]:
    """Its medians; empty for a process that died."""
    (key,) = arm.plan.runs
    arm.measure_round(key, number)
    file = layout.run_folder(arm.folder, key) / f"{layout.round_name(number)}.json"
    if not file.exists():
        return {}
    timing = m.decode_json(file.read_bytes(), m.TimedRound).timing
    medians = {"step": statistics.median(us for group in timing.step_us for us in group)}
    if timing.evaluation_s:
        medians["evaluation"] = statistics.median(timing.evaluation_s)
    return medians


# ---------------------------------------------------------------- replay


def comparisons(turns: Sequence[Mapping[str, Any]], other: str, most: int, limit: float) -> Iterator[dict[str, Any]]:
    """Of disjoint blocks, in order, each up to the look at which every time is decided."""
    start = 0
    while start + intervals.looks(most)[0] <= len(turns):
        for look in intervals.looks(most):
            block = [turn for turn in turns[start : start + look] if turn[UNCHANGED[0]] and turn[other]]
            if start + look > len(turns) or len(block) < intervals.FEWEST_ROUNDS:
                return
            found = {}
            for name in block[0][other]:
                times = [[turn[arm][name] for turn in block] for arm in (UNCHANGED[0], other)]
                found[name] = intervals.paired(times[0], times[1], look, most)
            verdicts = {name: each.verdict(limit) for name, each in found.items() if each is not None}
            if m.MetricVerdict.INCONCLUSIVE not in verdicts.values() or look == most:
                break
        order = [m.MetricVerdict.WORSE, m.MetricVerdict.INCONCLUSIVE, m.MetricVerdict.BETTER, m.MetricVerdict.SAME]
        yield {
            "from_turn": start,
            "rounds": look,
            "verdict": min(verdicts.values(), key=order.index),
            "slower_beyond_chance": any(each is not None and each.low > 1 for each in found.values()),
            "ratios": {name: each and [each.ratio, each.low, each.high] for name, each in found.items()},
        }
        start += look


def replay(paths: Sequence[Path], most: int, limit: float, at_most: int) -> dict[str, Any]:
    rows = []
    for path in paths:
        series = json.loads(path.read_text())
        for other in (arm for arm in series["turns"][0] if arm != UNCHANGED[0]):
            each = list(comparisons(series["turns"], other, most, limit))[:at_most]
            row = {
                "series": path.name,
                **{name: series[name] for name in ("workload", "busy", "device")},
                "head": other,
                "comparisons": len(each),
                **{str(word): sum(one["verdict"] == word for one in each) for word in m.MetricVerdict},
                "slower_beyond_chance": sum(one["slower_beyond_chance"] for one in each),
                "rounds_mean": statistics.fmean(one["rounds"] for one in each) if each else None,
                "each": each,
                "sittings": series["sittings"],
            }
            del row[str(m.MetricVerdict.NOT_OBSERVED)]
            rows.append(row)
    alike = [row for row in rows if row["head"] in UNCHANGED]
    return {
        "limit_percent": 100 * limit,
        "most_rounds": most,
        "unchanged_pairs": sum(row["comparisons"] for row in alike),
        "of_these_beside_a_busy_process": sum(row["comparisons"] for row in alike if row["busy"]),
        "false_alarms": sum(row["worse"] for row in alike),
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("record")
    making.add_argument("series", type=Path)
    making.add_argument("--workload", choices=["user", "linkpred"], required=True)
    making.add_argument("--minutes", type=float, default=25.0, help="of this sitting")
    making.add_argument("--busy", action="store_true")
    making.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    making.add_argument("--turns", type=int, default=200, help="of the whole series")
    reading = verbs.add_parser("replay")
    reading.add_argument("series", type=Path, nargs="+")
    reading.add_argument("--limit", type=float, default=2.0, help="percent")
    reading.add_argument("--rounds", type=int, default=10)
    reading.add_argument("--at-most", type=int, default=20, help="comparisons of each kind and series")
    reading.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    if given.verb == "record":
        wanted = {"busy": given.busy, "device": given.device, "most": given.turns}
        record(given.series, given.workload, given.minutes, **wanted)
        return
    found = replay(given.series, given.rounds, given.limit / 100, given.at_most)
    for row in found["rows"]:
        print({name: value for name, value in row.items() if name not in ("each", "sittings")})
    print({name: value for name, value in found.items() if name != "rows"})
    if given.output is not None:
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
