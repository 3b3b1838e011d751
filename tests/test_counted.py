"""Numbers and nouns agree, wherever a sentence counts something."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.collectors.graphs import addresses
from kgprof.collectors.graphs.addresses import AddressChange
from kgprof.collectors.tensors import mutations
from kgprof.collectors.tensors.mutations import FIXED, Mutation
from kgprof.gate import judge
from kgprof.gate.metrics import DEFAULTS
from kgprof.wording import plural
from tests.gate import gated
from tests.gate.gated import FUSED


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0 steps"),
        (1, "1 step"),
        (2, "2 steps"),
        (1234, "1,234 steps"),
        (10_000, "10,000 steps"),
    ],
)
def test_one_is_singular_and_thousands_are_grouped(number: int, said: str) -> None:
    assert plural(number, "step") == said


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (1.0, "1 launch"),
        (0.9999, "1 launch"),
        (0.95, "0.95 launches"),
        (1.5, "1.5 launches"),
        (64.12, "64.1 launches"),
    ],
)
def test_a_mean_that_reads_as_one_is_singular(number: float, said: str) -> None:
    assert plural(number, "launch", "launches") == said


def test_a_sign_changes_no_number() -> None:
    assert [plural(n, "launch", "launches", sign="+") for n in (1.0, 2.0, -1.0)] == [
        "+1 launch",
        "+2 launches",
        "-1 launches",
    ]


def test_a_plural_of_its_own() -> None:
    assert [plural(n, "process", "processes") for n in (1, 2)] == ["1 process", "2 processes"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("x",), "the declared buffer x, input of step, moved to another address"),
        (("x", "h"), "the declared buffers x, h, inputs of step, moved to another address"),
    ],
)
def test_one_tensor_moves_and_several_move(names: tuple[str, ...], said: str) -> None:
    moved = AddressChange(
        run=FUSED,
        location=None,
        related=(),
        names=names,
        functions=("step",),
        calls=(4,),
        steps=17,
        carried=(),
        declared=True,
        cuda_graphs=False,
        identity="",
    )
    (finding,) = addresses.diagnose((moved,))

    assert finding.message.startswith(said)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("x",), "writes to x (add_), which is at a fixed address: harmless"),
        (("x", "h"), "writes to x, h (add_), which are at fixed addresses: harmless"),
    ],
)
def test_one_written_tensor_is_and_several_are(names: tuple[str, ...], said: str) -> None:
    written = Mutation(
        run=FUSED,
        function="step",
        location=None,
        names=names,
        operators=("add_",),
        kind=FIXED,
        cuda_graphs=False,
        identity="",
    )
    (finding,) = mutations.diagnose((written,))

    assert finding.message == f"the compiled step {said}"


def test_one_budget_is_no_budgets() -> None:
    judged = judge(gated.profile(), msgspec.structs.replace(gated.settings(), budgets=DEFAULTS[:1]))

    assert judged.verdict.text == "gate passed: 1 budget met in 1 run"
