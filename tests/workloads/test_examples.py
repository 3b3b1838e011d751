"""The documents' own programs: they build, step and give the same results compiled as in eager
mode."""

from __future__ import annotations

import importlib

import pytest
import torch
from click.testing import CliRunner

from kgprof import model as m
from kgprof.cli.verbs import cli
from kgprof.errors import UsageError
from kgprof.workloads import catalog, example, loading
from tests.gathering import for_all

CPU = torch.device("cpu")
STRATEGIES = [
    (name, label)
    for name in catalog.EXAMPLES
    for label in importlib.import_module(example.module_of(name)).STRATEGIES
]


def loaded(name: str, *args: str) -> example.ExampleWorkload:
    workload = loading.load(name, ["--small", *args], seed=0)
    assert isinstance(workload, example.ExampleWorkload)
    return workload


@pytest.mark.parametrize(("name", "label"), STRATEGIES)
def test_compiled_it_gives_what_eager_mode_gives(
    name: str, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: what runs on a CPU, compiled without generated code
    whole = torch.compile
    monkeypatch.setattr(
        torch,
        "compile",
        lambda function, mode, **rest: whole(function, backend="aot_eager", **rest),
    )
    workload = loaded(name)
    runs = [run for run in workload.default_runs(CPU) if run.strategy == label]
    if not runs:
        with pytest.raises(UsageError, match="needs an NVIDIA GPU"):
            workload.prepare(m.RunKey(strategy=label, mode=m.EAGER), CPU)
        return

    results = {}
    for run in runs:
        torch.compiler.reset()
        session = workload.prepare(run, CPU)
        session.step()
        results[run] = session.result()

    found = dict(workload.agreement(results, workload.baseline(runs)).runs)
    assert {run.mode for run in runs} == {m.EAGER, "default"}
    assert all(
        isinstance(judged, m.RunAgreement) and judged.differing == 0 < judged.compared
        for judged in found.values()
    )


@for_all(catalog.EXAMPLES)
def test_its_shapes_are_options(name: str) -> None:
    known = catalog.EXAMPLES[name]
    first = next(iter(known.shapes))

    assert catalog.shapes_of(name, []) == known.shapes
    assert catalog.shapes_of(name, ["--small", f"--{first}", "7"]) == {**known.small, first: 7}
    assert all(f"--{shape}" in loading.help_text(name) for shape in known.shapes)
    for wrong in (["--nothing", "1"], [f"--{first}", "0"], ["left over"]):
        with pytest.raises(UsageError, match=name):
            loading.check_arguments(name, wrong)


def test_small_ops_has_as_many_layers_as_asked_for() -> None:
    session = loaded("small-ops", "--layers", "9").prepare(
        m.RunKey(strategy="layers", mode=m.EAGER), CPU
    )

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        session.step()

    assert sum(event.count for event in profiled.key_averages() if event.key == "aten::relu") == 9


def test_they_are_listed() -> None:
    listed = CliRunner().invoke(cli, ["workloads"]).output.splitlines()

    assert [line.split()[0] for line in listed] == list(catalog.BUILT_IN)


@pytest.mark.gpu
# TensorFloat32 is off on purpose, and torch records an empty graph of its own
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["silu-mul", "branches", "scorers"])
def test_on_a_gpu_graphs_and_float8_run(name: str) -> None:
    workload, device = loaded(name), torch.device("cuda")

    for run in workload.default_runs(device):
        session = workload.prepare(run, device)
        session.step()
        # of the first step: later ones write over what a CUDA graph returned
        assert session.result()
        for _ in range(3):
            session.step()
