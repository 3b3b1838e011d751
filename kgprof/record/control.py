"""The control: a run in which nothing of kgprof's listens, to tell what its listening changed.

It is made only where that is in doubt: an exception came through a listener, or a backend failed.
What is known of it is how it ended, and what torch counts by itself.
"""

from pathlib import Path

import torch._dynamo.utils as dynamo

from kgprof import model as m
from kgprof.record import store
from kgprof.record.run import Run

COMPILATIONS = 4096  # whose metrics torch is to keep; by itself it keeps 64


class Control:
    """The watcher of a script that watches nothing."""

    step = None  # it counts none

    def __init__(self, answer: Path) -> None:
        self._answer = answer

    def begin(self) -> None:
        dynamo.set_compilation_metrics_limit(COMPILATIONS)

    def write_now(self) -> None:
        return None  # the counts of half a run are none

    def ended_well(self) -> None:
        return None

    def end(self, why: str = "") -> None:
        store.write_json(self._answer, counted())


def of_steps(run: Run, answer: Path) -> None:
    """Load the workload and make the calls that COMPILE makes of it."""
    dynamo.set_compilation_metrics_limit(COMPILATIONS)
    try:
        session = run.load()
        for _ in range(run.options.steps):
            session.step()
    finally:
        store.write_json(answer, counted())


def counted() -> m.Control:
    compiled: dict[m.SourceLine, bool] = {}
    for metrics in dynamo.get_compilation_metrics():
        if metrics.co_filename and metrics.co_firstlineno:
            code = m.SourceLine(
                file=metrics.co_filename,
                line=metrics.co_firstlineno,
                function=metrics.co_name or "",
            )
            compiled[code] = compiled.get(code, True) and not metrics.fail_type
    return m.Control(
        m.Exit(m.Outcome.OK),  # how it ended is the parent's to say
        graphs=dynamo.counters["stats"]["unique_graphs"],
        frames=dynamo.counters["frames"]["total"],
        frames_ok=dynamo.counters["frames"]["ok"],
        compiled=tuple(code for code, worked in compiled.items() if worked),
    )
