"""Policies for a size that varies: what is compiled, what is padded, and whose results stay
right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from kgprof import model as m
from kgprof.lab import size_policies
from kgprof.record.processes import trials
from kgprof.record.processes.children import Caches
from tests.record import forked

HEAD = "import torch\nfrom torch import nn\n"
DEFAULTS = f"""{HEAD}
net = nn.Linear(4, 4).requires_grad_(False)
def step(x=torch.randn(6, 4)):
    return net(x).relu()
"""
OWN = f"""{HEAD}
net = torch.compile(nn.Linear(4, 4).requires_grad_(False))
batches = [torch.randn(size, 4) for size in (3, 5, 3)]
def step():
    return [net(batch) for batch in batches]
"""
NORM = f"""{HEAD}
net = nn.BatchNorm1d(4, track_running_stats=False).requires_grad_(False)
def step(x=torch.randn(6, 4)):
    return net(x)
"""
PRECISION = f"""{HEAD}
net = nn.Linear(64, 4).requires_grad_(False)
@torch.compiler.disable
def note(made):
    with open("dtypes", "a") as file:
        print(made.dtype, file=file)
def step(x=torch.randn(6, 64)):
    made = net(x)
    note(made)
    return made
"""
PLAIN = m.Cell(mode="default")
Compare = Callable[..., m.Shapes | m.Skipped]


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compare:
    """Under Dynamo alone, its trials forked."""
    monkeypatch.setattr(trials, "run", forked.run)

    def compared(program: str, *sizes: int, cell: m.Cell = PLAIN) -> m.Shapes | m.Skipped:
        file = tmp_path / "program.py"
        file.write_text(program)
        of = trials.CellTrials(
            options=m.Options(workload=f"{file}:step"),
            strategy="step",
            cell=replace(cell, backend="eager"),
            device="cpu",
            scratch=tmp_path,
            caches=Caches(folder=tmp_path / "caches"),
        )
        return size_policies.compare_policies(of, sizes)

    return compared


def of(shapes: m.Shapes | m.Skipped) -> dict[m.SizePolicy, m.PolicyResult]:
    assert isinstance(shapes, m.Shapes)
    assert all(isinstance(found, m.PolicyResult) for _, found in shapes.policies), shapes.policies
    return {policy: found for policy, found in shapes.policies if isinstance(found, m.PolicyResult)}


def test_each_policy_begins_with_nothing_compiled_and_the_vector_instructions_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each one's seconds to compile would hold Inductor's check of them."""
    begun: list[Caches] = []

    def run(function: str, question: m.Model, *, caches: Caches, **given: object) -> trials.Trial:
        begun.append(caches)
        seen = m.encode_json(size_policies.Seen(function="step", tensor="x", sizes=(2, 8)))
        answer = seen if function == size_policies.LOOK else None
        return trials.Trial(exit=m.Exit(outcome=m.Outcome.OK), answer=answer, log="")

    monkeypatch.setattr(trials, "run", run)
    told = {"TORCHINDUCTOR_VEC_ISA_OK": "1"}
    warm = Caches(folder=tmp_path / "caches", seed=tmp_path / "probe", extra=told, kept=True)
    options = m.Options(workload="model.py:step")
    size_policies.compare_policies(
        trials.CellTrials(
            options=options,
            strategy="step",
            cell=PLAIN,
            device="cpu",
            scratch=tmp_path,
            caches=warm,
        )
    )

    cold = [
        Caches(folder=tmp_path / f"caches-{policy}", seed=warm.seed, extra=told)
        for policy in m.SizePolicy
    ]
    assert begun == [warm, *cold]


def test_each_policy_compiles_pads_and_keeps_the_results(compare: Compare) -> None:
    shapes = compare(DEFAULTS, 2, 8, 4, 8)

    found = of(shapes)
    assert isinstance(shapes, m.Shapes)
    assert (shapes.function, shapes.tensor, shapes.collected, shapes.buckets) == (
        "step",
        "x",
        False,
        (4, 8),
    )
    graphs = {policy: result.graphs for policy, result in found.items()}
    assert graphs == {
        m.SizePolicy.STATIC: 3,
        m.SizePolicy.AUTOMATIC: 2,
        m.SizePolicy.DYNAMIC: 1,
        m.SizePolicy.MARKED: 1,
        m.SizePolicy.BUCKETS: 2,
        m.SizePolicy.PADDED: 1,
    }
    assert not any(result.differs for result in found.values())
    assert found[m.SizePolicy.PADDED].wasted == pytest.approx(10 / 32)
    assert [(cost.size, cost.calls) for cost in found[m.SizePolicy.STATIC].sizes] == [
        (2, 1),
        (8, 2),
        (4, 1),
    ]
    assert shapes.recommended in found


def test_the_programs_own_compiled_function_and_its_sizes_are_taken(compare: Compare) -> None:
    shapes = compare(OWN)

    assert isinstance(shapes, m.Shapes)
    assert (shapes.function, shapes.tensor, shapes.collected) == ("Linear", "input", True)
    assert set(shapes.sizes) == {3, 5}
    assert of(shapes)[m.SizePolicy.STATIC].graphs == 2


def test_padding_that_changes_results_is_not_recommended(compare: Compare) -> None:
    shapes = compare(NORM, 4, 8)

    found = of(shapes)
    assert isinstance(shapes, m.Shapes)
    assert "at size 4 result differs" in found[m.SizePolicy.PADDED].differs
    assert not found[m.SizePolicy.STATIC].differs
    assert shapes.recommended is not m.SizePolicy.PADDED


def test_a_program_that_hands_no_tensor_over_says_how_to(compare: Compare) -> None:
    shapes = compare(f"{HEAD}\nx = torch.ones(2)\ndef step():\n    return x + 1\n", 2, 4)

    assert isinstance(shapes, m.Skipped)
    assert "passes no tensor to its compiled function" in shapes.reason


def test_the_policies_run_in_the_cells_precision(
    compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    shapes = compare(
        PRECISION, 2, 4, cell=replace(PLAIN, precision=m.Precision.BF16, dynamic=m.Dynamic.TRUE)
    )

    assert not any(result.differs for result in of(shapes).values())
    dtypes = (tmp_path / "dtypes").read_text().split()
    # float32: the reference
    assert dtypes.count("torch.bfloat16") > dtypes.count("torch.float32") > 0


def test_the_lines_to_write_have_the_cells_mode_and_precision() -> None:
    seen = size_policies.Seen(function="step", tensor="x", sizes=(2, 4))
    cell = m.Cell(mode="reduce-overhead", precision=m.Precision.BF16)

    def lines(policy: m.SizePolicy, cell: m.Cell = cell) -> list[str]:
        return size_policies.lines_for(policy, seen, (2, 4), (4,), cell, "cuda").splitlines()

    assert lines(m.SizePolicy.DYNAMIC) == [
        'compiled = torch.compile(step, mode="reduce-overhead", dynamic=True)',
        'with torch.autocast("cuda", dtype=torch.bfloat16):',
        "    result = compiled(x)",
    ]
    assert lines(m.SizePolicy.BUCKETS)[0].endswith("dynamic=False)")
    assert lines(m.SizePolicy.AUTOMATIC, PLAIN) == ["compiled = torch.compile(step)"]
    tf32 = replace(PLAIN, precision=m.Precision.TF32)
    assert lines(m.SizePolicy.MARKED, tf32)[0] == 'torch.set_float32_matmul_precision("high")'
    assert lines(m.SizePolicy.MARKED, tf32)[-1] == "result = compiled(x)"
