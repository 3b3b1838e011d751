"""Which lines of the program the CPU is in: a thread looks at the main thread's Python stack.

Python's own code keeps the interpreter's lock for up to 5 ms, and the thread waits for it that
long: a sample stands for all the time since the one before it, not for a share of the samples.
"""

import sys
import threading
import time
from collections import defaultdict
from types import FrameType

from kgprof import model as m
from kgprof.reading.project import ProjectFiles

EVERY_S = 0.002
KEPT = 40
NOT_ITS_OWN = ("torch", "kgprof")  # whose operators the trace names


class LineSamples:
    """From ``start`` to ``stop``, of the thread that starts it."""

    def __init__(self, project: ProjectFiles) -> None:
        self._project = project
        self._watched = 0  # a thread's identifier
        self._stopped = threading.Event()
        self._us: defaultdict[m.SourceLine, float] = defaultdict(float)
        self._is_own: dict[str, bool | None] = {}  # by file
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._watched = threading.get_ident()
        self._thread.start()

    def stop(self) -> m.HostLines:
        self._stopped.set()
        self._thread.join()
        most = sorted(self._us.items(), key=lambda item: -item[1])[:KEPT]
        return m.HostLines(rows=tuple(m.HostLine(at=line, us=us) for line, us in most))

    def _watch(self) -> None:
        before = time.perf_counter_ns()
        while not self._stopped.wait(EVERY_S):
            frame = sys._current_frames().get(self._watched)
            now = time.perf_counter_ns()
            line = self._of_program(frame)
            del frame  # else it would live until the next sample
            if line is not None:
                self._us[line] += (now - before) / 1e3
            before = now

    def _of_program(self, frame: FrameType | None) -> m.SourceLine | None:
        """The innermost line of the program's; None where torch, which it called, runs."""
        while frame is not None:
            code = frame.f_code
            file = code.co_filename
            if file not in self._is_own:
                self._is_own[file] = self._owner(file)
            is_own = self._is_own[file]
            if is_own is None:
                return None
            if is_own:
                return m.SourceLine(file, frame.f_lineno, code.co_qualname)
            frame = frame.f_back
        return None

    def _owner(self, file: str) -> bool | None:
        """Whether a file is the project's; None of torch's and kgprof's."""
        if self._project.holds(file):
            return True
        return None if self._project.package(file)[0] in NOT_ITS_OWN else False
