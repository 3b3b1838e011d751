"""HOST: cProfile over ``--steps`` steps. Callees that Dynamo inlined are not in it."""

from __future__ import annotations

import cProfile
from collections.abc import Iterable
from types import CodeType
from typing import Any

import torch

from kgprof import model as m
from kgprof.record import timing
from kgprof.record.run import Run
from kgprof.workloads.protocol import Session

ROWS = 200  # by self time; the rest is counted


def measure(run: Run) -> None:
    run.write(m.PassName.HOST, host_pass(run.session, run.device, run.options))


def host_pass(session: Session, device: torch.device, options: m.Options) -> m.HostPass:
    profiler = cProfile.Profile()
    clock = timing.clock_for(device)
    timing.synchronize(device)
    clock.start()
    for _ in range(options.steps):
        # The clock's own calls stay out of the table.
        profiler.enable()
        try:
            session.step()
        finally:
            profiler.disable()
        clock.tick()
    return host_table(profiler.getstats(), clock.stop())


def host_table(entries: Iterable[Any], step_us: tuple[float, ...]) -> m.HostPass:
    """The functions with the most self time. ``entries``: cProfile's, of those steps."""
    rows = sorted(_rows(entries), key=lambda row: (-row.self_us, row.file, row.line, row.function))
    return m.HostPass(
        step_us=step_us,
        rows=tuple(rows[:ROWS]),
        rows_left_out=max(0, len(rows) - ROWS),
        total_self_us=sum(row.self_us for row in rows),
    )


def _rows(entries: Iterable[Any]) -> Iterable[m.HostRow]:
    """cProfile's entries carry a code object, or the text ``<built-in method ...>`` for what is not Python."""
    for entry in entries:
        code = entry.code
        if isinstance(code, CodeType):
            name, file, line = code.co_qualname, code.co_filename, code.co_firstlineno
        else:
            name, file, line = str(code), "", 0
        if name.startswith("<method 'disable' of '_lsprof.Profiler'"):  # the last call that cProfile sees
            continue
        yield m.HostRow(
            function=name,
            file=file,
            line=line,
            calls=entry.callcount,
            self_us=entry.inlinetime * 1e6,
            cumulative_us=entry.totaltime * 1e6,
        )
