"""What the probes cost a step of about 1 ms: ``kgprof.watch``, each of its sources alone, and the
MEMORY pass's two.

    python benchmarks/probes.py -o benchmarks/results/probes.json

One process for each backend and arm. In it a bare step and a watched one, of the same source and
compiled apart, take turns in the order ABBA from pair to pair. ``first``: single calls, the 31
behind the compiling one, each looked at in full. ``later``: blocks of 16 calls, of which the tensor
probe looks at one; a block counts with its mean. About two minutes on two quiet cores. The step
reads nothing: the hook of a read stands in the dispatcher, so it would burden both arms. A read
costs 14 us more while it is watched (1.7 to 16, medians of 30 times 100 reads, one core, torch
2.13).

The interval of the median is capture_cost.py's (order statistics, at least 95 %). ``watch`` may
cost 1.10 of a step that takes LOW_MS to HIGH_MS; a limit is held if the interval reaches it. Exit
code 0: held everywhere; 1: not; 6: fewer than PAIRS pairs, or a step of another length.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import capture_cost

BACKENDS = ("eager", "aot_eager", "inductor")
ARMS = ("watch", "compile sources", "sync hooks", "tensor probe", "memory pass")
FIRST, LATER = "first", "later"
LIMIT = 1.10
LIMITED = "watch"
PAIRS = 40
FIRST_CALLS = 32  # of which each is looked at in full (record/listeners/tensor_probe.py)
WANTED = {FIRST: FIRST_CALLS - 1, LATER: PAIRS}  # fewer pairs give no verdict
CALLS = 16  # a block; one in so many is looked at later on
LOW_MS, HIGH_MS = 0.7, 1.5
HELD, NOT_HELD = "held", "not held"
EXIT_CODES = {HELD: 0, NOT_HELD: 1}

Step = Callable[[], object]
Pair = tuple[float, float]  # microseconds a call: bare, watched


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="default: each")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.arm:
        print(json.dumps(measure(asked.backend[0], asked.arm, asked.pairs)))
        return
    found = run(asked.backend or list(BACKENDS), asked.pairs)
    if asked.output:
        asked.output.parent.mkdir(parents=True, exist_ok=True)
        asked.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(table(found))
    sys.exit(max(EXIT_CODES.get(row["verdict"], 6) for row in found["rows"] if row["verdict"]))


# -------------------------------------------------- one arm on one backend, in a process of its own


def measure(backend: str, arm: str, pairs: int) -> dict[str, list[Pair]]:
    import torch

    torch.set_num_threads(1)
    bare, watched = step_of(backend), step_of(backend)
    # compiled before anything listens: what is compiled later has the probes around its graph
    bare()
    with ExitStack() as stack:
        step = stack.enter_context(under(arm, watched))
        # The compile is call 0 of the watched one. What is left of the calls that are looked at in
        # full is ``first``.
        step()
        first = [paired(bare, step, 1, number) for number in range(FIRST_CALLS - 1)]
        later = [paired(bare, step, CALLS, number) for number in range(pairs)]
    return {FIRST: first, LATER: later}


def step_of(backend: str) -> Step:
    """About 1 ms on one core of a server, with five tensors going into its graph and two coming
    out."""
    import torch

    size = 192
    left, right = torch.randn(size, size) / size, torch.randn(size, size) / size
    scale, shift, rows = torch.ones(size), torch.zeros(size), torch.randn(size, size)

    def step(
        rows: torch.Tensor,
        left: torch.Tensor,
        right: torch.Tensor,
        scale: torch.Tensor,
        shift: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        for _ in range(3):
            rows = torch.tanh(rows @ left @ right) * scale + shift
        return rows, rows.sum(0)

    # A code object of its own: Dynamo keeps what it compiled by that.
    code = step.__code__.replace(co_name=f"step_{time.perf_counter_ns()}")
    step.__code__ = code
    compiled = torch.compile(step, backend=backend)
    return lambda: compiled(rows, left, right, scale, shift)


@contextmanager
def under(arm: str, step: Step) -> Iterator[Step]:
    """``step`` as the arm calls it."""
    import torch

    import kgprof
    from kgprof.record.ground import project_sources
    from kgprof.record.ground.source import Source, listening
    from kgprof.record.listeners.call_index import CallIndex
    from kgprof.record.listeners.syncs import Syncs
    from kgprof.record.listeners.tensor_probe import TensorProbe
    from kgprof.record.passes.torch_trace import CompileSources

    if arm == "watch":
        with kgprof.watch(step) as watched:
            yield watched
        return
    calls, device, project = (
        CallIndex(),
        torch.device("cpu"),
        project_sources.project_files("benchmarks"),
    )
    sources: dict[str, tuple[Source, ...]] = {
        "compile sources": CompileSources(calls, project, to_stderr=False).sources,
        "sync hooks": (Syncs(calls, device, project),),
        "tensor probe": (TensorProbe(calls),),
        "memory pass": (Syncs(calls, device, project), TensorProbe(calls)),
    }

    def counted() -> object:
        with calls.call():
            return step()

    with listening(sources[arm]):
        yield counted


def paired(bare: Step, watched: Step, calls: int, number: int) -> Pair:
    if number % 2:
        after, before = block(watched, calls), block(bare, calls)
        return before, after
    return block(bare, calls), block(watched, calls)


def block(step: Step, calls: int) -> float:
    """Mean of the block: the one call in 16 that is looked at counts with its share, which a median
    would hide."""
    began = time.perf_counter_ns()
    for _ in range(calls):
        step()
    return (time.perf_counter_ns() - began) / 1e3 / calls


# ---------------------------------------------------------------- all of them


def run(backends: list[str], pairs: int) -> dict[str, Any]:
    rows = []
    for backend in backends:
        for arm in ARMS:
            found = one_process(backend, arm, pairs)
            rows += [row_of(backend, arm, when, found[when]) for when in WANTED]
            print(row_text(rows[-2]), row_text(rows[-1]), sep="\n", file=sys.stderr, flush=True)
    return {
        "command": " ".join(["python", "benchmarks/probes.py", *sys.argv[1:]]),
        "environment": capture_cost.environment(),
        "rows": rows,
    }


def one_process(backend: str, arm: str, pairs: int) -> dict[str, list[Pair]]:
    with tempfile.TemporaryDirectory() as cache:
        caches = {
            "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
            "TRITON_CACHE_DIR": f"{cache}/triton",
        }
        settings = {**os.environ, **caches, "TORCHINDUCTOR_VEC_ISA_OK": "1"}
        arguments = [f"--backend={backend}", f"--arm={arm}", f"--pairs={pairs}"]
        done = subprocess.run(
            [sys.executable, __file__, *arguments],
            env=settings,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    measured: dict[str, list[Pair]] = json.loads(done.stdout.splitlines()[-1])
    return measured


def row_of(backend: str, arm: str, when: str, pairs: list[Pair]) -> dict[str, Any]:
    ratios = [watched / bare for bare, watched in pairs]
    low, high = capture_cost.interval(ratios)
    bare_us = statistics.median(bare for bare, _ in pairs)
    return {
        "backend": backend,
        "arm": arm,
        "when": when,
        "bare_us": bare_us,
        "added_us": statistics.median(watched - bare for bare, watched in pairs),
        "ratio": statistics.median(ratios),
        "low": low,
        "high": high,
        "pairs": len(ratios),
        "verdict": verdict(low, bare_us, len(ratios), WANTED[when]) if arm == LIMITED else "",
    }


def verdict(low: float, bare_us: float, pairs: int, wanted: int) -> str:
    if pairs < wanted:
        return f"no verdict, below {wanted} pairs"
    if not LOW_MS <= bare_us / 1e3 <= HIGH_MS:
        return f"no verdict, the step takes {bare_us / 1e3:.2f} ms"
    return HELD if low <= LIMIT else NOT_HELD


def row_text(row: dict[str, Any]) -> str:
    interval = f"({row['low']:.3f} to {row['high']:.3f}, {row['pairs']} pairs)"
    limit = f"  at most {LIMIT:.2f}: {row['verdict']}" if row["verdict"] else ""
    named = f"{row['backend']:<10} {row['arm']:<16} {row['when']:<6}"
    return (
        f"{named} {row['bare_us']:7.0f} us {row['added_us']:+6.0f} us  "
        f"{row['ratio']:.3f} {interval}{limit}"
    )


def table(found: dict[str, Any]) -> str:
    return "\n".join(
        ["watched over bare, median of pairs (95 % interval)", *map(row_text, found["rows"])]
    )


if __name__ == "__main__":
    main()
