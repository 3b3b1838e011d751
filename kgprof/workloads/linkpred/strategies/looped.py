"""The loop itself inside the compiled code: ``fused`` until all are done, in one call, by
``torch.while_loop``.

The code that Inductor makes of the loop asks for ``done`` on the host before each turn, so no CUDA
graph holds it, and reduce-overhead is not offered. What is saved is Python between the steps.
"""

from typing import ClassVar

import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop

from kgprof import model as m
from kgprof.workloads.linkpred.slots import Carried, Slots, SlotStrategy, Stepped, Tally
from kgprof.workloads.linkpred.strategies.stepped import fused_step

DONE = 7  # its place among the tensors of Carried


class Looped(SlotStrategy):
    name = "looped"
    summary = (
        "As fused, the whole loop in one call by torch.while_loop; a step is the whole evaluation."
    )
    modes: ClassVar[tuple[str, ...]] = (m.EAGER, "default")

    @staticmethod
    def room(batch_size: int, choices: int) -> int:
        return 0  # how often the loop turned is not known outside

    def step(self) -> Stepped:
        begun = (*self.carried().tensors(), self.outcome.clone(), self.depths.clone())
        *last, outcome, depths = while_loop(  # type: ignore[no-untyped-call]
            self._goes_on, self._turn, begun
        )
        return Stepped(
            _carried(last), torch.arange(len(outcome), device=outcome.device), outcome, depths
        )

    def _goes_on(self, *tensors: Tensor) -> Tensor:
        return ~tensors[DONE]

    def _turn(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        *carried, outcome, depths = tensors
        stepped = fused_step(self.problem, _carried(carried))
        outcome = outcome.scatter(0, stepped.row, stepped.outcome)
        return (*stepped.carried.tensors(), outcome, depths.scatter(0, stepped.row, stepped.depth))


def _carried(tensors: list[Tensor]) -> Carried:
    slots, (head, dropped, nans, done) = Slots(*tensors[:4]), tensors[4:]
    return Carried(slots, head, Tally(dropped, nans), done, None)
