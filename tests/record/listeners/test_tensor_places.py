"""Where the tensors that a CPU run reads would lie on a machine with a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from kgprof.record.ground import project_sources
from kgprof.record.listeners import tensor_places
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.sync_hooks import TENSORS
from kgprof.record.listeners.syncs import Syncs
from kgprof.record.listeners.tensor_places import HOST, UNKNOWN, UNNAMED

CPU = torch.device("cpu")
MATRIX = torch.eye(3)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Step = Callable[[], object]


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def places(step: Step) -> list[str]:
    """Of what is read, in its order."""
    calls = CallIndex()
    hooks = Syncs(calls, CPU, project_sources.project_files(__file__))
    with hooks, calls.call():
        step()
    assert hooks.unavailable == ""
    return [record.tensor for record in hooks.records().records]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def a_loss_against_an_array() -> None:
    """torch begins with ``1 - target``, and multiplies that in place with what the model gave."""
    target = torch.from_numpy(np.ones(2, dtype=np.float32))
    given = Net()(torch.ones(2)).detach()
    torch.nn.functional.binary_cross_entropy_with_logits(given, target).item()


def moved_for_one_call() -> None:
    x = torch.ones(2)
    assert largest(x.to(device)) == 1
    x.max().item()


def largest(x: torch.Tensor) -> float:
    return x.max().item()


def moved_for_good() -> None:
    x = torch.ones(2)
    x = x.to(device)
    x.max().item()


def moved_in_a_list() -> None:
    batch = [torch.ones(2), torch.zeros(2)]
    x, _ = (each.to(device) for each in batch)
    x.max().item()


def a_slice_moved() -> None:
    whole = torch.ones(4)
    part = whole[:2].to(device)
    part.max().item()
    whole.max().item()


def brought_over() -> None:
    x = torch.ones(2, device=device)
    y = (x * 2).cpu()
    y.max().item()


def looked_at_on_the_host() -> None:
    x = torch.ones(2, device=device)
    largest(x.cpu())
    x.max().item()


def a_view_brought_over() -> None:
    base = torch.ones(2, 3, device=device)
    view = base[None]
    rows = view.cpu()
    (max(row.sum() for row in rows[0]) > 2).item()
    base.sum().item()
    view.cpu()
    del view, rows
    base[0].sum().item()


def a_parameters_data() -> None:
    net = Net()
    net.weight.data.sum().item()
    net.weight.detach().numpy()
    net.weight.sum().item()


def a_buffer() -> None:
    Net().seen.sum().item()


def a_models_output() -> None:
    Net()(torch.ones(2)).sum().item()


def of_a_loader() -> None:
    for (x,) in DataLoader(TensorDataset(torch.ones(2, device=device)), batch_size=2):
        x.max().item()


def as_another_is() -> None:
    there, here = torch.ones(2, device=device), torch.ones(2)
    torch.zeros(2, device=there.device).sum().item()
    torch.zeros(2).to(here.device).sum().item()


def of_compiled_code() -> None:
    doubled = torch.compile(lambda x: x * 2, backend="eager")
    doubled(torch.ones(2)).sum().item()


def under_a_default_device() -> None:
    with device:
        torch.ones(2).sum().item()


def sparse() -> None:
    torch.eye(2).to_sparse().to(device).to_dense().sum().item()


def in_inference_mode() -> None:
    with torch.inference_mode():
        (1 - torch.ones(2)[0] * 2).item()


def given_to_numpy() -> None:
    x = torch.ones(2, device=device)
    x.numpy()
    x.sum().item()


@pytest.mark.parametrize(
    ("step", "lies"),
    [
        (lambda: torch.randint(0, 9, (1,)).item(), [UNNAMED]),
        (lambda: torch.tensor([1.0]).item(), [UNNAMED]),
        (lambda: torch.empty(1).uniform_().item(), [UNNAMED]),
        (lambda: torch.rand(1, device=device).item(), [UNKNOWN]),
        (lambda: torch.rand(1, device="cpu").item(), [HOST]),
        (lambda: torch.rand(1, device=None).item(), [UNNAMED]),
        (lambda: torch.from_numpy(np.ones(3)).max().item(), [HOST]),
        (lambda: torch.LongTensor([1]).item(), [HOST]),
        (lambda: torch.cat([torch.zeros(0), torch.arange(3)])[1:].sum().item(), [UNNAMED]),
        (lambda: (torch.arange(3) + torch.ones(3, device=device)).sum().item(), [UNKNOWN]),
        (lambda: [int(each) for each in torch.randperm(2) + 1], [UNNAMED]),
        (moved_for_one_call, [UNKNOWN, UNNAMED]),
        (moved_for_good, [UNKNOWN]),
        (moved_in_a_list, [UNKNOWN]),
        (a_slice_moved, [UNKNOWN, UNNAMED]),
        (brought_over, [UNKNOWN, HOST]),
        (looked_at_on_the_host, [UNKNOWN, HOST, UNKNOWN]),
        # The copy, two comparisons of max() and one more on the host, then the base, a copy again,
        # and another view.
        (a_view_brought_over, [UNKNOWN, HOST, HOST, UNKNOWN, UNKNOWN, UNKNOWN]),
        (a_parameters_data, [UNKNOWN, UNKNOWN, UNKNOWN]),
        (a_buffer, [UNKNOWN]),
        (a_models_output, [UNKNOWN]),
        (as_another_is, [UNKNOWN, UNNAMED]),
        (of_compiled_code, [UNKNOWN]),
        (under_a_default_device, [UNKNOWN]),
        (in_inference_mode, [UNNAMED]),
        (sparse, [UNNAMED, UNKNOWN]),
        (given_to_numpy, [UNKNOWN, UNKNOWN]),
        (a_loss_against_an_array, [UNKNOWN]),
        (lambda: torch.rand(9, device=device).std(), []),  # torch reads the mean on a CPU alone
        (lambda: torch.rand(9, device=device).multinomial(2), []),  # and checks these, too
        (lambda: torch._assert_async(torch.rand(1, device=device) < 2), []),
        (lambda: torch.cholesky_solve(MATRIX, MATRIX), []),
        (lambda: torch.linalg.inv_ex(MATRIX), []),
        (lambda: torch.linalg.solve(MATRIX, MATRIX), [UNKNOWN]),  # whether it failed
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)
def test_where_what_is_read_would_lie(step: Step, lies: list[str]) -> None:
    assert places(step) == lies


def test_a_loader_reads_its_seed_on_the_host() -> None:
    assert places(of_a_loader) == [HOST, UNKNOWN]


@pytest.mark.parametrize(
    ("step", "names"),
    [
        (lambda: torch.ones(1).item(), False),
        (lambda: torch.ones(1, device="cpu").item(), False),
        (lambda: torch.ones(1).double().to(torch.float16).item(), False),
        (lambda: torch.ones(1, device=device).item(), True),
        (lambda: Net().to(device), True),
    ],
    ids=["no device", "the CPU", "types", "a factory's", "a module's"],
)
def test_a_program_that_names_a_device_is_known(step: Step, names: bool) -> None:
    hooks = Syncs(CallIndex(), CPU, project_sources.project_files(__file__))

    with hooks:
        step()

    assert hooks.records().names_a_device is names


def test_what_is_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_places, "SWEEP", 8)
    TENSORS.forget()

    with Syncs(CallIndex(), CPU, project_sources.project_files(__file__)):
        for _ in range(100):
            torch.ones(1)
        assert len(TENSORS._storages) <= 9

    assert not TENSORS._storages


def test_a_number_that_torch_made_a_tensor_of_goes_through_every_hook() -> None:
    def results() -> list[object]:
        found = []
        for form in (
            torch.neg,
            torch.sqrt,
            torch.clone,
            torch.sum,
            lambda x: x.to(torch.float16),
            torch.abs,
        ):
            traced = torch.jit.trace(
                lambda x, form=form: form(x) + form(torch.ones_like(x)) * 2, torch.ones(2)
            )
            found.append(traced(torch.ones(2)).tolist())
        return found

    without = results()
    with Syncs(CallIndex(), CPU, project_sources.project_files(__file__)):
        within = results()

    assert within == without


@pytest.mark.parametrize("number", [2, 2.5, True, 1j], ids=repr)
@pytest.mark.parametrize(
    "kind", [torch.int8, torch.int64, torch.bfloat16, torch.float32, torch.bool], ids=str
)
def test_a_python_number_promotes_as_it_did(kind: torch.dtype, number: complex) -> None:
    def results() -> list[object]:
        x = torch.ones(3, dtype=kind)
        found = [
            x + number,
            number + x,
            x * number,
            x == number,
            torch.add(x, number),
            torch.where(x > 0, number, x),
        ]
        if not isinstance(number, complex):
            found += [x > number, number < x, x[0] == number, number >= x[0]]
        if not isinstance(number, complex | bool) and kind is not torch.bool:
            found += [
                x % number,
                number % x,
                x // number,
                number // x,
                number - x,
                torch.fmod(x, number),
                x[0] % number,
            ]
        return [(one.dtype, one.tolist()) for one in found]

    without = results()
    with Syncs(CallIndex(), CPU, project_sources.project_files(__file__)):
        within = results()

    assert within == without


def test_sizes_that_are_symbols_are_compiled_as_without_the_hooks_and_followed_again_afterwards() -> (  # noqa: E501
    None
):
    def noisy(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return (x * torch.randn_like(x)).gather(-1, index)

    compiled = torch.compile(noisy, backend="aot_eager", dynamic=True, fullgraph=True)

    def step() -> None:
        for rows in (3, 5):
            assert compiled(torch.ones(rows, 4), torch.zeros(rows, 1, dtype=torch.long)).shape == (
                rows,
                1,
            )
        torch.ones(2, device="cpu").max().item()

    assert places(step) == [HOST]
    assert not torch._dynamo.callback.callback_handler.end_callbacks


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_backward_that_is_compiled_in_a_compiled_function_does_not_wait_for_itself() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
    optimizer, loss_of = torch.optim.AdamW(net.parameters(), 1e-3), torch.nn.BCEWithLogitsLoss()
    given, wanted = torch.randn(32, 8), torch.rand(32).round()

    @torch.compile(backend="aot_eager")
    def train_step() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = loss_of(net(given).squeeze(-1), wanted)
        loss.backward()
        optimizer.step()
        return loss

    losses: list[torch.Tensor] = []

    # without the mend it never came back
    places(lambda: losses.extend((train_step(), train_step())))

    assert losses[1] < losses[0]
