"""Lockstep batches: B candidates are loaded together, and the batch waits for its slowest."""

from kgprof.workloads.linkpred.slots import SlotStrategy, Stepped
from kgprof.workloads.linkpred.strategies.fused import fused_step


class Batched(SlotStrategy):
    name = "batched"
    summary = "Lockstep batches: no slot is refilled before every slot of its batch is finished."

    def step(self) -> Stepped:
        return fused_step(self.problem, self.carried(), lockstep=True)
