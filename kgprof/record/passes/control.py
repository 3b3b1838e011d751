"""The control: a run in which nothing of kgprof's listens, to tell what its listening changed.

It is made only where that is in doubt: an exception came through a listener, or a backend failed.
What is known of it is how it ended, and what torch counts by itself.

A trial is a control with one setting of torch, made before the program is loaded, to see what the
setting changes. It leaves no answer if the program itself changes the setting.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch._dynamo.config
import torch._dynamo.utils as dynamo

from kgprof import model as m
from kgprof.reading.code_counts import code_counts, graph_count
from kgprof.record.ground import store
from kgprof.record.ground.run import Run

COMPILATIONS = 4096  # whose metrics torch is to keep; by itself it keeps 64
_DYNAMO = "/torch/_dynamo/"  # its stand-ins for what the program calls


class Control:
    """The watcher of a script that watches nothing."""

    step = None  # it counts none

    def __init__(self, answer: Path, setting: m.Setting | None = None) -> None:
        self._answer = answer
        self._setting = setting

    def begin(self) -> None:
        dynamo.set_compilation_metrics_limit(COMPILATIONS)
        make(self._setting)

    def write_now(self) -> None:
        return None  # the counts of half a run are none

    def ended_well(self) -> None:
        return None

    def end(self, why: str = "") -> None:
        _write(self._answer, self._setting)


def of_steps(run: Run, answer: Path, setting: m.Setting | None = None) -> None:
    """Load the workload and make the calls that COMPILE makes of it."""
    dynamo.set_compilation_metrics_limit(COMPILATIONS)
    make(setting)
    try:
        session = run.load()
        make(setting)  # a file that sets it while it is loaded would be edited there
        for _ in range(run.options.steps):
            session.step()
    finally:
        _write(answer, setting)


def changes_something(setting: m.Setting) -> bool:
    """Tell whether this torch has the setting, and has it otherwise."""
    value = getattr(torch._dynamo.config, setting.name, None)
    return isinstance(value, bool) and value is not setting.value


def make(setting: m.Setting | None) -> None:
    if setting is not None:
        setattr(torch._dynamo.config, setting.name, setting.value)


def _write(answer: Path, setting: m.Setting | None) -> None:
    if setting is None or not changes_something(setting):
        store.write_json(answer, counted())


def counted() -> m.Control:
    metrics = [vars(each) for each in dynamo.get_compilation_metrics()]
    forward = [each for each in metrics if each.get("is_forward") is not False]
    counts = code_counts(forward)
    worked = (each.code for each in counts if not each.failures)
    return m.Control(
        m.Exit(m.Outcome.OK),  # how it ended is the parent's to say
        compiled_s=_compiled_s(metrics),
        graphs=graph_count(forward),
        frames=dynamo.counters["frames"]["total"],
        frames_ok=dynamo.counters["frames"]["ok"],
        compiled=tuple(code for code in worked if code.file and code.line),
        breaks=tuple(dict.fromkeys((*_broken(), *_given_up(forward)))),
        counts=counts,
    )


def _compiled_s(compilations: list[dict[str, Any]]) -> float:
    """Return the seconds since the first compilation began, without those of compiling."""
    starts = [began for each in compilations if (began := each.get("start_time_us"))]
    if not starts:
        return 0.0
    compiling_us: int = sum(each.get("duration_us") or 0 for each in compilations)
    began_us: int = min(starts)
    return max(time.time() - (began_us + compiling_us) / 1e6, 0.0)


def _broken() -> Iterator[m.SourceLine]:
    """The lines at which a graph ended before its function did."""
    for reason in dynamo.graph_break_reasons:
        lines = [frame for frame in reason.user_stack if _DYNAMO not in frame.filename]
        if lines:
            yield m.SourceLine(file=lines[-1].filename, line=lines[-1].lineno or 0)


def _given_up(compilations: list[dict[str, Any]]) -> Iterator[m.SourceLine]:
    """The lines for which a function was given up."""
    for metrics in compilations:
        file = metrics.get("fail_user_frame_filename")
        if file:
            yield m.SourceLine(file=file, line=metrics.get("fail_user_frame_lineno") or 0)
