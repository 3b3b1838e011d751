"""A built-in example as a Workload: its strategies in eager mode and in the modes that compile
them."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch

from kgprof import model as m
from kgprof.errors import UsageError
from kgprof.workloads import catalog, user
from kgprof.workloads.protocol import Session, require_mode
from kgprof.workloads.protocol import Step as Step

Shapes = SimpleNamespace  # an int under each name
# torch.compile(function, **options) in the run's mode; the function itself in eager mode
Compile = Callable[..., Any]
Builder = Callable[[Shapes, torch.device, Compile], Step]
MODES = (m.EAGER, *m.COMPILED_MODES)
DEFAULT_MODES = (m.EAGER, "default")


class Strategy(NamedTuple):
    """How one strategy is built, and where it can run."""

    build: Builder
    summary: str
    modes: tuple[str, ...] = MODES
    float8: bool = False  # needs a card that multiplies float8
    cuda: bool = False  # needs a card


def module_of(name: str) -> str:
    return f"kgprof.workloads.examples.{catalog.EXAMPLES[name].module or name.replace('-', '_')}"


class ExampleWorkload:
    """One of ``catalog.EXAMPLES`` in the shapes that its options give."""

    def __init__(self, name: str, args: Sequence[str], seed: int) -> None:
        """Raises UsageError for a wrong option."""
        self.name = name
        self._shapes = SimpleNamespace(**catalog.shapes_of(name, args))
        self._seed = seed
        module = importlib.import_module(module_of(name))
        self._strategies: dict[str, Strategy] = module.STRATEGIES

    def strategies(self) -> Sequence[m.StrategyPlan]:
        return [
            m.StrategyPlan(label, each.modes, each.summary)
            for label, each in self._strategies.items()
        ]

    def default_runs(self, device: torch.device) -> Sequence[m.RunKey]:
        """Eager and default, on a GPU reduce-overhead too; only what runs on ``device``."""
        modes = (*DEFAULT_MODES, "reduce-overhead") if device.type == "cuda" else DEFAULT_MODES
        return [
            m.RunKey(label, mode)
            for label, each in self._strategies.items()
            if not _unavailable(each, device)
            for mode in modes
            if mode in each.modes
        ]

    def baseline(self, runs: Sequence[m.RunKey]) -> m.RunKey | None:
        """The first strategy in eager mode."""
        first = m.RunKey(next(iter(self._strategies)), m.EAGER)
        return first if first in runs else None

    def prepare(self, run: m.RunKey, device: torch.device) -> Session:
        """Raises UsageError for a mode or a device that the strategy does not run in."""
        strategy = self._strategies[run.strategy]
        require_mode(run, strategy.modes)
        if missing := _unavailable(strategy, device):
            raise UsageError(
                f"strategy {run.strategy!r} needs {missing}", hint="leave it out with --strategy"
            )

        def compiled(function: Callable[..., object], **options: object) -> Any:
            if run.mode == m.EAGER:
                return function
            return torch.compile(function, mode=run.mode, **options)  # type: ignore[call-overload]

        torch.manual_seed(self._seed)
        step = strategy.build(self._shapes, device, compiled)

        def marked() -> object:
            # What one step returns is whole until the next, however many compiled calls it makes.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            return step()

        replays = device.type == "cuda" and run.mode in ("reduce-overhead", "max-autotune")
        return user.UserSession(marked if replays else step, None)

    def agreement(
        self, results: Mapping[m.RunKey, Mapping[str, np.ndarray]], baseline: m.RunKey | None
    ) -> m.Agreement:
        """Each run against its own strategy in eager mode: other strategies may do other work."""
        judged = []
        for run in results:
            own = m.RunKey(run.strategy, m.EAGER)
            judged.append((run, user.judge(run, results, own if own in results else None)))
        return m.Agreement(baseline=baseline, runs=tuple(judged))


def _unavailable(strategy: Strategy, device: torch.device) -> str:
    """What the strategy lacks here; empty where it can run."""
    if (strategy.cuda or strategy.float8) and device.type != "cuda":
        return "an NVIDIA GPU"
    if strategy.float8 and torch.cuda.get_device_capability(device) < (8, 9):
        return "a GPU that multiplies float8 (compute capability 8.9 or later)"
    return ""
