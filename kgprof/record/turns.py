"""Two processes that time one program each, block by block in turn: while one takes a block, the other one waits.

What drifts on a machine within a second (its clock rate, a neighbour) is then the same for both. They pass one byte to
and fro through two pipes. A process that has taken all its blocks says so, and waits until the other one has too, so
that its end disturbs no block; one that has died is seen by the end of its pipe.
"""

from __future__ import annotations

import os
from contextlib import suppress

IN_TURN_FROM = "timing"  # the phase of a round; the second process is started when the first one has come to it
YOURS, DONE = b"t", b"d"


class Turns:
    """``ends``: what to read the other process from, and what to write to it. None: there is no other one."""

    def __init__(self, ends: tuple[int, int] | None = None) -> None:
        self.shared = ends is not None
        self._alone = ends is None
        self._reading, self._writing = ends or (-1, -1)
        for end in ends or ():
            os.set_inheritable(end, False)

    def take(self) -> None:
        """Returns when it is our turn."""
        if not self._alone:
            self._alone = os.read(self._reading, 1) != YOURS

    def give(self) -> None:
        self._say(YOURS)

    def leave(self) -> None:
        """After the last block."""
        self._say(DONE)
        while not self._alone:
            self._alone = os.read(self._reading, 1) != YOURS

    def _say(self, word: bytes) -> None:
        if not self._alone:
            with suppress(BrokenPipeError):  # it has died; what it wrote before is still to be read
                os.write(self._writing, word)
