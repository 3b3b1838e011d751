"""HOST: cProfile over ``--steps`` steps. Callees that Dynamo inlined are not in it."""

import cProfile
from collections.abc import Iterable
from types import CodeType
from typing import Any

import torch

from kgprof import model as m
from kgprof.record.ground.run import Run
from kgprof.record.passes import timing
from kgprof.workloads.protocol import Session

ROWS = 200  # by self time; the rest is counted
LAST_SEEN = "<method 'disable' of '_lsprof.Profiler'"  # the last call that cProfile sees


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


def host_table(entries: Iterable[Any], step_us: timing.Times) -> m.HostPass:
    """The functions with the most self time. ``entries``: cProfile's, of those steps."""
    each = (_row(entry) for entry in entries)
    told = [row for row in each if not row.function.startswith(LAST_SEEN)]
    rows = sorted(told, key=lambda row: (-row.self_us, row.file, row.line, row.function))
    return m.HostPass(
        step_us=step_us,
        rows=tuple(rows[:ROWS]),
        rows_left_out=max(0, len(rows) - ROWS),
        total_self_us=sum(row.self_us for row in rows),
    )


def _row(entry: Any) -> m.HostRow:
    """cProfile's entries carry a code object, or the text ``<built-in method ...>`` for what is not
    Python."""
    code = entry.code
    is_python = isinstance(code, CodeType)
    return m.HostRow(
        function=code.co_qualname if is_python else str(code),
        file=code.co_filename if is_python else "",
        line=code.co_firstlineno if is_python else 0,
        calls=entry.callcount,
        self_us=entry.inlinetime * 1e6,
        cumulative_us=entry.totaltime * 1e6,
    )
