"""How much of the cores that this process may use other processes take, from /proc (proc(5)).

Processes of this one's group are no others: a loader's workers and a compiler's are the program's.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

# Bound here, because the clocks of TIMING are replaced in its tests and this is none of theirs.
from time import perf_counter
from typing import NamedTuple

from kgprof import model as m

PROC = Path("/proc")
# Columns of a core: user, nice, system, idle, iowait, irq, softirq, steal; what follows is in user.
_COLUMNS = 8
_IDLE = (3, 4)
# Of a process, behind its name: its group; its own time in user and system, and that of its
# children which have ended.
_GROUP = 2
_TIMES = slice(11, 15)
# The kernel counts in ticks of 10 ms: a shorter time says nothing.
SHORTEST_S = 0.2
LOOKS_S = 0.5  # as long as one look before the start takes
BETWEEN_S = 5.0  # from one look to the next, while kgprof waits

Looked = m.Load | m.Skipped


class Moment(NamedTuple):
    at_s: float
    busy: int  # ticks in which one of our cores was not idle, since the machine started
    own: int  # ticks of our processes
    cores: int


def load_from_now(proc: Path = PROC) -> Callable[[], Looked]:
    """What is called at the end, and says what others did meanwhile."""
    first = _now(proc)

    def answer() -> Looked:
        last = _now(proc)
        if isinstance(first, m.Skipped) or isinstance(last, m.Skipped):
            return m.first_skipped(first, last)
        return between(first, last, os.sysconf("SC_CLK_TCK"))

    return answer


def between(first: Moment, last: Moment, ticks_per_s: int) -> Looked:
    seconds = last.at_s - first.at_s
    if seconds < SHORTEST_S:
        return m.Skipped(f"{1000 * seconds:.0f} ms are too short for the kernel's clock")
    own = last.own - first.own
    busy = last.busy - first.busy
    return m.Load(
        seconds=seconds,
        cores=last.cores,
        others_s=max(0, busy - own) / ticks_per_s,
        own_s=own / ticks_per_s,
    )


def _now(proc: Path) -> Moment | m.Skipped:
    if not hasattr(os, "sched_getaffinity"):
        return m.Skipped("only Linux says how busy each core is")
    cores = os.sched_getaffinity(0)
    try:
        busy = busy_ticks((proc / "stat").read_text(), cores)
    except OSError as error:
        return m.Skipped(f"{error.filename}: {error.strerror or error}")
    return Moment(perf_counter(), busy, sum(_own_ticks(proc)), len(cores))


def busy_ticks(stat: str, cores: set[int]) -> int:
    """``stat``: the text of /proc/stat."""
    ticks = 0
    for line in stat.splitlines():
        name, *columns = line.split()
        number = name.removeprefix("cpu")
        if name.startswith("cpu") and number.isdecimal() and int(number) in cores:
            ticks += sum(int(columns[at]) for at in range(_COLUMNS) if at not in _IDLE)
    return ticks


def _own_ticks(proc: Path) -> Iterator[int]:
    """Of each process of our group."""
    group = os.getpgrp()
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):  # it has ended
                # A name may hold a parenthesis and a space.
                columns = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(columns[_GROUP]) == group:
                    yield sum(map(int, columns[_TIMES]))


def look(seconds: float = LOOKS_S) -> Looked:
    """What others do just now; takes so long."""
    load = load_from_now()
    time.sleep(seconds)
    return load()


def wait_for_idle(
    at_most_s: float,
    told: Callable[[m.Load, float], object],
    looks: Callable[[], Looked] = look,
    sleep: Callable[[float], None] = time.sleep,
) -> Looked:
    """The last look: the first at which the machine is not busy, or the one at the end.

    ``told``: at each look at a busy machine, with the seconds that have passed.
    """
    passed_s = 0.0
    began = time.monotonic()
    while isinstance(load := looks(), m.Load) and load.is_high and passed_s < at_most_s:
        told(load, passed_s)
        sleep(min(BETWEEN_S, at_most_s - passed_s))
        passed_s = time.monotonic() - began
    return load
