"""Two processes that time one program each, slice by slice in turn: while one takes its steps, the
other one waits.

A core of a shared machine was seen to change its speed by a third every 0.2 to 1 s (its other
thread belongs to a neighbour). Slices of SLICE_S find it alike, and slice k of both is the same
work where both take as many steps a slice. The one whose turn it becomes goes on where the other
one stopped, on its core: of two that stay on two cores each has the speed of its own. They pass a
few bytes to and fro through two pipes. A process that has taken all its slices says so, and waits
until the other one has too, so that its end disturbs none; one that has died is seen by the end of
its pipe.
"""

import ctypes
import os
import sys
from contextlib import suppress

SLICE_S = 0.02
# the phase of a round; the second process is started when the first one has come to it
IN_TURN_FROM = "timing"
YOURS, DONE = b"t", b"d"  # followed by the number of a core
WORD, NO_CORE = 3, 0xFFFF  # bytes; where the system does not say
FIRST = YOURS + NO_CORE.to_bytes(WORD - 1)  # what the first of two finds


class Turns:
    """``ends``: what to read the other process from, and what to write to it. None: there is no
    other one. ``steps``: of a slice."""

    def __init__(self, ends: tuple[int, int] | None = None, steps: int = 1) -> None:
        self.shared = ends is not None
        self.steps = steps
        self._alone = ends is None
        self._reading, self._writing = ends or (-1, -1)
        for end in ends or ():
            os.set_inheritable(end, False)

    def take(self) -> None:
        """Returns when it is our turn."""
        if not self._alone and not self._wait():
            self._alone = True

    def give(self) -> None:
        if not self._alone:
            self._say(YOURS)

    def leave(self) -> None:
        """After the last slice; also to one that left before, which waits for it."""
        if self.shared:
            self._say(DONE)
        while not self._alone:
            self._alone = not self._wait()

    def _wait(self) -> bool:
        """Whether there is another one still."""
        said = os.read(self._reading, WORD)
        if said[:1] == YOURS:
            # This thread alone, and only for now: threads and processes that it starts inherit what
            # it may use.
            core = int.from_bytes(said[1:])
            if sys.platform == "linux" and core in (allowed := os.sched_getaffinity(0)):
                with suppress(OSError):  # a sandbox may forbid it
                    os.sched_setaffinity(0, {core})
                    os.sched_setaffinity(0, allowed)
        return said[:1] == YOURS

    def _say(self, word: bytes) -> None:
        with suppress(BrokenPipeError):  # it has died; what it wrote before is still to be read
            os.write(self._writing, word + core().to_bytes(WORD - 1))


def core() -> int:
    """That this thread is on."""
    return int(ctypes.CDLL(None).sched_getcpu()) & NO_CORE if sys.platform == "linux" else NO_CORE
