"""Lockstep batches: B candidates are loaded together, and the batch waits for its slowest."""

import torch

from kgprof.workloads.linkpred.queue import result_row
from kgprof.workloads.linkpred.slots import Carried, SlotStrategy, Stepped, advance, refill


class Batched(SlotStrategy):
    name = "batched"
    summary = "Lockstep batches: no slot is refilled before every slot of its batch is finished."

    def step(self) -> Stepped:
        problem = self.problem
        now = self.carried()
        children = problem.derive(now.slots.states, now.slots.candidate)
        moved = advance(problem, now.slots, children, now.tally)
        all_idle = moved.idle.all().expand_as(moved.idle)
        slots, head = refill(problem, moved, now.head, asking=all_idle)
        done = torch.all(slots.candidate == problem.size)
        row = result_row(now.slots.candidate, moved.finished, problem.size)
        return Stepped(
            Carried(slots, head, moved.tally, done, None), row, moved.outcome, moved.slots.depth
        )
