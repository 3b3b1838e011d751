"""One step whose every answer is known: ``kgprof selftest`` runs it through all captures and
compares.

Lines that an answer names carry a mark, ``# answer: NAME``, which kgprof.cli.selftest reads from
this file.
"""

import functools
from collections.abc import Callable

import torch

ROWS = 8
RESIZED_AT = 5  # the step whose tensor has another size: after the warm-up of 3
PRODUCTS = 3  # matrix products a step, outside everything that is compiled


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print("kgprof selftest: a graph break")  # noqa: T201  # answer: graph break
    return y * 2


def loops(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = x + 1
        print("kgprof selftest: a loop")  # noqa: T201  # answer: skipped frame
    return x.cos()


def resized(x: torch.Tensor) -> torch.Tensor:  # answer: recompile
    return x.sin().cos()


def writes(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)  # answer: in-place
    return x * 2


def chooses(x: torch.Tensor) -> torch.Tensor:
    chosen: torch.Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))  # answer: cond
    return chosen


def generated(x: torch.Tensor) -> torch.Tensor:
    sums = (x.sin() * x.cos() + 1).sum(dim=-1)
    # Inductor generates no code for a product of what is scattered.
    return sums.scatter_reduce(0, torch.arange(ROWS, device=x.device), sums, "prod")  # answer: aten


def known_work(matrix: torch.Tensor) -> torch.Tensor:
    for _ in range(PRODUCTS):
        matrix = torch.mm(matrix, matrix)  # answer: eager call
    return matrix


class Steps:
    """``strategies`` for kgprof; everything is made at the first step, on the device that
    ``device`` names."""

    def __init__(self, device: str) -> None:
        self.strategies = {"known-answers": self.step}
        self._named = device
        self._calls = 0

    def step(self) -> None:
        device = torch.device(self._device)
        call = self._calls
        self._calls = self._calls + 1
        compiled = self._compiled
        compiled["breaks"](torch.ones(ROWS, device=device))
        compiled["loops"](torch.ones(ROWS, device=device))
        compiled["resized"](torch.ones(ROWS if call < RESIZED_AT else ROWS + 1, device=device))
        compiled["writes"](torch.zeros(ROWS, device=device))
        chosen = compiled["chooses"](torch.ones(ROWS, device=device))
        chosen.sum().item()  # answer: sync
        compiled["generated"](torch.ones(ROWS, 64, device=device))
        known_work(torch.eye(ROWS, device=device))

    @functools.cached_property
    def _device(self) -> str:
        if self._named != "auto":
            return self._named
        return "cuda" if torch.cuda.is_available() else "cpu"

    @functools.cached_property
    def _compiled(self) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
        graphs = "reduce-overhead" if self._device == "cuda" else "default"
        eager = {
            f.__name__: torch.compile(f, backend="eager") for f in (breaks, loops, writes, chooses)
        }
        return {
            **eager,
            "resized": torch.compile(resized, backend="eager", dynamic=False),
            "generated": torch.compile(generated, mode=graphs),
        }


auto, cpu, cuda = Steps("auto"), Steps("cpu"), Steps("cuda")
