"""One candidate per engine call: what a loop over the candidates costs, before any batching."""

from kgprof.workloads.linkpred.slots import Problem
from kgprof.workloads.linkpred.strategies.batched import Batched


class Sequential(Batched):
    name = "sequential"
    summary = "One candidate at a time, whatever the batch size."

    @staticmethod
    def room(batch_size: int, choices: int) -> int:
        return 1

    def __init__(self, problem: Problem) -> None:
        triples = problem.goals[:-1]
        super().__init__(
            Problem(problem.engine, problem.policy, triples, batch_size=1, depth=problem.depth)
        )
