"""``fused``, several choices in one call: nothing is copied into the buffers and nothing read back
in between.

In reduce-overhead the call is one CUDA graph. What one choice leaves is what the next one reads, in
memory of the graph's own, so only the last is copied. Choices after the end find empty slots and
change nothing.
"""

import torch

from kgprof.workloads.linkpred.queue import result_row
from kgprof.workloads.linkpred.slots import Carried, Problem, SlotStrategy, Stepped, advance, refill


class FusedSteps(SlotStrategy):
    name = "stepped"
    summary = (
        "As fused, several choices in one call; after each call the CPU asks whether all are done."
    )

    @staticmethod
    def room(batch_size: int, choices: int) -> int:
        return batch_size * choices

    def step(self) -> Stepped:
        now = self.carried()
        results = []
        for _ in range(self.problem.choices):
            stepped = fused_step(self.problem, now)
            now = stepped.carried
            results.append(stepped[1:])
        return Stepped(now, *(torch.cat(column) for column in zip(*results, strict=True)))


def fused_step(problem: Problem, now: Carried) -> Stepped:
    """The step of ``fused``, from what the last one left in place of the buffers."""
    children = problem.derive(now.slots.states, now.slots.candidate)
    moved = advance(problem, now.slots, children, now.tally)
    slots, head = refill(problem, moved, now.head, asking=moved.idle)
    done = torch.all(slots.candidate == problem.size)
    row = result_row(now.slots.candidate, moved.finished, problem.size)
    return Stepped(
        Carried(slots, head, moved.tally, done, None), row, moved.outcome, moved.slots.depth
    )
