"""How often `kgprof compare --record` is wrong about an unchanged program, and how often it finds a
planted slow-down.

    python benchmarks/in_turn.py user.json --workload user --minutes 20
    python benchmarks/in_turn.py user-busy.json --workload user --busy --minutes 20
    python benchmarks/in_turn.py linkpred.json --workload linkpred --minutes 20
    python benchmarks/in_turn.py --all benchmarks/results/in_turn.json user.json user-busy.json
    linkpred.json

makes checkouts (the program as it is, twice; 5 % and 10 % slower), records each once so that its
caches are warm, and then compares them by the rule of the verb, with kgprof's own recorder: pair
after pair of fresh processes that time in turn, until every time that decides lies on one side of
--limit, at most --rounds. The kinds of comparison come in turn, so that none has the quiet hours. A
pair is in the file as soon as it is there; the same command goes on where it stopped, in as many
sittings as one likes, and ends when there are --comparisons of each kind. ``--busy`` keeps a
process beside it that spins on one core, and compares the unchanged program alone.

What is slower: of ``user`` the number of layers, 42 and 44 for 40; the step has a part beside the
layers, so that its time grows by a little less. ``deep`` is that of 100 layers, 101 and 102 for 1
and 2 %, and ``train`` a compiled training step of 100 small batches. ``--truth`` says how much they
are slower by a clock of its own. With ``--limit 0`` a comparison ends as soon as the interval lies
above no change. Of ``linkpred`` every step of the evaluator, which
spins for that share of what it took. A process has OMP_NUM_THREADS=1 unless the variable is set.
``--apart`` runs the processes of a pair one after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import platform
import runpy
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
from kgprof.compare.metrics import VERDICTS as OF_HEAD
from kgprof.judge import InTurn, Pair, Samples, judge, looks, ratio_in_turn
from kgprof.measures import times
from kgprof.progress import Progress
from kgprof.reading import layout
from kgprof.record.ground import store
from kgprof.record.ground.job import Checkout
from kgprof.record.processes import recorder

ROOT = Path(__file__).resolve().parent.parent
ARMS = {
    "as it is": 0.0,
    "as it is, again": 0.0,
    "5 % slower": 0.05,
    "10 % slower": 0.10,
    "1 % slower": 0.01,
    "2 % slower": 0.02,
}
AS_IS, AGAIN, *_ = ARMS
HEADS = {  # by --only
    "": ("as it is, again", "5 % slower", "10 % slower"),
    "unchanged": ("as it is, again",),
    "planted": ("5 % slower", "10 % slower"),
    "small": ("1 % slower", "2 % slower"),
    "small and unchanged": ("2 % slower", "1 % slower", "as it is, again"),
}
VERDICTS = [word for word in m.MetricVerdict if word is not m.MetricVerdict.NOT_OBSERVED]
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
TRAIN = """\
import torch

BATCHES = {layers}
torch.manual_seed(0)
N = {size}
wide = torch.nn.Linear(N, 2 * N), torch.nn.GELU(), torch.nn.LayerNorm(2 * N)
model = torch.nn.Sequential(*wide, torch.nn.Linear(2 * N, N)).to("{device}")
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
x = torch.randn(2 * N, N, device="{device}")


@torch.compile
def loss_of(x):
    return model(x).square().mean()


def step():
    for _ in range(BATCHES):
        loss_of(x).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
# by workload: its text, and how often it does the work of which 1 % is one time more
STEPS = {"user": (USER, 40), "deep": (USER, 100), "train": (TRAIN, 100)}
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
    common: dict[str, Any] = {"device": device, "passes": (m.PassName.TIMING,)}
    if workload == "train":
        return m.Options(workload="step.py:step", steps=10, **common)
    # Nothing is Inductor's: naming another backend leaves out its probe of the CPU.
    common["backend"] = "eager"
    if workload in STEPS:
        return m.Options(workload="step.py:step", steps=100, **common)
    args = ("--queries", "10", "--batch-size", "32")
    return m.Options(
        workload="linkpred", workload_args=args, strategies=("fused",), modes=(m.EAGER,), **common
    )


def checkout(workload: str, share: float, folder: Path, device: str) -> Checkout:
    """A tree in which the program is slower by ``share``."""
    folder.mkdir()
    if workload in STEPS:
        text, times_over = STEPS[workload]
        size = 1024 if device == "cuda" else 32
        step = text.format(layers=round(times_over * (1 + share)), device=device, size=size)
        (folder / "step.py").write_text(step)
        return Checkout(folder=str(folder))
    for part in ("kgprof", "templates", "fixtures/kg"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    if share:
        file = folder / EVALUATOR
        text = file.read_text()
        if text.count(ADVANCE) != 2:
            raise SystemExit(f"{EVALUATOR} has changed: plant the slow-down elsewhere")
        file.write_text(
            text.replace(ADVANCE, "_advance_slower(self._search)") + SPIN.format(share=share)
        )
    return Checkout(folder=str(folder), home=str(folder))


# ---------------------------------------------------------------- pair after pair


def compare(
    path: Path,
    question: dict[str, Any],
    ends: float,
    wanted: int,
    busy: bool,
    apart: bool,
    only: str,
) -> None:
    kept: dict[str, Any] = (
        json.loads(path.read_text()) if path.exists() else {**question, "sittings": [], "found": []}
    )
    if {name: kept[name] for name in question} != question:
        raise SystemExit(f"{path} is of {[kept[name] for name in question]}: choose another file")
    kept["sittings"].append(
        {
            "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "from": len(kept["found"]),
            "load": os.getloadavg(),
            "cores": len(os.sched_getaffinity(0)),
            "machine": platform.platform(),
            "threads": os.environ["OMP_NUM_THREADS"],
        }
    )
    if busy:
        only = "unchanged"
    heads = HEADS[only]
    with tempfile.TemporaryDirectory(prefix="kgprof-in-turn-") as scratch, neighbour(busy):
        arms = {
            name: begun(name, question["workload"], question["device"], Path(scratch))
            for name in (AS_IS, *heads)
        }
        took_s = 0.0
        while time.monotonic() + took_s < ends:
            comparison = next((each for each in kept["found"] if "verdict" not in each), None)
            if comparison is None:
                done = {name: sum(each["head"] == name for each in kept["found"]) for name in heads}
                head = min(done, key=lambda name: done[name])
                if done[head] >= wanted:
                    break
                comparison = {"head": head, "pairs": []}
                kept["found"].append(comparison)
            began = time.monotonic()
            comparison["pairs"].append(
                one_pair(arms[AS_IS], arms[comparison["head"]], comparison["pairs"], apart)
            )
            comparison.update(
                judged(comparison["pairs"], question["rounds"], question["limit_percent"] / 100)
            )
            partial = path.with_name(f"{path.name}.partial")
            partial.write_text(json.dumps(kept, indent=1))
            partial.replace(path)
            took_s = time.monotonic() - began
            said = (
                f"{comparison['head']}, pair {len(comparison['pairs'])} in {took_s:.1f} s: "
                f"{comparison['pairs'][-1]}"
            )
            print(f"{said} {comparison.get('verdict', '')}", file=sys.stderr, flush=True)
    if path.exists():
        print(summary([path]))


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
    """Its first process has cold caches and is in no pair."""
    own = scratch / f"arm-{list(ARMS).index(name)}"
    tree = checkout(workload, ARMS[name], own, device)
    rest = own.with_name(f"{own.name}-scratch")
    rest.mkdir()
    options = options_of(workload, device)
    plan, dead = recorder.make_plan(options, rest, rest, Progress(), str, tree)
    if dead is not None:
        raise SystemExit(f"{name}: {dead.words}")
    options = msgspec.structs.replace(options, rounds=m.MOST_ROUNDS)  # so that the caches are kept
    made = recorder.Recorder(
        rest / "recording", options, plan, rest, Progress(), checkout=tree, side=name
    )
    store.create(made.folder, made.header)
    (key,) = plan.runs
    if not made.measure(key):
        raise SystemExit(f"{name}: it did not end well; see {made.folder}")
    return made


def one_pair(
    base: recorder.Recorder, head: recorder.Recorder, before: Sequence[Any], apart: bool
) -> dict[str, Pair]:
    """Of the step and of the evaluation, where there is one; nothing where a process died."""
    (key,) = base.plan.runs
    files = [
        layout.run_folder(arm.folder, key) / f"{layout.round_name(2)}.json" for arm in (base, head)
    ]
    for file in files:
        file.unlink(missing_ok=True)
    one, other = (base, head) if len(before) % 2 == 0 else (head, base)
    if apart:
        one.measure_round(key, 2), other.measure_round(key, 2)
    else:
        one.measure_pair(other, key, 2)
    if not all(file.exists() for file in files):
        return {}
    timed = [m.decode_json(file.read_bytes(), m.TimedRound).timing for file in files]
    medians = [[statistics.median(us for group in each.step_us for us in group) for each in timed]]
    medians += (
        [[statistics.median(each.evaluation_s) for each in timed]] if timed[0].evaluation_s else []
    )
    taken = [
        times.taken_in_turn(each) or m.TakenInTurn(step_us=(), evaluation_s=()) for each in timed
    ]
    pieces = [[each.step_us for each in taken], [each.evaluation_s for each in taken]]
    return {
        name: Pair(below, above, ratio_in_turn(*side_by_side) or above / below)
        for name, (below, above), side_by_side in zip(
            ("step", "evaluation"), medians, pieces, strict=False
        )
    }


def judged(pairs: Sequence[Any], most: int, limit: float) -> dict[str, Any]:
    """Nothing before a look, nor while something is open and pairs are left."""
    if (look := len(pairs)) not in looks(most):
        return {}
    whole = {number: pair for number, pair in enumerate(pairs, start=2) if pair}
    in_turn = InTurn(planned=most, made=look)
    answers = {
        name: judge(*sides(whole, name), limit, in_turn) for name in next(iter(whole.values()), ())
    }
    verdicts = {OF_HEAD[answer.verdict] for answer in answers.values()}
    if look < most and (m.MetricVerdict.INCONCLUSIVE in verdicts or not verdicts):
        return {}
    order = [
        m.MetricVerdict.WORSE,
        m.MetricVerdict.INCONCLUSIVE,
        m.MetricVerdict.BETTER,
        m.MetricVerdict.SAME,
    ]
    return {
        "verdict": min(verdicts, key=order.index, default=m.MetricVerdict.INCONCLUSIVE),
        "slower_beyond_chance": any(
            each.interval is not None and each.interval.low > 1 for each in answers.values()
        ),
        "ratios": {
            name: each.interval and [each.interval.ratio, each.interval.low, each.interval.high]
            for name, each in answers.items()
        },
    }


def sides(whole: Mapping[int, Any], name: str) -> tuple[Samples, Samples]:
    """Base and head of pairs of which the ratio is kept and not the pieces of work."""
    kept = {number: Pair(*pair[name]) for number, pair in whole.items()}

    def side(rounds: Mapping[int, float], ratios: Mapping[int, float]) -> Samples:
        pieces = {number: (ratio,) for number, ratio in ratios.items()}
        return Samples(median=1.0, low=1.0, high=1.0, count=1, rounds=rounds, pieces=pieces)

    base = side({number: pair.first for number, pair in kept.items()}, dict.fromkeys(kept, 1.0))
    ratios = {number: pair.ratio for number, pair in kept.items()}
    return base, side({number: pair.second for number, pair in kept.items()}, ratios)


def truth(workload: str, device: str) -> dict[str, Any]:
    """How much slower each program is, without kgprof: steps of both in one process, in turn."""
    import torch

    def seconds(step: Any) -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    found: dict[str, Any] = {"workload": workload, "device": device, "torch": torch.__version__}
    with tempfile.TemporaryDirectory(prefix="kgprof-in-turn-") as scratch:
        for head in ("as it is, again", "1 % slower", "2 % slower"):
            both = []
            for name in (AS_IS, head):
                tree = Path(scratch) / f"{head}-{name}"
                checkout(workload, ARMS[name], tree, device)
                both.append(runpy.run_path(str(tree / "step.py"))["step"])
            for step in both * 10:
                step()
            ratios = []
            for number in range(100):
                order = both if number % 2 == 0 else both[::-1]
                took = {step: seconds(step) for step in order}
                ratios.append(took[both[1]] / took[both[0]])
            quarters = statistics.quantiles(ratios, n=4)
            found[head] = {"steps": len(ratios), "ratio": quarters[1], "quartiles": quarters[::2]}
    return found


# ---------------------------------------------------------------- what came out


def summary(paths: Sequence[Path]) -> dict[str, Any]:
    rows = []
    for path in paths:
        series = json.loads(path.read_text())
        found = [each for each in series["found"] if "verdict" in each]
        for head in dict.fromkeys(each["head"] for each in found):
            of = [each for each in found if each["head"] == head]
            apart = [math.log(pair["step"][2]) for each in of for pair in each["pairs"] if pair]
            medians = [
                math.log(pair["step"][1] / pair["step"][0])
                for each in of
                for pair in each["pairs"]
                if pair
            ]
            rows.append(
                {
                    "series": path.name,
                    **{name: series[name] for name in ("workload", "busy", "device", "apart")},
                    "head": head,
                    "comparisons": len(of),
                    **{str(word): sum(one["verdict"] == word for one in of) for word in VERDICTS},
                    "slower_beyond_chance": sum(one["slower_beyond_chance"] for one in of),
                    "pairs_mean": statistics.fmean(len(one["pairs"]) for one in of),
                    "step_ratio_median": math.exp(statistics.median(apart)),
                    "spread_percent": 100 * statistics.stdev(apart),  # of a pair's ratio
                    # were it that of the two medians
                    "spread_of_medians_percent": 100 * statistics.stdev(medians),
                }
            )
    alike = [row for row in rows if row["head"] == AGAIN]
    return {
        "unchanged": sum(row["comparisons"] for row in alike),
        "of_these_beside_a_busy_process": sum(row["comparisons"] for row in alike if row["busy"]),
        "false_alarms": sum(row["worse"] for row in alike),
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("series", type=Path, nargs="+")
    parser.add_argument("--workload", choices=[*STEPS, "linkpred"])
    parser.add_argument("--minutes", type=float, default=20.0, help="of this sitting")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--only", choices=[*HEADS], default="", help="in this sitting")
    parser.add_argument("--truth", action="store_true", help="by a clock of its own; no pairs")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--comparisons", type=int, default=20, help="of each kind, in all sittings")
    parser.add_argument("--limit", type=float, default=2.0, help="percent")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--all", type=Path, metavar="FILE", help="only put these series together, in this file"
    )
    given = parser.parse_args()
    if given.all is not None:
        whole = {
            **summary(given.series),
            "series": {path.name: json.loads(path.read_text()) for path in given.series},
        }
        given.all.write_text(json.dumps(whole, indent=1) + "\n")
        print(json.dumps(summary(given.series), indent=1))
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.truth:
        given.series[0].write_text(json.dumps(truth(given.workload, given.device), indent=1) + "\n")
        return
    question = {
        name: getattr(given, name) for name in ("workload", "busy", "apart", "device", "rounds")
    }
    question["limit_percent"] = given.limit
    ends = time.monotonic() + 60 * given.minutes
    compare(given.series[0], question, ends, given.comparisons, given.busy, given.apart, given.only)


if __name__ == "__main__":
    main()
