"""The correctness ladder names the rung that a fault was planted at, and its script shows the fault
by itself."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kgprof import model as m
from kgprof.lab import ladder
from kgprof.record.processes import children, trials
from kgprof.record.processes.children import Caches
from tests.record import forked

PLANTS = """
import copy
import torch
from torch._dynamo.backends import registry
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

aten = torch.ops.aten

def perturbed(graph, operator, factor, multiply=torch.mul):
    graph = copy.deepcopy(graph)
    for node in list(graph.graph.nodes):
        if node.target is operator:
            with graph.graph.inserting_after(node):
                wrong = graph.graph.call_function(multiply, (node, factor))
            node.replace_all_uses_with(wrong)
            wrong.args = (node, factor)
    graph.recompile()
    return graph

def compiler(operator, factor):
    return lambda graph, inputs: make_boxed_func(perturbed(graph, operator, factor, aten.mul.Tensor))

def install(name, backend):
    registry.lookup_backend(name)
    registry._COMPILER_FNS[name] = backend

right = compiler(None, 1)

def plant(kind):
    from torch._inductor import config
    config.force_disable_caches = True  # what was compiled without the fault has the same key
    if kind == "capture":
        install("eager", lambda graph, inputs: perturbed(graph, torch.sin, 1.01))
    if kind == "functionalisation":
        install("aot_eager", aot_autograd(fw_compiler=compiler(aten.sin.default, 1.01), bw_compiler=right))
    if kind == "nan":
        install("aot_eager", aot_autograd(fw_compiler=compiler(aten.sin.default, float("nan")), bw_compiler=right))
    if kind == "gradient":
        install("aot_eager", aot_autograd(fw_compiler=right, bw_compiler=compiler(aten.cos.default, 1.5)))
    if kind == "decomposition":
        from torch._inductor.decomposition import decompositions
        decompositions[aten.silu.default] = lambda x: x * torch.sigmoid(x) * 1.01
    if kind == "code generation":
        from torch._inductor.lowering import lowerings
        lowerings[aten.sin.default] = lowerings[aten.cos.default]
"""  # noqa: E501
PROGRAM = """
import plants, torch
plants.plant({kind!r})
weight = torch.randn(7, 7, requires_grad=True)
x = torch.randn(6, 7)
def step():
    hidden = torch.nn.functional.silu(torch.tanh(x @ weight))
    hidden = torch.sin(hidden) + hidden.exp()
    return torch.nn.functional.gelu(hidden).sum(1)
"""
Climb = Callable[..., m.Ladder]


@pytest.fixture
def climb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Climb:
    """The ladder of ``step`` in a program's text, its trials forked."""
    monkeypatch.setattr(trials, "run", forked.run)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    (tmp_path / "plants.py").write_text(PLANTS)

    def climbed(program: str, **cell: str) -> m.Ladder:
        file = tmp_path / "program.py"
        file.write_text(textwrap.dedent(program))
        of = trials.CellTrials(
            options=m.Options(workload=f"{file}:step"),
            strategy="step",
            cell=m.Cell(**{"mode": "default", **cell}),  # type: ignore[arg-type]
            device="cpu",
            scratch=tmp_path,
            caches=Caches(folder=tmp_path / "caches", kept=True),
        )
        made = ladder.climb(of, tmp_path / "out")
        assert isinstance(made, m.Ladder)
        return made

    return climbed


def test_without_eager_nothing_is_named_to_differ(climb: Climb) -> None:
    climbed = climb(
        "import torch\ndef step():\n    if not torch.compiler.is_compiling():\n        raise "
        "ValueError\n"
    )

    assert climbed.first is None
    assert not any(isinstance(found, m.RungResult) for _, found in climbed.rungs)


@pytest.mark.parametrize(
    ("until", "limits", "compared"),
    [
        (95.0, [40.0, 40.0, 15.0], [m.Rung.FLOAT64, m.Rung.EAGER]),
        (125.0, [40.0, 40.0, 40.0, 5.0], [m.Rung.FLOAT64, m.Rung.EAGER, m.Rung.CODE_GENERATION]),
        (0.0, [], []),
    ],
)
def test_the_rung_that_runs_when_the_time_is_up_is_ended_and_the_others_are_not_begun(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    until: float,
    limits: list[float],
    compared: list[m.Rung],
) -> None:
    """The rung that the program will run comes before those between."""
    # given: each rung takes 40 s by a clock of its own
    now, given = [0.0], []

    def run(start: children.Start, **_: object) -> children.Ended:
        job = start.job
        start.log.touch()
        given.append(job.options.timeout_s)
        now[0] += 40.0
        if job.options.timeout_s < 40.0:
            now[0] = until
            return children.Ended(exit=m.Exit(outcome=m.Outcome.TIMED_OUT))
        Path(job.answer).write_bytes(
            m.encode_json(m.RungResult(differs=False, seconds=1.0, compared=1))
        )
        return children.Ended(exit=m.Exit(outcome=m.Outcome.OK))

    monkeypatch.setattr(children, "run", run)
    monkeypatch.setattr(trials, "time", SimpleNamespace(monotonic=lambda: now[0]))

    # when
    of = trials.CellTrials(
        options=m.Options(workload="model.py:step", timeout_s=40.0),
        strategy="step",
        cell=m.Cell(mode="default"),
        device="cpu",
        scratch=tmp_path,
        caches=Caches(folder=tmp_path / "caches"),
        until=until,
    )
    climbed = ladder.climb(of, tmp_path / "out")

    # then
    assert isinstance(climbed, m.Ladder)
    assert (given, now) == (limits, [until])
    assert [rung for rung, _ in climbed.rungs] == [
        rung for rung in m.Rung if rung is not m.Rung.MODE
    ]
    assert [rung for rung, found in climbed.rungs if isinstance(found, m.RungResult)] == compared
    assert all(
        isinstance(found, m.RungResult) or found == trials.TIME_UP for _, found in climbed.rungs
    )


def differing(climbed: m.Ladder) -> tuple[m.Rung, ...]:
    return tuple(
        rung for rung, found in climbed.rungs if isinstance(found, m.RungResult) and found.differs
    )


@pytest.mark.parametrize(
    ("kind", "rungs", "tensor", "operators"),
    [
        ("capture", (m.Rung.CAPTURE,), "result", {"sin"}),
        pytest.param(
            "functionalisation",
            (m.Rung.FUNCTIONALISATION,),
            "result",
            {"sin"},
            marks=pytest.mark.long,
        ),
        pytest.param("nan", (m.Rung.FUNCTIONALISATION,), "result", {"sin"}, marks=pytest.mark.long),
        pytest.param(
            *("gradient", (m.Rung.FUNCTIONALISATION,), "gradient of input 1", {"sin"}),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *("decomposition", (m.Rung.DECOMPOSITION, m.Rung.CODE_GENERATION), "result", {"silu"}),
            marks=pytest.mark.long,
        ),
        pytest.param(
            "code generation", (m.Rung.CODE_GENERATION,), "result", {"sin"}, marks=pytest.mark.long
        ),
    ],
)
def test_a_planted_fault_is_named_and_reproduced(
    climb: Climb, kind: str, rungs: tuple[m.Rung, ...], tensor: str, operators: set[str]
) -> None:
    climbed = climb(PROGRAM.format(kind=kind))

    assert (climbed.first, differing(climbed)) == (rungs[0], rungs)
    result = dict(climbed.rungs)[rungs[0]]
    assert isinstance(result, m.RungResult)
    differs = {each.name: each for each in result.tensors if each.differing}
    assert tensor in differs
    assert bool(differs[tensor].nans) == (kind == "nan")
    assert ("result" in differs) == (kind != "gradient")
    minified = climbed.minified
    assert isinstance(minified, m.Minified)
    assert {name.rpartition(".")[2] for name in minified.operators} == operators
    assert isinstance(minified.checked, m.Reproduction)
    assert minified.checked.differs, minified.checked.output
    assert (minified.finished, minified.attempts > 1) == (True, True)
