"""What every strategy of the evaluator owes: a name, a sentence, its modes, and the reference's
result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch._inductor import config

from kgprof.model import RunKey
from kgprof.model.passes import COMPILED_MODES, EAGER
from kgprof.workloads.linkpred import strategies
from kgprof.workloads.linkpred.evaluator import SlotSearch
from kgprof.workloads.linkpred.slots import SlotStrategy, Stepped
from kgprof.workloads.linkpred.strategies import LATER, STRATEGIES, Strategy
from kgprof.workloads.linkpred.strategies.fused import Fused
from kgprof.workloads.linkpred.strategies.reference import Reference
from kgprof.workloads.linkpred.strategies.torch_cond import TorchCond
from kgprof.workloads.linkpred.workload import LinkPrediction, build
from tests.workloads.linkpred.evaluations import CPU, one_thread, reference, workload

COMPILES_IN_EAGER = ("looped", "torch_cond")
SLOT_STRATEGIES = [strategy for strategy in STRATEGIES if issubclass(strategy, SlotStrategy)]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with one_thread():
        yield


def name(strategy: Strategy) -> str:
    return strategy.name


# ---------------------------------------------------------------- every strategy


def test_every_file_of_the_folder_is_listed_under_its_own_name() -> None:
    files = {path.stem for path in Path(strategies.__file__).parent.glob("*.py")} - {"__init__"}

    assert sorted(strategy.name for strategy in STRATEGIES) == sorted(files)
    assert all(
        strategy.__module__.endswith(f".strategies.{strategy.name}") for strategy in STRATEGIES
    )
    assert not files & set(LATER)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=name)
def test_it_says_in_one_sentence_what_it_is_and_names_its_modes(strategy: Strategy) -> None:
    assert strategy.summary.endswith(".")
    assert ". " not in strategy.summary
    assert "\n" not in strategy.summary
    assert strategy.modes[0] == EAGER
    assert set(strategy.modes) <= {EAGER, *COMPILED_MODES}


@pytest.mark.parametrize("strategy", STRATEGIES, ids=name)
def test_it_finds_what_the_reference_finds(strategy: Strategy) -> None:
    of, truth = workload("--batch-size", "64"), reference(workload("--batch-size", "64"))
    session = of.prepare(RunKey(strategy=strategy.name, mode=EAGER), CPU)

    evaluation = session.count(lambda: None)

    assert session.result()["outcome"].tolist() == truth.outcome.tolist()
    assert session.result()["steps"].tolist() == truth.steps.tolist()
    assert (evaluation.unfinished, evaluation.nan_scores) == (0, 0)
    assert sum(msgspec.structs.astuple(evaluation.dropped)) == sum(truth.dropped)


# What takes part of a step into a graph of its own compiles that for each number of rows: long.
@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(kind, marks=[pytest.mark.long] if kind.name in COMPILES_IN_EAGER else [])
        for kind in STRATEGIES
    ],
    ids=name,
)
def test_stepping_goes_on_for_ever(strategy: Strategy) -> None:
    session = tiny().prepare(RunKey(strategy=strategy.name, mode=EAGER), CPU)
    steps = session.evaluate(lambda: None).steps

    for _ in range(steps + 2):
        session.step()


def tiny() -> LinkPrediction:
    return build(
        [
            "--dataset",
            "family-tree:120",
            "--queries",
            "2",
            "--corruptions",
            "2",
            "--batch-size",
            "4",
        ],
        0,
    )


# ---------------------------------------------------------------- compiled steps


class Captured:
    """A torch.compile backend that keeps the graphs and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        self.graphs.append(graph)
        return graph.forward


def capture(strategy: SlotStrategy, steps: int = 4) -> Captured:
    captured = Captured()
    step = torch.compile(strategy.step, fullgraph=True, dynamic=False, backend=captured)
    for _ in range(steps):
        strategy.commit(step())
    return captured


def operations(graph: torch.fx.GraphModule) -> set[str]:
    """The names of all that is called, in the branches of torch.cond too."""
    nodes = [
        node
        for part in graph.modules()
        if isinstance(part, torch.fx.GraphModule)
        for node in part.graph.nodes
    ]
    called = [node.target for node in nodes if node.op in ("call_function", "call_method")]
    return {getattr(target, "__name__", str(target)) for target in called}


# What makes the host wait for the device, or the size of a tensor depend on data.
READS = {"item", "tolist", "nonzero", "masked_select", "unique", "is_nonzero", "cpu", "numpy"}


@pytest.mark.parametrize("strategy", SLOT_STRATEGIES, ids=name)
def test_its_step_is_one_graph_that_reads_nothing_back(strategy: type[SlotStrategy]) -> None:
    # one graph, and the same one for every step
    (graph,) = capture(strategy(tiny().problem(CPU))).graphs

    assert not operations(graph) & READS


def test_a_step_that_reads_a_value_back_is_noticed() -> None:
    """fullgraph=True alone does not: it captures ``item`` as a node of the graph."""

    class Reading(Fused):
        def step(self) -> Stepped:
            stepped = super().step()
            return stepped._replace(row=stepped.row + self.head.item() * 0)

    (graph,) = capture(Reading(tiny().problem(CPU)), steps=1).graphs

    assert operations(graph) & READS == {"item"}


def test_the_branches_of_torch_cond_return_tensors_of_one_dimension() -> None:
    """The regression of "expected size 256==256, stride 2176==2160": nothing is left that Inductor
    could pad.

    One dimension, or a last one short enough for its stride never to pass Inductor's threshold,
    whatever B, S and A.
    """
    (graph,) = capture(TorchCond(tiny().problem(CPU))).graphs

    (cond,) = [node for node in graph.graph.nodes if node.target is torch.ops.higher_order.cond]
    branches = [graph.get_submodule(branch.target) for branch in cond.args[1:3]]
    outputs = [
        [value.meta["example_value"] for value in branch.graph.output_node().args[0]]
        for branch in branches
    ]
    assert [[tensor.ndim for tensor in branch] for branch in outputs] == [[1, 1, 1], [1, 1, 1]]
    described = [
        [(tensor.dtype, tensor.shape, tensor.stride()) for tensor in branch] for branch in outputs
    ]
    assert described[0] == described[1]


def test_the_sizes_of_the_regression_are_ones_that_inductor_pads() -> None:
    """So that the test on a GPU below keeps testing something: 120 * 6 * 3 = 2160 is padded to 2176
    int32."""
    aligned = config.padding_alignment_bytes // torch.int32.itemsize
    contiguous = torch.empty(256, 120, 6, 3, device="meta").stride()

    assert contiguous[0] == 2160 > config.padding_stride_threshold
    assert -(-contiguous[0] // aligned) * aligned == 2176


@pytest.mark.gpu
def test_torch_cond_compiles_on_cuda_at_sizes_that_inductor_pads() -> None:
    """B = 256, S = 120, A = 6: at these sizes a prototype's compiled step raised and its eager one
    ran."""
    args = ["--batch-size", "256", "--max-atoms", "6", "--max-children", "120", "--queries", "60"]
    of = build(args, 0)
    cuda = torch.device("cuda")

    eager, compiled = (SlotSearch(TorchCond(of.problem(cuda)), mode) for mode in (EAGER, "default"))
    for search in (eager, compiled):
        while not search.done:
            search.advance()

    assert compiled.found().outcome.tolist() == eager.found().outcome.tolist()
    assert compiled.found().steps.tolist() == eager.found().steps.tolist()
    assert (compiled.found().dropped, compiled.found().nans) == (
        eager.found().dropped,
        eager.found().nans,
    )


# torch's own tree of CUDA graphs begins with an empty one, and torch warns of it.
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("strategy", "mode"),
    [
        (kind, mode)
        for kind in SLOT_STRATEGIES
        for mode in (EAGER, "default", "reduce-overhead")
        if mode in kind.modes
    ],
    ids=lambda each: str(getattr(each, "name", each)),
)
def test_it_finds_on_cuda_what_the_reference_finds(strategy: type[SlotStrategy], mode: str) -> None:
    of, truth = workload("--batch-size", "64"), reference(workload("--batch-size", "64"))
    session = of.prepare(RunKey(strategy=strategy.name, mode=mode), torch.device("cuda"))

    session.evaluate(lambda: None)

    assert session.result()["outcome"].tolist() == truth.outcome.tolist()
    assert session.result()["steps"].tolist() == truth.steps.tolist()


def test_reference_has_no_compiled_mode() -> None:
    assert Reference.modes == (EAGER,)
