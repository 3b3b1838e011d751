"""One queue, one engine call: a slot that finished is refilled at once, and chosen and fresh states
are merged before the engine derives them all together."""

from __future__ import annotations

import torch

from kgprof.workloads.linkpred.queue import result_row
from kgprof.workloads.linkpred.slots import Carried, SlotStrategy, Stepped, advance, refill


class Fused(SlotStrategy):
    name = "fused"
    summary = (
        "Finished slots are refilled at once, and chosen and fresh states share one engine call."
    )

    def step(self) -> Stepped:
        problem, now = self.problem, self.carried()
        # The merged states of the last step: some were chosen, some have just been loaded, one call
        # derives both.
        children = problem.derive(now.slots.states, now.slots.candidate)
        moved = advance(problem, now.slots, children, now.tally)
        slots, head = refill(problem, moved, now.head, asking=moved.idle)
        done = torch.all(slots.candidate == problem.size)
        row = result_row(now.slots.candidate, moved.finished, problem.size)
        return Stepped(
            Carried(slots, head, moved.tally, done, None), row, moved.outcome, moved.slots.depth
        )
