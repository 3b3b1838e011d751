"""The evaluator's buffers under the tensor probe: they stay, nothing is shared, and a rebound one
is found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kgprof.collectors.graphs import addresses
from kgprof.collectors.graphs.addresses import BufferUse
from kgprof.collectors.tensors import aliases, mutations
from kgprof.model import Level
from kgprof.reading.evidence import Evidence
from kgprof.workloads.linkpred import evaluator, slots
from kgprof.workloads.linkpred.evaluator import EvaluatorSession, SlotSearch
from kgprof.workloads.linkpred.slots import BUFFERS, SlotStrategy, Stepped
from kgprof.workloads.linkpred.strategies.fused import Fused
from kgprof.workloads.linkpred.strategies.torch_cond import TorchCond
from kgprof.workloads.protocol import BufferSession
from tests.collectors.watched import lines_with, recording, watch
from tests.workloads.linkpred.evaluations import CPU, one_thread, workload

FILES = (__file__, evaluator.__file__, slots.__file__)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with one_thread():
        yield


def session(kind: type[SlotStrategy]) -> EvaluatorSession:
    of = workload("--batch-size", "64")
    search = SlotSearch(kind(of.problem(CPU)), "default", backend="aot_eager")
    return EvaluatorSession(search, of.candidates, {}, of.options.max_steps)


class Rebinding(Fused):
    """The fault: one buffer is replaced by what the step returned, and not written to."""

    def commit(self, stepped: Stepped) -> None:
        states = stepped.carried.slots.states
        super().commit(stepped)
        self.states = states  # rebinds


@pytest.mark.parametrize("kind", [Fused, TorchCond], ids=lambda kind: kind.name)
def test_every_buffer_stays_and_is_copied_into_and_nothing_is_shared(
    kind: type[SlotStrategy],
) -> None:
    of = session(kind)
    assert isinstance(of, BufferSession)

    seen = recording(watch(lambda call: of.step(), buffers=of.buffers), *FILES)

    uses = addresses.collect(Evidence(seen))
    names = {"outcome", "depths", *(BUFFERS if kind.keeps_children else BUFFERS[:8])}
    assert all(isinstance(use, BufferUse) for use in uses)
    assert {use.name: use.pattern for use in uses if isinstance(use, BufferUse)} == dict.fromkeys(
        names, "copied"
    )
    assert aliases.collect(Evidence(seen)) == ()
    assert mutations.collect(Evidence(seen)) == ()


def test_a_buffer_that_is_rebound_instead_of_copied_is_found_with_its_line() -> None:
    of = session(Rebinding)

    found = addresses.diagnose(
        addresses.collect(
            Evidence(recording(watch(lambda c: of.step(), buffers=of.buffers), *FILES))
        )
    )

    (finding,) = found
    assert (finding.rule, finding.level) == ("KGP401", Level.WARNING)
    assert finding.location is not None
    assert (finding.location.file, [finding.location.line]) == (
        __file__,
        lines_with(__file__, "rebinds"),
    )
    assert finding.location.function == "Rebinding.commit"
    assert finding.message == (
        "the declared buffer states moved to another address in 5 of 5 watched steps after "
        "warm-up, last in step 7: it is new memory, made by compiled graph 0/0 output 1"
    )
