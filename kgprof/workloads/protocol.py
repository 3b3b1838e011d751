"""What a workload is to the recorder: strategies that can each be prepared in a mode and then
stepped."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from kgprof import model as m
from kgprof.errors import UsageError

Tick = Callable[[], None]
Step = Callable[[], object]


@runtime_checkable
class Session(Protocol):
    """One strategy, prepared on one device in one mode. Compilation happens inside the first calls
    of ``step``."""

    def step(self) -> object:
        """One step. May be called any number of times: a workload with an end starts over when it
        is reached."""


@runtime_checkable
class EvaluationSession(Session, Protocol):
    """A session that can also run the whole job from the start, whatever ``step`` did before."""

    def evaluate(self, tick: Tick) -> m.Evaluation | None:
        """Run everything, calling ``tick()`` after each step (and never reading a clock itself).

        None: the job counts no units of work and has no metrics.
        """


@runtime_checkable
class ResultSession(Session, Protocol):
    """A session whose result can be compared with other runs' results."""

    def result(self) -> Mapping[str, np.ndarray]:
        """Named arrays: of the last whole evaluation, or of the last step where there is none."""


@runtime_checkable
class BufferSession(Session, Protocol):
    """A session with tensors that live from step to step, and are meant to stay where they are."""

    def buffers(self) -> Mapping[str, torch.Tensor]:
        """The tensors that stand under these names now; asked before and after each call that is
        watched.

        A name is the attribute's that holds the tensor, so that the line that rebinds it can be
        found.
        """


class Workload(Protocol):
    """A program to measure. One that says what its work is counted in has ``unit`` as well, a
    WorkUnit, so that reports have the time of a unit and units a second."""

    @property
    def name(self) -> str: ...

    def strategies(self) -> Sequence[m.StrategyPlan]:
        """All that can be asked for with --strategy, each with the modes it can run in, the default
        mode first."""

    def default_runs(self, device: torch.device) -> Sequence[m.RunKey]:
        """What runs when neither --strategy nor --mode was given."""

    def baseline(self, runs: Sequence[m.RunKey]) -> m.RunKey | None:
        """The run among ``runs`` that speed-ups are relative to, or None."""

    def prepare(self, run: m.RunKey, device: torch.device) -> Session:
        """Build one strategy in one mode. Raises UsageError for an unknown one."""


@runtime_checkable
class StrategyCheckingWorkload(Workload, Protocol):
    """A workload that has more to say about a strategy's name than whether ``strategies`` holds
    it."""

    def check_strategy(self, name: str) -> None:
        """Raises UsageError for a name that cannot be asked for, in the workload's own words."""


@runtime_checkable
class WeighedWorkload(Workload, Protocol):
    """A workload with strategies that do the same work, behind a read of a predicate and without
    one."""

    def alternatives(self) -> Sequence[m.Alternative]:
        """The pairs to weigh; each name is one of ``strategies``."""


@runtime_checkable
class DivisibleWorkload(Workload, Protocol):
    """A workload of which a part shows whether results are right."""

    def part(self) -> tuple[Workload, str]:
        """The part, and how much of it that is and what asks for all; itself and nothing where all
        was asked for."""


@runtime_checkable
class ComparableWorkload(Workload, Protocol):
    """A workload that can judge the results of its runs."""

    def agreement(
        self, results: Mapping[m.RunKey, Mapping[str, np.ndarray]], baseline: m.RunKey | None
    ) -> m.Agreement:
        """Compare every run's result with the baseline's and with the workload's own reference."""


def require_mode(run: m.RunKey, modes: Sequence[str]) -> None:
    """Raises UsageError for a mode that the strategy does not run in."""
    if run.mode not in modes:
        raise UsageError(
            f"strategy {run.strategy!r} does not run in mode {run.mode!r}",
            hint=f"it runs in: {', '.join(modes)}",
        )
