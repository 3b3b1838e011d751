"""One queue, two engine calls at every step: for the slots that go on, and for those that are
refilled."""

from torch import Tensor

from kgprof.workloads.linkpred.slots import Slots
from kgprof.workloads.linkpred.strategies.torch_cond import TorchCond
from kgprof.workloads.linkpred.unification import Children


class Recycled(TorchCond):
    name = "recycled"
    summary = (
        "Finished slots are refilled at once, and a second engine call derives them at every step."
    )

    def derive_fresh(self, slots: Slots, fresh: Tensor) -> Children:
        return self.problem.derive(slots.states, slots.candidate)
