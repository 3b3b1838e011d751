"""The evaluator step that the documents publish as V10 (S0 7.2, S3 2.2), emulated on kgprof's own
engine and policy.

    python benchmarks/published_v10.py --device cuda -o benchmarks/results/published_v10_h200.json
    python benchmarks/published_v10.py --device cpu --max-steps 60 -- --queries 20 --corruptions 10

As published: the engine runs only for slots that were just loaded, and a slot that goes on keeps
the children of its query, so it chooses among stale states; slot i works through candidates i, i +
N, i + 2N of N queries, and slots beyond N stay empty; the loop ends after (candidates // slots + 2)
x depth steps, finished or not. Beside it the strategy ``fused`` on the same candidates, in which
every live slot's children are derived and every candidate ends. Options after ``--`` are those of
the workload linkpred; by default the documents' sizes.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kgprof.workloads.linkpred import workload as linkpred
from kgprof.workloads.linkpred.evaluator import SlotSearch
from kgprof.workloads.linkpred.graph import FALSE, TRUE
from kgprof.workloads.linkpred.policy import choose
from kgprof.workloads.linkpred.proof import FAILED, PROVED, TRUNCATED, UNFINISHED
from kgprof.workloads.linkpred.queue import load
from kgprof.workloads.linkpred.slots import Problem
from kgprof.workloads.linkpred.strategies.fused import Fused

SIZES = ("--preset", "seed", "--queries", "100", "--corruptions", "100")


class Published:
    """The published loop. ``order`` [N queries, candidates of each] holds candidates; a slot is one
    query's row."""

    def __init__(self, problem: Problem, order: torch.Tensor, cap: int) -> None:
        self.problem, self.order, self.cap = problem, order, cap
        self.outcome = torch.full(
            (problem.size + 1,), UNFINISHED, dtype=torch.int8, device=order.device
        )
        self.steps = self.engine_steps = 0

    def run(self) -> None:
        """Until every slot is through its row, or to the cap."""
        problem, order = self.problem, self.order
        slots, device = min(problem.batch_size, len(order)), order.device
        rows = torch.arange(slots, device=device)
        at = torch.zeros(slots, dtype=torch.int64, device=device)
        depth, finished_all = (
            torch.zeros_like(at),
            torch.zeros(slots, dtype=torch.bool, device=device),
        )
        states = load(problem.goals, order[rows, at], problem.engine.caps.atoms)
        children = problem.derive(states, order[rows, at])
        while self.steps < self.cap and not bool(finished_all.all()):
            chosen = choose(problem.policy(states, children.states, children.number))
            states, depth = children.states[rows, chosen.child], depth + 1
            proved, failed = states[:, 0, 0] == TRUE, states[:, 0, 0] == FALSE
            ended = (proved | failed | (depth >= problem.depth)) & ~finished_all
            result = torch.where(proved, PROVED, torch.where(failed, FAILED, TRUNCATED)).to(
                torch.int8
            )
            self.outcome[torch.where(ended, order[rows, at], problem.size)] = result
            again = ended & (at + 1 < order.shape[1])
            finished_all = finished_all | (ended & ~again)
            at, depth = at + again, torch.where(again, 0, depth)
            # the published torch.cond: else every slot keeps the children it has
            if bool(again.any()):
                self.engine_steps += 1
                fresh = load(problem.goals, order[rows, at], problem.engine.caps.atoms)
                states = torch.where(again.view(-1, 1, 1), fresh, states)
                derived = problem.derive(fresh, order[rows, at])
                kept = (
                    torch.where(_like(again, old), new, old)
                    for new, old in zip(derived, children, strict=True)
                )
                children = type(children)(*kept)
            self.steps += 1


def _like(mask: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return mask.view(-1, *[1] * (other.dim() - 1))


def measured(
    args: list[str], device: torch.device, modes: list[str], cap: int | None
) -> dict[str, Any]:
    built = linkpred.build(args, seed=0)
    problem, candidates = built.problem(device), built.candidates
    total, batch, depth = problem.size, problem.batch_size, problem.depth
    queries = len(candidates.queries)
    # Candidates as the sampler numbers them, a row for each query; a row that filtering left
    # shorter repeats its first.
    slots = torch.from_numpy(candidates.slots.reshape(queries, -1)).to(device)
    order = torch.where(slots < 0, slots[:, :1], slots)
    published = Published(problem, order, cap or (total // batch + 2) * depth)
    Published(problem, order, 3).run()  # loads the kernels
    seconds = clocked(published.run, device)
    finished = int((published.outcome[:-1] != UNFINISHED).sum())
    result: dict[str, Any] = {
        "settings": built.settings(),
        "candidates": total,
        "published": {
            "steps": published.steps,
            "cap": published.cap,
            "engine_steps": published.engine_steps,
            "finished": finished,
            "proved": int((published.outcome[:-1] == PROVED).sum()),
            "seconds": seconds,
            "ms_per_candidate_as_published": seconds * 1e3 / total,
            "ms_per_finished_candidate": seconds * 1e3 / max(finished, 1),
            "ms_per_step": seconds * 1e3 / published.steps,
        },
    }
    states = load(problem.goals, order[: min(batch, queries), 0], problem.engine.caps.atoms)
    own = order[: min(batch, queries), 0]
    children = problem.derive(states, own)
    parts = {
        "engine_us": lambda: problem.derive(states, own),
        "policy_us": lambda: problem.policy(states, children.states, children.number),
    }
    for name, part in parts.items():
        result["published"][name] = sorted(clocked(part, device) * 1e6 for _ in range(11))[5]
    for mode in modes:
        search = SlotSearch(Fused(problem), mode)
        for _ in range(3):
            search.advance()
        search.restart()
        steps = 0

        def whole(search: SlotSearch = search) -> None:
            nonlocal steps
            while not search.done:
                search.advance()
                steps += 1

        seconds = clocked(whole, device)
        right = torch.from_numpy(search.found().outcome).to(device)
        ended = published.outcome[:-1] != UNFINISHED
        result[f"fused.{mode}"] = {
            "steps": steps,
            "finished": int((right != UNFINISHED).sum()),
            "proved": int((right == PROVED).sum()),
            "seconds": seconds,
            "ms_per_candidate": seconds * 1e3 / total,
            "proved_here_but_not_as_published": int(
                ((right == PROVED) & ended & (published.outcome[:-1] != PROVED)).sum()
            ),
        }
    return result


def clocked(call: Callable[[], object], device: torch.device) -> float:
    """Seconds, the GPU's work included."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--mode", action="append", help="of the strategy fused; default: eager")
    parser.add_argument(
        "--max-steps", type=int, help="of the published loop, in place of its own cap"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("reports/published_v10.json"))
    parser.add_argument("workload", nargs="*", help="options of linkpred, after --")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    with torch.no_grad():
        result = measured(
            [*SIZES, *arguments.workload], device, arguments.mode or ["eager"], arguments.max_steps
        )
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else None
    result["environment"] = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "gpu": gpu,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key != "settings"}, indent=1))


if __name__ == "__main__":
    main()
